"""The steps of a program that change what an executable graph does."""

from dataclasses import replace

import numpy as np
from effects import Add, Called, Copy, Fill, Peek, Steer, Swap, an_item
from oracle import CAPTURED, MEMORY_CLOSED, OK
from oracle_graphs import CHANGED, SIGNALS, leaves
from session import (
    GRAPH_CLOSED,
    NO_SUCH_CHANGE,
    NO_SUCH_FILL,
    OTHER_CONTEXT,
    OVERLAP,
    Failed,
)
from session_buffers import Buffer, is_filled, kept, relation
from session_graphs import GraphSession, any_of
from session_kernels import DECLARED, MODES, VARIABLE_BYTES, contradict, modelled
from session_peers import are_apart


class ChangeSession(GraphSession):
    # ---- one node ----

    def node(self, executable, index, way):
        """Return a node of an executable, in one of the ways in which a program can refer to it."""
        real = executable.real
        index += 0 if way == "index" else -len(executable.content.operations)
        return real[real.nodes[index] if way == "node" else index]

    def shown(self, executable, index, mode):
        """Return the buffer that the library shows for a node, to be used in another call."""
        operation = executable.content.operations[index]
        buffer = next(each for each, its in operation.uses if its == mode)
        node = executable.real.nodes[index]
        real = (node.reads if mode == "read" else node.writes)[0]
        return Buffer(real, buffer.memory, buffer.start, buffer.nbytes, True, buffer.policy)

    def set_copy(self, executable, index, way, target, source):
        """Change a copy node. An argument that is None is left unchanged."""
        old = executable.content.operations[index]
        (old_target, _), (old_source, _) = old.uses
        to, origin = target or old_target, source or old_source
        given = [each for each in (target, source) if each is not None]
        between = are_apart(to, origin) and old.domain is executable.place.domain
        between = between and any(each.goes_to(executable.place) for each in (to, origin))
        reasons = self._reasons(executable, old, given, between=between)
        if between and to.nbytes:
            reasons |= {self.judge_access_for(executable.place, to, origin)} - {OK}
        dtypes = {each.real.dtype for each in given} | (
            {old.effect.dtype} if len(given) < 2 else set()
        )
        overlapping, same = relation(to, origin)
        specified = self._is_specified(to, origin, old_target, old_source)
        if same or (specified and not can_become(old.uses, [to, origin], executable.place)):
            reasons.add(NO_SUCH_CHANGE)
        if len(dtypes) > 1 or to.nbytes != origin.nbytes:
            reasons.add(NO_SUCH_CHANGE)
        if overlapping:
            reasons.add(OVERLAP)
        if are_apart(to, origin) and not between:
            reasons.add(OTHER_CONTEXT)
        ordered = old_target.memory.is_stream_ordered
        locked = old_source.memory.kind == "locked" and old_source.memory.is_known
        if ordered and locked and self.driver_is_known and self._is_far(executable, old_source):
            reasons.add(NO_SUCH_CHANGE)
        uses = [(to, "write"), (origin, "read")]
        options = {"target": target and target.real, "source": source and source.real}
        dtype = given[0].real.dtype if given else None
        done = self._set(executable, index, way, uses, Copy(dtype), reasons, (), options, between)
        if done:
            self.need(executable.content.holding, executable.place, to, origin)

    @property
    def driver_is_known(self):
        """Whether it is known which copies the driver lets an executable graph change.

        With several devices, driver 580 compares the contexts of both sides. It derives these from
        the memory and from the access that the devices have at that time.
        """
        devices = {place.context.device.ordinal for place in self.places}
        return self.software or len(devices) == 1

    def _is_specified(self, *buffers):
        """Whether it is known which of these buffers can replace each other in a copy node.

        It is not known for page-locked memory that another process has allocated: the driver has
        only registered it, and the library does not compare it. Nor is it known for memory that can
        grow, which belongs to no context.
        """
        opened = any(buffer.memory.opened and buffer.on_host for buffer in buffers)
        grows = any(buffer.memory.model.end is not None for buffer in buffers)
        return self.driver_is_known and not opened and not grows

    def _is_far(self, executable, buffer):
        return buffer.memory.place_for(executable.place) is not executable.place

    def set_fill(self, executable, index, way, target, value, meddle=None):
        """Change a fill node. An argument that is None is left unchanged.

        `meddle` is called while the value is converted.
        """
        old = executable.content.operations[index]
        ((old_target, _),) = old.uses
        effect, to, item = old.effect, target or old_target, None
        given = [] if target is None else [target]
        reasons = self._reasons(executable, old, given)
        place = executable.place
        needed = home_of(old, place)
        fixed = old.line is None and self._is_far(executable, old_target)
        if to.memory.place_for(place).domain is not needed or (
            fixed and old_target.memory.is_known
        ):
            reasons.add(NO_SUCH_CHANGE)
        if value is not None:
            item, bytes_ = an_item(effect.dtype, value)
            effect = Fill(bytes_, effect.dtype, old.effect.parts)
            item = item if meddle is None else Meddler(item, effect.dtype, meddle)
        if not is_filled(to, effect.item):
            reasons.add(NO_SUCH_FILL)
        counts = to.nbytes != old_target.nbytes and old.effect.parts > 1
        if counts or effect.words > old.effect.parts:
            reasons.add(NO_SUCH_CHANGE)
        if target is not None and target.real.dtype != effect.dtype:
            reasons.add(NO_SUCH_CHANGE)
        options = {"target": target and target.real, "value": item}
        self._set(executable, index, way, [(to, "write")], effect, reasons, (), options)

    def set_call(self, executable, index, way, target, source):
        """Change the buffers of a call of a function."""
        old = executable.content.operations[index]
        uses, given, effect = self.call_of(target, source)
        buffers = [buffer for buffer, _ in uses]
        reasons = self._reasons(executable, old, buffers, empty=True)
        self._set(executable, index, way, uses, effect, reasons, given, {})

    def set_number(self, executable, index, way, number):
        """Change the number of a set of a signal, or of a wait for one."""
        old = executable.content.operations[index]
        effect = replace(old.effect, number=number)
        self._set(executable, index, way, old.uses, effect, set(), (number,), {})

    def set_launch(self, executable, index, way, buffers, modes, more):
        """Change the arguments of a launch of `add`.

        If `more` is None, `borrows` is left unchanged.
        """
        old = executable.content.operations[index]
        count = min(buffer.run for buffer in buffers)
        uses = [*zip(buffers, ("write", *modes), strict=True)]
        args = [*(DECLARED[mode](buffer.real) for buffer, mode in uses), count]
        options = {}
        if more is not None:
            options["borrows"] = [MODES[mode](buffer.real) for buffer, mode in more]
            uses += more
        uses += old.uses[old.effect.declared :] if more is None else []
        # Check all buffers, also those that are not changed: `take` may have moved an empty one.
        given = [buffer for buffer, _ in uses]
        reasons = self._reasons(executable, old, given, empty=True)
        reasons |= {OVERLAP} if contradict(uses) else set()
        self._set(executable, index, way, modelled(uses), Add(count), reasons, args, options)

    def set_variables(self, executable, index, way, buffer):
        """Change the buffer of a launch of `swap` or `peek`."""
        old = executable.content.operations[index]
        count = min(buffer.nbytes, VARIABLE_BYTES)
        uses = [(buffer, "write"), old.uses[1]]
        reasons = self._reasons(executable, old, [buffer], empty=True)
        self._set(
            executable, index, way, uses, type(old.effect)(count), reasons, (buffer.real, count), {}
        )

    def set_shape(self, executable, index, way, nbytes):
        """Change the amount of shared memory of a launch; the kernels here use no shared memory."""
        old = executable.content.operations[index]
        given = [buffer for buffer, _ in given_to(old.effect, old.uses)]
        reasons = self._reasons(executable, old, given, empty=True)
        options = {"shared_bytes": nbytes}
        self._set(executable, index, way, old.uses, old.effect, reasons, (), options)

    def set_steer(self, executable, index, way, value):
        """Change the value to which a launch sets a condition."""
        effect = executable.content.operations[index].effect
        effect = Steer(effect.condition, value)
        args = effect.condition.handle, value
        self._set(executable, index, way, [], effect, set(), args, {})

    def set_wrongly(self, executable, index, way):
        """Pass arguments that fit another kind of operation, or no arguments."""
        old = executable.content.operations[index]
        reasons = self._reasons(executable, old, ()) | {NO_SUCH_CHANGE}
        options = {} if old.effect.kind == "fill" else {"value": 1}
        self._set(executable, index, way, old.uses, old.effect, reasons, (), options)

    def meddle(self, executable, index):
        """Try to close and to change an executable while it is being changed."""
        self.call("close", CAPTURED, executable.real.close)
        self.call("set", CAPTURED, lambda: executable.real[index].set(value=1))

    def _reasons(self, executable, old, given, empty=False, between=False):
        """The reasons to refuse buffers. Only with `empty`, buffers without items are accepted.

        `between` says that they are for a copy between the executable's context and another one.
        """
        found = set()
        if any(buffer.closed for buffer in given):
            found.add(MEMORY_CLOSED)
        # These differ if the operation was captured on a stream of another context.
        domains = {old.domain, executable.place.domain}
        if any(not b.on_host and domains != {b.memory.place.domain} for b in given) and not between:
            found.add(OTHER_CONTEXT)
        if not empty and any(not buffer.nbytes for buffer in given):
            found.add(NO_SUCH_CHANGE)
        return found

    def _set(self, executable, index, way, uses, effect, reasons, args, options, between=False):
        """Make the call that changes a node. Returns whether it was accepted."""
        old = executable.content.operations[index]
        policies = [self.policy_of(buffer) for buffer, _ in uses]
        given = given_to(old.effect, uses)
        if not between and any(not buffer.goes_to(executable.place) for buffer, _ in given):
            reasons.add(OTHER_CONTEXT)
        answer, strictly = self.oracle.judge_change(executable.content, old, uses, policies)
        # The library may check the order first, except with empty buffers.
        if reasons or answer != OK:
            answer = any_of(frozenset(reasons | ({answer} - {OK})))
        if executable.closed:
            answer = GRAPH_CLOSED
        elif old.effect.kind == "box copy":
            answer = frozenset({CAPTURED, NO_SUCH_CHANGE})
        elif executable.orphan or old.effect.kind not in CHANGED or not executable.content.paired:
            answer = CAPTURED
        elif old.effect.kind == "copy" and not self._is_specified(
            *(buffer for buffer, _ in (*uses, *old.uses))
        ):
            answers = {answer} if isinstance(answer, str) else answer
            answer = frozenset({NO_SUCH_CHANGE, *answers})
        what = f"set of {old.effect.kind}"
        changed = self._change(what, answer, executable, index, way, "set", args, options)
        self.after_use(*(buffer for buffer, _ in uses))
        if not changed:
            return False
        stays = {id(buffer) for buffer, _ in old.uses}
        new = kept([use for use in uses if id(use[0]) not in stays])
        uses = [use if id(use[0]) in stays else new.pop(0) for use in uses]
        self.take_over(executable, executable.content.set(old, uses, effect, strictly))
        return True

    def _change(self, what, answer, executable, index, way, method, args, options):
        """Make the call that changes a node. Returns whether it was accepted."""
        call = lambda: getattr(self.node(executable, index, way), method)(*args, **options) or OK  # noqa: E731
        try:
            return self.call(what, answer, call) == OK
        except Failed:
            return False

    def take_over(self, executable, content):
        """Give an executable another content, which it then keeps alive."""
        executable.content.holding.let_go()
        executable.content = content

    def enable(self, executable, index, way, enabled):
        content = executable.content
        operation = None if executable.closed else content.operations[index]
        known = operation and operation.effect.kind in CHANGED and content.paired
        known = known and operation.effect.kind not in ("call", *SIGNALS)
        known = known and not executable.orphan
        answer = OK if known else CAPTURED
        if known and enabled == (operation in content.disabled):
            answer = self._judge_switch(executable, operation, enabled)
        answer = GRAPH_CLOSED if executable.closed else answer
        call = lambda: setattr(self.node(executable, index, way), "enabled", enabled)  # noqa: E731
        try:
            self.call("enabled = value", answer, call)
        except Failed:
            return
        if answer == OK:
            content.disabled = content.disabled - {operation}
            content.disabled |= set() if enabled else {operation}
            self.agree("enabled", self.node(executable, index, way).enabled, enabled)

    def _judge_switch(self, executable, operation, enabled):
        """The answer to disabling or enabling a node."""
        if operation.effect.kind != "fill" or operation.line is not None:
            return OK
        ((target, _),) = operation.uses
        place = executable.place
        filled = target.memory.place_for(place) if enabled else place
        refused = self._is_far(executable, target) and (enabled or target.memory.is_known)
        elsewhere = filled.domain is not home_of(operation, place)
        return NO_SUCH_CHANGE if refused or elsewhere else OK

    # ---- all nodes ----

    def update(self, executable, graph):
        answer = self._judge_update(executable, graph)
        try:
            made = self.call("update", answer, lambda: executable.real.update(graph.real) or OK)
        except Failed:
            return
        if made == OK:
            content = executable.content.update(graph.kept.content())
            content.holding = graph.kept.holding.copied()
            self.take_over(executable, content)
            executable.pattern = graph.pattern

    def _judge_update(self, executable, graph):
        if executable.closed or graph.closed:
            return GRAPH_CLOSED
        if not self.is_whole(graph):
            return CAPTURED
        if graph.place is not executable.place:
            return OTHER_CONTEXT
        old, new = executable.content, graph.kept.content()
        if old.disabled and not old.pairs(new):
            return CAPTURED
        place, pairs = executable.place, zip(old.operations, new.operations, strict=False)
        if len(old.operations) != len(new.operations):
            return CAPTURED
        disabled = [new.operations[old.operations.index(each)] for each in old.disabled]
        reasons = {self._judge_switch(executable, each, False) for each in disabled} - {OK}
        if not all(is_alike(*pair, place) for pair in pairs):
            reasons.add(CAPTURED)
        found = leaves([*old.operations, *new.operations])
        copies = [each for each in found if isinstance(each.effect, Copy)]
        specified = self._is_specified(*(buffer for each in copies for buffer, _ in each.uses))
        if not specified and reasons <= {CAPTURED}:
            reasons = {OK, CAPTURED}
        return any_of(frozenset(reasons or {OK}))


