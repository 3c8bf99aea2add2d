"""The ordering policy of a call."""

cdef object policy_name(value)
cdef int policy_of(object buffer_policy, object context_policy) except -1
