"""Texture and surface objects: which can be made, and what the driver returns about them."""

import ctypes

from driver import OUT
from section import Section
from texture_tools import (
    AS_INTEGER,
    BORDER,
    CLAMP,
    CUBEMAP,
    DEPTH,
    GATHER,
    LAYERED,
    LINEAR,
    MIRROR,
    NORMALIZED,
    NOT_TRILINEAR,
    POINT,
    SEAMLESS,
    SRGB,
    SURFACE,
    WRAP,
    Reading,
    Resource,
    View,
    array,
    given,
    mipmap,
    of_array,
    of_linear,
    of_mipmap,
    of_pitched,
    reading,
    surface,
    texture,
    texture_status,
)

section = Section("texture_objects")
question = section.question


def flagged(resource, flags):
    resource.flags = flags
    return resource


KINDS = {
    "array": lambda p, **of: of_array(array(p, 16, 8, **of)),
    "row": lambda p, **of: of_array(array(p, 16, **of)),
    "volume": lambda p, **of: of_array(array(p, 16, 8, 4, **of)),
    "layers": lambda p, **of: of_array(array(p, 16, 8, 5, flags=LAYERED, **of)),
    "cube": lambda p, **of: of_array(array(p, 8, 8, 6, flags=CUBEMAP, **of)),
    "mipmap": lambda p, **of: of_mipmap(mipmap(p, 3, 16, 8, **of)),
    "mipmap_layers": lambda p, **of: of_mipmap(mipmap(p, 3, 16, 8, 5, flags=LAYERED, **of)),
    "linear": lambda p, size=64, offset=0, **of: of_linear(p.device(4096) + offset, size, **of),
    "pitched": lambda p, width=16, height=8, pitch=64, offset=0, **of: of_pitched(
        p.device(4096) + offset, width, height, pitch, **of
    ),
    "unflagged": lambda p, **of: of_array(array(p, 16, 8, **of)),
}
NAMES = {
    "AS_INTEGER": AS_INTEGER,
    "BORDER": BORDER,
    "CLAMP": CLAMP,
    "DEPTH": DEPTH,
    "GATHER": GATHER,
    "LAYERED": LAYERED,
    "LINEAR": LINEAR,
    "MIRROR": MIRROR,
    "NORMALIZED": NORMALIZED,
    "NOT_TRILINEAR": NOT_TRILINEAR,
    "POINT": POINT,
    "SEAMLESS": SEAMLESS,
    "SRGB": SRGB,
    "SURFACE": SURFACE,
    "WRAP": WRAP,
    "Resource": Resource,
    "View": View,
    "reading": reading,
    "flagged": flagged,
    "of_linear": of_linear,
    "of_pitched": of_pitched,
    "how": reading,
    "normal": lambda **more: reading(flags=NORMALIZED, **more),
    "nine": lambda: reading(flags=NORMALIZED, greatest=9.0),
    "plane": lambda **more: View(format=1, extents=(16, 8, 0), **more),
    "deep": lambda **more: View(format=1, extents=(16, 8, 5), **more),
    "view": lambda format, *extents, **more: View(format=format, extents=extents, **more),
    "of_array_": of_array,
    "of_mipmap_": of_mipmap,
}


