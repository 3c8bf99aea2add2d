"""Stream: a queue of work; the current stream of a `with` block; default and foreign streams.

State that outlives a call: the current stream (a context variable); what closes a thread's default
streams when the thread ends (thread-local); each thread's default stream, which stream was last
found by its handle, and a hook of `_token` (the GIL guards them).
"""

import operator
from _thread import _local as local  # threading.local; threading is slow to import

cimport cython
from cpython.ref cimport PyObject, Py_XDECREF
from libc.stdint cimport int64_t, uint64_t

from cudadrv._closing cimport (
    CAPTURING, GONE, LENT, bury_orphans, bury_stream, drop_stream, forget_ghosts, is_dead, is_dying,
    make_room, take_ghost, take_orphan,
)
from cudadrv._device cimport (
    Alive, Context, Device, after_wait, context_of, contexts, default_context, is_alive,
    is_primary_active, raise_failures,
)
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY, CUDA_SUCCESS,
    CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_DEFAULT, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING,
    CU_STREAM_PER_THREAD, CUcontext, CUresult, CUstream, CUstreamCaptureStatus, cuEventRecord,
    cuStreamGetCtx, cuStreamGetFlags, cuStreamGetId, cuStreamGetPriority, cuStreamIsCapturing,
    cuStreamWaitEvent, in_cuStreamCreateWithPriority, is_current, leave_context, likely,
    this_thread, unlikely,
)
from cudadrv._engine cimport (
    OWN_BLOCKING, OWN_LEGACY, OWN_NON_BLOCKING, OWN_OPEN, OWN_PER_THREAD, engine, own_join,
    own_join_host, own_known, own_lock_both, own_mutex_give, own_mutex_take, own_record,
    own_record_as, own_snapshot, own_snapshot_drop, own_snapshot_take, own_stream_close,
    own_stream_open, own_unfinished, own_unlock_both, own_wait,
)
from cudadrv._errors cimport (
    check, hint, only_made_by, refuse_capture, refuse_uninitialized, uninitialized,
)
from cudadrv._event cimport (
    BY_STREAM, FOREVER, FOR_PROGRAM, FOR_REUSE, UNTIL_DONE, Event, ask_for, deadline_of,
    let_others_go_on, new_event, now_ns, open_wait_in, query_event, query_stream, refuse_behind,
    refuse_to_wait_longer, some_are_open, write_prints_of_stream,
)
from cudadrv._names cimport checked_name, name_stream, stream_name
from cudadrv._ordering cimport Entry, Nesting, live
from cudadrv._site cimport birth, place
from cudadrv._trace cimport line_of_call

from cudadrv._errors import CaptureError, CudaError, OwnershipError


# ---- streams ----

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_CAPTURED_EVENT
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT

cdef enum:
    # A call that waits for a stream queries the stream for this long. Then it records an event and
    # waits for the event.
    PATIENCE_NS = 20_000

cdef object MOST_HANDLE = 2 ** 64 - 1

cdef Nesting _blocks = Nesting("cudadrv.stream")
cdef PyObject *_last_found = NULL   # the Stream that was last found by its handle, if it is alive
_set_on_stream = _wait_on_stream = None     # of _signal, once a stream has used a signal
_event_of_token = None  # the hook that returns the Event of a Token, or None if it is complete


cdef class Capturing:
    """A capture of streams into a graph."""

    cdef str called(self):
        """Return the name of the capture in messages."""
        return f"the capture of {self.graph}, begun at {place(self.site)}"

    cdef int record(self, Stream stream, Event event) except -1:
        """Record an event on a stream of the capture, after what was captured so far."""
        raise NotImplementedError

    cdef int admit(self, Stream stream) except -1:
        """Raise if a stream cannot wait for work of the capture."""
        raise NotImplementedError

    cdef int wait(self, Stream stream, Event event) except -1:
        """Let a stream wait for an event of the capture. The stream joins the capture."""
        raise NotImplementedError

    cdef Stream user_of(self, unsigned int slot):
        """Return the stream of the capture that has this slot in the engine of its plan.

        Returns None if no stream has it, or if this thread cannot wait for the stream.
        """
        raise NotImplementedError


