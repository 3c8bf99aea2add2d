"""Nodes of graphs: what all operations have in common when they are added to a graph without a
capture, and when a node of an executable graph gets another call.

A node is checked as a captured operation is, by the engine of the graph's plan. In that engine the
node is the next work of a stream. A node that is added after the last node of a stream continues
that stream; any other node gets a new stream, which waits for the nodes that it is added after.

The nodes of an operation, and the changes of its nodes, are in a module beside the operation's
module: `_copy_node`, `_fill_node`, `_launch_node`.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport uint16_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from cudadrv._capture cimport Checks, GraphNode, Plan, Receiver, blank_node
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUcontext, CUgraphExec, CUgraphNode, CUresult, cudadrv_table,
    in_cuGraphAddEmptyNode, in_cuGraphDestroyNode,
)
from cudadrv._engine cimport OWN_MUST_WAIT, own_access, own_request, own_stream
from cudadrv._errors cimport is_sticky
from cudadrv._memory cimport Memory
from cudadrv._names cimport COPY_NODE, FILL_NODE
from cudadrv._refusal cimport refuse_node
from cudadrv._region cimport Region, check_region, is_region, of_present_size
from cudadrv._site cimport here
from cudadrv._stream cimport REFUSED


# ---- nodes that are added ----

cdef class Builder(Receiver):
    """An object to which nodes can be added without a capture."""

    cdef int begin_change(self, Context context) except -1:
        """Let `plan` take nodes. Raises if no node, or no node of this context, can be added.

        Until `end_change`, no other call can change the graph, and none of the program's code may
        run.
        """
        raise NotImplementedError

    cdef void end_change(self) noexcept:
        """End the change that `begin_change` began. A call that has failed has changed nothing."""


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
    """Like `add_node`, but sets *reason and returns None if the operation or the call is refused.

    `plans` are the plans of the bodies of a conditional node; None for other nodes.
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
    node.source, node.target = source, target
    node.plans = plans
    return node


cdef GraphNode _add(
    Builder graph, Context context, own_request *request, GraphNode node, tuple before, adder call,
    void *arguments, int *reason
):
    """Check and add a node, and set *reason.

    Returns a node after which the policy wants to add the new one, or None.
    """
    cdef Plan plan = graph.plan
    cdef Checks checks
    cdef GraphNode other
    cdef Place place
    cdef bytearray room = bytearray((len(before) + 1) * sizeof(CUgraphNode))
    cdef size_t held = plan.holdings.count
    cdef bint goes_on = False
    cdef own_stream *order
    cdef int status = REFUSED
    reason[0] = plan.hold(request)
    if reason[0]:
        plan.holdings.let_go(held)
        return None
    place.context, place.graph = context.raw, graph.raw
    place.after, place.count = <CUgraphNode *>PyByteArray_AS_STRING(room), 0
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
    """Return the stream, in the plan's engine, on which a new node is recorded.

    Sets `goes_on` if it is the stream of a node in `before`. The caller lets it wait for `before`.
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


cdef CUresult nothing_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    return in_cuGraphAddEmptyNode(place.context, nodes, place.graph, place.after, place.count)


cdef Context context_for(Builder graph, Region region):
    """Return the context of a node that uses a buffer. All contexts can use portable memory."""
    return graph.context if region.portable and graph.context is not None \
        else region.memory.context


cdef void take_back(Place *place, CUgraphNode node, const char *failed) noexcept nogil:
    """Destroy a node after another call, `failed`, has failed. The exception names that call."""
    if in_cuGraphDestroyNode(place.context, node) != CUDA_SUCCESS:
        cudadrv_table.note_failure(failed)


cdef Region node_region(object given, str call):
    """Return an argument that has to be a buffer, in the form that a node keeps."""
    if not isinstance(given, Region):
        raise TypeError(f"{call} takes buffers, and got {type(given).__name__}: launches would not"
                        " read or write an ordinary array. Use a LockedBuffer, which each launch"
                        " reads or writes anew")
    check_region(<Region>given)
    return of_present_size(<Region>given)


# ---- changes of nodes of executable graphs ----

@cython.no_gc
cdef class NodeChange:
    """A change of a node of an executable graph."""

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        """Pass the change to the driver. `part` is the index of `raw` in the node."""

    cdef void end(self) noexcept:
        """The driver has made the change, and nobody refers to this object any more."""

    cdef tuple targets(self):
        """Return the memory of each access of the node, in messages: target and source."""
        found = []
        for region in (self.node.target, self.node.source):
            if region is not None:
                found.append((<Region>region).describe())
        return tuple(found)


cdef GraphNode renewed(GraphNode old, object source, object target, Py_ssize_t room):
    """Return a node that replaces another one. It has room for accesses, but no accesses yet."""
    cdef GraphNode node = blank_node(old.graph, old.stream)
    node.graph_number, node.kind = old.graph_number, old.kind
    node.operation, node.raw_count = old.operation, old.raw_count
    node.index, node.after, node.site_number = old.index, old.after, here()
    node.source, node.target = source, target
    memcpy(node.settings, old.settings, sizeof(node.settings))
    node.accesses = <own_access *>malloc(room * sizeof(own_access))
    if node.accesses is NULL:
        raise MemoryError()
    return node


cdef Region changed_region(GraphNode old, str name, object given, object present):
    """Return the buffer that a node gets: the given one, or the present one if that is None.

    The buffer is returned in the form that a node keeps.
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
    return region


# ---- memory that can take the place of other memory ----

cdef int refuse_unlike(
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
    copy keeps its context and its kind of memory. Drivers also accept some other memory, but not
    the same for targets and sources.
    """
    now, then = kind_in_nodes(present), kind_in_nodes(region)
    cdef bint known = "foreign" not in (now, then)
    cdef bint alike = not known or home_in_nodes(present, context) is home_in_nodes(region, context)
    if old.kind == COPY_NODE:
        alike = alike and region.host_side == present.host_side and (not known or now == then)
    if alike:
        return None
    return (f"{name} of {old.called()} is {present.describe()}, {now} memory of"
            f" {present.memory.context!r}, and cannot become {region.describe()}, {then} memory of"
            f" {region.memory.context!r}")


cdef Context home_in_nodes(Region region, Context context):
    """Return the memory's context; for stream-ordered memory, `context` (the graph's), unless it is
    device memory of another device.
    """
    cdef Memory memory = region.memory
    return context if memory.kind.ordered \
        and (region.portable or memory.context.device == context.device) else memory.context


cdef str kind_in_nodes(Region region):
    """Return the kind of memory, as far as drivers distinguish kinds in copy nodes."""
    return <str>region.memory.kind.in_nodes
