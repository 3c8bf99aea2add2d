"""Memory: one allocation, which a buffer and its parts share. Allocates, lists and closes it.

State that outlives a call: the list of live allocations, the names of those that were closed last,
and the homes of other libraries' allocations (the GIL guards all of them).
"""

from collections import Counter

cimport cython
from cpython.ref cimport PyObject, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from cudadrv._device cimport Context, attend, is_usable
from cudadrv._driver cimport (
    CUDADRV_GUARDS, CUDADRV_TRACES, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS,
    CU_MEMHOSTALLOC_WRITECOMBINED,
    CUdeviceptr, CUresult, CUstream, cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync,
    cudadrv_table, last_failure, unlikely,
)
from cudadrv._operation cimport REFUSED, Operation, borrow_all, driver_call, issue, prepare
from cudadrv._names cimport ALLOCATION, RELEASE
from cudadrv._engine cimport (
    OWN_CLOSES, OWN_HELD, OWN_MEMORY_CLOSED, OWN_NON_BLOCKING, OWN_OK, OWN_STAYS, OWN_STRICT,
    OWN_WAIT, OWN_WRITE, engine, own_access, own_bytes_leave, own_conflict, own_memory,
    own_memory_end, own_memory_forget, own_memory_free, own_memory_prepare, own_memory_prepare_used,
    own_memory_renew, own_memory_return, own_memory_reusable, own_snapshot_drop,
)
from cudadrv._errors cimport report_text
from cudadrv._guard cimport (
    OWN_PAGES, forget_pages, guard_memory, guards, leave_memory, watch_managed, whole_pages,
)
from cudadrv._memory_kinds cimport CODE, FOREIGN, STREAM_ORDERED, MemoryKind, REGISTERED
from cudadrv._pool cimport (
    Block, Cache, PoolHandle, cache_of, cached_bytes, make_room, trim_caches,
)
from cudadrv._refusal cimport refuse_close, refuse_operation
from cudadrv._release cimport (
    Kept, drain, drain_for_more, internal_stream, release_later, release_part, wait_to_free,
)
from cudadrv._segment cimport Segment, new_segment
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream, check_stream
from cudadrv._trace cimport trace_calls
from cudadrv._virtual cimport Span, drop_span, free_span

from cudadrv._errors import BufferBorrowedError, CudaOutOfMemoryError, OwnershipError


# ---- stream-ordered memory ----
#
# Allocating and freeing such memory are writes on a stream, even if a cache provides or takes the
# memory without a driver call. So work on other streams has to be ordered after the allocation, and
# thereby after the work that the stream had waited for. Only non-blocking streams use a cache: on
# the others the driver call itself orders streams, by the rules of the default streams, so it
# cannot be skipped.

cdef CUresult _allocate_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef StreamOrdered *memory = <StreamOrdered *>arguments
    if memory.pool is not NULL:
        return cuMemAllocFromPoolAsync(&memory.address, memory.nbytes, memory.pool, stream)
    return cuMemAllocAsync(&memory.address, memory.nbytes, stream)


cdef CUresult _free_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef StreamOrdered *memory = <StreamOrdered *>arguments
    return cuMemFreeAsync(memory.address, stream)


cdef int allocate_on(StreamOrdered *memory, Stream stream, str label) except? -1:
    """Issue an allocation, without a driver call if it is `cached`.

    Returns 0, or CUDA_ERROR_OUT_OF_MEMORY from the driver. Raises for other failures.
    """
    return _write_on(memory, stream, ALLOCATION, OWN_STRICT, label, _allocate_call)


cdef int free_on(StreamOrdered *memory, Stream stream, int policy, str label) except? -1:
    """Issue a free, without a driver call if it is `cached`.

    Returns 0, or REFUSED - OWN_MEMORY_CLOSED if another thread closed the memory. The policy
    "unchecked" counts as "strict" here.
    """
    return _write_on(memory, stream, RELEASE, OWN_WAIT if policy == OWN_WAIT else OWN_STRICT, label,
                     _free_call)


