"""The oracle: what the ownership engine must answer, computed in the simplest way.

Everything that a program does is a node of a graph. The edges of a node lead to the nodes
that are known to happen before it, and "is this ordered after that?" is a search. There are no
clocks, and nothing is dropped: each memory keeps all accesses that it ever had.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

OK, BORROWED, EXPORTED, MUST_WAIT = "ok", "borrowed", "exported", "must_wait"
MEMORY_CLOSED, STREAM_CLOSED = "memory_closed", "stream_closed"
DISCARDED, ATTACHED = "discarded", "attached"
EVENT_CLOSED, NOT_RECORDED = "event_closed", "not_recorded"
OTHER_THREAD = "other_thread"
CAPTURED, HELD = "captured", "held"
NOBODY = frozenset()
# For each mode that does more than read or write, the mode that determines the order of its uses.
AS = {"discard": "write", "attach": "write", "share": "write", "move": "shared", "to": "write"}
# Uses of these modes conflict with every view, even with views of their own stream.
FINAL = ("close", "discard", "attach", "share")
HOST = "host"


class Answer(NamedTuple):
    """An answer, and the sites of the conflicting uses. The engine may blame any of them."""

    answer: str
    blamed: frozenset = NOBODY


YES = Answer(OK)


class Ambiguous(Exception):
    """It is not defined for which of several streams a policy lets a request wait first.

    Each answer is correct, but the wait also orders the other work of that stream.
    """


class BoxStop(int):
    """The end of a box: the number of the byte after its last one. Knows all bytes of the box."""

    def __new__(cls, start, width, pitch, rows, slice=0, slices=1):
        stop = super().__new__(cls, start + (slices - 1) * slice + (rows - 1) * pitch + width)
        stop.box = (width, pitch, rows, slice, slices)
        stop.bytes = frozenset(
            start + z * slice + y * pitch + x
            for z in range(slices)
            for y in range(rows)
            for x in range(width)
        )
        return stop

    @classmethod
    def of(cls, bytes_):
        """The end of some bytes, which are given one by one."""
        stop = int.__new__(cls, max(bytes_) + 1)
        stop.box, stop.bytes = None, frozenset(bytes_)
        return stop

    def __repr__(self):
        return f"{int(self)} {self.box or sorted(self.bytes)}"


def span(start, stop):
    """The bytes between two numbers, or the bytes of a box."""
    return stop.bytes if isinstance(stop, BoxStop) else range(start, stop)


class Node:
    """Something that happens on a stream or on the host, and the nodes known to be before it."""

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
    last: Node | None = None  # the last operation, record or wait
    last_use: Node | None = None  # the last non-passive operation, record or wait
    last_operation: Node | None = None
    last_site: int = 0
    open: bool = True
    thread: object = None  # for a thread's default stream: the only thread that can use it
    capture: object = None  # the capture that the stream is a part of

    @property
    def in_capture(self):
        """Whether the stream cannot run work now, because it is captured.

        The legacy stream cannot run work while any blocking stream of its context is captured.
        """
        if self.kind != "legacy":
            return self.capture is not None
        return any(each.capture and each.kind == "blocking" for each in self.domain.streams)


@dataclass(eq=False)
class Event:
    """An event. A record replaces the snapshot, but earlier waits keep the old snapshot."""

    snapshot: Node | None = None
    open: bool = True
    point: tuple | None = None  # if the last record was captured: the capture, and its node


@dataclass(eq=False)
class Access:
    node: Node | None
    start: int
    stop: int
    mode: str
    site: int
    stream: Stream | None = None
    returns: bool = False  # whether the access gives bytes back to another library


@dataclass(eq=False)
class View:
    """A view of the host, or a loan to a stream."""

    start: int
    stop: int
    mode: str
    site: int
    user: Stream | None = None  # None: the host
    keeps: bool = False  # a loan that was taken back: conflicts only with FINAL uses
    of: object = None  # the buffer's memory, if several share these records

    @property
    def excludes(self):
        """Whether the view excludes all work in contexts where host and work exclude each other."""
        return self.user is None and self.start < self.stop


@dataclass(eq=False)
class Memory:
    nbytes: int
    managed: bool = False
    accesses: list = field(default_factory=list)
    views: list = field(default_factory=list)
    closed: bool = False
    discarded: dict = field(default_factory=dict)  # discarded bytes, with the sites of the discards
    # Who may use the memory on a device where work excludes the host: None for all, a stream, or
    # HOST for no stream.
    attached: object = None
    attached_at: int = 0
    holds: list = field(default_factory=list)  # ranges that graphs use
    end: int | None = None  # the bytes from here on are gone; None: memory that never shrinks
    boxed: bool = False  # whether boxes of it are used
    like: "Memory | None" = None  # the memory for which this one stands in a plan of a graph


def overlap(a, b):
    """Whether two ranges have a byte in common. An empty range overlaps nothing."""
    near = max(a.start, b.start) < min(a.stop, b.stop)
    if near and (isinstance(a.stop, BoxStop) or isinstance(b.stop, BoxStop)):
        return not frozenset(span(a.start, a.stop)).isdisjoint(span(b.start, b.stop))
    return near


def conflict(mode, other):
    """Whether uses in these two modes must be ordered. A close is ordered after all others."""
    pair = {AS.get(mode, mode), AS.get(other, other)}
    if pair & {"close", "leave"}:
        return True
    return "shared" not in pair and ("write" in pair or pair == {"read", "reach"})


def past(*nodes):
    """These nodes and everything known to happen before them."""
    seen = set()
    todo = [node for node in nodes if node is not None]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(node.before)
    return seen


def meets(use, start, stop, mode):
    """Whether an access in this mode must be ordered after a use."""
    return overlap(use, Access(None, start, stop, mode, 0)) and conflict(use.mode, mode)


def policies_of(policy, accesses):
    return [policy] * len(accesses) if isinstance(policy, str) else policy


def uses_of_byte(memory, byte):
    """The uses of a byte that a wait must cover. A later use stands for the uses before it."""
    uses = [use for use in memory.accesses if byte in span(use.start, use.stop)]
    return [
        use
        for at, use in enumerate(uses)
        if not any(
            later.mode in ("write", use.mode) and use.node in past(later.node)
            for later in uses[at + 1 :]
        )
    ]


class Oracle:
    def __init__(self):
        self.host = Node()
        self.thread = None  # the thread that makes the next call
        self.domains = []
        self.memories = []

    def open_domain(self, host_excluded):
        self.domains.append(Domain(host_excluded))
        return self.domains[-1]

    def open_stream(self, domain, kind, thread=None):
        stream = Stream(domain, kind, thread=thread)
        domain.streams.append(stream)
        return stream

    def open_memory(self, nbytes, managed):
        self.memories.append(Memory(nbytes, managed))
        return self.memories[-1]

    # ---- order ----

    def before(self, stream, passive=False):
        """The nodes that a stream's next work is ordered after.

        The rules of the default streams hold only for work that the driver queues. `passive` work
        may not be queued, so the rules order it neither before nor after work of other streams.
        """
        nodes = [self.host, stream.last]
        if passive:
            return nodes
        others = {"legacy": ("blocking",), "blocking": ("legacy",)}.get(stream.kind, ())
        # Closed streams do not count: the rules are about blocking streams that exist at the call.
        nodes += [x.last_use for x in stream.domain.streams if x.open and x.kind in others]
        return nodes

    def use(self, stream, node):
        """Add work to a stream. The rules of the default streams hold for this work."""
        stream.last = stream.last_use = node
        return node

    def snapshot(self, stream, record):
        """The node that stands for a stream's work so far. Nodes never change."""
        if record:
            self.use(stream, Node(*self.before(stream)))
        return stream.last or Node()

    def wait(self, stream, snapshot):
        self.order_after(stream, snapshot)

    def order_after(self, stream, snapshot):  # separate from `wait`, which a test disables
        self.use(stream, Node(*self.before(stream), snapshot))

    def synchronize(self, snapshot):
        self.host = Node(self.host, snapshot)

    def synchronize_domain(self, domain):
        """The host waits for all streams of a context, including closed ones."""
        self.host = Node(self.host, *(stream.last for stream in domain.streams))

    def lends_to(self, stream):
        """Whether anything is lent to a stream, so that it cannot be closed."""
        return any(view.user is stream for memory in self.memories for view in memory.views)

    def close_stream(self, stream):
        """Close a stream. Orders nothing, and unfinished uses stay recorded."""
        stream.open = False

    def judge_event(self, event):
        """Whether an event can be waited for."""
        if not event.open:
            return Answer(EVENT_CLOSED)
        if event.point:
            return Answer(CAPTURED)
        return YES if event.snapshot else Answer(NOT_RECORDED)

    def known(self, node):
        """Whether the host knows that a node is complete."""
        return node in past(self.host)

    def judge_stream(self, stream):
        """Whether a stream can be used."""
        if not stream.open:
            return Answer(STREAM_CLOSED)
        return YES if stream.thread in (None, self.thread) else Answer(OTHER_THREAD)

    def can_be_waited_for(self, stream):
        """Whether a stream can be waited for: its event exists, or can be recorded.

        A stream records its last event when it is closed. The default stream of a thread records no
        event when the thread ends, and only this thread can record one before. In a capture, an
        event stands for no real work.
        """
        if stream.in_capture:
            return False
        return stream.thread is None or (stream.open and stream.thread is self.thread)

    # ---- operations ----

    def judge(self, stream, accesses, policy, passive=False, lends=False):
        """The answer to an operation. `policy` is one for all accesses, or a list.

        An operation that `lends` may read what it writes.
        """
        if (usable := self.judge_stream(stream)) != YES:
            return usable
        known = past(*self.before(stream, passive))
        policies = policies_of(policy, accesses)
        answers = [
            self._judge_access(stream, known, *access, one, lends)
            for access, one in zip(accesses, policies, strict=True)
        ]
        return self._sum(stream, answers)

    def _sum(self, stream, answers):
        """The answer to an operation, computed from the answers to its accesses."""
        # A refusal that no wait can prevent comes before all waits.
        for answer in answers:
            if answer.answer not in (OK, MUST_WAIT):
                return answer
        if stream.domain.host_excluded:
            used = [m for m in self.memories if m.managed and self.may_use(m, stream)]
            views = [view for memory in used for view in memory.views if view.excludes]
            if views:
                return Answer(EXPORTED, frozenset(view.site for view in views))
        waits = frozenset().union(*(answer.blamed for answer in answers))
        return Answer(MUST_WAIT, waits) if waits else YES

    def _judge_access(self, stream, known, memory, start, stop, mode, policy, lends):
        if memory.closed:
            return Answer(MEMORY_CLOSED)
        if start == stop:
            return YES
        access = Access(None, start, stop, mode, 0)
        return next(filter(None, self._reasons(stream, known, memory, access, policy, lends)), YES)

    def _reasons(self, stream, known, memory, access, policy, lends=False):
        """Yield each rule's answer to an access. None and YES mean that the rule accepts it."""
        yield self._judge_attachment(memory, stream, access.mode)
        yield self._judge_contents(memory, access, lends)
        yield self._judge_views(memory, access, stream)
        yield self._judge_holds(memory, access)
        yield self._judge_order(known, memory, access, policy)

    def may_use(self, memory, stream):
        """Whether an attachment lets a stream use memory where work excludes the host."""
        only = memory.attached
        if only in (None, HOST):
            return only is None
        return only is stream or not (only.open or not self.stream_known(only))

    def _judge_attachment(self, memory, stream, mode):
        if not stream.domain.host_excluded or mode in (*FINAL, "leave"):
            return None
        refused = not self.may_use(memory, stream)
        return Answer(ATTACHED, frozenset({memory.attached_at})) if refused else None

    def _judge_contents(self, memory, access, lends=False):
        """Refuse to read what was discarded and not written since."""
        if access.mode != "read" and not lends:
            return None
        sites = frozenset(
            site
            for byte, site in memory.discarded.items()
            if byte in span(access.start, access.stop)
        )
        return Answer(DISCARDED, sites) if sites else None

    def change(self, memory, start, stop, mode, site):
        """Record what an access does to contents. Each mode that may write writes all bytes."""
        if mode == "discard":
            memory.discarded.update(dict.fromkeys(span(start, stop), site))
        elif mode in ("write", "shared", "reach", "share"):
            for byte in span(start, stop):
                memory.discarded.pop(byte, None)

    def attach(self, memory, to, site):
        memory.attached, memory.attached_at = to, site

    def _judge_views(self, memory, access, user):
        """Refuse an access that conflicts with views. The user is a stream, or None for the host.

        A user's own views conflict only with uses in FINAL.
        """
        sites = frozenset(
            view.site
            for view in memory.views
            if (access.mode in FINAL or (view.user is not user and not view.keeps))
            and overlap(view, access)
            and conflict(view.mode, access.mode)
        )
        return Answer(EXPORTED, sites) if sites else None

    def is_held(self, memory, start, stop):
        """Whether a graph uses some of these bytes."""
        return any(max(hold.start, start) < min(hold.stop, stop) for hold in memory.holds)

    def _judge_holds(self, memory, access):
        """Refuse a use that closes memory while a graph uses it."""
        ends = access.mode in ("close", "leave")
        held = ends and self.is_held(memory, access.start, access.stop)
        return Answer(HELD) if held else None

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

    def judge_and_wait(self, stream, accesses, policy, passive=False, lends=False):
        """Like `judge`, after the waits that the policy inserts. A refused operation inserts none.

        Each wait is for all work of the conflicting stream.
        """
        request = (stream, accesses, policy, passive, lends)

        def in_the_way():
            known = past(*self.before(stream, passive))
            return self._in_the_way(known, accesses, policies_of(policy, accesses))

        with self.restored_after(Ambiguous, self.order()):
            return self._wait_for_all(stream, lambda: self.judge(*request), in_the_way)

    def _wait_for_all(self, stream, judge, in_the_way):
        """Let a stream wait for all streams that conflict with a request. Returns the new answer.

        All these streams are found, and all events are recorded, before the first wait.
        """
        before, others = self.order(), []
        while (answer := judge()).answer == MUST_WAIT:
            others.append(in_the_way())
            if not self.can_be_waited_for(others[-1]):
                return self._back_to(before, others[-1])
            self.order_after(stream, self._work_of(others[-1]))
        if not others:
            return answer
        self.restore(before)
        if answer == YES:
            for work in [self._work_of(other) for other in others]:
                self.order_after(stream, work)
            # All events are recorded before the first wait, so another conflict may remain.
            answer = self._wait_for_all(stream, judge, in_the_way)
        return answer

    def streams(self):
        return [stream for domain in self.domains for stream in domain.streams]

    def _back_to(self, before, other):
        """Undo waits and refuse the request, because a stream cannot be waited for."""
        self.restore(before)
        captured = other.in_capture and other.thread in (None, self.thread)
        return Answer(CAPTURED if captured else BORROWED)

    def order(self):
        """A copy of the order of streams and host, for `restore`. It has no uses of memory."""
        return self.host, [(each, vars(each).copy()) for each in self.streams()]

    @contextmanager
    def restored_after(self, kind, order):
        """After an exception of this kind, restore the order of streams and host."""
        try:
            yield
        except kind:
            self.restore(order)
            raise

    def restore(self, order):
        self.host, streams = order
        for stream in self.streams():  # also those that were opened since
            stream.last = stream.last_use = None
        for stream, fields in streams:
            vars(stream).update(fields)

    def _work_of(self, stream):
        """The node that a wait for a stream waits for: its last event, if the stream is closed."""
        return self.snapshot(stream, record=stream.open)

    def _in_the_way(self, known, accesses, policies):
        """The stream that is waited for first.

        With boxes, the engine does not look for uses byte after byte.
        """
        found = self._use_in_the_way(known, accesses, policies)
        memories = [memory for memory, *_ in accesses if memory.boxed or memory.like]
        if any(memory.boxed or memory.like.boxed for memory in memories):
            asked = zip(accesses, policies, strict=True)
            asked = [access for access, policy in asked if policy == "wait"]
            streams = {
                use.stream
                for memory, *access in asked
                for use in memory.accesses
                if meets(use, *access) and use.node not in known
            }
            if len(streams) > 1:
                raise Ambiguous
        return found.stream

    def _use_in_the_way(self, known, accesses, policies):
        """The use that is waited for first. That wait may also cover others.

        The contract does not define the order. This is the engine's: the last access, its first
        byte, the oldest use of that byte.
        """
        for (memory, start, stop, mode), policy in reversed(
            list(zip(accesses, policies, strict=True))
        ):
            for byte in sorted(span(start, stop)) if policy == "wait" else ():
                for use in uses_of_byte(memory, byte):
                    if conflict(use.mode, mode) and use.node not in known:
                        return use
        raise AssertionError("nothing is in the way")

    def issue(self, stream, accesses, site, passive=False):
        """Record an accepted operation. Returns the node that its token stands for."""
        return self.settle(stream, self.begin(stream, accesses, site, passive), passive)

    def begin(self, stream, accesses, site, passive=False):
        """Record the uses of an accepted operation before the driver has the operation."""
        node = Node(*self.before(stream, passive))
        for memory, *access in accesses:
            self.change(memory, *access, site)
        self._record(stream, accesses, site, node)
        return node

    def settle(self, stream, node, passive=False):
        """Record that the driver has an operation: new snapshots of the stream include it."""
        stream.last = node
        return node if passive else self.use(stream, node)

    def fail(self, stream, kept, site):
        """Record an operation that the driver refused: the accesses `kept` stay borrowed.

        It is ordered within its stream, but the rules of the default streams do not order it.
        """
        return self._borrow(stream, kept, site, Node(*self.before(stream, passive=True)))

    def is_plain(self, memory, start, stop, mode):
        """Whether the engine certainly undoes a failed use.

        This is certain if all uses are of the whole memory, and there are at most two.
        """
        uses = [*((use.start, use.stop) for use in memory.accesses), (start, stop)]
        whole = all(use == (0, memory.nbytes) and not isinstance(use[1], BoxStop) for use in uses)
        return whole and len(memory.accesses) <= 2

    def _borrow(self, stream, accesses, site, node):
        stream.last = node
        self._record(stream, accesses, site, node)
        return node

    def _record(self, stream, accesses, site, node):
        stream.last_operation = node
        stream.last_site = site
        for memory, start, stop, mode in accesses:
            if start < stop:
                mode = AS.get(mode, mode)
                memory.accesses.append(Access(node, start, stop, mode, site, stream))

    # ---- the host ----

    def judge_export(self, memory, start, stop, mode, policy, lends=False):
        """The answer to a host access. The host is one user: its own views never conflict.

        An access that `lends` may read what it writes: the program can use the view in any way.
        """
        if memory.closed:
            return Answer(MEMORY_CLOSED)
        if start == stop:
            return YES
        access = Access(None, start, stop, mode, 0)
        answer = (
            self._judge_contents(memory, access, lends)
            or self._judge_views(memory, access, None)
            or self._judge_loans(memory)
            or self._judge_order(past(self.host), memory, access, policy)
        )
        if answer == YES and memory.managed and policy != "unchecked":
            unfinished = self._unfinished_where_excluded(memory)
            sites = frozenset(stream.last_site for stream in unfinished)
            if sites:
                return Answer(MUST_WAIT if policy == "wait" else BORROWED, sites)
        return answer

    def judge_lend(self, memory, start, stop, mode, nobody):
        """The answer to a loan for work on no stream. Views of all streams conflict with it."""
        if memory.closed:
            return Answer(MEMORY_CLOSED)
        if start == stop:
            return YES
        access = Access(None, start, stop, mode, 0)
        return (
            self._judge_attachment(memory, nobody, mode)
            or self._judge_contents(memory, access, True)
            or self._judge_views(memory, access, NOBODY)
            or self.judge_export(memory, start, stop, mode, "strict")
        )

    def _judge_loans(self, memory):
        """Refuse the host if memory is lent to a stream whose work may exclude the host."""
        views = [v for m in self.memories for v in m.views if not v.keeps]
        lent = [view.user for view in views if view.user and memory.managed]
        lent = [stream for stream in lent if self.may_use(memory, stream)]
        sites = frozenset(stream.last_site for stream in lent if stream.domain.host_excluded)
        return Answer(EXPORTED, sites) if sites else None

    def judge_export_and_wait(self, memory, start, stop, mode, policy, lends=False):
        """Judge like `judge_export`, after the waits that the policy inserts."""
        request = (memory, start, stop, mode, policy, lends)
        before = self.order()
        while (answer := self.judge_export(*request)).answer == MUST_WAIT:
            with self.restored_after(Ambiguous, before):
                other = self._in_the_way_of_host(memory, start, stop, mode)
            if not self.can_be_waited_for(other):
                return self._back_to(before, other)
            self.synchronize(self._work_of(other))
        return answer

    def _in_the_way_of_host(self, memory, start, stop, mode):
        access = (memory, start, stop, mode)
        if self._judge_order(past(self.host), memory, Access(None, *access[1:], 0), "wait") == YES:
            return self._unfinished_where_excluded(memory)[0]
        return self._in_the_way(past(self.host), [access], ["wait"])

    def _unfinished_where_excluded(self, memory):
        """The streams whose unfinished work excludes the host from memory."""
        return [
            stream
            for domain in self.domains
            if domain.host_excluded
            for stream in domain.streams
            if self.may_use(memory, stream) and not self.stream_known(stream)
        ]

    def export(self, memory, start, stop, mode, site, user=None):
        """Make a view of the host, or a loan to a stream."""
        view = View(start, stop, mode, site, user)
        memory.views.append(view)
        if user is None:
            self.change(memory, start, stop, mode, site)
        return view

    def close_export(self, memory, view):
        memory.views.remove(view)

    def keep_open(self, memory, start, stop, mode, site, user):
        """Record that a borrower lets others use its bytes for a while. They cannot be closed."""
        view = self.export(memory, start, stop, mode, site, user)
        view.keeps = True
        return view

    def wait_for_users(self, stream, memory, start, stop):
        """Let a stream wait for all users of bytes that can be waited for, even for itself.

        The library records events for this, but its clocks do not learn from these records.
        """
        known = past(self.host)
        found = {}
        for byte in span(start, stop):
            for use in uses_of_byte(memory, byte):
                if use.stream and use.node not in known and self.can_be_waited_for(use.stream):
                    found[use.stream] = None
        for other in found:
            self.wait(stream, self.snapshot(other, record=False))

    def close_memory_on(self, memory, stream, policy):
        """Close stream-ordered memory. This is a write on a stream, checked under every policy."""
        bytes_ = (memory, 0, memory.nbytes)
        policy = "wait" if policy == "wait" else "strict"
        answer = self.judge_and_wait(stream, [(*bytes_, "close")], policy, passive=True).answer
        if answer == OK:
            self.issue(stream, [(*bytes_, "write")], 0, passive=True)
            memory.closed = True
        return answer

    def close_memory(self, memory):
        if memory.closed:
            return MEMORY_CLOSED
        if memory.views:
            return EXPORTED
        if self.is_held(memory, 0, memory.nbytes):
            return HELD
        if self.borrowed_bytes(memory):
            return BORROWED
        memory.closed = True
        return OK

    def give_back(self, stream, memory, start, stop, site):
        """Record that another library has bytes again, and uses them on a stream."""
        self.issue(stream, [(memory, start, stop, "write")], site, passive=True)
        memory.accesses[-1].returns = True

    def follow_returns(self, stream, memory, start, stop):
        """Let a stream wait for the streams to which bytes were given back. Returns these.

        Returns that are known to be before the stream's next work need no wait.
        """
        known = past(*self.before(stream, passive=True))
        found = {}
        for byte in span(start, stop):
            for use in uses_of_byte(memory, byte):
                waits = use.returns and use.stream is not stream and use.node not in known
                if waits and self.can_be_waited_for(use.stream):
                    found[use.stream] = None
        for other in found:
            self.wait(stream, self._work_of(other))
        return list(found)

    def judge_end(self, memory, start, stop):
        """The answer to closing one of several buffers over some memory."""
        if any(overlap(view, Access(None, start, stop, "write", 0)) for view in memory.views):
            return EXPORTED
        if self.is_held(memory, start, stop):
            return HELD
        if any(start <= byte < stop for byte in self.borrowed_bytes(memory)):
            return BORROWED
        return OK

    def cut(self, memory, end):
        """Take away the bytes from `end` on if nothing uses them. Returns the answer."""
        answer = self.judge_end(memory, end, memory.nbytes)
        if answer == OK:
            memory.end = end
        return answer

    def stream_known(self, stream):
        return stream.last_operation is None or stream.last_operation in past(self.host)

    def borrowed_gaps(self, memory):
        """The bytes between the first and the last bytes of boxes that may be in use."""
        known = past(self.host)
        return {
            byte
            for access in memory.accesses
            if isinstance(access.stop, BoxStop) and access.node not in known
            for byte in range(access.start, access.stop)
        }

    def borrowed_bytes(self, memory):
        """The bytes of operations that the host does not know to be complete."""
        known = past(self.host)
        found = set()
        for access in memory.accesses:
            if access.node not in known:
                found.update(span(access.start, access.stop))
        return found
