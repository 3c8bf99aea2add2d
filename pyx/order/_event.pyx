"""Event: a point in a stream's work that streams and the host can wait for."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from cudadrv._device cimport (
    ENDS_EVENT, Context, context_of, is_ended_later, is_usable, raise_failures, refuse_here,
    report_end,
)
from cudadrv._driver cimport (
    CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CU_EVENT_BLOCKING_SYNC, CU_EVENT_DEFAULT,
    CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext, CUevent, CUipcEventHandle,
    CUresult, CUstream, CUstreamCaptureMode, cuStreamQuery, cuStreamSynchronize,
    cuThreadExchangeStreamCaptureMode, cudadrv_table, has_answered, in_cuEventCreate,
    in_cuEventDestroy, in_cuEventElapsedTime, in_cuEventQuery, in_cuEventSynchronize,
    in_cuIpcOpenEventHandle,
)
from cudadrv._engine cimport (
    engine, own_join_host, own_known, own_mutex_give, own_mutex_take, own_snapshot,
    own_snapshot_copy, own_snapshot_drop, own_snapshot_has, own_snapshot_take, own_stream,
)
from cudadrv._errors cimport hint, only_made_by
from cudadrv._names cimport checked_name
from cudadrv._site cimport birth, place
from cudadrv._trace cimport line_of_call

from cudadrv._device import call_after_wait
from cudadrv._errors import (
    CaptureError, CudaError, EventNotRecordedError, OwnershipError, SignalError,
)


# ---- waiting ----
#
# The driver's own waits cannot be interrupted by signals. So the host polls: without a pause at
# first, then with pauses that grow with the time waited, so that a long wait costs little. Linux
# adds about 0.05 ms to each pause, so a pause in a short wait would be a large part of it.

cdef extern from *:
    """
    #include <sched.h>
    #include <time.h>

    static int64_t wait_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void wait_pause(int64_t nanoseconds) {
        struct timespec pause = {0, (long)nanoseconds};
        nanosleep(&pause, NULL);
    }
    """
    int64_t wait_now() noexcept nogil
    void wait_pause(int64_t nanoseconds) noexcept nogil
    int sched_yield() noexcept nogil


cdef enum:
    ALONE_NS = 100_000          # how long to poll before yielding the processor between polls
    SPIN_NS = 4_000_000         # how long to poll without a pause
    SIGNALS_NS = 5_000_000      # how often to check for signals
    LOOK_NS = 100_000_000       # how often to see whether another process has ended
    LONGEST_PAUSE_NS = 500_000
    MOST_SECONDS = 1_000_000_000    # longer timeouts count as no timeout, to avoid an overflow


cdef CUresult query_event(CUcontext context, CUevent event) noexcept nogil:
    """Query an event once, without an effect on the captures of other libraries.

    The event's context is made current, because the driver refuses the query if the thread's
    current context is lost.
    """
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef CUresult status
    cuThreadExchangeStreamCaptureMode(&mode)
    status = in_cuEventQuery(context, event)
    cuThreadExchangeStreamCaptureMode(&mode)
    return status


cdef inline CUresult _ask_stream(
    CUresult (*call)(CUstream) noexcept nogil, CUstream stream
) noexcept nogil:
    """Call a function of a stream, without an effect on the captures of other libraries."""
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef CUresult status
    cuThreadExchangeStreamCaptureMode(&mode)
    status = call(stream)
    cuThreadExchangeStreamCaptureMode(&mode)
    return status


cdef CUresult query_stream(CUstream stream) noexcept nogil:
    """Query a stream of the current context once. The stream must not be capturing."""
    return _ask_stream(cuStreamQuery, stream)


# NVIDIA's driver writes what kernels have printed in calls that block, and not in queries: there a
# thread of the driver writes it later, or never if the program ends before. So if a kernel may have
# printed, a blocking call follows the query that has found the work complete.

cdef CUresult write_prints_of_stream(CUstream stream) noexcept nogil:
    """Let the driver write what kernels on an idle stream of the current context have printed."""
    return _ask_stream(cuStreamSynchronize, stream)


cdef CUresult write_prints_before(CUcontext context, CUevent event) noexcept nogil:
    """Let the driver write what kernels before a complete event have printed.

    The event's context is made current for the reason that `query_event` names.
    """
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef CUresult status
    cuThreadExchangeStreamCaptureMode(&mode)
    status = in_cuEventSynchronize(context, event)
    cuThreadExchangeStreamCaptureMode(&mode)
    return status


cdef CUresult wait_for_event(
    CUcontext context, CUevent event, const own_snapshot *snapshot, int64_t deadline=FOREVER
) except *:
    """Wait for an event; return the last status of cuEventQuery. Raises what signal handlers raise.

    `snapshot` is what the event stands for. Raises OwnershipError if that can never be complete.
    """
    cdef CUresult status
    cdef int64_t start = wait_now()
    cdef int64_t look = start + LOOK_NS
    while True:
        with nogil:
            if deadline > start:
                ask_for(UNTIL_DONE)
            status = _ask(context, event, start, deadline)
            ask_for(FOR_PROGRAM)
        if status != CUDA_ERROR_NOT_READY:
            return status
        PyErr_CheckSignals()
        if wait_now() >= min(look, deadline):
            refuse_endless(snapshot)
            look += LOOK_NS
        if deadline != FOREVER and wait_now() >= deadline:
            return status


cdef int64_t deadline_of(object timeout) except -1:
    """Convert a ``timeout=`` in seconds to the time of `now_ns` at which the wait ends."""
    cdef double seconds
    if timeout is None:
        return FOREVER
    try:
        seconds = timeout
    except TypeError:
        raise TypeError(
            f"timeout must be a number of seconds, or None, not {type(timeout).__name__}") from None
    except OverflowError:  # the timeout is an int that is too large for a float
        seconds = float("inf") if timeout > 0 else -1
    if not seconds >= 0:
        raise ValueError(f"timeout is {timeout!r}, and must be a number of seconds from 0, or None")
    return wait_now() + <int64_t>(seconds * 1e9) if seconds < MOST_SECONDS else FOREVER


cdef int refuse_to_wait_longer(str what, object timeout) except -1:
    raise TimeoutError(f"{what} is not complete after {float(timeout):g} s. Nothing else has"
                       " changed: what it uses stays borrowed, and one may wait again")


cdef int64_t now_ns() noexcept nogil:
    """Return the time of the monotonic clock, in nanoseconds."""
    return wait_now()


cdef void pause_after(int64_t waited) noexcept nogil:
    """Pause between two polls. `waited` is how long the wait has taken so far, in nanoseconds.

    There is no pause in the first 4 ms. Later pauses grow with `waited`.
    """
    if waited > SPIN_NS:
        wait_pause(min(waited // 64, <int64_t>LONGEST_PAUSE_NS))
    elif waited > ALONE_NS:
        sched_yield()


cdef int let_others_go_on() except -1:
    """Pause for a moment, so that another thread can finish something. Checks for signals."""
    with nogil:
        wait_pause(LONGEST_PAUSE_NS)
    PyErr_CheckSignals()
    return 0


cdef CUresult _ask(
    CUcontext context, CUevent event, int64_t start, int64_t deadline
) noexcept nogil:
    cdef int64_t entered = wait_now()
    cdef int64_t now = entered
    cdef CUresult status
    while True:
        status = query_event(context, event)
        if status != CUDA_ERROR_NOT_READY or now - entered > SIGNALS_NS or now >= deadline:
            return status
        pause_after(now - start)
        now = wait_now()


# What queries are for. The software driver can run a program in all orders of its work: it then
# also tries whether an answer that the program gets is early or late. It must not do so for other
# answers, which would only add orders.

cdef void ask_for(int purpose) noexcept nogil:
    """Say what the thread's next queries are for: FOR_PROGRAM, UNTIL_DONE or FOR_REUSE."""
    if cudadrv_table.asks is not NULL:
        cudadrv_table.asks(purpose)


