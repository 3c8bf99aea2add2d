"""Capture: streams whose operations become a graph, and are checked against each other.

A captured operation is issued like any other operation, up to `issue_unusual`. There it gets
another request, for the engine of the graph's plan. In that engine the streams and the memory have
only the work of the graph, so the functions that check all operations find the conflicts inside the
graph. The process's engine knows only that the memory of a graph must not be closed.

A captured operation makes the same driver call as any other. The driver captures in the relaxed
mode, so that calls of other threads and of destructors do not end the capture.

State that outlives a call: the newest node, for its token (the GIL guards it).
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from cudadrv._driver cimport (
    CUDA_SUCCESS, CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_NONE, CUgraph, CUgraphNode, CUresult,
    CUstream, CUstreamCaptureStatus, cuEventRecord, cuGraphNodeGetDependencies,
    cuStreamBeginCapture, cuStreamBeginCaptureToGraph, cuStreamEndCapture, cuStreamGetCaptureInfo,
    cuStreamIsCapturing, cuStreamWaitEvent, cudadrv_table, cuuint64_t, enter_context,
    in_cuGraphDestroy, leave_context, this_thread,
)
from cudadrv._device cimport ENDS_GRAPH, attend, report_end, report_in
from cudadrv._engine cimport (
    OWN_LEGACY, OWN_MEMORY_CLOSED, OWN_MUST_WAIT, OWN_NON_BLOCKING, OWN_OK, OWN_OPEN, OWN_USES,
    engine, own_access, own_ask, own_begin, own_clock, own_clock_drop, own_domain_open,
    own_engine_end, own_engine_prepare, own_export_close, own_hold, own_hold_close, own_hold_open,
    own_is_joined, own_lock_both, own_memory, own_memory_clear, own_memory_prepare, own_mutex,
    own_mutex_give, own_mutex_take, own_request, own_settle, own_snapshot, own_snapshot_copy,
    own_snapshot_drop, own_snapshot_take, own_stream, own_stream_close, own_stream_open,
    own_stream_release, own_undo, own_unlock_both, own_wait,
)
from cudadrv._errors cimport only_made_by, report_text
from cudadrv._event cimport Captured, Event, let_others_go_on, new_event, now_ns
from cudadrv._names cimport (
    LAUNCH, NO_NODE, forget_graph, give_back_name, name_graph, node_kind, number_of_graph,
    operation_name, parts_of,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport (
    CAPTURE_HAS_ENDED, EVENT_IS_CLOSED, HANDED_OUT, IN_CAPTURE, REFUSED, STREAM_IS_CAPTURING,
    STREAM_IS_CLOSED, Capturing, Stream, driver_call, wait_in_captures_with,
)
from cudadrv._waits cimport Question, missing_waits

from cudadrv._errors import CaptureError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED


cdef enum:
    LOOKED_NS = 1_000_000_000   # a call of cuCtxSynchronize has then looked for captures


# ---- what a graph holds ----

@cython.final
@cython.no_gc
cdef class ChildNames:
    """Names of nodes that run other graphs. They are given back when no message can need them."""

    def __cinit__(self):
        self.numbers = []

    def __dealloc__(self):
        for number in self.numbers or ():
            try:
                give_back_name(number)
            except MemoryError:     # nobody gets this number again
                pass


@cython.final
@cython.no_gc
cdef class Holdings:
    """The memory that a graph, or an executable, uses. It cannot be closed while this object lives.
    """

    def __dealloc__(self):
        self.shrink(0)
        free(self.holds)
        forget_graph(self.number)

    cdef int hold(self, own_access *access, uint32_t site, uint16_t operation) except -1:
        """Hold the bytes of an access. Returns 1, or 0 if the memory is closed."""
        cdef own_hold *hold
        cdef own_hold **grown
        if access.memory.closed or _is_gone(access):
            return 0
        if access.start >= access.stop:
            return 1
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
        is_open = own_hold_open(engine, hold)
        if is_open and _is_gone(access):    # another thread has closed the buffer meanwhile
            own_hold_close(engine, hold)
            is_open = False
        if not is_open:
            free(hold)
            del self.known[key]
            return 0
        self.holds[self.count] = hold
        self.count += 1
        self.copy = None
        return 1

    cdef int need(self, object access) except -1:
        """Keep an access of a device from ending: an AccessNeed of _peers, or None."""
        if access is not None:
            self.needs.add(access)
            self.copy = None
        return 0

    cdef void shrink(self, size_t count) noexcept:
        """Let go of all but the first `count` pieces."""
        cdef own_hold *hold
        while self.count > count:
            self.count -= 1
            hold = self.holds[self.count]
            if cudadrv_table.forked:  # a thread that is gone may hold the engine's lock
                continue
            own_hold_close(engine, hold)
            free(hold)

    cdef Holdings copied(self, str graph):
        """Return new Holdings of the same memory, for executables. `graph` is for messages."""
        cdef Holdings made
        cdef own_hold *hold
        cdef size_t i
        if self.copy is not None:
            return self.copy
        made = new_holdings(number_of_graph(), graph, self.names)
        made.needs = self.needs.copy()
        made.holds = <own_hold **>malloc((self.count + 1) * sizeof(own_hold *))
        if made.holds is NULL:
            raise MemoryError()
        for i in range(self.count):
            hold = <own_hold *>malloc(sizeof(own_hold))
            if hold is NULL:
                raise MemoryError()
            hold[0] = self.holds[i][0]
            hold.graph = made.number
            if own_hold_open(engine, hold):
                made.holds[made.count] = hold
                made.count += 1
            else:   # the context is lost
                free(hold)
        self.copy = made
        return made

    cdef int let_go(self, size_t count) except -1:
        """Let go of all but the first `count` pieces, so that `hold` can hold them again."""
        cdef size_t i
        self.copy = None
        for i in range(count, self.count):
            del self.known[<size_t>self.holds[i].memory, self.holds[i].start, self.holds[i].stop]
        self.shrink(count)
        return 0


cdef bint _is_gone(own_access *access) noexcept:
    """Whether the buffer of an access was closed, although its memory is open."""
    return access.gone is not NULL and access.gone[0]


cdef str END_OF_GRAPH = "Close the graph and what was instantiated from it first: graph.close()," \
                        " step.close()."


cdef Holdings new_holdings(uint64_t number, str graph, ChildNames names, str end=None):
    """Make Holdings that hold nothing yet. No others have this number; `graph` is for messages.

    `names` are the names of other Holdings, or None. `end` tells in messages how to end a graph of
    another library.
    """
    cdef Holdings holdings = Holdings.__new__(Holdings)
    holdings.known, holdings.number, holdings.needs = {}, number, set()
    holdings.names = ChildNames.__new__(ChildNames) if names is None else names
    name_graph(number, graph, END_OF_GRAPH if end is None else end)
    return holdings


@cython.final
@cython.no_gc
cdef class DriverGraph:
    """A graph of the driver: the graph that was captured and its executables share it."""

    def __dealloc__(self):
        destroy_graph(self.context, self.raw)


# ---- nodes ----

@cython.final
@cython.no_gc_clear
@cython.freelist(16)
cdef class GraphNode:
    """GraphNode(*args, **kwargs)\n--\n
    One operation of a graph: `Graph.nodes` lists them in the order in which they were captured or
    added."""

    def __dealloc__(self):
        cdef Capture capture
        if self.capture is not NULL:
            capture = <Capture>self.capture
            own_snapshot_drop(&capture.plan.engine, &self.snapshot)
        else:
            own_clock_drop(self.snapshot.clock)  # no plan has the node any more
        free(self.accesses)

    @property
    def operation(self):
        """What the node does, such as ``"copy_from_async"`` or ``"launch of saxpy"``."""
        return operation_name(self.operation)

    @property
    def site(self):
        """The line that captured or added the node, such as ``"step.py:12"``."""
        return place(self.site_number)

    @property
    def stream(self):
        """The stream on which the node was captured, or None if it was added without a capture."""
        return self.stream

    @property
    def reads(self):
        """The buffers that the node reads, as a tuple."""
        return _buffers_of(self, False)

    @property
    def writes(self):
        """The buffers that the node writes, as a tuple."""
        return _buffers_of(self, True)

    @property
    def signal(self):
        """The `Signal` that the node sets or waits for; None for other nodes."""
        return self.signal

    @property
    def number(self):
        """The number to which the node sets its signal, or for which it waits; else None."""
        return None if self.signal is None else number_of(self)

    @property
    def bodies(self):
        """The bodies of a conditional node, as a tuple; for other nodes ``()``.

        Each body is a tuple of its nodes (`GraphNode`).
        """
        cdef Plan plan
        found = []
        for plan in self.plans or ():
            found.append(plan.finished())
        return tuple(found)

    def __repr__(self):
        return f"<GraphNode {self.index} of {self.graph}: {self.called()}>"

    cdef void finish(self) noexcept:
        """Note that the capture has ended: no stream can be ordered after this node any more."""
        self.capture = NULL

    cdef str called(self):
        """Return the node's name in messages: the operation, and the line that made the node."""
        return f"{operation_name(self.operation)} at {place(self.site_number)}"


