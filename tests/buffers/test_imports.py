"""Arrays of other libraries as buffers, and as arguments of kernels."""

import ctypes
import gc
import weakref
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from capsules import Exported, new_capsule
from other_library import ADD, Library

import cudadrv as cu


@pytest.fixture
def library(driver):
    found = Library()
    yield found
    found.end()


class Array:
    """An array with the CUDA Array Interface."""

    def __init__(self, library, start=0, shape=(16,), dtype="<u4", stream=1, **more):
        self.library = library
        self.interface = {
            "shape": shape,
            "typestr": dtype,
            "data": (library.address + start, False),
            "version": 3,
            "stream": stream,
            **more,
        }

    @property
    def __cuda_array_interface__(self):
        return self.interface


class Exporter:
    """An array with DLPack. A buffer of cudadrv provides the memory of the other library."""

    def __init__(self, buffer):
        self.buffer = buffer
        self.asked = []

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(options)
        return self.buffer.__dlpack__(**options)


@pytest.fixture
def add(driver):
    return cu.Module(ADD)["add"]


# ---- DLPack ----


@pytest.mark.parametrize("kind", ["device", "unified"])
def test_dlpack_goes_round(make, stream, other, kind):
    buffer = make(kind, 12, "f4").reshape(3, 4)
    cu.Device(0).synchronize()
    exporter = Exporter(buffer)
    found = cu.from_dlpack(exporter, stream)
    assert type(found) is type(buffer)
    assert (found.shape, found.dtype, found.address) == ((3, 4), np.dtype("f4"), buffer.address)
    assert exporter.asked == [{"stream": stream.handle, "max_version": (1, 1)}]
    found.fill_async(1, stream)
    with pytest.raises(cu.BufferExportedError, match="it is lent to Stream"):
        found.fill_async(2, other)
    del found
    stream.synchronize()
    cu.reap()
    stream.synchronize()
    buffer.fill_async(2, other)


@pytest.mark.parametrize("kind", ["device", "locked", "unified"])
def test_a_buffer_of_ours_is_lent_to_the_stream_that_is_named(make, stream, other, kind):
    """`from_dlpack` of a buffer lends it to the stream that is passed.

    The current stream does not matter: only consumers of the C exchange API use it.
    """
    buffer = make(kind, 8)
    cu.Device(0).synchronize()
    found = cu.from_dlpack(buffer, stream)
    if kind == "locked":  # DLPack has no streams for page-locked memory, so it is lent to the host
        with pytest.raises(cu.BufferExportedError, match="a host view of it is alive"):
            found.fill_async(1, stream)
        return
    found.fill_async(1, stream)
    with pytest.raises(cu.BufferExportedError, match=r"it is lent to Stream \d+, at"):
        found.fill_async(1, other)


def test_the_stream_that_the_exporter_hears_of(make, stream):
    buffer = make("device", 4)
    cu.Device(0).synchronize()
    exporter = Exporter(buffer)
    for given, current, asked in (
        (stream, None, stream.handle),
        (None, stream, stream.handle),
        (None, None, 1),
        (cu.Stream.legacy(), None, 1),
        (cu.Stream.per_thread(), None, 2),
    ):
        if current is None:
            found = cu.from_dlpack(exporter, given)
        else:
            with current:
                found = cu.from_dlpack(exporter, given)
        assert exporter.asked[-1]["stream"] == asked
        del found
        cu.Device(0).synchronize()
        cu.Device(0).synchronize()


# The result of `from_dlpack` for a loan to the import's stream or to no stream: the class of the
# buffer, or a part of the refusal. The driver says what the memory is, not `device=`.
LOANS = {
    ("device", None): (cu.DeviceBuffer, "lent to work on no stream"),
    ("device", "cuda"): (cu.DeviceBuffer, "lent to work on no stream"),
    ("locked", None): ("which waits for no stream", cu.LockedBuffer),
    ("locked", "cuda"): (cu.LockedBuffer, "lent to work on no stream"),
    ("locked", "cpu"): (None, cu.LockedBuffer),
    ("unified", None): (cu.UnifiedBuffer, "lent to work on no stream"),
    ("unified", "cuda"): (cu.UnifiedBuffer, "lent to work on no stream"),
    ("unified", "cpu"): (None, cu.UnifiedBuffer),
}


@pytest.mark.parametrize(("kind", "device"), LOANS)
@pytest.mark.parametrize("to", ["a stream", "nothing"])
def test_loans_of_our_buffers(make, stream, other, kind, device, to):
    buffer = make(kind, 12, "f4", np.arange(12, dtype="f4")).reshape(3, 4)
    cu.Device(0).synchronize()
    expected = LOANS[kind, device][to == "nothing"]
    if expected is None:
        return  # `lend` refuses it
    loan = buffer.lend(stream if to == "a stream" else None, device=device)
    if isinstance(expected, str):
        with pytest.raises(BufferError, match=expected):
            cu.from_dlpack(loan, stream)
        return
    found = cu.from_dlpack(loan, stream)
    assert type(found) is expected
    assert (found.shape, found.dtype, found.address) == ((3, 4), np.dtype("f4"), buffer.address)
    if to == "nothing":
        with pytest.raises(cu.BufferExportedError):
            found.fill_async(1, stream)
    else:
        found.fill_async(1, stream)
        with pytest.raises(cu.BufferExportedError, match="it is lent to Stream"):
            buffer.fill_async(2, other)
    del found, loan
    for _ in range(2):
        stream.synchronize()
        cu.reap()
    buffer.fill_async(2, other)


@pytest.mark.parametrize("kind", ["device", "locked", "unified"])
def test_a_loan_to_the_device_is_an_argument(make, add, stream, kind):
    x = make(kind, 16, "u4", np.arange(16, dtype="u4"))
    y = make("device", 16, "u4", np.full(16, 5, "u4"))
    cu.Device(0).synchronize()
    add.launch(1, 16, cu.read(x.lend(stream, device="cuda")), y, stream=stream)
    assert y.to_numpy(stream=stream).tolist() == [5 + i for i in range(16)]


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_memory_that_its_owner_says_is_of_a_device(make, stream, kind):
    """Some libraries declare managed memory or page-locked memory as memory of a device."""

    class OfDevice(Exporter):
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, *, stream, max_version):
            return self.buffer.__dlpack__(stream=stream, max_version=max_version, dl_device=(2, 0))

    buffer = make(kind, 8, "i4")
    cu.Device(0).synchronize()
    found = cu.from_dlpack(OfDevice(buffer), stream)
    assert (type(found), found.address) == (type(buffer), buffer.address)
    found.fill_async(1, stream)


