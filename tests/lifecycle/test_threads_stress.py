"""Threads that make random calls on shared objects.

``CUDADRV_STRESS_S`` sets how many seconds each test runs; use more to search for errors.
``CUDADRV_STRESS_SEED`` chooses the calls; their interleaving differs in each run.
"""

import gc
import os
import queue
import time
from collections import Counter
from random import Random

import numpy as np
import pytest
from interleaving import in_threads
from limits import PATIENCE

import cudadrv as cu
from cudadrv._engine import books

SECONDS = float(os.environ.get("CUDADRV_STRESS_S", "0.6"))
SEED = int(os.environ.get("CUDADRV_STRESS_SEED", "1"))
THREADS, STREAMS, BUFFERS, EVENTS, COUNT = 6, 4, 6, 4, 64

pytestmark = [
    pytest.mark.timeout(PATIENCE + 10 * SECONDS),
    pytest.mark.usefixtures("eager_threads"),
]


def settled_books():
    """Counts of the engine's records after all work is complete and dropped objects are gone."""
    gc.collect()
    cu.Device(0).synchronize()
    cu.reap()
    cu.Stream().close()  # opening a stream destroys ended streams
    return books()


@pytest.fixture
def empty_books(driver):
    """After the test the engine has no more records than before."""
    # These calls make internal streams, which are kept.
    cu.DeviceBuffer(64).copy_from(np.zeros(64, "u1"))
    cu.DeviceBuffer(64, stream=cu.Stream())
    cu.reap()
    cu.Stream.legacy()
    before = settled_books()
    yield
    assert settled_books() == before


class Shared:
    """Objects that all threads use, and replace while other threads use them."""

    def __init__(self):
        self.streams = [self.new_stream(index) for index in range(STREAMS)]
        self.buffers = [self.new_buffer(index) for index in range(BUFFERS)]
        # A stream that nobody closes, because threads also name it by its handle.
        self.lasting = cu.Stream()
        self.events = [cu.Event() for _ in range(EVENTS)]
        self.tokens = [buffer.fill_async(0, self.streams[0]) for buffer in self.buffers]

    def new_stream(self, index):
        return cu.Stream(blocking=index % 2 == 1)

    def new_buffer(self, index):
        kind = index % 4
        if kind == 3:
            return cu.DeviceBuffer(COUNT, stream=self.streams[0])
        return (cu.LockedBuffer, cu.DeviceBuffer, cu.UnifiedBuffer)[kind].zeros(COUNT)


