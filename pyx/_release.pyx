"""Release: giving memory back to the driver when that can block nobody.

Freeing memory makes the driver wait for whatever runs on the device (measured: see docs/driver.md),
and a destructor must not. So memory whose last reference dies goes into a queue, which is emptied
when the GPU is seen to be idle, and by `reap`, which may block. Stream-ordered memory is freed on a
stream of the library's own that waits for its users, which never blocks.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from cudadrv._context cimport Context, contexts, enter_context, leave_context
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE,
    CUDA_SUCCESS, CUdeviceptr, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus, bind_driver,
    cudadrv_table, cuCtxSynchronize, cuMemFree, cuMemFreeAsync, cuMemFreeHost,
    cuStreamIsCapturing, cuStreamQuery, cuThreadExchangeStreamCaptureMode,
)
from cudadrv._errors cimport report
from cudadrv._event cimport Event, new_event
from cudadrv._foreign cimport may_synchronize
from cudadrv._ghost cimport bury_orphans, this_thread
from cudadrv._ownership cimport (
    OWN_OPEN, engine, own_borrow, own_borrows, own_memory, own_memory_clear, own_snapshot,
    own_snapshot_drop, own_snapshot_take, own_stream_known, pthread_mutex_trylock,
    pthread_mutex_unlock,
)
from cudadrv._stream cimport Stream
from cudadrv._wait cimport query_event

from cudadrv._context import call_after_wait
from cudadrv._errors import ContextLostError, OwnershipError

bind_driver(&cudadrv_table)

cdef struct pending:
    MemoryKind kind
    CUdeviceptr address
    own_memory *state
    PyObject *context
    PyObject *owner     # of foreign memory, else None
    pending *next

cdef pending *_queue = NULL


cdef void release_later(
    MemoryKind kind, CUdeviceptr address, own_memory *state, Context context, object owner
) noexcept:
    """Take over an allocation and its state. Makes no driver call, waits for nothing."""
    global _queue
    cdef pending *node
    if context.lost or cudadrv_table.forked or address == 0 \
            or (kind == FOREIGN and (owner is None or _is_unused(state))):
        _forget(state)
        return
    node = <pending *>malloc(sizeof(pending))
    if node is not NULL:  # else it leaks: nothing better can be done here
        Py_INCREF(context)
        Py_INCREF(owner)
        node[0] = pending(kind, address, state, <PyObject *>context, <PyObject *>owner, _queue)
        _queue = node


cdef CUresult free_memory(MemoryKind kind, CUdeviceptr address) noexcept nogil:
    """Free memory that nobody uses; may block. Its context is current."""
    if kind == LOCKED:
        return cuMemFreeHost(<void *><size_t>address)
    return cuMemFree(address)


cdef int drain(bint may_block) except -1:
    """Free what is in the queue, as far as that blocks nobody or `may_block` allows it."""
    cdef pending *left
    if _queue is NULL:
        return 0
    bury_orphans()
    _free_all(_take_queue(), may_block, False)
    if may_block and _queue is not NULL:  # used by work that no event can tell of
        left = _take_queue()
        try:
            finished = _finish_everything()
        except BaseException:
            _put_back(left)
            raise
        _free_all(left, True, finished)
    return 0


cdef pending *_take_queue() noexcept:
    global _queue
    cdef pending *taken = _queue
    _queue = NULL
    return taken


cdef void _put_back(pending *rest) noexcept:
    global _queue
    cdef pending *node
    while rest is not NULL:
        node, rest = rest, rest.next
        node.next, _queue = _queue, node


cdef int _free_all(pending *rest, bint may_block, bint finished) except -1:
    """Free what can be, and put the others back. `finished`: none of it has users any more."""
    cdef pending *node
    idle = {}   # by context: whether freeing in it blocks nobody
    behind = set()
    while rest is not NULL:
        node, rest = rest, rest.next
        node.next = NULL
        context = <Context>node.context
        try:
            done = _release(node, context, may_block, finished, idle)
        except BaseException:
            _put_back(node)
            _put_back(rest)
            raise
        if done:
            if node.kind == STREAM_ORDERED:
                behind.add(context)
            _finish(node)
        else:
            _put_back(node)
    if may_block:
        for context in behind:
            if not (<Context>context).lost:
                _await_quietly(_free_stream(context).waitable())
    return 0


cdef bint _finish_everything() except -1:
    """Wait for all work of all contexts, where that disturbs no capture; the host learns nothing.

    The default stream of another thread, and of one that has ended, leaves no other way.
    """
    cdef Context context
    cdef CUresult status
    cdef bint pushed = False
    for context in contexts():
        if context.lost:
            continue
        if not may_synchronize(context):
            return False
        with nogil:
            status = enter_context(context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuCtxSynchronize()
                leave_context(pushed)
        if status != CUDA_SUCCESS:
            return False
    return True


cdef bint _release(
    pending *node, Context context, bint may_block, bint finished, dict idle
) except -1:
    """Free one piece of memory if that is possible now."""
    if context.lost or cudadrv_table.forked:
        return True
    if node.kind == STREAM_ORDERED:
        return _free_behind(node, context, [] if finished else _users(node.state))
    if may_block:
        works = [] if finished else _users(node.state)
        if None in works:
            return False
        for work in works:
            _await_quietly(work)
    elif not _users_are_idle(node.state):
        return False
    if node.kind == FOREIGN:
        return True
    if context not in idle:
        idle[context] = may_block or _is_idle(context)
    return idle[context] and _free_idle(node, context)


cdef int _await_quietly(Event event) except -1:
    """Wait for an event; the host learns nothing, or answers would depend on when memory died."""
    return event.context.check(event.ask(wait=True))


cdef void _finish(pending *node) noexcept:
    """Drop what a piece of memory needed to live."""
    _forget(node.state)
    Py_DECREF(<object>node.owner)
    Py_DECREF(<object>node.context)
    free(node)


def _drain_idle():
    drain(False)


call_after_wait(_drain_idle)


cdef Stream internal_stream(Context context):
    """The library's own stream of a context. It knows only what the host knows."""
    return _own_stream(context, "internal")


