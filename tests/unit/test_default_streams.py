"""The default streams, and streams of other libraries."""

import ctypes
import gc
import threading
import weakref

import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv import testing
from cudadrv._engine import books


def test_handles(driver):
    assert cu.Stream.legacy().handle == 1
    assert cu.Stream.per_thread().handle == 2
    assert cu.Stream.legacy().__cuda_stream__() == (0, 1)
    assert cu.Stream.from_handle(0) is cu.Stream.from_handle(1) is cu.Stream.legacy()
    assert cu.Stream.from_handle(2) is cu.Stream.per_thread()


def test_they_are_blocking_and_cannot_be_closed(driver):
    for stream in (cu.Stream.legacy(), cu.Stream.per_thread()):
        assert stream.blocking
        with pytest.raises(ValueError, match="cannot be closed"):
            stream.close()
        assert not stream.closed


def test_each_thread_has_its_own(driver, in_a_thread):
    mine = cu.Stream.per_thread()
    assert mine is cu.Stream.per_thread()
    assert in_a_thread(cu.Stream.per_thread) is not mine


def test_another_thread_may_not_use_it(driver, in_a_thread):
    mine = cu.Stream.per_thread()
    buffer = cu.LockedBuffer.zeros(16)
    token = buffer.fill_async(1, mine)
    own = cu.Stream()
    uses = [
        mine.synchronize,
        mine.record,
        lambda: mine.handle,
        lambda: mine.done,
        lambda: own.wait(mine),
        lambda: own.wait(token),
        token.wait,
        lambda: buffer.fill_async(2, mine),
    ]
    for use in uses:
        answer = in_a_thread(use)
        assert isinstance(answer, ValueError), answer
        assert "another thread" in str(answer)
    mine.synchronize()


def test_a_token_with_an_event_crosses_threads(driver, in_a_thread):
    """If a token of a per-thread default stream has an event, other threads can use the token."""
    token = cu.LockedBuffer.zeros(16).fill_async(1, cu.Stream.per_thread())
    event = cu.Stream.per_thread().record()
    assert in_a_thread(event.synchronize) is None
    token.wait()


def test_a_thread_that_ends_leaves_its_borrows(driver, in_a_thread, gate):
    buffer = cu.LockedBuffer.zeros(16)

    def work():
        stream = cu.Stream.per_thread()
        gate.hold(stream)
        buffer.fill_async(1, stream)

    assert in_a_thread(work) is None
    gc.collect()
    assert buffer.borrowed
    gate.open()
    cu.Device(0).synchronize()
    assert not buffer.borrowed


def test_the_context_waits_for_the_default_streams_of_all_threads(driver):
    buffer = cu.LockedBuffer.zeros(16)
    begun, waited = threading.Event(), threading.Event()

    def work():
        buffer.fill_async(1, cu.Stream.per_thread())
        begun.set()
        waited.wait(PATIENCE)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(PATIENCE)
    try:
        cu.Device(0).synchronize()
        assert not buffer.borrowed
    finally:
        waited.set()
        thread.join()


def test_a_legacy_record_is_after_blocking_streams(driver):
    blocking, buffer = cu.Stream(blocking=True), cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, blocking)
    cu.Stream.legacy().record().synchronize()
    assert not buffer.borrowed