cdef int _write_on(
    StreamOrdered *memory, Stream stream, int name, int policy, str label, driver_call call
) except? -1:
    """Issue the call as a write of the whole memory. `cached` memory needs no call."""
    cdef Operation operation
    cdef own_access access
    borrow_all(memory.state, &access, OWN_WRITE, policy)
    access.effect = OWN_CLOSES if name == RELEASE else OWN_STAYS
    if memory.cached:
        call = NULL
    prepare(&operation, name, &access, 1, call, memory)
    operation.request.passive = True
    reason = issue(&operation, stream, NULL, False)
    if reason == 0:
        if memory.after is not NULL:
            own_memory_prepare_used(memory.after, memory.nbytes, &operation.request)
        own_snapshot_drop(engine, &operation.request.issued)
    elif name == RELEASE and reason == REFUSED - OWN_MEMORY_CLOSED:
        return reason  # another thread closed the memory after the caller's check
    elif name == RELEASE or memory.cached or reason != CUDA_ERROR_OUT_OF_MEMORY:
        refuse_operation(&operation, reason, stream, (label,))
    return reason


# ---- one allocation ----

cdef enum:
    MOST_LINES = 20  # lines of a memory report
cdef void *_newest = NULL  # head of the list of live memory


@cython.final
@cython.no_gc_clear
cdef class Home:
    """Further attributes of a Memory that stands for a whole allocation of another library."""


@cython.final
@cython.freelist(64)
@cython.no_gc_clear
cdef class Memory:
    """One allocation. Internal to buffers."""

    def __dealloc__(self):
        if self.state is NULL:
            _leave_pool(self)
            return
        _keep_name(self, 0)
        unlist_memory(self)
        if self.left is not None and not cudadrv_table.forked:
            own_memory_return(engine, self.left.state)
        if self.pool is not None:
            self.owner = self.pool  # keeps the pool alive until the memory is freed
            _leave_pool(self)
        if self.whole is not None:
            _forget_home(self)
        if self.home is not None:
            self.home.members -= 1
            release_part(self.home, self.state, self.start, self.start + self.nbytes, self.context,
                         self.owner)
        elif self.block is not NULL:
            _forget_allocation(self)
            _hand_back(self, self.state)
        elif span_of(self) is not NULL:
            release_later(self.kind, <CUdeviceptr><size_t>span_of(self), self.state, self.context,
                          None)
        else:
            release_later(self.kind, self.address, self.state, self.context, self.owner)

    cdef int close(self, Stream stream, int policy) except -1:
        """Release the memory, or raise and change nothing. May block if it is not pooled."""
        cdef own_memory *after
        attend()
        if stream is not None and not self.kind.ordered:
            raise ValueError(f"{self.label} is not stream-ordered memory: close() takes no stream")
        if self.kind.ordered and self.address != 0 and not self.context.lost:
            return _close_on(self, stream, policy)
        if self.growth is not None:
            return _close_growing(self)
        if self.state.closed:  # another thread may have closed the memory after the caller's check
            return 0
        if self.home is not None:
            return _close_in_home(self)
        now = self.block is not NULL or _wait_to_free(self)
        if self.state.closed:  # another thread has closed it during the wait
            return 0
        after = _state_after(self)
        _forget_allocation(self)
        try:
            _end(self, "close", True)
        except BaseException:
            free(after)
            raise
        if after is not NULL:
            _hand_back(self, after)
        elif self.address != 0 and not self.kind.borrowed and not self.context.lost:
            if now:
                _free_now(self)
            else:
                release_later(self.kind, self.address, NULL, self.context, self.owner)
        return _let_go_at(self, here())

    cdef int give_away(self) except -1:
        """Close the memory without freeing it, or raise and change nothing."""
        self.context.usable()
        if self.pool is not None:
            raise ValueError(f"{self.label} has memory of a DriverPool, which it cannot give away")
        if self.kind.not_given is not NULL:
            raise ValueError(f"{self.label} {<str>self.kind.not_given}")
        _end(self, "give away", False)
        if self.kind.mappable or self.kind.shared and (<Kept>self.owner).in_use():
            raise ValueError(f"{self.label} has memory that other processes may have mapped, so it"
                             " cannot give it away")
        if self.regions > 1:
            raise BufferBorrowedError(
                f"cannot give away {self.label}:\n"
                f"  parts of it are alive ({self.regions - 1}), which could still use its memory.\n"
                "  Release it: drop the last reference to each of them.")
        _end(self, "give away", True)
        leave_cache(self)
        _let_go(self)
        return 0


cdef int _end(Memory memory, str verb, bint close) except -1:
    """Raise if the memory is in use; otherwise mark it as closed if `close` is true."""
    cdef own_conflict conflict
    answer = own_memory_free(engine, memory.state, close, &conflict)
    if answer == OWN_HELD and memory.context.lost:  # no graph can be launched in a lost context
        memory.state.closed = memory.state.closed or close
    elif answer != OWN_OK:
        refuse_close(answer, &conflict, verb, memory.label)
    return 0


