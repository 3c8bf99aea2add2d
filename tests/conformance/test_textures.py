"""Texture objects: what kernels read through them, compared with models in NumPy."""

import ctypes

import numpy
import pytest
from texture_kernels import RESULT

from .arrays import (
    CUBEMAP,
    FORMATS,
    FRACTIONS,
    GATHER,
    LAYERED,
    filled,
    level_of,
    make,
    make_mipmap,
    write,
)
from .client import ILLEGAL_ADDRESS, INVALID_VALUE, SUCCESS
from .textures import (
    AS_INTEGER,
    BORDER,
    CLAMP,
    LINEAR,
    MIRROR,
    NORMALIZED,
    POINT,
    SEAMLESS,
    SRGB,
    WRAP,
    Reading,
    Resource,
    View,
    floats,
    kernel,
    of_array,
    of_linear,
    of_mipmap,
    of_pitched,
    reading,
    run,
    text_of,
    texture,
)
from .textures import refused as is_refused

NOT_FOUND, NOT_SUPPORTED = 500, 801
RANDOM = numpy.random.default_rng(6)
WEIGHT = 1 / 256  # resolution of the weights with which hardware interpolates
# The coordinate operand of each geometry. %rN and %fN contain word N of a thread.
ROW, PLANE, VOLUME = "%f1", "{%f1, %f2}", "{%f1, %f2, %f3, %f3}"
ROWS, PLANES = "{%r4, %f1}", "{%r4, %f1, %f2, %f2}"


def numbers(kind, *shape):
    if kind[0] == "f":
        return RANDOM.uniform(-4, 4, shape).astype(kind)
    return RANDOM.integers(0, 256, (*shape, numpy.dtype(kind).itemsize), "u1").view(kind)[..., 0]


def promoted(content):
    """Integers as normalized floats, from 0 or -1 to 1."""
    if content.dtype.kind == "f":
        return content.astype("f8")
    most = numpy.iinfo(content.dtype).max
    return numpy.maximum(content.astype("f8") / most, -1)


