"""Created contexts, the stack of current ones, and the primary context."""

from driver import INT, OUT
from section import Section

section = Section("contexts")
question = section.question


def _prepare(p):
    return {"created": p.context(), "primary": p.primary}


def _current(p):
    """Returns in words which context is current."""
    current = p.get("cuCtxGetCurrent", OUT)
    if current == p.primary:
        return "primary"
    return "created" if current else "none"


section.calls(
    """
    create null | cuCtxCreate_v2 0, 0, 0
    create on 99 | cuCtxCreate_v2 out, 0, 99
    create on -1 | cuCtxCreate_v2 out, 0, -1
    create null on 99 | cuCtxCreate_v2 0, 0, 99
    create flags 3 | cuCtxCreate_v2 out, 3, 0
    create flags 5 | cuCtxCreate_v2 out, 5, 0
    create flags 256 | cuCtxCreate_v2 out, 0x100, 0
    create flags 256 on 99 | cuCtxCreate_v2 out, 0x100, 99
    create with affinity, null | cuCtxCreate_v3 0, 0, 0, 0, 0
    create with parameters, null | cuCtxCreate_v4 0, 0, 0, 0
    destroy null | cuCtxDestroy_v2 0
    set current null | cuCtxSetCurrent 0
    get current null | cuCtxGetCurrent 0
    push null | cuCtxPushCurrent_v2 0
    pop to null | cuCtxPopCurrent_v2 0
    device null | cuCtxGetDevice 0
    flags null | cuCtxGetFlags 0
    version null | cuCtxGetApiVersion 0, 0
    id null | cuCtxGetId 0, 0
    priority range, nulls | cuCtxGetStreamPriorityRange 0, 0
    cache config null | cuCtxGetCacheConfig 0
    cache config 9 | cuCtxSetCacheConfig 9
    shared config null | cuCtxGetSharedMemConfig 0
    shared config 9 | cuCtxSetSharedMemConfig 9
    attach, null | cuCtxAttach 0, 0
    attach flags | cuCtxAttach out, 1
    detach null | cuCtxDetach 0
    enable peer null | cuCtxEnablePeerAccess 0, 0
    exec affinity null | cuCtxGetExecAffinity 0, 0
    reset persisting lines | cuCtxResetPersistingL2Cache
    set flags 3 | cuCtxSetFlags 3
    set flags 256 | cuCtxSetFlags 0x100
    record event null | cuCtxRecordEvent primary, 0
    wait event null | cuCtxWaitEvent primary, 0
    synchronize second version | cuCtxSynchronize_v2 primary
    synchronize second version null | cuCtxSynchronize_v2 0
    device second version | cuCtxGetDevice_v2 out, primary
    device second version null | cuCtxGetDevice_v2 out, 0
    flush writes to owner | cuFlushGPUDirectRDMAWrites 0, 100
    flush writes badly | cuFlushGPUDirectRDMAWrites 0, 1
    destroy primary | cuCtxDestroy_v2 primary
    detach primary | cuCtxDetach primary
""",
    _prepare,
)


@question("create makes current")
def _(p):
    return p.get("cuCtxGetCurrent", OUT) == p.context()


@question("create leaves the handle alone when it fails")
def _(p):
    cell = p.keep(OUT.kind(77))
    import ctypes

    p("cuCtxCreate_v2", ctypes.byref(cell), 0x100, 0)
    return cell.value == 77


@question("two contexts of a device differ")
def _(p):
    return len({p.context(), p.context(), p.primary})


@question("destroying the current one")
def _(p):
    return p.release(p.context()), _current(p)


@question("destroying the current one, three deep")
def _(p):
    p.context()
    return p.release(p.context()), _current(p)


@question("destroying one that is in the stack, not on top")
def _(p):
    lower = p.context()
    upper = p.context()
    status = p.release(lower)
    found = [status, p.get("cuCtxGetCurrent", OUT) == upper]
    popped = p.get("cuCtxPopCurrent_v2", OUT)
    return (
        *found,
        popped == upper,
        p.get("cuCtxGetCurrent", OUT) == lower,
        p("cuMemAlloc_v2", p.cell(), 4),
    )


@question("destroying twice")
def _(p):
    created = p.context()
    return p.release(created), p("cuCtxDestroy_v2", created)