cdef int _close_in_home(Memory memory) except -1:
    """Close foreign memory that shares the state of its home, or raise and change nothing."""
    cdef own_access access
    cdef own_conflict conflict
    cdef own_memory *closed = closed_state(memory)
    access.memory, access.gone = memory.state, &memory.gone
    access.start, access.stop = memory.start, memory.start + memory.nbytes
    access.boxed = False
    answer = own_bytes_leave(engine, &access, memory.context.lost, &conflict)
    if answer == OWN_OK:
        return leave_home(memory, closed)
    own_memory_end(closed)
    if answer != OWN_MEMORY_CLOSED:     # if so, another thread has closed the memory meanwhile
        refuse_close(answer, &conflict, "close", memory.label)
    return 0


cdef own_memory *closed_state(Memory memory) except NULL:
    """Make the state that foreign memory gets when it leaves its home."""
    cdef own_memory *closed = new_state(memory.nbytes)
    closed.closed = True
    return closed


cdef int leave_home(Memory memory, own_memory *closed) except -1:
    """Close foreign memory that the engine counts as `gone` from its home.

    `closed` is what `closed_state` has made.
    """
    memory.state = closed
    memory.home.members -= 1
    memory.left, memory.home = memory.home, None
    return _let_go_at(memory, here())


cdef void stay_home(Memory memory) noexcept:
    """Open memory again that the engine counts as `gone`."""
    memory.gone = False
    own_memory_return(engine, memory.state)


# The homes of memory that cudadrv did not allocate: addresses of Memory objects, by the address of
# the first byte of the allocation.
cdef dict homes = {}


cdef void _forget_home(Memory home) noexcept:
    # This must not fail, or the address of a dead object would stay. So it allocates nothing.
    if <size_t>homes.get(home.whole.key, 0) == <size_t><void *>home:
        del homes[home.whole.key]


cdef bint _wait_to_free(Memory memory) except -1:
    """Wait until freeing the memory cannot block, or raise if it is in use.

    Returns False if the memory has to go to the queue: other processes may have it mapped, the wait
    would never end, or no program waits for such memory.
    """
    if memory.kind.shared or memory.kind.later:
        return False
    if memory.address == 0 or memory.kind.borrowed or memory.context.lost:
        return True
    _end(memory, "close", False)
    return wait_to_free(memory.context, memory.kind)


cdef int _free_now(Memory memory) except -1:
    """Free memory that is marked as closed. If the driver fails, open it again, and raise."""
    cdef CUdeviceptr address = memory.address
    cdef MemoryKind kind = memory.kind
    cdef CUresult status
    with nogil:
        status = kind.free(memory.context.raw, address, NULL)
    if status != CUDA_SUCCESS:
        memory.state.closed = False
        memory.context.raise_failure(status)
    return 0


# ---- memory that grows ----

cdef int _close_growing(Memory memory) except -1:
    """Close memory that grows, or raise and change nothing. May block.

    If the driver fails after some of the memory is unmapped, the memory is closed, and the rest of
    the span goes to the queue.
    """
    cdef CUresult status = CUDA_SUCCESS
    cdef bint now = True
    memory.growth.begin("close", memory.label)
    try:
        if not memory.state.closed:  # another thread may have closed it meanwhile
            if not memory.context.lost:
                _end(memory, "close", False)
                now = wait_to_free(memory.context, memory.kind)
            status = _close_span(memory, now)
    finally:
        memory.growth.end()
    return memory.context.check(status)


cdef CUresult _close_span(Memory memory, bint now) except *:
    """Close open memory whose lock this thread has. Returns the driver's status, an error if the
    memory was closed although the driver failed. Unless it is to be freed `now`, the span goes to
    the queue.
    """
    cdef CUresult status = CUDA_SUCCESS
    cdef Span *span = memory.growth.span
    cdef size_t mapped = span.mapped
    _end(memory, "close", True)
    if now and not memory.context.lost:
        with nogil:
            status = free_span(span, False)
    if status != CUDA_SUCCESS and span.mapped == mapped and mapped:
        memory.state.closed = False
        memory.context.raise_failure(status)
    memory.growth.span = NULL
    if now and status == CUDA_SUCCESS:
        drop_span(span)
    else:
        release_later(memory.kind, <CUdeviceptr><size_t>span, NULL, memory.context, None)
    _let_go_at(memory, here())
    return status


cdef int close_module(Memory code, list variables) except -1:
    """Unload a module and close the memory of its variables, or raise and change nothing."""
    cdef Memory memory
    attend()
    ended = []
    # Launches use the code and variables. The code is checked first, so that a refusal names it.
    _end(code, "close", False)
    for memory in variables:
        _end(memory, "close", False)
    _wait_to_free(code)     # before anything is marked as closed
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
        _let_go_at(memory, code.closed_at)
    return 0


