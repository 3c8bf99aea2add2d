"""Boxes: parts of buffers with two or three dimensions, whose rows have gaps between them."""

import itertools

import numpy as np
import pytest

import cudadrv as cu

CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
KINDS = pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
ON_HOST = pytest.mark.parametrize("cls", [cu.LockedBuffer, cu.UnifiedBuffer])
ON_DEVICE = pytest.mark.parametrize("cls", [cu.DeviceBuffer, cu.UnifiedBuffer])
IMAGE, VOLUME = (12, 16), (4, 6, 8)
KEYS = {
    IMAGE: [
        np.s_[2:5, 3:9],
        np.s_[:, 3],
        np.s_[3],
        np.s_[-1, 2:4],
        np.s_[..., 5:7],
        np.s_[4:4, 2:3],
        np.s_[:, -3:],
        np.s_[2:9],
        np.s_[0:1, 4:5],
        np.s_[...],
        np.s_[:, 20:30],
        (),
        np.s_[-40:2],
    ],
    VOLUME: [
        np.s_[1:3, 2:4, 1:5],
        np.s_[0],
        np.s_[:, 2],
        np.s_[:, :, 3],
        np.s_[..., 1:2],
        np.s_[0, :, 3],
        np.s_[-1, 1:],
        np.s_[:, 2:4],
        np.s_[2:, 5, 6],
        np.s_[1:3, :, 2:6],
    ],
}
PAIRS = [(shape, key) for shape, keys in KEYS.items() for key in keys]
FILLS = {"u1": 7, "i2": -3, "f4": 2.5, "f8": 1.25, "i8": -2, "c16": 1 - 2j}


def numbers(shape, dtype="f4"):
    return np.arange(np.prod(shape), dtype="i4").reshape(shape).astype(dtype)


@KINDS
@pytest.mark.parametrize(("shape", "key"), PAIRS, ids=str)
def test_indices_mean_what_they_mean_in_numpy(cls, shape, key):
    array = numbers(shape)
    buffer = cls.from_array(array, name="image")
    part, wanted = buffer[key], array[key]
    assert part.shape == wanted.shape
    assert (part.count, part.nbytes) == (wanted.size, wanted.nbytes)
    assert len(part) == len(wanted)
    if wanted.size:
        assert [s for s, n in zip(part.strides, part.shape, strict=True) if n > 1] == [
            s for s, n in zip(wanted.strides, wanted.shape, strict=True) if n > 1
        ]
    found = part.to_numpy()
    assert found.flags.c_contiguous
    assert np.array_equal(found, wanted)
    assert np.array_equal(part[...].to_numpy(), wanted)


@KINDS
@pytest.mark.parametrize(("shape", "key"), PAIRS, ids=str)
def test_only_the_bytes_of_a_box_are_written(cls, shape, key):
    array = numbers(shape)
    buffer = cls.from_array(array)
    array[key] = 100 + np.arange(array[key].size).reshape(array[key].shape)
    buffer[key].copy_from(np.ascontiguousarray(array[key]))
    assert np.array_equal(buffer.to_numpy(), array)
    array[key] = 5
    buffer[key].fill(5)
    assert np.array_equal(buffer.to_numpy(), array)


@KINDS
def test_parts_of_parts(cls):
    array = numbers(VOLUME)
    buffer = cls.from_array(array, name="volume")
    for keys in itertools.product(KEYS[VOLUME], [np.s_[1:], np.s_[..., 1:], np.s_[0], np.s_[:1]]):
        part, wanted = buffer, array
        for key in keys:
            if np.ndim(wanted[key]):
                part, wanted = part[key], wanted[key]
        assert np.array_equal(part.to_numpy(), wanted)
    assert repr(buffer[1:3, 2, 1:5][1, 2:]) == f"<{cls.__name__} 'volume' 2 x float32>"
    with pytest.raises(ValueError, match=r"'volume'\[2, 2, 3:5\] \(float32\) has 2 items"):
        buffer[1:3, 2, 1:5][1, 2:].copy_from(np.zeros(3, "f4"))


