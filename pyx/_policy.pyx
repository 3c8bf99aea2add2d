"""Policy: what happens to a request that is not ordered after a conflicting borrow."""

from contextvars import ContextVar

cimport cython

from cudadrv._ownership cimport OWN_STRICT, OWN_UNCHECKED, OWN_WAIT

POLICIES = {"strict": OWN_STRICT, "wait": OWN_WAIT, "unchecked": OWN_UNCHECKED}

_current = ContextVar("cudadrv.ordering", default=None)  # (block, what it was before)
cdef long _blocks = 0  # `with ordering(...)` blocks alive anywhere: with none, nobody looks


cdef object policy_name(value):
    """The value, if it is a policy or None."""
    if value is not None and value not in POLICIES:
        raise ValueError(
            f"ordering is {value!r}, and must be 'strict', 'wait', 'unchecked' or None")
    return value


cdef int policy_of(object buffer_policy, object context_policy) except -1:
    """The policy of a borrow: the innermost block's, else the buffer's, else the context's."""
    if _blocks:
        current = _current.get()
        if current is not None:
            return POLICIES[(<ordering>current[0]).policy]
    if buffer_policy is not None:
        return POLICIES[buffer_policy]
    if context_policy is not None:
        return POLICIES[context_policy]
    return OWN_STRICT


@cython.final
cdef class ordering:
    """Choose, for a `with` block, what happens to a request that is not known to be ordered.

    ``"strict"`` refuses it with `BufferBorrowedError`: the default outside all blocks.
    ``"wait"`` makes the stream wait for the other one (an event wait on the GPU, which stays), and
    a host access wait for the stream; what cannot be waited for is still refused.
    ``"unchecked"`` lets it pass: the caller answers for the order. Host views, closing and the
    lifetime of memory stay protected, and later requests are still checked against this one.

    The choice reaches the functions that the block calls; new threads start without it. Buffers
    (``buffer.ordering``) and contexts (``context.ordering``) can have a policy of their own, for
    requests outside such blocks.

    Raises ValueError for another word.
    """

    cdef readonly str policy

    def __cinit__(self, str policy not None):
        self.policy = policy_name(policy)

    def __enter__(self):
        global _blocks
        _current.set((self, _current.get()))
        _blocks += 1
        return self

    def __exit__(self, *exception):
        global _blocks
        current = _current.get()
        if current is None or current[0] is not self:
            raise RuntimeError("`with ordering(...)` blocks must end in reverse order")
        _current.set(current[1])
        _blocks -= 1

    def __repr__(self):
        return f"ordering({self.policy!r})"
