"""Kernel: a function of a module, as users see it."""

from cudadrv._function cimport Function


cdef class Kernel(Function):
    pass
