"""A client of the driver names its own work and memory in reports of data races."""

import ctypes
import threading

import pytest

from .client import LEGACY
from .race_program import SIZE

pytestmark = pytest.mark.cuda_software

LABEL = ctypes.POINTER(ctypes.c_ulonglong)
OPERATION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulonglong, LABEL)
DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int, LABEL, ctypes.c_void_p, ctypes.c_int)
DESCRIBE_MEMORY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulonglong, ctypes.c_void_p, ctypes.c_int)
LATER = -1


class Words(ctypes.Structure):
    _fields_ = [
        ("operation", OPERATION),
        ("describe_operation", DESCRIBE),
        ("describe_memory", DESCRIBE_MEMORY),
        ("describe_freed", DESCRIBE_MEMORY),
    ]


class Namer:
    """Numbers the operations on tagged streams. Describes an operation by tag and number."""

    def __init__(self):
        self.asked = 0
        self.only_thread = None
        self.memory, self.freed = {}, {}
        self.words = Words(
            OPERATION(self.operation),
            DESCRIBE(self.describe),
            DESCRIBE_MEMORY(self.name_memory),
            DESCRIBE_MEMORY(self.name_freed),
        )

    def operation(self, tag, label):
        self.asked += 1
        label[0], label[1] = tag, self.asked
        return tag != 99

    def write(self, text, address, size):
        if self.only_thread not in (None, threading.get_ident()):
            return LATER
        ctypes.memmove(address, text.encode()[:size], min(len(text), size))
        return min(len(text), size)

    def describe(self, label, address, size):
        return self.write(f"step {label[1]} of pipe {label[0]}", address, size)

    def name_memory(self, begin, address, size):
        return self.write(self.memory.get(begin, ""), address, size)

    def name_freed(self, begin, address, size):
        return self.write(self.freed.get(begin, ""), address, size)


@pytest.fixture
def namer(program, software):
    namer = Namer()
    software("cudadrvSoftSetWords", ctypes.byref(namer.words))
    yield namer
    software("cudadrvSoftSetWords", None)


@pytest.fixture
def tag(program, software):
    def tag(stream, number):
        context = ctypes.c_void_p(software.primary)
        return software("cudadrvSoftTagStream", context, ctypes.c_void_p(stream), number)

    return tag


def race(p, tag, tags=(5, 6)):
    a, b = p.streams()
    for stream, number in zip((a, b), tags, strict=True):
        if number:
            assert tag(stream, number) == 0
    x = p.device(SIZE)
    p.fill(x, a)
    p.fill(x, b)
    return x


def test_both_sides_and_the_memory_have_names(program, namer, tag):
    namer.memory = dict.fromkeys([x := program.device(SIZE)], "the frame")
    a, b = program.streams()
    tag(a, 5), tag(b, 6)
    program.fill(x, a)
    program.fill(x, b)
    [report] = program.lib.races()
    assert report.startswith(f"race on the frame (device memory {x:#x}, allocation ")
    assert ": step 2 of pipe 6 (cuMemsetD8Async), writes bytes 0 to 256, and " in report
    assert "step 1 of pipe 5 (cuMemsetD8Async), writes bytes 0 to 256: neither" in report


def test_freed_memory_is_asked_for_by_another_function(program, namer, tag):
    """Memory that is not freed must not get the name of what was at its address before."""
    x, y = program.device(SIZE), program.device(SIZE)
    namer.freed = {x: "the old frame", y: "another one"}
    a, b = program.streams()
    tag(a, 5), tag(b, 6)
    program.fill(x, a)
    program.ok("cuMemFree_v2", x)
    program.fill(y, a)
    program.fill(y, b)
    freed, live = program.lib.races()
    assert freed.startswith(f"race on the old frame (device memory {x:#x}, allocation ")
    assert live.startswith(f"race on device memory {y:#x} (allocation ")


@pytest.mark.parametrize("tags", [(5, 0), (5, 99)])
def test_what_the_client_does_not_know_is_named_by_its_function(program, namer, tag, tags):
    race(program, tag, tags)
    [report] = program.lib.races()
    assert "race on device memory 0x" in report
    assert "cuMemsetD8Async on stream 0x" in report.partition(", and ")[0]
    assert "step 1 of pipe 5 (cuMemsetD8Async), writes" in report.partition(", and ")[2]


def test_default_streams_have_tags(program, namer, tag):
    assert tag(LEGACY, 7) == 0
    x, a = program.device(SIZE), program.stream()
    program.fill(x, LEGACY)
    program.fill(x, a)
    assert "step 1 of pipe 7 (cuMemsetD8Async)" in program.lib.races()[0]
    tag(LEGACY, 0)


def test_different_operations_are_different_races(program, namer, tag):
    x = race(program, tag)
    c, d = program.streams()
    tag(c, 8), tag(d, 9)
    program.fill(x, c)
    program.fill(x, d)
    assert len(program.lib.races()) > 2


def test_another_thread_can_be_asked(program, namer, tag):
    """A race that another thread finds is described in the thread that knows the names."""
    namer.only_thread = threading.get_ident()
    thread = threading.Thread(target=in_its_context, args=(program, lambda: race(program, tag)))
    thread.start()
    thread.join()
    [report] = program.lib.races()
    assert "step 2 of pipe 6" in report


def in_its_context(program, function):
    program.ok("cuCtxSetCurrent", program.lib.primary)
    function()


def test_what_is_not_known_is_no_stream(program, tag):
    assert tag(0x1234, 5) == 400
    assert program.lib("cudadrvSoftTagStream", None, None, 5) == 201
