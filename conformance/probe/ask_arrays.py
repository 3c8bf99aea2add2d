"""Arrays and mipmapped arrays: which can be made, their descriptions, copies from and to them."""

import ctypes

from driver import ARRAY_MEMORY, DEVICE_MEMORY, HOST_MEMORY, INT, OUT, Copy2D, Copy3D
from section import Section
from texture_tools import (
    COLOR,
    CUBEMAP,
    DEFERRED,
    DEPTH,
    GATHER,
    LAYERED,
    SPARSE,
    SURFACE,
    Descriptor,
    FlatDescriptor,
    array,
    described,
    given,
    level_of,
    mipmap,
    read_array,
    write_array,
)

section = Section("arrays")
question = section.question


def names(p):
    return {
        "of": lambda *extents, **options: given(p, described(extents=extents, **options)),
        "flat": lambda *fields: given(p, FlatDescriptor(*fields)),
        "LAYERED": LAYERED,
        "SURFACE": SURFACE,
        "CUBEMAP": CUBEMAP,
        "GATHER": GATHER,
        "DEPTH": DEPTH,
        "COLOR": COLOR,
        "SPARSE": SPARSE,
        "DEFERRED": DEFERRED,
    }


SHAPES = """
    1D | 16
    2D | 16, 8
    3D | 16, 8, 4
    1D layers | 16, 0, 4, flags=LAYERED
    2D layers | 16, 8, 4, flags=LAYERED
    cube | 4, 4, 6, flags=CUBEMAP
    two cubes | 4, 4, 12, flags=CUBEMAP | LAYERED
    gather | 16, 8, flags=GATHER
    surface 1D | 16, flags=SURFACE
    surface 2D | 16, 8, flags=SURFACE
    surface 3D | 16, 8, 4, flags=SURFACE
    surface cube | 4, 4, 6, flags=SURFACE | CUBEMAP
    color | 16, 8, flags=COLOR
    depth | 16, 8, flags=DEPTH
    depth of floats | 16, 8, kind="f4", flags=DEPTH
    sparse | 512, 512, flags=SPARSE
    deferred | 16, 8, flags=DEFERRED
    no width | 0, 8
    no extents | 0
    depth without height | 16, 0, 4
    layers without depth | 16, 8, flags=LAYERED
    cube of 5 faces | 4, 4, 5, flags=CUBEMAP
    cube of 12 faces | 4, 4, 12, flags=CUBEMAP
    cube without depth | 4, 4, flags=CUBEMAP
    cube not square | 4, 5, 6, flags=CUBEMAP
    cubes of 13 faces | 4, 4, 13, flags=CUBEMAP | LAYERED
    gather 1D | 16, flags=GATHER
    gather 3D | 16, 8, 4, flags=GATHER
    gather layers | 16, 8, 4, flags=GATHER | LAYERED
    gather cube | 4, 4, 6, flags=GATHER | CUBEMAP
    gather of 1 byte | 16, 8, flags=GATHER
    3 channels | 16, 8, channels=3
    0 channels | 16, 8, channels=0
    5 channels | 16, 8, channels=5
    8 channels | 16, 8, channels=8
    format 0 | 16, 8, kind=0
    format 4 | 16, 8, kind=4
    format 5 | 16, 8, kind=5
    format 64 | 16, 8, kind=64
    format -1 | 16, 8, kind=-1
    NV12 | 16, 8, kind=0xb0
    normalized bytes | 16, 8, kind=0xc0
    block compressed | 16, 8, kind=0x91
    flag 256 | 16, 8, flags=256
    flag 2^30 | 16, 8, flags=1 << 30
    flag 2^31 | 16, 8, flags=1 << 31
    1D 131072 | 131072
    1D 131073 | 131073
    1D 262144 | 262144
    1D 2^24 | 1 << 24
    2D width 131072 | 131072, 2
    2D width 131073 | 131073, 2
    2D height 65536 | 2, 65536
    2D height 65537 | 2, 65537
    2D height 131072 | 2, 131072
    2D height 131073 | 2, 131073
    2D height 2^20 | 8, 1 << 20
    3D depth 16384 | 2, 2, 16384
    3D depth 16385 | 2, 2, 16385
    3D depth 32768 | 2, 2, 32768
    3D depth 32769 | 2, 2, 32769
    3D deep width 8192 | 8192, 1, 32768
    3D deep width 8193 | 8193, 1, 16385
    3D width 16384 | 16384, 2, 2
    3D width 16385 | 16385, 2, 2
    3D depth 2^17 | 8, 8, 1 << 17
    layers 2048 | 2, 2, 2048, flags=LAYERED
    layers 2049 | 2, 2, 2049, flags=LAYERED
    layers 4096 | 8, 8, 4096, flags=LAYERED
    1D layers 2048 | 2, 0, 2048, flags=LAYERED
    1D layers 2049 | 2, 0, 2049, flags=LAYERED
    layered width 32768 | 32768, 2, 2, flags=LAYERED
    layered width 32769 | 32769, 2, 2, flags=LAYERED
    1D layered width 32768 | 32768, 0, 2, flags=LAYERED
    1D layered width 32769 | 32769, 0, 2, flags=LAYERED
    cube width 32769 | 32769, 32769, 6, flags=CUBEMAP
    cubes 2046 | 2, 2, 2046, flags=CUBEMAP | LAYERED
    cubes 2052 | 2, 2, 2052, flags=CUBEMAP | LAYERED
    gather width 32768 | 32768, 2, flags=GATHER
    gather width 32769 | 32769, 2, flags=GATHER
    surface 1D 32768 | 32768, flags=SURFACE
    surface 1D 32769 | 32769, flags=SURFACE
    surface 2D width 131072 | 131072, 2, flags=SURFACE
    surface 2D width 131073 | 131073, 2, flags=SURFACE
    surface 2D height 65536 | 2, 65536, flags=SURFACE
    surface 2D height 65537 | 2, 65537, flags=SURFACE
    surface 3D width 16384 | 16384, 2, 2, flags=SURFACE
    surface 3D width 16385 | 16385, 2, 2, flags=SURFACE
    surface 3D depth 16385 | 2, 2, 16385, flags=SURFACE
    huge | 131072, 65536, kind="f4", channels=4
"""
for _line in filter(None, map(str.strip, SHAPES.splitlines())):
    _name, _, _of = _line.partition(" | ")
    section.calls(f"array, {_name} | cuArray3DCreate_v2 out, of({_of})", names)
    if _name != "huge":
        section.calls(f"mipmap, {_name} | cuMipmappedArrayCreate out, of({_of}), 1", names)

