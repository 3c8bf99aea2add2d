"""What the driver returns about an address: each attribute of each kind of memory."""

import ctypes

from driver import OUT
from section import Section

section = Section("pointers")
question = section.question

ATTRIBUTES = {
    1: ("context", 8), 2: ("type", 4), 3: ("device pointer", 8), 4: ("host pointer", 8),
    5: ("p2p tokens", 16), 6: ("sync memops", 4), 7: ("buffer id", 8), 8: ("managed", 4),
    9: ("ordinal", 4), 10: ("legacy ipc", 1), 11: ("start", 8), 12: ("size", 8), 13: ("mapped", 1),
    14: ("handle types", 8), 15: ("rdma", 1), 16: ("access", 4), 17: ("pool", 8),
    18: ("mapping size", 8), 19: ("mapping base", 8), 20: ("block id", 8), 21: ("decompress", 4),
}  # fmt: skip
ADDRESSES, HANDLES, NUMBERED = (3, 4, 11, 19), (1, 17), (7, 20)


def _attribute(p, number, address, offset=0):
    """The value without absolute addresses: an offset in the memory, or whether it is null."""
    size = ATTRIBUTES[number][1] if number in ATTRIBUTES else 8
    cell = (ctypes.c_ubyte * 16)(*[0xEE] * 16)
    status = p("cuPointerGetAttribute", cell, number, address + offset)
    value = int.from_bytes(bytes(cell[:size]), "little")
    if status != "SUCCESS":
        touched = bytes(cell) != b"\xee" * 16
        return f"{status} writes {_word(value, size, number, address)}" if touched else status
    if any(byte != 0xEE for byte in cell[size:]):
        return f"writes more than {size} bytes"
    return _word(value, size, number, address, p.primary)


def _word(value, size, number, address, primary=None):
    if number in ADDRESSES:
        return value - address if value else "null"
    if number in HANDLES:
        return "primary" if primary == value else "a handle" if value else "null"
    if number in NUMBERED:
        return "a number" if value else 0
    return value - 2 ** (8 * size) if value >> (8 * size - 1) else value


KINDS = {
    "device": lambda p: p.device(4096),
    "ordered": lambda p: p.ordered(4096),
    "host": lambda p: p.host(4096),
    "host portable": lambda p: p.host(4096, flags=1),
    "host write-combined": lambda p: p.host(4096, flags=4),
    "registered": lambda p: p.registered(8192),
    "managed": lambda p: p.managed(4096),
    "managed for the host": lambda p: p.managed(4096, flags=2),
    "ordinary": lambda p: p.pageable(),
    "null": lambda p: 0,
    "16": lambda p: 16,
}

for kind, make in KINDS.items():
    for number, (name, _) in ATTRIBUTES.items():
        section.ask(
            f"{name} of {kind}",
            lambda p, n=number, make=make: _attribute(p, n, make(p)),
        )


def _freed(p, kind):
    address = KINDS[kind](p)
    p.release(address)
    return address


for kind in ("device", "ordered", "host", "registered", "managed"):
    for number in (2, 8, 9, 11, 13):
        section.ask(
            f"{ATTRIBUTES[number][0]} of freed {kind}",
            lambda p, n=number, kind=kind: _attribute(p, n, _freed(p, kind)),
        )
    for number in (2, 3, 4, 11, 12):
        section.ask(
            f"{ATTRIBUTES[number][0]} from inside {kind}",
            lambda p, n=number, kind=kind: _attribute(p, n, KINDS[kind](p), 100),
        )
    section.ask(
        f"type at the end of {kind}",
        lambda p, kind=kind: _attribute(p, 2, KINDS[kind](p), 8192),
    )

section.calls(
    """
    attribute null | cuPointerGetAttribute 0, 2, a
    attribute null of null | cuPointerGetAttribute 0, 2, 0
    attribute 0 | cuPointerGetAttribute out, 0, a
    attribute 22 | cuPointerGetAttribute out, 22, a
    attribute 99 | cuPointerGetAttribute out, 99, a
    attribute 99 of null | cuPointerGetAttribute out, 99, 0
    attribute -1 | cuPointerGetAttribute out, -1, a
    attributes of none | cuPointerGetAttributes 0, 0, 0, a
    attributes null | cuPointerGetAttributes 1, 0, 0, a
    set nothing | cuPointerSetAttribute 0, 6, a
    set another | cuPointerSetAttribute out, 2, a
    set of null | cuPointerSetAttribute out, 6, 0
    set of ordinary memory | cuPointerSetAttribute out, 6, p.pageable()
    set of page-locked memory | cuPointerSetAttribute p.cell(1), 6, p.host()
    set of managed memory | cuPointerSetAttribute p.cell(1), 6, p.managed()
    set of stream-ordered memory | cuPointerSetAttribute p.cell(1), 6, p.ordered()
""",
    lambda p: {"a": p.device()},
)


@question("synchronous operations set and read")
def _(p):
    address, found = p.device(), []
    for value in (1, 0, 2):
        found.append(p("cuPointerSetAttribute", p.cell(value), 6, address))
        found.append(_attribute(p, 6, address))
    return found


def _several(p, address, *numbers):
    cells = [(ctypes.c_ubyte * 16)(*[0xEE] * 16) for _ in numbers]
    kinds = (ctypes.c_int * len(numbers))(*numbers)
    pointers = (ctypes.c_void_p * len(numbers))(*map(ctypes.addressof, cells))
    status = p("cuPointerGetAttributes", len(numbers), kinds, pointers, address)
    found = []
    for number, cell in zip(numbers, cells, strict=True):
        size = ATTRIBUTES.get(number, ("", 4))[1]
        if bytes(cell) == b"\xee" * 16:
            found.append("untouched")
        else:
            value = int.from_bytes(bytes(cell[:size]), "little")
            found.append(_word(value, size, number, address, p.primary))
    return status, found


for kind, make in KINDS.items():
    section.ask(
        f"all attributes at once of {kind}",
        lambda p, make=make: _several(p, make(p), 1, 2, 3, 4, 8, 9, 11, 12, 13, 14, 16, 17),
    )


@question("several attributes, one unknown")
def _(p):
    return _several(p, p.device(), 2, 99, 9)


@question("several attributes, one of them null")
def _(p):
    kinds, pointers = (ctypes.c_int * 2)(2, 9), (ctypes.c_void_p * 2)()
    return p("cuPointerGetAttributes", 2, kinds, pointers, p.device())


@question("buffer ids differ and are stable")
def _(p):
    first, second = p.device(), p.device()
    ids = [p.need("cuPointerGetAttribute", OUT, 7, a) for a in (first, second, first + 8)]
    return ids[0] != ids[1], ids[0] == ids[2]


@question("context of memory of a created context")
def _(p):
    created = p.context()
    found = [p.device(), p.host(), p.managed(), p.ordered()]
    return [p.get("cuPointerGetAttribute", OUT, 1, address) == created for address in found]


@question("with no context current")
def _(p):
    address = p.device()
    p("cuCtxSetCurrent", 0)
    return [_attribute(p, number, address) for number in (1, 2, 3, 9, 11, 12)]
