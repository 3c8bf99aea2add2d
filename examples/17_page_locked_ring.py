"""A producer and a consumer with a ring of page-locked buffers: the host fills, the GPU reads."""

import multiprocessing
from multiprocessing.queues import Queue

import numpy as np

import cudadrv as cu

SLOTS, COUNT, FRAMES = 3, 1 << 14, 12


def consume(full: "Queue[cu.Ticket | None]", empty: "Queue[cu.Receipt]") -> None:
    """Copy each frame from the ring to the device, and give its slot back after the copy."""
    stream = cu.Stream(name="consumer")
    total = cu.DeviceBuffer.zeros(COUNT, "f4", name="last frame")
    while (ticket := full.get()) is not None:
        frame = cu.open(ticket, stream)
        total.copy_from_async(frame, stream)
        empty.put(frame.give_back(stream))
    print(f"mean of the last frame: {total.to_numpy(stream=stream).mean():.0f}")


def produce() -> None:
    """Fill the slots of the ring in turn."""
    context = multiprocessing.get_context("spawn")
    full, empty = context.Queue(), context.Queue()
    consumer = context.Process(target=consume, args=(full, empty))
    consumer.start()
    stream = cu.Stream(name="producer")
    ring = [cu.LockedBuffer(COUNT, "f4", shareable=True, name=f"slot {k}") for k in range(SLOTS)]
    for number in range(FRAMES):
        slot = ring[number % SLOTS]
        if number >= SLOTS:  # the consumer gives the slots back in the order of the ring
            slot.accept(empty.get(), stream)
            stream.synchronize()  # the host writes next, so it waits for the consumer's copy
        with slot.write() as array:
            array[:] = np.full(COUNT, number, "f4")
        full.put(slot.share(stream))
    full.put(None)
    for k in range(FRAMES, FRAMES + SLOTS):
        ring[k % SLOTS].accept(empty.get(), stream)
    consumer.join()
    stream.synchronize()
    assert consumer.exitcode == 0
    print(f"{FRAMES} frames went through {SLOTS} slots")


if __name__ == "__main__":
    produce()
