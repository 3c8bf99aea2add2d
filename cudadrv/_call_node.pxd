"""Functions of the program as nodes of graphs, and as changes of nodes."""

from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._host_function cimport Launches
from cudadrv._node cimport Builder, NodeChange


cdef GraphNode add_call(Builder graph, object function, tuple buffers, object after)
cdef list calls_of(Builder graph, list nodes)
cdef tuple new_node_calls(list calls, Launches launches)
cdef int bind_calls(Context context, list calls, tuple node_calls) except -1
cdef list calls_to_copy(Context context, list calls)
cdef NodeChange change_call(
    GraphNode old, Context context, str graph, tuple buffers, object function, Launches launches)
cdef tuple changed_calls(Launches launches, GraphNode old, NodeChange change)
