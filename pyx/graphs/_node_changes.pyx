"""Node changes: another call for a node of an executable graph.

The arguments are checked and packed as for the call that was captured. Those that are not given
keep their values.
Nothing here changes an executable graph, except `NodeChange.make`, which calls the driver.
"""

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from cudadrv._arguments cimport Shape, of_present_sizes
from cudadrv._buffers cimport new_buffer
from cudadrv._capture cimport GraphNode, blank_node
from cudadrv._copy cimport check_pair, refuse_apart, refuse_other_dtype, set_item
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraphExec,
    CUgraphNode, CUresult, in_cuGraphExecKernelNodeSetParams, in_cuGraphExecMemcpyNodeSetParams,
    in_cuGraphExecMemsetNodeSetParams, in_cuGraphNodeSetEnabled,
)
from cudadrv._engine cimport OWN_READ, OWN_WRITE, own_access
from cudadrv._graph_nodes cimport (
    copy_params, fill_params, halves_of, launch_params,
)
from cudadrv._kernel cimport (
    Kernel, Prepared, borrow_of, borrows_of_launch, count_accesses, described, new_prepared,
    pack_prepared, remember_launch,
)
from cudadrv._memory cimport Memory
from cudadrv._names cimport COPY_NODE, FILL_NODE
from cudadrv._peers cimport refuse_other_context
from cudadrv._region cimport (
    Region, borrow, check_region, is_region, of_present_size, pointer_of,
)
from cudadrv._site cimport here

from cudadrv._buffers import DeviceBuffer, LockedBuffer


cdef class NodeChange:
    """A change of a node of an executable graph."""

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        """Pass the change to the driver. `part` is the index of `raw` in the node."""

    cdef tuple targets(self):
        """Return the memory of each access of the node, in messages: target and source."""
        found = []
        for region in (self.node.target, self.node.source):
            if region is not None:
                found.append((<Region>region).describe())
        return tuple(found)


cdef GraphNode _renewed(GraphNode old, object source, object target, Py_ssize_t room):
    """Return a node that replaces another one. It has room for accesses, but no accesses yet."""
    cdef GraphNode node = blank_node(old.graph, old.stream)
    node.graph_number, node.kind = old.graph_number, old.kind
    node.operation, node.raw_count = old.operation, old.raw_count
    node.index, node.after, node.site_number = old.index, old.after, here()
    node.source, node.target = of_present_sizes(source), of_present_sizes(target)
    memcpy(node.settings, old.settings, sizeof(node.settings))
    node.accesses = <own_access *>malloc(room * sizeof(own_access))
    if node.accesses is NULL:
        raise MemoryError()
    return node


cdef Region _buffer(GraphNode old, str name, object given, object present):
    """Return the buffer that a node gets: the given one, or the present one for None.

    It is in the form that a node keeps.
    """
    cdef Region region
    if given is None:
        region = present
    elif is_region(given):
        region = given
    else:
        raise TypeError(f"{name} of {old.called()} must be a buffer, not {type(given).__name__}")
    check_region(region)
    region = of_present_size(region)
    if region.nbytes == 0:
        raise ValueError(f"{region.describe()} is empty, and no node of the driver does nothing;"
                         " disable the node instead: step[node].enabled = False")
    if old.stream is not None:  # the node was captured
        refuse_other_context(region, old.stream)
    return region


# ---- launches ----

@cython.final
cdef class LaunchChange(NodeChange):
    """Other arguments, or another shape, of a launch."""

    cdef Prepared ready
    cdef CUDA_KERNEL_NODE_PARAMS params     # points into `ready`

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphExecKernelNodeSetParams(context, executable, raw, &self.params)

    cdef tuple targets(self):
        return described(self.ready)


