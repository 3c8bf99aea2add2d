"""Migrations: how often managed memory changes sides."""


cdef class migration_limit:
    cdef unsigned int count
    cdef str action
    cdef object __weakref__
