"""The steps of a program with signals."""

from dataclasses import dataclass, field

import oracle as model
from oracle import CAPTURED, MEMORY_CLOSED, MUST_WAIT, OK
from session import DEAD, SMALLER, WAITED, Failed, Place, Token, in_time
from session_blocks import BlockSession

import cudadrv as cu


@dataclass(eq=False)
class Signal:
    """A signal. Each of its sets has a number, and a node: None for a set of the host."""

    real: cu.Signal
    model: model.Memory
    place: Place
    queued: int = 0
    sets: list = field(default_factory=list)

    @property
    def closed(self):
        return self.model.closed

    @property
    def bytes_(self):
        """The access of a set."""
        return self.model, 0, self.model.nbytes, "write"


class SignalSession(BlockSession):
    def make_signal(self, place):
        real = self.call("Signal", OK, lambda: self.new(place, cu.Signal))
        return Signal(real, self.oracle.open_memory(8, managed=False), place)

    # ---- streams ----

    def set_on_stream(self, stream, signal, number):
        answer = self._judge_set(stream, signal, number)
        try:
            result = self.call("stream.set()", answer, lambda: stream.real.set(signal.real, number))
        except Failed:
            self.failing = None
            if self.queued:  # the number is set, and no wait can be ordered after it
                self.oracle.issue(stream.model, [signal.bytes_], next(self.sites))
                signal.queued = number
            return None
        if answer not in (OK, WAITED):
            return None
        node = self.oracle.issue(stream.model, [signal.bytes_], next(self.sites))
        signal.queued = number
        signal.sets.append((number, node))
        return Token(result, node, [], stream.model, asked=True)

    def _judge_set(self, stream, signal, number):
        if signal.closed:
            return MEMORY_CLOSED
        usable = self._usable(stream)
        if usable != OK:
            return usable
        if number <= signal.queued:
            return SMALLER
        if stream.model.in_capture:
            return CAPTURED
        policy = self.orderings[-1][1] if self.orderings else signal.place.policy
        policy = "wait" if policy == "wait" else "strict"
        access = (stream.model, [signal.bytes_], policy)
        before = self.oracle.judge(*access).answer
        answer = self.oracle.judge_and_wait(*access).answer
        return WAITED if answer == OK and before == MUST_WAIT else answer

    def first_set(self, signal, number):
        """The node of the first set to a number or more; None if the host knows it to be complete.

        Returns DEAD if there is no such set.
        """
        if number == 0:
            return None
        for reached, node in signal.sets:
            if reached >= number:
                return None if node is None or self.oracle.known(node) else node
        return DEAD

    def wait_for_signal(self, stream, signal, number):
        node, answer = self.first_set(signal, number), self._usable(stream)
        if signal.closed:
            answer = MEMORY_CLOSED
        elif answer == OK and node is DEAD:
            answer = DEAD
        elif answer == OK and node is not None and stream.model.in_capture:
            answer = CAPTURED
        self.call("stream.wait(signal)", answer, lambda: stream.real.wait(signal.real, number))
        if answer == OK and node is not None:
            self.oracle.wait(stream.model, node)

    # ---- the host ----

    def synchronize_signal(self, signal, number):
        self._wait_on_host("signal.wait()", signal, number, lambda: signal.real.wait(number))

    def try_signal(self, signal, number):
        wait = in_time(lambda timeout: signal.real.wait(number, timeout=timeout))
        self._wait_on_host("signal.wait(timeout=0)", signal, number, wait)

    def _wait_on_host(self, what, signal, number, wait):
        node = self.first_set(signal, number)
        answer = MEMORY_CLOSED if signal.closed else DEAD if node is DEAD else OK
        reached = self.call(what, answer, wait)
        if answer == OK and node is None:
            self.agree(f"{what} of what the host knows", reached in (None, True), True)
        elif answer == OK and reached is not False and self.waited:
            self.oracle.synchronize(node)

    def ask_signal(self, signal):
        """Ask for the value."""
        answer = MEMORY_CLOSED if signal.closed else OK
        value = self.call("signal.value", answer, lambda: signal.real.value)
        if answer == OK:
            known = [n for n, node in signal.sets if node is None or self.oracle.known(node)]
            self.agree(
                "whether the number is one that was set", value in self._numbers(signal), True
            )
            self.agree(
                "whether it is at least the last known one", value >= max(known, default=0), True
            )
            node = dict(signal.sets).get(value)
            if node is not None:
                self.oracle.synchronize(node)

    def _numbers(self, signal):
        return {0, *(number for number, _ in signal.sets)}

    def set_on_host(self, signal, number):
        answer = MEMORY_CLOSED
        if not signal.closed:
            answer = self.oracle.judge_export(*signal.bytes_, "strict").answer
        if answer == OK and number <= signal.queued:
            answer = SMALLER
        self.call("signal.set()", answer, lambda: signal.real.set(number))
        if answer == OK:
            signal.queued = number
            signal.sets.append((number, None))

    def close_signal(self, signal):
        answer = OK if signal.closed else self.oracle.close_memory(signal.model)
        self.call("signal.close()", answer, signal.real.close)
