"""One module a library; `make(setting, values, threads)` gives its `System`."""
