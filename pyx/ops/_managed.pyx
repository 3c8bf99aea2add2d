"""Managed memory: moves and discards of its pages, who may use it, and advice about its pages."""

from libc.stdlib cimport free, malloc

from cudadrv._copy cimport nothing_to_do, required_stream
from cudadrv._device cimport Context, Device
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CU_DEVICE_CPU,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, CU_DEVICE_INVALID, CU_MEM_ATTACH_GLOBAL,
    CU_MEM_ATTACH_HOST, CU_MEM_ATTACH_SINGLE, CU_MEM_ADVISE_SET_ACCESSED_BY,
    CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_READ_MOSTLY,
    CU_MEM_ADVISE_UNSET_ACCESSED_BY, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
    CU_MEM_ADVISE_UNSET_READ_MOSTLY, CU_MEM_LOCATION_TYPE_DEVICE,
    CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CUdevice,
    CUdeviceptr, CUmemLocation, CUmem_advise, CUmem_range_attribute, CUresult,
    CUstream, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardBatchAsync, cuMemPrefetchAsync,
    cuMemPrefetchBatchAsync, cuStreamAttachMemAsync, has_answered, in_cuMemAdvise,
    in_cuMemRangeGetAttribute,
)
from cudadrv._engine cimport (
    OWN_ATTACHES, OWN_DISCARDS, OWN_LEGACY, OWN_MOVES, OWN_NO_STREAM, OWN_OK, OWN_READ,
    OWN_SHARED, OWN_WRITE, engine, own_access, own_conflict, own_export, own_export_close,
    own_export_open, own_tag, own_turn_end,
)
from cudadrv._memory cimport Memory, leave_cache
from cudadrv._names cimport (
    ATTACH, DISCARD, DISCARD_AND_PREFETCH, DISCARD_BATCH, PREFETCH, PREFETCH_BATCH, TO,
    operation_name,
)
from cudadrv._operation cimport Operation, driver_call, prepare
from cudadrv._place cimport NUMA_NODE, check_concurrent, is_concurrent, place_of
from cudadrv._refusal cimport refuse_host
from cudadrv._region cimport (
    Region, borrow, check_queue, check_region, pointer_of, queue, refuse_box,
)
from cudadrv._site cimport here
from cudadrv._stream cimport Stream, known_stream
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._driver import missing_functions


# ---- places ----

# Values that the headers of CUDA 12.0 and 12.1 lack.
cdef enum:
    LAST_PREFETCH_TYPE = 7          # of CUmem_range_attribute
    LAST_PREFETCH_NUMBER = 8

cdef str BATCH = "cuMemPrefetchBatchAsync"
cdef str DISCARD_CALL = "cuMemDiscardBatchAsync"
cdef str LEGACY = "do not work on the legacy default stream; use another stream"


cdef int _check_range(Region region) except -1:
    """Raise if the buffer cannot be used, or is no single range of bytes."""
    check_region(region)
    return refuse_box(region, "a prefetch, discard, attachment or advice")


cdef CUdevice _processor(CUmemLocation location) noexcept nogil:
    """Return the CUdevice of a place, for driver functions that take no NUMA nodes."""
    return location.id if location.type == CU_MEM_LOCATION_TYPE_DEVICE else CU_DEVICE_CPU


cdef object _place_at(int processor):
    """Return the place that a number of the driver means; None for CU_DEVICE_INVALID."""
    if processor == CU_DEVICE_INVALID:
        return None
    return "host" if processor == CU_DEVICE_CPU else Device(processor)


# ---- prefetches and discards ----

# The arguments of cuMemPrefetchBatchAsync and similar functions, and an access for each range.
cdef struct Ranges:
    size_t count
    CUdeviceptr *addresses
    size_t *sizes
    CUmemLocation *places
    size_t *firsts          # index of the first range of each place: 0, 1, 2, ..., one range each
    own_access *accesses
    bint at_once            # whether to try the function for batches first