def test_page_locked_memory_has_no_stream(make, stream):
    buffer = make("locked", 4, "i4", items=np.arange(4, dtype="i4"))
    stream.synchronize()
    exporter = Exporter(buffer)
    found = cu.from_dlpack(exporter, stream)
    assert exporter.asked == [{"max_version": (1, 1)}]
    assert isinstance(found, cu.LockedBuffer)


def test_an_exporter_of_before_versions(make, stream):
    class Old(Exporter):
        def __dlpack__(self, stream=None):
            return self.buffer.__dlpack__(stream=stream)

    buffer = make("device", 4)
    cu.Device(0).synchronize()
    assert cu.from_dlpack(Old(buffer), stream).count == 4


def test_the_exporters_memory_lives_until_the_last_use(make, stream, gate):
    class Owner:
        pass

    owner = Owner()
    memory = make("device", 16)
    cu.Device(0).synchronize()
    buffer = cu.DeviceBuffer.from_address(memory.address, 16, owner=owner)
    died = weakref.ref(owner)
    del owner
    found = cu.from_dlpack(Exporter(buffer), stream)
    gate.hold(stream)
    found.fill_async(1, stream)
    del found, buffer
    gc.collect()
    assert died() is not None
    gate.open()
    for _ in range(3):
        stream.synchronize()
        cu.reap()
    assert died() is None


@pytest.mark.parametrize(
    ("exporter", "error", "message"),
    [
        (np.zeros(4), BufferError, "ordinary memory.*LockedBuffer.from_array"),
        (5, TypeError, "int has no __dlpack__; from_cuda_array takes"),
        (np.float32, TypeError, "has no __dlpack__|missing|descriptor"),
    ],
)
def test_what_is_no_array_of_a_device(exporter, error, message, driver):
    with pytest.raises(error, match=message):
        cu.from_dlpack(exporter)


def test_hostile_exporters(make, stream, other):
    buffer = make("device", 8)
    cu.Device(0).synchronize()

    def exporter(capsule, device=lambda: (2, 0)):
        class Hostile:
            def __dlpack_device__(self):
                return device()

            def __dlpack__(self, **options):
                return capsule(options)

        return Hostile()

    def fail(*_):
        raise ZeroDivisionError

    used = cu.DeviceBuffer(8).__dlpack__(stream=stream.handle)
    cu.from_dlpack(exporter(lambda options: used), stream)
    for each, error in (
        (exporter(fail), ZeroDivisionError),
        (exporter(lambda options: None, fail), ZeroDivisionError),
        (exporter(lambda options: None), TypeError),
        (exporter(lambda options: "capsule"), TypeError),
        (exporter(lambda options: used), BufferError),
        (exporter(lambda options: None, lambda: None), TypeError),
        (exporter(lambda options: None, lambda: (2, 99)), ValueError),
        (exporter(lambda options: None, lambda: (10, 0)), BufferError),
        (exporter(lambda options: None, lambda: ("cuda", 0)), TypeError),
    ):
        with pytest.raises(error):
            cu.from_dlpack(each, stream)

    def close(options):
        capsule = buffer.__dlpack__(**options)
        with pytest.raises(cu.BufferExportedError):
            buffer.close()
        return capsule

    found = cu.from_dlpack(exporter(close), stream)
    assert found.address == buffer.address


BEYOND = "ends at .* which is none of the driver's memory"
PROTOCOL = "breaks the protocol"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"strides": (-1,)}, BufferError, "rows or slices overlap"),
        ({"strides": (0,)}, BufferError, "rows or slices overlap"),
        ({"shape": (1 << 62, 4)}, ValueError, "no memory has so many"),
        ({"shape": (1 << 62,) * 3, "strides": (0, 0, 1)}, BufferError, "cannot be used"),
        ({"shape": (4, 1 << 62, 4), "strides": (0, 4, 1)}, ValueError, "no memory has so many"),
        ({"shape": ((1 << 63) - 1,)}, ValueError, BEYOND),
        ({"shape": (1 << 40,)}, ValueError, BEYOND),
        ({"shape": (1 << 40,), "byte_offset": 8}, ValueError, BEYOND),
        ({"shape": (-1,)}, BufferError, "cannot have -1 items"),
        ({"ndim": -1}, BufferError, "cannot have -1 dimensions"),
        ({"ndim": 65}, BufferError, "cannot have 65 dimensions"),
        ({"shape": (1,) * 65}, BufferError, "cannot have 65 dimensions"),
        ({"byte_offset": (1 << 64) - 16}, BufferError, PROTOCOL),
        ({"byte_offset": 1 << 63}, ValueError, "there cannot be items"),
        ({"byte_offset": 1 << 40}, ValueError, "none of the driver's memory"),
        ({"data": None}, ValueError, "there cannot be items"),
        ({"data": 1}, ValueError, "none of the driver's memory"),
        ({"code": 2, "bits": 32, "byte_offset": 2}, ValueError, "there cannot be items"),
        ({"lanes": 4}, BufferError, "NumPy has no dtype"),
        ({"lanes": 0}, BufferError, "NumPy has no dtype"),
        ({"bits": 0}, BufferError, "NumPy has no dtype"),
        ({"bits": 4}, BufferError, "NumPy has no dtype"),
        ({"code": 6, "bits": 16}, BufferError, "NumPy has no dtype"),
        ({"code": 3, "bits": 64}, BufferError, "NumPy has no dtype"),
        ({"code": 255}, BufferError, "NumPy has no dtype"),
        ({"version": (0, 8)}, BufferError, "is of DLPack 0, and 1.x"),
        ({"version": (2, 0)}, BufferError, "is of DLPack 2, and 1.x"),
        ({"says": (13, 0)}, ValueError, "is not managed memory"),
        ({"says": (3, 0)}, ValueError, "is not page-locked host memory"),
    ],
)
def test_capsules_that_lie(library, stream, changes, error, message):
    """A capsule with wrong contents is refused. It is deleted once, and no buffer is left."""
    exported = Exported(library.address, **changes)
    with pytest.raises(error, match=message) as raised:
        cu.from_dlpack(exported, stream)
    raised = None  # the traceback refers to the capsule  # noqa: F841
    gc.collect()
    assert exported.ended == 1
    assert cu.live_buffers() == []


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"name": b"datetime.datetime_CAPI"}, TypeError, "must return a DLPack capsule"),
        ({"name": b"used_dltensor_versioned"}, BufferError, "was consumed already"),
        ({"says": None}, TypeError, "__dlpack_device__ of .* must be two ints"),
        ({"says": (2,)}, TypeError, "__dlpack_device__ of .* must be two ints"),
        ({"says": (2, 0, 0)}, TypeError, "__dlpack_device__ of .* must be two ints"),
        ({"says": ("cuda", 0)}, TypeError, "__dlpack_device__ of .* must be two ints"),
        ({"says": (2, -1)}, ValueError, "there is no device -1"),
        ({"says": (2, 1 << 70)}, ValueError, "there is no device 1180591620717411303424"),
        ({"says": (1, 0)}, BufferError, "is in ordinary memory"),
        ({"says": (10, 0)}, BufferError, "none of CUDA's"),
        ({"says": (1 << 70, 0)}, BufferError, "none of CUDA's"),
    ],
)
def test_what_is_refused_before_it_is_consumed(library, stream, changes, error, message):
    exported = Exported(library.address, **changes)
    with pytest.raises(error, match=message):
        cu.from_dlpack(exported, stream)
    assert exported.ended == 0
    assert cu.live_buffers() == []


