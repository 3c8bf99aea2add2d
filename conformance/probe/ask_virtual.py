"""Virtual memory management: addresses, memory, mappings, access of devices."""

import ctypes

from driver import INT, OUT, Access, AllocationProperties
from section import Section

section = Section("virtual")
question = section.question

G = 2 << 20  # the granularity of the devices that were asked
NONE, READ, READWRITE = 0, 1, 3
DEVICE, HOST, NODE, CURRENT = 1, 2, 3, 4


def properties(p, where=DEVICE, number=0, **changes):
    values = {"type": 1, "locationType": where, "locationId": number, **changes}
    return ctypes.byref(p.keep(AllocationProperties(**values)))


def place(p, kind=DEVICE, number=0):
    return ctypes.byref(p.keep(Access(kind, number, 0)))


def access(p, flags=READWRITE, kind=DEVICE, number=0, count=1):
    entries = [Access(kind, number, flags) for _ in range(count)]
    return p.keep((Access * count)(*entries))


class Scene:
    """Eight reserved granules. The second and the third one are mapped, with a handle each."""

    def __init__(self, p, usable=True):
        self.p, self.mapped = p, []
        self.a = p.need("cuMemAddressReserve", OUT, 8 * G, 0, 0, 0)
        self.h = self.create()
        self.handles = [self.h]
        for at in (1, 2):
            handle = self.create()
            self.handles.append(handle)
            self.map(at, handle)
        if usable:
            self.allow(1, 2)

    def create(self, granules=1):
        return self.p.need("cuMemCreate", OUT, granules * G, properties(self.p), 0)

    def map(self, at, handle, granules=1):
        self.p.must("cuMemMap", self.a + at * G, granules * G, 0, handle, 0)
        self.mapped.append((at, granules))

    def allow(self, at, granules=1, flags=READWRITE):
        self.p.must("cuMemSetAccess", self.a + at * G, granules * G, access(self.p, flags), 1)

    def at(self, granules, offset=0):
        return self.a + granules * G + offset

    def close(self):
        """Unmaps and releases everything. Ignores the errors of what is gone already."""
        self.p("cuCtxSynchronize")
        for at, granules in self.mapped:
            self.p("cuMemUnmap", self.at(at), granules * G)
        for handle in self.handles:
            self.p("cuMemRelease", handle)
        self.p("cuMemAddressFree", self.a, 8 * G)


def ask(name, usable=True, **options):
    """Asks a question about a scene, and closes the scene afterwards."""

    def decorate(function):
        def answer(p):
            scene = Scene(p, usable)
            try:
                return function(p, scene)
            finally:
                p.open_gates()
                scene.close()

        section.ask(name, answer, **options)
        return function

    return decorate


