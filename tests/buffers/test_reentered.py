"""Arguments whose methods run code of the program, which closes or moves the buffer of the call."""

from types import SimpleNamespace

import numpy as np
import numpy.ma  # so that cudadrv calls isinstance for masked arrays
import pytest
from other_library import ADD

import cudadrv as cu

# One schedule suffices: no work is in flight.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)

COUNT = 8


class World:
    """A buffer, what a call can need beside it, and values that run `act` when they are used."""

    def __init__(self, buffer, act, stream):
        self.buffer, self.act, self.stream = buffer, act, stream
        self.done = False
        self.more = cu.DeviceBuffer.zeros(COUNT, "u4")
        self.add = cu.Module(ADD)["add"]

    def once(self):
        if not self.done:
            self.done = True
            self.act()

    def index(self, value):
        class Index:
            def __index__(_):
                self.once()
                return value

        return Index()

    def array(self, value):
        class Array:
            def __array__(_, *arguments, **options):
                self.once()
                return np.array(value, "u4")

        return Array()

    def number(self, value):
        class Number(float):
            def __float__(_):
                self.once()
                return float(value)

        return Number(value)

    def their_stream(self):
        def answer():
            self.once()
            return 0, self.stream.handle

        return SimpleNamespace(__cuda_stream__=answer)

    def dtype(self):
        class Dtype:
            @property
            def dtype(_):
                self.once()
                return np.dtype("u2")

        return Dtype()

    def iterable(self, *values):
        self.once()
        yield from values

    def claiming(self, array):
        """Something whose `__class__` is looked up by isinstance."""

        class Claiming(np.ndarray):
            @property
            def __class__(_):
                self.once()
                return Claiming

        return array.view(Claiming)

    def foreign(self):
        class Foreign:
            @property
            def __cuda_array_interface__(_):
                self.once()
                return {
                    "shape": (COUNT,),
                    "typestr": "<u4",
                    "data": (self.more.address, False),
                    "version": 3,
                    "stream": None,
                }

        return Foreign()


def items():
    return np.zeros(COUNT, "u4")


# ---- calls that use the memory ----

USES = {
    "fill": lambda w: w.buffer.fill(w.array(3)),
    "fill on a stream": lambda w: w.buffer.fill(1, stream=w.their_stream()),
    "fill_async": lambda w: w.buffer.fill_async(w.array(3), w.stream),
    "fill_async on a stream": lambda w: w.buffer.fill_async(1, w.their_stream()),
    "copy_from": lambda w: w.buffer.copy_from(w.more, stream=w.their_stream()),
    "copy_from an array": lambda w: w.buffer.copy_from(items(), stream=w.their_stream()),
    "copy_from a subclass": lambda w: w.buffer.copy_from(w.claiming(items())),
    "copy_from_async": lambda w: w.buffer.copy_from_async(w.more, w.their_stream()),
    "copy_from_async an array": lambda w: w.buffer.copy_from_async(items(), w.their_stream()),
    "copy_from_async a subclass": lambda w: w.buffer.copy_from_async(w.claiming(items()), w.stream),
    "copy_to": lambda w: w.buffer.copy_to(w.more, stream=w.their_stream()),
    "copy_to an array": lambda w: w.buffer.copy_to(items(), stream=w.their_stream()),
    "copy_to a subclass": lambda w: w.buffer.copy_to(w.claiming(items())),
    "copy_to_async": lambda w: w.buffer.copy_to_async(w.more, w.their_stream()),
    "copy_to us": lambda w: w.more.copy_to(w.buffer, stream=w.their_stream()),
    "copy_from us": lambda w: w.more.copy_from(w.buffer, stream=w.their_stream()),
    "copy_from_async us": lambda w: w.more.copy_from_async(w.buffer, w.their_stream()),
    "to": lambda w: w.buffer.to(cu.Device(0), copy=True, stream=w.their_stream()),
    "lend": lambda w: w.buffer.lend(w.their_stream()).__enter__(),
    "lend a shape": lambda w: w.buffer.lend(w.stream, shape=(w.index(COUNT),)).__enter__(),
    "lend strides": lambda w: w.buffer.lend(
        w.stream, shape=(COUNT,), strides=(w.index(4),)
    ).__enter__(),
    "dlpack": lambda w: w.buffer.__dlpack__(stream=w.index(w.stream.handle)),
    "dlpack version": lambda w: w.buffer.__dlpack__(stream=1, max_version=(w.index(1), 0)),
    "dlpack device": lambda w: w.buffer.__dlpack__(stream=1, dl_device=(2, w.index(0))),
    "launch grid": lambda w: w.add.launch(w.index(1), COUNT, w.buffer, w.more, stream=w.stream),
    "launch block": lambda w: w.add.launch(1, (w.index(1), 1), w.buffer, w.more, stream=w.stream),
    "launch bytes": lambda w: w.add.launch(
        1, 1, w.buffer, w.more, stream=w.stream, shared_bytes=w.index(0)
    ),
    "launch a number": lambda w: w.add.launch(1, 1, w.buffer, w.index(0), stream=w.stream),
    "launch after a number": lambda w: w.add.launch(1, 1, w.index(0), w.buffer, stream=w.stream),
    "launch an array": lambda w: w.add.launch(1, 1, w.buffer, w.foreign(), stream=w.stream),
    "launch after an array": lambda w: w.add.launch(1, 1, w.foreign(), w.buffer, stream=w.stream),
    "launch with In": lambda w: w.add.launch(
        1, 1, cu.In(w.claiming(items())), w.buffer, stream=w.stream
    ),
    "launch on a stream": lambda w: w.add.launch(1, 1, w.buffer, w.more, stream=w.their_stream()),
    "launch borrows": lambda w: w.add.launch(
        1, 1, w.more, w.more, stream=w.stream, borrows=w.iterable(w.buffer)
    ),
    "launch borrows an array": lambda w: w.add.launch(
        1, 1, w.more, w.more, stream=w.stream, borrows=[w.buffer, w.foreign()]
    ),
    "prepare": lambda w: w.add.prepare(w.index(1), 1, w.buffer, w.more).launch(w.stream),
    "prepare a number": lambda w: w.add.prepare(1, 1, w.buffer, w.index(0)).launch(w.stream),
    "prepared": lambda w: w.add.prepare(1, 1, w.buffer, w.more).launch(w.their_stream()),
    "add_fill": lambda w: cu.Graph().add_fill(w.buffer, w.array(3)),
    "add_fill after": lambda w: cu.Graph().add_fill(w.buffer, 3, after=w.iterable()),
    "add_copy after": lambda w: cu.Graph().add_copy(w.buffer, w.more, after=w.iterable()),
    "add_launch": lambda w: cu.Graph().add_launch(w.add, w.index(1), 1, w.buffer, w.more),
    "add_launch a number": lambda w: cu.Graph().add_launch(w.add, 1, 1, w.buffer, w.index(0)),
}

