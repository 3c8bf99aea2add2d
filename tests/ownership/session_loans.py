"""The steps of a program that pass buffers to other libraries, and take them back."""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import oracle as model
from oracle import BORROWED, EXPORTED, MEMORY_CLOSED, OK
from session import (
    IS_PART,
    LIVE,
    NO_STREAM,
    NOT_OURS,
    OTHER_CONTEXT,
    PARTS_LIVE,
    WAITED,
    Place,
    Stream,
)
from session_buffers import CLASSES, Buffer
from session_kernels import KernelSession

import cudadrv as cu


@dataclass(eq=False)
class Loan:
    """An entered block of `buffer.lend(stream)`."""

    real: Any
    address: int
    buffer: Buffer
    stream: Stream
    model: model.View
    mode: str


@dataclass(eq=False)
class Raw:
    """Memory that was given away, with its bytes."""

    address: int
    kind: str
    place: Place
    bytes: Any


class LoanSession(KernelSession):
    # ---- lend ----

    def lend(self, buffer, stream, readonly):
        stream = self.current(stream, buffer.memory.place)
        mode = "read" if readonly else "write"
        answer = self._judge_loan(buffer, stream, mode)
        given = () if stream is None else (stream.given,)  # None would be: work on no stream

        def begin():
            loan = buffer.real.lend(*given, readonly=readonly)
            return loan, loan.__enter__()

        made = self.call("lend", answer, begin, buffer)
        if answer not in (OK, WAITED):
            return None
        site = next(self.sites)
        self.oracle.issue(stream.model, [buffer.use(mode)], site)
        view = self.oracle.export(*buffer.use(mode), site, stream.model)
        return Loan(*made, buffer, stream, view, mode)

    def _judge_loan(self, buffer, stream, mode):
        if buffer.closed:
            return MEMORY_CLOSED
        if stream is None:
            return NO_STREAM
        if not buffer.fits(stream.model):
            return OTHER_CONTEXT
        if (usable := self._usable(stream)) != OK:
            return usable
        return self._judge_order(stream.model, [(buffer, mode)])

    def use_loan(self, loan, value):
        """Queue work as another library does: only the driver sees it."""
        if loan.mode == "write" and loan.buffer.nbytes:
            with loan.stream.place.context:
                status = driver().cuMemsetD8Async(
                    ctypes.c_uint64(loan.address),
                    ctypes.c_ubyte(value),
                    ctypes.c_size_t(loan.buffer.nbytes),
                    ctypes.c_void_p(loan.stream.real.handle),
                )
            self.agree("status of another library's fill", status, 0)
            loan.buffer.bytes[:] = value

    def end_loan(self, loan):
        """End a loan. All work that was queued inside the block counts as one use, queued now."""
        self.call("end of lend", OK, lambda: loan.real.__exit__(None, None, None))
        self.oracle.issue(loan.stream.model, [loan.buffer.use(loan.mode)], next(self.sites))
        self.oracle.close_export(loan.buffer.memory.model, loan.model)

    # ---- addresses ----

    def into_raw(self, buffer, parts):
        """Give the memory away. `parts` says whether parts of it are alive."""
        answer = self._judge_raw(buffer, parts)
        address = self.call("into_raw", answer, buffer.real.into_raw, buffer)
        if answer != OK:
            return None
        memory = buffer.memory
        memory.model.closed = True
        return Raw(address, memory.kind, memory.place, memory.bytes)

    def _judge_raw(self, buffer, parts):
        if buffer.closed:
            return MEMORY_CLOSED
        if buffer.part:
            return IS_PART
        if not buffer.memory.owned:
            return NOT_OURS
        if buffer.memory.model.views:
            return EXPORTED
        if self.oracle.borrowed_bytes(buffer.memory.model):
            return BORROWED
        return PARTS_LIVE if parts else OK

    def from_raw(self, raw):
        """Take memory back. The new buffer has no uses."""
        make = lambda: CLASSES[raw.kind].from_raw(raw.address, len(raw.bytes))  # noqa: E731
        buffer = self.new_buffer("from_raw", make, raw.kind, len(raw.bytes), raw.place)
        buffer.memory.bytes[:] = raw.bytes
        return buffer

    def from_raw_of_live(self, buffer):
        make = CLASSES[buffer.memory.kind].from_raw
        address = buffer.real.address
        call = lambda: self.new(buffer.memory.place, make, address, buffer.nbytes)  # noqa: E731
        self.call("from_raw of a live buffer's memory", LIVE, call, buffer)

    def from_address(self, kind, nbytes, place):
        """Use memory that another library allocates, and frees at the end."""
        owner = Owner(kind, nbytes, place.context)
        make = lambda: CLASSES[kind].from_address(  # noqa: E731
            owner.address.value, nbytes, owner=owner
        )
        return self.new_buffer("from_address", make, kind, nbytes, place, owned=False)


class Owner:
    """Memory of another library. It is freed with this object."""

    def __init__(self, kind, nbytes, context):
        self.kind, self.context, self.address = kind, context, ctypes.c_uint64()
        made, size = ctypes.byref(self.address), ctypes.c_size_t(nbytes)
        with context:
            if kind == "device":
                status = driver().cuMemAlloc_v2(made, size)
            elif kind == "locked":
                status = driver().cuMemHostAlloc(made, size, 3)
            else:
                status = driver().cuMemAllocManaged(made, size, 1)
        assert status == 0, f"allocating {kind} memory: {status}"

    def __del__(self):
        free = driver().cuMemFreeHost if self.kind == "locked" else driver().cuMemFree_v2
        with self.context:
            status = free(self.address)
        assert status == 0, f"freeing {self.kind} memory: {status}"


@cache
def driver():
    return ctypes.CDLL(cu.driver_info().path)
