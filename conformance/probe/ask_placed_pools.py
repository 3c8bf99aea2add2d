"""Pools of memory that is not device memory: of the host, of its nodes, and of managed memory."""

import ctypes

from driver import INT, OUT, Access, PoolProperties
from section import Section

section = Section("placed_pools")
question = section.question

PINNED, MANAGED = 1, 2
NOWHERE, DEVICE, HOST, NODE, CURRENT = range(5)
SIZE = 65536


def place(p, kind, number=0):
    return ctypes.byref(p.keep(Access(kind, number, 0)))


def properties(p, kind=PINNED, where=HOST, number=0, **changes):
    values = {"allocType": kind, "locationType": where, "locationId": number, **changes}
    return ctypes.byref(p.keep(PoolProperties(**values)))


def pool(p, kind=PINNED, where=HOST, number=0, **changes):
    return p.make(
        "cuMemPoolDestroy", "cuMemPoolCreate", OUT, properties(p, kind, where, number, **changes)
    )


KINDS = {
    "host": (PINNED, HOST, 0),
    "node": (PINNED, NODE, 0),
    "managed": (MANAGED, DEVICE, 0),
    "managed host": (MANAGED, HOST, 0),
    "managed node": (MANAGED, NODE, 0),
    "managed anywhere": (MANAGED, NOWHERE, 0),
}
ALL = {"device": (PINNED, DEVICE, 0), **KINDS}

_TYPES = {"type 0": 0, "pinned": PINNED, "managed": MANAGED, "type 3": 3}
_WHERE = {
    "place 0": (0, 0),
    "place 0 number -2": (0, -2),
    "place 0 number 7": (0, 7),
    "device 0": (1, 0),
    "device 99": (1, 99),
    "device -1": (1, -1),
    "host": (2, 0),
    "host 7": (2, 7),
    "node 0": (3, 0),
    "node 99": (3, 99),
    "node -1": (3, -1),
    "present node": (4, 0),
    "place 9": (9, 0),
}
for _type, _kind in _TYPES.items():
    for _name, (_place, _number) in _WHERE.items():
        section.ask(
            f"create: {_type}, {_name}",
            lambda p, of=(_kind, _place, _number): p.tried(
                "cuMemPoolCreate", p.cell(), properties(p, *of)
            ),
        )
        for _function in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
            section.ask(
                f"{_function}: {_type}, {_name}",
                lambda p, function=_function, kind=_kind, where=(_place, _number): p(
                    function, p.cell(), place(p, *where), kind
                ),
            )

for _name, _of in ALL.items():
    for _changes in (
        {"handleTypes": 1},
        {"handleTypes": 8},
        {"maxSize": 1},
        {"maxSize": 1 << 60},
        {"usage": 1},
        {"security": 4096},
    ):
        _word = ", ".join(f"{key} {value}" for key, value in _changes.items())
        section.ask(
            f"create {_name}: {_word}",
            lambda p, of=_of, changes=_changes: p.tried(
                "cuMemPoolCreate", p.cell(), properties(p, *of, **changes)
            ),
        )

section.calls(
    """
    default null | cuMemGetDefaultMemPool 0, at(2), 1
    default of null | cuMemGetDefaultMemPool out, 0, 1
    current null | cuMemGetMemPool 0, at(2), 1
    current of null | cuMemGetMemPool out, 0, 1
    set null | cuMemSetMemPool at(2), 1, 0
    set of null | cuMemSetMemPool 0, 1, host
    set: host to host | cuMemSetMemPool at(2), 1, host
    set: host 7 to host | cuMemSetMemPool at(2, 7), 1, host
    set: host as managed to host | cuMemSetMemPool at(2), 2, host
    set: device to host | cuMemSetMemPool at(1), 1, host
    set: node to host | cuMemSetMemPool at(3), 1, host
    set: managed device to managed | cuMemSetMemPool at(1), 2, managed
    set: managed nowhere to managed | cuMemSetMemPool at(0), 2, managed
    set: managed nowhere to anywhere | cuMemSetMemPool at(0), 2, anywhere
    set: device to managed | cuMemSetMemPool at(1), 1, managed
    set: place 9 to host | cuMemSetMemPool at(9), 1, host
    set: device 99 to host | cuMemSetMemPool at(1, 99), 1, host
    pool of the device: host | cuDeviceSetMemPool 0, host
    pool of the device: managed | cuDeviceSetMemPool 0, managed
    alloc 0 of host | cuMemAllocFromPoolAsync out, 0, host, s
    alloc 0 of managed | cuMemAllocFromPoolAsync out, 0, managed, s
    alloc 2^60 of host | cuMemAllocFromPoolAsync out, 1 << 60, host, s
    alloc 2^60 of managed | cuMemAllocFromPoolAsync out, 1 << 60, managed, s
    alloc -1 of host | cuMemAllocFromPoolAsync out, -1, host, s
    alloc of host in the null stream | cuMemAllocFromPoolAsync out, 4, host, 0
    alloc of managed in the null stream | cuMemAllocFromPoolAsync out, 4, managed, 0
    trim host | cuMemPoolTrimTo host, 0
    trim managed | cuMemPoolTrimTo managed, 0
""",
    lambda p: {
        "host": pool(p),
        "managed": pool(p, *KINDS["managed"]),
        "anywhere": pool(p, *KINDS["managed anywhere"]),
        "s": p.stream(),
        "at": lambda *of: place(p, *of),
    },
)