# ---- events ----

BY_STREAM = "waited for by a stream"


cdef class Captured:
    """What an event that was recorded in a capture stands for."""

    cdef str where(self):
        raise NotImplementedError


@cython.final
@cython.no_gc_clear
cdef class Event:
    """Event(*, timing=False, blocking_sync=False, device=None, name=None)\n--\n
    A point in a stream's work.

    ``stream.record(event)`` sets the event to the end of the work that is queued at that time.
    Recording it again moves the event; waits that were queued before still wait for the old point.
    Most programs let ``stream.record()`` make their events.

    Parameters
    ----------
    timing : bool, optional
        Whether `elapsed_ms` can use it. Events without timing are faster.
    blocking_sync : bool, optional
        Whether a thread of another library sleeps, and does not spin, in cuEventSynchronize with
        this event's handle. cudadrv's own long waits always sleep.
    device : Device, optional
        The device whose primary context the event belongs to; default: the current context.
    name : str, optional
        Shown in messages.

    Driver function: cuEventCreate.
    """

    def __init__(self, *, bint timing=False, bint blocking_sync=False, device=None, name=None):
        cdef Context context = context_of(device)
        cdef str label = checked_name(name)
        if self.context is not None:  # checked after context_of, which lets other threads run
            raise TypeError("this Event exists already")
        self.name = label
        _create(self, context, (CU_EVENT_DEFAULT if timing else CU_EVENT_DISABLE_TIMING)
                | (CU_EVENT_BLOCKING_SYNC if blocking_sync else 0))

    def __dealloc__(self):
        _end(self)
        own_snapshot_drop(engine, &self.state.snapshot)

    @property
    def context(self):
        """The context that the event belongs to."""
        return self.context

    @property
    def name(self):
        """The name that the event was given, or None."""
        return self.name

    @property
    def timing(self):
        """Whether `elapsed_ms` can use the event."""
        return self.timing

    @property
    def handle(self):
        """The CUevent as an int, for other libraries. cudadrv does not see how they use it.

        Raises ValueError if the event is closed.
        """
        if self.closed:
            raise ValueError(f"{self.called()} is closed: it has no handle any more")
        self.exposed = self.unusual = True
        return <size_t>self.raw

    @property
    def closed(self):
        """Whether the event was closed."""
        return self.raw is NULL or self.closing

    def close(self):
        """Destroy the event. Queued waits for the event stay in force. Closing twice does nothing.

        Does not block.

        Driver function: cuEventDestroy.
        """
        cdef CUresult status
        cdef CUevent handle = self.raw
        if self.closed:
            return
        refuse_here()
        self.closing = self.unusual = True
        if not self.waiters:
            with nogil:
                status = _destroy(self)
            is_ended_later(status, ENDS_EVENT, <size_t>handle, self.context, None)
            self.context.check(status)

    @property
    def done(self):
        """Whether the work before the event is complete. Does not block.

        If it is True, the host may use what that work used, as after `synchronize`.

        Raises EventNotRecordedError if the event was never recorded, and ValueError if it is
        closed.
        Driver function: cuEventQuery.
        """
        cdef own_snapshot snapshot
        self.refuse_unrecorded("asked for")
        own_snapshot_copy(engine, &self.state.snapshot, &snapshot)
        try:
            return self.complete(&snapshot, 0) == COMPLETE
        finally:
            own_snapshot_drop(engine, &snapshot)

    def synchronize(self, *, timeout=None):
        """Block until the work before the event, as recorded when this call begins, is complete.

        From then on the host may use what that work used. Signals such as Ctrl-C interrupt this.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; 0 asks once. A wait that runs out of time changes nothing.

        Raises
        ------
        TimeoutError
            The work is not complete after that time.
        EventNotRecordedError
            The event was never recorded.
        OwnershipError
            Another thread recorded the event on another stream while this call waited.
        TypeError, ValueError
            The event is closed; the timeout is negative, or is not a number.

        Driver function: cuEventQuery, repeatedly.
        """
        if not self.wait_until(deadline_of(timeout)):
            refuse_to_wait_longer(f"the work before {self.called()}", timeout)
        raise_failures()

    def _finish(self):
        """Like `synchronize`, but raises no exceptions of functions that streams have called."""
        self.wait_until(FOREVER)

    def __await__(self):
        """__await__($self, /)\n--\n
        ``await event`` waits without blocking the event loop.

        It has the same effect as `synchronize`."""
        yield from self._completion()
        raise_failures()

    def _completion(self):
        """Like `__await__`, but raises no exceptions of functions that streams have called."""
        cdef Awaited awaited = Awaited.__new__(Awaited)
        self.refuse_unrecorded("waited for")
        awaited.event = self
        own_snapshot_copy(engine, &self.state.snapshot, &awaited.snapshot)
        if not awaited.settled():
            from cudadrv._await import completion
            yield from completion(awaited).__await__()
            while not awaited.settled():  # the event was recorded again meanwhile
                yield from completion(awaited).__await__()

    def elapsed_ms(self, Event start not None):
        """Return the milliseconds from another event to this one, as the device measured them.

        Both events need ``timing=True`` and must be complete.

        Raises
        ------
        EventNotRecordedError
            One of the events was never recorded.
        ValueError
            One of the events is closed or has no timing; they belong to two contexts; or the
            device reached ``start`` later than this event.
        CudaError
            One of the events is not complete (CUDA_ERROR_NOT_READY): call `synchronize` first.

        Driver function: cuEventElapsedTime.
        """
        cdef float milliseconds = 0
        cdef CUresult status
        for event in (start, self):
            (<Event>event).refuse_unrecorded("timed")
            if not (<Event>event).timing:
                raise ValueError("elapsed_ms needs events with timing=True")
        if start.context is not self.context:
            raise ValueError("elapsed_ms needs two events of one context")
        start.waiters += 1
        self.waiters += 1
        with nogil:
            status = in_cuEventElapsedTime(self.context.raw, &milliseconds, start.raw, self.raw)
        _end_wait(start)
        _end_wait(self)
        if has_answered(status, CUDA_ERROR_NOT_READY):
            raise CudaError(<int>status, "cuEventElapsedTime",
                            "elapsed_ms needs both events complete: synchronize the later one"
                            " first, end.synchronize()")
        self.context.check(status)
        if milliseconds < 0:
            raise ValueError(
                f"the event that elapsed_ms starts from is {-milliseconds:g} ms later than the one"
                " that it ends with: call end.elapsed_ms(start)")
        return milliseconds

    def __repr__(self):
        name = "" if self.name is None else f" {self.name!r}"
        if self.closed:
            return f"<Event{name} closed>"
        state = "recorded" if self.state.recorded else "not recorded"
        return f"<Event{name}{' with timing' if self.timing else ''} {state}>"

    cdef str called(self):
        """Return the event's name in messages."""
        return "the event" if self.name is None else f"Event {self.name!r}"

    cdef int refuse_unrecorded(self, str what) except -1:
        if self.context is not None and not is_usable(self.context):
            self.context.usable()
        if self.raw is NULL or self.closing:
            what = "waited for" if what is BY_STREAM else what
            raise ValueError(f"{self.called()} that is to be {what} is closed")
        if not self.state.recorded:
            self.refuse_now(what)
        return 0

    cdef int refuse_now(self, str what) except -1:
        """Raise for an event that stands for no real work.

        If the event was recorded in a capture, a stream may wait for it: then nothing is raised.
        """
        if self.in_capture and what is BY_STREAM:
            return 0
        if what is BY_STREAM:
            what = "waited for"
        if self.captured is not None:   # in_capture, or another thread is just recording it there
            raise CaptureError(
                f"{self.called()} that is to be {what} was recorded {self.captured.where()} and"
                " stands for nothing outside: that work runs in launches of the graph. Wait for the"
                " token of a launch, or record the event again")
        raise EventNotRecordedError(
            f"{self.called()} that is to be {what} was never recorded, and the driver would"
            " count it as complete. Record it first: stream.record(event)")

    cdef void enter_capture(self) noexcept nogil:
        """Stand for `captured`, from now until the event is recorded outside. The caller has the
        issue lock of the event.
        """
        own_snapshot_drop(engine, &self.state.snapshot)
        self.state.snapshot.seq = 0
        self.state.recorded = 0
        self.in_capture = self.unusual = True

    cdef void leave_capture(self) noexcept nogil:
        """Stand for real work again: the event was recorded outside captures."""
        self.in_capture = False
        self.unusual = self.closing or self.exposed

    cdef bint wait_until(self, int64_t deadline) except -1:
        """Wait for the work before the event, as recorded now.

        Returns False if the deadline comes first.
        """
        cdef own_snapshot snapshot
        self.refuse_unrecorded("waited for")
        own_snapshot_copy(engine, &self.state.snapshot, &snapshot)
        try:
            return self.observe(&snapshot, deadline)
        finally:
            own_snapshot_drop(engine, &snapshot)

    cdef bint observe(self, own_snapshot *snapshot, int64_t deadline=FOREVER) except -1:
        """Wait until the driver's event is complete, and join the snapshot into the host's clock.

        Returns False if the deadline comes first.
        """
        cdef int found = self.complete(snapshot, deadline)
        if found == RECORDED_ELSEWHERE:
            raise OwnershipError(
                f"{self.called()} was recorded on another stream while this call waited for it, so"
                " nothing tells any more when its earlier work is complete; use an event for each"
                " stream")
        return found == COMPLETE

    cdef int complete(self, own_snapshot *snapshot, int64_t deadline) except -1:
        """Ask the driver. If the event is complete, join the snapshot into the host's clock.

        `snapshot` is a copy of the event's own. Returns COMPLETE, UNFINISHED or RECORDED_ELSEWHERE.
        """
        cdef uint64_t recorded
        cdef own_snapshot latest
        while True:
            recorded = self.state.recorded
            status = self.ask(deadline)
            if status == CUDA_ERROR_NOT_READY:
                return UNFINISHED
            self.context.check(status)
            # If another thread has recorded the event meanwhile, the answer is for that record.
            with nogil:
                own_mutex_take(&self.state.issue)
                latest = self.state.snapshot
                if recorded != self.state.recorded:
                    recorded = 0
                own_mutex_give(&self.state.issue)
            if latest.slot != snapshot.slot or latest.seq < snapshot.seq:
                return RECORDED_ELSEWHERE
            if recorded:
                own_join_host(engine, snapshot)
                return COMPLETE

    cdef CUresult ask(self, int64_t deadline) except *:
        """Query the driver's event until it is complete or the deadline comes.

        If the deadline is 0, query the event once.

        If another thread calls close() meanwhile, the handle is destroyed after the last query.
        Raises OwnershipError if a wait can never end.
        """
        cdef CUresult status
        if self.closed:  # another thread may have closed the event since the caller's check
            raise ValueError(f"{self.called()} is closed")
        line_of_call(NULL, 0)
        if not self.state.recorded:     # recorded in a capture, which the query would end
            self.refuse_now("waited for" if deadline else "asked for")
        self.waiters += 1
        try:
            if deadline:
                status = wait_for_event(
                    self.context.raw, self.raw, &self.state.snapshot, deadline)
            else:
                with nogil:
                    status = query_event(self.context.raw, self.raw)
            if status == CUDA_SUCCESS and self.context.prints:
                with nogil:
                    status = write_prints_before(self.context.raw, self.raw)
        finally:
            _end_wait(self)
        return status


