# cython: nonecheck=True
"""Kernel: a function of a module; its launches, and launches that are prepared in advance.

State that outlives a call: the shape of each kernel's last launch (the GIL guards it).
"""

import operator

cimport cython
from cpython.object cimport PyObject
from libc.limits cimport INT_MAX
from libc.string cimport memcpy

from cudadrv._arguments cimport (
    FEW_ARGUMENTS, Frame, Operand, Packed, Room, Shape, Takes, add_attributes, add_handle,
    add_operand, add_written, check_block, check_shape, check_shared, describe_operand,
    dimensions, fill_shape, hint_at, limits_of, new_room, new_signature, of_present_sizes, pack,
    product_of, region_of, room_for, with_regions,
)
from cudadrv._capture cimport GraphNode
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CU_FUNC_ATTRIBUTE_BINARY_VERSION, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CU_FUNC_ATTRIBUTE_NUM_REGS,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_FUNC_ATTRIBUTE_PTX_VERSION,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CUfunc_cache, CUfunction,
    CUfunction_attribute, CUlaunchAttribute, CUlaunchConfig, CUlaunchMemSyncDomain, CUresult,
    CUstream, PyVectorcall_NARGS, cuLaunchKernelEx, exchange_method, in_cuFuncGetAttribute,
    in_cuFuncSetAttribute, in_cuFuncSetCacheConfig,
    in_cuOccupancyMaxActiveBlocksPerMultiprocessor, in_cuOccupancyMaxPotentialBlockSize, items_of,
    likely, tuple_of, unlikely, vectorcallfunc,
)
from cudadrv._engine cimport (
    OWN_BORROWED, OWN_MUST_WAIT, OWN_REACH, OWN_READ, OWN_SHARED, OWN_STRICT, own_access,
    own_conflict, own_request,
)
from cudadrv._errors cimport only_made_by
from cudadrv._exchange cimport hold_arguments
from cudadrv._memory cimport Memory
from cudadrv._module cimport Module, variables_of
from cudadrv._names cimport is_launch, launch_of
from cudadrv._operation cimport REFUSED, Operation, ask, borrow_all, issue, prepare
from cudadrv._offload cimport ArrayArgument, bring_home_later, captures_of, end_captures, upload
from cudadrv._ordering cimport policies_used, policy_in_force
from cudadrv._peers cimport access_ends, refuse_unreachable
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, check_region
from cudadrv._stream cimport Stream, check_stream, innermost_stream, refuse_no_stream, stream_for
from cudadrv._textures cimport Handle
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._arguments import buffers_in
from cudadrv._kernel_attributes import CACHES, KernelAttributes
from cudadrv._module import function_of


