"""Functions of the program that streams and graphs call: `Stream.call`.

A thread of the driver says that a stream has come to the call, and a thread of this module runs the
function (host_functions.h). The stream goes on when that thread has written a number to a word in
page-locked memory. In a graph, the thread of the driver waits until the function has returned.

State that outlives a call: the words of each context, and the calls in flight (a lock in
host_functions.h); the nodes of graphs whose calls are in flight, the function that is running, and
the functions that have failed (the GIL guards them).
"""

import atexit
from functools import partial

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t

from cudadrv._arguments cimport Access, Room, new_room, region_of
from cudadrv._buffers cimport (
    HostBuffer, HostView, end_view_of_function, lift_guard_of, view_for_function,
)
from cudadrv._capture cimport Capture
from cudadrv._device cimport (
    Context, FunctionHooks, call_functions_with, contexts, count_failed_functions,
)
from cudadrv._driver cimport (
    CUDADRV_FUNCTION_RUNS, CUDA_HOST_NODE_PARAMS, CUDA_SUCCESS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_WAIT_VALUE_GEQ, CUdeviceptr, CUhostFn, CUresult, CUstream, CUstreamCaptureMode,
    cuLaunchHostFunc, cuStreamWaitValue64, cuThreadExchangeStreamCaptureMode,
    cudadrv_clear_attention, cudadrv_set_attention, cudadrv_table, in_cuMemHostAlloc, this_thread,
)
from cudadrv._engine cimport OWN_READ, OWN_WRITE, engine, own_access, own_known
from cudadrv._errors cimport report_text
from cudadrv._memory_kinds cimport LOCKED
from cudadrv._names cimport CALL, CAPTURED_CALL
from cudadrv._operation cimport Operation, prepare
from cudadrv._region cimport (
    Region, borrow, check_region, is_region, of_present_size, overlap, pointer_of, queue,
    refuse_regions, uncounted,
)
from cudadrv._release cimport release_later
from cudadrv._site cimport place
from cudadrv._stream cimport Stream, check_stream
from cudadrv._token cimport Token, new_token, stand_for

from cudadrv._errors import BufferExportedError, CaptureError, HostFunctionError

cdef extern from "cudadrv/host_functions.h" nogil:
    ctypedef struct hf_slot:
        hf_chunk *home
        uint64_t *word
        uint64_t number
        void *call
        bint blocks
    ctypedef struct hf_chunk:
        hf_chunk *more
        uint32_t count
        hf_slot *slots
    ctypedef struct hf_node:
        uint64_t done
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
    hf_node *hf_make_node(void *call, uint64_t launches)
    void hf_node_reached(void *node)
    bint hf_is_idle(hf_node *node)
    void hf_end_node(hf_node *node, bint stays)
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
    _start_thread()
    if blocks:
        _stay_attached()
    while slot is NULL:
        chunk = words.chunks
        while chunk is not NULL and slot is NULL:
            slot = hf_use(chunk, blocks)
            chunk = chunk.more
        if slot is NULL:
            _add_chunk(words)
    return slot


cdef int _start_thread() except -1:
    if not hf_start(_serve):
        raise MemoryError("there is no thread to be had for the functions that streams call")
    return 0


cdef void _stay_attached() noexcept:
    """Let other threads release the GIL in all calls of the driver, which may wait for functions.
    """
    if not hf.stays:
        with nogil:
            hf_stay_attached()


