"""Dtype: which items can live in a buffer."""


cdef class Items:
    cdef object dtype
    cdef Py_ssize_t itemsize
    cdef long long most     # as many as an address can count the bytes of


cdef Items items_of(object dtype)
cdef str dtype_name(object dtype)
