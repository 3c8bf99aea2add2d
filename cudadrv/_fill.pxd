"""Fills: one value in every item of a buffer."""

from libc.string cimport memcpy

from cudadrv._likely cimport likely
from cudadrv._region cimport Region, check_region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token

# What was asked for last: fills come in rows.
cdef object last_value      # an int or a float, which stay what they are,
cdef object last_dtype      # as an item of this dtype
cdef unsigned char[8] last_item

cdef int set_new_item(unsigned char *item, object value, Region region) except -1
cdef Token fill_region(int name, Region region, const unsigned char *item, Stream stream)


cdef inline int set_item(unsigned char *item, object value, Region region) except -1:
    """Set the 8 bytes that begin with an item of a buffer, or refuse the dtype, or the value."""
    if likely(value is last_value and region.dtype is last_dtype):
        memcpy(item, last_item, sizeof(last_item))
        return 0
    check_region(region)
    return set_new_item(item, value, region)
