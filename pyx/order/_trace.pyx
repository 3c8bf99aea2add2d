"""Trace: what cudadrv does, written to a file for Perfetto.

The records and the file are plain C (`include/cudadrv/trace.h`, `trace_file.h`, `trace_calls.h`).
This module begins and ends a trace, and writes the names of lines, operations, streams and memory,
which need the GIL, before the records that use them. `_tracing` has what programs call.

While no trace is written, operations and driver calls run no code for traces: a trace takes all
operations off the fast path (`cudadrv_table.slowly`), and exchanges the table of driver functions.

State that outlives a call: the trace that is being written (`trace_file.h`); the names it knows of
operations, and the numbers of memory (the GIL guards them).
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from cudadrv._driver cimport likely, missing_entry
from cudadrv._engine cimport engine, own_listen, own_memory
from cudadrv._errors cimport report_text, tell_refusals_to
from cudadrv._names cimport operation_name, stream_name
from cudadrv._site cimport here, place

cdef extern from "cudadrv/trace_calls.h" nogil:
    ctypedef struct trace_file:
        int on
        uint64_t session
    trace_file trace_it
    int TRACE_FUNCTIONS
    const char *const *trace_names_of_functions
    int trace_begin(
        int fd, const char *process, const char *const *functions, size_t count)
    int trace_end()
    void trace_flush_now()
    void trace_exchange_functions(const void *missing)
    void trace_restore_functions()
    void trace_runs(bint on)
    void trace_name_operation(uint16_t operation, const char *name)
    bint trace_has_site(uint32_t site)
    void trace_name_site(uint32_t site, const char *line)
    void trace_name_stream(uint64_t number, uint64_t handle, const char *name)
    void trace_name_memory(uint64_t number, const char *name)
    bint trace_has_thread()
    void trace_name_thread(const char *name)
    void trace_refusal(const char *name, const char *text, uint32_t site)
    void trace_known(uint32_t slot, uint64_t seq)
    void trace_memory(uint64_t live, uint64_t kept)
    void trace_line(uint32_t site)
    void trace_watch_forks()


# ---- names ----

cdef enum:
    MOST_NAMES = 1 << 16    # see _names.pyx
cdef void *_shown[MOST_NAMES]   # the names that the trace knows, by number of the operation
cdef list _kept_names = []      # references to these names
cdef object _name_of_thread = None


cdef int _name_site(uint32_t site) except -1:
    if site and not trace_has_site(site):
        trace_name_site(site, place(site).encode())
    return 0


cdef int _name_stream(own_stream *stream, size_t raw) except -1:
    if stream.traced != trace_it.session:
        stream.traced = trace_it.session
        trace_name_stream(stream.number, raw, stream_name(stream.number, stream.kind).encode())
    return 0


cdef int _name_this_thread() except -1:
    if not trace_has_thread():
        trace_name_thread(_name_of_thread().encode())
    return 0


cdef int _name(const own_request *request, const own_stream *stream, size_t raw) except -1:
    cdef str name = operation_name(request.operation)
    if _shown[request.operation] != <void *>name:
        _kept_names.append(name)
        trace_name_operation(request.operation, name.encode())
        _shown[request.operation] = <void *>name
    _name_site(request.site)
    _name_stream(<own_stream *>stream, raw)
    return _name_this_thread()


cdef void _name_request(const own_request *request, const own_stream *stream, size_t raw) noexcept:
    """Write the names that the record of an operation will use, if the trace does not know them."""
    cdef str name = operation_name(request.operation)
    if likely(_shown[request.operation] == <void *>name) \
            and trace_has_site(request.site) and stream.traced == trace_it.session \
            and trace_has_thread():
        return
    try:
        _name(request, stream, raw)
    except Exception as error:  # such as no memory: the trace then has no name for it
        report_text(f"cudadrv: a name is missing in the trace: {error!r}")


cdef void _note_line(const own_stream *stream, size_t raw) noexcept:
    cdef uint32_t site = here()
    if likely(trace_has_site(site)) and trace_has_thread() \
            and (stream is NULL or stream.traced == trace_it.session):
        trace_line(site)
        return
    try:
        _name_site(site)
        if stream is not NULL:
            _name_stream(<own_stream *>stream, raw)
        _name_this_thread()
    except Exception as error:
        report_text(f"cudadrv: a name is missing in the trace: {error!r}")
    trace_line(site)


# ---- memory ----

# For each kind of memory (what it is called, its size and its line), the numbers that no live
# memory has. Memory of the same kind gets them again: otherwise a loop that makes a buffer in each
# turn would make a track in each turn.
cdef dict _free_numbers = {}
cdef dict _kinds_of_memory = {}     # by number
cdef uint32_t _numbers = 0
cdef uint64_t _live = 0             # bytes of live buffers


cdef void _begin_memory(
    own_memory *state, void *label, size_t nbytes, uint32_t site, size_t kept
) noexcept:
    """Give live memory a number in the trace."""
    try:
        _number_memory(state, <str>label, nbytes, site)
        trace_memory(_live, kept)
    except Exception as error:
        report_text(f"cudadrv: memory is missing in the trace: {error!r}")


cdef int _number_memory(own_memory *state, str label, size_t nbytes, uint32_t site) except -1:
    global _numbers, _live
    cdef uint32_t number
    kind = label, nbytes, site
    numbers = _free_numbers.get(kind)
    if numbers:
        number = numbers.pop()
    else:
        _numbers += 1
        number = _numbers
        trace_name_memory(
            number, f"{label}, {nbytes} bytes, made at {place(site)}".encode())
    _kinds_of_memory[number] = kind
    state.traced = number
    _live += nbytes
    return 0


cdef void _end_memory(own_memory *state, size_t nbytes, size_t kept) noexcept:
    """Take back the number of memory that is no longer live."""
    global _live
    try:
        kind = _kinds_of_memory.pop(state.traced, None)
        if kind is not None:
            _free_numbers.setdefault(kind, []).append(state.traced)
            _live -= min(_live, nbytes)
            trace_memory(_live, kept)
    except Exception as error:
        report_text(f"cudadrv: memory is missing in the trace: {error!r}")
    state.traced = 0


trace_calls.name_request = _name_request
trace_calls.note_line = _note_line
trace_calls.begin_memory = _begin_memory
trace_calls.end_memory = _end_memory


# ---- refusals ----

cdef void _tell(object error) noexcept:
    try:
        _name_site(here())
        _name_this_thread()
        trace_refusal(type(error).__name__.encode(), str(error).encode(errors="replace"), here())
    except Exception as failure:
        report_text(f"cudadrv: a refusal is missing in the trace: {failure!r}")


# ---- begin and end ----

def begin(int fd, process not None, name_of_thread not None):
    """Begin a trace into an open file. Returns 0, or the errno of what failed.

    `name_of_thread` is a function that returns the name of the calling thread.
    """
    global _name_of_thread, _live
    cdef bytes name = process.encode()
    cdef int error
    trace_watch_forks()
    _name_of_thread = name_of_thread
    error = trace_begin(fd, name, trace_names_of_functions, TRACE_FUNCTIONS)
    if error:
        return error
    _kept_names.clear()
    memset(_shown, 0, sizeof(_shown))
    _free_numbers.clear()
    _kinds_of_memory.clear()
    _live = 0
    own_listen(engine, trace_known, engine.learned)
    tell_refusals_to(_tell)
    trace_exchange_functions(missing_entry())
    cudadrv_table.slowly |= CUDADRV_TRACES
    with nogil:
        trace_runs(True)
    return 0


def end():
    """End the trace. Returns 0, or the errno of the write that failed."""
    cdef int error
    cudadrv_table.slowly &= ~CUDADRV_TRACES
    trace_restore_functions()
    tell_refusals_to(NULL)
    own_listen(engine, NULL, engine.learned)
    with nogil:
        trace_runs(False)
        error = trace_end()
    return error


def flush():
    """Write what the trace has up to now."""
    with nogil:
        trace_flush_now()


def is_on():
    """Whether a trace is being written in this process."""
    return bool(trace_it.on)