def indices(index, count, outside):
    """Apply an address mode to indices that may be outside. -1 stands for the border."""
    if outside == WRAP:
        return index % count
    if outside == MIRROR:
        return numpy.where(index // count % 2, count - 1 - index % count, index % count)
    if outside == CLAMP:
        return numpy.clip(index, 0, count - 1)
    return numpy.where((index < 0) | (index >= count), -1, index)


def fetched(content, at, outside, border):
    """The elements of content with axes (z, y, x, channel) at the indices (x, y, z)."""
    places = [
        indices(index, content.shape[2 - axis], outside[axis]) for axis, index in enumerate(at)
    ]
    beyond = numpy.any([place < 0 for place in places], axis=0)
    places += [numpy.zeros_like(places[0])] * (3 - len(places))
    found = content[places[2], places[1], places[0]].astype("f8")
    found[beyond] = border[: content.shape[3]]
    return found


def corner_weights(parts):
    """The weights of the 2, 4 or 8 neighbours, as multiples of 1/256.

    As on an H100, a product of two weights is rounded to a multiple of 1/256, and the other
    neighbour gets the rest.
    """
    dimensions = parts.shape[1]
    weights = {0: numpy.full(len(parts), 256)}
    for axis in ([0], [0, 1], [2, 0, 1])[dimensions - 1]:
        for corner, weight in list(weights.items()):
            last = dimensions > 1 and axis == dimensions - 1 - (dimensions == 3)
            half = 127 if last and not corner & 1 else 128  # 128 rounds halves up, 127 down
            second = (weight * parts[:, axis] + half) // 256
            weights[corner | 1 << axis], weights[corner] = second, weight - second
    return weights


def model(content, positions, dimensions, outside, filter_, normalized, border=(0, 0, 0, 0)):
    """The expected values at positions (x, y, z): interpolated, or the nearest element."""
    positions = positions[:, :dimensions].astype("f8")
    if normalized:
        positions = positions * content.shape[2::-1][:dimensions]
    if filter_ == POINT:
        return fetched(content, numpy.floor(positions).astype(int).T, outside, border)
    # The device treats a 1-D texture as a plane of one row, and reads it at that row's upper edge.
    # So half of each value comes from the border above.
    if dimensions == 1 and outside[1] == BORDER:
        mean = model(content, positions, 1, (outside[0], CLAMP), filter_, False, border)
        return (mean + border[: content.shape[3]]) / 2
    first = numpy.floor(positions - 0.5)
    parts = numpy.round((positions - 0.5 - first) * 256).astype(int)
    total = 0
    for corner, weight in corner_weights(parts).items():
        second = numpy.array([corner >> axis & 1 for axis in range(dimensions)])
        at = (first + second).astype(int).T
        total = total + weight[:, None] / 256 * fetched(content, at, outside, border)
    return total


def positions_for(shape, normalized, count=200):
    """Random positions in and around a volume (slices, rows, elements), not at element edges."""
    extents = numpy.array(shape[::-1])
    found = RANDOM.uniform(-1.3, 2.3, (count, 3)) * extents
    # Weights are multiples of 1/256. These fractions lie between two such multiples.
    found = numpy.floor(found) + RANDOM.integers(16, 240, (count, 3)) / 256 + 1 / 1024
    return (found / extents if normalized else found).astype("f4")


TEX = {1: ("1d", ROW), 2: ("2d", PLANE), 3: ("3d", VOLUME)}
EXTENTS = {1: (1, 1, 16), 2: (1, 8, 16), 3: (4, 8, 16)}


def array_of(client, content, dimensions, **options):
    depth, height, width = content.shape[:3]
    extents = (width, height if dimensions > 1 else 0, depth if dimensions > 2 else 0)
    return filled(client, content, extents=extents, **options)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("outside", [WRAP, CLAMP, MIRROR, BORDER])
@pytest.mark.parametrize("filter_", [POINT, LINEAR])
@pytest.mark.parametrize("normalized", [False, True])
def test_sampling(client, dimensions, outside, filter_, normalized):
    content = numbers("f4", *EXTENTS[dimensions], 2)
    border = (1.5, -2.5, 0, 0)
    how = reading(outside, filter_, NORMALIZED if normalized else 0, border=border)
    handle = texture(client, of_array(array_of(client, content, dimensions)), how)
    positions = positions_for(EXTENTS[dimensions], normalized)
    geometry, place = TEX[dimensions]
    body = f"tex.{geometry}.v4.f32.f32 {RESULT}, [%rd1, {place}];"
    found = floats(client, body, handle, positions)[:, :2]
    if not normalized and outside in (WRAP, MIRROR):
        outside = CLAMP
    modes = (outside,) * 3
    wanted = model(content, positions, dimensions, modes, filter_, normalized, border)
    if filter_ == POINT:
        assert (found == wanted.astype("f4")).all()
    else:
        bound = 1e-5
        if dimensions == 1:  # two rows are weighted (`model`), and their weights are rounded
            bound = 8 * WEIGHT
        elif dimensions == 3 and not client.lib.software:
            # A GPU rounds each of the eight weights differently, by up to 1/256.
            bound = 8 * WEIGHT * abs(content).max()
        assert abs(found - wanted).max() < bound


@pytest.mark.parametrize("outside", [(BORDER, CLAMP), (CLAMP, BORDER), (BORDER, BORDER)])
def test_a_row_is_read_at_the_edge_of_a_plane(client, outside):
    """A 1-D texture reads at the upper edge of a plane.

    So the border of the second dimension has half of the weight.
    """
    array = filled(client, numpy.array([[[[1.0], [2], [4], [8]]]], "f4"), extents=(4, 0, 0))
    how = reading((*outside, CLAMP), LINEAR, border=(100, 0, 0, 0))
    body = f"tex.1d.v4.f32.f32 {RESULT}, [%rd1, {ROW}];"
    found = floats(client, body, texture(client, of_array(array), how), [[0.5], [1], [2.75], [9]])
    mean = numpy.array([1, 1.5, 5, 100 if outside[0] == BORDER else 8])
    wanted = (mean + 100) / 2 if outside[1] == BORDER else mean
    assert found[:, 0].tolist() == wanted.tolist()


def test_each_dimension_has_its_own_outside(client):
    content = numbers("f4", 4, 8, 16, 1)
    modes = (WRAP, BORDER, MIRROR)
    handle = texture(
        client, of_array(array_of(client, content, 3)), reading(modes, flags=NORMALIZED)
    )
    positions = positions_for((4, 8, 16), True)
    body = f"tex.3d.v4.f32.f32 {RESULT}, [%rd1, {VOLUME}];"
    found = floats(client, body, handle, positions)[:, :1]
    assert (found == model(content, positions, 3, modes, POINT, True).astype("f4")).all()


def every(shape):
    """The centers of all elements of a shape (rows, elements)."""
    rows, columns = numpy.indices(shape)
    return numpy.stack([columns.ravel(), rows.ravel()], axis=1).astype("f4") + 0.5


def read_plane(kind="f32"):
    return f"tex.2d.v4.{kind}.f32 {RESULT}, [%rd1, {PLANE}];"


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_formats(client, kind, channels):
    """Each format can be read as integers and as floats."""
    content = numbers(kind, 1, 8, 16, channels)
    resource = of_array(array_of(client, content, 2))
    if kind[0] != "f":
        handle = texture(client, resource, reading(flags=AS_INTEGER))
        found = run(client, read_plane("s32"), handle, every((8, 16)))[:, :channels]
        assert (found.view("i4").astype(kind) == content.reshape(-1, channels)).all()
        if kind[0] == "i" and kind != "i4":  # narrow integers are sign-extended
            assert (found.view("i4") == content.reshape(-1, channels)).all()
    if kind[1] != "4" or kind == "f4":
        handle = texture(client, resource)
        found = floats(client, read_plane(), handle, every((8, 16)))[:, :channels]
        wanted = promoted(content.reshape(-1, channels))
        assert (abs(found - wanted) <= 2**-23 * abs(wanted)).all()
    elif kind[0] != "f":  # integers of 32 bits are not converted
        found = run(client, read_plane("u32"), texture(client, resource), every((8, 16)))
        assert (found[:, :channels].astype(kind) == content.reshape(-1, channels)).all()


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("kind", FRACTIONS)
def test_fractions(client, kind, channels):
    """Textures with a format of fractions return the same values as textures of integers."""
    integers = ("u" if kind[0] == "u" else "i") + kind[-1]
    content = numbers(integers, 1, 8, 16, channels)
    array = make(client, 16, 8, kind=kind, channels=channels)
    write(client, array, content)
    for filter_ in (POINT, LINEAR):
        handle = texture(client, of_array(array), reading(CLAMP, filter_))
        plain = texture(client, of_array(array_of(client, content, 2)), reading(CLAMP, filter_))
        positions = positions_for((1, 8, 16), False)
        found = floats(client, read_plane(), handle, positions)
        assert (found == floats(client, read_plane(), plain, positions)).all()
    found = floats(client, read_plane(), texture(client, of_array(array)), every((8, 16)))
    wanted = promoted(content.reshape(-1, channels))
    assert (abs(found[:, :channels] - wanted) <= 2**-23 * abs(wanted)).all()


@pytest.mark.parametrize("outside", [CLAMP, BORDER])
@pytest.mark.parametrize("filter_", [POINT, LINEAR])
def test_a_plane_of_one_row_is_read_as_a_row(client, outside, filter_):
    """Programs give arrays for 1-D textures a height of 1, or none."""
    content, found = numbers("f4", 1, 1, 16, 1), []
    body = f"tex.1d.v4.f32.f32 {RESULT}, [%rd1, {ROW}];"
    for height in (0, 1):
        array = filled(client, content, extents=(16, height, 0))
        handle = texture(client, of_array(array), reading(outside, filter_, border=(9, 0, 0, 0)))
        positions = numpy.arange(-1, 18, 0.25, dtype="f4")[:, None]
        found.append(floats(client, body, handle, positions))
    assert (found[0] == found[1]).all()


def test_means_of_promoted_integers(client):
    content = numbers("u1", 1, 8, 16, 4)
    handle = texture(client, of_array(array_of(client, content, 2)), reading(CLAMP, LINEAR))
    positions = positions_for((1, 8, 16), False)
    found = floats(client, read_plane(), handle, positions)
    wanted = model(promoted(content), positions, 2, (CLAMP,) * 3, LINEAR, False)
    assert abs(found - wanted).max() < 0.51 / 65535 + 1e-7  # an interpolated value has 16 bits


def test_means_of_halves(client):
    content = numbers("f2", 1, 8, 16, 4)
    handle = texture(client, of_array(array_of(client, content, 2)), reading(CLAMP, LINEAR))
    positions = positions_for((1, 8, 16), False)
    found = floats(client, read_plane(), handle, positions)
    wanted = model(content, positions, 2, (CLAMP,) * 3, LINEAR, False)
    assert (found == found.astype("f2")).all()
    # A GPU rounds the weights, so its mean is not exact.
    rough = 0 if client.lib.software else WEIGHT
    assert (abs(found - wanted) <= 2**-11 * abs(wanted) + 1e-6 + rough).all()


def test_srgb(client):
    """The first three channels are converted from sRGB, and the fourth is not.

    Devices use a coarse table.
    """
    content = numpy.arange(256, dtype="u1").reshape(1, 16, 16, 1).repeat(4, axis=3)
    resource = of_array(array_of(client, content, 2))
    found = floats(
        client, read_plane(), texture(client, resource, reading(flags=SRGB)), every((16, 16))
    )
    numbers_ = numpy.arange(256) / 255
    linear = numpy.where(numbers_ <= 0.04045, numbers_ / 12.92, ((numbers_ + 0.055) / 1.055) ** 2.4)
    assert (abs(found[:, :3] - linear[:, None]) <= linear[:, None] / 127).all()
    assert (found[:, :3].copy().view("u4") & 0xFFFF == 0).all()
    assert abs(found[:, 3] - numbers_).max() < 1e-6


def test_srgb_of_two_channels(client):
    """The second channel is not converted from sRGB."""
    content = numpy.full((1, 4, 4, 2), 128, "u1")
    handle = texture(client, of_array(array_of(client, content, 2)), reading(flags=SRGB))
    found = floats(client, read_plane(), handle, [[0.5, 0.5]])[0]
    assert abs(found[0] - 0.2158) < 0.002
    assert abs(found[1] - 128 / 255) < 1e-6


@pytest.mark.parametrize("channels", [1, 2])
def test_channels_that_are_not_there_are_zero(client, channels):
    content = numbers("u1", 1, 8, 16, channels) | 1
    resource = of_array(array_of(client, content, 2))
    for how in (reading(), reading(flags=AS_INTEGER)):
        found = run(client, read_plane(), texture(client, resource, how), every((8, 16)))
        assert found[:, :channels].all()
        assert not found[:, channels:].any()


@pytest.mark.parametrize(
    ("kind", "flags", "color", "wanted"),
    [
        ("u1", 0, 0.5, 127 / 255),
        ("u1", 0, 7, 1),
        ("i1", 0, -0.25, -32 / 127),
        ("i2", 0, 0.5, 16383 / 32767),
        ("u2", 0, -1, 0),
        ("f2", 0, 1e10, 65504),
        ("u1", AS_INTEGER, 300, 300 & 255),
        ("i2", AS_INTEGER, 0xFFFFFFFE, -2),
        ("u4", AS_INTEGER, 300, 300),
    ],
)
def test_border_colors_have_the_format_of_elements(client, kind, flags, color, wanted):
    """A border color of an integer format has the bits of the float in the descriptor."""
    how = reading(BORDER, flags=flags)
    how.border[0] = numpy.array([color], "u4").view("f4")[0] if flags else color
    handle = texture(client, of_array(make(client, 16, 8, kind=kind)), how)
    found = run(client, read_plane(), handle, numpy.array([[-3, -3]], "f4").view("u4"))[0, :1]
    assert found.view("i4" if flags else "f4")[0] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_layers(client, dimensions):
    content = numbers("f4", 5, 8 if dimensions == 2 else 1, 16, 1)
    depth, height, width = content.shape[:3]
    extents = (width, height if dimensions == 2 else 0, depth)
    array = filled(client, content, extents=extents, flags=LAYERED)
    handle = texture(client, of_array(array))
    words = numpy.zeros((100, 4), "f4")
    words[:, :2] = RANDOM.integers(0, (16, height), (100, 2)) + 0.5
    # The index of a layer that does not exist is clamped to the last layer.
    layers = RANDOM.integers(0, 7, 100).astype("u4")
    words[:, 3] = layers.view("f4")
    place = PLANES if dimensions == 2 else ROWS
    body = f"tex.a{dimensions}d.v4.f32.f32 {RESULT}, [%rd1, {place}];"
    found = floats(client, body, handle, words)[:, 0]
    at = numpy.minimum(layers, 4), words[:, 1].astype(int), words[:, 0].astype(int)
    assert (found == content[(*at, 0)]).all()


def test_linear_memory(client):
    """Linear memory is read at integer coordinates. Outside of it, 0 is read."""
    content = numbers("i4", 40)
    memory = client.device(256)
    client.write(memory, content.tobytes())
    handle = texture(client, of_linear(memory, 160, "i4"))
    places = numpy.arange(-3, 43).astype("i4")[:, None]
    body = f"tex.1d.v4.s32.s32 {RESULT}, [%rd1, %r1];"
    found = run(client, body, handle, places)[:, 0].view("i4")
    assert (found == numpy.concatenate([[0] * 3, content, [0] * 3])).all()


@pytest.mark.parametrize("filter_", [POINT, LINEAR])
def test_pitched_memory(client, filter_):
    content = numbers("f4", 8, 32)
    memory = client.device(content.nbytes)
    client.write(memory, content.tobytes())
    resource = of_pitched(memory, 16, 8, 128)
    handle = texture(client, resource, reading(CLAMP, filter_))
    positions = positions_for((1, 8, 16), False)
    found = floats(client, read_plane(), handle, positions)[:, :1]
    inside = content[None, :, :16, None]
    wanted = model(inside, positions, 2, (CLAMP,) * 3, filter_, False)
    assert abs(found - wanted).max() < 1e-5


@pytest.mark.parametrize("mix", [POINT, LINEAR])
def test_levels(client, mix):
    """Between two levels, a texture reads the mean, or the value of the nearer level."""
    mipmap = make_mipmap(client, 3, 16, 8, kind="f4")
    for level in range(3):
        shape = (1, 8 >> level, 16 >> level, 1)
        write(client, level_of(client, mipmap, level), numpy.full(shape, 10**level, "f4"))
    how = reading(flags=NORMALIZED, mix=mix, least=0.25, greatest=1.75, bias=0.25)
    handle = texture(client, of_mipmap(mipmap), how)
    levels = numpy.array([-5, 0, 0.125, 0.5, 0.875, 1.125, 1.375, 7], "f4")
    words = numpy.stack([numpy.full_like(levels, 0.5)] * 2 + [levels], axis=1)
    body = f"tex.level.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}], %f3;"
    found = floats(client, body, handle, words)[:, 0]
    places = numpy.clip(levels + 0.25, 0.25, 1.75)
    if mix == POINT:
        assert (found == 10.0 ** numpy.round(places)).all()
    else:
        first = numpy.floor(places)
        wanted = 10**first * (1 - (places - first)) + 10 ** (first + 1) * (places - first)
        assert abs(found - wanted).max() < 90 * WEIGHT
    view = View(format=22, levels=(1, 2), extents=(16, 8, 0))
    handle = texture(client, of_mipmap(mipmap), reading(flags=NORMALIZED, greatest=9), view)
    assert floats(client, body, handle, [[0.5, 0.5, 0], [0.5, 0.5, 1]])[:, 0].tolist() == [10, 100]
    base = f"tex.base.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];"
    assert floats(client, base, handle, [[0.5, 0.5]])[0, 0] == 10


CUBE = "{%f1, %f2, %f3, %f3}"


def test_cubes(client):
    """A direction selects a face of the cube and the position on the face."""
    content = numbers("f4", 12, 4, 4, 1)
    words = RANDOM.uniform(-1, 1, (200, 4)).astype("f4")
    x, y, z = words[:, :3].T.astype("f8")
    sizes = abs(words[:, :3])
    axis = sizes.argmax(axis=1)
    face = 2 * axis + (numpy.choose(axis, [x, y, z]) < 0)
    s = numpy.choose(face, [-z, z, x, x, x, -x]) / sizes.max(axis=1)
    t = numpy.choose(face, [-y, -y, z, -z, -y, -y]) / sizes.max(axis=1)
    place = ((t + 1) * 2).astype(int), ((s + 1) * 2).astype(int)
    single = filled(client, content[:6], flags=CUBEMAP)
    handle = texture(client, of_array(single), reading(flags=NORMALIZED))
    body = f"tex.cube.v4.f32.f32 {RESULT}, [%rd1, {CUBE}];"
    assert (floats(client, body, handle, words)[:, 0] == content[(face, *place, 0)]).all()
    layered = filled(client, content, flags=CUBEMAP | LAYERED)
    handle = texture(client, of_array(layered), reading(flags=NORMALIZED))
    words[:, 3] = (numpy.arange(200) % 2).astype("u4").view("f4")
    body = f"tex.acube.v4.f32.f32 {RESULT}, [%rd1, {{%r4, %f1, %f2, %f3}}];"
    wanted = content[(face + 6 * (numpy.arange(200) % 2), *place, 0)]
    assert (floats(client, body, handle, words)[:, 0] == wanted).all()


def test_ties_between_faces(client):
    """If coordinates are equal in size, z takes precedence over y, and y over x."""
    faces = filled(client, numpy.arange(6, dtype="f4").repeat(4).reshape(6, 2, 2), flags=CUBEMAP)
    body = f"tex.cube.v4.f32.f32 {RESULT}, [%rd1, {CUBE}];"
    words = [[1, 1, 1], [-1, -1, -1], [1, -1, 0.5], [-1, 0.5, -0.5], [0, 0, 0]]
    found = floats(client, body, texture(client, of_array(faces), reading(flags=NORMALIZED)), words)
    assert found[:, 0].tolist() == [4, 5, 3, 1, 4]


@pytest.mark.parametrize("channel", "rgba")
def test_gathering(client, channel):
    content = numbers("f4", 1, 8, 16, 4)
    handle = texture(client, of_array(array_of(client, content, 2, flags=GATHER)))
    positions = positions_for((1, 8, 16), False)[:, :2]
    body = f"tld4.{channel}.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];"
    found = floats(client, body, handle, positions)
    first = numpy.floor(positions - 0.5).astype(int)
    for place, (right, below) in enumerate([(0, 1), (1, 1), (1, 0), (0, 0)]):
        at = (first + (right, below)).T
        wanted = fetched(content, at, (CLAMP,) * 3, (0,) * 4)[:, "rgba".index(channel)]
        assert (found[:, place] == wanted.astype("f4")).all()


def test_views(client):
    """A resource view has another format of the same size, and some of the layers."""
    content = numbers("u4", 5, 4, 8, 1)
    array = filled(client, content, flags=LAYERED)
    view = View(format=1 + 2, extents=(8, 4, 5), layers=(2, 3))  # a view as four channels of u1
    handle = texture(client, of_array(array), reading(flags=AS_INTEGER), view)
    words = numpy.zeros((32, 4), "f4")
    words[:, :2] = every((4, 8))
    words[:, 3] = numpy.full(32, 9, "u4").view("f4")
    body = f"tex.a2d.v4.u32.f32 {RESULT}, [%rd1, {PLANES}];"
    wanted = content[3].view("u1").reshape(32, 4)
    assert (run(client, body, handle, words) == wanted).all()


def test_queries(client):
    array = make(client, 16, 8, 5)
    body = """txq.width.b32 %r11, [%rd1]; txq.height.b32 %r12, [%rd1];
    txq.depth.b32 %r13, [%rd1];"""
    found = run(client, body, texture(client, of_array(array)), numpy.zeros((1, 1), "u4"))
    assert found[0, :3].tolist() == [16, 8, 5]
    mipmap = make_mipmap(client, 3, 16, 8)
    how = reading(flags=NORMALIZED)
    body = "txq.level.width.b32 %r11, [%rd1], 1; txq.level.height.b32 %r12, [%rd1], 2;"
    found = run(client, body, texture(client, of_mipmap(mipmap), how), numpy.zeros((1, 1), "u4"))
    assert found[0, :2].tolist() == [8, 2]


@pytest.mark.parametrize(
    "query", ["array_size", "num_mipmap_levels", "normalized_coords", "filter_mode", "addr_mode_0"]
)
def test_queries_that_no_driver_answers(client, query):
    """The software driver refuses these queries.

    NVIDIA's compiler answers them from the declaration of a .texref, which an object does not have.
    A real driver loads the module, but without the kernel.
    """
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    text = text_of(f"txq.{query}.b32 %r11, [%rd1];")
    status = client.call("cuModuleLoadData", ctypes.byref(module), text)
    if client.lib.software:
        assert status == NOT_SUPPORTED
    else:
        assert status == 0
        assert client.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"k") == NOT_FOUND
        client.ok("cuModuleUnload", module)


