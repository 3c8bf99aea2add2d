"""testing.reset_device: the software driver after a fault, in the same process."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing
from cudadrv._leftovers import reset_if_lost

pytestmark = pytest.mark.cuda_software

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) { ret; }
"""
FILL = """
.version 8.0
.target sm_80
.address_size 64
.visible .global .u32 value = 7;
.extern .shared .align 4 .b8 room[];
.visible .entry fill(.param .u64 p) {
    .reg .u64 %p;
    .reg .u32 %v;
    ld.param.u64 %p, [p];
    ld.global.u32 %v, [value];
    st.global.u32 [%p], %v;
    ret;
}
"""


@pytest.fixture
def lost(driver):
    """The objects that exist when the device is lost."""
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    locked = cu.LockedBuffer.from_array(np.arange(8, dtype="u1"))
    unified = cu.UnifiedBuffer.from_array(np.arange(8, dtype="u1"))
    things = {
        "stream": stream,
        "event": stream.record(),
        "buffer": buffer,
        "ordered": cu.DeviceBuffer(64, stream=stream),
        "locked": locked,
        "unified": unified,
        "token": locked.fill_async(7, stream),
        "context": stream.context,
        "pool": cu.DriverPool(name="mine"),
        "default pool": cu.DriverPool.of(),
    }
    with things["pool"]:
        things["of the pool"] = cu.DeviceBuffer(64)
    stream.synchronize()
    testing.fail("cuMemAlloc_v2", 700)
    with pytest.raises(cu.ContextLostError):
        cu.DeviceBuffer(1 << 20, pooled=False)
    yield things
    reset_if_lost()


USES = {
    "stream": lambda stream: stream.record(),
    "event": lambda event: event.synchronize(),
    "buffer": lambda buffer: buffer.fill(0),
    "ordered": lambda buffer: buffer.fill_async(0),
    "unified": lambda buffer: buffer.fill(0),
    "context": lambda context: context.synchronize(),
    "pool": lambda pool: pool.stats,
    "default pool": lambda pool: pool.__enter__(),
    "of the pool": lambda buffer: buffer.fill(0),
}


def test_everything_can_be_made_anew(lost):
    testing.reset_device()
    assert cu.Device(0).context is not lost["context"]
    for _ in range(2):
        with cu.Stream() as stream:
            buffer = cu.DeviceBuffer.from_array(np.arange(8, dtype="u1"))
            back = cu.LockedBuffer.zeros(8)
            buffer.fill_async(3, stream)
            back.copy_from_async(buffer, stream).wait()
            assert (back.to_numpy() == 3).all()
            cu.Module(PTX)["k"].launch(1, 1, buffer, stream=stream)
            stream.synchronize()
        assert cu.Stream.legacy() is not None
        assert cu.Stream.per_thread().done
        testing.reset_device()


@pytest.mark.parametrize("thing", USES)
def test_what_was_there_before_is_refused(lost, thing):
    testing.reset_device()
    cu.DeviceBuffer(8).fill(0)
    with pytest.raises(cu.ContextLostError, match=r"was reset|was lost"):
        USES[thing](lost[thing])
    for each in lost.values():
        if hasattr(each, "close"):
            each.close()


def test_page_locked_memory_is_ordinary_memory_then(lost):
    """After the reset, page-locked memory is ordinary memory, as after any loss of a context.

    The host can read it, and the driver does not know it.
    """
    testing.reset_device()
    locked, work = lost["locked"], cu.DeviceBuffer(8)
    assert (locked.to_numpy() == 7).all()
    work.copy_from(locked.to_numpy())
    with pytest.raises(cu.CudaError):
        locked.fill_async(0, cu.Stream())


def test_nothing_of_the_driver_is_touched_by_what_ends_later(lost):
    testing.reset_device()
    keep = cu.Stream(), cu.DeviceBuffer(64, pooled=False)
    before = testing.live_objects()
    lost.clear()
    gc.collect()
    cu.Device(0).synchronize()
    cu.reap()
    gc.collect()
    assert testing.live_objects() == before
    del keep