@cython.final
@cython.no_gc_clear
cdef class Stream:
    """Stream(*, blocking=False, priority=0, device=None, name=None)\n--\n
    A queue of work, which runs in order.

    Only events (`record`, `wait`) and the rules of the default streams order the work of different
    streams. Inside ``with stream:`` it is the current stream of its context, which calls without a
    ``stream`` argument use.

    Parameters
    ----------
    blocking : bool, optional
        Whether it is ordered with the context's legacy default stream (CU_STREAM_DEFAULT);
        default: it is not (CU_STREAM_NON_BLOCKING).
    priority : int, optional
        Lower numbers run first; see `Context.priority_range`.
    device : Device, optional
        The device whose primary context it belongs to; default: the current context.
    name : str, optional
        Shown in messages. A stream without a name is shown by its number.

    Making a stream may block. It first closes streams whose objects were dropped while they had
    unfinished work. If more than 256 closed streams have unfinished work, it then waits for the
    oldest ones. Raises ValueError if the device has no such priority, and CudaError if the driver
    cannot create the stream.
    Driver function: cuStreamCreateWithPriority.
    """

    def __init__(self, *, bint blocking=False, priority=0, device=None, name=None):
        cdef Context context = context_of(device)
        cdef str label = checked_name(name)
        cdef unsigned int flags = CU_STREAM_DEFAULT if blocking else CU_STREAM_NON_BLOCKING
        cdef CUresult status
        wanted = operator.index(priority)
        if wanted:
            greatest, least = context.priority_range
            if not greatest <= wanted <= least:
                raise ValueError(f"priority {wanted} is not from {greatest} (first) to {least}")
        make_room(context)
        reference = context.streams.reference_to(self)
        # Checked after everything that can run other code, which may have initialized this object.
        if self.order is not NULL:
            raise TypeError("this Stream exists already")
        self.priority = wanted
        self.open(context, OWN_BLOCKING if blocking else OWN_NON_BLOCKING)
        if label is not None:
            name_stream(self.order.number, label)
            self.name = label
        with nogil:
            status = in_cuStreamCreateWithPriority(context.raw, &self.raw, flags, self.priority)
            context.check(status)
        self.ours = True
        self.birth = birth()
        tag_stream(self)
        context.streams.add(reference)

    def __dealloc__(self):
        global _last_found
        if _last_found == <PyObject *>self:
            _last_found = NULL
        if self.order is not NULL:
            drop_stream(
                self.context, self.raw, self.order, self.ours, self.identity, self.owner)

    @property
    def context(self):
        """The context that the stream belongs to."""
        return self.context

    @property
    def name(self):
        """The name that the stream was given, or None."""
        return self.name

    @property
    def priority(self):
        """The priority of the stream: lower numbers run first."""
        return self.priority

    @property
    def closed(self):
        """Whether the stream was closed."""
        return self.order is NULL or self.order.state != OWN_OPEN

    @staticmethod
    def current(*, device=None):
        """Return the stream of the innermost ``with stream:`` block, or None outside all blocks.

        Calls without ``stream=`` use the innermost block of the context that they work in.

        Parameters
        ----------
        device : Device, optional
            Only blocks of this device's primary context count; default: all blocks.
        """
        cdef Entry block = _blocks.innermost()
        if device is not None:
            return stream_for(None, context_of(device))
        return None if block is None else block.thing

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

        Each thread has its own. To use it, or a token of it, in another thread is a ValueError,
        because the driver would use that other thread's default stream instead. The stream ends
        with its thread. Buffers that its unfinished work uses then stay borrowed until
        `Context.synchronize`, or until the program waits for an event that the thread had recorded.
        Let a thread wait for its work before it ends: otherwise a driver can hang (docs/driver.md).
        The context is the primary one of ``device``; default: the current context.
        """
        return per_thread_stream(device)

    @staticmethod
    def from_handle(handle, owner=None):
        """Return a Stream for a stream of another library. cudadrv never destroys such a stream.

        Further calls for the same stream return the same object, as long as the object is alive.
        cudadrv does not see the work that the other library queues on the stream. Order that work
        with an event or a synchronization.

        Parameters
        ----------
        handle : int
            The CUstream. 0 and 1 are the legacy default stream, 2 is this thread's default stream.
        owner : object, optional
            Kept alive with the result. If there are several calls for a stream, only the owner of
            the first call is kept. Not used for the default streams.

        Raises ValueError if no stream has the handle, if the stream belongs to a context that
        cudadrv does not know, or if the handle belongs to a `Stream` whose object was dropped;
        OwnershipError if another library is capturing the stream.
        Driver functions: cuStreamGetCtx, cuStreamGetId, cuStreamGetFlags, cuStreamGetPriority.
        """
        return stream_from_handle(handle, owner)

    @staticmethod
    def from_object(thing, /):
        """Return a Stream for a stream of another library, as ``stream=`` and `wait` make it.

        A `Stream` is returned unchanged. Any other object is asked for its handle, and is kept
        alive with the result, like the ``owner`` of `from_handle`.

        Parameters
        ----------
        thing : object
            An object with the method ``__cuda_stream__``, which returns ``(0, handle)``, or with
            PyTorch's attribute ``cuda_stream``. The handles 0, 1 and 2 are default streams: those
            of the device that the object names (``device_index``, ``device_id``), else of the
            current device.

        Raises
        ------
        TypeError
            The object is not a stream.
        ValueError
            Its version of the protocol is not 0, or cudadrv does not know the stream's context.
        OwnershipError
            Another library is capturing the stream into a graph.

        Driver functions: as `from_handle`.
        """
        return stream_from_object(thing, "thing")

    @property
    def device(self):
        """The device of the stream's context."""
        return None if self.context is None else self.context.device

    @property
    def blocking(self):
        """Whether the stream is ordered with the legacy default stream."""
        return self.order is not NULL and self.order.order != OWN_NON_BLOCKING

    @property
    def handle(self):
        """The CUstream as an int, for other libraries. cudadrv does not see what they queue."""
        self.usable()
        self.exposed |= HANDED_OUT
        return <size_t>self.raw

    def __int__(self):
        return self.handle

    def __cuda_stream__(self):
        """Return ``(version, handle)``: the protocol by which other libraries take a stream."""
        return 0, self.handle

    @property
    def done(self):
        """Whether all work of the stream is complete. Does not block.

        If it is True, the host may use what that work used, as after `synchronize`.

        Raises ValueError if the stream is closed or is another thread's default stream,
        OwnershipError if another library is capturing it, and ContextLostError if an error has lost
        the context.
        Driver function: cuStreamQuery.
        """
        return self.finish(False, 0)

    def synchronize(self, *, timeout=None):
        """Block until all work queued up to this call is complete.

        From then on the host may use what that work used. Signals such as Ctrl-C interrupt this.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; 0 asks once. A wait that runs out of time changes nothing.

        Raises
        ------
        TimeoutError
            The work is not complete after that time.
        ContextLostError
            An error has lost the context.
        TypeError, ValueError
            The stream is closed or is another thread's default stream; the timeout is negative or
            not a number.
        OwnershipError
            Another library is capturing the stream.

        Driver functions: cuStreamQuery, for a short time; then cuEventRecord and cuEventQuery; and
        cuStreamSynchronize or cuEventSynchronize at the end, if a kernel may have printed.
        """
        _synchronize(self, timeout)
        raise_failures()

    def _finish(self, *, timeout=None):
        """Like `synchronize`, but raises no exceptions of functions that streams have called."""
        _synchronize(self, timeout)

    def __await__(self):
        """__await__($self, /)\n--\n
        ``await stream`` waits for the work queued so far without blocking the event loop.

        It has the same effect as `synchronize`."""
        yield from self._completion()
        raise_failures()

    def _completion(self):
        """Like `__await__`, but raises no exceptions of functions that streams have called."""
        event = _end_of_work(self)
        if event is not None:
            yield from event._completion()
        after_wait()

    def waitable(self):
        """Record a new event after the work queued so far, and return it. Does not block.

        This is `record` without an argument.
        """
        self.usable()
        return self.record_event(new_event(self.context, CU_EVENT_DISABLE_TIMING))

    def record(self, Event event=None):
        """Record an event after the work queued so far, and return it. Does not block.

        Without an argument, a new event without timing is recorded.

        Raises ValueError if the event is closed or belongs to another context, or if the stream is
        closed or is another thread's default stream; OwnershipError if another library is capturing
        the stream.
        Driver function: cuEventRecord.
        """
        if event is None:
            return self.waitable()
        if event.context is not self.context:
            raise ValueError(f"the event is of {event.context!r}, and {self!r} of another context")
        return self.record_event(event)

    def wait(self, work not None, value=None):
        """Make all later work of this stream wait for other work. Does not block the host.

        Parameters
        ----------
        work : Event, Token, Stream or Signal
            For an event, the stream waits for the work before its last record; recording the event
            again after this call changes nothing. For a token, the stream waits for the token's
            operation, and for a stream, for everything that was queued on that stream before this
            call. A stream of another library (`from_object`) can be given, too; the wait includes
            what that library has queued. For a signal, it waits for the first set to ``value`` or
            more that is queued now, and so for the work before that set; a number that is known to
            be reached needs no wait.
        value : int, optional
            The number of a signal.

        Raises
        ------
        SignalError
            No set of the signal to this number or more is queued, so the wait would never end.
        EventNotRecordedError
            The event was never recorded, so the driver would not wait.
        OwnershipError
            Another library recorded the event in a capture, and the wait would make this stream a
            part of it; or another library is capturing one of the streams.
        TypeError, ValueError
            ``work`` is something else; or ``work`` or this stream is closed, or is the default
            stream of another thread; or ``value`` is no number from 0 to 2**63 - 1, is missing for
            a signal, or is given for other work.

        Driver functions: cuStreamWaitEvent, and cuEventRecord for a token or a stream.
        """
        cdef Event event
        if unlikely(value is not None):
            _import_signals()
            _wait_on_stream(self, work, value)
            return
        check_stream(self)
        if isinstance(work, Event):
            # The wait is queued even if the host knows that cudadrv's work before the event is
            # complete. Other libraries may have queued work before the event, too.
            event = work
            event.refuse_unrecorded(BY_STREAM)
        elif isinstance(work, Stream):
            event = self.event_of_stream(work)
        else:
            found = _event_of_token(self, work)
            if found is NotImplemented:
                found = self.event_of_stream(stream_from_object(work, "work"))
            event = found
        if event is not None:
            self.wait_for(event)

    def set(self, signal, value):
        """Queue a set of a signal to a number, after all earlier work. Does not wait for it.

        Parameters
        ----------
        signal : Signal
        value : int
            A number larger than all to which the signal was set before.

        Returns
        -------
        Token

        Raises
        ------
        SignalError
            The number is not larger than the last one.
        BufferBorrowedError
            Another stream or another thread sets the signal, and nothing orders this set after it.
        CaptureError
            Another library captures the stream, or it is captured into a body of a graph.
        TypeError, ValueError
            ``signal`` is no Signal, or ``value`` no integer from 1 to 2**63 - 1; the stream is
            closed; the device cannot set numbers in memory.
        BufferClosedError
            The signal is closed.
        CudaError
            A driver call failed.

        Driver functions: cuStreamWriteValue64, cuEventRecord.
        """
        _import_signals()
        return _set_on_stream(self, signal, value)

    def call(self, function, *buffers):
        """Queue a call of a function of the program: ``function(*arrays)``. Does not wait for it.

        The function runs when all earlier work of the stream is complete, and later work of the
        stream waits for it. It runs in a thread of cudadrv, which runs one function at a time. If
        the stream is captured, each launch of the graph calls the function.

        Parameters
        ----------
        function : callable
            Its result is not used. Inside, every call of cudadrv that uses the driver or queues
            work raises HostFunctionError. An exception of the function is raised by the next wait
            after which the call is known to be complete: `synchronize`, `Token.wait`, ``await``.
            Several ones are raised as an ExceptionGroup. Later work of the stream runs all the
            same.
        *buffers : HostBuffer
            Page-locked or managed buffers, borrowed like the arguments of a kernel: bare ones for
            writing, those in ``cu.read(buffer)`` for reading. The function gets a NumPy array for
            each, read-only for those in ``cu.read``. When the function has returned, the array is
            empty; if something can still reach its memory, the next wait raises
            BufferExportedError, and the buffer stays borrowed until that is gone.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError
            ``function`` is not callable, or is a coroutine function; an argument is a
            `DeviceBuffer` or no buffer; a buffer is passed as ``cu.read`` and as ``cu.write``; the
            stream is closed; or a buffer is managed, and a device lacks
            ``concurrent_managed_access``.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md. Nothing is queued then.
        CaptureError
            The stream is captured into a body of a conditional node, or by another library.
        CudaError
            A driver call failed.

        Driver functions: cuLaunchHostFunc, cuStreamWaitValue64; cuMemHostAlloc for the first call
        of a context, and if more than 512 calls are unfinished.

        >>> token = stream.call(numpy.sort, frames)
        """
        from cudadrv._host_function import call_function
        return call_function(self, function, buffers)

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
        outcome = LENT if self.order.loans else GONE
        if outcome == GONE and self.capture is not NULL:
            self.refuse_captured()
        if outcome == GONE:
            outcome = bury_stream(self.context, self.raw, self.order, self.ours, self.identity)
        if outcome == LENT:
            raise OwnershipError(f"{self!r} is not closed: buffers are lent to it; end their"
                                 " `with buffer.lend(...)` blocks, and drop the arrays that other"
                                 " libraries made of them, first")
        if outcome == CAPTURING:
            self.refuse(STREAM_IS_CAPTURING)

    def __enter__(self):
        """Make this the current stream of its context. See `ordering` about generators."""
        self.usable()
        _blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. The stream stays open, and nothing is waited for."""
        _blocks.leave(self)

    def scope(self):
        """``with stream.scope():`` is ``with stream:`` with a synchronization at the end.

        ``async with stream.scope():`` awaits the stream at the end instead.

        What the block queued on the stream is complete after the block, even if an exception ended
        the block; if waiting then fails, a note is added to that exception. ``as`` yields the
        stream.
        Driver functions: as `synchronize`.
        """
        cdef Scope scope = Scope.__new__(Scope)
        self.usable()
        scope.stream = self
        return scope

    def timed(self):
        """``with stream.timed() as timed:`` measures how long the block's work takes.

        Afterwards ``timed.ms`` is the time in milliseconds between the beginning and the end of
        what the block queued on the stream, as the device measures it. Reading it waits for that
        work; the block itself does not. The block does not make the stream the current one.

        Raises what `record` raises.
        Driver functions: cuEventCreate, cuEventRecord; for ``ms`` cuEventQuery, cuEventElapsedTime.
        """
        cdef Timed timed = Timed.__new__(Timed)
        self.usable()
        timed.stream = self
        return timed

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
            return uninitialized(self)
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
        """Return the stream's name in messages."""
        return stream_name(self.order.number, self.order.kind)

    cdef int usable(self) except -1:
        """Raise if the stream is closed or another thread's, or its context cannot be used."""
        if self.order is NULL:
            refuse_uninitialized(self)
        self.context.usable()
        if self.order.state != OWN_OPEN:
            self.refuse(STREAM_IS_CLOSED)
        if self.thread and self.thread != this_thread():
            raise ValueError(f"{self!r} is another thread's, and the driver would take it for this"
                             " one's; use a stream of your own, or wait for an event of that one")
        return 0

    cdef int look_for_capture(self, bint pushed) noexcept nogil:
        """Return 0 if the stream is not capturing. Otherwise call `leave_context`, and return the
        reason to refuse the call.
        """
        cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
        cdef CUresult status = CUDA_SUCCESS
        if self.exposed & IN_CAPTURE:
            capture = CU_STREAM_CAPTURE_STATUS_ACTIVE
        else:
            status = cuStreamIsCapturing(self.raw, &capture)
        if status == CUDA_SUCCESS and capture == CU_STREAM_CAPTURE_STATUS_NONE:
            return 0
        leave_context(pushed)
        return STREAM_IS_CAPTURING if status == CUDA_SUCCESS else status

    cdef int probe(self) noexcept nogil:
        """Return what `enter_stream` would return now: 0, or a reason why it fails."""
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
            if self.capture is not NULL:
                self.refuse_captured()
            refuse_capture(repr(self))
        if reason == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT and self.context.captures:
            raise CaptureError(
                f"{self.called()} cannot be used during {self.context.captured_by}: it is ordered"
                " with all blocking streams, and one of them is a part of a capture. Use another"
                " stream, or capture streams that are not blocking")
        return self.context.raise_failure(<CUresult>reason)

    cdef int refuse_captured(self) except -1:
        """Raise for a call that cannot be a part of the capture of the stream."""
        raise CaptureError(
            f"{self.called()} is a part of {(<Capturing>self.capture).called()}, and this call"
            " cannot be captured: the block runs nothing, so there is nothing to wait for, and"
            " only copies and fills that do not block, launches, loans, records and waits become a"
            " part of the graph. Call it before the block, or after it")

    cdef Event event_of_stream(self, Stream other):
        """Record an event on another stream, for this stream to wait for.

        If a capture of one of the streams does not allow that wait, raises, and records no event.
        """
        if unlikely(self.capture is not other.capture):
            if other.capture is NULL:
                self.refuse_outside(other.called())
            (<Capturing>other.capture).admit(self)
        self.refuse_legacy()
        return other.waitable()

    cdef int refuse_legacy(self) except -1:
        """Raise if this is the legacy stream, and a capture keeps it from doing work."""
        cdef int reason
        if unlikely(self.context.captures) and self.order.order == OWN_LEGACY:
            with nogil:
                reason = self.probe()
            if reason:
                self.refuse(reason)
        return 0

    cdef int refuse_outside(self, str work) except -1:
        """Raise for a wait of a captured stream for work that is not a part of the capture."""
        raise CaptureError(
            f"{self.called()} is a part of {(<Capturing>self.capture).called()}, and cannot wait"
            f" for {work}, which is not. Order the launch after that work instead:"
            " stream.wait(work), then step.launch(stream)")

    cdef bint finish(self, bint wait, int64_t deadline) except -1:
        """Return whether the work up to this call is complete. If so, update the host's clock.

        If `wait` is true, wait for the work until the deadline.
        """
        cdef own_snapshot snapshot
        cdef int purpose
        check_stream(self)
        line_of_call(self.order, <size_t>self.raw)
        own_snapshot_take(engine, self.order, &snapshot)
        try:
            purpose = UNTIL_DONE if wait and (deadline == FOREVER or deadline > now_ns()) \
                else FOR_PROGRAM
            if _is_idle(self, &snapshot, purpose):
                return True
            return wait and self._wait_long(&snapshot, deadline)
        finally:
            own_snapshot_drop(engine, &snapshot)

    cdef bint _wait_long(self, own_snapshot *snapshot, int64_t deadline) except -1:
        """Wait for an event at the end of the work. Return False if the deadline comes first."""
        return _event_at(self, snapshot).observe(snapshot, deadline)

    cdef Event record_event(self, Event event, own_snapshot *as_of=NULL):
        """Record an event. In the engine the event stands for the snapshot `as_of`.

        If that is NULL, the event stands for all work of the stream so far.
        """
        cdef bint noted = True
        cdef int reason
        check_stream(self)
        line_of_call(self.order, <size_t>self.raw)
        if keeps_gil(self):
            reason = _record(self, event, as_of, &noted)
        else:
            with nogil:
                reason = _record(self, event, as_of, &noted)
        if reason:
            if reason == STREAM_IS_CAPTURING and self.capture is not NULL and as_of is NULL:
                (<Capturing>self.capture).record(self, event)
                return event
            self.refuse(reason)
        if not noted:
            raise MemoryError()
        return event

    cdef int wait_for(self, Event event) except -1:
        """Make later work wait for an event that was recorded."""
        cdef bint noted = True
        cdef int reason
        if unlikely(some_are_open):
            refuse_behind(&event.state.snapshot, event.called(), self.order)
        line_of_call(self.order, <size_t>self.raw)
        if keeps_gil(self):
            reason = _wait(self, event, &noted)
        else:
            with nogil:
                reason = _wait(self, event, &noted)
        if reason:
            if event.in_capture:
                return _wait_in_capture(self, event)
            if reason == STREAM_IS_CAPTURING and self.capture is not NULL:
                self.refuse_outside(event.called())
            self.refuse(reason)
        if not noted:  # the driver has queued the wait, but the engine had no memory to record it
            raise MemoryError()
        return 0


