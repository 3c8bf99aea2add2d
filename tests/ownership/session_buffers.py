"""The steps of a program that concern buffers, and the bytes that must be in them.

In an accepted program, operations on the same bytes are ordered, and the calls come in an order
that the graph allows. So the effects on each byte are applied in the order of the calls.
"""

import time
import weakref
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import oracle as model
from effects import UNKNOWN, Called, Copy, Fill, Invert, all_of, an_item, of_box
from oracle import CAPTURED, HELD, MEMORY_CLOSED, MUST_WAIT, OK
from session import (
    FILL_BY_PARTS,
    IS_PART,
    NO_STREAM,
    NO_SUCH_FILL,
    NOT_ORDERED,
    OTHER_CONTEXT,
    OVERLAP,
    WAITED,
    Failed,
    Place,
    Stream,
    Token,
)
from session_peers import DEFAULT, PeerSession, are_apart

import cudadrv as cu

CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}


def flat(real):
    """A buffer, or the same items with one dimension."""
    return real.flat if len(real.shape) > 1 else real


@dataclass(eq=False)
class Memory:
    model: model.Memory
    kind: str
    place: Place
    stream: Stream | None = None  # the stream on which stream-ordered memory was allocated
    owned: bool = True
    of_driver_pool: bool = False
    of_module: bool = False  # whether it is a variable of a module
    bytes: Any = None
    # Whether several buffers may be made over the same bytes and share their records.
    shares: bool = False
    ended: bool = False
    home: "Memory | None" = None  # the cudadrv memory over whose bytes this memory lies
    owner: Any = None  # a weak reference to the owner object of another library
    # The access of its allocation on a stream, until the first use.
    unused: model.Access | None = None
    pool: Any = None  # DEFAULT or a DriverPool, if it is device memory from a pool of the driver
    whole: Any = None  # a weak reference to the buffer over the whole memory
    shareable: bool = False  # page-locked memory that other processes can map
    in_place: bool = False  # memory of an array, which is page-locked where it is
    was_shared: bool = False  # whether another process may still have it mapped
    opened: bool = False  # whether it was opened by a ticket of another process
    shape: tuple = ()  # of an array (session_textures)
    # The last loan that began right after another one. The uses of both may count together.
    continued: Any = None

    def __post_init__(self):
        if self.bytes is None:
            self.bytes = np.full(self.model.nbytes, UNKNOWN, "i2")

    @property
    def closed(self):
        return self.ended or self.model.closed

    @property
    def grows(self):
        """Whether the library allocated the memory with a capacity, so that it can grow."""
        return self.model.end is not None and not self.shares

    @property
    def is_known(self):
        """Whether the library knows how the memory was allocated."""
        return self.owned and not self.of_module

    @property
    def can_be_shared(self):
        """Whether another process can map the memory."""
        if not self.owned or self.of_module or self.model.end is not None:
            return False
        return self.shareable or (self.kind == "device" and self.pool is None)

    @property
    def is_stream_ordered(self):
        return self.of_driver_pool or (self.kind == "device" and self.stream is not None)

    @property
    def group(self):
        """A key that is equal for memories that can replace each other in a copy node."""
        if self.is_stream_ordered:
            return f"stream-ordered {self.kind}", None
        return "locked" if self.kind == "locked" else "device or managed", self.place

    def can_replace(self, present, as_source, place):
        """Whether a copy node of a graph in `place` can use this memory instead of `present`.

        The driver checks the context of the source. The library checks the context of all memory
        that it has allocated. The driver also distinguishes memory of its pools, even where the
        library does not know of the pool.
        """
        if (self.pool is None) != (present.pool is None):
            return False
        known = self.is_known and present.is_known
        if known and self.place_for(place) is not present.place_for(place):
            return False
        minds = as_source or known
        return self.group == present.group if minds else self.group[0] == present.group[0]

    def place_for(self, place):
        """The context of this memory for a copy or a fill node of a graph in `place`."""
        near = self.kind != "device" or self.place.context.device == place.context.device
        return place if self.is_stream_ordered and near else self.place