@pytest.mark.parametrize(
    "instruction",
    [
        f"tex.1d.v4.f32.u32 {RESULT}, [%rd1, %r1];",
        "tex.1d.v2.f32.f32 {%r11, %r12}, [%rd1, %f1];",
        f"tex.a1d.v4.f32.f32 {RESULT}, [%rd1, {{%f4, %f1}}];",
        f"tex.level.2d.v4.f32.s32 {RESULT}, [%rd1, {{%r1, %r2}}], %f3;",
        f"tex.1d.v4.f32.s32 {RESULT}, [%rd1, %f1];",
        f"tex.cube.v4.f32.s32 {RESULT}, [%rd1, {{%r1, %r2, %r3, %r3}}];",
        f"tld4.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];",
        f"tld4.r.1d.v4.f32.f32 {RESULT}, [%rd1, %f1];",
        "txq.level.array_size.b32 %r11, [%rd1], 1;",
        "txq.level.num_mipmap_levels.b32 %r11, [%rd1], 1;",
    ],
)
def test_refused_instructions(client, instruction):
    assert is_refused(client, instruction)


def test_descriptions(client):
    array = make(client, 16, 8)
    how = reading(BORDER, LINEAR, NORMALIZED, bias=0.5)
    handle = texture(client, of_array(array), how)
    found, kind, view = Reading(), Resource(), View()
    client.ok("cuTexObjectGetTextureDesc", ctypes.byref(found), handle)
    assert bytes(found) == bytes(how)
    client.ok("cuTexObjectGetResourceDesc", ctypes.byref(kind), handle)
    assert (kind.kind, kind.words[0]) == (0, array)
    name = "cuTexObjectGetResourceViewDesc"
    client.ok(name, ctypes.byref(view), handle)  # the texture has no view
    assert bytes(view) == bytes(View())
    handle = texture(client, of_array(array), how, View(format=1, extents=(16, 8, 0)))
    client.ok(name, ctypes.byref(view), handle)
    assert (view.format, list(view.extents)) == (1, [16, 8, 0])


