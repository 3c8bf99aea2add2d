"""Dask: buffers that are passed between processes, and errors that must arrive."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
import weakref
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from distributed.protocol import deserialize, serialize
from distributed.protocol.serialize import merge_and_deserialize, serialize_and_split

import cudadrv as cu
import cudadrv.dask as ours

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STENCIL = ROOT / "examples" / "distributed" / "stencil.py"
PATIENCE = 60  # seconds, for steps of one second; without an answer Dask would wait for ever
DEVICE = 4 << 20  # bytes of memory of a worker's device
KINDS = ["DeviceBuffer", "LockedBuffer", "UnifiedBuffer"]
ARRAYS = {
    "2-d": np.arange(12, dtype="f4").reshape(3, 4),
    "empty": np.zeros(0, "i2"),
    "structured": np.array([(1, 2.5), (3, 4.5)], [("a", "u1"), ("b", "f8")]),
    "times": np.arange(3).astype("M8[s]"),
    "big-endian": np.arange(5, dtype=">i4"),
    "half": np.arange(6, dtype="f2"),
    "texts": np.array(["ab", "c"]),
}


@pytest.fixture(scope="module", autouse=True)
def schedule():
    """Only the lazy schedule.

    The order of work depends on Dask's threads and processes, not on the driver.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDADRV_DRIVER", "software")
        patch.setenv("CUDADRV_SOFTWARE", f"schedule=lazy,memory={DEVICE}")
        patch.setenv("PYTHONPATH", str(ROOT))
        for folder in (HERE, STENCIL.parent):  # workers import this file and stencil.py
            patch.syspath_prepend(folder)
        yield "lazy"


@pytest.fixture(scope="module")
def client():
    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**local, silence_logs=60) as cluster, Client(cluster) as client:
        client.register_plugin(ours.BufferPlugin())
        yield client


@pytest.fixture
def workers(client):
    """The addresses of the two workers."""
    return list(client.scheduler_info(n_workers=-1)["workers"])


@pytest.fixture
def on_worker(monkeypatch):
    """Let this process send errors in place of buffers, as a worker does."""
    monkeypatch.setattr(ours, "_on_worker", False)
    ours.dask_setup(None)


# ---- functions that workers run ----


def made(kind, array, name="chunk"):
    return getattr(cu, kind).from_array(array, name=name)


def unfinished(kind, count, ordering=None):
    buffer = getattr(cu, kind)(count, "f4", name="result")
    buffer.ordering = ordering
    buffer.fill_async(7, cu.Stream())
    return buffer


def described(buffer):
    found = type(buffer).__name__, buffer.name, buffer.dtype, buffer.shape
    return *found, buffer.to_numpy(), os.getpid()


def allocated():
    """Number of bytes in the live buffers of a process."""
    gc.collect()
    return sum(buffer.nbytes for buffer in cu.live_buffers())


def wait_for_release(client):
    """Wait until Dask has released results, which takes some time after the last future is gone."""
    limit = time.monotonic() + PATIENCE
    while max(client.run(allocated).values()) > DEVICE // 16:
        assert time.monotonic() < limit, client.run(cu.memory_report)
        time.sleep(0.02)


class Holder:
    """An object of a program that refers to a buffer. Dask knows nothing about it."""

    def __init__(self, buffer):
        self.buffer = buffer


# ---- one process ----


@pytest.mark.parametrize("family", ["dask", "cuda"])
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind, name, family):
    array = ARRAYS[name]
    buffer = made(kind, array)
    header, frames = serialize(buffer, serializers=[family], on_error="raise")
    arrived = deserialize(header, frames, deserializers=[family])
    assert type(arrived) is type(buffer)
    assert (arrived.name, arrived.dtype, arrived.shape) == ("chunk", array.dtype, array.shape)
    assert np.array_equal(arrived.to_numpy(), array)


def test_large_buffers_travel_in_pieces():
    array = np.arange(10_000, dtype="i4")
    header, frames = serialize_and_split(made("LockedBuffer", array), size=4096)
    assert len(frames) > 9
    frames = [bytes(frame) for frame in frames]
    assert np.array_equal(merge_and_deserialize(header, frames).to_numpy(), array)


def test_a_part_travels_alone():
    part = made("DeviceBuffer", np.arange(100, dtype="i8"))[10:20]
    header, frames = serialize(part)
    assert sum(frame.nbytes for frame in frames) == 80
    assert np.array_equal(deserialize(header, frames).to_numpy(), np.arange(10, 20))


