"""Launches: which are refused."""

import ctypes

from kernels import address, config, function, launch, load, pointers
from section import Section

section = Section("launches")
for name, grid, block in (
    ("one thread", (1, 1, 1), (1, 1, 1)),
    ("grid x 0", (0, 1, 1), (1, 1, 1)),
    ("grid y 0", (1, 0, 1), (1, 1, 1)),
    ("grid z 0", (1, 1, 0), (1, 1, 1)),
    ("grid all 0", (0, 0, 0), (1, 1, 1)),
    ("grid y 65535", (1, 65535, 1), (1, 1, 1)),
    ("grid y 65536", (1, 65536, 1), (1, 1, 1)),
    ("grid z 65536", (1, 1, 65536), (1, 1, 1)),
    ("grid x 2**31", (1 << 31, 1, 1), (1, 1, 1)),
    ("grid x -1", (-1, 1, 1), (1, 1, 1)),
    ("block x 0", (1, 1, 1), (0, 1, 1)),
    ("block y 0", (1, 1, 1), (1, 0, 1)),
    ("block z 0", (1, 1, 1), (1, 1, 0)),
    ("block x 1024", (1, 1, 1), (1024, 1, 1)),
    ("block x 1025", (1, 1, 1), (1025, 1, 1)),
    ("block y 1024", (1, 1, 1), (1, 1024, 1)),
    ("block z 64", (1, 1, 1), (1, 1, 64)),
    ("block z 65", (1, 1, 1), (1, 1, 65)),
    ("block 33 by 32", (1, 1, 1), (33, 32, 1)),
    ("block of 2**32 threads", (1, 1, 1), (1 << 16, 1 << 16, 1)),
    ("grid and block 0", (0, 1, 1), (0, 1, 1)),
):
    section.ask(
        name,
        lambda p, grid=grid, block=block: (
            launch(p, function(p, "empty"), grid=grid, block=block),
            p("cuCtxSynchronize"),
        ),
    )

for kernel, block in (
    ("bounded", (64, 1, 1)),
    ("bounded", (65, 1, 1)),
    ("bounded", (32, 2, 1)),
    ("bounded", (8, 8, 2)),
    ("required", (32, 2, 1)),
    ("required", (64, 1, 1)),
    ("required", (32, 1, 1)),
    ("required", (32, 4, 1)),
):
    section.ask(
        f"{kernel} with a block of {'x'.join(map(str, block))}",
        lambda p, kernel=kernel, block=block: launch(p, function(p, kernel), block=block),
    )

for kernel, asked, bytes_ in (
    ("empty", 0, 49152),
    ("empty", 0, 49153),
    ("empty", 0, 1 << 20),
    ("empty", 0, -1),
    ("empty", 60000, 49153),
    ("empty", 60000, 60000),
    ("empty", 60000, 60001),
    ("empty", 100, 101),
    ("empty", 100, 40000),
    ("dynamic", 0, 49152),
    ("dynamic", 0, 49153),
    ("shared", 0, 48152),
    ("shared", 0, 48153),
    ("shared", 0, 49152),
    ("shared", 231448, 231448),
    ("shared", 231448, 231449),
):

    @section.question(f"{kernel} with {bytes_} bytes of shared memory, {asked} allowed")
    def _(p, kernel=kernel, asked=asked, bytes_=bytes_):
        found = function(p, kernel)
        status = p("cuFuncSetAttribute", found, 8, asked) if asked else "SUCCESS"
        target = pointers(p, address(p.device()))
        return status, launch(p, found, target, shared=bytes_), p("cuCtxSynchronize")


