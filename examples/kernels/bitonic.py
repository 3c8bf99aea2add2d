"""A bitonic sort: many launches of two kernels, in order on one stream."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Ints = npt.NDArray[np.int32]
BLOCK = 1024  # ints that a block sorts in shared memory
LARGEST = np.iinfo("i4").max


def bitonic_sort(data: Ints) -> Ints:
    module = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))
    count = max(BLOCK, 1 << (data.size - 1).bit_length())
    blocks, threads = count // BLOCK, BLOCK // 2
    result = np.empty_like(data)
    with cu.Stream().scope():
        numbers = cu.DeviceBuffer(count, "i4", name="numbers")
        numbers[: data.size].copy_from(data)
        numbers[data.size :].fill(LARGEST)  # sorted to the end
        module["sort_shared"].launch(blocks, threads, numbers, 2, BLOCK)
        run = 2 * BLOCK
        while run <= count:
            distance = run // 2
            while distance >= BLOCK:
                module["sort_global"].launch(blocks, threads, numbers, distance, run)
                distance //= 2
            module["sort_shared"].launch(blocks, threads, numbers, run, run)
            run *= 2
        numbers[: data.size].copy_to(result)
    return result


if __name__ == "__main__":
    print(bitonic_sort(np.array([3, -1, 2, 5, 0], "i4")))