@KINDS
def test_indices_that_cannot_be(cls):
    buffer = cls.from_array(numbers(IMAGE))
    for key, error, match in (
        (np.s_[::2], ValueError, "the step of a slice must be 1, not 2"),
        (np.s_[:, ::-1], ValueError, "must be 1, not -1"),
        (np.s_[12], IndexError, "index 12 of dimension 0, which has 12"),
        (np.s_[0:2, -17], IndexError, "index -17 of dimension 1, which has 16"),
        (np.s_[1, 2, 3], IndexError, "too many indices: 3 for 2 dimensions$"),
        (np.s_[..., ...], IndexError, "at most one"),
        (np.s_[None], TypeError, "not NoneType"),
        (np.s_[True], TypeError, "not True"),
        (np.s_[1.0], TypeError, "not float"),
        (np.s_[[1, 2]], TypeError, "not list"),
        (np.s_["x"], TypeError, "not str"),
        (np.s_[2**70], IndexError, "of dimension 0"),
    ):
        with pytest.raises(error, match=match):
            buffer[key]
    if cls is cu.DeviceBuffer:
        with pytest.raises(TypeError, match="has no access to single items"):
            buffer[1, 2]
    else:
        assert buffer[1, 2] == 18
    four = cls(4 * 4 * 4 * 4).reshape(4, 4, 4, 4)
    assert four[1].shape == (4, 4, 4)
    assert four[:, 1:3].shape == (4, 2, 4, 4)
    with pytest.raises(ValueError, match="has 4 dimensions that cannot be joined"):
        four[:, 1:3, 1:3, 1:3]


@KINDS
def test_what_needs_items_in_one_piece(cls, stream):
    box = cls.from_array(numbers(IMAGE), name="image")[:, 2:4]
    uses = [
        lambda: box.reshape(-1),
        lambda: box.flat,
        lambda: box.view("u1"),
        lambda: box.share(stream),
        lambda: box.lend(stream, shape=(24,)),
    ]
    if cls is cu.UnifiedBuffer:
        uses += [
            lambda: box.prefetch(cu.Device(0), stream),
            lambda: box.discard(stream),
            lambda: box.advise(read_mostly=True),
        ]
    for use in uses:
        with pytest.raises(
            ValueError,
            match=r"needs items in one piece, .*'image'\[0:12, 2:4\] \(float32\) have gaps",
        ):
            use()
    assert box.view("u4").shape == (12, 2)
    with pytest.raises(ValueError, match="is a part"):
        box.close()


@KINDS
@pytest.mark.parametrize("dtype", FILLS)
@pytest.mark.parametrize("key", [np.s_[3:9, 2:7], np.s_[:, 4], np.s_[1:3, 2:5, 1:4]], ids=str)
def test_fills(cls, stream, dtype, key):
    shape = VOLUME if len(key) == 3 else IMAGE
    array = np.zeros(shape, dtype)
    buffer = cls.from_array(array)
    array[key] = FILLS[dtype]
    buffer[key].fill_async(FILLS[dtype], stream)
    stream.synchronize()
    assert np.array_equal(buffer.to_numpy(), array)
    buffer[key].fill(0)
    assert not buffer.to_numpy().view("u1").any()


@pytest.mark.parametrize("source", CLASSES)
@pytest.mark.parametrize("target", CLASSES)
@pytest.mark.parametrize("key", [np.s_[2:5, 3:9], np.s_[1:3, 2:4, 1:5], np.s_[:, 2]], ids=str)
def test_copies_between_kinds(stream, source, target, key):
    shape = VOLUME if len(key) == 3 else IMAGE
    array = numbers(shape)
    given = CLASSES[source].from_array(array)
    made = CLASSES[target].from_array(-array)
    packed = CLASSES[target](array[key].size, "f4").reshape(array[key].shape)
    made[key].copy_from_async(given[key], stream)
    given[key].copy_to_async(packed, stream)
    stream.synchronize()
    wanted = -array
    wanted[key] = array[key]
    assert np.array_equal(made.to_numpy(), wanted)
    assert np.array_equal(packed.to_numpy(), array[key])
    packed.fill(9)
    made[key].copy_from(packed)
    wanted[key] = 9
    assert np.array_equal(made.to_numpy(), wanted)


def test_boxes_of_other_strides(stream):
    """A copy joins only dimensions that can be joined in both boxes."""
    array = numbers((4, 6, 8))
    one = cu.from_array(array, kind="device")[:, :, 2:5]  # its slices are joined to rows
    two = cu.from_array(np.zeros((4, 9, 8), "f4"), kind="device")[:, 1:7, 3:6]
    two.copy_from_async(one, stream).wait()
    assert np.array_equal(two.to_numpy(), array[:, :, 2:5])
    with pytest.raises(
        ValueError, match=r"has shape \(4, 6, 3\), and .* \(4, 6, 2\); copy between"
    ):
        two.copy_from(one[..., :2])
    with pytest.raises(ValueError, match=r"has shape \(2,\), and the array \(2, 1\); a box is"):
        one[0, :2, 0].copy_from(np.zeros((2, 1), "f4"))


