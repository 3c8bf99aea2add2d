"""Textures: values, what launches borrow, and what the device does not read."""

import gc

import numpy as np
import pytest
from readers import fetches, launch, places, reads, reads_levels, rows, run, stores

import cudadrv as cu

SHAPES = {
    "1d": ((13,), {}),
    "2d": ((6, 13), {}),
    "3d": ((4, 6, 13), {}),
    "a1d": ((5, 13), {"layered": True}),
    "a2d": ((5, 6, 13), {"layered": True}),
}
CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
KINDS = pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
PTX_KIND = {"u": "u32", "i": "s32", "f": "f32"}


def numbers(shape, dtype="f4", channels=1):
    shape = (*shape, channels) if channels > 1 else shape
    return (np.arange(np.prod(shape), dtype="i4") % 97).reshape(shape).astype(dtype)


def centers(geometry, *shape):
    """The centers of all texels, as words: floats, and the layer as an integer."""
    found = (places(*shape) + 0.5).astype("f4")
    if geometry[0] == "a":
        words = found.view("i4")
        words[:, 2] = places(*shape)[:, 1 if geometry == "a1d" else 2]
        if geometry == "a1d":
            words[:, 1] = 0
        return words
    return found


def sampled(texture, content, geometry, stream, dtype="f4", channels=1):
    """Check that a texture returns all texels at their centers."""
    shape = content.shape[: content.ndim - (channels > 1)]
    kind = PTX_KIND[np.dtype(dtype).kind]
    found = run(reads(geometry, kind), texture, centers(geometry, *shape), stream)
    found = found.view({"u32": "u4", "s32": "i4", "f32": "f4"}[kind])[:, :channels]
    assert np.array_equal(found.reshape(content.shape), content.astype(found.dtype))


@pytest.mark.parametrize("geometry", SHAPES)
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f2", "f4"])
def test_texels_of_arrays(stream, geometry, channels, dtype):
    shape, options = SHAPES[geometry]
    content = numbers(shape, dtype, channels)
    array = cu.Array.from_array(content, channels=channels, **options)
    sampled(cu.Texture(array), content, geometry, stream, dtype, channels)


@KINDS
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
def test_images_in_buffers(stream, cls, channels, dtype):
    """Rows that are a multiple of 32 bytes long: without gaps, and as a box."""
    content = numbers((6, 128), dtype, channels)
    buffer = cls.from_array(content)
    texture = cu.Texture(buffer, channels=channels)
    assert texture.source is buffer
    sampled(texture, content, "2d", stream, dtype, channels)
    box = buffer[:, :40]
    sampled(cu.Texture(box, channels=channels), content[:, :40], "2d", stream, dtype, channels)


def test_pitched_buffers(stream):
    content = numbers((6, 13))
    buffer = cu.DeviceBuffer.pitched((6, 13), "f4")
    buffer.copy_from(content)
    sampled(cu.Texture(buffer), content, "2d", stream)


@KINDS
@pytest.mark.parametrize(("dtype", "channels"), [("i4", 1), ("u1", 4), ("f4", 2)])
def test_rows_in_buffers(stream, cls, dtype, channels):
    content = numbers((100,), dtype, channels)
    texture = cu.Texture(cls.from_array(content), channels=channels)
    kind = PTX_KIND[np.dtype(dtype).kind]
    found = run(fetches(kind), texture, np.arange(-1, 101, dtype="i4")[:, None], stream)
    found = found.view({"u32": "u4", "s32": "i4", "f32": "f4"}[kind])[:, :channels]
    assert np.array_equal(found[1:-1].reshape(content.shape), content)
    assert not found[[0, -1]].any()  # outside of the buffer


def test_normalized_integers(stream):
    content = np.array([0, 51, 255], "u1")
    array = cu.Array.from_array(content)
    found = run(reads("1d"), cu.Texture(array, as_float=True), centers("1d", 3), stream)
    assert found.view("f4")[:, 0].tolist() == [0, np.float32(51 / 255), 1]
    as_float = cu.Texture(array, as_float=True, srgb=True)
    found = run(reads("1d"), as_float, centers("1d", 3), stream).view("f4")[:, 0]
    assert found[0] == 0
    assert abs(found[1] - 0.0331) < 1e-3
    assert found[2] == 1


