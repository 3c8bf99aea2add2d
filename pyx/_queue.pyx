"""Queue: a stream as the driver and the engine know it. What `Stream` is underneath."""

cimport cython
from libc.stdint cimport int64_t

from cudadrv._context cimport Context, is_current, leave_context
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_NOT_READY, CUDA_SUCCESS,
    CUresult, CUstreamCaptureStatus, bind_driver, cudadrv_table, cuEventRecord,
    cuStreamIsCapturing, cuStreamWaitEvent,
)
from cudadrv._errors cimport refuse_capture
from cudadrv._event cimport Event, new_event
from cudadrv._ghost cimport drop_stream, this_thread
from cudadrv._likely cimport likely, unlikely
from cudadrv._operation_names cimport stream_name
from cudadrv._ownership cimport (
    OWN_OPEN, engine, own_join_host, own_lock_both, own_mutex_give, own_mutex_take, own_record,
    own_record_as, own_snapshot, own_snapshot_drop, own_snapshot_take, own_stream_open,
    own_unlock_both, own_wait,
)
from cudadrv._wait cimport now_ns, query_event, query_stream

from cudadrv._errors import OwnershipError

bind_driver(&cudadrv_table)

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_CAPTURED_EVENT

cdef enum:
    PATIENCE_NS = 20_000    # an event, its record and its query cost more than a few questions


@cython.no_gc_clear
cdef class Queue:
    """Queue(*args, **kwargs)\n--\n
    A queue of work of one context: the base of `Stream`."""

    def __init__(self, *args, **kwargs):
        raise TypeError("use Stream")

    def __dealloc__(self):
        if self.order is not NULL:
            drop_stream(
                self.context, self.raw, self.order, self.ours, self.identity, self.owner)

    @property
    def context(self):
        """The context that it belongs to."""
        return self.context

    @property
    def priority(self):
        """Its priority: lower numbers run first."""
        return self.priority

    @property
    def closed(self):
        """Whether it was closed."""
        return self.order is NULL or self.order.state != OWN_OPEN

    cdef int open(self, Context context, int order) except -1:
        """Make the engine know it. It has no handle yet, or that of somebody else."""
        self.context = context
        self.order = own_stream_open(engine, context.domain, order)
        if self.order is NULL:
            raise MemoryError()
        return 0

    cdef str called(self):
        """Its name in messages."""
        return stream_name(self.order.number, self.order.kind)

    cdef int usable(self) except -1:
        """Refuse before any driver call."""
        if self.order is NULL:
            raise TypeError("this Stream was never initialized")
        self.context.usable()
        if self.order.state != OWN_OPEN:
            self.refuse(STREAM_IS_CLOSED)
        if self.thread and self.thread != this_thread():
            raise ValueError(f"{self!r} is another thread's, and the driver would take it for this"
                             " one's; use a stream of your own, or wait for an event of that one")
        return 0

    cdef int look_for_capture(self, bint pushed) noexcept nogil:
        """0 if it is not being captured; else the context is left, and this says so."""
        cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
        cdef CUresult status = cuStreamIsCapturing(self.raw, &capture)
        if status == CUDA_SUCCESS and capture == CU_STREAM_CAPTURE_STATUS_NONE:
            return 0
        leave_context(pushed)
        return STREAM_IS_CAPTURING if status == CUDA_SUCCESS else status

    cdef int probe(self) noexcept nogil:
        """0 if a driver call could begin on it now, or why not."""
        cdef bint pushed = False
        cdef int reason
        own_mutex_take(self.order.issue)
        reason = enter_queue(self, &pushed)
        if reason == 0:
            leave_context(pushed)
        own_mutex_give(self.order.issue)
        return reason

    cdef int refuse(self, int reason) except -1:
        """Raise for what `enter_queue` or the driver answered."""
        if reason == STREAM_IS_CLOSED:
            if self.thread:
                raise ValueError(f"{self.called()} is closed: its thread has ended")
            raise ValueError(f"{self.called()} is closed: it takes no more work, and what it has"
                             " still runs. To wait for that: a token or an event of it, or"
                             " context.synchronize()")
        if reason == EVENT_IS_CLOSED:
            raise ValueError("the event is closed")
        if reason == EVENT_IS_CAPTURED:
            raise OwnershipError(
                "another library that has the event's handle recorded it last in a capture, and"
                f" waiting for it would make {self!r} a part of that; use an event of your own")
        if reason == STREAM_IS_CAPTURING:
            refuse_capture(repr(self))
        return self.context.raise_failure(<CUresult>reason)

    cdef bint finish(self, bint wait) except -1:
        """Whether the work up to this call is complete; the host then knows it."""
        cdef own_snapshot snapshot
        cdef int reason
        check_queue(self)
        own_snapshot_take(engine, self.order, &snapshot)
        try:
            if keeps_gil(self):
                reason = _query(self, wait)
            else:
                with nogil:
                    reason = _query(self, wait)
            if reason == 0:
                own_join_host(engine, &snapshot)
            elif reason != CUDA_ERROR_NOT_READY:
                self.refuse(reason)
            elif wait:
                event = new_event(self.context, CU_EVENT_DISABLE_TIMING)
                self.record_event(event, &snapshot).observe(&snapshot)
            return wait or reason == 0
        finally:
            own_snapshot_drop(engine, &snapshot)

    cdef Event record_event(self, Event event, own_snapshot *as_of=NULL):
        """Record an event; it stands for all work so far, or for the earlier point `as_of`."""
        cdef bint noted = True
        cdef int reason
        check_queue(self)
        if keeps_gil(self):
            reason = _record(self, event, as_of, &noted)
        else:
            with nogil:
                reason = _record(self, event, as_of, &noted)
        if reason:
            self.refuse(reason)
        if not noted:
            raise MemoryError()
        return event

    cdef int wait_for(self, Event event) except -1:
        """Let later work wait for an event that was recorded."""
        cdef bint noted = True
        cdef int reason
        if keeps_gil(self):
            reason = _wait(self, event, &noted)
        else:
            with nogil:
                reason = _wait(self, event, &noted)
        if reason:
            self.refuse(reason)
        if not noted:  # the driver waits, and the engine does not rely on it
            raise MemoryError()
        return 0


