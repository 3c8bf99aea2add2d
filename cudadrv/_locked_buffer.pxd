"""LockedBuffer: page-locked host memory."""

from cudadrv._host_buffer cimport HostBuffer


cdef class LockedBuffer(HostBuffer):
    pass
