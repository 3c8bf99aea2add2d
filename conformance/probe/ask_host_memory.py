"""Page-locked and registered memory."""

import ctypes
from itertools import pairwise

from driver import INT, OUT
from section import Section

section = Section("host_memory")
question = section.question


def _prepare(p):
    return {"h": p.host(8192), "page": p.pageable(16384), "r": p.registered(8192), "a": p.device()}


section.calls(
    """
    alloc null | cuMemHostAlloc 0, 4, 0
    alloc 0 | cuMemHostAlloc out, 0, 0
    alloc null 0 | cuMemHostAlloc 0, 0, 0
    alloc flags 8 | cuMemHostAlloc out, 4, 8
    alloc flags 16 | cuMemHostAlloc out, 4, 16
    alloc flags -1 | cuMemHostAlloc out, 4, -1
    alloc 0 flags 8 | cuMemHostAlloc out, 0, 8
    alloc 2^60 | cuMemHostAlloc out, 1 << 60, 0
    alloc -1 | cuMemHostAlloc out, -1, 0
    first alloc null | cuMemAllocHost_v2 0, 4
    first alloc 0 | cuMemAllocHost_v2 out, 0
    first alloc 2^60 | cuMemAllocHost_v2 out, 1 << 60
    free 0 | cuMemFreeHost 0
    free 16 | cuMemFreeHost 16
    free in the middle | cuMemFreeHost h + 8
    free in the next page | cuMemFreeHost h + 4096
    free ordinary memory | cuMemFreeHost page
    free registered memory | cuMemFreeHost r
    free device memory | cuMemFreeHost a
    free managed memory | cuMemFreeHost p.managed()
    flags null | cuMemHostGetFlags 0, h
    flags of 0 | cuMemHostGetFlags out, 0
    flags of 16 | cuMemHostGetFlags out, 16
    flags of ordinary memory | cuMemHostGetFlags out, page
    flags from inside | cuMemHostGetFlags out, h + 100
    flags of managed memory | cuMemHostGetFlags out, p.managed()
    flags of registered memory | cuMemHostGetFlags out, r
    pointer null | cuMemHostGetDevicePointer_v2 0, h, 0
    pointer of 0 | cuMemHostGetDevicePointer_v2 out, 0, 0
    pointer of 16 | cuMemHostGetDevicePointer_v2 out, 16, 0
    pointer of ordinary memory | cuMemHostGetDevicePointer_v2 out, page, 0
    pointer with flags | cuMemHostGetDevicePointer_v2 out, h, 1
    pointer with flags of 16 | cuMemHostGetDevicePointer_v2 out, 16, 1
    pointer null with flags | cuMemHostGetDevicePointer_v2 0, h, 1
    pointer past the end | cuMemHostGetDevicePointer_v2 out, h + 8192, 0
    pointer of managed memory | cuMemHostGetDevicePointer_v2 out, p.managed(), 0
    register null | cuMemHostRegister_v2 0, 4096, 0
    register nothing | cuMemHostRegister_v2 page, 0, 0
    register null nothing | cuMemHostRegister_v2 0, 0, 0
    register flags 16 | cuMemHostRegister_v2 page, 4096, 16
    register flags -1 | cuMemHostRegister_v2 page, 4096, -1
    register null flags 16 | cuMemHostRegister_v2 0, 4096, 16
    register input and output memory | cuMemHostRegister_v2 page, 4096, 4
    register 16 | cuMemHostRegister_v2 16, 4096, 0
    register unmapped | cuMemHostRegister_v2 1 << 46, 4096, 0
    register 2^50 bytes | cuMemHostRegister_v2 page, 1 << 50, 0
    register -1 bytes | cuMemHostRegister_v2 page, -1, 0
    register page-locked memory | cuMemHostRegister_v2 h, 4096, 0
    register inside page-locked memory | cuMemHostRegister_v2 h + 4096, 4096, 0
    register device memory | cuMemHostRegister_v2 a, 4096, 0
    register managed memory | cuMemHostRegister_v2 p.managed(), 4096, 0
    register again | cuMemHostRegister_v2 r, 8192, 0
    register a part again | cuMemHostRegister_v2 r, 4096, 0
    register the second page again | cuMemHostRegister_v2 r + 4096, 4096, 0
    register more again | cuMemHostRegister_v2 r, 12288, 0
    register bytes of it again | cuMemHostRegister_v2 r + 100, 100, 0
    register again with flags 16 | cuMemHostRegister_v2 r, 8192, 16
    unregister 0 | cuMemHostUnregister 0
    unregister 16 | cuMemHostUnregister 16
    unregister ordinary memory | cuMemHostUnregister page
    unregister in the middle | cuMemHostUnregister r + 4096
    unregister in the middle of a page | cuMemHostUnregister r + 8
    unregister page-locked memory | cuMemHostUnregister h
    unregister device memory | cuMemHostUnregister a
    first register | cuMemHostRegister page, 4096, 0
    first pointer | cuMemHostGetDevicePointer out, h, 0
    free asynchronously | cuMemFreeAsync h, 0
    prefetch | cuMemPrefetchAsync h, 4096, 0, 0
    advise | cuMemAdvise h, 4096, 1, 0
    copy to, 1 past the end | cuMemcpyDtoH_v2 h + 8191, a, 2
    copy from, 1 past the end | cuMemcpyHtoD_v2 a, h + 8191, 2
    copy async to, 1 past the end | cuMemcpyDtoHAsync_v2 h + 8191, a, 2, 0
    copy async from, 1 past the end | cuMemcpyHtoDAsync_v2 a, h + 8191, 2, 0
    fill | cuMemsetD8_v2 h, 1, 16
    fill 1 past the end | cuMemsetD8_v2 h + 8191, 1, 2
    fill registered | cuMemsetD8_v2 r, 1, 16
    fill registered 1 past the end | cuMemsetD8_v2 r + 8191, 1, 2
    fill ordinary memory | cuMemsetD8_v2 page, 1, 16
""",
    _prepare,
)

