"""Programmatic dependent launches: how early their kernels begin, and what waits for what.

The first kernel is held until the end of a question. It may have executed
griddepcontrol.launch_dependents ("triggered") by then.
"""

import ctypes
import itertools
import time

from driver import DISABLE_TIMING, HOST_FUNCTION, OUT, PER_THREAD
from graph_tools import (
    Edge,
    Kernel,
    capture,
    exec_of,
    graph,
    memset,
    node,
    nodes,
    ref,
    store,
)
from kernels import HEAD, Attribute, Config, address, entry, function, load, pointers
from section import Section

section = Section("dependent_launches")
question = section.question

SERIALIZED, EVENT, COMPLETION_EVENT = 6, 7, 12  # attributes of a launch
PROGRAMMATIC = 1  # the type of an edge, and the port of a kernel at which it begins
# Words that the kernels and the host share. The first one holds kernels until it is 1.
HELD, FIRST, RESULT, SECOND, WAITED, READ, THIRD, THIRD_WAITED, THIRD_READ, OTHER = range(10)

TRIGGER = "griddepcontrol.launch_dependents;"
WAIT = "griddepcontrol.wait;"
_labels = itertools.count()


def mark(word):
    return f"st.volatile.global.u32 [%rd1+{4 * word}], 1;"


def copy(source, target):
    return (
        f"ld.volatile.global.u32 %r1, [%rd1+{4 * source}]; "
        f"st.volatile.global.u32 [%rd1+{4 * target}], %r1;"
    )


def hold():
    label = f"AGAIN_{next(_labels)}"
    return (
        f"{label}: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra {label};"
    )


def only(register, number, *instructions):
    """Instructions that only block (or thread) `number` executes."""
    label = f"OTHERS_{next(_labels)}"
    return (
        f"mov.u32 %r2, %{register}; setp.ne.u32 %p1, %r2, {number}; @%p1 bra {label};",
        *instructions,
        f"{label}:",
    )


def held(*before):
    """A first kernel: what it does before it is held, and then its result."""
    return mark(FIRST), *before, hold(), mark(RESULT)


KERNELS = {
    "first": held(),
    "first triggers": held(TRIGGER),
    "first triggers twice": held(TRIGGER, TRIGGER),
    "first triggers in a thread": held(*only("tid.x", 33, TRIGGER)),
    "first triggers in a block": held(*only("ctaid.x", 0, TRIGGER)),
    "first triggers in a block and ends in others": (
        *only("ctaid.x", 0, *held(TRIGGER)),
    ),
    "second": (mark(SECOND), copy(RESULT, READ), mark(WAITED)),
    "second waits": (mark(SECOND), WAIT, copy(RESULT, READ), mark(WAITED)),
    "second triggers and waits": (mark(SECOND), TRIGGER, WAIT, copy(RESULT, READ), mark(WAITED)),
    "second waits in a thread": (
        mark(SECOND), *only("tid.x", 33, WAIT, copy(RESULT, READ), mark(WAITED)),
        *only("tid.x", 0, mark(OTHER)),
    ),
    "second waits in a block": (
        mark(SECOND), *only("ctaid.x", 1, WAIT, copy(RESULT, READ), mark(WAITED)),
        *only("ctaid.x", 0, mark(OTHER)),
    ),
    "third": (mark(THIRD), copy(RESULT, THIRD_READ), mark(THIRD_WAITED)),
    "third waits": (mark(THIRD), WAIT, copy(RESULT, THIRD_READ), mark(THIRD_WAITED)),
}  # fmt: skip
SYMBOLS = {name: name.replace(" ", "_") for name in KERNELS}
TEXT = HEAD.replace("7.5", "7.8").replace("sm_75", "sm_90") + "".join(
    entry(
        SYMBOLS[name],
        ".param .u64 at",
        "    .reg .b64 %rd<2>;\n    .reg .b32 %r<3>;\n    .reg .pred %p<2>;\n"
        "    ld.param.u64 %rd1, [at];\n    " + "\n    ".join(body),
    )
    for name, body in KERNELS.items()
)