def birth_of_stream(Stream stream not None):
    """Return the stream's birth (_site.pyx)."""
    return stream.birth


cdef int _synchronize(Stream stream, object timeout) except -1:
    """See `Stream.synchronize`. Raises no exceptions of functions that streams have called."""
    cdef int64_t deadline = FOREVER if timeout is None else deadline_of(timeout)
    if not stream.finish(True, deadline):
        refuse_to_wait_longer(f"the work of {stream.called()}", timeout)
    return after_wait()


@cython.final
cdef class Completion:
    """``await Completion(stream)`` raises no exceptions of functions that streams have called."""

    cdef Stream stream

    def __cinit__(self, Stream stream not None):
        self.stream = stream

    def __await__(self):
        return self.stream._completion()


@cython.final
@cython.no_gc_clear
cdef class Scope:
    """Scope(*args, **kwargs)\n--\n
    The context manager of `Stream.scope`.

    It is written in Cython, because a signal can interrupt Python code between any two lines.
    """

    cdef Stream stream
    cdef int entered    # number of blocks that have not ended

    def __dealloc__(self):
        """End a block whose `__exit__` was never called.

        That happens if a signal interrupts the program between `__enter__` and the block's first
        line.
        """
        while self.entered:
            self.entered -= 1
            try:
                _blocks.leave(self.stream)
            except Exception:  # the block was entered in another thread or contextvars.Context
                pass

    def __enter__(self):
        """Make the stream the current one of its context."""
        self.stream.usable()
        _blocks.enter(self.stream)
        self.entered += 1
        return self.stream

    def __exit__(self, kind, exception, traceback):
        """Wait for the work of the stream, and end the block."""
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        try:
            self.stream._finish()
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: the work of {self.stream!r} may be unfinished: {error}")
        finally:
            self.entered -= 1
            _blocks.leave(self.stream)
        if exception is None:
            raise_failures()

    async def __aenter__(self):
        """Make the stream the current one of its context, in this task."""
        return self.__enter__()

    async def __aexit__(self, kind, exception, traceback):
        """Await the work of the stream, and end the block."""
        if not self.entered:
            raise RuntimeError("this block is not entered, or has ended already")
        try:
            await Completion(self.stream)
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: the work of {self.stream!r} may be unfinished: {error}")
        finally:
            self.entered -= 1
            _blocks.leave(self.stream)
        if exception is None:
            raise_failures()

    def __repr__(self):
        return f"<Scope of {self.stream!r}>"


