"""The oracle of graphs: what a capture must answer, and what a launch does.

The operations of a capture have a happens-before graph of their own, which contains only the
capture. A launch is judged as if its operations were issued at that line, on streams that are
forked from the stream of the launch and joined to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from effects import Lend
from oracle import (
    BORROWED,
    MUST_WAIT,
    OK,
    YES,
    Access,
    Ambiguous,
    Domain,
    Node,
    Oracle,
    Stream,
    conflict,
    overlap,
    past,
    policies_of,
    span,
)

# The operations that can be changed, or at least enabled and disabled.
SIGNALS = ("set of a signal", "wait for a signal")
CHANGED = ("copy", "box copy", "fill", "add", "swap", "peek", "steer", "call", *SIGNALS)
FILLS_AND_COPIES = ("fill", "copy", "box fill", "box copy")


@dataclass(eq=False)
class Operation:
    """A node of a graph. `uses` are buffers and modes; `effect` changes their bytes.

    A node that runs other nodes has `groups` of these, and `choice` says which groups run.
    """

    node: Node
    uses: list
    effect: Callable
    more: tuple = ()  # accesses that belong to no buffer
    after: tuple = ()  # indices of the operations that it waits for, in the order of the waits
    line: Stream | None = None  # if it was not captured: the plan's stream for its branch
    domain: Domain | None = None  # the domain of its stream
    plans: tuple = ()  # the plans of its bodies
    groups: tuple = ()
    choice: Callable | None = None
    in_body: bool = False  # whether it is in a conditional body, so that it may not run
    followed: bool = False  # whether a node was added after it
    then: list = field(default_factory=list)  # effects of work that borrowers queue after it
    end: Node | None = None  # for a loan: the node that stands for all work queued until its end

    @property
    def accesses(self):
        return [buffer.use(mode) for buffer, mode in self.uses]

    @property
    def point(self):
        """The node that later work waits for. It also covers what the bodies contain by now."""
        return self.line.last if self.plans else self.node

    @property
    def lends(self):
        """Whether it is a loan. A loan is no node of the driver, and may read what it writes."""
        return isinstance(self.effect, Lend)

    def is_of(self, use):
        """Whether this operation made an access that the plan has recorded."""
        return use.stream is self.line if self.plans else use.node is self.node

    def frozen(self, in_body=False):
        """The copy in another graph or an executable. Nodes added later do not change it."""
        if not self.groups and not self.plans:
            return replace(self, in_body=True) if in_body else self
        inside = in_body or bool(self.plans)
        groups = self.groups or tuple(plan.operations for plan in self.plans)
        groups = tuple([each.frozen(inside) for each in group] for group in groups)
        return replace(self, groups=groups, plans=())

    def leaves(self):
        """The operations that run on the device: this one, or those in its groups."""
        if not self.groups:
            return [self]
        return [leaf for group in self.groups for each in group for leaf in each.leaves()]

    def act(self, enabled=True):
        if not self.groups and enabled:
            self.effect(*(buffer for buffer, _ in self.uses))
        for index in self.choice() if self.groups else ():
            for each in self.groups[index]:
                each.act()
        for effect in self.then:
            effect()


def leaves(operations):
    return [leaf for each in operations for leaf in each.leaves()]


@dataclass(eq=False)
class Hold:
    """Bytes that must not be closed, because a graph uses them."""

    start: int
    stop: int


@dataclass(eq=False)
class Holding:
    """The bytes that a graph or an executable holds. The last of its `users` releases them."""

    users: int = 1
    held: list = field(default_factory=list)
    needs: list = field(default_factory=list)  # pairs, as `need` has got them

    def need(self, counter, key):
        """Need an access of a device, until the bytes are released. The counter counts needs."""
        counter[key] += 1
        self.needs.append((counter, key))

    def need_all(self, other):
        for each in other.needs:
            self.need(*each)

    def add(self, memory, start, stop):
        if start < stop:
            self.held.append((memory, Hold(start, stop)))
            memory.holds.append(self.held[-1][1])

    def copied(self):
        made = Holding()
        for memory, hold in self.held:
            made.add(memory, hold.start, hold.stop)
        made.need_all(self)
        return made

    def let_go(self):
        self.users -= 1
        while self.needs and not self.users:
            counter, key = self.needs.pop()
            counter[key] -= 1
        while self.held and not self.users:
            memory, hold = self.held.pop()
            memory.holds.remove(hold)


def holding_of(operations):
    """Make a `Holding` of all bytes that operations use."""
    holding = Holding()
    for leaf in leaves(operations):
        for memory, start, stop, _ in [*leaf.accesses, *leaf.more]:
            holding.add(memory, start, stop)
    return holding


@dataclass(eq=False)
class Content:
    """The operations that a launch of an executable runs, and the bytes that it holds."""

    operations: list
    holding: Holding
    ordered: bool
    streams: tuple
    disabled: set = field(default_factory=set)
    conditions: list = field(default_factory=list)
    paired: bool = True  # whether the driver's node of each operation is known

    @property
    def enabled(self):
        return [each for each in self.operations if each not in self.disabled]

    def beside(self, operation):
        """The other operations that the edges of the graph do not order with this one.

        Some edges order more than the wait required: a wait for a token covers its whole stream.
        """
        before = []
        for each in self.operations:
            before.append({at for first in each.after for at in (first, *before[first])})
        at = self.operations.index(operation)
        return [
            each
            for other, each in enumerate(self.operations)
            if other != at and other not in before[at] and at not in before[other]
        ]

    def set(self, old, uses, effect, ordered):
        """The content after an operation's uses and effect have been replaced."""
        new = replace(old, uses=uses, effect=effect)
        operations = [new if each is old else each for each in self.operations]
        if new.accesses == old.accesses:
            holding = self.holding
            holding.users += 1
        else:
            holding = holding_of(operations)
            holding.need_all(self.holding)
        disabled = {new if each is old else each for each in self.disabled}
        ordered = self.ordered and ordered
        conditions = self.conditions, self.paired
        return Content(operations, holding, ordered, self.streams, disabled, *conditions)

    def update(self, other):
        """The content after an update, which replaces all operations by the operations of another
        graph.
        """
        disabled = {other.operations[self.operations.index(each)] for each in self.disabled}
        return replace(other, disabled=disabled, paired=self.pairs(other))

    def pairs(self, other):
        """Whether the driver's node of each operation is still known after an update."""
        kinds = {each.effect.kind for each in (*self.operations, *other.operations)}
        return self.paired and kinds <= set(CHANGED)


