"""DriverPool: the driver's own memory pools, as the source of buffers.

State that outlives a call: closed pools whose memory is not freed yet (the GIL guards them).
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from cudadrv._device cimport Context, Device, refuse_here, resets
from cudadrv._driver cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_MEM_LOCATION_TYPE_DEVICE, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH, CUmemAccess_flags,
    CUmemAccessDesc, CUmemLocation, CUmemoryPool, CUmemPool_attribute, CUmemPoolProps, CUresult,
    cuDeviceGetDefaultMemPool, cuMemGetDefaultMemPool, cuMemPoolCreate, cuMemPoolDestroy,
    cuMemPoolGetAccess, cuMemPoolGetAttribute, cuMemPoolSetAccess, cuMemPoolSetAttribute,
    cuMemPoolTrimTo, cudadrv_table,
)
from cudadrv._engine cimport own_guard_shut
from cudadrv._errors cimport check, report, uninitialized
from cudadrv._memory_kinds cimport MemoryKind, kind_called
from cudadrv._names cimport checked_name
from cudadrv._peers cimport admit
from cudadrv._place cimport place_of
from cudadrv._pool cimport PoolHandle, blocks_of, use_driver_pools
from cudadrv._site cimport here

from cudadrv._driver import missing_functions
from cudadrv._errors import OwnershipError, integer


cdef extern from *:
    """
    /* CUmemPoolProps of CUDA 13, whose last fields are reserved in older headers. */
    typedef struct {
        int type, handle_types;
        CUmemLocation place;
        void *security;
        size_t max_bytes;
        unsigned short usage;
        unsigned char reserved[54];
    } pool_properties;
    _Static_assert(sizeof(pool_properties) == sizeof(CUmemPoolProps), "the same structure");
    """
    ctypedef struct pool_properties:
        int type
        CUmemLocation place
        size_t max_bytes


cdef enum:
    PINNED = 1      # of CUmemAllocationType: memory of devices, and page-locked memory
    MANAGED = 2     # of CUmemAllocationType: managed memory; headers before CUDA 13.0 lack it

cdef dict ACCESS = {None: 0, "read": 1, "readwrite": 3}    # CUmemAccess_flags


@cython.final
@cython.no_gc_clear
cdef class DriverPool(PoolHandle):
    """DriverPool(kind='device', place=None, *, max_bytes=None, release_threshold=0, \
name=None)\n--\n
    A memory pool of the driver, from which buffers of one kind are allocated.

    ``with pool:`` allocates all buffers of the pool's kind from it, in the block and in the
    functions that the block calls; ``context.pools.device.driver_pool = pool`` (or ``locked``,
    ``unified``) does so for a context, outside such blocks. Such a buffer is stream-ordered memory:
    it is allocated on its stream (``stream=``, else the current one), as a write on that stream,
    and freed on a stream. Without a stream, the host waits for the allocation. Buffers with
    ``pooled=False``, and device buffers of other devices, do not come from the pool. See
    docs/memory-pools.md.

    Parameters
    ----------
    kind : "device", "locked" or "unified", optional
        Which buffers the pool is for: DeviceBuffers, LockedBuffers or UnifiedBuffers.
    place : Device or str, optional
        Where the memory is; for "unified", the place that its pages prefer. A `Device` for "device"
        and "unified"; ``"host"``, or ``"host:N"`` for a NUMA node, for "locked" and "unified".
        Default: the current device, or ``"host"`` for "locked".
    max_bytes : int, optional
        The largest size of the pool, which the driver rounds up; not for "unified". Default: no
        limit.
    release_threshold : int, optional
        See `release_threshold`.
    name : str, optional
        Shown in messages.

    Making a pool allocates nothing, and does not block, unless the driver has no room for another
    pool while closed pools still have memory: then it waits for the device. All devices can use the
    memory of "locked" and "unified" pools. When the last reference to a pool is dropped, it is
    destroyed as by `close`. Buffers with memory of the pool refer to it.

    Raises
    ------
    TypeError, ValueError
        An argument is not valid; the device has no memory pools; "unified" where the device has no
        ``concurrent_managed_access``; "locked" or "unified" with a driver before CUDA 13.0.
    CudaError
        The driver cannot make the pool.

    Driver functions: cuMemPoolCreate, cuMemPoolSetAttribute; cuMemPoolSetAccess for "locked".
    """

    def __init__(
        self, str kind="device", place=None, *, max_bytes=None, release_threshold=0, name=None
    ):
        cdef pool_properties properties
        refuse_here()
        if self.raw is not NULL or self.closed_at:
            raise TypeError("this DriverPool is initialized already")
        threshold = _checked_bytes(release_threshold, "release_threshold")
        self.name = checked_name(name)
        memset(&properties, 0, sizeof(properties))
        properties.place = _choose_place(self, kind, place)
        properties.type = MANAGED if self.kind.managed else PINNED
        if max_bytes is not None:
            properties.max_bytes = _checked_bytes(max_bytes, "max_bytes")
            if properties.max_bytes == 0 or self.kind.managed:
                raise ValueError("max_bytes must be at least 1, and is not for unified memory")
        self.resets = resets
        _create(self, <CUmemPoolProps *>&properties)
        try:
            if self.kind.page_locked:
                _admit_devices(self)
            if threshold:
                self.release_threshold = threshold
        except BaseException:
            _destroy(self)
            raise

    @staticmethod
    def of(place=None, str kind=None):
        """Return the driver's default pool of a place, which other libraries may use, too.

        ``place`` is as for the class. ``kind`` is as for the class; default: "locked" if ``place``
        is a str, else "device". Closing such a pool does not destroy it. Its settings apply to all
        libraries that use it. Does not block. Raises what the class raises.

        Driver functions: cuDeviceGetDefaultMemPool or cuMemGetDefaultMemPool; cuMemPoolSetAccess
        for "locked".
        """
        cdef DriverPool pool = DriverPool.__new__(DriverPool)
        cdef CUmemLocation location
        cdef CUmemoryPool raw = NULL
        cdef int type
        refuse_here()
        if kind is None:
            kind = "locked" if isinstance(place, str) else "device"
        location = _choose_place(pool, kind, place)
        type = MANAGED if pool.kind.managed else PINNED
        with nogil:
            if pool.kind.host_access:
                check(cuMemGetDefaultMemPool(&raw, &location, type))
            else:
                check(cuDeviceGetDefaultMemPool(&raw, location.id))
        pool.raw, pool.resets = raw, resets
        pool.shared = True
        if pool.kind.page_locked:
            _admit_devices(pool)
        return pool

    def __dealloc__(self):
        if self.raw is not NULL and not cudadrv_table.forked:
            report(_destroy(self))

    @property
    def kind(self):
        """Which buffers the pool is for: "device", "locked" or "unified"."""
        return <str>self.kind.word

    @property
    def place(self):
        """Where the memory is, or prefers to be: a `Device`, ``"host"`` or ``"host:N"``."""
        return self.place

    @property
    def name(self):
        """The name that messages show, or None."""
        return self.name

    @property
    def handle(self):
        """The CUmemoryPool as an int, for other libraries. cudadrv does not see how they use it."""
        self.usable()
        return <size_t>self.raw

    @property
    def closed(self):
        """Whether the pool was closed."""
        return self.closed_at != 0

    # ---- settings ----

    @property
    def release_threshold(self):
        """How many bytes the pool may keep when the host waits for work; default: 0.

        At such a wait the pool gives unused memory beyond this size back. Setting it raises
        TypeError for another type, and ValueError for a negative number, or if the pool is closed.
        Driver functions: cuMemPoolGetAttribute, cuMemPoolSetAttribute.
        """
        return _read(self, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)

    @release_threshold.setter
    def release_threshold(self, value):
        cdef uint64_t threshold = _checked_bytes(value, "release_threshold")
        _set(self, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)

    @property
    def reuse_follow_event_dependencies(self):
        """Whether memory that was freed on another stream may be used again on a stream that waited
        for the free by an event; default: True. Setting it raises TypeError unless the value is a
        bool.
        """
        return _read_flag(self, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)

    @reuse_follow_event_dependencies.setter
    def reuse_follow_event_dependencies(self, value):
        _set_flag(self, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, value)

    @property
    def reuse_allow_opportunistic(self):
        """Whether memory may be used again on a stream that is not ordered after its free, if the
        driver finds that the free is complete; default: True.

        If True, addresses depend on how fast the GPU is. Setting it raises TypeError unless the
        value is a bool.
        """
        return _read_flag(self, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)

    @reuse_allow_opportunistic.setter
    def reuse_allow_opportunistic(self, value):
        _set_flag(self, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, value)

    @property
    def reuse_allow_internal_dependencies(self):
        """Whether the driver may let a stream wait for a free on another one, to use the memory
        again; default: True. Setting it raises TypeError unless the value is a bool.
        """
        return _read_flag(self, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)

    @reuse_allow_internal_dependencies.setter
    def reuse_allow_internal_dependencies(self, value):
        _set_flag(self, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, value)

    def allow_access(self, place, access="readwrite"):
        """Choose what another device may do with the memory. Applies at once; does not block.

        ``access`` is ``"readwrite"``, ``"read"`` (which drivers up to CUDA 13.0 do not support) or
        None for no access. The pool must be a device pool; its own device always has access. The
        memory of other pools can be used everywhere. cudadrv uses the memory in kernels and fills
        of a device that may read and write it; copies need no access. The driver does not wait for
        running kernels before it ends access. So for less than "readwrite", all work of that device
        has to be known to be complete.

        Raises TypeError or ValueError for other values, for other pools, or if the pool is closed;
        OwnershipError if work of the device may be unfinished; CudaError if the device cannot have
        this access. Driver function: cuMemPoolSetAccess.
        """
        self.usable()
        _visitor(self, place)
        if access not in ACCESS:
            raise ValueError(f"access is 'readwrite', 'read' or None, and not {access!r}")
        self.begin_call()
        try:
            admit(self.raw, place, <CUmemAccess_flags><int>ACCESS[access], repr(self))
        finally:
            self.end_call()

    def access(self, place):
        """Return what a device may do with the memory of a device pool: "readwrite", "read" or
        None.

        Raises as `allow_access`. Driver function: cuMemPoolGetAccess.
        """
        cdef CUmemLocation location
        cdef CUmemAccess_flags flags = <CUmemAccess_flags>0
        cdef CUresult status
        self.usable()
        location = _visitor(self, place)
        self.begin_call()
        with nogil:
            status = cuMemPoolGetAccess(&flags, self.raw, &location)
            self.end_call()
            check(status)
        for word, number in ACCESS.items():
            if number == <int>flags:
                return word
        raise ValueError(f"the driver answered {<int>flags}, which is no access")

    # ---- memory of the pool ----

    @property
    def stats(self):
        """How much memory the pool has now, and had at most: a `DriverPoolStats`.

        Raises ValueError if the pool is closed. Driver function: cuMemPoolGetAttribute.
        """
        from cudadrv._records import DriverPoolStats
        return DriverPoolStats(
            _read(self, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
            _read(self, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
            _read(self, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
            _read(self, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH))

    def reset_peaks(self):
        """Reset both peaks of `stats` to what is used and reserved now.

        Raises ValueError if the pool is closed. Driver function: cuMemPoolSetAttribute.
        """
        cdef uint64_t zero = 0
        _set(self, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero)
        _set(self, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero)

    def trim(self, *, keep_bytes=0):
        """Release unused memory until the pool has at most ``keep_bytes`` bytes.

        Does not wait for work: memory that unfinished work uses stays. Some drivers need
        `Device.synchronize` before they give memory back that work has used. Raises TypeError for
        another type, and ValueError for a negative number, or if the pool is closed. Driver
        function: cuMemPoolTrimTo.
        """
        cdef size_t keep = _checked_bytes(keep_bytes, "keep_bytes")
        cdef CUresult status
        self.begin_call()
        with nogil:
            status = cuMemPoolTrimTo(self.raw, keep)
            self.end_call()
            check(status)

    # ---- choosing and closing ----

    def __enter__(self):
        """Allocate buffers of the pool's kind from it in this block."""
        self.usable()
        use_driver_pools()
        blocks_of(self.kind).enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. What was chosen before the block is chosen again."""
        blocks_of(self.kind).leave(self)

    def close(self):
        """Destroy the pool. May be called twice. Does not block.

        Memory of buffers that are gone is freed after the work that uses it. Until then the
        driver's pool stays; it is destroyed when another pool is made or closed later. The driver's
        default pools are not destroyed. Raises OwnershipError if a buffer with memory of the pool
        is alive. Driver functions: cuMemPoolTrimTo, cuMemPoolGetAttribute, cuMemPoolDestroy.
        """
        if self.closed_at:
            return
        if self.raw is NULL or self.resets == resets:
            self.usable()
        if self.buffers and self.resets == resets:
            raise OwnershipError(
                f"cannot close {self!r}: {self.buffers}"
                f" {'buffer has' if self.buffers == 1 else 'buffers have'} memory of it. Close them"
                " first; cudadrv.live_buffers() lists all buffers")
        if not own_guard_shut(&self.guard, 0):
            raise OwnershipError(f"cannot close {self!r}: another thread is just closing it, or"
                                 " asking the driver about it. Close it when that call has"
                                 " returned")
        self.closed_at = here()
        check(_destroy(self))

    def __repr__(self):
        if self.raw is NULL and not self.closed_at:
            return uninitialized(self)
        name = "" if self.name is None else f" {self.name!r}"
        place = f"device {self.device.ordinal}" if self.device is not None \
            else f"near {self.place!r}" if self.kind.managed else self.place
        return f"<DriverPool{name}, {<str>self.kind.word}, {place}" \
               f"{', default' if self.shared else ''}{', closed' if self.closed_at else ''}>"


cdef CUmemLocation _choose_place(DriverPool pool, str kind, object place) except *:
    """Set the kind and the place of a pool. Raises if the driver has no such pools."""
    cdef CUmemLocation location
    cdef Device device
    cdef MemoryKind found = kind_called(kind)
    if found is NULL:
        raise ValueError(f"kind is {kind!r}, and must be 'device', 'locked' or 'unified'")
    pool.kind = found
    if place is None:
        place = "host" if found.page_locked else Device.current()
    if isinstance(place, Device) and found.page_locked:
        raise ValueError(f"page-locked memory is at 'host' or 'host:N', and not at {place!r}")
    if isinstance(place, str) and not found.host_access:
        raise ValueError(f"memory of a device is at a Device, and not at {place!r}")
    device = place if isinstance(place, Device) else Device(0)
    if not device.attribute_value(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED):
        raise ValueError(f"{device!r} has no memory pools: its memory_pools_supported is 0")
    if not found.host_access and isinstance(place, Device):
        pool.device = place
        location.type = CU_MEM_LOCATION_TYPE_DEVICE
        location.id = device.raw
    else:
        if "cuMemGetDefaultMemPool" in missing_functions():
            raise ValueError(f"this driver has no pools of {kind} memory: that needs a driver of"
                             " CUDA 13.0")
        if found.managed \
                and not device.attribute_value(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS):
            raise ValueError(f"{device!r} has no pools of unified memory: its"
                             " concurrent_managed_access is 0")
        location = place_of(place)
    pool.place = place
    return location


cdef int _create(DriverPool pool, const CUmemPoolProps *properties) except -1:
    """Make the driver's pool. If there is no room for it, wait, destroy closed pools and try again.
    """
    cdef CUresult status
    report(_destroy_unused())
    with nogil:
        status = cuMemPoolCreate(&pool.raw, properties)
    if status == CUDA_ERROR_OUT_OF_MEMORY and _unused_later:
        (<Context>(Device.current() if pool.device is None else pool.device).context).finish()
        report(_destroy_unused())
        with nogil:
            status = cuMemPoolCreate(&pool.raw, properties)
    check(status)
    return 0


cdef CUmemLocation _visitor(DriverPool pool, object place) except *:
    """Return the location of a device whose access to a pool can be chosen."""
    cdef CUmemLocation location
    if pool.kind.host_access:
        raise ValueError(f"the memory of {pool!r} can be used everywhere; access is chosen for"
                         " device pools")
    if not isinstance(place, Device):
        raise TypeError(f"access to a device pool is that of a Device, and not of {place!r}")
    location.type = CU_MEM_LOCATION_TYPE_DEVICE
    location.id = (<Device>place).raw
    return location


cdef int _admit_devices(DriverPool pool) except -1:
    """Let all devices use the memory of a page-locked pool. Otherwise kernels would fault."""
    cdef CUmemAccessDesc change
    for device in Device.all():
        change.location.type = CU_MEM_LOCATION_TYPE_DEVICE
        change.location.id = (<Device>device).raw
        change.flags = <CUmemAccess_flags><int>ACCESS["readwrite"]
        with nogil:
            check(cuMemPoolSetAccess(pool.raw, &change, 1))
    return 0


# Closed pools whose memory is not freed yet, as pairs: the CUmemoryPool, and `resets` when it was
# made. A driver may crash if a pool is destroyed earlier (docs/memory-pools.md).
cdef list _unused_later = []


cdef CUresult _destroy(DriverPool pool) noexcept:
    """Destroy the driver's pool, now or when its memory is free. Default pools are not destroyed.
    """
    cdef CUmemoryPool raw = pool.raw
    cdef CUresult status, first
    pool.raw = NULL
    if pool.shared or pool.resets != resets:
        return CUDA_SUCCESS
    first = _destroy_unused()
    status = _destroy_or_keep(<size_t>raw, pool.resets)
    return first if first != CUDA_SUCCESS else status


cdef CUresult _destroy_unused() noexcept:
    """Destroy the closed pools whose memory has been freed. Returns the first error."""
    cdef CUresult status
    cdef CUresult first = CUDA_SUCCESS
    cdef list found
    global _unused_later
    if not _unused_later:
        return first
    found, _unused_later = _unused_later, []
    for handle, of in found:
        status = _destroy_or_keep(handle, of) if of == resets else CUDA_SUCCESS
        first = status if first == CUDA_SUCCESS else first
    return first


cdef CUresult _destroy_or_keep(size_t handle, size_t of) noexcept:
    """Destroy a closed pool, or keep it for later. Returns the first error of the driver.

    The pool is destroyed if a trim leaves no memory in it. Memory that is allocated, or whose free
    has not run, stays in a pool that is trimmed. The driver's count of used bytes would not tell,
    because it does not include freed memory whose free has not run.
    """
    cdef CUmemoryPool raw = <CUmemoryPool>handle
    cdef uint64_t reserved = 0
    cdef CUresult status, destroyed
    with nogil:
        status = cuMemPoolTrimTo(raw, 0)
        if status == CUDA_SUCCESS:
            status = cuMemPoolGetAttribute(raw, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)
    if reserved == 0:
        with nogil:
            destroyed = cuMemPoolDestroy(raw)
        return destroyed if status == CUDA_SUCCESS else status
    try:
        _unused_later.append((handle, of))
    except MemoryError:
        pass    # the driver's pool stays until the process ends
    return status


cdef uint64_t _checked_bytes(object value, str what) except? 0:
    number = integer(value, what)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{what} is a number of bytes, and not {number}")
    return number


cdef object _read(DriverPool pool, CUmemPool_attribute attribute):
    cdef uint64_t value = 0
    _get(pool, attribute, &value)
    return value


cdef int _get(DriverPool pool, CUmemPool_attribute attribute, void *value) except -1:
    cdef CUresult status
    pool.begin_call()
    with nogil:
        status = cuMemPoolGetAttribute(pool.raw, attribute, value)
        pool.end_call()
        check(status)
    return 0


cdef bint _read_flag(DriverPool pool, CUmemPool_attribute attribute) except -1:
    cdef int value = 0
    _get(pool, attribute, &value)
    return value != 0


cdef int _set(DriverPool pool, CUmemPool_attribute attribute, void *value) except -1:
    cdef CUresult status
    pool.begin_call()
    with nogil:
        status = cuMemPoolSetAttribute(pool.raw, attribute, value)
        pool.end_call()
        check(status)
    return 0


cdef int _set_flag(DriverPool pool, CUmemPool_attribute attribute, object value) except -1:
    cdef int flag
    if value is not True and value is not False:
        raise TypeError(f"a reuse flag is True or False, and not {value!r}")
    flag = value
    return _set(pool, attribute, &flag)
