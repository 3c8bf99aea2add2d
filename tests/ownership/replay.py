"""Replays the decisions of threads on the oracle, in the order in which the engine took them.

    make referee ARGS="--threads 4 --operations 100000 --seed 2"

engine_threads.c makes random calls in several threads, and recorded.h notes each decision with its
number. Some programs run under a schedule, which their seed repeats; in others the threads run at
once.
"""

import ctypes
import subprocess
from collections import Counter
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import oracle as model
from compiled import ROOT, compiled
from limits import PATIENCE
from pair import Disagreement

FOLDER = Path(__file__).parent
ROUNDS = 40  # number of rounds of each thread

CALLS = (
    "access",
    "open_stream",
    "close_stream",
    "open_memory",
    "open_written",
    "forget",
    "begin",
    "settle",
    "undo",
    "kept",
    "record",
    "snapshot",
    "domain_snapshot",
    "wait",
    "join",
    "join_host",
    "export",
    "lend",
    "close_export",
    "close_memory",
    "memory_free",
    "bytes_free",
    "borrowed",
    "discarded",
    "known",
    "stream_known",
    "snapshot_known",
    "other",
)
ORDERS = ("non_blocking", "blocking", "legacy")
MODES = ("read", "write", "shared", "reach")
POLICIES = ("strict", "wait", "unchecked")
EFFECTS = ("stays", "uses", "moves", "attaches", "discards", "shares", "closes", "leaves")
# The oracle's modes of accesses that do more than read or write.
MODES_OF = {
    "moves": "move",
    "attaches": "attach",
    "discards": "discard",
    "shares": "share",
    "closes": "close",
}
ANSWERS = (
    "ok",
    "borrowed",
    "exported",
    "must_wait",
    "memory_closed",
    "stream_closed",
    "no_memory",
    "discarded",
    "attached",
    "held",
    "cut",
)
PASSIVE, RETURNS, MANAGED, EXCLUDED = 1, 2, 4, 8
FOR_HOST = 2**64 - 1  # the attachment of memory that only the host may use


