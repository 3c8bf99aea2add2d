"""Which streams wait for which others: whether work completes while another stream is held."""

import time

from driver import LEGACY, NON_BLOCKING, OUT, PER_THREAD
from section import Section

section = Section("ordering")
question = section.question

STREAMS = {
    "null": lambda p: 0,
    "legacy": lambda p: LEGACY,
    "per-thread": lambda p: PER_THREAD,
    "blocking": lambda p: p.stream(0),
    "non-blocking": lambda p: p.stream(NON_BLOCKING),
    "high": lambda p: p.make(
        "cuStreamDestroy_v2", "cuStreamCreateWithPriority", OUT, NON_BLOCKING, -5
    ),
}


def _settled(p, stream):
    """Whether the work of a stream completes while another stream is held."""
    end = time.monotonic() + p.patience / 2
    while (status := p("cuStreamQuery", stream)) == "NOT_READY" and time.monotonic() < end:
        time.sleep(0.001)
    return {"NOT_READY": "waits", "SUCCESS": "goes on"}.get(status, status)


def _pair(p, held, other, work=True):
    """Holds one stream, and then queues work in another one. Returns whether that one waits."""
    first, second = STREAMS[held](p), STREAMS[other](p)
    target = p.device()
    gate = p.gate(first)
    p.must("cuMemsetD8Async", target, 1, 16, first)
    if work:
        p.must("cuMemsetD8Async", target + 64, 1, 16, second)
    found = _settled(p, second)
    gate.open()
    return found, p("cuCtxSynchronize")


for held in STREAMS:
    for other in STREAMS:
        section.ask(f"{held} held, work in {other}", lambda p, a=(held, other): _pair(p, *a))
        section.ask(
            f"{held} held, no work in {other}", lambda p, a=(held, other): _pair(p, *a, work=False)
        )


def _threads(p, held, other):
    """Holds one stream, and then another thread queues work in a second one.

    Returns whether the second one waits.
    """
    first, target = STREAMS[held](p), p.device()
    gate = p.gate(first)
    p.must("cuMemsetD8Async", target, 1, 16, first)

    def call():
        stream = STREAMS[other](p)
        p("cuMemsetD8Async", target + 64, 1, 16, stream)
        return _settled(p, stream)

    found = p.thread(call)
    gate.open()
    return found


for held in ("null", "per-thread", "blocking", "non-blocking"):
    for other in ("null", "per-thread", "blocking", "non-blocking"):
        section.ask(
            f"{held} held, work in {other} of another thread",
            lambda p, a=(held, other): _threads(p, *a),
        )


def _event(p, held, recorded, waiting):
    """Holds one stream, records an event in a second one, and lets a third one wait for it."""
    first, second, third = (STREAMS[name](p) for name in (held, recorded, waiting))
    event = p.event()
    gate = p.gate(first)
    p.must("cuEventRecord", event, second)
    p.must("cuStreamWaitEvent", third, event, 0)
    found = p("cuEventQuery", event), _settled(p, third)
    gate.open()
    return found


for names in (
    ("blocking", "null", "non-blocking"),
    ("blocking", "blocking", "non-blocking"),
    ("blocking", "per-thread", "non-blocking"),
    ("null", "blocking", "non-blocking"),
    ("null", "non-blocking", "blocking"),
    ("null", "per-thread", "non-blocking"),
    ("per-thread", "null", "non-blocking"),
    ("non-blocking", "null", "blocking"),
    ("non-blocking", "non-blocking", "null"),
):
    section.ask(
        "{} held, event recorded in {}, waited for in {}".format(*names),
        lambda p, names=names: _event(p, *names)[1],
    )


def _synchronises(p, held, waits_for):
    first = STREAMS[held](p)
    p.gate(first)
    return p.blocks(*waits_for(p, first))


for held in STREAMS:
    for name, call in {
        "context synchronize": lambda p, s: ("cuCtxSynchronize",),
        "null synchronize": lambda p, s: ("cuStreamSynchronize", 0),
        "legacy synchronize": lambda p, s: ("cuStreamSynchronize", LEGACY),
        "per-thread synchronize": lambda p, s: ("cuStreamSynchronize", PER_THREAD),
        "its own synchronize": lambda p, s: ("cuStreamSynchronize", s),
        "another blocking synchronize": lambda p, s: ("cuStreamSynchronize", p.stream(0)),
        "another non-blocking synchronize": lambda p, s: ("cuStreamSynchronize", p.stream()),
    }.items():
        section.ask(f"{held} held, {name}", lambda p, h=held, c=call: _synchronises(p, h, c))


@question("legacy work orders blocking streams through itself")
def _(p):
    first, second, target = p.stream(0), p.stream(0), p.device()
    gate = p.gate(first)
    p("cuMemsetD8Async", target, 1, 16, 0)
    p("cuMemsetD8Async", target, 2, 16, second)
    found = _settled(p, second)
    gate.open()
    return found, p("cuCtxSynchronize"), p.read(target, 1)


