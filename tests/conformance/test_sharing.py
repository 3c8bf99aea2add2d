"""Memory, events and pools that two processes share."""

import array
import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .client import (
    DISABLE_TIMING,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    SUCCESS,
    SharedHandle,
    poll,
)
from .structures import (
    DEVICE_LOCATION,
    NUMA_LOCATION,
    READWRITE,
    Access,
    Location,
    MemoryProperties,
    pool_properties,
)

INTERPROCESS = DISABLE_TIMING | 4
LAZY_PEER_ACCESS = 1
MAP_FAILED = 205
FILE_HANDLE = 1
SIZE = 10_000
GRANULE = 2 << 20

# The program of the other process. It evaluates each line of its input as an expression, and
# answers with the value.
OTHER = """
import ctypes, os, socket, sys, array
sys.path.insert(0, {folder!r})
from client import Library, SharedHandle
from structures import DEVICE_LOCATION, READWRITE, Access, Location
lib = Library({path!r})
if lib.software:
    lib.configure({settings!r})
lib.ok("cuInit", 0)
context = ctypes.c_void_p()
lib.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
lib.ok("cuCtxSetCurrent", context)
def made(kind, name, *arguments):
    value = kind()
    status = lib(name, ctypes.byref(value), *arguments)
    return (status, value.value)
def open_memory(handle, flags=1):
    given = SharedHandle.from_buffer_copy(handle)
    return made(ctypes.c_uint64, "cuIpcOpenMemHandle_v2", given, flags)
def open_event(handle):
    return made(ctypes.c_void_p, "cuIpcOpenEventHandle", SharedHandle.from_buffer_copy(handle))
def read(address, size):
    data = (ctypes.c_ubyte * size)()
    lib.ok("cuMemcpyDtoH_v2", data, address, size)
    return bytes(data)
def fill(address, value, size):
    lib.ok("cuMemsetD8_v2", address, value, size)
    lib.ok("cuCtxSynchronize")
def stream():
    return made(ctypes.c_void_p, "cuStreamCreate", 1)[1]
def receive(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", ancillary[0][2])[0]
def import_pool(path):
    descriptor = receive(path)
    result = made(ctypes.c_void_p, "cuMemPoolImportFromShareableHandle", descriptor, 1, 0)
    os.close(descriptor)
    return result
def import_memory(path):
    descriptor = receive(path)
    result = made(ctypes.c_uint64, "cuMemImportFromShareableHandle", descriptor, 1)
    os.close(descriptor)
    return result
def map_memory(handle, size):
    _, address = made(ctypes.c_uint64, "cuMemAddressReserve", size, 0, 0, 0)
    lib.ok("cuMemMap", address, size, 0, handle, 0)
    access = Access(Location(DEVICE_LOCATION, 0), READWRITE)
    lib.ok("cuMemSetAccess", address, size, ctypes.byref(access), 1)
    return address
def import_pointer(pool, data):
    given = SharedHandle.from_buffer_copy(data)
    return made(ctypes.c_uint64, "cuMemPoolImportPointer", pool, ctypes.byref(given))
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Other:
    """Another process.

    ``other.open_event(handle)`` calls `open_event` in that process and returns the result.
    """

    def __init__(self, lib, settings=""):
        code = OTHER.format(
            folder=str(Path(__file__).parent), path=lib.path, settings=settings or "races=record"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, expression):
        self.send(expression)
        return self.answer()

    def send(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, f"the other process ended with {self.process.wait()}"
        return eval(line)

    def call(self, name, *arguments):
        return self.ask(f"lib({name!r}, *{arguments!r})")

    def __getattr__(self, name):
        return lambda *arguments: self.ask(f"{name}(*{arguments!r})")

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def other(client):
    settings = client.lib.settings().split(",") if client.lib.software else []
    process = Other(client.lib, ",".join(one for one in settings if one.startswith("schedule")))
    yield process
    process.end()


def share(client, address):
    handle = (ctypes.c_ubyte * 64)()
    client.ok("cuIpcGetMemHandle", handle, address)
    return bytes(handle)


def fill(client, address, value, size):
    client.ok("cuMemsetD8_v2", address, value, size)
    client.ok("cuCtxSynchronize")


def share_event(client, event):
    handle = (ctypes.c_ubyte * 64)()
    client.ok("cuIpcGetEventHandle", handle, event)
    return bytes(handle)


def test_memory_is_the_same(client, other):
    before = client.device(100)
    memory = client.device(SIZE)
    fill(client, memory, 7, SIZE)
    handle = share(client, memory)
    status, there = other.open_memory(handle)
    assert status == SUCCESS
    assert other.read(there, SIZE) == bytes([7]) * SIZE
    other.fill(there + 1, 9, SIZE - 1)
    assert client.read(memory, SIZE) == bytes([7]) + bytes([9]) * (SIZE - 1)
    fill(client, memory, 8, SIZE)
    assert other.read(there, SIZE) == bytes([8]) * SIZE
    # An address inside the same memory gives the same handle.
    assert share(client, memory + 1000) == handle
    fill(client, before, 1, 100)
    assert other.call("cuIpcCloseMemHandle", there) == SUCCESS


def test_stale_and_foreign_handles_are_refused(client, other):
    memory = client.device(SIZE)
    handle = share(client, memory)
    if client.lib.software:  # real drivers do not check all bytes
        for index in (0, 8, 12, 20, 30, 38, 45, 60):
            damaged = bytearray(handle)
            damaged[index] ^= 0x40
            assert other.open_memory(bytes(damaged))[0] == INVALID_VALUE
    assert other.open_memory(bytes(64))[0] == INVALID_VALUE
    assert other.open_memory(handle, 0)[0] == INVALID_VALUE
    address = ctypes.c_uint64()
    mine = SharedHandle.from_buffer_copy(handle)
    status = client.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), mine, LAZY_PEER_ACCESS)
    assert status == INVALID_CONTEXT
    client.ok("cuMemFree_v2", memory)
    client.forget("cuMemFree_v2", memory)
    assert other.open_memory(handle)[0] == INVALID_VALUE


def test_opening_twice_counts(client, other):
    memory = client.device(SIZE)
    handle = share(client, memory)
    _, there = other.open_memory(handle)
    assert other.open_memory(handle) == (SUCCESS, there)
    assert other.call("cuIpcCloseMemHandle", there) == SUCCESS
    other.fill(there, 5, SIZE)
    assert client.read(memory, SIZE) == bytes([5]) * SIZE
    assert other.call("cuMemFree_v2", there) == INVALID_VALUE
    assert other.call("cuIpcCloseMemHandle", there) == SUCCESS
    assert other.call("cuIpcCloseMemHandle", there) == INVALID_VALUE


def test_memory_that_cannot_be_shared(client, other):
    handle = (ctypes.c_ubyte * 64)()
    stream = client.stream()
    ordered = ctypes.c_uint64()
    client.ok("cuMemAllocAsync", ctypes.byref(ordered), SIZE, stream)
    for address in (client.host(SIZE), client.managed(SIZE), ordered.value, 64):
        assert client.call("cuIpcGetMemHandle", handle, address) == INVALID_VALUE
    client.ok("cuMemFreeAsync", ordered, stream)
    memory = client.device(SIZE)
    _, there = other.open_memory(share(client, memory))
    assert (
        other.ask(f"lib('cuIpcGetMemHandle', ctypes.byref(SharedHandle()), {there})")
        == INVALID_VALUE
    )
    assert client.call("cuIpcCloseMemHandle", memory) == INVALID_VALUE


def test_free_before_close(client, other):
    """After the owner has freed the memory, the other process reads zeros or the old bytes.

    It does not crash.
    """
    memory = client.device(SIZE)
    fill(client, memory, 7, SIZE)
    _, there = other.open_memory(share(client, memory))
    client.ok("cuMemFree_v2", memory)
    client.forget("cuMemFree_v2", memory)
    assert len(other.read(there, SIZE)) == SIZE
    other.fill(there, 3, SIZE)
    fresh = client.device(SIZE)
    fill(client, fresh, 4, SIZE)
    assert client.read(fresh, SIZE) == bytes([4]) * SIZE
    assert other.call("cuIpcCloseMemHandle", there) == SUCCESS


def test_many_sizes(client, other):
    """Processes share allocations smaller than a page, and others of several MiB."""
    sizes = [1, 512, 700, 4096, 4097, 3_000_000, 5_000_000, 1000]
    memory = [client.device(size) for size in sizes]
    for value, (address, size) in enumerate(zip(memory, sizes, strict=True)):
        fill(client, address, value, size)
    there = [other.open_memory(share(client, address))[1] for address in memory]
    for value, (address, size) in enumerate(zip(there, sizes, strict=True)):
        assert other.ask(f"read({address}, {size}) == bytes([{value}]) * {size}")
        other.fill(address, value + 100, size)
    for value, (address, size) in enumerate(zip(memory, sizes, strict=True)):
        assert client.read(address, size) == bytes([value + 100]) * size
    for address in memory[::2]:
        client.ok("cuMemFree_v2", address)
        client.forget("cuMemFree_v2", address)
    for value, (address, size) in enumerate(zip(memory, sizes, strict=True)):
        if value % 2:
            assert client.read(address, size) == bytes([value + 100]) * size
            assert other.ask(f"read({there[value]}, {size}) == bytes([{value + 100}]) * {size}")
    for address in there:
        assert other.call("cuIpcCloseMemHandle", address) == SUCCESS


def test_memory_of_a_dead_process(client, other):
    _, there = other.ask("made(ctypes.c_uint64, 'cuMemAlloc_v2', 10_000)")
    other.fill(there, 6, SIZE)
    handle = other.ask(
        f"[h := SharedHandle(), lib('cuIpcGetMemHandle', ctypes.byref(h), {there}), bytes(h)][2]"
    )
    here = ctypes.c_uint64()
    given = SharedHandle.from_buffer_copy(handle)
    client.ok("cuIpcOpenMemHandle_v2", ctypes.byref(here), given, LAZY_PEER_ACCESS)
    other.process.kill()
    other.process.wait()
    assert len(client.read(here.value, SIZE)) == SIZE
    client.ok("cuIpcCloseMemHandle", here)
    status = client.call("cuIpcOpenMemHandle_v2", ctypes.byref(here), given, LAZY_PEER_ACCESS)
    assert status == INVALID_HANDLE


# ---- events ----


def test_a_stream_waits_for_another_process(client, other):
    memory = client.device(SIZE)
    fill(client, memory, 1, SIZE)
    _, there = other.open_memory(share(client, memory))
    event = client.event(INTERPROCESS)
    status, theirs = other.open_event(share_event(client, event))
    assert status == SUCCESS
    stream, gate = client.stream(), client.gate()
    gate.hold(stream)
    client.ok("cuMemsetD8Async", memory, 5, SIZE, stream)
    client.ok("cuEventRecord", event, stream)
    away = other.stream()
    assert other.call("cuEventQuery", theirs) == NOT_READY
    assert other.call("cuStreamWaitEvent", away, theirs, 0) == SUCCESS
    assert other.call("cuMemsetD8Async", there + 1, 9, 10, away) == SUCCESS
    assert other.call("cuStreamQuery", away) == NOT_READY
    assert other.call("cuEventRecord", theirs, away) == SUCCESS
    back = client.stream()
    client.ok("cuStreamWaitEvent", back, event, 0)
    client.ok("cuMemsetD8Async", memory + 2, 3, 1, back)
    gate.open()
    client.ok("cuStreamSynchronize", back)
    expected = bytes([5, 9, 3]) + bytes([9]) * 8 + bytes([5]) * (SIZE - 11)
    assert client.read(memory, SIZE) == expected
    assert other.call("cuIpcCloseMemHandle", there) == SUCCESS
    assert other.call("cuEventDestroy_v2", theirs) == SUCCESS


def test_the_host_waits_for_another_process(client, other):
    event = client.event(INTERPROCESS)
    _, theirs = other.open_event(share_event(client, event))
    assert other.call("cuEventQuery", theirs) == SUCCESS  # the event was never recorded
    stream = client.stream()
    memory = client.device(SIZE)
    for _ in range(5):
        client.ok("cuMemsetD8Async", memory, 5, SIZE, stream)
        client.ok("cuEventRecord", event, stream)
        # No call of this process makes the work run: the other process has to wait for it.
        assert other.call("cuEventSynchronize", theirs) == SUCCESS
        assert other.call("cuEventQuery", theirs) == SUCCESS
    away = other.stream()
    other.call("cuEventRecord", theirs, away)
    assert poll(lambda: client.call("cuEventQuery", event)) == SUCCESS


def test_a_wait_is_for_the_record_at_its_time(client, other):
    event = client.event(INTERPROCESS)
    _, theirs = other.open_event(share_event(client, event))
    first, second, gate = client.stream(), client.stream(), client.gate()
    client.ok("cuEventRecord", event, first)
    away = other.stream()
    assert other.call("cuStreamWaitEvent", away, theirs, 0) == SUCCESS
    gate.hold(second)
    client.ok("cuEventRecord", event, second)
    assert other.call("cuStreamSynchronize", away) == SUCCESS
    assert other.call("cuEventQuery", theirs) == NOT_READY
    gate.open()
    assert other.call("cuEventSynchronize", theirs) == SUCCESS


@pytest.mark.parametrize("known", ["by a stream", "by the host"])
def test_order_through_another_process_after_many_records(client, other, known):
    """The race detector keeps the order, however many streams record interprocess events.

    The first fill is complete, but the host does not know that. So only the wait for the other
    process orders the last fill after it.
    """
    if client.lib.software:
        client.lib.configure("races=record")
        client.lib.forget_races()
    event, more = client.event(INTERPROCESS), [client.event(INTERPROCESS) for _ in range(3)]
    _, theirs = other.open_event(share_event(client, event))
    first, last = client.stream(), client.stream()
    memory = client.device(SIZE)
    client.ok("cuMemsetD8Async", memory, 1, SIZE, first)
    client.ok("cuEventRecord", event, first)
    assert other.call("cuEventSynchronize", theirs) == SUCCESS
    for each in more:
        for _ in range(100):
            client.ok("cuEventRecord", each, client.stream())
    away = other.stream()
    assert other.call("cuStreamWaitEvent", away, theirs, 0) == SUCCESS
    assert other.call("cuEventRecord", theirs, away) == SUCCESS
    if known == "by a stream":
        client.ok("cuStreamWaitEvent", last, event, 0)
    else:
        assert poll(lambda: client.call("cuEventQuery", event)) == SUCCESS
    client.ok("cuMemsetD8Async", memory, 2, SIZE, last)
    client.ok("cuStreamSynchronize", last)
    assert client.read(memory, SIZE) == bytes([2]) * SIZE
    if client.lib.software:
        assert client.lib.races() == []


def test_events_that_cannot_be_opened(client, other):
    handle = (ctypes.c_ubyte * 64)()
    plain = client.event(DISABLE_TIMING)
    assert client.call("cuIpcGetEventHandle", handle, plain) == INVALID_HANDLE
    event = client.event(INTERPROCESS)
    handle = share_event(client, event)
    assert other.open_event(bytes(64))[0] == MAP_FAILED
    memory = client.device(SIZE)
    assert other.open_event(share(client, memory))[0] == MAP_FAILED
    opened = ctypes.c_void_p()
    mine = SharedHandle.from_buffer_copy(handle)
    assert client.call("cuIpcOpenEventHandle", ctypes.byref(opened), mine) == INVALID_CONTEXT
    client.ok("cuEventDestroy_v2", event)
    client.forget("cuEventDestroy_v2", event)
    # A real driver opens an event that was already destroyed.
    wanted = INVALID_VALUE if client.lib.software else SUCCESS
    assert other.open_event(handle)[0] == wanted


def test_unfinished_records_of_a_process_that_dies(client, other):
    """A record of a process that has died stays unfinished: streams wait for it without end."""
    event = client.event(INTERPROCESS)
    _, theirs = other.open_event(share_event(client, event))
    away = other.stream()
    _, word = other.ask("made(ctypes.c_void_p, 'cuMemHostAlloc', 4, 0)")
    other.ask(f"ctypes.memset({word}, 0, 4)")
    assert other.call("cuStreamWaitValue32_v2", away, word, 1, 0) == SUCCESS
    assert other.call("cuEventRecord", theirs, away) == SUCCESS
    # A process with a blocked stream can hardly do anything else, so use a third process.
    stuck = Other(client.lib)
    _, its = stuck.open_event(share_event(client, event))
    stream = stuck.stream()
    assert stuck.call("cuStreamWaitEvent", stream, its, 0) == SUCCESS
    other.process.kill()
    other.process.wait()
    time.sleep(0.1)
    assert client.call("cuEventQuery", event) == NOT_READY
    assert stuck.call("cuStreamQuery", stream) == NOT_READY
    stuck.end()


# ---- pools ----


def hand_over(other, importer, descriptor, path):
    """Send a descriptor to the other process, which calls the importer."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        other.send(f"{importer}({str(path)!r})")
        with server.accept()[0] as connection:
            rights = array.array("i", [descriptor])
            connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            return other.answer()


