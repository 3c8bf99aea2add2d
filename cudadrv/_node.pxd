"""Nodes of graphs: what all operations have in common when they are added or changed."""

from libc.stdint cimport uint16_t

from cudadrv._capture cimport GraphNode, Plan, Receiver
from cudadrv._device cimport Context
from cudadrv._driver cimport CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUresult
from cudadrv._engine cimport own_access, own_request
from cudadrv._region cimport Region


# ---- nodes that are added ----

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


# An object to which nodes can be added without a capture: the base class of `Graph` (in _graph).
cdef class Builder(Receiver):
    cdef int begin_change(self, Context context) except -1
    cdef void end_change(self) noexcept


cdef int fill_request(
    own_request *request, uint16_t operation, own_access *accesses, int count) except -1
cdef GraphNode add_node(
    Builder graph, Context context, own_request *request, tuple after, adder call,
    void *arguments, object source, object target, tuple targets)
cdef GraphNode try_to_add(
    Builder graph, Context context, own_request *request, tuple after, adder call,
    void *arguments, object source, object target, tuple plans, int *reason)
cdef int refuse(
    Builder graph, Context context, own_request *request, int reason, tuple targets, str advice
) except -1
cdef CUresult nothing_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count) noexcept nogil
cdef void take_back(Place *place, CUgraphNode node, const char *failed) noexcept nogil
cdef Context context_for(Builder graph, Region region)
cdef Region node_region(object given, str call)


# ---- changes of nodes of executable graphs ----

cdef class NodeChange:      # without garbage collection, because it lives only during a call
    cdef GraphNode node     # the node as it will be
    cdef object need        # an AccessNeed of _peers, or None

    cdef tuple targets(self)
    cdef void end(self) noexcept
    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil


cdef GraphNode renewed(GraphNode old, object source, object target, Py_ssize_t room)
cdef Region changed_region(GraphNode old, str name, object given, object present)
cdef int refuse_unlike(
    GraphNode old, str name, Region region, Region present, Context context) except -1
cdef str unlike(GraphNode old, GraphNode new, Context context)
cdef Context home_in_nodes(Region region, Context context)
cdef str kind_in_nodes(Region region)
