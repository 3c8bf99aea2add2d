"""`In`, `Out` and `InOut`: arrays of the host as arguments of one launch."""

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
from in_threads import started

import cudadrv as cu
from cudadrv import testing

N = 1000


@pytest.fixture
def arrays(driver):
    """Two arrays of the host: x = 0, 1, 2 and so on, and y = 1, 1, 1 and so on."""
    return np.arange(N, dtype="f4"), np.ones(N, "f4")


@pytest.fixture
def launch(saxpy, stream, arrays):
    """A function that launches y = 2 x + y."""

    def launch(x=None, y=None, stream=stream):
        x = cu.In(arrays[0]) if x is None else x
        y = cu.InOut(arrays[1]) if y is None else y
        return saxpy.launch(8, 128, 2.0, x, y, N, stream=stream)

    return launch


EXPECTED = 2 * np.arange(N, dtype="f4") + 1


def test_wait_brings_the_results_home(arrays, launch, stream, gate):
    x, y = arrays
    gate.hold(stream)
    token = launch()
    assert isinstance(token, cu.ResultToken)
    assert (token.stream, token.site) == (stream, token.token.site)
    assert [each.count for each in token.reads + token.writes] == [N, N]
    x[:] = 0  # allowed, because the launch uses a copy of x
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        y[0] = 7
    assert not token.done
    assert "results not home" in repr(token)
    with pytest.raises(TimeoutError, match="copy_to_async on Stream"):
        token.wait(timeout=0)
    assert (y == 1).all()
    gate.open()
    token.wait()
    assert np.array_equal(y, EXPECTED)
    assert "results home" in repr(token)
    y[0] = 7
    token.wait()  # a second wait does not copy the results again
    assert token.done
    assert y[0] == 7


def test_the_stream_brings_nothing_home(arrays, launch, stream):
    """Results are copied back only by `token.wait()`, or by `token.done` when it is True."""
    token = launch()
    stream.synchronize()
    assert (arrays[1] == 1).all()
    assert token.done
    assert np.array_equal(arrays[1], EXPECTED)


def test_await(arrays, launch):
    async def main():
        await launch()

    asyncio.run(main())
    assert np.array_equal(arrays[1], EXPECTED)


def test_polling(arrays, launch):
    token = launch()
    limit = time.monotonic() + 60
    while not token.done:
        assert time.monotonic() < limit
    assert np.array_equal(arrays[1], EXPECTED)


def test_out_and_buffers_together(saxpy, arrays, stream, module):
    """The device buffer of an `Out` is undefined before the launch.

    Buffers beside it are borrowed as usual.
    """
    x, y = arrays
    device = cu.DeviceBuffer.from_array(y)
    token = saxpy.launch(8, 128, 2.0, cu.In(x), device, N, stream=stream)
    assert type(token) is cu.Token  # no results to copy back
    token.wait()
    results = np.empty((10, 100), "f4")
    token = module["saxpy"].launch(8, 128, 0.0, cu.read(device), cu.Out(results), 0, stream=stream)
    token.wait()
    assert results.flags.writeable
    with stream:
        saxpy.launch(8, 128, 2.0, cu.read(device), cu.InOut(y), N).wait()
    assert np.array_equal(y, 2 * EXPECTED + 1)


def test_other_streams_wait_for_the_token(arrays, launch, stream, other):
    token = launch()
    other.wait(token)
    token.writes[0].copy_to(np.empty(N, "f4"), stream=other)
    token.wait()


def test_two_launches_in_a_row(arrays, launch):
    x, y = arrays
    first = launch()
    for again in (cu.In(y), cu.InOut(y), cu.Out(y[5:])):
        with pytest.raises(cu.OwnershipError, match=r"the argument 2 \(InOut\) of the block or l"):
            launch(x=again if repr(again).startswith("In(") else None, y=again)
    first.wait()
    launch().wait()
    assert np.array_equal(y, 2 * x + EXPECTED)


def test_a_token_that_is_dropped_warns(arrays, launch, stream):
    token = launch()
    with pytest.warns(cu.CudaWarning, match=r"queued at \S*test_in_out.py:\d+ never came home"):  # noqa: PT031
        del token
        gc.collect()
    assert (arrays[1] == 1).all()
    arrays[1][0] = 3
    stream.synchronize()


