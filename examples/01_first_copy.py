"""Copies an array to the device and back. Blocking copies are complete when they return."""

import numpy as np

import cudadrv as cu

numbers = np.arange(1000, dtype="f4")

device = cu.DeviceBuffer.from_array(numbers, name="numbers")  # allocated, copied, complete
print(device)

device[:500].fill(7)  # a part shares the memory of the whole

result = np.empty(1000, "f4")
device.copy_to(result)
assert (result[:500] == 7).all()
assert (result[500:] == numbers[500:]).all()
print(result[498:502])

# The host cannot read device memory. The error says what to do instead.
try:
    device[0]
except TypeError as error:
    print(f"TypeError: {error}")

device.close()  # or let it go out of scope: then it is freed when that cannot block
