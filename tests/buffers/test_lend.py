"""Lending a buffer to another library: here the driver itself, called through ctypes."""

import ctypes

import numpy as np
import pytest

import cudadrv as cu

KINDS = ("device", "stream_ordered", "locked", "unified")


@pytest.fixture
def fill_behind_our_back(driver):
    """Queue a fill without cudadrv."""
    library = ctypes.CDLL(cu.driver_info().path)

    def fill(address, value, nbytes, stream):
        with cu.Device(0):
            call = library.cuMemsetD8Async
            pointer, handle = ctypes.c_uint64(address), ctypes.c_void_p(stream.handle)
            assert call(pointer, ctypes.c_ubyte(value), ctypes.c_size_t(nbytes), handle) == 0

    return fill


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_queued_in_the_block_is_one_use(
    make, items_of, stream, other, kind, fill_behind_our_back, gate
):
    buffer = make(kind, 8, items=np.arange(8, dtype="u1"))
    gate.hold(stream)
    with buffer.lend(stream) as address:
        assert address == buffer.address
        fill_behind_our_back(address, 7, 8, stream)
    assert [borrow.operation for borrow in buffer.borrows] == ["lend"]
    with pytest.raises(cu.BufferBorrowedError, match="by lend on Stream"):
        buffer.fill_async(0, other)
    gate.open()
    other.wait(stream)
    assert buffer.copy_to_async(make("locked", 8), other) is not None
    other.synchronize()
    assert items_of(buffer).tolist() == [7] * 8


def test_others_are_refused_inside(make, stream, other):
    buffer, source = make("locked", 8), make("device", 4)
    with buffer[:4].lend(stream):
        message = r"it is lent to Stream \d+, at .*test_lend\.py:\d+\.\n"
        stream.synchronize()  # what others queue after that is not seen
        for use in (
            lambda: buffer.fill_async(0, other),
            lambda: buffer[0],
            lambda: buffer.__setitem__(3, 1),
            lambda: memoryview(buffer),
            lambda: buffer[:4].lend(other).__enter__(),
            buffer.close,
            buffer.into_raw,
        ):
            with pytest.raises(cu.BufferExportedError, match=message):
                use()
        assert "lent to Stream" in buffer.explain()
        with cu.ordering("unchecked"), pytest.raises(cu.BufferExportedError):
            buffer[:4].copy_from_async(source, other)
        buffer[4] = 1  # the other half is free
        buffer[4:].fill_async(2, other)
        buffer[:4].copy_from_async(source, stream)  # in order with what is lent
        with buffer[:4].lend(stream):
            pass
    with pytest.raises(cu.BufferBorrowedError):
        buffer[:4].fill_async(0, other)
    other.wait(stream)
    buffer.fill_async(0, other)


def test_a_reading_library_shares(make, stream, other):
    buffer, target = make("locked", 8, items=np.arange(8, dtype="u1")), make("device", 8)
    with buffer.lend(stream, readonly=True) as _:
        assert buffer[3] == 3
        target.copy_from_async(buffer, other)
        with buffer.lend(other, readonly=True):
            pass
        for use in (lambda: buffer.fill_async(0, other), lambda: buffer.__setitem__(3, 1)):
            with pytest.raises(cu.BufferExportedError, match="lent to"):
                use()
    assert {borrow.mode for borrow in buffer.borrows} == {"read"}


def test_it_is_checked_like_any_operation(make, stream, other):
    buffer = make("locked", 8)
    buffer.fill_async(1, other)
    with pytest.raises(cu.BufferBorrowedError, match="by lend on Stream"):
        with buffer.lend(stream):
            pytest.fail("entered")
    with pytest.raises(TypeError, match="lend needs a stream"):
        buffer.lend()
    with cu.ordering("wait"), stream, buffer.lend():
        pass
    stream.synchronize()
    with buffer.read(), pytest.raises(cu.BufferExportedError), buffer.lend(stream):
        pytest.fail("entered")


def test_a_stream_that_ends_inside(make, fill_behind_our_back, gate):
    buffer, lender = make("device", 8), cu.Stream()
    gate.hold(lender)
    loan = buffer.lend(lender)
    fill_behind_our_back(loan.__enter__(), 1, 8, lender)
    lender.close()
    with pytest.raises(ValueError, match="is closed"):
        loan.__exit__(None, None, None)
    assert buffer.borrowed
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close()
    gate.open()


def test_an_exception_is_not_replaced(make):
    buffer, lender = make("device", 8), cu.Stream()

    def block():
        with buffer.lend(lender):
            lender.close()
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        block()
    assert "cudadrv: what was queued in the block is not known" in caught.value.__notes__[0]


def test_blocks_are_left_once(make, stream):
    buffer = make("device", 8)
    loan = buffer.lend(stream)
    with pytest.raises(RuntimeError, match="not entered"):
        loan.__exit__(None, None, None)
    with loan:
        with pytest.raises(RuntimeError, match="entered already"):
            loan.__enter__()
    with pytest.raises(RuntimeError, match="ended already"):
        loan.__exit__(None, None, None)
    assert "Loan of DeviceBuffer[0:8] (uint8) to <Stream" in repr(loan)
    with pytest.raises(TypeError, match=r"use buffer\.lend"):
        type(loan)()


def test_a_block_that_never_ends_is_told(make, stream):
    buffer = make("device", 8)
    loans = [buffer.lend(stream)]
    loans[0].__enter__()
    with pytest.warns(cu.CudaWarning, match="a loan died inside its block"):
        loans.clear()
    stream.synchronize()
    buffer.fill(0)


def test_the_default_streams_order_what_is_lent(make, items_of, fill_behind_our_back):
    legacy, blocking, another = (
        cu.Stream.legacy(),
        cu.Stream(blocking=True),
        cu.Stream(blocking=True),
    )
    buffer = make("device", 8)
    buffer.fill_async(1, blocking)
    with buffer.lend(legacy) as address:
        fill_behind_our_back(address, 2, 4, legacy)
    buffer[4:].fill_async(3, another)
    another.synchronize()
    assert items_of(buffer).tolist() == [2] * 4 + [3] * 4


@pytest.mark.cuda_software
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_record_lends_nothing(make, stream, other, kind):
    from cudadrv import testing

    buffer = make(kind, 8)
    testing.fail("cuEventRecord", 1)
    with pytest.raises(cu.CudaError, match="cuEventRecord"), buffer.lend(stream):
        pytest.fail("entered")
    buffer.fill_async(0, other)


@pytest.mark.cuda_software
def test_stream_ordered_memory_is_not_freed_under_its_borrower(stream):
    buffer = cu.DeviceBuffer(8, stream=stream)
    with buffer.lend(stream), pytest.raises(cu.BufferExportedError):
        buffer.close()
    buffer.close()