cdef CUresult _prefetch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Ranges *ranges = <Ranges *>arguments
    cdef CUresult status = CUDA_ERROR_NOT_SUPPORTED
    cdef size_t i
    if ranges.at_once:
        status = cuMemPrefetchBatchAsync(
            ranges.addresses, ranges.sizes, ranges.count, ranges.places, ranges.firsts,
            ranges.count, 0, stream)
        # A batch that fails may have begun.
        queued[0] = status != CUDA_ERROR_NOT_SUPPORTED
    if status == CUDA_ERROR_NOT_SUPPORTED:
        for i in range(ranges.count):
            status = cuMemPrefetchAsync(ranges.addresses[i], ranges.sizes[i],
                                        _processor(ranges.places[i]), stream)
            if status != CUDA_SUCCESS:
                return status
            queued[0] = True
    return status


cdef CUresult _discard_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Ranges *ranges = <Ranges *>arguments
    queued[0] = ranges.count > 1  # a batch that fails may have begun
    return cuMemDiscardBatchAsync(ranges.addresses, ranges.sizes, ranges.count, 0, stream)


cdef CUresult _discard_and_prefetch_call(
    void *arguments, CUstream stream, bint *queued
) noexcept nogil:
    cdef Ranges *ranges = <Ranges *>arguments
    queued[0] = ranges.count > 1
    return cuMemDiscardAndPrefetchBatchAsync(
        ranges.addresses, ranges.sizes, ranges.count, ranges.places, ranges.firsts, ranges.count,
        0, stream)


cdef Token prefetch_region(Region region, object place, object stream):
    """Queue a prefetch of a whole buffer."""
    cdef Stream found
    stream = known_stream(stream)
    _check_range(region)
    found = required_stream(stream, region, "prefetch")
    return _queue(PREFETCH, [region], [place], found)


cdef Token discard_region(Region region, bint moves, object place, object stream):
    """Queue a discard of a whole buffer. If `moves` is true, the pages also move to the place."""
    cdef Stream found
    cdef int name = DISCARD_AND_PREFETCH if moves else DISCARD
    stream = known_stream(stream)
    _check_range(region)
    found = required_stream(stream, region, operation_name(name))
    return _queue(name, [region], [place], found)


cdef Token move_region(Region region, object place, Stream stream):
    """Queue a move of a whole buffer that is used at the place next: see `Buffer.to`.

    Unlike a prefetch, it counts as a write. So nothing else uses the buffer during the move, and
    the next user has to be ordered after it. Where a device takes no prefetches, the driver moves
    all managed memory by itself, and no driver call is made.
    """
    cdef Device home = stream.context.device
    _check_range(region)
    if isinstance(place, Device):
        moves = is_concurrent(home) and is_concurrent(<Device>place)
    else:
        moves = place != "host" or is_concurrent(home)
    if moves:
        return _queue(TO, [region], [place], stream)
    return _hand_over(region, place, stream)


cdef Token _hand_over(Region region, object place, Stream stream):
    """Let a buffer count as written on a stream, without a driver call."""
    cdef Operation operation
    cdef own_access access
    cdef Token token
    if region.nbytes == 0:
        return nothing_to_do(TO, stream, None, region)
    borrow(region, &access, OWN_READ)
    access.mode = OWN_WRITE  # no byte changes, so read-only memory is allowed
    access.effect = OWN_MOVES
    token = new_token(stream, None, region)
    prepare(&operation, TO, &access, 1, NULL, NULL)
    operation.request.passive = True
    queue(&operation, stream, region)
    if not isinstance(place, Device):
        own_turn_end(engine, &access)
    stand_for(token, &operation)
    return token


