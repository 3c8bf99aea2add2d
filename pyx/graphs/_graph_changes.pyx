"""Graph changes: updates of executable graphs, and changes of single nodes of them.

A change first makes everything that the executable graph will have (`Next`), and then calls the
driver. After that call the change cannot fail. Until it ends, launches and other changes are
refused.
"""

import operator

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cudadrv._arguments cimport Frame
from cudadrv._arrays cimport region_behind
from cudadrv._buffers cimport new_buffer
from cudadrv._call_node cimport bind_calls, calls_of, change_call, changed_calls, new_node_calls
from cudadrv._capture cimport MOST_RAWS, DriverGraph, GraphNode, Holdings, new_holdings
from cudadrv._copy_node cimport change_copy, is_changeable_between
from cudadrv._device cimport Context, is_usable
from cudadrv._driver cimport (
    CU_GRAPH_EXEC_UPDATE_ERROR, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, CUDA_SUCCESS,
    CUcontext, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUresult, cudadrv_table,
    PyVectorcall_NARGS, exchange_method, has_answered, in_cuGraphExecUpdate,
    in_cuGraphNodeSetEnabled, last_failure, tuple_of, unlikely, vectorcallfunc,
)
from cudadrv._engine cimport (
    OWN_READ, OWN_SHARED, OWN_UNCHECKED, OWN_WRITE, engine, own_access, own_bytes_of, own_catch_up,
    own_meet,
)
from cudadrv._errors cimport only_made_by
from cudadrv._fill_node cimport change_fill, fill_into, refuse_fixed_fill, same_fill
from cudadrv._graph cimport (
    ExecutableGraph, Graph, NodeNames, Uses, check_whole, is_usable_executable, name_launches,
    refuse_while_busy, replaced, retire_name, usable_executable, uses_of, uses_with,
)
from cudadrv._host_function cimport Launches, NodeCall
from cudadrv._kernel cimport Kernel
from cudadrv._launch_node cimport change_launch
from cudadrv._names cimport (
    CALL_NODE, COPY_NODE, FILL_NODE, LAUNCH_NODE, OTHER_NODE, give_back_name, number_of_graph,
)
from cudadrv._node cimport NodeChange, home_in_nodes, unlike
from cudadrv._refusal cimport refuse_closed
from cudadrv._region cimport Region
from cudadrv._signal_node cimport change_number

from cudadrv._buffers import DeviceBuffer, LockedBuffer
from cudadrv._errors import BufferBorrowedError, CaptureError, CudaError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        CUDA_ERROR_INVALID_VALUE


# ---- the old and the new state of an executable ----

@cython.final
@cython.no_gc
@cython.freelist(4)
cdef class Next:
    """The new state of an executable graph. `_take_over` swaps it with the old one.

    This object then keeps the old state until the change has ended, because destructors may run
    code of the program.
    """

    def __dealloc__(self):
        free(self.accesses)
        if self.named and not cudadrv_table.forked:
            give_back_name(self.operation)


cdef Next _next(ExecutableGraph executable, Uses uses, Holdings holdings):
    """Return a new state. The caller sets what else changes."""
    cdef Next following = Next.__new__(Next)
    following.uses, following.holdings = uses, holdings
    following.operation = executable.operation
    following.number, following.paired = executable.numbers[1], executable.paired
    if uses.shared is not executable.uses.shared:
        following.accesses = <own_access *>malloc((uses.count + 1) * sizeof(own_access))
        if following.accesses is NULL:
            raise MemoryError()
        memcpy(following.accesses, uses.accesses, uses.count * sizeof(own_access))
    if not _same_names(uses.names, executable.uses.names):
        following.operation = name_launches(executable.label, uses.names)
        following.named = True
    return following


cdef bint _same_names(NodeNames names, NodeNames others) except -1:
    return names is others or names.graph == others.graph and names.accesses == others.accesses


cdef void _take_over(ExecutableGraph executable, Next following) noexcept:
    """Swap the states of an executable, after the driver has changed it."""
    own_catch_up(engine)
    if following.operation != executable.operation:
        retire_name(executable)
        executable.operation, following.named = following.operation, False
    executable.uses, following.uses = following.uses, executable.uses
    executable.special |= executable.uses.others is not None
    executable.holdings, following.holdings = following.holdings, executable.holdings
    if following.accesses is not NULL:
        executable.accesses, following.accesses = following.accesses, executable.accesses
    executable.numbers[1], executable.paired = following.number, following.paired
    if following.calls is not None:
        _take_over_calls(executable.launches, following.calls)


