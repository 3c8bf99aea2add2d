"""``await`` of a token, an event, a stream; ``async with stream.scope()``."""

import asyncio
import gc
import threading
import time
import weakref

import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv._await import completion


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


async def ends(waiting) -> None:
    """Await something that must complete within PATIENCE."""
    await asyncio.wait_for(waiting, PATIENCE)


def test_the_loop_goes_on_while_it_waits(stream, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(1, stream)

    async def main():
        async def wait():
            await token

        waiting = asyncio.create_task(wait())
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        gate.open()
        await ends(waiting)

    asyncio.run(main())
    assert not buffer.borrowed
    assert buffer[0] == 1


def test_the_host_knows_when_the_coroutine_goes_on(stream, buffer, gate):
    """Work becomes known to the host when the coroutine continues, not in the watching thread.

    Otherwise answers would depend on timing.
    """
    gate.hold(stream)
    token = buffer.fill_async(1, stream)

    async def main():
        coroutine = token.__await__()
        future = next(coroutine)
        future._asyncio_future_blocking = False  # a task does this with each future that it gets
        gate.open()
        await ends(future)
        assert buffer.borrowed
        await token
        assert not buffer.borrowed

    asyncio.run(main())


def test_what_is_complete_needs_no_loop_turn(stream, buffer):
    token = buffer.fill_async(1, stream)
    token.wait()
    with pytest.raises(StopIteration):
        token.__await__().__next__()


def test_many_at_once_share_one_thread(stream, other, gate):
    buffers = [cu.LockedBuffer.zeros(16) for _ in range(100)]
    for each in (stream, other):
        gate.hold(each)
    before = set(threading.enumerate())

    async def main():
        tokens = [
            buffer.fill_async(1, (stream, other)[index % 2]) for index, buffer in enumerate(buffers)
        ]

        async def wait(token):
            await token

        tasks = [asyncio.create_task(wait(token)) for token in tokens]
        await asyncio.sleep(0.01)
        assert len(set(threading.enumerate()) - before) <= 1
        gate.open()
        await ends(asyncio.gather(*tasks))

    asyncio.run(main())
    assert not any(buffer.borrowed for buffer in buffers)


def test_cancelling_keeps_the_borrow(stream, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(1, stream)

    async def main():
        async def wait():
            await token

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert buffer.borrowed
        gate.open()
        await token

    asyncio.run(main())
    assert not buffer.borrowed


def test_a_timeout_keeps_the_borrow(stream, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(1, stream)

    async def wait():
        await token

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(wait(), 0.02))
    assert buffer.borrowed
    gate.open()
    token.wait()


def test_a_loop_that_closes_is_forgotten(stream, buffer, gate):
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    loop = asyncio.new_event_loop()

    async def begin():
        return next(token.__await__())

    future = loop.run_until_complete(begin())
    loop.close()
    gate.open()
    token.wait()
    assert not future.done()
    asyncio.run(ends(asyncio.sleep(0)))


def test_several_loops(gate):
    def run(results: list) -> None:
        async def main():
            stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
            await buffer.fill_async(1, stream)
            stream.close()
            return buffer[0]

        results.append(asyncio.run(main()))

    results: list = []
    threads = [threading.Thread(target=run, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 4


def test_nothing_is_kept_alive(stream, gate):
    gate.hold(stream)
    buffer = cu.LockedBuffer.zeros(16)

    async def main(token):
        async def wait():
            await token

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        gate.open()
        await ends(waiting)

    asyncio.run(main(buffer.fill_async(1, stream)))
    alive = weakref.ref(buffer)
    del buffer
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while alive() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert alive() is None


def test_errors_reach_the_coroutine(driver):
    class Broken:
        def _is_complete(self):
            raise ZeroDivisionError

    async def main():
        await completion(Broken())

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


@pytest.mark.cuda_software
def test_a_lost_context_reaches_the_coroutine(script):
    script.quiet("""
        import asyncio
        import cudadrv as cu
        from cudadrv import testing
        testing.configure("schedule=lazy")
        stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        async def main():
            token = buffer.fill_async(1, stream)
            assert not token.done
            testing.configure("fault=cuEventQuery:1:700")
            try:
                await token
            except cu.ContextLostError as error:
                assert "fill_async" in error.suspects[0], error.suspects
            else:
                raise AssertionError("not raised")
        asyncio.run(main())
    """)


def test_exit_while_somebody_waits(script):
    """The process ends while a coroutine waits: the watching thread is a daemon."""
    script.quiet("""
        import asyncio
        import cudadrv as cu
        stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        async def wait():
            await buffer.fill_async(1, stream)
        async def main():
            global waiting
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
        asyncio.run(main())
    """)


AWAITED = {
    "token": lambda stream, buffer: buffer.fill_async(1, stream),
    "event": lambda stream, buffer: (buffer.fill_async(1, stream), stream.record())[1],
    "stream": lambda stream, buffer: (buffer.fill_async(1, stream), stream)[1],
}


@pytest.mark.parametrize("name", AWAITED)
def test_everything_that_waits_can_be_awaited(stream, buffer, gate, name):
    gate.hold(stream)
    awaited = AWAITED[name](stream, buffer)

    async def main():
        async def wait():
            await awaited
            return buffer.borrowed

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert buffer.borrowed
        gate.open()
        assert await asyncio.wait_for(waiting, PATIENCE) is False

    asyncio.run(main())
    assert buffer[0] == 1
    with pytest.raises(StopIteration):  # an object whose work is complete needs no event loop
        awaited.__await__().__next__()


@pytest.mark.parametrize("name", AWAITED)
def test_a_wait_that_is_cancelled_changes_nothing(stream, buffer, gate, name):
    gate.hold(stream)
    awaited = AWAITED[name](stream, buffer)

    async def main():
        async def wait():
            await awaited

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.02)
        assert buffer.borrowed
        gate.open()
        await awaited

    asyncio.run(main())
    assert not buffer.borrowed


def test_await_stream_is_for_the_work_queued_so_far(stream, other, buffer, gate):
    second = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream)

    async def main():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        gate.hold(stream)
        second.fill_async(1, stream)
        await ends(waiting)

    async def wait():
        await stream

    asyncio.run(main())
    assert not buffer.borrowed
    assert second.borrowed
    gate.open()
    stream.synchronize()


def test_an_event_that_is_recorded_again_stands_for_what_it_stood_for(stream, buffer, gate):
    gate.hold(stream)
    second = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream)
    event = stream.record()

    async def main():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        second.fill_async(1, stream)
        stream.record(event)
        gate.open()
        await ends(waiting)

    async def wait():
        await event

    asyncio.run(main())
    assert not buffer.borrowed
    assert second.borrowed
    stream.synchronize()


def test_an_event_that_moves_to_another_stream(stream, other, buffer, gate):
    gate.hold(stream)
    buffer.fill_async(1, stream)
    event = stream.record()

    async def main():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        other.record(event)
        with pytest.raises(cu.OwnershipError, match="recorded on another stream"):
            await ends(waiting)

    async def wait():
        await event

    asyncio.run(main())
    assert buffer.borrowed
    gate.open()
    stream.synchronize()


def test_an_event_that_is_closed_meanwhile(stream, buffer, gate):
    gate.hold(stream)
    buffer.fill_async(1, stream)
    event = stream.record()

    async def main():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        event.close()
        with pytest.raises(ValueError, match="closed"):
            await ends(waiting)

    async def wait():
        await event

    asyncio.run(main())
    assert buffer.borrowed
    gate.open()
    stream.synchronize()


def test_what_cannot_be_awaited(driver):
    closed = cu.Stream()
    closed.close()
    for wrong, error in [
        (cu.Event(), cu.EventNotRecordedError),
        (closed, ValueError),
        (cu.Stream.__new__(cu.Stream), TypeError),
        (cu.Event.__new__(cu.Event), ValueError),
    ]:
        with pytest.raises(error):
            wrong.__await__().__next__()


def test_a_scope_of_a_task(stream, other, buffer, gate):
    gate.hold(stream)

    async def main():
        async def work():
            async with stream.scope() as inside:
                assert inside is stream
                assert cu.Stream.current() is stream
                buffer.fill_async(1)
            return buffer.borrowed, cu.Stream.current()

        with other:
            working = asyncio.create_task(work())
            await asyncio.sleep(0.01)
            assert not working.done()
            assert cu.Stream.current() is other
            gate.open()
            assert await asyncio.wait_for(working, 10) == (False, other)

    asyncio.run(main())


def test_a_scope_whose_task_fails(stream, buffer):
    async def main():
        async with stream.scope():
            buffer.fill_async(1)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    assert not buffer.borrowed


def test_a_scope_whose_task_is_cancelled_while_it_waits(stream, buffer, gate):
    gate.hold(stream)

    async def main():
        async def work():
            async with stream.scope():
                buffer.fill_async(1)

        async def inner():
            try:
                await work()
            finally:
                assert cu.Stream.current() is None

        working = asyncio.create_task(inner())
        await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(main())
    assert buffer.borrowed
    gate.open()
    stream.synchronize()


def test_a_scope_whose_waiting_fails_keeps_the_exception(driver):
    stream = cu.Stream()

    async def main():
        async with stream.scope():
            stream.close()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        asyncio.run(main())
    assert "may be unfinished" in caught.value.__notes__[0]
    assert cu.Stream.current() is None
