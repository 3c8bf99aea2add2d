"""The driver's calls for copies and fills of boxes: parts of buffers whose rows have gaps."""

from cudadrv._driver cimport CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUevent, CUresult, CUstream
from cudadrv._engine cimport own_box
from cudadrv._region cimport Region


cdef enum:
    MOST_PITCH = 0x7fffffff     # MAX_PITCH of every device up to now


cdef struct BoxCopy:
    CUdeviceptr target
    CUdeviceptr source
    own_box to              # the box at `target`
    own_box of              # the box at `source`; it has the same rows, slices and width
    int target_type
    int source_type
    bint across             # between device memory of two contexts
    CUcontext target_context
    CUcontext source_context
    CUevent marker          # as in _copy.Copy


cdef struct BoxFill:
    CUdeviceptr target
    size_t itemsize
    own_box box
    unsigned char[16] item
    CUcontext context   # of the stream, if the fill may copy


cdef int describe_copy(BoxCopy *copy, Region target, Region source) except -1
cdef void describe_staged(BoxCopy *copy, Region region, char *stage, bint inward) noexcept
cdef void fill_params(BoxCopy *copy, CUDA_MEMCPY3D *params) noexcept nogil
cdef CUresult box_call(void *arguments, CUstream stream, bint *queued) noexcept nogil
cdef int check_pitch(own_box *box) except -1
cdef int describe_fill(
    BoxFill *fill, Region region, size_t itemsize, const unsigned char *item) except -1
cdef int refuse_several(BoxFill *fill, Region region) except -1
cdef CUresult fill_box_call(void *arguments, CUstream stream, bint *queued) noexcept nogil
