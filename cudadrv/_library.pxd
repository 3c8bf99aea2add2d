"""Which libcuda.so.1 is used: opened on first use."""

cdef int ensure_driver() except -1