cdef Memory code_memory(Context context, str label):
    """Make the Memory that stands for a module's code, so that launches can borrow the code.

    The caller sets its address to the CUmodule.
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
    """Make the Memory of a module's variable. `live_buffers` lists it only after `show_memory`."""
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
    """Free stream-ordered memory after the work of a stream."""
    cdef StreamOrdered ordered
    cdef int reason
    if stream is None:
        stream = memory.stream
        if stream.closed:
            # This stream is ordered only after work that the host knows to be complete.
            stream = internal_stream(memory.context)
    elif stream.context is not memory.context:
        raise ValueError(f"{stream!r} is not a stream of the context of {memory.label}")
    ordered = StreamOrdered(memory.address, memory.nbytes, memory.state, False, NULL, NULL)
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
            leave_cache(memory)
        _let_go_at(memory, here())
    return 0


cdef own_memory *new_state(size_t nbytes) except NULL:
    cdef own_memory *state = <own_memory *>malloc(sizeof(own_memory))
    if state is NULL:
        raise MemoryError()
    own_memory_prepare(state, nbytes)
    return state


cdef own_memory *_state_after(Memory memory) except? NULL:
    """Make a new state for the memory's block; NULL if it has no block.

    The old state stays with the closed memory.
    """
    return NULL if memory.block is NULL else new_state(memory.block.nbytes)


cdef void _hand_back(Memory memory, own_memory *state) noexcept:
    """Put the memory's block back into its cache. `state` records who may still use the block."""
    cdef Block *block = memory.block
    memory.block = NULL
    if memory.address == 0:  # the memory was never used, and the block still has its own state
        _drop_state(state)
    else:
        block.state = state
    (<Cache>block.cache).put(block, memory.context)


cdef void leave_cache(Memory memory) noexcept:
    """Drop the memory's block, because the memory will not go back to the cache."""
    if memory.block is not NULL:
        (<Cache>memory.block.cache).forget(memory.block)
        memory.block = NULL


cdef int _let_go_at(Memory memory, uint32_t site) except -1:
    """Let go of memory that was closed at this line."""
    memory.closed_at = site
    _keep_name(memory, site)
    return _let_go(memory)


cdef int _let_go(Memory memory) except -1:
    """Remove memory from the list of live memory, and drop its address and its owner."""
    unlist_memory(memory)
    _leave_pool(memory)
    memory.address = 0
    memory.owner = None
    return 0


cdef void _leave_pool(Memory memory) noexcept:
    """Stop counting as memory of a DriverPool."""
    if memory.pool is not None:
        memory.pool.buffers -= 1
        memory.pool = None


# ---- what is alive ----

cdef void list_memory(Memory memory) noexcept:
    global _newest
    memory.older = _newest
    if _newest is not NULL:
        (<Memory>_newest).newer = <void *>memory
    _newest = <void *>memory
    if unlikely(cudadrv_table.slowly & (CUDADRV_TRACES | CUDADRV_GUARDS)):
        _is_listed_now(memory)


cdef void _is_listed_now(Memory memory) noexcept:
    if cudadrv_table.slowly & CUDADRV_TRACES:
        trace_calls.memory_begins(<void *>memory)
    if guards():
        _guard_pages(memory)


cdef void show_memory(Memory memory) noexcept:
    """Add memory to the list, unless it is listed. Its site is the program's current line."""
    if not _is_listed(memory):
        memory.site = here()
        list_memory(memory)


cdef bint _is_listed(Memory memory) noexcept:
    return memory.newer is not NULL or memory.older is not NULL or _newest is <void *>memory


cdef void unlist_memory(Memory memory) noexcept:
    """Remove memory from the list, if it is there."""
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
    if unlikely(cudadrv_table.slowly & (CUDADRV_TRACES | CUDADRV_GUARDS)):
        _was_unlisted(memory)   # last, so that it is a jump


cdef void _was_unlisted(Memory memory) noexcept:
    if cudadrv_table.slowly & CUDADRV_TRACES:
        trace_calls.memory_ends(<void *>memory)
    if guards() and memory.address != 0 and _has_pages(memory):
        leave_memory(memory.address, memory.state.closed)


