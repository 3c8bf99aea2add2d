"""DeviceBuffer: memory of a device."""

from cudadrv._buffer cimport Buffer


cdef class DeviceBuffer(Buffer):
    pass
