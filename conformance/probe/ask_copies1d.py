"""Linear copies: which bytes the target has afterwards, and which copies are refused."""

from section import Section

section = Section("copies1d")
question = section.question

PATTERN = bytes((i * 7 + 3) & 255 for i in range(8192))
HOSTS = ("pageable", "host", "registered")
DEVICES = ("device", "ordered")
KINDS = (*DEVICES, *HOSTS, "managed")


def _filled(p, kind, size=8192):
    """Makes memory of a kind, and writes the pattern to it."""
    address = p.memory(kind, size)
    _put(p, kind, address, PATTERN[:size])
    return address


def _put(p, kind, address, content):
    if kind in DEVICES:
        p.write(address, content)
    else:
        p.fill_host(address, content)


def _content(p, kind, address, size):
    p("cuCtxSynchronize")
    return p.read(address, size) if kind in DEVICES else p.bytes_at(address, size)


def _copied(p, target_kind, source_kind, call, size=1000, at=0, start=0):
    target, source = p.memory(target_kind, 8192), _filled(p, source_kind)
    _put(p, target_kind, target, bytes(8192))
    status = call(p, target + at, source + start, size)
    content = _content(p, target_kind, target, 8192)
    expected = bytes(at) + PATTERN[start : start + size] + bytes(8192 - at - size)
    if content == expected:
        return status, "arrives"
    return status, "nothing arrives" if content == bytes(8192) else "something else arrives"


for target in KINDS:
    for source in KINDS:
        for name, call in {
            "by address": lambda p, t, s, n: p("cuMemcpy", t, s, n),
            "by address async": lambda p, t, s, n: p("cuMemcpyAsync", t, s, n, p.stream()),
            "HtoD": lambda p, t, s, n: p("cuMemcpyHtoD_v2", t, s, n),
            "DtoH": lambda p, t, s, n: p("cuMemcpyDtoH_v2", t, s, n),
            "DtoD": lambda p, t, s, n: p("cuMemcpyDtoD_v2", t, s, n),
        }.items():
            if (name == "HtoD" and source in DEVICES) or (name == "DtoH" and target in DEVICES):
                continue  # the driver would access device memory from the host
            section.ask(
                f"{name}, {source} to {target}",
                lambda p, t=target, s=source, call=call: _copied(p, t, s, call),
            )

for name, target, source in (("HtoD", "device", "pageable"), ("DtoH", "pageable", "device")):
    for suffix in ("", "Async"):
        for size in (0, 1, 3, 63, 64, 65, 4095, 4096, 4097):
            section.ask(
                f"{name}{suffix} of {size} bytes",
                lambda p, n=f"cuMemcpy{name}{suffix}_v2", t=target, s=source, size=size,
                extra=(0,) if suffix else (): _copied(
                    p, t, s, lambda p, a, b, count: p(n, a, b, count, *extra), size
                ),
            )  # fmt: skip

for at, start, size in ((1, 0, 1), (0, 1, 1), (3, 5, 1001), (4095, 4095, 2), (1, 2, 4096)):
    section.ask(
        f"DtoD of {size} from {start} to {at}",
        lambda p, at=at, start=start, size=size: _copied(
            p, "device", "device", lambda p, *args: p("cuMemcpyDtoD_v2", *args), size, at, start
        ),
    )


def _prepare(p):
    return {"a": p.device(4096), "h": p.host(), "page": p.pageable(), "s": p.stream()}