@KINDS
def test_arrays_with_any_strides(cls):
    buffer = cls.from_array(numbers(IMAGE))
    array = np.zeros((32, 24), "f4")
    buffer[2:6, 3:9].copy_to(array[::-4, ::4][:4])
    assert np.array_equal(array[::-4, ::4][:4], numbers(IMAGE)[2:6, 3:9])
    buffer[:, 2:5].copy_from(array.T[:12, 4:7])
    assert np.array_equal(buffer.to_numpy()[:, 2:5], array.T[:12, 4:7])


@ON_DEVICE
def test_column_halves_do_not_conflict(cls, stream, other, gate):
    buffer = cls.from_array(numbers(IMAGE), name="image")
    left, right = buffer[:, :8], buffer[:, 8:]
    gate.hold(stream)
    left.fill_async(1, stream)
    right.fill_async(2, other)
    other.synchronize()
    assert (right.to_numpy(stream=other) if cls is cu.DeviceBuffer else right.to_numpy() == 2).any()
    for busy in (buffer, buffer[3], buffer[:, 7:9], left, buffer[11, 7:]):
        with pytest.raises(cu.BufferBorrowedError, match="is being written by fill_async on"):
            busy.fill_async(3, other)
    buffer[0, 8:].fill_async(3, other)
    assert [each.start for each in left.borrows] == [0]
    assert [each.mode for each in right.borrows] == ["write"]
    gate.open()
    stream.synchronize()
    other.synchronize()
    wanted = np.full(IMAGE, 1, "f4")
    wanted[:, 8:] = 2
    wanted[0, 8:] = 3
    assert np.array_equal(buffer.to_numpy(), wanted)
    assert not buffer.borrowed


def test_a_refusal_names_the_box(stream, other, gate):
    image = cu.DeviceBuffer(480 * 640, "f4", name="image").reshape(480, 640)
    gate.hold(stream)
    image[0:480, 320:640].fill_async(0, stream)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        image[400:, 300:400].fill_async(1, other)
    assert "cannot write DeviceBuffer 'image'[400:480, 300:400] (float32) by fill_async" in str(
        caught.value
    )
    assert "DeviceBuffer 'image'[0:480, 0:640] (float32) is in use" in image.explain()
    assert "is free" in image[:, :320].explain()
    gate.open()
    stream.synchronize()


@ON_HOST
def test_views_of_the_host(cls, stream):
    array = numbers(IMAGE)
    buffer = cls.from_array(array, name="image")
    with buffer[2:5, 3:9].write() as found:
        assert found.strides == (64, 4)
        found[...] = 0
        if cu.Device(0).attribute("concurrent_managed_access") or cls is cu.LockedBuffer:
            buffer[:, 9:].fill_async(4, stream)
        with pytest.raises(cu.BufferExportedError, match=r"exported|in use|host"):
            buffer[4, :4].fill_async(4, stream)
    stream.synchronize()
    array[2:5, 3:9] = 0
    assert np.array_equal(buffer[:, :9].to_numpy(), array[:, :9])
    with buffer[:, 3].read() as column:
        assert column.tolist() == array[:, 3].tolist()
    assert np.array_equal(np.asarray(buffer[1:3, 2:4]), array[1:3, 2:4])
    assert bytes(buffer[1:3, 2:4]) == array[1:3, 2:4].tobytes()
    view = memoryview(buffer[1:3, 2:4])
    assert (view.shape, view.strides, view.nbytes) == ((2, 2), (64, 4), 16)
    assert view.tolist() == array[1:3, 2:4].tolist()
    view.release()
    buffer[1:3, 2:4] = [[1, 2], [3, 4]]
    buffer[5:7, 2:4] = 8
    buffer[:, 0] = np.arange(12)
    assert buffer[2, 3] == 4
    buffer[2, 3] = 6
    array[1:3, 2:4], array[5:7, 2:4], array[:, 0] = [[1, 2], [3, 6]], 8, np.arange(12)
    assert np.array_equal(buffer[:, :9].to_numpy(), array[:, :9])
    assert not buffer.borrowed


