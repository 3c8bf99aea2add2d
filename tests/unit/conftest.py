"""A fixture with buffers."""

import numpy as np
import pytest

import cudadrv as cu


@pytest.fixture
def buffers(driver):
    """A buffer on the host with the numbers from 0 to 63, and a buffer on the device."""
    buffers = cu.LockedBuffer.from_array(np.arange(64, dtype="u1")), cu.DeviceBuffer(64)
    yield buffers
    cu.Device(0).synchronize()
