"""Peers: access of a device to the memory of another one, and the link between two devices.

A kernel can use memory of another device only if its context has access to it; otherwise the kernel
would lose its context. So the access is checked before each launch, and does not end while a kernel
may run. Copies between devices need no access.

State that outlives a call: which default pools `enable_access` has opened, which accesses are being
ended, and which ones graphs need (the GIL guards all three).
"""

from weakref import ref

cimport cython
from libc.stdint cimport uint64_t

from cudadrv._capture cimport Capture
from cudadrv._device cimport Context, Device, contexts, resets, unfinished_in
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK,
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_LOCATION_TYPE_DEVICE,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CUdevice_P2PAttribute,
    CUdeviceptr, CUmemAccessDesc, CUmemAccess_flags, CUmemLocation, CUmemoryPool,
    CUpointer_attribute, CUresult, cuDeviceCanAccessPeer, cuDeviceGetDefaultMemPool,
    cuDeviceGetP2PAttribute, cuMemPoolGetAccess, cuMemPoolSetAccess, has_answered,
    in_cuCtxDisablePeerAccess, in_cuCtxEnablePeerAccess, in_cuPointerGetAttribute,
)
from cudadrv._errors cimport check
from cudadrv._memory cimport span_of
from cudadrv._region cimport Region, pointer_of
from cudadrv._stream cimport Stream
from cudadrv._virtual cimport can_use

from cudadrv._errors import OwnershipError


# ---- the link between two devices ----

def can_access(Device device, Device peer):
    """Whether a device can get access to the memory of another one. True for the same device."""
    cdef int can = 0
    if device == peer:
        return True
    with nogil:
        check(cuDeviceCanAccessPeer(&can, device.raw, peer.raw))
    return bool(can)


def link_between(Device device, Device peer):
    """Return the Link of two devices. Raises ValueError if they are the same."""
    from cudadrv._records import Link
    if device == peer:
        raise ValueError(f"{device!r} has no link to itself; pass another device")
    return Link(
        can_access(device, peer),
        _attribute(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, device, peer),
        bool(_attribute(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, peer)))


cdef int _attribute(CUdevice_P2PAttribute attribute, Device device, Device peer) except? -1:
    cdef int value = 0
    with nogil:
        check(cuDeviceGetP2PAttribute(&value, attribute, device.raw, peer.raw))
    return value


# ---- access ----
#
# Another thread may end access between the check of a launch and its driver call. So a thread that
# ends access first adds it to `_ending`, then increments `access_ends`, and then looks for
# unfinished work. A launch compares the counter after the engine has recorded the launch and before
# the driver gets it. If the counter has changed, the launch is checked again, and is refused while
# the access is in `_ending`.

# The accesses that are being ended, as pairs of numbers: two contexts, or a pool and a device.
cdef set _ending = set()
# The keys are pairs of ordinals: a device, and the device to whose default pool it got access. The
# values are the numbers of resets at that time (see _device.pxd).
cdef dict _opened = {}


cdef tuple _contexts(Context context, Context peer):
    return (<size_t><void *>context, <size_t><void *>peer)


def enable_access(Context context, Context peer):
    """Give a context access to the memory of another device: see `Context.enable_access`."""
    cdef CUresult status
    context.usable()
    peer.usable()
    if context is peer:
        return
    if context.device == peer.device:
        raise ValueError(f"{context!r} cannot get access to the memory of {peer!r}: the driver"
                         " gives access between devices only. Use one context of the device")
    if not can_access(context.device, peer.device):
        raise ValueError(f"{context.device!r} cannot get access to the memory of {peer.device!r}:"
                         " can_access is False. Copies between the two work without access")
    reference = context.peers.reference_to(peer)
    with nogil:
        status = in_cuCtxEnablePeerAccess(context.raw, peer.raw, 0)
    if status != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        context.check(status)
    try:
        _open_pool(context.device, peer.device)
    except BaseException:
        if status == CUDA_SUCCESS:
            _disable(context, peer)
        raise
    context.peers.add(reference)


def disable_access(Context context, Context peer):
    """End the access of a context to another device's memory: see `Context.disable_access`."""
    cdef CUresult status
    cdef bint last
    context.usable()
    peer.usable()
    if context is peer:
        raise ValueError(f"{context!r} always has access to its own memory")
    if peer not in context.peers.all():
        return
    pair = _contexts(context, peer)
    what = f"end the access of {context!r} to the memory of {peer!r}"
    last = _is_last(context, peer)
    _ending.add(pair)
    try:
        # Other contexts of the device can use the pool, too.
        _refuse_unfinished(_of_device(context.device) if last else [context], what)
        if last:
            _narrow(_default_pool(peer.device), context.device, CU_MEM_ACCESS_FLAGS_PROT_NONE, what)
            _opened.pop((context.device.ordinal, peer.device.ordinal), None)
        status = _disable(context, peer)
        if status != CUDA_ERROR_PEER_ACCESS_NOT_ENABLED:
            context.check(status)
        context.peers.remove(peer)
    finally:
        _ending.discard(pair)


