"""What the software driver says about a kernel that fails: whose memory it was, and its launch."""

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


def test_freed_memory_has_no_name(driver):
    buffer = given()
    address = buffer.address
    buffer.close()
    text = fail(np.uint64(address), np.int64(0))
    assert re.search(r"cuMemFree_v2 freed; launch of", text), text


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
