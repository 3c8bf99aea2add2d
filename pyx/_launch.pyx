# cython: nonecheck=True
"""Launch: the operation that runs a kernel, and the borrows of its buffers and variables."""

from libc.stdint cimport uint8_t

from cudadrv._arguments cimport FEW_ARGUMENTS, Packed, describe_operand
from cudadrv._copy cimport refuse_other_device
from cudadrv._driver cimport (
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CUfunction, CUlaunchAttribute, CUlaunchConfig, CUresult,
    CUstream, bind_driver, cudadrv_table, cuLaunchKernel, cuLaunchKernelEx,
)
from cudadrv._function cimport Function
from cudadrv._likely cimport likely, unlikely
from cudadrv._memory cimport Memory
from cudadrv._operation cimport Operation, borrow_all, issue, prepare
from cudadrv._ownership cimport OWN_READ, OWN_SHARED, OWN_STRICT, OWN_WRITE, own_access
from cudadrv._policy cimport policy_in_force
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

cdef enum:
    FEW_ACCESSES = FEW_ARGUMENTS + 4    # that fit on the stack: buffers, variables, the module


cdef struct Launch:
    CUfunction function
    Shape *shape
    void **pointers


cdef CUresult _launch_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    cdef Shape *shape = launch.shape
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
    cdef Launch launch = Launch(function.raw, shape, packed.pointers)
    cdef own_access few[FEW_ACCESSES]
    cdef own_access *accesses = few
    cdef Region region
    cdef Room room = None
    cdef Token token = new_token(stream, reads, writes)
    cdef Py_ssize_t i
    cdef Py_ssize_t count = packed.operand_count
    if unlikely(function.handed != function.module.handed):
        _find_variables(function)
    if unlikely(count + len(function.variables) + 1 > FEW_ACCESSES):
        room = new_room((count + len(function.variables) + 1) * sizeof(own_access))
        accesses = <own_access *>room.start
    for i in range(count):
        region = <Region>packed.operands[i].region
        check_region(region)
        refuse_other_device(region, stream)
        borrow(region, &accesses[i], packed.operands[i].mode)
    for memory, mode in function.variables:
        _borrow_variable(memory, mode, &accesses[count])
        count += 1
    # Last, so that whatever is in the way is said of a buffer.
    borrow_all(function.module.code.state, &accesses[count], OWN_SHARED, OWN_STRICT)
    prepare(&operation, function.operation, accesses, <int>count + 1, _launch_call, &launch)
    function.module.launching += 1
    try:
        reason = issue(&operation, stream)
    finally:
        function.module.launching -= 1
    if unlikely(reason):
        refuse_operation(&operation, reason, stream, _described(function, packed))
    stand_for(token, &operation)
    return token


cdef int _borrow_variable(Memory memory, uint8_t mode, own_access *access) except -1:
    borrow_all(memory.state, access, mode, policy_in_force(None, memory.context.policy))
    return 0


cdef int _find_variables(Function function) except -1:
    """Look which of the variables that have been handed out it may touch."""
    module = function.module
    handed = module.handed
    touched = None if module.text is None else module.text.touched(function.signature.kernel)
    constants = () if module.text is None else module.text.constants
    found = [(memory, OWN_READ if name in constants else OWN_WRITE)
             for name, memory in list(module.variables.items())
             if touched is None or name in touched]
    function.variables, function.handed = found, handed
    return 0


cdef tuple _described(Function function, Packed *packed):
    """The other side of a refusal, for each access."""
    cdef Memory memory
    cdef Py_ssize_t i
    found = []
    for i in range(packed.operand_count):
        found.append(describe_operand(function.signature, &packed.operands[i]))
    for memory, _ in function.variables:
        found.append(f"the variable {memory.label}")
    found.append(function.module.called())
    return tuple(found)
