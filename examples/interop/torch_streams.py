"""A kernel of ours on PyTorch's tensors, on two of PyTorch's streams."""

from pathlib import Path

import torch

import cudadrv as cu

COUNT, THREADS = 1 << 16, 256
image = Path(__file__).parents[1] / "kernels" / "saxpy.ptx"
saxpy = cu.Module(image.read_bytes())["saxpy"]
blocks = -(-COUNT // THREADS)
first, second = torch.cuda.Stream(), torch.cuda.Stream()

with torch.cuda.stream(first):
    x = torch.arange(COUNT, dtype=torch.float32, device="cuda")
    y = torch.ones(COUNT, device="cuda")
    # Tensors are arguments, and PyTorch's streams are streams. No tensor dies before the launch is
    # done, for which other programs need record_stream.
    saxpy.launch(blocks, THREADS, 2.0, cu.read(x), y, COUNT, stream=first)

# The second stream does not wait for the launch on the first one: y may not be complete.
try:
    with torch.cuda.stream(second):
        saxpy.launch(blocks, THREADS, 1.0, cu.read(x), y, COUNT, stream=second)
except cu.BufferBorrowedError as error:
    print("\n".join(str(error).splitlines()[:2]))

# Streams of PyTorch and of cudadrv can wait for each other. After the wait, y can be used there.
theirs = cu.Stream.from_object(second)
theirs.wait(first)
with torch.cuda.stream(second):
    saxpy.launch(blocks, THREADS, 1.0, cu.read(x), y, COUNT, stream=second)
    y *= 10  # PyTorch's own work, in order on the same stream
    total = y.sum().item()

expected = sum(10 * (3 * i + 1) for i in range(COUNT))
assert abs(total - expected) < 1e-4 * expected
print(f"sum {total:.6g}")
