"""Other machines: two devices, and a device without concurrent access to managed memory."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.cuda_software

PRELUDE = """
import gc
import numpy as np
import cudadrv as cu

def refused(error, words, call):
    try:
        call()
    except error as found:
        assert words in str(found), found
    else:
        raise AssertionError("not refused: " + words)
"""


def run(driver: str, settings: str, program: str) -> None:
    """Run a program on a software driver of its own."""
    environment = {
        **os.environ,
        "CUDADRV_SOFTWARE": f"schedule={driver},{settings}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr


def test_two_devices(driver):
    run(
        driver,
        "devices=2",
        """
zero, one = cu.Device(0), cu.Device(1)
near, far = cu.Stream(device=zero), cu.Stream(device=one)
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


def test_page_locked_memory_dies_behind_another_devices_stream(driver):
    run(
        driver,
        "devices=2",
        """
import ctypes
from cudadrv import testing

cu.DeviceBuffer(1).fill(0)
far = cu.Stream(device=cu.Device(1))
flag, b = cu.LockedBuffer.zeros(1, "u4"), cu.DeviceBuffer(8, device=cu.Device(1))
wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]
with cu.Device(1):
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


def test_managed_memory_without_concurrent_access(driver):
    run(
        driver,
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
