"""Locks are skipped while a program has one thread.

Other threads start and end while that thread is in a driver call.
"""

import numpy as np
import pytest
from in_threads import started

import cudadrv as cu

COUNT, ROUNDS = 256, 150


@pytest.mark.usefixtures("eager_threads")
def test_threads_come_and_go_beside_the_one_that_issues(driver):
    shared, source = cu.Stream(), cu.LockedBuffer.zeros(COUNT)
    targets = [cu.DeviceBuffer.zeros(COUNT) for _ in range(3)]
    contested = cu.DeviceBuffer.zeros(COUNT)
    refused = 0

    def visit():
        """Fill one buffer on the first thread's stream and on a stream of this thread."""
        stream = cu.Stream()
        refused = 0
        for _ in range(20):
            contested.fill_async(7, shared)
            try:
                contested.fill_async(8, stream)
            except cu.BufferBorrowedError:
                refused += 1
                stream.wait(shared)
                contested.fill_async(8, stream)
            shared.wait(stream)
        stream.synchronize()
        return refused

    for number in range(ROUNDS):
        visitors = [started(visit)] if number % 3 == 0 else []
        for _ in range(20):
            for target in targets:
                target.copy_from_async(source, shared)
        source.fill_async(number % 250, shared)
        for thread, answers in visitors:
            thread.join()
            assert isinstance(answers[0], int), answers[0]
            refused += answers[0]
    for target in targets:
        target.copy_from_async(source, shared)
    shared.synchronize()
    assert refused > 0
    assert not any(buffer.borrowed for buffer in [source, contested, *targets])
    for target in targets:
        result = np.zeros(COUNT, "u1")
        target.copy_to(result)
        assert (result == (ROUNDS - 1) % 250).all()
