"""Functions of the program as nodes of graphs, and as changes of nodes.

All executables of a graph have copies of the graph's nodes. Each executable has to give its copies
NodeCalls of its own, because only these know which launch has come to a function. So the nodes of
the driver's graph get the NodeCalls before the driver instantiates the graph, or updates an
executable by it (`bind_calls`).
"""

cimport cython
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport free, malloc

from cudadrv._arguments cimport Room, new_room
from cudadrv._capture cimport GraphNode, after_of
from cudadrv._device cimport Context, default_context
from cudadrv._driver cimport (
    CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_HOST,
    CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType, CUresult,
    cuGraphChildGraphNodeGetGraph, cuGraphGetNodes, cuGraphHostNodeGetParams,
    cuGraphHostNodeSetParams, cuGraphNodeGetType, in_cuGraphAddHostNode,
    in_cuGraphExecHostNodeSetParams,
)
from cudadrv._engine cimport OWN_READ, OWN_WRITE, own_access, own_request
from cudadrv._host_function cimport (
    Call, Launches, NodeCall, borrow_of_call, described_of_call, fix_sizes, in_mode, new_call,
    new_node_call, no_call, refuse_in_body,
)
from cudadrv._names cimport CALL_NODE, custom_operation
from cudadrv._node cimport Builder, NodeChange, Place, add_node, fill_request, renewed
from cudadrv._region cimport Region, check_region

cdef uint16_t ADD_CALL = custom_operation("add_call")


cdef CUresult _node_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    return in_cuGraphAddHostNode(
        place.context, nodes, place.graph, place.after, place.count,
        <CUDA_HOST_NODE_PARAMS *>arguments)


cdef GraphNode add_call(Builder graph, object function, tuple buffers, object after):
    cdef own_request request
    cdef CUDA_HOST_NODE_PARAMS params
    cdef Call call = new_call(function, buffers)
    cdef GraphNode node
    cdef tuple nodes = after_of(after)
    cdef Room room = new_room((len(call.buffers) + 1) * sizeof(own_access))
    if graph.plan is not None and graph.plan.outer is not NULL:
        refuse_in_body(call.name, graph.label)
    call.context, call.caller, call.done = _context_of(graph, call), graph.label, "added"
    fix_sizes(call)
    borrow_of_call(call, <own_access *>room.start)
    fill_request(&request, ADD_CALL, <own_access *>room.start, <int>len(call.buffers))
    call.site = request.site
    no_call(&params)
    node = add_node(graph, call.context, &request, nodes, _node_call, &params,
                    in_mode(call, OWN_READ), in_mode(call, OWN_WRITE), described_of_call(call))
    node.kind, graph.calls[node] = CALL_NODE, call
    return node


cdef Context _context_of(Builder graph, Call call):
    """Return the context of a node. A function can use host memory of all contexts."""
    if graph.context is not None:
        return graph.context
    for region in call.buffers:
        return (<Region>region).memory.context
    return default_context()


# ---- the calls of executables ----

cdef list calls_of(Builder graph, list nodes):
    """Return the handles of the driver's nodes that call functions, each with its Call and index.

    Nodes in child graphs are included, with the index -1. Bodies have none.
    """
    cdef GraphNode node
    found = []
    if not graph.calls:
        return found
    for node in nodes:
        call = graph.calls.get(node)
        if type(call) is list:
            if call[0][0] == 0:
                graph.calls[node] = call = _copied_calls(graph.context, node.raws[0], call)
            for each in call:   # if memory runs out, `+=` would leak the list in Python 3.11
                found.append(each)
        elif call is not None:
            found.append((<size_t>node.raws[0], call, node.index))
    return found


cdef tuple new_node_calls(list calls, Launches launches):
    found = []
    for each in calls:
        found.append(new_node_call(each[1], launches, each[2]))
    return tuple(found)


cdef int bind_calls(Context context, list calls, tuple node_calls) except -1:
    """Give the nodes of the driver's graph the calls of one executable.

    The caller then instantiates the graph, or updates the executable. No other call may do so
    meanwhile.
    """
    cdef CUDA_HOST_NODE_PARAMS params
    cdef CUgraphNode raw
    for each, node_call in zip(calls, node_calls):
        (<NodeCall>node_call).fill_in(&params)
        raw = <CUgraphNode><size_t>each[0]
        with nogil:
            context.check(cuGraphHostNodeSetParams(raw, &params))
    return 0


