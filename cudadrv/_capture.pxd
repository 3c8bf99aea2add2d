"""Capture: streams whose operations become a graph."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUgraph
from cudadrv._engine cimport (
    own_access, own_domain, own_engine, own_hold, own_memory, own_mutex, own_request, own_snapshot,
    own_stream,
)
from cudadrv._event cimport Captured, Event
from cudadrv._stream cimport Capturing, Stream, driver_call


cdef class Holdings:
    cdef own_hold **holds       # memory that stays open as long as this object lives
    cdef size_t count
    cdef size_t room
    cdef dict known             # the ranges that are held: (address of the state, start, stop)
    cdef uint64_t number        # of the graph

    cdef int hold(self, own_access *access, uint32_t site, uint16_t operation) except -1
    cdef void shrink(self, size_t count) noexcept
    cdef int let_go(self, size_t count) except -1


cdef class GraphNode:
    cdef str graph              # the graph's name in messages
    cdef uint16_t operation     # the number of the operation's name: see _names.pyx
    cdef uint32_t site_number
    cdef Stream stream
    cdef object source          # as in a Token
    cdef object target
    cdef own_access *accesses
    cdef uint32_t count
    cdef Py_ssize_t index       # in `Graph.nodes`
    cdef tuple after            # indices of the nodes on which it depends
    # Until the capture ends: the capture, and the operation in the capture's engine.
    cdef Capture capture
    cdef own_snapshot snapshot
    cdef object __weakref__

    cdef int finish(self) except -1
    cdef str called(self)


cdef class Point(Captured):
    cdef Capture capture
    cdef own_snapshot snapshot  # in the capture's engine
    cdef tuple tail             # indices of the nodes that a stream depends on that waits for it


# What gets the graph at the end of a capture: the base class of `Graph`, which is in _graph.
cdef class Receiver:
    cdef Holdings holdings      # None unless it is captured, or being captured

    cdef int begin(self) except -1
    cdef int receive(self, Capture capture, CUgraph raw) except -1
    cdef void give_up(self) noexcept


cdef class Capture(Capturing):
    cdef Receiver receiver
    cdef Stream origin
    cdef str listed             # what `Context.captured_by` says of it
    cdef own_engine engine      # its streams and memory have no work outside the capture
    cdef own_domain domain
    cdef list streams           # the streams of the capture, by their slots in its engine
    cdef dict slots             # their slots, by the stream
    cdef own_stream **orders    # what its engine knows of each stream
    cdef own_mutex **locks      # their issue locks, in the order of their addresses
    cdef size_t lock_count
    cdef dict memories          # the address of its record of memory, by that of the memory's state
    cdef list tails             # for each stream: indices of the nodes that its next one depends on
    cdef list nodes
    cdef Holdings holdings
    cdef bint entered
    cdef bint ended             # guarded by the issue locks of its streams

    cdef int add(self, Stream stream) except -1
    cdef int remove(self, Stream stream) except -1
    cdef own_memory *memory_of(self, own_memory *memory) except NULL
    cdef int issue(
        self, Stream stream, own_request *request, driver_call call, void *arguments) except? -1
    cdef GraphNode new_node(self, Stream stream, own_request *request)
    cdef GraphNode nothing(self, Stream stream)
    cdef Point point_at(self, Stream stream)
    cdef int record_point(self, Stream stream, Event event, Point point) except -1
    cdef Event event_after(self, GraphNode node)
    cdef Stream unjoined(self)
    cdef int refuse_unjoined(self, Stream stream) except -1
    cdef int refuse_others(self, Stream stream, own_request *request) except -1
    cdef int refuse(self, Stream stream, int reason) except -1
    cdef int end(self, CUgraph *raw) noexcept
    cdef int open(self, Stream stream) except -1
    cdef void add_lock(self, own_mutex *lock) noexcept
    cdef int forget(self, GraphNode node, size_t held) except -1


cdef GraphNode newest_node(object source, object target)
cdef void destroy_graph(Context context, CUgraph raw) noexcept
