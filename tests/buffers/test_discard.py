"""Discards of managed memory: discarded contents cannot be read until they are written again."""

import numpy as np
import pytest
from other_library import ADD

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.usefixtures("concurrent_access")
BLOCK = 65536
CALLS = ("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync", "cuMemPrefetchAsync")
software = pytest.mark.cuda_software


@pytest.fixture
def managed(driver):
    buffer = cu.UnifiedBuffer(2 * BLOCK, "u1", name="managed", pooled=False)
    buffer[:] = 5
    return buffer


@pytest.fixture
def target(driver):
    return cu.DeviceBuffer(2 * BLOCK, "u1")


def reads(buffer, target, stream):
    """All calls that read a buffer, by name."""
    return {
        "item": lambda: buffer[0],
        "to_numpy": buffer.to_numpy,
        "read": lambda: buffer.read().__enter__(),
        "memoryview": lambda: memoryview(buffer),
        "asarray": lambda: np.asarray(buffer),
        "readonly": lambda: memoryview(buffer.readonly()),
        "bytes": lambda: bytes(buffer),
        "copy_from_async": lambda: target.copy_from_async(buffer, stream),
        "copy_to_async": lambda: buffer.copy_to_async(target, stream),
        "copy_to an array": lambda: buffer.copy_to(np.empty(buffer.count, "u1")),
        "copy_to on a stream": lambda: buffer.copy_to(np.empty(buffer.count, "u1"), stream=stream),
        "lend": lambda: buffer.lend(stream).__enter__(),
        "lend to no stream": lambda: buffer.lend(None).__enter__(),
        "lend to read": lambda: buffer.lend(stream, readonly=True).__enter__(),
        "dlpack": lambda: buffer.__dlpack__(stream=-1),
    }


WAYS = (
    *("item", "to_numpy", "read", "memoryview", "asarray", "readonly", "bytes"),
    *("copy_from_async", "copy_to_async", "copy_to an array", "copy_to on a stream"),
    *("lend", "lend to no stream", "lend to read", "dlpack"),
)


@pytest.mark.parametrize("way", WAYS)
def test_reading_is_refused(managed, target, stream, unchanged, way):
    token = managed.discard(stream)
    assert (token.reads, token.writes) == ((), (managed,))
    token.wait()
    with unchanged(*CALLS):
        with pytest.raises(cu.ContentsDiscardedError) as caught:
            reads(managed, target, stream)[way]()
    text = str(caught.value)
    assert f"its bytes 0:{1 if way == 'item' else 2 * BLOCK} were discarded at" in text
    assert "test_discard.py" in text
    assert "Write them first" in text
    assert not managed.borrowed
    assert not target.borrowed


def test_kernels(managed, stream):
    add = cu.Module(ADD)["add"]
    out = cu.DeviceBuffer.zeros(4, "u4")
    items = managed[:16].view("u4")
    managed.discard(stream)
    with pytest.raises(cu.ContentsDiscardedError, match="by launch of add on"):
        add.launch(1, 4, cu.read(items), out, stream=stream)
    items.fill_async(8, stream)
    add.launch(1, 4, cu.read(items), out, stream=stream)
    assert out.to_numpy(stream=stream).tolist() == [8] * 4
    managed.discard(stream)
    add.launch(1, 4, cu.read(out), items, stream=stream)
    stream.synchronize()
    items.to_numpy()
    with pytest.raises(cu.ContentsDiscardedError, match="its bytes 16:131072 were"):
        managed.to_numpy()


def test_what_may_write_counts_as_a_write_of_all(managed, target, stream):
    part = managed[10:20]

    def readable():
        try:
            part.to_numpy()
        except cu.ContentsDiscardedError:
            return False
        return True

    def view():
        with part.write():
            pass

    for write in (
        lambda: part.fill_async(1, stream),
        lambda: part.copy_from_async(target[:10], stream),
        lambda: target[:10].copy_to_async(part, stream),
        lambda: part.copy_from_async(np.ones(10, "u1"), stream),
        lambda: part.copy_from(np.ones(10, "u1")),
        lambda: part.fill(3),
        lambda: part.__setitem__(slice(None), 4),
        view,
    ):
        managed.discard(stream).wait()
        assert not readable()
        write()
        stream.synchronize()
        assert readable()
        with pytest.raises(cu.ContentsDiscardedError, match=r"bytes 0:10 were"):
            managed[:20].to_numpy()


def test_prefetches_write_nothing(managed, stream):
    managed.discard(stream)
    managed.prefetch("host", stream).wait()
    with pytest.raises(cu.ContentsDiscardedError):
        managed.to_numpy()
    managed.prefetch(cu.Device(0), stream).wait()