def prefetch_batch(pairs, stream=None):
    """Queue prefetches of several buffers at once: ``prefetch_batch([(buffer, place), ...])``.

    As `UnifiedBuffer.prefetch` for each pair in turn, but all pairs are checked before anything is
    queued. If the driver has cuMemPrefetchBatchAsync (13.0 or newer), there is one driver call,
    except on the legacy default stream. Does not block.

    Parameters
    ----------
    pairs : iterable of (UnifiedBuffer, place)
        Buffers, or parts, and where to move each. There must be at least one pair.
    stream : Stream, optional
        Default: the current stream of a ``with stream:`` block; without one, a TypeError.

    Returns
    -------
    Token
        The token stands for all prefetches.

    Raises
    ------
    TypeError, ValueError
        There is no stream; a buffer is not a UnifiedBuffer; there is no pair; or see
        `UnifiedBuffer.prefetch`.
    BufferClosedError
        See docs/errors.md.
    CudaError
        A driver call failed.

    Driver functions: cuMemPrefetchBatchAsync, else cuMemPrefetchAsync for each pair.
    """
    stream = known_stream(stream)
    regions, places = [], []
    for buffer, place in pairs:
        regions.append(buffer)
        places.append(place)
    if not regions:
        raise ValueError("prefetch_batch needs at least one pair of a buffer and a place")
    return _queue_batch(PREFETCH_BATCH, regions, places, stream)


def discard_batch(buffers, stream=None):
    """Queue discards of several buffers at once: ``discard_batch([buffer, other, ...])``.

    As `UnifiedBuffer.discard` for each buffer in turn, but all buffers are checked before anything
    is queued, and there is one driver call. Does not block.

    Parameters
    ----------
    buffers : iterable of UnifiedBuffer
        Buffers, or parts. There must be at least one.
    stream : Stream, optional
        Default: the current stream of a ``with stream:`` block; without one, a TypeError.

    Returns
    -------
    Token
        The token stands for all discards.

    Raises
    ------
    TypeError, ValueError
        There is no stream; a buffer is not a UnifiedBuffer; there is no buffer; or see
        `UnifiedBuffer.discard`.
    BufferBorrowedError, BufferExportedError, BufferClosedError
        A buffer is in use. Nothing is discarded then.
    CudaError
        A driver call failed.

    Driver function: cuMemDiscardBatchAsync.
    """
    stream = known_stream(stream)
    regions = []
    for region in buffers:
        regions.append(region)
    if not regions:
        raise ValueError("discard_batch needs at least one buffer")
    return _queue_batch(DISCARD_BATCH, regions, [None] * len(regions), stream)


cdef Token _queue_batch(int name, list regions, list places, object stream):
    cdef Stream found
    what = "discarded" if name == DISCARD_BATCH else "prefetched"
    for region in regions:
        if not isinstance(region, Region) or not (<Region>region).kind.managed:
            raise TypeError(f"only a UnifiedBuffer can be {what}, and not a"
                            f" {type(region).__name__}")
    for region in regions:
        _check_range(<Region>region)
    found = required_stream(stream, <Region>regions[0], operation_name(name))
    return _queue(name, regions, places, found)


cdef Token _queue(int name, list regions, list places, Stream stream):
    """Queue prefetches, moves or discards. The regions are checked; there is at least one."""
    cdef Ranges ranges
    cdef list locations = []
    cdef list used = []
    cdef Region region
    cdef Token token
    cdef void *room
    cdef bint discards = name in (DISCARD, DISCARD_AND_PREFETCH, DISCARD_BATCH)
    cdef bint writes = discards or name == TO
    stream.usable()
    check_concurrent(stream.context.device, "the device of the stream")
    if discards and stream.order.order == OWN_LEGACY:
        raise ValueError(f"discards {LEGACY}")
    nodes = False
    for region, place in zip(regions, places):
        location = place_of("host" if name in (DISCARD, DISCARD_BATCH) else place)
        nodes = nodes or <int>location.type == NUMA_NODE
        if region.nbytes:
            locations.append(location)
            used.append(region)
    if nodes:
        _check_nodes(stream)
    if not used:
        return nothing_to_do(name, stream, None if writes else <Region>regions[0],
                             <Region>regions[0] if writes else None)
    ranges.count = len(used)
    ranges.at_once = nodes or (ranges.count > 1 and stream.order.order != OWN_LEGACY)
    room = _room_for(&ranges)
    try:
        for i, region in enumerate(used):
            ranges.addresses[i] = pointer_of(region)
            ranges.sizes[i] = region.nbytes
            ranges.places[i] = locations[i]
            ranges.firsts[i] = i
            # Prefetches and moves change no byte, so read-only memory is allowed: `borrow` gets
            # OWN_READ. A prefetch conflicts with no other use; it only keeps the memory from being
            # freed.
            borrow(region, &ranges.accesses[i], OWN_WRITE if discards else OWN_READ)
            ranges.accesses[i].mode = OWN_WRITE if writes else OWN_SHARED
            ranges.accesses[i].effect = OWN_DISCARDS if discards else OWN_MOVES
        if writes:
            token = new_token(stream, None, tuple(used))
        else:
            token = new_token(stream, tuple(used), None)
        _issue(name, &ranges, stream, used, token)
        for i in range(ranges.count):
            if ranges.places[i].type != CU_MEM_LOCATION_TYPE_DEVICE:
                own_turn_end(engine, &ranges.accesses[i])
    finally:
        free(room)
    return token