cdef CUresult _disable(Context context, Context peer) noexcept:
    cdef CUresult status
    with nogil:
        status = in_cuCtxDisablePeerAccess(context.raw, peer.raw)
    return status


cdef list _of_device(Device device):
    """Return the contexts of a device that are not lost."""
    cdef Context context
    found = []
    for context in contexts():
        if context.device == device and not context.lost:
            found.append(context)
    return found


cdef int _refuse_unfinished(list users, str what) except -1:
    """Raise unless all work of the contexts in `users` is known to be complete.

    `what` names the request.
    """
    global access_ends
    cdef Context context
    access_ends += 1
    for context in users:
        works = unfinished_in(context)
        if works:
            raise OwnershipError(
                f"cannot {what}:\n"
                f"  work of {context!r} is not known to be complete: {works[-1]}.\n"
                f"  Release it with: {'device' if context.primary else 'context'}.synchronize().")
    return 0


# ---- memory of pools ----
#
# Such memory belongs to a device, not to a context: its pool says which devices have access.

cdef CUmemoryPool _default_pool(Device owner) except? NULL:
    """Return the default pool of a device; NULL if it has no pools."""
    cdef CUmemoryPool pool = NULL
    if not owner.attribute_value(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED):
        return NULL
    with nogil:
        check(cuDeviceGetDefaultMemPool(&pool, owner.raw))
    return pool


cdef bint is_admitted(CUmemoryPool pool, Device device) except -1:
    """Whether kernels of a device may read and write the memory of a pool."""
    cdef CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE
    cdef CUmemLocation place
    if (<size_t>pool, device.ordinal) in _ending:
        return False
    place.type, place.id = CU_MEM_LOCATION_TYPE_DEVICE, device.raw
    with nogil:
        check(cuMemPoolGetAccess(&flags, pool, &place))
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE


cdef int _admit(CUmemoryPool pool, Device device, CUmemAccess_flags flags) except -1:
    cdef CUmemAccessDesc change
    change.location.type, change.location.id = CU_MEM_LOCATION_TYPE_DEVICE, device.raw
    change.flags = flags
    with nogil:
        check(cuMemPoolSetAccess(pool, &change, 1))
    return 0


cdef int admit(CUmemoryPool pool, Device device, CUmemAccess_flags flags, str called) except -1:
    """Choose what a device may do with the memory of a pool: see `DriverPool.allow_access`."""
    if flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE or not is_admitted(pool, device):
        return _admit(pool, device, flags)
    return _narrow(pool, device, flags, f"end the access of {device!r} to {called}")


cdef int _narrow(
    CUmemoryPool pool, Device device, CUmemAccess_flags flags, str what
) except -1:
    """End or narrow a device's access to a pool. Raises if the device's work is unfinished."""
    pair = (<size_t>pool, device.ordinal)
    _ending.add(pair)
    try:
        _refuse_needed(pair, what)
        _refuse_unfinished(_of_device(device), what)
        _admit(pool, device, flags)
    finally:
        _ending.discard(pair)
    return 0


