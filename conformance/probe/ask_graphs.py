"""Graphs: making them, their nodes and edges, clones, and the nodes that captures make."""

import ctypes

from driver import HOST_FUNCTION, INT, LEGACY, OUT, Copy2D
from graph_tools import (
    Edge,
    Instantiation,
    Params,
    add,
    alloc,
    capture,
    captured,
    copy,
    edges_of,
    empty,
    exec_of,
    graph,
    host,
    kinds,
    listed,
    memset,
    nodes,
    nodes_of,
    ref,
    shape,
    store,
)
from kernels import address, config, function, pointers
from section import Section

section = Section("graphs")
question = section.question

section.calls(
    """
    create null | cuGraphCreate 0, 0
    create flags | cuGraphCreate out, 1
    destroy null | cuGraphDestroy 0
    exec destroy null | cuGraphExecDestroy 0
    clone null | cuGraphClone out, 0
    clone to null | cuGraphClone 0, g
    add empty to a null graph | cuGraphAddEmptyNode out, 0, 0, 0
    add empty to null | cuGraphAddEmptyNode 0, g, 0, 0
    add empty after null | cuGraphAddEmptyNode out, g, 0, 1
    add empty after a null node | cuGraphAddEmptyNode out, g, p.cell(0), 1
    add kernel without parameters | cuGraphAddKernelNode_v2 out, g, 0, 0, 0
    add memset without parameters | cuGraphAddMemsetNode out, g, 0, 0, 0, p.primary
    add memcpy without parameters | cuGraphAddMemcpyNode out, g, 0, 0, 0, p.primary
    add host without parameters | cuGraphAddHostNode out, g, 0, 0, 0
    add a null child | cuGraphAddChildGraphNode out, g, 0, 0, 0
    add itself as child | cuGraphAddChildGraphNode out, g, 0, 0, g
    add record of a null event | cuGraphAddEventRecordNode out, g, 0, 0, 0
    add wait for a null event | cuGraphAddEventWaitNode out, g, 0, 0, 0
    add alloc without parameters | cuGraphAddMemAllocNode out, g, 0, 0, 0
    add free of null | cuGraphAddMemFreeNode out, g, 0, 0, 0
    add free of device memory | cuGraphAddMemFreeNode out, g, 0, 0, a
    add node without parameters | cuGraphAddNode_v2 out, g, 0, 0, 0, 0
    nodes of null | cuGraphGetNodes 0, 0, out
    nodes without a count | cuGraphGetNodes g, 0, 0
    roots of null | cuGraphGetRootNodes 0, 0, out
    edges of null | cuGraphGetEdges 0, 0, 0, out
    edges without a count | cuGraphGetEdges g, 0, 0, 0
    second edges of null | cuGraphGetEdges_v2 0, 0, 0, 0, out
    type of null | cuGraphNodeGetType 0, out
    type to null | cuGraphNodeGetType n, 0
    dependencies of null | cuGraphNodeGetDependencies 0, 0, out
    dependents of null | cuGraphNodeGetDependentNodes 0, 0, out
    destroy a null node | cuGraphDestroyNode 0
    add no dependencies | cuGraphAddDependencies g, 0, 0, 0
    add null dependencies | cuGraphAddDependencies g, 0, 0, 1
    remove no dependencies | cuGraphRemoveDependencies g, 0, 0, 0
    instantiate null | cuGraphInstantiateWithFlags out, 0, 0
    instantiate to null | cuGraphInstantiateWithFlags 0, g, 0
    instantiate flags 2 | cuGraphInstantiateWithFlags out, g, 2
    instantiate flags 16 | cuGraphInstantiateWithFlags out, g, 16
    instantiate with null parameters | cuGraphInstantiateWithParams out, g, 0
    launch null | cuGraphLaunch 0, s
    upload null | cuGraphUpload 0, s
    update null | cuGraphExecUpdate_v2 0, g, p.cell()
    flags of null | cuGraphExecGetFlags 0, out
    find null in clone | cuGraphNodeFindInClone out, 0, g
    enabled of null | cuGraphNodeGetEnabled 0, n, out
    child of a node that has none | cuGraphChildGraphNodeGetGraph n, out
    dot to a null path | cuGraphDebugDotPrint g, 0, 0
    dot to a missing folder | cuGraphDebugDotPrint g, b"/nonexistent/folder/a.dot", 0
    dot of null | cuGraphDebugDotPrint 0, b"/dev/null", 0
    dot | cuGraphDebugDotPrint g, b"/dev/null", 0
    user object of null | cuUserObjectCreate 0, 0, 0, 1, 1
    user object without destructor | cuUserObjectCreate out, 0, 0, 1, 1
    retain a null user object | cuUserObjectRetain 0, 1
    release a null user object | cuUserObjectRelease 0, 1
    graph retains a null user object | cuGraphRetainUserObject g, 0, 1, 0
    memory trim | cuDeviceGraphMemTrim 0
    memory trim of no device | cuDeviceGraphMemTrim 99
    memory attribute | cuDeviceGetGraphMemAttribute 0, 0, out
    memory attribute 4 | cuDeviceGetGraphMemAttribute 0, 4, out
    memory attribute to null | cuDeviceGetGraphMemAttribute 0, 0, 0
    memory attribute reset | cuDeviceSetGraphMemAttribute 0, 1, p.cell(0)
    memory attribute set | cuDeviceSetGraphMemAttribute 0, 1, p.cell(5)
    memory attribute set current | cuDeviceSetGraphMemAttribute 0, 0, p.cell(0)
    condition handle | cuGraphConditionalHandleCreate out, g, p.primary, 1, 1
    condition handle flags 0 | cuGraphConditionalHandleCreate out, g, p.primary, 1, 0
    condition handle flags 2 | cuGraphConditionalHandleCreate out, g, p.primary, 1, 2
    condition handle of null | cuGraphConditionalHandleCreate out, 0, p.primary, 1, 1
    condition handle to null | cuGraphConditionalHandleCreate 0, g, p.primary, 1, 1
    condition handle without context | cuGraphConditionalHandleCreate out, g, 0, 1, 1
""",
    lambda p: {
        "g": (g := graph(p)),
        "n": empty(p, g),
        "s": p.stream(),
        "a": p.device(),
    },
)


