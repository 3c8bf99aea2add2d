"""Names: the words by which messages name operations and streams.

State that outlives a call: the names that kernels, other projects' operations and streams were
given (the GIL guards them).
"""

import keyword

from libc.stdint cimport uint16_t, uint64_t, uint8_t

from cudadrv._engine cimport (
    OWN_DEFAULT, OWN_ELSEWHERE, OWN_ENDED, OWN_INTERNAL, OWN_PER_THREAD, OWN_REACH, OWN_READ,
    OWN_WRITE,
)
from cudadrv._site cimport place

cdef extern from "Python.h":
    str PyUnicode_FromObject(object text)


cdef list _names_of_operations():
    names = []
    for number in range(CUDADRV_OPERATION_COUNT):
        names.append(cudadrv_operation_at(number).name.decode())
    return names


# The names of operations, by number. Names of launches and of other projects' operations are added
# when they are first used. A name is never removed, because borrows refer to it by its number.
cdef list NAMES = _names_of_operations()
cdef dict ADDED = {}        # the number of each name that was added to NAMES
cdef dict STREAMS = {}      # quoted names that programs gave to streams, by number of the stream
cdef enum:
    MOST_NAMES = 1 << 16    # the engine keeps the number of an operation in 16 bits
    MOST_STREAMS = 1 << 14  # how many names of streams are kept, closed streams included
cdef str AFTERWARDS = "event.synchronize() on an event recorded after it"


cdef str operation_name(uint16_t operation):
    return NAMES[operation]


cdef NodeKind node_kind(uint16_t operation):
    """Return the kind of node that captures make of an operation; NO_NODE if they refuse it."""
    if operation < CUDADRV_OPERATION_COUNT:
        return cudadrv_operation_at(operation).node
    return LAUNCH_NODE if is_launch(operation) else OTHER_NODE


cdef uint16_t launch_of(str kernel):
    """Return the number of the name "launch of KERNEL".

    Once MOST_NAMES names exist, every new kernel gets the number LAUNCH.
    """
    return _number_of(f"launch of {kernel}", LAUNCH)


cdef bint is_launch(uint16_t operation):
    return operation == LAUNCH \
        or operation not in GRAPHS and (<str>NAMES[operation]).startswith("launch of ")


cdef uint16_t custom_operation(str name):
    """Return the number of an operation of another project.

    Once MOST_NAMES names exist, every new name gets the number CUSTOM.
    """
    return _number_of(name, CUSTOM)


cdef uint16_t _number_of(str name, uint16_t otherwise):
    number = ADDED.get(name)
    if number is None:
        if len(NAMES) == MOST_NAMES:
            return otherwise
        number = len(NAMES)
        NAMES.append(name)
        ADDED[name] = number
    return number


# The parts of graphs whose launches may be unfinished, by the number of the launches' name.
cdef dict GRAPHS = {}
cdef list FREE = []         # numbers of such names that can be used again


# For each graph that holds memory, by its number: its name in messages, and how to end it.
cdef dict GRAPH_NAMES = {}
cdef uint64_t graph_count = 0


cdef uint64_t number_of_graph() noexcept:
    """Return a number for a new graph."""
    global graph_count
    graph_count += 1
    return graph_count


cdef int name_graph(uint64_t number, str name, str end) except -1:
    """Record the name that messages show for a graph that holds memory, and how to end it."""
    GRAPH_NAMES[number] = (name, end)
    return 0


cdef str graph_name(uint64_t number):
    return GRAPH_NAMES.get(number, ("a graph", ""))[0]


cdef str graph_end(uint64_t number):
    """Return the part of a message that says how to end a graph, so that it lets its memory go."""
    return GRAPH_NAMES.get(number, ("", "Close the graph first."))[1]


cdef void forget_graph(uint64_t number) noexcept:
    """Drop the name of a graph that holds no memory any more."""
    GRAPH_NAMES.pop(number, None)


cdef class Parts:
    """The operations of a graph, which messages about its launches name."""

    cdef str part_at(self, size_t memory, uint64_t start, uint64_t stop, int mode):
        """Return the name of an operation that uses the bytes in the mode, or None."""
        raise NotImplementedError