def status_of(client, resource, how=None, view=None):
    """The status of making a texture object. The object is destroyed at once."""
    handle = ctypes.c_uint64()
    given = (ctypes.byref(resource), ctypes.byref(how or reading()), view and ctypes.byref(view))
    status = client.call("cuTexObjectCreate", ctypes.byref(handle), *given)
    if status == SUCCESS:
        client.ok("cuTexObjectDestroy", handle)
    return status


def test_refused_objects(client):
    memory, array = client.device(4096), make(client, 16, 8)
    flagged = of_array(array)
    flagged.flags = 1
    wrong = {
        "no array": (Resource(0, (0,)),),
        "no kind": (Resource(9, (array,)),),
        "flags": (flagged,),
        "alignment": (of_linear(memory + 4, 64),),
        "pitch": (of_pitched(memory, 16, 8, 100),),
        "outside": (of_array(array), reading(4)),
        "negative mode": (of_array(array), reading(-1)),
        "filter": (of_array(array), reading(CLAMP, 2)),
        "unknown flag": (of_array(array), reading(flags=1 << 20)),
        "seamless plane": (of_array(array), reading(flags=SEAMLESS)),
        "reserved words": (of_array(array), reading(reserved=(1,))),
        "view without format": (of_array(array), None, View(extents=(16, 8, 0))),
        "view of other size": (of_array(array), None, View(format=1, extents=(15, 8, 0))),
        "view of other format": (of_array(array), None, View(format=7, extents=(16, 8, 0))),
        "view of other levels": (
            of_array(array),
            None,
            View(format=1, extents=(16, 8, 0), levels=(0, 1)),
        ),
        "reserved words of a view": (
            of_array(array),
            None,
            View(format=1, extents=(16, 8, 0), reserved=(1,)),
        ),
    }
    for why, arguments in wrong.items():
        assert status_of(client, *arguments) == INVALID_VALUE, why
    # The third address mode is not checked, because the array has two dimensions.
    assert status_of(client, of_array(array), reading((CLAMP, CLAMP, 4))) == SUCCESS
    handle = ctypes.byref(ctypes.c_uint64())
    given = ctypes.byref(of_array(array)), ctypes.byref(reading())
    assert client.call("cuTexObjectCreate", None, *given, None) == INVALID_VALUE
    assert client.call("cuTexObjectCreate", handle, None, given[1], None) == INVALID_VALUE
    assert client.call("cuTexObjectCreate", handle, given[0], None, None) == INVALID_VALUE


