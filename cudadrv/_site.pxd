"""Call sites: the user's line that made a call, kept as a number until it is printed."""

from libc.stdint cimport uint32_t


cdef uint32_t here() noexcept
cdef str place(uint32_t site)