def _default(p, of):
    return p.need("cuMemGetDefaultMemPool", OUT, place(p, *of[1:]), of[0])


for _name, _of in ALL.items():
    section.ask(f"default of {_name} is current", lambda p, of=_of: _same(p, of), alone=True)
    section.ask(
        f"default of {_name}: destroy", lambda p, of=_of: p("cuMemPoolDestroy", _default(p, of))
    )


def _same(p, of):
    default, where = _default(p, of), place(p, *of[1:])
    current = p.get("cuMemGetMemPool", OUT, where, of[0])
    again = p.get("cuMemGetDefaultMemPool", OUT, where, of[0])
    device = p.get("cuDeviceGetDefaultMemPool", OUT, 0)
    return bool(default), default == current, default == again, default == device


@question("defaults that are the same pool")
def _(p):
    found = {name: p.get("cuMemGetDefaultMemPool", OUT, place(p, *of[1:]), of[0])
             for name, of in ALL.items()}  # fmt: skip
    names = list(found)
    return [
        f"{a} and {b}"
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if found[a] == found[b] and not isinstance(found[a], str)
    ]


for _name, _of in ALL.items():

    def _set(p, of=_of):
        default, mine, where = _default(p, of), pool(p, *of), place(p, *of[1:])
        steps = [p("cuMemSetMemPool", where, of[0], mine)]
        steps.append(p.get("cuMemGetMemPool", OUT, where, of[0]) == mine)
        steps.append(p.release(mine))
        steps.append(p.get("cuMemGetMemPool", OUT, where, of[0]) == default)
        return *steps, p("cuMemSetMemPool", where, of[0], default)

    section.ask(f"{_name}: set current, then destroy it", _set)

ATTRIBUTES = "follow events,opportunistic,internal,threshold,reserved,reserved high,used,used high"


def _attribute(p, handle, number):
    return p.get("cuMemPoolGetAttribute", handle, number, OUT if number > 3 else INT)


def _attributes(p, handle, only=range(1, 9)):
    names = ATTRIBUTES.split(",")
    return {names[n - 1]: _attribute(p, handle, n) for n in only}


for _name, _of in KINDS.items():
    section.ask(f"new {_name}: attributes", lambda p, of=_of: _attributes(p, pool(p, *of)))
    section.ask(
        f"default of {_name}: attributes",
        lambda p, of=_of: _attributes(p, _default(p, of)),
        alone=True,
    )
    section.ask(
        f"new {_name}: attributes 9 to 15",
        lambda p, of=_of: [_attribute(p, pool(p, *of), n) for n in range(9, 16)],
    )

LOCATIONS = {"device": (1, 0), "host": (2, 0), "node": (3, 0), "present node": (4, 0)}
LOCATIONS |= {"place 0": (0, 0), "device 99": (1, 99), "node 99": (3, 99)}
for _name, _of in ALL.items():
    for _word, _where in LOCATIONS.items():
        section.ask(
            f"access of {_name}: {_word}",
            lambda p, of=_of, where=_where: p.get(
                "cuMemPoolGetAccess", INT, pool(p, *of), place(p, *where)
            ),
        )

        def _set_access(p, of=_of, where=_where):
            mine, found = pool(p, *of), []
            for flags in (3, 1, 0):
                entry = ctypes.byref(p.keep(Access(*where, flags)))
                found.append(p("cuMemPoolSetAccess", mine, entry, 1))
                found.append(p.get("cuMemPoolGetAccess", INT, mine, place(p, *where)))
            return found

        section.ask(f"set access of {_name}: {_word}", _set_access)


def ready(p, of, size=SIZE, handle=None, devices=True):
    """Allocates memory from a new pool and waits for it. The device has access to it."""
    mine, stream = handle or pool(p, *of), p.stream()
    if devices and of[0] == PINNED:
        p("cuMemPoolSetAccess", mine, ctypes.byref(p.keep(Access(DEVICE, 0, 3))), 1)
    address = p.make("cuMemFree_v2", "cuMemAllocFromPoolAsync", OUT, size, mine, stream)
    p.must("cuStreamSynchronize", stream)
    return mine, stream, address


