"""Prefetches of managed memory: they move pages, change no bytes, and keep memory alive."""

import numpy as np
import pytest

import cudadrv as cu

pytestmark = pytest.mark.usefixtures("concurrent_access")
BLOCK = 65536  # the bytes that the software driver moves in one page fault
software = pytest.mark.cuda_software


@pytest.fixture
def managed(driver):
    """Managed memory of four blocks with the items 0, 1, 2 and so on, written by the host."""
    buffer = cu.UnifiedBuffer(4 * BLOCK // 4, "u4", name="managed", pooled=False)
    with buffer.write() as array:
        array[:] = np.arange(array.size)
    return buffer


def places(buffer):
    from cudadrv import testing

    return set(testing.page_places(buffer))


def faults(buffer):
    from cudadrv import testing

    return tuple(testing.page_faults(buffer))


def device_reads(buffer, stream):
    target = cu.DeviceBuffer(buffer.count, buffer.dtype)
    target.copy_from_async(buffer, stream)
    stream.synchronize()


def numbers(buffer):
    with buffer.read() as array:
        return np.array_equal(array, np.arange(array.size))


def test_the_driver_says_where_it_went(managed, stream):
    assert managed.advice.last_prefetch is None
    token = managed.prefetch(cu.Device(0), stream)
    assert (token.stream, token.reads, token.writes) == (stream, (managed,), ())
    token.wait()
    assert managed.advice.last_prefetch == cu.Device(0)
    with stream:
        managed.prefetch("host").wait()
    assert managed.advice.last_prefetch == "host"
    assert numbers(managed)


@software
def test_pages_move_once_the_stream_comes_to_it(managed, stream, gate):
    gate.hold(stream)
    token = managed.prefetch(cu.Device(0), stream)
    assert places(managed) == {"host"}
    gate.open()
    token.wait()
    assert places(managed) == {0}
    managed[: BLOCK // 4].prefetch("host", stream).wait()
    assert places(managed[: BLOCK // 4]) == {"host"}
    assert places(managed[BLOCK // 4 :]) == {0}


@software
def test_what_was_prefetched_faults_no_more(managed, stream):
    device_reads(managed, stream)
    assert faults(managed) == (0, 4)
    assert numbers(managed)
    assert faults(managed) == (4, 4)
    for _ in range(3):
        managed.prefetch(cu.Device(0), stream)
        device_reads(managed, stream)
        managed.prefetch("host", stream).wait()
        assert numbers(managed)
    assert faults(managed) == (4, 4)


def test_it_is_in_the_way_of_nobody(managed, stream, other, gate):
    """An unfinished prefetch excludes nobody: the host and other streams may use the memory."""
    gate.hold(stream)
    tokens = [managed.prefetch(place, stream) for place in (cu.Device(0), "host")]
    with managed.write() as array:
        tokens.append(managed.prefetch(cu.Device(0), stream))
        array[:] += 1
    assert managed[0] == 1
    managed.fill_async(7, other)
    tokens.append(managed.prefetch("host", stream))  # needs no order after the fill
    other.synchronize()
    assert managed[5] == 7
    assert {borrow.mode for borrow in managed.borrows} == {"shared"}
    gate.open()
    for token in tokens:
        token.wait()
    assert managed.to_numpy().tolist() == [7] * managed.count


def test_beside_a_view_and_a_loan(managed, stream, other):
    with managed.lend(other):
        managed.prefetch(cu.Device(0), stream)
    other.synchronize()
    view = np.asarray(managed)
    managed.prefetch("host", stream)
    assert view[3] == 3
    stream.synchronize()


def test_the_memory_cannot_go_before_it_is_complete(managed, stream, gate):
    gate.hold(stream)
    managed.prefetch(cu.Device(0), stream)
    with pytest.raises(cu.BufferBorrowedError, match="is being used by prefetch on"):
        managed.close()
    with pytest.raises(cu.BufferBorrowedError, match="is being used by prefetch on"):
        managed.into_raw()
    gate.open()
    stream.synchronize()
    managed.close()
    with pytest.raises(cu.BufferClosedError):
        managed.prefetch("host", stream)


def test_a_dead_buffer_is_freed_after_it(stream, gate):
    gate.hold(stream)
    buffer = cu.UnifiedBuffer(BLOCK, pooled=False)
    token = buffer.prefetch("host", stream)
    del buffer
    assert token.reads[0].count == BLOCK  # the token keeps the dropped buffer's memory
    del token
    gate.open()
    stream.synchronize()


def test_its_block_serves_again_only_after_it(stream, gate):
    """A prefetch also borrows memory of a pool: no new buffer gets that memory meanwhile."""
    cu.reap()
    gate.hold(stream)
    buffer = cu.UnifiedBuffer(BLOCK)
    address = buffer.address
    buffer.prefetch(cu.Device(0), stream)
    del buffer
    assert cu.UnifiedBuffer(BLOCK).address != address
    gate.open()
    stream.synchronize()


def test_nothing_to_move(stream, unchanged):
    empty = cu.UnifiedBuffer(0)
    with unchanged("cuMemPrefetchAsync", "cuMemPrefetchBatchAsync"):
        token = empty.prefetch("host", stream)
        cu.prefetch_batch([(empty, "host"), (empty, cu.Device(0))], stream)
    assert token.done
    token.wait()


def test_bad_places(managed, stream, unchanged):
    with unchanged("cuMemPrefetchAsync", "cuMemPrefetchBatchAsync"):
        for place in (0, None, b"host", stream):
            with pytest.raises(TypeError, match="a place is a Device, 'host' or 'host:N'"):
                managed.prefetch(place, stream)
        for place in ("", "Host", "host:", "host:-1", "host:x", "hosts", "host:\u0661", "host: 1"):
            with pytest.raises(ValueError, match="a place is a Device, 'host' or 'host:N'"):
                managed.prefetch(place, stream)
        with pytest.raises(TypeError, match="prefetch needs a stream"):
            managed.prefetch("host")
        with pytest.raises(TypeError, match="stream must be"):
            managed.prefetch("host", 3)
    assert not managed.borrowed


def test_a_failing_call_borrows_nothing(managed, stream):
    if not cu.driver_info().is_software:
        pytest.skip("the failure is the software driver's")
    from cudadrv import testing

    testing.fail("cuMemPrefetchAsync", cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(cu.CudaError, match="cuMemPrefetchAsync"):
        managed.prefetch("host", stream)
    assert not managed.borrowed
    managed.close()


@software
def test_nodes(managed, stream):
    managed.prefetch("host:0", stream).wait()
    assert managed.advice.last_prefetch == "host:0"
    with pytest.raises(cu.CudaError, match="cuMemPrefetchBatchAsync"):
        managed.prefetch("host:77", stream)
    with pytest.raises(ValueError, match="do not work on the legacy default stream"):
        managed.prefetch("host:0", cu.Stream.legacy())
    stream.synchronize()


# ---- batches ----


@software
def test_a_batch_is_one_call(managed, stream):
    from cudadrv import testing

    first, second = managed.split_at(managed.count // 2)
    before = testing.calls("cuMemPrefetchBatchAsync"), testing.calls("cuMemPrefetchAsync")
    token = cu.prefetch_batch(
        [(first, cu.Device(0)), (second, "host"), (first[:0], "host")], stream
    )
    token.wait()
    assert token.reads == (first, second)
    after = testing.calls("cuMemPrefetchBatchAsync"), testing.calls("cuMemPrefetchAsync")
    assert after == (before[0] + 1, before[1])
    assert (places(first), places(second)) == ({0}, {"host"})


def test_a_batch_of_many(managed, stream):
    cu.prefetch_batch(((part, cu.Device(0)) for part in managed.chunks(1024)), stream).wait()
    assert {part.advice.last_prefetch for part in managed.chunks(1024)} == {cu.Device(0)}
    assert numbers(managed)


def test_a_batch_on_a_default_stream(managed):
    """The driver refuses batches on the legacy default stream."""
    first, second = managed.split_at(managed.count // 2)
    for stream in (cu.Stream.legacy(), cu.Stream.per_thread()):
        cu.prefetch_batch([(first, "host"), (second, cu.Device(0))], stream).wait()
        assert first.advice.last_prefetch == "host"
        assert second.advice.last_prefetch == cu.Device(0)


def test_a_bad_batch_queues_nothing(managed, stream, unchanged):
    closed = cu.UnifiedBuffer(8)
    closed.close()
    good = (managed, "host")
    with unchanged("cuMemPrefetchAsync", "cuMemPrefetchBatchAsync"):
        for error, pairs in (
            (ValueError, []),
            (ValueError, [good, (managed, "moon")]),
            (TypeError, [good, (cu.LockedBuffer(4), "host")]),
            (TypeError, [good, (np.zeros(4), "host")]),
            (cu.BufferClosedError, [good, (closed, "host")]),
        ):
            with pytest.raises(error):
                cu.prefetch_batch(pairs, stream)
        with pytest.raises(TypeError, match="prefetch_batch needs a stream"):
            cu.prefetch_batch([good])
    assert not managed.borrowed


@software
def test_a_batch_that_fails_counts_as_begun(managed, stream):
    from cudadrv import testing

    first, second = managed.split_at(managed.count // 2)
    testing.fail("cuMemPrefetchBatchAsync", cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(cu.CudaError, match="cuMemPrefetchBatchAsync"):
        cu.prefetch_batch([(first, "host"), (second, "host")], stream)
    assert managed.borrowed
    stream.synchronize()
    assert not managed.borrowed
