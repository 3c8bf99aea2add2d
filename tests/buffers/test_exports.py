"""Buffers in other libraries: exports by DLPack, the array interface and the buffer protocol."""

import ctypes
import gc
import sys
import threading

import extensions
import numpy as np
import pytest
from capsules import Consumer

import cudadrv as cu

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = (1, 0), (2, 0), (3, 0), (13, 0)
KINDS = ("device", "stream_ordered", "locked", "unified")
LENT_HOST = r"a host view of it is alive, made at .*test_exports\.py:\d+"


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("kind", "device"),
    [("device", CUDA), ("stream_ordered", CUDA), ("locked", CUDA_HOST), ("unified", CUDA_MANAGED)],
)
def test_what_a_capsule_says(make, stream, kind, device, versioned):
    buffer = make(kind, 6, "f4").reshape(2, 3)
    stream.synchronize()
    cu.Device(0).synchronize()
    version = {"max_version": (1, 1)} if versioned else {}
    assert buffer.__dlpack_device__() == device
    consumer = Consumer(buffer.__dlpack__(stream=stream.handle, **version))
    assert consumer.versioned == versioned
    tensor = consumer.tensor
    assert (tensor.data, tuple(tensor.device), tensor.byte_offset) == (buffer.address, device, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert (consumer.shape, consumer.strides) == ((2, 3), (3, 1))
    if versioned:
        assert (consumer.managed.version[0], consumer.managed.flags) == (1, 0)
    consumer.end()


@pytest.mark.parametrize("end", ["end", "end_without_the_gil"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_lent_until_the_consumer_ends_it(make, stream, other, kind, end):
    buffer = make(kind, 8)
    cu.Device(0).synchronize()
    consumer = Consumer(buffer.__dlpack__(stream=stream.handle))
    buffer.fill_async(1, stream)  # allowed: ordered with the consumer, on the same stream
    with pytest.raises(
        cu.BufferExportedError, match=r"it is lent to Stream \d+, at .*test_exports"
    ):
        buffer.fill_async(2, other)
    with pytest.raises(cu.BufferExportedError, match=r"the last\s+array that another library made"):
        buffer.close()
    getattr(consumer, end)()
    with pytest.raises(cu.BufferBorrowedError, match=r"by lend on Stream \d+"):
        buffer.fill_async(2, other)
    other.wait(stream)
    buffer.fill_async(2, other)


def test_a_capsule_that_nobody_consumes_ends_with_itself(make, stream, other):
    buffer = make("device", 8)
    capsule = buffer.__dlpack__(stream=stream.handle)
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(2, other)
    del capsule
    other.wait(stream)
    buffer.fill_async(2, other)


def test_no_end_is_lost_where_memory_runs_out(make, stream):
    memory = extensions.compiled("no_memory")
    for number in range(40):
        buffers = [make("device", 8) for _ in range(4)]
        cu.Device(0).synchronize()
        consumers = [Consumer(each.__dlpack__(stream=stream.handle)) for each in buffers]
        for consumer in consumers:
            consumer.end_without_the_gil()
        memory.begin(number, number + 1)
        try:
            buffers[0].fill_async(1, stream)  # ends the returned loans before it does anything else
        except MemoryError:
            pass
        finally:
            memory.end()
        stream.synchronize()
        for each in buffers:
            each.close()


def test_several_consumers_hold_one_loan_each(make, stream, other):
    buffer = make("device", 8)
    first, second = (Consumer(buffer.__dlpack__(stream=stream.handle)) for _ in range(2))
    first.end()
    other.wait(stream)
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(2, other)
    second.end()
    # The second consumer may have queued work until its loan ended.
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    other.wait(stream)
    buffer.fill_async(2, other)


# Most calls end a loan that was given back. In these tests, such calls come before the end of an
# array, so that the next export finds the loan.


def find_now(make, handle):
    """Let cudadrv look up a stream that it would otherwise look up in the next export."""
    Consumer(make("device", 8).__dlpack__(stream=handle)).end()


def test_an_export_in_each_round_of_a_loop(make, stream, other):
    """An export that follows the end of the last one, on the same stream, continues its loan."""
    buffer, handle = make("device", 8), stream.handle
    for way in ("end", "end_without_the_gil", "end"):
        assert buffer.__dlpack_device__() == CUDA
        getattr(Consumer(buffer.__dlpack__(stream=handle)), way)()
    second, line = Consumer(buffer.__dlpack__(stream=handle)), sys._getframe().f_lineno
    [began] = buffer.borrows  # the loan that the first export began has not ended
    assert not began.site.endswith(f":{line}")
    with pytest.raises(cu.BufferExportedError, match=rf"test_exports\.py:{line}\b"):
        buffer.fill_async(2, other)
    second.end()
    with pytest.raises(cu.BufferBorrowedError, match=r"by lend on Stream \d+"):
        buffer.fill_async(2, other)
    other.wait(stream)
    buffer.fill_async(2, other)


@pytest.mark.parametrize("change", ["stream", "part", "holder", "loan"])
def test_an_export_that_is_no_continuation_is_a_loan_of_its_own(make, stream, other, change):
    buffer, handle, others = make("device", 8), stream.handle, other.handle
    part, loan = buffer[4:], buffer.lend(stream)
    first = Consumer((loan if change in ("holder", "loan") else buffer).__dlpack__(stream=handle))
    kept = Consumer(loan.__dlpack__(stream=handle)) if change == "holder" else None
    find_now(make, others if change == "stream" else handle)
    other.wait(stream)  # does not cover work that the consumer queues later
    first.end()
    if change == "stream":
        consumer = Consumer(buffer.__dlpack__(stream=others))  # `others` waits for `stream`
        with pytest.raises(cu.BufferExportedError, match="it is lent to"):
            buffer.fill_async(1, stream)
        buffer.fill_async(1, other)
    elif change == "part":
        consumer = Consumer(part.__dlpack__(stream=handle))
        with pytest.raises(cu.BufferBorrowedError):  # no longer lent
            buffer[:4].fill_async(1, other)
        other.wait(stream)
        buffer[:4].fill_async(1, other)
    else:
        consumer = Consumer(buffer.__dlpack__(stream=handle))
        consumer.end()
        if kept is not None:
            with pytest.raises(cu.BufferExportedError, match="it is lent to"):
                buffer.fill_async(1, other)
            kept.end()
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(1, other)
        consumer = Consumer(loan.__dlpack__(stream=handle))
    consumer.end()


def test_a_loan_that_was_given_back_belongs_to_no_export_afterwards(make, stream):
    """An export does not continue the loan of a `Loan` object, which can begin a new loan."""
    buffer, handle = make("device", 8), stream.handle
    loan = buffer.lend(stream)
    first = Consumer(loan.__dlpack__(stream=handle))
    find_now(make, handle)
    first.end()
    export = Consumer(buffer.__dlpack__(stream=handle))
    with pytest.raises(ValueError, match="not in anybody's hands"):
        loan.back().__enter__()
    export.end()


@pytest.mark.parametrize("wrong", ["closed", "viewed"])
def test_an_export_after_an_export_is_refused_as_the_first(make, stream, wrong):
    buffer, handle = make("locked", 8), stream.handle
    Consumer(buffer.__dlpack__(stream=handle)).end()
    stream.synchronize()
    if wrong == "closed":
        buffer.close()
        with pytest.raises(cu.BufferClosedError):
            buffer.__dlpack__(stream=handle)
    else:
        with buffer.read(), pytest.raises(cu.BufferExportedError, match="a host view of it"):
            buffer.__dlpack__(stream=handle)


def test_an_export_after_an_export_to_a_stream_that_captures_is_refused(make, stream):
    library = ctypes.CDLL(cu.driver_info().path)
    handle, graph = stream.handle, ctypes.c_void_p()
    buffer = make("device", 8)
    with cu.Device(0):
        Consumer(buffer.__dlpack__(stream=handle)).end()
        assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(handle), 2) == 0
        with pytest.raises(cu.OwnershipError, match="captur"):
            buffer.__dlpack__(stream=handle)
        assert library.cuStreamEndCapture(ctypes.c_void_p(handle), ctypes.byref(graph)) == 0
        assert library.cuGraphDestroy(graph) == 0
    stream.synchronize()
    buffer.fill_async(1, stream)


def test_the_consumers_stream_waits_for_what_is_missing(make, stream, other, items_of, gate):
    """Waits are inserted under every policy, because DLPack requires the exporter to do so."""
    buffer, copy = make("device", 8, items=np.zeros(8, "u1")), make("locked", 8)
    gate.hold(other)
    buffer.fill_async(7, other)
    consumer = Consumer(buffer.__dlpack__(stream=stream.handle))
    # A copy on the consumer's stream, as the consumer would make it.
    copy.copy_from_async(buffer, stream)
    consumer.end()
    gate.open()
    stream.synchronize()
    assert items_of(copy).tolist() == [7] * 8


def test_what_cannot_be_waited_for_is_refused(make, stream, other):
    buffer = make("locked", 8)
    with buffer.read(), pytest.raises(cu.BufferExportedError, match="a host view of it is alive"):
        buffer.__dlpack__(stream=stream.handle)
    with buffer.lend(other), pytest.raises(cu.BufferExportedError, match="lent to Stream"):
        buffer.__dlpack__(stream=stream.handle)
    other.synchronize()
    buffer.close()
    with pytest.raises(cu.BufferClosedError):
        buffer.__dlpack__(stream=stream.handle)


def test_a_consumer_without_a_stream(make, stream, gate):
    """``stream=-1``: the host must know all work on the buffer to be complete."""
    buffer = make("device", 8)
    stream.synchronize()
    gate.hold(stream)
    buffer.fill_async(1, stream)
    with pytest.raises(
        cu.BufferBorrowedError, match=r"cannot lend .* to work on no stream:\n.*fill_async"
    ):
        buffer.__dlpack__(stream=-1)
    gate.open()
    stream.synchronize()
    consumer = Consumer(buffer.__dlpack__(stream=-1))
    with pytest.raises(cu.BufferExportedError, match="it is lent to work on no stream, at"):
        buffer.fill_async(1, stream)
    consumer.end()
    # A fill needs no wait, because the work of such a consumer is complete when its loan ends.
    buffer.fill_async(1, stream)


def test_default_streams_by_number(make):
    buffer = make("device", 8)
    for number, stream in (
        (None, cu.Stream.legacy()),
        (1, cu.Stream.legacy()),
        (2, cu.Stream.per_thread()),
    ):
        consumer = Consumer(buffer.__dlpack__(stream=number))
        buffer.fill_async(1, stream)
        consumer.end()
        stream.synchronize()
    for number in (0, -2):
        with pytest.raises(BufferError, match="DLPack's word for the legacy default stream is 1"):
            buffer.__dlpack__(stream=number)


# ---- NumPy ----


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_numpy_takes_what_the_host_can_read(make, stream, kind):
    buffer = make(kind, 6, "i2", items=np.arange(6, dtype="i2")).reshape(2, 3)
    stream.synchronize()
    cu.Device(0).synchronize()
    exporter = buffer if kind == "locked" else buffer.lend(None, device="cpu")
    array = np.from_dlpack(exporter)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    array[0, 0] = 9
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    view = array[1]
    del array
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    del view, exporter
    assert buffer.to_numpy().ravel()[0] == 9
    buffer.fill_async(0, stream)


def test_numpy_reads_what_is_lent_read_only(make, stream):
    buffer, target = make("locked", 8), make("device", 8)
    array = np.from_dlpack(buffer.lend(None, readonly=True))
    assert not array.flags.writeable
    target.copy_from_async(buffer, stream)
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    stream.synchronize()
    del array
    buffer.fill_async(0, stream)


def test_device_memory_is_not_for_numpy(make):
    with pytest.raises((BufferError, RuntimeError, TypeError, ValueError)):
        np.from_dlpack(make("device", 8))


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_dtypes_go_through(make, dtype):
    buffer = make("locked", 4, dtype)
    assert np.from_dlpack(buffer).dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", [">i4", "M8[s]", "V3", "S4", [("a", "i2"), ("b", "i4")]])
def test_dtypes_without_a_name(make, stream, dtype):
    for buffer, number in ((cu.LockedBuffer(4, dtype), None), (make("device", 4, dtype), 1)):
        number = number and stream.handle
        for exporter in (buffer, buffer.lend(stream if number else None)):
            with pytest.raises(BufferError, match=r"DLPack has no name for items of dtype .*view"):
                exporter.__dlpack__(stream=number)
        assert not buffer.borrowed
        buffer.close()


def test_what_cannot_be_said_leaves_nothing(stream, other):
    buffer = cu.DeviceBuffer(4, ">i4")
    for exporter in (buffer, buffer.lend(stream)):
        with pytest.raises(BufferError, match="DLPack has no name"):
            exporter.__dlpack__(stream=stream.handle)
    assert not buffer.borrowed
    buffer.view("u1").fill_async(0, other)
    with pytest.raises(BufferError):
        buffer.__dlpack__(stream=stream.handle, copy=True)
    assert len(buffer.borrows) == 1  # it is a view, so NumPy has not copied the bytes


def test_copies_are_somebody_elses(make, stream):
    buffer = make("device", 8, items=np.arange(8, dtype="u1"))
    stream.synchronize()
    consumer = Consumer(buffer.__dlpack__(stream=stream.handle, max_version=(1, 0), copy=True))
    assert consumer.managed.flags == 2
    assert consumer.tensor.data != buffer.address
    buffer.fill_async(0, stream)
    stream.synchronize()
    found = cu.DeviceBuffer.from_address(consumer.tensor.data, 8)
    target = make("locked", 8)
    target.copy_from_async(found, stream)
    stream.synchronize()
    assert target.to_numpy().tolist() == list(range(8))
    del found
    consumer.end()


def test_other_devices_are_refused(make, stream):
    for kind, device in (
        ("device", CPU),
        ("device", (2, 7)),
        ("locked", (10, 0)),
        ("device", CUDA_HOST),
    ):
        buffer = make(kind, 8)
        with pytest.raises(BufferError, match="is no memory of DLPack's device"):
            buffer.__dlpack__(dl_device=device)
        assert "is free" in buffer.explain() or kind == "stream_ordered"
    consumer = Consumer(make("unified", 8).__dlpack__(stream=stream.handle, dl_device=CUDA))
    assert tuple(consumer.tensor.device) == CUDA
    consumer.end()


def test_a_read_only_loan_needs_a_version(make, stream):
    loan = make("device", 8).lend(stream, readonly=True)
    with pytest.raises(BufferError, match=r"DLPack can say from version 1\.0 on"):
        loan.__dlpack__(stream=stream.handle)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle, max_version=(1, 0)))
    assert consumer.managed.flags == 1
    consumer.end()


