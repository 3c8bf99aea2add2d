"""Allocating and freeing device memory."""

from itertools import pairwise

from driver import OUT
from section import Section

section = Section("device_memory")
question = section.question


def _prepare(p):
    freed = p.device(100)
    p.release(freed)
    names = {"a": p.device(4096), "freed": freed, "page": p.pageable()}
    return names


section.calls(
    """
    alloc null | cuMemAlloc_v2 0, 4
    alloc 0 | cuMemAlloc_v2 out, 0
    alloc null 0 | cuMemAlloc_v2 0, 0
    alloc 2^40 | cuMemAlloc_v2 out, 1 << 40
    alloc 2^60 | cuMemAlloc_v2 out, 1 << 60
    alloc 2^63 | cuMemAlloc_v2 out, 1 << 63
    alloc -1 | cuMemAlloc_v2 out, -1
    alloc null 2^60 | cuMemAlloc_v2 0, 1 << 60
    free 0 | cuMemFree_v2 0
    free 16 | cuMemFree_v2 16
    free -1 | cuMemFree_v2 -1
    free in the middle | cuMemFree_v2 a + 8
    free at the end | cuMemFree_v2 a + 4096
    free again | cuMemFree_v2 freed
    free ordinary memory | cuMemFree_v2 page
    free page-locked memory | cuMemFree_v2 p.host()
    free registered memory | cuMemFree_v2 p.registered()
    free device memory as host memory | cuMemFreeHost a
    free device memory as array | cuArrayDestroy 0
    pitch null | cuMemAllocPitch_v2 0, out, 16, 16, 4
    pitch null pitch | cuMemAllocPitch_v2 out, 0, 16, 16, 4
    pitch width 0 | cuMemAllocPitch_v2 out, p.cell(), 0, 16, 4
    pitch height 0 | cuMemAllocPitch_v2 out, p.cell(), 16, 0, 4
    pitch element 0 | cuMemAllocPitch_v2 out, p.cell(), 16, 16, 0
    pitch element 1 | cuMemAllocPitch_v2 out, p.cell(), 16, 16, 1
    pitch element 3 | cuMemAllocPitch_v2 out, p.cell(), 16, 16, 3
    pitch element 32 | cuMemAllocPitch_v2 out, p.cell(), 16, 16, 32
    pitch width huge | cuMemAllocPitch_v2 out, p.cell(), 1 << 50, 16, 4
    pitch height huge | cuMemAllocPitch_v2 out, p.cell(), 1 << 20, 1 << 50, 4
    range null base | cuMemGetAddressRange_v2 0, out, a
    range null size | cuMemGetAddressRange_v2 out, 0, a
    range both null | cuMemGetAddressRange_v2 0, 0, a
    range both null of 0 | cuMemGetAddressRange_v2 0, 0, 0
    range of 0 | cuMemGetAddressRange_v2 out, p.cell(), 0
    range of 16 | cuMemGetAddressRange_v2 out, p.cell(), 16
    range of freed | cuMemGetAddressRange_v2 out, p.cell(), freed
    range of ordinary memory | cuMemGetAddressRange_v2 out, p.cell(), page
    range at the end | cuMemGetAddressRange_v2 out, p.cell(), a + 4096
    range of page-locked memory | cuMemGetAddressRange_v2 out, p.cell(), p.host()
    range of registered memory | cuMemGetAddressRange_v2 out, p.cell(), p.registered()
    copy to freed | cuMemcpyHtoD_v2 freed, page, 16
    copy from freed | cuMemcpyDtoH_v2 page, freed, 16
    fill freed | cuMemsetD8_v2 freed, 0, 16
    host pointer of device memory | cuMemHostGetDevicePointer_v2 out, a, 0
    host flags of device memory | cuMemHostGetFlags out, a
    advise device memory | cuMemAdvise a, 4096, 1, 0
    prefetch device memory | cuMemPrefetchAsync a, 4096, 0, 0
    attach device memory | cuStreamAttachMemAsync 1, a, 0, 1
    free asynchronously | cuMemFreeAsync p.need("cuMemAlloc_v2", OUT, 4096), 0
    free asynchronously the freed | cuMemFreeAsync freed, 0
    free asynchronously 0 | cuMemFreeAsync 0, 0
    free asynchronously in the middle | cuMemFreeAsync a + 8, 0
""",
    _prepare,
)