only_made_by(Scope, "use stream.scope()")


@cython.final
cdef class Timed:
    """Timed(*args, **kwargs)\n--\n
    The context manager of `Stream.timed`: the time that a stream takes for the work of a block."""

    cdef Stream stream
    cdef Event begun
    cdef Event ended

    def __enter__(self):
        """Record the beginning. A second block replaces the first one's time."""
        self.ended = None
        self.begun = self.stream.record_event(new_event(self.stream.context, CU_EVENT_DEFAULT))
        return self

    def __exit__(self, kind, exception, traceback):
        """Record the end, unless an exception ends the block."""
        if exception is None:
            self.ended = self.stream.record_event(new_event(self.stream.context, CU_EVENT_DEFAULT))

    @property
    def ms(self):
        """The time in milliseconds. Waits until the work of the block is complete.

        Raises ValueError before the end of the block, and after a block that an exception ended.
        Driver functions: cuEventQuery, cuEventElapsedTime.
        """
        cdef Event begun = self.begun
        cdef Event ended = self.ended   # another thread may enter the block during the wait
        if ended is None:
            raise ValueError(f"{self!r} has no time yet: read it after the block"
                             " `with stream.timed() as timed:`")
        ended.synchronize()
        return ended.elapsed_ms(begun)

    def __repr__(self):
        return f"<Timed work of {self.stream!r}>"


