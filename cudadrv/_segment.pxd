"""Segment: memory of the system that several processes have mapped."""

from libc.stdint cimport uint64_t


cdef class Segment:
    cdef int file           # the file descriptor, or -1
    cdef void *address
    cdef size_t nbytes

    cdef uint64_t load(self, size_t offset) noexcept
    cdef void store(self, size_t offset, uint64_t value) noexcept
    cdef bint swap(self, size_t offset, uint64_t expected, uint64_t value) noexcept


cdef Segment new_segment(str name, size_t nbytes)
cdef Segment open_segment(uint64_t pid, int file, str name, size_t nbytes)
cdef int close_file(int file) except -1
cdef uint64_t load_word(void *word) noexcept
cdef void store_word(void *word, uint64_t value) noexcept