only_made_by(GraphNode, "nodes come from captures and from graph.add_copy(...) and its like:"
                        " graph.nodes")


cdef GraphNode blank_node(str graph, Stream stream):
    """Make a node, whose other fields the caller fills in."""
    cdef GraphNode node = GraphNode.__new__(GraphNode)
    node.graph, node.stream, node.outermost = graph, stream, -1
    return node


cdef uint64_t number_of(GraphNode node) noexcept:
    """Return the number that a node sets or waits for."""
    cdef uint64_t number = 0
    memcpy(&number, node.settings, sizeof(number))
    return number


cdef tuple _buffers_of(GraphNode node, bint written):
    if callable(node.target):  # of a launch: the function finds the buffers among the arguments
        return node.target(node.source, written)
    buffers = node.target if written else node.source
    if type(buffers) is tuple:
        return buffers
    return () if buffers is None else (buffers,)


cdef GraphNode _newest = None


cdef GraphNode newest_node(object source, object target):
    """Return the node that was captured last, for the token of its operation.

    `source` and `target` are as in the token.
    """
    global _newest
    cdef GraphNode node = _newest
    node.source, node.target, _newest = source, target, None
    return node


# ---- plans ----

@cython.final
@cython.no_gc_clear
cdef class Plan:
    """The nodes of a graph, and the engine that checks them against each other.

    Captures, and calls that add nodes, share the plan. The body of a conditional node has a
    separate plan. Operations of the body are also checked in the outer plan, which has the
    conditional node. There they all count as work of one stream. So an operation has a request for
    each of these plans.
    """

    def __cinit__(self):
        self.memories, self.nodes, self.tails, self.conditions = {}, [], {}, {}
        self.entry = -1
        own_engine_prepare(&self.engine)
        own_domain_open(&self.engine, &self.domain, False)

    def __dealloc__(self):
        self.end()
        for address in () if self.memories is None else self.memories.values():
            own_memory_clear(<own_memory *><size_t>address)
            free(<void *><size_t>address)
        own_engine_end(&self.engine, &self.domain)

    cdef int end(self) except -1:
        """Let go of the nodes and of what they hold. Nothing can be added any more."""
        cdef GraphNode node
        cdef Plan plan
        for node in self.nodes or ():
            if node is not None:
                own_snapshot_drop(&self.engine, &node.snapshot)
                if parts_of(node.operation) is not None:    # the number may get another name
                    node.operation = LAUNCH
                for plan in node.plans or ():
                    plan.end()
        self.nodes, self.holdings = None, None
        self.listed, self.ended = 0, True
        return 0

    cdef Plan root(self):
        """Return the plan of the whole graph, in which the bodies of conditional nodes are."""
        cdef Plan plan = self
        while plan.outer is not NULL:
            plan = <Plan>plan.outer
        return plan

    cdef int changed(self) except -1:
        """Note that the nodes have changed."""
        cdef Plan root = self.root()
        root.changes += 1
        return 0

    cdef GraphNode follower(self):
        """Return a node that runs after a conditional node in whose body this plan is, or None."""
        cdef Plan plan = self
        cdef GraphNode node
        while plan.outer is not NULL:
            node = (<Plan>plan.outer).nodes[plan.entry]
            plan = <Plan>plan.outer
            if node.followed:
                return plan.nodes[node.followed]
        return None

    cdef tuple finished(self):
        """Return the nodes, without the nodes of a capture that has not ended."""
        if self.listed == 0:
            return ()
        return tuple(self.nodes if self.listed == len(self.nodes) else self.nodes[:self.listed])

    cdef own_memory *memory_of(self, own_memory *memory) except NULL:
        """Return the state of memory in the engine of the plan. Makes one if there is none."""
        cdef own_memory *known
        address = self.memories.get(<size_t>memory)
        if address is None:
            known = <own_memory *>malloc(sizeof(own_memory))
            if known is NULL:
                raise MemoryError()
            own_memory_prepare(known, memory.nbytes)
            address = <size_t>known
            try:
                self.memories[<size_t>memory] = address
            except BaseException:
                own_memory_clear(known)
                free(known)
                raise
        return <own_memory *><size_t>address

    cdef own_stream *open(self) except NULL:
        """Open a stream in the engine of the plan."""
        cdef own_stream *order = own_stream_open(&self.engine, &self.domain, OWN_NON_BLOCKING)
        if order is NULL:
            raise MemoryError()
        order.number = 0    # messages name it neither by a number nor by a name
        return order

    cdef int drop(self, own_stream *order) except -1:
        """Close a stream of the plan that nothing has used."""
        own_stream_close(&self.engine, order)
        own_stream_release(&self.engine, order)
        return 0

    cdef tuple checked(self, tuple after):
        """Return the nodes of an argument `after`, each once and in their order.

        Raises TypeError or ValueError unless they are nodes of this plan, and CaptureError for a
        loan, which is no node of the driver. `after` is what `after_of` has returned.
        """
        cdef GraphNode node
        indices = set()
        for each in after:
            if not isinstance(each, GraphNode):
                raise TypeError("after takes nodes of the graph, and got an item of type"
                                f" {type(each).__name__}")
            node = each
            if not 0 <= node.index < self.listed or self.nodes[node.index] is not node:
                raise ValueError(f"node {node.index} of {node.graph}, {node.called()}, is not a"
                                 f" node of {self.graph}; after takes nodes of the same graph."
                                 " The nodes of a body are those of another graph")
            if node.raw_count == 0:
                raise CaptureError(
                    f"{node.called()} stands for what another library has captured, so the driver"
                    " can order nothing after it alone: pass a node that was captured after it")
            indices.add(node.index)
        found = []
        for index in sorted(indices):
            found.append(self.nodes[index])
        return tuple(found)

    cdef int wait(self, own_stream *order, GraphNode node) except -1:
        """Order all later work of a stream after a node."""
        cdef own_snapshot snapshot
        cdef bint known
        if node.plans is None:
            known = own_wait(&self.engine, order, &node.snapshot)
        else:   # a conditional node: wait for the nodes in its bodies, too
            own_snapshot_take(&self.engine, node.place, &snapshot)
            known = own_wait(&self.engine, order, &snapshot)
            own_snapshot_drop(&self.engine, &snapshot)
        if not known:
            raise MemoryError()
        return 0

    cdef GraphNode new_node(self, Stream stream, own_request *request):
        cdef GraphNode node = blank_node(self.graph, stream)
        # The nodes of a body do not count as nodes of the graph itself.
        node.graph_number = self.holdings.number if self.outer is NULL else 0
        node.operation, node.site_number = request.operation, request.site
        node.after = ()
        node.index = -1
        node.accesses = <own_access *>malloc((request.count + 1) * sizeof(own_access))
        if node.accesses is NULL:
            raise MemoryError()
        memcpy(node.accesses, request.accesses, request.count * sizeof(own_access))
        node.count = request.count
        return node

    cdef int hold(self, own_request *request) except -1:
        """Hold the memory of a request. Returns 0, or the reason to refuse the request."""
        cdef uint32_t i
        for i in range(request.count):
            if not self.holdings.hold(&request.accesses[i], request.site, request.operation):
                request.conflict.access = i
                return REFUSED - OWN_MEMORY_CLOSED
        return 0

    cdef Checks checks_of(self, own_stream *order, own_request *request):
        """Return the requests that stand for `request` in this plan and in those around it."""
        cdef Checks checks = Checks.__new__(Checks)
        cdef Plan plan = self
        cdef size_t depth = 1
        while plan.outer is not NULL:
            plan, depth = <Plan>plan.outer, depth + 1
        checks.requests = <own_request *>calloc(depth, sizeof(own_request))
        checks.engines = <own_engine **>calloc(depth, sizeof(own_engine *))
        checks.accesses = <own_access *>malloc(
            (depth * request.count + 1) * sizeof(own_access))
        if checks.requests is NULL or checks.engines is NULL or checks.accesses is NULL:
            raise MemoryError()
        plan = self
        while True:
            self.add_check(checks, plan, order, request)
            if plan.outer is NULL:
                return checks
            order, plan = plan.place, <Plan>plan.outer

    cdef int add_check(
        self, Checks checks, Plan plan, own_stream *order, own_request *request
    ) except -1:
        cdef own_request *added = &checks.requests[checks.count]
        cdef uint32_t i
        added[0] = request[0]
        added.stream = order
        added.accesses = checks.accesses + checks.count * request.count
        if plan is not self:
            added.loan = NULL   # only the first engine records the loan
        memcpy(added.accesses, request.accesses, request.count * sizeof(own_access))
        for i in range(request.count):
            added.accesses[i].memory = plan.memory_of(request.accesses[i].memory)
        checks.engines[checks.count] = &plan.engine
        checks.count += 1
        return 0

    cdef int forget(self, GraphNode node, size_t held) except -1:
        """Undo what was done for a node that the driver did not get."""
        self.holdings.let_go(held)
        if self.nodes and self.nodes[-1] is node:
            self.nodes.pop()
        elif 0 <= node.index < len(self.nodes) and self.nodes[node.index] is node:
            self.nodes[node.index] = None   # another thread has captured something meanwhile
        return 0

    cdef int list_all(self) except -1:
        """Remove the gaps from the list of nodes. All nodes in it become nodes of the graph."""
        from bisect import bisect_left      # not at the top, because the import is slow
        cdef GraphNode node
        number = {}
        found = []
        for node in self.nodes:
            if node is not None:
                number[node.index] = len(found)
                found.append(node)
        indices = list(number)
        for node in found:
            after = []
            for index in node.after:
                after.append(number[index])
            node.index, node.after = number[node.index], tuple(after)
            if node.end:
                node.end = bisect_left(indices, node.end)
        self.nodes, former, self.listed = found, self.listed, len(found)
        for node in found[former:]:
            self.follow(node)
        self.changed()
        return 0

    cdef int follow(self, GraphNode later) except -1:
        """Note that a node runs after others. Conditional nodes among them can then no longer
        change their bodies.
        """
        cdef GraphNode node
        for index in later.after:
            node = self.nodes[index]
            if node.plans is not None and not node.followed:
                node.followed = later.index
        return 0


