"""Features that only the software driver has: schedules, faults, counts, capacity."""

import ctypes
import itertools

import pytest

from cudadrv import toolkit

from .client import INVALID_VALUE, NOT_READY, OUT_OF_MEMORY, SUCCESS, Client, blocks

pytestmark = pytest.mark.cuda_software

INVALID_PTX, UNSUPPORTED_PTX_VERSION = 218, 222


@pytest.fixture
def settings(software):
    yield software.configure
    software.configure("schedule=eager,seed=1,memory=1GiB,fault=none,driver=13.0")
    software.configure("free_waits=schedule,capability=9.0,shared_rounding=1")


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
@pytest.mark.parametrize("waits", ["always", "never"])
def test_frees_wait_as_the_setting_says(software, settings, schedule, waits):
    for seed in range(8):
        settings(f"schedule={schedule},seed={seed},free_waits={waits}")
        with Client(software) as client:
            stream, unrelated = client.stream(), client.device(64)
            gate = client.gate().hold(stream)
            client.forget("cuMemFree_v2", unrelated)
            assert blocks(client, gate, "cuMemFree_v2", unrelated) == (waits == "always")


def test_frees_wait_by_seed(software, settings):
    found = set()
    for seed in range(20):
        settings(f"schedule=random,seed={seed},free_waits=schedule")
        with Client(software) as client:
            stream, unrelated = client.stream(), client.device(64)
            gate = client.gate().hold(stream)
            client.forget("cuMemFree_v2", unrelated)
            found.add(blocks(client, gate, "cuMemFree_v2", unrelated))
    assert found == {True, False}


def version_of(software):
    version = ctypes.c_int()
    software.ok("cuDriverGetVersion", ctypes.byref(version))
    return version.value


def load(software, text):
    """Load a PTX text. Returns the status and the error log."""
    log, module = ctypes.create_string_buffer(1000), ctypes.c_void_p()
    names = (ctypes.c_int * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 1000)
    software.ok("cuCtxSetCurrent", software.primary)
    status = software("cuModuleLoadDataEx", ctypes.byref(module), text, 2, names, values)
    if status == SUCCESS:
        software.ok("cuModuleUnload", module)
    return status, log.value.decode()


@pytest.mark.parametrize(
    ("driver", "newest"),
    [
        *(("12.0", "8.0"), ("12.4", "8.4"), ("12.5", "8.5"), ("12.6", "8.5"), ("12.7", "8.6")),
        *(("12.9", "8.8"), ("13.0", "9.0"), ("13.1", "9.1"), ("13.5", "9.5")),
    ],
)
def test_the_driver_reads_ptx_up_to_its_own(software, settings, driver, newest):
    """The setting `driver` determines the newest PTX version that loads, as in NVIDIA's table."""
    settings(f"driver={driver}")
    assert f",driver={driver}," in software.settings()
    major, minor = map(int, driver.split("."))
    assert version_of(software) == 1000 * major + 10 * minor
    assert toolkit.newest_ptx((major, minor)) == tuple(map(int, newest.split(".")))
    head = b".version %s\n.target sm_75\n.address_size 64\n"
    assert load(software, head % newest.encode())[0] == SUCCESS
    later = f"{newest[:-1]}{int(newest[-1]) + 1}"
    status, log = load(software, head % later.encode())
    assert status == UNSUPPORTED_PTX_VERSION
    assert f".version {later}: the newest known is {newest}" in log


def test_new_instructions_are_refused_with_their_line(software, settings):
    settings("driver=13.5")
    body = b".reg .b32 %r<2>;\nfrobnicate.u32 %r0, %r1;\nret;"
    text = b".version 9.5\n.target sm_90\n.address_size 64\n.entry k() {\n%s\n}\n" % body
    status, log = load(software, text)
    assert status == INVALID_PTX
    assert "line 6" in log
    assert "frobnicate.u32" in log


HEAD = b".version 9.0\n.target %s\n.address_size 64\n"


