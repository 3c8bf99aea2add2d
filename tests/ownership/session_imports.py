"""The steps of a program that use memory of other libraries, or memory by its address."""

import ctypes
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

from capsules import new_capsule
from effects import Add
from oracle import BORROWED, EXPORTED, HELD, MEMORY_CLOSED, OK
from session import (
    IS_PART,
    LIVE,
    NO_STREAM,
    NOT_OURS,
    NOT_THEIRS,
    OF_POOL,
    PARTS_LIVE,
    READ_ONLY,
    USED_PARTS,
    WAITED,
    Place,
    Stream,
    Token,
)
from session_buffers import CLASSES, Buffer, Memory, stream_option
from session_kernels import MODES
from session_loans import LoanSession, driver, fill_raw, handle_of

import cudadrv as cu

DEVICES = {"device": 2, "locked": 3, "unified": 13}  # DLPack's numbers of the kinds of memory


@dataclass(eq=False)
class Raw:
    """Memory that `into_raw` has given away, with its bytes."""

    address: int
    kind: str
    place: Place
    bytes: Any
    pool: Any


@dataclass(eq=False)
class Theirs:
    """Memory of another library, which uses it on one stream.

    Several arrays may have the same bytes.
    """

    owner: "Owner"
    memory: Memory
    stream: Stream
    # A buffer over bytes behind the memory; it keeps the records of the allocation alive. None if
    # all buffers over the memory are given back.
    records: cu.Buffer | None
    busy: bool = False  # whether the other library's own work may be unfinished


class Array:
    """An array of another library with the CUDA Array Interface."""

    def __init__(self, theirs, start, shape, stream, readonly=False):
        self.theirs = theirs
        self.interface = {
            "shape": shape,
            "typestr": "|u1",
            "data": (theirs.owner.address.value + start, readonly),
            "version": 3,
            "stream": stream,
        }

    @property
    def __cuda_array_interface__(self):
        return self.interface


class Tensor:
    """An array of another library with DLPack.

    It orders the consumer's stream after its own stream.
    """

    def __init__(self, theirs, start, shape, session, readonly=False):
        self.theirs, self.start, self.shape, self.session = theirs, start, shape, session
        self.readonly = readonly

    def __dlpack_device__(self):
        kind, place = self.theirs.memory.kind, self.theirs.memory.place
        return DEVICES[kind], place.context.device.ordinal if kind != "locked" else 0

    def __dlpack__(self, stream=None, max_version=None):
        if stream not in (None, -1):
            self.session.order_raw(stream, self.theirs)
        address = self.theirs.owner.address.value + self.start
        device = self.__dlpack_device__()
        return new_capsule(address, device, self.shape, 1, self.readonly, self.theirs)


