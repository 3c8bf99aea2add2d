"""What kernels load, store and reduce with surface objects."""

import struct

from section import Section
from texture_tools import (
    CUBEMAP,
    LAYERED,
    SURFACE,
    array,
    described,
    filled,
    given,
    of_array,
    packed,
    read_array,
    reading,
    run,
    surface,
    texture,
    words,
    write_array,
)

section = Section("surfaces")
question = section.question


def made(p, numbers, *extents, kind="u4", flags=0, **of):
    held = filled(p, numbers, *extents, kind=kind, flags=flags | SURFACE, **of)
    return held, surface(p, held)


GEOMETRIES = {
    "1d": ("%r1", (4,), 0),
    "2d": ("{%r1, %r2}", (4, 3), 0),
    "3d": ("{%r1, %r2, %r3, %r3}", (4, 3, 2), 0),
    "a1d": ("{%r3, %r1}", (4, 0, 2), LAYERED),
    "a2d": ("{%r3, %r1, %r2, %r2}", (4, 3, 2), LAYERED),
}


def volume(extents):
    width, height, depth = (*extents, 0, 0)[:3]
    return width, max(1, height), max(1, depth)


OUTSIDE = [
    (-4, 0, 0),
    (-1000, 0, 0),
    (16, 0, 0),
    (1 << 30, 0, 0),
    (-(1 << 31), 0, 0),
    (4, -1, 0),
    (4, 3, 0),
    (4, 1 << 30, 0),
    (4, 1, -1),
    (4, 1, 2),
    (4, 1, 1 << 30),
    (8, 2, 1),
]
for _geometry, (_place, _extents, _flags) in GEOMETRIES.items():
    for _mode in ("clamp", "zero"):

        @question(f"load outside: {_geometry}, {_mode}")
        def _(p, geometry=_geometry, place=_place, extents=_extents, flags=_flags, mode=_mode):
            wide, high, deep = volume(extents)
            _, handle = made(p, range(1, 1 + wide * high * deep), *extents, flags=flags)
            body = f"mov.u32 %r11, 77; suld.b.{geometry}.b32.{mode} %r11, [%rd1, {place}];"
            return words(run(p, body, handle, OUTSIDE))

        @question(f"store outside: {_geometry}, {_mode}")
        def _(p, geometry=_geometry, place=_place, extents=_extents, flags=_flags, mode=_mode):
            wide, high, deep = volume(extents)
            held, found = None, []
            for at in OUTSIDE:
                held, handle = made(p, [0] * (wide * high * deep), *extents, flags=flags)
                body = f"sust.b.{geometry}.b32.{mode} [%rd1, {place}], 9;"
                said = run(p, body, handle, [at])
                after = read_array(p, held, 4 * wide * high * deep, high, deep)
                stored = [
                    i
                    for i, value in enumerate(struct.unpack(f"{len(after) // 4}I", after))
                    if value
                ]
                found.append(said if isinstance(said, str) else stored)
            return [str(each).replace(",", "") for each in found]


WIDTHS = {"b8": "%h1", "b16": "%h1", "b32": "%r15", "b64": "%rd9"}
for _mode in ("clamp", "zero"):
    for _type, _register in WIDTHS.items():

        @question(f"load not aligned: {_type}, {_mode}", alone=True)
        def _(p, type=_type, register=_register, mode=_mode):
            _, handle = made(p, [0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C], 4)
            wide = {"b8": "u16", "b16": "u16", "b32": "u32"}.get(type)
            widen = f"cvt.u64.{wide} %rd8, {register};" if wide else f"mov.b64 %rd8, {register};"
            body = f"""suld.b.1d.{type}.{mode} {register}, [%rd1, %r1]; {widen}
            mov.b64 {{%r11, %r12}}, %rd8;"""
            return words(run(p, body, handle, [(x,) for x in range(17)]), 2)

        @question(f"store not aligned: {_type}, {_mode}", alone=True)
        def _(p, type=_type, register=_register, mode=_mode):
            found = []
            fill = {
                "%h1": "mov.u16 %h1, 0x7777;",
                "%r15": "mov.u32 %r15, 0x77777777;",
                "%rd9": "mov.u64 %rd9, 0x7777777777777777;",
            }[register]
            for x in (1, 2, 3, 6, 12, 14):
                held, handle = made(p, [0] * 4, 4)
                body = f"{fill} sust.b.1d.{type}.{mode} [%rd1, %r1], {register};"
                said = run(p, body, handle, [(x,)])
                found.append(said if isinstance(said, str) else read_array(p, held, 16))
                if isinstance(said, str):
                    break
            return found


