"""Managed memory: advice, prefetches, and the stream to which memory is attached."""

import ctypes

import pytest

from .client import INVALID_DEVICE, INVALID_VALUE, PER_THREAD, SUCCESS
from .structures import (
    DEVICE_LOCATION,
    HOST_LOCATION,
    NUMA_CURRENT_LOCATION,
    NUMA_LOCATION,
    Location,
)

PAGE = 4096
CPU, NOWHERE = -1, -2
SET_READ_MOSTLY, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED = 1, 2, 3, 4
SET_ACCESSED_BY, UNSET_ACCESSED_BY = 5, 6
READ_MOSTLY, PREFERRED, ACCESSED_BY, PREFETCHED = 1, 2, 3, 4
PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE, PREFETCHED_ID = 5, 6, 7, 8
GLOBAL, HOST, SINGLE = 1, 2, 4
CONCURRENT_MANAGED_ACCESS = 89


@pytest.fixture(autouse=True)
def _needs_concurrent_access(lib):
    value = ctypes.c_int()
    lib.ok("cuDeviceGetAttribute", ctypes.byref(value), CONCURRENT_MANAGED_ACCESS, 0)
    if not value.value:
        pytest.skip("the device cannot share managed memory with the host")


def ask(client, attribute, address, size, length=1):
    data = (ctypes.c_int * length)(*[77] * length)
    client.ok(
        "cuMemRangeGetAttribute", ctypes.byref(data), ctypes.sizeof(data), attribute, address, size
    )
    return list(data) if length > 1 else data[0]


def test_fresh_range(client):
    address = client.managed(2 * PAGE)
    assert ask(client, READ_MOSTLY, address, PAGE) == 0
    assert ask(client, PREFERRED, address, PAGE) == NOWHERE
    assert ask(client, PREFETCHED, address, PAGE) == NOWHERE
    assert ask(client, ACCESSED_BY, address, PAGE, 3) == [NOWHERE] * 3


def test_read_mostly_is_for_pages(client):
    address = client.managed(4 * PAGE)
    client.ok("cuMemAdvise", address + PAGE + 10, 20, SET_READ_MOSTLY, 0)
    assert ask(client, READ_MOSTLY, address + PAGE, PAGE) == 1
    assert ask(client, READ_MOSTLY, address, 2 * PAGE) == 0
    assert ask(client, READ_MOSTLY, address + 2 * PAGE, 1) == 0
    client.ok("cuMemAdvise", address, 4 * PAGE, UNSET_READ_MOSTLY, 0)
    assert ask(client, READ_MOSTLY, address + PAGE, PAGE) == 0


def test_preferred_location(client):
    address = client.managed(2 * PAGE)
    client.ok("cuMemAdvise", address, PAGE, SET_PREFERRED, 0)
    client.ok("cuMemAdvise", address + PAGE, PAGE, SET_PREFERRED, CPU)
    assert ask(client, PREFERRED, address, PAGE) == 0
    assert ask(client, PREFERRED, address + PAGE, PAGE) == CPU
    assert ask(client, PREFERRED, address, 2 * PAGE) == NOWHERE
    client.ok("cuMemAdvise", address, 2 * PAGE, UNSET_PREFERRED, 0)
    assert ask(client, PREFERRED, address + PAGE, PAGE) == NOWHERE


def test_accessed_by(client):
    address = client.managed(2 * PAGE)
    client.ok("cuMemAdvise", address, 2 * PAGE, SET_ACCESSED_BY, 0)
    client.ok("cuMemAdvise", address, PAGE, SET_ACCESSED_BY, CPU)
    both = ask(client, ACCESSED_BY, address, PAGE, 3)
    assert sorted(both) == [NOWHERE, CPU, 0]
    assert ask(client, ACCESSED_BY, address, 2 * PAGE, 3) == [0, NOWHERE, NOWHERE]
    client.ok("cuMemAdvise", address, PAGE, UNSET_ACCESSED_BY, 0)
    assert ask(client, ACCESSED_BY, address, PAGE, 2) == [CPU, NOWHERE]
    assert ask(client, ACCESSED_BY, address, 2 * PAGE, 2) == [NOWHERE, NOWHERE]


def test_prefetch(client):
    address, stream = client.managed(2 * PAGE), client.stream()
    client.ok("cuMemPrefetchAsync", address, PAGE, 0, stream)
    assert ask(client, PREFETCHED, address, PAGE) == 0
    assert ask(client, PREFETCHED, address, 2 * PAGE) == NOWHERE
    client.ok("cuMemPrefetchAsync", address, 2 * PAGE, CPU, stream)
    assert ask(client, PREFETCHED, address, 2 * PAGE) == CPU
    client.ok("cuStreamSynchronize", stream)


@pytest.mark.parametrize(
    ("location", "found"),
    [
        (Location(DEVICE_LOCATION, 0), (DEVICE_LOCATION, 0)),
        (Location(HOST_LOCATION, 5), (HOST_LOCATION, CPU)),
    ],
    ids=["device", "host"],
)
def test_locations(client, location, found):
    address, stream = client.managed(PAGE), client.stream()
    client.ok("cuMemAdvise_v2", address, PAGE, SET_PREFERRED, location.by_value())
    client.ok("cuMemPrefetchAsync_v2", address, PAGE, location.by_value(), 0, stream)
    client.ok("cuStreamSynchronize", stream)
    for kind, number in ((PREFERRED_TYPE, PREFERRED_ID), (PREFETCHED_TYPE, PREFETCHED_ID)):
        assert (ask(client, kind, address, PAGE), ask(client, number, address, PAGE)) == found