class Launches:
    """The kernels and the words that they share with the host."""

    def __init__(self, p):
        self.p, self._gate = p, p.gate()
        self.at = self._gate.address
        self._words = (ctypes.c_uint32 * 10).from_address(self.at)
        module = load(p, TEXT)
        self.functions = {name: function(p, symbol, module) for name, symbol in SYMBOLS.items()}
        # Each kernel runs once before the question: a driver may load kernels late.
        self._words[HELD] = 1
        for name in KERNELS:
            self(name, 0)
        p.must("cuCtxSynchronize")
        for word in range(10):
            self._words[word] = 0

    def __call__(self, name, stream, *attributes, blocks=2, threads=64):
        p, array = self.p, (Attribute * max(1, len(attributes)))(*attributes)
        chosen = Config((blocks, 1, 1, threads, 1, 1), 0, stream, None, len(attributes))
        chosen.attributes = ctypes.addressof(p.keep(array))
        values = pointers(p, address(self.at))
        return p("cuLaunchKernelEx", ref(p, chosen), self.functions[name], values, 0)

    def early(self, name, stream, **shape):
        return self(name, stream, Attribute(SERIALIZED, 0, (1,)), **shape)

    def held(self, stream, name="first triggers"):
        """Launches the first kernel, and waits until it has begun."""
        self(name, stream)
        self.reaches(FIRST)

    def reaches(self, word, patience=1):
        """Whether a kernel marks a word while the first kernel is held.

        ``patience`` is how many times as long as usual to wait.
        """
        end = time.monotonic() + patience * self.p.patience
        while not self._words[word] and time.monotonic() < end:
            time.sleep(0.0005)
        return "goes on" if self._words[word] else "waits"

    def finish(self, *words):
        """Lets the first kernel go on. Returns the words after all work is complete."""
        self._gate.open()
        return self.p("cuCtxSynchronize"), *(self._words[word] for word in words)


def _settled(p, status):
    """Whether something completes while the first kernel is held."""
    found = p.later(status, p.patience)
    return {"NOT_READY for ever": "waits", "SUCCESS": "goes on"}.get(found, found)


# When the second kernel begins

for first in [name for name in KERNELS if name.startswith("first")]:
    for programmatic in (True, False):

        @question(f"{first}, second {'programmatic' if programmatic else 'ordinary'}")
        def _(p, first=first, programmatic=programmatic):
            k, s = Launches(p), p.stream()
            k.held(s, first)
            status = (k.early if programmatic else k)("second", s)
            return status, k.reaches(SECOND), k.finish(READ)


@question("attribute with the value 0")
def _(p):
    k, s = Launches(p), p.stream()
    k.held(s)
    status = k("second", s, Attribute(SERIALIZED, 0, (0,)))
    return status, k.reaches(SECOND), k.finish(READ)


for name, stream in {
    "null": lambda p: 0,
    "per-thread": lambda p: PER_THREAD,
    "blocking": lambda p: p.stream(0),
}.items():

    @question(f"second programmatic in the {name} stream")
    def _(p, stream=stream):
        k, s = Launches(p), stream(p)
        k.held(s)
        status = k.early("second", s)
        return status, k.reaches(SECOND), k.finish(READ)


for name, between in {
    "an event record": lambda p, k, s: p("cuEventRecord", p.event(DISABLE_TIMING), s),
    "an event record with a time": lambda p, k, s: p("cuEventRecord", p.event(), s),
    "a wait for a complete event": lambda p, k, s: p("cuStreamWaitEvent", s, _complete(p), 0),
    "a fill": lambda p, k, s: p("cuMemsetD8Async", p.device(), 1, 16, s),
    "a value write": lambda p, k, s: p("cuStreamWriteValue32_v2", s, p.host(), 1, 0),
    "a query": lambda p, k, s: p("cuStreamQuery", s),
}.items():

    @question(f"{name} between first and second")
    def _(p, between=between):
        k, s = Launches(p), p.stream()
        k.held(s)
        status = between(p, k, s), k.early("second", s)
        return status, k.reaches(SECOND), k.finish(READ)


def _complete(p):
    event, stream = p.event(), p.stream()
    p.must("cuEventRecord", event, stream)
    p.must("cuStreamSynchronize", stream)
    return event


@question("second programmatic after a held fill")
def _(p):
    k, s = Launches(p), p.stream()
    gate = p.gate(s)
    p("cuMemsetD8Async", p.device(), 1, 16, s)
    status = k.early("second", s)
    found = k.reaches(SECOND)
    gate.open()
    return status, found, k.finish(SECOND)


