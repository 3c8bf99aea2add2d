"""Closing: streams that are closed, or die, while their work may be unfinished.

Closing a stream records a last event and destroys the handle, while the work runs on. Until the
work is known to be complete, the event stands for it: the stream is a ghost. A destructor records
no event, because recording can block. It leaves the stream as an orphan, and the next call that may
block closes the orphan. If the driver refuses, a later call tries again.

A stream of another library runs on when the Stream object for it is gone. If the program makes a
new object for that stream before its work is known to be complete, the new object continues the
engine's record of the stream. Otherwise each of many short-lived objects for one stream would leave
a ghost.

State that outlives a call: the orphans, and the ghosts of each context (the GIL guards both).
"""

from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdlib cimport free, malloc

from cudadrv._device cimport Context, report_in
from cudadrv._driver cimport (
    CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_STATUS_NONE,
    CUcontext, CUresult, CUstream, CUstreamCaptureStatus, cudadrv_table, in_cuEventRecord,
    in_cuStreamDestroy, in_cuStreamIsCapturing, this_thread,
)
from cudadrv._engine cimport (
    OWN_OPEN, engine, own_mutex_give, own_mutex_take, own_record_as, own_snapshot,
    own_snapshot_drop, own_snapshot_known, own_snapshot_take, own_stream, own_stream_close,
    own_stream_drop, own_stream_keep, own_stream_known, own_stream_release, own_stream_reopen,
)
from cudadrv._errors cimport is_sticky, refuse_if_forked, report, report_text
from cudadrv._event cimport Event, new_event

from cudadrv._errors import CudaError


cdef enum:
    NO_SLOT = 0xffffffff
    # If a context has more ghosts than this, `make_room` waits for the oldest.
    MOST_GHOSTS = 256

cdef struct orphan:
    CUstream handle
    own_stream *order
    bint ours
    unsigned long long identity     # cuStreamGetId of a foreign stream, else 0
    PyObject *context
    PyObject *owner         # keeps a foreign stream alive until its last event is recorded
    unsigned long thread    # the thread that is closing the orphan, or 0
    bint stuck              # whether the last attempt to close it has failed
    bint told               # whether a warning has reported such a failure
    orphan *next

cdef orphan *_orphans = NULL


cdef void drop_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long long identity,
    object owner
) noexcept:
    """Destroy a dying stream if destroying it cannot block, else leave it to `bury_orphans`."""
    cdef CUresult status
    cdef bint told = False
    cdef orphan *node
    global _orphans
    if order.state != OWN_OPEN or context.lost or cudadrv_table.forked:
        _forget(order)
        return
    if own_stream_known(engine, order):
        status = _destroy_idle(context, handle) if ours else CUDA_SUCCESS
        if status == CUDA_SUCCESS or _is_final(status):
            _forget(order)
            report_in(context, status)
            return
        report(status)
        told = True
    own_stream_drop(engine, order)
    node = <orphan *>malloc(sizeof(orphan))
    # If memory ran out, the handle leaks, and its work never counts as complete, which is safe.
    if node is not NULL:
        Py_INCREF(context)
        Py_INCREF(owner)
        node[0] = orphan(
            handle, order, ours, identity, <PyObject *>context, <PyObject *>owner, 0, told, told,
            _orphans)
        _orphans = node


cdef CUresult _destroy_idle(Context context, CUstream handle) noexcept:
    cdef CUresult status
    with nogil:
        status = in_cuStreamDestroy(context.raw, handle)
    return status


cdef bint _is_final(int status) noexcept:
    """Whether another attempt would fail, too, because stream, context or driver no longer exists.
    """
    return is_sticky(<CUresult>status) or status in (
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_DEINITIALIZED)


cdef void _forget(own_stream *order) noexcept:
    """Release the engine's record of a stream that has no handle any more."""
    if order.state == OWN_OPEN:
        own_stream_close(engine, order)
    own_stream_release(engine, order)


