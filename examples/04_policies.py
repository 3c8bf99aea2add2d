"""The policies for a call that is not known to be ordered: refuse it, wait, or let it pass."""

import ctypes

import numpy as np

import cudadrv as cu

host = cu.LockedBuffer.from_array(np.arange(1024, dtype="i8"), name="host")
back = cu.LockedBuffer(1024, "i8", name="back")
work = cu.DeviceBuffer(1024, "i8", name="work")
first, second = cu.Stream(), cu.Stream()

# "strict", the default.
work.copy_from_async(host, first)
try:
    back.copy_from_async(work, second)
except cu.BufferBorrowedError as error:
    print(f"strict: {str(error).splitlines()[0]}")

# "wait" inserts the missing waits: `second` waits for `first` on the GPU, then the host waits for
# `second`. The policy also applies in functions that are called inside the block.
with cu.ordering("wait"):
    back.copy_from_async(work, second)
    assert back[1023] == 1023
    print("wait: both waits were inserted")

# A buffer can have its own policy, for calls outside such blocks.
host.ordering = "wait"
work.copy_from_async(host, first)
host[:] = 0
host.ordering = None
print("wait, for one buffer: the host waited before it wrote")

# "unchecked": the program is responsible for the order. Here it waits through another library.
# cudadrv does not see this wait, and would refuse a write. Unchecked uses are still recorded, and
# views, closing and lifetime stay protected.
work.copy_from_async(host, first)
library = ctypes.CDLL(cu.driver_info().path)
assert library.cuStreamSynchronize(ctypes.c_void_p(first.handle)) == 0
with cu.ordering("unchecked"):
    host[:] = 1
    work.copy_from_async(host, second)
try:
    work.close()
except cu.BufferBorrowedError as error:
    print(f"unchecked, yet: {str(error).splitlines()[0]}")
first.synchronize()
second.synchronize()
work.close()
