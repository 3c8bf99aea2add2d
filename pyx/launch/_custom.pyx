# cython: nonecheck=True
"""Custom operations: what other projects get by `cimport cudadrv`.

An `Operation` lists what it borrows. `issue` checks the operation, borrows the memory and makes the
driver calls, as for cudadrv's own operations. docs/cython.md is the page for users, and
cudadrv/__init__.pxd has the declarations that stay stable for them.

State that outlives a call: the names of these operations, as C text (the GIL guards them).
"""

cimport cython
from libc.stdint cimport uint16_t

from cudadrv._arguments cimport Room, describe_operand, new_room
from cudadrv._buffer cimport Buffer
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUcontext, CUdeviceptr, CUfunction, CUlaunchConfig, CUresult,
    CUstream, cuLaunchKernel as launch, cuLaunchKernelEx as launch_ex, cuMemcpyAsync as copy,
    cuMemcpyDtoDAsync as copy_dtod, cuMemcpyDtoHAsync as copy_dtoh, cuMemcpyHtoDAsync as copy_htod,
    cuMemsetD16Async as fill_16, cuMemsetD32Async as fill_32, cuMemsetD8Async as fill_8,
    cudadrv_table, enter_context, leave_context,
)
from cudadrv._engine cimport OWN_READ, OWN_SHARED, OWN_STRICT, OWN_WRITE, own_access
from cudadrv._kernel cimport Kernel, Prepared, check_kernel, find_variables, launch_ready
from cudadrv._memory cimport Memory
from cudadrv._names cimport custom_operation, operation_name
from cudadrv._operation cimport Operation as Request, borrow_all, issue as issue_request, prepare
from cudadrv._ordering cimport policies_used, policy_in_force
from cudadrv._peers cimport access_ends, refuse_unreachable
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow as fill_access, check_region, pointer_of
from cudadrv._stream cimport Stream, known_stream, refuse_no_stream, stream_for
from cudadrv._token cimport Token, new_token, stand_for

# The names of operations as C text, by number. A CudaError of such an operation shows its name in
# place of a driver function. A text is never removed, because threads keep its address
# (`last_failure` in _driver.pyx).
cdef dict LABELS = {}


@cython.final
cdef class Use:
    """A buffer that an operation uses."""
    cdef Region buffer
    cdef int mode
    cdef Prepared prepared  # the prepared launch that has the buffer as an operand, or None
    cdef Py_ssize_t operand


@cython.final
@cython.freelist(8)
cdef class Operation:
    """Operation(name, /)\n--\n
    An operation of another project, written in Cython: see docs/cython.md.

    ``name`` is shown in messages, such as ``"mylib.scale"``. Raises TypeError if the name is not a
    str, and ValueError if it is empty or not printable.
    """
    cdef uint16_t name
    cdef list uses
    cdef list kernels

    def __cinit__(self, name, /):
        if not isinstance(name, str):
            raise TypeError(
                f"the name of an operation must be a str, not {type(name).__name__}")
        if not name or not name.isprintable():
            raise ValueError(f"the name of an operation must be printable, and is {name!r}")
        self.name = custom_operation(str(name))
        if self.name not in LABELS:
            LABELS[self.name] = operation_name(self.name).encode()
        self.uses = []
        self.kernels = []

    def __repr__(self):
        return f"<Operation {operation_name(self.name)!r}>"


# ---- what an operation borrows ----

cdef Operation _checked(object operation):
    if not isinstance(operation, Operation):
        raise TypeError(f"operation must be a cudadrv.Operation, not {type(operation).__name__}")
    return operation


cdef CUdeviceptr borrow(object operation, object buffer, int mode) except? 0:
    """Let an operation use a buffer. Returns the buffer's address, or 0 if it has no items.

    `mode` is READ, WRITE or SHARED (the program itself orders its accesses). The borrow begins with
    `issue`. Raises TypeError for other objects, ValueError for other modes, and BufferClosedError
    for a closed or moved buffer.
    """
    given = _checked(operation)
    if not isinstance(buffer, Buffer):
        raise TypeError(f"buffer must be a Buffer, not {type(buffer).__name__}")
    if mode not in (READ, WRITE, SHARED):
        raise ValueError(f"mode must be READ, WRITE or SHARED, not {mode}")
    check_region(<Buffer>buffer)
    _add_use(given, <Buffer>buffer, _engines_mode(mode), None, 0)
    return pointer_of(<Buffer>buffer)


