"""Arrays of PyTorch, CuPy, JAX, numba-cuda and cuda.core, in both directions, on a GPU.

A stream is held where an order could be missing, so that work that does not wait reads wrong data.
"""

import gc

import numpy as np
import pytest

import cudadrv as cu

pytestmark = [pytest.mark.cuda_gpu, pytest.mark.filterwarnings("ignore")]
COUNT = 1 << 16
PTX = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 x) {
    .reg .b32 %a, %i, %n, %t; .reg .b64 %x, %o;
    ld.param.u64 %x, [x];
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, %n, %t;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;
    ld.global.u32 %a, [%x];
    add.u32 %a, %a, %a;
    st.global.u32 [%x], %a;
    ret;
}
"""


class Torch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.device = self.torch.device("cuda:0")

    def full(self, value):
        return self.torch.full((COUNT,), value, dtype=self.torch.int32, device=self.device)

    def take(self, exporter):
        return self.torch.from_dlpack(exporter)

    def stream(self):
        stream = self.torch.cuda.Stream()
        return stream, stream.cuda_stream

    def on(self, stream):
        return self.torch.cuda.stream(stream)

    def add(self, array, value):
        array.add_(value)

    def values(self, array):
        return set(array.cpu().numpy().ravel().tolist())


class CuPy:
    def __init__(self):
        self.cupy = pytest.importorskip("cupy")

    def full(self, value):
        return self.cupy.full(COUNT, value, "i4")

    def take(self, exporter):
        return self.cupy.from_dlpack(exporter)

    def stream(self):
        stream = self.cupy.cuda.Stream(non_blocking=True)
        return stream, stream.ptr

    def on(self, stream):
        return stream

    def add(self, array, value):
        array += value

    def values(self, array):
        return set(array.get().ravel().tolist())


LIBRARIES = {"torch": Torch, "cupy": CuPy}


@pytest.fixture(params=LIBRARIES)
def library(request, driver):
    return LIBRARIES[request.param]()


@pytest.fixture
def theirs(library):
    """A stream of theirs, and ours for it. All that they load at first use is loaded.

    Loading a kernel can wait for the device, and here streams are held.
    """
    stream, handle = library.stream()
    with library.on(stream):
        array = library.full(0)
        library.add(array, 1)
        assert library.values(array) == {1}
    return stream, cu.Stream.from_handle(handle, owner=stream)


@pytest.fixture
def twice(driver):
    kernel, buffer, stream = cu.Module(PTX)["twice"], cu.DeviceBuffer(4), cu.Stream()
    kernel.launch(1, 1, buffer, stream=stream).wait()
    return kernel


def test_ours_in_their_hands(library, theirs, stream, other, gate):
    their_stream, known = theirs
    buffer = cu.DeviceBuffer(COUNT, "i4")
    gate.hold(stream)
    buffer.fill_async(3, stream)
    with library.on(their_stream):
        array = library.take(buffer)  # waits for the fill, on their stream
        library.add(array, 4)
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, other)
    gate.open()
    del array
    gc.collect()
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(0, other)
    other.wait(known)
    found = np.empty(COUNT, "i4")
    buffer.copy_to(found, stream=other)
    assert set(found.tolist()) == {7}


def test_a_loan_to_their_stream(library, theirs, stream):
    their_stream, known = theirs
    buffer = cu.DeviceBuffer(COUNT, "i4")
    buffer.fill(1)
    loan = buffer.lend(known, shape=(COUNT // 4, 4))
    with library.on(their_stream):
        array = library.take(loan)
        assert tuple(array.shape) == (COUNT // 4, 4)
        library.add(array, 1)
        with loan.back():
            stream.wait(known)
            buffer.fill_async(5, stream)
        library.add(array, 1)
        assert library.values(array) == {6}
    del array, loan


def test_theirs_in_our_hands(library, theirs, stream, other, gate, twice):
    their_stream, known = theirs
    gate.hold(known)
    with library.on(their_stream):
        array = library.full(1)
        library.add(array, 1)
        buffer = cu.from_dlpack(array, stream)
    token = twice.launch(COUNT // 256, 256, buffer, stream=stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(0, other)
    assert not token.done
    gate.open()
    buffer.give_back(known)
    with library.on(their_stream):
        library.add(array, 1)
        assert library.values(array) == {5}


def test_theirs_as_arguments(library, theirs, stream, other, gate, twice):
    their_stream, known = theirs
    gate.hold(known)
    with library.on(their_stream):
        array = library.full(3)
        twice.launch(COUNT // 256, 256, array, stream=stream)
        with pytest.raises(cu.BufferBorrowedError, match=r"argument 0 \(x, .u64\)"):
            twice.launch(COUNT // 256, 256, array, stream=other)
        gate.open()
        known.wait(stream)
        assert library.values(array) == {6}


def test_theirs_dies_early(library, theirs, stream, gate, twice):
    their_stream, _ = theirs
    with library.on(their_stream):
        array = library.full(3)
    gate.hold(stream)
    token = twice.launch(COUNT // 256, 256, array, stream=stream)
    address = token.writes[0].address
    del array
    gc.collect()
    with library.on(their_stream):
        others = [library.full(9) for _ in range(8)]  # would get its memory
    gate.open()
    token.wait()
    found = np.empty(COUNT, "i4")
    cu.DeviceBuffer.from_address(address, COUNT, "i4").copy_to(found, stream=stream)
    assert set(found.tolist()) == {6}
    assert all(library.values(each) == {9} for each in others)


def test_array_interface_of_a_loan(theirs, library, stream):
    if not isinstance(library, CuPy):
        pytest.skip("CuPy's")
    their_stream, known = theirs
    buffer = cu.DeviceBuffer(COUNT, "i4")
    buffer.fill(2)
    with their_stream:
        array = library.cupy.asarray(buffer.lend(known))
        array += 1
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    del array
    gc.collect()
    stream.wait(known)
    found = np.empty(COUNT, "i4")
    buffer.copy_to(found, stream=stream)
    assert set(found.tolist()) == {3}
    with pytest.raises(TypeError, match="DeviceBuffer is no array"):
        library.cupy.asarray(buffer)


def test_page_locked_memory_of_torch(stream):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(16, dtype=torch.int32).pin_memory()
    try:
        found = cu.from_dlpack(tensor)
    except BufferError:
        pytest.skip("this PyTorch calls it ordinary memory")
    assert isinstance(found, cu.LockedBuffer)


def test_jax(stream):
    jax = pytest.importorskip("jax")
    buffer = cu.DeviceBuffer(16, "f4")
    buffer.fill(2)
    array = jax.dlpack.from_dlpack(buffer)
    assert np.asarray(array + 1).tolist() == [3] * 16
    theirs = jax.numpy.arange(8, dtype="float32")
    theirs.block_until_ready()
    found = np.empty(8, "f4")
    cu.from_dlpack(theirs, stream).copy_to(found, stream=stream)
    assert found.tolist() == list(range(8))
    del array, theirs


def test_numba(stream):
    cuda = pytest.importorskip("numba.cuda")
    buffer = cu.DeviceBuffer(16, "f4")
    buffer.fill(2)
    loan = buffer.lend(stream)
    array = cuda.as_cuda_array(loan)
    assert array.copy_to_host().tolist() == [2] * 16
    del array, loan
    theirs = cuda.to_device(np.arange(8, dtype="f4"))
    cuda.synchronize()  # its arrays name no stream where that is the default one
    found = np.empty(8, "f4")
    cu.from_cuda_array(theirs, stream).copy_to(found, stream=stream)
    assert found.tolist() == list(range(8))
    del theirs


def test_cuda_core(stream):
    utils = pytest.importorskip("cuda.core.utils")
    buffer = cu.DeviceBuffer(16, "f4").reshape(4, 4)
    buffer.fill(2)
    view = utils.StridedMemoryView(buffer, stream_ptr=stream.handle)
    assert (view.ptr, tuple(view.shape), view.is_device_accessible) == (
        buffer.address,
        (4, 4),
        True,
    )
    del view