@cython.final
cdef class Kernel:
    """Kernel(*args, **kwargs)\n--\n
    A kernel of a `Module`: ``module["saxpy"]``.

    Each launch borrows the buffers among its arguments, as a copy does: a bare buffer for writing,
    ``cudadrv.read(buffer)`` for reading. docs/kernels.md explains arguments and borrows.

    Attributes
    ----------
    module : Module

    Driver functions, called by ``module[name]``: cuFuncGetAttribute, cuFuncGetParamInfo.
    """

    @property
    def module(self):
        """The module that the kernel comes from."""
        return self.module

    @property
    def name(self):
        """The kernel's name in the PTX."""
        return self.signature.kernel

    @property
    def handle(self):
        """The CUfunction as an int, for other libraries. cudadrv does not see their launches.

        The handle is valid as long as the module. Raises ValueError if the module is closed.
        """
        check_kernel(self)
        return <size_t>self.raw

    @property
    def parameters(self):
        """The kernel's parameters: a tuple of `Parameter`, or None if they are not known.

        Names and types come from the PTX text, and are None if the image is not PTX. Offsets and
        sizes, in bytes, come from a driver of CUDA 12.4 or newer, else from the text.
        """
        return self.signature.listed

    def launch(
        self, grid, block, *args, stream=None, shared_bytes=0, borrows=(), bint cooperative=False,
        cluster=None, priority=None, domain=None, window=None, bint early=False
    ):
        """Queue a launch. Does not wait for it.

        Parameters
        ----------
        grid, block : int or tuple of up to three ints
            The number of blocks in the grid, and of threads in a block.
        *args
            One value for each parameter. A buffer is passed as its address and borrowed for
            writing, unless it is wrapped in `cudadrv.read`, `write` or `shared`. Other values: int,
            float, bool; NumPy scalars and 0-dimensional arrays; ctypes values; an address as an
            int, whose memory is not borrowed; NumPy arrays in `In`, `Out` or `InOut`, which are
            copied to the device and back; a `Texture`, whose memory is borrowed for reading, and a
            `Surface`, whose array is borrowed for writing.
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.
        shared_bytes : int, optional
            Dynamic shared memory of each block, in bytes.
        borrows : iterable of buffers, or of `cudadrv.read`, `write` and `shared` of them, optional
            Buffers that the kernel reaches through pointers in memory.
        cooperative : bool, optional
            Whether all blocks must run at the same time, so that they can wait for each other.
        cluster : int or tuple of up to three ints, optional
            The number of blocks in a cluster.
        priority : int, optional
            The priority of the kernel, from `Context.priority_range`; default: the stream's.
        domain : "default" or "remote", optional
            The memory synchronization domain. A fence of a kernel waits only for writes of its own
            domain, so kernels with many remote writes should have a domain of their own.
        window : AccessWindow, optional
            Memory that is to stay in the L2 cache: ``cudadrv.access_window(buffer)``. The launch
            keeps its buffer open, as ``borrows=[cudadrv.shared(buffer)]`` does.
        early : bool, optional
            Whether the kernel may begin before the kernel that was launched before it on the stream
            has ended (programmatic dependent launch). Its PTX must show that each thread executes
            ``griddepcontrol.wait`` before it accesses memory, so the launch is ordered as any
            other. Has no effect below compute capability 9.0.

        Returns
        -------
        Token
            With `Out` or `InOut` arguments a `ResultToken`, whose ``wait`` brings the results to
            the arrays.

        Raises
        ------
        TypeError, ValueError
            There is no stream, or it belongs to another context; a buffer is in memory of another
            device, and there is no access to it (`Device.enable_access`); the number, type, size
            or range of arguments is wrong; grid, block or shared memory exceed the limits of the
            device or the kernel; there is no such priority or domain; an array in `In`, `Out` or
            `InOut` cannot be captured (see `offload`); a launch is ``early`` whose kernel may
            access memory before ``griddepcontrol.wait``.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md. Nothing is queued.

        Driver function: cuLaunchKernelEx.
        """
        return _launch(self, grid, block, items_of(args), len(args), stream, shared_bytes, borrows,
                       cooperative, cluster, attributes_of(priority, domain, window, early))

    def prepare(
        self, grid, block, *args, shared_bytes=0, borrows=(), bint cooperative=False, cluster=None,
        priority=None, domain=None, window=None, bint early=False
    ):
        """Check and pack a launch once, so that it can be queued often: ``ready.launch(stream)``.

        Parameters and errors are as for `launch`. Each launch checks whether the buffers may be
        used. Does not block.

        Returns
        -------
        Prepared

        Driver function, only for `cooperative`: cuOccupancyMaxActiveBlocksPerMultiprocessor.
        """
        return prepared(self, grid, block, args, shared_bytes, borrows, cooperative, cluster,
                        attributes_of(priority, domain, window, early))

    def __call__(self, *arguments, **options):
        """__call__($self, /, *args, **kwargs)\n--\n
        Raises TypeError: a launch needs a grid and a block, so it is a call of `launch`."""
        raise TypeError(f"a kernel is launched by {self.name}.launch(grid, block, *arguments,"
                        " stream=stream)")

    def __getitem__(self, shape):
        """__getitem__($self, key, /)\n--\n
        Raises TypeError: the grid and the block are arguments of `launch`."""
        raise TypeError(f"a kernel is launched by {self.name}.launch(grid, block, *arguments,"
                        f" stream=stream), not by {self.name}[grid, block](...)")

    # ---- queries ----

    @property
    def max_threads_per_block(self):
        """The most threads of a block (CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)."""
        return self.takes.threads

    @property
    def attributes(self):
        """The kernel's attributes in the driver: a `KernelAttributes` (cuFuncGetAttribute)."""
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
        """Return how many blocks of this size a multiprocessor can run at the same time.

        ``block``, ``shared_bytes`` and errors are as for `launch`.

        Driver function: cuOccupancyMaxActiveBlocksPerMultiprocessor.
        """
        cdef Shape shape
        self.usable()
        fill_shape(&shape, self.limits, 1, block, shared_bytes, False, None)
        check_block(&shape, &self.takes, self.signature.kernel)
        check_shared(shape.shared_bytes, &self.takes, self.signature.kernel, shared_bytes)
        return occupancy_of(self, &shape)

    def suggest_block(self, *, shared_bytes=0, limit=0):
        """Suggest a block size: ``(threads, blocks)``, threads of a block and blocks of a grid.

        A grid of at least ``blocks`` such blocks fills the device. If the kernel requires clusters,
        ``blocks`` is a multiple of the blocks of a cluster. If the kernel requires a block
        (.reqntid in its PTX), ``threads`` is that block, as a tuple if it has more than one
        dimension. ``shared_bytes`` is the dynamic shared memory of each block in bytes; ``limit``
        the most threads, 0 for the kernel's limit. Raises TypeError or ValueError if they are not
        integers, or negative, or if the kernel cannot be launched with them.

        Driver functions: cuOccupancyMaxPotentialBlockSize; for a required block
        cuOccupancyMaxActiveBlocksPerMultiprocessor.
        """
        cdef int grid = 0
        cdef int block = 0
        cdef size_t shared
        cdef int most
        cdef CUresult status
        self.usable()
        shared_bytes, limit = operator.index(shared_bytes), operator.index(limit)
        if shared_bytes < 0 or limit < 0:
            raise ValueError("shared_bytes and limit must not be negative, and are"
                             f" {shared_bytes} and {limit}")
        check_shared(min(shared_bytes, INT_MAX), &self.takes, self.signature.kernel, shared_bytes)
        if self.takes.block[0]:
            return _suggest_required(self, shared_bytes, limit)
        shared, most = shared_bytes, min(limit, self.takes.threads)
        self.module.begin_call()
        with nogil:
            status = in_cuOccupancyMaxPotentialBlockSize(
                self.module.context.raw, &grid, &block, self.raw, NULL, shared, most)
            self.module.end_call()
            self.module.context.check(status)
        return block, _in_clusters(self, grid)

    # ---- settings ----

    @property
    def max_dynamic_shared_bytes(self):
        """The most `shared_bytes` of a launch; default: 48 KiB minus static shared memory.

        Setting it raises ValueError for more than the device allows.

        Driver function of the setter: cuFuncSetAttribute.
        """
        return self.takes.shared

    @max_dynamic_shared_bytes.setter
    def max_dynamic_shared_bytes(self, value):
        value = operator.index(value)
        self.usable()
        most = self.limits.shared_bytes - self.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        if not 0 <= value <= most:
            raise ValueError(f"max_dynamic_shared_bytes is {value}, and {self.limits.device!r} has"
                             f" from 0 to {most} for a block of {self.name}")
        self.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        self.takes.shared = value
        self.last_shape.plain = False

    @property
    def preferred_shared_carveout(self):
        """How much of a multiprocessor's cache should be shared memory: 0 to 100 %, -1 for any.

        The driver takes this as a hint. Setting it raises ValueError for another number.

        Driver functions: cuFuncGetAttribute, cuFuncSetAttribute.
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
        """Prefer shared memory or L1 cache in the multiprocessors that run the kernel.

        The driver takes this as a hint. ``preference`` is ``"none"``, ``"shared"``, ``"l1"`` or
        ``"equal"``. Raises ValueError for any other value.

        Driver function: cuFuncSetCacheConfig.
        """
        cdef CUresult status
        cdef int number
        if preference not in CACHES:
            raise ValueError(f"preference is {preference!r}, and must be one of"
                             f" {', '.join(map(repr, CACHES))}")
        self.usable()
        number = CACHES[preference]
        self.module.begin_call()
        with nogil:
            status = in_cuFuncSetCacheConfig(
                self.module.context.raw, self.raw, <CUfunc_cache>number)
            self.module.end_call()
            self.module.context.check(status)

    def __repr__(self):
        closed = ", closed" if self.module.closed else ""
        return f"<Kernel {self.name!r} of {self.module.called()}{closed}>"

    # ---- for launches ----

    cdef int usable(self) except -1:
        """Raise if the kernel's module cannot be used."""
        return self.module.usable()

    cdef int fill(
        self, Shape *shape, object grid, object block, object shared_bytes, bint cooperative,
        object cluster
    ) except -1:
        """Check the shape of a launch against device and kernel, and fill it in.

        A plain shape is kept in `last_shape`, for the next launch with the same arguments.
        """
        fill_shape(shape, self.limits, grid, block, shared_bytes, cooperative, cluster)
        if product_of(shape.cluster) > self.takes.in_cluster \
                or product_of(self.takes.cluster) > self.takes.in_cluster:
            _find_cluster_limit(self)
        check_shape(shape, &self.takes, self.signature.kernel, shared_bytes)
        if cooperative:
            _refuse_crowd(self, shape)
        elif shape.plain and _stays(grid) and _stays(block) and type(shared_bytes) is int:
            self.last_grid, self.last_block, self.last_shared = grid, block, shared_bytes
            self.last_shape = shape[0]
        return 0

    cdef Stream other_stream(self, object stream):
        """The slow path of `stream_of`, for None, streams of other libraries, and errors."""
        cdef Context context = self.module.context
        cdef Stream found = stream_for(stream, context)
        if found is None:
            refuse_no_stream(f"launch of {self.signature.kernel}")
        check_stream(found)
        if found.context is not context:
            raise ValueError(f"{self!r} belongs to {context!r}, and {found!r} to another context;"
                             " use a stream of the module's context")
        return found

    cdef int attribute(self, CUfunction_attribute attribute) except? -1:
        cdef int value = 0
        cdef CUresult status
        self.module.begin_call()
        with nogil:
            status = in_cuFuncGetAttribute(self.module.context.raw, &value, attribute, self.raw)
            self.module.end_call()
            self.module.context.check(status)
        return value

    cdef int set_attribute(self, CUfunction_attribute attribute, int value) except -1:
        cdef CUresult status
        self.module.begin_call()
        with nogil:
            status = in_cuFuncSetAttribute(self.module.context.raw, self.raw, attribute, value)
            self.module.end_call()
            self.module.context.check(status)
        self.settings[attribute] = value
        return 0