class BoxBytes:
    """The bytes that a box must have. Assignments to its items, as to an array, change the memory's
    bytes.
    """

    def __init__(self, array, places):
        self.array, self.places = array, places

    def __getitem__(self, key):
        return self.array[self.places[key]]

    def __setitem__(self, key, values):
        self.array[self.places[key]] = values

    def __ne__(self, other):
        return self.copy() != other

    def copy(self):
        return self.array[self.places]


class Layout:
    """The places of the bytes of a box in its memory, in the order of its items."""

    def __init__(self, places):
        self.places, self.stop = places, model.BoxStop.of(places.tolist())
        gaps = np.flatnonzero(np.diff(places) != 1)
        self.run = int(gaps[0]) + 1  # bytes of the first row, the only ones that kernels reach
        rows = places[np.concatenate(([0], gaps + 1))]
        self.has_slices = len(set(np.diff(rows).tolist())) > 1


@dataclass(eq=False)
class Buffer:
    """A buffer, or a part of one. `start` is its offset in the memory that shares its records."""

    real: cu.Buffer
    memory: Memory
    start: int
    nbytes: int
    part: bool
    policy: str | None = None
    moved: bool = False
    grows: bool = False  # whether its size can change
    kept: list = field(default_factory=list)  # the `KeptBuffer`s of graphs
    layout: Layout | None = None  # None: there are no gaps between its items

    is_signal = False

    def change(self, **fields):
        """Set fields of the buffer, and of the `KeptBuffer`s that graphs have of it."""
        for each in (self, *self.kept):
            vars(each).update(fields)

    def keep(self):
        """Return a `KeptBuffer` for a graph. The program may then drop the buffer itself.

        Of a buffer that can grow, a graph keeps a part, which does not change with the buffer.
        """
        kept = KeptBuffer(None, self.memory, self.start, self.nbytes, self.part, self.policy)
        kept.reference, kept.layout = weakref.ref(self.real), self.layout
        if self.part or not self.memory.grows:
            self.kept.append(kept)
        return kept

    def is_object(self, real):
        """Whether this is the model of the library's buffer `real`."""
        return self.real is real

    @property
    def closed(self):
        return self.moved or self.memory.closed or self.gone

    @property
    def gone(self):
        """Whether some bytes of this buffer are past the end of memory that has shrunk."""
        end = self.memory.model.end
        return end is not None and self.nbytes > 0 and self.stop > end

    @property
    def stop(self):
        """The end of the buffer in its memory. A box's end knows which bytes are in the box."""
        return self.start + self.nbytes if self.layout is None else self.layout.stop

    @property
    def run(self):
        """The number of bytes without a gap at the beginning of the buffer."""
        return self.nbytes if self.layout is None else self.layout.run

    @property
    def on_host(self):
        return self.memory.kind != "device"

    def fits(self, stream):
        """Whether the buffer can be used on a stream of the oracle."""
        return self.on_host or self.memory.place.domain is stream.domain

    def goes_to(self, place):
        return self.on_host or self.memory.place is place

    @property
    def bytes(self):
        """The bytes that the buffer must have: a writable view of the memory's bytes."""
        if self.layout is not None:
            return BoxBytes(self.memory.bytes, self.layout.places)
        return self.memory.bytes[self.start : self.start + self.nbytes]

    def use(self, mode):
        return (self.memory.model, self.start, self.stop, mode)


class KeptBuffer(Buffer):
    """A buffer that a graph keeps alive."""

    def is_object(self, real):
        return self.reference() is real


