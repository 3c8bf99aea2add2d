"""Which way a branch usually goes: the compiler puts what is usual in one piece.

After a driver call little of our code is left in the processor's caches, so what counts more than
the number of instructions is how many lines of it are fetched, and how often it goes on elsewhere.
"""


cdef extern from *:     # Cython defines both
    bint likely(bint condition) noexcept nogil
    bint unlikely(bint condition) noexcept nogil