only_made_by(Kernel, "kernels come from modules: module['name']")


cdef inline Stream stream_of(Kernel kernel, object stream):
    """Return the stream of a launch: the argument, else the current one."""
    if likely(isinstance(stream, Stream)):
        check_stream(<Stream>stream)
        if likely((<Stream>stream).context is kernel.module.context):
            return <Stream>stream
    return kernel.other_stream(stream)


cdef Stream _current_stream(Kernel kernel, PyObject *const *arguments, Py_ssize_t count):
    """Return the current stream for a launch. Without one, say which argument may be the stream."""
    cdef Context context = kernel.module.context
    found = innermost_stream(context, context)
    if found is None:
        refuse_no_stream(f"launch of {kernel.signature.kernel}", hint_at(arguments, count))
    return kernel.other_stream(found)


def kernel_of(Module module not None, str name not None):
    """Make a Kernel. Only `Module` calls this function, and it keeps one object for each name."""
    cdef Kernel kernel = Kernel.__new__(Kernel)
    kernel.module, kernel.settings = module, {}
    module.begin_call()     # for the queries of `new_signature`
    try:
        _look_up(kernel, module, name)
    finally:
        module.end_call()
    return kernel


def renew_kernel(Kernel kernel not None):
    """Look up a kernel whose module was loaded again. Only `Module` calls this function."""
    name = kernel.name
    kernel.raw = <CUfunction><size_t>function_of(kernel.module, name)
    for attribute, value in kernel.settings.items():
        kernel.set_attribute(attribute, value)
    _look_up(kernel, kernel.module, name)
    kernel.last_shape.plain = False


cdef int _look_up(Kernel kernel, Module module, str name) except -1:
    kernel.raw = <CUfunction><size_t>function_of(module, name)
    text = module.text.kernels.get(name) if module.text is not None else None
    kernel.signature = new_signature(name, kernel.raw, module.context, text)
    kernel.limits = limits_of(module.context.device)
    kernel.operation = launch_of(name)
    kernel.reached = kernel.variables = variables_of(module, name)
    kernel.changes = -1
    return _find_takes(kernel, name)


