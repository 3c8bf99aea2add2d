"""The steps of a program that pass buffers to other libraries, and take them back."""

import ctypes
import weakref
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import oracle as model
from capsules import Consumer
from effects import Lend
from oracle import CAPTURED, DISCARDED, MEMORY_CLOSED, OK
from session import (
    NO_NAME,
    NO_STREAM,
    NO_TURNS,
    NOT_LENT,
    OTHER_CONSUMER,
    OTHER_CONTEXT,
    TAKEN,
    WAITED,
    Failed,
    Stream,
)
from session_buffers import Buffer
from session_kernels import KernelSession

import cudadrv as cu

NOBODY, HOST = "work on no stream", "the host"  # borrowers that are not streams


@dataclass(eq=False)
class Lent:
    """A loan that has begun: from its first holder to its last one."""

    buffer: Buffer
    borrower: Stream | str
    mode: str
    address: int = 0
    view: model.View | None = None  # None: the loan has ended, or the buffer is taken back
    holders: int = 0
    # The capture in which the loan was made; None: it was made outside of captures.
    capture: Any = None
    operation: Any = None  # the node of the loan in the capture
    call: model.Node | None = None  # the last node that the borrower queued in the capture
    # Whether the loan outlived its capture, and its end could not wait for some work.
    barred: bool = False

    @property
    def is_reachable(self):
        """Whether the borrower's stream and the loan are in the same capture, or both in none."""
        if not isinstance(self.borrower, Stream):
            return True
        stream = self.borrower.model
        return stream.capture is self.capture and (self.capture or not stream.in_capture)


@dataclass(eq=False)
class Loan:
    """The result of `buffer.lend()`. It can be a `with` block and can export arrays."""

    real: Any  # None when the program has dropped it
    buffer: Buffer
    borrower: Stream | str
    mode: str
    lent: Lent | None = None
    entered: Lent | None = None  # the begun loan that the `with` block holds
    left: bool = False
    # The begun loan that the array interface holds, as long as the `Loan` object lives.
    shown: Lent | None = None
    back: Any = None  # the `loan.back()` block in which the buffer is taken back
    kept: Any = None  # the view that keeps the buffer open in that block
    views: int = 0  # number of memoryviews that refer to the object

    @property
    def stream(self):
        return self.borrower if isinstance(self.borrower, Stream) else None


@dataclass(eq=False)
class Holder:
    """An array of another library over lent memory."""

    real: Any
    lent: Lent
    loan: Loan | None = None  # the `Loan` to which the array refers

    @property
    def buffer(self):
        return self.lent.buffer

    @property
    def stream(self):
        return self.lent.borrower if isinstance(self.lent.borrower, Stream) else None


