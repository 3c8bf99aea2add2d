"""Ownership of buffers: who may use which bytes when, and what is unchanged after a refusal."""

import re
import threading

import numpy as np
import pytest

import cudadrv as cu

WORK = (
    "cuMemcpyAsync", "cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuMemsetD8Async", "cuMemsetD32Async", "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFree_v2",
    "cuMemFreeHost", "cuMemFreeAsync", "cuEventRecord", "cuStreamWaitEvent",
)  # fmt: skip


def test_reads_share(make, stream, other):
    source = make("device", 8, "f4", np.zeros(8, "f4"))
    source.copy_to_async(make("locked", 8, "f4"), stream)
    source.copy_to_async(make("locked", 8, "f4"), other)
    assert [borrow.mode for borrow in source.borrows] == ["read", "read"]


def test_disjoint_parts_on_two_streams(make, stream, other, items_of):
    buffer = make("device", 100)
    left, right = buffer.split_at(40)
    left.fill_async(1, stream)
    right.fill_async(2, other)
    with pytest.raises(cu.BufferBorrowedError):
        buffer[39:41].fill_async(3, stream)
    stream.synchronize()
    assert not left.borrowed
    assert right.borrowed
    assert buffer.borrowed
    other.synchronize()
    assert items_of(buffer).tolist() == [1] * 40 + [2] * 60


def test_two_readers_and_a_writer_that_waited_for_one(make, stream, other):
    buffer = make("device", 8)
    writer = cu.Stream()
    buffer.copy_to_async(make("locked", 8), stream)
    second = buffer.copy_to_async(make("locked", 8), other)
    writer.wait(second)
    with pytest.raises(cu.BufferBorrowedError, match="being read by copy_to_async"):
        buffer.fill_async(0, writer)
    writer.wait(stream)
    buffer.fill_async(0, writer).wait()


def test_an_event_is_a_snapshot(make, stream, other):
    buffer = make("device", 8)
    buffer.fill_async(1, stream)
    event = stream.record()
    buffer.fill_async(2, stream)
    other.wait(event)
    with pytest.raises(cu.BufferBorrowedError, match="being written by fill_async"):
        buffer.fill_async(3, other)
    stream.record(event)
    other.wait(event)
    buffer.fill_async(3, other)


def test_a_dropped_token_releases_nothing(make, stream, other):
    buffer = make("device", 8)
    token = buffer.fill_async(1, stream)
    del token
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    token = buffer.fill_async(3, stream)
    token.wait()
    assert not buffer.borrowed
    buffer.fill_async(2, other)


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_the_host_is_kept_out(make, stream, gate, kind):
    buffer, device = make(kind, 8, "u1", np.arange(8, dtype="u1")), make("device", 4)
    gate.hold(stream)
    buffer[:4].copy_to_async(device, stream)
    assert buffer[2] == 2
    assert buffer[6] == 6
    for write in (
        lambda: buffer.__setitem__(2, 0),
        lambda: buffer[1:3].fill(0),
        lambda: buffer[1:3].copy_from(b"ab"),
        lambda: memoryview(buffer[:4]),
        lambda: buffer[:4].write().__enter__(),
    ):
        with pytest.raises(cu.BufferBorrowedError, match=r"cannot write .* from the host"):
            write()
    buffer[6] = 9
    buffer[4:].fill_async(5, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot read .* from the host"):
        buffer[6]
    with pytest.raises(cu.BufferBorrowedError, match="being written by fill_async"):
        buffer.to_numpy()
    gate.open()
    stream.synchronize()
    assert buffer.to_numpy().tolist() == [0, 1, 2, 3, 5, 5, 5, 5]


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_views_keep_the_gpu_out(make, stream, kind):
    buffer = make(kind, 8, "u1", np.arange(8, dtype="u1"))
    device = make("device", 8)
    shared = memoryview(buffer.readonly())
    device.copy_from_async(buffer, stream)
    with pytest.raises(cu.BufferExportedError, match="a host view of it is alive"):
        buffer.fill_async(0, stream)
    shared.release()
    stream.synchronize()
    alone = memoryview(buffer)
    with pytest.raises(cu.BufferExportedError):
        device.copy_from_async(buffer, stream)
    alone.release()
    buffer.fill_async(0, stream)


def test_what_the_internal_stream_knows(make, stream):
    """A blocking call without a stream is ordered only after work that the host has waited for."""
    buffer = make("device", 8)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill(2)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.copy_to(bytearray(8))
    buffer.fill(2, stream=stream)
    with stream:
        buffer.fill_async(3)
        buffer.fill(4)
    buffer.fill(5)


def test_stream_ordered_allocation_is_a_write(stream, other):
    buffer = cu.DeviceBuffer(8, stream=stream)
    assert buffer.borrows[0].operation == "its allocation"
    with pytest.raises(cu.BufferBorrowedError, match="being written by its allocation"):
        buffer.fill_async(1, other)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot close DeviceBuffer on Stream \d+:"):
        buffer.close(other)
    other.wait(stream)
    buffer.close(other)
    assert buffer.closed


def test_a_refusal_says_what_the_legacy_stream_is_not_ordered_with(make, stream):
    buffer, legacy = make("device", 8), cu.Stream.legacy()
    blocking = [cu.Stream(blocking=True) for _ in range(2)]
    hint = r"ordered with blocking streams only: Stream\(blocking=True\)"
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match=hint):
        buffer.fill_async(2, legacy)
    stream.synchronize()
    buffer.fill_async(3, legacy)
    with pytest.raises(cu.BufferBorrowedError, match=hint):
        buffer.fill_async(4, stream)
    buffer = make("device", 8)
    buffer.fill_async(5, blocking[0])
    for unordered in (stream, blocking[1]):
        with pytest.raises(cu.BufferBorrowedError, match="being written by fill_async") as no:
            buffer.fill_async(6, unordered)
        assert "legacy" not in str(no.value)


