"""Staging: ordinary memory reaches the GPU through page-locked memory of the library's own."""

from cudadrv._context cimport Context
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token

cdef Token copy_array(int name, Region region, object array, Stream stream)
cdef int drop_idle_stages(Context context) except -1
