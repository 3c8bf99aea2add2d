"""Functions that the driver calls on the host: when they run, and which calls they can make."""

from driver import HOST_FUNCTION, INT, LEGACY, OUT, PER_THREAD, STREAM_CALLBACK, NoSuchFunction
from section import Section

section = Section("host_functions")
question = section.question

section.calls(
    """
    null function | cuLaunchHostFunc s, 0, 0
    null function in null stream | cuLaunchHostFunc 0, 0, 0
    callback null | cuStreamAddCallback s, 0, 0, 0
    callback flags 1 | cuStreamAddCallback s, nothing, 0, 1
    callback null flags 1 | cuStreamAddCallback s, 0, 0, 1
""",
    lambda p: {"s": p.stream(), "nothing": p.keep(STREAM_CALLBACK(lambda *_: None))},
)


def inside(p, stream, function, prepare=lambda: None):
    """Lets the driver call the function in the stream. Returns the function's result."""
    result = []

    def run(_):
        try:
            result.append(function())
        except NoSuchFunction:
            result.append("no such function")

    status = p("cuLaunchHostFunc", stream, p.keep(HOST_FUNCTION(run)), 0)
    if status != "SUCCESS":
        return status
    status = p("cuStreamSynchronize", stream)
    return result[0] if result else f"not called, {status}"


CALLS = """
    version | cuDriverGetVersion out
    error name | cuGetErrorName 1, out
    proc address | cuGetProcAddress_v2 b"cuInit", out, 12000, 0, 0
    init | cuInit 0
    count | cuDeviceGetCount out
    device | cuDeviceGet out, 0
    device attribute | cuDeviceGetAttribute out, 1, 0
    device name | cuDeviceGetName page, 8, 0
    total memory | cuDeviceTotalMem_v2 out, 0
    primary state | cuDevicePrimaryCtxGetState 0, out, p.cell()
    retain | cuDevicePrimaryCtxRetain out, 0
    default pool | cuDeviceGetDefaultMemPool out, 0
    can access peer | cuDeviceCanAccessPeer out, 0, 0
    create context | cuCtxCreate_v2 out, 0, 0
    get current | cuCtxGetCurrent out
    set current | cuCtxSetCurrent p.primary
    set current null | cuCtxSetCurrent 0
    push | cuCtxPushCurrent_v2 p.primary
    pop | cuCtxPopCurrent_v2 out
    context device | cuCtxGetDevice out
    context synchronize | cuCtxSynchronize
    context version | cuCtxGetApiVersion p.primary, out
    context identifier | cuCtxGetId p.primary, out
    context limit | cuCtxGetLimit out, 0
    memory info | cuMemGetInfo_v2 out, p.cell()
    alloc | cuMemAlloc_v2 out, 16
    alloc null | cuMemAlloc_v2 0, 0
    free | cuMemFree_v2 a
    free null | cuMemFree_v2 0
    host alloc | cuMemHostAlloc out, 16, 0
    host free | cuMemFreeHost h
    host free null | cuMemFreeHost 0
    host flags | cuMemHostGetFlags out, h
    register | cuMemHostRegister_v2 page, 4096, 0
    unregister | cuMemHostUnregister page
    managed | cuMemAllocManaged out, 16, 1
    prefetch | cuMemPrefetchAsync m, 4096, 0, other
    advise | cuMemAdvise m, 4096, 1, 0
    alloc async | cuMemAllocAsync out, 16, other
    free async | cuMemFreeAsync a, other
    pool attribute | cuMemPoolGetAttribute 0, 1, out
    address range | cuMemGetAddressRange_v2 out, p.cell(), a
    pointer attribute | cuPointerGetAttribute out, 2, a
    pointer attribute null | cuPointerGetAttribute 0, 2, a
    copy | cuMemcpyHtoD_v2 a, page, 16
    copy nothing | cuMemcpyHtoD_v2 a, page, 0
    copy async | cuMemcpyHtoDAsync_v2 a, h, 16, other
    fill | cuMemsetD8_v2 a, 0, 16
    fill async | cuMemsetD8Async a, 0, 16, other
    stream | cuStreamCreate out, 0
    stream query own | cuStreamQuery s
    stream query other | cuStreamQuery other
    stream query legacy | cuStreamQuery 1
    stream query null | cuStreamQuery 0
    stream synchronize | cuStreamSynchronize other
    stream flags | cuStreamGetFlags s, out
    stream priority | cuStreamGetPriority s, out
    stream identifier | cuStreamGetId s, out
    stream context | cuStreamGetCtx s, out
    stream wait | cuStreamWaitEvent other, e, 0
    stream capturing | cuStreamIsCapturing s, out
    stream begin capture | cuStreamBeginCapture_v2 other, 2
    stream write value | cuStreamWriteValue32_v2 other, h, 1, 0
    exchange capture mode | cuThreadExchangeStreamCaptureMode p.cell(2)
    host function | cuLaunchHostFunc other, nothing, 0
    event | cuEventCreate out, 0
    event query | cuEventQuery e
    event record | cuEventRecord e, other
    event synchronize | cuEventSynchronize e
    event elapsed | cuEventElapsedTime out, e, e
    graph | cuGraphCreate out, 0
    destroy null stream | cuStreamDestroy_v2 0
    destroy null event | cuEventDestroy_v2 0
    destroy null context | cuCtxDestroy_v2 0
"""


