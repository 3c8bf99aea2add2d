"""Injected faults: allocations fail after some bytes, and devices are lost while work runs."""

import ctypes

import pytest

from .client import NOT_READY, OUT_OF_MEMORY, SUCCESS, Client, poll

pytestmark = pytest.mark.cuda_software

LAUNCH_FAILED = 719


@pytest.fixture
def faults(software, schedule):
    software.configure(f"schedule={schedule},seed=5,fault=none")
    yield lambda fault: software.configure(f"fault={fault}")
    software.configure("schedule=eager,seed=1,fault=none")


ALLOCATORS = {
    "cuMemAlloc_v2": (ctypes.c_uint64, ()),
    "cuMemAllocManaged": (ctypes.c_uint64, (1,)),
    "cuMemHostAlloc": (ctypes.c_void_p, (0,)),
    "cuMemAllocAsync": (ctypes.c_uint64, (None,)),
}


@pytest.mark.parametrize("name", ALLOCATORS)
def test_allocations_fail_after_some_bytes(software, faults, name):
    kind, more = ALLOCATORS[name]
    with Client(software) as client:
        faults("bytes:1KiB:2")
        client.device(512), client.host(512)
        result = kind()
        for _ in range(2):
            assert client.call(name, ctypes.byref(result), 8, *more) == OUT_OF_MEMORY
        faults("none")
        client.device(4096)


def test_what_does_not_fit_ends_it(software, faults):
    with Client(software) as client:
        faults("bytes:1000:2")
        client.device(500)
        address = ctypes.c_uint64()
        assert client.call("cuMemAlloc_v2", ctypes.byref(address), 501) == OUT_OF_MEMORY
        assert client.call("cuMemAlloc_v2", ctypes.byref(address), 1) == OUT_OF_MEMORY


@pytest.fixture
def doomed(software, faults):
    """A client in whose test the device may be lost. The driver is reset afterwards."""
    with Client(software) as client:
        yield client
        client._undo.clear()
    software("cudadrvSoftReset")
    context = ctypes.c_void_p()
    software.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    software.primary = context.value


def test_an_operation_loses_the_device(doomed, faults):
    stream, target = doomed.stream(), doomed.device(64)
    data = doomed.host(64, 1)
    doomed.ok("cuCtxSynchronize")
    faults("operation:3:719")
    gate = doomed.gate().hold(stream)
    for value in range(1, 5):
        # The call is accepted, because the failing operation has not run yet.
        doomed.ok("cuMemsetD8Async", target, value, 64, stream)
    doomed.ok("cuMemcpyDtoHAsync_v2", data, target, 64, stream)
    gate.open()
    assert doomed.call("cuStreamSynchronize", stream) == LAUNCH_FAILED
    assert doomed.call("cuMemsetD8Async", target, 1, 64, stream) == LAUNCH_FAILED
    assert doomed.call("cuMemFree_v2", target) == LAUNCH_FAILED
    assert ctypes.string_at(data, 64) == b"\x01" * 64, "work behind the fault ran"
    assert doomed.lib.pending() == 0


def test_polling_sees_it(doomed, faults):
    stream, event, target = doomed.stream(), doomed.event(), doomed.device(64)
    faults("operation:1:700")
    # A record cannot fail, so the fault does not count it.
    doomed.ok("cuEventRecord", event, stream)
    assert poll(lambda: doomed.call("cuEventQuery", event)) == SUCCESS
    status = doomed.call("cuMemsetD8Async", target, 1, 64, stream)
    assert status == SUCCESS
    assert poll(lambda: doomed.call("cuStreamQuery", stream)) == 700
    address = ctypes.c_uint64()
    assert doomed.call("cuMemAlloc_v2", ctypes.byref(address), 8) == 700


@pytest.mark.parametrize(
    "text, word",
    [
        ("bytes:many:2", "size"),
        ("bytes:1:0", "CUresult"),
        ("operation:0:719", "1 or more"),
        ("operation:1:2", "loses the device"),
        ("operation:1", "operation:NTH:STATUS"),
    ],
)
def test_bad_faults(software, text, word):
    assert software("cudadrvSoftConfigure", f"fault={text}".encode()) != SUCCESS
    assert word in software.error()


def test_random_frees_may_not_wait(software, faults):
    """cuMemFree of device memory need not wait for work: under some seeds it does not wait."""
    waited = set()
    for seed in range(20):
        software.configure(f"schedule=random,seed={seed}")
        with Client(software) as client:
            stream, unrelated = client.stream(), client.device(64)
            target = client.device(64)
            for _ in range(20):
                client.ok("cuMemsetD8Async", target, 1, 64, stream)
            client.forget("cuMemFree_v2", unrelated)
            client.ok("cuMemFree_v2", unrelated)
            waited.add(software.pending() == 0)
            assert client.read(target, 64) == b"\x01" * 64
    assert waited == {True, False}


def test_memory_freed_under_pending_work(software, faults):
    for seed in range(20):
        software.configure(f"schedule=random,seed={seed}")
        with Client(software) as client:
            stream, target = client.stream(), client.device(1 << 20)
            for _ in range(20):
                client.ok("cuMemsetD8Async", target, 1, 1 << 20, stream)
            client.forget("cuMemFree_v2", target)
            client.ok("cuMemFree_v2", target)
            assert client.read(client.device(1 << 20), 1 << 20) == b"\xcd" * (1 << 20)
            assert client.call("cuStreamQuery", stream) in (SUCCESS, NOT_READY)
    software.forget_races()
