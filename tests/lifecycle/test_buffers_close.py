"""The end of buffers: closing, moving and dropping, and when closing or moving is refused."""

import gc
import time
import weakref

import pytest

import cudadrv as cu

CLASSES = pytest.mark.parametrize("cls", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer])
HOST = pytest.mark.parametrize("cls", [cu.LockedBuffer, cu.UnifiedBuffer])


@CLASSES
def test_close(cls, stream):
    buffer = cls(8)
    part = buffer[2:4]
    buffer.close()
    buffer.close()
    assert buffer.closed
    assert part.closed
    for use in (
        lambda: buffer.address,
        lambda: buffer.fill(0),
        lambda: buffer.fill_async(0, stream),
        lambda: buffer.copy_from(bytes(8)),
        lambda: buffer.copy_to_async(cls(8), stream),
        lambda: cls(8).copy_from(buffer),
        lambda: buffer[:2],
        lambda: part.view("u2"),
        buffer.take,
        buffer.into_raw,
        buffer.__enter__,
    ):
        with pytest.raises(cu.BufferClosedError, match=r"was closed at .*close\.py:\d+; its"):
            use()
    assert not buffer.borrowed
    assert buffer.count == 8


@CLASSES
def test_a_borrowed_buffer_is_not_closed(cls, stream):
    buffer = cls(8, name="b")
    part = buffer[2:4]
    part.fill_async(0, stream)
    with pytest.raises(cu.BufferBorrowedError) as refusal:
        buffer.close()
    lines = str(refusal.value).splitlines()
    assert lines[0] == f"cannot close {cls.__name__} 'b':"
    assert lines[1].startswith("  it is being written by fill_async on Stream ")
    assert lines[2] == "  and that is not known to be complete."
    with pytest.raises(ValueError, match="is a part; only the whole can be closed"):
        part.close()
    with pytest.raises(cu.BufferBorrowedError, match="cannot give away"):
        buffer.into_raw()
    assert not buffer.closed
    stream.synchronize()
    buffer.close()


@HOST
def test_an_exported_buffer_is_not_closed(cls):
    buffer = cls(8)
    view = memoryview(buffer[2:4])
    buffer[:1].copy_from(b"x")  # allowed: views of the host do not exclude each other
    for end in (buffer.close, buffer.into_raw):
        with pytest.raises(cu.BufferExportedError):
            end()
    view.release()
    buffer.close()


@CLASSES
def test_with_block(cls, stream):
    with cls(8) as buffer:
        assert not buffer.closed
    assert buffer.closed
    with pytest.raises(ValueError, match="is a part"):
        with cls(8)[:4]:
            pytest.fail("a part was entered")
    busy = cls(8)
    with pytest.raises(cu.BufferBorrowedError):
        with busy:
            busy.fill_async(0, stream)
    assert not busy.closed


@CLASSES
def test_with_block_and_an_exception_on_its_way(cls, stream):
    buffer = cls(8)

    def fail_in_a_block(buffer, **work):
        with buffer:
            if work:
                buffer.fill_async(0, **work)
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        fail_in_a_block(buffer, stream=stream)
    (note,) = raised.value.__notes__
    assert note.startswith("cudadrv: leaving the block did not close the buffer: cannot close")
    assert not buffer.closed
    idle = cls(8)
    with pytest.raises(KeyError) as raised:
        fail_in_a_block(idle)
    assert idle.closed
    assert not hasattr(raised.value, "__notes__")


@CLASSES
def test_take(cls, stream):
    first = cls(8, name="b")
    first.ordering = "wait"
    part = first[:4]
    part.fill_async(0, stream)
    second = first.take()
    assert first.closed
    assert (second.count, second.name, second.ordering) == (8, "b", "wait")
    assert second.borrowed
    with pytest.raises(cu.BufferClosedError, match=r"was moved at .*close\.py:\d+; use what that"):
        first.fill(0)
    with second.take() as third:
        assert second.closed
        stream.synchronize()
    assert third.closed
    first.close()
    assert part.closed


def test_closing_on_a_stream(stream, other):
    buffer = cu.DeviceBuffer(8, stream=stream)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close(other)
    buffer.close(stream)
    plain = cu.DeviceBuffer(8)
    with pytest.raises(ValueError, match="not stream-ordered memory"):
        plain.close(stream)
    with pytest.raises(TypeError, match="stream must be a Stream"):
        plain.close(3)
    plain.close()


