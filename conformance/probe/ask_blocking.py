"""Which calls return while a stream is held, by memory, size and stream."""

import ctypes

from ask_copies2d import PLAIN, side
from driver import HOST_FUNCTION, LEGACY, NON_BLOCKING, OUT, PER_THREAD, Copy2D
from section import Section

section = Section("blocking")
question = section.question

HELD = {"non-blocking": NON_BLOCKING, "blocking": 0}
SIZES = {"4K": 4096, "64K": 65536, "128K": 131072, "1M": 1 << 20, "16M": 16 << 20}
HOSTS = ("pageable", "host", "registered")


def _held(p, name):
    if name == "legacy":
        return LEGACY
    return PER_THREAD if name == "per-thread" else p.stream(HELD[name])


def _copy(p, held, function, target, source, size, own):
    """Whether a copy blocks while a stream is held. With ``own``, the copy is on that stream."""
    stream = _held(p, held)
    arguments = [p.memory(target, size), p.memory(source, size), size]
    p.must("cuCtxSynchronize")
    p.gate(stream)
    return p.blocks(function, *arguments, *([stream] if own else []))


for label, size in SIZES.items():
    for host in HOSTS:
        for function, target, source in (
            ("cuMemcpyHtoDAsync_v2", "device", host),
            ("cuMemcpyDtoHAsync_v2", host, "device"),
        ):
            for held in ("non-blocking", "legacy"):
                section.ask(
                    f"{function} in the held {held} stream, {source} to {target}, {label}",
                    lambda p, a=(held, function, target, source, size, True): _copy(p, *a),
                )
        for function, target, source in (
            ("cuMemcpyHtoD_v2", "device", host),
            ("cuMemcpyDtoH_v2", host, "device"),
        ):
            for held in (*HELD, "per-thread"):
                if held == "per-thread" and label not in ("4K", "16M"):
                    continue
                section.ask(
                    f"{function} behind a held {held} stream, {source} to {target}, {label}",
                    lambda p, a=(held, function, target, source, size, False): _copy(p, *a),
                )

for label in ("4K", "16M"):
    for held in HELD:
        for target, source in (
            ("device", "device"), ("ordered", "device"), ("managed", "device"),
            ("device", "managed"), ("managed", "managed"), ("host", "host"),
            ("pageable", "pageable"), ("host", "device"), ("device", "host"),
            ("pageable", "device"), ("device", "pageable"), ("managed", "pageable"),
            ("host", "managed"), ("managed", "host"), ("pageable", "host"),
        ):  # fmt: skip
            for function, own in (("cuMemcpy", False), ("cuMemcpyAsync", True)):
                if own and held == "blocking":
                    continue
                section.ask(
                    f"{function}, {source} to {target}, {label}, held {held} stream",
                    lambda p, a=(held, function, target, source, SIZES[label], own): _copy(p, *a),
                )
        for kind in ("device", "ordered", "managed", "host", "registered"):

            def _fill(p, held=held, kind=kind, size=SIZES[label], asynchronous=False):
                stream = _held(p, held)
                address = p.memory(kind, size)
                p.must("cuCtxSynchronize")
                p.gate(stream)
                if asynchronous:
                    return p.blocks("cuMemsetD8Async", address, 7, size, stream)
                return p.blocks("cuMemsetD8_v2", address, 7, size)

            section.ask(f"fill of {kind}, {label}, held {held} stream", _fill)
            section.ask(
                f"async fill of {kind}, {label}, held {held} stream",
                lambda p, fill=_fill: fill(p, asynchronous=True),
            )


def _rectangle(p, held, target, source, asynchronous):
    stream = _held(p, held)
    values = PLAIN | side("src", source, p.memory(source)) | side("dst", target, p.memory(target))
    description = ctypes.byref(p.keep(Copy2D(**values)))
    p.must("cuCtxSynchronize")
    p.gate(stream)
    if asynchronous:
        return p.blocks("cuMemcpy2DAsync_v2", description, stream)
    return p.blocks("cuMemcpy2D_v2", description)