@question("load wider than the surface", alone=True)
def _(p):
    _, handle = made(p, [1], 1)
    body = "suld.b.1d.v4.b32.zero {%r11, %r12, %r13, %r14}, [%rd1, %r1];"
    clamped = body.replace("zero", "clamp")
    return [words(run(p, each, handle, [(0,), (16,)]), 4) for each in (body, clamped)]


@question("load across the end of a row", alone=True)
def _(p):
    _, handle = made(p, [1, 2, 3], 3)
    body = "suld.b.1d.v2.b32.zero {%r11, %r12}, [%rd1, %r1];"
    clamped = body.replace("zero", "clamp")
    return [words(run(p, each, handle, [(0,), (8,), (16,)]), 4) for each in (body, clamped)]


@question("load across the end of a row, trap", alone=True)
def _(p):
    _, handle = made(p, [1, 2, 3], 3)
    return words(run(p, "suld.b.1d.v2.b32.trap {%r11, %r12}, [%rd1, %r1];", handle, [(8,)]), 4)


@question("faces of a cube are layers")
def _(p):
    _, handle = made(p, range(24), 2, 2, 6, flags=CUBEMAP)
    body = "suld.b.a2d.b32.zero %r11, [%rd1, {%r3, %r1, %r2, %r2}];"
    return words(run(p, body, handle, [(4, 1, face) for face in range(-1, 8)]))


FORMATTED = {
    "u1": [0, 1, 200, 255, 256, 70000, 0x80000000, 0xFFFFFFFF],
    "i1": [0, 1, 127, 128, 70000, 0x80000000, 0xFFFFFFFF, 0xFFFFFF80, 0xFFFFFF7F],
    "u2": [0, 1, 65535, 65536, 0x80000000, 0xFFFFFFFF],
    "i2": [0, 1, 32767, 32768, 0x80000000, 0xFFFFFFFF, 0xFFFF8000, 0xFFFF7FFF],
    "u4": [0, 1, 0x80000000, 0xFFFFFFFF, 0x3F800000],
    "i4": [0, 1, 0x80000000, 0xFFFFFFFF, 0x3F800000],
    "f2": [
        0x3F800000,
        0x3DCCCCCD,
        0x477FF000,
        0x47800000,
        0x7F800000,
        0x7FC00001,
        0x33000001,
        0x32FFFFFF,
        0x387FE000,
        0x3F801000,
        0x3F803000,
        0x80000000,
        5,
    ],
    "f4": [0x3F800000, 1, 0x7F800001, 0x80000000, 5],
}
for _kind, _given in FORMATTED.items():

    @question(f"formatted stores: {_kind}")
    def _(p, kind=_kind, given=_given):
        held, handle = made(p, [0] * 16, 16, kind=kind)
        rows = [(x, value) for x, value in enumerate(given)]
        said = run(p, "sust.p.1d.b32.trap [%rd1, %r1], %r2;", handle, rows)
        size = int(kind[1])
        after = read_array(p, held, 16 * size)
        if isinstance(said, str):
            return said
        return " ".join(after[i : i + size].hex() for i in range(0, size * len(given), size))

    @question(f"formatted stores of fewer channels: {_kind}")
    def _(p, kind=_kind):
        held, handle = made(p, [3] * 16, 4, kind=kind, channels=4)
        one = run(p, "sust.p.1d.b32.trap [%rd1, %r1], 2;", handle, [(1,)])
        two = run(p, "sust.p.1d.v2.b32.trap [%rd1, %r1], {2, 4};", handle, [(2,)])
        said = [each for each in (one, two) if isinstance(each, str)]
        after, size = read_array(p, held, 16 * int(kind[1])), 4 * int(kind[1])
        return said or " ".join(after[i : i + size].hex() for i in range(0, len(after), size))

    @question(f"formatted stores of more channels: {_kind}")
    def _(p, kind=_kind):
        held, handle = made(p, [3] * 4, 4, kind=kind)
        said = run(p, "sust.p.1d.v4.b32.trap [%rd1, %r1], {2, 4, 6, 8};", handle, [(1,)])
        return said if isinstance(said, str) else read_array(p, held, 4 * int(kind[1]))