class Plan(Oracle):
    """The order of a graph's nodes. It contains no other work, and no views.

    The body of a conditional node has its own plan. In `outer`, the plan of the graph around
    the body, the body's operations are work on the line of the conditional node, `entry`.
    """

    def __init__(self, outer=None):
        super().__init__()
        self.domain = self.open_domain(False)
        self.alike = {}  # for each memory, its model in this plan
        self.operations = []
        self.outer, self.entry = outer, None
        self.holding = outer.holding if outer else Holding()
        self.ordered = True  # False once "unchecked" accepted what "strict" would refuse
        self.ended = False
        self.block = None  # the capture that has not ended
        self.captured = False
        self.members = []  # the streams that were captured
        self.conditions = []
        self.executables = []
        self.parents = []  # the plans of graphs to which this one was added as a child

    @property
    def root(self):
        return self.outer.root if self.outer else self

    @property
    def in_driver(self):
        """Whether the driver still has this graph. Its executables keep it alive."""
        return not self.ended or any(not each.closed for each in self.executables)

    @property
    def is_part(self):
        """Whether the driver has a copy of this graph as a child of another graph."""
        return any(plan.in_driver for plan in self.parents)

    @property
    def frozen(self):
        """Whether a node was added after a conditional node around this body."""
        return self.outer is not None and (self.entry.followed or self.outer.frozen)

    def can_be_waited_for(self, stream):
        lines = self.block.inside.values() if self.block else ()
        return stream in lines and stream.thread in (None, self.thread)

    def snapshot(self, stream, record):
        """As in `Oracle`. Marks the open loans to the stream as `loose`.

        Work after the snapshot may run before later work of the borrower.
        """
        for lent in self.block.lents if self.block and record else ():
            if self.block.inside[lent.borrower.model] is stream:
                lent.operation.effect.loose = True
        return super().snapshot(stream, record)

    def mirrored(self, accesses):
        found = []
        for memory, *access in accesses:
            if memory not in self.alike:
                self.alike[memory] = self.open_memory(memory.nbytes, False)
                self.alike[memory].like = memory
            found.append((self.alike[memory], *access))
        return found

    def line_after(self, operations):
        """Make the line (a stream of the plan) for a new node that runs after these operations."""
        line = self.open_stream(self.domain, "non_blocking")
        for each in operations:
            self.order_after(line, each.point)
        return line

    def judge_around(self, accesses, policies):
        """The answer that the plans around a body give to an operation in the body."""
        if self.outer is None:
            return OK
        found = self.outer.judge(self.entry.line, self.outer.mirrored(accesses), policies).answer
        return self.outer.judge_around(accesses, policies) if found == OK else BORROWED

    def judge_node(self, thread, line, accesses, policies):
        """The answers before and after the waits of the policies, and whether "strict" accepts."""
        self.thread = thread
        around = self.judge_around(accesses, policies)
        if around != OK:
            return around, around, False
        request = line, self.mirrored(accesses)
        before = self.judge(*request, policies).answer
        after = self.judge_and_wait(*request, policies).answer
        strictly = self.judge(*request, "strict") == YES
        return before, after, strictly and self.judge_around(accesses, "strict") == OK

    def edges_for(self, line, accesses, policies):
        """The operations that the policies order before a new node. Its line waits for them.

        Nothing can be added after a loan. If a loan conflicts, it is the last item. If the end of
        a loan conflicts, the last item is None.
        """
        found = []
        request = line, self.mirrored(accesses)
        while self.judge(*request, policies).answer == MUST_WAIT:
            known = past(*self.before(line))
            use = self._use_in_the_way(known, request[1], policies_of(policies, accesses))
            found.append(next((x for x in self.operations if x.is_of(use)), None))
            if found[-1] is None or found[-1].lends:
                break
            self.order_after(line, found[-1].point)
        return found

    def add(self, operation, accesses, site):
        """Add a node that uses these bytes, on its line."""
        for memory, start, stop, _ in accesses:
            self.holding.add(memory, start, stop)
        operation.node = self.issue_around(operation.line, accesses, site)
        self.operations.append(operation)

    def issue_around(self, line, accesses, site):
        """Record work on a line of this plan, and in all plans that contain it.

        Returns its node in this plan.
        """
        node = self.issue(line, self.mirrored(accesses), site)
        plan = self
        while plan.outer is not None:
            line, plan = plan.entry.line, plan.outer
            plan.issue(line, plan.mirrored(accesses), site)
        return node

    def has_boxes(self):
        return any(buffer.layout for each in self.operations for buffer, _ in each.uses)

    def all_before(self, indices):
        """The indices of these nodes, and of all nodes before them."""
        found = set(indices)
        for index in indices:
            found |= self.all_before(self.operations[index].after)
        return found

    def content(self):
        """The content of an executable that is instantiated now."""
        operations = [each.frozen() for each in self.operations]
        content = Content(operations, self.holding, self.is_ordered(), self.all_streams())
        content.conditions = self.all_conditions()
        return content

    def all_conditions(self):
        return [*self.conditions, *(x for plan in self.bodies() for x in plan.all_conditions())]

    def calls(self):
        """Whether a node, also of a child graph, calls a function of the host."""
        return any(each.effect.kind == "call" for each in leaves(self.operations))

    def has_signals(self):
        return any(each.effect.kind in SIGNALS for each in self.operations)

    def last_of(self, signal):
        """The last number to which the operations set a signal, or 0."""
        sets = [each.effect for each in self.operations if each.effect.kind == "set of a signal"]
        return max((each.number for each in sets if each.signal is signal), default=0)

    def set_in(self, signal, number):
        """The first operation that sets a signal to a number or more, or None."""
        return next(
            (
                each
                for each in self.operations
                if each.effect.kind == "set of a signal"
                and each.effect.signal is signal
                and each.effect.number >= number
            ),
            None,
        )

    def bodies(self):
        return [plan for each in self.operations for plan in each.plans]

    def has_empty_node(self):
        """Whether all bodies of a node are empty."""
        empty = any(
            each.plans and not any(plan.operations for plan in each.plans)
            for each in self.operations
        )
        return empty or any(plan.has_empty_node() for plan in self.bodies())

    def uses_far_memory(self, place):
        """Whether a fill or a copy uses memory of another context. Bodies cannot contain these."""
        leaves = [leaf for each in self.operations if not each.plans for leaf in each.leaves()]
        uses = [use for each in leaves if each.effect.kind in FILLS_AND_COPIES for use in each.uses]
        buffers = [buffer for buffer, _ in uses]
        far = any(buffer.memory.place_for(place) is not place for buffer in buffers)
        owners = [[b.memory.place for b, _ in each.uses if not b.on_host] for each in leaves]
        far = far or any(
            each.effect.kind in FILLS_AND_COPIES and len(set(its)) > 1
            for each, its in zip(leaves, owners, strict=True)
        )
        return far or any(plan.uses_far_memory(place) for plan in self.bodies())

    def is_ordered(self):
        return self.ordered and all(plan.is_ordered() for plan in self.bodies())

    def all_streams(self):
        return (*self.members, *(x for plan in self.bodies() for x in plan.all_streams()))