@question("out pointer after a refused size")
def _(p):
    import ctypes

    cell = ctypes.c_uint64(77)
    status = p("cuMemAlloc_v2", ctypes.byref(cell), 0)
    return status, cell.value


@question("out pointer after no memory")
def _(p):
    import ctypes

    cell = ctypes.c_uint64(77)
    status = p("cuMemAlloc_v2", ctypes.byref(cell), 1 << 60)
    return status, cell.value


for size in (1, 16, 100, 256, 257, 511, 512, 513, 4096, 65536, 1 << 20, (1 << 20) + 1, 2 << 20):
    section.ask(
        f"alignment and range of {size} bytes",
        lambda p, size=size: _range(p, size),
    )


def _range(p, size):
    address = p.device(size)
    base, length = p.need("cuMemGetAddressRange_v2", OUT, OUT, address)
    return address % 256 == 0, address % 512 == 0, base == address, length


@question("distance of two allocations of one byte")
def _(p):
    addresses = sorted([p.device(1), p.device(1), p.device(1), p.device(1)])
    return min(b - a for a, b in pairwise(addresses))


for size in (1 << 19, (1 << 20) - 1, 1 << 20, 3 << 19, 2 << 20, (2 << 20) + 1, 3710976, 64 << 20):
    section.ask(
        f"alignment to 2 MiB of {size} bytes",
        lambda p, size=size: [p.device(size) % (2 << 20) == 0 for _ in range(3)],
    )


@question("small ones between large ones lie in one block of 2 MiB")
def _(p):
    small = []
    for _ in range(4):
        small.append(p.device(100))
        p.device(5 << 20)
    return len({address >> 21 for address in small}) == 1


@question("range from inside")
def _(p):
    address = p.device(1000)
    base, size = p.need("cuMemGetAddressRange_v2", OUT, OUT, address + 999)
    return base == address, size


@question("pitch of some widths, element of 4")
def _(p):
    pitches = []
    for width in (1, 16, 100, 512, 513, 1000, 4096):
        address, pitch = p.need("cuMemAllocPitch_v2", OUT, OUT, width, 3, 4)
        pitches.append(pitch)
        p("cuMemFree_v2", address)
    return pitches


@question("range of a pitched allocation")
def _(p):
    address, pitch = p.need("cuMemAllocPitch_v2", OUT, OUT, 100, 3, 16)
    base, size = p.need("cuMemGetAddressRange_v2", OUT, OUT, address)
    return p("cuMemFree_v2", address), base == address, size == pitch * 3, size


# Whether the driver checks the end of an allocation

for size in (100, 4096, 1 << 20, 2 << 20):
    for over in (0, 1, 412, 4096, 2 << 20):
        section.ask(
            f"copy to {size} bytes, {over} past the end",
            lambda p, size=size, over=over: p(
                "cuMemcpyHtoD_v2", p.device(size), p.pageable(size + over), size + over
            ),
        )

for name, call in {
    "copy from, 1 past the end": lambda p, a, b: p("cuMemcpyDtoH_v2", p.pageable(), a, 1025),
    "copy between, source 1 past": lambda p, a, b: p("cuMemcpyDtoD_v2", b, a, 1025),
    "copy between, target 1 past": lambda p, a, b: p("cuMemcpyDtoD_v2", a, b, 1025),
    "copy by address, 1 past": lambda p, a, b: p("cuMemcpy", a, b, 1025),
    "copy async, 1 past": lambda p, a, b: p("cuMemcpyHtoDAsync_v2", a, p.host(), 1025, 0),
    "copy async by address, 1 past": lambda p, a, b: p("cuMemcpyAsync", a, b, 1025, 0),
    "fill, 1 past": lambda p, a, b: p("cuMemsetD8_v2", a, 0, 1025),
    "fill 32, 1 past": lambda p, a, b: p("cuMemsetD32_v2", a, 0, 257),
    "fill async, 1 past": lambda p, a, b: p("cuMemsetD8Async", a, 0, 1025, 0),
    "fill 2D, 1 past": lambda p, a, b: p("cuMemsetD2D8_v2", a, 512, 0, 513, 2),
    "copy from before the start": lambda p, a, b: p("cuMemcpyDtoH_v2", p.pageable(), a - 1, 2),
    "wait value past the end": lambda p, a, b: p("cuStreamWriteValue32_v2", 0, a + 1024, 1, 0),
    "copy a size of -1": lambda p, a, b: p("cuMemcpyDtoD_v2", a, b, -1),
    "fill a count of -1": lambda p, a, b: p("cuMemsetD8_v2", a, 0, -1),
    "fill 32 a count that overflows": lambda p, a, b: p("cuMemsetD32_v2", a, 0, (1 << 62) + 1),
}.items():
    section.ask(name, lambda p, call=call: call(p, p.device(1024), p.device(8192)))