def test_mistakes_that_real_drivers_accept(client):
    """The software driver refuses these textures.

    A kernel would read memory that does not exist, or meaningless numbers.
    """
    memory = client.device(4096)
    ints = of_array(make(client, 16, 8, kind="i4"))
    mistakes = {
        "no bytes": (of_linear(memory, 0),),
        "too many bytes": (of_linear(memory, 4100),),
        "short pitch": (of_pitched(memory, 16, 8, 32),),
        "too many rows": (of_pitched(memory, 16, 65, 64),),
        "coordinates of levels": (of_mipmap(make_mipmap(client, 3, 16, 8)),),
        "means of integers": (ints, reading(CLAMP, LINEAR)),
        "view of memory": (of_linear(memory, 64), None, View()),
    }
    for why, arguments in mistakes.items():
        wanted = INVALID_VALUE if client.lib.software else SUCCESS
        assert status_of(client, *arguments) == wanted, why


def fault(lost, handle, body=None, before=lambda: None):
    """Run a kernel with one thread. Returns the status and the text of the fault."""
    memory, stream = lost.device(64), lost.stream()
    function = kernel(lost, body or read_plane())
    before()
    assert lost.launch(function, stream, handle, memory, memory, ctypes.c_uint(1)) == 0
    status = lost.call("cuStreamSynchronize", stream)
    return status, lost.lib.fault_text()


