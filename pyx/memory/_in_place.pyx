"""In place: memory of the program that is page-locked where it is.

The owner of the memory is kept until the registration ends: when the buffer is closed, or dropped
and all work that uses it is known to be complete.
"""

from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, CU_MEMHOSTREGISTER_READ_ONLY,
    CUdeviceptr, CUresult, has_answered, last_failure,
)
from cudadrv._memory cimport Memory, list_memory, new_state, obtain, owner_of
from cudadrv._memory_kinds cimport IN_PLACE
from cudadrv._pool cimport is_cached
from cudadrv._region cimport (
    Items, Region, checked_label, dtype_name, fill_in, is_ndarray, items_of, plain_array,
)
from cudadrv._release cimport drain_for_more, is_to_be_freed
from cudadrv._site cimport here, place

import numpy as np

from cudadrv._errors import CudaError

cdef extern from "cudadrv/driver.h":
    enum:
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED


cdef int register_region(Region region, object array, Context context, object name) except -1:
    """Initialize `region` as a buffer over the memory of an array. Page-locks the memory."""
    cdef Items items
    cdef Memory memory
    array = _checked_array(array)
    items = items_of(array.dtype)
    label = checked_label(region, name)
    context.usable()
    _check_device(context)
    memory = Memory.__new__(Memory)
    memory.context = context
    memory.kind = IN_PLACE
    memory.nbytes = array.nbytes
    memory.label = label
    memory.site = here()
    memory.state = new_state(memory.nbytes)
    if memory.nbytes:
        _register(memory, array)
    fill_in(region, memory, array.size, items.dtype, items.itemsize, name)
    region.read_only = not array.flags.writeable
    if array.ndim > 1:
        region.sizes = array.shape
    return 0


cdef object _checked_array(object given):
    """Return an array over the given memory, which keeps it as it is. Raises if it cannot be
    registered.
    """
    if is_ndarray(given):
        array = plain_array(given)
    else:
        try:
            array = np.asarray(memoryview(given))
        except TypeError:
            raise TypeError(
                f"from_memory takes an array or an object with the buffer protocol, such as a mmap,"
                f" and not {type(given).__name__}") from None
    if not array.flags.c_contiguous:
        raise ValueError(
            f"the array of shape {array.shape} with strides {array.strides} is not C-contiguous,"
            " and a buffer is one range of bytes: pass the whole array, or a contiguous part")
    if not array.flags.aligned:
        raise ValueError(
            f"the items at {array.ctypes.data:#x} are not aligned to {array.dtype.alignment} bytes,"
            f" which {dtype_name(array.dtype)} needs: pass array.view('u1')")
    return array


cdef int _check_device(Context context) except -1:
    if not context.device.attribute_value(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED):
        raise ValueError(f"{context.device!r} cannot page-lock memory that exists"
                         " (host_register_supported is 0); copy it to a LockedBuffer")
    if not context.device.attribute_value(
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM):
        raise ValueError(f"{context.device!r} has another address for such memory than the host"
                         " (can_use_host_pointer_for_registered_mem is 0), which cudadrv does not"
                         " support; copy it to a LockedBuffer")
    return 0


cdef int _register(Memory memory, object array) except -1:
    cdef Context context = memory.context
    if not array.flags.writeable and context.device.attribute_value(
            CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED):
        memory.flags = CU_MEMHOSTREGISTER_READ_ONLY
    drain_for_more()    # ends registrations of dropped buffers, perhaps one of these bytes
    memory.owner = array
    _refuse_known(memory, array.ctypes.data)
    obtain(memory, memory.nbytes, _register_call)
    list_memory(memory)
    return 0


cdef CUresult _register_call(Memory memory, size_t size) except *:
    """Register the memory of the owner. Sets the address if that succeeds."""
    cdef CUdeviceptr address = memory.owner.ctypes.data
    cdef CUresult status
    with nogil:
        status = memory.kind.make(memory.context.raw, &address, size, memory.flags)
    if status == CUDA_SUCCESS:
        memory.address = address
    elif has_answered(status, <CUresult>CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED):
        _refuse_known(memory, address)  # another thread may have registered it meanwhile
        raise CudaError(
            <int>status, last_failure().decode(),
            f"another library has page-locked some of the {size} bytes at {address:#x}. Use the"
            " whole of what it has registered: LockedBuffer.from_address(address, count, dtype,"
            " owner=...)")
    elif has_answered(status, CUDA_ERROR_INVALID_VALUE):
        raise CudaError(<int>status, last_failure().decode(), _unsuitable(memory, address))
    return status


cdef int _refuse_known(Memory memory, CUdeviceptr address) except -1:
    """Raise ValueError if cudadrv has page-locked some of the bytes already."""
    cdef Memory other = owner_of(address, memory.nbytes)
    what = f"cannot page-lock {memory.nbytes} bytes at {address:#x} as {memory.label} at" \
           f" {place(memory.site)}"
    if other is not None:
        raise ValueError(f"{what}: they overlap {other.label}, made at {place(other.site)}, whose"
                         " memory the driver knows already. Use that buffer, or a part of it")
    if is_to_be_freed(address, memory.nbytes) or is_cached(address, memory.nbytes):
        raise ValueError(f"{what}: they overlap a dropped buffer, whose memory the driver knows"
                         " until all work that may use it is complete. Wait: cudadrv.reap()")
    return 0


cdef str _unsuitable(Memory memory, CUdeviceptr address):
    if memory.flags & CU_MEMHOSTREGISTER_READ_ONLY:
        return (f"the {memory.nbytes} bytes at {address:#x} cannot be page-locked: some of them are"
                " not mapped, or are the driver's memory")
    return (f"the {memory.nbytes} bytes at {address:#x} cannot be page-locked: some of them are not"
            " mapped, cannot be written, or are the driver's memory; some systems refuse writable"
            " mappings of files. Map a file read-only: mmap.mmap(..., access=mmap.ACCESS_READ)")
