"""cuda.core on the software driver."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from cuda.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    Host,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    ObjectCode,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    Program,
    ProgramOptions,
    StreamOptions,
    launch,
)
from cuda.core.utils import discard_batch, discard_prefetch_batch, prefetch_batch

pytestmark = pytest.mark.usefixtures("device")
N = 5000  # bytes
PATIENCE = 120  # seconds; a process takes two seconds to start


@pytest.fixture
def other(device):
    stream = device.create_stream()
    yield stream
    stream.sync()
    stream.close()


@pytest.fixture
def source(stream):
    """Page-locked memory with some contents."""
    buffer = LegacyPinnedMemoryResource().allocate(N, stream=stream)
    array(buffer)[:] = np.arange(N) % 251
    yield buffer
    buffer.close()


@pytest.fixture
def target(stream):
    buffer = LegacyPinnedMemoryResource().allocate(N, stream=stream)
    array(buffer)[:] = 0
    yield buffer
    buffer.close()


def array(buffer):
    return np.from_dlpack(buffer).view("u1")


def assert_round_trip(buffer, stream, source, target):
    """Check that a copy to the buffer and back returns the same bytes."""
    source.copy_to(buffer, stream=stream)
    buffer.copy_to(target, stream=stream)
    stream.sync()
    assert np.array_equal(array(target), array(source))


def test_device(device):
    assert "software" in device.name
    assert [other.device_id for other in Device.get_all_devices()] == [0, 1]
    assert device.uuid != Device(1).uuid
    assert device.compute_capability == (9, 0)
    properties = device.properties
    names = [name for name in dir(properties) if not name.startswith("_")]
    # Reading a property must not raise.
    values = {name: getattr(properties, name) for name in names}
    assert values["warp_size"] == 32
    assert values["memory_pools_supported"]


def test_streams(device):
    stream = device.create_stream(options=StreamOptions(nonblocking=False, priority=0))
    assert not stream.is_nonblocking
    assert stream.priority == 0
    assert stream.device == device
    stream.sync()
    stream.close()
    device.default_stream.sync()


def test_default_memory(device, stream, source, target):
    buffer = device.allocate(N, stream=stream)
    assert (buffer.is_device_accessible, buffer.is_host_accessible) == (True, False)
    assert (buffer.size, buffer.device_id) == (N, 0)
    assert_round_trip(buffer, stream, source, target)
    buffer.close(stream)


def test_copies(device, stream, source, target):
    first, second = (device.allocate(N, stream=stream) for _ in range(2))
    first.copy_from(source, stream=stream)
    second.copy_from(first, stream=stream)
    assert_round_trip(second, stream, source, target)
    for buffer in (first, second):
        buffer.close(stream)


@pytest.mark.parametrize("value", [7, b"\x01\x02", b"\x01\x02\x03\x04"])
def test_fill(device, stream, target, value):
    buffer = device.allocate(N, stream=stream)
    buffer.fill(value, stream=stream)
    buffer.copy_to(target, stream=stream)
    buffer.close(stream)
    stream.sync()
    pattern = bytes([value]) if isinstance(value, int) else value
    assert array(target).tobytes() == pattern * (N // len(pattern))


def test_event_orders_streams(device, stream, other, source, target):
    buffer = device.allocate(N, stream=stream)
    buffer.copy_from(source, stream=stream)
    other.wait(stream.record())
    buffer.copy_to(target, stream=other)
    other.sync()
    assert np.array_equal(array(target), array(source))
    buffer.close(other)


def test_stream_waits_for_stream(device, stream, other, source, target):
    buffer = device.allocate(N, stream=stream)
    buffer.copy_from(source, stream=stream)
    other.wait(stream)
    buffer.copy_to(target, stream=other)
    other.sync()
    assert np.array_equal(array(target), array(source))
    buffer.close(other)


def test_events(device, stream, source):
    options = EventOptions(timing_enabled=True)
    buffer = device.allocate(N, stream=stream)
    start = stream.record(options=options)
    buffer.copy_from(source, stream=stream)
    end = stream.record(options=options)
    assert any(end.is_done for _ in range(100))
    end.sync()
    assert end - start >= 0
    with pytest.raises(RuntimeError, match="timing"):
        stream.record() - start
    buffer.close(stream)


def test_own_pool(device, stream, source, target):
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 20))
    assert pool.attributes.used_mem_current == 0
    buffer = pool.allocate(N, stream=stream)
    assert pool.attributes.used_mem_current >= N
    assert_round_trip(buffer, stream, source, target)
    buffer.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0
    pool.close()


def test_pool_for_another_device(device, stream, source, target):
    second = Device(1)
    assert device.can_access_peer(second)
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 20))
    pool.peer_accessible_by = [second]
    assert list(pool.peer_accessible_by) == [second]
    buffer = pool.allocate(N, stream=stream)
    stream.sync()
    second.set_current()
    elsewhere = second.create_stream()
    assert_round_trip(buffer, elsewhere, source, target)
    elsewhere.close()
    device.set_current()
    buffer.close(stream)
    pool.peer_accessible_by = []
    pool.close()


def test_pinned_pool(stream, target):
    buffer = PinnedMemoryResource().allocate(N, stream=stream)
    assert buffer.is_host_accessible
    stream.sync()
    array(buffer)[:] = 5
    buffer.copy_to(target, stream=stream)
    stream.sync()
    assert (array(target) == 5).all()
    buffer.close(stream)


def test_managed_pool(device, stream, target):
    buffer = ManagedMemoryResource().allocate(N, stream=stream)
    assert buffer.is_managed
    buffer.fill(4, stream=stream)
    stream.sync()
    assert (array(buffer) == 4).all()
    buffer.prefetch(device, stream=stream)
    buffer.prefetch(Host(), stream=stream)
    stream.sync()
    buffer.close(stream)


def test_own_pinned_pools(stream, target):
    for options in ({"max_size": 1 << 20}, {"numa_id": 0}):
        pool = PinnedMemoryResource(PinnedMemoryResourceOptions(**options))
        buffer = pool.allocate(N, stream=stream)
        stream.sync()
        assert pool.attributes.used_mem_current >= N
        array(buffer)[:] = 6
        buffer.copy_to(target, stream=stream)
        stream.sync()
        assert (array(target) == 6).all()
        buffer.close(stream)
        pool.close()


@pytest.mark.parametrize(
    "options",
    [
        {"preferred_location": 0, "preferred_location_type": "device"},
        {"preferred_location_type": "host"},
        {"preferred_location": 0, "preferred_location_type": "host_numa"},
    ],
    ids=lambda options: options["preferred_location_type"],
)
def test_own_managed_pools(device, stream, target, options):
    pool = ManagedMemoryResource(ManagedMemoryResourceOptions(**options))
    buffer = pool.allocate(N, stream=stream)
    buffer.fill(4, stream=stream)
    stream.sync()
    array(buffer)[:10] = 5
    buffer.prefetch(device, stream=stream)
    buffer.copy_to(target, stream=stream)
    stream.sync()
    assert (array(target) == [5] * 10 + [4] * (N - 10)).all()
    assert not buffer.read_mostly
    buffer.close(stream)
    pool.close()


def test_batches(device, stream):
    pool = ManagedMemoryResource()
    buffers = [pool.allocate(N, stream=stream) for _ in range(3)]
    for buffer in buffers:
        buffer.fill(4, stream=stream)
    prefetch_batch(stream, buffers, [device, Host(), device])
    discard_batch(stream, buffers[:1])
    discard_prefetch_batch(stream, buffers[1:2], device)
    buffers[0].fill(5, stream=stream)
    buffers[1].fill(6, stream=stream)
    stream.sync()
    assert [array(buffer).tolist() for buffer in buffers] == [[n] * N for n in (5, 6, 4)]
    for buffer in buffers:
        buffer.close(stream)


def sharing_pool(device, kind):
    if kind == "device":
        options = DeviceMemoryResourceOptions(max_size=1 << 20, ipc_enabled=True)
        return DeviceMemoryResource(device, options)
    return PinnedMemoryResource(PinnedMemoryResourceOptions(max_size=1 << 20, ipc_enabled=True))


@pytest.mark.filterwarnings("ignore:.*fork:UserWarning")  # cuda.core asks for the start method
@pytest.mark.parametrize("kind", ["device", "pinned"])
def test_buffer_of_another_process(monkeypatch, device, stream, source, target, kind):
    """The queue exports the buffer in a thread of its own, which has no current context."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    from core_process import invert

    pool = sharing_pool(device, kind)
    buffer = pool.allocate(N, stream=stream)
    buffer.copy_from(source, stream=stream)
    stream.sync()
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    other = spawn.Process(target=invert, args=(pool, queue))
    other.start()
    queue.put(buffer)
    other.join(PATIENCE)
    assert other.exitcode == 0
    buffer.copy_to(target, stream=stream)
    stream.sync()
    assert np.array_equal(array(target), array(source) ^ 255)
    buffer.close(stream)
    stream.sync()
    pool.close()


