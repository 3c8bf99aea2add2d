"""Buffers as arguments of spawned processes, and through pipes and queues."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
import spawned
from limits import PATIENCE

import cudadrv as cu

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def software(driver, monkeypatch):
    if driver != "cuda":
        monkeypatch.setenv("CUDADRV_SOFTWARE", f"schedule={driver}")


@pytest.mark.parametrize("kind", [cu.DeviceBuffer, cu.LockedBuffer])
def test_an_argument(software, kind):
    stream = cu.Stream()
    buffer = kind(10, "i4", **({"shareable": True} if kind is cu.LockedBuffer else {}))
    buffer.fill_async(3, stream=stream)  # nothing in this process orders later work after this fill
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=spawned.double, args=(buffer, there))
    process.start()
    with pytest.raises(cu.BufferExportedError, match="shared with another process"):
        buffer.fill_async(1, stream=stream)
    assert here.poll(PATIENCE)
    buffer.accept(here.recv(), stream)
    stream.synchronize()
    assert buffer.to_numpy().tolist() == [9] * 5 + [3] * 5
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_a_queue(software):
    buffers = [cu.DeviceBuffer.from_array(np.full(10, k)) for k in range(4)]
    work, answers = SPAWN.Queue(), SPAWN.Queue()
    process = SPAWN.Process(target=spawned.take_from_queue, args=(work, answers))
    process.start()
    for buffer in buffers:
        work.put(buffer)
    work.put(None)
    for k, buffer in enumerate(buffers):
        receipt, total = answers.get(timeout=PATIENCE)
        assert total == 10 * k
        buffer.accept(receipt)
    process.join(PATIENCE)
    assert process.exitcode == 0
    cu.Stream.legacy().synchronize()


def test_other_picklers_are_refused(driver):
    buffer = cu.DeviceBuffer(10, name="frames")
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"'frames'.*cannot be pickled.*share\(stream\)"):
            make(buffer)


def test_what_cannot_be_shared_cannot_be_sent(driver):
    here, there = SPAWN.Pipe()
    with pytest.raises(ValueError, match="managed memory"):
        here.send(cu.UnifiedBuffer(10))
    here.close()
    there.close()