cdef int _take_over_calls(Launches launches, tuple calls) except -1:
    """Let later launches have these NodeCalls, of which some may be the present ones."""
    cdef NodeCall call
    former, launches.calls = launches.calls, calls
    for call in former:
        if call not in calls:
            call.replace()
    return 0


cdef int _put_in_place(Uses uses, GraphNode node) except -1:
    """Replace a node by one with the same accesses."""
    uses.nodes[node.index] = node
    uses.regions = uses.contexts = None     # its buffers may have other names and policies
    return 0


cdef int _begin_change(ExecutableGraph executable) except -1:
    """Refuse other changes and launches, until the caller resets `changing`."""
    if unlikely(not (is_usable_executable(executable) and is_usable(executable.context))):
        usable_executable(executable)
        executable.context.usable()
        usable_executable(executable)   # again: from here on no other thread runs
    if unlikely(executable.launching or executable.changing):
        refuse_while_busy(executable)
    executable.changing = True
    return 0


# ---- changes by another graph ----

cdef dict REASONS = {
    CU_GRAPH_EXEC_UPDATE_ERROR: "the driver cannot, CU_GRAPH_EXEC_UPDATE_ERROR",
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED:
        "the order is another one, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED",
    CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED:
        "an operation is of another kind, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED",
    CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED:
        "a kernel is another one, CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED",
    CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED:
        "the driver cannot change these parameters, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED",
    CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED:
        "the driver cannot update such an operation, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED",
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE:
        "the driver cannot change this kernel for that,"
        " CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE",
    CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED:
        "the driver cannot change such attributes of a launch,"
        " CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED",
}


def update_executable(ExecutableGraph executable not None, graph):
    """Do what `ExecutableGraph.update` says."""
    cdef Next following = None
    if not isinstance(graph, Graph):
        raise TypeError(f"update takes a Graph, not {type(graph).__name__}")
    _begin_change(executable)
    try:
        following = _update(executable, <Graph>graph)
        _take_over(executable, following)
    finally:
        executable.changing = False


cdef Next _update(ExecutableGraph executable, Graph graph):
    """Let the driver update an executable. Returns its new state."""
    graph.usable()
    check_whole(graph)
    graph.plan.busy = "being passed to update by another call"  # so that no thread closes it
    try:
        following = _update_by(executable, graph)
    finally:
        graph.plan.busy = None
    return following


cdef Next _update_by(ExecutableGraph executable, Graph graph):
    cdef DriverGraph driver_graph
    cdef Uses uses
    cdef CUgraphExecUpdateResultInfo info
    cdef Next following
    cdef CUresult status
    cdef bint paired
    if graph.context is not executable.context:
        raise ValueError(f"{graph.label} belongs to {graph.context!r}, and this executable of"
                         f" {executable.label} to {executable.context!r}")
    uses, driver_graph = graph.uses(), graph.driver_graph
    paired = _pair(executable, graph, uses.nodes)
    changes = None
    if executable.uses.disabled:
        changes = []
        uses = _with_disabled(executable, uses, changes)
    following = _next(executable, uses, graph.plan.holdings.copied(graph.label))
    following.number, following.paired = graph.number, paired
    following.calls = _bind(executable, graph, uses)
    memset(&info, 0, sizeof(info))
    with nogil:
        status = in_cuGraphExecUpdate(
            executable.context.raw, executable.raw, driver_graph.raw, &info)
        if status != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE:
            executable.context.check(status)
    if status != CUDA_SUCCESS:
        _refuse_update(executable, graph.label, uses.nodes, &info)
    if changes is not None:
        _disable_again(executable, changes)
    return following


cdef tuple _bind(ExecutableGraph executable, Graph graph, Uses uses):
    """Give the calls of a graph, which is about to update an executable, new NodeCalls.

    Returns these, or None if there are none.
    """
    if executable.launches is None:     # if the graph has calls, the driver refuses the update
        return None
    calls = calls_of(graph, uses.nodes)
    found = new_node_calls(calls, executable.launches)
    bind_calls(graph.context, calls, found)
    return found