def test_layers_of_a_layered_array(stream, other, gate):
    """A texture over some layers counts them from 0, and borrows only them."""
    content = numbers((5, 6, 13))
    array = cu.Array.from_array(content, layered=True, name="layers")
    texture = cu.Texture(array[2:4])
    sampled(texture, content[2:4], "a2d", stream)
    sampled(cu.Texture(array[4]), content[4:], "a2d", stream)
    given = rows(centers("a2d", 2, 6, 13))
    gate.hold(stream)
    launch(reads("a2d"), texture, given, cu.DeviceBuffer(given.count, "u4"), stream)
    array[1].copy_from_async(content[0], other).wait()
    array[4].copy_from_async(content[0], other).wait()
    with pytest.raises(cu.BufferBorrowedError, match=r"write Array 'layers'\[3, 0:6, 0:13\]"):
        array[3].copy_from_async(content[0], other)
    gate.open()


def test_cubemaps(stream):
    content = numbers((6, 8, 8))
    texture = cu.Texture(cu.Array.from_array(content, cubemap=True), seamless=True)
    axes = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    # Directions a little beside the axes hit one of the four texels in the middle of a face.
    at = np.array(axes, "f4") + np.float32(0.05) * (np.array(axes, "f4") == 0)
    found = run(reads("cube"), texture, at, stream).view("f4")[:, 0]
    for face in range(6):
        assert found[face] in content[face, 3:5, 3:5]


def pyramid(values=(0, 1, 10, 100)):
    array = cu.Array(16, mipmaps=4)
    for level, value in enumerate(values):
        array.level(level).copy_from(np.full(16 >> level, value, "f4"))
    return array


def test_levels(stream):
    array = pyramid()
    at = np.array([(0.5, 0, 0, level) for level in (-1, 0, 0.4, 1, 2, 2.5, 3, 9)], "f4")

    def read(**options):
        texture = cu.Texture(array, normalized=True, **options)
        return run(reads_levels(), texture, at, stream).view("f4")[:, 0].tolist()

    assert read() in ([0, 0, 0, 1, 10, 10, 100, 100], [0, 0, 0, 1, 10, 100, 100, 100])
    assert read(mipmap_filter="linear")[5] == 55
    assert read(levels=(1, 2))[0] == 1
    assert read(levels=(1, 2))[-1] == 10
    assert read(bias=1)[1] == 1
    one = cu.Texture(array.level(2))
    sampled(one, np.full(4, 10, "f4"), "1d", stream)


def test_levels_are_borrowed_apart(stream, other, gate):
    array = pyramid()
    given = rows(centers("1d", 8))
    found = cu.DeviceBuffer(given.count, "u4")
    level = cu.Texture(array.level(1))
    whole = cu.Texture(array, normalized=True)
    gate.hold(stream)
    launch(reads("1d"), level, given, found, stream)
    array.level(0).copy_from_async(np.zeros(16, "f4"), other)
    with pytest.raises(cu.BufferBorrowedError):
        array.level(1).copy_from_async(np.zeros(8, "f4"), other)
    with pytest.raises(cu.BufferBorrowedError, match="being written by copy_from_async"):
        launch(reads("1d"), whole, given, found, stream)
    gate.open()
    stream.wait(other)
    launch(reads("1d"), whole, given, found, stream)


# ---- what launches borrow ----


def test_a_launch_reads_the_array(stream, other, gate):
    array = cu.Array.from_array(numbers((6, 13)), name="image")
    texture = cu.Texture(array, name="view")
    kernel, given = reads("2d"), rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    gate.hold(stream)
    token = launch(kernel, texture, given, found, stream)
    assert token.reads == (array, given)
    assert token.writes == (found,)
    array.copy_to_async(cu.LockedBuffer(78, "f4"), other).wait()
    again = cu.DeviceBuffer.zeros(given.count, "u4")
    launch(kernel, texture, given, again, other).wait()
    for write in (
        lambda: array.copy_from_async(numbers((6, 13)), other),
        lambda: array[2].copy_from(numbers((13,))),
    ):
        with pytest.raises(cu.BufferBorrowedError, match="being read by launch of k"):
            write()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Texture 'view'"):
        texture.close()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Array 'image'"):
        array.close()
    gate.open()
    token.wait()
    texture.close()
    assert np.array_equal(found.to_numpy(), again.to_numpy())


