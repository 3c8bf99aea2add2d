"""Buffer: what DeviceBuffer, LockedBuffer and UnifiedBuffer have in common."""

from cudadrv._region cimport Region


cdef class Buffer(Region):
    cdef bint fill_on_host(self, bytes item) except -1
    cdef bint copy_in_on_host(self, array) except -1
    cdef bint copy_out_on_host(self, array) except -1
