"""Streams of other libraries as arguments of all calls that take a stream."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import cudadrv as cu


class Library:
    """A library that makes streams without cudadrv."""

    def __init__(self):
        self.driver = ctypes.CDLL(cu.driver_info().path)
        self.made = []

    def handle(self) -> int:
        handle = ctypes.c_void_p()
        with cu.Device(0):
            assert self.driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
        self.made.append(handle.value)
        return handle.value

    def end(self) -> None:
        cu.Device(0).synchronize()
        gc.collect()
        for handle in self.made:
            assert self.driver.cuStreamDestroy_v2(ctypes.c_void_p(handle)) == 0


@pytest.fixture
def library(driver):
    library = Library()
    yield library
    library.end()


class Theirs:
    """A stream of another library, with the `__cuda_stream__` protocol."""

    def __init__(self, handle: object, version: object = 0):
        self.answer = version, handle

    def __cuda_stream__(self):
        return self.answer


class Torch:
    """A stream with the attributes of PyTorch's: a handle and a device index."""

    def __init__(self, handle: int, device_index: int = 0):
        self.cuda_stream, self.device_index = handle, device_index


class Property:
    """A stream with `__cuda_stream__` as a property, as in early versions of cuda.core."""

    def __init__(self, handle: int):
        self.__cuda_stream__ = 0, handle


@pytest.fixture(params=[Theirs, Torch, Property])
def theirs(request, library):
    return request.param(library.handle())


def launch(buffer, stream):
    module = cu.Module(
        ".version 6.4\n.target sm_50\n.address_size 64\n"
        ".visible .entry nothing(.param .u64 out) { ret; }"
    )
    return module["nothing"].launch(1, 1, buffer, stream=stream)


def launch_prepared(buffer, stream):
    module = cu.Module(
        ".version 6.4\n.target sm_50\n.address_size 64\n"
        ".visible .entry nothing(.param .u64 out) { ret; }"
    )
    return module["nothing"].prepare(1, 1, buffer).launch(stream)


def lend(buffer, stream):
    with buffer.lend(stream):
        pass


