"""The steps of random programs that offload arrays for a block."""

from library_choices import NBYTES, Choices
from oracle import Ambiguous
from session_arrays import Array

WEIGHTS = {"offload": 3}
MOST_OFFLOADS = 2


class OffloadChoices(Choices):
    def __init__(self, seed):
        super().__init__(seed)
        self.offloads = []

    def offload(self):
        """Begin or end a block, in which some arrays are offloaded to a device."""
        if self.offloads and (len(self.offloads) == MOST_OFFLOADS or self.chance(0.6)):
            at, raises = self.random.randrange(len(self.offloads)), self.chance(0.2)
            self.note("end offload", at, "by an exception" * raises)
            self.session.end_offload(self.offloads.pop(at), raises)
        else:
            self.begin_offload()

    def begin_offload(self):
        place = self.pick_place()
        stream = self.maybe_stream(True, place)
        place = place if stream is None else stream.place
        if stream is not None and stream.model.in_capture:
            return
        ways = self.random.choices(("in", "out", "in and out"), k=self.random.randint(1, 3))
        arrays = [Array(self.bytes(self.random.choice((NBYTES, 8))), way) for way in ways]
        self.note("offload", len(self.offloads), *ways, self.at(stream, self.streams))
        block = self.session.begin_offload(arrays, stream, place)
        if block is not None:
            self.offloads.append(block)
            for buffer in block.buffers:
                self.add(buffer, "of offload")

    def end_offloads(self):
        while self.offloads:
            block = self.offloads.pop()
            try:
                self.session.end_offload(block, raises=False)
            except Ambiguous:
                self.session.end_offload(block, raises=True)