class Meddler:
    """A value that calls a function of the program when it is converted to an array."""

    def __init__(self, number, dtype, meddle):
        self.number, self.dtype, self.meddle = number, dtype, meddle

    def __array__(self, dtype=None, copy=None):
        self.meddle()
        return np.array(self.number, self.dtype)


def given_to(effect, uses):
    """The uses of a call's own buffers, without the uses of its kernel's variables.

    The variables are in the context of the kernel, and no change replaces them.
    """
    return uses[:1] if isinstance(effect, (Swap, Peek)) else uses


def can_become(uses, buffers, place):
    """Whether a copy with these uses can get these buffers: its target and its source.

    `place` is the context of its graph.
    """
    return all(
        new.memory.can_replace(present.memory, mode == "read", place)
        for new, (present, mode) in zip(buffers, uses, strict=True)
    )


def home_of(fill, place):
    """The domain that the driver uses for a fill.

    For a node that was added, this is the domain of the memory. For a captured node, it is the
    domain of the stream.
    """
    memory = fill.uses[0][0].memory
    return fill.domain if fill.line is None else memory.place_for(place).domain


def are_of_one_context(fills, place):
    """Whether one of these fills can replace another one in an executable graph.

    All fills must have one context for the driver. If cudadrv knows how all memory was allocated,
    the memory must have one context, too.
    """
    memories = [each.uses[0][0].memory for each in fills]
    owned = all(memory.is_known for memory in memories)
    homes = {id(memory.place_for(place)) for memory in memories}
    domains = {id(home_of(each, place)) for each in fills}
    return len(domains) == 1 and (not owned or len(homes) == 1)


