# cython: nonecheck=True
"""Signal: a number that streams set and wait for: `Stream.set`, and `Stream.wait` with a number.

To the engine, a set is an operation that writes the memory of the number. So two sets that nothing
orders are refused, as two writes of a buffer are. Behind each set an event is recorded, and whoever
waits for the number waits for that event: the driver only knows of an order that events express,
and CUDA warns that work which is ordered by values in memory alone may never run. Sets and waits in
graphs are captured here, and added in `_signal_node`.
"""

import os
import struct
from weakref import WeakValueDictionary

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from cudadrv._capture cimport Capture, GraphNode, Plan, newest_node, number_of
from cudadrv._device cimport Context, Device, context_of, is_function, raise_failures
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE,
    CU_STREAM_WAIT_VALUE_GEQ, CUdeviceptr, CUevent, CUresult, CUstream, cuEventRecord,
    cuStreamWaitValue64, cuStreamWriteValue64,
)
from cudadrv._engine cimport (
    OWN_NON_BLOCKING, OWN_OK, OWN_SHARED, OWN_STRICT, OWN_UNCHECKED, OWN_WRITE, engine, own_access,
    own_conflict, own_engine, own_export, own_export_close, own_export_open, own_known,
    own_record_as, own_snapshot, own_snapshot_drop, own_snapshot_has, own_snapshot_take,
)
from cudadrv._errors cimport close_at_end, only_made_by, refuse_if_forked, refuse_uninitialized
from cudadrv._event cimport (
    FOREVER, OpenWait, deadline_of, drop_open_wait, new_event, now_ns, open_wait, pause_after,
    refuse_to_wait_longer,
)
from cudadrv._memory cimport Memory, allocate_memory, map_segment
from cudadrv._memory_kinds cimport LOCKED
from cudadrv._names cimport (
    CAPTURED_SET, CAPTURED_WAIT, SET, SET_NODE, WAIT, checked_name,
)
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._refusal cimport refuse_closed, refuse_host
from cudadrv._region cimport (
    Region, borrow, fill_in, items_of, pointer_of, queue, refuse_regions,
)
from cudadrv._release cimport drain, is_idle
from cudadrv._segment cimport Segment, load_word, new_segment, open_segment, store_word
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream, check_stream
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._errors import CaptureError, OwnershipError, SignalError, integer

cdef object MOST = 2 ** 63 - 1


@cython.final
cdef class Word(Region):
    """The memory of a signal's number."""

    def __cinit__(self):
        self.kind = LOCKED
        self.host_side = self.portable = True

    cdef str describe(self):
        return self.memory.label


@cython.final
cdef class Point:
    """A set that is not known to be complete."""

    cdef bint is_known(self) noexcept:
        """Whether the host knows that the set is complete. False if it is not queued yet.

        Nothing runs in a lost context any more, so it is not known whether the number was set.
        """
        return self.event.state.recorded and not self.event.context.lost and own_known(
            engine, self.event.state.snapshot.slot, self.event.state.snapshot.seq)


