"""Virtual memory management: address ranges, memory, mappings, access."""

import ctypes

import pytest

from .client import (
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    SUCCESS,
)
from .kernels import TEXT
from .structures import DEVICE_LOCATION, READWRITE, Access, Location, MemoryProperties

GRANULE = 2 << 20
NONE, READ = 0, 1
NOT_SUPPORTED = 801


def properties(device=0):
    return ctypes.byref(MemoryProperties(1, 0, Location(DEVICE_LOCATION, device)))


class Virtual:
    """Short names for the functions. Everything is released at the end."""

    def __init__(self, client):
        self.client, self.lib = client, client.lib
        self._reserved, self._mapped, self._made = [], [], []

    def reserve(self, granules, alignment=0):
        address, size = ctypes.c_uint64(), granules * GRANULE
        self.lib.ok("cuMemAddressReserve", ctypes.byref(address), size, alignment, 0, 0)
        self._reserved.append((address.value, size))
        return address.value

    def create(self, granules=1, device=0):
        handle = ctypes.c_uint64()
        size = granules * GRANULE
        self.lib.ok("cuMemCreate", ctypes.byref(handle), size, properties(device), 0)
        self._made.append(handle.value)
        return handle.value

    def release(self, handle):
        self._made.remove(handle)
        self.lib.ok("cuMemRelease", handle)

    def map(self, address, handle, granules=1):
        self.lib.ok("cuMemMap", address, granules * GRANULE, 0, handle, 0)
        self._mapped.append((address, granules * GRANULE))

    def unmap(self, address, granules=1):
        status = self.lib("cuMemUnmap", address, granules * GRANULE)
        if status == SUCCESS:
            end = address + granules * GRANULE
            self._mapped = [each for each in self._mapped if not address <= each[0] < end]
        return status

    def allow(self, address, granules=1, device=0, flags=READWRITE):
        access = Access(Location(DEVICE_LOCATION, device), flags)
        self.lib.ok("cuMemSetAccess", address, granules * GRANULE, ctypes.byref(access), 1)

    def access(self, address, device=0):
        flags, place = ctypes.c_uint64(7), Location(DEVICE_LOCATION, device)
        self.lib.ok("cuMemGetAccess", ctypes.byref(flags), ctypes.byref(place), address)
        return flags.value

    def memory(self, granules=1, pieces=1):
        """Return the address of reserved, mapped and accessible memory."""
        address = self.reserve(granules * pieces)
        for piece in range(pieces):
            handle = self.create(granules)
            self.map(address + piece * granules * GRANULE, handle, granules)
            self.release(handle)
        self.allow(address, granules * pieces)
        return address

    def close(self):
        self.lib("cuCtxSynchronize")
        for address, size in self._mapped:
            self.lib.ok("cuMemUnmap", address, size)
        for address, size in self._reserved:
            self.lib.ok("cuMemAddressFree", address, size)
        for handle in self._made:
            self.lib.ok("cuMemRelease", handle)


@pytest.fixture
def virtual(client):
    supported = ctypes.c_int()
    client.ok("cuDeviceGetAttribute", ctypes.byref(supported), 102, 0)
    assert supported.value == 1
    virtual = Virtual(client)
    yield virtual
    virtual.close()


def test_granularity(client, virtual):
    for option in (0, 1):
        found = ctypes.c_size_t()
        client.ok("cuMemGetAllocationGranularity", ctypes.byref(found), properties(), option)
        assert found.value == GRANULE


def test_mapped_memory_is_like_other_memory(client, virtual):
    address = virtual.memory(pieces=2)
    stream, other = client.stream(), client.device(64)
    middle = address + GRANULE - 32  # copies and fills may cross the border between two pieces
    client.ok("cuMemsetD8Async", middle, 5, 64, stream)
    client.ok("cuMemcpyDtoDAsync_v2", other, middle, 64, stream)
    client.ok("cuMemcpyDtoDAsync_v2", address, other, 64, stream)
    assert client.read(address, 64) == bytes([5]) * 64
    assert client.call("cuMemsetD8_v2", address + 2 * GRANULE - 32, 5, 33) == INVALID_VALUE


