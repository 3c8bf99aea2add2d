"""HostView: the array of a ``with buffer.read()`` or ``with buffer.write()`` block.

The block gets a view of a hidden array over the export. NumPy makes every further view refer to
the hidden one, so at the end reference counts tell whether anything but the block's own variable
can still reach the memory.
"""

import numpy as np

cimport cython
from cpython.ref cimport PyObject

from cudadrv._host_buffer cimport HostBuffer
from cudadrv._site cimport here, place

from cudadrv._errors import BufferExportedError


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *object)


@cython.final
cdef class HostView:
    """HostView(*args, **kwargs)\n--\n
    A host borrow for the length of a `with` block: see `HostBuffer.read` and `write`."""

    def __init__(self, *args, **kwargs):
        raise TypeError("use buffer.read() or buffer.write()")

    def __enter__(self):
        """Borrow the buffer, and give a NumPy array over its items."""
        if self.array is not None:
            raise RuntimeError("this block has been entered already; call read() or write() again")
        self.site = here()
        # Of bytes, where the buffer protocol cannot say the dtype: views have the first array of
        # all for their base.
        self.hidden = np.asarray(memoryview(self.exporter))
        self.array = self.hidden.view(self.buffer.dtype)
        return self.array

    def __exit__(self, kind, exception, traceback):
        """End the borrow. The array is empty from now on."""
        if self.array is None:
            raise RuntimeError("this block is not entered, or has ended already")
        # Ours and that of the block's variable; ours and that of the array.
        kept = Py_REFCNT(<PyObject *>self.array) > 2
        escaped = Py_REFCNT(<PyObject *>self.hidden) > 2
        if not kept:  # else a memoryview of it could still point to the memory
            _revoke(self.array)
        self.array = self.hidden = None
        if kept or escaped:
            found = f"the array of the `with` block at {place(self.site)} is still referred to by" \
                    f" {'another name' if kept else 'a view of it'},\n" \
                    f"  so {self.buffer.describe()} stays borrowed until that is gone.\n" \
                    "  Copy what you need to keep: array.copy()"
            if exception is None:
                raise BufferExportedError(found)
            exception.add_note(f"cudadrv: {found}")


cdef int _revoke(array) except -1:
    """Make the array empty and let go of the memory: `array[0]` is an IndexError from now on."""
    array.__setstate__(((0,), array.dtype, False, b""))
    return 0


def host_view(HostBuffer buffer not None, exporter):
    """A block over what `exporter` exports of a buffer."""
    cdef HostView view = HostView.__new__(HostView)
    view.buffer = buffer
    view.exporter = exporter
    return view
