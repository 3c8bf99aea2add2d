"""Nesting: what `with` blocks put in force, for the code that runs inside them.

It is kept in a context variable, so it reaches the functions that a block calls and the tasks that
it starts, and no other thread. A generator that is suspended inside a block leaves it in force for
whoever resumes it, as functions with ``contextlib.contextmanager`` mean to. Such blocks can end in
any order, and in a copy of the context they began in; each is in force until its own end.
"""

from contextvars import ContextVar

cimport cython


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
        entry.token = self.current.set(entry)
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
