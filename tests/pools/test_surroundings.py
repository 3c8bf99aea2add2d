"""Pools beside threads, captures, forks, the interpreter's end, contexts and faults."""

import ctypes
import random
import threading

import pytest

import cudadrv as cu
from cudadrv import testing


def test_threads_never_share_memory(driver):
    """Each thread writes its own mark to its buffers and reads it back.

    The fixture `driver` fails the test if there is a data race.
    """
    wrong = []

    def work(seed):
        choice = random.Random(seed)
        stream, target = cu.Stream(), cu.LockedBuffer(1000)
        mine = []
        try:
            for step in range(150):
                how = {"stream": stream} if choice.random() < 0.5 else {}
                buffer = cu.DeviceBuffer(choice.randrange(900, 1001), **how)
                buffer.fill_async(seed * 16 + step % 16, stream)
                mine.append((buffer, seed * 16 + step % 16))
                if choice.random() < 0.3:
                    buffer, mark = choice.choice(mine)
                    part = target[: buffer.count]
                    part.copy_from_async(buffer, stream).wait()
                    if set(part.to_numpy()) != {mark}:
                        wrong.append((seed, step))
                if len(mine) > 4:
                    mine.pop(choice.randrange(4))
            stream.synchronize()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.cuda_software
def test_a_capture_notices_nothing(pools, stream):
    """Allocations from pools do not invalidate a capture, even if it forbids all allocations."""
    library = ctypes.CDLL(cu.driver_info().path)
    kept = [cu.DeviceBuffer(1000), cu.LockedBuffer(1000), cu.UnifiedBuffer(1000)]
    dying = cu.DeviceBuffer(5000)
    del kept
    graph = ctypes.c_void_p()
    with cu.Device(0):
        assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 0) == 0
        calls = testing.calls()
        again = [cu.DeviceBuffer(1000), cu.LockedBuffer(1000), cu.UnifiedBuffer(1000)]
        del dying
        for buffer in again:
            buffer.close()
        assert testing.calls() == calls
        assert library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
        library.cuGraphDestroy(graph)


@pytest.mark.cuda_software
def test_a_capturing_stream_gets_nothing_and_takes_nothing(pools, stream):
    library = ctypes.CDLL(cu.driver_info().path)
    cu.DeviceBuffer(1000, stream=stream).close()
    before = pools.device.stats
    graph = ctypes.c_void_p()
    with cu.Device(0):
        assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 2) == 0
        with pytest.raises(cu.OwnershipError, match="captur"):
            cu.DeviceBuffer(1000, stream=stream)
        assert library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
        library.cuGraphDestroy(graph)
    assert pools.device.stats[:2] == before[:2]
    stream.synchronize()
    assert cu.DeviceBuffer(1000, stream=stream).nbytes == 1000


def test_dying_in_a_forked_child(script):
    script.quiet("""
        import os
        import cudadrv as cu
        kept, live = cu.DeviceBuffer(1000), cu.LockedBuffer(1000)
        pools = live.context.pools
        kept.close()
        child = os.fork()
        if child == 0:
            del live
            stats = pools.device.stats, pools.locked.stats
            for use in (lambda: cu.DeviceBuffer(1000), cu.reap, lambda: pools.device.trim(),
                        lambda: cu.Device(0).context.pools):
                try:
                    use()
                except cu.ForkedError:
                    continue
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert cu.DeviceBuffer(1000).nbytes == 1000
        """)


@pytest.mark.parametrize(
    "last",
    [
        "kept = cu.DeviceBuffer(1000); kept.close()",
        "import sys; sys.kept = cu.DeviceBuffer(9).fill_async(1, cu.Stream()); cu.LockedBuffer(9)",
        "import atexit; b = cu.UnifiedBuffer(1000); atexit.register(b.close)",
        "import builtins; builtins.pools = cu.Device(0).context.pools; cu.DeviceBuffer(10)",
    ],
)  # fmt: skip
def test_the_interpreter_ends_quietly(script, last):
    script.quiet(f"import cudadrv as cu\ncu.DeviceBuffer(100)\n{last}")


@pytest.mark.cuda_software
def test_a_context_takes_its_memory_along(driver):
    before = testing.live_objects()
    context = cu.Context.create(cu.Device(0))
    with context:
        buffers = [cu.DeviceBuffer(1000), cu.LockedBuffer(1000), cu.UnifiedBuffer(1000)]
    pools = context.pools
    del buffers
    assert pools.device.stats.cached_bytes == 1000
    assert cu.Device(0).context.pools.device.stats.cached_bytes == 0
    assert testing.live_objects()["device"] == before["device"] + 1
    del context, pools
    assert testing.live_objects() == before


@pytest.mark.cuda_software
def test_a_lost_context_keeps_nothing(script):
    script.quiet(
        """
        import cudadrv as cu
        from cudadrv import testing
        cu.DeviceBuffer(1000).close()
        live, stream = cu.DeviceBuffer(1000), cu.Stream()
        locked = cu.LockedBuffer(8)
        testing.fail("cuStreamQuery", 700)
        try:
            stream.synchronize()
        except cu.ContextLostError:
            pass
        del live
        locked.close()
        try:
            cu.DeviceBuffer(1000)
        except cu.ContextLostError:
            pass
        else:
            raise AssertionError
        """,
        CUDADRV_DRIVER="software",
    )


@pytest.mark.cuda_software
def test_devices_have_pools_of_their_own(script):
    script.quiet(
        """
        import cudadrv as cu
        zero, one = cu.Device(0), cu.Device(1)
        near, far = cu.Stream(device=zero), cu.Stream(device=one)
        address = cu.DeviceBuffer(1000, device=zero).address
        assert cu.DeviceBuffer(1000, device=one).address != address
        assert zero.context.pools.device.stats.cached_bytes == 1000
        locked, target = cu.LockedBuffer(1000, device=zero), cu.DeviceBuffer(1000, device=one)
        address = locked.address
        target.copy_from_async(locked, far)
        del locked
        near.synchronize()
        elsewhere = cu.LockedBuffer(1000, device=zero)
        assert elsewhere.address != address     # the other device reads it
        far.synchronize()
        assert cu.LockedBuffer(1000, device=zero).address == address
        """,
        CUDADRV_DRIVER="software",
        CUDADRV_SOFTWARE="devices=2",
    )


def test_no_two_buffers_get_one_block(driver):
    """Two buffers never get one block, even if a destructor allocates during an allocation."""
    import gc

    class Maker:
        def __init__(self, made):
            self.made, self.cycle = made, self

        def __del__(self):
            self.made.append(cu.DeviceBuffer(1000))

    for threshold in range(1, 40):
        cu.DeviceBuffer(1000).close()
        made = []
        Maker(made)
        former = gc.get_threshold()
        gc.set_threshold(threshold)
        try:
            made += [cu.DeviceBuffer(1000) for _ in range(3)]
        finally:
            gc.set_threshold(*former)
        gc.collect()
        addresses = [buffer.address for buffer in made]
        assert len(addresses) == len(set(addresses)) == 4