def test_a_refusal_says_what_the_policy_cannot_wait_for(make, stream):
    buffer, queued, over = make("device", 8), threading.Event(), threading.Event()

    def job():
        buffer.fill_async(1, cu.Stream.per_thread())
        queued.set()
        over.wait()

    thread = threading.Thread(target=job)
    thread.start()
    queued.wait()
    try:
        with (
            cu.ordering("wait"),
            pytest.raises(cu.BufferBorrowedError, match=r"cannot wait for it: .* another thread"),
        ):
            buffer.fill_async(2, stream)
        stream.context.synchronize()
        buffer.fill_async(3, stream)
    finally:
        over.set()
        thread.join()


def test_a_refusal_offers_what_helps(make, stream):
    buffer = make("device", 8)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="drop the last reference"):
        buffer.close()
    with pytest.raises(cu.BufferBorrowedError, match="cannot give away") as no:
        buffer.into_raw()
    assert "drop the last reference" not in str(no.value)


@pytest.mark.cuda_software
def test_a_refused_call_changes_nothing(make, stream, other, unchanged):
    device, locked = make("device", 8), make("locked", 8)
    stage = make("device", 8)
    stage.copy_from(bytes(8))
    device.copy_to_async(locked, stream)
    before = device.borrows, locked.borrows, repr(stage)
    with unchanged(*WORK):
        for refused in (
            lambda: device.fill_async(0, other),
            lambda: device.copy_from_async(stage, other),
            lambda: stage.copy_from_async(locked, other),
            lambda: device.copy_from_async(bytes(8), other),
            lambda: device.copy_from(bytes(8)),
            lambda: device.fill(0),
            lambda: locked.copy_to(bytearray(8)),
            lambda: locked[0],
            device.close,
            device.into_raw,
            locked.close,
        ):
            with pytest.raises(cu.BufferBorrowedError):
                refused()
    assert (device.borrows, locked.borrows, repr(stage)) == before
    device.fill_async(0, stream)


@pytest.mark.cuda_software
def test_a_refused_copy_stages_nothing(make, stream, unchanged):
    """A copy is refused before it allocates page-locked memory for a stage."""
    device = make("device", 8)
    device.fill_async(0, stream)
    cu.reap()
    with unchanged("cuMemHostAlloc"), pytest.raises(cu.BufferBorrowedError):
        device.copy_from(bytes(8))


# ---- messages ----


def written(stream):
    """A stream without a name, as the remedies of messages write it."""
    return "stream_" + re.search(r"Stream (\d+)", stream)[1]


