"""Where the pages of managed memory are, and how often uses have moved them."""

import ctypes

import pytest

from .client import INVALID_VALUE, SUCCESS
from .kernels import TEXT
from .structures import (
    DEVICE_LOCATION,
    HOST_LOCATION,
    NUMA_CURRENT_LOCATION,
    NUMA_LOCATION,
    Location,
)

pytestmark = pytest.mark.cuda_software  # a real driver does not say where pages are

PAGE, BLOCK = 4096, 65536
HOST, NOWHERE = -1, -2
DISCARDED = 0xDD
READ_MOSTLY, UNSET_READ_MOSTLY, PREFERRED, ACCESSED_BY = 1, 2, 3, 5
PREFETCH, DISCARD = "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync"
DISCARD_AND_PREFETCH = "cuMemDiscardAndPrefetchBatchAsync"


class Pages:
    """Managed memory, with the driver's records of its pages, and uses by the host and device 0."""

    def __init__(self, client, size, stream=None):
        self.client, self.size = client, size
        self.address = client.managed(size)
        self.stream = stream or client.stream()

    def faults(self, offset=0, size=None):
        """Numbers of page faults: (by the host, by devices)."""
        counts = (ctypes.c_ulonglong * 2)()
        size = self.size - offset if size is None else size
        begin = ctypes.c_ulonglong(self.address + offset)
        status = self.client.lib("cudadrvSoftPageFaults", begin, ctypes.c_ulonglong(size), counts)
        assert status == SUCCESS
        return tuple(counts)

    def places(self):
        """The place of each page: HOST, NOWHERE or the ordinal of a device."""
        count = (self.size + PAGE - 1) // PAGE
        places = (ctypes.c_int * count)(*[77] * count)
        status = self.client.lib(
            "cudadrvSoftPagePlaces",
            ctypes.c_ulonglong(self.address),
            ctypes.c_ulonglong(self.size),
            places,
            ctypes.c_ulonglong(count),
        )
        assert status == SUCCESS
        return list(places)

    def place(self):
        """The place of all pages. They must be in one place."""
        (place,) = set(self.places())
        return place

    def sync(self):
        self.client.ok("cuStreamSynchronize", self.stream)

    def device_writes(self, offset=0, size=None, value=0x41):
        size = self.size - offset if size is None else size
        self.client.ok("cuMemsetD8Async", self.address + offset, value, size, self.stream)
        self.sync()

    def device_reads(self, offset=0, size=None):
        size = self.size - offset if size is None else size
        target = self.client.device(size)
        self.client.ok("cuMemcpyDtoDAsync_v2", target, self.address + offset, size, self.stream)
        return self.client.read(target, size)

    def host_writes(self, offset=0, size=None, value=0x42):
        ctypes.memset(self.address + offset, value, self.size - offset if size is None else size)

    def host_reads(self, offset=0, size=None):
        size = self.size - offset if size is None else size
        return ctypes.string_at(self.address + offset, size)

    def prefetch(self, kind, number=0, offset=0, size=None):
        size = self.size - offset if size is None else size
        place = Location(kind, number).by_value()
        self.client.ok("cuMemPrefetchAsync_v2", self.address + offset, size, place, 0, self.stream)
        self.sync()

    def advise(self, advice, kind=DEVICE_LOCATION, number=0):
        place = Location(kind, number).by_value()
        self.client.ok("cuMemAdvise_v2", self.address, self.size, advice, place)

    def discard(self, offset=0, size=None):
        size = self.size - offset if size is None else size
        assert batch(self.client, DISCARD, [(self.address + offset, size)], self.stream) == SUCCESS
        self.sync()


def batch(client, function, ranges, stream, places=(), indices=None, flags=0):
    """Call a batch function for (address, size) ranges. Returns the status."""
    addresses = (ctypes.c_uint64 * len(ranges))(*(address for address, _ in ranges))
    sizes = (ctypes.c_size_t * len(ranges))(*(size for _, size in ranges))
    to = ()
    if places:
        where = (Location * len(places))(*(Location(*place) for place in places))
        first = (ctypes.c_size_t * len(places))(*(indices or range(len(places))))
        to = (where, first, ctypes.c_size_t(len(places)))
    count, flags = ctypes.c_size_t(len(ranges)), ctypes.c_ulonglong(flags)
    return client.call(function, addresses, sizes, count, *to, flags, ctypes.c_void_p(stream))


