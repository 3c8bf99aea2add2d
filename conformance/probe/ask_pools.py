"""Stream-ordered memory and pools."""

import ctypes

from driver import INT, LEGACY, NON_BLOCKING, OUT, Access, PoolProperties
from section import Section

section = Section("pools")
question = section.question

ATTRIBUTES = "follow events,opportunistic,internal,threshold,reserved,reserved high,used,used high"


def properties(p, **changes):
    values = {"allocType": 1, "locationType": 1, **changes}
    return ctypes.byref(p.keep(PoolProperties(**values)))


def pool(p, **changes):
    return p.make("cuMemPoolDestroy", "cuMemPoolCreate", OUT, properties(p, **changes))


def access(p, kind=1, number=0, flags=3):
    return ctypes.byref(p.keep(Access(kind, number, flags)))


def _prepare(p):
    stream = p.stream()
    freed = p.need("cuMemAllocAsync", OUT, 512, stream)
    p.must("cuMemFreeAsync", freed, stream)
    p.must("cuStreamSynchronize", stream)
    return {
        "s": stream,
        "freed": freed,
        "default": p.need("cuDeviceGetDefaultMemPool", OUT, 0),
        "o": p.ordered(4096, stream),
        "pool": pool(p),
        "props": lambda **changes: properties(p, **changes),
        "access": lambda *arguments: access(p, *arguments),
        "u64": lambda value: p.cell(value),
    }


