"""Buffer: what DeviceBuffer, LockedBuffer and UnifiedBuffer have in common."""

from cudadrv._region cimport Region


cdef tuple borrows_of(Region region)
cdef str state_of(Region region)
cdef str explain_region(Region region)


cdef class Buffer(Region):
    cdef bint fill_on_host(self, const unsigned char *item) except -1
    cdef bint copy_in_on_host(self, array) except -1
    cdef bint copy_out_on_host(self, array) except -1
    cdef Buffer moved_to(self, object place, bint copy, object kind, object stream)