def test_arrays_live_as_long_as_the_token(launch):
    token = launch(y=cu.InOut(np.ones(N, "f4")))
    gc.collect()
    token.wait()


def test_an_array_that_was_made_writable_meanwhile(arrays, launch):
    y = arrays[1]
    token = launch()
    y.flags.writeable = True
    y[0] = 5
    with pytest.raises(cu.OwnershipError, match="made writable by the program while it was"):
        token.wait()
    assert (y[1:] == 1).all()
    for again in (token.wait, lambda: token.done):
        with pytest.raises(cu.OwnershipError, match="are lost: an earlier call could not bring"):
            again()
    launch().wait()


class Liar(np.ndarray):
    """An array whose attributes describe another one."""

    size = nbytes = 1 << 20
    shape = (1 << 20,)
    dtype = np.dtype("f8")
    itemsize = ndim = 8
    flags = base = None

    def setflags(self, *arguments, **options):
        pass


def test_subclasses_with_other_attributes(saxpy, arrays, stream):
    x, y = (each.view(Liar) for each in arrays)
    token = saxpy.launch(8, 128, 2.0, cu.In(x), cu.InOut(y), N, stream=stream)
    assert [each.nbytes for each in token.reads + token.writes] == [4 * N, 4 * N]
    with pytest.raises(ValueError, match="read-only"):
        arrays[1][0] = y[0] = 7
    token.wait()
    assert np.array_equal(np.asarray(y), EXPECTED)
    y[0] = 7
    out = np.empty(N, "f4").view(Liar)
    saxpy.launch(8, 128, 0.0, cu.In(x), cu.Out(out), 0, stream=stream).wait()


@pytest.mark.parametrize("cls", [cu.In, cu.Out, cu.InOut])
@pytest.mark.parametrize("value", [[1.0], None, np.float32(1), b"1234", cu])
def test_what_is_no_array(driver, cls, value):
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\) takes a NumPy array, not "):
        cls(value)


def test_wrong_arrays(saxpy, arrays, launch, stream):
    x = arrays[0]
    frozen = np.ones(N, "f4")
    frozen.flags.writeable = False
    for wrong, error, text in [
        (cu.Out(np.zeros(2 * N, "f4")[::2]), ValueError, r"argument 2 \(Out\), of shape .* not C-"),
        (cu.InOut(frozen), ValueError, r"argument 2 \(InOut\), .* is read-only, so no results"),
        (cu.InOut(np.array([None])), TypeError, "holds Python objects"),
        (cu.InOut(np.ma.array([1.0])), TypeError, "the mask of a masked array would be lost"),
        (cu.InOut(x), ValueError, r"shares memory with argument 1 \(In\)"),
    ]:
        with pytest.raises(error, match=text):
            launch(y=wrong)
        assert x.flags.writeable
    launch(y=cu.InOut(x.copy()), x=cu.In(frozen)).wait()


def test_a_refused_launch_captures_nothing(saxpy, vectors, arrays, stream, other):
    x, y = vectors
    y.fill_async(0, other)
    with pytest.raises(cu.BufferBorrowedError):
        saxpy.launch(8, 128, 2.0, y, cu.InOut(arrays[1]), N, stream=stream)
    with pytest.raises(TypeError, match=r"argument 3 \(n, .u32\)"):
        saxpy.launch(8, 128, 2.0, cu.In(arrays[0]), cu.InOut(arrays[1]), 1.5, stream=stream)
    with pytest.raises(TypeError, match="parameter is no address"):
        saxpy.launch(8, 128, cu.In(arrays[0]), x, cu.InOut(arrays[1]), N, stream=stream)
    arrays[1][0] = 1
    other.synchronize()


QUEUEING = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemAllocAsync", "cuEventRecord")


