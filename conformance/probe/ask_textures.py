"""What kernels read through texture objects.

In the answers, floats have as many digits as identify them, and words are hexadecimal without
leading zeros.
"""

import random
import struct

from driver import OUT
from section import Section, data
from texture_tools import (
    AS_INTEGER,
    BORDER,
    CLAMP,
    CUBEMAP,
    GATHER,
    LAYERED,
    LINEAR,
    MIRROR,
    MODES,
    NORMALIZED,
    PLANE,
    POINT,
    RESULT,
    SEAMLESS,
    SRGB,
    WRAP,
    View,
    array,
    filled,
    float_of,
    floats,
    level_of,
    mipmap,
    of_array,
    of_linear,
    of_mipmap,
    of_pitched,
    packed,
    reading,
    run,
    steps,
    tex,
    texture,
    texture_arguments,
    word_of,
    words,
    write_array,
)

section = Section("textures")
question = section.question
INFINITY, NAN = float("inf"), float("nan")


def made(p, numbers, *extents, how=None, view=None, **of):
    return tried(p, of_array(filled(p, numbers, *extents, **of)), how, view)


def tried(p, resource, how=None, view=None):
    """Makes a texture. Returns the status if it is refused."""
    handle = p.get("cuTexObjectCreate", OUT, *texture_arguments(p, resource, how, view))
    return handle if isinstance(handle, str) else p._made("cuTexObjectDestroy", handle)


def numbers_of(count, seed=1):
    """Floats of 24 bits between -4 and 4."""
    source = random.Random(seed)
    return [float_of(word_of(source.uniform(-4, 4))) for _ in range(count)]


# ---- weights ----

FINE = [0.5 + step / 4096 for step in range(4097)]


@question("weights: all steps of a ramp")
def _(p):
    handle = made(p, [0, 1], 2, how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE]))


@question("weights: all steps of a falling ramp")
def _(p):
    handle = made(p, [1, 0], 2, how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE]))


@question("weights: rows of a plane")
def _(p):
    handle = made(p, [0, 1], 1, 2, how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("2d"), handle, [(0.5, x) for x in FINE]))


@question("weights: slices of a volume")
def _(p):
    handle = made(p, [0, 1], 1, 1, 2, how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("3d"), handle, [(0.5, 0.5, x) for x in FINE]))


@question("weights: normalized coordinates")
def _(p):
    handle = made(p, [0, 1], 2, how=reading(CLAMP, LINEAR, NORMALIZED))
    return steps(run(p, tex("1d"), handle, [(x / 2,) for x in FINE]))


@question("weights: of three, normalized")
def _(p):
    handle = made(p, [0, 0, 1], 3, how=reading(CLAMP, LINEAR, NORMALIZED))
    return steps(run(p, tex("1d"), handle, [((1 + x) / 3,) for x in FINE]))


@question("weights: far to the right")
def _(p):
    content = [0.0] * 4096
    content[4001] = 1.0
    handle = made(p, content, 4096, how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(4000 + x,) for x in FINE]))


@question("weights: below zero, wrapped")
def _(p):
    handle = made(p, [0, 1], 2, how=reading(WRAP, LINEAR, NORMALIZED))
    return steps(run(p, tex("1d"), handle, [((x - 2) / 2,) for x in FINE]))


@question("weights: of bytes")
def _(p):
    handle = made(p, [0, 255], 2, kind="u1", how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE[::4]]))


@question("weights: of bytes near to each other")
def _(p):
    handle = made(p, [100, 101], 2, kind="u1", how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE[::4]]))


@question("weights: of signed bytes")
def _(p):
    handle = made(p, [-128, 127], 2, kind="i1", how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE[::4]]))


@question("weights: of words of 16 bits")
def _(p):
    handle = made(p, [0, 65535], 2, kind="u2", how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE[::4]]))


@question("weights: of halves")
def _(p):
    handle = made(p, [0, 1], 2, kind="f2", how=reading(CLAMP, LINEAR))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE[::4]]))


@question("weights: of sRGB")
def _(p):
    handle = made(p, [0, 255], 2, kind="u1", how=reading(CLAMP, LINEAR, SRGB))
    return steps(run(p, tex("1d"), handle, [(x,) for x in FINE[::4]]))


def eighths(seed=5, count=64):
    source = random.Random(seed)
    return [
        tuple(source.randrange(8, 56) / 16 + 1 / 256 * source.randrange(16) for _ in range(4))
        for _ in range(count)
    ]