@question("create with no context", setup="initialised")
def _(p):
    found = p.get("cuGraphCreate", OUT, 0)
    return found if isinstance(found, str) else p("cuGraphDestroy", found)


@question("an empty graph")
def _(p):
    g = graph(p)
    count = ctypes.c_size_t(7)
    return shape(p, g), p("cuGraphGetNodes", g, 0, ctypes.byref(count)), count.value


@question("destroyed twice", alone=True)
def _(p):
    g = p.need("cuGraphCreate", OUT, 0)
    return p("cuGraphDestroy", g), p("cuGraphDestroy", g)


def _diamond(p, g):
    a = empty(p, g)
    b, c = empty(p, g, a), empty(p, g, a)
    return a, b, c, empty(p, g, b, c)


@question("a diamond")
def _(p):
    g = graph(p)
    _diamond(p, g)
    return shape(p, g), len(listed(p, "cuGraphGetRootNodes", g))


@question("order of nodes and edges")
def _(p):
    g = graph(p)
    a = [empty(p, g) for _ in range(3)]
    b = empty(p, g, a[2], a[0])
    c = empty(p, g, a[1], b)
    all_of = [*a, b, c]
    order = [all_of.index(n) for n in nodes_of(p, g)]
    pairs = listed(p, "cuGraphGetEdges", g, cells=2)
    return (
        order,
        [f"{all_of.index(x)}-{all_of.index(y)}" for x, y in pairs],
        [all_of.index(n) for n in listed(p, "cuGraphGetRootNodes", g)],
        [all_of.index(n) for n in listed(p, "cuGraphNodeGetDependencies", b)],
        [all_of.index(n) for n in listed(p, "cuGraphNodeGetDependentNodes", a[1])],
    )


@question("order of edges added later")
def _(p):
    g = graph(p)
    a = [empty(p, g) for _ in range(4)]
    steps = [
        p("cuGraphAddDependencies", g, nodes(p, a[i]), nodes(p, a[j]), 1)
        for i, j in ((2, 3), (0, 3), (1, 2), (0, 1))
    ]
    pairs = listed(p, "cuGraphGetEdges", g, cells=2)
    return (
        steps,
        [f"{a.index(x)}-{a.index(y)}" for x, y in pairs],
        [a.index(n) for n in listed(p, "cuGraphNodeGetDependencies", a[3])],
        [a.index(n) for n in nodes_of(p, g)],
    )


