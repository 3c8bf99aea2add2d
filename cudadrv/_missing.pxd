"""Missing waits: what the policy "wait" inserts."""

from cudadrv._ownership cimport own_clock, own_conflict

# The engine's answer to a request if what `waited` knows had been waited for, and the conflict.
ctypedef int (*question)(void *request, own_clock *waited) noexcept nogil

cdef list missing_waits(own_conflict *conflict, question still_in_the_way, void *request)