@pytest.fixture
def pages(client):
    """Managed memory of four blocks."""
    return Pages(client, 4 * BLOCK)


def test_new_pages_are_nowhere(pages):
    assert pages.place() == NOWHERE
    assert pages.faults() == (0, 0)


def test_pages_are_where_they_are_used_first(client):
    by_host, by_device = Pages(client, BLOCK), Pages(client, BLOCK)
    by_host.host_writes()
    by_device.device_writes()
    assert (by_host.place(), by_device.place()) == (HOST, 0)
    assert by_host.faults() == by_device.faults() == (0, 0)


def test_a_loop_moves_a_page_400_times(client):
    pages = Pages(client, PAGE)
    pages.host_writes()
    for round in range(200):
        pages.device_writes(value=round)
        assert pages.host_reads(0, 2) == bytes([round] * 2)
    assert pages.faults() == (200, 200)


def test_using_pages_where_they_are_is_no_fault(pages):
    for _ in range(3):
        pages.host_writes()
        pages.host_reads()
    assert pages.faults() == (0, 0)
    for _ in range(3):
        pages.device_writes()
        pages.device_reads()
    assert pages.faults() == (0, 4)
    assert pages.place() == 0


def test_a_fault_moves_a_block(pages):
    pages.device_writes()
    pages.host_reads(BLOCK + 5 * PAGE, 1)
    moved = [BLOCK <= number * PAGE < 2 * BLOCK for number in range(64)]
    assert pages.places() == [HOST if here else 0 for here in moved]
    assert pages.faults() == (1, 0)
    assert [pages.faults(block * BLOCK, BLOCK) for block in range(4)] == [
        (0, 0),
        (1, 0),
        (0, 0),
        (0, 0),
    ]


def test_writes_of_the_host_move_as_its_reads(pages):
    pages.device_writes()
    pages.host_writes(3 * BLOCK + 17, 1)
    assert pages.places() == [0] * 48 + [HOST] * 16
    assert pages.device_reads()[-BLOCK:] == b"A" * 17 + b"B" + b"A" * (BLOCK - 18)


def test_a_kernel_moves_what_it_uses(client, pages):
    fill = client.function(client.module(TEXT), "fill")
    pages.host_writes()
    numbers = ctypes.c_uint(1), ctypes.c_uint(9)
    assert client.launch(fill, pages.stream, pages.address + 2 * BLOCK, *numbers) == SUCCESS
    pages.sync()
    assert pages.places() == [HOST] * 32 + [0] * 16 + [HOST] * 16
    assert pages.faults() == (0, 1)
    assert pages.host_reads(2 * BLOCK, 4) == b"\x09\0\0\0"


def test_a_kernel_moves_pages_when_races_are_not_looked_for(software, client, pages):
    software.configure("races=off")
    fill = client.function(client.module(TEXT), "fill")
    pages.host_writes()
    numbers = ctypes.c_uint(1), ctypes.c_uint(9)
    assert client.launch(fill, pages.stream, pages.address, *numbers) == SUCCESS
    pages.sync()
    software.configure("races=record")
    assert pages.faults() == (0, 1)


def test_rows_of_a_fill_move_their_blocks(client, pages):
    pages.host_writes()
    client.ok("cuMemsetD2D32Async", pages.address, 2 * BLOCK, 7, 1, 2, pages.stream)
    pages.sync()
    assert pages.places() == [0] * 16 + [HOST] * 16 + [0] * 16 + [HOST] * 16


def test_system_calls_move_pages(pages, tmp_path):
    """The pages that a system call uses move to the host first. Otherwise the call would fail."""
    pages.device_writes()
    memory = (ctypes.c_ubyte * pages.size).from_address(pages.address)
    (tmp_path / "file").write_bytes(b"x" * pages.size)
    with (tmp_path / "file").open("rb", buffering=0) as file:
        assert file.readinto(memory) == pages.size
    assert pages.place() == HOST
    assert pages.faults() == (4, 0)
    assert pages.device_reads() == b"x" * pages.size


@pytest.mark.parametrize("kind", [HOST_LOCATION, NUMA_LOCATION, NUMA_CURRENT_LOCATION])
def test_a_prefetch_is_no_fault(pages, kind):
    pages.host_writes()
    pages.prefetch(DEVICE_LOCATION, offset=PAGE, size=PAGE)
    assert pages.places() == [HOST, 0] + [HOST] * 62
    pages.prefetch(DEVICE_LOCATION)
    pages.device_writes()
    pages.prefetch(kind)
    assert pages.place() == HOST
    assert pages.host_reads() == b"A" * pages.size
    assert pages.faults() == (0, 0)