section.calls(
    """
    HtoD to null | cuMemcpyHtoD_v2 0, page, 16
    HtoD from null | cuMemcpyHtoD_v2 a, 0, 16
    HtoD both null | cuMemcpyHtoD_v2 0, 0, 16
    HtoD nothing to null | cuMemcpyHtoD_v2 0, page, 0
    HtoD nothing from null | cuMemcpyHtoD_v2 a, 0, 0
    HtoD nothing, both null | cuMemcpyHtoD_v2 0, 0, 0
    HtoD nothing, both bad | cuMemcpyHtoD_v2 16, 16, 0
    HtoD to 16 | cuMemcpyHtoD_v2 16, page, 16
    DtoH to null | cuMemcpyDtoH_v2 0, a, 16
    DtoH from null | cuMemcpyDtoH_v2 page, 0, 16
    DtoH nothing, both null | cuMemcpyDtoH_v2 0, 0, 0
    DtoH from 16 | cuMemcpyDtoH_v2 page, 16, 16
    DtoD to null | cuMemcpyDtoD_v2 0, a, 16
    DtoD from null | cuMemcpyDtoD_v2 a, 0, 16
    DtoD nothing, both null | cuMemcpyDtoD_v2 0, 0, 0
    DtoD nothing from 16 | cuMemcpyDtoD_v2 a, 16, 0
    DtoD to 16 | cuMemcpyDtoD_v2 16, a, 16
    DtoD from 16 | cuMemcpyDtoD_v2 a, 16, 16
    DtoD to itself | cuMemcpyDtoD_v2 a, a, 16
    DtoD to ordinary memory | cuMemcpyDtoD_v2 page, a, 16
    DtoD from ordinary memory | cuMemcpyDtoD_v2 a, page, 16
    by address to null | cuMemcpy 0, a, 16
    by address from null | cuMemcpy a, 0, 16
    by address nothing, both null | cuMemcpy 0, 0, 0
    async HtoD to null | cuMemcpyHtoDAsync_v2 0, h, 16, s
    async HtoD from null | cuMemcpyHtoDAsync_v2 a, 0, 16, s
    async HtoD nothing, both null | cuMemcpyHtoDAsync_v2 0, 0, 0, s
    async DtoH to null | cuMemcpyDtoHAsync_v2 0, a, 16, s
    async DtoH from null | cuMemcpyDtoHAsync_v2 h, 0, 16, s
    async DtoH nothing, both null | cuMemcpyDtoHAsync_v2 0, 0, 0, s
    async DtoD to null | cuMemcpyDtoDAsync_v2 0, a, 16, s
    async DtoD nothing, both null | cuMemcpyDtoDAsync_v2 0, 0, 0, s
    async by address nothing, both null | cuMemcpyAsync 0, 0, 0, s
    async by address from null | cuMemcpyAsync a, 0, 16, s
    per-thread HtoD | cuMemcpyHtoD_v2_ptds a, page, 16
    per-thread async HtoD | cuMemcpyHtoDAsync_v2_ptsz a, h, 16, 0
    in the per-thread stream | cuMemcpyHtoDAsync_v2 a, h, 16, 2
    in the legacy stream | cuMemcpyHtoDAsync_v2 a, h, 16, 1
    peer with null contexts | cuMemcpyPeer a, 0, a + 100, 0, 16
    peer with one context | cuMemcpyPeer a, p.primary, a + 100, p.primary, 16
    peer async with one context | cuMemcpyPeerAsync a, p.primary, a + 100, p.primary, 16, s
    peer nothing | cuMemcpyPeer a, p.primary, a, p.primary, 0
    peer from 16 | cuMemcpyPeer a, p.primary, 16, p.primary, 16
    batch null | cuMemcpyBatchAsync 0, 0, 0, 0, 0, 0, 0, 0
    array to device null | cuMemcpyAtoD_v2 a, 0, 0, 16
    host to array null | cuMemcpyHtoA_v2 0, 0, page, 16
""",
    _prepare,
)

for shift in (1, 16, 255, 1024):
    for direction in ("up", "down"):

        def _overlap(p, shift=shift, direction=direction, size=3000):
            address = _filled(p, "device")
            target, source = (shift, 0) if direction == "up" else (0, shift)
            status = p("cuMemcpyDtoD_v2", address + target, address + source, size)
            content = p.read(address + target, size)
            return status, "as if not overlapping" if content == PATTERN[
                source : source + size
            ] else "mixed"

        section.ask(f"overlapping DtoD {direction} by {shift}", _overlap)


@question("overlapping host to host")
def _(p):
    address = _filled(p, "host")
    status = p("cuMemcpy", address + 16, address, 3000)
    p("cuCtxSynchronize")
    return status, p.bytes_at(address + 16, 3000) == PATTERN[:3000]


@question("a large copy arrives")
def _(p):
    size = 16 << 20
    source, middle, target = p.pageable(size), p.device(size), p.pageable(size)
    p.fill_host(source, PATTERN * (size // 8192))
    steps = [p("cuMemcpyHtoD_v2", middle, source, size), p("cuMemcpyDtoH_v2", target, middle, size)]
    return *steps, p.bytes_at(target, size) == p.bytes_at(source, size)


@question("a source that is changed after an async copy of pageable memory returned")
def _(p):
    source, target, stream = _filled(p, "pageable"), p.device(8192), p.stream()
    p("cuMemcpyHtoDAsync_v2", target, source, 4096, stream)
    p.fill_host(source, bytes(4096))
    p("cuStreamSynchronize", stream)
    return p.read(target, 4096) == PATTERN[:4096]
