"""Copies from and to arrays."""

from cudadrv._array_memory cimport Texels
from cudadrv._driver cimport CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUevent, CUresult, CUstream
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef struct ArrayCopy:
    CUDA_MEMCPY3D params
    bint across             # between two contexts
    CUcontext target_context
    CUcontext source_context
    CUevent marker          # as in _copy.Copy


cdef Token copy_texels_async(
    int name, Region target, Region source, object stream, object written, object read, str method)
cdef int copy_texels_and_wait(
    int name, Region target, Region source, object stream, object written, object read) except -1
cdef int describe_texels(ArrayCopy *copy, Region target, Region source) except -1
cdef bint are_same_texels(Region target, Region source) noexcept
cdef int check_texels(Region target, Region source) except -1
cdef size_t slabs_of(Texels texels, size_t *nbytes) noexcept
cdef void describe_staged_texels(
    ArrayCopy *copy, Texels texels, char *stage, bint inward, size_t first, size_t count) noexcept
cdef CUresult array_call(void *arguments, CUstream stream, bint *queued) noexcept nogil
cdef int check_items(
    Texels texels, str other, tuple shape, object count, bint shaped) except -1