only_made_by(Timed, "use stream.timed()")
hint(Stream, {
    "query": "use done",
    "is_done": "use done",
    "wait_event": "use wait(event)",
    "wait_for_event": "use wait(event)",
    "wait_stream": "use wait(stream)",
    "record_event": "use record()",
    "use": "use `with stream:`",
    "cuda_stream": "use handle",
    "ptr": "use handle",
})


cdef int _import_signals() except -1:
    """Import the functions of _signal once. Few programs use signals, so they are not imported
    before, and an import in each call takes many instructions.
    """
    global _set_on_stream, _wait_on_stream
    if _set_on_stream is None:
        from cudadrv._signal import set_on_stream, wait_on_stream
        _set_on_stream, _wait_on_stream = set_on_stream, wait_on_stream
    return 0


def find_events_of_tokens_with(function):
    """Register the function by which `Stream.wait` finds the event of a token.

    The function gets the stream that waits, and the token.
    """
    global _event_of_token
    _event_of_token = function


cdef Stream stream_for(object stream, Context context):
    """Return the stream of a call: the argument, else the context's current one, else None."""
    return known_stream(stream) if stream is not None else innermost_stream(context, context)


cdef Stream innermost_stream(Context context, Context other):
    """Return the stream of the innermost `with stream:` block of one of two contexts, or None."""
    cdef Entry block = _blocks.innermost()
    while block is not None:
        found = (<Stream>block.thing).context
        if found is context or found is other:
            return block.thing
        block = live(block.outer)
    return None


