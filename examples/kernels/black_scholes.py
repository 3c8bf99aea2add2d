"""Prices of options, in float32 or float64."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Reals = npt.NDArray[Any]
BLOCK = 128


def black_scholes(
    shares: Reals, strikes: Reals, years: Reals, rate: float, volatility: float
) -> tuple[Reals, Reals]:
    """Return prices of calls and puts."""
    dtype, count = shares.dtype, shares.size
    module = cu.Module.from_file(Path(__file__).with_suffix(".ptx"))
    kernel = module[f"black_scholes_{'float' if dtype == np.float32 else 'double'}"]
    results = np.empty(count, dtype), np.empty(count, dtype)
    with cu.Stream().scope():
        sources = [cu.DeviceBuffer.from_array(array) for array in (shares, strikes, years)]
        # The two halves of the buffer are borrowed separately, like two buffers.
        prices = cu.DeviceBuffer(2 * count, dtype, name="prices")
        calls, puts = prices.split_at(count)
        reads = map(cu.read, sources)
        # A Python float is converted to the type of the parameter, float or double.
        kernel.launch(-(-count // BLOCK), BLOCK, *reads, calls, puts, count, rate, volatility)
        for buffer, array in zip((calls, puts), results, strict=True):
            buffer.copy_to(array)
    return results


if __name__ == "__main__":
    strikes = np.linspace(80, 120, 5)
    print(*black_scholes(np.full(5, 100.0), strikes, np.full(5, 1.0), 0.02, 0.3), sep="\n")
