"""Arrays: what they are made of, copies, parts, and who uses them."""

import gc

import numpy as np
import pytest

import cudadrv as cu

DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4"]
SHAPES = {
    "row": ((13,), {}),
    "image": ((6, 13), {}),
    "volume": ((4, 6, 13), {}),
    "layers of rows": ((5, 13), {"layered": True}),
    "layers of images": ((5, 6, 13), {"layered": True}),
    "cubemap": ((6, 8, 8), {"cubemap": True}),
    "cubemaps": ((12, 8, 8), {"cubemap": True, "layered": True}),
}
EACH_SHAPE = pytest.mark.parametrize(("shape", "options"), SHAPES.values(), ids=SHAPES)
CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
KINDS = pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
KEYS = {
    (13,): [np.s_[3:7], np.s_[2], np.s_[...], np.s_[5:5], np.s_[-4:]],
    (6, 13): [np.s_[2:5, 3:9], np.s_[:, 3], np.s_[3], np.s_[-1, 2:4], np.s_[2, 4], np.s_[1:3]],
    (4, 6, 13): [
        np.s_[1:3, 2:4, 1:5],
        np.s_[0],
        np.s_[:, 2],
        np.s_[:, :, 3],
        np.s_[2, :, 3],
        np.s_[-1, 1:],
        np.s_[1:4, 5, 6],
        np.s_[..., 2:9],
    ],
}
PARTS = [(shape, key) for shape, keys in KEYS.items() for key in keys]


def numbers(shape, dtype="f4", channels=1):
    if channels > 1:
        shape = (*shape, channels)
    return np.arange(np.prod(shape), dtype="i4").reshape(shape).astype(dtype)


@EACH_SHAPE
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_move_the_texels(shape, options, channels, dtype):
    content = numbers(shape, dtype, channels)
    array = cu.Array(shape, dtype, channels=channels, **options)
    assert (array.shape, array.dtype, array.channels) == (shape, np.dtype(dtype), channels)
    assert array.nbytes == content.nbytes
    assert array.layered == options.get("layered", False)
    assert array.cubemap == options.get("cubemap", False)
    array.copy_from(content)
    found = array.to_numpy()
    assert found.shape == content.shape
    assert np.array_equal(found, content)


@EACH_SHAPE
@pytest.mark.parametrize("channels", [1, 4])
@KINDS
def test_buffers(stream, shape, options, channels, cls):
    content = numbers(shape, "u2", channels)
    array = cu.Array(shape, "u2", channels=channels, **options)
    buffer, back = cls.from_array(content), cls.zeros(content.size, "u2")
    array.copy_from(buffer)
    token = array.copy_to_async(back, stream)
    assert token.reads == (array,)
    assert token.writes == (back,)
    token.wait()
    assert np.array_equal(back.to_numpy(), content.reshape(-1))
    array.copy_from_async(np.zeros_like(content), stream)
    array.copy_from_async(buffer, stream)
    array.copy_to(back.reshape(content.shape), stream=stream)
    assert np.array_equal(back.to_numpy(), content.reshape(-1))


@pytest.mark.parametrize(("shape", "key"), PARTS, ids=str)
@pytest.mark.parametrize("channels", [1, 2])
def test_parts_are_those_of_numpy(shape, key, channels):
    content = numbers(shape, "i4", channels)
    texels = content.reshape(-1, channels)
    chosen = numbers(shape, "i4")[key]  # the numbers of the texels of the part
    array = cu.Array.from_array(content, channels=channels, name="image")
    part = array[key]
    assert part.shape == chosen.shape
    assert part.nbytes == chosen.nbytes * channels
    wanted = texels[chosen].reshape(part.shape + (channels,) * (channels > 1))
    assert np.array_equal(part.to_numpy(), wanted)
    wanted = 1000 + np.arange(wanted.size, dtype="i4").reshape(wanted.shape)
    texels[chosen] = wanted.reshape(*part.shape, channels)
    part.copy_from(wanted)
    assert np.array_equal(array.to_numpy(), content)
    assert np.array_equal(part[...].to_numpy(), wanted)


