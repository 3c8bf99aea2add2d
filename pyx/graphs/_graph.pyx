"""Graph: operations that are captured or added, and their launches.

A graph is a template: it runs nothing and borrows nothing, but keeps its memory open. A launch is
one operation. The accesses of a launch are the union, by range, of the accesses of the graph's
nodes.

State that outlives a call: names of launches that may be unfinished (the GIL guards them).
"""

import operator
import weakref
from importlib import import_module

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove

from cudadrv._arguments cimport Room, new_room
from cudadrv._arrays cimport Array, copied_region, region_behind
from cudadrv._buffers cimport LockedBuffer, new_buffer
from cudadrv._call_node cimport (
    add_call, bind_calls, calls_of, calls_to_copy, new_node_calls,
)
from cudadrv._capture cimport (
    MOST_RAWS, Capture, DriverGraph, GraphNode, Holdings, Plan, after_of, new_capture, new_holdings,
    number_of,
)
from cudadrv._conditions cimport (
    CONDITIONS, IF_NODE, SWITCH_NODE, WHILE_NODE, ConditionKind, add_child, add_conditional,
    conditional_call, is_of_other_context, new_condition, refuse_old_driver,
)
from cudadrv._copy cimport find_lost
from cudadrv._copy_node cimport add_array_copy, add_copy, is_between
from cudadrv._device cimport ENDS_EXECUTABLE, Context, default_context, refuse_here, report_end
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
    cuGraphLaunch, cuGraphUpload, cudadrv_table, has_answered, in_cuGraphCreate,
    in_cuGraphExecDestroy, in_cuGraphInstantiateWithFlags, likely, unlikely,
)
from cudadrv._engine cimport (
    OWN_MUST_WAIT, OWN_OK, OWN_READ, OWN_SHARED, OWN_STAYS, OWN_STRICT, OWN_UNCHECKED, OWN_USES,
    OWN_WAIT, engine, own_access, own_are_apart, own_ask, own_catch_up, own_clock,
    own_join_accesses, own_known, own_request, own_snapshot_drop,
)
from cudadrv._errors cimport (
    close_at_end, is_sticky, only_made_by, refuse_if_forked, refuse_uninitialized, uninitialized,
)
from cudadrv._event cimport refuse_behind, some_are_open
from cudadrv._fill_node cimport add_fill
from cudadrv._host_function cimport Launched, Launches, refuse_in_body
from cudadrv._kernel cimport Kernel, attributes_of
from cudadrv._launch_node cimport add_launch
from cudadrv._memory_kinds cimport EXECUTABLE
from cudadrv._names cimport (
    CONSTANT, COPY_NODE, FILL_NODE, LAUNCH, UPLOAD, Parts, checked_name, give_back_name,
    graph_launch, number_of_graph, operation_name, parts_of,
)
from cudadrv._node cimport Builder, fill_request
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._ordering cimport policies_used, policy_in_force
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, plain_array
from cudadrv._release cimport drain, may_finish, release_later
from cudadrv._signal cimport Signal, Word
from cudadrv._signal_node cimport (
    Turn, add_set, add_wait, are_larger, finish_sets, new_turn, signal_nodes,
)
from cudadrv._site cimport here, place
from cudadrv._stream cimport (
    REFUSED, Stream, check_stream, driver_call, known_stream, refuse_no_stream, stream_for,
)
from cudadrv._token cimport Token, new_token, stand_for
from cudadrv._waits cimport Question, users_in_the_way

from cudadrv._driver import missing_functions
from cudadrv._errors import CaptureError, CudaError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_INVALID_VALUE
        CUDA_ERROR_NOT_SUPPORTED

cdef enum:
    MOST_JOINED = 4  # own_join_accesses returns at most this many entries for each access


# ---- what a graph uses ----

@cython.final
cdef class NodeNames(Parts):
    """The names of a graph's nodes, by the memory that they use.

    This object outlives the graph until the graph's launches are known to be complete. It keeps no
    memory alive.
    """

    cdef str part_at(self, size_t memory, uint64_t start, uint64_t stop, int mode):
        cdef str name = _name_at(self, memory, start, stop, mode)
        return None if name is None else f"{name} in {self.graph}"


cdef str _name_at(NodeNames names, size_t memory, uint64_t start, uint64_t stop, int mode):
    """Return the name of the first node that uses some of these bytes in the mode.

    If no node uses them in the mode, returns the first that uses them in any mode, or None.
    """
    other = None
    for used, first, last, its_mode, name, site, inner in names.accesses:
        if used == memory and first < stop and start < last:
            if its_mode == mode:
                return f"{name} at {place(site)}{inner}"
            other = other or (name, site, inner)
    return None if other is None else f"{other[0]} at {place(other[1])}{other[2]}"


@cython.final
@cython.no_gc
cdef class Accesses:
    """What the nodes of a graph use: the uses of each node, and all uses joined. Several Uses may
    share it.
    """

    def __dealloc__(self):
        free(self.each)
        free(self.joined)


@cython.final
@cython.no_gc_clear
cdef class Uses:
    """What launches of a graph use. A graph shares its Uses with executables that use the same."""

    cdef str called(self, own_access *access):
        """Return the name of an access in messages: a buffer, and a node that uses it."""
        cdef Region region
        cdef own_access *other
        cdef uint32_t i
        cdef str name = _name_at(
            self.names, <size_t>access.memory, access.start, access.stop, access.mode)
        self.find_buffers()
        for i in range(self.total):
            region, other = self.regions[i], &self.each[i]
            if region is not None and other.memory is access.memory \
                    and other.start < access.stop and access.start < other.stop:
                return f"{region.describe()} in {name}"
        return f"memory in {name}"

    cdef tuple targets(self, own_access *accesses, uint32_t count):
        cdef uint32_t i
        found = []
        for i in range(count):
            found.append(self.called(&accesses[i]))
        return tuple(found)

    cdef list running(self):
        """Return the nodes that launches run, also those in bodies."""
        cdef GraphNode node
        if not self.disabled:
            return self.every
        found = []
        for node in self.every:
            node = self.disabled.get(node.index, node) if node.outermost < 0 else node
            if node is not None:
                found.append(node)
        return found

    cdef int find_buffers(self) except -1:
        """Set `regions` and `contexts`. Only messages and policies need them."""
        cdef GraphNode node
        cdef Region region
        cdef uint32_t i
        cdef Py_ssize_t found
        if self.regions is not None:
            return 0
        regions = []
        contexts = []
        for node in self.running():
            if node.signal is not None:
                region = (<Signal>node.signal).word
                regions.append(region)
                contexts.append(region.memory.context)
                continue
            if isinstance(node.source, Uses):
                (<Uses>node.source).find_buffers()
                regions.extend((<Uses>node.source).regions)
                contexts.extend((<Uses>node.source).contexts)
                continue
            for written in (False, True):   # the order of `each`
                buffers, found = node.writes if written else node.reads, 0
                for i in range(node.count):
                    if (node.accesses[i].mode != OWN_READ) == written:
                        # `buffers` lacks buffers with shared accesses: nothing conflicts with them.
                        region = None if node.accesses[i].mode == OWN_SHARED \
                            else _region_at(buffers, &node.accesses[i], &found)
                        regions.append(region)
                        contexts.append(self.context if region is None else region.memory.context)
        self.regions, self.contexts = regions, contexts
        return 0


cdef Uses uses_of(list nodes, list every, str graph, Context context, dict disabled):
    """Join what nodes use, except disabled ones. `graph` is their graph's name in messages.

    `every` is `nodes` with those in bodies.
    """
    cdef GraphNode node
    cdef uint32_t total = 0
    cdef Uses uses = Uses.__new__(Uses)
    cdef list running
    uses.nodes, uses.every, uses.disabled, uses.context = nodes, every, disabled, context
    running = uses.running()
    for node in running:
        total += (<Uses>node.source).total if isinstance(node.source, Uses) else node.count
    uses.shared = Accesses.__new__(Accesses)
    uses.each = uses.shared.each = <own_access *>malloc((total + 1) * sizeof(own_access))
    uses.accesses = uses.shared.joined = \
        <own_access *>malloc((MOST_JOINED * total + 1) * sizeof(own_access))
    if uses.each is NULL or uses.accesses is NULL:
        raise MemoryError()
    uses.names = _names_of(uses, graph)
    for node in running:
        _add_accesses(uses, node, False)
        _add_accesses(uses, node, True)
    if not own_join_accesses(uses.each, total, -1, uses.accesses, &uses.count):
        raise MemoryError()
    uses.apart = own_are_apart(uses.accesses, uses.count)
    uses.others = _other_contexts(running, context)
    return uses