# Each line has a name and the arguments for cuTexObjectCreate.
OBJECTS = """
    an array | array()
    a mipmap | mipmap(), normal()
    linear memory | linear()
    pitched memory | pitched()
    array 0 | Resource(0, (0,))
    array that is a mipmap | flagged(mipmap(), 0) and Resource(0, (mipmap().words[0],))
    mipmap 0 | Resource(1, (0,)), normal()
    resource kind 4 | Resource(4, (array().words[0],))
    resource kind 9 | Resource(9, (array().words[0],))
    resource kind -1 | Resource(-1, (array().words[0],))
    resource flags 1 | flagged(array(), 1)
    resource flags of linear memory | flagged(linear(), 1)
    linear at null | of_linear(0, 64)
    linear at 1 | of_linear(1, 64)
    linear at offset 4 | linear(offset=4)
    linear at offset 16 | linear(offset=16)
    linear at offset 32 | linear(offset=32)
    linear at offset 256 | linear(offset=256)
    linear at offset 512 | linear(offset=512)
    linear of 0 bytes | linear(0)
    linear of 1 byte of 4 | linear(1)
    linear of 3 bytes of 4 | linear(3)
    linear of 6 bytes of 4 | linear(6)
    linear of all bytes | linear(4096)
    linear of 4 bytes too many | linear(4100)
    linear of 4 KiB too many | linear(8192)
    linear of 2 MiB too many | linear((2 << 20) + 4096)
    linear of 1 TiB | linear(1 << 40)
    linear of 2^28 elements | linear(1 << 30)
    linear of 2^28 + 1 elements | linear((1 << 30) + 4)
    linear of 2^27 + 1 elements | linear((1 << 29) + 4)
    linear of host memory | of_linear(p.host(4096), 64)
    linear of pageable memory | of_linear(p.pageable(4096), 64)
    linear of managed memory | of_linear(p.managed(4096), 64)
    linear of ordered memory | of_linear(p.ordered(4096), 64)
    linear of 3 channels | linear(channels=3)
    linear of 0 channels | linear(channels=0)
    linear with means | linear(), how(CLAMP, LINEAR)
    linear of integers with means | linear(kind="i4"), how(CLAMP, LINEAR)
    linear with border | linear(), how(BORDER)
    linear wrapped | linear(), how(WRAP)
    linear normalized | linear(), normal()
    linear sRGB | linear(kind="u1", channels=4), how(flags=SRGB)
    linear with levels | linear(), how(greatest=3.0)
    linear with anisotropy | linear(), how(anisotropy=4)
    linear of elements that do not fit | linear(64, kind="u4", channels=4)
    pitched at null | of_pitched(0, 16, 8, 64)
    pitched at offset 16 | pitched(offset=16)
    pitched at offset 32 | pitched(offset=32)
    pitched at offset 256 | pitched(offset=256)
    pitched at offset 512 | pitched(offset=512)
    pitch 100 | pitched(pitch=100)
    pitch 80 | pitched(pitch=80)
    pitch 96 | pitched(pitch=96)
    pitch 48, too short | pitched(pitch=48)
    pitch 32, too short | pitched(pitch=32)
    pitch 0 | pitched(pitch=0)
    pitched without width | pitched(width=0)
    pitched without height | pitched(height=0)
    pitched of 64 rows, all | pitched(height=64)
    pitched of 65 rows, too many | pitched(height=65)
    pitched of 64 Ki rows | pitched(height=65000)
    pitched of 65001 rows | pitched(height=65001)
    pitched of width 131072 | pitched(width=131072, height=1, pitch=524288)
    pitched of width 131073 | pitched(width=131073, height=1, pitch=524320)
    pitched of width 131073, bytes | pitched(width=131073, height=1, pitch=131104, kind="u1")
    pitch 2097120 | pitched(pitch=2097120, height=1)
    pitch 2097152 | pitched(pitch=2097152, height=1)
    pitch 4194304 | pitched(pitch=4194304, height=1)
    pitched of host memory | of_pitched(p.host(4096), 16, 8, 64)
    pitched of pageable memory | of_pitched(p.pageable(4096), 16, 8, 64)
    pitched of 3 channels | pitched(channels=3, pitch=192)
    pitched with means | pitched(), how(CLAMP, LINEAR)
    pitched of integers with means | pitched(kind="i4"), how(CLAMP, LINEAR)
    pitched wrapped | pitched(), how(WRAP, flags=NORMALIZED)
    pitched mirrored | pitched(), how(MIRROR, flags=NORMALIZED)
    pitched wrapped, not normalized | pitched(), how(WRAP)
    pitched with border | pitched(), how(BORDER)
    mipmap, not normalized | mipmap(), how()
    mipmap of integers | mipmap(kind="i4"), normal()
    mipmap of integers, means | mipmap(kind="i4"), how(CLAMP, LINEAR, flags=NORMALIZED)
    mipmap of integers, means of levels | mipmap(kind="i4"), normal(mix=1)
    mipmap, greatest 2 | mipmap(), normal(greatest=2.0)
    mipmap, greatest 3 | mipmap(), normal(greatest=3.0)
    mipmap, greatest 9 | mipmap(), normal(greatest=9.0)
    mipmap, greatest 15 | mipmap(), normal(greatest=15.0)
    mipmap, greatest 16 | mipmap(), normal(greatest=16.0)
    mipmap, greatest 99 | mipmap(), normal(greatest=99.0)
    mipmap, greatest -1 | mipmap(), normal(greatest=-1.0)
    mipmap, greatest NaN | mipmap(), normal(greatest=float("nan"))
    mipmap, greatest infinite | mipmap(), normal(greatest=float("inf"))
    mipmap, least -1 | mipmap(), normal(least=-1.0, greatest=2.0)
    mipmap, least above greatest | mipmap(), normal(least=2.0, greatest=1.0)
    mipmap, least 99 | mipmap(), normal(least=99.0, greatest=99.0)
    mipmap, bias 99 | mipmap(), normal(bias=99.0, greatest=2.0)
    mipmap, bias -99 | mipmap(), normal(bias=-99.0, greatest=2.0)
    mipmap, bias NaN | mipmap(), normal(bias=float("nan"), greatest=2.0)
    mipmap, mix 2 | mipmap(), normal(mix=2)
    mipmap, mix -1 | mipmap(), normal(mix=-1)
    mipmap, anisotropy 1 | mipmap(), how(CLAMP, LINEAR, NORMALIZED, anisotropy=1)
    mipmap, anisotropy 16 | mipmap(), how(CLAMP, LINEAR, NORMALIZED, anisotropy=16)
    mipmap, anisotropy 17 | mipmap(), how(CLAMP, LINEAR, NORMALIZED, anisotropy=17)
    mipmap, anisotropy 1000 | mipmap(), how(CLAMP, LINEAR, NORMALIZED, anisotropy=1000)
    array, greatest 9 | array(), normal(greatest=9.0)
    array, least 9 | array(), normal(least=9.0)
    array, mix 2 | array(), how(mix=2)
    array, anisotropy 17 | array(), how(anisotropy=17)
    array, wrapped, not normalized | array(), how(WRAP)
    array, mode 4 | array(), how(4)
    array, mode -1 | array(), how(-1)
    array, third mode 4 | array(), how((0, 0, 4))
    row, second mode 4 | row(), how((0, 4, 0))
    array, filter 2 | array(), how(CLAMP, 2)
    array, filter -1 | array(), how(CLAMP, -1)
    array, means | array(), how(CLAMP, LINEAR)
    array, means of bytes as integers | array(), how(CLAMP, LINEAR, AS_INTEGER)
    array, means of bytes as floats | array(), how(CLAMP, LINEAR)
    array, means of i4 | array(kind="i4"), how(CLAMP, LINEAR)
    array, means of u4 | array(kind="u4"), how(CLAMP, LINEAR)
    array, means of f4 | array(kind="f4"), how(CLAMP, LINEAR)
    array, means of f4 as integers | array(kind="f4"), how(CLAMP, LINEAR, AS_INTEGER)
    array, means of f2 as integers | array(kind="f2"), how(CLAMP, LINEAR, AS_INTEGER)
    array, f4 as integers | array(kind="f4"), how(flags=AS_INTEGER)
    array, flags 4 | array(), how(flags=4)
    array, flags 8 | array(), how(flags=8)
    array, flags 128 | array(), how(flags=128)
    array, flags 2^20 | array(), how(flags=1 << 20)
    array, flags 2^31 | array(), how(flags=1 << 31)
    array, sRGB of bytes | array(), how(flags=SRGB)
    array, sRGB of four bytes | array(channels=4), how(flags=SRGB)
    array, sRGB of floats | array(kind="f4"), how(flags=SRGB)
    array, sRGB of signed bytes | array(kind="i1", channels=4), how(flags=SRGB)
    array, sRGB as integers | array(channels=4), how(flags=SRGB | AS_INTEGER)
    array, not trilinear | array(), how(flags=NOT_TRILINEAR)
    array, seamless | array(), how(flags=SEAMLESS)
    cube | cube(), normal()
    cube, not normalized | cube()
    cube, seamless | cube(), how(flags=NORMALIZED | SEAMLESS)
    cube, seamless, not normalized | cube(), how(flags=SEAMLESS)
    cube, means | cube(), how(CLAMP, LINEAR, NORMALIZED)
    cube, seamless means | cube(kind="f4"), how(CLAMP, LINEAR, NORMALIZED | SEAMLESS)
    layers | layers()
    layers, normalized | layers(), normal()
    gather array | of_array_(g(flags=GATHER))
    depth array | of_array_(g(kind="f4", flags=DEPTH))
    border color of integers | array(), how(BORDER, border=(1, 2, 3, 4), flags=AS_INTEGER)
    border color of u4 | array(kind="u4"), how(BORDER, border=(1, 2, 3, 4))
    border NaN | array(kind="f4"), how(BORDER, border=(float("nan"),) * 4)
    view of memory | linear(), how(), View()
    view of memory with a format | linear(), how(), view(1, 16, 0, 0)
    view of pitched memory | pitched(), how(), view(22, 16, 8, 0)
    view, format none | array(), how(), View(extents=(16, 8, 0))
    view, the same format | array(), how(), plane()
    view, signed | array(), how(), view(4, 16, 8, 0)
    view, two channels | array(), how(), view(2, 16, 8, 0)
    view, wider format | array(), how(), view(7, 16, 8, 0)
    view, u4 as four bytes | array(kind="u4"), how(), view(3, 16, 8, 0)
    view, u4 as float | array(kind="u4"), how(), view(22, 16, 8, 0)
    view, u4 as two halves | array(kind="u4"), how(), view(20, 16, 8, 0)
    view, BC1 | array(kind="u4", channels=2), how(), view(25, 64, 32, 0)
    view, BC1 of the same size | array(kind="u4", channels=2), how(), view(25, 16, 8, 0)
    view, format 35 | array(), how(), view(35, 16, 8, 0)
    view, format 99 | array(), how(), view(99, 16, 8, 0)
    view, format -1 | array(), how(), View(format=-1, extents=(16, 8, 0))
    view, all zero | array(), how(), View()
    view, narrower | array(), how(), view(1, 15, 8, 0)
    view, wider | array(), how(), view(1, 17, 8, 0)
    view, lower | array(), how(), view(1, 16, 7, 0)
    view, deep | array(), how(), view(1, 16, 8, 1)
    view of a row, high | row(), how(), view(1, 16, 1, 0)
    view, format none, narrower | array(), how(), View(extents=(15, 8, 0))
    view, level 1 of 1 | array(), how(), plane(levels=(0, 1))
    view, levels the wrong way | mipmap(), normal(), plane(levels=(2, 1))
    view, levels 0 to 2 of 3 | mipmap(), normal(), plane(levels=(0, 2))
    view, levels 0 to 3 of 3 | mipmap(), normal(), plane(levels=(0, 3))
    view, levels 1 to 2 of 3 | mipmap(), normal(), plane(levels=(1, 2))
    view, levels 1 to 2, smaller extents | mipmap(), normal(), view(1, 8, 4, 0, levels=(1, 2))
    view, levels 1 to 2, greatest 1 | mipmap(), normal(greatest=1.0), plane(levels=(1, 2))
    view, levels 1 to 2, greatest 9 | mipmap(), normal(greatest=9.0), plane(levels=(1, 2))
    view, levels 1 to 2, smaller, greatest 9 | mipmap(), nine(), view(1, 8, 4, 0, levels=(1, 2))
    view, levels, format none | mipmap(), normal(), view(0, 16, 8, 0, levels=(1, 2))
    view, levels, format none, smaller | mipmap(), normal(), View(extents=(8, 4, 0), levels=(1, 2))
    view, layer 1 of 1 | array(), how(), plane(layers=(0, 1))
    view, layers 2 to 3 of 5 | layers(), how(), deep(layers=(2, 3))
    view, layers 2 to 3, depth 2 | layers(), how(), view(1, 16, 8, 2, layers=(2, 3))
    view, layers 2 to 3, depth 0 | layers(), how(), plane(layers=(2, 3))
    view, layers 2 to 4 of 5 | layers(), how(), deep(layers=(2, 4))
    view, layers 2 to 5 of 5 | layers(), how(), deep(layers=(2, 5))
    view, layers the wrong way | layers(), how(), deep(layers=(3, 2))
    view, layers all 0 of 5 | layers(), how(), deep(layers=(0, 0))
    view of a cube, layers 0 | cube(), normal(), view(1, 8, 8, 6)
    view of a cube, layers 0 to 5 | cube(), normal(), view(1, 8, 8, 6, layers=(0, 5))
    view of a volume | volume(), how(), view(1, 16, 8, 4)
    view of a volume, layers | volume(), how(), view(1, 16, 8, 4, layers=(1, 2))
    view, reserved | array(), how(), plane(reserved=(1,))
    reading, reserved | array(), Reading(reserved=(1,))
"""