cdef int refuse_no_stream(str operation, str remark="") except -1:
    """Raise for a call for which `stream_for` has found no stream."""
    cdef Entry block = _blocks.innermost()
    cdef str way = "pass one, or call it inside a `with stream:` block"
    if block is not None:
        stream = <Stream>block.thing
        way = f"{stream.called()} of the `with` block belongs to {stream.context!r}, and what the" \
              " call uses does not; pass a stream"
    raise TypeError(f"{operation} needs a stream: {way}{remark}")


cdef Context context_for(Stream stream, object device):
    """Return the context of a call that takes a stream and a device: the stream's, if there is one,
    else that of the device.
    """
    if stream is None:
        return context_of(device)
    check_stream(stream)
    if device is not None and stream.context.device != device:
        raise ValueError(f"{stream!r} is not a stream of {device!r}")
    return stream.context


# ---- driver calls on a stream ----

cdef bint no_capture_goes_on(Stream stream) noexcept nogil:
    """Whether the driver says that the stream is not capturing."""
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    return cuStreamIsCapturing(stream.raw, &capture) == CUDA_SUCCESS \
        and capture == CU_STREAM_CAPTURE_STATUS_NONE


cdef inline bint _is_idle(Stream stream, own_snapshot *snapshot, int purpose) except -1:
    """Return whether the stream is idle. If so, join the snapshot into the host's clock."""
    cdef int reason
    if keeps_gil(stream) and not stream.context.prints:
        reason = _query(stream, purpose)
    else:
        with nogil:
            reason = _query(stream, purpose)
    if reason == 0:
        own_join_host(engine, snapshot)
    elif reason != CUDA_ERROR_NOT_READY:
        stream.refuse(reason)
    return reason == 0


cdef Event _event_at(Stream stream, own_snapshot *snapshot):
    """Record a new event now. In the engine it stands for the snapshot of the stream."""
    return stream.record_event(new_event(stream.context, CU_EVENT_DISABLE_TIMING), snapshot)


cdef Event _end_of_work(Stream stream):
    """Return an event after the work so far, or None if that work is complete.

    If the work is complete, the host's clock is updated.
    """
    cdef own_snapshot snapshot
    check_stream(stream)
    own_snapshot_take(engine, stream.order, &snapshot)
    try:
        return None if _is_idle(stream, &snapshot, FOR_REUSE) else _event_at(stream, &snapshot)
    finally:
        own_snapshot_drop(engine, &snapshot)


cdef int _query(Stream stream, int purpose) noexcept nogil:
    """Query the stream once, or with UNTIL_DONE for PATIENCE_NS.

    Returns 0, a status, or a reason.
    """
    cdef bint pushed = False
    cdef int64_t until = 0
    cdef int reason
    while True:
        own_mutex_take(stream.order.issue)
        reason = enter_stream(stream, &pushed)
        if reason == 0:
            if purpose != FOR_PROGRAM:
                ask_for(purpose)
            reason = query_stream(stream.raw)
            if purpose != FOR_PROGRAM:
                ask_for(FOR_PROGRAM)
            if reason == CUDA_SUCCESS and stream.context.prints:
                reason = write_prints_of_stream(stream.raw)
            leave_context(pushed)
        own_mutex_give(stream.order.issue)
        if purpose != UNTIL_DONE or reason != CUDA_ERROR_NOT_READY or until and now_ns() > until:
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
    """Record or wait for an event. The caller holds the issue locks of the stream and the event."""
    cdef bint pushed = False
    cdef int reason
    if unlikely(event.raw is NULL or event.unusual):
        return _record_or_wait_unusual(stream, event, record)
    if likely(names_context(stream) and stream.order.state == OWN_OPEN):
        reason = _call_driver(stream, event, record)
        if likely(reason == CUDA_SUCCESS) or is_current(stream.context.raw):
            return reason
    reason = enter_stream(stream, &pushed)
    if reason == 0:
        reason = _call_driver(stream, event, record)
        leave_context(pushed)
    return reason


cdef int _record_or_wait_unusual(Stream stream, Event event, bint record) noexcept nogil:
    cdef bint pushed = False
    cdef int reason = _look_at(event, record)
    if reason == 0:
        reason = enter_stream(stream, &pushed)
    if reason == 0:
        reason = _call_driver(stream, event, record)
        leave_context(pushed)
    if reason == 0 and event.in_capture:
        event.leave_capture()
    return reason


cdef int _look_at(Event event, bint record) noexcept nogil:
    """Return the reason why an event cannot be recorded or waited for; 0 if it can.

    A wait for an event that was recorded in a capture is refused: the stream would join the
    capture.
    """
    if event.raw is NULL or event.closing:
        return EVENT_IS_CLOSED
    if not record and event.in_capture:
        return EVENT_IS_CAPTURED
    if not record and event.exposed \
            and query_event(event.context.raw, event.raw) == CUDA_ERROR_CAPTURED_EVENT:
        return EVENT_IS_CAPTURED
    return 0


cdef inline CUresult _call_driver(Stream stream, Event event, bint record) noexcept nogil:
    if record:
        return cuEventRecord(event.raw, stream.raw)
    return cuStreamWaitEvent(stream.raw, event.raw, 0)


cdef wait_function _wait_in_capture = NULL  # set by _capture


cdef void wait_in_captures_with(wait_function function) noexcept:
    """Register the function by which `Stream.wait` waits for an event of a capture."""
    global _wait_in_capture
    _wait_in_capture = function


# ---- default streams, and streams of other libraries ----

cdef enum:
    MOST_ENDED = 256    # default streams of ended threads that may have unfinished work

_per_thread = local()   # `.end` is the thread's ThreadEnd


