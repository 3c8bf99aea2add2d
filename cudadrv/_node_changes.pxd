"""Node changes: another call for a node of an executable graph."""

from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._driver cimport CUcontext, CUgraphExec, CUgraphNode, CUresult


cdef class NodeChange:
    cdef GraphNode node     # the node as it will be

    cdef tuple targets(self)
    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil


cdef NodeChange change_launch(
    GraphNode old, tuple args, object grid, object block, object shared_bytes, object borrows)
cdef NodeChange change_copy(GraphNode old, Context context, object source, object target)
cdef NodeChange change_fill(GraphNode old, Context context, object target, object value)
cdef str unlike(GraphNode old, GraphNode new, Context context)
cdef NodeChange same_fill(GraphNode old)
cdef NodeChange disable(GraphNode node, Context context)
cdef NodeChange enable(GraphNode node)