@cython.final
@cython.no_gc_clear
cdef class Awaited:
    """An event that a coroutine awaits, with its snapshot at the beginning of the ``await``."""

    cdef Event event
    cdef own_snapshot snapshot

    def __dealloc__(self):
        own_snapshot_drop(engine, &self.snapshot)

    cdef bint settled(self) except -1:
        """Return whether the event is complete. If so, join the snapshot into the host's clock."""
        return self.event.observe(&self.snapshot, 0)

    def _is_complete(self):
        """Whether the driver says that the event is complete. Updates no clock."""
        cdef CUresult status
        self.event.context.usable()
        status = self.event.ask(0)
        if status != CUDA_ERROR_NOT_READY:
            self.event.context.check(status)
            return True
        refuse_endless(&self.snapshot)
        return False


only_made_by(Awaited, "use await event")
hint(Event, {
    "wait": "use stream.wait(event) to let a stream wait, event.synchronize() to wait here",
    "query": "use done",
    "record": "use stream.record(event)",
    "elapsed_time": "use end.elapsed_ms(start)",
    "time_till": "use end.elapsed_ms(start)",
    "is_done": "use done",
})


# ---- work of other processes ----
#
# If a process ends before its work is complete, the driver never completes the events that it has
# recorded, and a stream that waits for one is stuck. The host must not wait for such a stream.