class Capture:
    """A capture and the streams that are a part of it. It may have ended."""

    def __init__(self, origin, plan, after=()):
        self.plan, plan.block, plan.captured = plan, self, True
        self.inside = {}  # for each captured stream, its model in the plan
        self.first = len(plan.operations)
        self.lents = []  # the open loans in it
        self.calls = []  # nodes of the work that borrowers queued in loans
        # For each wait for a token, two nodes: the wait, and the node that was then the last one of
        # the token's stream. The driver's wait covers all work of that stream.
        self.covers = []
        self.joined = False  # whether another library makes this capture
        self.ended = False
        self.origin = origin
        self.join(origin)
        for each in after:
            plan.order_after(self.inside[origin], each.point)

    @property
    def takes_calls(self):
        """Whether functions of the host can be called in the capture."""
        return not self.joined and self.plan.outer is None

    def join(self, stream):
        """Make a stream a part of the capture."""
        stream.capture = self
        if stream not in self.inside:
            plan = self.plan
            self.inside[stream] = plan.open_stream(plan.domain, "non_blocking", stream.thread)
            plan.members.append(stream)

    def point(self, stream, record):
        """The node of an event on a stream, or of the token of an operation without bytes."""
        return self.plan.snapshot(self.inside[stream], record)

    def wait_inside(self, stream, point):
        """Let a stream wait for a point of the capture. The wait makes it a part of the capture."""
        self.join(stream)
        self.plan.wait(self.inside[stream], point)

    def judge_operation(self, thread, stream, accesses, policies):
        return self.plan.judge_node(thread, self.inside[stream], accesses, policies)

    def add(self, stream, uses, effect, more, site):
        """Capture an operation. `more` are accesses that belong to no buffer."""
        operation = Operation(None, uses, effect, more, domain=stream.domain)
        operation.line = self.inside[stream]
        self.plan.add(operation, [*operation.accesses, *more], site)
        operation.line = None
        return operation.node

    def lend(self, stream, access):
        """Lend bytes for the operation that was captured last. Returns the view of the loan."""
        (memory, *bytes_), *_ = self.plan.mirrored([access])
        return self.plan.export(memory, *bytes_, 0, self.inside[stream])

    def end_loan(self, operation, stream, access, view, site):
        """End a loan. Its end stands for all work that was queued on the stream until now."""
        operation.end = self.plan.issue_around(self.inside[stream], [access], site)
        self.plan.close_export(self.plan.mirrored([access])[0][0], view)

    def call(self, stream):
        """Record that another library queues an operation in a loan."""
        line = self.inside[stream]
        line.last = Node(line.last)
        self.calls.append(line.last)

    def cover(self, stream, other):
        """Record a wait for a token of `other`. In the driver, it covers all work of `other`."""
        self.covers.append((self.inside[stream].last, self.inside[other].last))

    def calls_are_joined(self):
        """Whether the driver's capture joins what other libraries queued in loans."""
        known = past(self.inside[self.origin].last)
        covers = list(self.covers)
        while found := [each for each in covers if each[0] in known]:
            covers = [each for each in covers if each not in found]
            known = known.union(*(past(last) for _, last in found))
        return known.issuperset(self.calls)

    def is_joined(self):
        """Whether the stream that was captured first is ordered after all operations."""
        known = past(self.inside[self.origin].last)
        found = self.plan.operations[self.first :]
        nodes = [node for each in found for node in (each.node, each.end) if node]
        return known.issuperset(nodes)

    def breaks_graph(self):
        """Whether the driver destroys the graph at the end, because of work that is not joined.

        None if that is not known: only the other library knows on which streams a loan's work is.
        """
        known = past(self.inside[self.origin].last)
        found = self.plan.operations[self.first :]
        if any(each.node not in known for each in found if not each.lends):
            return True
        if self.is_joined() and not self.calls_are_joined():
            return True
        loans = [each for each in found if each.lends and each.effect.calls]
        return False if known.issuperset(each.end for each in loans) else None

    def end(self):
        self.ended, self.plan.block = True, None
        for stream in self.inside:
            stream.capture = None


