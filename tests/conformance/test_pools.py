"""Stream-ordered memory and the pools from which it is allocated."""

import ctypes

import pytest

from .client import INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS
from .structures import (
    DEVICE_LOCATION,
    HOST_LOCATION,
    READWRITE,
    Access,
    Location,
    pool_properties,
)

NOT_SUPPORTED = 801
FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL, THRESHOLD = 1, 2, 3, 4
RESERVED, RESERVED_HIGH, USED, USED_HIGH = 5, 6, 7, 8
MEMPOOL_HANDLE = 17

MIB = 1 << 20


def default_pool(client):
    pool = ctypes.c_void_p()
    client.ok("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
    return pool.value


def current_pool(client):
    pool = ctypes.c_void_p()
    client.ok("cuDeviceGetMemPool", ctypes.byref(pool), 0)
    return pool.value


def get(client, pool, attribute):
    kind = ctypes.c_int if attribute < THRESHOLD else ctypes.c_uint64
    value = kind(77)
    client.ok("cuMemPoolGetAttribute", pool, attribute, ctypes.byref(value))
    return value.value


def put(client, pool, attribute, value):
    kind = ctypes.c_int if attribute < THRESHOLD else ctypes.c_uint64
    return client.call("cuMemPoolSetAttribute", pool, attribute, ctypes.byref(kind(value)))


def allocate(client, stream, size, pool=None):
    address = ctypes.c_uint64()
    if pool:
        client.ok("cuMemAllocFromPoolAsync", ctypes.byref(address), size, pool, stream)
    else:
        client.ok("cuMemAllocAsync", ctypes.byref(address), size, stream)
    return address.value


def try_allocate(client, stream, size, pool):
    address = ctypes.c_uint64()
    return client.call("cuMemAllocFromPoolAsync", ctypes.byref(address), size, pool, stream)


def pool_of(client, address):
    pool = ctypes.c_void_p()
    client.ok("cuPointerGetAttribute", ctypes.byref(pool), MEMPOOL_HANDLE, address)
    return pool.value


@pytest.fixture
def make_pool(client):
    def make(**changes):
        arguments = pool_properties(**changes)
        return client._make("cuMemPoolDestroy", ctypes.c_void_p, "cuMemPoolCreate", arguments)

    return make


def test_fresh_pool(client, make_pool):
    pool = make_pool()
    assert [get(client, pool, attribute) for attribute in range(1, 9)] == [1, 1, 1, 0, 0, 0, 0, 0]


def test_use_and_high_marks(client, make_pool):
    pool, stream = make_pool(), client.stream()
    first = allocate(client, stream, MIB, pool)
    second = allocate(client, stream, 2 * MIB, pool)
    assert get(client, pool, USED) == 3 * MIB
    assert get(client, pool, RESERVED) >= 3 * MIB
    client.ok("cuMemFreeAsync", first, stream)
    client.ok("cuStreamSynchronize", stream)
    assert get(client, pool, USED) == 2 * MIB
    assert get(client, pool, USED_HIGH) == 3 * MIB
    assert put(client, pool, USED_HIGH, 1) == INVALID_VALUE
    assert put(client, pool, USED_HIGH, 0) == SUCCESS
    assert get(client, pool, USED_HIGH) in (0, 2 * MIB)
    assert put(client, pool, RESERVED_HIGH, 5) == INVALID_VALUE
    client.ok("cuMemFreeAsync", second, stream)
    client.ok("cuStreamSynchronize", stream)
    assert get(client, pool, USED) == 0


def test_synchronizing_releases_what_is_over_the_threshold(client, make_pool):
    pool, stream = make_pool(), client.stream()
    client.ok("cuMemFreeAsync", allocate(client, stream, MIB, pool), stream)
    client.ok("cuStreamSynchronize", stream)
    assert get(client, pool, RESERVED) == 0
    assert put(client, pool, THRESHOLD, 1 << 40) == SUCCESS
    client.ok("cuMemFreeAsync", allocate(client, stream, MIB, pool), stream)
    client.ok("cuStreamSynchronize", stream)
    assert get(client, pool, THRESHOLD) == 1 << 40
    reserved = get(client, pool, RESERVED)
    assert reserved >= MIB
    client.ok("cuMemPoolTrimTo", pool, reserved)
    assert get(client, pool, RESERVED) == reserved
    client.ok("cuMemPoolTrimTo", pool, 0)
    assert get(client, pool, RESERVED) == 0


def test_reuse_flags(client, make_pool):
    pool = make_pool()
    for attribute in (FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL):
        assert put(client, pool, attribute, 0) == SUCCESS
        assert get(client, pool, attribute) == 0


def test_pointer_knows_its_pool(client, make_pool):
    pool, stream = make_pool(), client.stream()
    ours, theirs = allocate(client, stream, 64, pool), allocate(client, stream, 64)
    assert pool_of(client, ours) == pool
    assert pool_of(client, theirs) == default_pool(client)
    assert pool_of(client, client.device(64)) is None
    for address in (ours, theirs):
        client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)


