"""`memory` blocks, and the functions that make buffers of the chosen kind."""

import numpy as np
import pytest
from schedules import one_schedule

import cudadrv as cu

CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
kinds = pytest.mark.parametrize("kind", CLASSES)
MAKERS = {
    "empty": lambda **options: cu.empty(6, "i4", **options),
    "zeros": lambda **options: cu.zeros(6, "i4", **options),
    "from_array": lambda **options: cu.from_array(np.zeros(6, "i4"), **options),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@makers
@kinds
def test_a_block_a_keyword_and_the_default(driver, make, kind):
    assert type(make()) is cu.DeviceBuffer
    assert type(make(kind=kind)) is CLASSES[kind]
    with cu.memory(kind) as block:
        assert block.kind == kind
        assert type(make()) is CLASSES[kind]
        assert type(make(kind="locked")) is cu.LockedBuffer
        with cu.memory("unified"):
            assert type(make()) is cu.UnifiedBuffer
        assert type(make()) is CLASSES[kind]
    assert type(make()) is cu.DeviceBuffer


@makers
@kinds
def test_options(driver, make, kind, stream):
    with cu.memory(kind):
        buffer = make(device=cu.Device(0), name="mine", pooled=False)
        assert (buffer.name, buffer.device) == ("mine", cu.Device(0))
        ordered = make(stream=stream)
    assert ordered.stream_ordered == (kind == "device")
    stream.synchronize()


@kinds
def test_shapes_are_kept(driver, kind, items_of):
    with cu.memory(kind):
        assert cu.empty((2, 3)).shape == (2, 3)
        assert cu.empty([4], "f8").shape == (4,)
        assert cu.empty(()).shape == ()
        assert cu.empty((0, 5)).shape == (0, 5)
        zeros = cu.zeros((2, 3), "f4")
        array = np.arange(12, dtype="i2").reshape(3, 4).T
        copied = cu.from_array(array)
        zero = cu.from_array(5)
    assert (zeros.shape, zeros.dtype, items_of(zeros).tolist()) == ((2, 3), "f4", [0] * 6)
    assert (copied.shape, copied.dtype) == ((4, 3), "i2")
    assert items_of(copied).tolist() == array.reshape(-1).tolist()
    assert (zero.shape, items_of(zero).tolist()) == ((), [5])
    for buffer in (zeros, copied, zero):
        buffer.close()  # close works: this is the whole buffer, not a part


def test_blocks_are_of_their_thread(driver, in_a_thread):
    with cu.memory("locked"):
        assert type(in_a_thread(lambda: cu.empty(3))) is cu.DeviceBuffer
    with pytest.raises(RuntimeError, match=r"this block of memory\('locked'\) is not entered here"):
        cu.memory("locked").__exit__(None, None, None)


@makers
def test_bad_kinds(driver, make):
    for kind in ("managed", "", "Device"):
        for call in (cu.memory, lambda kind: make(kind=kind)):
            with pytest.raises(ValueError, match="must be 'device', 'locked' or 'unified'"):
                call(kind)
    for kind in (3, b"device"):
        for call in (cu.memory, lambda kind: make(kind=kind)):
            with pytest.raises(TypeError):
                call(kind)
    with pytest.raises(TypeError):
        cu.memory(None)


def test_bad_shapes(driver):
    for shape in (-1, (2, -1), [-3]):
        for make in (cu.empty, cu.zeros):
            with pytest.raises(ValueError, match="sizes are not negative"):
                make(shape)
    for shape in (1.5, (2, "x"), "ab"):
        with pytest.raises(TypeError, match="a size must be an integer"):
            cu.empty(shape)
    with pytest.raises(ValueError, match="no memory has so many"):
        cu.empty((1 << 40, 1 << 40))
    with pytest.raises(TypeError):
        cu.from_array(np.ma.masked_array([1, 2], [0, 1]))


def test_a_closed_stream(driver):
    stream = cu.Stream()
    stream.close()
    for kind in CLASSES:
        for make in MAKERS.values():
            with pytest.raises(ValueError, match="closed"):
                make(kind=kind, stream=stream)


@one_schedule
@pytest.mark.cuda_software
def test_the_environment_chooses(script):
    program = "import cudadrv as cu; print(type(cu.empty(3)).__name__)"
    for kind, cls in CLASSES.items():
        assert script.quiet(program, CUDADRV_MEMORY=kind) == f"{cls.__name__}\n"
    assert script.quiet(program, CUDADRV_MEMORY="") == "DeviceBuffer\n"
    done = script.run(program, CUDADRV_MEMORY="managed")
    assert "ValueError: CUDADRV_MEMORY is 'managed', and must be 'device'" in done.stderr
    inside = "import cudadrv as cu\nwith cu.memory('locked'): print(type(cu.empty(3)).__name__)"
    assert script.quiet(inside, CUDADRV_MEMORY="managed") == "LockedBuffer\n"
