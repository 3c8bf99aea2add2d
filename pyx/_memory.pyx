"""Memory: one allocation. Buffers and their parts share it; it goes when the last of them does."""

from collections import Counter
from typing import NamedTuple

cimport cython
from libc.stdlib cimport calloc, free

from cudadrv._cache cimport Cache, cached_bytes
from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport CUDA_SUCCESS, CUdeviceptr, CUresult, bind_driver, cudadrv_table
from cudadrv._errors cimport refuse_if_forked
from cudadrv._ownership cimport (
    OWN_NON_BLOCKING, OWN_OK, OWN_STRICT, engine, own_conflict, own_memory, own_memory_free,
    own_memory_prepare,
)
from cudadrv._refusal cimport refuse_close
from cudadrv._release cimport (
    CODE, FOREIGN, STREAM_ORDERED, MemoryKind, free_memory, internal_stream, release_later,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream
from cudadrv._stream_ordered cimport StreamOrdered, free_on

from cudadrv._errors import BufferBorrowedError

bind_driver(&cudadrv_table)

cdef tuple KINDS = ("device", "stream-ordered", "page-locked", "managed", "foreign")
cdef enum:
    MOST_LINES = 20  # of a report
cdef void *_newest = NULL  # head of the list of live memory


@cython.final
@cython.freelist(64)
@cython.no_gc_clear
cdef class Memory:
    """One allocation: internal to the buffers."""

    def __dealloc__(self):
        if self.state is NULL:
            return
        _unlist(self)
        if self.block is not NULL:
            _hand_back(self, self.state)
        else:
            release_later(self.kind, self.address, self.state, self.context, self.owner)

    cdef int close(self, Stream stream, int policy) except -1:
        """Give it back now, or raise, and then nothing has changed. May block if it is not pooled.
        """
        cdef own_memory *after
        refuse_if_forked()
        if stream is not None and self.kind != STREAM_ORDERED:
            raise ValueError(f"{self.label} is not stream-ordered memory: close() takes no stream")
        if self.kind == STREAM_ORDERED and self.address != 0 and not self.context.lost:
            return _close_on(self, stream, policy)
        if self.state.closed:  # by another thread, since the caller looked
            return 0
        after = _state_after(self)
        try:
            _end(self, "close", True)
        except BaseException:
            free(after)
            raise
        if after is not NULL:
            _hand_back(self, after)
        elif self.address != 0 and self.kind != FOREIGN and not self.context.lost:
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
        _leave_cache(self)
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


cdef int close_module(Memory code, list variables) except -1:
    """Unload a module and close the memory of its variables, or raise, and nothing has changed."""
    cdef Memory memory
    ended = []
    _end(code, "close", False)  # first: launches use the variables, too
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


cdef Memory code_memory(Context context, str label):
    """What the books know of a module: its launches share it, and it is unloaded after them.

    Its address is to be the CUmodule.
    """
    cdef Memory memory = Memory.__new__(Memory)
    memory.context = context
    memory.kind = CODE
    memory.nbytes = 1
    memory.label = label
    memory.site = here()
    memory.state = new_state(1)
    return memory


cdef Memory variable_memory(
    Context context, CUdeviceptr address, size_t nbytes, Memory code, str label
):
    """What the books know of a variable of a module. It is no live buffer until `show_memory`."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.context = context
    memory.kind = FOREIGN
    memory.nbytes = nbytes
    memory.label = label
    memory.state = new_state(nbytes)
    memory.address = address
    memory.owner = code
    return memory


cdef int _close_on(Memory memory, Stream stream, int policy) except -1:
    """Free stream-ordered memory behind the work of a stream."""
    cdef StreamOrdered ordered
    cdef int reason
    if stream is None:
        stream = memory.stream
        if stream.closed:  # then the host must know that its users are done
            stream = internal_stream(memory.context)
    elif stream.context is not memory.context:
        raise ValueError(f"{stream!r} is not a stream of the context of {memory.label}")
    ordered = StreamOrdered(memory.address, memory.nbytes, memory.state, False, NULL)
    if stream.order.order == OWN_NON_BLOCKING:
        ordered.after = _state_after(memory)
        ordered.cached = ordered.after is not NULL
    reason = -1
    try:
        reason = free_on(&ordered, stream, policy, memory.label)
    finally:
        if reason != 0:
            free(ordered.after)
    if reason == 0:
        if ordered.cached:
            _hand_back(memory, ordered.after)
        else:
            _leave_cache(memory)
        memory.closed_at = here()
        _let_go(memory)
    return 0


cdef own_memory *new_state(size_t nbytes) except NULL:
    cdef own_memory *state = <own_memory *>calloc(1, sizeof(own_memory))
    if state is NULL:
        raise MemoryError()
    own_memory_prepare(state, nbytes)
    return state


cdef own_memory *_state_after(Memory memory) except? NULL:
    """What its block will have instead of its state, which stays with the closed memory."""
    return NULL if memory.block is NULL else new_state(memory.block.nbytes)


cdef void _hand_back(Memory memory, own_memory *state) noexcept:
    """Its block goes back to the cache, with a state that says who may still use it."""
    cdef Block *block = memory.block
    memory.block = NULL
    block.state = state
    (<Cache>block.cache).put(block, memory.context)


cdef void _leave_cache(Memory memory) noexcept:
    """Its memory will be freed elsewhere."""
    if memory.block is not NULL:
        (<Cache>memory.block.cache).forget(memory.block)
        memory.block = NULL


cdef int _let_go(Memory memory) except -1:
    """The memory is no longer ours."""
    _unlist(memory)
    memory.address = 0
    memory.owner = None
    return 0


# ---- what is alive ----

class LiveBuffer(NamedTuple):
    """A buffer whose memory is allocated: see `live_buffers`.

    ``kind`` is its class, ``label`` its name in messages, ``nbytes`` the size of the memory,
    ``device`` the ordinal of the device, and ``site`` the line that allocated it.
    """

    kind: str
    label: str
    nbytes: int
    device: int
    site: str


cdef void list_memory(Memory memory) noexcept:
    global _newest
    memory.older = _newest
    if _newest is not NULL:
        (<Memory>_newest).newer = <void *>memory
    _newest = <void *>memory


cdef void show_memory(Memory memory) noexcept:
    """List memory, made by the user's current line, unless it is listed."""
    if not _is_listed(memory):
        memory.site = here()
        list_memory(memory)


cdef bint _is_listed(Memory memory) noexcept:
    return memory.newer is not NULL or memory.older is not NULL or _newest is <void *>memory


cdef void _unlist(Memory memory) noexcept:
    global _newest
    if not _is_listed(memory):
        return
    if memory.newer is not NULL:
        (<Memory>memory.newer).older = memory.older
    else:
        _newest = memory.older
    if memory.older is not NULL:
        (<Memory>memory.older).newer = memory.newer
    memory.newer = memory.older = NULL


cdef Memory owner_of(CUdeviceptr address, size_t nbytes):
    """The live memory that owns some of these bytes. Lets no other thread in."""
    cdef void *each = _newest
    cdef Memory memory
    cdef size_t size
    while nbytes and each is not NULL:
        memory = <Memory>each
        size = memory.nbytes if memory.block is NULL else memory.block.nbytes
        if memory.kind != FOREIGN and memory.address < address + nbytes \
                and address < memory.address + size:
            return memory
        each = memory.older
    return None


cdef str label_at(CUdeviceptr address):
    """What the live memory that an address lies in was made for, or None."""
    cdef void *each = _newest
    cdef Memory memory
    while each is not NULL:
        memory = <Memory>each
        if memory.address <= address < memory.address + memory.nbytes:
            return memory.label
        each = memory.older
    return None


def live_buffers():
    """List the buffers that hold memory, newest first.

    Returns
    -------
    list of LiveBuffer
        ``kind`` of memory, ``label`` (class and name), ``nbytes``, ``device`` ordinal, and
        ``site``: the line that made it. Parts of a buffer are not listed.
    """
    found = []
    for memory in _live_memory():
        found.append(_live_buffer(memory))
    return found


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
    cached = cached_bytes()
    pools = f"\nPools keep {cached} bytes for new buffers." if cached else ""
    if not count:
        return f"No buffer of this process is alive.{pools}"
    shown = nbytes.most_common(MOST_LINES)
    lines = []
    for what, size in shown:
        lines.append(f"  {size} bytes in {count[what]} {what}")
    if len(nbytes) > len(shown):
        rest = sum(nbytes.values()) - sum(dict(shown).values())
        lines.append(f"  {rest} bytes made at {len(nbytes) - len(shown)} other lines")
    return f"Live buffers hold {sum(nbytes.values())} bytes:\n" + "\n".join(lines) + pools