@pytest.mark.parametrize("device", [None, CPU, CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("kind", ["device", "locked", "unified"])
def test_a_copy_is_on_the_device_that_was_asked_for(make, stream, kind, device):
    buffer = make(kind, 8)
    cu.Device(0).synchronize()
    number = None if device == CPU else stream.handle
    options = {"stream": number, "max_version": (1, 0), "dl_device": device}
    try:
        own = Consumer(buffer.__dlpack__(**options))
    except BufferError:
        with pytest.raises(BufferError, match="is no memory of DLPack's device"):
            buffer.__dlpack__(copy=True, **options)
        return
    found = tuple(own.tensor.device)
    own.end()
    copy = Consumer(buffer.__dlpack__(copy=True, **options))
    assert tuple(copy.tensor.device) == found
    copy.end()


@pytest.mark.parametrize("of", ["buffer", "loan"])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_version": 5}, TypeError, r"max_version must be two ints, .*, not 5"),
        ({"max_version": ()}, TypeError, r"max_version must be two ints, .*, not \(\)"),
        ({"max_version": (1,)}, TypeError, "max_version must be two ints"),
        ({"max_version": ("1", 0)}, TypeError, "max_version must be two ints"),
        ({"dl_device": 2}, TypeError, "dl_device must be two ints, .*, not 2"),
        ({"dl_device": ()}, TypeError, "dl_device must be two ints"),
        ({"dl_device": "cuda"}, TypeError, "dl_device must be two ints, .*, not 'cuda'"),
        ({"dl_device": (2, 1 << 70)}, BufferError, "DLPack's device"),
        ({"dl_device": (-1, 0)}, BufferError, "DLPack's device"),
        ({"stream": "1"}, TypeError, "stream must be an int"),
        ({"stream": 1.0}, TypeError, "stream must be an int"),
        ({"stream": 1 << 70}, (ValueError, BufferError), "stream"),
        ({"stream": -1 << 70}, BufferError, "stream"),
    ],
)
def test_consumers_that_ask_for_nonsense(make, stream, of, options, error, message):
    buffer = make("device", 8)
    stream.synchronize()
    exporter = buffer if of == "buffer" else buffer.lend(stream)
    with pytest.raises(error, match=message):
        exporter.__dlpack__(**{"stream": stream.handle, **options})
    assert not buffer.borrowed
    buffer.close()