class GraphOracle(Oracle):
    """The oracle of a program that may launch graphs."""

    def judge_change(self, content, operation, uses, policies):
        """The answer to new uses of an executable's operation, and whether "strict" accepts them.

        New uses can conflict only with operations that the graph does not order with this one. Old
        uses are not checked again.
        """
        accesses = [buffer.use(mode) for buffer, mode in uses]
        conflicts = {
            policy
            for (memory, *access), policy in zip(accesses, policies, strict=True)
            for other in content.beside(operation)
            for its_memory, *its in (access for leaf in other.leaves() for access in leaf.accesses)
            if memory is its_memory and meet(Access(None, *access, 0), Access(None, *its, 0))
        }
        if accesses == operation.accesses or not conflicts:
            return OK, True
        return (OK if conflicts == {"unchecked"} else BORROWED), False

    def judge_launch(self, stream, operations, policies, last):
        """The answers to a launch of operations, with the policies of the uses of each.

        There are several if operations are refused for several reasons. All operations are ordered
        after the launch `last`. Bytes that an operation writes no longer count as discarded for the
        operations that were captured after it.
        """
        if (usable := self.judge_stream(stream)) != YES:
            return frozenset({usable.answer})
        known = past(*self.before(stream), last)
        former = [(memory, memory.discarded.copy()) for memory in self.memories]
        answers = []
        for operation, its in zip(operations, policies, strict=True):
            for (memory, *access), policy in zip(operation.accesses, its, strict=True):
                if access[0] != access[1]:  # even closed memory is allowed for an empty range
                    use = Access(None, *access, 0)
                    # If it does not run, later work sees the old contents of its targets.
                    lends = operation.in_body or operation.lends
                    reasons = self._reasons(stream, known, memory, use, policy, lends)
                    answers += [reason for reason in reasons if reason]
            for memory, *access in operation.accesses:
                self.change(memory, *access, 0)
        for memory, discarded in former:
            memory.discarded = discarded
        refusals = {each.answer for each in answers} - {OK, MUST_WAIT}
        return frozenset(refusals or {self._sum(stream, answers).answer})

    def judge_launch_and_wait(self, stream, operations, policies, last):
        """Judge like `judge_launch`, after the waits that the policies insert."""
        before = self.order()
        request = (stream, operations, policies, last)
        while (answers := self.judge_launch(*request)) == {MUST_WAIT}:
            known = past(*self.before(stream), last)
            waiting = union(operations, policies, "wait")
            with self.restored_after(Ambiguous, before):
                other = self._in_the_way(known, waiting, ["wait"] * len(waiting))
            if not self.can_be_waited_for(other):
                return frozenset({self._back_to(before, other).answer})
            self.order_after(stream, self._work_of(other))
        return answers

    def launch(self, stream, operations, last, site):
        """Issue the operations on forks of a stream, and join the forks. Returns the join."""
        join = self._run(stream, operations, Node(*self.before(stream), last), site)
        stream.last_operation = self.use(stream, join)
        stream.last_site = site
        return join

    def _run(self, stream, operations, fork, site):
        ends = {}
        for operation in operations:
            inside = past(operation.node)
            end = Node(fork, *(end for other, end in ends.items() if other.node in inside))
            for memory, *access in operation.accesses:
                self.change(memory, *access, site)
            self._borrow(stream, operation.accesses, site, end)
            if operation.groups:
                end = Node(end, *(self._run(stream, x, end, site) for x in operation.groups))
            ends[operation] = end
        return Node(fork, *ends.values())


