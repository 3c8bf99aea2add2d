# cython: nonecheck=True
"""Kernel: launches, and what can be asked and set before."""

import operator

cimport cython

from cudadrv._arguments cimport Frame, Packed, buffers_of, pack, room_for
from cudadrv._context cimport enter_context, leave_context
from cudadrv._driver cimport (
    CU_FUNC_ATTRIBUTE_BINARY_VERSION, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_FUNC_ATTRIBUTE_PTX_VERSION,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUDA_SUCCESS, CUfunc_cache, CUfunction, CUresult,
    bind_driver, cudadrv_table, cuFuncSetCacheConfig, cuOccupancyMaxPotentialBlockSize,
)
from cudadrv._function cimport Function, check_function, occupancy_of, shape_of
from cudadrv._launch cimport borrows_of_launch, launch_packed
from cudadrv._module cimport Module, variables_of
from cudadrv._operation_names cimport launch_of
from cudadrv._ownership cimport OWN_READ, OWN_WRITE
from cudadrv._shape cimport Shape, limits_of
from cudadrv._signature cimport Signature, new_signature

from cudadrv._kernel_attributes import CACHES, KernelAttributes
from cudadrv._module import function_of

bind_driver(&cudadrv_table)


@cython.final
cdef class Kernel(Function):
    """Kernel(*args, **kwargs)\n--\n
    A function of a `Module` that streams can run: ``module["saxpy"]``.

    Its buffers are borrowed by each launch, as by a copy: a bare buffer to be written,
    ``cudadrv.read(buffer)`` to be read. docs/kernels.md explains arguments and borrows.

    Attributes
    ----------
    module : Module

    Driver functions, when it is made: cuFuncGetAttribute, cuFuncGetParamInfo.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("kernels come from modules: module['name']")

    @property
    def name(self):
        """Its name in the PTX."""
        return _signature_of(self).kernel

    @property
    def parameters(self):
        """Its parameters, a tuple of ``(name, type, offset, nbytes)``, or None if nobody knows.

        Names and types come from the PTX text, and are None where the image is none; offset and
        size in bytes come from the driver, if it is of CUDA 12.4 or newer, else from the text.
        """
        return _signature_of(self).listed

    def launch(
        self, grid, block, *args, stream=None, shared_bytes=0, borrows=(), bint cooperative=False,
        cluster=None
    ):
        """Queue a launch; does not wait for it.

        Parameters
        ----------
        grid, block : int or tuple of up to three ints
            Blocks of the grid, threads of a block.
        *args
            One for each parameter: a buffer (its address; borrowed to be written), or
            `cudadrv.read`, `write` or `shared` of one; int, float, bool; NumPy scalars and
            0-dimensional arrays; ctypes values; an address as an int, which is not seen.
        stream : Stream, optional
            May be left out inside a ``with stream:`` block.
        shared_bytes : int, optional
            Dynamic shared memory of each block.
        borrows : iterable of buffers, or of `cudadrv.read`, `write` and `shared` of them
            What the kernel reaches through pointers in memory.
        cooperative : bool, optional
            Whether all blocks run at once, so that they can wait for each other.
        cluster : int or tuple of up to three ints, optional
            Blocks of a cluster.

        Returns
        -------
        Token

        Raises
        ------
        TypeError, ValueError
            Before any driver call: no stream, or one of another context; wrong number, type, size
            or range of arguments; a grid, block or shared memory beyond the limits of device and
            kernel.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md. Nothing is queued then.

        Driver functions: cuLaunchKernel, or cuLaunchKernelEx with `cooperative` or `cluster`.
        """
        cdef Shape shape
        cdef Frame frame
        cdef Packed packed
        check_function(self)
        found = self.stream_of(stream)
        shape_of(self, &shape, grid, block, shared_bytes, cooperative, cluster)
        more = borrows if type(borrows) is tuple else borrows_of_launch(borrows)
        room = room_for(self.signature, args, more, &frame, &packed)
        pack(self.signature, args, more, &packed)
        token = launch_packed(self, &shape, &packed, found, buffers_of(&packed, OWN_READ),
                              buffers_of(&packed, OWN_WRITE))
        del room  # until here
        return token

    def prepare(
        self, grid, block, *args, shared_bytes=0, borrows=(), bint cooperative=False, cluster=None
    ):
        """Check and pack a launch once, to queue it often: ``ready.launch(stream)``.

        Parameters and errors as `launch`; what its buffers allow is asked at each launch. Makes no
        driver call, but for `cooperative`.

        Returns
        -------
        Prepared
        """
        from cudadrv._prepared import prepared
        return prepared(self, grid, block, args, shared_bytes, borrows, cooperative, cluster)

    # ---- what can be asked ----

    @property
    def max_threads_per_block(self):
        """Threads that a block of it can have (CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)."""
        return self.most_threads

    @property
    def attributes(self):
        """What the driver knows of it, as a `KernelAttributes` (cuFuncGetAttribute)."""
        self.usable()
        return KernelAttributes(
            self.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            self.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            self.attribute(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
            self.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            self.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS),
            self.attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION),
            self.attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION),
            self.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
            self.attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT))

    def occupancy(self, block, shared_bytes=0):
        """How many blocks of so many threads a multiprocessor runs at once.

        ``block`` and ``shared_bytes`` as `launch`. Raises as `launch` for what cannot be.

        Driver function: cuOccupancyMaxActiveBlocksPerMultiprocessor.
        """
        cdef Shape shape
        self.usable()
        self.fill(&shape, 1, block, shared_bytes, False, None)
        return occupancy_of(self, &shape)

    def suggest_block(self, *, shared_bytes=0, limit=0):
        """``(threads, blocks)``: threads of a block, and blocks of a grid, that fill the device.

        ``shared_bytes`` is dynamic shared memory of each block; ``limit`` the most threads, 0: as
        many as the kernel can have. Raises ValueError for negative ones.

        Driver function: cuOccupancyMaxPotentialBlockSize.
        """
        cdef int grid = 0
        cdef int block = 0
        cdef size_t shared
        cdef int most
        cdef CUresult status
        cdef bint pushed = False
        self.usable()
        shared_bytes, limit = operator.index(shared_bytes), operator.index(limit)
        if shared_bytes < 0 or limit < 0:
            raise ValueError("shared_bytes and limit must not be negative, and are"
                             f" {shared_bytes} and {limit}")
        shared, most = shared_bytes, min(limit, self.most_threads)
        with nogil:
            status = enter_context(self.module.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuOccupancyMaxPotentialBlockSize(
                    &grid, &block, self.raw, NULL, shared, most)
                leave_context(pushed)
            self.module.context.check(status)
        return block, grid

    # ---- what can be set ----

    @property
    def max_dynamic_shared_bytes(self):
        """The most `shared_bytes` of a launch: 48 KiB less its static ones, unless it is set.

        Setting it raises ValueError beyond what the device allows.

        Driver function, to set it: cuFuncSetAttribute.
        """
        return self.most_shared

    @max_dynamic_shared_bytes.setter
    def max_dynamic_shared_bytes(self, value):
        value = operator.index(value)
        self.usable()
        most = self.limits.shared_bytes - self.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        if not 0 <= value <= most:
            raise ValueError(f"max_dynamic_shared_bytes is {value}, and {self.limits.device!r} has"
                             f" from 0 to {most} for a block of {self.name}")
        self.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        self.most_shared = value
        self.last_shape.plain = False

    @property
    def preferred_shared_carveout(self):
        """How much of a multiprocessor's cache should be shared memory: 0 to 100 %, -1: any.

        Raises ValueError for another number. Driver functions: cuFuncGetAttribute,
        cuFuncSetAttribute.
        """
        self.usable()
        return self.attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)

    @preferred_shared_carveout.setter
    def preferred_shared_carveout(self, value):
        value = operator.index(value)
        self.usable()
        if not -1 <= value <= 100:
            raise ValueError(f"preferred_shared_carveout is {value}, and must be from -1 to 100")
        self.set_attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, value)

    def prefer_cache(self, str preference not None):
        """Say what its multiprocessors' memory should rather be used for.

        ``"none"``, ``"shared"``, ``"l1"`` or ``"equal"``: a hint. Raises ValueError for others.

        Driver function: cuFuncSetCacheConfig.
        """
        cdef CUresult status
        cdef bint pushed = False
        cdef int number
        if preference not in CACHES:
            raise ValueError(f"preference is {preference!r}, and must be one of"
                             f" {', '.join(map(repr, CACHES))}")
        self.usable()
        number = CACHES[preference]
        with nogil:
            status = enter_context(self.module.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuFuncSetCacheConfig(self.raw, <CUfunc_cache>number)
                leave_context(pushed)
            self.module.context.check(status)

    def __repr__(self):
        if self.signature is None:
            return "<Kernel, never initialized>"
        closed = ", closed" if self.module.closed else ""
        return f"<Kernel {self.name!r} of {self.module.called()}{closed}>"


cdef Signature _signature_of(Kernel kernel):
    if kernel.signature is None:
        raise TypeError("this Kernel was never initialized")
    return kernel.signature


def kernel_of(Module module not None, str name not None):
    """A new Kernel: for `Module`, which keeps one for each name."""
    cdef Kernel kernel = Kernel.__new__(Kernel)
    kernel.raw = <CUfunction><size_t>function_of(module, name)
    text = module.text.kernels.get(name) if module.text is not None else None
    kernel.module = module
    kernel.signature = new_signature(name, kernel.raw, module.context, text)
    kernel.limits = limits_of(module.context.device)
    kernel.operation = launch_of(name)
    kernel.reached = kernel.variables = variables_of(module, name)
    kernel.changes = -1
    kernel.most_threads = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    kernel.most_shared = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return kernel