@KINDS
def test_pitched(stream, cls):
    if cls is not cu.DeviceBuffer:
        assert not hasattr(cls, "pitched")
        return
    alignment = cu.Device(0).attribute("texture_alignment")
    image = cls.pitched((5, 7), "f8", name="image")
    assert (image.shape, image.strides) == ((5, 7), (alignment, 8))
    assert (image.count, image.nbytes, len(image)) == (35, 280, 5)
    assert all(row.address % alignment == 0 for row in image)
    volume = cls.pitched((2, 3, 7), "i2", stream=stream)
    assert volume.strides == (3 * alignment, alignment, 2)
    array = numbers((2, 3, 7), "i2")
    volume.copy_from(array, stream=stream)
    assert np.array_equal(volume.to_numpy(stream=stream), array)
    whole = cls.pitched((4, alignment), "u1")
    assert whole.strides == (alignment, 1)
    assert whole.flat.count == 4 * alignment
    assert cls.pitched((0, 4)).count == 0
    for bad in ((4,), (1, 2, 3, 4), (-1, 4)):
        with pytest.raises(ValueError, match="two or three sizes"):
            cls.pitched(bad)
    with pytest.raises(TypeError, match="must be a tuple of two or three sizes, and is 4"):
        cls.pitched(4)
    image.close()
    assert image.closed


def test_arrays_of_other_libraries(stream):
    """Strided arrays are boxes, in both directions."""
    memory = cu.DeviceBuffer.from_array(numbers(IMAGE), name="theirs")
    box = memory[2:5, 3:9]

    class Array:
        def __init__(self, strides=box.strides, shape=box.shape):
            self.__cuda_array_interface__ = {
                "shape": shape,
                "typestr": "<f4",
                "data": (box.address, False),
                "version": 3,
                "strides": strides,
                "stream": None,
            }

    found = cu.from_cuda_array(Array(), stream, ordered=True)
    assert (found.shape, found.strides) == (box.shape, box.strides)
    assert np.array_equal(found.to_numpy(stream=stream), numbers(IMAGE)[2:5, 3:9])
    del found
    for strides in ((4, 24), (64, 0), (-64, 4), (8, 4)):
        with pytest.raises(BufferError, match="cannot be used"):
            cu.from_cuda_array(Array(strides), stream, ordered=True)
    again = cu.from_dlpack(box.lend(stream), stream)
    assert (again.shape, again.strides) == (box.shape, box.strides)
    again.fill_async(5, stream).wait()
    del again
    assert (box.to_numpy(stream=stream) == 5).all()
    assert memory.to_numpy(stream=stream)[2:5, 2].tolist() == numbers(IMAGE)[2:5, 2].tolist()


ADD = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry row_end(.param .u64 target, .param .u32 pitch)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [target];
    ld.param.u32 %r1, [pitch];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, %r1;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}