def test_kernels_use_it(client, virtual):
    address = virtual.memory(pieces=2)
    fill = client.function(client.module(TEXT), "fill")
    count = ctypes.c_uint32(32)
    status = client.launch(fill, None, address + GRANULE - 64, count, ctypes.c_uint32(7), block=32)
    assert status == SUCCESS
    assert client.read(address + GRANULE - 64, 128) == (7).to_bytes(4, "little") * 32


def test_memory_keeps_its_contents_while_it_is_not_mapped(client, virtual):
    address, handle = virtual.reserve(4), virtual.create()
    virtual.map(address, handle)
    virtual.allow(address)
    client.write(address, b"kept")
    assert virtual.unmap(address) == SUCCESS
    virtual.map(address + 2 * GRANULE, handle)
    virtual.allow(address + 2 * GRANULE)
    assert client.read(address + 2 * GRANULE, 4) == b"kept"
    assert client.call("cuMemsetD8_v2", address, 1, 4) == INVALID_VALUE


def test_memory_with_two_addresses(client, virtual):
    address, handle = virtual.reserve(2), virtual.create()
    for at in (address, address + GRANULE):
        virtual.map(at, handle)
        virtual.allow(at)
    client.write(address, b"both")
    assert client.read(address + GRANULE, 4) == b"both"


def test_mapped_memory_needs_no_handle(client, virtual):
    address, handle = virtual.reserve(1), virtual.create()
    virtual.map(address, handle)
    virtual.release(handle)
    virtual.allow(address)
    client.write(address, b"data")
    found = ctypes.c_uint64()
    client.ok("cuMemRetainAllocationHandle", ctypes.byref(found), address + 8)
    assert found.value == handle
    kept = MemoryProperties()
    client.ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(kept), handle)
    assert (kept.type, kept.location.type, kept.location.id) == (1, DEVICE_LOCATION, 0)
    client.ok("cuMemRelease", handle)


def test_access(client, virtual):
    address = virtual.reserve(2)
    for at in (address, address + GRANULE):
        virtual.map(at, handle := virtual.create())
        virtual.release(handle)
    assert virtual.access(address) == NONE
    assert client.call("cuMemsetD8_v2", address, 1, 4) == INVALID_VALUE
    virtual.allow(address)
    assert (virtual.access(address), virtual.access(address + GRANULE)) == (READWRITE, NONE)
    client.ok("cuMemsetD8_v2", address, 1, 4)
    # A fill needs access to all of its bytes.
    assert client.call("cuMemsetD8_v2", address + GRANULE - 2, 1, 4) == INVALID_VALUE


@pytest.mark.cuda_software
def test_read_access(client, virtual):
    address, other = virtual.memory(), client.device(4)
    client.write(address, b"read")
    virtual.allow(address, flags=READ)
    client.ok("cuMemcpyDtoD_v2", other, address, 4)
    assert client.read(other, 4) == b"read"
    assert client.call("cuMemcpyDtoD_v2", address, other, 4) == INVALID_VALUE
    assert client.call("cuMemsetD8_v2", address, 1, 4) == INVALID_VALUE


def call(name, *arguments):
    """Return a function that makes a call in a `scene`.

    Arguments that depend on the scene are functions of address and handle.
    """

    def run(virtual, address, handle):
        given = (each(address, handle) if callable(each) else each for each in arguments)
        return virtual.lib(name, *given)

    return run


def out(a, h):
    return ctypes.byref(ctypes.c_uint64())


def at(offset=0):
    return lambda a, h: a + offset


def handle_of(a, h):
    return h


def accessible(count=1, kind=DEVICE_LOCATION, device=0, flags=READWRITE):
    return lambda a, h: ctypes.byref(Access(Location(kind, device), flags))