@pytest.mark.parametrize(("shape", "key"), PARTS, ids=str)
@KINDS
def test_boxes_of_buffers(shape, key, cls):
    """A part of an array and a part of a buffer: only their texels are copied."""
    content = numbers(shape)
    if content[key].ndim == 0:
        pytest.skip("the host's buffers return items, not parts")
    array, buffer = cu.Array.from_array(content), cls.from_array(100 + content)
    array[key].copy_to(buffer[key])
    wanted = 100 + content
    wanted[key] = content[key]
    assert np.array_equal(buffer.to_numpy(), wanted)
    buffer.fill(5)
    array[key].copy_from(buffer[key])
    content[key] = 5
    assert np.array_equal(array.to_numpy(), content)


def test_pitched_buffers():
    content = numbers((6, 13), "u1")
    buffer = cu.DeviceBuffer.pitched((6, 13), "u1")
    buffer.copy_from(content)
    array = cu.Array((6, 13), "u1")
    array.copy_from(buffer)
    assert np.array_equal(array.to_numpy(), content)
    buffer.fill(0)
    array[1:4].copy_to(buffer[1:4])
    content[0] = content[4:] = 0
    assert np.array_equal(buffer.to_numpy(), content)


def test_gaps_between_texels():
    buffer = cu.DeviceBuffer.from_array(numbers((6, 13)))
    with pytest.raises(ValueError, match="rows without gaps between their texels"):
        cu.Array(6).copy_from(buffer[:, 3])
    column = cu.Array((6, 1))
    column.copy_from(buffer[:, 3:4])
    assert np.array_equal(column.to_numpy(), numbers((6, 13))[:, 3:4])


def test_channels_of_boxes():
    content = numbers((6, 13), "f4", 4)
    buffer = cu.DeviceBuffer.from_array(content)
    array = cu.Array((4, 5), channels=4)
    array.copy_from(buffer[1:5, 3:8])
    assert np.array_equal(array.to_numpy(), content[1:5, 3:8])
    two = cu.Array((6, 13), channels=2)
    with pytest.raises(ValueError, match="rows without gaps between their texels"):
        two.copy_from(buffer[:, :, :2])


@EACH_SHAPE
def test_other_arrays(stream, shape, options):
    content = numbers(shape, "f2", 2)
    one = cu.Array.from_array(content, channels=2, **options)
    other = cu.Array(shape, "f2", channels=2, **options)
    other.copy_from_async(one, stream).wait()
    assert np.array_equal(other.to_numpy(), content)
    half = shape[0] // 2
    other[:half].copy_from(one[shape[0] - half :])
    content[:half] = content[shape[0] - half :].copy()
    assert np.array_equal(other.to_numpy(), content)
    one.copy_from(one)  # nothing to do


def test_levels(stream):
    array = cu.Array((5, 12), "u2", mipmaps=4, name="pyramid")
    assert (array.mipmaps, array.shape) == (4, (5, 12))
    shapes = [(5, 12), (2, 6), (1, 3), (1, 1)]
    assert [array.level(index).shape for index in range(4)] == shapes
    assert array.level(-1).shape == (1, 1)
    assert array.nbytes == 2 * sum(np.prod(shape) for shape in shapes)
    contents = [numbers(shape, "u2") + 100 * index for index, shape in enumerate(shapes)]
    for index, content in enumerate(contents):
        array.level(index).copy_from_async(content, stream)
    stream.synchronize()
    for index, content in enumerate(contents):
        assert np.array_equal(array.level(index).to_numpy(), content)
    assert array.level(1).level(0).mipmaps == 1
    assert repr(array.level(1)) == "<Array 'pyramid' 2 x 6 of 1 x uint16>"
    for use in (lambda: array[0], lambda: len(array), array.to_numpy):
        with pytest.raises(
            ValueError, match=r"has 4 levels, and .* one of them: array\.level\(0\)"
        ):
            use()
    with pytest.raises(IndexError, match="has 4 levels, and no level 4"):
        array.level(4)


def test_levels_of_layers_and_volumes():
    assert cu.Array((5, 8, 8), layered=True, mipmaps=3).level(2).shape == (5, 2, 2)
    assert cu.Array((8, 4, 2), mipmaps=4).level(3).shape == (1, 1, 1)
    layered = cu.Array((3, 4), "u1", layered=True, mipmaps=2)
    layered.level(1)[2].copy_from(np.array([7, 8], "u1"))
    assert layered.level(1)[2, 1:].to_numpy().tolist() == [8]


