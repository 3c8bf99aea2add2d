"""The ownership engine without CUDA, to test the rules of ownership alone.

This module is built with the package (`setup.py build_ext --inplace`), but is not part of it.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from cudadrv._engine cimport (
    OWN_ATTACHED, OWN_ATTACHES, OWN_BLOCKING, OWN_BORROWED, OWN_CLOSES, OWN_CUT, OWN_DISCARDED,
    OWN_DISCARDS, OWN_EXPORTED, OWN_LEAVES, OWN_LEGACY, OWN_MEMORY_CLOSED, OWN_MOVES, OWN_MUST_WAIT,
    OWN_NON_BLOCKING, OWN_NO_MEMORY, OWN_NO_STREAM, OWN_OK, OWN_OPEN, OWN_REACH, OWN_READ,
    OWN_SHARED, OWN_SHARES, OWN_STAYS, OWN_STREAM_CLOSED, OWN_STRICT, OWN_UNCHECKED, OWN_UNUSUAL,
    OWN_USES, OWN_WAIT, OWN_WRITE, own_access, own_begin, own_borrow, own_borrows, own_bytes_leave,
    own_box, own_bytes, own_conflict, own_memory_return, own_memory_cut, own_memory_extend,
    own_discard, own_discarded, own_domain, own_domain_lose, own_domain_open, own_domain_snapshot,
    own_engine, own_engine_prepare, own_event, own_export, own_export_close, own_export_open,
    own_join_host, own_known, own_lend_open, own_memory, own_memory_clear, own_memory_free,
    own_meet, own_memory_inherit, own_memory_prepare, own_record, own_request, own_settle,
    own_snapshot, own_snapshot_drop, own_snapshot_take, own_stream,
    own_stream_close, own_stream_known, own_stream_open, own_stream_release, own_tag, own_undo,
    own_wait,
)

cdef extern from "cudadrv/ownership.h":
    bint own_usual_(const own_engine *engine, const own_request *request, own_access *access)


def meet(start, stop, other_start, other_stop):
    """Whether two ranges of bytes or boxes have bytes in common. A stop may be a BoxStop."""
    cdef own_box[2] boxes
    return own_meet(_bytes(start, stop, &boxes[0]), _bytes(other_start, other_stop, &boxes[1]))


cdef own_bytes _bytes(start, stop, own_box *box) except *:
    if not hasattr(stop, "box"):
        return own_bytes(start, stop, NULL)
    box.width, box.pitch, box.rows, box.slice, box.slices = stop.box
    return own_bytes(start, stop, box)


ORDERS = {"non_blocking": OWN_NON_BLOCKING, "blocking": OWN_BLOCKING, "legacy": OWN_LEGACY}
MODES = {"read": OWN_READ, "write": OWN_WRITE, "shared": OWN_SHARED, "reach": OWN_REACH}
POLICIES = {"strict": OWN_STRICT, "wait": OWN_WAIT, "unchecked": OWN_UNCHECKED}
ANSWERS = {
    OWN_OK: "ok", OWN_BORROWED: "borrowed", OWN_EXPORTED: "exported", OWN_MUST_WAIT: "must_wait",
    OWN_MEMORY_CLOSED: "memory_closed", OWN_STREAM_CLOSED: "stream_closed",
    OWN_DISCARDED: "discarded", OWN_ATTACHED: "attached", OWN_CUT: "cut",
}
EFFECTS = {
    None: OWN_STAYS, "uses": OWN_USES, "moves": OWN_MOVES, "attaches": OWN_ATTACHES,
    "discards": OWN_DISCARDS, "shares": OWN_SHARES, "closes": OWN_CLOSES, "leaves": OWN_LEAVES,
}
cdef enum:
    MOST_ACCESSES = 8


@cython.final
cdef class Engine:
    """An ownership engine, separate from the library's and from other objects of this class."""

    cdef own_engine engine

    def __cinit__(self):
        own_engine_prepare(&self.engine)

    @property
    def slots(self):
        """The number of stream slots. It must not grow without limit."""
        return self.engine.size


