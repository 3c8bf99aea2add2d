"""Nodes that are added to graphs without a capture: copies, fills, launches, other graphs, and
nodes whose bodies run under a condition.

A node is checked as a captured operation is, by the engine of the graph's plan. There it is the
next work of a stream. If it is added after the last node of a stream, it goes on with that stream;
else it gets a stream of its own, which waits for the nodes that it is added after.
"""

import operator

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy, memset

from cudadrv._arguments cimport Room, Shape, new_room, of_present_sizes
from cudadrv._capture cimport Checks, GraphNode, Plan, Receiver, after_of
from cudadrv._copy cimport check_pair, device_side_of, refuse_apart, set_item
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_SUCCESS,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
    CU_MEMORYTYPE_UNIFIED, CU_POINTER_ATTRIBUTE_CONTEXT, CUcontext, CUdeviceptr, CUgraph,
    CUgraphNode, CUlaunchAttribute, CUresult, cuDriverGetVersion, cudadrv_table, cuuint64_t,
    in_cuGraphAddChildGraphNode, in_cuGraphAddEmptyNode, in_cuGraphAddKernelNode,
    in_cuGraphAddMemcpyNode, in_cuGraphAddMemsetNode, in_cuGraphConditionalHandleCreate,
    in_cuGraphDestroyNode, in_cuGraphKernelNodeSetAttribute, in_cuPointerGetAttribute,
)
from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_READ, OWN_WRITE, own_access, own_request, own_stream,
)
from cudadrv._errors cimport check, is_sticky
from cudadrv._kernel cimport (
    Kernel, Prepared, advice_of, borrow_of, borrows_of_launch, count_accesses, described, prepared,
    remember_launch, set_cluster,
)
from cudadrv._memory cimport Memory
from cudadrv._names cimport COPY_NODE, FILL_NODE, LAUNCH_NODE, custom_operation
from cudadrv._refusal cimport refuse_node
from cudadrv._region cimport Region, borrow, check_region, of_present_size, pointer_of
from cudadrv._site cimport here
from cudadrv._stream cimport REFUSED

from cudadrv._arguments import buffers_in
from cudadrv._errors import CaptureError

cdef uint16_t COPY = custom_operation("add_copy")
cdef uint16_t FILL = custom_operation("add_fill")


cdef class Builder(Receiver):
    """What gets nodes outside a capture."""

    cdef int begin_change(self, Context context) except -1:
        """Let `plan` take nodes. Raises if no node, or no node of this context, can be added.

        Until `end_change`, no other call can change the graph, and none of the program's code may
        run.
        """
        raise NotImplementedError

    cdef void end_change(self) noexcept:
        """End the change that `begin_change` began. A call that has failed has changed nothing."""


# ---- what all nodes have in common ----

cdef int fill_request(
    own_request *request, uint16_t operation, own_access *accesses, int count
) except -1:
    """Fill in the request of a node. Its site is the user's line that is running now."""
    memset(request, 0, sizeof(own_request))
    request.operation, request.site = operation, here()
    request.accesses, request.count = accesses, count
    return 0


cdef GraphNode add_node(
    Builder graph, Context context, own_request *request, tuple after, adder call,
    void *arguments, object source, object target, tuple targets
):
    """Check an operation against the nodes of a graph, and add it. Raises if that fails.

    `source` and `target` are as in a token. `targets` are the names of the memory of the accesses.
    """
    cdef int reason = 0
    cdef GraphNode node = try_to_add(
        graph, context, request, after, call, arguments, source, target, None, &reason)
    refuse(graph, context, request, reason, targets, "")
    return node


cdef int refuse(
    Builder graph, Context context, own_request *request, int reason, tuple targets, str advice
) except -1:
    """Raise the exception for a reason of `try_to_add`, unless it is 0."""
    if reason > 0:
        context.check(<CUresult>reason)
    elif reason:
        refuse_node(request, reason, graph.label, targets, advice)
    return 0


cdef GraphNode try_to_add(
    Builder graph, Context context, own_request *request, tuple after, adder call,
    void *arguments, object source, object target, tuple plans, int *reason
):
    """As `add_node`, but sets *reason and returns None if the operation or the call is refused.

    `plans` are those of the bodies of a conditional node, else None.
    """
    cdef GraphNode node = None
    cdef GraphNode other
    cdef tuple before
    graph.begin_change(context)
    try:
        before = graph.plan.checked(after)
        while True:
            node = _new_node(graph.plan, request, before, source, target, plans)
            other = _add(graph, context, request, node, before, call, arguments, reason)
            if other is None:
                break
            # The policy is "wait": try again, with the node ordered after `other`, too.
            before = graph.plan.checked(before + (other,))
    finally:
        graph.end_change()
    return node if reason[0] == 0 else None


