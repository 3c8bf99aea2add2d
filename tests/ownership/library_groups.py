"""The steps of random programs with blocks of streams, groups of streams, and times of events."""

from library_offload import OffloadChoices
from session_buffers import is_filled

WEIGHTS = {"open_group": 2, "work_of_group": 20, "end_group_of_streams": 2.5, "elapsed": 4}
OF_GROUPS = ("open_group", "work_of_group", "end_group_of_streams")
MOST_GROUPS = 2
MOST_BLOCKS = 3


class GroupChoices(OffloadChoices):
    def __init__(self, seed):
        super().__init__(seed)
        self.groups = []

    # ---- blocks of streams ----

    def current_stream(self):
        """Begin or end a block of a stream."""
        blocks = self.session.blocks
        if blocks and (len(blocks) == MOST_BLOCKS or self.chance(0.7)):
            self.leave_stream()
        else:
            stream, scope = self.pick_stream(), self.chance(0.5)
            self.note("enter", "scope of" * scope, self.streams.index(stream))
            self.session.enter_stream(stream, scope)

    def leave_stream(self):
        """End a block, most often the innermost one. Generators can end blocks in any order."""
        blocks = self.session.blocks
        at = len(blocks) - 1
        if self.chance(0.15):
            later = [block.stream for block in blocks]
            # The library ends the innermost block of a stream.
            at = self.random.choice([i for i in range(at + 1) if later[i] not in later[i + 1 :]])
        raises = self.chance(0.3)
        self.maybe_close(blocks[at].stream)
        self.note("leave block", at, "by an exception" * raises)
        self.session.leave_stream(at, raises)

    def maybe_close(self, stream):
        """In one of ten cases, close a stream while a block of it is still open."""
        if self.chance(0.1):
            self.note("close stream", self.streams.index(stream))
            self.session.close_stream(stream)

    def interrupt_scope(self, stream):
        """Interrupt the wait at the end of a scope."""
        self.session.interrupting = False
        self.session.enter_stream(stream, scope=True)
        self.session.interrupting = True
        self.session.leave_stream(raises=self.chance(0.5))

    def await_scope(self, loop):
        stream = self.pick_stream()
        buffer, value = self.pick_buffer(place=stream.place), self.random.randrange(256)
        if buffer is None or not is_filled(buffer):
            return
        self.note("await scope of", self.streams.index(stream), self.buffers.index(buffer), value)
        fill = lambda: self.session.fill(buffer, value)  # noqa: E731
        self.session.await_scope(stream, loop, fill)

    # ---- groups ----

    def open_group(self):
        if len(self.groups) < MOST_GROUPS:
            place, count = self.pick_place(), self.random.choice((1, 2, 2, 3))
            self.note("group of streams", len(self.streams), count, *self.where(place))
            group = self.session.open_group(count, place)
            self.groups.append(group)
            self.streams += group.streams

    def pick_group(self):
        return self.pick_usable(self.groups, lambda group: not group.closed)

    def work_of_group(self):
        group = self.pick_group()
        if group is not None:
            ways = [self.take_turns] * 3 + [self.wait_of_group] * 3 + [self.change_scope] * 2
            self.random.choice([*ways, self.synchronize_group])(group, self.groups.index(group))

    def take_turns(self, group, at):
        """Queue a fill on the next stream of the group."""
        self.note("next of group", at)
        stream = self.session.next_of_group(group)
        if stream is None:
            return
        buffer, value = self.pick_buffer(place=stream.place), self.random.randrange(256)
        if buffer is not None and is_filled(buffer):
            self.note("  which fills", self.buffers.index(buffer), value)
            self.keep(self.session.fill(buffer, value, stream))

    def wait_of_group(self, group, at):
        things = self.random.choice([x for x in (self.streams, self.events, self.tokens) if x])
        thing = self.pick(things)
        self.note("group", at, "waits for", type(thing).__name__, things.index(thing))
        self.session.wait_of_group(group, thing)

    def synchronize_group(self, group, at):
        self.note("synchronize group", at)
        self.session.synchronize_group(group)

    def change_scope(self, group, at):
        """Begin or end a `with group.scope()` block."""
        if group.scope is None:
            self.note("enter group", at)
            self.session.enter_group(group)
        else:
            raises = self.chance(0.3)
            self.maybe_close(self.pick(group.streams or self.streams))
            self.note("leave group", at, "by an exception" * raises)
            self.session.leave_group(group, raises)

    def end_group_of_streams(self):
        """Close a group, or drop the last reference to it. A dropped group's streams stay open."""
        group = self.pick_group()
        if group is None:
            return
        at = self.groups.index(group)
        if self.chance(0.6):
            self.note("close group", at)
            self.session.close_group(group)
        elif group.scope is None:
            self.note("forget group", at)
            del self.groups[at]

    def leave_groups(self):
        for group in self.groups:
            if group.scope is not None:
                self.session.leave_group(group, raises=False)

    # ---- times ----

    def elapsed(self):
        """Ask for the time between two events, which most often are complete."""
        for _ in range(2 - sum(map(has_time, self.events))):
            self.record_time()
        if not self.events:
            return
        end, start = (self.pick_usable(self.events, has_time) for _ in range(2))
        self.note("elapsed", self.events.index(end), self.events.index(start))
        for event in (end, start) if self.chance(0.6) else ():
            self.note("  wait for", self.events.index(event))
            self.session.synchronize_event(event)
        self.session.elapsed(end, start)

    def record_time(self):
        stream = self.pick_stream(self.session.places[0])
        if stream is None:
            return
        event = self.session.make_event(stream.place, timing=True)
        self.events.append(event)
        self.note("record a time", len(self.events) - 1, self.streams.index(stream))
        self.session.record(stream, event)


def has_time(event):
    return event.timing and event.model.open and event.model.snapshot is not None