@pytest.mark.cuda_software
@pytest.mark.parametrize("policy", ["strict", "wait"])
def test_a_refused_launch_queues_nothing(saxpy, vectors, arrays, stream, policy):
    """Arrays are copied to the device only if the buffers of the launch can be used.

    "wait" refuses, too: no stream can wait for the default stream of a thread that has ended.
    """
    _, y = vectors
    started(lambda: y.fill_async(0, cu.Stream.per_thread()))[0].join()
    before = [testing.calls(name) for name in QUEUEING]
    x, z = arrays
    with cu.ordering(policy):
        for operands, borrows in (
            ((y, cu.InOut(z)), ()),
            ((cu.In(x), y), ()),
            ((cu.In(x), cu.InOut(z)), [y]),
        ):
            with pytest.raises(cu.BufferBorrowedError, match="it is being written by fill_async"):
                saxpy.launch(8, 128, 2.0, *operands, N, stream=stream, borrows=borrows)
    assert [testing.calls(name) for name in QUEUEING] == before
    stream.context.synchronize()


def test_where_arrays_are_not_taken(saxpy, vectors, arrays, stream):
    array = cu.In(arrays[0])
    with pytest.raises(TypeError, match=r"prepare takes buffers, and In\(array of shape \(1000,\)"):
        saxpy.prepare(8, 128, 2.0, array, vectors[1], N)
    with pytest.raises(TypeError, match=r"^In\(array .*\) is for the arguments of a launch,"):
        saxpy.launch(8, 128, 2.0, *vectors, N, stream=stream, borrows=[array])
    for wrap in (cu.read, cu.write, cu.shared):
        with pytest.raises(TypeError, match="takes a buffer"):
            wrap(array)
    assert repr(array) == "In(array of shape (1000,), float32)"


def test_a_kernel_whose_parameters_are_not_known(driver, arrays, stream):
    """Before CUDA 12.4 drivers cannot report the parameters of a cubin's kernel."""
    from pathlib import Path

    saxpy = cu.Module.from_file(Path(__file__).with_name("kernels.fatbin"))["saxpy"]
    token = saxpy.launch(
        8, 128, np.float32(2), cu.In(arrays[0]), cu.InOut(arrays[1]), np.int32(N), stream=stream
    )
    token.wait()
    assert np.array_equal(arrays[1], EXPECTED)


def test_inside_an_offload_block(saxpy, arrays, stream):
    x, y = arrays
    z = np.ones(N, "f4")
    with cu.offload(x, inout=z, stream=stream) as (_, dz):
        saxpy.launch(8, 128, 2.0, cu.In(x), cu.InOut(y), N, stream=stream).wait()
        with pytest.raises(cu.OwnershipError, match="inout array 0 of the block"):
            saxpy.launch(8, 128, 2.0, cu.In(x), cu.Out(z), N, stream=stream)
        with pytest.raises(cu.OwnershipError, match="the array 0 of the block"):
            saxpy.launch(8, 128, 2.0, cu.read(dz), cu.Out(x), N, stream=stream)
    assert np.array_equal(y, EXPECTED)


def test_many_waiters(arrays, launch, stream, gate):
    """Several threads wait for one token.

    Each finds the results in the array when `wait` returns.
    """
    gate.hold(stream)
    token = launch()
    found = []

    def wait():
        token.wait()
        found.append(np.array_equal(arrays[1], EXPECTED))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_ctrl_c_leaves_the_results_on_their_way(arrays, launch, stream, gate):
    import _thread

    gate.hold(stream)
    token = launch()
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        token.wait()
    timer.join()
    assert (arrays[1] == 1).all()
    gate.open()
    token.wait()
    assert np.array_equal(arrays[1], EXPECTED)


@pytest.mark.cuda_software
@pytest.mark.usefixtures("unpooled")
@pytest.mark.parametrize(
    "function",
    [
        *("cuMemAllocAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuLaunchKernelEx"),
        "cuMemcpyDtoHAsync_v2",
    ],
)
def test_failing_driver_calls(arrays, launch, stream, function):
    from cudadrv import testing

    cu.reap()
    before = len(cu.live_buffers())
    testing.configure(f"fault={function}:1:1")
    try:
        with pytest.raises(cu.CudaError):
            launch()
    finally:
        testing.configure("fault=none")
    stream.synchronize()
    assert len(cu.live_buffers()) == before
    assert (arrays[1] == 1).all()
    launch().wait()
    assert np.array_equal(arrays[1], EXPECTED)
