"""PyTorch preprocesses pictures in our memory, while the next ones are being copied."""

import numpy as np
import torch

import cudadrv as cu

BATCHES, SHAPE = 8, (16, 3, 64, 64)
COUNT = int(np.prod(SHAPE))

work = torch.cuda.Stream()
theirs = cu.Stream.from_object(work)  # the same stream, for cudadrv
load = cu.Stream()
staged = [cu.LockedBuffer(COUNT, "u1", name=f"staged {i}").reshape(SHAPE) for i in range(2)]
pictures = [cu.DeviceBuffer(COUNT, "u1", name=f"pictures {i}").reshape(SHAPE) for i in range(2)]
copied, used = [None, None], [None, None]
means = []


def read(batch):
    """Return the pictures of a batch, as they would come from a file."""
    return np.random.default_rng(batch).integers(0, 256, SHAPE, dtype="u1")


for batch in range(BATCHES):
    turn = batch % 2
    if batch >= 2:
        copied[turn].wait()  # the host may write this half again
        load.wait(used[turn])  # and the copy comes after PyTorch's use of the old pictures
    staged[turn].copy_from(read(batch))
    copied[turn] = pictures[turn].copy_from_async(staged[turn], load)
    with torch.cuda.stream(work):
        tensor = torch.from_dlpack(pictures[turn])  # lent to `work`, which waits for the copy
        normal = (tensor.float() / 255 - 0.5) / 0.25
        means.append(normal.mean(dim=(2, 3)))
    del tensor  # the end of the loan: what PyTorch has queued is one use, on `work`
    used[turn] = theirs.record()

# A copy that forgot to wait for PyTorch is refused.
try:
    pictures[0].fill_async(0, load)
except cu.BufferBorrowedError as error:
    print("\n".join(str(error).splitlines()[:2]))

with torch.cuda.stream(work):
    result = torch.stack(means).cpu().numpy()
for batch in range(BATCHES):
    expected = ((read(batch) / 255 - 0.5) / 0.25).mean(axis=(2, 3))
    assert np.allclose(result[batch], expected, atol=1e-4)
print(f"{BATCHES} batches of {SHAPE}: mean {result.mean():.4f}, deviation {result.std():.4f}")
