"""Loans to another library. Here the driver itself is the library, called through ctypes."""

import contextlib
import ctypes
import threading

import numpy as np
import pytest

import cudadrv as cu

KINDS = ("device", "stream_ordered", "locked", "unified")


@pytest.fixture
def fill_behind_our_back(driver):
    """Queue a fill by the driver, so that cudadrv does not see it."""
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
        stream.synchronize()  # does not cover work that the borrower queues later
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
        buffer[4] = 1  # allowed: the other half is not lent
        buffer[4:].fill_async(2, other)
        # Allowed: ordered with the borrower, on the same stream.
        buffer[:4].copy_from_async(source, stream)
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


def test_the_stream_cannot_be_closed_inside(make):
    buffer, lender = make("device", 8), cu.Stream()
    with buffer.lend(lender), pytest.raises(cu.OwnershipError, match="buffers are lent to it"):
        lender.close()
    lender.close()


def test_the_way_back_is_always_open(make, stream, other):
    """A loan can always end, whatever the policy is.

    The borrower's work is already queued, so it must be recorded.
    """
    buffer = make("locked", 8)
    buffer.fill_async(1, other)
    with contextlib.ExitStack() as stack:
        with cu.ordering("unchecked"):
            stack.enter_context(buffer.lend(stream))
    assert {borrow.operation for borrow in buffer.borrows} == {"fill_async", "lend"}
    other.synchronize()


@pytest.fixture
def failing(driver):
    """Make the next call of a driver function fail."""
    from cudadrv import testing

    yield lambda function: testing.configure(f"fault={function}:1:800")
    testing.configure("fault=none")


@pytest.mark.cuda_software
def test_a_loan_whose_end_cannot_be_recorded_ends_with_its_stream(make, other, failing):
    """The end of a loan cannot be recorded. The loan's work still counts as work of the stream."""
    stream = cu.Stream(blocking=True)

    def fail(raised):
        failing("cuEventRecord")
        if raised:
            raise raised

    for raised in (None, KeyError("mine")):
        for wait in (stream.synchronize, stream.device.synchronize, lambda: other.wait(stream)):
            buffer = make("locked", 8)
            with pytest.raises((cu.CudaError, KeyError)) as caught, buffer.lend(stream):
                fail(raised)
            assert caught.type is (KeyError if raised else cu.CudaError)
            assert "is borrowed by all that was queued on <Stream" in caught.value.__notes__[0]
            assert [borrow.operation for borrow in buffer.borrows] == ["lend"]
            with pytest.raises(cu.BufferBorrowedError):
                buffer.fill_async(1, other)
            wait()
            buffer.fill_async(1, other)
            other.synchronize()
            buffer.close()
            if raised:
                raised.__notes__.clear()


@pytest.mark.cuda_software
def test_what_was_lent_to_a_default_stream_and_not_recorded_is_no_work_of_its_rules(make, failing):
    """A loan to the legacy stream whose end is not recorded orders no blocking streams.

    The driver has no work that could order them.
    """
    buffer, legacy, blocking = make("locked", 8), cu.Stream.legacy(), cu.Stream(blocking=True)
    with pytest.raises(cu.CudaError), buffer.lend(legacy):
        failing("cuEventRecord")
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(1, blocking)
    legacy.record()
    buffer.fill_async(1, blocking)
    blocking.synchronize()


def test_a_loan_that_ends_in_a_capture_ends_later(script):
    """A loan whose end is in a capture ends later.

    The test leaves the capture open, so it runs in a process of its own.
    """
    script.quiet(
        """
import ctypes
import cudadrv as cu

driver, stream, graph = ctypes.CDLL(cu.driver_info().path), cu.Stream(), ctypes.c_void_p()
handle, relaxed = ctypes.c_void_p(stream.handle), 2

def begin_capture():
    with cu.Device(0):
        assert driver.cuStreamBeginCapture_v2(handle, relaxed) == 0

def end_capture():
    with cu.Device(0):
        assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0

first, second = cu.LockedBuffer.zeros(8), cu.LockedBuffer.zeros(8)
try:
    with first.lend(stream):
        stream.synchronize()
        begin_capture()
    raise AssertionError("not refused")
except cu.OwnershipError as error:
    assert "capturing" in str(error), error
    assert "stays lent until a synchronization" in error.__notes__[0]
end_capture()
for use in (lambda: first[0], first.close):
    try:
        use()
        raise AssertionError("not refused")
    except cu.BufferExportedError as error:
        assert "it is lent to Stream" in str(error)
stream.synchronize()    # the end of the loan can be recorded now, and is complete
try:
    first[0]
    raise AssertionError("not refused")
except cu.BufferBorrowedError as error:
    assert "written by lend" in str(error)
stream.synchronize()
first.close()

try:  # an exception that is on its way is not replaced
    with second.lend(stream):
        begin_capture()
        raise KeyError("mine")
except KeyError as error:
    assert "stays lent until a synchronization" in error.__notes__[0]
end_capture()
stream.device.synchronize()
stream.device.synchronize()
second.close()
stream.close()
"""
    )


def test_a_refused_loan_can_be_tried_again(make, stream, other):
    buffer = make("device", 8)
    buffer.fill_async(1, other)
    loan = buffer.lend(stream)
    with pytest.raises(cu.BufferBorrowedError):
        loan.__enter__()
    stream.wait(other)
    with loan:
        pass


@pytest.mark.parametrize("way", ["__enter__", "__exit__"])
def test_only_one_thread_begins_and_ends_it(make, stream, way):
    buffer = make("device", 8)
    for _ in range(50):
        loan, done = buffer.lend(stream), []
        if way == "__exit__":
            loan.__enter__()
        start = threading.Barrier(4)

        def run(loan=loan, done=done, start=start):
            start.wait()
            with contextlib.suppress(RuntimeError):
                getattr(loan, way)(*[None] * (3 if way == "__exit__" else 0))
                done.append(way)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [way]
        if way == "__enter__":
            loan.__exit__(None, None, None)


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
def test_a_failing_record_lends_nothing(make, other, kind):
    from cudadrv import testing

    buffer = make(kind, 8)
    testing.fail("cuEventRecord", 1)
    with (
        pytest.raises(cu.CudaError, match="cuEventRecord"),
        buffer.lend(cu.Stream(blocking=True)),
    ):
        pytest.fail("entered")
    buffer.fill_async(0, other)


def test_a_loan_to_a_non_blocking_stream_calls_no_driver(make, stream, unchanged):
    buffer = make("device", 8)
    with unchanged("cuEventCreate", "cuEventRecord"), buffer.lend(stream):
        pass


@pytest.mark.cuda_software
def test_stream_ordered_memory_is_not_freed_under_its_borrower(stream):
    buffer = cu.DeviceBuffer(8, stream=stream)
    with buffer.lend(stream), pytest.raises(cu.BufferExportedError):
        buffer.close()
    buffer.close()
