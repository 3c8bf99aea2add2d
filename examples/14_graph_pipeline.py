"""A graph whose page-locked input is filled again between its launches, in two lanes."""

from pathlib import Path

import numpy as np

import cudadrv as cu

COUNT, BATCHES, BLOCK = 1 << 14, 10, 256
saxpy = cu.Module.from_file(Path(__file__).parent / "kernels" / "saxpy.ptx")["saxpy"]


class Lane:
    """A stream, the buffers of a batch, and the graph that takes a batch through the device."""

    def __init__(self, name: str) -> None:
        self.stream = cu.Stream(name=name)
        self.input = cu.LockedBuffer.zeros(COUNT, "f4", name="input")
        self.result = cu.LockedBuffer.zeros(COUNT, "f4", name="result")
        x, y = cu.DeviceBuffer(COUNT, "f4"), cu.DeviceBuffer(COUNT, "f4")
        with cu.Graph(name=name) as graph:
            with graph.capture(self.stream):
                x.copy_from_async(self.input, self.stream)  # each launch reads the input anew
                y.fill_async(1, self.stream)
                saxpy.launch(COUNT // BLOCK, BLOCK, 2.0, cu.read(x), y, COUNT, stream=self.stream)
                self.result.copy_from_async(y, self.stream)
            self.step = graph.instantiate()  # keeps x and y alive, although their names go
        self.token: cu.Token | None = None

    def collect(self) -> float:
        """Wait for the batch in the lane, and use its result."""
        if self.token is None:
            return 0.0
        self.token.wait()
        self.token = None
        return float(self.result.to_numpy().sum(dtype="f8"))

    def begin(self, batch: np.ndarray) -> None:
        self.input[:] = batch
        self.token = self.step.launch(self.stream)


lanes, total = [Lane("even"), Lane("odd")], 0.0
for index in range(BATCHES):
    lane = lanes[index % 2]  # the other lane's batch may be on the device meanwhile
    total += lane.collect()
    lane.begin(np.full(COUNT, index, "f4"))

# Without a wait, the next batch would overwrite what the launch reads. So the write is refused.
try:
    lane.begin(np.zeros(COUNT, "f4"))
except cu.BufferBorrowedError as error:
    print("\n".join(str(error).splitlines()[:2]))
total += sum(lane.collect() for lane in lanes)

assert total == COUNT * sum(2 * index + 1 for index in range(BATCHES))
print(f"{BATCHES} batches, {total:.0f}")
