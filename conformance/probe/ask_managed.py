"""Managed memory: allocating, advising, prefetching, attaching."""

import ctypes

from driver import INT, OUT, location
from section import Section, say

section = Section("managed")
question = section.question

DEVICE0, HOST, CPU = location(1, 0), location(2, 0), -1


def _prepare(p):
    return {
        "m": p.managed(65536),
        "a": p.device(),
        "h": p.host(),
        "page": p.pageable(),
        "s": p.stream(),
        "place": location,
    }


section.calls(
    """
    alloc null | cuMemAllocManaged 0, 4, 1
    alloc 0 | cuMemAllocManaged out, 0, 1
    alloc flags 0 | cuMemAllocManaged out, 4, 0
    alloc flags 3 | cuMemAllocManaged out, 4, 3
    alloc flags single | cuMemAllocManaged out, 4, 4
    alloc flags 8 | cuMemAllocManaged out, 4, 8
    alloc flags -1 | cuMemAllocManaged out, 4, -1
    alloc null flags 8 | cuMemAllocManaged 0, 4, 8
    alloc 0 flags 8 | cuMemAllocManaged out, 0, 8
    alloc 2^60 | cuMemAllocManaged out, 1 << 60, 1
    alloc -1 | cuMemAllocManaged out, -1, 1
    free in the middle | cuMemFree_v2 m + 4096
    free as host memory | cuMemFreeHost m
    prefetch | cuMemPrefetchAsync m, 65536, 0, s
    prefetch to the host | cuMemPrefetchAsync m, 65536, -1, s
    prefetch to 99 | cuMemPrefetchAsync m, 65536, 99, s
    prefetch to -2 | cuMemPrefetchAsync m, 65536, -2, s
    prefetch nothing | cuMemPrefetchAsync m, 0, 0, s
    prefetch null | cuMemPrefetchAsync 0, 4096, 0, s
    prefetch null nothing | cuMemPrefetchAsync 0, 0, 0, s
    prefetch 1 past the end | cuMemPrefetchAsync m, 65537, 0, s
    prefetch a page past the end | cuMemPrefetchAsync m, 69632, 0, s
    prefetch a part | cuMemPrefetchAsync m + 100, 100, 0, s
    prefetch at the end | cuMemPrefetchAsync m + 65536, 4096, 0, s
    prefetch device memory | cuMemPrefetchAsync a, 4096, 0, s
    prefetch page-locked memory | cuMemPrefetchAsync h, 4096, 0, s
    prefetch ordinary memory | cuMemPrefetchAsync page, 4096, 0, s
    prefetch device memory to 99 | cuMemPrefetchAsync a, 4096, 99, s
    prefetch in the legacy stream | cuMemPrefetchAsync m, 4096, 0, 1
    prefetch in the null stream | cuMemPrefetchAsync m, 4096, 0, 0
    second prefetch | cuMemPrefetchAsync_v2 m, 4096, place(1, 0), 0, s
    second prefetch with flags | cuMemPrefetchAsync_v2 m, 4096, place(1, 0), 1, s
    second prefetch to the host | cuMemPrefetchAsync_v2 m, 4096, place(2, 0), 0, s
    second prefetch to a numa node | cuMemPrefetchAsync_v2 m, 4096, place(3, 0), 0, s
    second prefetch to numa node 99 | cuMemPrefetchAsync_v2 m, 4096, place(3, 99), 0, s
    second prefetch to the present numa node | cuMemPrefetchAsync_v2 m, 4096, place(4, 0), 0, s
    second prefetch nowhere | cuMemPrefetchAsync_v2 m, 4096, place(0, 0), 0, s
    second prefetch to place 9 | cuMemPrefetchAsync_v2 m, 4096, place(9, 0), 0, s
    second prefetch to 99 | cuMemPrefetchAsync_v2 m, 4096, place(1, 99), 0, s
    advise 0 | cuMemAdvise m, 65536, 0, 0
    advise 7 | cuMemAdvise m, 65536, 7, 0
    advise read mostly | cuMemAdvise m, 65536, 1, 0
    advise read mostly on 99 | cuMemAdvise m, 65536, 1, 99
    advise preferred | cuMemAdvise m, 65536, 3, 0
    advise preferred host | cuMemAdvise m, 65536, 3, -1
    advise preferred on 99 | cuMemAdvise m, 65536, 3, 99
    advise preferred on -2 | cuMemAdvise m, 65536, 3, -2
    advise accessed | cuMemAdvise m, 65536, 5, 0
    advise accessed host | cuMemAdvise m, 65536, 5, -1
    advise accessed on 99 | cuMemAdvise m, 65536, 5, 99
    advise nothing | cuMemAdvise m, 0, 1, 0
    advise null | cuMemAdvise 0, 4096, 1, 0
    advise 1 past the end | cuMemAdvise m, 65537, 1, 0
    advise a part | cuMemAdvise m + 100, 100, 1, 0
    advise device memory | cuMemAdvise a, 4096, 1, 0
    advise page-locked memory | cuMemAdvise h, 4096, 1, 0
    advise ordinary memory | cuMemAdvise page, 4096, 1, 0
    second advise read mostly | cuMemAdvise_v2 m, 4096, 1, place(0, 0)
    second advise preferred | cuMemAdvise_v2 m, 4096, 3, place(1, 0)
    second advise preferred host | cuMemAdvise_v2 m, 4096, 3, place(2, 0)
    second advise preferred node | cuMemAdvise_v2 m, 4096, 3, place(3, 0)
    second advise accessed nowhere | cuMemAdvise_v2 m, 4096, 5, place(0, 0)
    attribute null | cuMemRangeGetAttribute 0, 4, 1, m, 4096
    attribute size 3 | cuMemRangeGetAttribute out, 3, 1, m, 4096
    attribute size 0 | cuMemRangeGetAttribute out, 0, 1, m, 4096
    attribute 0 | cuMemRangeGetAttribute out, 4, 0, m, 4096
    attribute 99 | cuMemRangeGetAttribute out, 4, 99, m, 4096
    attribute of device memory | cuMemRangeGetAttribute out, 4, 1, a, 4096
    attribute of ordinary memory | cuMemRangeGetAttribute out, 4, 1, page, 4096
    attribute of nothing | cuMemRangeGetAttribute out, 4, 1, m, 0
    attribute past the end | cuMemRangeGetAttribute out, 4, 1, m, 65537
    attributes null | cuMemRangeGetAttributes 0, 0, 0, 0, m, 4096
    attach global | cuStreamAttachMemAsync s, m, 0, 1
    attach host | cuStreamAttachMemAsync s, m, 0, 2
    attach single | cuStreamAttachMemAsync s, m, 0, 4
    attach whole | cuStreamAttachMemAsync s, m, 65536, 1
    attach part | cuStreamAttachMemAsync s, m, 4096, 1
    attach inside | cuStreamAttachMemAsync s, m + 4096, 0, 1
    attach flags 0 | cuStreamAttachMemAsync s, m, 0, 0
    attach flags 8 | cuStreamAttachMemAsync s, m, 0, 8
    attach null | cuStreamAttachMemAsync s, 0, 0, 1
    attach single to the null stream | cuStreamAttachMemAsync 0, m, 0, 4
    attach single to the legacy stream | cuStreamAttachMemAsync 1, m, 0, 4
    attach device memory | cuStreamAttachMemAsync s, a, 0, 1
    attach ordinary memory | cuStreamAttachMemAsync s, page, 0, 1
    attach page-locked memory | cuStreamAttachMemAsync s, h, 0, 1
    free asynchronously | cuMemFreeAsync m, s
""",
    _prepare,
)