@question("counts with too small arrays")
def _(p):
    g = graph(p)
    a = _diamond(p, g)
    found = []
    for room in (0, 2, 4, 6):
        count, array = ctypes.c_size_t(room), (ctypes.c_uint64 * 8)(*[5] * 8)
        status = p("cuGraphGetNodes", g, array, ctypes.byref(count))
        found.append((status, count.value, [a.index(x) if x in a else x for x in array]))
    return found


@question("counts of edges with too small arrays")
def _(p):
    g = graph(p)
    _diamond(p, g)
    found = []
    for room in (1, 6):
        count, one, two = (
            ctypes.c_size_t(room),
            (ctypes.c_uint64 * 8)(*[5] * 8),
            (ctypes.c_uint64 * 8)(*[5] * 8),
        )
        status = p("cuGraphGetEdges", g, one, two, ctypes.byref(count))
        found.append((status, count.value, [x if x in (0, 5) else "node" for x in one]))
    return found


@question("edges with only one array")
def _(p):
    g = graph(p)
    _diamond(p, g)
    count, one = ctypes.c_size_t(8), (ctypes.c_uint64 * 8)()
    return p("cuGraphGetEdges", g, one, 0, ctypes.byref(count)), count.value


@question("an edge twice when adding a node")
def _(p):
    g = graph(p)
    a = empty(p, g)
    found = add(p, "cuGraphAddEmptyNode", g, (a, a))
    return found if isinstance(found, str) else edges_of(p, g), shape(p, g)


@question("an edge twice")
def _(p):
    g = graph(p)
    a, b = empty(p, g), empty(p, g)
    pair = nodes(p, a), nodes(p, b)
    steps = [p("cuGraphAddDependencies", g, *pair, 1) for _ in range(2)]
    return steps, edges_of(p, g), p("cuGraphRemoveDependencies", g, *pair, 1), edges_of(p, g)


@question("an edge to itself")
def _(p):
    g = graph(p)
    a = empty(p, g)
    return p("cuGraphAddDependencies", g, nodes(p, a), nodes(p, a), 1), edges_of(p, g)


@question("a circle")
def _(p):
    g = graph(p)
    a = empty(p, g)
    b = empty(p, g, a)
    status = p("cuGraphAddDependencies", g, nodes(p, b), nodes(p, a), 1)
    found = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    return status, edges_of(p, g), found if isinstance(found, str) else "instantiated"


@question("a circle: the error of instantiation with parameters")
def _(p):
    g = graph(p)
    a = empty(p, g)
    b = empty(p, g, a)
    p("cuGraphAddDependencies", g, nodes(p, b), nodes(p, a), 1)
    params = Instantiation(0, 0, 5, 99)
    status = p("cuGraphInstantiateWithParams", p.cell(), g, ctypes.byref(params))
    return status, params.result, {a: "a", b: "b"}.get(params.node, params.node)


@question("an edge to a node of another graph")
def _(p):
    g, h = graph(p), graph(p)
    a, b = empty(p, g), empty(p, h)
    pair = nodes(p, a), nodes(p, b)
    found = p("cuGraphAddDependencies", g, *pair, 1), p("cuGraphAddDependencies", h, *pair, 1)
    more = add(p, "cuGraphAddEmptyNode", h, (a,))
    return found, more if isinstance(more, str) else "added", shape(p, g), shape(p, h)


@question("removing an edge that is not there")
def _(p):
    g = graph(p)
    a, b, c = empty(p, g), empty(p, g), empty(p, g)
    p("cuGraphAddDependencies", g, nodes(p, a), nodes(p, b), 1)
    first = p("cuGraphRemoveDependencies", g, nodes(p, b), nodes(p, c), 1)
    both = p("cuGraphRemoveDependencies", g, nodes(p, a, b), nodes(p, b, c), 2)
    return first, both, edges_of(p, g)


@question("edges of two at once, the second bad")
def _(p):
    g = graph(p)
    a, b = empty(p, g), empty(p, g)
    status = p("cuGraphAddDependencies", g, nodes(p, a, a), nodes(p, b, 0), 2)
    return status, edges_of(p, g)