POINTER = {
    1: ("context", 8), 2: ("type", 4), 3: ("device pointer", 8), 4: ("host pointer", 8),
    6: ("sync memops", 4), 7: ("buffer id", 8), 8: ("managed", 4), 9: ("ordinal", 4),
    10: ("legacy ipc", 1), 11: ("start", 8), 12: ("size", 8), 13: ("mapped", 1),
    14: ("handle types", 8), 15: ("rdma", 1), 16: ("access", 4), 17: ("pool", 8),
    19: ("mapping base", 8), 20: ("block id", 8), 21: ("decompress", 4),
}  # fmt: skip


def _pointer(p, of, number):
    mine, _, address = ready(p, of)
    cell = (ctypes.c_ubyte * 16)(*[0xEE] * 16)
    status = p("cuPointerGetAttribute", cell, number, address)
    size = POINTER[number][1]
    value = int.from_bytes(bytes(cell[:size]), "little")
    if status != "SUCCESS":
        return status
    if number in (3, 4, 11, 19):
        return value - address if value else "null"
    if number == 17:
        return "its pool" if value == mine else "a handle" if value else "null"
    if number == 1:
        return "primary" if value == p.primary else "a handle" if value else "null"
    if number in (7, 20):
        return "a number" if value else 0
    return value - 2 ** (8 * size) if value >> (8 * size - 1) else value


for _name, _of in KINDS.items():
    for _number, (_word, _) in POINTER.items():
        section.ask(f"pointer of {_name}: {_word}", lambda p, of=_of, n=_number: _pointer(p, of, n))
    section.ask(
        f"pointer of {_name} without access: device pointer",
        lambda p, of=_of: _no_access(p, of),
    )


def _no_access(p, of):
    _, _, address = ready(p, of, devices=False)
    cell = p.cell()
    status = p("cuPointerGetAttribute", cell, 3, address)
    return status, cell._obj.value == address


def _uses(p, of, **options):
    _, stream, address = ready(p, of, **options)
    steps = [p("cuMemsetD8Async", address, 0x41, 16, stream), p("cuStreamSynchronize", stream)]
    target = p.device(16)
    steps += [p("cuMemcpyDtoDAsync_v2", target, address, 16, stream)]
    steps += [p("cuStreamSynchronize", stream)]
    return *steps, p.read(target, 16)