@KINDS
def test_a_launch_reads_the_buffer(stream, other, gate, cls):
    buffer = cls.from_array(numbers((6, 32)), name="image")
    texture = cu.Texture(buffer)
    kernel, given = reads("2d"), rows(centers("2d", 6, 32))
    gate.hold(stream)
    launch(kernel, texture, given, cu.DeviceBuffer(given.count, "u4"), stream)
    with pytest.raises(cu.BufferBorrowedError, match=f"write {cls.__name__} 'image'"):
        buffer.fill_async(0, other)
    buffer.copy_to_async(cu.LockedBuffer(192, "f4"), other).wait()
    gate.open()


def test_only_the_box_is_read(stream, other, gate):
    buffer = cu.DeviceBuffer.from_array(numbers((6, 128)))
    texture = cu.Texture(buffer[:, :40])
    given = rows(centers("2d", 6, 40))
    gate.hold(stream)
    launch(reads("2d"), texture, given, cu.DeviceBuffer(given.count, "u4"), stream)
    buffer[:, 40:].fill_async(0, other).wait()
    with pytest.raises(cu.BufferBorrowedError):
        buffer[3].fill_async(0, other)
    gate.open()


def test_a_write_is_seen_by_a_launch(stream, other, gate):
    array = cu.Array.from_array(numbers((6, 13)), name="image")
    texture = cu.Texture(array)
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    gate.hold(stream)
    array.copy_from_async(5 + numbers((6, 13)), stream)
    with pytest.raises(cu.BufferBorrowedError) as refused:
        launch(reads("2d"), texture, given, found, other)
    assert str(refused.value).startswith(
        "cannot read argument 0 (handle, .u64) Array 'image'[0:6, 0:13] (float32) by launch of k on"
    )
    with cu.ordering("wait"):
        token = launch(reads("2d"), texture, given, found, other)
    gate.open()
    token.wait()
    assert np.array_equal(
        found.to_numpy().view("f4").reshape(-1, 4)[:, 0], 5 + numbers((6, 13)).reshape(-1)
    )


def test_textures_keep_what_they_read(stream, gate):
    content = numbers((6, 13))
    texture = cu.Texture(cu.Array.from_array(content))
    pitched = cu.DeviceBuffer.pitched((6, 13), "f4")
    pitched.copy_from(content)
    of_buffer = cu.Texture(pitched)
    del pitched
    gc.collect()
    cu.DeviceBuffer(1000, "f4").fill(0)  # another buffer, from the same pool
    sampled(texture, content, "2d", stream)
    sampled(of_buffer, content, "2d", stream)
    kernel, given = reads("2d"), rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    gate.hold(stream)
    token = launch(kernel, texture, given, found, stream)
    del texture  # the launch still uses it
    gc.collect()
    gate.open()
    token.wait()
    assert np.array_equal(found.to_numpy().view("f4")[::4], content.reshape(-1))


def test_prepared_launches(stream, other, gate):
    array = cu.Array.from_array(numbers((6, 13)))
    texture = cu.Texture(array)
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    ready = reads("2d").prepare(2, 64, texture, cu.read(given), found, 78)
    gate.hold(stream)
    assert ready.launch(stream).reads == (array, given)
    with pytest.raises(cu.BufferBorrowedError):
        array.copy_from_async(numbers((6, 13)), other)
    gate.open()
    stream.synchronize()
    texture.close()
    with pytest.raises(cu.BufferClosedError, match=r"Texture over Array.* was closed at"):
        ready.launch(stream)


def test_borrows(stream, other, gate):
    """A kernel can get a handle in memory: then the launch declares it."""
    array = cu.Array.from_array(numbers((6, 13)))
    texture = cu.Texture(array)
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    kernel = reads("2d")
    gate.hold(stream)
    token = kernel.launch(
        2, 64, texture.handle, cu.read(given), found, 78, stream=stream, borrows=[texture]
    )
    assert token.reads == (given, array)
    with pytest.raises(cu.BufferBorrowedError):
        array.copy_from_async(numbers((6, 13)), other)
    gate.open()
    token.wait()
    assert np.array_equal(found.to_numpy().view("f4")[::4], numbers((6, 13)).reshape(-1))


