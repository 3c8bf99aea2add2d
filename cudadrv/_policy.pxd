"""The ordering policy of a call."""

from cudadrv._nesting cimport Nesting

cdef object policy_name(value)
cdef int policy_in_force(object buffer_policy, object context_policy) except -1

cdef Nesting ordering_blocks
cdef bint policies_used     # whether any policy was ever set