def test_a_loan_on_no_stream_refuses_consumers_on_one(make):
    for stream in (1, 2, "nonsense"):
        with pytest.raises((BufferError, TypeError), match=r"consumer works on|must be an int"):
            make("device", 8).lend(None).__dlpack__(stream=stream)


def test_versions_that_nobody_knows_yet(make, stream):
    buffer = make("device", 8)
    for version, versioned in (((0, 8), False), ((-1, 0), False), ((1, 99), True), ((7, 0), True)):
        consumer = Consumer(buffer.__dlpack__(stream=stream.handle, max_version=version))
        assert consumer.versioned == versioned
        if versioned:
            assert consumer.managed.version[0] == 1
        consumer.end()


@pytest.mark.parametrize("shape", [(1,) * 64 + (8,), (1,) * 100 + (8,), (8,) + (1,) * 2000])
def test_more_dimensions_than_a_capsule_has(make, stream, shape):
    buffer = make("device", 8)
    stream.synchronize()
    with pytest.raises(BufferError, match=f"has {len(shape)} dimensions, and .* 64"):
        buffer.lend(stream, shape=shape).__dlpack__(stream=stream.handle)
    assert not buffer.borrowed
    consumer = Consumer(buffer.reshape((1,) * 63 + (8,)).__dlpack__(stream=stream.handle))
    assert consumer.shape == (1,) * 63 + (8,)
    consumer.end()


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((5,), (np.int64(1 << 62),), "needs 18446744073709551617 bytes, and"),
        ((2,), (np.uint8(255),), "needs 256 bytes, and"),
        ((1,), (1 << 80,), "no array is so large"),
        ((0, 2), (1 << 80, 1), "no array is so large"),
        ((0, 1 << 70), None, "no array is so large"),
        ((0, 1 << 63), (1, 1), "no array is so large"),
        ((0, 1 << 62, 1 << 62), None, "no array is so large"),
        ((1 << 62, 1 << 62), None, "no array is so large"),
        ((1 << 62, 1 << 62), (0, 0), "no array is so large"),
        ((1 << 62,), None, "has 8 items, and shape"),
        ((1 << 62,), (1,), "bytes, and"),
    ],
)
def test_sizes_that_overflow(make, stream, shape, strides, message):
    buffer = make("device", 0 if 0 in shape else 8)
    with pytest.raises(ValueError, match=message):
        buffer.lend(stream, shape=shape, strides=strides)
    with pytest.raises(ValueError, match="shape"):
        buffer.reshape((1 << 70, 1 << 70))


