"""Graph changes: updates of executable graphs, and changes of single nodes of them.

A change first makes everything that the executable graph will have (`Next`), then calls the driver,
and then cannot fail any more. Meanwhile launches and other changes are refused.
"""

import operator

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cudadrv._buffers cimport new_buffer
from cudadrv._capture cimport DriverGraph, GraphNode, Holdings, new_holdings
from cudadrv._copy_node cimport change_copy
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CU_GRAPH_EXEC_UPDATE_ERROR, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, CUDA_SUCCESS,
    CUcontext, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUresult, cudadrv_table,
    has_answered, in_cuGraphExecUpdate, in_cuGraphNodeSetEnabled, last_failure,
)
from cudadrv._engine cimport (
    OWN_READ, OWN_SHARED, OWN_UNCHECKED, OWN_WRITE, engine, own_access, own_catch_up,
)
from cudadrv._errors cimport only_made_by
from cudadrv._fill_node cimport change_fill, fill_into, refuse_fixed_fill, same_fill
from cudadrv._graph cimport (
    ExecutableGraph, Graph, NodeNames, Uses, check_whole, name_launches, refuse_while_busy,
    replaced, retire_name, usable_executable, uses_of, uses_with, with_item,
)
from cudadrv._kernel cimport Kernel
from cudadrv._launch_node cimport change_launch
from cudadrv._names cimport (
    COPY_NODE, FILL_NODE, LAUNCH_NODE, OTHER_NODE, give_back_name, number_of_graph,
)
from cudadrv._node cimport NodeChange, home_in_nodes, unlike
from cudadrv._refusal cimport refuse_closed
from cudadrv._region cimport Region

from cudadrv._buffers import DeviceBuffer, LockedBuffer
from cudadrv._errors import BufferBorrowedError, CaptureError, CudaError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        CUDA_ERROR_INVALID_VALUE


# ---- the old and the new state of an executable ----

@cython.final
@cython.no_gc
cdef class Next:
    """The new state of an executable graph. `_take_over` exchanges it for the old state.

    It is dropped after the end of the change, because destructors may run code of the program.
    """

    def __dealloc__(self):
        free(self.accesses)
        if self.named and not cudadrv_table.forked:
            give_back_name(self.operation)


cdef Next _next(ExecutableGraph executable, tuple nodes, Uses uses, Holdings holdings):
    """Return a new state. The caller sets what else changes."""
    cdef Next following = Next.__new__(Next)
    following.nodes, following.uses, following.holdings = nodes, uses, holdings
    following.disabled = executable.disabled
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
    """Exchange the states of an executable, which the driver has already changed."""
    own_catch_up(engine)
    if following.operation != executable.operation:
        retire_name(executable)
        executable.operation, following.named = following.operation, False
    executable.nodes, following.nodes = following.nodes, executable.nodes
    executable.uses, following.uses = following.uses, executable.uses
    executable.holdings, following.holdings = following.holdings, executable.holdings
    if following.accesses is not NULL:
        executable.accesses, following.accesses = following.accesses, executable.accesses
    executable.disabled, following.disabled = following.disabled, executable.disabled
    executable.numbers[1], executable.paired = following.number, following.paired


cdef int _begin_change(ExecutableGraph executable) except -1:
    """Refuse other changes and launches, until the caller resets `changing`."""
    usable_executable(executable)
    executable.context.usable()
    usable_executable(executable)   # again: from here on no other thread runs
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
    cdef tuple nodes
    cdef CUgraphExecUpdateResultInfo info
    cdef Next following
    cdef CUresult status
    cdef bint paired
    if graph.context is not executable.context:
        raise ValueError(f"{graph.label} belongs to {graph.context!r}, and this executable of"
                         f" {executable.label} to {executable.context!r}")
    nodes, uses, driver_graph = graph.plan.finished(), graph.uses(), graph.driver_graph
    paired = _pair(executable, graph, nodes)
    disabled = {}
    changes = []
    for index in executable.disabled:
        changes.append(_disable(nodes[index], executable.context))
        disabled[index] = _in_place(changes[-1])
    if disabled:
        uses = uses_of(uses.items, graph.label, executable.context, disabled)
    following = _next(executable, nodes, uses, graph.plan.holdings.copied(graph.label))
    following.number, following.paired, following.disabled = graph.number, paired, disabled
    memset(&info, 0, sizeof(info))
    with nogil:
        status = in_cuGraphExecUpdate(
            executable.context.raw, executable.raw, driver_graph.raw, &info)
        if status != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE:
            executable.context.check(status)
    if status != CUDA_SUCCESS:
        _refuse_update(executable, graph.label, nodes, &info)
    _disable_again(executable, changes)
    return following


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


