"""Stream capture: beginning, ending, joining, isolation, modes of threads."""

import ctypes

from driver import DISABLE_TIMING, HOST_FUNCTION, INT, LEGACY, OUT, PER_THREAD
from section import Section

section = Section("capture")
question = section.question
GLOBAL, THREAD, RELAXED = 0, 1, 2


def begin(p, stream, mode=RELAXED):
    return p("cuStreamBeginCapture_v2", stream, mode)


def end(p, stream):
    """Ends a capture. Returns the status, and whether it returned a graph."""
    cell = ctypes.c_void_p(1)
    status = p("cuStreamEndCapture", stream, ctypes.byref(cell))
    if status == "SUCCESS" and cell.value:
        p("cuGraphDestroy", cell.value)
    graph = "untouched" if cell.value == 1 else "graph" if cell.value else "no graph"
    return f"{status} {graph}"


def state(p, stream):
    found = p.get("cuStreamIsCapturing", stream, INT)
    return {0: "none", 1: "active", 2: "invalidated"}.get(found, found)


section.calls(
    """
    begin null stream | cuStreamBeginCapture_v2 0, 0
    begin legacy | cuStreamBeginCapture_v2 1, 0
    begin mode 3 | cuStreamBeginCapture_v2 s, 3
    begin mode -1 | cuStreamBeginCapture_v2 s, -1
    begin null stream mode 3 | cuStreamBeginCapture_v2 0, 3
    begin, first version | cuStreamBeginCapture s
    end null | cuStreamEndCapture s, 0
    end not begun | cuStreamEndCapture s, out
    end null stream | cuStreamEndCapture 0, out
    end legacy | cuStreamEndCapture 1, out
    state null | cuStreamIsCapturing s, 0
    info not capturing | cuStreamGetCaptureInfo s, out, p.cell()
    info null | cuStreamGetCaptureInfo s, 0, 0
    info null stream | cuStreamGetCaptureInfo 0, out, p.cell()
    info, second | cuStreamGetCaptureInfo_v2 s, out, 0, 0, 0, 0
    info, second null | cuStreamGetCaptureInfo_v2 s, 0, 0, 0, 0, 0
    info, third | cuStreamGetCaptureInfo_v3 s, out, 0, 0, 0, 0, 0
    exchange null | cuThreadExchangeStreamCaptureMode 0
    exchange 3 | cuThreadExchangeStreamCaptureMode p.cell(3)
    exchange -1 | cuThreadExchangeStreamCaptureMode p.cell(-1 & 0xffffffff)
    begin to a null graph | cuStreamBeginCaptureToGraph s, 0, 0, 0, 0, 0
    destroy a null graph | cuGraphDestroy 0
    update dependencies | cuStreamUpdateCaptureDependencies s, 0, 0, 0
""",
    lambda p: {"s": p.stream()},
)

for mode in (GLOBAL, THREAD, RELAXED):
    section.ask(
        f"nothing captured, mode {mode}",
        lambda p, m=mode: (begin(p, s := p.stream(), m), state(p, s), end(p, s), state(p, s)),
    )
    section.ask(
        f"begun twice, mode {mode}",
        lambda p, m=mode: (begin(p, s := p.stream(), m), begin(p, s, m), state(p, s), end(p, s)),
    )
    section.ask(
        f"ended twice, mode {mode}",
        lambda p, m=mode: (begin(p, s := p.stream(), m), end(p, s), end(p, s)),
    )
    section.ask(
        f"ended to null, mode {mode}",
        lambda p, m=mode: (
            begin(p, s := p.stream(), m),
            p("cuStreamEndCapture", s, 0),
            state(p, s),
            end(p, s),
        ),
    )
    section.ask(
        f"ended in another thread, mode {mode}",
        lambda p, m=mode: (
            begin(p, s := p.stream(), m),
            p.thread(lambda: end(p, s)),
            state(p, s),
            end(p, s),
        ),
    )

for name, stream in (("null", 0), ("legacy", LEGACY), ("per-thread", PER_THREAD)):
    section.ask(
        f"states while another stream captures: {name}",
        lambda p, s=stream: (begin(p, own := p.stream(0)), state(p, s), state(p, own), end(p, own)),
    )
    section.ask(
        f"states while a non-blocking stream captures: {name}",
        lambda p, s=stream: (begin(p, own := p.stream(1)), state(p, s), state(p, own), end(p, own)),
    )


@question("per-thread stream")
def _(p):
    return begin(p, PER_THREAD), state(p, PER_THREAD), end(p, PER_THREAD)


