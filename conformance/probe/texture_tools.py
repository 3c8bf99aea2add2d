"""Arrays, textures and surfaces for questions, and kernels that read and write them."""

import ctypes
import struct

from driver import ARRAY_MEMORY, HOST_MEMORY, OUT, Copy3D
from kernels import address, image, launch, pointers

FORMATS = {"u1": 1, "u2": 2, "u4": 3, "i1": 8, "i2": 9, "i4": 10, "f2": 16, "f4": 32}
CODES = {"u1": "B", "u2": "H", "u4": "I", "i1": "b", "i2": "h", "i4": "i", "f2": "e", "f4": "f"}
LAYERED, SURFACE, CUBEMAP, GATHER, DEPTH = 1, 2, 4, 8, 16
COLOR, SPARSE, DEFERRED = 32, 64, 128
WRAP, CLAMP, MIRROR, BORDER = range(4)
MODES = {"wrap": WRAP, "clamp": CLAMP, "mirror": MIRROR, "border": BORDER}
POINT, LINEAR = range(2)
AS_INTEGER, NORMALIZED, SRGB, NOT_TRILINEAR, SEAMLESS = 1, 2, 16, 32, 64
OF_ARRAY, OF_MIPMAP, OF_LINEAR, OF_PITCHED = range(4)


class Descriptor(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("flags", ctypes.c_uint),
    ]


class FlatDescriptor(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    ]


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC; ``words`` is its union."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("words", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_uint),
    ]