cdef Uses _with_disabled(ExecutableGraph executable, Uses uses, list changes):
    """Return what launches use if the disabled nodes stay disabled. Appends to `changes`."""
    disabled = {}
    for index in executable.uses.disabled:
        changes.append(_disable(uses.nodes[index], executable.context))
        disabled[index] = _in_place(changes[-1])
    return uses_of(uses.nodes, uses.every, uses.names.graph, executable.context, disabled)


cdef GraphNode _in_place(NodeChange change):
    """Return the node that runs in the place of a disabled one, or None."""
    return change.node if change.node.kind == FILL_NODE else None


cdef int _disable_again(ExecutableGraph executable, list changes) except -1:
    """Disable nodes again, after the driver has replaced the fills that run in their place."""
    cdef NodeChange change
    for change in changes:
        try:
            _make(executable, change.node, change, change)
        except BaseException:
            executable.broken = change.node.called()
            raise
    return 0


cdef bint _pair(ExecutableGraph executable, Graph graph, list nodes) except -1:
    """Check that the nodes of the graph can replace the nodes of the executable.

    The driver pairs nodes by their order and by the order of their edges. If these are the same in
    both graphs, it pairs each node with the one at the same index. Returns whether both orders are
    known for all of the driver's nodes: they are not known for operations of other projects.
    """
    cdef GraphNode old, new
    cdef list present = executable.uses.nodes
    cdef bint known = executable.paired
    cdef Py_ssize_t i
    cdef str reason
    if len(nodes) != len(present):
        _refuse_pair(executable, graph,
                     f"it has {len(nodes)} operations, and the executable {len(present)}. Both need"
                     " the same operations in the same order")
    for i in range(len(nodes)):
        old, new = <GraphNode>present[i], <GraphNode>nodes[i]
        if old.kind != LAUNCH_NODE or new.kind != LAUNCH_NODE \
                or not same_items(old.after, new.after):
            reason = _unpaired(old, new, executable.context)
            if reason is not None:
                _refuse_pair(executable, graph, reason)
            known = known and old.kind != OTHER_NODE and new.kind != OTHER_NODE
    if not known and executable.uses.disabled:
        _refuse_pair(executable, graph,
                     "nodes are disabled, and which of the driver's nodes belong to an operation of"
                     " another project is not known. Enable them first")
    return known


cdef str _unpaired(GraphNode old, GraphNode new, Context context):
    """Return why a node cannot take the place of the one at its index, or None."""
    cdef str reason
    if not same_items(old.after, new.after) and old.after != new.after:
        return (f"its operation {new.index}, {new.called()}, runs after its operations {new.after},"
                f" and {old.called()} after {old.after}. Both graphs need the same waits in the"
                " same order")
    if old.kind != new.kind and (old.signal is not None or new.signal is not None):
        return (f"its operation {new.index}, {new.called()}, is of another kind than"
                f" {old.called()}. Instantiate that graph instead")
    if old.kind == FILL_NODE and new.kind == FILL_NODE and old.raw_count != new.raw_count:
        return (f"its operation {new.index}, {new.called()}, and {old.called()}: one of them fills"
                " items with different words of 4 bytes, which the device does by one operation"
                " for each word")
    reason = unlike(old, new, context)
    return None if reason is None else f"{reason}. Instantiate that graph instead"


cdef extern from *:
    """
    /* Returns whether the items of two tuples are the same objects. */
    static inline int cudadrv_same_items(PyObject *one, PyObject *other) {
        Py_ssize_t count = PyTuple_GET_SIZE(one);
        if (count != PyTuple_GET_SIZE(other)) {
            return 0;
        }
        for (Py_ssize_t i = 0; i < count; i++) {
            if (PyTuple_GET_ITEM(one, i) != PyTuple_GET_ITEM(other, i)) {
                return 0;
            }
        }
        return 1;
    }
    """
    bint same_items "cudadrv_same_items"(tuple one, tuple other)


cdef int _refuse_pair(ExecutableGraph executable, Graph graph, str reason) except -1:
    raise CaptureError(
        f"{graph.label} cannot update this executable of {executable.label}: {reason}")