@pytest.mark.parametrize("nbytes", [4, 1024, 16384, 32768, 65536, 131072])
@pytest.mark.parametrize("writer", ["blocking", "legacy", "per thread"])
def test_a_copy_to_the_device_is_after_what_writes_its_source(driver, writer, nbytes):
    """The default streams' rules order copies to the device after the writer of their source.

    If only these rules order a copy, a driver may read page-locked memory in the call: too early.
    """
    streams = {"blocking": cu.Stream(blocking=True), "per thread": cu.Stream.per_thread()}
    writer = streams.get(writer, cu.Stream.legacy())
    reader = cu.Stream.legacy() if writer is not cu.Stream.legacy() else streams["blocking"]
    source, result = cu.LockedBuffer(nbytes), cu.LockedBuffer(nbytes)
    target, former = cu.DeviceBuffer(nbytes), cu.DeviceBuffer(nbytes)
    large = [cu.LockedBuffer(1 << 20), cu.DeviceBuffer(1 << 20)]
    for value in range(1, 20):
        source[:] = 0
        former.fill(value)
        large[1].copy_from_async(large[0], writer)  # delays the next copy
        source.copy_from_async(former, writer)
        target.copy_from_async(source, reader)
        result.copy_from_async(target, reader)
        reader.synchronize()
        assert set(result.to_numpy()) == {value}


@pytest.mark.cuda_software
def test_that_costs_two_calls_for_small_copies_on_blocking_streams(driver):
    def calls(stream, nbytes):
        locked, device = cu.LockedBuffer(nbytes), cu.DeviceBuffer(nbytes)
        names = "cuEventRecord", "cuStreamWaitEvent"
        before = [testing.calls(name) for name in names]
        device.copy_from_async(locked, stream)
        now = [testing.calls(name) for name in names]
        stream.synchronize()
        return [after - earlier for earlier, after in zip(before, now, strict=True)]

    for stream in (cu.Stream(blocking=True), cu.Stream.legacy(), cu.Stream.per_thread()):
        assert calls(stream, 1 << 16) == [1, 1]
        assert calls(stream, (1 << 16) + 1) == [0, 0]
    assert calls(cu.Stream(), 4) == [0, 0]


def test_legacy_work_is_not_after_a_blocking_stream_that_died(driver):
    """Legacy work is not ordered after a blocking stream that was dropped.

    The stream counts as closed at once, because the time at which its handle is destroyed varies.
    """
    blocking, buffer = cu.Stream(blocking=True), cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, blocking)
    del blocking
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, cu.Stream.legacy())
    buffer.device.synchronize()


class OtherLibrary:
    """A library that makes and destroys streams of its own."""

    def __init__(self):
        self.driver = ctypes.CDLL(cu.driver_info().path)

    def stream(self, flags: int = 1) -> int:
        handle = ctypes.c_void_p()
        with cu.Device(0):
            assert self.driver.cuStreamCreate(ctypes.byref(handle), flags) == 0
        return handle.value

    def destroy(self, handle: int) -> None:
        assert self.driver.cuStreamDestroy_v2(ctypes.c_void_p(handle)) == 0


@pytest.fixture
def library(driver):
    return OtherLibrary()


@pytest.mark.parametrize("flags", [0, 1])
def test_a_foreign_stream(library, flags):
    handle = library.stream(flags)
    stream = cu.Stream.from_handle(handle)
    assert cu.Stream.from_handle(handle) is stream
    assert int(stream) == stream.handle == handle
    assert stream.blocking is (flags == 0)
    cu.LockedBuffer.zeros(16).fill_async(1, stream).wait()
    stream.close()
    assert stream.closed
    library.destroy(handle)  # works, because `close` has not destroyed the handle


@pytest.mark.parametrize("closing", [False, True])
def test_a_foreign_stream_is_the_same_under_a_later_object(library, closing):
    """A foreign stream keeps its order under a new object for the same handle.

    This holds whether one object is kept or each operation makes a new one.
    """
    handle, buffer = library.stream(1), cu.LockedBuffer.zeros(16)
    before, slots = books()["streams"], []
    for value in range(600):
        stream = cu.Stream.from_handle(handle)
        buffer.fill_async(value % 256, stream)
        if closing:
            stream.close()
        del stream
        slots.append(books()["streams"])
    # The engine keeps records of closed streams only while their work is not known to be complete.
    assert max(slots) - before < 300
    cu.Stream.from_handle(handle).synchronize()
    assert buffer[0] == 599 % 256
    cu.Device(0).synchronize()
    cu.reap()
    library.destroy(handle)