def test_many_textures(stream):
    """More textures than there is room for on the stack: see FEW_ARGUMENTS."""
    kernel = cu.Module(
        ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry many("
        + ", ".join(f".param .u64 t{i}" for i in range(20))
        + ", .param .u64 found) { .reg .b64 %rd<32>; .reg .b32 %r<4>; ld.param.u64 %rd30, [found];"
        + " ".join(
            f"ld.param.u64 %rd{i}, [t{i}]; mov.u32 %r1, 0;"
            f" tex.1d.v4.s32.s32 {{%r2, _, _, _}}, [%rd{i}, %r1];"
            f" st.global.u32 [%rd30 + {4 * i}], %r2;"
            for i in range(20)
        )
        + " ret; }"
    )["many"]
    buffers = [cu.DeviceBuffer.from_array(np.array([i], "i4")) for i in range(20)]
    found = cu.DeviceBuffer.zeros(20, "i4")
    textures = [cu.Texture(buffer) for buffer in buffers]
    token = kernel.launch(1, 1, *textures, found, stream=stream)
    assert token.reads == tuple(buffers)
    token.wait()
    assert found.to_numpy().tolist() == list(range(20))


# ---- graphs ----


def test_graphs(stream, other):
    content = numbers((6, 13))
    array = cu.Array.from_array(content, name="image")
    source = cu.LockedBuffer.from_array(content)
    texture = cu.Texture(array)
    kernel, given = reads("2d"), rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    back = cu.LockedBuffer.zeros(found.count, "u4")
    graph = cu.Graph()
    with graph.capture(stream):
        array.copy_from_async(source, stream)
        launch(kernel, texture, given, found, stream)
        back.copy_from_async(found, stream)
        with pytest.raises(cu.CaptureError, match="an ordinary array cannot be copied"):
            array.copy_from_async(content, stream)
    step = graph.instantiate()
    for add in (0, 100):
        source[:] = content + add
        token = step.launch(stream)
        with pytest.raises(cu.BufferBorrowedError, match="written by copy_from_async at"):
            array.copy_to_async(cu.LockedBuffer(78, "f4"), other)
        token.wait()
        assert np.array_equal(back.to_numpy().view("f4")[::4], (content + add).reshape(-1))
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Texture"):
        texture.close()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Array 'image'"):
        array.close()
    del texture, array
    gc.collect()
    step.launch(stream).wait()
    assert "image" in graph.to_dot()
    step.close()
    graph.close()


def test_captures_are_checked(stream, other):
    array = cu.Array((6, 13))
    texture = cu.Texture(array)
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    graph = cu.Graph()
    with graph.capture(stream):
        array.copy_from_async(cu.LockedBuffer.zeros(78, "f4"), stream)
        other.wait(stream)
        launch(reads("2d"), texture, given, found, other)
        with pytest.raises(cu.BufferBorrowedError, match="being read by launch of k"):
            array.copy_from_async(cu.LockedBuffer.zeros(78, "f4"), stream)
        stream.wait(other)
    graph.close()


def test_nodes_that_copy(stream):
    content = numbers((6, 13))
    array, other = cu.Array((6, 13), name="image"), cu.Array((6, 13))
    source, back = cu.LockedBuffer.from_array(content), cu.LockedBuffer(78, "f4")
    graph = cu.Graph()
    into = graph.add_copy(array, source)
    assert (into.reads, into.writes) == ((source,), (array,))
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot read Array 'image'.* by add_copy"):
        graph.add_copy(back, array)
    across = graph.add_copy(other[2:], array[:4], after=[into])
    graph.add_copy(back, other, after=[across])
    graph.add_copy(array, array, after=[across])  # nothing to do
    for wrong, error in ((cu.LockedBuffer(7, "f4"), ValueError), (content, TypeError)):
        with pytest.raises(error):
            graph.add_copy(array, wrong)
    levels = cu.Array((6, 13), mipmaps=2)
    with pytest.raises(ValueError, match=r"array\.level\(0\)"):
        graph.add_copy(levels, source)
    step = graph.instantiate()
    for add in (0, 5):
        source[:] = content + add
        step.launch(stream).wait()
        found = back.to_numpy().reshape(6, 13)
        assert np.array_equal(found[2:], content[:4] + add)
    with pytest.raises(cu.CaptureError, match=r"add_copy at .* cannot be changed"):
        step[into].set(source=back)
    step.close()
    graph.close()


def test_nodes(stream):
    contents = [numbers((6, 13)), 9 + numbers((6, 13))]
    textures = [cu.Texture(cu.Array.from_array(content)) for content in contents]
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    graph = cu.Graph()
    node = graph.add_launch(reads("2d"), 2, 64, textures[0], cu.read(given), found, 78)
    step = graph.instantiate()
    step.launch(stream).wait()
    assert np.array_equal(found.to_numpy().view("f4")[::4], contents[0].reshape(-1))
    step[node].set(textures[1], cu.read(given), found, 78)
    step.launch(stream).wait()
    assert np.array_equal(found.to_numpy().view("f4")[::4], contents[1].reshape(-1))
    textures[1].source[0].copy_from(np.zeros(13, "f4"))
    step.close()
    graph.close()


# ---- lifetime ----


def test_closed_sources(stream):
    array, buffer = cu.Array((6, 13), name="image"), cu.DeviceBuffer.zeros(64, "i4")
    texture, of_buffer = cu.Texture(array), cu.Texture(buffer)
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    array.close()
    buffer.close()
    for use in (
        lambda: launch(reads("2d"), texture, given, found, stream),
        lambda: launch(fetches(), of_buffer, given, found, stream),
        lambda: texture.handle,
        texture.__enter__,
        lambda: cu.Texture(array),
        lambda: cu.Texture(buffer),
    ):
        with pytest.raises(cu.BufferClosedError, match=r"was closed at"):
            use()
    assert not texture.closed
    texture.close()
    assert texture.closed
    assert repr(texture) == "<Texture closed>"
    with pytest.raises(cu.BufferClosedError, match="Texture over Array 'image'"):
        launch(reads("2d"), texture, given, found, stream)


def test_a_part_of_a_buffer_that_is_given_away():
    buffer = cu.DeviceBuffer(64, "i4", pooled=False)
    texture = cu.Texture(buffer)
    with pytest.raises(cu.BufferBorrowedError, match=r"parts of it are alive \(1\)"):
        buffer.into_raw()
    moved = buffer.take()
    assert texture.handle
    del texture
    gc.collect()
    cu.DeviceBuffer.from_raw(moved.into_raw(), 64, "i4").close()


def test_growing_buffers(stream):
    buffer = cu.DeviceBuffer(1 << 19, "i4", capacity=1 << 20)
    buffer.fill(7)
    texture = cu.Texture(buffer)
    buffer.grow(1 << 20)
    found = run(fetches(), texture, np.array([[5], [(1 << 19) + 5]], "i4"), stream)
    assert found[:, 0].tolist() == [7, 0]
    buffer.shrink(1)
    with pytest.raises(cu.BufferClosedError):
        run(fetches(), texture, np.array([[0]], "i4"), stream)


def test_attributes():
    array = cu.Array((4, 8))
    with cu.Texture(array, name="view") as texture:
        assert (texture.name, texture.source, texture.closed) == ("view", array, False)
        assert (texture.context, texture.device) == (array.context, cu.Device(0))
        assert texture.handle > 0
        assert repr(texture) == "<Texture 'view' over <Array 4 x 8 of 1 x float32>>"
    assert texture.closed
    with pytest.raises(TypeError, match="initialized already"):
        texture.__init__(array)
    for use in (
        lambda: cu.Texture.__new__(cu.Texture).handle,
        lambda: repr(cu.Texture.__new__(cu.Texture)),
    ):
        with pytest.raises(TypeError, match="this Texture was never initialized"):
            use()


# ---- wrong arguments ----


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"address": "wrap"}, "pass normalized=True"),
        ({"address": ("clamp", "mirror")}, "pass normalized=True"),
        ({"address": "repeat"}, "must be one of 'wrap', 'clamp', 'mirror', 'border'"),
        ({"address": 3}, "must be one of|not iterable"),
        ({"address": ()}, "one for each dimension"),
        ({"filter": "cubic"}, "must be one of 'point', 'linear'"),
        ({"mipmap_filter": None}, "must be one of 'point', 'linear'"),
        ({"border": (1, 2, 3, 4, 5)}, "at most 4 channels"),
        ({"anisotropy": 0}, "must be from 1 to 16"),
        ({"anisotropy": 17}, "must be from 1 to 16"),
        ({"levels": (0, 1)}, "two numbers from 0 to 0"),
        ({"levels": (1, 0)}, "two numbers from 0 to 0"),
        ({"srgb": True}, "srgb is for unsigned 8-bit integers"),
        ({"seamless": True}, "seamless is for cubemaps"),
        ({"channels": 2}, "has its own"),
    ],
)
def test_wrong_options(unchanged, options, text):
    array = cu.Array((4, 8))
    with unchanged("cuTexObjectCreate"), pytest.raises((ValueError, TypeError), match=text):
        cu.Texture(array, **options)


