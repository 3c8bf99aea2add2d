"""The axioms of PTX's memory consistency model, for short straight-line programs, as a referee.

A program is a list of events in the order of its text: accesses and fences of a few threads, and
barriers. `races()` returns the pairs of accesses that race in an execution, which is given by the
values that the strong reads have returned. Every write stores the number of its event, plus 1, in
each of its bytes, so these values say which write a read has seen. The rules are those of
https://docs.nvidia.com/cuda/parallel-thread-execution/#memory-consistency-model, whose words are
used here: moral strength, release and acquire patterns, observation, base causality, causality.

A fence.sc counts as a fence.acq_rel. Two of them also order their threads by whichever comes first.
Neither thread can choose that, so in another execution of the program they order nothing.
"""

import itertools
from typing import NamedTuple

READ, WRITE, EXCHANGE, FENCE, BARRIER = "read", "write", "exchange", "fence", "barrier"


class Thread(NamedTuple):
    block: int
    index: int  # in its block


class Event(NamedTuple):
    """An access or a fence of a thread, or a barrier of some threads of each block."""

    kind: str
    thread: Thread = Thread(0, 0)
    shared: bool = False
    start: int = 0  # of the first byte
    size: int = 4  # of an element
    count: int = 1  # of elements
    strong: bool = False
    scope: str = "gpu"
    acquires: bool = False
    releases: bool = False
    waiting: tuple[int, ...] = ()  # of a barrier: the threads of each block that wait
    arriving: tuple[int, ...] = ()  # those that only arrive


class Op(NamedTuple):
    """An element of an access, a fence, or what one thread does at a barrier."""

    event: int
    kind: str
    thread: Thread
    bytes: tuple  # the memory, the first byte, and the end
    strong: bool
    scope: str
    acquires: bool
    releases: bool

    @property
    def reads(self):
        return self.kind in (READ, EXCHANGE)

    @property
    def writes(self):
        return self.kind in (WRITE, EXCHANGE)

    @property
    def memory(self):
        return self.reads or self.writes


def fence_kind(event):
    """Which fence an event of this number is. Every second one is a fence.sc."""
    return ("acq_rel", "sc")[event % 2]


def overlap(a, b):
    return a.bytes[0] == b.bytes[0] and a.bytes[1] < b.bytes[2] and b.bytes[1] < a.bytes[2]


def includes(op, other):
    """Whether the scope of an operation includes the thread of another one."""
    return op.scope in ("gpu", "sys") or op.thread.block == other.thread.block


# The rules that an Execution can leave out, to see that the check has each of them, and that a
# program depends on it.
RULES = {
    "barrier": "threads that wait for each other know what came before",
    "mask": "so do the lanes of a mask",
    "arrive": "threads that only arrive learn nothing",
    "scope": "a strong access is so only for threads in its scope",
    "release": "an access can release",
    "acquire": "an access can acquire",
    "fence": "a fence releases for later writes, and acquires for earlier reads",
    "fence.sc": "so does a fence.sc",
    "later": "a write to the word that an access has released is part of the release",
    "earlier": "a read of the word that an access acquires is part of the acquire",
    "update": "a read-modify-write passes on what it has seen",
    "store": "any other write does not",
    "bytes": "both accesses must have the same bytes",
    "vector": "the elements of an access are single accesses",
    "observation": "a read that has seen a write is behind it",
}


