"""Next to another library: its stream, its memory, and a context of one's own.

The other library is played by cudadrv itself here, through plain numbers: handles and addresses.
"""

import numpy as np

import cudadrv as cu

device = cu.Device(0)

# "Theirs": a stream and an allocation in the primary context, which libraries share.
their_stream = cu.Stream()
their_memory = cu.DeviceBuffer.from_array(np.arange(256, dtype="i4"))

# Ours: the same stream by handle, the same memory by address. `owner` keeps their object alive.
stream = cu.Stream.from_handle(their_stream.handle, owner=their_stream)
memory = cu.DeviceBuffer.from_address(
    their_memory.address, 256, "i4", owner=their_memory, name="theirs"
)

# What they queued is not seen here. Waiting for their stream is the ordering point on the way in...
stream.synchronize()
back = cu.LockedBuffer(256, "i4")
back.copy_from_async(memory, stream).wait()
assert back[255] == 255
# ...and on the way out they have to know when we are done: we waited, so that is now.
memory.close()  # ends our use; foreign memory is never freed here
their_memory.close()

# Giving memory away for good, and taking it back.
mine = cu.DeviceBuffer.from_array(np.arange(8, dtype="u1"))
address = mine.into_raw()
mine = cu.DeviceBuffer.from_raw(address, 8, "u1")
mine.close()

# A context of one's own: separate from the primary one, with its own streams and buffers.
context = cu.Context.create(device)
with context:
    own = cu.DeviceBuffer(16)
    own.fill(1)
print(own.context, memory.context, sep="\n")
try:
    own.copy_from_async(back[:4].view("u1"), stream)
except ValueError as error:
    print(f"ValueError: {error}")