@cython.final
cdef class Signal:
    """Signal(*, external=False, device=None, name=None)\n--\n
    A number that only grows: streams set it, and streams and the host wait until it is reached.

    It is 0 at first. ``stream.set(signal, n)`` sets it when all earlier work of the stream is
    complete. ``stream.wait(signal, n)`` lets a stream wait until it is at least ``n``: the stream
    waits for the first set to ``n`` or more that is queued by then, and is ordered after all work
    before that set, as by an event. In contrast to events, one signal counts many steps.

    Parameters
    ----------
    external : bool, optional
        Whether others set it, too, whom cudadrv does not see: other processes, kernels, or the host
        after a stream already waits. Such a signal can be pickled, and so be sent to processes of
        the same user on this machine. Streams can wait for numbers that nothing queued sets
        (docs/signals.md).
    device : Device, optional
        The device in whose primary context its memory is; default: the current context. Streams of
        all devices can use it.
    name : str, optional
        Shown in messages.

    Raises ValueError if the device cannot set numbers in memory.
    Driver functions: cuMemHostAlloc; cuMemHostRegister for an external signal.
    """

    def __init__(self, *, bint external=False, device=None, name=None):
        cdef Word word = Word.__new__(Word)
        cdef Memory memory
        cdef Context context = context_of(device)
        name = checked_name(name)
        label = "Signal" if name is None else f"Signal {name!r}"
        refuse_without_signals(context.device)
        if external:
            _make_external(self, context, name, _new_segment())
            return
        memory = allocate_memory(
            LOCKED, context, sizeof(uint64_t), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
            None, label, True)
        fill_in(word, memory, 1, items_of("u8").dtype, sizeof(uint64_t), name)
        store_word(_place(word), 0)
        if self.word is not None:
            raise TypeError(f"this {self.word.describe()} exists already")
        self.word, self.points = word, []

    @property
    def context(self):
        """The context that its memory belongs to."""
        return word_of(self).memory.context

    @property
    def device(self):
        """The device of that context."""
        return word_of(self).memory.context.device

    @property
    def name(self):
        """The name that the signal was given, or None."""
        return word_of(self).name

    @property
    def external(self):
        """Whether others set it, too, whom cudadrv does not see."""
        return self.external

    @property
    def address(self):
        """The address of the number, 8 bytes, as an int. cudadrv does not see how it is used."""
        self.usable()
        return pointer_of(self.word)

    @property
    def closed(self):
        """Whether the signal was closed."""
        return word_of(self).memory.state.closed

    @property
    def value(self):
        """The number that is reached. Does not block.

        The host may use what was used by the work before the set to this number, as after `wait`.
        In a function that a stream calls, it is the number in memory, and says nothing of that.

        Raises BufferClosedError if the signal is closed, and ContextLostError if an error has lost
        the context of a set.
        Driver function: cuEventQuery, for sets that are not known to be complete.
        """
        cdef Point point
        word_of(self)
        if is_function():
            self.usable_in_function()
            return load_word(_place(self.word))
        self.usable()
        for point in self.points[:]:
            if not point.event.state.recorded or not point.event.done:
                break
        self.forget_known()
        return self.look() if self.external else self.reached

    def set(self, value):
        """Set the number now, from the host. Functions that streams call may do so, too.

        All earlier sets must be known to be complete.

        Raises
        ------
        BufferBorrowedError
            A stream sets it, and this is not known to be complete.
        SignalError
            The number is not larger than the last one.
        TypeError, ValueError
            It is no integer from 1 to 2**63 - 1.
        BufferClosedError
            The signal is closed.
        """
        cdef own_access access
        cdef own_export view
        cdef own_conflict conflict
        cdef uint64_t number = checked_number(value, self)
        if is_function():
            self.usable_in_function()
        else:
            self.usable()
        borrow_set(self, &access)
        access.policy = OWN_STRICT
        answer = own_export_open(engine, &access, here(), &view, &conflict)
        if answer != OWN_OK:
            refuse_host(answer, &conflict, "set", self.called())
        # No thread can queue a set while the engine has this view.
        is_larger = number > self.last()
        if is_larger:
            self.queued = self.reached = self.seen = number
            self.site = here()
            store_word(_place(self.word), number)
        own_export_close(engine, &view)
        if not is_larger:
            _refuse_smaller(self, number)
        self.forget_known()

    def wait(self, value, *, timeout=None):
        """Block until the number is reached. Signals of the system such as Ctrl-C interrupt this.

        From then on the host may use what was used by the work before the first set to this number
        or more that is queued now; for an external signal, by the work before the sets of this
        process to less, too.

        Parameters
        ----------
        value : int
        timeout : float, optional
            Seconds to wait at most; 0 asks once. A wait that runs out of time changes nothing.

        Raises
        ------
        TimeoutError
            The number is not reached after that time.
        SignalError
            No set to this number or more is queued, so the wait would never end.
        TypeError, ValueError
            The number is no integer from 0 to 2**63 - 1; the timeout is negative or not a number.
        BufferClosedError
            The signal is closed.
        ContextLostError
            An error has lost the context of the set.

        Driver function: cuEventQuery, repeatedly.
        """
        cdef uint64_t number = checked_number(value, self)
        deadline = deadline_of(timeout)
        self.usable()
        point = self.point_at(number, "a wait")
        if point is not None and not point.event.wait_until(deadline):
            refuse_to_wait_longer(f"the set of {self.called()} to {point.number}, queued at"
                                  f" {place(point.site)},", timeout)
        if self.external and not _wait_for_memory(self, number, deadline):
            raise TimeoutError(f"{self.called()} is not set to {number} after {float(timeout):g} s."
                               " Nothing has changed, and one may wait again")
        raise_failures()

    def at(self, value):
        """``await signal.at(n)`` waits as `wait` does, without blocking the event loop.

        Raises what `wait` raises.
        """
        cdef Reached reached = Reached.__new__(Reached)
        cdef uint64_t number = checked_number(value, self)
        self.usable()
        reached.point = self.point_at(number, "a wait")
        if self.external:
            reached.signal, reached.number = self, number
        return reached

    def __reduce__(self):
        """Return what pickle sends to another process of the same user: an external signal there
        has the same number. This process has to keep the signal open until it has arrived.
        """
        cdef Segment segment
        self.usable()
        if not self.external:
            raise TypeError(f"{self.called()} cannot be sent to other processes: make it with"
                            " cudadrv.Signal(external=True)")
        segment = self.word.memory.owner
        data = PICKLED.pack(MAGIC, os.getpid(), segment.file, self.identity)
        return opened, (data + (self.word.name or "").encode(),)

    def close(self):
        """Close the signal. Closing twice does nothing. Queued waits for it stay in force.

        An external signal is closed in this process only.

        Raises BufferBorrowedError, and leaves the signal open, while a set of a stream, a wait for
        a number that others set, or the work of a kernel that uses it is not known to be complete.
        """
        if word_of(self).memory.state.closed:
            return
        self.word.memory.close(None, OWN_STRICT)
        self.points = []
        drain(False)

    def __enter__(self):
        """``with signal:`` closes it at the end of the block."""
        self.usable()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the signal.

        If closing fails while an exception propagates, a note is added to that exception.
        """
        close_at_end(self, exception, "signal")

    def __repr__(self):
        if word_of(self).memory.state.closed:
            return f"<{self.called()} closed>"
        self.forget_known()
        queued = f", {self.queued} queued" if self.queued > self.reached else ""
        return f"<{self.called()}: {self.reached} reached{queued}>"

    cdef str called(self):
        """Return the signal's name in messages."""
        return self.word.memory.label

    cdef int usable(self) except -1:
        """Raise if the signal is closed, its context is lost, or the process is forked."""
        return word_of(self).usable()

    cdef int usable_in_function(self) except -1:
        refuse_if_forked()
        if self.word.memory.state.closed:
            refuse_closed(self.called(), self.word.memory.closed_at)
        return 0

    cdef int forget_known(self) except -1:
        """Forget the sets that the host knows to be complete."""
        cdef Point point
        cdef Py_ssize_t known = 0
        for point in self.points:
            if not point.is_known():
                break   # and so are all behind it, because sets are ordered
            self.reached = max(self.reached, point.number)
            known += 1
        if known:
            del self.points[:known]     # last: destroying their events may find the context lost
        return 0

    cdef int add(self, Point point) except -1:
        """Add a set that is to be queued. Keeps the order of the numbers."""
        cdef Py_ssize_t at = len(self.points)
        while at and (<Point>self.points[at - 1]).number > point.number:
            at -= 1
        self.points.insert(at, point)
        return 0

    cdef int drop(self, Point point) except -1:
        if point in self.points:    # else another thread has dropped it
            self.points.remove(point)
        return 0

    cdef Point point_at(self, uint64_t number, str waits):
        """Return the first queued set to a number or more; None if the host knows of its end.

        If there is none, returns None for an external signal, else raises SignalError. `waits` is
        the wait in messages.
        """
        cdef Point point
        cdef Py_ssize_t at
        self.forget_known()
        if number <= self.reached:
            return None
        for at in range(_first_at(self.points, number), len(self.points)):
            point = self.points[at]
            if point.event.state.recorded:
                return point
        if not self.external:
            _refuse_dead(self, number, waits)
        return None

    cdef uint64_t look(self) noexcept:
        """Return the number in memory, which the program then knows."""
        self.seen = max(self.seen, load_word(_place(self.word)))
        return self.seen

    cdef uint64_t last(self) noexcept:
        """Return the largest number that is known to be set or queued."""
        return max(self.queued, load_word(_place(self.word))) if self.external else self.queued


