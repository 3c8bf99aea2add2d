"""Pools of memory of the host, of its NUMA nodes, and of managed memory."""

import ctypes

import pytest

from .client import INVALID_VALUE, SUCCESS
from .kernels import TEXT
from .structures import (
    DEVICE_LOCATION,
    HOST_LOCATION,
    NUMA_CURRENT_LOCATION,
    NUMA_LOCATION,
    READWRITE,
    Access,
    Location,
    pool_properties,
)

# The probe's section `placed_pools` has more answers of real drivers about such pools.

NOT_SUPPORTED = 801
NO_LOCATION = 0
PINNED, MANAGED = 1, 2
SIZE = 65536
DEVICE_TYPE, HOST_TYPE = 2, 1  # values of CU_POINTER_ATTRIBUTE_MEMORY_TYPE
MEMORY_TYPE, IS_MANAGED, POOL = 2, 8, 17
USED, RESERVED, THRESHOLD = 7, 5, 4

PLACES = {
    "device": (PINNED, DEVICE_LOCATION, 0),
    "host": (PINNED, HOST_LOCATION, 0),
    "node": (PINNED, NUMA_LOCATION, 0),
    "managed device": (MANAGED, DEVICE_LOCATION, 0),
    "managed host": (MANAGED, HOST_LOCATION, 0),
    "managed node": (MANAGED, NUMA_LOCATION, 0),
    "managed anywhere": (MANAGED, NO_LOCATION, 0),
}
OTHERS = [name for name in PLACES if name != "device"]


def make_pool(client, name, **changes):
    kind, where, number = PLACES[name]
    properties = pool_properties(allocType=kind, location=Location(where, number), **changes)
    return client._make("cuMemPoolDestroy", ctypes.c_void_p, "cuMemPoolCreate", properties)


def place(name):
    _, where, number = PLACES[name]
    return ctypes.byref(Location(where, number))


def pool_at(client, function, name):
    pool = ctypes.c_void_p()
    client.ok(function, ctypes.byref(pool), place(name), PLACES[name][0])
    return pool.value


def let_in(client, pool, device=0):
    """Give a device access to a pool."""
    access = Access(Location(DEVICE_LOCATION, device), READWRITE)
    client.ok("cuMemPoolSetAccess", pool, ctypes.byref(access), 1)


def allocate(client, pool, stream, size=SIZE):
    address = ctypes.c_uint64()
    client.ok("cuMemAllocFromPoolAsync", ctypes.byref(address), size, pool, stream)
    return address.value


def attribute(client, pool, number):
    value = ctypes.c_uint64()
    client.ok("cuMemPoolGetAttribute", pool, number, ctypes.byref(value))
    return value.value


def pointer(client, address, number, kind=ctypes.c_int):
    value = kind()
    client.ok("cuPointerGetAttribute", ctypes.byref(value), number, address)
    return value.value


def content(client, memory, size):
    """The bytes of memory, which the device copies.

    Only copy functions without a direction accept host memory of a pool.
    """
    target = client.device(size)
    client.ok("cuMemcpy", target, memory, size)
    return client.read(target, size)


@pytest.mark.parametrize("name", OTHERS)
def test_host_and_device_use_the_memory(client, name):
    pool, stream = make_pool(client, name), client.stream()
    let_in(client, pool)
    memory = allocate(client, pool, stream)
    client.ok("cuStreamSynchronize", stream)
    ctypes.memset(memory, 7, SIZE)
    fill = client.function(client.module(TEXT), "fill")
    numbers = ctypes.c_uint(2), ctypes.c_uint(0x01020304)
    assert client.launch(fill, stream, memory + 4, *numbers, block=2) == SUCCESS
    client.ok("cuMemsetD8Async", memory + 100, 9, 4, stream)
    client.ok("cuStreamSynchronize", stream)
    expected = bytearray([7] * SIZE)
    expected[4:12] = b"\x04\x03\x02\x01" * 2
    expected[100:104] = b"\x09" * 4
    assert ctypes.string_at(memory, SIZE) == expected
    assert content(client, memory, SIZE) == expected
    client.ok("cuMemFreeAsync", memory, stream)


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_memory_is(client, name):
    pool, stream = make_pool(client, name), client.stream()
    memory = allocate(client, pool, stream)
    managed = PLACES[name][0] == MANAGED
    assert pointer(client, memory, MEMORY_TYPE) == (DEVICE_TYPE if managed else HOST_TYPE)
    assert pointer(client, memory, IS_MANAGED) == managed
    assert pointer(client, memory, POOL, ctypes.c_uint64) == pool
    client.ok("cuMemFreeAsync", memory, stream)