section.calls(
    """
    alloc null | cuMemAllocAsync 0, 4, s
    alloc 0 | cuMemAllocAsync out, 0, s
    alloc null 0 | cuMemAllocAsync 0, 0, s
    alloc 2^60 | cuMemAllocAsync out, 1 << 60, s
    alloc -1 | cuMemAllocAsync out, -1, s
    free 0 | cuMemFreeAsync 0, s
    free 16 | cuMemFreeAsync 16, s
    free in the middle | cuMemFreeAsync o + 16, s
    free freed | cuMemFreeAsync freed, s
    free freed synchronously | cuMemFree_v2 freed
    free in the middle synchronously | cuMemFree_v2 o + 16
    copy to freed | cuMemcpyHtoD_v2 freed, p.pageable(), 16
    fill freed | cuMemsetD8_v2 freed, 0, 16
    fill 1 past the end | cuMemsetD8_v2 o, 0, 4097
    copy 1 past the end | cuMemcpyHtoD_v2 o, p.pageable(8192), 4097
    alloc from null pool | cuMemAllocFromPoolAsync out, 4, 0, s
    alloc from pool null | cuMemAllocFromPoolAsync 0, 4, pool, s
    alloc from pool 0 | cuMemAllocFromPoolAsync out, 0, pool, s
    alloc from pool 2^60 | cuMemAllocFromPoolAsync out, 1 << 60, pool, s
    alloc from null pool 0 | cuMemAllocFromPoolAsync out, 0, 0, s
    create null | cuMemPoolCreate 0, props()
    create null properties | cuMemPoolCreate out, 0
    create type 0 | cuMemPoolCreate out, props(allocType=0)
    create type 2 | cuMemPoolCreate out, props(allocType=2)
    create type 9 | cuMemPoolCreate out, props(allocType=9)
    create location 0 | cuMemPoolCreate out, props(locationType=0)
    create location host | cuMemPoolCreate out, props(locationType=2)
    create location node | cuMemPoolCreate out, props(locationType=3)
    create location 9 | cuMemPoolCreate out, props(locationType=9)
    create on 99 | cuMemPoolCreate out, props(locationId=99)
    create on -1 | cuMemPoolCreate out, props(locationId=-1)
    create handle type 1 | cuMemPoolCreate out, props(handleTypes=1)
    create handle type 2 | cuMemPoolCreate out, props(handleTypes=2)
    create handle type 64 | cuMemPoolCreate out, props(handleTypes=64)
    create with security | cuMemPoolCreate out, props(security=4096)
    create small | cuMemPoolCreate out, props(maxSize=1)
    create large | cuMemPoolCreate out, props(maxSize=1 << 60)
    create usage 1 | cuMemPoolCreate out, props(usage=1)
    create usage 2 | cuMemPoolCreate out, props(usage=2)
    destroy null | cuMemPoolDestroy 0
    destroy default | cuMemPoolDestroy default
    default null | cuDeviceGetDefaultMemPool 0, 0
    default of 99 | cuDeviceGetDefaultMemPool out, 99
    default null of 99 | cuDeviceGetDefaultMemPool 0, 99
    current null | cuDeviceGetMemPool 0, 0
    current of 99 | cuDeviceGetMemPool out, 99
    set null | cuDeviceSetMemPool 0, 0
    set on 99 | cuDeviceSetMemPool 99, pool
    trim null | cuMemPoolTrimTo 0, 0
    trim default | cuMemPoolTrimTo default, 0
    trim | cuMemPoolTrimTo pool, 0
    trim to -1 | cuMemPoolTrimTo pool, -1
    attribute null | cuMemPoolGetAttribute pool, 1, 0
    attribute of null | cuMemPoolGetAttribute 0, 1, out
    attribute 0 | cuMemPoolGetAttribute pool, 0, out
    attribute 99 | cuMemPoolGetAttribute pool, 99, out
    set attribute null | cuMemPoolSetAttribute pool, 1, 0
    set attribute of null | cuMemPoolSetAttribute 0, 1, out
    set attribute 0 | cuMemPoolSetAttribute pool, 0, out
    set attribute 99 | cuMemPoolSetAttribute pool, 99, out
    set reserved | cuMemPoolSetAttribute pool, 5, u64(0)
    set reserved high 0 | cuMemPoolSetAttribute pool, 6, u64(0)
    set reserved high 1 | cuMemPoolSetAttribute pool, 6, u64(1)
    set used | cuMemPoolSetAttribute pool, 7, u64(0)
    set used high 0 | cuMemPoolSetAttribute pool, 8, u64(0)
    set used high 1 | cuMemPoolSetAttribute pool, 8, u64(1)
    set internal 2 | cuMemPoolSetAttribute pool, 3, u64(2)
    set access null | cuMemPoolSetAccess pool, 0, 1
    set access of none | cuMemPoolSetAccess pool, access(), 0
    set access null of none | cuMemPoolSetAccess pool, 0, 0
    set access of null | cuMemPoolSetAccess 0, access(), 1
    set access read and write | cuMemPoolSetAccess pool, access(), 1
    set access read | cuMemPoolSetAccess pool, access(1, 0, 1), 1
    set access none | cuMemPoolSetAccess pool, access(1, 0, 0), 1
    set access write | cuMemPoolSetAccess pool, access(1, 0, 2), 1
    set access on 99 | cuMemPoolSetAccess pool, access(1, 99, 3), 1
    set access on host | cuMemPoolSetAccess pool, access(2, 0, 3), 1
    set access on place 0 | cuMemPoolSetAccess pool, access(0, 0, 3), 1
    get access null | cuMemPoolGetAccess 0, pool, access()
    get access of null | cuMemPoolGetAccess out, 0, access()
    get access null place | cuMemPoolGetAccess out, pool, 0
    get access on 99 | cuMemPoolGetAccess out, pool, access(1, 99, 0)
    get access on host | cuMemPoolGetAccess out, pool, access(2, 0, 0)
    export without handle types | cuMemPoolExportToShareableHandle out, pool, 1, 0
    export null | cuMemPoolExportToShareableHandle 0, pool, 1, 0
    import null | cuMemPoolImportFromShareableHandle out, 0, 1, 0
    export pointer null | cuMemPoolExportPointer 0, o
    export pointer of a default pool | cuMemPoolExportPointer p.pageable(), o
    ipc handle of pool memory | cuIpcGetMemHandle p.pageable(), o
    advise pool memory | cuMemAdvise o, 4096, 1, 0
    prefetch pool memory | cuMemPrefetchAsync o, 4096, 0, s
    generic default null | cuMemGetDefaultMemPool 0, 0, 1
    generic pool null | cuMemGetMemPool 0, 0, 1
    generic set null | cuMemSetMemPool 0, 1, 0
    legacy stream | cuMemAllocAsync out, 4, 1
    per-thread stream | cuMemAllocAsync out, 4, 2
    null stream | cuMemAllocAsync out, 4, 0
""",
    _prepare,
)


