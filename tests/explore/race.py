"""Two fills of a buffer that nothing orders, as the beginning of a test module or program."""

RACE = """
import numpy as np
import pytest
import cudadrv as cu

def both(values):
    one, other = cu.Stream(name="one"), cu.Stream(name="other")
    buffer = cu.DeviceBuffer.zeros(4, "u1", name="buffer")
    with cu.ordering("unchecked"):
        for stream, value in zip((one, other), values):
            buffer.fill_async(value, stream)
    one.synchronize()
    other.synchronize()
    found = np.empty(4, "u1")
    buffer.copy_to(found)
    return found[0]
"""
