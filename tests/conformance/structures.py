"""Structures of the driver API, except those for copies."""

import ctypes

DEVICE_LOCATION, HOST_LOCATION, NUMA_LOCATION, NUMA_CURRENT_LOCATION = 1, 2, 3, 4
READWRITE = 3


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

    def by_value(self):
        """Return the structure as the integer register in which the ABI passes it."""
        return int.from_bytes(bytes(self), "little")


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("allocType", ctypes.c_int),
        ("handleTypes", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("maxSize", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


class MemoryProperties(ctypes.Structure):
    """A CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handleTypes", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def pool_properties(device=0, **changes):
    properties = PoolProperties(allocType=1, location=Location(DEVICE_LOCATION, device))
    for name, value in changes.items():
        setattr(properties, name, value)
    return ctypes.byref(properties)


STREAM_ORDER, DURING_CALL, ANY_ORDER = 1, 2, 3  # when the driver may read the source of a copy
POINTER_OPERAND, ARRAY_OPERAND = 1, 2


class CopyAttributes(ctypes.Structure):
    _fields_ = [
        ("order", ctypes.c_int),
        ("source_hint", Location),
        ("target_hint", Location),
        ("flags", ctypes.c_uint),
    ]


class PointerOperand(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("row", ctypes.c_size_t),
        ("layer", ctypes.c_size_t),
        ("hint", Location),
    ]


class BoxCopy(ctypes.Structure):
    _fields_ = [
        ("source", PointerOperand),
        ("target", PointerOperand),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("order", ctypes.c_int),
        ("flags", ctypes.c_uint),
    ]
