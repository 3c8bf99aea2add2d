"""Token: stands for one operation, for which the host and streams can wait."""

import gc
import inspect
import sys
import weakref

import pytest

import cudadrv as cu


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


def here(back: int = 0) -> str:
    """The line of the caller as messages show it, or a line `back` lines below it."""
    return f":{inspect.currentframe().f_back.f_lineno + back}"


def test_what_it_says(stream, buffer):
    token = buffer.fill_async(1, stream)
    line = here(-1)
    assert token.stream is stream
    assert token.reads == ()
    assert token.writes == (buffer,)
    assert token.site.endswith(f"test_token.py{line}")
    assert repr(token).startswith("<Token fill_async on Stream")
    assert "queued at" in repr(token)
    token.wait()
    assert repr(token).endswith(", complete>")


def test_it_is_made_by_operations_alone():
    with pytest.raises(TypeError, match="asynchronous methods"):
        cu.Token()


def test_wait_covers_it_and_what_was_before(stream, buffer):
    earlier = cu.LockedBuffer.zeros(16)
    earlier.fill_async(1, stream)
    token = buffer.fill_async(1, stream)
    later = cu.LockedBuffer.zeros(16)
    later.fill_async(1, stream)
    token.wait()
    assert not buffer.borrowed
    assert not earlier.borrowed
    assert later.borrowed


def test_synchronize_is_wait(stream, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(3, stream)
    with pytest.raises(TimeoutError):
        token.synchronize(timeout=0.01)
    gate.open()
    token.synchronize()
    assert token.done


def test_done(stream, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    assert not token.done
    gate.open()
    while not token.done:
        assert buffer.borrowed
    assert not buffer.borrowed


def test_dropping_it_releases_nothing(stream, buffer):
    buffer.fill_async(1, stream)
    gc.collect()
    assert buffer.borrowed


def test_a_stream_that_is_closed(stream, buffer, gate):
    gate.hold(stream)
    asked, fresh = buffer.fill_async(1, stream), buffer.fill_async(2, stream)
    assert not asked.done
    stream.close()
    assert not fresh.done
    gate.open()
    fresh.wait()
    assert asked.done
    assert buffer[0] == 2


def test_other_streams_wait_for_tokens_of_closed_ones(stream, other, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    stream.close()
    other.wait(token)
    last = buffer.fill_async(2, other)
    assert not last.done
    gate.open()
    last.wait()
    assert buffer[0] == 2


@pytest.mark.cuda_software
def test_it_makes_an_event_when_first_asked(stream, buffer):
    from cudadrv import testing

    before = testing.live_objects()["events"]
    token = buffer.fill_async(1, stream)
    assert testing.live_objects()["events"] == before
    token.wait()
    assert testing.live_objects()["events"] == before + 1
    del token
    assert testing.live_objects()["events"] == before


@pytest.mark.cuda_software
def test_known_tokens_ask_nobody(stream, buffer, unchanged):
    token = buffer.fill_async(1, stream)
    stream.synchronize()
    with unchanged("cuEventCreate", "cuEventQuery", "cuEventRecord"):
        assert token.done
        token.wait()


def asked(token):
    token.wait()
    return token


def referred_to(token):
    weakref.finalize(token, int)
    return token


@pytest.mark.parametrize("end", [lambda token: token, asked, referred_to])
def test_it_keeps_its_buffers_until_it_ends(stream, buffer, end):
    """A token keeps its buffers alive until it ends.

    This holds for each way in which it ends, and for more tokens than are kept for reuse.
    """
    other = cu.DeviceBuffer(16)

    def references():
        return sys.getrefcount(stream), sys.getrefcount(buffer), sys.getrefcount(other)

    before = references()
    tokens = [end(other.copy_from_async(buffer, stream)) for _ in range(150)]
    assert references() == tuple(count + 150 for count in before)
    del tokens
    assert references() == before


def test_a_new_one_knows_nothing_of_one_that_ended(stream, buffer, gate):
    ended = weakref.ref(buffer.fill_async(1, stream))
    assert ended() is None
    buffer.fill_async(1, stream).wait()
    gate.hold(stream)
    token = buffer.fill_async(2, stream)
    assert ended() is None
    assert not token.done
    assert token.reads == ()
    assert token.writes == (buffer,)
    gate.open()
    token.wait()


def test_what_it_keeps_can_make_tokens_at_its_end(stream, buffer):
    """A token ends, and with it a buffer that only the token kept alive.

    The buffer's owner then makes tokens.
    """
    made = []

    class Owner:
        def __del__(self):
            made.extend(buffer.fill_async(3, stream) for _ in range(3))

    memory = cu.LockedBuffer.zeros(16)
    kept = cu.LockedBuffer.from_address(memory.address, 16, owner=Owner())
    token = kept.fill_async(1, stream)
    del kept
    assert not made
    stream.synchronize()
    del token
    assert [each.writes for each in made] == [(buffer,)] * 3
    assert len({id(each) for each in made}) == 3
    stream.synchronize()
    assert bytes(buffer) == b"\3" * 16
