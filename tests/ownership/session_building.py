"""The steps of a program that add nodes to graphs without a capture."""

import contextvars

import oracle_graphs
from effects import (
    Add,
    Child,
    Condition,
    Conditional,
    Copy,
    Fill,
    Nothing,
    SetNumber,
    Steer,
    Swap,
    WaitForNumber,
    an_item,
    of_box,
)
from oracle import BORROWED, CAPTURED, MEMORY_CLOSED, MUST_WAIT, OK
from oracle_graphs import Operation
from session import (
    FILL_BY_PARTS,
    GRAPH_CLOSED,
    NO_SUCH_CHANGE,
    NO_SUCH_FILL,
    OTHER_CONTEXT,
    OVERLAP,
    SMALLER,
    WAITED,
    Failed,
)
from session_buffers import (
    Buffer,
    Memory,
    copied_by_host,
    device_side,
    fills_by_parts,
    is_filled,
    kept,
    relation,
)
from session_changes import ChangeSession
from session_graphs import Body, any_of
from session_kernels import DECLARED, VARIABLE_BYTES, contradict, modelled
from session_peers import are_apart

import cudadrv as cu

STEER = """
.version 6.4
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry steer(.param .u64 handle, .param .u32 value)
{
    .reg .b64 %handle;
    .reg .b32 %value;
    ld.param.u64 %handle, [handle];
    ld.param.u32 %value, [value];
    { .param .b64 one; .param .b32 two;
      st.param.b64 [one], %handle; st.param.b32 [two], %value;
      call.uni cudaGraphSetConditional, (one, two); }
    ret;
}
"""


