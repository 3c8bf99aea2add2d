"""Policy: what happens to a request that is not ordered after a conflicting borrow."""

cimport cython

from cudadrv._nesting cimport Nesting
from cudadrv._ownership cimport OWN_STRICT, OWN_UNCHECKED, OWN_WAIT

POLICIES = {"strict": OWN_STRICT, "wait": OWN_WAIT, "unchecked": OWN_UNCHECKED}

ordering_blocks = Nesting("cudadrv.ordering")
policies_used = False


cdef object policy_name(value):
    """The value, if it is a policy or None."""
    global policies_used
    if value is not None and value not in POLICIES:
        raise ValueError(
            f"ordering is {value!r}, and must be 'strict', 'wait', 'unchecked' or None")
    policies_used = True
    return value


cdef int policy_in_force(object buffer_policy, object context_policy) except -1:
    """The policy of a borrow: the innermost block's, else the buffer's, else the context's."""
    block = ordering_blocks.innermost()
    if block is not None:
        return POLICIES[(<ordering>block.thing).policy]
    if buffer_policy is not None:
        return POLICIES[buffer_policy]
    if context_policy is not None:
        return POLICIES[context_policy]
    return OWN_STRICT


@cython.final
cdef class ordering:
    """ordering(policy)\n--\n
    Choose, for a `with` block, what happens to a request that is not known to be ordered.

    ``"strict"`` refuses it with `BufferBorrowedError`: the default outside all blocks.
    ``"wait"`` makes the stream wait for the other one (an event wait on the GPU, which stays), and
    a host access wait for the stream; what cannot be waited for is still refused.
    ``"unchecked"`` lets it pass: the caller answers for the order. Host views, closing and the
    lifetime of memory stay protected, and later requests are still checked against this one.

    The choice reaches the functions that the block calls; new threads start without it. A generator
    that yields inside the block leaves it in force for its caller until it goes on and the block
    ends: that is what ``contextlib.contextmanager`` needs, and elsewhere rarely meant. Of several
    blocks, the one that was entered last counts. Buffers (``buffer.ordering``) and contexts
    (``context.ordering``) can have a policy of their own, for requests outside such blocks.

    Raises ValueError for another word.
    """

    cdef str policy
    cdef object __weakref__

    def __cinit__(self, str policy not None):
        self.policy = policy_name(policy)

    @property
    def policy(self):
        """"strict", "wait" or "unchecked"."""
        return self.policy

    def __enter__(self):
        """Begin the block."""
        ordering_blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block: what was in force before it is so again."""
        ordering_blocks.leave(self)

    def __repr__(self):
        return f"ordering({self.policy!r})"
