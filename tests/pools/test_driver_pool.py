"""`DriverPool`: the driver's own pools. Allocating, closing, choosing a pool, settings."""

import gc
import threading

import numpy as np
import pytest

import cudadrv as cu

KINDS = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
CALLS = ("cuMemAllocFromPoolAsync", "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemAllocManaged")
software = pytest.mark.cuda_software
MIB = 1 << 20


def new_pool(kind, **options):
    try:
        return cu.DriverPool(kind, **options)
    # The driver is too old, or the device has no concurrent managed access.
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(params=KINDS)
def pool(driver, request):
    pool = new_pool(request.param, name="mine")
    yield pool
    cu.Device(0).synchronize()
    cu.reap()
    gc.collect()
    pool.close()


@pytest.fixture
def make(pool):
    def make(count, dtype="u1", **options):
        with pool:
            return KINDS[pool.kind](count, dtype, **options)

    return make


def used(pool):
    return pool.stats.used_bytes


# ---- allocating ----


def test_buffers_of_a_block_have_memory_of_the_pool(pool, make, stream):
    first = make(1000)
    second = make(1000, stream=stream)
    assert used(pool) >= 2000
    assert first.stream_ordered
    assert second.stream_ordered
    assert [buffer.kind for buffer in cu.live_buffers()[:2]] == ["stream-ordered"] * 2
    second.close(stream)
    first.close()
    cu.Device(0).synchronize()
    assert used(pool) == 0


@software
def test_one_driver_call_allocates(pool, make, stream):
    from cudadrv import testing

    before = [testing.calls(name) for name in CALLS]
    buffer = make(1000, stream=stream)
    assert [testing.calls(name) for name in CALLS] == [before[0] + 1, *before[1:]]
    del buffer


def test_without_a_stream_everybody_may_use_it_at_once(make, stream, other):
    buffer = make(4, "i4")
    buffer.copy_from(np.arange(4, dtype="i4"))
    target = cu.DeviceBuffer(4, "i4")
    target.copy_from_async(buffer, stream)
    stream.synchronize()
    buffer.fill_async(7, other)
    other.synchronize()
    assert target.to_numpy().tolist() == [0, 1, 2, 3]
    assert buffer.to_numpy().tolist() == [7] * 4


def test_on_a_stream_others_have_to_be_ordered(make, stream, other):
    buffer = make(16, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match="its allocation on Stream"):
        buffer.fill_async(1, other)
    if isinstance(buffer, cu.HostBuffer):
        with pytest.raises(cu.BufferBorrowedError, match="its allocation on Stream"):
            buffer[0] = 1
    other.wait(stream)
    buffer.fill_async(1, other)
    other.synchronize()
    buffer.fill(2)


def test_the_current_stream_is_taken(make, stream, other):
    with stream:
        buffer = make(16)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(1, other)
    buffer.fill_async(1, stream)
    stream.synchronize()


def test_kernels_and_copies_use_it(make, stream):
    buffer = make(MIB, stream=stream)
    buffer.fill_async(3, stream)
    target = cu.LockedBuffer(MIB)
    target.copy_from_async(buffer, stream)
    stream.synchronize()
    assert (target.to_numpy() == 3).all()


def test_an_empty_buffer_has_no_memory_of_it(pool, make):
    buffer = make(0)
    pool.close()
    assert buffer.nbytes == 0


# ---- how buffers of a pool end ----


@software
def test_a_buffer_that_dies_busy_is_freed_after_its_users(pool, make, stream, gate):
    gate.hold(stream)
    buffer = make(MIB, stream=stream)
    buffer.fill_async(1, stream)
    del buffer
    assert used(pool) >= MIB
    gate.open()
    stream.synchronize()
    cu.reap()
    assert used(pool) == 0


def test_a_buffer_is_closed_on_its_stream_without_waiting(pool, make, stream, gate):
    gate.hold(stream)
    buffer = make(MIB, stream=stream)
    buffer.fill_async(1, stream)
    buffer.close()
    assert buffer.closed
    gate.open()
    stream.synchronize()
    assert used(pool) == 0


def test_a_busy_buffer_without_a_stream_is_not_closed(make, stream, gate):
    buffer = make(16)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close"):
        buffer.close()
    gate.open()
    stream.synchronize()
    buffer.close()


def test_host_views_keep_a_buffer_open(make):
    buffer = make(16)
    if not isinstance(buffer, cu.HostBuffer):
        pytest.skip("the host has no views of it")
    view = memoryview(buffer)
    with pytest.raises(cu.BufferExportedError):
        buffer.close()
    del view
    buffer.close()


def test_its_memory_cannot_be_given_away(make):
    buffer = make(16)
    with pytest.raises(ValueError, match="memory of a DriverPool, which it cannot give away"):
        buffer.into_raw()
    buffer.fill(1)


