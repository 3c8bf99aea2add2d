"""Two processes take turns with the same device memory: no copy between them, no host wait."""

import multiprocessing
from multiprocessing.connection import Connection

import cudadrv as cu

COUNT, ROUNDS = 1 << 16, 5


def consume(pipe: Connection) -> None:
    """Open each ticket, read and change its frame, and give the frame back."""
    stream = cu.Stream(name="consumer")
    result = cu.LockedBuffer(1, "i4")
    while (ticket := pipe.recv()) is not None:
        frame = cu.open(ticket, stream)  # work on the stream comes after the producer's
        result.copy_from_async(frame[:1], stream)
        frame[1:2].copy_from_async(result, stream)  # the answer goes into the frame
        pipe.send(frame.give_back(stream))  # does not wait: the work above may not have begun
    pipe.send("done")
    stream.synchronize()
    print(f"the last frame began with {result[0]}")


def produce() -> None:
    """Fill frames, and lend them to the other process."""
    context = multiprocessing.get_context("spawn")
    pipe, there = context.Pipe()
    consumer = context.Process(target=consume, args=(there,))
    consumer.start()
    stream = cu.Stream(name="producer")
    frames = [cu.DeviceBuffer(COUNT, "i4", name=f"frame {k}") for k in range(2)]
    for number in range(ROUNDS):
        frame = frames[number % 2]
        frame.fill_async(number, stream=stream)
        pipe.send(frame.share(stream))
        try:
            frame.fill_async(0, stream=stream)
        except cu.BufferExportedError as error:
            if number == 0:
                print(error)
        frame.accept(pipe.recv(), stream)  # the stream waits for the consumer's work
        assert frame[:2].to_numpy(stream=stream).tolist() == [number, number]
    pipe.send(None)
    assert pipe.recv() == "done"
    consumer.join()
    assert consumer.exitcode == 0
    print(f"{ROUNDS} rounds, {COUNT * 4} bytes each, and nothing was copied between processes")


if __name__ == "__main__":
    produce()