def is_alike(old, new, place):
    """Whether an update can replace the work of node `old` by the work of node `new`."""
    copies = isinstance(old.effect, Copy) and isinstance(new.effect, Copy)
    if copies and not can_become(old.uses, [buffer for buffer, _ in new.uses], place):
        return False
    fills = isinstance(old.effect, Fill) and isinstance(new.effect, Fill)
    if fills and not are_of_one_context((old, new), place):
        return False
    pairs = zip(old.groups, new.groups, strict=False)
    inner = [zip(*pair, strict=False) for pair in pairs]
    return shape(old, place) == shape(new, place) and all(
        is_alike(*pair, place) for group in inner for pair in group
    )


def places(buffer):
    """The bytes of a buffer: the memory, and the places in it."""
    found = np.arange(buffer.nbytes) + buffer.start
    found = found if buffer.layout is None else buffer.layout.places
    return id(buffer.memory), found.tolist()


def relative_places(buffer):
    found = np.array(places(buffer)[1])
    return (found - found[0]).tolist()


def shape(operation, place):
    """The properties that must not change in an update. The driver refuses to change some."""
    effect = operation.effect
    if effect.kind == "box copy":
        # The driver changes no copy of several rows.
        return operation.after, effect.kind, [places(buffer) for buffer, _ in operation.uses]
    if effect.kind not in CHANGED and effect.kind != "box fill":
        return operation.after, effect.kind, list(map(len, operation.groups))
    buffers = [buffer for buffer, _ in operation.uses]
    if isinstance(effect, Called):
        return operation.after, "call"
    if effect.kind in SIGNALS:
        return operation.after, effect.kind
    if isinstance(effect, Copy):
        return operation.after, "copy"
    if effect.kind == "box fill":
        # The driver can move the rows to another place.
        return operation.after, effect.kind, effect.parts, relative_places(buffers[0])
    if isinstance(effect, Fill):
        count = buffers[0].nbytes if effect.parts == 2 else None
        return operation.after, "fill", effect.parts, count
    return operation.after, "launch"