cdef int _refuse_update(
    ExecutableGraph executable, str graph, list nodes, CUgraphExecUpdateResultInfo *info
) except -1:
    cdef GraphNode node
    cdef str where = ""
    for node in nodes:
        if info.errorNode is not NULL and _is_raw_of(node, info.errorNode):
            where = f" It is operation {node.index}, {node.called()}, in the place of" \
                    f" {(<GraphNode>executable.uses.nodes[node.index]).called()}."
    reason = REASONS.get(info.result, f"CUgraphExecUpdateResult {<int>info.result}")
    raise CaptureError(f"{graph} cannot update this executable of {executable.label}: {reason}."
                       f"{where} Instantiate that graph instead")


cdef bint _is_raw_of(GraphNode node, CUgraphNode raw) noexcept:
    cdef int part
    for part in range(node.raw_count):
        if node.raws[part] == raw:
            return True
    return False


# ---- changes of one node ----

def node_of(ExecutableGraph executable not None, node):
    """Do what `ExecutableGraph.__getitem__` says."""
    cdef ExecutableNode found
    count = len(usable_executable(executable).nodes)
    if isinstance(node, GraphNode):
        index = _index_of(executable, node)
    else:
        index = operator.index(node)
        index += count if index < 0 else 0
        if not 0 <= index < count:
            raise IndexError(f"this executable of {executable.label} has {count} nodes, and none at"
                             f" {node}")
    found = ExecutableNode.__new__(ExecutableNode)
    found.executable, found.index = executable, index
    return found


cdef Py_ssize_t _index_of(ExecutableGraph executable, GraphNode node) except -1:
    """Return the index of a node. Raises ValueError if it is of another graph."""
    if node.graph_number not in (executable.numbers[0], executable.numbers[1]) \
            or not 0 <= node.index < len(executable.uses.nodes):
        raise ValueError(f"{node!r} is no node of this executable of {executable.label}")
    return node.index


