"""The oracle of graphs: what a capture must answer, and what a launch does.

The operations of a capture have a happens-before graph of their own, in which nothing but the
capture is. A launch is judged as if its operations were issued at that line, on streams that are
forked from the stream of the launch and joined to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from oracle import BORROWED, MUST_WAIT, OK, YES, Access, Node, Oracle, conflict, overlap, past


@dataclass(eq=False)
class Operation:
    """An operation of a graph. `uses` are buffers and modes; `effect` changes their bytes."""

    node: Node
    uses: list
    effect: Callable
    more: tuple = ()  # accesses of no buffer
    after: tuple = ()  # those that it follows at once, by their indices and in the order of waits

    @property
    def accesses(self):
        return [buffer.use(mode) for buffer, mode in self.uses]

    def act(self):
        self.effect(*(buffer for buffer, _ in self.uses))


@dataclass(eq=False)
class Hold:
    """Bytes that a graph uses, which must not be closed."""

    start: int
    stop: int


@dataclass(eq=False)
class Holding:
    """What a graph and its executables hold together, until the last of them ends."""

    users: int = 1
    held: list = field(default_factory=list)

    def add(self, memory, start, stop):
        if start < stop:
            self.held.append((memory, Hold(start, stop)))
            memory.holds.append(self.held[-1][1])

    def let_go(self):
        self.users -= 1
        while self.held and not self.users:
            memory, hold = self.held.pop()
            memory.holds.remove(hold)


@dataclass(eq=False)
class Content:
    """What an executable does at a launch, and what it keeps."""

    operations: list
    holding: Holding
    ordered: bool
    streams: tuple
    disabled: set = field(default_factory=set)

    @property
    def enabled(self):
        return [each for each in self.operations if each not in self.disabled]

    def beside(self, operation):
        """The other operations that the edges of the graph do not order with this one.

        Some edges order more than a wait asks for: a wait for a token waits for its whole stream.
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
        """What it is when an operation has other uses and another effect."""
        new = replace(old, uses=uses, effect=effect)
        operations = [new if each is old else each for each in self.operations]
        holding = Holding()
        for each in operations:
            for memory, start, stop, _ in [*each.accesses, *each.more]:
                holding.add(memory, start, stop)
        disabled = {new if each is old else each for each in self.disabled}
        return Content(operations, holding, self.ordered and ordered, self.streams, disabled)

    def update(self, other):
        """What it is when it takes over all operations of another graph."""
        disabled = {other.operations[self.operations.index(each)] for each in self.disabled}
        return replace(other, disabled=disabled)


class Capture(Oracle):
    """The order inside a capture. It knows no other work, no views, and no other captures."""

    def __init__(self, origin):
        super().__init__()
        self.domain = self.open_domain(False)
        self.inside = {}  # what stands here for streams
        self.alike = {}  # and for memory
        self.operations = []
        self.holding = Holding()
        self.ordered = True  # False once "unchecked" let something pass that strict would refuse
        self.ended = False
        self.origin = origin
        self.join(origin)

    def join(self, stream):
        """Make a stream a part of the capture."""
        stream.capture = self
        if stream not in self.inside:
            self.inside[stream] = self.open_stream(self.domain, "non_blocking", stream.thread)

    def point(self, stream, record):
        """What an event on a stream, or a token of an operation of no bytes, stands for."""
        return self.snapshot(self.inside[stream], record)

    def wait_inside(self, stream, point):
        """A stream, which may join by this, waits for a point of the capture."""
        self.join(stream)
        self.wait(self.inside[stream], point)

    def mirrored(self, accesses):
        found = []
        for memory, *access in accesses:
            if memory not in self.alike:
                self.alike[memory] = self.open_memory(memory.nbytes, False)
            found.append((self.alike[memory], *access))
        return found

    def judge_operation(self, thread, stream, accesses, policies):
        """The answers before and after the waits of the policies, and whether strict has it."""
        self.thread = thread
        request = self.inside[stream], self.mirrored(accesses)
        before = self.judge(*request, policies)
        after = self.judge_and_wait(*request, policies)
        return before.answer, after.answer, self.judge(*request, "strict") == YES

    def add(self, stream, uses, effect, more, site):
        """Capture an operation. `more` are accesses of no buffer."""
        accesses = [*(buffer.use(mode) for buffer, mode in uses), *more]
        for memory, start, stop, _ in accesses:
            self.holding.add(memory, start, stop)
        node = self.issue(self.inside[stream], self.mirrored(accesses), site)
        self.operations.append(Operation(node, uses, effect, more))
        return node

    def is_joined(self):
        """Whether the stream that was captured first is ordered after all operations."""
        known = past(self.inside[self.origin].last)
        return all(operation.node in known for operation in self.operations)

    def content(self):
        """What is instantiated now."""
        streams = tuple(self.inside)
        return Content(list(self.operations), self.holding, self.ordered, streams)

    def end(self):
        self.ended = True
        for stream in self.inside:
            stream.capture = None