RANGE = {1: "read mostly", 2: "preferred", 4: "last prefetch", 5: "preferred type"}
RANGE |= {6: "preferred number", 7: "last prefetch type", 8: "last prefetch number"}


def _ranges(p, address, size=65536):
    found = {}
    for number, name in RANGE.items():
        cell = ctypes.c_int(77)
        status = p("cuMemRangeGetAttribute", ctypes.byref(cell), 4, number, address, size)
        found[name] = cell.value if status == "SUCCESS" else status
    return found


@question("attributes of new memory")
def _(p):
    return _ranges(p, p.managed(65536))


_DOINGS = {
    "prefetch to the device": lambda p, m: p("cuMemPrefetchAsync", m, 65536, 0, 0),
    "prefetch to the host": lambda p, m: p("cuMemPrefetchAsync", m, 65536, -1, 0),
    "prefetch of half": lambda p, m: p("cuMemPrefetchAsync", m, 32768, 0, 0),
    "second prefetch to the host": lambda p, m: p("cuMemPrefetchAsync_v2", m, 65536, HOST, 0, 0),
    "advise read mostly": lambda p, m: p("cuMemAdvise", m, 65536, 1, 0),
    "advise read mostly of half": lambda p, m: p("cuMemAdvise", m, 32768, 1, 0),
    "advise preferred device": lambda p, m: p("cuMemAdvise", m, 65536, 3, 0),
    "advise preferred host": lambda p, m: p("cuMemAdvise", m, 65536, 3, -1),
    "advise preferred of half": lambda p, m: p("cuMemAdvise", m, 32768, 3, 0),
    "advise preferred and back": lambda p, m: (
        p("cuMemAdvise", m, 65536, 3, 0),
        p("cuMemAdvise", m, 65536, 4, 0),
    ),
    "advise read mostly and back": lambda p, m: (
        p("cuMemAdvise", m, 65536, 1, 0),
        p("cuMemAdvise", m, 65536, 2, 0),
    ),
    "second advise preferred host": lambda p, m: p("cuMemAdvise_v2", m, 65536, 3, HOST),
}
for name, doing in _DOINGS.items():

    def _ask(p, doing=doing):
        memory = p.managed(65536)
        status = doing(p, memory)
        p("cuCtxSynchronize")
        return f"{say(status)}; {say(_ranges(p, memory))}"

    section.ask(f"attributes after: {name}", _ask)