cdef int _issue(int name, Ranges *ranges, Stream stream, list regions, Token token) except -1:
    cdef Operation operation
    cdef driver_call call = _call_for(name)
    prepare(&operation, name, ranges.accesses, <int>ranges.count, call, ranges)
    operation.request.passive = call is NULL
    queue(&operation, stream, regions)
    stand_for(token, &operation)
    return 0


cdef driver_call _call_for(int name) except? NULL:
    """Return the function that makes the driver call. For a discard by a driver without discards,
    that is a prefetch or no call.
    """
    if name in (PREFETCH, PREFETCH_BATCH, TO):
        return _prefetch_call
    discards = DISCARD_CALL not in missing_functions()
    if name == DISCARD_AND_PREFETCH:
        return _discard_and_prefetch_call if discards else _prefetch_call
    if discards:
        return _discard_call
    return NULL


cdef int _check_nodes(Stream stream) except -1:
    """Raise ValueError if prefetches on this stream cannot name NUMA nodes."""
    if BATCH in missing_functions():
        raise ValueError(f"this driver has no {BATCH}, so it takes no NUMA nodes ('host:N'): that"
                         " needs a driver of CUDA 13.0. 'host' works with every driver")
    if stream.order.order == OWN_LEGACY:
        raise ValueError("prefetches to NUMA nodes ('host:N') do not work on the legacy default"
                         " stream; use another stream, or 'host'")
    return 0


cdef void *_room_for(Ranges *ranges) except NULL:
    """Allocate the arrays of the ranges in one piece, which the caller frees."""
    cdef size_t count = ranges.count
    cdef char *room = <char *>malloc(count * (
        sizeof(own_access) + sizeof(CUdeviceptr) + 2 * sizeof(size_t) + sizeof(CUmemLocation)))
    if room is NULL:
        raise MemoryError()
    ranges.accesses = <own_access *>room
    ranges.addresses = <CUdeviceptr *>&ranges.accesses[count]
    ranges.sizes = <size_t *>&ranges.addresses[count]
    ranges.firsts = &ranges.sizes[count]
    ranges.places = <CUmemLocation *>&ranges.firsts[count]
    return room


# ---- attachments ----

cdef struct Attachment:
    CUdeviceptr address
    unsigned int flags


cdef CUresult _attach_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Attachment *attachment = <Attachment *>arguments
    return cuStreamAttachMemAsync(stream, attachment.address, 0, attachment.flags)