@cython.final
cdef class Reached:
    """Reached(*args, **kwargs)\n--\n
    A number of a signal that a coroutine can await: see `Signal.at`.
    """

    cdef Point point
    cdef Signal signal      # None unless it is external
    cdef uint64_t number

    def __await__(self):
        """__await__($self, /)\n--\n
        Wait without blocking the event loop."""
        if self.point is not None:
            yield from self.point.event._completion()
        if self.signal is not None and self.signal.look() < self.number:
            from cudadrv._await import completion
            yield from completion(self).__await__()
        if self.signal is not None:
            self.signal.look()
            _finish_sets(self.signal, FOREVER)
        raise_failures()

    def _is_complete(self):
        """Whether memory has the number. Called by the thread that watches what is awaited."""
        self.signal.usable()
        return load_word(_place(self.signal.word)) >= self.number


only_made_by(Reached, "use signal.at(n)")


# ---- calls of streams ----

cdef struct Setting:
    CUdeviceptr address
    uint64_t number
    uint64_t *queued        # the largest number that is queued; guarded by the engine's records
    CUevent event
    bint too_late           # another thread has queued this number or a larger one


cdef CUresult _set_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Setting *setting = <Setting *>arguments
    cdef CUresult status
    if setting.number <= setting.queued[0]:
        setting.too_late = True
        return CUDA_ERROR_INVALID_VALUE
    status = cuStreamWriteValue64(stream, setting.address, setting.number, 0)
    if status == CUDA_SUCCESS:
        queued[0] = True
        setting.queued[0] = setting.number
        # After the write, because waits of the host for the event promise that number.
        status = cuEventRecord(setting.event, stream)
    return status