for devices in (1, 2, 3):

    def _accessed(p, devices=devices):
        memory = p.managed(65536)
        cells = (ctypes.c_int * 3)(77, 77, 77)
        p("cuMemAdvise", memory, 65536, 5, 0)
        p("cuMemAdvise", memory, 65536, 5, -1)
        status = p("cuMemRangeGetAttribute", cells, 4 * devices, 3, memory, 65536)
        return status, list(cells)

    section.ask(f"accessed by, room for {devices}", _accessed)


@question("several attributes at once")
def _(p):
    memory = p.managed(65536)
    cells = (ctypes.c_int * 2)(77, 77)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(cells), ctypes.addressof(cells) + 4)
    sizes, kinds = (ctypes.c_size_t * 2)(4, 4), (ctypes.c_int * 2)(1, 2)
    return p("cuMemRangeGetAttributes", pointers, sizes, kinds, 2, memory, 65536), list(cells)


@question("new memory is zero for the host")
def _(p):
    return p.bytes_at(p.managed(65536), 65536) == bytes(65536)


@question("what the host writes, a copy reads")
def _(p):
    memory, target = p.managed(), p.device()
    p.fill_host(memory, b"abcdefgh")
    p("cuMemcpyDtoD_v2", target, memory, 8)
    return p.read(target, 8)


@question("what a fill writes, the host reads")
def _(p):
    memory = p.managed()
    p("cuMemsetD8_v2", memory, 0x41, 8)
    p("cuCtxSynchronize")
    return p.bytes_at(memory, 8)


@question("data survives prefetching there and back")
def _(p):
    memory = p.managed(65536)
    p.fill_host(memory, bytes(range(256)) * 256)
    steps = [p("cuMemPrefetchAsync", memory, 65536, where, 0) for where in (0, -1)]
    return *steps, p("cuCtxSynchronize"), p.bytes_at(memory, 65536)


@question("alignment and range")
def _(p):
    memory = p.managed(100)
    base, size = p.need("cuMemGetAddressRange_v2", OUT, OUT, memory + 50)
    return memory % 512, base == memory, size


@question("attached to the host at first")
def _(p):
    memory = p.managed(4096, flags=2)
    p.fill_host(memory, b"abcd")
    target = p.device()
    return p("cuMemcpyDtoD_v2", target, memory, 4), p.get("cuPointerGetAttribute", INT, 8, memory)


@question("free twice")
def _(p):
    memory = p.managed()
    return p.release(memory), p("cuMemFree_v2", memory)


@question("prefetch with no context current")
def _(p):
    memory, stream = p.managed(), p.stream()
    p("cuCtxSetCurrent", 0)
    in_null = p("cuMemPrefetchAsync", memory, 4096, 0, 0)
    return in_null, p("cuMemPrefetchAsync", memory, 4096, 0, stream)