cdef GraphNode _new_node(
    Plan plan, own_request *request, tuple before, object source, object target, tuple plans
):
    cdef GraphNode node = plan.new_node(None, request)
    cdef GraphNode other
    indices = []
    for other in before:
        indices.append(other.index)
    node.index, node.after = len(plan.nodes), tuple(indices)
    node.source, node.target = of_present_sizes(source), of_present_sizes(target)
    node.plans = plans
    return node


cdef GraphNode _add(
    Builder graph, Context context, own_request *request, GraphNode node, tuple before, adder call,
    void *arguments, int *reason
):
    """Check and add a node, and set *reason.

    Returns a node that the policy wants the new one to be added after, or None.
    """
    cdef Plan plan = graph.plan
    cdef Checks checks
    cdef GraphNode other
    cdef Place place
    cdef Room room = new_room((len(before) + 1) * sizeof(CUgraphNode))
    cdef size_t held = plan.holdings.count
    cdef bint goes_on = False
    cdef own_stream *order
    cdef int status = REFUSED
    reason[0] = plan.hold(request)
    if reason[0]:
        plan.holdings.let_go(held)
        return None
    place.context, place.graph = context.raw, graph.raw
    place.after, place.count = <CUgraphNode *>room.start, 0
    order = _order_after(plan, before, node.plans is not None, &goes_on)
    try:
        for other in before:
            place.after[place.count] = other.raws[other.raw_count - 1]
            place.count += 1
            if other.plans is not None or other.snapshot.slot != order.slot:
                plan.wait(order, other)
        checks = plan.checks_of(order, request)
        # The node is appended before the call: once the driver has it, nothing may fail.
        plan.nodes.append(node)
        if node.plans is None:
            plan.tails[order.slot] = node.index
        with nogil:
            status = _call(&place, checks, call, arguments, node)
    finally:
        if status:
            plan.forget(node, held)
            # By now the stream may be ordered after more than its last node.
            plan.tails.pop(order.slot, None)
            if not goes_on:
                plan.drop(order)
    if status > 0 and is_sticky(<CUresult>status):
        context.check(<CUresult>status)     # raise now: later calls would fail, too
    reason[0] = status
    request.conflict = checks.requests[checks.failed].conflict
    if status == 0:
        node.snapshot, node.place = checks.requests[0].issued, order
        plan.listed = len(plan.nodes)
        plan.changed()
        plan.follow(node)
    elif status == REFUSED - OWN_MUST_WAIT and checks.failed == 0:
        return _in_the_way(plan, checks)
    return None


cdef own_stream *_order_after(Plan plan, tuple before, bint apart, bint *goes_on) except NULL:
    """Return a stream of the plan's engine for a node. The caller lets it wait for `before`.

    A node that is `apart` gets a stream that no other node gets.
    """
    cdef GraphNode other
    if not apart:
        for other in before:
            if plan.tails.get(other.snapshot.slot) == other.index:
                goes_on[0] = True
                return other.place
    return plan.open()


cdef GraphNode _in_the_way(Plan plan, Checks checks):
    """Return the node that a request conflicts with."""
    cdef GraphNode node
    for node in plan.nodes:
        if node.snapshot.slot == checks.requests[0].conflict.epoch.slot \
                and (node.plans is not None
                     or node.snapshot.seq == checks.requests[0].conflict.epoch.seq):
            return node
    return None


cdef int _call(
    Place *place, Checks checks, adder call, void *arguments, GraphNode node
) noexcept nogil:
    cdef int reason = checks.begin()
    if reason == 0:
        node.raw_count = 1
        reason = call(arguments, place, node.raws, &node.raw_count)
        if reason == CUDA_SUCCESS:
            checks.settle()
        else:
            checks.undo()
    return reason


cdef CUresult _nothing_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    return in_cuGraphAddEmptyNode(place.context, nodes, place.graph, place.after, place.count)


cdef Context _context_for(Builder graph, Region region):
    """Return the context of a node that uses a buffer. All contexts can use portable memory."""
    return graph.context if region.portable and graph.context is not None \
        else region.memory.context


