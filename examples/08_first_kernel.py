"""A kernel: its PTX, its arguments, and what it borrows."""

from pathlib import Path

import numpy as np

import cudadrv as cu

# PTX that was compiled from saxpy.cu: y = a * x + y. `cudadrv.toolkit` compiles CUDA C of your own.
module = cu.Module.from_file(Path(__file__).parent / "kernels" / "saxpy.ptx")
saxpy = module["saxpy"]

x = cu.LockedBuffer.from_array(np.arange(1000, dtype="f4"), name="x")
y = cu.DeviceBuffer.from_array(np.ones(1000, "f4"), name="y")
result = cu.LockedBuffer(1000, "f4", name="result")
stream, other = cu.Stream(), cu.Stream()

# 4 blocks of 256 threads. `x` is read, and `y` is written: what is not said to be read is.
launched = saxpy.launch(4, 256, 2, cu.read(x), y, 1000, stream=stream)

# Reads share: the host may read `x` as well. It may not write it, nor may another stream read `y`.
assert x[999] == 999
try:
    x[0] = 1
except cu.BufferBorrowedError as error:
    print(f"{error}\n")
try:
    result.copy_from_async(y, other)
except cu.BufferBorrowedError as error:
    print(f"{str(error).splitlines()[0]}\n")

# A launch gives a token, as a copy does: it can be waited for, here by another stream.
other.wait(launched)
result.copy_from_async(y, other).wait()
assert result[999] == 2 * 999 + 1

# The arguments are checked against what the kernel takes, before anything is launched.
try:
    saxpy.launch(4, 256, 2, cu.read(x), y, stream=stream)
except TypeError as error:
    print(f"TypeError: {error}\n")

# In a loop: checked and packed once, launched often.
ready = saxpy.prepare(4, 256, 1, cu.read(x), y, 1000)
for _ in range(10):
    ready.launch(other)
result.copy_from_async(y, other).wait()
assert result[999] == 12 * 999 + 1
print(result[990:1000])