for _name, _extents in {"1d": (4,), "2d": (4, 4), "3d": (4, 4, 4)}.items():
    for _kind in ("f4", "f2", "u1", "i1", "u2", "i2"):

        @question(f"means: {_name} of {_kind}")
        def _(p, geometry=_name, extents=_extents, kind=_kind):
            count, source = 4 ** len(extents), random.Random(3)
            content = numbers_of(count)
            if kind[0] != "f":
                bits = 8 * int(kind[1])
                low = 0 if kind[0] == "u" else -(1 << bits - 1)
                content = [source.randrange(low, low + (1 << bits)) for _ in range(count)]
            handle = made(p, content, *extents, kind=kind, how=reading(CLAMP, LINEAR))
            return words(run(p, tex(geometry), handle, eighths()))


@question("means: of numbers far from each other")
def _(p):
    found = []
    for pair in (
        (1e30, 1.0),
        (1.0, 1e-30),
        (16777216.0, 1.0),
        (3e38, 3e38),
        (3e38, -3e38),
        (1e-40, 1e-40),
        (1e-38, 2e-38),
    ):
        handle = made(p, pair, 2, how=reading(CLAMP, LINEAR))
        found.append(words(run(p, tex("1d"), handle, [(0.5 + k / 8,) for k in range(9)])))
    return found


@question("means: of infinity and NaN")
def _(p):
    found = []
    for pair in ((INFINITY, 1.0), (1.0, INFINITY), (NAN, 1.0), (1.0, NAN), (INFINITY, -INFINITY)):
        handle = made(p, pair, 2, how=reading(CLAMP, LINEAR))
        found.append(words(run(p, tex("1d"), handle, [(0.5 + k / 4,) for k in range(5)])))
    return found


@question("means: of infinity, as halves")
def _(p):
    handle = made(p, (INFINITY, 1.0), 2, kind="f2", how=reading(CLAMP, LINEAR))
    return words(run(p, tex("1d"), handle, [(0.5 + k / 4,) for k in range(5)]))


# ---- the nearest element ----


@question("nearest: where the next element begins")
def _(p):
    handle = made(p, [0, 1, 2], 3)
    at = [1 + step / 8192 for step in range(-40, 41)]
    return steps(run(p, tex("1d"), handle, [(x,) for x in at]))


@question("nearest: where the next element begins, far to the right")
def _(p):
    content = [0.0] * 4096
    content[4001] = 1.0
    handle = made(p, content, 4096)
    at = [4001 + step / 4096 for step in range(-40, 41)]
    return steps(run(p, tex("1d"), handle, [(x,) for x in at]))


@question("nearest: where the next element begins, normalized")
def _(p):
    handle = made(p, [0, 1, 2], 3, how=reading(flags=NORMALIZED))
    at = [(1 + step / 8192) / 3 for step in range(-40, 41)]
    return steps(run(p, tex("1d"), handle, [(x,) for x in at]))


@question("nearest: where the next element begins, of 4096, normalized")
def _(p):
    content = [0.0] * 4096
    content[4001] = 1.0
    handle = made(p, content, 4096, how=reading(flags=NORMALIZED))
    at = [(4001 + step / 4096) / 4096 for step in range(-40, 41)]
    return steps(run(p, tex("1d"), handle, [(x,) for x in at]))


# ---- outside ----

COARSE = [step / 4 + 1 / 16 for step in range(-36, 53)]
for _mode, _number in MODES.items():
    for _filter in (POINT, LINEAR):
        for _normalized in (False, True):
            _words = f"{('nearest', 'mean')[_filter]}{', normalized' if _normalized else ''}"

            @question(f"outside: {_mode}, {_words}")
            def _(p, mode=_number, filter=_filter, normalized=_normalized):
                flags = NORMALIZED if normalized else 0
                how = reading(mode, filter, flags, border=(16.0, 0, 0, 0))
                handle = made(p, [1, 2, 4, 8], 4, how=how)
                scale = 4 if normalized else 1
                return floats(run(p, tex("1d"), handle, [(x / scale,) for x in COARSE]))


def _plane_of(p, modes, filter, flags, at):
    how = reading(modes, filter, flags, border=(100.0, 0, 0, 0))
    handle = made(p, [1, 2, 4, 8, 16, 32, 64, 128], 4, 2, how=how)
    return floats(run(p, tex("2d"), handle, at))


for _one in MODES:
    for _other in MODES:
        for _filter in (POINT, LINEAR):

            @question(f"outside: {_one} and {_other}, {('nearest', 'mean')[_filter]}, normalized")
            def _(p, one=MODES[_one], other=MODES[_other], filter=_filter):
                at = [(x / 16, y / 8) for y in (-9, -3, 3, 7, 11) for x in (-19, -7, -1, 1, 15, 21)]
                return _plane_of(p, (one, other, CLAMP), filter, NORMALIZED, at)


