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
cu.DeviceBuffer(1).fill(0)
flag, b = hold(far), cu.DeviceBuffer(8, device=one)
locked = cu.LockedBuffer(8, pooled=False)
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


def test_page_locked_memory_goes_with_every_device(machine):
    """Page-locked memory can be used on all devices.

    The source and the target of a copy may even belong to two devices.
    """
    machine(
        "devices=2",
        """
a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
of_zero, of_one = cu.LockedBuffer.zeros(8, device=zero), cu.LockedBuffer.zeros(8, device=one)
of_zero.copy_from_async(np.arange(8, dtype="u1"), far)
of_one.copy_from_async(of_zero, far)
b.copy_from_async(of_one, far)
near.wait(far)
a.copy_from_async(of_one, near)     # both devices read it
b.copy_to(of_zero, stream=far)
assert of_zero.to_numpy().tolist() == list(range(8))

refused(cu.BufferBorrowedError, "Stream 1", lambda: of_one.fill_async(0, far))
refused(cu.BufferBorrowedError, "Stream 1", lambda: of_one.__setitem__(0, 0))
one.synchronize()                   # the other device may go on
refused(cu.BufferBorrowedError, "Stream 1", of_one.close)
zero.synchronize()
of_one.close()
a.copy_from(of_zero)                # blocking, on streams of the library's own
b.copy_from(of_zero)
of_zero.copy_from(b)
""",
    )


def test_managed_memory_goes_with_every_device(machine):
    machine(
        "devices=2",
        """
a, b = cu.DeviceBuffer.zeros(8, device=zero), cu.DeviceBuffer(8, device=one)
managed, other = cu.UnifiedBuffer.zeros(8, device=zero), cu.UnifiedBuffer.zeros(8, device=one)
locked = cu.LockedBuffer.zeros(8)
managed.fill_async(7, far)
refused(cu.BufferBorrowedError, "written by fill_async", lambda: a.copy_from_async(managed, near))
near.wait(far)
a.copy_from_async(managed, near)
b.copy_from_async(managed, far)
refused(cu.BufferBorrowedError, "read by copy_from_async", lambda: managed.fill_async(0, far))
far.wait(near)
managed[:4].fill_async(1, far)
far.synchronize()
assert managed.to_numpy().tolist() == [1] * 4 + [7] * 4

b.copy_from(managed)                # blocking: on the device of the device buffer
managed.copy_from(a)
other.copy_from(b)
managed.copy_from(other)
other.copy_from(locked)
locked.copy_from(managed)
managed.copy_from(bytes(range(8)), stream=far)
assert bytes(managed) == bytes(range(8))
""",
    )


def test_memory_dies_behind_users_on_two_devices(machine):
    """Dropped memory is freed after its users on two devices are done.

    The destructor waits for neither device.
    """
    machine(
        "devices=2",
        """
locked, managed = cu.LockedBuffer.zeros(8), cu.UnifiedBuffer.zeros(8)
a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
host, unified = (testing.live_objects()[kind] for kind in ("host", "managed"))
for source in (locked, managed):
    a.copy_from_async(source, near)
    b.copy_from_async(source, far)
for which in (near, far):
    refused(cu.BufferBorrowedError, "cannot close", locked.close)
    refused(cu.BufferBorrowedError, "cannot close", managed.close)
    if which is near:
        near.synchronize()
del locked, managed, source
gc.collect()
cu.reap()
assert testing.live_objects()["host"] == host - 1
assert testing.live_objects()["managed"] == unified - 1
""",
    )


def test_stream_ordered_memory_dies_behind_its_own_device(machine):
    machine(
        "devices=2",
        """
buffer, locked = cu.DeviceBuffer(8, stream=far), cu.LockedBuffer.zeros(8)
locked.copy_from_async(buffer, far)
refused(ValueError, "of the buffer's context", lambda: buffer.fill_async(0, near))
with near:
    buffer.close()                  # on its own stream; the current one is of another device
far.close()
buffer = cu.DeviceBuffer(8, stream=near)
del buffer, near
cu.reap()
""",
    )


def test_arrays_that_are_on_no_device_go_with_the_stream(machine):
    """Arrays without a device are imported in the context of the stream.

    These are page-locked arrays, and arrays without items.
    """
    machine(
        "devices=2",
        """
class Array:
    def __init__(self, address, count):
        self.__dict__["interface"] = {
            "shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3,
            "stream": None,
        }

    @property
    def __cuda_array_interface__(self):
        return self.interface

class Exporter:
    def __init__(self, buffer):
        self.buffer = buffer

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.buffer.__dlpack__(**options)

locked, ours = cu.LockedBuffer.zeros(8), cu.LockedBuffer.zeros(8)
for stream in (near, far):
    for array in (Array(locked.address, 8), Array(0, 0)):
        found = cu.from_cuda_array(array, stream)
        assert found.device == stream.device, found.device
        found.fill_async(1, stream)
    stream.synchronize()
    found = cu.from_dlpack(Exporter(ours), stream)
    assert found.device == stream.device
    del found
with one:
    assert cu.from_cuda_array(Array(0, 0)).device == one
remote = cu.DeviceBuffer(8, device=one)
refused(ValueError, "the array is on <Device 1", lambda: cu.from_cuda_array(
    Array(remote.address, 8), near))
""",
    )
