"""`offload`: arrays of the host that a device uses during a `with` block."""

import gc
import threading
import warnings

import numpy as np
import pytest

import cudadrv as cu

software = pytest.mark.cuda_software


@pytest.fixture
def arrays(driver):
    """Three arrays: 0, 1, 2 and so on; zeros; tens."""
    return np.arange(600, dtype="i4"), np.zeros(600, "i4"), np.full(600, 10, "i4")


def double(source, target, stream):
    """Stands for a kernel that reads `source` and writes `target`."""
    target.copy_from_async(source, stream)


@pytest.mark.parametrize("how", ["stream", "current", "none"])
def test_results_come_home(arrays, stream, how):
    x, y, z = arrays
    options = {"stream": stream} if how == "stream" else {}
    with stream.scope() if how == "current" else cu.ordering("strict"):
        with cu.offload(x, out=y, inout=[z], **options) as (dx, dy, dz):
            assert [type(each) for each in (dx, dy, dz)] == [cu.DeviceBuffer] * 3
            assert (dx.name, dy.name, dz.name) == ("array 0", "out array 0", "inout array 0")
            check = np.empty(600, "i4")
            dz.copy_to(check, stream=stream)
            assert (check == 10).all()
            double(dx, dy, stream)
            dz.fill_async(7, stream)
            if how == "none":
                stream.synchronize()
            assert (y == 0).all()
    assert np.array_equal(y, np.arange(600))
    assert (z == 7).all()
    assert all(array.flags.writeable for array in arrays)
    for buffer in (dx, dy, dz):
        with pytest.raises(cu.BufferClosedError):
            buffer.fill(0)


def test_shapes_and_many_arrays(driver, stream):
    outs = [np.zeros((2, i + 1), "f8") for i in range(5)]
    with cu.offload(out=outs, inout=(np.zeros(3), np.array(2.0)), stream=stream) as buffers:
        assert len(buffers) == 7
        for i, buffer in enumerate(buffers):
            buffer.fill_async(i, stream)
        assert [each.shape for each in buffers[:5]] == [each.shape for each in outs]
    assert [each[1, -1] for each in outs] == [0, 1, 2, 3, 4]


def test_empty_arrays(driver, stream):
    x, y = np.empty(0, "f4"), np.empty((3, 0), "f4")
    with cu.offload(x, out=y, inout=x.copy(), stream=stream) as buffers:
        assert [each.count for each in buffers] == [0, 0, 0]
    assert y.flags.writeable


def test_arrays_are_locked(arrays, stream):
    x, y, z = arrays
    with cu.offload(x, out=y, inout=z, stream=stream):
        for array in arrays:
            with pytest.raises(ValueError, match="assignment destination is read-only"):
                array[0] = 1
            with pytest.raises(ValueError, match="read-only"):
                array += 1
        assert x[3] == 3  # the array is readable
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            # Views that are made in the block cannot be made writable either.
            x[1:].flags.writeable = True
    x[0] = y[0] = z[0] = 5


def test_what_cannot_be_locked(stream):
    """`offload` cannot lock a view that was made before. A write through it is not copied."""
    x = np.arange(8)
    view = x[2:4]
    with cu.offload(x, stream=stream) as (dx,):
        view[:] = 0
        assert dx.to_numpy()[2] == 2
    assert x[2] == 0


def test_read_only_arrays_stay_so(stream):
    x = np.frombuffer(bytes(range(8)), "u1")
    own = np.arange(4)
    own.flags.writeable = False
    with cu.offload(x, own, stream=stream) as (dx, dy):
        assert dx.to_numpy()[7] == 7
        assert dy.to_numpy()[3] == 3
    assert not x.flags.writeable
    assert not own.flags.writeable


class Exporter:
    """An owner of memory that exports no writable buffer.

    NumPy could not make its array writable again.
    """

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def test_arrays_whose_lock_could_not_be_undone_are_not_locked(stream):
    memory = np.arange(6)
    view = np.asarray(Exporter(memory))
    assert view.flags.writeable
    with cu.offload(inout=view, stream=stream) as (device,):
        assert view.flags.writeable
        device.fill_async(4, stream)
    assert (memory == 4).all()
    assert view.flags.writeable


