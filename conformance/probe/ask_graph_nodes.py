"""Nodes of graphs: which parameters are refused, and which are read back."""

import ctypes

from driver import HOST_FUNCTION, OUT, Copy3D
from graph_tools import (
    Alloc,
    Batch,
    Host,
    Kernel,
    Memset,
    Params,
    Updated,
    add,
    alloc,
    alloc_params,
    block_params,
    capture,
    copy,
    copy_params,
    empty,
    exec_of,
    graph,
    host,
    kernel_params,
    memset,
    memset_params,
    node,
    nodes,
    nodes_of,
    parameter_block,
    ref,
    run,
    shape,
    store,
    values_of,
    words,
)
from kernels import TEXT, address, config, function, launch, load_library, pointers
from section import Section

section = Section("graph_nodes")
question = section.question


def told(found):
    return found if isinstance(found, str) else "added"


# Fills

for name, change in {
    "of bytes": {},
    "of words": {"element": 4},
    "of halves": {"element": 2},
    "element 0": {"element": 0},
    "element 3": {"element": 3},
    "element 8": {"element": 8},
    "width 0": {"width": 0},
    "height 0": {"height": 0},
    "past the end": {"width": 4097},
    "two rows": {"height": 2, "pitch": 64},
    "two rows, small pitch": {"height": 2, "pitch": 8},
    "one row, small pitch": {"pitch": 8},
    "value too wide": {"value": 300},
    "value of a half too wide": {"value": 70000, "element": 2},
}.items():

    @question(f"fill {name}")
    def _(p, change=change):
        g, at = graph(p), p.device()
        found = add(p, "cuGraphAddMemsetNode", g, (), memset_params(p, at, **change), p.primary)
        if isinstance(found, str):
            return found
        back = Memset()
        status = p("cuGraphMemsetNodeGetParams", found, ctypes.byref(back))
        shown = (
            back.dst == at, back.pitch, back.value, back.element, back.width, back.height
        )  # fmt: skip
        return "added", status, shown, run(p, g)


for name, where in {
    "misaligned": lambda p: (p.device() + 1, 4),
    "null": lambda p: (0, 1),
    "pageable": lambda p: (p.pageable(), 1),
    "page-locked": lambda p: (p.host(), 1),
    "managed": lambda p: (p.managed(), 1),
    "stream-ordered": lambda p: (p.ordered(), 1),
}.items():

    @question(f"fill at {name}")
    def _(p, where=where):
        at, element = where(p)
        params = memset_params(p, at, element=element)
        return told(add(p, "cuGraphAddMemsetNode", graph(p), (), params, p.primary))


@question("fill with no context")
def _(p):
    params = memset_params(p, p.device())
    return told(add(p, "cuGraphAddMemsetNode", graph(p), (), params, 0))


@question("fill set")
def _(p):
    g, at, far = graph(p), p.device(), p.device()
    n = memset(p, g, at, value=1)
    found, back = [], Memset()
    for params in (
        memset_params(p, far, value=2),
        memset_params(p, far, value=3, width=0),
        memset_params(p, far, value=4, element=3),
        memset_params(p, far, value=5, height=3, pitch=64),
    ):
        found.append(p("cuGraphMemsetNodeSetParams", n, params))
        p("cuGraphMemsetNodeGetParams", n, ctypes.byref(back))
        found.append((back.dst == far, back.value, back.width))
    return found, p("cuGraphMemsetNodeSetParams", n, 0), run(p, g), words(p, far)


@question("captured fill read back")
def _(p):
    at, found = p.device(), []
    for steps in (
        lambda s: p("cuMemsetD8Async", at, 300, 16, s),
        lambda s: p("cuMemsetD32Async", at, 5, 16, s),
        lambda s: p("cuMemsetD2D16Async", at, 64, 5, 16, 2, s),
        lambda s: p("cuMemsetD2D16Async", at, 64, 5, 16, 1, s),
        lambda s: p("cuMemsetD2D8Async", at, 16, 5, 16, 4, s),
    ):
        g, _ = capture(p, steps)
        back = Memset()
        p("cuGraphMemsetNodeGetParams", nodes_of(p, g)[0], ctypes.byref(back))
        found.append((back.pitch, back.value, back.element, back.width, back.height))
    return found


# Copies


