"""The steps of a program with groups of streams that take turns."""

from dataclasses import dataclass
from typing import Any

import oracle as model
from oracle import OK, STREAM_CLOSED
from session import Event, Stream
from session_blocks import BlockSession, begun

import cudadrv as cu


@dataclass(eq=False)
class Group:
    """A group of streams. The program may also use and close each of these streams by itself."""

    real: cu.StreamGroup
    streams: list
    turn: int = 0
    scope: Any = None  # the open `with group.scope()` block

    @property
    def closed(self):
        return not self.streams


class GroupSession(BlockSession):
    def open_group(self, count, place):
        real = self.call("StreamGroup", OK, lambda: self.new(place, cu.StreamGroup, count))
        kind = "non_blocking"
        streams = [
            Stream(each, self.oracle.open_stream(place.domain, kind), kind, place) for each in real
        ]
        self.agree("number of streams", len(streams), count)
        return Group(real, streams)

    def next_of_group(self, group):
        """Return the stream whose turn it is, or None if the group is closed."""
        answer = STREAM_CLOSED if group.closed else OK
        self.call("group.next()", answer, lambda: self._compare_next(group))
        if answer != OK:
            return None
        group.turn += 1
        return group.streams[(group.turn - 1) % len(group.streams)]

    def _compare_next(self, group):
        real, found = group.real, group.real.next()
        streams = [each.real for each in group.streams]
        self.agree("whose turn it is", streams.index(found), group.turn % len(streams))
        self.agree("streams of a group", [*real, real[-1]], [*streams, streams[-1]])

    def wait_of_group(self, group, thing):
        """Let all streams of a group wait for a stream, an event or a token.

        If a stream cannot wait, the streams before it wait nevertheless.
        """
        given = thing.given if isinstance(thing, Stream) else thing.real
        answer = self._let_all_wait(group, thing, given)
        self.call("group.wait()", answer, lambda: group.real.wait(given), unchanged=False)

    def _let_all_wait(self, group, thing, given):
        if group.closed:
            return STREAM_CLOSED
        # If the stream is not in the group, all streams of the group wait for one event of that
        # stream.
        if isinstance(given, cu.Stream) and thing not in group.streams:
            answer = self._judge_record(thing)
            if answer != OK:
                return answer
            thing = self._recorded(thing, Event(None, model.Event(), thing.place))
        for stream in group.streams:
            answer = OK if stream is thing else self._judge_wait_for(stream, thing)
            if answer != OK:
                return answer
            if stream is not thing:
                self._wait_for_thing(stream, thing)
        return OK

    def synchronize_group(self, group):
        answer = self._wait_for_all_of(group)
        self.call("group.synchronize()", answer, group.real.synchronize, unchanged=False)

    def _wait_for_all_of(self, group):
        """Let the host wait for the streams, until one of them cannot be waited for."""
        if group.closed:
            return STREAM_CLOSED
        for stream in group.streams:
            answer = self._runs(stream)
            if answer != OK:
                return answer
            self._synchronized(stream)
        return OK

    def enter_group(self, group):
        """Begin a `with group.scope()` block."""
        answer = STREAM_CLOSED if group.closed else OK
        group.scope = self.call("with group", answer, lambda: begun(group.real.scope()))

    def leave_group(self, group, raises):
        """End the block, perhaps by an exception. Its end waits for all streams of the group."""
        scope, group.scope = group.scope, None
        answer, error = self._wait_for_all_of(group), KeyError() if raises else None
        leave = lambda: scope.__exit__(error and KeyError, error, None)  # noqa: E731
        self.call("end of with group", OK if raises else answer, leave, unchanged=False)
        if raises:
            self.agree("whether a note was added", hasattr(error, "__notes__"), answer != OK)

    def close_group(self, group):
        """Close the streams of a group. If one of them stays open, so does the group."""
        answer = OK
        for stream in group.streams:
            answer = self._judge_close_stream(stream)
            if answer != OK:
                break
            self.oracle.close_stream(stream.model)
        self.call("group.close()", answer, group.real.close, unchanged=False)
        if answer == OK:
            group.streams = []
        self.agree("group.closed", group.real.closed, group.closed)
        self.agree("number of streams", len(group.real), len(group.streams))
