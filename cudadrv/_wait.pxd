"""Waiting for the GPU without the GIL, in a way that signals can interrupt."""

from cudadrv._driver cimport CUevent, CUresult

cdef CUresult wait_for_event(CUevent event) except *
