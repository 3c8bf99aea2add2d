"""Running sums of an array of any length."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Ints = npt.NDArray[np.int32]
BLOCK = 256


def scan(data: Ints) -> Ints:
    module = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))
    result = np.empty_like(data)
    with cu.Stream().scope():
        buffer = cu.DeviceBuffer.from_array(data, name="numbers")
        scan_in_place(module, buffer)
        buffer.copy_to(result)
    return result


def scan_in_place(module: cu.Module, buffer: cu.DeviceBuffer) -> None:
    """Queue running sums on the current stream: in each block, then of the blocks' totals, then
    their sum.
    """
    blocks = -(-buffer.count // BLOCK)
    totals = cu.DeviceBuffer(blocks, "i4", name=f"totals of {blocks}")
    # Source and result are the same buffer here. It is passed as written, because reads and writes
    # of one kernel are not checked against each other. For the second pointer the address is
    # enough, because the first argument keeps the buffer.
    module["scan_blocks"].launch(blocks, BLOCK, buffer, buffer.address, totals, buffer.count)
    if blocks > 1:
        scan_in_place(module, totals)
        module["add_totals"].launch(blocks, BLOCK, buffer, cu.read(totals), buffer.count)
    # `totals` goes out of scope before its kernels have run. Its memory is kept until then.


if __name__ == "__main__":
    print(scan(np.ones(100_000, "i4"))[::25_000])
