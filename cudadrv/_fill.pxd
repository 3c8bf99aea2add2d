"""Fills: one value in every item of a buffer."""

from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token

cdef int set_item(unsigned char *item, object value, object dtype) except -1
cdef Token fill_async(Region region, object value, object stream)
cdef Token fill_region(int name, Region region, const unsigned char *item, Stream stream)
