# cython: nonecheck=True
"""Kernel: launches, and what can be asked and set before."""

import operator

cimport cython
from libc.stdint cimport uint8_t

from cudadrv._arguments cimport (
    FEW_ARGUMENTS, Frame, Packed, buffers_of, describe_operand, pack, room_for,
)
from cudadrv._context cimport enter_context, leave_context
from cudadrv._copy cimport refuse_other_device
from cudadrv._driver cimport (
    CU_FUNC_ATTRIBUTE_BINARY_VERSION, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_FUNC_ATTRIBUTE_PTX_VERSION,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CUDA_SUCCESS, CUfunc_cache, CUfunction, CUfunction_attribute,
    CUlaunchAttribute, CUlaunchConfig, CUresult, CUstream, bind_driver, cudadrv_table,
    cuFuncGetAttribute, cuFuncSetAttribute, cuFuncSetCacheConfig, cuLaunchKernel, cuLaunchKernelEx,
    cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxPotentialBlockSize,
)
from cudadrv._memory cimport Memory
from cudadrv._module cimport Module
from cudadrv._operation cimport Operation, issue, prepare
from cudadrv._operation_names cimport launch_of
from cudadrv._ownership cimport (
    OWN_READ, OWN_SHARED, OWN_STRICT, OWN_WRITE, own_access,
)
from cudadrv._policy cimport policy_of
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow
from cudadrv._room cimport Room, new_room
from cudadrv._shape cimport Shape, dimensions, fill_shape, limits_of, threads_of
from cudadrv._signature cimport new_signature
from cudadrv._stream cimport Stream, stream_for
from cudadrv._token cimport Token, new_token

from cudadrv._kernel_attributes import CACHES, KernelAttributes
from cudadrv._module import function_of

bind_driver(&cudadrv_table)

cdef extern from *:
    """
    /* In C: the type of clusterDim has no name. */
    static void set_cluster(CUlaunchAttribute *attribute, const unsigned int *sizes) {
        attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.clusterDim.x = sizes[0];
        attribute->value.clusterDim.y = sizes[1];
        attribute->value.clusterDim.z = sizes[2];
    }
    """
    void set_cluster(CUlaunchAttribute *attribute, const unsigned int *sizes) nogil

cdef enum:
    FEW_ACCESSES = FEW_ARGUMENTS + 4    # that fit on the stack: buffers, variables, the module


cdef struct Launch:
    CUfunction function
    Shape *shape
    void **pointers


cdef CUresult _launch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    cdef Shape *shape = launch.shape
    if shape.plain:
        return cuLaunchKernel(
            launch.function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
            shape.block[1], shape.block[2], shape.shared_bytes, stream, launch.pointers, NULL)
    return _launch_with_attributes(launch, stream)


cdef CUresult _launch_with_attributes(Launch *launch, CUstream stream) noexcept nogil:
    cdef Shape *shape = launch.shape
    cdef CUlaunchAttribute attributes[2]
    cdef CUlaunchConfig config
    config.gridDimX, config.gridDimY, config.gridDimZ = \
        shape.grid[0], shape.grid[1], shape.grid[2]
    config.blockDimX, config.blockDimY, config.blockDimZ = \
        shape.block[0], shape.block[1], shape.block[2]
    config.sharedMemBytes = shape.shared_bytes
    config.hStream = stream
    config.attrs = attributes
    config.numAttrs = 0
    if shape.cooperative:
        attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attributes[0].value.cooperative = 1
        config.numAttrs = 1
    if shape.cluster[0]:
        set_cluster(&attributes[config.numAttrs], shape.cluster)
        config.numAttrs += 1
    return cuLaunchKernelEx(&config, launch.function, launch.pointers, NULL)


