"""Ctrl-C in blocking copies; buffers that several threads use."""

import threading
import time

import numpy as np
import pytest
from in_threads import interrupted

import cudadrv as cu


@pytest.mark.parametrize("nbytes", [1000, 3 << 20])
@pytest.mark.parametrize("way", ["copy_to", "copy_from", "fill"])
def test_ctrl_c_leaves_the_borrow(stream, gate, way, nbytes):
    buffer, array = cu.DeviceBuffer(nbytes), np.full(nbytes, 9, "u1")
    buffer.copy_from(np.zeros(nbytes, "u1"))
    gate.hold(stream)
    with interrupted(lambda: buffer.borrowed):
        getattr(buffer, way)(1 if way == "fill" else array, stream=stream)
    assert buffer.borrowed
    array[:] = 5
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close()
    gate.open()
    stream.synchronize()
    assert (array == 5).all()
    assert not buffer.borrowed
    found = np.empty(nbytes, "u1")
    buffer.copy_to(found)
    # An interrupted copy of a long array writes only the items that were in a stage by then.
    value = {"copy_to": 0, "copy_from": 9, "fill": 1}[way]
    assert set(found[:1000]) == {value}
    assert set(found) <= {0, value}


def in_threads(*works):
    """Run functions in threads at once, and raise their exceptions."""
    errors = []

    def guard(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_with_streams_and_buffers_of_their_own(driver):
    def work(seed):
        random = np.random.default_rng(seed)
        stream, buffer = cu.Stream(), cu.DeviceBuffer(200_000)
        for _ in range(15):
            data = random.integers(0, 256, int(random.integers(1, 200_000)), "u1")
            found = np.zeros_like(data)
            buffer[: data.size].copy_from_async(data, stream)
            buffer[: data.size].copy_to(found, stream=stream)
            assert (found == data).all()

    in_threads(*[lambda seed=seed: work(seed) for seed in range(4)])


def test_threads_without_streams(driver):
    def work(value):
        buffer, found = cu.DeviceBuffer(3 << 19), np.zeros(3 << 19, "u1")
        for _ in range(5):
            buffer.copy_from(np.full_like(found, value))
            buffer.copy_to(found)
            assert (found == value).all()

    in_threads(*[lambda value=value: work(value) for value in range(3)])


def test_one_thread_closes_what_another_uses(driver):
    """One thread uses a buffer while another closes it: the call that comes second is refused.

    So nothing is freed while the GPU uses it.
    """
    for _ in range(20):
        buffer, start = cu.DeviceBuffer(5000), threading.Barrier(2)

        def use(buffer=buffer, start=start):
            stream = cu.Stream()
            start.wait()
            try:
                for value in range(20):
                    buffer.fill_async(value, stream)
            except cu.BufferClosedError:
                pass
            stream.synchronize()

        def close(buffer=buffer, start=start):
            start.wait()
            while not buffer.closed:
                try:
                    buffer.close()
                except cu.BufferBorrowedError:
                    time.sleep(0.0001)

        in_threads(use, close)
        assert buffer.closed


def test_one_thread_closes_twice(driver):
    for _ in range(20):
        buffer = cu.DeviceBuffer(8)
        in_threads(buffer.close, buffer.close, buffer.close)
        assert buffer.closed
