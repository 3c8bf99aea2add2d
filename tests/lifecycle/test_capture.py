"""Captures that another library has begun: cudadrv takes no part in them, and does not end them."""

import asyncio
import ctypes
import gc

import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.cuda_software
MODES = {"global": 0, "thread local": 1, "relaxed": 2}
ACTIVE, INVALIDATED = 1, 2


class Capture:
    def __init__(self, stream):
        self.handle = ctypes.c_void_p(stream.handle)
        self.library = ctypes.CDLL(cu.driver_info().path)

    def begin(self, mode):
        with cu.Device(0):
            assert self.library.cuStreamBeginCapture_v2(self.handle, MODES[mode]) == 0

    @property
    def status(self):
        status = ctypes.c_int()
        assert self.library.cuStreamIsCapturing(self.handle, ctypes.byref(status)) == 0
        return status.value

    def end(self):
        graph = ctypes.c_void_p()
        self.library.cuStreamEndCapture(self.handle, ctypes.byref(graph))
        if graph.value:
            self.library.cuGraphDestroy(graph)


@pytest.fixture(params=MODES)
def capture(request, stream):
    """A capture, which the test begins by `begin`."""
    capture = Capture(stream)
    capture.mode = request.param
    yield capture
    capture.end()


class World:
    """The objects of a program when the capture begins."""

    def __init__(self, stream, other):
        self.captured, self.other = stream, other
        self.locked, self.device = cu.LockedBuffer.zeros(16), cu.DeviceBuffer(16)
        self.ordered = cu.DeviceBuffer(16, stream=other)
        self.event = stream.record()
        self.large = cu.DeviceBuffer(3 << 20)
        self.dying = [
            cu.DeviceBuffer(16, pooled=False),
            cu.LockedBuffer(16, pooled=False),
            cu.DeviceBuffer(16, stream=other, pooled=False),
        ]
        self.dying_stream = cu.Stream()
        self.device.fill(0)
        self.large.fill(0)
        other.synchronize()


REFUSED = {
    "operation": lambda w: w.device.fill_async(1, w.captured),
    "snapshot": lambda w: w.device.copy_from_async(bytes(16), w.captured),
    "blocking": lambda w: w.device.fill(1, stream=w.captured),
    "blocking copy": lambda w: w.large.copy_from(bytes(3 << 20), stream=w.captured),
    "current stream": lambda w: w.captured.__enter__() and fill_and_leave(w),
    "allocation": lambda w: cu.DeviceBuffer(16, stream=w.captured),
    "close of memory": lambda w: w.ordered.close(w.captured),
    "record": lambda w: w.captured.record(),
    "record an event": lambda w: w.captured.record(w.event),
    "wait for a stream": lambda w: w.captured.wait(w.other),
    "wait for an event": lambda w: w.captured.wait(w.event),
    "waited for": lambda w: w.other.wait(w.captured),
    "synchronize": lambda w: w.captured.synchronize(),
    "done": lambda w: w.captured.done,
    "close": lambda w: w.captured.close(),
    "context": lambda w: w.captured.context.synchronize(),
    "from_handle": lambda w: cu.Stream.from_handle(w.captured.handle),
}


def fill_and_leave(world):
    try:
        world.device.fill_async(1)
    finally:
        world.captured.__exit__(None, None, None)


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_touch_it_is_refused(capture, stream, other, name):
    world = World(stream, other)
    capture.begin(capture.mode)
    with pytest.raises(cu.OwnershipError, match="is capturing a graph, begun by another library"):
        REFUSED[name](world)
    assert capture.status == ACTIVE
    capture.end()
    assert not world.device.borrowed
    assert not world.large.borrowed


def die(world):
    for buffer in world.dying:
        buffer.fill_async(1, world.other)
    world.dying.clear()
    del buffer
    cu.Stream()
    cu.reap()


def die_with_work(world):
    world.locked.fill_async(1, world.dying_stream)
    world.dying_stream = None
    gc.collect()
    cu.Stream().close()


def wait_for(world):
    async def work():
        await world.locked.fill_async(1, world.other)

    asyncio.run(work())


def insert_a_wait(world):
    world.locked.fill_async(2, world.other)
    with cu.ordering("wait"):
        assert world.locked[0] == 2


BESIDE = {
    "memory dies": die,
    "a stream dies": die_with_work,
    "await": wait_for,
    "a wait is inserted": insert_a_wait,
    "token": lambda w: w.locked.fill_async(1, w.other).wait(),
    "token.done": lambda w: w.locked.fill_async(1, w.other).done,
    "stream": lambda w: w.other.synchronize(),
    "stream.done": lambda w: w.other.done,
    "event": lambda w: w.other.record().synchronize(),
    "event.done": lambda w: w.other.record().done,
    "the library's stream": lambda w: w.device.fill(1),
    "a large copy": lambda w: w.large.copy_from(bytes(3 << 20)),
    "a large copy out": lambda w: w.large.copy_to(bytearray(3 << 20)),
    "streams and events": lambda w: [cu.Stream().close(), cu.Event().close()],
    "reports": lambda w: [cu.memory_report(), w.locked.explain(), repr(w.captured)],
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_runs_beside_it_does_not_end_it(capture, stream, other, name):
    world = World(stream, other)
    capture.begin(capture.mode)
    BESIDE[name](world)
    assert capture.status == ACTIVE
    capture.end()
    cu.Device(0).synchronize()


@pytest.mark.parametrize("mode", MODES)
def test_memory_of_the_legacy_stream_waits_for_the_end_of_a_blocking_capture(other, mode):
    """Memory that the legacy stream uses is kept while a blocking stream is captured.

    The legacy stream cannot record an event during such a capture.
    """
    captured, legacy = cu.Stream(blocking=True), cu.Stream.legacy()
    dying = [cu.DeviceBuffer(16, stream=other, pooled=False), cu.DeviceBuffer(16, pooled=False)]
    legacy.wait(other)
    for buffer in dying:
        buffer.fill_async(1, legacy)
    capture = Capture(captured)
    capture.begin(mode)
    del buffer
    dying.clear()
    cu.reap()
    assert testing.live_objects()["async"] == testing.live_objects()["device"] == 1
    assert capture.status == ACTIVE
    capture.end()
    cu.reap()
    assert testing.live_objects()["async"] == testing.live_objects()["device"] == 0


@pytest.mark.parametrize("call", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer])
def test_what_the_driver_forbids_meanwhile_says_so(capture, call):
    capture.begin("global")
    with pytest.raises(cu.CudaError, match="before the capture or after it") as caught:
        call(16, pooled=False)
    assert caught.value.status is cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert capture.status == INVALIDATED
    capture.end()
    call(16)