def share_pool(client, other, path, **changes):
    """Return a pool, and its handle in the other process."""
    properties = pool_properties(handleTypes=FILE_HANDLE, **changes)
    pool = client._make("cuMemPoolDestroy", ctypes.c_void_p, "cuMemPoolCreate", properties)
    descriptor = ctypes.c_int(-1)
    client.ok("cuMemPoolExportToShareableHandle", ctypes.byref(descriptor), pool, FILE_HANDLE, 0)
    status, imported = hand_over(other, "import_pool", descriptor.value, path)
    os.close(descriptor.value)
    assert status == SUCCESS
    return pool, imported


def test_a_pool_of_another_process(client, other, tmp_path):
    pool, imported = share_pool(client, other, tmp_path / "socket")
    stream = client.stream()
    memory = ctypes.c_uint64()
    client.ok("cuMemAllocFromPoolAsync", ctypes.byref(memory), SIZE, pool, stream)
    client.ok("cuMemsetD8Async", memory, 4, SIZE, stream)
    client.ok("cuStreamSynchronize", stream)
    data = (ctypes.c_ubyte * 64)()
    client.ok("cuMemPoolExportPointer", data, memory)
    status, there = other.import_pointer(imported, bytes(data))
    assert status == SUCCESS
    assert other.read(there, SIZE) == bytes([4]) * SIZE
    other.fill(there, 9, SIZE)
    assert client.read(memory.value, SIZE) == bytes([9]) * SIZE
    away = other.stream()
    allocated = f"made(ctypes.c_uint64, 'cuMemAllocFromPoolAsync', 100, {imported}, {away})"
    assert other.ask(allocated)[0] == INVALID_VALUE
    assert other.call("cuMemFreeAsync", there, away) == SUCCESS
    assert other.call("cuStreamSynchronize", away) == SUCCESS
    client.ok("cuMemFreeAsync", memory, stream)
    client.ok("cuStreamSynchronize", stream)
    if client.lib.software:  # real drivers detect neither freed memory nor damaged bytes
        assert other.import_pointer(imported, bytes(data))[0] == INVALID_VALUE
        damaged = bytearray(data)
        damaged[24] ^= 1
        assert other.import_pointer(imported, bytes(damaged))[0] == INVALID_VALUE
    assert other.call("cuMemPoolDestroy", imported) == SUCCESS
    ordinary, descriptor = ctypes.c_void_p(), ctypes.c_int(-1)
    client.ok("cuDeviceGetDefaultMemPool", ctypes.byref(ordinary), 0)
    status = client.call(
        "cuMemPoolExportToShareableHandle", ctypes.byref(descriptor), ordinary, FILE_HANDLE, 0
    )
    assert status == INVALID_VALUE


