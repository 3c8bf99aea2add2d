"""Each call during a capture: its status, the state of the capture, and how the capture ends."""

from ask_capture import GLOBAL, RELAXED, THREAD, begin, end, state
from driver import HOST_FUNCTION, NON_BLOCKING, OUT, STREAM_CALLBACK, Copy2D
from section import Section

section = Section("capture_calls")

CALLS = """
    nothing | cuDriverGetVersion out
    query | cuStreamQuery s
    synchronize | cuStreamSynchronize s
    query other | cuStreamQuery other
    synchronize other | cuStreamSynchronize other
    query legacy | cuStreamQuery 1
    query null stream | cuStreamQuery 0
    synchronize legacy | cuStreamSynchronize 1
    query per-thread | cuStreamQuery 2
    context synchronize | cuCtxSynchronize
    flags | cuStreamGetFlags s, out
    priority | cuStreamGetPriority s, out
    identifier | cuStreamGetId s, out
    context of stream | cuStreamGetCtx s, out
    legacy flags | cuStreamGetFlags 1, out
    legacy identifier | cuStreamGetId 1, out
    legacy context | cuStreamGetCtx 1, out
    stream create | cuStreamCreate out, 1
    blocking stream create | cuStreamCreate out, 0
    stream destroy other | cuStreamDestroy_v2 p.need("cuStreamCreate", OUT, 0)
    stream attribute | cuStreamGetAttribute s, 3, page
    stream set attribute | cuStreamSetAttribute s, 3, page
    event create | cuEventCreate out, 0
    event destroy | cuEventDestroy_v2 p.need("cuEventCreate", OUT, 0)
    event record | cuEventRecord e, s
    event record other | cuEventRecord e, other
    event record legacy | cuEventRecord e, 1
    event record null stream | cuEventRecord e, 0
    event query outside | cuEventQuery e
    event synchronize outside | cuEventSynchronize e
    event elapsed outside | cuEventElapsedTime out, e, e
    wait outside event | cuStreamWaitEvent s, e, 0
    legacy wait outside event | cuStreamWaitEvent 1, e, 0
    alloc | cuMemAlloc_v2 out, 16
    alloc 0 | cuMemAlloc_v2 out, 0
    alloc null | cuMemAlloc_v2 0, 16
    free | cuMemFree_v2 p.device()
    free null | cuMemFree_v2 0
    free bad | cuMemFree_v2 16
    pitch | cuMemAllocPitch_v2 out, p.cell(), 16, 16, 4
    host alloc | cuMemHostAlloc out, 16, 0
    host free | cuMemFreeHost p.host()
    host free null | cuMemFreeHost 0
    register | cuMemHostRegister_v2 page, 4096, 0
    unregister bad | cuMemHostUnregister page
    unregister | cuMemHostUnregister r
    managed | cuMemAllocManaged out, 16, 1
    managed free | cuMemFree_v2 m
    memory info | cuMemGetInfo_v2 out, p.cell()
    address range | cuMemGetAddressRange_v2 out, p.cell(), a
    pointer attribute | cuPointerGetAttribute out, 2, a
    synchronous operations | cuPointerSetAttribute p.cell(1), 6, a
    host pointer | cuMemHostGetDevicePointer_v2 out, h, 0
    prefetch | cuMemPrefetchAsync m, 4096, 0, s
    prefetch other | cuMemPrefetchAsync m, 4096, 0, other
    second prefetch | cuMemPrefetchAsync_v2 m, 4096, 1, 0, s
    advise | cuMemAdvise m, 4096, 1, 0
    range attribute | cuMemRangeGetAttribute out, 4, 1, m, 4096
    attach | cuStreamAttachMemAsync s, m, 0, 1
    alloc async | cuMemAllocAsync out, 16, s
    alloc async 0 | cuMemAllocAsync out, 0, s
    alloc async other | cuMemAllocAsync out, 16, other
    alloc async legacy | cuMemAllocAsync out, 16, 1
    alloc from pool | cuMemAllocFromPoolAsync out, 16, pool, s
    free async outside | cuMemFreeAsync o, s
    free async outside other | cuMemFreeAsync o, other
    free stream-ordered | cuMemFree_v2 o
    trim | cuMemPoolTrimTo pool, 0
    pool attribute | cuMemPoolGetAttribute pool, 4, out
    pool set attribute | cuMemPoolSetAttribute pool, 4, p.cell(0)
    default pool | cuDeviceGetDefaultMemPool out, 0
    set pool | cuDeviceSetMemPool 0, pool
    HtoD | cuMemcpyHtoD_v2 a, page, 16
    HtoD nothing | cuMemcpyHtoD_v2 a, page, 0
    HtoD bad | cuMemcpyHtoD_v2 0, page, 16
    DtoH | cuMemcpyDtoH_v2 page, a, 16
    DtoD | cuMemcpyDtoD_v2 a, a + 64, 16
    by address | cuMemcpy a, a + 64, 16
    per-thread HtoD | cuMemcpyHtoD_v2_ptds a, page, 16
    HtoD async pageable | cuMemcpyHtoDAsync_v2 a, page, 16, s
    HtoD async page-locked | cuMemcpyHtoDAsync_v2 a, h, 16, s
    HtoD async nothing | cuMemcpyHtoDAsync_v2 a, h, 0, s
    HtoD async bad | cuMemcpyHtoDAsync_v2 0, h, 16, s
    HtoD async past the end | cuMemcpyHtoDAsync_v2 a, h, 4097, s
    DtoH async pageable | cuMemcpyDtoHAsync_v2 page, a, 16, s
    DtoH async page-locked | cuMemcpyDtoHAsync_v2 h, a, 16, s
    DtoD async | cuMemcpyDtoDAsync_v2 a, a + 64, 16, s
    async by address | cuMemcpyAsync a, a + 64, 16, s
    async host to host | cuMemcpyAsync h, h + 64, 16, s
    async pageable to pageable | cuMemcpyAsync page, page + 64, 16, s
    HtoD async other | cuMemcpyHtoDAsync_v2 a, h, 16, other
    HtoD async legacy | cuMemcpyHtoDAsync_v2 a, h, 16, 1
    HtoD async null stream | cuMemcpyHtoDAsync_v2 a, h, 16, 0
    HtoD async per-thread | cuMemcpyHtoDAsync_v2 a, h, 16, 2
    2D | cuMemcpy2D_v2 rectangle
    2D unaligned | cuMemcpy2DUnaligned_v2 rectangle
    2D async | cuMemcpy2DAsync_v2 rectangle, s
    2D async null | cuMemcpy2DAsync_v2 0, s
    2D async legacy | cuMemcpy2DAsync_v2 rectangle, 1
    peer | cuMemcpyPeer a, p.primary, a + 64, p.primary, 16
    peer async | cuMemcpyPeerAsync a, p.primary, a + 64, p.primary, 16, s
    fill | cuMemsetD8_v2 a, 0, 16
    fill nothing | cuMemsetD8_v2 a, 0, 0
    fill async | cuMemsetD8Async a, 0, 16, s
    fill async nothing | cuMemsetD8Async a, 0, 0, s
    fill async misaligned | cuMemsetD32Async a + 1, 0, 4, s
    fill async 2D | cuMemsetD2D8Async a, 64, 0, 16, 4, s
    fill async 2D of 32 | cuMemsetD2D32Async a, 64, 0, 4, 4, s
    fill async 2D nothing | cuMemsetD2D8Async a, 64, 0, 0, 0, s
    fill async managed | cuMemsetD8Async m, 0, 16, s
    fill async page-locked | cuMemsetD8Async h, 0, 16, s
    fill async legacy | cuMemsetD8Async a, 0, 16, 1
    fill async other | cuMemsetD8Async a, 0, 16, other
    wait value | cuStreamWaitValue32_v2 s, h, 0, 0
    write value | cuStreamWriteValue32_v2 s, h, 0, 0
    wait value other | cuStreamWaitValue32_v2 other, h, 0, 0
    batch | cuStreamBatchMemOp_v2 s, 0, page, 0
    host function | cuLaunchHostFunc s, function, 0
    host function null | cuLaunchHostFunc s, 0, 0
    host function other | cuLaunchHostFunc other, function, 0
    host function legacy | cuLaunchHostFunc 1, function, 0
    callback | cuStreamAddCallback s, callback, 0, 0
    callback other | cuStreamAddCallback other, callback, 0, 0
    get current | cuCtxGetCurrent out
    set current | cuCtxSetCurrent p.primary
    context create | cuCtxCreate_v2 created, 0, 0
    context limit | cuCtxGetLimit out, 0
    context set limit | cuCtxSetLimit 1, 1 << 20
    context record event | cuCtxRecordEvent p.primary, e
    context wait event | cuCtxWaitEvent p.primary, e
    primary retain | cuDevicePrimaryCtxRetain out, 0
    device count | cuDeviceGetCount out
    graph create | cuGraphCreate out, 0
    begin other | cuStreamBeginCapture_v2 other, 2
    module garbage | cuModuleLoadData out, page
    flush writes | cuFlushGPUDirectRDMAWrites 0, 100
    copy attributes | cuStreamCopyAttributes s, other
"""


