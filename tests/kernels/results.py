"""What kernels have left in buffers."""

import numpy as np


def array_of(buffer):
    """The items of a buffer, which the host knows to be complete."""
    array = np.empty(buffer.count, buffer.dtype)
    buffer.copy_to(array)
    return array
