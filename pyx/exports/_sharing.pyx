"""Sharing: buffers that are lent to other processes by tickets.

A process that shares a buffer has a board: memory that other processes map. Each ticket has a slot
on the board, which says whether the ticket was opened, by which process, and whether that process
has given the buffer back. One event, which both processes record, orders their work.

State that outlives a call: the board, its free slots, what is shared, the owners of tickets that
were opened, and events that later tickets use again (the GIL guards them).
"""

import errno
import os
import struct

import numpy as np

cimport cython
from libc.errno cimport EINTR, errno as c_errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport getpid

from cudadrv._device cimport Context, contexts
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_STREAM_NON_BLOCKING, CUcontext, CUdeviceptr,
    CUevent, CUipcEventHandle, CUipcMemHandle, CUresult, CUstream, cuEventRecord, cudadrv_table,
    in_cuEventRecord, in_cuIpcGetEventHandle, in_cuIpcGetMemHandle, in_cuIpcOpenMemHandle,
    in_cuMemGetAddressRange, in_cuMemHostRegister, in_cuPointerGetAttribute,
    in_cuStreamCreateWithPriority, in_cuStreamDestroy, in_cuStreamWaitEvent,
)
from cudadrv._engine cimport (
    OWN_SHARES, OWN_WAIT, OWN_WRITE, engine, own_access, own_export,
    own_export_close, own_memory, own_memory_end, own_record_as, own_snapshot, own_snapshot_drop,
)
from cudadrv._errors cimport uninitialized
from cudadrv._event cimport (
    Event, OtherWork, await_other, forget_other, is_unfinished, new_event, open_event,
)
from cudadrv._loan cimport note_write, stream_of_exchange
from cudadrv._managed cimport keep_open
from cudadrv._memory cimport (
    Memory, closed_state, leave_cache, leave_home, stay_home,
)
from cudadrv._memory_kinds cimport OPENED, REGISTERED, SHARED, UNIFIED
from cudadrv._names cimport ACCEPT, GIVE_BACK, SHARE
from cudadrv._operation cimport Operation, prepare
from cudadrv._peers cimport refuse_other_context
from cudadrv._region cimport Region, borrow, items_of, pointer_of, queue, refuse_box
from cudadrv._release cimport Kept, drain, release_later, sharing_stream
from cudadrv._segment cimport Segment, close_file, new_segment, open_segment
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream

from cudadrv._device import call_after_wait
from cudadrv._errors import BufferClosedError, BufferExportedError, OwnershipError

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd *files, unsigned long count, int milliseconds)

cdef str BOARD = "cudadrv-board"
cdef str LOCKED_SEGMENT = "cudadrv-locked"

cdef enum:
    SLOTS = 1 << 16         # slots of a board; each unfinished ticket takes one
    SLOT_BYTES = 32
    STARTED = 8             # offset in a slot: the start time of the process that has the buffer
    DIGEST = 16             # offset in a slot: the digest of the ticket
    MOST_BYTES = 1 << 16    # the most bytes of a ticket
    MOST_SIZES = 64

# The state of a slot: the lowest byte of its first word. The rest of the word is the number of the
# process that has opened the ticket.
cdef enum:
    FREE
    OFFERED         # the ticket can be opened
    OPEN            # a process has the buffer
    RETURNED        # the process has given the buffer back, and still has the memory mapped
    GONE            # the process has dropped the buffer, and its work is complete
    RETURNED_GONE   # the process has given the buffer back, and its work is complete
    TAKEN_BACK      # the owner has taken the buffer back before the ticket was opened

# Where the memory of a ticket is.
cdef enum:
    ON_DEVICE = 0
    ON_HOST = 2

# The fields of a ticket: magic, the number of the owner's process, the file descriptor of its
# board, the start time of the process, the slot, where the memory is, the number of sizes, the
# length of the dtype's text, a random number, the UUID of the device, the handle of the memory, the
# handle of the event, the number of the event, the offset in the allocation, the bytes of the
# buffer, the bytes of the allocation. The sizes and the text of the dtype follow.
cdef object TICKET = struct.Struct("<8sIiQIBBH16s16s64s64sQQQQ")
# The fields of a receipt: magic, the owner's process, the slot, the ticket's random number
cdef object RECEIPT = struct.Struct("<8sII16s")
cdef bytes TICKET_MAGIC = b"CUDATIC1"
cdef bytes RECEIPT_MAGIC = b"CUDAREC1"


# ---- processes ----

cdef object _start = 0      # the start time of this process; 0: not known yet


def _start_of(pid):
    """Return the start time of a process, or 0 if it has ended. Raises OSError if it is unknown."""
    cdef int file
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        # The name of the process comes first, and may contain anything.
        fields = os.read(file, 4096).rpartition(b")")[2].split()
    except ProcessLookupError:
        fields = []
    finally:
        os.close(file)
    return 0 if len(fields) < 20 or fields[0] in b"ZX" else int(fields[19])