cdef void _take_back(Place *place, CUgraphNode node, const char *failed) noexcept nogil:
    """Destroy a node after another call, `failed`, has failed. The exception names that call."""
    if in_cuGraphDestroyNode(place.context, node) != CUDA_SUCCESS:
        cudadrv_table.note_failure(failed)


cdef Region _region(object given, str call):
    """Return an argument that has to be a buffer, in the form that a node keeps."""
    if not isinstance(given, Region):
        raise TypeError(f"{call} takes buffers, and got {type(given).__name__}: launches would not"
                        " read or write an ordinary array. Use a LockedBuffer, which each launch"
                        " reads or writes anew")
    check_region(<Region>given)
    return of_present_size(<Region>given)


# ---- copies ----

cdef CUresult _copy_call(
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
    cdef tuple nodes = after_of(after)
    cdef Region target = _region(destination, "add_copy")
    cdef Region source = _region(origin, "add_copy")
    cdef Context context
    check_pair(target, source)
    refuse_apart(target, source)
    context = _context_for(graph, device_side_of(target, source))
    if target.nbytes == 0 or pointer_of(target) == pointer_of(source):
        fill_request(&request, COPY, NULL, 0)
        return add_node(graph, context, &request, nodes, _nothing_call, NULL, source, target, ())
    borrow(target, &accesses[0], OWN_WRITE)
    borrow(source, &accesses[1], OWN_READ)
    copy_params(&copy, target, source)
    fill_request(&request, COPY, accesses, 2)
    node = add_node(graph, context, &request, nodes, _copy_call, &copy, source, target,
                    (target.describe(), source.describe()))
    node.kind = COPY_NODE
    return node


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


# ---- fills ----

cdef struct Fill:
    CUdeviceptr target
    size_t count
    size_t itemsize
    unsigned char[8] item


cdef CUresult _fill_call(
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
            _take_back(place, nodes[0], "cuGraphAddMemsetNode")
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

    See `_fill_call` of _copy: a fill of items of 8 bytes with different halves has two parts, one
    for each column of halves. The second part begins 4 bytes later.
    """
    memset(params, 0, sizeof(params[0]))
    params.dst, params.width, params.height = target, count, 1
    params.elementSize = <unsigned int>min(itemsize, <size_t>4)
    if parts == 2:
        params.pitch, params.width, params.height = 8, 1, count
    elif itemsize == 8:
        params.width = 2 * count


cdef bint is_of_other_context(Region region, Context context) noexcept:
    """Whether this is page-locked or managed memory of another context.

    Streams of all contexts can use it, but not all nodes in bodies.
    """
    cdef Memory memory = region.memory
    if memory is None or memory.pool is not None:
        return False
    if memory.kind.borrowed:
        return _home_of_foreign(region) not in (0, <size_t>context.raw)
    return memory.kind.host_access and memory.context is not context


cdef size_t _home_of_foreign(Region region) noexcept:
    """Ask the driver for the context of memory that another library has allocated; 0 for none."""
    cdef CUcontext home = NULL
    if in_cuPointerGetAttribute(
            region.memory.context.raw, &home, CU_POINTER_ATTRIBUTE_CONTEXT,
            pointer_of(region)) != CUDA_SUCCESS:
        home = NULL
    return <size_t>home


cdef GraphNode add_fill(Builder graph, object destination, object value, object after):
    cdef GraphNode node
    cdef own_request request
    cdef own_access access
    cdef Fill fill
    cdef tuple nodes = after_of(after)
    cdef Region target = _region(destination, "add_fill")
    cdef Context context
    set_item(fill.item, value, target)
    check_region(target)    # converting the value may have closed it
    context = _context_for(graph, target)
    if target.nbytes == 0:
        fill_request(&request, FILL, NULL, 0)
        return add_node(graph, context, &request, nodes, _nothing_call, NULL, None, target, ())
    borrow(target, &access, OWN_WRITE)
    fill.target, fill.count, fill.itemsize = pointer_of(target), target.count, target.itemsize
    fill_request(&request, FILL, &access, 1)
    node = add_node(graph, context, &request, nodes, _fill_call, &fill, None, target,
                    (target.describe(),))
    node.kind = FILL_NODE
    memcpy(node.settings, fill.item, sizeof(fill.item))
    return node


# ---- launches ----

cdef enum:
    VARIABLES_CHANGED = 0x7fff0000      # a result of `_launch_call` that no driver call returns


cdef struct Launch:
    CUDA_KERNEL_NODE_PARAMS params
    Shape *shape
    Py_ssize_t *changes     # as in _kernel
    Py_ssize_t seen


cdef CUresult _launch_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    cdef CUlaunchAttribute attribute
    cdef CUresult status
    if launch.changes[0] != launch.seen:
        return <CUresult>VARIABLES_CHANGED
    status = in_cuGraphAddKernelNode(
        place.context, nodes, place.graph, place.after, place.count, &launch.params)
    if status != CUDA_SUCCESS:
        return status
    if launch.shape.cooperative:
        attribute.value.cooperative = 1
        status = in_cuGraphKernelNodeSetAttribute(
            place.context, nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &attribute.value)
    if status == CUDA_SUCCESS and launch.shape.cluster[0]:
        set_cluster(&attribute, launch.shape.cluster)
        status = in_cuGraphKernelNodeSetAttribute(
            place.context, nodes[0], attribute.id, &attribute.value)
    if status != CUDA_SUCCESS:
        _take_back(place, nodes[0], "cuGraphKernelNodeSetAttribute")
    return status


cdef GraphNode add_launch(
    Builder graph, Kernel kernel, object grid, object block, tuple args, object shared_bytes,
    object borrows, bint cooperative, object cluster, object after
):
    cdef own_request request
    cdef Launch launch
    cdef Room room
    cdef GraphNode node = None
    cdef tuple nodes = after_of(after)
    cdef Prepared ready = prepared(
        kernel, grid, block, of_present_sizes(args), shared_bytes,
        of_present_sizes(borrows_of_launch(borrows)), cooperative, cluster, "add_launch")
    cdef Context context = kernel.module.context
    cdef int reason = VARIABLES_CHANGED
    launch.shape, launch.changes = &ready.shape, &kernel.module.changes
    launch_params(&launch.params, ready)
    while reason == VARIABLES_CHANGED:
        kernel.usable()
        room = new_room(count_accesses(ready) * sizeof(own_access))
        launch.seen = kernel.changes
        fill_request(&request, kernel.operation, <own_access *>room.start, 0)
        request.count = <uint32_t>borrow_of(ready, request.accesses)
        node = try_to_add(graph, context, &request, nodes, _launch_call, &launch, ready.uses,
                          buffers_in, None, &reason)
    if reason:
        refuse(graph, context, &request, reason, described(ready),
               advice_of(ready, &request, reason))
    node.kind = LAUNCH_NODE
    remember_launch(node, kernel, &ready.shape, len(args))
    return node


cdef void launch_params(CUDA_KERNEL_NODE_PARAMS *params, Prepared ready) noexcept:
    """Fill in the driver's description of a launch. It points into `ready`."""
    cdef Shape *shape = &ready.shape
    memset(params, 0, sizeof(params[0]))
    params.func = ready.kernel.raw
    params.kernelParams = ready.packed.pointers
    params.gridDimX, params.gridDimY, params.gridDimZ = \
        shape.grid[0], shape.grid[1], shape.grid[2]
    params.blockDimX, params.blockDimY, params.blockDimZ = \
        shape.block[0], shape.block[1], shape.block[2]
    params.sharedMemBytes = shape.shared_bytes


# ---- other graphs ----

cdef CUresult _child_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    return in_cuGraphAddChildGraphNode(
        place.context, nodes, place.graph, place.after, place.count, <CUgraph>arguments)


cdef GraphNode add_child(
    Builder graph, Context context, own_request *request, CUgraph child, tuple after,
    object source, object target, tuple targets
):
    return add_node(
        graph, context, request, after, _child_call, child, source, target, targets)


# ---- conditions ----

cdef extern from *:
    """
    /* What cuGraphAddNode gets for a conditional node. Older versions of cuda.h do not have it. */
    typedef struct {
        int type;
        int reserved[3];
        union {
            long long bytes[29];
            struct {
                cuuint64_t handle;
                int type;
                unsigned int size;
                CUgraph *graphs;
                CUcontext context;
            } conditional;
        } of;
        long long last_reserved;
    } conditional_params;

    static CUresult add_conditional_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                         size_t count, cuuint64_t handle, int type,
                                         unsigned int size, CUgraph *bodies, CUcontext context) {
        enum { CONDITIONAL_NODE = 13 };
        conditional_params params;
        memset(&params, 0, sizeof params);
        params.type = CONDITIONAL_NODE;
        params.of.conditional.handle = handle;
        params.of.conditional.type = type;
        params.of.conditional.size = size;
        params.of.conditional.context = context;
        CUresult status =
            cudadrv_in_cuGraphAddNode(context, node, graph, after, NULL, count, &params);
        if (status == CUDA_SUCCESS) {
            memcpy(bodies, params.of.conditional.graphs, size * sizeof *bodies);
        }
        return status;
    }
    """
    CUresult add_conditional_node(
        CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
        cuuint64_t handle, int type, unsigned int size, CUgraph *bodies,
        CUcontext context) noexcept nogil

cdef enum:
    ASSIGN_DEFAULT = 1      # CU_GRAPH_COND_ASSIGN_DEFAULT


cdef struct Conditional:
    cuuint64_t handle
    int kind
    unsigned int size
    CUgraph *bodies


cdef int refuse_old_driver(int wanted, str what) except -1:
    cdef int version = 0
    cdef CUresult status
    with nogil:
        status = cuDriverGetVersion(&version)
    check(status)
    if version < wanted:
        raise CaptureError(
            f"{what} needs a driver of CUDA {wanted // 1000}.{wanted % 1000 // 10} or newer, and"
            f" this one is of CUDA {version // 1000}.{version % 1000 // 10}")
    return 0


cdef object new_condition(Builder graph, Context context, object default):
    """Return the handle of a new condition."""
    cdef cuuint64_t handle = 0
    cdef unsigned int value = 0
    cdef unsigned int flags = 0
    cdef CUresult status
    if default is not None:
        number = operator.index(default)
        if not 0 <= number < 1 << 32:
            raise ValueError(f"the default of a condition is {number}, and must be from 0 to"
                             " 2**32 - 1")
        value, flags = number, ASSIGN_DEFAULT
    refuse_old_driver(CONDITIONS, "a condition")
    graph.begin_change(context)
    try:
        with nogil:
            status = in_cuGraphConditionalHandleCreate(
                context.raw, &handle, graph.raw, context.raw, value, flags)
            context.check(status)
        graph.plan.conditions[handle] = False
        graph.plan.changed()
    finally:
        graph.end_change()
    return handle


cdef str conditional_call(ConditionKind kind):
    return "add_if" if kind == IF_NODE else "add_while" if kind == WHILE_NODE else "add_switch"


cdef CUresult _conditional_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef Conditional *wanted = <Conditional *>arguments
    return add_conditional_node(
        nodes, place.graph, place.after, place.count, wanted.handle, wanted.kind, wanted.size,
        wanted.bodies, place.context)


def _buffers_of_bodies(tuple plans not None, bint written):
    """Return the buffers that the nodes of bodies read or write."""
    cdef Plan plan
    cdef GraphNode node
    found = []
    for plan in plans:
        for node in plan.finished():
            for region in (node.writes if written else node.reads):
                if region not in found:
                    found.append(region)
    return tuple(found)


cdef GraphNode add_conditional(
    Builder graph, ConditionKind kind, object condition, tuple after, tuple plans,
    CUgraph *bodies
):
    """Add a conditional node with a body for each of the new `plans`. Sets `bodies`."""
    cdef own_request request
    cdef Conditional wanted
    cdef Plan plan
    cdef GraphNode node
    cdef Context context = graph.context
    cdef int reason = 0
    call = conditional_call(kind)
    handle = operator.index(condition)
    if kind == SWITCH_NODE or len(plans) > 1:
        refuse_old_driver(MORE_BODIES, "add_switch, or a second body of add_if,")
    if graph.plan is None or handle not in graph.plan.conditions:
        raise ValueError(f"{handle} is not a condition of {graph.label}: pass {call} what"
                         " condition() of the same graph has returned")
    if graph.plan.conditions[handle]:
        raise ValueError(f"another node of {graph.plan.graph} has the condition {handle}; make one"
                         " for each node: graph.condition()")
    wanted.handle, wanted.kind, wanted.size = handle, kind, len(plans)
    wanted.bodies = bodies
    fill_request(&request, custom_operation(call), NULL, 0)
    node = try_to_add(graph, context, &request, after, _conditional_call, &wanted, plans,
                      _buffers_of_bodies, plans, &reason)
    refuse(graph, context, &request, reason, (), "")
    graph.plan.conditions[handle] = True
    for plan in plans:
        plan.outer, plan.place, plan.entry = <void *>graph.plan, node.place, node.index
        plan.holdings = graph.plan.holdings
    return node
