"""What the software driver says about a kernel that fails: whose memory it was, and its launch."""

import ctypes
import re

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
.visible .entry write(.param .u64 p, .param .s64 offset) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    ld.param.s64 %rd2, [offset];
    add.s64 %rd1, %rd1, %rd2;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
HERE = r"\S*test_kernel_fault_names\.py:\d+"  # where given() makes the buffer
LAUNCH = r"; launch of write on Stream 'mine', queued at \S*test_kernel_fault_names\.py:\d+$"


@pytest.fixture(autouse=True)
def reset(driver):
    yield
    reset_if_lost()


def write(stream, *arguments):
    cu.Module(PTX)["write"].launch(1, 1, *arguments, stream=stream)
    stream.synchronize()


def fail(*arguments):
    """Run a kernel that fails. Return the text of the fault, which the exception has, too."""
    with cu.Stream(name="mine") as stream, pytest.raises(cu.ContextLostError) as caught:
        write(stream, *arguments)
    text = testing.kernel_fault()
    assert f"\n{text}\nThe context is lost." in str(caught.value)
    assert re.search(LAUNCH, text), text
    return text


def given():
    return cu.DeviceBuffer.zeros(64, np.uint32, pooled=False, name="given")


@pytest.mark.parametrize("races", ["record", "off"])
@pytest.mark.parametrize(
    "offset, said",
    [
        (256, "0 bytes beyond the end of the 256 bytes"),
        (6, "6 bytes into the 256 bytes"),
        (-4, "4 bytes before the 256 bytes"),
    ],
)
def test_memory_has_the_name_of_its_buffer(offset, said, races):
    with testing.configured(f"races={races}"):
        text = fail(given(), np.int64(offset))
    wanted = rf"{said} at 0x\w+ that cuMemAlloc_v2 made \(DeviceBuffer 'given', made at {HERE}\);"
    assert re.search(wanted, text), text


def test_it_is_printed_once(capfd):
    text = fail(given(), np.int64(256))
    assert capfd.readouterr().err.count(text) == 1


def closed(make, **options):
    """Make a buffer and close it. Return its address."""
    buffer = make(64, np.uint32, name="old", **options)
    address = buffer.address
    buffer.close()
    return address


def dropped(make, **options):
    buffer = make(64, np.uint32, name="old", **options)
    address = buffer.address
    del buffer
    return address


MADE = rf"DeviceBuffer 'old', made at {HERE}"
UNPOOLED = {"pooled": False}


@pytest.mark.parametrize(
    ("make", "options", "who", "end"),
    [
        (closed, UNPOOLED, "cuMemFree_v2", f", closed at {HERE}"),
        (closed, {}, "cuMemFree_v2", f", closed at {HERE}"),
        (closed, {"capacity": 1 << 20}, "cuMemAddressFree", f", closed at {HERE}"),
        (dropped, UNPOOLED, "cuMemFree_v2", " and dropped"),
        (dropped, {}, "cuMemFree_v2", " and dropped"),
    ],
    ids=["closed", "closed, in a pool", "closed, growing", "dropped", "dropped, in a pool"],
)
def test_freed_memory_has_the_name_of_its_last_buffer(driver, make, options, who, end):
    address = make(cu.DeviceBuffer, **options)
    cu.Device().context.pools.device.trim()
    cu.reap()
    text = fail(np.uint64(address), np.int64(8))
    assert re.search(rf" and {who} freed \({MADE}{end}\); launch of", text), text


def test_the_buffer_that_had_freed_memory_last(driver):
    """Both have had the same memory of the pool, and both names are kept."""
    first = closed(cu.DeviceBuffer)
    second = cu.DeviceBuffer(60, np.uint32, name="newer")
    assert second.address == first
    second.close()
    cu.Device().context.pools.device.trim()
    cu.reap()
    text = fail(np.uint64(first), np.int64(0))
    assert "(DeviceBuffer 'newer', made at" in text


@pytest.mark.parametrize("kind", [cu.LockedBuffer, cu.UnifiedBuffer])
def test_freed_memory_that_the_host_can_read(driver, kind):
    text = fail(np.uint64(closed(kind, pooled=False)), np.int64(0))
    assert re.search(rf"freed \({kind.__name__} 'old', made at {HERE}, closed at {HERE}\);", text)


def test_a_variable_of_a_closed_module(driver):
    module = cu.Module(PTX.replace(".visible", ".visible .global .u32 word[64];\n.visible", 1))
    address = module.global_("word", np.uint32).address
    module.close()
    text = fail(np.uint64(address), np.int64(0))
    assert re.search(rf"freed \([^()]*'word'[^()]*, made at {HERE}, closed at {HERE}\);", text)


def test_freed_memory_of_others_has_no_name(driver):
    """cudadrv knew a buffer over the memory, but not who freed it."""
    address = cu.DeviceBuffer(64, np.uint32, pooled=False).into_raw()
    cu.DeviceBuffer.from_address(address, 64, np.uint32, name="view").close()
    with cu.Device().context:
        assert ctypes.CDLL(cu.driver_info().path).cuMemFree_v2(ctypes.c_uint64(address)) == 0
    text = fail(np.uint64(address), np.int64(0))
    assert "cuMemFree_v2 freed; launch of" in text


def test_many_closed_buffers(driver):
    """The names of the last thousand are kept."""
    old = closed(cu.DeviceBuffer, pooled=False)
    new = [closed(cu.DeviceBuffer, pooled=False) for _ in range(1024)]
    assert "DeviceBuffer 'old'" in fail(np.uint64(new[0]), np.int64(0))
    testing.reset_device()
    assert "DeviceBuffer" not in fail(np.uint64(old), np.int64(0))


def test_a_launch_of_a_graph():
    buffer, graph = given(), cu.Graph(name="step")
    kernel = cu.Module(PTX)["write"]
    with cu.Stream(name="mine") as stream:
        with graph.capture(stream):
            kernel.launch(1, 1, buffer, np.int64(256), stream=stream)
        executable = graph.instantiate()
        with pytest.raises(cu.ContextLostError):
            executable.launch(stream).wait()
    text = testing.kernel_fault()
    launch = r"launch of graph 'step' on Stream 'mine', queued at"
    assert re.search(rf"\(DeviceBuffer 'given', made at {HERE}\); {launch}", text), text


def test_a_loss_for_another_reason_names_no_kernel(driver):
    """An error that a test injects after a fault and a reset."""
    fail(given(), np.int64(256))
    testing.reset_device()
    testing.fail("cuMemAlloc_v2", 700)
    with pytest.raises(cu.ContextLostError) as caught:
        cu.DeviceBuffer(1 << 20, pooled=False)
    assert "kernel" not in str(caught.value)
