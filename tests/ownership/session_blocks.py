"""The steps of a program with policies, and with blocks of policies and of streams."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from oracle import OK
from session import Session, Stream

import cudadrv as cu
from cudadrv import testing


@dataclass(eq=False)
class StreamBlock:
    """A `with` block that makes a stream the current one."""

    stream: Stream
    real: Any  # the stream, or its scope
    waits: bool = False  # whether it is a scope, whose end waits for the stream


class BlockSession(Session):
    # ---- policies ----

    def set_context_policy(self, policy, place=None):
        place = place or self.places[0]
        place.context.ordering = place.policy = policy

    def enter_ordering(self, policy):
        block = cu.ordering(policy)
        block.__enter__()
        self.orderings.append((block, policy))

    def leave_ordering(self):
        block, _ = self.orderings.pop()
        block.__exit__(None, None, None)

    def policy_of(self, buffer):
        policy = buffer.policy or buffer.memory.place.policy or "strict"
        if self.orderings:
            policy = self.orderings[-1][1]
        # The order of a signal's sets is always checked.
        return "strict" if buffer.is_signal and policy == "unchecked" else policy

    # ---- current streams ----

    def enter_stream(self, stream, scope=False):
        """Begin a block of a stream: `with stream:`, or `with stream.scope():`."""
        usable, real = self._usable(stream), stream.real
        make = real.scope if scope else lambda: real
        block = self.call("with stream", usable, lambda: begun(make()))
        if usable == OK:
            self.blocks.append(StreamBlock(stream, block, scope))

    def leave_stream(self, at=-1, raises=False):
        """End a block of a stream. The end of a scope waits, even if an exception ends the block.

        If such a wait is refused, the exception of the block gets a note.
        """
        block = self.blocks.pop(at)
        answer = self._runs(block.stream) if block.waits else OK
        error = KeyError() if raises else None
        leave = lambda: block.real.__exit__(error and KeyError, error, None)  # noqa: E731
        self.call("end of with stream", OK if raises else answer, leave)
        if raises and self.waited:
            self.agree("whether a note was added", hasattr(error, "__notes__"), answer != OK)
        if block.waits and answer == OK and self.waited:
            self._synchronized(block.stream)

    def await_scope(self, stream, loop, work):
        """Do `work` in `async with stream.scope():`, whose end awaits the stream."""
        usable, answer = self._usable(stream), self._runs(stream)
        self.awaited = True
        for each in (*self.currents, stream):
            each.kept = True

        async def waiting():
            async with stream.real.scope():
                self.blocks.append(StreamBlock(stream, None))
                try:
                    work()
                finally:
                    self.blocks.pop()

        call = lambda: loop.run_until_complete(waiting())  # noqa: E731
        self.call("async with stream", usable if usable != OK else answer, call, unchanged=False)
        if answer == OK:
            self._synchronized(stream)

    def current(self, stream, *places):
        """The stream of a call: the argument, a current stream of these contexts, or None."""
        if stream is None:
            found = [current for current in self.currents if current.place in places]
            return found[-1] if found else None
        return stream

    # ---- ends ----

    def leave_blocks(self):
        while self.orderings:
            self.leave_ordering()
        while self.blocks:
            self.leave_stream()

    def drop_blocks(self):
        """End the blocks of streams after a disagreement."""
        while self.blocks:
            with suppress(Exception):
                self.blocks.pop().real.__exit__(None, None, None)

    def end_blocks(self):
        """End all blocks of this thread, and reset all policies."""
        self.leave_blocks()
        for place in self.places:
            self.set_context_policy(None, place)

    def end_work(self):
        """End everything, even after a disagreement, so that the next program starts clean."""
        self.drop_blocks()
        self.end_blocks()
        for place in self.places:
            place.context.synchronize()
        self.end_access()
        if self.software:
            testing.forget_races()

    def end_access(self):
        """End the access of all devices to the memory of others."""


def begun(block):
    """Enter a block. Returns the block itself."""
    block.__enter__()
    return block