cdef void _guard_pages(Memory memory) noexcept:
    """Let a guard protect the pages of live memory that has an address, if the kind has pages.

    Makes no driver call. May let other threads run.
    """
    if memory.address == 0 or memory.state.closed or not _has_pages(memory):
        return
    try:
        _guard_pages_of(memory, f"{memory.label}, made at {place(memory.site)}")
    except Exception as error:  # such as no memory
        report_text(f"cudadrv: {memory.label} is not guarded: {error!r}")


cdef inline bint _has_pages(Memory memory) noexcept:
    """Whether a guard protects the memory's pages, or the driver does in its place."""
    return memory.kind.page_locked \
        or memory.kind.managed and memory.context.domain.host_excluded


cdef int _guard_pages_of(Memory memory, str name) except -1:
    cdef size_t nbytes = memory.nbytes if memory.block is NULL else memory.block.nbytes
    if memory.kind.managed:
        return watch_managed(memory.address, nbytes, memory.state, memory.context.domain, name)
    if memory.flags & OWN_PAGES:
        nbytes = whole_pages(nbytes)
    return guard_memory(
        memory.address, nbytes, memory.state, memory.context.domain, name,
        memory.owner is not None, memory.context.same_tables)


def guard_live_memory():
    """Let the guard that has just begun protect the pages of all live memory."""
    for memory in _live_memory():
        _guard_pages(memory)


cdef void _trace_begin(void *thing) noexcept:
    """Give memory a number in the trace. Memory of other libraries shares the state of its home."""
    cdef Memory memory = <Memory>thing
    if memory.state is not NULL and memory.home is None:
        trace_calls.begin_memory(
            memory.state, <void *>memory.label, memory.nbytes, memory.site, cached_bytes())


cdef void _trace_end(void *thing) noexcept:
    cdef Memory memory = <Memory>thing
    if memory.state is not NULL and memory.home is None:
        trace_calls.end_memory(memory.state, memory.nbytes, cached_bytes())


trace_calls.memory_begins = _trace_begin
trace_calls.memory_ends = _trace_end


def trace_live_memory():
    """Give all live memory a number in the trace that has just begun."""
    for memory in _live_memory():
        _trace_begin(<void *>memory)


cdef Memory owner_of(CUdeviceptr address, size_t nbytes):
    """Return the live memory that owns any of these bytes, or None. Lets no other thread run."""
    return live_memory_at(address, nbytes, False)


cdef Memory live_memory_at(CUdeviceptr address, size_t nbytes, bint borrowed):
    """Like `owner_of`; with `borrowed`, return live memory that only borrows any of the bytes."""
    cdef void *each = _newest
    cdef Memory memory
    cdef CUdeviceptr first
    cdef size_t size
    while nbytes and each is not NULL:
        memory = <Memory>each
        first, size = memory.address + memory.start, memory.nbytes
        if memory.block is not NULL:
            first, size = memory.block.address, memory.block.nbytes
        if memory.kind.borrowed == borrowed and not memory.kind.opaque \
                and first < address + nbytes and address < first + size \
                and not (borrowed and memory.state.closed):
            return memory
        each = memory.older
    return None


cdef Memory live_memory_around(CUdeviceptr address, size_t nbytes):
    """Return the live memory that contains all of these bytes, or None. Lets no other thread run.
    """
    cdef void *each = _newest
    cdef Memory memory
    while each is not NULL:
        memory = <Memory>each
        if not memory.kind.opaque and memory.address + memory.start <= address \
                and address + nbytes <= memory.address + memory.start + memory.nbytes \
                and not memory.state.closed:
            return memory
        each = memory.older
    return None


cdef str described_at(CUdeviceptr address):
    """Return "DeviceBuffer 'x', made at a.py:12" for the live memory at an address, or None."""
    cdef void *each = _newest
    cdef Memory memory
    while each is not NULL:
        memory = <Memory>each
        if not memory.kind.opaque and memory.address + memory.start <= address \
                < memory.address + memory.start + memory.nbytes:
            return f"{memory.label}, made at {place(memory.site)}"
        each = memory.older
    return None


# A kernel may use memory that was closed. The software driver then asks for the name that the
# memory had. A GPU never asks, so nothing is kept for it.

cdef enum:
    MOST_NAMES = 1024   # the software driver describes as many pieces of freed memory

cdef struct ClosedName:
    CUdeviceptr address
    size_t nbytes
    PyObject *label     # a reference
    uint32_t site       # the line that made the memory
    uint32_t closed_at  # the line that closed it, or 0 if it was dropped

cdef ClosedName _names[MOST_NAMES]  # a ring
cdef size_t _names_kept = 0         # how many were ever kept


