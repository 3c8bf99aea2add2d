"""The C exchange API of DLPack: arrays of types that have it, and buffers for consumers in C."""

import ctypes
import gc
import threading
import weakref

import numpy as np
import other_library
import pytest
from capsules import Deleter, Tensor, Versioned

import cudadrv as cu


@pytest.fixture
def theirs(driver):
    """The compiled library `other_library`, which works on the legacy default stream."""
    library = other_library.compiled()
    yield library
    library.fail("")
    library.set_stream(0)
    cu.Device(0).synchronize()
    cu.reap()
    gc.collect()
    assert library.live_tensors() == 0


@pytest.fixture
def memory(driver):
    found = other_library.Library()
    yield found
    found.end()


@pytest.fixture
def kernel(driver):
    return cu.Module(other_library.ADD)["add"]


@pytest.fixture
def arrays(theirs, memory):
    """Two arrays of 16 numbers: 0 to 15, and zeros."""
    x, y = theirs.Array(memory.address, 16), theirs.Array(memory.address + 64, 16)
    view = cu.DeviceBuffer.from_address(memory.address, 32, "u4", owner=memory)
    view.copy_from(np.r_[np.arange(16), np.zeros(16)].astype("u4"))
    return x, y


def contents(memory, start=64, count=16):
    cu.Device(0).synchronize()
    return cu.DeviceBuffer.from_address(
        memory.address + start, count, "u4", owner=memory
    ).to_numpy()


# ---- arguments of launches ----


def test_launch(memory, kernel, arrays, stream):
    x, y = arrays
    for _ in range(3):
        kernel.launch(1, 16, cu.read(x), y, stream=stream)
    assert (contents(memory) == 3 * np.arange(16)).all()


@pytest.mark.parametrize("whose", ["ours", "default", "unknown"])
def test_their_stream_is_waited_for(theirs, memory, kernel, arrays, stream, gate, whose):
    """A launch is ordered after the work of the array's library.

    This holds whatever cudadrv knows of the library's stream.
    """
    x, y = arrays
    unknown = ctypes.c_void_p()
    raw = ctypes.CDLL(cu.driver_info().path)
    if whose == "unknown":
        with cu.Device(0):
            assert raw.cuStreamCreate(ctypes.byref(unknown), 1) == 0
            assert gate.wait(unknown.value, gate.flag.address, 1, 0) == 0
        theirs.set_stream(unknown.value)
    else:
        held = cu.Stream() if whose == "ours" else cu.Stream.legacy()
        gate.hold(held)
        theirs.set_stream(held.handle)
    for _ in range(2):
        token = kernel.launch(1, 16, cu.read(x), y, stream=stream)
        assert not token.done
    gate.open()
    token.wait()
    if whose == "unknown":
        with cu.Device(0):
            assert raw.cuStreamDestroy_v2(unknown) == 0


def test_their_capturing_stream_is_refused(theirs, memory, kernel, arrays, stream):
    x, y = arrays
    raw = ctypes.CDLL(cu.driver_info().path)
    capturing, graph = ctypes.c_void_p(), ctypes.c_void_p()
    with cu.Device(0):
        assert raw.cuStreamCreate(ctypes.byref(capturing), 1) == 0
        assert raw.cuStreamBeginCapture_v2(capturing, 2) == 0
    theirs.set_stream(capturing.value)
    with pytest.raises(cu.OwnershipError, match="captur"):
        kernel.launch(1, 16, cu.read(x), y, stream=stream)
    with cu.Device(0):
        assert raw.cuStreamEndCapture(capturing, ctypes.byref(graph)) == 0
        assert raw.cuGraphDestroy(graph) == 0
        assert raw.cuStreamDestroy_v2(capturing) == 0


def test_arguments_are_borrowed(kernel, arrays, stream, other, gate):
    x, y = arrays
    gate.hold(stream)
    kernel.launch(1, 16, cu.read(x), y, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"(?s)argument 0 .*is being read by"):
        kernel.launch(1, 16, x, y, stream=other)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write argument 1"):
        kernel.launch(1, 16, cu.read(x), y, stream=other)
    same = cu.from_dlpack(x, other)
    with pytest.raises(cu.BufferBorrowedError):
        same.fill_async(0, other)
    gate.open()