class Thread:
    """Random operations of one thread. Each method `do_...` is one."""

    def __init__(self, shared, random, policy):
        self.shared, self.random, self.policy = shared, random, policy
        self.accepted, self.refused = Counter(), Counter()
        self.operations = [
            getattr(type(self), name) for name in vars(type(self)) if name.startswith("do_")
        ]

    def run(self, until):
        while time.monotonic() < until:
            operation = self.random.choice(self.operations)
            try:
                operation(self)
                self.accepted[operation.__name__] += 1
            except (cu.OwnershipError, ValueError) as error:
                self.refused[operation.__name__] += 1
                if not self.explained(error, operation.__name__):
                    raise

    def explained(self, error, operation):
        """Whether some order of the threads' calls explains the error."""
        text = str(error)
        # Under "wait" only calls that end a buffer are refused.
        if isinstance(error, cu.BufferBorrowedError):
            return self.policy == "strict" or operation in ("do_close_buffer", "do_leave")
        return (
            isinstance(error, cu.BufferExportedError | cu.EventNotRecordedError)
            or "closed" in text
            or "moved at" in text
            or "was recorded on another stream while this call waited" in text
        )

    # ---- choices ----

    def one(self, things):
        index = self.random.randrange(len(things))
        return index, things[index]

    def stream(self):
        return self.one(self.shared.streams)[1]

    def buffer(self):
        buffer = self.one(self.shared.buffers)[1]
        if self.random.random() < 0.3:
            start = self.random.randrange(COUNT // 2)
            return buffer[start : start + COUNT // 2]
        return buffer

    def half(self):
        return self.one(self.shared.buffers)[1].split_at(COUNT // 2)[self.random.randrange(2)]

    def host_buffer(self):
        buffer = self.buffer()
        return buffer if hasattr(buffer, "read") else self.shared.buffers[0]

    def keep(self, token):
        self.shared.tokens[self.random.randrange(BUFFERS)] = token

    # ---- the device ----

    def do_fill(self):
        self.keep(self.buffer().fill_async(self.random.randrange(256), self.stream()))

    def do_fill_and_wait(self):
        self.buffer().fill(self.random.randrange(256))

    def do_copy(self):
        target, source = self.half(), self.half()
        if target.address != source.address:
            self.keep(target.copy_from_async(source, self.stream()))

    def do_copy_in(self):
        buffer = self.buffer()
        buffer.copy_from(np.zeros(len(buffer), "u1"))

    def do_copy_in_later(self):
        buffer = self.buffer()
        self.keep(buffer.copy_from_async(np.ones(len(buffer), "u1"), self.stream()))

    def do_copy_out(self):
        buffer = self.buffer()
        buffer.copy_to(np.empty(len(buffer), "u1"))

    def do_use_the_legacy_stream(self):
        self.buffer().fill_async(1, cu.Stream.legacy())

    def do_use_a_handle(self):
        stream = self.shared.lasting
        assert cu.Stream.from_handle(stream.handle) is stream
        self.keep(self.buffer().fill_async(1, stream))

    # ---- the host ----

    def do_read_an_item(self):
        self.host_buffer()[0]

    def do_write(self):
        self.host_buffer()[:] = self.random.randrange(256)

    def do_block(self):
        with self.host_buffer().read() as array:
            array.sum()

    def do_writing_block(self):
        with self.host_buffer().write() as array:
            array[0] = 1

    def do_export(self):
        bytes(memoryview(self.host_buffer().readonly()))

    # ---- order ----

    def do_record(self):
        self.stream().record(self.one(self.shared.events)[1])

    def do_wait(self):
        self.stream().wait(self.one(self.shared.events)[1])

    def do_wait_for_a_stream(self):
        self.stream().wait(self.stream())

    def do_wait_for_a_token(self):
        self.stream().wait(self.one(self.shared.tokens)[1])

    def do_synchronize(self):
        self.stream().synchronize()

    def do_synchronize_an_event(self):
        self.one(self.shared.events)[1].synchronize()

    def do_synchronize_a_token(self):
        self.one(self.shared.tokens)[1].wait()

    def do_synchronize_all(self):
        cu.Device(0).synchronize()

    def do_ask(self):
        _ = self.stream().done, self.one(self.shared.tokens)[1].done
        _ = self.one(self.shared.events)[1].done

    # ---- beginnings and ends ----

    def do_close_buffer(self):
        index, buffer = self.one(self.shared.buffers)
        buffer.close()
        self.shared.buffers[index] = self.shared.new_buffer(index)

    def do_leave(self):
        with cu.DeviceBuffer(COUNT) as buffer:
            buffer.fill(1)

    def do_drop_buffer(self):
        index = self.random.randrange(BUFFERS)
        self.shared.buffers[index] = self.shared.new_buffer(index)

    def do_take(self):
        index, buffer = self.one(self.shared.buffers)
        self.shared.buffers[index] = buffer.take()

    def do_close_stream(self):
        index, stream = self.one(self.shared.streams)
        self.shared.streams[index] = self.shared.new_stream(index)
        stream.close()

    def do_drop_stream(self):
        index = self.random.randrange(STREAMS)
        self.shared.streams[index] = self.shared.new_stream(index)

    def do_close_event(self):
        index, event = self.one(self.shared.events)
        self.shared.events[index] = cu.Event()
        event.close()

    # ---- looking at all objects, and freeing dropped ones ----

    def do_look(self):
        buffer = self.buffer()
        _ = repr(buffer), buffer.explain(), buffer.borrows, buffer.borrowed, buffer.view("i1")
        _ = repr(self.stream()), repr(self.one(self.shared.tokens)[1]), cu.live_buffers()

    def do_collect(self):
        gc.collect(0)

    def do_reap(self):
        cu.reap()


@pytest.mark.usefixtures("empty_books")
@pytest.mark.parametrize("policy", ["strict", "wait"])
def test_everything_at_once(driver, policy):
    """Several threads make random calls: refusals are explained, nothing races, nothing is left."""
    shared = Shared()
    accepted, refused = Counter(), Counter()

    def work(index):
        thread = Thread(shared, Random(f"{SEED} {policy} {index}"), policy)
        with cu.ordering(policy):
            thread.run(time.monotonic() + SECONDS)
        accepted.update(thread.accepted)
        refused.update(thread.refused)

    in_threads(THREADS, work)
    names = {name for name in vars(Thread) if name.startswith("do_")}
    assert not {name for name in refused if name not in names}
    if SECONDS > 2:
        assert {name for name in names if not accepted[name]} == set()


@pytest.mark.usefixtures("empty_books")
@pytest.mark.parametrize("policy", ["strict", "wait"])
def test_buffers_that_threads_hand_over_by_events(driver, policy):
    """Threads pass buffers on by events: no use is refused, and the contents are right."""
    ready, until = queue.SimpleQueue(), time.monotonic() + SECONDS
    start = cu.Stream()
    for number in range(2 * THREADS):
        buffer = cu.LockedBuffer.zeros(COUNT, "u4", name=f"{number}")
        ready.put((buffer, 0, start.record()))

    def work(index):
        streams = [cu.Stream(blocking=index % 2 == 0), cu.Stream.per_thread()]
        copy = cu.LockedBuffer(COUNT, "u4")
        with cu.ordering(policy):
            while time.monotonic() < until:
                stream = streams[len(streams) % 2]
                buffer, value, event = ready.get()
                stream.wait(event)
                token = copy.copy_from_async(buffer, stream)
                buffer.fill_async(value + 1, stream)
                ready.put((buffer, value + 1, stream.record()))
                token.wait()
                assert copy[0] == copy[COUNT - 1] == value
                streams.reverse()

    in_threads(THREADS, work)
    while not ready.empty():
        buffer, value, event = ready.get()
        event.synchronize()
        assert buffer.to_numpy().tolist() == [value] * COUNT
        assert value > 0