def test_it_is_ordered_as_a_write(managed, stream, other, gate):
    gate.hold(stream)
    managed.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write .* by discard on"):
        managed.discard(other)
    managed.discard(stream)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by discard on"):
        managed[:] = 1
    gate.open()
    other.wait(stream)
    managed.discard(other)
    other.synchronize()
    managed[:] = 1


def test_the_policy_wait_inserts_the_wait(managed, stream, other):
    managed.fill_async(1, stream)
    with cu.ordering("wait"):
        managed.discard(other)
        # Refused under "wait", too: no wait restores the contents.
        with pytest.raises(cu.ContentsDiscardedError):
            managed[0]
        managed[0] = 1
        assert managed[0] == 1


def test_a_closed_buffer_and_a_dead_one(stream):
    buffer = cu.UnifiedBuffer(BLOCK)
    address = buffer.address
    buffer[:] = 1
    buffer.discard(stream).wait()
    buffer.close()
    again = cu.UnifiedBuffer(BLOCK)
    assert again.address == address
    again.to_numpy()  # memory that was never written may be read, unlike discarded memory
    again.discard(stream).wait()
    del again
    with stream:
        again = cu.UnifiedBuffer(BLOCK)
    again.to_numpy()
    with pytest.raises(cu.BufferClosedError):
        buffer.discard(stream)


def test_all_buffers_over_the_memory_know(managed, stream):
    other = cu.UnifiedBuffer.from_address(managed.address, 100, "u1", owner=managed)
    managed[50:200].discard(stream).wait()
    other[:50].to_numpy()
    with pytest.raises(cu.ContentsDiscardedError, match="bytes 50:100 were"):
        other.to_numpy()
    other[:] = 3
    assert managed[:100].to_numpy().tolist() == [3] * 100
    moved = managed.take()
    with pytest.raises(cu.ContentsDiscardedError, match="bytes 100:200 were"):
        moved.to_numpy()


def test_exported_and_lent_memory(managed, stream, unchanged):
    view = memoryview(managed[:10])
    with unchanged(*CALLS), pytest.raises(cu.BufferExportedError, match="a host view of it"):
        managed.discard(stream)
    view.release()
    loan = managed.lend(stream)
    with loan:
        with unchanged(*CALLS), pytest.raises(cu.BufferExportedError, match="it is lent to"):
            managed.discard(stream)
    stream.synchronize()
    view = managed.lend(None, device="cpu")
    array = np.from_dlpack(view)
    with pytest.raises(cu.BufferExportedError, match="it is lent to"):
        managed.discard(stream)
    del array, view
    managed.discard(stream).wait()


def test_a_loan_that_is_taken_back(managed, stream):
    """A buffer that is taken back inside a loan cannot be discarded.

    The borrower would find undefined bytes after the block.
    """
    loan = managed.lend(stream)
    shown = loan.__cuda_array_interface__
    with loan.back():
        managed.fill_async(1, stream)
        with pytest.raises(cu.BufferExportedError):
            managed.discard(stream)
    del loan, shown
    stream.synchronize()
    managed.discard(stream).wait()


def test_explain(managed, stream):
    managed[16:32].discard(stream)
    assert "The contents of its bytes 16:32 were discarded at" in managed.explain()
    stream.synchronize()
    text = managed[20:64].explain()
    assert "is free" in text
    assert "its bytes 0:12 were discarded" in text
    managed[:] = 1
    assert "discarded" not in managed.explain()


# ---- calls of the driver ----


@software
def test_the_driver_discards(managed, stream, gate):
    gate.hold(stream)
    token = managed.discard(stream)
    assert set(testing.page_places(managed)) == {"host"}
    gate.open()
    token.wait()
    assert set(testing.page_places(managed)) == {None}
    before = testing.page_faults(managed)
    managed[:] = 7
    # No page fault: pages without contents need not be moved.
    assert testing.page_faults(managed) == before


@software
def test_discard_and_prefetch(managed, stream):
    before = [testing.calls(name) for name in CALLS]
    managed.discard_and_prefetch(cu.Device(0), stream).wait()
    assert [testing.calls(name) for name in CALLS] == [before[0], before[1] + 1, before[2]]
    assert set(testing.page_places(managed)) == {0}
    assert managed.advice.last_prefetch == cu.Device(0)
    with pytest.raises(cu.ContentsDiscardedError):
        managed[3]


def test_discard_and_prefetch_to_the_host(managed, stream):
    with stream:
        managed.discard_and_prefetch("host").wait()
    assert managed.advice.last_prefetch == "host"
    managed[:] = 2
    assert managed[-1] == 2