CALLS = {
    "copy_from": lambda b, s: b.copy_from(np.zeros(16, "u1"), stream=s),
    "copy_from buffer": lambda b, s: b.copy_from(cu.LockedBuffer.zeros(16), stream=s),
    "copy_to": lambda b, s: b.copy_to(np.zeros(16, "u1"), stream=s),
    "copy_to buffer": lambda b, s: b.copy_to(cu.LockedBuffer(16), stream=s),
    "to_numpy": lambda b, s: b.to_numpy(stream=s),
    "copy_from_async": lambda b, s: b.copy_from_async(np.zeros(16, "u1"), s),
    "copy_from_async buffer": lambda b, s: b.copy_from_async(cu.LockedBuffer.zeros(16), s),
    "copy_to_async": lambda b, s: b.copy_to_async(cu.LockedBuffer(16), s),
    "fill": lambda b, s: b.fill(1, stream=s),
    "fill_async": lambda b, s: b.fill_async(1, s),
    "lend": lend,
    "launch": launch,
    "prepared": launch_prepared,
    "close": lambda b, s: cu.DeviceBuffer(16, stream=cu.Stream.from_object(s)).close(s),
    "allocation": lambda b, s: cu.DeviceBuffer(16, stream=s),
    "zeros": lambda b, s: cu.DeviceBuffer.zeros(16, stream=s),
    "from_array": lambda b, s: cu.DeviceBuffer.from_array(np.zeros(16, "u1"), stream=s),
    "locked zeros": lambda b, s: cu.LockedBuffer.zeros(16, stream=s),
    "wait": lambda b, s: cu.Stream().wait(s),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_takes_one(theirs, name):
    buffer = cu.DeviceBuffer.zeros(16)
    CALLS[name](buffer, theirs)
    cu.Device(0).synchronize()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_says_what_is_no_stream(driver, name, unchanged):
    buffer = cu.DeviceBuffer.zeros(16)
    for wrong in (7, "stream", Theirs, object()):
        with pytest.raises(TypeError, match=r"must be .*a?.*Stream.*, not "):
            CALLS[name](buffer, wrong)
    cu.Device(0).synchronize()


def test_it_is_the_stream_of_its_handle(theirs, library):
    stream = cu.Stream.from_object(theirs)
    assert stream.handle == library.made[0]
    assert stream is cu.Stream.from_object(theirs) is cu.Stream.from_handle(library.made[0])
    assert cu.Stream.from_object(stream) is stream
    token = cu.LockedBuffer.zeros(16).fill_async(1, theirs)
    assert token.stream is stream


def test_one_of_ours_that_another_library_wraps_is_ours(stream, other):
    wrapped = Theirs(stream.handle)
    assert cu.Stream.from_object(wrapped) is stream
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, wrapped)
    buffer.fill_async(2, stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(3, other)
    other.wait(wrapped)
    buffer.fill_async(3, other)
    alive = weakref.ref(wrapped)
    del wrapped
    gc.collect()
    assert alive() is None  # the cudadrv stream is still alive, and does not refer to `wrapped`


def test_the_books_are_kept_while_nobody_holds_the_stream(library, other):
    """Calls with one foreign stream may each make a Stream, but share the stream's records."""
    theirs, buffer = Theirs(library.handle()), cu.LockedBuffer.zeros(16)
    for value in range(4):
        buffer.fill_async(value, theirs)
        gc.collect()
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(9, other)
    other.wait(theirs)
    buffer.fill_async(9, other).wait()
    assert buffer[0] == 9


@pytest.mark.parametrize(
    "end",
    [lambda: gc.collect(0), cu.reap, lambda: cu.Stream().close()],
    ids=["collect", "reap", "close"],
)
def test_short_lived_objects_of_a_stream_share_its_books(library, gate, other, end):
    """Short-lived Stream objects of one handle share the records of the stream.

    This holds whether the objects are only dropped, or also closed by the cleanup of other calls.
    """
    handle, buffer = library.handle(), cu.LockedBuffer.zeros(16)
    gate.hold(cu.Stream.from_handle(handle))
    buffer.fill_async(1, Theirs(handle))
    names = set()
    # More objects than `ghosts` can have. If each object counted as a closed stream, a call would
    # wait for the gate.
    for _ in range(300):
        names.add(repr(cu.Stream.from_handle(handle)))
        buffer.fill_async(2, Theirs(handle))
        end()
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(3, other)
    assert len(names) == 1
    gate.open()
    other.wait(Theirs(handle))
    buffer.fill_async(3, other).wait()
    assert buffer[0] == 3


def test_no_event_is_recorded_for_each_short_lived_object(library, gate, unchanged):
    handle, buffer = library.handle(), cu.DeviceBuffer(16)
    gate.hold(cu.Stream.from_handle(handle))
    buffer.fill_async(1, Theirs(handle))
    with unchanged("cuEventCreate", "cuEventRecord"):
        for _ in range(10):
            buffer.__dlpack__(stream=handle)


def test_work_of_an_object_that_is_closed_but_alive(library, gate, other):
    """Work of a Stream that is closed but alive is found through a later Stream of the same handle.

    The later Stream cannot continue the records of the first one.
    """
    handle, buffer = library.handle(), cu.LockedBuffer.zeros(16)
    former = cu.Stream.from_handle(handle)
    gate.hold(former)
    token = buffer.fill_async(1, former)
    former.close()
    for value in range(3):
        buffer.fill_async(value, Theirs(handle))
        cu.Stream()
    assert former.closed
    with pytest.raises(ValueError, match="is closed"):
        buffer.fill_async(9, former)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(9, other)
    gate.open()
    token.wait()
    other.wait(Theirs(handle))
    buffer.fill_async(9, other).wait()
    assert buffer[0] == 9


def test_the_owner_of_a_continued_stream(library, gate):
    """A continued stream keeps the newest owner, or without a new owner the former one."""
    handle, first, second = library.handle(), Theirs(0), Theirs(0)
    owners = [weakref.ref(first), weakref.ref(second)]

    def use(owner):
        stream = cu.Stream.from_handle(handle, owner)
        cu.LockedBuffer(16).fill_async(1, stream)

    gate.hold(cu.Stream.from_handle(handle, first))
    use(first)
    del first
    gc.collect()
    use(None)
    gc.collect()
    assert owners[0]() is not None
    use(second)
    del second
    gc.collect()
    assert owners[0]() is None
    assert owners[1]() is not None
    gate.open()
    cu.Device(0).synchronize()
    cu.Stream()
    gc.collect()
    assert owners[1]() is None


def test_it_is_kept_alive(library, gate):
    theirs = Theirs(library.handle())
    alive = weakref.ref(theirs)
    stream = cu.Stream.from_object(theirs)
    gate.hold(stream)
    cu.LockedBuffer.zeros(16).fill_async(1, theirs)
    del theirs
    gc.collect()
    assert alive() is not None
    gate.open()
    stream.synchronize()
    del stream
    gc.collect()
    assert alive() is None


def test_default_streams(driver):
    for handle in (0, 1):
        assert cu.Stream.from_object(Theirs(handle)) is cu.Stream.legacy()
    assert cu.Stream.from_object(Theirs(2)) is cu.Stream.per_thread()
    assert cu.Stream.from_object(Torch(0)) is cu.Stream.legacy()
    assert cu.Stream.from_object(Torch(0, -1)) is cu.Stream.legacy()
    with cu.Context.create(cu.Device(0)) as context:
        assert cu.Stream.from_object(Theirs(0)).context is context
        assert cu.Stream.from_object(Torch(0)).context is cu.Device(0).context


@pytest.mark.cuda_software
def test_the_default_stream_of_another_device(script):
    script.quiet(
        """
import cudadrv as cu
class Torch:
    def __init__(self, handle, index):
        self.cuda_stream, self.device_index = handle, index
zero, one = cu.Device.all()
near, far = (cu.LockedBuffer.zeros(16, device=device) for device in (zero, one))
stream = cu.Stream.from_object(Torch(0, 1))
assert stream is cu.Stream.legacy(device=one)
assert far.fill_async(1, Torch(0, 1)).stream is stream
device_buffer = cu.DeviceBuffer(16, device=zero)
try:
    device_buffer.fill_async(1, Torch(0, 1))
except ValueError as error:
    assert "another context" in str(error), error
else:
    raise AssertionError
with one:
    assert cu.Device() == cu.Device.current() == one
    assert cu.Stream.from_object(Torch(0, -1)) is stream
zero.synchronize(); one.synchronize()
""",
        CUDADRV_SOFTWARE="devices=2",
    )


@pytest.mark.cuda_software
def test_a_primary_context_that_nobody_has_used_here(script):
    """Streams of a primary context that another library has made and that cudadrv has not used."""
    script.quiet(
        """
import ctypes
import cudadrv as cu
driver = ctypes.CDLL(cu.driver_info().path)
cu.Device(0).context
context, handle = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
driver.cuCtxPushCurrent_v2(context)
assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
stream = cu.Stream.from_handle(handle.value)
assert stream.device == cu.Device(1)
assert stream.context is cu.Device(1).context
stream.synchronize()
""",
        CUDADRV_SOFTWARE="devices=2",
    )


class Raises:
    def __cuda_stream__(self):
        raise ZeroDivisionError


class RaisesAttribute:
    @property
    def __cuda_stream__(self):
        raise AttributeError("something else")


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (Raises(), ZeroDivisionError, None),
        (RaisesAttribute(), TypeError, "must be a Stream, not RaisesAttribute"),
        (Theirs(5, 1), ValueError, "version 1 of the protocol, and cudadrv knows version 0"),
        (Theirs(5, None), ValueError, "version None"),
        (Theirs("5"), TypeError, "handle that is no int, but str"),
        (Theirs(None), TypeError, "handle that is no int, but NoneType"),
        (Theirs(1.0), TypeError, "handle that is no int, but float"),
        (Theirs(-1), ValueError, "-1 is not the handle of a stream"),
        (Theirs(2**64), ValueError, "is not the handle of a stream"),
        (Torch("5"), TypeError, "handle that is no int, but str"),
        (np.zeros(1), TypeError, "must be a Stream, not ndarray"),
    ],
)
def test_nonsense(driver, wrong, error, words):
    buffer = cu.LockedBuffer.zeros(16)
    for use in (cu.Stream.from_object, lambda wrong: buffer.fill_async(1, wrong)):
        with pytest.raises(error, match=words):
            use(wrong)
    assert not buffer.borrowed


