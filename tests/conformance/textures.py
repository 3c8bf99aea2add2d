"""Texture and surface objects for tests, and kernels that use them."""

import ctypes

import numpy
from texture_kernels import TEXT

from .arrays import FORMATS

INVALID_PTX = 218
WRAP, CLAMP, MIRROR, BORDER = range(4)
POINT, LINEAR = range(2)
AS_INTEGER, NORMALIZED, SRGB, SEAMLESS = 1, 2, 16, 64
OF_ARRAY, OF_MIPMAP, OF_LINEAR, OF_PITCHED = range(4)


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC; `words` is its union."""

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


def of_array(array):
    return Resource(OF_ARRAY, (array,))


def of_mipmap(mipmap):
    return Resource(OF_MIPMAP, (mipmap,))


def of_linear(address, size, kind="f4", channels=1):
    return Resource(OF_LINEAR, (address, FORMATS[kind] | channels << 32, size))


def of_pitched(address, width, height, pitch, kind="f4", channels=1):
    return Resource(OF_PITCHED, (address, FORMATS[kind] | channels << 32, width, height, pitch))


def reading(outside=CLAMP, filter_=POINT, flags=0, **more):
    outside = (outside,) * 3 if isinstance(outside, int) else outside
    return Reading(outside=outside, filter=filter_, flags=flags, **more)


def texture(client, resource, how=None, view=None):
    """The handle of a new texture object."""
    how = how or reading()
    given = (ctypes.byref(resource), ctypes.byref(how), view and ctypes.byref(view))
    return client._make("cuTexObjectDestroy", ctypes.c_uint64, "cuTexObjectCreate", *given)


def surface(client, array):
    given = ctypes.byref(of_array(array))
    return client._make("cuSurfObjectDestroy", ctypes.c_uint64, "cuSurfObjectCreate", given)


TARGETS = {"1.4": "sm_10", "1.5": "sm_10", "7.5": "sm_75"}


def text_of(body, version="7.5"):
    text = TEXT.format(body=body, version=version, target=TARGETS.get(version, "sm_90"))
    if version < "2.3":  # there is no .address_size yet
        text = text.replace(".address_size 64\n", "")
    return text.encode()


def kernel(client, body, **options):
    return client.function(client.module(text_of(body, **options)), "k")


def refused(client, body, **options):
    """Whether the driver refuses to compile the kernel."""
    module = ctypes.c_void_p()
    status = client.call("cuModuleLoadData", ctypes.byref(module), text_of(body, **options))
    if status == 0:
        client.ok("cuModuleUnload", module)
    assert status in (0, INVALID_PTX)
    return status == INVALID_PTX


def run(client, body, handle, words, **options):
    """Compile a kernel, and run it with one thread for each row of up to four words."""
    return run_kernel(client, kernel(client, body, **options), handle, words)


def run_kernel(client, function, handle, words):
    """Run a kernel with one thread for each row of up to four words. Returns its output words."""
    words = numpy.ascontiguousarray(words)
    assert words.dtype.itemsize == 4
    given = numpy.zeros((len(words), 4), words.dtype)
    given[:, : words.shape[1]] = words
    source, target = client.device(given.nbytes), client.device(given.nbytes)
    client.write(source, given.tobytes())
    stream, count = client.stream(), ctypes.c_uint(len(words))
    grid = (len(words) + 63) // 64
    status = client.launch(function, stream, handle, source, target, count, grid=grid, block=64)
    assert status == 0
    client.ok("cuStreamSynchronize", stream)
    return numpy.frombuffer(client.read(target, given.nbytes), "u4").reshape(given.shape)


def floats(client, body, handle, words):
    return run(client, body, handle, numpy.asarray(words, "f4")).view("f4")
