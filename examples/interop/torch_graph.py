"""PyTorch captures its own work and a kernel of ours into one CUDA graph."""

from pathlib import Path

import torch

import cudadrv as cu

COUNT, THREADS, BATCHES = 1 << 16, 256, 4
image = Path(__file__).parents[1] / "kernels" / "saxpy.ptx"
saxpy = cu.Module(image.read_bytes())["saxpy"]
blocks = -(-COUNT // THREADS)

work = torch.cuda.Stream()
stream = cu.Stream.from_object(work)  # the same stream, for cudadrv: made before the capture
frames = cu.LockedBuffer.zeros(COUNT, "f4", name="frames")
x, y = cu.DeviceBuffer(COUNT, "f4", name="x"), cu.DeviceBuffer(COUNT, "f4", name="y")


def step():
    """Return the sum of (x + 1) + 2 x, of which the kernel adds the second part."""
    x.copy_from_async(frames, stream)
    theirs_x, theirs_y = torch.from_dlpack(x), torch.from_dlpack(y)
    torch.add(theirs_x, 1, out=theirs_y)
    del theirs_x, theirs_y  # the end of both loans: now the kernel may use the memory
    saxpy.launch(blocks, THREADS, 2.0, cu.read(x), y, COUNT, stream=stream)
    return torch.from_dlpack(y).sum()


with torch.cuda.stream(work):
    step()  # before the capture, libraries load what they need
stream.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=work), cu.joins_capture(stream) as kept:
    total = step()

# PyTorch does not tell when it replays its graph, so the page-locked memory is lent to it.
with torch.cuda.stream(work):
    for batch in range(BATCHES):
        frames[:] = batch
        with frames.lend(stream, readonly=True), x.lend(stream), y.lend(stream):
            graph.replay()
        if batch == 0:
            try:
                frames[:] = 1  # the replay may not have read the frames yet
            except cu.BufferBorrowedError as error:
                print("\n".join(str(error).splitlines()[:2]))
        stream.synchronize()
        assert total.item() == COUNT * (3 * batch + 1)
print(f"{BATCHES} replays of {len(kept.nodes)} nodes of cudadrv, between those of PyTorch")

del total, graph  # all replays of the graph are complete
kept.close()  # x, y and frames could not be closed before