def _prepare(p):
    return {
        "p": p, "OUT": OUT, "s": p.stream(), "other": p.stream(), "e": p.event(), "a": p.device(),
        "h": p.host(), "m": p.managed(), "page": p.pageable(),
        "nothing": p.keep(HOST_FUNCTION(lambda _: None)),
    }  # fmt: skip


for line in filter(None, map(str.strip, CALLS.splitlines())):
    name, _, call = line.partition(" | ")
    function, _, arguments = call.partition(" ")
    code = compile(f"({arguments},)" if arguments else "()", name, "eval")

    def _inside(p, function=function, code=code):
        names = {**_prepare(p), "out": p.cell()}
        values = eval(code, names)
        return inside(p, names["s"], lambda: p(function, *values))

    section.ask(f"inside: {name}", _inside)


@question("inside: destroying another stream and event")
def _(p):
    own, other, event = p.stream(), p.stream(), p.event()
    return inside(p, own, lambda: (p.release(other), p.release(event)))


@question("inside: a call of another thread is not refused")
def _(p):
    own = p.stream()
    return inside(
        p, own, lambda: p.thread(lambda: p.get("cuDeviceGetCount", INT), False) != "failed"
    )


@question("called once, with its argument")
def _(p):
    stream, found = p.stream(), []
    function = p.keep(HOST_FUNCTION(lambda data: found.append(data)))
    status = p("cuLaunchHostFunc", stream, function, 1234)
    p("cuStreamSynchronize", stream)
    return status, found


for name, value in (("null", 0), ("legacy", LEGACY), ("per-thread", PER_THREAD)):
    section.ask(f"in the {name} stream", lambda p, v=value: inside(p, v, lambda: "called"))


@question("called in order with the work of its stream")
def _(p):
    stream, target, found = p.stream(), p.host(), []
    functions = [
        p.keep(HOST_FUNCTION(lambda _, i=i: found.append((i, p.bytes_at(target, 1)[0]))))
        for i in range(3)
    ]
    gate = p.gate(stream)
    for value, function in enumerate(functions, 5):
        p("cuMemsetD8Async", target, value, 16, stream)
        p("cuLaunchHostFunc", stream, function, 0)
    before = len(found)
    gate.open()
    p("cuStreamSynchronize", stream)
    return before, found


@question("the stream waits for it")
def _(p):
    import time

    stream, event, found = p.stream(), p.event(), []
    function = p.keep(HOST_FUNCTION(lambda _: (time.sleep(0.03), found.append(1))))
    p("cuLaunchHostFunc", stream, function, 0)
    p("cuEventRecord", event, stream)
    status = p("cuEventSynchronize", event)
    return status, len(found)


@question("callback: stream, status and argument")
def _(p):
    stream, found = p.stream(), []
    call = lambda s, code, data: found.append((s == stream, p.library.name(code), data))  # noqa: E731
    status = p("cuStreamAddCallback", stream, p.keep(STREAM_CALLBACK(call)), 1234, 0)
    p("cuStreamSynchronize", stream)
    return status, found


@question("callback: what it may call")
def _(p):
    stream, found = p.stream(), []

    def run(*_):
        found.append(p("cuDeviceGetCount", p.cell()))
        found.append(p("cuStreamQuery", stream))

    status = p("cuStreamAddCallback", stream, p.keep(STREAM_CALLBACK(run)), 0, 0)
    p("cuStreamSynchronize", stream)
    return status, found


@question("with no context current")
def _(p):
    stream, function = p.stream(), p.keep(HOST_FUNCTION(lambda _: None))
    p("cuCtxSetCurrent", 0)
    found = [p("cuLaunchHostFunc", s, function, 0) for s in (stream, 0, PER_THREAD)]
    return found, p("cuStreamSynchronize", stream)


@question("a stream destroyed before it is called")
def _(p):
    stream, event, found = p.stream(), p.event(), []
    gate = p.gate(stream)
    p("cuLaunchHostFunc", stream, p.keep(HOST_FUNCTION(lambda _: found.append(1))), 0)
    p("cuEventRecord", event, stream)
    status = p.release(stream)
    gate.open()
    return status, p("cuEventSynchronize", event), len(found)