# ---- child graphs ----

cdef list calls_to_copy(Context context, list calls):
    """Prepare the calls of a graph that is about to be copied. Returns the calls of the copy, with
    0 in place of their handles, which are not known yet.
    """
    cdef CUDA_HOST_NODE_PARAMS params
    cdef CUgraphNode raw
    found = []
    no_call(&params)
    for number, each in enumerate(calls):
        params.userData = <void *><size_t>number    # the copy has it, too
        raw = <CUgraphNode><size_t>each[0]
        with nogil:
            context.check(cuGraphHostNodeSetParams(raw, &params))
        found.append((0, each[1], -1))
    return found


cdef list _copied_calls(Context context, CUgraphNode child, list calls):
    """Return the calls with their handles in the copy that a child graph node has."""
    cdef CUgraph copy = NULL
    found = {}
    context.check(cuGraphChildGraphNodeGetGraph(child, &copy))
    _find_calls(context, copy, found)
    made = []
    for number, each in enumerate(calls):
        made.append((found[number], each[1], -1))
    return made


cdef int _find_calls(Context context, CUgraph graph, dict found) except -1:
    """Find the handles of the calls by their numbers, also in child graphs."""
    cdef CUDA_HOST_NODE_PARAMS params
    cdef CUgraphNodeType kind = CU_GRAPH_NODE_TYPE_HOST
    cdef CUgraph inner = NULL
    cdef CUgraphNode raw
    for handle in _nodes_of(context, graph):
        raw = <CUgraphNode><size_t>handle
        context.check(cuGraphNodeGetType(raw, &kind))
        if kind == CU_GRAPH_NODE_TYPE_GRAPH:
            context.check(cuGraphChildGraphNodeGetGraph(raw, &inner))
            _find_calls(context, inner, found)
        elif kind == CU_GRAPH_NODE_TYPE_HOST:
            context.check(cuGraphHostNodeGetParams(raw, &params))
            found[<size_t>params.userData] = handle
    return 0


cdef list _nodes_of(Context context, CUgraph graph):
    cdef size_t count = 0
    cdef size_t i
    cdef CUgraphNode *nodes
    context.check(cuGraphGetNodes(graph, NULL, &count))
    nodes = <CUgraphNode *>malloc((count + 1) * sizeof(CUgraphNode))
    if nodes is NULL:
        raise MemoryError()
    found = []
    try:
        context.check(cuGraphGetNodes(graph, nodes, &count))
        for i in range(count):
            found.append(<size_t>nodes[i])
    finally:
        free(nodes)
    return found


# ---- changes ----

@cython.final
@cython.no_gc
cdef class CallChange(NodeChange):
    """Another function or other buffers of a call."""

    cdef NodeCall call
    cdef CUDA_HOST_NODE_PARAMS params

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphExecHostNodeSetParams(context, executable, raw, &self.params)

    cdef tuple targets(self):
        return described_of_call(self.call.call)


cdef NodeChange change_call(
    GraphNode old, Context context, str graph, tuple buffers, object function, Launches launches
):
    """Return a change of a call. `buffers` is empty, or `function` None, to keep what it has now.
    """
    cdef CallChange change = CallChange.__new__(CallChange)
    cdef Call present = launches.call_at(old.index).call
    cdef Call call = new_call(present.function if function is None else function, buffers)
    if not buffers:
        for region in present.buffers:
            check_region(<Region>region)
        call.buffers, call.modes = present.buffers[:], present.modes
    fix_sizes(call)
    change.node = renewed(old, in_mode(call, OWN_READ), in_mode(call, OWN_WRITE),
                          len(call.buffers) + 1)
    borrow_of_call(call, change.node.accesses)
    change.node.count = <uint32_t>len(call.buffers)
    call.context, call.caller, call.done = context, graph, "set"
    call.site = change.node.site_number
    change.call = new_node_call(call, launches, old.index)
    change.call.fill_in(&change.params)
    return change


cdef tuple changed_calls(Launches launches, GraphNode old, NodeChange change):
    """Return the NodeCalls of an executable after a change of a node."""
    cdef NodeCall call
    found = []
    for call in launches.calls:
        found.append((<CallChange>change).call if call.index == old.index else call)
    return tuple(found)
