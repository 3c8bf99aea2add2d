"""The steps of random programs that capture graphs and launch them."""

from library_managed import ManagedChoices
from oracle_graphs import SIGNALS, leaves

WEIGHTS = {"capture": 16, "instantiate": 3, "launch_graph": 45, "end_graph": 3}
WEIGHTS |= {"capture_alike": 8, "set_node": 40, "enable_node": 8, "update": 12}
WEIGHTS |= {"build": 9, "add_node": 9, "branch": 8}
OF_GRAPHS = tuple(WEIGHTS)
MORE = ("discard", "part", "change_policy")  # steps that are more frequent in programs with graphs
# The steps that run in the block of a capture, and their weights.
INSIDE = {
    "copy": 34,
    "fill": 20,
    "launch": 22,
    "launch_prepared": 8,
    "launch_of_module": 6,
    "fork": 12,
    "join": 8,
    "wait": 5,
    "record": 5,
    "copy_in": 1,
    "copy_out": 1,
    "prefetch": 0.5,
    "discard": 0.5,
    "synchronize": 1.5,
    "ask": 1.5,
    "synchronize_context": 0.4,
    "close_stream": 0.7,
    "open_stream": 1,
    "close_event": 0.7,
    "change_policy": 1.5,
    "current_stream": 1,
    "work_of_group": 1,
    "end_group_of_streams": 0.3,
    "elapsed": 0.5,
    "allocate": 2,
    "part": 2,
    "view_as": 1,
    "take": 0.7,
    "close_buffer": 2,
    "forget_buffer": 2,
    "forget_token": 1,
    "reap": 0.3,
    "access": 3,
    "open_view": 1.5,
    "use_view": 1,
    "close_view": 1,
    "launch_graph": 2,
    "instantiate": 0.5,
    "end_graph": 0.7,
    "capture": 0.7,
    "constant": 1,
    "add_node": 1,
    "lend_and_use": 12,
    "lend": 4,
    "use_loan": 8,
    "end_loan": 4,
    "hold": 4,
    "export": 2,
    "turns": 1,
}
MOST_INSIDE = 18