@question("second programmatic in another stream that waits for an event after first")
def _(p):
    k, s, t, event = Launches(p), p.stream(), p.stream(), p.event(DISABLE_TIMING)
    k.held(s)
    p.must("cuEventRecord", event, s)
    p.must("cuStreamWaitEvent", t, event, 0)
    status = k.early("second", t)
    return status, k.reaches(SECOND), k.finish(READ)


# What the wait of the second kernel waits for

for second in [name for name in KERNELS if name.startswith("second")]:

    @question(f"{second}: begins, passes its wait, goes on elsewhere")
    def _(p, second=second):
        k, s = Launches(p), p.stream()
        k.held(s)
        k.early(second, s)
        return k.reaches(SECOND), k.reaches(WAITED), k.reaches(OTHER), k.finish(READ)


@question("a wait in an ordinary launch")
def _(p):
    k, s = Launches(p), p.stream()
    k.held(s)
    k("second waits", s)
    return k.reaches(SECOND), k.finish(READ)


@question("a wait in the first launch of a stream")
def _(p):
    k, s = Launches(p), p.stream()
    return k.early("second waits", s), k.finish(WAITED)


# What comes after the second kernel

for second in ("second", "second waits", "second triggers and waits"):
    for third in ("third", "third waits"):
        for programmatic in (True, False):

            @question(f"{second}, {third}, {'programmatic' if programmatic else 'ordinary'}")
            def _(p, second=second, third=third, programmatic=programmatic):
                k, s = Launches(p), p.stream()
                k.held(s)
                k.early(second, s)
                found = k.reaches(SECOND), k.reaches(WAITED)
                (k.early if programmatic else k)(third, s)
                return *found, k.reaches(THIRD), k.reaches(THIRD_WAITED), k.finish(THIRD_READ)


@question("third programmatic begins after second has ended, first never triggers")
def _(p):
    k, s = Launches(p), p.stream()
    k.held(s, "first")
    k.early("second", s)
    k.early("third", s)
    return k.reaches(SECOND), k.reaches(THIRD), k.finish(READ, THIRD_READ)


@question("second never waits, then a fill")
def _(p):
    k, s, target = Launches(p), p.stream(), p.device()
    k.held(s)
    k.early("second", s)
    p("cuMemsetD8Async", target, 1, 16, s)
    return k.reaches(WAITED), _settled(p, lambda: p("cuStreamQuery", s)), k.finish(READ)


@question("second never waits, then a host function")
def _(p):
    k, s = Launches(p), p.stream()
    called = []
    function = p.keep(HOST_FUNCTION(lambda _: called.append(1)))
    k.held(s)
    k.early("second", s)
    p("cuLaunchHostFunc", s, function, 0)
    found = k.reaches(WAITED), _settled(p, lambda: p("cuStreamQuery", s))
    return *found, len(called), k.finish(READ), len(called)


for flags, name in ((0, "with a time"), (DISABLE_TIMING, "without a time")):
    for second in ("second", "second waits"):

        @question(f"{second}, then an event {name}: event, stream, another stream that waits")
        def _(p, second=second, flags=flags):
            k, s, t, event = Launches(p), p.stream(), p.stream(), p.event(flags)
            k.held(s)
            k.early(second, s)
            p.must("cuEventRecord", event, s)
            p.must("cuStreamWaitEvent", t, event, 0)
            k("third", t)
            return (
                k.reaches(WAITED),
                _settled(p, lambda: p("cuEventQuery", event)),
                _settled(p, lambda: p("cuStreamQuery", s)),
                k.reaches(THIRD),
                k.finish(THIRD_READ),
            )


for name, call in {
    "stream synchronize": lambda p, s, e: ("cuStreamSynchronize", s),
    "event synchronize": lambda p, s, e: ("cuEventSynchronize", e),
    "context synchronize": lambda p, s, e: ("cuCtxSynchronize",),
}.items():

    @question(f"second never waits, {name}")
    def _(p, call=call):
        k, s, event = Launches(p), p.stream(), p.event()
        k.held(s)
        k.early("second", s)
        p.must("cuEventRecord", event, s)
        return k.reaches(WAITED), p.blocks(*call(p, s, event))


# Programmatic events


def _event_attribute(event, at_start=0, flags=0):
    return Attribute(EVENT, 0, (event & 0xFFFFFFFF, event >> 32, flags, at_start))


for flags, name in ((0, "with a time"), (DISABLE_TIMING, "without a time")):
    for event_flags in (0, 1):

        @question(f"programmatic event {name}, flags {event_flags}")
        def _(p, flags=flags, event_flags=event_flags):
            k, s, event = Launches(p), p.stream(), p.event(flags)
            return k("second", s, _event_attribute(event, 0, event_flags)), k.finish(SECOND)