cdef bint _pair(ExecutableGraph executable, Graph graph, tuple nodes) except -1:
    """Check that the nodes of the graph can take the places of those of the executable.

    The driver pairs nodes by their order and by the order of their edges. If these are the same in
    both graphs, it pairs each node with the one at the same index. Returns whether this is known
    for all of the driver's nodes; for those of other projects' operations it is not.
    """
    cdef GraphNode old, new
    cdef tuple present = executable.nodes
    cdef bint known = executable.paired
    cdef Py_ssize_t i
    cdef str reason
    if len(nodes) != len(present):
        _refuse_pair(executable, graph,
                     f"it has {len(nodes)} operations, and the executable {len(present)}. Both need"
                     " the same operations in the same order")
    for i in range(len(nodes)):
        old, new = present[i], nodes[i]
        reason = _unpaired(old, new, executable.context)
        if reason is not None:
            _refuse_pair(executable, graph, reason)
        known = known and old.kind != OTHER_NODE and new.kind != OTHER_NODE
    if not known and executable.disabled:
        _refuse_pair(executable, graph,
                     "nodes are disabled, and which of the driver's nodes belong to an operation of"
                     " another project is not known. Enable them first")
    return known


cdef str _unpaired(GraphNode old, GraphNode new, Context context):
    """Return why a node cannot take the place of the one at its index, or None."""
    cdef str reason
    if not _same_items(old.after, new.after):
        return (f"its operation {new.index}, {new.called()}, runs after its operations {new.after},"
                f" and {old.called()} after {old.after}. Both graphs need the same waits in the"
                " same order")
    if old.kind == FILL_NODE and new.kind == FILL_NODE and old.raw_count != new.raw_count:
        return (f"its operation {new.index}, {new.called()}, and {old.called()}: one of them fills"
                " items with two different halves of 4 bytes, which the device does by two"
                " operations")
    reason = unlike(old, new, context)
    return None if reason is None else f"{reason}. Instantiate that graph instead"


cdef bint _same_items(tuple items, tuple others) except -1:
    """As ``items == others``, but faster: most items are the same objects."""
    cdef Py_ssize_t i
    if len(items) != len(others):
        return False
    for i in range(len(items)):
        if items[i] is not others[i] and items[i] != others[i]:
            return False
    return True


cdef int _refuse_pair(ExecutableGraph executable, Graph graph, str reason) except -1:
    raise CaptureError(
        f"{graph.label} cannot update this executable of {executable.label}: {reason}")


cdef int _refuse_update(
    ExecutableGraph executable, str graph, tuple nodes, CUgraphExecUpdateResultInfo *info
) except -1:
    cdef GraphNode node
    cdef str where = ""
    for node in nodes:
        if info.errorNode is not NULL and info.errorNode in (node.raws[0], node.raws[1]):
            where = f" It is operation {node.index}, {node.called()}, in the place of" \
                    f" {(<GraphNode>executable.nodes[node.index]).called()}."
    reason = REASONS.get(info.result, f"CUgraphExecUpdateResult {<int>info.result}")
    raise CaptureError(f"{graph} cannot update this executable of {executable.label}: {reason}."
                       f"{where} Instantiate that graph instead")


# ---- changes of one node ----

