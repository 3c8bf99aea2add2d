"""Policies of ordering, and blocks within blocks, by which they and streams are in force."""

from contextvars import ContextVar

cimport cython

from cudadrv._engine cimport OWN_STRICT, OWN_UNCHECKED, OWN_WAIT


# ---- blocks within blocks ----
#
# What a `with` block puts in force is kept in a context variable. So it reaches the functions that
# a block calls and the tasks that it starts, and no other thread. A generator that is suspended
# inside a block leaves it in force for whoever resumes it, as functions with
# ``contextlib.contextmanager`` mean to. Such blocks can end in any order, and in a copy of the
# context they began in; each is in force until its own end.

@cython.final
cdef class Entry:
    """A block that was entered."""


@cython.final
cdef class Nesting:
    """The blocks of one kind."""

    def __cinit__(self, str name not None):
        self.current = ContextVar(name, default=None)

    cdef Entry innermost(self):
        """The block that was entered last, of those in force here; None without one."""
        if not self.used:  # nobody ever entered one
            return None
        return live(self.current.get())

    cdef int enter(self, object thing) except -1:
        """Begin a block of a thing."""
        cdef Entry entry = Entry.__new__(Entry)
        entry.thing = thing
        entry.outer = self.innermost()
        try:
            entry.token = self.current.set(entry)
        except BaseException:  # without memory, Python may have set it
            entry.ended = True
            entry.thing = None
            raise
        self.used = True
        return 0

    cdef int leave(self, object thing) except -1:
        """End the innermost block of a thing."""
        cdef Entry inner = None
        cdef Entry entry = self.innermost()
        while entry is not None and entry.thing is not thing:
            inner, entry = entry, live(entry.outer)
        if entry is None:
            raise RuntimeError(
                f"this block of {thing!r} is not entered here; one that was entered in another"
                " thread or context, as by a generator that is closed elsewhere, stays in force"
                " there")
        if inner is None and _is_reset(self.current, entry.token):
            return 0
        entry.ended = True
        entry.thing = entry.token = None
        if inner is not None:
            inner.outer = entry.outer
        return 0


cdef Entry live(Entry entry):
    """The entry, or the first one around it that has not ended."""
    while entry is not None and entry.ended:
        entry = entry.outer
    return entry


cdef bint _is_reset(object variable, object token) except -1:
    """Put back what was in force before; False where the block began in another context.

    False also where that fails, as without memory: the caller then marks the block as ended.
    """
    try:
        variable.reset(token)
    except Exception:
        return False
    return True


# ---- policies ----

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
