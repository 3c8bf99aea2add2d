# No names for Python.