cdef list _others = []      # `OtherWork` that may be unfinished
cdef bint _is_called = False    # whether synchronizations call `_forget_complete`


cdef class OtherWork:
    """Work of another process for which a stream of this one waits."""

    cdef bint has_ended(self) except -1:
        raise NotImplementedError

    cdef object pid(self):
        raise NotImplementedError


cdef int await_other(OtherWork work, const own_stream *order) except -1:
    """Note that the latest operation of a stream waits for work of another process."""
    global _is_called
    if not _is_called:
        _is_called = True
        call_after_wait(_forget_complete)
    _forget_complete()
    for other in _others[:]:     # an event is used again when its earlier work is complete
        if (<OtherWork>other).event is work.event:
            forget_other(other)
    work.slot, work.seq = order.slot, order.settled
    _others.append(work)
    return 0


def _forget_complete():
    """Forget the work that the host knows to be complete."""
    cdef OtherWork work
    for work in _others[:]:
        if own_known(engine, work.slot, work.seq):
            forget_other(work)


cdef int forget_other(OtherWork work) except -1:
    if work in _others:
        _others.remove(work)
    return 0


# ---- open waits ----
#
# A stream may wait for a number of a signal that another process, a kernel or the host sets later.
# Until the program knows that it is set, other streams cannot be ordered after that wait, and
# nothing that cudadrv does by itself waits for it: the host may be the one who sets the number.

