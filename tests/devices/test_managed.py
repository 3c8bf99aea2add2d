"""Managed memory on devices without concurrent access to it by the host."""

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
