"""Events: states, flags, snapshots, times."""

import ctypes

from driver import DISABLE_TIMING, LEGACY, OUT, PER_THREAD
from section import Section

section = Section("events")
question = section.question

section.calls(
    """
    create null | cuEventCreate 0, 0
    create flags 8 | cuEventCreate out, 8
    create flags 16 | cuEventCreate out, 16
    create flags -1 | cuEventCreate out, -1
    create null flags 8 | cuEventCreate 0, 8
    create between processes | cuEventCreate out, 4
    destroy null | cuEventDestroy_v2 0
    query null | cuEventQuery 0
    synchronize null | cuEventSynchronize 0
    record null | cuEventRecord 0, 0
    record null in a stream | cuEventRecord 0, s
    record in legacy | cuEventRecord e, 1
    record in per-thread | cuEventRecord e, 2
    record per-thread function | cuEventRecord_ptsz e, 0
    record with flags 0 | cuEventRecordWithFlags e, s, 0
    record with flags 1 | cuEventRecordWithFlags e, s, 1
    record with flags 2 | cuEventRecordWithFlags e, s, 2
    record null with flags 2 | cuEventRecordWithFlags 0, s, 2
    elapsed null | cuEventElapsedTime 0, e, e
    elapsed null start | cuEventElapsedTime out, 0, e
    elapsed null end | cuEventElapsedTime out, e, 0
    elapsed all null | cuEventElapsedTime 0, 0, 0
    elapsed never recorded | cuEventElapsedTime out, e, e
    second elapsed null | cuEventElapsedTime_v2 0, e, e
    second elapsed never recorded | cuEventElapsedTime_v2 out, e, e
    query never recorded | cuEventQuery e
    synchronize never recorded | cuEventSynchronize e
    wait for never recorded | cuStreamWaitEvent s, e, 0
    ipc handle null | cuIpcGetEventHandle 0, 0
    ipc handle of a plain event | cuIpcGetEventHandle p.pageable(), e
    open ipc null | cuIpcOpenEventHandle 0, 0
""",
    lambda p: {"s": p.stream(), "e": p.event()},
)


def _elapsed(p, start, end):
    """Returns the status, and the sign of the time, because times differ from run to run."""
    value = ctypes.c_float(-1)
    status = p("cuEventElapsedTime", ctypes.byref(value), start, end)
    if status != "SUCCESS":
        return status, "untouched" if value.value == -1 else "touched"
    return status, "zero" if value.value == 0 else "positive" if value.value > 0 else "negative"


FLAGS = {0: "timing", 1: "timing, blocking", DISABLE_TIMING: "no timing", 3: "no timing, blocking"}

for flags, name in FLAGS.items():
    section.ask(
        f"recorded once, {name}, with itself",
        lambda p, f=flags: (
            p("cuEventRecord", event := p.event(f), 0),
            p("cuEventSynchronize", event),
            p("cuEventQuery", event),
            _elapsed(p, event, event),
        ),
    )
    for other, second in FLAGS.items():

        def _pair(p, flags=flags, other=other):
            start, end, stream = p.event(flags), p.event(other), p.stream()
            gate = p.gate()
            p("cuEventRecord", start, stream)
            gate.hold(stream)
            p("cuEventRecord", end, stream)
            before = _elapsed(p, start, end)
            import time

            time.sleep(0.005)
            gate.open()
            p("cuEventSynchronize", end)
            return "pending:", before, "done:", _elapsed(p, start, end), _elapsed(p, end, start)

        section.ask(f"elapsed from {name} to {second}", _pair)


@question("elapsed with one never recorded")
def _(p):
    recorded, never = p.event(), p.event()
    p("cuEventRecord", recorded, 0)
    p("cuCtxSynchronize")
    return _elapsed(p, recorded, never), _elapsed(p, never, recorded)


@question("elapsed between streams")
def _(p):
    first, second = p.event(), p.event()
    p("cuEventRecord", first, p.stream())
    p("cuCtxSynchronize")
    p("cuEventRecord", second, p.stream())
    p("cuCtxSynchronize")
    return _elapsed(p, first, second)[0], _elapsed(p, second, first)[0]


