"""Trace: what cudadrv does, written to a file for Perfetto."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._driver cimport CUDADRV_TRACES, cudadrv_table, unlikely
from cudadrv._engine cimport own_memory, own_request, own_stream


cdef extern from "cudadrv/trace.h" nogil:
    uint64_t trace_ticks()
    void trace_operation(
        const own_request *request, uint64_t begin, int reason, bint captured)


cdef void name_request(const own_request *request, const own_stream *stream, size_t raw) noexcept
cdef int begin_memory(
    own_memory *state, str label, size_t nbytes, uint32_t site, size_t kept) except -1
cdef int end_memory(own_memory *state, size_t nbytes, size_t kept) except -1
cdef void note_line(const own_stream *stream, size_t raw) noexcept


cdef inline void line_of_call(const own_stream *stream=NULL, size_t raw=0) noexcept:
    """Let a trace know the line of a record, a wait or a query that follows."""
    if unlikely(cudadrv_table.slowly & CUDADRV_TRACES):
        note_line(stream, raw)
