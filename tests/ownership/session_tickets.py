"""The steps of a program that lend buffers to another process, or open that process's tickets.

Both processes run random programs, each with an oracle. The owner's oracle knows the buffer as
lent. The other process's oracle knows it as memory that its owner has written on the stream of
`open`. The bytes that the buffer must have are passed with the ticket and the receipt.
"""

import io
import pickle
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import oracle as model
from oracle import CAPTURED, EXPORTED, MEMORY_CLOSED, OK
from session import (
    NO_STREAM,
    NO_TICKET,
    NOT_SHAREABLE,
    NOT_SHARED,
    OTHER_CONTEXT,
    OWN_TICKET,
    WAITED,
    Failed,
    Place,
)
from session_buffers import Buffer, Memory, stream_option
from session_imports import ImportSession

import cudadrv as cu


@dataclass(eq=False)
class Share:
    """A buffer that is lent to another process."""

    ticket: cu.Ticket
    buffer: Buffer
    place: Place  # the context of the stream of `share`
    node: model.Node  # the node that the other process's work is ordered after
    view: model.View | None  # None: the buffer is back
    opened: bool = False
    receipt: Any = None
    died: bool = False  # whether the process that had opened it was killed

    @property
    def is_back(self):
        return self.view is None


class TicketReader(pickle.Unpickler):
    """Reads the ticket in a pickled buffer, and does not open it."""

    def find_class(self, module, name):
        return (lambda ticket: ticket) if name == "open" else super().find_class(module, name)


def ticket_in(data):
    return TicketReader(io.BytesIO(data)).load()


class TicketSession(ImportSession):
    # ---- the owner ----

    def share(self, buffer, stream, pickled=False):
        """Lend a buffer to another process.

        With `pickled`, the buffer is pickled as for a process of multiprocessing. The library then
        lends it on the internal stream of the context, which waits for conflicting work.
        """
        if pickled:
            stream = self.internal(buffer.memory.place)
            call = lambda: ticket_in(ForkingPickler.dumps(buffer.real))  # noqa: E731
        else:
            stream = self.current(stream, buffer.memory.place)
            given = () if stream is None else (stream.given,)
            call = lambda: buffer.real.share(*given)  # noqa: E731
        answer = self._judge_share(buffer, stream, "wait" if pickled else None)
        try:
            ticket = self.call("share", answer, call, buffer)
        except Failed:
            self.after_failure(stream.model, [(buffer, "share")])
            return None
        if answer not in (OK, WAITED):
            return None
        site, use = next(self.sites), buffer.use("write")
        node = self.oracle.issue(stream.model, [buffer.use("share")], site)
        # The borrower is the other process: here even the stream of `share` cannot use the bytes.
        nobody = model.Stream(stream.model.domain, "another process")
        view = self.oracle.export(*use, site, nobody)
        view.of = buffer.memory
        buffer.memory.was_shared = True
        return Share(ticket, buffer, stream.place, node, view)

    def _judge_share(self, buffer, stream, policy=None):
        if buffer.closed:
            return MEMORY_CLOSED
        if stream is None:
            return NO_STREAM
        if not buffer.nbytes or not buffer.memory.can_be_shared:
            return NOT_SHAREABLE
        if not buffer.fits(stream.model):
            return OTHER_CONTEXT
        if (usable := self._runs(stream)) != OK:
            return usable
        return self._judge_order(stream.model, [(buffer, "share")], policy)

    def accept(self, share, stream, receipt):
        """Take a buffer back. Returns whether the call was accepted."""
        buffer, options = share.buffer, stream_option(stream)
        on = self._stream_of_import(stream, share.place)
        answer = self._judge_accept(share, on)
        given = () if receipt is None else (receipt,)
        call = lambda: buffer.real.accept(*given, **options)  # noqa: E731
        try:
            self.call("accept", answer, call, buffer)
        except Failed:
            self.failing = None
            return False
        if answer != OK:
            return False
        self.oracle.wait(on.model, share.node)
        self.oracle.issue(on.model, [buffer.use("write")], next(self.sites), passive=True)
        self.oracle.close_export(buffer.memory.model, share.view)
        share.view = None
        return True

    def _judge_accept(self, share, on):
        if share.buffer.closed:
            return MEMORY_CLOSED
        if share.is_back:
            return NOT_SHARED
        if not share.buffer.fits(on.model):
            return OTHER_CONTEXT
        if (usable := self._runs(on)) != OK:
            return usable
        if share.died:
            return OK
        return EXPORTED if share.opened and share.receipt is None else OK

    def open_own(self, share):
        """Try to open a ticket in the process that made it."""
        on = self._stream_of_import(None, share.buffer.memory.place)
        usable = self._usable(on)
        call = lambda: cu.open(share.ticket, on.real)  # noqa: E731
        self.call("open of an own ticket", usable if usable != OK else OWN_TICKET, call)

    # ---- the other process ----

    def open_ticket(self, ticket, kind, place, stream, valid, start, bytes_):
        """Open a ticket. Returns the buffer or None.

        `valid` is whether the owner still honours the ticket. `start` is the buffer's offset in its
        allocation, and `bytes_` are the bytes of the whole allocation.
        """
        options, on = stream_option(stream), self._stream_of_import(stream, place)
        answer = self._judge_open(on, place, valid)
        call = lambda: self.new(place, lambda: cu.open(ticket, **options))  # noqa: E731
        real = self.call("open", answer, call)
        if answer != OK:
            return None
        memory = Memory(self.oracle.open_memory(len(bytes_), False), kind, place, owned=False)
        memory.shares = memory.opened = True
        memory.bytes[:] = bytes_
        buffer = Buffer(real, memory, start, real.nbytes, part=False)
        self.oracle.wait(on.model, None)  # the library waits for an event of the owner
        self.oracle.issue(on.model, [buffer.use("write")], next(self.sites), passive=True)
        return buffer

    def _judge_open(self, on, place, valid):
        if on.place is not place:
            return OTHER_CONTEXT
        usable = self._usable(on)
        if usable == OK and on.model.capture is not None:
            return CAPTURED
        return NO_TICKET if usable == OK and not valid else usable

    def return_opened(self, buffer, stream, parts):
        """Give an opened buffer back. Returns the receipt, or None if the call was refused."""
        self.settle()
        options, on = stream_option(stream), self.current(stream, buffer.memory.place)
        answer = self._judge_return(buffer, on, parts)
        call = lambda: buffer.real.give_back(*(options.values() if stream else ()))  # noqa: E731
        receipt = self.call("give_back", answer, call, buffer)
        if answer not in (OK, WAITED):
            return None
        self.oracle.give_back(on.model, *buffer.use("write")[:3], next(self.sites))
        self.oracle.snapshot(on.model, record=True)
        buffer.memory.ended = True
        return receipt

    def _judge_return(self, buffer, on, parts):
        if (usable := self._judge_end_of_import(buffer, on, parts)) != OK:
            return usable
        if on.place is not buffer.memory.place:
            return OTHER_CONTEXT
        if on.model.capture is not None and self._usable(on) == OK:
            return CAPTURED
        return self._judge_give_back(buffer, on, parts)