cdef list _open_waits = []
some_are_open = False


cdef class OpenWait:
    """A wait of a stream for something that cudadrv does not see."""

    cdef bint is_open(self) noexcept:
        """Whether nothing has told the program that the wait has ended."""
        return False

    cdef str called(self):
        raise NotImplementedError


cdef int open_wait(OpenWait wait) except -1:
    """Note a wait that is to be queued. The caller then sets its slot and number."""
    global some_are_open
    _forget_ended()
    _open_waits.append(wait)
    some_are_open = True
    return 0


cdef int drop_open_wait(OpenWait wait) except -1:
    global some_are_open
    if wait in _open_waits:     # else another thread has dropped it
        _open_waits.remove(wait)
    some_are_open = len(_open_waits) > 0
    return 0


cdef int _forget_ended() except -1:
    cdef OpenWait wait
    for wait in _open_waits[:]:
        if wait.seq and not wait.is_open():
            drop_open_wait(wait)
    return 0


cdef OpenWait open_wait_in(const own_snapshot *snapshot):
    """Return an open wait that a snapshot contains, or None. NULL contains all."""
    cdef OpenWait wait
    _forget_ended()
    for wait in _open_waits:
        if wait.seq and (snapshot is NULL
                         or own_snapshot_has(engine, snapshot, wait.slot, wait.seq)):
            return wait
    return None


