"""Managed memory: prefetches of its pages, and advice about where they should be."""

from libc.stdlib cimport free, malloc

from cudadrv._copy cimport nothing_to_do, required_stream
from cudadrv._device cimport Context, Device, enter_context, leave_context
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CU_DEVICE_CPU,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, CU_DEVICE_INVALID,
    CU_MEM_ADVISE_SET_ACCESSED_BY, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
    CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_ACCESSED_BY,
    CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
    CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
    CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute,
    CUmemLocation, CUmemLocationType, CUresult, CUstream, bind_driver, cuMemAdvise,
    cuMemPrefetchAsync, cuMemPrefetchBatchAsync, cuMemRangeGetAttribute, cudadrv_table,
)
from cudadrv._engine cimport (
    OWN_LEGACY, OWN_OK, OWN_READ, OWN_SHARED, engine, own_access, own_conflict,
    own_export, own_export_close, own_export_open, own_turn_end,
)
from cudadrv._memory cimport leave_cache
from cudadrv._names cimport PREFETCH, PREFETCH_BATCH
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._refusal cimport refuse_host, refuse_operation
from cudadrv._region cimport Region, borrow, check_region, pointer_of
from cudadrv._release cimport UNIFIED
from cudadrv._site cimport here
from cudadrv._stream cimport Stream, known_stream
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._driver import missing_functions

bind_driver(&cudadrv_table)


# ---- places ----

# Values of enums that the headers of CUDA 12.0 and 12.1 lack.
cdef enum:
    HOST = 2                        # of CUmemLocationType
    NUMA_NODE = 3
    LAST_PREFETCH_TYPE = 7          # of CUmem_range_attribute
    LAST_PREFETCH_NUMBER = 8

cdef str BATCH = "cuMemPrefetchBatchAsync"


cdef CUmemLocation place_of(object place) except *:
    """Return a place as the driver takes it. Raises if managed memory cannot be there."""
    cdef CUmemLocation location
    if isinstance(place, Device):
        _check_concurrent(<Device>place, "the place")
        location.type = CU_MEM_LOCATION_TYPE_DEVICE
        location.id = (<Device>place).raw
        return location
    if not isinstance(place, str):
        raise TypeError(f"a place is a Device, 'host' or 'host:N', and not {place!r}")
    host, colon, node = place.partition(":")
    if host != "host" or (colon and not (node.isascii() and node.isdigit() and len(node) < 10)):
        raise ValueError(f"a place is a Device, 'host' or 'host:N' with the number of a NUMA node,"
                         f" and not {place!r}")
    location.type = <CUmemLocationType><int>(NUMA_NODE if colon else HOST)
    location.id = int(node) if colon else CU_DEVICE_CPU
    return location


cdef int _check_concurrent(Device device, str what) except -1:
    if not device.attribute_value(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS):
        raise ValueError(f"{what} is {device!r}, whose concurrent_managed_access is 0: the driver"
                         " moves all managed memory to such a device when work is queued, and"
                         " takes neither prefetches nor advice for it")
    return 0


cdef CUdevice _processor(CUmemLocation location) noexcept nogil:
    """Return a place as the older functions take it, which know no NUMA nodes."""
    return location.id if location.type == CU_MEM_LOCATION_TYPE_DEVICE else CU_DEVICE_CPU


cdef object _place_at(int processor):
    """Return the place with a number of the driver's; None for the number of no place."""
    if processor == CU_DEVICE_INVALID:
        return None
    return "host" if processor == CU_DEVICE_CPU else Device(processor)


# ---- prefetches ----

# Ranges of memory with their places, as cuMemPrefetchBatchAsync takes them, and the accesses.
cdef struct Prefetch:
    size_t count
    CUdeviceptr *addresses
    size_t *sizes
    CUmemLocation *places
    size_t *firsts          # to which range each place belongs first: 0, 1, 2, ...
    own_access *accesses
    bint at_once            # whether to try cuMemPrefetchBatchAsync


