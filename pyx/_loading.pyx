"""Loading: the driver takes an image, and its compiler says what it thinks of it."""

import operator

from libc.string cimport strlen

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_GENERATE_DEBUG_INFO,
    CU_JIT_GENERATE_LINE_INFO, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    CU_JIT_LOG_VERBOSE, CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_TARGET,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUjit_option,
    CUmodule, CUresult, bind_driver, cudadrv_table, cuModuleLoadDataEx, last_failure,
)
from cudadrv._errors cimport is_sticky
from cudadrv._memory cimport Memory
from cudadrv._room cimport Room, new_room

from cudadrv._errors import CudaImageError

bind_driver(&cudadrv_table)

cdef enum:
    MOST_OPTIONS = 10
    LOG_BYTES = 1 << 14


cdef list compiler_options(
    object max_registers, object optimization_level, object target, bint lineinfo, bint debug_info,
    bint verbose
):
    """Options of the driver's compiler, each with its value, or TypeError or ValueError."""
    options = []
    if max_registers is not None:
        number = _number("max_registers", max_registers, 1, 1 << 16)
        options.append((CU_JIT_MAX_REGISTERS, number))
    if optimization_level is not None:
        number = _number("optimization_level", optimization_level, 0, 4)
        options.append((CU_JIT_OPTIMIZATION_LEVEL, number))
    if target is not None:
        options.append((CU_JIT_TARGET, _target_number(target)))
    for option, wanted in ((CU_JIT_GENERATE_LINE_INFO, lineinfo),
                           (CU_JIT_GENERATE_DEBUG_INFO, debug_info),
                           (CU_JIT_LOG_VERBOSE, verbose)):
        if wanted:
            options.append((option, 1))
    return options


cdef object _number(str name, object value, long least, long most):
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, and must be from {least} to {most}")
    return number


cdef object _target_number(object target):
    """CUjit_target is 10 times the major version, and the minor one."""
    try:
        major, minor = target
        number = 10 * operator.index(major) + operator.index(minor)
    except (TypeError, ValueError):
        raise TypeError("target must be a compute capability such as (7, 5), not"
                        f" {target!r}") from None
    if not 0 <= number < 1 << 31:
        raise ValueError(f"target is {target!r}, and there is no such compute capability")
    return number


cdef str load_image(Memory code, object image, list options, str called):
    """Load it into `code`, which owns the CUmodule from the moment that the driver gives it.

    Returns the compiler's log. Raises CudaImageError with its other log.
    """
    cdef Context context = code.context
    cdef const char *data = <bytes>image.data
    cdef CUjit_option names[MOST_OPTIONS]
    cdef void *values[MOST_OPTIONS]
    cdef unsigned int count
    cdef CUmodule raw = NULL
    cdef CUresult status
    cdef bint pushed = False
    cdef Room room = new_room(2 * LOG_BYTES)
    cdef char *info = <char *>room.start
    cdef char *errors = info + LOG_BYTES
    info[0] = errors[0] = 0
    options = options + [(CU_JIT_INFO_LOG_BUFFER, <size_t>info),
                         (CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, LOG_BYTES),
                         (CU_JIT_ERROR_LOG_BUFFER, <size_t>errors),
                         (CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES)]
    for i, (option, value) in enumerate(options):
        names[i] = option
        values[i] = <void *><size_t>value
    count = <unsigned int>len(options)
    with nogil:
        status = enter_context(context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuModuleLoadDataEx(&raw, data, count, names, values)
            leave_context(pushed)
    if status == CUDA_SUCCESS:
        code.address = <CUdeviceptr><size_t>raw
    info[LOG_BYTES - 1] = errors[LOG_BYTES - 1] = 0
    if status in (CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY) or is_sticky(status):
        context.check(status)
    if status != CUDA_SUCCESS:
        call = last_failure().decode()
        log = _text(errors)
        what = f"{called} is {image.kind} of {len(image.data)} bytes"
        raise CudaImageError(<int>status, call, f"{what}\n{log}" if log else what, log)
    return _text(info)


cdef str _text(const char *log):
    return log[:strlen(log)].decode(errors="replace").strip()