@question("an empty legacy stream orders nothing")
def _(p):
    first, second, target = p.stream(0), p.stream(0), p.device()
    gate = p.gate(first)
    p("cuMemsetD8Async", target, 2, 16, second)
    found = _settled(p, second)
    gate.open()
    return found


@question("an event in the legacy stream orders blocking streams")
def _(p):
    first, second, target = p.stream(0), p.stream(0), p.device()
    gate = p.gate(first)
    p("cuEventRecord", p.event(), 0)
    p("cuMemsetD8Async", target, 2, 16, second)
    found = _settled(p, second)
    gate.open()
    return found


@question("a wait in the legacy stream orders blocking streams")
def _(p):
    first, second, target, event = p.stream(), p.stream(0), p.device(), p.event()
    gate = p.gate(first)
    p("cuEventRecord", event, first)
    p("cuStreamWaitEvent", 0, event, 0)
    p("cuMemsetD8Async", target, 2, 16, second)
    found = _settled(p, second)
    gate.open()
    return found


@question("a copy of nothing in the legacy stream orders blocking streams")
def _(p):
    first, second, target = p.stream(0), p.stream(0), p.device()
    gate = p.gate(first)
    p("cuMemcpyDtoDAsync_v2", target, target, 0, 0)
    p("cuMemsetD8Async", target, 2, 16, second)
    found = _settled(p, second)
    gate.open()
    return found


@question("a query of the legacy stream orders nothing")
def _(p):
    first, second, target = p.stream(0), p.stream(0), p.device()
    gate = p.gate(first)
    p("cuStreamQuery", 0)
    p("cuMemsetD8Async", target, 2, 16, second)
    found = _settled(p, second)
    gate.open()
    return found


for name, call in {
    "DtoD": lambda p, t: p("cuMemcpyDtoD_v2", t, t + 64, 16),
    "fill": lambda p, t: p("cuMemsetD8_v2", t, 1, 16),
    "per-thread DtoD": lambda p, t: p("cuMemcpyDtoD_v2_ptds", t, t + 64, 16),
    "per-thread fill": lambda p, t: p("cuMemsetD8_v2_ptds", t, 1, 16),
}.items():
    for held in ("blocking", "non-blocking", "null", "per-thread"):

        def _after(p, call=call, held=held):
            first, target = STREAMS[held](p), p.device()
            p.write(target, bytes(range(128)))
            gate = p.gate(first)
            status = call(p, target)
            found = _settled(p, 0), _settled(p, PER_THREAD)
            gate.open()
            return status, *found

        section.ask(f"{held} held, then a synchronous {name}: legacy and per-thread", _after)


@question("work of other contexts is not waited for")
def _(p):
    stream = p.stream(0)
    p.gate(stream)
    p.context()
    return p.blocks("cuCtxSynchronize")


@question("legacy stream of another context does not wait")
def _(p):
    stream = p.stream(0)
    gate = p.gate(stream)
    p.context()
    p("cuMemsetD8Async", p.device(), 1, 16, 0)
    found = _settled(p, 0)
    gate.open()
    return found


@question("an event of a held stream of another context")
def _(p):
    stream, event = p.stream(0), p.event()
    gate = p.gate(stream)
    p("cuEventRecord", event, stream)
    p.context()
    other = p.stream()
    status = p("cuStreamWaitEvent", other, event, 0)
    found = _settled(p, other)
    gate.open()
    return status, found


@question("results come in stream order")
def _(p):
    stream, target, host = p.stream(), p.device(), p.host()
    gate = p.gate(stream)
    for value in range(1, 6):
        p("cuMemsetD8Async", target, value, 16, stream)
        p("cuMemcpyDtoHAsync_v2", host + value, target, 1, stream)
    gate.open()
    p("cuStreamSynchronize", stream)
    return p.bytes_at(host, 6)


@question("an event orders two streams")
def _(p):
    first, second, event = p.stream(), p.stream(), p.event()
    target, host = p.device(), p.host()
    gate = p.gate(first)
    p("cuMemsetD8Async", target, 9, 16, first)
    p("cuEventRecord", event, first)
    p("cuStreamWaitEvent", second, event, 0)
    p("cuMemcpyDtoHAsync_v2", host, target, 4, second)
    before = p.bytes_at(host, 4)
    gate.open()
    p("cuStreamSynchronize", second)
    return before, p.bytes_at(host, 4)


@question("page-locked source changed before the copy runs")
def _(p):
    stream, target, source = p.stream(), p.device(), p.host()
    gate = p.gate(stream)
    p("cuMemcpyHtoDAsync_v2", target, source, 4, stream)
    p.fill_host(source, b"late")
    gate.open()
    p("cuStreamSynchronize", stream)
    return p.read(target, 4)


@question("small pageable source changed before the copy runs")
def _(p):
    stream, target, source = p.stream(), p.device(), p.pageable()
    p.fill_host(source, b"soon")
    gate = p.gate(stream)
    found = p.blocks("cuMemcpyHtoDAsync_v2", target, source, 4, stream)
    p.fill_host(source, b"late")
    gate.open()
    p("cuStreamSynchronize", stream)
    return found if found == "blocks" else p.read(target, 4)
