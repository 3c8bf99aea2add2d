"""Fills of buffers."""

from libc.string cimport memcpy

from cudadrv._driver cimport CUcontext, CUdeviceptr, likely
from cudadrv._region cimport Region, check_region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef enum:
    MOST_BYTES = 16     # of an item whose bytes differ


# `shape_fill` sets the target and the items. If the driver cannot fill such items, they are bytes.
cdef struct Fill:
    CUdeviceptr target
    size_t count
    size_t itemsize
    unsigned char[16] item
    bint doubles        # whether a large fill with an item of several words may copy itself
    CUcontext context   # of the stream, for these copies


# The value of the last fill is kept, because programs often repeat a fill.
cdef object last_value          # an int or a float: immutable, so `is` can compare them
cdef object last_dtype          # the dtype of `last_item`
cdef unsigned char[16] last_item     # `last_value` as an item of `last_dtype`

cdef int set_new_item(unsigned char *item, object value, Region region) except -1
cdef int shape_fill(Fill *fill, Region region, const unsigned char *item) except -1
cdef int columns_of(const Fill *fill) noexcept nogil
cdef Token fill_region(int name, Region region, const unsigned char *item, Stream stream)


cdef inline int set_item(unsigned char *item, object value, Region region) except -1:
    """Convert a value to an item of the buffer. Raises if the device cannot fill with this item."""
    if likely(value is last_value and region.dtype is last_dtype):
        memcpy(item, last_item, sizeof(last_item))
        return 0
    check_region(region)
    return set_new_item(item, value, region)