@question("begun with pending work")
def _(p):
    stream = p.stream()
    p.gate(stream)
    return begin(p, stream), state(p, stream), end(p, stream), p("cuStreamQuery", stream)


@question("captured work does not run")
def _(p):
    stream, target = p.stream(), p.host()
    begin(p, stream)
    steps = [p("cuMemsetD8Async", target, 7, 16, stream), end(p, stream)]
    return *steps, p("cuCtxSynchronize"), p.bytes_at(target, 2)


@question("captured host function does not run")
def _(p):
    stream, found = p.stream(), []
    begin(p, stream)
    status = p("cuLaunchHostFunc", stream, p.keep(HOST_FUNCTION(lambda _: found.append(1))), 0)
    return status, end(p, stream), p("cuCtxSynchronize"), len(found)


@question("info while capturing")
def _(p):
    stream, other = p.stream(), p.stream()
    begin(p, stream), begin(p, other)
    found = [p.get("cuStreamGetCaptureInfo", s, INT, OUT) for s in (stream, other)]
    again = p.get("cuStreamGetCaptureInfo", stream, INT, OUT)
    ends = end(p, stream), end(p, other)
    if isinstance(found[0], str):
        return found[0], ends
    return found[0][0], found[0][1] != 0, found[0][1] != found[1][1], found[0] == again, ends


@question("identifier is new each time")
def _(p):
    stream, ids = p.stream(), []
    for _ in range(2):
        begin(p, stream)
        ids.append(p.need("cuStreamGetCaptureInfo", stream, INT, OUT)[1])
        end(p, stream)
    return ids[0] != ids[1]