def keep_thread():
    """Let the thread that runs functions stay a thread of Python, while no function runs, too.

    For tests in which allocations fail: Python 3.11 crashes if it cannot make a thread's state.
    """
    _start_thread()
    _stay_attached()


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
@cython.no_gc_clear     # a function may run although nothing but a graph in flight refers to it
cdef class Call:
    """A function, and what it gets when a stream or a graph calls it."""

    cdef str called(self):
        return f"{self.name}, which {self.caller} called ({self.done} at {place(self.site)})"

    cdef object run(self, bint blocks):
        """Run the function. Returns what it has raised, for the next wait; else None.

        `blocks` is true if a thread of the driver waits for it.
        """
        cdef HostView view
        cdef list views = []
        cdef list arrays = []
        cdef list kept = []
        failure = None
        try:
            for buffer, mode, first in zip(self.buffers, self.modes, self.addresses):
                view = view_for_function(buffer, mode == OWN_READ, first)
                view.site = self.site
                views.append(view)
                lift_guard_of(view)
                arrays.append(view.array)
                if blocks and cudadrv_table.uses is not NULL:
                    _say_use(first, view.buffer.nbytes, mode != OWN_READ)
            arguments = tuple(arrays)
            arrays = None
            self.run_now(arguments)
        except BaseException as error:
            failure = error
        arrays = arguments = None
        traceback = None if failure is None else failure.__traceback__
        for i, view in enumerate(views):
            text = end_view_of_function(view, traceback, f"array {i} of {self.called()},")
            if text is not None:
                kept.append(text)
        if failure is not None:
            failure.add_note(f"cudadrv: in {self.called()}")
            for text in kept:
                failure.add_note(f"cudadrv: {text}")
        elif kept:
            failure = BufferExportedError("\n".join(kept))
        return failure

    cdef int run_now(self, tuple arguments) except -1:
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
cdef list _failed = []          # Failures whose exceptions nobody has got yet, the oldest first


cdef Call new_call(object function, tuple buffers):
    """Check a function and its buffers. The caller sets the other fields of the call."""
    cdef Call call = Call.__new__(Call)
    _check_function(function)
    call.function, call.name = function, _name_of(function)
    _use_buffers(call, buffers)
    return call


cdef int borrow_of_call(Call call, own_access *accesses) except -1:
    """Fill in the accesses of a call, and find where its buffers are."""
    cdef Py_ssize_t i
    cdef list addresses = []
    for i in range(len(call.buffers)):
        borrow(<Region>call.buffers[i], &accesses[i], call.modes[i])
        # If the stream is the first user, this chooses the memory.
        addresses.append(pointer_of(<Region>call.buffers[i]))
    call.addresses = addresses
    return 0


cdef tuple described_of_call(Call call):
    """Return the names of the buffers of a call, in messages."""
    found = []
    for region in call.buffers:
        found.append((<Region>region).describe())
    return tuple(found)


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
    cdef Call call = new_call(function, buffers)
    check_stream(stream)
    if stream.capture is not NULL:
        return _capture(call, stream)
    call.caller, call.done, call.context = stream.called(), "queued", stream.context
    return _queue(call, stream)


cdef Token _queue(Call call, Stream stream):
    cdef Operation operation
    cdef Queued queued
    cdef list uses = []
    cdef bint issued = False
    cdef Py_ssize_t count = len(call.buffers)
    cdef Room room = new_room((count + 1) * sizeof(own_access))
    cdef own_access *accesses = <own_access *>room.start
    cdef Token token = new_token(stream, in_mode(call, OWN_READ), in_mode(call, OWN_WRITE))
    borrow_of_call(call, accesses)
    for region in call.buffers:
        uses.append(uncounted(<Region>region))
    queued.slot, queued.queued = _take_slot(_words_of(call.context)), False
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


cdef tuple in_mode(Call call, int wanted):
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
    for region in in_mode(call, OWN_READ):
        if overlap(region, written):
            raise ValueError(
                f"{region.describe()} is passed as cudadrv.read, and {written.describe()} as"
                " cudadrv.write, and they overlap: a function cannot both leave bytes unchanged and"
                " write them. If it works in place, pass the second buffer bare, without"
                " cudadrv.write")
    return 0


# ---- calls in graphs ----

cdef CUresult _capture_call(void *call, CUstream stream, bint *queued) noexcept nogil:
    """Capture a call. Each executable gives the node its NodeCall (`bind_calls` in _call_node)."""
    return cuLaunchHostFunc(stream, <CUhostFn>hf_node_reached, NULL)


