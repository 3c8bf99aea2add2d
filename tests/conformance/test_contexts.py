"""Created contexts: stack, flags, limits, configuration; events for all work of a context."""

import ctypes
import threading

import pytest

from .client import (
    CAPTURE_UNSUPPORTED,
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    NON_BLOCKING,
    NOT_READY,
    SUCCESS,
)

UNSUPPORTED_LIMIT = 215
UNSUPPORTED_EXEC_AFFINITY = 224
NOT_SUPPORTED = 801


@pytest.fixture
def context(client):
    """A created context, which is current until the test ends."""
    context = ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    yield context.value
    client.call("cuCtxDestroy_v2", context)
    client.ok("cuCtxSetCurrent", client.lib.primary)


class CreateParameters(ctypes.Structure):
    """A CUctxCreateParams."""

    _fields_ = [
        ("affinity", ctypes.c_void_p),
        ("affinity_count", ctypes.c_int),
        ("graphics", ctypes.c_void_p),
    ]


def current(client):
    context = ctypes.c_void_p()
    client.ok("cuCtxGetCurrent", ctypes.byref(context))
    return context.value


def test_stack(client, context):
    popped = ctypes.c_void_p()
    client.ok("cuCtxPushCurrent_v2", client.lib.primary)
    assert current(client) == client.lib.primary
    client.ok("cuCtxPopCurrent_v2", ctypes.byref(popped))
    assert popped.value == client.lib.primary
    assert current(client) == context
    client.ok("cuCtxDestroy_v2", context)
    assert current(client) == client.lib.primary


def check_regular(client, handle):
    """Check that a context is current and works, and destroy it."""
    address, value = ctypes.c_uint64(), ctypes.c_uint32()
    assert current(client) == handle.value
    client.ok("cuMemAlloc_v2", ctypes.byref(address), 64)
    client.ok("cuMemsetD32_v2", address, 7, 16)
    client.ok("cuMemcpyDtoH_v2", ctypes.byref(value), address, 4)
    assert value.value == 7
    client.ok("cuCtxDestroy_v2", handle)


@pytest.mark.parametrize("given", ["nothing", "zeros", "an empty list"])
def test_created_with_parameters_that_ask_for_nothing(client, given):
    client.require("cuCtxCreate_v4")
    handle, some = ctypes.c_void_p(), (ctypes.c_uint64 * 4)()
    empty = CreateParameters(affinity=ctypes.addressof(some))
    parameters = {"nothing": None, "zeros": CreateParameters(), "an empty list": empty}[given]
    client.ok("cuCtxCreate_v4", ctypes.byref(handle), parameters and ctypes.byref(parameters), 0, 0)
    check_regular(client, handle)


@pytest.mark.parametrize("given", ["nothing", "an empty list"])
def test_created_with_no_affinity(client, given):
    handle, some = ctypes.c_void_p(), (ctypes.c_uint64 * 4)()
    affinity = None if given == "nothing" else some
    client.ok("cuCtxCreate_v3", ctypes.byref(handle), affinity, 0, 0, 0)
    check_regular(client, handle)


def test_created_with_what_a_device_lacks(software):
    handle, some = ctypes.c_void_p(), (ctypes.c_uint64 * 4)()
    at = ctypes.addressof(some)
    out = ctypes.byref(handle)
    assert software("cuCtxCreate_v3", out, some, 1, 0, 0) == UNSUPPORTED_EXEC_AFFINITY
    assert software("cuCtxCreate_v3", out, None, 1, 0, 0) == INVALID_VALUE
    affinity = ctypes.byref(CreateParameters(affinity=at, affinity_count=1))
    assert software("cuCtxCreate_v4", out, affinity, 0, 0) == UNSUPPORTED_EXEC_AFFINITY
    graphics = ctypes.byref(CreateParameters(graphics=at))
    assert software("cuCtxCreate_v4", out, graphics, 0, 0) == NOT_SUPPORTED
    assert handle.value is None


def test_pop_from_nothing(client):
    def run():
        results.append(client.call("cuCtxPopCurrent_v2", None))
        results.append(current(client))

    results = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [INVALID_CONTEXT, None]


def test_destroyed_under_another_thread(client, context):
    def run():
        client.ok("cuCtxSetCurrent", context)
        bound.set()
        destroyed.wait()
        results.append(client.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 64))
        results.append(client.call("cuCtxSynchronize"))

    results, bound, destroyed = [], threading.Event(), threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    bound.wait()
    client.ok("cuCtxDestroy_v2", context)
    destroyed.set()
    thread.join()
    assert results == [CONTEXT_IS_DESTROYED] * 2


def test_primary_cannot_be_destroyed(client):
    assert client.call("cuCtxDestroy_v2", client.lib.primary) == INVALID_CONTEXT


def test_attach_and_detach(client, context):
    again = ctypes.c_void_p()
    client.ok("cuCtxAttach", ctypes.byref(again), 0)
    assert again.value == context
    client.ok("cuCtxDetach", context)
    client.ok("cuCtxSynchronize")
    client.ok("cuCtxDetach", context)
    assert current(client) == client.lib.primary
    assert client.call("cuCtxAttach", ctypes.byref(again), 1) == INVALID_VALUE