@cython.final
@cython.no_gc_clear
cdef class Domain:
    """A context of an `Engine`."""

    cdef readonly Engine engine
    cdef own_domain domain

    def __cinit__(self, Engine engine not None, bint host_excluded=False):
        self.engine = engine
        own_domain_open(&engine.engine, &self.domain, host_excluded)

    def lose(self):
        """Mark the context as lost: none of its work runs any more."""
        own_domain_lose(&self.engine.engine, &self.domain)

    def snapshot(self):
        """Return a snapshot of all work of the context, as for a synchronization."""
        cdef Snapshot snapshot = Snapshot.__new__(Snapshot, self.engine)
        if not own_domain_snapshot(&self.engine.engine, &self.domain, &snapshot.snapshot):
            raise MemoryError()
        return snapshot


@cython.final
@cython.no_gc_clear
cdef class StreamState:
    """A stream of a `Domain`: its operations, its waits, and what the host knows of both."""

    cdef readonly Domain domain
    cdef own_stream *stream

    def __cinit__(self, Domain domain not None, order="non_blocking"):
        self.domain = domain
        self.stream = own_stream_open(&domain.engine.engine, &domain.domain, ORDERS[order])
        if self.stream is NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.stream is not NULL:
            self.close()
            own_stream_release(&self.domain.engine.engine, self.stream)

    @property
    def slot(self):
        return self.stream.slot

    @property
    def known(self):
        """Whether the host knows that all work of the stream is complete."""
        return own_stream_known(&self.domain.engine.engine, self.stream)

    def close(self):
        if self.stream.state == OWN_OPEN:
            own_stream_close(&self.domain.engine.engine, self.stream)

    def snapshot(self, record=False):
        """Return a snapshot of the work so far. With `record`, an event is recorded for it."""
        cdef Snapshot snapshot = Snapshot.__new__(Snapshot, self.domain.engine)
        cdef own_event event
        if record:
            memset(&event, 0, sizeof(event))
            if not own_record(&self.domain.engine.engine, self.stream, &event):
                raise MemoryError()
            snapshot.snapshot = event.snapshot
        else:
            own_snapshot_take(&self.domain.engine.engine, self.stream, &snapshot.snapshot)
        return snapshot

    def wait(self, Snapshot snapshot not None):
        """Order all later work of the stream after the work of the snapshot."""
        if not own_wait(&self.domain.engine.engine, self.stream, &snapshot.snapshot):
            raise MemoryError()

    def issue(
        self, *accesses, policy="strict", driver_fails=False, site=0, effect=None,
        bint passive=False, bint returns=False, attach_to=None
    ):
        """Begin and settle an operation with these accesses: ``(memory, start, stop, mode)``.

        `effect` is a key of EFFECTS: what the operation does beside its accesses. With `passive`,
        the driver may have queued nothing. With `returns`, the operation is the end of a loan. An
        operation that "attaches" attaches memory to `attach_to`: a StreamState, "host", or None
        for all streams. The truth value of `driver_fails` is evaluated between begin and settle, in
        place of the driver call. Returns ``("ok", snapshot)``, or the reason of the refusal and the
        site of the conflicting use.
        """
        return self.begin(
            accesses, policy, driver_fails, site, None, effect, passive, returns, attach_to)

    def lend(self, *access, policy="strict", driver_fails=False, site=0):
        """Issue an operation with one access, and lend the bytes of the access to the stream.

        Returns ``("ok", view)``, or the same as `issue` if refused.
        """
        cdef View view = View.__new__(View)
        answer, what = self.begin(
            [access], policy, driver_fails, site, view, "uses", False, False, None)
        if answer == "ok":
            view.memory, view.borrower = access[0], self
            return "ok", view
        return answer, what

    cdef tuple begin(
        self, accesses, policy, driver_fails, site, View view, effect, bint passive, bint returns,
        attach_to
    ):
        cdef own_engine *engine = &self.domain.engine.engine
        cdef own_access borrowed[MOST_ACCESSES]
        cdef own_request request
        cdef Snapshot issued
        if len(accesses) > MOST_ACCESSES:
            raise ValueError(f"at most {MOST_ACCESSES} accesses, not {len(accesses)}")
        for i, (memory, start, stop, mode) in enumerate(accesses):
            fill_access(&borrowed[i], memory, start, stop, mode, policy)
            borrowed[i].effect = EFFECTS[effect]
        request.stream = self.stream
        request.accesses = borrowed
        request.count = <uint32_t>len(accesses)
        request.site = site
        request.operation = 0
        request.loan = NULL if view is None else &view.view
        request.returns = returns
        request.passive = passive
        request.attachment.site = site
        request.attachment.stream = tag_of(attach_to)
        # On odd sequence numbers, try the fast path of a program's only thread: tests cover both.
        answer = OWN_UNUSUAL
        if self.stream.seq % 2:
            answer = own_begin(engine, &request, NULL, False, True)
        alone = answer == OWN_OK
        if not alone:
            answer = own_begin(engine, &request, NULL, False, False)
        if answer == OWN_OK:
            try:
                # This is in place of the driver call: `__bool__` can call anything.
                failed = bool(driver_fails)
            except BaseException:
                own_undo(engine, &request)
                raise
            if failed:
                own_undo(engine, &request)
                return "driver_failed", None
            own_settle(engine, &request, NULL, alone)
            issued = Snapshot.__new__(Snapshot, self.domain.engine)
            issued.snapshot = request.issued
            return "ok", issued
        if answer == OWN_NO_MEMORY:
            raise MemoryError()
        return ANSWERS[answer], blamed(answer, &request.conflict)


