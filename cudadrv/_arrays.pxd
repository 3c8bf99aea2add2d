"""Array: memory that textures and surfaces use."""

from cudadrv._array_memory cimport Texels
from cudadrv._region cimport Region


cdef class Array:
    cdef Texels texels
    cdef object __weakref__


cdef Array array_over(Texels texels)
cdef Region copied_region(object given)


cdef inline Region region_behind(object used):
    """Return the region of an array, or of a buffer, that an operation uses."""
    return (<Array>used).texels if type(used) is Array else used