def _names(p):
    def make(kind):
        return lambda *values, **of: KINDS[kind](p, *values, **of)

    return {
        **NAMES,
        **{kind: make(kind) for kind in KINDS},
        "p": p,
        "g": lambda **of: array(p, 16, 8, **of),
        "Reading": Reading,
    }


def _ask_object(name, code):
    compiled = compile(f"({code},)", name, "eval")

    def ask(p):
        return texture_status(p, *eval(compiled, _names(p)))

    section.ask(f"texture, {name}", ask)


for _line in filter(None, map(str.strip, OBJECTS.splitlines())):
    _ask_object(*_line.split(" | ", 1))


def _calls(p):
    p.held = array(p, 16, 8)
    p.handle = texture(p, of_array(p.held))
    p.stored = surface(p, array(p, 16, 8, flags=SURFACE))
    p.room = p.cell(0, ctypes.c_uint64 * 64)
    resource, how = given(p, of_array(p.held)), given(p, reading())
    return {"resource": resource, "how": how}


section.calls(
    """
    texture to null | cuTexObjectCreate 0, resource, how, 0
    texture of null | cuTexObjectCreate out, 0, how, 0
    texture without a reading | cuTexObjectCreate out, resource, 0, 0
    surface to null | cuSurfObjectCreate 0, resource
    surface of null | cuSurfObjectCreate out, 0
    destroy texture 0 | cuTexObjectDestroy 0
    destroy surface 0 | cuSurfObjectDestroy 0
    resource to null | cuTexObjectGetResourceDesc 0, p.handle
    reading to null | cuTexObjectGetTextureDesc 0, p.handle
    view to null | cuTexObjectGetResourceViewDesc 0, p.handle
    view of a texture without one | cuTexObjectGetResourceViewDesc p.room, p.handle
    resource of 0 | cuTexObjectGetResourceDesc p.room, 0
    reading of 0 | cuTexObjectGetTextureDesc p.room, 0
    view of 0 | cuTexObjectGetResourceViewDesc p.room, 0
    surface's resource to null | cuSurfObjectGetResourceDesc 0, p.stored
    surface's resource of 0 | cuSurfObjectGetResourceDesc p.room, 0
""",
    _calls,
)
for _function, _calling in {
    "destroy texture": lambda p, handle: p("cuTexObjectDestroy", handle),
    "destroy surface": lambda p, handle: p("cuSurfObjectDestroy", handle),
    "resource": lambda p, handle: p("cuTexObjectGetResourceDesc", p.room, handle),
    "reading": lambda p, handle: p("cuTexObjectGetTextureDesc", p.room, handle),
    "view": lambda p, handle: p("cuTexObjectGetResourceViewDesc", p.room, handle),
    "surface's resource": lambda p, handle: p("cuSurfObjectGetResourceDesc", p.room, handle),
}.items():
    for _name, _which in {
        "of 0x1234": lambda p: 0x1234,
        "of 2^40": lambda p: 1 << 40,
        "of a texture": lambda p: p.handle,
        "of a surface": lambda p: p.stored,
    }.items():
        if (_function, _name) in [
            ("destroy texture", "of a texture"),
            ("destroy surface", "of a surface"),
        ]:
            continue

        @question(f"{_function} {_name}")
        def _(p, calling=_calling, which=_which):
            _calls(p)
            return calling(p, which(p))

    @question(f"{_function} of one that is gone")
    def _(p, calling=_calling, name=_function):
        _calls(p)
        handle = p.stored if "surface" in name else p.handle
        p.release(handle)
        return calling(p, handle)