# ---- who uses it ----


def test_layers_levels_and_parts_are_borrowed_apart(stream, other, gate):
    array = cu.Array((4, 8), "f4", layered=True, mipmaps=2, name="array")
    top, low = array.level(0), array.level(1)
    gate.hold(stream)
    top[1].copy_from_async(np.zeros(8, "f4"), stream)
    assert [(each.mode, each.start, each.stop) for each in array.borrows] == [("write", 32, 64)]
    for free in (top[0], top[2:], low):
        free.copy_from_async(np.ones(free.shape, "f4"), other).wait()
        assert not free.borrowed
    for used in (top[1], top[1, 3:4], top[:2], top[:, 2:3], top):
        with pytest.raises(cu.BufferBorrowedError, match="being written by copy_from_async"):
            used.copy_from_async(np.ones(used.shape, "f4"), other)
        with pytest.raises(cu.BufferBorrowedError):
            used.to_numpy()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Array 'array'"):
        array.close()
    assert array.borrowed
    assert "write by copy_from_async" in array.explain()
    assert "written by" in repr(top)
    gate.open()
    other.wait(stream)
    top[:2].copy_from_async(np.full((2, 8), 5, "f4"), other).wait()
    assert not array.borrowed
    assert top.to_numpy()[:, 0].tolist() == [5, 5, 1, 1]


def test_a_refusal_names_both_sides(stream, other, gate):
    array = cu.Array((6, 13), "f4", channels=2, name="image")
    buffer = cu.LockedBuffer.zeros(6 * 13 * 2, "f4", name="frames")
    gate.hold(stream)
    array.copy_from_async(buffer, stream)
    with pytest.raises(cu.BufferBorrowedError) as refused:
        array[2:4, 5:9].copy_to_async(cu.LockedBuffer(16, "f4"), other)
    assert str(refused.value).startswith(
        "cannot read Array 'image'[2:4, 5:9] (2 x float32) by copy_to_async on Stream"
    )
    with pytest.raises(
        cu.BufferBorrowedError, match=r"cannot write LockedBuffer 'frames'\[0:156\]"
    ):
        buffer.write().__enter__()
    gate.open()


def test_reads_share(stream, other, gate):
    array = cu.Array.from_array(numbers((6, 13)))
    one, two = cu.LockedBuffer(78, "f4"), cu.LockedBuffer(78, "f4")
    gate.hold(stream)
    array.copy_to_async(one, stream)
    array.copy_to_async(two, other).wait()
    with pytest.raises(cu.BufferBorrowedError, match="cannot write Array"):
        array.copy_from_async(two, other)
    gate.open()


def test_policies(stream, other, gate):
    array = cu.Array((4, 8))
    gate.hold(stream)
    array.copy_from_async(numbers((4, 8)), stream)
    array.ordering = "wait"
    assert (array.ordering, array[1].ordering) == ("wait", "wait")
    token = array[1].copy_to_async(cu.LockedBuffer(8, "f4"), other)
    assert not token.done
    gate.open()
    token.wait()
    with pytest.raises(ValueError, match="ordering"):
        array.ordering = "never"


def test_dropped_arrays_outlive_their_work(stream, gate):
    target = cu.LockedBuffer.zeros(78, "f4")
    gate.hold(stream)
    array = cu.Array.from_array(numbers((6, 13)))
    array.copy_to_async(target, stream)
    del array
    gc.collect()
    gate.open()
    stream.synchronize()
    assert np.array_equal(target.to_numpy(), numbers(78))


def test_lifetime(stream):
    with cu.Array((4, 8), name="array") as array:
        assert [(each.kind, each.nbytes) for each in cu.live_buffers()] == [("array", 128)]
        assert "128 bytes in 1 array buffer" in cu.memory_report()
        part = array[1:3]
        with pytest.raises(ValueError, match="is a part; only the whole can be closed"):
            part.close()
        assert array.handle == part.handle
    assert (array.closed, part.closed) == (True, True)
    array.close()
    assert repr(array) == "<Array 'array' closed>"
    assert array.explain() == "Array 'array'[0:4, 0:8] (float32) is closed."
    for use in (
        lambda: array[0],
        lambda: array.handle,
        lambda: array.level(0),
        array.to_numpy,
        array.__enter__,
        lambda: part.copy_from(numbers((2, 8))),
        lambda: part.copy_to_async(cu.LockedBuffer(16, "f4"), stream),
        lambda: cu.Array((2, 8)).copy_from(part),
    ):
        with pytest.raises(cu.BufferClosedError, match=r"Array 'array'.* was closed at"):
            use()


