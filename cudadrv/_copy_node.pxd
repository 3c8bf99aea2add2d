"""Copies as nodes of graphs, and as changes of nodes."""

from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._node cimport Builder, NodeChange
from cudadrv._region cimport Region


cdef GraphNode add_copy(Builder graph, object target, object source, object after)
cdef GraphNode add_array_copy(
    Builder graph, Region target, Region source, object written, object read, object after)
cdef bint is_between(GraphNode node) noexcept
cdef bint is_changeable_between(GraphNode node, Context context) noexcept
cdef NodeChange change_copy(GraphNode old, Context context, object source, object target)