cdef void _keep_name(Memory memory, uint32_t closed_at) noexcept:
    """Keep the name of memory that is closed or dropped, if the driver may ask for it."""
    global _names_kept
    cdef ClosedName *kept
    if cudadrv_table.renew_memory is NULL or memory.address == 0 or memory.site == 0 \
            or memory.kind.opaque:
        return
    # Others may free borrowed memory at any time; but a variable ends with its module.
    if memory.kind.borrowed and not isinstance(memory.owner, Memory):
        return
    kept = &_names[_names_kept % MOST_NAMES]
    Py_INCREF(memory.label)
    Py_XDECREF(kept.label)
    kept[0] = ClosedName(memory.address, memory.nbytes, <PyObject *>memory.label, memory.site,
                         closed_at)
    _names_kept += 1


cdef str described_closed(CUdeviceptr address):
    """Like `described_at`, for the memory at an address that was closed or dropped last."""
    cdef size_t age
    cdef ClosedName *kept
    for age in range(min(_names_kept, <size_t>MOST_NAMES)):
        kept = &_names[(_names_kept - 1 - age) % MOST_NAMES]
        if kept.address <= address < kept.address + kept.nbytes:
            ended = f", closed at {place(kept.closed_at)}" if kept.closed_at else " and dropped"
            return f"{<str>kept.label}, made at {place(kept.site)}{ended}"
    return None


def live_buffers():
    """List the buffers that hold memory, newest first. Calls no driver function.

    Returns
    -------
    list of LiveBuffer
        Parts of a buffer are not listed.
    """
    found = []
    for memory in _live_memory():
        found.append(_live_buffer(memory))
    return found


cdef object _live_buffer(Memory memory):
    from cudadrv._records import LiveBuffer
    nbytes = memory.nbytes if span_of(memory) is NULL else span_of(memory).mapped
    return LiveBuffer(<str>memory.kind.name, memory.label, nbytes,
                      memory.context.device.ordinal, place(memory.site))


cdef list _live_memory():
    """Return all memory in the list. Lets no other thread run, because it could change the list."""
    cdef list found = []
    cdef void *each = _newest
    while each is not NULL:
        found.append(<Memory>each)
        each = (<Memory>each).older
    return found


def memory_report():
    """Return a text that says which lines hold how much memory, the largest first."""
    count, nbytes = Counter(), Counter()
    for buffer in live_buffers():
        what = buffer.kind, buffer.site
        count[what] += 1
        nbytes[what] += buffer.nbytes
    cached = cached_bytes()
    pools = f"\nPools keep {cached} bytes for new buffers." if cached else ""
    if not count:
        return f"No buffer of this process is alive.{pools}"
    shown = nbytes.most_common(MOST_LINES)
    lines = []
    for what, size in shown:
        kind, site = what
        many = "buffer" if count[what] == 1 else "buffers"
        lines.append(f"  {size} bytes in {count[what]} {kind} {many}, made at {site}")
    if len(nbytes) > len(shown):
        rest = sum(nbytes.values()) - sum(dict(shown).values())
        lines.append(f"  {rest} bytes made at {len(nbytes) - len(shown)} other lines")
    return f"Live buffers hold {sum(nbytes.values())} bytes:\n" + "\n".join(lines) + pools


# ---- allocating ----

cdef Memory map_segment(Context context, Segment segment, str label):
    """Make the Memory of page-locked memory that several processes have mapped."""
    cdef Memory memory = Memory.__new__(Memory)
    context.usable()
    memory.context, memory.kind, memory.label = context, REGISTERED, label
    memory.nbytes, memory.owner, memory.site = segment.nbytes, segment, here()
    _allocate(memory, segment.nbytes)
    list_memory(memory)
    return memory


cdef Memory allocate_memory(
    MemoryKind kind, Context context, size_t nbytes, unsigned int flags, Stream stream, str label,
    bint pooled
):
    """Make the Memory of a buffer: from a cache, else from the driver, or empty for 0 bytes."""
    cdef Memory memory = Memory.__new__(Memory)
    if unlikely(not is_usable(context)):
        context.usable()
    if stream is not None and stream.capture is not NULL:
        # Memory of a capture exists before the graph is launched, and no other work uses it.
        stream = None
    if stream is not None:
        kind = kind.on_stream
    memory.context = context
    memory.kind = kind
    memory.nbytes = nbytes
    memory.flags = flags
    memory.label = label
    memory.site = here()
    if stream is not None:
        if kind.ordered:
            memory.stream = stream
            # On other streams the driver call itself orders streams, so it cannot be skipped.
            pooled = pooled and stream.order.order == OWN_NON_BLOCKING
        elif nbytes and pooled and _takes_order(stream):
            memory.unused = True
        else:
            stream = None
    if stream is not None and nbytes:
        check_stream(stream)    # otherwise memory would be allocated or freed before the refusal
    if nbytes == 0 or not pooled:
        _allocate(memory, nbytes)
    elif not _reuse(memory, stream):
        _allocate_block(memory)
        if memory.unused:
            _note_allocation(memory, stream)
    if nbytes:
        list_memory(memory)
    return memory