def test_memory_maps_and_bytearrays(stream, tmp_path):
    mapped = np.memmap(tmp_path / "data", "f4", "w+", shape=(16,))
    raw = bytearray(16)
    over = np.frombuffer(raw, "u1")
    with cu.offload(inout=[mapped, over], stream=stream) as (a, b):
        a.fill_async(2, stream)
        b.fill_async(3, stream)
        with pytest.raises(ValueError, match="read-only"):
            mapped[0] = 1
    assert (np.asarray(mapped) == 2).all()
    assert raw == bytes([3] * 16)
    mapped[0] = over[0] = 1


def test_an_exception_brings_nothing_home(arrays, stream):
    x, y, z = arrays
    with pytest.raises(KeyError), cu.offload(x, out=y, inout=z, stream=stream) as (dx, dy, dz):  # noqa: PT012
        dz.fill_async(1, stream)
        double(dx, dy, stream)
        raise KeyError
    assert (y == 0).all()
    assert (z == 10).all()
    z[0] = x[0] = 1
    stream.synchronize()
    assert dy.to_numpy()[9] == 9  # the buffers are still open


def test_work_of_another_stream_is_refused_at_the_end(arrays, stream, other, gate):
    x, y, z = arrays
    gate.hold(other)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot read .* 'out array 0'.* by"):  # noqa: PT012
        with cu.offload(x, out=y, inout=z, stream=stream) as (dx, dy, dz):
            dz.fill_async(1, stream)
            double(dx, dy, other)
    assert (z == 10).all()  # nothing was copied back to the arrays
    assert all(array.flags.writeable for array in arrays)
    gate.open()
    other.synchronize()
    dy.copy_to(y)
    assert y[9] == 9


def test_buffers_in_use_at_the_end(arrays, stream, other, gate):
    """The results are copied back, but a buffer that another stream still reads is not closed."""
    x, y, _ = arrays
    gate.hold(other)
    sink = cu.DeviceBuffer(600, "i4")
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer 'array 0'"):  # noqa: PT012
        with cu.offload(x, out=y, stream=stream) as (dx, dy):
            double(dx, dy, stream)
            double(dx, sink, other)
    assert y[5] == 5
    assert dy.closed
    assert not dx.closed
    gate.open()
    other.synchronize()


def test_a_closed_or_moved_buffer_is_refused_at_the_end(arrays, stream):
    x, y, z = arrays
    with pytest.raises(cu.BufferClosedError, match=r"'inout array 0'.* was moved at"):  # noqa: PT012
        with cu.offload(x, out=y, inout=z, stream=stream) as (dx, dy, dz):
            dx.close()
            dy.fill_async(1, stream)
            kept = dz.take()
    assert (y == 0).all()
    assert kept.to_numpy()[0] == 10


OTHER_ARRAYS = [
    ((), {}, TypeError, "offload needs at least one array"),
    (([1, 2],), {}, TypeError, "array 0 takes a NumPy array, not list"),
    ((bytearray(4),), {}, TypeError, "array 0 takes a NumPy array, not bytearray"),
    ((np.float32(1),), {}, TypeError, "array 0 takes a NumPy array, not float32"),
    ((), {"out": 3}, TypeError, "out array takes a NumPy array, not int"),
    ((), {"inout": [np.zeros(1), None]}, TypeError, "inout array 1 takes a NumPy array, not None"),
    ((np.zeros(2),), {"stream": 3}, TypeError, "stream must be a Stream"),
]


@pytest.mark.parametrize(("given", "options", "error", "text"), OTHER_ARRAYS)
def test_what_is_no_array(driver, given, options, error, text):
    with pytest.raises(error, match=text):
        cu.offload(*given, **options)


def read_only():
    array = np.zeros(4)
    array.flags.writeable = False
    return array