@question("default pool is current")
def _(p):
    default = p.need("cuDeviceGetDefaultMemPool", OUT, 0)
    return default == p.get("cuDeviceGetMemPool", OUT, 0), bool(default)


@question("set current, then destroy it")
def _(p):
    default = p.need("cuDeviceGetDefaultMemPool", OUT, 0)
    mine = pool(p)
    steps = [p("cuDeviceSetMemPool", 0, mine), p.get("cuDeviceGetMemPool", OUT, 0) == mine]
    address = p.ordered()
    steps.append(p.get("cuPointerGetAttribute", OUT, 17, address) == mine)
    steps.append(p.release(address))
    steps.append(p.release(mine))
    steps.append(p.get("cuDeviceGetMemPool", OUT, 0) == default)
    p("cuDeviceSetMemPool", 0, default)
    return steps


def _attributes(p, handle, only=range(1, 9)):
    names = ATTRIBUTES.split(",")
    return {names[n - 1]: _attribute(p, handle, n) for n in only}


def _attribute(p, handle, number):
    return p.get("cuMemPoolGetAttribute", handle, number, OUT if number > 3 else INT)


for number, name in enumerate(ATTRIBUTES.split(","), 1):
    section.ask(f"new pool: {name}", lambda p, n=number: _attribute(p, pool(p), n))
for number, name in enumerate(ATTRIBUTES.split(",")[:5], 1):
    section.ask(
        f"default pool: {name}",
        lambda p, n=number: _attribute(p, p.need("cuDeviceGetDefaultMemPool", OUT, 0), n),
        alone=True,
    )


@question("attributes set and read")
def _(p):
    mine, found = pool(p), []
    for number, value in ((1, 0), (2, 0), (3, 0), (1, 1), (1, 5), (4, 12345), (4, 2**64 - 1)):
        status = p("cuMemPoolSetAttribute", mine, number, p.cell(value))
        found.append((status, _attribute(p, mine, number)))
    return found


def _from(p, mine, size, stream):
    return p.make("cuMemFree_v2", "cuMemAllocFromPoolAsync", OUT, size, mine, stream)


@question("used memory of some sizes")
def _(p):
    mine, stream, found = pool(p), p.stream(), []
    for size in (1, 511, 512, 513, 4096, 100000):
        address = _from(p, mine, size, stream)
        p.must("cuStreamSynchronize", stream)
        found.append(_attribute(p, mine, 7))
        p.release(address)
        p.must("cuStreamSynchronize", stream)
    return found


@question("used and reserved as memory comes and goes")
def _(p):
    mine, stream = pool(p), p.stream()
    address = _from(p, mine, 1 << 20, stream)
    found = [_attributes(p, mine, (5, 6, 7, 8))]
    p("cuMemFreeAsync", address, stream)
    p.forget(address)
    p("cuStreamSynchronize", stream)
    found.append(_attributes(p, mine, (5, 6, 7, 8)))
    return [" ".join(map(str, entry.values())) for entry in found]


@question("reserved with a threshold, then trimmed")
def _(p):
    mine, stream = pool(p), p.stream()
    p("cuMemPoolSetAttribute", mine, 4, p.cell(1 << 30))
    address = _from(p, mine, 1 << 20, stream)
    p("cuMemFreeAsync", address, stream)
    p.forget(address)
    p("cuStreamSynchronize", stream)
    kept = _attribute(p, mine, 5)
    return kept, p("cuMemPoolTrimTo", mine, 0), _attribute(p, mine, 5)


@question("high marks reset")
def _(p):
    mine, stream = pool(p), p.stream()
    address = _from(p, mine, 4096, stream)
    p.must("cuStreamSynchronize", stream)
    p.release(address)
    p.must("cuStreamSynchronize", stream)
    before = _attribute(p, mine, 8)
    p("cuMemPoolSetAttribute", mine, 8, p.cell(0))
    return before, _attribute(p, mine, 8)


