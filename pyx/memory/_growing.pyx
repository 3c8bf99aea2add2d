"""Growing: buffers whose size changes and whose address stays.

The engine's record of such memory covers the whole capacity from the beginning. So growing changes
at most a limit that shrinking has set, and work may be in flight meanwhile. Shrinking is like
closing the last bytes: they must be unused, and the engine refuses them from then on.
"""

from cudadrv._device cimport Context, Device, attend, report_in
from cudadrv._driver cimport (
    CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, CUresult,
)
from cudadrv._engine cimport (
    OWN_OK, engine, own_bytes_free, own_conflict, own_memory_cut, own_memory_extend,
)
from cudadrv._memory cimport Memory, list_memory, new_state, obtain, span_of
from cudadrv._memory_kinds cimport GROWING
from cudadrv._refusal cimport refuse_close
from cudadrv._region cimport Items, Region, checked_count, checked_label, fill_in, items_of
from cudadrv._release cimport drain, drain_for_more, finish_before_free
from cudadrv._site cimport here
from cudadrv._virtual cimport (
    Growth, Span, drop_span, map_until, new_span, reserve, round_up, unmap_from,
)

from collections.abc import Iterable


# ---- making one ----

cdef int allocate_growing(
    Region region, object count, object dtype, object capacity, Context context,
    object accessible_by, object name
) except -1:
    """Initialize `region` as a buffer over new memory that can grow to `capacity` items."""
    cdef Items items = items_of(dtype)
    cdef Memory memory
    cdef Py_ssize_t number = checked_count(count, items)
    cdef Py_ssize_t most = checked_count(capacity, items, "capacity")
    label = checked_label(region, name)
    if most < number or most == 0:
        raise ValueError(f"capacity is {most}, and must be at least "
                         + (f"the count, {number}" if number else "1"))
    context.usable()
    devices = _checked_devices(context.device, accessible_by)
    if not context.device.attribute_value(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED):
        raise ValueError(f"{context.device!r} has no virtual memory management, which capacity="
                         " needs; make a larger buffer and copy the items")
    memory = _reserved(context, <size_t>most * <size_t>items.itemsize, devices, label)
    _map(memory, <size_t>number * <size_t>items.itemsize)
    list_memory(memory)
    return fill_in(region, memory, number, items.dtype, items.itemsize, name)


cdef list _checked_devices(Device owner, object accessible_by):
    """Return all devices that may use the memory. The memory is on the first of them."""
    cdef Device device
    devices = [owner]
    if accessible_by is None:
        return devices
    if isinstance(accessible_by, Device) or not isinstance(accessible_by, Iterable):
        accessible_by = (accessible_by,)
    for given in accessible_by:
        if not isinstance(given, Device):
            raise TypeError("accessible_by= takes devices, such as [cudadrv.Device(1)], and not"
                            f" {given!r}")
        device = given
        if device not in devices:
            devices.append(device)
    return devices


