"""Copies as nodes of graphs, and as changes of nodes."""

cimport cython
from libc.stdint cimport uint16_t
from libc.string cimport memset

from cudadrv._array_copy cimport ArrayCopy, are_same_texels, check_texels, describe_texels
from cudadrv._array_memory cimport Texels
from cudadrv._box_copy cimport BoxCopy, describe_copy, fill_params
from cudadrv._capture cimport GraphNode, after_of
from cudadrv._copy cimport access_for_copy, are_apart, check_pair, device_side_of
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_MEMCPY3D, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUcontext,
    CUgraphExec, CUgraphNode, CUresult, in_cuGraphAddMemcpyNode, in_cuGraphExecMemcpyNodeSetParams,
)
from cudadrv._engine cimport OWN_READ, OWN_WRITE, own_access, own_request
from cudadrv._names cimport COPY_NODE, custom_operation
from cudadrv._node cimport (
    Builder, NodeChange, Place, add_node, changed_region, context_for, fill_request, home_in_nodes,
    kind_in_nodes, node_region, nothing_call, refuse_unlike, renewed,
)
from cudadrv._peers cimport refuse_other_context
from cudadrv._region cimport (
    Region, borrow, check_region, of_present_size, pointer_of, refuse_box,
)

cdef uint16_t ADD_COPY = custom_operation("add_copy")


cdef CUresult _node_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    return in_cuGraphAddMemcpyNode(
        place.context, nodes, place.graph, place.after, place.count, <CUDA_MEMCPY3D *>arguments,
        place.context)


cdef GraphNode add_copy(Builder graph, object destination, object origin, object after):
    cdef GraphNode node
    cdef own_request request
    cdef own_access accesses[2]
    cdef CUDA_MEMCPY3D copy
    cdef BoxCopy boxes
    cdef tuple nodes = after_of(after)
    cdef Region target = node_region(destination, "add_copy")
    cdef Region source = node_region(origin, "add_copy")
    cdef Context context
    cdef object need = None
    check_pair(target, source)
    context = _context_of(graph, target, source)
    if target.nbytes == 0 or pointer_of(target) == pointer_of(source):
        fill_request(&request, ADD_COPY, NULL, 0)
        return add_node(graph, context, &request, nodes, nothing_call, NULL, source, target, ())
    if are_apart(target, source):
        need = access_for_copy(target, source, context, graph.label)
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    if target.box is NULL and source.box is NULL:
        copy_params(&copy, target, source)
    else:
        describe_copy(&boxes, target, source)
        fill_params(&boxes, &copy)
    fill_request(&request, ADD_COPY, accesses, 2)
    node = add_node(graph, context, &request, nodes, _node_call, &copy, source, target,
                    (target.describe(), source.describe()))
    node.kind = COPY_NODE
    if need is not None and graph.plan is not None and graph.plan.holdings is not None:
        graph.plan.holdings.need(need)
    return node


cdef Context _context_of(Builder graph, Region target, Region source):
    """Return the context of a copy's node. A copy between contexts can be a node of either."""
    if are_apart(target, source) and source.memory.context is graph.context:
        return graph.context
    return context_for(graph, device_side_of(target, source))


cdef GraphNode add_array_copy(
    Builder graph, Region target, Region source, object written, object read, object after
):
    """Add a copy, of which at least one side is Texels.

    `written` and `read` are the objects that the node returns.
    """
    cdef own_request request
    cdef own_access accesses[2]
    cdef ArrayCopy copy
    cdef tuple nodes = after_of(after)
    cdef Context context
    check_region(target)
    check_region(source)
    target, source = of_present_size(target), of_present_size(source)
    check_texels(target, source)
    if are_apart(target, source):
        raise ValueError(
            f"{target.describe()} belongs to {target.memory.context!r}, and {source.describe()} to"
            f" {source.memory.context!r}; a graph copies arrays within one context. Copy before or"
            " after its launches")
    context = target.memory.context if isinstance(target, Texels) else source.memory.context
    if target.count == 0 or are_same_texels(target, source):
        fill_request(&request, ADD_COPY, NULL, 0)
        return add_node(graph, context, &request, nodes, nothing_call, NULL, read, written, ())
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    describe_texels(&copy, target, source)
    fill_request(&request, ADD_COPY, accesses, 2)
    return add_node(graph, context, &request, nodes, _node_call, &copy.params, read, written,
                    (target.describe(), source.describe()))


