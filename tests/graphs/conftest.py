"""Fixtures of the tests of graphs: buffers, streams, kernels."""

from pathlib import Path

import numpy as np
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

    def result_of(self, step):
        """Launch an executable and wait. Returns the items of `result`."""
        step.launch(self.main).wait()
        return list(self.result)


@pytest.fixture
def world(driver, stream, other):
    return World(stream, other)


@pytest.fixture
def module(driver):
    return cu.Module.from_file(PTX)


@pytest.fixture
def graph(world, module):
    """A graph of four nodes in order: work = frames, out = 1, out += 2 * work, result = out."""
    world.frames[:] = np.arange(16)
    saxpy = module["saxpy"]
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.out.fill_async(1, world.main)
        saxpy.launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
        world.result.copy_from_async(world.out, world.main)
    return world.graph


@pytest.fixture
def step(graph):
    return graph.instantiate()
