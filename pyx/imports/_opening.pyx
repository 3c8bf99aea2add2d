"""Opening: buffers that another process has shared, and how buffers pass through multiprocessing.

State that outlives a call: the devices by their UUIDs (the GIL guards them).
"""

from cudadrv._device cimport Context, Device, context_of, default_context
from cudadrv._engine cimport OWN_UNCHECKED
from cudadrv._errors cimport refuse_uninitialized
from cudadrv._foreign cimport adopt_opened
from cudadrv._loan cimport note_write, stream_of_exchange
from cudadrv._names cimport OPENING
from cudadrv._region cimport Items, Region, checked_label, fill_in
from cudadrv._sharing cimport Opened, Ticket, await_owner, open_ticket, use_opened
from cudadrv._stream cimport Stream, known_stream

from cudadrv._buffers import DeviceBuffer, LockedBuffer


def open(ticket, stream=None):
    """Open a buffer that another process has shared, without a copy.

    Work that is queued on ``stream`` from now on runs after what the owner had queued before
    `Buffer.share`. Opening counts as a write on ``stream``, so uses on other streams, or on the
    host, have to be ordered after it. The owner cannot use the buffer until it is given back:
    ``receipt = buffer.give_back(stream)`` in this process, then ``buffer.accept(receipt)`` in the
    owner's process. If the buffer is only dropped, the owner can take it back once this process's
    work is complete.

    If opening fails, for example because the stream is capturing, the ticket can be opened later.
    If the driver had already mapped the memory, it has to be unmapped before that.

    Does not block. The memory is unmapped when the work on it is known to be complete.

    Parameters
    ----------
    ticket : Ticket
        What `Buffer.share` returned in another process of this machine and this user.
    stream : Stream, optional
        Default: the current one of a ``with stream:`` block, else the legacy default stream.

    Returns
    -------
    DeviceBuffer or LockedBuffer

    Raises
    ------
    TypeError
        ``ticket`` is not a Ticket.
    OwnershipError
        The ticket was opened before, or taken back; it differs from what the owner made; the owner
        has ended; or the ticket was made by this process.
    ValueError
        This process does not see the device; or the stream does not belong to the primary context
        of the device, is closed, or is another thread's default stream.

    Driver functions: cuIpcOpenMemHandle or cuMemHostRegister, cuIpcOpenEventHandle,
    cuStreamWaitEvent.
    """
    cdef Ticket given
    cdef Context context
    cdef Stream found
    cdef Opened opened
    cdef Region region
    if not isinstance(ticket, Ticket):
        raise TypeError(f"open takes a Ticket, not {type(ticket).__name__}")
    given = ticket
    if given.data is None:
        refuse_uninitialized(given)
    found = known_stream(stream)
    context = _context_for(given, found)
    if found is None:
        found = stream_of_exchange(context)
    if found.context is not context:
        raise ValueError(f"the memory is on {context.device!r}, and {found!r} belongs to"
                         f" {found.context!r}; use a stream of its primary context")
    found.usable()
    if found.capture is not NULL:
        found.refuse_captured()
    opened = open_ticket(given, context)
    found.wait_for(opened.event)
    region = _region_of(opened)
    note_write(region, found, OPENING, OWN_UNCHECKED)
    await_owner(opened, found)
    use_opened(opened)
    return region


# Devices by their UUIDs, which stay the same as long as the process runs.
cdef dict _devices = {}


cdef Context _context_for(Ticket ticket, Stream stream):
    """Return the context in which the memory is opened."""
    if ticket.on_host:
        context = default_context() if stream is None else stream.context
        return context_of((<Context>context).device)
    if ticket.uuid not in _devices:
        for device in Device.all():
            _devices[(<Device>device).uuid_bytes()] = device
    found = _devices.get(ticket.uuid)
    if found is None:
        from uuid import UUID
        raise ValueError(f"the memory is on the device with UUID {UUID(bytes=ticket.uuid)}, which"
                         " this process does not see (CUDA_VISIBLE_DEVICES)")
    return context_of(found)


cdef Region _region_of(Opened opened):
    """Make a buffer over the part of the memory that the ticket is for."""
    cdef Ticket ticket = opened.ticket
    cls = LockedBuffer if ticket.on_host else DeviceBuffer
    cdef Region region = cls.__new__(cls)
    cdef Items items = ticket.items
    cdef size_t nbytes = ticket.nbytes
    memory = adopt_opened(
        opened.context, opened.base, opened.total, opened.base + <size_t>ticket.offset, nbytes,
        opened, checked_label(region, None))
    fill_in(region, memory, nbytes // <size_t>items.itemsize, items.dtype, items.itemsize, None)
    region.sizes = ticket.shape
    return region