cdef int bury_orphans() except -1:
    """Close the orphans, except those that other threads are closing."""
    cdef orphan *node = _orphans
    cdef orphan *following
    cdef orphan *buried = NULL
    refuse_if_forked()
    while node is not NULL:
        following = node.next
        if node.thread == 0:
            node.thread = this_thread()  # until this is 0 again, no other thread removes the node
            context = <Context>node.context
            done = _bury_orphan(context, node)
            following = node.next
            node.thread, node.stuck = 0, not done
            if done:
                _unlink(node)
                node.next, buried = buried, node
        node = following
    while buried is not NULL:
        node, buried = buried, buried.next
        _forget(node.order)
        Py_DECREF(<object>node.owner)
        Py_DECREF(<Context>node.context)
        free(node)
    return 0


cdef void _unlink(orphan *node) noexcept:
    global _orphans
    cdef orphan *before = _orphans
    if before is node:
        _orphans = node.next
        return
    while before.next is not node:
        before = before.next
    before.next = node.next


cdef own_stream *take_orphan(
    Context context, CUstream handle, unsigned long long identity, PyObject **owner
) noexcept:
    """Return the engine's record of a foreign stream whose object is gone, so that a new object
    continues the record.

    Returns NULL if there is no such orphan. The caller gets the reference to the owner. Lets no
    other thread run.
    """
    cdef orphan *node = _orphans
    cdef own_stream *order
    while node is not NULL and (node.identity != identity or node.handle != handle or node.ours
                                or node.thread or node.context != <PyObject *>context):
        node = node.next
    if node is NULL:
        return NULL
    _unlink(node)
    order, owner[0] = node.order, node.owner
    own_stream_keep(engine, order)
    Py_DECREF(context)
    free(node)
    return order


cdef own_stream *take_ghost(Context context, unsigned long long identity, PyObject **last) noexcept:
    """Like `take_orphan`, for a ghost. The caller gets a reference to the ghost, and passes the
    ghost to `forget_ghosts`.
    """
    cdef Event ghost
    cdef own_stream *order
    for ghost in context.ghosts:
        if ghost.identity == identity and ghost.state.recorded:
            order = own_stream_reopen(
                engine, ghost.state.snapshot.slot, ghost.state.snapshot.seq)
            if order is not NULL:
                Py_INCREF(ghost)
                last[0] = <PyObject *>ghost
                return order
    return NULL


cdef bint is_dying(unsigned int slot) noexcept:
    """Whether the last event of the stream with this slot is about to be recorded.

    That is so if the stream is an orphan that another thread is closing, or that nobody has tried
    to close yet.
    """
    cdef orphan *node = _orphans
    while node is not NULL:
        if node.order.slot == slot and node.thread != this_thread() \
                and (node.thread or not node.stuck):
            return True
        node = node.next
    return False


cdef bint is_dead(CUstream handle) noexcept:
    """Whether a handle belongs to an orphan that cudadrv created, and so will destroy."""
    cdef orphan *node = _orphans
    while node is not NULL:
        if node.handle == handle and node.ours:
            return True
        node = node.next
    return False


cdef bint _bury_orphan(Context context, orphan *node) noexcept:
    """Close an orphan. Returns whether it can be removed from the list of orphans.

    A failure issues a warning and raises nothing, because the caller did not cause it.
    """
    try:
        return context.lost or bury_stream(
            context, node.handle, node.order, node.ours, node.identity) == GONE
    except Exception as error:
        final = isinstance(error, CudaError) and _is_final(error.status)
        if not node.told:
            later = "" if final else ", and will be later"
            report_text("a stream that died with unfinished work could not be destroyed"
                        f"{later}: {error}")
        node.told = True
        return final