def test_current_pool(client, make_pool):
    pool, stream = make_pool(), client.stream()
    assert current_pool(client) == default_pool(client)
    client.ok("cuDeviceSetMemPool", 0, pool)
    assert current_pool(client) == pool
    address = allocate(client, stream, 64)
    assert pool_of(client, address) == pool
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)
    client.ok("cuMemPoolDestroy", pool)
    client.forget("cuMemPoolDestroy", pool)
    assert current_pool(client) == default_pool(client)


def test_destroyed_pool_serves_what_it_gave(client, make_pool):
    pool, stream = make_pool(), client.stream()
    address = allocate(client, stream, 64, pool)
    client.ok("cuMemPoolDestroy", pool)
    client.forget("cuMemPoolDestroy", pool)
    client.ok("cuMemsetD8Async", address, 7, 64, stream)
    assert client.read(address, 64) == bytes([7]) * 64
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)


def test_default_pool_stays(client):
    assert client.call("cuMemPoolDestroy", default_pool(client)) == INVALID_VALUE


def test_largest_size(client, make_pool):
    pool, stream = make_pool(maxSize=64 * MIB), client.stream()
    address = allocate(client, stream, 40 * MIB, pool)
    assert try_allocate(client, stream, 40 * MIB, pool) == OUT_OF_MEMORY
    client.ok("cuMemFreeAsync", address, stream)
    # This allocation is ordered after the free, so the memory is available.
    address = allocate(client, stream, 40 * MIB, pool)
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)


def test_refused_pools(client):
    pool = ctypes.byref(ctypes.c_void_p())
    assert client.call("cuMemPoolCreate", None, pool_properties()) == INVALID_VALUE
    assert client.call("cuMemPoolCreate", pool, None) == INVALID_VALUE
    assert client.call("cuMemPoolCreate", pool, pool_properties(allocType=0)) == INVALID_VALUE
    assert client.call("cuMemPoolCreate", pool, pool_properties(handleTypes=2)) == INVALID_VALUE
    assert client.call("cuMemPoolCreate", pool, pool_properties(maxSize=1 << 60)) == OUT_OF_MEMORY
    assert client.call("cuDeviceGetMemPool", pool, 99) == INVALID_VALUE
    assert client.call("cuDeviceGetDefaultMemPool", None, 99) == INVALID_DEVICE
    assert client.call("cuDeviceGetDefaultMemPool", None, 0) == INVALID_VALUE


def test_refused_attributes(client, make_pool):
    pool = make_pool()
    value = ctypes.byref(ctypes.c_uint64())
    for attribute in (0, 99):
        assert client.call("cuMemPoolGetAttribute", pool, attribute, value) == INVALID_VALUE
    for attribute in (0, RESERVED, USED, 99):
        assert client.call("cuMemPoolSetAttribute", pool, attribute, value) == INVALID_VALUE


