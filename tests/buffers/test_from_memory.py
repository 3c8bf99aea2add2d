"""Memory that exists, page-locked in place: `LockedBuffer.from_memory`."""

import ctypes
import gc
import mmap
import sys
import weakref
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import _guard

PAGE = 4096


def pages(count=1, dtype="u1"):
    """An array that begins at a page."""
    whole = np.zeros((count + 1) * PAGE, "u1")
    start = -whole.ctypes.data % PAGE
    return whole[start : start + count * PAGE].view(dtype)


@pytest.fixture
def module(driver):
    return cu.Module.from_file(Path(__file__).parents[1] / "kernels" / "kernels.ptx")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(2 * PAGE, dtype="u4").tobytes())
    return path


@pytest.fixture
def mapped(file):
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize("shift", [0, 4, 100])
def test_the_memory_is_used_in_place(stream, shift):
    array = pages(2, "u4")[shift : shift + 200].reshape(4, 50)
    array[...] = np.arange(200).reshape(4, 50)
    locked = cu.LockedBuffer.from_memory(array, name="array")
    assert (locked.shape, locked.dtype, locked.name) == ((4, 50), np.dtype("u4"), "array")
    assert locked.address == array.ctypes.data
    work = cu.DeviceBuffer(200, "u4")
    work.copy_from_async(locked, stream)
    with pytest.raises(cu.BufferBorrowedError, match="read by copy_from_async"):
        locked[0, 0] = 1
    stream.synchronize()
    array[0, 0] = 77
    locked.copy_from_async(work, stream).wait()
    assert (array == np.arange(200).reshape(4, 50)).all()
    locked[0, 3] = 9
    assert array[0, 3] == 9
    with locked.write() as view:
        view[1] = 5
    assert (array[1] == 5).all()
    locked.fill_async(8, stream).wait()
    assert (array == 8).all()
    before = pages(1)
    assert (before == 0).all()
    locked.close()
    array[:] = 1  # the memory is ordinary memory again
    cu.LockedBuffer.from_memory(array).close()


def test_kernels_use_it(stream, module):
    array = pages(1, "f4")
    array[:16] = np.arange(16)
    locked, out = cu.LockedBuffer.from_memory(array), cu.LockedBuffer.zeros(16, "f4")
    module["saxpy"].launch(1, 16, 2.0, cu.read(locked[:16]), out, 16, stream=stream)
    stream.synchronize()
    assert list(out) == [2.0 * i for i in range(16)]


@pytest.mark.parametrize("make", [
    lambda mapped: mapped,
    lambda mapped: np.frombuffer(mapped, "u1"),
    lambda mapped: memoryview(mapped)[100:300],
    lambda mapped: bytes(500),
])  # fmt: skip
def test_read_only_memory(make, mapped, stream, module):
    given = make(mapped)
    expected = bytes(given)
    locked = cu.LockedBuffer.from_memory(given, name="file")
    work = cu.DeviceBuffer(locked.count)
    work.copy_from_async(locked, stream)
    assert bytes(work.to_numpy(stream=stream)) == expected
    assert bytes(locked.readonly()) == expected
    with locked.read() as array:
        assert bytes(array) == expected
        assert not array.flags.writeable
    with locked[1:].lend(stream, readonly=True):
        pass
    stream.synchronize()
    writes = [
        lambda: locked.copy_from(work),
        lambda: locked.copy_from_async(work, stream),
        lambda: locked.fill(1),
        lambda: locked.fill_async(1, stream),
        lambda: locked[2:].fill_async(1, stream),
        lambda: locked.__setitem__(0, 1),
        lambda: locked.write().__enter__(),
        lambda: memoryview(locked),
        lambda: locked.lend(stream).__enter__(),
        lambda: work.copy_to(locked),
        lambda: module["saxpy"].launch(1, 1, 1.0, locked, work, 1, stream=stream),
        lambda: cu.Graph().add_fill(locked, 1),
    ]
    for write in writes:
        with pytest.raises(BufferError, match="memory of its owner, which is read-only; a kernel"):
            write()
    assert not locked.borrowed
    locked.close()
    assert bytes(given) == expected


def test_a_writable_mapping_of_ordinary_memory(stream):
    """Anonymous mappings can be written; some systems refuse writable mappings of files."""
    mapping = mmap.mmap(-1, 2 * PAGE)
    locked = cu.LockedBuffer.from_memory(mapping)
    locked.fill_async(3, stream).wait()
    assert mapping[:] == b"\3" * 2 * PAGE
    with pytest.raises(BufferError):
        mapping.close()
    locked.close()
    mapping.close()