for held in HELD:
    for target, source in (
        ("device", "device"), ("device", "pageable"), ("device", "host"), ("pageable", "device"),
        ("host", "device"), ("host", "host"), ("pageable", "pageable"),
    ):  # fmt: skip
        for asynchronous in (False, True):
            section.ask(
                f"2D{' async' if asynchronous else ''}, {source} to {target}, held {held} stream",
                lambda p, a=(held, target, source, asynchronous): _rectangle(p, *a),
            )


def _call(held, prepare):
    def ask(p):
        stream = _held(p, held)
        name, *arguments = prepare(p, stream)
        p.must("cuCtxSynchronize")
        p.gate(stream)
        return p.blocks(name, *arguments)

    return ask


def _freed(p, address):
    p.forget(address)
    return address


def _nothing(p):
    return p.keep(HOST_FUNCTION(lambda _: None))


def _idle_event(p):
    event = p.event()
    p.must("cuEventRecord", event, p.stream())
    return event


CALLS = {
    "alloc of 4K": lambda p, s: ("cuMemAlloc_v2", p.cell(), 4096),
    "alloc of 16M": lambda p, s: ("cuMemAlloc_v2", p.cell(), 16 << 20),
    "alloc refused": lambda p, s: ("cuMemAlloc_v2", p.cell(), 0),
    "free": lambda p, s: ("cuMemFree_v2", _freed(p, p.device())),
    "free of 64 bytes": lambda p, s: ("cuMemFree_v2", _freed(p, p.device(64))),
    "free of 16M": lambda p, s: ("cuMemFree_v2", _freed(p, p.device(16 << 20))),
    "free of null": lambda p, s: ("cuMemFree_v2", 0),
    "free refused": lambda p, s: ("cuMemFree_v2", 16),
    "free of stream-ordered memory": lambda p, s: ("cuMemFree_v2", _freed(p, p.ordered())),
    "free of stream-ordered memory of the stream": lambda p, s: (
        "cuMemFree_v2",
        _freed(p, p.ordered(4096, s)),
    ),
    "free of managed memory": lambda p, s: ("cuMemFree_v2", _freed(p, p.managed())),
    "managed alloc": lambda p, s: ("cuMemAllocManaged", p.cell(), 4096, 1),
    "host alloc of 4K": lambda p, s: ("cuMemHostAlloc", p.cell(), 4096, 0),
    "host alloc of 16M": lambda p, s: ("cuMemHostAlloc", p.cell(), 16 << 20, 0),
    "host free": lambda p, s: ("cuMemFreeHost", _freed(p, p.host())),
    "host free of null": lambda p, s: ("cuMemFreeHost", 0),
    "host free refused": lambda p, s: ("cuMemFreeHost", p.pageable()),
    "register of 4K": lambda p, s: ("cuMemHostRegister_v2", p.pageable(), 4096, 0),
    "register of 16M": lambda p, s: ("cuMemHostRegister_v2", p.pageable(16 << 20), 16 << 20, 0),
    "unregister": lambda p, s: ("cuMemHostUnregister", _freed(p, p.registered())),
    "unregister refused": lambda p, s: ("cuMemHostUnregister", p.pageable()),
    "alloc async in another stream": lambda p, s: ("cuMemAllocAsync", p.cell(), 4096, p.stream()),
    "alloc async": lambda p, s: ("cuMemAllocAsync", p.cell(), 4096, s),
    "free async": lambda p, s: ("cuMemFreeAsync", _freed(p, p.ordered(4096, s)), s),
    "free async of device memory": lambda p, s: ("cuMemFreeAsync", _freed(p, p.device()), s),
    "free async in another stream": lambda p, s: (
        "cuMemFreeAsync",
        _freed(p, p.ordered(4096)),
        p.stream(),
    ),
    "trim": lambda p, s: ("cuMemPoolTrimTo", p.need("cuDeviceGetDefaultMemPool", OUT, 0), 0),
    "prefetch": lambda p, s: ("cuMemPrefetchAsync", p.managed(), 4096, 0, s),
    "prefetch of 16M": lambda p, s: ("cuMemPrefetchAsync", p.managed(16 << 20), 16 << 20, 0, s),
    "prefetch to the host": lambda p, s: ("cuMemPrefetchAsync", p.managed(), 4096, -1, s),
    "advise": lambda p, s: ("cuMemAdvise", p.managed(), 4096, 1, 0),
    "attach": lambda p, s: ("cuStreamAttachMemAsync", s, p.managed(), 0, 1),
    "memory info": lambda p, s: ("cuMemGetInfo_v2", p.cell(), p.cell()),
    "address range": lambda p, s: ("cuMemGetAddressRange_v2", p.cell(), p.cell(), p.device()),
    "pointer attribute": lambda p, s: ("cuPointerGetAttribute", p.cell(), 2, p.device()),
    "synchronous operations": lambda p, s: ("cuPointerSetAttribute", p.cell(1), 6, p.device()),
    "stream create": lambda p, s: ("cuStreamCreate", p.cell(), 0),
    "stream destroy": lambda p, s: ("cuStreamDestroy_v2", p.need("cuStreamCreate", OUT, 0)),
    "stream destroy of the held": lambda p, s: ("cuStreamDestroy_v2", _freed(p, s)),
    "stream query": lambda p, s: ("cuStreamQuery", s),
    "stream wait event": lambda p, s: ("cuStreamWaitEvent", s, _idle_event(p), 0),
    "event create": lambda p, s: ("cuEventCreate", p.cell(), 0),
    "event destroy": lambda p, s: ("cuEventDestroy_v2", p.need("cuEventCreate", OUT, 0)),
    "event record": lambda p, s: ("cuEventRecord", p.event(), s),
    "event record in the legacy stream": lambda p, s: ("cuEventRecord", p.event(), 0),
    "event synchronize of an idle one": lambda p, s: ("cuEventSynchronize", _idle_event(p)),
    "host function": lambda p, s: ("cuLaunchHostFunc", s, _nothing(p), 0),
    "host function in the legacy stream": lambda p, s: ("cuLaunchHostFunc", 0, _nothing(p), 0),
    "write value": lambda p, s: ("cuStreamWriteValue32_v2", s, p.host(), 1, 0),
    "set limit": lambda p, s: ("cuCtxSetLimit", 1, 2 << 20),
    "set cache config": lambda p, s: ("cuCtxSetCacheConfig", 1),
    "context synchronize": lambda p, s: ("cuCtxSynchronize",),
    "context create": lambda p, s: ("cuCtxCreate_v2", p.cell(), 0, 0),
    "context destroy of another": lambda p, s: ("cuCtxDestroy_v2", _freed(p, p.context())),
    "primary retain": lambda p, s: ("cuDevicePrimaryCtxRetain", p.cell(), 0),
    "capture begin": lambda p, s: ("cuStreamBeginCapture_v2", s, 2),
    "graph create": lambda p, s: ("cuGraphCreate", p.cell(), 0),
    "module of garbage": lambda p, s: ("cuModuleLoadData", p.cell(), p.pageable()),
    "copy of nothing": lambda p, s: ("cuMemcpyHtoD_v2", p.device(), p.pageable(), 0),
    "fill of nothing": lambda p, s: ("cuMemsetD8_v2", p.device(), 0, 0),
}
for name, prepare in CALLS.items():
    alone = "context" in name or "primary" in name
    for held in HELD:
        section.ask(f"{name}, held {held} stream", _call(held, prepare), alone=alone)


@question("primary context reset, held stream", alone=True)
def _(p):
    p.gate(p.stream())
    found = p.blocks("cuDevicePrimaryCtxReset_v2", 0)
    p.primary = None
    return found


@question("primary context release, held stream", alone=True)
def _(p):
    p.gate(p.stream())
    found = p.blocks("cuDevicePrimaryCtxRelease_v2", 0)
    p.primary = None
    return found


@question("synchronous copies with synchronous operations set")
def _(p):
    target, source = p.device(), p.device()
    for address in (target, source):
        p.must("cuPointerSetAttribute", p.cell(1), 6, address)
    p.gate(p.stream(0))
    return p.blocks("cuMemcpyDtoD_v2", target, source, 4096)


@question("synchronous fills with synchronous operations set")
def _(p):
    target = p.device()
    p.must("cuPointerSetAttribute", p.cell(1), 6, target)
    p.gate(p.stream(0))
    return p.blocks("cuMemsetD8_v2", target, 0, 4096)