# ---- wrong arguments ----


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((0, 4), {}, "has at least 1 texel in each direction"),
        ((4, -1), {}, "has at least 1 texel in each direction"),
        ((), {}, "has from 1 to 3 dimensions"),
        ((2, 2, 2, 2), {}, "has from 1 to 3 dimensions"),
        ((9,), {"layered": True}, r"\(layers, width\)"),
        ((5, 8, 8), {"cubemap": True}, "six square faces"),
        ((6, 8, 9), {"cubemap": True}, "six square faces"),
        ((12, 8, 8), {"cubemap": True}, "six square faces"),
        ((13, 8, 8), {"cubemap": True, "layered": True}, "six square faces"),
        ((8,), {"channels": 3}, "channels is 3, and a texel has 1, 2 or 4; use 4"),
        ((8,), {"channels": 0}, "channels is 0"),
        ((8, 8), {"mipmaps": 0}, "mipmaps is 0, .* from 1 to 4 levels"),
        ((8, 8), {"mipmaps": 5}, "mipmaps is 5, .* from 1 to 4 levels"),
        ((64, 8), {"layered": True, "mipmaps": 5}, "from 1 to 4 levels"),
        ((4, 4, 4), {"gather": True}, "gather=True is for arrays with two dimensions"),
        ((1 << 40,) * 3, {}, "no memory holds an array"),
    ],
)
def test_wrong_shapes(unchanged, shape, options, text):
    cu.Array(1).close()
    with unchanged("cuArray3DCreate", "cuMipmappedArrayCreate"):
        with pytest.raises(ValueError, match=text):
            cu.Array(shape, **options)


LIMITS = [
    ((1,), {}, "maximum_texture1d_width", "the width is"),
    ((2, 1), {}, "maximum_texture2d_width", "the width is"),
    ((1, 2), {}, "maximum_texture2d_height", "the height is"),
    ((1, 2), {"layered": True}, "maximum_texture1d_layered_layers", "the number of layers is"),
    ((1, 2, 2), {"layered": True}, "maximum_texture2d_layered_layers", "the number of layers is"),
    ((1,), {"surface": True}, "maximum_surface1d_width", "the width is"),
    ((1, 2), {"gather": True}, "maximum_texture2d_gather_height", "the height is"),
    ((1, 2), {"mipmaps": 2}, "maximum_texture2d_mipmapped_height", "the height is"),
]


@pytest.mark.parametrize(("shape", "options", "limit", "text"), LIMITS)
def test_limits_of_the_device(unchanged, shape, options, limit, text):
    """One texel, row or layer more than the device takes; the extent to change is 1."""
    most = cu.Device(0).attribute(limit)
    shape = tuple(most + 1 if size == 1 else size for size in shape)
    with unchanged("cuArray3DCreate", "cuMipmappedArrayCreate"):
        with pytest.raises(
            ValueError, match=f"{text} {most + 1}, and <Device.* takes at most {most}"
        ):
            cu.Array(shape, "u1", **options)


def test_volumes_have_alternate_limits():
    """A volume may be deeper if it is less wide: see MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE."""
    device = cu.Device(0)
    most = device.attribute("maximum_texture3d_depth_alternate")
    assert most > device.attribute("maximum_texture3d_depth")
    cu.Array((most, 1, 1), "u1").close()
    with pytest.raises(ValueError, match="the depth is"):
        cu.Array((most + 1, 1, 1), "u1")
    with pytest.raises(ValueError, match="cannot have the shape"):
        cu.Array((most, 1, device.attribute("maximum_texture3d_width_alternate") + 1), "u1")


