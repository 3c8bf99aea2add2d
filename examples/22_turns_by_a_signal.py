"""Two processes take turns with shared page-locked memory by a signal: nobody waits on the host."""

import multiprocessing
from multiprocessing.shared_memory import SharedMemory

import numpy as np

import cudadrv as cu

COUNT, ROUNDS = 1 << 16, 5


def shared_frame(memory: SharedMemory) -> cu.LockedBuffer:
    """Page-lock memory that both processes have mapped, so that their devices can use it."""
    return cu.LockedBuffer.from_memory(np.frombuffer(memory.buf, "i4", COUNT), name="frame")


def consume(turn: cu.Signal, name: str) -> None:
    """Wait for the odd numbers, read the frame, and set the even ones."""
    memory = SharedMemory(name)
    stream, frame = cu.Stream(name="consumer"), shared_frame(memory)
    work = cu.DeviceBuffer(ROUNDS * COUNT, "i4", name="work").reshape(ROUNDS, COUNT)
    for number in range(ROUNDS):
        stream.wait(turn, 2 * number + 1)  # the other process sets it
        work[number].copy_from_async(frame, stream)
        stream.set(turn, 2 * number + 2)
    stream.synchronize()
    assert work.to_numpy()[:, -1].tolist() == list(range(ROUNDS))
    frame.close()
    memory.close()


def produce() -> None:
    """Fill the frame when the other process has read it, and set the odd numbers."""
    context = multiprocessing.get_context("spawn")
    memory = SharedMemory(create=True, size=4 * COUNT)
    turn = cu.Signal(external=True, name="turn")
    consumer = context.Process(target=consume, args=(turn, memory.name))
    consumer.start()
    stream, frame = cu.Stream(name="producer"), shared_frame(memory)
    for number in range(ROUNDS):
        stream.wait(turn, 2 * number)
        frame.fill_async(number, stream)
        stream.set(turn, 2 * number + 1)
    turn.wait(2 * ROUNDS)  # everything above was queued without waiting
    stream.synchronize()
    print(f"{ROUNDS} rounds: the signal is {turn.value}")
    consumer.join()
    assert consumer.exitcode == 0
    frame.close()
    memory.close()
    memory.unlink()


if __name__ == "__main__":
    produce()
