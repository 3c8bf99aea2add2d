"""Memory, events and pools of another process: which handles can be opened, and until when."""

import array
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from driver import OUT, AllocationProperties, PoolProperties
from section import Section

section = Section("sharing")
question = section.question
LAZY_PEER_ACCESS, FILE_HANDLE, INTERPROCESS = 1, 1, 6
DEVICE, NODE, READWRITE = 1, 3, 3
GRANULE = 2 << 20
SIZE = 10_000


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


# The program of the other process. It evaluates each line of its input, and prints the value.
OTHER = """
import ctypes, os, socket, sys, array
sys.path.insert(0, {folder!r})
from driver import Library, OUT
from client import Client
from ask_sharing import Handle
from driver import Access
p = Client(Library({path!r}), 0.1)
p.start()
def opened(data, flags=1):
    return p.get("cuIpcOpenMemHandle_v2", OUT, Handle.from_buffer_copy(data), flags)
def event(data):
    return p.get("cuIpcOpenEventHandle", OUT, Handle.from_buffer_copy(data))
def pool(path, kind=1):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
    number = array.array("i", ancillary[0][2])[0]
    found = p.get("cuMemPoolImportFromShareableHandle", OUT, number, kind, 0)
    os.close(number)
    return found
def pointer(pool, data):
    return p.get("cuMemPoolImportPointer", OUT, pool, ctypes.byref(Handle.from_buffer_copy(data)))
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Other:
    """Another process. All questions in this process use the same one until it dies."""

    one = None

    def __init__(self, p):
        folder = str(Path(__file__).resolve().parent)
        code = OTHER.format(folder=folder, path=p.library._lib._name)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, expression):
        self.send(expression)
        return self.answer()

    def send(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        return eval(line) if line else f"ended with {self.process.wait()}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        Other.one = None


def other(p):
    if Other.one is None or Other.one.process.poll() is not None:
        Other.one = Other(p)
    return Other.one


def status(found):
    """Returns a status as it is, and SUCCESS for an address."""
    return found if isinstance(found, str) else "SUCCESS"


def shared(p, address):
    handle = Handle()
    p.must("cuIpcGetMemHandle", ctypes.byref(handle), address)
    return bytes(handle)


def shared_event(p, event):
    handle = Handle()
    p.must("cuIpcGetEventHandle", ctypes.byref(handle), event)
    return bytes(handle)


def damaged(data, index, mask=0x40):
    changed = bytearray(data)
    changed[index] ^= mask
    return bytes(changed)


def _open(p, data, flags=1):
    there = other(p)
    found = there.ask(f"opened({data!r}, {flags})")
    if not isinstance(found, str):
        there.ask(f"p('cuIpcCloseMemHandle', {found})")
    return status(found)


@question("memory: opened")
def _(p):
    return _open(p, shared(p, p.device(SIZE)))


@question("memory: each byte damaged")
def _(p):
    handle = shared(p, p.device(SIZE))
    return [f"{index}: {_open(p, damaged(handle, index))}" for index in range(64)]


@question("memory: a handle of zeros")
def _(p):
    return _open(p, bytes(64))


@question("memory: a handle of ones")
def _(p):
    return _open(p, bytes([255]) * 64)


@question("memory: flags 0 and 2")
def _(p):
    handle = shared(p, p.device(SIZE))
    return [_open(p, handle, flags) for flags in (0, 2)]


@question("memory: by its own process")
def _(p):
    given = Handle.from_buffer_copy(shared(p, p.device(SIZE)))
    return p("cuIpcOpenMemHandle_v2", p.cell(), given, LAZY_PEER_ACCESS)


@question("memory: a handle of freed memory")
def _(p):
    memory = p.device(SIZE)
    handle = shared(p, memory)
    p.release(memory)
    return _open(p, handle)


@question("memory: a handle of freed memory of 64 MiB")
def _(p):
    memory = p.device(64 << 20)
    handle = shared(p, memory)
    p.release(memory)
    return _open(p, handle)


@question("memory: a stale handle after a new allocation")
def _(p):
    memory = p.device(64 << 20)
    handle = shared(p, memory)
    p.release(memory)
    again = p.device(64 << 20)
    return shared(p, again) == handle, _open(p, handle)


@question("memory: handles of two addresses of it")
def _(p):
    memory = p.device(SIZE)
    return shared(p, memory) == shared(p, memory + 1000)


@question("memory: opened twice, freed, closed")
def _(p):
    there = other(p)
    handle = shared(p, p.device(SIZE))
    one, two = there.ask(f"opened({handle!r})"), there.ask(f"opened({handle!r})")
    return one == two, [
        there.ask(f"p('{name}', {one})")
        for name in (
            "cuIpcCloseMemHandle",
            "cuMemFree_v2",
            "cuIpcCloseMemHandle",
            "cuIpcCloseMemHandle",
        )
    ]


for _name, _make in {
    "host": lambda p: p.host(SIZE),
    "managed": lambda p: p.managed(SIZE),
    "ordered": lambda p: p.ordered(SIZE),
    "nothing": lambda p: 64,
    "null": lambda p: 0,
}.items():

    @question(f"memory: a handle of {_name}")
    def _(p, make=_make):
        return p("cuIpcGetMemHandle", ctypes.byref(Handle()), make(p))


@question("memory: a handle of opened memory")
def _(p):
    there = other(p)
    found = there.ask(f"opened({shared(p, p.device(SIZE))!r})")
    said = there.ask(f"p('cuIpcGetMemHandle', ctypes.byref(Handle()), {found})")
    there.ask(f"p('cuIpcCloseMemHandle', {found})")
    return said


@question("memory: closing what was not opened")
def _(p):
    return p("cuIpcCloseMemHandle", p.device(SIZE)), p("cuIpcCloseMemHandle", 64)


@question("memory: a handle to null")
def _(p):
    return p("cuIpcGetMemHandle", 0, p.device(SIZE))


@question("memory: freed before it is closed")
def _(p):
    there, memory = other(p), p.device(SIZE)
    p.write(memory, b"\x07" * SIZE)
    found = there.ask(f"opened({shared(p, memory)!r})")
    p.release(memory)
    return there.ask(f"p.read({found}, 4)"), there.ask(f"p('cuIpcCloseMemHandle', {found})")


@question("memory: of a process that is dead", alone=True)
def _(p):
    there = other(p)
    memory = there.ask("p.device(10_000)")
    handle = there.ask(
        f"[h := Handle(), p('cuIpcGetMemHandle', ctypes.byref(h), {memory}), bytes(h)][2]"
    )
    given = Handle.from_buffer_copy(handle)
    here = p.need("cuIpcOpenMemHandle_v2", OUT, given, LAZY_PEER_ACCESS)
    there.kill()
    read = status(p.get("cuMemcpyDtoH_v2", ctypes.create_string_buffer(64), here, 64))
    closed = p("cuIpcCloseMemHandle", here)
    again = [p("cuIpcOpenMemHandle_v2", p.cell(), given, LAZY_PEER_ACCESS) for _ in range(2)]
    return read, closed, again


@question("memory: of a process that is dead, never opened", alone=True)
def _(p):
    there = other(p)
    memory = there.ask("p.device(10_000)")
    handle = there.ask(
        f"[h := Handle(), p('cuIpcGetMemHandle', ctypes.byref(h), {memory}), bytes(h)][2]"
    )
    there.kill()
    return p("cuIpcOpenMemHandle_v2", p.cell(), Handle.from_buffer_copy(handle), LAZY_PEER_ACCESS)


@question("event: opened")
def _(p):
    return status(other(p).ask(f"event({shared_event(p, p.event(INTERPROCESS))!r})"))


@question("event: each byte damaged")
def _(p):
    handle = shared_event(p, p.event(INTERPROCESS))
    return [f"{i}: {status(other(p).ask(f'event({damaged(handle, i)!r})'))}" for i in range(64)]


@question("event: a handle of zeros")
def _(p):
    return status(other(p).ask(f"event({bytes(64)!r})"))


@question("event: a handle of memory")
def _(p):
    return status(other(p).ask(f"event({shared(p, p.device(SIZE))!r})"))


@question("event: a handle of one that is not shared")
def _(p):
    return [p("cuIpcGetEventHandle", ctypes.byref(Handle()), p.event(flags)) for flags in (0, 2)]


@question("event: made with timing")
def _(p):
    return p.tried("cuEventCreate", p.cell(), 4)


@question("event: by its own process")
def _(p):
    handle = Handle.from_buffer_copy(shared_event(p, p.event(INTERPROCESS)))
    return p("cuIpcOpenEventHandle", p.cell(), handle)


@question("event: a handle of one that is gone")
def _(p):
    event = p.event(INTERPROCESS)
    handle = shared_event(p, event)
    p.release(event)
    return status(other(p).ask(f"event({handle!r})"))


@question("event: of a process that is dead", alone=True)
def _(p):
    there = other(p)
    handle = there.ask(
        "[h := Handle(), p('cuIpcGetEventHandle', ctypes.byref(h), p.event(6)), bytes(h)][2]"
    )
    given = Handle.from_buffer_copy(handle)
    event = p.get("cuIpcOpenEventHandle", OUT, given)
    there.kill()
    if isinstance(event, str):
        return event
    found = [p("cuEventQuery", event), p("cuEventRecord", event, 0), p("cuCtxSynchronize")]
    return found, p("cuEventQuery", event), p("cuIpcOpenEventHandle", p.cell(), given)


@question("event: opened twice")
def _(p):
    handle = shared_event(p, p.event(INTERPROCESS))
    one, two = (other(p).ask(f"event({handle!r})") for _ in range(2))
    return status(one), status(two), one == two


def _pool(p, handles=FILE_HANDLE):
    properties = p.keep(PoolProperties(1, handles, 1, 0))
    return p.make("cuMemPoolDestroy", "cuMemPoolCreate", OUT, ctypes.byref(properties))


def _exported(p, pool):
    number = ctypes.c_int(-1)
    p.must("cuMemPoolExportToShareableHandle", ctypes.byref(number), pool, FILE_HANDLE, 0)
    return number.value


def _imported(p, number):
    """Sends a file descriptor to the other process. Returns the result of its import."""
    path = f"{tempfile.gettempdir()}/probe-{os.getpid()}-{number}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        other(p).send(f"pool({path!r})")
        with server.accept()[0] as connection:
            rights = array.array("i", [number])
            connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            found = other(p).answer()
    Path(path).unlink()
    return found


class PoolScene:
    """A pool that the other process has imported, with an allocation and its exported pointer."""

    def __init__(self, p):
        self.pool = _pool(p)
        self.there = _imported(p, _exported(p, self.pool))
        self.stream = p.stream()
        self.memory = p.need("cuMemAllocFromPoolAsync", OUT, SIZE, self.pool, self.stream)
        p.must("cuMemsetD8Async", self.memory, 4, SIZE, self.stream)
        p.must("cuStreamSynchronize", self.stream)
        data = Handle()
        p.must("cuMemPoolExportPointer", ctypes.byref(data), self.memory)
        self.data = bytes(data)

    def free(self, p):
        p("cuMemFreeAsync", self.memory, self.stream)
        p("cuStreamSynchronize", self.stream)


@question("pool: imported")
def _(p):
    return status(PoolScene(p).there)


@question("pool: pointer imported, read, freed")
def _(p):
    s, there = PoolScene(p), other(p)
    found = there.ask(f"pointer({s.there}, {s.data!r})")
    said = [
        status(found),
        there.ask(f"p.read({found}, 4)"),
        there.ask("p.stream()") and there.ask(f"p('cuMemFree_v2', {found})"),
    ]
    s.free(p)
    return said


@question("pool: pointer imported twice")
def _(p):
    s, there = PoolScene(p), other(p)
    one, two = (there.ask(f"pointer({s.there}, {s.data!r})") for _ in range(2))
    found = status(one), status(two), one == two
    for each in (one, two):
        if not isinstance(each, str):
            there.ask(f"p('cuMemFree_v2', {each})")
    s.free(p)
    return found


@question("pool: pointer of freed memory, imported before")
def _(p):
    s, there = PoolScene(p), other(p)
    found = there.ask(f"pointer({s.there}, {s.data!r})")
    there.ask(f"p('cuMemFree_v2', {found})")
    s.free(p)
    again = there.ask(f"pointer({s.there}, {s.data!r})")
    return status(again), isinstance(again, str) or there.ask(f"p.read({again}, 4)")


@question("pool: pointer of freed memory, not imported before")
def _(p):
    s = PoolScene(p)
    s.free(p)
    return status(other(p).ask(f"pointer({s.there}, {s.data!r})"))


@question("pool: pointer, each byte damaged", alone=True)
def _(p):
    s, found = PoolScene(p), []
    for index in range(64):
        said = other(p).ask(f"pointer({s.there}, {damaged(s.data, index, 1)!r})")
        found.append(f"{index}: {status(said)}")
    return found


@question("pool: pointer of zeros")
def _(p):
    return status(other(p).ask(f"pointer({PoolScene(p).there}, {bytes(64)!r})"))


@question("pool: pointer for another pool")
def _(p):
    s, another = PoolScene(p), PoolScene(p)
    return status(other(p).ask(f"pointer({another.there}, {s.data!r})"))


@question("pool: pointer by its own process")
def _(p):
    s = PoolScene(p)
    return p(
        "cuMemPoolImportPointer", p.cell(), s.pool, ctypes.byref(Handle.from_buffer_copy(s.data))
    )


@question("pool: imported by its own process")
def _(p):
    pool = _pool(p)
    number = _exported(p, pool)
    return status(p.get("cuMemPoolImportFromShareableHandle", OUT, number, FILE_HANDLE, 0))


@question("pool: allocating from an imported one")
def _(p):
    s = PoolScene(p)
    expression = f"p.get('cuMemAllocFromPoolAsync', OUT, 100, {s.there}, p.stream())"
    return status(other(p).ask(expression))


@question("pool: uses of an imported one")
def _(p):
    s = PoolScene(p)
    return [
        other(p).ask(f"p('{name}', {arguments})")
        for name, arguments in (
            ("cuMemPoolTrimTo", f"{s.there}, 0"),
            ("cuMemPoolGetAttribute", f"{s.there}, 4, p.cell()"),
            ("cuMemPoolExportToShareableHandle", f"p.cell(), {s.there}, 1, 0"),
            ("cuMemPoolDestroy", f"{s.there}"),
        )
    ]


@question("pool: exporting the default one")
def _(p):
    default = p.need("cuDeviceGetDefaultMemPool", OUT, 0)
    return p("cuMemPoolExportToShareableHandle", p.cell(), default, FILE_HANDLE, 0)


@question("pool: exporting one without handles")
def _(p):
    return p("cuMemPoolExportToShareableHandle", p.cell(), _pool(p, 0), FILE_HANDLE, 0)


@question("pool: exporting as another kind, with flags")
def _(p):
    pool = _pool(p)
    return [
        p("cuMemPoolExportToShareableHandle", p.cell(), pool, kind, flags)
        for kind, flags in ((2, 0), (8, 0), (0, 0), (1, 1))
    ]


@question("pool: exporting a pointer of another pool")
def _(p):
    return p("cuMemPoolExportPointer", ctypes.byref(Handle()), p.ordered(SIZE))


@question("pool: exporting a pointer of other memory")
def _(p):
    return p("cuMemPoolExportPointer", ctypes.byref(Handle()), p.device(SIZE))


@question("pool: importing from a closed descriptor")
def _(p):
    return status(p.get("cuMemPoolImportFromShareableHandle", OUT, 987, FILE_HANDLE, 0))


@question("pool: importing from another file")
def _(p):
    number = os.open("/dev/null", os.O_RDONLY)
    found = status(p.get("cuMemPoolImportFromShareableHandle", OUT, number, FILE_HANDLE, 0))
    os.close(number)
    return found


@question("pool: exporting a pointer with no context current")
def _(p):
    s = PoolScene(p)
    p("cuCtxSetCurrent", 0)
    return p("cuMemPoolExportPointer", ctypes.byref(Handle()), s.memory)


@question("pool: importing a pointer with no context current")
def _(p):
    s, there = PoolScene(p), other(p)
    there.ask("p('cuCtxSetCurrent', 0)")
    found = status(there.ask(f"pointer({s.there}, {s.data!r})"))
    there.ask("p('cuCtxSetCurrent', p.primary)")
    return found


class NodeScene:
    """Like PoolScene, but with a NUMA node's memory, which host code of both processes accesses."""

    def __init__(self, p):
        properties = p.keep(PoolProperties(1, FILE_HANDLE, NODE, 0))
        self.pool = p.make("cuMemPoolDestroy", "cuMemPoolCreate", OUT, ctypes.byref(properties))
        self.there = _imported(p, _exported(p, self.pool))
        self.stream = p.stream()
        self.memory = p.need("cuMemAllocFromPoolAsync", OUT, SIZE, self.pool, self.stream)
        p.must("cuStreamSynchronize", self.stream)
        ctypes.memset(self.memory, 4, SIZE)
        data = Handle()
        p.must("cuMemPoolExportPointer", ctypes.byref(data), self.memory)
        self.found = other(p).ask(f"pointer({self.there}, {bytes(data)!r})")


