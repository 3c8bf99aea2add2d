"""Ordinary host memory: what copies accept besides buffers."""

from cudadrv._region cimport Region

cdef object plain_array(object array)
cdef object array_of(object source, Region target)
cdef object target_array(object target, Region source)
