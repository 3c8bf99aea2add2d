"""MemoryPool: what a context keeps for new buffers, as the program sees it."""

from typing import NamedTuple

cimport cython

from cudadrv._cache cimport Cache, cache_of
from cudadrv._context cimport Context
from cudadrv._release cimport DEVICE, LOCKED, UNIFIED, MemoryKind, drain

from cudadrv._context import make_pools_with
from cudadrv._errors import integer


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


def _pools_of(Context context):
    """As objects of their own, so that a context does not refer to what refers to it."""
    cdef MemoryPools pools = MemoryPools.__new__(MemoryPools)
    context.usable()
    pools.device = _pool(context, DEVICE, "device")
    pools.locked = _pool(context, LOCKED, "locked")
    pools.unified = _pool(context, UNIFIED, "unified")
    return pools


make_pools_with(_pools_of)
