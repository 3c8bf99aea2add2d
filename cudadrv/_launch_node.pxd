"""Launches of kernels as nodes of graphs, and as changes of nodes."""

from cudadrv._arguments cimport Frame
from cudadrv._capture cimport GraphNode
from cudadrv._kernel cimport Kernel
from cudadrv._node cimport Builder, NodeChange


cdef GraphNode add_launch(
    Builder graph, Kernel kernel, object grid, object block, tuple args, object shared_bytes,
    object borrows, bint cooperative, object cluster, tuple attributes, object after)
cdef NodeChange change_launch(
    GraphNode old, tuple args, object grid, object block, object shared_bytes, object borrows,
    Frame *frame)
