"""Refusal: the exceptions that say which work uses a buffer, and what to do about it."""

from libc.stdint cimport uint32_t

from cudadrv._operation cimport Operation
from cudadrv._engine cimport own_conflict, own_request
from cudadrv._stream cimport Stream

cdef int refuse_operation(
    Operation *operation, int reason, Stream stream, tuple targets, str advice=*) except -1
cdef int refuse_node(
    own_request *request, int reason, str graph, tuple targets, str advice) except -1
cdef int refuse_host(
    int answer, own_conflict *conflict, str verb, str target) except -1
cdef int refuse_close(int answer, own_conflict *conflict, str verb, str target) except -1
cdef int refuse_cut(str target, uint32_t site) except -1
cdef int refuse_closed(str target, uint32_t site=*) except -1
cdef str excluding_work(own_conflict *conflict)
cdef str view_line(own_conflict *conflict)
cdef str view_end(own_conflict *conflict)