def test_a_pointer_belongs_to_a_pool(client, other, tmp_path):
    pool, _ = share_pool(client, other, tmp_path / "one")
    _, second = share_pool(client, other, tmp_path / "two")
    stream, memory, data = client.stream(), ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
    client.ok("cuMemAllocFromPoolAsync", ctypes.byref(memory), SIZE, pool, stream)
    client.ok("cuStreamSynchronize", stream)
    client.ok("cuMemPoolExportPointer", data, memory)
    assert other.import_pointer(second, bytes(data))[0] == INVALID_VALUE
    client.ok("cuMemFreeAsync", memory, stream)
    client.ok("cuStreamSynchronize", stream)


@pytest.mark.cuda_software
def test_an_export_needs_no_context(client):
    """cuda.core exports in threads without a context."""
    properties = pool_properties(handleTypes=FILE_HANDLE)
    pool = client._make("cuMemPoolDestroy", ctypes.c_void_p, "cuMemPoolCreate", properties)
    stream, memory, data = client.stream(), ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
    client.ok("cuMemAllocFromPoolAsync", ctypes.byref(memory), SIZE, pool, stream)
    client.ok("cuCtxSetCurrent", None)
    assert client.call("cuMemPoolExportPointer", data, memory) == SUCCESS
    client.ok("cuCtxSetCurrent", client.lib.primary)
    client.ok("cuMemFreeAsync", memory, stream)
    client.ok("cuStreamSynchronize", stream)