cdef Stream _free_stream(Context context):
    """The stream that stream-ordered memory is freed on, and that waits for its users.

    Not the one of blocking copies: when memory dies must not change what that one waits for.
    """
    return _own_stream(context, "freeing")


cdef Stream _own_stream(Context context, str name):
    if name not in context.defaults:
        with context:
            context.defaults.setdefault(name, Stream())
    return context.defaults[name]


cdef void _forget(own_memory *state) noexcept:
    if state is not NULL:
        own_memory_clear(state)
        free(state)


cdef bint _is_unused(own_memory *state) noexcept:
    """Whether the host knows that no work uses the memory."""
    return state is NULL or own_borrows(engine, state, 0, state.nbytes, NULL, 0) == 0


cdef dict _last_uses(own_memory *state):
    """The last operation of each slot that may use the memory; none without a state."""
    cdef unsigned int i
    cdef unsigned int count
    cdef own_borrow *borrows
    if _is_unused(state):
        return {}
    count = own_borrows(engine, state, 0, state.nbytes, NULL, 0)
    borrows = <own_borrow *>malloc((count + 1) * sizeof(own_borrow))
    if borrows is NULL:
        raise MemoryError()
    # Meanwhile others may have come to know that some are over.
    count = min(count, own_borrows(engine, state, 0, state.nbytes, borrows, count))
    uses = {}
    for i in range(count):
        slot = borrows[i].epoch.slot
        uses[slot] = max(uses.get(slot, 0), borrows[i].epoch.seq)
    free(borrows)
    return uses


cdef list _users(own_memory *state):
    """What to wait for before the memory can go; None is what this thread cannot wait for."""
    works = []
    for slot, seq in _last_uses(state).items():
        stream, ghost = _stream_of(slot, seq)
        works.append(ghost if stream is None else _end_of(stream))
    return works if not _is_unused(state) else []