def test_wrong_arrays(unchanged):
    integers, wide = cu.Array(8, "u1"), cu.Array(8, "i4")
    volume = cu.Array((4, 4, 4))
    layers = cu.Array((4, 4, 4), layered=True)
    cubes = cu.Array((6, 4, 4), cubemap=True)
    levels = cu.Array((4, 4), mipmaps=3)
    with unchanged("cuTexObjectCreate"):
        for make, text in [
            (lambda: cu.Texture(integers, filter="linear"), "pass as_float=True"),
            (lambda: cu.Texture(integers, mipmap_filter="linear"), "pass as_float=True"),
            (lambda: cu.Texture(wide, as_float=True), "has integers of 32 bits"),
            (lambda: cu.Texture(volume[1]), "is a part, and a texture reads a whole level"),
            (lambda: cu.Texture(layers[:, :2]), "is a part"),
            (lambda: cu.Texture(layers[1:1]), "is a part"),
            (lambda: cu.Texture(cubes[2]), "is a part"),
            (lambda: cu.Texture(levels), "pass normalized=True, or one level"),
            (lambda: cu.Texture(levels, normalized=True, levels=(0, 3)), "from 0 to 2"),
        ]:
            with pytest.raises(ValueError, match=text):
                make()
        for source in (np.zeros(8, "f4"), 5, None, "image"):
            with pytest.raises(TypeError, match="a texture reads an Array or a buffer"):
                cu.Texture(source)