def test_a_pool_of_host_memory_of_another_process(client, other, tmp_path):
    """Host code of both processes accesses the memory, after waits for the GPU's work."""
    node = Location(NUMA_LOCATION, 0)
    pool, imported = share_pool(client, other, tmp_path / "socket", location=node)
    access = Access(Location(DEVICE_LOCATION, 0), READWRITE)
    client.ok("cuMemPoolSetAccess", pool, ctypes.byref(access), 1)
    stream, source = client.stream(), client.device(SIZE)
    fill(client, source, 4, SIZE)
    memory, data = [], []
    for _ in range(2):
        address = ctypes.c_uint64()
        client.ok("cuMemAllocFromPoolAsync", ctypes.byref(address), SIZE, pool, stream)
        client.ok("cuStreamSynchronize", stream)
        memory.append(address.value)
        exported = (ctypes.c_ubyte * 64)()
        client.ok("cuMemPoolExportPointer", exported, address)
        data.append(bytes(exported))
    ctypes.memset(memory[1], 1, SIZE)
    client.ok("cuMemcpyAsync", memory[0], source, SIZE, stream)
    client.ok("cuStreamSynchronize", stream)
    there = [other.import_pointer(imported, each) for each in data]
    assert [status for status, _ in there] == [SUCCESS, SUCCESS]
    for (_, address), value in zip(there, (4, 1), strict=True):
        assert other.ask(f"ctypes.string_at({address}, {SIZE})") == bytes([value]) * SIZE
    other.ask(f"ctypes.memset({there[0][1]}, 9, {SIZE - 1})")
    assert ctypes.string_at(memory[0], SIZE) == bytes([9]) * (SIZE - 1) + bytes([4])
    client.ok("cuMemcpyAsync", source, memory[0], SIZE, stream)
    client.ok("cuStreamSynchronize", stream)
    assert client.read(source, 4) == bytes([9]) * 4
    away = other.stream()
    for _, address in there:
        assert other.call("cuMemFreeAsync", address, away) == SUCCESS
    assert other.call("cuStreamSynchronize", away) == SUCCESS
    for address in memory:
        client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)
    if client.lib.software:  # real drivers do not detect freed memory
        assert other.import_pointer(imported, data[0])[0] == INVALID_VALUE
    assert other.call("cuMemPoolDestroy", imported) == SUCCESS