cdef object _own_start():
    """Return the start time of this process."""
    global _start
    _start = _start or _start_of(getpid())
    return _start


cdef int _pidfd_of(pid, start) except -2:
    """Return a file descriptor that becomes readable when the process ends; -1 if it has ended.

    Raises OSError if this is unknown, such as when this process has too many open files.
    """
    try:
        file = os.pidfd_open(pid)
    except OverflowError:       # the number may be forged
        return -1
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EINVAL, errno.ENOENT):
            raise
        return -1
    same = False
    try:
        same = not start or _start_of(pid) == start
    finally:
        if not same:    # the process has ended, and another process has its number
            os.close(file)
    return file if same else -1


cdef bint _has_ended(int pidfd) except -1:
    """Whether a process has ended. Raises OSError if this is unknown."""
    if pidfd < 0:
        return True
    cdef pollfd asked
    asked.fd, asked.events = pidfd, POLLIN
    cdef int answers = poll(&asked, 1, 0)
    if answers < 0 and c_errno != EINTR:
        raise OSError(c_errno, os.strerror(c_errno))
    if answers > 0 and not asked.revents & POLLIN:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))    # the program has closed the file
    return answers > 0


# ---- tickets and receipts ----

@cython.final
cdef class Ticket:
    """Ticket(data)\n--\n
    What another process needs to open a buffer: see `Buffer.share`. It can be pickled.

    Parameters
    ----------
    data : bytes
        ``bytes(ticket)`` of a ticket.

    Raises TypeError or ValueError if ``data`` is not the data of a ticket. Some errors in it are
    found only by `open`.
    """

    def __init__(self, data):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"a Ticket is made of bytes, not of {type(data).__name__}")
        _parse(self, bytes(data))

    def __bytes__(self):
        """Return the data from which `Ticket` makes an equal ticket."""
        return self.data

    def __reduce__(self):
        return Ticket, (self.data,)

    def __eq__(self, other):
        return isinstance(other, Ticket) and self.data == (<Ticket>other).data

    def __hash__(self):
        return hash(self.data)

    def __repr__(self):
        if self.data is None:
            return uninitialized(self)
        return f"<Ticket for {self.shape} items of {self.items.dtype} of process {self.pid}>"

    @property
    def pid(self):
        """The number of the process that has shared the buffer."""
        return self.pid

    @property
    def shape(self):
        """The shape of the buffer."""
        return self.shape

    @property
    def dtype(self):
        """The dtype of the buffer."""
        return None if self.items is None else self.items.dtype


cdef int _parse(Ticket ticket, bytes data) except -1:
    if not TICKET.size <= len(data) <= MOST_BYTES:
        raise ValueError(f"no ticket has {len(data)} bytes")
    (magic, pid, file, start, slot, kind, sizes, length, number, uuid, memory, event, event_number,
     offset, nbytes, total) = TICKET.unpack_from(data)
    if magic != TICKET_MAGIC:
        raise ValueError("the bytes are no ticket of this version of cudadrv")
    if sizes > MOST_SIZES or len(data) != TICKET.size + 8 * sizes + length or slot >= SLOTS \
            or kind not in (ON_DEVICE, ON_HOST):
        raise ValueError("the ticket is damaged: its parts do not fit together")
    shape = struct.unpack_from(f"<{sizes}Q", data, TICKET.size)
    dtype = _dtype_of(data[TICKET.size + 8 * sizes:])
    count = 1
    for size in shape:
        count *= size
    if count * dtype.itemsize != nbytes or nbytes == 0 or nbytes > total \
            or offset > total - nbytes or offset % dtype.alignment or total >= 1 << 48:
        raise ValueError(f"the ticket is damaged: {count} items of {dtype} are not the {nbytes}"
                         f" bytes at {offset} of {total}")
    first, second = _digest(data)   # computed now, so that `open` takes less time
    ticket.data, ticket.pid, ticket.file, ticket.start, ticket.slot = data, pid, file, start, slot
    ticket.on_host, ticket.number, ticket.uuid = kind == ON_HOST, number, uuid
    ticket.memory, ticket.event, ticket.event_number = memory, event, event_number
    ticket.offset, ticket.nbytes, ticket.total = offset, nbytes, total
    ticket.shape, ticket.items, ticket.owner = shape, items_of(dtype), (pid, start, file)
    ticket.digest[0], ticket.digest[1] = first, second
    return 0


cdef object _description(object given):
    """Return NumPy's description of a dtype, made from JSON, where its tuples are lists."""
    if not isinstance(given, list):
        return given
    fields = []
    for name, description, *shape in given:
        sizes = []
        for each in shape:
            sizes.append(tuple(each))
        fields.append((tuple(name) if isinstance(name, list) else name, _description(description),
                       *sizes))
    return fields


cdef object _dtype_of(bytes text):
    import json     # imported where it is needed, because the import is slow
    try:
        dtype = np.lib.format.descr_to_dtype(_description(json.loads(text)))
    except (ValueError, TypeError, SyntaxError, KeyError, IndexError, AttributeError,
            RecursionError, OverflowError) as error:
        raise ValueError(f"the ticket is damaged: {text[:40]!r} describes no dtype"
                         f" ({type(error).__name__})") from None
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"the ticket is damaged: no buffer has items of {dtype}")
    return dtype


