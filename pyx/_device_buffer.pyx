"""DeviceBuffer: memory of a device, which the host cannot see."""

cimport cython

from cudadrv._buffer cimport Buffer
from cudadrv._context cimport context_of
from cudadrv._release cimport DEVICE
from cudadrv._stream cimport Stream


@cython.final
cdef class DeviceBuffer(Buffer):
    """DeviceBuffer(count, dtype='u1', *, stream=None, device=None, name=None, pooled=True)\n--\n
    Memory of a device. The host reaches it by copies only.

    Parameters
    ----------
    count : int
        Number of items; 0 makes an empty buffer without memory.
    dtype : dtype-like, optional
        Any NumPy dtype of a fixed size without objects; bytes unless given.
    stream : Stream, optional
        Allocate stream-ordered memory after this stream's work: a write on the stream, so other
        streams must be ordered after it.
    device : Device, optional
        Default: that of the stream, else the current one.
    name : str, optional
        For messages.
    pooled : bool, optional
        Take the memory from the context's pool, and give it back there (docs/memory-pools.md).
        False: from the driver, and back to it.

    The contents are undefined at first. Memory of a pool is there at once; the driver may block.
    Either way an allocation without a stream orders nothing.

    Raises
    ------
    TypeError, ValueError
        A count, dtype, stream or name that cannot be.
    CudaOutOfMemoryError
        The message lists the live buffers by line.

    Driver functions: cuMemAlloc, or cuMemAllocAsync.
    """

    def __cinit__(self):
        self.kind = DEVICE

    def __init__(
        self, count, dtype="u1", *, Stream stream=None, device=None, name=None, bint pooled=True
    ):
        if stream is not None:
            stream.usable()
        context = stream.context if stream is not None else context_of(device)
        if device is not None and context.device != device:
            raise ValueError(f"{stream!r} is not a stream of {device!r}")
        self.allocate(count, dtype, context, stream, 0, name, pooled)

    def __setitem__(self, key, value):
        """__setitem__($self, key, value, /)\n--\n
        Refuse: the host cannot write into the memory of a device."""
        raise TypeError("the host cannot write into a DeviceBuffer; copy what you need:"
                        " buffer[i:j].copy_from(array), or buffer[i:j].fill(value)")

    def __iter__(self):
        """__iter__($self, /)\n--\n
        Refuse: the host cannot read the memory of a device."""
        raise TypeError("the host cannot read a DeviceBuffer; copy it: buffer.copy_to(array)")

    def __array__(self, dtype=None, copy=None):
        """Refuse: the host cannot read the memory of a device."""
        raise TypeError("a DeviceBuffer is no array: the host cannot read it. Copy it to one:"
                        " buffer.copy_to(numpy.empty(buffer.count, buffer.dtype))")
