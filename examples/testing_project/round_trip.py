"""Sends frames to the device and back: while one comes back, the next one is sent."""

import numpy as np

import cudadrv as cu


class RoundTrip:
    """Two slots on the device, a stream for each direction.

    The program orders its streams itself (``cu.ordering("unchecked")``), as a program without
    cudadrv does.
    """

    def __init__(self, size):
        self.up, self.down = cu.Stream(name="up"), cu.Stream(name="down")
        self.slots = [cu.DeviceBuffer(size, "f4", name=f"slot {number}") for number in range(2)]

    def run(self, frames):
        """Return the frames, after their way through the slots."""
        sources = [cu.LockedBuffer.from_array(frame, name="source") for frame in frames]
        targets = [cu.LockedBuffer(frame.size, "f4", name="target") for frame in frames]
        emptied = [None, None]  # for each slot, the event after its last copy to the host
        with cu.ordering("unchecked"):
            for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
                slot = number % 2
                self.wait_until(emptied[slot])
                self.slots[slot].copy_from_async(source, self.up)
                self.down.wait(self.up.record())
                self.slots[slot].copy_to_async(target, self.down)
                emptied[slot] = self.down.record()
        self.down.synchronize()
        self.up.synchronize()
        return [np.array(target) for target in targets]

    def wait_until(self, emptied):
        if emptied is not None:
            self.up.wait(emptied)


class CarelessRoundTrip(RoundTrip):
    """Sends a frame into a slot from which the one before may still be read."""

    def wait_until(self, emptied):
        pass
