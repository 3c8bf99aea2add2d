"""Memory: one allocation. Buffers and their parts share it; it goes when the last of them does."""

from collections import Counter
from typing import NamedTuple

cimport cython
from libc.stdlib cimport calloc

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CU_MEM_ATTACH_GLOBAL, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUresult, CUstream,
    bind_driver, cudadrv_table, cuMemAlloc, cuMemAllocAsync, cuMemAllocManaged, cuMemFreeAsync,
    cuMemHostAlloc, last_failure,
)
from cudadrv._errors cimport refuse_if_forked
from cudadrv._operation cimport REFUSED, Operation, issue, prepare
from cudadrv._operation_names cimport ALLOCATION, RELEASE
from cudadrv._ownership cimport (
    OWN_MEMORY_CLOSED, OWN_OK, OWN_STRICT, OWN_WAIT, OWN_WRITE, engine, own_access, own_conflict,
    own_memory, own_memory_free, own_memory_prepare, own_snapshot_drop,
)
from cudadrv._refusal cimport refuse_close, refuse_operation
from cudadrv._release cimport (
    CODE, DEVICE, FOREIGN, LOCKED, STREAM_ORDERED, UNIFIED, MemoryKind, drain,
    drain_for_more, free_memory, internal_stream, is_to_be_freed, release_later,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream

from cudadrv._errors import BufferBorrowedError, CudaOutOfMemoryError

bind_driver(&cudadrv_table)

cdef tuple KINDS = ("device", "stream-ordered", "page-locked", "managed", "foreign")
cdef enum:
    MOST_LINES = 20  # of a report
cdef void *_newest = NULL  # head of the list of live memory


@cython.final
@cython.no_gc_clear
cdef class Memory:
    """One allocation: internal to the buffers."""

    def __dealloc__(self):
        if self.state is not NULL:
            _unlist(self)
            release_later(self.kind, self.address, self.state, self.context, self.owner)

    cdef int close(self, Stream stream, int policy) except -1:
        """Free it now, or raise, and then nothing has changed. May block, as the driver does."""
        refuse_if_forked()
        if stream is not None and self.kind != STREAM_ORDERED:
            raise ValueError(f"{self.label} is not stream-ordered memory: close() takes no stream")
        if self.kind == STREAM_ORDERED and self.address != 0 and not self.context.lost:
            return _close_on(self, stream, policy)
        if self.state.closed:  # by another thread, since the caller looked
            return 0
        _end(self, "close", True)
        if self.address != 0 and self.kind != FOREIGN and not self.context.lost:
            _free_now(self)
        _let_go(self)
        self.closed_at = here()
        return 0

    cdef int give_away(self) except -1:
        """Close it without freeing it, or raise."""
        self.context.usable()
        if self.kind == FOREIGN:
            raise ValueError(f"{self.label} only borrows its memory (from_address), so it cannot"
                             " give it away; its owner can")
        _end(self, "give away", False)
        if self.regions > 1:
            raise BufferBorrowedError(
                f"cannot give away {self.label}:\n"
                f"  parts of it are alive ({self.regions - 1}), which could still use its memory.\n"
                "  Release it: drop the last reference to each of them.")
        _end(self, "give away", True)
        _let_go(self)
        return 0


cdef int _end(Memory memory, str verb, bint close) except -1:
    """Refuse if somebody uses it, else mark it as closed."""
    cdef own_conflict conflict
    answer = own_memory_free(engine, memory.state, close, &conflict)
    if answer != OWN_OK:
        refuse_close(answer, &conflict, verb, memory.label)
    return 0


cdef int _free_now(Memory memory) except -1:
    """Free memory that is marked as closed. If the driver fails, it is open again."""
    cdef CUdeviceptr address = memory.address
    cdef MemoryKind kind = memory.kind
    cdef CUresult status
    cdef bint pushed = False
    with nogil:
        status = enter_context(memory.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = free_memory(kind, address)
            leave_context(pushed)
    if status != CUDA_SUCCESS:
        memory.state.closed = False
        memory.context.raise_failure(status)
    return 0


cdef int _let_go(Memory memory) except -1:
    """The memory is no longer ours."""
    _unlist(memory)
    memory.address = 0
    memory.owner = None
    return 0


cdef int close_module(Memory code, list variables) except -1:
    """Unload a module and close the memory of its variables, or raise, and nothing has changed."""
    cdef Memory memory
    ended = []
    try:
        for memory in variables:
            _end(memory, "close", True)
            ended.append(memory)
        code.close(None, OWN_STRICT)
    except BaseException:
        for memory in ended:
            memory.state.closed = False
        raise
    for memory in ended:
        memory.closed_at = code.closed_at
        _let_go(memory)
    return 0


cdef Memory allocate_memory(
    MemoryKind kind, Context context, size_t nbytes, unsigned int flags, Stream stream, str label
):
    """Allocate, after giving back what has died; without bytes, no driver call is made."""
    cdef Memory memory = _new_memory(kind, context, nbytes, label)
    cdef CUresult status
    memory.stream = stream
    context.usable()
    drain_for_more()
    if nbytes == 0:
        return memory
    status = _call(memory, flags)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        drain(True)
        status = _call(memory, flags)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        raise CudaOutOfMemoryError(
            <int>status, last_failure().decode(),
            f"{nbytes} bytes were asked for {label}. {memory_report()}")
    context.check(status)
    _list(memory)
    return memory


cdef Memory adopt_memory(
    MemoryKind kind, Context context, CUdeviceptr address, size_t nbytes, object owner, str label
):
    """Memory that somebody else allocated; to free it as well, nobody else may have it here."""
    cdef Memory memory = _new_memory(kind, context, nbytes, label)
    cdef Memory other = None if kind == FOREIGN else _owner_of(address, nbytes)
    if other is not None:
        raise ValueError(f"{address:#x} lies in a live {other.label}, made at"
                         f" {place(other.site)}, which owns and frees it. Take it from there"
                         " with into_raw() first, or borrow it with from_address()")
    if kind != FOREIGN and is_to_be_freed(address, nbytes):
        raise ValueError(f"{address:#x} lies in memory of a buffer that has died, and will be freed"
                         " when its work is complete. To keep it, take it with into_raw() in time")
    memory.address = address
    memory.owner = owner
    _list(memory)
    return memory


cdef Memory code_memory(Context context, CUdeviceptr module, str label):
    """What the books know of a module: its launches share it, and it is unloaded after them."""
    cdef Memory memory = _new_memory(CODE, context, 1, label)
    memory.address = module
    return memory


cdef Memory _owner_of(CUdeviceptr address, size_t nbytes):
    """The live memory that owns some of these bytes. Lets no other thread in."""
    cdef void *each = _newest
    cdef Memory memory
    while nbytes and each is not NULL:
        memory = <Memory>each
        if memory.kind != FOREIGN and memory.address < address + nbytes \
                and address < memory.address + memory.nbytes:
            return memory
        each = memory.older
    return None


cdef Memory _new_memory(MemoryKind kind, Context context, size_t nbytes, str label):
    cdef Memory memory = Memory.__new__(Memory)
    memory.context = context
    memory.kind = kind
    memory.nbytes = nbytes
    memory.label = label
    memory.site = here()
    memory.state = <own_memory *>calloc(1, sizeof(own_memory))
    if memory.state is NULL:
        raise MemoryError()
    own_memory_prepare(memory.state, nbytes)
    memory.state.managed = kind == UNIFIED
    return memory


cdef CUresult _call(Memory memory, unsigned int flags) except *:
    cdef CUresult status
    cdef bint pushed = False
    if memory.kind == STREAM_ORDERED:
        return _allocate_on(memory)
    with nogil:
        status = enter_context(memory.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            if memory.kind == DEVICE:
                status = cuMemAlloc(&memory.address, memory.nbytes)
            elif memory.kind == LOCKED:
                status = cuMemHostAlloc(<void **>&memory.address, memory.nbytes, flags)
            else:
                status = cuMemAllocManaged(
                    &memory.address, memory.nbytes, CU_MEM_ATTACH_GLOBAL)
            leave_context(pushed)
    return status


# ---- stream-ordered memory: allocating and freeing it are writes on a stream ----

cdef struct StreamOrdered:
    CUdeviceptr address
    own_memory *state


cdef CUresult _allocate_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef StreamOrdered *memory = <StreamOrdered *>arguments
    return cuMemAllocAsync(&memory.address, memory.state.nbytes, stream)


cdef CUresult _free_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef StreamOrdered *memory = <StreamOrdered *>arguments
    return cuMemFreeAsync(memory.address, stream)


cdef void borrow_all(Memory memory, own_access *access, int mode, int policy) noexcept:
    """Fill in the access of an operation that uses all of it."""
    access.memory = memory.state
    access.start = 0
    access.stop = memory.nbytes
    access.mode = mode
    access.policy = policy
    access.closes = False


cdef int _write_on(
    Memory memory, Stream stream, int name, int policy, StreamOrdered *ordered, bint free
) except? -1:
    """Issue the call as a write of the whole memory: 0, or no memory, or that it is closed."""
    cdef Operation operation
    cdef own_access access
    borrow_all(memory, &access, OWN_WRITE, policy)
    access.closes = free
    prepare(&operation, name, &access, 1, _free_call if free else _allocate_call, ordered)
    reason = issue(&operation, stream)
    if reason == 0:
        own_snapshot_drop(engine, &operation.request.issued)
    elif free and reason == REFUSED - OWN_MEMORY_CLOSED:
        return reason  # another thread frees it, since the caller looked
    elif free or reason != CUDA_ERROR_OUT_OF_MEMORY:
        refuse_operation(&operation, reason, stream, (memory.label,))
    return reason


cdef CUresult _allocate_on(Memory memory) except *:
    cdef StreamOrdered ordered = StreamOrdered(0, memory.state)
    status = _write_on(memory, memory.stream, ALLOCATION, OWN_STRICT, &ordered, False)
    memory.address = ordered.address
    return <CUresult>status


cdef int _close_on(Memory memory, Stream stream, int policy) except -1:
    """A policy may wait for the memory's users, and never ignores them."""
    cdef StreamOrdered ordered = StreamOrdered(memory.address, memory.state)
    if stream is None:
        stream = memory.stream
        if stream.closed:  # then the host must know that its users are done
            stream = internal_stream(memory.context)
    elif stream.context is not memory.context:
        raise ValueError(f"{stream!r} is not a stream of the context of {memory.label}")
    if _write_on(memory, stream, RELEASE, OWN_WAIT if policy == OWN_WAIT else OWN_STRICT, &ordered,
                 True) == 0:
        memory.closed_at = here()
        _let_go(memory)
    return 0


# ---- what is alive ----

class LiveBuffer(NamedTuple):
    """A buffer whose memory is allocated: see `live_buffers`."""

    kind: str
    label: str
    nbytes: int
    device: int
    site: str


cdef void _list(Memory memory) noexcept:
    global _newest
    memory.older = _newest
    if _newest is not NULL:
        (<Memory>_newest).newer = <void *>memory
    _newest = <void *>memory


cdef void _unlist(Memory memory) noexcept:
    global _newest
    if memory.newer is NULL and memory.older is NULL and _newest is not <void *>memory:
        return
    if memory.newer is not NULL:
        (<Memory>memory.newer).older = memory.older
    else:
        _newest = memory.older
    if memory.older is not NULL:
        (<Memory>memory.older).newer = memory.newer
    memory.newer = memory.older = NULL


def live_buffers():
    """List the buffers that hold memory, newest first.

    Returns
    -------
    list of LiveBuffer
        ``kind`` of memory, ``label`` (class and name), ``nbytes``, ``device`` ordinal, and
        ``site``: the line that made it. Parts of a buffer are not listed.
    """
    return [_live_buffer(memory) for memory in _live_memory()]


cdef object _live_buffer(Memory memory):
    return LiveBuffer(KINDS[memory.kind], memory.label, memory.nbytes,
                      memory.context.device.ordinal, place(memory.site))


cdef list _live_memory():
    """All of it. Other threads change the list, so nothing that lets them in happens meanwhile."""
    cdef list found = []
    cdef void *each = _newest
    while each is not NULL:
        found.append(<Memory>each)
        each = (<Memory>each).older
    return found


def memory_report():
    """Say in text which lines hold how much memory, the largest first."""
    count, nbytes = Counter(), Counter()
    for buffer in live_buffers():
        what = f"{buffer.kind}, made at {buffer.site}"
        count[what] += 1
        nbytes[what] += buffer.nbytes
    if not count:
        return "No buffer of this process is alive."
    shown = nbytes.most_common(MOST_LINES)
    lines = [f"  {size} bytes in {count[what]} {what}" for what, size in shown]
    if len(nbytes) > len(shown):
        rest = sum(nbytes.values()) - sum(dict(shown).values())
        lines.append(f"  {rest} bytes made at {len(nbytes) - len(shown)} other lines")
    return f"Live buffers hold {sum(nbytes.values())} bytes:\n" + "\n".join(lines)