def test_steps_may_repeat_items(make, stream):
    consumer = Consumer(
        make("device", 8)
        .lend(stream, shape=(1 << 40,), strides=(0,))
        .__dlpack__(stream=stream.handle)
    )
    assert (consumer.shape, consumer.strides) == ((1 << 40,), (0,))
    consumer.end()


@pytest.mark.cuda_software
def test_a_consumer_on_a_stream_of_a_context_that_is_gone(make):
    """A consumer's stream of a destroyed context is refused by the driver.

    On a real driver the handle of such a stream must not be used at all.
    """
    buffer = make("device", 8)
    context = cu.Context.create(cu.Device(0))
    with context:
        stream = cu.Stream()
    handle = stream.handle
    with pytest.raises(BufferError, match="the consumer's stream to"):
        buffer.__dlpack__(stream=handle)
    del stream, context
    gc.collect()
    with pytest.raises((cu.CudaError, ValueError)):
        buffer.__dlpack__(stream=handle)
    assert not buffer.borrowed
    buffer.close()


# ---- objects of `lend()` ----


def test_the_array_interface_lasts_as_long_as_the_loan(make, stream, other):
    buffer = make("device", 8, "f4")
    loan = buffer.lend(stream, shape=(2, 4))
    found = loan.__cuda_array_interface__
    assert found["shape"], found["typestr"] == ((2, 4), "<f4")
    assert (found["data"], found["strides"]) == ((buffer.address, False), None)
    assert (found["version"], found["stream"]) == (3, stream.handle)
    assert loan.__cuda_array_interface__ == found
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, other)
    del loan
    other.wait(stream)
    buffer.fill_async(0, other)