@pytest.mark.parametrize("name", ["host", "node"])
def test_devices_need_access_to_host_memory(client, name):
    pool, stream = make_pool(client, name), client.stream()
    memory = allocate(client, pool, stream)
    client.ok("cuStreamSynchronize", stream)
    ctypes.memset(memory, 7, SIZE)
    assert client.call("cuMemsetD8Async", memory, 1, 4, stream) == INVALID_VALUE
    assert content(client, memory, SIZE) == b"\x07" * SIZE  # a copy needs no access
    flags, device = ctypes.c_int(), Location(DEVICE_LOCATION, 0)
    ask = ctypes.byref(flags), pool, ctypes.byref(device)
    client.ok("cuMemPoolGetAccess", *ask)
    assert flags.value == 0
    let_in(client, pool)
    client.ok("cuMemPoolGetAccess", *ask)
    assert flags.value == READWRITE
    client.ok("cuMemsetD8Async", memory, 1, 4, stream)
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.string_at(memory, 5) == b"\x01\x01\x01\x01\x07"
    client.ok("cuMemFreeAsync", memory, stream)


def access(client, pool, kind, number=0):
    flags, there = ctypes.c_int(77), Location(kind, number)
    client.ok("cuMemPoolGetAccess", ctypes.byref(flags), pool, ctypes.byref(there))
    return flags.value


def set_access(client, pool, kind, flags):
    entry = Access(Location(kind, 0), flags)
    return client.call("cuMemPoolSetAccess", pool, ctypes.byref(entry), 1)


@pytest.mark.parametrize("name", ["host", "node"])
def test_the_host_has_access_to_its_memory(client, name):
    pool = make_pool(client, name)
    for kind in (HOST_LOCATION, NUMA_LOCATION):
        assert access(client, pool, kind) == READWRITE
        assert set_access(client, pool, kind, 0) == NOT_SUPPORTED
        assert set_access(client, pool, kind, READWRITE) == SUCCESS


@pytest.mark.parametrize("name", [name for name in OTHERS if "managed" in name])
def test_access_to_managed_memory_is_only_noted(client, name):
    pool = make_pool(client, name)
    for kind in (DEVICE_LOCATION, HOST_LOCATION):
        assert access(client, pool, kind) == 0
        assert set_access(client, pool, kind, READWRITE) == SUCCESS
        assert access(client, pool, kind) == READWRITE
        assert set_access(client, pool, kind, 0) == SUCCESS
        assert access(client, pool, kind) == 0


@pytest.mark.parametrize("name", OTHERS)
def test_a_function_for_device_memory_takes_no_host_memory(client, name):
    pool, stream = make_pool(client, name), client.stream()
    memory, other = allocate(client, pool, stream, 64), client.device(64)
    client.ok("cuStreamSynchronize", stream)
    status = client.call("cuMemcpyDtoDAsync_v2", other, memory, 64, stream)
    assert status == (SUCCESS if "managed" in name else INVALID_VALUE)
    client.ok("cuMemcpyHtoDAsync_v2", other, memory, 64, stream)
    client.ok("cuMemFreeAsync", memory, stream)


@pytest.mark.parametrize("name", OTHERS)
def test_bytes_are_counted(client, name):
    pool, stream = make_pool(client, name), client.stream()
    first, second = (allocate(client, pool, stream, size) for size in (1000, 3000))
    assert attribute(client, pool, USED) == 4000
    assert attribute(client, pool, RESERVED) >= 4000
    client.ok("cuMemFreeAsync", first, stream)
    client.ok("cuStreamSynchronize", stream)
    assert attribute(client, pool, USED) == 3000
    client.ok("cuMemFreeAsync", second, stream)
    client.ok("cuStreamSynchronize", stream)
    assert attribute(client, pool, USED) == 0
    client.ok("cuMemPoolTrimTo", pool, 0)
    assert attribute(client, pool, RESERVED) == 0


@pytest.mark.cuda_software  # a real driver still counts the memory that cuMemFree has freed
@pytest.mark.parametrize("name", OTHERS)
def test_bytes_are_not_counted_after_a_synchronous_free(client, name):
    pool, stream = make_pool(client, name), client.stream()
    memory = allocate(client, pool, stream)
    client.ok("cuMemFree_v2", memory)
    assert attribute(client, pool, USED) == 0


@pytest.mark.parametrize("name", OTHERS)
def test_memory_outlives_its_pool(client, name):
    pool, stream = make_pool(client, name), client.stream()
    let_in(client, pool)
    memory = allocate(client, pool, stream)
    client.forget("cuMemPoolDestroy", pool)
    client.ok("cuMemPoolDestroy", pool)
    client.ok("cuMemsetD8Async", memory, 5, SIZE, stream)
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.string_at(memory, SIZE) == b"\x05" * SIZE
    client.ok("cuMemFreeAsync", memory, stream)


