"""Fills as nodes of graphs, and as changes of nodes."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy, memset

from cudadrv._box_copy cimport BoxFill, describe_fill, refuse_several
from cudadrv._capture cimport GraphNode, after_of
from cudadrv._copy cimport refuse_other_dtype
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_MEMSET_NODE_PARAMS, CUDA_SUCCESS, CUcontext, CUgraphExec, CUgraphNode, CUresult,
    in_cuGraphAddMemsetNode, in_cuGraphExecMemsetNodeSetParams,
)
from cudadrv._engine cimport OWN_WRITE, own_access, own_request
from cudadrv._fill cimport Fill, columns_of, set_item, shape_fill
from cudadrv._names cimport FILL_NODE, custom_operation
from cudadrv._node cimport (
    Builder, NodeChange, Place, add_node, changed_region, context_for, fill_request, home_in_nodes,
    kind_in_nodes, node_region, nothing_call, refuse_unlike, renewed, take_back,
)
from cudadrv._peers cimport refuse_other_context
from cudadrv._region cimport Region, borrow, check_region, refuse_box

cdef uint16_t ADD_FILL = custom_operation("add_fill")


cdef CUresult _node_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef Fill *fill = <Fill *>arguments
    cdef CUDA_MEMSET_NODE_PARAMS params
    cdef CUresult status = CUDA_SUCCESS
    cdef int part, made
    count[0] = columns_of(fill)
    cdef const CUgraphNode *before = place.after
    cdef size_t many = place.count
    for part in range(count[0]):
        fill_params(&params, fill, count[0], part)
        status = in_cuGraphAddMemsetNode(
            place.context, &nodes[part], place.graph, before, many, &params, place.context)
        before, many = &nodes[part], 1
        if status != CUDA_SUCCESS:
            for made in range(part):
                take_back(place, nodes[made], "cuGraphAddMemsetNode")
            break
    return status


cdef void fill_params(
    CUDA_MEMSET_NODE_PARAMS *params, const Fill *fill, int parts, int part
) noexcept nogil:
    """Fill in the driver's description of one part of a fill.

    See `_fill_call` of _fill: a fill with several parts has one for each column of words.
    """
    cdef uint32_t value = 0
    cdef size_t width = min(fill.itemsize, <size_t>4)
    memcpy(&value, &fill.item[4 * part], width)
    memset(params, 0, sizeof(params[0]))
    params.dst, params.elementSize, params.value = \
        fill.target + 4 * part, <unsigned int>width, value
    params.width, params.height = fill.itemsize // width * fill.count, 1
    if parts > 1:
        params.pitch, params.width, params.height = fill.itemsize, 1, fill.count


cdef GraphNode add_fill(Builder graph, object destination, object value, object after):
    cdef GraphNode node
    cdef own_request request
    cdef own_access access
    cdef Fill fill
    cdef unsigned char[16] item
    cdef tuple nodes = after_of(after)
    cdef Region target = node_region(destination, "add_fill")
    cdef Context context
    set_item(item, value, target)
    check_region(target)    # converting the value may have closed the buffer
    context = context_for(graph, target)
    if target.nbytes == 0:
        fill_request(&request, ADD_FILL, NULL, 0)
        return add_node(graph, context, &request, nodes, nothing_call, NULL, None, target, ())
    borrow(target, &access, OWN_WRITE)
    shape_fill(&fill, target, item)
    fill_request(&request, ADD_FILL, &access, 1)
    if target.box is not NULL:
        return _add_box_fill(graph, context, &request, nodes, &fill, target)
    node = add_node(graph, context, &request, nodes, _node_call, &fill, None, target,
                    (target.describe(),))
    node.kind = FILL_NODE
    memcpy(node.settings, fill.item, sizeof(fill.item))
    return node


cdef GraphNode _add_box_fill(
    Builder graph, Context context, own_request *request, tuple nodes, Fill *fill, Region target
):
    """Add the fill of a box. The driver does not change such a node."""
    cdef BoxFill boxes
    describe_fill(&boxes, target, fill.itemsize, fill.item)
    refuse_several(&boxes, target)
    return add_node(graph, context, request, nodes, _box_node_call, &boxes, None, target,
                    (target.describe(),))


cdef CUresult _box_node_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef BoxFill *fill = <BoxFill *>arguments
    cdef CUDA_MEMSET_NODE_PARAMS params
    memset(&params, 0, sizeof(params))
    params.elementSize = <unsigned int>min(fill.itemsize, <size_t>4)
    params.dst, params.pitch = fill.target, fill.box.pitch
    params.width, params.height = fill.box.width // params.elementSize, fill.box.rows
    memcpy(&params.value, fill.item, params.elementSize)
    return in_cuGraphAddMemsetNode(
        place.context, nodes, place.graph, place.after, place.count, &params, place.context)


@cython.final
cdef class FillChange(NodeChange):
    """Another target or value of a fill."""

    cdef Fill fill

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        cdef CUDA_MEMSET_NODE_PARAMS params
        fill_params(&params, &self.fill, self.node.raw_count, part)
        return in_cuGraphExecMemsetNodeSetParams(context, executable, raw, &params, context)


cdef NodeChange change_fill(GraphNode old, Context context, object target, object value):
    """Return a change of a fill. None keeps the present target or value."""
    cdef FillChange change
    cdef Region region = changed_region(old, "target", target, old.target)
    if old.stream is not None:  # the node was captured
        refuse_other_context(region, old.stream)
    cdef Region present = old.target
    refuse_box(region, "a change of a fill")
    refuse_fixed_fill(old, context)
    refuse_unlike(old, "target", region, present, context)
    if region.dtype is not present.dtype:
        refuse_other_dtype(region, present.dtype, present.describe())
    change = _fill_of(old, region)
    if value is not None:
        set_item(change.node.settings, value, region)
        check_region(region)    # the conversion may have run code of the program
    _fill_in(change, region)
    if old.raw_count > 1 and region.count != present.count:
        raise ValueError(f"{present.describe()} has {present.count} items, and {region.describe()}"
                         f" {region.count}: a fill of items whose words of 4 bytes differ keeps"
                         " its number of items")
    if old.raw_count == 1 and columns_of(&change.fill) > 1:
        raise ValueError(f"{value!r} has different words of 4 bytes, which the device fills by one"
                         f" operation each, and {old.called()} was captured as one operation."
                         " Capture the graph with such a value, and pass it to update")
    borrow(region, change.node.accesses, OWN_WRITE)
    return change


cdef NodeChange same_fill(GraphNode old):
    """Return the change that sets a fill to the target and the value of the node."""
    cdef FillChange change = _fill_of(old, old.target)
    _fill_in(change, old.target)
    return change


cdef NodeChange fill_into(GraphNode old, Region region):
    """Return the change that lets a fill write to other memory, which nothing else uses."""
    cdef FillChange change = _fill_of(old, region)
    change.node.site_number = old.site_number
    _fill_in(change, region)
    borrow(region, change.node.accesses, OWN_WRITE)
    return change


cdef FillChange _fill_of(GraphNode old, Region region):
    cdef FillChange change = FillChange.__new__(FillChange)
    change.node = renewed(old, None, region, 1)
    change.node.count = 1
    return change


cdef int _fill_in(FillChange change, Region region) except -1:
    """Fill in the parameters for the driver."""
    return shape_fill(&change.fill, region, change.node.settings)


cdef int refuse_fixed_fill(GraphNode old, Context context) except -1:
    """Refuse a captured fill of memory of another context, which driver 580 does not change."""
    cdef Region present = old.target
    if old.stream is not None and kind_in_nodes(present) != "foreign" \
            and home_in_nodes(present, context) is not context:
        raise ValueError(f"{old.called()} cannot be changed: it was captured with"
                         f" {present.describe()}, memory of {present.memory.context!r}, in a graph"
                         f" of {context!r}. Add it with add_fill instead")
    return 0
