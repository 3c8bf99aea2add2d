"""Asynchronous copies on two streams, and the event that has to be between them."""

import numpy as np

import cudadrv as cu

source = cu.LockedBuffer.from_array(np.arange(4096, dtype="i4"), name="source")
result = cu.LockedBuffer(4096, "i4", name="result")
work = cu.DeviceBuffer(4096, "i4", name="work")
upload, download = cu.Stream(), cu.Stream()

work.copy_from_async(source, upload)

# Nothing orders `download` after `upload`, so this is refused: on every machine, every time.
try:
    result.copy_from_async(work, download)
except cu.BufferBorrowedError as error:
    print(f"{error}\n")

# An event orders the two copies. The host does not wait.
uploaded = upload.record()
download.wait(uploaded)
arrived = result.copy_from_async(work, download)
print(work.explain())

# The host has to wait, too, before it reads the result.
arrived.wait()
assert result[4095] == 4095

# The wait covers everything that was ordered before the copy, so `source` is free again.
assert not source.borrowed
source[:] = 0
print(source, result, sep="\n")
