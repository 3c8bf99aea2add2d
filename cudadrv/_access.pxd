"""Access: a buffer, and what a kernel does with it."""

from libc.stdint cimport uint8_t

from cudadrv._region cimport Region


cdef class Access:
    cdef Region region
    cdef uint8_t mode
    cdef object __weakref__
