"""DLPack: tensors that other libraries export, and exports of cudadrv's buffers."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t


cdef extern from "cudadrv/dlpack.h" nogil:
    enum:
        DL_CPU
        DL_CUDA
        DL_CUDA_HOST
        DL_CUDA_MANAGED
        DL_COMPLEX
        DL_MOST_DIMENSIONS
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
    ctypedef struct dl_versioned:
        uint32_t major
        uint32_t minor
        void (*deleter)(dl_versioned *)
        uint64_t flags
        dl_tensor tensor
    ctypedef struct dl_exchange:
        uint32_t major
        uint32_t minor
        dl_exchange *older
        int (*allocate)(
            dl_tensor *like, dl_versioned **tensor, void *error,
            void (*set_error)(void *error, const char *kind, const char *message) noexcept
        ) noexcept
        int (*managed_from_object)(void *array, dl_versioned **tensor) except -1
        int (*object_from_managed)(dl_versioned *tensor, void **array) except -1
        int (*tensor_from_object)(void *array, dl_tensor *tensor) except -1
        int (*current_work_stream)(
            int32_t device_type, int32_t device_id, void **stream) except -1


cdef dl_exchange *exchange_of(object kind) except? NULL
cdef object exchange_capsule        # the value of `__dlpack_c_exchange_api__` of cudadrv's buffers
cdef dl_exchange our_exchange       # the table of functions that this capsule contains


cdef class Tensor:
    cdef dl_tensor *tensor
    cdef void *managed          # the dl_managed or dl_versioned that `tensor` is a part of
    cdef bint versioned         # whether `managed` is a dl_versioned
    cdef readonly bint readonly


cdef tuple pair_of_ints(object value, str name)
cdef int check_array(object dtype, tuple shape) except -1
cdef object export_capsule(
    object keeper, void *data, dl_device device, object dtype, size_t count, tuple shape,
    tuple strides, bint versioned, uint64_t flags)
cdef dl_versioned *export_tensor(
    object keeper, void *data, dl_device device, object dtype, size_t count, tuple shape,
    tuple strides, uint64_t flags) except NULL
cdef object keeper_of_ended()
cdef void call_on_end(int *attention) noexcept
cdef Tensor take_tensor(object capsule)
cdef Tensor take_exchanged(dl_exchange *api, object array)
cdef Tensor own_tensor(dl_versioned *managed)
cdef object dtype_of(dl_dtype given)
cdef tuple shape_of_tensor(dl_tensor *tensor)
cdef bint is_contiguous(dl_tensor *tensor) noexcept
