"""Migrations: how often managed memory changes sides, and limits for that."""

from warnings import warn
from weakref import WeakKeyDictionary

import numpy as np

cimport cython

from cudadrv._names cimport operation_name
from cudadrv._ordering cimport Nesting
from cudadrv._region cimport Region
from cudadrv._site cimport here, place

from cudadrv._errors import CudaWarning, MigrationError, integer

cdef enum:
    SHIFT = 16  # counted are blocks of 64 KiB, which drivers move at once

cdef Nesting _limits = Nesting("cudadrv.migration_limit")


@cython.final
cdef class migration_limit:
    """migration_limit(count, action='raise')\n--\n
    Choose, for a `with` block, how often the same managed memory may change sides.

    If the host uses 64 KiB that work of a device has used since the host used them last, and no
    prefetch has brought them back, the driver has to move them at a page fault. Once this has
    happened ``count`` times to the same 64 KiB in the block, the next time is a
    `MigrationError` at the line of the host (``"raise"``: the access is refused), or a CudaWarning
    (``"warn"``). Memory that was given advice does not count.

    The limit applies in the functions that the block calls; new threads start without one. Of
    nested blocks, the one entered last counts.

    Raises TypeError or ValueError for another action, or a count that is negative or no integer.
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
        """What happens beyond that: "warn" or "raise"."""
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
cdef class Migrations:
    """How often the 64-KiB blocks of an allocation changed sides. Internal to `Memory`."""

    cdef object counts  # since it was allocated: an array with a count for each block
    cdef object within  # since a `migration_limit` was first in force: such an array for each

    def __cinit__(self, size_t nbytes):
        self.counts = np.zeros((nbytes >> SHIFT) + 1, np.uint32)
        self.within = WeakKeyDictionary()

    def most(self, size_t start, size_t stop):
        """Return the highest count of some bytes; there is at least one."""
        return int(self.counts[_blocks_between(start, stop)].max())


def count_migration(Region region not None, size_t start, size_t stop, int operation, site):
    """Count that the host uses bytes that an operation used last. Raises at a limit."""
    cdef Migrations migrations
    if region.memory.advised:
        return
    if region.memory.migrations is None:
        region.memory.migrations = Migrations(region.memory.state.nbytes)
    migrations = region.memory.migrations
    blocks = _blocks_between(start, stop)
    limit = _limits.innermost()
    if limit is not None:
        within = _within(migrations, limit.thing)
        if within[blocks].max() >= (<migration_limit>limit.thing).count:
            _complain(region, operation, site, limit.thing)
        within[blocks] += 1
    migrations.counts[blocks] += 1


cdef object _blocks_between(size_t start, size_t stop):
    return slice(start >> SHIFT, ((stop - 1) >> SHIFT) + 1)


cdef object _within(Migrations migrations, migration_limit limit):
    """Return the counts since a limit was first in force."""
    counts = migrations.within.get(limit)
    if counts is None:
        counts = migrations.within[limit] = np.zeros_like(migrations.counts)
    return counts


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
