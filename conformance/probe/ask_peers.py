"""Two devices: access, copies, and the use of one device's objects with the other device."""

import ctypes

from driver import INT, OUT, Access
from section import Section, SetupFailed

section = Section("peers")
question = section.question

section.calls("""
    can access null | cuDeviceCanAccessPeer 0, 0, 0
    can access itself | cuDeviceCanAccessPeer out, 0, 0
    can access 99 | cuDeviceCanAccessPeer out, 0, 99
    can access from 99 | cuDeviceCanAccessPeer out, 99, 0
    can access null of 99 | cuDeviceCanAccessPeer 0, 99, 0
    attribute of itself | cuDeviceGetP2PAttribute out, 1, 0, 0
    attribute null | cuDeviceGetP2PAttribute 0, 1, 0, 0
    attribute 0 of itself | cuDeviceGetP2PAttribute out, 0, 0, 0
    attribute of 99 | cuDeviceGetP2PAttribute out, 1, 0, 99
    enable null | cuCtxEnablePeerAccess 0, 0
    enable itself | cuCtxEnablePeerAccess p.primary, 0
    enable itself with flags | cuCtxEnablePeerAccess p.primary, 1
    disable null | cuCtxDisablePeerAccess 0
    disable itself | cuCtxDisablePeerAccess p.primary
    enable another context of the device | cuCtxEnablePeerAccess (p.context(), p.primary)[1], 0
""")


@question("can access itself: value")
def _(p):
    return p.get("cuDeviceCanAccessPeer", INT, 0, 0)


def _other(p):
    """Retains the primary context of device 1. The context of device 0 stays current."""
    if p.need("cuDeviceGetCount", INT) < 2:
        raise SetupFailed("one device only")
    other = p.need("cuDevicePrimaryCtxRetain", OUT, 1)
    return other


class Two:
    """Two devices. `there` calls a function with device 1's context current."""

    def __init__(self, p):
        self.p, self.context = p, _other(p)

    def there(self, function, *arguments):
        self.p("cuCtxSetCurrent", self.context)
        try:
            return function(*arguments)
        finally:
            self.p("cuCtxSetCurrent", self.p.primary)

    def enable(self):
        status = self.p("cuCtxEnablePeerAccess", self.context, 0)
        if status not in ("SUCCESS", "PEER_ACCESS_ALREADY_ENABLED"):
            raise SetupFailed(f"cuCtxEnablePeerAccess {status}")


def _prepare(p):
    two = Two(p)
    return {
        "c": two.context, "a": p.device(), "b": two.there(p.device), "s": p.stream(),
        "t": two.there(p.stream), "e": p.event(), "f": two.there(p.event), "h": p.host(),
        "g": two.there(p.host), "m": p.managed(), "page": p.pageable(), "o": p.ordered(),
        "q": two.there(p.ordered),
    }  # fmt: skip


