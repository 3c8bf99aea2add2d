"""Signature: the parameters of a kernel."""

from libc.stdint cimport uint32_t

from cudadrv._context cimport Context
from cudadrv._driver cimport CUfunction


cdef struct Parameter:
    uint32_t offset
    uint32_t nbytes
    char kind           # u, s, b or f as in PTX; S: a structure; 0: not known


cdef class Signature:
    cdef readonly str kernel        # the name of the kernel
    cdef readonly tuple listed      # cudadrv._ptx.Parameter for each; None if nothing is known
    cdef Parameter *parameters
    cdef Py_ssize_t count           # -1 if nothing is known
    cdef size_t nbytes              # of all of them

    cdef str called(self, Py_ssize_t index)


cdef Signature new_signature(str kernel, CUfunction function, Context context, object text)
