"""The named tuples that calls return. They are loaded on first use: defining them is slow."""

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from cudadrv._device import Device


class Borrow(NamedTuple):
    """One GPU use of a buffer that is not known to be complete.

    ``mode`` is "read", "write" or "shared", or "use" for a use that may read or write; ``stream``
    is the stream's name in messages; ``operation`` is the name of the operation that uses the
    buffer; ``site`` is the line that queued it; ``start`` and ``stop`` are byte offsets in the
    buffer.
    """

    mode: Literal["read", "write", "shared", "use"]
    stream: str
    operation: str
    site: str
    start: int
    stop: int


class LiveBuffer(NamedTuple):
    """A buffer whose memory is allocated: see `live_buffers`.

    ``kind`` is "device", "stream-ordered", "page-locked", "managed", "growing" or "foreign";
    ``label`` its class and name; ``nbytes`` the size of the memory (for growing memory, how much is
    mapped); ``device`` the ordinal of its device; and ``site`` the line that made it.
    """

    kind: str
    label: str
    nbytes: int
    device: int
    site: str


class PoolStats(NamedTuple):
    """The statistics of a pool: see `MemoryPool.stats`.

    ``used_bytes`` are the bytes of blocks that live buffers have; ``cached_bytes`` are the bytes of
    blocks that the pool keeps; ``peak_bytes`` the maximum of ``used_bytes`` so far. ``hits`` counts
    the allocations that found memory in the pool, ``misses`` those that did not.
    """

    used_bytes: int
    cached_bytes: int
    peak_bytes: int
    hits: int
    misses: int


class DriverPoolStats(NamedTuple):
    """The statistics of a `DriverPool`, from the driver: see `DriverPool.stats`.

    ``used_bytes`` is the number of bytes that were allocated from the pool and not freed yet.
    ``reserved_bytes`` is the number of bytes that the pool has got from the device or the host.
    ``peak_used_bytes`` and ``peak_reserved_bytes`` are the maximums of these numbers since the pool
    was made or `DriverPool.reset_peaks` was called.
    """

    used_bytes: int
    reserved_bytes: int
    peak_used_bytes: int
    peak_reserved_bytes: int


class DriverInfo(NamedTuple):
    """The driver in use: see `driver_info`.

    ``name`` is "CUDA driver" or "cudadrv software driver"; ``path`` is the path of the library;
    ``version`` is the newest CUDA version that it supports, ``(major, minor)``; ``is_software`` is
    True for the software driver.
    """

    name: str
    path: str
    version: tuple[int, int]
    is_software: bool


class Advice(NamedTuple):
    """What the driver was told about managed memory: see `UnifiedBuffer.advise`.

    ``read_mostly`` is whether readers may have copies; ``preferred`` the place where the pages
    should be, or None; ``accessed_by`` a frozenset of the places whose access should not fault;
    ``last_prefetch`` the place of the last prefetch, or None. A place is a Device or "host"; the
    place of a prefetch can also be "host:N", a NUMA node. Only advice that all pages have is
    reported.
    """

    read_mostly: bool
    preferred: "Device | str | None"
    accessed_by: "frozenset[Device | str]"
    last_prefetch: "Device | str | None"


class Link(NamedTuple):
    """The connection from a device to another one: see `Device.link_to`.

    ``access`` is whether the device can get access to the other one's memory;
    ``performance_rank`` compares links of one machine: the lower, the faster;
    ``native_atomics`` is whether atomic operations of kernels work across the link.
    """

    access: bool
    performance_rank: int
    native_atomics: bool
