"""Staging: copies between buffers and ordinary memory, through page-locked stages."""

import numpy as np

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

from cudadrv._chunked cimport copy_chunks, is_worth_chunks
from cudadrv._driver cimport bind_driver, cudadrv_table
from cudadrv._operation cimport Operation, issue
from cudadrv._operation_names cimport COPY_FROM_ASYNC, COPY_TO
from cudadrv._ownership cimport engine, own_join_host, own_snapshot_drop
from cudadrv._refusal cimport refuse_operation
from cudadrv._region cimport Region
from cudadrv._stage cimport (
    Stage, StagedCopy, aim, give_stage, note_use, prepare_staged, refuse_early, take_stage,
)
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, new_token, stand_for
from cudadrv._wait cimport wait_for_event

bind_driver(&cudadrv_table)  # for issue


cdef extern from "cudadrv/streaming_copy.h" nogil:
    void streaming_copy(char *target, const char *source, size_t nbytes)


cdef int _queue(
    Operation *operation, int name, Region region, Stage stage, Stream stream
) except -1:
    """Queue the copy of a whole buffer from or to a stage. The caller owns `request.issued`."""
    cdef StagedCopy copy
    prepare_staged(operation, &copy, name, region)
    aim(&copy, stage.data, stage.event.raw, 0, region.nbytes)
    reason = issue(operation, stream)
    note_use(&stage.last, operation, &copy)
    if reason:
        refuse_operation(operation, reason, stream, (region.describe(),))
    return 0


cdef int _copy_at_once(Region region, char *ordinary, Stream stream, int name) except -1:
    """Copy through one stage; complete on return."""
    cdef Operation operation
    cdef size_t nbytes = region.nbytes
    cdef Stage stage = take_stage(stream.context, nbytes)
    try:
        if name != COPY_TO:
            with nogil:
                streaming_copy(stage.data, ordinary, nbytes)
        _queue(&operation, name, region, stage, stream)
        try:
            stream.context.check(wait_for_event(stream.context.raw, stage.event.raw))
            own_join_host(engine, &operation.request.issued)
        finally:
            own_snapshot_drop(engine, &operation.request.issued)
        if name == COPY_TO:
            with nogil:
                memcpy(ordinary, stage.data, nbytes)
    finally:
        give_stage(stage)
    return 0


cdef Token _copy_snapshot(Region target, const char *source, Stream stream):
    """Queue a copy of a snapshot that is taken now."""
    cdef Operation operation
    cdef Token token = new_token(stream, None, target)
    cdef Stage stage = take_stage(stream.context, target.nbytes)
    try:
        with nogil:
            streaming_copy(stage.data, source, target.nbytes)
        _queue(&operation, COPY_FROM_ASYNC, target, stage, stream)
        stand_for(token, &operation)
    finally:
        give_stage(stage)
    return token


cdef Token copy_array(int name, Region region, object array, Stream stream):
    """Copy between a buffer and a contiguous array of as many bytes, through page-locked memory.

    COPY_FROM and COPY_TO are complete on return; COPY_FROM_ASYNC gives a token.
    """
    cdef Py_buffer view
    refuse_early(name, region, stream)
    flat = array.reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, &view, PyBUF_WRITABLE if name == COPY_TO else PyBUF_SIMPLE)
    try:
        if <size_t>view.len != region.nbytes:
            raise ValueError(f"{region.describe()} has {region.nbytes} bytes, and the array has"
                             f" {view.len}: it was changed meanwhile")
        if name == COPY_FROM_ASYNC:
            return _copy_snapshot(region, <const char *>view.buf, stream)
        if is_worth_chunks(region.nbytes):
            copy_chunks(region, <char *>view.buf, stream, name)
        else:
            _copy_at_once(region, <char *>view.buf, stream, name)
    finally:
        PyBuffer_Release(&view)
    return None
