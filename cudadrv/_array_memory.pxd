"""The memory of arrays, and texels: a part of an array."""

from cudadrv._device cimport Context
from cudadrv._driver cimport CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUarray_format, CUmipmappedArray
from cudadrv._region cimport Region


cdef enum:
    MOST_LEVELS = 18    # of a mipmapped array: more than any extent has


cdef class Layout:
    # What an array is made of. Its memory keeps it.
    cdef CUDA_ARRAY3D_DESCRIPTOR raw
    cdef object dtype               # of a channel
    cdef int channels
    cdef int levels
    cdef bint layered               # the first size of the shape counts layers, or faces of cubes
    cdef size_t texel               # bytes of a texel
    cdef size_t offsets[MOST_LEVELS + 1]    # where the texels of each level begin, and the end
    cdef CUarray arrays[MOST_LEVELS]        # the driver's array of each level, if there are several

    cdef bint flag(self, unsigned int flag) noexcept
    cdef tuple sizes_of(self, int level)


cdef class Texels(Region):
    cdef Layout layout
    cdef CUarray raw                # the driver's array; NULL: that of all levels
    cdef int level
    cdef tuple axes                 # for each dimension of the shape: 0, 1 or 2 (x, y or z)
    cdef size_t origin[3]           # the first texel, in x, y and z
    cdef size_t extents[3]          # how many texels, in x, y and z

    cdef Texels at_level(self, int level)
    cdef tuple item_shape(self)


cdef Layout new_layout(
    object shape, object dtype, object channels, bint layered, bint cubemap, object mipmaps,
    bint surface, bint gather)
cdef Texels allocate_array(Layout layout, Context context, object name)
cdef CUarray_format format_of(object dtype) except *
cdef int checked_channels(object channels) except -1