# ---- the shape of a launch ----

cdef enum:
    PORTABLE_CLUSTER = 8    # the most blocks of a cluster on any device with clusters
    LARGEST_CLUSTER = 16    # the same if the kernel's attribute allows larger clusters


cdef int _find_takes(Kernel kernel, str name) except -1:
    """Find which shapes the kernel takes: ask the driver, and read the PTX if there is one."""
    cdef Takes *takes = &kernel.takes
    takes.threads = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    takes.shared = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    takes.only_clusters = kernel.attribute(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET)
    takes.cluster[0] = kernel.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)
    if takes.cluster[0]:
        takes.cluster[1] = kernel.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT)
        takes.cluster[2] = kernel.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)
    text = kernel.module.text
    if text is not None and name in text.directives:
        block, most, grid_of_clusters = text.directives[name]
        if block is not None:
            takes.block[0], takes.block[1], takes.block[2] = block
        takes.rank = most or 0
        takes.grid_of_blocks = not grid_of_clusters
    return _find_cluster_limit(kernel)


cdef int _find_cluster_limit(Kernel kernel) except -1:
    """Find the most blocks of a cluster. Another library may have raised this limit meanwhile."""
    cdef Takes *takes = &kernel.takes
    takes.in_cluster = PORTABLE_CLUSTER
    if kernel.attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED):
        takes.in_cluster = LARGEST_CLUSTER
    if takes.rank:
        takes.in_cluster = min(takes.in_cluster, takes.rank)
    return 0


cdef int _in_clusters(Kernel kernel, int blocks) noexcept:
    """Round a number of blocks up to whole clusters, if the kernel requires clusters."""
    cdef int size = <int>product_of(kernel.takes.cluster)
    return (blocks + size - 1) // size * size if size else blocks


cdef tuple _suggest_required(Kernel kernel, object shared_bytes, object limit):
    """Like `Kernel.suggest_block`, for a kernel that requires a block."""
    cdef Shape shape
    block = (kernel.takes.block[0], kernel.takes.block[1], kernel.takes.block[2])
    threads = product_of(kernel.takes.block)
    if limit and threads > limit:
        raise ValueError(f"limit is {limit}, and {kernel.signature.kernel} can only be launched"
                         f" with {dimensions(kernel.takes.block)}, {threads} threads")
    fill_shape(&shape, kernel.limits, 1, block, shared_bytes, False, None)
    blocks = occupancy_of(kernel, &shape) * kernel.limits.multiprocessors
    return threads if block == (threads, 1, 1) else block, _in_clusters(kernel, blocks)


cdef bint _stays(object size) noexcept:
    """Whether a size consists of ints only, so that the same object always means the same size."""
    if type(size) is tuple:
        for each in <tuple>size:
            if type(each) is not int:
                return False
        return True
    return type(size) is int


cdef int occupancy_of(Kernel kernel, Shape *shape) except -1:
    """Return how many blocks of this shape a multiprocessor runs at once."""
    cdef int blocks = 0
    cdef int threads = <int>product_of(shape.block)
    cdef CUresult status
    kernel.module.begin_call()
    with nogil:
        status = in_cuOccupancyMaxActiveBlocksPerMultiprocessor(
            kernel.module.context.raw, &blocks, kernel.raw, threads, shape.shared_bytes)
        kernel.module.end_call()
        kernel.module.context.check(status)
    return blocks


cdef int _refuse_crowd(Kernel kernel, Shape *shape) except -1:
    """Refuse a cooperative grid whose blocks cannot all run at once."""
    wanted = product_of(shape.grid)
    at_once = <unsigned long long>occupancy_of(kernel, shape) * kernel.limits.multiprocessors
    if wanted > at_once:
        raise ValueError(f"grid is {dimensions(shape.grid)}, {wanted} blocks, and {at_once} of"
                         f" {kernel.signature.kernel} run at once, as a cooperative launch needs")
    return 0


# ---- the launch: borrow, call, token ----

cdef str VARIABLE = "\n  Or say what the kernel does with it: borrows=[cudadrv.shared(variable)]," \
                    " or read(variable), where\n  variable = module.global_(...)."
cdef str BARE = "\n  A bare buffer counts as written."
cdef enum:
    FEW_ACCESSES = FEW_ARGUMENTS + 4    # how many accesses are kept on the stack
    FEW_USES = 2            # how many buffers a token keeps without a tuple
    OUTDATED = 0x7fff0000   # a result of `_launch_call` that no driver call returns: check again


cdef struct Launch:
    CUfunction function
    Shape *shape
    Packed *packed
    Py_ssize_t *changes     # the change counter of the module's unlisted variables
    Py_ssize_t seen         # the value of that counter when the variables were borrowed
    bint crosses            # an argument is memory of another device
    Py_ssize_t ends_seen    # the value of `access_ends` when access to that memory was checked


cdef CUresult _launch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    if unlikely(launch.changes[0] != launch.seen):
        return <CUresult>OUTDATED
    if unlikely(launch.crosses and launch.ends_seen != access_ends):
        return <CUresult>OUTDATED
    return _launch_now(launch.function, launch.shape, launch.packed, stream)