@question("a copy that runs into the next allocation")
def _(p):
    addresses = sorted(p.device(512) for _ in range(8))
    pair = next((a for a, b in pairwise(addresses) if b - a == 512), None)
    return pair and p("cuMemcpyDtoH_v2", p.pageable(), pair, 1024)


@question("a fill that runs into the next allocation")
def _(p):
    addresses = sorted(p.device(512) for _ in range(8))
    pair = next((a for a, b in pairwise(addresses) if b - a == 512), None)
    return pair and p("cuMemsetD8_v2", pair, 0, 1024)


@question("allocations do not overlap")
def _(p):
    addresses = sorted(p.device(1000) for _ in range(20))
    return all(b - a >= 1000 for a, b in pairwise(addresses))


@question("free in another thread")
def _(p):
    address = p.device()
    return p.thread(lambda: p.release(address))


@question("free in a thread without context")
def _(p):
    address = p.device()
    return p.thread(lambda: p.release(address), context=False)


@question("free with no context current")
def _(p):
    address = p.device()
    p("cuCtxSetCurrent", 0)
    status = p("cuMemFree_v2", address)
    if status == "SUCCESS":
        p.forget(address)
    return status


@question("ipc handle")
def _(p):
    handle = p.pageable()
    return p("cuIpcGetMemHandle", handle, p.device()), p("cuIpcGetMemHandle", handle, 16)


def _no_context(p):
    names = _prepare(p)
    names["host"] = p.host()
    p("cuCtxSetCurrent", 0)
    return names


section.calls(
    """
    alloc | cuMemAlloc_v2 out, 4
    alloc null | cuMemAlloc_v2 0, 4
    alloc 0 | cuMemAlloc_v2 out, 0
    free 0 | cuMemFree_v2 0
    free bad | cuMemFree_v2 16
    free freed | cuMemFree_v2 freed
    range | cuMemGetAddressRange_v2 out, p.cell(), a
    range bad | cuMemGetAddressRange_v2 out, p.cell(), 16
    range null | cuMemGetAddressRange_v2 0, 0, 0
    pitch | cuMemAllocPitch_v2 out, p.cell(), 16, 16, 4
    copy | cuMemcpyHtoD_v2 a, page, 16
    copy nothing | cuMemcpyHtoD_v2 a, page, 0
    copy bad | cuMemcpyHtoD_v2 0, 0, 16
    copy by address | cuMemcpy a, a, 16
    copy async | cuMemcpyDtoDAsync_v2 a, a + 100, 16, 0
    copy 2D null | cuMemcpy2D_v2 0
    fill | cuMemsetD8_v2 a, 0, 16
    fill nothing | cuMemsetD8_v2 a, 0, 0
    fill async | cuMemsetD8Async a, 0, 16, 0
    host alloc | cuMemHostAlloc out, 16, 0
    host alloc null | cuMemHostAlloc 0, 16, 0
    host alloc, first | cuMemAllocHost_v2 out, 16
    host free 0 | cuMemFreeHost 0
    host free bad | cuMemFreeHost page
    register | cuMemHostRegister_v2 page, 4096, 0
    register null | cuMemHostRegister_v2 0, 4096, 0
    unregister bad | cuMemHostUnregister page
    device pointer | cuMemHostGetDevicePointer_v2 out, host, 0
    device pointer bad | cuMemHostGetDevicePointer_v2 out, page, 0
    host flags | cuMemHostGetFlags out, host
    host flags bad | cuMemHostGetFlags out, page
    managed | cuMemAllocManaged out, 16, 1
    managed bad flags | cuMemAllocManaged out, 16, 0
    prefetch bad | cuMemPrefetchAsync a, 16, 0, 0
    advise bad | cuMemAdvise a, 16, 1, 0
    alloc async | cuMemAllocAsync out, 16, 0
    free async | cuMemFreeAsync a, 0
    pointer attribute | cuPointerGetAttribute out, 2, a
    pointer attribute bad | cuPointerGetAttribute out, 2, 16
    ipc handle | cuIpcGetMemHandle page, a
    array null | cuArrayDestroy 0
""".replace(" |", " with no context |"),
    _no_context,
)