for first in ("first", "first triggers"):
    for at_start in (0, 1):
        name = f"programmatic event of {first}{', at the start of blocks' if at_start else ''}"

        @question(f"{name}: event, stream")
        def _(p, first=first, at_start=at_start):
            k, s, event = Launches(p), p.stream(), p.event(DISABLE_TIMING)
            status = k(first, s, _event_attribute(event, at_start))
            return (
                status,
                k.reaches(FIRST),
                _settled(p, lambda: p("cuEventQuery", event)),
                _settled(p, lambda: p("cuStreamQuery", s)),
                k.finish(RESULT),
            )

        for second in ("second", "second waits"):
            for programmatic in (True, False):
                how = "programmatic" if programmatic else "ordinary"

                @question(f"{name}, {second} in a stream that waits for it, {how}")
                def _(p, first=first, at_start=at_start, second=second, early=programmatic):
                    k, s, t, event = Launches(p), p.stream(), p.stream(), p.event(DISABLE_TIMING)
                    k(first, s, _event_attribute(event, at_start))
                    p.must("cuStreamWaitEvent", t, event, 0)
                    (k.early if early else k)(second, t)
                    return k.reaches(SECOND), k.reaches(WAITED), k.finish(READ)


@question("programmatic event, a fill in a stream that waits for it")
def _(p):
    k, s, t, event = Launches(p), p.stream(), p.stream(), p.event(DISABLE_TIMING)
    k("first triggers", s, _event_attribute(event))
    p.must("cuStreamWaitEvent", t, event, 0)
    p("cuMemsetD8Async", p.device(), 1, 16, t)
    return _settled(p, lambda: p("cuStreamQuery", t)), k.finish(RESULT)


@question("programmatic event, synchronized")
def _(p):
    k, s, event = Launches(p), p.stream(), p.event(DISABLE_TIMING)
    k("first triggers", s, _event_attribute(event))
    return p.blocks("cuEventSynchronize", event)


@question("completion event of a held kernel")
def _(p):
    k, s, event = Launches(p), p.stream(), p.event(DISABLE_TIMING)
    status = k("first", s, Attribute(COMPLETION_EVENT, 0, (event & 0xFFFFFFFF, event >> 32)))
    return status, _settled(p, lambda: p("cuEventQuery", event)), k.finish(RESULT)


# Graphs


def _captured(p, k, *launches):
    stream = p.stream()
    g, _ = capture(p, *launches, stream=stream)
    return exec_of(p, g)


def _early(k, name):
    return lambda s: k.early(name, s)


def _plain(k, name):
    return lambda s: k(name, s)


for first in ("first", "first triggers"):
    for second in ("second", "second waits"):
        for third in ("third", "third waits"):
            for programmatic in (True, False):
                how = "programmatic" if programmatic else "ordinary"

                @question(f"captured: {first}, {second}, {third}, {how}")
                def _(p, names=(first, second, third), programmatic=programmatic):
                    k, s = Launches(p), p.stream()
                    last = _early if programmatic else _plain
                    launches = _plain(k, names[0]), _early(k, names[1]), last(k, names[2])
                    p("cuGraphLaunch", _captured(p, k, *launches), s)
                    return (
                        k.reaches(FIRST, 20),
                        k.reaches(SECOND),
                        k.reaches(WAITED),
                        k.reaches(THIRD),
                        k.reaches(THIRD_WAITED),
                        k.finish(READ, THIRD_READ),
                    )


@question("captured, second never waits: the stream after the graph")
def _(p):
    k, s = Launches(p), p.stream()
    e = _captured(p, k, _plain(k, "first triggers"), _early(k, "second"))
    p("cuGraphLaunch", e, s)
    return k.reaches(WAITED), _settled(p, lambda: p("cuStreamQuery", s)), k.finish(READ)


@question("captured, second never waits: a kernel after the graph")
def _(p):
    k, s = Launches(p), p.stream()
    e = _captured(p, k, _plain(k, "first triggers"), _early(k, "second"))
    p("cuGraphLaunch", e, s)
    k("third", s)
    return k.reaches(WAITED), k.reaches(THIRD), k.finish(READ, THIRD_READ)