class Execution:
    """What a run of a program has done: `seen[event]` has the bytes that a read has returned.

    `without` is a rule that does not hold.
    """

    def __init__(self, events, blocks, seen, without=""):
        assert not without or without in RULES
        self.without = without
        self.ops = []
        self.synchronizes = []  # pairs of operations
        for number, event in enumerate(events):
            self._add(number, event, blocks)
        self.seen = seen
        self.of_thread = {}
        for index, op in enumerate(self.ops):
            self.of_thread.setdefault(op.thread, []).append(index)
        # The elements of a vector have no order.
        self.follows = {
            (a, b)
            for indices in self.of_thread.values()
            for a, b in itertools.combinations(indices, 2)
            if self.ops[a].event != self.ops[b].event
        }
        self.observed = self._observation()
        self.synchronizes += self._patterns()
        self.before = self._base_causality()

    def _add(self, number, event, blocks):
        if event.kind == BARRIER:
            for block in range(blocks):
                first = len(self.ops)
                threads = [*event.waiting, *event.arriving]
                is_warp = len({thread // 32 for thread in threads}) == 1
                if self.without == ("mask" if is_warp else "barrier"):
                    continue
                waiting = threads if self.without == "arrive" else event.waiting
                for thread in threads:
                    self.ops.append(
                        Op(number, BARRIER, Thread(block, thread), (), True, "cta", False, False)
                    )
                self.synchronizes += [
                    (first + a, first + b)
                    for a in range(len(threads))
                    for b in range(len(waiting))
                    if a != b
                ]
            return
        memory = ("shared", event.thread.block) if event.shared else "global"
        count, size = event.count, event.size
        if self.without == "vector":
            count, size = 1, count * size
        for element in range(count):
            start = event.start + element * size
            where = () if event.kind == FENCE else (memory, start, start + size)
            self.ops.append(Op(number, event.kind, event.thread, where, *event[6:10]))

    def morally_strong(self, a, b):
        in_scope = self.without == "scope" or (includes(a, b) and includes(b, a))
        related = a.thread == b.thread or (a.strong and b.strong and in_scope)
        if not (related and a.memory and b.memory):
            return related
        return a.bytes == b.bytes or (self.without == "bytes" and overlap(a, b))

    def _observation(self):
        """Pairs of a write and a read that has seen it, also through atomic operations."""
        writers = {}
        for index, op in enumerate(self.ops):
            if op.writes:
                writers.setdefault(op.event + 1, []).append(index)
        seen = set()
        for index, op in enumerate(self.ops):
            if not op.reads:
                continue
            first = op.bytes[1] - self.first_byte(op)
            values = set(self.seen[op.event][first : first + op.bytes[2] - op.bytes[1]])
            if len(values) != 1:
                continue
            for writer in writers.get(values.pop(), ()):
                write = self.ops[writer]
                same = self._same_bytes(write, op)
                if writer != index and same and self.morally_strong(write, op):
                    seen.add((writer, index))
        if self.without == "store":
            seen |= self._overwritten()
        while True:
            more = {
                (a, d)
                for a, b in seen
                if self._passes_on(self.ops[b])
                for c, d in seen
                if b == c and a != d
            } - seen
            if not more:
                return seen
            seen |= more

    def _same_bytes(self, write, read):
        return write.bytes == read.bytes or (self.without == "bytes" and overlap(write, read))

    def _passes_on(self, op):
        stores = self.without == "store" and op.kind == WRITE
        return self.without != "update" and (op.kind == EXCHANGE or stores)

    def _overwritten(self):
        """Pairs of a write and a later one, as if that had read the value."""
        return {
            (a, b)
            for a, b in itertools.combinations(range(len(self.ops)), 2)
            if self.ops[a].writes
            and self.ops[b].writes
            and self.ops[a].bytes == self.ops[b].bytes
            and self.morally_strong(self.ops[a], self.ops[b])
        }

    def first_byte(self, op):
        return min(other.bytes[1] for other in self.ops if other.event == op.event)

    def _patterns(self):
        """Pairs of the first operation of a release pattern and the last of an acquire pattern."""
        releases, acquires = {}, {}  # by the write, or the read
        for index, op in enumerate(self.ops):
            if op.writes and op.strong:
                itself = op.releases and self.without != "release"
                releases[index] = [index] * itself + [
                    before
                    for before in self.of_thread[op.thread]
                    if (before, index) in self.follows and self._is_side(before, op, "releases")
                ]
            if op.reads and op.strong:
                itself = op.acquires and self.without != "acquire"
                acquires[index] = [index] * itself + [
                    behind
                    for behind in self.of_thread[op.thread]
                    if (index, behind) in self.follows and self._is_side(behind, op, "acquires")
                ]
        return [
            (first, last)
            for write, read in self.observed
            for first in releases.get(write, ())
            for last in acquires.get(read, ())
            if self.ops[first].thread != self.ops[last].thread
            and self.morally_strong(self.ops[first], self.ops[last])
        ]

    def _is_side(self, index, access, which):
        op = self.ops[index]
        if op.kind == FENCE:
            is_sc = fence_kind(op.event) == "sc"
            return not (self.without == "fence" or (is_sc and self.without == "fence.sc"))
        if self.without == {"releases": "later", "acquires": "earlier"}[which]:
            return False
        return getattr(op, which) and op.bytes == access.bytes

    def _base_causality(self):
        """For each operation, the set of those that it precedes, as bits."""
        after = [0] * len(self.ops)
        for a, b in (*self.follows, *self.synchronizes):
            after[a] |= 1 << b
        for middle in range(len(after)):
            for a, others in enumerate(after):
                if others >> middle & 1:
                    after[a] |= after[middle]
        return after

    def precedes(self, a, b, weak):
        """Whether an operation precedes another one in causality order."""
        if self.before[a] >> b & 1:
            return True
        if self.without == "observation":
            return False
        return (weak or self.ops[a].strong) and any(
            self.before[seer] >> b & 1 for write, seer in self.observed if write == a
        )

    def races(self, weak=True):
        """Return the pairs of events that race, each with the bytes: the memory and its byte.

        A weak write is observed by others through an atomic operation of the same thread. This
        orders the write, but not before that observation, with which it races. With weak=False,
        such an observation orders nothing, so there are more races, of the same bytes.

        Sets `mixes_sizes` if two accesses race that do not have the same bytes: then the model
        promises nothing for any access of the program.
        """
        found = {}
        self.mixes_sizes = False
        for a, b in itertools.combinations(range(len(self.ops)), 2):
            one, other = self.ops[a], self.ops[b]
            if (
                one.memory
                and other.memory
                and one.thread != other.thread
                and (one.writes or other.writes)
                and overlap(one, other)
                and not self.morally_strong(one, other)
                and not self.precedes(a, b, weak)
                and not self.precedes(b, a, weak)
            ):
                self.mixes_sizes |= one.bytes != other.bytes
                pair = (one.event, other.event)
                found.setdefault(pair, set()).update(
                    (one.bytes[0], byte)
                    for byte in range(
                        max(one.bytes[1], other.bytes[1]), min(one.bytes[2], other.bytes[2])
                    )
                )
        return found