def test_objects_that_are_gone(lost):
    handle = texture(lost, of_array(make(lost, 16, 8)))
    lost.ok("cuTexObjectDestroy", handle)
    status, text = fault(lost, handle)
    assert status == ILLEGAL_ADDRESS
    assert f"{handle:#x} is no texture object any more: cuTexObjectDestroy destroyed it" in text
    assert "tex.2d.v4.f32.f32" in text


def test_handles_that_are_none(lost):
    status, text = fault(lost, 0x1234)
    assert status == ILLEGAL_ADDRESS
    assert "0x1234 is no texture object, thread" in text


def test_arrays_that_are_gone(lost):
    array = make(lost, 16, 8)
    handle = texture(lost, of_array(array))
    status, text = fault(lost, handle, before=lambda: lost.ok("cuArrayDestroy", array))
    assert status == ILLEGAL_ADDRESS
    assert "0 bytes into the 128 bytes at 0x" in text
    assert text.endswith("that cuArray3DCreate_v2 made and cuArrayDestroy freed")


def test_memory_that_is_gone(lost):
    memory = lost.device(4096)
    handle = texture(lost, of_linear(memory, 64))
    lost.ok("cuMemFree_v2", memory)
    status, text = fault(lost, handle, f"tex.1d.v4.s32.s32 {RESULT}, [%rd1, 5];")
    assert status == ILLEGAL_ADDRESS
    assert "20 bytes into the 4096 bytes" in text


