"""Sets of signals, and waits for them, in graphs: as nodes, as changes of nodes, and in launches.

A node has the number for the next launch. Each launch sets its signals to larger numbers, as sets
of the launch's stream would. To other streams a set is complete when the launch is, because a
launch is one operation: behind it one event is recorded, which stands for all its sets. If a node
waits for a number whose set is queued, the stream waits for that set before the launch.
"""

cimport cython
from libc.stdint cimport uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cudadrv._capture cimport GraphNode, after_of, number_of
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CU_EVENT_DISABLE_TIMING, CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_MEM_OP_WRITE_VALUE_64,
    CU_STREAM_WAIT_VALUE_GEQ, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_SUCCESS, CUcontext,
    CUgraphExec, CUgraphNode, CUresult, CUstream, CUstreamBatchMemOpParams, cuEventRecord,
    in_cuGraphAddBatchMemOpNode, in_cuGraphExecBatchMemOpNodeSetParams,
)
from cudadrv._engine cimport (
    OWN_SHARED, engine, own_access, own_clock, own_clock_drop, own_clock_join, own_record_as,
    own_request, own_snapshot, own_snapshot_copy, own_snapshot_drop,
)
from cudadrv._event cimport drop_open_wait, new_event, open_wait
from cudadrv._names cimport SET_NODE, WAIT_NODE, NodeKind, custom_operation
from cudadrv._node cimport Builder, NodeChange, Place, add_node, context_for, fill_request, renewed
from cudadrv._region cimport borrow, pointer_of
from cudadrv._signal cimport (
    Point, Signal, Unset, borrow_set, check_signal, checked_number, number_node,
    refuse_without_signals, refuse_in_body, refuse_smaller_in, set_in, unset_wait,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, take_snapshot

from cudadrv._errors import CaptureError, SignalError

cdef uint16_t ADD_SET = custom_operation("add_set")
cdef uint16_t ADD_WAIT = custom_operation("add_wait")


# ---- nodes that are added ----

cdef CUresult _node_call(
    void *item, Place *at, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef CUDA_BATCH_MEM_OP_NODE_PARAMS params
    _fill_in(&params, <CUstreamBatchMemOpParams *>item, at.context)
    return in_cuGraphAddBatchMemOpNode(
        at.context, nodes, at.graph, at.after, at.count, &params)


cdef void _fill_in(
    CUDA_BATCH_MEM_OP_NODE_PARAMS *params, CUstreamBatchMemOpParams *item, CUcontext context
) noexcept nogil:
    memset(params, 0, sizeof(params[0]))
    params.ctx, params.count, params.paramArray = context, 1, item


cdef int _describe(
    CUstreamBatchMemOpParams *item, NodeKind kind, Signal signal, uint64_t number
) except -1:
    """Fill in the driver's description of a set or a wait."""
    memset(item, 0, sizeof(item[0]))
    if kind == SET_NODE:
        item.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64
        item.writeValue.address, item.writeValue.value64 = pointer_of(signal.word), number
    else:
        item.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64
        item.waitValue.address, item.waitValue.value64 = pointer_of(signal.word), number
        item.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ
    return 0


cdef GraphNode add_set(Builder graph, object given, object value, object after):
    cdef own_access access
    cdef tuple nodes = after_of(after)
    cdef Signal signal = _signal_for(graph, given, "graph.add_set")
    cdef uint64_t number = checked_number(value, signal)
    signal.usable()
    refuse_smaller_in(graph.plan, signal, number)
    borrow_set(signal, &access)
    return _add_numbered(graph, SET_NODE, ADD_SET, signal, number, &access, nodes)


cdef GraphNode add_wait(Builder graph, object given, object value, object after):
    cdef own_access access
    cdef tuple nodes = after_of(after)
    cdef Signal signal = _signal_for(graph, given, "graph.add_wait")
    cdef uint64_t number = checked_number(value, signal)
    cdef GraphNode node
    signal.usable()
    node = set_in(graph.plan, signal, number)
    if node is not None:
        raise CaptureError(
            f"{node.called()} of {graph.label} sets {signal.called()} to {number_of(node)}, so a"
            f" wait for {number} in the same graph is an edge: add what waits with after=[node],"
            " with the node of that set")
    borrow(signal.word, &access, OWN_SHARED)
    return _add_numbered(graph, WAIT_NODE, ADD_WAIT, signal, number, &access, nodes)


cdef Signal _signal_for(Builder graph, object given, str call):
    check_signal(given, call)
    if graph.plan is not None and graph.plan.outer is not NULL:
        refuse_in_body(given, graph.label)
    return given


cdef GraphNode _add_numbered(
    Builder graph, NodeKind kind, uint16_t name, Signal signal, uint64_t number, own_access *access,
    tuple after
):
    cdef own_request request
    cdef CUstreamBatchMemOpParams item
    cdef GraphNode node
    cdef Context context = context_for(graph, signal.word)
    refuse_without_signals(context.device)
    _describe(&item, kind, signal, number)
    fill_request(&request, name, access, 1)
    node = add_node(graph, context, &request, after, _node_call, &item, None, None,
                    (signal.called(),))
    node.kind = kind
    number_node(node, signal, number)
    return node


# ---- changes ----

@cython.final
cdef class NumberChange(NodeChange):
    """Another number of a set or a wait."""

    cdef CUstreamBatchMemOpParams item

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        cdef CUDA_BATCH_MEM_OP_NODE_PARAMS params
        _fill_in(&params, &self.item, context)
        return in_cuGraphExecBatchMemOpNodeSetParams(context, executable, raw, &params)


cdef NodeChange change_number(GraphNode old, object value):
    """Return a change of the number of a set or a wait. A launch checks whether it is larger."""
    cdef NumberChange change = NumberChange.__new__(NumberChange)
    cdef Signal signal = old.signal
    cdef uint64_t number = checked_number(value, signal)
    signal.usable()
    change.node = renewed(old, None, None, 1)
    memcpy(change.node.accesses, old.accesses, sizeof(own_access))
    change.node.count = 1
    number_node(change.node, signal, number)
    _describe(&change.item, old.kind, signal, number)
    return change


# ---- launches ----

@cython.final
@cython.no_gc_clear
cdef class Turn:
    """What one launch of an executable graph does to signals."""

    def __dealloc__(self):
        free(self.sets)
        own_clock_drop(self.waited)     # no other thread has this clock

    cdef int look(self, Stream stream) except -1:
        """Find the sets that the launch waits for. Raises if it cannot set its signals."""
        cdef GraphNode node
        cdef Signal signal
        cdef Point point
        for node in self.nodes:
            signal = node.signal
            signal.usable()
            if node.kind == WAIT_NODE:
                point = signal.point_at(number_of(node), f"{node.called()} in {node.graph}, a wait")
                if point is not None:
                    self.earlier.append(point)
                    self.join(point)
                elif signal.external and number_of(node) > signal.reached:
                    self.unset.append(unset_wait(signal, number_of(node), stream))
        return self.prepare_sets()

    cdef int join(self, Point point) except -1:
        """Join what is before a set into `waited`."""
        cdef own_snapshot before
        cdef own_clock *joined = NULL
        own_snapshot_copy(engine, &point.event.state.snapshot, &before)
        cdef bint known = own_clock_join(self.waited, &before, &joined)
        own_snapshot_drop(engine, &before)
        if not known:
            raise MemoryError()
        own_clock_drop(self.waited)
        self.waited = joined
        return 0

    cdef int begin(self, Stream stream) except -1:
        """Let the stream wait for sets, and note what the launch does.

        The caller then calls `end`, also if this raises an exception.
        """
        cdef GraphNode node
        cdef Point point
        for point in self.earlier:
            stream.wait_for(point.event)
        if self.count:
            self.event = new_event(stream.context, CU_EVENT_DISABLE_TIMING)
            self.raw = self.event.raw
        for node in self.nodes:
            if node.kind == SET_NODE:
                point = _point(node, self)
                self.points.append(point)
                (<Signal>node.signal).add(point)
        for wait in self.unset:
            open_wait(wait)
        return 0

    cdef int prepare_sets(self) except -1:
        """Fill in `sets`. Raises SignalError if a number is not larger than the last one."""
        cdef GraphNode node
        cdef Signal signal
        cdef NextNumber *added
        last = {}
        self.sets = <NextNumber *>calloc(len(self.nodes) + 1, sizeof(NextNumber))
        if self.sets is NULL:
            raise MemoryError()
        for node in self.nodes:
            if node.kind != SET_NODE:
                continue
            signal = node.signal
            signal.forget_known()
            if number_of(node) <= last.get(signal, signal.last()):
                _refuse_smaller(node, last.get(signal, signal.last()), signal not in last)
            added = &self.sets[self.count]
            added.number, added.queued = number_of(node), &signal.queued
            last[signal] = added.number
            self.count += 1
        return 0

    cdef int refuse_late(self) except -1:
        """Raise SignalError if another thread has queued larger numbers since `begin`."""
        cdef GraphNode node
        if self.too_late:
            for node in self.nodes:
                if node.kind == SET_NODE:
                    if number_of(node) <= (<Signal>node.signal).last():
                        _refuse_smaller(node, (<Signal>node.signal).last(), True)
        return 0

    cdef int end(self, Stream stream, Token token) except -1:
        """End the launch. `token` is None if it has failed."""
        cdef own_snapshot issued
        cdef Signal signal
        cdef Point point
        cdef Unset wait
        cdef GraphNode node
        for wait in self.unset:
            if token is not None:
                wait.slot, wait.seq = token.slot, token.seq
            elif self.queued:
                wait.slot, wait.seq = stream.order.slot, stream.order.settled
            else:
                drop_open_wait(wait)
        if token is not None and self.count:
            take_snapshot(token, &issued)
            own_record_as(engine, &issued, &self.event.state)
            own_snapshot_drop(engine, &issued)
            token.asked = self.event
        for node in self.nodes:
            if node.kind == SET_NODE:
                signal = node.signal
                for point in self.points if token is None else ():
                    signal.drop(point)
                if token is not None:
                    signal.site = self.site
        return 0


cdef Turn new_turn(list nodes, tuple indices):
    """Return the turn of a launch. `indices` are those of the sets and the waits in `nodes`."""
    cdef Turn turn = Turn.__new__(Turn)
    turn.nodes, turn.points, turn.site = [], [], here()
    turn.earlier, turn.unset = [], []
    for index in indices:
        turn.nodes.append(nodes[index])
    return turn


cdef bint are_larger(Turn turn) noexcept nogil:
    """Whether the numbers of a launch are still larger than all that are queued."""
    cdef size_t i
    for i in range(turn.count):
        if turn.sets[i].number <= turn.sets[i].queued[0]:
            turn.too_late = True
            return False
    return True


cdef CUresult finish_sets(Turn turn, CUstream stream) noexcept nogil:
    """Note that the driver has the launch, and record the event behind it."""
    cdef size_t i
    turn.queued = True
    if turn.count == 0:
        return CUDA_SUCCESS
    for i in range(turn.count):
        turn.sets[i].queued[0] = turn.sets[i].number
    return cuEventRecord(turn.raw, stream)


cdef Point _point(GraphNode node, Turn turn):
    cdef Point point = Point.__new__(Point)
    point.number, point.site, point.event = number_of(node), turn.site, turn.event
    return point


cdef int _refuse_smaller(GraphNode node, uint64_t last, bint queued) except -1:
    cdef Signal signal = node.signal
    by = f" by {place(signal.site)}" if queued and last == signal.queued and last else ""
    raise SignalError(
        f"{node.called()} in {node.graph} cannot set {signal.called()} to {number_of(node)}: it"
        f" only grows, and was set to {last}{by}. Give the node a larger number before each launch:"
        f" step[{node.index}].set({last + 1})")


cdef tuple signal_nodes(list nodes):
    """Return the indices of the nodes that set signals or wait for them; None if there are none."""
    cdef GraphNode node
    found = []
    for node in nodes:
        if node.signal is not None:
            found.append(node.index)
    return tuple(found) if found else None