@cython.final
cdef class Receipt:
    """Receipt(data)\n--\n
    What the owner of a buffer needs to take it back: see `Buffer.give_back`. It can be pickled.

    Parameters
    ----------
    data : bytes
        ``bytes(receipt)`` of a receipt.

    Raises TypeError or ValueError if ``data`` is not the data of a receipt.
    """

    def __init__(self, data):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"a Receipt is made of bytes, not of {type(data).__name__}")
        data = bytes(data)
        if len(data) != RECEIPT.size or data[:8] != RECEIPT_MAGIC:
            raise ValueError("the bytes are no receipt of this version of cudadrv")
        self.data = data
        _, self.pid, self.slot, self.number = RECEIPT.unpack(data)

    def __bytes__(self):
        """Return the data from which `Receipt` makes an equal receipt."""
        return self.data

    def __reduce__(self):
        return Receipt, (self.data,)

    def __repr__(self):
        return f"<Receipt for process {self.pid}>"


# ---- the owner ----

cdef Segment _board = None
cdef list _free_slots = []      # slots that were used before
cdef unsigned int _fresh = 0    # the first slot that was never used
cdef list _shares = []          # `Shared` of each ticket that has not ended
cdef uint64_t _events = 0       # number of events that were made for tickets
cdef bint _is_called = False    # whether synchronizations call `_end_all`


@cython.final
cdef class Sharing(Kept):
    """The owner of memory that was shared: it must not be freed while others have it mapped."""

    cdef bint in_use(self) except -1:
        _end_all()
        return self.uses > 0


@cython.final
@cython.no_gc_clear
cdef class Shared:
    """A ticket that has not ended: the other process may still use the memory or the event."""

    cdef Memory memory
    cdef Sharing sharing    # None for page-locked memory, which each process maps by itself
    cdef own_export loan    # the engine's record that the bytes are lent
    cdef bint lent
    cdef bint returning     # a thread is taking the buffer back
    cdef unsigned int slot
    cdef bytes number
    cdef Event before       # recorded by `share` alone
    cdef Event event        # recorded by `share`, and then by the other process
    cdef tuple names        # the handle and the number of `event`, for other processes
    cdef uint64_t borrower  # the number of the process that has the buffer; 0: not known yet
    cdef int pidfd          # the pidfd of the borrower; -1: the borrower has ended
    cdef uint32_t site
    cdef bint offered       # whether `share` has returned the ticket

    def __cinit__(self):
        self.pidfd = -1

    def __dealloc__(self):
        close_file(self.pidfd)
        if self.lent and not cudadrv_table.forked:
            own_export_close(engine, &self.loan)

    cdef int end_loan(self) noexcept:
        if self.lent:
            self.lent = False
            self.memory.loans -= 1
            own_export_close(engine, &self.loan)
        return 0


cdef uint64_t _word(unsigned int slot) noexcept:
    return _board.load(slot * SLOT_BYTES)


cdef bint _borrower_has_ended(Shared shared) except -1:
    """Whether the other process has ended. False if this is unknown."""
    cdef int file = -1
    try:
        file = _file_of_borrower(shared)
        return _has_ended(file)
    except OSError as error:
        if error.errno == errno.EBADF and shared.pidfd == file:
            shared.borrower, shared.pidfd = 0, -1   # the next call opens another file
        return False


cdef int _file_of_borrower(Shared shared) except -2:
    """Like `_pidfd_of`, for the process that has the buffer."""
    cdef uint64_t pid = _word(shared.slot) >> 8
    cdef int file
    if shared.borrower == pid:
        return shared.pidfd
    file = _pidfd_of(pid, _board.load(shared.slot * SLOT_BYTES + STARTED))
    if shared.borrower != pid:  # a process whose `open` failed may have had the ticket before
        shared.borrower, shared.pidfd, file = pid, file, shared.pidfd
    close_file(file)            # the earlier pidfd, or a duplicate if another thread was faster
    return shared.pidfd


cdef int settle_shares() except -1:
    """End the tickets whose memory and event other processes can no longer use."""
    if _shares:
        _end_all()
    return 0


def _end_all():
    """End the tickets whose memory and event other processes can no longer use.

    A loan of a buffer that is still referred to ends only by `accept`: what the program may do must
    not depend on when another process ends.
    """
    cdef Shared shared
    for shared in _shares[:]:
        if not shared.offered:  # another thread is just making the ticket
            continue
        if shared.memory.context.lost:
            shared.end_loan()   # only the host can use the memory now, and closing must not fail
            if shared in _shares:
                _shares.remove(shared)
            continue
        state = _word(shared.slot) & 0xff
        if state == OFFERED:
            continue
        if state in (OPEN, RETURNED) and not _borrower_has_ended(shared):
            continue
        if shared.memory.regions == 0:
            shared.end_loan()
        if not shared.lent and shared in _shares:
            _retire(shared, state in (OPEN, RETURNED))