@cython.final
cdef class ThreadEnd:
    """Closes a thread's default streams. It is a thread-local object, deallocated at thread end.

    No last events are recorded, because recording could block.
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


# One stream has one object. But while a Python object is made, other threads and finalizers can
# run, and may make the object of the same stream. So the functions below first make all Python
# objects. Then they look for an object of the stream, and if there is none, open the new one and
# add it. Nothing else can run between these two steps.

cdef Stream legacy_stream(object device):
    """See `Stream.legacy`."""
    cdef Context context = context_of(device)
    cdef Stream stream = context.defaults.get("legacy")
    if stream is None:
        stream = _unopened(context, CU_STREAM_LEGACY)
        reference = context.streams.reference_to(stream)
        if "legacy" not in context.defaults:
            _open(stream, reference, OWN_LEGACY)
            context.defaults["legacy"] = stream
        stream = context.defaults["legacy"]
    return stream


cdef Stream per_thread_stream(object device):
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
    """Limit how many default streams have unfinished work although their thread has ended.

    If there are more than MOST_ENDED of them, wait for all work of the context.
    """
    make_room(context)
    if own_unfinished(engine, context.domain) > len(context.ghosts) + MOST_ENDED \
            and may_synchronize(context):
        context.finish()
    return 0


cdef Stream _unopened(Context context, CUstream handle):
    """Make a Stream over a handle that cudadrv does not own. The engine does not know it yet."""
    cdef Stream stream = Stream.__new__(Stream)
    context.usable()
    stream.context = context
    stream.raw = handle
    stream.exposed = HANDED_OUT
    return stream


cdef int _open(Stream stream, object reference, int order) except -1:
    """Register the stream with the engine and its context. Lets no other thread run."""
    stream.open(stream.context, order)
    tag_stream(stream)
    return stream.context.streams.add(reference)


cdef Stream stream_from_object(object thing, str argument):
    """See `Stream.from_object`."""
    if isinstance(thing, Stream):
        return thing
    return stream_from_handle(_handle_of(thing, argument), thing, thing)


cdef object _handle_of(object thing, str argument):
    """Return the handle of another library's stream."""
    # A class of streams is not a stream itself, but `getattr` would find `__cuda_stream__` in it.
    found = None if isinstance(thing, type) else getattr(thing, "__cuda_stream__", None)
    if found is None:
        handle = None if isinstance(thing, type) else getattr(thing, "cuda_stream", None)
        if handle is None or callable(handle):
            wanted = "an Event, Token or Stream (or a Signal, with its number)" \
                if argument == "work" else "a Stream"
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
    """Return the device that another library's stream names, or None if it names none."""
    for name in ("device_index", "device_id"):  # PyTorch's and CuPy's; -1 is the current device
        index = getattr(thing, name, None)
        if type(index) is int and index >= 0:
            return Device(index)
    return None


cdef Stream stream_from_handle(object handle, object owner, object named_by=None):
    """See `Stream.from_handle`.

    `named_by` is the object that the handle of a default stream came from. It may name the device.
    """
    number = handle if type(handle) is int else operator.index(handle)
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
    cdef CUresult status
    cdef Stream stream = _found_again(raw)
    cdef Stream made
    if stream is not None:
        return _owned_by(stream, owner, False)
    context.usable()
    if is_dead(raw):
        raise ValueError(f"the stream with the handle {number:#x} was a Stream that has died, and"
                         " is destroyed with it; keep that alive for as long as the handle is used")
    with nogil:
        status = _describe(raw, &capture, &found, &identity, &flags, &priority)
    if status != CUDA_SUCCESS:
        _refuse_handle(number, status)
    if capture != CU_STREAM_CAPTURE_STATUS_NONE:
        return _captured_stream(number)
    made = _unopened(_context_of_raw(found, number), raw)
    made.identity = identity
    made.priority = priority
    stream = _known_or_opened(
        made, OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING)
    return _owned_by(stream, owner, stream is made)


cdef int _refuse_handle(size_t number, CUresult status) except -1:
    """Raise the error of a driver function that was asked about a handle."""
    try:
        check(status)
    except CudaError as error:
        if status in (CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT):
            raise ValueError(
                f"{number:#x} is not the handle of a stream, or no longer: when a stream is"
                " destroyed, its handle ends. Keep the stream's object alive (owner=) for as long"
                " as the handle is used") from error
        raise


cdef Stream _owned_by(Stream stream, object owner, bint made):
    """Let a stream that was found by its handle keep its owner, and note it for `_found_again`."""
    global _last_found
    if owner is not None and not stream.ours and (made or stream.owner is None):
        stream.owner = owner
    _last_found = <PyObject *>stream
    return stream


cdef Stream _found_again(CUstream raw):
    """Fast path of `_stream_of_raw`: the stream that was last found, if this is still its handle.

    Returns None if that is not certain. Then `_stream_of_raw` makes all checks.
    """
    cdef Stream stream
    if _last_found is NULL or (<Stream>_last_found).raw != raw:
        return None
    stream = <Stream>_last_found
    if stream.order.state != OWN_OPEN or not is_alive(stream.context):
        return None
    if is_only_thread(PyThreadState_Get()):
        same = _is_still(stream)
    else:
        with nogil:
            same = _is_still(stream)
    return stream if same else None


cdef bint _is_still(Stream stream) noexcept nogil:
    """Whether the handle still belongs to the stream, and the stream is not capturing."""
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef unsigned long long identity = 0
    if cuStreamIsCapturing(stream.raw, &capture) != CUDA_SUCCESS \
            or capture != CU_STREAM_CAPTURE_STATUS_NONE:
        return False
    return stream.ours or (cuStreamGetId(stream.raw, &identity) == CUDA_SUCCESS
                           and identity == stream.identity)


cdef Stream _captured_stream(size_t number):
    """Return the stream of a `Graph.capture` that has this handle. Raises if there is none.

    The driver does not tell the identity of a stream that is captured. But the capture keeps the
    stream, so the handle still means it.
    """
    cdef Stream stream
    for context in contexts():
        for stream in (<Context>context).streams.all():
            if stream.capture is not NULL and <size_t>stream.raw == number:
                return stream
    refuse_capture(f"the stream with the handle {number:#x}")