def test_one_owner_is_enough(library):
    class Owner:
        pass

    handle, owners = library.stream(1), []
    kept = cu.Stream.from_handle(handle, Owner())
    for _ in range(10):
        owner = Owner()
        owners.append(weakref.ref(owner))
        assert cu.Stream.from_handle(handle, owner) is kept
        del owner
    assert not any(owner() for owner in owners)
    kept.close()
    library.destroy(handle)


def test_an_own_stream_by_its_handle(stream):
    assert cu.Stream.from_handle(stream.handle) is stream


def test_the_owner_lives_as_long_as_the_stream(library):
    class Owner:
        pass

    owner = Owner()
    died = threading.Event()
    import weakref

    weakref.finalize(owner, died.set)
    handle = library.stream()
    stream = cu.Stream.from_handle(handle, owner)
    del owner
    gc.collect()
    assert not died.is_set()
    del stream
    gc.collect()
    assert died.is_set()
    library.destroy(handle)


def test_the_owner_lives_as_long_as_the_work_of_a_stream_that_died(library, gate):
    """The owner of a foreign stream is kept until the stream's work is complete.

    The last event is recorded on the handle after the stream was dropped, so the handle must still
    exist.
    """

    class Owner:
        def __init__(self):
            self.handle = library.stream()

        def __del__(self):
            destroyed.append(library.destroy(self.handle))

    destroyed = []
    owner, buffer = Owner(), cu.LockedBuffer.zeros(16)
    stream = cu.Stream.from_handle(owner.handle, owner)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    del owner, stream
    assert not destroyed
    gate.open()
    cu.reap()
    assert destroyed
    buffer.device.synchronize()


def test_a_handle_that_was_used_again_is_another_stream(library):
    """A handle that the driver has reused is another stream.

    Some drivers reuse handles at once.
    """
    first = library.stream()
    old = cu.Stream.from_handle(first)
    library.destroy(first)
    made = [library.stream() for _ in range(20)]
    streams = [cu.Stream.from_handle(handle) for handle in made]
    assert old not in streams
    if first in made:
        assert old.closed
    for handle in made:
        library.destroy(handle)


@pytest.mark.parametrize(
    ("handle", "error"), [(-1, ValueError), (2**64, ValueError), ("1", TypeError), (1.0, TypeError)]
)
def test_handles_are_addresses(driver, handle, error):
    with pytest.raises(error):
        cu.Stream.from_handle(handle)


def test_a_stream_of_a_context_that_nobody_knows(library):
    context, handle = ctypes.c_void_p(), ctypes.c_void_p()
    library.driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
    assert library.driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    library.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    with pytest.raises(ValueError, match=rf"{context.value:#x}, which is no device's primary"):
        cu.Stream.from_handle(handle.value)
    library.destroy(handle.value)
    assert library.driver.cuCtxDestroy_v2(context) == 0


@pytest.fixture
def capture(stream):
    """Capture the stream during the test."""
    driver = ctypes.CDLL(cu.driver_info().path)
    handle, graph = ctypes.c_void_p(stream.handle), ctypes.c_void_p()
    relaxed = 2
    with cu.Device(0):
        assert driver.cuStreamBeginCapture_v2(handle, relaxed) == 0
        yield
        assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
        assert driver.cuGraphDestroy(graph) == 0


def test_a_capturing_stream_is_refused(stream, other, capture):
    buffer = cu.LockedBuffer.zeros(16)
    event = other.record()
    uses = [
        lambda: buffer.fill_async(1, stream),
        stream.record,
        stream.synchronize,
        stream.close,
        lambda: stream.done,
        lambda: stream.wait(event),
        lambda: other.wait(stream),
    ]
    for use in uses:
        with pytest.raises(cu.OwnershipError, match="capturing a graph"):
            use()
    assert not buffer.borrowed
    other.synchronize()
    cu.reap()
