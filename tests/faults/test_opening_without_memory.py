"""A process runs out of memory at each step of opening a ticket and giving the buffer back."""

import pytest
from other_process import Other

import cudadrv as cu

pytest.importorskip("_testcapi")

# The steps of the other process. The first `number` allocations of a step succeed, and the next one
# fails.
STEPS = """
import gc, _testcapi

def attempt(ticket, step, number):
    stream = cu.Stream()
    there = receipt = None
    if step == "give_back":
        there = cu.open(ticket, stream)
    failed = False
    _testcapi.set_nomemory(number, number + 1)
    try:
        if step == "open":
            there = cu.open(ticket, stream)
        else:
            receipt = there.give_back(stream)
    except MemoryError:
        failed = True
    _testcapi.remove_mem_hooks()
    gc.collect()
    stream.synchronize()
    cu.reap()
    if there is None:
        there = cu.open(ticket, stream)  # the ticket is still valid
    if receipt is None and not there.closed:
        receipt = there.give_back(stream)
    del there
    stream.synchronize()
    stream.close()
    return failed, receipt
"""


@pytest.mark.parametrize("kind", ["device", "locked"])
def test_the_ticket_stays_valid(kind, driver):
    other = Other(driver)
    other(f"exec({STEPS!r}, globals())")
    stream = cu.Stream()
    buffer = (
        cu.DeviceBuffer(1000, "i4")
        if kind == "device"
        else cu.LockedBuffer(1000, "i4", shareable=True)
    )
    for step in ("open", "give_back"):
        succeeded = number = 0
        while succeeded < 5:
            ticket = buffer.share(stream)
            failed, receipt = other("attempt(t, step, n)", t=ticket, step=step, n=number)
            buffer.accept(receipt, stream)
            stream.synchronize()
            succeeded = 0 if failed else succeeded + 1
            number += 1
        assert number > 10
    assert other.end() == 0
    buffer.close()