def _box(back):
    sides = [
        (
            getattr(back, f"{s}Type"),
            bool(getattr(back, f"{s}Host")),
            bool(getattr(back, f"{s}Device")),
        )
        for s in ("src", "dst")
    ]
    return (
        *sides, back.srcPitch, back.srcHeight, back.dstPitch, back.dstHeight, back.srcX, back.srcY,
        back.Width, back.Height, back.Depth,
    )  # fmt: skip


COPIES = {
    "on the device": lambda p: (p.device(), p.device(), {}),
    "from page-locked": lambda p: (p.device(), p.host(), {"source_type": 1}),
    "from pageable": lambda p: (p.device(), p.pageable(), {"source_type": 1}),
    "to page-locked": lambda p: (p.host(), p.device(), {"target_type": 1}),
    "by address": lambda p: (p.device(), p.device(), {"source_type": 4, "target_type": 4}),
    "by address to pageable": lambda p: (p.pageable(), p.device(), {"target_type": 4}),
    "between hosts": lambda p: (p.host(), p.host(), {"source_type": 1, "target_type": 1}),
    "of nothing": lambda p: (p.device(), p.device(), {"size": 0}),
    "past the end": lambda p: (p.device(), p.device(), {"size": 4097}),
    "from null": lambda p: (p.device(), 0, {}),
    "to null": lambda p: (0, p.device(), {}),
    "of a bad type": lambda p: (p.device(), p.device(), {"source_type": 9}),
    "from an array": lambda p: (p.device(), 0, {"source_type": 3}),
}
for name, made in COPIES.items():

    @question(f"copy {name}")
    def _(p, made=made):
        target, source, options = made(p)
        g = graph(p)
        params = copy_params(p, target, source, **options)
        found = add(p, "cuGraphAddMemcpyNode", g, (), params, p.primary)
        if isinstance(found, str):
            return found
        back = Copy3D()
        return p("cuGraphMemcpyNodeGetParams", found, ctypes.byref(back)), _box(back), run(p, g)


@question("copy of rows, pitch and height 0")
def _(p):
    g = graph(p)
    box = Copy3D(srcType=2, dstType=2, srcDevice=p.device(), dstDevice=p.device())
    box.Width, box.Height, box.Depth = 8, 4, 2
    found = add(p, "cuGraphAddMemcpyNode", g, (), ref(p, box), p.primary)
    if isinstance(found, str):
        return found
    back = Copy3D()
    return p("cuGraphMemcpyNodeGetParams", found, ctypes.byref(back)), _box(back), run(p, g)


@question("copy with no context")
def _(p):
    params = copy_params(p, p.device(), p.device())
    return told(add(p, "cuGraphAddMemcpyNode", graph(p), (), params, 0))


@question("copy set")
def _(p):
    g, a, b, h = graph(p), p.device(), p.device(), p.host()
    p.fill_host(h, b"\5" * 16)
    n = copy(p, g, a, b)
    found = [
        p("cuGraphMemcpyNodeSetParams", n, copy_params(p, a, h, source_type=1)),
        p("cuGraphMemcpyNodeSetParams", n, copy_params(p, a, b, size=0)),
        p("cuGraphMemcpyNodeSetParams", n, copy_params(p, a, b, size=9999)),
        p("cuGraphMemcpyNodeSetParams", n, 0),
    ]
    return found, run(p, g), words(p, a)


@question("captured copies read back")
def _(p):
    a, h, g2 = p.device(), p.host(), p.pageable()
    found = []
    for step in (
        lambda s: p("cuMemcpyHtoDAsync_v2", a, h, 16, s),
        lambda s: p("cuMemcpyDtoHAsync_v2", h, a, 16, s),
        lambda s: p("cuMemcpyDtoDAsync_v2", a, a + 64, 16, s),
        lambda s: p("cuMemcpyAsync", a, h, 16, s),
        lambda s: p("cuMemcpyAsync", a, a + 64, 16, s),
        lambda s: p("cuMemcpyHtoDAsync_v2", a, g2, 16, s),
        lambda s: p("cuMemcpyPeerAsync", a, p.primary, a + 64, p.primary, 16, s),
    ):
        g, _ = capture(p, step)
        back = Copy3D()
        if isinstance(g, str):
            found.append(g)
            continue
        p("cuGraphMemcpyNodeGetParams", nodes_of(p, g)[0], ctypes.byref(back))
        found.append(_box(back))
    return found


