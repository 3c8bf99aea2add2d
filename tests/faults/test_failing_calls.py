"""Driver calls that fail: the exception names the call, and the state is unchanged."""

import gc
import pickle
import warnings

import pytest

import cudadrv as cu

pytestmark = [pytest.mark.cuda_software, pytest.mark.usefixtures("driver")]

NOT_PERMITTED, OUT_OF_MEMORY, NOT_READY = 800, 2, 600


@pytest.fixture
def fault(driver):
    """Make the next call of a driver function fail."""
    from cudadrv import testing

    def fault(function: str, status: int = NOT_PERMITTED) -> None:
        testing.configure(f"fault={function}:1:{status}")

    yield fault
    testing.configure("fault=none")


@pytest.fixture
def busy(stream, gate):
    """A stream with unfinished work."""
    gate.hold(stream)
    return stream


def made_context() -> None:
    cu.Context.create(cu.Device(0))


CALLS = {
    "cuDeviceGetCount": lambda stream, event: cu.Device.count(),
    "cuDeviceGet": lambda stream, event: cu.Device(0),
    "cuDeviceGetName": lambda stream, event: stream.device.name,
    "cuDeviceGetAttribute": lambda stream, event: stream.device.attribute("warp_size"),
    "cuDeviceTotalMem": lambda stream, event: stream.device.total_memory,
    "cuDeviceGetUuid": lambda stream, event: stream.device.uuid,
    "cuDriverGetVersion": lambda stream, event: cu.driver_info(),
    "cuCtxGetStreamPriorityRange": lambda stream, event: stream.context.priority_range,
    "cuCtxSynchronize": lambda stream, event: stream.context.synchronize(),
    "cuCtxPushCurrent": lambda stream, event: stream.context.__enter__(),
    "cuCtxCreate": lambda stream, event: made_context(),
    "cuStreamCreateWithPriority": lambda stream, event: cu.Stream(),
    "cuStreamQuery": lambda stream, event: stream.synchronize(),
    "cuStreamWaitEvent": lambda stream, event: stream.wait(event),
    "cuStreamDestroy": lambda stream, event: stream.close(),
    "cuEventCreate": lambda stream, event: cu.Event(),
    "cuEventRecord": lambda stream, event: stream.record(event),
    "cuEventQuery": lambda stream, event: event.synchronize(),
    "cuEventElapsedTime": lambda stream, event: event.elapsed_ms(event),
}
EXPORTED = {
    "cuDeviceGetUuid": "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem": "cuDeviceTotalMem_v2",
    "cuCtxPushCurrent": "cuCtxPushCurrent_v2",
    "cuCtxCreate": "cuCtxCreate_v2",
    "cuStreamDestroy": "cuStreamDestroy_v2",
}


@pytest.mark.parametrize("call", CALLS)
def test_the_error_names_the_call(stream, fault, call):
    event = stream.record(cu.Event(timing=True))
    event.synchronize()
    fault(EXPORTED.get(call, call))
    with pytest.raises(cu.CudaError) as caught:
        CALLS[call](stream, event)
    assert caught.value.call == call
    assert caught.value.status is cu.CUresult.CUDA_ERROR_NOT_PERMITTED
    assert str(caught.value).startswith(f"{call}: CUDA_ERROR_NOT_PERMITTED (800): ")
    if call != "cuCtxPushCurrent":
        CALLS[call](stream, event)  # the call works the second time


@pytest.mark.parametrize(
    ("call", "make"),
    [
        ("cuStreamCreateWithPriority", cu.Stream),
        ("cuEventCreate", cu.Event),
        ("cuCtxCreate_v2", made_context),
    ],
)
def test_out_of_memory(fault, call, make):
    fault(call, OUT_OF_MEMORY)
    with pytest.raises(cu.CudaOutOfMemoryError) as caught:
        make()
    assert isinstance(caught.value, MemoryError)


