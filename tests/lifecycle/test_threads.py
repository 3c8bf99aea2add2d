"""Many threads, on one stream and on several, while the garbage collector runs all the time."""

import gc
import threading

import pytest
from interleaving import in_threads

import cudadrv as cu

THREADS = 8
ROUNDS = 40


@pytest.fixture
def storm():
    """Run the garbage collector at nearly every allocation, so that destructors run anywhere."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


pytestmark = pytest.mark.usefixtures("storm")


def test_one_stream(stream):
    buffers = [cu.LockedBuffer.zeros(16) for _ in range(THREADS)]

    def work(index):
        for value in range(ROUNDS):
            buffers[index].fill_async(value, stream)
            if value % 10 == 9:
                stream.record().synchronize()
                assert buffers[index][0] == value

    in_threads(THREADS, work)
    assert not any(buffer.borrowed for buffer in buffers)


def test_a_stream_each_in_a_ring(driver):
    """Each thread waits for the event of its neighbour, which records it again and again."""
    streams = [cu.Stream(blocking=index % 2 == 0) for index in range(THREADS)]
    events = [stream.record(cu.Event()) for stream in streams]
    buffers = [cu.LockedBuffer.zeros(16) for _ in range(THREADS)]

    def work(index):
        for value in range(ROUNDS):
            streams[index].wait(events[index - 1])
            token = buffers[index].fill_async(value, streams[index])
            streams[index].record(events[index])
            if value % 10 == 9:
                token.wait()
                assert buffers[index][0] == value

    in_threads(THREADS, work)
    cu.Device(0).synchronize()


def test_one_buffer_handed_round(driver):
    """Threads use one buffer in turn. Waits of streams order the uses, so no use is refused."""
    buffer, turn = cu.LockedBuffer.zeros(16), threading.Lock()
    last = [cu.Stream().record()]

    def work(index):
        stream = cu.Stream()
        for value in range(ROUNDS):
            with turn:
                stream.wait(last[0])
                buffer.fill_async(value, stream)
                last[0] = stream.record()

    in_threads(THREADS, work)
    last[0].synchronize()
    assert buffer[0] == ROUNDS - 1
    last.clear()


def test_opening_closing_and_synchronizing_everything(driver):
    def work(index):
        for value in range(ROUNDS):
            stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
            buffer.fill_async(value, stream)
            if value % 3 == 0:
                stream.close()
            if value % 10 == index % 10:
                cu.Device(0).synchronize()
                assert not buffer.borrowed

    in_threads(THREADS, work)


def test_closing_what_others_use(driver):
    """Each use of an object that another thread closes either works, or says that it is closed."""
    streams, event = [cu.Stream()], cu.Event()
    streams[0].record(event)

    def work(index):
        for _ in range(ROUNDS):
            stream = streams[-1]
            try:
                if index == 0:
                    stream.close()
                    streams.append(cu.Stream())
                else:
                    stream.wait(event)
                    assert stream.record().done in (True, False)
                    stream.synchronize()
            except ValueError as error:
                if "closed" not in str(error):
                    raise

    in_threads(THREADS, work)


def test_threads_that_end_with_their_default_streams_busy(driver):
    buffers = [cu.LockedBuffer.zeros(16) for _ in range(THREADS)]
    in_threads(THREADS, lambda index: buffers[index].fill_async(1, cu.Stream.per_thread()) and None)
    cu.Device(0).synchronize()
    assert not any(buffer.borrowed for buffer in buffers)