cdef tuple after_of(object after):
    """Return an argument `after` as a tuple. This can run the program's code."""
    if isinstance(after, GraphNode):
        raise TypeError("after takes an iterable of nodes: after=[node]")
    try:
        nodes = iter(after)
    except TypeError:
        raise TypeError(
            f"after takes an iterable of nodes, after=[node], and not {type(after).__name__}"
        ) from None
    return tuple(nodes)


@cython.final
@cython.no_gc
cdef class Checks:
    """The requests of one operation: in the plan of its graph first, then in those around it."""

    def __dealloc__(self):
        free(self.requests)
        free(self.engines)
        free(self.accesses)

    cdef int begin(self) noexcept nogil:
        """Check and record the operation in all plans, or in none. Returns 0 or a reason.

        If a plan refuses the operation, `failed` is the index of its request. Else the caller calls
        `settle` or `undo`.
        """
        cdef int answer = OWN_OK
        cdef int begun = 0
        cdef int i
        for i in range(1, self.count):
            own_mutex_take(self.requests[i].stream.issue)
        # `own_undo` cannot always restore everything, so the outer plans are asked first.
        for i in range(1, self.count):
            if answer == OWN_OK:
                self.failed = i
                answer = own_ask(self.engines[i], &self.requests[i], NULL, NULL)
        for i in range(self.count):
            if answer == OWN_OK:
                self.failed = i
                answer = own_begin(self.engines[i], &self.requests[i], NULL, False, False)
                begun += answer == OWN_OK
        if answer == OWN_OK:
            return 0
        for i in range(begun):
            own_undo(self.engines[i], &self.requests[i])
        self.unlock()
        return REFUSED - answer

    cdef void settle(self) noexcept nogil:
        """Settle the requests after the driver call: the driver has the operation."""
        cdef int i
        for i in range(self.count):
            own_settle(self.engines[i], &self.requests[i], NULL, False)
            if i:   # the node keeps the snapshot of the first request
                own_snapshot_drop(self.engines[i], &self.requests[i].issued)
        self.unlock()

    cdef void undo(self) noexcept nogil:
        """Undo the requests after the driver call: the driver does not have the operation."""
        cdef int i
        for i in range(self.count):
            own_undo(self.engines[i], &self.requests[i])
        self.unlock()

    cdef void unlock(self) noexcept nogil:
        cdef int i
        for i in range(1, self.count):
            own_mutex_give(self.requests[i].stream.issue)