@pytest.mark.parametrize("versioned", [False, True])
def test_capsules_of_other_exporters(library, stream, other, versioned):
    exported = Exported(library.address, versioned=versioned, shape=(2, 4), code=2, bits=16)
    found = cu.from_dlpack(exported, stream)
    assert (found.shape, found.dtype) == ((2, 4), np.dtype("f2"))
    with pytest.raises(cu.BufferBorrowedError, match="its import"):
        found.fill_async(1, other)
    assert exported.ended == 0
    found.give_back(stream)
    assert exported.ended == 1
    nothing = Exported(library.address, versioned=versioned, shape=(0, 7), data=None)
    found = cu.from_dlpack(nothing, stream)
    assert (found.shape, found.address) == ((0, 7), 0)
    del found
    for _ in range(2):
        stream.synchronize()
        cu.reap()
    assert nothing.ended == 1


def test_an_exporter_without_a_deleter(library, stream):
    """An exporter may have no deleter: then somebody else releases its memory."""
    exported = Exported(library.address)
    exported.managed.deleter = None
    cu.from_dlpack(exported, stream).give_back(stream)
    assert exported.ended == 0


@pytest.mark.cuda_software
def test_memory_of_another_device(script):
    """The device of imported memory is the one that the driver reports, not the exporter's."""
    script.quiet(
        f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parents[1])!r})
    import cudadrv as cu
    from capsules import Exported
    here, there = cu.Device(0), cu.Device(1)
    memory, stream = cu.DeviceBuffer(16, device=there), cu.Stream(device=here)
    exported = Exported(memory.address, says=(2, 0))
    try:
        cu.from_dlpack(exported, stream)
    except ValueError as error:
        assert "is memory of device 1, not of" in str(error), error
    else:
        raise SystemExit("it is taken for memory of device 0")
    try:
        cu.from_dlpack(Exported(memory.address, says=(2, 1)), stream)
    except ValueError as error:
        assert "use a stream of its primary context" in str(error), error
    else:
        raise SystemExit("a stream of device 0 uses it")
    """,
        CUDADRV_SOFTWARE="devices=2",
    )


@pytest.mark.parametrize("what", ["buffer", "taken", "raw", "stream", "module", "array"])
def test_exporters_that_close_what_is_used(library, make, what):
    """An exporter closes objects that the launch uses.

    A launch checks its buffers after it has called the exporters.
    """
    stream, module = cu.Stream(), cu.Module(ADD)
    buffer, kept = make("device", 64), []
    array = make("device", 64)
    cu.Device(0).synchronize()

    class Hostile(Exporter):
        def __dlpack__(self, **options):
            capsule = array.__dlpack__(**options) if what != "array" else None
            if what == "taken":
                kept.append(buffer.take())
            elif what == "raw":
                kept.append(cu.DeviceBuffer.from_raw(buffer.into_raw(), 64))
            else:
                {"buffer": buffer, "stream": stream, "module": module, "array": array}[what].close()
            return capsule or array.__dlpack__(**options)

    with pytest.raises(cu.OwnershipError, match=r"closed|moved|lent") as raised:
        module["add"].launch(1, 16, buffer, Hostile(array), stream=stream)
    del raised
    gc.collect()
    if not stream.closed:
        stream.synchronize()
    cu.Device(0).synchronize()
    array.close()
    assert not array.borrowed


def test_exporters_that_launch_the_same_kernel(make, add, stream):
    """An exporter launches the same kernel during a launch. Each launch uses its own arguments."""
    x, y, z = (make("device", 16, "u4", items=np.full(16, n, "u4")) for n in (1, 10, 100))
    cu.Device(0).synchronize()

    class Hostile(Exporter):
        def __dlpack__(self, **options):
            add.launch(1, 16, x, z, stream=stream)
            return y.__dlpack__(**options)

    add.launch(1, 16, x, Hostile(y), stream=stream)
    assert set(y.to_numpy(stream=stream).tolist()) == {11}
    assert set(z.to_numpy(stream=stream).tolist()) == {101}


def test_strides_and_lies_in_a_capsule(make, stream):
    buffer = make("device", 16, "u1")
    cu.Device(0).synchronize()
    box = cu.from_dlpack(buffer.lend(stream, shape=(2, 4), strides=(8, 1)), stream)
    assert (box.shape, box.strides, box.nbytes) == ((2, 4), (8, 1), 8)
    del box
    with pytest.raises(BufferError, match=r"overlap, .*\. Make it C-contiguous there first"):
        cu.from_dlpack(buffer.lend(stream, shape=(4, 4), strides=(1, 4)), stream)
    found = cu.from_dlpack(buffer.lend(stream, shape=(1, 8), strides=(3, 1)), stream)
    assert found.shape == (1, 8)
    empty = cu.from_dlpack(make("device", 0).lend(stream, shape=(0, 5)), stream)
    assert (empty.shape, empty.count, empty.address) == ((0, 5), 0, 0)


def test_read_only_stays_read_only(make, stream):
    buffer, target = make("device", 8), make("device", 8)
    cu.Device(0).synchronize()
    found = cu.from_dlpack(buffer.lend(stream, readonly=True), stream)
    target.copy_from_async(found, stream)
    for write in (
        lambda: found.fill_async(1, stream),
        lambda: found[2:4].copy_from_async(target[2:4], stream),
        lambda: found.view("u4").fill(0, stream=stream),
        lambda: found.lend(stream).__enter__(),
        lambda: found.take().fill_async(1, stream),
    ):
        with pytest.raises(BufferError, match="says it is read-only"):
            write()


# ---- the CUDA Array Interface ----


def test_array_interface(library, stream, other):
    array = Array(library, shape=(4, 4))
    buffer = cu.from_cuda_array(array, stream)
    assert (buffer.address, buffer.shape, buffer.dtype) == (library.address, (4, 4), np.dtype("u4"))
    assert [borrow.operation for borrow in buffer.borrows] == ["its import"]
    with pytest.raises(cu.BufferBorrowedError, match="written by its import on Stream"):
        buffer.fill_async(0, other)
    other.wait(stream)
    buffer.fill_async(0, other)


def test_its_stream_is_waited_for(library, stream, other, gate):
    """An import is ordered after the stream that the interface names."""
    gate.hold(other)
    buffer = cu.from_cuda_array(Array(library, stream=other.handle), stream)
    token = buffer.fill_async(7, stream)
    assert not token.done
    gate.open()
    token.wait()


# ---- arrays that name no stream ----


class Plain(Array):
    """An array whose interface names no stream. Its library works on the legacy default stream."""

    def __init__(self, library, start=0, value=0):
        super().__init__(library, start, stream=None)
        with cu.Device(0):
            fill = library.driver.cuMemsetD8Async
            address = ctypes.c_uint64(library.address + start)
            assert fill(address, value, ctypes.c_size_t(64), ctypes.c_void_p(1)) == 0


def on(way, stream):
    """The stream to import on."""
    return {
        "non-blocking": lambda: stream,
        "blocking": lambda: cu.Stream(blocking=True),
        "per-thread": cu.Stream.per_thread,
        "legacy": cu.Stream.legacy,
        "default": lambda: None,
    }[way]()


@pytest.mark.parametrize("way", ["non-blocking", "blocking", "per-thread", "legacy", "default"])
def test_without_a_stream_the_legacy_stream_is_waited_for(library, stream, other, gate, way):
    to = on(way, stream)
    gate.hold(cu.Stream.legacy())
    buffer = cu.from_cuda_array(Plain(library, value=3), to)
    assert [borrow.operation for borrow in buffer.borrows] == ["its import"]
    with pytest.raises(cu.BufferBorrowedError, match="written by its import"):
        buffer.fill_async(0, other)
    token = buffer.fill_async(7, to or cu.Stream.legacy())
    assert not token.done
    gate.open()
    token.wait()
    assert set(buffer.to_numpy().tolist()) == {7}


@pytest.mark.parametrize("way", ["read", "write", "bare", "borrows"])
def test_without_a_stream_a_launch_waits_for_the_legacy_stream(library, add, stream, gate, way):
    gate.hold(cu.Stream.legacy())
    x, y = Plain(library, value=1), cu.DeviceBuffer(16, "u4")
    if way == "borrows":
        token = add.launch(1, 16, y, y, stream=stream, borrows=[x])
    else:
        array = {"read": cu.read, "write": cu.write, "bare": lambda each: each}[way](x)
        token = add.launch(1, 16, array, y, stream=stream)
    assert not token.done
    gate.open()
    token.wait()


def test_page_locked_memory_without_a_stream(make, stream):
    """The host, too, has to be ordered after what the owner has queued."""
    memory = cu.LockedBuffer(16, "u4", pooled=False).into_raw()
    library = SimpleNamespace(address=memory)
    buffer = cu.from_cuda_array(Array(library, stream=None), stream)
    with pytest.raises(cu.BufferBorrowedError, match="written by its import"):
        buffer[0] = 1
    stream.synchronize()
    buffer[0] = 1
    del buffer
    cu.LockedBuffer.from_raw(memory, 16, "u4").close()


def test_an_empty_array_waits_for_nothing(library, stream, unchanged):
    with unchanged("cuEventRecord", "cuStreamWaitEvent"):
        cu.from_cuda_array(Array(library, shape=(0,), stream=None), stream)


@contextmanager
def captured(stream, whose):
    """Capture a stream in a block. If anything has broken the capture, its end fails."""
    if whose == "ours":
        with cu.Graph().capture(stream):
            yield
        return
    driver, graph = ctypes.CDLL(cu.driver_info().path), ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.handle)
    with cu.Device(0):
        assert driver.cuStreamBeginCapture_v2(handle, 2) == 0
    try:
        yield
    finally:
        with cu.Device(0):
            assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
            assert driver.cuGraphDestroy(graph) == 0


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_without_a_stream_while_a_blocking_stream_is_captured(library, add, stream, whose):
    """Uses are refused: their event, recorded on the legacy stream, would join the capture."""
    blocking, y = cu.Stream(blocking=True), cu.DeviceBuffer(16, "u4")
    array = Array(library, stream=None)
    with captured(blocking, whose):
        for use in (
            lambda: cu.from_cuda_array(array, stream),
            lambda: add.launch(1, 16, cu.read(array), y, stream=stream),
            lambda: add.launch(1, 16, y, y, stream=stream, borrows=[array]),
        ):
            with pytest.raises(cu.CaptureError, match=r"(?s)names no stream.*ordered=True"):
                use()
        assert len(cu.live_buffers()) == 1  # `y`
        cu.from_cuda_array(array, stream, ordered=True).fill_async(1, stream)
    cu.from_cuda_array(array, stream).fill_async(2, stream)


def test_without_a_stream_in_a_capture(library, add, stream):
    """A captured stream waits for nothing outside. With ordered=True, launches are ordered."""
    array, y = Array(library, stream=None), cu.DeviceBuffer(16, "u4")
    y.fill(1)
    before = cu.from_cuda_array(array, ordered=True)
    before.fill(2)
    graph = cu.Graph()
    with graph.capture(stream):
        for use in (
            lambda: cu.from_cuda_array(array, stream),
            lambda: add.launch(1, 16, cu.read(array), y, stream=stream),
        ):
            with pytest.raises(cu.CaptureError, match=r"names no stream.*ordered=True"):
                use()
        add.launch(1, 16, cu.read(before), y, stream=stream)
        inside = cu.from_cuda_array(array, stream, ordered=True)
        add.launch(1, 16, cu.read(inside), y, stream=stream)
    step = graph.instantiate()
    step.launch(stream)
    assert set(y.to_numpy(stream=stream).tolist()) == {5}


# ---- arrays that the program has ordered ----


@pytest.mark.parametrize("named", [None, 1, 2])
def test_ordered_arrays_are_waited_for_by_nobody(library, stream, other, named, unchanged):
    with unchanged("cuEventRecord", "cuStreamWaitEvent"):
        buffer = cu.from_cuda_array(Array(library, stream=named), stream, ordered=True)
    assert not buffer.borrowed
    buffer[:8].fill_async(7, other)
    buffer[8:].fill_async(7, stream)


def test_ordered_exporters_are_asked_for_nothing(library, stream, other):
    exported = Exported(library.address, shape=(16,))
    asked = []
    export = exported.__dlpack__

    class Asked:
        def __dlpack_device__(self):
            return exported.__dlpack_device__()

        def __dlpack__(self, **options):
            asked.append(options)
            return export(**options)

    buffer = cu.from_dlpack(Asked(), stream, ordered=True)
    assert asked == [{"stream": -1, "max_version": (1, 1)}]
    assert not buffer.borrowed
    buffer.fill_async(7, other)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(7, stream)
    for function in (cu.from_dlpack, cu.from_cuda_array):
        with pytest.raises(TypeError):
            function(exported, stream, True)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mask": 1}, BufferError, "has a mask, which would be lost"),
        ({"strides": (2,)}, BufferError, "rows or slices overlap"),
        ({"strides": (-4,)}, BufferError, "rows or slices overlap"),
        ({"shape": (-1,)}, BufferError, "breaks the protocol"),
        ({"shape": None}, BufferError, "breaks the protocol: TypeError"),
        ({"typestr": "nonsense"}, BufferError, "breaks the protocol: TypeError"),
        ({"data": 5}, BufferError, "breaks the protocol"),
        ({"data": (5, False)}, ValueError, "none of the driver's"),
        ({"stream": 0}, BufferError, "stream 0"),
        ({"shape": (1 << 62, 4)}, ValueError, "no memory has so many"),
        ({"typestr": "|O8"}, (TypeError, ValueError), "object"),
        ({"shape": (1 << 40,)}, ValueError, BEYOND),
        ({"strides": (4, 4)}, BufferError, PROTOCOL),
        ({"typestr": "|V4", "descr": [("a", "<u4"), ("b", "<u4")]}, BufferError, "4 bytes.* of 8"),
        ({"strides": ()}, BufferError, PROTOCOL),
        ({"strides": 4}, BufferError, PROTOCOL),
        ({"strides": ("4",)}, BufferError, PROTOCOL),
        ({"data": (1 << 80, False)}, BufferError, PROTOCOL),
        ({"data": (None, False)}, BufferError, PROTOCOL),
        ({"stream": 1 << 70}, ValueError, "is not the handle of a stream"),
    ],
)
def test_interfaces_that_lie(library, stream, change, error, message):
    array = Array(library)
    array.interface.update(change)
    with pytest.raises(error, match=message):
        cu.from_cuda_array(array, stream)
    assert cu.live_buffers() == []


def test_what_has_no_interface(driver):
    with pytest.raises(TypeError, match="from_dlpack takes what has __dlpack__"):
        cu.from_cuda_array(np.zeros(4))


# ---- buffers over the same memory share its records ----


def test_overlapping_arrays_share_their_records(library, stream, other):
    x = cu.from_cuda_array(Array(library), stream, ordered=True)
    y = cu.from_cuda_array(Array(library, start=32), stream, ordered=True)
    z = cu.DeviceBuffer.from_address(library.address + 64, 16, owner=library)
    x[8:].fill_async(1, stream)
    y[8:].fill_async(2, other)  # does not overlap the bytes of `x`
    for buffer in (y, y[:1], x[15:]):
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(3, other)
    with pytest.raises(cu.BufferBorrowedError):
        z.fill_async(3, stream)
    assert not x[:8].borrowed
    x[:8].fill_async(4, other)
    other.wait(stream)
    y.fill_async(3, other)


def test_an_import_inside_of_ours_shares_its_records(make, stream, other):
    buffer = make("device", 16)
    cu.Device(0).synchronize()
    part = cu.DeviceBuffer.from_address(buffer.address + 4, 4, owner=buffer)
    part.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    buffer[8:].fill_async(2, other)
    with pytest.raises(cu.BufferBorrowedError, match=r"DeviceBuffer\[0:4\]"):
        part.fill_async(2, other)
    cu.Device(0).synchronize()
    buffer.close()
    with pytest.raises(cu.BufferClosedError):
        part.fill_async(2, other)


def test_overlapping_arrays_are_not_copied(library, stream):
    """Copies between overlapping arrays are refused, because the driver's copy is undefined."""
    x = cu.from_cuda_array(Array(library, stream=None), stream)
    y = cu.from_cuda_array(Array(library, start=32, stream=None), stream)
    same = cu.from_cuda_array(Array(library, stream=None), stream)
    for copy in (x.copy_from_async, x.copy_to_async):
        with pytest.raises(ValueError, match="overlap; a copy needs disjoint parts"):
            copy(y, stream=stream)
    x[:8].copy_from_async(y[:8], stream)
    assert x[8:].copy_from_async(same[8:], stream).done
    assert x[8:].copy_from_async(y[:8], stream).done


