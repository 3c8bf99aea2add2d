"""`Buffer.to`: makes a buffer usable at a place. It moves or copies only if necessary."""

import numpy as np
import pytest

import cudadrv as cu

ITEMS = np.arange(24, dtype="f4").reshape(4, 6)
CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
software = pytest.mark.cuda_software


def made(kind, name="data"):
    return CLASSES[kind].from_array(ITEMS, name=name)


def items_of(buffer):
    array = np.empty(buffer.shape, buffer.dtype)
    buffer.copy_to(array)
    return array


def place_of(kind):
    return "host" if kind == "locked" else cu.Device(0)


@pytest.mark.parametrize("kind", CLASSES)
def test_what_is_there_already_is_the_result(driver, kind):
    buffer = made(kind)
    assert buffer.to(place_of(kind)) is buffer
    assert buffer.to(place_of(kind), kind=kind) is buffer
    part = buffer[6:12]
    assert part.to(place_of(kind)) is part
    assert np.array_equal(items_of(buffer), ITEMS)


@pytest.mark.parametrize("stream_given", [False, True], ids=["blocking", "on a stream"])
@pytest.mark.parametrize("wanted", CLASSES)
@pytest.mark.parametrize("kind", CLASSES)
def test_copies_and_other_kinds(driver, stream, kind, wanted, stream_given):
    buffer = made(kind)
    options = {"stream": stream} if stream_given else {}
    found = buffer.to(place_of(wanted), copy=True, kind=wanted, **options)
    assert type(found) is CLASSES[wanted]
    assert found is not buffer
    assert (found.shape, found.dtype, found.name) == (ITEMS.shape, ITEMS.dtype, "data")
    assert found.borrowed is stream_given
    stream.synchronize()
    assert np.array_equal(items_of(found), ITEMS)
    found.fill(7)
    assert np.array_equal(items_of(buffer), ITEMS)


@pytest.mark.parametrize(
    ("kind", "place", "cls"),
    [("device", "host", cu.LockedBuffer), ("locked", cu.Device(0), cu.DeviceBuffer)],
    ids=["device to host", "host to device"],
)
def test_the_kind_that_belongs_there(driver, kind, place, cls):
    found = made(kind).to(place)
    assert type(found) is cls
    assert np.array_equal(items_of(found), ITEMS)
    back = found.to("host").to(cu.Device(0)).to("host")
    assert np.array_equal(back.to_numpy(), ITEMS)


def test_on_a_stream_the_result_is_written_until_the_host_waits(driver, stream, other, gate):
    source = made("device")
    gate.hold(stream)
    arrived = source.to("host", stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"being written by to on Stream \d+, queued"):
        arrived.to_numpy()
    with pytest.raises(cu.BufferBorrowedError, match="by to on"):
        arrived.to(cu.Device(0), stream=other)
    source.to("host", stream=other)  # allowed: two readers
    gate.open()
    stream.synchronize()
    assert np.array_equal(arrived.to_numpy(), ITEMS)
    other.synchronize()


def test_managed_memory_is_handed_over(driver, stream, other, gate):
    """Managed memory is not usable elsewhere before `to` is known to be complete.

    This holds even if no page has to move.
    """
    shared = made("unified")
    gate.hold(stream)
    assert shared.to(cu.Device(0), stream=stream) is shared
    with pytest.raises(cu.BufferBorrowedError):
        shared.flat[0]
    target = cu.DeviceBuffer(24, "f4")
    with pytest.raises(cu.BufferBorrowedError, match="being written by to on"):
        target.copy_from_async(shared, other)
    target.copy_from_async(shared, stream)
    assert shared.to("host", stream=stream) is shared
    gate.open()
    stream.synchronize()
    assert np.array_equal(shared.to_numpy(), ITEMS)


def test_managed_memory_waits_for_its_users(driver, stream):
    """`to` is refused while unfinished work of another stream uses the memory.

    Work of the stream on which `to` runs is no conflict.
    """
    shared = made("unified")
    shared.fill_async(3, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"write .* by to on a stream of its own"):
        shared.to("host")
    with stream:
        assert shared.to("host") is shared
    assert shared.flat[0] == 3
    with shared.read(), pytest.raises(cu.BufferExportedError):
        shared.to(cu.Device(0), stream=stream)
    with cu.ordering("wait"):
        shared.fill_async(4, stream)
        assert shared.to("host").flat[0] == 4


