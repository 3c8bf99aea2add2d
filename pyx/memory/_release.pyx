"""Release: memory goes back to the driver when freeing it cannot block.

To free memory, the driver waits for everything that runs on the device (measured: docs/driver.md),
and a destructor must not block. So memory whose last reference died goes into a queue. So do
modules, and executable graphs with conditions, which the driver destroys in the same way. The queue
is emptied when the GPU is found to be idle, and by `reap`, which may block. Stream-ordered memory
is freed on an internal stream that waits for its users, which never blocks.

The queue may be long, so a call that finds the GPU busy tries only a few pieces of memory. The
queue must not grow without bound: if much is in it, allocations delay the program until the GPU is
idle.

State that outlives a call: the queue of memory to be freed, and the present limit of its length
(the GIL guards both); in each context, the internal streams of this module.
"""

from time import monotonic, sleep

from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdlib cimport free, malloc

from cudadrv._closing cimport bury_orphans
from cudadrv._device cimport (
    ENDS_EVENT, ENDS_GRAPH, Context, Ending, begin_synchronizing, contexts, end_later_with,
    report_in, synchronize_now, synchronize_patiently,
)
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING,
    CU_STREAM_CAPTURE_MODE_RELAXED, CUdeviceptr, CUresult, CUstream, CUstreamCaptureMode,
    cuThreadExchangeStreamCaptureMode, cudadrv_table, in_cuStreamWaitEvent, leave_context,
    this_thread, was_not_called,
)
from cudadrv._engine cimport (
    OWN_ELSEWHERE, OWN_INTERNAL, engine, own_borrow, own_borrows, own_bytes, own_known,
    own_memory, own_conflict,
    own_held, own_lock_both, own_memory_end, own_mutex_give, own_mutex_try, own_snapshot,
    own_snapshot_drop, own_snapshot_take, own_stream_known, own_unfinished, own_unlock_both,
)
from cudadrv._errors cimport is_sticky
from cudadrv._event cimport (
    FOR_PROGRAM, FOR_REUSE, UNTIL_DONE, Event, ask_for, new_event, now_ns, query_event,
    open_wait_in, open_wait_of, query_stream, refuse_endless, some_are_open,
)
from cudadrv._memory_kinds cimport EVENT, EXECUTABLE, FOREIGN, GRAPH
from cudadrv._stream cimport STREAM_IS_CLOSED, Stream, enter_stream, find_user, may_synchronize

from cudadrv._device import call_after_wait
from cudadrv._errors import CudaError, OwnershipError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT

# ---- who may still use dead memory ----
#
# These functions affect only how soon memory is released. They change nothing in the engine:
# otherwise its answers to the program would depend on timing. The driver calls here do not affect
# captures of other libraries.

cdef size_t ALL = <size_t>-1    # bytes, up to the end
cdef int ANY = -1               # the name of every operation


cdef bint is_unused(own_memory *state, size_t start=0, size_t stop=ALL) noexcept:
    """Whether the host knows that no work uses these bytes of the memory."""
    return state is NULL or own_borrows(
        engine, state, own_bytes(start, min(stop, state.nbytes), NULL), NULL, 0) == 0


cdef bint _is_held(own_memory *state, size_t start, size_t stop) noexcept:
    """Whether a graph uses these bytes of the memory."""
    cdef own_conflict conflict
    return state is not NULL and own_held(engine, state, start, stop, &conflict)


cdef dict last_uses(own_memory *state, size_t start, size_t stop, int operation=ANY):
    """Return, by slot, the last operation that may use the bytes. Empty without a state.

    With `operation`, only uses by operations of this name count.
    """
    cdef unsigned int i
    cdef unsigned int count
    cdef own_borrow *borrows
    if is_unused(state, start, stop):
        return {}
    stop = min(stop, state.nbytes)
    count = own_borrows(engine, state, own_bytes(start, stop, NULL), NULL, 0)
    borrows = <own_borrow *>malloc((count + 1) * sizeof(own_borrow))
    if borrows is NULL:
        raise MemoryError()
    # There may be fewer borrows now: another thread may have observed that some are complete.
    count = min(count, own_borrows(
            engine, state, own_bytes(start, stop, NULL), borrows, count))
    uses = {}
    for i in range(count):
        if operation not in (ANY, borrows[i].epoch.operation):
            continue
        slot = borrows[i].epoch.slot
        uses[slot] = max(uses.get(slot, 0), borrows[i].epoch.seq)
    free(borrows)
    return uses


