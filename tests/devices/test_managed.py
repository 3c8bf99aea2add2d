"""Managed memory on devices without concurrent managed access by the host."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_managed_memory_without_concurrent_access(machine):
    machine(
        "concurrent_managed=0",
        """
stream, other = cu.Stream(), cu.Stream()
managed, locked, device = cu.UnifiedBuffer.zeros(8), cu.LockedBuffer.zeros(8), cu.DeviceBuffer(8)
managed[0] = 3
device.fill_async(1, stream)

words = "concurrent_managed_access is 0"
refused(cu.BufferBorrowedError, words, lambda: managed[0])
refused(cu.BufferBorrowedError, "fill_async on", lambda: managed.__setitem__(0, 1))
refused(cu.BufferBorrowedError, words, lambda: managed.read().__enter__())
refused(cu.BufferBorrowedError, words, lambda: np.asarray(managed))
refused(cu.BufferBorrowedError, words, lambda: managed.copy_to(bytearray(8)))
assert locked[0] == 0
with cu.ordering("wait"):
    assert managed[0] == 3
assert not device.borrowed

with managed.read() as array:
    words = "a host view of a UnifiedBuffer is alive, made at <string>:"
    refused(cu.BufferExportedError, words, lambda: device.fill_async(0, stream))
    refused(cu.BufferExportedError, words, lambda: device.copy_from_async(bytes(8), other))
    refused(cu.BufferExportedError, words, lambda: managed.copy_to_async(locked, stream))
    words = "a host view of it is alive, made at <string>:"
    refused(cu.BufferExportedError, words, lambda: managed.fill_async(0, stream))
    locked[0] = 1
device.fill_async(0, stream)
managed.fill_async(7, stream)
refused(cu.BufferBorrowedError, "being written by fill_async", lambda: managed[0])
stream.synchronize()
assert managed[0] == 7
""",
    )


def test_a_view_without_bytes_excludes_nothing(machine):
    machine(
        "concurrent_managed=0",
        """
stream, device = cu.Stream(), cu.DeviceBuffer(8)
managed, empty = cu.UnifiedBuffer.zeros(8), cu.UnifiedBuffer(0)
views = [np.asarray(empty), memoryview(managed[4:4]), np.asarray(managed[:0].readonly())]
with empty.write() as array, managed[8:].read() as none:
    device.fill_async(0, stream)
    managed.fill_async(1, stream)
stream.synchronize()
assert managed[0] == 1
""",
    )


def test_explain_names_what_excludes(machine):
    machine(
        "concurrent_managed=0",
        """
stream = cu.Stream()
device, locked = cu.DeviceBuffer(8, name="d"), cu.LockedBuffer(8)
managed, other = cu.UnifiedBuffer.zeros(8, name="m"), cu.UnifiedBuffer(8)

token = device.fill_async(0, stream)
assert managed.explain() == (
    "UnifiedBuffer 'm'[0:8] (uint8) is in use:\\n"
    f"  fill_async on Stream 1, queued at {token.site} may be unfinished, and work of that"
    " device\\n"
    "  excludes the host from all managed memory (concurrent_managed_access is 0).\\n"
    "Release it with: stream_1.synchronize() or token.wait().")
assert managed.explain().split("\\n")[1] in refused(
    cu.BufferBorrowedError, "", lambda: managed[0])
assert "is free" in locked.explain()
token.wait()
assert "is free" in managed.explain()

view = memoryview(other)
assert device.explain().startswith(
    "DeviceBuffer 'd'[0:8] (uint8) is in use:\\n"
    "  a host view of a UnifiedBuffer is alive, made at <string>:")
assert "excludes all work of this device (concurrent_managed_access is 0)" in device.explain()
assert "a host view of a UnifiedBuffer" in locked.explain()
assert "a host view of it is alive" in other.explain()
found = refused(cu.BufferExportedError, "", lambda: device.fill_async(0, stream))
assert device.explain().split("\\n")[1] in found
""",
    )


def test_the_buffers_own_reader_is_not_blamed_for_other_work(machine):
    machine(
        "concurrent_managed=0",
        """
stream, other = cu.Stream(), cu.Stream()
device, target, managed = cu.DeviceBuffer(8), cu.DeviceBuffer(8), cu.UnifiedBuffer.zeros(8)
target.copy_from_async(managed, stream)
found = refused(cu.BufferBorrowedError, "concurrent_managed_access is 0", lambda: managed[0])
assert "copy_from_async" in found and "being written" not in found
refused(cu.BufferBorrowedError, "being read by copy_from_async", lambda: np.asarray(managed))
stream.synchronize()
device.fill_async(1, other)
refused(cu.BufferBorrowedError, "fill_async on Stream 2", lambda: managed[0])
""",
    )


def test_work_of_any_device_excludes(machine):
    machine(
        "concurrent_managed=0,devices=2",
        """