@software
def test_pages_go_there(driver, stream):
    from cudadrv import testing

    if not cu.Device(0).attribute("concurrent_managed_access"):
        pytest.skip("this device takes no prefetches")
    shared = cu.UnifiedBuffer.zeros(1 << 16, "u4", pooled=False)
    shared.to(cu.Device(0))
    assert set(testing.page_places(shared)) == {0}
    shared.to("host", stream=stream)
    stream.synchronize()
    assert set(testing.page_places(shared)) == {"host"}
    faults = testing.page_faults(shared)
    shared.flat[5] = 1
    assert testing.page_faults(shared) == faults
    copy = shared.to(cu.Device(0), copy=True)
    assert set(testing.page_places(copy)) == {0}


def test_memory_from_a_stream(stream):
    """With `stream`, the result is allocated in the order of that stream."""
    with made("device") as source:
        first = source.to("host", stream=stream)
        source.to(cu.Device(0), copy=True, stream=stream).fill_async(0, stream)
        stream.synchronize()
        assert first.to_numpy()[3, 5] == 23


@pytest.mark.parametrize("kind", CLASSES)
def test_empty_and_scalar_buffers(driver, stream, kind):
    for count in (0, 1):
        buffer = CLASSES[kind].zeros(count, "u2")
        for place in ("host", cu.Device(0)):
            for options in ({}, {"copy": True}, {"stream": stream}):
                found = buffer.to(place, **options)
                stream.synchronize()
                assert items_of(found).tolist() == [0] * count


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    ("place", "options", "error", "text"),
    [
        (0, {}, TypeError, "a place is a Device, 'host' or 'host:N', and not 0"),
        ("cpu", {}, ValueError, "a place is a Device, 'host' or 'host:N' with .* not 'cpu'"),
        ("host", {"kind": "pinned"}, ValueError, "kind is 'pinned', and must be 'device'"),
        ("host", {"kind": cu.LockedBuffer}, TypeError, "kind must be a str, not type"),
        ("host", {"kind": "device"}, ValueError, "a DeviceBuffer is on a device, and the place"),
        ("host:0", {"kind": "locked"}, ValueError, "only a UnifiedBuffer can be on a certain NUMA"),
        ("host", {"stream": 3}, TypeError, "stream must be a Stream"),
    ],
)
def test_wrong_arguments(driver, kind, place, options, error, text):
    buffer = made(kind)
    with pytest.raises(error, match=text):
        buffer.to(place, **options)
    assert not buffer.borrowed


def test_locked_memory_is_on_no_device(driver):
    with pytest.raises(ValueError, match="a LockedBuffer is on the host, and the place is <Device"):
        made("locked").to(cu.Device(0), kind="locked")
    with pytest.raises(ValueError, match="only a UnifiedBuffer can be on a certain NUMA node"):
        made("device").to("host:0", kind="locked")


@pytest.mark.parametrize("kind", CLASSES)
def test_closed_and_moved_buffers(driver, stream, kind):
    buffer = made(kind)
    kept = buffer.take()
    for options in ({}, {"stream": stream}):
        with pytest.raises(cu.BufferClosedError, match="was moved at"):
            buffer.to("host", **options)
    kept.close()
    with pytest.raises(cu.BufferClosedError, match="was closed at"):
        kept.to(cu.Device(0))
    stream.close()
    with pytest.raises(ValueError, match="is closed"):
        made(kind).to(cu.Device(0), copy=True, stream=stream)


def test_memory_of_another_library_that_is_read_only(driver, stream):
    """Read-only memory of another library can be moved by `to`, because a move writes no byte."""
    items = made("unified")
    with stream:
        theirs = cu.from_dlpack(items.lend(stream, readonly=True))
    with pytest.raises(BufferError, match="read-only"):
        theirs.fill_async(0, stream)
    assert theirs.to("host", stream=stream) is theirs
    stream.synchronize()
    assert theirs.to("host", kind="locked", stream=stream).shape == ITEMS.shape
    stream.synchronize()