HOST_USES = {
    "item": lambda w: w.buffer[w.index(1)],
    "set item": lambda w: w.buffer.__setitem__(w.index(1), 5),
    "set item to": lambda w: w.buffer.__setitem__(1, w.array(5)),
    "set item to a number": lambda w: w.buffer.__setitem__(1, w.index(5)),
    "set slice": lambda w: w.buffer.__setitem__(slice(w.index(0), None), items()),
    "set slice to": lambda w: w.buffer.__setitem__(slice(None), w.array([7] * COUNT)),
    "array dtype": lambda w: w.buffer.__array__(w.dtype()),
}

DEVICE_USES = {"to_numpy": lambda w: w.buffer.to_numpy(stream=w.their_stream())}

# Calls that touch no memory. Whatever they return is closed, too.
PARTS = {
    "part": lambda w: w.buffer[w.index(0) :],
    "split_at": lambda w: w.buffer.split_at(w.index(4))[1],
    "chunks": lambda w: w.buffer.chunks(w.index(4))[1],
    "reshape": lambda w: w.buffer.reshape(2, w.index(4)),
    "view": lambda w: w.buffer.view(w.dtype()),
}

KINDS = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
ACTS = {
    "close": lambda whole: whole.close(),
    "take": lambda whole: whole.take().close(),
    "give back": lambda whole: whole.give_back(cu.Stream.legacy()),
    "shrink": lambda whole: whole.shrink(0),
}
# Where the memory of the buffer comes from, and what can happen to it.
ORIGINS = [(origin, act) for origin in ("pooled", "unpooled", "address", "import")
           for act in ("close", "take")] + [("import", "give back")]  # fmt: skip
GROWING = [("growing", "close"), ("growing", "take"), ("part", "shrink")]


origins = pytest.mark.parametrize(
    ("kind", "origin", "act"),
    [(kind, *each) for kind in KINDS for each in ORIGINS + GROWING * (kind == "device")],
)


@pytest.fixture
def world_of(driver, stream):
    def make(kind, origin, act):
        cls = KINDS[kind]
        if origin in ("growing", "part"):
            whole = cls(COUNT, "u4", capacity=COUNT)
        else:
            whole = cls(COUNT, "u4", pooled=origin == "pooled")
        buffer = whole[:] if origin == "part" else whole
        if origin == "address":
            buffer = cls.from_address(whole.address, COUNT, "u4")
        elif origin == "import":
            interface = {
                "shape": (COUNT,),
                "typestr": "<u4",
                "data": (whole.address, False),
                "version": 3,
            }
            array = SimpleNamespace(__cuda_array_interface__=interface)
            buffer = cu.from_cuda_array(array, ordered=True)
        target = whole if origin == "part" else buffer
        return World(buffer, lambda: ACTS[act](target), stream)

    return make


@origins
def test_uses(world_of, stream, kind, origin, act):
    uses = {**USES, **(DEVICE_USES if kind == "device" else HOST_USES)}
    for name, use in uses.items():
        world = world_of(kind, origin, act)
        try:
            use(world)
        except cu.BufferClosedError:
            pass
        except ValueError as error:
            if "parts of it are alive" not in str(error):  # the call has made a part of the import
                raise
        else:
            pytest.fail(f"{name}: the buffer was closed during the call, and is used")
        assert world.done, name
        stream.synchronize()


@origins
def test_parts(world_of, kind, origin, act):
    for name, make in PARTS.items():
        world = world_of(kind, origin, act)
        try:
            part = make(world)
        except cu.BufferClosedError:
            part = world.buffer
        assert world.done, name
        with pytest.raises(cu.BufferClosedError):
            part.fill(1)
