"""``with stream:``, the current stream, by context and by task."""

import asyncio
import contextvars
import threading

import pytest

import cudadrv as cu


def fill(buffer: cu.LockedBuffer) -> cu.Token:
    return buffer.fill_async(1)


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


def test_calls_without_a_stream_use_it(stream, other, buffer):
    with stream:
        token = fill(buffer)
        assert token.stream is stream
        with other:
            other.wait(token)
            assert fill(buffer).stream is other
        stream.wait(other)
        assert fill(buffer).stream is stream
    with pytest.raises(TypeError, match="needs a stream"):
        fill(buffer)


def test_an_argument_comes_first(stream, other, buffer):
    with stream:
        assert buffer.fill_async(1, other).stream is other


def test_each_block_counts_until_its_own_end(stream, other, buffer):
    stream.__enter__()
    other.__enter__()
    stream.__exit__(None, None, None)
    assert fill(buffer).stream is other
    other.__exit__(None, None, None)
    with pytest.raises(TypeError):
        fill(buffer)
    with pytest.raises(RuntimeError, match="is not entered here"):
        stream.__exit__(None, None, None)


def test_a_generator_that_is_suspended_in_a_block(stream, buffer):
    def work():
        with stream:
            yield

    suspended = work()
    next(suspended)
    assert fill(buffer).stream is stream
    suspended.close()
    with pytest.raises(TypeError):
        fill(buffer)


def test_a_stream_of_another_context_is_passed_over(stream, buffer):
    with cu.Context.create(cu.Device(0)):
        foreign = cu.Stream()
    device = cu.DeviceBuffer(16)
    with stream, foreign:
        assert device.fill_async(1).stream is stream
    cu.Device(0).synchronize()


def test_exceptions_leave_the_block(stream, buffer):
    with pytest.raises(ZeroDivisionError), stream:
        1 / 0  # noqa: B018
    with pytest.raises(TypeError):
        fill(buffer)


def test_new_threads_start_without(stream, buffer):
    found = []

    def run():
        try:
            fill(buffer)
        except TypeError as error:
            found.append(error)

    with stream:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(found) == 1


def test_a_copied_context_takes_it_along(stream, buffer):
    with stream:
        copied = contextvars.copy_context()
    assert copied.run(fill, buffer).stream is stream


def test_tasks_have_their_own(stream, other):
    async def use(mine: cu.Stream) -> bool:
        buffer = cu.LockedBuffer.zeros(16)
        with mine:
            await asyncio.sleep(0)
            token = fill(buffer)
            await token
            return token.stream is mine

    async def main():
        return await asyncio.gather(*[use(each) for each in (stream, other, stream, other)])

    assert asyncio.run(main()) == [True] * 4


def test_the_current_stream(stream, other):
    assert cu.Stream.current() is None
    with stream:
        assert cu.Stream.current() is stream
        assert cu.Stream.current(device=cu.Device(0)) is stream
        with other.scope():
            assert cu.Stream.current() is other
        assert cu.Stream.current() is stream
    assert cu.Stream.current() is None


def test_the_current_stream_of_a_device(stream):
    with cu.Context.create(cu.Device(0)):
        inner = cu.Stream()
    with stream, inner:
        assert cu.Stream.current() is inner
        assert cu.Stream.current(device=cu.Device(0)) is stream
    with inner:
        assert cu.Stream.current(device=cu.Device(0)) is None
    with pytest.raises(TypeError, match="device must be a Device"):
        cu.Stream.current(device=0)


def test_a_stream_that_is_closed_in_its_block(driver):
    closing = cu.Stream()
    device, locked = cu.DeviceBuffer(16), cu.LockedBuffer.zeros(16)
    with closing:
        closing.close()
        assert cu.Stream.current() is closing
        for use in (
            lambda: device.fill_async(1),
            lambda: locked.copy_from(bytes(16)),
            lambda: cu.DeviceBuffer(16),
            lambda: cu.DeviceBuffer.zeros(16),
            lambda: cu.LockedBuffer.from_array(b"1"),
        ):
            with pytest.raises(ValueError, match="is closed"):
                use()
        assert cu.LockedBuffer(16, pooled=False).count == 16
        locked[0] = 1  # access of the host needs no stream
    assert cu.Stream.current() is None


def test_allocations_follow_generators(stream):
    def work():
        with stream:
            yield cu.DeviceBuffer(16).stream_ordered

    suspended = work()
    assert next(suspended)
    assert cu.DeviceBuffer(16).stream_ordered
    suspended.close()
    assert not cu.DeviceBuffer(16).stream_ordered


def test_allocations_of_new_threads_do_not(stream):
    found = []
    with stream:
        thread = threading.Thread(target=lambda: found.append(cu.DeviceBuffer(16).stream_ordered))
        thread.start()
        thread.join()
        found.append(cu.DeviceBuffer(16).stream_ordered)
    assert found == [False, True]


def test_the_default_stream_of_another_thread(driver):
    """A per-thread default stream is current in another thread, as in asyncio.to_thread.

    No call can use the stream in that thread.
    """
    found = []

    def use():
        for call in (lambda: cu.DeviceBuffer(16), lambda: cu.LockedBuffer.zeros(16)):
            with pytest.raises(ValueError, match="another thread's"):
                call()
        found.append(cu.LockedBuffer(16)[0])

    with cu.Stream.per_thread():
        copied = contextvars.copy_context()
        thread = threading.Thread(target=copied.run, args=(use,))
        thread.start()
        thread.join()
    assert len(found) == 1
