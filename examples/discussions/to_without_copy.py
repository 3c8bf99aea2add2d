"""`.to(place)` of managed memory: no copy, and a use that comes too early is refused."""

import numpy as np

import cudadrv as cu

COUNT = 1 << 16
device, stream = cu.Device(0), cu.Stream(name="model")
concurrent = device.attribute("concurrent_managed_access")  # if not: no advice and no prefetch

# A switch chooses the memory; the program below is the same for all kinds.
with cu.memory("unified"):
    weights = cu.from_array(np.ones(COUNT, "f4"), name="weights")
    batch = cu.zeros(COUNT, "f4", name="batch")

# `to` returns the same object. Its pages have moved; its address and all its views are unchanged.
address = weights.address
assert weights.to(device) is weights
assert weights.address == address

# Who synchronizes after `.to("host")`? A program that forgets to is told so, at the line that
# reads.
batch.fill_async(3, stream)
batch.to("host", stream=stream)
try:
    print("never printed", batch[0])
except cu.BufferBorrowedError as error:
    print("too early:", str(error).splitlines()[1].strip())
stream.synchronize()
assert batch[0] == 3

# Without a stream the call waits. A copy is made if one is asked for, or if one is needed.
kept = weights.to("host", copy=True)
assert kept is not weights
assert type(kept) is cu.UnifiedBuffer
plain = weights.to(device, kind="device")  # memory of the device, for kernels only
assert type(plain) is cu.DeviceBuffer
assert type(plain.to("host")) is cu.LockedBuffer

if concurrent:
    # Weights that the host and the device only read: each has a copy, which moves before its use.
    weights.advise(read_mostly=True, preferred="host")
    weights.prefetch(device, stream)  # changes no byte, so the host may read on
    assert weights[0] == 1
    stream.synchronize()
    print("advice:", weights.advice.read_mostly, weights.advice.preferred)

# The allocator keeps the memory of dead buffers, like the memory of tensors in a training loop.
before = device.context.pools.unified.stats
for _ in range(10):
    with cu.UnifiedBuffer(COUNT, "f4") as activations:
        activations.to(device, stream=stream).fill_async(1, stream)
        stream.synchronize()
after = device.context.pools.unified.stats
print("buffers from the pool:", after.hits - before.hits, "of 10")