for _mode in ("clamp", "zero"):

    @question(f"formatted stores outside: {_mode}")
    def _(p, mode=_mode):
        found = []
        for x in (-1, -100, 4, 1 << 28):
            held, handle = made(p, [3] * 4, 4)
            said = run(p, f"sust.p.1d.b32.{mode} [%rd1, %r1], 9;", handle, [(x,)])
            found.append(said if isinstance(said, str) else read_array(p, held, 16))
        return found


REDUCTIONS = {
    "add.u32": "u4",
    "add.s32": "u4",
    "min.u32": "u4",
    "min.s32": "u4",
    "max.u32": "u4",
    "max.s32": "u4",
    "and.b32": "u4",
    "or.b32": "u4",
    "add.u64": "u4 x 2",
    "min.u64": "u4 x 2",
    "max.s64": "u4 x 2",
}
for _name, _kind in REDUCTIONS.items():

    @question(f"reduction: {_name}")
    def _(p, name=_name, kind=_kind):
        operation, type = name.split(".")
        wide = "64" in type
        channels = 2 if wide else 1
        held, handle = made(
            p, [5, 0x80000001, 7, 9, 1, 2, 3, 4][: 4 * channels], 4, channels=channels
        )
        body = f"""mov.b64 %rd8, {{%r2, %r3}};
        sured.b.{operation}.1d.{type}.trap [%rd1, %r1], {"%rd8" if wide else "%r2"};"""
        size = 4 * channels
        rows = [(size * (i % 4), 0x7000000F + i, 3 * i) for i in range(8)]
        said = run(p, body, handle, rows, version="8.1" if wide else "7.5")
        return said if isinstance(said, str) else read_array(p, held, 4 * size)


@question("reduction of bytes of a surface of bytes", alone=True)
def _(p):
    held, handle = made(p, [1] * 16, 16, kind="u1")
    said = run(p, "sured.b.add.1d.u32.trap [%rd1, %r1], 5;", handle, [(4,)])
    return said if isinstance(said, str) else read_array(p, held, 16)


for _mode in ("clamp", "zero"):

    @question(f"reduction outside: {_mode}")
    def _(p, mode=_mode):
        found = []
        for x in (-4, 16, 1 << 28):
            held, handle = made(p, [3] * 4, 4)
            said = run(p, f"sured.b.add.1d.u32.{mode} [%rd1, %r1], 9;", handle, [(x,)])
            found.append(said if isinstance(said, str) else read_array(p, held, 16))
        return found


@question("formatted reduction")
def _(p):
    held, handle = made(p, [3] * 4, 4)
    said = run(p, "sured.p.add.1d.b32.trap [%rd1, %r1], 9;", handle, [(2,)])
    return said if isinstance(said, str) else read_array(p, held, 16)


@question("a vector of a surface of bytes")
def _(p):
    held = array(p, 16, kind="u1", flags=SURFACE)
    write_array(p, held, packed("u1", range(16)))
    body = "suld.b.1d.v2.b32.trap {%r11, %r12}, [%rd1, %r1];"
    return words(run(p, body, surface(p, held), [(0,), (8,)]), 2)