cdef uint64_t tag_of(attach_to) except? 0:
    if attach_to is None:
        return 0
    return OWN_NO_STREAM if attach_to == "host" else own_tag((<StreamState>attach_to).stream)


cdef object blamed(int answer, own_conflict *conflict):
    if answer in (OWN_EXPORTED, OWN_DISCARDED, OWN_ATTACHED):
        return conflict.site
    if answer in (OWN_BORROWED, OWN_MUST_WAIT):
        return conflict.epoch.site
    return None


cdef int fill_access(
    own_access *access, MemoryState memory, start, stop, mode, policy
) except -1:
    """Fill in an access. `stop` may be a BoxStop (oracle.py)."""
    cdef own_box *box
    if not 0 <= start <= stop <= memory.memory.nbytes:
        raise ValueError(f"{start}:{stop} is not within {memory.memory.nbytes} bytes")
    access.memory = memory.memory
    access.start = start
    access.stop = stop
    access.mode = MODES[mode]
    access.policy = POLICIES[policy]
    access.effect = OWN_STAYS
    access.gone = &memory.gone
    access.boxed = hasattr(stop, "box")
    if access.boxed:
        box = &access.box
        box.width, box.pitch, box.rows, box.slice, box.slices = stop.box
    return 0


@cython.final
@cython.no_gc_clear
cdef class Snapshot:
    """The work that an event or a token represents."""

    cdef readonly Engine engine
    cdef own_snapshot snapshot

    def __cinit__(self, Engine engine not None):
        self.engine = engine
        self.snapshot.clock = NULL

    def __dealloc__(self):
        own_snapshot_drop(&self.engine.engine, &self.snapshot)

    def join_host(self):
        """Note that the host has seen the work complete."""
        own_join_host(&self.engine.engine, &self.snapshot)

    @property
    def known(self):
        """Whether the host knows that the last operation of the work is complete."""
        return own_known(&self.engine.engine, self.snapshot.slot, self.snapshot.seq)