def test_wrong_buffers(unchanged):
    row = cu.DeviceBuffer(4096, "f4", name="row")
    alignment = cu.Device(0).attribute("texture_alignment")
    pitch = cu.Device(0).attribute("texture_pitch_alignment")
    with unchanged("cuTexObjectCreate"):
        for make, text in [
            (lambda: cu.Texture(row[1:]), f"multiple of {alignment} bytes .TEXTURE_ALIGNMENT."),
            (lambda: cu.Texture(row.reshape(256, 16)[:, 1:]), "TEXTURE_ALIGNMENT"),
            (
                lambda: cu.Texture(row[:4080].reshape(240, 17)),
                f"are 68 bytes apart, and those of a texture a multiple of {pitch}"
                r" .TEXTURE_PITCH_ALIGNMENT.",
            ),
            (lambda: cu.Texture(row.reshape(16, 16, 16)), "has 3 dimensions of texels"),
            (lambda: cu.Texture(row.reshape(64, 64)[:, 0]), "items in one piece"),
            (lambda: cu.Texture(row, filter="linear"), "read by the numbers of its texels"),
            (lambda: cu.Texture(row, normalized=True), "read by the numbers of its texels"),
            (lambda: cu.Texture(row, address="border"), "read by the numbers of its texels"),
            (lambda: cu.Texture(row, channels=4), "its last dimension has size 4"),
            (lambda: cu.Texture(row.reshape(1024, 4), channels=3), "channels is 3"),
            (lambda: cu.Texture(row[:0]), "is empty"),
        ]:
            with pytest.raises(ValueError, match=text):
                make()
        with pytest.raises(TypeError, match="texels cannot have channels of dtype float64"):
            cu.Texture(cu.DeviceBuffer(8, "f8"))