# The address modes of coordinates that a texture does not have may also change what is read.
for _which, _modes in {
    "the first": (BORDER, CLAMP, CLAMP),
    "the second": (CLAMP, BORDER, CLAMP),
    "the third": (CLAMP, CLAMP, BORDER),
    "the first, wrapped": (BORDER, WRAP, WRAP),
    "all": (BORDER,) * 3,
}.items():
    for _geometry, _extents in {
        "1d": (4,),
        "2d": (4, 2),
        "3d": (4, 2, 2),
        "a1d": (4, 0, 2),
        "a2d": (4, 2, 2),
    }.items():
        for _filter in (POINT, LINEAR):

            @question(f"border of {_which}: {_geometry}, {('nearest', 'mean')[_filter]}")
            def _(p, modes=_modes, geometry=_geometry, extents=_extents, filter=_filter):
                count = 1
                for extent in extents:
                    count *= max(1, extent)
                how = reading(modes, filter, NORMALIZED, border=(100.0, 0, 0, 0))
                flags = LAYERED if geometry[0] == "a" else 0
                content = [float(1 << i) for i in range(count)]
                handle = made(p, content, *extents, flags=flags, how=how)
                layer = 1 if geometry[0] == "a" else 0
                at = [
                    (x / 16, y / 8, z / 8, layer)
                    for z in (3, 9)
                    for y in (3, 9)
                    for x in (-3, 1, 6, 9, 19)
                ]
                return floats(run(p, tex(geometry), handle, at))


@question("outside: a volume")
def _(p):
    found = []
    for mode in MODES.values():
        how = reading((CLAMP, CLAMP, mode), LINEAR, NORMALIZED, border=(9.0, 0, 0, 0))
        handle = made(p, [1, 2, 4], 1, 1, 3, how=how)
        at = [(0.5, 0.5, step / 12 + 1 / 64) for step in range(-12, 25)]
        found.append(floats(run(p, tex("3d"), handle, at)))
    return found


@question("outside: far away and no numbers")
def _(p):
    at = [1e9, -1e9, 1e20, -1e20, INFINITY, -INFINITY, NAN, 3e38, 1e-40, -1e-40, -0.0]
    found = []
    for mode in MODES.values():
        for flags in (0, NORMALIZED):
            for filter in (POINT, LINEAR):
                how = reading(mode, filter, flags, border=(16.0, 0, 0, 0))
                handle = made(p, [1, 2, 4, 8], 4, how=how)
                found.append(floats(run(p, tex("1d"), handle, [(x,) for x in at])))
    return found


# ---- integer coordinates ----

WHOLE = list(range(-6, 10)) + [1 << 30, -(1 << 31), (1 << 31) - 1]
for _mode, _number in MODES.items():

    @question(f"integer coordinates: {_mode}")
    def _(p, mode=_number):
        found = []
        for flags in (0, NORMALIZED):
            for filter in (POINT, LINEAR):
                how = reading(mode, filter, flags, border=(16.0, 0, 0, 0))
                handle = made(p, [1, 2, 4, 8], 4, how=how)
                body = tex("1d", coordinates="s32")
                found.append(floats(run(p, body, handle, [(x,) for x in WHOLE])))
        return found


@question("integer coordinates: layers")
def _(p):
    handle = made(p, [1, 2, 4, 8], 2, 0, 2, flags=LAYERED)
    at = [(x, 0, 0, layer) for layer in (0, 1, 2, 9, -1) for x in (-1, 0, 1, 2)]
    return floats(run(p, tex("a1d", coordinates="s32"), handle, at))


@question("integer coordinates: plane and volume")
def _(p):
    plane = made(p, [1, 2, 4, 8], 2, 2)
    volume = made(p, [1, 2, 4, 8], 2, 1, 2)
    at = [(x, y) for y in (-1, 0, 1, 2) for x in (-1, 0, 1, 2)]
    deep = [(x, 0, z) for z in (-1, 0, 1, 2) for x in (-1, 0, 1, 2)]
    return (
        floats(run(p, tex("2d", coordinates="s32"), plane, at)),
        floats(run(p, tex("3d", coordinates="s32"), volume, deep)),
    )


# ---- numbers ----

BYTES = list(range(256))


def middles(width, height=1):
    return [(x + 0.5, y + 0.5) for y in range(height) for x in range(width)]


@question("numbers: bytes as floats")
def _(p):
    handle = made(p, BYTES, 256, kind="u1")
    return words(run(p, tex("1d"), handle, middles(256)))


@question("numbers: signed bytes as floats")
def _(p):
    handle = made(p, [byte - 128 for byte in BYTES], 256, kind="i1")
    return words(run(p, tex("1d"), handle, middles(256)))