def test_a_loan_that_nobody_took_lends_nothing(make, stream, other):
    buffer = make("device", 8)
    loan = buffer.lend(stream)
    buffer.fill_async(0, other)
    del loan


def test_a_block_and_an_export_hold_one_loan(make, stream, other):
    buffer = make("device", 8)
    loan = buffer.lend(stream)
    with loan as address:
        consumer = Consumer(loan.__dlpack__(stream=stream.handle))
        assert address == consumer.tensor.data
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, other)
    consumer.end()
    other.wait(stream)
    buffer.fill_async(0, other)


def test_the_consumer_works_on_the_loans_stream(make, stream, other):
    loan = make("device", 8).lend(stream)
    with pytest.raises(BufferError, match=r"the consumer works on stream .*make that one current"):
        loan.__dlpack__(stream=other.handle)
    with pytest.raises(BufferError, match="the consumer works on stream"):
        make("device", 8).lend(None).__dlpack__(stream=1)


def test_the_host_is_no_consumer_of_a_stream(make, stream):
    """A consumer on the host cannot take a loan to a stream: it would not wait for the stream."""
    buffer = make("locked", 8)
    loan = buffer.lend(stream)
    with pytest.raises(BufferError, match=r"works on the host, .*: buffer\.lend\(None\)"):
        np.from_dlpack(loan)
    with pytest.raises(BufferError, match="a memoryview is read on the host"):
        memoryview(loan)
    with pytest.raises(ValueError, match=r"buffer\.lend\(None, device='cpu'\)"):
        buffer.lend(stream, device="cpu")
    with pytest.raises(BufferError, match="the consumer works on stream 0x1; make that one"):
        make("device", 8).lend(stream).__dlpack__()
    legacy = make("device", 8).lend(cu.Stream.legacy())
    cu.Device(0).synchronize()
    Consumer(legacy.__dlpack__()).end()