cdef OpenWait open_wait_of(const own_stream *order):
    """Return an open wait that a stream's work is ordered after, or None."""
    cdef own_snapshot now
    own_snapshot_take(engine, order, &now)
    try:
        return open_wait_in(&now)
    finally:
        own_snapshot_drop(engine, &now)


cdef int refuse_behind(const own_snapshot *snapshot, str what, const own_stream *order) except -1:
    """Raise if a stream would wait for something behind an open wait of another stream."""
    cdef OpenWait wait = open_wait_in(snapshot)
    if wait is not None and (order is NULL or wait.slot != order.slot):
        raise SignalError(
            f"{what} is behind {wait.called()}, which may never end. No other stream can wait for"
            " it before the program has learned that the number is set: by signal.value,"
            " signal.wait() or signal.set()")
    return 0


cdef int refuse_endless(const own_snapshot *snapshot) except -1:
    """Raise if a snapshot contains a wait for work of a process that ended before the work did.

    Without a snapshot, raise if any stream of this process waits for such work, or has an open
    wait.
    """
    cdef OtherWork other
    cdef OpenWait wait
    if snapshot is NULL and some_are_open:
        wait = open_wait_in(NULL)
        if wait is not None:
            raise SignalError(
                f"this call would wait for {wait.called()}, which may never end. Set that number,"
                " and learn of it by signal.value or signal.wait(), first")
    if not _others:
        return 0
    _forget_complete()
    for other in _others[:]:
        if (snapshot is NULL or own_snapshot_has(engine, snapshot, other.slot, other.seq)) \
                and other.has_ended() and is_unfinished(other.event):
            raise OwnershipError(
                f"this wait would never end: process {other.pid()} has ended with unfinished work,"
                f" and the call at {place(other.site)} has made a stream wait for that work. The"
                " stream is stuck, and the driver can free no memory of its context. End this"
                " process when its other work is done")
    return 0


