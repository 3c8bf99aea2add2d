"""The policy "wait": waits are inserted for all conflicts, or for none if one cannot be ordered."""

import ctypes
import threading

import pytest
from limits import PATIENCE

import cudadrv as cu


@pytest.fixture
def elsewhere(driver):
    """A function that runs functions in another thread, which lives until the test ends."""

    class Elsewhere:
        def __init__(self):
            self.calls, self.wake, self.over = [], threading.Event(), threading.Event()
            self.thread = threading.Thread(target=self.work)
            self.thread.start()

        def work(self):
            while self.wake.wait() and self.calls:
                self.calls.pop()()
                self.wake.clear()
                self.over.set()

        def __call__(self, function):
            self.calls.append(function)
            self.wake.set()
            assert self.over.wait(PATIENCE)
            self.over.clear()

    elsewhere = Elsewhere()
    yield elsewhere
    elsewhere.wake.set()
    elsewhere.thread.join()


@pytest.fixture
def parts(make, stream, elsewhere):
    """Four parts of a buffer.

    A stream uses the first part, and another thread's default stream uses the third.
    """
    buffer = make("locked", 8)
    parts = buffer.chunks(2)
    parts[0].fill_async(1, stream)
    elsewhere(lambda: parts[2].fill_async(3, cu.Stream.per_thread()))
    yield buffer, parts
    elsewhere(lambda: cu.Stream.per_thread().synchronize())


def test_an_operation_waits_for_none_if_it_cannot_wait_for_all(parts, other):
    buffer, chunks = parts
    with cu.ordering("wait"), pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(5, other)
    # `other` does not wait for the user of the first part.
    with pytest.raises(cu.BufferBorrowedError):
        chunks[0].fill_async(5, other)


@pytest.mark.cuda_software
def test_then_the_driver_is_asked_for_nothing(parts, other, unchanged):
    buffer, _ = parts
    with cu.ordering("wait"), unchanged("cuEventRecord", "cuStreamWaitEvent", "cuMemsetD8Async"):
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(5, other)


def test_the_host_waits_for_none_if_it_cannot_wait_for_all(parts, stream, gate):
    buffer, chunks = parts
    gate.hold(stream)
    chunks[1].fill_async(2, stream)
    with cu.ordering("wait"), pytest.raises(cu.BufferBorrowedError):
        buffer.to_numpy()  # is refused at once: it does not wait for `stream`, whose gate is closed
    gate.open()
    assert chunks[0].borrowed


def test_a_capturing_stream_among_those_in_the_way(make, stream, other):
    driver = ctypes.CDLL(cu.driver_info().path)
    captured = cu.Stream()
    handle, graph = ctypes.c_void_p(captured.handle), ctypes.c_void_p()
    buffer = make("device", 8)
    buffer[:4].fill_async(1, stream)
    buffer[4:].fill_async(2, captured)
    with cu.Device(0):
        assert driver.cuStreamBeginCapture_v2(handle, 2) == 0
        with cu.ordering("wait"), pytest.raises(cu.OwnershipError, match="capturing a graph"):
            buffer.fill_async(3, other)
        assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
        assert driver.cuGraphDestroy(graph) == 0
    with pytest.raises(cu.BufferBorrowedError):
        buffer[:4].fill_async(3, other)
    with cu.ordering("wait"):
        buffer.fill_async(3, other)


def test_everything_in_the_way_is_waited_for(make, items_of, stream, other):
    streams = [cu.Stream() for _ in range(5)]
    buffer, seen = make("device", 10), make("locked", 10)
    for number, (part, each) in enumerate(zip(buffer.chunks(2), streams, strict=True)):
        part.fill_async(number, each)
    streams[3].close()
    with cu.ordering("wait"):
        buffer.copy_to_async(seen, other)
        for number, (part, each) in enumerate(zip(buffer.chunks(2), streams[:3], strict=False)):
            part.fill_async(10 + number, each)
        assert seen.to_numpy().tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        buffer.copy_to_async(seen, stream)
        assert seen.to_numpy().tolist() == [10, 10, 11, 11, 12, 12, 3, 3, 4, 4]


def test_a_view_in_the_way_is_refused_before_anything_is_waited_for(make, stream, other):
    buffer, seen = make("device", 8), make("locked", 8)
    buffer.fill_async(1, stream)
    with cu.ordering("wait"), seen.read(), pytest.raises(cu.BufferExportedError):
        buffer.copy_to_async(seen, other)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
