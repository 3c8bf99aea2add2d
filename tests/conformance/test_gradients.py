"""`tex.grad`: the level that gradients of the position tell, compared with a model in NumPy."""

import numpy
import pytest

from .arrays import CUBEMAP, LAYERED, filled, level_of, make_mipmap, write
from .textures import (
    CLAMP,
    LINEAR,
    NORMALIZED,
    POINT,
    RESULT,
    floats,
    of_array,
    of_mipmap,
    reading,
    refused,
    texture,
)

LEVELS = 5
NAN, INFINITY = float("nan"), float("inf")
# For each geometry: the extents, the flags, the position and one of the gradients. The words
# %f1 to %f3 are one gradient, and the first coordinate of the other one is %f4.
MIDDLE = "mov.f32 %f5, 0f3F000000; mov.f32 %f6, 0f3F800000; mov.f32 %f7, 0f00000000;"
SHAPES = {
    "1d": ((32, 0, 0), 0, "{%f5}", "{%f1}"),
    "2d": ((32, 16, 0), 0, "{%f5, %f5}", "{%f1, %f2}"),
    "3d": ((32, 16, 64), 0, "{%f5, %f5, %f5, %f5}", "{%f1, %f2, %f3, %f3}"),
    "a1d": ((32, 0, 3), LAYERED, "{%r5, %f5}", "{%f1}"),
    "a2d": ((32, 16, 3), LAYERED, "{%r5, %f5, %f5, %f5}", "{%f1, %f2}"),
    # The direction is that of the middle of a face, so a gradient in x and y moves along it.
    "cube": ((16, 16, 6), CUBEMAP, "{%f7, %f7, %f6, %f6}", "{%f1, %f2, %f3, %f3}"),
    "acube": ((16, 16, 12), CUBEMAP | LAYERED, "{%r5, %f7, %f7, %f6}", "{%f1, %f2, %f3, %f3}"),
}


def leveled(client, geometry, count=LEVELS, **how):
    """A texture whose levels are full of their numbers, with means between levels."""
    extents, flags = SHAPES[geometry][:2]
    mipmap = make_mipmap(client, count, *extents, kind="f4", flags=flags)
    for level in range(count):
        width, height = (max(1, extent >> level) for extent in extents[:2])
        depth = extents[2] if flags else extents[2] >> level
        content = numpy.full((max(1, depth), height, width, 1), level, "f4")
        write(client, level_of(client, mipmap, level), content)
    how = {"flags": NORMALIZED, "mix": LINEAR, "greatest": 9} | how
    return texture(client, of_mipmap(mipmap), reading(**how))


def body_of(geometry, swapped=False):
    *_, place, gradient = SHAPES[geometry]
    parts = gradient.strip("{}").split(", ")
    other = "{" + ", ".join(["%f4"] + ["%f7"] * (len(parts) - 1)) + "}"
    both = f"{other}, {gradient}" if swapped else f"{gradient}, {other}"
    return f"""{MIDDLE} mov.u32 %r5, 1;
    tex.grad.{geometry}.v4.f32.f32 {RESULT}, [%rd1, {place}], {both};"""


def sizes_of(geometry):
    """How many elements a gradient of 1 is long, in each dimension."""
    width, height, depth = SHAPES[geometry][0]
    if "cube" in geometry:  # a face is 2 wide at the end of a direction of length 1
        return numpy.array([width / 2, height / 2, 0])
    return numpy.array([width, height, 0 if SHAPES[geometry][1] else depth])


def level(length):
    """The level for a length; an H100 rounds it up to parts of 256."""
    return numpy.clip(numpy.ceil(numpy.log2(length) * 256) / 256, 0, LEVELS - 1)


def axes(geometry):
    return [axis for axis in range(3) if sizes_of(geometry)[axis]]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("geometry", SHAPES)
def test_the_longer_gradient_tells_the_level(client, geometry, swapped):
    sizes = sizes_of(geometry)
    lengths = numpy.array([0.2, 0.9, 1, 1.3, 2, 3, 4, 5.5, 8, 13.7, 16, 100])
    words = []
    for axis in axes(geometry):
        for length in lengths:
            for sign, other in ((1, 0), (-1, length / 3), (1, -1.7 * length)):
                gradient = [0.0] * 3
                gradient[axis] = sign * length / sizes[axis]
                words.append([*gradient, other / sizes[0]])
    words = numpy.array(words, "f4")
    found = floats(client, body_of(geometry, swapped), leveled(client, geometry), words)[:, 0]
    longer = numpy.maximum((abs(words[:, :3]) * sizes).max(axis=1), abs(words[:, 3]) * sizes[0])
    bound = 1e-6 if client.lib.software else 2 / 256
    assert abs(found - level(longer.astype("f8"))).max() <= bound


