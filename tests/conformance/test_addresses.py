"""Addresses of device memory: large allocations begin a new block, and small ones share blocks."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .client import OUT_OF_MEMORY, PATIENCE, SUCCESS

UNIT = 512
BLOCK = 2 << 20
LARGE = BLOCK - UNIT + 1  # the smallest size that fills a block


@pytest.fixture
def small_device(software, client):
    """A client of a device with 64 MiB of memory."""
    before = software.settings()
    software.ok("cudadrvSoftReset")
    software.configure("memory=64MiB")
    software.ok("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0)
    software.ok("cuCtxSetCurrent", software.primary)
    yield client
    software.ok("cudadrvSoftReset")
    software.configure(before)
    software.ok("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0)
    software.ok("cuCtxSetCurrent", software.primary)


def allocated(client, size):
    """The address of new memory, or None if there is no memory left."""
    address = ctypes.c_uint64()
    status = client.call("cuMemAlloc_v2", ctypes.byref(address), size)
    assert status in (SUCCESS, OUT_OF_MEMORY)
    return address.value if status == SUCCESS else None


@pytest.mark.parametrize("size", [BLOCK, 3_710_976, 3_710_977, 4 << 20, (16 << 20) + 1])
def test_large_memory_begins_with_a_block(client, size):
    for _ in range(3):
        client.device(100)
        assert client.device(size) % BLOCK == 0


@pytest.mark.parametrize("size", [LARGE, BLOCK - 1, BLOCK, BLOCK + 1])
def test_which_memory_is_large(software, client, size):
    for _ in range(3):
        client.device(100)
        assert client.device(size) % BLOCK == 0


@pytest.mark.parametrize("size", [1 << 20, 3 << 19, LARGE - 1 - 2 * UNIT])
def test_memory_shares_a_block_if_it_fits(software, client, size):
    client.device(LARGE - 1)  # leaves at most one unit of its block
    first = client.device(LARGE - 1 - size)
    assert client.device(size) == first + LARGE - 1 - size


@pytest.mark.parametrize("size", [1, 8, 100, UNIT, UNIT + 1, 5000, 700_000, 3 << 19, LARGE - 1])
def test_small_memory_lies_in_one_block(software, client, size):
    for _ in range(8):
        address = client.device(size)
        client.device(LARGE)
        assert address % UNIT == 0
        assert address // BLOCK == (address + size - 1) // BLOCK


def test_small_memory_is_packed(software, client):
    client.device(LARGE - 1)  # if this memory begins a block, the next memory fits into it
    client.device(LARGE - 1)
    addresses = []
    for _ in range(100):
        addresses.append(client.device(100))
        client.device(LARGE)
    blocks = {address // BLOCK for address in addresses}
    assert len(blocks) <= 2
    assert max(addresses) - min(addresses) == 99 * UNIT or len(blocks) == 2


@pytest.mark.parametrize("size", [100, LARGE - 1, LARGE, 3 * BLOCK])
def test_a_freed_address_is_not_used_again_soon(software, client, size):
    found = set()
    for _ in range(50):
        address = allocated(client, size)
        found.add(address)
        client.ok("cuMemFree_v2", address)
    assert len(found) == 50


@pytest.mark.parametrize("size", [1000, LARGE - UNIT, LARGE, LARGE + 1, BLOCK + 1, 64 << 20])
def test_the_capacity_counts_units_of_512_bytes(small_device, size):
    """Memory with whole blocks of addresses takes only its own size from the capacity."""
    memory = []
    while address := allocated(small_device, size):
        memory.append(address)
    taken = (size + UNIT - 1) // UNIT * UNIT
    assert len(memory) == (64 << 20) // taken
    rest = (64 << 20) - len(memory) * taken
    assert allocated(small_device, rest + 1) is None
    if rest:
        memory.append(allocated(small_device, rest))
        assert memory[-1]
    for address in memory:
        small_device.ok("cuMemFree_v2", address)


def test_queued_frees_do_not_use_up_the_addresses(small_device):
    """Frees that have not run keep their addresses, and there are many more of them than memory."""
    stream, address = small_device.stream(), ctypes.c_uint64()
    for _ in range(600):
        small_device.ok("cuMemAllocAsync", ctypes.byref(address), 16 << 20, stream)
        small_device.ok("cuMemFreeAsync", address, stream)
    small_device.ok("cuMemAllocAsync", ctypes.byref(address), 16 << 20, stream)
    small_device.ok("cuMemsetD8Async", address, 7, 16 << 20, stream)
    small_device.ok("cuStreamSynchronize", stream)
    assert small_device.read(address.value + (16 << 20) - 4, 4) == b"\7" * 4
    small_device.ok("cuMemFree_v2", address)


FULL = """
import ctypes
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[2])))
from conformance.client import Client, Library

BLOCK, LARGE, ALL = 2 << 20, 1 << 20, 4 << 30  # ALL: the addresses of a device of 64 MiB
lib = Library(sys.argv[1])
lib.ok("cuInit", 0)
context = ctypes.c_void_p()
lib.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
lib.ok("cuCtxSetCurrent", context)
client = Client(lib)
small, address = [], ctypes.c_uint64()
while len({address // BLOCK for address in small}) < ALL // BLOCK:
    small.append(client.device(1))
    for _ in range(2):
        lib.ok("cuMemAlloc_v2", ctypes.byref(address), LARGE - 512)
        lib.ok("cuMemFree_v2", address)
blocks = {address // BLOCK for address in small}
assert len(blocks) == ALL // BLOCK, len(blocks)
found = [client.device(LARGE) for _ in range(3)]
for address in found:
    assert address // BLOCK in blocks
    assert all(not address <= other < address + LARGE for other in small)
    lib.ok("cuMemsetD8_v2", address, 7, LARGE)
    assert client.read(address + LARGE - 4, 4) == b"\\7" * 4
print("done")
"""


def test_memory_is_found_when_no_block_is_free(software, tmp_path):
    """Large memory is found, although each block of addresses has a small allocation."""
    library = shutil.copy(software.path, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", FULL, library, Path(__file__).parents[1]],
        env={**os.environ, "CUDADRV_SOFTWARE": "memory=64MiB"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "done\n", done.stderr
