"""Graph: captured operations, and their launches."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cudadrv._capture cimport Capture, DriverGraph, GraphNode, Holdings
from cudadrv._conditions cimport ConditionKind
from cudadrv._device cimport Context
from cudadrv._driver cimport CUgraph, CUgraphExec, CUgraphNode, cudadrv_table
from cudadrv._engine cimport own_access, own_runs
from cudadrv._host_function cimport Launches
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
    cdef own_access *accesses   # what the whole graph uses: `each`, joined; owned by `shared`
    cdef NodeNames names
    cdef list nodes             # as in `Graph.nodes`
    cdef list every             # `nodes` and those in bodies; without bodies `nodes` itself
    # The keys are the indices of the disabled nodes. The value of a fill is the node that runs
    # instead of it; other values are None.
    cdef dict disabled
    cdef own_access *each       # the accesses of all nodes that launches run; owned by `shared`
    cdef Accesses shared
    cdef uint32_t total         # number of accesses in `each`
    cdef list regions           # for each access in `each`: the buffer, or None
    cdef list contexts          # for each access in `each`: the context of the memory or the graph
    cdef Context context        # the context of the graph
    cdef list others            # other contexts in which nodes run or copy, or None

    cdef str called(self, own_access *access)
    cdef tuple targets(self, own_access *accesses, uint32_t count)
    cdef list running(self)
    cdef int find_buffers(self) except -1


cdef class Graph(Builder):
    cdef uint64_t number
    cdef str name
    cdef Uses known             # the graph's uses after `seen` changes of its plan
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
    cdef int bind(self, ExecutableGraph made, Uses uses) except -1
    cdef object add_bodies(self, ConditionKind kind, object condition, object count, object after)


cdef class ExecutableGraph:
    # The fields that launches read come first, so that they lie in few cache lines.
    cdef Context context
    cdef Uses uses
    cdef CUgraphExec raw        # NULL once closed
    cdef own_access *accesses   # a copy of `uses.accesses`, because launches change it
    cdef str broken             # the node that the driver has changed only in part, or None
    cdef own_runs runs          # the engine's record of the launches, with their issue lock
    cdef uint16_t operation     # the number of the launches' name
    cdef int launching          # number of threads that are launching it; close() raises for them
    cdef bint changing          # a change is running: no launch and no other change may begin
    cdef bint special           # the graph has functions or signals, or nodes of other contexts
    cdef Launches launches      # counts the launches, if the graph has functions; else None
    cdef tuple signals          # indices of the nodes that set signals or wait for them, or None
    cdef str label
    cdef Holdings holdings
    cdef DriverGraph original   # the graph that it was instantiated from
    # Two entries for each node of `original`: the handles by which the driver names a node in
    # changes. The second entry is NULL if the driver has only one handle.
    cdef CUgraphNode *raws
    cdef uint64_t numbers[2]    # the numbers of `original` and of the graph that updated it last
    cdef bint conditional       # the graph has conditions: destroying it would wait for the device
    # Whether the nodes at the same index of `raws` and of `nodes` are known to be the same node.
    cdef bint paired
    cdef object __weakref__


cdef Uses uses_of(list nodes, list every, str graph, Context context, dict disabled)
cdef Uses uses_with(Uses former, GraphNode old, GraphNode new)
cdef list replaced(list nodes, GraphNode old, GraphNode new)
cdef int check_whole(Graph graph) except -1
cdef Uses usable_executable(ExecutableGraph executable)


cdef inline bint is_usable_executable(ExecutableGraph executable) noexcept:
    """Whether `usable_executable` would not raise. Inlined for the fast path."""
    return (executable.raw is not NULL) & (executable.broken is None) \
        & (not cudadrv_table.forked)


cdef int refuse_while_busy(ExecutableGraph executable) except -1
cdef int refuse_launch(ExecutableGraph executable, Stream stream) except -1
cdef uint16_t name_launches(str graph, NodeNames names) except? 0
cdef void retire_name(ExecutableGraph executable) noexcept
