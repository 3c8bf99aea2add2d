"""The Mandelbrot set, as numbers of steps."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

BLOCK = (32, 4)


def mandelbrot(
    rows: int, columns: int, left: float, top: float, distance: float, most: int
) -> npt.NDArray[np.uint16]:
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["mandelbrot"]
    steps = cu.LockedBuffer(rows * columns, "u2", name="steps")
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
    # Kernels can write page-locked host memory. Until this kernel is complete, it borrows that.
    with cu.Stream().scope():
        kernel.launch(grid, BLOCK, steps, rows, columns, left, top, distance, most)
    return steps.to_numpy().reshape(rows, columns)


if __name__ == "__main__":
    for row in mandelbrot(21, 64, -2.2, 1.25, 0.125 / 2.6, 50):
        print("".join(" .:-=+*#%@"[min(steps // 5, 9)] for steps in row))
