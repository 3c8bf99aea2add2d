"""How much memory pools keep, in which sizes, and what releases it."""

import pytest

import cudadrv as cu
from cudadrv import testing

MIB = 1 << 20


@pytest.fixture
def limit(pools):
    """The device pool. Its limit is restored after the test."""
    former = pools.device.limit_bytes
    yield pools.device
    pools.device.limit_bytes = former


def addresses(count, nbytes=512):
    """Make this number of buffers, close them in order, and return their addresses."""
    buffers = [cu.DeviceBuffer(nbytes) for _ in range(count)]
    found = [buffer.address for buffer in buffers]
    for buffer in buffers:
        buffer.close()
    return found


# ---- statistics ----


def test_stats(pools):
    hits, misses = pools.device.stats[3:]
    assert pools.device.stats[:2] == (0, 0)
    first, second = cu.DeviceBuffer(1000), cu.DeviceBuffer(3000)
    first.close()
    assert pools.device.stats[:2] == (3000, 1000)
    first = cu.DeviceBuffer(800)
    stats = pools.device.stats
    assert (stats.used_bytes, stats.cached_bytes) == (4000, 0)
    assert stats.peak_bytes >= 4000
    assert (stats.hits, stats.misses) == (hits + 1, misses + 2)
    del first, second
    assert pools.device.stats[:2] == (0, 4000)
    assert repr(pools.device) == "<MemoryPool device, 0 bytes used, 4000 cached>"


def test_peak(pools):
    before = pools.unified.stats.peak_bytes
    buffer = cu.UnifiedBuffer(before + 4096)
    assert pools.unified.stats.peak_bytes == before + 4096
    buffer.close()
    assert pools.unified.stats.peak_bytes == before + 4096


def test_each_kind_has_a_pool(pools):
    cu.DeviceBuffer(100).close()
    cu.LockedBuffer(200).close()
    cu.UnifiedBuffer(300).close()
    kept = [pools.device, pools.locked, pools.unified]
    assert [pool.stats.cached_bytes for pool in kept] == [100, 200, 300]
    cu.reap()
    assert [pool.stats.cached_bytes for pool in kept] == [0, 0, 0]


def test_the_report_tells_what_is_kept():
    cu.reap()
    assert "Pools keep" not in cu.memory_report()
    cu.DeviceBuffer(1000).close()
    assert cu.memory_report().endswith("\nPools keep 1000 bytes for new buffers.")


def test_an_empty_buffer_takes_nothing(pools):
    before = pools.device.stats
    cu.DeviceBuffer(0).close()
    assert pools.device.stats == before


# ---- sizes ----


def test_the_first_of_a_size_has_no_byte_too_many(pools):
    """The first allocation of a size has exactly this size.

    So a driver that checks bounds finds accesses past the end of the buffer.
    """
    buffer = cu.DeviceBuffer(100_003)
    assert pools.device.stats.used_bytes == 100_003
    buffer.close()


@pytest.mark.parametrize("start", [1, 511, 4000, 4097, 100_000, 3 * MIB + 1])
def test_sizes_that_grow_are_allocated_rarely(pools, start):
    misses = pools.device.stats.misses
    for nbytes in range(start, start + 100):
        cu.DeviceBuffer(nbytes).close()
    assert pools.device.stats.misses - misses <= 4


def test_a_block_is_at_most_an_eighth_too_large(pools):
    for nbytes in range(4097, 80_000, 97):
        buffer = cu.DeviceBuffer(nbytes)
        assert pools.device.stats.used_bytes <= nbytes + nbytes / 8
        buffer.close()
    for nbytes in range(1, 4097, 7):
        buffer = cu.DeviceBuffer(nbytes)
        assert pools.device.stats.used_bytes <= nbytes + 511
        buffer.close()


# ---- limits and trimming ----


def test_default_limits(pools):
    assert pools.device.limit_bytes == cu.Device(0).total_memory // 8
    assert pools.locked.limit_bytes == pools.unified.limit_bytes == 256 * MIB


def test_beyond_the_limit_the_oldest_go(limit):
    limit.limit_bytes = 4 * 512
    oldest, *others = addresses(5)
    assert limit.stats.cached_bytes == 4 * 512
    buffers = [cu.DeviceBuffer(512) for _ in range(4)]
    assert {buffer.address for buffer in buffers} == set(others)
    assert oldest not in others


def test_the_oldest_of_all_sizes(limit):
    limit.limit_bytes = 4096
    addresses(1, 512)
    large = addresses(1, 3500)
    middle = addresses(1, 580)
    assert limit.stats.cached_bytes == 4080
    assert cu.DeviceBuffer(3500).address == large[0]
    assert cu.DeviceBuffer(580).address == middle[0]
    misses = limit.stats.misses
    cu.DeviceBuffer(512)
    assert limit.stats.misses == misses + 1