def meet(access, other):
    return overlap(access, other) and conflict(access.mode, other.mode)


def union(operations, policies, policy):
    """The bytes that are used under one policy, as ranges of bytes with the same mode.

    The memories are in the order of their first uses. A range contains either bytes whose old
    contents the graph needs, or bytes that the graph writes before it reads them.
    """
    bytes_, needed, written = {}, set(), set()
    for operation, its in zip(operations, policies, strict=True):
        pairs = list(zip(operation.accesses, its, strict=True))
        pairs.sort(key=lambda pair: pair[0][3] != "read")
        for (memory, start, stop, mode), one in pairs:
            for byte in span(start, stop):
                needs = mode == "read" or operation.in_body or operation.lends
                if needs and (memory, byte) not in written:
                    needed.add((memory, byte))
                if mode != "read":
                    written.add((memory, byte))
                used = bytes_.setdefault(memory, {}).setdefault(byte, set())
                if one == policy:
                    used.add(mode)
    found, last = [], None
    for memory, used in bytes_.items():
        for byte in sorted(byte for byte in used if used[byte]):
            mode = together(used[byte])
            like = (memory, byte, mode, (memory, byte) in needed)
            if like == last:
                found[-1] = (memory, found[-1][1], byte + 1, mode)
            else:
                found.append((memory, byte, byte + 1, mode))
            last = (memory, byte + 1, *like[2:])
    return found


def together(modes):
    """The combined mode of several uses of a byte."""
    if "write" in modes or {"read", "reach"} <= modes:
        return "write"
    return min(modes, key=("read", "reach", "shared").index)
