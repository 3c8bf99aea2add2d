"""Double buffering: the next batch is copied while the device trains on this one."""

from pathlib import Path

import numpy as np

import cudadrv as cu

BATCH, BATCHES = 1 << 15, 8
kernels = Path(__file__).parents[1] / "kernels"
saxpy = cu.Module.from_file(kernels / "saxpy.ptx")["saxpy"]


def batch(number: int) -> np.ndarray:
    """Read a batch, as from a file."""
    return np.full(BATCH, number, "f4")


def train(stream: cu.Stream, given: cu.DeviceBuffer) -> None:
    """Queue state += batch."""
    saxpy.launch(-(-BATCH // 256), 256, 1.0, cu.read(given), state, BATCH, stream=stream)


# By hand: two buffers on each side, a stream for copies and one for kernels.
state = cu.DeviceBuffer.zeros(BATCH, "f4", name="state")
staged = [cu.LockedBuffer(BATCH, "f4", name=f"staged {i}") for i in range(2)]
given = [cu.DeviceBuffer(BATCH, "f4", name=f"given {i}") for i in range(2)]
copies, compute = cu.Stream(name="copies"), cu.Stream(name="compute")
used: list[cu.Event | None] = [None, None]

for number in range(BATCHES):
    turn = number % 2
    if number >= 2:  # each of these waits is needed: without one, the next line is refused
        used[turn].synchronize()  # so the copy of two batches ago is complete, too
    staged[turn].copy_from(batch(number))
    compute.wait(given[turn].copy_from_async(staged[turn], copies))
    train(compute, given[turn])
    used[turn] = compute.record()

try:
    staged[0].copy_from(batch(0))  # the wait is forgotten
except cu.BufferBorrowedError as error:
    print(f"{error}\n")
compute.synchronize()
assert (state.to_numpy() == sum(range(BATCHES))).all()

# The same by a pipeline, which has the buffers, streams and waits.
state.fill(0)
with cu.Pipeline(BATCH, "f4", compute=lambda stream, x, _: train(stream, x), buffers=2) as pipeline:
    report = pipeline.run(batch(number) for number in range(BATCHES))
assert (state.to_numpy() == sum(range(BATCHES))).all()
print(f"{report.chunks} batches, twice")