def test_a_failed_record_changes_nothing(stream, other, fault):
    buffer = cu.LockedBuffer.zeros(16)
    event = stream.record(cu.Event())
    buffer.fill_async(1, stream)
    fault("cuEventRecord")
    with pytest.raises(cu.CudaError):
        stream.record(event)
    other.wait(event)
    # The event still stands for the record before the fill.
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)


def test_a_failed_wait_orders_nothing(stream, other, fault):
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream)
    event = stream.record()
    fault("cuStreamWaitEvent")
    with pytest.raises(cu.CudaError):
        other.wait(event)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)


@pytest.mark.parametrize("call", ["cuStreamQuery", "cuEventQuery"])
def test_a_failed_synchronization_proves_nothing(busy, gate, fault, call):
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, busy)
    fault(call)
    with pytest.raises(cu.CudaError):
        busy.synchronize()
    assert buffer.borrowed
    gate.open()
    busy.synchronize()
    assert not buffer.borrowed


@pytest.mark.parametrize("call", ["cuEventCreate", "cuEventRecord", "cuStreamDestroy_v2"])
def test_a_close_that_failed_can_be_repeated(busy, gate, fault, call):
    buffer = cu.LockedBuffer.zeros(16)
    token = buffer.fill_async(1, busy)
    fault(call)
    with pytest.raises(cu.CudaError):
        busy.close()
    assert not busy.closed
    busy.close()
    assert not token.done
    gate.open()
    token.wait()
    assert buffer[0] == 1


def test_a_context_that_cannot_be_entered_is_no_unfinished_event(fault):
    event = cu.Event(timing=True)
    cu.Stream().record(event)
    event.synchronize()
    fault("cuCtxGetCurrent", NOT_READY)
    with pytest.raises(cu.CudaError, match="cuCtxGetCurrent"):
        event.elapsed_ms(event)


def test_errors_can_be_pickled(fault):
    fault("cuEventCreate")
    with pytest.raises(cu.CudaError) as caught:
        cu.Event()
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.status, copied.call) == (
        str(caught.value),
        caught.value.status,
        caught.value.call,
    )


