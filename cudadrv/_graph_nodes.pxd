"""Nodes that are added to graphs without a capture."""

from libc.stdint cimport uint16_t, uint32_t

from cudadrv._capture cimport GraphNode, Plan, Receiver
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr,
    CUgraph, CUgraphNode, CUresult,
)
from cudadrv._engine cimport own_access, own_request
from cudadrv._kernel cimport Kernel, Prepared
from cudadrv._region cimport Region


# Where a node goes.
cdef struct Place:
    CUcontext context
    CUgraph graph
    CUgraphNode *after
    size_t count


# The type of functions that make the driver's nodes of one operation. They set nodes[0], and
# nodes[1] if there are two. If they fail, they leave no node behind.
ctypedef CUresult (*adder)(
    void *arguments, Place *place, CUgraphNode *nodes, int *count) noexcept nogil


cdef enum:
    CONDITIONS = 12030      # the first driver version with conditions, and captures into graphs
    MORE_BODIES = 12080     # the first driver version with switches, and a second body of `add_if`


cdef enum ConditionKind:    # the numbers of the driver
    IF_NODE
    WHILE_NODE
    SWITCH_NODE


# What gets nodes outside a capture: the base class of `Graph`, which is in _graph.
cdef class Builder(Receiver):
    cdef int begin_change(self, Context context) except -1
    cdef void end_change(self) noexcept


cdef int fill_request(
    own_request *request, uint16_t operation, own_access *accesses, int count) except -1
cdef GraphNode add_node(
    Builder graph, Context context, own_request *request, tuple after, adder call,
    void *arguments, object source, object target, tuple targets)
cdef void copy_params(CUDA_MEMCPY3D *params, Region target, Region source) noexcept
cdef void halves_of(const unsigned char *item, size_t itemsize, uint32_t *halves) noexcept nogil
cdef void fill_params(
    CUDA_MEMSET_NODE_PARAMS *params, CUdeviceptr target, size_t count, size_t itemsize, int parts
) noexcept nogil
cdef void launch_params(CUDA_KERNEL_NODE_PARAMS *params, Prepared ready) noexcept
cdef GraphNode add_copy(Builder graph, object target, object source, object after)
cdef GraphNode add_fill(Builder graph, object target, object value, object after)
cdef GraphNode add_launch(
    Builder graph, Kernel kernel, object grid, object block, tuple args, object shared_bytes,
    object borrows, bint cooperative, object cluster, object after)
cdef GraphNode add_child(
    Builder graph, Context context, own_request *request, CUgraph child, tuple after,
    object source, object target, tuple targets)
cdef bint is_of_other_context(Region region, Context context) noexcept
cdef int refuse_old_driver(int wanted, str what) except -1
cdef object new_condition(Builder graph, Context context, object default)
cdef str conditional_call(ConditionKind kind)
cdef GraphNode add_conditional(
    Builder graph, ConditionKind kind, object condition, tuple after, tuple plans,
    CUgraph *bodies)
