"""Functions that spawned processes run, for tests/processes/test_multiprocessing.py."""

import cudadrv as cu


def double(buffer, answers):
    """Change a buffer that came as an argument, and give it back."""
    stream = cu.Stream.legacy()
    buffer[: buffer.count // 2].fill_async(9, stream=stream)
    answers.send(buffer.give_back(stream))
    stream.synchronize()  # otherwise the end of this process could end the work


def take_from_queue(queue, answers):
    stream = cu.Stream.legacy()
    while (buffer := queue.get()) is not None:
        total = buffer.to_numpy(stream=stream).sum().item()
        answers.put((buffer.give_back(stream), total))