def test_work_is_found_by_the_next_buffer_there(driver, library, stream, other, gate):
    """Unfinished work of a dropped buffer also counts for a new buffer over the same memory."""
    gate.hold(stream)
    x = cu.DeviceBuffer.from_address(library.address, 16)
    x.fill_async(1, stream)
    del x
    y = cu.DeviceBuffer.from_address(library.address, 16)
    with pytest.raises(cu.BufferBorrowedError):
        y.fill_async(2, other)
    gate.open()


def test_memory_with_buffers_over_it_is_not_taken(library):
    """`from_raw` refuses memory with live buffers: the new buffer would not share their records."""
    address = library.allocate()
    borrowed = cu.DeviceBuffer.from_address(address + 64, 16)
    with pytest.raises(ValueError, match=r"lies in a live DeviceBuffer, .* which only borrows it"):
        cu.DeviceBuffer.from_raw(address, 128)
    borrowed.close()
    cu.DeviceBuffer.from_raw(address, 128).close()


def test_closing_ends_one_buffer_of_several(library, stream, other):
    x = cu.from_cuda_array(Array(library, stream=None), stream)
    y = cu.from_cuda_array(Array(library, stream=None), stream)
    y.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer"):
        x.close()
    stream.synchronize()
    x.close()
    with pytest.raises(cu.BufferClosedError):
        x.fill_async(1, stream)
    y.fill_async(1, stream)
    with pytest.raises(ValueError, match="only borrows its memory"):
        y.into_raw()


