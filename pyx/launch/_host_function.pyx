"""Functions of the program that streams call: `Stream.call`.

A thread of the driver says that a stream has come to the call, and a thread of this module runs the
function (host_functions.h). The stream goes on when that thread has written a number to a word in
page-locked memory.

State that outlives a call: the words of each context, and the calls in flight (a lock in
host_functions.h); the function that is running, and the functions that have failed (the GIL guards
them).
"""

import atexit
from functools import partial

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t

from cudadrv._arguments cimport Access, Room, new_room, region_of
from cudadrv._buffers cimport HostBuffer, HostView, end_view_of_function, view_for_function
from cudadrv._device cimport (
    Context, FunctionHooks, call_functions_with, contexts, count_failed_functions,
)
from cudadrv._driver cimport (
    CUDADRV_FUNCTION_RUNS, CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_WAIT_VALUE_GEQ, CUdeviceptr, CUhostFn, CUresult, CUstream, CUstreamCaptureMode,
    cuLaunchHostFunc, cuStreamWaitValue64, cuThreadExchangeStreamCaptureMode,
    cudadrv_clear_attention, cudadrv_set_attention, cudadrv_table, in_cuMemHostAlloc, this_thread,
)
from cudadrv._engine cimport OWN_READ, OWN_WRITE, engine, own_access, own_known
from cudadrv._errors cimport report_text
from cudadrv._memory_kinds cimport LOCKED
from cudadrv._names cimport CALL
from cudadrv._operation cimport Operation, prepare
from cudadrv._region cimport (
    Region, borrow, check_region, is_region, overlap, pointer_of, queue, uncounted,
)
from cudadrv._release cimport release_later
from cudadrv._site cimport place
from cudadrv._stream cimport Stream, check_stream
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._errors import BufferExportedError, HostFunctionError

cdef extern from "cudadrv/host_functions.h" nogil:
    ctypedef struct hf_slot:
        uint64_t *word
        uint64_t number
        void *call
        bint blocks
    ctypedef struct hf_chunk:
        hf_chunk *more
        uint32_t count
        hf_slot *slots
    struct hf_state "":
        bint stays
    hf_state hf
    hf_chunk *hf_make_chunk(uint64_t *words, uint32_t count)
    bint hf_free_chunk(hf_chunk *chunk)
    hf_slot *hf_use(hf_chunk *chunk, bint blocks)
    void hf_reached(void *slot)
    void hf_arm(hf_slot *slot)
    void hf_give_up(hf_slot *slot, bint queued)
    void hf_finish(hf_slot *slot)
    void hf_abandon(hf_chunk *chunk)
    hf_slot *hf_take(bint waits)
    void hf_attach(bint attached)
    bint hf_start(void (*serve)(hf_slot *slot) noexcept)
    void hf_stay_attached()
    void hf_end()

cdef enum:
    WORDS = 512         # of a block of page-locked memory: it fills a page
    MOST_FAILED = 64    # how many exceptions are kept until somebody waits
    RETURNS_AT_ONCE = 0x20 | 0x80 | 0x200   # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


# ---- the words that streams wait for ----

@cython.final
@cython.no_gc_clear
cdef class Words:
    """The page-locked words of a context, each with the slot of a call."""

    cdef Context context
    cdef hf_chunk *chunks
    cdef bint can_wait      # whether streams of the device can wait for 64-bit words

    def __cinit__(self, Context context not None):
        self.context = context
        self.can_wait = context.device.attribute_value(
            CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)

    def __dealloc__(self):
        while self.chunks is not NULL and _free_first_chunk(self):
            pass

    cdef void drop_unused(self) noexcept:
        """Free the blocks of memory that no call uses, except the oldest one."""
        while self.chunks is not NULL and self.chunks.more is not NULL \
                and _free_first_chunk(self):
            pass


cdef bint _free_first_chunk(Words words) noexcept:
    """Free the newest block of memory, if no call uses it. Streams may still look at its words.

    The memory of a lost context is left to the driver.
    """
    cdef hf_chunk *chunk = words.chunks
    cdef hf_chunk *more = chunk.more
    cdef CUdeviceptr memory = <size_t>chunk.slots[0].word
    if words.context.lost or not hf_free_chunk(chunk):
        return False
    words.chunks = more
    release_later(LOCKED, memory, NULL, words.context, None)
    return True


cdef Words _words_of(Context context):
    words = context.defaults.get("words")
    if words is None:
        words = context.defaults.setdefault("words", Words(context))
    return words