@question("destroying a node in the middle")
def _(p):
    g = graph(p)
    a = empty(p, g)
    b = empty(p, g, a)
    empty(p, g, b)
    return p("cuGraphDestroyNode", b), shape(p, g)


@question("edge data")
def _(p):
    g = graph(p)
    a = empty(p, g)
    b = empty(p, g)
    pair = nodes(p, a), nodes(p, b)
    found = []
    for data in (Edge(0, 0, 1), Edge(1, 0, 1), Edge(0, 1, 0), Edge(0, 0, 2), Edge(0, 0, 0)):
        found.append(p("cuGraphAddDependencies_v2", g, *pair, ref(p, data), 1))
        p("cuGraphRemoveDependencies_v2", g, *pair, ref(p, data), 1)
    return found


@question("edge data between kernels")
def _(p):
    g, at = graph(p), p.device()
    func = function(p, "store")
    a, b = store(p, g, at, 1, func=func), store(p, g, at, 2, func=func)
    pair = nodes(p, a), nodes(p, b)
    found = []
    for data in (
        Edge(1, 0, 1), Edge(2, 0, 1), Edge(0, 0, 1), Edge(1, 0, 0), Edge(2, 0, 0), Edge(3, 0, 1),
        Edge(1, 1, 1),
    ):  # fmt: skip
        status = p("cuGraphAddDependencies_v2", g, *pair, ref(p, data), 1)
        old = listed(p, "cuGraphGetEdges", g, cells=2)
        new = listed(p, "cuGraphGetEdges_v2", g, cells=3)
        shown = [bytes(ctypes.c_uint64(e[2])).hex() for e in new] if isinstance(new, list) else new
        plain = p("cuGraphRemoveDependencies", g, *pair, 1)
        again = p("cuGraphRemoveDependencies_v2", g, *pair, ref(p, data), 1)
        found.append((status, old if isinstance(old, str) else len(old), shown, plain, again))
    return found


@question("edge data null in the second functions")
def _(p):
    g = graph(p)
    a = empty(p, g)
    b = p.get("cuGraphAddNode_v2", OUT, g, nodes(p, a), 0, 1, ref(p, Params(5)))
    count = ctypes.c_size_t(4)
    one, two = (ctypes.c_uint64 * 4)(), (ctypes.c_uint64 * 4)()
    status = p("cuGraphGetEdges_v2", g, one, two, 0, ctypes.byref(count))
    return isinstance(b, int), shape(p, g), status, count.value


@question("clone")
def _(p):
    g = graph(p)
    a, b, *_ = _diamond(p, g)
    c = p.make("cuGraphDestroy", "cuGraphClone", OUT, g)
    found = [p.get("cuGraphNodeFindInClone", OUT, n, c) for n in (a, b)]
    order = nodes_of(p, c)
    wrong = p.get("cuGraphNodeFindInClone", OUT, a, g)
    back = p.get("cuGraphNodeFindInClone", OUT, order[0], g)
    return (
        shape(p, c),
        [order.index(n) for n in found],
        wrong if isinstance(wrong, str) else wrong == a,
        back if isinstance(back, str) else "found",
    )


@question("clone: node added to the original later")
def _(p):
    g = graph(p)
    empty(p, g)
    c = p.make("cuGraphDestroy", "cuGraphClone", OUT, g)
    late = empty(p, g)
    found = p.get("cuGraphNodeFindInClone", OUT, late, c)
    return found if isinstance(found, str) else "found", shape(p, c)


@question("clone: node destroyed in the clone")
def _(p):
    g = graph(p)
    a = empty(p, g)
    c = p.make("cuGraphDestroy", "cuGraphClone", OUT, g)
    status = p("cuGraphDestroyNode", p.need("cuGraphNodeFindInClone", OUT, a, c))
    found = p.get("cuGraphNodeFindInClone", OUT, a, c)
    return status, found if isinstance(found, str) else "found", shape(p, c), shape(p, g)


@question("clone of a clone")
def _(p):
    g = graph(p)
    a = empty(p, g)
    c = p.make("cuGraphDestroy", "cuGraphClone", OUT, g)
    d = p.make("cuGraphDestroy", "cuGraphClone", OUT, c)
    found = p.get("cuGraphNodeFindInClone", OUT, a, d)
    return found if isinstance(found, str) else "found", shape(p, d)


