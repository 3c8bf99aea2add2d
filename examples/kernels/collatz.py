"""A kernel that calls a function, in a loop over any number of elements."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Words = npt.NDArray[np.uint32]
BLOCK = 128


def collatz(numbers: Words, blocks: int = 4) -> Words:
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["collatz"]
    # Managed memory: filled by the host, used by the kernel, read by the host.
    source = cu.UnifiedBuffer.from_array(numbers, name="numbers")
    steps = cu.UnifiedBuffer(numbers.size, "u4", name="steps")
    with cu.Stream().scope():
        kernel.launch(blocks, BLOCK, cu.read(source), steps, numbers.size)
    return steps.to_numpy()


if __name__ == "__main__":
    print(collatz(np.arange(1, 28, dtype="u4")))