@pytest.mark.parametrize("kind", ["device", "pinned"])
def test_buffer_of_another_pool(device, stream, kind):
    """A buffer cannot be imported into another pool. The test needs no second process."""
    pools = [sharing_pool(device, kind) for _ in range(2)]
    buffer = pools[0].allocate(N, stream=stream)
    stream.sync()
    imported = type(pools[1]).from_allocation_handle(
        *([device] if kind == "device" else []), pools[1].allocation_handle
    )
    with pytest.raises(Exception, match="INVALID_VALUE"):
        Buffer.from_ipc_descriptor(imported, buffer.ipc_descriptor, stream=stream)
    buffer.close(stream)
    stream.sync()
    for pool in (imported, *pools):
        pool.close()


def test_errors(device, stream):
    with pytest.raises(Exception, match="OUT_OF_MEMORY"):
        device.allocate(1 << 30, stream=stream)
    with pytest.raises(ValueError, match="device_id"):
        Device(2)


SOURCE = """
extern "C" __global__ void scale(unsigned *at, unsigned n, unsigned by)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        at[i] *= by;
}
"""


def ptx_from_source(_):
    return Program(SOURCE, "c++", ProgramOptions(arch="sm_90")).compile("ptx")


def cubin_from_source(_):
    """Compile to a "cubin". The NVRTC of `cudadrv run` returns PTX in place of it."""
    return Program(SOURCE, "c++").compile("cubin")


