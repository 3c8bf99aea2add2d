"""Ordinary host memory: arrays, bytes and other objects with the buffer protocol, as arrays."""

import sys

import numpy as np

from cudadrv._copy cimport refuse_other_dtype
from cudadrv._region cimport Region


cdef object _ndarray = np.ndarray


cdef object plain_array(object array):
    """The same memory as an array of the base class, whose methods say how things are.

    A masked array would lose its mask without notice, so it is refused.
    """
    if type(array) is _ndarray:
        return array
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise TypeError("the mask of a masked array would be lost; pass array.filled(value), or"
                        " array.data for what is there without the mask")
    return np.asarray(array)


cdef object array_of(object source, Region target):
    """A C-contiguous array of the source's items, if they fit the target."""
    array = _as_array(source)
    _check(array, target)
    return np.ascontiguousarray(array)


cdef object target_array(object target, Region source):
    """The target as an array whose memory can be written as it is."""
    array = _as_array(target)
    _check(array, source)
    if not array.flags.writeable:
        raise ValueError("copy_to needs an array that is writable, and this one is read-only")
    if not array.flags.c_contiguous:
        raise ValueError("copy_to needs a C-contiguous array; copy to a contiguous one and assign"
                         " that: strided[...] = contiguous")
    return array


cdef object _as_array(object ordinary):
    if isinstance(ordinary, _ndarray):
        return plain_array(ordinary)
    try:
        return np.asarray(memoryview(ordinary))
    except TypeError:
        raise TypeError(
            f"{type(ordinary).__name__} is neither a buffer of this library nor an object with the"
            " buffer protocol; make an array of it first: numpy.asarray(..., dtype)") from None


cdef int _check(object array, Region region) except -1:
    # Not formatted unless it is needed: NumPy takes longer to name a dtype than a small copy takes.
    if array.dtype is not region.dtype and array.dtype != region.dtype:
        refuse_other_dtype(
            region, array.dtype, f"the array of shape {array.shape} ({array.dtype})")
    if array.size != region.count:
        raise ValueError(f"{region.describe()} has {region.count} items, and the array of shape"
                         f" {array.shape} has {array.size}; copy between parts of the same size:"
                         " buffer[a:b]")
    return 0