managed = cu.UnifiedBuffer.zeros(8, device=zero)
b = cu.DeviceBuffer(8, device=one)
b.fill_async(0, far)
zero.synchronize()
refused(cu.BufferBorrowedError, "fill_async on Stream 2", lambda: managed[0])
refused(cu.BufferBorrowedError, "fill_async on Stream 2", lambda: managed.copy_to(bytearray(8)))
with cu.ordering("wait"):
    managed[0] = 4
with managed.read() as array:
    refused(cu.BufferExportedError, "of a UnifiedBuffer is", lambda: b.fill_async(0, far))
b.copy_from_async(managed, far)
far.close()                         # its work goes on
refused(cu.BufferBorrowedError, "copy_from_async on Stream 2", lambda: managed[0])
one.synchronize()
assert managed[0] == 4
""",
    )


def test_work_of_a_lost_device_excludes_nobody(machine):
    machine(
        "concurrent_managed=0,devices=2",
        """
managed, b = cu.UnifiedBuffer.zeros(8, device=zero), cu.DeviceBuffer(2**26, device=one)
b.fill_async(0, far)                # long enough to run on when its device is lost
testing.configure("fault=cuStreamQuery:1:700")
refused(cu.ContextLostError, "", far.synchronize)
managed[0] = 3
managed.fill_async(4, near)
refused(cu.BufferBorrowedError, "written by fill_async", lambda: managed[0])
near.synchronize()
with managed.read() as array:
    assert array[0] == 4
""",
        tail="assert not testing.races(), testing.races()",
    )


def test_records_and_waits_exclude_nobody(machine):
    machine(
        "concurrent_managed=0",
        """
stream, other = cu.Stream(), cu.Stream()
managed = cu.UnifiedBuffer.zeros(8)
event = stream.record()
other.wait(event)
stream.wait(stream)
managed[0] = 3
assert managed[0] == 3
""",
    )


def test_a_loan_excludes_the_host_from_managed_memory(machine):
    """While a buffer is lent, the host cannot use managed memory.

    The library's work is not seen, so it may be running at any time.
    """
    machine(
        "concurrent_managed=0",
        """
managed, device, stream = cu.UnifiedBuffer.zeros(8), cu.DeviceBuffer(8), cu.Stream()
with device.lend(stream):
    stream.synchronize()
    words = "memory is lent to Stream 1, at <string>:"
    refused(cu.BufferExportedError, words, lambda: managed[0])
    with cu.ordering("unchecked"):
        refused(cu.BufferExportedError, words, lambda: managed[0])
    assert words in managed.explain()
stream.synchronize()
assert managed[0] == 0
with managed.read():
    refused(cu.BufferExportedError, "a host view of a UnifiedBuffer", device.lend(stream).__enter__)
""",
    )


def test_the_rules_hold_for_managed_memory_of_others(machine):
    machine(
        "concurrent_managed=0",
        """
library, address = ctypes.CDLL(cu.driver_info().path), ctypes.c_uint64()
with cu.Device(0):
    assert library.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(64), 1) == 0
stream, device = cu.Stream(), cu.DeviceBuffer(8)
theirs = cu.UnifiedBuffer.from_address(address.value + 8, 8)
device.fill_async(1, stream)
refused(cu.BufferBorrowedError, "concurrent_managed_access is 0", lambda: theirs[0])
stream.synchronize()
with theirs.read() as array:
    words = "a host view of a Unified"
    refused(cu.BufferExportedError, words, lambda: device.fill_async(0, stream))
device.fill_async(0, stream)
""",
    )


def test_the_host_uses_what_is_taken_back(machine):
    machine(
        "concurrent_managed=0",
        """
stream, managed = cu.Stream(), cu.UnifiedBuffer.zeros(8)
loan = managed.lend(stream)
array = loan.__cuda_array_interface__
with loan.back():
    stream.synchronize()
    managed[0] = 3
refused(cu.BufferExportedError, "it is lent to", lambda: managed[0])
del loan
""",
    )


def test_the_number_of_a_default_stream_is_the_same_in_each_context(machine):
    """A loan to a default stream accepts consumers of all contexts.

    A consumer passes only the number of a default stream, which is the same in each context.
    """
    machine(
        "devices=2",
        """
managed, theirs = cu.UnifiedBuffer(8), cu.Stream.per_thread(device=one)
loan = managed.lend(theirs)
for device in (zero, one):
    with device.context:
        assert loan.__dlpack__(stream=2)
        refused(BufferError, "the consumer works on stream 0x1", lambda: loan.__dlpack__(stream=1))
""",
    )