@pytest.mark.parametrize("geometry", ["2d", "3d", "a2d", "cube"])
def test_gradients_that_are_oblique(client, geometry):
    """Their length; devices may compute something between the largest and the sum of all parts."""
    sizes = sizes_of(geometry)
    words = numpy.random.default_rng(8).uniform(-8, 8, (100, 4)).astype("f4")
    words[:, :3] /= numpy.maximum(sizes, 1)
    words[:, :3] *= sizes > 0
    words[:, 3] = 0
    found = floats(client, body_of(geometry), leveled(client, geometry), words)[:, 0]
    parts = abs(words[:, :3].astype("f8")) * sizes
    if client.lib.software:
        wanted = level(numpy.sqrt((parts**2).sum(axis=1)))
        assert abs(found - wanted).max() < 1e-6
    assert (found >= level(parts.max(axis=1)) - 2 / 256).all()
    assert (found <= level(parts.sum(axis=1)) + 2 / 256).all()


def test_directions_to_the_side_of_a_face(client):
    """Only what moves the place on the face counts."""
    body = f"""{MIDDLE} mov.f32 %f8, 0f3E800000;
    tex.grad.cube.v4.f32.f32 {RESULT}, [%rd1, {{%f5, %f8, %f6, %f6}}],
        {{%f1, %f2, %f3, %f3}}, {{%f7, %f7, %f7, %f7}};"""
    step = 3.1 / 8
    # In the plane of the face, along the direction (0.5, 0.25, 1), and towards the middle.
    words = [[step, 0, 0], [0, step, 0], [0.5 * step, 0.25 * step, step], [0, 0, -step]]
    found = floats(client, body, leveled(client, "cube"), words)[:, 0]
    assert abs(found[:2] - level(3.1)).max() < 2 / 256
    assert found[2] == 0
    if client.lib.software:  # a device may compute the difference to the place at the end
        assert abs(found[3] - level(3.1 * numpy.hypot(0.5, 0.25))) < 1e-6


def test_the_level_is_limited(client):
    words = numpy.array([[2.0**level / 32, 0, 0, 0] for level in range(-1, 6)])
    handle = leveled(client, "2d", least=0.5, greatest=2.25)
    found = floats(client, body_of("2d"), handle, words)[:, 0]
    assert found.tolist() == [0.5, 0.5, 1, 2, 2.25, 2.25, 2.25]


def test_the_bias(client):
    """As that of tex.level. No device has been asked."""
    if not client.lib.software:
        pytest.skip("not known")
    words = numpy.array([[2.0**level / 32, 0, 0, 0] for level in range(-1, 4)])
    handle = leveled(client, "2d", bias=0.75)
    found = floats(client, body_of("2d"), handle, words)[:, 0]
    assert found.tolist() == [0, 0.75, 1.75, 2.75, 3.75]


def test_the_nearest_level(client):
    lengths = numpy.array([0.1, 1.2, 1.6, 2.5, 3.2, 7, 40])
    words = numpy.stack([lengths / 32] + [numpy.zeros(7)] * 3, axis=1)
    found = floats(client, body_of("1d"), leveled(client, "1d", mix=POINT), words)[:, 0]
    assert found.tolist() == [0, 0, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("filter_", [POINT, LINEAR])
def test_a_texture_of_one_level(client, filter_):
    """What is read does not depend on gradients."""
    content = numpy.random.default_rng(9).uniform(-4, 4, (1, 16, 32, 2)).astype("f4")
    array = filled(client, content, extents=(32, 16, 0))
    handle = texture(client, of_array(array), reading(CLAMP, filter_, NORMALIZED, greatest=9))
    words = numpy.random.default_rng(10).uniform(-1, 2, (100, 4)).astype("f4")
    place = "[%rd1, {%f1, %f2}]"
    plain = floats(client, f"tex.2d.v4.f32.f32 {RESULT}, {place};", handle, words)
    gradients = "{%f3, %f4}, {%f4, %f3}"
    body = f"tex.grad.2d.v4.f32.f32 {RESULT}, {place}, {gradients};"
    assert (floats(client, body, handle, words) == plain).all()


def test_special_numbers(client):
    """No device has been asked about these."""
    if not client.lib.software:
        pytest.skip("not known")
    numbers = [0, INFINITY, -INFINITY, 1e38, NAN, 1e-45]
    words = [[number, 0, 0, 0] for number in numbers] + [[NAN, 0.25, 0, 0], [0, 0, 0, NAN]]
    found = floats(client, body_of("2d"), leveled(client, "2d"), words)[:, 0]
    assert found.tolist() == [0, 4, 4, 4, 0, 0, 2, 0]


@pytest.mark.parametrize("form", ["%f1, %f2", "{%f1}, {%f2}"])
def test_gradients_of_a_row(client, form):
    if form[0] == "%" and not client.lib.software:
        pytest.skip("not known")
    assert not refused(client, f"tex.grad.1d.v4.f32.f32 {RESULT}, [%rd1, %f1], {form};")


@pytest.mark.parametrize(
    "instruction",
    [
        f"tex.grad.1d.v4.f32.f32 {RESULT}, [%rd1, %f1], %f2;",
        f"tex.grad.2d.v4.f32.f32 {RESULT}, [%rd1, {{%f1, %f2}}], {{%f1, %f2}};",
        f"tex.grad.2d.v4.f32.f32 {RESULT}, [%rd1, {{%f1, %f2}}], %f1, %f2;",
    ],
)
def test_refused_gradients(client, instruction):
    assert refused(client, instruction)