def test_a_prefetch_comes_in_the_order_of_its_stream(client, pages):
    pages.host_writes()
    gate = client.gate().hold(pages.stream)
    place = Location(DEVICE_LOCATION, 0).by_value()
    client.ok("cuMemPrefetchAsync_v2", pages.address, pages.size, place, 0, pages.stream)
    client.lib("cudadrvSoftDrain")
    assert pages.place() == HOST
    gate.open()
    pages.sync()
    assert pages.place() == 0


def test_a_prefetch_outlives_its_memory(client):
    """A prefetch that runs after its memory was freed moves nothing."""
    pages = Pages(client, BLOCK)
    pages.host_writes()
    place = Location(DEVICE_LOCATION, 0).by_value()
    client.ok("cuMemPrefetchAsync_v2", pages.address, BLOCK, place, 0, pages.stream)
    client.forget("cuMemFree_v2", pages.address)
    client.ok("cuMemFree_v2", pages.address)
    pages.sync()


def test_pages_that_are_mostly_read_are_copied(pages):
    pages.host_writes()
    pages.advise(READ_MOSTLY)
    pages.device_reads()
    assert pages.place() == HOST
    assert pages.faults() == (0, 4)
    for _ in range(3):
        pages.host_reads()
        pages.device_reads()
    assert pages.faults() == (0, 4)
    pages.device_writes()
    assert pages.place() == 0
    assert pages.faults() == (0, 8)
    pages.host_reads()  # the device's write has invalidated the host's copies
    assert pages.faults() == (4, 8)
    pages.device_reads()
    assert pages.faults() == (4, 8)


def test_the_host_writes_pages_of_which_a_device_has_copies(pages):
    pages.host_writes()
    pages.advise(READ_MOSTLY)
    pages.device_reads()
    pages.host_writes(BLOCK, 1, value=7)
    assert pages.faults() == (0, 4)
    pages.device_reads()  # the host's write has invalidated one copy
    assert pages.faults() == (0, 5)
    pages.device_writes(value=9)
    pages.host_reads()
    assert pages.faults() == (4, 9)
    assert pages.place() == 0
    pages.host_writes(2 * BLOCK, 1)
    assert pages.places() == [0] * 32 + [HOST] * 16 + [0] * 16
    assert pages.faults() == (5, 9)


def test_what_a_device_writes_is_no_write_of_the_host(client, pages):
    pages.host_writes()
    pages.host_writes(BLOCK, BLOCK, value=5)
    pages.advise(READ_MOSTLY)
    pages.device_reads()
    client.ok("cuMemcpyDtoDAsync_v2", pages.address, pages.address + BLOCK, BLOCK, pages.stream)
    pages.sync()
    assert pages.places() == [0] * 16 + [HOST] * 48
    assert pages.faults() == (0, 5)
    pages.device_reads()
    assert pages.faults() == (0, 5)


def test_a_prefetch_copies_pages_that_are_mostly_read(pages):
    pages.host_writes()
    pages.advise(READ_MOSTLY)
    pages.prefetch(DEVICE_LOCATION)
    assert pages.place() == HOST
    pages.device_reads()
    assert pages.faults() == (0, 0)
    pages.advise(UNSET_READ_MOSTLY)
    pages.device_reads()
    assert pages.faults() == (0, 4)


def test_pages_that_prefer_the_host_stay_there(pages):
    pages.advise(PREFERRED, HOST_LOCATION)
    pages.device_writes()
    assert pages.place() == HOST
    assert pages.host_reads() == b"A" * pages.size
    pages.device_writes()
    assert pages.faults() == (0, 0)
    pages.prefetch(DEVICE_LOCATION)
    assert pages.place() == 0
    pages.host_reads()
    assert pages.place() == HOST
    assert pages.faults() == (4, 0)


def test_pages_that_prefer_the_device_come_to_the_host(pages):
    pages.advise(PREFERRED)
    pages.device_writes()
    pages.host_reads(0, 1)
    assert pages.places() == [HOST] * 16 + [0] * 48
    pages.device_writes()
    assert pages.faults() == (1, 1)


def test_a_device_that_accesses_pages_uses_them_where_they_are(pages):
    pages.host_writes()
    pages.advise(ACCESSED_BY)
    pages.device_writes()
    assert pages.place() == HOST
    assert pages.faults() == (0, 0)
    assert pages.host_reads() == b"A" * pages.size


