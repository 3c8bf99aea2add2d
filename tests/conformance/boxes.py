"""The parameter structures of 2-D and 3-D copies."""

import ctypes

HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4

_size, _pointer, _address = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64


def _end(prefix, *after_type):
    """The fields of a 3-D copy for its source or its target."""
    return [
        (f"{prefix}XInBytes", _size),
        (f"{prefix}Y", _size),
        (f"{prefix}Z", _size),
        (f"{prefix}LOD", _size),
        (f"{prefix}MemoryType", ctypes.c_int),
        (f"{prefix}Host", _pointer),
        (f"{prefix}Device", _address),
        (f"{prefix}Array", _pointer),
        *after_type,
        (f"{prefix}Pitch", _size),
        (f"{prefix}Height", _size),
    ]


_BOX = [("WidthInBytes", _size), ("Height", _size), ("Depth", _size)]


class Copy2D(ctypes.Structure):
    _fields_ = [
        entry
        for entry in [*_end("src"), *_end("dst"), *_BOX[:2]]
        if entry[0][3:] not in ("Z", "LOD", "Height")
    ]


class Copy3D(ctypes.Structure):
    _fields_ = [
        *_end("src", ("reserved0", _pointer)),
        *_end("dst", ("reserved1", _pointer)),
        *_BOX,
    ]


class Copy3DPeer(ctypes.Structure):
    _fields_ = [
        *_end("src", ("srcContext", _pointer)),
        *_end("dst", ("dstContext", _pointer)),
        *_BOX,
    ]