# ---- memory that is mapped to reserved addresses ----


class Made:
    """Memory of cuMemCreate, which is mapped to reserved addresses."""

    def __init__(self, client, handle_types=FILE_HANDLE):
        self.client = client
        wanted = MemoryProperties(1, handle_types, Location(DEVICE_LOCATION, 0))
        handle = ctypes.c_uint64()
        client.ok("cuMemCreate", ctypes.byref(handle), GRANULE, ctypes.byref(wanted), 0)
        self.handle = handle.value
        self.addresses = []

    def map(self, handle=None):
        address = ctypes.c_uint64()
        self.client.ok("cuMemAddressReserve", ctypes.byref(address), GRANULE, 0, 0, 0)
        self.client.ok("cuMemMap", address, GRANULE, 0, handle or self.handle, 0)
        access = Access(Location(DEVICE_LOCATION, 0), READWRITE)
        self.client.ok("cuMemSetAccess", address, GRANULE, ctypes.byref(access), 1)
        self.addresses.append(address.value)
        return address.value

    def export(self, kind=FILE_HANDLE, flags=0):
        descriptor = ctypes.c_int(-1)
        found = ctypes.byref(descriptor)
        status = self.client.call("cuMemExportToShareableHandle", found, self.handle, kind, flags)
        return status, descriptor.value

    def unmap(self, address):
        self.addresses.remove(address)
        self.client.ok("cuMemUnmap", address, GRANULE)
        self.client.ok("cuMemAddressFree", address, GRANULE)

    def release(self):
        self.client.ok("cuMemRelease", self.handle)
        self.handle = None

    def close(self):
        for address in list(self.addresses):
            self.unmap(address)
        if self.handle:
            self.release()


