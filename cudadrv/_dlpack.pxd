"""DLPack: arrays of other libraries, and ours for them."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t


cdef extern from "cudadrv/dlpack.h" nogil:
    enum:
        DL_CPU
        DL_CUDA
        DL_CUDA_HOST
        DL_CUDA_MANAGED
        DL_READ_ONLY
        DL_IS_COPIED
    ctypedef struct dl_device:
        int32_t device_type
        int32_t device_id
    ctypedef struct dl_dtype:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct dl_tensor:
        void *data
        dl_device device
        int32_t ndim
        dl_dtype dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset


cdef class Tensor:
    cdef dl_tensor *tensor
    cdef void *managed          # what its deleter takes, and
    cdef bint versioned         # which struct that is
    cdef readonly bint readonly


cdef int check_array(object dtype, tuple shape) except -1
cdef object export_capsule(
    object keeper, void *data, dl_device device, object dtype, tuple shape, tuple strides,
    bint versioned, uint64_t flags)
cdef list keepers_of_ended()
cdef void call_on_end(int *attention) noexcept
cdef Tensor take_tensor(object capsule)
cdef object dtype_of(dl_dtype given)
cdef tuple shape_of_tensor(dl_tensor *tensor)
cdef bint is_contiguous(dl_tensor *tensor) noexcept