def _all_words(p, kind):
    content = struct.unpack(f"65536{'Hh'[kind == 'i2']}", struct.pack("65536H", *range(65536)))
    handle = made(p, content, 256, 256, kind=kind)
    found = run(p, tex("2d"), handle, middles(256, 256))
    most = 65535 if kind == "u2" else 32767
    wanted = [word_of(max(value / most, -1.0)) for value in content]
    different = [i for i, row in enumerate(found) if row[0] != wanted[i]]
    few = " ".join(f"{content[i]}:{found[i][0]:x}" for i in different[:20])
    return len(different), few, data(struct.pack("65536I", *(row[0] for row in found)))


@question("numbers: words of 16 bits as floats")
def _(p):
    return _all_words(p, "u2")


@question("numbers: signed words of 16 bits as floats")
def _(p):
    return _all_words(p, "i2")


@question("numbers: halves")
def _(p):
    held = array(p, 256, 256, kind="f2")
    write_array(p, held, struct.pack("65536H", *range(65536)), 256)
    found = run(p, tex("2d"), texture(p, of_array(held)), middles(256, 256))
    few = [f"{i:x}:{found[i][0]:x}" for i in (1, 0x3FF, 0x7C00, 0x7C01, 0x7E00, 0xFC01, 0xFFFF)]
    return " ".join(few), data(struct.pack("65536I", *(row[0] for row in found)))


@question("numbers: floats that are special")
def _(p):
    held = array(p, 8, kind="f4")
    special = (1, 0x80000001, 0x7FFFFF, 0x7F800001, 0x7FC00001, 0xFFFFFFFF, 0x80000000, 0x7F800000)
    write_array(p, held, struct.pack("8I", *special))
    return words(run(p, tex("1d"), texture(p, of_array(held)), middles(8)))


@question("numbers: sRGB")
def _(p):
    handle = made(p, BYTES, 256, kind="u1", how=reading(flags=SRGB))
    return words(run(p, tex("1d"), handle, middles(256)))


@question("numbers: sRGB of four channels")
def _(p):
    content = [value for byte in BYTES[::17] for value in (byte, 255 - byte, byte, byte)]
    handle = made(p, content, 16, kind="u1", channels=4, how=reading(flags=SRGB))
    return words(run(p, tex("1d"), handle, middles(16)), 4)


@question("numbers: sRGB of two channels")
def _(p):
    content = [value for byte in BYTES[::17] for value in (byte, 255 - byte)]
    handle = made(p, content, 16, kind="u1", channels=2, how=reading(flags=SRGB))
    return words(run(p, tex("1d"), handle, middles(16)), 4)


@question("numbers: sRGB of other formats")
def _(p):
    found = []
    for kind, content in (
        ("i1", [-50, 50]),
        ("u2", [20000, 40000]),
        ("f4", [0.25, 0.5]),
        ("f2", [0.25, 0.5]),
        ("u4", [100, 200]),
    ):
        handle = made(p, content, 2, kind=kind, how=reading(flags=SRGB))
        found.append(words(run(p, tex("1d"), handle, middles(2))))
    return found


@question("numbers: sRGB as integers")
def _(p):
    handle = made(p, [10, 100], 2, kind="u1", how=reading(flags=SRGB | AS_INTEGER))
    return words(run(p, tex("1d", "u32"), handle, middles(2)))


@question("numbers: means of sRGB")
def _(p):
    handle = made(p, [10, 250, 100, 0], 4, kind="u1", how=reading(CLAMP, LINEAR, SRGB))
    return words(run(p, tex("1d"), handle, [(0.5 + k / 16,) for k in range(64)]))


for _kind in ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4"):
    for _channels in (1, 2, 4):

        @question(f"channels that are missing: {_kind} x {_channels}")
        def _(p, kind=_kind, channels=_channels):
            found = []
            content = [3, 5, 7, 9][:channels]
            for flags in (0, AS_INTEGER):
                handle = made(p, content, 1, kind=kind, channels=channels, how=reading(flags=flags))
                found += [
                    words(run(p, tex("1d", as_), handle, [(0.5,)]), 4)
                    for as_ in ("f32", "u32", "s32")
                ]
            return found

    @question(f"border color: {_kind}")
    def _(p, kind=_kind):
        found = []
        for color in ((16.0, 0.5, -0.25, 2.0), (300.0, -3.0, 1e10, 7.9)):
            for flags in (0, AS_INTEGER):
                for channels in (1, 4):
                    how = reading(BORDER, flags=flags, border=color)
                    handle = made(
                        p, [3, 5, 7, 9][:channels], 1, kind=kind, channels=channels, how=how
                    )
                    found.append(words(run(p, tex("1d", "u32"), handle, [(-3.5,)]), 4))
        return found


@question("border color: sRGB")
def _(p):
    how = reading(BORDER, flags=SRGB, border=(0.5, 0.25, 0.75, 0.5))
    handle = made(p, [3, 5, 7, 9], 1, kind="u1", channels=4, how=how)
    return words(run(p, tex("1d"), handle, [(-3.5,)]), 4)