@question("pageable source of a captured copy is read at the launch")
def _(p):
    a, h = p.device(), p.pageable()
    p.fill_host(h, b"\1" * 16)
    g, _ = capture(p, lambda s: p("cuMemcpyHtoDAsync_v2", a, h, 16, s))
    p.fill_host(h, b"\2" * 16)
    return run(p, g), words(p, a)


# Kernels


@question("kernel read back")
def _(p):
    g, at, func = graph(p), p.device(), function(p, "store")
    n = store(p, g, at, 9, func=func)
    back = Kernel()
    status = p("cuGraphKernelNodeGetParams_v2", n, ctypes.byref(back))
    if status != "SUCCESS":
        return status
    cells = (ctypes.c_void_p * 2).from_address(back.params) if back.params else None
    values = (
        [
            ctypes.c_uint64.from_address(cells[0]).value == at,
            ctypes.c_uint32.from_address(cells[1]).value,
        ]
        if cells
        else "no parameters"
    )
    return (
        status, back.func == func, list(back.grid), list(back.block), back.shared, values,
        bool(back.extra), bool(back.kern), back.ctx == p.primary,
    )  # fmt: skip


@question("kernel of a library read back")
def _(p):
    g, at = graph(p), p.device()
    kern = p.need("cuLibraryGetKernel", OUT, load_library(p), b"store")
    params = kernel_params(p, 0, at, 4)._obj
    found = []
    for func, handle, context in ((kern, 0, 0), (0, kern, 0), (0, kern, p.primary), (0, 0, 0)):
        params.func, params.kern, params.ctx = func, handle, context
        n = add(p, "cuGraphAddKernelNode_v2", g, (), ctypes.byref(params))
        if isinstance(n, str):
            found.append(n)
            continue
        back = Kernel()
        p("cuGraphKernelNodeGetParams_v2", n, ctypes.byref(back))
        found.append((back.func == kern, bool(back.func), back.kern == kern, back.ctx == p.primary))
    return found, run(p, g), words(p, at)


@question("kernel by the first version")
def _(p):
    g, at = graph(p), p.device()
    params = kernel_params(p, function(p, "store"), at, 6)
    n = add(p, "cuGraphAddKernelNode", g, (), params)
    back = Kernel(ctx=77, kern=78)
    status = p("cuGraphKernelNodeGetParams", n, ctypes.byref(back)) if isinstance(n, int) else n
    return told(n), status, back.kern, back.ctx, run(p, g), words(p, at)


for name, change in {
    "grid 0": {"grid": (0, 1, 1)},
    "block 0": {"block": (1, 0, 1)},
    "block 1025": {"block": (1025, 1, 1)},
    "grid y 65536": {"grid": (1, 65536, 1)},
    "shared 49153": {"shared": 49153},
    "no parameters": {"bare": True},
}.items():

    @question(f"kernel with {name}")
    def _(p, change=change):
        params = kernel_params(p, function(p, "store"), p.device(), 4, **change)
        g = graph(p)
        found = add(p, "cuGraphAddKernelNode_v2", g, (), params)
        return told(found), shape(p, g), run(p, g) if isinstance(found, int) else "not run"


@question("kernel with a parameter buffer")
def _(p):
    g, at = graph(p), p.device()
    params = block_params(p, function(p, "store"), at, 8)
    n = add(p, "cuGraphAddKernelNode_v2", g, (), params)
    if isinstance(n, str):
        return n
    ctypes.c_uint32.from_address(values_of(params) + 8).value = 9
    return _given(p, n), run(p, g), words(p, at)


@question("kernel arguments are copied when the node is added")
def _(p):
    g, at, func = graph(p), p.device(), function(p, "store")
    value = p.keep(ctypes.c_uint32(3))
    cells = pointers(p, address(at), value)
    params = Kernel(func, (1, 1, 1), (1, 1, 1), 0, ctypes.addressof(cells), None)
    node(p, "cuGraphAddKernelNode_v2", g, (), ref(p, params))
    value.value = 4
    return run(p, g), words(p, at)