cdef list _other_contexts(list running, Context context):
    """Return the contexts besides the graph's in which nodes run or copy, or None."""
    cdef GraphNode node
    cdef list found = None
    for node in running:
        if isinstance(node.source, Uses):
            used = (<Uses>node.source).others or ()
        elif is_between(node):
            used = (<Region>node.target).memory.context, (<Region>node.source).memory.context
        elif node.stream is not None and node.stream.context is not context:
            used = (node.stream.context,)
        else:
            continue
        for other in used:
            if found is None:
                found = []
            if other is not context and other not in found:
                found.append(other)
    return found


cdef Uses uses_with(Uses former, GraphNode old, GraphNode new):
    """Return a copy of `former` in which a node is replaced by another with the same accesses."""
    cdef Uses uses = Uses.__new__(Uses)
    uses.nodes = uses.every = replaced(former.nodes, old, new)
    if former.every is not former.nodes:
        uses.every = replaced(former.every, old, new)
    uses.disabled, uses.context = former.disabled, former.context
    uses.shared, uses.each, uses.accesses = former.shared, former.each, former.accesses
    uses.total, uses.count, uses.apart = former.total, former.count, former.apart
    uses.names, uses.others = former.names, former.others
    if old.site_number != new.site_number or old.operation != new.operation:
        uses.names = _names_of(uses, former.names.graph)
    return uses


cdef list replaced(list nodes, GraphNode old, GraphNode new):
    """Return a copy of the list in which a node is replaced by another one."""
    cdef list found = nodes[:]
    cdef Py_ssize_t i = old.index   # nodes in bodies come between other nodes
    while nodes[i] is not old:
        i += 1
    found[i] = new
    return found


cdef void _add_accesses(Uses uses, GraphNode node, bint written) noexcept:
    """Add those accesses of a node that write, or, if `written` is false, those that only read.

    The caller adds the reads first, because a node may read everything before it writes.
    """
    cdef uint32_t i
    if isinstance(node.source, Uses):   # another graph, whose buffers may have several policies
        for i in range(0 if written else (<Uses>node.source).total):
            _add_access(uses, &(<Uses>node.source).each[i], node.outermost >= 0)
        return
    for i in range(node.count):
        if (node.accesses[i].mode != OWN_READ) == written:
            _add_access(uses, &node.accesses[i], node.outermost >= 0)


cdef void _add_access(Uses uses, own_access *access, bint in_body) noexcept:
    cdef own_access *added = &uses.each[uses.total]
    added[0] = access[0]
    # If the body does not run, the old contents remain. So they count as used.
    if in_body and added.effect == OWN_STAYS and added.mode != OWN_READ:
        added.effect = OWN_USES
    uses.total += 1


cdef Region _region_at(tuple buffers, own_access *access, Py_ssize_t *found):
    """Return the next buffer that has exactly these bytes, or None.

    The caller passes accesses in the order of the buffers. The first *found buffers are skipped,
    because several buffers may have the same bytes.
    """
    cdef Region region
    cdef Py_ssize_t i
    for i in range(found[0], len(buffers)):
        region = region_behind(buffers[i])
        if region.memory is not None and region.memory.state is access.memory \
                and region.start == access.start and region.nbytes == access.stop - access.start:
            found[0] = i + 1
            return region
    return None


cdef list _with_bodies(list nodes):
    """Return the nodes of a graph and those in their bodies."""
    found = []
    _flatten(nodes, -1, found)
    return nodes if len(found) == len(nodes) else found


cdef int _flatten(object nodes, Py_ssize_t outermost, list found) except -1:
    """Append nodes and those in their bodies. `outermost` is -1 for the graph's own nodes, else
    the index of the graph's own node that they are in.
    """
    cdef GraphNode node
    cdef Plan body
    for node in nodes:
        node.outermost = outermost
        found.append(node)
        for body in node.plans or ():
            _flatten(body.finished(), node.index if outermost < 0 else outermost, found)
    return 0


cdef NodeNames _names_of(Uses uses, str graph):
    cdef NodeNames names = NodeNames.__new__(NodeNames)
    cdef GraphNode node
    cdef own_access *access
    cdef uint32_t i
    names.graph, names.accesses = graph, []
    for node in uses.running():
        inner = parts_of(node.operation)
        if isinstance(inner, NodeNames):    # another graph
            for used, start, stop, mode, name, site, inside in (<NodeNames>inner).accesses:
                names.accesses.append((used, start, stop, mode, name, site,
                                       f"{inside} in {(<NodeNames>inner).graph}"))
            continue
        name = operation_name(node.operation)
        for i in range(node.count):
            access = &node.accesses[i]
            names.accesses.append((<size_t>access.memory, access.start, access.stop, access.mode,
                                   name, node.site_number, ""))
    return names


cdef str _count_of(object nodes):
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"


# ---- graphs ----

