"""A kernel that waits for the host: memory that both use at the same time."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Ints = npt.NDArray[np.int32]


def double_when_told(data: Ints) -> Ints:
    kernel = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))["wait_then_double"]
    flag = cu.LockedBuffer.zeros(1, "u4", name="flag")
    numbers = cu.LockedBuffer.from_array(data, name="numbers")
    stream = cu.Stream()
    # With `shared`, the program orders the accesses itself, and cudadrv protects the lifetime.
    done = kernel.launch(1, 32, cu.shared(flag), numbers, numbers.count, stream=stream)
    flag[0] = 1  # allowed, while for any other argument it would be refused until the kernel ended
    done.wait()
    return numbers.to_numpy()


if __name__ == "__main__":
    print(double_when_told(np.arange(5, dtype="i4")))