@pytest.mark.parametrize("dtype", ["f8", "i8", "c8", "?", "S4", ">f4", "V4", "M8[s]"])
def test_wrong_dtypes(dtype):
    with pytest.raises(TypeError, match="texels cannot have channels of dtype"):
        cu.Array(4, dtype)


def test_wrong_sources_and_targets(stream):
    array = cu.Array((6, 13), "f4", name="image")
    for source, error, text in [
        (numbers((6, 13), "f8"), TypeError, r"different dtypes.*astype\('float32'\)"),
        (numbers((13, 6)), ValueError, r"has shape \(13, 6\).*have shape \(6, 13\)"),
        (numbers(77), ValueError, r"have shape \(6, 13\)"),
        (cu.DeviceBuffer(78, "i4"), TypeError, r"different dtypes.*view\('float32'\)"),
        (cu.DeviceBuffer(79, "f4"), ValueError, r"have shape \(6, 13\)"),
        (cu.DeviceBuffer(78, "f4").reshape(13, 6), ValueError, r"have shape \(6, 13\)"),
        (cu.Array((6, 13), "i4"), TypeError, "different texels"),
        (cu.Array((6, 13), channels=2), TypeError, "different texels"),
        (cu.Array((13, 6)), ValueError, "parts of the same shape"),
        ([1, 2], TypeError, "neither a buffer"),
        (3, TypeError, "neither a buffer"),
    ]:
        with pytest.raises(error, match=text):
            array.copy_from(source)
        with pytest.raises(error, match=text):
            array.copy_from_async(source, stream)
    with pytest.raises(ValueError, match="overlap"):
        array[:4].copy_from(array[1:5])
    with pytest.raises(TypeError, match="Copy to a LockedBuffer"):
        array.copy_to_async(numbers((6, 13)), stream)
    read_only = numbers((6, 13))
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        array.copy_to(read_only)
    with pytest.raises(TypeError, match="needs a stream"):
        array.copy_from_async(numbers((6, 13)))
    with pytest.raises(TypeError, match="needs a stream"):
        array.copy_to_async(cu.LockedBuffer(78, "f4"))
    with pytest.raises(TypeError, match="Array has copies of its own: call its copy_to"):
        cu.DeviceBuffer(78, "f4").copy_from(array)


def test_strided_targets():
    array = cu.Array.from_array(numbers((6, 13)))
    room = np.zeros((6, 26), "f4")
    array.copy_to(room[:, ::2])
    assert np.array_equal(room[:, ::2], numbers((6, 13)))
    assert not room[:, 1::2].any()


def test_wrong_indices():
    array = cu.Array((6, 13))
    for key, error in [(6, IndexError), (np.s_[::2], ValueError), ("a", TypeError)]:
        with pytest.raises(error):
            array[key]
    with pytest.raises(IndexError):
        array[0, 0, 0]
    assert len(array) == 6
    assert array[2:2].to_numpy().shape == (0, 13)


def test_never_initialized():
    array = cu.Array.__new__(cu.Array)
    for use in (lambda: array.shape, lambda: array.close(), lambda: repr(array)):
        with pytest.raises(TypeError, match="this Array was never initialized"):
            use()
    made = cu.Array(4)
    with pytest.raises(TypeError, match="initialized already"):
        made.__init__(4)


def test_current_streams(stream):
    array = cu.Array((4, 8))
    with stream:
        token = array.copy_from_async(numbers((4, 8)))
        assert token.stream is stream
        assert np.array_equal(array.to_numpy(), numbers((4, 8)))


def test_large_arrays(stream):
    content = np.random.default_rng(3).random((20, 640, 160), "f4")  # in three pieces
    array = cu.Array.from_array(content)
    found = np.empty_like(content)
    array.copy_to(found, stream=stream)
    assert np.array_equal(found, content)
    part = np.empty((17, 600, 160), "f4")
    array[2:19, 40:].copy_to(part)
    assert np.array_equal(part, content[2:19, 40:])
    array[1:, :, 5:].copy_from(content[1:, :, 5:] + 1)
    content[1:, :, 5:] += 1
    assert np.array_equal(array.to_numpy(), content)
    image = np.random.default_rng(3).integers(0, 256, (3000, 700, 4), "u1")
    flat = cu.Array.from_array(image, channels=4)
    assert np.array_equal(flat.to_numpy(), image)