cdef NodeChange change_launch(
    GraphNode old, tuple args, object grid, object block, object shared_bytes, object borrows
):
    """Return a change of a launch. None, or empty `args`, keeps what the launch has now."""
    cdef LaunchChange change = LaunchChange.__new__(LaunchChange)
    cdef Kernel kernel = old.kernel
    cdef Prepared ready = new_prepared(kernel)
    cdef tuple uses = old.source
    cdef tuple more = uses[old.arguments:] if borrows is None else borrows_of_launch(borrows)
    if not args:
        args = uses[:old.arguments]
    change.ready = ready
    memcpy(&ready.shape, old.settings, sizeof(ready.shape))
    if grid is not None or block is not None or shared_bytes is not None:
        _fill_shape(ready, grid, block, shared_bytes)
    pack_prepared(ready, of_present_sizes(args), of_present_sizes(more), "a node")
    change.node = _renewed(old, ready.uses, old.target, count_accesses(ready))
    remember_launch(change.node, kernel, &ready.shape, len(args))
    launch_params(&change.params, ready)
    change.node.count = <uint32_t>borrow_of(ready, change.node.accesses)
    return change


cdef int _fill_shape(
    Prepared ready, object grid, object block, object shared_bytes
) except -1:
    """Set the shape. None keeps what it has now."""
    cdef Shape shape = ready.shape
    ready.kernel.fill(
        &ready.shape,
        (shape.grid[0], shape.grid[1], shape.grid[2]) if grid is None else grid,
        (shape.block[0], shape.block[1], shape.block[2]) if block is None else block,
        shape.shared_bytes if shared_bytes is None else shared_bytes, shape.cooperative,
        (shape.cluster[0], shape.cluster[1], shape.cluster[2]) if shape.cluster[0] else None)
    return 0


# ---- copies ----

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
    cdef Region to = _buffer(old, "target", target, old.target)
    cdef Region origin = _buffer(old, "source", source, old.source)
    check_pair(to, origin)
    refuse_apart(to, origin)
    if pointer_of(to) == pointer_of(origin):
        raise ValueError(f"{to.describe()} and {origin.describe()} are the same bytes")
    _refuse_fixed_copy(old, context)
    _refuse_unlike(old, "target", to, old.target, context)
    _refuse_unlike(old, "source", origin, old.source, context)
    change.node = _renewed(old, origin, to, 2)
    change.node.count = 2
    borrow(to, &change.node.accesses[0], OWN_WRITE)
    borrow(origin, &change.node.accesses[1], OWN_READ)
    copy_params(&change.params, to, origin)
    return change


cdef int _refuse_unlike(
    GraphNode old, str name, Region region, Region present, Context context
) except -1:
    cdef str reason = _unlike(old, name, region, present, context)
    if reason is not None:
        raise ValueError(f"{reason}. Capture the graph with such memory, and instantiate that")
    return 0


cdef str unlike(GraphNode old, GraphNode new, Context context):
    """Return why a node of an executable cannot become the other one, or None.

    Compares only the memory of copies and fills. The driver may have other reasons.
    """
    if old.kind != new.kind or old.kind not in (COPY_NODE, FILL_NODE):
        return None
    reason = _unlike(old, "target", new.target, old.target, context)
    if reason is None and old.kind == COPY_NODE:
        reason = _unlike(old, "source", new.source, old.source, context)
    return reason


cdef str _unlike(GraphNode old, str name, Region region, Region present, Context context):
    """Return why the driver does not accept memory in the place of the present memory, or None.

    The target of a fill keeps its context, but may become another kind of memory. Each side of a
    copy keeps its kind, too. What drivers accept beyond this depends on the side.
    """
    now, then = _kind_of(present), _kind_of(region)
    cdef bint known = "foreign" not in (now, then)
    cdef bint alike = not known or _home_of(present, context) is _home_of(region, context)
    if old.kind == COPY_NODE:
        alike = alike and region.host_side == present.host_side and (not known or now == then)
    if alike:
        return None
    return (f"{name} of {old.called()} is {present.describe()}, {now} memory of"
            f" {present.memory.context!r}, and cannot become {region.describe()}, {then} memory of"
            f" {region.memory.context!r}")