def test_its_memory_does_not_go_to_the_pools_of_the_context(make, pools):
    kept = [pools.device, pools.locked, pools.unified]
    before = [pool.stats for pool in kept]
    make(1000).close()
    assert [pool.stats for pool in kept] == before


def test_the_memory_outlives_a_pool_that_nobody_refers_to(stream):
    pool = cu.DriverPool()
    with pool:
        buffer = cu.DeviceBuffer(16, stream=stream)
    del pool
    gc.collect()
    buffer.fill_async(1, stream)
    buffer.close(stream)


# ---- closing a pool ----


def test_a_pool_with_live_buffers_is_not_closed(pool, make):
    first, second = make(16), make(16)
    with pytest.raises(cu.OwnershipError, match=r"cannot close .* 2 buffers have memory of it"):
        pool.close()
    first.close()
    with pytest.raises(cu.OwnershipError, match="1 buffer has memory of it"):
        pool.close()
    assert not pool.closed
    make(16).close()
    del second
    pool.close()
    pool.close()
    assert pool.closed


@software
def test_a_pool_is_closed_while_its_memory_waits_to_be_freed(pool, make, stream, other, gate):
    buffer = make(16, stream=stream)
    other.wait(stream)
    gate.hold(other)
    buffer.fill_async(1, other)
    del buffer
    before = cu.testing.calls("cuMemPoolDestroy")
    pool.close()
    assert pool.closed
    # Drivers crash if the pool is destroyed now.
    assert cu.testing.calls("cuMemPoolDestroy") == before
    cu.DriverPool().close()
    assert cu.testing.calls("cuMemPoolDestroy") == before + 1
    gate.open()
    cu.reap()
    cu.Device(0).synchronize()
    cu.DriverPool()
    assert cu.testing.calls("cuMemPoolDestroy") == before + 3


def test_pools_that_are_dropped_before_their_memory(pool, stream, other):
    for number in range(30):
        with new_pool(pool.kind):
            buffer = KINDS[pool.kind](1 << number % 20, stream=stream)
        other.wait(stream)
        buffer.fill_async(number, (stream, other)[number % 2])
        if number % 3:
            buffer.close((stream, other)[number % 2])


@software
def test_a_driver_without_room_for_a_pool(driver, stream, gate):
    with cu.DriverPool() as pool:
        buffer = cu.DeviceBuffer(16, stream=stream)
    gate.hold(stream)
    buffer.close()
    pool.close()
    before = [cu.testing.calls(name) for name in ("cuMemPoolCreate", "cuMemPoolDestroy")]
    cu.testing.fail("cuMemPoolCreate", 2)
    threading.Timer(0.1, gate.open).start()
    cu.DriverPool()
    assert cu.testing.calls("cuMemPoolCreate") == before[0] + 2
    assert cu.testing.calls("cuMemPoolDestroy") == before[1] + 2


def test_a_closed_pool_gives_nothing(pool, make):
    with pool:
        pool.close()
        with pytest.raises(ValueError, match=r"this DriverPool was closed at .*test_driver_pool"):
            KINDS[pool.kind](16)
    for use in (
        pool.__enter__,
        lambda: pool.stats,
        lambda: pool.release_threshold,
        lambda: pool.handle,
        pool.trim,
        pool.reset_peaks,
        lambda: pool.allow_access(cu.Device(0)),
    ):
        with pytest.raises(ValueError, match="this DriverPool was closed at"):
            use()
    assert "closed" in repr(pool)


def test_a_failing_allocation_counts_as_no_buffer(pool, make, stream):
    with pytest.raises(cu.CudaOutOfMemoryError):
        make(1 << 50, stream=stream)
    pool.close()


# ---- which buffers are from a pool ----


def test_other_kinds_and_unpooled_buffers_come_from_elsewhere(pool):
    with pool:
        for kind, cls in KINDS.items():
            before = used(pool)
            buffer = cls(1000)
            assert (used(pool) > before) == (kind == pool.kind)
            buffer.close()
            cu.Device(0).synchronize()
        buffer = KINDS[pool.kind](1000, pooled=False)
        assert not buffer.stream_ordered
        del buffer


def test_the_innermost_pool_of_the_kind_counts():
    outer, inner, locked = cu.DriverPool(), cu.DriverPool(), new_pool("locked")
    with outer:
        with inner, locked:
            first = cu.DeviceBuffer(16)
            third = cu.LockedBuffer(16)
        second = cu.DeviceBuffer(16)
    assert [used(pool) for pool in (outer, inner, locked)] == [16, 16, 16]
    del first, second, third