CALLS = """
    can access | cuDeviceCanAccessPeer out, 0, 1
    attribute 0 | cuDeviceGetP2PAttribute out, 0, 0, 1
    attribute 1 | cuDeviceGetP2PAttribute out, 1, 0, 1
    attribute 9 | cuDeviceGetP2PAttribute out, 9, 0, 1
    attribute null | cuDeviceGetP2PAttribute 0, 1, 0, 1
    peer copy | cuMemcpyPeer b, c, a, p.primary, 16
    peer copy back | cuMemcpyPeer a, p.primary, b, c, 16
    peer copy, contexts swapped | cuMemcpyPeer b, p.primary, a, c, 16
    peer copy, null contexts | cuMemcpyPeer b, 0, a, 0, 16
    peer copy of nothing | cuMemcpyPeer b, c, a, p.primary, 0
    peer copy past the end | cuMemcpyPeer b, c, a, p.primary, 4097
    peer copy of page-locked memory | cuMemcpyPeer b, c, h, p.primary, 16
    peer copy async | cuMemcpyPeerAsync b, c, a, p.primary, 16, s
    peer copy async in the other's stream | cuMemcpyPeerAsync b, c, a, p.primary, 16, t
    peer copy async, contexts swapped | cuMemcpyPeerAsync b, p.primary, a, c, 16, s
    DtoD there | cuMemcpyDtoD_v2 b, a, 16
    DtoD back | cuMemcpyDtoD_v2 a, b, 16
    DtoD within the other | cuMemcpyDtoD_v2 b, b + 64, 16
    by address | cuMemcpy b, a, 16
    by address async | cuMemcpyAsync b, a, 16, s
    by address async in the other's stream | cuMemcpyAsync b, a, 16, t
    DtoD async | cuMemcpyDtoDAsync_v2 b, a, 16, s
    DtoD async in the other's stream | cuMemcpyDtoDAsync_v2 b, a, 16, t
    DtoD async within this in the other's stream | cuMemcpyDtoDAsync_v2 a, a + 64, 16, t
    HtoD to the other | cuMemcpyHtoD_v2 b, page, 16
    HtoD async to the other | cuMemcpyHtoDAsync_v2 b, h, 16, s
    HtoD async from the other's page-locked memory | cuMemcpyHtoDAsync_v2 a, g, 16, s
    HtoD async from the other's page-locked memory to the other | cuMemcpyHtoDAsync_v2 b, g, 16, s
    HtoD async in the other's stream | cuMemcpyHtoDAsync_v2 a, h, 16, t
    DtoH from the other | cuMemcpyDtoH_v2 page, b, 16
    DtoH async from the other | cuMemcpyDtoHAsync_v2 h, b, 16, s
    fill of the other | cuMemsetD8_v2 b, 1, 16
    fill async of the other | cuMemsetD8Async b, 1, 16, s
    fill async of the other in its stream | cuMemsetD8Async b, 1, 16, t
    fill async in the other's stream | cuMemsetD8Async a, 1, 16, t
    fill of the other's page-locked memory | cuMemsetD8_v2 g, 1, 16
    fill of pool memory of the other | cuMemsetD8_v2 q, 1, 16
    DtoD of pool memory of the other | cuMemcpyDtoD_v2 a, q, 16
    DtoD async of the other's pool memory in its stream | cuMemcpyDtoDAsync_v2 a, q, 16, t
    DtoD async of pool memory in the other's stream | cuMemcpyDtoDAsync_v2 b, o, 16, t
    fill async of the other's pool memory in its stream | cuMemsetD8Async q, 1, 16, t
    fill async of pool memory in the other's stream | cuMemsetD8Async o, 1, 16, t
    peer copy of pool memory of the other | cuMemcpyPeer a, p.primary, q, c, 16
    free async of pool memory of the other | cuMemFreeAsync q, s
    record in the other's stream | cuEventRecord e, t
    record the other's event | cuEventRecord f, s
    record the other's event in its stream | cuEventRecord f, t
    record the other's event in the null stream | cuEventRecord f, 0
    wait for the other's event | cuStreamWaitEvent s, f, 0
    wait in the other's stream | cuStreamWaitEvent t, e, 0
    query the other's event | cuEventQuery f
    synchronize the other's event | cuEventSynchronize f
    query the other's stream | cuStreamQuery t
    synchronize the other's stream | cuStreamSynchronize t
    flags of the other's stream | cuStreamGetFlags t, out
    wait value in the other's stream | cuStreamWaitValue32_v2 t, h, 0, 0
    wait value in the other's memory | cuStreamWaitValue32_v2 s, b, 0, 0
    prefetch to the other | cuMemPrefetchAsync m, 4096, 1, s
    prefetch in the other's stream | cuMemPrefetchAsync m, 4096, 0, t
    advise accessed by the other | cuMemAdvise m, 4096, 5, 1
    pointer of the other's page-locked memory | cuMemHostGetDevicePointer_v2 out, g, 0
    range of the other's memory | cuMemGetAddressRange_v2 out, p.cell(), b
    alloc async in the other's stream | cuMemAllocAsync out, 16, t
    capture of the other's stream | cuStreamBeginCapture_v2 t, 2
    disable never enabled | cuCtxDisablePeerAccess c
    enable with flags | cuCtxEnablePeerAccess c, 1
"""
section.calls(
    "\n".join("access off: " + line.strip() for line in CALLS.strip().splitlines()), _prepare
)


def _enabled(p):
    names = _prepare(p)
    Two(p).enable()
    return names


section.calls(
    "\n".join("access on: " + line.strip() for line in CALLS.strip().splitlines()), _enabled
)


@question("enabled twice, disabled twice", alone=True)
def _(p):
    other = _other(p)
    steps = [p("cuCtxEnablePeerAccess", other, 0) for _ in range(2)]
    return *steps, [p("cuCtxDisablePeerAccess", other) for _ in range(2)]


@question("can access: value")
def _(p):
    _other(p)
    return p.get("cuDeviceCanAccessPeer", INT, 0, 1), p.get("cuDeviceCanAccessPeer", INT, 1, 0)


for number in range(1, 6):

    def _attribute(p, number=number):
        _other(p)
        return p.get("cuDeviceGetP2PAttribute", INT, number, 0, 1)

    section.ask(f"attribute {number}: value", _attribute)


