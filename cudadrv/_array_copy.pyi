# This module has no names for Python. It is only cimported.