def test_books_end_with_the_last_buffer(library, stream):
    for _ in range(3):
        x = cu.from_cuda_array(Array(library, stream=None), stream)
        x.fill_async(1, stream)
        del x
        cu.Device(0).synchronize()
        assert cu.live_buffers() == []
        x = cu.from_cuda_array(Array(library), stream, ordered=True)
        assert not x.borrowed
        del x


# ---- giving back ----


def test_give_back(library, stream, other, gate):
    array = Array(library, stream=None)
    died = weakref.ref(array)
    buffer = cu.from_cuda_array(array, stream)
    del array
    gate.hold(stream)
    buffer.fill_async(1, stream)
    buffer.give_back(other)
    assert died() is None
    with pytest.raises(cu.BufferClosedError):
        buffer.fill_async(1, stream)
    token = other.record()
    assert not token.done  # `other` waits for the fill
    gate.open()
    token.synchronize()


def test_what_was_given_back_can_be_imported_again(library, add, stream, other, gate):
    """An array that was given back can be imported again.

    This also holds while another array keeps the records of the allocation alive.
    """

    class Exported(Array):
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, stream, max_version):
            return new_capsule(self.interface["data"][0], (2, 0), (16,), 4, owner=self)

    kept = cu.from_dlpack(Exported(library, 4096), stream)
    third = cu.Stream()
    gate.hold(stream)
    for imported in (
        lambda: cu.from_dlpack(Exported(library), third),
        lambda: cu.from_cuda_array(Array(library, stream=third.handle), third),
    ):
        buffer = cu.from_dlpack(Exported(library), stream)
        buffer.fill_async(1, stream)
        buffer.give_back(other)
        buffer = imported()
        token = buffer.fill_async(2, third)
        assert not token.done
        buffer.give_back(stream)
    add.launch(1, 16, cu.read(Exported(library)), Exported(library, 64), stream=third)
    gate.open()
    del kept