@cython.final
cdef class ExecutableNode:
    """ExecutableNode(*args, **kwargs)\n--\n
    A node of an executable graph, to be changed: ``step[node]``.

    Changes affect later launches of this executable only: neither the graph, nor launches that are
    queued already.
    """

    @property
    def node(self):
        """The `GraphNode` as it is now: its operation, buffers, and the line that has set it."""
        return _node_of(self)

    def set(
        self, *args, grid=None, block=None, shared_bytes=None, borrows=None, source=None,
        target=None, value=None, function=None
    ):
        """Change what the node does in later launches. Does not block.

        What is not given stays as it is. The node is checked as when it was captured, also against
        all nodes of the graph that are not ordered with it, disabled ones included. The executable
        then keeps what the node uses now, and lets go what the node used before. Messages name the
        line of this call.

        Parameters
        ----------
        *args
            Of a launch: all arguments, as for `Kernel.launch`. Of a call: all buffers, as for
            `Stream.call`. Of a set of a signal, or of a wait for one: its number. A launch raises
            SignalError if the number of a set is not larger than the last one.
        grid, block, shared_bytes, borrows : optional
            Of a launch: as for `Kernel.launch`. The kernel, and whether the launch is cooperative
            or has clusters, stay.
        source, target : Buffer, optional
            Of a copy: what is copied, and to where; they may have another size. Page-locked memory
            and memory of a device cannot take each other's place. Of a fill: the target, of the
            same dtype.
        value : optional
            Of a fill: as for `Buffer.fill_async`.
        function : callable, optional
            Of a call: as for `Stream.call`.

        Raises
        ------
        TypeError, ValueError
            An argument does not belong to this operation; a buffer is of another context, or
            empty; what the operation raises for such arguments. Or the executable is closed.
        BufferBorrowedError
            A node that is not ordered with this one would conflict with it.
        BufferClosedError
            A buffer is closed.
        CaptureError
            The operation is not a launch, a copy, a fill, a call, or a set of or a wait for a
            signal; or the executable is being launched or changed by another thread.
        CudaError
            The driver cannot change the node in this way. The node stays as it was.

        Driver functions: cuGraphExecKernelNodeSetParams, cuGraphExecMemcpyNodeSetParams,
        cuGraphExecMemsetNodeSetParams, cuGraphExecHostNodeSetParams,
        cuGraphExecBatchMemOpNodeSetParams.

        Examples
        --------
        >>> step = graph.instantiate()
        >>> step[0].set(source=other)           # a copy
        >>> step[1].set(4)                      # a set of a signal
        """
        _set(self, args, grid, block, shared_bytes, borrows, source, target, value, function)

    @property
    def enabled(self):
        """Whether launches run the node. A disabled node does nothing, and orders as before.

        Launches do not borrow what a disabled node would use. The executable still keeps it,
        because the node can be enabled again. A disabled fill fills separate memory instead: one
        item, or as many as before if the words of 4 bytes of an item differ.

        Setting it raises CaptureError if the node is not a launch, a copy or a fill; also while
        another thread launches or changes the executable. It raises CudaOutOfMemoryError if there
        is no memory for a disabled fill.

        Driver functions of the setter: cuGraphNodeSetEnabled; for fills cuMemAlloc and
        cuGraphExecMemsetNodeSetParams.
        """
        return self.index not in usable_executable(self.executable).disabled

    @enabled.setter
    def enabled(self, value):
        cdef ExecutableGraph executable = self.executable
        cdef GraphNode old
        cdef NodeChange change, undo = None
        cdef Next following = None
        cdef Uses uses
        cdef dict disabled
        cdef bint wanted = value
        _begin_change(executable)
        try:
            old = _known_node(executable, self.index)
            if old.kind == CALL_NODE:
                raise CaptureError(
                    f"{old.called()} of {executable.label} cannot be disabled: the driver disables"
                    " only launches, copies and fills. Set a function that does nothing instead:"
                    " step[node].set(function=...)")
            if old.signal is not None:
                raise CaptureError(
                    f"{old.called()} of {executable.label} cannot be disabled: the driver disables"
                    " only launches, copies and fills. Instantiate a graph without it")
            uses = executable.uses
            if wanted == (self.index in uses.disabled):
                disabled = dict(uses.disabled)
                if wanted:
                    change, present = _enable(old), disabled.pop(self.index)
                    undo = None if present is None else same_fill(present)
                else:
                    change, undo = _disable(old, executable.context), _enable(old)
                    disabled[self.index] = _in_place(change)
                uses = uses_of(
                    uses.nodes, uses.every, uses.names.graph, executable.context, disabled)
                following = _next(executable, uses, executable.holdings)
                _make(executable, old, change, undo)
                _take_over(executable, following)
        finally:
            executable.changing = False

    def __repr__(self):
        if self.executable.raw is NULL:
            return f"<ExecutableNode {self.index} of {self.executable!r}>"
        off = ", disabled" if self.index in self.executable.uses.disabled else ""
        called = (<GraphNode>self.executable.uses.nodes[self.index]).called()
        return f"<ExecutableNode {self.index} of {self.executable.label}: {called}{off}>"


only_made_by(ExecutableNode, "use step[node], where step is an ExecutableGraph")


cdef int _set(
    ExecutableNode node, tuple args, object grid, object block, object shared_bytes, object borrows,
    object source, object target, object value, object function
) except -1:
    """See `ExecutableNode.set`."""
    cdef ExecutableGraph executable = node.executable
    cdef Py_ssize_t index = node.index
    cdef NodeChange change, undo = None
    cdef GraphNode old
    cdef Next following = None
    cdef tuple calls = None
    cdef Frame frame
    cdef bint shaped = grid is not None or block is not None or shared_bytes is not None \
        or borrows is not None
    _begin_change(executable)
    try:
        old = _known_node(executable, index)
        _refuse_others(old, shaped, args, source, target, value, function)
        if old.kind == CALL_NODE:
            change = change_call(old, executable.context, executable.label, args, function,
                                 executable.launches)
        elif old.kind == LAUNCH_NODE:
            change = change_launch(old, args, grid, block, shared_bytes, borrows, &frame)
        elif old.kind == COPY_NODE:
            change = change_copy(old, executable.context, source, target)
        elif old.signal is not None:
            change = change_number(old, args[0])
        else:
            change = change_fill(old, executable.context, target, value)
            undo = same_fill(executable.uses.disabled.get(index, old))
        following = _following(executable, old, change)
        if old.kind == CALL_NODE:
            calls = changed_calls(executable.launches, old, change)
        # For a disabled fill, this only finds out whether the driver accepts the change.
        _make(executable, old, change, undo)
        if old.kind == FILL_NODE and index in executable.uses.disabled:
            _disable_again(executable, [undo])
        if following is None:
            _put_in_place(executable.uses, change.node)
        else:
            _take_over(executable, following)
        if calls is not None:
            _take_over_calls(executable.launches, calls)
    finally:
        executable.changing = False
    change.end()
    return 0