cdef Token attach_region(Region region, object to, object stream):
    """Queue a change of the streams that may use a whole allocation."""
    cdef Attachment attachment
    cdef Operation operation
    cdef Memory memory
    cdef Stream found
    cdef own_access access
    cdef Token token
    only = None
    if not isinstance(to, str):
        only = known_stream(to)
        if only is None:
            raise TypeError(f"a buffer is attached to a Stream, 'global' or 'host', not to {to!r}")
        if stream is not None:
            raise ValueError("attach(stream) is queued on that stream itself; leave out `stream=`")
    elif to not in ("global", "host"):
        raise ValueError(f"a buffer is attached to a Stream, 'global' or 'host', not to {to!r}")
    _check_range(region)
    found = required_stream(known_stream(stream) if only is None else only, region, "attach")
    found.usable()
    memory = region.memory
    if region.nbytes == 0:
        return nothing_to_do(ATTACH, found, None, region)
    if region.start or memory.start or region.nbytes != memory.state.nbytes \
            or (memory.kind.borrowed and memory.home is None):
        raise ValueError(f"{region.describe()} is not the whole of an allocation, and only whole"
                         " allocations of managed memory can be attached")
    if _is_of_pool(memory):
        raise ValueError(f"{region.describe()} has memory of a DriverPool, which cannot be"
                         " attached; with pooled=False, the buffer does not come from the pool")
    borrow(region, &access, OWN_WRITE)
    access.effect = OWN_ATTACHES
    attachment.address = pointer_of(region)
    attachment.flags = CU_MEM_ATTACH_SINGLE if only is not None \
        else CU_MEM_ATTACH_HOST if to == "host" else CU_MEM_ATTACH_GLOBAL
    token = new_token(found, None, region)
    prepare(&operation, ATTACH, &access, 1, _attach_call, &attachment)
    operation.request.attachment.site = operation.request.site
    operation.request.attachment.stream = own_tag(found.order) if only is not None \
        else OWN_NO_STREAM if to == "host" else 0
    check_queue(&operation, found, region)
    # The next buffer in this memory would inherit the attachment, so it leaves the pool.
    leave_cache(memory)
    queue(&operation, found, region)
    stand_for(token, &operation)
    # The attachment would end with the stream, so the memory keeps the stream alive.
    if memory.home is not None:
        memory = memory.home
    memory.attached = only
    return token


cdef bint _is_of_pool(Memory memory):
    """Whether the memory, or the allocation in which its address lies, is of a DriverPool."""
    return memory.pool is not None or (memory.home is not None and memory.home.pool is not None)


# ---- advice ----

cdef int advise_region(
    Region region, object read_mostly, object preferred, object accessed_by
) except -1:
    """Change the advice of the pages of a buffer. None leaves a kind of advice unchanged."""
    cdef list changes = []
    _check_range(region)
    if read_mostly is not None:
        if not isinstance(read_mostly, bool):
            raise TypeError(f"read_mostly is True, False or None, and not {read_mostly!r}")
        changes.append((CU_MEM_ADVISE_SET_READ_MOSTLY if read_mostly
                        else CU_MEM_ADVISE_UNSET_READ_MOSTLY, CU_DEVICE_CPU))
    if preferred is False:
        changes.append((CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, CU_DEVICE_CPU))
    elif preferred is not None:
        changes.append((CU_MEM_ADVISE_SET_PREFERRED_LOCATION, _adviser(preferred)))
    if accessed_by is not None:
        changes += _accesses(accessed_by)
    if changes and region.nbytes:
        if _is_of_pool(region.memory):
            raise ValueError(f"{region.describe()} has memory of a DriverPool, which takes no"
                             " advice: the pool was told the place")
        _advise(region, changes)
    return 0


cdef int _adviser(object place) except? -3:
    """Return the driver's number of a place. Raises ValueError for NUMA nodes."""
    cdef CUmemLocation location = place_of(place)
    if <int>location.type == NUMA_NODE:
        raise ValueError(f"advice is about a Device or 'host', and not about one NUMA node:"
                         f" {place!r}")
    return _processor(location)


