"""Growing: buffers whose size changes and whose address stays."""

from cudadrv._device cimport Context
from cudadrv._region cimport Region


cdef int allocate_growing(
    Region region, object count, object dtype, object capacity, Context context,
    object accessible_by, object name) except -1
cdef int grow_region(Region region, object count) except -1
cdef int shrink_region(Region region, object count) except -1
cdef object capacity_of(Region region)
cdef tuple devices_of(Region region)