cdef CUfunction borrow_kernel(object operation, object kernel) except NULL:
    """Let an operation launch a kernel. Returns the kernel's handle.

    The module of the kernel and the variables that the kernel reaches are borrowed, too. Raises
    TypeError for other objects, and what a launch raises for a closed module.
    """
    given = _checked(operation)
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a Kernel, not {type(kernel).__name__}")
    check_kernel(<Kernel>kernel)
    given.kernels.append(kernel)
    return (<Kernel>kernel).raw


cdef void *borrow_prepared(object operation, object prepared) except NULL:
    """Let an operation make a launch that `kernel.prepare` returned.

    Returns what `launch_prepared` takes. Borrows the buffers of the launch, and what
    `borrow_kernel` borrows. Raises TypeError for other objects, and what a launch raises for a
    closed module or buffer.
    """
    cdef Prepared ready
    cdef Py_ssize_t i
    given = _checked(operation)
    if not isinstance(prepared, Prepared):
        raise TypeError(f"prepared must be a Prepared, not {type(prepared).__name__}")
    ready = prepared
    check_kernel(ready.kernel)
    for i in range(ready.packed.operand_count):
        buffer = <Region>ready.packed.operands[i].region
        check_region(buffer)
        _add_use(given, buffer, ready.packed.operands[i].mode, ready, i)
    given.kernels.append(ready.kernel)
    return <void *>ready


cdef int _engines_mode(int mode) noexcept:
    return OWN_READ if mode == READ else OWN_WRITE if mode == WRITE else OWN_SHARED


cdef int _add_use(
    Operation operation, Region buffer, int mode, Prepared prepared, Py_ssize_t operand
) except -1:
    cdef Use use = Use.__new__(Use)
    use.buffer, use.mode, use.prepared, use.operand = buffer, mode, prepared, operand
    operation.uses.append(use)
    return 0


# ---- the call of an operation ----

cdef struct Watch:
    # Tells whether a module got another unlisted variable since its variables were borrowed, or
    # whether access to another device may have ended since it was checked.
    const Py_ssize_t *changes   # the module's counter, or `access_ends`
    Py_ssize_t seen             # the value of that counter before the check


cdef struct Run:
    Call call
    void *arguments
    CUcontext context
    const char *label
    Watch *watches
    Py_ssize_t watch_count
    bint outdated           # whether one of `watches` shows a change
    bint called
    CUresult status         # what the call returned


