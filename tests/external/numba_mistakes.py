"""Kernels of numba with mistakes. Prints what the checks inside kernels find in them."""

import kernel_hazards
import numpy as np
from numba import cuda


@cuda.jit(lineinfo=True)
def racy(out):
    tile = cuda.shared.array(64, np.int32)
    i = cuda.threadIdx.x
    tile[i] = i
    out[i] = tile[63 - i]


@cuda.jit(lineinfo=True)
def uninitialized(out, given):
    i = cuda.threadIdx.x
    if given[i] > 3:
        out[i] = 1


@cuda.jit(lineinfo=True)
def divergent(out):
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = cuda.shfl_sync(0xFFFFFFFF, i, 3)
    out[i + 32] = i


out, given = cuda.device_array(64, np.int32), cuda.device_array(64, np.int32)
racy[1, 64](out)
uninitialized[1, 64](out, given)
divergent[1, 32](out)
cuda.synchronize()
print("\n".join(kernel_hazards.found()))