@question("border color: bits of an integer")
def _(p):
    found = []
    for bits in (7, 300, 0xFFFFFFFE):
        how = reading(BORDER, flags=AS_INTEGER)
        how.border[0] = float_of(bits)
        for kind in ("u1", "i1", "u2", "u4", "i4"):
            handle = made(p, [3], 1, kind=kind, how=how)
            found.append(words(run(p, tex("1d", "u32"), handle, [(-3.5,)]), 4))
    return found


@question("border color: means at the edge")
def _(p):
    found = []
    for kind, color in (("f4", 8.0), ("u1", 0.5), ("u1", 2.0), ("i1", -0.5), ("f2", 8.0)):
        handle = made(p, [1], 1, kind=kind, how=reading(BORDER, LINEAR, border=(color, 0, 0, 0)))
        found.append(words(run(p, tex("1d"), handle, [(k / 8 - 0.5,) for k in range(9)])))
    return found


@question("as another type")
def _(p):
    handle = made(p, [1.5], 1)
    whole = made(p, [200], 1, kind="u1", how=reading(flags=AS_INTEGER))
    return [
        words(run(p, tex("1d", kind), each, [(0.5,)]), 4)
        for each in (handle, whole)
        for kind in ("f32", "u32", "s32")
    ]


# ---- layers ----


@question("layers that are not there")
def _(p):
    handle = made(p, [1, 2, 4], 1, 0, 3, flags=LAYERED)
    at = [(0.5, 0, 0, layer) for layer in (0, 1, 2, 3, 100, 65535, 65536, 1 << 30, -1, -100)]
    return floats(run(p, tex("a1d"), handle, at))


@question("layers are not mixed")
def _(p):
    handle = made(p, [1, 2, 4, 8], 2, 1, 2, flags=LAYERED, how=reading(CLAMP, LINEAR))
    return floats(run(p, tex("a2d"), handle, [(1.0, 0.5, 0, layer) for layer in (0, 1)]))


# ---- levels ----


def _levels(p, how, view=None, count=4, kind="f4", size=16):
    held = mipmap(p, count, size, kind=kind)
    for level in range(count):
        width = max(1, size >> level)
        content = packed(kind, [(0, 1, 10, 100, 50)[level]] * width)
        write_array(p, level_of(p, held, level), content)
    return tried(p, of_mipmap(held), how, view)


LEVEL = f"tex.level.1d.v4.f32.f32 {RESULT}, [%rd1, %f1], %f2;"
LEVELS = [(0.5, step / 16) for step in range(-8, 72)]


@question("levels: the nearest")
def _(p):
    how = reading(flags=NORMALIZED, greatest=3.0)
    return steps(run(p, LEVEL, _levels(p, how), LEVELS))


@question("levels: where the next one begins")
def _(p):
    how = reading(flags=NORMALIZED, greatest=3.0)
    at = [(0.5, 0.5 + step / 1024) for step in range(-16, 17)]
    return steps(run(p, LEVEL, _levels(p, how), at))


@question("levels: means")
def _(p):
    how = reading(flags=NORMALIZED, greatest=3.0, mix=1)
    return floats(run(p, LEVEL, _levels(p, how), LEVELS))


@question("levels: all weights")
def _(p):
    how = reading(flags=NORMALIZED, greatest=3.0, mix=1)
    at = [(0.5, step / 1024) for step in range(1025)]
    return steps(run(p, LEVEL, _levels(p, how), at))


for _name, _more in {
    "greatest 0": {},
    "greatest 1": {"greatest": 1.0},
    "greatest 1.5": {"greatest": 1.5},
    "greatest 1.3": {"greatest": 1.3},
    "least 1": {"greatest": 3.0, "least": 1.0},
    "least 1.5": {"greatest": 3.0, "least": 1.5},
    "least 1.3": {"greatest": 3.0, "least": 1.3},
    "least above greatest": {"greatest": 1.0, "least": 2.0},
    "bias 1": {"greatest": 3.0, "bias": 1.0},
    "bias 0.7": {"greatest": 3.0, "bias": 0.7},
    "bias -1": {"greatest": 3.0, "bias": -1.0},
    "bias 20": {"greatest": 3.0, "bias": 20.0},
}.items():
    for _mix in (0, 1):

        @question(f"levels: {_name}{', means' if _mix else ''}")
        def _(p, more=_more, mix=_mix):
            how = reading(flags=NORMALIZED, mix=mix, **more)
            return steps(run(p, LEVEL, _levels(p, how), LEVELS))


