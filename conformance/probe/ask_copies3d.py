"""Boxes: heights, pitches, slices, levels."""

import ctypes

from driver import DEVICE_MEMORY, HOST_MEMORY, UNIFIED_MEMORY, Copy3D
from section import Section

section = Section("copies3d")

SIZE = 8192
PATTERN = bytes((i * 13 + 1) & 255 for i in range(SIZE))
TYPES = {"host": HOST_MEMORY, "pageable": HOST_MEMORY, "device": DEVICE_MEMORY}
TYPES |= {"managed": UNIFIED_MEMORY, "unified pageable": UNIFIED_MEMORY}
ENTRIES = ("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2", "cuMemcpy3DPeer", "cuMemcpy3DPeerAsync")
PLAIN = {"srcX": 0, "srcY": 0, "srcZ": 0, "dstX": 0, "dstY": 0, "dstZ": 0, "srcPitch": 64}
PLAIN |= {"dstPitch": 64, "srcHeight": 8, "dstHeight": 8, "Width": 32, "Height": 4, "Depth": 3}


def _memory(p, kind, content):
    name = kind.split()[-1]
    address = p.memory(name, len(content))
    if name == "device":
        p.write(address, content)
    else:
        p.fill_host(address, content)
    return address


def _side(p, entry, name, kind, address):
    place = "Host" if TYPES[kind] == HOST_MEMORY else "Device"
    found = {name + "Type": TYPES[kind], name + place: address}
    return found | ({name + "Context": p.primary} if "Peer" in entry else {})


def _copy(p, entry, values):
    stream = (p.stream(),) if "Async" in entry else ()
    return p(entry, ctypes.byref(p.keep(Copy3D(**values))), *stream)


def _expected(d):
    target = bytearray(SIZE)
    for z in range(d["Depth"]):
        for y in range(d["Height"]):
            start = ((d["srcZ"] + z) * d["srcHeight"] + d["srcY"] + y) * d["srcPitch"] + d["srcX"]
            at = ((d["dstZ"] + z) * d["dstHeight"] + d["dstY"] + y) * d["dstPitch"] + d["dstX"]
            target[at : at + d["Width"]] = PATTERN[start : start + d["Width"]]
    return bytes(target)


def _ask(entry, source_kind, target_kind, **changes):
    def ask(p):
        d = PLAIN | changes
        source, target = _memory(p, source_kind, PATTERN), _memory(p, target_kind, bytes(SIZE))
        values = d | _side(p, entry, "src", source_kind, source)
        values |= _side(p, entry, "dst", target_kind, target)
        status = _copy(p, entry, values)
        p("cuCtxSynchronize")
        device = target_kind == "device"
        content = p.read(target, SIZE) if device else p.bytes_at(target, SIZE)
        shape = {key: value for key, value in d.items() if key in PLAIN}
        if max(shape.values()) < SIZE and content == _expected(shape):
            return status, "arrives"
        return status, "nothing arrives" if content == bytes(SIZE) else "something else arrives"

    return ask


for entry in ENTRIES:
    for source in TYPES:
        for target in TYPES:
            if entry != ENTRIES[3]:
                section.ask(f"{entry}: {source} to {target}", _ask(entry, source, target))

SHAPES = {
    "offsets": {"srcX": 3, "srcY": 2, "srcZ": 1, "dstX": 5, "dstY": 1, "dstZ": 2},
    "odd": {"Width": 31, "srcPitch": 33, "dstPitch": 35, "srcHeight": 5, "dstHeight": 7},
    "width 0": {"Width": 0},
    "height 0": {"Height": 0},
    "depth 0": {"Depth": 0},
    "depth 1": {"Depth": 1},
    "all of it": {"Width": 64, "Height": 8, "Depth": 16},
    "source height 0": {"srcHeight": 0},
    "target height 0": {"dstHeight": 0},
    "heights 0, depth 1": {"srcHeight": 0, "dstHeight": 0, "Depth": 1},
    "heights too small": {"srcHeight": 3, "dstHeight": 3},
    "heights too small, depth 1": {"srcHeight": 3, "dstHeight": 3, "Depth": 1},
    "offset over the height": {"srcY": 5},
    "offset over the target height": {"dstY": 5},
    "wider than the source pitch": {"Width": 65, "dstPitch": 100},
    "wider than the target pitch": {"Width": 65, "srcPitch": 100},
    "pitches 0": {"srcPitch": 0, "dstPitch": 0},
    "pitches 0, height and depth 1": {"srcPitch": 0, "dstPitch": 0, "Height": 1, "Depth": 1},
    "source level 1": {"srcLod": 1},
    "target level 1": {"dstLod": 1},
}
for name, changes in SHAPES.items():
    for entry in ENTRIES[:3]:
        for pair in (("device", "device"), ("host", "device")):
            section.ask(f"{entry}: {name}, {pair[0]} to {pair[1]}", _ask(entry, *pair, **changes))

BAD = {
    "one slice past the target": {"dstZ": 14},
    "one slice past the source": {"srcZ": 14},
    "one byte past the target": {"dstZ": 13, "dstY": 4, "dstX": 33},
    "depth of 2^40": {"Depth": 1 << 40},
    "source type 0": {"srcType": 0},
    "target type 9": {"dstType": 9},
    "source null": {"srcDevice": 0},
    "target null": {"dstDevice": 0},
    "source null, nothing to do": {"srcDevice": 0, "Depth": 0},
    "source 16": {"srcDevice": 16},
    "target type array": {"dstType": 3},
    "source context null": {"srcContext": 0},
    "target context null": {"dstContext": 0},
    "reserved set": {"srcContext": 1},
}
for name, changes in BAD.items():
    for entry in ENTRIES:
        if name == "reserved set" and "Peer" in entry:
            continue  # srcContext is no valid context; a driver need not check that

        def _bad(p, entry=entry, changes=changes):
            source, target = (p.device(SIZE), p.device(SIZE))
            values = PLAIN | _side(p, entry, "src", "device", source)
            return _copy(p, entry, values | _side(p, entry, "dst", "device", target) | changes)

        section.ask(f"{entry}: {name}", _bad)

section.calls("""
    null | cuMemcpy3D_v2 0
    async null | cuMemcpy3DAsync_v2 0, 0
    peer null | cuMemcpy3DPeer 0
    peer async null | cuMemcpy3DPeerAsync 0, 0
    all zero | cuMemcpy3D_v2 p.pageable()
    async all zero | cuMemcpy3DAsync_v2 p.pageable(), 0
    peer all zero | cuMemcpy3DPeer p.pageable()
""")