@question("handles are small numbers")
def _(p):
    _calls(p)
    return p.handle < 1 << 32, p.stored < 1 << 32


@question("handles count")
def _(p):
    made = of_array(array(p, 16, 8))
    first, second = texture(p, made), texture(p, made)
    p.release(first)
    return second - first, texture(p, made) - first


@question("resource, reading and view said")
def _(p):
    held = array(p, 16, 8)
    how = reading((WRAP, BORDER, MIRROR), LINEAR, NORMALIZED, bias=0.5, border=(1, 2, 3, 4))
    handle = texture(p, of_array(held), how, View(format=1, extents=(16, 8, 0)))
    resource, said, view = Resource(), Reading(), View()
    found = [
        p("cuTexObjectGetResourceDesc", ctypes.byref(resource), handle),
        p("cuTexObjectGetTextureDesc", ctypes.byref(said), handle),
        p("cuTexObjectGetResourceViewDesc", ctypes.byref(view), handle),
    ]
    same = resource.kind == 0 and resource.words[0] == held, bytes(said) == bytes(how)
    return found, same, view.format, tuple(view.extents), tuple(view.levels), tuple(view.layers)


@question("view said of a texture without one")
def _(p):
    view = View(format=77, extents=(7, 7, 7), levels=(7, 7), layers=(7, 7))
    status = p("cuTexObjectGetResourceViewDesc", ctypes.byref(view), texture(p, KINDS["array"](p)))
    levels = tuple(view.levels), tuple(view.layers)
    return status, view.format, tuple(view.extents), *levels


