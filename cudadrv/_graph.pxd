"""Graph: captured operations, and their launches."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cudadrv._capture cimport Capture, DriverGraph, GraphNode, Holdings
from cudadrv._conditions cimport ConditionKind
from cudadrv._device cimport Context
from cudadrv._driver cimport CUgraph, CUgraphExec
from cudadrv._engine cimport own_access, own_runs
from cudadrv._names cimport Parts
from cudadrv._node cimport Builder
from cudadrv._stream cimport Stream


cdef class NodeNames(Parts):
    cdef list accesses          # (memory, start, stop, mode, name, site, inner) of each node
    cdef str graph              # the graph's name in messages


cdef class Accesses:
    cdef own_access *each
    cdef own_access *joined


cdef class Uses:
    cdef uint32_t count         # number of `accesses`
    cdef bint apart             # no two of `accesses` use the same memory
    cdef own_access *accesses   # what the whole graph uses: `each`, joined; in `shared`
    cdef NodeNames names
    # Of each node, also of those in bodies: the GraphNode, whether it is in a body, and the index
    # in `Graph.nodes` of the node or of the outermost node around it.
    cdef tuple items
    cdef tuple nodes            # the GraphNodes that launches run
    cdef own_access *each       # the accesses of `nodes`, node after node; in `shared`
    cdef Accesses shared
    cdef uint32_t total         # number of accesses in `each`
    cdef list regions           # for each access in `each`: the buffer, or None
    cdef list contexts          # for each access in `each`: the context of the memory or the graph
    cdef Context context        # the context of the graph

    cdef str called(self, own_access *access)
    cdef tuple targets(self, own_access *accesses, uint32_t count)
    cdef int find_buffers(self) except -1


cdef class Graph(Builder):
    cdef uint64_t number
    cdef str name
    cdef Uses known             # what the graph used when its plan had `seen` changes
    cdef uint64_t seen          # number of changes of the plan when `known` was made
    cdef Graph outer            # of a body: the graph of its conditional node, else None
    cdef bint capturing
    cdef bint closed
    cdef uint32_t site          # the line that began the capture
    cdef object single          # with conditions: a weak reference to the executable; else None
    cdef object __weakref__

    cdef int usable(self) except -1
    cdef bint ended(self) except -1
    cdef int refuse_busy(self) except -1
    cdef int forget(self) except -1
    cdef int begin_plan(self, str busy) except -1
    cdef Uses uses(self)
    cdef int fill_in(self, ExecutableGraph made) except -1
    cdef object add_bodies(self, ConditionKind kind, object condition, object count, object after)


cdef class ExecutableGraph:
    # What launches read comes first, in few cache lines.
    cdef Context context
    cdef Uses uses
    cdef CUgraphExec raw        # NULL once closed
    cdef own_access *accesses   # a copy of `uses.accesses`, because launches change it
    cdef str broken             # the node that the driver has changed only in part, or None
    cdef own_runs runs          # the engine's record of the launches, with their issue lock
    cdef uint16_t operation     # the number of the launches' name
    cdef int launching          # number of threads that are launching it; close() raises for them
    cdef bint changing          # it is being changed: no launch and no other change may begin
    cdef str label
    cdef tuple nodes            # as in `Graph.nodes`
    cdef Holdings holdings
    cdef DriverGraph original   # the graph that it was instantiated from
    cdef list raws              # the nodes of `original`: the driver names nodes to change by them
    cdef uint64_t numbers[2]    # the numbers of `original` and of the graph that updated it last
    # The keys are the indices of the disabled nodes. The value of a fill is the node that runs
    # instead of it; other values are None.
    cdef dict disabled
    cdef bint conditional       # it has conditions: destroying it would wait for the device
    # Whether the nodes at the same index of `raws` and of `nodes` are known to be the same node.
    cdef bint paired
    cdef object __weakref__


cdef Uses uses_of(tuple items, str graph, Context context, dict disabled)
cdef Uses uses_with(Uses former, GraphNode old, GraphNode new)
cdef tuple replaced(tuple items, GraphNode old, GraphNode new)
cdef int check_whole(Graph graph) except -1
cdef Uses usable_executable(ExecutableGraph executable)
cdef int refuse_while_busy(ExecutableGraph executable) except -1
cdef int refuse_launch(ExecutableGraph executable, Stream stream) except -1
cdef uint16_t name_launches(str graph, NodeNames names) except? 0
cdef void retire_name(ExecutableGraph executable) noexcept


cdef extern from *:
    """
    /* Returns the tuple with another item at an index. */
    static PyObject *cudadrv_with_item(PyObject *items, Py_ssize_t index, PyObject *item) {
        Py_ssize_t count = PyTuple_GET_SIZE(items);
        PyObject *found = PyTuple_New(count);
        for (Py_ssize_t i = 0; found && i < count; i++) {
            PyObject *each = i == index ? item : PyTuple_GET_ITEM(items, i);
            Py_INCREF(each);
            PyTuple_SET_ITEM(found, i, each);
        }
        return found;
    }
    """
    tuple with_item "cudadrv_with_item"(tuple items, Py_ssize_t index, object item)
