"""Fills as nodes of graphs, and as changes of nodes."""

from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._node cimport Builder, NodeChange
from cudadrv._region cimport Region


cdef GraphNode add_fill(Builder graph, object target, object value, object after)
cdef NodeChange change_fill(GraphNode old, Context context, object target, object value)
cdef NodeChange same_fill(GraphNode old)
cdef int refuse_fixed_fill(GraphNode old, Context context) except -1
cdef NodeChange fill_into(GraphNode old, Region region)
