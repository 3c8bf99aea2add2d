"""Names that other libraries have: the exception says what to use instead."""

import re

import numpy as np
import pytest

import cudadrv as cu

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x) { ret; }
"""

HINTS = [
    (cu.DeviceBuffer, "size", "use count"),
    (cu.LockedBuffer, "ndim", "len(buffer.shape)"),
    (cu.UnifiedBuffer, "ptr", "use address"),
    (cu.DeviceBuffer, "get", "to_numpy()"),
    (cu.DeviceBuffer, "copy_to_host", "to_numpy()"),
    (cu.DeviceBuffer, "free", "close()"),
    (cu.Event, "wait", "stream.wait(event)"),
    (cu.Event, "query", "done"),
    (cu.Stream, "wait_stream", "wait(stream)"),
]


@pytest.fixture
def things(driver):
    made = [cu.DeviceBuffer(8), cu.LockedBuffer(8), cu.UnifiedBuffer(8), cu.Event(), cu.Stream()]
    return {type(each): each for each in made}


@pytest.mark.parametrize(("cls", "name", "hint"), HINTS)
def test_an_attribute_of_other_libraries(things, cls, name, hint):
    start = re.escape(f"{cls.__name__} has no attribute '{name}': ")
    with pytest.raises(AttributeError, match=f"^{start}.*{re.escape(hint)}"):
        getattr(things[cls], name)
    assert not hasattr(things[cls], name)
    assert name not in dir(things[cls])
    assert "__repr__" in dir(things[cls])
    with pytest.raises(AttributeError):
        setattr(things[cls], name, 1)


def test_functions_of_other_libraries():
    with pytest.raises(AttributeError, match=r"no attribute 'synchronize'; use stream\.synch"):
        cu.synchronize()
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        cu.nothing  # noqa: B018


def test_calling_a_kernel(driver):
    kernel = cu.Module(PTX)["scale"]
    with pytest.raises(TypeError, match=r"scale\.launch\(grid, block, \*arguments, stream=stream"):
        kernel(1, 2, x=3)
    with pytest.raises(TypeError, match=r"scale\.launch\(grid, .*not by scale\[grid, block\]"):
        kernel[1, 2](3)


@pytest.mark.parametrize("kind", [cu.DeviceBuffer, cu.LockedBuffer])
def test_arithmetic(driver, kind):
    buffer, other = kind.zeros(4, "f4"), kind.zeros(4, "f4")
    for calculate in (
        lambda: buffer + 1,
        lambda: 2.0 * buffer,
        lambda: buffer - other,
        lambda: 1 - buffer,
        lambda: buffer / 2j,
        lambda: 1 / buffer,
        lambda: 1 + buffer,
        lambda: buffer * other,
    ):
        with pytest.raises(TypeError, match=r"no arithmetic.*cupy\.from_dlpack\(buffer\)"):
            calculate()
    with pytest.raises(TypeError, match="unsupported operand"):
        buffer + "text"


def test_other_classes_may_know_how_to_calculate(driver):
    class Sums:
        def __radd__(self, left):
            return "sum"

    assert cu.DeviceBuffer(4) + Sums() == "sum"
    host = cu.LockedBuffer.zeros(4, "f4")
    assert (host.to_numpy() + np.ones(4, "f4")).tolist() == [1] * 4
