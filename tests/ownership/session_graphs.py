"""The steps of a program that capture graphs, launch them and end them."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import oracle_graphs
from oracle import CAPTURED, MUST_WAIT, OK, Ambiguous, Node, past
from oracle_graphs import leaves
from session import FAILED, GRAPH_CLOSED, NO_STREAM, OTHER_CONTEXT, WAITED, Failed, Place, Token
from session_buffers import BufferSession, stream_option

import cudadrv as cu
from cudadrv import testing

INVALID = 1


@dataclass(eq=False)
class Graph:
    """A graph of the program."""

    real: cu.Graph | None
    place: Place | None = None
    kept: oracle_graphs.Plan | None = None  # None: the graph has never had nodes
    capturing: bool = False
    busy: bool = False  # for a whole graph: whether a part of it is being captured
    closed: bool = False
    # The pattern by which its operations were chosen; several graphs may share it.
    pattern: Any = None
    made: list = field(default_factory=list)  # the executables that were made from it

    @property
    def root(self):
        return self

    @property
    def holding(self):
        return self.kept and self.kept.holding

    def discard(self):
        """Note that all nodes of the graph are discarded, and that their memory is released."""
        self.kept.holding.let_go()
        self.kept.ended = True
        self.kept = self.place = None
        self.made = []


class Body(Graph):
    """A body of a conditional node."""

    def __init__(self, real, outer, plan):
        self.outer = outer
        super().__init__(real, outer.place, plan)

    @property
    def root(self):
        return self.outer.root

    @property
    def closed(self):
        return self.kept.root.ended

    @closed.setter
    def closed(self, value):
        """Do nothing: a body is never closed by itself."""


@dataclass(eq=False)
class Executable:
    real: cu.ExecutableGraph | None
    place: Place
    content: oracle_graphs.Content
    pattern: Any
    last: Node | None = None  # node of its last launch
    closed: bool = False
    # Whether the driver has destroyed the graph of the executable. None: not known.
    orphan: bool | None = False
    busy = False

    @property
    def root(self):
        return self

    @property
    def holding(self):
        return self.content.holding


@dataclass(eq=False)
class Block:
    """A capture that is in progress."""

    real: Any
    graph: Graph
    model: oracle_graphs.Capture


class GraphSession(BufferSession):
    def __init__(self, *contexts):
        super().__init__(*contexts)
        self.begun = []  # the blocks of captures in progress

    # ---- captures ----

    def make_graph(self, name=None):
        return Graph(cu.Graph(name=name))

    def begin(self, graph, stream, after=None):
        """Begin a capture on a stream, by default the current one. Returns the block, or None.

        `after` are indices of the graph's nodes that the captured operations run after.
        """
        given = () if stream is None else (stream.given,)
        if stream is None and self.currents:
            stream = self.currents[-1]
        answer = self._judge_begin(graph, stream, after)
        nodes = None if after is None else [graph.real.nodes[index] for index in after]
        enter = lambda: entered(graph.real.capture(*given, after=nodes))  # noqa: E731
        self.call("capture", answer, lambda: self.begun.append(enter()))
        if answer != OK:
            return None
        graph.root.busy = graph.capturing = True
        graph.kept = graph.kept or oracle_graphs.Plan()
        graph.place = self.place_of(stream.model)
        points = [graph.kept.operations[index] for index in after or ()]
        capture = oracle_graphs.Capture(stream.model, graph.kept, points)
        return Block(self.begun[-1], graph, capture)

    def _judge_begin(self, graph, stream, after):
        if graph.closed:
            return GRAPH_CLOSED
        if stream is None:
            return NO_STREAM
        if (usable := self._usable(stream)) != OK:
            return usable
        refused = stream.kind == "legacy" or stream.model.capture
        plan = graph.kept
        if plan is not None and after is None:
            refused = refused or plan.operations or plan.captured
        if refused or graph.root.busy:
            return CAPTURED
        reasons = {CAPTURED} if plan is not None and plan.frozen else set()
        if any(plan.operations[index].lends for index in after or ()):
            reasons.add(CAPTURED)
        reasons |= set() if graph.place in (None, stream.place) else {OTHER_CONTEXT}
        return any_of(frozenset(reasons)) if reasons else OK

    def end(self, block, way="block"):
        """End a capture: at the end of its block, by an exception, or by dropping the block."""
        captured, graph = block.model, block.graph
        joined = captured.is_joined() and captured.calls_are_joined()
        answer = CAPTURED if way == "block" and not joined else OK
        self._leave(block, way, answer)
        captured.end()
        self.outlive(captured)
        graph.root.busy = graph.capturing = False
        if way == "block" and answer == OK:
            self.compare_graph(graph)
        else:
            # These executables were made from a graph that had nodes before the capture.
            for executable in graph.root.made:
                executable.orphan = captured.breaks_graph()
            graph.root.discard()

    def _leave(self, block, way, answer):
        real, block.real = block.real, None
        self.begun.remove(real)
        if way == "dropped":
            return
        error = KeyError() if way == "exception" else None
        leave = lambda: real.__exit__(type(error), error, None)  # noqa: E731
        self.call("end of capture", answer, leave, unchanged=False)

    def end_captures(self):
        """End all captures after a disagreement."""
        while self.begun:
            with suppress(Exception):
                self.begun.pop().__exit__(KeyError, KeyError(), None)

    def place_of(self, stream):
        return next(place for place in self.places if place.domain is stream.domain)

    def compare_graph(self, graph):
        """Compare the edges: the library's graph must have the declared order."""
        nodes, operations = graph.real.nodes, graph.kept.operations
        index = {node: at for at, node in enumerate(nodes)}
        self.agree("number of nodes", len(nodes), len(operations))
        before = {node: {node} for node in nodes}
        for first, second in sorted(graph.real.edges, key=lambda edge: index[edge[1]]):
            before[second] |= before[first]
        for at, operation in enumerate(operations):
            operation.after = tuple(index[a] for a, b in graph.real.edges if b is nodes[at])
            for earlier in operation.after:
                operations[earlier].followed = True
            known = past(operation.node)
            for earlier, other in enumerate(operations):
                if other.node in known and nodes[earlier] not in before[nodes[at]]:
                    self.disagree(f"node {at} is not ordered after node {earlier}")

    def compare_sizes(self, graph, operations):
        """Compare the sizes of the buffers that the nodes write. Growing must not change them."""
        for node, operation in zip(graph.real.nodes, operations, strict=True):
            if operation.effect.kind in ("fill", "copy", "add"):
                expected = [buffer.nbytes for buffer, mode in operation.uses if mode == "write"]
                found = [buffer.nbytes for buffer in node.writes]
                self.agree("sizes of what a node writes", found, expected)

    # ---- graphs and executables ----

    def close_graph(self, graph):
        refused = graph.root.busy or (graph.root is not graph and not graph.closed)
        answer = CAPTURED if refused else OK
        self.call("graph.close()", answer, graph.real.close)
        if answer == OK and not graph.closed:
            self.end_graph(graph)

    def end_graph(self, graph):
        """Note that a graph or an executable was closed.

        Memory that only this graph or executable held can now be closed.
        """
        graph.closed = True
        if graph.holding is not None:
            graph.holding.let_go()
        if isinstance(graph, Graph) and graph.kept is not None:
            graph.kept.ended = True

    def drop_graph(self, graph):
        """Drop the only reference to a graph with all its bodies, or to an executable."""
        graph.real = None
        if not graph.closed and graph.root is graph:
            self.end_graph(graph)

    def instantiate(self, graph):
        if self.begun and graph.made and graph.kept.conditions:
            # The driver may already have destroyed a closed executable, or do so after the
            # captures.
            return None
        whole = self.is_whole(graph)
        reasons = set() if whole and self.is_single(graph) else {CAPTURED}
        if whole and any(body.uses_far_memory(graph.place) for body in graph.kept.bodies()):
            reasons.add(OTHER_CONTEXT)
        answer = any_of(frozenset(reasons or {OK}))
        if graph.closed:
            answer = GRAPH_CLOSED
        real = self.call("instantiate", answer, graph.real.instantiate)
        if answer != OK:
            return None
        content = replace(graph.kept.content(), holding=graph.kept.holding.copied())
        made = Executable(real, graph.place, content, graph.pattern)
        graph.made.append(made)
        graph.kept.executables.append(made)
        return made

    def is_whole(self, graph):
        """Whether a graph can be instantiated or be a child graph."""
        plan = graph.kept
        made = plan is not None and (plan.operations or plan.captured)
        return bool(made) and plan.outer is None and not graph.root.busy

    def is_single(self, graph):
        """Whether the conditions of the graph allow a new executable.

        A graph with conditions can have only one executable, and none while another graph contains
        a copy of it. A graph with an unused condition cannot have any, and no graph with a node
        whose bodies are all empty.
        """
        unused = any(not condition.used for condition in graph.kept.all_conditions())
        other = any(not executable.closed for executable in graph.made)
        unused = unused or graph.kept.has_empty_node()
        return not unused and not (graph.kept.conditions and (other or graph.kept.is_part))

    # ---- launches ----

    def launch_graph(self, executable, stream, watched=(), fails=False):
        """Launch a graph. The effects of its operations are applied here, one after the other.

        For a launch that may fail, `watched` are buffers that cover all memory that it uses. With
        `fails`, the driver refuses the launch, and the program does not look at the buffers before
        that.
        """
        answer, on = self._judge_graph(executable, stream)
        options, real = stream_option(stream), executable.real
        call = lambda: real.launch(**options)  # noqa: E731
        content = executable.content
        operations = content.enabled
        fails = fails and answer == OK and self._leaves_no_uses(operations)
        try:
            result = (
                self._launch_that_fails(call)
                if fails
                else self.call("launch of a graph", answer, call, *watched)
            )
        except Failed:
            if self.queued:
                self.lose_turn(content)
            self.after_failure(on.model, [use for each in leaves(operations) for use in each.uses])
            return None
        if result is None:
            return None
        node = self.oracle.launch(on.model, operations, executable.last, next(self.sites))
        executable.last = node
        sets = self.take_turn(content, node)
        self.ordered = self.ordered and content.ordered
        for condition in content.conditions:
            condition.value = condition.default
        for operation in content.operations:
            operation.act(operation not in content.disabled)
        buffers = [
            buffer for leaf in leaves(operations) for buffer, _ in leaf.uses if not buffer.is_signal
        ]
        # The sets of a launch have an event, which its token shares.
        return Token(result, node, buffers, on.model, bool(sets), streams=content.streams)

    def _leaves_no_uses(self, operations):
        """Whether the library certainly undoes a failed launch: see `is_plain` of the oracle.

        Of several launches on one stream, only the last one counts.
        """
        for leaf in leaves(operations):
            for memory, start, stop, _ in (*leaf.accesses, *leaf.more):
                bytes_used = {(start, stop), *((use.start, use.stop) for use in memory.accesses)}
                users = {use.stream for use in memory.accesses}
                modes = {use.mode for use in memory.accesses}
                if bytes_used != {(0, memory.nbytes)} or len(users) > 1 or len(modes) > 2:
                    return False
        return True

    def _launch_that_fails(self, call):
        """Make a launch that fails. Returns None, or a token.

        In another current context, the library tries the launch again, and returns a token.
        """
        testing.fail("cuGraphLaunch", INVALID)
        try:
            result, self.waited = call(), True
            return result
        except cu.CudaError:
            self.answers[FAILED] += 1
            return None
        finally:
            testing.configure("fault=none")

    def _judge_graph(self, executable, stream):
        """The answer after the waits of the policies, and the stream."""
        on = self.current(stream, executable.place)
        if executable.closed:
            return GRAPH_CLOSED, on
        if on is None:
            return NO_STREAM, on
        if (usable := self._usable(on)) != OK:
            return usable, on
        if on.place is not executable.place:
            return OTHER_CONTEXT, on
        if on.model.in_capture:
            return CAPTURED, on
        order = self.oracle.order()
        with self.oracle.restored_after(Ambiguous, order):
            answer = self._judge_turn_and_launch(executable, on)
        if answer not in (OK, WAITED):
            self.oracle.restore(order)  # a launch that is refused has made no stream wait
        return answer, on

    def _judge_turn_and_launch(self, executable, on):
        if (turn := self.judge_turn(on.model, executable.content)) != OK:
            return turn
        operations = leaves(executable.content.enabled)
        policies = [[self.policy_of(buffer) for buffer, _ in each.uses] for each in operations]
        strict = [["strict"] * len(each) for each in policies]
        request = on.model, operations, policies, executable.last
        before = self.oracle.judge_launch(*request)
        answers = self.oracle.judge_launch_and_wait(*request)
        if answers == {OK}:
            strictly = self.oracle.judge_launch(on.model, operations, strict, executable.last)
            self.ordered = self.ordered and strictly == {OK}
        return WAITED if answers == {OK} and before == {MUST_WAIT} else any_of(answers)


def any_of(answers):
    """The expected outcome.

    If a call can be refused for several reasons, any of them is allowed.
    """
    return answers if len(answers) > 1 else min(answers)


def entered(block):
    return block.__enter__()