@question("destroyed context, used", alone=True)
def _(p):
    created = p.context()
    p.release(created)
    return {
        "set": p("cuCtxSetCurrent", created),
        "push": p("cuCtxPushCurrent_v2", created),
        "version": p("cuCtxGetApiVersion", created, p.cell()),
        "id": p("cuCtxGetId", created, p.cell()),
    }


@question("destroyed while current in another thread", alone=True)
def _(p):
    created = p.context()
    p.get("cuCtxPopCurrent_v2", OUT)

    def other():
        p("cuCtxSetCurrent", created)
        status = p("cuCtxDestroy_v2", created)
        return status

    import threading

    ready, go, result = threading.Event(), threading.Event(), []

    def user():
        p("cuCtxSetCurrent", created)
        ready.set()
        go.wait()
        result.append(p.get("cuCtxGetCurrent", OUT) == created)
        result.append(p("cuMemAlloc_v2", p.cell(), 4))
        result.append(p("cuCtxSynchronize"))
        result.append(p("cuStreamQuery", 0))
        result.append(p("cuCtxSetCurrent", 0))

    thread = threading.Thread(target=user)
    thread.start()
    ready.wait()
    status = p.thread(other)
    p.forget(created)
    go.set()
    thread.join()
    return status, *result


@question("push and pop")
def _(p):
    created = p.context()
    steps = [p("cuCtxPushCurrent_v2", p.primary), _current(p)]
    steps.append(p.get("cuCtxPopCurrent_v2", OUT) == p.primary)
    steps.append(_current(p))
    steps.append(p.get("cuCtxPopCurrent_v2", OUT) == created)
    return *steps, _current(p)


@question("push the same twice")
def _(p):
    p("cuCtxPushCurrent_v2", p.primary)
    p("cuCtxPushCurrent_v2", p.primary)
    return [p("cuCtxPopCurrent_v2", p.cell()) for _ in range(4)], _current(p)


@question("pop to null pops")
def _(p):
    return p("cuCtxPopCurrent_v2", 0), _current(p)


@question("pop of an empty stack")
def _(p):
    p("cuCtxPopCurrent_v2", p.cell())
    return p("cuCtxPopCurrent_v2", p.cell()), p("cuCtxPopCurrent_v2", 0)


@question("set current replaces the top")
def _(p):
    created = p.context()
    p("cuCtxPushCurrent_v2", p.primary)
    p("cuCtxSetCurrent", created)
    popped = p.get("cuCtxPopCurrent_v2", OUT)
    return popped == created, p.get("cuCtxGetCurrent", OUT) == created


@question("set current null pops")
def _(p):
    created = p.context()
    p("cuCtxSetCurrent", 0)
    return _current(p), p.get("cuCtxPopCurrent_v2", OUT) == created


@question("set current on an empty stack pushes")
def _(p):
    p("cuCtxPopCurrent_v2", p.cell())
    p("cuCtxSetCurrent", p.primary)
    return _current(p), p("cuCtxPopCurrent_v2", p.cell()), _current(p)


@question("attach and detach")
def _(p):
    created = p.context()
    attached = p.get("cuCtxAttach", OUT, 0)
    return attached == created, p("cuCtxDetach", created), _current(p)


for flags in (0, 1, 2, 4, 8, 16, 9, 0x20, 0x80, 0x98):
    section.ask(
        f"flags of a context created with {flags}",
        lambda p, flags=flags: (p.context(flags), p.get("cuCtxGetFlags", INT))[1],
    )


@question("flags of the primary context")
def _(p):
    return p.get("cuCtxGetFlags", INT), p.get("cuDevicePrimaryCtxGetState", 0, INT, INT)


@question("changed flags of an active primary context", alone=True)
def _(p):
    status = p("cuDevicePrimaryCtxSetFlags_v2", 0, 4)
    return status, p.get("cuDevicePrimaryCtxGetState", 0, INT, INT), p.get("cuCtxGetFlags", INT)


