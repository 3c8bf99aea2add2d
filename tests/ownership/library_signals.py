"""The steps of random programs that use signals."""

from library_groups import GroupChoices

WEIGHTS = {
    "make_signal": 3,
    "set_signal": 20,
    "wait_for_signal": 20,
    "wait_for_signal_on_host": 8,
    "set_signal_on_host": 3,
    "close_signal": 2,
    "forget_signal": 1,
}
FAILURES = {
    "set_signal": ("cuStreamWriteValue64_v2", "cuEventRecord", "cuEventCreate"),
    "launch_graph": ("cuGraphLaunch", "cuEventRecord", "cuEventCreate"),
}
MOST_SIGNALS = 3


class SignalChoices(GroupChoices):
    def __init__(self, seed):
        super().__init__(seed)
        self.signals = []

    def make_signal(self):
        if len(self.signals) < MOST_SIGNALS:
            place = self.pick_place()
            self.note("signal", len(self.signals), *self.where(place))
            self.signals.append(self.session.make_signal(place))

    def pick_signal(self):
        if not self.signals:
            self.make_signal()
        return self.pick_usable(self.signals, lambda signal: not signal.closed)

    def pick_number(self, signal):
        """Choose a number for a wait: most often one that some set reaches."""
        return max(0, signal.queued + self.random.choice((-2, -1, 0, 0, 0, 0, 1)))

    def next_number(self, signal):
        """Choose a number for a set: most often a larger one."""
        return max(0, signal.queued + self.random.choice((1, 1, 1, 2, 3, 0, -1)))

    def set_signal(self):
        self.set_signal_on(self.pick_stream())

    def set_signal_on(self, stream):
        signal = self.pick_signal()
        if stream is not None:
            number = self.next_number(signal)
            if stream.model.capture is not None and self.chance(0.7):
                number += stream.model.capture.plan.last_of(signal)
            told = self.signals.index(signal), number, self.streams.index(stream)
            self.note("set signal", *told)
            self.keep(self.session.set_on_stream(stream, signal, number))

    def wait_for_signal(self):
        self.wait_for_signal_on(self.pick_stream())

    def wait_for_signal_on(self, stream):
        signal = self.pick_signal()
        if stream is not None:
            number = self.pick_number(signal)
            told = self.streams.index(stream), self.signals.index(signal), number
            self.note("stream waits for signal", *told)
            self.session.wait_for_signal(stream, signal, number)

    def wait_for_signal_on_host(self):
        signal = self.pick_signal()
        number, verb = self.pick_number(signal), self.random.choice(("synchronize", "try", "ask"))
        self.note(verb, "signal", self.signals.index(signal), number)
        arguments = () if verb == "ask" else (number,)
        getattr(self.session, f"{verb}_signal")(signal, *arguments)

    def set_signal_on_host(self):
        signal = self.pick_signal()
        number = self.next_number(signal)
        self.note("host sets signal", self.signals.index(signal), number)
        self.session.set_on_host(signal, number)

    def close_signal(self):
        if self.signals:
            signal = self.pick(self.signals)
            self.note("close signal", self.signals.index(signal))
            self.session.close_signal(signal)

    def forget_signal(self):
        """Drop a signal. Its memory stays until its sets are complete."""
        if self.signals:
            at = self.random.randrange(len(self.signals))
            self.note("forget signal", at)
            del self.signals[at]