# `a` is the address of 4 reserved granules. The second and third granules are mapped. `h` is the
# handle of a granule that is not mapped.
REFUSED = {
    "reserve nothing": call("cuMemAddressReserve", out, 0, 0, 0, 0),
    "reserve half a page": call("cuMemAddressReserve", out, 2048, 0, 0, 0),
    "reserve a page": call("cuMemAddressReserve", out, 4096, 0, 0, 0),
    "reserve, odd alignment": call("cuMemAddressReserve", out, GRANULE, 3 << 20, 0, 0),
    "reserve, flags": call("cuMemAddressReserve", out, GRANULE, 0, 0, 1),
    "reserve to null": call("cuMemAddressReserve", None, GRANULE, 0, 0, 0),
    "free mapped": call("cuMemAddressFree", at(), 4 * GRANULE),
    "free a part": call("cuMemAddressFree", at(), GRANULE),
    "free from the middle": call("cuMemAddressFree", at(GRANULE), 3 * GRANULE),
    "create nothing": call("cuMemCreate", out, 0, properties(), 0),
    "create half a granule": call("cuMemCreate", out, GRANULE // 2, properties(), 0),
    "create, flags": call("cuMemCreate", out, GRANULE, properties(), 1),
    "create to null": call("cuMemCreate", None, GRANULE, properties(), 0),
    "create null": call("cuMemCreate", out, GRANULE, None, 0),
    "map mapped": call("cuMemMap", at(GRANULE), GRANULE, 0, handle_of, 0),
    "map nothing": call("cuMemMap", at(), 0, 0, handle_of, 0),
    "map beyond the end": call("cuMemMap", at(4 * GRANULE), GRANULE, 0, handle_of, 0),
    "map, flags": call("cuMemMap", at(), GRANULE, 0, handle_of, 1),
    "unmap nothing": call("cuMemUnmap", at(GRANULE), 0),
    "access to what is not mapped": call("cuMemSetAccess", at(), GRANULE, accessible(), 1),
    "access to too much": call("cuMemSetAccess", at(GRANULE), 3 * GRANULE, accessible(), 1),
    "access of nobody": call("cuMemSetAccess", at(GRANULE), GRANULE, accessible(), 0),
    "access null": call("cuMemSetAccess", at(GRANULE), GRANULE, None, 1),
    "access, flags": call("cuMemSetAccess", at(GRANULE), GRANULE, accessible(flags=2), 1),
    "get access of what is not mapped": call("cuMemGetAccess", out, accessible(), at()),
    "handle of what is not mapped": call("cuMemRetainAllocationHandle", out, at()),
    "free as other memory": call("cuMemFree_v2", at()),
}


# Only whole allocations can be mapped, and only devices can be given access.
NOT_IMPLEMENTED = {
    "map across mapped": call("cuMemMap", at(), 2 * GRANULE, 0, handle_of, 0),
    "map half a granule": call("cuMemMap", at(), GRANULE // 2, 0, handle_of, 0),
    "map more than there is": call("cuMemMap", at(), 2 * GRANULE, 0, handle_of, 0),
    "map from an offset": call("cuMemMap", at(), GRANULE, GRANULE, handle_of, 0),
    "access of the host": call("cuMemSetAccess", at(GRANULE), GRANULE, accessible(kind=2), 1),
    "access of a node": call("cuMemSetAccess", at(GRANULE), GRANULE, accessible(kind=3), 1),
}


@pytest.fixture
def scene(virtual):
    address = virtual.reserve(4)
    for offset in (1, 2):
        virtual.map(address + offset * GRANULE, handle := virtual.create())
        virtual.release(handle)
    return virtual, address, virtual.create()


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_values(scene, case):
    assert REFUSED[case](*scene) == INVALID_VALUE


@pytest.mark.parametrize("case", NOT_IMPLEMENTED)
def test_what_no_driver_supports(scene, case):
    assert NOT_IMPLEMENTED[case](*scene) == NOT_SUPPORTED


def test_a_part_of_memory_cannot_be_mapped_to_its_own_size(virtual):
    address, handle = virtual.reserve(4), virtual.create(2)
    assert virtual.lib("cuMemMap", address, GRANULE, 0, handle, 0) == NOT_SUPPORTED


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 3), (0, 4), (3, 1)])
def test_gaps_are_unmapped_too(client, scene, first, count):
    """A range to be unmapped may have gaps without memory, or no memory at all."""
    virtual, address, _ = scene
    virtual.allow(address + GRANULE, 2)
    assert virtual.unmap(address + first * GRANULE, count) == SUCCESS
    for granule in (1, 2):
        gone = first <= granule < first + count
        status = client.call("cuMemsetD8_v2", address + granule * GRANULE, 1, 4)
        assert status == (INVALID_VALUE if gone else SUCCESS)