cdef object _set_directly(
    object method, PyObject *const *given, size_t nargsf, PyObject *names
):
    """Fast path of `ExecutableNode.set` (see `calls.h`): calls without keywords."""
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    if unlikely(names is not NULL or count == 0 or type(<object>given[0]) is not ExecutableNode):
        return _set_usually(method, given, nargsf, names)
    _set(<ExecutableNode>given[0], tuple_of(&given[1], count - 1), None, None, None, None,
         None, None, None, None)


cdef vectorcallfunc _set_usually = exchange_method(
    ExecutableNode, ExecutableNode.set, _set_directly
)


cdef GraphNode _node_of(ExecutableNode node):
    return usable_executable(node.executable).nodes[node.index]


cdef GraphNode _known_node(ExecutableGraph executable, Py_ssize_t index):
    """Return a node that can be changed. Raises CaptureError for others."""
    cdef GraphNode node = <GraphNode>executable.uses.nodes[index]
    if executable.original.raw is NULL:
        raise CaptureError(f"{node.called()} of {executable.label} cannot be changed any more: a"
                           " capture into that graph has failed, and the driver has destroyed it."
                           " Capture the graph again, and pass it to update")
    if node.kind == OTHER_NODE or (node.kind == LAUNCH_NODE and node.kernel is None):
        raise CaptureError(f"{node.called()} of {executable.label} cannot be changed: only"
                           " launches, calls, signals, and copies and fills without gaps can."
                           " Capture the graph again, and instantiate it")
    if not executable.paired:
        raise CaptureError(
            f"{node.called()} cannot be changed any more: a graph with operations of other projects"
            f" has updated this executable of {executable.label}, and which nodes of the driver"
            " belong to them is not known. Instantiate that graph instead")
    return node


cdef int _refuse_others(
    GraphNode node, bint shaped, tuple given, object source, object target, object value,
    object function
) except -1:
    """Refuse arguments of `set` that belong to other operations, and a call without any."""
    cdef bint of_launch = shaped or len(given) > 0
    cdef bint of_others = source is not None or target is not None or value is not None
    if node.signal is not None:
        if len(given) != 1 or shaped or of_others or function is not None:
            raise TypeError(f"set of {node.called()} takes {_taken_by(node)}")
        return 0
    if node.kind == CALL_NODE or function is not None:
        if node.kind != CALL_NODE or of_others or shaped \
                or not (given or function is not None):
            raise TypeError(f"set of {node.called()} takes {_taken_by(node)}")
        return 0
    if of_launch == of_others or of_launch != (node.kind == LAUNCH_NODE) \
            or (source if node.kind == FILL_NODE else value) is not None:
        raise TypeError(f"set of {node.called()} takes {_taken_by(node)}")
    return 0


cdef str _taken_by(GraphNode node):
    """Return which arguments `set` of a node takes."""
    if node.kind == LAUNCH_NODE:
        return "arguments, grid=, block=, shared_bytes= and borrows="
    if node.kind == CALL_NODE:
        return "buffers and function="
    if node.signal is not None:
        return "a number"
    return "source= and target=" if node.kind == COPY_NODE else "target= and value="


cdef Next _following(ExecutableGraph executable, GraphNode old, NodeChange change):
    """Return the state of an executable after a change of a node. Raises if the node conflicts.

    Returns None if the present state stays, except that the node is replaced in its list.
    """
    cdef Uses uses = executable.uses
    cdef list nodes, every
    # When the launch was made, the contexts of its buffers were compared with the context of its
    # kernel.
    if old.kind != LAUNCH_NODE \
            or (<Kernel>old.kernel).module.context is not executable.context:
        _refuse_other_context(executable, change.node)
    if _same_accesses(old, change.node):
        if Py_REFCNT(uses) == 2 and _fits_in_place(uses, old, change.node):
            # Only the executable and the local variable refer to `uses`; no graph and no token
            # does. So its list of nodes may change.
            return None
        return _next(executable, uses_with(uses, old, change.node), executable.holdings)
    _refuse_conflicts(executable, change)
    nodes = every = replaced(uses.nodes, old, change.node)
    if uses.every is not uses.nodes:
        every = replaced(uses.every, old, change.node)
    holdings = _hold(every, executable, change)
    uses = uses_of(nodes, every, uses.names.graph, executable.context, uses.disabled)
    return _next(executable, uses, holdings)


