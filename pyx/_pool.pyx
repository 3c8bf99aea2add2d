"""Pools: memory of a context that no buffer has, kept for the next buffer."""

from typing import NamedTuple

cimport cython
from libc.stdlib cimport free, malloc

from cudadrv._device cimport Context, Kept, contexts, report_in
from cudadrv._driver cimport CU_STREAM_LEGACY, CUdeviceptr, CUresult, bind_driver, cudadrv_table
from cudadrv._engine cimport engine, own_memory_clear, own_memory_reusable, own_stream
from cudadrv._release cimport (
    DEVICE, LOCKED, STREAM_ORDERED, UNIFIED, MemoryKind, drain, free_unnoticed, release_later,
)

from cudadrv._errors import integer

bind_driver(&cudadrv_table)


# ---- blocks ----
#
# A block is one allocation of the driver, and never divided: so an address can be given away,
# buffers are never neighbours in one allocation, and nothing is left over between them. Its size is
# within an eighth, or 511 bytes, of what is asked for. It keeps the record of its uses, and goes to
# a buffer only when all of them are ordered before whatever the buffer can be used for. So who gets
# what depends on what the program has ordered, and never on what the GPU has done meanwhile.
#
# Putting a block back makes no driver call and waits for nothing: destructors do it.

cdef enum:
    OF_CLASS
    OF_ALL

cdef enum:
    SMALL = 4096            # up to here, a class is a multiple of
    GRAIN = 512             # bytes
    MOST_LOOKS = 4          # at the newest of a class, and at its oldest
    MOST_OF_A_CLASS = 1024  # blocks, whatever their size
    DEVICE_SHARE = 8        # of a device's memory, one part in so many may be cached
    HOST_LIMIT = 256 << 20  # bytes of page-locked memory, and of managed memory

cdef void *_newest = NULL  # head of the list of all caches

cdef extern from *:
    """
    static inline unsigned int cache_power(size_t n) { return 63 - __builtin_clzll(n); }
    """
    unsigned int cache_power(size_t number) noexcept nogil


cdef inline unsigned int class_of(size_t nbytes) noexcept nogil:
    """The size class: multiples of 512 bytes up to 4096, then eight for each power of two."""
    cdef unsigned int power
    if nbytes <= SMALL:
        return (nbytes - 1) // GRAIN
    power = cache_power(nbytes - 1)
    return (power - 12) * 8 + ((nbytes - 1) >> (power - 3))