def test_flags(client, context):
    flags = ctypes.c_uint(99)
    client.ok("cuCtxSetFlags", 4)
    client.ok("cuCtxGetFlags", ctypes.byref(flags))
    assert flags.value & 7 == 4
    assert client.call("cuCtxSetFlags", 1 << 20) == INVALID_VALUE
    assert client.call("cuCtxGetFlags", None) == INVALID_VALUE


def limit(client, number):
    value = ctypes.c_size_t(12345)
    client.ok("cuCtxGetLimit", ctypes.byref(value), number)
    return value.value


@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 6])
def test_limits_have_values(client, context, number):
    value = limit(client, number)
    assert value != 12345
    client.ok("cuCtxSetLimit", number, value)
    assert limit(client, number) == value


@pytest.mark.parametrize("number, value", [(0, 2048), (1, 2 << 20), (2, 16 << 20), (4, 4096)])
def test_limits_can_be_set(client, context, number, value):
    client.ok("cuCtxSetLimit", number, value)
    assert limit(client, number) >= value


def test_stack_size_is_rounded_up(client, context):
    client.ok("cuCtxSetLimit", 0, 1025)
    assert limit(client, 0) == 1040
    assert client.call("cuCtxSetLimit", 0, 1 << 40) == INVALID_VALUE


def test_limits_belong_to_a_context(client, context):
    before = limit(client, 0)
    client.ok("cuCtxSetLimit", 0, 4096)
    client.ok("cuCtxPushCurrent_v2", client.lib.primary)
    assert limit(client, 0) == before
    client.ok("cuCtxPopCurrent_v2", None)


def test_unknown_limits(client, context):
    value = ctypes.c_size_t()
    assert client.call("cuCtxGetLimit", ctypes.byref(value), 99) == INVALID_VALUE
    assert client.call("cuCtxSetLimit", 99, 1) == INVALID_VALUE
    assert client.call("cuCtxGetLimit", ctypes.byref(value), 3) == UNSUPPORTED_LIMIT
    assert client.call("cuCtxGetLimit", None, 0) == INVALID_VALUE


@pytest.mark.parametrize("name", ["Cache", "SharedMem"])
def test_configuration(client, context, name):
    value = ctypes.c_int(-1)
    client.ok(f"cuCtxGet{name}Config", ctypes.byref(value))
    assert value.value == (0 if name == "Cache" else 1)
    client.ok(f"cuCtxSet{name}Config", 1)
    client.ok(f"cuCtxGet{name}Config", ctypes.byref(value))
    assert value.value == 1
    assert client.call(f"cuCtxSet{name}Config", 99) == INVALID_VALUE
    assert client.call(f"cuCtxGet{name}Config", None) == INVALID_VALUE


def test_nothing_to_do(client):
    for name in ("cuCtxResetPersistingL2Cache", "cuProfilerStart", "cuProfilerStop"):
        assert client.call(name) == SUCCESS


@pytest.mark.parametrize("flags", [0, NON_BLOCKING])
def test_event_of_a_context(client, flags):
    streams, event = [client.stream(flags) for _ in range(2)], client.event()
    gates = [client.gate().hold(stream) for stream in streams]
    client.ok("cuCtxRecordEvent", client.lib.primary, event)
    gates[0].open()
    assert client.finish(streams[0]) == SUCCESS
    assert client.call("cuEventQuery", event) == NOT_READY
    gates[1].open()
    assert client.call("cuEventSynchronize", event) == SUCCESS


def test_context_waits_for_event(client):
    busy, event = client.stream(), client.event()
    before = client.stream()
    gate = client.gate().hold(busy)
    client.ok("cuEventRecord", event, busy)
    client.ok("cuCtxWaitEvent", client.lib.primary, event)
    after = client.stream()
    memory = client.device(64)
    for stream in (before, after):
        client.ok("cuMemsetD8Async", memory, 1, 64, stream)
        assert client.call("cuStreamQuery", stream) == NOT_READY
    gate.open()
    for stream in (before, after):
        assert client.finish(stream) == SUCCESS


def test_event_of_another_context(client, context):
    event = client.event()  # an event of the created context
    assert client.call("cuCtxRecordEvent", client.lib.primary, event) == INVALID_HANDLE
    client.ok("cuCtxWaitEvent", client.lib.primary, event)
    client.forget("cuEventDestroy_v2", event)
    client.ok("cuEventDestroy_v2", event)


@pytest.mark.parametrize("name", ["cuCtxRecordEvent", "cuCtxWaitEvent"])
def test_events_of_a_captured_context(client, name):
    stream, event = client.stream(), client.event()
    graph = ctypes.c_void_p()
    client.ok("cuStreamBeginCapture_v2", stream, 2)
    assert client.call(name, client.lib.primary, event) == CAPTURE_UNSUPPORTED
    assert client.call("cuStreamEndCapture", stream, ctypes.byref(graph)) == 901
