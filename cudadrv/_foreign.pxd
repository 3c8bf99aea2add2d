"""Streams that are named by something else than their object: a handle, or a slot of the engine."""

from cudadrv._event cimport Waitable

cdef Waitable work_of_slot(unsigned int slot)