def test_what_came_round_goes_back(make, stream, other):
    """A buffer that was exported and imported again is given back to its owner: the loan ends."""
    buffer = make("device", 8)
    cu.Device(0).synchronize()
    found = cu.from_dlpack(Exporter(buffer), stream)
    found.fill_async(1, stream)
    found.give_back(stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    other.wait(stream)
    buffer.fill_async(2, other)


def test_shared_uses_are_waited_for(library, add, stream, other, gate):
    buffer = cu.from_cuda_array(Array(library, stream=None), stream)
    gate.hold(stream)
    add.launch(1, 16, cu.shared(buffer), cu.DeviceBuffer(16, "u4"), stream=stream)
    buffer.give_back(other)
    token = other.record()
    assert not token.done
    gate.open()
    token.synchronize()


def test_what_cannot_be_given_back(make, library, stream, other):
    with pytest.raises(ValueError, match="it is no other library's"):
        make("device", 4).give_back(stream)
    buffer = cu.from_cuda_array(Array(library), stream, ordered=True)
    part = buffer[:2]
    with pytest.raises(ValueError, match="is a part"):
        part.give_back(stream)
    with pytest.raises(ValueError, match=r"parts of it are alive \(1\)"):
        buffer.give_back(stream)
    del part
    for lent in (other, stream):  # the borrower may have queued work that nobody knows of yet
        with buffer.lend(lent), pytest.raises(cu.BufferExportedError):
            buffer.give_back(stream)
        lent.synchronize()
    with pytest.raises(TypeError, match="needs a stream"):
        buffer.give_back()
    with stream:
        buffer.give_back()


class Silent(Array):
    """An array with DLPack that orders nothing, like a Buffer of cuda.core."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None, max_version=None):
        return new_capsule(self.interface["data"][0], (2, 0), (16,), 4, owner=self)


IMPORTS = {
    "dlpack": lambda library, on: cu.from_dlpack(Silent(library), on),
    "interface": lambda library, on: cu.from_cuda_array(Array(library, stream=None), on),
    "named": lambda library, on: cu.from_cuda_array(Array(library, stream=on.handle), on),
    "ordered": lambda library, on: cu.from_cuda_array(
        Array(library, stream=None), on, ordered=True
    ),
    "ordered dlpack": lambda library, on: cu.from_dlpack(Silent(library), on, ordered=True),
}


@pytest.mark.parametrize("again", IMPORTS)
@pytest.mark.parametrize("back", ["stream", "other"])
@pytest.mark.parametrize("first", ["dlpack", "interface"])
def test_what_was_given_back_is_remembered(library, stream, other, gate, first, back, again):
    """An import is ordered after what was given back, though no buffer keeps the records."""
    third = cu.Stream()
    gate.hold(stream)
    buffer = IMPORTS[first](library, stream)
    buffer.fill_async(1, stream)
    buffer.give_back({"stream": stream, "other": other}[back])
    del buffer
    gc.collect()
    buffer = IMPORTS[again](library, third)
    token = buffer.fill_async(2, third)
    assert not token.done
    gate.open()
    token.wait()


@pytest.mark.parametrize("way", ["dlpack", "interface", "borrows"])
def test_a_launch_is_ordered_after_what_was_given_back(library, add, stream, other, gate, way):
    gate.hold(stream)
    buffer = cu.from_dlpack(Silent(library), stream)
    buffer.fill_async(1, stream)
    buffer.give_back(stream)
    y = cu.DeviceBuffer(16, "u4")
    if way == "borrows":
        token = add.launch(1, 16, y, y, stream=other, borrows=[Silent(library)])
    else:
        array = Silent(library) if way == "dlpack" else Array(library, stream=None)
        token = add.launch(1, 16, cu.read(array), y, stream=other)
    assert not token.done
    gate.open()
    token.wait()


def test_what_was_given_back_is_remembered_when_the_driver_has_completed_it(library, stream):
    """What an import orders does not depend on how fast the GPU is."""
    third = cu.Stream()
    buffer = cu.from_dlpack(Silent(library), stream)
    buffer.fill_async(1, stream)
    buffer.give_back(stream)
    with cu.Device(0):
        assert library.driver.cuCtxSynchronize() == 0  # cudadrv does not know of this
    third.synchronize()  # frees dead memory that can be freed
    cu.reap()
    buffer = cu.from_cuda_array(Array(library, stream=None), stream, ordered=True)
    with pytest.raises(cu.BufferBorrowedError, match="by give_back on Stream"):
        buffer.fill_async(2, third)
    third.wait(stream)
    buffer.fill_async(2, third)


def test_what_was_given_back_is_forgotten_when_it_is_complete(library, stream, other, unchanged):
    buffer = cu.from_dlpack(Silent(library), stream)
    buffer.fill_async(1, stream)
    buffer.give_back(stream)
    stream.synchronize()
    del buffer
    buffer = cu.from_cuda_array(Array(library, stream=None), other, ordered=True)
    with unchanged("cuEventRecord", "cuStreamWaitEvent"):
        assert not buffer.borrowed
        buffer.fill_async(2, other)


def test_parts_that_were_given_back(library, stream, other):
    """Only imports of the bytes that were given back are ordered."""
    first = cu.from_cuda_array(Array(library, stream=1), stream)
    first.fill_async(1, stream)
    first.give_back(stream)
    apart = cu.from_cuda_array(Array(library, 64, stream=1), other, ordered=True)
    apart.fill_async(2, other)
    inside = cu.from_cuda_array(Array(library, 32, shape=(4,), stream=1), stream, ordered=True)
    with pytest.raises(cu.BufferBorrowedError, match="by give_back on Stream"):
        inside.fill_async(2, other)
    inside = cu.from_cuda_array(Array(library, 32, shape=(4,), stream=1), other, ordered=True)
    inside.fill_async(2, other)


def test_a_buffer_beside_what_was_given_back(library, stream, other):
    """Uses of a second buffer over the same bytes need a wait for the owner's work."""
    first, second = (cu.from_dlpack(Silent(library), stream) for _ in range(2))
    first.fill_async(1, stream)
    first.give_back(other)
    with pytest.raises(cu.BufferBorrowedError, match="by give_back on Stream"):
        second.fill_async(2, stream)
    stream.wait(other)
    second.fill_async(2, stream)
    second.give_back(stream)
    cu.from_dlpack(Silent(library), other).fill_async(3, other)


def test_page_locked_memory_that_was_given_back(stream, other, gate):
    memory = cu.LockedBuffer(16, "u4", pooled=False).into_raw()
    tensor = Exported(memory, says=(3, 0), shape=(16,))
    gate.hold(stream)
    buffer = cu.from_dlpack(tensor, stream)
    buffer.fill_async(1, stream)
    buffer.give_back(stream)
    del buffer
    buffer = cu.from_dlpack(Exported(memory, says=(3, 0), shape=(16,)), other)
    token = buffer.fill_async(2, other)
    assert not token.done
    with pytest.raises(cu.BufferBorrowedError):
        buffer[0] = 5
    gate.open()
    token.wait()
    del buffer, token
    cu.Device(0).synchronize()
    cu.LockedBuffer.from_raw(memory, 16, "u4").close()


@pytest.mark.parametrize("way", ["captured", "legacy"])
def test_an_import_joins_no_capture(library, stream, other, way):
    """What was given back on a stream that is captured now cannot be waited for: uses are refused.

    The importing stream must not become a part of the capture.
    """
    kept = cu.from_dlpack(Silent(library, 4096), stream)
    captured = cu.Stream(blocking=True)
    buffer = cu.from_dlpack(Silent(library), stream)
    buffer.fill_async(1, stream)
    buffer.give_back(captured if way == "captured" else cu.Stream.legacy())
    graph = cu.Graph()
    with graph.capture(captured):
        buffer = cu.from_dlpack(Silent(library), other)
        with pytest.raises(cu.BufferBorrowedError, match="by give_back on"):
            buffer.fill_async(2, other)
        other.synchronize()  # `other` is not captured
    other.wait(captured if way == "captured" else cu.Stream.legacy())
    buffer.fill_async(2, other)
    del kept


def test_a_graph_is_ordered_after_what_was_given_back(library, add, stream, other):
    """A capture waits for nothing. Each launch of the graph is ordered after the return."""
    y = cu.DeviceBuffer(16, "u4")
    y.fill(0)
    buffer = cu.from_dlpack(Silent(library), stream)
    buffer.fill_async(1, stream)
    buffer.give_back(stream)
    graph = cu.Graph()
    with graph.capture(other):
        add.launch(1, 16, cu.read(Silent(library)), y, stream=other)
    step = graph.instantiate()
    with pytest.raises(cu.BufferBorrowedError, match="by give_back on Stream"):
        step.launch(other)
    other.wait(stream)
    step.launch(other)
    assert set(y.to_numpy(stream=other).tolist()) == {1}


def test_dropping_after_giving_back(library, stream, other):
    buffer = cu.from_dlpack(Silent(library), stream)
    buffer.fill_async(1, stream)
    buffer.give_back(stream)
    for _ in range(2):
        buffer.close()
    del buffer
    gc.collect()
    again = cu.from_dlpack(Silent(library), other)
    again.fill_async(2, other)
    del again  # this import was not given back: only the records know of its work
    gc.collect()
    with pytest.raises(cu.BufferBorrowedError):
        cu.from_dlpack(Silent(library), stream).fill_async(3, stream)


def records():
    """The number of records of memory."""
    return sum(type(each).__name__ == "Memory" for each in gc.get_objects())


def test_returns_do_not_pile_up(library, stream, other):
    """A program that imports and gives back for ever, and waits for nothing, keeps few records."""
    gc.collect()
    before = records()
    for number in range(3000):
        on = (stream, other)[number % 2]
        buffer = cu.from_dlpack(Silent(library, number % 7 * 64), on)
        buffer.fill_async(1, on)
        buffer.give_back(on)
    assert records() - before < 10


def test_returns_of_new_memory_do_not_pile_up(library, stream):
    """Arrays in ever new allocations: cudadrv asks the driver when there are many records.

    The stream is never idle at that time, because a fill was just queued.
    """
    addresses = [library.allocate(256) for _ in range(3000)]
    gc.collect()
    before = records()
    for number, address in enumerate(addresses):
        buffer = cu.from_dlpack(Silent(library, address - library.address), stream)
        buffer.fill_async(1, stream)
        buffer.give_back(stream)
        if number % 100 == 0:
            with cu.Device(0):
                assert library.driver.cuCtxSynchronize() == 0  # cudadrv does not know of this
    assert records() - before < 1200
    for _ in range(1000):
        stream.synchronize()
    assert records() - before < 10
    with cu.Device(0):
        for address in addresses:
            assert library.driver.cuMemFree_v2(ctypes.c_uint64(address)) == 0


def test_memory_that_is_a_buffer_of_ours_since(library, stream, other):
    """An import has the records of the buffer in which it lies, not the records of a former owner.

    `from_raw` makes this buffer. After the owner's free, an allocation may get the address, too.
    """
    address = library.allocate()
    cu.from_dlpack(Silent(library, address - library.address), stream).give_back(stream)
    buffer = cu.DeviceBuffer.from_raw(address, 1 << 16)
    part = cu.DeviceBuffer.from_address(address, 16, owner=buffer)
    part.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)