class Reading(ctypes.Structure):
    """CUDA_TEXTURE_DESC."""

    _fields_ = [
        ("outside", ctypes.c_int * 3),
        ("filter", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("anisotropy", ctypes.c_uint),
        ("mix", ctypes.c_int),
        ("bias", ctypes.c_float),
        ("least", ctypes.c_float),
        ("greatest", ctypes.c_float),
        ("border", ctypes.c_float * 4),
        ("reserved", ctypes.c_int * 12),
    ]


class View(ctypes.Structure):
    """CUDA_RESOURCE_VIEW_DESC."""

    _fields_ = [
        ("format", ctypes.c_int),
        ("extents", ctypes.c_size_t * 3),
        ("levels", ctypes.c_uint * 2),
        ("layers", ctypes.c_uint * 2),
        ("reserved", ctypes.c_uint * 16),
    ]


def given(p, thing):
    return ctypes.byref(p.keep(thing))


def described(kind="u1", channels=1, flags=0, extents=(16, 0, 0)):
    format_ = FORMATS[kind] if isinstance(kind, str) else kind
    return Descriptor(*(*extents, 0, 0)[:3], format_, channels, flags)


def array(p, *extents, kind="u1", channels=1, flags=0):
    what = given(p, described(kind, channels, flags, extents))
    return p.make("cuArrayDestroy", "cuArray3DCreate_v2", OUT, what)


def mipmap(p, levels, *extents, kind="u1", channels=1, flags=0):
    what = given(p, described(kind, channels, flags, extents))
    return p.make("cuMipmappedArrayDestroy", "cuMipmappedArrayCreate", OUT, what, levels)


def level_of(p, made, level):
    return p.need("cuMipmappedArrayGetLevel", OUT, made, level)


def packed(kind, numbers):
    return struct.pack(f"{len(numbers)}{CODES[kind]}", *numbers)


def _copy(content, rows, slices):
    return Copy3D(Width=len(content) // rows // slices, Height=rows, Depth=slices)


def write_array(p, made, content, rows=1, slices=1):
    copy = _copy(content, rows, slices)
    data = p.keep(ctypes.create_string_buffer(bytes(content), len(content)))
    copy.srcType, copy.srcHost = HOST_MEMORY, ctypes.addressof(data)
    copy.dstType, copy.dstArray = ARRAY_MEMORY, made
    p.must("cuMemcpy3D_v2", given(p, copy))
    p.must("cuCtxSynchronize")


def read_array(p, made, size, rows=1, slices=1):
    data = p.keep(ctypes.create_string_buffer(size))
    copy = _copy(data.raw, rows, slices)
    copy.srcType, copy.srcArray = ARRAY_MEMORY, made
    copy.dstType, copy.dstHost = HOST_MEMORY, ctypes.addressof(data)
    p.must("cuMemcpy3D_v2", given(p, copy))
    return data.raw


def filled(p, numbers, *extents, kind="f4", channels=1, flags=0):
    """Makes an array with these numbers. An extent that is not given is zero."""
    made = array(p, *extents, kind=kind, channels=channels, flags=flags)
    _, height, depth = (*extents, 0, 0)[:3]
    write_array(p, made, packed(kind, numbers), max(1, height), max(1, depth))
    return made


def of_array(made):
    return Resource(OF_ARRAY, (made,))


def of_mipmap(made):
    return Resource(OF_MIPMAP, (made,))


def of_linear(at, size, kind="f4", channels=1):
    return Resource(OF_LINEAR, (at, FORMATS[kind] | channels << 32, size))


def of_pitched(at, width, height, pitch, kind="f4", channels=1):
    return Resource(OF_PITCHED, (at, FORMATS[kind] | channels << 32, width, height, pitch))


def reading(outside=CLAMP, filter=POINT, flags=0, **more):
    outside = (outside,) * 3 if isinstance(outside, int) else outside
    return Reading(outside=outside, filter=filter, flags=flags, **more)


def texture_arguments(p, resource, how, view):
    how = how or reading()
    return given(p, resource), given(p, how), given(p, view) if view else 0


def texture(p, resource, how=None, view=None):
    name = "cuTexObjectCreate"
    return p.make("cuTexObjectDestroy", name, OUT, *texture_arguments(p, resource, how, view))


def texture_status(p, resource, how=None, view=None):
    """Makes a texture object. Returns the status."""
    return p.tried("cuTexObjectCreate", p.cell(), *texture_arguments(p, resource, how, view))


def surface(p, made):
    return p.make("cuSurfObjectDestroy", "cuSurfObjectCreate", OUT, given(p, of_array(made)))


# Each thread has 4 words of the input in %r1 to %r4, and also in %f1 to %f4. At the end, %r11 to
# %r14 contain the words of its output. %rd1 is the handle.
TEXT = """.version {version}
.target {target}
.address_size 64
{before}
.visible .entry k(.param .u64 handle, .param .u64 in, .param .u64 out, .param .u32 count)
{{
    .reg .pred %p<4>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
    ld.param.u64 %rd1, [handle]; ld.param.u64 %rd2, [in]; ld.param.u64 %rd3, [out];
    ld.param.u32 %r20, [count];
    mov.u32 %r21, %tid.x; mov.u32 %r22, %ctaid.x; mov.u32 %r23, %ntid.x;
    mad.lo.u32 %r21, %r22, %r23, %r21; setp.ge.u32 %p1, %r21, %r20; @%p1 ret;
    mul.wide.u32 %rd4, %r21, 16; add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4;
    ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd2];
    mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; mov.b32 %f4, %r4;
    mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0; mov.u32 %r14, 0;
    {body}
    st.global.v4.u32 [%rd3], {{%r11, %r12, %r13, %r14}};
    ret;
}}
"""
RESULT = "{%r11, %r12, %r13, %r14}"
ROW, PLANE, VOLUME = "%f1", "{%f1, %f2}", "{%f1, %f2, %f3, %f3}"
ROWS, PLANES = "{%r4, %f1}", "{%r4, %f1, %f2, %f2}"
PLACES = {"1d": ROW, "2d": PLANE, "3d": VOLUME, "a1d": ROWS, "a2d": PLANES, "cube": VOLUME}


def tex(geometry, kind="f32", coordinates="f32"):
    place = PLACES[geometry]
    if coordinates == "s32":
        place = place.replace("%f", "%r")
    return f"tex.{geometry}.v4.{kind}.{coordinates} {RESULT}, [%rd1, {place}];"


def text_of(body, version="7.5", target="sm_75", before=""):
    return TEXT.format(body=body, version=version, target=target, before=before)


def loaded(p, body, **options):
    """Loads the kernel. If that fails, returns the step that failed and its status."""
    code = p.keep(image(text_of(body, **options)))
    module = p.get("cuModuleLoadData", OUT, code)
    if isinstance(module, str):
        return f"load {module}"
    p._made("cuModuleUnload", module)
    kernel = p.get("cuModuleGetFunction", OUT, module, b"k")
    return f"find {kernel}" if isinstance(kernel, str) else kernel


def run(p, body, handle, rows, **options):
    """Runs the kernel on rows of up to four words. Returns rows of four words.

    Words are integers or floats. A float is passed as its bits. Returns a string after a failure.
    """
    kernel = handle if isinstance(handle, str) else loaded(p, body, **options)
    if isinstance(kernel, str):
        return kernel
    words = [word_of(word) for row in rows for word in (*row, 0, 0, 0, 0)[:4]]
    size = 4 * len(words)
    source, target = p.device(size), p.device(size)
    p.write(source, struct.pack(f"{len(words)}I", *words))
    count = ctypes.c_uint32(len(rows))
    parameters = pointers(p, address(handle), address(source), address(target), count)
    grid = ((len(rows) + 63) // 64, 1, 1)
    status = launch(p, kernel, parameters, grid=grid, block=(64, 1, 1))
    if status == "SUCCESS":
        status = p("cuCtxSynchronize")
    if status != "SUCCESS":
        return status
    found = struct.unpack(f"{len(words)}I", p.read(target, size))
    return [found[i : i + 4] for i in range(0, len(found), 4)]


def word_of(number):
    if isinstance(number, float):
        return struct.unpack("I", struct.pack("f", number))[0]
    return number & 0xFFFFFFFF


def float_of(word):
    return struct.unpack("f", struct.pack("I", word))[0]


def floats(found, channels=1):
    """The first channels of all rows, as text with floats."""
    if isinstance(found, str):
        return found
    return " ".join("/".join(number(float_of(word)) for word in row[:channels]) for row in found)


def number(value):
    text = f"{value:.7g}"
    return text if word_of(float(text)) == word_of(value) else f"{value:.9g}"


def words(found, channels=1):
    if isinstance(found, str):
        return found
    return " ".join("/".join(f"{word:x}" for word in row[:channels]) for row in found)


def steps(found):
    """The first number of each row as text. Equal neighbours are one ``value*count``."""
    if isinstance(found, str):
        return found
    runs = []
    for row in found:
        value = number(float_of(row[0]))
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return " ".join(f"{value}*{count}" for value, count in runs)
