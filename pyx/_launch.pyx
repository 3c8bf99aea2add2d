# cython: nonecheck=True
"""Launch: the operation that runs a kernel, and the borrows of its buffers and variables."""

from cudadrv._arguments cimport FEW_ARGUMENTS, Packed, describe_operand
from cudadrv._copy cimport refuse_other_device
from cudadrv._driver cimport (
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CUfunction, CUlaunchAttribute, CUlaunchConfig, CUresult,
    CUstream, bind_driver, cudadrv_table, cuLaunchKernel, cuLaunchKernelEx,
)
from cudadrv._function cimport Function
from cudadrv._likely cimport likely, unlikely
from cudadrv._memory cimport Memory
from cudadrv._operation cimport REFUSED, Operation, borrow_all, issue, prepare
from cudadrv._operation_names cimport LAUNCH
from cudadrv._ownership cimport (
    OWN_BORROWED, OWN_MUST_WAIT, OWN_REACH, OWN_READ, OWN_SHARED, OWN_STRICT, own_access,
    own_conflict,
)
from cudadrv._policy cimport policies_used, policy_in_force
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region, borrow, check_region
from cudadrv._room cimport Room, new_room
from cudadrv._shape cimport Shape
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, new_token, stand_for

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

cdef str VARIABLE = "\n  Or say what the kernel does with it: borrows=[cudadrv.shared(variable)]," \
                    " or read(variable), where\n  variable = module.global_(...)."
cdef str BARE = "\n  A bare buffer counts as written."
cdef enum:
    FEW_ACCESSES = FEW_ARGUMENTS + 4    # that fit on the stack: buffers, variables, the module
    VARIABLES_CHANGED = 0x7fff0000      # no status of the driver's


cdef struct Launch:
    CUfunction function
    Shape *shape
    void **pointers
    Py_ssize_t *changes     # of the module's unlisted variables, and
    Py_ssize_t seen         # those that are borrowed


cdef CUresult _launch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    cdef Shape *shape = launch.shape
    if unlikely(launch.changes[0] != launch.seen):
        return <CUresult>VARIABLES_CHANGED
    if likely(shape.plain):
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


cdef tuple borrows_of_launch(object borrows):
    """The argument `borrows` as a tuple."""
    if isinstance(borrows, Region):
        raise TypeError("borrows takes an iterable of buffers: borrows=[buffer]")
    return tuple(borrows)


cdef Token launch_packed(
    Function function, Shape *shape, Packed *packed, Stream stream, object reads, object writes
):
    """Queue a launch whose arguments are checked: borrow, call, make the token."""
    cdef Operation operation
    cdef Launch launch = Launch(function.raw, shape, packed.pointers, &function.module.changes, 0)
    cdef own_access few[FEW_ACCESSES]
    cdef own_access *accesses = few
    cdef Room room = None
    cdef list variables = None
    cdef Token token = new_token(stream, reads, writes)
    cdef Py_ssize_t count
    cdef int reason = VARIABLES_CHANGED
    while reason == VARIABLES_CHANGED:
        if unlikely(function.changes != function.module.changes):
            _find_variables(function)
        variables, launch.seen = function.variables, function.changes
        count = packed.operand_count + len(variables) + 1
        if unlikely(count > FEW_ACCESSES):
            room = new_room(count * sizeof(own_access))
            accesses = <own_access *>room.start
        count = _borrow_operands(packed, stream, accesses)
        if unlikely(variables):
            count += _borrow_variables(variables, packed, &accesses[count])
        # Last, so that whatever is in the way is said of a buffer.
        borrow_all(function.module.code.state, &accesses[count], OWN_SHARED, OWN_STRICT)
        prepare(&operation, function.operation, accesses, <int>count + 1, _launch_call, &launch)
        reason = issue(&operation, stream)
    if unlikely(reason):
        refuse_operation(&operation, reason, stream, _described(function, packed, variables),
                         _advice(&operation, reason, packed))
    stand_for(token, &operation)
    return token


cdef inline Py_ssize_t _borrow_operands(
    Packed *packed, Stream stream, own_access *accesses
) except -1:
    cdef Region region
    cdef Py_ssize_t i
    for i in range(packed.operand_count):
        region = <Region>packed.operands[i].region
        check_region(region)
        refuse_other_device(region, stream)
        borrow(region, &accesses[i], packed.operands[i].mode)
    return packed.operand_count


cdef Py_ssize_t _borrow_variables(list variables, Packed *packed, own_access *accesses) except -1:
    """Fill in an access for each, but for those of which `borrows` says what becomes of them."""
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


cdef int _find_variables(Function function) except -1:
    """Add the variables of the module that any kernel may use."""
    module = function.module
    changes = module.changes
    found = list(function.reached)
    for memory in module.unlisted:
        found.append((memory, OWN_REACH))
    function.variables, function.changes = found, changes
    return 0


cdef tuple _described(Function function, Packed *packed, list variables):
    """The other side of a refusal, for each access."""
    cdef Memory memory
    cdef Py_ssize_t i
    found = []
    for i in range(packed.operand_count):
        found.append(describe_operand(function.signature, &packed.operands[i]))
    for memory, _ in variables:
        if not _is_declared(memory, packed):
            found.append(f"the variable {memory.label}")
    found.append(function.module.called())
    return tuple(found)


cdef str _advice(Operation *operation, int reason, Packed *packed):
    """What may help against a refusal besides order: "" for most."""
    cdef own_conflict *conflict = &operation.request.conflict
    cdef bint by_launch
    if reason not in (REFUSED - OWN_BORROWED, REFUSED - OWN_MUST_WAIT):
        return ""
    by_launch = conflict.epoch.operation >= LAUNCH
    if conflict.access >= packed.operand_count:
        return VARIABLE if by_launch else ""
    if packed.operands[conflict.access].bare and conflict.epoch.mode == OWN_READ:
        return f"{BARE} If this kernel only reads it: cudadrv.read(buffer)."
    if packed.operands[conflict.access].bare and by_launch:
        return f"{BARE} If both kernels only read it: cudadrv.read(buffer) in both launches."
    return ""
