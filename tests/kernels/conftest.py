"""Fixtures with simple kernels of kernels.ptx.

nvcc compiled it from kernels.cu; then the parameters were given names.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu

sys.path.insert(0, str(Path(__file__).parent))

PTX = Path(__file__).with_name("kernels.ptx")


@pytest.fixture
def module(driver):
    module = cu.Module.from_file(PTX)
    yield module
    if not module.closed:
        module.device.synchronize()
        module.close()


@pytest.fixture
def saxpy(module):
    return module["saxpy"]


@pytest.fixture
def vectors(driver):
    """Two vectors on the device: x = 0, 1, 2 and so on, and y = 1, 1, 1 and so on."""
    x = cu.DeviceBuffer.from_array(np.arange(1000, dtype="f4"), name="x")
    y = cu.DeviceBuffer.from_array(np.ones(1000, dtype="f4"), name="y")
    return x, y