@question("child graph")
def _(p):
    g, child = graph(p), graph(p)
    a = empty(p, child)
    n = p.need("cuGraphAddChildGraphNode", OUT, g, 0, 0, child)
    inner = p.need("cuGraphChildGraphNodeGetGraph", n, OUT)
    empty(p, child, a)
    found = p.get("cuGraphNodeFindInClone", OUT, a, inner)
    return (
        shape(p, g),
        inner == child,
        shape(p, inner),
        shape(p, child),
        found if isinstance(found, str) else "found",
        p("cuGraphDestroy", inner),
    )


@question("child graph: changed inside")
def _(p):
    g, child, at = graph(p), graph(p), p.device()
    n = p.need("cuGraphAddChildGraphNode", OUT, g, 0, 0, child)
    inner = p.need("cuGraphChildGraphNodeGetGraph", n, OUT)
    found = add(p, "cuGraphAddEmptyNode", inner, ())
    memset(p, inner, at)
    return found if isinstance(found, str) else "added", shape(p, inner), shape(p, child)


@question("child graph that allocates")
def _(p):
    g, child = graph(p), graph(p)
    alloc(p, child, 256)
    found = p.get("cuGraphAddChildGraphNode", OUT, g, 0, 0, child)
    return found if isinstance(found, str) else "added"


@question("child graph that is moved")
def _(p):
    g, child = graph(p), p.need("cuGraphCreate", OUT, 0)
    empty(p, child)
    params = Params(4)
    params.of.child.graph, params.of.child.ownership = child, 1
    n = p.get("cuGraphAddNode_v2", OUT, g, 0, 0, 0, ctypes.byref(params))
    if isinstance(n, str):
        p("cuGraphDestroy", child)
        return n
    inner = p.need("cuGraphChildGraphNodeGetGraph", n, OUT)
    found = p.get("cuGraphInstantiateWithFlags", OUT, child, 0)
    status = p("cuGraphDestroy", child)
    return inner == child, status, found if isinstance(found, str) else "instantiated"


# What captures become


def _filling(p):
    g = graph(p)
    memset(p, g, p.device())
    memset(p, g, p.device())
    return exec_of(p, g)


def _names(p, s):
    """Makes the names for the lines below, before the capture begins."""
    a = p.device()
    sides = {"srcDevice": a, "dstDevice": a + 2048, "srcType": 2, "dstType": 2}
    shape = {"srcPitch": 64, "dstPitch": 64, "Width": 32, "Height": 8}
    return {
        "p": p, "s": s, "out": p.cell(), "a": a, "h": p.host(), "page": p.pageable(),
        "m": p.managed(), "e": p.event(), "box": ref(p, Copy2D(**sides, **shape)),
        "store": function(p, "store"), "empty": function(p, "empty"),
        "values": pointers(p, address(p.device()), ctypes.c_uint32(3)),
        "plain": config(p, stream=s), "serial": config(p, (6, 1), stream=s),
        "called": p.keep(HOST_FUNCTION(lambda _: None)), "filling": _filling(p),
        "nothing": exec_of(p, graph(p)), "g": graph(p),
    }  # fmt: skip