cdef bint _fits_in_place(Uses uses, GraphNode old, GraphNode new) noexcept:
    """Whether a Uses stays correct if a node is replaced by another with the same accesses."""
    return uses.every is uses.nodes \
        and old.site_number == new.site_number and old.operation == new.operation


cdef int _refuse_other_context(ExecutableGraph executable, GraphNode node) except -1:
    cdef Region region
    if is_changeable_between(node, executable.context):
        return 0
    for used in node.reads + node.writes:
        region = region_behind(used)
        if not region.portable and region.memory is not None \
                and region.memory.context is not executable.context:
            raise ValueError(f"{region.describe()} belongs to {region.memory.context!r}, and"
                             f" {executable.label} to another context; use a buffer of the graph's"
                             " context")
    return 0


cdef bint _same_accesses(GraphNode old, GraphNode new) noexcept:
    cdef own_access *a
    cdef own_access *b
    cdef uint32_t i
    if old.count != new.count:
        return False
    for i in range(old.count):
        a, b = &old.accesses[i], &new.accesses[i]
        if a.memory is not b.memory or a.start != b.start or a.stop != b.stop \
                or a.mode != b.mode or a.effect != b.effect:
            return False
    return True


cdef Holdings _hold(list nodes, ExecutableGraph executable, NodeChange change):
    """Hold what all nodes use. Raises BufferClosedError if memory of the changed node is closed."""
    cdef Holdings holdings = new_holdings(
        number_of_graph(), executable.label, executable.holdings.names)
    cdef GraphNode node
    cdef uint32_t i
    holdings.needs = executable.holdings.needs.copy()
    holdings.need(change.need)
    for node in nodes:
        for i in range(node.count):
            # Other nodes may use empty parts of closed memory: a graph does not hold empty parts.
            if not holdings.hold(&node.accesses[i], node.site_number, node.operation) \
                    and node is change.node:
                refuse_closed(change.targets()[i])
    return holdings


cdef int _refuse_conflicts(ExecutableGraph executable, NodeChange change) except -1:
    """Refuse a change that conflicts with a node that the graph does not order with it."""
    cdef GraphNode other
    cdef uint32_t i, k
    ordered = _ordered_with(executable.uses.nodes, change.node.index)
    for other in executable.uses.every:
        if (other.index if other.outermost < 0 else other.outermost) in ordered:
            continue
        for i in range(change.node.count):
            for k in range(other.count):
                if _conflicts(&change.node.accesses[i], &other.accesses[k]):
                    _refuse_conflict(executable, change, i, other, k)
    return 0


cdef set _ordered_with(list nodes, Py_ssize_t index):
    """Return the indices of a node and of all nodes that are ordered before or after it."""
    cdef GraphNode node
    cdef GraphNode changed = nodes[index]
    before, behind = [], []
    for node in nodes:
        before.append(node.after)
        behind.append([])
        for earlier in node.after:
            behind[earlier].append(node.index)
    found = _reached(before, index)
    for node in nodes:
        if node.loose and node.stream is not changed.stream \
                and not _is_after_end(node, nodes, found):
            found.discard(node.index)
    return found | _reached(behind, index) | {index}


cdef bint _is_after_end(GraphNode loan, list nodes, set before):
    """Whether a node that runs after the nodes `before` also runs after the end of a loan."""
    cdef GraphNode node
    for index in before:
        node = nodes[index]
        if node.stream is loan.stream and 0 < loan.end <= index:
            return True
    return False


cdef set _reached(list edges, Py_ssize_t index):
    """Return the indices of the nodes that can be reached along the edges."""
    found = set()
    todo = []
    for each in edges[index]:   # if memory runs out, list() leaks a tuple in Python 3.11
        todo.append(each)
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo.extend(edges[each])
    return found


