"""Runs a program on the library and on the oracle, and compares every outcome.

This module has the steps with streams, events and tokens. session_blocks.py has those with policies
and `with` blocks, and session_buffers.py those with buffers.
"""

import ctypes
import gc
import operator
import re
import signal
import time
import weakref
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import oracle as model
from oracle import (
    BORROWED,
    CAPTURED,
    DISCARDED,
    EVENT_CLOSED,
    EXPORTED,
    HELD,
    MEMORY_CLOSED,
    NOT_RECORDED,
    OK,
    OTHER_THREAD,
    STREAM_CLOSED,
)
from oracle_graphs import GraphOracle
from pair import Disagreement

import cudadrv as cu
from cudadrv import testing

OVERLAP, IS_PART, NO_STREAM = "overlap", "is_part", "no_stream"
OTHER_CONTEXT, LENT = "other_context", "lent"
UNFINISHED, NO_ACCESS = "unfinished", "no_access"
PARTS_LIVE, LIVE, NOT_OURS = "parts_live", "live", "not_ours"
NO_SUCH_FILL, ENDED = "no_such_fill", "ended"
FILL_BY_PARTS = "fill_by_parts"
SMALLER, DEAD = "smaller", "dead"  # of a signal: no larger number, a wait that would not end
TAKEN, NOT_LENT, NO_TURNS = "taken", "not_lent", "no_turns"
NO_NAME, OTHER_CONSUMER, READ_ONLY = "no_name", "other_consumer", "read_only"
NOT_THEIRS, USED_PARTS = "not_theirs", "used_parts"
DEFAULT_STREAM, NOT_ORDERED = "default_stream", "not_stream_ordered"
NOT_WHOLE, OF_POOL = "not_whole", "of_driver_pool"
GRAPH_CLOSED, NO_SUCH_CHANGE = "graph_closed", "no_such_change"
THEIRS = "captured_by_others"
NOT_SHAREABLE, NOT_SHARED = "not_shareable", "not_shared"
OWN_TICKET, NO_TICKET = "own_ticket", "no_ticket"
NO_TIMING, UNREADY, LATER = "no_timing", "unready", "later"
WAITED = "waited"  # accepted, after waits that a policy inserted
FAILED = "failed"  # accepted, and then a driver call failed
# Outcomes of accepted calls that Ctrl-C interrupted, or that finished before it.
INTERRUPTED, FINISHED = "interrupted", "finished"