def test_contexts_end_though_something_was_given_back(script):
    script.quiet(
        """
        import gc, weakref
        import cudadrv as cu

        for synchronized in (True, False):
            context = cu.Context.create(cu.Device(0))
            with context:
                stream = cu.Stream()
                ours = cu.DeviceBuffer(64, pooled=False).into_raw()
                buffer = cu.DeviceBuffer.from_address(ours, 64)
                buffer.fill_async(1, stream)
                buffer.give_back(stream)
                if synchronized:
                    stream.synchronize()
                    cu.DeviceBuffer.from_raw(ours, 64).close()
            died = weakref.ref(context)
            del context, stream, buffer
            gc.collect()
            cu.reap()
            assert not synchronized or died() is None
        """
    )


# ---- arguments of kernels ----


def test_arrays_are_arguments(library, add, stream, other):
    x = cu.from_cuda_array(Array(library, stream=None), stream)
    y = cu.from_cuda_array(Array(library, 64, stream=None), stream)
    x.copy_from(np.arange(16, dtype="u4"), stream=stream)
    y.fill_async(5, stream)
    a, b = Array(library, stream=None), Array(library, 64, stream=None)
    token = add.launch(1, 16, cu.read(a), b, stream=stream)
    assert [each.address for each in (*token.reads, *token.writes)] == [x.address, y.address]
    with pytest.raises(
        cu.BufferBorrowedError, match=r"argument 0 \(x, .u64\) DeviceBuffer\[0:16\]"
    ):
        add.launch(1, 16, a, Array(library, 128), stream=other)
    found = np.empty(16, "u4")
    y.copy_to(found, stream=stream)
    assert (found == np.arange(16) + 5).all()


