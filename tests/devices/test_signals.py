"""Signals between the streams of two devices, and of two contexts of a device."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_a_signal_orders_the_streams_of_two_devices(pair):
    pair(
        """
signal = cu.Signal(name="ready", device=one)
assert signal.device == one
locked = cu.LockedBuffer.zeros(8, "u1")
a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
for step in range(0, 20, 2):
    near.wait(signal, step)
    a.fill_async(step, near)
    locked.copy_from_async(a, near)
    near.set(signal, step + 1)
    early = lambda: b.copy_from_async(locked, far)
    refused(cu.BufferBorrowedError, "written by copy_from_async", early)
    refused(cu.BufferBorrowedError, "cannot write Signal 'ready'", lambda: far.set(signal, 99))
    far.wait(signal, step + 1)
    b.copy_from_async(locked, far)
    far.set(signal, step + 2)
signal.wait(20)
assert b.to_numpy()[3] == 18
assert signal.value == 20
"""
    )


def test_a_signal_of_a_created_context(machine):
    machine(
        "devices=1",
        """
context = cu.Context.create(cu.Device(0))
usual = cu.Stream()
with context:
    signal, stream = cu.Signal(), cu.Stream()
locked = cu.LockedBuffer.zeros(8, "u1")
locked.fill_async(3, stream)
stream.set(signal, 1)
usual.wait(signal, 1)
locked.fill_async(4, usual)
usual.set(signal, 2)
signal.wait(2)
assert locked[0] == 4
signal.close()
context.synchronize()
""",
    )
