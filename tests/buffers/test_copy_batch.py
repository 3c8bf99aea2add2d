"""`copy_batch`: many copies as one operation."""

import ctypes

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


def calls(*functions):
    from cudadrv import testing

    return [testing.calls(function) for function in functions]


AT_ONCE, SINGLY, BOXED = "cuMemcpyBatchAsync", "cuMemcpyAsync", "cuMemcpy2DAsync_v2"


@pytest.mark.cuda_software
def test_plain_copies_are_one_driver_call(stream):
    made, given = cu.DeviceBuffer(64, "u4"), cu.LockedBuffer.from_array(numbers())
    image = cu.DeviceBuffer.zeros(64, "u4").reshape(8, 8)
    pairs = [*zip(made.chunks(8), given.chunks(8), strict=True), (image[:, :4], image[:, 4:])]
    before = calls(AT_ONCE, SINGLY, BOXED)
    cu.copy_batch(pairs, stream).wait()
    assert calls(AT_ONCE, SINGLY, BOXED) == [before[0] + 1, before[1], before[2] + 1]
    assert np.array_equal(made.to_numpy(), numbers())
    cu.copy_batch(pairs[:1], stream).wait()  # one copy is no batch
    assert calls(AT_ONCE, SINGLY, BOXED) == [before[0] + 1, before[1] + 1, before[2] + 1]


@pytest.mark.cuda_software
def test_a_driver_without_batches(stream):
    from cudadrv import testing

    made, given = cu.DeviceBuffer(64, "u4"), cu.LockedBuffer.from_array(numbers())
    before = calls(SINGLY)
    testing.fail(AT_ONCE, cu.CUresult.CUDA_ERROR_NOT_SUPPORTED)
    cu.copy_batch(zip(made.chunks(8), given.chunks(8), strict=True), stream).wait()
    assert calls(SINGLY) == [before[0] + 8]
    assert np.array_equal(made.to_numpy(), numbers())
    testing.fail(AT_ONCE, cu.CUresult.CUDA_ERROR_NOT_SUPPORTED)
    with pytest.raises(cu.CudaError, match=AT_ONCE):
        cu.copy_batch([(made, numbers())], stream, source_access="during call")
    assert not made.borrowed


def test_default_streams():
    """The driver takes no batch on the legacy default stream."""
    for stream in (cu.Stream.legacy(), cu.Stream.per_thread(), cu.Stream(blocking=True)):
        made, given = cu.DeviceBuffer.zeros(64, "u4"), cu.LockedBuffer.from_array(numbers())
        token = cu.copy_batch(zip(made.chunks(8), given.chunks(8), strict=True), stream)
        assert (len(token.reads), len(token.writes), token.stream) == (8, 8, stream)
        token.wait()
        assert np.array_equal(made.to_numpy(), numbers())


@pytest.mark.cuda_software
def test_batches_that_fail(stream, other):
    """A batch of which the driver may have queued a part keeps its borrows."""
    from cudadrv import testing

    driver = ctypes.CDLL(cu.driver_info().path)
    made, given = cu.DeviceBuffer(64, "u4"), cu.LockedBuffer.from_array(numbers())
    pairs = list(zip(made.chunks(8), given.chunks(8), strict=True))
    testing.fail(AT_ONCE, cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(cu.CudaError, match=AT_ONCE):
        cu.copy_batch(pairs, stream)
    assert not made.borrowed  # the error is not that of a copy
    address = ctypes.c_uint64()
    with stream.context:
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(32)) == 0
    foreign = cu.DeviceBuffer.from_address(address.value, 8, "u4")
    assert driver.cuMemFree_v2(address) == 0
    with pytest.raises(cu.CudaError, match=AT_ONCE):
        cu.copy_batch([*pairs[:7], (foreign, given[56:])], stream)
    assert {borrow.operation for borrow in made.borrows} == {"copy_batch"}
    with pytest.raises(cu.BufferBorrowedError):
        made.fill_async(0, other)
    stream.synchronize()
    assert not made.borrowed
    assert not given.borrowed


@pytest.mark.cuda_software
@pytest.mark.parametrize("nth", [1, 2])
def test_boxes_that_fail(stream, nth):
    from cudadrv import testing

    boxes = [cu.DeviceBuffer.zeros(256, "u4").reshape(16, 16)[:, :4] for _ in range(4)]
    pairs = [(boxes[0], boxes[1]), (boxes[2], boxes[3])]
    testing.configure(f"fault={BOXED}:{nth}:2")
    with pytest.raises(cu.CudaError, match="cuMemcpy2DAsync"):
        cu.copy_batch(pairs, stream)
    testing.configure("fault=none")
    assert [box.borrowed for box in boxes] == [nth == 2] * 4
    stream.synchronize()
    cu.copy_batch(pairs, stream).wait()