def test_remedies_use_the_names_of_streams(make):
    buffer, host = make("device", 4), make("locked", 4)
    one, other = cu.Stream(name="up"), cu.Stream(name="copies out")
    buffer.fill_async(1, one)
    with pytest.raises(cu.BufferBorrowedError, match=r"with: stream\.wait\(up\) before it, or"):
        buffer.copy_to_async(host, other)
    one.synchronize()
    buffer.fill_async(1, other)
    with pytest.raises(cu.BufferBorrowedError, match=r"with: up\.wait\(stream\) before it, or"):
        buffer.copy_to_async(host, one)
    third = cu.Stream(name="class")
    with pytest.raises(cu.BufferBorrowedError, match=r"with: stream\.wait\(other_stream\) before"):
        buffer.copy_to_async(host, third)
    legacy = cu.Stream.legacy()
    with pytest.raises(cu.BufferBorrowedError, match=r"with: Stream\.legacy\(\)\.wait\(stream\)"):
        buffer.copy_to_async(host, legacy)


def test_both_sides_are_named(make, stream, other):
    buffer = make("device", 16, "f4", name="frames")
    buffer[4:8].fill_async(0, stream)
    first = buffer.borrows[0]
    with pytest.raises(cu.BufferBorrowedError) as refusal:
        buffer[:8].copy_from_async(make("locked", 8, "f4"), other)
    number, own = repr(stream).split(",")[0][1:], repr(other).split(",")[0][1:]
    assert str(refusal.value) == (
        f"cannot write DeviceBuffer 'frames'[0:8] (float32) by copy_from_async on {own}:\n"
        f"  it is being written by fill_async on {number}, queued at {first.site},\n"
        "  and nothing orders this operation after it.\n"
        f"  Order it with: {written(own)}.wait({written(number)}) before it, or on the host with"
        f" {written(number)}.synchronize() or token.wait()."
    )
    assert first == cu.Borrow("write", number, "fill_async", first.site, 16, 32)
    assert "test_ownership.py:" in first.site
    assert isinstance(refusal.value, BufferError)


def test_the_host_is_told_the_way_out(make, stream):
    buffer = make("locked", 4, "i2", name="ring")
    token = buffer.copy_to_async(make("device", 4, "i2"), stream)
    number = repr(stream).split(",")[0][1:]
    with pytest.raises(cu.BufferBorrowedError) as refusal:
        buffer[1] = 0
    assert str(refusal.value) == (
        "cannot write LockedBuffer 'ring'[1:2] (int16) from the host:\n"
        f"  it is being read by copy_to_async on {number}, queued at {token.site},\n"
        "  and nothing orders this access after it.\n"
        f"  Release it with: {written(number)}.synchronize() or token.wait()."
    )
    assert repr(buffer) == f"<LockedBuffer 'ring' 4 x int16, read by {number}>"


def test_a_plain_view_counts_as_a_write_and_says_so(make, stream):
    buffer = make("locked", 4)
    token = make("device", 4).copy_from_async(buffer, stream)
    with pytest.raises(cu.BufferBorrowedError, match="counts as a write") as no:
        memoryview(buffer)
    assert "buffer.readonly() or buffer.to_numpy()" in str(no.value)
    memoryview(buffer.readonly()).release()  # the way out that the message names works
    token.wait()


def test_a_blocking_call_without_a_stream_says_how_to_give_it_one(make, stream):
    buffer, source = make("device", 4), make("locked", 4)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="by copy_from on a stream of its own") as no:
        buffer.copy_from(source)
    assert f"Order it with: stream={written(repr(stream))}, or" in str(no.value)
    buffer.copy_from(source, stream=stream)


def test_closing_stream_ordered_memory_names_the_other_way(stream, other):
    buffer = cu.DeviceBuffer(16, stream=stream)
    other.wait(stream)
    buffer.fill_async(1, other)
    with pytest.raises(cu.BufferBorrowedError, match=r"buffer\.close\(stream\)"):
        buffer.close()
    buffer.close(other)


