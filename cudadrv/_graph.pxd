"""Graph: captured operations, and their launches."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cudadrv._capture cimport Capture, Holdings, Receiver
from cudadrv._device cimport Context
from cudadrv._driver cimport CUgraph, CUgraphExec
from cudadrv._engine cimport own_access, own_event
from cudadrv._names cimport Parts


cdef class NodeNames(Parts):
    cdef list accesses          # (memory, start, stop, mode, operation, site) of each node
    cdef str graph              # the graph's name in messages


cdef class Uses:
    cdef NodeNames names
    cdef tuple nodes            # the GraphNodes, in the order of their capture
    cdef own_access *accesses   # what the whole graph uses: ranges that do not overlap
    cdef uint32_t count
    cdef list regions           # for each access: the buffers of the nodes that lie in it

    cdef str target_at(self, uint32_t index)
    cdef tuple targets(self)


cdef class Graph(Receiver):
    cdef uint64_t number
    cdef str name
    cdef str label              # its name in messages
    cdef CUgraph raw            # NULL before the capture, and once closed
    cdef Context context        # of the captured stream
    cdef Uses uses
    cdef bint capturing
    cdef bint closed
    cdef uint32_t site          # the line that began the capture
    cdef object __weakref__

    cdef int usable(self) except -1


cdef class ExecutableGraph:
    cdef str label
    cdef Context context
    cdef Uses uses
    cdef Holdings holdings
    cdef CUgraphExec raw        # NULL once closed
    cdef own_access *accesses   # a copy of those of `uses`, which launches change
    cdef own_event last         # its last launch; launches hold its issue lock
    cdef uint16_t operation     # the number of the launches' name
    cdef int launching          # threads that are launching it; close() waits for none
    cdef object __weakref__
