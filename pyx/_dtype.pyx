"""Dtype: which items can live in a buffer."""

import numpy as np

cimport cython


@cython.final
cdef class Items:
    """A dtype that can be in a buffer, with its size at hand."""


cdef Items items_of(object dtype):
    """The items that a dtype-like means, if they can live in a buffer."""
    if type(dtype) is str or isinstance(dtype, type):
        found = _common.get(dtype)
        if found is not None:
            return found
    return _items(_checked_dtype(dtype))


cdef Items _items(object dtype):
    cdef Items items = Items.__new__(Items)
    items.dtype = dtype
    items.itemsize = dtype.itemsize
    return items


cdef str dtype_name(object dtype):
    """As NumPy prints it; as the interpreter ends, when NumPy cannot, its short code."""
    try:
        return str(dtype)
    except ImportError:
        return dtype.str


cdef object _checked_dtype(object dtype):
    """The NumPy dtype, if items of it can live in a buffer."""
    checked = np.dtype(dtype)
    if checked.hasobject or checked.kind == "T":
        raise TypeError(f"dtype {checked} holds Python objects, which no device can use; choose"
                        " one of a fixed size without objects")
    if checked.itemsize == 0:
        raise ValueError(f"dtype {checked} has items of 0 bytes; give it a size, such as 'S8'")
    if checked.subdtype is not None:
        raise ValueError(f"dtype {checked} is an array of items; use {checked.base} and multiply"
                         " the count, or wrap it in a structured dtype")
    return checked


# What is asked for in nearly every program: NumPy takes longer to find out what it means than an
# allocation takes here.
cdef dict _common = {}


def _remember_common():
    for code in "?bhilqBHILQefdgFDG":
        dtype = np.dtype(code)
        items = _items(dtype)
        for key in (code, dtype.name, dtype.str, dtype.str[1:], dtype.type):
            if np.dtype(key) == dtype:
                _common[key] = items


_remember_common()
