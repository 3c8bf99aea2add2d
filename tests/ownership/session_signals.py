"""The steps of a program with signals."""

from dataclasses import dataclass, field

import oracle as model
from effects import SetNumber, WaitForNumber
from oracle import CAPTURED, MEMORY_CLOSED, MUST_WAIT, OK, past
from oracle_graphs import SIGNALS
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

    # What uses of a graph ask of a buffer and its memory.
    is_signal = on_host = True
    kind, nbytes, layout, policy, stream, unused = "signal", 8, None, None, None, None
    moved = is_stream_ordered = part = False

    @property
    def memory(self):
        return self

    def use(self, mode):
        return self.model, 0, self.nbytes, mode

    def keep(self):
        return self

    def is_object(self, real):
        return False

    def goes_to(self, place):
        return True

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
        on = stream.model
        if on.capture is not None:
            node = self.issue(on, [(signal, "write")], SetNumber(signal, number, on))
            return Token(result, node, [], on, capture=on.capture)
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
        if stream.model.capture is not None:
            return self._judge_captured_set(stream.model, signal, number)
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

    def _judge_captured_set(self, on, signal, number):
        if not on.capture.takes_calls:
            return CAPTURED
        if number == 0 or on.capture.plan.set_in(signal, number):
            return SMALLER
        return self._judge_captured(on, [(signal, "write")])

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
        usable = self._usable(stream)
        if stream.model.capture is not None and usable == OK and not signal.closed:
            self._capture_wait(stream, signal, number)
            return
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

    def _capture_wait(self, stream, signal, number):
        """Capture a wait. If a node of the same graph sets the number, it is an edge."""
        on, capture = stream.model, stream.model.capture
        earlier = capture.plan.set_in(signal, number)
        answer = OK if capture.takes_calls else CAPTURED
        if earlier and earlier.node in past(capture.inside[on].last):
            earlier, known = None, True
        else:
            known = False
        if answer == OK and earlier:
            inside = capture.plan.operations.index(earlier) >= capture.first
            answer = self.oracle.judge_stream(earlier.effect.stream).answer if inside else CAPTURED
        self.call("stream.wait(signal)", answer, lambda: stream.real.wait(signal.real, number))
        if answer == OK and earlier:
            capture.wait_inside(on, earlier.node)
            capture.cover(on, earlier.effect.stream)
        elif answer == OK and not known:
            self.issue(on, [(signal, "shared")], WaitForNumber(signal, number))

    # ---- launches of graphs ----

    def judge_turn(self, on, content):
        """The answer that the signals of a graph give to a launch. The stream then waits for sets.

        A launch waits for sets that are queued, and sets larger numbers.
        """
        effects = [each.effect for each in content.operations if each.effect.kind in SIGNALS]
        waits = [each for each in effects if isinstance(each, WaitForNumber)]
        found = [self.first_set(each.signal, each.number) for each in waits]
        if DEAD in found:
            return DEAD
        last = {}
        for each in effects:
            if each not in waits:
                if each.number <= last.get(each.signal, each.signal.queued):
                    return SMALLER
                last[each.signal] = each.number
        for node in found:
            if node is not None:
                self.oracle.wait(on, node)
        return OK

    def take_turn(self, content, node):
        """Note and return the sets of a launch."""
        sets = [each.effect for each in content.operations if each.effect.kind == "set of a signal"]
        for each in sets:
            each.signal.queued = each.number
            each.signal.sets.append((each.number, node))
        return sets

    def lose_turn(self, content):
        """Note the sets of a queued launch after which a call has failed: no wait finds them."""
        for each in content.operations:
            if each.effect.kind == "set of a signal":
                each.effect.signal.queued = each.effect.number

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
