"""Ordering: policies, and the nesting of `with` blocks."""


cdef class Entry:
    cdef object thing   # the `ordering` or the Stream of the block
    cdef Entry outer    # the enclosing block, or None
    cdef object token   # the argument of ContextVar.reset
    cdef bint ended     # the block has ended; a contextvars.Context may still refer to the entry


cdef class Nesting:
    cdef object current     # a ContextVar of the innermost Entry
    cdef bint used          # whether any block was ever entered

    cdef Entry innermost(self)
    cdef int enter(self, object thing) except -1
    cdef int leave(self, object thing) except -1


cdef Entry live(Entry entry)


cdef object policy_name(value)
cdef int policy_in_force(object buffer_policy, object context_policy) except -1

cdef Nesting ordering_blocks
cdef bint policies_used     # whether any policy was ever set
