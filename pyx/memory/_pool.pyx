"""Pools: memory that a context keeps for the next buffer.

State that outlives a call: the blocks of each context, the list of all caches, whether any
`DriverPool` was chosen, and the threads in which the program makes room (the GIL guards them); the
chosen pools (context variables).
"""

cimport cython
from libc.stdlib cimport free, malloc

from cudadrv._device cimport RESET, Context, Kept, contexts, refuse_here, report_in, resets
from cudadrv._driver cimport (
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CU_STREAM_LEGACY, CUdeviceptr, CUresult, cudadrv_table,
    this_thread,
)
from cudadrv._engine cimport (
    engine, own_guard_enter, own_guard_leave, own_memory_end, own_memory_reusable, own_stream,
)
from cudadrv._errors cimport only_made_by, refuse_uninitialized
from cudadrv._guard cimport forget_pages, guards
from cudadrv._memory_kinds cimport DEVICE, LOCKED, UNIFIED, MemoryKind
from cudadrv._ordering cimport Entry, Nesting, live
from cudadrv._release cimport drain, free_unnoticed, release_later
from cudadrv._site cimport place

from cudadrv._errors import ContextLostError, integer


# ---- blocks ----
#
# A block is one allocation of the driver, and is never divided. So its address can be given away,
# two buffers never share an allocation, and there is no fragmentation inside one. A block is at
# most an eighth, or 511 bytes, larger than the buffer needs. It keeps the record of its uses, and
# goes to a buffer only if all of them are ordered before everything that the buffer can be used
# for. So which buffer gets which block depends on what the program has ordered, never on how far
# the GPU is.
#
# Destructors put blocks back. That makes no driver call and does not block.

cdef enum:
    OF_CLASS
    OF_ALL

cdef enum:
    SMALL = 4096            # up to this many bytes, size classes are multiples of GRAIN
    GRAIN = 512
    MOST_LOOKS = 4          # a search tries this many newest blocks of a class, then as many oldest
    MOST_OF_A_CLASS = 1024  # how many blocks of a class are kept
    DEVICE_SHARE = 8        # the default limit is the device's memory divided by this
    HOST_LIMIT = 256 << 20  # the default limit of page-locked and of managed memory, in bytes

cdef void *_newest = NULL  # head of the list of all caches

cdef extern from *:
    """
    static inline unsigned int cache_power(size_t n) { return 63 - __builtin_clzll(n); }
    """
    unsigned int cache_power(size_t number) noexcept nogil


cdef inline unsigned int class_of(size_t nbytes) noexcept nogil:
    """Return the size class: a multiple of 512 bytes up to 4096, then eight for each power of two.
    """
    cdef unsigned int power
    if nbytes <= SMALL:
        return (nbytes - 1) // GRAIN
    power = cache_power(nbytes - 1)
    return (power - 12) * 8 + ((nbytes - 1) >> (power - 3))


