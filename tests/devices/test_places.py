"""Prefetches and advice: on several devices, on devices without support, and with older drivers."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_two_devices(machine):
    machine(
        "devices=2",
        """
    managed = cu.UnifiedBuffer.zeros(1 << 17, pooled=False)
    managed.prefetch(one, near).wait()
    assert set(testing.page_places(managed)) == {1}
    assert managed.advice.last_prefetch == one
    managed.prefetch(zero, far).wait()
    assert set(testing.page_places(managed)) == {0}
    first, second = managed.split_at(1 << 16)
    cu.prefetch_batch([(first, zero), (second, one)], near).wait()
    assert (first.advice.last_prefetch, second.advice.last_prefetch) == (zero, one)
    assert managed.advice.last_prefetch is None

    managed.advise(accessed_by={one, "host"})
    assert managed.advice.accessed_by == {one, "host"}
    managed.advise(accessed_by={zero})
    assert managed.advice.accessed_by == {zero}
    managed.advise(preferred=one)
    assert managed.advice.preferred == one
    """,
    )


def test_devices_without_concurrent_access(machine):
    machine(
        "concurrent_managed=0",
        """
    device, stream = cu.Device(0), cu.Stream()
    managed, empty = cu.UnifiedBuffer.zeros(8), cu.UnifiedBuffer(0)
    words = "whose concurrent_managed_access is 0"
    before = testing.calls("cuMemPrefetchAsync"), testing.calls("cuMemAdvise")
    for place in (device, "host"):
        refused(ValueError, words, lambda: managed.prefetch(place, stream))
        refused(ValueError, words, lambda: empty.prefetch(place, stream))
        refused(ValueError, words, lambda: cu.prefetch_batch([(managed, place)], stream))
    refused(ValueError, words, lambda: managed.advise(preferred=device))
    refused(ValueError, words, lambda: managed.advise(accessed_by={device}))
    assert before == (testing.calls("cuMemPrefetchAsync"), testing.calls("cuMemAdvise"))
    managed.advise(read_mostly=True, preferred="host", accessed_by={"host"})
    assert managed.advice == cu.Advice(True, "host", frozenset({"host"}), None)
    """,
    )


def test_a_driver_without_batches(machine):
    machine(
        "driver=12.8",
        """
    device, stream = cu.Device(0), cu.Stream()
    managed = cu.UnifiedBuffer.zeros(1 << 17, pooled=False)
    first, second = managed.split_at(1 << 16)
    refused(ValueError, "has no cuMemPrefetchBatchAsync, so it takes no NUMA nodes",
            lambda: managed.prefetch("host:0", stream))
    refused(ValueError, "needs a driver of CUDA 13.0",
            lambda: cu.prefetch_batch([(first, device), (second, "host:0")], stream))
    assert not managed.borrowed
    before = testing.calls("cuMemPrefetchAsync")
    cu.prefetch_batch([(first, device), (second, "host")], stream).wait()
    assert testing.calls("cuMemPrefetchAsync") == before + 2
    assert (first.advice.last_prefetch, second.advice.last_prefetch) == (device, "host")

    testing.fail("cuMemPrefetchAsync", 1, nth=2)
    refused(cu.CudaError, "cuMemPrefetchAsync",
            lambda: cu.prefetch_batch([(first, device), (second, "host")], stream))
    assert first.borrowed, "its prefetch is queued"
    stream.synchronize()
    assert not managed.borrowed
    """,
    )


def test_memory_of_others(machine):
    machine(
        "memory=64MiB",
        """
    device, stream = cu.Device(0), cu.Stream()
    raw = cu.UnifiedBuffer.zeros(1 << 16, pooled=False)
    borrowed = cu.UnifiedBuffer.from_address(raw.address, raw.count, owner=raw)
    borrowed.prefetch(device, stream).wait()
    borrowed.advise(read_mostly=True)
    assert borrowed.advice == cu.Advice(True, None, frozenset(), device)
    """,
    )