cdef int _retire(Shared shared, bint killed) except -1:
    """End a ticket: let later tickets use its slot and its event, which no other process uses.

    An event is not used again if a process that has ended may have left it unfinished.
    """
    cdef list events = []
    if not killed:
        events = shared.event.context.defaults.setdefault("shared events", [])
    _free_slots.append(shared.slot)
    try:
        events.append((shared.event, shared.names))
    except BaseException:
        _free_slots.pop()
        raise
    # Nothing fails from here on.
    _shares.remove(shared)
    _board.store(shared.slot * SLOT_BYTES, FREE)
    if shared.sharing is not None:
        shared.sharing.uses -= 1
    return 0


cdef int _make_board() except -1:
    global _board, _is_called
    if _board is None:
        _board = new_segment(BOARD, SLOTS * SLOT_BYTES)
    if not _is_called:
        _is_called = True
        call_after_wait(_end_all)
    return 0


cdef int _take_slot() except -1:
    global _fresh
    if _free_slots:
        return _free_slots.pop()
    if _fresh == SLOTS:
        raise MemoryError(f"{SLOTS} tickets of this process have not ended")
    _fresh += 1
    return _fresh - 1


cdef tuple _event_for(Context context):
    """Return an event that other processes can open, and a tuple of its handle and its number.

    The driver may use a handle again when its event has been destroyed; a number is used once.
    """
    global _events
    cdef CUipcEventHandle handle
    cdef Event event
    cdef CUresult status
    cdef list known = context.defaults.setdefault("shared events", [])
    if known:
        return known.pop()
    event = new_event(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)
    with nogil:
        status = in_cuIpcGetEventHandle(context.raw, &handle, event.raw)
        context.check(status)
    _events += 1
    return event, ((<char *>&handle)[:sizeof(handle)], _events)


cdef int _refuse_kind(Region region) except -1:
    """Raise ValueError if other processes cannot use the memory."""
    cdef Memory memory = region.memory
    if region.nbytes == 0:
        raise ValueError(f"{region.describe()} is empty: it has no memory to share")
    refuse_box(region, "share")
    kind = UNIFIED if region.kind.managed or memory.state.managed else memory.kind
    if kind.not_shared is not NULL:
        raise ValueError(f"{region.describe()} {<str>kind.not_shared}")
    return 0


cdef int _share_memory(Region region) except -1:
    """Make the handle of device memory, unless it has one. The memory leaves its pool."""
    cdef Memory memory = region.memory
    cdef CUdeviceptr address = pointer_of(region)
    cdef CUipcMemHandle handle
    cdef CUdeviceptr base = 0
    cdef size_t total = 0
    cdef Sharing sharing
    cdef CUresult status
    cdef int has_handle = 1
    if memory.kind.shared:
        return 0
    sharing = Sharing.__new__(Sharing)
    with nogil:
        status = in_cuIpcGetMemHandle(memory.context.raw, &handle, address)
        if status == CUDA_SUCCESS:
            status = in_cuMemGetAddressRange(memory.context.raw, &base, &total, address)
        elif status == CUDA_ERROR_INVALID_VALUE:    # memory of `from_raw`, whose kind is not known
            in_cuPointerGetAttribute(
                memory.context.raw, &has_handle, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                address)
        if has_handle:
            memory.context.check(status)
    if not has_handle:
        raise ValueError(
            f"{region.describe()} is memory for which the driver has no handles: it is from a pool"
            " or a mapping, not from cuMemAlloc. Copy it to a DeviceBuffer made without stream=,"
            " and share that")
    sharing.handle = (<char *>&handle)[:sizeof(handle)]
    sharing.base, sharing.total = base, total
    if not memory.kind.shared:  # another thread may have done the same meanwhile
        leave_cache(memory)
        memory.kind = SHARED
        memory.owner = sharing
    return 0


cdef CUresult _record_call(void *events, CUstream stream, bint *queued) noexcept nogil:
    cdef CUevent *both = <CUevent *>events
    cdef CUresult status = cuEventRecord(both[0], stream)
    return status if status != CUDA_SUCCESS else cuEventRecord(both[1], stream)


cdef Ticket share_region(Region region, Stream stream, bint waits):
    """Do what `Buffer.share` does. With `waits`, the stream waits for conflicting work."""
    cdef own_export open
    cdef Ticket ticket
    region.usable()
    keep_open(region, &open)    # no other thread may close the memory while its handle is made
    try:
        ticket = _share(region, stream, waits)
    finally:
        own_export_close(engine, &open)
    return ticket


