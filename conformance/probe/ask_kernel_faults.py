"""The state of a context after a kernel with an error. Each error has a process of its own."""

import ctypes

from driver import OUT
from kernels import HEAD, address, entry, function, launch, launch_on, load, on_address, pointers
from section import Section

section = Section("kernel_faults")


def after(p, status):
    """Returns the error that the fault causes, and the status of calls after it."""
    found = [status, p("cuCtxSynchronize")]
    out = p.cell()
    return found, {
        "again": p("cuCtxSynchronize"),
        "allocate": p("cuMemAlloc_v2", out, 64),
        "load": p("cuModuleLoadData", out, p.image),
        "stream": p("cuStreamCreate", out, 0),
    }


def ask(name, kernel, place, **options):
    """Asks about a kernel that gets the address ``place(p)``."""

    def run(p):
        return after(p, launch_on(p, kernel, place(p), **options))

    section.ask(name, run, alone=True)


GAP = 1 << 30

for kernel in ("fault_store", "fault_load", "fault_generic", "fault_atomic"):
    what = kernel.removeprefix("fault_")
    ask(f"{what} at null", kernel, lambda p: 0)
    ask(f"{what} at 16", kernel, lambda p: 16)
    ask(f"{what} far beyond an allocation", kernel, lambda p: p.device() + GAP)
    ask(f"{what} not aligned", kernel, lambda p: p.device() + 1)
    ask(f"{what} in ordinary memory", kernel, lambda p: p.pageable())
    ask(f"{what} at an address that is none", kernel, lambda p: 1 << 60)

ask("store right behind an allocation", "fault_store", lambda p: p.device(2 << 20) + (2 << 20))
ask("vector store aligned for its parts only", "fault_wide", lambda p: p.device() + 4)
ask("vector store aligned", "fault_wide", lambda p: p.device() + 16)
ask("trap", "fault_trap", lambda p: 0)
ask("breakpoint", "fault_breakpoint", lambda p: 0)
ask("exit", "fault_exit", lambda p: 0)
ask("shared store beyond the block's", "fault_shared", lambda p: 1 << 20)
ask("shared store at 100 of none", "fault_shared", lambda p: 100)
ask("shared store not aligned", "fault_shared", lambda p: 1, shared=64)
ask("shared store inside", "fault_shared", lambda p: 16, shared=64)


@section.question("store to freed memory", alone=True)
def _(p):
    target = p.device(64 << 20)
    p.release(target)
    return after(p, launch_on(p, "store", target, 1))


@section.question("store to a constant through its address", alone=True)
def _(p):
    module = load(p)
    table = p.need("cuModuleGetGlobal_v2", OUT, OUT, module, b"table")[0]
    kernel = function(p, "store", module)
    return after(p, launch(p, kernel, pointers(p, address(table), ctypes.c_uint32(1))))


@section.question("store to memory registered as read-only", alone=True)
def _(p):
    target = p.registered(4096, 8)
    return after(p, launch_on(p, "store", target, 1))


@section.question("work behind a fault", alone=True)
def _(p):
    stream, target = p.stream(), p.host()
    status = launch_on(p, "fault_trap", 0, stream=stream)
    p("cuMemsetD8Async", target, 1, 16, stream)
    return status, p("cuStreamSynchronize", stream), p.bytes_at(target, 4)


@section.question("an event behind a fault", alone=True)
def _(p):
    stream, event = p.stream(), p.event()
    launch_on(p, "fault_trap", 0, stream=stream)
    p("cuEventRecord", event, stream)
    return p("cuEventSynchronize", event), p("cuEventQuery", event), p("cuStreamQuery", stream)


@section.question("the host's memory after a fault", alone=True)
def _(p):
    target, gone = p.host(), p.device()
    launch_on(p, "fault_trap", 0)
    p("cuCtxSynchronize")
    return {
        "free of page-locked memory": p("cuMemFreeHost", target),
        "free of device memory": p("cuMemFree_v2", gone),
        "destroy": p("cuDevicePrimaryCtxReset_v2", 0),
        "retain": p("cuDevicePrimaryCtxRetain", p.cell(), 0),
    }


@section.question("a fault in a created context and then another one", alone=True)
def _(p):
    p.context()
    launch_on(p, "fault_trap", 0)
    found = [p("cuCtxSynchronize")]
    p("cuCtxSetCurrent", p.primary)
    return found, p("cuCtxSynchronize"), p("cuMemAlloc_v2", p.cell(), 64)


@section.question("unloading after a fault", alone=True)
def _(p):
    module = load(p)
    launch(p, function(p, "fault_trap", module), pointers(p, address(0)))
    return p("cuCtxSynchronize"), p("cuModuleUnload", module)


@section.question("a barrier that some threads do not reach", alone=True)
def _(p):
    body = "    mov.u32 %r1, %tid.x;\n    setp.gt.u32 %p1, %r1, 31;\n    @%p1 bra done;\n"
    text = HEAD + entry("k", ".param .u64 at", on_address(body + "    bar.sync 0;\ndone:"))
    kernel = function(p, "k", load(p, text))
    status = launch(p, kernel, pointers(p, address(0)), block=(64, 1, 1))
    return status, p("cuCtxSynchronize")