cdef bint _conflicts(own_access *access, own_access *other) noexcept:
    """Whether two accesses conflict, by the engine's rule for operations that nothing orders."""
    if access.memory is not other.memory or access.policy == OWN_UNCHECKED \
            or not own_meet(own_bytes_of(access), own_bytes_of(other)) \
            or OWN_SHARED in (access.mode, other.mode):
        return False
    return access.mode != other.mode or access.mode == OWN_WRITE


cdef int _refuse_conflict(
    ExecutableGraph executable, NodeChange change, uint32_t access, GraphNode other, uint32_t of
) except -1:
    cdef int mode = change.node.accesses[access].mode
    cdef int used = other.accesses[of].mode
    verb = "read" if mode == OWN_READ else "write" if mode == OWN_WRITE else "use"
    done = "read" if used == OWN_READ else "written" if used == OWN_WRITE else "used"
    raise BufferBorrowedError(
        f"cannot {verb} {change.targets()[access]} in {change.node.called()} of"
        f" {executable.label}:\n"
        f"  it is {done} by {other.called()},\n"
        "  and nothing in the graph orders the two.\n"
        "  Capture a graph in which one of them waits for the other.")


cdef str OTHER_MEMORY = \
    "In a copy or a fill, the driver accepts only memory of the same kind in the place of other" \
    " memory, and page-locked memory only of the same context. It may refuse a copy, too, after" \
    " enable_access or allow_access. Capture the graph with that memory, and instantiate it."


cdef int _make(
    ExecutableGraph executable, GraphNode old, NodeChange change, NodeChange undo
) except -1:
    """Let the driver change a node, or raise and leave it as it is.

    `undo` reverts the parts that were changed before the driver failed.
    """
    cdef CUgraphNode *raws = &executable.raws[MOST_RAWS * old.index]
    cdef int part, changed
    cdef CUresult status = CUDA_SUCCESS
    cdef CUresult again = CUDA_SUCCESS
    with nogil:
        for part in range(old.raw_count):
            status = change.make(executable.raw, raws[part], part, executable.context.raw)
            if status != CUDA_SUCCESS:
                for changed in range(part):
                    if again == CUDA_SUCCESS:
                        again = undo.make(
                            executable.raw, raws[changed], changed, executable.context.raw)
                break
    if again != CUDA_SUCCESS:
        executable.broken = old.called()
    if has_answered(status, <CUresult>CUDA_ERROR_INVALID_VALUE) \
            and change.node.kind in (COPY_NODE, FILL_NODE):
        raise CudaError(<int>status, last_failure().decode(), OTHER_MEMORY)
    executable.context.check(status)
    return 0


# ---- enabling nodes ----

@cython.final
cdef class Switch(NodeChange):
    """Whether launches of the graph run a node, which is a launch or a copy."""

    cdef unsigned int enabled

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphNodeSetEnabled(context, executable, raw, self.enabled)


cdef NodeChange _disable(GraphNode node, Context context):
    """Return the change that disables a node."""
    return _fill_elsewhere(node, context) if node.kind == FILL_NODE else _switch(node, False)


cdef NodeChange _enable(GraphNode node):
    """Return the change that enables a node."""
    return same_fill(node) if node.kind == FILL_NODE else _switch(node, True)


cdef NodeChange _fill_elsewhere(GraphNode old, Context context):
    """Return the change that lets a fill write to memory which nothing else uses.

    This is how a fill is disabled, because driver 580 loses the order of the nodes before and after
    a memset node that cuGraphNodeSetEnabled has disabled. The node of the change keeps the memory.
    """
    cdef Region present = old.target
    cdef Context home = context if old.stream is not None else home_in_nodes(present, context)
    refuse_fixed_fill(old, context)
    cdef size_t count = present.count if old.raw_count > 1 else 1  # only one row can be changed
    # The driver accepts only memory of the same context. If that is not the graph's context, the
    # memory is page-locked, which both contexts can use.
    return fill_into(old, new_buffer(
        DeviceBuffer if home is context else LockedBuffer, count, present.dtype, home, None,
        "of a disabled fill"))


cdef NodeChange _switch(GraphNode node, bint enabled):
    cdef Switch change = Switch.__new__(Switch)
    change.node, change.enabled = node, enabled
    return change
