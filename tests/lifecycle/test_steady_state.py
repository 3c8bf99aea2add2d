"""In steady state an operation makes one driver call and no event, and keeps no memory."""

import ctypes
import sys

import pytest
from schedules import one_schedule

import cudadrv as cu

CALLS = 10_000


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated() -> int:
    """Number of bytes that C code has allocated by malloc, or 0 if the C library cannot tell."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = Mallinfo2
    return mallinfo2().uordblks


@pytest.fixture
def copy(stream):
    source, target = cu.LockedBuffer.zeros(64), cu.DeviceBuffer(64)

    def copy():
        target.copy_from_async(source, stream)

    copy()
    return copy


@pytest.mark.cuda_software
def test_one_driver_call_and_no_event(copy, stream):
    from cudadrv import testing

    everything, copies = testing.calls(), testing.calls("cuMemcpyHtoDAsync_v2")
    for _ in range(100):
        copy()
    assert testing.calls("cuMemcpyHtoDAsync_v2") - copies == 100
    assert testing.calls() - everything == 100


@pytest.mark.cuda_software
def test_synchronizing_costs_as_many_driver_calls_after_any_number_of_operations(copy, stream):
    from cudadrv import testing

    counts = []
    for number in (1, 3000):
        for _ in range(number):
            copy()
        testing.drain()
        before = testing.calls()
        stream.synchronize()
        counts.append(testing.calls() - before)
    assert counts[1] <= counts[0]


@pytest.mark.cuda_software
# Under the other schedules the driver has threads.
@one_schedule
def test_nothing_is_left(copy, stream, cuda_schedule):
    """Without any synchronization, the numbers of Python objects and bytes stay constant."""
    from cudadrv import testing

    def many():
        for turn in range(CALLS):
            copy()
            if turn % 100 == 0:
                testing.drain()
        testing.drain()

    with testing.configured("races=off"):
        many()
        grown = []
        for _ in range(2):  # objects of earlier tests may be released in the first round
            blocks, memory = sys.getallocatedblocks(), allocated()
            many()
            grown.append((sys.getallocatedblocks() - blocks, allocated() - memory))
        assert min(objects for objects, _ in grown) < 100
        assert min(nbytes for _, nbytes in grown) < CALLS