class GraphChoices(ManagedChoices):
    def __init__(self, seed):
        super().__init__(seed)
        self.graphs, self.executables, self.blocks = [], [], []

    # ---- choices ----

    def captured(self, place=None):
        """The streams that take part in a capture."""
        return [
            stream
            for stream in self.streams
            if stream.model.capture and (place is None or stream.place is place)
        ]

    def pick_stream(self, place=None):
        """Choose a stream.

        In the block of a capture, most often choose one of the captured streams.
        """
        captured = self.captured(place)
        if captured and self.chance(0.85):
            return self.pick_usable(captured, self.is_usable)
        return super().pick_stream(place)

    def pick_open(self, things):
        return self.pick_usable(things, lambda thing: not thing.closed)

    # ---- captures ----

    def capture(self):
        """Capture a graph: a few steps in the block of a capture, and its end."""
        graph = None if self.chance(0.8) else self.pick_open(self.graphs)
        if graph is None:
            graph = self.session.make_graph(self.random.choice(("step", None)))
            self.graphs.append(graph)
        stream = self.maybe_stream(False, None)
        after = self.pick_after(graph).indices if self.chance(0.8) else None
        told = self.graphs.index(graph), self.at(stream, self.streams), after
        self.note("capture graph", *told)
        block = self.session.begin(graph, stream, after)
        if block is None:
            return
        self.blocks.append(block)
        if self.chance(0.03):  # as if a signal came before the first line of the block
            self.end_capture(block, "dropped")
            return
        self.do_inside()
        if self.chance(0.9):
            self.join_all(block)
        if self.chance(0.3):
            self.end_array(block)
        self.end_capture(block, "block" if self.chance(0.93) else "exception")
        if graph.kept and self.chance(0.7):
            self.make_executable(graph)

    def do_inside(self):
        """Do a few steps in the block of a capture."""
        steps = self.random.randint(2, MOST_INSIDE)
        inside = INSIDE | ({"call_function": 12} if self.calls_functions else {})
        inside |= {"set_signal": 12, "wait_for_signal": 12} if self.uses_signals else {}
        weights = [inside[name] * self.random.choice((0.3, 1, 1, 2)) for name in inside]
        for name in self.random.choices(tuple(inside), weights, k=steps):
            if name in self.weights and not self.weights[name]:
                continue
            self.in_some_thread(getattr(self, name))

    def end_array(self, block):
        """End an array of another library directly before the capture's block ends."""
        found = [each for each in self.holders if each.lent.capture is block.model]
        if found:
            holder = self.pick(found)
            self.note("end holder", self.holders.index(holder))
            self.holders.remove(holder)
            self.session.end_holder(holder)

    def end_capture(self, block, way):
        self.note("end of capture of graph", self.graphs.index(block.graph), way)
        self.blocks.remove(block)
        self.session.end(block, way)

    def in_some_thread(self, step):
        """Do a step in the block of a capture. The block goes on if the step makes no call."""
        with self.no_call_if_ambiguous():
            if self.session.here is self.session.main:
                self.do(step)
            else:
                step()

    def lend_and_use(self):
        """Lend a buffer to a captured stream, and let the borrower use it.

        Most often use a `with` block.
        """
        streams = [stream for stream in self.captured() if self.is_usable(stream)]
        stream = self.pick(streams) if streams else None
        buffer = self.pick_buffer(place=stream and stream.place)
        if stream is None or buffer is None or self.is_of_one_thread(stream):
            return
        self.note("lend to capture", self.buffers.index(buffer), self.streams.index(stream))
        loan = self.session.lend(buffer, stream, readonly=self.chance(0.2))
        if loan is None:
            return
        self.loans.append(loan)
        if not self.session.enter(loan):
            self.loans.remove(loan)
            return
        for _ in range(self.random.randint(0, 2)):
            if self.chance(0.2):
                self.order_somehow(self.pick(streams), stream)
            value = self.random.randrange(256)
            self.note("  which fills it", value)
            self.session.use_lent(loan.entered, value)
        if self.chance(0.7):
            self.note("  and ends")
            self.end_block(loan)

    def end_block(self, loan):
        self.session.leave(loan)
        self.loans.remove(loan)
        self.session.drop_loan(loan)

    def fork(self):
        """Let a stream wait for a captured stream, so that it joins the capture."""
        captured = [stream for stream in self.captured() if self.is_usable(stream)]
        place = captured[-1].place if captured else None
        others = [
            stream
            for stream in self.streams
            if self.is_usable(stream) and stream.place is place and stream not in captured
        ]
        if captured and others:
            self.order_somehow(self.pick(others), self.pick(captured))

    def join(self):
        """Let a captured stream wait for another captured stream."""
        captured = [stream for stream in self.captured() if self.is_usable(stream)]
        if captured:
            self.order_somehow(self.pick(captured), self.pick(captured))

    def order_somehow(self, stream, other):
        """Let a stream wait for another stream, or for one of that stream's operations."""
        tokens = [
            token
            for token in self.tokens
            if token.capture is other.model.capture and token.stream is other.model
        ]
        if tokens and self.chance(0.6):
            token = self.pick(tokens)
            told = self.streams.index(stream), self.tokens.index(token)
            self.note("stream", told[0], "waits for token", told[1])
            self.session.wait_for_token(stream, token)
        else:
            self.order_after(stream, other)

    def order_after(self, stream, other):
        self.note("stream", self.streams.index(stream), "waits for", self.streams.index(other))
        self.session.wait_for_stream(stream, other)

    def join_all(self, block):
        """Let the origin stream of a capture wait for all other usable streams of the capture."""
        origin = next(each for each in self.streams if each.model is block.model.origin)
        if not self.is_usable(origin):
            return
        for stream in self.streams:
            if stream.model.capture is block.model and self.is_usable(stream):
                self.order_after(origin, stream)

    # ---- graphs ----

    def instantiate(self):
        graph = self.pick_open(self.graphs)
        if graph is not None:
            self.make_executable(graph)

    def make_executable(self, graph):
        self.note("instantiate graph", self.graphs.index(graph), "as", len(self.executables))
        made = self.session.instantiate(graph)
        if made is not None:
            self.executables.append(made)

    def launch_graph(self):
        executable = self.pick_open(self.executables)
        if executable is None:
            return
        stream = self.maybe_stream(False, executable.place)
        told = self.executables.index(executable), self.at(stream, self.streams)
        if stream is not None and self.is_usable(stream) and self.chance(0.3):
            self.discard_lent(executable, stream)
        found = leaves(executable.content.enabled)
        used = {use[0].memory for each in found for use in each.uses if not use[0].is_signal}
        watched = [each for each in self.buffers if each.memory in used and not each.closed]
        whole = {each.memory for each in watched if each.nbytes == each.memory.model.nbytes}
        if self.session.failing and whole != used:
            return
        may_fail = self.session.software and not self.session.failing and whole == used
        tokens, fails = [], False
        counts = (1, 2, 4, 4) if may_fail else (1, 1, 2, 4)
        for number in range(self.random.choice(counts)):  # later launches take a faster path
            if number and self.chance(0.3):
                stream = self.pick_stream(executable.place)
                told = *told[:1], self.at(stream, self.streams)
            if self.chance(0.85):
                self.number_anew(executable)
            fails = number > 1 and may_fail and self.chance(0.4)
            self.note("launch executable", *told, *(("and it fails",) if fails else ()))
            tokens.append(self.session.launch_graph(executable, stream, watched, fails))
            self.keep(tokens[-1])
            if fails:
                break
        queued = [token for token in tokens if token is not None]
        if len(tokens) > 1 and queued and (fails or self.chance(0.7)):
            self.wait_for_one(queued)

    def number_anew(self, executable):
        """Give the nodes of signals numbers with which the executable can be launched."""
        if executable.closed or executable.orphan is not False or not executable.content.paired:
            return
        last = {}
        for index, operation in enumerate(executable.content.operations):
            if operation.effect.kind in SIGNALS:
                signal = operation.effect.signal
                number = self.random.randint(0, signal.queued)
                if operation.effect.kind == "set of a signal":
                    number = last[signal] = last.get(signal, signal.queued) + 1
                self.note("set", self.executables.index(executable), index, number)
                self.session.set_number(executable, index, "index", number)

    def wait_for_one(self, tokens):
        """Wait for one of several launches that were made one after the other."""
        which = self.random.choice((0, 0, len(tokens) - 1, self.random.randrange(len(tokens))))
        self.note("  wait for number", which, "of them")
        self.session.synchronize_token(tokens[which])
        for buffer in self.buffers:
            self.session.compare_borrows(buffer)

    def discard_lent(self, executable, stream):
        """Discard bytes that a graph lends. Without the loan, the graph could not read them."""
        used = leaves(executable.content.enabled)
        lent = {buffer.memory for each in used if each.lends for buffer, _ in each.uses}
        found = [b for b in self.buffers if b.memory in lent and b.memory.kind == "unified"]
        if found and not self.session.failing:
            buffer = self.pick(found)
            self.note("discard", self.buffers.index(buffer), self.streams.index(stream))
            self.keep(self.session.discard([buffer], None, stream, batch=False))

    def end_graph(self):
        """Close a graph or an executable, or drop the last reference to it."""
        things, kind = self.random.choice(
            ((self.graphs, "graph"), (self.executables, "executable"))
        )
        grown = [each for each in self.graphs if not each.closed and self.added_later(each)]
        if grown and self.chance(0.7):
            things, kind, thing = self.graphs, "graph", self.pick(grown)
        else:
            thing = self.pick_open(things)
        if thing is None:
            return
        told = kind, things.index(thing)
        later = self.added_later(thing) if kind == "graph" else []
        if self.chance(0.5):
            self.note("close", *told)
            self.session.close_graph(thing)
        elif not thing.root.busy:
            self.note("forget", *told)
            if thing.root is thing:  # each body keeps its root graph alive
                things[:] = [each for each in things if each.root is not thing]
            else:
                things.remove(thing)
            self.session.drop_graph(thing)
        if later:
            buffer = self.pick(later)
            self.note("close", self.buffers.index(buffer), "which no executable holds")
            self.session.close(buffer, None)
            self.replace()

    def added_later(self, graph):
        """Buffers that a graph holds, and that executables which were made from it do not hold."""
        held = {memory for memory, _ in graph.holding.held} if graph.holding else set()
        executables = [each for each in graph.made if not each.closed]
        for each in executables:
            held -= {memory for memory, _ in each.holding.held}
        whole = [each for each in self.buffers if not each.part and not each.closed]
        return [each for each in whole if executables and each.memory.model in held]

    def compare_sizes(self):
        """Compare the sizes of the buffers in all graphs and executables that can be used now."""
        for each in self.graphs:
            if each.kept and not each.closed and not each.root.busy:
                self.session.compare_sizes(each, each.kept.operations)
        for each in self.executables:
            if not each.closed and each.orphan is False:
                self.session.compare_sizes(each, each.content.operations)

    def contents(self):
        """The operations that graphs, captures and executables contain."""
        kept = [each.kept.content() for each in self.graphs if each.kept and not each.closed]
        kept += [block.model.plan.content() for block in self.blocks]
        kept += [each.content for each in self.executables if not each.closed]
        return kept

    def kept_buffers(self):
        """The buffers that graphs keep alive."""
        found = [leaf for each in self.contents() for leaf in leaves(each.operations)]
        idle = [buffer for leaf in found for buffer in getattr(leaf.effect, "buffers", ())]
        return [*idle, *(buffer for leaf in found for buffer, _ in leaf.uses)]

    def is_of_graph(self, stream):
        """Whether a graph refers to a stream, or keeps memory that refers to the stream."""
        return any(stream.model in each.streams for each in self.contents()) or any(
            buffer.memory.stream is stream for buffer in self.kept_buffers()
        )

    def has_parts(self, whole):
        kept = [each for each in self.kept_buffers() if each.memory is whole.memory]
        parts = [each for each in kept if not each.is_object(whole.real) and not each.moved]
        return bool(parts) or super().has_parts(whole)