def test_reads_on_two_streams(theirs, memory, kernel, arrays, stream, other, gate):
    x, y = arrays
    z = theirs.Array(memory.address + 128, 16)
    gate.hold(stream)
    kernel.launch(1, 16, cu.read(x), y, stream=stream)
    kernel.launch(1, 16, cu.read(x), z, stream=other).wait()
    gate.open()


@pytest.mark.parametrize("launches", [1, 2, 5])
def test_arrays_live_until_the_launch_is_complete(
    memory, theirs, kernel, stream, other, gate, launches
):
    x, y = theirs.Array(memory.address, 16), theirs.Array(memory.address + 64, 16)
    died = [weakref.ref(x), weakref.ref(y)]
    gate.hold(stream)
    for _ in range(launches):
        kernel.launch(1, 16, cu.read(x), y, stream=stream)
    del x, y
    # A synchronization drops the arrays of launches that are known to be complete.
    other.synchronize()
    assert None not in [reference() for reference in died]
    gate.open()
    stream.synchronize()
    stream.synchronize()
    assert [reference() for reference in died] == [None, None]


def test_a_launch_after_the_queue_has_looked(memory, theirs, kernel, stream, other, gate):
    """An array is kept for a later launch, although an earlier launch is known to be complete."""
    x, y = theirs.Array(memory.address, 16), theirs.Array(memory.address + 64, 16)
    died = weakref.ref(x)
    kernel.launch(1, 16, cu.read(x), y, stream=stream)
    stream.synchronize()
    gate.hold(stream)
    kernel.launch(1, 16, cu.read(x), y, stream=stream)
    del x, y
    other.synchronize()
    other.synchronize()
    assert died() is not None
    gate.open()


def test_new_arrays_all_the_time(memory, theirs, kernel, stream):
    """A program that launches with new arrays, and allocates nothing, keeps few of them alive."""
    alive = weakref.WeakSet()
    for _ in range(300):
        x, y = theirs.Array(memory.address, 16), theirs.Array(memory.address + 64, 16)
        alive.update((x, y))
        kernel.launch(1, 16, cu.read(x), y, stream=stream).wait()
    assert len(alive) < 20


def test_nothing_is_kept_of_an_array_that_has_died(memory, theirs, kernel, stream):
    y = theirs.Array(memory.address + 64, 16)
    for _ in range(100):  # the new array most probably has the id of the dead one
        x = theirs.Array(memory.address + 4, 15)
        kernel.launch(1, 15, cu.read(x), y, stream=stream)
        del x
        x = theirs.Array(memory.address, 16)
        kernel.launch(1, 16, cu.read(x), y, stream=stream)
        del x
        stream.synchronize()
        cu.reap()


def test_more_arrays_than_the_table_of_recent_ones_holds(memory, theirs, kernel, arrays, stream):
    x, _ = arrays
    many = [theirs.Array(memory.address + 64 * number, 16) for number in range(1, 600)]
    cu.DeviceBuffer.from_address(memory.address + 64, 599 * 16, "u4", owner=memory).fill(0)
    for _ in range(2):
        for y in many:
            kernel.launch(1, 16, cu.read(x), y, stream=stream)
    stream.synchronize()
    assert (contents(memory, count=599 * 16).reshape(-1, 16) == 2 * np.arange(16)).all()
    with pytest.raises(TypeError, match=r"argument 1 .* cannot be <object"):
        kernel.launch(1, 16, cu.read(x), object(), stream=stream)


