"""HostView: the array of a ``with buffer.read()`` or ``with buffer.write()`` block.

The block gets a view of a hidden array over borrowed memory. NumPy makes every plain view refer to
the hidden one. At the end, arrays that only names and containers refer to are emptied
(`referrers.h`); whatever else refers to one of them keeps the memory borrowed, because all of them
keep the `Borrowed` object.
"""

import collections
import functools
import types

import numpy as np

cimport cython
from cpython.ref cimport PyObject

from cudadrv._host_buffer cimport Borrowed, HostBuffer
from cudadrv._site cimport here, place

from cudadrv._errors import BufferExportedError


cdef extern from "Python.h":
    ctypedef int (*traverseproc)(PyObject *, void *, void *)
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
    Py_ssize_t Py_REFCNT(PyObject *object)
    int PyGC_Disable()
    int PyGC_Enable()


cdef extern from "cudadrv/referrers.h":
    PyTypeObject *ref_ndarray
    traverseproc ref_python_class
    PyObject *ref_containers
    PyObject *ref_capturing
    PyObject *ref_base
    int ref_find(PyObject *hidden, PyObject *array, PyObject *traceback, list found) except -1


class _WrittenInPython:
    pass


cdef object ndarray = np.ndarray
cdef object _set_state = np.ndarray.__setstate__
_CONTAINERS = (
    dict, list, tuple, set, frozenset, type, types.ModuleType, types.SimpleNamespace,
    types.MappingProxyType, types.MethodType, types.BuiltinMethodType, functools.partial,
    collections.deque, collections.OrderedDict, collections.defaultdict, type(iter(np.empty(0))),
)
# What has one of these attributes may know the address of the memory, without a view of it.
_CAPTURING = (
    "__array__", "__array_interface__", "__array_struct__", "__buffer__", "__dlpack__",
    "_as_parameter_",
)
_BASE = "base"
ref_ndarray = <PyTypeObject *>ndarray
ref_python_class = (<PyTypeObject *>_WrittenInPython).tp_traverse
ref_containers = <PyObject *>_CONTAINERS
ref_capturing = <PyObject *>_CAPTURING
ref_base = <PyObject *>_BASE


@cython.final
cdef class HostView:
    """HostView(*args, **kwargs)\n--\n
    A host borrow for the length of a `with` block: see `HostBuffer.read` and `write`."""

    def __init__(self, *args, **kwargs):
        raise TypeError("use buffer.read() or buffer.write()")

    def __enter__(self):
        """Borrow the buffer, and give a NumPy array over its items."""
        if self.buffer is None:
            raise TypeError("this HostView was never initialized")
        if self.array is not None:
            raise RuntimeError("this block has been entered already; call read() or write() again")
        self.site = here()
        self.buffer.usable()
        self.borrowed = Borrowed(self.buffer, self.shared)
        self.hidden = ndarray(self.buffer.count, self.buffer.dtype, self.borrowed)
        self.array = self.hidden.view()
        return self.array

    def __exit__(self, kind, exception, traceback):
        """End the borrow. The array is empty from now on."""
        if self.array is None:
            raise RuntimeError("this block is not entered, or has ended already")
        try:
            _empty(self, traceback)
        finally:
            self.array = self.hidden = None
            borrowed, self.borrowed = self.borrowed, None
        if Py_REFCNT(<PyObject *>borrowed) > 1:
            found = f"the array of the `with` block at {place(self.site)} is still referred to by" \
                    " something that cannot be emptied with it\n" \
                    "  (a memoryview, a masked array, a tensor, a running call)," \
                    f" so {self.buffer.describe()} stays borrowed until that is gone.\n" \
                    "  Copy what you need to keep: array.copy()"
            if exception is None:
                raise BufferExportedError(found)
            exception.add_note(f"cudadrv: {found}")


cdef int _empty(HostView view, object traceback) except -1:
    """Empty the array of a block, and those of its views that only names and containers refer to.

    ``array[0]`` is an IndexError from then on.
    """
    cdef list found = []
    cdef int collects = PyGC_Disable()  # no other code may run between the search and its use
    try:
        ref_find(<PyObject *>view.hidden, <PyObject *>view.array, <PyObject *>traceback, found)
        for each in found:
            _set_state(each, (1, (0,), each.dtype, False, b""))
    finally:
        if collects:
            PyGC_Enable()
    return 0


def host_view(HostBuffer buffer not None, bint shared):
    """A block over the bytes of a buffer, which GPU work may read meanwhile if it is shared."""
    cdef HostView view = HostView.__new__(HostView)
    view.buffer = buffer
    view.shared = shared
    return view