def set_on_stream(Stream stream not None, signal, value):
    """See `Stream.set`."""
    cdef uint64_t number
    cdef Point point
    cdef bint issued = False
    check_signal(signal, "stream.set")
    number = checked_number(value, signal)
    (<Signal>signal).usable()
    check_stream(stream)
    refuse_without_signals(stream.context.device)
    if stream.capture is not NULL:
        return _capture_set(signal, number, stream)
    (<Signal>signal).forget_known()
    if number <= (<Signal>signal).last():
        _refuse_smaller(signal, number)
    point = Point.__new__(Point)
    point.number, point.site = number, here()
    point.event = new_event(stream.context, CU_EVENT_DISABLE_TIMING)
    (<Signal>signal).add(point)
    try:
        token = _queue_set(signal, point, stream)
        issued = True
    finally:
        if not issued:
            (<Signal>signal).drop(point)
    return token


cdef Token _queue_set(Signal signal, Point point, Stream stream):
    cdef Operation operation
    cdef own_access access
    cdef Setting setting
    cdef Token token = new_token(stream, None, None)
    borrow_set(signal, &access)
    setting.address, setting.number = pointer_of(signal.word), point.number
    setting.queued, setting.event, setting.too_late = &signal.queued, point.event.raw, False
    prepare(&operation, SET, &access, 1, _set_call, &setting)
    reason = issue(&operation, stream, NULL, False)
    if setting.too_late:
        _refuse_smaller(signal, point.number)
    if reason:
        refuse_regions(&operation, reason, stream, signal.word, None)
    signal.site = point.site
    own_record_as(engine, &operation.request.issued, &point.event.state)
    stand_for(token, &operation)
    token.asked = point.event
    return token


def wait_on_stream(Stream stream not None, signal, value):
    """See `Stream.wait`."""
    cdef uint64_t number
    cdef Point point
    check_signal(signal, "stream.wait")
    number = checked_number(value, signal)
    (<Signal>signal).usable()
    check_stream(stream)
    if stream.capture is not NULL:
        _capture_wait(signal, number, stream)
        return
    point = (<Signal>signal).point_at(number, "a wait")
    if point is not None:
        stream.wait_for(point.event)
    elif (<Signal>signal).external and number > (<Signal>signal).reached:
        _queue_open_wait(signal, number, stream)


# ---- captures ----
#
# A set in a graph has another number in each launch, so a wait for it in the same graph is an edge,
# as a wait for an event is. A wait for a number that is set outside the graph is a node.

cdef struct Numbered:
    CUdeviceptr address
    uint64_t number


cdef CUresult _capture_set_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Numbered *wanted = <Numbered *>arguments
    return cuStreamWriteValue64(stream, wanted.address, wanted.number, 0)