def warm_up(Context context not None):
    """Allocate the words of a context, which keeps them."""
    cdef Words words = _words_of(context)
    if words.chunks is NULL:
        _add_chunk(words)


cdef hf_slot *_take_slot(Words words) except NULL:
    """Take a free slot, of a new block of memory if there is none."""
    cdef bint blocks = not words.can_wait
    cdef hf_slot *slot = NULL
    cdef hf_chunk *chunk
    if cudadrv_table.repeats is not NULL:
        with nogil:
            blocks |= cudadrv_table.repeats()
    if not hf_start(_serve):
        raise MemoryError("there is no thread to be had for the functions that streams call")
    if blocks and not hf.stays:
        with nogil:
            hf_stay_attached()
    while slot is NULL:
        chunk = words.chunks
        while chunk is not NULL and slot is NULL:
            slot = hf_use(chunk, blocks)
            chunk = chunk.more
        if slot is NULL:
            _add_chunk(words)
    return slot


cdef int _add_chunk(Words words) except -1:
    cdef CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED
    cdef void *memory = NULL
    cdef hf_chunk *chunk
    cdef CUresult status
    with nogil:
        cuThreadExchangeStreamCaptureMode(&mode)
        status = in_cuMemHostAlloc(
            words.context.raw, &memory, WORDS * sizeof(uint64_t),
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)
        cuThreadExchangeStreamCaptureMode(&mode)
    words.context.check(status)
    chunk = hf_make_chunk(<uint64_t *>memory, WORDS)
    if chunk is NULL:
        release_later(LOCKED, <CUdeviceptr><size_t>memory, NULL, words.context, None)
        raise MemoryError()
    chunk.more, words.chunks = words.chunks, chunk
    return 0


# ---- the call of a function ----

@cython.final
cdef class Call:
    """A function that a stream calls. A slot refers to it until the function runs."""

    cdef object function
    cdef list buffers       # the arguments
    cdef list modes         # how the function uses each
    cdef list addresses     # where each was when the call was queued
    cdef str name           # of the function
    cdef str stream         # the name of the stream in messages
    cdef uint32_t site      # the line that queued the call
    cdef uint32_t slot      # the epoch of the operation
    cdef uint64_t seq
    cdef object failure     # the exception of the function
    cdef Words words

    cdef str called(self):
        return f"{self.name}, which {self.stream} called (queued at {place(self.site)})"

    cdef int run(self, bint blocks) except -1:
        """Run the function. Its exception is kept for the next wait.

        `blocks` is true if a thread of the driver waits for it.
        """
        cdef HostView view
        cdef list views = []
        cdef list arrays = []
        cdef list kept = []
        try:
            for buffer, mode, first in zip(self.buffers, self.modes, self.addresses):
                view = view_for_function(buffer, mode == OWN_READ, first)
                view.site = self.site
                views.append(view)
                arrays.append(view.array)
                if blocks and cudadrv_table.uses is not NULL:
                    _say_use(first, view.buffer.nbytes, mode != OWN_READ)
            arguments = tuple(arrays)
            arrays = None
            self._run(arguments)
        except BaseException as error:
            self.failure = error
        arrays = arguments = None
        traceback = None if self.failure is None else self.failure.__traceback__
        for i, view in enumerate(views):
            text = end_view_of_function(view, traceback, f"array {i} of {self.called()},")
            if text is not None:
                kept.append(text)
        self.function = self.buffers = None
        if self.failure is not None:
            self.failure.add_note(f"cudadrv: in {self.called()}")
            for text in kept:
                self.failure.add_note(f"cudadrv: {text}")
        elif kept:
            self.failure = BufferExportedError("\n".join(kept))
        return 0

    cdef int _run(self, tuple arguments) except -1:
        global _running, _thread
        _running, _thread = self, this_thread()
        cudadrv_set_attention(CUDADRV_FUNCTION_RUNS)
        try:
            self.function(*arguments)
        finally:
            cudadrv_clear_attention(CUDADRV_FUNCTION_RUNS)
            _running = None
        return 0


cdef void _say_use(CUdeviceptr first, size_t nbytes, bint writes) noexcept:
    """Say which bytes a function uses, so that other orders of its work can be explored."""
    with nogil:
        cudadrv_table.uses(first, nbytes, writes)


cdef Call _running = None       # the call whose function is running
cdef unsigned long _thread = 0  # the thread that runs it
cdef list _failed = []          # calls whose exceptions nobody has got yet, the oldest first


