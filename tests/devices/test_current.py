"""The current device and the current streams of two devices: threads, tasks, generators, errors."""

import pytest

pytestmark = pytest.mark.cuda_software

SETTINGS = "devices=2"


def test_threads_start_at_the_first_device(machine):
    machine(
        SETTINGS,
        """
import contextvars, threading
found = []
def look():
    found.append((cu.Device.current().ordinal, cu.DeviceBuffer(8).device.ordinal))
with cu.Device(1):
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    copied = contextvars.copy_context()
copied.run(look)    # as asyncio.to_thread does: a copied context contains the block
look()
assert found == [(0, 0), (1, 1), (1, 1), (0, 0)], found
""",
    )


def test_tasks_have_their_own(machine):
    machine(
        SETTINGS,
        """
import asyncio
async def use(device, stream):
    with device:
        await asyncio.sleep(0)
        with stream:
            await asyncio.sleep(0)
            assert cu.Device.current() == cu.Device() == device
            assert cu.Stream.current() is stream
            buffer = cu.DeviceBuffer(8)
            assert buffer.device == device and buffer.stream_ordered
            await buffer.fill_async(device.ordinal)
        await asyncio.sleep(0)
        assert cu.Stream.current() is None
        assert not cu.DeviceBuffer(8).stream_ordered
    return buffer.to_numpy()[0]

async def main():
    devices = [cu.Device(each) for each in (0, 1, 1, 0)]
    return await asyncio.gather(*[use(each, cu.Stream(device=each)) for each in devices])

assert asyncio.run(main()) == [0, 1, 1, 0]
assert cu.Device.current().ordinal == 0
""",
    )


def test_a_generator_that_is_suspended_in_a_block(machine):
    machine(
        SETTINGS,
        """
def work(device):
    with device:
        yield
suspended = work(cu.Device(1))
next(suspended)
assert cu.Device.current().ordinal == 1     # contextlib.contextmanager needs that
assert cu.DeviceBuffer(8).device.ordinal == 1
with cu.Device(0):
    refused(RuntimeError, "must end in reverse order", suspended.close)
    assert cu.Device.current().ordinal == 0
cu.Device(1).__exit__(None, None, None)
assert cu.Device.current().ordinal == 0
""",
    )


def test_exceptions_end_the_block(machine):
    machine(
        SETTINGS,
        """
stream = cu.Stream(device=cu.Device(1))
def fail():
    with cu.Device(1), stream:
        assert cu.DeviceBuffer(8).device.ordinal == 1
        raise KeyError("inside")
refused(KeyError, "inside", fail)
assert cu.Device.current().ordinal == 0
assert cu.Stream.current() is None
assert cu.Stream.current(device=cu.Device(1)) is None
""",
    )


def test_a_stream_does_not_change_the_device(machine):
    machine(
        SETTINGS,
        """
zero, one = cu.Device.all()
near, far = cu.Stream(device=zero), cu.Stream(device=one)
with far:
    assert cu.Device.current() == zero
    assert cu.Stream.current() is far
    assert cu.Stream.current(device=zero) is None
    assert cu.Stream.current(device=one) is far
    buffer = cu.DeviceBuffer(8)
    assert buffer.device == zero and not buffer.stream_ordered
    wrong = "of the `with` block belongs to <Context primary, device 1>, and what the call uses"
    refused(TypeError, wrong, lambda: buffer.fill_async(1))
    with near:
        assert cu.Stream.current() is near
        assert cu.DeviceBuffer(8).stream_ordered
        assert cu.DeviceBuffer(8, device=one).stream_ordered
    with one:
        assert cu.Stream.current() is far
        assert cu.DeviceBuffer(8).stream_ordered
        cu.DeviceBuffer(8).fill_async(1)
        assert not cu.DeviceBuffer(8, device=zero).stream_ordered
with one, near:
    buffer = cu.DeviceBuffer(8)
    assert buffer.device == one and not buffer.stream_ordered
    assert cu.DeviceBuffer(8, stream=near).device == zero
""",
    )


def test_fills_by_copies(machine):
    """Their first calls take any current context, and the copies behind them do not."""
    machine(
        SETTINGS,
        """
import ctypes
import numpy as np
driver = ctypes.CDLL(cu.driver_info().path)
value = 0x0102030405060708
stream = cu.Stream()
large = cu.DeviceBuffer(1 << 16, "u8", stream=stream, pooled=False)
image = cu.DeviceBuffer(24, "u8", stream=stream, pooled=False).reshape(2, 3, 4)
image.fill_async(0, stream)
foreign = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(foreign), 1) == 0
assert driver.cuCtxSetCurrent(foreign) == 0
large.fill_async(value, stream).wait()
image[:, :2, 1:3].fill_async(value, stream).wait()
current = ctypes.c_void_p()
assert driver.cuCtxGetCurrent(ctypes.byref(current)) == 0
assert current.value == foreign.value
assert (large.to_numpy() == value).all()
wanted = np.zeros((2, 3, 4), "u8")
wanted[:, :2, 1:3] = value
assert (image.to_numpy() == wanted).all()
""",
    )
