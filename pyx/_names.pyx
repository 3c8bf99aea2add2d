"""Words for operations and streams in messages."""

from libc.stdint cimport uint16_t, uint64_t, uint8_t

from cudadrv._engine cimport OWN_DEFAULT, OWN_ENDED, OWN_INTERNAL, OWN_PER_THREAD


# By number. Names of launches and of other projects' operations are added when they are first used,
# and stay: borrows refer to them.
cdef list NAMES = [
    "copy_from", "copy_to", "copy_from_async", "copy_to_async", "fill", "fill_async",
    "its allocation", "close", "lend", "a launch", "a custom operation",
]
cdef dict ADDED = {}        # numbers of the names that were added
cdef enum:
    MOST_NAMES = 1 << 16    # that the engine's books have room for
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


cdef str stream_name(uint64_t number, uint8_t kind):
    """As in ``repr(stream)``: a number that is never used again in this process."""
    if kind == OWN_DEFAULT:
        return f"the legacy default stream ({number})"
    if kind == OWN_PER_THREAD:
        return f"per-thread default Stream {number}"
    if kind == OWN_INTERNAL:
        return "a stream of the library's own"
    return f"Stream {number} (closed)" if kind == OWN_ENDED else f"Stream {number}"


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
