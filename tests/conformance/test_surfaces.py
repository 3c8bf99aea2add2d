"""Surface objects: what kernels load, store and reduce through them."""

import ctypes

import numpy
import pytest
from texture_kernels import RESULT

from .arrays import CUBEMAP, LAYERED, SURFACE, filled, make, read, write
from .client import ILLEGAL_ADDRESS, INVALID_VALUE
from .textures import (
    AS_INTEGER,
    Resource,
    kernel,
    of_array,
    of_linear,
    reading,
    refused,
    run,
    surface,
    text_of,
    texture,
)

RANDOM = numpy.random.default_rng(7)
MISALIGNED, NOT_SUPPORTED = 716, 801
# For each geometry: the coordinate operand; the extents and the flags of the array. The words of a
# thread are x, y, and z or the layer.
PLACES = {
    "1d": ("%r1", (16, 0, 0), 0),
    "2d": ("{%r1, %r2}", (16, 8, 0), 0),
    "3d": ("{%r1, %r2, %r3, %r3}", (16, 8, 5), 0),
    "a1d": ("{%r3, %r1}", (16, 0, 5), LAYERED),
    "a2d": ("{%r3, %r1, %r2, %r2}", (16, 8, 5), LAYERED),
}


def words(*shape):
    return RANDOM.integers(0, 1 << 32, shape, "u4")


def volume(geometry):
    """The shape of the array of a geometry: slices, rows, elements."""
    return tuple(max(1, extent) for extent in PLACES[geometry][1][::-1])


def surface_of(client, geometry, content):
    _, extents, flags = PLACES[geometry]
    array = filled(client, content, extents=extents, flags=flags | SURFACE)
    return array, surface(client, array)


def places_in(geometry, element, count=50):
    """Random distinct places in the array of a geometry: as words for a kernel, and as indices."""
    shape = volume(geometry)
    chosen = RANDOM.permutation(int(numpy.prod(shape)))[:count]
    z, y, x = numpy.unravel_index(chosen, shape)
    return numpy.stack([x * element, y, z, chosen], axis=1).astype("i4"), (z, y, x)


@pytest.mark.parametrize("geometry", PLACES)
@pytest.mark.parametrize("vector", ["", "v2", "v4"])
def test_loads(client, geometry, vector):
    channels = int(vector[1:] or 1)
    content = words(*volume(geometry), channels)
    _, handle = surface_of(client, geometry, content)
    given, at = places_in(geometry, 4 * channels)
    registers = ["%r11", "%r12", "%r13", "%r14"][:channels]
    item = f"{{{', '.join(registers)}}}" if vector else "%r11"
    dots = f".{vector}" if vector else ""
    body = f"suld.b.{geometry}{dots}.b32.trap {item}, [%rd1, {PLACES[geometry][0]}];"
    assert (run(client, body, handle, given)[:, :channels] == content[at]).all()


@pytest.mark.parametrize("geometry", PLACES)
@pytest.mark.parametrize("vector", ["", "v2", "v4"])
def test_stores(client, geometry, vector):
    channels = int(vector[1:] or 1)
    content = words(*volume(geometry), channels)
    array, handle = surface_of(client, geometry, content)
    given, at = places_in(geometry, 4 * channels)
    registers = ["%r4", "%r21", "%r4", "%r22"][:channels]
    item = f"{{{', '.join(registers)}}}" if vector else "%r4"
    dots = f".{vector}" if vector else ""
    body = f"sust.b.{geometry}{dots}.b32.trap [%rd1, {PLACES[geometry][0]}], {item};"
    body += "mov.u32 %r11, %r21; mov.u32 %r12, %r22;"
    found = run(client, body, handle, given)
    stored = numpy.stack([given[:, 3], found[:, 0], given[:, 3], found[:, 1]], axis=1)
    content[at] = stored[:, :channels].astype("u4")
    assert (read(client, array, content.shape, "u4") == content).all()


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_widths(client, bits):
    """Loads of 8 bits go to 16-bit registers, and stores use the lowest bits of a register."""
    kind = f"u{min(bits, 32) // 8}"
    channels = 2 if bits == 64 else 1
    content = words(1, 1, 16 * channels).astype(kind).reshape(1, 1, 16, channels)
    array, handle = surface_of(client, "1d", content)
    register = {8: "%h1", 16: "%h1", 32: "%r15", 64: "%rd9"}[bits]
    widen = f"cvt.u64.u{max(bits, 16)} %rd8, {register};" if bits < 64 else "mov.b64 %rd8, %rd9;"
    body = f"""suld.b.1d.b{bits}.trap {register}, [%rd1, %r1]; {widen}
    mov.b64 {{%r11, %r12}}, %rd8;
    sust.b.1d.b{bits}.trap [%rd1, %r2], {register};"""
    size = bits // 8
    given = numpy.array([[3 * size, 5 * size], [4 * size, 6 * size]], "i4")
    found = run(client, body, handle, given)[:, :2].copy().view("u8")[:, 0]
    numbers = content.view(f"u{size}").reshape(16)
    assert (found == numbers[3:5]).all()
    numbers[5:7] = numbers[3:5]
    assert (read(client, array, content.shape, kind).view(f"u{size}").ravel() == numbers).all()