def test_a_private_mapping_of_a_file(file, stream):
    with file.open("rb") as opened:
        mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    before = file.read_bytes()
    locked = cu.LockedBuffer.from_memory(mapping)
    locked.fill_async(3, stream).wait()
    assert mapping[:] == b"\3" * len(mapping)
    locked.close()
    assert file.read_bytes() == before


@pytest.mark.parametrize("given", [b"", bytearray(), np.zeros((3, 0), "f4")])
def test_nothing(given, stream):
    locked = cu.LockedBuffer.from_memory(given)
    assert locked.nbytes == 0
    assert locked.shape == np.asarray(memoryview(given)).shape
    locked.copy_from_async(cu.DeviceBuffer(0, locked.dtype), stream).wait()
    locked.close()


@pytest.mark.parametrize("dtype", ["f8", "M8[s]", "c16", "S5", [("a", "i4"), ("b", "u1")]])
def test_dtypes(dtype, stream):
    array = np.zeros(10, dtype)
    locked = cu.LockedBuffer.from_memory(array)
    assert locked.dtype == array.dtype
    locked.view("u1").fill_async(1, stream).wait()
    assert bytes(array.view("u1")) == b"\1" * array.nbytes


# ---- how long the memory is kept ----


def owned():
    """An array, and a weak reference to it."""
    array = np.zeros(PAGE, "u1")
    return array, weakref.ref(array)


def test_close_unlocks_and_lets_the_owner_go(stream):
    array, owner = owned()
    locked = cu.LockedBuffer.from_memory(array)
    part = locked[10:20]
    del array
    gc.collect()
    assert owner() is not None
    locked.close()
    assert owner() is None
    with pytest.raises(cu.BufferClosedError):
        part.fill_async(1, stream)
    locked.close()


def test_a_dropped_buffer_keeps_the_memory_until_its_work_is_complete(stream, gate):
    array, owner = owned()
    locked, work = cu.LockedBuffer.from_memory(array), cu.DeviceBuffer(PAGE)
    gate.hold(stream)
    locked.copy_from_async(work, stream)
    del locked, array
    gc.collect()
    cu.Event().context  # noqa: B018
    assert owner() is not None
    with pytest.raises(ValueError, match=r"overlap a dropped buffer.*Wait: cudadrv\.reap"):
        cu.LockedBuffer.from_memory(owner())
    gate.open()
    cu.reap()
    assert owner() is None


def test_a_buffer_in_use_is_not_closed(stream, gate):
    array = np.zeros(PAGE, "u1")
    locked = cu.LockedBuffer.from_memory(array)
    gate.hold(stream)
    locked.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        locked.close()
    gate.open()
    stream.synchronize()
    view = memoryview(locked)
    with pytest.raises(cu.BufferExportedError):
        locked.close()
    view.release()
    locked.close()


def test_a_graph_keeps_it(stream):
    array, owner = owned()
    locked = cu.LockedBuffer.from_memory(array)
    graph = cu.Graph()
    graph.add_fill(locked, 7)
    step = graph.instantiate()
    del locked, array
    gc.collect()
    step.launch(stream).wait()
    assert (owner() == 7).all()
    step.close()
    graph.close()
    cu.reap()
    assert owner() is None


def test_other_views_are_not_seen(stream, gate):
    """The owner's arrays do not borrow: docs/ownership.md says so. A page guard would see it."""
    if _guard.is_on():
        pytest.skip("--cuda-guard ends the process here")
    array = pages()
    locked, work = cu.LockedBuffer.from_memory(array), cu.DeviceBuffer(PAGE)
    gate.hold(stream)
    work.copy_from_async(locked, stream)
    array[0] = 5  # nothing refuses this
    gate.open()
    stream.synchronize()


# ---- what is refused ----


def test_memory_that_is_locked_already():
    array = pages(3)
    first = cu.LockedBuffer.from_memory(array[: PAGE + 10], name="first")
    where = r"\S*test_from_memory\.py:\d+"
    again = [array, array[10:20], array[PAGE:], array[PAGE + 9 :], array[: PAGE + 10]]
    for given in again:
        with pytest.raises(
            ValueError,
            match=rf"cannot page-lock {given.nbytes} bytes at 0x[0-9a-f]+ as LockedBuffer 'second'"
            rf" at {where}: they overlap LockedBuffer 'first', made at {where}, .* or a part of it",
        ):
            cu.LockedBuffer.from_memory(given, name="second")
    beside = cu.LockedBuffer.from_memory(array[PAGE + 10 : PAGE + 20])  # in the same page
    beside.close()
    first.close()
    cu.LockedBuffer.from_memory(array).close()