def test_one_that_is_too_large_drives_nothing_out(limit):
    limit.limit_bytes = 4096
    addresses(4)
    cu.DeviceBuffer(5000).close()
    assert limit.stats.cached_bytes == 4 * 512


def test_a_lower_limit_trims(limit):
    addresses(5)
    limit.limit_bytes = 1024
    assert limit.stats.cached_bytes == 1024


def test_without_a_limit_to_speak_of(limit):
    limit.limit_bytes = 0
    addresses(3)
    # With this limit, each allocation has exactly the requested size.
    for nbytes in (1000, 1001, 1002):
        buffer = cu.DeviceBuffer(nbytes)
        assert limit.stats[:2] == (nbytes, 0)
        buffer.close()
    limit.limit_bytes = 1 << 80
    cu.DeviceBuffer(1000).close()
    assert limit.stats.cached_bytes == 1000


def test_trim(pools):
    addresses(5)
    pools.device.trim(keep_bytes=1024)
    assert pools.device.stats.cached_bytes == 1024
    pools.device.trim()
    assert pools.device.stats.cached_bytes == 0


@pytest.mark.cuda_software
def test_what_is_trimmed_goes_to_the_driver(pools):
    before = testing.live_objects()["device"]
    addresses(5)
    assert testing.live_objects()["device"] == before + 5
    cu.Device(0).synchronize()
    pools.device.trim(keep_bytes=512)
    assert testing.live_objects()["device"] == before + 1


@pytest.mark.cuda_software
@pytest.mark.parametrize("ordered", [False, True])
def test_trimming_waits_for_nobody(pools, stream, gate, ordered):
    kind = "async" if ordered else "device"
    before = testing.live_objects()[kind]
    gate.hold(stream)
    buffer = cu.DeviceBuffer(1000, stream=stream) if ordered else cu.DeviceBuffer(1000)
    buffer.fill_async(1, stream)
    del buffer
    pools.device.trim()
    assert pools.device.stats.cached_bytes == 0
    # Stream-ordered memory is already freed, in the order of its stream.
    assert testing.live_objects()[kind] == before + (not ordered)
    gate.open()
    cu.reap()
    assert testing.live_objects()[kind] == before


def test_many_of_a_size_are_not_all_kept(pools):
    buffers = [cu.DeviceBuffer(1) for _ in range(1100)]
    del buffers
    assert pools.device.stats.cached_bytes == 1024


def test_what_cannot_be(pools):
    for wrong in (-1, 1 << 80):
        if wrong < 0:
            with pytest.raises(ValueError, match="must not be negative"):
                pools.device.limit_bytes = wrong
            with pytest.raises(ValueError, match="must not be negative"):
                pools.device.trim(keep_bytes=wrong)
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            pools.device.limit_bytes = wrong
        with pytest.raises(TypeError):
            pools.device.trim(keep_bytes=wrong)
    for cls in (cu.MemoryPool, cu.MemoryPools):
        with pytest.raises(TypeError, match=r"use context\.pools"):
            cls()


# ---- out of memory ----


@pytest.mark.cuda_software
@pytest.mark.parametrize("kind", ["device", "stream-ordered"])
def test_what_is_kept_is_given_back_before_there_is_no_memory(pools, stream, kind):
    total = int(testing.settings()["memory"])
    pools.device.limit_bytes = total
    how = {"stream": stream} if kind == "stream-ordered" else {}
    buffers = [cu.DeviceBuffer(total // 8, **how) for _ in range(6)]
    del buffers
    assert pools.device.stats.cached_bytes == total // 8 * 6
    whole = cu.DeviceBuffer(total // 2)
    assert pools.device.stats[:2] == (total // 2, 0)
    whole.close()
    pools.device.limit_bytes = total // 8


@pytest.mark.cuda_software
@pytest.mark.parametrize("cls", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer])
def test_no_memory_is_tried_once_more_and_then_reported(pools, cls):
    function = {
        cu.DeviceBuffer: "cuMemAlloc_v2",
        cu.LockedBuffer: "cuMemHostAlloc",
        cu.UnifiedBuffer: "cuMemAllocManaged",
    }[cls]
    cu.LockedBuffer(1000).close()
    kept = cls(500, name="kept")
    testing.fail(function, 2)
    cls(3 * MIB).close()
    assert pools.locked.stats.cached_bytes in (0, 3 * MIB)
    calls = testing.calls(function)
    with pytest.raises(cu.CudaOutOfMemoryError, match=r"test_limits\.py") as caught:
        cls(1 << 45)
    assert testing.calls(function) == calls + 2
    assert f"{1 << 45} bytes were requested for {cls.__name__}" in str(caught.value)
    kept.close()


@pytest.mark.cuda_software
def test_staging_gets_what_pools_keep():
    cu.LockedBuffer(1000).close()
    buffer = cu.DeviceBuffer(100)
    testing.fail("cuMemHostAlloc", 2)
    buffer.copy_from(bytes(100))
    assert cu.Device(0).context.pools.locked.stats.cached_bytes == 0