cdef int _query(Queue queue, bint patiently) noexcept nogil:
    """Ask the driver whether it is idle; `patiently`, again and again for a short time."""
    cdef bint pushed = False
    cdef int64_t until = 0
    cdef int reason
    while True:
        own_mutex_take(queue.order.issue)
        reason = enter_queue(queue, &pushed)
        if reason == 0:
            reason = query_stream(queue.raw)
            leave_context(pushed)
        own_mutex_give(queue.order.issue)
        if not patiently or reason != CUDA_ERROR_NOT_READY or until and now_ns() > until:
            return reason
        if not until:
            until = now_ns() + PATIENCE_NS


cdef int _record(Queue queue, Event event, own_snapshot *as_of, bint *noted) noexcept nogil:
    cdef int reason
    own_lock_both(queue.order.issue, &event.state.issue)
    reason = _record_or_wait(queue, event, record=True)
    if reason == 0 and as_of is not NULL:
        own_record_as(engine, as_of, &event.state)
    elif reason == 0:
        noted[0] = own_record(engine, queue.order, &event.state)
    own_unlock_both(queue.order.issue, &event.state.issue)
    return reason


cdef int _wait(Queue queue, Event event, bint *noted) noexcept nogil:
    cdef int reason
    own_lock_both(queue.order.issue, &event.state.issue)
    reason = _record_or_wait(queue, event, record=False)
    if reason == 0:
        noted[0] = own_wait(engine, queue.order, &event.state.snapshot)
    own_unlock_both(queue.order.issue, &event.state.issue)
    return reason


cdef inline int _record_or_wait(Queue queue, Event event, bint record) noexcept nogil:
    """The driver call. The issue locks of both are held."""
    cdef bint pushed = False
    cdef int reason
    if unlikely(event.raw is NULL or event.unusual):
        reason = _look_at(event, record)
        if reason:
            return reason
    if likely(names_context(queue) and queue.order.state == OWN_OPEN):
        reason = _call_driver(queue, event, record)
        if likely(reason == CUDA_SUCCESS) or is_current(queue.context.raw):
            return reason
    reason = enter_queue(queue, &pushed)
    if reason == 0:
        reason = _call_driver(queue, event, record)
        leave_context(pushed)
    return reason


cdef int _look_at(Event event, bint record) noexcept nogil:
    """0, or why an event cannot be recorded or waited for.

    To wait for one that was recorded in a capture would make the stream a part of that.
    """
    if event.raw is NULL or event.closing:
        return EVENT_IS_CLOSED
    if not record and event.exposed \
            and query_event(event.context.raw, event.raw) == CUDA_ERROR_CAPTURED_EVENT:
        return EVENT_IS_CAPTURED
    return 0


cdef inline CUresult _call_driver(Queue queue, Event event, bint record) noexcept nogil:
    if record:
        return cuEventRecord(event.raw, queue.raw)
    return cuStreamWaitEvent(queue.raw, event.raw, 0)