section.calls(
    """
    array to null | cuArray3DCreate_v2 0, of(16)
    array of null | cuArray3DCreate_v2 out, 0
    flat array | cuArrayCreate_v2 out, flat(16, 8, 1, 1)
    flat array to null | cuArrayCreate_v2 0, flat(16, 8, 1, 1)
    flat array of null | cuArrayCreate_v2 out, 0
    flat array of 3 channels | cuArrayCreate_v2 out, flat(16, 8, 1, 3)
    flat array without width | cuArrayCreate_v2 out, flat(0, 8, 1, 1)
    destroy null | cuArrayDestroy 0
    destroy mipmap null | cuMipmappedArrayDestroy 0
    describe null | cuArray3DGetDescriptor_v2 out, 0
    describe flat null | cuArrayGetDescriptor_v2 out, 0
    mipmap to null | cuMipmappedArrayCreate 0, of(16), 1
    mipmap of null | cuMipmappedArrayCreate out, 0, 1
    mipmap of 0 levels | cuMipmappedArrayCreate out, of(16), 0
    mipmap of too many levels | cuMipmappedArrayCreate out, of(16), 20
    mipmap of 2^31 levels | cuMipmappedArrayCreate out, of(16), 1 << 31
    level of null | cuMipmappedArrayGetLevel out, 0, 0
    level to null | cuMipmappedArrayGetLevel 0, p.mipmap, 0
    level 2 of 3 | cuMipmappedArrayGetLevel out, p.mipmap, 2
    level 3 of 3 | cuMipmappedArrayGetLevel out, p.mipmap, 3
    describe to null | cuArray3DGetDescriptor_v2 0, p.array
    describe flat to null | cuArrayGetDescriptor_v2 0, p.array
    plane 0 | cuArrayGetPlane out, p.array, 0
    plane 1 | cuArrayGetPlane out, p.array, 1
    plane to null | cuArrayGetPlane 0, p.array, 0
    plane of null | cuArrayGetPlane out, 0, 0
    sparse properties | cuArrayGetSparseProperties p.room, p.array
    sparse properties of null | cuArrayGetSparseProperties p.room, 0
    sparse properties to null | cuArrayGetSparseProperties 0, p.array
    requirements | cuArrayGetMemoryRequirements p.room, p.array, 0
    requirements of null | cuArrayGetMemoryRequirements p.room, 0, 0
    requirements on device 99 | cuArrayGetMemoryRequirements p.room, p.array, 99
    sparse properties of a mipmap | cuMipmappedArrayGetSparseProperties p.room, p.mipmap
    requirements of a mipmap | cuMipmappedArrayGetMemoryRequirements p.room, p.mipmap, 0
    mipmap's requirements on device 99 | cuMipmappedArrayGetMemoryRequirements p.room, p.mipmap, 99
    requirements of mipmap null | cuMipmappedArrayGetMemoryRequirements p.room, 0, 0
    HtoA too long | cuMemcpyHtoA_v2 p.array, 0, p.host(64), 33
    HtoA past the end | cuMemcpyHtoA_v2 p.array, 28, p.host(64), 8
    HtoA at the end | cuMemcpyHtoA_v2 p.array, 32, p.host(64), 1
    HtoA 0 bytes | cuMemcpyHtoA_v2 p.array, 0, p.host(64), 0
    HtoA 0 bytes past the end | cuMemcpyHtoA_v2 p.array, 40, p.host(64), 0
    HtoA part of an element | cuMemcpyHtoA_v2 p.array, 0, p.host(64), 6
    HtoA into an element | cuMemcpyHtoA_v2 p.array, 2, p.host(64), 4
    HtoA null | cuMemcpyHtoA_v2 0, 0, p.host(64), 4
    HtoA from null | cuMemcpyHtoA_v2 p.array, 0, 0, 4
    HtoA of two rows | cuMemcpyHtoA_v2 p.plane, 0, p.host(64), 48
    HtoA into the second row | cuMemcpyHtoA_v2 p.plane, 32, p.host(64), 8
    HtoA over the first row | cuMemcpyHtoA_v2 p.plane, 24, p.host(64), 16
    AtoH past the end | cuMemcpyAtoH_v2 p.host(64), p.array, 33, 1
    AtoH part of an element | cuMemcpyAtoH_v2 p.host(64), p.array, 0, 6
    AtoH from within an element | cuMemcpyAtoH_v2 p.host(64), p.array, 1, 4
    AtoH null | cuMemcpyAtoH_v2 p.host(64), 0, 0, 4
    AtoH to null | cuMemcpyAtoH_v2 0, p.array, 0, 4
    AtoD part of an element | cuMemcpyAtoD_v2 p.device(64), p.array, 0, 6
    AtoD from within an element | cuMemcpyAtoD_v2 p.device(64), p.array, 2, 4
    AtoD past the end | cuMemcpyAtoD_v2 p.device(64), p.array, 28, 8
    AtoD null | cuMemcpyAtoD_v2 p.device(64), 0, 0, 16
    AtoD to null | cuMemcpyAtoD_v2 0, p.array, 0, 16
    DtoA part of an element | cuMemcpyDtoA_v2 p.array, 0, p.device(64), 6
    DtoA into an element | cuMemcpyDtoA_v2 p.array, 2, p.device(64), 4
    DtoA past the end | cuMemcpyDtoA_v2 p.array, 28, p.device(64), 8
    DtoA null | cuMemcpyDtoA_v2 0, 0, p.device(64), 16
    DtoA from host | cuMemcpyDtoA_v2 p.array, 0, p.host(64), 16
    DtoA from pageable | cuMemcpyDtoA_v2 p.array, 0, p.pageable(64), 16
    AtoA past the end | cuMemcpyAtoA_v2 p.array, 0, p.array, 16, 20
    AtoA overlapping | cuMemcpyAtoA_v2 p.array, 0, p.array, 4, 16
    AtoA the same | cuMemcpyAtoA_v2 p.array, 0, p.array, 0, 16
    AtoA of other elements | cuMemcpyAtoA_v2 p.array, 0, p.small, 0, 4
    AtoA to smaller elements | cuMemcpyAtoA_v2 p.small, 0, p.array, 0, 4
    AtoA of elements of another format | cuMemcpyAtoA_v2 p.array, 0, p.four, 0, 4
    AtoA part of an element | cuMemcpyAtoA_v2 p.array, 0, p.array, 16, 6
    AtoA from within an element | cuMemcpyAtoA_v2 p.array, 0, p.array, 17, 4
    AtoA null | cuMemcpyAtoA_v2 p.array, 0, 0, 0, 4
    HtoAAsync part of an element | cuMemcpyHtoAAsync_v2 p.array, 0, p.host(64), 6, p.stream()
    HtoAAsync past the end | cuMemcpyHtoAAsync_v2 p.array, 28, p.host(64), 8, p.stream()
    AtoHAsync part of an element | cuMemcpyAtoHAsync_v2 p.host(64), p.array, 0, 6, p.stream()
    AtoHAsync past the end | cuMemcpyAtoHAsync_v2 p.host(64), p.array, 28, 8, p.stream()
""",
    lambda p: (_things(p), names(p))[1],
)


