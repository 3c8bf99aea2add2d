"""Names: the words by which messages name operations and streams."""

from libc.stdint cimport uint16_t, uint64_t, uint8_t

from cudadrv._engine cimport own_conflict


cdef extern from "cudadrv/operations.h" nogil:
    ctypedef enum NodeKind "enum cudadrv_node":
        OTHER_NODE
        COPY_NODE
        FILL_NODE
        LAUNCH_NODE
        CALL_NODE
        SET_NODE
        WAIT_NODE
        NO_NODE
    ctypedef enum Operation "enum cudadrv_operation":
        COPY_FROM
        COPY_TO
        COPY_FROM_ASYNC
        COPY_TO_ASYNC
        ARRAY_FROM_ASYNC
        ARRAY_TO_ASYNC
        COPY_BATCH
        COPY_OF_BATCH
        FILL
        FILL_ASYNC
        FILL_BOX
        CALL
        CAPTURED_CALL
        SET
        CAPTURED_SET
        WAIT
        CAPTURED_WAIT
        ALLOCATION
        RELEASE
        LEND
        IMPORT
        GIVE_BACK
        SHARE
        OPENING
        ACCEPT
        PREFETCH
        PREFETCH_BATCH
        DISCARD
        DISCARD_AND_PREFETCH
        DISCARD_BATCH
        ATTACH
        TO
        OFFLOAD
        CONSTANT
        UPLOAD
        LAUNCH
        CUSTOM
    unsigned CUDADRV_OPERATION_COUNT
    ctypedef struct cudadrv_operation_row:
        const char *name
        NodeKind node
    cudadrv_operation_row cudadrv_operation_at(unsigned number)


cdef class Parts:
    cdef str part_at(self, size_t memory, uint64_t start, uint64_t stop, int mode)


cdef uint64_t number_of_graph() noexcept
cdef int name_graph(uint64_t number, str name, str end) except -1
cdef str graph_name(uint64_t number)
cdef str graph_end(uint64_t number)
cdef void forget_graph(uint64_t number) noexcept
cdef uint16_t graph_launch(str graph, Parts parts)
cdef int give_back_name(uint16_t number) except -1
cdef Parts parts_of(uint16_t operation)
cdef str operation_name(uint16_t operation)
cdef NodeKind node_kind(uint16_t operation)
cdef uint16_t launch_of(str kernel)
cdef bint is_launch(uint16_t operation)
cdef uint16_t custom_operation(str name)
cdef str checked_name(object name)
cdef int name_stream(uint64_t number, str name) except -1
cdef str stream_name(uint64_t number, uint8_t kind)
cdef str stream_variable(uint64_t number, uint8_t kind)
cdef str host_wait(uint64_t number, uint8_t kind)
cdef str doing(const own_conflict *conflict)
cdef str work_text(const own_conflict *conflict)
