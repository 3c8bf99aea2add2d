"""Ordering: the policies, and the nesting of `with` blocks of policies and of streams.

State that outlives a call: the policy in force (a context variable).
"""

from contextvars import ContextVar

cimport cython
from cpython.contextvars cimport get_value_no_default
from cpython.exc cimport PyErr_CheckSignals

from cudadrv._engine cimport OWN_STRICT, OWN_UNCHECKED, OWN_WAIT


# ---- nested blocks ----
#
# A context variable (contextvars) holds the innermost `with` block. So a block is in force in the
# functions that it calls and in the tasks that it starts, and in no other thread. If a generator is
# suspended inside a block, the block stays in force in the generator's caller;
# ``contextlib.contextmanager`` needs this. Because of such generators, an outer block may end
# before an inner one. A block may also end in a copy of the contextvars.Context in which it began.
# Each block stays in force until it ends itself.

@cython.final
cdef class Entry:
    """One `with` block that was entered."""


@cython.final
cdef class Nesting:
    """All entered blocks of one kind: of policies, or of streams."""

    def __cinit__(self, str name not None):
        self.current = ContextVar(name, default=None)

    cdef Entry innermost(self):
        """Return the innermost block that is in force in this thread or task, or None."""
        if not self.used:
            return None
        return live(get_value_no_default(self.current))

    cdef int enter(self, object thing) except -1:
        """Begin a block. `thing` is what the block puts in force: a policy or a stream."""
        cdef Entry entry = Entry.__new__(Entry)
        entry.thing = thing
        entry.outer = self.innermost()
        try:
            entry.token = self.current.set(entry)
        except BaseException:  # the variable may have been set even though memory ran out
            entry.ended = True
            entry.thing = None
            raise
        self.used = True
        try:
            # From Python 3.14 on, a signal that is noticed after `__enter__` has returned ends the
            # block without a call of `__exit__`. So pending signals are handled here.
            PyErr_CheckSignals()
        except BaseException:
            self.leave(thing)
            raise
        return 0

    cdef int leave(self, object thing) except -1:
        """End the innermost block of `thing`.

        Raises RuntimeError if no block of `thing` is in force in this thread or task.
        """
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
    """Return the entry if its block has not ended, else the entry of the nearest enclosing open
    block.

    Returns None if all of these blocks have ended.
    """
    while entry is not None and entry.ended:
        entry = entry.outer
    return entry


cdef bint _is_reset(object variable, object token) except -1:
    """Restore what was in force before a block; False if that fails.

    It fails if the block began in another context, or if memory runs out. The caller then marks the
    block as ended.
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
    """Return the value if it is a policy or None, else raise ValueError."""
    global policies_used
    if value is not None and value not in POLICIES:
        raise ValueError(
            f"ordering is {value!r}, and must be 'strict', 'wait', 'unchecked' or None")
    policies_used = True
    return value


cdef int policy_in_force(object buffer_policy, object context_policy) except -1:
    """Return the policy of a borrow.

    This is the policy of the innermost block, else of the buffer, else of the context, else strict.
    """
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
    Choose, for a `with` block, what happens to an operation that is not known to be ordered.

    ``"strict"``, the default outside all blocks, raises `BufferBorrowedError`.
    ``"wait"`` makes the operation's stream wait for the stream of the conflicting work. This is an
    event wait on the GPU, so later work of the waiting stream is ordered, too. A host access blocks
    until all work that is queued on the stream of the conflicting work is complete. If the
    conflicting work cannot be waited for, the operation is still refused.
    ``"unchecked"`` lets the operation pass: the program is responsible for the order. Host views,
    closing and the lifetime of memory stay protected, and later operations are still checked
    against this one.

    The policy also applies in the functions that the block calls, but not in threads that it
    starts. If a generator yields inside the block, the policy applies in the generator's caller
    until the generator leaves the block. ``contextlib.contextmanager`` needs this; other generators
    rarely want it. Of nested blocks, the one entered last counts. Outside all blocks, the policy of
    the buffer (``buffer.ordering``) counts, else that of its context (``context.ordering``).

    Raises TypeError or ValueError unless the policy is one of the three words.
    """

    cdef str policy
    cdef object __weakref__

    def __cinit__(self, str policy not None):
        self.policy = policy_name(policy)

    @property
    def policy(self):
        """The policy: "strict", "wait" or "unchecked"."""
        return self.policy

    def __enter__(self):
        """Begin the block."""
        ordering_blocks.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. The policy from before the block is in force again."""
        ordering_blocks.leave(self)

    def __repr__(self):
        return f"ordering({self.policy!r})"
