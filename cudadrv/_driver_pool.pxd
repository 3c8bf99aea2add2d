"""DriverPool: the driver's own memory pools."""

from cudadrv._pool cimport PoolHandle


cdef class DriverPool(PoolHandle):
    cdef object place       # a Device, "host" or "host:N"
    cdef bint shared        # the driver's default pool of the place: it is not destroyed
    cdef str name
    cdef object __weakref__