@pytest.mark.cuda_software
@pytest.mark.parametrize("nth", [1, 3])
def test_single_copies_that_fail(driver, nth):
    """On the legacy stream the driver gets the copies one by one."""
    from cudadrv import testing

    stream, made = cu.Stream.legacy(), cu.DeviceBuffer.zeros(64, "u4")
    given = cu.LockedBuffer.from_array(numbers())
    pairs = list(zip(made.chunks(8), given.chunks(8), strict=True))
    testing.configure(f"fault={SINGLY}:{nth}:2")
    with pytest.raises(cu.CudaError, match="cuMemcpyAsync"):
        cu.copy_batch(pairs, stream)
    testing.configure("fault=none")
    assert made.borrowed == given.borrowed == (nth == 3)
    stream.synchronize()
    cu.copy_batch(pairs, stream).wait()
    assert np.array_equal(made.to_numpy(), numbers())


# ---- sources that are read during the call ----


@pytest.mark.parametrize("count", [1, 2, 8])
def test_arrays_are_read_during_the_call(stream, gate, count):
    made, given = cu.DeviceBuffer.zeros(64, "u4"), numbers()
    gate.hold(stream)
    token = cu.copy_batch(
        [(part, given[i * 64 // count :][: 64 // count]) for i, part in
         enumerate(made.chunks(64 // count))],
        stream,
        source_access="during call",
    )  # fmt: skip
    given[:] = 9
    assert token.reads == ()
    assert len(token.writes) == count
    assert len(made.borrows) == count
    gate.open()
    token.wait()
    assert np.array_equal(made.to_numpy(), numbers())


def test_what_can_be_read_during_the_call(stream, other, gate):
    made = cu.DeviceBuffer.zeros(16, "u4", name="made")
    image = cu.DeviceBuffer(64, "u4").reshape(8, 8)
    read = lambda *pairs, on=stream: cu.copy_batch(pairs, on, source_access="during call")  # noqa: E731
    # An array with gaps is copied first; bytes have no dtype of their own.
    read((made[:8], numbers()[::8]), (made[8:].view("u1"), bytes(32))).wait()
    assert made.to_numpy().tolist() == [*range(0, 64, 8), *[0] * 8]
    for pair, error, match in (
        ((made, made), TypeError, "is a buffer, which is read in stream order"),
        ((made, numbers()), ValueError, "has 16 items, and the array of shape"),
        ((made, numbers().astype("f4")), TypeError, "different dtypes"),
        ((made, 3), TypeError, "int is neither a buffer"),
        ((image[:, :2], np.zeros((8, 2), "u4")), ValueError, "needs items in one piece"),
    ):
        with pytest.raises(error, match=match) as caught:
            read(pair)
        assert caught.value.__notes__ == ["This is item 0 of the batch."]
    with pytest.raises(TypeError, match="not a pair of a buffer and an array"):
        read((numbers(), made))
    with pytest.raises(ValueError, match="items 0 and 1 of the batch overlap"):
        read((made[:8], numbers(8)), (made[4:12], numbers(8)))
    with pytest.raises(ValueError, match="source_access is 'stream' or 'during call', not 'late'"):
        cu.copy_batch([(made, made)], stream, source_access="late")
    with pytest.raises(ValueError, match="legacy default stream the driver takes no batches"):
        read((made, numbers(16)), on=cu.Stream.legacy())
    graph = cu.Graph()
    with graph.capture(stream), pytest.raises(cu.CaptureError):
        read((made, numbers(16)))
    gate.hold(other)
    made[:4].fill_async(1, other)
    with pytest.raises(cu.BufferBorrowedError, match=r"write .*'made'\[0:8\].* by copy_batch"):
        read((made[8:], numbers(8)), (made[:8], numbers(8)))
    gate.open()
    assert read((made[:0], numbers(0))).done


# ---- graphs ----


def test_a_capture_has_a_node_for_each_copy(stream):
    made, given = cu.DeviceBuffer.zeros(64, "u4"), cu.LockedBuffer.from_array(numbers())
    image = cu.DeviceBuffer.zeros(64, "u4").reshape(8, 8)
    pairs = [(made[:32], given[32:]), (made[32:], given[:32]), (image[:, :4], image[:, 4:])]
    graph = cu.Graph()
    with graph.capture(stream):
        token = cu.copy_batch(pairs, stream)
    assert [node.operation for node in graph.nodes] == ["copy_batch"] * 3
    assert [len(token.reads), len(token.writes)] == [3, 3]
    assert not made.borrowed
    step = graph.instantiate()
    step.launch(stream).wait()
    assert made.to_numpy().tolist() == [*range(32, 64), *range(32)]
    step[graph.nodes[0]].set(target=made[:32], source=given[:32])
    step.launch(stream).wait()
    assert made.to_numpy().tolist() == [*range(32), *range(32)]


def test_what_a_capture_refuses(stream, other):
    made, given = cu.DeviceBuffer.zeros(64, "u4"), cu.LockedBuffer.from_array(numbers())
    graph = cu.Graph()
    with graph.capture(stream):
        made[:8].fill_async(1, stream)
        other.wait(stream.record())
        made[32:40].fill_async(1, other)
        with pytest.raises(ValueError, match="items 0 and 1 of the batch overlap"):
            cu.copy_batch([(made[:8], given[:8]), (made[4:12], given[:8])], stream)
        with pytest.raises(cu.BufferBorrowedError) as caught:
            cu.copy_batch([(made[:8], given[:8]), (made[32:40], given[:8])], stream)
        stream.wait(other)
    (note,) = caught.value.__notes__
    assert note == "This is item 1 of the batch. Those before it are nodes of the graph."
    assert [node.operation for node in graph.nodes] == ["fill_async", "fill_async", "copy_batch"]


# ---- many items, devices, and orders ----


@pytest.mark.parametrize("order", ["forwards", "backwards", "mixed"])
def test_overlaps_are_found_in_any_order(stream, order):
    """A batch in any order is accepted, and one item that overlaps another one is found."""
    made, given = cu.DeviceBuffer.zeros(1000, "u4"), cu.DeviceBuffer.from_array(numbers(1000))
    pairs = list(zip(made.chunks(10), given.chunks(10), strict=True))
    places = {
        "forwards": range(100),
        "backwards": range(99, -1, -1),
        "mixed": [i * 37 % 100 for i in range(100)],
    }[order]
    pairs = [pairs[i] for i in places]
    cu.copy_batch(pairs, stream).wait()
    assert np.array_equal(made.to_numpy(), numbers(1000))
    for index in range(0, 100, 7):
        wrong = pairs.copy()
        wrong[index] = made[10 * places[index] : 10 * places[index] + 11], given[:11]
        if places[index] < 99:
            with pytest.raises(ValueError, match=f"items .*{index}.* of the batch overlap"):
                cu.copy_batch(wrong, stream)
        wrong[index] = cu.DeviceBuffer(4, "u4"), made[10 * places[(index + 1) % 100] + 3 :][:4]
        with pytest.raises(ValueError, match="of the batch overlap"):
            cu.copy_batch(wrong, stream)
    assert not made.borrowed


def test_a_hundred_thousand_items(stream):
    count = 100_000
    target, source = cu.DeviceBuffer.zeros(count, "u2"), cu.DeviceBuffer(count, "u2")
    source.copy_from(np.arange(count, dtype="u2"))
    cu.copy_batch(zip(target.chunks(1), source.chunks(1), strict=True), stream).wait()
    assert np.array_equal(target.to_numpy(), np.arange(count, dtype="u2"))


def test_more_boxes_than_an_allocation_records(stream, other, gate):
    """The boxes after the first 64 are recorded by rows."""
    side, tiles = 24, cu.DeviceBuffer.zeros(24 * 24 * 16).chunks(16)
    given = np.arange((4 * side) ** 2, dtype="u1").reshape(4 * side, 4 * side)
    image = cu.DeviceBuffer.from_array(given)
    places = [
        (slice(4 * i, 4 * i + 4), slice(4 * j, 4 * j + 4)) for i in range(side) for j in range(side)
    ]
    pairs = [(tile.reshape(4, 4), image[at]) for tile, at in zip(tiles, places, strict=True)]
    gate.hold(stream)
    cu.copy_batch(pairs, stream)
    for at in (places[3], places[-1]):
        with pytest.raises(cu.BufferBorrowedError):
            image[at].fill_async(0, other)
    gate.open()
    stream.synchronize()
    for (tile, _), at in list(zip(pairs, places, strict=True))[::17]:
        assert np.array_equal(tile.to_numpy(), given[at])
    cu.copy_batch(pairs, stream).wait()


def test_two_devices(driver, stream):
    if cu.Device.count() < 2:
        pytest.skip("needs two devices")
    near, far = (
        cu.DeviceBuffer.from_array(numbers()),
        cu.DeviceBuffer(64, "u4", device=cu.Device(1)),
    )
    cu.copy_batch([(far[:32], near[32:]), (far[32:], near[:32])], stream).wait()
    assert far.to_numpy().tolist() == [*range(32, 64), *range(32)]