def _prepare(p, flags):
    return {
        "p": p, "OUT": OUT, "out": p.cell(), "created": p.cell(), "s": p.stream(flags),
        "other": p.stream(), "e": p.event(), "a": p.device(), "h": p.host(), "m": p.managed(),
        "o": p.ordered(), "r": p.registered(), "page": p.pageable(),
        "function": p.keep(HOST_FUNCTION(lambda _: None)),
        "callback": p.keep(STREAM_CALLBACK(lambda *_: None)),
        "pool": p.get("cuDeviceGetDefaultMemPool", OUT, 0),
    }  # fmt: skip


def _rectangle(p, names):
    import ctypes

    sides = {"srcDevice": names["a"], "dstDevice": names["a"] + 2048, "srcType": 2, "dstType": 2}
    shape = {"srcPitch": 64, "dstPitch": 64, "Width": 32, "Height": 8}
    return ctypes.byref(p.keep(Copy2D(**sides, **shape)))


def _during(function, code, mode, flags, other):
    def ask(p):
        names = _prepare(p, flags)
        names["rectangle"] = _rectangle(p, names)
        arguments = eval(code, names)  # makes the arguments before the capture begins
        begun = begin(p, names["s"], mode)
        if begun != "SUCCESS":
            return f"cannot begin: {begun}"
        call = lambda: p.tried(function, *arguments)  # noqa: E731
        status = p.thread(call) if other else call()
        found = status, state(p, names["s"]), end(p, names["s"])
        if state(p, names["other"]) != "none":
            end(p, names["other"])
        return found

    return ask


VARIANTS = {
    "global": (GLOBAL, NON_BLOCKING, False),
    "thread": (THREAD, NON_BLOCKING, False),
    "relaxed": (RELAXED, NON_BLOCKING, False),
    "relaxed, blocking stream": (RELAXED, 0, False),
    "global, by another thread": (GLOBAL, NON_BLOCKING, True),
    "thread, by another thread": (THREAD, NON_BLOCKING, True),
}

for line in filter(None, map(str.strip, CALLS.splitlines())):
    name, _, call = line.partition(" | ")
    function, _, arguments = call.partition(" ")
    code = compile(f"({arguments},)" if arguments else "()", name, "eval")
    for variant, (mode, flags, other) in VARIANTS.items():
        if other and " legacy" not in name and function.endswith(("Async", "Async_v2")):
            continue  # whether a call is captured does not depend on the thread
        section.ask(f"{variant}: {name}", _during(function, code, mode, flags, other))