def dying(make) -> list[warnings.WarningMessage]:
    """Call a function and drop its result. Returns the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        make()
        gc.collect()
    return said


def live(kind: str) -> int:
    """The number of live objects of a kind in the driver."""
    from cudadrv import testing

    return testing.live_objects()[kind]


@pytest.mark.cuda_allow("leaks")
def test_destructors_warn(fault):
    stream, event = [cu.Stream()], [cu.Event()]
    fault("cuStreamDestroy_v2")
    (said,) = dying(stream.clear)
    assert said.category is cu.CudaWarning
    assert str(said.message).startswith("cuStreamDestroy: CUDA_ERROR_NOT_PERMITTED (800)")
    fault("cuEventDestroy_v2")
    (said,) = dying(event.clear)
    assert said.category is cu.CudaWarning
    assert str(said.message).startswith("cuEventDestroy: CUDA_ERROR_NOT_PERMITTED (800)")


@pytest.mark.cuda_allow("leaks")
def test_warnings_that_are_errors_go_where_destructors_report(fault, monkeypatch):
    reported = []
    monkeypatch.setattr("sys.unraisablehook", reported.append)
    event = [cu.Event()]
    fault("cuEventDestroy_v2")
    event.clear()
    assert [each.exc_type for each in reported] == [cu.CudaWarning]


@pytest.mark.parametrize("function", ["cuEventCreate", "cuEventRecord", "cuStreamDestroy_v2"])
@pytest.mark.parametrize("status", [NOT_PERMITTED, OUT_OF_MEMORY])
def test_a_stream_that_died_fails_alone(gate, fault, function, status):
    """A later call destroys a dropped stream.

    If the driver refuses that, the call warns, and the next call tries again.
    """
    stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    event = cu.Event()
    before = live("streams")
    del stream
    fault(function, status)
    (said,) = dying(lambda: cu.Stream().close())
    assert said.category is cu.CudaWarning
    assert "a stream that died with unfinished work could not be destroyed, and will be later" in (
        str(said.message)
    )
    assert live("streams") == before
    assert not dying(lambda: event.closed or cu.Stream().close())
    assert live("streams") == before - 1
    with pytest.raises(cu.BufferBorrowedError):
        buffer[0]
    gate.open()
    cu.Device(0).synchronize()
    assert not buffer.borrowed


def test_a_stream_that_cannot_be_destroyed_says_so_once(gate, driver):
    """If a dropped stream cannot be destroyed, cudadrv warns once.

    Its work still counts as unfinished until its last event is complete.
    """
    from cudadrv import testing

    stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    before = live("streams")
    del stream
    testing.configure(f"fault=cuEventRecord:1:{NOT_PERMITTED}")
    assert len(dying(lambda: cu.Stream().close())) == 1
    testing.configure(f"fault=cuStreamDestroy_v2:1:{NOT_PERMITTED}")
    assert len(dying(cu.Event().close)) == len(dying(lambda: cu.Stream().close())) == 0
    testing.configure("fault=none")
    cu.Stream().close()
    assert live("streams") == before - 1
    gate.open()
    cu.reap()
    cu.Device(0).synchronize()
    assert not buffer.borrowed


def test_an_idle_stream_that_cannot_be_destroyed_is_destroyed_later(fault):
    stream = [cu.Stream()]
    before = live("streams")
    fault("cuStreamDestroy_v2")
    (said,) = dying(stream.clear)
    assert str(said.message).startswith("cuStreamDestroy: CUDA_ERROR_NOT_PERMITTED (800)")
    assert live("streams") == before
    assert not dying(lambda: cu.Stream().close())
    assert live("streams") == before - 1


def test_a_context_whose_device_does_not_answer(fault):
    """If making a context fails, no part of it is left, and the next attempt works."""
    fault("cuDeviceGetAttribute")
    with pytest.raises(cu.CudaError, match="cuDeviceGetAttribute"):
        made_context()
    gc.collect()
    made_context()


def test_the_handle_of_a_stream_that_died_is_refused(gate):
    """`from_handle` refuses the handle of a dropped stream, which is about to be destroyed."""
    stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    handle = stream.handle
    del stream
    with pytest.raises(ValueError, match="was a Stream that has died"):
        cu.Stream.from_handle(handle)
    gate.open()
    cu.Device(0).synchronize()


def test_an_event_that_others_recorded_in_a_capture_takes_no_stream_into_it(script):
    """A wait for an event that another library recorded in a capture is refused.

    The wait would make the stream join the capture. The stream's work would then never run, but
    count as complete.
    """
    script.quiet("""
        import ctypes
        import cudadrv as cu
        driver, theirs = ctypes.CDLL(cu.driver_info().path), ctypes.c_void_p()
        stream, event, buffer = cu.Stream(), cu.Event(), cu.LockedBuffer.zeros(8)
        stream.record(event)
        with cu.Device(0):
            assert driver.cuStreamCreate(ctypes.byref(theirs), 1) == 0
            assert driver.cuStreamBeginCapture_v2(theirs, 2) == 0
            assert driver.cuEventRecord(ctypes.c_void_p(event.handle), theirs) == 0
        try:
            stream.wait(event)
            raise AssertionError("not refused")
        except cu.OwnershipError as error:
            assert "recorded it last in a capture" in str(error), error
        buffer.fill_async(7, stream)
        stream.synchronize()
        assert buffer[0] == 7
        with cu.Device(0):
            driver.cuStreamEndCapture(theirs, ctypes.byref(ctypes.c_void_p()))
            assert driver.cuStreamDestroy_v2(theirs) == 0
        stream.record(event)
        stream.wait(event)
    """)