def test_an_array_that_changes(memory, kernel, arrays, stream, other, gate):
    """A launch uses and borrows the present memory of an array that has changed.

    `resize_` and `set_` change a tensor in this way.
    """
    x, y = arrays
    kernel.launch(1, 16, cu.read(x), y, stream=stream).wait()
    x.address += 32
    x.count = 8
    gate.hold(stream)
    kernel.launch(1, 8, cu.read(x), y, stream=stream)
    first = cu.DeviceBuffer.from_address(memory.address, 8, "u4", owner=memory)
    first.fill_async(1, other).wait()
    with pytest.raises(cu.BufferBorrowedError):
        cu.DeviceBuffer.from_address(memory.address + 32, 8, "u4", owner=memory).fill_async(
            1, other
        )
    gate.open()
    assert (contents(memory)[:8] == np.arange(8) + np.arange(8, 16)).all()
    x.stride = -1
    with pytest.raises(BufferError, match="rows or slices overlap"):
        kernel.launch(1, 8, cu.read(x), y, stream=stream)


@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("function", ["m", "t", "s"])
def test_functions_that_fail(theirs, kernel, arrays, stream, function, when):
    x, y = arrays
    if when == "later":
        kernel.launch(1, 16, cu.read(x), y, stream=stream).wait()
    theirs.fail(function)
    if (function, when) in (("m", "later"), ("t", "first")):
        # This function is not called in this launch.
        kernel.launch(1, 16, cu.read(x), y, stream=stream)
    else:
        with pytest.raises(RuntimeError, match=f"function {function} has failed"):
            kernel.launch(1, 16, cu.read(x), y, stream=stream)
    theirs.fail("")
    kernel.launch(1, 16, cu.read(x), y, stream=stream)


def test_ordinary_memory_is_refused(theirs, kernel, arrays, stream):
    x, y = arrays
    x.device_type = 1
    with pytest.raises(BufferError, match="is in ordinary memory"):
        kernel.launch(1, 16, cu.read(x), y, stream=stream)
    with pytest.raises(BufferError, match="is in ordinary memory"):
        cu.from_dlpack(x)


def test_complex_arrays_are_asked_in_python(kernel, arrays, stream):
    """Complex arrays are exported by `__dlpack__` in Python, not by the C functions.

    PyTorch refuses conjugated views only in Python.
    """
    x, y = arrays
    x.code, x.bits = 5, 64
    for use in (lambda: kernel.launch(1, 16, x, y, stream=stream), lambda: cu.from_dlpack(x)):
        with pytest.raises(BufferError, match="__dlpack__ was asked"):
            use()


def test_prepare_refuses_arrays(kernel, arrays):
    x, y = arrays
    with pytest.raises(TypeError, match="from_dlpack"):
        kernel.prepare(1, 16, x, y)


def test_threads(memory, theirs, kernel, arrays):
    """Four threads launch with one array while other threads drop arrays that launches keep."""
    x, _ = arrays
    failures = []

    def work(number):
        try:
            own = cu.Stream()
            y = theirs.Array(memory.address + 64 * (number + 1), 16)
            for _ in range(100):
                kernel.launch(1, 16, cu.read(x), y, stream=own).wait()
            own.synchronize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number in range(4):
        assert (contents(memory, 64 * (number + 1))[1:] > 0).all()


# ---- imports as buffers ----


def test_from_dlpack(theirs, memory, arrays, stream, other, gate):
    x, _ = arrays
    held = cu.Stream()
    theirs.set_stream(held.handle)
    gate.hold(held)
    buffer = cu.from_dlpack(x, stream)
    died = weakref.ref(x)
    del x, arrays
    assert (buffer.address, buffer.shape, buffer.dtype) == (memory.address, (16,), np.dtype("f4"))
    with pytest.raises(cu.BufferBorrowedError, match="written by its import"):
        buffer.fill_async(0, other)
    token = buffer.fill_async(0, stream)
    assert not token.done
    gate.open()
    token.wait()
    assert died() is not None


# ---- buffers for a consumer in C ----

header = [("version", ctypes.c_uint32 * 2), ("older", ctypes.c_void_p)]
functions = ["allocate", "managed", "object", "tensor", "stream"]


class Exchange(ctypes.Structure):
    _fields_ = header + [(name, ctypes.c_void_p) for name in functions]