@question("flags set before the primary context", setup="initialised", alone=True)
def _(p):
    before = (
        p("cuDevicePrimaryCtxSetFlags_v2", 0, 4),
        p.get("cuDevicePrimaryCtxGetState", 0, INT, INT),
    )
    p.start()
    return *before, p.get("cuCtxGetFlags", INT), p.get("cuDevicePrimaryCtxGetState", 0, INT, INT)


@question("set flags of a context")
def _(p):
    p.context()
    return [(p("cuCtxSetFlags", flags), p.get("cuCtxGetFlags", INT)) for flags in (1, 4, 8, 0, 16)]


@question("version of a context")
def _(p):
    created = p.context()
    names = {"created": created, "primary": p.primary, "null": 0}
    return {name: p.get("cuCtxGetApiVersion", value, INT) for name, value in names.items()}


@question("identifiers differ")
def _(p):
    created = p.context()
    ids = [p.get("cuCtxGetId", value, OUT) for value in (created, p.primary, 0)]
    return ids[0] != ids[1], ids[0] == ids[2]


@question("device of a context")
def _(p):
    p.context()
    return p.get("cuCtxGetDevice", INT)


@question("memory of another context of the device")
def _(p):
    address = p.device()
    p.context()
    return {
        "fill": p("cuMemsetD8_v2", address, 1, 16),
        "copy": p("cuMemcpyDtoD_v2", p.device(), address, 16),
        "read": p("cuMemcpyDtoH_v2", p.pageable(), address, 16),
        "attribute": p.get("cuPointerGetAttribute", OUT, 1, address) == p.primary,
        "range": p("cuMemGetAddressRange_v2", p.cell(), p.cell(), address),
        "free": p.release(address),
    }


@question("page-locked memory of another context")
def _(p):
    plain, portable = p.host(), p.host(flags=1)
    p.context()
    target = p.device()
    return {
        "plain": p("cuMemcpyHtoDAsync_v2", target, plain, 16, 0),
        "portable": p("cuMemcpyHtoDAsync_v2", target, portable, 16, 0),
        "pointer": p("cuMemHostGetDevicePointer_v2", p.cell(), plain, 0),
        "flags": p.get("cuMemHostGetFlags", INT, plain),
        "free": p.release(plain),
    }


@question("stream of another context")
def _(p):
    stream, event = p.stream(), p.event()
    p.context()
    address, other = p.device(), p.event()
    return {
        "fill": p("cuMemsetD8Async", address, 1, 16, stream),
        "query": p.later(lambda: p("cuStreamQuery", stream)),
        "synchronize": p("cuStreamSynchronize", stream),
        "record own event": p("cuEventRecord", event, stream),
        "record foreign event": p("cuEventRecord", other, stream),
        "wait for foreign event": p("cuStreamWaitEvent", stream, other, 0),
        "context": p.get("cuStreamGetCtx", stream, OUT) == p.primary,
        "capture": p("cuStreamIsCapturing", stream, p.cell()),
        "destroy": p.release(stream),
    }


@question("event of another context")
def _(p):
    event, second = p.event(), p.event()
    p("cuEventRecord", event, 0)
    p.context()
    stream = p.stream()
    return {
        "query": p.later(lambda: p("cuEventQuery", event)),
        "synchronize": p("cuEventSynchronize", event),
        "record": p("cuEventRecord", second, stream),
        "record in null stream": p("cuEventRecord", second, 0),
        "wait": p("cuStreamWaitEvent", stream, event, 0),
        "destroy": p.release(event),
    }


@question("device memory is gone with its context", alone=True)
def _(p):
    created = p.context()
    address = p.need("cuMemAlloc_v2", OUT, 4096)
    p.release(created)
    return p("cuMemFree_v2", address), p.get("cuPointerGetAttribute", INT, 2, address)


@question("page-locked memory is gone with its context", alone=True)
def _(p):
    created = p.context()
    address = p.need("cuMemHostAlloc", OUT, 4096, 0)
    p.release(created)
    return p("cuMemFreeHost", address), p.get("cuPointerGetAttribute", INT, 2, address)


@question("destroying a context with pending work")
def _(p):
    gate = p.gate()
    created = p.context()
    stream = p.stream()
    gate.hold(stream)
    answer = p.function_blocks(lambda: p("cuCtxDestroy_v2", created))
    if "SUCCESS" in answer or " " not in answer:
        p.forget(created)
    return answer
