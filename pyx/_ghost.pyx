"""Ghosts: streams that end while their work may be unfinished.

Their handle is destroyed at once, and the work runs on. An event recorded last stands for it until it
is known to be complete. A destructor never does this itself, because recording can block: it leaves
an orphan, and the next call that may block sees to it.
"""

import warnings
from threading import get_ident

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport free, malloc

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CUDA_SUCCESS, CUresult, CUstream, bind_driver, cudadrv_table,
    cuEventRecord, cuStreamDestroy,
)
from cudadrv._errors cimport report
from cudadrv._event cimport Event, new_event
from cudadrv._ownership cimport (
    OWN_OPEN, engine, own_record, own_snapshot_known, own_stream, own_stream_close,
    own_stream_known, own_stream_release, pthread_mutex_lock, pthread_mutex_unlock,
)

from cudadrv._errors import CudaWarning

bind_driver(&cudadrv_table)

cdef enum:
    MOST_GHOSTS = 256  # closed streams whose work nobody has waited for

cdef struct orphan:
    CUstream handle
    own_stream *order
    bint ours
    PyObject *context
    orphan *next

cdef orphan *_orphans = NULL


cdef void drop_stream(
    Context context, CUstream handle, own_stream *order, bint ours, unsigned long thread
) noexcept:
    """A stream dies: destroy it if that cannot block, else leave it to `bury_orphans`."""
    cdef CUresult status = CUDA_SUCCESS
    cdef orphan *node
    global _orphans
    if order.state == OWN_OPEN and not own_stream_known(engine, order) \
            and not context.lost and not cudadrv_table.forked:
        if thread:
            _drop_per_thread(context, handle, order, thread)
            return
        node = <orphan *>malloc(sizeof(orphan))
        if node is not NULL:  # else the handle leaks, and its work stays unknown: still sound
            Py_INCREF(context)
            node[0] = orphan(handle, order, ours, <PyObject *>context, _orphans)
            _orphans = node
        return
    if order.state == OWN_OPEN:
        if ours and not context.lost and not cudadrv_table.forked:
            with nogil:
                status = cuStreamDestroy(handle)
        own_stream_close(engine, order)
    own_stream_release(engine, order)
    report(status)


cdef void _drop_per_thread(
    Context context, CUstream handle, own_stream *order, unsigned long thread
) noexcept:
    """Only its own thread can name it; its last work stays unknown when that is gone already."""
    if thread == <unsigned long>get_ident():
        try:
            bury_stream(context, handle, order, False)
            own_stream_release(engine, order)
        except Exception as error:
            warnings.warn(f"a per-thread default stream could not be closed: {error}", CudaWarning)


cdef int bury_orphans() except -1:
    """Destroy the streams that died with unfinished work."""
    cdef orphan *node
    global _orphans
    while _orphans is not NULL:
        node, _orphans = _orphans, _orphans.next
        context = <Context>node.context
        try:
            bury_stream(context, node.handle, node.order, node.ours)
        finally:
            own_stream_release(engine, node.order)
            Py_DECREF(context)
            free(node)
    return 0


cdef int bury_stream(Context context, CUstream handle, own_stream *order, bint ours) except -1:
    """Record a last event if there is work to wait for, destroy the stream, remember the event."""
    cdef Event farewell = None
    cdef CUresult status = CUDA_SUCCESS
    cdef bint pushed = False
    if not own_stream_known(engine, order):
        farewell = new_event(context, CU_EVENT_DISABLE_TIMING)
    with nogil:
        pthread_mutex_lock(order.issue)
        if order.state == OWN_OPEN:
            status = enter_context(context.raw, &pushed)
            if status == CUDA_SUCCESS:
                if farewell is not None:
                    status = cuEventRecord(farewell.raw, handle)
                    if status == CUDA_SUCCESS:
                        own_record(engine, order, &farewell.state)
                if status == CUDA_SUCCESS and ours:
                    status = cuStreamDestroy(handle)
                leave_context(pushed)
            if status == CUDA_SUCCESS:
                own_stream_close(engine, order)
        pthread_mutex_unlock(order.issue)
        context.check(status)
    if farewell is not None:
        context.ghosts.append(farewell)
    return 0


cdef int make_room(Context context) except -1:
    """Keep the number of closed streams with unfinished work bounded, by waiting for the oldest."""
    bury_orphans()
    context.usable()
    context.ghosts = [ghost for ghost in context.ghosts if not _is_known(ghost)]
    while len(context.ghosts) > MOST_GHOSTS:
        context.ghosts.pop(0).synchronize()
    return 0


cdef bint _is_known(Event event) noexcept:
    return own_snapshot_known(engine, &event.state.snapshot)
