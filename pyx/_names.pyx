"""Words for operations and streams in messages."""

from libc.stdint cimport uint16_t, uint64_t, uint8_t

from cudadrv._engine cimport OWN_DEFAULT, OWN_ENDED, OWN_INTERNAL, OWN_PER_THREAD

cdef extern from "Python.h":
    str PyUnicode_FromObject(object text)


# By number. Names of launches and of other projects' operations are added when they are first used,
# and stay: borrows refer to them.
cdef list NAMES = [
    "copy_from", "copy_to", "copy_from_async", "copy_to_async", "fill", "fill_async",
    "its allocation", "close", "lend", "a launch", "a custom operation",
]
cdef dict ADDED = {}        # numbers of the names that were added
cdef dict STREAMS = {}      # names that users gave to streams, by number
cdef enum:
    MOST_NAMES = 1 << 16    # that the engine's books have room for
    MOST_STREAMS = 1 << 14  # that keep their name: messages name streams that are gone, too
cdef str AFTERWARDS = "event.synchronize() on an event recorded after it"


cdef str operation_name(uint16_t operation):
    return NAMES[operation]


cdef uint16_t launch_of(str kernel):
    """The number of "launch of ...". A program with ever new kernels ends up with "a launch"."""
    return _number_of(f"launch of {kernel}", LAUNCH)


cdef bint is_launch(uint16_t operation):
    return operation == LAUNCH or (<str>NAMES[operation]).startswith("launch of ")


cdef uint16_t custom_operation(str name):
    """The number of an operation of another project.

    Once MOST_NAMES names exist, every new one gets the number CUSTOM.
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


cdef str checked_name(object name):
    """A ``name=`` argument as a plain str, or None: no class of the user's may run in messages."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return PyUnicode_FromObject(name)


cdef int name_stream(uint64_t number, str name) except -1:
    """Let messages name a stream so. With ever new ones, the oldest go by their numbers again."""
    STREAMS[number] = name
    while len(STREAMS) > MOST_STREAMS:
        STREAMS.pop(next(iter(STREAMS)), None)
    return 0


cdef str stream_name(uint64_t number, uint8_t kind):
    """As in ``repr(stream)``: its name, or a number that is never used again in this process."""
    if kind == OWN_DEFAULT:
        return f"the legacy default stream ({number})"
    if kind == OWN_PER_THREAD:
        return f"per-thread default Stream {number}"
    if kind == OWN_INTERNAL:
        return "a stream of the library's own"
    name = f"Stream {STREAMS[number]!r}" if number in STREAMS else f"Stream {number}"
    return f"{name} (closed)" if kind == OWN_ENDED else name


cdef str host_wait(uint8_t kind):
    """How the host can wait for the work of a stream."""
    if kind == OWN_INTERNAL:
        return "context.synchronize() or device.synchronize()"
    if kind == OWN_ENDED:
        return "token.wait(), context.synchronize() or device.synchronize()"
    if kind == OWN_PER_THREAD:
        return f"stream.synchronize() in the thread of that stream, {AFTERWARDS}, or" \
               " context.synchronize()"
    return f"stream.synchronize(), token.wait(), or {AFTERWARDS}"