def exchange():
    """The exchange functions of a buffer's type, as a consumer in C finds them."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer = kind(("PyCapsule_GetPointer", ctypes.pythonapi))
    address = pointer(cu.DeviceBuffer.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return Exchange.from_address(address)


def function(name, *arguments):
    return ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(getattr(exchange(), name))


def test_the_table():
    found = exchange()
    assert list(found.version) == [1, 3]
    assert not found.older
    assert not found.tensor
    for kind in (cu.LockedBuffer, cu.UnifiedBuffer):
        assert kind.__dlpack_c_exchange_api__ is cu.DeviceBuffer.__dlpack_c_exchange_api__


def test_the_table_is_filled_for_the_first_consumer(script):
    """The table of functions is filled when the first buffer exists, before any other call."""
    functions = script.quiet(
        """
    import ctypes
    import cudadrv as cu
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    buffer = cu.LockedBuffer(4)
    table = pointer(type(buffer).__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    print(*[found is not None for found in (ctypes.c_void_p * 7).from_address(table)[2:]])
    """
    )
    assert functions.split() == ["True", "True", "True", "False", "True"]


def test_our_current_stream(stream):
    current = function("stream", ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    found = ctypes.c_void_p()
    assert current(2, 0, ctypes.byref(found)) == 0
    assert found.value == 1
    with stream:
        current(2, 0, ctypes.byref(found))
    assert found.value == stream.handle
    current(1, 0, ctypes.byref(found))
    assert found.value is None
    with pytest.raises(ValueError, match="device"):
        current(2, 99, ctypes.byref(found))


@pytest.mark.parametrize("kind", ["device", "locked", "unified"])
def test_round_in_c(make, stream, other, kind):
    """Export a buffer by the C functions, and import it again.

    The exported buffer is lent to the current stream as long as the imported buffer lives.
    """
    buffer = make(kind, 12, "f4").reshape(3, 4)
    cu.Device(0).synchronize()
    managed, found = ctypes.c_void_p(), ctypes.c_void_p()
    out = function("managed", ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
    back = function("object", ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    with stream:
        assert out(buffer, ctypes.byref(managed)) == 0
        assert back(managed, ctypes.byref(found)) == 0
    again = ctypes.cast(found, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(again))
    assert (type(again), again.shape, again.address) == (type(buffer), (3, 4), buffer.address)
    again.fill_async(1, stream)
    with pytest.raises(cu.BufferExportedError, match="lent to Stream"):
        buffer.fill_async(2, other)
    del again
    cu.Device(0).synchronize()
    cu.Device(0).synchronize()
    assert (buffer.to_numpy() if kind == "device" else np.asarray(buffer)).sum() == 12


def test_what_is_no_buffer(driver):
    managed = ctypes.c_void_p()
    out = function("managed", ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
    with pytest.raises(TypeError, match="not a buffer"):
        out(np.zeros(3), ctypes.byref(managed))


def test_what_cannot_be_said_in_c(make, stream):
    """A dtype that DLPack cannot describe is refused, and nothing is lent."""
    buffer = make("device", 8, "M8[s]")
    stream.synchronize()
    managed = ctypes.c_void_p()
    out = function("managed", ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
    with stream, pytest.raises(BufferError, match="DLPack has no name"):
        out(buffer, ctypes.byref(managed))
    assert not managed.value
    assert not buffer.borrowed


def test_allocate_in_c(stream):
    said = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    def set_error(context, kind, message):
        said.append((kind, message))

    allocate = function(
        "allocate", ctypes.POINTER(Tensor), ctypes.c_void_p, ctypes.c_void_p, type(set_error)
    )
    sizes = (ctypes.c_int64 * 2)(3, 4)
    like = Tensor(None, (2, 0), 2, 2, 32, 1, sizes, None, 0)
    managed = ctypes.POINTER(Versioned)()
    with stream:
        assert allocate(like, ctypes.addressof(managed), None, set_error) == 0
    made = managed.contents
    assert made.tensor.shape[:2] == [3, 4]
    assert made.tensor.data
    Deleter(made.deleter)(ctypes.addressof(made))
    like.device[0] = 1
    assert allocate(like, ctypes.addressof(managed), None, set_error) == -1
    assert said[0][0] == b"BufferError"
    assert b"ordinary memory" in said[0][1]
    stream.synchronize()