@question("pool of a node: imported, read by the host")
def _(p):
    s = NodeScene(p)
    return status(s.there), status(s.found), other(p).ask(f"ctypes.string_at({s.found}, 2)")


@question("pool of a node: an imported one is for the device, its memory's attributes")
def _(p):
    s, there = NodeScene(p), other(p)
    place = f"p.keep(Access({DEVICE}, 0, {READWRITE}))"
    return [
        there.ask(f"p.get('cuMemPoolGetAccess', OUT, {s.there}, ctypes.byref({place}))"),
        there.ask(f"p('cuMemPoolSetAccess', {s.there}, ctypes.byref({place}), 1)"),
        there.ask(f"p.get('cuPointerGetAttribute', OUT, 2, {s.found})"),
        there.ask(f"p('cuMemGetAddressRange_v2', p.cell(), p.cell(), {s.found})"),
    ]


def _made(p, handles=FILE_HANDLE):
    wanted = p.keep(AllocationProperties(1, handles, DEVICE, 0))
    return p.make("cuMemRelease", "cuMemCreate", OUT, GRANULE, ctypes.byref(wanted), 0)


def _descriptor(p, handle, kind=FILE_HANDLE, flags=0):
    number = ctypes.c_int(-1)
    said = p("cuMemExportToShareableHandle", ctypes.byref(number), handle, kind, flags)
    return said if said != "SUCCESS" else number.value