@pytest.mark.parametrize(
    ("capability", "fits", "others"),
    [
        ("9.0", "sm_75 sm_90 sm_90a", "sm_100 sm_100a sm_100f sm_120 sm_80a sm_90f"),
        ("10.0", "sm_90 sm_100 sm_100a sm_100f", "sm_90a sm_103 sm_103a sm_120f"),
    ],
)
def test_the_capability_of_the_devices(software, settings, capability, fits, others):
    """PTX for older devices loads. PTX for one device or family loads only on such a device."""
    settings(f"capability={capability}")
    assert f",capability={capability}," in software.settings()
    major, minor = ctypes.c_int(), ctypes.c_int()
    software.ok("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), 0)
    assert f"{major.value}.{minor.value}" == capability
    for target in fits.split():
        assert load(software, HEAD % target.encode())[0] == SUCCESS
    for target in others.split():
        status, log = load(software, HEAD % target.encode())
        assert status == INVALID_PTX
        assert f"the target {target} is " in log


def test_capabilities_that_no_device_has(software, settings):
    for value in ("9", "8.0", "10.3", "12.0", "90", ""):
        assert software("cudadrvSoftConfigure", f"capability={value}".encode()) != SUCCESS
        assert "9.0 or 10.0" in software.error()


def test_rounding_of_shared_memory(software, settings):
    settings("shared_rounding=128")
    assert ",shared_rounding=128," in software.settings()
    for value in ("0", "1025", "-1", "a", ""):
        assert software("cudadrvSoftConfigure", f"shared_rounding={value}".encode()) != SUCCESS
        assert "shared_rounding must be 1 to 1024 bytes" in software.error()


def test_tcgen05_is_refused_by_name(software, settings):
    settings("driver=13.5,capability=10.0")
    body = b".reg .b32 %r<2>;\ntcgen05.wait::ld.sync.aligned;\nret;"
    status, log = load(software, HEAD % b"sm_100a" + b".entry k() {\n%s\n}\n" % body)
    assert status == INVALID_PTX
    assert "line 6" in log
    assert "tcgen05.wait::ld.sync.aligned: not supported by the software driver" in log


@pytest.mark.parametrize("driver", ["11.8", "12.10", "13.6", "14.0", "13", "13.0.1", "new"])
def test_other_drivers_are_refused(software, settings, driver):
    assert software("cudadrvSoftConfigure", f"driver={driver}".encode()) != SUCCESS
    assert "12.0 to 12.9 or 13.0 to 13.5" in software.error()


def test_an_old_driver_has_no_newer_functions(software, settings):
    """With an old driver version, cuGetProcAddress refuses newer versions and newer functions."""

    def find(name, version):
        address, result = ctypes.c_void_p(), ctypes.c_int()
        status = software(
            "cuGetProcAddress_v2", name, ctypes.byref(address), version, 0, ctypes.byref(result)
        )
        return status, bool(address.value)

    settings("driver=12.2")
    assert find(b"cuStreamGetDevice", 12080) == (INVALID_VALUE, False)
    assert find(b"cuStreamGetDevice", -1) == (SUCCESS, False)
    assert find(b"cuStreamGetId", 12020) == (SUCCESS, True)
    settings("driver=13.5")
    assert find(b"cuStreamGetDevice", 13050) == (SUCCESS, True)


def test_lazy_runs_nothing_unasked(software, settings):
    settings("schedule=lazy")
    with Client(software) as client:
        first, second, target = client.stream(), client.stream(), client.device(64)
        client.ok("cuMemsetD8Async", target, 1, 64, first)
        client.ok("cuMemsetD8Async", target, 2, 64, second)
        assert software.pending() == 2
        client.ok("cuStreamSynchronize", second)
        assert software.pending() == 1
        client.ok("cuStreamSynchronize", first)
        assert software.pending() == 0


def test_lazy_follows_event_waits(software, settings):
    settings("schedule=lazy")
    with Client(software) as client:
        first, second, third = client.stream(), client.stream(), client.stream()
        event, target = client.event(), client.device(64)
        client.ok("cuMemsetD8Async", target, 1, 64, first)
        client.ok("cuEventRecord", event, first)
        client.ok("cuMemsetD8Async", target, 1, 64, first)
        client.ok("cuMemsetD8Async", target, 1, 64, third)
        client.ok("cuStreamWaitEvent", second, event, 0)
        client.ok("cuStreamSynchronize", second)
        assert software.pending() == 2


@pytest.mark.parametrize("text, seed", [("010", 10), ("08", 8), ("0x1F", 31), ("0", 0)])
def test_numbers_in_settings_are_decimal(software, settings, text, seed):
    settings(f"seed={text}")
    assert f"seed={seed}," in software.settings()


@pytest.mark.parametrize("schedule", ["lazy", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_polling_ends(software, settings, schedule, seed):
    settings(f"schedule={schedule},seed={seed}")
    with Client(software) as client:
        stream, event, target = client.stream(), client.event(), client.device(64)
        for name, handle in (("cuStreamQuery", stream), ("cuEventQuery", event)):
            client.ok("cuMemsetD8Async", target, 1, 64, stream)
            client.ok("cuEventRecord", event, stream)
            answers = [client.call(name, handle) for _ in range(5)]
            assert answers[-1] == SUCCESS
            assert set(answers) <= {SUCCESS, NOT_READY}
        client.ok("cuCtxSynchronize")


def order_of_execution(software, seed):
    """The order in which three streams append their number to a list in host memory."""
    software.configure(f"schedule=random,seed={seed}")
    with Client(software) as client:
        streams = [client.stream() for _ in range(3)]
        cell, log = client.device(64), client.host(64)
        for step, stream in itertools.product(range(6), range(3)):
            client.ok("cuMemsetD8Async", cell, 10 * step + stream, 1, streams[stream])
            client.ok("cuMemcpyDtoHAsync_v2", log + 3 * step + stream, cell, 1, streams[stream])
        client.ok("cuCtxSynchronize")
        return ctypes.string_at(log, 18)


def test_random_is_replayable(software, settings):
    first = [order_of_execution(software, seed) for seed in range(8)]
    again = [order_of_execution(software, seed) for seed in range(8)]
    assert first == again
    assert len(set(first)) > 1


def test_drain(software, settings):
    settings("schedule=lazy")
    with Client(software) as client:
        stream, target = client.stream(), client.device(64)
        client.ok("cuMemsetD8Async", target, 1, 64, stream)
        assert software.pending() == 1
        software("cudadrvSoftDrain")
        assert software.pending() == 0


def test_fault_strikes_once(software, settings):
    with Client(software) as client:
        client.device(64)
        settings("fault=cuMemAlloc_v2:2:2,fault=cuEventCreate:1:999")
        client.device(64)
        address = ctypes.c_uint64()
        assert client.call("cuMemAlloc_v2", ctypes.byref(address), 64) == OUT_OF_MEMORY
        assert client.call("cuEventCreate", ctypes.byref(address), 0) == 999
        client.device(64)
        client.event()


def test_faults_can_be_cleared(software, settings):
    settings("fault=cuMemAlloc_v2:1:2")
    settings("fault=none")
    with Client(software) as client:
        client.device(64)


def test_bad_settings_change_nothing(software, settings):
    status = software("cudadrvSoftConfigure", b"memory=16MiB,schedule=sometimes")
    assert status != SUCCESS
    assert "schedule" in software.error()
    with Client(software) as client:
        client.device(32 << 20)


def test_capacity(software, settings):
    settings("memory=8MiB")
    with Client(software) as client:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        first = client.device(5 << 20)
        address = ctypes.c_uint64()
        assert client.call("cuMemAlloc_v2", ctypes.byref(address), 5 << 20) == OUT_OF_MEMORY
        client.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        assert (free.value, total.value) == (3 << 20, 8 << 20)
        client.forget("cuMemFree_v2", first)
        client.ok("cuMemFree_v2", first)
        client.device(5 << 20)


@pytest.mark.parametrize("size", [64, 1 << 20, 20 << 20])
def test_fresh_memory_is_not_zero(software, settings, size):
    with Client(software) as client:
        for _ in range(3):
            address = client.device(size)
            assert client.read(address, size) == b"\xcd" * size
            client.ok("cuMemsetD8_v2", address, 0, size)
            client.forget("cuMemFree_v2", address)
            client.ok("cuMemFree_v2", address)


def test_addresses_are_not_reused(software, settings):
    with Client(software) as client:
        seen = set()
        for _ in range(1000):
            address = client.device(4096)
            assert address not in seen
            seen.add(address)
            client.forget("cuMemFree_v2", address)
            client.ok("cuMemFree_v2", address)


def test_addresses_come_back_in_the_end(software, settings):
    settings("memory=64MiB")
    with Client(software) as client:
        client.device(4096)
        for _ in range(1200):
            address = client.device(63 << 20)
            client.forget("cuMemFree_v2", address)
            client.ok("cuMemFree_v2", address)


def test_stream_handles_are_reused_under_random(software, settings):
    settings("schedule=random")
    with Client(software) as client:
        handles = []
        for _ in range(20):
            stream = client.stream()
            handles.append(stream)
            client.forget("cuStreamDestroy_v2", stream)
            client.ok("cuStreamDestroy_v2", stream)
        assert len(set(handles)) < len(handles)


def test_counts(software, settings):
    before = software.counts()
    with Client(software) as client:
        client.device(100), client.host(100), client.managed(100), client.stream(), client.event()
        after = software.counts()
    assert {kind: after[kind] - before[kind] for kind in after} == {
        "device": 1,
        "async": 0,
        "host": 1,
        "managed": 1,
        "registered": 0,
        "arrays": 0,
        "textures": 0,
        "surfaces": 0,
        "reservations": 0,
        "backings": 0,
        "streams": 1,
        "events": 1,
        "graphs": 0,
        "execs": 0,
        "objects": 0,
        "modules": 0,
        "libraries": 0,
        "links": 0,
        "pools": 0,
        "contexts": 0,
        "primary": 0,
        "bytes": 300,
    }
    assert software.counts() == before


def test_calls_are_counted(software, settings):
    before, total = software.calls("cuStreamQuery"), software.calls()
    with Client(software) as client:
        client.call("cuStreamQuery", None)
        client.call("cuStreamQuery_ptsz", None)
    assert software.calls("cuStreamQuery") == before + 2
    assert software.calls() >= total + 3


def test_name_says_what_it_is(software):
    name = ctypes.create_string_buffer(100)
    software.ok("cuDeviceGetName", name, 100, 0)
    assert b"not a GPU" in name.value
