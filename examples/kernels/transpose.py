"""Rows become columns."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Matrix = npt.NDArray[np.float32]
TILE, ROWS = 32, 8


def transpose(matrix: Matrix) -> Matrix:
    rows, columns = matrix.shape
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["transpose"]
    result = np.empty((columns, rows), "f4")
    with cu.Stream().scope():
        source = cu.DeviceBuffer.from_array(matrix, name="matrix")
        target = cu.DeviceBuffer(matrix.size, "f4", name="transposed")
        grid = (-(-columns // TILE), -(-rows // TILE))
        kernel.launch(grid, (TILE, ROWS), cu.read(source), target, rows, columns)
        target.copy_to(result)
    return result


if __name__ == "__main__":
    print(transpose(np.arange(6, dtype="f4").reshape(2, 3)))
