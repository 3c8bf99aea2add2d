"""Arrays that a block captures for the device: a use by the host inside fails at its line."""

from pathlib import Path

import numpy as np

import cudadrv as cu

COUNT, STEPS = 1000, 3
SHAPE = (COUNT + 255) // 256, 256
PTX = Path(__file__).parents[1] / "kernels" / "saxpy.ptx"

saxpy = cu.Module.from_file(PTX)["saxpy"]
stream = cu.Stream(name="steps")
x = np.arange(COUNT, dtype="f4")
y = np.zeros(COUNT, "f4")

# The arrays are ordinary ones. For the block they are on the device, and read-only on the host.
with cu.offload(x, inout=y, stream=stream) as (dx, dy):
    for _ in range(STEPS):
        saxpy.launch(*SHAPE, 2.0, cu.read(dx), dy, COUNT, stream=stream)
assert np.array_equal(y, 2 * STEPS * x)
print("after the block:", y[:4])

# A program that forgets where its data is fails at that line: it is not slow, and not wrong.
try:
    with cu.offload(x, inout=y, stream=stream) as (dx, dy):
        saxpy.launch(*SHAPE, 2.0, cu.read(dx), dy, COUNT, stream=stream)
        y[0] = 5  # the device would not see this, and the result would overwrite it
except ValueError as error:
    print("a write inside:", error)

# The same holds for the buffers: their items cannot be read over the bus one by one.
try:
    with cu.offload(x, inout=y, stream=stream) as (dx, dy):
        print("never printed", sum(dx))
except TypeError as error:
    print("a loop inside:", error)

# A block that ended by an exception copied nothing back, and the arrays can be used again.
assert np.array_equal(y, 2 * STEPS * x)
y[0] = 0

# For one launch the arrays are arguments. The token copies the results back.
token = saxpy.launch(*SHAPE, 1.0, cu.In(x), cu.InOut(y), COUNT, stream=stream)
token.wait()
assert np.array_equal(y, (2 * STEPS + 1) * x)
print("after a launch:", y[:4])