def ask_uses(section, name, kind):
    """Asks about uses of memory of a pool."""

    section.ask(f"use of {name} by the device", lambda p, of=kind: _uses(p, of), alone=True)
    section.ask(
        f"use of {name} by the device without access",
        lambda p, of=kind: _uses(p, of, devices=False),
        alone=True,
    )

    def _by_host(p, of=kind):
        _, stream, address = ready(p, of)
        p.fill_host(address, b"abcdefgh")
        target = p.device(8)
        status = p("cuMemcpyHtoDAsync_v2", target, address, 8, stream)
        return status, p("cuStreamSynchronize", stream), p.read(target, 8)

    section.ask(f"use of {name} by the host", _by_host, alone=True)

    def _by_host_alone(p, of=kind):
        _, _, address = ready(p, of, devices=False)
        p.fill_host(address, b"abcdefgh")
        return p.bytes_at(address, 8)

    section.ask(f"use of {name} by the host alone", _by_host_alone, alone=True)

    def _zero(p, of=kind):
        _, _, address = ready(p, of)
        return p.bytes_at(address, SIZE) == bytes(SIZE)

    section.ask(f"new memory of {name} is zero", _zero, alone=True)

    def _calls(p, of=kind):
        _, stream, address = ready(p, of)
        return {
            "flags": p.get("cuMemHostGetFlags", INT, address),
            "device pointer": p("cuMemHostGetDevicePointer_v2", p.cell(), address, 0),
            "register": p("cuMemHostRegister_v2", address, 4096, 0),
            "unregister": p("cuMemHostUnregister", address),
            "free host": p("cuMemFreeHost", address),
            "prefetch": p("cuMemPrefetchAsync", address, SIZE, 0, stream),
            "prefetch to host": p("cuMemPrefetchAsync", address, SIZE, -1, stream),
            "advise": p("cuMemAdvise", address, SIZE, 1, 0),
            "advise preferred": p("cuMemAdvise", address, SIZE, 3, 0),
            "attribute": p.get("cuMemRangeGetAttribute", INT, 4, 1, address, SIZE),
            "attach host": p("cuStreamAttachMemAsync", stream, address, 0, 2),
            "attach single": p("cuStreamAttachMemAsync", stream, address, 0, 4),
            "attach global": p("cuStreamAttachMemAsync", stream, address, 0, 1),
            "sync memops": p("cuPointerSetAttribute", p.cell(1), 6, address),
            "free inside": p("cuMemFreeAsync", address + 16, stream),
        }

    section.ask(f"calls with memory of {name}", _calls)

    def _range(p, of=kind):
        _, _, address = ready(p, of, 100)
        base, size = p.need("cuMemGetAddressRange_v2", OUT, OUT, address + 50)
        return address % 512, base == address, size

    section.ask(f"alignment and range of {name}", _range)

    def _preferred(p, of=kind):
        _, _, address = ready(p, of)
        found = []
        for number in (1, 2, 4, 5, 6, 7, 8):
            cell = ctypes.c_int(77)
            status = p("cuMemRangeGetAttribute", ctypes.byref(cell), 4, number, address, SIZE)
            found.append(cell.value if status == "SUCCESS" else status)
        cells = (ctypes.c_int * 2)(77, 77)
        return *found, p("cuMemRangeGetAttribute", cells, 8, 3, address, SIZE), list(cells)

    section.ask(f"range attributes of {name}", _preferred)

    def _free(p, of=kind, asynchronous=True):
        _, stream, address = ready(p, of)
        p.forget(address)
        if asynchronous:
            steps = [p("cuMemFreeAsync", address, stream), p("cuMemFreeAsync", address, stream)]
        else:
            steps = [p("cuMemFree_v2", address), p("cuMemFree_v2", address)]
        return *steps, p("cuStreamSynchronize", stream)

    section.ask(f"free {name} asynchronously, twice", _free)
    section.ask(f"free {name}, twice", lambda p, of=kind, f=_free: f(p, of, False))

    def _held_free(p, of=kind):
        mine, stream = pool(p, *of), p.stream()
        p.gate(stream)
        address = p.make("cuMemFree_v2", "cuMemAllocFromPoolAsync", OUT, SIZE, mine, stream)
        p.forget(address)
        return p.blocks("cuMemFree_v2", address)

    section.ask(f"held: free {name}", _held_free)

    def _counts(p, of=kind):
        mine, stream, address = ready(p, of, 1 << 20)
        found = [_attributes(p, mine, (5, 6, 7, 8))]
        p("cuMemFreeAsync", address, stream)
        p.forget(address)
        p("cuStreamSynchronize", stream)
        found.append(_attributes(p, mine, (5, 6, 7, 8)))
        return [" ".join(map(str, entry.values())) for entry in found]

    section.ask(f"used and reserved of {name}", _counts)

    def _threshold(p, of=kind):
        mine = pool(p, *of)
        status = p("cuMemPoolSetAttribute", mine, 4, p.cell(1 << 30))
        _, stream, address = ready(p, of, 1 << 20, mine)
        p("cuMemFreeAsync", address, stream)
        p.forget(address)
        p("cuStreamSynchronize", stream)
        kept = _attribute(p, mine, 5)
        return status, kept, p("cuMemPoolTrimTo", mine, 0), _attribute(p, mine, 5)

    section.ask(f"reserved of {name} with a threshold, then trimmed", _threshold)

    def _limit(p, of=kind):
        mine, stream, found = pool(p, *of, maxSize=1 << 20), p.stream(), []
        for size in (1 << 20, 4 << 20, 40 << 20):
            address = p.get("cuMemAllocFromPoolAsync", OUT, size, mine, stream)
            found.append("SUCCESS" if isinstance(address, int) else address)
            if isinstance(address, int):
                p("cuMemFreeAsync", address, stream)
                p("cuStreamSynchronize", stream)
        return found

    section.ask(f"a pool of {name} of limited size", _limit)

    def _destroyed(p, of=kind):
        mine, stream, address = ready(p, of)
        steps = [p.release(mine), p("cuMemsetD8_v2", address, 7, 16), p.read(address, 4)]
        steps.append(p("cuMemFreeAsync", address, stream))
        p.forget(address)
        return *steps, p("cuStreamSynchronize", stream)

    section.ask(f"destroying a pool of {name} with live memory", _destroyed)

    def _captured(p, of=kind):
        mine, stream = pool(p, *of), p.stream()
        p.must("cuStreamBeginCapture_v2", stream, 2)
        address = p.get("cuMemAllocFromPoolAsync", OUT, 64, mine, stream)
        return "allocated" if isinstance(address, int) else address

    section.ask(f"while capturing: alloc of {name}", _captured)

    def _in_turn(p, of=kind):
        mine, stream = pool(p, *of), p.stream()
        first = p.need("cuMemAllocFromPoolAsync", OUT, SIZE, mine, stream)
        p("cuMemFreeAsync", first, stream)
        second = p.need("cuMemAllocFromPoolAsync", OUT, SIZE, mine, stream)
        p("cuMemFreeAsync", second, stream)
        return first == second

    section.ask(f"freed memory of {name} comes back at once in the same stream", _in_turn)


RECORDED = ("host", "node", "managed", "managed host")  # ask_pool_uses.py has the other kinds
for _name in RECORDED:
    ask_uses(section, _name, KINDS[_name])