@cython.final
@cython.no_gc_clear
cdef class Graph(Builder):
    """Graph(*, name=None)\n--\n
    Operations that are recorded once, checked against each other, and launched as often as needed.

    ``with graph.capture(stream):`` captures operations, ``graph.add_copy(...)`` and its like add
    them, and ``graph.instantiate()`` makes an executable, which can be launched. The graph and its
    executables keep the memory and the modules of their operations alive: until the graph and all
    its executables are closed or gone, these buffers and modules cannot be closed, moved or given
    away. docs/graphs.md explains graphs.

    Parameters
    ----------
    name : str, optional
        Shown in messages. A graph without a name is shown by its number.

    Driver functions: cuGraphCreate, cuGraphDestroy.
    """

    def __init__(self, *, name=None):
        if self.label is not None:
            raise TypeError("this Graph exists already")
        self.name = checked_name(name)
        self.number = number_of_graph()
        self.label = f"graph {self.number}" if self.name is None else f"graph {self.name!r}"

    def __dealloc__(self):
        if self.outer is None and self.plan is not None:
            self.plan.end()     # events of a capture may keep the plan

    @property
    def name(self):
        """The name that the graph was given, or None."""
        return self.name

    @property
    def closed(self):
        """Whether the graph was closed. A body is closed with its graph."""
        return self.closed or self.ended()

    @property
    def nodes(self):
        """The operations, a tuple of `GraphNode` in the order in which they became nodes."""
        self.usable()
        return () if self.plan is None else self.plan.finished()

    @property
    def edges(self):
        """The order of the nodes: a tuple of pairs of `GraphNode`, ``(first, second)``.

        The second node of a pair runs after the first one. In a capture, orders that follow from
        others are left out. These are the edges of the driver's graph, except the edges of loans: a
        loan stands for nodes that another library has captured.
        """
        cdef GraphNode node
        nodes = self.nodes
        found = []
        for node in nodes:
            for index in node.after:
                found.append((nodes[index], node))
        return tuple(found)

    def to_dot(self):
        """Return the graph as a text in the DOT language, which Graphviz draws.

        Each node shows its operation, its line, its stream, and the buffers that it reads and
        writes. Bodies of conditional nodes are not drawn: draw them by themselves. Raises
        ValueError if the graph is closed. Makes no driver call.
        """
        from cudadrv._graph_picture import dot
        return dot(*_drawn(self))

    def to_svg(self):
        """Return a picture of the graph: the text of an SVG file, which needs no other file.

        Each stream has a column; all nodes that were added without a capture share one. A node
        stands below those that it runs after. A node shows the same information as in `to_dot`.
        Bodies of conditional nodes are not drawn: draw them by themselves. Notebooks show a graph
        as this picture. Raises ValueError if the graph is closed. Makes no driver call.
        """
        from cudadrv._graph_picture import svg
        return svg(*_drawn(self))

    def _repr_svg_(self):
        """Return the picture that notebooks show, or None: then they show the `repr`."""
        if self.plan is None or self.capturing or self.ended():
            return None
        return self.to_svg()

    def capture(self, stream=None, *, after=None):
        """Return a context manager: operations on the stream become nodes of the graph.

        In ``with graph.capture(stream):`` nothing runs, and no buffer is borrowed. Copies and fills
        that do not block, launches, records and waits on the stream are captured. Another stream
        joins when it waits for the stream, or for an event or a token of the capture; the captured
        stream has to wait for its work before the block ends. The operations are checked against
        each other like operations on streams. All other calls on these streams are refused. An
        exception that ends the block discards the graph.

        Parameters
        ----------
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.
        after : iterable of GraphNode, optional
            Nodes of the graph after which the captured operations run. It is required if the graph
            has nodes already, and may be empty. Then an exception that ends the block discards
            these nodes, too, and a body with its whole graph.

        Raises
        ------
        TypeError, ValueError
            There is no stream; it, or the graph, is closed; an item of ``after`` is not a node of
            the graph.
        CaptureError
            Raised by the ``with`` line: the graph has nodes and ``after`` is missing, or the driver
            is older than CUDA 12.3; the stream is captured already or is the legacy default stream;
            the graph is a body that cannot change any more. At the end of the block: the work of a
            stream is not joined. In the block: see docs/graphs.md.
        BufferBorrowedError
            In the block: an operation is not ordered after a conflicting one of the capture.
        OwnershipError
            Another library is capturing the stream.

        Driver functions: cuStreamBeginCapture or cuStreamBeginCaptureToGraph,
        cuStreamGetCaptureInfo, cuStreamEndCapture.
        """
        cdef Capture capture
        cdef Stream found
        wanted = None if after is None else after_of(after)
        found = known_stream(stream)
        self.usable()
        if found is None:
            found = Stream.current()
        if found is None:
            refuse_no_stream("capture")
        found.usable()
        capture = new_capture(found, self.label)
        capture.receiver, capture.wanted = self, wanted
        capture.unused = True
        return capture

    def constant(self, array, *, name=None):
        """Copy an array into page-locked memory of the graph, inside the block of `capture`.

        Each launch then reads the items that the array has now: ``buffer.copy_from_async(
        graph.constant(array))``. The host can write to the returned buffer between launches, as to
        any other. The buffer cannot be closed before the graph and its executables are closed. If
        operations use the buffer, its memory lives as long as these operations, even if the buffer
        is dropped.

        Parameters
        ----------
        array : object
            What ``numpy.asarray`` takes. The buffer has its dtype and shape.
        name : str, optional
            The name of the buffer, shown in messages.

        Returns
        -------
        LockedBuffer

        Raises
        ------
        CaptureError
            The graph is not being captured.
        TypeError, ValueError
            The array is masked, or a buffer cannot have its dtype; the graph is closed.
        CudaOutOfMemoryError
            There is no page-locked memory.

        Driver function: cuMemHostAlloc.
        """
        cdef LockedBuffer made
        cdef Holdings holdings
        cdef own_access access
        _refuse_uncaptured(self)
        array = plain_array(array)
        made = new_buffer(LockedBuffer, array.size, array.dtype, self.context, None, name)
        if array.ndim > 1:
            made.sizes = array.shape
        made.copy_in_on_host(array.reshape(made.shape))
        _refuse_uncaptured(self)  # again: making the array may have run code that ended the capture
        holdings = self.plan.holdings
        if made.nbytes:
            borrow(made, &access, OWN_READ)
            holdings.hold(&access, here(), CONSTANT)
        return made

    # ---- building ----

    def add_copy(self, destination, source, *, after=()):
        """Add a copy of a whole buffer to another one. Runs nothing, and borrows nothing.

        A copy between two contexts can be added to a graph of either. A graph without nodes then
        gets the context of the destination.

        Parameters
        ----------
        destination, source : buffers of the same dtype and number of items, or arrays
        after : iterable of GraphNode, optional
            Nodes of this graph, after which the new one runs. Only these nodes order it.

        Returns
        -------
        GraphNode

        Raises
        ------
        TypeError, ValueError
            The dtypes or sizes differ; no buffer of device memory belongs to the context of the
            graph; one is memory of a pool of another device to which the graph's device has no
            access; an item of ``after`` is not a node of the graph; the graph is closed.
        BufferBorrowedError
            A node that ``after`` does not order before this one uses the bytes. Nothing is added.
            Under ``ordering("wait")`` the edge is added instead.
        BufferClosedError
            A buffer is closed.
        CaptureError
            The graph is being captured, or is a body that cannot change any more.

        Driver functions: cuGraphAddMemcpyNode, or cuGraphAddEmptyNode if there is nothing to copy.
        """
        cdef Region target
        cdef Region origin
        if type(destination) is Array or type(source) is Array:
            target, origin = copied_region(destination), copied_region(source)
            if target is not None and origin is not None:
                return add_array_copy(self, target, origin, destination, source, after)
        return add_copy(self, destination, source, after)

    def add_fill(self, buffer, value, *, after=()):
        """Add a fill of a whole buffer with a value. Runs nothing, and borrows nothing.

        ``value`` is as in ``buffer.fill``. ``after``, the result and errors are as in `add_copy`.

        Driver functions: cuGraphAddMemsetNode, or cuGraphAddEmptyNode for an empty buffer.
        """
        return add_fill(self, buffer, value, after)

    def add_launch(
        self, Kernel kernel not None, grid, block, *args, shared_bytes=0, borrows=(),
        bint cooperative=False, cluster=None, priority=None, domain=None, window=None, after=()
    ):
        """Add a launch of a kernel. Runs nothing, and borrows nothing.

        The parameters other than ``kernel`` and ``after`` are as in `Kernel.launch`, without
        ``In``, ``Out`` and ``InOut``. ``after``, the result and further errors are as in
        `add_copy`. Values are passed as they are now: a later change of an object has no effect.

        Driver functions: cuGraphAddKernelNode; with ``cooperative``, ``cluster``, ``priority``,
        ``domain`` or ``window`` cuGraphKernelNodeSetAttribute.
        """
        return add_launch(
            self, kernel, grid, block, args, shared_bytes, borrows, cooperative, cluster,
            attributes_of(priority, domain, window, False), after)

    def add_call(self, function, *buffers, after=()):
        """Add a call of a function of the program. Runs nothing, and borrows nothing.

        Each launch then calls ``function(*arrays)``. ``function`` and ``buffers`` are as in
        `Stream.call`, and so are the exceptions of the function: the first wait after which the
        launch is known to be complete raises them. ``after``, the result and errors are as in
        `add_copy`. CaptureError is also raised if the graph is a body: the driver runs no functions
        there.

        Driver function: cuGraphAddHostNode.
        """
        return add_call(self, function, buffers, after)

    def add_set(self, signal, value, *, after=()):
        """Add a set of a signal to a number. Runs nothing, and borrows nothing.

        A launch sets the signal when the nodes in ``after`` are complete, and a stream that waits
        for the number waits for the launch. Give the node a larger number before each further
        launch: ``step[node].set(n)``. ``after``, the result and errors are as in `add_copy`.

        Parameters
        ----------
        signal : Signal
        value : int
            The number for the first launch, from 1 to 2**63 - 1.
        after : iterable of GraphNode, optional

        Raises SignalError if the graph sets the signal to this number or more already, and
        CaptureError if the graph is a body: the driver has no such nodes there. A launch raises
        SignalError if the number is not larger than all to which the signal was set.

        Driver function: cuGraphAddBatchMemOpNode.

        Examples
        --------
        >>> ready = cudadrv.Signal()
        >>> node = graph.add_set(ready, 1, after=[copy])
        >>> step = graph.instantiate()
        >>> step.launch(stream)
        >>> step[node].set(2)
        >>> step.launch(stream)
        """
        return add_set(self, signal, value, after)

    def add_wait(self, signal, value, *, after=()):
        """Add a wait for a number of a signal that is set outside of this graph.

        A launch is ordered after the first set to the number or more that is queued by then, as by
        ``stream.wait(signal, value)`` before the launch. ``step[node].set(n)`` changes the number.
        If nothing queued sets the number of an external signal, the nodes after this one wait for
        it in memory, and until it is known to be set, no other stream can wait for the launch. The
        parameters, the result and errors are as in `add_set`; the number may be 0.

        Raises CaptureError if the graph itself sets the signal to the number or more: such a wait
        is an edge, ``after=[node]``. A launch raises SignalError if the wait would never end.

        Driver function: cuGraphAddBatchMemOpNode.

        Examples
        --------
        >>> node = graph.add_wait(ready, 1)
        >>> graph.add_copy(copy, frame, after=[node])
        """
        return add_wait(self, signal, value, after)

    def add_graph(self, Graph child not None, *, after=()):
        """Add a node that runs all nodes of another graph. Runs nothing, and borrows nothing.

        The node is a copy: later changes of the other graph do not change it. It uses all that the
        nodes of the other graph use, and this graph keeps those buffers and modules open, too.
        ``after`` and the result are as in `add_copy`.

        Raises what `add_copy` raises; also CaptureError if the other graph has no nodes and was
        never captured, is being captured, has conditional nodes, or is a body: the driver cannot
        copy it; if it sets signals or waits for them: their numbers could not be changed; or if it
        calls functions, and this graph is a body. ValueError if it is this graph,
        or belongs to another context.

        Driver functions: cuGraphAddChildGraphNode; if the other graph calls functions also
        cuGraphHostNodeSetParams, cuGraphHostNodeGetParams, cuGraphChildGraphNodeGetGraph,
        cuGraphGetNodes, cuGraphNodeGetType.
        """
        cdef own_request request
        cdef own_access *accesses
        cdef uint32_t count
        cdef tuple nodes = after_of(after)
        cdef Uses uses
        cdef Room room = None
        cdef uint16_t name
        self.usable()
        _check_child(self, child)
        child.plan.busy = "being added to another graph by another call"
        try:
            uses, needs = child.uses(), child.plan.holdings.needs
            calls = calls_to_copy(child.context, calls_of(child, uses.nodes))
            if calls and self.outer is not None:
                refuse_in_body("the functions of " + child.label, self.label)
            accesses, count = uses.accesses, uses.count
            if policies_used:
                room = _with_policies(uses, &count)
                accesses = accesses if room is None else <own_access *>room.start
            name = graph_launch(child.label, uses.names)
            try:
                fill_request(&request, name, accesses, <int>count)
                node = add_child(self, child.context, &request, child.raw, nodes, uses, _buffers_in,
                                 uses.targets(accesses, count))
            except BaseException:
                give_back_name(name)
                raise
        finally:
            child.plan.busy = None
        for need in needs:
            self.plan.holdings.need(need)
        self.plan.holdings.names.numbers.append(name)   # free again when no message can need it
        if calls:
            self.calls[node] = calls
        return node

    # ---- conditions ----

    def condition(self, default=None):
        """Make a condition: a number on the device, which decides whether a body runs.

        Kernels of the graph set the number by ``cudaGraphSetConditional(condition, value)``. For
        that, pass what this method returns to them as an argument of 8 bytes.

        Parameters
        ----------
        default : int, optional
            The value at the beginning of each launch, from 0 to 2**32 - 1. Without it, kernels have
            to set the value before it is used.

        Returns
        -------
        Condition
            For `add_if`, `add_while` or `add_switch`. One of them has to get it before
            `instantiate`. As an int it is the driver's handle, which kernels get.

        Raises
        ------
        TypeError, ValueError
            ``default`` is not such an integer; the graph is closed.
        CaptureError
            The driver is older than CUDA 12.3; otherwise as for `add_copy`.

        Driver function: cuGraphConditionalHandleCreate.
        """
        return new_condition(self, default_context() if self.context is None else self.context,
                             default)

    def add_if(self, condition, *, bodies=1, after=()):
        """Add a node that runs a body once if the condition is not 0.

        The bodies are Graphs without nodes. Fill them, by captures or by added nodes, before any
        node that runs after this one is added or captured: from then on the bodies cannot change.
        The node uses all that its bodies use, and is checked against other nodes when something is
        added to a body. A body belongs to this graph: it is closed with the graph, and cannot be
        instantiated. Its nodes have to belong to the context of the graph.

        Parameters
        ----------
        condition : int
            What `condition` of this graph has returned. Each condition is for one node.
        bodies : int, optional
            2 for a second body, which runs if the condition is 0 (CUDA 12.8).
        after : iterable of GraphNode, optional
            As in `add_copy`. A kernel that sets the condition has to be ordered before this node.

        Returns
        -------
        tuple
            ``(node, body)``, or ``(node, body, otherwise)``: a `GraphNode`, and a `Graph` for each
            body.

        Raises
        ------
        TypeError, ValueError
            ``bodies`` is not 1 or 2; the condition is not one of this graph, or another node has
            it; otherwise as for `add_copy`.
        CaptureError
            The driver is too old; otherwise as for `add_copy`.

        Driver function: cuGraphAddNode.
        """
        return self.add_bodies(IF_NODE, condition, bodies, after)

    def add_while(self, condition, *, after=()):
        """Add a node that runs a body again and again, as long as the condition is not 0.

        The condition is checked before the body runs, and after each run. A kernel in the body has
        to set it to 0 eventually. Returns ``(node, body)``; all else is as for `add_if`.

        Driver function: cuGraphAddNode.
        """
        return self.add_bodies(WHILE_NODE, condition, 1, after)

    def add_switch(self, condition, bodies, *, after=()):
        """Add a node that runs one of several bodies: the one whose index is the condition.

        If the condition is not less than ``bodies``, none runs. Returns ``(node, body 0, body 1,
        ...)``; all else is as for `add_if`. Needs a driver of CUDA 12.8 or newer.

        Driver function: cuGraphAddNode.
        """
        return self.add_bodies(SWITCH_NODE, condition, bodies, after)

    def instantiate(self):
        """Make an `ExecutableGraph`, which can be launched. Does not wait for any work.

        Later changes of the graph do not change the executable. If the graph has conditions and the
        driver still has a closed executable of it (see `ExecutableGraph.close`), this call waits
        for all work.

        Raises CaptureError if the graph was not captured and has no nodes, is being captured, is a
        body, has a condition that no node has, or a conditional node whose bodies are all empty.
        The driver allows only one executable of a graph with conditional nodes: CaptureError is
        also raised if such a graph has an executable that is not closed, or a closed one that
        cannot be destroyed before captures end. Raises ValueError if the graph is closed, and
        CudaError if the driver cannot instantiate it.
        Driver function: cuGraphInstantiateWithFlags.
        """
        cdef ExecutableGraph made = ExecutableGraph.__new__(ExecutableGraph)
        made.label = self.label
        self.usable()
        check_whole(self)
        self.plan.busy = "being instantiated by another call"   # so that no thread closes it
        try:
            self.fill_in(made)
        finally:
            self.plan.busy = None
        return made

    cdef int fill_in(self, ExecutableGraph made) except -1:
        """Let the driver instantiate the graph."""
        cdef CUresult status
        cdef Uses uses
        _check_instance(self)
        self.context.usable()
        uses = self.uses()
        made.context = self.context
        made.uses, made.holdings = uses, self.plan.holdings.copied(self.label)
        made.original, made.raws = self.driver_graph, _raws_of(uses.nodes)
        made.numbers[0] = made.numbers[1] = self.number
        made.paired, made.conditional = True, bool(self.plan.conditions)
        made.accesses = <own_access *>malloc((uses.count + 1) * sizeof(own_access))
        if made.accesses is NULL:
            raise MemoryError()
        memcpy(made.accesses, uses.accesses, uses.count * sizeof(own_access))
        _forget_names()
        self.bind(made, uses)
        made.signals = signal_nodes(uses.nodes)
        made.special = made.launches is not None or made.signals is not None \
            or uses.others is not None
        single = weakref.ref(made) if made.conditional else None
        status = _instantiate(made, self.raw)
        if _is_second(status) and self.single is not None:
            drain(True)     # the driver still has the last executable
            status = _instantiate(made, self.raw)
        if _is_second(status) and made.conditional:
            if self.single is not None and not may_finish():
                _refuse_during_captures(self)
            # The graph had no conditions yet when the first executable was made.
            _refuse_second(self)
        self.context.check(status)
        self.single = single
        made.operation = graph_launch(self.label, uses.names)
        return 0

    cdef int bind(self, ExecutableGraph made, Uses uses) except -1:
        """Prepare the functions of a new executable."""
        calls = calls_of(self, uses.nodes)
        if calls:
            made.launches = Launches.__new__(Launches)
            made.launches.calls = new_node_calls(calls, made.launches)
            bind_calls(self.context, calls, made.launches.calls)
        return 0

    def close(self):
        """Destroy the graph, and let its memory go. Closing twice does nothing. Does not block.

        Executables that were instantiated from it stay, and keep the memory. The driver's graph is
        destroyed with the last of these executables.

        Raises CaptureError while the graph is being captured, and for a body, which is closed with
        its graph.
        Driver function: cuGraphDestroy.
        """
        if self.closed or self.ended():
            return
        refuse_here()
        if self.outer is not None:
            raise CaptureError(f"{self.label} is closed with its graph: close that one")
        self.refuse_busy()
        self.closed = True
        _drop_driver_graph(self)
        self.forget()

    def __enter__(self):
        """``with graph:`` closes it at the end of the block."""
        self.usable()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the graph."""
        close_at_end(self, exception, "graph")

    def __repr__(self):
        if self.label is None:
            return uninitialized(self)
        state = "closed" if self.closed or self.ended() else \
            "being captured" if self.capturing else "not captured" if self.plan is None \
            else _count_of(self.plan.finished())
        name = "" if self.name is None else f" {self.name!r}"
        return f"<Graph{name}, {state}>"

    cdef int usable(self) except -1:
        refuse_here()
        if self.label is None:
            refuse_uninitialized(self)
        if self.closed or self.ended():
            raise ValueError(f"{self.label} is closed")
        return 0

    cdef bint ended(self) except -1:
        """Whether this is a body whose graph was closed or discarded."""
        return self.outer is not None and self.plan.ended

    # ---- for captures, and for nodes that are added ----

    cdef int begin_plan(self, str busy) except -1:
        """Let `plan` take nodes. Raises if the graph cannot change.

        Until the change ends, messages say by `busy` what changes the graph.
        """
        cdef GraphNode later
        cdef Plan plan = self.plan
        if plan is None:
            plan = Plan.__new__(Plan)
            plan.graph = self.label
            plan.holdings = new_holdings(self.number, self.label, None)
        self.usable()
        # From here on no other thread runs, so only one can begin to change the graph.
        if self.plan is None:
            self.plan, self.seen = plan, 0
        self.refuse_busy()
        later = self.plan.follower()
        if later is not None:
            raise CaptureError(
                f"{self.label} cannot change any more: {later.called()} was added after its"
                " conditional node. Fill a body before you add what runs after it")
        self.plan.root().busy = busy
        return 0

    cdef int refuse_busy(self) except -1:
        """Raise if a capture or another call is changing the graph, or another part of it."""
        busy = None if self.plan is None else self.plan.root().busy
        if busy is not None:
            raise CaptureError(f"{self.plan.root().graph} is {busy}")
        return 0

    cdef int begin_change(self, Context context) except -1:
        cdef DriverGraph driver_graph
        cdef CUresult status
        context.usable()
        self.usable()
        if self.context is not None and self.context is not context:
            raise ValueError(f"the nodes of {self.label} belong to {self.context!r}, and this one"
                             f" to {context!r}; use another graph")
        self.begin_plan("being changed by another call")
        if self.raw is not NULL:
            return 0
        try:
            driver_graph = DriverGraph.__new__(DriverGraph)
            driver_graph.context = context
            with nogil:
                status = in_cuGraphCreate(context.raw, &driver_graph.raw, 0)
                context.check(status)
        except BaseException:
            self.end_change()
            raise
        self.context, self.raw, self.driver_graph = context, driver_graph.raw, driver_graph
        return 0

    cdef void end_change(self) noexcept:
        if self.outer is None and _is_new(self) and not self.plan.conditions:
            _drop_driver_graph(self)    # the change has failed, and the graph is as it was
            self.context = None
        self.plan.root().busy = None    # last, because dropping the graph lets other threads run

    cdef int begin(self, Capture capture) except -1:
        self.usable()
        self.refuse_busy()
        if self.site and capture.wanted is None:
            raise CaptureError(f"{self.label} was captured at {place(self.site)}; make another"
                               " Graph for another capture, or pass after=[...] to capture more"
                               " into this one")
        if self.plan is not None and self.plan.listed and capture.wanted is None:
            raise CaptureError(f"{self.label} has nodes: pass after=[...], the nodes after which"
                               " the captured operations run, or after=[]")
        if self.context is not None and self.context is not capture.origin.context:
            raise ValueError(f"the nodes of {self.label} belong to {self.context!r}, and"
                             f" {capture.origin!r} to another context; use another graph")
        if self.raw is not NULL:
            refuse_old_driver(CONDITIONS, "a capture into a graph that has nodes")
        self.begin_plan(f"being captured, in the block that began at {place(capture.site)};"
                        " call this after the block")
        self.context, self.capturing = capture.origin.context, True
        return 0

    cdef int receive(self, Capture capture, CUgraph raw) except -1:
        cdef DriverGraph driver_graph = None
        if self.raw is NULL:
            driver_graph = DriverGraph.__new__(DriverGraph)
        self.plan.list_all()
        self.plan.changes += 1  # also of a body: other libraries may have added nodes to it
        self.context, self.site = capture.origin.context, capture.site
        if driver_graph is not None:
            driver_graph.context, driver_graph.raw = self.context, raw
            self.raw, self.driver_graph = raw, driver_graph
        self.capturing, self.plan.root().busy = False, None
        return 0

    cdef void cannot_begin(self) noexcept:
        cdef Plan root = self.plan.root()
        self.capturing = False
        if self.raw is NULL:
            self.forget()
        root.busy = None    # last, as in `end_change`

    cdef void give_up(self, bint destroyed) noexcept:
        """Discard all nodes of the whole graph, even if this is only a body of it."""
        cdef Graph graph = self
        self.capturing = False
        while graph.outer is not None:
            graph = graph.outer
        if destroyed:
            # The driver may have given the handle to another graph by now. A graph whose body is
            # destroyed is leaked, because drivers crash when it is destroyed (580 does).
            graph.driver_graph.raw = NULL
        _drop_driver_graph(graph)
        graph.forget()  # last: drops `busy`, which keeps other threads from changing the graph

    cdef int forget(self) except -1:
        """Let go of the nodes, and of what they hold."""
        if self.plan is not None:
            self.plan.end()
        self.plan = self.known = self.single = None
        self.calls = {}
        self.context, self.site = None, 0
        self.number = number_of_graph()     # executables may keep the nodes with the old number
        return 0

    cdef Uses uses(self):
        """Return what the nodes use, without the nodes of a capture that has not ended."""
        cdef uint64_t changes = self.plan.root().changes
        if self.known is None or self.seen != changes:
            nodes = []
            for node in self.plan.finished():
                nodes.append(node)
            self.known, self.seen = uses_of(
                nodes, _with_bodies(nodes), self.label, self.context, {}), changes
        return self.known

    cdef object add_bodies(
        self, ConditionKind kind, object condition, object count, object after
    ):
        """Add a conditional node with empty bodies."""
        cdef tuple nodes = after_of(after)
        cdef Room room
        cdef Graph body
        cdef Plan plan
        cdef int i
        number = operator.index(count)
        if kind == IF_NODE and number not in (1, 2) or not 1 <= number <= MOST_BODIES:
            raise ValueError(f"bodies is {number}, and must be "
                             + ("1 or 2" if kind == IF_NODE else f"from 1 to {MOST_BODIES}"))
        self.usable()
        room = new_room(number * sizeof(CUgraph))
        plans, made = [], []
        for i in range(number):
            body, plan = Graph.__new__(Graph), Plan.__new__(Plan)
            which = "the body" if number == 1 else f"body {i}"
            body.label = plan.graph = \
                f"{which} of {conditional_call(kind)} at {place(here())} in {self.label}"
            body.plan, body.outer, body.number = plan, self, self.number
            plans.append(plan)
            made.append(body)
        node = add_conditional(self, kind, condition, nodes, tuple(plans), <CUgraph *>room.start)
        for i in range(number):
            body = made[i]
            body.raw, body.context = (<CUgraph *>room.start)[i], self.context
        return (node, *made)


cdef int _refuse_uncaptured(Graph graph) except -1:
    """Raise unless the graph is being captured."""
    graph.usable()
    if not graph.capturing:
        raise CaptureError(f"{graph.label} is not being captured: call constant inside"
                           " `with graph.capture(stream):`, where operations can use it")
    return 0


cdef tuple _drawn(Graph graph):
    """Return the arguments of the functions of _graph_picture that draw a graph."""
    from cudadrv._graph_picture import Step
    cdef GraphNode node
    steps = []
    edges = []
    # The edges are read before the nodes: another thread may add nodes meanwhile, and every edge
    # must have both of its nodes.
    for node, following in graph.edges:
        edges.append((node.index, (<GraphNode>following).index))
    for node in graph.nodes:
        stream = None if node.stream is None else node.stream.called()
        steps.append(Step(_title(node), place(node.site_number), stream,
                          _names_in_pictures(node.reads), _names_in_pictures(node.writes)))
    return graph.label, steps, sorted(edges)


cdef str _title(GraphNode node):
    name = operation_name(node.operation)
    if node.signal is None:
        return name
    return f"{name}: {(<Signal>node.signal).called()}, {number_of(node)}"


cdef tuple _names_in_pictures(tuple buffers):
    from cudadrv._graph_picture import Used
    cdef Region region
    found = []
    for buffer in buffers:
        region = region_behind(buffer)
        full = region.describe()
        name = type(buffer).__name__
        rest = full[len(name):]
        if region.name is not None:
            name, rest = region.name, rest[len(repr(region.name)) + 1:]
        found.append(Used(name + rest, full))
    return tuple(found)


cdef enum:
    MOST_BODIES = 1 << 16


cdef bint _is_new(Graph graph) noexcept:
    """Whether the graph was not captured and has no node."""
    return graph.raw is NULL or graph.plan.listed == 0 and graph.site == 0


cdef int _check_child(Graph graph, Graph child) except -1:
    """Raise unless a graph can be used in another one."""
    cdef GraphNode node
    child.usable()
    if child is graph:
        raise ValueError(f"{graph.label} cannot be a part of itself; add another graph")
    if child.outer is not None:
        raise CaptureError(f"{child.label} is a body, and cannot be used in another graph")
    child.refuse_busy()
    if _is_new(child):
        raise CaptureError(f"{child.label} is not captured, and has no nodes")
    for node in child.plan.finished():
        if node.signal is not None:
            raise CaptureError(
                f"{child.label} sets or waits for {(<Signal>node.signal).called()}, in"
                f" {node.called()}, and cannot be used in another graph: the numbers of its nodes"
                " could not be changed. Set the signal in the graph that is launched")
    if child.plan.conditions:
        raise CaptureError(f"{child.label} has conditions, and the driver cannot use such a graph"
                           " in another one. Make the condition in the graph that is launched, or"
                           " in one of its bodies")
    return 0


cdef int check_whole(Graph graph) except -1:
    """Raise unless a graph was captured or has nodes, is not a body, and is not changing."""
    if graph.outer is not None:
        raise CaptureError(f"{graph.label} cannot be launched by itself: instantiate its graph")
    graph.refuse_busy()
    if graph.context is not None:
        graph.context.usable()  # in a lost context, the driver has no graph any more
    if _is_new(graph):
        raise CaptureError(
            f"{graph.label} is not captured, and no node was added to it: with"
            " graph.capture(stream): ..., or graph.add_copy(...)")
    return 0


cdef CUresult _instantiate(ExecutableGraph made, CUgraph raw) noexcept:
    cdef CUresult status
    with nogil:
        status = in_cuGraphInstantiateWithFlags(made.context.raw, &made.raw, raw, 0)
    return status


cdef bint _is_second(CUresult status) except -1:
    """Whether the driver has refused a second executable of a graph with conditions."""
    return has_answered(status, <CUresult>CUDA_ERROR_NOT_SUPPORTED) \
        and "cuGraphInstantiateWithFlags" not in missing_functions()


cdef int _check_instance(Graph graph) except -1:
    """Raise unless a graph that is whole can be instantiated."""
    cdef ExecutableGraph single
    _check_conditions(graph.plan)
    _check_bodies(graph.plan, graph.context)
    single = None if graph.single is None else graph.single()
    if single is not None and single.raw is not NULL:
        _refuse_second(graph)
    return 0


cdef int _refuse_second(Graph graph) except -1:
    raise CaptureError(f"{graph.label} has conditional nodes, so the driver allows one executable"
                       " of it at a time, and another one is not closed: step.close(). Or it is a"
                       " part of another graph, by add_graph: close that one and its executables")


cdef int _refuse_during_captures(Graph graph) except -1:
    raise CaptureError(f"{graph.label} has conditional nodes, so the driver allows one executable"
                       " of it at a time. The last one is closed, but destroying it waits for all"
                       " work, which would end the captures that are in progress: end these first,"
                       " or instantiate the graph before them")


cdef int _check_conditions(Plan plan) except -1:
    """Raise for a condition that no node has: the driver does not instantiate such a graph."""
    cdef GraphNode node
    cdef Plan body
    for handle, used in plan.conditions.items():
        if not used:
            raise CaptureError(
                f"no node of {plan.graph} has the condition {handle}: pass it to add_if, add_while"
                " or add_switch")
    for node in plan.finished():
        filled = not node.plans
        for body in node.plans or ():
            _check_conditions(body)
            filled = filled or body.changes > 0 or bool(body.finished())
        if not filled:
            raise CaptureError(
                f"{node.called()} in {plan.graph} has nothing to run: add nodes to its body, or"
                " capture work into it, before the graph is instantiated")
    return 0


cdef int _check_bodies(Plan plan, Context context) except -1:
    """Raise if a copy or a fill of a body uses memory of another context.

    Driver 580 refuses such fills. It loses the context when it runs such copies, except for some
    copies of memory of the same device.
    """
    cdef GraphNode node
    cdef Plan body
    for node in plan.finished():
        for body in node.plans or ():
            _check_bodies(body, context)
            _check_body(body.graph, body.finished(), context)
    return 0


cdef int _check_body(str body, object nodes, Context context) except -1:
    cdef GraphNode node
    for node in nodes:
        if isinstance(node.source, Uses):   # a child graph
            _check_body(body, (<Uses>node.source).nodes, context)
        if node.kind not in (COPY_NODE, FILL_NODE):
            continue
        for region in (node.source, node.target):
            if region is not None and is_of_other_context(region, context, is_between(node)):
                raise ValueError(
                    f"{node.called()} of {body} uses {(<Region>region).describe()}, which belongs"
                    f" to {(<Region>region).memory.context!r}, and the graph to {context!r}. In a"
                    " body, copies and fills can only use memory of that context")
    return 0


cdef CUgraphNode *_raws_of(list nodes) except NULL:
    """Return the driver's nodes, as `ExecutableGraph.raws` has them. A loan has none."""
    cdef GraphNode node
    cdef int part
    cdef CUgraphNode *raws = <CUgraphNode *>calloc(MOST_RAWS * len(nodes) + 1, sizeof(CUgraphNode))
    if raws is NULL:
        raise MemoryError()
    for node in nodes:
        for part in range(node.raw_count):
            raws[MOST_RAWS * node.index + part] = node.raws[part]
    return raws


