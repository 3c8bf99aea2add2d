"""Report: who uses a buffer, for `borrows` and `explain`, and for the software driver's races."""

from typing import NamedTuple

from cpython.pystate cimport PyThreadState
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cudadrv._driver cimport CUdeviceptr, bind_driver, cudadrv_table, words
from cudadrv._errors cimport refuse_if_forked
from cudadrv._memory cimport label_at
from cudadrv._operation_names cimport host_wait, operation_name, stream_name
from cudadrv._ownership cimport (
    OWN_BORROWED, OWN_OK, OWN_REACH, OWN_READ, OWN_SHARED, OWN_WRITE, engine, own_borrow,
    own_borrows, own_conflict, own_current, own_obstacle, own_suspect,
)
from cudadrv._refusal cimport excluding_work, view_end, view_line
from cudadrv._region cimport Region
from cudadrv._site cimport place

from cudadrv._errors import ForkedError


cdef extern from "Python.h":
    PyThreadState *PyGILState_GetThisThreadState() noexcept nogil
    bint PyGC_Disable() noexcept
    bint PyGC_Enable() noexcept
    void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **traceback) noexcept
    void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback) noexcept
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


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


# ---- what the software driver asks, for its reports of data races ----
#
# `_operation` is called inside of the driver. The other two are called at the end of a driver call,
# by the thread that made it. That thread may hold issue locks of ours: so nothing here may run
# Python code, and no garbage collector may run destructors.

cdef enum:
    ASK_ANOTHER_THREAD = -1


cdef int _operation(unsigned long long tag, unsigned long long *label) noexcept nogil:
    """Two numbers for the operation that is being handed over on a stream of ours."""
    cdef own_suspect current
    if not own_current(engine, tag, &current):
        return False
    label[0] = <uint64_t>current.operation.site << 32 \
        | <uint64_t>current.operation.operation << 8 | current.kind
    label[1] = current.number
    return True


cdef int _describe_operation(
    const unsigned long long *label, char *text, int size
) noexcept nogil:
    return _describe(label, 0, text, size)


cdef int _describe_memory(unsigned long long address, char *text, int size) noexcept nogil:
    return _describe(NULL, address, text, size)


cdef int _describe(
    const unsigned long long *label, CUdeviceptr address, char *text, int size
) noexcept nogil:
    cdef int length
    if cudadrv_table.ending:
        return 0
    if PyGILState_GetThisThreadState() is NULL:
        return ASK_ANOTHER_THREAD
    with gil:
        length = _write_words(label, address, text, size)
    return length


cdef int _write_words(
    const unsigned long long *label, CUdeviceptr address, char *text, int size
) noexcept:
    cdef PyObject *error = NULL
    cdef PyObject *value = NULL
    cdef PyObject *traceback = NULL
    cdef bint collecting = PyGC_Disable()
    cdef const char *encoded
    cdef Py_ssize_t length = 0
    PyErr_Fetch(&error, &value, &traceback)  # the call may be a destructor's
    try:
        words_found = label_at(address) if label is NULL else (
            f"{operation_name((label[0] >> 8) & 0xffff)} on"
            f" {stream_name(label[1], label[0] & 0xff)}, queued at {place(label[0] >> 32)}")
        if words_found is not None:
            encoded = PyUnicode_AsUTF8AndSize(words_found, &length)
            length = min(length, size)
            memcpy(text, encoded, length)
    except Exception:
        length = 0
    PyErr_Restore(error, value, traceback)
    if collecting:
        PyGC_Enable()
    return length


words.operation = _operation
words.describe_operation = _describe_operation
words.describe_memory = _describe_memory
bind_driver(&cudadrv_table)