class BuildSession(ChangeSession):
    # ---- nodes ----

    def add_copy(self, graph, after, target, source):
        overlapping, same = relation(target, source)
        effect = of_box(Copy(target.real.dtype), target, source)
        node = Operation(None, [(target, "write"), (source, "read")], effect)
        if same or not target.nbytes:
            node = Operation(None, [], Nothing((target.keep(), source.keep())))
        between = are_apart(target, source)
        place = self._place_for(graph, device_side(target, source))
        if between and source.memory.place is graph.place:
            place = graph.place
        call = lambda nodes: graph.real.add_copy(target.real, source.real, after=nodes)  # noqa: E731
        reasons = {OVERLAP} if overlapping else set()
        reasons |= self._reasons_against(graph, after, place, (target, source), between)
        if between and target.nbytes:
            reasons |= {self.judge_access_for(place, target, source)} - {OK}
        added = self._add(graph, after, place, node, call, reasons)
        if added and between and target.nbytes:
            self.need(graph.kept.holding, place, target, source)
        self.after_use(target, source)

    def add_fill(self, graph, after, buffer, value):
        number, item = an_item(buffer.real.dtype, value)
        effect = of_box(Fill(item, buffer.real.dtype), buffer)
        node = Operation(None, [(buffer, "write")], effect)
        if not buffer.nbytes:
            node = Operation(None, [], Nothing((buffer.keep(),)))
        place = self._place_for(graph, buffer)
        call = lambda nodes: graph.real.add_fill(buffer.real, number, after=nodes)  # noqa: E731
        reasons = set() if is_filled(buffer, item) else {NO_SUCH_FILL}
        reasons |= {FILL_BY_PARTS} if fills_by_parts(buffer, effect) else set()
        reasons |= self._reasons_against(graph, after, place, (buffer,))
        self._add(graph, after, place, node, call, reasons)
        self.after_use(buffer)

    def add_call(self, graph, after, target, source):
        """Add a call of a function: it copies bytes, or inverts those of the target."""
        uses, given, effect = self.call_of(target, source)
        place = graph.place or target.memory.place
        call = lambda nodes: graph.real.add_call(copied_by_host, *given, after=nodes)  # noqa: E731
        buffers = [buffer for buffer, _ in uses]
        reasons = set() if graph.root is graph else {CAPTURED}
        reasons |= self._reasons_against(graph, after, place, buffers)
        self._add(graph, after, place, Operation(None, uses, effect), call, reasons)
        self.after_use(*buffers)

    def add_set(self, graph, after, signal, number):
        reasons = {SMALLER} if number == 0 or self._set_in(graph, signal, number) else set()
        node = Operation(None, [(signal, "write")], SetNumber(signal, number))
        self._add_of_signal(graph, after, node, graph.real.add_set, reasons)

    def add_wait(self, graph, after, signal, number):
        reasons = {CAPTURED} if self._set_in(graph, signal, number) else set()
        node = Operation(None, [(signal, "shared")], WaitForNumber(signal, number))
        self._add_of_signal(graph, after, node, graph.real.add_wait, reasons)

    def _set_in(self, graph, signal, number):
        return graph.kept and not graph.closed and graph.kept.set_in(signal, number)

    def _add_of_signal(self, graph, after, node, add, reasons):
        signal, number = node.effect.signal, node.effect.number
        call = lambda nodes: add(signal.real, number, after=nodes)  # noqa: E731
        place = graph.place or signal.place
        reasons |= set() if graph.root is graph else {CAPTURED}
        reasons |= self._reasons_against(graph, after, place, [signal])
        self._add(graph, after, place, node, call, reasons)

    def add_launch(self, graph, after, place, buffers, modes, more):
        count = min(buffer.run for buffer in buffers)
        uses = [*zip(buffers, ("write", *modes), strict=True), *more]
        operands = [DECLARED[mode](buffer.real) for buffer, mode in uses]
        args, options = (*operands[:3], count), {"borrows": operands[3:]}
        kernel = self.kernel(place)
        call = lambda nodes: graph.real.add_launch(kernel, 1, 1, *args, **options, after=nodes)  # noqa: E731
        reasons = self._reasons_against(graph, after, place, [buffer for buffer, _ in uses])
        reasons |= {OVERLAP} if contradict(uses) else set()
        node = Operation(None, modelled(uses), Add(count))
        self._add(graph, after, place, node, call, reasons)
        self.after_use(*(buffer for buffer, _ in uses))

    def add_launch_of_module(self, graph, after, module, effect, buffer):
        count = min(buffer.nbytes, VARIABLE_BYTES)
        variable = (module.kept, "write") if effect is Swap else (module.fixed, "read")
        code = [(module.code, 0, 1, "shared")]
        node = Operation(None, [(buffer, "write"), variable], effect(count), code)
        args = module.kernels[effect.kind], 1, 1, buffer.real, count
        call = lambda nodes: graph.real.add_launch(*args, after=nodes)  # noqa: E731
        reasons = {MEMORY_CLOSED} if module.closed else set()
        reasons |= self._reasons_against(graph, after, module.place, (buffer,))
        self._add(graph, after, module.place, node, call, reasons)
        self.after_use(buffer)

    def add_child(self, graph, after, child):
        """Add a child graph: all nodes of another graph as one node."""
        reasons = {NO_SUCH_CHANGE} if child is graph else set()
        if child.closed:
            reasons.add(GRAPH_CLOSED)
        elif not self.is_whole(child) or not self._fits(child, graph):
            reasons.add(CAPTURED)
        node = Operation(None, [], Child())
        if not reasons:
            content = child.kept.content()
            node = Operation(None, [], Child(content.ordered, content.streams))
            node.groups, node.choice = (content.operations,), lambda: (0,)
        call = lambda nodes: graph.real.add_graph(child.real, after=nodes)  # noqa: E731
        reasons |= self._reasons_against(graph, after, child.place, ())
        if self._add(graph, after, child.place, node, call, reasons):
            child.kept.parents.append(graph.kept.root)
            graph.kept.holding.need_all(child.kept.holding)

    def _fits(self, child, graph):
        """Whether the driver can copy a graph into another one."""
        calls = graph.root is not graph and child.kept.calls()
        return not child.kept.conditions and not calls and not child.kept.has_signals()

    def _place_for(self, graph, buffer):
        return graph.place if buffer.on_host and graph.place else buffer.memory.place

    def _add(self, graph, after, place, node, call, reasons):
        """Add a node unless there are reasons to refuse it. Returns the node, or None."""
        plan = graph.kept or oracle_graphs.Plan()
        followed = [] if graph.closed else [plan.operations[index] for index in after.indices]
        answer = any_of(frozenset(reasons)) if reasons else OK
        if answer == OK:
            node.line = plan.line_after(followed)
            answer, edges, strictly = self._judge_node(plan, node)
        nodes = [] if graph.closed else after.nodes()
        try:
            self.call(f"add {node.effect.kind}", answer, lambda: call(nodes))
        except Failed:
            return None
        if answer not in (OK, WAITED):
            return None
        graph.kept, graph.place, node.domain = plan, place, place.domain
        plan.ordered = plan.ordered and strictly and getattr(node.effect, "ordered", True)
        plan.members += getattr(node.effect, "streams", ())
        self._append(graph, node, {*followed, *edges})
        return node

    def _append(self, graph, operation, followed):
        """Note a node that was added, and compare its edges."""
        plan = graph.kept
        accesses = [access for leaf in operation.leaves() for access in leaf.accesses]
        more = [access for leaf in operation.leaves() for access in leaf.more]
        operation.uses = kept(operation.uses)
        operation.after = tuple(sorted(plan.operations.index(each) for each in followed))
        nodes = graph.real.nodes
        found = [nodes.index(first) for first, second in graph.real.edges if second is nodes[-1]]
        if plan.has_boxes() and plan.all_before(found) == plan.all_before(operation.after):
            # The engine does not search the uses of boxes byte by byte, as the oracle does. So the
            # conflict that it finds first may be an earlier one.
            operation.after = tuple(found)
        for at in operation.after:
            plan.operations[at].followed = True
        plan.add(operation, [*accesses, *more], next(self.sites))
        self.agree("number of nodes", len(nodes), len(plan.operations))
        self.agree("nodes before a new one", tuple(found), operation.after)

    def _reasons_against(self, graph, after, place, buffers, between=False):
        """The reasons to refuse a node, apart from its order.

        `between` says that it is a copy between two contexts, of which `place` is one.
        """
        found = set()
        if graph.closed:
            found.add(GRAPH_CLOSED)
        elif self._is_fixed(graph):
            found.add(CAPTURED)
        if any(buffer.closed for buffer in buffers):
            found.add(MEMORY_CLOSED)
        wrong = place is not None and any(not buffer.goes_to(place) for buffer in buffers)
        wrong = wrong and not between
        if wrong or (graph.place and place and graph.place is not place):
            found.add(OTHER_CONTEXT)
        if after.wrong is not None:
            found.add(NO_SUCH_CHANGE)
        if any(graph.kept.operations[index].lends for index in after.indices):
            found.add(CAPTURED)
        return found

    def _judge_node(self, plan, operation):
        """The answer, the edges that the policies add, and whether strict would accept the node."""
        plan.thread = self.here
        found = operation.leaves()
        policies = [[self.policy_of(buffer) for buffer, _ in leaf.uses] for leaf in found]
        accesses = [access for leaf in found for access in leaf.accesses]
        flat = [policy for its in policies for policy in its]
        accesses += [access for leaf in found for access in leaf.more]
        flat += ["strict"] * (len(accesses) - len(flat))
        if plan.judge_around(accesses, flat) != OK:
            return BORROWED, [], False
        line, mirrored = operation.line, plan.mirrored(accesses)
        before = plan.judge(line, mirrored, flat).answer
        if before not in (OK, MUST_WAIT):
            return before, [], False
        waits = accesses, flat
        if operation.groups:
            waits = oracle_graphs.union(found, policies, "wait"), "wait"
        edges = plan.edges_for(line, *waits)
        if edges and (edges[-1] is None or edges[-1].lends):
            return (CAPTURED if edges[-1] else BORROWED), [], False
        strictly = plan.judge(line, mirrored, "strict").answer == OK
        strictly = strictly and plan.judge_around(accesses, "strict") == OK
        return (WAITED if before == MUST_WAIT else OK), edges, strictly

    # ---- conditions ----

    def condition(self, graph, default, place):
        """Make a condition of a graph."""
        place = graph.place or place
        answer = CAPTURED if self._is_fixed(graph) else OK
        answer = GRAPH_CLOSED if graph.closed else answer
        make = lambda: self.new(place, graph.real.condition, default)  # noqa: E731
        try:
            handle = self.call("condition", answer, make)
        except Failed:
            return None
        if answer != OK:
            return None
        graph.kept, graph.place = graph.kept or oracle_graphs.Plan(), place
        made = Condition(handle, default)
        graph.kept.conditions.append(made)
        return made

    def add_steer(self, graph, after, condition, value):
        """Add a launch of a kernel that sets a condition."""
        kernel = self.steering(graph.place)
        args = kernel, 1, 1, condition.handle, value
        call = lambda nodes: graph.real.add_launch(*args, after=nodes)  # noqa: E731
        reasons = self._reasons_against(graph, after, graph.place, ())
        node = Operation(None, [], Steer(condition, value))
        return self._add(graph, after, graph.place, node, call, reasons)

    def steering(self, place):
        """The kernel that sets a condition, in this context."""
        if ("steer", place) not in self.kernels:
            self.kernels["steer", place] = self.new(place, cu.Module, STEER)["steer"]
        return self.kernels["steer", place]

    def add_conditional(self, graph, after, kind, condition, count):
        """Add a node whose bodies run under a condition. Returns the bodies, or None."""
        reasons = self._reasons_against(graph, after, graph.place, ())
        if condition.used:
            reasons.add(NO_SUCH_CHANGE)
        made = []
        options = {} if kind == "while" else {"bodies": count}
        add = getattr(graph.real, f"add_{kind}")
        call = lambda nodes: made.extend(add(condition.handle, **options, after=nodes))  # noqa: E731
        effect = Conditional(kind, condition, count)
        node = Operation(None, [], effect, choice=effect.chosen)
        if not self._add(graph, after, graph.place, node, call, reasons):
            return None
        condition.used = True
        node.plans = tuple(oracle_graphs.Plan(graph.kept) for _ in made[1:])
        for plan in node.plans:
            plan.entry = node
        pairs = zip(made[1:], node.plans, strict=True)
        return [Body(real, graph, plan) for real, plan in pairs]

    def _is_fixed(self, graph):
        """Whether a graph cannot be changed at the moment."""
        return graph.root.busy or (graph.kept is not None and graph.kept.frozen)

    # ---- constants ----

    def constant(self, graph, array):
        """Call `Graph.constant`: it copies an array into memory of a graph during capture."""
        answer = GRAPH_CLOSED if graph.closed else OK if graph.capturing else CAPTURED
        place = graph.place or self.places[0]
        make = lambda: self.new(place, graph.real.constant, array)  # noqa: E731
        real = self.call("constant", answer, lambda: contextvars.Context().run(make))
        if answer != OK:
            return None
        memory = Memory(self.oracle.open_memory(array.nbytes, False), "locked", place)
        memory.bytes[:] = array.view("u1")
        graph.kept.holding.add(memory.model, 0, array.nbytes)
        return Buffer(real, memory, 0, array.nbytes, part=False)


class After:
    """The argument `after` of a call: indices of nodes, and perhaps a node of another graph."""

    def __init__(self, graph, indices, wrong=None):
        self.graph, self.indices, self.wrong = graph, indices, wrong

    def nodes(self):
        nodes = self.graph.real.nodes
        found = [nodes[index] for index in self.indices]
        return found if self.wrong is None else [*found, self.wrong.real.nodes[0]]