@pytest.mark.parametrize("kind", ["LockedBuffer", "UnifiedBuffer"])
def test_host_memory_is_not_copied_and_is_exported_until_it_is_sent(kind):
    buffer, stream = made(kind, ARRAYS["2-d"]), cu.Stream()
    frames = serialize(buffer)[1]
    assert np.frombuffer(frames[0]).__array_interface__["data"][0] == buffer.address
    assert not frames[0].flags.writeable
    buffer.to_numpy()  # allowed: other readers share
    with pytest.raises(cu.BufferExportedError, match="a host view of it is alive"):
        buffer.fill_async(0, stream)
    del frames
    buffer.fill_async(0, stream).wait()


@pytest.mark.parametrize("kind", ["DeviceBuffer", "UnifiedBuffer"])
def test_a_transport_of_device_memory_borrows_it(kind):
    buffer, stream = made(kind, ARRAYS["2-d"]), cu.Stream()
    frames = serialize(buffer, serializers=["cuda"], on_error="raise")[1]
    interface = frames[0].__cuda_array_interface__
    assert interface["data"] == (buffer.address, True)
    assert frames[0].nbytes == buffer.nbytes
    with pytest.raises(cu.BufferExportedError, match="it is lent to work on no stream"):
        buffer.fill_async(0, stream)
    del frames
    buffer.fill_async(0, stream).wait()


def through_numba(kind):
    """Serialize a buffer and receive it as Dask's UCX does, into arrays made by numba."""
    from numba import cuda

    buffer = made(kind, ARRAYS["structured"])
    header, [frame] = serialize(buffer, serializers=["cuda"], on_error="raise")
    if hasattr(frame, "__cuda_array_interface__"):
        source = cuda.as_cuda_array(frame).view("u1")
        received = cuda.device_array(frame.nbytes, "u1")
        received.copy_to_device(source)
        cuda.synchronize()
        address = received.__cuda_array_interface__["data"][0]
    else:
        source, address = None, 0
        received = bytearray(frame)
    frame = source = None
    buffer.close()
    arrived = deserialize(header, [received])
    # A DeviceBuffer uses the received array; other buffers are copies of it.
    kept = weakref.ref(received) if kind == "DeviceBuffer" else None
    del received
    gc.collect()
    assert np.array_equal(arrived.to_numpy(), ARRAYS["structured"])
    assert (arrived.address == address) == (kind == "DeviceBuffer")
    assert kept is None or kept() is not None
    del arrived
    cu.reap()
    gc.collect()
    assert kept is None or kept() is None


def test_through_a_transport_that_allocates_with_numba():
    """Buffers arrive through a transport that allocates with numba.

    The program has a process of its own, in which cudadrv and numba use the same driver.
    """
    driver = Path(os.environ["LD_LIBRARY_PATH"].partition(":")[0]) / "libcuda.so.1"
    code = f"import test_dask\nfor kind in {KINDS}: test_dask.through_numba(kind)"
    environ = {**os.environ, "CUDADRV_DRIVER": str(driver)}
    subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, env=environ, check=True, timeout=PATIENCE
    )


@pytest.mark.parametrize("family", ["dask", "cuda"])
@pytest.mark.parametrize("kind", KINDS)
def test_unfinished_work_is_an_error_at_the_receiver(kind, family):
    buffer = unfinished(kind, 10)
    header, frames = serialize(buffer, serializers=[family], context={})
    assert frames == []
    with pytest.raises(cu.BufferBorrowedError, match=r"written by fill_async.*test_dask\.py:"):
        deserialize(header, frames)
    assert buffer.borrowed  # serializing did not wait for the fill
    cu.Device().synchronize()


def test_a_program_that_serializes_gets_the_error_itself():
    buffer = unfinished("DeviceBuffer", 10)
    with pytest.raises(TypeError) as caught:
        serialize(buffer, on_error="raise")
    assert isinstance(caught.value.__cause__, cu.BufferBorrowedError)
    cu.Device().synchronize()


def test_what_dask_moves_by_itself_is_waited_for(on_worker):
    """Dask moves an unfinished buffer without a request of the program: cudadrv waits.

    An example is a move to the disk. No program has asked for it, so no program could get an error.
    """
    buffer = unfinished("DeviceBuffer", 10)
    header, frames = serialize(buffer, on_error="raise")
    assert np.array_equal(deserialize(header, frames).to_numpy(), np.full(10, 7))


