"""Fills: one value in every item of a buffer."""

from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token

cdef bytes item_bytes(object value, object dtype)
cdef Token fill_region(int name, Region region, bytes item, Stream stream)