cdef Memory _reserved(Context context, size_t nbytes, list devices, str label):
    """Reserve addresses for `nbytes` bytes, and return their Memory. No bytes are mapped yet."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef CUresult status
    memory.context = context
    memory.kind = GROWING
    memory.nbytes = nbytes
    memory.label = label
    memory.site = here()
    memory.growth = Growth()
    memory.state = new_state(nbytes)
    memory.growth.span = new_span(context, nbytes, devices)
    drain_for_more()
    with nogil:
        status = reserve(memory.growth.span)
    if memory.growth.span.address == 0:
        drop_span(memory.growth.span)
        memory.growth.span = NULL
    context.check(status)
    memory.address = memory.growth.span.address
    return memory


# ---- changing the size ----

cdef CUresult _map_call(Memory memory, size_t end) except *:
    cdef CUresult status
    with nogil:
        status = map_until(memory.growth.span, end)
    return status


cdef int _map(Memory memory, size_t end) except -1:
    """Let the devices use the first `end` bytes. Maps what is missing, or raises."""
    cdef size_t before = memory.growth.span.mapped
    cdef CUresult status
    if end <= memory.growth.span.usable:
        return 0
    try:
        obtain(memory, end, _map_call)
    except BaseException:
        if memory.growth.span.mapped > before and not memory.context.lost:
            finish_before_free(memory.context, memory.kind)
            with nogil:
                status = unmap_from(memory.growth.span, before)
            report_in(memory.context, status)
        raise
    return 0


cdef int _check_resizable(Region region, str verb) except -1:
    region.usable()
    if span_of(region.memory) is NULL:
        raise ValueError(f"cannot {verb} {region.describe()}: its size is fixed. Memory that grows"
                         f" is made with capacity=: DeviceBuffer(count, dtype, capacity=most)")
    if region.part:
        raise ValueError(f"cannot {verb} {region.describe()}: it is a part; {verb} the whole"
                         " buffer")
    if region.sizes is not None:
        raise ValueError(f"cannot {verb} {region.describe()}: it has the shape {region.sizes};"
                         f" {verb} the buffer that was reshaped")
    return 0


cdef int _resize(Region region, Py_ssize_t count) except -1:
    region.count = count
    region.nbytes = <size_t>count * <size_t>region.itemsize
    return 0


cdef int grow_region(Region region, object count) except -1:
    """Make a buffer longer, or raise and change nothing."""
    cdef Memory memory
    cdef Items items = items_of(region.dtype)
    cdef Py_ssize_t number = checked_count(count, items)
    _check_resizable(region, "grow")
    memory = region.memory
    memory.growth.begin("grow", memory.label)
    try:
        _check_resizable(region, "grow")  # another thread may have closed or moved the buffer
        if number > capacity_of(region):
            raise ValueError(f"cannot grow {region.describe()} to {number} items: its capacity is"
                             f" {capacity_of(region)}. Make a new buffer with a larger one")
        if number < region.count:
            raise ValueError(f"cannot grow {region.describe()} to {number} items: it has"
                             f" {region.count}. To give memory back: shrink({number})")
        drain_for_more()
        _map(memory, <size_t>number * <size_t>items.itemsize)
        own_memory_extend(engine, memory.state, <size_t>number * <size_t>items.itemsize)
        _resize(region, number)
    finally:
        memory.growth.end()
    return 0


cdef int shrink_region(Region region, object count) except -1:
    """Make a buffer shorter and give memory back, or raise. May block.

    If the driver fails before any memory is unmapped, nothing has changed. If it fails later, the
    buffer is shorter, and keeps the memory that is still mapped.
    """
    cdef Memory memory
    cdef own_conflict conflict
    cdef Items items = items_of(region.dtype)
    cdef Py_ssize_t number = checked_count(count, items)
    cdef Py_ssize_t before
    cdef size_t end = <size_t>number * <size_t>items.itemsize
    _check_resizable(region, "shrink")
    memory = region.memory
    memory.growth.begin("shrink", memory.label)
    try:
        attend()
        _check_resizable(region, "shrink")
        before = region.count
        if number > before:
            raise ValueError(f"cannot shrink {region.describe()} to {number} items: it has"
                             f" {before}. To make it longer: grow({number})")
        if number < before:
            answer = own_bytes_free(engine, memory.state, end, memory.nbytes, &conflict)
            if answer == OWN_OK:
                finish_before_free(memory.context, memory.kind)
                _check_resizable(region, "shrink")
                answer = own_memory_cut(engine, memory.state, end, here(), &conflict)
            if answer != OWN_OK:
                refuse_close(answer, &conflict, "shrink", region.describe())
            _resize(region, number)
            _unmap(region, before, end)
    finally:
        memory.growth.end()
    return drain(False)


cdef int _unmap(Region region, Py_ssize_t before, size_t end) except -1:
    """Give back the memory behind `end`. If the driver gives back nothing, undo the shrinking."""
    cdef Memory memory = region.memory
    cdef CUresult status
    cdef Span *span = memory.growth.span
    cdef size_t mapped = span.mapped
    end = round_up(span, end)
    with nogil:
        status = unmap_from(span, end)
    if status != CUDA_SUCCESS and span.mapped == mapped:
        _resize(region, before)
        own_memory_extend(engine, memory.state, region.nbytes)
    return memory.context.check(status)


# ---- what a program may ask ----

cdef object capacity_of(Region region):
    """Return how many items the buffer can have at its present address."""
    if region.memory.growth is None or region.part:
        return region.count
    return region.memory.nbytes // <size_t>region.itemsize


cdef tuple devices_of(Region region):
    """Return the devices that may use the memory. The memory is on the first of them."""
    cdef size_t i
    cdef Span *span = span_of(region.memory)
    found = []
    if span is NULL:
        return (region.memory.context.device,)
    for i in range(span.devices):
        found.append(Device(span.users[i].location.id))
    return tuple(found)
