"""What tests of graphs share: buffers, streams, kernels."""

from pathlib import Path

import pytest

import cudadrv as cu

PTX = Path(__file__).parents[1] / "kernels" / "kernels.ptx"


class World:
    """Two streams, buffers of two kinds, and a graph."""

    def __init__(self, main, side):
        self.main, self.side = main, side
        self.frames = cu.LockedBuffer.zeros(16, "f4", name="frames")
        self.result = cu.LockedBuffer.zeros(16, "f4", name="result")
        self.work = cu.DeviceBuffer.zeros(16, "f4", name="work")
        self.out = cu.DeviceBuffer.zeros(16, "f4", name="out")
        self.graph = cu.Graph(name="step")


@pytest.fixture
def world(driver, stream, other):
    return World(stream, other)


@pytest.fixture
def module(driver):
    return cu.Module.from_file(PTX)
