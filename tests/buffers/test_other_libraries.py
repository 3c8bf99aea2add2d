"""Arrays of other libraries in both directions: a table of libraries and situations.

A kernel delays the work that has to come first, so that work which does not wait for it reads wrong
data. Libraries that need a GPU run with --cuda-driver=cuda. `make external` covers those that need
none.
"""

import ctypes
import gc
import importlib
import os
import time
from contextlib import contextmanager, nullcontext
from typing import ClassVar

import numpy as np
import pytest

import cudadrv as cu

pytestmark = [pytest.mark.filterwarnings("ignore")]
COUNT = 1 << 12
THREADS = 256
REFUSALS = (BufferError, RuntimeError, TypeError, ValueError)
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
.visible .entry plus(.param .u64 x, .param .u32 value) {
    .reg .b32 %a, %b, %i, %n, %t; .reg .b64 %x, %o;
    ld.param.u64 %x, [x];
    ld.param.u32 %b, [value];
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, %n, %t;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;
    ld.global.u32 %a, [%x];
    add.u32 %a, %a, %b;
    st.global.u32 [%x], %a;
    ret;
}
.visible .entry delay(.param .u64 nanoseconds) {
    .reg .pred %p; .reg .b64 %end, %now;
    ld.param.u64 %end, [nanoseconds];
    mov.u64 %now, %globaltimer;
    add.u64 %end, %end, %now;
LOOP:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %p, %now, %end;
    @%p bra LOOP;
    ret;
}
"""


# ---- the libraries ----


def imported(name):
    """Import a module, or skip the test.

    This is not importorskip, because a library may fail with other exceptions.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


class Library:
    """A library, with the functions that the situations call.

    `skips` has the situations in which the library cannot be tested, with the reasons.
    """

    skips: ClassVar[dict[str, str]] = {}
    host = False  # whether its arrays are on the host, so that its work is on no stream

    def stream(self):
        """Make a stream of the library."""
        raise NotImplementedError

    def on(self, stream):
        """Return a block in which this stream of the library is current."""
        raise NotImplementedError

    def full(self, value):
        """Make an array of the library, full of a value."""
        raise NotImplementedError

    def add(self, array, value):
        """Queue an addition on the current stream. Returns the array that gets the sum."""
        array += value
        return array

    def values(self, array):
        """Return the set of the array's values, after the library's work on the current stream."""
        raise NotImplementedError

    def buffer(self):
        """Make a buffer that the library can import."""
        return cu.DeviceBuffer(COUNT, "i4")

    def lend(self, buffer, known, **options):
        return buffer.lend(known, **options)

    def share(self, buffer, known, stream):
        """Make an array of the library over a buffer that the cudadrv stream `stream` may use."""
        return self.take(buffer)

    def take(self, exporter):
        """Make an array of the library over a buffer or a loan."""
        raise NotImplementedError

    def bring(self, array, stream, known):
        """Make a buffer over an array of the library."""
        return cu.from_dlpack(array, stream)


class Torch(Library):
    def __init__(self):
        self.torch = imported("torch")

    def stream(self):
        return self.torch.cuda.Stream()

    def on(self, stream):
        return self.torch.cuda.stream(stream)

    def full(self, value):
        return self.torch.full((COUNT,), value, dtype=self.torch.int32, device="cuda:0")

    def values(self, array):
        return set(array.cpu().numpy().ravel().tolist())

    def take(self, exporter):
        return self.torch.from_dlpack(exporter)


class CuPy(Library):
    def __init__(self):
        self.cupy = imported("cupy")

    def stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)

    def on(self, stream):
        return stream

    def full(self, value):
        return self.cupy.full(COUNT, value, "i4")

    def values(self, array):
        return set(array.get().ravel().tolist())

    def take(self, exporter):
        return self.cupy.from_dlpack(exporter)


