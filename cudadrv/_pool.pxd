"""MemoryPool: what a context keeps for new buffers, as the program sees it."""

from cudadrv._cache cimport Cache
from cudadrv._context cimport Context


cdef class MemoryPool:
    cdef Context context
    cdef Cache cache
    cdef str name
    cdef object __weakref__


cdef class MemoryPools:
    cdef MemoryPool device
    cdef MemoryPool locked
    cdef MemoryPool unified
    cdef object __weakref__