# ---- points of a capture ----

@cython.final
@cython.no_gc_clear
cdef class Point(Captured):
    """A point in a captured stream, for an event: all that the stream has captured so far."""

    def __dealloc__(self):
        if self.capture is not None:
            own_snapshot_drop(&self.capture.plan.engine, &self.snapshot)

    cdef str where(self):
        return f"in {self.capture.called()},"


cdef int _wait_in_capture(Stream stream, Event event) except -1:
    return (<Point>event.captured).capture.wait(stream, event)


wait_in_captures_with(_wait_in_capture)


# ---- captures ----

cdef class Lending:
    """A loan to a stream, which the stream's capture checks if there is one."""

    cdef int count(self) except -1:
        """Let the loan stand for all that the borrower has queued so far."""
        raise NotImplementedError

    cdef void outlive_capture(self) noexcept:
        """The capture has ended. If the borrower still has the memory, lend it for real."""

    cdef void follow_users(self) noexcept:
        """Make the borrower's stream wait for the work on the memory, after `outlive_capture`."""


cdef class Receiver:
    """An object that gets the nodes of a capture, and nodes that are added without a capture."""

    def __cinit__(self):
        self.calls = {}

    cdef int begin(self, Capture capture) except -1:
        """Raise if no capture can begin. Let `plan` take the nodes."""
        raise NotImplementedError

    cdef int receive(self, Capture capture, CUgraph raw) except -1:
        """Take over the driver's graph."""
        raise NotImplementedError

    cdef void give_up(self, bint destroyed) noexcept:
        """The capture has failed: discard all nodes.

        `destroyed` says that the driver has destroyed the graph into which it captured.
        """

    cdef void cannot_begin(self) noexcept:
        """The capture has not begun. The nodes stay."""


