"""The NumPy backend: the definition of every operation."""