def test_a_loan_that_dies_in_its_block_leaves_the_others(make, stream, other):
    buffer = make("device", 8)
    loan = buffer.lend(stream)
    loan.__enter__()
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    with pytest.warns(cu.CudaWarning, match="a loan died inside its block"):
        del loan
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, other)
    consumer.end()
    other.wait(stream)
    buffer.fill_async(0, other)


def test_shapes_and_strides_stay_inside(make, stream):
    buffer = make("device", 12, "i2")
    loan = buffer.lend(stream, shape=(2, 3), strides=(12, 4))
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    assert (consumer.shape, consumer.strides) == ((2, 3), (6, 2))
    consumer.end()
    for shape, strides, message in (
        ((2, 3), (12, 6), "needs 26 bytes"),
        ((2, 3), (-12, 4), "not negative"),
        ((2, 3), (12, 3), "multiples of 2"),
        ((2, 3), (12,), "has 1 numbers"),
        ((5,), None, "shape .* has 5"),
        ((-1, 12), None, "no size may be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            buffer.lend(stream, shape=shape, strides=strides)


def test_taking_turns(make, stream, other, items_of):
    buffer = make("locked", 8)
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    with loan.back():
        with pytest.raises(cu.BufferBorrowedError, match="by lend on"):
            buffer.fill_async(5, other)
        other.wait(stream)
        buffer.fill_async(5, other)
        with pytest.raises(ValueError, match="is taken back for a block"):
            loan.__dlpack__(stream=stream.handle)
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(6, other)
    stream.synchronize()  # `stream` waited for the work in the block, so this waits for it, too
    copy = make("device", 8)
    copy.copy_from_async(buffer, stream)
    stream.synchronize()
    assert items_of(copy).tolist() == [5] * 8
    consumer.end()
    with pytest.raises(ValueError, match="not in anybody's hands"), loan.back():
        pass


def test_taking_back_what_is_gone_meanwhile(make, stream, other):
    buffer = make("device", 8)
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    with loan.back():
        other.wait(stream)
        buffer.fill_async(5, other)
        consumer.end()
    stream.wait(other)
    buffer.fill_async(6, stream)
    other.wait(stream)
    buffer.fill_async(6, other)


@pytest.mark.parametrize("ask", ["explain", "borrows", "borrowed"])
def test_who_asks_hears_that_a_loan_has_ended(make, stream, ask):
    buffer = make("device", 8)
    cu.Device(0).synchronize()
    with stream:
        consumer = Consumer(buffer.__dlpack__(stream=stream.handle))
    stream.synchronize()
    assert "lent to" in buffer.explain()
    consumer.end()
    answer = getattr(buffer, ask)
    answer = answer() if ask == "explain" else answer
    assert answer
    assert "lent to" not in str(answer)


@pytest.mark.parametrize("kind", ["locked", "unified"])
@pytest.mark.parametrize("readonly", [False, True])
def test_a_block_that_ends_with_a_live_host_view(make, stream, other, kind, readonly):
    """`loan.back()` ends while a host view exists: the loan begins again.

    The borrower has an array, so the memory is protected from everything but that view.
    """
    buffer = make(kind, 8)
    loan = buffer.lend(stream, readonly=readonly)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle, max_version=(1, 0)))
    kept = []
    with pytest.raises(cu.BufferExportedError, match=LENT_HOST), loan.back():  # noqa: PT012
        stream.synchronize()
        kept.append(np.asarray(buffer))
    for _ in range(2):
        for use in (
            lambda: buffer.__setitem__(0, 1),
            lambda: buffer.fill_async(5, other),
            buffer.close,
            buffer.into_raw,
        ):
            with pytest.raises(cu.BufferExportedError):
                use()
        kept.clear()
    with pytest.raises(cu.BufferExportedError, match="it is lent to Stream"):
        buffer.fill_async(5, other)
    if readonly:
        assert buffer.to_numpy().shape == (8,)
    else:
        buffer.fill_async(5, stream)  # allowed on the borrower's stream
    with loan.back():
        other.wait(stream)
        buffer.fill_async(6, other)
    consumer.end()
    with pytest.raises(cu.BufferBorrowedError, match=r"by (lend|fill_async) on"):
        buffer.__setitem__(0, 1)
    stream.synchronize()
    buffer[0] = 1
    assert not buffer.borrowed