cdef CUresult _prefetch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Prefetch *prefetch = <Prefetch *>arguments
    cdef CUresult status = CUDA_ERROR_NOT_SUPPORTED
    cdef size_t i
    if prefetch.at_once:
        status = cuMemPrefetchBatchAsync(
            prefetch.addresses, prefetch.sizes, prefetch.count, prefetch.places, prefetch.firsts,
            prefetch.count, 0, stream)
        # A batch that fails may have begun.
        queued[0] = status != CUDA_ERROR_NOT_SUPPORTED
    if status == CUDA_ERROR_NOT_SUPPORTED:
        for i in range(prefetch.count):
            status = cuMemPrefetchAsync(prefetch.addresses[i], prefetch.sizes[i],
                                        _processor(prefetch.places[i]), stream)
            if status != CUDA_SUCCESS:
                return status
            queued[0] = True
    return status


cdef Token prefetch_region(Region region, object place, object stream):
    """Queue a prefetch of a whole buffer."""
    cdef Stream found
    stream = known_stream(stream)
    check_region(region)
    found = required_stream(stream, region, "prefetch")
    return _prefetch(PREFETCH, [region], [place], found)


def prefetch_batch(pairs, stream=None):
    """Queue prefetches of several buffers at once: ``prefetch_batch([(buffer, place), ...])``.

    As `UnifiedBuffer.prefetch` for each pair in turn, but checked before anything is queued, and
    with one call of a driver that has cuMemPrefetchBatchAsync (13.0 or newer). Does not block.

    Parameters
    ----------
    pairs : iterable of (UnifiedBuffer, place)
        Buffers, or parts, and where to move each. There must be at least one pair.
    stream : Stream, optional
        Default: the current stream of a ``with stream:`` block; without one, a TypeError.

    Returns
    -------
    Token
        It stands for all of them.

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
    cdef Stream found
    stream = known_stream(stream)
    regions, places = [], []
    for buffer, place in pairs:
        if not isinstance(buffer, Region) or (<Region>buffer).kind != UNIFIED:
            raise TypeError("only a UnifiedBuffer can be prefetched, and not a"
                            f" {type(buffer).__name__}")
        regions.append(buffer)
        places.append(place)
    if not regions:
        raise ValueError("prefetch_batch needs at least one pair of a buffer and a place")
    for region in regions:
        check_region(<Region>region)
    found = required_stream(stream, <Region>regions[0], "prefetch_batch")
    return _prefetch(PREFETCH_BATCH, regions, places, found)


cdef Token _prefetch(int name, list regions, list places, Stream stream):
    """Queue prefetches. The regions are checked; there is at least one."""
    cdef Prefetch prefetch
    cdef list locations = []
    cdef list used = []
    cdef Region region
    cdef Token token
    cdef void *room
    stream.usable()
    _check_concurrent(stream.context.device, "the device of the stream")
    nodes = False
    for region, place in zip(regions, places):
        location = place_of(place)
        nodes = nodes or <int>location.type == NUMA_NODE
        if region.nbytes:
            locations.append(location)
            used.append(region)
    if nodes:
        _check_nodes(stream)
    if not used:
        return nothing_to_do(name, stream, <Region>regions[0], None)
    prefetch.count = len(used)
    prefetch.at_once = nodes or (prefetch.count > 1 and stream.order.order != OWN_LEGACY)
    room = _room_for(&prefetch)
    try:
        for i, region in enumerate(used):
            prefetch.addresses[i] = pointer_of(region)
            prefetch.sizes[i] = region.nbytes
            prefetch.places[i] = locations[i]
            prefetch.firsts[i] = i
            # It moves pages and changes no byte, also not in memory that is read-only. So it
            # conflicts with no other use, and the borrow only keeps the memory from being freed.
            borrow(region, &prefetch.accesses[i], OWN_READ)
            prefetch.accesses[i].mode = OWN_SHARED
        token = new_token(stream, tuple(used), None)
        _issue(name, &prefetch, stream, used, token)
        for i in range(prefetch.count):
            if prefetch.places[i].type != CU_MEM_LOCATION_TYPE_DEVICE:
                own_turn_end(engine, &prefetch.accesses[i])
    finally:
        free(room)
    return token


cdef int _issue(
    int name, Prefetch *prefetch, Stream stream, list regions, Token token
) except -1:
    cdef Operation operation
    cdef Region region
    prepare(&operation, name, prefetch.accesses, <int>prefetch.count, _prefetch_call, prefetch)
    reason = issue(&operation, stream)
    if reason:
        described = []
        for region in regions:
            described.append(region.describe())
        refuse_operation(&operation, reason, stream, tuple(described))
    stand_for(token, &operation)
    return 0


cdef int _check_nodes(Stream stream) except -1:
    """Raise ValueError where the driver takes no NUMA nodes."""
    if BATCH in missing_functions():
        raise ValueError(f"this driver has no {BATCH}, so it takes no NUMA nodes ('host:N'): that"
                         " needs a driver of CUDA 13.0. 'host' works with every driver")
    if stream.order.order == OWN_LEGACY:
        raise ValueError("prefetches to NUMA nodes ('host:N') do not work on the legacy default"
                         " stream; use another stream, or 'host'")
    return 0


cdef void *_room_for(Prefetch *prefetch) except NULL:
    """Allocate the arrays of a prefetch in one piece, which the caller frees."""
    cdef size_t count = prefetch.count
    cdef char *room = <char *>malloc(count * (
        sizeof(own_access) + sizeof(CUdeviceptr) + 2 * sizeof(size_t) + sizeof(CUmemLocation)))
    if room is NULL:
        raise MemoryError()
    prefetch.accesses = <own_access *>room
    prefetch.addresses = <CUdeviceptr *>&prefetch.accesses[count]
    prefetch.sizes = <size_t *>&prefetch.addresses[count]
    prefetch.firsts = &prefetch.sizes[count]
    prefetch.places = <CUmemLocation *>&prefetch.firsts[count]
    return room


# ---- advice ----

cdef int advise_region(
    Region region, object read_mostly, object preferred, object accessed_by
) except -1:
    """Change the advice of the pages of a buffer. None leaves a kind of advice unchanged."""
    cdef list changes = []
    check_region(region)
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
        if region.memory.pool is not None:
            raise ValueError(f"{region.describe()} has memory of a DriverPool, which takes no"
                             " advice: the pool was told the place")
        _advise(region, changes)
    return 0


cdef int _adviser(object place) except? -3:
    """Return the number of a place that advice can be about."""
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
    cdef bint pushed
    _keep_open(region, &open)
    try:
        # The next buffer in this memory would inherit the advice, so it leaves the pool.
        leave_cache(region.memory)
        region.memory.advised = True
        for advice, processor in changes:
            pushed = False
            with nogil:
                status = enter_context(context.raw, &pushed)
                if status == CUDA_SUCCESS:
                    status = cuMemAdvise(address, nbytes, <CUmem_advise>advice, processor)
                    leave_context(pushed)
            context.check(status)
    finally:
        own_export_close(engine, &open)
    return 0


cdef int _keep_open(Region region, own_export *view) except -1:
    """Keep the memory from being closed until `own_export_close`.

    A view without bytes is in the way of no access.
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
    from cudadrv._advice import Advice  # here: a NamedTuple would make each import slower
    check_region(region)
    if region.nbytes == 0:
        return Advice(False, None, frozenset(), None)
    for i in range(MOST_ACCESSORS):
        accessors[i] = CU_DEVICE_INVALID
    _keep_open(region, &open)
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
    """Return the place of the last prefetch. A driver before 12.2 does not tell the NUMA node."""
    cdef int processor = CU_DEVICE_INVALID
    cdef int kind = 0
    cdef int number = 0
    _read(region, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, &processor, 1)
    if processor == CU_DEVICE_CPU and _read(region, LAST_PREFETCH_TYPE, &kind, 1) \
            and kind == NUMA_NODE and _read(region, LAST_PREFETCH_NUMBER, &number, 1):
        return f"host:{number}"
    return _place_at(processor)


cdef bint _read(Region region, int attribute, int *values, size_t count) except -1:
    """Read an attribute of a buffer's pages; False if the driver does not know it."""
    cdef CUdeviceptr address = pointer_of(region)
    cdef size_t nbytes = region.nbytes
    cdef Context context = region.memory.context
    cdef bint pushed = False
    cdef CUresult status
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuMemRangeGetAttribute(values, count * sizeof(int),
                                            <CUmem_range_attribute>attribute, address, nbytes)
            leave_context(pushed)
    if status == CUDA_ERROR_INVALID_VALUE and attribute >= LAST_PREFETCH_TYPE:
        return False
    context.check(status)
    return True