cdef void copy_params(CUDA_MEMCPY3D *params, Region target, Region source) noexcept:
    """Fill in the driver's description of a copy, with the kinds of memory that captures use."""
    # In a capture, a copy between page-locked buffers is a cuMemcpyAsync.
    cdef bint on_host = source.host_side and target.host_side
    memset(params, 0, sizeof(params[0]))
    params.srcMemoryType = CU_MEMORYTYPE_UNIFIED if on_host \
        else CU_MEMORYTYPE_HOST if source.host_side else CU_MEMORYTYPE_DEVICE
    params.dstMemoryType = CU_MEMORYTYPE_UNIFIED if on_host \
        else CU_MEMORYTYPE_HOST if target.host_side else CU_MEMORYTYPE_DEVICE
    params.srcHost, params.dstHost = \
        <void *><size_t>pointer_of(source), <void *><size_t>pointer_of(target)
    params.srcDevice, params.dstDevice = pointer_of(source), pointer_of(target)
    params.WidthInBytes, params.Height, params.Depth = target.nbytes, 1, 1


@cython.final
cdef class CopyChange(NodeChange):
    """Another source or target of a copy."""

    cdef CUDA_MEMCPY3D params

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphExecMemcpyNodeSetParams(
            context, executable, raw, &self.params, context)


cdef NodeChange change_copy(GraphNode old, Context context, object source, object target):
    """Return a change of a copy. None keeps the present buffer."""
    cdef CopyChange change = CopyChange.__new__(CopyChange)
    cdef Region to = changed_region(old, "target", target, old.target)
    cdef Region origin = changed_region(old, "source", source, old.source)
    check_pair(to, origin)
    refuse_box(to, "a change of a copy")
    refuse_box(origin, "a change of a copy")
    if pointer_of(to) == pointer_of(origin):
        raise ValueError(f"{to.describe()} and {origin.describe()} are the same bytes")
    _refuse_fixed_copy(old, context)
    refuse_unlike(old, "target", to, old.target, context)
    refuse_unlike(old, "source", origin, old.source, context)
    if old.stream is not None and not are_apart(to, origin):
        refuse_other_context(to, old.stream)
        refuse_other_context(origin, old.stream)
    change.node = renewed(old, origin, to, 2)
    if is_changeable_between(change.node, context):
        change.need = access_for_copy(to, origin, context, old.graph)
        check_pair(to, origin)  # again: a buffer may have grown while the driver was asked
    change.node.count = 2
    borrow(to, &change.node.accesses[0], OWN_WRITE)
    borrow(origin, &change.node.accesses[1], OWN_READ)
    copy_params(&change.params, to, origin)
    return change


cdef bint is_between(GraphNode node) noexcept:
    """Whether a node copies between device memory of two contexts."""
    return node.kind == COPY_NODE and are_apart(<Region>node.target, <Region>node.source)


cdef bint is_changeable_between(GraphNode node, Context context) noexcept:
    """Whether a node copies between a graph's context and another one, on a stream of the graph's
    context if it was captured.
    """
    return is_between(node) and (node.stream is None or node.stream.context is context) \
        and ((<Region>node.target).memory.context is context
             or (<Region>node.source).memory.context is context)


cdef int _refuse_fixed_copy(GraphNode old, Context context) except -1:
    """Refuse a change of a copy that driver 580 does not make, or makes only once."""
    cdef Region target = old.target, source = old.source
    refuse_box(target, "a change of a copy")
    refuse_box(source, "a change of a copy")
    if kind_in_nodes(target).startswith("stream-ordered") \
            and kind_in_nodes(source) == "page-locked" \
            and home_in_nodes(source, context) is not context:
        raise ValueError(f"{old.called()} cannot be changed: it copies {source.describe()},"
                         f" page-locked memory of {source.memory.context!r}, to stream-ordered"
                         f" memory in a graph of {context!r}. Capture the graph with other memory,"
                         " and instantiate that")
    return 0