def test_a_mapping_is_unmapped_as_a_whole(client, virtual):
    address = virtual.memory(granules=2)
    for first in (0, 1):
        assert virtual.unmap(address + first * GRANULE) == INVALID_VALUE
    client.ok("cuMemsetD8_v2", address, 1, 2 * GRANULE)


def test_devices_that_are_not_there(client, scene):
    virtual, address, _ = scene
    found = ctypes.byref(ctypes.c_uint64())
    assert client.call("cuMemCreate", found, GRANULE, properties(99), 0) == INVALID_DEVICE
    access = ctypes.byref(Access(Location(DEVICE_LOCATION, 99), READWRITE))
    status = client.call("cuMemSetAccess", address + GRANULE, GRANULE, access, 1)
    assert status == INVALID_VALUE
    place = ctypes.byref(Location(DEVICE_LOCATION, 99))
    status = client.call("cuMemGetAccess", found, place, address + GRANULE)
    assert status == INVALID_DEVICE
    assert virtual.access(address + GRANULE) == NONE


def test_two_mappings_are_unmapped_at_once(scene):
    virtual, address, _ = scene
    assert virtual.unmap(address + GRANULE, 2) == SUCCESS


@pytest.mark.cuda_software
def test_what_is_not_supported(client, virtual):
    found = ctypes.byref(ctypes.c_uint64())
    host = MemoryProperties(1, 0, Location(2, 0))
    # Memory that can be exported as a fabric handle.
    exported = MemoryProperties(1, 8, Location(DEVICE_LOCATION, 0))
    for wanted in (host, exported):
        status = client.call("cuMemCreate", found, GRANULE, ctypes.byref(wanted), 0)
        assert status == NOT_SUPPORTED


@pytest.mark.cuda_software
def test_reservations_are_not_neighbours(client, virtual):
    """A reservation that asks for the address behind another one gets a different address.

    Otherwise programs would use both reservations as one.
    """
    address, found = virtual.reserve(1), ctypes.c_uint64()
    client.ok("cuMemAddressReserve", ctypes.byref(found), GRANULE, 0, address + GRANULE, 0)
    assert found.value != address + GRANULE
    client.ok("cuMemAddressFree", found, GRANULE)


@pytest.mark.cuda_software
def test_capacity(client, virtual):
    found = ctypes.byref(ctypes.c_uint64())
    before, now, total = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    client.ok("cuMemGetInfo_v2", ctypes.byref(before), ctypes.byref(total))
    handle = virtual.create(4)
    client.ok("cuMemGetInfo_v2", ctypes.byref(now), ctypes.byref(total))
    assert before.value - now.value == 4 * GRANULE
    assert client.call("cuMemCreate", found, total.value, properties(), 0) == OUT_OF_MEMORY
    virtual.release(handle)
    client.ok("cuMemGetInfo_v2", ctypes.byref(now), ctypes.byref(total))
    assert before.value == now.value


def test_pointer_attributes(client, scene):
    virtual, address, _ = scene
    virtual.allow(address + GRANULE, 2)

    def attribute(number, of):
        value = ctypes.c_uint64(0)
        client.ok("cuPointerGetAttribute", ctypes.byref(value), number, of)
        return value.value

    inside = address + GRANULE + 100
    assert attribute(2, inside) == 2  # the memory type is device memory
    assert attribute(9, inside) == 0  # the ordinal of its device
    begin, size = ctypes.c_uint64(), ctypes.c_size_t()
    client.ok("cuMemGetAddressRange_v2", ctypes.byref(begin), ctypes.byref(size), inside)
    assert (begin.value, size.value) == (address + GRANULE, GRANULE)


