"""Streams in captures: foreign, default and dropped streams, and streams of other threads."""

import ctypes
import gc
import threading
import weakref

import pytest
from in_threads import started, until_it_waits

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)


class Theirs:
    """A stream of another library, with its handle."""

    def __init__(self):
        self.library = ctypes.CDLL(cu.driver_info().path)
        handle = ctypes.c_void_p()
        with cu.Device(0):
            assert self.library.cuStreamCreate(ctypes.byref(handle), 1) == 0
        self.handle = handle.value

    def __cuda_stream__(self):
        return 0, self.handle

    def __del__(self):
        self.library.cuStreamDestroy_v2(ctypes.c_void_p(self.handle))


def test_a_stream_of_another_library_is_named_by_its_object(world):
    theirs, mine = Theirs(), Theirs()
    with world.graph.capture(theirs):
        world.work.copy_from_async(world.frames, theirs)
        mine_stream = cu.Stream.from_object(mine)
        mine_stream.wait(theirs)
        world.out.fill_async(1, mine)
        cu.Stream.from_object(theirs).wait(mine)
        world.result.copy_from_async(world.out, theirs)
    assert len(world.graph.nodes) == 3
    world.graph.instantiate().launch(theirs).wait()
    assert list(world.result) == [1] * 16


def test_a_captured_stream_of_another_library_is_not_closed(world):
    theirs = cu.Stream.from_object(Theirs())
    with world.graph.capture(theirs):
        with pytest.raises(cu.CaptureError):
            theirs.close()
        world.work.fill_async(1, theirs)
    assert len(world.graph.nodes) == 1
    theirs.close()


@pytest.mark.cuda_software
def test_a_refused_wait_records_nothing(world, gate):
    third, theirs, legacy = cu.Stream(), Theirs(), cu.Stream.legacy()
    blocking = cu.Stream(blocking=True)
    gate.hold(third)
    token = cu.DeviceBuffer(4).fill_async(1, third)
    second = cu.Graph()
    with world.graph.capture(world.main), second.capture(world.side):
        mine = world.work.fill_async(1, world.main)
        before = testing.calls("cuEventRecord")
        for stream, work in (
            (world.main, third),
            (world.main, token),
            (world.main, theirs),
            (world.side, world.main),
            (world.side, mine),
            (legacy, world.main),
            (legacy, mine),
        ):
            with pytest.raises(cu.CaptureError):
                stream.wait(work)
        assert testing.calls("cuEventRecord") == before
    with cu.Graph().capture(blocking):
        for work in (third, token, theirs):
            with pytest.raises(cu.CaptureError):
                legacy.wait(work)
    assert testing.calls("cuEventRecord") == before
    gate.open()


def test_a_token_that_is_complete_can_be_waited_for(world):
    token = world.out.fill_async(1, world.side)
    token.wait()
    with world.graph.capture(world.main):
        world.main.wait(token)
        world.work.fill_async(1, world.main)
    assert world.graph.edges == ()


USES_OF_LEGACY = {
    "fill": lambda w, legacy: w.out.fill_async(1, legacy),
    "record": lambda w, legacy: legacy.record(),
    "wait": lambda w, legacy: legacy.wait(w.side),
    "wait for it": lambda w, legacy: w.side.wait(legacy),
    "done": lambda w, legacy: legacy.done,
    "synchronize": lambda w, legacy: legacy.synchronize(),
    "allocate": lambda w, legacy: cu.DeviceBuffer(4, stream=legacy),
}


@pytest.mark.parametrize("use", USES_OF_LEGACY)
def test_the_legacy_stream_is_ordered_with_captured_blocking_streams(world, use):
    blocking, legacy = cu.Stream(blocking=True), cu.Stream.legacy()
    with world.graph.capture(blocking):
        world.work.fill_async(1, blocking)
        with pytest.raises(cu.CaptureError, match="ordered with all blocking streams"):
            USES_OF_LEGACY[use](world, legacy)
        world.work.fill_async(2, blocking)
    assert len(world.graph.nodes) == 2
    with cu.Graph().capture(world.main):
        world.out.fill_async(1, legacy)  # allowed, because `main` is a non-blocking stream
    legacy.synchronize()


