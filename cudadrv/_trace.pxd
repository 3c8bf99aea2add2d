"""Trace: what cudadrv does, written to a file for Perfetto."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._driver cimport CUDADRV_TRACES, cudadrv_table, unlikely
from cudadrv._engine cimport own_memory, own_request, own_stream


cdef extern from "cudadrv/trace.h" nogil:
    uint64_t trace_ticks()
    void trace_moves(uint64_t nbytes)
    void trace_captured()
    void trace_operation(const own_request *request, uint64_t begin, int reason)
    ctypedef struct trace_hooks:
        void (*name_request)(
            const own_request *request, const own_stream *stream, size_t raw) noexcept
        void (*note_line)(const own_stream *stream, size_t raw) noexcept
        void (*begin_memory)(
            own_memory *state, void *label, size_t nbytes, uint32_t site, size_t kept) noexcept
        void (*end_memory)(own_memory *state, size_t nbytes, size_t kept) noexcept
        void (*memory_begins)(void *memory) noexcept
        void (*memory_ends)(void *memory) noexcept
    trace_hooks trace_calls


cdef inline void line_of_call(const own_stream *stream, size_t raw) noexcept:
    """Let a trace know the line of a record, a wait or a query that follows."""
    if unlikely(cudadrv_table.slowly & CUDADRV_TRACES):
        trace_calls.note_line(stream, raw)