@question("kernel arguments are copied when captured")
def _(p):
    at, func = p.device(), function(p, "store")
    value = p.keep(ctypes.c_uint32(3))
    cells = pointers(p, address(at), value)
    g, _ = capture(p, lambda s: launch(p, func, cells, stream=s))
    value.value = 4
    return run(p, g), words(p, at)


@question("kernel set")
def _(p):
    g, at = graph(p), p.device()
    module = function(p, "store")
    n = store(p, g, at, 1, func=module)
    found = [
        p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, module, at, 2)),
        p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, module, at, 3, grid=(0, 1, 1))),
        p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, function(p, "empty"), at, 3)),
        p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, module, at, 5)),
        p("cuGraphKernelNodeSetParams_v2", n, 0),
    ]
    return found, run(p, g), words(p, at)


@question("kernel attributes")
def _(p):
    g, at = graph(p), p.device()
    func = function(p, "store")
    a, b = store(p, g, at, 1, func=func), store(p, g, at, 2, func=func)
    cell = p.keep((ctypes.c_int * 16)())
    found = []
    for number in range(1, 17):
        ctypes.memset(cell, 0x55, 64)
        status = p("cuGraphKernelNodeGetAttribute", a, number, cell)
        found.append(f"{number}: {status} {cell[0]:x} {cell[1]:x} {cell[2]:x}")
    return found, p("cuGraphKernelNodeCopyAttributes", b, a)


@question("kernel attributes set")
def _(p):
    g, at = graph(p), p.device()
    a = store(p, g, at, 1)
    found = []
    for number, *values in (
        (8, -2), (8, 9), (2, 1), (4, 1, 1, 1), (4, 2, 1, 1), (5, 9), (10, 1), (14, 50), (14, 500),
        (3, 1),
    ):  # fmt: skip
        cell = p.keep((ctypes.c_int * 16)(*values))
        back = p.keep((ctypes.c_int * 16)())
        status = p("cuGraphKernelNodeSetAttribute", a, number, cell)
        p("cuGraphKernelNodeGetAttribute", a, number, back)
        found.append(f"{number}: {status} {back[0]} {back[1]} {back[2]}")
    return found


@question("attributes set of a kernel with a parameter buffer")
def _(p):
    g, at, func = graph(p), p.device(), function(p, "store")
    n = node(p, "cuGraphAddKernelNode_v2", g, (), block_params(p, func, at, 1))
    found = []
    for number, *values in ((8, -2), (2, 1), (2, 0), (4, 1, 1, 1), (10, 1), (14, 50)):
        cell = p.keep((ctypes.c_int * 16)(*values))
        found.append(p("cuGraphKernelNodeSetAttribute", n, number, cell))
    other = store(p, g, at, 2, n, func=func)
    found.append(p("cuGraphKernelNodeCopyAttributes", n, other))
    found.append(p("cuGraphKernelNodeCopyAttributes", other, n))
    return found, run(p, g), words(p, at)


def _launched(p, e, at):
    """Launches an executable graph and waits. Returns both statuses and the word at `at`."""
    return p("cuGraphLaunch", e, 0), p("cuStreamSynchronize", 0), words(p, at)


def _given(p, n):
    """Returns the status, and whether the `params` and the `extra` of a kernel node are set."""
    back = Kernel()
    status = p("cuGraphKernelNodeGetParams_v2", n, ctypes.byref(back))
    return status, bool(back.params), bool(back.extra)


@question("parameters set, first as a buffer")
def _(p):
    g, at, func = graph(p), p.device(), function(p, "store")
    n = node(p, "cuGraphAddKernelNode_v2", g, (), block_params(p, func, at, 1))
    found = [p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, func, at, 2)), _given(p, n)]
    found.append(p("cuGraphKernelNodeSetAttribute", n, 2, p.keep((ctypes.c_int * 16)(1))))
    found += [run(p, g), words(p, at)]
    found += [p("cuGraphKernelNodeSetParams_v2", n, block_params(p, func, at, 3)), _given(p, n)]
    return found, run(p, g), words(p, at)