cdef inline size_t largest_of(unsigned int number) noexcept nogil:
    """Return the largest size of a class, in bytes."""
    if number < <unsigned int>(SMALL // GRAIN):
        return <size_t>GRAIN * (number + 1)
    return <size_t>(number % 8 + 9) << (number // 8 + 8)


cdef inline void _link(Blocks *blocks, Block *block, int which) noexcept:
    """Add a block to a list as the newest one."""
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


cdef class PoolHandle:
    """The driver's handle of a `DriverPool`. Internal to pools."""

    def __cinit__(self):
        self.kind = DEVICE

    cdef int usable(self) except -1:
        """Raise if nothing can be allocated from the pool."""
        refuse_here()
        if self.raw is not NULL and self.resets != resets:
            raise ContextLostError(CUDA_ERROR_CONTEXT_IS_DESTROYED, "cudadrv", RESET)
        if self.raw is not NULL:
            return 0
        if self.closed_at:
            raise ValueError(f"this DriverPool was closed at {place(self.closed_at)}")
        return refuse_uninitialized(self)

    cdef int begin_call(self) except -1:
        """Keep the pool from being destroyed until `end_call`, or raise as `usable`."""
        self.usable()
        if not own_guard_enter(&self.guard):
            raise ValueError("another thread is just closing this DriverPool")
        return 0

    cdef void end_call(self) noexcept nogil:
        own_guard_leave(&self.guard)


# The `with pool:` blocks of DriverPools, by `KindRow.pool` of the buffers that they are for.
cdef tuple _blocks = (
    Nesting("cudadrv.driver_pool.device"), Nesting("cudadrv.driver_pool.locked"),
    Nesting("cudadrv.driver_pool.unified"),
)
driver_pools_used = False


cdef void use_driver_pools() noexcept:
    global driver_pools_used
    driver_pools_used = True


cdef Nesting blocks_of(MemoryKind kind):
    return <Nesting>_blocks[kind.pool]


cdef PoolHandle chosen_pool(MemoryKind kind, Context context):
    """Return the pool of the innermost `with` block that fits, else the context's pool, or None."""
    cdef PoolHandle pool
    cdef Entry entry = blocks_of(kind).innermost()
    while entry is not None:
        pool = entry.thing
        if pool.device is None or pool.device == context.device:
            return pool
        entry = live(entry.outer)
    return None if context.caches is None else cache_of(context, kind).driver_pool


@cython.final
cdef class Cache:
    """The blocks of one kind of memory of a context. Internal to pools.

    The context refers to the cache. The cache does not refer to the context, to avoid a cycle.
    """

    def __cinit__(self):
        global _newest
        self.older = _newest
        if _newest is not NULL:
            (<Cache>_newest).newer = <void *>self
        _newest = <void *>self

    def __dealloc__(self):
        """Drop the blocks: the driver frees their memory with the context, or `end_with` has freed
        it.
        """
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
        """Return how many bytes to allocate if no block was found.

        Usually `nbytes`, so that the driver can detect an access behind the buffer. If the newest
        block of the class is too small, the program uses several sizes of the class. In that case,
        return the largest size of the class, which fits all of them.
        """
        cdef unsigned int number = class_of(nbytes)
        cdef Block *newest = self.classes[shelf][number].newest
        if newest is not NULL and newest.nbytes < nbytes:
            return largest_of(number)
        return nbytes

    cdef Block *take(self, unsigned int shelf, size_t nbytes, const own_stream *stream) noexcept:
        """Take a block for a buffer that a stream, or the host (NULL), uses first.

        Returns NULL if no block fits.
        """
        cdef Blocks *row = &self.classes[shelf][class_of(nbytes)]
        cdef Block *block = row.newest
        cdef size_t looks = min(row.count, <size_t>MOST_LOOKS)
        while looks and not _is_for(block, nbytes, stream):
            block = block.links[OF_CLASS].older
            looks -= 1
        if looks == 0 and row.count > MOST_LOOKS:  # the oldest are the likeliest to be unused
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
        """Make the block of memory that was just allocated for a buffer."""
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
        """Put back the block of a closed or dead buffer, with its state, or release the block."""
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
        """Drop a block whose memory will not come back. The state stays with the buffer."""
        self.used -= block.nbytes
        free(block)

    cdef void trim(self, size_t keep, Context context) noexcept:
        """Release the oldest blocks until at most `keep` bytes are cached."""
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
    """Release a block's memory to the driver as soon as freeing it cannot block."""
    block.state.nbytes = block.nbytes
    release_later(block.kind, block.address, block.state, context, None)
    free(block)


cdef void _drop(Block *block) noexcept:
    own_memory_end(block.state)
    free(block)


@cython.final
# Blocks of live buffers point to the caches, so the garbage collector must not clear them.
@cython.no_gc_clear
cdef class Caches(Kept):
    """The caches of a context, by kind of memory."""

    cdef void end_with(self, Context context) noexcept:
        """Free the stream-ordered memory, which the driver does not free with the context. End the
        protection of page-locked memory.

        No work uses it any more, so freeing it does not block.
        """
        cdef Block *block
        cdef CUresult status
        if guards():
            _forget_pages(<Cache>self.all[LOCKED.pool])
            _forget_pages(<Cache>self.all[UNIFIED.pool])
        block = (<Cache>self.all[DEVICE.pool]).all.newest
        while block is not NULL:
            if block.kind.ordered:
                with nogil:
                    status = free_unnoticed(context, block.kind, block.address, CU_STREAM_LEGACY)
                report_in(context, status)
            block = block.links[OF_ALL].older


cdef void _forget_pages(Cache cache) noexcept:
    """End the guard of memory that the driver is about to free."""
    cdef Block *block = cache.all.newest
    while block is not NULL:
        forget_pages(block.address)
        block = block.links[OF_ALL].older


cdef Cache cache_of(Context context, MemoryKind kind):
    """Return the cache of a context for a kind of memory."""
    cdef Caches caches
    if context.caches is None:
        _make_caches(context)
    caches = <Caches>context.caches
    return <Cache>caches.all[kind.pool]


cdef int _make_caches(Context context) except -1:
    cdef Caches caches = Caches()
    cdef Cache device = Cache(), locked = Cache(), unified = Cache()
    device.limit = context.device.total_memory // DEVICE_SHARE
    locked.limit = unified.limit = HOST_LIMIT
    caches.all = device, locked, unified
    if context.caches is None:  # another thread may have made them meanwhile
        context.caches = caches
    return 0


cdef int trim_caches() except -1:
    """Release all cached blocks of all contexts."""
    cdef Context context
    for context in contexts():
        if context.caches is not None:
            for cache in (<Caches>context.caches).all:
                (<Cache>cache).trim(0, context)
    return 0


cdef set _making_room = set()   # threads in which an `on_out_of_memory` function runs


cdef bint make_room(Context context, size_t nbytes) except -1:
    """Let the program's `on_out_of_memory` function free memory for an allocation.

    Returns whether to try the allocation again. The function is not called for allocations that it
    makes itself.
    """
    cdef unsigned long long thread = this_thread()
    function = (<Caches>context.caches).on_out_of_memory if context.caches is not None else None
    if function is None or thread in _making_room:
        return False
    _making_room.add(thread)
    try:
        answer = function(nbytes, context)
    finally:
        _making_room.discard(thread)
    if answer is not True and answer is not False and answer is not None:
        raise TypeError("on_out_of_memory returns True to try the allocation again, else False or"
                        f" None, and not {answer!r}")
    return answer is True


cdef size_t cached_bytes() noexcept:
    """Return the number of bytes in all cached blocks of all contexts."""
    cdef void *each = _newest
    cdef size_t found = 0
    while each is not NULL:
        found += (<Cache>each).cached
        each = (<Cache>each).older
    return found


cdef bint is_cached(CUdeviceptr address, size_t nbytes) noexcept:
    """Whether any of these bytes are in a cached block. Lets no other thread run."""
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


# ---- the public pools ----

@cython.final
cdef class MemoryPool:
    """MemoryPool(*args, **kwargs)\n--\n
    Memory of one kind that a context keeps for new buffers: ``context.pools.device`` and others.

    A buffer that is closed or dies leaves its memory to the pool. A new buffer of about the same
    size gets the memory if all earlier uses of the memory are ordered before the uses of the new
    buffer. For a buffer that is allocated on a stream (``stream=``, ``with stream:``), the earlier
    uses have to be ordered before the next operation of the stream. For other buffers, and for
    those that the host uses first, the host has to know that these uses are complete. Putting
    memory into a pool and taking memory from a pool do not block, and make no driver call. Which
    memory a buffer gets depends on what the
    program has ordered, never on how fast anything ran. See docs/memory-pools.md.
    """

    @property
    def stats(self):
        """The statistics of the pool at this moment: a `PoolStats`."""
        cache = self.cache
        from cudadrv._records import PoolStats
        return PoolStats(cache.used, cache.cached, cache.peak, cache.hits, cache.misses)

    @property
    def limit_bytes(self):
        """How many bytes the pool may keep. Beyond that, the oldest memory is released.

        Default: an eighth of the device's memory for ``device``, 256 MiB for each of the other two.
        With 0 nothing is kept, and every buffer has its own allocation of exactly its size: the
        driver can then detect an access outside a buffer or after its end.

        Setting it trims the pool, without blocking. Raises ValueError for a negative number.
        """
        return self.cache.limit

    @limit_bytes.setter
    def limit_bytes(self, value):
        limit = _nbytes(value, "limit_bytes")
        self.context.usable()
        self.cache.limit = limit
        self.trim(keep_bytes=limit)

    @property
    def driver_pool(self):
        """The `DriverPool` that new buffers of this kind and context use instead; default: None.

        A ``with pool:`` block overrides it, and buffers with ``pooled=False`` ignore it.

        Setting it raises TypeError unless the value is a DriverPool or None, and ValueError if the
        pool is closed, or is for another kind of buffers or another device.
        """
        return self.cache.driver_pool

    @driver_pool.setter
    def driver_pool(self, value):
        cdef PoolHandle pool
        cache = self.cache
        self.context.usable()
        if value is not None:
            if not isinstance(value, PoolHandle):
                raise TypeError(f"driver_pool is a DriverPool or None, and not {value!r}")
            pool = value
            pool.usable()
            if cache_of(self.context, pool.kind) is not cache:
                raise ValueError(f"{pool!r} is not a pool of {self.name} memory")
            if pool.device is not None and pool.device != self.context.device:
                raise ValueError(f"{pool!r} has no memory of {self.context.device!r}")
        use_driver_pools()
        cache.driver_pool = value

    def trim(self, *, keep_bytes=0):
        """Release the oldest memory, until at most ``keep_bytes`` bytes are kept.

        Does not block: memory that cannot be freed now without blocking is freed later, or by
        `reap`, which waits.

        Raises ValueError for a negative number.

        Driver functions: cuMemFree, cuMemFreeHost, cuMemFreeAsync.
        """
        keep = _nbytes(keep_bytes, "keep_bytes")
        self.context.usable()
        self.cache.trim(keep, self.context)
        drain(False)

    def __repr__(self):
        return f"<MemoryPool {self.name}, {self.cache.used} bytes used, {self.cache.cached} cached>"


only_made_by(MemoryPool, "use context.pools.device, .locked or .unified")


@cython.final
cdef class MemoryPools:
    """MemoryPools(*args, **kwargs)\n--\n
    The pools of a context: `Context.pools`.

    Attributes
    ----------
    device, locked, unified : MemoryPool
        The pools of DeviceBuffers (including stream-ordered ones), LockedBuffers, UnifiedBuffers.
    """

    @property
    def device(self):
        """The `MemoryPool` of DeviceBuffers, including stream-ordered ones."""
        return self.device

    @property
    def locked(self):
        """The `MemoryPool` of LockedBuffers."""
        return self.locked

    @property
    def unified(self):
        """The `MemoryPool` of UnifiedBuffers."""
        return self.unified

    @property
    def on_out_of_memory(self):
        """A function that is called if a buffer finds no memory; default: None.

        ``function(nbytes, context)`` is called when the driver has no memory left for a buffer of
        ``nbytes`` bytes, after cudadrv has freed what pools keep and what dead buffers had. If it
        returns True, the allocation is tried again, and if that fails, the function is called
        again. If it returns False or None, the allocation raises CudaOutOfMemoryError; if it
        returns anything else, TypeError. An exception of the function propagates from the
        allocation.

        The function runs in the thread that allocates, and may use and allocate buffers. It is not
        called again for buffers that it allocates itself. Several threads may run it at the same
        time.

        Setting it raises TypeError unless the value can be called or is None.
        """
        return (<Caches>self.context.caches).on_out_of_memory

    @on_out_of_memory.setter
    def on_out_of_memory(self, value):
        self.context.usable()
        if value is not None and not callable(value):
            raise TypeError(f"on_out_of_memory is a function or None, and not {value!r}")
        (<Caches>self.context.caches).on_out_of_memory = value

    def __repr__(self):
        return f"<MemoryPools {self.device!r}, {self.locked!r}, {self.unified!r}>"


only_made_by(MemoryPools, "use context.pools")


cdef size_t _nbytes(object value, str name) except? 0:
    number = integer(value, name)
    if number < 0:
        raise ValueError(f"{name} must not be negative, and is {number}")
    return min(number, (1 << 63) - 1)


cdef MemoryPool _pool(Context context, MemoryKind kind, str name):
    cdef Cache cache = cache_of(context, kind)
    cdef MemoryPool pool = MemoryPool.__new__(MemoryPool)
    pool.context, pool.cache, pool.name = context, cache, name
    return pool


def pools_of(Context context not None):
    """Make the pools that `Context.pools` returns. The context does not keep them: that would be a
    reference cycle.
    """
    cdef MemoryPools pools
    context.usable()
    pools = MemoryPools.__new__(MemoryPools)
    pools.context = context
    pools.device = _pool(context, DEVICE, "device")
    pools.locked = _pool(context, LOCKED, "locked")
    pools.unified = _pool(context, UNIFIED, "unified")
    return pools