"""


def test_a_kernel_borrows_the_box(stream, other, gate):
    kernel = cu.Module(ADD)["row_end"]
    buffer = cu.DeviceBuffer.zeros(12 * 16, "u4").reshape(12, 16)
    gate.hold(stream)
    kernel.launch(1, 12, buffer[:, 3], np.uint32(64), stream=stream)
    buffer[:, 4:].fill_async(7, other)
    with pytest.raises(cu.BufferBorrowedError):
        buffer[5].fill_async(7, other)
    gate.open()
    stream.synchronize()
    other.synchronize()
    assert buffer.to_numpy()[:, 3].tolist() == list(range(12))


def test_graphs(stream):
    array = numbers(IMAGE)
    source = cu.LockedBuffer.from_array(array)
    target = cu.DeviceBuffer.zeros(12 * 16, "f4").reshape(IMAGE)
    graph = cu.Graph()
    with graph.capture(stream):
        target[2:5, 3:9].copy_from_async(source[2:5, 3:9], stream)
        target[:, 0].fill_async(7, stream)
    built = cu.Graph()
    first = built.add_copy(target[6:8, 3:9], source[6:8, 3:9])
    built.add_fill(target[:, 1], 8, after=[first])
    wanted = np.zeros(IMAGE, "f4")
    wanted[2:5, 3:9], wanted[6:8, 3:9], wanted[:, 0], wanted[:, 1] = (
        array[2:5, 3:9],
        array[6:8, 3:9],
        7,
        8,
    )
    executables = [graph.instantiate(), built.instantiate()]
    for executable in executables:
        executable.launch(stream)
    with pytest.raises(cu.BufferBorrowedError):
        target[:, 1].fill(0)
    target[:, 12:].fill(3)  # no node uses these columns
    wanted[:, 12:] = 3
    stream.synchronize()
    assert np.array_equal(target.to_numpy(), wanted)
    volume = cu.DeviceBuffer(4 * 6 * 8, "f4").reshape(VOLUME)
    for box, value in ((volume[:, 1:3, 1:3], 1), (target.view("u4")[:, 2:4], 0)):
        if box.shape == (12, 2):
            box = cu.DeviceBuffer(12 * 8, "f8").reshape(12, 8)[:, 2:4]
            value = 1.1
        with pytest.raises(ValueError, match=r"fills .* by several operations"):
            built.add_fill(box, value)


@pytest.mark.parametrize("how", ["graph", "kernel"])
def test_one_operation_replaces_the_reads_of_many_streams(stream, how):
    """The memory had boxes before. A launch, its first use since, drops their empty table."""
    buffer = cu.DeviceBuffer.zeros(16 * 16, "u4").reshape(16, 16)
    graph = cu.Graph()
    with graph.capture(stream):
        buffer.fill_async(3, stream)
    step, kernel = graph.instantiate(), cu.Module(ADD)["row_end"]
    buffer[:2, :2].fill_async(1, stream)
    stream.synchronize()
    buffer.fill(2)
    readers = [cu.Stream() for _ in range(6)]
    for reader in readers:
        cu.LockedBuffer(16 * 16, "u4").reshape(16, 16).copy_from_async(buffer, reader)
    with pytest.raises(cu.BufferBorrowedError):
        buffer[:2, :2].fill_async(1, stream)
    for reader in readers:
        reader.synchronize()
    if how == "graph":
        for _ in range(3):
            step.launch(stream)
    else:
        kernel.launch(1, 12, buffer, np.uint32(64), stream=stream, borrows=[cu.read(buffer)])
    modes = {"graph": {"write"}, "kernel": {"read", "write"}}
    assert {borrow.mode for borrow in buffer.borrows} == modes[how]
    assert {(borrow.start, borrow.stop) for borrow in buffer.borrows} == {(0, buffer.nbytes)}
    stream.synchronize()
    assert buffer.to_numpy()[15, 15] == (3 if how == "graph" else 2)


@KINDS
def test_a_blocking_fill_in_a_capture_queues_nothing(cls, stream):
    box = cls.zeros(12, "u4").reshape(4, 3)[:, 1:]
    graph = cu.Graph()
    with graph.capture(stream):
        with pytest.raises(cu.CaptureError, match="fill"):
            box.fill(3, stream=stream)
    assert not graph.nodes


def test_copies_of_boxes_in_graphs_are_disabled(stream):
    """A copy of a box cannot be disabled or replaced, whether the copy was captured or added."""
    source = cu.DeviceBuffer.from_array(numbers(IMAGE))
    target = cu.DeviceBuffer(12 * 16, "f4")
    box = target.reshape(*IMAGE)[:, 2:4]
    captured, built = cu.Graph(), cu.Graph()
    with captured.capture(stream):
        box.copy_from_async(source[:, 2:4], stream)
    built.add_copy(box, source[:, 2:4])
    for graph in (captured, built):
        with graph.instantiate() as step:
            with pytest.raises(ValueError, match="a change of a copy needs items in one piece"):
                step[0].set(source=source[:, 4:6])
            for enabled in (True, False):
                target.fill(0)
                step[0].enabled = enabled
                step.launch(stream).wait()
                assert bool(target.to_numpy().any()) == enabled


@ON_DEVICE
def test_the_instructions_do_not_depend_on_the_rows(cls):
    """A box of many rows has one record: one borrow, which has few bytes."""
    rows = 4096
    buffer = cls(rows * 8, "u1").reshape(rows, 8)
    stream = cu.Stream()
    buffer[:, :4].fill_async(1, stream)
    assert len(buffer.borrows) == 1
    assert (buffer.borrows[0].start, buffer.borrows[0].stop) == (0, rows * 8 - 4)
    stream.synchronize()
    assert not buffer.borrows


def test_split_of_a_closed_buffer():
    """The index is not looked at first: it counts rows, of which a closed buffer has none."""
    buffer = cu.DeviceBuffer(16).reshape(8, 2)
    buffer.close()
    with pytest.raises(cu.BufferClosedError):
        buffer.split_at(12)