def test_access_of_the_own_device(client, make_pool):
    pool = make_pool()
    flags, own = ctypes.c_int(), Location(DEVICE_LOCATION, 0)
    client.ok("cuMemPoolGetAccess", ctypes.byref(flags), pool, ctypes.byref(own))
    assert flags.value == READWRITE
    granted = Access(own, READWRITE)
    client.ok("cuMemPoolSetAccess", pool, ctypes.byref(granted), 1)
    host, nobody = Location(HOST_LOCATION, 0), Location(DEVICE_LOCATION, 99)
    for access, status in (
        (Access(own, 0), INVALID_DEVICE),
        (Access(own, 1), NOT_SUPPORTED),
        (Access(own, 2), INVALID_VALUE),
        (Access(host, READWRITE), NOT_SUPPORTED),
        (Access(nobody, READWRITE), INVALID_DEVICE),
    ):
        assert client.call("cuMemPoolSetAccess", pool, ctypes.byref(access), 1) == status
    client.ok("cuMemPoolGetAccess", ctypes.byref(flags), pool, ctypes.byref(host))
    assert flags.value == 0


def test_use_is_counted_to_the_byte(client, make_pool):
    pool, stream = make_pool(), client.stream()
    addresses = [allocate(client, stream, size, pool) for size in (1, 511, 1000)]
    assert get(client, pool, USED) == 1512
    for address in addresses:
        client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)
    assert get(client, pool, USED) == 0


def test_a_limit_is_rounded_up(client, make_pool):
    pool, stream = make_pool(maxSize=1), client.stream()
    client.ok("cuMemFreeAsync", allocate(client, stream, 4 * MIB, pool), stream)
    assert try_allocate(client, stream, 40 * MIB, pool) == OUT_OF_MEMORY
    client.ok("cuStreamSynchronize", stream)


def test_pools_take_from_the_device(client, make_pool):
    stream = client.stream()
    taken = 0
    for _ in range(10):  # other processes may free memory of a GPU at the same time
        pool = make_pool()
        before = available(client)
        address = allocate(client, stream, 64 * MIB, pool)
        client.ok("cuStreamSynchronize", stream)
        taken = max(taken, before - available(client))
        client.ok("cuMemFreeAsync", address, stream)
        client.ok("cuStreamSynchronize", stream)
        if taken >= 64 * MIB:
            break
    assert taken >= 64 * MIB


def available(client):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    client.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def test_full_device_reuses_what_is_being_freed(software, client):
    stream, other = client.stream(), client.stream()
    gate = client.gate().hold(stream)
    most = available(client)
    address = allocate(client, stream, most)
    client.ok("cuMemFreeAsync", address, stream)
    again = allocate(client, other, most)  # queued behind the free, and so behind the gate
    assert again != address
    client.ok("cuMemFreeAsync", again, other)
    gate.open()
    client.ok("cuMemFree_v2", client.device(most))  # blocks until both frees have run
    client.ok("cuCtxSynchronize")


def test_reuse_across_streams_can_be_forbidden(software, client, make_pool):
    pool, stream, other = make_pool(), client.stream(), client.stream()
    assert put(client, pool, INTERNAL, 0) == SUCCESS
    gate = client.gate().hold(stream)
    most = available(client)
    client.ok("cuMemFreeAsync", allocate(client, stream, most, pool), stream)
    assert try_allocate(client, other, most, pool) == OUT_OF_MEMORY
    client.ok("cuMemFreeAsync", allocate(client, stream, most, pool), stream)
    gate.open()
    client.ok("cuStreamSynchronize", stream)
    assert get(client, pool, RESERVED) == 0


def test_capacity_returns_with_the_pool(software, client, make_pool):
    before = available(client)
    pool, stream = make_pool(), client.stream()
    address = allocate(client, stream, MIB, pool)
    client.ok("cuMemPoolDestroy", pool)
    client.forget("cuMemPoolDestroy", pool)
    assert available(client) < before
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)
    assert available(client) == before


def test_pool_memory_is_quarantined(software, client, make_pool):
    pool, stream = make_pool(), client.stream()
    seen = set()
    for _ in range(20):
        address = allocate(client, stream, 512, pool)
        assert address not in seen
        seen.add(address)
        client.ok("cuMemFreeAsync", address, stream)
        assert client.call("cuMemsetD8Async", address, 0, 1, stream) == INVALID_VALUE
    client.ok("cuStreamSynchronize", stream)