@pytest.mark.cuda_software  # a GPU's driver may read memory at such an address
def test_handles_that_no_stream_has(driver):
    buffer, library = cu.DeviceBuffer.zeros(16), Library()
    ended = library.handle()
    library.end()
    for handle in (12345, ended):
        for use in (
            lambda handle: cu.Stream.from_object(Theirs(handle)),
            cu.Stream.from_handle,
            lambda handle: buffer.fill_async(1, Theirs(handle)),
            lambda handle: buffer.__dlpack__(stream=handle),
        ):
            with pytest.raises(ValueError, match=f"{handle:#x} is not the handle") as raised:
                use(handle)
            assert isinstance(raised.value.__cause__, cu.CudaError)
    assert not buffer.borrowed


@pytest.mark.parametrize("answer", [3, None, (), (0,), (0, 1, 2), "0"])
def test_answers_that_are_no_pair(driver, answer):
    theirs = Theirs(0)
    theirs.answer = answer
    with pytest.raises(TypeError, match=r"must return \(version, handle\), not"):
        cu.Stream.from_object(theirs)


def test_a_stream_of_ours_that_is_closed(driver):
    stream = cu.Stream()
    wrapped = Theirs(stream.handle)
    assert cu.Stream.from_object(wrapped) is stream
    with pytest.raises(ValueError, match="is closed"):
        close_and_fill(stream, cu.LockedBuffer.zeros(16))