def test_the_stream_waits_for_work_although_a_view_is_alive(make, stream, other, gate):
    buffer, copy = make("locked", 8), make("device", 8)
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    views = []
    with pytest.raises(cu.BufferExportedError), loan.back():  # noqa: PT012
        stream.synchronize()
        views.append(np.asarray(buffer[:1]))
        gate.hold(other)
        buffer[1:].fill_async(7, other)
    views.clear()
    # A copy on the borrower's stream, as the borrower would make it.
    copy.copy_from_async(buffer, stream)
    assert not stream.done
    gate.open()
    stream.synchronize()
    assert copy[1:].to_numpy().tolist() == [7] * 7
    consumer.end()


@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_is_taken_back_stays_open(make, stream, kind):
    buffer = make(kind, 8)
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    with loan.back():
        buffer.fill_async(1, stream)
        stream.synchronize()
        assert not buffer.borrowed
        assert "is free" in buffer.explain()
        for end in (buffer.close, buffer.into_raw):
            with pytest.raises(cu.BufferExportedError, match="it is lent to Stream"):
                end()
        buffer[:].fill_async(2, stream)
        stream.synchronize()
    consumer.end()
    stream.synchronize()
    buffer.close()


def test_an_error_in_the_block_is_not_hidden(make, stream):
    buffer = make("locked", 8)
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    views = []
    with pytest.raises(ZeroDivisionError) as caught, loan.back():  # noqa: PT012
        stream.synchronize()
        views.append(memoryview(buffer))
        1 / 0  # noqa: B018
    assert "a host view of it is alive" in caught.value.__notes__[0]
    views.pop().release()
    with pytest.raises(cu.BufferExportedError, match="it is lent"):
        buffer[0] = 1
    consumer.end()