cdef CUresult _launch_now(
    CUfunction function, const Shape *shape, const Packed *packed, CUstream stream
) noexcept nogil:
    """Call the driver, which takes one block of arguments faster than a pointer to each."""
    cdef CUlaunchAttribute attributes[MOST_ATTRIBUTES]
    cdef CUlaunchConfig config
    config.gridDimX, config.gridDimY, config.gridDimZ = \
        shape.grid[0], shape.grid[1], shape.grid[2]
    config.blockDimX, config.blockDimY, config.blockDimZ = \
        shape.block[0], shape.block[1], shape.block[2]
    config.sharedMemBytes = shape.shared_bytes
    config.hStream = stream
    config.attrs = attributes
    config.numAttrs = 0
    if unlikely(not shape.plain):
        config.numAttrs = fill_attributes(shape, packed, attributes)
    return cuLaunchKernelEx(
        &config, function, NULL if packed.extra else packed.pointers, packed.extra)


cdef unsigned int fill_attributes(
    const Shape *shape, const Packed *packed, CUlaunchAttribute *attributes
) noexcept nogil:
    """Fill in the launch attributes that the launch needs. Returns their number."""
    cdef unsigned int count = 0
    if shape.cooperative:
        attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attributes[0].value.cooperative = 1
        count = 1
    if shape.cluster[0]:
        set_cluster(&attributes[count], shape.cluster)
        count += 1
    if shape.prioritized:
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_PRIORITY
        attributes[count].value.priority = shape.priority
        count += 1
    if shape.domain:
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        attributes[count].value.memSyncDomain = <CUlaunchMemSyncDomain>(shape.domain - 1)
        count += 1
    if shape.windowed:
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        attributes[count].value.accessPolicyWindow = packed.window[0]
        count += 1
    if shape.early:
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[count].value.programmaticStreamSerializationAllowed = 1
        count += 1
    return count


cdef tuple attributes_of(object priority, object domain, object window, bint early):
    """Return the launch attributes that are given, or None."""
    if priority is None and domain is None and window is None and not early:
        return None
    return priority, domain, window, early


cdef tuple _add_attributes(
    Kernel kernel, Shape *shape, Packed *packed, tuple attributes, tuple borrows
):
    """Add what `attributes_of` has returned. See `add_attributes`."""
    priority, domain, window, early = attributes
    if early:
        _allow_early(kernel, shape)
    return add_attributes(shape, packed, kernel.module.context, priority, domain, window, borrows)


cdef int _allow_early(Kernel kernel, Shape *shape) except -1:
    """Let a launch begin before the kernel before it has ended, if its kernel waits for that.

    Work that is queued behind the launch begins when both kernels have ended, and
    griddepcontrol.wait waits for all kernels before the launch (measured: docs/driver.md). So
    ownership needs no other order for such a launch.
    """
    cdef str found
    cdef str name = kernel.signature.kernel
    text = kernel.module.text
    if text is None or name not in text.kernels:
        raise ValueError(f"{name} cannot be launched early: {kernel.module.called()} has no PTX"
                         " text, so it is not known whether the kernel executes"
                         " griddepcontrol.wait before it accesses memory. Load the module from PTX")
    found = text.early_access(name)
    if found is not None:
        raise ValueError(f"{name} cannot be launched early: a thread can reach {found!r} before"
                         " griddepcontrol.wait, while the kernel before it may still use the same"
                         " memory. Wait at the beginning of the kernel"
                         " (cudaGridDependencySynchronize() in CUDA C)")
    shape.early = kernel.module.context.device.compute_capability >= (9, 0)
    if shape.early:
        shape.plain = False
    return 0


cdef CUresult launch_ready(Prepared ready, CUstream stream) noexcept nogil:
    """Make a prepared launch as a part of another operation, which has borrowed its buffers."""
    return _launch_now(ready.kernel.raw, &ready.shape, &ready.packed, stream)


cdef object _launch(
    Kernel kernel, object grid, object block, PyObject *const *arguments, Py_ssize_t count,
    object stream, object shared_bytes, object borrows, bint cooperative, object cluster,
    tuple attributes
):
    """See `Kernel.launch`. `attributes` is what `attributes_of` returns."""
    cdef Shape shape
    cdef Frame frame
    cdef Packed packed
    cdef bint arrays
    check_kernel(kernel)
    found = stream_of(kernel, stream) if likely(stream is not None) \
        else _current_stream(kernel, arguments, count)
    shape_of(kernel, &shape, grid, block, shared_bytes, cooperative, cluster)
    more = borrows if type(borrows) is tuple else borrows_of_launch(borrows)
    if unlikely(attributes is not None):
        more = _add_attributes(kernel, &shape, &packed, attributes, more)
    room = room_for(kernel.signature, count, more, cooperative, &frame, &packed)
    arrays = pack(kernel.signature, arguments, count, more, &packed)
    if likely(not arrays and packed.operand_count <= FEW_USES and found.capture is NULL
              and not packed.handles):
        token = launch_packed(kernel, &shape, &packed, found, None)
    else:
        if arrays:
            token = _launch_with_arrays(kernel, &shape, arguments, count, more, &packed, found)
        else:
            uses = tuple_of(arguments, count)
            if more:
                uses += more
            if found.capture is NULL:
                token = launch_packed(kernel, &shape, &packed, found, uses)
            else:
                token = _launch_captured(kernel, &shape, &packed, found, uses)
    del room  # kept for the call above, because `packed` may point into it
    return token


cdef object _launch_directly(
    object method, PyObject *const *given, size_t nargsf, PyObject *names
):
    """Fast path of `Kernel.launch` (see `calls.h`): calls with no keyword argument but `stream`."""
    cdef Py_ssize_t count = PyVectorcall_NARGS(nargsf)
    cdef object stream = None
    if unlikely(count < 3 or type(<object>given[0]) is not Kernel):
        return _launch_usually(method, given, nargsf, names)
    if likely(names is not NULL):
        if unlikely(len(<tuple>names) != 1 or (<tuple>names)[0] is not "stream"):
            return _launch_usually(method, given, nargsf, names)
        stream = <object>given[count]
    return _launch(<Kernel>given[0], <object>given[1], <object>given[2], &given[3], count - 3,
                   stream, 0, (), False, None, None)