cdef void _drop_driver_graph(Graph graph) noexcept:
    """Drop the reference to the driver's graph, which ends with the last reference."""
    graph.raw = NULL
    graph.driver_graph = None


# ---- launches ----

# The names of launches of executables that are gone or were changed: (number, slot, seq) of the
# last launch.
cdef list _last_launches = []
cdef Py_ssize_t _crowded = 16   # at this length of the list, look for launches that are complete
cdef enum:
    MOST_NAMES = 256        # at this length of the list, changed executables get no new names


cdef int _forget_names() except -1:
    """Give back the names of launches that are known to be complete."""
    global _last_launches, _crowded
    kept = []
    for number, slot, seq in _last_launches:
        if seq == 0 or own_known(engine, slot, seq):
            give_back_name(number)
        else:
            kept.append((number, slot, seq))
    _last_launches, _crowded = kept, min(2 * len(kept) + 16, MOST_NAMES)
    return 0


cdef uint16_t name_launches(str graph, NodeNames names) except? 0:
    """Return the number of a name for the launches of an executable.

    This is a new name for this executable if there are not too many names; else it is LAUNCH.
    """
    if len(_last_launches) >= _crowded:
        _forget_names()
    return graph_launch(graph, names) if len(_last_launches) < MOST_NAMES else <uint16_t>LAUNCH