@pytest.mark.cuda_software
def test_kernels_stop_at_the_end_of_what_is_mapped(lost, software):
    virtual = Virtual(lost)
    address = virtual.reserve(2)
    virtual.map(address, virtual.create())
    virtual.allow(address)
    fill = lost.function(lost.kernels, "fill")
    where = address + GRANULE - 64
    sizes = ctypes.c_uint32(64), ctypes.c_uint32(7)
    assert lost.launch(fill, lost.stream(), where, *sizes, block=64) == SUCCESS
    assert lost.call("cuCtxSynchronize") == ILLEGAL_ADDRESS
    text = f" bytes beyond the end of the {GRANULE} bytes at {address:#x} that cuMemMap mapped"
    assert text in software.fault_text()
    assert lost.call("cuMemUnmap", address, GRANULE) == ILLEGAL_ADDRESS


@pytest.mark.cuda_software
def test_a_kernel_needs_access(lost, software):
    virtual = Virtual(lost)
    address = virtual.memory()
    virtual.allow(address, flags=READ)
    fill = lost.function(lost.kernels, "fill")
    sizes = ctypes.c_uint32(1), ctypes.c_uint32(7)
    assert lost.launch(fill, lost.stream(), address, *sizes) == SUCCESS
    assert lost.call("cuCtxSynchronize") == ILLEGAL_ADDRESS
    assert "cuMemSetAccess lets device 0 (only to read) use" in software.fault_text()


@pytest.mark.cuda_software
def test_addresses_without_memory(lost, software):
    address = Virtual(lost).reserve(2)
    fill = lost.function(lost.kernels, "fill")
    sizes = ctypes.c_uint32(1), ctypes.c_uint32(7)
    assert lost.launch(fill, lost.stream(), address + 8, *sizes) == SUCCESS
    assert lost.call("cuCtxSynchronize") == ILLEGAL_ADDRESS
    assert "that cuMemAddressReserve made, where nothing is mapped" in software.fault_text()


@pytest.fixture
def mapped(program):
    virtual = Virtual(program)
    yield virtual
    virtual.close()


@pytest.mark.cuda_software
def test_unmapping_what_is_in_use_is_a_race(program, mapped, software):
    address = mapped.memory(pieces=2)
    stream = program.stream()
    program.fill(address, stream)
    assert mapped.unmap(address + GRANULE) == SUCCESS
    assert software.races() == []  # the unmapped part is not the part in use
    assert mapped.unmap(address) == SUCCESS
    [text] = software.races()
    assert "cuMemUnmap" in text
    assert "cuMemsetD8Async" in text


@pytest.mark.cuda_software
def test_unmapping_after_a_wait_is_no_race(program, mapped, software):
    address = mapped.memory()
    one, two = program.streams()
    program.fill(address, one)
    program.sync(one)
    assert mapped.unmap(address) == SUCCESS
    mapped.map(address, mapped.create())
    mapped.allow(address)
    program.fill(address, two)
    program.sync(two)
    assert software.races() == []


@pytest.mark.cuda_software
def test_work_of_two_streams_races_across_mappings(program, mapped, software):
    address = mapped.memory(pieces=2)
    one, two = program.streams()
    program.fill(address + GRANULE - 128, one)
    program.fill(address + GRANULE, two)
    program.ok("cuCtxSynchronize")
    assert len(software.races()) == 1


@pytest.mark.cuda_software
def test_a_kernel_goes_on_while_more_is_mapped(program, mapped, software):
    """A kernel runs while more memory is mapped.

    The race detector sees the kernel's accesses in the old and in the new memory.
    """
    address = mapped.reserve(2)
    mapped.map(address, first := mapped.create())
    mapped.release(first)
    mapped.allow(address)
    fill = program.function(program.module(TEXT), "fill")
    one, two = program.streams()
    words = ctypes.c_uint32(32)
    program.launch(fill, one, address + GRANULE - 128, words, ctypes.c_uint32(7), block=32)
    mapped.map(address + GRANULE, second := mapped.create())
    mapped.release(second)
    mapped.allow(address + GRANULE)
    program.launch(fill, one, address + GRANULE - 64, words, ctypes.c_uint32(8), block=32)
    program.fill(address + GRANULE, two)
    program.ok("cuCtxSynchronize")
    assert len(software.races()) == 1
