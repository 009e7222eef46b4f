"""CKKS beside other libraries: `python benchmarks/peers` runs all of it, and `--help` says what can be chosen.

Every library runs in a process and, where it needs one, an environment of its own, and answers requests that are lines of JSON
(`worker`). They take turns at every operation, in alternating order (`turns`), so that whatever else the machine does meets all of
them. What a worker's process imports (`worker`, `system`, `systems`) runs on Python 3.10 as well.
"""