@question("reading said with odd fields")
def _(p):
    how = reading((7 & 3, 1, 2), POINT, NORMALIZED, anisotropy=5, bias=99.0, greatest=99.0)
    said = Reading()
    handle = p.get("cuTexObjectCreate", OUT, given(p, KINDS["array"](p)), given(p, how), 0)
    if isinstance(handle, str):
        return handle
    p._made("cuTexObjectDestroy", handle)
    p.must("cuTexObjectGetTextureDesc", ctypes.byref(said), handle)
    return said.anisotropy, said.bias, said.greatest, said.flags, tuple(said.outside)


SURFACES = {
    "of an array": lambda p: of_array(array(p, 16, 8, flags=SURFACE)),
    "of an array without the flag": lambda p: of_array(array(p, 16, 8)),
    "of layers": lambda p: of_array(array(p, 16, 8, 4, flags=SURFACE | LAYERED)),
    "of a cube": lambda p: of_array(array(p, 8, 8, 6, flags=SURFACE | CUBEMAP)),
    "of a volume": lambda p: of_array(array(p, 16, 8, 4, flags=SURFACE)),
    "of gather": lambda p: of_array(array(p, 16, 8, flags=SURFACE | GATHER)),
    "with flags 1": lambda p: flagged(of_array(array(p, 16, 8, flags=SURFACE)), 1),
    "of linear memory": lambda p: of_linear(p.device(4096), 64),
    "of pitched memory": lambda p: of_pitched(p.device(4096), 16, 8, 64),
    "of a mipmap": lambda p: of_mipmap(mipmap(p, 3, 16, 8, flags=SURFACE)),
    "of array 0": lambda p: Resource(0, (0,)),
    "of kind 9": lambda p: Resource(9, (array(p, 16, 8, flags=SURFACE),)),
    "of a level": lambda p: of_array(
        p.need("cuMipmappedArrayGetLevel", OUT, mipmap(p, 3, 16, 8, flags=SURFACE), 1)
    ),
    "of a level without the flag": lambda p: of_array(
        p.need("cuMipmappedArrayGetLevel", OUT, mipmap(p, 3, 16, 8), 1)
    ),
}
for _name, _of in SURFACES.items():

    @question(f"surface {_name}")
    def _(p, of=_of):
        return p.tried("cuSurfObjectCreate", p.cell(), given(p, of(p)))


