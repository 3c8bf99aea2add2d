"""Primary contexts that are retained, released and reset, and what still works afterwards."""

from driver import INT, OUT
from section import INITIALISED, Section

section = Section("lifecycle")


def question(name, **options):
    return section.question(name, alone=True, **options)


CALLS = """
    alloc | cuMemAlloc_v2 out, 16
    alloc null | cuMemAlloc_v2 0, 16
    alloc 0 | cuMemAlloc_v2 out, 0
    free | cuMemFree_v2 a
    free null | cuMemFree_v2 0
    free bad | cuMemFree_v2 16
    free managed | cuMemFree_v2 m
    host alloc | cuMemHostAlloc out, 16, 0
    host free | cuMemFreeHost h
    host free null | cuMemFreeHost 0
    register | cuMemHostRegister_v2 page, 4096, 0
    unregister | cuMemHostUnregister r
    host flags | cuMemHostGetFlags out, h
    managed | cuMemAllocManaged out, 16, 1
    memory info | cuMemGetInfo_v2 out, p.cell()
    pointer attribute | cuPointerGetAttribute out, 2, a
    address range | cuMemGetAddressRange_v2 out, p.cell(), a
    copy | cuMemcpyHtoD_v2 a, page, 16
    copy nothing | cuMemcpyHtoD_v2 a, page, 0
    fill | cuMemsetD8_v2 a, 0, 16
    alloc async | cuMemAllocAsync out, 16, 0
    default pool | cuDeviceGetDefaultMemPool out, 0
    stream create | cuStreamCreate out, 0
    stream create null | cuStreamCreate 0, 0
    null stream query | cuStreamQuery 0
    null stream synchronize | cuStreamSynchronize 0
    null stream identifier | cuStreamGetId 0, out
    per-thread stream query | cuStreamQuery 2
    event create | cuEventCreate out, 0
    context synchronize | cuCtxSynchronize
    get current | cuCtxGetCurrent out
    device | cuCtxGetDevice out
    flags | cuCtxGetFlags out
    limit | cuCtxGetLimit out, 0
    set current again | cuCtxSetCurrent c
    push | cuCtxPushCurrent_v2 c
    pop | cuCtxPopCurrent_v2 out
    version | cuCtxGetApiVersion c, out
    identifier | cuCtxGetId c, out
    identifier of current | cuCtxGetId 0, out
    destroy | cuCtxDestroy_v2 c
    primary state | cuDevicePrimaryCtxGetState 0, out, p.cell()
    release | cuDevicePrimaryCtxRelease_v2 0
    reset | cuDevicePrimaryCtxReset_v2 0
    device count | cuDeviceGetCount out
    init | cuInit 0
    priority range | cuCtxGetStreamPriorityRange out, p.cell()
    exchange capture mode | cuThreadExchangeStreamCaptureMode p.cell(2)
    graph create | cuGraphCreate out, 0
    host function | cuLaunchHostFunc 0, 0, 0
"""
# After a release or a reset, calls with old streams and events may crash. So only these few calls
# are made, each in a process of its own.
STALE = """
    event destroy | cuEventDestroy_v2 e
    event query | cuEventQuery e
    stream query | cuStreamQuery s
    stream destroy | cuStreamDestroy_v2 s
"""


def _prepare(p):
    return {
        "p": p, "out": p.cell(), "c": p.primary, "a": p.device(), "h": p.host(),
        "m": p.managed(), "r": p.registered(), "page": p.pageable(), "s": p.stream(),
        "e": p.event(),
    }  # fmt: skip


def _abandon(p):
    """Makes the client destroy nothing. This is safe, because the process ends."""
    p._undo.clear()
    p.primary = None


ENDS = {
    "after release": lambda p: p.must("cuDevicePrimaryCtxRelease_v2", 0),
    "after reset": lambda p: p.must("cuDevicePrimaryCtxReset_v2", 0),
    "after release and retain": lambda p: (
        p.must("cuDevicePrimaryCtxRelease_v2", 0),
        p.need("cuDevicePrimaryCtxRetain", OUT, 0),
    ),
    "after reset and retain": lambda p: (
        p.must("cuDevicePrimaryCtxReset_v2", 0),
        p.need("cuDevicePrimaryCtxRetain", OUT, 0),
    ),
}


def _group(name, text, finish):
    """Asks a group of questions in one process. None of these calls affects the other ones."""
    lines = [line.strip().partition(" | ") for line in text.strip().splitlines()]

    def ask(p):
        names = _prepare(p)
        finish(p)
        current = p.primary
        _abandon(p)
        found = {}
        for key, _, call in lines:
            function, _, arguments = call.partition(" ")
            values = eval(f"({arguments},)" if arguments else "()", dict(names))
            found[key] = p.later(lambda f=function, v=values: p(f, *v))
            if key in ("push", "pop", "set current again"):
                p("cuCtxSetCurrent", current)
        return found

    section.ask(name, ask, alone=True)