def test_limits_of_the_device(unchanged):
    device = cu.Device(0)
    width = device.attribute("maximum_texture2d_linear_width")
    height = device.attribute("maximum_texture2d_linear_height")
    pitch = device.attribute("maximum_texture2d_linear_pitch")
    texels = cu.DeviceBuffer((height + 1) * 32, "u1", pooled=False)
    wide = cu.DeviceBuffer(width + 32, "u1")
    rows_apart = pitch - pitch % 32 + 32
    apart = cu.DeviceBuffer(2 * rows_apart, "u1", pooled=False).reshape(2, rows_apart)
    with unchanged("cuTexObjectCreate"):
        for buffer, text in [
            (texels.reshape(height + 1, 32), f"has {height + 1} rows, .* at most {height}"),
            (wide.reshape(1, width + 32), f"has {width + 32} texels in a row, .* at most {width}"),
            (apart[:, :64], f"has {rows_apart} bytes from a row .* at most {pitch}"),
        ]:
            with pytest.raises(ValueError, match=text):
                cu.Texture(buffer)
    cu.Texture(texels[: height * 32].reshape(height, 32)).close()


@pytest.mark.cuda_software  # needs memory of 2^27 texels on a GPU
def test_the_longest_row(stream, monkeypatch):
    most = cu.Device(0).attribute("maximum_texture1d_linear_width")
    buffer = cu.DeviceBuffer(most + 1, "u1", pooled=False)
    with pytest.raises(ValueError, match=f"has {most + 1} texels, and a texture .* at most {most}"):
        cu.Texture(buffer)
    buffer.close()


def test_wrong_parameters(stream):
    texture = cu.Texture(cu.DeviceBuffer.zeros(64, "i4"))
    kernel, given = fetches(), rows(np.zeros((4, 1), "i4"))
    found = cu.DeviceBuffer.zeros(16, "u4")
    with pytest.raises(TypeError, match=r"argument 3 \(count, .u32\) .* no handle of 64 bits"):
        kernel.launch(1, 4, texture, cu.read(given), found, texture, stream=stream)
    for wrap in (cu.read, cu.write, cu.shared):
        with pytest.raises(TypeError, match="takes a buffer"):
            wrap(texture)
    with pytest.raises(TypeError):
        cu.access_window(texture)


def test_other_contexts(stream):
    context = cu.Context.create(cu.Device(0))
    with context:
        array = cu.Array((6, 13), name="far")
        texture = cu.Texture(array)
        assert texture.context is context
    given = rows(centers("2d", 6, 13))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    with pytest.raises(ValueError, match="used in their own context only"):
        launch(reads("2d"), texture, given, found, stream)
    near = cu.Array.from_array(numbers((6, 13)))
    near.copy_to_async(array, stream).wait()
    back = cu.Array((6, 13))
    back.copy_from(array, stream=stream)
    assert np.array_equal(back.to_numpy(), numbers((6, 13)))
    with pytest.raises(ValueError, match="belongs to"):
        array.copy_from_async(cu.LockedBuffer.zeros(78, "f4"), stream)
    texture.close()
    array.close()


def test_a_surface_writes_what_a_texture_reads(stream, other, gate):
    array = cu.Array((6, 13), "u4", surface=True, name="image")
    surface, texture = cu.Surface(array), cu.Texture(array)
    words = places(6, 13).astype("i4")
    words = np.column_stack([4 * words[:, 0], words[:, 1:], np.arange(78) ** 2]).astype("i4")
    given, found = rows(words), cu.DeviceBuffer.zeros(4 * 78, "u4")
    gate.hold(stream)
    launch(stores(), surface, given, found, stream)
    with pytest.raises(cu.BufferBorrowedError, match="being written by launch of k"):
        launch(reads("2d", "u32"), texture, given, found, other)
    gate.open()
    at = rows(centers("2d", 6, 13))
    launch(reads("2d", "u32"), texture, at, found, stream).wait()
    assert found.to_numpy()[::4].tolist() == [number**2 for number in range(78)]