cdef int _open_pool(Device device, Device owner) except -1:
    """Let a device use the memory of another one's default pool."""
    cdef CUmemoryPool pool = _default_pool(owner)
    if pool is not NULL and not is_admitted(pool, device):
        _admit(pool, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        _opened[device.ordinal, owner.ordinal] = resets
    return 0


cdef bint _is_last(Context context, Context peer) except -1:
    """Whether `_open_pool` has opened a pool for this access, and no other access needs it."""
    cdef Context each, other
    if _opened.get((context.device.ordinal, peer.device.ordinal)) != resets:
        return False
    for each in _of_device(context.device):
        for other in each.peers.all():
            if other.device == peer.device and not (each is context and other is peer):
                return False
    return True


# ---- access that graphs need ----
#
# A node of a graph copies memory of another device's pool only if its device has access to the
# pool; driver 580 answers CUDA_ERROR_INVALID_VALUE otherwise. Access that ends later would be
# missing at a launch, so it does not end while a graph needs it. A graph first notes its need and
# then asks for the access. `_narrow` notes that the access ends and then looks for needs.

cdef list _needs = []       # weak references to the AccessNeeds of all graphs


@cython.final
cdef class AccessNeed:
    """A graph's need for access to a pool. The access does not end while this object lives."""

    cdef object __weakref__
    cdef tuple pair         # the pool and the device, as in `_ending`
    cdef size_t resets  # their number at that time: after a reset, the pool is another one
    cdef str graph


cdef object need_access(Region region, Context context, str graph):
    """Return the AccessNeed of a node that copies device memory of another context, or None.

    `context` is that of the node, and `graph` the graph's name. Raises ValueError if the access is
    missing. Only pools and virtual memory need it, and for the latter it never ends.
    """
    cdef CUmemoryPool pool
    cdef object need = None
    cdef bint reached
    if region.memory.context.device == context.device:
        return None
    if span_of(region.memory) is not NULL:
        reached = can_use(span_of(region.memory), context)
    else:
        pool = <CUmemoryPool><size_t>_attribute_in(
            region.memory.context, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer_of(region))
        if pool is NULL:
            return None
        need = _noted_need((<size_t>pool, context.device.ordinal), graph)
        reached = is_admitted(pool, context.device)
    if not reached:
        raise ValueError(
            f"{region.describe()} belongs to {region.memory.context!r}, and {graph} can copy such"
            f" memory in {context!r} only with access. Copy it outside of the graph"
            f"{_way_to_access(region, context)}")
    return need


cdef AccessNeed _noted_need(tuple pair, str graph):
    """Return the AccessNeed of a graph for this access. Makes one if there is none."""
    cdef AccessNeed need
    cdef Py_ssize_t i = 0
    while i < len(_needs):
        need = _needs[i]()
        if need is None:
            del _needs[i]
            continue
        if need.pair == pair and need.resets == resets and need.graph == graph:
            return need
        i += 1
    need = AccessNeed.__new__(AccessNeed)
    need.pair, need.resets, need.graph = pair, resets, graph
    _needs.append(ref(need))
    return need


cdef int _refuse_needed(tuple pair, str what) except -1:
    """Raise if a graph needs an access that is to be ended or narrowed."""
    cdef AccessNeed need
    for reference in _needs:
        need = reference()
        if need is not None and need.pair == pair and need.resets == resets:
            raise OwnershipError(
                f"cannot {what}:\n"
                f"  {need.graph} copies memory for which it needs this access.\n"
                "  Close the graph and what was instantiated from it first: graph.close(),"
                " step.close().")
    return 0


# ---- whether a stream can use memory ----

cdef bint reaches(Context context, Region region) except -1:
    """Whether kernels of a context can use a region in device memory of another context.

    Asks the driver, because other libraries can give access, too.
    """
    cdef Context peer = region.memory.context
    cdef CUmemoryPool pool = NULL
    cdef CUdeviceptr address
    if context.device == peer.device or _contexts(context, peer) in _ending:
        return False
    if span_of(region.memory) is not NULL:  # memory that is mapped later has the same users
        return can_use(span_of(region.memory), context)
    if region.nbytes == 0:
        return peer in context.peers.all()
    address = pointer_of(region)
    pool = <CUmemoryPool><size_t>_attribute_in(
        context, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address)
    if pool is not NULL:
        return is_admitted(pool, context.device)
    return _attribute_in(context, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) != 0


cdef uint64_t _attribute_in(
    Context context, CUpointer_attribute attribute, CUdeviceptr address
) except? -1:
    """Return an attribute of an address as a context sees it; 0 if the driver returns none."""
    cdef uint64_t value = 0
    cdef CUresult status
    with nogil:
        status = in_cuPointerGetAttribute(context.raw, &value, attribute, address)
    if has_answered(status, CUDA_ERROR_INVALID_VALUE):
        return 0
    context.check(status)
    return value


cdef int refuse_device(Region region, Stream stream) except -1:
    """The slow path of `refuse_unreachable`."""
    stream.context.usable()
    if stream.capture is not NULL:
        raise ValueError(
            f"{region.describe()} belongs to {region.memory.context!r}, and {stream!r} to another"
            f" context; in {(<Capture>stream.capture).called()}, launches and fills can only use"
            " device memory of the stream's context, and one side of a copy has to be such memory")
    if region.memory.kind.opaque:
        _refuse(region, stream,
                ": arrays, textures and surfaces are used in their own context only")
    if not reaches(stream.context, region):
        _refuse(region, stream, _way_to_access(region, stream.context))
    return 1


cdef int refuse_context(Region region, Stream stream) except -1:
    """The slow path of `refuse_other_context`."""
    return _refuse(region, stream, "")


cdef int _refuse(Region region, Stream stream, str more) except -1:
    raise ValueError(
        f"{region.describe()} belongs to {region.memory.context!r}, and {stream!r} to another"
        f" context; use a stream of the buffer's context{more}")


cdef str _way_to_access(Region region, Context context):
    """Return the part of a message that says how a context can use memory of another one."""
    cdef Context peer = region.memory.context
    if context.device == peer.device:
        return ""
    if not can_access(context.device, peer.device):
        return f": {context.device!r} cannot access the memory of {peer.device!r}"
    if span_of(region.memory) is not NULL:
        return ", or name the device when the buffer is made:" \
               f" accessible_by=[cudadrv.Device({context.device.ordinal})]"
    if region.memory.pool is not None:
        return ", or let its DriverPool give access:" \
               f" pool.allow_access(cudadrv.Device({context.device.ordinal}))"
    if peer in context.peers.all():
        return ": the driver gives no access to this memory, which may be a variable of a module," \
               " or memory of another process"
    if context.primary and peer.primary:
        return f", or give access: cudadrv.Device({context.device.ordinal})" \
               f".enable_access(cudadrv.Device({peer.device.ordinal}))"
    return ", or give access: stream.context.enable_access(buffer.context)"