# The exception of each refusal: its class must be exactly this one, and its text must match.
RAISED = {
    SMALLER: (cu.SignalError, "it only grows"),
    DEAD: (cu.SignalError, "would never end"),
    NO_TIMING: (ValueError, "needs events with timing"),
    UNREADY: (cu.CudaError, "needs both events complete"),
    LATER: (ValueError, "ms later than the one that it ends with"),
    TAKEN: (ValueError, "is taken back for a block"),
    NOT_LENT: (ValueError, "not in anybody's hands"),
    NO_TURNS: (ValueError, "cannot be taken back: nothing says"),
    NO_NAME: (BufferError, "DLPack has no name"),
    OTHER_CONSUMER: (BufferError, "and the consumer works"),
    READ_ONLY: (BufferError, "says it is read-only"),
    NOT_THEIRS: (ValueError, "it is no other library's"),
    USED_PARTS: (ValueError, "cannot be given back: parts of it are alive"),
    PARTS_LIVE: (cu.BufferBorrowedError, "parts of it are alive"),
    HELD: (cu.BufferBorrowedError, "graph .* uses it"),
    CAPTURED: (cu.CaptureError, ""),
    THEIRS: (cu.OwnershipError, "begun by another library"),
    BORROWED: (cu.BufferBorrowedError, "cannot "),
    EXPORTED: (cu.BufferExportedError, ""),
    MEMORY_CLOSED: (cu.BufferClosedError, ""),
    NOT_RECORDED: (cu.EventNotRecordedError, "never recorded"),
    OTHER_THREAD: (ValueError, "is another thread's"),
    ENDED: (cu.OwnershipError, "has ended without an event"),
    OTHER_CONTEXT: (
        (ValueError, cu.CudaError),
        "^cuGraphInstantiateWithFlags: CUDA_ERROR_INVALID_VALUE"
        "|another context|within one context|two events of one context|of the context of"
        "|and this (executable of|one to)|memory of that context|was opened in"
        "|use a stream of its primary context",
    ),
    UNFINISHED: (cu.OwnershipError, "cannot end the access of"),
    NO_ACCESS: (ValueError, "only with access"),
    EVENT_CLOSED: (ValueError, "the event "),
    NO_SUCH_CHANGE: (
        (ValueError, TypeError, cu.CudaError),
        "^cuGraphExecMem(cpy|set)NodeSetParams: CUDA_ERROR_INVALID_VALUE"
        "|is empty, and no node|the same bytes|cannot become|keeps its number|different words of 4"
        "|have different dtypes|parts of the same size|^set of |is not a node of"
        "|a part of itself|needs items in one piece|^another node of|cannot be changed: it",
    ),
    GRAPH_CLOSED: (ValueError, r"^((this executable of )?graph|the body of|body \d) .* is closed"),
    STREAM_CLOSED: (ValueError, " is closed"),
    OVERLAP: (ValueError, "overlap"),
    IS_PART: (ValueError, "only the whole"),
    DEFAULT_STREAM: (ValueError, "default stream"),
    NOT_ORDERED: (ValueError, "not stream-ordered"),
    NO_STREAM: (TypeError, "needs a stream"),
    FILL_BY_PARTS: (ValueError, "by several operations"),
    NO_SUCH_FILL: ((TypeError, ValueError), "the device fills items of"),
    LIVE: (ValueError, "lies in a live"),
    NOT_OURS: (ValueError, "only borrows its memory"),
    LENT: (cu.OwnershipError, "are lent to it"),
    DISCARDED: (cu.ContentsDiscardedError, "were discarded at"),
    NOT_WHOLE: (ValueError, "not the whole of an allocation"),
    OF_POOL: (ValueError, "memory of a DriverPool, which"),
    NOT_SHAREABLE: (
        ValueError,
        "has no memory to share|shares with no other process|only its owner can share|no handles"
        "|(that|which) only this process can map",
    ),
    NOT_SHARED: (ValueError, "is not shared with another process|was accepted before"),
    OWN_TICKET: (cu.OwnershipError, "was made by this process"),
    NO_TICKET: (cu.OwnershipError, "has taken the buffer back|was opened before|is not valid"),
}
# The driver calls that queue work or wait. A refused call must make none of them.
QUEUEING = (
    *("cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"),
    *("cuMemcpyPeerAsync", "cuMemcpyBatchAsync"),
    *("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D32Async"),
    *("cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2", "cuMemcpy3DPeerAsync"),
    *("cuMemsetD2D8Async", "cuMemsetD2D16Async"),
    *("cuEventRecord", "cuStreamWaitEvent", "cuMemAllocAsync", "cuMemFreeAsync"),
    *("cuLaunchKernel", "cuLaunchKernelEx"),
    *("cuMemPrefetchAsync", "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync"),
    *("cuMemDiscardAndPrefetchBatchAsync", "cuStreamAttachMemAsync", "cuGraphLaunch"),
    *("cuLaunchHostFunc", "cuStreamWaitValue64_v2", "cuStreamWriteValue64_v2"),
)
FIRST = ("cuMemcpy", "cuMemset", "cuLaunchHostFunc", "cuStreamWriteValue")
WORK = [name for name in QUEUEING if name.startswith(FIRST)]
DEFAULTS = ("legacy", "per_thread")
# For each kind of stream of the library, the oracle's kind.
ORDERS = {
    "non_blocking": "non_blocking",
    "blocking": "blocking",
    "legacy": "legacy",
    "per_thread": "blocking",
    "foreign": "non_blocking",
    "foreign_blocking": "blocking",
}