@pytest.fixture
def made(client):
    made = Made(client)
    yield made
    made.close()


def import_here(client, descriptor, kind=FILE_HANDLE):
    handle = ctypes.c_uint64()
    found = ctypes.byref(handle)
    status = client.call("cuMemImportFromShareableHandle", found, descriptor, kind)
    return status, handle.value


def test_devices_share_memory_by_descriptors(client):
    supported = ctypes.c_int()
    client.ok("cuDeviceGetAttribute", ctypes.byref(supported), 103, 0)
    assert supported.value == 1


def test_mapped_memory_of_another_process(client, other, made, tmp_path):
    address = made.map()
    fill(client, address, 7, GRANULE)
    status, descriptor = made.export()
    assert status == SUCCESS
    status, handle = hand_over(other, "import_memory", descriptor, tmp_path / "socket")
    os.close(descriptor)  # the other process has its own descriptor
    assert status == SUCCESS
    there = other.map_memory(handle, GRANULE)
    assert other.read(there + GRANULE - 9, 9) == bytes([7]) * 9
    other.fill(there + 1, 9, 10)
    assert client.read(address, 12) == bytes([7]) + bytes([9]) * 10 + bytes([7])
    # The memory exists until each process has unmapped and released it.
    made.unmap(address)
    made.release()
    assert other.call("cuMemRelease", handle) == SUCCESS
    assert other.read(there, 12) == bytes([7]) + bytes([9]) * 10 + bytes([7])
    assert other.call("cuMemUnmap", there, GRANULE) == SUCCESS
    assert other.call("cuMemAddressFree", there, GRANULE) == SUCCESS


