"""A growing buffer that two devices use."""

import pytest

pytestmark = pytest.mark.cuda_software

HEAD = """
GRANULE = 2 << 20
buffer = cu.DeviceBuffer(16, device=zero, capacity=4 * GRANULE, accessible_by=[one], name="b")
"""


def test_both_devices_use_it(machine):
    machine(
        "devices=2",
        HEAD
        + """
assert buffer.accessible_by == (zero, one)
assert cu.DeviceBuffer(1, device=one).accessible_by == (one,)
buffer.grow(2 * GRANULE)
buffer.fill_async(1, far)
words = "written by fill_async"
refused(cu.BufferBorrowedError, words, lambda: buffer.fill_async(2, near))
refused(cu.BufferBorrowedError, words, lambda: buffer.shrink(0))
near.wait(far)
buffer[:4].fill_async(2, near)
near.synchronize()
found = buffer.to_numpy()
assert list(found[:6]) == [2, 2, 2, 2, 1, 1]
buffer.shrink(1)
buffer.grow(16)
far.synchronize()
""",
    )


def test_other_devices_do_not(machine):
    machine(
        "devices=2",
        """
alone = cu.DeviceBuffer(16, device=zero, capacity=32, name="alone")
words = "DeviceBuffer 'alone'[0:16] (uint8) belongs to <Context primary, device 0>"
refused(ValueError, words, lambda: alone.fill_async(0, far))
""",
    )


def test_it_dies_while_the_other_device_is_busy(machine):
    """A dropped growing buffer stays mapped while another device with access uses it."""
    machine(
        "devices=2",
        HEAD
        + """
flag = hold(far)
buffer.fill_async(1, far)
del buffer
near.synchronize()
zero.synchronize()
from cudadrv import testing
assert testing.live_objects()["reservations"] == 1
flag[0] = 1
far.synchronize()
cu.reap()
assert testing.live_objects()["reservations"] == 0
""",
    )