CAPTURED = """
    nothing
    a kernel | cuLaunchKernel store, 1, 1, 1, 1, 1, 1, 0, s, values, 0
    two kernels | cuLaunchKernel store, 1, 1, 1, 1, 1, 1, 0, s, values, 0 |
        cuLaunchKernel store, 1, 1, 1, 1, 1, 1, 0, s, values, 0
    a cooperative kernel | cuLaunchCooperativeKernel empty, 1, 1, 1, 1, 1, 1, 0, s, 0
    a bad kernel launch | cuLaunchKernel store, 0, 1, 1, 1, 1, 1, 0, s, values, 0
    a kernel by configuration | cuLaunchKernelEx plain, empty, 0, 0
    two kernels with programmatic serialization | cuLaunchKernelEx plain, empty, 0, 0 |
        cuLaunchKernelEx serial, empty, 0, 0
    a fill | cuMemsetD8Async a, 1, 16, s
    a fill of nothing | cuMemsetD8Async a, 1, 0, s
    a fill of one row | cuMemsetD2D8Async a, 64, 1, 16, 1, s
    a copy from page-locked | cuMemcpyHtoDAsync_v2 a, h, 16, s
    a copy from pageable | cuMemcpyHtoDAsync_v2 a, page, 16, s
    a copy to pageable | cuMemcpyDtoHAsync_v2 page, a, 16, s
    a copy of nothing | cuMemcpyHtoDAsync_v2 a, h, 0, s
    a copy on the host | cuMemcpyAsync h, h + 64, 16, s
    a 2D copy | cuMemcpy2DAsync_v2 box, s
    a peer copy | cuMemcpyPeerAsync a, p.primary, a + 64, p.primary, 16, s
    a host function | cuLaunchHostFunc s, called, 0
    an event record | cuEventRecord e, s
    an external event record | cuEventRecordWithFlags e, s, 1
    an external event wait | cuStreamWaitEvent s, e, 1
    an allocation | cuMemAllocAsync out, 256, s
    an allocation of nothing | cuMemAllocAsync out, 0, s
    a value wait | cuStreamWaitValue32_v2 s, h, 0, 0
    a value write | cuStreamWriteValue32_v2 s, h, 0, 0
    an empty batch | cuStreamBatchMemOp_v2 s, 0, h, 0
    a launch of a graph | cuGraphLaunch filling, s
    a launch of an empty graph | cuGraphLaunch nothing, s
    an upload | cuGraphUpload filling, s
    instantiation of a graph | cuGraphInstantiateWithFlags out, g, 0
    a prefetch | cuMemPrefetchAsync_v2 m, 4096, 1, 0, s
"""


def _step(call, names):
    name, _, arguments = call.partition(" ")
    return lambda s: names["p"](name, *eval(f"({arguments},)", {**names, "s": s}))


def _captured(p, calls):
    stream = p.stream()
    names = _names(p, stream)
    return captured(p, *[_step(call, names) for call in calls], stream=stream)


for line in filter(None, map(str.strip, CAPTURED.replace("|\n", "| ").splitlines())):
    name, *calls = map(str.strip, line.split(" | "))
    section.ask(f"captured: {name}", lambda p, calls=calls: _captured(p, calls))


@question("captured: an allocation, its use and its free")
def _(p):
    stream, cell = p.stream(), ctypes.c_uint64()
    return captured(
        p,
        lambda s: p("cuMemAllocAsync", ctypes.byref(cell), 256, s),
        lambda s: p("cuMemsetD8Async", cell.value, 1, 16, s),
        lambda s: p("cuMemFreeAsync", cell.value, s),
        lambda s: p("cuMemFreeAsync", cell.value, s),
        stream=stream,
    )


@question("captured: a fork and a join")
def _(p):
    side, events, a = p.stream(), [p.event(2) for _ in range(2)], p.device()
    fill = lambda s: p("cuMemsetD8Async", a, 1, 16, s)  # noqa: E731
    return captured(
        p,
        fill,
        lambda s: p("cuEventRecord", events[0], s),
        lambda s: p("cuStreamWaitEvent", side, events[0], 0),
        lambda s: fill(side),
        fill,
        lambda s: p("cuEventRecord", events[1], side),
        lambda s: p("cuStreamWaitEvent", s, events[1], 0),
        fill,
    )


@question("captured: a join that says nothing new")
def _(p):
    side, events, a = p.stream(), [p.event(2) for _ in range(2)], p.device()
    fill = lambda s: p("cuMemsetD8Async", a, 1, 16, s)  # noqa: E731
    return captured(
        p,
        fill,
        lambda s: p("cuEventRecord", events[0], s),
        fill,
        lambda s: p("cuStreamWaitEvent", s, events[0], 0),
        fill,
        lambda s: p("cuStreamWaitEvent", side, events[0], 0),
        lambda s: fill(side),
        lambda s: p("cuEventRecord", events[1], side),
        lambda s: p("cuStreamWaitEvent", s, events[1], 0),
        lambda s: p("cuStreamWaitEvent", s, events[0], 0),
        fill,
    )


@question("capture info: dependencies")
def _(p):
    a, found = p.device(), []

    def look(s):
        status, number, g = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_uint64()
        deps, edges, count = ctypes.c_void_p(), ctypes.c_void_p(7), ctypes.c_size_t(9)
        refs = [ctypes.byref(x) for x in (status, number, g, deps, edges, count)]
        code = p("cuStreamGetCaptureInfo_v3", s, *refs)
        heads = (ctypes.c_uint64 * count.value).from_address(deps.value) if count.value else []
        found.append((code, kinds(p, list(heads)), len(nodes_of(p, g.value)), bool(edges.value)))
        return "SUCCESS"

    fill = lambda s: p("cuMemsetD8Async", a, 1, 16, s)  # noqa: E731
    return *captured(p, look, fill, look, fill, look), found


