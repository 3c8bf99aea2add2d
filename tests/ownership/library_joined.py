"""The steps of random programs that take part in captures of other libraries."""

from library_building import BuildChoices
from session import DEFAULTS

WEIGHTS = {"join_capture": 6, "launch_joined": 14, "close_joined": 4, "join_nobody": 1}
OF_JOINED = tuple(WEIGHTS)
MOST_JOINED = 3


class JoinedChoices(BuildChoices):
    def pick_free(self):
        """Choose a stream on which another library may capture or launch, or None."""
        streams = [stream for stream in self.streams if stream.kind not in DEFAULTS]
        streams = [s for s in streams if self.is_usable(s) and not s.model.in_capture]
        return self.pick(streams) if streams else None

    def join_capture(self):
        """Let another library capture a graph, and take part with a few steps."""
        stream = self.pick_free()
        if stream is None or len(self.session.joined) >= MOST_JOINED:
            return
        self.note("capture of another library", self.streams.index(stream))
        joined = self.session.begin_theirs(stream)
        if self.chance(0.2):
            self.session.use_theirs(joined)
        self.session.join(joined)
        self.blocks.append(joined)
        self.do_inside()
        if self.chance(0.1):
            self.note("close early")
            self.session.close_early(joined)
        if self.chance(0.1):
            self.note("join again")
            self.session.join_nobody(stream)
        if self.chance(0.9):
            self.join_all(joined)
        self.end_joined(joined)

    def end_joined(self, joined):
        if self.chance(0.1):
            self.note("the other library ends its capture first")
            self.session.end_theirs(joined)
            self.session.use_ended(joined)
        way = "block" if self.chance(0.93) else "exception"
        self.note("end of our part", way)
        self.blocks.remove(joined)
        self.session.leave_theirs(joined, way)
        if joined.capturing:
            if self.chance(0.2):
                self.session.use_theirs(joined)
            self.session.end_theirs(joined)

    def join_nobody(self):
        stream = self.pick_free()
        if stream is not None:
            self.note("join nobody", self.streams.index(stream))
            self.session.join_nobody(stream)

    def launch_joined(self):
        found = [joined for joined in self.session.joined if joined.executable]
        stream = self.pick_free()
        if found and stream is not None:
            joined = self.pick(found)
            told = self.session.joined.index(joined), self.streams.index(stream)
            self.note("launch graph of another library", *told)
            if stream.place is joined.stream.place:
                self.session.launch_theirs_graph(joined, stream, self.loans)

    def close_joined(self):
        if self.session.joined:
            joined = self.pick(self.session.joined)
            self.note("close part", self.session.joined.index(joined))
            self.session.close_theirs(joined)
            self.close_used(joined)

    def close_used(self, joined):
        """Try to close a buffer that the block used. It can be closed only after the block."""
        used = {buffer.memory for each in joined.kept.operations for buffer, _ in each.uses}
        found = [b for b in self.buffers if b.memory in used and not b.part and not b.closed]
        if found and self.chance(0.6):
            buffer = self.pick(found)
            self.note("  and buffer", self.buffers.index(buffer))
            self.session.close(buffer)
            self.replace()

    def contents(self):
        ended = [each for each in self.session.joined if each not in self.blocks]
        return [*super().contents(), *(each.kept.content() for each in ended)]
