"""Dtype: which items can live in a buffer."""

import sys

import numpy as np

cimport cython
from libc.limits cimport LLONG_MAX


@cython.final
cdef class Items:
    """A dtype that can be in a buffer, with its size at hand."""


cdef Items items_of(object dtype):
    """The items that a dtype-like means, if they can live in a buffer."""
    global _last, _last_items
    if dtype is _last:
        return _last_items
    if type(dtype) is str:
        found = _by_name.get(dtype)
        if found is not None:
            _last, _last_items = dtype, found
    elif isinstance(dtype, type):
        found = _by_type.get(dtype)
    else:
        found = None
    return found if found is not None else _items(_checked_dtype(dtype))


cdef Items _items(object dtype):
    cdef Items items = Items.__new__(Items)
    items.dtype = dtype
    items.itemsize = dtype.itemsize
    items.most = LLONG_MAX // items.itemsize
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
cdef dict _by_name = {}
cdef dict _by_type = {}
cdef object _last = object()  # the name that was asked for last, and
cdef Items _last_items = None


def _remember_common():
    for code in "?bhilqBHILQefdgFDG":
        dtype = np.dtype(code)
        items = _items(dtype)
        _by_type[dtype.type] = items
        for name in (code, dtype.name, dtype.str, dtype.str[1:]):
            if np.dtype(name) == dtype:
                _by_name[sys.intern(name)] = items


_remember_common()