@pytest.mark.parametrize("location", [(NUMA_LOCATION, 0), (NUMA_CURRENT_LOCATION, 5)])
def test_nodes_are_prefetched_to_and_not_preferred(client, location):
    address, stream = client.managed(PAGE), client.stream()
    client.ok("cuMemAdvise_v2", address, PAGE, SET_PREFERRED, Location(*location).by_value())
    client.ok("cuMemPrefetchAsync_v2", address, PAGE, Location(*location).by_value(), 0, stream)
    client.ok("cuStreamSynchronize", stream)
    assert ask(client, PREFERRED_TYPE, address, PAGE) == 0
    assert ask(client, PREFERRED, address, PAGE) == NOWHERE
    kind, number = (ask(client, each, address, PAGE) for each in (PREFETCHED_TYPE, PREFETCHED_ID))
    assert (kind, number) == location


def test_no_location_has_no_type(client):
    address = client.managed(PAGE)
    assert ask(client, PREFERRED_TYPE, address, PAGE) == 0
    assert ask(client, PREFETCHED_TYPE, address, PAGE) == 0


def test_several_attributes_at_once(client):
    address = client.managed(PAGE)
    client.ok("cuMemAdvise", address, PAGE, SET_READ_MOSTLY, 0)
    values = [ctypes.c_int(77), ctypes.c_int(77)]
    data = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
    sizes = (ctypes.c_size_t * 2)(4, 4)
    attributes = (ctypes.c_int * 2)(READ_MOSTLY, PREFERRED)
    arrays = [ctypes.addressof(array) for array in (data, sizes, attributes)]
    client.ok("cuMemRangeGetAttributes", *arrays, 2, address, PAGE)
    assert [value.value for value in values] == [1, NOWHERE]
    assert client.call("cuMemRangeGetAttributes", *arrays, 0, address, PAGE) == INVALID_VALUE


def test_refused_ranges(client):
    address, other = client.managed(PAGE), client.device(PAGE)
    data = (ctypes.c_int * 4)()
    answer = ctypes.addressof(data)
    assert client.call("cuMemRangeGetAttribute", answer, 4, READ_MOSTLY, other, 4) == INVALID_VALUE
    assert (
        client.call("cuMemRangeGetAttribute", answer, 8, READ_MOSTLY, address, 4) == INVALID_VALUE
    )
    assert (
        client.call("cuMemRangeGetAttribute", answer, 6, ACCESSED_BY, address, 4) == INVALID_VALUE
    )
    assert (
        client.call("cuMemRangeGetAttribute", answer, 0, ACCESSED_BY, address, 4) == INVALID_VALUE
    )
    assert client.call("cuMemRangeGetAttribute", None, 4, READ_MOSTLY, address, 4) == INVALID_VALUE
    assert client.call("cuMemRangeGetAttribute", answer, 4, 99, address, 4) == INVALID_VALUE
    assert client.call("cuMemAdvise", other, PAGE, SET_READ_MOSTLY, 0) == INVALID_VALUE
    assert client.call("cuMemAdvise", address, PAGE, 99, 0) == INVALID_VALUE
    assert client.call("cuMemAdvise", address, PAGE, SET_PREFERRED, 99) == INVALID_DEVICE
    assert client.call("cuMemPrefetchAsync", address, PAGE, 99, None) == INVALID_DEVICE


def test_attach(client):
    address, stream = client.managed(PAGE), client.stream()
    for flags in (SINGLE, HOST, GLOBAL):
        client.ok("cuStreamAttachMemAsync", stream, address, 0, flags)
        client.ok("cuStreamAttachMemAsync", stream, address, PAGE, flags)
    client.ok("cuStreamAttachMemAsync", PER_THREAD, address, 0, SINGLE)
    client.ok("cuStreamAttachMemAsync", None, address, 0, GLOBAL)
    client.ok("cuCtxSynchronize")


@pytest.mark.cuda_software  # a real driver crashes
def test_attachment_to_nothing(client):
    address, stream = client.managed(PAGE), client.stream()
    assert client.call("cuStreamAttachMemAsync", stream, address, 0, 0) == INVALID_VALUE
    assert client.call("cuStreamAttachMemAsync", stream, address, 0, 3) == INVALID_VALUE


def test_refused_attachments(client):
    address, stream = client.managed(2 * PAGE), client.stream()
    assert client.call("cuStreamAttachMemAsync", stream, address, PAGE, GLOBAL) != SUCCESS
    assert client.call("cuStreamAttachMemAsync", stream, address, 0, 8) != SUCCESS
    assert client.call("cuStreamAttachMemAsync", None, address, 0, SINGLE) != SUCCESS
    assert client.call("cuStreamAttachMemAsync", stream, client.device(8), 0, GLOBAL) != SUCCESS
