"""Managed memory that is larger than the device: the driver moves pages in and out."""

import os

# The software driver gets a small device. A GPU keeps its memory, into which everything fits.
os.environ["CUDADRV_SOFTWARE"] = os.environ.get("CUDADRV_SOFTWARE", "") + ",memory=4MiB"

import numpy as np

import cudadrv as cu

PART, PARTS = 1 << 18, 8  # items of a part (1 MiB), number of parts

device, stream = cu.Device(0), cu.Stream()
free, total = device.memory_info()
numbers = cu.UnifiedBuffer.from_array(np.arange(PART * PARTS, dtype="f4"), name="numbers")
parts = numbers.chunks(PART)
result = cu.DeviceBuffer(PART, "f4", name="result")
print(f"{numbers.nbytes >> 20} MiB of managed memory, a device of {total >> 20} MiB")

# Each part moves to the device when its copy runs. Where there is no room left, the driver takes
# the pages that were not used for the longest time back to the host. No value is lost.
for part in parts:
    result.copy_from_async(part, stream)
stream.synchronize()
assert np.array_equal(result.to_numpy(), np.arange(PART * (PARTS - 1), PART * PARTS))

# A prefetch moves a part before its use; afterwards the part goes back, to make room for the next.
# So the driver moves whole parts, and not single pages.
concurrent = device.attribute("concurrent_managed_access")
for number, part in enumerate(parts):
    if concurrent:  # other devices take no prefetches
        part.prefetch(device, stream)
    result.copy_from_async(part, stream)
    if concurrent and number + 1 < PARTS:
        part.prefetch("host", stream)
stream.synchronize()

if cu.driver_info().is_software:
    from cudadrv import testing

    places = testing.page_places(numbers)
    on_device = sum(place == 0 for place in places) * 4096
    assert on_device <= total < numbers.nbytes
    print(f"{on_device >> 10} KiB are on the device; {testing.page_faults(numbers).device} faults")
with numbers.read() as array:
    assert np.array_equal(array, np.arange(array.size))