for _name, _body in {
    "base": f"tex.base.1d.v4.f32.f32 {RESULT}, [%rd1, %f1];",
    "without a level": f"tex.1d.v4.f32.f32 {RESULT}, [%rd1, %f1];",
    "integer coordinates": f"tex.level.1d.v4.f32.s32 {RESULT}, [%rd1, %r1], %r2;",
}.items():

    @question(f"levels: {_name}")
    def _(p, body=_body):
        found = []
        for bias in (0.0, 1.0):
            for least in (0.0, 2.0):
                how = reading(flags=NORMALIZED, bias=bias, least=least, greatest=3.0)
                given = [(0.5, 0)]
                if "s32" in body:
                    given = [(0, level) for level in (-1, 0, 1, 2, 3, 4, 9)]
                found.append(floats(run(p, body, _levels(p, how), given)))
        return found


@question("levels: special numbers")
def _(p):
    found = []
    for mix in (0, 1):
        how = reading(flags=NORMALIZED, greatest=3.0, mix=mix)
        at = [(0.5, level) for level in (NAN, INFINITY, -INFINITY, 1e10, -1e10)]
        found.append(floats(run(p, LEVEL, _levels(p, how), at)))
    return found


@question("levels: of integers, means of levels")
def _(p):
    how = reading(flags=NORMALIZED | AS_INTEGER, greatest=3.0, mix=1)
    body = f"tex.level.1d.v4.u32.f32 {RESULT}, [%rd1, %f1], %f2;"
    return words(run(p, body, _levels(p, how, kind="u1"), LEVELS[::4]))


@question("levels: a view")
def _(p):
    found = []
    for extents in ((16, 0, 0), (8, 0, 0)):
        for more in ({"greatest": 0.0}, {"greatest": 3.0}, {"greatest": 3.0, "least": 1.0}):
            how = reading(flags=NORMALIZED, **more)
            view = View(format=22, extents=extents, levels=(1, 2))
            handle = _levels(p, how, view)
            found.append(floats(run(p, LEVEL, handle, [(0.5, k / 2) for k in range(-1, 8)])))
    return found


@question("levels: a view of one level")
def _(p):
    how = reading(flags=NORMALIZED, greatest=3.0)
    handle = _levels(p, how, View(format=22, extents=(16, 0, 0), levels=(2, 2)))
    return floats(run(p, LEVEL, handle, [(0.5, k / 2) for k in range(-1, 8)]))


@question("levels: of an array without")
def _(p):
    handle = made(p, [1, 2], 2, how=reading(flags=NORMALIZED, greatest=9.0))
    return floats(run(p, LEVEL, handle, [(0.25, 0.0), (0.25, 1.0), (0.75, 5.0)]))


@question("gradients")
def _(p):
    how = reading(flags=NORMALIZED, greatest=3.0, mix=1)
    body = f"tex.grad.1d.v4.f32.f32 {RESULT}, [%rd1, %f1], {{%f2}}, {{%f3}};"
    at = [(0.5, d / 64, 0.0) for d in range(1, 64, 4)]
    return floats(run(p, body, _levels(p, how), at))


GRADIENT_SHAPES = {
    "a plane": ("2d", (16, 8, 0), 0, "{%f4, %f4}", "{%f1, %f2}"),
    "a volume": ("3d", (16, 8, 32), 0, "{%f4, %f4, %f4, %f4}", "{%f1, %f2, %f3, %f3}"),
    "layers": ("a2d", (16, 8, 2), LAYERED, "{%r5, %f4, %f4, %f4}", "{%f1, %f2}"),
    "a cube": ("cube", (16, 16, 6), CUBEMAP, "{%f5, %f6, %f7, %f7}", "{%f1, %f2, %f3, %f3}"),
}
GRADIENTS = {
    "along x": [(step / 64, 0.0, 0.0) for step in range(1, 64, 4)],
    "along y": [(0.0, step / 64, 0.0) for step in range(1, 64, 4)],
    "along z": [(0.0, 0.0, step / 64) for step in range(1, 64, 4)],
    "oblique": [
        (x / 16, y / 16, z / 16) for x in (1, 3, -4) for y in (1, 2, -5) for z in (0, 2, -3)
    ],
    "special": [(INFINITY, 0.0, 0.0), (NAN, 0.0, 0.0), (NAN, 0.25, 0.0), (1e38, 1e38, 0.0)],
}


def _levels_of(p, shape, how):
    """A texture whose four levels are full of 0, 1, 10 and 100."""
    _, extents, flags, *_ = shape
    held = mipmap(p, 4, *extents, kind="f4", flags=flags)
    for level, number in enumerate((0, 1, 10, 100)):
        width, height = (extent >> level for extent in extents[:2])
        depth = max(1, extents[2] if flags else extents[2] >> level)
        content = packed("f4", [number] * (width * height * depth))
        write_array(p, level_of(p, held, level), content, height, depth)
    return tried(p, of_mipmap(held), how)