def close_and_fill(stream, buffer):
    class Closing:
        """A stream object with a handle that is destroyed before the call uses it."""

        def __cuda_stream__(self):
            return stream.__cuda_stream__()

    found = cu.Stream.from_object(Closing())
    stream.close()
    buffer.fill_async(1, found)


def test_an_object_that_changes_is_asked_each_time(library):
    theirs, buffer = Theirs(library.handle()), cu.LockedBuffer.zeros(16)
    first = buffer.fill_async(1, theirs)
    theirs.answer = 0, library.handle()
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, theirs)
    first.wait()
    assert buffer.fill_async(2, theirs).stream is not first.stream


def test_it_may_be_destroyed_once_the_work_is_known_to_be_complete(library):
    """A foreign stream may be destroyed when its work is known to be complete.

    No Stream has to be closed: each call makes one, which ends with the call's token.
    """
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, Theirs(library.handle()))
    gc.collect()
    cu.Device(0).synchronize()
    assert library.driver.cuStreamDestroy_v2(ctypes.c_void_p(library.made.pop())) == 0
    cu.Stream()  # cleans up dropped streams
    assert not buffer.borrowed


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("wait", "allocation")])
@pytest.mark.parametrize("way", ["close", "take", "into_raw"])
def test_one_that_ends_the_buffer(stream, name, way):
    """`__cuda_stream__` closes the buffer. It runs before the call checks the buffer."""
    buffer, kept = cu.DeviceBuffer.zeros(16), []

    class Hostile:
        def __cuda_stream__(self):
            if not buffer.closed:
                kept.append(getattr(buffer, way)())
            return stream.__cuda_stream__()

    if name in ("close", "zeros", "from_array", "locked zeros"):  # these calls use other buffers
        CALLS[name](buffer, Hostile())
    else:
        with pytest.raises(cu.BufferClosedError):
            CALLS[name](buffer, Hostile())
    cu.Device(0).synchronize()
    if way == "into_raw":
        cu.DeviceBuffer.from_raw(kept[0], 16).close()