# A call frees the memory of dead buffers. The call stops after a few buffers that work still uses.
MOST_DRAINS = 3


class Failed(Exception):
    """A driver call failed as planned, and the library raised the right error."""


@dataclass(eq=False)
class Place:
    """A context, with its streams, events and memory."""

    context: cu.Context
    domain: model.Domain
    internal: model.Stream  # the internal stream, for blocking calls without a stream
    policy: str | None = None
    legacy: "Stream | None" = None


@dataclass(eq=False)
class Thread:
    """The state of a thread: its `with` blocks, and its default streams."""

    orderings: list = field(default_factory=list)  # policies of the open `ordering` blocks
    blocks: list = field(default_factory=list)  # the open blocks of streams
    defaults: dict = field(default_factory=dict)  # default streams, by context

    @property
    def currents(self):
        """The streams of the open blocks."""
        return [block.stream for block in self.blocks]


@dataclass(eq=False)
class Stream:
    real: cu.Stream | None  # None when the program has dropped it
    model: model.Stream
    kind: str
    place: Place
    foreign: "Foreign | None" = None
    turn: int = 0
    # Whether something beside the program refers to the stream: a task's context in which something
    # was awaited, attached memory, cudadrv's part in another library's graph, or a loan that could
    # not end.
    kept: bool = False

    @property
    def given(self):
        """The stream as an argument of a call.

        On every odd turn, a stream of the other library is passed as that library's object.
        """
        self.turn += 1
        return self.foreign if self.foreign and self.model.open and self.turn % 2 else self.real


@dataclass(eq=False)
class Event:
    real: cu.Event
    model: model.Event
    place: Place
    timing: bool = False


@dataclass(eq=False)
class Token:
    """A token with its buffers and streams. `node` is None if there was nothing to do."""

    real: cu.Token
    node: model.Node | None
    buffers: list
    stream: model.Stream | None = None
    asked: bool = False  # whether the token already has an event
    # The capture of a captured operation; `node` is then a node of that capture.
    capture: Any = None
    streams: tuple = ()  # for a launch of a graph: the streams that its work uses