cdef CUresult _run(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Run *run = <Run *>arguments
    cdef bint pushed = False
    cdef CUresult status
    cdef Py_ssize_t i
    # `issue` repeats a failed call in the stream's context. `run.call` already ran in that context,
    # and must not run twice.
    if run.called:
        return run.status
    for i in range(run.watch_count):
        if run.watches[i].changes[0] != run.watches[i].seen:
            run.outdated = True
            return CUDA_ERROR_UNKNOWN
    # `run.call` may call another library, which relies on the current context.
    status = enter_context(run.context, &pushed)
    if status != CUDA_SUCCESS:
        return status
    # cudadrv's wrappers record their own name as the failed call. `run.call` may fail without using
    # a wrapper, so the operation's name is recorded first.
    cudadrv_table.note_failure(run.label)
    queued[0] = True
    status = run.call(run.arguments, stream, queued)
    run.called = True
    # The callback may return any int, but a negative one would be read as a refusal.
    run.status = status if <int>status >= 0 else CUDA_ERROR_UNKNOWN
    leave_context(pushed)
    return run.status


cdef object issue(object operation, object stream, Call call, void *arguments):
    """Check an operation, borrow what it uses, make its calls, and return its `Token`.

    Does not wait for the work. May be called again for the same operation. If `stream` is None, the
    operation runs on the stream of the `with stream:` block. If the operation is refused, `call`
    has not run, and nothing has changed.

    Raises
    ------
    TypeError, ValueError
        There is no stream, it is closed, or a buffer or kernel belongs to another context.
    BufferBorrowedError, BufferExportedError, BufferClosedError
        As for any operation. The message names the line of Python that is running.
    CudaError
        `call` returned an error status.
    """
    given = _checked(operation)
    if call is NULL:
        raise ValueError("issue needs a function that makes the driver calls, and call is NULL")
    uses, kernels = tuple(given.uses), tuple(given.kernels)
    found = _stream_of(given, uses, kernels, stream)
    return _issue(given.name, uses, kernels, found, call, arguments)


cdef Stream _stream_of(Operation operation, tuple uses, tuple kernels, object stream):
    """Return the given stream, else the current one.

    Raises if a buffer or a kernel of the operation cannot be used on that stream.
    """
    cdef Context context = None
    cdef Kernel kernel
    cdef Use use
    for use in uses:
        if context is None or not use.buffer.portable:
            context = use.buffer.memory.context
    if kernels:
        context = (<Kernel>kernels[0]).module.context
    cdef Stream found = stream_for(known_stream(stream), context)
    if found is None:
        refuse_no_stream(operation_name(operation.name))
    found.usable()
    for use in uses:
        check_region(use.buffer)
    for kernel in kernels:
        check_kernel(kernel)
        kernel.other_stream(found)
    return found


cdef Token _issue(
    uint16_t name, tuple uses, tuple kernels, Stream stream, Call call, void *arguments
):
    cdef Request request
    cdef Run run
    cdef own_access *accesses
    cdef Room watches, room
    cdef list variables = None
    cdef Py_ssize_t count
    cdef int reason = 0
    cdef Token token = new_token(stream, _buffers(uses, OWN_READ), _buffers(uses, OWN_WRITE))
    run.call, run.arguments, run.context = call, arguments, stream.context.raw
    run.label = <bytes>LABELS[name]
    run.called = False
    watches = new_room((len(kernels) + 1) * sizeof(Watch))
    run.watches, run.watch_count = <Watch *>watches.start, len(kernels) + 1
    run.outdated = True
    while run.outdated:
        run.outdated = False
        run.watches[len(kernels)] = Watch(&access_ends, access_ends)
        _refuse_unreachable(uses, stream)
        variables = _variables(uses, kernels, run.watches)
        count = len(uses) + len(variables) + len(kernels)
        room = new_room(count * sizeof(own_access))
        accesses = <own_access *>room.start
        _fill_accesses(uses, variables, kernels, accesses)
        prepare(&request, name, accesses, <int>count, _run, &run)
        reason = issue_request(&request, stream, NULL, False)
    if reason:
        refuse_operation(&request, reason, stream, _described(uses, variables, kernels))
    stand_for(token, &request)
    return token


cdef int _refuse_unreachable(tuple uses, Stream stream) except -1:
    cdef Use use
    for use in uses:
        refuse_unreachable(use.buffer, stream)
    return 0


cdef object _buffers(tuple uses, int mode):
    """Return the buffers that are used in a mode: None, one buffer, or a tuple of buffers."""
    cdef Use use
    found = []
    for use in uses:
        if use.mode == mode:
            found.append(use.buffer)
    return None if not found else found[0] if len(found) == 1 else tuple(found)


cdef list _variables(tuple uses, tuple kernels, Watch *watches):
    """Return (Memory, mode) for each variable that the kernels reach, except those in `uses`.

    Fills in `watches`, one for each kernel.
    """
    cdef Kernel kernel
    cdef Py_ssize_t i = 0
    found = []
    for kernel in kernels:
        if kernel.changes != kernel.module.changes:
            find_variables(kernel)
        variables = kernel.variables
        watches[i] = Watch(&kernel.module.changes, kernel.changes)
        i += 1
        for memory, mode in variables:
            if not _is_declared(memory, uses):
                found.append((memory, mode))
    return found


cdef bint _is_declared(Memory memory, tuple uses) except -1:
    """Whether `uses` declares how a variable is used, by `borrow` or by ``borrows=`` of a launch.

    Such a declaration replaces what the PTX text says. A buffer that is only an argument of a
    prepared launch does not declare anything.
    """
    cdef Use use
    for use in uses:
        if use.buffer.memory is memory and (
                use.prepared is None or use.prepared.packed.operands[use.operand].argument < 0):
            return True
    return False


cdef int _fill_accesses(tuple uses, list variables, tuple kernels, own_access *accesses) except -1:
    cdef Py_ssize_t i = 0
    cdef Use use
    cdef Memory memory
    cdef Kernel kernel
    cdef int policy
    for use in uses:
        fill_access(use.buffer, &accesses[i], use.mode)
        i += 1
    for memory, mode in variables:
        policy = OWN_STRICT
        if policies_used:
            policy = policy_in_force(None, memory.context.policy)
        borrow_all(memory.state, &accesses[i], mode, policy)
        i += 1
    for kernel in kernels:  # last, so that a refusal names a buffer rather than the module
        borrow_all(kernel.module.code.state, &accesses[i], OWN_SHARED, OWN_STRICT)
        i += 1
    return 0


cdef tuple _described(tuple uses, list variables, tuple kernels):
    """Return how a refusal names the memory of each access."""
    cdef Use use
    cdef Memory memory
    cdef Kernel kernel
    found = []
    for use in uses:
        if use.prepared is None:
            found.append(use.buffer.describe())
        else:
            found.append(describe_operand(
                use.prepared.kernel.signature, &use.prepared.packed.operands[use.operand]))
    for memory, _ in variables:
        found.append(f"the variable {memory.label}")
    for kernel in kernels:
        found.append(kernel.module.called())
    return tuple(found)


# ---- driver functions ----
#
# Other projects call these functions instead of the functions in _driver.pxd. Cython looks them up
# by name when a module of another project is imported. So that module needs no call table, and
# still works if cudadrv's call table has changed since the module was compiled.

cdef CUresult launch_prepared(void *prepared, CUstream stream) noexcept nogil:
    return launch_ready(<Prepared>prepared, stream)


cdef CUresult cuMemcpyAsync(
    CUdeviceptr target, CUdeviceptr source, size_t nbytes, CUstream stream
) noexcept nogil:
    return copy(target, source, nbytes, stream)


cdef CUresult cuMemcpyHtoDAsync(
    CUdeviceptr target, const void *source, size_t nbytes, CUstream stream
) noexcept nogil:
    return copy_htod(target, source, nbytes, stream)


cdef CUresult cuMemcpyDtoHAsync(
    void *target, CUdeviceptr source, size_t nbytes, CUstream stream
) noexcept nogil:
    return copy_dtoh(target, source, nbytes, stream)


cdef CUresult cuMemcpyDtoDAsync(
    CUdeviceptr target, CUdeviceptr source, size_t nbytes, CUstream stream
) noexcept nogil:
    return copy_dtod(target, source, nbytes, stream)


cdef CUresult cuMemsetD8Async(
    CUdeviceptr target, unsigned char value, size_t count, CUstream stream
) noexcept nogil:
    return fill_8(target, value, count, stream)


cdef CUresult cuMemsetD16Async(
    CUdeviceptr target, unsigned short value, size_t count, CUstream stream
) noexcept nogil:
    return fill_16(target, value, count, stream)


cdef CUresult cuMemsetD32Async(
    CUdeviceptr target, unsigned int value, size_t count, CUstream stream
) noexcept nogil:
    return fill_32(target, value, count, stream)


cdef CUresult cuLaunchKernel(
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
    CUstream stream, void **parameters, void **extra
) noexcept nogil:
    return launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                  stream, parameters, extra)


cdef CUresult cuLaunchKernelEx(
    const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra
) noexcept nogil:
    return launch_ex(config, function, parameters, extra)
