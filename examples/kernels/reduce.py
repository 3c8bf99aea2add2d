"""The sum of an array, by a tree in shared memory or by shuffles within warps."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cudadrv as cu

BLOCK = 128
MOST_BLOCKS = 64


def reduce(data: npt.NDArray[Any]) -> Any:
    """Sum int32 in shared memory, or float32 by shuffles, in two launches of one kernel."""
    module = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))
    whole = data.dtype == np.int32
    kernel = module["sum_shared" if whole else "sum_shuffle"]
    shared_bytes = BLOCK * data.itemsize if whole else 0  # for `extern __shared__`
    blocks = min(-(-data.size // BLOCK), MOST_BLOCKS)
    with cu.Stream().scope():
        numbers = cu.DeviceBuffer.from_array(data, name="numbers")
        sums = cu.DeviceBuffer(blocks, data.dtype, name="sums")
        total = cu.DeviceBuffer(1, data.dtype, name="total")
        # The second launch reads what the first one wrote: on one stream that is in order.
        for grid, source, count, target in (
            (blocks, numbers, data.size, sums),
            (1, sums, blocks, total),
        ):
            kernel.launch(grid, BLOCK, cu.read(source), count, target, shared_bytes=shared_bytes)
        result = np.empty(1, data.dtype)
        total.copy_to(result)
    return result[0]


if __name__ == "__main__":
    print(reduce(np.arange(1000, dtype="i4")), reduce(np.full(1000, 0.5, "f4")))