cdef Memory allocate_from(
    PoolHandle pool, Context context, size_t nbytes, Stream stream, str label
):
    """Make the Memory of a buffer: from a pool of the driver, or empty for 0 bytes.

    Without a stream, the memory is allocated on the internal stream, and the host waits for it.
    """
    cdef Memory memory = Memory.__new__(Memory)
    context.usable()
    if stream is not None and nbytes:
        stream.usable()
    memory.context = context
    memory.kind = STREAM_ORDERED
    memory.nbytes = nbytes
    memory.label = label
    memory.site = here()
    memory.stream = internal_stream(context) if stream is None else stream
    pool.usable()
    if nbytes:
        pool.buffers += 1  # from here on no other thread can close the pool
        memory.pool = pool
    _allocate(memory, nbytes)
    if nbytes:
        list_memory(memory)
        if stream is None:
            memory.stream._finish()
    return memory


cdef inline bint _takes_order(Stream stream) noexcept:
    """Whether page-locked or managed memory is allocated in the order of a stream.

    False for a blocking stream: the default streams' rules order only driver calls, and this
    allocation makes no driver call. False if `host_excluded` is set: the allocation would count as
    unfinished work, during which the host cannot use any managed memory.
    """
    return stream.order.order == OWN_NON_BLOCKING and not stream.order.domain.host_excluded


cdef inline unsigned int _shelf_of(MemoryKind kind, unsigned int flags) noexcept:
    """Return the shelf for this memory: 1 if it is stream-ordered or write-combined, else 0. It is
    2 more if the memory has pages of its own.

    Blocks on different shelves of a cache cannot replace each other.
    """
    return (kind.ordered or flags & CU_MEMHOSTALLOC_WRITECOMBINED != 0) | (flags & OWN_PAGES) >> 29


cdef bint _reuse(Memory memory, Stream stream) except -1:
    """Take a block whose uses are all ordered before the uses of the new memory.

    Returns False if there is none.
    """
    cdef Cache cache = cache_of(memory.context, memory.kind)
    cdef Block *block = cache.take(
        _shelf_of(memory.kind, memory.flags), memory.nbytes,
        NULL if stream is None else stream.order)
    if block is NULL:
        return False
    if unlikely(guards()):
        forget_pages(block.address)     # its state changes now
    if stream is None:
        own_memory_renew(block.state, memory.nbytes)
        memory.state = block.state
        memory.state.managed = memory.kind.managed
    else:
        _reuse_on(memory, block, stream)
    memory.block = block
    if cudadrv_table.renew_memory is not NULL:
        cudadrv_table.renew_memory(block.address, memory.nbytes)
    if not memory.unused:
        memory.address = block.address
    elif own_memory_reusable(engine, NULL, block.state):
        _choose(memory)
    return True


cdef int _reuse_on(Memory memory, Block *block, Stream stream) except -1:
    """Issue the allocation of a cached block on a stream, without a driver call."""
    cdef int reason = -1
    try:
        memory.state = new_state(memory.nbytes)
        memory.state.managed = memory.kind.managed
        reason = _note_allocation(memory, stream)
    finally:
        if reason != 0:  # the block is unchanged, because nothing else could use it
            (<Cache>block.cache).put(block, memory.context)
    if not memory.unused:
        _drop_state(block.state)
    return 0


cdef int _note_allocation(Memory memory, Stream stream) except? -1:
    """Count an allocation as a write on a stream. The memory exists, so no driver call is made."""
    cdef StreamOrdered ordered = StreamOrdered(0, memory.nbytes, memory.state, True, NULL, NULL)
    return allocate_on(&ordered, stream, memory.label)


cdef int _allocate_block(Memory memory) except -1:
    cdef Cache cache = cache_of(memory.context, memory.kind)
    cdef unsigned int shelf = _shelf_of(memory.kind, memory.flags)
    cdef size_t size = _allocate(memory, cache.size_for(shelf, memory.nbytes))
    memory.block = cache.add(memory.kind, shelf, memory.address, size)
    return 0


