"""The steps of random programs that change what executable graphs do."""

from library_graphs import GraphChoices
from oracle_graphs import CHANGED, SIGNALS, leaves
from session_buffers import is_filled
from session_kernels import MODES

WAYS = ("index", "index from the end", "node")
KINDS = ("fill", "fill", "copy", "copy", "launch", "lend", "wait")


class ChangeChoices(GraphChoices):
    def __init__(self, seed):
        super().__init__(seed)
        self.patterns = []

    # ---- graphs that are alike ----

    def capture_alike(self):
        """Capture a graph whose operations often fit the operations of another graph."""
        if len(self.patterns) < 2 and self.chance(0.6):
            kinds = (*KINDS, *("call",) * self.calls_functions)
            kinds += ("set", "wait for signal") * self.uses_signals
            kinds += ("copy to another context", "copy from another context") * self.several
            pattern = tuple(self.random.choices(kinds, k=self.random.randint(1, 4)))
            self.patterns.append(tuple((kind, self.random.randrange(2)) for kind in pattern))
        if not self.patterns:
            return
        graph, stream = self.session.make_graph("alike"), self.pick_stream()
        if not self.is_usable(stream):
            return
        graph.pattern = self.pick(self.patterns)
        self.graphs.append(graph)
        self.note("capture graph", len(self.graphs) - 1, self.streams.index(stream), graph.pattern)
        block = self.session.begin(graph, stream)
        if block is None:
            return
        self.blocks.append(block)
        others = [each for each in self.streams if each is not stream and self.is_usable(each)]
        others = [each for each in others if each.place is stream.place]
        lanes = stream, self.pick(others) if others else stream
        for kind, lane in graph.pattern:
            self.do_alike(kind, lanes[lane], lanes[0])
        self.join_all(block)
        self.end_capture(block, "block")
        if graph.kept and self.chance(0.8):
            self.make_executable(graph)

    def do_alike(self, kind, stream, first):
        if kind == "wait" or stream.model.capture is not first.model.capture:
            self.order_after(stream, first)
        found = [b for b in self.buffers if b.goes_to(stream.place) and not b.closed and b.nbytes]
        if kind == "set":
            self.set_signal_on(stream)
        elif kind == "wait for signal":
            self.wait_for_signal_on(stream)
        if kind in ("wait", "set", "wait for signal") or not found:
            return
        buffer, other = self.pick(found), self.pick(found)
        if kind.endswith("another context"):
            other = self.pick_elsewhere(buffer)
            if other is None:
                return
            if kind == "copy to another context":
                buffer, other = other, buffer
            kind = "copy"
        told = self.buffers.index(buffer), self.streams.index(stream)
        if kind == "fill" and is_filled(buffer):
            self.note("fill", *told)
            self.session.fill(buffer, self.random.randrange(256), stream)
        elif kind == "copy":
            other, cut = self.like(other, buffer) if other.nbytes >= buffer.nbytes else (None, None)
            if other is not None:
                self.give_access_for(stream.place, buffer, other)
                self.note("copy", *told, cut)
                self.session.copy(buffer, other, stream)
        elif kind == "lend" and not self.is_of_one_thread(stream):
            self.lend_alike(buffer, stream, *told)
        elif kind == "call":
            hosts, more = self.pick_hosts()
            if hosts is not None:
                self.note("call", *more, *told[1:])
                self.session.call_function(*hosts, stream)
        elif kind == "launch":
            self.note("launch", *told)
            self.session.launch(buffer, other, other, stream)

    def lend_alike(self, buffer, stream, *told):
        loan = self.session.lend(buffer, stream)
        if loan is None:
            return
        self.loans.append(loan)
        if self.session.enter(loan):
            value = self.random.randrange(256)
            self.note("lend", *told, "for a fill", value)
            self.session.use_lent(loan.entered, value)
            self.end_block(loan)
        else:
            self.loans.remove(loan)

    # ---- changes ----

    def pick_node(self):
        """Choose a node: an executable, the index of an operation, and a way to refer to it."""
        executable = self.pick_open(self.executables)
        if executable is None or not executable.content.operations or executable.orphan is None:
            return None
        index = self.random.randrange(len(executable.content.operations))
        return executable, index, self.random.choice(WAYS)

    def set_node(self):
        node = self.pick_node()
        if node is None:
            return
        executable, index, way = node
        content = executable.content
        lends = any(each.lends for each in leaves(content.operations))
        if has_loose_loans(content) or (lends and len(content.streams) > 1):
            return  # if the graph has loans, the library refuses more changes than the oracle
        kind = executable.content.operations[index].effect.kind
        self.note("set", self.executables.index(executable), index, way, kind)
        if executable.closed or kind not in CHANGED or kind == "box copy" or self.chance(0.04):
            self.session.set_wrongly(*node)
        elif kind in ("add", "swap", "peek", "steer") and self.chance(0.15):
            self.session.set_shape(*node, self.random.choice((0, 64)))
        elif kind in SIGNALS:
            self.set_number(*node)
        else:
            getattr(self, f"set_{kind}")(*node)

    def near(self, executable):
        """Choose the context of a change's buffers: most often the executable's. None means any."""
        return None if self.chance(0.05) else executable.place

    def set_copy(self, *node):
        executable, index, _ = node
        sides = self.random.choice((("target",), ("source",), ("target", "source")))
        target = source = None
        old = [buffer for buffer, _ in executable.content.operations[index].uses]
        if "target" in sides:
            target = self.pick_alike(old[0], executable, index)
        if "source" in sides:
            source = self.pick_alike(old[1], executable, index)
        if "target" in sides and "source" in sides and target.nbytes <= source.nbytes:
            source, _ = self.like(source, target)
        elif "target" in sides and "source" in sides:
            target, _ = self.like(target, source)
        elif not executable.closed:
            which = "read" if target is not None else "write"
            stays = self.session.shown(executable, index, which)
            fits = (target or source).nbytes >= stays.nbytes
            made = self.like(target or source, stays)[0] if fits else target or source
            target, source = (target and made), (source and made)
        if target is not None or source is not None:
            told = [each and (self.at_or_new(each)) for each in (target, source)]
            self.note("  to", *told)
            self.session.set_copy(*node, target, source)

    def at_or_new(self, buffer):
        known = self.buffers.index(buffer) if buffer in self.buffers else "a part"
        return known, buffer.start, buffer.nbytes

    def pick_beside(self, executable, index):
        """Choose a buffer that an unordered node uses. A change to this buffer must be refused.

        Returns None if there is none.
        """
        content = executable.content
        uses = [x for each in leaves(content.beside(content.operations[index])) for x in each.uses]
        memories = {buffer.memory for buffer, _ in uses}
        found = [b for b in self.buffers if b.memory in memories and not b.closed and b.nbytes]
        return self.pick(found) if found and self.chance(0.4) else None

    def pick_alike(self, old, executable, index):
        """Choose a buffer in place of `old`: most often both or neither are page-locked."""
        if (found := self.pick_beside(executable, index)) is not None:
            return found
        place = self.near(executable)
        if place is not None and not old.goes_to(place):  # a copy between two contexts
            place = old.memory.place
        found = [
            b for b in self.buffers if (b.memory.kind == "locked") == (old.memory.kind == "locked")
        ]
        found = [b for b in found if place is None or b.goes_to(place)]
        if not found or self.chance(0.1):
            return self.pick_buffer(place=place) or self.buffers[0]
        return self.pick_usable(found, lambda buffer: not buffer.closed)

    def set_fill(self, *node):
        executable, index, _ = node
        old = executable.content.operations[index]
        target = value = meddle = None
        if self.chance(0.7):
            target = self.pick_alike(old.uses[0][0], executable, index)
            if not target.closed and target.real.dtype != old.effect.dtype and self.chance(0.9):
                target = self.view_of(target, [old.effect.dtype])
        if target is None or self.chance(0.5):
            value = self.random.randrange(256)
        if value is not None and old.effect.dtype.kind != "V" and self.chance(0.1):
            meddle = lambda: self.session.meddle(executable, index)  # noqa: E731
        self.note("  to", target and self.at_or_new(target), value, "meddling" * bool(meddle))
        if target is None or target.closed or is_filled(target):
            self.session.set_fill(*node, target, value, meddle)

    def set_number(self, *node):
        effect = node[0].content.operations[node[1]].effect
        pick = self.next_number if effect.kind == "set of a signal" else self.pick_number
        number = pick(effect.signal)
        self.note("  to", number)
        self.session.set_number(*node, number)

    def set_call(self, *node):
        hosts, told = self.pick_hosts()
        if hosts is not None:
            self.note("  to", *told)
            self.session.set_call(*node, *hosts)

    def set_add(self, *node):
        place = self.near(node[0])
        out, a, b = (self.pick_buffer(place=place) or self.buffers[0] for _ in range(3))
        out = self.pick_beside(*node[:2]) or out
        more = None
        if self.chance(0.6):
            more = [(self.pick_buffer(place=place) or out, self.random.choice(tuple(MODES)))]
            more = self.random.choice(([], more))
        modes = self.declared(self.random.choice((("read", "read"), ("read", "write"))))
        told = [self.buffers.index(each) for each in (out, a, b)]
        self.note("  to", *told, *modes, *((self.buffers.index(each), m) for each, m in more or ()))
        if not any(each.closed for each in (out, a, b, *(each for each, _ in more or ()))):
            self.session.set_launch(*node, (out, a, b), modes, more)

    def set_swap(self, *node):
        buffer, executable = self.pick_buffer(place=self.near(node[0])), node[0]
        _, (variable, _) = executable.content.operations[node[1]].uses
        if buffer is not None and self.session.can_swap(buffer, variable):
            self.note("  to", self.buffers.index(buffer))
            self.session.set_variables(*node, buffer)

    set_peek = set_swap

    def set_steer(self, *node):
        value = self.random.randrange(3)
        self.note("  to", value)
        self.session.set_steer(*node, value)

    def enable_node(self):
        node = self.pick_node()
        if node is not None:
            enabled = self.chance(0.5)
            self.note("enable", self.executables.index(node[0]), *node[1:], enabled)
            self.session.enable(*node, enabled)

    def contents_of(self, graph):
        return [graph.kept.content()] if graph.kept and not graph.closed else []

    def update(self):
        executable, graph = self.pick_open(self.executables), self.pick_open(self.graphs)
        if executable is None or graph is None or executable.orphan is None:
            return
        alike = [
            each for each in self.graphs if each.pattern and each.pattern is executable.pattern
        ]
        if alike and self.chance(0.8):
            graph = self.pick(alike)
        if executable.content.conditions and graph.root.kept and graph.root.kept.conditions:
            return  # it is not specified whose conditions the nodes would have afterwards
        if not have_same_loans(executable.content, *self.contents_of(graph)):
            return  # the driver compares its own nodes, and knows nothing about loans
        if self.chance(0.3) and executable.content.operations and not executable.closed:
            index = self.random.randrange(len(executable.content.operations))
            self.note("disable", self.executables.index(executable), index)
            self.session.enable(executable, index, "index", False)
        self.note("update", self.executables.index(executable), "by", self.graphs.index(graph))
        self.session.update(executable, graph)


def have_same_loans(*contents):
    """Whether the loans of these contents have the same calls at the same positions."""
    found = [enumerate(leaves(content.operations)) for content in contents]
    found = [[(at, each.effect.kind) for at, each in its if each.lends] for its in found]
    return found[0] == found[-1] and not any(map(has_loose_loans, contents))


def has_loose_loans(content):
    return any(each.lends and each.effect.loose for each in leaves(content.operations))