cdef inline size_t largest_of(unsigned int number) noexcept nogil:
    """The most bytes that belong to a class."""
    if number < <unsigned int>(SMALL // GRAIN):
        return <size_t>GRAIN * (number + 1)
    return <size_t>(number % 8 + 9) << (number // 8 + 8)


cdef inline void _link(Blocks *blocks, Block *block, int which) noexcept:
    """Add it as the newest."""
    block.links[which] = Links(NULL, blocks.newest)
    if blocks.newest is NULL:
        blocks.oldest = block
    else:
        blocks.newest.links[which].newer = block
    blocks.newest = block
    blocks.count += 1


cdef inline void _unlink(Blocks *blocks, Block *block, int which) noexcept:
    cdef Links links = block.links[which]
    if links.newer is NULL:
        blocks.newest = links.older
    else:
        links.newer.links[which].older = links.older
    if links.older is NULL:
        blocks.oldest = links.newer
    else:
        links.older.links[which].newer = links.newer
    blocks.count -= 1


@cython.final
cdef class Cache:
    """The blocks of one kind of memory of a context: internal to the pools.

    It does not refer to the context, which refers to it.
    """

    def __cinit__(self):
        global _newest
        self.older = _newest
        if _newest is not NULL:
            (<Cache>_newest).newer = <void *>self
        _newest = <void *>self

    def __dealloc__(self):
        """The context is gone, and with it its memory: see `end_with` for the rest."""
        global _newest
        cdef Block *block = self.all.newest
        if self.newer is not NULL:
            (<Cache>self.newer).older = self.older
        else:
            _newest = self.older
        if self.older is not NULL:
            (<Cache>self.older).newer = self.newer
        while block is not NULL:
            _unlink(&self.all, block, OF_ALL)
            _drop(block)
            block = self.all.newest

    cdef size_t size_for(self, unsigned int shelf, size_t nbytes) noexcept:
        """How much to allocate where there is no block.

        As much as was asked for, so that the driver finds the first access behind it; all that the
        class has where sizes of one class come and go, so that one block will do for them.
        """
        cdef unsigned int number = class_of(nbytes)
        cdef Block *newest = self.classes[shelf][number].newest
        if newest is not NULL and newest.nbytes < nbytes:
            return largest_of(number)
        return nbytes

    cdef Block *take(self, unsigned int shelf, size_t nbytes, const own_stream *stream) noexcept:
        """A block for a buffer of a stream, or of the host (NULL); NULL if there is none."""
        cdef Blocks *row = &self.classes[shelf][class_of(nbytes)]
        cdef Block *block = row.newest
        cdef size_t looks = min(row.count, <size_t>MOST_LOOKS)
        while looks and not _is_for(block, nbytes, stream):
            block = block.links[OF_CLASS].older
            looks -= 1
        if looks == 0 and row.count > MOST_LOOKS:  # the oldest were last used a longer time ago
            looks = min(row.count - MOST_LOOKS, <size_t>MOST_LOOKS)
            block = row.oldest
            while looks and not _is_for(block, nbytes, stream):
                block = block.links[OF_CLASS].newer
                looks -= 1
        if looks == 0:
            self.misses += 1
            return NULL
        self.hits += 1
        _remove(self, block)
        _use(self, block)
        return block

    cdef Block *add(
        self, MemoryKind kind, unsigned int shelf, CUdeviceptr address, size_t nbytes
    ) except NULL:
        """A block for memory that a buffer has got from the driver."""
        cdef Block *block = <Block *>malloc(sizeof(Block))
        if block is NULL:
            raise MemoryError()
        block.address = address
        block.nbytes = nbytes
        block.state = NULL
        block.kind = kind
        block.shelf = shelf
        block.cache = <void *>self
        _use(self, block)
        return block

    cdef void put(self, Block *block, Context context) noexcept:
        """The buffer is gone, and has left the state: keep the block, or let go of it."""
        cdef Blocks *row
        self.used -= block.nbytes
        if context.lost or cudadrv_table.forked or block.nbytes > self.limit:
            _let_go(block, context)
            return
        row = &self.classes[block.shelf][class_of(block.nbytes)]
        _link(row, block, OF_CLASS)
        _link(&self.all, block, OF_ALL)
        self.cached += block.nbytes
        if row.count > MOST_OF_A_CLASS:
            _evict(self, row.oldest, context)
        self.trim(self.limit, context)

    cdef void forget(self, Block *block) noexcept:
        """The buffer's memory will not come back here. Its state stays with the buffer."""
        self.used -= block.nbytes
        free(block)

    cdef void trim(self, size_t keep, Context context) noexcept:
        """Let go of the oldest blocks, until at most so many bytes are left."""
        while self.cached > keep:
            _evict(self, self.all.oldest, context)


cdef inline bint _is_for(Block *block, size_t nbytes, const own_stream *stream) noexcept:
    return block.nbytes >= nbytes and own_memory_reusable(engine, stream, block.state)


cdef inline void _use(Cache cache, Block *block) noexcept:
    cache.used += block.nbytes
    if cache.used > cache.peak:
        cache.peak = cache.used


cdef void _remove(Cache cache, Block *block) noexcept:
    _unlink(&cache.classes[block.shelf][class_of(block.nbytes)], block, OF_CLASS)
    _unlink(&cache.all, block, OF_ALL)
    cache.cached -= block.nbytes


cdef void _evict(Cache cache, Block *block, Context context) noexcept:
    _remove(cache, block)
    _let_go(block, context)


cdef void _let_go(Block *block, Context context) noexcept:
    """Let the driver have it, when that blocks nobody."""
    block.state.nbytes = block.nbytes
    release_later(block.kind, block.address, block.state, context, None)
    free(block)


cdef void _drop(Block *block) noexcept:
    own_memory_clear(block.state)
    free(block.state)
    free(block)


@cython.final
@cython.no_gc_clear  # blocks of memory that is still alive point to the caches
cdef class Caches(Kept):
    """The caches of a context, by kind of memory."""

    cdef list all(self):
        return [self.device, self.locked, self.unified]

    cdef void end_with(self, Context context) noexcept:
        """Free the stream-ordered memory: it is the device's, and outlives its context.

        No work uses it any more, so freeing it waits for nobody.
        """
        cdef Block *block = self.device.all.newest
        cdef CUresult status
        while block is not NULL:
            if block.kind == STREAM_ORDERED:
                with nogil:
                    status = free_unnoticed(context, block.kind, block.address, CU_STREAM_LEGACY)
                report_in(context, status)
            block = block.links[OF_ALL].older


cdef Cache cache_of(Context context, MemoryKind kind):
    """The cache of a context for a kind of memory of our own."""
    cdef Caches caches
    if context.caches is None:
        _make_caches(context)
    caches = <Caches>context.caches
    if kind == LOCKED:
        return caches.locked
    return caches.unified if kind == UNIFIED else caches.device


cdef int _make_caches(Context context) except -1:
    cdef Caches caches = Caches()
    caches.device, caches.locked, caches.unified = Cache(), Cache(), Cache()
    caches.device.limit = context.device.total_memory // DEVICE_SHARE
    caches.locked.limit = caches.unified.limit = HOST_LIMIT
    if context.caches is None:  # no other thread was faster
        context.caches = caches
    return 0


cdef int trim_caches() except -1:
    """Let go of all blocks of all contexts."""
    cdef Context context
    for context in contexts():
        if context.caches is not None:
            for cache in (<Caches>context.caches).all():
                (<Cache>cache).trim(0, context)
    return 0


cdef size_t cached_bytes() noexcept:
    """Bytes of all blocks that no buffer has."""
    cdef void *each = _newest
    cdef size_t found = 0
    while each is not NULL:
        found += (<Cache>each).cached
        each = (<Cache>each).older
    return found


cdef bint is_cached(CUdeviceptr address, size_t nbytes) noexcept:
    """Whether some of these bytes are in a block that no buffer has. Lets no other thread in."""
    cdef void *each = _newest
    cdef Block *block
    while each is not NULL:
        block = (<Cache>each).all.newest
        while block is not NULL:
            if block.address < address + nbytes and address < block.address + block.nbytes:
                return True
            block = block.links[OF_ALL].older
        each = (<Cache>each).older
    return False


# ---- pools, as the program sees them ----

class PoolStats(NamedTuple):
    """How a pool is used: see `MemoryPool.stats`.

    ``used_bytes`` of the buffers that are alive and came through the pool, as allocated;
    ``cached_bytes`` that no buffer has; ``peak_bytes``, the most that were ever used; ``hits`` and
    ``misses``, allocations that found memory in the pool, and those that did not.
    """

    used_bytes: int
    cached_bytes: int
    peak_bytes: int
    hits: int
    misses: int


@cython.final
cdef class MemoryPool:
    """MemoryPool(*args, **kwargs)\n--\n
    Memory of one kind that a context keeps for new buffers: ``context.pools.device`` and others.

    A buffer that is closed or dies leaves its memory here, and a new one of about the same size
    gets it as soon as all its uses are ordered before the new one's: for stream-ordered memory
    before the next operation of its stream; for other memory, when the host knows that they are
    complete. Neither waits for anything or allocates in the driver. Who gets what depends on what
    the program has ordered, and never on how fast anything ran. See docs/memory-pools.md.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use context.pools.device, .locked or .unified")

    @property
    def stats(self):
        """How it is used now, as `PoolStats`."""
        cache = _cache(self)
        return PoolStats(cache.used, cache.cached, cache.peak, cache.hits, cache.misses)

    @property
    def limit_bytes(self):
        """How many bytes are kept at most. Beyond that, the oldest are given back to the driver.

        At first an eighth of the device's memory for ``device``, and 256 MiB for each of the other
        two. With 0, nothing is kept, and every buffer has an allocation of its own of exactly its
        size: an access outside of it or after its end is then an error where the driver sees it.

        Raises ValueError if it is set to less than 0.
        """
        return _cache(self).limit

    @limit_bytes.setter
    def limit_bytes(self, value):
        limit = _nbytes(value, "limit_bytes")
        _cache(self)
        self.context.usable()
        self.cache.limit = limit
        self.trim(keep_bytes=limit)

    def trim(self, *, keep_bytes=0):
        """Give the oldest memory back to the driver, until at most so many bytes are kept.

        Does not block: memory that is in use, or that cannot be freed without waiting for other
        work, is freed when that has become possible, or by `reap`, which waits.

        Raises ValueError if it is less than 0.

        Driver functions: cuMemFree, cuMemFreeHost, cuMemFreeAsync.
        """
        keep = _nbytes(keep_bytes, "keep_bytes")
        _cache(self)
        self.context.usable()
        self.cache.trim(keep, self.context)
        drain(False)

    def __repr__(self):
        if self.cache is None:
            return "<MemoryPool, never initialized>"
        return f"<MemoryPool {self.name}, {self.cache.used} bytes used, {self.cache.cached} cached>"


@cython.final
cdef class MemoryPools:
    """MemoryPools(*args, **kwargs)\n--\n
    The pools of a context: `Context.pools`.

    Attributes
    ----------
    device, locked, unified : MemoryPool
        Of DeviceBuffers, stream-ordered ones too; of LockedBuffers; of UnifiedBuffers.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use context.pools")

    @property
    def device(self):
        """The `MemoryPool` of DeviceBuffers, stream-ordered ones too."""
        return self.device

    @property
    def locked(self):
        """The `MemoryPool` of LockedBuffers."""
        return self.locked

    @property
    def unified(self):
        """The `MemoryPool` of UnifiedBuffers."""
        return self.unified

    def __repr__(self):
        if self.device is None:
            return "<MemoryPools, never initialized>"
        return f"<MemoryPools {self.device!r}, {self.locked!r}, {self.unified!r}>"


cdef Cache _cache(MemoryPool pool):
    """The pool's blocks. Raises TypeError for a pool that no context made."""
    if pool.cache is None:
        raise TypeError("this MemoryPool was never initialized")
    return pool.cache


cdef size_t _nbytes(object value, str name) except? 0:
    number = integer(value, name)
    if number < 0:
        raise ValueError(f"{name} must not be negative, and is {number}")
    return min(number, (1 << 63) - 1)


cdef MemoryPool _pool(Context context, MemoryKind kind, str name):
    cdef MemoryPool pool = MemoryPool.__new__(MemoryPool)
    pool.context = context
    pool.cache = cache_of(context, kind)
    pool.name = name
    return pool


def pools_of(Context context not None):
    """What `Context.pools` returns. A context must not refer to what refers to it."""
    cdef MemoryPools pools = MemoryPools.__new__(MemoryPools)
    context.usable()
    pools.device = _pool(context, DEVICE, "device")
    pools.locked = _pool(context, LOCKED, "locked")
    pools.unified = _pool(context, UNIFIED, "unified")
    return pools