class LoanSession(KernelSession):
    def __init__(self, *contexts):
        super().__init__(*contexts)
        self.late = []  # loans that could not end, because their streams were being captured

    # ---- lending ----

    def lend(self, buffer, borrower, readonly=False, device=None):
        """Make a loan to a stream, or to `NOBODY`. It begins when it gets its first holder."""
        place = buffer.memory.place
        if borrower is not NOBODY:
            borrower = self.current(borrower, place)
        answer = MEMORY_CLOSED if buffer.closed else OK
        if answer == OK and borrower is None:
            answer = NO_STREAM
        if answer == OK and isinstance(borrower, Stream) and not buffer.fits(borrower.model):
            answer = OTHER_CONTEXT
        # Without a current stream, omit the argument: None as an argument means work on no stream.
        given = () if borrower is None else (getattr(borrower, "given", None),)
        options = {} if device is None else {"device": device}
        call = lambda: buffer.real.lend(*given, readonly=readonly, **options)  # noqa: E731
        real = self.call("lend", answer, call, buffer)
        if answer != OK:
            return None
        return Loan(real, as_lent(buffer), borrower, "read" if readonly else "write")

    def enter(self, loan):
        """Enter the `with` block of a loan."""
        entered, _ = self._hold("lend", loan, loan.real.__enter__)
        loan.entered = entered
        return entered is not None

    def leave(self, loan):
        """Leave the `with` block of a loan.

        If it was the last holder, the work that was queued in it counts as one use, queued now.
        """
        lent, loan.entered, loan.left = loan.entered, None, True
        call = lambda: loan.real.__exit__(None, None, None)  # noqa: E731
        if lent.holders == 1 and lent.view is not None and not lent.is_reachable:
            self.call("end of lend", CAPTURED, call)
            lent.holders, loan.stream.kept = 0, True
            self.late.append(lent)
            return
        try:
            self.call("end of lend", OK, call)
        except Failed:
            self._let_go(lent, passive=True)
        else:
            self._let_go(lent)

    def show(self, loan):
        """Read the `__cuda_array_interface__` of a loan."""
        call = lambda: loan.real.__cuda_array_interface__  # noqa: E731
        shown, interface = self._hold("__cuda_array_interface__", loan, call)
        if shown is None:
            return
        if loan.shown is shown:
            shown.holders -= 1
        loan.shown = shown
        address = shown.address if loan.buffer.nbytes else interface["data"][0]
        self.agree("data", interface["data"], (address, loan.mode == "read"))
        self.agree("stream", interface["stream"], handle_of(loan.borrower))

    def export(self, loan, stream):
        """Let a consumer on a stream take a DLPack capsule of the loan."""
        handle = handle_of(stream)
        usable = self.usable_handle(loan.borrower) if has_name(loan.buffer) else NO_NAME
        # The default streams of all contexts have the same handle.
        if usable == OK and handle != handle_of(loan.borrower):
            usable = OTHER_CONSUMER
        call = lambda: loan.real.__dlpack__(stream=handle, max_version=(1, 0))  # noqa: E731
        lent, capsule = self._hold("loan.__dlpack__", loan, call, usable)
        return self._holder(capsule, lent, loan.mode)

    def numpy(self, loan):
        """Let NumPy import the loan, which is a loan to work on no stream."""
        answer = OK if has_name(loan.buffer) else NO_NAME
        call = lambda: np.from_dlpack(loan.real)  # noqa: E731
        lent, array = self._hold("numpy.from_dlpack", loan, call, answer)
        if lent is None:
            return None
        if array.size:  # an array without items may have other memory
            self.agree("writeable", array.flags.writeable, loan.mode == "write")
        return Holder(array, lent)

    def memoryview(self, loan):
        lent, view = self._hold("memoryview", loan, lambda: memoryview(loan.real))
        if lent is None:
            return None
        self.agree("readonly", view.readonly, loan.mode == "read")
        loan.views += 1
        return Holder(view, lent, loan)

    def export_buffer(self, buffer, borrower, word):
        """Let a consumer take a DLPack capsule of a buffer.

        `word` is the argument `stream` of the protocol. It names the borrower.
        """
        options = {} if word is None else {"stream": word}
        loan = Loan(None, as_lent(buffer), borrower, "write")
        call = lambda: buffer.real.__dlpack__(max_version=(1, 0), **options)  # noqa: E731
        answer = OK if has_name(buffer) or buffer.closed else NO_NAME
        lent, capsule = self._hold("buffer.__dlpack__", loan, call, answer, waits=True)
        return self._holder(capsule, lent, loan.mode)

    def export_anew(self, buffer, borrower, word):
        """Like `export_buffer`, right after a loan has ended. The library may continue the loan."""
        holder = self.export_buffer(buffer, borrower, word)
        if holder is not None:
            (buffer.memory.home or buffer.memory).continued = holder.lent
        return holder

    def numpy_of_buffer(self, buffer):
        """Let NumPy import page-locked memory by DLPack: a loan to the host."""
        loan = Loan(None, buffer, HOST, "write")
        call = lambda: np.from_dlpack(buffer.real)  # noqa: E731
        answer = OK if has_name(buffer) or buffer.closed else NO_NAME
        lent, array = self._hold("numpy.from_dlpack", loan, call, answer)
        return Holder(array, lent) if lent else None

    def _holder(self, capsule, lent, mode):
        if lent is None:
            return None
        consumer = Consumer(capsule)
        if lent.buffer.nbytes:
            self.agree("address", consumer.tensor.data, lent.address)
        self.agree("shape", consumer.shape, lent.buffer.real.shape)
        self.agree("flags", consumer.managed.flags, int(mode == "read"))
        return Holder(consumer, lent)

    # ---- what borrowers do with the memory ----

    def use_lent(self, lent, value):
        """Let a borrower use the memory, on its stream or on none, unless the loan has ended."""
        if lent.view is None or not lent.buffer.nbytes or not lent.is_reachable or lent.barred:
            return
        stream = lent.borrower if isinstance(lent.borrower, Stream) else None
        place = stream.place if stream else lent.buffer.memory.place
        address, nbytes = lent.address, lent.buffer.nbytes
        if stream is None and self.begun and not lent.buffer.on_host:
            return  # during some captures, such a copy would invalidate the capture
        if lent.capture is not None and lent.buffer.memory.place_for(place) is not place:
            return
        with place.context:
            if stream is None:
                self._copy_at_once(lent, address, value)
            elif lent.mode == "write":
                fill_raw(address, value, nbytes, stream)
                self._filled(lent, value)

    def _filled(self, lent, value):
        """Note a fill by the borrower.

        It takes effect now, or at each launch of the captured graph.
        """
        bytes_, capture, effect = lent.buffer.bytes, lent.capture, None
        if capture is None:
            bytes_[:] = value
            return
        last, effect = capture.plan.operations[-1], lent.operation.effect
        last.then.append(lambda: bytes_.fill(value))
        effect.calls += 1
        line = capture.inside[lent.borrower.model]
        if last is not lent.operation or line.last is not (lent.call or last.node):
            effect.loose = True
        capture.call(lent.borrower.model)
        lent.call = line.last

    def _copy_at_once(self, lent, address, value):
        """Read lent memory as a library without a stream does. Write it if the loan allows that."""
        nbytes = lent.buffer.nbytes
        found = (ctypes.c_ubyte * nbytes)()
        host = lent.buffer.on_host
        if host:
            ctypes.memmove(found, address, nbytes)
        else:
            source = ctypes.c_uint64(address), ctypes.c_size_t(nbytes)
            assert driver().cuMemcpyDtoH_v2(found, *source) == 0
        self.compare("lent memory", np.frombuffer(found, "u1"), lent.buffer.bytes)
        if lent.mode != "write":
            return
        if host:
            ctypes.memset(address, value, nbytes)
        else:
            new = (ctypes.c_ubyte * nbytes)(*[value] * nbytes)
            assert driver().cuMemcpyHtoD_v2(source[0], new, source[1]) == 0
            assert driver().cuStreamSynchronize(ctypes.c_void_p(1)) == 0
        lent.buffer.bytes[:] = value

    # ---- ends of loans ----

    def end_holder(self, holder, way="end"):
        """Let an array end. The loan ends at the latest at the beginning of the next call."""
        real, holder.real = holder.real, None
        if isinstance(real, Consumer):
            getattr(real, way)()
        elif isinstance(real, memoryview):
            real.release()
            holder.loan.views -= 1
        del real
        self.unended = True
        self._let_go(holder.lent)
        if holder.loan is not None:
            self._let_go_if_dead(holder.loan)

    def drop_loan(self, loan):
        """Drop the reference to a loan.

        Its arrays keep the loan alive, and its array interface ends.
        """
        died, loan.real = weakref.ref(loan.real), None
        if not loan.views:
            self.agree("a loan to which nothing refers", died(), None)
        self.unended = True
        self._let_go_if_dead(loan)

    def _let_go_if_dead(self, loan):
        if loan.real is None and not loan.views and loan.shown is not None:
            shown, loan.shown = loan.shown, None
            self._let_go(shown)

    def _let_go(self, lent, passive=False):
        """Remove one holder.

        The last holder ends the loan: the borrower's work is one use, queued now.
        """
        lent.holders -= 1
        if lent.holders == 0 and lent.view is not None:
            self._end(lent, passive)

    def end_late(self):
        for lent in [each for each in self.late if each.is_reachable]:
            self.late.remove(lent)
            # This loan was not taken back, and has no new holder.
            if lent.view is not None and not lent.holders:
                self._end(lent)

    def _end(self, lent, passive=False):
        use = lent.buffer.use(lent.mode)
        if lent.capture is not None:
            end = lent.operation, lent.borrower.model, use, lent.view, next(self.sites)
            lent.capture.lents.remove(lent)
            lent.capture.end_loan(*end)
            lent.capture = lent.view = None
            return
        if isinstance(lent.borrower, Stream):
            self.oracle.issue(lent.borrower.model, [use], next(self.sites), passive)
        self.oracle.close_export(lent.buffer.memory.model, lent.view)
        lent.view = None

    # ---- taking turns ----

    def take_back(self, loan):
        lent = loan.lent
        answer = OK
        if lent is None or lent.view is None or loan.back is not None:
            answer = NOT_LENT
        elif lent.capture is not None:
            answer = CAPTURED
        elif not isinstance(lent.borrower, Stream):
            answer = NO_TURNS
        elif not lent.is_reachable:
            answer = CAPTURED
        back = loan.real.back()
        self.call("loan.back()", answer, back.__enter__, loan.buffer)
        if answer == OK:
            self._end(lent)
            loan.back = back
            user, site = lent.borrower.model, next(self.sites)
            loan.kept = self.oracle.keep_open(*lent.buffer.use(lent.mode), site, user)
            loan.kept.of = lent.buffer.memory

    def give_again(self, loan):
        """End a `loan.back()` block: the borrower's stream waits for what was done inside.

        If the wait is refused, the loan stays open nevertheless, because the borrower has an array.
        """
        back, loan.back = loan.back, None
        self.oracle.close_export(loan.buffer.memory.model, loan.kept)
        answer = self._judge_lent(loan, waits=True) if loan.lent.holders else OK
        call = lambda: back.__exit__(None, None, None)  # noqa: E731
        self.call("end of loan.back()", answer, call, loan.buffer, unchanged=False)
        if loan.lent.holders and answer in (OK, WAITED):
            self._begin(loan.lent)
        elif loan.lent.holders:
            self._lend_anyway(loan.lent, waits=not loan.borrower.model.in_capture)

    # ---- what begins a loan ----

    def _hold(self, what, loan, call, answer=OK, waits=False):
        """Make a call that adds a holder. It begins the loan if the loan has not begun.

        Returns the `Lent`, or None if the call was refused, and the result of the call.
        """
        lent = loan.lent
        if answer == OK and loan.back is not None:
            answer = TAKEN
        begins = answer == OK and (lent is None or lent.view is None)
        if answer == OK and not begins and isinstance(loan.borrower, Stream):
            known = lent.capture is loan.borrower.model.capture
            answer = OK if known else CAPTURED
        if begins:
            answer = self._judge_lent(loan, waits)
            lent = Lent(loan.buffer, loan.borrower, loan.mode)
        try:
            result = self.call(what, answer, call, loan.buffer)
        except Failed:
            if isinstance(loan.borrower, Stream):
                self.after_failure(loan.borrower.model, [(loan.buffer, loan.mode)])
            return None, None
        self.after_use(loan.buffer)
        if answer not in (OK, WAITED):
            return None, None
        if begins:
            self._begin(lent)
            lent.address = loan.buffer.real.address
        lent.holders += 1
        loan.lent = lent
        return lent, result

    def _judge_lent(self, loan, waits):
        """The answer for beginning a loan, after the waits of the policy or of the protocol."""
        buffer, use = loan.buffer, (loan.buffer, loan.mode)
        if buffer.closed:
            return MEMORY_CLOSED
        if not isinstance(loan.borrower, Stream):
            self.use_on_host(buffer)
        if loan.borrower is NOBODY:
            nobody = model.Stream(buffer.memory.place.domain, "nobody")
            return self.oracle.judge_lend(*buffer.use(loan.mode), nobody).answer
        if loan.borrower is HOST:
            return self.oracle.judge_export(*buffer.use(loan.mode), "strict", lends=True).answer
        if (usable := self._usable(loan.borrower)) != OK:
            return usable
        policy = "wait" if waits else None
        return self._judge_order(loan.borrower.model, [use], policy, lends=True)

    def _begin(self, lent):
        use, user, site = lent.buffer.use(lent.mode), None, next(self.sites)
        if isinstance(lent.borrower, Stream) and lent.borrower.model.capture is not None:
            self._begin_in_capture(lent)
            return
        if lent.borrower is NOBODY:
            user = model.Stream(lent.buffer.memory.place.domain, "nobody")
        elif isinstance(lent.borrower, Stream):
            user = lent.borrower.model
            self.oracle.issue(user, [use], site)
        lent.view = self.oracle.export(*use, site, user)
        lent.view.of = lent.buffer.memory

    def _begin_in_capture(self, lent):
        stream = lent.borrower.model
        self.issue(stream, [(lent.buffer, lent.mode)], Lend())
        lent.capture = stream.capture
        lent.operation = lent.capture.plan.operations[-1]
        lent.view = lent.capture.lend(stream, lent.buffer.use(lent.mode))
        lent.capture.lents.append(lent)

    def outlive(self, capture):
        """Note the end of a capture. Its open loans become loans outside of captures."""
        while capture.lents:
            lent = capture.lents.pop(0)
            user, use = lent.borrower.model, lent.buffer.use(lent.mode)
            capture.end_loan(lent.operation, user, use, lent.view, 0)
            lent.capture = None
            self._lend_anyway(lent, waits=not capture.joined)

    def _lend_anyway(self, lent, waits):
        """Keep a loan open despite other uses, because the borrower still has an array."""
        user, use = lent.borrower.model, lent.buffer.use(lent.mode)
        lent.view = self.oracle.export(*use, next(self.sites), user)
        lent.view.of = lent.buffer.memory
        if waits:
            self.oracle.wait_for_users(user, *use[:3])
        lent.barred = self.oracle.judge(user, [use], "strict").answer not in (OK, DISCARDED)

    def usable_handle(self, stream):
        """The answer for asking for the handle of a borrower."""
        if not isinstance(stream, Stream) or stream.kind in ("legacy", "per_thread"):
            return OK
        return self._usable(stream)


