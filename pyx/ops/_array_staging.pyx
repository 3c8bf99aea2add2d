"""Copies between arrays and ordinary memory, such as that of a NumPy array, through stages.

A blocking copy goes through two stages in turn, so that the host fills or empties one while the
driver copies the other.
"""

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

from cudadrv._array_copy cimport (
    ArrayCopy, array_call, check_items, describe_staged_texels, slabs_of,
)
from cudadrv._array_memory cimport Texels
from cudadrv._engine cimport engine, own_join_host, own_snapshot, own_snapshot_drop
from cudadrv._event cimport wait_for_event
from cudadrv._names cimport ARRAY_FROM_ASYNC, COPY_FROM_ASYNC, COPY_TO
from cudadrv._operation cimport Operation
from cudadrv._region cimport payload_of, queue
from cudadrv._staging cimport (
    Stage, StagedCopy, aim, as_array, chunk_size, fill_stage, give_stage, note_use, prepare_staged,
    refuse_early, take_stage,
)
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token, new_token, stand_for


# ---- arrays of the caller ----

cdef object source_of(object source, Texels target):
    """Return a C-contiguous array of the source's items. Raises if they do not fit the target."""
    array = as_array(source)
    _check(array, target)
    return np.ascontiguousarray(array)


cdef object target_of(object target, Texels source):
    """Return the target as an array to copy to. Raises if it does not fit or cannot be written."""
    array = as_array(target)
    _check(array, source)
    if not array.flags.writeable:
        raise ValueError("copy_to needs an array that is writable, and this one is read-only")
    return array


cdef int _check(object array, Texels texels) except -1:
    if array.dtype != texels.layout.dtype:
        raise TypeError(
            f"the array of shape {array.shape} ({array.dtype}) and the channels of"
            f" {texels.describe()} have different dtypes; nothing is converted. Convert the data"
            f" first: array.astype({texels.layout.dtype.name!r})")
    return check_items(texels, "the NumPy array", array.shape, array.size, False)


# ---- some slices or rows ----

@cython.final
cdef class Slabs:
    """Some slices or rows of texels, in a stage, and the copy of them."""

    cdef Stage stage
    cdef own_snapshot issued
    cdef char *ordinary
    cdef size_t nbytes

    def __dealloc__(self):
        own_snapshot_drop(engine, &self.issued)


cdef int _queue(
    Operation *operation, int name, Texels texels, Stage stage, Stream stream, size_t first,
    size_t count
) except -1:
    """Queue the copy between slabs and a stage. The caller must drop `request.issued`."""
    cdef StagedCopy staged
    cdef ArrayCopy copy
    prepare_staged(operation, &staged, name, texels)
    aim(&staged, stage.data, stage.event.raw, 0, 0)
    describe_staged_texels(&copy, texels, stage.data, staged.inward, first, count)
    staged.call, staged.arguments = array_call, &copy
    try:
        queue(operation, stream, texels)
    finally:
        note_use(&stage.last, operation, &staged)
    return 0


cdef Slabs _begin(
    int name, Texels texels, char *ordinary, Stream stream, size_t first, size_t count, size_t slab
):
    cdef Operation operation
    cdef Slabs now = Slabs.__new__(Slabs)
    now.nbytes, now.ordinary = count * slab, ordinary + first * slab
    now.stage = take_stage(stream.context, now.nbytes)
    try:
        if name != COPY_TO:
            with nogil:
                fill_stage(now.stage, now.ordinary, now.nbytes)
        _queue(&operation, name, texels, now.stage, stream, first, count)
    except BaseException:
        give_stage(now.stage)
        raise
    now.issued = operation.request.issued
    return now


cdef int _end(int name, Slabs slabs, Stream stream) except -1:
    try:
        stream.context.check(wait_for_event(
            stream.context.raw, slabs.stage.event.raw, &slabs.issued))
        own_join_host(engine, &slabs.issued)
        if name == COPY_TO:
            with nogil:
                memcpy(slabs.ordinary, slabs.stage.data, slabs.nbytes)
    finally:
        give_stage(slabs.stage)
    return 0


# ---- whole copies ----

cdef int copy_ordinary(int name, Texels texels, object array, Stream stream) except -1:
    """Copy between texels and a contiguous array. Blocks until the copy is complete.

    If it raises, the array is not accessed any more, and the texels stay borrowed until the queued
    slabs are known to be complete.
    """
    cdef Py_buffer view
    cdef size_t slab = 0
    cdef size_t total = slabs_of(texels, &slab)
    cdef size_t most = max(<size_t>1, chunk_size() // slab)
    cdef size_t first
    cdef Slabs last = None
    cdef Slabs now
    refuse_early(name, texels, stream)
    _open(&view, texels, array, name == COPY_TO)
    try:
        for first in range(0, total, most):
            now = _begin(
                name, texels, <char *>view.buf, stream, first, min(most, total - first), slab)
            if last is not None:
                _end(name, last, stream)
            last = now
        _end(name, last, stream)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef Token copy_ordinary_async(Texels target, object array, Stream stream, object written):
    """Copy the items of a contiguous array to one stage, and queue the copy from there."""
    cdef Operation operation
    cdef Py_buffer view
    cdef size_t slab = 0
    cdef size_t total = slabs_of(target, &slab)
    cdef Token token = new_token(stream, None, written)
    cdef Stage stage
    refuse_early(COPY_FROM_ASYNC, target, stream)
    _open(&view, target, array, False)
    try:
        stage = take_stage(stream.context, payload_of(target))
        try:
            with nogil:
                fill_stage(stage, <char *>view.buf, view.len)
            _queue(&operation, ARRAY_FROM_ASYNC, target, stage, stream, 0, total)
            stand_for(token, &operation)
        finally:
            give_stage(stage)
    finally:
        PyBuffer_Release(&view)
    return token


cdef int _open(Py_buffer *view, Texels texels, object array, bint written) except -1:
    """Get the bytes of a contiguous array."""
    flat = array.reshape(-1).view(np.uint8)
    PyObject_GetBuffer(flat, view, PyBUF_WRITABLE if written else PyBUF_SIMPLE)
    if <size_t>view.len != payload_of(texels):
        PyBuffer_Release(view)
        raise ValueError(f"{texels.describe()} has {payload_of(texels)} bytes, and the array has"
                         f" {view.len}: it was changed meanwhile")
    return 0