cdef CUresult _wait_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Numbered *wanted = <Numbered *>arguments
    return cuStreamWaitValue64(stream, wanted.address, wanted.number, CU_STREAM_WAIT_VALUE_GEQ)


cdef Token _capture_set(Signal signal, uint64_t number, Stream stream):
    cdef Operation operation
    cdef own_access access
    cdef Numbered wanted = Numbered(pointer_of(signal.word), number)
    cdef Capture capture = _capture_of(signal, stream)
    cdef Token token = new_token(stream, None, None)
    refuse_smaller_in(capture.plan, signal, number)
    borrow_set(signal, &access)
    prepare(&operation, CAPTURED_SET, &access, 1, _capture_set_call, &wanted)
    # Not `queue`: if the capture has just ended, the set must not go to the stream.
    reason = capture.issue(stream, &operation.request, _capture_set_call, &wanted)
    if reason:
        refuse_regions(&operation, reason, stream, signal.word, None)
    stand_for(token, &operation)
    number_node(token.asked, signal, number)
    return token


cdef int _capture_wait(Signal signal, uint64_t number, Stream stream) except -1:
    cdef Operation operation
    cdef own_access access
    cdef Numbered wanted = Numbered(pointer_of(signal.word), number)
    cdef Capture capture = _capture_of(signal, stream)
    cdef GraphNode node = set_in(capture.plan, signal, number)
    refuse_without_signals(stream.context.device)
    if node is not None:
        return _order_after_node(capture, stream, node, number)
    borrow(signal.word, &access, OWN_SHARED)
    prepare(&operation, CAPTURED_WAIT, &access, 1, _wait_call, &wanted)
    reason = capture.issue(stream, &operation.request, _wait_call, &wanted)     # as for a set
    if reason:
        refuse_regions(&operation, reason, stream, signal.word, None)
    return number_node(newest_node(None, None), signal, number)


cdef int _order_after_node(
    Capture capture, Stream stream, GraphNode node, uint64_t number
) except -1:
    """Order a stream after a node that sets a signal to the number or more."""
    if _is_after(capture, stream, node):
        return 0
    if node.capture is not <void *>capture:     # it was added or captured before
        raise CaptureError(
            f"{node.called()} of {capture.graph} sets {(<Signal>node.signal).called()} to"
            f" {number_of(node)}, and {stream.called()}, which waits for {number}, is not ordered"
            " after it. Begin the capture after that node: graph.capture(stream, after=[node])")
    check_stream(node.stream)
    return stream.wait_for(capture.event_after(node))


cdef Capture _capture_of(Signal signal, Stream stream):
    """Return the capture of a stream. Raises CaptureError if it cannot have a set or a wait."""
    cdef Capture capture = <Capture>stream.capture
    if capture.joined:
        raise CaptureError(
            f"{signal.called()} cannot be set or waited for in {capture.called()}: launches of"
            " another library's graph are unknown to cudadrv, and each needs another number. Set it"
            " or wait for it before or after such a launch")
    if capture.plan.outer is not NULL:
        refuse_in_body(signal, capture.graph)
    return capture


cdef int refuse_in_body(Signal signal, str body) except -1:
    raise CaptureError(
        f"{signal.called()} cannot be set or waited for in {body}: the driver has no such nodes in"
        " bodies of conditional nodes. Set it or wait for it before or after the conditional node")


cdef int number_node(GraphNode node, Signal signal, uint64_t number) except -1:
    """Note what a new node sets or waits for."""
    node.signal = signal
    memcpy(node.settings, &number, sizeof(number))
    return 0


cdef GraphNode set_in(Plan plan, Signal signal, uint64_t number):
    """Return the first node of a graph that sets a signal to a number or more, or None."""
    cdef GraphNode node
    for node in () if plan is None else plan.nodes:
        if node is not None and node.kind == SET_NODE and node.signal is signal \
                and number_of(node) >= number:
            return node
    return None


cdef int refuse_smaller_in(Plan plan, Signal signal, uint64_t number) except -1:
    """Raise unless a number is larger than all to which the nodes of a graph set the signal."""
    cdef GraphNode node
    if number == 0:
        _refuse_zero(signal)
    node = set_in(plan, signal, number)
    if node is not None:
        raise SignalError(
            f"{signal.called()} cannot be set to {number}: it only grows, and {node.called()} of"
            f" {plan.graph} sets it to {number_of(node)}. Set it to more")
    return 0


