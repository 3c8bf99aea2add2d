"""Users of dead memory: who may still use it, and whether they are done.

These questions are the library's own: nobody learns anything from the answers, no capture notices
them, and they change nothing but when memory is released.
"""

from libc.stdlib cimport free, malloc

from cudadrv._context cimport Context, contexts, enter_context, leave_context
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS, CUresult,
    CUstreamCaptureStatus, bind_driver, cudadrv_table, cuCtxSynchronize,
    cuStreamIsCapturing,
)
from cudadrv._event cimport Event, new_event
from cudadrv._foreign cimport find_user, may_synchronize
from cudadrv._ghost cimport this_thread
from cudadrv._ownership cimport (
    OWN_OPEN, engine, own_borrow, own_borrows, own_known, own_memory, own_mutex_give, own_mutex_try,
    own_snapshot, own_snapshot_drop, own_snapshot_take, own_stream_known, own_unfinished,
)
from cudadrv._stream cimport Stream
from cudadrv._wait cimport query_event, query_stream

from cudadrv._errors import ContextLostError, OwnershipError

bind_driver(&cudadrv_table)


cdef bint is_unused(own_memory *state) noexcept:
    """Whether the host knows that no work uses the memory."""
    return state is NULL or own_borrows(engine, state, 0, state.nbytes, NULL, 0) == 0


cdef dict _last_uses(own_memory *state):
    """The last operation of each slot that may use the memory; none without a state."""
    cdef unsigned int i
    cdef unsigned int count
    cdef own_borrow *borrows
    if is_unused(state):
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


cdef list users_of(own_memory *state):
    """What to wait for before the memory can go; None is what this thread cannot wait for."""
    works = []
    for slot, seq in _last_uses(state).items():
        user = find_user(slot, seq)
        works.append(_end_of(user) if isinstance(user, Stream) else user)
    return works if not is_unused(state) else []


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


cdef bint users_are_idle(own_memory *state) except -1:
    """Whether all work that may use the memory is complete. Changes what nobody knows."""
    for slot, seq in _last_uses(state).items():
        user = find_user(slot, seq)
        if user is None or not (
                _stream_is_idle(user) if isinstance(user, Stream) else is_complete(user)):
            return False
    return True


cdef bint finish_everything() except -1:
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


cdef bint is_complete(Event event) noexcept:
    """Ask the driver for the library itself: no clock notices."""
    cdef CUresult status
    with nogil:
        status = query_event(event.context.raw, event.raw)
    return status == CUDA_SUCCESS


cdef bint is_idle(Context context) except -1:
    """Whether all known work of a context is complete. Changes what nobody knows."""
    cdef Stream stream
    cdef Event ghost
    cdef long nameless
    for stream in context.streams.all():
        if not _stream_is_idle(stream):
            return False
    # Streams that nobody can name any more have no event to ask, or have none yet.
    nameless = own_unfinished(engine, context.domain)
    for ghost in context.ghosts[:]:
        if not is_complete(ghost):
            return False
        nameless -= ghost.state.recorded and not own_known(
            engine, ghost.state.snapshot.slot, ghost.state.snapshot.seq)
    return nameless <= 0


cdef bint _stream_is_idle(Stream stream) except -1:
    """Whether its work is complete; of another thread's default stream: not known."""
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef bint pushed = False
    cdef bint idle = False
    if stream.thread and stream.thread != this_thread():
        return own_stream_known(engine, stream.order)
    with nogil:
        if own_mutex_try(stream.order.issue):
            if stream.order.state != OWN_OPEN:
                idle = True
            elif enter_context(stream.context.raw, &pushed) == CUDA_SUCCESS:
                idle = cuStreamIsCapturing(stream.raw, &capture) == CUDA_SUCCESS \
                    and capture == CU_STREAM_CAPTURE_STATUS_NONE \
                    and query_stream(stream.raw) == CUDA_SUCCESS
                leave_context(pushed)
            own_mutex_give(stream.order.issue)
    return idle
