"""Rectangles: pitches, offsets, memory types, bounds."""

import ctypes

from driver import ARRAY_MEMORY, DEVICE_MEMORY, HOST_MEMORY, UNIFIED_MEMORY, Copy2D
from section import Section

section = Section("copies2d")
question = section.question

PATTERN = bytes((i * 11 + 5) & 255 for i in range(4096))
TYPES = {
    "host": HOST_MEMORY,
    "pageable": HOST_MEMORY,
    "registered": HOST_MEMORY,
    "device": DEVICE_MEMORY,
    "ordered": DEVICE_MEMORY,
    "managed": UNIFIED_MEMORY,
    "unified device": UNIFIED_MEMORY,
    "unified host": UNIFIED_MEMORY,
    "unified pageable": UNIFIED_MEMORY,
}
ENTRIES = ("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2")


def _memory(p, kind, content):
    name = kind.split()[-1]
    address = p.memory(name, len(content))
    if name in ("device", "ordered"):
        p.write(address, content)
    else:
        p.fill_host(address, content)
    return address


def _content(p, kind, address, size):
    p("cuCtxSynchronize")
    if kind.split()[-1] in ("device", "ordered"):
        return p.read(address, size)
    return p.bytes_at(address, size)


def side(name, kind, address, **fields):
    place = "Host" if TYPES[kind] == HOST_MEMORY else "Device"
    values = {"Type": TYPES[kind], place: address, **fields}
    return {name + key: value for key, value in values.items()}


def copy(p, entry, values):
    description = p.keep(Copy2D(**values))
    stream = (p.stream(),) if "Async" in entry else ()
    return p(entry, ctypes.byref(description), *stream)


def _expected(d):
    """The bytes of a zeroed target of 4096 bytes after a copy."""
    target = bytearray(4096)
    for row in range(d["Height"]):
        start = (d["srcY"] + row) * d["srcPitch"] + d["srcX"]
        at = (d["dstY"] + row) * d["dstPitch"] + d["dstX"]
        target[at : at + d["Width"]] = PATTERN[start : start + d["Width"]]
    return bytes(target)


PLAIN = {"srcX": 0, "srcY": 0, "dstX": 0, "dstY": 0, "srcPitch": 64, "dstPitch": 64}
PLAIN |= {"Width": 32, "Height": 8}


def _ask(entry, source_kind, target_kind, **changes):
    def ask(p):
        d = PLAIN | changes
        source, target = _memory(p, source_kind, PATTERN), _memory(p, target_kind, bytes(4096))
        values = d | side("src", source_kind, source) | side("dst", target_kind, target)
        status = copy(p, entry, values)
        content = _content(p, target_kind, target, 4096)
        if content == _expected(d):
            return status, "arrives"
        return status, "nothing arrives" if content == bytes(4096) else "something else arrives"

    return ask


for entry in ENTRIES:
    for source in TYPES:
        for target in TYPES:
            if entry == ENTRIES[0] or source in ("host", "device", "managed"):
                section.ask(f"{entry}: {source} to {target}", _ask(entry, source, target))

SHAPES = {
    "offsets": {"srcX": 3, "srcY": 2, "dstX": 5, "dstY": 7},
    "odd width": {"Width": 31},
    "width 1": {"Width": 1},
    "width of the pitch": {"Width": 64},
    "different pitches": {"srcPitch": 64, "dstPitch": 100},
    "odd pitch": {"srcPitch": 33, "dstPitch": 35},
    "width 0": {"Width": 0},
    "height 0": {"Height": 0},
    "height 1": {"Height": 1},
    "width and height 0": {"Width": 0, "Height": 0},
    "wider than the source pitch": {"Width": 65, "srcPitch": 64, "dstPitch": 100},
    "wider than the target pitch": {"Width": 65, "srcPitch": 100, "dstPitch": 64},
    "offset and width over the source pitch": {"srcX": 40, "dstPitch": 128},
    "offset and width over the target pitch": {"dstX": 40, "srcPitch": 128},
    "source pitch 0": {"srcPitch": 0},
    "target pitch 0": {"dstPitch": 0},
    "both pitches 0": {"srcPitch": 0, "dstPitch": 0},
    "both pitches 0, height 1": {"srcPitch": 0, "dstPitch": 0, "Height": 1},
    "to the last byte": {"srcPitch": 64, "dstPitch": 64, "Width": 64, "Height": 64},
}
for name, changes in SHAPES.items():
    for entry in ENTRIES:
        for pair in (("device", "device"), ("host", "device"), ("device", "pageable")):
            section.ask(f"{entry}: {name}, {pair[0]} to {pair[1]}", _ask(entry, *pair, **changes))

OUTSIDE = {
    "one row past the target": {"dstY": 57, "Height": 8, "Width": 64},
    "one byte past the target": {"dstX": 33, "dstY": 56, "Width": 32},
    "one row past the source": {"srcY": 57, "Height": 8, "Width": 64},
    "pitch of 2^40": {"srcPitch": 1 << 40},
    "pitch of 2^62": {"dstPitch": 1 << 62},
    "target row of 2^40": {"dstY": 1 << 40},
    "width of 2^40": {"Width": 1 << 40, "srcPitch": 1 << 41, "dstPitch": 1 << 41},
    "height of 2^40": {"Height": 1 << 40},
}
for name, changes in OUTSIDE.items():
    for entry in ENTRIES:

        def _refuse(p, entry=entry, changes=changes):
            values = PLAIN | changes
            values |= side("src", "device", p.device(4096)) | side("dst", "device", p.device(4096))
            return copy(p, entry, values)

        section.ask(f"{entry}: {name}", _refuse)

BAD = {
    "source type 0": {"srcType": 0},
    "target type 0": {"dstType": 0},
    "source type 5": {"srcType": 5},
    "source type array": {"srcType": ARRAY_MEMORY},
    "source null": {"srcDevice": 0},
    "target null": {"dstDevice": 0},
    "both null": {"srcDevice": 0, "dstDevice": 0},
    "source null, nothing to do": {"srcDevice": 0, "Width": 0},
    "source 16": {"srcDevice": 16},
    "target 16": {"dstDevice": 16},
    "source 16, nothing to do": {"srcDevice": 16, "Height": 0},
    "source type 0, nothing to do": {"srcType": 0, "Height": 0},
    "source type host, null": {"srcType": HOST_MEMORY},
    "target type host, null": {"dstType": HOST_MEMORY},
}
for name, changes in BAD.items():
    for entry in ENTRIES:

        def _bad(p, entry=entry, changes=changes):
            values = PLAIN | side("src", "device", p.device()) | side("dst", "device", p.device())
            return copy(p, entry, values | changes)

        section.ask(f"{entry}: {name}", _bad)

section.calls("""
    null | cuMemcpy2D_v2 0
    unaligned null | cuMemcpy2DUnaligned_v2 0
    async null | cuMemcpy2DAsync_v2 0, 0
    all zero | cuMemcpy2D_v2 p.pageable()
    unaligned all zero | cuMemcpy2DUnaligned_v2 p.pageable()
    async all zero | cuMemcpy2DAsync_v2 p.pageable(), 0
""")


@question("page-locked memory called device memory")
def _(p):
    source, target = p.host(), p.device()
    values = PLAIN | side("src", "device", source) | side("dst", "device", target)
    return copy(p, ENTRIES[0], values)


@question("device memory called host memory, async")
def _(p):
    values = PLAIN | side("src", "host", p.device()) | side("dst", "device", p.device())
    return copy(p, ENTRIES[2], values)