def _gradient_body(shape):
    geometry, _, _, place, gradient = shape
    other = "{" + ", ".join(["%f8"] * len(gradient.split(","))) + "}"
    return f"""mov.f32 %f4, 0f3F000000; mov.f32 %f5, 0f3E800000; mov.f32 %f6, 0fBE000000;
    mov.f32 %f7, 0f3F800000; mov.f32 %f8, 0f00000000; mov.u32 %r5, 1;
    tex.grad.{geometry}.v4.f32.f32 {RESULT}, [%rd1, {place}], {gradient}, {other};"""


for _name, _shape in GRADIENT_SHAPES.items():
    for _which, _at in GRADIENTS.items():

        @question(f"gradients of {_name}: {_which}")
        def _(p, shape=_shape, at=_at):
            how = reading(flags=NORMALIZED, greatest=3.0, mix=1)
            return floats(run(p, _gradient_body(shape), _levels_of(p, shape, how), at))


for _name, _more in {
    "bias 0.75": {"bias": 0.75},
    "bias -1": {"bias": -1.0},
    "least 1.3": {"least": 1.3},
    "greatest 1.3": {"greatest": 1.3},
    "anisotropy 16": {"anisotropy": 16},
    "the nearest level": {"mix": 0},
}.items():

    @question(f"gradients of a plane with {_name}")
    def _(p, more=_more):
        how = reading(flags=NORMALIZED, **({"greatest": 3.0, "mix": 1} | more))
        shape = GRADIENT_SHAPES["a plane"]
        at = GRADIENTS["along x"]
        return floats(run(p, _gradient_body(shape), _levels_of(p, shape, how), at))


# ---- cubes ----

DIRECTIONS = [
    (x, y, z)
    for x in (-1.0, -0.3, 0.2, 1.0)
    for y in (-1.0, -0.4, 0.1, 1.0)
    for z in (-1.0, -0.25, 0.35, 1.0)
]


def _cube(p, how, kind="f4"):
    return made(p, [float(i) for i in range(96)], 4, 4, 6, flags=CUBEMAP, how=how, kind=kind)


for _name, _how in {
    "nearest": (CLAMP, POINT, NORMALIZED),
    "nearest, wrapped": (WRAP, POINT, NORMALIZED),
    "nearest, seamless": (CLAMP, POINT, NORMALIZED | SEAMLESS),
    "means": (CLAMP, LINEAR, NORMALIZED),
    "means, wrapped": (WRAP, LINEAR, NORMALIZED),
    "means, border": (BORDER, LINEAR, NORMALIZED),
    "means, seamless": (CLAMP, LINEAR, NORMALIZED | SEAMLESS),
    "means, not normalized": (CLAMP, LINEAR, 0),
}.items():

    @question(f"cube: {_name}")
    def _(p, how=_how):
        return floats(run(p, tex("cube"), _cube(p, reading(*how)), DIRECTIONS))


@question("cube: special directions")
def _(p):
    at = [
        (0.0, 0.0, 0.0),
        (NAN, 1.0, 0.5),
        (INFINITY, 1.0, 0.5),
        (1e-40, 1e-41, 0.0),
        (1.0, NAN, 0.0),
    ]
    return floats(run(p, tex("cube"), _cube(p, reading(flags=NORMALIZED)), at))


# ---- gathering ----

for _name, _how in {
    "clamp": (CLAMP, POINT, 0),
    "border": (BORDER, POINT, 0),
    "wrap, normalized": (WRAP, POINT, NORMALIZED),
    "mirror, normalized": (MIRROR, POINT, NORMALIZED),
    "means": (CLAMP, LINEAR, 0),
}.items():

    @question(f"gather: {_name}")
    def _(p, how=_how):
        content = [float(i) for i in range(12)]
        how = reading(*how, border=(100.0, 0, 0, 0))
        handle = made(p, content, 4, 3, flags=GATHER, how=how)
        body = f"tld4.r.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];"
        wide, high = (4, 3) if how.flags else (1, 1)
        at = [((x + 0.3) / wide, (y + 0.7) / high) for y in range(-1, 4) for x in range(-1, 5)]
        return floats(run(p, body, handle, at), 4)


@question("gather: where the next elements begin")
def _(p):
    content = [float(i) for i in range(12)]
    handle = made(p, content, 4, 3, flags=GATHER)
    body = f"tld4.r.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];"
    return steps(run(p, body, handle, [(1.5 + k / 2048, 1.2) for k in range(-24, 25)]))


@question("gather: without the flag")
def _(p):
    content = [float(i) for i in range(12)]
    handle = made(p, content, 4, 3)
    body = f"tld4.r.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];"
    return floats(run(p, body, handle, [(1.3, 1.2)]), 4)