cdef vectorcallfunc _launch_usually = exchange_method(Kernel, Kernel.launch, _launch_directly)


cdef tuple borrows_of_launch(object borrows):
    """Return the argument `borrows` of a launch as a tuple. Raises TypeError for a bare buffer."""
    if isinstance(borrows, Region):
        raise TypeError("borrows takes an iterable of buffers: borrows=[buffer]")
    return tuple(borrows)


cdef Token launch_packed(
    Kernel kernel, Shape *shape, Packed *packed, Stream stream, tuple uses
):
    """Queue a launch whose arguments are already checked and packed, and return its token.

    `uses` are the arguments, and the items of `borrows`. It is None if the launch uses at most
    FEW_USES buffers and is not captured: then the token keeps only these buffers. In a capture
    `_launch_captured` is called instead.
    """
    cdef Operation operation
    cdef Launch launch = Launch(kernel.raw, shape, packed, &kernel.module.changes, 0, False, 0)
    cdef own_access few[FEW_ACCESSES]
    cdef own_access *accesses = few
    cdef Room room = None
    cdef list variables = None
    cdef Token token = new_token(stream, uses, buffers_in) if uses is not None \
        else new_token(stream, _region(packed, 0), _region(packed, 1))
    cdef Py_ssize_t count
    cdef int reason = OUTDATED
    while reason == OUTDATED:
        if unlikely(kernel.changes != kernel.module.changes):
            find_variables(kernel)
        variables, launch.seen = kernel.variables, kernel.changes
        count = packed.operand_count + len(variables) + 1
        if unlikely(count > FEW_ACCESSES):
            room = new_room(count * sizeof(own_access))
            accesses = <own_access *>room.start
        launch.ends_seen = access_ends
        count = _borrow_operands(packed, stream, accesses, &launch.crosses)
        if unlikely(len(variables)):
            count += _borrow_variables(variables, packed, &accesses[count])
        # The module is last, so that a refusal names a buffer rather than the module.
        borrow_all(kernel.module.code.state, &accesses[count], OWN_SHARED, OWN_STRICT)
        prepare(&operation, kernel.operation, accesses, <int>count + 1, _launch_call, &launch)
        reason = issue(&operation, stream, NULL, False)
    if unlikely(reason):
        refuse_operation(&operation, reason, stream, described(kernel, packed, variables),
                         advice_of(&operation.request, reason, packed))
    if unlikely(stand_for(token, &operation)):
        _remember(token, kernel, &launch, packed)
    if uses is None:
        token.modes[0], token.modes[1] = 1 + _mode(packed, 0), 1 + _mode(packed, 1)
    return token


cdef Token _launch_captured(
    Kernel kernel, Shape *shape, Packed *packed, Stream stream, tuple uses
):
    """Like `launch_packed`, in a capture: the node keeps its buffers in their present size."""
    cdef Packed fixed = packed[0]
    cdef Room room = new_room(packed.operand_count * sizeof(Operand))
    cdef Py_ssize_t count = len(uses) - _count_borrows(packed)
    cdef Py_ssize_t i, at
    cdef Region region
    uses = of_present_sizes(uses)
    fixed.operands = <Operand *>room.start
    for i in range(packed.operand_count):
        fixed.operands[i] = packed.operands[i]
        at = packed.operands[i].argument
        use = uses[at if at >= 0 else count - 1 - at]
        if not isinstance(use, Handle):     # a texture has a region that never grows
            region = region_of(use)
            fixed.operands[i].region = <PyObject *>region
    return launch_packed(kernel, shape, &fixed, stream, uses)


cdef Py_ssize_t _count_borrows(Packed *packed) noexcept:
    """Return how many items `borrows` has, of which each has at least one operand."""
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t i
    for i in range(packed.operand_count):
        count = max(count, -packed.operands[i].argument)
    return count


cdef inline object _region(Packed *packed, Py_ssize_t index):
    """Return the buffer of an operand, or None."""
    return <object>packed.operands[index].region if index < packed.operand_count else None


cdef inline int _mode(Packed *packed, Py_ssize_t index) noexcept:
    """Return the mode of an operand, or OWN_SHARED (neither read nor written) if there is none."""
    return packed.operands[index].mode if index < packed.operand_count else OWN_SHARED


cdef void _remember(Token token, Kernel kernel, Launch *launch, Packed *packed) noexcept:
    """If a launch was captured, store in its node how it was made."""
    cdef GraphNode node
    if not isinstance(token.asked, GraphNode):
        return
    node = token.asked
    remember_launch(node, kernel, launch.shape,
                    len(<tuple>node.source) - _count_borrows(packed))


cdef void remember_launch(
    GraphNode node, Kernel kernel, const Shape *shape, Py_ssize_t arguments
) noexcept:
    """Store in a node how it launches. The kernel gets the first `arguments` items of `source`."""
    node.kernel, node.arguments = kernel, arguments
    memcpy(node.settings, shape, sizeof(Shape))