@question("parameters set in an executable graph, as a buffer and not")
def _(p):
    g, at, func = graph(p), p.device(), function(p, "store")
    n = node(p, "cuGraphAddKernelNode_v2", g, (), block_params(p, func, at, 1))
    e, found = exec_of(p, g), []
    for params in (kernel_params(p, func, at, 2), block_params(p, func, at, 3)):
        found.append(p("cuGraphExecKernelNodeSetParams_v2", e, n, params))
        found += _launched(p, e, at)
    for value in (4, 5):
        other = graph(p)
        if value == 4:
            store(p, other, at, value, func=func)
        else:
            node(p, "cuGraphAddKernelNode_v2", other, (), block_params(p, func, at, value))
        found.append(p("cuGraphExecUpdate_v2", e, other, ref(p, Updated())))
        found += _launched(p, e, at)
    return found


@question("a captured launch with a parameter buffer")
def _(p):
    at, func, found = p.device(), function(p, "store"), []
    g, _ = capture(p, lambda s: launch(p, func, stream=s, extra=parameter_block(p, at, 3)))
    n = nodes_of(p, g)[0]
    found.append(_given(p, n))
    for number, *values in ((8, -2), (2, 1), (4, 1, 1, 1)):
        cell = p.keep((ctypes.c_int * 16)(*values))
        found.append(p("cuGraphKernelNodeSetAttribute", n, number, cell))
    found += [run(p, g), words(p, at)]
    found += [p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, func, at, 4)), _given(p, n)]
    return found, run(p, g), words(p, at)


@question("parameters set of a kernel with attributes")
def _(p):
    """Whether the attributes are kept, in the graph and in its executable."""
    found = []
    for number, *values in ((2, 1), (4, 1, 1, 1), (8, -1)):
        g, at, func = graph(p), p.device(), function(p, "store")
        n = store(p, g, at, 1, func=func)
        back = p.keep((ctypes.c_int * 16)())
        p.must("cuGraphKernelNodeSetAttribute", n, number, p.keep((ctypes.c_int * 16)(*values)))
        e = exec_of(p, g)
        for params in (kernel_params(p, func, at, 2), block_params(p, func, at, 3)):
            found.append(p("cuGraphExecKernelNodeSetParams_v2", e, n, params))
            found += _launched(p, e, at)
        found.append(p("cuGraphKernelNodeSetParams_v2", n, kernel_params(p, func, at, 4)))
        p("cuGraphKernelNodeGetAttribute", n, number, back)
        other = graph(p)
        store(p, other, at, 5, func=func)
        found += [back[0], run(p, g), words(p, at)]
        found.append(p("cuGraphExecUpdate_v2", e, other, ref(p, Updated())))
        found += _launched(p, e, at)
    return found


@question("a captured cooperative launch with a parameter buffer")
def _(p):
    at, func, found = p.device(), function(p, "store"), []
    for value, attributes in enumerate((((2, 1),), ((4, 1, 1, 1),), ((2, 1), (4, 1, 1, 1)))):
        values = parameter_block(p, at, value)
        g, answers = capture(
            p,
            lambda s, attributes=attributes, values=values: p(
                "cuLaunchKernelEx", config(p, *attributes, stream=s), func, 0, values
            ),
        )
        found += answers
        if isinstance(g, str):
            found.append(g)
        else:
            found += [_given(p, nodes_of(p, g)[0]), run(p, g), words(p, at)]
    return found


@question("captured kernel read back")
def _(p):
    at, func = p.device(), function(p, "store")
    cells = pointers(p, address(at), ctypes.c_uint32(3))
    g, _ = capture(
        p, lambda s: launch(p, func, cells, grid=(2, 3, 4), block=(5, 6, 7), shared=8, stream=s)
    )
    back = Kernel()
    status = p("cuGraphKernelNodeGetParams_v2", nodes_of(p, g)[0], ctypes.byref(back))
    return status, back.func == func, list(back.grid), list(back.block), back.shared


@question("wrong kind of node")
def _(p):
    g, at = graph(p), p.device()
    e, m = empty(p, g), memset(p, g, at)
    big = p.cell(0, ctypes.c_uint64 * 64)
    return [
        p(name, n, big)
        for n in (e, m)
        for name in (
            "cuGraphKernelNodeGetParams_v2",
            "cuGraphMemcpyNodeGetParams",
            "cuGraphHostNodeGetParams",
            "cuGraphEventRecordNodeGetEvent",
            "cuGraphEventWaitNodeGetEvent",
            "cuGraphMemAllocNodeGetParams",
            "cuGraphMemFreeNodeGetParams",
            "cuGraphChildGraphNodeGetGraph",
            "cuGraphBatchMemOpNodeGetParams",
        )
    ]


