"""y = a * x + y on the device."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Floats = npt.NDArray[np.float32]
BLOCK = 256


def saxpy(a: float, x: Floats, y: Floats) -> Floats:
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["saxpy"]
    result = np.empty_like(y)
    # All calls in the block go to this stream, one after the other. At its end they are complete.
    with cu.Stream().scope():
        device_x = cu.DeviceBuffer.from_array(x, name="x")
        device_y = cu.DeviceBuffer.from_array(y, name="y")
        # `x` is only read, so others may read it meanwhile; without cu.read, a buffer is written.
        kernel.launch(-(-x.size // BLOCK), BLOCK, a, cu.read(device_x), device_y, x.size)
        device_y.copy_to(result)
    return result


if __name__ == "__main__":
    x = np.linspace(0, 1, 1001, dtype="f4")
    print(saxpy(2, x, np.ones_like(x))[::250])