class Session:
    """A program on both library and oracle.

    Each method is one step of the program. It returns what was made, or None if it was refused.
    """

    def __init__(self, *contexts):
        self.software = cu.driver_info().is_software
        self.oracle = GraphOracle()
        self.places = [self.open_place(each) for each in contexts or [cu.Device(0).context]]
        self.here = self.main = Thread()  # `here` is the thread that makes the next call
        self.oracle.thread = self.here
        self.ordered = True  # False once "unchecked" accepted something that strict would refuse
        self.queueing = list(QUEUEING)
        self.disagreed = False
        self.gate = None
        self.awaited = False
        self.left_alone = []  # arrays of interrupted copies; their bytes must not change any more
        self.failing = None  # the driver function that fails in the next call, and its status
        self.interrupting = False  # whether Ctrl-C comes in the middle of the next call
        self.waited = True  # whether the last call was not interrupted
        self.queued = True  # whether the driver got the work of an interrupted call
        self.answers = Counter()
        self.sites = count(1)
        # Whether other libraries gave loans back that the library may not have ended yet.
        self.unended = False
        self.unseen = Counter()  # driver calls that were not made by the library
        self.nothing = cu.LockedBuffer(0)
        self.pool = self.places[0].context.pools.locked

    def open_place(self, context):
        excluded = not context.device.attribute("concurrent_managed_access")
        domain = self.oracle.open_domain(excluded)
        return Place(context, domain, self.oracle.open_stream(domain, "non_blocking"))

    def new(self, place, make, *arguments, **options):
        """Make an object of a context."""
        if len(self.places) == 1:
            return make(*arguments, **options)
        with place.context:
            return make(*arguments, **options)

    # ---- comparing ----

    def agree(self, what, got, expected):
        if got != expected:
            self.disagree(f"{what}: the library gives {got!r}, expected {expected!r}")

    def disagree(self, text):
        self.disagreed = True
        raise Disagreement(text) from None

    def call(self, what, expected, function, *buffers, unchanged=True):
        """Make a call that must have this outcome. If it is refused, nothing must have changed.

        If `expected` is a set, each of its outcomes is allowed. `unchanged` is False for a call
        that does a part of its work even if it raises.
        """
        refused = expected not in (OK, WAITED)
        if refused or self.failing or self.interrupting:
            self.settle()
        if self.failing and expected == OK:
            return self.fail(what, function, buffers)
        before = self._state(buffers) if refused else None
        got, result, text = OK, None, ""
        try:
            # The library makes the text of a refusal in Python, where Ctrl-C would raise too early.
            if self.interrupting and expected == OK:
                result = self.interrupt(function, buffers)
            else:
                if self.interrupting:
                    self.gate.open()
                result, self.waited = function(), True
        except (cu.OwnershipError, cu.CudaError, BufferError, ValueError, TypeError) as error:
            got, text = self._named(what, error), f", which says {error}"
        if isinstance(expected, frozenset) and got in expected:
            expected = got
        if got != (expected if refused else OK):
            self.disagree(f"{what}: the library gives {got!r}, expected {expected!r}{text}")
        if refused and unchanged:
            self.agree(f"what is there after {what}", self._state(buffers), before)
        self.answers[expected] += 1
        return result

    def settle(self):
        """Do what the library does at the beginning of a call.

        It ends the loans that were given back, and frees the memory of dead buffers.
        """
        if self.unended:
            self.unended = self.nothing.borrowed
        for _ in range(MOST_DRAINS):
            self.pool.trim(keep_bytes=self.pool.limit_bytes)

    def fail(self, what, function, buffers):
        """Make a call in which a driver function fails if it is called, and then raise `Failed`.

        Sets `queued`, which says whether the driver had accepted work before the failure. Sets
        `kept`, the uses that the library records in spite of the failure: buffer, byte and mode.
        """
        name, status = self.failing
        before = {each: testing.calls(each) for each in WORK}
        uses = [uses_by_byte(each) for each in buffers]
        testing.fail(name, status)
        try:
            result, self.waited = function(), True
        except cu.CudaError as error:
            self.agree(f"status of {what}", error.status, status)
        else:
            self.answers[OK] += 1
            return result
        finally:
            testing.configure("fault=none")
        self.answers[FAILED] += 1
        taken = sum(testing.calls(each) - calls for each, calls in before.items())
        self.queued = taken > (name in WORK)
        now = [uses_by_byte(each) for each in buffers]
        self.kept = [
            (each, byte, use.mode)
            for each, old, new in zip(buffers, uses, now, strict=True)
            for byte, use in new - old
        ]
        # A use of the same line and stream may be an older use, or the use of the failed operation.
        self.ambiguous = any(old & new for old, new in zip(uses, now, strict=True))
        raise Failed

    def interrupt(self, function, buffers):
        """Make a call while Ctrl-C is pending. Sets `waited` and `queued`.

        No Python code runs between the signal and the call. So the first check for signals is in
        the library, or in NumPy before anything is queued.
        """
        results, before = [], self._work(buffers)
        # Ctrl-C may be ignored in this process.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            results.extend(map(operator.call, (ctypes.pythonapi.PyErr_SetInterrupt, function)))
            while True:  # the interpreter checks for signals at the end of each round
                pass
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGINT, handler)
        self.waited = len(results) == 2
        self.queued = self._work(buffers) != before
        self.answers[FINISHED if self.waited else INTERRUPTED] += 1
        return results[1] if self.waited else None

    def _work(self, buffers):
        """What the driver has been given so far: counts of its calls or, on a real driver, the
        borrows.
        """
        if self.software:
            return [testing.calls(name) for name in WORK]
        return [buffer.real.borrows for buffer in buffers]

    def hold(self, stream):
        """Stop a stream until `open_gate`. The library and the oracle do not know about this."""
        self.gate = self.gate or Gate()
        self.gate.hold(stream)

    def _named(self, what, error):
        for answer, (raised, pattern) in RAISED.items():
            classes = raised if isinstance(raised, tuple) else (raised,)
            if type(error) in classes and re.search(pattern, str(error)):
                return answer
        return self.disagree(f"{what}: the library raises {error!r}")

    def _state(self, buffers):
        names = self.queueing if self.software else []
        calls = [testing.calls(name) - self.unseen[name] for name in names]
        return calls, [buffer.real.borrows for buffer in buffers]

    # ---- streams ----

    @property
    def orderings(self):
        return self.here.orderings

    @property
    def blocks(self):
        return self.here.blocks

    @property
    def currents(self):
        return self.here.currents

    def be_in(self, thread):
        """Make the next calls in this thread."""
        self.here = self.oracle.thread = thread

    def open_stream(self, kind, place=None):
        place = place or self.places[0]
        if kind == "legacy" and place.legacy:
            return place.legacy
        if kind == "per_thread" and place in self.here.defaults:
            return self.here.defaults[place]
        real, foreign = self.new(place, new_stream, kind, place.context)
        thread = self.here if kind == "per_thread" else None
        made = Stream(
            real, self.oracle.open_stream(place.domain, ORDERS[kind], thread), kind, place, foreign
        )
        if kind == "legacy":
            place.legacy = made
        if kind == "per_thread":
            self.here.defaults[place] = made
        return made

    def end_thread(self, thread):
        """Note that a thread has ended, and its default streams with it."""
        for stream in thread.defaults.values():
            self.oracle.close_stream(stream.model)

    def close_stream(self, stream):
        answer = self._judge_close_stream(stream)
        self.call("stream.close()", answer, stream.real.close)
        if answer == OK:
            self.oracle.close_stream(stream.model)

    def _judge_close_stream(self, stream):
        if not stream.model.open:
            return OK
        if stream.kind in DEFAULTS:
            return DEFAULT_STREAM
        if self.oracle.lends_to(stream.model):
            return LENT
        return CAPTURED if stream.model.capture else OK

    def drop_stream(self, stream):
        """Drop the only reference to the library's stream. The caller must not have another one."""
        self.settle()
        died = weakref.ref(stream.real)
        stream.real = stream.foreign = None
        # The thread that watches awaited things may still refer to a token for a moment.
        patience = 1000
        while self.awaited and patience and died() is not None:
            time.sleep(0.001)
            # The task that awaited the stream may be in a reference cycle with its exception.
            gc.collect()
            patience -= 1
        # An executable with conditions is destroyed only when the device is idle, and keeps its
        # nodes until then. A GPU may still be working.
        while not self.software and patience and died() is not None:
            time.sleep(0.001)
            self.settle()
            patience -= 1
        self.agree("a stream to which nothing refers", died(), None)
        # The next call records the stream's last event, even if that call is refused.
        self.queueing = [name for name in self.queueing if name != "cuEventRecord"]
        self.oracle.close_stream(stream.model)

    def _usable(self, stream):
        return self.oracle.judge_stream(stream.model).answer

    def _runs(self, stream):
        """OK if the stream can be used and is not captured, else the reason."""
        usable = self._usable(stream)
        return CAPTURED if usable == OK and stream.model.in_capture else usable

    def _judge_wait(self, stream, capture):
        """The answer if a usable stream waits for work of a capture.

        If `capture` is None, the work is outside of captures.
        """
        mine = stream.model.capture
        if capture is None:
            return CAPTURED if stream.model.in_capture else OK
        refused = capture.ended or mine not in (None, capture) or stream.kind == "legacy"
        return CAPTURED if refused else OK

    def _wait(self, stream, capture, node):
        """Order a stream after a node.

        If `capture` is None, the node is outside of captures. Otherwise it is in this capture.
        """
        if capture is None:
            self.oracle.wait(stream.model, node)
        else:
            capture.wait_inside(stream.model, node)

    def wait_for_stream(self, stream, other):
        answer, given = self._judge_wait_for(stream, other), other.given
        self.call("stream.wait(stream)", answer, lambda: stream.real.wait(given))
        if answer == OK:
            self._wait_for_thing(stream, other)

    def _judge_wait_for(self, stream, thing):
        """The answer if a stream waits for a stream, an event or a token."""
        if isinstance(thing, Stream):
            return self._judge_wait_for_stream(stream, thing)
        if isinstance(thing, Event):
            return self._judge_wait_for_event(stream, thing)
        answer = self._usable(stream)
        return self._judge_wait_for_token(stream, thing) if answer == OK else answer

    def _wait_for_thing(self, stream, thing):
        """Note that a stream waits for a stream, an event or a token.

        A wait for a token is skipped if the host knows it to be complete.
        """
        if isinstance(thing, Stream):
            self._wait(stream, thing.model.capture, self._snapshot(thing))
        elif isinstance(thing, Event):
            capture, _ = thing.model.point or (None, None)
            self._wait(stream, capture, thing.model.snapshot)
        elif not self.is_known(thing):
            thing.asked = True
            self._wait(stream, thing.capture, thing.node)
            if thing.capture is not None:
                thing.capture.cover(stream.model, thing.stream)

    def _judge_wait_for_stream(self, stream, other):
        usable, capture = self._usable(stream), other.model.capture
        if usable == OK and stream.model.in_capture and not capture:
            usable = CAPTURED
        if usable == OK and capture:
            usable = self._judge_wait(stream, capture)
        if usable == OK:
            usable = self._usable(other)
        if usable == OK and other.kind == "legacy":
            usable = self._runs(other)
        return self._judge_wait(stream, capture) if usable == OK else usable

    def _snapshot(self, stream):
        """The node of an event that would be recorded on the stream now."""
        if stream.model.capture:
            return stream.model.capture.point(stream.model, record=True)
        return self.oracle.snapshot(stream.model, record=True)

    def synchronize_stream(self, stream):
        usable = self._runs(stream)
        self.call("stream.synchronize()", usable, stream.real.synchronize)
        if usable == OK and self.waited:
            self._synchronized(stream)

    def _synchronized(self, stream):
        """Note that the host has waited for a stream."""
        self.oracle.synchronize(self.oracle.snapshot(stream.model, record=False))
        self.end_late()

    def ask_stream(self, stream, ask=None):
        ask = ask or (lambda: stream.real.done)
        done = self.call("stream.done", self._runs(stream), ask)
        if done:
            self.oracle.synchronize(self.oracle.snapshot(stream.model, record=False))
        return done

    def try_stream(self, stream):
        if self.ask_stream(stream, in_time(stream.real.synchronize)):
            self.end_late()

    def await_stream(self, stream, loop):
        usable = self._runs(stream)
        self.call("await stream", usable, self._awaiting(stream.real, loop))
        if usable == OK:
            self._synchronized(stream)

    def synchronize_context(self, place):
        captured = any(stream.capture for stream in place.domain.streams)
        answer = CAPTURED if captured else OK
        self.call("context.synchronize()", answer, place.context.synchronize)
        if answer == OK:
            self.oracle.synchronize_domain(place.domain)
            self.end_late()

    def end_late(self):
        """After a synchronization, end the loans that could not end before it."""

    # ---- events ----

    def make_event(self, place=None, timing=False):
        place = place or self.places[0]
        return Event(self.new(place, cu.Event, timing=timing), model.Event(), place, timing)

    def record(self, stream, event=None):
        """Record an event and return it. Without an argument, a new event is made."""
        answer = self._judge_record(stream, event)
        real = None if event is None else event.real
        made = self.call("stream.record()", answer, lambda: stream.real.record(real))
        if answer != OK:
            return None
        return self._recorded(stream, event or Event(made, model.Event(), stream.place))

    def _judge_record(self, stream, event=None):
        usable = self._usable(stream)
        if event is not None and event.place is not stream.place:
            usable = OTHER_CONTEXT
        elif usable == OK and event is not None and not event.model.open:
            usable = EVENT_CLOSED
        elif usable == OK and stream.kind == "legacy":
            usable = self._runs(stream)
        return usable

    def _recorded(self, stream, event):
        """Note that an event was recorded."""
        event.model.snapshot, event.model.point = self._snapshot(stream), None
        if stream.model.capture:
            event.model.point = stream.model.capture, event.model.snapshot
        return event

    def close_event(self, event):
        self.call("event.close()", OK, event.real.close)
        event.model.open = False

    def wait_for_event(self, stream, event):
        answer = self._judge_wait_for(stream, event)
        self.call("stream.wait(event)", answer, lambda: stream.real.wait(event.real))
        if answer == OK:
            self._wait_for_thing(stream, event)

    def _judge_wait_for_event(self, stream, event):
        answer = self._usable(stream)
        capture, _ = event.model.point or (None, None)
        if answer == OK:
            answer = self.oracle.judge_event(event.model).answer
        return self._judge_wait(stream, capture) if answer in (OK, CAPTURED) else answer

    def synchronize_event(self, event):
        answer = self.oracle.judge_event(event.model).answer
        self.call("event.synchronize()", answer, event.real.synchronize)
        if answer == OK and self.waited:
            self.oracle.synchronize(event.model.snapshot)

    def ask_event(self, event, ask=None):
        answer = self.oracle.judge_event(event.model).answer
        if self.call("event.done", answer, ask or (lambda: event.real.done)):
            self.oracle.synchronize(event.model.snapshot)

    def try_event(self, event):
        self.ask_event(event, in_time(event.real.synchronize))

    def elapsed(self, end, start):
        """Ask for the time between two events, which may not be complete."""
        answers = self._judge_elapsed(end, start)
        expected = answers if len(answers) > 1 else min(answers)
        found = self.call("elapsed_ms", expected, lambda: end.real.elapsed_ms(start.real))
        if found and end.model.snapshot in model.past(start.model.snapshot):
            self.agree("the time back to an event", found, 0)

    def _judge_elapsed(self, end, start):
        """The answers that are allowed. They depend on what the device has done."""
        for event in (start, end):
            answer = self.oracle.judge_event(event.model).answer
            answer = answer if answer != OK or event.timing else NO_TIMING
            if answer != OK:
                return frozenset({answer})
        if start.place is not end.place:
            return frozenset({OTHER_CONTEXT})
        snapshots = start.model.snapshot, end.model.snapshot
        ordered = snapshots[0] in model.past(snapshots[1])
        known = all(map(self.oracle.known, snapshots))
        return frozenset({OK, *(() if ordered else (LATER,)), *(() if known else (UNREADY,))})

    def await_event(self, event, loop):
        answer = self.oracle.judge_event(event.model).answer
        self.call("await event", answer, self._awaiting(event.real, loop))
        if answer == OK:
            self.oracle.synchronize(event.model.snapshot)

    # ---- tokens ----

    def is_known(self, token):
        if token.capture is not None:
            return False
        return token.node is None or self.oracle.known(token.node)

    def judge_token(self, token):
        """The answer if a token is waited for.

        The wait gives the token an event, unless the host knows the token to be complete.
        """
        answer = OK
        if token.capture is not None:
            return CAPTURED
        if not self.is_known(token) and not token.asked:
            stream = token.stream
            answer = self.oracle.judge_stream(stream).answer
            if answer == STREAM_CLOSED:
                answer = OK if stream.thread is None else ENDED
            if answer == OK and stream.in_capture:
                answer = CAPTURED
        return answer

    def _judge_wait_for_token(self, stream, token):
        if token.capture is not None:
            answer = self._judge_wait(stream, token.capture)
            return self.oracle.judge_stream(token.stream).answer if answer == OK else answer
        if not self.is_known(token) and stream.model.in_capture:
            return CAPTURED
        answer = self.judge_token(token)
        if answer == OK and not self.is_known(token):
            answer = self._judge_wait(stream, None)
        return answer

    def wait_for_token(self, stream, token):
        answer = self._judge_wait_for(stream, token)
        self.call("stream.wait(token)", answer, lambda: stream.real.wait(token.real))
        if answer == OK:
            self._wait_for_thing(stream, token)

    def synchronize_token(self, token):
        self._wait_for("token.wait()", token, token.real.wait)

    def await_token(self, token, loop):
        self._wait_for("await token", token, self._awaiting(token.real, loop))

    def _awaiting(self, awaited, loop):
        self.awaited = True
        for stream in self.currents:
            stream.kept = True

        async def waiting():
            await awaited

        return lambda: loop.run_until_complete(waiting())

    def _wait_for(self, what, token, wait):
        answer = self.judge_token(token)
        self.call(what, answer, wait)
        token.asked = token.asked or answer == OK
        if answer == OK and self.waited and not self.is_known(token):
            self.oracle.synchronize(token.node)

    def try_token(self, token):
        self.ask_token(token, in_time(token.real.wait))

    def ask_token(self, token, ask=None):
        known, answer = self.is_known(token), self.judge_token(token)
        done = self.call("token.done", answer, ask or (lambda: token.real.done))
        token.asked = token.asked or (answer == OK and not known)
        if known:
            self.agree("token.done of what the host knows", done, True)
        elif done:
            self.oracle.synchronize(token.node)