@question("a pool of limited size")
def _(p):
    mine, stream = pool(p, maxSize=1 << 20), p.stream()
    found = []
    for size in (1 << 20, 4 << 20, 40 << 20):
        address = p.get("cuMemAllocFromPoolAsync", OUT, size, mine, stream)
        found.append("SUCCESS" if isinstance(address, int) else address)
        if isinstance(address, int):
            p("cuMemFreeAsync", address, stream)
            p("cuStreamSynchronize", stream)
    return found


@question("destroying a pool with live memory")
def _(p):
    mine, stream = pool(p), p.stream()
    address = _from(p, mine, 4096, stream)
    p.must("cuStreamSynchronize", stream)
    steps = [p.release(mine), p("cuMemsetD8_v2", address, 7, 16), p.read(address, 4)]
    steps.append(p("cuMemFreeAsync", address, stream))
    p.forget(address)
    return *steps, p("cuStreamSynchronize", stream)


@question("access of a pool's own device")
def _(p):
    return p.get("cuMemPoolGetAccess", INT, pool(p), access(p))


@question("range and alignment of pool memory")
def _(p):
    found = []
    for size in (1, 100, 512, 513, 4096):
        address = p.ordered(size)
        base, length = p.need("cuMemGetAddressRange_v2", OUT, OUT, address)
        found.append((address % 512, base == address, length))
    return found


@question("free in another stream")
def _(p):
    address, other = p.ordered(), p.stream()
    p.forget(address)
    return p("cuMemFreeAsync", address, other), p("cuStreamSynchronize", other)


@question("free synchronously, pending")
def _(p):
    stream = p.stream()
    p.gate(stream)
    address = p.make("cuMemFree_v2", "cuMemAllocAsync", OUT, 4096, stream)
    p.forget(address)
    return p.blocks("cuMemFree_v2", address)


@question("free twice in one stream")
def _(p):
    stream = p.stream()
    p.gate(stream)
    address = p.need("cuMemAllocAsync", OUT, 4096, stream)
    return p("cuMemFreeAsync", address, stream), p("cuMemFreeAsync", address, stream)


@question("used in another stream after its free was queued")
def _(p):
    stream, other = p.stream(), p.stream()
    p.gate(stream)
    address = p.need("cuMemAllocAsync", OUT, 4096, stream)
    p.must("cuMemFreeAsync", address, stream)
    same, different = (p("cuMemsetD8Async", address, 1, 16, s) for s in (stream, other))
    return same, different


@question("used in another stream before its allocation ran")
def _(p):
    stream, other = p.stream(), p.stream()
    p.gate(stream)
    address = p.make("cuMemFree_v2", "cuMemAllocAsync", OUT, 4096, stream)
    return p("cuMemsetD8Async", address, 1, 16, other)


@question("freed memory comes back at once in the same stream")
def _(p):
    stream = p.stream()
    first = p.need("cuMemAllocAsync", OUT, 4096, stream)
    p("cuMemFreeAsync", first, stream)
    second = p.need("cuMemAllocAsync", OUT, 4096, stream)
    p("cuMemFreeAsync", second, stream)
    return first == second


@question("alloc with no context current")
def _(p):
    stream = p.stream()
    p("cuCtxSetCurrent", 0)
    found = {"null": p("cuMemAllocAsync", p.cell(), 16, 0)}
    found["legacy"] = p("cuMemAllocAsync", p.cell(), 16, LEGACY)
    address = p.get("cuMemAllocAsync", OUT, 16, stream)
    found["stream"] = address if isinstance(address, str) else p("cuMemFreeAsync", address, stream)
    return found


@question("flags and pool calls with no context current")
def _(p):
    p("cuCtxSetCurrent", 0)
    mine = p.get("cuMemPoolCreate", OUT, properties(p))
    if isinstance(mine, str):
        return mine
    steps = [p.get("cuMemPoolGetAttribute", mine, 7, OUT), p("cuMemPoolTrimTo", mine, 0)]
    return *steps, p("cuMemPoolDestroy", mine)


@question("alloc in another context's stream")
def _(p):
    stream = p.stream(NON_BLOCKING)
    p.context()
    address = p.get("cuMemAllocAsync", OUT, 16, stream)
    if isinstance(address, str):
        return address
    owner = p.get("cuPointerGetAttribute", OUT, 1, address)
    return "allocated", owner == p.primary, owner == 0, p("cuMemFreeAsync", address, stream)
