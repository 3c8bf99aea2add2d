"""Prepared: a launch that is checked and packed, to be queued often."""

from cudadrv._arguments cimport Packed
from cudadrv._kernel cimport Kernel
from cudadrv._room cimport Room
from cudadrv._shape cimport Shape


cdef class Prepared:
    cdef Kernel kernel
    cdef tuple args    # keep the buffers alive
    cdef tuple borrows
    cdef object reads
    cdef object writes
    cdef Room room              # of what `packed` refers to
    cdef Packed packed
    cdef Shape shape
    cdef object __weakref__