class GraphOracle(Oracle):
    """The oracle of a program that may launch graphs."""

    def judge_change(self, content, operation, uses, policies):
        """The answer to other uses of an operation of an executable, and whether strict has it.

        An operation in the graph orders nothing with those beside it. Uses that stay are not asked.
        """
        accesses = [buffer.use(mode) for buffer, mode in uses]
        conflicts = {
            policy
            for (memory, *access), policy in zip(accesses, policies, strict=True)
            for other in content.beside(operation)
            for its_memory, *its in other.accesses
            if memory is its_memory and meet(Access(None, *access, 0), Access(None, *its, 0))
        }
        if accesses == operation.accesses or not conflicts:
            return OK, True
        return (OK if conflicts == {"unchecked"} else BORROWED), False

    def judge_launch(self, stream, operations, policies, last):
        """The answers to a launch of operations, with the policies of the uses of each.

        There are several if operations are refused for several reasons. All operations are ordered
        after the launch `last`. What an operation writes is no longer discarded for those that
        were captured after it.
        """
        if (usable := self.judge_stream(stream)) != YES:
            return frozenset({usable.answer})
        known = past(*self.before(stream), last)
        former = [(memory, memory.discarded.copy()) for memory in self.memories]
        answers = []
        for operation, its in zip(operations, policies, strict=True):
            for (memory, *access), policy in zip(operation.accesses, its, strict=True):
                if access[0] != access[1]:  # otherwise the memory may even be closed
                    use = Access(None, *access, 0)
                    reasons = self._reasons(stream, known, memory, use, policy)
                    answers += [reason for reason in reasons if reason]
            for memory, *access in operation.accesses:
                self.change(memory, *access, 0)
        for memory, discarded in former:
            memory.discarded = discarded
        refusals = {each.answer for each in answers} - {OK, MUST_WAIT}
        return frozenset(refusals or {self._sum(stream, answers).answer})

    def judge_launch_and_wait(self, stream, operations, policies, last):
        """As `judge_launch`, after the waits that the policies insert."""
        before = self.order()
        request = (stream, operations, policies, last)
        while (answers := self.judge_launch(*request)) == {MUST_WAIT}:
            known = past(*self.before(stream), last)
            waiting = union(operations, policies, "wait")
            other = self._in_the_way(known, waiting, ["wait"] * len(waiting))
            if not self.can_be_waited_for(other):
                return frozenset({self._back_to(before, other).answer})
            self.order_after(stream, self._work_of(other))
        return answers

    def launch(self, stream, operations, last, site):
        """Issue the operations on forks of a stream, and join these. Returns the join."""
        fork = Node(*self.before(stream), last)
        ends = {}
        for operation in operations:
            inside = past(operation.node)
            ends[operation] = Node(
                fork, *(end for other, end in ends.items() if other.node in inside)
            )
        join = Node(fork, *ends.values())
        for operation, end in ends.items():
            for memory, *access in operation.accesses:
                self.change(memory, *access, site)
            self._borrow(stream, operation.accesses, site, end)
        stream.last_operation = self.use(stream, join)
        stream.last_site = site
        return join


def meet(access, other):
    return overlap(access, other) and conflict(access.mode, other.mode)


def union(operations, policies, policy):
    """What the uses of one policy use together: ranges of bytes that are used alike.

    They are in the order in which the operations used the memory first. Bytes that the graph
    needs are apart from those that it writes before it reads them.
    """
    bytes_, needed, written = {}, set(), set()
    for operation, its in zip(operations, policies, strict=True):
        pairs = list(zip(operation.accesses, its, strict=True))
        pairs.sort(key=lambda pair: pair[0][3] != "read")
        for (memory, start, stop, mode), one in pairs:
            for byte in range(start, stop):
                if mode != "read":
                    written.add((memory, byte))
                elif (memory, byte) not in written:
                    needed.add((memory, byte))
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
    """The mode of several uses of a byte."""
    if "write" in modes or {"read", "reach"} <= modes:
        return "write"
    return min(modes, key=("read", "reach", "shared").index)