class Recorded(ctypes.Structure):
    """A call, or an access of one: `recorded` in recorded.h."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("turn", "stream", "domain", "memory", "view")),
        *((name, ctypes.c_uint64) for name in ("start", "stop", "clock", "seq")),
        *((name, ctypes.c_uint64) for name in ("width", "pitch", "rows", "slice", "slices")),
        *((name, ctypes.c_uint32) for name in ("slot", "site", "blamed")),
        *((name, ctypes.c_uint8) for name in ("call", "answer", "mode", "policy", "effect")),
        *((name, ctypes.c_uint8) for name in ("order", "flags", "thread")),
    ]

    @property
    def key(self):
        """The key of a snapshot: while it exists, no other snapshot has the same key."""
        return self.clock, self.seq, self.slot

    @property
    def end(self):
        """The end of the bytes, as the oracle takes it: a BoxStop for a box."""
        if not self.width:
            return self.stop
        return model.BoxStop(
            self.start, self.width, self.pitch, self.rows, self.slice, self.slices
        )  # fmt: skip

    @property
    def use(self):
        """The mode of an access, as the oracle names it."""
        effect, mode = EFFECTS[self.effect], MODES[self.mode]
        return "to" if (effect, mode) == ("moves", "write") else MODES_OF.get(effect, mode)


class Use(NamedTuple):
    """An operation that has begun, and what the oracle needs to undo it."""

    node: model.Node
    accesses: list
    closes: list  # the memory that it closes
    site: int
    before: tuple  # the stream's last operation, and its site
    view: object


class Replay:
    """The oracle's view of a record. `run` raises Disagreement at the first different answer."""

    def __init__(self, record):
        self.entries = sorted(record, key=attrgetter("turn"))
        self.oracle = model.Oracle()
        self.domains, self.streams, self.memories, self.views = {}, {}, {}, {}
        self.tags = {}  # streams by the numbers that attachments name
        self.snapshots = {}  # nodes of snapshots, by key
        self.uses = {}  # the operation that each stream has begun last
        self.operations = set()  # nodes of operations
        self.numbered = {}  # nodes of operations, by slot and number
        self.changes = {}  # for each memory: what accesses have done to its contents and attachment
        self.answers = Counter()
        self.log = []
        self.names = {}

    def run(self):
        for _, group in groupby(self.entries, key=attrgetter("turn")):
            *parts, call = group
            name = CALLS[call.call]
            self.log.append(self.told(name, parts, call))
            getattr(self, name)(call, *([parts] if name in ("begin", "undo") else []))

    def told(self, name, parts, call):
        """A line of the log."""
        shown = [f"{call.turn} thread {call.thread}: {name}"]
        shown += [self.named(call, field) for field in ("stream", "view") if getattr(call, field)]
        for part in parts or [call] * bool(call.memory):
            bytes_ = f"{self.named(part, 'memory')}[{part.start}:{part.stop}]"
            if part.width:
                bytes_ += f" {part.end.box}"
            shown.append(f"{bytes_} {part.use} {POLICIES[part.policy]}")
        if call.clock or call.seq:
            shown.append(f"snapshot {self.named(call, 'clock')} {call.slot}.{call.seq}")
        site = f", site {call.site}" * bool(call.site)
        blamed = f" because of site {call.blamed}" * bool(call.blamed)
        return f"{', '.join(shown)}{site}: {ANSWERS[call.answer]}{blamed}"

    def named(self, call, field):
        """A short name for the address of an object."""
        names = self.names.setdefault(field, {0: "-"})
        return f"{field} {names.setdefault(getattr(call, field), len(names))}"

    def agree(self, call, expected):
        """Compare an answer with the oracle's."""
        self.answers[f"{CALLS[call.call]} {ANSWERS[call.answer]}"] += 1
        got = ANSWERS[call.answer]
        if got != expected.answer:
            raise Disagreement(f"the engine says {got!r}, the oracle {expected.answer!r}")
        if expected.blamed and call.blamed not in expected.blamed:
            raise Disagreement(f"the engine blames {call.blamed}, not one of {expected.blamed}")

    def agree_whether(self, call, expected):
        """Compare the answer to a question."""
        if bool(call.answer) != expected:
            raise Disagreement(f"the engine says {bool(call.answer)}, the oracle {expected}")

    # ---- objects ----

    def domain_of(self, call):
        """Return the domain of a call. A domain that was made before the recording began is opened
        here.
        """
        if call.domain not in self.domains:
            self.domains[call.domain] = self.oracle.open_domain(bool(call.flags & EXCLUDED))
        return self.domains[call.domain]

    def stream_of(self, call):
        if call.stream not in self.streams:
            self.open_stream(call)
        return self.streams[call.stream]

    def memory_of(self, call):
        if call.memory not in self.memories:
            self.open_memory(call)
        memory = self.memories[call.memory]
        memory.managed |= bool(call.flags & MANAGED)
        return memory

    def snapshot_of(self, call):
        """The node of a snapshot. A snapshot from before the record has only complete work."""
        return self.snapshots.get(call.key) or model.Node()

    def open_stream(self, call):
        stream = self.oracle.open_stream(self.domain_of(call), ORDERS[call.order])
        self.streams[call.stream] = self.tags[call.start] = stream

    def close_stream(self, call):
        self.oracle.close_stream(self.stream_of(call))

    def open_memory(self, call):
        self.memories[call.memory] = memory = self.oracle.open_memory(call.stop, False)
        self.changes[memory] = []

    def open_written(self, call):
        """Open memory whose first access is the write of an operation, such as its allocation on a
        stream.
        """
        self.open_memory(call)
        node, stream = self.numbered.get((call.slot, call.seq)), self.stream_of(call)
        if node is not None:
            use = model.Access(node, 0, call.stop, "write", call.site, stream)
            self.memory_of(call).accesses.append(use)

    def forget(self, call):
        """Forget the allocation of memory that nothing else has used."""
        if call.answer:
            self.memory_of(call).accesses.clear()

    def close_memory(self, call):
        self.agree(call, model.Answer(self.oracle.close_memory(self.memory_of(call))))

    # ---- operations ----

    def begin(self, call, parts):
        stream, passive = self.stream_of(call), bool(call.flags & PASSIVE)
        accesses = [(self.memory_of(p), p.start, p.end, p.use) for p in parts]
        policies = [POLICIES[part.policy] for part in parts]
        lends = any(EFFECTS[part.effect] == "uses" for part in parts)
        if not call.flags & RETURNS:
            self.agree(call, self.oracle.judge(stream, accesses, policies, passive, lends))
        if ANSWERS[call.answer] != "ok":
            return
        if stream in self.uses:
            raise Disagreement("an operation begins before the last one of its stream has ended")
        before = stream.last_operation, stream.last_site
        closes = [memory for memory, *_, mode in accesses if mode == "close"]
        accesses = [(*access, "write" if mode == "close" else mode) for *access, mode in accesses]
        node = self.oracle.begin(stream, accesses, call.site, passive)
        for memory in closes:
            memory.closed = True
        self.note_changes(node, accesses, call)
        view = None
        if call.view:
            view = self.oracle.export(*accesses[0], call.site, stream)
            self.views[call.view] = accesses[0][0], view
        self.uses[stream] = Use(node, accesses, closes, call.site, before, view)
        self.snapshots[call.key] = self.numbered[call.slot, call.seq] = node

    def settle(self, call):
        stream = self.stream_of(call)
        node = self.uses.pop(stream).node
        self.operations.add(self.oracle.settle(stream, node, bool(call.flags & PASSIVE)))

    def undo(self, call, parts):
        """Undo an operation that the driver has refused. `parts` are the bytes that it keeps."""
        stream = self.stream_of(call)
        node, accesses, closes, site, before, view = self.uses.pop(stream)
        for memory in closes:
            memory.closed = False
        for memory, *_ in accesses:
            memory.accesses = [use for use in memory.accesses if use.node is not node]
            self.undo_changes(memory, node)
            if view in memory.views:
                self.oracle.close_export(memory, view)
        stream.last_operation, stream.last_site = before
        kept = [(self.memory_of(p), p.start, p.end, p.use) for p in parts]
        if call.answer:
            self.operations.add(self.oracle.fail(stream, kept, site))

    def note_changes(self, node, accesses, call):
        for memory, start, stop, mode in accesses:
            to = None
            if mode == "attach":
                to = "host" if call.start == FOR_HOST else self.tags.get(call.start)
                self.oracle.attach(memory, to, call.site)
            self.changes[memory].append((node, start, stop, mode, to, call.site))

    def undo_changes(self, memory, node):
        """Make the contents and the attachment those that the other operations have left."""
        changes = [change for change in self.changes[memory] if change[0] is not node]
        self.changes[memory] = changes
        memory.discarded.clear()
        self.oracle.attach(memory, None, 0)
        for _, start, stop, mode, to, site in changes:
            self.oracle.change(memory, start, stop, mode, site)
            if mode == "attach":
                self.oracle.attach(memory, to, site)

    # ---- order ----

    def record(self, call):
        self.snapshots[call.key] = self.oracle.snapshot(self.stream_of(call), record=True)

    def snapshot(self, call):
        self.snapshots[call.key] = self.oracle.snapshot(self.stream_of(call), record=False)

    def domain_snapshot(self, call):
        last = [stream.last for stream in self.domain_of(call).streams]
        self.snapshots[call.key] = model.Node(*last)

    def wait(self, call):
        self.oracle.wait(self.stream_of(call), self.snapshot_of(call))

    def join(self, call):
        stream = self.stream_of(call)
        stream.last = model.Node(stream.last, self.snapshot_of(call))

    def join_host(self, call):
        self.oracle.synchronize(self.snapshot_of(call))

    # ---- views and loans ----

    def export(self, call):
        memory, access = self.memory_of(call), (call.start, call.end, call.use)
        lends = EFFECTS[call.effect] == "uses"
        policy = POLICIES[call.policy]
        self.agree(call, self.oracle.judge_export(memory, *access, policy, lends))
        self.open_view(call, memory, None)

    def lend(self, call):
        memory, stream = self.memory_of(call), self.stream_of(call)
        self.agree(call, self.oracle.judge_lend(memory, call.start, call.end, call.use, stream))
        self.open_view(call, memory, stream)

    def open_view(self, call, memory, stream):
        if ANSWERS[call.answer] == "ok":
            access = call.start, call.end, call.use
            view = self.oracle.export(memory, *access, call.site, stream)
            self.views[call.view] = memory, view
            if stream is None:
                self.changes[memory].append((None, *access, None, call.site))

    def close_export(self, call):
        self.oracle.close_export(*self.views.pop(call.view))

    # ---- questions ----

    def memory_free(self, call):
        memory = self.memory_of(call)
        expected = self.oracle.close_memory(memory)
        memory.closed = expected == "memory_closed"
        self.agree(call, model.Answer(expected))

    def bytes_free(self, call):
        memory = self.memory_of(call)
        self.agree(call, model.Answer(self.oracle.judge_end(memory, call.start, call.stop)))

    def borrowed(self, call):
        found = self.oracle.borrowed_bytes(self.memory_of(call))
        self.agree_whether(call, any(call.start <= byte < call.stop for byte in found))

    def discarded(self, call):
        found = self.memory_of(call).discarded
        sites = [site for byte, site in found.items() if call.start <= byte < call.stop]
        self.agree_whether(call, bool(sites))
        if sites and call.blamed not in sites:
            raise Disagreement(f"the engine blames {call.blamed}, not one of {sites}")

    def known(self, call):
        node = self.numbered.get((call.slot, call.seq))
        self.agree_whether(call, node is None or self.oracle.known(node))

    def stream_known(self, call):
        self.agree_whether(call, self.oracle.stream_known(self.stream_of(call)))

    def snapshot_known(self, call):
        # Records and waits may have the same name as those before them.
        work = model.past(self.snapshot_of(call)) & self.operations
        self.agree_whether(call, work <= model.past(self.oracle.host))

    def other(self, call):
        raise NotImplementedError(f"a call of the line {call.site} is recorded")


