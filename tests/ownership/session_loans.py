"""The steps of a program by which buffers are in the hands of others, and come back."""

import ctypes
from dataclasses import dataclass
from typing import Any

import oracle as model
from oracle import MEMORY_CLOSED, OK, STREAM_CLOSED
from session import NO_STREAM, OTHER_CONTEXT, WAITED, Stream
from session_buffers import Buffer
from session_kernels import KernelSession

import cudadrv as cu


@dataclass(eq=False)
class Loan:
    """A block of `buffer.lend(stream)` that has begun."""

    real: Any
    address: int
    buffer: Buffer
    stream: Stream
    model: model.View
    mode: str


class LoanSession(KernelSession):
    def lend(self, buffer, stream, readonly):
        stream = self.current(stream, buffer.memory.place)
        mode = "read" if readonly else "write"
        answer = self._judge_loan(buffer, stream, mode)
        real = None if stream is None else stream.real

        def begin():
            loan = buffer.real.lend(real, readonly=readonly)
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
        if not stream.model.open:
            return STREAM_CLOSED
        return self._judge_order(stream.model, [(buffer, mode)])

    def use_loan(self, loan, value):
        """What another library might queue: only the driver sees it."""
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
        """All that was queued meanwhile counts as one use, queued now."""
        self.call("end of lend", OK, lambda: loan.real.__exit__(None, None, None))
        self.oracle.issue(loan.stream.model, [loan.buffer.use(loan.mode)], next(self.sites))
        self.oracle.close_export(loan.buffer.memory.model, loan.model)


def driver():
    return ctypes.CDLL(cu.driver_info().path)