@pytest.mark.parametrize("code", [ObjectCode.from_ptx, ptx_from_source, cubin_from_source])
def test_kernel(code, scale, stream, source, target):
    kernel = code(scale).get_kernel("scale")
    assert kernel.num_arguments == 3
    config = LaunchConfig(grid=10, block=125)
    launch(stream, config, kernel, source, np.uint32(N // 4), np.uint32(3))
    source.copy_to(target, stream=stream)
    stream.sync()
    expected = (np.arange(N) % 251).astype("u1").view("u4") * 3
    assert (array(target).view("u4") == expected).all()


@pytest.mark.filterwarnings("ignore:libnvJitLink.* is too old:RuntimeWarning")
def test_linked_code(scale):
    """nvJitLink is hidden, so the driver links, and the linked code runs."""
    program = Program(scale.decode(), "ptx", ProgramOptions(arch="sm_90"))
    assert program.compile("cubin").get_kernel("scale")


@pytest.mark.filterwarnings("ignore:libnvJitLink.* is too old:RuntimeWarning")
def test_linked_cubins(stream, source):
    """Two relocatable cubins, of which one calls a function of the other."""
    caller = SOURCE.replace("*= by", "= times(at[i], by)")
    declared = "__device__ unsigned times(unsigned a, unsigned b)"
    options = ProgramOptions(arch="sm_90", relocatable_device_code=True)
    sources = f"extern {declared};\n{caller}", f"{declared} {{ return a * b; }}"
    parts = [Program(text, "c++", options).compile("cubin") for text in sources]
    code = Linker(*parts, options=LinkerOptions(arch="sm_90")).link("cubin")
    arguments = source, np.uint32(N // 4), np.uint32(3)
    launch(stream, LaunchConfig(grid=10, block=125), code.get_kernel("scale"), *arguments)
    stream.sync()
    assert (array(source).view("u4") == (np.arange(N) % 251).astype("u1").view("u4") * 3).all()


@pytest.mark.filterwarnings("ignore:libnvJitLink.* is too old:RuntimeWarning")
def test_a_link_that_fails(device):
    options = ProgramOptions(name="caller", arch="sm_90", relocatable_device_code=True)
    caller = Program(
        "extern __device__ void far(); __global__ void near() { far(); }", "c++", options
    )
    linker = Linker(caller.compile("ptx"), options=LinkerOptions(arch="sm_90"))
    with pytest.raises(Exception, match="Undefined reference to '_Z3farv' in 'caller'"):
        linker.link("cubin")


def test_the_device_for_nvml(device):
    assert device.to_system_device().uuid_without_prefix == device.uuid