cdef Ticket _share(Region region, Stream stream, bint waits):
    cdef Operation operation
    cdef own_access access
    cdef Shared shared
    cdef Ticket ticket
    cdef Segment segment
    cdef CUevent[2] events
    _refuse_kind(region)
    refuse_other_context(region, stream)
    if stream.capture is not NULL:
        stream.refuse_captured()
    _make_board()
    _end_all()
    if not region.memory.kind.mappable:
        _share_memory(region)
    shared = Shared.__new__(Shared)
    shared.memory = region.memory
    shared.number = os.urandom(16)
    shared.before = new_event(stream.context, CU_EVENT_DISABLE_TIMING)
    shared.event, shared.names = _event_for(stream.context)
    events[0], events[1] = shared.before.raw, shared.event.raw
    if region.memory.kind.mappable:
        segment = region.memory.owner
        base, total = <size_t>segment.address, segment.nbytes
        handle = struct.pack("<i60x", segment.file)
    else:
        shared.sharing = region.memory.owner
        base, total, handle = shared.sharing.base, shared.sharing.total, shared.sharing.handle
    import json
    lender = sharing_stream(region.memory.context)
    shared.slot = _take_slot()
    try:
        shape = region.shape
        dtype = json.dumps(np.lib.format.dtype_to_descr(region.dtype)).encode()
        data = TICKET.pack(
            TICKET_MAGIC, getpid(), _board.file, _own_start(), shared.slot,
            ON_HOST if shared.sharing is None else ON_DEVICE, len(shape), len(dtype), shared.number,
            region.memory.context.device.uuid_bytes(), handle, *shared.names,
            pointer_of(region) - base, region.nbytes, total)
        data += struct.pack(f"<{len(shape)}Q", *shape) + dtype
        ticket = Ticket(data)
        borrow(region, &access, OWN_WRITE)
        access.effect = OWN_SHARES
        if waits:
            access.policy = OWN_WAIT
        shared.site = here()
        _shares.append(shared)
        prepare(&operation, SHARE, &access, 1, _record_call, events)
        operation.request.loan = &shared.loan
        shared.loan.borrower = (<Stream>lender).order
        queue(&operation, stream, region)
    except BaseException:
        if shared in _shares:
            _shares.remove(shared)
        _free_slots.append(shared.slot)
        shared.event.context.defaults["shared events"].append((shared.event, shared.names))
        raise
    # Nothing fails from here on.
    shared.lent = shared.offered = True
    region.memory.loans += 1
    if shared.sharing is not None:
        shared.sharing.uses += 1
    own_record_as(engine, &operation.request.issued, &shared.event.state)
    own_record_as(engine, &operation.request.issued, &shared.before.state)
    own_snapshot_drop(engine, &operation.request.issued)
    _board.store(shared.slot * SLOT_BYTES + STARTED, 0)
    _board.store(shared.slot * SLOT_BYTES + DIGEST, ticket.digest[0])
    _board.store(shared.slot * SLOT_BYTES + DIGEST + 8, ticket.digest[1])
    _board.store(shared.slot * SLOT_BYTES, OFFERED)
    return ticket


cdef object _blake2b = None


cdef tuple _digest(bytes data):
    global _blake2b
    if _blake2b is None:
        from hashlib import blake2b     # not at the top, because the import loads OpenSSL
        _blake2b = blake2b
    return struct.unpack("<2Q", _blake2b(data, digest_size=16).digest())


cdef Shared _find(Region region, Receipt receipt):
    """Return the `Shared` that a receipt is for; without a receipt, the only one of a buffer."""
    cdef Shared shared
    cdef size_t stop = region.start + region.nbytes
    found = []
    for shared in _shares:
        if shared.memory is region.memory and shared.lent and not shared.returning \
                and region.start <= shared.loan.start and shared.loan.stop <= stop:
            if receipt is None or shared.slot == receipt.slot and shared.number == receipt.number:
                found.append(shared)
    if receipt is not None and not found:
        raise ValueError(f"the receipt is not for {region.describe()}, or was accepted before")
    if not found:
        raise ValueError(f"{region.describe()} is not shared with another process")
    if len(found) > 1:
        raise ValueError(f"{len(found)} parts of {region.describe()} are shared with other"
                         " processes; say which one: part.accept(), or accept(receipt)")
    return found[0]


cdef int accept_region(Region region, object receipt, Stream stream) except -1:
    """Do what `Buffer.accept` does."""
    cdef Shared shared
    cdef bint unopened
    if receipt is not None and not isinstance(receipt, Receipt):
        raise TypeError(f"accept takes the Receipt of give_back, not {type(receipt).__name__}")
    region.usable()
    shared = _find(region, receipt)
    if not region.memory.context.lost:
        if stream is None:
            stream = stream_of_exchange(shared.event.context)
        refuse_other_context(region, stream)
        stream.usable()
        if stream.capture is not NULL:
            stream.refuse_captured()
    unopened = _check_returned(region, shared, receipt)
    if not shared.lent or shared.returning:
        raise ValueError(f"another thread has taken {region.describe()} back meanwhile")
    if not region.memory.context.lost:  # if lost, this is page-locked memory: only for the host
        # Keeps other threads from taking the buffer back now. The engine would not refuse that.
        shared.returning = True
        try:
            _order_after(region, shared, stream)
        except BaseException:
            if unopened:    # the ticket can be opened again, as before
                _board.swap(shared.slot * SLOT_BYTES, TAKEN_BACK, OFFERED)
            raise
        finally:
            shared.returning = False
    shared.end_loan()
    try:
        _end_all()
    except MemoryError:     # the buffer is back in any case, and a later call ends the rest
        pass
    return 0


