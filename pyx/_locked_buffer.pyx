"""LockedBuffer: page-locked host memory."""

cimport cython

from cudadrv._context cimport context_of
from cudadrv._driver cimport (
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
)
from cudadrv._host_buffer cimport HostBuffer
from cudadrv._release cimport LOCKED


@cython.final
cdef class LockedBuffer(HostBuffer):
    """LockedBuffer(count, dtype='u1', *, write_combined=False, device=None, name=None, \
pooled=True)\n--\n
    Page-locked host memory: the host's side of asynchronous copies.

    The GPU copies to and from it at full speed without the host's help, on any device, and kernels
    can use it too. The host reads and writes it like an array, while no GPU work uses it.

    Parameters
    ----------
    count : int
        Number of items; 0 makes an empty buffer without memory.
    dtype : dtype-like, optional
        Any NumPy dtype of a fixed size without objects; bytes unless given.
    write_combined : bool, optional
        Memory that the host writes past its caches: somewhat faster to copy to the GPU, and very
        slow for the host to read.
    device : Device, optional
        In whose primary context it is allocated; default: the current one.
    name : str, optional
        For messages.
    pooled : bool, optional
        Take the memory from the context's pool, and give it back there (docs/memory-pools.md).
        False: from the driver, and back to it.

    The contents are undefined at first. Memory that the pool does not have is slow to allocate
    (see docs/performance.md).

    Raises
    ------
    TypeError, ValueError
        A count, dtype or name that cannot be.
    CudaOutOfMemoryError
        The message lists the live buffers by line.

    Driver function: cuMemHostAlloc, portable and mapped.
    """

    def __cinit__(self):
        self.kind = LOCKED
        self.host_side = self.portable = True

    def __init__(
        self, count, dtype="u1", *, bint write_combined=False, device=None, name=None,
        bint pooled=True
    ):
        self.allocate(count, dtype, context_of(device), None,
                      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
                      | (CU_MEMHOSTALLOC_WRITECOMBINED if write_combined else 0), name, pooled)
