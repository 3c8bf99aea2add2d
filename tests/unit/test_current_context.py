"""Other libraries change the current context of a thread: cudadrv works and restores it."""

import ctypes
import threading

import pytest

import cudadrv as cu


class OtherLibrary:
    """A library that uses the driver, and makes contexts current itself."""

    def __init__(self):
        self.driver = ctypes.CDLL(cu.driver_info().path)

    def call(self, function: str, *arguments) -> None:
        status = getattr(self.driver, function)(*arguments)
        assert status == 0, f"{function}: {status}"

    def current(self) -> int | None:
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    def set_current(self, context: int | None) -> None:
        self.call("cuCtxSetCurrent", ctypes.c_void_p(context))


@pytest.fixture
def library(driver):
    return OtherLibrary()


@pytest.fixture
def foreign(library):
    """A context that another library has created and made current."""
    context = ctypes.c_void_p()
    before = library.current()
    library.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    yield context.value
    library.call("cuCtxDestroy_v2", context)
    library.set_current(before)


def use_everything() -> None:
    stream, other = cu.Stream(), cu.Stream(blocking=True)
    event = stream.record(cu.Event())
    other.wait(event)
    other.wait(stream)
    buffer = cu.LockedBuffer.zeros(16)
    token = buffer.fill_async(1, other)
    token.wait()
    event.synchronize()
    stream.synchronize()
    other.synchronize()
    assert event.done
    assert stream.done
    cu.Device(0).synchronize()
    assert cu.Device(0).context.priority_range
    event.close()
    stream.close()
    other.close()
    buffer.close()


def test_another_context_stays_current(library, foreign):
    use_everything()
    assert library.current() == foreign


def test_another_context_on_top_of_ours(library, foreign):
    with cu.Device(0):
        ours = library.current()
        assert ours != foreign
        library.call("cuCtxPushCurrent_v2", ctypes.c_void_p(foreign))
        use_everything()
        assert library.current() == foreign
        library.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        assert library.current() == ours
    assert library.current() == foreign


def test_no_context_at_all(library):
    before = library.current()
    library.set_current(None)
    use_everything()
    library.set_current(before)


def in_a_fresh_thread(function) -> None:
    failures = []

    def run():
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def test_a_fresh_thread_has_none(library):
    in_a_fresh_thread(use_everything)


def test_objects_of_one_thread_in_a_fresh_one(library):
    stream = cu.Stream()
    event = stream.record()

    def use():
        assert library.current() is None
        event.synchronize()
        stream.wait(event)
        stream.synchronize()
        stream.close()
        event.close()

    in_a_fresh_thread(use)


def test_destructors_in_a_fresh_thread(library):
    things = [cu.Stream(), cu.Event(), cu.DeviceBuffer(16)]
    in_a_fresh_thread(things.clear)


PRINTS = """
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 values);
.visible .entry nothing() { ret; }
"""


@pytest.mark.parametrize("prints", [False, True])
def test_a_context_that_was_destroyed_while_current(library, prints):
    """cudadrv works while a destroyed context is current.

    The driver leaves such a context current in other threads, and each use of it fails. If a module
    may print, waits end with another call of the driver.
    """
    module = cu.Module(PRINTS) if prints else None
    context, before = ctypes.c_void_p(), library.current()
    library.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    in_a_fresh_thread(lambda: library.call("cuCtxDestroy_v2", context))
    try:
        use_everything()
        del module
    finally:
        library.driver.cuCtxSetCurrent(ctypes.c_void_p(before))