# Host functions and events


@question("host read back and set")
def _(p):
    g, found = graph(p), []
    first, second = (p.keep(HOST_FUNCTION(lambda _, i=i: found.append(i))) for i in range(2))
    n = host(p, g, first)
    back = Host()
    status = p("cuGraphHostNodeGetParams", n, ctypes.byref(back))
    same = back.fn == ctypes.cast(first, ctypes.c_void_p).value
    other = Host(ctypes.cast(second, ctypes.c_void_p).value, 5)
    changed = p("cuGraphHostNodeSetParams", n, ref(p, other))
    bad = p("cuGraphHostNodeSetParams", n, ref(p, Host(None, None)))
    return status, same, changed, bad, run(p, g), found


@question("host function of null")
def _(p):
    return told(add(p, "cuGraphAddHostNode", graph(p), (), ref(p, Host(None, None))))


@question("event nodes read back and set")
def _(p):
    g, e, f = graph(p), p.event(), p.event()
    r = node(p, "cuGraphAddEventRecordNode", g, (), e)
    w = node(p, "cuGraphAddEventWaitNode", g, (), e)
    return (
        p.get("cuGraphEventRecordNodeGetEvent", r, OUT) == e,
        p.get("cuGraphEventWaitNodeGetEvent", w, OUT) == e,
        p("cuGraphEventRecordNodeSetEvent", r, f),
        p("cuGraphEventWaitNodeSetEvent", w, f),
        p("cuGraphEventRecordNodeSetEvent", r, 0),
        p.get("cuGraphEventRecordNodeGetEvent", r, OUT) == f,
        p.get("cuGraphEventRecordNodeGetEvent", w, OUT),
    )


@question("event node of a destroyed event")
def _(p):
    g, e = graph(p), p.event()
    node(p, "cuGraphAddEventRecordNode", g, (), e)
    return p.release(e), run(p, g)


# Memory


@question("alloc read back")
def _(p):
    g = graph(p)
    n, at = alloc(p, g, 1000)
    back = Alloc()
    status = p("cuGraphMemAllocNodeGetParams", n, ctypes.byref(back))
    return (
        status, at != 0, back.address == at, back.bytes, back.accesses, back.props.allocType,
        back.props.locationType, back.props.locationId,
    )  # fmt: skip


for name, change in {
    "size 0": {"size": 0},
    "too big": {"size": 1 << 50},
    "device 99": {"device": 99},
    "kind 0": {"kind": 0},
    "location 0": {"location": 0},
    "on the host": {"location": 2},
    "managed": {"kind": 2},
}.items():

    @question(f"alloc {name}")
    def _(p, change=change):
        params = alloc_params(**{"size": 256, **change})
        return told(add(p, "cuGraphAddMemAllocNode", graph(p), (), ref(p, params)))


@question("alloc twice and free")
def _(p):
    g = graph(p)
    (n, at), (m, other) = alloc(p, g, 256), alloc(p, g, 256)
    f = node(p, "cuGraphAddMemFreeNode", g, (n,), at)
    back = ctypes.c_uint64()
    return (
        at != other,
        p("cuGraphMemFreeNodeGetParams", f, ctypes.byref(back)),
        back.value == at,
        told(add(p, "cuGraphAddMemFreeNode", g, (n,), at)),
        told(add(p, "cuGraphAddMemFreeNode", g, (m,), other + 16)),
        told(add(p, "cuGraphAddMemFreeNode", g, (), other)),
        shape(p, g),
    )


@question("free of another graph's memory")
def _(p):
    g, h = graph(p), graph(p)
    _, at = alloc(p, g, 256)
    return told(add(p, "cuGraphAddMemFreeNode", h, (), at)), shape(p, h)


@question("destroying and cloning a graph that allocates")
def _(p):
    g = graph(p)
    n, at = alloc(p, g, 256)
    f = node(p, "cuGraphAddMemFreeNode", g, (n,), at)
    clone = p.get("cuGraphClone", OUT, g)
    e = empty(p, g)
    return (
        clone if isinstance(clone, str) else "cloned",
        p("cuGraphDestroyNode", f),
        p("cuGraphDestroyNode", n),
        p("cuGraphRemoveDependencies", g, nodes(p, n), nodes(p, f), 1),
        p("cuGraphAddDependencies", g, nodes(p, f), nodes(p, e), 1),
        p("cuGraphDestroyNode", e),
        shape(p, g),
    )