def as_lent(buffer):
    """The buffer that a loan refers to: if its memory can grow, a part, which keeps its size."""
    if buffer.closed or buffer.part or not buffer.memory.grows:
        return buffer
    return replace(buffer, real=buffer.real[:], part=True, grows=False, kept=[])


def has_name(buffer):
    """Whether DLPack can describe the buffer's dtype."""
    dtype = buffer.real.dtype
    return dtype.kind in "iufc" and dtype.isnative


def handle_of(stream):
    """The number by which the protocols pass a stream.

    It is None for work on no stream, and any number for a closed stream.
    """
    if not isinstance(stream, Stream):
        return None
    if stream.kind in ("legacy", "per_thread"):
        return 1 if stream.kind == "legacy" else 2
    return stream.real.handle if stream.model.open else 1


def fill_raw(address, value, nbytes, stream):
    """Queue a fill as another library does: the driver gets it, and cudadrv does not see it."""
    status = driver().cuMemsetD8Async(
        ctypes.c_uint64(address),
        ctypes.c_ubyte(value),
        ctypes.c_size_t(nbytes),
        ctypes.c_void_p(stream.real.handle),
    )
    assert status == 0, f"status of another library's fill: {status}"


@cache
def driver():
    return ctypes.CDLL(cu.driver_info().path)