@question("gather: channels that are missing, bytes and integers")
def _(p):
    found = []
    for kind, flags in (("u1", 0), ("u1", AS_INTEGER), ("i2", 0), ("f2", 0), ("u4", 0)):
        handle = made(p, [1, 2, 3, 4], 2, 2, kind=kind, flags=GATHER, how=reading(flags=flags))
        for channel in "rga":
            body = f"tld4.{channel}.2d.v4.f32.f32 {RESULT}, [%rd1, {PLANE}];"
            found.append(words(run(p, body, handle, [(1.0, 1.0)]), 4))
    return found


# ---- memory ----


def _memory(p, numbers, kind="f4"):
    memory = p.device(4096)
    p.write(memory, packed(kind, numbers) + bytes(4096 - len(packed(kind, numbers))))
    return memory


@question("linear memory: indices")
def _(p):
    memory = _memory(p, range(1, 65), "i4")
    handle = texture(p, of_linear(memory, 64, "i4"))
    body = tex("1d", "s32", "s32")
    at = [(x,) for x in (*range(-3, 20), 1 << 27, (1 << 27) + 1, 1 << 30, -(1 << 31))]
    return words(run(p, body, handle, at), 4)


@question("linear memory: a part of an element")
def _(p):
    memory = _memory(p, range(1, 65), "i4")
    body = tex("1d", "s32", "s32")
    found = []
    for size in (0, 1, 4, 6, 7, 8):
        handle = tried(p, of_linear(memory, size, "i4"))
        found.append(words(run(p, body, handle, [(x,) for x in range(4)])))
    return found


@question("linear memory: float coordinates")
def _(p):
    memory = _memory(p, [float(i) for i in range(1, 65)])
    found = []
    for flags in (0, NORMALIZED):
        for filter in (POINT, LINEAR):
            handle = texture(p, of_linear(memory, 64), reading(CLAMP, filter, flags))
            at = [(x,) for x in (-1.0, -0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.3, 15.9, 16.0, 17.5, NAN)]
            found.append(floats(run(p, tex("1d"), handle, at)))
    return found


@question("linear memory: sRGB and bytes")
def _(p):
    memory = _memory(p, BYTES, "u1")
    handle = texture(p, of_linear(memory, 256, "u1", 1), reading(flags=SRGB))
    plain = texture(p, of_linear(memory, 256, "u1", 1))
    body, at = tex("1d", coordinates="s32"), [(x,) for x in range(0, 256, 15)]
    return words(run(p, body, handle, at)), words(run(p, body, plain, at))


@question("linear memory: border color")
def _(p):
    memory = _memory(p, [1.0, 2.0])
    how = reading(BORDER, border=(7.0, 7.0, 7.0, 7.0))
    handle = texture(p, of_linear(memory, 8), how)
    return floats(run(p, tex("1d", coordinates="s32"), handle, [(-1,), (0,), (2,)]), 4)


@question("pitched memory: outside")
def _(p):
    memory = _memory(p, [float(i) for i in range(64)])
    found = []
    for mode in MODES.values():
        for filter in (POINT, LINEAR):
            for flags in (0, NORMALIZED):
                how = reading(mode, filter, flags, border=(100.0, 0, 0, 0))
                handle = texture(p, of_pitched(memory, 4, 3, 32), how)
                wide, high = (4, 3) if flags else (1, 1)
                at = [
                    ((x + 0.3) / wide, (y + 0.7) / high)
                    for y in (-2, 0, 2, 3)
                    for x in (-1, 0, 3, 4, 5)
                ]
                found.append(floats(run(p, tex("2d"), handle, at)))
    return found


# ---- views ----

for _format, _name in {
    1: "u1",
    4: "i1",
    7: "u2",
    10: "i2",
    13: "u4",
    16: "i4",
    19: "f2",
    22: "f4",
}.items():

    @question(f"views: {_name} of four bytes")
    def _(p, format=_format, name=_name):
        held = array(p, 2, 2, kind="u4")
        write_array(p, held, bytes(range(16, 32)), 2)
        channels = {1: 2, 2: 1, 4: 0}[int(name[1])]
        view = View(format=format + channels, extents=(2, 2, 0))
        found = []
        for flags in (0, AS_INTEGER):
            handle = texture(p, of_array(held), reading(flags=flags), view)
            found.append(words(run(p, tex("2d", "u32"), handle, middles(2, 2)), 4))
        return found


@question("views: layers")
def _(p):
    held = filled(p, [1, 2, 4, 8, 16], 1, 1, 5, flags=LAYERED)
    found = []
    for depth in (5, 2, 0):
        view = View(format=22, extents=(1, 1, depth), layers=(2, 3))
        handle = tried(p, of_array(held), view=view)
        at = [(0.5, 0.5, 0, layer) for layer in (0, 1, 2, 3, -1)]
        found.append(floats(run(p, tex("a2d"), handle, at)))
    return found