def test_textures_of_another_shape(lost):
    handle = texture(lost, of_array(make(lost, 16, 8)))
    status, text = fault(lost, handle, f"tex.1d.v4.f32.f32 {RESULT}, [%rd1, %f1];")
    assert status == 715
    assert "the texture is rows and columns" in text


@pytest.mark.parametrize("linear", [False, True])
def test_integers_are_for_linear_memory(lost, linear):
    """Arrays are read at float coordinates, and linear memory at integer ones.

    The software driver reports a fault for the wrong kind. Real devices read zeros.
    """
    if linear:
        resource, coordinate = of_linear(lost.device(4096), 64), "f"
    else:
        resource, coordinate = of_array(make(lost, 16)), "r"
    kind = "f32" if linear else "s32"
    body = f"tex.1d.v4.f32.{kind} {RESULT}, [%rd1, %{coordinate}1];"
    status, text = fault(lost, texture(lost, resource), body)
    assert status == 715
    assert ("is linear memory, and" if linear else "is a row of elements, and") in text


def test_the_address_of_an_array_is_no_address(lost):
    """A report of a race shows the address of an array, but no function accepts this address."""
    lost.lib.configure("races=record")
    lost.lib.forget_races()
    array, host = make(lost, 64), lost.host(64)
    for stream in (lost.stream(), lost.stream()):
        lost.ok("cuMemcpyHtoAAsync_v2", array, 0, host, 64, stream)
    lost.ok("cuCtxSynchronize")
    address = int(lost.lib.races()[0].partition("array memory ")[2].split()[0], 16)
    lost.lib.forget_races()
    status, text = fault(lost, address, "ld.global.u32 %r11, [%rd1];")
    assert status == ILLEGAL_ADDRESS
    assert "read of 4 bytes" in text