@question("graph memory before any launch")
def _(p):
    g = graph(p)
    _, at = alloc(p, g, 256)
    return (
        p("cuMemsetD8_v2", at, 1, 16),
        p.get("cuPointerGetAttribute", OUT, 2, at),
        p("cuMemFree_v2", at),
        p("cuMemFreeAsync", at, p.stream()),
    )


# By cuGraphAddNode


def _params(kind, **fields):
    found = Params(kind)
    part = {0: "kernel", 2: "memset", 3: "host", 10: "alloc", 13: "conditional", 12: "batch"}[kind]
    for name, value in fields.items():
        setattr(getattr(found.of, part), name, value)
    return found


GENERAL = {
    "empty": lambda p: Params(5),
    "memset": lambda p: _params(2, dst=p.device(), value=1, element=1, width=4, height=1),
    "memset with a context": lambda p: _params(
        2, dst=p.device(), value=1, element=1, width=4, height=1, ctx=p.primary
    ),
    "host of null": lambda p: _params(3),
    "kernel of null": lambda p: _params(0),
    "type 8": lambda p: Params(8),
    "type 14": lambda p: Params(14),
    "type -1": lambda p: Params(-1),
    "reserved": lambda p: Params(5, (1, 0, 0)),
    "second reserved": lambda p: Params(5, (0, 0, 0), reserved2=1),
    "record of null": lambda p: Params(7),
    "alloc": lambda p: _params(10, props=alloc_params(256).props, bytes=256),
}
for name, made in GENERAL.items():

    @question(f"general: {name}")
    def _(p, made=made):
        g = graph(p)
        params = p.keep(made(p))
        found = p.get("cuGraphAddNode_v2", OUT, g, 0, 0, 0, ctypes.byref(params))
        return told(found), shape(p, g)


@question("general: set")
def _(p):
    g, at = graph(p), p.device()
    n = memset(p, g, at, value=1)
    same = _params(2, dst=at, value=5, element=1, width=4, height=1)
    found = [p("cuGraphNodeSetParams", n, ref(p, x)) for x in (same, Params(5), Params(3))]
    same.of.memset.ctx = p.primary
    return found, p("cuGraphNodeSetParams", n, ref(p, same)), run(p, g), words(p, at)


@question("batch of value operations")
def _(p):
    from driver import ValueOperation

    g, at = graph(p), p.device()
    items = (ValueOperation * 2)(ValueOperation(2, at, 5, 0), ValueOperation(2, at + 4, 6, 0))
    params = Batch(p.primary, 2, ctypes.addressof(p.keep(items)), 0)
    n = add(p, "cuGraphAddBatchMemOpNode", g, (), ref(p, params))
    if isinstance(n, str):
        return n
    back = Batch()
    status = p("cuGraphBatchMemOpNodeGetParams", n, ctypes.byref(back))
    return status, back.count, back.flags, back.ctx == p.primary, run(p, g), words(p, at, 2)


@question("captured values read back")
def _(p):
    at, found = p.device(), []
    for step in (
        lambda s: p("cuStreamWriteValue32_v2", s, at, 5, 0),
        lambda s: p("cuStreamWaitValue32_v2", s, at, 5, 1),
    ):
        g, _ = capture(p, step)
        back = Batch()
        status = p("cuGraphBatchMemOpNodeGetParams", nodes_of(p, g)[0], ctypes.byref(back))
        found.append((status, back.count, back.flags, shape(p, g)))
    return found


# Conditional nodes


def _conditional(p, g, kind, size, handle, context=None):
    params = p.keep(_params(13, handle=handle, type=kind, size=size))
    params.of.conditional.ctx = p.primary if context is None else context
    n = p.get("cuGraphAddNode_v2", OUT, g, 0, 0, 0, ctypes.byref(params))
    if isinstance(n, str):
        return n, []
    return n, [params.of.conditional.graphs[i] for i in range(size)]


def _condition(p, g, value, flags=1):
    return p.need("cuGraphConditionalHandleCreate", OUT, g, p.primary, value, flags)