cdef object _launch_with_arrays(
    Kernel kernel, Shape *shape, PyObject *const *arguments, Py_ssize_t count, tuple more,
    Packed *packed, Stream stream
):
    """Queue a launch with arrays among its arguments: see `with_regions`."""
    cdef list captures
    cdef Py_ssize_t i
    for i in range(count):
        if type(<object>arguments[i]) is ArrayArgument:
            break
    else:
        return _launch_with_regions(kernel, shape, arguments, count, more, packed, stream, None)
    if stream.capture is NULL:
        _ask_without_arrays(kernel, arguments, count, more, packed, stream)
    captures = captures_of(tuple_of(arguments, count), stream)
    try:
        token = _launch_with_regions(
            kernel, shape, arguments, count, more, packed, stream, captures)
        return bring_home_later(token, captures, stream)
    except BaseException:
        end_captures(captures)
        raise


cdef int _ask_without_arrays(
    Kernel kernel, PyObject *const *arguments, Py_ssize_t count, tuple more, Packed *packed,
    Stream stream
) except -1:
    """Raise if the launch would be refused because of its buffers.

    Called before anything is allocated or queued for the arrays. Fills in `packed` only in part.
    """
    cdef Operation operation
    cdef bint crosses = False
    cdef Py_ssize_t i
    cdef int reason
    if kernel.changes != kernel.module.changes:
        find_variables(kernel)
    variables = kernel.variables
    packed.operand_count, packed.borrows = 0, <PyObject *>more
    for i in range(count):
        if add_operand(<object>arguments[i], i, packed) is None \
                and not add_handle(<object>arguments[i], i, packed):
            add_written(kernel.signature, arguments, count, <object>arguments[i], i, packed)
    for i, each in enumerate(more):
        if add_operand(each, -1 - i, packed) is None and not add_handle(each, -1 - i, packed):
            add_written(kernel.signature, arguments, count, each, -1 - i, packed)
    cdef Room room = new_room((packed.operand_count + len(variables) + 1) * sizeof(own_access))
    cdef own_access *accesses = <own_access *>room.start
    i = _borrow_operands(packed, stream, accesses, &crosses)
    i += _borrow_variables(variables, packed, &accesses[i])
    borrow_all(kernel.module.code.state, &accesses[i], OWN_SHARED, OWN_STRICT)
    prepare(&operation, kernel.operation, accesses, <int>i + 1, NULL, NULL)
    reason = ask(&operation, stream)
    if reason:
        refuse_operation(&operation, reason, stream, described(kernel, packed, variables),
                         advice_of(&operation.request, reason, packed))
    return 0


cdef Token _launch_with_regions(
    Kernel kernel, Shape *shape, PyObject *const *arguments, Py_ssize_t count, tuple more,
    Packed *packed, Stream stream, list captures
):
    cdef list used = []
    args = with_regions(arguments, count, stream, used, captures)
    if more:
        more = with_regions(items_of(more), len(more), stream, used, None)
    if pack(kernel.signature, items_of(args), count, more, packed):
        raise TypeError(f"an argument of {kernel.name} is no array of another library now, and is"
                        " one a moment later: its __dlpack__ or __cuda_array_interface__ comes and"
                        " goes. Make a buffer of it first: cudadrv.from_dlpack(array)")
    if captures is not None:
        upload(captures, stream)
    uses = args + more if more else args
    token = launch_packed(kernel, shape, packed, stream, uses) if stream.capture is NULL \
        else _launch_captured(kernel, shape, packed, stream, uses)
    hold_arguments(used)
    return token


cdef inline Py_ssize_t _borrow_operands(
    Packed *packed, Stream stream, own_access *accesses, bint *crosses
) except -1:
    """Fill in the accesses of the arguments. Sets `crosses` if one is memory of another device."""
    cdef Region region
    cdef Py_ssize_t i
    for i in range(packed.operand_count):
        region = <Region>packed.operands[i].region
        check_region(region)
        if unlikely(refuse_unreachable(region, stream)):
            crosses[0] = True
        borrow(region, &accesses[i], packed.operands[i].mode)
    return packed.operand_count


cdef Py_ssize_t _borrow_variables(list variables, Packed *packed, own_access *accesses) except -1:
    """Fill in an access for each variable that `borrows` does not declare. Returns their number."""
    cdef Memory memory
    cdef Py_ssize_t count = 0
    cdef int mode, policy
    for memory, mode in variables:
        if not _is_declared(memory, packed):
            policy = OWN_STRICT
            if unlikely(policies_used):
                policy = policy_in_force(None, memory.context.policy)
            borrow_all(memory.state, &accesses[count], mode, policy)
            count += 1
    return count


cdef bint _is_declared(Memory memory, Packed *packed) noexcept:
    cdef Py_ssize_t i
    for i in range(packed.operand_count):
        if packed.operands[i].argument < 0 \
                and (<Region>packed.operands[i].region).memory is memory:
            return True
    return False


cdef int find_variables(Kernel kernel) except -1:
    """Update `kernel.variables`, after the module's list of unlisted variables has changed."""
    module = kernel.module
    changes = module.changes
    found = kernel.reached[:]
    for memory in module.unlisted:
        found.append((memory, OWN_REACH))
    kernel.variables, kernel.changes = found, changes
    return 0


cdef tuple described(Kernel kernel, Packed *packed, list variables):
    """Return how a refusal names the memory of each access."""
    cdef Memory memory
    cdef Py_ssize_t i
    found = []
    for i in range(packed.operand_count):
        found.append(describe_operand(kernel.signature, &packed.operands[i]))
    for memory, _ in variables:
        if not _is_declared(memory, packed):
            found.append(f"the variable {memory.label}")
    found.append(kernel.module.called())
    return tuple(found)


