"""Staging: copies between buffers and ordinary memory, through page-locked stages."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._device cimport Context
from cudadrv._copy cimport Copy
from cudadrv._driver cimport CUdeviceptr, CUevent
from cudadrv._event cimport Event
from cudadrv._operation cimport Operation, driver_call
from cudadrv._engine cimport own_access
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef object array_of(object source, Region target)
cdef object target_array(object target, Region source)
cdef object as_array(object ordinary)


# The arguments of an operation that copies between a buffer and a stage. The struct must not move
# in memory, because it contains pointers to its own members.
cdef struct StagedCopy:
    own_access access
    Copy plain
    driver_call call        # makes the driver call of `plain`
    void *arguments         # the arguments of `call`: the address of `plain`
    CUdeviceptr inside      # the address where the buffer begins
    CUevent event           # the event of the stage
    bint inward             # whether the copy goes from the stage to the buffer
    bint queued             # the driver has accepted the copy
    bint marked             # the event was recorded after the copy


# The last copy that uses a stage.
cdef struct StageUse:
    uint32_t slot           # the slot of the copy's stream
    uint64_t seq            # the copy's number in that slot; 0 if there was no copy yet
    bint marked             # the stage's event was recorded after the copy


cdef class Stage:
    cdef Context context        # kept alive: the driver frees the memory with its context
    cdef char *data
    cdef size_t nbytes
    cdef StageUse last
    cdef Event event

    cdef bint is_free(self) except -1


cdef Stage idle_stage(Context context, size_t nbytes)
cdef Stage take_stage(Context context, size_t nbytes)
cdef Stage needed_stage(Context context, size_t nbytes)
cdef Stage one_more_stage(Context context, size_t nbytes, bint within_limit)
cdef int give_stage(Stage stage) except -1
cdef int drop_idle_stages(Context context) except -1
cdef int prepare_staged(
    Operation *operation, StagedCopy *copy, int name, Region region) except -1
cdef void aim(
    StagedCopy *copy, char *data, CUevent event, size_t offset, size_t nbytes) noexcept nogil
cdef void note_use(StageUse *use, Operation *operation, StagedCopy *copy) noexcept nogil
cdef int refuse_early(int name, Region region, Stream stream) except -1


cdef size_t chunk_size() noexcept
cdef void fill_stage(Stage stage, const char *ordinary, size_t nbytes) noexcept nogil
cdef bint is_worth_chunks(size_t nbytes) noexcept nogil
cdef int copy_chunks(Region region, char *ordinary, Stream stream, int name) except -1
cdef int copy_on_host(char *block, char *ordinary, size_t nbytes, bint inward) except -1


cdef Token copy_array(int name, Region region, object array, Stream stream)