cdef bint _check_returned(Region region, Shared shared, Receipt receipt) except -1:
    """Raise if the other process still has the buffer. Returns whether the ticket was never opened;
    in this case it can no longer be opened.
    """
    cdef bint unopened = receipt is None \
        and _board.swap(shared.slot * SLOT_BYTES, OFFERED, TAKEN_BACK)
    state = _word(shared.slot) & 0xff
    pid = _word(shared.slot) >> 8
    if receipt is not None and state not in (RETURNED, RETURNED_GONE):
        raise ValueError("the receipt is not genuine: the other process has not given"
                         f" {region.describe()} back")
    if state == OPEN and not _borrower_has_ended(shared):
        raise BufferExportedError(
            f"cannot take {region.describe()} back:\n"
            f"  process {pid} has it, by the ticket of share at {place(shared.site)}.\n"
            "  Take it back with the receipt of give_back(stream) in that process:"
            " buffer.accept(receipt).\n"
            "  Without one, accept() takes it back once that process has dropped the buffer, or"
            " has ended")
    return unopened


cdef int _order_after(Region region, Shared shared, Stream stream) except -1:
    """Order a stream after the other process's work. That counts as a write on the stream."""
    cdef Operation operation
    cdef own_access access
    state = _word(shared.slot) & 0xff
    cdef bint killed = state in (OPEN, RETURNED) and _borrower_has_ended(shared)
    if killed:
        # The event of the ticket cannot be used: if the process has recorded it and ended before
        # the work was complete, the event never completes.
        stream.wait_for(shared.before)
    else:
        # The driver's event may have been recorded by the other process since; the engine's event
        # still stands for the record that `share` made.
        stream.wait_for(_for_stream(shared.event, stream))
    borrow(region, &access, OWN_WRITE)
    access.start, access.stop = shared.loan.start, shared.loan.stop
    prepare(&operation, ACCEPT, &access, 1, NULL, NULL)
    operation.request.returns = True
    operation.request.passive = True
    queue(&operation, stream, region)
    own_snapshot_drop(engine, &operation.request.issued)
    if state == RETURNED and not killed:
        _await_process(shared.event, stream, _word(shared.slot) >> 8,
                       _board.load(shared.slot * SLOT_BYTES + STARTED))
    return 0


cdef Event _for_stream(Event event, Stream stream):
    """Return an event for which a stream can wait instead of an event of several processes.

    NVIDIA's driver crashes if a stream waits for such an event of another device.
    """
    cdef Event ordinary
    if event.context.device == stream.context.device:
        return event
    ordinary = _event_behind(event)
    own_record_as(engine, &event.state.snapshot, &ordinary.state)
    return ordinary


@cython.final
cdef class ProcessWork(OtherWork):
    """Work of a process, which is known by its number and its start time."""

    cdef object number, start

    cdef bint has_ended(self) except -1:
        cdef int file
        try:
            file = _pidfd_of(self.number, self.start)
        except OSError:     # it is unknown whether the process has ended
            return False
        try:
            return _has_ended(file)
        finally:
            close_file(file)

    cdef object pid(self):
        return self.number


cdef OtherWork _await_process(Event event, Stream stream, object number, object start):
    """Note that the latest operation of a stream waits for an event of another process.

    Returns None if the event is complete.
    """
    cdef ProcessWork work
    if not is_unfinished(event):
        return None
    work = ProcessWork.__new__(ProcessWork)
    work.event, work.site = event, here()
    work.number, work.start = number, start
    await_other(work, stream.order)
    return work


def drop_idle_events(Context context not None):
    """Drop the events that later tickets could use again, made or opened by this process."""
    context.defaults.pop("shared events", None)
    context.defaults.pop("opened events", None)


def warm_up(Context context not None):
    """Make the internal stream that a context keeps for loans to other processes."""
    sharing_stream(context)


# ---- the borrower ----

@cython.final
@cython.no_gc_clear
cdef class Claim:
    """A claim to a ticket.

    When it dies, it tells the owner that this process can no longer use the memory and the event.
    """

    cdef Segment board
    cdef size_t slot
    cdef Segment segment    # the page-locked memory, until it is unregistered; else None
    cdef Event event
    cdef bint mapped
    cdef bint used      # whether `open` has returned the buffer
    cdef uint64_t pid

    def __dealloc__(self):
        if self.board is None or cudadrv_table.forked:
            return
        mine = self.pid << 8
        if not self.used:
            self.board.store(self.slot + STARTED, 0)    # the next process will store its start time
            self.board.swap(self.slot, OPEN | mine, OFFERED)
        elif not self.board.swap(self.slot, OPEN | mine, GONE | mine):
            self.board.swap(self.slot, RETURNED | mine, RETURNED_GONE | mine)