cdef bint _is_after(Capture capture, Stream stream, GraphNode node) noexcept:
    """Whether a stream of a capture is ordered after a node of the graph."""
    cdef own_engine *books = &capture.plan.engine
    cdef own_snapshot now
    cdef bint found
    own_snapshot_take(books, capture.orders[<size_t>capture.slots[stream]], &now)
    found = own_snapshot_has(books, &now, node.snapshot.slot, node.snapshot.seq)
    own_snapshot_drop(books, &now)
    return found


# ---- external signals ----

cdef int _queue_open_wait(Signal signal, uint64_t number, Stream stream) except -1:
    """Let a stream wait for a number in memory, which nothing orders it after."""
    cdef Operation operation
    cdef own_access access
    cdef Numbered wanted = Numbered(pointer_of(signal.word), number)
    cdef Unset wait = unset_wait(signal, number, stream)
    refuse_without_signals(stream.context.device)
    borrow(signal.word, &access, OWN_SHARED)
    prepare(&operation, WAIT, &access, 1, _wait_call, &wanted)
    open_wait(wait)
    try:
        queue(&operation, stream, signal.word)
        wait.slot, wait.seq = operation.request.issued.slot, operation.request.issued.seq
        own_snapshot_drop(engine, &operation.request.issued)
    finally:
        if not wait.seq:
            drop_open_wait(wait)
    return 0


cdef Unset unset_wait(Signal signal, uint64_t number, Stream stream):
    """Return an open wait that is to be queued. Raises SignalError if the stream cannot have it."""
    cdef Unset wait = Unset.__new__(Unset)
    if stream.order.order != OWN_NON_BLOCKING:
        raise SignalError(
            f"{stream.called()} cannot wait for {signal.called()} at {number}: nothing that is"
            " queued sets it, so the wait may never end, and the legacy default stream would wait"
            " for it, too. Use a stream that is not blocking: cudadrv.Stream()")
    wait.signal, wait.number, wait.stream, wait.site = signal, number, stream.called(), here()
    return wait


@cython.final
cdef class Unset(OpenWait):
    """A wait for a number of an external signal, which others set later."""

    cdef bint is_open(self) noexcept:
        return self.number > self.signal.seen and not own_known(engine, self.slot, self.seq)

    cdef str called(self):
        return f"the wait of {self.stream} for {self.signal.called()} at {self.number}," \
               f" queued at {place(self.site)}"


cdef bint _wait_for_memory(Signal signal, uint64_t number, int64_t deadline) except -1:
    """Wait until an external signal has a number. Returns False if the deadline comes first."""
    cdef int64_t start = now_ns()
    cdef int64_t now = start
    while signal.look() < number:
        if now >= deadline:
            return False
        if now - start > LOOK_NS:   # so that a lazy driver runs work that sets it
            is_idle(signal.word.memory.context)
        with nogil:
            pause_after(now - start)
        PyErr_CheckSignals()
        signal.usable()
        now = now_ns()
    return _finish_sets(signal, deadline)


cdef bint _finish_sets(Signal signal, int64_t deadline) except -1:
    """Wait for the sets of this process up to the number in memory, which was set after them.

    Returns False if the deadline comes first.
    """
    cdef Point point
    cdef Py_ssize_t end = _first_at(signal.points, signal.seen + 1)
    if end == 0:
        return True
    point = signal.points[end - 1]
    return not point.event.state.recorded or point.event.wait_until(deadline)


# What pickle sends for an external signal: MAGIC, the process, its file descriptor of the memory,
# and 16 random bytes. The memory contains the same bytes, so a reused descriptor is noticed. The
# name follows.
cdef object PICKLED = struct.Struct("<8sIi16s")
cdef bytes MAGIC = b"CUDASIG1"
cdef str SEGMENT = "cudadrv-signal"
cdef object _external = WeakValueDictionary()   # the external signals of this process

cdef enum:
    PAGE = 4096
    IDENTITY = 64   # where the random number is in the memory
    LOOK_NS = 1_000_000


