"""Streams: creating, flags, priorities, default streams, attributes, destroying."""

import ctypes

from driver import INT, LEGACY, NON_BLOCKING, OUT, PER_THREAD
from section import Section

section = Section("streams")
question = section.question

section.calls(
    """
    create null | cuStreamCreate 0, 0
    create flags 2 | cuStreamCreate out, 2
    create flags 3 | cuStreamCreate out, 3
    create flags -1 | cuStreamCreate out, -1
    create null flags 2 | cuStreamCreate 0, 2
    create with priority null | cuStreamCreateWithPriority 0, 0, 0
    create with priority flags 2 | cuStreamCreateWithPriority out, 2, 0
    destroy null | cuStreamDestroy_v2 0
    destroy legacy | cuStreamDestroy_v2 1
    destroy per-thread | cuStreamDestroy_v2 2
    query null stream | cuStreamQuery 0
    query legacy | cuStreamQuery 1
    query per-thread | cuStreamQuery 2
    synchronize null stream | cuStreamSynchronize 0
    synchronize legacy | cuStreamSynchronize 1
    synchronize per-thread | cuStreamSynchronize 2
    flags to null | cuStreamGetFlags s, 0
    flags of legacy to null | cuStreamGetFlags 1, 0
    priority to null | cuStreamGetPriority s, 0
    identifier to null | cuStreamGetId s, 0
    context to null | cuStreamGetCtx s, 0
    device to null | cuStreamGetDevice s, 0
    capturing to null | cuStreamIsCapturing s, 0
    capturing null stream | cuStreamIsCapturing 0, out
    capturing legacy | cuStreamIsCapturing 1, out
    capturing per-thread | cuStreamIsCapturing 2, out
    second context query, null | cuStreamGetCtx_v2 s, 0, 0
    wait for null | cuStreamWaitEvent s, 0, 0
    wait for null, null stream | cuStreamWaitEvent 0, 0, 0
    wait flags 1 | cuStreamWaitEvent s, e, 1
    wait flags 2 | cuStreamWaitEvent s, e, 2
    wait for null, flags 2 | cuStreamWaitEvent s, 0, 2
    copy attributes | cuStreamCopyAttributes s, p.stream()
    copy attributes to null stream | cuStreamCopyAttributes 0, s
    copy attributes to itself | cuStreamCopyAttributes s, s
    attribute null | cuStreamGetAttribute s, 1, 0
    attribute 0 | cuStreamGetAttribute s, 0, p.pageable()
    attribute 2 | cuStreamGetAttribute s, 2, p.pageable()
    attribute 8 | cuStreamGetAttribute s, 8, p.pageable()
    attribute 99 | cuStreamGetAttribute s, 99, p.pageable()
    set attribute null | cuStreamSetAttribute s, 1, 0
    set attribute 0 | cuStreamSetAttribute s, 0, p.pageable()
    set attribute 99 | cuStreamSetAttribute s, 99, p.pageable()
    callback null | cuStreamAddCallback s, 0, 0, 0
    callback flags | cuStreamAddCallback s, 0, 0, 1
    end of no capture | cuStreamEndCapture s, out
    end of no capture, null | cuStreamEndCapture s, 0
    update dependencies without capture | cuStreamUpdateCaptureDependencies s, 0, 0, 0
    green context to null | cuStreamGetGreenCtx s, 0
    memory operations null | cuStreamBatchMemOp_v2 s, 1, 0, 0
    destroy | cuStreamDestroy_v2 p.need("cuStreamCreate", OUT, 0)
""",
    lambda p: {"s": p.stream(), "e": p.event()},
)

STREAMS = {
    "null": lambda p: 0,
    "legacy": lambda p: LEGACY,
    "per-thread": lambda p: PER_THREAD,
    "blocking": lambda p: p.stream(0),
    "non-blocking": lambda p: p.stream(NON_BLOCKING),
}
for name, make in STREAMS.items():
    section.ask(f"flags of {name}", lambda p, m=make: p.get("cuStreamGetFlags", m(p), INT))
    section.ask(f"priority of {name}", lambda p, m=make: p.get("cuStreamGetPriority", m(p), INT))
    section.ask(
        f"context of {name}",
        lambda p, m=make: p.get("cuStreamGetCtx", m(p), OUT) == p.primary,
    )
    section.ask(f"device of {name}", lambda p, m=make: p.get("cuStreamGetDevice", m(p), INT))
    section.ask(
        f"capture state of {name}", lambda p, m=make: p.get("cuStreamIsCapturing", m(p), INT)
    )
    section.ask(
        f"capture of {name}",
        lambda p, m=make: (
            p("cuStreamBeginCapture_v2", stream := m(p), 0),
            isinstance(graph := p.get("cuStreamEndCapture", stream, OUT), int) and bool(graph),
        ),
    )
    section.ask(
        f"green context of {name}", lambda p, m=make: p.get("cuStreamGetGreenCtx", m(p), OUT)
    )
    for function in ("cuStreamQuery_ptsz", "cuStreamSynchronize_ptsz"):
        section.ask(f"{function} of {name}", lambda p, m=make, f=function: p(f, m(p)))
    section.ask(
        f"flags of {name} by its per-thread function",
        lambda p, m=make: p.get("cuStreamGetFlags_ptsz", m(p), INT),
    )

for priority in (-100, -6, -5, -4, -3, -2, -1, 0, 1, 2, 100):

    def _priority(p, priority=priority):
        name = "cuStreamCreateWithPriority"
        stream = p.make("cuStreamDestroy_v2", name, OUT, NON_BLOCKING, priority)
        return p.get("cuStreamGetPriority", stream, INT)

    section.ask(f"priority {priority}", _priority)