cdef int bury_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long long identity
) except -1:
    """Close a stream: record a last event if its work may be unfinished, and destroy the handle.

    Returns GONE. If the stream is capturing, does nothing and returns CAPTURING; if memory is lent
    to it, does nothing and returns LENT.
    """
    cdef Event farewell = None
    cdef CUresult status = CUDA_ERROR_NOT_READY
    cdef int outcome = GONE
    while status == CUDA_ERROR_NOT_READY:  # `_end` has found work that needs a last event
        if farewell is None and not own_stream_known(engine, order):
            farewell = new_event(context, CU_EVENT_DISABLE_TIMING)
            # The event is listed before the stream counts as closed, because from then on tokens of
            # the stream search the list. Until it is recorded, no slot matches it.
            farewell.state.snapshot.slot = NO_SLOT
            farewell.identity = identity
            context.ghosts.append(farewell)
        with nogil:
            status = _end(context, handle, order, ours, farewell, &outcome)
    if farewell is not None and (status != CUDA_SUCCESS or not farewell.state.recorded):
        forget_ghosts(context, farewell)
    context.check(status)
    return outcome


cdef CUresult _end(
    Context context, CUstream handle, own_stream *order, bint ours, Event farewell, int *outcome
) noexcept nogil:
    """Close a stream. Returns CUDA_ERROR_NOT_READY if it needs a last event and `farewell` is None.

    Loans to the stream, too, begin and end only while the issue lock is held.
    """
    cdef CUresult status = CUDA_SUCCESS
    own_mutex_take(order.issue)
    if order.loans:
        outcome[0] = LENT
    elif order.state == OWN_OPEN:
        if farewell is None and not own_stream_known(engine, order):
            status = CUDA_ERROR_NOT_READY
        else:
            status = _destroy(context.raw, handle, order, ours, farewell, outcome)
            if status == CUDA_SUCCESS and outcome[0] == GONE:
                own_stream_close(engine, order)
    own_mutex_give(order.issue)
    return status


cdef CUresult _destroy(
    CUcontext context, CUstream handle, own_stream *order, bint ours, Event farewell,
    int *outcome
) noexcept nogil:
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef CUresult status
    cdef own_snapshot snapshot
    if not ours and farewell is None:  # needs no call, and the owner may have destroyed the stream
        return CUDA_SUCCESS
    status = in_cuStreamIsCapturing(context, handle, &capture)
    if status == CUDA_SUCCESS and capture != CU_STREAM_CAPTURE_STATUS_NONE:
        outcome[0] = CAPTURING
        return status
    if status == CUDA_SUCCESS and farewell is not None:
        status = in_cuEventRecord(context, farewell.raw, handle)
        if status == CUDA_SUCCESS:
            own_snapshot_take(engine, order, &snapshot)
            own_record_as(engine, &snapshot, &farewell.state)
            own_snapshot_drop(engine, &snapshot)
    if status == CUDA_SUCCESS and ours:
        status = in_cuStreamDestroy(context, handle)
    return status


cdef int make_room(Context context) except -1:
    """Close the orphans, and if there are then more than MOST_GHOSTS ghosts, wait for the oldest.
    """
    cdef Event oldest
    bury_orphans()
    context.usable()
    forget_ghosts(context, None)
    while len(context.ghosts) > MOST_GHOSTS:
        oldest = _oldest(context.ghosts)
        if oldest is None:
            break
        oldest._finish()
        forget_ghosts(context, None)
    return 0


cdef Event _oldest(list ghosts):
    """Return the ghost that was recorded first, or None if none is recorded yet."""
    cdef Event ghost
    for ghost in ghosts:
        if ghost.state.recorded:
            return ghost
    return None


cdef int forget_ghosts(Context context, Event useless) except -1:
    """Drop the finished ghosts, and the event `useless`, which may be None.

    The list of ghosts is replaced and not changed, because other threads may be iterating over it.
    """
    cdef Event ghost
    while True:
        before = context.ghosts
        kept = []
        for ghost in before:
            if ghost is not useless and not _is_finished(ghost):
                kept.append(ghost)
        if context.ghosts is before:  # no other thread has replaced the list
            context.ghosts = kept
            return 0


cdef bint _is_finished(Event event) noexcept:
    """Whether the host knows that the work before a stream's last event is complete."""
    return event.state.recorded and own_snapshot_known(engine, &event.state.snapshot)