def test_stream_ordered_memory_outlives_its_stream():
    stream = cu.Stream()
    buffer = cu.DeviceBuffer(8, stream=stream)
    stream.synchronize()
    stream.close()
    buffer.fill(1)
    buffer.close()
    assert buffer.closed


# ---- dropping ----


@CLASSES
def test_a_buffer_dies_without_blocking(cls, stream, gate):
    buffer = cls(1 << 16)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    alive = weakref.ref(buffer)
    del buffer  # a wait for `stream` here would never end, because the gate is closed
    gc.collect()
    assert alive() is None


@pytest.mark.cuda_software
@pytest.mark.usefixtures("unpooled")
@pytest.mark.parametrize("kind", ["device", "host", "managed"])
def test_memory_outlives_its_buffer_while_it_is_used(stream, gate, kind):
    from cudadrv import testing

    makers = {
        "device": lambda: cu.DeviceBuffer(64),
        "host": lambda: cu.LockedBuffer(64),
        "managed": lambda: cu.UnifiedBuffer(64),
    }
    before = testing.live_objects()[kind]
    gate.hold(stream)
    buffer = makers[kind]()
    buffer.fill_async(1, stream)
    del buffer
    # Allocations release what can be released.
    cu.LockedBuffer(0), cu.DeviceBuffer(1, stream=cu.Stream())
    assert testing.live_objects()[kind] == before + 1
    gate.open()
    stream.synchronize()
    cu.reap()
    assert testing.live_objects()[kind] == before


def test_a_token_keeps_its_buffers(stream):
    token = cu.DeviceBuffer(8).fill_async(1, stream)
    (buffer,) = token.writes
    assert not buffer.closed
    token.wait()


def test_reap_waits(stream, gate):
    import threading

    buffer = cu.DeviceBuffer(64)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    del buffer
    start = time.monotonic()
    threading.Timer(0.05, gate.open).start()
    cu.reap()
    assert time.monotonic() - start >= 0.05


@pytest.mark.cuda_software
def test_when_memory_dies_changes_no_answer(stream, gate):
    """Releasing dropped memory orders nothing.

    Stream-ordered memory is freed on a stream, behind the work that uses it. Blocking calls do not
    wait for that work.
    """
    gate.hold(stream)
    buffer = cu.DeviceBuffer(64, stream=stream)
    target = cu.DeviceBuffer(8)
    target.fill_async(1, stream)
    del buffer
    cu.DeviceBuffer(1)
    with pytest.raises(cu.BufferBorrowedError):
        target.fill(0)
    cu.DeviceBuffer(8).fill(0)  # would block for ever if it waited for `stream`


@pytest.mark.cuda_software
def test_memory_used_by_a_closed_stream(gate):
    stream = cu.Stream()
    gate.hold(stream)
    buffer = cu.DeviceBuffer(64)
    buffer.fill_async(1, stream)
    stream.close()
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close()
    del buffer
    cu.DeviceBuffer(1)
    gate.open()
    cu.reap()


def test_memory_used_by_another_threads_default_stream():
    """Memory that another thread's default stream uses is kept until that thread has waited.

    No other thread can wait for that stream.
    """
    import threading

    done = threading.Event()
    used = threading.Event()

    def work():
        stream = cu.Stream.per_thread()
        buffers.pop().fill_async(1, stream)
        used.set()
        done.wait()
        stream.synchronize()

    buffers = [cu.DeviceBuffer(64)]
    thread = threading.Thread(target=work)
    thread.start()
    used.wait()
    cu.reap()
    done.set()
    thread.join()
    cu.reap()


@pytest.mark.cuda_software
def test_reports(stream):
    buffers = [cu.LockedBuffer(1000) for _ in range(3)]
    report = cu.memory_report()
    assert "Live buffers hold 3000 bytes:" in report
    assert "3000 bytes in 3 page-locked buffers, made at" in report
    live = cu.live_buffers()[0]
    assert (live.kind, live.nbytes, live.device) == ("page-locked", 1000, 0)
    del buffers
