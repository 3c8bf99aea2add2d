"""Stream: a queue of work; the current stream of a `with` block; default and foreign streams."""

import operator
import threading

cimport cython
from libc.stdint cimport int64_t, uint64_t

from cudadrv._closing cimport bury_orphans, bury_stream, drop_stream, is_dead, is_dying, make_room
from cudadrv._device cimport (
    Alive, Context, after_wait, context_of, contexts, default_context, enter_context, is_current,
    leave_context,
)
from cudadrv._driver cimport (
    CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_STATUS_NONE,
    CU_STREAM_DEFAULT, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, CUcontext,
    CUresult, CUstream, CUstreamCaptureStatus, bind_driver, cuEventRecord,
    cuStreamCreateWithPriority, cuStreamGetCtx, cuStreamGetFlags, cuStreamGetId,
    cuStreamGetPriority, cuStreamIsCapturing, cuStreamWaitEvent, cudadrv_table, likely,
    this_thread, unlikely,
)
from cudadrv._engine cimport (
    OWN_BLOCKING, OWN_LEGACY, OWN_NON_BLOCKING, OWN_OPEN, OWN_PER_THREAD, engine, own_join,
    own_join_host, own_known, own_lock_both, own_mutex_give, own_mutex_take, own_record,
    own_record_as, own_snapshot, own_snapshot_drop, own_snapshot_take, own_stream_close,
    own_stream_open, own_unfinished, own_unlock_both, own_wait,
)
from cudadrv._errors cimport check, refuse_capture
from cudadrv._event cimport Event, let_others_go_on, new_event, now_ns, query_event, query_stream
from cudadrv._names cimport stream_name
from cudadrv._ordering cimport Entry, Nesting, live

from cudadrv._errors import OwnershipError

bind_driver(&cudadrv_table)


# ---- streams ----

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_CAPTURED_EVENT

cdef enum:
    # How long a waiting call queries the stream before it records an event and waits for that.
    PATIENCE_NS = 20_000

cdef Nesting _blocks = Nesting("cudadrv.stream")
_event_of_token = None  # the hook that returns the Event of a Token, or None if it is complete