cdef str advice_of(own_request *request, int reason, Packed *packed):
    """Return what a program can do about a refusal besides ordering the work, or ""."""
    cdef own_conflict *conflict = &request.conflict
    cdef bint by_launch
    if reason not in (REFUSED - OWN_BORROWED, REFUSED - OWN_MUST_WAIT):
        return ""
    by_launch = is_launch(conflict.epoch.operation)
    if conflict.access >= packed.operand_count:
        return VARIABLE if by_launch else ""
    if packed.operands[conflict.access].bare and conflict.epoch.mode == OWN_READ:
        return f"{BARE} If this kernel only reads it: cudadrv.read(buffer)."
    if packed.operands[conflict.access].bare and by_launch:
        return f"{BARE} If both kernels only read it: cudadrv.read(buffer) in both launches."
    return ""


# ---- prepared launches ----

@cython.final
cdef class Prepared:
    """Prepared(*args, **kwargs)\n--\n
    A launch whose arguments are already checked and packed, made by `Kernel.prepare`.

    It keeps its buffers alive without borrowing them. Each of its launches borrows them.

    Attributes
    ----------
    kernel : Kernel
    args : tuple
        The arguments as they were given. A later change of a value has no effect.
    """

    @property
    def kernel(self):
        """The kernel that is launched."""
        return self.kernel

    @property
    def args(self):
        """The arguments as they were given."""
        return self.args

    @property
    def grid(self):
        """The number of blocks in x, y and z."""
        return self.shape.grid[0], self.shape.grid[1], self.shape.grid[2]

    @property
    def block(self):
        """The number of threads of a block in x, y and z."""
        return self.shape.block[0], self.shape.block[1], self.shape.block[2]

    def launch(self, stream=None):
        """Queue the launch. Does not wait for it.

        Parameters
        ----------
        stream : Stream, optional
            Default: the current stream of a ``with stream:`` block; without one, a TypeError.

        Returns
        -------
        Token

        Raises what `Kernel.launch` raises.

        Driver function: cuLaunchKernelEx.
        """
        check_kernel(self.kernel)
        found = stream_of(self.kernel, stream)
        if unlikely(found.capture is not NULL):
            return _launch_captured(self.kernel, &self.shape, &self.packed, found, self.uses)
        return launch_packed(self.kernel, &self.shape, &self.packed, found, self.uses)

    def __repr__(self):
        return f"<Prepared launch of {self.kernel.name}, grid {dimensions(self.shape.grid)}," \
               f" block {dimensions(self.shape.block)}>"


only_made_by(Prepared, "use kernel.prepare(grid, block, ...)")


cdef Prepared prepared(
    Kernel kernel, grid, block, tuple args, shared_bytes, borrows, bint cooperative,
    cluster, tuple attributes, str call="prepare"
):
    """Make the object that `Kernel.prepare` returns. `call` is the name of the method."""
    cdef Prepared ready = Prepared.__new__(Prepared)
    cdef tuple more
    kernel.usable()
    ready.kernel = kernel
    kernel.fill(&ready.shape, grid, block, shared_bytes, cooperative, cluster)
    more = borrows_of_launch(borrows)
    if attributes is not None:
        ready.window = attributes[2]
        more = _add_attributes(kernel, &ready.shape, &ready.packed, attributes, more)
    ready.args, ready.uses = args, args + more
    ready.room = pack_all(kernel, args, more, cooperative, call, NULL, &ready.packed)
    return ready


cdef Room pack_all(
    Kernel kernel, tuple args, tuple more, bint cooperative, str call, Frame *frame, Packed *packed
):
    """Pack the arguments of a launch that is not queued now. `more` are its borrows.

    Arrays are refused: `call` is what cannot take them. `frame` may be NULL. Returns what
    `room_for` returns.
    """
    cdef Room room = room_for(kernel.signature, len(args), more, cooperative, frame, packed)
    if pack(kernel.signature, items_of(args), len(args), more, packed):
        for argument in args:
            if type(argument) is ArrayArgument:
                raise TypeError(f"{call} takes buffers, and {argument!r} is copied at each launch:"
                                f" pass it to launch, or a buffer to {call}")
        raise TypeError(f"{call} takes buffers: make one of the other library's array first, with"
                        " cudadrv.from_dlpack(array)")
    return room


cdef Py_ssize_t count_accesses(Kernel kernel, Packed *packed) except -1:
    """Return how many accesses `borrow_of` fills in at most."""
    if kernel.changes != kernel.module.changes:
        find_variables(kernel)
    return packed.operand_count + len(kernel.variables) + 1


cdef Py_ssize_t borrow_of(Kernel kernel, Packed *packed, own_access *accesses) except -1:
    """Fill in the accesses of a node that launches, after `count_accesses`. Returns their number.

    Repeats a part of `launch_packed`: if both called one function, the compiler would not inline it
    in `launch_packed`, because it inlines only functions with a single caller.
    """
    cdef Region region
    cdef Memory memory
    cdef Py_ssize_t count
    cdef int mode
    for count in range(packed.operand_count):
        region = <Region>packed.operands[count].region
        check_region(region)
        if not region.portable and region.memory.context is not kernel.module.context:
            raise ValueError(f"{region.describe()} belongs to {region.memory.context!r}, and"
                             f" {kernel!r} to another context; use a buffer of the module's"
                             " context")
        borrow(region, &accesses[count], packed.operands[count].mode)
    count = packed.operand_count
    for memory, mode in kernel.variables:
        if not _is_declared(memory, packed):
            borrow_all(memory.state, &accesses[count], mode,
                       policy_in_force(None, memory.context.policy))
            count += 1
    borrow_all(kernel.module.code.state, &accesses[count], OWN_SHARED, OWN_STRICT)
    return count + 1