cdef void retire_name(ExecutableGraph executable) noexcept:
    """Let the name of the launches be used again once they are complete."""
    if executable.operation == LAUNCH:
        return
    try:
        _last_launches.append((
            executable.operation, executable.runs.last.snapshot.slot,
            executable.runs.last.snapshot.seq))
    except MemoryError:
        pass    # the name is not used again


def _buffers_in(Uses uses not None, bint written):
    """Return the buffers of the nodes, for the token of a launch."""
    cdef GraphNode node
    found = []
    for node in uses.running():
        for region in (node.writes if written else node.reads):
            if region not in found:
                found.append(region)
    return tuple(found)


cdef object _buffers_function = _buffers_in   # a C variable, which is quicker to find


cdef CUresult _launch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef CUgraphExec *raw = <CUgraphExec *>arguments
    return cuGraphLaunch(raw[0], stream)


cdef CUresult _upload_call(void *executable, CUstream stream, bint *queued) noexcept nogil:
    cdef CUgraphExec *raw = <CUgraphExec *>executable
    return cuGraphUpload(raw[0], stream)


cdef struct Special:
    CUgraphExec raw
    uint64_t *count     # of the launches of an executable with functions; else NULL
    uint64_t number     # the number of this launch
    void *turn          # the Turn of a launch that sets signals or waits for them; else NULL