def node_of(ExecutableGraph executable not None, node):
    """Do what `ExecutableGraph.__getitem__` says."""
    cdef ExecutableNode found
    usable_executable(executable)
    count = len(executable.nodes)
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
            or not 0 <= node.index < len(executable.nodes):
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
        target=None, value=None
    ):
        """Change what the node does in later launches. Does not block.

        What is not given stays as it is. The node is checked as when it was captured, also against
        all nodes of the graph that are not ordered with it, disabled ones included. The executable
        then keeps what the node uses now, and lets go what the node used before. Messages name the
        line of this call.

        Parameters
        ----------
        *args
            Of a launch: all arguments, as for `Kernel.launch`.
        grid, block, shared_bytes, borrows : optional
            Of a launch: as for `Kernel.launch`. The kernel, and whether the launch is cooperative
            or has clusters, stay.
        source, target : buffer, optional
            Of a copy: what is copied, and to where; they may have another size. Page-locked memory
            and memory of a device cannot take each other's place. Of a fill: the target, of the
            same dtype.
        value : optional
            Of a fill: as for `Buffer.fill_async`.

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
            The operation is neither a launch, a copy nor a fill; or the executable is being
            launched or changed by another thread.
        CudaError
            The driver cannot change the node in this way. The node stays as it was.

        Driver functions: cuGraphExecKernelNodeSetParams, cuGraphExecMemcpyNodeSetParams,
        cuGraphExecMemsetNodeSetParams.
        """
        cdef ExecutableGraph executable = self.executable
        cdef NodeChange change, undo = None
        cdef GraphNode old
        cdef Next following = None
        _begin_change(executable)
        try:
            old = _known_node(executable, self.index)
            shape = grid, block, shared_bytes, borrows
            _refuse_others(old, args, shape, source, target, value)
            if old.kind == LAUNCH_NODE:
                change = change_launch(old, args, grid, block, shared_bytes, borrows)
            elif old.kind == COPY_NODE:
                change = change_copy(old, executable.context, source, target)
            else:
                change = change_fill(old, executable.context, target, value)
                undo = same_fill(executable.disabled.get(self.index, old))
            following = _following(executable, old, change)
            # For a disabled fill, this only finds out whether the driver accepts the change.
            _make(executable, old, change, undo)
            if old.kind == FILL_NODE and self.index in executable.disabled:
                _disable_again(executable, [undo])
            _take_over(executable, following)
        finally:
            executable.changing = False

    @property
    def enabled(self):
        """Whether launches run the node. A disabled node does nothing, and orders as before.

        Launches do not borrow what a disabled node would use. The executable still keeps it,
        because the node can be enabled again. A disabled fill fills memory of its own instead: one
        item, or as many as before if an item has two different halves of 4 bytes.

        Setting it raises CaptureError if the node is neither a launch, a copy nor a fill, and while
        another thread launches or changes the executable. It raises CudaOutOfMemoryError if there
        is no memory for a disabled fill.

        Driver functions of the setter: cuGraphNodeSetEnabled; for fills cuMemAlloc and
        cuGraphExecMemsetNodeSetParams.
        """
        _node_of(self)
        return self.index not in self.executable.disabled

    @enabled.setter
    def enabled(self, value):
        cdef ExecutableGraph executable = self.executable
        cdef GraphNode old
        cdef NodeChange change, undo = None
        cdef Next following = None
        cdef dict disabled
        cdef bint wanted = value
        _begin_change(executable)
        try:
            old = _known_node(executable, self.index)
            if wanted == (self.index in executable.disabled):
                disabled = dict(executable.disabled)
                if wanted:
                    change, present = _enable(old), disabled.pop(self.index)
                    undo = None if present is None else same_fill(present)
                else:
                    change, undo = _disable(old, executable.context), _enable(old)
                    disabled[self.index] = _in_place(change)
                following = _next(
                    executable, executable.nodes,
                    uses_of(executable.uses.items, executable.uses.names.graph, executable.context,
                            disabled),
                    executable.holdings)
                following.disabled = disabled
                _make(executable, old, change, undo)
                _take_over(executable, following)
        finally:
            executable.changing = False

    def __repr__(self):
        if self.executable.raw is NULL:
            return f"<ExecutableNode {self.index} of {self.executable!r}>"
        off = ", disabled" if self.index in self.executable.disabled else ""
        called = (<GraphNode>self.executable.nodes[self.index]).called()
        return f"<ExecutableNode {self.index} of {self.executable.label}: {called}{off}>"


only_made_by(ExecutableNode, "use step[node], where step is an ExecutableGraph")


cdef GraphNode _node_of(ExecutableNode node):
    cdef ExecutableGraph executable = node.executable
    usable_executable(executable)
    return executable.nodes[node.index]


cdef GraphNode _known_node(ExecutableGraph executable, Py_ssize_t index):
    """Return a node that can be changed. Raises CaptureError for others."""
    cdef GraphNode node = executable.nodes[index]
    if executable.original.raw is NULL:
        raise CaptureError(f"{node.called()} of {executable.label} cannot be changed any more: a"
                           " capture into that graph has failed, and the driver has destroyed it."
                           " Capture the graph again, and pass it to update")
    if node.kind == OTHER_NODE or (node.kind == LAUNCH_NODE and node.kernel is None):
        raise CaptureError(f"{node.called()} of {executable.label} cannot be changed: only"
                           " launches, copies and fills can. Capture the graph again, and pass it"
                           " to update")
    if not executable.paired:
        raise CaptureError(
            f"{node.called()} cannot be changed any more: a graph with operations of other projects"
            f" has updated this executable of {executable.label}, and which nodes of the driver"
            " belong to them is not known. Instantiate that graph instead")
    return node