@cython.final
@cython.no_gc   # the collector would clear the lists of an abandoned capture, which `end` needs
cdef class Capture(Capturing):
    """Capture(*args, **kwargs)\n--\n
    The context manager of `Graph.capture`."""

    def __cinit__(self):
        self.streams, self.slots, self.tails, self.lendings = [], {}, [], []

    def __dealloc__(self):
        cdef CUgraph raw = NULL
        # A capture can be abandoned, for example by a signal before the block's first line.
        if self.entered and not self.ended:
            self.end(&raw)
            if self.receiver is not None:
                self.receiver.give_up(self.destroyed)
            destroy_graph(self.origin.context, raw)
        if self.unused:
            report_text(f"{self.graph} was not captured: write `with graph.capture(stream):`")
        free(self.orders)
        free(self.after)
        free(self.locks)

    def __enter__(self):
        """Begin the capture."""
        if self.entered or self.busy:
            raise CaptureError(f"{self.called()} has begun already; a graph is captured once")
        self.busy = True    # before any step that lets other threads run
        self.unused = False
        try:
            self.begin()
        finally:
            self.busy = False
        return self

    cdef int begin(self) except -1:
        cdef int reason
        self.origin.usable()
        if self.origin.order.order == OWN_LEGACY:
            raise CaptureError("the legacy default stream cannot be captured; use another stream")
        _refuse_captured(self.origin)
        self.site = here()
        self.receiver.begin(self)
        self.plan, self.into = self.receiver.plan, self.receiver.raw
        try:
            self.add(self.origin)
            self.begin_after(self.plan.checked(self.wanted or ()))
            with nogil:
                reason = _begin(self, self.origin)
            if reason:
                self.origin.refuse(reason)
        except BaseException:
            if self.origin.capture is <void *>self:
                self.remove(self.origin)
            self.receiver.cannot_begin()
            raise
        self.entered = True
        return 0

    cdef int begin_after(self, tuple nodes) except -1:
        """Let the captured operations run after nodes that the graph has already."""
        cdef GraphNode node
        tail = []
        self.after = <CUgraphNode *>malloc((len(nodes) + 1) * sizeof(CUgraphNode))
        if self.after is NULL:
            raise MemoryError()
        for node in nodes:
            self.plan.wait(self.orders[0], node)
            self.after[self.after_count] = node.raws[node.raw_count - 1]
            self.after_count += 1
            tail.append(node.index)
        self.tails[0] = tuple(tail)
        return 0

    def __exit__(self, kind, exception, traceback):
        """End the capture. All streams of the capture can then be used as before it."""
        cdef CUgraph raw = NULL
        cdef Stream unjoined = None
        cdef Stream lent = None     # a borrower's stream; the driver checks if it is joined
        cdef bint received = False
        cdef int reason
        if not self.entered or self.ended or self.busy:
            raise RuntimeError("this block is not entered, or has ended already")
        self.busy = True    # before any step that lets other threads run
        _end_given_back()
        if exception is None:
            unjoined, lent = self.unjoined(), self.lent_aside()
            self.count_loans()
        reason = self.end(&raw)
        if exception is None and unjoined is None and reason == CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
            unjoined = lent
        try:
            if exception is None and reason == CUDA_SUCCESS and unjoined is None \
                    and self.half_done is None:
                self.receiver.receive(self, raw)
                received = True
            elif exception is None and self.half_done is not None:
                self.refuse_half_done("was not captured")
            elif exception is None and unjoined is not None:
                self.refuse_unjoined(unjoined)
            elif exception is None:
                self.origin.refuse(reason)
        finally:
            if not _has_ended(reason) \
                    and (exception is not None or unjoined is not None or self.half_done):
                report_in(self.origin.context, <CUresult>reason)
            if not received:
                self.receiver.give_up(self.destroyed)
                destroy_graph(self.origin.context, raw)
            self.let_go()

    # ---- captures of other libraries ----

    cdef int join(self) except -1:
        """Begin to take part in the capture that another library has begun of the origin."""
        cdef int reason
        self.origin.usable()
        _refuse_captured(self.origin)
        self.site, self.joined = here(), True
        self.add(self.origin)
        with nogil:
            reason = _look_at_theirs(self)
        if reason:
            self.remove(self.origin)
            if reason != CAPTURE_HAS_ENDED:
                self.origin.refuse(reason)
            raise CaptureError(
                f"no library is capturing {self.origin.called()}: begin the block of"
                " joins_capture inside that of the library's capture")
        self.entered = True
        return 0

    cdef int leave(self, bint check) except -1:
        """Stop taking part in the capture of another library.

        With `check`, raises if the work of a stream is not joined.
        """
        cdef CUgraph raw = NULL
        cdef Stream unjoined = None
        _end_given_back()
        if check:
            unjoined = self.unjoined()
        self.end(&raw)
        try:
            if check and self.half_done is not None:
                self.refuse_half_done("cannot be used")
            if unjoined is not None:
                self.refuse_unjoined(unjoined)
        finally:
            self.let_go()
        return 0

    cdef int let_go(self) except -1:
        """Drop the streams and the receiver.

        Events that were recorded in the block keep this object alive. They must not keep anything
        else alive.
        """
        self.streams, self.slots, self.origin, self.receiver = [], {}, None, None
        return 0

    cdef str called(self):
        if not self.joined:
            return Capturing.called(self)
        return f"the capture of {self.graph}, joined at {place(self.site)}"

    def __repr__(self):
        state = "ended" if self.ended else "open" if self.entered else "not begun"
        return f"<Capture of {self.graph}, {state}>"

    cdef int refuse_half_done(self, str outcome) except -1:
        raise CaptureError(f"{self.graph} {outcome}: {self.half_done} has failed, and a part of it"
                           " was captured. Capture the graph again")

    cdef int refuse_unjoined(self, Stream stream) except -1:
        """Raise for a stream whose work the stream of the `with` line does not wait for."""
        cdef GraphNode node
        last = ""
        for node in self.plan.nodes:
            if node is not None and node.stream is stream:
                last = f", the last of it by {node.called()},"
        outcome = "cannot be captured" if self.joined else "was not captured"
        raise CaptureError(
            f"{self.graph} {outcome}: {stream.called()} joined the capture that began at"
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
        try:
            _keep_out(stream.context)
            _refuse_captured(stream)    # again: from here on no other thread runs
        except BaseException:
            stream.context.captures -= 1
            raise
        stream.capture = <void *>self
        stream.exposed |= IN_CAPTURE
        return 0

    cdef int open(self, Stream stream) except -1:
        """Open the stream in the engine of the plan."""
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
        order = self.plan.open()
        order.number, order.kind = stream.order.number, stream.order.kind
        orders[slot] = order
        try:
            self.tails.append(())
            self.streams.append(stream)
            self.slots[stream] = slot
        except BaseException:
            del self.tails[slot:], self.streams[slot:]
            self.plan.drop(order)
            raise
        self.add_lock(stream.order.issue)
        return 0

    cdef void add_lock(self, own_mutex *lock) noexcept:
        """Add an issue lock to the locks of the capture, which are in the order of their addresses.
        """
        cdef size_t i = 0
        cdef size_t k = self.lock_count
        while i < k and self.locks[i] < lock:
            i += 1
        if i < k and self.locks[i] == lock:  # all blocking streams of a context share one lock
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
            if not own_is_joined(&self.plan.engine, self.orders[slot], origin):
                return self.streams[slot]
        return None

    cdef Stream lent_aside(self):
        """Return a stream, other than the captured one, to which memory is still lent, or None."""
        cdef Lending lending
        for lending in self.lendings:
            if lending.node.stream is not self.origin:
                return lending.node.stream
        return None

    # ---- operations ----

    cdef int issue(
        self, Stream stream, own_request *request, driver_call call, void *arguments
    ) except? -1:
        """Check an operation against the operations of the graph, and capture it.

        Returns 0 or a reason, as `issue` of _operation.
        """
        self.refuse_others(stream, request)
        return self.add_node(stream, request, call, arguments)

    cdef int add_node(
        self, Stream stream, own_request *request, driver_call call, void *arguments
    ) except? -1:
        """Like `issue`, for an operation of which the caller knows that it can be captured."""
        cdef Plan plan = self.plan
        cdef GraphNode node
        cdef Checks checks = None
        cdef Question question
        cdef size_t slot, held
        cdef int reason
        cdef bint queued = False
        global _newest
        node = plan.new_node(stream, request)
        node.kind = node_kind(request.operation)
        if self.ended:
            return CAPTURE_HAS_ENDED
        slot = self.slots[stream]
        held = plan.holdings.count
        reason = REFUSED
        node.index = len(plan.nodes)
        tail = (node.index,)
        try:
            reason = plan.hold(request)
            if reason:
                return reason
            reason = REFUSED
            checks = plan.checks_of(self.orders[slot], request)
            # The node is appended before the call: once the driver has it, nothing may fail.
            plan.nodes.append(node)
            while True:
                with nogil:
                    reason = _issue(self, node, stream, checks, call, arguments, &queued)
                if reason != REFUSED - OWN_MUST_WAIT or checks.failed != 0:
                    break   # a node in a body cannot wait for work outside the body
                question = Question(
                    &plan.engine, &checks.requests[0].conflict, &checks.requests[0], NULL, NULL,
                    <void *>self, NULL)
                works = missing_waits(&question)
                if works is None and not self.ended:    # if it has ended, the next try finds out
                    break
                while works:
                    stream.wait(works.pop(0))
        finally:
            if reason:
                plan.forget(node, held)
            if reason and queued:
                self.half_done = node.called()
        request.conflict = checks.requests[checks.failed].conflict
        if reason:
            return reason
        node.snapshot = checks.requests[0].issued
        if not self.ended:      # after the capture's end, nothing would reset `node.capture`
            node.capture = <void *>self
        node.after, self.tails[slot] = self.tails[slot], tail
        _newest = node
        mark_captured(&request.issued)
        return 0

    cdef int lend(
        self, Lending lending, Stream stream, own_request *request, object source, object target
    ) except? -1:
        """Begin a loan. All that the borrower queues on the stream during the loan is one node.

        Returns what `issue` returns. `source` and `target` are as for `newest_node`.
        """
        request.loan = &lending.loan
        reason = self.add_node(stream, request, NULL, NULL)
        if reason:
            return reason
        lending.node = newest_node(source, target)
        try:
            if not self.ended:
                self.lendings.append(lending)
                lending.capture = <void *>self
                return 0
        except BaseException:
            own_export_close(&self.plan.engine, &lending.loan)
            raise
        own_export_close(&self.plan.engine, &lending.loan)
        return CAPTURE_HAS_ENDED

    cdef int count_loan(self, Stream stream, own_request *request) except? -1:
        """Let a loan stand for all that the borrower has queued on the stream so far.

        Returns 0 or a reason. Adds no node, because the node of the loan stands for that work, too.
        """
        cdef bint queued = False
        cdef int reason
        cdef Checks checks = self.plan.checks_of(self.orders[<size_t>self.slots[stream]], request)
        with nogil:
            reason = _issue(self, None, stream, checks, NULL, NULL, &queued)
        if reason == 0:
            own_snapshot_drop(&self.plan.engine, &checks.requests[0].issued)
        return 0 if reason == CAPTURE_HAS_ENDED else reason

    cdef int count_loans(self) except -1:
        """Let the loans that go on after the block stand for all that was queued in it."""
        cdef Lending lending
        for lending in self.lendings[:]:
            if lending.capture is <void *>self:  # another thread may have just ended the loan
                lending.count()
        return 0

    cdef int close_loan(self, Lending lending) except -1:
        """End a loan in the engine of the capture. Needs no memory."""
        cdef size_t i
        cdef size_t count = len(self.lendings)
        lending.node.end = len(self.plan.nodes)
        lending.capture, lending.node = NULL, None
        own_export_close(&self.plan.engine, &lending.loan)
        for i in range(count):
            if self.lendings[i] is lending:
                del self.lendings[i]
                break
        return 0

    cdef Stream user_of(self, unsigned int slot):
        cdef size_t i
        cdef size_t count = len(self.streams)
        cdef Stream stream
        for i in range(count):
            if self.orders[i].slot == slot:
                stream = self.streams[i]
                if stream.closed or stream.thread not in (0, this_thread()):
                    return None
                return stream
        return None

    cdef GraphNode nothing(self, Stream stream):
        """Return a node of no bytes, for the token of an operation that has nothing to do."""
        cdef GraphNode node = blank_node(self.graph, stream)
        node.index, node.after = -1, ()
        node.capture, node.unlisted = <void *>self, self
        own_snapshot_take(
            &self.plan.engine, self.orders[<size_t>self.slots[stream]], &node.snapshot)
        return node

    cdef int refuse_others(self, Stream stream, own_request *request) except -1:
        """Refuse operations that cannot be captured, or would not do the same at each launch."""
        cdef uint32_t i
        if node_kind(request.operation) == NO_NODE or request.loan is not NULL or request.returns:
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
        own_snapshot_take(&self.plan.engine, self.orders[slot], &point.snapshot)
        point.capture = self
        return point

    cdef int record(self, Stream stream, Event event) except -1:
        return self.record_point(stream, event, self.point_at(stream))

    cdef int record_point(self, Stream stream, Event event, Point point) except -1:
        cdef Lending lending
        cdef Captured former = event.captured
        cdef uint64_t recorded = event.state.recorded
        cdef int reason
        for lending in self.lendings:
            if lending.node.stream is stream:
                lending.node.loose = True   # the borrower may queue more after this point
        if event.waiters:
            raise CaptureError(
                f"{event.called()} cannot be recorded in {self.called()}: another thread waits for"
                " it, and would end the capture. Record another event there: event ="
                " stream.record()")
        event.state.recorded, event.captured = 0, point     # until then `Event.ask` is refused
        with nogil:
            reason = _record_or_wait(self, stream, event, True, False)
        if reason:
            event.captured = former
            if event.state.recorded == 0:   # else another thread has recorded it meanwhile
                event.state.recorded = recorded
            self.refuse(stream, reason)
        return 0

    cdef Event event_after(self, GraphNode node):
        """Record a new event now. In the capture's engine it stands for one node."""
        cdef Event event = new_event(node.stream.context, CU_EVENT_DISABLE_TIMING)
        cdef Point point = Point.__new__(Point)
        point.tail = self.tails[<size_t>self.slots[node.stream]]
        own_snapshot_copy(&self.plan.engine, &node.snapshot, &point.snapshot)
        point.capture = self
        self.record_point(node.stream, event, point)
        return event

    cdef int admit(self, Stream stream) except -1:
        if stream.capture is not NULL and stream.capture is not <void *>self:
            raise CaptureError(
                f"{stream.called()} is a part of {(<Capturing>stream.capture).called()}, and cannot"
                f" join {self.called()}")
        if stream.order.order == OWN_LEGACY:
            raise CaptureError(
                "the legacy default stream cannot join a capture; use another stream")
        return 0

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
        self.admit(stream)
        if joins:
            self.add(stream)
        with nogil:
            reason = _record_or_wait(self, stream, event, False, joins)
        if reason:
            if joins:
                self.remove(stream)
            self.refuse(stream, reason)
        slot = self.slots[stream]
        if not own_wait(&self.plan.engine, self.orders[slot], &point.snapshot):
            raise MemoryError()
        # The driver keeps the order of the waits, too: see `ExecutableGraph.update`.
        self.tails[slot] = tuple(dict.fromkeys(self.tails[slot] + point.tail))
        return 0

    cdef int refuse(self, Stream stream, int reason) except -1:
        if reason == CAPTURE_HAS_ENDED:
            raise CaptureError(
                f"another thread or library has ended {self.called()} before this call")
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
        cdef size_t nodes = len(self.plan.nodes)
        cdef int reason
        with nogil:
            for i in range(self.lock_count):
                own_mutex_take(self.locks[i])
            reason = _end(self, self.origin, raw)
            if self.into is not NULL:   # the receiver owns `into`, unless the driver destroyed it
                self.destroyed = raw[0] is NULL
                raw[0] = NULL
            for i in range(self.lock_count):
                own_mutex_give(self.locks[i])
        for i in range(streams):
            stream = self.streams[i]
            if stream.capture is <void *>self:
                self.remove(stream)
            if self.joined:  # the driver goes on capturing the stream
                stream.exposed |= HANDED_OUT
        for i in range(nodes):
            node = self.plan.nodes[i]
            if node is not None:
                node.finish()
        # The token of a copy without bytes keeps this object, and must not keep nodes and buffers.
        self.wanted = None
        self.end_loans()
        return reason

    cdef void end_loans(self) noexcept:
        """Hand the loans whose borrowers still have the memory over to the process's engine.

        Raises nothing, because the capture ends in any case.
        """
        cdef Lending lending
        cdef size_t i
        cdef size_t count = len(self.lendings)
        for i in range(count):
            lending = self.lendings[i]
            lending.capture = NULL
            if not cudadrv_table.forked:
                own_export_close(&self.plan.engine, &lending.loan)
                lending.outlive_capture()
        ended, self.lendings = self.lendings, None
        if not self.joined and not cudadrv_table.forked:    # a joined capture goes on
            for lending in ended:
                lending.follow_users()


only_made_by(Capture, "use graph.capture(stream)")


cdef Capture new_capture(Stream origin, str graph):
    """Make a capture that has not begun. `graph` is its graph's name in messages."""
    cdef Capture capture = Capture.__new__(Capture)
    capture.origin, capture.graph = origin, graph
    return capture


cdef int _refuse_captured(Stream stream) except -1:
    """Raise if a stream is a part of a capture."""
    if stream.capture is not NULL:
        raise CaptureError(f"{stream.called()} is a part of"
                           f" {(<Capturing>stream.capture).called()} already")
    return 0


cdef int _keep_out(Context context) except -1:
    """Wait for calls of cuCtxSynchronize in other threads, which could end the capture.

    `context.captures` keeps new ones from beginning. The driver looks for captures when the
    function is called, so a call that lasts longer is not waited for: its work may wait for this
    thread.
    """
    cdef int64_t start = now_ns()
    while context.synchronizing and context.looked != context.synchronizations:
        let_others_go_on()
        if now_ns() - start > <int64_t>LOOKED_NS:
            context.looked = context.synchronizations   # `context.captures` admits no newer one
    return 0


cdef int _end_given_back() except -1:
    """End the loans that were given back in a block, before the block ends."""
    return 0 if cudadrv_table.forked else attend()


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
    if raw is NULL or cudadrv_table.forked or context.lost:
        return
    with nogil:
        status = in_cuGraphDestroy(context.raw, raw)
    report_end(status, ENDS_GRAPH, <size_t>raw, context, None)


# ---- driver calls of captures ----

cdef int _begin(Capture capture, Stream stream) noexcept nogil:
    cdef bint pushed = False
    cdef int reason = STREAM_IS_CLOSED
    own_mutex_take(stream.order.issue)
    if stream.order.state == OWN_OPEN:
        reason = enter_context(stream.context.raw, &pushed)
        if reason == CUDA_SUCCESS:
            reason = _look_for_others(stream)
            if reason == CUDA_SUCCESS and capture.into is NULL:
                reason = cuStreamBeginCapture(stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED)
            elif reason == CUDA_SUCCESS:
                reason = cuStreamBeginCaptureToGraph(
                    stream.raw, capture.into, capture.after, NULL, capture.after_count,
                    CU_STREAM_CAPTURE_MODE_RELAXED)
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


cdef int _look_at_theirs(Capture capture) noexcept nogil:
    """Return 0 if another library's capture goes on; CAPTURE_HAS_ENDED, or a status, if not."""
    cdef CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE
    cdef cuuint64_t theirs = 0
    cdef CUresult answer = cuStreamGetCaptureInfo(
        capture.origin.raw, &status, &theirs, NULL, NULL, NULL)
    if answer != CUDA_SUCCESS:
        return answer
    if not capture.entered:
        capture.theirs = theirs
    if status == CU_STREAM_CAPTURE_STATUS_NONE or theirs != capture.theirs:
        return CAPTURE_HAS_ENDED    # even if the library has begun another capture since
    return 0 if status == CU_STREAM_CAPTURE_STATUS_ACTIVE \
        else CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


cdef int _issue(
    Capture capture, GraphNode node, Stream stream, Checks checks, driver_call call,
    void *arguments, bint *queued
) noexcept nogil:
    """Check an operation, and capture it. Sets *queued if the driver has captured a part of it.

    `node` gets the driver's nodes. It may be None if `call` is NULL, because then there are none.
    """
    cdef bint pushed = False
    cdef int reason = CAPTURE_HAS_ENDED
    own_mutex_take(stream.order.issue)
    if not capture.ended:
        reason = enter_context(stream.context.raw, &pushed)
        if reason == CUDA_SUCCESS and capture.joined:
            reason = _look_at_theirs(capture)
            if reason:
                leave_context(pushed)
        if reason == CUDA_SUCCESS:
            reason = checks.begin()
            if reason == 0:
                if call is not NULL:
                    reason = call(arguments, stream.raw, queued)
                    if reason == CUDA_SUCCESS:
                        node.raw_count = 1 + queued[0]
                        reason = _find_nodes(stream.raw, node)
                        queued[0] = True
                if reason == CUDA_SUCCESS:
                    checks.settle()
                elif queued[0]:
                    checks.settle()
                    own_snapshot_drop(checks.engines[0], &checks.requests[0].issued)
                else:
                    checks.undo()
            leave_context(pushed)
    own_mutex_give(stream.order.issue)
    return reason


cdef CUresult _find_nodes(CUstream stream, GraphNode node) noexcept nogil:
    """Ask the driver for the nodes of the operation that the stream has captured last."""
    cdef CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE
    cdef const CUgraphNode *last = NULL
    cdef size_t count = 0
    cdef CUresult status = cuStreamGetCaptureInfo(stream, &capture, NULL, NULL, &last, &count)
    if status == CUDA_SUCCESS and (capture == CU_STREAM_CAPTURE_STATUS_NONE or count != 1):
        return <CUresult>CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    if status != CUDA_SUCCESS:
        return status
    cdef int part = node.raw_count - 1
    node.raws[part] = last[0]
    while part > 0 and status == CUDA_SUCCESS:
        count = 1
        status = cuGraphNodeGetDependencies(node.raws[part], &node.raws[part - 1], &count)
        part -= 1
    return status


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
        if reason == CUDA_SUCCESS and capture.joined:
            reason = _look_at_theirs(capture)
            if reason:
                leave_context(pushed)
        if reason == CUDA_SUCCESS:
            if record:
                reason = cuEventRecord(event.raw, stream.raw)
                if reason == CUDA_SUCCESS:
                    event.enter_capture()
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
    if capture.joined:  # the other library ends its capture
        return CUDA_SUCCESS
    if not origin.context.lost and not cudadrv_table.forked:
        # Called even if the context cannot be entered: else the stream would capture for ever. The
        # driver finds the context by the stream's handle.
        enter_context(origin.context.raw, &pushed)
        reason = cuStreamEndCapture(origin.raw, raw)
        if not _has_ended(reason):
            cuStreamEndCapture(origin.raw, raw)
        leave_context(pushed)
    return reason