def test_reads_of_an_array_share(library, add, stream, other):
    x = Array(library)
    add.launch(1, 16, cu.read(x), Array(library, 64, stream=None), stream=stream)
    add.launch(1, 16, cu.read(x), Array(library, 128, stream=None), stream=other)
    with pytest.raises(cu.BufferBorrowedError):
        add.launch(1, 16, cu.read(Array(library, 64, stream=None)), x, stream=other)


def test_an_argument_lives_as_long_as_the_work(library, add, stream, gate):
    x, y = Array(library, stream=None), Array(library, 64, stream=None)
    died = weakref.ref(x)
    gate.hold(stream)
    add.launch(1, 16, cu.read(x), cu.write(y), stream=stream, borrows=[Array(library, 128)])
    del x
    gc.collect()
    assert died() is not None
    gate.open()
    for _ in range(3):
        stream.synchronize()
        cu.reap()
    assert died() is None


def test_arguments_that_cannot_be(library, add, stream, make):
    with pytest.raises(TypeError, match=r"prepare takes buffers: .*from_dlpack"):
        add.prepare(1, 16, Array(library), make("device", 64))
    with pytest.raises(TypeError, match="the device cannot see the memory of an array"):
        add.launch(1, 16, np.zeros(4), make("device", 64), stream=stream)
    with pytest.raises(BufferError, match="has a mask"):
        add.launch(1, 16, Array(library, mask=1), make("device", 64), stream=stream)
    with pytest.raises(TypeError, match="takes a buffer, or an array with DLPack"):
        cu.read(5)
    access = cu.read(Array(library))
    assert access.mode == "read"
    assert isinstance(access.buffer, Array)


def test_views_of_no_bytes_outlive_what_is_closed_under_them(script):
    """Empty views, blocks and loans of a buffer end after the buffer was closed.

    Each of them refers to records. Buffers that are made over the memory later must not share these
    records.
    """
    script.quiet(
        """
        import cudadrv as cu

        raw = cu.LockedBuffer(64, pooled=False).into_raw()
        stream = cu.Stream()
        for _ in range(3):
            buffer = cu.LockedBuffer.from_address(raw, 64)
            block, view, loan = buffer[:0].read(), memoryview(buffer[:0]), buffer[:0].lend(stream)
            block.__enter__()
            loan.__enter__()
            buffer.close()
            block.__exit__(None, None, None)
            view.release()
            loan.__exit__(None, None, None)
        stream.synchronize()
        cu.LockedBuffer.from_raw(raw, 64).close()
        """,
        MALLOC_PERTURB_="165",  # overwrites freed records, so that their use is noticed
    )
