"""The steps of a program in which managed memory is prefetched, discarded or attached."""

from effects import UNKNOWN
from oracle import CAPTURED, HOST, MEMORY_CLOSED, OK
from session import DEFAULT_STREAM, NO_STREAM, NOT_WHOLE, OF_POOL, WAITED, Failed, Stream, Token
from session_buffers import BufferSession

import cudadrv as cu


class ManagedSession(BufferSession):
    def prefetch(self, buffers, place, stream, batch):
        """Move the pages of buffers, which changes no byte."""
        given = stream and stream.given
        if batch:
            pairs = [(buffer.real, place) for buffer in buffers]
            call = lambda: cu.prefetch_batch(pairs, given)  # noqa: E731
        else:
            call = lambda: buffers[0].real.prefetch(place, given)  # noqa: E731
        return self._queue("prefetch", buffers, "move", stream, call)

    def move_to(self, buffer, place, stream):
        """Call `to` on a buffer: it moves the pages. It counts as a write, but changes no byte.

        Without a stream, the host waits.
        """
        given, home = stream and stream.given, buffer.memory.place
        on = self.current(stream, home) or self.internal(home)
        call = lambda: buffer.real.to(place, stream=given)  # noqa: E731
        token = self._queue("to", [buffer], "to", on, call)
        if token is None:
            return
        self.agree("what `to` returns", token.real is buffer.real, True)
        if stream is None and token.node is not None:
            self.oracle.synchronize(token.node)

    def discard(self, buffers, place, stream, batch):
        """Discard the contents of buffers. They must be written before anybody reads them."""
        given = stream and stream.given
        if batch:
            real = [buffer.real for buffer in buffers]
            call = lambda: cu.discard_batch(real, given)  # noqa: E731
        elif place is None:
            call = lambda: buffers[0].real.discard(given)  # noqa: E731
        else:
            call = lambda: buffers[0].real.discard_and_prefetch(place, given)  # noqa: E731
        token = self._queue("discard", buffers, "discard", stream, call)
        if token is not None:
            for buffer in buffers:
                buffer.bytes[:] = UNKNOWN
        return token

    def attach(self, buffer, to, stream):
        """Attach memory to a stream, to "global", or to "host"."""
        if isinstance(to, Stream):
            stream, given = to, (to.given,)
        else:
            given = (to, stream and stream.given)
        call = lambda: buffer.real.attach(*given)  # noqa: E731
        token = self._queue("attach", [buffer], "attach", stream, call)
        if token is not None and token.node is not None:
            only = HOST if to == "host" else None
            if isinstance(to, Stream):
                only, to.kept = to.model, True
            self.oracle.attach(buffer.memory.model, only, next(self.sites))
        return token

    def _queue(self, what, buffers, mode, stream, call):
        """Make an operation that uses all bytes of some buffers. Returns its token, or None."""
        stream = self.current(stream, buffers[0].memory.place)
        uses = [(buffer, mode) for buffer in buffers if buffer.nbytes]
        answer = self._judge_use(buffers, uses, mode, stream)
        try:
            result = self.call(what, answer, call, *buffers)
        except Failed:
            self.after_failure(stream.model, uses)
            return None
        self.after_use(*buffers)
        if answer not in (OK, WAITED):
            return None
        node = None
        if uses:
            accesses = [buffer.use(mode) for buffer, mode in uses]
            node = self.oracle.issue(stream.model, accesses, next(self.sites))
        capture = stream.model.capture
        # The operation uses no bytes, so the token stands for the stream's last node.
        if capture is not None:
            node = capture.point(stream.model, record=False)
        return Token(result, node, buffers, stream.model, capture=capture)

    def _judge_use(self, buffers, uses, mode, stream):
        if any(buffer.closed for buffer in buffers):
            return MEMORY_CLOSED
        if stream is None:
            return NO_STREAM
        if (usable := self._usable(stream)) != OK:
            return usable
        if mode == "discard" and stream.kind == "legacy":
            return DEFAULT_STREAM
        if not uses:
            return OK
        if stream.model.in_capture:
            return CAPTURED
        if mode == "attach" and not is_whole(buffers[0]):
            return NOT_WHOLE
        if mode == "attach" and is_of_pool(buffers[0].memory):
            return OF_POOL
        return self._judge_order(stream.model, uses)


def is_whole(buffer):
    return buffer.start == 0 and buffer.nbytes == buffer.memory.model.nbytes


def is_of_pool(memory):
    """Whether the memory is from a pool of the driver."""
    return (memory.home or memory).of_driver_pool
