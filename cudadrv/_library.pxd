"""Library: chooses a libcuda.so.1, and opens it on first use."""

cdef int ensure_driver() except -1
