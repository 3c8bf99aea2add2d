"""What `with` blocks put in force."""


cdef class Entry:
    cdef object thing   # what the block is about
    cdef Entry outer    # the block around it
    cdef object token   # puts back what was in force before
    cdef bint ended     # in this context, while it is in force in others


cdef class Nesting:
    cdef object current     # the innermost entry, as a context variable
    cdef bint used

    cdef Entry innermost(self)
    cdef int enter(self, object thing) except -1
    cdef int leave(self, object thing) except -1


cdef Entry live(Entry entry)


cdef object policy_name(value)
cdef int policy_in_force(object buffer_policy, object context_policy) except -1

cdef Nesting ordering_blocks
cdef bint policies_used     # whether any policy was ever set