cdef bint is_unfinished(Event event) except -1:
    """Whether the driver says that the work before the event is not complete."""
    cdef CUresult status
    with nogil:
        status = query_event(event.context.raw, event.raw)
    return status == CUDA_ERROR_NOT_READY


cdef Event new_event(Context context, unsigned int flags):
    """Create an event that is not recorded yet."""
    cdef Event event = Event.__new__(Event)
    _create(event, context, flags)
    return event


cdef Event marker_of(Context context):
    """Return the context's marker: an event that is recorded only for the effect on its stream.

    No stream other than the one that recorded the marker waits for it, so a context needs only one.
    """
    found = context.defaults.get("marker")
    if found is None:
        found = context.defaults.setdefault("marker", new_event(context, CU_EVENT_DISABLE_TIMING))
    return found


cdef Event open_event(Context context, bytes name):
    """Open an event of another process. `name` is its handle for other processes."""
    cdef CUipcEventHandle handle
    cdef Event event = Event.__new__(Event)
    memcpy(&handle, <char *>name, sizeof(handle))
    _create(event, context, CU_EVENT_DISABLE_TIMING, &handle)
    return event


cdef int _create(
    Event event, Context context, unsigned int flags, const CUipcEventHandle *other=NULL
) except -1:
    """Create the driver's event, or open an event of another process."""
    cdef CUresult status
    context.usable()
    event.context = context
    event.timing = not flags & CU_EVENT_DISABLE_TIMING
    with nogil:
        status = in_cuEventCreate(context.raw, &event.raw, flags) if other is NULL \
            else in_cuIpcOpenEventHandle(context.raw, &event.raw, other[0])
        context.check(status)
    event.birth = birth()
    return 0


def birth_of_event(Event event not None):
    """Return the event's birth (_site.pyx)."""
    return event.birth


cdef void _end_wait(Event event) noexcept:
    """End a thread's use of the handle.

    If the event was closed meanwhile, the last thread that used the handle destroys it.
    """
    event.waiters -= 1
    if event.closing and not event.waiters:
        _end(event)


cdef void _end(Event event) noexcept:
    """Destroy the driver's event where no exception can be raised. A failure issues a warning."""
    cdef CUevent handle = event.raw
    cdef CUresult status
    with nogil:
        status = _destroy(event)
    if status != CUDA_SUCCESS:
        report_end(status, ENDS_EVENT, <size_t>handle, event.context, None)


cdef CUresult _destroy(Event event) noexcept nogil:
    """Destroy the driver's event, unless this was done before or the context is lost.

    The handle is also kept if it belongs to another Event (`lent`).
    """
    cdef CUevent handle
    cdef CUresult status
    if cudadrv_table.forked:  # a thread that does not exist in the child may hold the event's lock
        return CUDA_SUCCESS
    own_mutex_take(&event.state.issue)
    handle, event.raw = event.raw, NULL
    own_mutex_give(&event.state.issue)
    if handle is NULL or event.lent or event.context.lost:
        return CUDA_SUCCESS
    status = in_cuEventDestroy(event.context.raw, handle)
    return status