class BufferSession(PeerSession):
    # ---- making and ending buffers ----

    def allocate(
        self, kind, nbytes, stream=None, place=None, driver_pool=False, in_place=False, **options
    ):
        """Allocate a buffer.

        With `driver_pool`, the memory comes from a pool of the driver, on a stream. With
        `in_place`, it is the memory of an array.
        """
        if stream is not None:
            options["stream"] = stream.given
        place = stream.place if stream else place or self.places[0]
        pool = self.driver_pool(kind, place) if driver_pool else nullcontext()

        def make():
            if in_place:
                return self.new(place, CLASSES[kind].from_memory, np.zeros(nbytes, "u1"))
            with pool:
                return self.new(place, CLASSES[kind], nbytes, **options)

        given, pooled = stream, nbytes and options.get("pooled", True) and not in_place
        if pooled:
            stream = self.current(stream, place)
        ordered = driver_pool or kind == "device"
        on = stream if pooled and not ordered and takes_order(stream) else None
        stream = stream if ordered else on or given
        usable = OK if stream is None else self._usable(stream)
        if usable == OK and stream is not None and stream.model.in_capture:
            if ordered and nbytes and (driver_pool or stream.kind == "legacy"):
                usable = CAPTURED
            # Memory that is not from a driver's pool exists before any launch of the graph. A
            # buffer without bytes keeps its stream.
            stream, on = stream if driver_pool else None, None
        made = self.call("allocation", usable, make)
        if made is None:
            return None
        waits = driver_pool and stream is None
        if waits:
            stream = self.internal(place)
        stream = stream if ordered else None
        if (
            kind == "device"
            and not nbytes
            and options.get("pooled", True)
            and (stream or not given)
        ):
            stream = self.current(stream, place)
            if not driver_pool and stream is not None and stream.model.in_capture:
                stream = None
        memory = Memory(self.oracle.open_memory(nbytes, kind == "unified"), kind, place, stream)
        memory.of_driver_pool = driver_pool and nbytes > 0
        memory.shareable = options.get("shareable", False)
        memory.in_place = in_place
        if kind == "device" and memory.is_stream_ordered:
            memory.pool = pool if memory.of_driver_pool else DEFAULT
        buffer = Buffer(made, memory, 0, nbytes, part=False)
        user = stream or on
        if user is not None and nbytes:
            self.oracle.issue(user.model, [buffer.use("write")], next(self.sites), passive=True)
        if waits and nbytes:
            self.oracle.synchronize(self.oracle.snapshot(stream.model, record=False))
            self.end_late()
        if on is not None:
            memory.unused, memory.whole = memory.model.accesses[-1], weakref.ref(made)
        return buffer

    def use_on_host(self, *buffers):
        """Note that the host uses buffers.

        A first use by the host ends the order of the allocation.
        """
        for buffer in buffers:
            if buffer.memory.unused is not None and not buffer.closed:
                if not buffer.nbytes:  # not every access of no bytes counts as the first use
                    assert buffer.real.address
                buffer.memory.model.accesses.remove(buffer.memory.unused)
                buffer.memory.unused = None

    def take_address(self, buffer):
        """Return the address. If this is the first use, the host is the first user."""
        self.use_on_host(buffer)
        return buffer.real.address

    def after_use(self, *buffers):
        """Find out whether stream-ordered host memory was used for the first time, and by whom.

        If its address was not known, a stream has chosen the address, and the allocation stays a
        write. Otherwise the host now ends the order of the allocation.
        """
        for memory in {buffer.memory for buffer in buffers if buffer.memory.unused is not None}:
            whole, access = memory.whole(), memory.unused
            if whole is None or memory.closed:
                continue
            assert whole.address
            memory.unused = None
            if not any(borrow.operation == "its allocation" for borrow in whole.borrows):
                memory.model.accesses.remove(access)

    def internal(self, place):
        """The internal stream of a context, for blocking calls without a stream."""
        return Stream(None, place.internal, "internal", place)

    def driver_pool(self, kind, place):
        """The program's pool of the driver for buffers of this kind."""
        device = place.context.device if kind == "device" else None
        if (kind, device) not in self.driver_pools:
            self.driver_pools[kind, device] = cu.DriverPool(kind, device)
        return self.driver_pools[kind, device]

    @cached_property
    def driver_pools(self):
        return {}

    def part(self, buffer, start, stop, how="slice"):
        """Make a part with the bytes from `start` to `stop`, by one of several calls."""
        real, size = buffer.real, buffer.real.itemsize
        if not buffer.closed:
            real = flat(real)
        first, last = start // size, stop // size
        ways = {
            "slice": lambda: real[first:last],
            "split": lambda: real.split_at(last)[0].split_at(first)[1],
            "chunks": lambda: real[first:last].chunks(max(last - first, 1))[0],
        }
        if start == stop:
            how = "slice"
        answer = MEMORY_CLOSED if buffer.closed else OK
        made = self.call(f"part by {how}", answer, ways[how], buffer)
        if made is None:
            return None
        begin = buffer.start + first * size
        return Buffer(made, buffer.memory, begin, (last - first) * size, True, buffer.policy)

    def new_buffer(self, what, make, kind, nbytes, place, owned=True):
        """Make a buffer over memory that exists."""
        made = self.call(what, OK, lambda: self.new(place, make))
        memory = Memory(
            self.oracle.open_memory(nbytes, kind == "unified"), kind, place, owned=owned
        )
        return Buffer(made, memory, 0, nbytes, part=False)

    def view_as(self, buffer, dtype):
        """Make a view of the same bytes as items of another dtype, whose size must fit."""
        answer = MEMORY_CLOSED if buffer.closed else OK
        made = self.call("view", answer, lambda: buffer.real.view(dtype), buffer)
        if made is None:
            return None
        return Buffer(made, buffer.memory, buffer.start, buffer.nbytes, True, buffer.policy)

    def reshape(self, buffer):
        """Make a view of the same items in another shape."""
        count = buffer.real.count
        shape = (count // 2, 2) if count % 2 == 0 and count else (1, -1)
        answer = MEMORY_CLOSED if buffer.closed else OK
        made = self.call("reshape", answer, lambda: buffer.real.reshape(*shape), buffer)
        if made is None:
            return None
        return Buffer(made, buffer.memory, buffer.start, buffer.nbytes, buffer.part, buffer.policy)

    def box(self, buffer, shape, key):
        """Make a part by an index of several dimensions, of the buffer in another shape."""
        flat = buffer.real.flat if len(buffer.real.shape) > 1 else buffer.real
        size = buffer.real.itemsize
        made = self.call("box", OK, lambda: flat.reshape(*shape)[key], buffer)
        every = np.arange(buffer.start, buffer.start + buffer.nbytes).reshape(*shape, size)
        found = every[key] if isinstance(key, tuple) else every[(key,)]
        self.agree("shape of a box", made.shape, found.shape[:-1])
        places = found.reshape(-1)
        start = int(places[0])
        part = Buffer(made, buffer.memory, start, len(places), True, buffer.policy)
        if int(places[-1]) - start + 1 != len(places):
            part.layout, buffer.memory.model.boxed = Layout(places), True
        return part

    def shape_as(self, buffer, shape):
        """Make a view of the items of a buffer without gaps, in this shape."""
        flat = buffer.real.flat if len(buffer.real.shape) > 1 else buffer.real
        made = self.call("reshape", OK, lambda: flat.reshape(*shape), buffer)
        return Buffer(made, buffer.memory, buffer.start, buffer.nbytes, buffer.part, buffer.policy)

    def take(self, buffer):
        answer = MEMORY_CLOSED if buffer.closed else OK
        if answer == OK and self.oracle.is_held(buffer.memory.model, buffer.start, buffer.stop):
            answer = HELD
        made = self.call("take", answer, buffer.real.take, buffer)
        if made is None:
            return None
        buffer.change(moved=True)
        if not buffer.part and buffer.memory.unused is not None:
            buffer.memory.whole = weakref.ref(made)
        taken = Buffer(made, buffer.memory, buffer.start, buffer.nbytes, buffer.part, buffer.policy)
        taken.grows = buffer.grows
        return taken

    # ---- buffers that grow ----

    def allocate_growing(self, nbytes, capacity, place):
        made = self.call(
            "allocation", OK, lambda: self.new(place, cu.DeviceBuffer, nbytes, capacity=capacity)
        )
        memory = Memory(self.oracle.open_memory(capacity, False), "device", place)
        memory.model.end = nbytes
        return Buffer(made, memory, 0, nbytes, part=False, grows=True)

    def grow(self, buffer, nbytes):
        answer = MEMORY_CLOSED if buffer.closed else OK
        self.call("grow", answer, lambda: buffer.real.grow(nbytes), buffer)
        if answer == OK:
            buffer.memory.model.end = buffer.nbytes = nbytes

    def shrink(self, buffer, nbytes):
        """Give back the last bytes. If the buffer grows again, these bytes are undefined."""
        answer = MEMORY_CLOSED if buffer.closed else OK
        if answer == OK and nbytes < buffer.nbytes:
            answer = self.oracle.cut(buffer.memory.model, nbytes)
        self.call("shrink", answer, lambda: buffer.real.shrink(nbytes), buffer)
        if answer == OK:
            buffer.memory.bytes[nbytes:] = UNKNOWN
            buffer.nbytes = nbytes

    def close(self, buffer, stream=None):
        real = None if stream is None else stream.given
        answer = self._judge_close(buffer, stream)
        self.call("close", answer, lambda: buffer.real.close(real), buffer)

    def _judge_close(self, buffer, stream):
        memory = buffer.memory
        if buffer.closed:
            return OK
        if buffer.part:
            return IS_PART
        if memory.stream is None and stream is not None:
            return NOT_ORDERED
        self.use_on_host(buffer)
        if memory.shares and buffer.nbytes:
            answer = self.oracle.judge_end(*buffer.use("close")[:3])
            memory.ended = answer == OK
            return answer
        if memory.stream is None or not buffer.nbytes:
            answer = self.oracle.close_memory(memory.model)
            # The memory is not stream-ordered, so a stream is refused, too; either error may come
            # first.
            return answer if answer == OK or stream is None else frozenset({answer, NOT_ORDERED})
        on = (stream or memory.stream).model
        if stream is not None and stream.place is not memory.place:
            return OTHER_CONTEXT
        if stream is None and not on.open:
            on = memory.place.internal
        usable = self.oracle.judge_stream(on).answer
        if usable == OK and on.in_capture:
            return CAPTURED
        return self.oracle.close_memory_on(memory.model, on, self.policy_of(buffer))

    def set_policy(self, buffer, policy):
        buffer.real.ordering = policy
        buffer.change(policy=policy)

    # ---- operations ----

    def _judge(self, stream, uses, blocking, of_array=False, more=(), calls=False):
        """Judge an operation: the answer, the oracle's stream, and whether there is work to do.

        `more` are uses that are only judged by their order, such as those of a batch's other items.

        The answer is the one after the waits that the policies insert.

        Copies from or to an array cannot be captured, and neither can blocking operations. Not all
        captures take an operation that `calls` a function.
        """
        buffers = [buffer for buffer, _ in uses]
        place = device_side(*buffers).memory.place
        apart = are_apart(*buffers)
        stream = self.current(stream, *(b.memory.place for b in buffers) if apart else (place,))
        on = place.internal if stream is None else stream.model
        overlapping, same = relation(*buffers)
        closed = [buffer for buffer in buffers if buffer.closed]
        # The library may check the stream and the other buffers first.
        if closed and all(buffer.gone for buffer in closed):
            answers = {MEMORY_CLOSED, self.oracle.judge_stream(on).answer}
            rest = [(buffer, mode) for buffer, mode in uses if buffer not in closed]
            policies = [self.policy_of(buffer) for buffer, _ in rest]
            accesses = [buffer.use(mode) for buffer, mode in rest]
            answers.add(self.oracle.judge(on, accesses, policies).answer)
            return frozenset(answers - {OK, MUST_WAIT}), on, False
        if closed:
            return MEMORY_CLOSED, on, False
        if stream is None and not blocking:
            return NO_STREAM, on, False
        if overlapping:
            return OVERLAP, on, False
        if not self.fit(buffers, on, strict=of_array):
            return OTHER_CONTEXT, on, False
        if (usable := self.oracle.judge_stream(on)) != model.YES:
            return usable.answer, on, False
        if on.capture is not None and (blocking or (of_array and buffers[0].nbytes)):
            return CAPTURED, on, False
        if on.capture is not None and calls and not on.capture.takes_calls:
            return CAPTURED, on, False
        if same or not buffers[0].nbytes:
            return OK, on, False
        if apart and on.capture is not None:
            answer = self.judge_captured_between(on, *buffers)
            if answer != OK:
                return answer, on, False
        if of_array and on.in_capture:  # the library may check the order first
            policies = [self.policy_of(buffer) for buffer in buffers]
            asked = self.oracle.judge(on, [buffer.use(mode) for buffer, mode in uses], policies)
            return frozenset({asked.answer, CAPTURED} - {OK, MUST_WAIT}), on, False
        return self._judge_order(on, [*uses, *more]), on, True

    def _judge_order(self, on, uses, policy=None, passive=False, lends=False):
        """The answer after the waits of a policy, by default of the policies in force."""
        if on.capture is not None:
            return self._judge_captured(on, uses, policy)
        if on.in_capture:
            return CAPTURED
        kind = {"passive": passive, "lends": lends}
        accesses = [buffer.use(mode) for buffer, mode in uses]
        policies = [policy or self.policy_of(buffer) for buffer, _ in uses]
        before = self.oracle.judge(on, accesses, policies, **kind).answer
        answer = self.oracle.judge_and_wait(on, accesses, policies, **kind).answer
        if answer == OK and self.oracle.judge(on, accesses, "strict", **kind).answer != OK:
            self.ordered = False
        return WAITED if answer == OK and before == MUST_WAIT else answer

    def _judge_captured(self, on, uses, policy=None):
        """The answer to a captured operation, after the waits of the policies."""
        capture = on.capture
        accesses = [buffer.use(mode) for buffer, mode in uses]
        policies = [policy or self.policy_of(buffer) for buffer, _ in uses]
        found = capture.judge_operation(self.here, on, accesses, policies)
        before, answer, strictly = found
        if answer == OK and not strictly:
            capture.plan.ordered = False
        return WAITED if answer == OK and before == MUST_WAIT else answer

    def issue(self, on, uses, effect, more=()):
        """Issue an accepted operation, or capture it. `effect` changes the bytes of its buffers.

        Returns its node. `more` are accesses that belong to no buffer.
        """
        site = next(self.sites)
        if on.capture is not None:
            return on.capture.add(on, kept(uses), effect, more, site)
        accesses = [*(buffer.use(mode) for buffer, mode in uses), *more]
        node = self.oracle.issue(on, accesses, site)
        effect(*(buffer for buffer, _ in uses))
        return node

    def _operate(self, what, stream, uses, blocking, call, effect=None, more=()):
        """Make an operation of the GPU. Returns whether it was accepted, and its token.

        An operation without an `effect` is a copy from or to an array. For `more` see `_judge`.
        """
        calls = isinstance(effect, Called)
        answer, on, something = self._judge(stream, uses, blocking, effect is None, more, calls)
        uses = [*uses, *more]
        buffers = [buffer for buffer, _ in uses]
        try:
            result = self.call(what, answer, call, *buffers)
        except Failed:
            self.after_failure(on, uses)
            return False, None
        self.after_use(*buffers)
        if answer not in (OK, WAITED) or not (self.waited or self.queued):
            return False, None
        node = None
        if something:
            node = self.issue(on, uses, effect or (lambda buffer: None))
            if on.capture is not None:
                self.need(on.capture.plan.holding, self.place_on(on), *buffers[:2])
            if blocking and self.waited:
                self.oracle.synchronize(node)
        elif on.capture is not None:
            node = on.capture.point(on, record=False)
        return True, None if blocking else Token(result, node, buffers, on, capture=on.capture)

    def after_failure(self, on, uses):
        """Tell the oracle about a failed call. Work that the driver accepted counts as borrowed.

        If the library could not undo the operation, uses of the same bytes in the same modes may
        stay, even where the driver accepted nothing.
        """
        self.failing = None
        left, self.kept = self.kept, []  # otherwise the session would keep the buffers alive
        self.after_use(*(buffer for buffer, _ in uses))
        accesses = [buffer.use(mode) for buffer, mode in uses]
        if self.queued:
            self.oracle.issue(on, accesses, next(self.sites))
            for buffer, mode in uses:
                if mode in ("write", "discard"):
                    buffer.bytes[:] = UNKNOWN
            return
        kept = [
            (each.memory.model, each.start + byte, each.start + byte + 1, mode)
            for each, byte, mode in left
        ]
        asked = {(memory, model.AS.get(mode, mode)) for memory, _, _, mode in accesses}
        self.agree("borrowed by a failure", {(use[0], use[3]) for use in kept} <= asked, True)
        if all(self.oracle.is_plain(*access) for access in accesses):
            found = sorted((start, mode) for _, start, _, mode in kept)
            self.agree("bytes that are used after a failure", found, [])
        elif self.ambiguous:
            self.synchronize_context(next(each for each in self.places if each.domain is on.domain))
            return
        if kept:
            self.oracle.fail(on, kept, next(self.sites))

    def copy(self, target, source, stream=None, blocking=False, inward=True):
        """Copy between buffers of the same number of bytes."""
        subject, other = (target, source) if inward else (source, target)
        method = getattr(subject.real, name_of("copy_from" if inward else "copy_to", blocking))
        options = stream_option(stream)
        uses = [(target, "write"), (source, "read")]
        call = lambda: method(other.real, **options)  # noqa: E731
        effect = of_box(Copy(target.real.dtype), target, source)
        _, token = self._operate(method.__name__, stream, uses, blocking, call, effect)
        return token

    def copy_in_a_batch(self, pairs, stream):
        """Copy between pairs of buffers. No memory that one of them writes is used by another."""
        real = [(target.real, source.real) for target, source in pairs]
        uses = [
            use for target, source in pairs for use in ((target, "write"), (source, "read"))
        ]  # fmt: skip
        call = lambda: cu.copy_batch(real, **stream_option(stream))  # noqa: E731
        copy = of_box(Copy(pairs[0][0].real.dtype), *pairs[0])
        effect = copy if len(pairs) == 1 else all_of(copy)
        _, token = self._operate("copy_batch", stream, uses[:2], False, call, effect, uses[2:])
        return token

    def call_function(self, target, source, stream):
        """Let a stream call a function: it copies bytes, or inverts those of the target."""
        uses, given, effect = self.call_of(target, source)
        on = stream_option(stream)["stream"]
        call = lambda: cu.Stream.from_object(on).call(copied_by_host, *given)  # noqa: E731
        _, token = self._operate("call", stream, uses, False, call, effect)
        return token

    def call_of(self, target, source):
        """The uses of a call of `copied_by_host`, its arguments, and its effect."""
        if source is None:
            return [(target, "write")], [target.real], Called(Invert())
        uses = [(target, "write"), (source, "read")]
        return uses, [target.real, cu.read(source.real)], Called(Copy(target.real.dtype))

    def fill(self, buffer, value, stream=None, blocking=False):
        """Fill a buffer with an item of some bytes."""
        number, item = an_item(buffer.real.dtype, value)
        method = getattr(buffer.real, name_of("fill", blocking))
        effect = of_box(Fill(item, buffer.real.dtype), buffer)
        _, token = self._on_either_side(buffer, "write", method, number, stream, blocking, effect)
        return token

    def copy_in(self, buffer, array, stream=None, blocking=False):
        """Copy from an array. The program changes the array after the call."""
        method = getattr(buffer.real, name_of("copy_from", blocking))
        items = shaped(array, buffer)
        done, token = self._on_either_side(buffer, "write", method, items, stream, blocking)
        if done:
            buffer.bytes[:] = array
        array[:] = 0
        return token

    def copy_out(self, buffer, stream=None):
        array = np.zeros(buffer.nbytes, "u1")
        done, _ = self._on_either_side(
            buffer, "read", buffer.real.copy_to, shaped(array, buffer), stream, True
        )
        if done and self.waited:
            self.compare("copy_to", array, buffer.bytes)
        elif done:
            self.left_alone.append(array)

    def _on_either_side(self, buffer, mode, method, argument, stream, blocking, effect=None):
        """Make an operation on one buffer. Without a stream, the host makes it if it can."""
        options = stream_option(stream)
        what, call = method.__name__, partial(method, argument, **options)
        current = self.current(stream, buffer.memory.place)
        if what.startswith("fill") and not is_filled(buffer, effect.item):
            self.call(what, MEMORY_CLOSED if buffer.closed else NO_SUCH_FILL, call, buffer)
            return False, None
        if current and current.model.capture and effect and fills_by_parts(buffer, effect):
            # The driver's capture can take only fills of one operation.
            order = current.model.capture.plan.order()
            answer, _, _ = self._judge(stream, [(buffer, mode)], blocking)
            current.model.capture.plan.restore(order)  # it is refused in any case: no wait stays
            answers = answer if isinstance(answer, frozenset) else {answer}
            allowed = frozenset(answers - {OK, WAITED} | {FILL_BY_PARTS})
            self.call(what, allowed, call, buffer)
            return False, None
        if blocking and buffer.on_host and current is None:
            done = self.host_access(what, buffer, mode, call)
            if done and effect is not None:
                effect(buffer)
            return done, None
        # A blocking copy without bytes queues nothing on the stream.
        if blocking and not buffer.nbytes and what != "fill":
            usable = OK if current is None else self._usable(current)
            answer = MEMORY_CLOSED if buffer.closed else usable
            self.call(what, answer, call, buffer)
            return answer == OK, None
        return self._operate(what, stream, [(buffer, mode)], blocking, call, effect)

    # ---- the host ----

    def judge_host(self, buffer, mode, lends=False):
        """The answer for a host access, after the waits of the policy in force."""
        if buffer.closed:
            return MEMORY_CLOSED
        self.use_on_host(buffer)
        request = (*buffer.use(mode), self.policy_of(buffer), lends)
        before = self.oracle.judge_export(*request).answer
        answer = self.oracle.judge_export_and_wait(*request).answer
        if answer == OK and self.oracle.judge_export(*request[:-2], "strict").answer != OK:
            self.ordered = False
        return WAITED if answer == OK and before == MUST_WAIT else answer

    def host_access(self, what, buffer, mode, call):
        """Make a host access that ends with the call. Returns whether it was accepted."""
        answer = self.judge_host(buffer, mode)
        self.result = self.call(what, answer, call, buffer)
        if answer in (OK, WAITED):
            self.oracle.change(*buffer.use(mode), next(self.sites))
        return answer in (OK, WAITED)

    def compare(self, what, got, expected):
        """Compare the bytes that the host sees with the expected ones, where those are known."""
        if self.ordered:
            known = expected != UNKNOWN
            self.agree(f"bytes of {what}", got[known].tolist(), expected[known].tolist())


def takes_order(stream):
    """Whether host-readable memory that is allocated on the stream is stream-ordered."""
    usual = stream is not None and stream.model.kind == "non_blocking"
    return usual and not stream.place.domain.host_excluded


def kept(uses):
    """Replace the buffers of uses by `KeptBuffer`s for a graph."""
    found = {buffer: buffer.keep() for buffer, _ in uses}
    return [(found[buffer], mode) for buffer, mode in uses]


def copied_by_host(target, source=None):
    """The function that streams call. Work that did not wait for it would run while it sleeps."""
    time.sleep(0.001)
    items = target.reshape(-1).view("u1")
    np.copyto(items, ~items if source is None else source.reshape(-1).view("u1"))


def shaped(array, buffer):
    """The items of an array of bytes, in the shape that a copy from or to the buffer takes."""
    items = array.view(buffer.real.dtype)
    return items if buffer.layout is None else items.reshape(buffer.real.shape)


def fills_by_parts(buffer, effect):
    """Whether a fill of a box takes several operations of the driver."""
    if buffer.layout is None:
        return False
    return buffer.layout.has_slices or (len(effect.item) > 4 and effect.words > 1)


def is_filled(buffer, item=None):
    """Whether the device can fill with this item; by default, with any item."""
    if item is not None and len(set(item.tolist())) == 1:
        return True
    size = buffer.real.itemsize if item is None else len(item)
    return size in (1, 2, 4, 8, 12, 16) and buffer.start % min(size, 4) == 0


def name_of(method, blocking):
    return method if blocking else method + "_async"


def stream_option(stream):
    return {"stream": None if stream is None else stream.given}


def device_side(target, source=None):
    """The buffer whose context a copy uses: device before managed before page-locked memory."""
    if source is None:
        return target
    managed = target.memory.kind == "unified" and source.memory.kind == "device"
    return source if target.memory.kind == "locked" or managed else target


def strides_of(buffer):
    """The strides of a buffer. Arrays have none: parts of one shape have the same bytes if they
    begin at the same one.
    """
    return getattr(buffer.real, "strides", None)


def relation(target, source=None):
    """Compare the bytes of two buffers.

    Returns whether they overlap partly, which copies refuse, and whether they begin at the same
    byte.
    """
    if source is None or target.memory.model is not source.memory.model:
        return False, False
    same = target.start == source.start
    if target.layout or source.layout:
        same = same and strides_of(target) == strides_of(source)
    return not same and model.overlap(target, source), same