@question("mapped memory: exported, imported by its own process")
def _(p):
    handle = _made(p)
    numbers = [_descriptor(p, handle) for _ in range(2)]
    found = p.get("cuMemImportFromShareableHandle", OUT, numbers[0], FILE_HANDLE)
    return numbers[0] != numbers[1], status(found), found == handle, p("cuMemRelease", found)


@question("mapped memory: exporting without handle types")
def _(p):
    return status(_descriptor(p, _made(p, 0)))


@question("mapped memory: exporting as another kind, with flags, of null")
def _(p):
    handle = _made(p)
    found = [_descriptor(p, handle, kind, flags) for kind, flags in ((0, 0), (2, 0), (1, 1))]
    return [*map(status, found), status(_descriptor(p, 0))]


@question("mapped memory: exporting what was released and is mapped")
def _(p):
    handle = p.need(
        "cuMemCreate",
        OUT,
        GRANULE,
        ctypes.byref(p.keep(AllocationProperties(1, FILE_HANDLE, DEVICE, 0))),
        0,
    )
    address = p.need("cuMemAddressReserve", OUT, GRANULE, 0, 0, 0)
    p.must("cuMemMap", address, GRANULE, 0, handle, 0)
    p.must("cuMemRelease", handle)
    found = status(_descriptor(p, handle))
    p("cuMemUnmap", address, GRANULE)
    p("cuMemAddressFree", address, GRANULE)
    return found


@question("mapped memory: importing from a closed descriptor")
def _(p):
    return status(p.get("cuMemImportFromShareableHandle", OUT, 987, FILE_HANDLE))


@question("mapped memory: importing from another file")
def _(p):
    number = os.open("/dev/null", os.O_RDONLY)
    found = status(p.get("cuMemImportFromShareableHandle", OUT, number, FILE_HANDLE))
    os.close(number)
    return found


@question("mapped memory: importing from a pool, as another kind")
def _(p):
    number = _exported(p, _pool(p))
    mapped = _descriptor(p, _made(p))
    return [
        status(p.get("cuMemImportFromShareableHandle", OUT, *pair))
        for pair in ((number, FILE_HANDLE), (mapped, 0), (mapped, 2))
    ]


@question("pool: importing from mapped memory")
def _(p):
    number = _descriptor(p, _made(p))
    return status(p.get("cuMemPoolImportFromShareableHandle", OUT, number, FILE_HANDLE, 0))