class ImportSession(LoanSession):
    # ---- addresses ----

    def into_raw(self, buffer, parts):
        """Give the memory away. `parts` says whether other objects refer to parts of it."""
        self.settle()
        answer = self._judge_raw(buffer, parts)
        address = self.call("into_raw", answer, buffer.real.into_raw, buffer)
        if answer != OK:
            return None
        memory = buffer.memory
        memory.model.closed = True
        return Raw(address, memory.kind, memory.place, memory.bytes, memory.pool)

    def _judge_raw(self, buffer, parts):
        if buffer.closed:
            return MEMORY_CLOSED
        if buffer.part:
            return IS_PART
        if buffer.memory.of_driver_pool:
            return OF_POOL
        self.take_address(buffer)
        if not buffer.memory.owned:
            return NOT_OURS
        if buffer.memory.model.views:
            return EXPORTED
        if self.oracle.is_held(*buffer.use("close")[:3]):
            return HELD
        if self.oracle.borrowed_bytes(buffer.memory.model):
            return BORROWED
        return PARTS_LIVE if parts else OK

    def from_raw(self, raw):
        """Take memory back from a raw address. The new buffer has no uses."""
        make = lambda: CLASSES[raw.kind].from_raw(raw.address, len(raw.bytes))  # noqa: E731
        buffer = self.new_buffer("from_raw", make, raw.kind, len(raw.bytes), raw.place)
        buffer.memory.bytes[:], buffer.memory.pool = raw.bytes, raw.pool
        return buffer

    def from_raw_of_live(self, buffer):
        make = CLASSES[buffer.memory.kind].from_raw
        address = self.take_address(buffer)
        call = lambda: self.new(buffer.memory.place, make, address, buffer.nbytes)  # noqa: E731
        self.call("from_raw of a live buffer's memory", LIVE, call, buffer)

    def from_address(self, kind, nbytes, place):
        """Make a buffer over memory that another library allocates, and frees at the end."""
        owner = Owner(kind, nbytes, place.context)
        make = lambda: CLASSES[kind].from_address(  # noqa: E731
            owner.address.value, nbytes, owner=owner
        )
        made = self.new_buffer("from_address", make, kind, nbytes, place, owned=False)
        made.memory.shares, made.memory.owner = True, weakref.ref(owner)
        return made

    def overlay(self, buffer):
        """Make a second buffer over the bytes of a live buffer. Both share the buffer's records."""
        make = CLASSES[buffer.memory.kind].from_address
        address = self.take_address(buffer)
        memory = buffer.memory
        options = {"owner": memory.owner and memory.owner()}
        made = self._over(memory, buffer.start, lambda: make(address, buffer.nbytes, **options))
        options.clear()
        made.memory.home, made.memory.owner = memory.home or memory, memory.owner
        return made

    def _over(self, memory, start, make, answer=OK):
        """Make a buffer over bytes that other buffers may use, too."""
        real = self.call("a buffer over memory", answer, lambda: self.new(memory.place, make))
        if answer not in (OK, WAITED):
            return None
        shared = Memory(
            memory.model, memory.kind, memory.place, owned=False, bytes=memory.bytes, shares=True
        )
        shared.pool, shared.of_module = memory.pool, memory.of_module
        return Buffer(real, shared, start, real.nbytes, part=False)

    # ---- arrays of other libraries ----

    def open_theirs(self, kind, nbytes, stream, value):
        """Let another library allocate memory and fill it on its stream."""
        place = stream.place
        owner = Owner(kind, nbytes + 8, place.context)
        memory = Memory(self.oracle.open_memory(nbytes, kind == "unified"), kind, place)
        theirs = Theirs(owner, memory, stream, None)
        self.work_raw(theirs, 0, nbytes, value)
        return theirs

    def keep_records(self, theirs):
        """Keep the records of the allocation, even when buffers over it are dropped.

        Without this, the library forgets work of dropped buffers when the driver has completed it.
        """
        memory, address = theirs.memory, theirs.owner.address.value
        nbytes = memory.model.nbytes
        make = lambda: CLASSES[memory.kind].from_address(address + nbytes, 8)  # noqa: E731
        theirs.records = self.new(memory.place, make)

    def work_raw(self, theirs, start, stop, value):
        """Let another library fill some of its own memory."""
        with theirs.memory.place.context:
            fill_raw(theirs.owner.address.value + start, value, stop - start, theirs.stream)
        theirs.memory.bytes[start:stop] = value
        theirs.busy = True

    def wait_raw(self, theirs):
        """Let another library wait for all of its own work."""
        if theirs.busy:
            with theirs.memory.place.context:
                assert driver().cuCtxSynchronize() == 0
        theirs.busy = False

    def order_raw(self, stream, theirs):
        """Let another library make a stream wait for its own stream."""
        if not theirs.busy:
            return
        event, handle = ctypes.c_void_p(), theirs.stream.real.handle
        with theirs.memory.place.context:
            status = [driver().cuEventCreate(ctypes.byref(event), 2)]
            status.append(driver().cuEventRecord(event, ctypes.c_void_p(handle)))
            status.append(driver().cuStreamWaitEvent(ctypes.c_void_p(stream), event, 0))
            status.append(driver().cuEventDestroy_v2(event))
        assert status == [0] * 4, f"statuses of another library's calls: {status}"
        self.unseen.update(("cuEventRecord", "cuStreamWaitEvent"))

    def from_dlpack(self, theirs, start, shape, stream, readonly=False, ordered=False):
        """Import an array by DLPack.

        The import counts as a write on the stream. The other library has ordered this stream after
        its own work. With `ordered`, its work is complete, and the import does not
        count as a use.
        """
        place = theirs.memory.place
        options, on = stream_option(stream), self._stream_of_import(stream, place)
        seen = theirs.memory.kind != "locked" and not ordered
        if not seen:
            self.wait_raw(theirs)
        make = lambda: cu.from_dlpack(  # noqa: E731
            Tensor(theirs, start, shape, self, readonly), **options, ordered=ordered
        )
        return self._import(theirs, start, shape, make, on, seen)

    def from_cuda_array(self, theirs, start, shape, stream, named, readonly=False, ordered=False):
        """Import an array by the CUDA Array Interface.

        The stream waits for the stream that the interface names, or else for the legacy default
        stream. With `ordered`, it waits for none, and the import does not count as a use.
        """
        place = theirs.memory.place
        options, on = stream_option(stream), self._stream_of_import(stream, place)
        array = Array(theirs, start, shape, handle_of(named), readonly)
        waits = [] if ordered else self._wait_for_owner(theirs, named, on)

        def make():
            try:
                return cu.from_cuda_array(array, **options, ordered=ordered)
            except cu.OwnershipError:
                self.unseen.update(waits)  # the library has already inserted a wait
                raise

        if ordered:
            self.wait_raw(theirs)
        return self._import(theirs, start, shape, make, on, not ordered)

    def _wait_for_owner(self, theirs, named, on):
        """Order a stream after the stream that an array interface names, or the legacy one.

        Returns the driver calls by which the library does it.
        """
        after = named or self.open_stream("legacy", theirs.memory.place)
        if theirs.stream is not after:
            self.wait_raw(theirs)
        if after is on:
            return []
        self.oracle.wait(on.model, self.oracle.snapshot(after.model, record=True))
        return ["cuEventRecord", "cuStreamWaitEvent"]

    def _import(self, theirs, start, shape, make, on, noted):
        memory, stop = theirs.memory, start + product(shape)
        answer = OK
        write = (memory.model, start, stop, "write")
        if noted:
            answer = self.oracle.judge(on.model, [write], "unchecked", passive=True).answer
        made = self._over(memory, start, make, answer)
        if made is None:
            return None
        self.agree("shape", made.real.shape, shape)
        if noted:
            self.oracle.issue(on.model, [write], next(self.sites), passive=True)
        self.oracle.follow_returns(on.model, memory.model, start, stop)
        return made

    def write_constant(self, buffer, stream, way):
        """Try to write memory that another library exported as read-only."""
        real = buffer.real
        flat = real.flat if len(real.shape) > 1 else real
        calls = {
            "fill": lambda: real.fill_async(0, stream.real),
            "part": lambda: flat[:2].copy_from_async(flat[2:4], stream.real),
            "lend": lambda: real.lend(stream.real).__enter__(),
            "export": lambda: (
                real.reshape(-1).lend(stream.real).__dlpack__(stream=handle_of(stream))
            ),
        }
        self.call(f"{way} of what is read-only", READ_ONLY, calls[way], buffer)

    def _stream_of_import(self, stream, place):
        return self.current(stream, place) or self.open_stream("legacy", place)

    def give_back(self, buffer, stream, parts):
        """End an import: the stream waits for all uses.

        `parts` says whether other objects refer to parts of it.
        """
        self.settle()
        given, on = stream_option(stream), self.current(stream, buffer.memory.place)
        owner = buffer.memory.owner and buffer.memory.owner()
        answer = self._judge_give_back(buffer, on, parts)
        call = lambda: buffer.real.give_back(*([] if stream is None else given.values()))  # noqa: E731
        if owner is not None:
            owner.waits = on.place.context if answer in (OK, WAITED) else None
        del owner
        self.call("give_back", answer, call, buffer)
        if answer not in (OK, WAITED):
            return False
        self.oracle.give_back(on.model, *buffer.use("write")[:3], next(self.sites))
        buffer.memory.ended = True
        return True

    def _judge_give_back(self, buffer, on, parts):
        if (usable := self._judge_end_of_import(buffer, on, parts)) != OK:
            return usable
        if (usable := self._usable(on)) != OK:
            return usable
        return self._judge_order(on.model, [(buffer, "leave")], "wait", passive=True)

    def _judge_end_of_import(self, buffer, on, parts):
        """The answer to `give_back`, without the checks of the stream's state."""
        if buffer.closed:
            return MEMORY_CLOSED
        if buffer.part:
            return IS_PART
        if not buffer.memory.shares or not buffer.nbytes:
            return NOT_THEIRS
        if parts:
            return USED_PARTS
        if any(view.of is buffer.memory for view in buffer.memory.model.views):
            return EXPORTED
        return NO_STREAM if on is None else OK

    def launch_theirs(self, out, theirs, start, b, stream, mode, tensor):
        """Launch a kernel whose second argument is an array of another library: out = array + b."""
        nbytes = min(out.nbytes, theirs.memory.model.nbytes - start)
        a = Buffer(None, theirs.memory, start, nbytes, part=False)
        unseen = Counter()
        if tensor:
            array = Tensor(theirs, start, (nbytes,), self)
            if theirs.memory.kind == "locked":
                self.wait_raw(theirs)
        else:
            array = Array(theirs, start, (nbytes,), None)
            if nbytes:
                unseen.update(self._wait_for_owner(theirs, None, stream))
        waits = self.oracle.follow_returns(stream.model, a.memory.model, a.start, start + nbytes)
        unseen["cuStreamWaitEvent"] += len(waits)
        unseen["cuEventRecord"] += sum(other.open for other in waits)
        uses = [(out, "write"), (a, mode), (b, "read")]
        size = min(nbytes, b.nbytes)
        answer, on = self._judge_launch(stream.place, stream, uses)
        args = out.real, MODES[mode](array), MODES["read"](b.real), size
        add, options = self.kernel(stream.place), stream_option(stream)

        def call():
            try:
                return add.launch(1, 1, *args, **options)
            except cu.OwnershipError:  # the refused call may already have inserted its waits
                self.unseen.update(unseen)
                raise

        result = self.call("launch with an array", answer, call, out, b)
        self.after_use(out, b)
        if answer not in (OK, WAITED):
            return None
        accesses = [buffer.use(use) for buffer, use in uses]
        node = self.oracle.issue(on, accesses, next(self.sites))
        Add(size)(out, a, b)
        return Token(result, node, [out, b], on)


def product(shape):
    total = 1
    for size in shape:
        total *= size
    return total


class Owner:
    """Memory of another library. It is freed with this object."""

    def __init__(self, kind, nbytes, context):
        self.kind, self.context, self.address = kind, context, ctypes.c_uint64()
        self.waits = None  # the context of the stream that waits for the uses of a closed import
        made, size = ctypes.byref(self.address), ctypes.c_size_t(nbytes)
        with context:
            if kind == "device":
                status = driver().cuMemAlloc_v2(made, size)
            elif kind == "locked":
                status = driver().cuMemHostAlloc(made, size, 3)
            else:
                status = driver().cuMemAllocManaged(made, size, 1)
        assert status == 0, f"allocating {kind} memory: {status}"

    def __del__(self):
        free = driver().cuMemFreeHost if self.kind == "locked" else driver().cuMemFree_v2
        if self.waits is not None:
            with self.waits:
                driver().cuCtxSynchronize()
        with self.context:
            status = free(self.address)
        assert status == 0, f"freeing {self.kind} memory: {status}"