def test_the_line_of_a_view_is_named(make, stream):
    buffer = make("locked", 4)
    view = memoryview(buffer)
    with pytest.raises(cu.BufferExportedError) as refusal:
        buffer.fill_async(0, stream)
    assert "made at" in str(refusal.value)
    assert "test_ownership.py:" in str(refusal.value)
    with pytest.raises(cu.BufferExportedError, match="cannot close LockedBuffer:\n  a host view"):
        buffer.close()
    view.release()


def test_explain(make, stream):
    buffer = make("locked", 8, "u1", name="ring")
    assert buffer.explain() == (
        "LockedBuffer 'ring'[0:8] (uint8) is free: no GPU work that uses it may be unfinished."
    )
    token = buffer[2:6].fill_async(0, stream)
    number = repr(stream).split(",")[0][1:]
    assert buffer.explain() == (
        "LockedBuffer 'ring'[0:8] (uint8) is in use:\n"
        f"  bytes 2:6: write by fill_async on {number}, queued at {token.site}\n"
        f"Release it with: {written(number)}.synchronize() or token.wait()."
    )
    assert "is free" in buffer[:2].explain()
    assert "bytes 0:2: write" in buffer[4:].explain()
    token.wait()
    view = memoryview(buffer[2:6])
    assert "in use:\n  a host view of it is alive, made at " in buffer.explain()
    assert "test_ownership.py:" in buffer.explain()
    assert buffer.explain().endswith("or call release() on the memoryview.")
    assert "a host view" in buffer[5:].explain()
    assert "is free" in buffer[6:].explain()
    view.release()
    buffer.close()
    assert "is closed" in buffer.explain()


# ---- policies ----


def test_wait_inserts_what_is_missing(make, stream, other, gate):
    device, locked = make("device", 8), make("locked", 8)
    gate.hold(stream)
    device.fill_async(7, stream)
    with cu.ordering("wait"):
        token = device.copy_to_async(locked, other)
    with pytest.raises(cu.BufferBorrowedError):
        locked.to_numpy()
    gate.open()
    locked.ordering = "wait"
    assert locked.to_numpy().tolist() == [7] * 8
    assert token.done
    assert not device.borrowed
    device.fill_async(8, other)


@pytest.mark.parametrize("level", ["block", "buffer", "context"])
@pytest.mark.parametrize("policy", ["strict", "wait", "unchecked"])
@pytest.mark.cuda_allow("races")
def test_policies_at_three_levels(make, stream, other, level, policy):
    buffer, context = make("device", 8), cu.Device(0).context
    buffer.fill_async(1, stream)
    if level == "buffer":
        buffer.ordering = policy
    elif level == "context":
        context.ordering = policy
    try:
        with cu.ordering(policy if level == "block" else "strict") if level == "block" else stream:
            if policy == "strict":
                with pytest.raises(cu.BufferBorrowedError):
                    buffer.fill_async(2, other)
            else:
                buffer.fill_async(2, other)
                assert len(buffer.borrows) == (1 if policy == "wait" else 2)
    finally:
        context.ordering = None


def test_the_nearest_policy_counts(make, stream, other):
    buffer = make("device", 8)
    buffer.fill_async(1, stream)
    buffer.ordering = "unchecked"
    with cu.ordering("strict"), pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    assert buffer[2:4].ordering == "unchecked"
    with pytest.raises(ValueError, match="'strict', 'wait', 'unchecked'"):
        buffer.ordering = "lenient"


def test_waiting_does_not_help_against_views_and_closing(make, stream):
    buffer = make("locked", 8)
    with cu.ordering("wait"), buffer.read():
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, stream)
    buffer.fill_async(0, stream)
    with cu.ordering("unchecked"):
        with pytest.raises(cu.BufferBorrowedError, match="cannot close"):
            buffer.close()
        view = memoryview(buffer)
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, stream)
        view.release()


@pytest.mark.cuda_allow("races")
def test_unchecked_work_is_remembered(make, stream, other):
    buffer = make("device", 8)
    buffer.fill_async(1, stream)
    with cu.ordering("unchecked"):
        buffer.fill_async(2, other)
    other.synchronize()
    assert buffer.borrowed
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close()
    stream.synchronize()
    assert not buffer.borrowed


def test_closing_stream_ordered_memory_can_wait(stream, other):
    buffer = cu.DeviceBuffer(8, stream=stream)
    with cu.ordering("wait"):
        buffer.close(other)
    assert buffer.closed
