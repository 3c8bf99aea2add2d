"""Stream: a queue of work, and the current one of a `with` block."""

import operator
import threading

cimport cython
from libc.stdint cimport int64_t, uint64_t

from cudadrv._closing cimport bury_orphans, bury_stream, drop_stream, is_dead, is_dying, make_room
from cudadrv._device cimport (
    Alive, Context, Device, after_wait, context_of, contexts, default_context, enter_context,
    is_current, is_primary_active, leave_context,
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
from cudadrv._event cimport (
    FOREVER, Event, deadline_of, let_others_go_on, new_event, now_ns, query_event, query_stream,
    refuse_to_wait_longer,
)
from cudadrv._names cimport checked_name, name_stream, stream_name
from cudadrv._ordering cimport Entry, Nesting, live

from cudadrv._errors import OwnershipError

bind_driver(&cudadrv_table)


# ---- streams ----

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_CAPTURED_EVENT

cdef enum:
    PATIENCE_NS = 20_000    # an event, its record and its query cost more than a few questions

cdef object MOST_HANDLE = 2 ** 64 - 1

cdef Nesting _blocks = Nesting("cudadrv.stream")
_event_of_token = None  # what returns the event of a token to wait for, if it needs one


@cython.final
@cython.no_gc_clear
cdef class Stream:
    """Stream(*, blocking=False, priority=0, device=None, name=None)\n--\n
    A queue of work, which runs in order.

    Work of different streams is ordered by events (`record`, `wait`) and by nothing else, apart
    from the rules of the default streams. Inside ``with stream:`` it is the current stream of its
    context, for calls that name none.

    Parameters
    ----------
    blocking : bool, optional
        Whether it is ordered with the context's legacy default stream (CU_STREAM_DEFAULT). Streams
        are not (CU_STREAM_NON_BLOCKING) unless asked.
    priority : int, optional
        Lower numbers run first; see `Context.priority_range`.
    device : Device, optional
        Whose primary context it belongs to; default: the current one.
    name : str, optional
        For messages, which number the streams that have none.

    Raises ValueError if the device has no such priority.

    Driver function: cuStreamCreateWithPriority.
    """

    def __init__(self, *, bint blocking=False, priority=0, device=None, name=None):
        cdef Context context = context_of(device)
        cdef str label = checked_name(name)
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
        # All that can run other code comes before: it may have initialized this one.
        if self.order is not NULL:
            raise TypeError("this Stream exists already")
        self.priority = wanted
        self.open(context, OWN_BLOCKING if blocking else OWN_NON_BLOCKING)
        if label is not None:
            name_stream(self.order.number, label)
            self.name = label
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
    def name(self):
        """The name that it was given, or None."""
        return self.name

    @property
    def priority(self):
        """Its priority: lower numbers run first."""
        return self.priority

    @property
    def closed(self):
        """Whether it was closed."""
        return self.order is NULL or self.order.state != OWN_OPEN

    @staticmethod
    def current(*, device=None):
        """The stream of the innermost ``with stream:`` block, or None outside of all.

        Calls without ``stream=`` use the innermost one of the context that they are about.

        Parameters
        ----------
        device : Device, optional
            Leave out the blocks of other contexts than its primary one.
        """
        cdef Entry block = _blocks.innermost()
        if device is not None:
            return stream_for(None, context_of(device))
        return None if block is None else block.thing

    @staticmethod
    def legacy(*, device=None):
        """The legacy default stream of a context (CU_STREAM_LEGACY).

        Work on it runs after all earlier work of the context's blocking streams, and their later
        work after it. Non-blocking streams are not ordered with it.
        """
        return legacy_stream(device)

    @staticmethod
    def per_thread(*, device=None):
        """The default stream of this thread (CU_STREAM_PER_THREAD), a blocking stream.

        Each thread has its own. Using one, or a token of it, in another thread is a ValueError: the
        driver would take it for that thread's own. It ends with its thread: what is unfinished then
        stays borrowed until `Context.synchronize`, or until one waits for an event that the thread
        has recorded.
        """
        return per_thread_stream(device)

    @staticmethod
    def from_handle(handle, owner=None):
        """Use a stream of another library, by its CUstream as an int. It is never destroyed here.

        The same stream is the same object while one is alive. Work that the other library
        queues on it is not seen: hand memory over with an event or a synchronization.

        Parameters
        ----------
        handle : int
            0 and 1 are the legacy default stream, 2 is this thread's default stream.
        owner : object, optional
            Kept alive with the result: the first that is given. The default streams need none.

        Raises ValueError if the stream is of a context that cudadrv does not know, or if its handle
        is that of a `Stream` that has died.

        Driver functions: cuStreamGetCtx, cuStreamGetId, cuStreamGetFlags, cuStreamGetPriority.
        """
        return stream_from_handle(handle, owner)

    @staticmethod
    def from_object(thing, /):
        """Use a stream of another library: what ``stream=`` and `wait` do with one.

        A `Stream` is returned as it is. Anything else is asked for its handle and kept alive with
        the result, as by `from_handle` with ``owner=``.

        Parameters
        ----------
        thing : object
            With the method ``__cuda_stream__``, which returns ``(0, handle)``, or PyTorch's
            attribute ``cuda_stream``. The handles 0, 1 and 2 are default streams: of the device
            that the object names (``device_index``, ``device_id``), else of the current one.

        Raises
        ------
        TypeError
            It is no stream.
        ValueError
            Its version of the protocol is not 0; it is of a context that cudadrv does not know.
        OwnershipError
            It is being captured into a graph.

        Driver functions: as `from_handle`.
        """
        return stream_from_object(thing, "thing")

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
        """The CUstream, as an int, for other libraries. What they queue is not seen here."""
        self.usable()
        self.exposed = True
        return <size_t>self.raw

    def __int__(self):
        return self.handle

    def __cuda_stream__(self):
        """The protocol by which other libraries take a stream: ``(version, handle)``."""
        return 0, self.handle

    @property
    def done(self):
        """Whether all its work is complete; does not block.

        True counts as an observation, like `synchronize`.

        Driver function: cuStreamQuery.
        """
        return self.finish(False, 0)

    def synchronize(self, *, timeout=None):
        """Block until all work queued up to this call is complete.

        From then on the host may use what that work used. Signals such as Ctrl-C interrupt it.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; 0 asks once. A wait that runs out of time changes nothing.

        Raises
        ------
        TimeoutError
            The work is not complete after that time.
        TypeError, ValueError
            It is closed; the timeout is negative, or no number.

        Driver functions: cuStreamQuery, for a short time; then cuEventRecord and cuEventQuery.
        """
        cdef int64_t deadline = FOREVER if timeout is None else deadline_of(timeout)
        if not self.finish(True, deadline):
            refuse_to_wait_longer(f"the work of {self.called()}", timeout)
        after_wait()

    def __await__(self):
        """__await__($self, /)\n--\n
        ``await stream`` waits for the work queued so far without blocking the event loop.

        It is `synchronize` when it resumes."""
        event = _end_of_work(self)
        if event is not None:
            yield from event.__await__()
        after_wait()

    def waitable(self):
        """An event recorded now, of the library's own."""
        self.usable()
        return self.record_event(new_event(self.context, CU_EVENT_DISABLE_TIMING))

    def record(self, Event event=None):
        """Record an event after the work queued so far; return it.

        Without one, a new event without timing is made. Does not block.

        Raises ValueError if the event is closed or of another context.

        Driver function: cuEventRecord.
        """
        if event is None:
            return self.waitable()
        if event.context is not self.context:
            raise ValueError(f"the event is of {event.context!r}, and {self!r} of another context")
        return self.record_event(event)

    def wait(self, work not None):
        """Let all later work of this stream run after something. Does not block the host.

        Parameters
        ----------
        work : Event, Token or Stream
            An event as it is recorded now; recording it again later changes nothing here. A token's
            operation. Another stream's work queued so far; also that of another library's stream
            (`from_object`), with all that the library has queued there.

        Raises
        ------
        EventNotRecordedError
            The event was never recorded: the driver would not wait.
        OwnershipError
            Another library recorded the event in a capture: the stream would become a part of it.
        TypeError, ValueError
            It is something else; it is closed.

        Driver functions: cuStreamWaitEvent, and cuEventRecord for a token or a stream.
        """
        cdef Event event
        check_stream(self)
        if isinstance(work, Event):
            # Known or not: what other libraries queued before it the host cannot know.
            event = work
            event.refuse_unrecorded("waited for")
        elif isinstance(work, Stream):
            event = (<Stream>work).waitable()
        else:
            found = _event_of_token(work)
            if found is NotImplemented:
                found = stream_from_object(work, "work").waitable()
            event = found
        if event is not None:
            self.wait_for(event)

    def close(self):
        """Destroy it without waiting; queued work still runs, and keeps its borrows.

        Closing twice does nothing. A default stream cannot be closed (ValueError), and closing a
        foreign one only ends its use here.

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
        """Make it the current stream of its context; see `ordering` about generators."""
        self.usable()
        _blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block; the stream goes on."""
        _blocks.leave(self)

    def scope(self):
        """``with stream.scope():`` as ``with stream:``, and synchronize at the end.

        ``async with stream.scope():`` awaits the stream there.


        What the block has queued on it is complete after the block, also after one that ends by an
        exception; where waiting fails then, that exception gets a note. Returns the stream.

        Driver functions: as `synchronize`.
        """
        cdef Scope scope = Scope.__new__(Scope)
        self.usable()
        scope.stream = self
        return scope

    def bind(self, thing not None):
        """A thin wrapper of an object, whose methods are called with ``stream=`` this stream.

        Those that take no ``stream`` are called as they are, and a ``stream=`` of a call comes
        first. Other attributes can be read through it, and not be set.
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
        reason = enter_stream(self, &pushed)
        if reason == 0:
            leave_context(pushed)
        own_mutex_give(self.order.issue)
        return reason

    cdef int refuse(self, int reason) except -1:
        """Raise for what `enter_stream` or the driver answered."""
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

    cdef bint finish(self, bint wait, int64_t deadline) except -1:
        """Whether the work up to this call is complete; the host then knows it."""
        cdef own_snapshot snapshot
        check_stream(self)
        own_snapshot_take(engine, self.order, &snapshot)
        try:
            if _is_idle(self, &snapshot, wait):
                return True
            return wait and _event_at(self, &snapshot).observe(&snapshot, deadline)
        finally:
            own_snapshot_drop(engine, &snapshot)

    cdef Event record_event(self, Event event, own_snapshot *as_of=NULL):
        """Record an event; it stands for all work so far, or for the earlier point `as_of`."""
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


@cython.final
@cython.no_gc_clear
cdef class Scope:
    """Scope(*args, **kwargs)\n--\n
    A stream for the length of a `with` block: see `Stream.scope`.

    Written in Cython, because a signal can interrupt every line of Python.
    """

    cdef Stream stream
    cdef int entered    # blocks that have not ended

    def __init__(self, *args, **kwargs):
        raise TypeError("use stream.scope()")

    def __dealloc__(self):
        """A signal that comes before the block has begun leaves it to this."""
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

    async def __aenter__(self):
        """Make the stream the current one of its context, in this task."""
        return self.__enter__()

    async def __aexit__(self, kind, exception, traceback):
        """Await the work of the stream, and end the block."""
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        try:
            await self.stream
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
    """Let `Stream.wait` take what this function takes, which are tokens."""
    global _event_of_token
    _event_of_token = function


cdef Stream stream_for(object stream, Context context):
    """The stream of a call: the argument, else the context's current one, else None."""
    cdef Entry block
    if stream is not None:
        return known_stream(stream)
    block = _blocks.innermost()
    while block is not None:
        if (<Stream>block.thing).context is context:
            return block.thing
        block = live(block.outer)
    return None


# ---- driver calls on a stream ----

cdef inline bint _is_idle(Stream stream, own_snapshot *snapshot, bint patiently) except -1:
    """Whether the driver says that it is idle; the host then knows the snapshot of it."""
    cdef int reason
    if keeps_gil(stream):
        reason = _query(stream, patiently)
    else:
        with nogil:
            reason = _query(stream, patiently)
    if reason == 0:
        own_join_host(engine, snapshot)
    elif reason != CUDA_ERROR_NOT_READY:
        stream.refuse(reason)
    return reason == 0


cdef Event _event_at(Stream stream, own_snapshot *snapshot):
    """An event, recorded now, that stands for this point of the stream."""
    return stream.record_event(new_event(stream.context, CU_EVENT_DISABLE_TIMING), snapshot)


cdef Event _end_of_work(Stream stream):
    """An event after the work so far; None if that is complete, which the host then knows."""
    cdef own_snapshot snapshot
    check_stream(stream)
    own_snapshot_take(engine, stream.order, &snapshot)
    try:
        return None if _is_idle(stream, &snapshot, False) else _event_at(stream, &snapshot)
    finally:
        own_snapshot_drop(engine, &snapshot)


cdef int _query(Stream stream, bint patiently) noexcept nogil:
    """Ask the driver whether it is idle; `patiently`, again and again for a short time."""
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
    """The driver call. The issue locks of both are held."""
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
    """0, or why an event cannot be recorded or waited for.

    To wait for one that was recorded in a capture would make the stream a part of that.
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


# ---- streams that exist without us ----

cdef enum:
    MOST_ENDED = 256    # streams of ended threads whose work nobody has waited for

_per_thread = threading.local()


@cython.final
cdef class ThreadEnd:
    """Ends a thread's default streams. It dies in the thread, as one of the last things there.

    Recording events then could block, so there are none to wait for: the streams just end.
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


# One stream, one object, whatever other threads and finalizers do meanwhile. So all that can let
# them in, which is all that makes Python objects, comes first; then one looks whether there is an
# object for the stream by now, and opens the new one.

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
    """Keep the number of ended threads' streams with unfinished work bounded, by waiting."""
    make_room(context)
    if own_unfinished(engine, context.domain) > len(context.ghosts) + MOST_ENDED \
            and may_synchronize(context):
        context.synchronize()
    return 0


cdef Stream _unopened(Context context, CUstream handle):
    """A stream that is not ours to destroy, and that the engine does not know yet."""
    cdef Stream stream = Stream.__new__(Stream)
    context.usable()
    stream.context = context
    stream.raw = handle
    stream.exposed = True
    return stream


cdef int _open(Stream stream, object reference, int order) except -1:
    """Let everybody know it. Lets no other thread in."""
    stream.open(stream.context, order)
    tag_stream(stream)
    return stream.context.streams.add(reference)


cdef Stream stream_from_object(object thing, str argument):
    """See `Stream.from_object`."""
    if isinstance(thing, Stream):
        return thing
    return stream_from_handle(_handle_of(thing, argument), thing, thing)


cdef object _handle_of(object thing, str argument):
    """The handle of another library's stream."""
    # What a class has is meant for its objects.
    found = None if isinstance(thing, type) else getattr(thing, "__cuda_stream__", None)
    if found is None:
        handle = None if isinstance(thing, type) else getattr(thing, "cuda_stream", None)
        if handle is None or callable(handle):
            wanted = "an Event, Token or Stream" if argument == "work" else "a Stream"
            raise TypeError(
                f"{argument} must be {wanted}, not {type(thing).__name__}; another library's stream"
                " has __cuda_stream__, or is Stream.from_handle(handle, owner=...)")
        return _checked_handle(handle, f"{type(thing).__name__}.cuda_stream")
    answer = found() if callable(found) else found  # a property in early versions of cuda.core
    try:
        version, handle = answer
    except (TypeError, ValueError):
        raise TypeError(f"__cuda_stream__ of {type(thing).__name__} must return (version, handle),"
                        f" not {answer!r}") from None
    if version != 0:
        raise ValueError(f"__cuda_stream__ of {type(thing).__name__} has version {version!r} of the"
                         " protocol, and cudadrv knows version 0; pass"
                         " Stream.from_handle(handle, owner=...)")
    return _checked_handle(handle, f"__cuda_stream__ of {type(thing).__name__}")


cdef object _checked_handle(object handle, str source):
    try:
        return operator.index(handle)
    except TypeError:
        raise TypeError(
            f"{source} has a handle that is no int, but {type(handle).__name__}") from None


cdef object _device_of(object thing):
    """The device that another library's stream names, which its handle may not; or None."""
    for name in ("device_index", "device_id"):  # PyTorch's and CuPy's; -1 is the current one
        index = getattr(thing, name, None)
        if type(index) is int and index >= 0:
            return Device(index)
    return None


def stream_from_handle(handle, owner, named_by=None):
    """See `Stream.from_handle`; `named_by` may tell the device of a default stream."""
    number = operator.index(handle)
    if not 0 <= number <= MOST_HANDLE:
        raise ValueError(f"{number} is not the handle of a stream")
    if number <= 2:
        device = None if named_by is None else _device_of(named_by)
        return per_thread_stream(device) if number == 2 else legacy_stream(device)
    return _stream_of_raw(number, owner)


cdef Stream _stream_of_raw(size_t number, object owner):
    cdef CUstream raw = <CUstream>number
    cdef Context context = default_context()
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef unsigned long long identity = 0
    cdef unsigned int flags = 0
    cdef int priority = 0
    cdef CUcontext found = NULL
    cdef Stream stream
    context.usable()
    if is_dead(raw):
        raise ValueError(f"the stream with the handle {number:#x} was a Stream that has died, and"
                         " is destroyed with it; keep that alive for as long as the handle is used")
    with nogil:
        check(_describe(raw, &capture, &found, &identity, &flags, &priority))
    if capture != CU_STREAM_CAPTURE_STATUS_NONE:
        refuse_capture(f"the stream with the handle {number:#x}")
    context = _context_of_raw(found, number)
    make_room(context)
    stream = _unopened(context, raw)
    stream.identity = identity
    stream.priority = priority
    stream = _known_or_opened(
        stream, OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING)
    if stream.owner is None and not stream.ours:
        stream.owner = owner
    return stream


cdef CUresult _describe(
    CUstream handle, CUstreamCaptureStatus *capture, CUcontext *context,
    unsigned long long *identity, unsigned int *flags, int *priority
) noexcept nogil:
    """Look a stream up; nothing but `capture` while it captures, or the driver would end that."""
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


cdef Context _context_of_raw(CUcontext raw, size_t stream):
    for context in contexts():
        if (<Context>context).raw == raw:
            return context
    # Another library may have used a device first that nobody has used here.
    for device in Device.all():
        if is_primary_active(device) and context_of(device).raw == raw:
            return context_of(device)
    raise ValueError(f"the stream with the handle {stream:#x} is of the context {<size_t>raw:#x},"
                     " which is no device's primary context, and is not of Context.create; cudadrv"
                     " knows no others")


cdef Stream _known_or_opened(Stream stream, int order):
    """The live object of the same stream, or else this one, opened."""
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
    """Be after what the same stream did under earlier objects. Lets no other thread in."""
    cdef Event ghost
    for ghost in stream.context.ghosts:
        if ghost.identity == stream.identity and ghost.state.recorded \
                and not own_join(engine, stream.order, &ghost.state.snapshot):
            raise MemoryError()
    return 0


cdef Stream _known_stream(Stream wanted):
    """The live object of a stream. Drivers use a handle again, and never an identity."""
    cdef Stream stream
    for stream in wanted.context.streams.all():
        if stream.raw == wanted.raw and not stream.closed:
            if stream.ours or stream.identity == wanted.identity:
                return stream
            # Its owner has destroyed it. Only the context can tell when its work ends.
            own_stream_close(engine, stream.order)
    return None


cdef object user_of(unsigned int slot, uint64_t seq):
    """Whose operation it is: see `find_user`. None also if the host knows that it is over."""
    while True:
        bury_orphans()
        if own_known(engine, slot, seq):
            return None
        user = find_user(slot, seq)
        if user is not None or not is_dying(slot):
            return user
        let_others_go_on()


cdef object find_user(unsigned int slot, uint64_t seq):
    """The open Stream of an operation, or the last Event of a closed one, of any context.

    None if there is neither, as after the end of a thread whose default stream it was.
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
    """Whether no stream that is known is being captured: cuCtxSynchronize would end that."""
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
