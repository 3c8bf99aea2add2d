"""Captures that other libraries begin."""

from libc.stdint cimport uint64_t

from cudadrv._capture cimport Capture, Plan
from cudadrv._stream cimport Stream


cdef class JoinedCapture:
    cdef Stream stream
    cdef str label              # the name of the library's graph in messages
    cdef uint64_t number
    cdef Capture capture        # None outside the block
    cdef Plan plan              # has the nodes, and keeps the memory; None before the block
    cdef bint closed
    cdef object __weakref__
