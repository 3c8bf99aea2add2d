"""The product of two matrices."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Matrix = npt.NDArray[np.float32]
TILE = 16


def matmul(a: Matrix, b: Matrix) -> Matrix:
    (rows, inner), columns = a.shape, b.shape[1]
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["matmul"]
    result = np.empty((rows, columns), "f4")
    with cu.Stream().scope():
        device_a = cu.DeviceBuffer.from_array(a, name="a")
        device_b = cu.DeviceBuffer.from_array(b, name="b")
        device_c = cu.DeviceBuffer(rows * columns, "f4", name="c")
        grid = (-(-columns // TILE), -(-rows // TILE))
        read = (cu.read(device_a), cu.read(device_b))
        kernel.launch(grid, (TILE, TILE), *read, device_c, rows, inner, columns)
        device_c.copy_to(result)
    return result


if __name__ == "__main__":
    numbers = np.arange(12, dtype="f4")
    print(matmul(numbers.reshape(3, 4), numbers.reshape(4, 3)))
