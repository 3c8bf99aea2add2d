"""Capture: streams whose operations become a graph."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUgraph, CUgraphNode
from cudadrv._engine cimport (
    own_access, own_domain, own_engine, own_export, own_hold, own_memory, own_mutex, own_request,
    own_snapshot, own_stream,
)
from cudadrv._event cimport Captured, Event
from cudadrv._names cimport NodeKind
from cudadrv._stream cimport Capturing, Stream, driver_call


cdef enum:
    MOST_RAWS = 4   # the driver's nodes of one operation: a fill of 16-byte items has up to 4


cdef class ChildNames:
    cdef list numbers           # see `graph_launch`


cdef class Holdings:
    cdef own_hold **holds       # memory that stays open as long as this object lives
    cdef size_t count
    cdef size_t room
    # The ranges that are held: (address of the state, start, stop). Those of a copy are not listed.
    cdef dict known
    cdef Holdings copy          # the Holdings of executables that were made since the last change
    cdef uint64_t number        # of the graph
    cdef ChildNames names
    cdef set needs              # access that must not end: AccessNeeds of _peers

    cdef int need(self, object access) except -1
    cdef int hold(self, own_access *access, uint32_t site, uint16_t operation) except -1
    cdef void shrink(self, size_t count) noexcept
    cdef Holdings copied(self, str graph)
    cdef int let_go(self, size_t count) except -1


cdef class GraphNode:
    cdef str graph              # the graph's name in messages
    cdef uint64_t graph_number
    cdef NodeKind kind
    # The driver's nodes. A fill of wide items may have several nodes, which run one after the
    # other.
    cdef CUgraphNode raws[MOST_RAWS]
    cdef int raw_count
    cdef uint16_t operation     # the number of the operation's name: see _names.pyx
    cdef uint32_t site_number
    cdef Stream stream
    cdef object source          # as in a Token
    cdef object target
    cdef object kernel          # the Kernel of a launch
    cdef object signal          # of a set or a wait: its Signal
    cdef Py_ssize_t arguments   # of a launch: number of arguments in `source`; then come `borrows`
    # Of a launch: its Shape; of a fill: its item; of a set or a wait: its number.
    cdef unsigned char[64] settings
    cdef own_access *accesses
    cdef uint32_t count
    cdef Py_ssize_t index       # in `Graph.nodes`
    # For a node in a body, once the graph has been used: the index in `Graph.nodes` of the
    # outermost node that contains it. Of other nodes -1.
    cdef Py_ssize_t outermost
    cdef tuple after            # indices of the nodes on which it depends
    # Until the capture ends: the Capture, which lists the node and ends before the node does, else
    # NULL.
    cdef void *capture
    cdef Capture unlisted       # the Capture of the node, if no plan lists the node; else None
    cdef own_snapshot snapshot  # in the engine of the plan
    cdef tuple plans            # of a conditional node: the Plans of its bodies; else None
    # For an added node: its stream in the engine of the plan. The stream of a conditional node also
    # has all work of the bodies.
    cdef own_stream *place
    cdef Py_ssize_t followed    # of a conditional node: index of a node that runs after it, or 0
    cdef bint loose             # a loan: other streams may have gone on before its end
    cdef Py_ssize_t end         # a loan: index of the first node captured after its end, or 0
    cdef object __weakref__

    cdef void finish(self) noexcept
    cdef str called(self)


# The driver's graph. It lives as long as any object may refer to its nodes.
cdef class DriverGraph:
    cdef CUgraph raw
    cdef Context context


cdef class Point(Captured):
    cdef Capture capture
    cdef own_snapshot snapshot  # in the engine of the plan
    cdef tuple tail             # the nodes that a stream depends on after the wait, as indices


# A loan, which may have begun in a capture: the base class of `Lent`, which is in _loan.
cdef class Lending:
    cdef own_export loan        # the loan's record, in the process's engine or a plan's engine
    cdef void *capture          # the Capture that has the loan, or NULL
    cdef GraphNode node         # the node of the loan in `capture`, or None

    cdef int count(self) except -1
    cdef void outlive_capture(self) noexcept
    cdef void follow_users(self) noexcept


cdef class Plan:
    cdef str graph              # the graph's name in messages
    cdef own_engine engine      # the streams and memory in it have no work outside the graph
    cdef own_domain domain
    cdef dict memories          # addresses of records in `engine`, by addresses of states of memory
    cdef list nodes
    cdef Py_ssize_t listed      # number of `nodes` before an unfinished capture
    cdef Holdings holdings      # shared with the outer plans
    cdef dict tails             # by slot, for streams with only added nodes: index of the last node
    cdef dict conditions        # handles of conditions, and whether a node has them
    cdef bint ended
    cdef void *outer            # of a body: the plan around it, which the body's Graph keeps alive
    cdef own_stream *place      # of a body: the stream, in `outer`, with all work of its node
    cdef Py_ssize_t entry       # of a body: the index of its conditional node in `outer`; else -1
    cdef str busy               # of the whole graph's plan: what is changing the graph now, or None
    cdef uint64_t changes       # of the whole graph's plan: how often the nodes have changed

    cdef int end(self) except -1
    cdef Plan root(self)
    cdef int changed(self) except -1
    cdef GraphNode follower(self)
    cdef tuple finished(self)
    cdef own_memory *memory_of(self, own_memory *memory) except NULL
    cdef own_stream *open(self) except NULL
    cdef int drop(self, own_stream *order) except -1
    cdef tuple checked(self, tuple after)
    cdef int wait(self, own_stream *order, GraphNode node) except -1
    cdef GraphNode new_node(self, Stream stream, own_request *request)
    cdef int hold(self, own_request *request) except -1
    cdef Checks checks_of(self, own_stream *order, own_request *request)
    cdef int add_check(
        self, Checks checks, Plan plan, own_stream *order, own_request *request) except -1
    cdef int forget(self, GraphNode node, size_t held) except -1
    cdef int list_all(self) except -1
    cdef int follow(self, GraphNode later) except -1


cdef class Checks:
    cdef own_request *requests
    cdef own_engine **engines
    cdef own_access *accesses
    cdef int count
    cdef int failed             # index of the request that was refused

    cdef int begin(self) noexcept nogil
    cdef void settle(self) noexcept nogil
    cdef void undo(self) noexcept nogil
    cdef void unlock(self) noexcept nogil


# The receiver of the nodes: the base class of `Graph`, which is in _graph.
cdef class Receiver:
    cdef str label              # its name in messages
    cdef Plan plan              # None until there are nodes, or a capture
    cdef CUgraph raw            # NULL until there are nodes, and once closed
    cdef DriverGraph driver_graph   # owns `raw`; None for a body, and if `raw` is NULL
    cdef Context context        # of the nodes
    # By node: the Call of a call; of a child graph with calls, a list of them, each with its
    # handle. Not in GraphNode: tokens keep nodes, and are invisible to the garbage collector.
    cdef dict calls

    cdef int begin(self, Capture capture) except -1
    cdef int receive(self, Capture capture, CUgraph raw) except -1
    cdef void give_up(self, bint destroyed) noexcept
    cdef void cannot_begin(self) noexcept


cdef class Capture(Capturing):
    cdef Receiver receiver
    cdef Stream origin
    cdef str listed             # the capture's name in `Context.captured_by`
    cdef Plan plan
    cdef CUgraph into           # the driver's graph, if it has nodes already, else NULL
    cdef bint destroyed         # the driver has destroyed `into`, because the capture has failed
    cdef tuple wanted           # the argument `after`, or None
    cdef CUgraphNode *after     # handles of the nodes in `wanted`
    cdef size_t after_count
    cdef list streams           # the streams of the capture
    cdef dict slots             # the index of each stream in `streams`
    cdef own_stream **orders    # what the engine of the plan knows of each stream
    cdef own_mutex **locks      # their issue locks, in the order of their addresses
    cdef size_t lock_count
    cdef list tails             # for each stream: indices of the nodes its next node depends on
    cdef str half_done          # the operation of which only a part was captured, or None
    cdef list lendings          # the loans that are open in the engine of the plan
    cdef bint joined            # another library has begun it, and ends it
    cdef uint64_t theirs        # that library's capture, as the driver numbers captures
    cdef bint busy              # a thread is beginning or ending the block, or has ended it
    cdef bint unused            # `Graph.capture` has made it, and no `with` has begun it
    cdef bint entered
    cdef bint ended             # guarded by the issue locks of its streams

    cdef int begin(self) except -1
    cdef int join(self) except -1
    cdef int leave(self, bint check) except -1
    cdef int let_go(self) except -1
    cdef int add(self, Stream stream) except -1
    cdef int remove(self, Stream stream) except -1
    cdef int begin_after(self, tuple nodes) except -1
    cdef int issue(
        self, Stream stream, own_request *request, driver_call call, void *arguments) except? -1
    cdef int add_node(
        self, Stream stream, own_request *request, driver_call call, void *arguments) except? -1
    cdef int lend(
        self, Lending lending, Stream stream, own_request *request, object source, object target
    ) except? -1
    cdef int count_loan(self, Stream stream, own_request *request) except? -1
    cdef int count_loans(self) except -1
    cdef int close_loan(self, Lending lending) except -1
    cdef GraphNode nothing(self, Stream stream)
    cdef Point point_at(self, Stream stream)
    cdef int record_point(self, Stream stream, Event event, Point point) except -1
    cdef Event event_after(self, GraphNode node)
    cdef Stream unjoined(self)
    cdef Stream lent_aside(self)
    cdef int refuse_half_done(self, str outcome) except -1
    cdef int refuse_unjoined(self, Stream stream) except -1
    cdef int refuse_others(self, Stream stream, own_request *request) except -1
    cdef int refuse(self, Stream stream, int reason) except -1
    cdef int end(self, CUgraph *raw) noexcept
    cdef void end_loans(self) noexcept
    cdef int open(self, Stream stream) except -1
    cdef void add_lock(self, own_mutex *lock) noexcept


cdef Capture new_capture(Stream origin, str graph)
cdef GraphNode blank_node(str graph, Stream stream)
cdef tuple after_of(object after)
cdef uint64_t number_of(GraphNode node) noexcept
cdef GraphNode newest_node(object source, object target)
cdef Holdings new_holdings(uint64_t number, str graph, ChildNames names, str end=*)
cdef void destroy_graph(Context context, CUgraph raw) noexcept