@question("second info: graph and number of dependencies")
def _(p):
    stream, target, found = p.stream(), p.device(), []
    begin(p, stream)
    for _ in range(2):
        count = ctypes.c_size_t(99)
        graph, nodes, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        refs = [ctypes.byref(v) for v in (graph, nodes, count)]
        code = p("cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), 0, *refs)
        found.append((code, status.value, bool(graph.value), count.value))
        p("cuMemsetD8Async", target, 0, 16, stream)
    return found, end(p, stream)


def _fork(p, mode=RELAXED, join=True, flags=DISABLE_TIMING):
    """Lets a second stream join the capture of the first one by waiting for an event."""
    first, second, event, back = p.stream(), p.stream(), p.event(flags), p.event(flags)
    steps = [begin(p, first, mode), p("cuEventRecord", event, first)]
    steps += [p("cuStreamWaitEvent", second, event, 0), state(p, second)]
    if join:
        steps += [p("cuEventRecord", back, second), p("cuStreamWaitEvent", first, back, 0)]
    return first, second, event, steps


@question("forked and joined")
def _(p):
    first, second, _, steps = _fork(p)
    return steps, end(p, first), state(p, second)


@question("forked with events that time")
def _(p):
    first, second, _, steps = _fork(p, flags=0)
    return steps, end(p, first), state(p, second)


@question("forked and not joined")
def _(p):
    first, second, _, steps = _fork(p, join=False)
    return steps, end(p, first), state(p, second), p("cuStreamQuery", second)


@question("forked, worked in and not joined")
def _(p):
    first, second, _, steps = _fork(p, join=False)
    steps.append(p("cuMemsetD8Async", p.device(), 0, 16, second))
    return steps, end(p, first), state(p, first), state(p, second)


@question("joined, then worked in again")
def _(p):
    first, second, _, steps = _fork(p)
    steps.append(p("cuMemsetD8Async", p.device(), 0, 16, second))
    return steps, end(p, first), state(p, second)


@question("ended in the forked stream")
def _(p):
    first, second, _, _ = _fork(p)
    return end(p, second), state(p, first), state(p, second), end(p, first)


@question("begun in the forked stream")
def _(p):
    first, second, _, _ = _fork(p)
    return begin(p, second), state(p, first), end(p, first)


@question("waits for an event recorded before the capture")
def _(p):
    stream, event = p.stream(), p.event()
    p("cuEventRecord", event, p.stream())
    begin(p, stream)
    return p("cuStreamWaitEvent", stream, event, 0), state(p, stream), end(p, stream)


@question("waits for an event never recorded")
def _(p):
    stream, event = p.stream(), p.event()
    begin(p, stream)
    return p("cuStreamWaitEvent", stream, event, 0), state(p, stream), end(p, stream)


@question("waits for a prior event with the external flag")
def _(p):
    stream, event = p.stream(), p.event()
    p("cuEventRecord", event, p.stream())
    begin(p, stream)
    return p("cuStreamWaitEvent", stream, event, 1), state(p, stream), end(p, stream)


@question("records an event with the external flag")
def _(p):
    stream, event = p.stream(), p.event()
    begin(p, stream)
    status = p("cuEventRecordWithFlags", event, stream, 1)
    return status, p("cuEventQuery", event), state(p, stream), end(p, stream)


@question("captured event is used outside")
def _(p):
    stream, event, other = p.stream(), p.event(), p.stream()
    begin(p, stream)
    p("cuEventRecord", event, stream)
    ended = end(p, stream)
    found = [p("cuEventQuery", event), p("cuEventSynchronize", event)]
    found.append(p("cuStreamWaitEvent", other, event, 0))
    return ended, found, p("cuEventRecord", event, other), p("cuEventSynchronize", event)


@question("captured event of an ended capture waited for in another")
def _(p):
    first, second, event = p.stream(), p.stream(), p.event()
    begin(p, first)
    p("cuEventRecord", event, first)
    end(p, first)
    begin(p, second)
    return p("cuStreamWaitEvent", second, event, 0), state(p, second), end(p, second)


@question("two captures are not joined")
def _(p):
    first, second, event = p.stream(), p.stream(), p.event()
    begin(p, first), begin(p, second)
    p("cuEventRecord", event, first)
    status = p("cuStreamWaitEvent", second, event, 0)
    states = state(p, first), state(p, second)
    return status, states, end(p, first), end(p, second)


@question("destroying the event of a capture")
def _(p):
    first, _, event, _ = _fork(p)
    return p.release(event), state(p, first), end(p, first)


@question("destroying the forked stream")
def _(p):
    first, second, _, _ = _fork(p)
    return p.release(second), state(p, first), end(p, first)


@question("work in an invalidated capture")
def _(p):
    stream, target, event = p.stream(), p.device(), p.event()
    begin(p, stream)
    steps = [p("cuStreamQuery", stream), state(p, stream)]
    steps.append(p("cuMemsetD8Async", target, 0, 16, stream))
    steps.append(p("cuEventRecord", event, stream))
    steps.append(p("cuStreamWaitEvent", stream, event, 0))
    steps.append(p("cuStreamQuery", stream))
    steps.append(p("cuStreamSynchronize", stream))
    steps.append(p.get("cuStreamGetCaptureInfo", stream, INT, 0))
    steps.append(begin(p, stream))
    steps.append(end(p, stream))
    steps.append(state(p, stream))
    return *steps, p("cuMemsetD8Async", target, 0, 16, stream)


@question("timing of captured events")
def _(p):
    stream, first, second = p.stream(), p.event(), p.event()
    begin(p, stream)
    p("cuEventRecord", first, stream)
    p("cuEventRecord", second, stream)
    status = p("cuEventElapsedTime", p.cell(), first, second)
    return status, state(p, stream), end(p, stream)


# Modes of threads

for capture in (GLOBAL, THREAD, RELAXED):
    for thread in (GLOBAL, THREAD, RELAXED):

        def _modes(p, capture=capture, thread=thread, other=False):
            stream = p.stream()

            def call():
                cell = ctypes.c_int(thread)
                p("cuThreadExchangeStreamCaptureMode", ctypes.byref(cell))
                out = ctypes.c_uint64()
                status = p("cuMemAlloc_v2", ctypes.byref(out), 16)
                p("cuThreadExchangeStreamCaptureMode", ctypes.byref(cell))
                return status

            begin(p, stream, capture)
            status = p.thread(call) if other else call()
            return status, state(p, stream), end(p, stream)

        section.ask(f"capture of mode {capture}, alloc in a thread of mode {thread}", _modes)
        section.ask(
            f"capture of mode {capture}, alloc in another thread of mode {thread}",
            lambda p, ask=_modes: ask(p, other=True),
        )


@question("exchanged mode comes back")
def _(p):
    cell, found = ctypes.c_int(RELAXED), []
    for mode in (RELAXED, THREAD, GLOBAL, GLOBAL):
        cell.value = mode
        status = p("cuThreadExchangeStreamCaptureMode", ctypes.byref(cell))
        found.append((status, cell.value))
    return found


@question("mode of a new thread")
def _(p):
    def call():
        cell = ctypes.c_int(RELAXED)
        p("cuThreadExchangeStreamCaptureMode", ctypes.byref(cell))
        return cell.value

    return p.thread(call)


@question("a bad exchange changes nothing")
def _(p):
    cell = ctypes.c_int(7)
    status = p("cuThreadExchangeStreamCaptureMode", ctypes.byref(cell))
    before = cell.value
    cell.value = GLOBAL
    p("cuThreadExchangeStreamCaptureMode", ctypes.byref(cell))
    return status, before, cell.value