cdef struct Queued:
    hf_slot *slot
    bint queued     # whether the driver has accepted the first of the two calls


cdef CUresult _queue_call(void *arguments, CUstream stream, bint *queued) noexcept nogil:
    cdef Queued *call = <Queued *>arguments
    cdef CUresult status = cuLaunchHostFunc(stream, <CUhostFn>hf_reached, call.slot)
    if status == CUDA_SUCCESS:
        queued[0] = call.queued = True
        if not call.slot.blocks:
            status = cuStreamWaitValue64(
                stream, <CUdeviceptr><size_t>call.slot.word, call.slot.number,
                CU_STREAM_WAIT_VALUE_GEQ)
    return status


def call_function(Stream stream not None, function, tuple buffers not None):
    """See `Stream.call`."""
    cdef Call call
    _check_function(function)
    call = Call.__new__(Call)
    call.function, call.name = function, _name_of(function)
    _use_buffers(call, buffers)
    check_stream(stream)
    if stream.capture is not NULL:
        stream.refuse_captured()
    call.stream, call.words = stream.called(), _words_of(stream.context)
    return _queue(call, stream)


cdef Token _queue(Call call, Stream stream):
    cdef Operation operation
    cdef Queued queued
    cdef Py_ssize_t i
    cdef list uses = []
    cdef bint issued = False
    cdef Py_ssize_t count = len(call.buffers)
    cdef Room room = new_room((count + 1) * sizeof(own_access))
    cdef own_access *accesses = <own_access *>room.start
    cdef Token token = new_token(stream, _in_mode(call, OWN_READ), _in_mode(call, OWN_WRITE))
    for i in range(count):
        borrow(<Region>call.buffers[i], &accesses[i], call.modes[i])
        # If the stream is the first user, this chooses the memory.
        call.addresses.append(pointer_of(<Region>call.buffers[i]))
        uses.append(uncounted(<Region>call.buffers[i]))
    queued.slot, queued.queued = _take_slot(call.words), False
    prepare(&operation, CALL, accesses, <int>count, _queue_call, &queued)
    try:
        queue(&operation, stream, call.buffers)
        issued = True
    finally:
        if not issued:
            hf_give_up(queued.slot, queued.queued)
    call.slot, call.seq = operation.request.issued.slot, operation.request.issued.seq
    call.site = operation.request.site
    call.buffers = uses     # a part that the program drops now ends now
    stand_for(token, &operation)
    Py_INCREF(call)
    queued.slot.call = <void *>call
    hf_arm(queued.slot)
    return token


cdef tuple _in_mode(Call call, int wanted):
    found = []
    for buffer, mode in zip(call.buffers, call.modes):
        if mode == wanted:
            found.append(buffer)
    return tuple(found)


cdef int _check_function(object function) except -1:
    code = getattr(function, "__code__", None)
    if not callable(function):
        raise TypeError(f"function must be callable, and is {type(function).__name__}")
    if code is not None and code.co_flags & RETURNS_AT_ONCE:
        raise TypeError(f"{_name_of(function)} is a coroutine or generator function: calling it"
                        " would only make an object, and run nothing")
    return 0


cdef str _name_of(object function):
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__name__


cdef int _use_buffers(Call call, tuple buffers) except -1:
    """Set the buffers of a call, and how it uses them."""
    cdef Region region
    call.buffers, call.modes, call.addresses = [], [], []
    for i, given in enumerate(buffers):
        found = region_of(given) if type(given) is Access or is_region(given) else None
        if not isinstance(found, HostBuffer):
            _refuse_argument(i, given if found is None else found)
        region = found
        check_region(region)
        if region.memory.state.managed:
            _refuse_excluded(i, region)
        call.buffers.append(region)
        call.modes.append((<Access>given).mode if type(given) is Access else OWN_WRITE)
    for given in buffers:
        if type(given) is Access and (<Access>given).mode == OWN_WRITE:
            _refuse_reads_of(region_of(given), call)
    return 0


cdef int _refuse_argument(Py_ssize_t index, object given) except -1:
    if is_region(given):
        raise TypeError(
            f"argument {index} of the function is {(<Region>given).describe()}, and the host cannot"
            " read the memory of a device: copy it to a LockedBuffer on the stream, and pass that")
    raise TypeError(
        f"argument {index} of the function is {type(given).__name__}, and must be a LockedBuffer or"
        " UnifiedBuffer, bare or in cudadrv.read. The function itself can refer to other objects:"
        " stream.call(functools.partial(function, thing), buffer)")