def _things(p):
    p.room = p.cell(0, ctypes.c_uint64 * 64)
    p.array = array(p, 8, kind="u4")
    p.plane = array(p, 8, 4, kind="u4")
    p.small = array(p, 8)
    p.four = array(p, 8, kind="u1", channels=4)
    p.mipmap = mipmap(p, 3, 8, 8)


def _described(p, made):
    found = p.keep(Descriptor())
    status = p("cuArray3DGetDescriptor_v2", ctypes.byref(found), made)
    return status, tuple(getattr(found, name) for name, _ in Descriptor._fields_)


@question("described")
def _(p):
    return [_described(p, array(p, 16, 8, 4, kind="f2", channels=2, flags=SURFACE | LAYERED))]


@question("described flat, of a volume")
def _(p):
    found = p.keep(FlatDescriptor())
    status = p("cuArrayGetDescriptor_v2", ctypes.byref(found), array(p, 16, 8, 4, kind="f2"))
    return status, tuple(getattr(found, name) for name, _ in FlatDescriptor._fields_)


@question("levels described")
def _(p):
    made = mipmap(p, 20, 12, 5, kind="u2")
    levels = []
    for level in range(6):
        found = p.get("cuMipmappedArrayGetLevel", OUT, made, level)
        levels.append(found if isinstance(found, str) else _described(p, found))
    return levels


