"""Arrays of other libraries as buffers, and as arguments of kernels."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from consumer import new_capsule

import cudadrv as cu

PTX = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y) {
    .reg .b32 %a, %b, %i; .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.u32 %a, [%x];
    ld.global.u32 %b, [%y];
    add.u32 %b, %a, %b;
    st.global.u32 [%y], %b;
    ret;
}
"""


class Library:
    """The memory of another library: an allocation that cudadrv does not know."""

    def __init__(self):
        self.driver = ctypes.CDLL(cu.driver_info().path)
        self.address = self.allocate()
        self.more = []

    def allocate(self):
        address = ctypes.c_uint64()
        with cu.Device(0):
            assert self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 16)) == 0
        return address.value

    def end(self):
        cu.Device(0).synchronize()
        gc.collect()
        cu.reap()
        with cu.Device(0):
            assert self.driver.cuMemFree_v2(ctypes.c_uint64(self.address)) == 0


@pytest.fixture
def library(driver):
    found = Library()
    yield found
    found.end()


class Array:
    """With the CUDA Array Interface."""

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
    """With DLPack: over a buffer of ours, which stands for its own memory."""

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
    return cu.Module(PTX)["add"]


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


def test_the_stream_that_the_exporter_hears_of(make, stream):
    buffer = make("device", 4)
    cu.Device(0).synchronize()
    exporter = Exporter(buffer)
    del exporter.buffer  # what it is asked first is not noted
    exporter.buffer = buffer
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


def test_strides_and_lies_in_a_capsule(make, stream):
    buffer = make("device", 16, "u1")
    cu.Device(0).synchronize()
    with pytest.raises(BufferError, match="is not C-contiguous; make it so there"):
        cu.from_dlpack(buffer.lend(stream, shape=(2, 4), strides=(8, 1)), stream)
    with pytest.raises(BufferError, match="is not C-contiguous"):
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
    """What the other library queued on the stream that it names comes first."""
    gate.hold(other)
    buffer = cu.from_cuda_array(Array(library, stream=other.handle), stream)
    token = buffer.fill_async(7, stream)
    assert not token.done
    gate.open()
    token.wait()


def test_without_a_stream_nothing_is_waited_for(library, stream, other):
    buffer = cu.from_cuda_array(Array(library, stream=None), stream)
    assert not buffer.borrowed
    buffer.fill_async(7, other)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mask": 1}, BufferError, "has a mask, which would be lost"),
        ({"strides": (8,)}, BufferError, "not C-contiguous"),
        ({"strides": (-4,)}, BufferError, "not C-contiguous"),
        ({"shape": (-1,)}, BufferError, "breaks the protocol"),
        ({"shape": None}, BufferError, "breaks the protocol: TypeError"),
        ({"typestr": "nonsense"}, BufferError, "breaks the protocol: TypeError"),
        ({"data": 5}, BufferError, "breaks the protocol"),
        ({"data": (5, False)}, ValueError, "none of the driver's"),
        ({"stream": 0}, BufferError, "stream 0"),
        ({"shape": (1 << 62, 4)}, ValueError, "no memory has so many"),
        ({"typestr": "|O8"}, (TypeError, ValueError), "object"),
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


# ---- one book for one memory ----


def test_overlapping_arrays_share_their_records(library, stream, other):
    x = cu.from_cuda_array(Array(library, stream=None), stream)
    y = cu.from_cuda_array(Array(library, start=32, stream=None), stream)
    z = cu.DeviceBuffer.from_address(library.address + 64, 16, owner=library)
    x[8:].fill_async(1, stream)
    y[8:].fill_async(2, other)  # behind the bytes of x
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
    """As parts of one buffer: the driver's copy is not defined then."""
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
    """Also if the one that it used is gone."""
    gate.hold(stream)
    x = cu.DeviceBuffer.from_address(library.address, 16)
    x.fill_async(1, stream)
    del x
    y = cu.DeviceBuffer.from_address(library.address, 16)
    with pytest.raises(cu.BufferBorrowedError):
        y.fill_async(2, other)
    gate.open()


def test_memory_with_buffers_over_it_is_not_taken(library):
    """Its records would not be theirs."""
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
        x = cu.from_cuda_array(Array(library, stream=None), stream)
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
    assert not token.done  # it waits for the fill
    gate.open()
    token.synchronize()


def test_what_was_given_back_can_be_imported_again(library, add, stream, other, gate):
    """Also while another array of the same allocation is imported, which keeps the records."""

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
    """The loan to its stream is the owner's, and ends with the import."""
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
    buffer = cu.from_cuda_array(Array(library, stream=None), stream)
    part = buffer[:2]
    with pytest.raises(ValueError, match="is a part"):
        part.give_back(stream)
    with pytest.raises(ValueError, match=r"parts of it are alive \(1\)"):
        buffer.give_back(stream)
    del part
    for lent in (other, stream):  # whatever it queues there is not known yet
        with buffer.lend(lent), pytest.raises(cu.BufferExportedError):
            buffer.give_back(stream)
        lent.synchronize()
    with pytest.raises(TypeError, match="needs a stream"):
        buffer.give_back()
    with stream:
        buffer.give_back()


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