@cython.final
@cython.no_gc_clear
cdef class Stream:
    """Stream(*, blocking=False, priority=0, device=None)\n--\n
    A queue of work, which runs in order.

    Only events (`record`, `wait`) and the rules of the default streams order the work of different
    streams. Inside ``with stream:`` it is the current stream of its context, for calls that are
    given no stream.

    Parameters
    ----------
    blocking : bool, optional
        Whether it is ordered with the context's legacy default stream (CU_STREAM_DEFAULT);
        default: it is not (CU_STREAM_NON_BLOCKING).
    priority : int, optional
        Lower numbers run first; see `Context.priority_range`.
    device : Device, optional
        The device whose primary context it belongs to; default: the current context.

    This may block: it closes streams that died with unfinished work, and if there are very many,
    waits for the oldest. Raises ValueError if the device has no such priority, and CudaError if the
    driver cannot create the stream.
    Driver function: cuStreamCreateWithPriority.
    """

    def __init__(self, *, bint blocking=False, priority=0, device=None):
        cdef Context context = context_of(device)
        cdef unsigned int flags = CU_STREAM_DEFAULT if blocking else CU_STREAM_NON_BLOCKING
        cdef CUresult status
        cdef bint pushed = False
        wanted = operator.index(priority)
        if wanted:
            greatest, least = context.priority_range
            if not greatest <= wanted <= least:
                raise ValueError(f"priority {wanted} is not from {greatest} (first) to {least}")
        make_room(context)
        reference = context.streams.reference_to(self)
        # Checked after everything that can run other code, which may have initialized this one.
        if self.order is not NULL:
            raise TypeError("this Stream exists already")
        self.priority = wanted
        self.open(context, OWN_BLOCKING if blocking else OWN_NON_BLOCKING)
        with nogil:
            status = enter_context(context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuStreamCreateWithPriority(&self.raw, flags, self.priority)
                leave_context(pushed)
            context.check(status)
        self.ours = True
        tag_stream(self)
        context.streams.add(reference)

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
        """Its priority. Lower numbers run first."""
        return self.priority

    @property
    def closed(self):
        """Whether it was closed."""
        return self.order is NULL or self.order.state != OWN_OPEN

    @staticmethod
    def legacy(*, device=None):
        """Return the legacy default stream of a context (CU_STREAM_LEGACY).

        Work on it runs after all earlier work of the context's blocking streams, and their later
        work runs after it. Non-blocking streams are not ordered with it. It cannot be closed. The
        context is the primary one of ``device``; default: the current context.
        """
        return legacy_stream(device)

    @staticmethod
    def per_thread(*, device=None):
        """Return the default stream of this thread (CU_STREAM_PER_THREAD), a blocking stream.

        Each thread has its own. To use it, or a token of it, in another thread is a ValueError:
        the driver would use that thread's own stream instead. It ends with its thread; buffers that
        its unfinished work uses then stay borrowed until `Context.synchronize`, or until the
        program waits for an event that the thread had recorded. The context is the primary one of
        ``device``; default: the current context.
        """
        return per_thread_stream(device)

    @staticmethod
    def from_handle(handle, owner=None):
        """Use a stream of another library, which is never destroyed here.

        The same stream is the same object, as long as that is alive. cudadrv does not see work that
        the other library queues on it: hand memory over with an event or a synchronization.

        Parameters
        ----------
        handle : int
            The CUstream. 0 and 1 are the legacy default stream, 2 is this thread's default stream.
        owner : object, optional
            Kept alive with the result; if there are several calls for a stream, the first owner is.
            Not used for the default streams.

        Raises ValueError if the stream belongs to a context that cudadrv does not know, or if the
        handle is that of a dead `Stream`; OwnershipError if the stream is capturing.
        Driver functions: cuStreamGetCtx, cuStreamGetId, cuStreamGetFlags, cuStreamGetPriority.
        """
        return stream_from_handle(handle, owner)

    @property
    def device(self):
        """The device of its context."""
        return None if self.context is None else self.context.device

    @property
    def blocking(self):
        """Whether it is ordered with the legacy default stream."""
        return self.order is not NULL and self.order.order != OWN_NON_BLOCKING

    @property
    def handle(self):
        """The CUstream as an int, for other libraries. cudadrv does not see what they queue."""
        self.usable()
        self.exposed = True
        return <size_t>self.raw

    def __int__(self):
        return self.handle

    def __cuda_stream__(self):
        """Return ``(version, handle)``: the protocol by which other libraries take a stream."""
        return 0, self.handle

    @property
    def done(self):
        """Whether all its work is complete. Does not block.

        If it is True, the host may use what that work used, as after `synchronize`. Raises
        ValueError if it is closed or another thread's default stream.
        Driver function: cuStreamQuery.
        """
        return self.finish(wait=False)

    def synchronize(self):
        """Block until all work queued before this call is complete.

        From then on the host may use what that work used. Signals such as Ctrl-C interrupt this.
        Raises ValueError if it is closed or another thread's default stream, and ContextLostError
        if an error has lost the context.

        Driver functions: cuStreamQuery for a short time, then cuEventRecord and cuEventQuery.
        """
        self.finish(wait=True)
        after_wait()

    def waitable(self):
        """Record a new event after the work queued so far, and return it. Does not block."""
        self.usable()
        return self.record_event(new_event(self.context, CU_EVENT_DISABLE_TIMING))

    def record(self, Event event=None):
        """Record an event after the work queued so far, and return it. Does not block.

        Without an argument, a new event without timing is recorded.

        Raises ValueError if the event is closed or belongs to another context.
        Driver function: cuEventRecord.
        """
        if event is None:
            return self.waitable()
        if event.context is not self.context:
            raise ValueError(f"the event is of {event.context!r}, and {self!r} of another context")
        return self.record_event(event)

    def wait(self, work not None):
        """Make all later work of this stream wait for other work. Does not block the host.

        Parameters
        ----------
        work : Event, Token or Stream
            An event, as it is recorded at this call: recording it again later changes nothing. The
            operation of a token. Everything that was queued on another stream before this call.

        Raises
        ------
        EventNotRecordedError
            The event was never recorded: the driver would not wait for it.
        OwnershipError
            Another library recorded the event in a capture, which this stream would then join.
        TypeError, ValueError
            ``work`` is something else, or is closed.

        Driver functions: cuStreamWaitEvent, and cuEventRecord for a token or a stream.
        """
        cdef Event event
        check_stream(self)
        if isinstance(work, Event):
            # Waited for even if the host knows it to be complete: other libraries may have queued
            # work before it that the host does not know of.
            event = work
            event.refuse_unrecorded("waited for")
        elif isinstance(work, Stream):
            event = (<Stream>work).waitable()
        else:
            event = _event_of_token(work)
        if event is not None:
            self.wait_for(event)

    def close(self):
        """Destroy the stream without waiting. Queued work still runs, and keeps its borrows.

        Closing twice does nothing. A foreign stream is not destroyed: closing only ends its use by
        cudadrv.

        Raises ValueError for a default stream, and OwnershipError while buffers are lent to it or
        while it is capturing.
        Driver functions: cuEventRecord, cuStreamDestroy.
        """
        if self.closed:
            return
        if self.order.order == OWN_LEGACY or self.thread:
            raise ValueError("a default stream lives as long as its context; it cannot be closed")
        if self.context.lost:
            own_stream_close(engine, self.order)
            return
        self.usable()
        if self.order.loans:
            raise OwnershipError(f"{self!r} is not closed: buffers are lent to it; end their"
                                 " `with buffer.lend(...)` blocks first")
        if not bury_stream(self.context, self.raw, self.order, self.ours, self.identity):
            self.refuse(STREAM_IS_CAPTURING)

    def __enter__(self):
        """Make it the current stream of its context. See `ordering` about generators."""
        self.usable()
        _blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. The stream stays open, and nothing is waited for."""
        _blocks.leave(self)

    def scope(self):
        """``with stream.scope():`` is ``with stream:`` with a synchronization at the end.

        What the block queued on the stream is complete after the block, even if an exception ended
        it. If waiting fails while an exception propagates, a note is added to that exception.
        ``as`` yields the stream.
        Driver functions: as `synchronize`.
        """
        cdef Scope scope = Scope.__new__(Scope)
        self.usable()
        scope.stream = self
        return scope

    def bind(self, thing not None):
        """Return a wrapper of an object that calls its methods with ``stream=`` this stream.

        Methods that have no parameter ``stream`` are called unchanged, and a ``stream=`` in a call
        takes precedence. Other attributes can be read through the wrapper, but not set.
        """
        from cudadrv._bound import Bound
        self.usable()
        return Bound(self, thing)

    def __repr__(self):
        if self.order is NULL:
            return "<Stream, never initialized>"
        closed = ", closed" if self.closed else ""
        return f"<{self.called()}{closed}, device {self.context.device.ordinal}>"

    # ---- for operations ----

    cdef int open(self, Context context, int order) except -1:
        """Register the stream with the engine. The handle is set by the caller."""
        self.context = context
        self.order = own_stream_open(engine, context.domain, order)
        if self.order is NULL:
            raise MemoryError()
        return 0

    cdef str called(self):
        """Its name in messages."""
        return stream_name(self.order.number, self.order.kind)

    cdef int usable(self) except -1:
        """Raise if the stream is closed or another thread's, or its context cannot be used."""
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
        """Returns 0 if it is not capturing, else a reason, after `leave_context`."""
        cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
        cdef CUresult status = cuStreamIsCapturing(self.raw, &capture)
        if status == CUDA_SUCCESS and capture == CU_STREAM_CAPTURE_STATUS_NONE:
            return 0
        leave_context(pushed)
        return STREAM_IS_CAPTURING if status == CUDA_SUCCESS else status

    cdef int probe(self) noexcept nogil:
        """What `enter_stream` would return now: 0, or the reason why not."""
        cdef bint pushed = False
        cdef int reason
        own_mutex_take(self.order.issue)
        reason = enter_stream(self, &pushed)
        if reason == 0:
            leave_context(pushed)
        own_mutex_give(self.order.issue)
        return reason

    cdef int refuse(self, int reason) except -1:
        """Raise for a reason of `enter_stream`, or for a status of the driver."""
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
        """Whether the work up to this call is complete.

        If so, it joins the host's clock: from then on the host knows that it is complete.
        """
        cdef own_snapshot snapshot
        cdef int reason
        check_stream(self)
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
        """Record an event. For the engine it stands for all work so far, or for `as_of`."""
        cdef bint noted = True
        cdef int reason
        check_stream(self)
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
        """Make later work wait for an event that was recorded."""
        cdef bint noted = True
        cdef int reason
        if keeps_gil(self):
            reason = _wait(self, event, &noted)
        else:
            with nogil:
                reason = _wait(self, event, &noted)
        if reason:
            self.refuse(reason)
        if not noted:  # the driver waits, but the engine knows nothing of it
            raise MemoryError()
        return 0


@cython.final
@cython.no_gc_clear
cdef class Scope:
    """Scope(*args, **kwargs)\n--\n
    The context manager of `Stream.scope`.

    It is written in Cython, because a signal can interrupt Python code between any two lines.
    """

    cdef Stream stream
    cdef int entered    # number of blocks that have not ended

    def __init__(self, *args, **kwargs):
        raise TypeError("use stream.scope()")

    def __dealloc__(self):
        """End a block that a signal interrupted between `__enter__` and its first line."""
        while self.entered:
            self.entered -= 1
            try:
                _blocks.leave(self.stream)
            except Exception:  # it was entered in another thread or context
                pass

    def __enter__(self):
        """Make the stream the current one of its context."""
        if self.stream is None:
            raise TypeError("this Scope was never initialized")
        self.stream.usable()
        _blocks.enter(self.stream)
        self.entered += 1
        return self.stream

    def __exit__(self, kind, exception, traceback):
        """Wait for the work of the stream, and end the block."""
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        try:
            self.stream.synchronize()
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: the work of {self.stream!r} may be unfinished: {error}")
        finally:
            self.entered -= 1
            _blocks.leave(self.stream)

    def __repr__(self):
        return f"<Scope of {self.stream!r}>"


def find_events_of_tokens_with(function):
    """Register the function by which `Stream.wait` finds the event of a token."""
    global _event_of_token
    _event_of_token = function


cdef Stream stream_for(object stream, Context context):
    """The stream of a call: the argument, else the context's current one, else None."""
    cdef Entry block
    if stream is not None:
        if not isinstance(stream, Stream):
            raise TypeError(f"stream must be a Stream, not {type(stream).__name__}")
        return stream
    block = _blocks.innermost()
    while block is not None:
        if (<Stream>block.thing).context is context:
            return block.thing
        block = live(block.outer)
    return None


# ---- driver calls on a stream ----

cdef int _query(Stream stream, bint patiently) noexcept nogil:
    """Query the stream once, or `patiently` for PATIENCE_NS: 0, a status, or a reason."""
    cdef bint pushed = False
    cdef int64_t until = 0
    cdef int reason
    while True:
        own_mutex_take(stream.order.issue)
        reason = enter_stream(stream, &pushed)
        if reason == 0:
            reason = query_stream(stream.raw)
            leave_context(pushed)
        own_mutex_give(stream.order.issue)
        if not patiently or reason != CUDA_ERROR_NOT_READY or until and now_ns() > until:
            return reason
        if not until:
            until = now_ns() + PATIENCE_NS


cdef int _record(Stream stream, Event event, own_snapshot *as_of, bint *noted) noexcept nogil:
    cdef int reason
    own_lock_both(stream.order.issue, &event.state.issue)
    reason = _record_or_wait(stream, event, record=True)
    if reason == 0 and as_of is not NULL:
        own_record_as(engine, as_of, &event.state)
    elif reason == 0:
        noted[0] = own_record(engine, stream.order, &event.state)
    own_unlock_both(stream.order.issue, &event.state.issue)
    return reason


cdef int _wait(Stream stream, Event event, bint *noted) noexcept nogil:
    cdef int reason
    own_lock_both(stream.order.issue, &event.state.issue)
    reason = _record_or_wait(stream, event, record=False)
    if reason == 0:
        noted[0] = own_wait(engine, stream.order, &event.state.snapshot)
    own_unlock_both(stream.order.issue, &event.state.issue)
    return reason


cdef inline int _record_or_wait(Stream stream, Event event, bint record) noexcept nogil:
    """Record or wait for an event. The caller holds the issue locks of both."""
    cdef bint pushed = False
    cdef int reason
    if unlikely(event.raw is NULL or event.unusual):
        reason = _look_at(event, record)
        if reason:
            return reason
    if likely(names_context(stream) and stream.order.state == OWN_OPEN):
        reason = _call_driver(stream, event, record)
        if likely(reason == CUDA_SUCCESS) or is_current(stream.context.raw):
            return reason
    reason = enter_stream(stream, &pushed)
    if reason == 0:
        reason = _call_driver(stream, event, record)
        leave_context(pushed)
    return reason


cdef int _look_at(Event event, bint record) noexcept nogil:
    """Why an event cannot be recorded, or waited for; 0 if it can.

    If a stream waits for an event that was recorded in a capture, it joins the capture.
    """
    if event.raw is NULL or event.closing:
        return EVENT_IS_CLOSED
    if not record and event.exposed \
            and query_event(event.context.raw, event.raw) == CUDA_ERROR_CAPTURED_EVENT:
        return EVENT_IS_CAPTURED
    return 0


cdef inline CUresult _call_driver(Stream stream, Event event, bint record) noexcept nogil:
    if record:
        return cuEventRecord(event.raw, stream.raw)
    return cuStreamWaitEvent(stream.raw, event.raw, 0)


# ---- default streams, and streams of other libraries ----

cdef enum:
    MOST_ENDED = 256    # default streams of ended threads that may have unfinished work

_per_thread = threading.local()


@cython.final
cdef class ThreadEnd:
    """Closes a thread's default streams. It is a thread-local object, so it dies with the thread.

    No last events are recorded, because that could block.
    """

    cdef unsigned long thread

    def __cinit__(self):
        self.thread = this_thread()

    def __dealloc__(self):
        cdef Stream stream
        for context in contexts():
            stream = (<Context>context).defaults.pop(self.thread, None)
            if stream is not None:
                own_stream_close(engine, stream.order)


# One stream has one object. But making a Python object can let other threads and finalizers run,
# which may make the object of the same stream. So all Python objects are made first; then, without
# interruption, the table is checked, and the new stream is opened and added.

def legacy_stream(device):
    """See `Stream.legacy`."""
    cdef Context context = context_of(device)
    cdef Stream stream
    if "legacy" not in context.defaults:
        stream = _unopened(context, CU_STREAM_LEGACY)
        reference = context.streams.reference_to(stream)
        if "legacy" not in context.defaults:
            _open(stream, reference, OWN_LEGACY)
            context.defaults["legacy"] = stream
    return context.defaults["legacy"]


def per_thread_stream(device):
    """See `Stream.per_thread`."""
    cdef Context context = context_of(device)
    cdef Stream stream
    thread = this_thread()
    if thread not in context.defaults:
        if not hasattr(_per_thread, "end"):
            _per_thread.end = ThreadEnd()
        _make_room_for_threads(context)
        stream = _unopened(context, CU_STREAM_PER_THREAD)
        stream.thread = thread
        reference = context.streams.reference_to(stream)
        if thread not in context.defaults:
            _open(stream, reference, OWN_BLOCKING)
            stream.order.kind = OWN_PER_THREAD
            context.defaults[thread] = stream
    return context.defaults[thread]


cdef int _make_room_for_threads(Context context) except -1:
    """Bound the number of ended threads' streams with unfinished work, by waiting for them."""
    make_room(context)
    if own_unfinished(engine, context.domain) > len(context.ghosts) + MOST_ENDED \
            and may_synchronize(context):
        context.synchronize()
    return 0


cdef Stream _unopened(Context context, CUstream handle):
    """A Stream over a handle that others own. The engine does not know it yet."""
    cdef Stream stream = Stream.__new__(Stream)
    context.usable()
    stream.context = context
    stream.raw = handle
    stream.exposed = True
    return stream


cdef int _open(Stream stream, object reference, int order) except -1:
    """Register the stream with the engine and its context. Lets no other thread in."""
    stream.open(stream.context, order)
    tag_stream(stream)
    return stream.context.streams.add(reference)


def stream_from_handle(handle, owner):
    """See `Stream.from_handle`."""
    cdef size_t number = operator.index(handle)
    cdef CUstream raw = <CUstream>number
    cdef Context context = default_context()
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef unsigned long long identity = 0
    cdef unsigned int flags = 0
    cdef int priority = 0
    cdef CUcontext found = NULL
    cdef Stream stream
    if number <= 1:
        return legacy_stream(None)
    if number == 2:
        return per_thread_stream(None)
    context.usable()
    if is_dead(raw):
        raise ValueError(f"the stream with the handle {number:#x} was a Stream that has died, and"
                         " is destroyed with it; keep that alive for as long as the handle is used")
    with nogil:
        check(_describe(raw, &capture, &found, &identity, &flags, &priority))
    if capture != CU_STREAM_CAPTURE_STATUS_NONE:
        refuse_capture(f"the stream with the handle {number:#x}")
    context = _context_of_raw(found)
    make_room(context)
    stream = _unopened(context, raw)
    stream.identity = identity
    stream.priority = priority
    stream = _known_or_opened(
        stream, OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING)
    if stream.owner is None:
        stream.owner = owner
    return stream


cdef CUresult _describe(
    CUstream handle, CUstreamCaptureStatus *capture, CUcontext *context,
    unsigned long long *identity, unsigned int *flags, int *priority
) noexcept nogil:
    """Look up a stream. If it is capturing, only `capture` is set: the rest would end the capture.
    """
    cdef CUresult status = cuStreamIsCapturing(handle, capture)
    if status != CUDA_SUCCESS or capture[0] != CU_STREAM_CAPTURE_STATUS_NONE:
        return status
    status = cuStreamGetCtx(handle, context)
    if status == CUDA_SUCCESS:
        status = cuStreamGetId(handle, identity)
    if status == CUDA_SUCCESS:
        status = cuStreamGetFlags(handle, flags)
    if status == CUDA_SUCCESS:
        status = cuStreamGetPriority(handle, priority)
    return status


cdef Context _context_of_raw(CUcontext raw):
    for context in contexts():
        if (<Context>context).raw == raw:
            return context
    raise ValueError("the stream is of a context that cudadrv does not know; if that is a device's"
                     " primary context, use it first: device.context")


cdef Stream _known_or_opened(Stream stream, int order):
    """Return the object that already stands for this stream's handle.

    If there is none, open `stream` and return it.
    """
    cdef Alive streams = stream.context.streams
    cdef Stream known
    reference = streams.reference_to(stream)
    while True:
        added = streams.added
        known = _known_stream(stream)
        if known is not None:
            return known
        if added == streams.added:
            _open(stream, reference, order)
            _follow_itself(stream)
            return stream


cdef int _follow_itself(Stream stream) except -1:
    """Order a stream after the work that earlier, closed objects of the same stream queued.

    Lets no other thread in.
    """
    cdef Event ghost
    for ghost in stream.context.ghosts:
        if ghost.identity == stream.identity and ghost.state.recorded \
                and not own_join(engine, stream.order, &ghost.state.snapshot):
            raise MemoryError()
    return 0


cdef Stream _known_stream(Stream wanted):
    """The live object of a stream, or None. Drivers reuse handles, but never identities."""
    cdef Stream stream
    for stream in wanted.context.streams.all():
        if stream.raw == wanted.raw and not stream.closed:
            if stream.ours or stream.identity == wanted.identity:
                return stream
            # Its owner has destroyed it: only Context.synchronize tells when its work is complete.
            own_stream_close(engine, stream.order)
    return None


cdef object user_of(unsigned int slot, uint64_t seq):
    """As `find_user`, after the orphans are closed. None also if the operation is known complete.
    """
    while True:
        bury_orphans()
        if own_known(engine, slot, seq):
            return None
        user = find_user(slot, seq)
        if user is not None or not is_dying(slot):
            return user
        let_others_go_on()


cdef object find_user(unsigned int slot, uint64_t seq):
    """The open Stream of an operation, or the last Event of its closed stream, in any context.

    None if there is neither, as for the default stream of a thread that has ended.
    """
    cdef Stream stream
    cdef Event ghost
    for context in contexts():
        for stream in (<Context>context).streams.all():
            if stream.order.slot == slot and not stream.closed:
                return stream
        for ghost in (<Context>context).ghosts:
            # The slot may have belonged to an earlier stream.
            if ghost.state.snapshot.slot == slot and ghost.state.snapshot.seq >= seq:
                return ghost
    return None


cdef bint may_synchronize(Context context) except -1:
    """Whether no known stream is capturing: cuCtxSynchronize would end the capture."""
    cdef Stream stream
    cdef int reason
    for stream in context.streams.all():
        if not stream.exposed or stream.thread not in (0, this_thread()):
            continue
        with nogil:
            reason = stream.probe()
        if reason not in (0, STREAM_IS_CLOSED):
            return False
    return True