for _name, _of in {
    "layers": {"extents": (8, 8, 5), "flags": LAYERED},
    "a volume": {"extents": (2, 2, 16)},
    "a cube": {"extents": (8, 8, 6), "flags": CUBEMAP},
}.items():

    @question(f"levels of {_name}")
    def _(p, of=_of):
        made = p.make(
            "cuMipmappedArrayDestroy", "cuMipmappedArrayCreate", OUT, given(p, described(**of)), 9
        )
        levels = []
        for level in range(6):
            found = p.get("cuMipmappedArrayGetLevel", OUT, made, level)
            levels.append(found if isinstance(found, str) else _described(p, found)[1][:3])
        return levels


@question("a level twice")
def _(p):
    made = mipmap(p, 2, 8)
    return level_of(p, made, 1) == level_of(p, made, 1)


@question("destroy a level", alone=True)
def _(p):
    return p("cuArrayDestroy", level_of(p, mipmap(p, 2, 8), 1))


@question("destroy twice", alone=True)
def _(p):
    made = array(p, 8)
    p.forget(made)
    return p("cuArrayDestroy", made), p("cuArrayDestroy", made)


@question("destroy a mipmap twice", alone=True)
def _(p):
    made = mipmap(p, 2, 8)
    p.forget(made)
    return p("cuMipmappedArrayDestroy", made), p("cuMipmappedArrayDestroy", made)


@question("describe a destroyed array", alone=True)
def _(p):
    made = array(p, 8)
    p.release(made)
    return p("cuArray3DGetDescriptor_v2", p.cell(0, Descriptor), made)


@question("copy to a destroyed array", alone=True)
def _(p):
    made = array(p, 8)
    p.release(made)
    return p("cuMemcpyHtoA_v2", made, 0, p.host(64), 8)


@question("copy to a level of a destroyed mipmap", alone=True)
def _(p):
    made = mipmap(p, 2, 8)
    level = level_of(p, made, 1)
    p.release(made)
    return p("cuMemcpyHtoA_v2", level, 0, p.host(64), 4)


