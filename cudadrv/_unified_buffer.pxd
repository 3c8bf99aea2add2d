"""UnifiedBuffer: managed memory."""

from cudadrv._host_buffer cimport HostBuffer


cdef class UnifiedBuffer(HostBuffer):
    pass
