"""DriverPool: the driver's own memory pools."""

from cudadrv._device cimport Context
from cudadrv._pool cimport PoolHandle
from cudadrv._release cimport MemoryKind


cdef class DriverPool(PoolHandle):
    cdef object place       # a Device, "host" or "host:N"
    cdef bint shared        # the driver's default pool of the place: it is not destroyed
    cdef str name
    cdef object __weakref__


cdef PoolHandle chosen_pool(MemoryKind kind, Context context)
