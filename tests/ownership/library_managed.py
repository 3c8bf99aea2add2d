"""The steps of random programs that move, discard and attach managed memory."""

from library_interop import InteropChoices

import cudadrv as cu

WEIGHTS = {"prefetch": 2, "discard": 3, "attach": 1.5, "move_to": 1.5}


class ManagedChoices(InteropChoices):
    def pick_managed(self):
        """Choose a few buffers of managed memory, or parts of them. [] if there are none."""
        found = [buffer for buffer in self.buffers if type(buffer.real) is cu.UnifiedBuffer]
        if not found:
            return []
        count = 2 if self.chance(0.3) and not self.session.failing else 1
        picked = [self.pick_usable(found, lambda buffer: not buffer.closed) for _ in range(count)]
        return [
            self.cut(buffer)[0] if self.chance(0.3) and not buffer.closed else buffer
            for buffer in picked
        ]

    def told(self, buffer):
        if buffer in self.buffers:
            return self.buffers.index(buffer)
        return "part", buffer.start, buffer.nbytes

    def pick_page_place(self):
        return self.random.choice(("host", cu.Device(0)))

    def prefetch(self):
        self.move(self.session.prefetch, self.pick_page_place())

    def discard(self):
        self.move(self.session.discard, self.pick_page_place() if self.chance(0.4) else None)

    def move(self, step, place):
        buffers = self.pick_managed()
        if not buffers:
            return
        stream = self.maybe_stream(False, None)
        batch = len(buffers) > 1 or (place is None and self.chance(0.2))
        told = [self.told(each) for each in buffers]
        self.note(step.__name__, *told, place, self.at(stream, self.streams), "batch" * batch)
        self.keep(step(buffers, place, stream, batch))

    def move_to(self):
        buffers, place = self.pick_managed(), self.pick_page_place()
        if not buffers:
            return
        stream = self.maybe_stream(True, buffers[0].memory.place)
        self.note("move", self.told(buffers[0]), "to", place, self.at(stream, self.streams))
        self.session.move_to(buffers[0], place, stream)

    def attach(self):
        buffers = self.pick_managed()
        stream = self.pick_stream()
        if not buffers or stream is None:
            return
        to = self.random.choice((stream, stream, "global", "host"))
        word = to if isinstance(to, str) else "to"
        self.note("attach", self.told(buffers[0]), word, self.streams.index(stream))
        self.keep(self.session.attach(buffers[0], to, stream))