cdef list users_of(own_memory *state, size_t start=0, size_t stop=ALL):
    """Return the Events to wait for before the memory is freed.

    None in the list stands for work that cannot be waited for.
    """
    works = []
    for slot, seq in last_uses(state, start, stop).items():
        user = find_user(slot, seq)
        if isinstance(user, Stream):
            works.append(_end_of(user))
        elif user is not None and some_are_open \
                and open_wait_in(&(<Event>user).state.snapshot) is not None:
            works.append(None)
        else:
            works.append(user)
    return works if not is_unused(state, start, stop) else []


cdef Event _end_of(Stream stream):
    """Record an event after the stream's work so far; None if that is not possible.

    The engine does not learn of the event: what a program may do must not depend on when memory
    dies.
    Raises ContextLostError if this call finds that the context is lost.
    """
    cdef own_snapshot now
    if stream.context.lost or some_are_open and open_wait_of(stream.order) is not None:
        return None
    own_snapshot_take(engine, stream.order, &now)
    try:
        return stream.record_event(new_event(stream.context, CU_EVENT_DISABLE_TIMING), &now)
    except (ValueError, OwnershipError):
        return None  # the stream is another thread's, is capturing, or is closed
    except CudaError as error:
        if error.status != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
            raise
        return None  # the legacy stream refuses while another library captures a blocking stream
    finally:
        own_snapshot_drop(engine, &now)


cdef bint _users_are_idle(own_memory *state, size_t start=0, size_t stop=ALL) except -1:
    """Whether all work that may use the memory is complete. Asks the driver; updates no clock."""
    for slot, seq in last_uses(state, start, stop).items():
        user = find_user(slot, seq)
        if user is None or not (
                _stream_is_idle(user) if isinstance(user, Stream) else is_complete(user)):
            return False
    return True


cdef bint may_finish() except -1:
    """Whether the host may wait for all work of all contexts. A capture can forbid such a wait."""
    cdef Context context
    for context in contexts():
        if not context.lost and not may_synchronize(context):
            return False
    return True


cdef bint finish_everything() except -1:
    """Wait for all work of all contexts. Returns False if that would end a capture, or if it fails.

    This is the only way to wait for the default streams of other threads and of ended threads.
    Updates no clock. Signals interrupt the wait. Raises ContextLostError if this call finds that a
    context is lost.
    """
    cdef Context context
    cdef CUresult status
    for context in contexts():
        if context.lost:
            continue
        if not may_synchronize(context):
            return False
        _finish_work(context)
        if not begin_synchronizing(context):    # another thread has begun a capture
            return False
        status = synchronize_now(context)
        if is_sticky(status):
            context.raise_failure(status)
        if status != CUDA_SUCCESS:
            return False
    return True


# ---- waiting before a call that may block in the driver ----
#
# Signals do not interrupt a driver call, and a call that waits for work of a process that has ended
# never returns. So the host first waits by events for the work that such a call would wait for.

cdef enum:
    LOOK_NS = 100_000_000   # how often to see whether another process has ended


cdef bint wait_to_free(Context context, MemoryKind kind) except -1:
    """Like `finish_before_free`, but return False if the wait would never end."""
    try:
        finish_before_free(context, kind)
    except OwnershipError:
        return False
    return True


cdef int finish_before_free(Context context, MemoryKind kind) except -1:
    """Wait until freeing memory cannot block. Updates no clock. Signals interrupt the wait.

    Raises OwnershipError if the wait would never end.
    """
    for each in _blockers(context, kind):
        _finish_work(<Context>each)
    return 0


cdef list _blockers(Context context, MemoryKind kind):
    """Return the contexts for whose work the driver may wait when it frees memory.

    These are the contexts of the memory's device, and the contexts that have access to the memory.
    """
    cdef Context each
    found = []
    for each in contexts():
        if not each.lost and (
                kind.several_devices or each.device.ordinal == context.device.ordinal
                or context in each.peers.all()):
            found.append(each)
    return found