cdef Token _capture(Call call, Stream stream):
    cdef Operation operation
    cdef Capture capture = <Capture>stream.capture
    cdef Py_ssize_t count = len(call.buffers)
    cdef Room room = new_room((count + 1) * sizeof(own_access))
    cdef Token token
    cdef int reason
    if capture.joined:
        raise CaptureError(
            f"{call.name} cannot be called in {capture.called()}: launches of another library's"
            " graph are unknown to cudadrv. Call it before or after such a launch")
    if capture.plan.outer is not NULL:
        refuse_in_body(call.name, capture.graph)
    call.caller, call.done, call.context = capture.graph, "captured", stream.context
    fix_sizes(call)
    token = new_token(stream, in_mode(call, OWN_READ), in_mode(call, OWN_WRITE))
    borrow_of_call(call, <own_access *>room.start)
    prepare(&operation, CAPTURED_CALL, <own_access *>room.start, <int>count, _capture_call, NULL)
    call.site = operation.request.site
    # Not `queue`: if the capture has just ended, the call must not go to the stream.
    reason = capture.issue(stream, &operation.request, _capture_call, NULL)
    if reason:
        refuse_regions(&operation, reason, stream, call.buffers, None)
    stand_for(token, &operation)
    capture.receiver.calls[token.asked] = call
    return token


cdef int fix_sizes(Call call) except -1:
    """Let a call of a graph keep its buffers in their present size."""
    cdef list found = []
    for region in call.buffers:
        found.append(of_present_size(<Region>region))
    call.buffers = found
    return 0


cdef int refuse_in_body(str name, str body) except -1:
    raise CaptureError(
        f"{name} cannot be called in {body}: the driver runs no functions of the host in bodies of"
        " conditional nodes. Call it before or after the conditional node")


@cython.final
@cython.no_gc_clear     # launches in flight need it
cdef class NodeCall:
    """The calls of one function by the launches of one executable graph."""

    def __dealloc__(self):
        if self.node is not NULL and not cudadrv_table.forked:
            hf_end_node(<hf_node *>self.node, self.call.context.lost)

    cdef void fill_in(self, CUDA_HOST_NODE_PARAMS *params) noexcept:
        params.fn, params.userData = <CUhostFn>hf_node_reached, self.node

    cdef bint is_idle(self) noexcept:
        """Whether all launches that call this function have done so."""
        cdef hf_node *node = <hf_node *>self.node
        if self.call.context.lost:
            return hf_is_idle(node)
        if self.last:   # later launches call another function
            return node.done == self.last
        return node.done == self.launches.count and self.launches.busy == 0

    cdef int settle(self) except -1:
        """Let the executable alone keep this object, unless launches in flight need it."""
        if self.is_idle():
            _in_flight.discard(self)
        return 0

    cdef int replace(self) except -1:
        """Note that later launches call another function."""
        self.last = self.launches.count
        if self.last == 0:  # the executable was never launched, and nothing has to be kept
            _in_flight.discard(self)
            return 0
        return self.settle()


# The NodeCalls of launches in flight. A graph and its functions may be garbage already.
cdef set _in_flight = set()


@cython.final
cdef class Launched:
    """A launch of an executable graph with functions."""

    cdef bint is_complete(self) noexcept:
        """Whether the host knows that the launch is complete."""
        return self.seq != 0 and own_known(engine, self.slot, self.seq)


@cython.final
cdef class Launches:
    """The launches of an executable graph with functions."""

    def __cinit__(self):
        self.calls, self.known = (), []

    cdef Launched begin(self):
        """Called before each launch. The caller fills in the result, and passes it to `end`."""
        cdef Launched launched = Launched.__new__(Launched)
        cdef NodeCall call
        while self.known and (<Launched>self.known[0]).is_complete():
            self.complete = max(self.complete, (<Launched>self.known.pop(0)).number)
        if cudadrv_table.repeats is not NULL:
            with nogil:
                repeats = cudadrv_table.repeats()
            if repeats:
                _stay_attached()
        self.known.append(launched)
        self.busy += 1
        try:
            for call in self.calls:
                _in_flight.add(call)
        except MemoryError:
            self.end(launched)
            raise
        return launched

    cdef int end(self, Launched launched) except -1:
        """Called after each launch, also after one that has failed. Needs no memory."""
        cdef NodeCall call
        self.busy -= 1
        if launched.number == 0:
            self.known.remove(launched)
        for call in self.calls:
            call.settle()
        return 0

    cdef NodeCall call_at(self, Py_ssize_t index):
        """Return the present NodeCall of a node."""
        cdef NodeCall call
        for call in self.calls:
            if call.index == index:
                return call
        return None

    cdef bint is_complete(self, uint64_t number) except -1:
        """Whether a launch is known to be complete."""
        cdef Launched launched
        for launched in self.known:
            if launched.number == number:
                return launched.is_complete()
        return number <= self.complete


