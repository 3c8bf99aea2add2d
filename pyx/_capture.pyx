"""Capture: streams whose operations become a graph, and are checked against each other.

A captured operation takes the way of all operations up to `issue_unusual`. There it gets another
request, for the engine of the capture. In that engine the streams and the memory have no work but
that of the capture, so the functions that check all operations find the conflicts inside the graph.
The process's engine learns nothing of the capture, except that the memory must not be closed.

The driver gets the operation as always. It captures in the relaxed mode, so that calls of other
threads and of destructors do not end the capture.

Outlives a call: the newest node, for its token (the GIL guards it).
"""

cimport cython
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from cudadrv._driver cimport (
    CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_CAPTURE_STATUS_NONE, CUgraph, CUresult, CUstreamCaptureStatus, bind_driver,
    cuEventRecord, cuGraphDestroy, cuStreamBeginCapture, cuStreamEndCapture, cuStreamIsCapturing,
    cuStreamWaitEvent, cudadrv_table,
)
from cudadrv._device cimport enter_context, leave_context, report_in
from cudadrv._engine cimport (
    OWN_LEGACY, OWN_MEMORY_CLOSED, OWN_MUST_WAIT, OWN_NON_BLOCKING, OWN_OK, OWN_OPEN, OWN_USES,
    engine, own_access, own_begin, own_clock, own_domain_open, own_engine_end, own_engine_prepare,
    own_hold, own_hold_close, own_hold_open, own_is_joined, own_lock_both, own_memory,
    own_memory_clear, own_memory_prepare, own_mutex, own_mutex_give, own_mutex_take, own_request,
    own_settle, own_snapshot, own_snapshot_copy, own_snapshot_drop, own_snapshot_take, own_stream,
    own_stream_close, own_stream_open, own_stream_release, own_undo, own_unlock_both, own_wait,
)
from cudadrv._event cimport Captured, Event, new_event
from cudadrv._names cimport (
    COPY_FROM_ASYNC, COPY_TO_ASYNC, FILL_ASYNC, LAUNCH, forget_graph, operation_name,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport (
    CAPTURE_HAS_ENDED, EVENT_IS_CLOSED, HANDED_OUT, IN_CAPTURE, REFUSED, STREAM_IS_CAPTURING,
    STREAM_IS_CLOSED, Capturing, Stream, driver_call, wait_in_captures_with,
)

from cudadrv._errors import CaptureError

bind_driver(&cudadrv_table)

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED


# ---- what a graph holds ----

@cython.final
@cython.no_gc
cdef class Holdings:
    """The memory that a graph and its executables use. It cannot be closed while this lives."""

    def __dealloc__(self):
        self.shrink(0)
        free(self.holds)
        forget_graph(self.number)

    cdef int hold(self, own_access *access, uint32_t site, uint16_t operation) except -1:
        """Hold the bytes of an access. Returns 1, or 0 if the memory is closed."""
        cdef own_hold *hold
        cdef own_hold **grown
        key = (<size_t>access.memory, access.start, access.stop)
        if key in self.known:
            return 1
        if self.count == self.room:
            grown = <own_hold **>realloc(self.holds, (2 * self.room + 8) * sizeof(own_hold *))
            if grown is NULL:
                raise MemoryError()
            self.holds, self.room = grown, 2 * self.room + 8
        self.known[key] = True
        hold = <own_hold *>calloc(1, sizeof(own_hold))
        if hold is NULL:
            del self.known[key]
            raise MemoryError()
        hold.memory, hold.start, hold.stop = access.memory, access.start, access.stop
        hold.graph, hold.site, hold.operation = self.number, site, operation
        if not own_hold_open(engine, hold):
            free(hold)
            del self.known[key]
            return 0
        self.holds[self.count] = hold
        self.count += 1
        return 1

    cdef void shrink(self, size_t count) noexcept:
        """Let go all but the first `count` pieces."""
        cdef own_hold *hold
        while self.count > count:
            self.count -= 1
            hold = self.holds[self.count]
            if cudadrv_table.forked:  # a thread that is gone may hold the engine's lock
                continue
            own_hold_close(engine, hold)
            free(hold)

    cdef int let_go(self, size_t count) except -1:
        """Let go what was held since there were `count` pieces."""
        cdef size_t i
        for i in range(count, self.count):
            del self.known[<size_t>self.holds[i].memory, self.holds[i].start, self.holds[i].stop]
        self.shrink(count)
        return 0


# ---- nodes ----

@cython.final
@cython.no_gc_clear
cdef class GraphNode:
    """GraphNode(*args, **kwargs)\n--\n
    One operation of a graph: `Graph.nodes` lists them in the order of their capture."""

    def __init__(self, *args, **kwargs):
        raise TypeError("nodes come from captures: graph.nodes")

    def __dealloc__(self):
        if self.capture is not None:
            own_snapshot_drop(&self.capture.engine, &self.snapshot)
        free(self.accesses)

    @property
    def operation(self):
        """What the node does, such as ``"copy_from_async"`` or ``"launch of saxpy"``."""
        return operation_name(self.operation)

    @property
    def site(self):
        """The line that captured the node, such as ``"step.py:12"``."""
        return place(self.site_number)

    @property
    def stream(self):
        """The stream on which the node was captured."""
        return self.stream

    @property
    def reads(self):
        """The buffers that the node reads, as a tuple."""
        return _buffers_of(self, False)

    @property
    def writes(self):
        """The buffers that the node writes, as a tuple."""
        return _buffers_of(self, True)

    def __repr__(self):
        return f"<GraphNode {self.index} of {self.graph}: {self.called()}>"

    cdef int finish(self) except -1:
        """The capture has ended: from now on, nothing can be ordered after the node alone."""
        if self.capture is not None:
            own_snapshot_drop(&self.capture.engine, &self.snapshot)
            self.capture = None
        return 0

    cdef str called(self):
        """Return its name in messages: the operation, and the line that captured it."""
        return f"{operation_name(self.operation)} at {place(self.site_number)}"


cdef tuple _buffers_of(GraphNode node, bint written):
    if callable(node.target):  # a launch's, which finds the buffers among its arguments
        return node.target(node.source, written)
    buffers = node.target if written else node.source
    if type(buffers) is tuple:
        return buffers
    return () if buffers is None else (buffers,)


cdef GraphNode _newest = None


cdef GraphNode newest_node(object source, object target):
    """Return the node that was captured last, for the token of its operation.

    `source` and `target` are those of the token.
    """
    global _newest
    cdef GraphNode node = _newest
    node.source, node.target, _newest = source, target, None
    return node


# ---- points of a capture ----

@cython.final
@cython.no_gc_clear
cdef class Point(Captured):
    """The end of what a stream of a capture has captured so far: what an event stands for."""

    def __dealloc__(self):
        if self.capture is not None:
            own_snapshot_drop(&self.capture.engine, &self.snapshot)

    cdef str where(self):
        return f"in {self.capture.called()},"


cdef int _wait_in_capture(Stream stream, Event event) except -1:
    return (<Point>event.captured).capture.wait(stream, event)


wait_in_captures_with(_wait_in_capture)


# ---- captures ----

cdef class Receiver:
    """What gets the graph at the end of a capture."""

    cdef int begin(self) except -1:
        """Raise if no capture can begin."""
        raise NotImplementedError

    cdef int receive(self, Capture capture, CUgraph raw) except -1:
        """Take over the driver's graph."""
        raise NotImplementedError

    cdef void give_up(self) noexcept:
        """The capture has ended without a graph."""


@cython.final
@cython.no_gc_clear
cdef class Capture(Capturing):
    """Capture(*args, **kwargs)\n--\n
    The context manager of `Graph.capture`."""

    def __cinit__(self):
        self.streams, self.slots, self.memories = [], {}, {}
        self.tails, self.nodes = [], []
        own_engine_prepare(&self.engine)
        own_domain_open(&self.engine, &self.domain, False)

    def __init__(self, *args, **kwargs):
        raise TypeError("use graph.capture(stream)")

    def __dealloc__(self):
        cdef CUgraph raw = NULL
        # It may be abandoned, as by a signal before the block's first line.
        if self.entered and not self.ended:
            self.end(&raw)
            self.receiver.give_up()
            destroy_graph(self.origin.context, raw)
        for address in self.memories.values():
            own_memory_clear(<own_memory *><size_t>address)
            free(<void *><size_t>address)
        own_engine_end(&self.engine, &self.domain)
        free(self.orders)
        free(self.locks)

    def __enter__(self):
        """Begin the capture."""
        cdef int reason
        if self.receiver is None:
            raise TypeError("this Capture was never initialized")
        if self.entered:
            raise CaptureError(f"{self.called()} has begun already; a graph is captured once")
        self.origin.usable()
        if self.origin.order.order == OWN_LEGACY:
            raise CaptureError("the legacy default stream cannot be captured; use another stream")
        if self.origin.capture is not NULL:
            raise CaptureError(f"{self.origin.called()} is a part of"
                               f" {(<Capturing>self.origin.capture).called()} already")
        self.site = here()
        self.receiver.begin()
        self.holdings = self.receiver.holdings
        try:
            self.add(self.origin)
            with nogil:
                reason = _begin(self.origin)
            if reason:
                self.remove(self.origin)
                self.origin.refuse(reason)
        except BaseException:
            self.receiver.give_up()
            raise
        self.entered = True
        return self

    def __exit__(self, kind, exception, traceback):
        """End the capture. All streams of the capture can then be used as before it."""
        cdef CUgraph raw = NULL
        cdef Stream unjoined = None
        cdef bint received = False
        cdef int reason
        if not self.entered or self.ended:
            raise RuntimeError("this block is not entered, or has ended already")
        if exception is None:
            unjoined = self.unjoined()
        reason = self.end(&raw)
        try:
            if exception is None and reason == CUDA_SUCCESS and unjoined is None:
                self.receiver.receive(self, raw)
                received = True
            elif exception is None and unjoined is not None:
                self.refuse_unjoined(unjoined)
            elif exception is None:
                self.origin.refuse(reason)
        finally:
            if not _has_ended(reason) and (exception is not None or unjoined is not None):
                report_in(self.origin.context, <CUresult>reason)
            if not received:
                self.receiver.give_up()
                destroy_graph(self.origin.context, raw)
            self.holdings, self.nodes = None, None

    def __repr__(self):
        if self.receiver is None:
            return "<Capture, never initialized>"
        state = "ended" if self.ended else "open" if self.entered else "not begun"
        return f"<Capture of {self.graph}, {state}>"

    cdef int refuse_unjoined(self, Stream stream) except -1:
        """Raise for a stream whose work the stream of the `with` line does not wait for."""
        cdef GraphNode node
        last = ""
        for node in self.nodes:
            if node is not None and node.stream is stream:
                last = f", the last of it by {node.called()},"
        raise CaptureError(
            f"{self.graph} was not captured: {stream.called()} joined the capture that began at"
            f" {place(self.site)}, and its work there{last} is not joined again. End the block with"
            f" a wait of the captured stream for it: stream.wait(other_stream), where stream is"
            f" {self.origin.called()}")

    # ---- streams ----

    cdef int add(self, Stream stream) except -1:
        """Let a stream be a part of the capture. The driver learns of it later."""
        if self.listed is None:
            self.listed = self.called()
        if stream not in self.slots:
            self.open(stream)
        stream.context.captures += 1
        stream.context.captured_by = self.listed
        stream.capture = <void *>self
        stream.exposed |= IN_CAPTURE
        return 0

    cdef int open(self, Stream stream) except -1:
        """Open the stream in the engine of the capture. Its slot there is its index."""
        cdef size_t slot = len(self.streams)
        cdef own_stream **orders
        cdef own_mutex **locks
        cdef own_stream *order
        orders = <own_stream **>realloc(self.orders, (slot + 1) * sizeof(own_stream *))
        if orders is NULL:
            raise MemoryError()
        self.orders = orders
        locks = <own_mutex **>realloc(self.locks, (slot + 1) * sizeof(own_mutex *))
        if locks is NULL:
            raise MemoryError()
        self.locks = locks
        order = own_stream_open(&self.engine, &self.domain, OWN_NON_BLOCKING)
        if order is NULL:
            raise MemoryError()
        order.number, order.kind = stream.order.number, stream.order.kind
        orders[slot] = order
        try:
            self.tails.append(())
            self.streams.append(stream)
            self.slots[stream] = slot
        except BaseException:
            del self.tails[slot:], self.streams[slot:]
            own_stream_close(&self.engine, order)
            own_stream_release(&self.engine, order)
            raise
        self.add_lock(stream.order.issue)
        return 0

    cdef void add_lock(self, own_mutex *lock) noexcept:
        """Add an issue lock to those of the capture, which are in the order of their addresses."""
        cdef size_t i = 0
        cdef size_t k = self.lock_count
        while i < k and self.locks[i] < lock:
            i += 1
        if i < k and self.locks[i] == lock:  # all blocking streams of a context share one
            return
        while k > i:
            self.locks[k] = self.locks[k - 1]
            k -= 1
        self.locks[i] = lock
        self.lock_count += 1

    cdef int remove(self, Stream stream) except -1:
        stream.exposed &= ~IN_CAPTURE
        stream.capture = NULL
        stream.context.captures -= 1
        return 0

    cdef Stream unjoined(self):
        """Return a stream whose work the captured stream is not ordered after, or None."""
        cdef own_stream *origin = self.orders[0]
        cdef size_t slot
        cdef size_t count = len(self.streams)
        for slot in range(count):
            if not own_is_joined(&self.engine, self.orders[slot], origin):
                return self.streams[slot]
        return None

    # ---- operations ----

    cdef own_memory *memory_of(self, own_memory *memory) except NULL:
        """Return the record that the capture's engine has of memory."""
        cdef own_memory *known
        address = self.memories.get(<size_t>memory)
        if address is None:
            known = <own_memory *>malloc(sizeof(own_memory))
            if known is NULL:
                raise MemoryError()
            own_memory_prepare(known, memory.nbytes)
            address = <size_t>known
            self.memories[<size_t>memory] = address
        return <own_memory *><size_t>address

    cdef int issue(
        self, Stream stream, own_request *request, driver_call call, void *arguments
    ) except? -1:
        """Check an operation against those of the capture, and capture it.

        Returns 0 or a reason, as `issue` of _operation.
        """
        cdef GraphNode node
        cdef own_request captured
        cdef size_t slot, held
        cdef uint32_t i
        cdef int reason
        global _newest
        self.refuse_others(stream, request)
        node = self.new_node(stream, request)
        slot = self.slots[stream]
        held = self.holdings.count
        reason = REFUSED
        node.index = len(self.nodes)
        tail = (node.index,)
        captured = request[0]
        captured.stream = self.orders[slot]
        captured.accesses = <own_access *>malloc((request.count + 1) * sizeof(own_access))
        if captured.accesses is NULL:
            raise MemoryError()
        try:
            memcpy(captured.accesses, request.accesses, request.count * sizeof(own_access))
            for i in range(request.count):
                if not self.holdings.hold(&request.accesses[i], request.site, request.operation):
                    request.conflict.access = i
                    return REFUSED - OWN_MEMORY_CLOSED
                captured.accesses[i].memory = self.memory_of(request.accesses[i].memory)
            self.nodes.append(node)     # first, because nothing may fail once the driver has it
            while True:
                with nogil:
                    reason = _issue(self, stream, &captured, call, arguments)
                if reason != REFUSED - OWN_MUST_WAIT:
                    break
                stream.wait(self.streams[captured.conflict.epoch.slot])
        finally:
            free(captured.accesses)
            if reason:
                self.forget(node, held)
        request.conflict = captured.conflict
        if reason:
            return reason
        node.capture, node.snapshot = self, captured.issued
        node.after, self.tails[slot] = self.tails[slot], tail
        _newest = node
        mark_captured(&request.issued)
        return 0

    cdef int forget(self, GraphNode node, size_t held) except -1:
        """Undo what `issue` did for a node that was not captured."""
        self.holdings.let_go(held)
        if self.nodes and self.nodes[-1] is node:
            self.nodes.pop()
        elif node.index < len(self.nodes) and self.nodes[node.index] is node:
            self.nodes[node.index] = None   # another thread has captured something meanwhile
        return 0

    cdef GraphNode new_node(self, Stream stream, own_request *request):
        cdef GraphNode node = GraphNode.__new__(GraphNode)
        node.graph, node.stream = self.graph, stream
        node.operation, node.site_number = request.operation, request.site
        node.after = ()
        node.index = -1
        node.accesses = <own_access *>malloc((request.count + 1) * sizeof(own_access))
        if node.accesses is NULL:
            raise MemoryError()
        memcpy(node.accesses, request.accesses, request.count * sizeof(own_access))
        node.count = request.count
        return node

    cdef GraphNode nothing(self, Stream stream):
        """Return a node of no bytes, for the token of an operation that has nothing to do."""
        cdef GraphNode node = GraphNode.__new__(GraphNode)
        node.graph, node.stream = self.graph, stream
        node.index, node.after = -1, ()
        node.capture = self
        own_snapshot_take(&self.engine, self.orders[<size_t>self.slots[stream]], &node.snapshot)
        return node

    cdef int refuse_others(self, Stream stream, own_request *request) except -1:
        """Refuse what cannot be captured, or would not do the same at each launch."""
        cdef uint32_t i
        if request.operation < LAUNCH \
                and request.operation not in (COPY_FROM_ASYNC, COPY_TO_ASYNC, FILL_ASYNC):
            stream.refuse_captured()
        if request.loan is not NULL or request.returns:
            stream.refuse_captured()
        for i in range(request.count):
            if request.accesses[i].effect not in (0, OWN_USES):
                stream.refuse_captured()
        return 0

    # ---- order ----

    cdef Point point_at(self, Stream stream):
        cdef Point point = Point.__new__(Point)
        cdef size_t slot = self.slots[stream]
        point.tail = self.tails[slot]
        own_snapshot_take(&self.engine, self.orders[slot], &point.snapshot)
        point.capture = self
        return point

    cdef int record(self, Stream stream, Event event) except -1:
        return self.record_point(stream, event, self.point_at(stream))

    cdef int record_point(self, Stream stream, Event event, Point point) except -1:
        cdef int reason
        with nogil:
            reason = _record_or_wait(self, stream, event, True, False)
        if reason:
            self.refuse(stream, reason)
        return event.enter_capture(point)

    cdef Event event_after(self, GraphNode node):
        """Record a new event now. In the capture's engine it stands for one node."""
        cdef Event event = new_event(node.stream.context, CU_EVENT_DISABLE_TIMING)
        cdef Point point = Point.__new__(Point)
        point.tail = self.tails[<size_t>self.slots[node.stream]]
        own_snapshot_copy(&self.engine, &node.snapshot, &point.snapshot)
        point.capture = self
        self.record_point(node.stream, event, point)
        return event

    cdef int wait(self, Stream stream, Event event) except -1:
        cdef Point point = event.captured
        cdef bint joins = stream.capture is NULL
        cdef size_t slot
        cdef int reason
        if self.ended:
            raise CaptureError(
                f"{event.called()} that is to be waited for was recorded {point.where()} which has"
                " ended, and stands for nothing outside: wait for the token of a launch, or record"
                " the event again")
        if not joins and stream.capture is not <void *>self:
            raise CaptureError(
                f"{stream.called()} is a part of {(<Capturing>stream.capture).called()}, and cannot"
                f" join {self.called()}")
        if stream.order.order == OWN_LEGACY:
            raise CaptureError(
                "the legacy default stream cannot join a capture; use another stream")
        if joins:
            self.add(stream)
        with nogil:
            reason = _record_or_wait(self, stream, event, False, joins)
        if reason:
            if joins:
                self.remove(stream)
            self.refuse(stream, reason)
        slot = self.slots[stream]
        if not own_wait(&self.engine, self.orders[slot], &point.snapshot):
            raise MemoryError()
        self.tails[slot] = tuple(sorted({*self.tails[slot], *point.tail}))
        return 0

    cdef int refuse(self, Stream stream, int reason) except -1:
        if reason == CAPTURE_HAS_ENDED:
            raise CaptureError(f"another thread has ended {self.called()} during this call")
        return stream.refuse(reason)

    # ---- the end ----

    cdef int end(self, CUgraph *raw) noexcept:
        """End the capture, and let its streams go. Returns the driver's status.

        No other thread can be about to capture something: the issue locks of all streams are taken.
        """
        cdef Stream stream
        cdef GraphNode node
        cdef size_t i
        cdef size_t streams = len(self.streams)
        cdef size_t nodes = len(self.nodes)
        cdef int reason
        with nogil:
            for i in range(self.lock_count):
                own_mutex_take(self.locks[i])
            reason = _end(self, self.origin, raw)
            for i in range(self.lock_count):
                own_mutex_give(self.locks[i])
        for i in range(streams):
            stream = self.streams[i]
            if stream.capture is <void *>self:
                self.remove(stream)
        for i in range(nodes):
            node = self.nodes[i]
            if node is not None:
                node.finish()
        return reason


cdef void mark_captured(own_snapshot *issued) noexcept:
    """Let the snapshot of an operation say that it was captured: it stands for no real work.

    See `keep_knowledge` in _token.
    """
    issued.seq = issued.slot = 0
    issued.clock = <own_clock *>calloc(1, sizeof(own_clock))
    if issued.clock is not NULL:
        issued.clock.references = 1


cdef void destroy_graph(Context context, CUgraph raw) noexcept:
    """Destroy a graph of the driver. NULL is allowed; `context` may then be None."""
    cdef CUresult status
    cdef bint pushed = False
    if raw is NULL or cudadrv_table.forked or context.lost:
        return
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuGraphDestroy(raw)
            leave_context(pushed)
    report_in(context, status)


# ---- driver calls of captures ----

cdef int _begin(Stream stream) noexcept nogil:
    cdef bint pushed = False
    cdef int reason = STREAM_IS_CLOSED
    own_mutex_take(stream.order.issue)
    if stream.order.state == OWN_OPEN:
        reason = enter_context(stream.context.raw, &pushed)
        if reason == CUDA_SUCCESS:
            reason = _look_for_others(stream)
            if reason == CUDA_SUCCESS:
                reason = cuStreamBeginCapture(stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED)
            leave_context(pushed)
    own_mutex_give(stream.order.issue)
    return reason


cdef int _look_for_others(Stream stream) noexcept nogil:
    """Return the reason to refuse a stream that another library is capturing; else 0."""
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef CUresult status = CUDA_SUCCESS
    if stream.exposed & HANDED_OUT:
        status = cuStreamIsCapturing(stream.raw, &capture)
    if status == CUDA_SUCCESS and capture != CU_STREAM_CAPTURE_STATUS_NONE:
        return STREAM_IS_CAPTURING
    return status


cdef int _issue(
    Capture capture, Stream stream, own_request *request, driver_call call, void *arguments
) noexcept nogil:
    cdef bint pushed = False
    cdef bint queued = False
    cdef int reason = CAPTURE_HAS_ENDED
    cdef int answer
    own_mutex_take(stream.order.issue)
    if not capture.ended:
        reason = enter_context(stream.context.raw, &pushed)
        if reason == CUDA_SUCCESS:
            answer = own_begin(&capture.engine, request)
            reason = REFUSED - answer
            if answer == OWN_OK:
                reason = call(arguments, stream.raw, &queued)
                if reason == CUDA_SUCCESS:
                    own_settle(&capture.engine, request)
                elif queued:
                    own_settle(&capture.engine, request)
                    own_snapshot_drop(&capture.engine, &request.issued)
                else:
                    own_undo(&capture.engine, request)
            leave_context(pushed)
    own_mutex_give(stream.order.issue)
    return reason


cdef int _record_or_wait(
    Capture capture, Stream stream, Event event, bint record, bint joins
) noexcept nogil:
    cdef bint pushed = False
    cdef int reason = CAPTURE_HAS_ENDED
    own_lock_both(stream.order.issue, &event.state.issue)
    if event.raw is NULL or event.closing:
        reason = EVENT_IS_CLOSED
    elif not capture.ended:
        reason = enter_context(stream.context.raw, &pushed)
        if reason == CUDA_SUCCESS:
            if record:
                reason = cuEventRecord(event.raw, stream.raw)
            elif joins:
                reason = _look_for_others(stream)
            if not record and reason == CUDA_SUCCESS:
                reason = cuStreamWaitEvent(stream.raw, event.raw, 0)
            leave_context(pushed)
    own_unlock_both(stream.order.issue, &event.state.issue)
    return reason


cdef bint _has_ended(int status) noexcept nogil:
    """Whether a capture is over after cuStreamEndCapture has returned this status."""
    return status == CUDA_SUCCESS or status == CUDA_ERROR_STREAM_CAPTURE_UNJOINED \
        or status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


cdef int _end(Capture capture, Stream origin, CUgraph *raw) noexcept nogil:
    cdef bint pushed = False
    cdef int reason = CUDA_SUCCESS
    capture.ended = True
    if not origin.context.lost and not cudadrv_table.forked:
        # The stream would go on capturing for ever. The driver finds the context by the handle.
        enter_context(origin.context.raw, &pushed)
        reason = cuStreamEndCapture(origin.raw, raw)
        if not _has_ended(reason):
            cuStreamEndCapture(origin.raw, raw)
        leave_context(pushed)
    return reason