# Numbers at the limits, beyond them, and between two integers.
_NUMBERS = (0, 1, -1, 2, -2, 0.5, -0.5, 0.2, 1.5 / 255, 2.5 / 255, 1.5 / 127, float("nan"))
_ITEMS = {"un1": "B", "un2": "H", "sn1": "b", "sn2": "h"}
for _name, _kind in {"un1": 0xC0, "un2": 0xC3, "sn1": 0xC6, "sn2": 0xC9}.items():

    @question(f"fractions: formatted stores to {_name}")
    def _(p, kind=_kind):
        held = array(p, 16, 1, kind=kind, flags=SURFACE)
        write_array(p, held, bytes(32 if kind % 6 > 2 else 16))
        rows = [(x, 0, *struct.unpack("i", struct.pack("f", n))) for x, n in enumerate(_NUMBERS)]
        said = run(p, "sust.p.2d.b32.trap [%rd1, {%r1, %r2}], %r3;", surface(p, held), rows)
        return said if isinstance(said, str) else read_array(p, held, 12)

    @question(f"fractions: formatted stores to {_name} of numbers above ties")
    def _(p, name=_name, kind=_kind):
        most = (1 << (8 * int(name[2]) - (name[0] == "s"))) - 1
        held = array(p, 24, 1, kind=kind, flags=SURFACE)
        write_array(p, held, bytes(24 * int(name[2])))
        rows = []
        for x in range(24):
            number = struct.pack("f", ((37, 100)[x // 12] + 0.5 + x % 12 / 48) / most)
            rows.append((x, 0, *struct.unpack("i", number)))
        said = run(p, "sust.p.2d.b32.trap [%rd1, {%r1, %r2}], %r3;", surface(p, held), rows)
        if isinstance(said, str):
            return said
        return struct.unpack(f"24{_ITEMS[name]}", read_array(p, held, 24 * int(name[2])))

    @question(f"fractions: formatted stores to {_name}, how far above a tie numbers are rounded up")
    def _(p, name=_name, kind=_kind):
        """For 24 integers, the smallest k from which n + 1/2 + k/1024 becomes n + 1."""
        size, signed = int(name[2]), name[0] == "s"
        most = (1 << (8 * size - signed)) - 1
        floors = [i * (most - 1) // 23 for i in range(24)]
        held = array(p, 257, 24, kind=kind, flags=SURFACE)
        write_array(p, held, bytes(257 * 24 * size), 24)
        rows = []
        for y, floor in enumerate(floors):
            sign = -1 if signed and y % 2 else 1
            for k in range(257):
                number = struct.pack("f", sign * (floor + 0.5 + k / 1024) / most)
                rows.append((k, y, *struct.unpack("i", number)))
        said = run(p, "sust.p.2d.b32.trap [%rd1, {%r1, %r2}], %r3;", surface(p, held), rows)
        if isinstance(said, str):
            return said
        found = struct.unpack(f"{257 * 24}{_ITEMS[name]}", read_array(p, held, 257 * 24 * size, 24))
        lines = [found[257 * y : 257 * (y + 1)] for y in range(24)]
        return [
            next((k for k, n in enumerate(line) if abs(n) > floor), None)
            for floor, line in zip(floors, lines, strict=True)
        ]


for _channels in (1, 2, 4):

    @question(f"fractions: an array of two channels, described with {_channels}")
    def _(p, channels=_channels):
        return p.tried("cuArray3DCreate_v2", p.cell(), given(p, described(0xC1, channels)))


@question("fractions: read as integers")
def _(p):
    held = array(p, 4, 1, kind=0xC0)
    write_array(p, held, bytes([0, 7, 200, 255]))
    body = "tex.2d.v4.s32.f32 {%r11, %r12, %r13, %r14}, [%rd1, {%f1, %f2}];"
    handle = texture(p, of_array(held), reading(flags=1))
    return words(run(p, body, handle, [(x + 0.5, 0.5) for x in range(4)]))


@question("a plane of one row as a row")
def _(p):
    _, handle = made(p, range(1, 5), 4, 1)
    return words(run(p, "suld.b.1d.b32.trap %r11, [%rd1, %r1];", handle, [(4,), (8,)]))


@question("asked as a texture")
def _(p):
    _, handle = made(p, range(1, 13), 4, 3)
    return words(run(p, "txq.width.b32 %r11, [%rd1]; txq.height.b32 %r12, [%rd1];", handle, [(0,)]))