def test_events_of_a_capture_keep_nothing_alive(world):
    stream, event = cu.Stream(), cu.Event()
    with world.graph.capture(stream):
        world.work.fill_async(1, stream)
        stream.record(event)
    graph, world.graph = weakref.ref(world.graph), None
    died, stream = weakref.ref(stream), None
    gc.collect()
    assert graph() is None
    assert died() is None
    world.work.close()
    with pytest.raises(cu.CaptureError, match="graph 'step'"):
        event.synchronize()


def test_a_token_of_no_bytes_stands_for_nothing_after_the_capture(world):
    with world.graph.capture(world.main):
        token = world.out[:0].fill_async(1, world.main)
    for use in (token.wait, lambda: world.side.wait(token)):
        with pytest.raises(cu.CaptureError, match="graph 'step'"):
            use()


def test_the_default_stream_of_another_thread_is_not_waited_for(world):
    """A wait for the default stream of another thread is refused.

    The driver would use the calling thread's own default stream instead.
    """

    def work():
        stream = cu.Stream.per_thread()
        stream.wait(world.main)
        token = world.out.fill_async(1, stream)
        return stream, token, threading.get_ident()

    with world.graph.capture(world.main):
        ready, leave = threading.Event(), threading.Event()
        found = []

        def run():
            found.extend(work())
            ready.set()
            leave.wait()
            world.main.wait(found[0])

        thread = threading.Thread(target=run)
        thread.start()
        ready.wait()
        stream, token, _ = found
        for each in (stream, token):
            with pytest.raises(ValueError, match="is another thread's"):
                world.main.wait(each)
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        # If the copy cannot be ordered after the work of one stream, no waits are inserted for
        # others.
        with cu.ordering("wait"), pytest.raises(cu.BufferBorrowedError):
            world.out.copy_from_async(world.work, world.main)
        with pytest.raises(cu.BufferBorrowedError):
            world.work.fill_async(2, world.main)
        cu.reap()  # does not synchronize the context, which a capture would not allow
        leave.set()
        thread.join()
        world.main.wait(world.side)
    assert len(world.graph.nodes) == 2


REAP = """
import threading
import cudadrv as cu

out, graph = cu.DeviceBuffer.zeros(16, "f4"), cu.Graph()
ready, leave = threading.Event(), threading.Event()

def capture():
    stream = cu.Stream.per_thread()
    with graph.capture(stream):
        out.fill_async(1, stream)
        ready.set()
        leave.wait()
        out.fill_async(2, stream)

thread = threading.Thread(target=capture)
thread.start()
ready.wait()
# Work of the default stream of an ended thread can only be waited for with its context.
scratch = [cu.DeviceBuffer(4, pooled=False)]
other = threading.Thread(target=lambda: scratch[0].fill_async(1, cu.Stream.per_thread()) and None)
other.start()
other.join()
scratch.clear()
cu.reap()
leave.set()
thread.join()
print(len(graph.nodes), "nodes")
"""


@pytest.mark.cuda_software
def test_reap_ends_no_capture_of_another_thread(driver, script):
    said = script.run(REAP, CUDADRV_SOFTWARE="schedule=lazy")
    assert said.stdout == "2 nodes\n", said.stderr


@pytest.mark.slow
def test_a_capture_does_not_wait_for_ever(gate, stream):
    """Another thread is in cuCtxSynchronize, for work that waits for the thread that captures."""
    buffer, theirs = cu.DeviceBuffer(16), Theirs()
    with cu.Device(0):
        assert gate.wait(theirs.handle, gate.flag.address, 1, 0) == 0
    thread, answers = started(cu.Device(0).synchronize)
    until_it_waits(thread)
    for _ in range(2):  # the second capture does not wait for the same call again
        with cu.Graph() as graph:
            with graph.capture(stream):
                buffer.fill_async(1, stream)
            assert len(graph.nodes) == 1
    assert thread.is_alive()
    gate.open()
    thread.join()
    assert answers == [None]