def test_a_context_chooses(pool, pools):
    mine = getattr(pools, pool.kind)
    mine.driver_pool = pool
    try:
        assert mine.driver_pool is pool
        buffer = KINDS[pool.kind](1000)
        assert used(pool) >= 1000
        with new_pool(pool.kind) as other:
            before = used(pool)
            second = KINDS[pool.kind](1000)
            assert used(pool) == before
            assert used(other) >= 1000
    finally:
        mine.driver_pool = None
    del buffer, second
    assert not KINDS[pool.kind](1000, pooled=False).stream_ordered


def test_bad_choices(pools):
    locked = new_pool("locked")
    with pytest.raises(ValueError, match="is not a pool of device memory"):
        pools.device.driver_pool = locked
    with pytest.raises(TypeError, match="driver_pool is a DriverPool or None"):
        pools.device.driver_pool = "device"
    locked.close()
    with pytest.raises(ValueError, match="was closed"):
        pools.locked.driver_pool = locked


def test_write_combined_memory_is_not_in_pools():
    pool = new_pool("locked")
    with pool:
        with pytest.raises(ValueError, match="cannot be write-combined"):
            cu.LockedBuffer(16, write_combined=True)
        cu.LockedBuffer(16, write_combined=True, pooled=False)


def test_a_block_is_of_its_thread(pool, in_a_thread):
    with pool:
        in_a_thread(lambda: KINDS[pool.kind](16, pooled=True))
        assert used(pool) == 0


# ---- settings ----


def test_settings(pool):
    assert pool.release_threshold == 0
    for threshold in (MIB, 2**64 - 1):  # 2**64 - 1 is how programs say "release nothing"
        pool.release_threshold = threshold
        assert pool.release_threshold == threshold
    names = [name for name in dir(pool) if name.startswith("reuse_")]
    assert len(names) == 3
    for name in names:
        for value in (False, True):
            setattr(pool, name, value)
            assert getattr(pool, name) is value
        with pytest.raises(TypeError, match="a reuse flag is True or False"):
            setattr(pool, name, 1)
    with pytest.raises(ValueError, match="release_threshold is a number of bytes"):
        pool.release_threshold = -1


def test_stats_and_trim(pool, make, stream):
    pool.release_threshold = 1 << 40
    make(MIB, stream=stream).close(stream)
    cu.Device(0).synchronize()  # after stream.synchronize(), an H200 trims nothing
    stats = pool.stats
    assert stats.used_bytes == 0
    assert stats.peak_used_bytes >= MIB
    assert stats.peak_reserved_bytes >= stats.reserved_bytes >= MIB
    pool.trim(keep_bytes=0)
    assert pool.stats.reserved_bytes == 0
    pool.reset_peaks()
    assert pool.stats == (0, 0, 0, 0)
    with pytest.raises(ValueError, match="keep_bytes is a number of bytes"):
        pool.trim(keep_bytes=-1)


@pytest.mark.parametrize("kind", ["device", "locked"])
def test_a_limit(kind, stream):
    pool = new_pool(kind, max_bytes=64 * MIB)
    with pool:
        buffer = KINDS[kind](48 * MIB, stream=stream)
        with pytest.raises(cu.CudaOutOfMemoryError, match="cuMemAllocFromPoolAsync"):
            KINDS[kind](48 * MIB, stream=stream)
        del buffer
        # This allocation succeeds, because it releases the dropped buffer.
        KINDS[kind](48 * MIB, stream=stream).close(stream)


def test_access():
    pool = cu.DriverPool()
    assert pool.access(cu.Device(0)) == "readwrite"
    with pytest.raises(cu.CudaError):  # a device always has access to its own pool
        pool.allow_access(cu.Device(0), None)
    pool.allow_access(cu.Device(0))
    with pytest.raises(ValueError, match="access is 'readwrite', 'read' or None"):
        pool.allow_access(cu.Device(0), "write")
    with pytest.raises(TypeError, match="access to a device pool is that of a Device"):
        pool.allow_access("host")
    locked = new_pool("locked")
    with pytest.raises(ValueError, match="can be used everywhere"):
        locked.allow_access(cu.Device(0), None)


def test_kernels_of_all_devices_may_use_page_locked_memory(stream):
    """All devices have access to pools of page-locked memory.

    Without access, a kernel that uses such memory would lose the context.
    """
    for pool in (new_pool("locked"), cu.DriverPool.of("host")):
        with pool:
            buffer = cu.LockedBuffer(64, "u4")
        work = cu.DeviceBuffer(64, "u4")
        buffer.fill(5)
        work.copy_from_async(buffer, stream)
        stream.synchronize()
        assert (work.to_numpy() == 5).all()
        buffer.close()


def test_advice_is_refused():
    pool = new_pool("unified")
    with pool:
        buffer = cu.UnifiedBuffer(MIB)
    with pytest.raises(ValueError, match="memory of a DriverPool, which takes no advice"):
        buffer.advise(read_mostly=True)