cdef list _accesses(object places):
    """Return the changes after which these places, and no others, are in ``accessed_by``."""
    cdef Device device
    if isinstance(places, (str, Device)):
        raise TypeError(f"accessed_by is a set of places, such as {{{places!r}}}")
    wanted = set()
    for place in places:
        wanted.add(_adviser(place))
    changes = []
    known = [CU_DEVICE_CPU]
    for device in Device.all():
        if device.attribute_value(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS):
            known.append(device.raw)
    for processor in known:
        changes.append((CU_MEM_ADVISE_SET_ACCESSED_BY if processor in wanted
                        else CU_MEM_ADVISE_UNSET_ACCESSED_BY, processor))
    return changes


cdef int _advise(Region region, list changes) except -1:
    cdef CUdeviceptr address = pointer_of(region)
    cdef size_t nbytes = region.nbytes
    cdef Context context = region.memory.context
    cdef own_export open
    cdef int advice
    cdef CUdevice processor
    cdef CUresult status
    keep_open(region, &open)
    try:
        # The next buffer in this memory would inherit the advice, so it leaves the pool.
        leave_cache(region.memory)
        region.memory.advised = True
        for advice, processor in changes:
            with nogil:
                status = in_cuMemAdvise(
                    context.raw, address, nbytes, <CUmem_advise>advice, processor)
            context.check(status)
    finally:
        own_export_close(engine, &open)
    return 0


cdef int keep_open(Region region, own_export *view) except -1:
    """Keep the memory from being closed until `own_export_close`.

    A view without bytes conflicts with no access.
    """
    cdef own_access access
    cdef own_conflict conflict
    borrow(region, &access, OWN_READ)
    access.stop = access.start
    answer = own_export_open(engine, &access, here(), view, &conflict)
    if answer != OWN_OK:
        refuse_host(answer, &conflict, "read", region.describe())
    return 0


cdef enum:
    MOST_ACCESSORS = 129    # the host, and more devices than a machine has


cdef object advice_of(Region region):
    """Read the advice of a buffer's pages back from the driver."""
    cdef own_export open
    cdef int read_mostly = 0
    cdef int preferred = CU_DEVICE_INVALID
    cdef int accessors[MOST_ACCESSORS]
    cdef int i
    from cudadrv._records import Advice
    _check_range(region)
    if region.nbytes == 0:
        return Advice(False, None, frozenset(), None)
    for i in range(MOST_ACCESSORS):
        accessors[i] = CU_DEVICE_INVALID
    keep_open(region, &open)
    try:
        _read(region, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, &read_mostly, 1)
        _read(region, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, &preferred, 1)
        _read(region, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, accessors, MOST_ACCESSORS)
        last = _last_prefetch(region)
    finally:
        own_export_close(engine, &open)
    found = []
    for i in range(MOST_ACCESSORS):
        if accessors[i] != CU_DEVICE_INVALID:
            found.append(_place_at(accessors[i]))
    return Advice(read_mostly != 0, _place_at(preferred), frozenset(found), last)


cdef object _last_prefetch(Region region):
    """Return the place of the last prefetch. Drivers before CUDA 12.2 do not tell the NUMA node."""
    cdef int processor = CU_DEVICE_INVALID
    cdef int kind = 0
    cdef int number = 0
    _read(region, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, &processor, 1)
    if processor == CU_DEVICE_CPU and _read(region, LAST_PREFETCH_TYPE, &kind, 1) \
            and kind == NUMA_NODE and _read(region, LAST_PREFETCH_NUMBER, &number, 1):
        return f"host:{number}"
    return _place_at(processor)


cdef bint _read(Region region, int attribute, int *values, size_t count) except -1:
    """Read an attribute of a buffer's pages. Returns False if the driver does not know it."""
    cdef CUdeviceptr address = pointer_of(region)
    cdef size_t nbytes = region.nbytes
    cdef Context context = region.memory.context
    cdef CUresult status
    with nogil:
        status = in_cuMemRangeGetAttribute(
            context.raw, values, count * sizeof(int), <CUmem_range_attribute>attribute, address,
            nbytes)
    if attribute >= LAST_PREFETCH_TYPE and has_answered(status, CUDA_ERROR_INVALID_VALUE):
        return False
    context.check(status)
    return True