def test_a_block_that_nobody_ends(make, stream, other):
    buffer = make("locked", 8)
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    back = loan.back()
    back.__enter__()
    stream.synchronize()
    buffer[0] = 1
    del back
    with pytest.raises(cu.BufferExportedError, match="it is lent"):
        buffer[0] = 2
    with loan.back():
        stream.synchronize()
        buffer[0] = 3
    consumer.end()
    stream.synchronize()
    assert buffer[0] == 3


def test_the_stream_stays_open_in_the_block(make):
    buffer, stream = make("locked", 8), cu.Stream()
    loan = buffer.lend(stream)
    consumer = Consumer(loan.__dlpack__(stream=stream.handle))
    with loan.back():
        stream.synchronize()
        buffer[0] = 1
        with pytest.raises(cu.OwnershipError, match="buffers are lent to it"):
            stream.close()
    consumer.end()
    stream.synchronize()
    buffer.close()
    stream.close()


def test_work_on_no_stream(make, stream):
    buffer = make("locked", 8)
    with buffer.lend(None) as address:
        assert address == buffer.address
        for use in (lambda: buffer[0], lambda: buffer.fill_async(0, stream), buffer.close):
            with pytest.raises(cu.BufferExportedError, match="lent to work on no stream"):
                use()
    loan = buffer.lend(None)
    with loan, pytest.raises(ValueError, match="cannot be taken back"), loan.back():
        pass
    buffer[0] = 1
    buffer.fill_async(0, stream)
    with pytest.raises(cu.BufferBorrowedError, match="to work on no stream"), buffer.lend(None):
        pass


def test_bytes_of_a_loan(make, stream):
    buffer = make("locked", 8, items=np.arange(8, dtype="u1"))
    view = memoryview(buffer.lend(None, readonly=True))
    assert bytes(view) == bytes(range(8))
    assert view.readonly
    with pytest.raises(cu.BufferExportedError):
        buffer.fill_async(0, stream)
    view.release()
    buffer.fill_async(0, stream)
    with pytest.raises(BufferError, match="cannot read memory of a device"):
        memoryview(make("device", 8).lend(None))


def test_buffers_have_no_array_interface(make):
    with pytest.raises(AttributeError, match=r"cupy\.asarray\(buffer\.lend\(stream\)\)"):
        make("device", 8).__cuda_array_interface__  # noqa: B018


def test_a_lost_loan_keeps_nothing(make, stream):
    buffer = make("device", 8)
    consumers = [Consumer(buffer.__dlpack__(stream=stream.handle)) for _ in range(100)]
    threads = [threading.Thread(target=each.end_without_the_gil) for each in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del consumers, threads
    gc.collect()
    stream.synchronize()
    stream.synchronize()
    buffer.close()


def test_reshape(make):
    buffer = make("device", 12, "f4")
    assert buffer.shape == (12,)
    shaped = buffer.reshape(3, -1)
    assert (shaped.shape, shaped.count, shaped.address) == ((3, 4), 12, buffer.address)
    assert buffer.reshape((2, 6)).shape == (2, 6)
    assert buffer[:6].shape == (6,)
    assert make("device", 0).reshape(0, 3).shape == (0, 3)
    for shape in ((5,), (-1, -1), (-2, 6), (5, -1)):
        with pytest.raises(ValueError, match="shape"):
            buffer.reshape(shape)


def test_exports_end_in_the_order_of_their_ends(driver):
    """What the consumer on the legacy stream has queued is not after the work of the other one."""
    buffers = [cu.DeviceBuffer.zeros(8) for _ in range(2)]
    streams = [cu.Stream.legacy(), cu.Stream(blocking=True)]
    consumers = [
        Consumer(buffer.__dlpack__(stream=stream.handle, max_version=(1, 0)))
        for buffer, stream in zip(buffers, streams, strict=True)
    ]
    for consumer in consumers:
        consumer.end()
    blocking = cu.Stream(blocking=True)
    cu.LockedBuffer(8).copy_from_async(buffers[0], blocking)
    with pytest.raises(cu.BufferBorrowedError):
        cu.LockedBuffer(8).copy_from_async(buffers[1], blocking)
    blocking.wait(streams[1])
    cu.LockedBuffer(8).copy_from_async(buffers[1], blocking).wait()