@cython.final
cdef class Kernel:
    """A function of a `Module` that streams can run: ``module["saxpy"]``.

    Its buffers are borrowed by each launch, as by a copy: a bare buffer to be written,
    ``cudadrv.read(buffer)`` to be read. docs/kernels.md explains arguments and borrows.

    Attributes
    ----------
    module : Module

    Driver functions, when it is made: cuFuncGetAttribute, cuFuncGetParamInfo.
    """

    def __init__(self):
        raise TypeError("kernels come from modules: module['name']")

    @property
    def name(self):
        """Its name in the PTX."""
        return self.signature.kernel

    @property
    def parameters(self):
        """Its parameters, a tuple of ``(name, type, offset, nbytes)``, or None if nobody knows.

        Names and types come from the PTX text, and are None where the image is none; offset and
        size in bytes come from the driver, if it is of CUDA 12.4 or newer, else from the text.
        """
        return self.signature.listed

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
        self.usable()
        found = self.stream_of(stream, "launch")
        self.fill(&shape, grid, block, shared_bytes, cooperative, cluster)
        more = borrows_of_launch(borrows)
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
        return _occupancy(self, &shape)

    def suggest_block(self, shared_bytes=0, limit=0):
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
        if operator.index(shared_bytes) < 0 or operator.index(limit) < 0:
            raise ValueError(f"shared_bytes and limit must not be negative: {shared_bytes}, {limit}")
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
        self.usable()
        most = self.limits.shared_bytes - self.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        if not 0 <= operator.index(value) <= most:
            raise ValueError(f"max_dynamic_shared_bytes is {value}, and {self.limits.device!r} has"
                             f" from 0 to {most} for a block of {self.name}")
        self.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        self.most_shared = value

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
        self.usable()
        if not -1 <= operator.index(value) <= 100:
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

    cdef int usable(self) except -1:
        if self.module is None:
            raise TypeError("this Kernel was never initialized")
        return self.module.usable()

    cdef int fill(
        self, Shape *shape, object grid, object block, object shared_bytes, bint cooperative,
        object cluster
    ) except -1:
        """Check and note the shape of a launch."""
        fill_shape(shape, self.limits, grid, block, shared_bytes, cooperative, cluster)
        if threads_of(shape) > <unsigned long long>self.most_threads:
            raise ValueError(f"block is {dimensions(shape.block)}, {threads_of(shape)} threads, and"
                             f" {self.name} takes at most {self.most_threads}"
                             " (max_threads_per_block)")
        if shape.shared_bytes > <unsigned int>self.most_shared:
            raise ValueError(f"shared_bytes is {shared_bytes}, and {self.name} takes at most"
                             f" {self.most_shared}; kernel.max_dynamic_shared_bytes = ... raises"
                             f" that, where the device allows it")
        if cooperative:
            _refuse_crowd(self, shape)
        return 0

    cdef Stream stream_of(self, object stream, str method):
        """The stream of a launch: the argument, else the current one."""
        context = self.module.context
        found = stream_for(stream, context)
        if found is None:
            raise TypeError(f"{method} of {self.name} needs a stream: pass stream=, or call it"
                            " inside a `with stream:` block")
        found.usable()
        if found.context is not context:
            raise ValueError(f"{self!r} belongs to {context!r}, and {found!r} to another context;"
                             " use a stream of the module's context")
        return found

    cdef int attribute(self, CUfunction_attribute attribute) except? -1:
        cdef int value = 0
        cdef CUresult status
        cdef bint pushed = False
        with nogil:
            status = enter_context(self.module.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuFuncGetAttribute(&value, attribute, self.raw)
                leave_context(pushed)
            self.module.context.check(status)
        return value

    cdef int set_attribute(self, CUfunction_attribute attribute, int value) except -1:
        cdef CUresult status
        cdef bint pushed = False
        with nogil:
            status = enter_context(self.module.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuFuncSetAttribute(self.raw, attribute, value)
                leave_context(pushed)
            self.module.context.check(status)
        return 0


def kernel_of(Module module not None, str name not None):
    """A new Kernel: for `Module`, which keeps one for each name."""
    cdef Kernel kernel = Kernel.__new__(Kernel)
    kernel.raw = <CUfunction><size_t>function_of(module, name)
    text = module.text.kernels.get(name) if module.text is not None else None
    kernel.module = module
    kernel.signature = new_signature(name, kernel.raw, module.context, text)
    kernel.limits = limits_of(module.context.device)
    kernel.operation = launch_of(name)
    kernel.variables = []
    kernel.most_threads = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    kernel.most_shared = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return kernel


cdef int _occupancy(Kernel kernel, Shape *shape) except -1:
    cdef int blocks = 0
    cdef int threads = <int>threads_of(shape)
    cdef CUresult status
    cdef bint pushed = False
    with nogil:
        status = enter_context(kernel.module.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, kernel.raw, threads, shape.shared_bytes)
            leave_context(pushed)
        kernel.module.context.check(status)
    return blocks


cdef int _refuse_crowd(Kernel kernel, Shape *shape) except -1:
    """Refuse a cooperative grid whose blocks cannot all run at once."""
    wanted = <unsigned long long>shape.grid[0] * shape.grid[1] * shape.grid[2]
    at_once = <unsigned long long>_occupancy(kernel, shape) * kernel.limits.multiprocessors
    if wanted > at_once:
        raise ValueError(f"grid is {dimensions(shape.grid)}, {wanted} blocks, and {at_once} of"
                         f" {kernel.name} run at once, as a cooperative launch needs")
    return 0


cdef tuple borrows_of_launch(object borrows):
    """The argument `borrows` as a tuple."""
    if type(borrows) is tuple:
        return borrows
    if isinstance(borrows, Region):
        raise TypeError("borrows takes an iterable of buffers: borrows=[buffer]")
    return tuple(borrows)


cdef Token launch_packed(
    Kernel kernel, Shape *shape, Packed *packed, Stream stream, tuple reads, tuple writes
):
    """Queue a launch whose arguments are checked: borrow, call, make the token."""
    cdef Operation operation
    cdef Launch launch = Launch(kernel.raw, shape, packed.pointers)
    cdef own_access few[FEW_ACCESSES]
    cdef own_access *accesses = few
    cdef Region region
    cdef Room room = None
    cdef Py_ssize_t i
    cdef Py_ssize_t count = packed.operand_count
    if kernel.handed != kernel.module.handed:
        _find_variables(kernel)
    if count + len(kernel.variables) + 1 > FEW_ACCESSES:
        room = new_room((count + len(kernel.variables) + 1) * sizeof(own_access))
        accesses = <own_access *>room.start
    for i in range(count):
        region = <Region>packed.operands[i].region
        region.usable()
        refuse_other_device(region, stream)
        borrow(region, &accesses[i], packed.operands[i].mode)
    for memory, mode in kernel.variables:
        _borrow_whole(memory, mode, &accesses[count])
        count += 1
    # Last, so that whatever is in the way is said of a buffer.
    _borrow_whole(kernel.module.code, OWN_SHARED, &accesses[count])
    prepare(&operation, kernel.operation, accesses, <int>count + 1, _launch_call, &launch)
    kernel.module.launching += 1
    try:
        reason = issue(&operation, stream)
    finally:
        kernel.module.launching -= 1
    if reason:
        refuse_operation(&operation, reason, stream, _described(kernel, packed))
    return new_token(&operation, stream, reads, writes)


cdef int _borrow_whole(Memory memory, uint8_t mode, own_access *access) except -1:
    access.memory = memory.state
    access.start = 0
    access.stop = memory.nbytes
    access.mode = mode
    access.policy = OWN_STRICT if mode == OWN_SHARED else policy_of(None, memory.context.policy)
    access.closes = False
    return 0


cdef int _find_variables(Kernel kernel) except -1:
    """Look which of the variables that have been handed out it may touch."""
    module = kernel.module
    handed = module.handed
    touched = None if module.text is None else module.text.touched(kernel.name)
    constants = () if module.text is None else module.text.constants
    found = [(memory, OWN_READ if name in constants else OWN_WRITE)
             for name, memory in list(module.variables.items())
             if touched is None or name in touched]
    kernel.variables, kernel.handed = found, handed
    return 0


cdef tuple _described(Kernel kernel, Packed *packed):
    """The other side of a refusal, for each access."""
    cdef Memory memory
    cdef Py_ssize_t i
    found = []
    for i in range(packed.operand_count):
        found.append(describe_operand(kernel.signature, &packed.operands[i]))
    for memory, _ in kernel.variables:
        found.append(f"the variable {memory.label}")
    found.append(kernel.module.called())
    return tuple(found)
