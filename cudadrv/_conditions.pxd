"""Nodes that run other graphs: child graphs, and the bodies of conditional nodes."""

from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._driver cimport CUgraph
from cudadrv._engine cimport own_request
from cudadrv._node cimport Builder
from cudadrv._region cimport Region


cdef enum:
    CONDITIONS = 12030      # the first driver version with conditions, and captures into graphs
    MORE_BODIES = 12080     # the first driver version with switches, and a second body of `add_if`


cdef enum ConditionKind:    # the numbers of the driver
    IF_NODE
    WHILE_NODE
    SWITCH_NODE


cdef GraphNode add_child(
    Builder graph, Context context, own_request *request, CUgraph child, tuple after,
    object source, object target, tuple targets)
cdef bint is_of_other_context(Region region, Context context, bint on_device) noexcept
cdef int refuse_old_driver(int wanted, str what) except -1
cdef object new_condition(Builder graph, Context context, object default)
cdef str conditional_call(ConditionKind kind)
cdef GraphNode add_conditional(
    Builder graph, ConditionKind kind, object condition, tuple after, tuple plans,
    CUgraph *bodies)