@software
def test_a_batch_is_one_call(managed, stream):
    first, second = managed.split_at(BLOCK)
    before = testing.calls(CALLS[0])
    token = cu.discard_batch([first, second, managed[:0]], stream)
    assert token.writes == (first, second)
    token.wait()
    assert testing.calls(CALLS[0]) == before + 1
    first[:] = 1
    with pytest.raises(cu.ContentsDiscardedError):
        second[0]


def test_bytes_that_are_discarded_twice(managed, stream):
    cu.discard_batch([managed[:100], managed[50:200]], stream)
    stream.synchronize()
    managed[:100] = 1
    with pytest.raises(cu.ContentsDiscardedError, match="bytes 100:200 were"):
        managed.to_numpy()


def test_nothing_to_discard(stream, unchanged):
    empty = cu.UnifiedBuffer(0)
    with unchanged(*CALLS):
        assert empty.discard(stream).done
        assert empty.discard_and_prefetch("host", stream).done
        assert cu.discard_batch([empty], stream).done
    empty.to_numpy()


def test_bad_input(managed, stream, unchanged):
    legacy = cu.Stream.legacy()
    with unchanged(*CALLS):
        for call in (
            lambda: managed.discard(),
            lambda: managed.discard(3),
            lambda: managed.discard_and_prefetch(3, stream),
            lambda: managed.discard_and_prefetch(None, stream),
            lambda: cu.discard_batch([managed]),
            lambda: cu.discard_batch([managed, cu.LockedBuffer(4)], stream),
            lambda: cu.discard_batch([managed, np.zeros(4)], stream),
            lambda: cu.discard_batch(managed.address, stream),
        ):
            with pytest.raises(TypeError):
                call()
        for call in (
            lambda: managed.discard(legacy),
            lambda: managed.discard_and_prefetch("host", legacy),
            lambda: cu.discard_batch([managed], legacy),
            lambda: cu.discard_batch([], stream),
            lambda: managed.discard_and_prefetch("moon", stream),
        ):
            with pytest.raises(ValueError, match=r"legacy|at least one|place is"):
                call()
        for kind in (cu.LockedBuffer, cu.DeviceBuffer):
            assert not hasattr(kind(4), "discard")
    assert managed.to_numpy()[0] == 5


@software
@pytest.mark.parametrize("name", CALLS[:2])
def test_a_failing_call_discards_nothing(managed, stream, name):
    testing.fail(name, cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    places = () if name == CALLS[0] else ("host",)
    discard = managed.discard_and_prefetch if places else managed.discard
    with pytest.raises(cu.CudaError, match=name):
        discard(*places, stream)
    assert not managed.borrowed
    assert managed[0] == 5


@software
def test_a_batch_that_fails_counts_as_begun(managed, stream):
    testing.fail(CALLS[0], cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(cu.CudaError, match=CALLS[0]):
        cu.discard_batch(managed.split_at(8), stream)
    assert managed.borrowed
    stream.synchronize()
    with pytest.raises(cu.ContentsDiscardedError):
        managed[0]


OLD = """
import cudadrv as cu
from cudadrv._driver import missing_functions
buffer, stream = cu.UnifiedBuffer.zeros(65536, "u1", pooled=False), cu.Stream()
assert "cuMemDiscardBatchAsync" in missing_functions()
buffer.discard(stream)
try:
    buffer.to_numpy()
except cu.BufferBorrowedError:
    raise SystemExit("discarded is said first")
except cu.ContentsDiscardedError:
    pass
stream.synchronize()
buffer[:] = 1
buffer.discard_and_prefetch(cu.Device(0), stream).wait()
assert buffer.advice.last_prefetch == cu.Device(0)
cu.discard_batch(buffer.chunks(16384), stream).wait()
try:
    buffer[0]
except cu.ContentsDiscardedError:
    print("refused")
"""


@software
def test_a_driver_that_cannot_discard(driver, script):
    """On a driver that cannot discard, the same rules hold."""
    said = script.run(OLD, CUDADRV_SOFTWARE="driver=12.4")
    assert (said.returncode, said.stdout) == (0, "refused\n"), said.stderr


@software
def test_without_concurrent_access(driver, script):
    said = script.run(
        """
import cudadrv as cu
buffer, stream = cu.UnifiedBuffer(16), cu.Stream()
for call in (
    lambda: buffer.discard(stream),
    lambda: buffer.discard_and_prefetch("host", stream),
    lambda: cu.discard_batch([buffer], stream),
):
    try:
        call()
    except ValueError as error:
        print("concurrent_managed_access is 0" in str(error))
buffer.to_numpy()
""",
        CUDADRV_SOFTWARE="concurrent_managed=0",
    )
    assert said.stdout == "True\n" * 3, said.stderr