WRONG_ARRAYS = [
    (lambda: np.zeros(8)[::2], ValueError, r"of shape \(4,\) and dtype float64, is not C-cont"),
    (lambda: np.zeros((3, 3)).T, ValueError, "is not C-contiguous; pass a contiguous copy"),
    (lambda: np.ma.array([1, 2], mask=[0, 1]), TypeError, "the mask of a masked array would be"),
    (lambda: np.array([None]), TypeError, "holds Python objects"),
    (lambda: np.zeros(2, [("a", "O")]), TypeError, "holds Python objects"),
    (read_only, ValueError, "is read-only, so no results can come home"),
]


@pytest.mark.parametrize(("make", "error", "text"), WRONG_ARRAYS)
def test_arrays_that_cannot_be_captured(driver, stream, make, error, text):
    """An array that cannot be used is refused: no array is locked, and no driver call is made."""
    first = np.arange(3)
    with pytest.raises(error, match=text):
        with cu.offload(inout=[first, make()], stream=stream):
            pytest.fail("entered")
    first[0] = 1
    with cu.offload(first, stream=stream):
        pass


def test_arrays_that_share_memory(driver, stream):
    whole = np.arange(10)
    for options in ({"out": whole}, {"inout": whole[2:]}, {"inout": whole.view("u1")}):
        with pytest.raises(ValueError, match="shares memory with array 0"):
            with cu.offload(whole[:5], **options):
                pytest.fail("entered")
    # Allowed, because these arrays are only read.
    with cu.offload(whole, whole[:5], whole, stream=stream) as buffers:
        assert [each.count for each in buffers] == [10, 5, 10]
    with cu.offload(whole[:5], out=whole[5:], stream=stream) as (a, b):
        b.copy_from_async(a, stream)
    assert whole.tolist() == [0, 1, 2, 3, 4] * 2


def test_nested_blocks(arrays, stream):
    x, y, z = arrays
    with cu.offload(x, out=y, stream=stream) as (dx, dy):
        for again in (y, y[3:]):
            with pytest.raises(cu.OwnershipError, match=r"the out array 0 of the block or .*\.py:"):
                with cu.offload(again, stream=stream):
                    pytest.fail("entered")
        with pytest.raises(cu.OwnershipError, match="shares memory with the array 0 of the block"):
            with cu.offload(inout=x, stream=stream):
                pytest.fail("entered")
        with cu.offload(x, out=z, stream=stream) as (again, dz):
            double(again, dz, stream)
        assert z[8] == 8
        assert not x.flags.writeable  # the outer block has not ended
        double(dx, dy, stream)
    assert x.flags.writeable
    assert y[8] == 8


def test_blocks_that_end_in_another_order(stream):
    """Blocks of two threads, of generators or of an ExitStack can end in any order."""
    whole = np.arange(8)
    view = whole[:]
    for one, other in [(whole, whole), (whole, view), (view, whole)]:
        first, second = cu.offload(one, stream=stream), cu.offload(other, stream=stream)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not (one if one is other else other).flags.writeable
        second.__exit__(None, None, None)
        assert whole.flags.writeable
        assert view.flags.writeable


def test_a_base_that_was_made_read_only_meanwhile(stream):
    whole = np.arange(8)
    view = whole[:4]
    with pytest.warns(cu.CudaWarning, match=r"shape \(4,\) stays read-only after its capture"):
        with cu.offload(view, stream=stream):
            whole.flags.writeable = False
    assert not view.flags.writeable


def test_an_array_that_was_made_writable_meanwhile(arrays, stream):
    x, y, _ = arrays
    with pytest.raises(cu.OwnershipError, match=r"^array 0, .* was made writable by"):  # noqa: PT012
        with cu.offload(x, out=y, stream=stream) as (dx, dy):
            x.flags.writeable = True
            x[0] = 5
            double(dx, dy, stream)
    assert (y == 0).all()
    assert y.flags.writeable
    stream.synchronize()


def test_an_array_that_was_resized_meanwhile(driver, stream):
    y, z = np.zeros(8), np.zeros(8)
    with pytest.raises(ValueError, match="had 64 bytes, and has 32: it was changed meanwhile"):  # noqa: PT012
        with cu.offload(out=[z, y], stream=stream) as (dz, _):
            dz.fill_async(1, stream)
            y.resize(4, refcheck=False)
    assert (z == 0).all()
    with pytest.raises(ValueError, match="is not C-contiguous any more"):  # noqa: PT012
        with cu.offload(out=z, stream=stream):
            with warnings.catch_warnings():  # NumPy 2.4 has deprecated setting a shape
                warnings.simplefilter("ignore")
                z.shape, z.strides = (2, 4), (8, 16)
    assert (z == 0).all()