cdef int _make_external(Signal signal, Context context, str name, Segment segment) except -1:
    cdef Word word = Word.__new__(Word)
    label = "Signal" if name is None else f"Signal {name!r}"
    memory = map_segment(context, segment, label)
    fill_in(word, memory, 1, items_of("u8").dtype, sizeof(uint64_t), name)
    if signal.word is not None:
        raise TypeError(f"this {signal.word.describe()} exists already")
    signal.external = True
    signal.identity = (<char *>segment.address)[IDENTITY:IDENTITY + 16]
    signal.word, signal.points = word, []
    signal.look()
    _external[signal.identity] = signal
    return 0


cdef Segment _new_segment():
    cdef Segment segment = new_segment(SEGMENT, PAGE)
    cdef bytes identity = os.urandom(16)
    memcpy(<char *>segment.address + IDENTITY, <const char *>identity, 16)
    return segment


def opened(data):
    """Return the external signal of some bytes, for pickle."""
    cdef Signal signal
    cdef Segment segment
    magic, pid, file, identity = PICKLED.unpack_from(data)
    if magic != MAGIC:
        raise ValueError("these bytes are no signal")
    known = _external.get(identity)
    if known is not None:
        return known
    segment = open_segment(pid, file, SEGMENT, PAGE)
    if (<char *>segment.address)[IDENTITY:IDENTITY + 16] != identity:
        raise OwnershipError("the process that has sent the signal has closed it since")
    signal = Signal.__new__(Signal)
    name = data[PICKLED.size:].decode() or None
    _make_external(signal, context_of(None), name, segment)
    return signal


# ---- checks ----

cdef Region word_of(Signal signal):
    """Return the memory of a signal. Raises TypeError if its ``__init__`` never ran."""
    if signal.word is None:
        refuse_uninitialized(signal)
    return signal.word


cdef void *_place(Word word) noexcept:
    """Return where the number is."""
    return <void *><size_t>pointer_of(word)


cdef int borrow_set(Signal signal, own_access *access) except -1:
    """Fill in the access of a set. The order of sets is always checked."""
    borrow(signal.word, access, OWN_WRITE)
    if access.policy == OWN_UNCHECKED:
        access.policy = OWN_STRICT
    return 0


cdef Py_ssize_t _first_at(list points, uint64_t number) noexcept:
    """Return where the first point with a number or more is."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = len(points)
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if (<Point>points[middle]).number < number:
            low = middle + 1
        else:
            high = middle
    return low


cdef int check_signal(object given, str call) except -1:
    if type(given) is not Signal:
        raise TypeError(f"{call}(signal, n) takes a Signal and a number, and not"
                        f" {type(given).__name__}")
    word_of(given)
    return 0


cdef uint64_t checked_number(object value, Signal signal) except? 0:
    """Return a number of a signal. Raises TypeError or ValueError if no signal can have it."""
    word_of(signal)
    number = integer(value, "the number of a signal")
    if not 0 <= number <= MOST:
        raise ValueError(f"{signal.called()} cannot be {number}: its number is from 0 to 2**63 - 1")
    return number


cdef int refuse_without_signals(Device device) except -1:
    if not device.attribute_value(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS):
        raise ValueError(f"{device!r} cannot set numbers in memory"
                         " (can_use_64_bit_stream_mem_ops is 0), so its streams take no signals;"
                         " use events")
    return 0


cdef int _refuse_smaller(Signal signal, uint64_t number) except -1:
    if signal.last() > signal.queued:
        raise SignalError(f"{signal.called()} cannot be set to {number}: it only grows, and is"
                          f" {signal.last()} already")
    if signal.queued == 0:
        _refuse_zero(signal)
    raise SignalError(
        f"{signal.called()} cannot be set to {number}: it only grows, and"
        f" {place(signal.site)} has set it to {signal.queued}. Set it to {signal.queued + 1} or"
        " more")


cdef int _refuse_zero(Signal signal) except -1:
    raise SignalError(f"{signal.called()} cannot be set to 0: that is its first number, and it only"
                      " grows")


cdef int _refuse_dead(Signal signal, uint64_t number, str waits) except -1:
    last = "nothing sets it" if signal.queued == 0 else \
        f"its last number is {signal.queued}, set at {place(signal.site)}"
    raise SignalError(
        f"{waits} for {signal.called()} at {number} would never end: {last}. Queue the set first:"
        f" stream.set(signal, {number}). If another process, a kernel or the host sets it later:"
        " cudadrv.Signal(external=True)")