def test_modules_are_loaded_again(driver):
    """Libraries keep modules and kernels in caches, which live longer than a test."""
    module = cu.Module(FILL, name="cached")
    kernel = module["fill"]
    kernel.max_dynamic_shared_bytes = 1 << 16
    variable = module.global_("value", "u4")
    old = kernel.prepare(1, 1, cu.DeviceBuffer(1, "u4"))
    for _ in range(2):
        testing.reset_device()
        target = cu.DeviceBuffer(1, "u4")
        kernel.launch(1, 1, target, shared_bytes=1 << 16, stream=cu.Stream()).wait()
        assert target.to_numpy() == [7]
        assert module.context is cu.Device(0).context
        assert module["fill"] is kernel
        module.global_("value", "u4").fill(9)
        kernel.launch(1, 1, target, stream=cu.Stream()).wait()
        assert target.to_numpy() == [9]
        with pytest.raises(cu.ContextLostError, match="was reset"):
            variable.fill(1)
        with pytest.raises(cu.ContextLostError, match="was reset"):
            old.launch(cu.Stream())
    module.close()
    assert testing.live_objects()["modules"] == 0


def test_two_threads_load_a_module_again(driver):
    module = cu.Module(FILL)
    for _ in range(20):
        testing.reset_device()
        with ThreadPoolExecutor(2) as pool:
            names = list(pool.map(lambda _: list(module), range(2)))
        assert names == [["fill"], ["fill"]]
        cu.reap()
        assert testing.live_objects()["modules"] == 1


def test_a_module_that_cannot_be_loaded_again(driver):
    module, kernel = cu.Module(FILL), None
    kernel = module["fill"]
    testing.reset_device()
    for function in ("cuModuleLoadDataEx", "cuModuleGetFunction"):
        testing.fail(function, 2)
        with pytest.raises(cu.CudaError, match=r"\(2\)"):
            kernel.launch(1, 1, cu.DeviceBuffer(1, "u4"), stream=cu.Stream())
    kernel.launch(1, 1, cu.DeviceBuffer(1, "u4"), stream=cu.Stream()).wait()


def test_a_closed_module_stays_closed(driver):
    module = cu.Module(FILL)
    module.close()
    testing.reset_device()
    with pytest.raises(cu.ContextLostError, match="was reset"):
        module["fill"]


def test_a_module_of_a_created_context_stays_lost(driver):
    with cu.Context.create(cu.Device(0)):
        module = cu.Module(FILL)
    testing.reset_device()
    with pytest.raises(cu.ContextLostError, match="was reset"):
        module["fill"]


@pytest.mark.parametrize("name", ["locked", "unified"])
def test_arrays_stay_readable(driver, name):
    buffer = (cu.LockedBuffer if name == "locked" else cu.UnifiedBuffer).from_array(
        np.arange(1 << 16, dtype="u1"), pooled=False
    )
    array = np.asarray(buffer)
    testing.reset_device()
    other = cu.LockedBuffer.zeros(1 << 16, pooled=False)
    assert (array == np.arange(1 << 16, dtype="u1")).all()
    array[:] = 1
    assert (other.to_numpy() == 0).all()
    del array, buffer
    gc.collect()


def test_unfinished_work_is_dropped(driver, gate):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    gate.hold(stream)
    buffer.fill_async(1, stream)
    testing.reset_device()
    assert testing.pending() == 0
    with pytest.raises(cu.ContextLostError, match="was reset"):
        stream.synchronize()
    gate.flag = cu.LockedBuffer.zeros(1, "u4")


def test_settings_stay_and_findings_go(driver):
    testing.configure("instructions=1000")
    testing.fail("cuMemAlloc_v2", 2, nth=100)
    testing.reset_device()
    assert testing.settings()["instructions"] == "1000"
    assert testing.races() == []
    assert testing.kernel_fault() is None
    assert testing.live_objects()["streams"] == 0
