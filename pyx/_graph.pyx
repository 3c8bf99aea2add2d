"""Graph: captured operations, and their launches.

A captured graph is a template: it runs nothing and borrows nothing, but its memory stays open. A
launch is one operation. Its accesses are the union, by range, of those of the graph's nodes.

Outlives a call: names of launches that may be unfinished (the GIL guards them).
"""

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cudadrv._arguments cimport Room, new_room
from cudadrv._capture cimport Capture, GraphNode, Holdings, Receiver, destroy_graph
from cudadrv._device cimport enter_context, leave_context, report_in
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUgraph, CUgraphExec, CUresult, CUstream, bind_driver, cuGraphExecDestroy,
    cuGraphInstantiateWithFlags, cuGraphLaunch, cudadrv_table, unlikely,
)
from cudadrv._engine cimport (
    OWN_STRICT, OWN_WAIT, engine, own_access, own_join_accesses, own_known, own_snapshot_drop,
)
from cudadrv._errors cimport close_at_end, refuse_if_forked
from cudadrv._names cimport (
    Parts, checked_name, give_back_name, graph_launch, name_graph, number_of_graph, operation_name,
)
from cudadrv._operation cimport Operation, issue_after, prepare
from cudadrv._ordering cimport policies_used, policy_in_force
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region
from cudadrv._site cimport place
from cudadrv._stream cimport Stream, check_stream, known_stream, stream_for
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._errors import CaptureError

bind_driver(&cudadrv_table)


# ---- what a graph uses ----

@cython.final
cdef class NodeNames(Parts):
    """The names of a graph's nodes, by the memory that they use.

    It outlives the graph until its launches are known to be complete, and keeps no memory alive.
    """

    cdef str part_at(self, size_t memory, uint64_t start, uint64_t stop, int mode):
        cdef str name = _name_at(self, memory, start, stop, mode)
        return None if name is None else f"{name} in {self.graph}"


cdef str _name_at(NodeNames names, size_t memory, uint64_t start, uint64_t stop, int mode):
    """Return the name of the first node that uses some of these bytes in the mode, or in any mode.

    Returns None if there is none.
    """
    other = None
    for used, first, last, its_mode, operation, site in names.accesses:
        if used == memory and first < stop and start < last:
            if its_mode == mode:
                return f"{operation_name(operation)} at {place(site)}"
            other = other or (operation, site)
    return None if other is None else f"{operation_name(other[0])} at {place(other[1])}"


@cython.final
@cython.no_gc_clear
cdef class Uses:
    """What the launches of a graph use. A graph shares it with its executables."""

    def __dealloc__(self):
        free(self.accesses)

    cdef str target_at(self, uint32_t index):
        """Return the name of an access in messages: a buffer, and a node that uses it."""
        cdef own_access *access = &self.accesses[index]
        cdef str name = _name_at(
            self.names, <size_t>access.memory, access.start, access.stop, access.mode)
        for region in self.regions[index]:
            return f"{(<Region>region).describe()} in {name}"
        return f"memory in {name}"

    cdef tuple targets(self):
        cdef uint32_t i
        found = []
        for i in range(self.count):
            found.append(self.target_at(i))
        return tuple(found)


cdef Uses _uses_of(Capture capture):
    """Join what the nodes of a capture use."""
    cdef Uses uses = Uses.__new__(Uses)
    cdef GraphNode node
    cdef own_access *each
    cdef size_t total = 0
    uses.nodes = _captured(capture)
    uses.names = _names_of(uses, capture)
    for node in uses.nodes:
        total += node.count
    each = <own_access *>malloc((total + 1) * sizeof(own_access))
    uses.accesses = <own_access *>malloc((2 * total + 1) * sizeof(own_access))
    try:
        if each is NULL or uses.accesses is NULL:
            raise MemoryError()
        total = 0
        for node in uses.nodes:
            memcpy(&each[total], node.accesses, node.count * sizeof(own_access))
            total += node.count
        if not own_join_accesses(each, <uint32_t>total, uses.accesses, &uses.count):
            raise MemoryError()
    finally:
        free(each)
    uses.regions = _regions_of(uses)
    return uses


cdef tuple _captured(Capture capture):
    """Return the nodes of a capture, without gaps."""
    cdef GraphNode node
    if None not in capture.nodes:
        return tuple(capture.nodes)
    number = {}
    found = []
    for node in capture.nodes:
        if node is not None:
            number[node.index] = len(found)
            found.append(node)
    for node in found:
        node.index = number[node.index]
        after = []
        for index in node.after:
            after.append(number[index])
        node.after = tuple(after)
    return tuple(found)