def read(path):
    """The record in a file."""
    data = path.read_bytes()
    return (Recorded * (len(data) // ctypes.sizeof(Recorded))).from_buffer_copy(data)


def replay(record):
    """Replay a record. Returns the answers, or raises Disagreement with all that led to it."""
    replayed = Replay(record)
    try:
        replayed.run()
    except Disagreement as error:
        raise Disagreement("\n  ".join([str(error), *replayed.log])) from None
    return replayed.answers


def build(folder, include=ROOT / "include"):
    """Compile engine_threads.c with recorded.h, in a folder. Returns the program."""
    source, target = FOLDER / "engine_threads.c", Path(folder, "engine_threads")
    errors = compiled(source, target, "-include", str(FOLDER / "recorded.h"), include=include)
    if errors:
        raise RuntimeError(errors)
    return target


def run(program, seed, threads, scheduled):
    """Run a program and replay it. Returns the number of its steps, and the answers."""
    record = program.with_suffix(f".{seed}")
    how = ["scheduled"] if scheduled else []
    command = [program, str(seed), str(ROUNDS), str(threads), record, *how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    try:
        if done.returncode:
            raise Disagreement(done.stderr or f"engine_threads: ended by signal {-done.returncode}")
        return ROUNDS * threads, replay(read(record))
    except Disagreement as error:
        about = "scheduled" if scheduled else "not scheduled, so it may differ the next time"
        raise Disagreement(f"program {seed}, {threads} threads, {about}: {error}") from None
    finally:
        record.unlink(missing_ok=True)