@question("elapsed between contexts")
def _(p):
    first = p.event()
    p("cuEventRecord", first, 0)
    p("cuCtxSynchronize")
    p.context()
    second = p.event()
    p("cuEventRecord", second, 0)
    p("cuCtxSynchronize")
    return _elapsed(p, first, second)[0]


@question("pending")
def _(p):
    stream, event = p.stream(), p.event()
    gate = p.gate(stream)
    steps = [
        p("cuEventRecord", event, stream),
        p("cuEventQuery", event),
        p("cuStreamQuery", stream),
    ]
    gate.open()
    return *steps, p("cuEventSynchronize", event), p("cuEventQuery", event)


@question("synchronize pending")
def _(p):
    stream, event = p.stream(), p.event()
    p.gate(stream)
    p("cuEventRecord", event, stream)
    return p.blocks("cuEventSynchronize", event)


@question("recorded again on an idle stream while pending")
def _(p):
    busy, idle, waiter, event = p.stream(), p.stream(), p.stream(), p.event()
    gate = p.gate(busy)
    p("cuEventRecord", event, busy)
    p("cuStreamWaitEvent", waiter, event, 0)
    p("cuEventRecord", event, idle)
    steps = [p.later(lambda: p("cuEventQuery", event)), p("cuStreamQuery", waiter)]
    gate.open()
    return *steps, p("cuStreamSynchronize", waiter)


@question("recorded again on a busy stream after completion")
def _(p):
    busy, event = p.stream(), p.event()
    p("cuEventRecord", event, busy)
    p("cuEventSynchronize", event)
    p.gate(busy)
    before = p("cuEventQuery", event)
    p("cuEventRecord", event, busy)
    return before, p("cuEventQuery", event)


@question("wait before the recording is no wait")
def _(p):
    busy, waiter, event = p.stream(), p.stream(), p.event()
    p("cuStreamWaitEvent", waiter, event, 0)
    p.gate(busy)
    p("cuEventRecord", event, busy)
    return p.later(lambda: p("cuStreamQuery", waiter))


@question("destroyed while pending and waited for")
def _(p):
    busy, waiter, event = p.stream(), p.stream(), p.event()
    gate = p.gate(busy)
    p("cuEventRecord", event, busy)
    p("cuStreamWaitEvent", waiter, event, 0)
    steps = [p.release(event), p("cuStreamQuery", waiter)]
    gate.open()
    return *steps, p("cuStreamSynchronize", waiter)


@question("stream waits for its own event")
def _(p):
    stream, event = p.stream(), p.event()
    p("cuEventRecord", event, stream)
    return p("cuStreamWaitEvent", stream, event, 0), p("cuStreamSynchronize", stream)


@question("wait in every default stream")
def _(p):
    event = p.event()
    p("cuEventRecord", event, p.stream())
    return [p("cuStreamWaitEvent", s, event, 0) for s in (0, LEGACY, PER_THREAD)]


@question("record after the stream of the last recording is gone")
def _(p):
    stream, event = p.stream(), p.event()
    p("cuEventRecord", event, stream)
    p.release(stream)
    steps = [p.later(lambda: p("cuEventQuery", event)), p("cuEventSynchronize", event)]
    steps.append(p("cuEventRecord", event, 0))
    p("cuEventSynchronize", event)
    return *steps, _elapsed(p, event, event)[0]


@question("context events: record and wait")
def _(p):
    event = p.event()
    return p("cuCtxRecordEvent", p.primary, event), p("cuCtxWaitEvent", p.primary, event)


@question("event between processes needs no timing")
def _(p):
    event = p.get("cuEventCreate", OUT, 6)
    return event if isinstance(event, str) else p("cuEventDestroy_v2", event)


@question("query in another thread without context")
def _(p):
    event = p.event()
    p("cuEventRecord", event, 0)
    p("cuCtxSynchronize")
    return p.thread(
        lambda: (p("cuEventQuery", event), p("cuEventSynchronize", event)), context=False
    )
