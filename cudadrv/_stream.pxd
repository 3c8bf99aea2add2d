"""Stream: a queue of work of one context."""

from cudadrv._context cimport Context
from cudadrv._queue cimport Queue


cdef class Stream(Queue):
    pass


cdef Stream stream_for(object stream, Context context)