section.calls(
    """
    kernel null | cuLaunchKernel 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0
    kernel null, grid 0 | cuLaunchKernel 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0
    parameters null | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0
    parameters given for none | cuLaunchKernel empty, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0
    parameters and extra | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, arguments, extra(16)
    both for none | cuLaunchKernel empty, 1, 1, 1, 1, 1, 1, 0, 0, arguments, extra(0)
    extra | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, extra(12)
    extra, padded | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, extra(16)
    extra, larger | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, extra(64)
    extra, huge | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, extra(8192)
    extra, too small | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, extra(8)
    extra, size 0 | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, extra(0)
    extra, no pointer | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(2, size(12), 0)
    extra, no size | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(1, block, 0)
    extra, nothing | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(0)
    extra, nothing for none | cuLaunchKernel empty, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(0)
    extra, size null | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(1, block, 2, 0, 0)
    extra, pointer null | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(1, 0, 2, size(12), 0)
    extra, unknown key | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(7, 7, 0)
    extra, size first | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0, words(2, size(12), 1, block, 0)
    stream destroyed | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 0x1234560, arguments, 0
    stream legacy | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 1, arguments, 0
    stream per-thread | cuLaunchKernel f, 1, 1, 1, 1, 1, 1, 0, 2, arguments, 0
    per-thread function | cuLaunchKernel_ptsz f, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0
    cooperative | cuLaunchCooperativeKernel f, 1, 1, 1, 1, 1, 1, 0, 0, arguments
    cooperative per-thread | cuLaunchCooperativeKernel_ptsz f, 1, 1, 1, 1, 1, 1, 0, 0, arguments
    cooperative null | cuLaunchCooperativeKernel 0, 1, 1, 1, 1, 1, 1, 0, 0, 0
    cooperative parameters null | cuLaunchCooperativeKernel f, 1, 1, 1, 1, 1, 1, 0, 0, 0
    cooperative grid 0 | cuLaunchCooperativeKernel f, 0, 1, 1, 1, 1, 1, 0, 0, arguments
    cooperative too large | cuLaunchCooperativeKernel empty, 100000, 1, 1, 1024, 1, 1, 0, 0, 0
    config null | cuLaunchKernelEx 0, f, arguments, 0
    config, kernel null | cuLaunchKernelEx config(), 0, 0, 0
    config | cuLaunchKernelEx config(), f, arguments, 0
    config per-thread | cuLaunchKernelEx_ptsz config(), f, arguments, 0
    config with extra | cuLaunchKernelEx config(), f, 0, extra(16)
    config grid 0 | cuLaunchKernelEx config(grid=0), f, arguments, 0
    config attributes null | cuLaunchKernelEx config(count=1), f, arguments, 0
    config, attribute ignored | cuLaunchKernelEx config((0, 0)), f, arguments, 0
    config, access policy | cuLaunchKernelEx config((1, 0)), f, arguments, 0
    config, cooperative | cuLaunchKernelEx config((2, 1)), f, arguments, 0
    config, cooperative 0 | cuLaunchKernelEx config((2, 0)), f, arguments, 0
    config, cooperative 2 | cuLaunchKernelEx config((2, 2)), f, arguments, 0
    config, cooperative too large | cuLaunchKernelEx config((2, 1), grid=100000), empty, 0, 0
    config, synchronization policy | cuLaunchKernelEx config((3, 1)), f, arguments, 0
    config, clusters | cuLaunchKernelEx config((4, 2, 1, 1), grid=4), f, arguments, 0
    config, clusters of 1 | cuLaunchKernelEx config((4, 1, 1, 1)), f, arguments, 0
    config, clusters of 0 | cuLaunchKernelEx config((4, 0, 0, 0)), f, arguments, 0
    config, clusters with a 0 | cuLaunchKernelEx config((4, 2, 0, 1), grid=4), f, arguments, 0
    config, clusters not dividing | cuLaunchKernelEx config((4, 2, 1, 1), grid=3), f, arguments, 0
    config, clusters of 3 | cuLaunchKernelEx config((4, 3, 1, 1), grid=6), f, arguments, 0
    config, clusters of 8 | cuLaunchKernelEx config((4, 8, 1, 1), grid=16), f, arguments, 0
    config, clusters of 9 | cuLaunchKernelEx config((4, 9, 1, 1), grid=18), f, arguments, 0
    config, clusters of 16 | cuLaunchKernelEx config((4, 16, 1, 1), grid=16), f, arguments, 0
    config, clusters of 32 | cuLaunchKernelEx config((4, 32, 1, 1), grid=32), f, arguments, 0
    config, cluster policy | cuLaunchKernelEx config((5, 1)), f, arguments, 0
    config, cluster policy 3 | cuLaunchKernelEx config((5, 3)), f, arguments, 0
    config, programmatic | cuLaunchKernelEx config((6, 1)), f, arguments, 0
    config, programmatic event | cuLaunchKernelEx config((7, 0)), f, arguments, 0
    config, priority | cuLaunchKernelEx config((8, -1)), f, arguments, 0
    config, priority 99 | cuLaunchKernelEx config((8, 99)), f, arguments, 0
    config, domain map | cuLaunchKernelEx config((9, 1)), f, arguments, 0
    config, domain | cuLaunchKernelEx config((10, 1)), f, arguments, 0
    config, domain 7 | cuLaunchKernelEx config((10, 7)), f, arguments, 0
    config, preferred cluster | cuLaunchKernelEx config((11, 2, 1, 1), grid=4), f, arguments, 0
    config, completion event | cuLaunchKernelEx config((12, 0)), f, arguments, 0
    config, updatable node | cuLaunchKernelEx config((13, 0)), f, arguments, 0
    config, carveout | cuLaunchKernelEx config((14, 50)), f, arguments, 0
    config, carveout 101 | cuLaunchKernelEx config((14, 101)), f, arguments, 0
    config, 15 | cuLaunchKernelEx config((15, 0)), f, arguments, 0
    config, nvlink | cuLaunchKernelEx config((16, 1)), f, arguments, 0
    config, 17 | cuLaunchKernelEx config((17, 0)), f, arguments, 0
    config, 99 | cuLaunchKernelEx config((99, 0)), f, arguments, 0
    config, -1 | cuLaunchKernelEx config((-1, 0)), f, arguments, 0
    clusters for ever null | cuOccupancyMaxActiveClusters 0, f, config((4, 2, 1, 1), grid=4)
    clusters config null | cuOccupancyMaxActiveClusters out, f, 0
    clusters of null | cuOccupancyMaxActiveClusters out, 0, config((4, 2, 1, 1), grid=4)
    clusters without a size | cuOccupancyMaxActiveClusters out, f, config()
    clusters | cuOccupancyMaxActiveClusters out, f, config((4, 2, 1, 1), grid=4)
    largest cluster null | cuOccupancyMaxPotentialClusterSize 0, f, config()
    largest cluster config null | cuOccupancyMaxPotentialClusterSize out, f, 0
    largest cluster | cuOccupancyMaxPotentialClusterSize out, f, config()
""",
    lambda p: _words(p),
)


def _words(p):
    module = load(p)
    block = p.keep(ctypes.create_string_buffer(8192))
    ctypes.c_uint64.from_buffer(block).value = p.device()
    at = ctypes.addressof(block)

    def size(number):
        return ctypes.addressof(p.keep(ctypes.c_size_t(number)))

    def words(*values):
        return p.keep((ctypes.c_uint64 * len(values))(*values))

    return {
        "f": function(p, "store", module),
        "empty": function(p, "empty", module),
        "arguments": pointers(p, address(p.device()), ctypes.c_uint32(3)),
        "block": at,
        "size": size,
        "words": words,
        "extra": lambda number: words(1, at, 2, size(number), 0),
        "config": lambda *attributes, **more: config(p, *attributes, **more),
    }
