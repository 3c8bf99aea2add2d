"""The host runs out of memory in the middle of a call: nothing is lost, and nothing leaks."""

import ctypes
import ctypes.util

import pytest

import cudadrv as cu

_testcapi = pytest.importorskip("_testcapi")

STEPS = 60  # no call makes more allocations of Python objects than this


def with_failing_allocation(number: int, call) -> bool:
    """Let one allocation of the interpreter fail; gives whether the call met it."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        call()
    except MemoryError:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False


CALLS = {
    "fill_async": lambda buffer, locked, stream: buffer.fill_async(1, stream),
    "copy": lambda buffer, locked, stream: buffer.copy_from_async(locked, stream),
    "part": lambda buffer, locked, stream: buffer[2:4].fill_async(1, stream),
    "record": lambda buffer, locked, stream: stream.record(),
    "make": lambda buffer, locked, stream: cu.LockedBuffer(8).close(),
    "stream": lambda buffer, locked, stream: cu.Stream().close(),
    "item": lambda buffer, locked, stream: locked.to_numpy(),
}


@pytest.mark.cuda_software
@pytest.mark.parametrize("name", CALLS)
def test_each_allocation_fails_once(stream, name):
    buffer, locked = cu.DeviceBuffer(16), cu.LockedBuffer.zeros(16)
    met = 0
    for number in range(STEPS):
        met += with_failing_allocation(number, lambda: CALLS[name](buffer, locked, stream))
        stream.synchronize()
        assert not buffer.borrowed
    assert met
    CALLS[name](buffer, locked, stream)
    stream.synchronize()
    buffer.close()
    locked.close()


class Used(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost",
    )]  # fmt: skip


def test_a_token_that_could_not_be_made_keeps_no_clock(stream):
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("glibc says how much memory is in use")
    library.mallinfo2.restype = Used
    buffer = cu.DeviceBuffer(16)
    others = [cu.Stream() for _ in range(2000)]  # so that a clock has many entries

    def lose_tokens(rounds: int) -> int:
        lost = 0
        for _ in range(rounds):
            stream.wait(buffer.fill_async(1, others[-1]))  # the stream gets another clock
            for number in range(4):
                lost += with_failing_allocation(number, lambda: buffer.fill_async(1, stream))
            stream.synchronize()
            others[-1].wait(stream)
        return lost

    lose_tokens(3)
    before = library.mallinfo2().uordblks
    assert lose_tokens(50) >= 50
    assert library.mallinfo2().uordblks - before < 50 * 2000 * 8 // 4