def test_attachments_are_refused(stream):
    pool = new_pool("unified")
    with pool:
        buffer = cu.UnifiedBuffer(MIB)
    same = cu.UnifiedBuffer.from_address(buffer.address, MIB)
    for each in (buffer, same):
        with pytest.raises(ValueError, match="memory of a DriverPool, which cannot be attached"):
            each.attach(stream)
        with pytest.raises(ValueError, match="memory of a DriverPool, which takes no advice"):
            each.advise(read_mostly=True)
    assert not buffer.borrowed


def test_prefetch(stream):
    pool = new_pool("unified", place="host")
    with pool:
        buffer = cu.UnifiedBuffer(MIB)
    buffer.fill(1)
    buffer.prefetch(cu.Device(0), stream).wait()
    buffer.prefetch("host", stream).wait()
    assert buffer[0] == 1


# ---- default pools ----


def test_default_pools():
    pool = cu.DriverPool.of(cu.Device(0))
    assert (pool.kind, pool.place, pool.name) == ("device", cu.Device(0), None)
    assert "default" in repr(pool)
    assert cu.DriverPool.of().handle == pool.handle
    with pool:
        buffer = cu.DeviceBuffer(16)
    with pytest.raises(cu.OwnershipError, match="cannot close"):
        pool.close()
    del buffer
    pool.close()
    with cu.DriverPool.of():  # the default pool is usable after `close`
        cu.DeviceBuffer(16).close()


def test_default_pools_of_the_host():
    new_pool("locked").close()
    assert cu.DriverPool.of("host").kind == "locked"
    assert cu.DriverPool.of("host", "unified").kind == "unified"
    assert cu.DriverPool.of(cu.Device(0), "unified").kind == "unified"


# ---- arguments ----


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("host",), {}, "kind is 'host', and must be"),
        (("device", "host"), {}, "memory of a device is at a Device"),
        (("locked", "device"), {}, "a place is a Device, 'host' or 'host:N'"),
        (("unified", "nowhere"), {}, "a place is a Device, 'host' or 'host:N'"),
        (("device",), {"max_bytes": 0}, "max_bytes must be at least 1"),
        (("unified",), {"max_bytes": 5}, "max_bytes must be at least 1, and is not for unified"),
        (("device",), {"max_bytes": -1}, "max_bytes is a number of bytes"),
        (("device",), {"release_threshold": -1}, "release_threshold is a number of bytes"),
    ],
)
def test_bad_arguments(arguments, options, text):
    new_pool("unified").close()
    with pytest.raises(ValueError, match=text):
        cu.DriverPool(*arguments, **options)


def test_page_locked_memory_is_on_no_device():
    new_pool("locked").close()
    with pytest.raises(ValueError, match="page-locked memory is at 'host' or 'host:N'"):
        cu.DriverPool("locked", cu.Device(0))


@software
@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_an_older_driver_says_so(script, kind):
    script.quiet(
        f"""
        import cudadrv as cu
        cu.DriverPool().close()
        try:
            cu.DriverPool({kind!r})
        except ValueError as error:
            assert "this driver has no pools of {kind} memory: that needs a driver of CUDA 13.0" \\
                in str(error), error
        else:
            raise AssertionError
        """,
        CUDADRV_SOFTWARE="driver=12.8",
    )


@software
def test_no_concurrent_access(script):
    script.quiet(
        """
        import cudadrv as cu
        cu.DriverPool("locked").close()
        try:
            cu.DriverPool("unified")
        except ValueError as error:
            assert "concurrent_managed_access is 0" in str(error), error
        else:
            raise AssertionError
        """,
        CUDADRV_SOFTWARE="concurrent_managed=0",
    )


def test_misuse_of_the_class():
    bare = cu.DriverPool.__new__(cu.DriverPool)
    assert repr(bare) == "<DriverPool, never initialized>"
    for use in (bare.trim, bare.close, bare.__enter__, lambda: bare.stats):
        with pytest.raises(TypeError, match="this DriverPool was never initialized"):
            use()
    pool = cu.DriverPool()
    with pytest.raises(TypeError, match="initialized already"):
        pool.__init__()


@software
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_dead_memory_tells_nothing_of_another_context(driver):
    """Memory of a second context is dropped while work of the first context uses it.

    Synchronizing the second context does not make that work known to be complete, although the
    memory is freed after it.
    """
    pool, second = new_pool("locked"), cu.Context.create(cu.Device(0))
    with second:
        theirs = cu.Stream()
        with pool:
            dropped = cu.LockedBuffer(16, stream=theirs)
    ours, frames = cu.Stream(), cu.LockedBuffer(16)
    ours.wait(theirs)
    frames.fill_async(1, ours)
    dropped.copy_from_async(frames, ours)
    del dropped
    theirs.synchronize()
    second.synchronize()
    assert frames.borrowed
    ours.synchronize()
    theirs.close()
    cu.reap()
    pool.close()
