"""Migrations: how often managed memory changes sides, and limits for that.

State that outlives a call: the limit in force (a context variable).
"""

from warnings import warn
from weakref import WeakKeyDictionary

cimport cython
from libc.stdlib cimport calloc, free

from cudadrv._names cimport operation_name
from cudadrv._ordering cimport Nesting
from cudadrv._region cimport Region
from cudadrv._site cimport here, place

from cudadrv._errors import CudaWarning, MigrationError, integer

cdef enum:
    SHIFT = 16  # memory is counted in blocks of 64 KiB, because drivers move such blocks at once

cdef Nesting _limits = Nesting("cudadrv.migration_limit")


@cython.final
cdef class migration_limit:
    """migration_limit(count, action='raise')\n--\n
    Choose, for a `with` block, how often the same managed memory may change sides.

    If the host uses 64 KiB of memory that a device has used since the host's last use, and no
    prefetch has brought the memory back, the driver has to move it at a page fault. When this has
    happened ``count`` times to the same 64 KiB in the block, the next such access of the host
    raises a `MigrationError` at its line (``"raise"``), or issues a CudaWarning (``"warn"``).
    Memory that was given advice does not count.

    The limit also applies in the functions that the block calls; new threads start without one. Of
    nested blocks, the one entered last counts.

    Raises TypeError or ValueError unless the count is a non-negative integer, and the action is one
    of the two words.
    """

    def __cinit__(self, count, str action not None="raise"):
        count = integer(count, "count")
        if not 0 <= count < 1 << 32:
            raise ValueError(f"count is how often memory may change sides, and not {count}")
        if action not in ("warn", "raise"):
            raise ValueError(f"action is {action!r}, and must be 'warn' or 'raise'")
        self.count = count
        self.action = action

    @property
    def count(self):
        """How often the same memory may change sides."""
        return self.count

    @property
    def action(self):
        """What happens when the limit is exceeded: "warn" or "raise"."""
        return self.action

    def __enter__(self):
        """Begin the block."""
        _limits.enter(self)
        return self

    def __exit__(self, kind, exception, traceback):
        """End the block. The limit from before the block is in force again."""
        _limits.leave(self)

    def __repr__(self):
        return f"migration_limit({self.count}, {self.action!r})"


@cython.final
cdef class Counts:
    """How often each 64-KiB block of an allocation changed sides. Internal to `Migrations`."""

    cdef unsigned int *each
    cdef size_t nbytes

    def __cinit__(self, size_t nbytes):
        self.nbytes = nbytes
        self.each = <unsigned int *>calloc((nbytes >> SHIFT) + 1, sizeof(unsigned int))
        if self.each is NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.each)

    cdef unsigned int most(self, size_t start, size_t stop) noexcept:
        """Return the highest count of the 64-KiB blocks of these bytes. `stop` exceeds `start`."""
        cdef unsigned int found = 0
        cdef size_t block
        for block in range(start >> SHIFT, ((stop - 1) >> SHIFT) + 1):
            found = max(found, self.each[block])
        return found

    cdef void add(self, size_t start, size_t stop) noexcept:
        cdef size_t block
        for block in range(start >> SHIFT, ((stop - 1) >> SHIFT) + 1):
            self.each[block] += 1


@cython.final
cdef class Migrations:
    """How often the memory of an allocation changed sides. Internal to `Memory`."""

    cdef Counts counts  # counts since the memory was allocated
    cdef object within  # for each `migration_limit`: the Counts while it was in force

    def __cinit__(self, size_t nbytes):
        self.counts = Counts(nbytes)
        self.within = WeakKeyDictionary()

    def most(self, size_t start, size_t stop):
        """Return the highest count of the 64-KiB blocks of these bytes. `stop` exceeds `start`."""
        return self.counts.most(start, stop)


def count_migration(Region region not None, size_t start, size_t stop, int operation, site):
    """Count a use by the host of bytes that an operation used last. Raises beyond a limit."""
    cdef Migrations migrations
    cdef migration_limit limit
    cdef Counts within = None
    if region.memory.advised:
        return
    if region.memory.migrations is None:
        region.memory.migrations = Migrations(region.memory.state.nbytes)
    migrations = region.memory.migrations
    entry = _limits.innermost()
    if entry is not None:
        limit = entry.thing
        within = migrations.within.get(limit)
        if within is None:
            within = migrations.within[limit] = Counts(migrations.counts.nbytes)
        if within.most(start, stop) >= limit.count:
            _complain(region, operation, site, limit)
        within.add(start, stop)
    migrations.counts.add(start, stop)


cdef int _complain(Region region, int operation, site, migration_limit limit) except -1:
    times = "once" if limit.count == 1 else f"{limit.count} times"
    text = (
        f"{region.describe()} has changed sides {times} in {limit!r}, and does so again:\n"
        f"  a device used it by {operation_name(operation)}, queued at {place(site)},\n"
        f"  and the host uses it at {place(here())}.\n"
        "  Move it before it is used: buffer.prefetch('host', stream), buffer.prefetch(device,"
        " stream).")
    if limit.action == "raise":
        raise MigrationError(text)
    warn(text, CudaWarning, stacklevel=1)
    return 0
