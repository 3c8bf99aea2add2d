"""Buffers of a kind that is chosen elsewhere: `memory` blocks, `empty`, `zeros`, `from_array`.

State that outlives a call: the kind in force (a context variable); the kind that CUDADRV_MEMORY
names (the GIL guards it).
"""

cimport cython

from cudadrv._buffers cimport class_of_kind
from cudadrv._ordering cimport Nesting
from cudadrv._region cimport plain_array

from cudadrv._errors import integer

cdef Nesting _blocks = Nesting("cudadrv.memory")
cdef object _default = None     # the class outside all blocks, once it is known


@cython.final
cdef class memory:
    """memory(kind)\n--\n
    Choose, for a `with` block, which kind of buffer `empty`, `zeros` and `from_array` make.

    ``"device"`` makes a `DeviceBuffer`, ``"locked"`` a `LockedBuffer`, ``"unified"`` a
    `UnifiedBuffer`. Outside all blocks, the environment variable ``CUDADRV_MEMORY`` names the kind;
    if it is not set, the kind is ``"device"``. The variable is read once, when it is first needed.

    The choice reaches the functions that the block calls; new threads start without it. Of nested
    blocks, the one entered last counts.

    Raises TypeError or ValueError unless the kind is one of the three words.
    """

    cdef str kind
    cdef object made
    cdef object __weakref__

    def __cinit__(self, str kind not None):
        self.kind = kind
        self.made = class_of_kind(kind, "kind")

    @property
    def kind(self):
        """The kind: "device", "locked" or "unified"."""
        return self.kind

    def __enter__(self):
        """Begin the block."""
        _blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. The kind from before the block is chosen again."""
        _blocks.leave(self)

    def __repr__(self):
        return f"memory({self.kind!r})"


cdef object _class_of(object kind):
    """Return the class for a ``kind=`` argument, or for the kind in force if it is None."""
    global _default
    if kind is not None:
        return class_of_kind(kind, "kind")
    block = _blocks.innermost()
    if block is not None:
        return (<memory>block.thing).made
    if _default is None:
        from cudadrv._environment import MEMORY, memory_kind
        _default = class_of_kind(memory_kind(), MEMORY.name)
    return _default


def empty(
    shape, dtype="u1", *, kind=None, stream=None, device=None, name=None, bint pooled=True
):
    """Make a buffer of the kind that `memory` chooses. The contents are undefined.

    Parameters
    ----------
    shape : int or tuple of int
        The sizes; `Buffer.reshape` says what a shape is for.
    dtype : dtype-like, optional
        As for `DeviceBuffer`; default: bytes.
    kind : "device", "locked" or "unified", optional
        For this buffer alone; default: the kind of the innermost `memory` block.
    stream, device, name, pooled
        As for the class: the buffer is allocated in the order of the stream.

    Raises ValueError for a negative size, and what the class raises.

    Driver functions: those of the class.
    """
    cls = _class_of(kind)
    sizes, count = _sizes(shape)
    made = cls(count, dtype, stream=stream, device=device, name=name, pooled=pooled)
    return _shaped(made, sizes)


def zeros(
    shape, dtype="u1", *, kind=None, stream=None, device=None, name=None, bint pooled=True
):
    """Make a buffer of zeros, of the kind that `memory` chooses. Blocks until the fill is complete.

    Like `empty`; the fill runs on ``stream``, as for `Buffer.fill`. Raises what `empty` and
    `Buffer.fill` raise.

    Driver functions: those of the class and of `Buffer.fill`.
    """
    cls = _class_of(kind)
    sizes, count = _sizes(shape)
    made = cls.zeros(count, dtype, stream=stream, device=device, name=name, pooled=pooled)
    return _shaped(made, sizes)


def from_array(array, *, kind=None, stream=None, device=None, name=None, bint pooled=True):
    """Make a buffer of the kind that `memory` chooses, with a copy of an array and its shape.

    Blocks until the copy is complete. ``array`` is anything that ``numpy.asarray`` takes; the items
    are in C order. The copy runs on ``stream``, as for `Buffer.copy_from`; the other arguments are
    those of `empty`. Raises what `empty` and `Buffer.copy_from` raise.

    Driver functions: those of the class and of `Buffer.copy_from`.
    """
    cls = _class_of(kind)
    array = plain_array(array)
    made = cls.from_array(array, stream=stream, device=device, name=name, pooled=pooled)
    return _shaped(made, array.shape)


cdef tuple _sizes(object shape):
    """Return the sizes as a tuple, and the number of items."""
    sizes = []
    count = 1
    for size in shape if isinstance(shape, (tuple, list)) else (shape,):
        size = integer(size, "a size")
        if size < 0:
            raise ValueError(f"shape is {shape!r}: sizes are not negative")
        sizes.append(size)
        count *= size
    return tuple(sizes), count


cdef object _shaped(object buffer, tuple sizes):
    return buffer if len(sizes) == 1 else buffer.reshape(sizes)