def reads_and_writes(program, order):
    """A kernel that reads an array races with a copy to it on another stream."""
    array, memory, host = make(program, 16, 8), program.device(64), program.host(16)
    handle = texture(program, of_array(array))
    one, other = program.stream(), program.stream()
    function = kernel(program, read_plane())
    program.ok("cuMemsetD8_v2", memory, 0, 64)
    program.ok("cuCtxSynchronize")
    program.ok("cuMemcpyHtoAAsync_v2", array, 0, host, 16, one)
    if order:
        program.order(one, other)
    assert program.launch(function, other, handle, memory, memory, ctypes.c_uint(1)) == 0
    program.ok("cuCtxSynchronize")
    return program.lib.races()


def test_reads_of_textures_race(program):
    races = reads_and_writes(program, False)
    assert len(races) == 1
    assert "race on array memory" in races[0]
    assert "of kernel 'k'" in races[0]
    assert "reads bytes 0 to 1" in races[0]


def test_ordered_reads_of_textures_do_not_race(program):
    assert reads_and_writes(program, True) == []


def test_contexts_take_their_objects_along(lost):
    before, context = lost.lib.counts(), ctypes.c_void_p()
    lost.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    handle = texture(lost, of_array(make(lost, 16, 8)))
    assert lost.lib.count("textures") == before["textures"] + 1
    lost.ok("cuCtxDestroy_v2", context)
    lost.ok("cuCtxSetCurrent", lost.lib.primary)
    assert lost.lib.counts() == before
    assert lost.call("cuTexObjectDestroy", handle) == INVALID_VALUE


def test_objects_of_other_contexts(lost):
    context = ctypes.c_void_p()
    handle = texture(lost, of_array(make(lost, 16, 8)))
    lost.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    status, text = fault(lost, handle)
    assert status == ILLEGAL_ADDRESS
    assert "is a texture object of another context" in text