def test_a_block_is_entered_once(arrays, stream):
    block = cu.offload(arrays[0], stream=stream)
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    with block:
        with pytest.raises(RuntimeError, match="entered already"):
            block.__enter__()
        assert not arrays[0].flags.writeable
    with pytest.raises(RuntimeError, match="has ended already"):
        block.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="entered already"):
        block.__enter__()


def test_a_block_that_is_dropped_unlocks_its_arrays(arrays, stream):
    def generator():
        with cu.offload(arrays[0], out=arrays[1], stream=stream) as buffers:
            yield buffers

    pending = generator()
    next(pending)
    del pending  # closes the generator, so an exception ends the block
    assert arrays[0].flags.writeable
    block = cu.offload(arrays[0], stream=stream)
    block.__enter__()
    del block
    gc.collect()
    assert arrays[0].flags.writeable


def test_the_stream_and_the_device(arrays, stream):
    with cu.offload(arrays[0], device=cu.Device(0)) as (dx,):
        assert dx.device == cu.Device(0)
    with cu.offload(arrays[0], device=cu.Device(0), stream=stream) as (dx,):
        assert dx.stream_ordered
    stream.close()
    with pytest.raises(ValueError, match="is closed"):
        with cu.offload(arrays[0], stream=stream):
            pytest.fail("entered")
    arrays[0][0] = 1


def test_waiting_policy(arrays, stream, other):
    x, y, _ = arrays
    with cu.ordering("wait"), cu.offload(x, out=y, stream=stream) as (dx, dy):
        double(dx, dy, other)
    assert y[7] == 7
    other.synchronize()


def test_threads(driver):
    """Several threads offload at once.

    Each has an array and a stream of its own, and all read one array.
    """
    shared = np.arange(4096)
    results = [np.zeros(4096, shared.dtype) for _ in range(4)]

    def work(result):
        own = cu.Stream()
        for _ in range(5):
            with cu.offload(shared, inout=result, stream=own) as (source, target):
                target.copy_from_async(source, own)

    threads = [threading.Thread(target=work, args=(result,)) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, shared) for result in results)
    assert shared.flags.writeable


@software
@pytest.mark.parametrize(
    "function",
    ["cuMemAllocAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"],
)
@pytest.mark.usefixtures("unpooled")
def test_failing_driver_calls(arrays, stream, function):
    from cudadrv import testing

    x, y, z = arrays
    cu.reap()
    before = len(cu.live_buffers())
    buffers = []
    for nth in (1, 2):
        testing.configure(f"fault={function}:{nth}:1")
        try:
            with pytest.raises(cu.CudaError):  # noqa: PT012
                with cu.offload(x, out=y, inout=z, stream=stream) as found:
                    buffers.extend(found)
                    for buffer in buffers[1:]:
                        buffer.fill_async(1, stream)
                    del found, buffer
        finally:
            testing.configure("fault=none")
        assert (y == 0).all()
        assert (z == 10).all()
        assert all(array.flags.writeable for array in arrays)
        buffers.clear()
        stream.synchronize()
        assert len(cu.live_buffers()) == before
    with cu.offload(x, out=y, inout=z, stream=stream) as (dx, dy, _):
        double(dx, dy, stream)
    assert y[8] == 8


def test_ctrl_c_while_results_come_home(arrays, stream, gate):
    """Ctrl-C interrupts the wait for the results: nothing is copied back, no array stays locked."""
    import _thread

    x, y, z = arrays
    timer = threading.Timer(0.1, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with cu.offload(x, out=y, inout=z, stream=stream) as (dx, dy, dz):
            double(dx, dy, stream)
            gate.hold(stream)
            timer.start()
    timer.join()
    assert (y == 0).all()
    assert all(array.flags.writeable for array in arrays)
    gate.open()
    stream.synchronize()
    dy.copy_to(y)
    assert y[3] == 3
    assert not dz.closed