cdef tuple _stream_of(unsigned int slot, uint64_t seq):
    """The stream of an unfinished operation, or its last event if it is closed, of any context."""
    cdef Stream stream
    cdef Event ghost
    for context in contexts():
        for stream in (<Context>context).streams.all():
            if stream.order.slot == slot and stream.order.state == OWN_OPEN:
                return stream, None
        for ghost in list((<Context>context).ghosts):
            # The slot may have belonged to an earlier stream.
            if ghost.state.snapshot.slot == slot and ghost.state.snapshot.seq >= seq:
                return None, ghost
    return None, None


cdef Event _end_of(Stream stream):
    """An event after the stream's work so far, or None.

    Recording it changes nothing that the engine knows: when memory dies must not change an answer.
    """
    cdef own_snapshot now
    own_snapshot_take(engine, stream.order, &now)
    try:
        return stream.record_event(new_event(stream.context, CU_EVENT_DISABLE_TIMING), &now)
    except (ValueError, OwnershipError, ContextLostError):
        return None  # of another thread, capturing, or gone
    finally:
        own_snapshot_drop(engine, &now)


cdef bint _users_are_idle(own_memory *state) except -1:
    """Whether all work that may use the memory is complete. Changes what nobody knows."""
    for slot, seq in _last_uses(state).items():
        stream, ghost = _stream_of(slot, seq)
        if not (is_complete(ghost) if ghost is not None else
                stream is not None and _stream_is_idle(stream)):
            return False
    return True


cdef bint _free_behind(pending *node, Context context, list works) except -1:
    """Free stream-ordered memory after its users, unless one of them cannot be waited for."""
    cdef Stream stream = _free_stream(context)
    cdef CUresult status
    cdef bint pushed = False
    if None in works:
        return False
    for work in works:
        stream.wait(work)
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuMemFreeAsync(node.address, stream.raw)
            leave_context(pushed)
    report(status)
    return True


cdef bint _free_idle(pending *node, Context context) except -1:
    cdef CUresult status
    cdef bint pushed = False
    # Another thread's capture must not see our free.
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            cuThreadExchangeStreamCaptureMode(&mode)
            status = free_memory(node.kind, node.address)
            cuThreadExchangeStreamCaptureMode(&mode)
            leave_context(pushed)
    report(status)
    return True


cdef bint is_complete(Event event) noexcept:
    """Ask the driver for the library itself: no capture and no clock notices."""
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef CUresult status
    with nogil:
        cuThreadExchangeStreamCaptureMode(&mode)
        status = query_event(event.context.raw, event.raw)
        cuThreadExchangeStreamCaptureMode(&mode)
    return status == CUDA_SUCCESS


cdef bint _is_idle(Context context) except -1:
    """Whether all known work of a context is complete. Changes what nobody knows."""
    cdef Stream stream
    cdef Event ghost
    for stream in context.streams.all():
        if not _stream_is_idle(stream):
            return False
    for ghost in list(context.ghosts):
        if not is_complete(ghost):
            return False
    return True


cdef bint _stream_is_idle(Stream stream) except -1:
    """Whether its work is complete; of another thread's default stream: not known."""
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef bint pushed = False
    cdef bint idle = False
    if stream.thread and stream.thread != this_thread():
        return own_stream_known(engine, stream.order)
    with nogil:
        if pthread_mutex_trylock(stream.order.issue) == 0:
            if stream.order.state != OWN_OPEN:
                idle = True
            elif enter_context(stream.context.raw, &pushed) == CUDA_SUCCESS:
                idle = cuStreamIsCapturing(stream.raw, &capture) == CUDA_SUCCESS \
                    and capture == CU_STREAM_CAPTURE_STATUS_NONE \
                    and cuStreamQuery(stream.raw) == CUDA_SUCCESS
                leave_context(pushed)
            pthread_mutex_unlock(stream.order.issue)
    return idle
