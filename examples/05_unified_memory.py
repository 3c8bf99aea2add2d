"""Managed memory: one address, used by the host and by the device in turn."""

import numpy as np

import cudadrv as cu

numbers = cu.UnifiedBuffer(1 << 16, "f8", name="numbers")
stream = cu.Stream()

# The host's turn. `array` is an ordinary NumPy array until the block ends.
with numbers.write() as array:
    array[:] = np.linspace(0, 1, array.size)

# The device's turn.
numbers[: 1 << 15].fill_async(0.5, stream)

# Not the host's turn yet: this is an error. With plain managed memory it would be a data race.
try:
    numbers[0]
except cu.BufferBorrowedError as error:
    print(f"{error}\n")

# The other half is not in use, so the host may read it, if the device allows that during its work.
concurrent = cu.Device(0).attribute("concurrent_managed_access")
if concurrent:
    assert numbers[-1] == 1

stream.synchronize()
with numbers.read() as array:
    print(f"mean {array.mean():.3f}, of the first half {array[: 1 << 15].mean():.3f}")

# After the block the array is empty: it cannot reach the memory any more.
assert array.size == 0