@question("an array that is a number", alone=True)
def _(p):
    return p("cuArrayDestroy", 0x1230)


PARTS = {"part of an element": (0, 6), "into an element": (2, 4), "odd": (1, 3)}
for _name, (_at, _size) in PARTS.items():

    @question(f"what DtoA of {_name} writes")
    def _(p, at=_at, size=_size):
        made, memory = array(p, 4, kind="u4"), p.device(64)
        write_array(p, made, bytes(16))
        p.write(memory, bytes(range(1, 65)))
        status = p("cuMemcpyDtoA_v2", made, at, memory, size)
        return status, read_array(p, made, 16)

    @question(f"what HtoA of {_name} writes")
    def _(p, at=_at, size=_size):
        made, memory = array(p, 4, kind="u4"), p.host(64)
        write_array(p, made, bytes(16))
        p.fill_host(memory, bytes(range(1, 65)))
        status = p("cuMemcpyHtoA_v2", made, at, memory, size)
        return status, read_array(p, made, 16)

    @question(f"what AtoD of {_name} reads")
    def _(p, at=_at, size=_size):
        made, memory = array(p, 4, kind="u4"), p.device(64)
        write_array(p, made, bytes(range(1, 17)))
        p.write(memory, bytes(64))
        return p("cuMemcpyAtoD_v2", memory, made, at, size), p.read(memory, 16)

    @question(f"what AtoH of {_name} reads")
    def _(p, at=_at, size=_size):
        made, memory = array(p, 4, kind="u4"), p.host(64)
        write_array(p, made, bytes(range(1, 17)))
        status = p("cuMemcpyAtoH_v2", memory, made, at, size)
        return status, p.bytes_at(memory, 16)


@question("what AtoA of other elements copies")
def _(p):
    one, other = array(p, 4, kind="u4"), array(p, 8)
    write_array(p, one, bytes(range(1, 17)))
    write_array(p, other, bytes(range(101, 109)))
    return p("cuMemcpyAtoA_v2", one, 4, other, 2, 4), read_array(p, one, 16)


@question("what AtoA of a part of an element copies")
def _(p):
    one = array(p, 4, kind="u4")
    write_array(p, one, bytes(range(1, 17)))
    return p("cuMemcpyAtoA_v2", one, 0, one, 9, 3), read_array(p, one, 16)


def _plane(p, other=None, **changes):
    """A copy of 4 rows of 4 elements of 4 bytes to an array of 8 by 5."""
    copy = Copy2D(srcType=DEVICE_MEMORY, dstType=ARRAY_MEMORY, Width=16, Height=4)
    copy.srcDevice, copy.srcPitch = p.device(64), 16
    copy.dstArray = array(p, 8, 5, kind="u4")
    if other is not None:
        copy.srcType, copy.srcArray = ARRAY_MEMORY, other
    for name, value in changes.items():
        setattr(copy, name, value)
    return given(p, copy)


PLANES = {
    "whole": {},
    "x past the end": {"dstX": 20},
    "x within an element": {"dstX": 2},
    "x odd": {"dstX": 1},
    "width of a part": {"Width": 14},
    "y past the end": {"dstY": 2},
    "too high": {"Height": 6},
    "too wide": {"Width": 36, "srcPitch": 36, "Height": 1},
    "array null": {"dstArray": 0},
    "source array null": {"srcType": ARRAY_MEMORY},
    "source kind 6": {"srcType": 6},
    "source kind 0": {"srcType": 0},
    "no width": {"Width": 0},
    "no height": {"Height": 0},
    "short pitch": {"srcPitch": 12},
    "no pitch": {"srcPitch": 0, "Height": 1},
    "array pitch": {"dstPitch": 12},
}
for _name, _changes in PLANES.items():
    for _function in ("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2"):

        @question(f"{_function}, {_name}")
        def _(p, function=_function, changes=_changes):
            stream = (p.stream(),) if "Async" in function else ()
            return p(function, _plane(p, **changes), *stream)