for _kind, _function in {"texture": "cuTexObjectCreate", "surface": "cuSurfObjectCreate"}.items():

    @question(f"{_kind} of an array that is gone", alone=True)
    def _(p, function=_function):
        made = array(p, 16, 8, flags=SURFACE)
        p.release(made)
        more = (given(p, reading()), 0) if "Tex" in function else ()
        return p.tried(function, p.cell(), given(p, of_array(made)), *more)

    @question(f"{_kind} of an array of another context", alone=True)
    def _(p, function=_function):
        made = array(p, 16, 8, flags=SURFACE)
        p.context()
        more = (given(p, reading()), 0) if "Tex" in function else ()
        return p.tried(function, p.cell(), given(p, of_array(made)), *more)


@question("destroy an array that a texture has")
def _(p):
    held = array(p, 16, 8)
    handle = texture(p, of_array(held))
    return p.release(held), p.release(handle)


@question("destroy a texture of another context", alone=True)
def _(p):
    handle = texture(p, KINDS["array"](p))
    p.context()
    p.forget(handle)
    return p("cuTexObjectDestroy", handle)


@question("ask a texture of another context", alone=True)
def _(p):
    handle = texture(p, KINDS["array"](p))
    p.context()
    return p("cuTexObjectGetTextureDesc", ctypes.byref(p.keep(Reading())), handle)


@question("a texture of a context that is gone", alone=True)
def _(p):
    context = p.context()
    handle = texture(p, KINDS["array"](p))
    p.release(context)
    p("cuCtxSetCurrent", p.primary)
    return p("cuTexObjectGetTextureDesc", ctypes.byref(p.keep(Reading())), handle), p(
        "cuTexObjectDestroy", handle
    )


@question("without a context", setup="initialised")
def _(p):
    return (
        p("cuTexObjectCreate", p.cell(), given(p, Resource(0, (8,))), given(p, reading()), 0),
        p("cuTexObjectDestroy", 1),
        p("cuSurfObjectDestroy", 1),
    )
