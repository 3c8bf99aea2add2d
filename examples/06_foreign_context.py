"""Work with another library: its stream, its memory; and a context of your own.

Here cudadrv itself plays the other library, by plain numbers: handles and addresses.
"""

import numpy as np

import cudadrv as cu

device = cu.Device(0)

# The other library makes a stream and an allocation in the primary context, which libraries share.
their_stream = cu.Stream()
their_memory = cu.DeviceBuffer.from_array(np.arange(256, dtype="i4"))

# We use the same stream by its handle, the same memory by its address. `owner` is kept alive.
stream = cu.Stream.from_handle(their_stream.handle, owner=their_stream)
memory = cu.DeviceBuffer.from_address(
    their_memory.address, 256, "i4", owner=their_memory, name="theirs"
)

# cudadrv does not see what the other library queued, so wait for its stream before the first use.
stream.synchronize()
back = cu.LockedBuffer(256, "i4")
back.copy_from_async(memory, stream).wait()
assert back[255] == 255
# The other library must not use its memory before our copy is complete. We have waited for that.
memory.close()  # ends our use; foreign memory is never freed here
their_memory.close()

# Give memory away, and take it back.
mine = cu.DeviceBuffer.from_array(np.arange(8, dtype="u1"))
address = mine.into_raw()
mine = cu.DeviceBuffer.from_raw(address, 8, "u1")
mine.close()

# A context of your own: separate from the primary one, with its own streams and buffers.
context = cu.Context.create(device)
with context:
    own = cu.DeviceBuffer(16)
    own.fill(1)
print(own.context, memory.context, sep="\n")
try:
    own.copy_from_async(back[:4].view("u1"), stream)
except ValueError as error:
    print(f"ValueError: {error}")
