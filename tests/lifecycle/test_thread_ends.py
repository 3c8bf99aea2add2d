"""The default stream of a thread that ends with unfinished work."""

import ctypes
import threading

import pytest
from in_threads import started
from interleaving import Held, fill_after
from limits import PATIENCE

import cudadrv as cu
from cudadrv._engine import books

# These tests are about memory that goes back to the driver.
pytestmark = pytest.mark.usefixtures("unpooled")


@pytest.fixture
def library(driver):
    return ctypes.CDLL(cu.driver_info().path)


class Worker:
    """A thread that queues fills on its default stream, and ends when `end` is called."""

    def __init__(self, buffers):
        self.queued, self.go_on = threading.Event(), threading.Event()
        self.thread, _ = started(lambda: self._work(buffers))
        assert self.queued.wait(PATIENCE)

    def _work(self, buffers):
        for buffer in buffers:
            buffer.fill_async(1, cu.Stream.per_thread())
        buffers.clear()
        self.queued.set()
        self.go_on.wait(PATIENCE)

    def end(self):
        self.go_on.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def test_the_end_of_a_thread_does_not_wait_for_the_driver(gate):
    buffer = cu.LockedBuffer.zeros(16)
    worker = Worker([buffer])
    with Held(gate):
        worker.end()
    assert buffer.borrowed
    cu.Device(0).synchronize()
    assert buffer[0] == 1


def test_the_stream_of_an_ended_thread_is_closed(driver, other):
    buffer, found = cu.LockedBuffer.zeros(16), []

    def work():
        found.append(cu.Stream.per_thread())
        found.append(buffer.fill_async(1, found[0]))

    started(work)[0].join()
    stream, token = found
    assert stream.closed
    with pytest.raises(ValueError, match="its thread has ended"):
        stream.synchronize()
    with pytest.raises(cu.OwnershipError, match=r"context\.synchronize\(\)"):
        token.wait()
    with pytest.raises(cu.BufferBorrowedError):
        fill_after(buffer, other)
    cu.Device(0).synchronize()
    token.wait()
    fill_after(buffer, other)


@pytest.mark.cuda_software
@pytest.mark.parametrize("ended", [False, True])
def test_memory_that_the_default_stream_of_another_thread_used(driver, ended):
    from cudadrv import testing

    before = testing.live_objects()["device"]
    alive = cu.LockedBuffer.zeros(16)
    worker = Worker([cu.DeviceBuffer(64), alive])
    if ended:
        worker.end()
    assert testing.live_objects()["device"] == before + 1
    cu.reap()
    assert testing.live_objects()["device"] == before
    assert alive.borrowed  # releasing memory makes no work known to be complete
    worker.end()
    cu.Device(0).synchronize()
    assert alive[0] == 1


@pytest.mark.cuda_software
def test_synchronizing_gives_back_what_an_ended_thread_used(driver):
    from cudadrv import testing

    before = testing.live_objects()["device"]
    Worker([cu.DeviceBuffer(64)]).end()
    cu.Device(0).synchronize()
    assert testing.live_objects()["device"] == before


@pytest.mark.cuda_software
def test_what_an_ended_thread_used_waits_for_the_end_of_a_capture(library, stream):
    """Memory that an ended thread's stream used is kept while another stream is captured.

    Waiting for the whole context would invalidate the capture.
    """
    from cudadrv import testing

    before = testing.live_objects()["device"]
    handle, graph, relaxed = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), 2
    Worker([cu.DeviceBuffer(64)]).end()
    with cu.Device(0):
        assert library.cuStreamBeginCapture_v2(handle, relaxed) == 0
        cu.reap()
        assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
        assert library.cuGraphDestroy(graph) == 0
    assert testing.live_objects()["device"] == before + 1
    cu.reap()
    assert testing.live_objects()["device"] == before


def test_threads_that_leave_work_for_ever(driver):
    """The engine's records stay bounded if many threads end with unfinished work."""
    parts, most = cu.LockedBuffer.zeros(600).chunks(1), 0
    before = books()["streams"]  # streams that earlier tests have left
    for part in parts:
        started(lambda: part.fill_async(1, cu.Stream.per_thread()) and None)[0].join()  # noqa: B023
        most = max(most, books()["streams"])
    assert most > 200
    assert most - before < 410  # includes the internal streams
    cu.Device(0).synchronize()
    assert [part[0] for part in parts] == [1] * 600


@pytest.mark.cuda_software
def test_no_allocation_waits_for_what_an_ended_thread_left(driver):
    """An allocation does not wait for work that an ended thread has left.

    cuMemFree would wait, so dropped memory is kept as long as that work may run.
    """
    from cudadrv import testing

    alive, dead = cu.LockedBuffer.zeros(16), cu.DeviceBuffer(64)
    Worker([alive]).end()
    freed = testing.calls("cuMemFree_v2")
    del dead
    cu.DeviceBuffer(8).fill(1)
    assert testing.calls("cuMemFree_v2") == freed
    cu.Device(0).synchronize()
    assert testing.calls("cuMemFree_v2") > freed