def calls(text, usable=True):
    """``name | function arguments``, with `s` for the scene, as `section.calls` has them."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, call = line.partition("|")
        function, _, arguments = call.strip().partition(" ")
        code = compile(f"({arguments.strip()},)", name, "eval")

        def run(p, s, function=function, code=code):
            names = {"p": p, "s": s, "out": p.cell(), "G": G, "access": access, "place": place}
            return p(function, *eval(code, names))

        ask(name.strip(), usable)(run)


# ---- without a scene ----

section.calls(
    """
    granularity null | cuMemGetAllocationGranularity 0, of(), 0
    granularity of null | cuMemGetAllocationGranularity out, 0, 0
    granularity 2 | cuMemGetAllocationGranularity out, of(), 2
    granularity -1 | cuMemGetAllocationGranularity out, of(), -1
    granularity of device 99 | cuMemGetAllocationGranularity out, of(1, 99), 0
    granularity of type 0 | cuMemGetAllocationGranularity out, of(type=0), 0
    granularity of type 2 | cuMemGetAllocationGranularity out, of(type=2), 0
    reserve null | cuMemAddressReserve 0, G, 0, 0, 0
    reserve 0 | cuMemAddressReserve out, 0, 0, 0, 0
    reserve 1 | cuMemAddressReserve out, 1, 0, 0, 0
    reserve half a page | cuMemAddressReserve out, 2048, 0, 0, 0
    reserve flags 1 | cuMemAddressReserve out, G, 0, 0, 1
    reserve alignment 3 | cuMemAddressReserve out, G, 3, 0, 0
    reserve alignment 3 granules | cuMemAddressReserve out, G, 3 * G, 0, 0
    reserve 2^62 | cuMemAddressReserve out, 1 << 62, 0, 0, 0
    reserve -1 granule | cuMemAddressReserve out, -G, 0, 0, 0
    reserve at 1 | cuMemAddressReserve out, G, 0, 1, 0
    free null | cuMemAddressFree 0, G
    free null 0 | cuMemAddressFree 0, 0
    free nowhere | cuMemAddressFree 1 << 40, G
    create null | cuMemCreate 0, G, of(), 0
    create of null | cuMemCreate out, G, 0, 0
    create 0 | cuMemCreate out, 0, of(), 0
    create 1 | cuMemCreate out, 1, of(), 0
    create half a granule | cuMemCreate out, G // 2, of(), 0
    create flags 1 | cuMemCreate out, G, of(), 1
    create 2^60 | cuMemCreate out, 1 << 60, of(), 0
    create -1 granule | cuMemCreate out, -G, of(), 0
    create type 0 | cuMemCreate out, G, of(type=0), 0
    create type 2 | cuMemCreate out, G, of(type=2), 0
    create type 9 | cuMemCreate out, G, of(type=9), 0
    create nowhere | cuMemCreate out, G, of(0, 0), 0
    create on device 99 | cuMemCreate out, G, of(1, 99), 0
    create on device -1 | cuMemCreate out, G, of(1, -1), 0
    create on the present node | cuMemCreate out, G, of(4, 0), 0
    create at place 9 | cuMemCreate out, G, of(9, 0), 0
    create with security | cuMemCreate out, G, of(security=4096), 0
    create compression 2 | cuMemCreate out, G, of(compression=2), 0
    create usage 4 | cuMemCreate out, G, of(usage=4), 0
    create handle type 16 | cuMemCreate out, G, of(handleTypes=16), 0
    release 0 | cuMemRelease 0
    map null | cuMemMap 0, G, 0, 0, 0
    unmap null | cuMemUnmap 0, G
    unmap null 0 | cuMemUnmap 0, 0
    unmap other memory | cuMemUnmap p.device(2 * G), G
    access of other memory | cuMemSetAccess p.device(2 * G), G, access(p), 1
    get access of null | cuMemGetAccess out, place(p), 0
    get access of other memory | cuMemGetAccess out, place(p), p.device(64)
    get access of host memory | cuMemGetAccess out, place(p), p.host(64)
    retain null | cuMemRetainAllocationHandle out, 0
    retain other memory | cuMemRetainAllocationHandle out, p.device(64)
    properties null | cuMemGetAllocationPropertiesFromHandle 0, 0
    properties of 0 | cuMemGetAllocationPropertiesFromHandle out, 0
