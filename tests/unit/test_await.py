"""``await token``."""

import asyncio
import gc
import threading
import time
import weakref

import pytest

import cudadrv as cu
from cudadrv._await import completion

WATCHER = "cudadrv-await"


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


async def ends(waiting) -> None:
    """Wait for something that must end, and not for ever."""
    await asyncio.wait_for(waiting, 10)


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
    """Not when the thread sees it: that would depend on how fast things are."""
    gate.hold(stream)
    token = buffer.fill_async(1, stream)

    async def main():
        coroutine = token.__await__()
        future = next(coroutine)
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

    async def main():
        tokens = [
            buffer.fill_async(1, (stream, other)[index % 2]) for index, buffer in enumerate(buffers)
        ]

        async def wait(token):
            await token

        tasks = [asyncio.create_task(wait(token)) for token in tokens]
        await asyncio.sleep(0.01)
        assert [thread.name for thread in threading.enumerate()].count(WATCHER) == 1
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
    deadline = time.monotonic() + 10
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
    """The waiting thread is a daemon."""
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