cdef int _refuse_excluded(Py_ssize_t index, Region region) except -1:
    """Refuse managed memory where unfinished work of a device keeps the host from it."""
    cdef Context context
    for context in contexts():
        if context.domain.host_excluded:
            raise ValueError(
                f"argument {index} of the function is {region.describe()}, and the host cannot use"
                f" managed memory while {context.device!r} has unfinished work"
                " (concurrent_managed_access is 0): copy it to a LockedBuffer on the stream, and"
                " pass that")
    return 0


cdef int _refuse_reads_of(Region written, Call call) except -1:
    cdef Region region
    for region in _in_mode(call, OWN_READ):
        if overlap(region, written):
            raise ValueError(
                f"{region.describe()} is passed as cudadrv.read, and {written.describe()} as"
                " cudadrv.write, and they overlap: a function cannot both leave bytes unchanged and"
                " write them. If it works in place, pass the second buffer bare, without"
                " cudadrv.write")
    return 0


# ---- the thread that runs the functions ----

cdef void _serve(hf_slot *slot) noexcept with gil:
    """Run the function of a slot, which may be NULL, and those of the slots that come meanwhile."""
    cdef bint more = True
    hf_attach(True)
    while more:
        if slot is not NULL:
            _run_slot(slot)
        if cudadrv_table.forked:
            return
        with nogil:
            slot = hf_take(hf.stays)
        more = slot is not NULL or hf.stays
    hf_attach(False)


cdef void _run_slot(hf_slot *slot) noexcept:
    cdef Call call
    if slot.call is NULL:   # its context was lost
        return
    call = <Call>slot.call
    slot.call = NULL
    Py_DECREF(call)
    try:
        call.run(slot.blocks)
        if call.failure is not None and not cudadrv_table.forked:
            _keep_failure(call)
    except BaseException as error:
        report_text(f"{call.called()} could not be run: {error!r}")
    if not cudadrv_table.forked:
        hf_finish(slot)
        call.words.drop_unused()


cdef int _keep_failure(Call call) except -1:
    """Keep an exception until somebody waits. If there are many already, report the oldest one."""
    cdef Call oldest
    _failed.append(call)
    if len(_failed) > MOST_FAILED:
        oldest = _failed.pop(0)
        _report_failure(oldest)
    count_failed_functions(len(_failed))
    return 0


cdef int _report_failure(Call call) except -1:
    report_text(f"nobody has waited for {call.called()}, and it raised"
                f" {type(call.failure).__name__}: {call.failure}")
    return 0


# ---- what other modules need ----

cdef int _refuse_in_function() except -1:
    """Raise HostFunctionError if the caller is a function that a stream called."""
    if _running is None or this_thread() != _thread:
        return 0
    raise HostFunctionError(
        f"{_running.called()}, has called cudadrv. A function in a stream cannot queue work, wait,"
        " or allocate: another thread may hold what that needs while it waits for the function."
        " Use the arrays that the function gets; call the rest when the token is done")


cdef int _raise_known() except -1:
    """Raise the exceptions of the functions that are known to be complete, and forget them."""
    cdef Call call
    found, later = [], []
    for call in _failed:
        if own_known(engine, call.slot, call.seq):
            found.append(call.failure)
        else:
            later.append(call)
    if not found:
        return 0
    _failed[:] = later
    count_failed_functions(len(later))
    if len(found) == 1:
        raise found[0]
    raise BaseExceptionGroup(f"{len(found)} functions that streams called have failed", found)


cdef int _drop_calls(Context context) except -1:
    """Drop the functions that the streams of a lost context would have called."""
    cdef Words words = context.defaults.get("words")
    cdef hf_chunk *chunk
    cdef uint32_t i
    cdef list dropped = []
    if words is None:
        return 0
    chunk = words.chunks
    while chunk is not NULL:
        hf_abandon(chunk)
        for i in range(chunk.count):
            if chunk.slots[i].call is not NULL:
                call = <Call>chunk.slots[i].call
                chunk.slots[i].call = NULL
                dropped.append(call)
                Py_DECREF(call)
        chunk = chunk.more
    return 0


def _end():
    """Let all streams go on at exit, and report the exceptions that nobody has got."""
    if cudadrv_table.forked:
        return
    with nogil:
        hf_end()
    for call in _failed:
        _report_failure(call)
    _failed.clear()


atexit.register(_end)
call_functions_with(FunctionHooks(_refuse_in_function, _raise_known, _drop_calls))
