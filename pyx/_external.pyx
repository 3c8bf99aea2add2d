"""Memory that comes from elsewhere, by address: is it what the caller says?"""

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUdeviceptr,
    CUresult, bind_driver, cudadrv_table, cuPointerGetAttribute,
)
from cudadrv._release cimport DEVICE, LOCKED, UNIFIED, MemoryKind

bind_driver(&cudadrv_table)


cdef int check_external(
    Context context, MemoryKind kind, CUdeviceptr address, str label
) except -1:
    """Refuse an address that the driver does not know as memory of this kind."""
    cdef int device = context.device.ordinal
    if address == 0:
        return 0
    found = _kind_of(context, address, &device)
    if found != <int>kind:
        words = {DEVICE: "device", LOCKED: "page-locked host", UNIFIED: "managed",
                 -1: "none of the driver's"}
        raise ValueError(f"{address:#x} is not {words[kind]} memory, which a {label} needs: it is"
                         f" {words[found]} memory")
    if kind == DEVICE and device != context.device.ordinal:
        raise ValueError(f"{address:#x} is memory of device {device}, not of {context.device!r};"
                         " say which one with device=")
    return 0


cdef int _kind_of(Context context, CUdeviceptr address, int *device) except -2:
    """DEVICE, LOCKED or UNIFIED; -1 for memory that the driver does not know."""
    cdef unsigned int memory_type = 0
    cdef int managed = 0
    cdef CUresult status
    cdef bint pushed = False
    context.usable()
    with nogil:
        context.check(enter_context(context.raw, &pushed))
        status = cuPointerGetAttribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        if status == CUDA_SUCCESS:
            status = cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
        if status == CUDA_SUCCESS:
            status = cuPointerGetAttribute(device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
        leave_context(pushed)
    if status == CUDA_ERROR_INVALID_VALUE:  # the driver does not know the address
        return -1
    context.check(status)
    if managed & 1:
        return UNIFIED
    return LOCKED if memory_type == CU_MEMORYTYPE_HOST else DEVICE
