"""A small array library on top of cudadrv (tiny.py): its users see refusals at their own lines."""

import numpy as np
import tiny

import cudadrv as cu

numbers = np.linspace(0, 1, 10_000, dtype="f4")
stream, other = cu.Stream(), cu.Stream()

# One kernel for the whole expression, compiled from PTX that tiny writes.
with stream:
    x = tiny.Array.of(numbers, name="x")
    y = ((x - 0.25) * (x - 0.75)).maximum(0)
    z = ((x - 0.5) * (x - 1)).maximum(0)  # the same operations, so the same kernel
    expected = np.maximum((numbers - 0.25) * (numbers - 0.75), 0)
    assert np.allclose(y.to_numpy(), expected, atol=1e-6)
    print(f"largest {y.max():.4f}, mean {z.sum() / z.count:.4f}")
print(f"{tiny.fused.cache_info().currsize} kernel was compiled for 2 expressions")

# What this program forgets is refused at the line of this program.
total = x + y
with stream:
    total.compute()
try:
    (total * 2).compute(stream=other)
except cu.BufferBorrowedError as error:
    for line in str(error).splitlines()[:2]:
        print(line)
other.wait(stream)
doubled = (total * 2).compute(stream=other)

# DLPack: cudadrv stands for any other library here, such as PyTorch or CuPy.
theirs = cu.from_dlpack(doubled, other)  # lent to `other`, as long as `theirs` lives
try:
    doubled.buffer.fill_async(0, stream)
except cu.BufferExportedError as error:
    print(str(error).splitlines()[1].strip())
back = tiny.Array.from_dlpack(theirs, stream=other)  # the same memory
assert np.allclose(back.to_numpy(stream=other), 2 * (numbers + expected), atol=1e-5)
print("there and back by DLPack, without a copy:", back.buffer.address == doubled.buffer.address)
