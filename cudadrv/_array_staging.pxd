"""Copies between arrays and ordinary memory, through page-locked stages."""

from cudadrv._array_memory cimport Texels
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef object source_of(object source, Texels target)
cdef object target_of(object target, Texels source)
cdef int copy_ordinary(int name, Texels texels, object array, Stream stream) except -1
cdef Token copy_ordinary_async(Texels target, object array, Stream stream, object written)
