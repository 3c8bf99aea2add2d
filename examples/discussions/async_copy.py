"""An asynchronous copy whose promise is dropped: the borrow does not depend on the token."""

import asyncio

import numpy as np

import cudadrv as cu

COUNT = 1 << 16
stream = cu.Stream(name="copies")
frames = cu.LockedBuffer.from_array(np.arange(COUNT, dtype="i4"), name="frames")
work = cu.DeviceBuffer(COUNT, "i4", name="work")
result = cu.LockedBuffer.zeros(COUNT, "i4", name="result")

# A token: here it is dropped at once. What the copy uses stays borrowed until the program knows
# that the copy is complete. A guard whose destructor ends the borrow could be leaked instead.
work.copy_from_async(frames, stream)
try:
    frames[:] = 0
except cu.BufferBorrowedError as error:
    print(f"{error}\n")

# The buffer may be dropped, too: its memory outlives the copy, and no destructor blocks.
temporary = cu.LockedBuffer.from_array(np.full(COUNT, 7, "i4"), name="temporary")
work.copy_from_async(temporary, stream)
del temporary
others = [cu.LockedBuffer.zeros(COUNT, "i4") for _ in range(3)]  # never memory that is in use
result.copy_from_async(work, stream).wait()
assert (result.to_numpy() == 7).all()
print("a dropped buffer was copied wholly")

# A scope: all work of the stream is complete after the block, even if an exception ends it.
try:
    with stream.scope():
        work.copy_from_async(frames)
        result.copy_from_async(work)
        raise RuntimeError("in the middle")
except RuntimeError:
    assert np.array_equal(result.to_numpy(), np.arange(COUNT))
    frames[:] = 1
    print("after the scope everything is free")


# A future: awaiting a token is like waiting for it. A task that is cancelled meanwhile leaves the
# borrows as they are, so that nothing reads or writes too early.
async def there_and_back() -> None:
    work.copy_from_async(frames, stream)
    await result.copy_from_async(work, stream)


asyncio.run(there_and_back())
assert (result.to_numpy() == 1).all()
print("and a future brings it back")
