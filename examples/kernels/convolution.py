"""A 2-D convolution whose filter is a constant of the module."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Image = npt.NDArray[np.float32]
SIZE = 5
BLOCK = (16, 8)


def convolve(image: Image, weights: Image) -> Image:
    rows, columns = image.shape
    module = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))
    result = np.empty_like(image)
    with cu.Stream().scope():
        # A variable of the module is a buffer like any other: it is copied to, and borrowed.
        constant = module.global_("filter", "f4")
        constant.copy_from(weights.ravel())
        source = cu.DeviceBuffer.from_array(image, name="image")
        target = cu.DeviceBuffer(image.size, "f4", name="filtered")
        grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
        # The kernel reads the variable by name, not by an argument, so the use has to be declared.
        borrows = [cu.read(constant)]
        arguments = (cu.read(source), target, rows, columns)
        module["convolve"].launch(grid, BLOCK, *arguments, borrows=borrows)
        target.copy_to(result)
    return result


if __name__ == "__main__":
    image = np.zeros((9, 9), "f4")
    image[4, 4] = 25
    print(convolve(image, np.full((SIZE, SIZE), 1 / 25, "f4")))