def _arrives(p, call, enabled):
    two = Two(p)
    if enabled:
        two.enable()
    mine, its = p.device(), two.there(p.device)
    p.write(mine, b"from one to two")
    status = call(p, two, mine, its)
    return status, p("cuCtxSynchronize"), two.there(p.read, its, 15)


for enabled in (False, True):
    for name, call in {
        "DtoD": lambda p, two, a, b: p("cuMemcpyDtoD_v2", b, a, 15),
        "by address": lambda p, two, a, b: p("cuMemcpy", b, a, 15),
        "peer": lambda p, two, a, b: p("cuMemcpyPeer", b, two.context, a, p.primary, 15),
        "peer, contexts swapped": lambda p, two, a, b: p(
            "cuMemcpyPeer", b, p.primary, a, two.context, 15
        ),
        "in the other's context": lambda p, two, a, b: two.there(
            lambda: p("cuMemcpyDtoD_v2", b, a, 15)
        ),
    }.items():
        section.ask(
            f"arrives, access {'on' if enabled else 'off'}: {name}",
            lambda p, c=call, e=enabled: _arrives(p, c, e),
            alone=True,
        )


@question("free of the other's memory")
def _(p):
    two = Two(p)
    address = two.there(lambda: p.need("cuMemAlloc_v2", OUT, 16))
    return p("cuMemFree_v2", address)


@question("free of the other's page-locked memory")
def _(p):
    two = Two(p)
    address = two.there(lambda: p.need("cuMemHostAlloc", OUT, 16, 0))
    return p("cuMemFreeHost", address)


@question("destroy of the other's stream and event")
def _(p):
    two = Two(p)
    stream, event = two.there(p.stream), two.there(p.event)
    return p.release(stream), p.release(event)


@question("attributes of the other's memory")
def _(p):
    address = (two := Two(p)).there(p.device)
    return [
        p.get("cuPointerGetAttribute", OUT, 1, address) == two.context,
        p.get("cuPointerGetAttribute", INT, 2, address),
        p.get("cuPointerGetAttribute", INT, 9, address),
        p.get("cuPointerGetAttribute", OUT, 3, address) == address,
    ]


@question("elapsed between devices")
def _(p):
    two, mine = Two(p), p.event()
    its = two.there(p.event)
    p("cuEventRecord", mine, 0)
    two.there(lambda: p("cuEventRecord", its, 0))
    p("cuCtxSynchronize"), two.there(lambda: p("cuCtxSynchronize"))
    return p("cuEventElapsedTime", p.cell(), mine, its)


@question("a wait for a held stream of the other holds")
def _(p):
    two, stream = Two(p), p.stream()
    its, event = two.there(p.stream), two.there(p.event)
    gate = p.gate()
    two.there(lambda: gate.hold(its))
    p("cuEventRecord", event, its)
    steps = [p("cuStreamWaitEvent", stream, event, 0), p("cuStreamQuery", stream)]
    gate.open()
    return *steps, p("cuStreamSynchronize", stream)


@question("synchronize and free do not wait for the other device")
def _(p):
    two, address = Two(p), p.device()
    its, gate = two.there(p.stream), p.gate()
    two.there(lambda: gate.hold(its))
    first = p.blocks("cuCtxSynchronize")
    p.forget(address)
    return first, p("cuMemFree_v2", address)


@question("a free waits for the other device")
def _(p):
    two, address = Two(p), p.device()
    its, gate = two.there(p.stream), p.gate()
    two.there(lambda: gate.hold(its))
    p.forget(address)
    return p.blocks("cuMemFree_v2", address)


@question("pool access", alone=True)
def _(p):
    _other(p)
    pool, found = p.need("cuDeviceGetDefaultMemPool", OUT, 0), []
    access = ctypes.byref(p.keep(Access(1, 1, 3)))
    found.append(p.get("cuMemPoolGetAccess", INT, pool, access))
    found.append(p("cuMemPoolSetAccess", pool, access, 1))
    found.append(p.get("cuMemPoolGetAccess", INT, pool, access))
    none = ctypes.byref(p.keep(Access(1, 1, 0)))
    found.append(p("cuMemPoolSetAccess", pool, none, 1))
    return found, p.get("cuMemPoolGetAccess", INT, pool, access)


@question("set the other's pool")
def _(p):
    _other(p)
    return p("cuDeviceSetMemPool", 0, p.need("cuDeviceGetDefaultMemPool", OUT, 1))


@question("priority, limits and flags are the other's own")
def _(p):
    two = Two(p)
    return two.there(lambda: (p.get("cuCtxGetDevice", INT), p.get("cuCtxGetFlags", INT)))