def test_devices_move_pages_to_each_other(client, pages):
    pages.device_writes()
    context = ctypes.c_void_p()
    client.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 1)
    client.ok("cuCtxPushCurrent_v2", context)
    other = client.stream()
    client.ok("cuMemsetD8Async", pages.address, 7, BLOCK, other)
    client.ok("cuStreamSynchronize", other)
    assert pages.places() == [1] * 16 + [0] * 48
    assert pages.faults() == (0, 1)
    pages.prefetch(DEVICE_LOCATION, 1)
    assert pages.place() == 1
    client.forget("cuStreamDestroy_v2", other)
    client.ok("cuStreamDestroy_v2", other)
    client.ok("cuCtxPopCurrent_v2", ctypes.byref(context))
    client.ok("cuDevicePrimaryCtxRelease_v2", 1)
    assert pages.host_reads() == b"\x07" * BLOCK + b"A" * 3 * BLOCK


def test_discarded_bytes_read_as_a_pattern(pages):
    pages.device_writes()
    pages.discard()
    assert pages.place() == NOWHERE
    assert pages.host_reads() == bytes([DISCARDED]) * pages.size
    assert pages.place() == HOST
    assert pages.faults() == (0, 0)  # no pages had to be moved


def test_what_is_written_after_a_discard_stays(pages):
    pages.host_writes()
    pages.discard()
    pages.device_writes(0, BLOCK)
    pages.host_writes(BLOCK, BLOCK)
    pages.prefetch(DEVICE_LOCATION)
    expected = b"A" * BLOCK + b"B" * BLOCK + bytes([DISCARDED]) * 2 * BLOCK
    assert pages.device_reads() == expected


def test_a_discard_is_exact(pages):
    pages.host_writes()
    pages.discard(PAGE + 100, 2 * PAGE)
    assert pages.places()[:5] == [HOST, HOST, NOWHERE, HOST, HOST]
    content = pages.host_reads()
    lost = bytes([DISCARDED]) * 2 * PAGE
    assert content == b"B" * (PAGE + 100) + lost + b"B" * (pages.size - 3 * PAGE - 100)


def test_a_discard_to_the_end_of_a_part_of_a_page(client):
    pages = Pages(client, PAGE + 100)
    pages.host_writes()
    pages.discard(PAGE, 100)
    assert pages.places() == [HOST, NOWHERE]
    pages.discard(0, PAGE + 50)
    assert pages.places() == [NOWHERE, NOWHERE]


def test_discard_and_prefetch(client, pages):
    pages.host_writes()
    half = pages.size // 2
    halves = [(pages.address, half), (pages.address + half, half)]
    places = [(DEVICE_LOCATION, 0), (HOST_LOCATION, 0)]
    assert batch(client, DISCARD_AND_PREFETCH, halves, pages.stream, places) == SUCCESS
    pages.sync()
    assert pages.places() == [0] * 32 + [HOST] * 32
    assert pages.host_reads() == bytes([DISCARDED]) * pages.size


def test_a_batch_of_prefetches(client, pages):
    pages.host_writes()
    blocks = [(pages.address + block * BLOCK, BLOCK) for block in range(4)]
    places = [(DEVICE_LOCATION, 0), (NUMA_LOCATION, 0)]
    assert batch(client, PREFETCH, blocks, pages.stream, places, [0, 3]) == SUCCESS
    pages.sync()
    assert pages.places() == [0] * 48 + [HOST] * 16
    assert pages.faults() == (0, 0)
    assert _prefetched(client, pages.address, 3 * BLOCK) == 0
    assert _prefetched(client, pages.address + 3 * BLOCK, BLOCK) == HOST


def _prefetched(client, address, size):
    value = ctypes.c_int()
    client.ok("cuMemRangeGetAttribute", ctypes.byref(value), 4, 4, address, size)
    return value.value


HERE = [(DEVICE_LOCATION, 0)]