""",
    lambda p: {
        "of": lambda *where, **changes: properties(p, *where, **changes),
        "G": G,
        "access": access,
        "place": place,
    },
)


@question("granularities")
def _(p):
    return tuple(
        p.get("cuMemGetAllocationGranularity", OUT, properties(p), option) for option in (0, 1)
    )


@question("attributes")
def _(p):
    return tuple(p.get("cuDeviceGetAttribute", INT, each, 0) for each in (102, 103, 110, 141, 145))


def _made(p, size=G, **of):
    """Creates memory and releases it. Returns the status."""
    handle = p.get("cuMemCreate", OUT, size, properties(p, **of), 0)
    return handle if isinstance(handle, str) else p("cuMemRelease", handle)


for _name, _of in {
    "on the host": {"where": HOST},
    "on node 0": {"where": NODE},
    "on node 99": {"where": NODE, "number": 99},
    "as a file": {"handleTypes": 1},
    "as a fabric handle": {"handleTypes": 8},
    "compressible": {"compression": 1},
    "for RDMA": {"rdma": 1},
    "for tiles": {"usage": 1},
}.items():
    section.ask(f"create {_name}", lambda p, of=_of: _made(p, **of))


@question("without a context", setup="initialised")
def _(p):
    address = p.get("cuMemAddressReserve", OUT, G, 0, 0, 0)
    handle = p.get("cuMemCreate", OUT, G, properties(p), 0)
    if isinstance(address, str) or isinstance(handle, str):
        return address if isinstance(address, str) else "reserved", handle
    found = [p("cuMemMap", address, G, 0, handle, 0)]
    found.append(p("cuMemSetAccess", address, G, access(p), 1))
    found.append(p("cuMemUnmap", address, G))
    return *found, p("cuMemRelease", handle), p("cuMemAddressFree", address, G)


@question("not initialised", setup="nothing")
def _(p):
    return (
        p("cuMemAddressReserve", p.cell(), G, 0, 0, 0),
        p("cuMemCreate", p.cell(), G, properties(p), 0),
        p("cuMemUnmap", G, G),
    )


@question("reserving: alignment, page, hint")
def _(p):
    default = p.get("cuMemAddressReserve", OUT, G, 0, 0, 0)
    page = p.get("cuMemAddressReserve", OUT, 4096, 0, 0, 0)
    large = p.get("cuMemAddressReserve", OUT, G, 8 * G, 0, 0)
    p("cuMemAddressFree", large, G)
    hinted = p.get("cuMemAddressReserve", OUT, G, 0, large, 0)
    found = isinstance(default, int) and default % G == 0
    if isinstance(page, int):
        p("cuMemAddressFree", page, 4096)
        page = "SUCCESS"
    p("cuMemAddressFree", default, G)
    if isinstance(hinted, int):
        p("cuMemAddressFree", hinted, G)
    return found, page, isinstance(large, int) and large % (8 * G) == 0, hinted == large


# ---- with a scene ----

calls("""
    free mapped | cuMemAddressFree s.a, 8 * G
    free a part | cuMemAddressFree s.a, 4 * G
    free another size | cuMemAddressFree s.a, 16 * G
    free from the middle | cuMemAddressFree s.at(4), 4 * G
    map mapped | cuMemMap s.at(1), G, 0, s.h, 0
    map across mapped | cuMemMap s.at(0), 2 * G, 0, s.h, 0
    map 0 | cuMemMap s.at(0), 0, 0, s.h, 0
    map half a granule | cuMemMap s.at(0), G // 2, 0, s.h, 0
    map at half a granule | cuMemMap s.at(0, G // 2), G, 0, s.h, 0
    map more than there is | cuMemMap s.at(4), 2 * G, 0, s.h, 0
    map from offset 1 | cuMemMap s.at(4), G, 1, s.h, 0
    map beyond the end | cuMemMap s.at(8), G, 0, s.h, 0
    map across the end | cuMemMap s.at(7), 2 * G, 0, s.h, 0
    map flags 1 | cuMemMap s.at(4), G, 0, s.h, 1
    unmap 0 | cuMemUnmap s.at(1), 0
    unmap half a granule | cuMemUnmap s.at(1), G // 2
    unmap nothing mapped | cuMemUnmap s.at(0), G
    unmap more than mapped | cuMemUnmap s.at(1), 4 * G
    unmap from before | cuMemUnmap s.at(0), 2 * G
    unmap all addresses | cuMemUnmap s.a, 8 * G
    access null | cuMemSetAccess s.at(1), G, 0, 1
    access of none | cuMemSetAccess s.at(1), G, access(p), 0
    access 0 bytes | cuMemSetAccess s.at(1), 0, access(p), 1
    access half a granule | cuMemSetAccess s.at(1), G // 2, access(p), 1
    access nothing mapped | cuMemSetAccess s.at(0), G, access(p), 1
    access more than mapped | cuMemSetAccess s.at(1), 4 * G, access(p), 1
    access flags 2 | cuMemSetAccess s.at(1), G, access(p, 2), 1
    access flags 77 | cuMemSetAccess s.at(1), G, access(p, 77), 1
    access none | cuMemSetAccess s.at(1), G, access(p, 0), 1
    access to read | cuMemSetAccess s.at(1), G, access(p, 1), 1
    access of device 99 | cuMemSetAccess s.at(1), G, access(p, 3, 1, 99), 1
    access of device -1 | cuMemSetAccess s.at(1), G, access(p, 3, 1, -1), 1
    access of the host | cuMemSetAccess s.at(1), G, access(p, 3, 2, 0), 1
    access of node 0 | cuMemSetAccess s.at(1), G, access(p, 3, 3, 0), 1
    access at place 9 | cuMemSetAccess s.at(1), G, access(p, 3, 9, 0), 1
    access twice | cuMemSetAccess s.at(1), G, access(p, count=2), 2
    get access null | cuMemGetAccess 0, place(p), s.at(1)
    get access of nobody | cuMemGetAccess out, 0, s.at(1)
    get access nothing mapped | cuMemGetAccess out, place(p), s.at(0)
    get access of device 99 | cuMemGetAccess out, place(p, 1, 99), s.at(1)
    get access of the host | cuMemGetAccess out, place(p, 2, 0), s.at(1)
    retain null of mapped | cuMemRetainAllocationHandle 0, s.at(1)
    retain nothing mapped | cuMemRetainAllocationHandle out, s.at(0)
    properties to null | cuMemGetAllocationPropertiesFromHandle 0, s.h
    free as device memory | cuMemFree_v2 s.at(1)
    free its addresses as device memory | cuMemFree_v2 s.a
    free in a stream | cuMemFreeAsync s.at(1), p.stream()
    register as host memory | cuMemHostRegister_v2 s.at(1), G, 0
    prefetch | cuMemPrefetchAsync s.at(1), G, 0, p.stream()
    fill across two mappings | cuMemsetD8_v2 s.at(1, G - 32), 1, 64
    fill past the end of what is mapped | cuMemsetD8_v2 s.at(2, G - 32), 1, 64
    fill where nothing is mapped | cuMemsetD8_v2 s.at(0), 1, 64
    copy across two mappings | cuMemcpyDtoD_v2 p.device(64), s.at(1, G - 32), 64
    copy past the end of what is mapped | cuMemcpyDtoD_v2 p.device(64), s.at(2, G - 32), 64
    copy from where nothing is mapped | cuMemcpyDtoD_v2 p.device(64), s.at(0), 64
    copy to the host from where nothing is mapped | cuMemcpyDtoH_v2 p.host(64), s.at(0), 64
    unified copy from where nothing is mapped | cuMemcpy p.device(64), s.at(0), 64
    write a value | cuStreamWriteValue32_v2 p.stream(), s.at(1), 7, 0
""")
calls(
    """
    without access: fill | cuMemsetD8_v2 s.at(1), 1, 64
    without access: fill in a stream | cuMemsetD8Async s.at(1), 1, 64, p.stream()
    without access: copy from | cuMemcpyDtoD_v2 p.device(64), s.at(1), 64
    without access: copy to | cuMemcpyDtoD_v2 s.at(1), p.device(64), 64
    without access: copy to the host | cuMemcpyDtoH_v2 p.host(64), s.at(1), 64
    without access: unified copy | cuMemcpy p.device(64), s.at(1), 64
    without access: value | cuStreamWriteValue32_v2 p.stream(), s.at(1), 7, 0
    without access: unmap | cuMemUnmap s.at(1), G
""",
    usable=False,
)


@ask("access to read: uses")
def _(p, s):
    status = p("cuMemSetAccess", s.at(1), G, access(p, READ), 1)
    other = p.device(64)
    return (
        status,
        p.get("cuMemGetAccess", OUT, place(p), s.at(1)),
        p("cuMemcpyDtoD_v2", other, s.at(1), 64),
        p("cuMemcpyDtoD_v2", s.at(1), other, 64),
        p("cuMemsetD8_v2", s.at(1), 1, 64),
    )


@ask("access values", usable=False)
def _(p, s):
    found = [p.get("cuMemGetAccess", OUT, place(p), s.at(1))]
    for flags in (READWRITE, NONE):
        s.allow(1, 1, flags)
        found.append(p.get("cuMemGetAccess", OUT, place(p), s.at(1, 100)))
    return *found, p.get("cuMemGetAccess", OUT, place(p), s.at(2))


@ask("access of device 99 behind a valid one", usable=False)
def _(p, s):
    entries = p.keep((Access * 2)(Access(DEVICE, 0, 3), Access(DEVICE, 99, 3)))
    status = p("cuMemSetAccess", s.at(1), G, entries, 2)
    return status, p.get("cuMemGetAccess", OUT, place(p), s.at(1))


@ask("unmap two mappings at once")
def _(p, s):
    status = p("cuMemUnmap", s.at(1), 2 * G)
    return status, p("cuMemsetD8_v2", s.at(1), 1, 4)


@ask("unmap a part of a mapping")
def _(p, s):
    s.handles.append(s.create(2))
    s.map(4, s.handles[-1], 2)
    s.allow(4, 2)
    status = p("cuMemUnmap", s.at(4), G)
    return status, p("cuMemsetD8_v2", s.at(5), 1, 4)


@ask("access to a part of a mapping")
def _(p, s):
    s.handles.append(s.create(2))
    s.map(4, s.handles[-1], 2)
    return p("cuMemSetAccess", s.at(4), G, access(p), 1)


@ask("map a part of the memory")
def _(p, s):
    s.handles.append(s.create(2))
    status = p("cuMemMap", s.at(4), G, 0, s.handles[-1], 0)
    if status == "SUCCESS":
        s.mapped.append((4, 1))
    return status


@ask("map from an offset")
def _(p, s):
    s.handles.append(s.create(2))
    status = p("cuMemMap", s.at(4), G, G, s.handles[-1], 0)
    if status == "SUCCESS":
        s.mapped.append((4, 1))
    return status


@ask("two addresses of one memory")
def _(p, s):
    s.map(4, s.h)
    s.map(5, s.h)
    s.allow(4, 2)
    p.write(s.at(4), b"both")
    return p.read(s.at(5), 4)


@ask("contents while it is not mapped")
def _(p, s):
    p.write(s.at(1), b"kept")
    p.must("cuMemUnmap", s.at(1), G)
    s.map(4, s.handles[1])
    s.allow(4)
    return p.read(s.at(4), 4)


@ask("released while mapped")
def _(p, s):
    handle = s.handles.pop()
    status = p("cuMemRelease", handle)
    p.write(s.at(2), b"here")
    again = p.get("cuMemRetainAllocationHandle", OUT, s.at(2, 100))
    found = status, p.read(s.at(2), 4), again == handle
    return *found, p("cuMemRelease", again)


@ask("mapping twice after unmapping")
def _(p, s):
    p.must("cuMemUnmap", s.at(1), G)
    status = p("cuMemMap", s.at(1), G, 0, s.h, 0)
    return status, p.get("cuMemGetAccess", OUT, place(p), s.at(1))


@ask("properties")
def _(p, s):
    made = p.keep(AllocationProperties())
    status = p("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(made), s.h)
    names = ("type", "handleTypes", "locationType", "locationId", "compression", "rdma", "usage")
    return status, {name: getattr(made, name) for name in names}


for _number, _name in {
    1: "context",
    2: "type",
    3: "device pointer",
    4: "host pointer",
    6: "sync memops",
    8: "managed",
    9: "ordinal",
    10: "legacy IPC",
    13: "mapped",
    14: "handle types",
    15: "RDMA",
    16: "access flags",
    17: "pool",
}.items():
    for _where, _at in {"mapped": 1, "not mapped": 0, "without access": 2}.items():

        @ask(f"attribute {_name}: {_where}")
        def _(p, s, number=_number, at=_at):
            if at == 2:
                s.allow(2, 1, NONE)
            value = p.get("cuPointerGetAttribute", OUT, number, s.at(at, 100))
            return value == s.at(at, 100) if number in (3, 4) and isinstance(value, int) else value


def _range(p, s, begin, size):
    return (begin - s.a) // G if isinstance(begin, int) else begin, size


for _where, _at in {"mapped": 1, "not mapped": 0}.items():

    @ask(f"range of the attributes: {_where}")
    def _(p, s, at=_at):
        begin = p.get("cuPointerGetAttribute", OUT, 11, s.at(at, 100))
        return _range(p, s, begin, p.get("cuPointerGetAttribute", OUT, 12, s.at(at, 100)))

    @ask(f"range of the mapping attributes: {_where}")
    def _(p, s, at=_at):
        begin = p.get("cuPointerGetAttribute", OUT, 19, s.at(at, 100))
        return _range(p, s, begin, p.get("cuPointerGetAttribute", OUT, 18, s.at(at, 100)))

    @ask(f"address range: {_where}")
    def _(p, s, at=_at):
        found = p.get("cuMemGetAddressRange_v2", OUT, OUT, s.at(at, 100))
        return found if isinstance(found, str) else _range(p, s, *found)


@ask("memory info")
def _(p, s):
    before = p.need("cuMemGetInfo_v2", OUT, OUT)[0]
    s.handles.append(s.create(64))
    created = p.need("cuMemGetInfo_v2", OUT, OUT)[0]
    p.must("cuMemRelease", s.handles.pop())
    return before - created >= 64 * G, p.need("cuMemGetInfo_v2", OUT, OUT)[0] > created


# ---- while work runs ----


def busy(p):
    p.gate(stream := p.stream())
    return stream


@ask("while a stream is busy: unmap what it uses not", alone=True)
def _(p, s):
    busy(p)
    return p.blocks("cuMemUnmap", s.at(1), G)


@ask("while a stream is busy: set access", alone=True)
def _(p, s):
    busy(p)
    return p.blocks("cuMemSetAccess", s.at(1), G, access(p), 1)


@ask("while a stream is busy: create", alone=True)
def _(p, s):
    busy(p)
    return p.blocks("cuMemCreate", p.cell(), G, properties(p), 0)


@ask("while a stream is busy: map", alone=True)
def _(p, s):
    busy(p)
    return p.blocks("cuMemMap", s.at(4), G, 0, s.h, 0)


@ask("while a stream is busy: release", alone=True)
def _(p, s):
    busy(p)
    return p.blocks("cuMemRelease", s.handles.pop(0))


@ask("while a stream is busy: reserve", alone=True)
def _(p, s):
    busy(p)
    return p.blocks("cuMemAddressReserve", p.cell(), G, 0, 0, 0)


@ask("while a stream uses it: unmap waits", alone=True)
def _(p, s):
    """The fill is behind a gate. The unmap waits until the fill is complete."""
    stream = busy(p)
    p.must("cuMemsetD8Async", s.at(1), 7, 64, stream)
    found = p.blocks("cuMemUnmap", s.at(1), G)
    return found, p("cuStreamSynchronize", stream)


# ---- while a stream is captured ----

for _mode, _word in enumerate(("global", "thread", "relaxed")):
    for _name, _call in {
        "reserve": lambda p, s: p("cuMemAddressReserve", p.cell(), G, 0, 0, 0),
        "create": lambda p, s: p("cuMemCreate", p.cell(), G, properties(p), 0),
        "map": lambda p, s: p("cuMemMap", s.at(4), G, 0, s.h, 0),
        "set access": lambda p, s: p("cuMemSetAccess", s.at(1), G, access(p), 1),
        "unmap": lambda p, s: p("cuMemUnmap", s.at(1), G),
        "release": lambda p, s: p("cuMemRelease", s.h),
    }.items():

        @ask(f"during a {_word} capture: {_name}", alone=True)
        def _(p, s, mode=_mode, call=_call):
            stream = p.stream()
            p.must("cuStreamBeginCapture_v2", stream, mode)
            return call(p, s), p.get("cuStreamIsCapturing", stream, INT)


# ---- after the memory is gone ----


@question("freed addresses", alone=True)
def _(p):
    s = Scene(p)
    s.close()
    return p("cuMemAddressFree", s.a, 8 * G), p("cuMemsetD8_v2", s.at(1), 1, 4)


@ask("unmapped addresses: fill")
def _(p, s):
    p.must("cuMemUnmap", s.at(1), G)
    return p("cuMemsetD8_v2", s.at(1), 1, 4)
