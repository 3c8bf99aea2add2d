"""Room: bytes for as long as somebody has the object."""


cdef class Room:
    cdef void *start


cdef Room new_room(size_t nbytes)