cdef int _refuse_others(
    GraphNode node, tuple args, tuple shape, object source, object target, object value
) except -1:
    """Refuse arguments of `set` that belong to other operations, and a call without any."""
    cdef bint launches = node.kind == LAUNCH_NODE
    cdef str takes = "arguments, grid=, block=, shared_bytes= and borrows=" if launches \
        else "source= and target=" if node.kind == COPY_NODE else "target= and value="
    cdef bint of_launch = len(args) > 0 or _has_any(shape)
    cdef bint of_others = _has_any((source, target, value))
    if of_launch == of_others or of_launch != launches \
            or (source if node.kind == FILL_NODE else value) is not None:
        raise TypeError(f"set of {node.called()} takes {takes}")
    return 0


cdef bint _has_any(tuple given) noexcept:
    for each in given:
        if each is not None:
            return True
    return False


cdef Next _following(ExecutableGraph executable, GraphNode old, NodeChange change):
    """Return the state of an executable after a change of a node. Raises if the node conflicts."""
    cdef Uses uses = executable.uses
    cdef Holdings holdings = executable.holdings
    cdef tuple nodes = executable.nodes
    cdef tuple items
    # A launch has compared its buffers' contexts with its kernel's.
    if old.kind != LAUNCH_NODE \
            or (<Kernel>old.kernel).module.context is not executable.context:
        _refuse_other_context(executable, change.node)
    nodes = with_item(nodes, old.index, change.node)
    if _same_accesses(old, change.node):
        uses = uses_with(uses, old, change.node)
    else:
        _refuse_conflicts(executable, change)
        items = replaced(uses.items, old, change.node)
        holdings = _hold(items, executable, change)
        uses = uses_of(items, uses.names.graph, executable.context, executable.disabled)
    return _next(executable, nodes, uses, holdings)


cdef int _refuse_other_context(ExecutableGraph executable, GraphNode node) except -1:
    cdef Region region
    for region in node.reads + node.writes:
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


cdef Holdings _hold(tuple items, ExecutableGraph executable, NodeChange change):
    """Hold what all nodes use. Raises BufferClosedError if memory of the changed node is closed."""
    cdef Holdings holdings = new_holdings(
        number_of_graph(), executable.label, executable.holdings.names)
    cdef GraphNode node
    cdef uint32_t i
    for node, _, _ in items:
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
    ordered = _ordered_with(executable.nodes, change.node.index)
    for other, _, top in executable.uses.items:
        if top in ordered:
            continue
        for i in range(change.node.count):
            for k in range(other.count):
                if _conflicts(&change.node.accesses[i], &other.accesses[k]):
                    _refuse_conflict(executable, change, i, other, k)
    return 0


cdef set _ordered_with(tuple nodes, Py_ssize_t index):
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


cdef bint _is_after_end(GraphNode loan, tuple nodes, set before):
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
    todo = list(edges[index])
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo.extend(edges[each])
    return found


cdef bint _conflicts(own_access *access, own_access *other) noexcept:
    """Whether two accesses conflict, by the engine's rule for operations that nothing orders."""
    if access.memory is not other.memory or access.policy == OWN_UNCHECKED \
            or max(access.start, other.start) >= min(access.stop, other.stop) \
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

    `undo` reverts the first part of a node that has two parts.
    """
    cdef tuple handles = executable.raws[old.index]
    cdef CUgraphNode raws[2]
    cdef int count = <int>len(handles)
    cdef int part
    cdef CUresult status = CUDA_SUCCESS
    cdef CUresult again = CUDA_SUCCESS
    for part in range(count):
        raws[part] = <CUgraphNode><size_t>handles[part]
    with nogil:
        for part in range(count):
            status = change.make(executable.raw, raws[part], part, executable.context.raw)
            if status != CUDA_SUCCESS:
                if part:
                    again = undo.make(executable.raw, raws[0], 0, executable.context.raw)
                break
    if again != CUDA_SUCCESS:
        executable.broken = old.called()
    if has_answered(status, <CUresult>CUDA_ERROR_INVALID_VALUE) \
            and change.node.kind != LAUNCH_NODE:
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

    A disabled fill writes there, because driver 580 loses the order of the nodes before and after a
    memset node that cuGraphNodeSetEnabled has disabled. The node of the change keeps this memory.
    """
    cdef Region present = old.target
    cdef Context home = context if old.stream is not None else home_in_nodes(present, context)
    refuse_fixed_fill(old, context)
    cdef size_t count = present.count if old.raw_count == 2 else 1  # only one row can be changed
    # The driver accepts only memory of the same context. If that is not the graph's context, the
    # memory is page-locked, which both contexts can use.
    return fill_into(old, new_buffer(
        DeviceBuffer if home is context else LockedBuffer, count, present.dtype, home, None,
        "of a disabled fill"))


cdef NodeChange _switch(GraphNode node, bint enabled):
    cdef Switch change = Switch.__new__(Switch)
    change.node, change.enabled = node, enabled
    return change