for end, finish in ENDS.items():
    calls = CALLS.strip().splitlines()
    for start in range(0, len(calls), 10):
        _group(f"{end}: calls {start // 10 + 1}", "\n".join(calls[start : start + 10]), finish)
    for line in STALE.strip().splitlines():
        _group(f"{end}: {line.partition('|')[0].strip()}", line, finish)


@question("retained twice, released once")
def _(p):
    second = p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    steps = [second == p.primary, p("cuDevicePrimaryCtxRelease_v2", 0)]
    return *steps, p("cuCtxSynchronize"), p.get("cuDevicePrimaryCtxGetState", 0, INT, INT)[1]


@question("released too often")
def _(p):
    found = [p("cuDevicePrimaryCtxRelease_v2", 0) for _ in range(3)]
    p.primary = None
    return found


@question("state at each step", setup=INITIALISED)
def _(p):
    state = lambda: p.get("cuDevicePrimaryCtxGetState", 0, INT, INT)[1]  # noqa: E731
    found = [state()]
    p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    found.append(state())
    p("cuDevicePrimaryCtxReset_v2", 0)
    found.append(state())
    p("cuDevicePrimaryCtxRelease_v2", 0)
    found.append(state())
    p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    return *found, state()


@question("context is the same after release and retain")
def _(p):
    p("cuDevicePrimaryCtxRelease_v2", 0)
    again = p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    same, p.primary = again == p.primary, None
    return same, p("cuCtxSetCurrent", again), p("cuMemAlloc_v2", p.cell(), 16)


@question("context is the same after reset")
def _(p):
    p("cuDevicePrimaryCtxReset_v2", 0)
    again = p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    same, p.primary = again == p.primary, None
    return same, p("cuCtxSetCurrent", again), p("cuMemAlloc_v2", p.cell(), 16)


@question("retains after a reset")
def _(p):
    p("cuDevicePrimaryCtxReset_v2", 0)
    found = [p("cuDevicePrimaryCtxRelease_v2", 0) for _ in range(2)]
    p.primary = None
    return found


@question("memory after release and retain")
def _(p):
    names = _prepare(p)
    p("cuDevicePrimaryCtxRelease_v2", 0)
    again = p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    _abandon(p)
    p("cuCtxSetCurrent", again)
    return {
        "device": p.get("cuPointerGetAttribute", INT, 2, names["a"]),
        "host": p.get("cuPointerGetAttribute", INT, 2, names["h"]),
        "managed": p.get("cuPointerGetAttribute", INT, 2, names["m"]),
        "registered": p.get("cuPointerGetAttribute", INT, 2, names["r"]),
        "free device": p("cuMemFree_v2", names["a"]),
        "free host": p("cuMemFreeHost", names["h"]),
        "unregister": p("cuMemHostUnregister", names["r"]),
    }


@question("memory of a pool after release and retain")
def _(p):
    address = p.ordered()
    p("cuDevicePrimaryCtxRelease_v2", 0)
    again = p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    _abandon(p)
    p("cuCtxSetCurrent", again)
    return p.get("cuPointerGetAttribute", INT, 2, address), p("cuMemFreeAsync", address, 0)


@question("reset while current in another thread")
def _(p):
    status = p.thread(lambda: p("cuDevicePrimaryCtxReset_v2", 0))
    _abandon(p)
    return status, p("cuMemAlloc_v2", p.cell(), 16), p("cuCtxSynchronize")


@question("destroy of the primary context")
def _(p):
    found = p("cuCtxDestroy_v2", p.primary), p("cuMemAlloc_v2", p.cell(), 16)
    return found


@question("retained, not current", setup=INITIALISED)
def _(p):
    p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    return p.get("cuCtxGetCurrent", OUT), p("cuMemAlloc_v2", p.cell(), 16)


@question("current in a new thread")
def _(p):
    return p.thread(
        lambda: (p.get("cuCtxGetCurrent", OUT), p("cuMemAlloc_v2", p.cell(), 16)), False
    )


@question("thread ends with a context current")
def _(p):
    return p.thread(lambda: p("cuCtxGetDevice", p.cell())), p("cuCtxSynchronize")


@question("stream destroyed twice")
def _(p):
    stream = p.need("cuStreamCreate", OUT, 1)
    return p("cuStreamDestroy_v2", stream), p("cuStreamDestroy_v2", stream)


@question("event destroyed twice")
def _(p):
    event = p.need("cuEventCreate", OUT, 0)
    return p("cuEventDestroy_v2", event), p("cuEventDestroy_v2", event)


for handle in (3, 16):
    for function in ("cuStreamQuery", "cuStreamDestroy_v2", "cuEventQuery", "cuEventDestroy_v2"):
        section.ask(f"{function} of {handle}", lambda p, h=handle, f=function: p(f, h), alone=True)
    for function in ("cuCtxSetCurrent", "cuCtxDestroy_v2", "cuCtxPushCurrent_v2"):
        section.ask(f"{function} of {handle}", lambda p, h=handle, f=function: p(f, h), alone=True)
