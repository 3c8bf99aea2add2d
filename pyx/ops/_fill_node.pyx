"""Fills as nodes of graphs, and as changes of nodes."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy, memset

from cudadrv._capture cimport GraphNode, after_of
from cudadrv._copy cimport refuse_other_dtype
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_MEMSET_NODE_PARAMS, CUDA_SUCCESS, CUcontext, CUdeviceptr, CUgraphExec, CUgraphNode,
    CUresult, in_cuGraphAddMemsetNode, in_cuGraphExecMemsetNodeSetParams,
)
from cudadrv._engine cimport OWN_WRITE, own_access, own_request
from cudadrv._fill cimport Fill, set_item
from cudadrv._names cimport FILL_NODE, custom_operation
from cudadrv._node cimport (
    Builder, NodeChange, Place, add_node, changed_region, context_for, fill_request, home_in_nodes,
    kind_in_nodes, node_region, nothing_call, refuse_unlike, renewed, take_back,
)
from cudadrv._region cimport Region, borrow, check_region, pointer_of

cdef uint16_t ADD_FILL = custom_operation("add_fill")


cdef CUresult _node_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef Fill *fill = <Fill *>arguments
    cdef CUDA_MEMSET_NODE_PARAMS params
    cdef uint32_t halves[2]
    cdef CUresult status
    halves_of(fill.item, fill.itemsize, halves)
    count[0] = 1 if halves[0] == halves[1] else 2
    fill_params(&params, fill.target, fill.count, fill.itemsize, count[0])
    params.value = halves[0]
    status = in_cuGraphAddMemsetNode(
        place.context, nodes, place.graph, place.after, place.count, &params, place.context)
    if status == CUDA_SUCCESS and count[0] == 2:
        params.dst, params.value = fill.target + 4, halves[1]
        status = in_cuGraphAddMemsetNode(
            place.context, &nodes[1], place.graph, nodes, 1, &params, place.context)
        if status != CUDA_SUCCESS:
            take_back(place, nodes[0], "cuGraphAddMemsetNode")
    return status


cdef void halves_of(const unsigned char *item, size_t itemsize, uint32_t *halves) noexcept nogil:
    """Set the values that fill the two halves of an item. Below 8 bytes, both are the same."""
    halves[0] = halves[1] = 0
    memcpy(halves, item, itemsize)
    if itemsize < 8:
        halves[1] = halves[0]


cdef void fill_params(
    CUDA_MEMSET_NODE_PARAMS *params, CUdeviceptr target, size_t count, size_t itemsize, int parts
) noexcept nogil:
    """Fill in the driver's description of a fill, without the value.

    See `_node_call` of _copy: a fill of items of 8 bytes with different halves has two parts, one
    for each column of halves. The second part begins 4 bytes later.
    """
    memset(params, 0, sizeof(params[0]))
    params.dst, params.width, params.height = target, count, 1
    params.elementSize = <unsigned int>min(itemsize, <size_t>4)
    if parts == 2:
        params.pitch, params.width, params.height = 8, 1, count
    elif itemsize == 8:
        params.width = 2 * count


cdef GraphNode add_fill(Builder graph, object destination, object value, object after):
    cdef GraphNode node
    cdef own_request request
    cdef own_access access
    cdef Fill fill
    cdef tuple nodes = after_of(after)
    cdef Region target = node_region(destination, "add_fill")
    cdef Context context
    set_item(fill.item, value, target)
    check_region(target)    # converting the value may have closed the buffer
    context = context_for(graph, target)
    if target.nbytes == 0:
        fill_request(&request, ADD_FILL, NULL, 0)
        return add_node(graph, context, &request, nodes, nothing_call, NULL, None, target, ())
    borrow(target, &access, OWN_WRITE)
    fill.target, fill.count, fill.itemsize = pointer_of(target), target.count, target.itemsize
    fill_request(&request, ADD_FILL, &access, 1)
    node = add_node(graph, context, &request, nodes, _node_call, &fill, None, target,
                    (target.describe(),))
    node.kind = FILL_NODE
    memcpy(node.settings, fill.item, sizeof(fill.item))
    return node


@cython.final
cdef class FillChange(NodeChange):
    """Another target or value of a fill."""

    cdef CUDA_MEMSET_NODE_PARAMS params
    cdef uint32_t halves[2]     # the values of the two parts

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        cdef CUDA_MEMSET_NODE_PARAMS params = self.params
        params.dst += 4 * part
        params.value = self.halves[part]
        return in_cuGraphExecMemsetNodeSetParams(context, executable, raw, &params, context)


cdef NodeChange change_fill(GraphNode old, Context context, object target, object value):
    """Return a change of a fill. None keeps the present target or value."""
    cdef FillChange change
    cdef Region region = changed_region(old, "target", target, old.target)
    cdef Region present = old.target
    refuse_fixed_fill(old, context)
    refuse_unlike(old, "target", region, present, context)
    if region.dtype is not present.dtype:
        refuse_other_dtype(region, present.dtype, present.describe())
    change = _fill_of(old, region)
    if value is not None:
        set_item(change.node.settings, value, region)
        check_region(region)    # the conversion may have run code of the program
    _fill_in(change, region)
    if old.raw_count == 2 and region.count != present.count:
        raise ValueError(f"{present.describe()} has {present.count} items, and {region.describe()}"
                         f" {region.count}: a fill whose items have two different halves keeps its"
                         " number of items")
    if old.raw_count == 1 and change.halves[0] != change.halves[1]:
        raise ValueError(f"{value!r} has two different halves of 4 bytes, which the device fills"
                         f" by two operations, and {old.called()} was captured as one. Capture the"
                         " graph with such a value, and pass it to update")
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
    halves_of(change.node.settings, region.itemsize, change.halves)
    fill_params(&change.params, pointer_of(region), region.count, region.itemsize,
                change.node.raw_count)
    return 0


cdef int refuse_fixed_fill(GraphNode old, Context context) except -1:
    """Refuse a captured fill of memory of another context, which driver 580 does not change."""
    cdef Region present = old.target
    if old.stream is not None and kind_in_nodes(present) != "foreign" \
            and home_in_nodes(present, context) is not context:
        raise ValueError(f"{old.called()} cannot be changed: it was captured with"
                         f" {present.describe()}, memory of {present.memory.context!r}, in a graph"
                         f" of {context!r}. Add it with add_fill instead")
    return 0
