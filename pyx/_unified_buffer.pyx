"""UnifiedBuffer: managed memory."""

cimport cython

from cudadrv._context cimport context_of
from cudadrv._host_buffer cimport HostBuffer
from cudadrv._release cimport UNIFIED


@cython.final
cdef class UnifiedBuffer(HostBuffer):
    """UnifiedBuffer(count, dtype='u1', *, device=None, name=None, pooled=True)\n--\n
    Managed memory: one address for the host and all devices, moved by the driver on demand.

    The host reads and writes it like an array, while no GPU work uses it; an access that would race
    with the GPU is an error, never a slow surprise. On devices where the attribute
    ``concurrent_managed_access`` is 0, any unfinished work excludes the host.

    Parameters
    ----------
    count : int
        Number of items; 0 makes an empty buffer without memory.
    dtype : dtype-like, optional
        Any NumPy dtype of a fixed size without objects; bytes unless given.
    device : Device, optional
        In whose primary context it is allocated; default: the current one.
    name : str, optional
        For messages.
    pooled : bool, optional
        Take the memory from the context's pool, and give it back there (docs/memory-pools.md).
        False: from the driver, and back to it.

    The contents are undefined at first.

    Raises
    ------
    TypeError, ValueError
        A count, dtype or name that cannot be.
    CudaOutOfMemoryError
        The message lists the live buffers by line.

    Driver function: cuMemAllocManaged.
    """

    def __cinit__(self):
        self.kind = UNIFIED
        self.portable = True

    def __init__(self, count, dtype="u1", *, device=None, name=None, bint pooled=True):
        self.allocate(count, dtype, context_of(device), None, 0, name, pooled)
