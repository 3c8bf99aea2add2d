"""Staging: copies between buffers and ordinary memory, through page-locked stages."""

from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token

cdef Token copy_array(int name, Region region, object array, Stream stream)
