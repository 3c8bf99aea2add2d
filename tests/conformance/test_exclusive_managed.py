"""Devices without concurrent managed access: while they work, the host cannot use managed memory.

Each program runs in a process of its own, because a forbidden access of the host is a SIGSEGV.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

PRELUDE = """
import ctypes, sys, threading
sys.path.insert(0, {folder!r})
from conformance.client import HOST_FUNCTION, Client, Library
lib = Library({path!r})
lib.configure("concurrent_managed=0,schedule={schedule}")
lib.ok("cuInit", 0)
context = ctypes.c_void_p()
lib.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
lib.primary = context.value
client = Client(lib).__enter__()
stream, other = client.stream(), client.stream()
gate = client.gate()
GLOBAL, HOST, SINGLE = 1, 2, 4
def managed(flags=GLOBAL):
    address = ctypes.c_uint64()
    lib.ok("cuMemAllocManaged", ctypes.byref(address), 4096, flags)
    return address.value
def touch(address):
    data = ctypes.c_ubyte.from_address(address)
    data.value += 1
    return data.value
memory = managed()
touch(memory)
def work(on=stream):
    lib.ok("cuMemsetD8Async", client.device(64), 1, 64, on)
def end():
    print("end", flush=True)
    gate.open()
    lib.ok("cuCtxSynchronize")
    client.close()
"""


@pytest.fixture
def run(software, schedule):
    def run(body, dies=False):
        """Run a program, which must reach its `end()`.

        With `dies`, a memory access before `end()` must kill the program.
        """
        folder = str(Path(__file__).resolve().parent.parent)
        script = PRELUDE.format(folder=folder, path=software.path, schedule=schedule) + body
        process = subprocess.run(
            [sys.executable, "-X", "faulthandler=0", "-c", script + "\nend()\n"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if dies:
            assert process.returncode == -signal.SIGSEGV, process.stderr
            assert process.stdout == "before\n"
        else:
            assert process.returncode == 0, process.stderr
            assert process.stdout == "end\n"

    return run


def test_touch_while_a_device_works(run):
    run(
        """
gate.hold(stream)
print("before", flush=True)
touch(memory)
""",
        dies=True,
    )


def test_touch_after_submission(run):
    run(
        """
work()
print("before", flush=True)
touch(memory)
""",
        dies=True,
    )


def test_records_and_waits_are_no_work(run):
    run(
        """
event = client.event()
lib.ok("cuEventRecord", event, stream)
lib.ok("cuStreamWaitEvent", other, event, 0)
touch(memory)
"""
    )


@pytest.mark.parametrize(
    "wait",
    [
        'lib.ok("cuStreamSynchronize", stream)',
        'lib.ok("cuCtxSynchronize")',
        'lib.ok("cuEventSynchronize", event)',
        "client.finish(stream)",
    ],
)
def test_touch_after_synchronizing(run, wait):
    run(f"""
event = client.event()
work()
lib.ok("cuEventRecord", event, stream)
{wait}
touch(memory)
""")


def test_synchronizing_something_else_is_not_enough(run):
    run(
        """
gate.hold(stream)
work(other)
lib.ok("cuStreamSynchronize", other)
print("before", flush=True)
touch(memory)
""",
        dies=True,
    )


def test_memory_allocated_while_a_device_works(run):
    run(
        """
gate.hold(stream)
print("before", flush=True)
touch(managed())
""",
        dies=True,
    )


def test_memory_attached_to_the_host(run):
    run("""
mine = managed(HOST)
gate.hold(stream)
touch(mine)
""")


def test_memory_attached_to_one_stream(run):
    run("""
lib.ok("cuStreamAttachMemAsync", other, memory, 0, SINGLE)
lib.ok("cuStreamSynchronize", other)
gate.hold(stream)
touch(memory)
work(other)
lib.ok("cuStreamSynchronize", other)
touch(memory)
""")


def test_memory_attached_to_the_busy_stream(run):
    run(
        """
lib.ok("cuStreamAttachMemAsync", other, memory, 0, SINGLE)
lib.ok("cuStreamSynchronize", other)
gate.hold(other)
print("before", flush=True)
touch(memory)
""",
        dies=True,
    )


def test_attachment_ends_with_its_stream(run):
    run(
        """
lib.ok("cuStreamAttachMemAsync", other, memory, 0, SINGLE)
lib.ok("cuStreamSynchronize", other)
lib.ok("cuStreamDestroy_v2", other)
gate.hold(stream)
print("before", flush=True)
touch(memory)
""",
        dies=True,
    )


def test_host_functions_may_touch(run):
    run(
        """
seen = []
function = HOST_FUNCTION(lambda _: seen.append(touch(memory)))
work()
lib.ok("cuLaunchHostFunc", stream, function, None)
lib.ok("cuStreamSynchronize", stream)
assert seen == [206 + 1]
""".replace("206", "0xCD + 1")
    )


def test_driver_reads_and_writes_it_meanwhile(run):
    run("""
lib.ok("cuMemsetD8Async", memory, 7, 4096, stream)
into, back = managed(), (ctypes.c_ubyte * 4096)()
lib.ok("cuMemcpyAsync", into, memory, 4096, stream)
lib.ok("cuMemcpyDtoHAsync_v2", back, into, 4096, stream)
lib.ok("cuStreamSynchronize", stream)
assert bytes(back) == bytes([7]) * 4096
assert touch(into) == 8
""")


def test_freed_memory_is_gone(run):
    run(
        """
lib.ok("cuMemFree_v2", memory)
print("before", flush=True)
touch(memory)
""",
        dies=True,
    )


def test_prefetch_and_advice_name_no_such_device(run):
    run("""
assert lib("cuMemPrefetchAsync", memory, 4096, 0, stream) == 101
assert lib("cuMemAdvise", memory, 4096, 3, 0) == 101
assert lib("cuMemAdvise", memory, 4096, 5, 0) == 101
lib.ok("cuMemAdvise", memory, 4096, 3, -1)
lib.ok("cuMemAdvise", memory, 4096, 1, 0)
""")


def test_batches_and_managed_pools_need_concurrent_access(run):
    run("""
addresses, sizes = (ctypes.c_uint64 * 1)(memory), (ctypes.c_size_t * 1)(4096)
place, index = (ctypes.c_uint64 * 1)(2), (ctypes.c_size_t * 1)(0)
one, none = ctypes.c_size_t(1), ctypes.c_ulonglong(0)
on, to = ctypes.c_void_p(stream), (place, index, one)
assert lib("cuMemPrefetchBatchAsync", addresses, sizes, one, *to, none, on) == 101
assert lib("cuMemDiscardBatchAsync", addresses, sizes, one, none, on) == 101
assert lib("cuMemDiscardAndPrefetchBatchAsync", addresses, sizes, one, *to, none, on) == 101
pool = ctypes.c_void_p()
assert lib("cuMemGetDefaultMemPool", ctypes.byref(pool), place, 2) == 801
lib.ok("cuMemGetDefaultMemPool", ctypes.byref(pool), place, 1)
assert touch(memory) == 0xCD + 2
""")


def test_uses_move_pages(run):
    run("""
faults = (ctypes.c_ulonglong * 2)()
for round in range(5):
    lib.ok("cuMemsetD8Async", memory, round, 4096, stream)
    lib.ok("cuStreamSynchronize", stream)
    assert touch(memory) == round + 1
begin, size = ctypes.c_ulonglong(memory), ctypes.c_ulonglong(4096)
lib.ok("cudadrvSoftPageFaults", begin, size, faults)
assert list(faults) == [5, 5]
""")