def uses_by_byte(buffer):
    """The uses that the library shows for each byte. The ranges of its records do not matter."""
    return {
        (byte, borrow._replace(start=0, stop=0))
        for borrow in buffer.real.borrows
        for byte in range(borrow.start, borrow.stop)
    }


def in_time(wait):
    """Turn a wait into a query: whether a wait with a timeout of zero succeeds."""

    def ask():
        try:
            wait(timeout=0)
        except TimeoutError:
            return False
        return True

    return ask


def new_stream(kind, context):
    """Make a stream. Returns its object, and the other library's object if that library made it."""
    if kind == "legacy":
        return cu.Stream.legacy(), None
    if kind == "per_thread":
        return cu.Stream.per_thread(), None
    if kind.startswith("foreign"):
        owner = Foreign(context, blocking=kind == "foreign_blocking")
        return cu.Stream.from_object(owner), owner
    return cu.Stream(blocking=kind == "blocking", name=kind), None


class Gate:
    """A gate stops streams until it is opened: they wait until the host writes a flag.

    The garbage collector is disabled meanwhile. It could run a destructor that waits in a real
    driver: destroying an executable graph with conditional nodes waits for all streams of the
    context. Then no thread could open the gate.
    """

    def __init__(self):
        # The flag is not from a pool, because no stream may order the use of its memory.
        self.flag = cu.LockedBuffer(1, "u4", pooled=False)
        self.flag[0] = 0  # `fill` would run on the current stream
        self.wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
        self.wait.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32]
        self.holds = 0

    def hold(self, stream):
        self.holds += 1
        gc.disable()
        with stream.place.context:
            status = self.wait(stream.real.handle, self.flag.address, self.holds, 0)
        assert status == 0, f"cuStreamWaitValue32: {status}"

    def open(self):
        self.flag[0] = self.holds
        gc.enable()


class Foreign:
    """A stream that another library made. It is destroyed with this object."""

    def __init__(self, context, blocking):
        self.driver = ctypes.CDLL(cu.driver_info().path)
        handle = ctypes.c_void_p()
        with context:
            status = self.driver.cuStreamCreate(ctypes.byref(handle), 0 if blocking else 1)
        assert status == 0, f"cuStreamCreate: {status}"
        self.handle = handle.value

    def __cuda_stream__(self):
        return 0, self.handle

    def __del__(self):
        status = self.driver.cuStreamDestroy_v2(ctypes.c_void_p(self.handle))
        assert status == 0, f"cuStreamDestroy: {status}"