# ---- page-locked and managed memory on a stream ----
#
# The block that is taken for such memory may still be used by unfinished work, which is ordered
# before the next operation of the stream. The host must not access this block before that work is
# complete, but a program that has just made a buffer does not know that it has to wait. So the
# address of `unused` memory is chosen at its first use. If a stream uses the memory first, the
# memory gets the address of that block, and its allocation counts as a write on the stream, as for
# a DeviceBuffer. If the host uses it first, the memory gets another block, which nothing uses. Once
# chosen, an address never changes.

cdef CUdeviceptr chosen_address(Memory memory, size_t start) noexcept:
    """Choose the address of memory that a stream uses first: the address of the block taken for it.

    Returns the address plus `start`, or 0 if the memory is empty or closed.
    """
    if memory.block is NULL:
        return 0
    _choose(memory)
    memory.unused = False
    if unlikely(guards()):
        _guard_pages(memory)
    return memory.address + start


cdef void _choose(Memory memory) noexcept:
    """Give the memory the address of the block that was taken from the cache for it."""
    _drop_state(memory.block.state)
    memory.address = memory.block.address


cdef int use_on_host(Memory memory) except -1:
    """Let the host be the first user of `unused` memory. May allocate."""
    cdef Memory other
    if memory.address == 0:
        other = allocate_memory(
            memory.kind, memory.context, memory.nbytes, memory.flags, None, memory.label, True)
        # If this is false, another thread has chosen the address or closed the memory meanwhile.
        if memory.address == 0 and memory.block is not NULL:
            (<Cache>memory.block.cache).hits -= 1   # the first block was not used
            memory.block, other.block = other.block, memory.block
            memory.address, other.address = other.address, 0
    _forget_allocation(memory)
    if unlikely(guards()):
        _guard_pages(memory)    # before `other` ends: its pages are those of `memory` now
    return 0


cdef void _forget_allocation(Memory memory) noexcept:
    """Let the host and all streams use memory that is unused since its allocation on a stream."""
    if memory.unused:
        memory.unused = False
        own_memory_forget(engine, memory.state, ALLOCATION)


cdef size_t _allocate(Memory memory, size_t size) except? 0:
    """Free what can be freed of the queue, then allocate from the driver. Return the size."""
    drain_for_more()
    memory.state = new_state(memory.nbytes)
    memory.state.managed = \
        memory.kind.managed or (memory.pool is not None and memory.pool.kind.managed)
    return 0 if size == 0 else obtain(memory, size, _call)


cdef size_t obtain(Memory memory, size_t size, allocate_function allocate) except? 0:
    """Get memory by `allocate`. Return the size.

    If the driver is out of memory: release the caches, free the whole queue (which may block), and
    try again with the exact size. If that fails, too, let the program make room.
    """
    cdef CUresult status = allocate(memory, size)
    again = True
    while status == CUDA_ERROR_OUT_OF_MEMORY and again:
        trim_caches()
        _drain_all()
        size = min(size, memory.nbytes)
        status = allocate(memory, size)
        again = status == CUDA_ERROR_OUT_OF_MEMORY and make_room(memory.context, size)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        if span_of(memory) is not NULL:
            size -= span_of(memory).usable
        raise CudaOutOfMemoryError(
            <int>status, last_failure().decode(),
            f"{size} bytes were requested for {memory.label}. {memory_report()}")
    memory.context.check(status)
    return size


cdef int _drain_all() except -1:
    """Free all memory of the queue, except what work of an ended process may use for ever."""
    try:
        drain(True)
    except OwnershipError:
        pass
    return 0


cdef void _drop_state(own_memory *state) noexcept:
    own_memory_end(state)


cdef CUresult _call(Memory memory, size_t size) except *:
    cdef CUresult status
    cdef Segment segment
    if memory.kind.ordered:
        return _call_on_stream(memory, size)
    if memory.kind.mappable:
        segment = memory.owner if memory.owner is not None else new_segment("cudadrv-locked", size)
        memory.owner = segment
        memory.address = <size_t>segment.address
    with nogil:
        status = memory.kind.make(memory.context.raw, &memory.address, size, memory.flags)
    if memory.kind.mappable and status != CUDA_SUCCESS:
        memory.address, memory.owner = 0, None
    return status


cdef CUresult _call_on_stream(Memory memory, size_t size) except *:
    cdef CUresult status
    cdef StreamOrdered ordered = StreamOrdered(0, size, memory.state, False, NULL, NULL)
    if memory.pool is not None:
        ordered.pool = memory.pool.raw
    status = <CUresult>allocate_on(&ordered, memory.stream, memory.label)
    memory.address = ordered.address
    return status
