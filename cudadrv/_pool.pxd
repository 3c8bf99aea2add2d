"""Pools: memory of a context that no buffer has, kept for the next buffer."""

from cudadrv._device cimport Context, Kept
from cudadrv._driver cimport CUdeviceptr
from cudadrv._engine cimport own_memory, own_stream
from cudadrv._release cimport MemoryKind


cdef enum:
    SHELVES = 2     # of a cache: memory that is not like that of the other one
    CLASSES = 416   # by size: see class_of


cdef struct Links:
    Block *newer
    Block *older


# One allocation of the driver. A buffer that has it has its state; then it is in no list.
cdef struct Block:
    CUdeviceptr address
    size_t nbytes
    own_memory *state   # its uses: they decide who may have it next
    MemoryKind kind
    unsigned int shelf
    void *cache         # borrowed: a context outlives its memory
    Links links[2]      # to its neighbours of the same class, and of all


cdef struct Blocks:
    Block *newest
    Block *oldest
    size_t count


cdef class Cache:
    cdef Blocks all
    cdef Blocks classes[SHELVES][CLASSES]
    cdef size_t used        # bytes of blocks that buffers have, and
    cdef size_t peak        # the most that there were
    cdef size_t cached      # bytes of blocks that no buffer has, and
    cdef size_t limit       # the most that there may be
    cdef unsigned long long hits
    cdef unsigned long long misses
    cdef void *newer        # neighbours in the list of all caches
    cdef void *older

    cdef size_t size_for(self, unsigned int shelf, size_t nbytes) noexcept
    cdef Block *take(self, unsigned int shelf, size_t nbytes, const own_stream *stream) noexcept
    cdef Block *add(
        self, MemoryKind kind, unsigned int shelf, CUdeviceptr address, size_t nbytes) except NULL
    cdef void put(self, Block *block, Context context) noexcept
    cdef void forget(self, Block *block) noexcept
    cdef void trim(self, size_t keep, Context context) noexcept


# Those of a context.
cdef class Caches(Kept):
    cdef Cache device
    cdef Cache locked
    cdef Cache unified

    cdef list all(self)


cdef Cache cache_of(Context context, MemoryKind kind)
cdef int trim_caches() except -1
cdef size_t cached_bytes() noexcept
cdef bint is_cached(CUdeviceptr address, size_t nbytes) noexcept


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
