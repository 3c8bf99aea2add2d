"""Report: who uses a buffer."""

from cudadrv._region cimport Region

cdef tuple borrows_of(Region region)
cdef str state_of(Region region)
cdef str explain_region(Region region)