for _name, _of in {
    "smaller elements": {"kind": "u1"},
    "another format": {"kind": "f4"},
    "four channels": {"kind": "u1", "channels": 4},
    "larger elements": {"kind": "u4", "channels": 2},
}.items():

    @question(f"plane from {_name}")
    def _(p, of=_of):
        return p("cuMemcpy2D_v2", _plane(p, array(p, 16, 8, **of)))


BOXES = {
    "whole": {},
    "z past the end": {"dstZ": 1},
    "too deep": {"Depth": 3},
    "no depth": {"Depth": 0},
    "x within an element": {"dstX": 2, "Width": 4},
    "width of a part": {"Width": 6},
    "lod 1": {"dstLod": 1},
    "source height too small": {"srcHeight": 1},
    "source height 0": {"srcHeight": 0},
    "array null": {"dstArray": 0},
}
for _name, _changes in BOXES.items():
    for _function in ("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2", "cuMemcpy3DPeer"):

        @question(f"{_function}, {_name}")
        def _(p, function=_function, changes=_changes):
            copy = Copy3D(srcType=HOST_MEMORY, dstType=ARRAY_MEMORY, Width=16, Height=4, Depth=2)
            copy.srcHost, copy.srcPitch, copy.srcHeight = p.host(1024), 32, 4
            copy.dstArray = array(p, 8, 4, 2, kind="u4")
            for name, value in changes.items():
                setattr(copy, name, value)
            if "Peer" in function:
                copy.srcContext = copy.dstContext = p.primary
            stream = (p.stream(),) if "Async" in function else ()
            return p(function, given(p, copy), *stream)


class Operand(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("words", ctypes.c_uint64 * 4)]


class BoxCopy(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = [
        ("source", Operand),
        ("target", Operand),
        ("extent", ctypes.c_size_t * 3),
        ("order", ctypes.c_int),
        ("flags", ctypes.c_uint),
    ]


BATCHES = {
    "whole": ((0, 0, 0), (8, 5, 1)),
    "inside": ((4, 1, 0), (3, 2, 1)),
    "past the end": ((6, 1, 0), (3, 2, 1)),
    "below the end": ((4, 4, 0), (3, 2, 1)),
    "no extent": ((0, 0, 0), (0, 2, 1)),
}
for _name, (_from, _extent) in BATCHES.items():

    @question(f"batch, {_name}")
    def _(p, origin=_from, extent=_extent):
        box = p.keep(BoxCopy(extent=extent, order=1))
        box.source = Operand(2, (array(p, 8, 5, kind="u4"), *origin))
        box.target = Operand(1, (p.device(1024), 0, 0, 0))
        stream = p.stream()
        status = p("cuMemcpy3DBatchAsync_v2", 1, ctypes.byref(box), 0, stream)
        return status, p("cuStreamSynchronize", stream)


for _name, _of in {"smaller elements": {"kind": "u1"}, "another format": {"kind": "f4"}}.items():

    @question(f"batch to {_name}")
    def _(p, of=_of):
        box = p.keep(BoxCopy(extent=(4, 2, 1), order=1))
        box.source = Operand(2, (array(p, 8, 5, kind="u4"), 0, 0, 0))
        box.target = Operand(2, (array(p, 8, 5, **of), 0, 0, 0))
        stream = p.stream()
        status = p("cuMemcpy3DBatchAsync_v2", 1, ctypes.byref(box), 0, stream)
        return status, p("cuStreamSynchronize", stream)


@question("memory that an array of 4 MiB uses")
def _(p):
    before = p.need("cuMemGetInfo_v2", OUT, OUT)[0]
    array(p, 1024, 1024, kind="f4")
    return before - p.need("cuMemGetInfo_v2", OUT, OUT)[0] >= 4 << 20


for _attribute in [
    "21",
    "22",
    "23",
    "24",
    "25",
    "26",
    "42",
    "43",
    "45",
    "46",
    "51",
    "52",
    "53",
    "54",
    "55",
    "56",
    "57",
    "58",
    "59",
    "60",
    "61",
    "62",
    "63",
    "64",
    "65",
    "66",
    "67",
    "68",
    "69",
    "70",
    "71",
    "72",
    "73",
    "74",
    "77",
]:

    @question(f"attribute {_attribute}")
    def _(p, number=int(_attribute)):
        return p.get("cuDeviceGetAttribute", INT, number, 0)


@question("fresh contents", alone=True)
def _(p):
    return len(read_array(p, array(p, 64), 64))