cdef uint16_t graph_launch(str graph, Parts parts):
    """Return a number for the launches of one executable graph. `give_back_name` takes it back."""
    name = f"launch of {graph}"
    if FREE:
        number = FREE.pop()
        NAMES[number] = name
    elif len(NAMES) == MOST_NAMES:
        return LAUNCH
    else:
        number = len(NAMES)
        NAMES.append(name)
    GRAPHS[number] = parts
    return number


cdef int give_back_name(uint16_t number) except -1:
    """Take back a number of `graph_launch`. No borrow refers to it any more."""
    if GRAPHS.pop(number, None) is not None:
        FREE.append(number)
    return 0


cdef Parts parts_of(uint16_t operation):
    """Return the parts of the graph that an operation launches, or None."""
    return GRAPHS.get(operation)


cdef str checked_name(object name):
    """Convert a ``name=`` argument to an exact str. Raises TypeError unless it is a str or None.

    A subclass of str could run its own code when a message is made.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return PyUnicode_FromObject(name)


cdef int name_stream(uint64_t number, str name) except -1:
    """Record the name that messages show for a stream.

    If there are then more than MOST_STREAMS names, the oldest ones are dropped.
    """
    # `repr` can run signal handlers. Reports of data races must not run signal handlers, which
    # `repr` can do; so the name is quoted here.
    STREAMS[number] = repr(name)
    while len(STREAMS) > MOST_STREAMS:
        STREAMS.pop(next(iter(STREAMS)), None)
    return 0


cdef str stream_name(uint64_t number, uint8_t kind):
    """Return a stream's name or number, as in ``repr(stream)``.

    No other stream ever gets the same number.
    """
    if kind == OWN_DEFAULT:
        return f"the legacy default stream ({number})"
    if kind == OWN_PER_THREAD:
        return f"per-thread default Stream {number}"
    if kind == OWN_INTERNAL:
        return "a stream of the library's own"
    if kind == OWN_ELSEWHERE:
        return "another process"
    name = f"Stream {STREAMS[number]}" if number in STREAMS else f"Stream {number}"
    return f"{name} (closed or dropped)" if kind == OWN_ENDED else name


cdef str stream_variable(uint64_t number, uint8_t kind):
    """Return a stream as programs may write it: by its name, or by its number as in stream_3."""
    if kind == OWN_DEFAULT:
        return "Stream.legacy()"
    quoted = STREAMS.get(number)
    if quoted is None:
        return f"stream_{number}"
    name = quoted[1:-1]
    return name if name.isidentifier() and not keyword.iskeyword(name) else "stream"


cdef str host_wait(uint64_t number, uint8_t kind):
    """Return the part of a message that says how the host can wait for the work of a stream."""
    if kind == OWN_INTERNAL:
        return "context.synchronize() or device.synchronize()"
    if kind == OWN_ENDED:
        return "token.wait(), context.synchronize() or device.synchronize()"
    if kind == OWN_PER_THREAD:
        return f"stream.synchronize() in the thread of that stream, {AFTERWARDS}, or" \
               " context.synchronize()"
    return f"{stream_variable(number, kind)}.synchronize() or token.wait()"


cdef str doing(const own_conflict *conflict):
    """Return what the conflicting operation does with the memory, such as "is being read"."""
    mode = conflict.epoch.mode
    return "is being read" if mode == OWN_READ else "is being written" if mode == OWN_WRITE \
        else "may be in use" if mode == OWN_REACH else "is being used"


cdef str work_text(const own_conflict *conflict):
    """Return the conflicting operation, its stream, and the line that queued it."""
    parts = parts_of(conflict.epoch.operation)
    part = None if parts is None or conflict.excluded else parts.part_at(
        <size_t>conflict.memory, conflict.first, conflict.upto, conflict.epoch.mode)
    if part is not None:
        return f"{part} on {stream_name(conflict.number, conflict.kind)}," \
               f" launched at {place(conflict.epoch.site)}"
    return f"{operation_name(conflict.epoch.operation)} on" \
           f" {stream_name(conflict.number, conflict.kind)}," \
           f" queued at {place(conflict.epoch.site)}"
