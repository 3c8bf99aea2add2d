"""What the ownership engine must answer, found in the slowest and plainest way.

Everything that a program does is a node of a graph, an edge leads to what is known to happen before
it, and "is this ordered after that?" is a search. There are no clocks, and nothing is ever
forgotten: each memory keeps all accesses that it ever saw.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

OK, BORROWED, EXPORTED, MUST_WAIT = "ok", "borrowed", "exported", "must_wait"
MEMORY_CLOSED, STREAM_CLOSED = "memory_closed", "stream_closed"
NOBODY = frozenset()


class Answer(NamedTuple):
    """What to answer, and the sites of which any one may be blamed."""

    answer: str
    blamed: frozenset = NOBODY


YES = Answer(OK)


class Node:
    """Something that happened on a stream or on the host."""

    __slots__ = ("before",)

    def __init__(self, *before):
        self.before = [node for node in before if node is not None]


@dataclass(eq=False)
class Domain:
    host_excluded: bool = False
    streams: list = field(default_factory=list)


@dataclass(eq=False)
class Stream:
    domain: Domain
    kind: str
    last: Node | None = None  # of its operations, records and waits
    last_operation: Node | None = None
    last_site: int = 0
    open: bool = True


@dataclass(eq=False)
class Access:
    node: Node
    start: int
    stop: int
    mode: str
    site: int


@dataclass(eq=False)
class View:
    start: int
    stop: int
    mode: str
    site: int


@dataclass(eq=False)
class Memory:
    nbytes: int
    managed: bool = False
    accesses: list = field(default_factory=list)
    views: list = field(default_factory=list)
    closed: bool = False


def overlap(a, b):
    """Whether they have a byte in common; no bytes have none, wherever they are."""
    return max(a.start, b.start) < min(a.stop, b.stop)


def conflict(mode, other):
    """Whether uses in these two modes must be ordered."""
    return "shared" not in (mode, other) and "write" in (mode, other)


def past(*nodes):
    """All that is known to happen before something with these predecessors."""
    seen = set()
    todo = [node for node in nodes if node is not None]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(node.before)
    return seen


class Oracle:
    def __init__(self):
        self.host = Node()
        self.domains = []
        self.memories = []

    def open_domain(self, host_excluded):
        self.domains.append(Domain(host_excluded))
        return self.domains[-1]

    def open_stream(self, domain, kind):
        stream = Stream(domain, kind)
        domain.streams.append(stream)
        return stream

    def open_memory(self, nbytes, managed):
        self.memories.append(Memory(nbytes, managed))
        return self.memories[-1]

    # ---- order ----

    def before(self, stream):
        """What a stream's next work comes after. What the host knows holds for all streams."""
        nodes = [self.host, stream.last]
        others = {"legacy": ("blocking",), "blocking": ("legacy",)}.get(stream.kind, ())
        # A destroyed stream is not one of the blocking streams "that exist at that call".
        nodes += [x.last for x in stream.domain.streams if x.open and x.kind in others]
        return nodes

    def snapshot(self, stream, record):
        """Nodes never change: what an event holds stays as it was at that call."""
        if record:
            stream.last = Node(*self.before(stream))
        return stream.last or Node()

    def wait(self, stream, snapshot):
        stream.last = Node(*self.before(stream), snapshot)

    def synchronize(self, snapshot):
        self.host = Node(self.host, snapshot)

    def close_stream(self, stream):
        """Orders nothing; what is unfinished stays in the memories' accesses."""
        stream.open = False

    # ---- operations ----

    def judge(self, stream, accesses, policy):
        if not stream.open:
            return Answer(STREAM_CLOSED)
        known = past(*self.before(stream))
        answers = [self._judge_access(known, *access, policy) for access in accesses]
        # What cannot be waited for is refused before anything is waited for.
        for answer in answers:
            if answer.answer not in (OK, MUST_WAIT):
                return answer
        if stream.domain.host_excluded:
            views = [v for m in self.memories if m.managed for v in m.views if v.start < v.stop]
            if views:
                return Answer(EXPORTED, frozenset(view.site for view in views))
        waits = frozenset().union(*(answer.blamed for answer in answers))
        return Answer(MUST_WAIT, waits) if waits else YES

    def _judge_access(self, known, memory, start, stop, mode, policy):
        if memory.closed:
            return Answer(MEMORY_CLOSED)
        if start == stop:
            return YES
        access = Access(None, start, stop, mode, 0)
        views = [v for v in memory.views if overlap(v, access) and conflict(v.mode, mode)]
        if views:
            return Answer(EXPORTED, frozenset(view.site for view in views))
        return self._judge_order(known, memory, access, policy)

    def _judge_order(self, known, memory, access, policy):
        if policy == "unchecked":
            return YES
        sites = frozenset(
            other.site
            for other in memory.accesses
            if overlap(other, access)
            and conflict(other.mode, access.mode)
            and other.node not in known
        )
        return Answer(MUST_WAIT if policy == "wait" else BORROWED, sites) if sites else YES

    def issue(self, stream, accesses, site):
        """An accepted operation; gives what its token stands for."""
        return self._borrow(stream, accesses, site, Node(*self.before(stream)))

    def fail(self, stream, kept, site):
        """The driver refused it, and these of its accesses stay borrowed as if it were queued.

        It has waited for nothing: it is in its stream's order, and no default stream's.
        """
        if kept:
            self._borrow(stream, kept, site, Node(self.host, stream.last))

    def _borrow(self, stream, accesses, site, node):
        stream.last = stream.last_operation = node
        stream.last_site = site
        for memory, start, stop, mode in accesses:
            if start < stop:
                memory.accesses.append(Access(node, start, stop, mode, site))
        return node

    # ---- the host ----

    def judge_export(self, memory, start, stop, mode, policy):
        """The host is one user: its own views are not in its way."""
        if memory.closed:
            return Answer(MEMORY_CLOSED)
        if start == stop:
            return YES
        access = Access(None, start, stop, mode, 0)
        answer = self._judge_order(past(self.host), memory, access, policy)
        if answer == YES and memory.managed and policy != "unchecked":
            sites = frozenset(
                stream.last_site
                for domain in self.domains
                if domain.host_excluded
                for stream in domain.streams
                if not self.stream_known(stream)
            )
            if sites:
                return Answer(MUST_WAIT if policy == "wait" else BORROWED, sites)
        return answer

    def export(self, memory, start, stop, mode, site):
        view = View(start, stop, mode, site)
        memory.views.append(view)
        return view

    def close_export(self, memory, view):
        memory.views.remove(view)

    def close_memory(self, memory):
        if memory.closed:
            return MEMORY_CLOSED
        if memory.views:
            return EXPORTED
        if self.borrowed_bytes(memory):
            return BORROWED
        memory.closed = True
        return OK

    def stream_known(self, stream):
        return stream.last_operation is None or stream.last_operation in past(self.host)

    def borrowed_bytes(self, memory):
        """The bytes of which the host does not know that no operation uses them any more."""
        known = past(self.host)
        found = set()
        for access in memory.accesses:
            if access.node not in known:
                found.update(range(access.start, access.stop))
        return found
