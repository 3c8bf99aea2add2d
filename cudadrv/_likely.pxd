"""Which way a branch usually goes: the compiler puts what is usual in one piece.

After a driver call little of our code is left in the processor's caches, so the number of cache
lines that a call goes through counts more than its instructions do.
"""


cdef extern from *:     # Cython defines both
    bint likely(bint condition) noexcept nogil
    bint unlikely(bint condition) noexcept nogil
