"""The steps of random programs that add nodes to graphs without a capture."""

from effects import Peek, Swap
from library_changes import ChangeChoices
from session_building import After
from session_kernels import MODES


class BuildChoices(ChangeChoices):
    def build(self):
        """Make a graph of nodes that are added one by one, or add nodes to an existing graph."""
        graph = self.pick_open(self.graphs) if self.chance(0.3) else None
        if graph is None:
            graph = self.session.make_graph("built")
            self.graphs.append(graph)
        for _ in range(self.random.randint(1, 5)):
            self.add_to(graph)
        if graph.kept and self.chance(0.7):
            self.make_executable(graph)

    def add_node(self):
        graph = self.pick_open(self.graphs)
        if graph is not None:
            self.add_to(graph)

    def add_to(self, graph):
        ways = [self.add_copy] * 4 + [self.add_fill] * 4 + [self.add_launch] * 3 + [self.add_child]
        ways += [self.add_call] * self.calls_functions
        ways += [self.add_set, self.add_wait] * (2 * self.uses_signals)
        ways += [self.add_launch_of_module] if self.modules else []
        self.random.choice(ways)(graph, self.pick_after(graph))

    def pick_after(self, graph):
        """Choose the nodes that a new node runs after: most often the last one is among them."""
        count = len(graph.kept.operations) if graph.kept and not graph.closed else 0
        if graph.root.busy:
            return After(graph, [])
        indices = {at for at in range(count) if self.chance(0.25)}
        if count and self.chance(0.7):
            indices.add(count - 1)
        wrong = None
        if self.chance(0.02):
            others = [x for x in self.graphs if x is not graph and not x.closed and x.kept]
            others = [x for x in others if not x.root.busy and x.kept.operations]
            wrong = self.pick(others) if others else None
        return After(graph, sorted(indices), wrong)

    def told_of(self, graph, after):
        return self.graphs.index(graph), after.indices, "wrong" * (after.wrong is not None)

    def around(self, graph):
        """Choose the context of a new node's buffers: most often the graph's. None means any."""
        return None if self.chance(0.03) else graph.place

    def exchange(self):
        """Make a graph that copies between two contexts."""
        graph = self.session.make_graph("exchange")
        self.graphs.append(graph)
        for _ in range(self.random.randint(1, 3)):
            self.add_copy(graph, self.pick_after(graph), 0.9)
        if graph.kept and self.chance(0.8):
            self.make_executable(graph)

    def add_copy(self, graph, after, between=0.4):
        """Add a copy. `between` is the share of copies between contexts, if there are several."""
        target = self.pick_buffer(place=self.around(graph))
        source = None
        if target is not None and self.several and self.chance(between):
            source = self.pick_elsewhere(target)
        if source is not None and self.chance(0.5):
            target, source = source, target
        source = source or self.pick_buffer(place=self.around(graph))
        if target is None or source is None or target.closed or source.closed:
            return
        told = self.buffers.index(target), self.buffers.index(source)
        if target.nbytes <= source.nbytes:
            source, cut = self.like(source, target)
        else:
            target, cut = self.like(target, source)
        if target is not None and source is not None:
            self.give_access_for(graph.place or target.memory.place, target, source)
            self.note("add copy", *self.told_of(graph, after), *told, cut)
            target, source = self.boxes_of(target, source)
            self.session.add_copy(graph, after, target, source)

    def add_fill(self, graph, after):
        buffer = self.pick_buffer(place=self.around(graph))
        if buffer is not None:
            value = self.random.randrange(256)
            self.note("add fill", *self.told_of(graph, after), self.buffers.index(buffer), value)
            self.session.add_fill(graph, after, self.box_of(buffer), value)

    def add_call(self, graph, after):
        hosts, told = self.pick_hosts()
        if hosts is not None:
            self.note("add call", *self.told_of(graph, after), *told)
            self.session.add_call(graph, after, *hosts)

    def add_set(self, graph, after):
        signal = self.pick_signal()
        if signal is not None:
            number = self.next_number(signal)
            told = self.signals.index(signal), number
            self.note("add set", *self.told_of(graph, after), *told)
            self.session.add_set(graph, after, signal, number)

    def add_wait(self, graph, after):
        signal = self.pick_signal()
        if signal is not None:
            number = self.pick_number(signal)
            told = self.signals.index(signal), number
            self.note("add wait", *self.told_of(graph, after), *told)
            self.session.add_wait(graph, after, signal, number)

    def add_launch(self, graph, after):
        place = self.around(graph)
        buffers = [self.pick_buffer(place=place) for _ in range(3)]
        modes, more = self.declared(self.random.choice((("read", "read"), ("read", "write")))), []
        while self.chance(0.2):
            more.append((self.pick_buffer(place=place), self.random.choice(tuple(MODES))))
        used = [*buffers, *(each for each, _ in more)]
        if None in used or any(each.closed for each in used):
            return
        place = next((x.memory.place for x in used if not x.on_host), buffers[0].memory.place)
        told = [self.buffers.index(each) for each in buffers]
        told += [*modes, *((self.buffers.index(each), mode) for each, mode in more)]
        self.note("add launch", *self.told_of(graph, after), *told)
        buffers = [self.box_of(buffer) for buffer in buffers]
        self.session.add_launch(graph, after, graph.place or place, buffers, modes, more)

    def add_launch_of_module(self, graph, after):
        module = self.pick_usable(self.modules, lambda module: not module.closed)
        buffer = self.pick_buffer(place=module.place)
        if buffer is not None:
            effect = self.random.choice((Swap, Swap, Peek))
            effect = effect if self.session.can_swap(buffer, module.kept) else Peek
            told = self.modules.index(module), self.buffers.index(buffer)
            self.note("add", effect.kind, *self.told_of(graph, after), *told)
            self.session.add_launch_of_module(graph, after, module, effect, buffer)

    def add_child(self, graph, after):
        child = self.pick_open(self.graphs)
        if child.kept is None or len(child.kept.operations) < 8:
            self.note("add graph", *self.told_of(graph, after), self.graphs.index(child))
            self.session.add_child(graph, after, child)

    # ---- conditions ----

    def branch(self):
        """Add a node with bodies to a graph, and fill them."""
        graph = self.pick_open(self.graphs) if self.graphs and self.chance(0.6) else None
        if graph is None:
            graph = self.session.make_graph("branches")
            self.graphs.append(graph)
        bodies = self.add_conditional(graph)
        for body in bodies:
            for _ in range(self.random.randint(0, 3)):
                self.add_to(body)
        if bodies and self.chance(0.2):
            self.add_conditional(self.pick(bodies))
        if self.chance(0.3):
            self.add_to(graph)
        if graph.kept and graph.root is graph and self.chance(0.7):
            self.make_executable(graph)

    def add_conditional(self, graph):
        """Add a conditional node, and its condition. Returns the bodies of the node."""
        default, place = self.random.randrange(3), self.pick_place()
        self.note("condition of", self.graphs.index(graph), default, *self.where(place))
        condition = self.session.condition(graph, default, place)
        if condition is None or self.chance(0.05):
            return []
        after = self.pick_after(graph)
        if self.chance(0.4) and after.wrong is None:
            value = self.random.randrange(3)
            self.note("  set to", value, after.indices)
            if self.session.add_steer(graph, after, condition, value) is None:
                return []
            last = len(graph.kept.operations) - 1
            after = After(graph, sorted({*self.pick_after(graph).indices, last}))
        kind = self.random.choice(("if", "if", "while", "switch"))
        count = 1 if kind == "while" else self.random.randint(1, 2 if kind == "if" else 3)
        self.note("  node", kind, count, *self.told_of(graph, after))
        bodies = self.session.add_conditional(graph, after, kind, condition, count) or []
        if bodies and self.chance(0.1):
            self.note("  and another one")
            self.session.add_conditional(graph, After(graph, []), kind, condition, count)
        self.graphs += bodies
        if bodies and kind == "while":  # otherwise the loop would never end
            self.session.add_steer(bodies[0], After(bodies[0], []), condition, 0)
        return bodies

    # ---- captures ----

    def constant(self):
        graph = self.blocks[-1].graph if self.blocks and self.chance(0.9) else None
        graph = graph or self.pick_open(self.graphs)
        if graph is not None:
            dtype = self.random.choice(self.dtypes)
            array = self.bytes(max(16 // dtype.itemsize, 1) * dtype.itemsize).view(dtype)
            made = self.session.constant(graph, array)
            self.add(made, "constant of", self.graphs.index(graph))
