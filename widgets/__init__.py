"""The notebook widgets: their Python classes, and beside them the scripts and styles of their front ends.

The folder `widgets/` of the source tree is the package `ren_lab.widgets`; it is imported by that name and no other.
"""
