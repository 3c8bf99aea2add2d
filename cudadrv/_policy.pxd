"""The ordering policy of a call."""

from cudadrv._nesting cimport Nesting
from cudadrv._ownership cimport OWN_STRICT

cdef object policy_name(value)
cdef int policy_in_force(object buffer_policy, object context_policy) except -1


cdef Nesting ordering_blocks


cdef inline int policy_of(object buffer_policy, object context_policy) except -1:
    """The policy of a borrow: the innermost block's, else the buffer's, else the context's."""
    if buffer_policy is None and context_policy is None and not ordering_blocks.used:
        return OWN_STRICT
    return policy_in_force(buffer_policy, context_policy)