@pytest.mark.parametrize("kind", [cu.LockedBuffer, cu.UnifiedBuffer])
@pytest.mark.parametrize("pooled", [False, True])
def test_memory_of_other_buffers(kind, pooled):
    other = kind(100, name="other", pooled=pooled)
    array = np.asarray(other)
    with pytest.raises(ValueError, match=rf"overlap {kind.__name__} 'other', made at"):
        cu.LockedBuffer.from_memory(array)
    del array
    assert not other.borrowed


def test_memory_that_another_library_has_locked(library_lock):
    array = pages()
    with library_lock(array), pytest.raises(cu.CudaError, match="another library has page-locked"):
        cu.LockedBuffer.from_memory(array[5:])
    cu.LockedBuffer.from_memory(array).close()


@pytest.fixture
def library_lock(driver):
    """Lock memory as another library would: by calls of the driver."""
    cuda = ctypes.CDLL(cu.driver_info().path)

    @contextmanager
    def lock(array):
        cu.Device(0).context.__enter__()
        try:
            assert (
                cuda.cuMemHostRegister_v2(
                    ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), 0
                )
                == 0
            )
            yield
            assert cuda.cuMemHostUnregister(ctypes.c_void_p(array.ctypes.data)) == 0
        finally:
            cu.Device(0).context.__exit__(None, None, None)

    return lock


def array_at(address, nbytes, writable=True):
    array = np.frombuffer((ctypes.c_char * nbytes).from_address(address), "u1")
    array.flags.writeable = writable
    return array


@pytest.mark.parametrize("writable", [True, False])
def test_memory_that_is_not_mapped(writable):
    with pytest.raises(cu.CudaError, match="some of them are not mapped"):
        cu.LockedBuffer.from_memory(array_at(0x10000, 64, writable))
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(2 * PAGE), 3, 0x22, -1, ctypes.c_long(0))
    libc.munmap(ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE))
    half = array_at(address, 2 * PAGE, writable)
    with pytest.raises(cu.CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        cu.LockedBuffer.from_memory(half)
    cu.LockedBuffer.from_memory(half[:PAGE]).close()
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(PAGE))


def test_memory_that_cannot_be_written(mapped):
    """An array that claims to be writable, over pages that are not."""
    read_only = np.frombuffer(mapped, "u1")
    array = array_at(read_only.ctypes.data, PAGE)
    with pytest.raises(cu.CudaError, match=r"cannot be written.*Map a file read-only"):
        cu.LockedBuffer.from_memory(array)
    cu.LockedBuffer.from_memory(read_only).close()


REFUSED = [
    (lambda: 5, TypeError, "takes an array or an object with the buffer protocol"),
    (lambda: [1, 2], TypeError, "and not list"),
    (lambda: np.array([object()]), TypeError, "holds Python objects"),
    (lambda: np.ma.masked_array([1, 2], [0, 1]), TypeError, "mask"),
    (lambda: np.zeros((4, 4))[:, 1], ValueError, r"strides \(32,\) is not C-contiguous"),
    (lambda: np.zeros((4, 4), order="F"), ValueError, "is not C-contiguous"),
    (lambda: np.zeros(4)[::-1], ValueError, "is not C-contiguous"),
    (lambda: np.broadcast_to(np.zeros(1), 4), ValueError, "is not C-contiguous"),
    (lambda: np.zeros(9, "u1")[1:].view("f8"), ValueError, r"aligned to 8 bytes.*view\('u1'\)"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "text"), REFUSED)
def test_what_no_buffer_can_have(given, error, text):
    with pytest.raises(error, match=text):
        cu.LockedBuffer.from_memory(given())


def test_it_is_not_given_away_and_not_shared(stream):
    array = pages()
    locked = cu.LockedBuffer.from_memory(array, name="mine")
    with pytest.raises(ValueError, match=r"'mine'.* is page-locked in the memory of its owner"):
        locked.into_raw()
    with pytest.raises(ValueError, match=r"which only this process can map\. Copy it to"):
        locked.share(stream)
    with pytest.raises(TypeError, match="name must be a str"):
        cu.LockedBuffer.from_memory(pages(), name=5)
    assert [each.kind for each in cu.live_buffers()] == ["registered"]
    assert "registered" in cu.memory_report()


def test_too_much_memory(driver, fault_oom):
    array = pages()
    fault_oom()
    with pytest.raises(cu.CudaOutOfMemoryError, match="4096 bytes were requested for LockedBuffer"):
        cu.LockedBuffer.from_memory(array)
    assert sys.getrefcount(array) == 2
    cu.LockedBuffer.from_memory(array).close()


@pytest.fixture
def fault_oom(driver):
    if not cu.driver_info().is_software:
        pytest.skip("only the software driver fails on request")
    from cudadrv import testing

    def fault():
        testing.configure("fault=cuMemHostRegister_v2:1:2")
        testing.configure("fault=cuMemHostRegister_v2:1:2")

    yield fault
    testing.configure("fault=none")
