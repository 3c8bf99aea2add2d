# cython: nonecheck=True
"""Prepared: launches that are checked and packed once."""

cimport cython

from cudadrv._arguments cimport buffers_of, pack, room_for
from cudadrv._driver cimport bind_driver, cudadrv_table
from cudadrv._function cimport check_function
from cudadrv._kernel cimport Kernel
from cudadrv._launch cimport borrows_of_launch, launch_packed
from cudadrv._ownership cimport OWN_READ, OWN_WRITE
from cudadrv._shape cimport dimensions

bind_driver(&cudadrv_table)  # for check_function


@cython.final
cdef class Prepared:
    """Prepared(*args, **kwargs)\n--\n
    A launch with its arguments: what `Kernel.prepare` returns.

    It keeps its buffers alive, and does not borrow them: each launch does.

    Attributes
    ----------
    kernel : Kernel
    args : tuple
        As they were given. Values are those of that time.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use kernel.prepare(grid, block, ...)")

    @property
    def kernel(self):
        """The kernel that it launches."""
        return self.kernel

    @property
    def args(self):
        """The arguments, as they were given."""
        return self.args

    @property
    def grid(self):
        """Blocks in x, y and z."""
        return self.shape.grid[0], self.shape.grid[1], self.shape.grid[2]

    @property
    def block(self):
        """Threads in x, y and z."""
        return self.shape.block[0], self.shape.block[1], self.shape.block[2]

    def launch(self, stream=None):
        """Queue it; does not wait for it.

        Parameters
        ----------
        stream : Stream
            May be left out inside a ``with stream:`` block.

        Returns
        -------
        Token

        Raises as `Kernel.launch`.

        Driver functions: cuLaunchKernel or cuLaunchKernelEx.
        """
        if self.kernel is None:
            raise TypeError("this Prepared was never initialized")
        check_function(self.kernel)
        return launch_packed(
            self.kernel, &self.shape, &self.packed, self.kernel.stream_of(stream),
            self.reads, self.writes)

    def __repr__(self):
        if self.kernel is None:
            return "<Prepared, never initialized>"
        return f"<Prepared launch of {self.kernel.name}, grid {dimensions(self.shape.grid)}," \
               f" block {dimensions(self.shape.block)}>"


def prepared(
    Kernel kernel not None, grid, block, tuple args, shared_bytes, borrows, bint cooperative,
    cluster
):
    """A new one: for `Kernel.prepare`."""
    cdef Prepared ready = Prepared.__new__(Prepared)
    kernel.usable()
    kernel.fill(&ready.shape, grid, block, shared_bytes, cooperative, cluster)
    ready.args, ready.borrows = args, borrows_of_launch(borrows)
    ready.room = room_for(kernel.signature, args, ready.borrows, NULL, &ready.packed)
    pack(kernel.signature, args, ready.borrows, &ready.packed)
    ready.reads = buffers_of(&ready.packed, OWN_READ)
    ready.writes = buffers_of(&ready.packed, OWN_WRITE)
    ready.kernel = kernel
    return ready