def test_memory_that_is_read_back_from_the_disk_is_not_lost(on_worker):
    """If reading a buffer back from the disk fails, the error reaches the task.

    Dask keeps the file, so reading it again works.
    """
    header, frames = serialize(made("DeviceBuffer", np.zeros(DEVICE // 4 * 3, "u1")))
    full = cu.DeviceBuffer(DEVICE // 2)
    with pytest.raises(cu.CudaOutOfMemoryError):
        deserialize(header, frames)
    full.close()
    assert deserialize(header, frames).nbytes == DEVICE // 4 * 3


def test_a_lost_buffer_raises_at_every_use(on_worker):
    lost = deserialize(*serialize(unfinished("LockedBuffer", 10), context={}))
    assert type(lost) is ours.LostBuffer
    stream = cu.Stream()
    target = cu.LockedBuffer(10, "f4")
    kernel = cu.Module((HERE / "scale.ptx").read_bytes())["scale"]
    uses = [
        lambda: lost.shape,
        lambda: lost.to_numpy(),
        lambda: lost[0],
        lambda: len(lost),
        lambda: list(lost),
        lambda: np.asarray(lost),
        lambda: np.from_dlpack(lost),
        lambda: cu.from_dlpack(lost),
        lambda: cu.from_cuda_array(lost),
        lambda: kernel.launch(1, 1, lost, 10, 2, stream=stream),
        lambda: kernel.launch(1, 1, cu.read(lost), 10, 2, stream=stream),
        lambda: lost.__enter__(),
    ]
    for use in uses:
        with pytest.raises(cu.BufferBorrowedError, match="fill_async"):
            use()
    # Before Python 3.12, a class without buffer protocol cannot raise its own error here.
    for use in (lambda: target.copy_from(lost), lambda: target.copy_from_async(lost, stream)):
        with pytest.raises((cu.BufferBorrowedError, TypeError), match=r"fill_async|LostBuffer is"):
            use()
    assert isinstance(lost.error, cu.BufferBorrowedError)
    assert "fill_async" in repr(lost)
    again = deserialize(*serialize(lost, context={}))  # serializing it again keeps the error
    assert str(again.error) == str(lost.error)
    assert str(pickle.loads(pickle.dumps(lost)).error) == str(lost.error)
    cu.Device().synchronize()


def test_sizes():
    from dask.sizeof import sizeof

    assert sizeof(cu.DeviceBuffer(100, "f8")) == 800
    assert sizeof([cu.LockedBuffer(100, "f8")]) >= 800


def test_cudadrv_alone_imports_no_dask():
    code = "import sys, cudadrv; assert not {'dask', 'distributed'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- two workers ----


@pytest.mark.parametrize("kind", KINDS)
def test_between_workers_and_the_client(client, workers, kind):
    array = ARRAYS["2-d"]
    here, there = workers
    future = client.submit(made, kind, array, workers=here, pure=False)
    moved = client.submit(described, future, workers=there, pure=False)
    scattered = client.submit(described, client.scatter(made(kind, array)), pure=False)
    pids = client.run(os.getpid)
    for result, pid in ((moved, pids[there]), (scattered, None)):
        *found, contents, ran_in = result.result(timeout=PATIENCE)
        assert found == [kind, "chunk", array.dtype, array.shape]
        assert np.array_equal(contents, array)
        assert ran_in != os.getpid()
        assert pid in (None, ran_in)
    gathered = client.gather(future)
    assert (type(gathered).__name__, gathered.shape) == (kind, array.shape)
    assert np.array_equal(gathered.to_numpy(), array)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_is_not_finished(client, workers, kind):
    """The error names the line of the task that did not wait, and the cluster keeps working."""
    here, there = workers
    future = client.submit(unfinished, kind, 100, workers=here, pure=False)
    moved = client.submit(described, future, workers=there, pure=False)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by fill_async on Stream"):
        moved.result(timeout=PATIENCE)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by fill_async on Stream"):
        client.gather(future)
    waited = client.submit(unfinished, kind, 100, "wait", workers=here, pure=False)
    found = client.submit(described, waited, workers=there, pure=False).result(timeout=PATIENCE)
    assert np.array_equal(found[4], np.full(100, 7))


def test_an_argument_that_is_not_finished(client):
    buffer = unfinished("DeviceBuffer", 100)
    with pytest.raises(TypeError) as caught:
        client.submit(described, buffer).result(timeout=PATIENCE)
    assert "BufferBorrowedError: cannot read" in "".join(format_exception(caught.value))
    with pytest.raises(cu.BufferBorrowedError, match=r"fill_async.*test_dask\.py:"):
        client.submit(described, client.scatter(buffer)).result(timeout=PATIENCE)
    cu.Device().synchronize()
    assert client.submit(described, buffer).result(timeout=PATIENCE)[0] == "DeviceBuffer"


def test_inside_another_object(client, workers):
    here, there = workers
    future = client.submit(lambda: Holder(unfinished("DeviceBuffer", 9)), workers=here, pure=False)
    moved = client.submit(lambda holder: described(holder.buffer), future, workers=there)
    assert np.array_equal(moved.result(timeout=PATIENCE)[4], np.full(9, 7))


def test_a_computation_larger_than_the_device_of_a_worker(client, workers):
    wait_for_release(client)
    size, chunks = DEVICE // 16, 24
    assert DEVICE < chunks * size < 2 * DEVICE

    def numbers(seed):
        return np.random.default_rng(seed).integers(0, 1000, size // 8)

    def product(one, other):
        return int((one.to_numpy() * other.to_numpy()).sum())

    data = {
        i: client.submit(made, "DeviceBuffer", numbers(i), workers=workers[i % 2], pure=False)
        for i in range(chunks)
    }
    wait(list(data.values()))
    # All chunks are in memory at once.
    assert min(client.run(allocated).values()) >= chunks * size // 2
    # Neighbours come from two workers, and are combined on the second worker.
    for i in range(chunks - 1):
        found = client.submit(product, data[i], data[i + 1], workers=workers[1], pure=False)
        assert found.result(timeout=PATIENCE) == int((numbers(i) * numbers(i + 1)).sum())
        client.cancel([found, data.pop(i)])
    client.cancel(list(data.values()))


def test_a_receiver_without_memory(client, workers):
    here, there = workers
    wait_for_release(client)
    zeros = np.zeros(DEVICE // 8 * 5, "u1")
    first = client.submit(made, "DeviceBuffer", zeros, workers=here, pure=False)
    kept = client.submit(made, "DeviceBuffer", zeros, workers=there, pure=False)
    both = client.submit(lambda a, b: a.nbytes + b.nbytes, first, kept, workers=there, pure=False)
    with pytest.raises(cu.CudaOutOfMemoryError, match="were requested for DeviceBuffer 'chunk'"):
        both.result(timeout=PATIENCE)
    # The worker still works.
    assert client.submit(sum, [1, 2], workers=there).result(timeout=PATIENCE) == 3
    client.cancel([both, kept, first])


# ---- the stencil ----


def test_stencil():
    done = subprocess.run(
        [sys.executable, STENCIL, "--engine", "dask", "--parts", "2"],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, _, last = done.stdout.splitlines()
    assert first == "2 parts of 32 x 128, 10 steps, equal to NumPy"
    assert "weak scaling: " in last


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_dies(client, victim, monkeypatch):
    """If a worker dies, neither its neighbour nor the client waits for ever."""
    import stencil

    options = Namespace(rows=32, columns=128, steps=10**6, check=False, patience=3)
    before, pauses = living_workers(client), []

    def pause(seconds):  # the client calls this when both workers run
        pauses.append(seconds)
        if len(pauses) == 50:
            os.kill(before[victim], signal.SIGKILL)
        time.sleep(seconds)

    monkeypatch.setattr(stencil, "time", SimpleNamespace(sleep=pause))
    begin = time.monotonic()
    with pytest.raises((OSError, TimeoutError), match=r"Unable to contact|may have died|timed out"):
        stencil.with_dask(options, client, 2)
    assert time.monotonic() - begin < PATIENCE
    assert len(pauses) >= 50
    assert len(living_workers(client)) == 2  # Dask has started another worker


def living_workers(client):
    """The process ids of two workers that answer."""
    for _ in range(100):
        client.wait_for_workers(2, timeout=PATIENCE)
        with suppress(OSError):
            found = list(client.run(os.getpid).values())
            if len(found) == 2:
                return found
        time.sleep(0.1)
    raise AssertionError("no two workers answer")
