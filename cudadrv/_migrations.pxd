"""Migrations: how often managed memory changes sides."""


cdef class migration_limit:
    cdef Py_ssize_t count
    cdef str action
    cdef object __weakref__