@question("a node added to the graph of a capture, and made its dependency")
def _(p):
    a = p.device()

    def look(s):
        cells = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_uint64()
        p("cuStreamGetCaptureInfo_v2", s, *map(ctypes.byref, cells), 0, 0)
        fresh = add(p, "cuGraphAddEmptyNode", cells[2].value, ())
        if isinstance(fresh, str):
            return fresh
        return (
            p("cuStreamUpdateCaptureDependencies", s, nodes(p, fresh), 1, 0),
            p("cuGraphDestroy", cells[2].value),
        )

    fill = lambda s: p("cuMemsetD8Async", a, 1, 16, s)  # noqa: E731
    return captured(p, fill, look, fill)


@question("capture to a graph")
def _(p):
    g, a, s = graph(p), p.device(), p.stream()
    first = memset(p, g, a)
    memset(p, g, a)
    begun = p("cuStreamBeginCaptureToGraph", s, g, nodes(p, first), 0, 1, 2)
    status = p("cuMemsetD8Async", a, 1, 16, s)
    ended = p.get("cuStreamEndCapture", s, OUT)
    return begun, status, ended == g or ended, shape(p, g)


@question("capture to a graph: bad arguments")
def _(p):
    g, other, s = graph(p), graph(p), p.stream()
    foreign = empty(p, other)
    return (
        p("cuStreamBeginCaptureToGraph", s, 0, 0, 0, 0, 2),
        p("cuStreamBeginCaptureToGraph", s, g, nodes(p, foreign), 0, 1, 2),
        p("cuStreamBeginCaptureToGraph", s, g, 0, 0, 1, 2),
        p("cuStreamBeginCaptureToGraph", s, g, 0, 0, 0, 3),
        p("cuStreamBeginCaptureToGraph", LEGACY, g, 0, 0, 0, 2),
        p.get("cuStreamIsCapturing", s, INT),
    )


@question("capture to a graph: destroyed meanwhile, end invalidated")
def _(p):
    g, s = graph(p), p.stream()
    p.must("cuStreamBeginCaptureToGraph", s, g, 0, 0, 0, 2)
    p("cuMemsetD8Async", p.device(), 1, 16, s)
    p("cuStreamQuery", s)
    ended = p.get("cuStreamEndCapture", s, OUT)
    p.forget(g)  # the failed end destroyed the graph; the next graph may have its handle
    return ended, shape(p, g)


@question("identifiers")
def _(p):
    if not p.library.has("cuGraphGetId"):
        return "no such function"
    g, h, cell = graph(p), graph(p), ctypes.c_uint()
    found = [p.get("cuGraphGetId", x, INT) for x in (g, h)]
    n = empty(p, g)
    return (
        found[0] != found[1],
        p("cuGraphNodeGetLocalId", n, ctypes.byref(cell)),
        cell.value,
        p.get("cuGraphNodeGetContainingGraph", n, OUT) == g,
    )


@question("graph of all kinds")
def _(p):
    g, at = graph(p), p.device()
    a = empty(p, g)
    b = memset(p, g, at, a)
    c = copy(p, g, at, at + 64, b)
    d = host(p, g, HOST_FUNCTION(lambda _: None), c)
    e = store(p, g, at, 1, d)
    f = p.need("cuGraphAddEventRecordNode", OUT, g, nodes(p, e), 1, p.event())
    w = p.need("cuGraphAddEventWaitNode", OUT, g, nodes(p, f), 1, p.event())
    m, where = alloc(p, g, 64, w)
    p.need("cuGraphAddMemFreeNode", OUT, g, nodes(p, m), 1, where)
    p.need("cuGraphAddChildGraphNode", OUT, g, 0, 0, graph(p))
    return shape(p, g)


@question("work of a graph that a thread captures relaxed")
def _(p):
    a = p.device()
    g, found = capture(p, lambda s: p.thread(lambda: p("cuMemsetD8Async", a, 1, 16, s)))
    return found, shape(p, g)
