"""Token: one operation, to be waited for alone."""

import gc
import inspect

import pytest

import cudadrv as cu


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


def here(back: int = 0) -> str:
    """The line that calls this, or one after it."""
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