cdef int wait_for_handle(Stream stream, size_t number) except -1:
    """Make a stream wait for all work so far of another library's stream, given by its handle.

    Does what `stream.wait(Stream.from_handle(number))` does, but makes no Stream object if there is
    none for the handle.
    """
    cdef Stream known
    if number == <size_t>stream.raw:
        return 0
    if number <= 2:
        device = stream.context.device
        known = per_thread_stream(device) if number == 2 else legacy_stream(device)
        if known is not stream:
            stream.wait(known)
        return 0
    for known in stream.context.streams.all():
        if <size_t>known.raw == number:
            stream.wait(stream_from_handle(number, None))
            return 0
    return _wait_for_unknown(stream, number)


cdef int _wait_for_unknown(Stream stream, size_t number) except -1:
    cdef bint pushed = False
    cdef Event event = new_event(stream.context, CU_EVENT_DISABLE_TIMING)
    cdef CUstream theirs = <CUstream>number
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef CUresult asked = CUDA_SUCCESS
    cdef int reason
    with nogil:
        own_mutex_take(stream.order.issue)
        reason = enter_stream(stream, &pushed)
        if reason == 0:
            asked = cuStreamIsCapturing(theirs, &capture)
            reason = asked
            if reason == 0 and capture == CU_STREAM_CAPTURE_STATUS_NONE:
                reason = cuEventRecord(event.raw, theirs)
                if reason == 0:
                    reason = cuStreamWaitEvent(stream.raw, event.raw, 0)
            leave_context(pushed)
        own_mutex_give(stream.order.issue)
    if capture != CU_STREAM_CAPTURE_STATUS_NONE:
        refuse_capture(f"the stream with the handle {number:#x}")
    if asked != CUDA_SUCCESS:
        _refuse_handle(number, asked)
    if reason:
        stream.refuse(reason)
    return 0


cdef CUresult _describe(
    CUstream handle, CUstreamCaptureStatus *capture, CUcontext *context,
    unsigned long long *identity, unsigned int *flags, int *priority
) noexcept nogil:
    """Ask the driver about a stream. If the stream is capturing, only `capture` is set, because the
    other queries would end the capture.
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


cdef Context _context_of_raw(CUcontext raw, size_t stream):
    cdef Context usual = default_context()
    if usual.raw == raw:
        return usual
    for context in contexts():
        if (<Context>context).raw == raw:
            return context
    # Another library may use the primary context of a device that cudadrv has not used yet.
    for device in Device.all():
        if is_primary_active(device) and context_of(device).raw == raw:
            return context_of(device)
    raise ValueError(f"the stream with the handle {stream:#x} is of the context {<size_t>raw:#x},"
                     " which is no device's primary context, and is not of Context.create; cudadrv"
                     " knows no others")


cdef Stream _known_or_opened(Stream stream, int order):
    """Return the object that already stands for this stream's handle.

    If there is none, open `stream` and return it.
    """
    cdef Alive streams = stream.context.streams
    cdef Stream known
    cdef bint has_room = False
    reference = streams.reference_to(stream)
    while True:
        added = streams.added
        known = _known_stream(stream)
        if known is not None:
            return known
        if added != streams.added:
            continue
        if _continue_former(stream, reference):
            return stream
        if has_room:
            _open(stream, reference, order)
            _follow_itself(stream)
            return stream
        make_room(stream.context)
        has_room = True


cdef bint _continue_former(Stream stream, object reference) except -1:
    """If an earlier object of the same stream is gone, but its work is not known to be complete,
    open `stream` with the engine's record of that object. Returns whether there was one.

    Lets no other thread run before the stream is open.
    """
    cdef PyObject *owner = NULL
    cdef PyObject *ghost = NULL
    stream.order = take_orphan(stream.context, stream.raw, stream.identity, &owner)
    if stream.order is NULL:
        stream.order = take_ghost(stream.context, stream.identity, &ghost)
    if stream.order is NULL:
        return False
    try:
        tag_stream(stream)
        stream.context.streams.add(reference)
        _follow_itself(stream)
        if ghost is not NULL:
            forget_ghosts(stream.context, <Event>ghost)
        if owner is not NULL:
            stream.owner = <object>owner
    finally:
        Py_XDECREF(owner)
        Py_XDECREF(ghost)
    return True


cdef int _follow_itself(Stream stream) except -1:
    """Order a stream after the work that earlier, closed objects of the same stream queued.

    Lets no other thread run.
    """
    cdef Event ghost
    for ghost in stream.context.ghosts:
        if ghost.identity == stream.identity and ghost.state.recorded \
                and not own_join(engine, stream.order, &ghost.state.snapshot):
            raise MemoryError()
    return 0


cdef Stream _known_stream(Stream wanted):
    """Return the live object of a stream, or None. Drivers reuse handles, but never identities."""
    cdef Stream stream
    for stream in wanted.context.streams.all():
        if stream.raw == wanted.raw and not stream.closed:
            if stream.ours or stream.identity == wanted.identity:
                return stream
            # The driver has given the handle to a newer stream, so the owner of `stream` must have
            # destroyed it. From now on, only Context.synchronize can tell when the work of `stream`
            # is complete.
            own_stream_close(engine, stream.order)
    return None


cdef object user_of(unsigned int slot, uint64_t seq):
    """Close the orphans, then return what `find_user` finds for an operation.

    Also returns None if the operation is known to be complete.
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
    """Return the open Stream of an operation, or the last Event of its closed stream.

    Searches all contexts. Returns None if there is neither, as for the default stream of a thread
    that has ended.
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
    """Whether cuCtxSynchronize may be called: no stream that cudadrv knows is capturing.

    The call would end such a capture.
    """
    cdef Stream stream
    cdef int reason
    if context.captures:  # a captured stream may be another thread's default stream
        return False
    if some_are_open and open_wait_in(NULL) is not None:    # the host may have to end that wait
        return False
    for stream in context.streams.all():
        if not stream.exposed or stream.thread not in (0, this_thread()):
            continue
        with nogil:
            reason = stream.probe()
        if reason not in (0, STREAM_IS_CLOSED):
            return False
    return True
