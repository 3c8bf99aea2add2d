"""Room: bytes for what does not fit on the stack."""

cimport cython
from libc.stdlib cimport free, malloc


@cython.final
cdef class Room:
    """Bytes that are freed with the object: internal to launches."""

    def __dealloc__(self):
        free(self.start)


cdef Room new_room(size_t nbytes):
    cdef Room room = Room.__new__(Room)
    room.start = malloc(nbytes if nbytes else 1)
    if room.start is NULL:
        raise MemoryError()
    return room
