"""Waiting for the GPU without the GIL, in a way that signals can interrupt."""

from libc.stdint cimport int64_t

from cudadrv._driver cimport CUcontext, CUevent, CUresult, CUstream

cdef CUresult query_event(CUcontext context, CUevent event) noexcept nogil
cdef CUresult query_stream(CUstream stream) noexcept nogil
cdef CUresult wait_for_event(CUcontext context, CUevent event) except *
cdef int64_t now_ns() noexcept nogil
cdef void pause_after(int64_t waited) noexcept nogil
cdef int let_others_go_on() except -1
