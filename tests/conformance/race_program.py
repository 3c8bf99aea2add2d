"""Short names for the calls of programs that race, or that have no race."""

import ctypes

from .client import GEQ, HOST_FUNCTION, Client

SIZE = 256
FILL, UPLOAD, DOWNLOAD, MOVE = (
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
)


class Program(Client):
    """A client with short names for the calls of these programs."""

    def fill(self, target, stream, size=SIZE):
        self.ok(FILL, target, 1, size, stream)

    def fill_rows(self, target, pitch, width, rows, stream):
        self.ok("cuMemsetD2D32Async", target, pitch, 1, width // 4, rows, stream)

    def upload(self, target, source, stream, size=SIZE):
        self.ok(UPLOAD, target, source, size, stream)

    def download(self, target, source, stream, size=SIZE):
        self.ok(DOWNLOAD, target, source, size, stream)

    def move(self, target, source, stream, size=SIZE):
        self.ok(MOVE, target, source, size, stream)

    def sync(self, stream):
        self.ok("cuStreamSynchronize", stream)

    def record(self, stream, event=None):
        event = event or self.event()
        self.ok("cuEventRecord", event, stream)
        return event

    def wait(self, stream, event):
        self.ok("cuStreamWaitEvent", stream, event, 0)

    def order(self, before, after):
        self.wait(after, self.record(before))

    def wait_value(self, stream, address, value=1):
        self.ok("cuStreamWaitValue32_v2", stream, address, value, GEQ)

    def write_value(self, stream, address, value=1):
        self.ok("cuStreamWriteValue32_v2", stream, address, value, 0)

    def host_function(self, stream, function):
        self.keep = [*getattr(self, "keep", []), HOST_FUNCTION(lambda _: function())]
        self.ok("cuLaunchHostFunc", stream, self.keep[-1], None)

    def allocate_async(self, stream, size=SIZE):
        address = ctypes.c_uint64()
        self.ok("cuMemAllocAsync", ctypes.byref(address), size, stream)
        return address.value

    def free(self, address):
        self.forget("cuMemFree_v2", address)
        self.ok("cuMemFree_v2", address)

    def streams(self, flags=1):
        return self.stream(flags), self.stream(flags)


def store(address, value=7, offset=0):
    ctypes.c_ubyte.from_address(address + offset).value = value


def discard(program, address, stream, size=SIZE):
    addresses, sizes = (ctypes.c_uint64 * 1)(address), (ctypes.c_size_t * 1)(size)
    count, flags = ctypes.c_size_t(1), ctypes.c_ulonglong(0)
    on = ctypes.c_void_p(stream)
    program.ok("cuMemDiscardBatchAsync", addresses, sizes, count, flags, on)


def allocate_managed(program, stream, size=SIZE):
    """Allocate managed memory on a stream, from the default managed pool of device 0."""
    pool, address = ctypes.c_void_p(), ctypes.c_uint64()
    place = ctypes.byref(ctypes.c_uint64(1))
    program.ok("cuMemGetDefaultMemPool", ctypes.byref(pool), place, 2)
    program.ok("cuMemAllocFromPoolAsync", ctypes.byref(address), size, pool, stream)
    return address.value


def check_silence(program, correct):
    """Check that the race detector reports nothing for a correct program."""
    correct(program)
    program.ok("cuCtxSynchronize")
    assert program.lib.races() == []


def check_report(program, plant):
    """Check that the planted race is reported, with the words that `plant` returns."""
    words = plant(program)
    program.ok("cuCtxSynchronize")
    found = program.lib.races()
    matching = [text for text in found if all(text.count(word) for word in words)]
    assert matching, found
    if words[0] == words[1]:
        assert matching[0].count(words[0]) == 2
