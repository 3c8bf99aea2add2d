"""The driver library, by ctypes: any function by its name, and the structures that some take."""

import ctypes

LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1
DISABLE_TIMING = 2
GEQ, EQ, AND, NOR = 0, 1, 2, 3
FLUSH = 1 << 30
HOST_MEMORY, DEVICE_MEMORY, ARRAY_MEMORY, UNIFIED_MEMORY = 1, 2, 3, 4
PREFIXES = ("CUDA_ERROR_", "CUDA_")

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
STREAM_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class OutType:
    """Stands for a result in the arguments of ``Client.get``. `kind` is its ctypes class."""

    def __init__(self, kind):
        self.kind = kind


OUT, INT = OutType(ctypes.c_uint64), OutType(ctypes.c_int)


class NoSuchFunction(Exception):
    pass


class Library:
    """``library(name, ...)`` calls a function and returns the short name of the CUresult.

    All integers are passed as 64 bits. The calling conventions of all machines with CUDA allow this
    for narrower parameters, too, so no signatures are needed. A struct of 8 bytes (a location) is
    passed as the integer with the same bytes.
    """

    def __init__(self, path):
        self._lib = ctypes.CDLL(path)
        self._names = {}

    def address(self, name):
        """The address of an exported function, or None."""
        function = getattr(self._lib, name, None)
        return function and ctypes.cast(function, ctypes.c_void_p).value

    def code(self, name, *arguments):
        function = getattr(self._lib, name, None)
        if function is None:
            raise NoSuchFunction
        return function(*map(_wide, arguments))

    def __call__(self, name, *arguments):
        return self.name(self.code(name, *arguments))

    def name(self, code):
        if code not in self._names:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorName(code, ctypes.byref(text))
            found = (text.value or b"%d" % code).decode()
            for prefix in PREFIXES:
                found = found.removeprefix(prefix)
            self._names[code] = found
        return self._names[code]

    def has(self, name):
        return getattr(self._lib, name, None) is not None


def _wide(value):
    if isinstance(value, int):
        return ctypes.c_uint64(value & (2**64 - 1))
    return value


def location(kind, number):
    """A CUmemLocation passed by value."""
    return kind | (number & 0xFFFFFFFF) << 32


def _fields(text):
    kinds = {"z": ctypes.c_size_t, "p": ctypes.c_uint64, "i": ctypes.c_int}
    return [(part[:-2], kinds[part[-1]]) for part in text.split()]


_SIDE_2D = "{0}X:z {0}Y:z {0}Type:i {0}Host:p {0}Device:p {0}Array:p {0}Pitch:z "
_SIDE_3D = (
    "{0}X:z {0}Y:z {0}Z:z {0}Lod:z {0}Type:i {0}Host:p {0}Device:p {0}Array:p {0}Context:p "
    "{0}Pitch:z {0}Height:z "
)


class Copy2D(ctypes.Structure):
    _fields_ = _fields(_SIDE_2D.format("src") + _SIDE_2D.format("dst") + "Width:z Height:z")


class Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER. In the first, the contexts are reserved fields."""

    _fields_ = _fields(_SIDE_3D.format("src") + _SIDE_3D.format("dst") + "Width:z Height:z Depth:z")


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("allocType", ctypes.c_int),
        ("handleTypes", ctypes.c_int),
        ("locationType", ctypes.c_int),
        ("locationId", ctypes.c_int),
        ("security", ctypes.c_uint64),
        ("maxSize", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


class Access(ctypes.Structure):
    _fields_ = [
        ("locationType", ctypes.c_int),
        ("locationId", ctypes.c_int),
        ("flags", ctypes.c_int),
    ]


class AllocationProperties(ctypes.Structure):
    """A CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handleTypes", ctypes.c_int),
        ("locationType", ctypes.c_int),
        ("locationId", ctypes.c_int),
        ("security", ctypes.c_uint64),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class ValueOperation(ctypes.Structure):
    """A CUstreamBatchMemOpParams."""

    _fields_ = [
        ("operation", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("pad", ctypes.c_uint64),
    ]
