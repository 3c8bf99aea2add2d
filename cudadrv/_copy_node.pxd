"""Copies as nodes of graphs, and as changes of nodes."""

from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._node cimport Builder, NodeChange


cdef GraphNode add_copy(Builder graph, object target, object source, object after)
cdef NodeChange change_copy(GraphNode old, Context context, object source, object target)
