"""``name=`` of streams and events, and handles of the driver."""

import ctypes
import gc

import pytest

import cudadrv as cu

PTX = """
.version 6.4
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
"""


def test_names_are_shown(driver):
    loader = cu.Stream(name="loader")
    assert loader.name == "loader"
    assert repr(loader) == "<Stream 'loader', device 0>"
    assert cu.Stream().name is None
    assert cu.Stream.legacy().name is None
    loader.close()
    assert repr(loader) == "<Stream 'loader', closed, device 0>"
    ready = cu.Event(name="ready", timing=True)
    assert ready.name == "ready"
    assert repr(ready) == "<Event 'ready' with timing not recorded>"
    assert cu.Event().name is None
    ready.close()
    assert repr(ready) == "<Event 'ready' closed>"


def test_messages_use_them(gate):
    loader, worker = cu.Stream(name="loader"), cu.Stream(name="worker")
    buffer = cu.LockedBuffer.zeros(16, name="frames")
    gate.hold(loader)
    token = buffer.fill_async(1, loader)
    assert "fill_async on Stream 'loader'" in repr(token)
    assert buffer.borrows[0].stream == "Stream 'loader'"
    assert "write by fill_async on Stream 'loader', queued at" in buffer.explain()
    with pytest.raises(cu.BufferBorrowedError) as caught:
        buffer.fill_async(2, worker)
    assert "by fill_async on Stream 'worker'" in str(caught.value)
    assert "by fill_async on Stream 'loader', queued at" in str(caught.value)
    with pytest.raises(TimeoutError, match="the work of Stream 'loader' is not complete"):
        loader.synchronize(timeout=0)
    loader.close()
    assert buffer.borrows[0].stream == "Stream 'loader' (closed or dropped)"
    with pytest.raises(ValueError, match=r"Stream 'loader'.* is closed"):
        buffer.fill_async(3, loader)
    del loader
    gc.collect()
    assert buffer.borrows[0].stream == "Stream 'loader' (closed or dropped)"
    gate.open()
    token.wait()


def test_messages_of_events_use_them(stream):
    ready = cu.Event(name="ready")
    with pytest.raises(cu.EventNotRecordedError, match=r"^Event 'ready' that is to be waited for"):
        stream.wait(ready)
    ready.close()
    for use in (lambda: ready.done, ready.synchronize, lambda: stream.wait(ready)):
        with pytest.raises(ValueError, match=r"^Event 'ready' .*is closed"):
            use()
    with pytest.raises(ValueError, match=r"^Event 'ready' is closed: it has no handle"):
        ready.handle  # noqa: B018


def test_names_are_no_identities(driver):
    """Two streams of the same name are different streams."""
    one, two = cu.Stream(name="same"), cu.Stream(name="same")
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, one)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, two)
    assert one != two
    one.synchronize()


@pytest.mark.parametrize("make", [cu.Stream, cu.Event])
def test_a_name_is_a_str(driver, make):
    for wrong in (1, b"loader", ["loader"]):
        with pytest.raises(TypeError, match="name must be a str, not"):
            make(name=wrong)


def test_a_str_of_another_class_runs_no_code_in_messages(driver):
    class Loud(str):
        __slots__ = ()

        def __repr__(self):
            raise AssertionError

    stream = cu.Stream(name=Loud("loader"))
    assert type(stream.name) is str
    assert "Stream 'loader'" in repr(stream)


def test_ever_new_names_are_bounded(script):
    """The number of names is bounded. Beyond it, the oldest streams are shown by their numbers."""
    script.quiet(
        """
import cudadrv as cu
first = cu.Stream(name="first")
buffer = cu.LockedBuffer.zeros(16)
buffer.fill_async(1, first)
assert buffer.borrows[0].stream == "Stream 'first'"
for index in range((1 << 14) + 10):
    cu.Stream(name=f"stream {index}")
assert buffer.borrows[0].stream == "Stream 1", buffer.borrows
last = cu.Stream(name="last")
assert repr(last) == "<Stream 'last', device 0>"
first.synchronize()
"""
    )


def test_handles_are_those_of_the_driver(stream):
    driver = ctypes.CDLL(cu.driver_info().path)
    context, function = ctypes.c_void_p(), ctypes.c_void_p()
    device = cu.Device(0)
    with device:
        driver.cuCtxGetCurrent(ctypes.byref(context))
    assert device.context.handle == context.value
    module = cu.Module(PTX)
    kernel = module["nothing"]
    handle = ctypes.c_void_p(module.handle)
    with device:
        assert driver.cuModuleGetFunction(ctypes.byref(function), handle, b"nothing") == 0
    assert kernel.handle == function.value
    event = stream.record()
    with device:
        assert driver.cuEventSynchronize(ctypes.c_void_p(event.handle)) == 0
        assert driver.cuStreamSynchronize(ctypes.c_void_p(stream.handle)) == 0
    module.close()
    for thing in (module, kernel):
        with pytest.raises((ValueError, cu.OwnershipError), match="closed"):
            thing.handle  # noqa: B018


def test_objects_that_were_never_initialized_have_none(driver):
    for cls in (cu.Stream, cu.Module):
        with pytest.raises(TypeError, match="never initialized"):
            cls.__new__(cls).handle  # noqa: B018
    with pytest.raises(ValueError, match="closed"):
        cu.Event.__new__(cu.Event).handle  # noqa: B018