cdef int _refuse_fixed_copy(GraphNode old, Context context) except -1:
    """Refuse a copy that driver 580 changes only once."""
    cdef Region target = old.target, source = old.source
    if _kind_of(target).startswith("stream-ordered") and _kind_of(source) == "page-locked" \
            and _home_of(source, context) is not context:
        raise ValueError(f"{old.called()} cannot be changed: it copies {source.describe()},"
                         f" page-locked memory of {source.memory.context!r}, to stream-ordered"
                         f" memory in a graph of {context!r}. Capture the graph with other memory,"
                         " and instantiate that")
    return 0


cdef int _refuse_fixed_fill(GraphNode old, Context context) except -1:
    """Refuse a captured fill of memory of another context, which driver 580 does not change."""
    cdef Region present = old.target
    if old.stream is not None and _kind_of(present) != "foreign" \
            and _home_of(present, context) is not context:
        raise ValueError(f"{old.called()} cannot be changed: it was captured with"
                         f" {present.describe()}, memory of {present.memory.context!r}, in a graph"
                         f" of {context!r}. Add it with add_fill instead")
    return 0


cdef Context _home_of(Region region, Context context):
    """Return the memory's context; for stream-ordered memory, `context` (the graph's)."""
    cdef Memory memory = region.memory
    return context if memory.kind.ordered else memory.context


cdef str _kind_of(Region region):
    """Return the kind of memory, as far as the driver tells kinds apart in nodes that copy."""
    return <str>region.memory.kind.in_nodes


# ---- fills ----

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
    cdef Region region = _buffer(old, "target", target, old.target)
    cdef Region present = old.target
    _refuse_fixed_fill(old, context)
    _refuse_unlike(old, "target", region, present, context)
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


cdef NodeChange _fill_elsewhere(GraphNode old, Context context):
    """Return the change that lets a fill write to memory which nothing else uses.

    A disabled fill writes there, because driver 580 loses the order of the nodes before and after a
    memset node that cuGraphNodeSetEnabled has disabled. The node of the change keeps this memory.
    """
    cdef Region present = old.target
    cdef Context home = context if old.stream is not None else _home_of(present, context)
    _refuse_fixed_fill(old, context)
    cdef size_t count = present.count if old.raw_count == 2 else 1  # only one row can be changed
    # The driver accepts only memory of the same context. If that is not the graph's context, the
    # memory is page-locked, which both contexts can use.
    cdef Region region = new_buffer(
        DeviceBuffer if home is context else LockedBuffer, count, present.dtype, home, None,
        "of a disabled fill")
    cdef FillChange change = _fill_of(old, region)
    change.node.site_number = old.site_number
    _fill_in(change, region)
    borrow(region, change.node.accesses, OWN_WRITE)
    return change


cdef FillChange _fill_of(GraphNode old, Region region):
    cdef FillChange change = FillChange.__new__(FillChange)
    change.node = _renewed(old, None, region, 1)
    change.node.count = 1
    return change


cdef int _fill_in(FillChange change, Region region) except -1:
    """Fill in the parameters for the driver."""
    halves_of(change.node.settings, region.itemsize, change.halves)
    fill_params(&change.params, pointer_of(region), region.count, region.itemsize,
                change.node.raw_count)
    return 0


# ---- enabling ----

@cython.final
cdef class Switch(NodeChange):
    """Whether launches of the graph run a node, which is a launch or a copy."""

    cdef unsigned int enabled

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphNodeSetEnabled(context, executable, raw, self.enabled)


cdef NodeChange disable(GraphNode node, Context context):
    """Return the change that disables a node."""
    return _fill_elsewhere(node, context) if node.kind == FILL_NODE else _switch(node, False)


cdef NodeChange enable(GraphNode node):
    """Return the change that enables a node."""
    return same_fill(node) if node.kind == FILL_NODE else _switch(node, True)


cdef NodeChange _switch(GraphNode node, bint enabled):
    cdef Switch change = Switch.__new__(Switch)
    change.node, change.enabled = node, enabled
    return change