cdef int _finish_work(Context context) except -1:
    """Wait for all work of a context of which cudadrv knows, except in captures."""
    cdef Stream stream
    cdef Event event
    refuse_endless(NULL)
    for stream in context.streams.all():
        if not _stream_is_idle(stream):
            event = _end_of(stream)
            if event is not None:
                _await_quietly(event)
    for event in context.ghosts[:]:
        if not is_complete(event):
            _await_quietly(event)
    if not is_idle(context) and may_synchronize(context):   # there is work without an event
        synchronize_patiently(context)
    return 0


cdef bint is_complete(Event event) noexcept:
    """Whether an event is complete. Asks the driver; updates no clock."""
    cdef CUresult status
    with nogil:
        ask_for(FOR_REUSE)
        status = query_event(event.context.raw, event.raw)
        ask_for(FOR_PROGRAM)
    return status == CUDA_SUCCESS


cdef bint is_idle(Context context) except -1:
    """Whether all work of a context is complete. Asks the driver; updates no clock."""
    cdef Stream stream
    cdef Event ghost
    cdef long nameless
    for stream in context.streams.all():
        if not _stream_is_idle(stream):
            return False
    # Closed and dropped streams are idle if all their work is known to be complete, or if they have
    # a last event that is complete.
    nameless = own_unfinished(engine, context.domain)
    for ghost in context.ghosts[:]:
        if not is_complete(ghost):
            return False
        nameless -= ghost.state.recorded and not own_known(
            engine, ghost.state.snapshot.slot, ghost.state.snapshot.seq)
    return nameless <= 0


cdef bint _stream_is_idle(Stream stream) except -1:
    """Whether the work of a stream is complete. Asks the driver; updates no clock.

    The default stream of another thread cannot be queried. For such a stream, returns whether the
    host knows that its work is complete.
    """
    cdef bint pushed = False
    cdef bint idle = False
    cdef int reason
    if stream.thread and stream.thread != this_thread():
        return own_stream_known(engine, stream.order)
    with nogil:
        if own_mutex_try(stream.order.issue):
            reason = enter_stream(stream, &pushed)
            if reason == 0:
                ask_for(FOR_REUSE)
                idle = query_stream(stream.raw) == CUDA_SUCCESS
                ask_for(FOR_PROGRAM)
                leave_context(pushed)
            else:
                idle = reason == STREAM_IS_CLOSED
            own_mutex_give(stream.order.issue)
    return idle


# ---- the queue of what is to be freed ----

cdef enum:
    MOST_REFUSALS = 4           # a call stops after this many pieces that cannot be freed now
    MOST_PIECES = 4096          # with more pieces in the queue, an allocation delays the program
    MOST_HOST_BYTES = 1 << 30   # the same limit for bytes of page-locked and managed memory
cdef double LONGEST_HOLD = 1    # the longest such delay, in seconds

cdef struct pending:
    MemoryKind kind
    CUdeviceptr address
    own_memory *state
    PyObject *context
    PyObject *owner     # the object that keeps foreign memory alive, or None
    PyObject *home      # the Memory that owns the state, if the state is shared; else NULL
    size_t start        # offset of the first byte to release, in the memory of the state
    size_t stop         # offset of the end of these bytes, or ALL
    pending *next

cdef struct releases:
    pending *first
    pending *last
    size_t count
    size_t host_bytes   # bytes of the page-locked and managed memory among the pieces

cdef releases _queue = releases(NULL, NULL, 0, 0)
cdef size_t _leave = 1  # the factor by which MOST_PIECES and MOST_HOST_BYTES are raised at present


cdef void release_later(
    MemoryKind kind, CUdeviceptr address, own_memory *state, Context context, object owner
) noexcept:
    """Take over an allocation and its state. Makes no driver call and does not block."""
    cdef releases fresh = releases(NULL, NULL, 0, 0)
    cdef pending *node
    if context.lost or cudadrv_table.forked or address == 0 \
            or (kind.borrowed and (owner is None or is_unused(state))
                and not _is_held(state, 0, ALL)):
        _forget(state)
        if kind.drop is not NULL:
            kind.drop(address)
        return
    Py_INCREF(owner)
    node = <pending *>malloc(sizeof(pending))
    if node is not NULL:  # if memory ran out, the piece leaks, with its owner: work may use it
        Py_INCREF(context)
        node[0] = pending(kind, address, state, <PyObject *>context, <PyObject *>owner, NULL, 0,
                          ALL, NULL)
        _append(&fresh, node)
        _prepend(&_queue, &fresh)  # not at the end, because new pieces can often be freed at once