for flags in range(8):
    section.ask(
        f"flags of memory allocated with {flags}",
        lambda p, flags=flags: p.get("cuMemHostGetFlags", INT, p.host(flags=flags)),
    )
for flags in range(16):
    section.ask(
        f"flags of memory registered with {flags}",
        lambda p, flags=flags: p.get("cuMemHostGetFlags", INT, p.registered(flags=flags)),
    )
for flags in range(8):
    section.ask(
        f"device pointer of memory allocated with {flags} is the same",
        lambda p, flags=flags: _same(p, p.host(flags=flags)),
    )
for flags in (0, 1, 2, 3, 8, 9):
    section.ask(
        f"device pointer of memory registered with {flags} is the same",
        lambda p, flags=flags: _same(p, p.registered(flags=flags)),
    )


def _same(p, address):
    found = p.get("cuMemHostGetDevicePointer_v2", OUT, address, 0)
    inside = p.get("cuMemHostGetDevicePointer_v2", OUT, address + 100, 0)
    if isinstance(found, str):
        return found, inside
    return found == address, inside if isinstance(inside, str) else inside - found


@question("flags of memory of the first allocator")
def _(p):
    address = p.make("cuMemFreeHost", "cuMemAllocHost_v2", OUT, 4096)
    return p.get("cuMemHostGetFlags", INT, address)


@question("alignment")
def _(p):
    return [p.host(size) % 4096 for size in (1, 100, 4096, 5000)]


@question("distance of small ones")
def _(p):
    addresses = sorted(p.host(1) for _ in range(4))
    return min(b - a for a, b in pairwise(addresses)) >= 4096


@question("new memory is zero")
def _(p):
    address = p.need("cuMemHostAlloc", OUT, 8192, 0)
    zero = p.bytes_at(address, 8192) == bytes(8192)
    return p("cuMemFreeHost", address), zero


@question("out pointer after failures")
def _(p):
    cell, found = ctypes.c_uint64(77), []
    for size, flags in ((0, 0), (1 << 60, 0), (4, 8)):
        cell.value = 77
        found.append((p("cuMemHostAlloc", ctypes.byref(cell), size, flags), cell.value))
    return found


@question("free twice")
def _(p):
    address = p.host()
    return p.release(address), p("cuMemFreeHost", address)


@question("register twice, unregister twice")
def _(p):
    page, steps = p.pageable(), []
    for name in ("cuMemHostRegister_v2", "cuMemHostRegister_v2"):
        steps.append(p(name, page, 4096, 0))
    return *steps, p("cuMemHostUnregister", page), p("cuMemHostUnregister", page)


@question("register what is not aligned")
def _(p):
    page = p.pageable(8192)
    steps = [p("cuMemHostRegister_v2", page + 100, 200, 0)]
    steps.append(p.get("cuMemHostGetFlags", INT, page + 100))
    steps.append(p.get("cuMemHostGetFlags", INT, page))
    steps.append(p.get("cuMemHostGetFlags", INT, page + 300))
    steps.append(p.get("cuMemHostGetDevicePointer_v2", OUT, page + 100, 0) == page + 100)
    steps.append(p("cuMemHostUnregister", page))
    return *steps, p("cuMemHostUnregister", page + 100)


@question("register two parts of one page")
def _(p):
    page = p.pageable()
    steps = [
        p("cuMemHostRegister_v2", page, 100, 0),
        p("cuMemHostRegister_v2", page + 2048, 100, 0),
    ]
    steps.append(p("cuMemHostUnregister", page + 2048))
    return *steps, p("cuMemHostUnregister", page)


@question("register neighbouring pages, copy across")
def _(p):
    page, target = p.pageable(8192), p.device(8192)
    steps = [
        p("cuMemHostRegister_v2", page, 4096, 0),
        p("cuMemHostRegister_v2", page + 4096, 4096, 0),
    ]
    steps.append(p("cuMemcpyHtoD_v2", target, page, 8192))
    steps.append(p("cuMemcpyHtoDAsync_v2", target, page, 8192, 0))
    steps.append(p("cuCtxSynchronize"))
    steps.append(p("cuMemHostUnregister", page))
    return *steps, p("cuMemHostUnregister", page + 4096)


@question("copy from half registered memory")
def _(p):
    page, target = p.pageable(8192), p.device(8192)
    steps = [p("cuMemHostRegister_v2", page, 4096, 0)]
    steps.append(p("cuMemcpyHtoD_v2", target, page, 8192))
    steps.append(p("cuMemcpyHtoDAsync_v2", target, page, 8192, 0))
    steps.append(p("cuCtxSynchronize"))
    return *steps, p("cuMemHostUnregister", page)


@question("register read-only memory for reading")
def _(p):
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(4096), 1, 0x22, -1, ctypes.c_long(0))
    plain = p("cuMemHostRegister_v2", address, 4096, 0)
    if plain == "SUCCESS":
        p("cuMemHostUnregister", address)
    reading = p("cuMemHostRegister_v2", address, 4096, 8)
    if reading == "SUCCESS":
        p("cuMemHostUnregister", address)
    return plain, reading


@question("unregister in a thread without context")
def _(p):
    address = p.registered()
    return p.thread(lambda: p.release(address), context=False)


@question("free in a thread without context")
def _(p):
    address = p.host()
    return p.thread(lambda: p.release(address), context=False)
