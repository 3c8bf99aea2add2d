"""Staging: ordinary memory reaches the GPU through page-locked memory of the library's own."""

from cudadrv._context cimport Context
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token

cdef int copy_in(Region target, const char *source, size_t nbytes, Stream stream) except -1
cdef int copy_out(Region source, char *target, size_t nbytes, Stream stream) except -1
cdef Token copy_in_async(Region target, const char *source, size_t nbytes, Stream stream)
cdef int drop_idle_stages(Context context) except -1