@cython.final
@cython.no_gc_clear
cdef class MemoryState:
    """An allocation of some bytes."""

    cdef readonly Engine engine
    cdef own_memory *memory
    cdef uint8_t gone   # the flag of the buffer that the accesses of this memory belong to

    def __cinit__(self, Engine engine not None, uint64_t nbytes, bint managed=False):
        self.engine = engine
        self.memory = <own_memory *>malloc(sizeof(own_memory))
        if self.memory is NULL:
            raise MemoryError()
        own_memory_prepare(self.memory, nbytes)
        self.memory.managed = managed

    def __dealloc__(self):
        if self.memory is not NULL:
            own_memory_clear(self.memory)
            free(self.memory)

    @property
    def ranges(self):
        """The number of ranges into which the memory is cut."""
        return self.memory.count

    def is_usual(self, StreamState stream not None, mode="write"):
        """Whether an operation that uses all bytes can take the fast path."""
        cdef own_access access
        cdef own_request request
        fill_access(&access, self, 0, self.memory.nbytes, mode, "strict")
        request.stream, request.accesses, request.count = stream.stream, &access, 1
        return own_usual_(&self.engine.engine, &request, &access)

    def borrows(self, start=0, stop=None):
        """List the GPU uses that may be unfinished: tuples (slot, seq, mode, start, stop)."""
        cdef own_borrow found[64]
        cdef uint32_t i
        cdef uint64_t end = self.memory.nbytes if stop is None else stop
        count = own_borrows(
            &self.engine.engine, self.memory, own_bytes(start, end, NULL), found, 64)
        names = {value: name for name, value in MODES.items()}
        listed = []
        for i in range(min(count, 64)):
            listed.append((found[i].epoch.slot, found[i].epoch.seq, names[found[i].epoch.mode],
                           found[i].start, found[i].stop))
        return listed

    def discarded(self, start=0, stop=None):
        """Return (start, stop, site) of the first discard in these bytes, or None."""
        cdef own_discard found
        cdef uint64_t end = self.memory.nbytes if stop is None else stop
        if not own_discarded(
                &self.engine.engine, self.memory, own_bytes(start, end, NULL), &found):
            return None
        return found.start, found.stop, found.site

    def export(self, start, stop, mode, policy="strict", site=0, effect=None):
        """Borrow bytes for the host.

        Return ``("ok", view)``, or the reason of the refusal and the site of the conflicting use.
        """
        cdef own_access access
        cdef own_conflict conflict
        cdef View view = View.__new__(View)
        fill_access(&access, self, start, stop, mode, policy)
        access.effect = EFFECTS[effect]
        answer = own_export_open(&self.engine.engine, &access, site, &view.view, &conflict)
        if answer == OWN_OK:
            view.memory = self
            return "ok", view
        if answer == OWN_NO_MEMORY:
            raise MemoryError()
        return ANSWERS[answer], blamed(answer, &conflict)

    def lend(self, StreamState borrower not None, start, stop, mode, site=0):
        """Lend bytes to work on no stream. `borrower` represents this work.

        Returns the same as `export`.
        """
        cdef own_access access
        cdef own_conflict conflict
        cdef View view = View.__new__(View)
        fill_access(&access, self, start, stop, mode, "strict")
        access.effect = OWN_USES
        answer = own_lend_open(
            &self.engine.engine, &access, site, borrower.stream, &view.view, &conflict)
        if answer == OWN_OK:
            view.memory, view.borrower = self, borrower
            return "ok", view
        return ANSWERS[answer], blamed(answer, &conflict)

    def free(self, start, stop):
        """Return ``"ok"`` if nobody uses these bytes, otherwise the reason. Closes nothing."""
        cdef own_access access
        cdef own_conflict conflict
        cdef uint8_t gone = 0
        access.memory, access.start, access.stop, access.gone = self.memory, start, stop, &gone
        access.boxed = False
        answer = own_bytes_leave(&self.engine.engine, &access, False, &conflict)
        if answer == OWN_OK:
            own_memory_return(&self.engine.engine, self.memory)
        return ANSWERS[answer]

    def leave(self, start, stop):
        """Close the buffer with these bytes. Other buffers stay open: see `other_buffer`."""
        cdef own_access access
        cdef own_conflict conflict
        fill_access(&access, self, start, stop, "write", "strict")
        return ANSWERS[own_bytes_leave(&self.engine.engine, &access, False, &conflict)]

    def other_buffer(self, bint alive=True):
        """Let later accesses belong to another buffer over the same memory; `alive` says whether
        the closed buffer's object still exists.
        """
        self.gone = False
        if not alive:
            own_memory_return(&self.engine.engine, self.memory)

    def cut(self, end, site=0):
        """Remove the bytes from `end` on, if nobody uses them. Returns ``"ok"`` or the reason."""
        cdef own_conflict conflict
        return ANSWERS[own_memory_cut(&self.engine.engine, self.memory, end, site, &conflict)]

    def extend(self, end):
        """After `cut`, make the bytes before `end` usable again."""
        own_memory_extend(&self.engine.engine, self.memory, end)

    def inherit(self, MemoryState other not None, mode):
        """Record all uses of `other` as uses of this new memory, in this mode."""
        if not own_memory_inherit(
                &self.engine.engine, self.memory, other.memory, MODES[mode]):
            raise MemoryError()

    def close(self):
        """Close the memory, if nobody uses it. Returns ``"ok"`` or the reason."""
        cdef own_conflict conflict
        return ANSWERS[own_memory_free(&self.engine.engine, self.memory, True, &conflict)]


@cython.final
@cython.no_gc_clear
cdef class View:
    """A host borrow or a loan. It lasts until `close`, or until the object is destroyed."""

    cdef MemoryState memory
    cdef StreamState borrower   # the borrower of a loan, which the engine refers to
    cdef own_export view

    def __dealloc__(self):
        self.close()

    def close(self):
        if self.memory is not None:
            own_export_close(&self.memory.engine.engine, &self.view)
            self.memory = self.borrower = None
