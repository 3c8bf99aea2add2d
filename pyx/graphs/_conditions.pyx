"""Nodes that run other graphs: child graphs, and the bodies of conditional nodes."""

import operator
from weakref import ref

from cudadrv._capture cimport GraphNode, Plan
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_SUCCESS, CU_POINTER_ATTRIBUTE_CONTEXT, CUcontext, CUgraph, CUgraphNode, CUresult,
    cuDriverGetVersion, cuuint64_t, in_cuGraphAddChildGraphNode, in_cuGraphConditionalHandleCreate,
    in_cuPointerGetAttribute,
)
from cudadrv._engine cimport own_request
from cudadrv._errors cimport check
from cudadrv._memory cimport Memory
from cudadrv._names cimport custom_operation
from cudadrv._node cimport Builder, Place, add_node, fill_request, refuse, try_to_add
from cudadrv._region cimport Region, pointer_of

from cudadrv._errors import CaptureError

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


class Condition(int):
    """A condition of a graph, made by `Graph.condition`: a number on the device.

    As an int it is the driver's handle, which kernels get as an argument of 8 bytes.

    It does not keep its graph alive.
    """

    def __new__(cls, *args, **kwargs):
        raise TypeError("use graph.condition(default)")

    @property
    def graph(self):
        """The graph whose nodes can have the condition; None if the graph is gone."""
        return self._graph()

    def __repr__(self):
        return f"<Condition of {self._label}>"


cdef object _condition_of(Builder graph, cuuint64_t handle):
    condition = int.__new__(Condition, handle)
    condition._graph, condition._label = ref(graph), graph.label
    return condition


cdef object new_condition(Builder graph, Context context, object default):
    """Return a new Condition."""
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
    return _condition_of(graph, handle)


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
    if not isinstance(condition, Condition):
        raise TypeError(f"{call} takes a condition of {graph.label}, graph.condition(), and not"
                        f" {condition!r}")
    handle = int(condition)
    if kind == SWITCH_NODE or len(plans) > 1:
        refuse_old_driver(MORE_BODIES, "add_switch, or a second body of add_if,")
    if condition.graph is not graph or graph.plan is None or handle not in graph.plan.conditions:
        raise ValueError(f"{condition!r} is not a condition of {graph.label}: pass {call} what"
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


cdef bint is_of_other_context(Region region, Context context, bint on_device) noexcept:
    """Whether this is page-locked or managed memory of another context.

    Streams of all contexts can use it, but not all nodes in bodies. With `on_device`, also device
    memory.
    """
    cdef Memory memory = region.memory
    if on_device and not region.portable:
        return memory.context is not context
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