OUTSIDE = numpy.array([[-4, 0], [64, 0], [0, -1], [0, 8], [60, 100], [-400, -7], [8, 3]], "i4")


def test_zero(client):
    content = words(1, 8, 16)
    array, handle = surface_of(client, "2d", content)
    body = "mov.u32 %r11, 7; suld.b.2d.b32.zero %r11, [%rd1, {%r1, %r2}];"
    assert run(client, body, handle, OUTSIDE)[:, 0].tolist() == [0] * 6 + [content[0, 3, 2]]
    run(client, "sust.b.2d.b32.zero [%rd1, {%r1, %r2}], 9;", handle, OUTSIDE)
    content[0, 3, 2] = 9
    assert (read(client, array, content.shape, "u4") == content).all()


def test_clamp(client):
    content = words(1, 8, 16)
    _, handle = surface_of(client, "2d", content)
    body = "suld.b.2d.b32.clamp %r11, [%rd1, {%r1, %r2}];"
    rows = numpy.clip(OUTSIDE[:, 1], 0, 7)
    columns = numpy.clip(OUTSIDE[:, 0] // 4, 0, 15)
    assert (run(client, body, handle, OUTSIDE)[:, 0] == content[0, rows, columns]).all()


@pytest.mark.parametrize(
    ("operation", "kind", "model"),
    [
        ("add.u32", "u4", lambda values: values.sum(dtype="u4")),
        ("add.u64", "u8", lambda values: values.sum(dtype="u8")),
        ("min.s32", "i4", min),
        ("max.u32", "u4", max),
        ("min.u64", "u8", min),
        ("max.s64", "i8", max),
        ("and.b32", "u4", numpy.bitwise_and.reduce),
        ("or.b32", "u4", numpy.bitwise_or.reduce),
    ],
)
def test_reductions(client, operation, kind, model):
    """All threads change the same two elements."""
    wide = kind[1] == "8"
    content = words(1, 8, 16, 2 if wide else 1)
    array, handle = surface_of(client, "2d", content)
    given = words(200, 4).view("i4")
    given[:, 0] = numpy.arange(200) % 2 * (8 if wide else 4)
    given[:, 1] = 3
    name, _, type_ = operation.partition(".")
    register = "%rd8" if wide else "%r3"
    body = f"""mov.b64 %rd8, {{%r3, %r4}};
    sured.b.{name}.2d.{type_}.trap [%rd1, {{%r1, %r2}}], {register};"""
    run(client, body, handle, given, version="8.1" if wide and name in ("min", "max") else "7.5")
    numbers = content.view(kind).reshape(8, 16)
    operands = given[:, 2:].copy().view(kind)[:, 0] if wide else given[:, 2].view(kind)
    for place in (0, 1):
        numbers[3, place] = model(numpy.append(operands[place::2], numbers[3, place]))
    assert (read(client, array, content.shape, "u4") == content).all()


@pytest.mark.parametrize("kind", ["u4", "i4"])
@pytest.mark.parametrize("operation", ["add", "min", "max", "and", "or"])
def test_formatted_reductions(client, kind, operation):
    """Coordinates count elements. The surface's format says whether the numbers are signed."""
    content = words(1, 8, 16, 1).view(kind)
    array = filled(client, content, extents=(16, 8), flags=SURFACE)
    given = words(100, 4)
    given[:, 0], given[:, 1] = numpy.arange(100) % 3, 5
    run(client, f"sured.p.{operation}.2d.b32.trap {PLANE}, %r3;", surface(client, array), given)
    function = {"add": numpy.add, "min": numpy.minimum, "max": numpy.maximum}
    function |= {"and": numpy.bitwise_and, "or": numpy.bitwise_or}
    for x, y, operand, _ in given:
        place = content[0, y, x]
        place[...] = function[operation](place, operand.view(kind))
    assert (read(client, array, content.shape, kind) == content).all()


@pytest.mark.parametrize("kind", ["u4", "i4"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_formatted_reductions_of_pairs(client, kind, operation):
    """A number of 64 bits is a pair of channels."""
    content = words(1, 8, 16, 2)
    array = filled(client, content.view(kind), extents=(16, 8), flags=SURFACE)
    given = words(100, 4)
    given[:, 0], given[:, 1] = numpy.arange(100) % 3, 5
    body = f"mov.b64 %rd8, {{%r3, %r4}}; sured.p.{operation}.2d.b64.trap {PLANE}, %rd8;"
    run(client, body, surface(client, array), given, version="8.1")
    numbers = content.view(kind[0] + "8")[0, 5, :, 0]
    operands = given[:, 2:].copy().view(kind[0] + "8")[:, 0]
    for x in range(3):
        both = numpy.append(operands[x::3], numbers[x])
        numbers[x] = both.min() if operation == "min" else both.max()
    assert (read(client, array, content.shape, "u4") == content).all()


@pytest.mark.parametrize("formatted", [False, True])
def test_reductions_where_rows_are_not_aligned(client, formatted):
    """The software driver does not pad the rows of arrays, so these numbers are not aligned."""
    content = words(1, 3, 3, 2)
    array = filled(client, content[:, :, :, 0], extents=(3, 3), flags=SURFACE)
    if formatted:
        body, given = f"sured.p.add.2d.b32.trap {PLANE}, %r3;", [[1, 1, 5]] * 64
        content[0, 1, 1, 0] += 5 * 64
    else:
        body, given = f"sured.b.add.2d.u64.trap {PLANE}, %rd8;", [[0, 1, 5]] * 64
        body = "cvt.u64.u32 %rd8, %r3; " + body
        pair = content[0, 1, :2, 0].copy().view("u8") + numpy.uint64(5 * 64)
        content[0, 1, :2, 0] = pair.view("u4")
    run(client, body, surface(client, array), numpy.array(given, "u4"))
    assert (read(client, array, (1, 3, 3), "u4") == content[:, :, :, 0]).all()


PLANE = "[%rd1, {%r1, %r2}]"
REFUSED = [
    f"suld.b.2d.b32 %r11, {PLANE};",  # without .trap, .clamp or .zero
    f"sust.b.2d.b32 {PLANE}, %r11;",
    f"sured.b.add.2d.u32 {PLANE}, %r11;",
    f"sured.b.add.2d.s64.trap {PLANE}, %rd8;",
    f"sured.b.add.2d.b32.trap {PLANE}, %r11;",
    f"sured.b.min.2d.b32.trap {PLANE}, %r11;",
    f"sured.b.min.2d.u64.trap {PLANE}, %rd8;",  # needs PTX 8.1
    f"sured.b.max.2d.s64.trap {PLANE}, %rd8;",
    f"sured.b.and.2d.u32.trap {PLANE}, %r11;",
    f"sured.b.and.2d.b64.trap {PLANE}, %rd8;",
    f"sured.b.or.2d.b64.trap {PLANE}, %rd8;",
    f"sured.p.add.2d.b64.trap {PLANE}, %rd8;",
    f"sured.p.and.2d.b64.trap {PLANE}, %rd8;",
    f"sured.p.min.2d.b64.trap {PLANE}, %rd8;",  # needs PTX 8.1
    "sured.p.add.a1d.b32.trap [%rd1, {%r1, %r2}], %r11;",
    "sured.b.add.a1d.u32.trap [%rd1, {%r1, %r2}], %r11;",
    "suld.b.1d.b32.trap %r11, [%rd1, %f1];",
]


@pytest.mark.parametrize("instruction", REFUSED)
def test_refused_instructions(client, instruction):
    assert refused(client, instruction)


def test_floats_are_no_layers(client):
    """The software driver refuses a float register as layer index. NVIDIA's compiler accepts it."""
    load = "suld.b.a1d.b32.trap %r11, [%rd1, {%f1, %r1}];"
    assert refused(client, load) == client.lib.software


def test_wide_minima_are_of_ptx_8_1(client):
    assert not refused(client, f"sured.b.min.2d.u64.trap {PLANE}, %rd8;", version="8.1")
    assert refused(client, f"sured.b.or.2d.b64.trap {PLANE}, %rd8;", version="8.1")


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("u4", [1 << 31, 5], [1 << 31, 5]),
        ("f4", numpy.array([1.5, -2], "f4").view("u4"), [1.5, -2]),
        ("f2", numpy.array([0.1, -2], "f4").view("u4"), numpy.array([0.1, -2], "f2")),
        ("u1", [200, 7], [200, 7]),
        ("i1", numpy.array([-100, 7], "i4").view("u4"), [-100, 7]),
        ("i2", numpy.array([-30000, 7], "i4").view("u4"), [-30000, 7]),
    ],
)
def test_formatted_stores(client, kind, given, wanted):
    """Coordinates of formatted stores count elements.

    Values are converted to the surface's format.
    """
    content = numpy.zeros((1, 8, 16, 2), kind)
    array = filled(client, content, extents=(16, 8), flags=SURFACE)
    body = "sust.p.2d.v2.b32.trap [%rd1, {%r1, %r2}], {%r3, %r4};"
    run(client, body, surface(client, array), numpy.array([[5, 6, *given]], "u4"))
    content[0, 6, 5] = wanted
    assert (read(client, array, content.shape, kind) == content).all()


def test_a_texture_sees_what_a_surface_stored(client):
    array, handle = surface_of(client, "2d", words(1, 8, 16))
    body = "sust.b.2d.b32.trap [%rd1, {%r1, %r2}], %r3;"
    run(client, body, handle, numpy.array([[20, 6, 77]], "u4"))
    sampled = texture(client, of_array(array), reading(flags=AS_INTEGER))
    body = f"tex.2d.v4.u32.f32 {RESULT}, [%rd1, {{%f1, %f2}}];"
    place = numpy.array([[5.5, 6.5]], "f4").view("u4")
    assert run(client, body, sampled, place)[0, 0] == 77


def test_faces_of_a_cube_are_layers(client):
    content = words(6, 4, 4)
    handle = surface(client, filled(client, content, flags=CUBEMAP | SURFACE))
    body = "suld.b.a2d.b32.trap %r11, [%rd1, {%r3, %r1, %r2, %r2}];"
    found = run(client, body, handle, numpy.array([[8, 1, 4]], "i4"))
    assert found[0, 0] == content[4, 1, 2]


def test_queries(client):
    handle = surface(client, make(client, 16, 8, 5, flags=SURFACE))
    body = """suq.width.b32 %r11, [%rd1]; suq.height.b32 %r12, [%rd1];
    suq.depth.b32 %r13, [%rd1];"""
    found = run(client, body, handle, numpy.zeros((1, 1), "u4"))
    assert found[0, :3].tolist() == [16, 8, 5]


@pytest.mark.parametrize("query", ["array_size", "channel_order", "memory_layout"])
def test_queries_that_no_driver_answers(client, query):
    """The software driver refuses these queries.

    NVIDIA's compiler answers them from the declaration of a .surfref, which an object does not
    have.
    """
    module, text = ctypes.c_void_p(), text_of(f"suq.{query}.b32 %r11, [%rd1];")
    assert client.call("cuModuleLoadData", ctypes.byref(module), text) == NOT_SUPPORTED


def test_descriptions(client):
    array, found = make(client, 16, 8, flags=SURFACE), Resource()
    client.ok("cuSurfObjectGetResourceDesc", ctypes.byref(found), surface(client, array))
    assert (found.kind, found.words[0]) == (0, array)


def test_refused_objects(client):
    handle = ctypes.byref(ctypes.c_uint64())
    flagged = of_array(make(client, 16, flags=SURFACE))
    flagged.flags = 1
    memory = of_linear(client.device(4096), 64)
    for resource in (flagged, memory, Resource(0, (0,))):
        given = ctypes.byref(resource)
        assert client.call("cuSurfObjectCreate", handle, given) == INVALID_VALUE
    assert client.call("cuSurfObjectCreate", handle, None) == INVALID_VALUE


def test_arrays_without_the_flag(client):
    """Arrays need CUDA_ARRAY3D_SURFACE_LDST, as documented. Real drivers do not check this."""
    content = numpy.zeros((1, 8, 16, 1), "u4")
    array = filled(client, content, extents=(16, 8))
    body = "sust.b.2d.b32.trap [%rd1, {%r1, %r2}], %r3;"
    run(client, body, surface(client, array), numpy.array([[5 * 4, 6, 77]], "u4"))
    content[0, 6, 5] = 77
    assert (read(client, array, content.shape, "u4") == content).all()


# Kinds of formats, the numbers that are stored, and the integers that stand for them.
STORED = {
    "un1": ("u1", [0, 1, 0.5, -1, 2, 0.2], [0, 255, 127, 0, 255, 51]),
    "un2": ("u2", [0, 1, 0.25, -1, 2, 0.2], [0, 65535, 16384, 0, 65535, 13107]),
    "sn1": ("i1", [0, 1, 0.5, -1, -2, -0.2], [0, 127, 63, -127, -127, -25]),
    "sn2": ("i2", [0, 1, 0.25, -1, -2, -0.2], [0, 32767, 8192, -32767, -32767, -6553]),
}


@pytest.mark.parametrize("kind", STORED)
def test_formatted_stores_of_fractions(client, kind):
    """Numbers are clamped to the range from 0 or -1 to 1, and stored as integers."""
    integers, numbers, wanted = STORED[kind]
    content = numpy.zeros((1, 1, 8, 1), integers)
    array = make(client, 8, 1, kind=kind, flags=SURFACE)
    write(client, array, content)
    places = numpy.arange(len(numbers), dtype="u4")
    bits = numpy.array(numbers, "f4").view("u4")
    given = numpy.stack([places, 0 * places, bits], axis=1)
    run(client, "sust.p.2d.b32.trap [%rd1, {%r1, %r2}], %r3;", surface(client, array), given)
    content[0, 0, : len(numbers), 0] = wanted
    found = read(client, array, content.shape, integers)
    assert (found == content).all()


@pytest.mark.parametrize("kind", STORED)
def test_plain_access_to_fractions_is_to_their_bits(client, kind):
    integers = STORED[kind][0]
    content = numpy.arange(1, 9, dtype=integers).reshape(1, 1, 8, 1)
    array = make(client, 8, 1, kind=kind, flags=SURFACE)
    write(client, array, content)
    size = content.dtype.itemsize
    body = f"suld.b.2d.b{8 * size}.trap %h1, [%rd1, {{%r1, %r2}}]; cvt.u32.u16 %r11, %h1;"
    found = run(client, body, surface(client, array), numpy.array([[3 * size, 0]], "u4"))
    assert found[0, 0] == content[0, 0, 3, 0]


def test_layers_have_sixteen_bits(client):
    content = words(3, 1, 4)
    array = filled(client, content, extents=(4, 0, 3), flags=LAYERED | SURFACE)
    body = "suld.b.a1d.b32.zero %r11, [%rd1, {%r2, %r1}];"
    given = numpy.array([[0, 0x10001], [0, 3], [0, -1]], "i4")
    found = run(client, body, surface(client, array), given)[:, 0]
    assert found.tolist() == [content[1, 0, 0], 0, 0]


def test_formatted_stores_of_fewer_channels(client):
    """A formatted store of fewer channels sets the other channels to 0."""
    array = filled(client, numpy.full((1, 1, 4, 4), 7, "u1"), extents=(4, 0, 0), flags=SURFACE)
    body = "sust.p.1d.v2.b32.trap [%rd1, %r1], {%r2, %r3};"
    run(client, body, surface(client, array), numpy.array([[1, 2, 3]], "i4"))
    assert read(client, array, (1, 1, 16), "u1")[0, 0, :8].tolist() == [7] * 4 + [2, 3, 0, 0]


def test_formatted_stores_round_halves_to_zero(client):
    array = make(client, 4, kind="f2", flags=SURFACE)
    numbers = numpy.array([1 + 2**-10 * 1.75, 1e6, -1e6, numpy.inf], "f4")
    given = numpy.stack([numpy.arange(4, dtype="u4"), numbers.view("u4")], axis=1)
    run(client, "sust.p.1d.b32.trap [%rd1, %r1], %r2;", surface(client, array), given)
    found = read(client, array, (1, 1, 4), "f2")[0, 0]
    assert found.tolist() == [1 + 2**-10, 65504, -65504, numpy.inf]


def fault(lost, handle, body, place=(0, 0)):
    memory, stream = lost.device(64), lost.stream()
    lost.write(memory, numpy.array([*place, 0, 0], "i4").tobytes())
    function = kernel(lost, body)
    assert lost.launch(function, stream, handle, memory, memory, ctypes.c_uint(1)) == 0
    return lost.call("cuStreamSynchronize", stream), lost.lib.fault_text()


LOAD = "suld.b.2d.b32.trap %r11, [%rd1, {%r1, %r2}];"


@pytest.mark.parametrize("place", [(-4, 0), (64, 0), (0, 8)])
def test_trap(lost, place):
    handle = surface(lost, make(lost, 16, 8, kind="u4", flags=SURFACE))
    status, text = fault(lost, handle, LOAD, place)
    assert status == ILLEGAL_ADDRESS
    assert "outside of the surface, which has 1 x 8 rows of 64 bytes" in text


def test_alignment(lost):
    handle = surface(lost, make(lost, 16, 8, kind="u4", flags=SURFACE))
    status, text = fault(lost, handle, LOAD, (6, 0))
    assert status == MISALIGNED
    assert "byte 6 of a row is not aligned" in text


@pytest.mark.parametrize(("kind", "channels"), [("f4", 1), ("u2", 2), ("u4", 2), ("u1", 1)])
def test_formatted_reductions_need_integers(lost, kind, channels):
    handle = surface(lost, make(lost, 16, 8, kind=kind, channels=channels, flags=SURFACE))
    status, text = fault(lost, handle, f"sured.p.add.2d.b32.trap {PLANE}, %r3;")
    assert status == 715
    assert "the elements of the surface are no integers of 32 bits" in text


def test_objects_that_are_gone(lost):
    handle = surface(lost, make(lost, 16, 8, kind="u4", flags=SURFACE))
    lost.ok("cuSurfObjectDestroy", handle)
    status, text = fault(lost, handle, LOAD)
    assert status == ILLEGAL_ADDRESS
    assert "is no surface object any more: cuSurfObjectDestroy destroyed it" in text


def test_a_texture_is_no_surface(lost):
    status, text = fault(lost, texture(lost, of_array(make(lost, 16, 8))), LOAD)
    assert status == ILLEGAL_ADDRESS
    assert "is no surface object, but a texture object" in text


@pytest.mark.parametrize("ordered", [False, True])
def test_stores_to_surfaces_race(program, ordered):
    """Two kernels on two streams race if they store to the same element."""
    array = make(program, 16, 8, kind="u4", flags=SURFACE)
    handle, streams = surface(program, array), program.streams()
    function = kernel(program, "sust.b.2d.b32.trap [%rd1, {8, 1}], 5;")
    memories = [program.device(64) for _ in streams]
    for stream, memory in zip(streams, memories, strict=True):
        assert program.launch(function, stream, handle, memory, memory, ctypes.c_uint(1)) == 0
        if ordered and stream == streams[0]:
            program.order(*streams)
    program.ok("cuCtxSynchronize")
    races = program.lib.races()
    assert len(races) == (not ordered)
    assert all("race on array memory" in race for race in races)
    assert all("writes bytes 72 to 76" in race for race in races)


def test_reductions_do_not_race_with_each_other(program):
    array = make(program, 16, 8, kind="u4", flags=SURFACE)
    write(program, array, numpy.zeros((1, 8, 16), "u4"))
    handle = surface(program, array)
    function = kernel(program, "sured.b.add.2d.u32.trap [%rd1, {8, 1}], 5;")
    for stream in program.streams():
        memory = program.device(64)
        assert program.launch(function, stream, handle, memory, memory, ctypes.c_uint(1)) == 0
    program.ok("cuCtxSynchronize")
    assert program.lib.races() == []
    assert read(program, array, (1, 8, 16), "u4")[0, 1, 2] == 10
