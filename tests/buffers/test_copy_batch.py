"""`copy_batch`: many copies as one operation."""

import numpy as np
import pytest

import cudadrv as cu

CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}


def numbers(count=64):
    return np.arange(count, dtype="u4")


@pytest.mark.parametrize("source", CLASSES)
@pytest.mark.parametrize("target", CLASSES)
@pytest.mark.parametrize("count", [1, 2, 64])
def test_copies_between_kinds(stream, source, target, count):
    given = CLASSES[source].from_array(numbers())
    made = CLASSES[target].zeros(64, "u4")
    size = 64 // count
    pairs = zip(made.chunks(size), reversed(given.chunks(size)), strict=True)
    token = cu.copy_batch(pairs, stream)
    assert {borrow.operation for borrow in made.borrows} == {"copy_batch"}
    token.wait()
    assert token.done
    wanted = np.concatenate(numbers().reshape(count, size)[::-1])
    assert np.array_equal(made.to_numpy(), wanted)


def test_it_is_one_operation(stream, other, gate):
    """All copies are refused, or none; one token stands for all."""
    made, given = (
        cu.DeviceBuffer.zeros(64, "u4", name="made"),
        cu.LockedBuffer.from_array(numbers()),
    )
    gate.hold(stream)
    made[:8].fill_async(7, stream)
    pairs = [(made[32:], given[32:]), (made[:32], given[:32])]
    with pytest.raises(cu.BufferBorrowedError, match=r"write .*'made'\[0:32\].* by copy_batch on"):
        cu.copy_batch(pairs, other)
    assert not given.borrowed
    token = cu.copy_batch(pairs, stream)
    assert len(given.borrows) == 2
    other.wait(token)
    made.fill_async(1, other)
    gate.open()
    other.synchronize()
    assert (made.to_numpy() == 1).all()
    assert not given.borrowed


def test_boxes(stream):
    image = cu.DeviceBuffer.from_array(numbers(256).reshape(16, 16))
    tiles = [cu.DeviceBuffer.zeros(16, "u4").reshape(4, 4) for _ in range(4)]
    boxes = [image[4 * i : 4 * i + 4, 4 * i : 4 * i + 4] for i in range(4)]
    cu.copy_batch(zip(tiles, boxes, strict=True), stream).wait()
    for tile, box in zip(tiles, boxes, strict=True):
        assert np.array_equal(tile.to_numpy(), box.to_numpy())
    left, right = image[:, :8], image[:, 8:]
    half = cu.DeviceBuffer.zeros(128, "u4").reshape(16, 8)
    cu.copy_batch([(left, half), (right, half)], stream).wait()
    assert not image.to_numpy().any()
    with pytest.raises(ValueError, match=r"items 0 and 1 of the batch overlap: .*\[0:16, 7:15\]"):
        cu.copy_batch([(left, half), (image[:, 7:15], half)], stream)


@pytest.mark.parametrize(
    ("pairs", "match"),
    [
        (
            [(0, 4, 8), (4, 8, 20)],
            "items 0 and 1 .* is read by item 1, and .* is written by item 0",
        ),
        ([(0, 4, 8), (8, 12, 2)], "items 0 and 1"),
        ([(0, 4, 8), (20, 24, 8), (2, 6, 30)], "items 0 and 2 .* is written .* and .* is written"),
        ([(8, 12, 0), (20, 24, 4), (30, 34, 10)], "items 0 and 2"),
    ],
)
def test_items_that_overlap(stream, pairs, match):
    """(first item, end, first item of the source): the pairs are parts of one buffer."""
    whole = cu.DeviceBuffer.from_array(numbers(), name="whole")
    batch = [(whole[a:b], whole[c : c + b - a]) for a, b, c in pairs]
    if match == "items 0 and 1 .* is read by item 1, and .* is written by item 0":
        batch[1] = (cu.DeviceBuffer(4, "u4"), whole[2:6])
    for order in (batch, batch[::-1]):
        with pytest.raises(ValueError, match="of the batch overlap"):
            cu.copy_batch(order, stream)
    assert not whole.borrowed
    one_source = [(cu.DeviceBuffer(4, "u4"), whole[:4]) for _ in range(8)]
    cu.copy_batch(one_source, stream).wait()  # many may read the same bytes


def test_many_items(stream):
    """The time of the check grows linearly with the number of items, even if all of them read the
    same bytes.
    """
    target, source = (
        cu.DeviceBuffer(20_000, "u1"),
        cu.DeviceBuffer.from_array(numbers(1).view("u1")),
    )
    pairs = [(part, source[:1]) for part in target.chunks(1)]
    cu.copy_batch(pairs, stream).wait()
    assert (target.to_numpy() == 0).all()


def test_what_it_takes(stream):
    made, given = cu.DeviceBuffer(4, "u4", name="made"), cu.LockedBuffer(4, "u4")
    for pairs, error, match in (
        ([], ValueError, "at least one pair"),
        ([(made, given), made], TypeError, "item 1 of the batch is <DeviceBuffer 'made'"),
        ([(made, given, given)], TypeError, "item 0 of the batch is"),
        ([(made, np.zeros(4, "u4"))], TypeError, "not a pair of buffers"),
        (None, TypeError, "not iterable"),
        ([(made, given[:2])], ValueError, "copy between parts of the same size"),
        ([(made, given.view("f4"))], TypeError, "different dtypes"),
    ):
        with pytest.raises(error, match=match) as caught:
            cu.copy_batch(pairs, stream)
        if "same size" in match:
            assert caught.value.__notes__ == ["This is item 0 of the batch."]
    with pytest.raises(TypeError, match="copy_batch needs a stream"):
        cu.copy_batch([(made, given)])
    with stream:
        cu.copy_batch([(made[2:2], given[1:1]), (made, made)]).wait()  # nothing to copy
    with pytest.raises(cu.BufferExportedError), given.write():
        cu.copy_batch([(made, given)], stream)
    given.close()
    with pytest.raises(cu.BufferClosedError):
        cu.copy_batch([(made, given)], stream)


def test_a_capture_refuses_it(stream):
    made, given = cu.DeviceBuffer(4, "u4"), cu.LockedBuffer(4, "u4")
    graph = cu.Graph()
    with graph.capture(stream), pytest.raises(cu.CaptureError, match="copy_batch"):
        cu.copy_batch([(made, given)], stream)


def test_two_devices(driver, stream):
    if cu.Device.count() < 2:
        pytest.skip("needs two devices")
    near, far = (
        cu.DeviceBuffer.from_array(numbers()),
        cu.DeviceBuffer(64, "u4", device=cu.Device(1)),
    )
    cu.copy_batch([(far[:32], near[32:]), (far[32:], near[:32])], stream).wait()
    assert far.to_numpy().tolist() == [*range(32, 64), *range(32)]