cdef NodeNames _names_of(Uses uses, Capture capture):
    cdef NodeNames names = NodeNames.__new__(NodeNames)
    cdef GraphNode node
    cdef own_access *access
    cdef uint32_t i
    names.graph, names.accesses = capture.graph, []
    for node in uses.nodes:
        for i in range(node.count):
            access = &node.accesses[i]
            names.accesses.append((<size_t>access.memory, access.start, access.stop, access.mode,
                                   node.operation, node.site_number))
    return names


cdef list _regions_of(Uses uses):
    """Return, for each access of the graph, the buffers of the nodes that lie in it."""
    cdef GraphNode node
    cdef Region region
    cdef uint32_t i
    found = []
    by_state = {}
    for i in range(uses.count):
        found.append([])
        by_state.setdefault(<size_t>uses.accesses[i].memory, []).append(i)
    for node in uses.nodes:
        for region in node.reads + node.writes:
            if region.memory is None:
                continue
            for index in by_state.get(<size_t>region.memory.state, ()):
                i = index
                if region.start < uses.accesses[i].stop \
                        and uses.accesses[i].start < region.start + region.nbytes \
                        and region not in found[i]:
                    found[i].append(region)
    return found


# ---- graphs ----

@cython.final
@cython.no_gc_clear
cdef class Graph(Receiver):
    """Graph(*, name=None)\n--\n
    Operations that are captured once, checked against each other, and launched as often as needed.

    ``with graph.capture(stream):`` captures, ``graph.instantiate()`` makes what can be launched.
    The graph and its executables keep the memory and the modules of their operations alive: until
    all of them are closed or gone, these buffers and modules cannot be closed, moved or given away.
    docs/graphs.md explains graphs.

    Parameters
    ----------
    name : str, optional
        Shown in messages. A graph without a name is shown by its number.

    Driver function: cuGraphDestroy, at its end.
    """

    def __init__(self, *, name=None):
        if self.label is not None:
            raise TypeError("this Graph exists already")
        self.name = checked_name(name)
        self.number = number_of_graph()
        self.label = f"graph {self.number}" if self.name is None else f"graph {self.name!r}"

    def __dealloc__(self):
        _destroy_graph(self)

    @property
    def name(self):
        """The name that the graph was given, or None."""
        return self.name

    @property
    def closed(self):
        """Whether the graph was closed."""
        return self.closed

    @property
    def nodes(self):
        """The captured operations, a tuple of `GraphNode` in the order of their capture."""
        self.usable()
        return () if self.uses is None else self.uses.nodes

    @property
    def edges(self):
        """The order of the nodes: a tuple of pairs of `GraphNode`, ``(first, second)``.

        The second node of a pair runs after the first one. Orders that follow from others are left
        out, as in the driver's graph.
        """
        cdef GraphNode node
        found = []
        for node in self.nodes:
            for index in node.after:
                found.append((self.uses.nodes[index], node))
        return tuple(found)

    def capture(self, stream=None):
        """Return a context manager: operations on the stream become nodes of the graph.

        In ``with graph.capture(stream):`` nothing runs, and no buffer is borrowed. Copies and fills
        that do not block, launches, records and waits on the stream are captured. Another stream
        joins when it waits for the stream, or for an event or a token of the capture; the captured
        stream has to wait for its work before the block ends. The operations are checked against
        each other like those of streams. All other calls on these streams are refused. An exception
        that ends the block discards the graph.

        Parameters
        ----------
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.

        Raises
        ------
        TypeError, ValueError
            There is no stream; it, or the graph, is closed.
        CaptureError
            Raised by the ``with`` line: the graph was captured before, or the stream is captured
            already or is the legacy default stream. At the end of the block: the work of a stream
            is not joined. In the block: see docs/graphs.md.
        BufferBorrowedError
            In the block: an operation is not ordered after a conflicting one of the capture.
        OwnershipError
            Another library is capturing the stream.

        Driver functions: cuStreamBeginCapture, cuStreamEndCapture.
        """
        cdef Capture capture
        cdef Stream found
        found = known_stream(stream)
        self.usable()
        if found is None:
            found = Stream.current()
        if found is None:
            raise TypeError("capture needs a stream: pass one, or call it inside a `with stream:`"
                            " block")
        found.usable()
        capture = Capture.__new__(Capture)
        capture.receiver, capture.origin = self, found
        capture.graph = self.label
        return capture

    def instantiate(self):
        """Make an `ExecutableGraph`, which can be launched. Does not wait for any work.

        Raises CaptureError if the graph is not captured, ValueError if it is closed, and CudaError
        if the driver cannot instantiate it.
        Driver function: cuGraphInstantiateWithFlags.
        """
        cdef ExecutableGraph made = ExecutableGraph.__new__(ExecutableGraph)
        cdef CUresult status
        cdef bint pushed = False
        self.usable()
        if self.raw is NULL:
            raise CaptureError(f"{self.label} is not captured: with graph.capture(stream): ...")
        self.context.usable()
        made.label, made.context = self.label, self.context
        made.uses, made.holdings = self.uses, self.holdings
        made.accesses = <own_access *>malloc((self.uses.count + 1) * sizeof(own_access))
        if made.accesses is NULL:
            raise MemoryError()
        memcpy(made.accesses, self.uses.accesses, self.uses.count * sizeof(own_access))
        _forget_names()
        with nogil:
            status = enter_context(self.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuGraphInstantiateWithFlags(&made.raw, self.raw, 0)
                leave_context(pushed)
            self.context.check(status)
        made.operation = graph_launch(self.label, self.uses.names)
        return made

    def close(self):
        """Destroy the graph, and let its memory go. Closing twice does nothing. Does not block.

        What was instantiated from it stays, and keeps the memory.

        Raises CaptureError while the graph is being captured.
        Driver function: cuGraphDestroy.
        """
        if self.closed:
            return
        refuse_if_forked()
        if self.capturing:
            raise CaptureError(f"{self.label} is being captured, in the block that began at"
                               f" {place(self.site)}; leave that block first")
        self.closed = True
        _destroy_graph(self)
        self.uses = self.holdings = None

    def __enter__(self):
        """``with graph:`` closes it at the end of the block."""
        self.usable()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the graph."""
        close_at_end(self, exception, "graph")

    def __repr__(self):
        if self.label is None:
            return "<Graph, never initialized>"
        state = "closed" if self.closed else "being captured" if self.capturing \
            else "not captured" if self.uses is None else f"{len(self.uses.nodes)} nodes"
        name = "" if self.name is None else f" {self.name!r}"
        return f"<Graph{name}, {state}>"

    cdef int usable(self) except -1:
        refuse_if_forked()
        if self.label is None:
            raise TypeError("this Graph was never initialized")
        if self.closed:
            raise ValueError(f"{self.label} is closed")
        return 0

    # ---- for captures ----

    cdef int begin(self) except -1:
        self.usable()
        if self.capturing:
            raise CaptureError(f"{self.label} is being captured, in the block that began at"
                               f" {place(self.site)}")
        if self.uses is not None:
            raise CaptureError(f"{self.label} was captured at {place(self.site)}; make another"
                               " Graph for another capture")
        self.holdings = Holdings.__new__(Holdings)
        self.holdings.known, self.holdings.number = {}, self.number
        name_graph(self.number, self.label)
        self.capturing = True
        return 0

    cdef int receive(self, Capture capture, CUgraph raw) except -1:
        uses = _uses_of(capture)
        self.capturing = False
        self.context, self.site = capture.origin.context, capture.site
        self.raw, self.uses = raw, uses
        return 0

    cdef void give_up(self) noexcept:
        """Let go what the capture held."""
        self.holdings = None
        self.capturing = False


cdef void _destroy_graph(Graph graph) noexcept:
    cdef CUgraph raw = graph.raw
    graph.raw = NULL
    destroy_graph(graph.context, raw)


# ---- launches ----

# The names of launches of executables that are gone: (number, slot, seq) of the last launch.
cdef list _last_launches = []


cdef int _forget_names() except -1:
    """Give back the names of launches that are known to be complete."""
    global _last_launches
    kept = []
    for number, slot, seq in _last_launches:
        if seq == 0 or own_known(engine, slot, seq):
            give_back_name(number)
        else:
            kept.append((number, slot, seq))
    _last_launches = kept
    return 0


def _buffers_in(Uses uses not None, bint written):
    """Return the buffers of the nodes, for the token of a launch."""
    cdef GraphNode node
    found = []
    for node in uses.nodes:
        for region in (node.writes if written else node.reads):
            if region not in found:
                found.append(region)
    return tuple(found)


cdef CUresult _launch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef CUgraphExec *raw = <CUgraphExec *>arguments
    return cuGraphLaunch(raw[0], stream)


@cython.final
@cython.no_gc_clear
cdef class ExecutableGraph:
    """ExecutableGraph(*args, **kwargs)\n--\n
    What `Graph.instantiate` makes of a graph: it can be launched.

    A launch is one operation, which reads and writes all that the nodes read and write.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use graph.instantiate()")

    def __dealloc__(self):
        _destroy_executable(self)
        if self.operation and self.uses is not None:
            _last_launches.append(
                (self.operation, self.last.snapshot.slot, self.last.snapshot.seq))
        own_snapshot_drop(engine, &self.last.snapshot)
        free(self.accesses)

    @property
    def closed(self):
        """Whether it was closed."""
        return self.raw is NULL

    @property
    def nodes(self):
        """The operations of a launch, a tuple of `GraphNode` in the order of their capture."""
        return _usable(self).nodes

    def launch(self, stream=None):
        """Queue a launch of the graph. Does not wait for it.

        The launch runs after the work of the stream, and after the last launch of this executable
        on whatever stream.

        Parameters
        ----------
        stream : Stream, optional
            A stream of the graph's context. Default: the current stream of a ``with stream:``
            block; without one, a TypeError.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError
            There is no stream, or it belongs to another context; this is closed.
        BufferBorrowedError, BufferExportedError
            See docs/errors.md. Nothing is queued.
        CaptureError
            The stream is being captured.

        Driver function: cuGraphLaunch.
        """
        cdef Operation operation
        cdef Uses uses = _usable(self)
        cdef Stream found
        cdef Token token
        cdef Room room = None
        cdef own_access *accesses = self.accesses
        found = stream_for(stream, self.context)
        if found is None:
            raise TypeError("launch of a graph needs a stream: pass one, or call it inside a"
                            " `with stream:` block")
        check_stream(found)
        if found.context is not self.context:
            raise ValueError(f"{self.label} belongs to {self.context!r}, and {found!r} to another"
                             " context; use a stream of the graph's context")
        if unlikely(policies_used):
            room = _with_policies(uses)
            accesses = <own_access *>room.start
        token = new_token(found, uses, _buffers_in)
        _usable(self)  # a finalizer that ran may have closed this
        self.launching += 1
        try:
            prepare(&operation, self.operation, accesses, <int>uses.count, _launch_call, &self.raw)
            reason = issue_after(&operation, found, &self.last)
        finally:
            self.launching -= 1
        if unlikely(reason):
            refuse_operation(&operation, reason, found, uses.targets())
        stand_for(token, &operation)
        return token

    def close(self):
        """Destroy it, and let its memory go. Closing twice does nothing. Does not block.

        Launches that are queued still run, and keep their borrows.

        Raises CaptureError while another thread is launching it.
        Driver function: cuGraphExecDestroy.
        """
        if self.raw is NULL:
            return
        refuse_if_forked()
        if self.launching:
            raise CaptureError(f"another thread is launching {self.label}")
        _destroy_executable(self)
        _last_launches.append((self.operation, self.last.snapshot.slot, self.last.snapshot.seq))
        self.uses = self.holdings = None

    def __enter__(self):
        """``with step:`` closes it at the end of the block."""
        _usable(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """Close it."""
        close_at_end(self, exception, "executable graph")

    def __repr__(self):
        if self.label is None:
            return "<ExecutableGraph, never initialized>"
        state = ", closed" if self.raw is NULL else f", {len(self.uses.nodes)} nodes"
        return f"<ExecutableGraph of {self.label}{state}>"


cdef Uses _usable(ExecutableGraph executable):
    """Return what the launches use. Raises if nothing can be launched."""
    refuse_if_forked()
    if executable.label is None:
        raise TypeError("this ExecutableGraph was never initialized")
    if executable.raw is NULL:
        raise ValueError(f"this executable of {executable.label} is closed")
    return executable.uses


cdef Room _with_policies(Uses uses):
    """Return a copy of the accesses with the policies that are in force now."""
    cdef Room room = new_room((uses.count + 1) * sizeof(own_access))
    cdef own_access *accesses = <own_access *>room.start
    cdef Region region
    cdef uint32_t i
    cdef int policy
    memcpy(accesses, uses.accesses, uses.count * sizeof(own_access))
    for i in range(uses.count):
        policy = -1
        for region in uses.regions[i]:
            policy = _stricter(
                policy, policy_in_force(region.policy, region.memory.context.policy))
        accesses[i].policy = OWN_STRICT if policy < 0 else policy
    return room


cdef int _stricter(int policy, int other) noexcept:
    """Return the stricter one of two policies. -1 stands for none."""
    if policy < 0:
        return other
    if policy == OWN_STRICT or other == OWN_STRICT:
        return OWN_STRICT
    return OWN_WAIT if policy == OWN_WAIT else other


cdef void _destroy_executable(ExecutableGraph executable) noexcept:
    cdef CUgraphExec raw = executable.raw
    cdef CUresult status
    cdef bint pushed = False
    executable.raw = NULL
    if raw is NULL or cudadrv_table.forked or executable.context.lost:
        return
    with nogil:
        status = enter_context(executable.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuGraphExecDestroy(raw)
            leave_context(pushed)
    report_in(executable.context, status)