cdef void release_part(
    object home, own_memory *state, size_t start, size_t stop, Context context, object owner
) noexcept:
    """Like `release_later`, for foreign memory that shares the state of `home`.

    Memory without an owner is queued, too. This keeps the home, so that a new buffer over these
    bytes finds the unfinished work.
    """
    cdef releases fresh = releases(NULL, NULL, 0, 0)
    cdef pending *node
    if context.lost or cudadrv_table.forked \
            or is_unused(state, start, stop) and not _is_held(state, start, stop):
        return
    Py_INCREF(owner)
    Py_INCREF(home)
    node = <pending *>malloc(sizeof(pending))
    if node is not NULL:  # if memory ran out, owner and home leak: work may still use the bytes
        Py_INCREF(context)
        node[0] = pending(FOREIGN, 1, state, <PyObject *>context, <PyObject *>owner,
                          <PyObject *>home, start, stop, NULL)
        _append(&fresh, node)
        _prepend(&_queue, &fresh)


cdef void _end_later(Ending what, size_t handle, Context context, object owner) noexcept:
    """Put an object of the driver into the queue: see `is_ended_later`."""
    cdef MemoryKind kind = EXECUTABLE
    if what == ENDS_EVENT:
        kind = EVENT
    elif what == ENDS_GRAPH:
        kind = GRAPH
    release_later(kind, handle, NULL, context, owner)


end_later_with(_end_later)


cdef bint is_to_be_freed(CUdeviceptr address, size_t nbytes) noexcept:
    """Whether any of these bytes are in the queue, and will be freed by cudadrv."""
    cdef pending *node = _queue.first
    cdef CUdeviceptr first
    while node is not NULL:
        first = node.address
        if node.kind.first_byte is not NULL:
            first = node.kind.first_byte(node.address)
        if not node.kind.borrowed and not node.kind.opaque and node.state is not NULL \
                and first < address + nbytes and address < first + node.state.nbytes:
            return True
        node = node.next
    return False


cdef class Kept:
    """The owner of memory that other processes may use."""

    cdef bint in_use(self) except -1:
        """Whether another process may use the memory, so that it must not be freed."""
        raise NotImplementedError


cdef forget_function _forget_homes = NULL   # set by _memory at the first `give_back`


cdef void forget_homes_with(forget_function function) noexcept:
    """Register the function by which `drain` forgets memory that was given back."""
    global _forget_homes
    _forget_homes = function


cdef int drain(bint may_block) except -1:
    """Free memory of the queue: all of it if the call `may_block`, else what can be freed at once.

    A call that may not block gives up after a few pieces that cannot be freed now, so that its cost
    does not depend on the length of the queue. These pieces move to the end of the queue, so that
    the next call tries others.

    Signals interrupt a call that blocks. Such a call raises OwnershipError if a wait would never
    end, after it has freed what can be freed at once.
    """
    global _leave
    cdef releases left
    if _forget_homes is not NULL:
        _forget_homes()
    if _queue.first is NULL:
        _leave = 1
        return 0
    bury_orphans()
    if may_block:
        try:
            refuse_endless(NULL)
        except OwnershipError:
            _free_all(_take_queue(), False, False)
            if _queue.first is NULL:
                return 0
            raise
    _free_all(_take_queue(), may_block, False)
    if may_block and _queue.first is not NULL:  # the rest is used by work without an event
        left = _take_queue()
        try:
            finished = finish_everything()
        except BaseException:
            _put_back(&left)
            raise
        _free_all(left, True, finished)
    return 0


cdef releases _take_queue() noexcept:
    """Empty the queue and return its pieces.

    Memory that is queued later is not freed with these pieces, because work may have begun to use
    it after the caller has waited.
    """
    global _queue
    cdef releases taken = _queue
    _queue = releases(NULL, NULL, 0, 0)
    return taken


cdef void _put_back(releases *pieces) noexcept:
    global _queue
    _prepend(pieces, &_queue)
    _queue = pieces[0]