@cython.final
cdef class Owner:
    """Another process that has made tickets. The Owner is kept until the process ends, because most
    processes make more tickets.
    """

    cdef int pidfd
    cdef Segment board

    def __cinit__(self):
        self.pidfd = -1

    def __dealloc__(self):
        close_file(self.pidfd)


# A key is the owner's process number, its start time, and its file descriptor of the board.
cdef dict _owners = {}


cdef Owner _owner_of(Ticket ticket):
    """Return the owner of a ticket. Raises OwnershipError if it has ended."""
    cdef Owner owner = _owners.get(ticket.owner)
    if owner is None:
        _forget_owners()
        owner = Owner.__new__(Owner)
        owner.pidfd = _pidfd_of(ticket.pid, ticket.start)
    if _has_ended(owner.pidfd):
        raise OwnershipError(f"process {ticket.pid}, which has made the ticket, has ended")
    if owner.board is None:
        owner.board = open_segment(ticket.pid, ticket.file, BOARD, SLOTS * SLOT_BYTES)
        _owners[ticket.owner] = owner
    return owner


cdef int _forget_owners() except -1:
    """Drop the owners that have ended, and the events opened from them."""
    cdef Context context
    for key, owner in list(_owners.items()):
        if _has_ended((<Owner>owner).pidfd):
            _owners.pop(key, None)
            for context in contexts():
                context.defaults.get("opened events", {}).pop(key, None)
    return 0


cdef int await_owner(Opened opened, Stream stream) except -1:
    """Note that the latest operation of a stream waits for what the owner did before `share`."""
    opened.work = _await_process(opened.event, stream, opened.ticket.pid, opened.ticket.start)
    return 0


cdef int _keep_awaiting(Opened opened) except -1:
    """Let another event stand for the owner's work, because `give_back` records the ticket's event.
    """
    cdef OtherWork work = opened.work
    if work is None:
        return 0
    if is_unfinished(work.event):
        work.event = _event_behind(work.event)
    else:
        forget_other(work)
    return 0


cdef Event _event_behind(Event earlier):
    """Make an ordinary event that is complete when another event of its context is complete."""
    cdef Event event = new_event(earlier.context, CU_EVENT_DISABLE_TIMING)
    with nogil:
        earlier.context.check(_record_behind(earlier, event))
    return event


cdef CUresult _record_behind(Event earlier, Event event) noexcept nogil:
    """Record an event that is complete when another event of its context is complete."""
    cdef CUstream stream = NULL
    cdef CUcontext context = event.context.raw
    cdef CUresult status = in_cuStreamCreateWithPriority(
        context, &stream, CU_STREAM_NON_BLOCKING, 0)
    if status == CUDA_SUCCESS:
        status = in_cuStreamWaitEvent(context, stream, earlier.raw, 0)
        if status == CUDA_SUCCESS:
            status = in_cuEventRecord(context, event.raw, stream)
        in_cuStreamDestroy(context, stream)     # does not wait
    return status


@cython.final
@cython.no_gc_clear
cdef class Opened:
    """The owner of memory that another process has shared. When it dies, the memory is unmapped."""

    def __dealloc__(self):
        if self.claim is not None and (<Claim>self.claim).mapped and not cudadrv_table.forked:
            release_later(OPENED if (<Claim>self.claim).segment is None else REGISTERED,
                          self.base, NULL, self.context, self.claim)


cdef Opened open_ticket(Ticket ticket, Context context):
    """Claim a ticket and map its memory. Raises OwnershipError if it can no longer be opened."""
    cdef Opened opened = Opened.__new__(Opened)
    cdef Claim claim = Claim.__new__(Claim)
    cdef Owner owner
    if ticket.pid == getpid() and ticket.start == _own_start():
        raise OwnershipError(f"{ticket!r} was made by this process, and is for another one. Here,"
                             " buffer.accept() takes the buffer back")
    opened.ticket, opened.context = ticket, context
    opened.process = owner = _owner_of(ticket)
    opened.claim = claim
    claim.slot, claim.pid = ticket.slot * SLOT_BYTES, getpid()
    _claim(ticket, claim, owner.board)
    claim.event = opened.event = _opened_event(context, ticket)
    if ticket.on_host:
        _map_locked(opened, claim)
    else:
        _map_device(opened, claim)
    return opened


cdef int use_opened(Opened opened) noexcept:
    """Note that the program gets the buffer: from now on, the ticket cannot be opened again."""
    (<Claim>opened.claim).used = True
    return 0