@question("second programmatic after a graph with first")
def _(p):
    k, s = Launches(p), p.stream()
    p("cuGraphLaunch", _captured(p, k, _plain(k, "first triggers")), s)
    status = k.early("second", s)
    return status, k.reaches(FIRST, 20), k.reaches(SECOND), k.finish(READ)


@question("a graph that begins with second programmatic, after first")
def _(p):
    k, s = Launches(p), p.stream()
    e = _captured(p, k, _early(k, "second"))
    k.held(s)
    status = p("cuGraphLaunch", e, s)
    return status, k.reaches(SECOND), k.finish(READ)


@question("captured with a programmatic event")
def _(p):
    k, s, t, event = Launches(p), p.stream(), p.stream(), p.event(DISABLE_TIMING)
    done = p.event(DISABLE_TIMING)
    p.must("cuStreamBeginCapture_v2", s, 2)
    found = (
        k("first triggers", s, _event_attribute(event)),
        p("cuStreamWaitEvent", t, event, 0),
        k("second", t),
        p("cuEventRecord", done, t),
        p("cuStreamWaitEvent", s, done, 0),
    )
    g = p.get("cuStreamEndCapture", s, OUT)
    if isinstance(g, str):
        return found, g
    p._made("cuGraphDestroy", g)
    e = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    if isinstance(e, str):
        return found, e
    p._made("cuGraphExecDestroy", e)
    p("cuGraphLaunch", e, p.stream())
    return found, k.reaches(FIRST, 20), k.reaches(SECOND), k.finish(READ)


def _kernel_node(p, k, g, name):
    values = ctypes.addressof(pointers(p, address(k.at)))
    params = Kernel(k.functions[name], (2, 1, 1), (64, 1, 1), 0, values, None)
    return node(p, "cuGraphAddKernelNode_v2", g, (), ref(p, params))


def _with_edge(p, k, first, second, edge):
    """A graph of two kernels with this edge. Returns the statuses and the executable graph."""
    g = graph(p)
    a, b = _kernel_node(p, k, g, first), _kernel_node(p, k, g, second)
    status = p("cuGraphAddDependencies_v2", g, nodes(p, a), nodes(p, b), ref(p, edge), 1)
    e = p.get("cuGraphInstantiateWithFlags", OUT, g, 0) if status == "SUCCESS" else "not made"
    if isinstance(e, str):
        return (status, e), None
    p._made("cuGraphExecDestroy", e)
    return (status, "SUCCESS"), e


for from_port, kind in itertools.product((0, 1, 2), (0, 1)):
    for first in ("first", "first triggers"):

        @question(f"edge from port {from_port} of type {kind}: {first}, second waits")
        def _(p, first=first, edge=(from_port, 0, kind)):
            k, s = Launches(p), p.stream()
            status, e = _with_edge(p, k, first, "second waits", Edge(*edge))
            if not e:
                return status
            p("cuGraphLaunch", e, s)
            found = k.reaches(FIRST, 20), k.reaches(SECOND), k.reaches(WAITED)
            return status, *found, k.finish(READ)


@question("a programmatic edge to a fill, and from one")
def _(p):
    k, g = Launches(p), graph(p)
    kernel, fill = store(p, g, p.device(), 7), memset(p, g, p.device())
    edge = ref(p, Edge(PROGRAMMATIC, 0, PROGRAMMATIC))
    found = [
        p("cuGraphAddDependencies_v2", g, nodes(p, a), nodes(p, b), edge, 1)
        for a, b in ((kernel, fill), (fill, kernel))
    ]
    return found, k.finish()


@question("a kernel with a programmatic edge and an ordinary one")
def _(p):
    k, s, g = Launches(p), p.stream(), graph(p)
    a, b, c = (_kernel_node(p, k, g, name) for name in ("first triggers", "third", "second waits"))
    early, plain = ref(p, Edge(PROGRAMMATIC, 0, PROGRAMMATIC)), ref(p, Edge(0, 0, 0))
    found = [
        p("cuGraphAddDependencies_v2", g, nodes(p, a), nodes(p, c), early, 1),
        p("cuGraphAddDependencies_v2", g, nodes(p, b), nodes(p, c), plain, 1),
    ]
    e = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    if isinstance(e, str):
        return found, e
    p._made("cuGraphExecDestroy", e)
    p("cuGraphLaunch", e, s)
    return found, k.reaches(THIRD), k.reaches(SECOND), k.reaches(WAITED), k.finish(READ)
