"""Buffers of two devices."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_two_devices(machine):
    machine(
        "devices=2",
        """
a, b = cu.DeviceBuffer(8, device=zero, name="a"), cu.DeviceBuffer(8, device=one, name="b")
locked = cu.LockedBuffer(8)
assert (a.device, b.device) == (zero, one)

for stream in (near, far):
    refused(ValueError, "of the buffer's context", lambda: b.copy_from_async(a, stream))
words = "DeviceBuffer 'b'[0:8] (uint8) belongs to <Context primary, device 1>"
refused(ValueError, words, lambda: b.fill_async(0, near))
refused(ValueError, "to <Context primary, device 0>", lambda: a.copy_from_async(bytes(8), far))
refused(ValueError, "to <Context primary, device 0>", lambda: a[:0].fill_async(0, far))
refused(ValueError, "not a stream of", lambda: cu.DeviceBuffer(8, stream=near, device=one))
refused(ValueError, "is memory of device 1", lambda: cu.DeviceBuffer.from_address(b.address, 8))
assert not a.borrowed and not b.borrowed and not locked.borrowed

a.copy_from(bytes(range(8)))
locked.copy_from_async(a, near)
words = "written by copy_from_async"
refused(cu.BufferBorrowedError, words, lambda: b.copy_from_async(locked, far))
far.wait(near)
b.copy_from_async(locked, far)
found = bytearray(8)
b.copy_to(found, stream=far)
assert found == bytes(range(8))

with one:
    assert cu.DeviceBuffer(1).device == one
with far:
    refused(TypeError, "needs a stream", lambda: a.fill_async(0))
    b.fill_async(0)
stream_ordered = cu.DeviceBuffer(8, stream=far)
assert stream_ordered.device == one
refused(ValueError, "is not a stream of the context", lambda: stream_ordered.close(near))
far.synchronize()
""",
    )


def test_page_locked_memory_dies_behind_another_devices_stream(machine):
    machine(
        "devices=2",
        """
import ctypes

cu.DeviceBuffer(1).fill(0)
flag, b = cu.LockedBuffer.zeros(1, "u4"), cu.DeviceBuffer(8, device=one)
wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]
with one:
    assert wait(far.handle, flag.address, 1, 0) == 0
locked = cu.LockedBuffer(8)
before = testing.live_objects()["host"]
b.copy_from_async(locked, far)
del locked
gc.collect()
cu.DeviceBuffer(1)
assert testing.live_objects()["host"] == before
flag[0] = 1
cu.reap()
assert testing.live_objects()["host"] == before - 1
""",
    )
