"""Fills: values, counts, alignments, pitches, kinds of memory."""

from section import Section

section = Section("fills")
question = section.question

KINDS = ("device", "ordered", "managed", "host", "registered")
WIDTHS = {8: 0xA5, 16: 0xBEEF, 32: 0xDEADBEEF}


def _fill(p, name, kind, arguments, offset=0, size=4096):
    """Fills zeroed memory. Returns the status, and the bytes of the memory afterwards."""
    address = p.memory(kind, size)
    p.must("cuMemsetD8_v2", address, 0, size)
    p.must("cuCtxSynchronize")
    stream = (p.stream(),) if name.endswith("Async") else ()
    status = p(name, address + offset, *arguments, *stream)
    p("cuCtxSynchronize")
    content = p.read(address, size)
    return status, "nothing written" if content == bytes(size) else content


for suffix in ("_v2", "Async"):
    for width, value in WIDTHS.items():
        name = f"cuMemsetD{width}{suffix}"
        for kind in KINDS:
            section.ask(
                f"{name}: {kind}",
                lambda p, n=name, k=kind, v=value: _fill(p, n, k, (v, 100)),
            )
        for offset in (1, 2, 3, 4):
            section.ask(
                f"{name}: at {offset}",
                lambda p, n=name, v=value, o=offset: _fill(p, n, "device", (v, 10), o),
            )
        for count in (0, 1, 3, 7, 1000):
            section.ask(
                f"{name}: {count} elements",
                lambda p, n=name, v=value, c=count: _fill(p, n, "device", (v, c)),
            )
        section.ask(
            f"{name}: a value that is too wide",
            lambda p, n=name, v=value: _fill(p, n, "device", (v + (0x1234 << 40), 10)),
        )
        section.ask(
            f"{name}: misaligned, no elements",
            lambda p, n=name, v=value: _fill(p, n, "device", (v, 0), 1),
        )
        name = f"cuMemsetD2D{width}{suffix}"
        step = width // 8
        shapes = {
            "plain": (64, value, 4, 8),
            "width 0": (64, value, 0, 8),
            "height 0": (64, value, 4, 0),
            "height 1": (64, value, 4, 1),
            "pitch 0": (0, value, 4, 8),
            "pitch 0, height 1": (0, value, 4, 1),
            "pitch 0, nothing": (0, value, 0, 0),
            "pitch of the width": (4 * step, value, 4, 8),
            "pitch too small": (4 * step - step, value, 4, 8),
            "pitch too small, height 1": (4 * step - step, value, 4, 1),
            "odd pitch": (65, value, 4, 8),
            "pitch of 66": (66, value, 4, 8),
            "odd width": (64, value, 3, 7),
            "to the last byte": (64, value, 64 // step, 64),
            "one row too many": (64, value, 64 // step, 65),
            "one element too many": (64, value, 64 // step + 1, 64),
            "huge pitch": (1 << 40, value, 4, 8),
            "huge height": (64, value, 4, 1 << 58),
        }
        for shape, arguments in shapes.items():
            section.ask(f"{name}: {shape}", lambda p, n=name, a=arguments: _fill(p, n, "device", a))
        for kind in KINDS[1:]:
            section.ask(
                f"{name}: {kind}",
                lambda p, n=name, k=kind, v=value: _fill(p, n, k, (64, v, 4, 8)),
            )
        section.ask(
            f"{name}: at 1",
            lambda p, n=name, v=value: _fill(p, n, "device", (64, v, 4, 8), 1),
        )

section.calls(
    """
    null | cuMemsetD8_v2 0, 0, 16
    null, nothing | cuMemsetD8_v2 0, 0, 0
    16 | cuMemsetD8_v2 16, 0, 16
    16, nothing | cuMemsetD8_v2 16, 0, 0
    16, misaligned | cuMemsetD32_v2 17, 0, 16
    ordinary memory | cuMemsetD8_v2 p.pageable(), 0, 16
    async null | cuMemsetD8Async 0, 0, 16, 0
    async null, nothing | cuMemsetD8Async 0, 0, 0, 0
    async ordinary memory | cuMemsetD8Async p.pageable(), 0, 16, 0
    2D null | cuMemsetD2D8_v2 0, 64, 0, 4, 4
    2D null, nothing | cuMemsetD2D8_v2 0, 64, 0, 0, 0
    2D 16 | cuMemsetD2D8_v2 16, 64, 0, 4, 4
    2D ordinary memory | cuMemsetD2D8_v2 p.pageable(), 64, 0, 4, 4
    2D async null | cuMemsetD2D8Async 0, 64, 0, 4, 4, 0
    in the legacy stream | cuMemsetD8Async a, 0, 16, 1
    in the per-thread stream | cuMemsetD8Async a, 0, 16, 2
    per-thread | cuMemsetD8_v2_ptds a, 0, 16
    per-thread async | cuMemsetD8Async_ptsz a, 0, 16, 0
    per-thread 2D | cuMemsetD2D8_v2_ptds a, 64, 0, 4, 4
    freed stream-ordered | cuMemsetD8Async p.ordered() + 4095, 0, 2, 0
""",
    lambda p: {"a": p.device()},
)


@question("a fill across the end of the first page of two")
def _(p):
    address = p.host(8192)
    status = p("cuMemsetD8_v2", address + 4000, 0x33, 200)
    p("cuCtxSynchronize")
    return status, p.bytes_at(address + 3990, 220)