for name, kind, size in (
    ("if", 0, 1), ("if else", 0, 2), ("if of 3", 0, 3), ("if of 0", 0, 0), ("while", 1, 1),
    ("while of 2", 1, 2), ("switch of 4", 2, 4), ("switch of 0", 2, 0), ("kind 3", 3, 1),
):  # fmt: skip

    @question(f"conditional: {name}")
    def _(p, kind=kind, size=size):
        g = graph(p)
        n, bodies = _conditional(p, g, kind, size, _condition(p, g, 0))
        return told(n), len(bodies), len(set(bodies)), shape(p, g)


for name, kind, size, value in (
    ("if 1", 0, 1, 1), ("if 0", 0, 1, 0), ("if else 0", 0, 2, 0), ("if 5", 0, 1, 5),
    ("switch 2", 2, 3, 2), ("switch 7", 2, 3, 7), ("while 0", 1, 1, 0),
):  # fmt: skip

    @question(f"conditional: {name} runs")
    def _(p, kind=kind, size=size, value=value):
        g, at = graph(p), p.device()
        p.write(at, bytes(32))
        n, bodies = _conditional(p, g, kind, size, _condition(p, g, value))
        if isinstance(n, str):
            return n
        for i, body in enumerate(bodies):
            memset(p, body, at + 4 * i, value=1, width=4)
        return run(p, g), [word & 1 for word in words(p, at, 4)]


@question("conditional: handle of another graph, twice, unused, without a context")
def _(p):
    g, h = graph(p), graph(p)
    handle = _condition(p, g, 1)
    other = told(_conditional(p, h, 0, 1, handle)[0])
    none = told(_conditional(p, h, 0, 1, 0)[0])
    first = told(_conditional(p, g, 0, 1, handle)[0])
    again = told(_conditional(p, g, 0, 1, handle)[0])
    unused = graph(p)
    _condition(p, unused, 1)
    bare = graph(p)
    return (
        other,
        none,
        first,
        again,
        run(p, unused),
        told(_conditional(p, bare, 0, 1, _condition(p, bare, 1), 0)[0]),
    )


@question("conditional: clone, child, two instantiations")
def _(p):
    g, h = graph(p), graph(p)
    _conditional(p, g, 0, 1, _condition(p, g, 1))
    clone = p.get("cuGraphClone", OUT, g)
    child = p.get("cuGraphAddChildGraphNode", OUT, h, 0, 0, g)
    execs = [p.get("cuGraphInstantiateWithFlags", OUT, g, 0) for _ in range(2)]
    return told(clone), told(child), [e if isinstance(e, str) else "exec" for e in execs]


@question("conditional: what a body may have")
def _(p):
    g, at = graph(p), p.device()
    _, (body,) = _conditional(p, g, 0, 1, _condition(p, g, 1))
    found = [
        told(add(p, "cuGraphAddEmptyNode", body, ())),
        told(add(p, "cuGraphAddMemsetNode", body, (), memset_params(p, at), p.primary)),
        told(add(p, "cuGraphAddEventRecordNode", body, (), p.event())),
        told(add(p, "cuGraphAddMemAllocNode", body, (), ref(p, alloc_params(256)))),
        told(
            add(
                p,
                "cuGraphAddHostNode",
                body,
                (),
                ref(
                    p,
                    Host(ctypes.cast(p.keep(HOST_FUNCTION(lambda _: None)), ctypes.c_void_p).value),
                ),
            )
        ),
    ]
    e = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    return found, p("cuGraphDestroy", body), e if isinstance(e, str) else "instantiated"


@question("the device function that sets a condition")
def _(p):
    text = TEXT + (
        ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
        ".visible .entry set_condition(.param .u64 handle, .param .u32 value)\n{\n"
        "    .reg .b64 %h;\n    .reg .b32 %v;\n"
        "    ld.param.u64 %h, [handle];\n    ld.param.u32 %v, [value];\n"
        "    { .param .b64 one; st.param.b64 [one], %h; .param .b32 two; st.param.b32 [two], %v;\n"
        "    call.uni cudaGraphSetConditional, (one, two); }\n    ret;\n}\n"
    )
    from kernels import image

    found = p.get("cuModuleLoadData", OUT, p.keep(image(text)))
    return found if isinstance(found, str) else "loaded"