cdef CUresult _special_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    """Launch an executable that is `special`. The driver runs its launches in their order here."""
    cdef Special *launch = <Special *>arguments
    cdef CUresult status
    if launch.turn is not NULL and not are_larger(<Turn>launch.turn):
        return <CUresult>CUDA_ERROR_INVALID_VALUE
    status = cuGraphLaunch(launch.raw, stream)
    if status == CUDA_SUCCESS and launch.count is not NULL:
        launch.count[0] += 1
        launch.number = launch.count[0]
    if status == CUDA_SUCCESS and launch.turn is not NULL:
        queued[0] = True
        status = finish_sets(<Turn>launch.turn, stream)
    return status


@cython.final
@cython.no_gc_clear
cdef class ExecutableGraph:
    """ExecutableGraph(*args, **kwargs)\n--\n
    What `Graph.instantiate` makes of a graph: it can be launched.

    A launch is one operation, which reads and writes all that the nodes read and write.
    """

    def __dealloc__(self):
        _destroy_executable(self)
        if self.operation and self.uses is not None:
            retire_name(self)
        own_catch_up(engine)
        own_snapshot_drop(engine, &self.runs.last.snapshot)
        free(self.accesses)
        free(self.raws)

    @property
    def closed(self):
        """Whether the executable was closed."""
        return self.raw is NULL

    @property
    def nodes(self):
        """The operations of a launch, a tuple of `GraphNode` in the order of their capture."""
        return tuple(usable_executable(self).nodes)

    def launch(self, stream=None):
        """Queue a launch of the graph. Does not wait for it.

        The launch runs after the work of the stream, and after the last launch of this executable
        on any stream.

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
            There is no stream, or it belongs to another context; this executable is closed.
        BufferBorrowedError, BufferExportedError
            See docs/errors.md. Nothing is queued.
        CaptureError
            The stream is being captured, or this executable is being changed.
        ContextLostError
            The context of a node, or of memory that a node copies, is lost.
        SignalError
            A node sets a signal to a number that is not larger than the last one, or waits for a
            number that nothing sets; or the last launch may never end, because it waits for a
            number of an external signal.

        Driver functions: cuGraphLaunch, and cuEventRecord if a node sets a signal.
        """
        cdef Stream found
        if likely(type(stream) is Stream):
            found = <Stream>stream
        else:
            found = _stream_of_launch(self, stream)
        if unlikely((found.context is not self.context) | self.changing | self.special
                    | some_are_open | (not is_usable_executable(self))):
            return _launch_specially(self, found)
        return _launch(self, found, _launch_call, &self.raw)

    def upload(self, stream=None):
        """Queue an upload of the graph to the device, so that the first launch is quicker.

        Does not wait for it. The upload runs after the work of the stream, and uses no buffer.

        Parameters
        ----------
        stream : Stream, optional
            As for `launch`.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError, CaptureError
            As for `launch`.

        Driver function: cuGraphUpload.

        Examples
        --------
        >>> step = graph.instantiate()
        >>> step.upload(stream)
        >>> step.launch(stream)     # later
        """
        cdef Operation operation
        cdef Stream found = _stream_of_launch(self, stream)
        cdef Token token
        if found.context is not self.context or self.changing:
            refuse_launch(self, found)
        self.launching += 1     # as in `launch`
        try:
            token = new_token(found, None, None)
            prepare(&operation, UPLOAD, NULL, 0, _upload_call, &self.raw)
            # Not a run: later launches are ordered after the last launch, not after an upload.
            reason = issue(&operation, found, NULL, True)
        finally:
            self.launching -= 1
        if reason:
            refuse_operation(&operation, reason, found, ())
        stand_for(token, &operation)
        return token

    def update(self, graph):
        """Let later launches do what another graph does. Does not block.

        The graph must have the same operations in the same order, with the same waits between them.
        Their buffers, arguments and values may differ, within what the driver can change. Launches
        that are queued already are not affected, and keep their borrows. This executable then keeps
        the memory and the modules of that graph, and lets go what it kept before. Changes by
        ``step[node].set(...)`` are gone, and disabled nodes stay disabled.

        Parameters
        ----------
        graph : Graph
            A captured graph of the same context. It can be closed afterwards.

        Raises
        ------
        TypeError, ValueError
            ``graph`` is not a Graph, is closed or belongs to another context; or this executable is
            closed.
        CaptureError
            The graph is not captured, has other operations, or an operation cannot be changed as
            wanted; the message names it, and the driver's reason. Or another thread is launching or
            changing this executable. The executable stays as it was.

        Driver function: cuGraphExecUpdate.
        """
        if _update_executable is None:
            _import_changes()
        _update_executable(self, graph)

    def __getitem__(self, node):
        """__getitem__($self, node, /)\n--\n
        Return an `ExecutableNode`, by which one node of this executable is changed.

        ``node`` is a `GraphNode` of the graph that this was instantiated from, of the graph that
        has updated it last, or of ``step.nodes``; or an index of ``step.nodes``. Raises ValueError
        for other nodes and IndexError for other indices.
        """
        if _node_of is None:
            _import_changes()
        return _node_of(self, node)

    def __len__(self):
        """__len__($self, /)\n--\n
        The number of nodes."""
        return len(usable_executable(self).nodes)

    def close(self):
        """Destroy the executable, and let its memory go. Closing twice does nothing.

        Does not block. Launches that are queued still run, and keep their borrows. To destroy an
        executable with conditions, the driver waits for all work of the device. So it is destroyed
        later, when the device is idle.

        Raises CaptureError while another thread is launching or changing the executable.
        Driver function: cuGraphExecDestroy.
        """
        if self.raw is NULL:
            return
        refuse_here()
        refuse_while_busy(self)
        _destroy_executable(self)
        own_catch_up(engine)
        retire_name(self)
        drain(False)
        self.uses = self.holdings = self.original = self.launches = None

    def __enter__(self):
        """``with step:`` closes it at the end of the block."""
        usable_executable(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the executable."""
        close_at_end(self, exception, "executable graph")

    def __repr__(self):
        state = "closed" if self.raw is NULL else _count_of(self.uses.nodes)
        return f"<ExecutableGraph of {self.label}, {state}>"


only_made_by(ExecutableGraph, "use graph.instantiate()")

# Functions of the module _graph_changes, which imports this one.
cdef object _update_executable = None
cdef object _node_of = None


cdef int _import_changes() except -1:
    global _update_executable, _node_of
    changes = import_module("cudadrv._graph_changes")
    _update_executable, _node_of = changes.update_executable, changes.node_of
    return 0


cdef inline Token _launch(
    ExecutableGraph executable, Stream stream, driver_call call, void *arguments
):
    """Queue a launch. The caller has checked the executable and the stream."""
    cdef Operation operation
    cdef Uses uses = executable.uses
    cdef Token token
    cdef Room room = None
    cdef own_access *accesses = executable.accesses
    cdef uint32_t count = uses.count
    executable.launching += 1   # from here on, finalizers cannot close or change the executable
    try:
        if unlikely(policies_used):
            room = _with_policies(uses, &count)
            accesses = accesses if room is None else <own_access *>room.start
        token = new_token(stream, uses, _buffers_function)
        prepare(&operation, executable.operation, accesses, <int>count, call, arguments)
        reason = issue(&operation, stream, &executable.runs, uses.apart and room is None)
    finally:
        executable.launching -= 1
    if unlikely(reason):
        if reason > 0 and uses.others is not None and is_sticky(<CUresult>reason):
            _find_lost_among(uses.others)
        refuse_operation(&operation, reason, stream, uses.targets(accesses, count))
    stand_for(token, &operation)
    return token


cdef int _find_lost_among(list contexts) except -1:
    """Raise ContextLostError if a failed launch has lost one of these contexts."""
    for context in contexts:
        find_lost(<Context>context)
    return 0


cdef Token _launch_specially(ExecutableGraph executable, Stream stream):
    """The slow path of `launch`: refuse it, or launch an executable that is `special`."""
    cdef Special launch
    cdef Token token
    refuse_launch(executable, stream)
    for context in executable.uses.others or ():
        (<Context>context).usable()
    if some_are_open:
        refuse_behind(&executable.runs.last.snapshot, f"the last launch of {executable.label}",
                      stream.order)
    launch = Special(executable.raw, NULL, 0, NULL)
    executable.launching += 1   # from here on, other threads cannot close or change the executable
    try:
        if executable.signals is not None:
            token = _launch_with_signals(executable, stream, &launch)
        else:
            token = _launch_with_calls(executable, stream, &launch)
    finally:
        executable.launching -= 1
    return token


cdef Token _launch_with_signals(ExecutableGraph executable, Stream stream, Special *launch):
    cdef Turn turn = new_turn(executable.uses.nodes, executable.signals)
    cdef Token token = None
    if stream.capture is not NULL:
        stream.refuse_captured()
    launch.turn = <void *>turn
    turn.look(stream)
    if turn.waited is not NULL:
        _refuse_unordered(executable, stream, turn.waited)
    try:
        turn.begin(stream)
        token = _launch_with_calls(executable, stream, launch)
    except CudaError:
        turn.refuse_late()
        raise
    finally:
        turn.end(stream, token)
    return token


cdef int _refuse_unordered(
    ExecutableGraph executable, Stream stream, own_clock *waited
) except -1:
    """Refuse a launch that would still conflict if the stream had waited for all in a clock.

    So a launch that is refused has not made the stream wait.
    """
    cdef Operation operation
    cdef Question question
    cdef Uses uses = executable.uses
    cdef uint32_t count = uses.count
    cdef Room room = _with_policies(uses, &count) if policies_used else None
    cdef own_access *accesses = executable.accesses if room is None else <own_access *>room.start
    prepare(&operation, executable.operation, accesses, <int>count, NULL, NULL)
    operation.request.stream = stream.order
    own_catch_up(engine)
    answer = own_ask(engine, &operation.request, &executable.runs, waited)
    if answer == OWN_MUST_WAIT:
        question = Question(engine, &operation.request.conflict, &operation.request,
                            &executable.runs, NULL, NULL, waited)
        if users_in_the_way(&question) is not None:
            return 0
    if answer != OWN_OK:
        refuse_operation(&operation, REFUSED - answer, stream, uses.targets(accesses, count))
    return 0


cdef Token _launch_with_calls(ExecutableGraph executable, Stream stream, Special *launch):
    cdef Launches launches = executable.launches
    cdef Token token
    cdef Launched launched
    if launches is None:
        return _launch(executable, stream, _special_call, launch)
    launch.count = &launches.count
    launched = launches.begin()
    try:
        token = _launch(executable, stream, _special_call, launch)
        launched.slot, launched.seq = token.slot, token.seq
    finally:
        launched.number = launch.number
        launches.end(launched)
    return token


cdef Stream _stream_of_launch(ExecutableGraph executable, object stream):
    """The slow path of `launch`: return the stream for an argument that may not be a Stream."""
    cdef Stream found
    usable_executable(executable)
    found = stream_for(stream, executable.context)
    if found is None:
        refuse_no_stream("launch of a graph")
    return found


cdef int refuse_launch(ExecutableGraph executable, Stream stream) except -1:
    """Raise the reason why an executable cannot be launched on a stream, if there is one."""
    usable_executable(executable)
    check_stream(stream)
    if stream.context is not executable.context:
        raise ValueError(f"{executable.label} belongs to {executable.context!r}, and {stream!r} to"
                         " another context; use a stream of the graph's context")
    return _refuse_while_changing(executable)


cdef Uses usable_executable(ExecutableGraph executable):
    """Return what the launches use. Raises if nothing can be launched."""
    refuse_if_forked()
    if executable.raw is NULL:
        raise ValueError(f"this executable of {executable.label} is closed")
    if unlikely(executable.broken is not None):
        raise CaptureError(f"the driver has failed in the middle of a change of {executable.broken}"
                           f" in this executable of {executable.label}; instantiate another one")
    return executable.uses


cdef int refuse_while_busy(ExecutableGraph executable) except -1:
    if executable.launching:
        raise CaptureError(f"another thread is launching {executable.label}")
    return _refuse_while_changing(executable)


cdef int _refuse_while_changing(ExecutableGraph executable) except -1:
    if executable.changing:
        raise CaptureError(f"this executable of {executable.label} is being changed, by another"
                           " thread or by a call in which this one is made")
    return 0


cdef Room _with_policies(Uses uses, uint32_t *count):
    """Return the accesses of a launch with the policies that are in force now.

    If the buffers have several policies, the accesses of each policy are joined separately. Returns
    None if all accesses have the policy "strict".
    """
    cdef Room room
    cdef own_access *each
    cdef own_access *joined
    cdef uint32_t i
    cdef uint32_t found = 0
    cdef int policies = 0
    uses.find_buffers()
    for i in range(uses.total):
        policies |= 1 << _policy_of(uses, i)
    if policies in (0, 1 << OWN_STRICT):
        return None
    room = new_room((1 + MOST_JOINED) * (uses.total + 1) * sizeof(own_access))
    each = <own_access *>room.start
    joined = each + uses.total
    memcpy(each, uses.each, uses.total * sizeof(own_access))
    for i in range(uses.total):
        each[i].policy = _policy_of(uses, i)
    count[0] = 0
    for policy in (OWN_STRICT, OWN_WAIT, OWN_UNCHECKED):
        if policies & 1 << policy:
            if not own_join_accesses(each, uses.total, policy, joined + count[0], &found):
                raise MemoryError()
            count[0] += found
    memmove(each, joined, count[0] * sizeof(own_access))
    return room


cdef int _policy_of(Uses uses, uint32_t index) except -1:
    """Return the policy that is in force for an access of a launch."""
    cdef Region region = uses.regions[index]
    policy = policy_in_force(
        None if region is None else region.policy, (<Context>uses.contexts[index]).policy)
    # The order of sets is always checked.
    return OWN_STRICT if policy == OWN_UNCHECKED and type(region) is Word else policy


cdef void _destroy_executable(ExecutableGraph executable) noexcept:
    cdef CUgraphExec raw = executable.raw
    cdef CUresult status
    executable.raw = NULL
    if executable.launches is not None:
        executable.launches.calls = ()  # they refer to `launches`: a cycle
    if raw is NULL or cudadrv_table.forked or executable.context.lost:
        return
    if executable.conditional:
        release_later(EXECUTABLE, <CUdeviceptr><size_t>raw, NULL, executable.context,
                      (executable.original, executable.uses))
        return
    with nogil:
        status = in_cuGraphExecDestroy(executable.context.raw, raw)
    report_end(status, ENDS_EXECUTABLE, <size_t>raw, executable.context,
               (executable.original, executable.uses))
