"""Errors: functions that raise the exception for a CUresult.

They are called as in `with nogil: check(cuStreamDestroy(stream))`.
"""

from cudadrv._driver cimport CUresult, CUDA_SUCCESS, CUDA_ERROR_NOT_READY


ctypedef int (*context_loser)(CUresult status) except -1
ctypedef void (*refusal_hearer)(object error) noexcept


cdef void lose_contexts_with(context_loser function) noexcept
cdef int tell_refusals_to(refusal_hearer function) except -1
cdef int raise_status(CUresult status) except -1 with gil
cdef void report(CUresult status) noexcept with gil
cdef void report_text(str text) noexcept
cdef object status_of(int status)
cdef bint is_sticky(CUresult status) noexcept nogil
cdef int refuse_if_forked() except -1
cdef int refuse_capture(str stream) except -1
cdef int close_at_end(object thing, object raised, str what) except -1
cdef int only_made_by(object cls, str how) except -1
cdef int hint(object cls, dict names) except -1
cdef int refuse_uninitialized(object thing) except -1
cdef str uninitialized(object thing)


cdef inline int check(CUresult status) except -1 nogil:
    """Raise if a driver call failed. Must be called in the thread that made the call."""
    if status == CUDA_SUCCESS:
        return 0
    return raise_status(status)


cdef inline int is_ready(CUresult status) except -1 nogil:
    """Return whether the work is complete, from the status of a query.

    Raises for a status other than CUDA_SUCCESS and CUDA_ERROR_NOT_READY.
    """
    if status == CUDA_SUCCESS:
        return 1
    if status == CUDA_ERROR_NOT_READY:
        return 0
    return raise_status(status)
