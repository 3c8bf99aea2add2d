"""Pools: memory that a context keeps for the next buffer."""

from libc.stdint cimport uint32_t

from cudadrv._device cimport Context, Device, Kept
from cudadrv._driver cimport CUdeviceptr, CUmemoryPool
from cudadrv._engine cimport own_guard, own_memory, own_stream
from cudadrv._memory_kinds cimport MemoryKind
from cudadrv._ordering cimport Nesting


cdef enum:
    # Blocks of different shelves cannot replace each other: see `_shelf_of` in _memory.pyx.
    SHELVES = 4
    CLASSES = 416   # how many size classes there are: see `class_of`


cdef struct Links:
    Block *newer
    Block *older


# One allocation of the driver. While a buffer has the block, the block is in no list, and the
# buffer's Memory owns the state.
cdef struct Block:
    CUdeviceptr address
    size_t nbytes
    own_memory *state   # the record of the memory's uses, which decides who may get the block
    MemoryKind kind
    unsigned int shelf
    void *cache         # its Cache, without a reference, because the context keeps the cache alive
    # links[OF_CLASS] has the neighbours in the list of the block's class, and links[OF_ALL] has the
    # neighbours in the list of all blocks of the cache.
    Links links[2]


cdef struct Blocks:
    Block *newest
    Block *oldest
    size_t count


# The part of a DriverPool that allocations need. DriverPool itself is in a module below this one.
cdef class PoolHandle:
    cdef CUmemoryPool raw       # NULL before the pool is made, and after it is closed
    cdef MemoryKind kind        # DEVICE, LOCKED or UNIFIED: the kind of buffers that use the pool
    cdef Device device          # the only device that allocates from the pool, or None
    cdef Py_ssize_t buffers     # how many live Memory objects have, or are getting, its memory
    cdef uint32_t closed_at     # the line that closed the pool, or 0
    cdef size_t resets          # `resets` (see _device.pxd) when the pool was made
    cdef own_guard guard        # the users are calls that pass the handle to the driver

    cdef int usable(self) except -1
    cdef int begin_call(self) except -1
    cdef void end_call(self) noexcept nogil


cdef bint driver_pools_used     # True once a `with pool:` block or a `driver_pool` was set
cdef void use_driver_pools() noexcept
cdef Nesting blocks_of(MemoryKind kind)
cdef PoolHandle chosen_pool(MemoryKind kind, Context context)


cdef class Cache:
    cdef Blocks all
    cdef Blocks classes[SHELVES][CLASSES]
    cdef size_t used        # bytes of blocks that buffers have
    cdef size_t peak        # the maximum of `used` so far
    cdef size_t cached      # bytes of blocks that no buffer has
    cdef size_t limit       # the maximum that `cached` may reach
    cdef unsigned long long hits
    cdef unsigned long long misses
    cdef PoolHandle driver_pool     # the DriverPool that new buffers use instead, or None
    cdef void *newer        # the next newer Cache in the list of all caches, or NULL
    cdef void *older        # the next older Cache in that list, or NULL

    cdef size_t size_for(self, unsigned int shelf, size_t nbytes) noexcept
    cdef Block *take(self, unsigned int shelf, size_t nbytes, const own_stream *stream) noexcept
    cdef Block *add(
        self, MemoryKind kind, unsigned int shelf, CUdeviceptr address, size_t nbytes) except NULL
    cdef void put(self, Block *block, Context context) noexcept
    cdef void forget(self, Block *block) noexcept
    cdef void trim(self, size_t keep, Context context) noexcept


# The caches of a context, one for each kind of memory that has a pool.
cdef class Caches(Kept):
    cdef tuple all                  # the Caches, by `KindRow.pool`
    cdef object on_out_of_memory    # the function set as `MemoryPools.on_out_of_memory`, or None


cdef Cache cache_of(Context context, MemoryKind kind)
cdef int trim_caches() except -1
cdef bint make_room(Context context, size_t nbytes) except -1
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
    cdef Context context
    cdef object __weakref__
