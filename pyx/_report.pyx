"""Report: who uses a buffer, for `borrows` and `explain`."""

from typing import NamedTuple

from libc.stdlib cimport free, malloc

from cudadrv._errors cimport refuse_if_forked
from cudadrv._operation_names cimport host_wait, operation_name, stream_name
from cudadrv._ownership cimport (
    OWN_BORROWED, OWN_OK, OWN_REACH, OWN_READ, OWN_SHARED, OWN_WRITE, engine, own_borrow,
    own_borrows, own_conflict, own_obstacle,
)
from cudadrv._refusal cimport excluding_work, view_end, view_line
from cudadrv._region cimport Region
from cudadrv._site cimport place

from cudadrv._errors import ForkedError


cdef dict MODES = {OWN_READ: "read", OWN_WRITE: "write", OWN_SHARED: "shared", OWN_REACH: "use"}
cdef enum:
    MOST_LINES = 20


class Borrow(NamedTuple):
    """One GPU use of a buffer that is not known to be complete.

    ``mode`` is "read", "write" or "shared", or "use" where nobody knows which; ``stream`` is the
    stream's name as messages show it; ``operation`` and ``site`` say what queued it and where;
    ``start`` and ``stop`` are bytes of the buffer.
    """

    mode: str
    stream: str
    operation: str
    site: str
    start: int
    stop: int


cdef tuple borrows_of(Region region):
    """All of them."""
    listed, _, _ = _look(region, 0xffffffff)
    return tuple(listed)


cdef tuple _look(Region region, unsigned int most):
    """The borrows, at most so many; how many there are; in which ways the host can wait for them.
    """
    cdef own_borrow *found
    cdef size_t end = region.start + region.nbytes
    cdef unsigned int count
    cdef unsigned int i
    if region.memory is None or region.nbytes == 0:
        return [], 0, []
    refuse_if_forked()  # before any lock is taken
    count = own_borrows(engine, region.memory.state, region.start, end, NULL, 0)
    if count == 0:
        return [], 0, []
    most = min(count, most)
    found = <own_borrow *>malloc(most * sizeof(own_borrow))
    if found is NULL:
        raise MemoryError()
    try:
        count = own_borrows(engine, region.memory.state, region.start, end, found, most)
        borrows, ways = [], {}
        for i in range(min(count, most)):
            borrows.append(_borrow(&found[i], region.start))
            ways[_wait(found[i].kind)] = None
        return borrows, count, list(ways)
    finally:
        free(found)


cdef object _borrow(own_borrow *found, size_t start):
    return Borrow(
        MODES[found.epoch.mode],
        stream_name(found.number, found.kind), operation_name(found.epoch.operation),
        place(found.epoch.site), found.start - start, found.stop - start)


cdef str state_of(Region region):
    """For `repr`: ", read by Stream 2"."""
    try:
        borrows, count, _ = _look(region, 1)
    except ForkedError:
        return ""
    if not borrows:
        return ""
    first = borrows[0]
    doing = {"write": "written", "use": "used"}.get(first.mode, first.mode)
    more = f" and {count - 1} more" if count > 1 else ""
    return f", {doing} by {first.stream}{more}"


cdef str _obstacle(Region region, list ways):
    """What is in the way besides `borrows_of`, as a line, or ""; adds the way out."""
    cdef own_conflict conflict
    answer = own_obstacle(engine, region.memory.context.domain, region.memory.state, region.start,
                          region.start + region.nbytes, &conflict)
    if answer == OWN_OK:
        return ""
    if answer == OWN_BORROWED:
        ways.append(_wait(conflict.kind))
        return excluding_work(&conflict)
    ways.append(f"{view_end(&conflict)}.")
    return view_line(&conflict)


cdef str explain_region(Region region):
    if region.moved:
        return f"{region.describe()} was moved at {place(region.moved_at)}."
    if region.closed:
        return f"{region.describe()} is closed."
    ways = []
    obstacle = _obstacle(region, ways)
    borrows, count, waits = _look(region, MOST_LINES)
    if not borrows and not obstacle:
        return f"{region.describe()} is free: no GPU work that uses it may be unfinished."
    lines = [f"{region.describe()} is in use:"]
    if obstacle:
        lines.append(obstacle)
    for each in borrows:
        lines.append(f"  bytes {each.start}:{each.stop}: {each.mode} by {each.operation} on"
                     f" {each.stream}, queued at {each.site}")
    if count > len(borrows):
        lines.append(f"  and {count - len(borrows)} more; buffer.borrows lists all of them")
    for way in waits:
        if way not in ways:
            ways.append(way)
    return "\n".join(lines + ways)


cdef str _wait(int kind):
    return f"Release it with: {host_wait(kind)}."