def test_memory_that_a_process_imports_from_itself(client, made):
    address = made.map()
    fill(client, address, 5, 64)
    status, descriptor = made.export()
    assert status == SUCCESS
    status, handle = import_here(client, descriptor)
    os.close(descriptor)
    assert status == SUCCESS
    again = made.map(handle)
    assert again != address
    assert client.read(again, 64) == bytes([5]) * 64
    fill(client, again, 6, 64)
    assert client.read(address, 64) == bytes([6]) * 64
    kept = MemoryProperties()
    client.ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(kept), handle)
    assert (kept.type, kept.location.type, kept.location.id) == (1, DEVICE_LOCATION, 0)
    # On a GPU, an import makes a new handle, which cannot be exported. The software driver returns
    # the handle that it already has.
    assert kept.handleTypes == (FILE_HANDLE if client.lib.software else 0)
    made.unmap(address)
    made.release()
    client.ok("cuMemRelease", handle)
    assert client.read(again, 64) == bytes([6]) * 64


def test_each_export_is_a_new_descriptor(made):
    first, second = made.export(), made.export()
    assert first[0] == second[0] == SUCCESS
    assert first[1] != second[1]
    for _, descriptor in (first, second):
        os.close(descriptor)


def test_what_cannot_be_exported(client, made):
    assert made.export(flags=1)[0] == INVALID_VALUE
    assert made.export(kind=0)[0] == INVALID_VALUE
    assert client.call("cuMemExportToShareableHandle", None, made.handle, 1, 0) == INVALID_VALUE
    private = Made(client, handle_types=0)
    assert private.export()[0] == INVALID_VALUE
    private.close()


@pytest.mark.cuda_software
def test_what_cannot_be_imported(client, made, tmp_path):
    """A wrong file is an error in the software driver. Real drivers do not promise an error."""
    assert import_here(client, -1)[0] == INVALID_VALUE
    (tmp_path / "file").write_bytes(bytes(100))
    with (tmp_path / "file").open("rb") as file:
        assert import_here(client, file.fileno())[0] == INVALID_VALUE
    pool = client._make(
        "cuMemPoolDestroy",
        ctypes.c_void_p,
        "cuMemPoolCreate",
        pool_properties(handleTypes=FILE_HANDLE),
    )
    descriptor = ctypes.c_int(-1)
    client.ok("cuMemPoolExportToShareableHandle", ctypes.byref(descriptor), pool, FILE_HANDLE, 0)
    assert import_here(client, descriptor.value)[0] == INVALID_VALUE
    os.close(descriptor.value)
    _, descriptor = made.export()
    assert import_here(client, descriptor, kind=8)[0] == INVALID_VALUE
    os.close(descriptor)


@pytest.mark.cuda_software
def test_imported_memory_counts_in_the_process_that_made_it(client, other, made, tmp_path):
    before = other.ask("made(ctypes.c_size_t, 'cuMemGetInfo_v2', None)")
    _, descriptor = made.export()
    status, handle = hand_over(other, "import_memory", descriptor, tmp_path / "socket")
    os.close(descriptor)
    assert status == SUCCESS
    assert other.ask("made(ctypes.c_size_t, 'cuMemGetInfo_v2', None)") == before
    assert other.call("cuMemRelease", handle) == SUCCESS