@pytest.mark.cuda_software  # a real driver does not load a module while a stream is held
@pytest.mark.parametrize("name", OTHERS)
def test_a_free_comes_in_the_order_of_its_stream(client, name):
    pool, stream = make_pool(client, name), client.stream()
    let_in(client, pool)
    memory, copy = allocate(client, pool, stream), client.device(SIZE)
    gate = client.gate().hold(stream)
    client.ok("cuMemsetD8Async", memory, 5, SIZE, stream)
    fill = client.function(client.module(TEXT), "fill")
    numbers = ctypes.c_uint(1), ctypes.c_uint(0)
    assert client.launch(fill, stream, memory, *numbers) == SUCCESS
    client.ok("cuMemcpyAsync", copy, memory, SIZE, stream)
    client.ok("cuMemFreeAsync", memory, stream)
    assert client.call("cuMemFreeAsync", memory, stream) == INVALID_VALUE
    assert client.call("cuMemsetD8Async", memory, 5, 1, stream) == INVALID_VALUE
    gate.open()
    assert client.read(copy, SIZE) == bytes(4) + b"\x05" * (SIZE - 4)


@pytest.mark.parametrize("name", PLACES)
def test_defaults(client, name):
    default = pool_at(client, "cuMemGetDefaultMemPool", name)
    assert pool_at(client, "cuMemGetMemPool", name) == default
    assert pool_at(client, "cuMemGetDefaultMemPool", name) == default
    assert client.call("cuMemPoolDestroy", default) == INVALID_VALUE
    defaults = {pool_at(client, "cuMemGetDefaultMemPool", other) for other in PLACES}
    assert len(defaults) == len(PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_the_current_pool(client, name):
    default, mine = pool_at(client, "cuMemGetDefaultMemPool", name), make_pool(client, name)
    client.ok("cuMemSetMemPool", place(name), PLACES[name][0], mine)
    assert pool_at(client, "cuMemGetMemPool", name) == mine
    assert pool_at(client, "cuMemGetDefaultMemPool", name) == default
    for other in PLACES:
        if other != name:
            status = client.call("cuMemSetMemPool", place(other), PLACES[other][0], mine)
            assert status == INVALID_VALUE
    client.ok("cuMemSetMemPool", place(name), PLACES[name][0], default)
    assert pool_at(client, "cuMemGetMemPool", name) == default


@pytest.mark.cuda_software  # a real driver still returns the pool that was destroyed
@pytest.mark.parametrize("name", PLACES)
def test_the_current_pool_is_destroyed(client, name):
    default, mine = pool_at(client, "cuMemGetDefaultMemPool", name), make_pool(client, name)
    client.ok("cuMemSetMemPool", place(name), PLACES[name][0], mine)
    client.forget("cuMemPoolDestroy", mine)
    client.ok("cuMemPoolDestroy", mine)
    assert pool_at(client, "cuMemGetMemPool", name) == default


def test_the_pool_of_a_device_is_its_own(client):
    device = ctypes.c_void_p()
    client.ok("cuDeviceGetDefaultMemPool", ctypes.byref(device), 0)
    assert pool_at(client, "cuMemGetDefaultMemPool", "device") == device.value
    for name in OTHERS:
        if name != "managed device":
            assert client.call("cuDeviceSetMemPool", 0, make_pool(client, name)) == INVALID_VALUE


@pytest.mark.cuda_software  # an H100 answers the same, but may go on naming a pool that is gone
def test_a_device_does_not_allocate_from_a_managed_pool(client):
    """cuDeviceSetMemPool accepts a managed pool, but cuMemAllocAsync does not use this pool."""
    pool, stream = make_pool(client, "managed device"), client.stream()
    client.ok("cuDeviceSetMemPool", 0, pool)
    address = ctypes.c_uint64()
    client.ok("cuMemAllocAsync", ctypes.byref(address), SIZE, stream)
    assert pointer(client, address.value, IS_MANAGED) == 0
    assert pointer(client, address.value, POOL, ctypes.c_uint64) != pool
    client.ok("cuMemFreeAsync", address, stream)


@pytest.mark.parametrize(
    ("kind", "where", "number", "status"),
    [
        (0, HOST_LOCATION, 0, INVALID_VALUE),
        (3, HOST_LOCATION, 0, INVALID_VALUE),
        (PINNED, NO_LOCATION, 0, INVALID_VALUE),
        (PINNED, NUMA_CURRENT_LOCATION, 0, NOT_SUPPORTED),
        (PINNED, NUMA_LOCATION, 99, INVALID_VALUE),
        (PINNED, 9, 0, NOT_SUPPORTED),
        (PINNED, DEVICE_LOCATION, 99, INVALID_VALUE),
        (MANAGED, DEVICE_LOCATION, 99, INVALID_VALUE),
        (MANAGED, NUMA_CURRENT_LOCATION, 0, NOT_SUPPORTED),
        (MANAGED, 9, 0, NOT_SUPPORTED),
    ],
)
def test_places_without_pools(client, kind, where, number, status):
    pool, location = ctypes.c_void_p(), Location(where, number)
    there = ctypes.byref(location)
    for function in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
        assert client.call(function, ctypes.byref(pool), there, kind) == status
    mine = make_pool(client, "host")
    assert client.call("cuMemSetMemPool", there, kind, mine) == status


@pytest.mark.parametrize("changes", [{"maxSize": 1}, {"usage": 1}])
def test_managed_pools_have_no_limit(client, changes):
    pool = ctypes.c_void_p()
    properties = pool_properties(allocType=MANAGED, location=Location(NO_LOCATION, 0), **changes)
    assert client.call("cuMemPoolCreate", ctypes.byref(pool), properties) == INVALID_VALUE


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "node"])
def test_host_and_managed_pools_are_not_shared(client, name):
    kind, where, number = PLACES[name]
    properties = pool_properties(allocType=kind, location=Location(where, number), handleTypes=1)
    pool = ctypes.c_void_p()
    assert client.call("cuMemPoolCreate", ctypes.byref(pool), properties) == INVALID_VALUE