cdef void no_call(CUDA_HOST_NODE_PARAMS *params) noexcept:
    """Describe a call of a graph that belongs to no executable yet, so it cannot run."""
    params.fn, params.userData = <CUhostFn>hf_node_reached, NULL


cdef NodeCall new_node_call(Call call, Launches launches, Py_ssize_t index):
    cdef NodeCall made = NodeCall.__new__(NodeCall)
    made.call, made.launches, made.index = call, launches, index
    made.node = hf_make_node(<void *>made, launches.count)
    if made.node is NULL:
        raise MemoryError()
    _start_thread()
    return made


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
    if slot.home is NULL:
        _run_node(slot)
        return
    if slot.call is NULL:   # its context was lost
        return
    call = <Call>slot.call
    slot.call = NULL
    Py_DECREF(call)
    _run_call(call, slot, None)
    call.function = call.buffers = None
    if not cudadrv_table.forked:
        hf_finish(slot)
        _words_of(call.context).drop_unused()


cdef void _run_node(hf_slot *slot) noexcept:
    cdef NodeCall node = <NodeCall>slot.call
    if not node.call.context.lost:
        _run_call(node.call, slot, node.launches)
    if not cudadrv_table.forked:
        hf_finish(slot)
        node.settle()


cdef void _run_call(Call call, hf_slot *slot, Launches launches) noexcept:
    """Run the function of a call, and keep its exception."""
    cdef Failure failure
    try:
        error = call.run(slot.blocks)
    except BaseException as raised:     # there was no memory for the arrays, for example
        error = raised
    try:
        if error is not None and not cudadrv_table.forked:
            failure = Failure.__new__(Failure)
            failure.error, failure.called = error, call.called()
            failure.slot, failure.seq = call.slot, call.seq
            failure.launches, failure.number = launches, slot.number
            _keep_failure(failure)
    except BaseException as lost:
        report_text(f"an exception of {call.called()} was lost: {lost!r}")


@cython.final
cdef class Failure:
    """An exception of a function that nobody has got yet."""

    cdef object error
    cdef str called
    cdef uint32_t slot      # the epoch of the call
    cdef uint64_t seq
    cdef Launches launches  # of a call in a graph; else None
    cdef uint64_t number    # the number of that launch

    cdef bint is_known(self) except -1:
        """Whether the host knows that the call is complete."""
        if self.launches is not None:
            return self.launches.is_complete(self.number)
        return own_known(engine, self.slot, self.seq)


cdef int _keep_failure(Failure failure) except -1:
    """Keep an exception until somebody waits. If there are many already, report the oldest one."""
    _failed.append(failure)
    if len(_failed) > MOST_FAILED:
        _report_failure(_failed.pop(0))
    count_failed_functions(len(_failed))
    return 0


cdef int _report_failure(Failure failure) except -1:
    report_text(f"nobody has waited for {failure.called}, and it raised"
                f" {type(failure.error).__name__}: {failure.error}")
    return 0


# ---- what other modules need ----

cdef bint _runs_here() noexcept:
    """Whether the caller is a function that a stream called."""
    return _running is not None and this_thread() == _thread


cdef int _refuse_in_function() except -1:
    """Raise HostFunctionError if the caller is a function that a stream called."""
    if not _runs_here():
        return 0
    raise HostFunctionError(
        f"{_running.called()}, has called cudadrv. A function in a stream cannot queue work, wait,"
        " or allocate: another thread may hold what that needs while it waits for the function."
        " Use the arrays that the function gets; call the rest when the token is done")


cdef int _raise_known() except -1:
    """Raise the exceptions of the functions that are known to be complete, and forget them."""
    cdef Failure failure
    found, later = [], []
    for failure in _failed:
        if failure.is_known():
            found.append(failure.error)
        else:
            later.append(failure)
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
    cdef NodeCall node
    for node in list(_in_flight):
        if node.call.context is context:
            node.settle()
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
    for failure in _failed:
        _report_failure(failure)
    _failed.clear()


atexit.register(_end)
call_functions_with(FunctionHooks(_runs_here, _refuse_in_function, _raise_known, _drop_calls))
