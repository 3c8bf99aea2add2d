"""Sets of signals, and waits for them, in graphs."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._capture cimport GraphNode
from cudadrv._driver cimport CUevent, CUresult, CUstream
from cudadrv._engine cimport own_clock
from cudadrv._event cimport Event
from cudadrv._node cimport Builder, NodeChange
from cudadrv._signal cimport Point
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef struct NextNumber:
    uint64_t number
    uint64_t *queued        # the largest number of that signal that is queued


cdef class Turn:
    cdef list nodes         # the nodes that set signals or wait for them
    cdef list points        # a Point for each set
    cdef list earlier       # Points: the sets that the stream waits for before the launch
    cdef own_clock *waited  # what is before these sets
    cdef list unset         # the open waits
    cdef Event event        # recorded behind the launch; None if it sets nothing
    cdef CUevent raw
    cdef NextNumber *sets
    cdef size_t count       # of `sets`
    cdef bint queued        # the driver has the launch
    cdef bint too_late      # another thread has queued larger numbers
    cdef uint32_t site      # the line of the launch

    cdef int look(self, Stream stream) except -1
    cdef int join(self, Point point) except -1
    cdef int begin(self, Stream stream) except -1
    cdef int prepare_sets(self) except -1
    cdef int refuse_late(self) except -1
    cdef int end(self, Stream stream, Token token) except -1


cdef GraphNode add_set(Builder graph, object given, object value, object after)
cdef GraphNode add_wait(Builder graph, object given, object value, object after)
cdef NodeChange change_number(GraphNode old, object value)
cdef Turn new_turn(list nodes, tuple indices)
cdef bint are_larger(Turn turn) noexcept nogil
cdef CUresult finish_sets(Turn turn, CUstream stream) noexcept nogil
cdef tuple signal_nodes(list nodes)