def test_page_locked_memory_of_a_pool_is_freed_by_its_own_functions(client):
    pool, stream = make_pool(client, "host"), client.stream()
    memory = allocate(client, pool, stream)
    client.ok("cuStreamSynchronize", stream)
    assert client.call("cuMemFreeHost", memory) == INVALID_VALUE
    client.ok("cuMemFree_v2", memory)
    assert client.call("cuMemFree_v2", memory) == INVALID_VALUE


def test_a_managed_pool_prefers_its_place(client):
    stream, preferred = client.stream(), {}
    for name in ("managed device", "managed host", "managed anywhere"):
        memory = allocate(client, make_pool(client, name), stream)
        value = ctypes.c_int()
        client.ok("cuMemRangeGetAttribute", ctypes.byref(value), 4, 2, memory, SIZE)
        preferred[name] = value.value
        client.ok("cuMemFreeAsync", memory, stream)
    assert preferred == {"managed device": 0, "managed host": -1, "managed anywhere": -2}


def test_memory_of_a_managed_pool_takes_no_advice(client):
    """Memory of a managed pool can be prefetched.

    Advice is refused, because the pool determines the preferred location.
    """
    pool, stream = make_pool(client, "managed device"), client.stream()
    memory = allocate(client, pool, stream)
    client.ok("cuMemPrefetchAsync", memory, SIZE, 0, stream)
    client.ok("cuMemPrefetchAsync", memory, SIZE, -1, stream)
    for advice in range(1, 7):
        assert client.call("cuMemAdvise", memory, SIZE, advice, 0) == NOT_SUPPORTED
    for flags in (1, 2, 4):
        status = client.call("cuStreamAttachMemAsync", stream, memory, 0, flags)
        assert status == INVALID_VALUE
    client.ok("cuMemFreeAsync", memory, stream)


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "managed device"])
def test_graphs_have_only_memory_of_devices(client, name):
    pool, stream, address = make_pool(client, name), client.stream(), ctypes.c_uint64()
    client.ok("cuStreamBeginCapture_v2", stream, 2)
    arguments = ctypes.byref(address), SIZE, pool, stream
    refusal = INVALID_VALUE if name == "managed anywhere" else NOT_SUPPORTED
    assert client.call("cuMemAllocFromPoolAsync", *arguments) == refusal
    graph = ctypes.c_void_p()
    client.ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    client.ok("cuGraphDestroy", graph)


def test_work_may_use_the_memory_of_a_pool_after_its_context(client):
    """Memory of a pool is usable after its context is destroyed: it belongs to no context."""
    pool, context = make_pool(client, "managed device"), ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    stream = ctypes.c_void_p()
    client.ok("cuStreamCreate", ctypes.byref(stream), 1)
    memory = allocate(client, pool, stream)
    client.ok("cuStreamSynchronize", stream)
    client.ok("cuCtxDestroy_v2", context)
    client.ok("cuCtxSetCurrent", client.lib.primary)
    ctypes.memset(memory, 3, SIZE)
    assert client.read(memory, SIZE) == b"\x03" * SIZE
    client.ok("cuMemFreeAsync", memory, client.stream())


@pytest.mark.cuda_software
@pytest.mark.parametrize("name", ["host", "managed device"])
def test_a_failed_allocation_is_not_counted(software, client, name):
    pool, stream = make_pool(client, name), client.stream()
    software.configure("fault=bytes:1KiB:2")
    address = ctypes.c_uint64()
    allocated = client.call("cuMemAllocFromPoolAsync", ctypes.byref(address), SIZE, pool, stream)
    software.configure("fault=none")
    assert allocated == 2
    assert attribute(client, pool, USED) == 0