cdef int _claim(Ticket ticket, Claim claim, Segment board) except -1:
    """Say on the owner's board that this process has opened the ticket, or raise."""
    cdef uint64_t start = _own_start()
    cdef uint64_t mine = OPEN | claim.pid << 8
    cdef size_t slot = claim.slot
    cdef bint claimed = False
    # The digest is compared before the swap, so that a wrong ticket does not disturb the one that
    # has the slot; and after it, because until then the owner can use the slot for another ticket.
    # After the swap, nothing allocates memory.
    cdef bint genuine = _has_digest_of(ticket, board, slot)
    if genuine:
        claimed = board.swap(slot, OFFERED, mine)
        genuine = _has_digest_of(ticket, board, slot)
    if not genuine:
        if claimed:
            board.swap(slot, mine, OFFERED)
        raise OwnershipError("the ticket is not valid: its owner has not made it in this form, or"
                             " its loan has ended")
    if claimed:
        board.store(slot + STARTED, start)
        claim.board = board
        return 0
    word = board.load(slot)
    if word & 0xff in (TAKEN_BACK, FREE):
        raise OwnershipError(f"process {ticket.pid} has taken the buffer back before the ticket was"
                             " opened")
    raise OwnershipError(f"the ticket was opened before, by process {word >> 8}. A ticket can be"
                         " opened once: buffer.share(stream) makes another one, when the buffer is"
                         " back")


cdef bint _has_digest_of(Ticket ticket, Segment board, size_t slot) noexcept:
    return board.load(slot + DIGEST) == ticket.digest[0] \
        and board.load(slot + DIGEST + 8) == ticket.digest[1]


cdef Event _opened_event(Context context, Ticket ticket):
    """Return the event of a ticket. The event is kept, because opening an event is slow, and the
    owner uses the event again for later tickets.

    The event stands for work of the owner, which the engine does not know. So in the engine it no
    longer stands for what this process has recorded for an earlier ticket.
    """
    cdef own_snapshot nothing
    memset(&nothing, 0, sizeof(nothing))
    owners = context.defaults.setdefault("opened events", {})
    events = owners.setdefault(ticket.owner, {})
    cdef Event event = events.get(ticket.event_number)
    if event is None:
        event = events[ticket.event_number] = open_event(context, ticket.event)
    own_record_as(engine, &nothing, &event.state)
    return event


cdef int _map_device(Opened opened, Claim claim) except -1:
    cdef CUipcMemHandle handle
    cdef CUdeviceptr base = 0
    cdef CUresult status
    memcpy(&handle, <char *>opened.ticket.memory, sizeof(handle))
    with nogil:
        status = in_cuIpcOpenMemHandle(
            opened.context.raw, &opened.base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        if status == CUDA_SUCCESS:
            claim.mapped = True
            status = in_cuMemGetAddressRange(
                opened.context.raw, &base, &opened.total, opened.base)
        opened.context.check(status)
    if base != opened.base or opened.ticket.offset + opened.ticket.nbytes > opened.total:
        raise OwnershipError(f"the ticket is for bytes {opened.ticket.offset} to"
                             f" {opened.ticket.offset + opened.ticket.nbytes} of an allocation of"
                             f" {opened.total} bytes")
    return 0


cdef int _map_locked(Opened opened, Claim claim) except -1:
    cdef CUresult status
    cdef void *address
    cdef size_t total = opened.ticket.total
    cdef Segment segment = open_segment(
        opened.ticket.pid, struct.unpack_from("<i", opened.ticket.memory)[0], LOCKED_SEGMENT, total)
    claim.segment = segment
    address = segment.address
    opened.base, opened.total = <size_t>address, total
    with nogil:
        status = in_cuMemHostRegister(
            opened.context.raw, address, total,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
        opened.context.check(status)
    claim.mapped = True
    return 0


cdef bint is_opened(Memory memory) noexcept:
    """Whether the memory was opened by a ticket."""
    return isinstance(memory.owner, Opened)


cdef Receipt return_opened(Region region, Stream stream):
    """Do what `Buffer.give_back` does for a buffer of another process."""
    cdef Memory memory = region.memory
    cdef Opened opened = memory.owner
    cdef Claim claim = opened.claim
    cdef own_memory *closed
    cdef bint is_gone = False
    if stream.context is not opened.context:
        raise ValueError(f"{region.describe()} was opened in {opened.context!r}, and {stream!r}"
                         f" belongs to {stream.context!r}")
    if stream.capture is not NULL:
        stream.refuse_captured()
    if _has_ended((<Owner>opened.process).pidfd):
        raise BufferClosedError(
            f"{region.describe()} cannot be given back: its owner, process {opened.ticket.pid},"
            " has ended. Drop the buffer; its contents are not safe any more")
    receipt = Receipt(RECEIPT.pack(
        RECEIPT_MAGIC, opened.ticket.pid, opened.ticket.slot, opened.ticket.number))
    closed = closed_state(memory)
    try:
        note_write(region, stream, GIVE_BACK, OWN_WAIT)
        is_gone = True
        _keep_awaiting(opened)
        stream.record_event(opened.event)
    except BaseException:
        if is_gone:     # the owner has not been told: keep the buffer, so that it can be given back
            stay_home(memory)
        own_memory_end(closed)
        raise
    mine = claim.pid << 8
    claim.board.swap(claim.slot, OPEN | mine, RETURNED | mine)
    leave_home(memory, closed)
    drain(False)
    return receipt
