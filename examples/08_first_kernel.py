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

# 4 blocks of 256 threads. `x` is only read; `y` is written, as every buffer without cu.read is.
launched = saxpy.launch(4, 256, 2, cu.read(x), y, 1000, stream=stream)

# The host may read `x`, too, because both only read. But it may not write `x`, and another stream
# may not read `y`.
assert x[999] == 999
try:
    x[0] = 1
except cu.BufferBorrowedError as error:
    print(f"{error}\n")
try:
    result.copy_from_async(y, other)
except cu.BufferBorrowedError as error:
    print(f"{str(error).splitlines()[0]}\n")

# A launch returns a token, as a copy does. Here another stream waits for it.
other.wait(launched)
result.copy_from_async(y, other).wait()
assert result[999] == 2 * 999 + 1

# The arguments are checked against the kernel's parameters before the launch.
try:
    saxpy.launch(4, 256, 2, cu.read(x), y, stream=stream)
except TypeError as error:
    print(f"TypeError: {error}\n")

# For a loop: check and pack the arguments once, launch often.
ready = saxpy.prepare(4, 256, 1, cu.read(x), y, 1000)
for _ in range(10):
    ready.launch(other)
result.copy_from_async(y, other).wait()
assert result[999] == 12 * 999 + 1
print(result[990:1000])