def test_one_that_closes_the_waiting_stream(driver, other):
    stream = cu.Stream()

    class Hostile:
        def __cuda_stream__(self):
            stream.close()
            return other.__cuda_stream__()

    with pytest.raises(ValueError, match="is closed"):
        stream.wait(Hostile())


def test_one_that_uses_the_buffer_itself(stream, other):
    buffer = cu.LockedBuffer.zeros(16)

    class Hostile:
        def __cuda_stream__(self):
            buffer.fill_async(7, other)
            return stream.__cuda_stream__()

    with pytest.raises(cu.BufferBorrowedError, match=r"(?s)by fill_async on .*fill_async on"):
        buffer.fill_async(1, Hostile())
    other.synchronize()
    assert buffer[0] == 7


def test_one_that_is_being_captured(stream):
    driver = ctypes.CDLL(cu.driver_info().path)
    handle, graph = ctypes.c_void_p(stream.handle), ctypes.c_void_p()
    buffer = cu.LockedBuffer.zeros(16)
    with cu.Device(0):
        assert driver.cuStreamBeginCapture_v2(handle, 2) == 0
        with pytest.raises(cu.OwnershipError, match="capturing"):
            buffer.fill_async(1, Theirs(handle.value))
        assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
        assert driver.cuGraphDestroy(graph) == 0


def test_one_that_is_being_captured_by_the_only_thread(driver, script):
    """With one thread, operations take the fast path, which asks whether the stream is captured."""
    script.quiet("""
        import ctypes
        import cudadrv as cu

        driver = ctypes.CDLL(cu.driver_info().path)
        handle, graph = ctypes.c_void_p(), ctypes.c_void_p()
        buffer = cu.LockedBuffer.zeros(16)
        with cu.Device(0):
            assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
        theirs = cu.Stream.from_handle(handle.value)
        buffer.fill_async(1, theirs)
        with cu.Device(0):
            assert driver.cuStreamBeginCapture_v2(handle, 2) == 0
            try:
                buffer.fill_async(2, theirs)
            except cu.OwnershipError as error:
                assert "capturing" in str(error)
            else:
                raise AssertionError("the fill became a part of the capture")
            assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
            assert driver.cuGraphDestroy(graph) == 0
        buffer.fill_async(3, theirs)
        theirs.synchronize()
        assert buffer[0] == 3
    """)


def test_ordering_by_the_policy_wait(library, other):
    """The policy "wait" inserts waits for foreign streams, too."""
    theirs, buffer = Theirs(library.handle()), cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, theirs)
    with cu.ordering("wait"):
        buffer.fill_async(2, other)
        buffer.fill_async(3, theirs)
        assert buffer[0] == 3


def test_a_refusal_mentions_waits_of_other_libraries(library, stream):
    """Such a wait is not known, so the program may wonder why the operation is refused."""
    buffer, other, host = cu.DeviceBuffer(4), cu.DeviceBuffer(4), cu.LockedBuffer(4)
    theirs = cu.Stream.from_object(Theirs(library.handle(), 0))
    advice = r"Waits that another library has made are not known here.*from_object"
    buffer.fill_async(1, theirs)
    with pytest.raises(cu.BufferBorrowedError, match=advice):
        buffer.copy_to_async(host, stream)
    other.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match=advice):
        other.copy_to_async(host, theirs)
    with pytest.raises(cu.BufferBorrowedError) as refusal:
        other.copy_to_async(host, cu.Stream())
    assert "another library" not in str(refusal.value)