class CuPyByInterface(CuPy):
    """CuPy with the CUDA Array Interface in both directions."""

    def share(self, buffer, known, stream):
        known.wait(stream)  # from_dlpack inserts this wait itself
        return self.take(buffer.lend(known))

    def take(self, exporter):
        return self.cupy.asarray(exporter)

    def bring(self, array, stream, known):
        return cu.from_cuda_array(array, stream)


class Numba(Library):
    """numba-cuda with the CUDA Array Interface, the only protocol that it supports."""

    def __init__(self):
        self.cuda = imported("numba.cuda")
        self.current = None
        try:
            self.plus = _numba_plus(self.cuda)
        except AttributeError as error:  # this NumPy is too new for Numba
            pytest.skip(f"numba-cuda cannot compile here: {error}")

    def stream(self):
        return self.cuda.stream()

    @contextmanager
    def on(self, stream):
        former, self.current = self.current, stream
        yield
        self.current = former

    def full(self, value):
        array = self.cuda.device_array(COUNT, "i4", stream=self.current)
        array.copy_to_device(np.full(COUNT, value, "i4"), stream=self.current)
        return array

    def add(self, array, value):
        self.plus[COUNT // THREADS, THREADS, self.current](array, value)
        return array

    def values(self, array):
        found = array.copy_to_host(stream=self.current)
        self.current.synchronize()
        return set(found.ravel().tolist())

    def share(self, buffer, known, stream):
        known.wait(stream)  # from_dlpack inserts this wait itself
        return self.take(buffer.lend(known))

    def take(self, exporter):
        # sync=True would block the host until the work of the named stream is complete.
        return self.cuda.as_cuda_array(exporter, sync=False)

    def bring(self, array, stream, known):
        return cu.from_cuda_array(array, stream)


class CudaCore(Library):
    """cuda.core: its StridedMemoryView of buffers, and its Buffer, which inserts no waits."""

    skips: ClassVar = {
        "in-read-only": "a Buffer of cuda.core is never read-only",
        "argument": "the stream that a Buffer of cuda.core was written on is not waited for",
    }

    def __init__(self):
        self.core = imported("cuda.core")
        view = imported("cuda.core.utils").StridedMemoryView
        self.view = getattr(view, "from_dlpack", view)
        if not hasattr(self.core, "ObjectCode"):
            pytest.skip("this cuda.core is too old")
        self.device = self.core.Device(0)
        self.device.set_current()
        code = self.core.ObjectCode.from_ptx(PTX.encode())
        self.plus = code.get_kernel("plus")
        self.shape = self.core.LaunchConfig(grid=COUNT // THREADS, block=THREADS)
        self.pinned = self.core.LegacyPinnedMemoryResource()

    def stream(self):
        return self.device.create_stream()

    @contextmanager
    def on(self, stream):
        self.current = stream
        yield

    def full(self, value):
        buffer = self.device.allocate(4 * COUNT, stream=self.current)
        buffer.fill(int(value).to_bytes(4, "little"), stream=self.current)
        return buffer

    def add(self, array, value):
        address = array.ptr if hasattr(array, "ptr") else int(array.handle)
        arguments = (address, ctypes.c_uint32(value))
        self.core.launch(self.current, self.shape, self.plus, *arguments)
        return array

    def values(self, array):
        if hasattr(array, "ptr"):
            array = self.core.Buffer.from_handle(array.ptr, 4 * COUNT, owner=array)
        found = self.pinned.allocate(4 * COUNT, stream=self.current)
        array.copy_to(found, stream=self.current)
        self.current.sync()
        values = set(np.from_dlpack(found).view("i4").tolist())
        found.close()
        return values

    def take(self, exporter):
        return self.view(exporter, stream_ptr=cu.Stream.from_object(self.current).handle)

    def bring(self, array, stream, known):
        if stream is not known:
            stream.wait(known)
        return cu.from_dlpack(array, stream)


class Jax(Library):
    """JAX: arrays are immutable, and it chooses its streams itself."""

    immutable = "JAX's arrays are immutable"
    chooses = "JAX chooses its streams itself"
    skips: ClassVar = {
        "out-same-stream": chooses,
        "in-same-stream": chooses,
        "in-two-streams": immutable,
        "in-early-free": immutable,
        "in-late-free": immutable,
        "in-read-only": chooses,
        "argument": immutable,
    }

    def __init__(self):
        # Leave GPU memory to the other libraries.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.jax = imported("jax")
        imported("jax.dlpack")
        if not any(device.platform == "gpu" for device in self.jax.devices()):
            pytest.skip("this JAX has no GPU")
        handle = getattr(self.jax.devices()[0], "get_stream_for_external_ready_events", None)
        if handle is None:
            pytest.skip("this JAX does not tell on which stream it works")
        self.handle = handle()

    def stream(self):
        return cu.Stream.from_handle(self.handle)

    def on(self, stream):
        return nullcontext()

    def full(self, value):
        return self.jax.numpy.full(COUNT, value, "int32")

    def add(self, array, value):
        return array + value

    def values(self, array):
        return set(np.asarray(array).ravel().tolist())

    def take(self, exporter):
        return self.jax.dlpack.from_dlpack(exporter)


class NumPy(Library):
    """NumPy works on the host. A buffer is refused unless its work is known to be complete."""

    ordinary = "NumPy's memory is ordinary memory, which from_dlpack refuses: test_imports.py"
    skips: ClassVar = {
        "out-same-stream": "NumPy works on no stream",
        "in-same-stream": ordinary,
        "in-two-streams": ordinary,
        "in-early-free": ordinary,
        "in-late-free": ordinary,
        "in-read-only": ordinary,
        "argument": ordinary,
    }
    host = True

    def stream(self):
        return None

    def on(self, stream):
        return nullcontext()

    def full(self, value):
        return np.full(COUNT, value, "i4")

    def values(self, array):
        return set(array.ravel().tolist())

    def buffer(self):
        return cu.LockedBuffer(COUNT, "i4")

    def lend(self, buffer, known, **options):
        return buffer.lend(None, **options)

    def share(self, buffer, known, stream):
        with pytest.raises(cu.BufferBorrowedError, match=r"cannot .* from the host"):
            np.from_dlpack(buffer)
        cu.Device(0).synchronize()
        return np.from_dlpack(buffer)

    def take(self, exporter):
        return np.from_dlpack(exporter)


class Mpi4py(Library):
    """mpi4py is in the table so that it names every library. All its situations are skipped."""

    skips: ClassVar = dict.fromkeys(
        (
            *("out-same-stream", "out-two-streams", "out-early-free", "out-late-free"),
            *("out-read-only", "in-same-stream", "in-two-streams", "in-early-free"),
            *("in-late-free", "in-read-only", "argument"),
        ),
        "MPI needs several processes: tests/external/test_mpi.py",
    )


def _numba_plus(cuda):
    if not hasattr(_numba_plus, "kernel"):

        @cuda.jit("void(int32[::1], int32)")
        def plus(array, value):
            i = cuda.grid(1)
            if i < array.size:
                array[i] += value

        _numba_plus.kernel = plus
    return _numba_plus.kernel


ON_A_GPU = {"torch": Torch, "cupy": CuPy, "cupy-interface": CuPyByInterface, "jax": Jax}
ANYWHERE = {"numba": Numba, "cuda.core": CudaCore, "numpy": NumPy, "mpi4py": Mpi4py}
LIBRARIES = {**ON_A_GPU, **ANYWHERE}
ROWS = [pytest.param(name, marks=pytest.mark.cuda_gpu) for name in ON_A_GPU] + [*ANYWHERE]
SITUATIONS = {}


def situation(name):
    """Return a decorator that adds a function to the table under this name."""

    def add(function):
        SITUATIONS[name] = function
        return function

    return add


# ---- the situations ----


class Bench:
    """The objects of a situation.

    `theirs` is a stream of the library, and `known` the same stream as a `cu.Stream`. `stream` and
    `other` are streams of cudadrv.
    """

    def __init__(self, library):
        self.library = library
        self.theirs = library.stream()
        self.known = None if library.host else cu.Stream.from_object(self.theirs)
        self.stream, self.other = cu.Stream(), cu.Stream()
        module = cu.Module(PTX)
        self.kernel, self.delay = module["twice"], module["delay"]
        self.nanoseconds = 2_000_000 if cu.driver_info().is_software else 100_000_000
        # Each kernel is run once, because loading it on first use would wait for the device.
        with self.on():
            assert library.values(library.add(library.full(0), 1)) == {1}
        buffer = library.buffer()
        buffer.fill(0)
        self.twice(buffer, self.stream).wait()
        self.late(self.stream)
        self.stream.synchronize()

    def on(self):
        return self.library.on(self.theirs)

    def late(self, stream):
        """Delay this stream: work that is not ordered after it runs earlier than its next work."""
        self.delay.launch(1, 1, self.nanoseconds, stream=stream)

    def twice(self, array, stream):
        return self.kernel.launch(COUNT // THREADS, THREADS, array, stream=stream)

    def shared(self, buffer):
        """Make an array of the library over a buffer that nobody uses."""
        if self.library.host:
            return self.library.take(buffer)
        return self.library.share(buffer, self.known, self.stream)

    def ordered(self, stream):
        """Make the stream wait for the work that the library has queued."""
        if self.known is not None:
            stream.wait(self.known)

    def until_it_ends(self, buffer):
        """Wait until a loan has ended. JAX drops arrays a little later, in a thread of its own."""
        end = time.monotonic() + 30
        while "is free" not in buffer.explain() and time.monotonic() < end:
            gc.collect()
            cu.Device(0).synchronize()
            time.sleep(0.001)

    def items(self, buffer, stream):
        found = np.empty(COUNT, "i4")
        buffer.view("i4").copy_to(found, stream=stream)
        return set(found.tolist())


@situation("out-two-streams")
def ours_in_their_hands(bench):
    library, buffer = bench.library, bench.library.buffer()
    bench.late(bench.stream)
    buffer.fill_async(3, bench.stream)
    with bench.on():
        array = library.share(buffer, bench.known, bench.stream)
        total = library.add(array, 4)
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, bench.other)
        if total is not array:
            assert library.values(total) == {7}
            return
    del array, total
    gc.collect()
    if not library.host:
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(0, bench.other)
    bench.ordered(bench.other)
    assert bench.items(buffer, bench.other) == {7}


@situation("out-same-stream")
def ours_on_their_stream(bench):
    library, buffer = bench.library, bench.library.buffer()
    bench.late(bench.known)
    buffer.fill_async(3, bench.known)
    with bench.on():
        array = library.share(buffer, bench.known, bench.known)
        library.add(array, 4)
        bench.twice(buffer, bench.known)  # allowed: ordered with the library, on the same stream
        assert library.values(library.add(array, 1)) == {15}
    del array
    gc.collect()
    assert bench.items(buffer, bench.known) == {15}


@situation("out-early-free")
def ours_dies_before_theirs(bench):
    library, buffer = bench.library, bench.library.buffer()
    start, stop = buffer.address, buffer.address + buffer.nbytes
    buffer.fill(3)
    with bench.on():
        array = bench.shared(buffer)
        del buffer
        if bench.known is not None:
            bench.late(bench.known)
        total = library.add(array, 4)
        gc.collect()
        fresh = [library.buffer() for _ in range(4)]
        for each in fresh:
            assert not start <= each.address < stop
            each.fill_async(9, bench.stream)
        assert library.values(total) == {7}


@situation("out-late-free")
def theirs_lives_on(bench):
    """A loan lasts as long as the library has an array, even if the library's work is complete."""
    library, buffer = bench.library, bench.library.buffer()
    buffer.fill(3)
    with bench.on():
        array = bench.shared(buffer)
        assert library.values(library.add(array, 4)) == {7}
    cu.Device(0).synchronize()
    for use in (lambda: buffer.fill_async(0, bench.other), buffer.close):
        with pytest.raises(cu.BufferExportedError):
            use()
    del array
    bench.until_it_ends(buffer)
    buffer.fill_async(0, bench.other)
    assert bench.items(buffer, bench.other) == {0}


@situation("out-read-only")
def ours_to_be_read(bench):
    library, buffer = bench.library, bench.library.buffer()
    target = cu.DeviceBuffer(COUNT, "i4")
    buffer.fill(3)
    with bench.on():
        try:
            array = library.take(library.lend(buffer, bench.known, readonly=True))
        except REFUSALS as error:
            pytest.skip(f"it takes nothing that is read-only: {str(error).splitlines()[0]}")
        target.copy_from_async(buffer, bench.other)  # allowed: two readers
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, bench.other)
        assert library.values(array) == {3}
    assert bench.items(target, bench.other) == {3}


@situation("in-two-streams")
def theirs_in_our_hands(bench):
    library = bench.library
    with bench.on():
        array = library.full(1)
        bench.late(bench.known)
        array = library.add(array, 1)
        buffer = library.bring(array, bench.stream, bench.known)
        bench.late(bench.stream)
        bench.twice(buffer, bench.stream)
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(0, bench.other)
        buffer.give_back(bench.known)
        assert library.values(library.add(array, 1)) == {5}


@situation("in-same-stream")
def theirs_on_their_stream(bench):
    library = bench.library
    with bench.on():
        array = library.full(1)
        bench.late(bench.known)
        array = library.add(array, 1)
        buffer = library.bring(array, bench.known, bench.known)
        bench.twice(buffer, bench.known)
        library.add(array, 1)
        bench.twice(buffer, bench.known)
        assert library.values(array) == {10}


@situation("in-early-free")
def theirs_dies_before_ours(bench):
    library = bench.library
    with bench.on():
        buffer = library.bring(library.full(3), bench.stream, bench.known)
        bench.late(bench.stream)
        gc.collect()
        # These arrays would get the memory of the first array, if it were freed.
        others = [library.full(9) for _ in range(4)]
        bench.twice(buffer, bench.stream)
        assert bench.items(buffer, bench.stream) == {6}
        assert all(library.values(each) == {9} for each in others)


@situation("in-late-free")
def ours_dies_before_our_work(bench):
    library = bench.library
    with bench.on():
        array = library.full(3)
        buffer = library.bring(array, bench.stream, bench.known)
        bench.late(bench.stream)
        bench.twice(buffer, bench.stream)
        del buffer
        gc.collect()
        bench.known.wait(bench.stream)
        assert library.values(library.add(array, 1)) == {7}


@situation("in-read-only")
def theirs_to_be_read(bench):
    library = bench.library
    with bench.on():
        array = library.full(3)
        bench.late(bench.known)
        array = library.add(array, 1)
        if not hasattr(array, "__cuda_array_interface__"):
            pytest.skip("it has no array interface, by which an array can say so")
        buffer = cu.from_cuda_array(ReadOnly(array), bench.stream)
        if array.__cuda_array_interface__.get("stream") is None:
            bench.stream.wait(bench.known)
        with pytest.raises(BufferError, match="says it is read-only"):
            bench.twice(buffer, bench.stream)
        assert bench.items(buffer, bench.stream) == {4}


class ReadOnly:
    """An array of the library whose interface says that it is read-only."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        interface = dict(self.array.__cuda_array_interface__)
        return interface | {"data": (interface["data"][0], True)}


@situation("argument")
def theirs_as_an_argument(bench):
    """An array as an argument of a launch is kept alive until the launch is complete."""
    library = bench.library
    with bench.on():
        array = library.full(1)
        bench.late(bench.known)
        array = library.add(array, 2)
        bench.twice(array, bench.stream)
        with pytest.raises(cu.BufferBorrowedError, match=r"argument 0 \(x, .u64\)"):
            bench.twice(array, bench.other)
        bench.known.wait(bench.stream)
        assert library.values(array) == {6}
        bench.late(bench.stream)
        token = bench.twice(array, bench.stream)
        del array
        gc.collect()
        others = [library.full(9) for _ in range(4)]
        token.wait()
        assert all(library.values(each) == {9} for each in others)


@pytest.mark.cuda_allow("leaks")
@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("library", ROWS)
def test_table(driver, library, name):
    """Run a situation with a library. Only leaks of buffers are checked.

    The libraries never release their streams and modules.
    """
    reason = LIBRARIES[library].skips.get(name)
    if reason is not None:
        pytest.skip(reason)
    bench = Bench(LIBRARIES[library]())
    SITUATIONS[name](bench)
    del bench
    gc.collect()
    for _ in range(3):
        cu.Device(0).synchronize()
        cu.reap()
    assert cu.live_buffers() == []


def test_table_is_whole():
    """Each entry of `skips` names a situation of the table."""
    assert len(SITUATIONS) == 11
    for library in LIBRARIES.values():
        assert library.skips.keys() <= SITUATIONS.keys()
    assert Mpi4py.skips.keys() == SITUATIONS.keys()


# ---- tests of single libraries ----


@pytest.fixture(params=["torch", "cupy"])
def bench(request, driver):
    return Bench(LIBRARIES[request.param]())


@pytest.mark.cuda_gpu
def test_taking_turns(bench):
    library, buffer = bench.library, bench.library.buffer()
    buffer.fill(1)
    loan = buffer.lend(bench.known, shape=(COUNT // 4, 4))
    with bench.on():
        array = library.take(loan)
        assert tuple(array.shape) == (COUNT // 4, 4)
        bench.late(bench.known)
        library.add(array, 1)
        with loan.back():
            bench.stream.wait(bench.known)
            bench.late(bench.stream)
            buffer.fill_async(5, bench.stream)
        library.add(array, 1)
        assert library.values(array) == {6}
    del array, loan


@pytest.mark.cuda_gpu
def test_cupy_says_why_a_buffer_is_no_array(driver):
    cupy = imported("cupy")
    with pytest.raises(TypeError, match="DeviceBuffer is no array"):
        cupy.asarray(cu.DeviceBuffer(4))


@pytest.mark.cuda_gpu
def test_page_locked_memory_of_torch(stream):
    torch = imported("torch")
    tensor = torch.arange(16, dtype=torch.int32).pin_memory()
    try:
        found = cu.from_dlpack(tensor)
    except BufferError:
        pytest.skip("this PyTorch calls it ordinary memory")
    assert isinstance(found, cu.LockedBuffer)


@pytest.mark.cuda_gpu
def test_arrays_of_jax(stream):
    library = Jax()
    array = library.full(1) + 2
    found = np.empty(COUNT, "i4")
    cu.from_dlpack(array, stream).copy_to(found, stream=stream)
    assert set(found.tolist()) == {3}


@pytest.mark.cuda_allow("leaks")
def test_what_cuda_core_sees_of_a_buffer(driver, stream):
    library = CudaCore()
    buffer = cu.DeviceBuffer(16, "f4").reshape(4, 4)
    buffer.fill(2)
    with library.on(stream):
        view = library.take(buffer)
    found = (view.ptr, tuple(view.shape), view.is_device_accessible, view.readonly)
    assert found == (buffer.address, (4, 4), True, False)