@pytest.mark.parametrize("function", [PREFETCH, DISCARD_AND_PREFETCH])
@pytest.mark.parametrize(
    ("places", "indices"),
    [
        ([(DEVICE_LOCATION, 99)], [0]),
        ([(DEVICE_LOCATION, 0), (DEVICE_LOCATION, 99)], [0, 1]),
        ([(NUMA_LOCATION, 99)], [0]),
        ([(0, 0)], [0]),
        ([(9, 0)], [0]),
        (HERE, [1]),
        (HERE * 2, [0, 0]),
        (HERE * 2, [0, 2]),
        (HERE * 3, [0, 1, 2]),
    ],
)
def test_a_batch_with_a_bad_place_does_nothing(client, pages, function, places, indices):
    pages.host_writes()
    halves = [(pages.address, BLOCK), (pages.address + BLOCK, BLOCK)]
    assert batch(client, function, halves, pages.stream, places, indices) == INVALID_VALUE
    pages.sync()
    assert pages.place() == HOST
    assert pages.host_reads() == b"B" * pages.size
    assert _prefetched(client, pages.address, pages.size) == NOWHERE


@pytest.mark.parametrize("function", [PREFETCH, DISCARD, DISCARD_AND_PREFETCH])
def test_a_batch_with_a_bad_range_does_nothing(client, pages, function):
    pages.host_writes()
    places = [] if function == DISCARD else HERE
    good = (pages.address, BLOCK)
    for bad in (
        (client.device(PAGE), PAGE),
        (client.host(PAGE), PAGE),
        (pages.address, 0),
        (pages.address, pages.size + 1),
        (pages.address + pages.size, 1),
        (0, PAGE),
    ):
        assert batch(client, function, [good, bad], pages.stream, places) == INVALID_VALUE
    for flags, stream in ((1, pages.stream), (1 << 40, pages.stream), (0, None), (0, 1)):
        assert batch(client, function, [good], stream, places, flags=flags) == INVALID_VALUE
    assert batch(client, function, [], pages.stream, places) == INVALID_VALUE
    pages.sync()
    assert pages.place() == HOST
    assert pages.host_reads() == b"B" * pages.size


def test_pages_leave_a_device_that_is_full(software, client):
    """The pages whose last use is oldest leave a full device first."""
    before = software.settings().partition("memory=")[2].partition(",")[0]
    software.configure("memory=1MiB")
    try:
        first, second = Pages(client, 8 * BLOCK), Pages(client, 8 * BLOCK)
        first.device_writes(value=1)
        second.device_writes(value=2)
        assert (first.place(), second.place()) == (0, 0)
        assert _free(client) == 0
        first.device_writes(0, BLOCK, value=3)
        third = Pages(client, 2 * BLOCK)
        third.device_writes()
        assert first.places() == [0] * 16 + [HOST] * 32 + [0] * 80
        assert (second.place(), third.place()) == (0, 0)
        assert first.faults() == (0, 0)
        first.device_reads(BLOCK, BLOCK)
        assert first.faults() == (0, 1)
        client.device(1 << 19)  # this allocation takes space from managed memory
        assert first.places() == [0] * 32 + [HOST] * 96
        assert second.places() == [HOST] * 80 + [0] * 48
        assert first.host_reads(0, 2 * BLOCK) == b"\x03" * BLOCK + b"\x01" * BLOCK
        assert second.host_reads() == b"\x02" * 8 * BLOCK
    finally:
        software.configure(f"memory={before}")


def test_more_memory_than_the_device_has(software, client):
    before = software.settings().partition("memory=")[2].partition(",")[0]
    software.configure("memory=1MiB")
    try:
        pages = Pages(client, 1 << 22)
        pages.prefetch(DEVICE_LOCATION)
        assert pages.places().count(0) == 256
        pages.device_writes()
        assert pages.places().count(0) == 256
        assert pages.host_reads() == b"A" * (1 << 22)
    finally:
        software.configure(f"memory={before}")


def _free(client):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    client.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def test_pages_on_a_device_use_its_memory(client, pages):
    before = _free(client)
    pages.device_writes()
    assert _free(client) == before - pages.size
    pages.prefetch(HOST_LOCATION)
    assert _free(client) == before
    pages.device_writes()
    client.forget("cuMemFree_v2", pages.address)
    client.ok("cuMemFree_v2", pages.address)
    assert _free(client) == before


def test_other_memory_has_no_places(client):
    counts = (ctypes.c_ulonglong * 2)()
    for address in (client.device(PAGE), client.host(PAGE), 0, 1 << 62):
        begin, size = ctypes.c_ulonglong(address), ctypes.c_ulonglong(PAGE)
        assert client.lib("cudadrvSoftPageFaults", begin, size, counts) == INVALID_VALUE
        place = ctypes.c_int()
        status = client.lib(
            "cudadrvSoftPagePlaces", begin, size, ctypes.byref(place), ctypes.c_ulonglong(1)
        )
        assert status == INVALID_VALUE