cdef int _free_all(releases rest, bint may_block, bint finished) except -1:
    """Free what can be freed, and put back the rest. With `finished`, no work uses the pieces."""
    cdef releases kept = releases(NULL, NULL, 0, 0)
    try:
        idle = {}       # for each context: whether freeing memory of the context cannot block
        behind = set()  # contexts in which stream-ordered memory was freed
        while rest.first is not NULL and (may_block or kept.count < MOST_REFUSALS):
            _release_first(&rest, &kept, may_block, finished, idle, behind)
    finally:
        _put_back(&rest)
        _put_back(&kept)
    if may_block:
        for context in behind:
            if not (<Context>context).lost:
                _await_quietly(_free_stream(context).waitable())
    return 0


cdef int drain_for_more() except -1:
    """Like drain(False), before an allocation: delays the program if the queue is crowded.

    Without a delay, a program that allocates and drops memory without ever waiting for the GPU
    could need more and more memory. The delay is short, because the GPU may be waiting for this
    thread. If the queue is still crowded then, its limits are raised.
    """
    global _leave
    drain(False)
    if _is_crowded(_leave):
        end = monotonic() + LONGEST_HOLD
        while _is_crowded(_leave) and monotonic() < end:
            sleep(0.0005)
            drain(False)
        if _is_crowded(_leave):
            _leave *= 2
    elif _leave > 1 and not _is_crowded(_leave // 2):
        _leave //= 2
    return 0


cdef bint _is_crowded(size_t times) noexcept:
    return _queue.count > MOST_PIECES * times or _queue.host_bytes > MOST_HOST_BYTES * times


cdef void _append(releases *queue, pending *node) noexcept:
    node.next = NULL
    if queue.first is NULL:
        queue.first = node
    else:
        queue.last.next = node
    queue.last = node
    queue.count += 1
    queue.host_bytes += _host_bytes(node)


cdef void _prepend(releases *queue, releases *others) noexcept:
    """Put the pieces of `others` at the beginning of the queue; `others` is then invalid."""
    if others.first is NULL:
        return
    others.last.next = queue.first
    if queue.first is NULL:
        queue.last = others.last
    queue.first = others.first
    queue.count += others.count
    queue.host_bytes += others.host_bytes


cdef size_t _host_bytes(pending *node) noexcept:
    return node.state.nbytes if node.state is not NULL and node.kind.host_access else 0


cdef int _release_first(
    releases *queue, releases *kept, bint may_block, bint finished, dict idle, set behind
) except -1:
    """Remove the first piece from the queue; free it if that is possible now, else keep it."""
    cdef pending *node = queue.first
    cdef bint done = False
    queue.first = node.next
    queue.count -= 1
    queue.host_bytes -= _host_bytes(node)
    context = <Context>node.context
    try:
        done = _release(node, context, may_block, finished, idle)
    finally:
        if not done:
            _append(kept, node)
    if done:
        is_ordered = node.kind.ordered
        _finish(node)
        if is_ordered:
            behind.add(context)
    return 0


cdef bint _release(
    pending *node, Context context, bint may_block, bint finished, dict idle
) except -1:
    """Free one piece of memory if that is possible now."""
    if context.lost or cudadrv_table.forked:
        return True
    if _is_held(node.state, node.start, node.stop):
        return False
    if node.kind.shared and (<Kept>node.owner).in_use():
        return False
    if node.kind.ordered:
        return _free_behind(node, context, [] if finished else users_of(node.state))
    if node.state is NULL and not finished and _may_block(node.kind, context, idle):
        return False
    if may_block:
        works = [] if finished else users_of(node.state, node.start, node.stop)
        if None in works:
            return False
        for work in works:
            _await_quietly(work)
        if not node.kind.never_blocks:
            finish_before_free(context, node.kind)
    elif _may_block(node.kind, context, idle) \
            or not _users_are_idle(node.state, node.start, node.stop):
        return False
    return node.kind.borrowed or _free_idle(node, context)


cdef bint _may_block(MemoryKind kind, Context context, dict idle) except -1:
    """Whether freeing memory of a context could block. `idle` remembers which contexts are idle."""
    if kind.never_blocks:
        return False
    for each in _blockers(context, kind):
        if each not in idle:
            idle[each] = is_idle(<Context>each)
        if not idle[each]:
            return True
    return False


cdef int _await_quietly(Event event) except -1:
    """Wait for an event without updating the host's clock. `_end_of` says why.

    The event's stream may wait for other streams without the engine's knowledge. So the wait raises
    OwnershipError if any stream waits for work of a process that ended before the work did.
    """
    cdef CUresult status = CUDA_ERROR_NOT_READY
    while status == CUDA_ERROR_NOT_READY:
        ask_for(UNTIL_DONE)
        try:
            status = event.ask(now_ns() + LOOK_NS)
        finally:
            ask_for(FOR_PROGRAM)
        if status == CUDA_ERROR_NOT_READY:
            refuse_endless(NULL)
    return event.context.check(status)


cdef void _finish(pending *node) noexcept:
    """Drop all that a piece of memory kept: its state or its home, its owner, its context."""
    if node.home is NULL:
        _forget(node.state)
    else:
        Py_DECREF(<object>node.home)
    if node.kind.drop is not NULL:
        node.kind.drop(node.address)
    Py_DECREF(<object>node.owner)
    Py_DECREF(<object>node.context)
    free(node)


def _drain_idle():
    drain(False)


call_after_wait(_drain_idle)


cdef Stream internal_stream(Context context):
    """Return the internal stream of a context, for blocking methods without a stream.

    This stream is ordered only after work that the host knows to be complete.
    """
    return _own_stream(context, "internal")


cdef Stream _free_stream(Context context):
    """Return the internal stream that frees stream-ordered memory, after waiting for its users.

    Blocking copies use another stream: otherwise the time at which memory dies would decide which
    work they wait for.
    """
    return _own_stream(context, "freeing")


cdef Stream lending_stream(Context context):
    """Return the stream that represents work on no stream in the engine. It never has work."""
    return _own_stream(context, "lending")


cdef Stream sharing_stream(Context context):
    """Return the stream that represents the work of other processes in the engine."""
    cdef Stream stream = _own_stream(context, "sharing")
    stream.order.kind = OWN_ELSEWHERE
    return stream


cdef Stream _own_stream(Context context, str name):
    if name not in context.defaults:
        context.defaults.setdefault(name, _nameless_stream(context))
    return context.defaults[name]


cdef Stream _nameless_stream(Context context):
    cdef Stream stream
    leave = context.__exit__    # looked up first, because that may need memory
    context.__enter__()
    try:
        stream = Stream()
    finally:
        leave(None, None, None)
    stream.order.kind = OWN_INTERNAL
    return stream


cdef void _forget(own_memory *state) noexcept:
    if state is not NULL:
        own_memory_end(state)


cdef CUresult free_unnoticed(
    Context context, MemoryKind kind, CUdeviceptr address, CUstream stream
) noexcept nogil:
    """Free memory in its context, on the stream if it is stream-ordered. Affects no capture."""
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef CUresult status
    cuThreadExchangeStreamCaptureMode(&mode)
    status = kind.free(context.raw, address, stream)
    cuThreadExchangeStreamCaptureMode(&mode)
    return status


cdef bint _free_behind(pending *node, Context context, list works) except -1:
    """Free stream-ordered memory after its users; False if one of them cannot be waited for."""
    cdef Stream stream = _free_stream(context)
    cdef CUresult status
    if None in works:
        return False
    for work in works:
        context.check(_wait_unnoticed(stream, work))
    with nogil:
        status = free_unnoticed(context, node.kind, node.address, stream.raw)
    return _is_freed(context, status)


cdef CUresult _wait_unnoticed(Stream stream, Event event) noexcept:
    """Let the driver order a stream after an event. The engine does not learn of this order.

    Otherwise a synchronization of the stream's context would also tell the host about work of
    another context.
    """
    cdef CUresult status = <CUresult>CUDA_ERROR_INVALID_HANDLE
    with nogil:
        own_lock_both(stream.order.issue, &event.state.issue)
        if event.raw is not NULL and not event.closing:
            status = in_cuStreamWaitEvent(stream.context.raw, stream.raw, event.raw, 0)
        own_unlock_both(stream.order.issue, &event.state.issue)
    return status


cdef bint _free_idle(pending *node, Context context) except -1:
    cdef CUresult status
    with nogil:
        status = free_unnoticed(context, node.kind, node.address, NULL)
    return _is_freed(context, status)


cdef bint _is_freed(Context context, CUresult status) noexcept:
    """Whether the call that frees memory was made. A failure of the driver issues a warning.

    If the call was not made, because the context could not be made current, a later drain makes it.
    """
    if status != CUDA_SUCCESS and not is_sticky(status) and was_not_called():
        return False
    report_in(context, status)
    return True
