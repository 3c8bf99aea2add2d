"""Arrays for tests: descriptors of arrays; functions that make, write and read them."""

import ctypes

import numpy

from .boxes import ARRAY, HOST, Copy3D

FORMATS = {"u1": 1, "u2": 2, "u4": 3, "i1": 8, "i2": 9, "i4": 10, "f2": 16, "f4": 32}
# Formats with one channel, whose integers stand for numbers from 0 or -1 to 1. The next two values
# are the formats with two and with four channels.
FRACTIONS = {"un1": 0xC0, "un2": 0xC3, "sn1": 0xC6, "sn2": 0xC9}
LAYERED, SURFACE, CUBEMAP, GATHER, SPARSE = 1, 2, 4, 8, 64


class Descriptor(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    ]


class Descriptor3D(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("flags", ctypes.c_uint),
    ]


def descriptor(width, height=0, depth=0, kind="u1", channels=1, flags=0):
    number = FORMATS.get(kind) or FRACTIONS[kind] + channels.bit_length() - 1
    return Descriptor3D(width, height, depth, number, channels, flags)


def make(client, *extents, **options):
    """Make an array and return its handle. The client destroys the array."""
    given = ctypes.byref(descriptor(*extents, **options))
    return client._make("cuArrayDestroy", ctypes.c_void_p, "cuArray3DCreate_v2", given)


def make_mipmap(client, levels, *extents, **options):
    given = ctypes.byref(descriptor(*extents, **options))
    name = "cuMipmappedArrayCreate"
    return client._make("cuMipmappedArrayDestroy", ctypes.c_void_p, name, given, levels)


def level_of(client, mipmap, level):
    array = ctypes.c_void_p()
    client.ok("cuMipmappedArrayGetLevel", ctypes.byref(array), mipmap, level)
    return array.value


def _box(content):
    """The descriptor of a copy of a whole array.

    `content` has slices, rows, elements, and perhaps channels.
    """
    copy = Copy3D()
    copy.Depth, copy.Height = content.shape[:2]
    copy.WidthInBytes = content.nbytes // copy.Depth // copy.Height
    return copy


def write(client, array, content):
    content = numpy.ascontiguousarray(content)
    copy = _box(content)
    copy.srcMemoryType, copy.srcHost = HOST, content.ctypes.data
    copy.dstMemoryType, copy.dstArray = ARRAY, array
    client.ok("cuMemcpy3D_v2", ctypes.byref(copy))
    client.ok("cuCtxSynchronize")


def read(client, array, shape, kind):
    content = numpy.empty(shape, kind)
    copy = _box(content)
    copy.srcMemoryType, copy.srcArray = ARRAY, array
    copy.dstMemoryType, copy.dstHost = HOST, content.ctypes.data
    client.ok("cuMemcpy3D_v2", ctypes.byref(copy))
    return content


def filled(client, content, **options):
    """Make an array with this content: slices, rows, elements, and perhaps channels.

    The option `extents` (width, height, depth) makes an array with fewer dimensions.
    """
    extents = options.pop("extents", content.shape[2::-1])
    channels = content.shape[3] if content.ndim == 4 else 1
    array = make(client, *extents, kind=content.dtype.str[1:], channels=channels, **options)
    write(client, array, content)
    return array