@question("identifiers")
def _(p):
    names = {name: p.get("cuStreamGetId", make(p), OUT) for name, make in STREAMS.items()}
    again = p.get("cuStreamGetId", PER_THREAD, OUT)
    other = p.thread(lambda: p.get("cuStreamGetId", PER_THREAD, OUT))
    legacy = p.thread(lambda: p.get("cuStreamGetId", LEGACY, OUT))
    return {
        "different": len(set(names.values())),
        "null is legacy": names["null"] == names["legacy"],
        "per-thread again the same": again == names["per-thread"],
        "per-thread of another thread the same": other == again,
        "legacy of another thread the same": legacy == names["legacy"],
    }


@question("null by the per-thread functions")
def _(p):
    own = p.get("cuStreamGetId_ptsz", 0, OUT)
    return own == p.get("cuStreamGetId", PER_THREAD, OUT), own == p.get(
        "cuStreamGetId", LEGACY, OUT
    )


@question("context of a created context's streams")
def _(p):
    created = p.context()
    return [p.get("cuStreamGetCtx", make(p), OUT) == created for make in STREAMS.values()]


@question("default streams with no context current")
def _(p):
    stream = p.stream()
    p("cuCtxSetCurrent", 0)
    found = {}
    for name, value in (
        ("null", 0),
        ("legacy", LEGACY),
        ("per-thread", PER_THREAD),
        ("own", stream),
    ):
        found[name] = " ".join(
            str(p(function, value, *extra))
            for function, extra in (
                ("cuStreamQuery", ()),
                ("cuStreamSynchronize", ()),
                ("cuStreamGetFlags", (p.cell(),)),
                ("cuStreamGetPriority", (p.cell(),)),
                ("cuStreamGetId", (p.cell(),)),
                ("cuStreamGetCtx", (p.cell(),)),
                ("cuStreamIsCapturing", (p.cell(),)),
            )
        )
    return found


section.calls(
    """
    create | cuStreamCreate out, 0
    create null | cuStreamCreate 0, 0
    create flags 2 | cuStreamCreate out, 2
    create with priority | cuStreamCreateWithPriority out, 0, 0
    wait | cuStreamWaitEvent s, e, 0
    wait in null stream | cuStreamWaitEvent 0, e, 0
    wait value | cuStreamWaitValue32_v2 s, h, 0, 0
    write value in null stream | cuStreamWriteValue32_v2 0, h, 0, 0
    destroy null | cuStreamDestroy_v2 0
    begin capture | cuStreamBeginCapture_v2 s, 0
    begin capture of null stream | cuStreamBeginCapture_v2 0, 0
    event | cuEventCreate out, 0
    event null | cuEventCreate 0, 0
    event flags 8 | cuEventCreate out, 8
    event query | cuEventQuery e
    event synchronize | cuEventSynchronize e
    event record | cuEventRecord e, s
    event record in null stream | cuEventRecord e, 0
    elapsed | cuEventElapsedTime out, e, e
    host function | cuLaunchHostFunc s, 0, 0
    exchange capture mode | cuThreadExchangeStreamCaptureMode p.cell()
    graph | cuGraphCreate out, 0
""".replace(" |", " with no context |"),
    lambda p: (
        {"s": p.stream(), "e": p.event(), "h": p.host()},
        p("cuCtxSetCurrent", 0),
    )[0],
)


@question("destroy with no context current")
def _(p):
    stream, event = p.stream(), p.event()
    p("cuCtxSetCurrent", 0)
    return p.release(event), p.release(stream)


@question("destroy in another thread without context")
def _(p):
    stream, event = p.stream(), p.event()
    return p.thread(lambda: (p.release(event), p.release(stream)), context=False)


@question("destroy while it is pending")
def _(p):
    stream, target, event = p.stream(), p.host(), p.event()
    gate = p.gate(stream)
    p("cuMemsetD8Async", target, 7, 16, stream)
    p("cuEventRecord", event, stream)
    status = p.release(stream)
    before = p.bytes_at(target, 2), p("cuEventQuery", event)
    gate.open()
    return status, *before, p("cuEventSynchronize", event), p.bytes_at(target, 2)


def _stream_attribute(p, number, *words):
    stream = p.stream()
    value = p.keep((ctypes.c_uint * 16)(*words))
    status = p("cuStreamSetAttribute", stream, number, value)
    found = p.keep((ctypes.c_uint * 16)())
    return status, p("cuStreamGetAttribute", stream, number, found), list(found)[:4]


for number, words in {
    1: [(0, 0, 0, 0)],
    3: [(0,), (1,), (2,), (3,), (4,), (9,)],
    8: [(0,), (-1,), (-5,), (-6,), (1,), (100,)],
    9: [(0,), (0x100,), (0xFF,)],
    10: [(0,), (1,), (2,)],
}.items():
    for word in words:
        section.ask(
            f"attribute {number} set to {word[0]}",
            lambda p, n=number, w=word: _stream_attribute(p, n, *(v & 0xFFFFFFFF for v in w)),
        )
for number in range(17):
    section.ask(
        f"attribute {number} of a new stream",
        lambda p, n=number: (
            p("cuStreamGetAttribute", p.stream(), n, found := p.keep((ctypes.c_uint * 16)())),
            list(found)[:4],
        ),
    )


@question("attributes copied")
def _(p):
    source, target = p.stream(), p.stream()
    p("cuStreamSetAttribute", source, 3, p.keep((ctypes.c_uint * 16)(2)))
    status = p("cuStreamCopyAttributes", target, source)
    found = p.keep((ctypes.c_uint * 16)())
    return status, p("cuStreamGetAttribute", target, 3, found), found[0]


@question("many streams")
def _(p):
    return len({p.stream() for _ in range(200)})
