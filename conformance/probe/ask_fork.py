"""Calls in forked children. The parent may have initialised the driver before the fork or not."""

import os
import signal

from driver import NoSuchFunction
from section import INITIALISED, NOTHING, Section

section = Section("fork")


def in_child(function):
    """Runs a function in a forked child. Returns its result, or how the child died."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(4)
        try:
            text = str(function())
        except NoSuchFunction:
            text = "no such function"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 65536).decode()
    os.close(read)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return "child hangs" if name == "SIGALRM" else f"child died by {name}"
    return text


CALLS = """
    version | cuDriverGetVersion out
    error name | cuGetErrorName 1, out
    init | cuInit 0
    init with flags | cuInit 1
    device count | cuDeviceGetCount out
    device | cuDeviceGet out, 0
    device attribute | cuDeviceGetAttribute out, 1, 0
    get current | cuCtxGetCurrent out
    set current null | cuCtxSetCurrent 0
    primary retain | cuDevicePrimaryCtxRetain out, 0
    primary state | cuDevicePrimaryCtxGetState 0, out, p.cell()
    context create | cuCtxCreate_v2 out, 0, 0
    alloc | cuMemAlloc_v2 out, 16
    alloc null | cuMemAlloc_v2 0, 0
    free null | cuMemFree_v2 0
    host alloc | cuMemHostAlloc out, 16, 0
    stream create | cuStreamCreate out, 0
    event create | cuEventCreate out, 0
    pointer attribute | cuPointerGetAttribute out, 2, 16
    null stream query | cuStreamQuery 0
    capture mode | cuThreadExchangeStreamCaptureMode p.cell(2)
    proc address | cuGetProcAddress_v2 b"cuInit", out, 12000, 0, 0
"""
MADE = """
    free | cuMemFree_v2 a
    host free | cuMemFreeHost h
    unregister | cuMemHostUnregister r
    stream query | cuStreamQuery s
    stream synchronize | cuStreamSynchronize s
    stream destroy | cuStreamDestroy_v2 s
    event query | cuEventQuery e
    event synchronize | cuEventSynchronize e
    event destroy | cuEventDestroy_v2 e
    context synchronize | cuCtxSynchronize
    set current | cuCtxSetCurrent p.primary
    copy | cuMemcpyHtoD_v2 a, page, 16
    fill | cuMemsetD8_v2 a, 0, 16
    fill async | cuMemsetD8Async a, 0, 16, s
    primary release | cuDevicePrimaryCtxRelease_v2 0
    primary reset | cuDevicePrimaryCtxReset_v2 0
    host flags | cuMemHostGetFlags p.cell(), h
    pointer attribute of memory | cuPointerGetAttribute p.cell(), 2, a
"""


def _prepare(p):
    return {
        "a": p.device(), "h": p.host(), "r": p.registered(), "s": p.stream(), "e": p.event(),
        "page": p.pageable(),
    }  # fmt: skip


def _ask(setup, prefix, text, prepare=lambda p: {}):
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, call = line.partition(" | ")
        function, _, arguments = call.partition(" ")
        code = compile(f"({arguments},)" if arguments else "()", name, "eval")

        def ask(p, function=function, code=code):
            values = eval(code, {"p": p, "out": p.cell(), **prepare(p)})
            return in_child(lambda: p(function, *values))

        section.ask(f"{prefix}: {name}", ask, setup=setup)


_ask(NOTHING, "parent not initialised", CALLS)
_ask(INITIALISED, "parent initialised", CALLS)
_ask("current", "parent with a context", CALLS)
_ask("current", "parent with a context", MADE, _prepare)


@section.question("parent not initialised: child works", setup=NOTHING)
def _(p):
    return in_child(lambda: (p.start(), p("cuMemAlloc_v2", p.cell(), 16))[1])


@section.question("parent goes on after the child")
def _(p):
    address = p.device()
    child = in_child(lambda: p("cuDeviceGetCount", p.cell()))
    return child, p("cuMemsetD8_v2", address, 1, 16), p("cuCtxSynchronize"), p.read(address, 2)


@section.question("page-locked memory in the child")
def _(p):
    address = p.host()
    p.fill_host(address, b"abcd")
    return in_child(lambda: p.bytes_at(address, 4))


@section.question("managed memory in the child")
def _(p):
    address = p.managed()
    p.fill_host(address, b"abcd")
    return in_child(lambda: p.bytes_at(address, 4))
