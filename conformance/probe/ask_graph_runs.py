"""Executable graphs: instantiation, launches and their order, updates, memory, user objects."""

import ctypes

from driver import DISABLE_TIMING, HOST_FUNCTION, LEGACY, OUT, PER_THREAD
from graph_tools import (
    AUTO_FREE,
    DEVICE_LAUNCH,
    Host,
    Instantiation,
    Params,
    add,
    alloc,
    alloc_params,
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
    nodes_of,
    ref,
    run,
    shape,
    spin,
    store,
    update,
    words,
)
from kernels import function
from section import Section

section = Section("graph_runs")
question = section.question
SEVENS = [0x07070707]


def launched(p, e, stream=None):
    """Launch an executable graph and wait for it. Returns the first error, or SUCCESS."""
    stream = p.stream() if stream is None else stream
    status = p("cuGraphLaunch", e, stream)
    return status if status != "SUCCESS" else p("cuStreamSynchronize", stream)


# Instantiation


for flags in (0, 1, 2, 3, 4, 5, 8, 9, 16, 1 << 40):

    @question(f"flags {flags}")
    def _(p, flags=flags):
        g = graph(p)
        store(p, g, p.device(), 1)
        e = p.get("cuGraphInstantiateWithFlags", OUT, g, flags)
        if isinstance(e, str):
            return e
        p._made("cuGraphExecDestroy", e)
        return "instantiated", p.get("cuGraphExecGetFlags", e, OUT), launched(p, e)


for flags in (0, 2, 4, 16):

    @question(f"parameters with flags {flags}")
    def _(p, flags=flags):
        g, at = graph(p), p.device()
        store(p, g, at, 5)
        params = Instantiation(flags, p.stream(), 5, 99)
        e = p.get("cuGraphInstantiateWithParams", OUT, g, ctypes.byref(params))
        if isinstance(e, str):
            return e, params.result, params.node
        p._made("cuGraphExecDestroy", e)
        return "instantiated", params.result, params.node, p.get("cuGraphExecGetFlags", e, OUT)


@question("first functions of instantiation")
def _(p):
    g, at = graph(p), p.device()
    memset(p, g, at)
    text, cell = ctypes.create_string_buffer(b"x" * 15), p.cell(5)
    found = [
        p.get("cuGraphInstantiate", OUT, g, cell, text, 16),
        p.get("cuGraphInstantiate_v2", OUT, g, 0, 0, 0),
    ]
    return [x if isinstance(x, str) else launched(p, x) for x in found], text.value, cell._obj.value


@question("what is changed after instantiation does not matter")
def _(p):
    g, at = graph(p), p.device()
    p.write(at, bytes(64))
    n = memset(p, g, at)
    e = exec_of(p, g)
    p("cuGraphMemsetNodeSetParams", n, memset_params(p, at, value=9))
    memset(p, g, at + 32, value=3)
    found = launched(p, e), words(p, at, 1), words(p, at + 32, 1)
    return found, p("cuGraphDestroyNode", n), launched(p, e)


@question("the graph is destroyed, its exec runs")
def _(p):
    g, at = p.need("cuGraphCreate", OUT, 0), p.device()
    memset(p, g, at)
    e = exec_of(p, g)
    return p("cuGraphDestroy", g), launched(p, e), words(p, at)


@question("two execs of one graph")
def _(p):
    g, at = graph(p), p.device()
    memset(p, g, at)
    return [launched(p, exec_of(p, g)) for _ in range(2)]


@question("instantiated by a thread with no context")
def _(p):
    g, at = graph(p), p.device()
    memset(p, g, at)
    e = p.thread(lambda: p.get("cuGraphInstantiateWithFlags", OUT, g, 0), context=False)
    if isinstance(e, str):
        return e
    s = p.stream()
    return (
        p.thread(lambda: p("cuGraphLaunch", e, s), context=False),
        p("cuStreamSynchronize", s),
        words(p, at),
    )


# Launches

for name, stream in (("null", 0), ("legacy", LEGACY), ("per-thread", PER_THREAD)):

    @question(f"launch into the {name} stream")
    def _(p, stream=stream):
        g, at = graph(p), p.device()
        memset(p, g, at)
        status = p("cuGraphLaunch", exec_of(p, g), stream)
        return status, p("cuCtxSynchronize"), words(p, at)


@question("an empty graph is launched")
def _(p):
    return launched(p, exec_of(p, graph(p)))


@question("launch waits for its stream, and the stream for it")
def _(p):
    g, at, s = graph(p), p.device(), p.stream()
    p.write(at, bytes(16))
    memset(p, g, at)
    e = exec_of(p, g)
    gate = p.gate(s)
    status = p("cuGraphLaunch", e, s)
    p("cuMemcpyDtoDAsync_v2", at + 16, at, 16, s)
    query = p("cuStreamQuery", s)
    gate.open()
    return status, query, p("cuStreamSynchronize", s), words(p, at + 16)


@question("a launch does not block")
def _(p):
    g, at, s = graph(p), p.device(), p.stream()
    memset(p, g, at)
    e = exec_of(p, g)
    p.gate(s)
    return p.blocks("cuGraphLaunch", e, s)


@question("a second launch of what runs does not block, and waits")
def _(p):
    g, at, s, t, word = graph(p), p.device(), p.stream(), p.stream(), p.host()
    flag = ctypes.c_uint32.from_address(word)
    spin(p, g, word)
    e = exec_of(p, g)
    first = p("cuGraphLaunch", e, s)
    second = p("cuGraphLaunch", e, t)
    p("cuMemsetD32Async", at, 1, 1, t)
    states = p("cuStreamQuery", s), p("cuStreamQuery", t)
    flag.value = 1
    return first, second, states, p("cuStreamSynchronize", t), p("cuStreamSynchronize", s)


@question("a second launch behind a held one")
def _(p):
    g, s, t, at = graph(p), p.stream(), p.stream(), p.device()
    memset(p, g, at)
    e = exec_of(p, g)
    gate = p.gate(s)
    found = p("cuGraphLaunch", e, s), p("cuGraphLaunch", e, t)
    states = p("cuStreamQuery", t), p("cuStreamQuery", s)
    gate.open()
    return found, states, p("cuStreamSynchronize", t), p("cuStreamQuery", s)


@question("two execs of one graph are not ordered")
def _(p):
    g, s, t, word = graph(p), p.stream(), p.stream(), p.host()
    spin(p, g, word)
    one = exec_of(p, g)
    h = graph(p)
    memset(p, h, p.device())
    other = exec_of(p, h)
    p("cuGraphLaunch", one, s)
    p("cuGraphLaunch", other, t)
    found = p("cuStreamSynchronize", t), p("cuStreamQuery", s)
    ctypes.c_uint32.from_address(word).value = 1
    return found, p("cuStreamSynchronize", s)


@question("destroyed while it runs")
def _(p):
    g, s, word, at = graph(p), p.stream(), p.host(), p.device()
    n = spin(p, g, word)
    memset(p, g, at, n)
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    p("cuGraphLaunch", e, s)
    status, query = p("cuGraphExecDestroy", e), p("cuStreamQuery", s)
    ctypes.c_uint32.from_address(word).value = 1
    return status, query, p("cuStreamSynchronize", s), words(p, at)


@question("destroyed while it is held")
def _(p):
    g, s, at = graph(p), p.stream(), p.device()
    memset(p, g, at)
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    gate = p.gate(s)
    p("cuGraphLaunch", e, s)
    status = p.blocks("cuGraphExecDestroy", e)
    gate.open()
    return status, p("cuStreamSynchronize", s), words(p, at)


@question("branches run at the same time")
def _(p):
    g, s, word, at = graph(p), p.stream(), p.host(), p.device()
    spin(p, g, word)
    memset(p, g, word, width=4)
    p("cuGraphLaunch", exec_of(p, g), s)
    return p("cuStreamSynchronize", s), at != 0


@question("edges order")
def _(p):
    g, at = graph(p), p.device()
    func, found = function(p, "store"), []
    last = []
    for i in range(20):
        last = [store(p, g, at, i, *last, func=func)]
        last = [host(p, g, HOST_FUNCTION(lambda _, i=i: found.append(i)), *last)]
    return run(p, g), words(p, at), found == list(range(20))


@question("child graphs run")
def _(p):
    g, child, at = graph(p), graph(p), p.device()
    p.write(at, bytes(64))
    memset(p, child, at)
    first = copy(p, g, at + 16, at)
    n = node(p, "cuGraphAddChildGraphNode", g, (first,), child)
    copy(p, g, at + 32, at, n)
    return run(p, g), words(p, at, 1), words(p, at + 16), words(p, at + 32)


@question("launch of a captured launch")
def _(p):
    g, at = graph(p), p.device()
    memset(p, g, at)
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    h, found = capture(p, lambda s: p("cuGraphLaunch", e, s))
    return found, h if isinstance(h, str) else shape(p, h), p("cuGraphExecDestroy", e)


@question("launch into a captured fork of the same exec")
def _(p):
    g, at, s = graph(p), p.device(), p.stream()
    memset(p, g, at)
    e = exec_of(p, g)
    p.must("cuStreamBeginCapture_v2", s, 2)
    status = p("cuGraphLaunch", e, s), p("cuGraphLaunch", e, s)
    other = p("cuGraphLaunch", e, p.stream())
    return status, other, p.get("cuStreamEndCapture", s, OUT)


@question("launch into an invalidated capture")
def _(p):
    g, s = graph(p), p.stream()
    memset(p, g, p.device())
    e = exec_of(p, g)
    p.must("cuStreamBeginCapture_v2", s, 2)
    p("cuStreamQuery", s)
    return p("cuGraphLaunch", e, s), p("cuGraphUpload", e, s)


@question("upload")
def _(p):
    g, s, at = graph(p), p.stream(), p.device()
    memset(p, g, at)
    e = exec_of(p, g)
    gate = p.gate(s)
    status = p("cuGraphUpload", e, s), p("cuStreamQuery", s)
    gate.open()
    return status, p("cuStreamSynchronize", s), launched(p, e)


@question("launch with the stream of another context")
def _(p):
    g, at = graph(p), p.device()
    memset(p, g, at)
    e = exec_of(p, g)
    p.context()
    s = p.stream()
    return p("cuGraphLaunch", e, s), p("cuStreamSynchronize", s)


@question("legacy stream waits for a launch")
def _(p):
    g, at, word, s = graph(p), p.device(), p.host(), p.stream(0)
    spin(p, g, word)
    p("cuGraphLaunch", exec_of(p, g), s)
    p("cuMemsetD8Async", at, 1, 16, LEGACY)
    query = p("cuStreamQuery", LEGACY)
    ctypes.c_uint32.from_address(word).value = 1
    return query, p("cuStreamSynchronize", LEGACY), p("cuStreamQuery", s)


@question("a module is unloaded before the launch", alone=True)
def _(p):
    from kernels import load

    module = load(p)
    g, at = graph(p), p.device()
    p.write(at, bytes(16))
    store(p, g, at, 3, func=p.need("cuModuleGetFunction", OUT, module, b"store"))
    e = exec_of(p, g)
    return p.release(module), launched(p, e), words(p, at)


@question("memory is freed before the launch: fill", alone=True)
def _(p):
    g, at = graph(p), p.device(4 << 20)
    memset(p, g, at)
    e = exec_of(p, g)
    return p.release(at), launched(p, e)


@question("memory is freed before the instantiation")
def _(p):
    g, at = graph(p), p.device(4 << 20)
    memset(p, g, at)
    status, e = p.release(at), p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    return status, e if isinstance(e, str) else "instantiated"


# Events


@question("a record node records")
def _(p):
    g, e, s, t = graph(p), p.event(), p.stream(), p.stream()
    node(p, "cuGraphAddEventRecordNode", g, (), e)
    x = exec_of(p, g)
    gate = p.gate(s)
    before = p("cuEventQuery", e)
    p("cuGraphLaunch", x, s)
    during = p("cuEventQuery", e)
    waits = p("cuStreamWaitEvent", t, e, 0), p("cuStreamQuery", t)
    gate.open()
    return (
        before,
        during,
        waits,
        p("cuStreamSynchronize", s),
        p("cuEventQuery", e),
        p.later(lambda: p("cuStreamQuery", t)),
    )


@question("a wait node waits")
def _(p):
    g, e, s, t = graph(p), p.event(), p.stream(), p.stream()
    node(p, "cuGraphAddEventWaitNode", g, (), e)
    x = exec_of(p, g)
    gate = p.gate(t)
    p("cuEventRecord", e, t)
    p("cuGraphLaunch", x, s)
    during = p("cuStreamQuery", s)
    gate.open()
    return during, p("cuStreamSynchronize", s), p("cuStreamQuery", t)


@question("a wait node for an event that was never recorded")
def _(p):
    g, e = graph(p), p.event()
    node(p, "cuGraphAddEventWaitNode", g, (), e)
    return run(p, g)


@question("times of record nodes")
def _(p):
    g, first, last, at = graph(p), p.event(), p.event(), p.device()
    a = node(p, "cuGraphAddEventRecordNode", g, (), first)
    b = memset(p, g, at, a)
    node(p, "cuGraphAddEventRecordNode", g, (b,), last)
    cell = ctypes.c_float(-1)
    before = p("cuEventElapsedTime", ctypes.byref(cell), first, last)
    return (
        before,
        run(p, g),
        p("cuEventElapsedTime", ctypes.byref(cell), first, last),
        cell.value >= 0,
    )


@question("exec sets events")
def _(p):
    g, e, f, s = graph(p), p.event(DISABLE_TIMING), p.event(DISABLE_TIMING), p.stream()
    n = node(p, "cuGraphAddEventRecordNode", g, (), e)
    x = exec_of(p, g)
    status = p("cuGraphExecEventRecordNodeSetEvent", x, n, f)
    wrong = p("cuGraphExecEventWaitNodeSetEvent", x, n, f)
    null = p("cuGraphExecEventRecordNodeSetEvent", x, n, 0)
    gate = p.gate(s)
    p("cuGraphLaunch", x, s)
    found = p("cuEventQuery", e), p("cuEventQuery", f)
    gate.open()
    return status, wrong, null, found, p.get("cuGraphEventRecordNodeGetEvent", n, OUT) == e


# Parameters of executable graphs


@question("exec sets a fill")
def _(p):
    g, at, far = graph(p), p.device(), p.device()
    p.write(far, bytes(16))
    n = memset(p, g, at, value=1)
    e, found = exec_of(p, g), []
    for change in (
        memset_params(p, at, value=2),
        memset_params(p, far, value=3),
        memset_params(p, far, value=4, width=32),
        memset_params(p, far, value=5, element=4, width=4),
        memset_params(p, far, value=6, height=2, pitch=64),
        memset_params(p, far, value=7, width=0),
        memset_params(p, p.host(), value=8),
    ):
        found.append(p("cuGraphExecMemsetNodeSetParams", e, n, change, p.primary))
    return (
        found,
        p("cuGraphExecMemsetNodeSetParams", e, n, 0, p.primary),
        launched(p, e),
        words(p, far),
    )


@question("exec sets a fill of rows")
def _(p):
    g, at = graph(p), p.device()
    n = memset(p, g, at, value=1, height=2, pitch=64)
    e, found = exec_of(p, g), []
    for change in (
        memset_params(p, at, value=2, height=2, pitch=64),
        memset_params(p, at, value=2, height=3, pitch=64),
        memset_params(p, at, value=2, height=2, pitch=128),
        memset_params(p, at, value=2, height=2, pitch=64, width=8),
        memset_params(p, at, value=2),
    ):
        found.append(p("cuGraphExecMemsetNodeSetParams", e, n, change, p.primary))
    return found


@question("exec sets a copy")
def _(p):
    g, a, b, h = graph(p), p.device(), p.device(), p.host()
    n = copy(p, g, a, b)
    e, found = exec_of(p, g), []
    p.write(b, b"\3" * 64)
    for change in (
        copy_params(p, a + 16, b),
        copy_params(p, a, b, size=32),
        copy_params(p, a, b, size=0),
        copy_params(p, a, h, source_type=1),
        copy_params(p, h, b, target_type=1),
        copy_params(p, a, b, source_type=4, target_type=4),
        copy_params(p, a, b, size=5000),
        copy_params(p, a + 64, b),
    ):
        found.append(p("cuGraphExecMemcpyNodeSetParams", e, n, change, p.primary))
    return found, launched(p, e), words(p, a + 64)


@question("exec sets a copy of rows")
def _(p):
    g, a, b = graph(p), p.device(), p.device()
    rows = {"size": 8, "rows": 4, "pitch": 16}
    n = copy(p, g, a, b, **rows)
    e, found = exec_of(p, g), []
    p.write(b, b"\3" * 64)
    for change in (
        copy_params(p, a, b, **rows),
        copy_params(p, a + 8, b, **rows),
        copy_params(p, a, b + 8, **rows),
        copy_params(p, a, b, **{**rows, "size": 4}),
        copy_params(p, a, b, **{**rows, "rows": 2}),
        copy_params(p, a, b, **{**rows, "rows": 1}),
        copy_params(p, a, b, **{**rows, "pitch": 8}),
        copy_params(p, a, b, **{**rows, "rows": 2, "layers": 2}),
        copy_params(p, a, b, size=32),
    ):
        found.append(p("cuGraphExecMemcpyNodeSetParams", e, n, change, p.primary))
    return *found, launched(p, e), words(p, a)


@question("exec sets a copy of bytes to one of rows")
def _(p):
    g, a, b = graph(p), p.device(), p.device()
    n = copy(p, g, a, b)
    e, found = exec_of(p, g), []
    for change in (
        copy_params(p, a, b, size=8, rows=2, pitch=16),
        copy_params(p, a, b, size=16, rows=2, pitch=16),
        copy_params(p, a, b, size=8, rows=1, layers=2, pitch=8),
        copy_params(p, a, b, size=8, pitch=16),
    ):
        found.append(p("cuGraphExecMemcpyNodeSetParams", e, n, change, p.primary))
    return found


@question("exec sets a copy from the host")
def _(p):
    g, a, h, k = graph(p), p.device(), p.host(), p.pageable()
    n = copy(p, g, a, h, source_type=1)
    e, found = exec_of(p, g), []
    for change in (
        copy_params(p, a, k, source_type=1),
        copy_params(p, a, h + 16, source_type=1),
        copy_params(p, a, p.device()),
        copy_params(p, h, a, target_type=1),
    ):
        found.append(p("cuGraphExecMemcpyNodeSetParams", e, n, change, p.primary))
    return found


@question("exec sets a kernel")
def _(p):
    g, at, far = graph(p), p.device(), p.device()
    func = function(p, "store")
    n = store(p, g, at, 1, func=func)
    e, found = exec_of(p, g), []
    for change in (
        kernel_params(p, func, far, 2),
        kernel_params(p, func, far, 3, grid=(4, 1, 1), block=(32, 1, 1)),
        kernel_params(p, func, far, 4, grid=(0, 1, 1)),
        kernel_params(p, function(p, "divide"), far, 5),
        kernel_params(p, func, far, 6),
        kernel_params(p, func, far, 7, shared=1024),
        kernel_params(p, func, far, 8, bare=True),
    ):
        found.append(p("cuGraphExecKernelNodeSetParams_v2", e, n, change))
    return found, p("cuGraphExecKernelNodeSetParams_v2", e, n, 0), launched(p, e), words(p, far)


@question("exec sets a host function")
def _(p):
    g, found = graph(p), []
    first, second = (p.keep(HOST_FUNCTION(lambda _, i=i: found.append(i))) for i in range(2))
    n = host(p, g, first)
    e = exec_of(p, g)
    params = Host(ctypes.cast(second, ctypes.c_void_p).value, 0)
    status = p("cuGraphExecHostNodeSetParams", e, n, ref(p, params))
    null = p("cuGraphExecHostNodeSetParams", e, n, ref(p, Host(None, None)))
    return status, null, launched(p, e), found


@question("exec sets a child graph")
def _(p):
    g, child, at = graph(p), graph(p), p.device()
    memset(p, child, at, value=1)
    n = node(p, "cuGraphAddChildGraphNode", g, (), child)
    e, found = exec_of(p, g), []
    same, more, other = graph(p), graph(p), graph(p)
    memset(p, same, at, value=9)
    memset(p, more, at, memset(p, more, at))
    empty(p, other)
    for change in (same, more, other, 0):
        found.append(p("cuGraphExecChildGraphNodeSetParams", e, n, change))
    return found, launched(p, e), words(p, at)


@question("exec sets a node of another graph, of a clone, of another kind")
def _(p):
    g, h, at = graph(p), graph(p), p.device()
    n, m = memset(p, g, at, value=1), memset(p, h, at, value=1)
    e = exec_of(p, g)
    c = p.make("cuGraphDestroy", "cuGraphClone", OUT, g)
    of_clone = p.need("cuGraphNodeFindInClone", OUT, n, c)
    params = memset_params(p, at, value=3)
    return (
        p("cuGraphExecMemsetNodeSetParams", e, m, params, p.primary),
        p("cuGraphExecMemsetNodeSetParams", e, of_clone, params, p.primary),
        p("cuGraphExecMemsetNodeSetParams", e, 0, params, p.primary),
        p("cuGraphExecMemsetNodeSetParams", 0, n, params, p.primary),
        p("cuGraphExecMemcpyNodeSetParams", e, n, copy_params(p, at, at + 64), p.primary),
    )


@question("general function sets parameters of an exec")
def _(p):
    g, at = graph(p), p.device()
    n = memset(p, g, at, value=1)
    e = exec_of(p, g)
    params = Params(2)
    params.of.memset = memset_params(p, at, value=4)._obj
    params.of.memset.ctx = p.primary
    other = ref(p, Params(5))
    return (
        p("cuGraphExecNodeSetParams", e, n, ctypes.byref(params)),
        p("cuGraphExecNodeSetParams", e, n, other),
        launched(p, e),
        words(p, at),
    )


@question("parameters set while a launch is held")
def _(p):
    g, at, s = graph(p), p.device(), p.stream()
    n = memset(p, g, at, value=1)
    e = exec_of(p, g)
    gate = p.gate(s)
    p("cuGraphLaunch", e, s)
    p("cuMemcpyDtoDAsync_v2", at + 16, at, 16, s)
    status = p("cuGraphExecMemsetNodeSetParams", e, n, memset_params(p, at, value=2), p.primary)
    p("cuGraphLaunch", e, s)
    gate.open()
    return status, p("cuStreamSynchronize", s), words(p, at + 16), words(p, at)


# Enabled nodes


@question("disabled nodes")
def _(p):
    g, at = graph(p), p.device()
    p.write(at, bytes(64))
    found, call = [], HOST_FUNCTION(lambda _: found.append(1))
    a = memset(p, g, at, value=1)
    b = copy(p, g, at + 16, at, a)
    c = store(p, g, at + 32, 7, b)
    d, e = host(p, g, call, c), empty(p, g, c)
    x = exec_of(p, g)
    status = [p("cuGraphNodeSetEnabled", x, n, 0) for n in (a, b, c, d, e)]
    states = [p.get("cuGraphNodeGetEnabled", x, n, OUT) for n in (a, b, c, d, e)]
    return status, states, launched(p, x), words(p, at, 1), words(p, at + 32), len(found)


@question("a disabled node orders nothing less")
def _(p):
    g, at, found = graph(p), p.device(), []
    first = host(p, g, HOST_FUNCTION(lambda _: found.append(1)))
    middle = memset(p, g, at, first)
    host(p, g, HOST_FUNCTION(lambda _: found.append(2)), middle)
    x = exec_of(p, g)
    status = p("cuGraphNodeSetEnabled", x, middle, 0)
    return (
        status,
        launched(p, x),
        found,
        p("cuGraphNodeSetEnabled", x, middle, 1),
        p("cuGraphNodeSetEnabled", x, middle, 7),
    )


@question("enabled: a node of another graph")
def _(p):
    g, h, at = graph(p), graph(p), p.device()
    memset(p, g, at)
    n = memset(p, h, at)
    x = exec_of(p, g)
    return (
        p("cuGraphNodeSetEnabled", x, n, 0),
        p("cuGraphNodeSetEnabled", x, 0, 0),
        p("cuGraphNodeGetEnabled", x, n, p.cell()),
    )


# Updates


def _one(p, make):
    g = graph(p)
    return g, make(g)


def _updating(p, before, after):
    g, h = graph(p), graph(p)
    names = {n: f"old {i}" for i, n in enumerate(before(g))}
    e = exec_of(p, g)
    names.update({n: f"new {i}" for i, n in enumerate(after(h))})
    return *update(p, e, h, names), launched(p, e)


def _stores(p, at):
    func = function(p, "store")
    return lambda g: [store(p, g, at, 1, func=func)], lambda g: [store(p, g, at, 2, func=func)]


ROWS = {"size": 8, "rows": 4, "pitch": 16}


def _without(change):
    """The parameters of a copy of rows with a change, which may also move its target."""
    return {**ROWS, **{name: value for name, value in change.items() if name != "at"}}


UPDATES = {
    "the same": lambda p, at: (lambda g: [memset(p, g, at)], lambda g: [memset(p, g, at)]),
    "another value": lambda p, at: (
        lambda g: [memset(p, g, at, value=1)],
        lambda g: [memset(p, g, at + 32, value=2)],
    ),
    "another width of a fill": lambda p, at: (
        lambda g: [memset(p, g, at)],
        lambda g: [memset(p, g, at, width=64)],
    ),
    "rows of a fill": lambda p, at: (
        lambda g: [memset(p, g, at)],
        lambda g: [memset(p, g, at, height=2, pitch=64)],
    ),
    "fewer nodes": lambda p, at: (
        lambda g: [n := memset(p, g, at), memset(p, g, at, n)],
        lambda g: [memset(p, g, at)],
    ),
    "more nodes": lambda p, at: (
        lambda g: [memset(p, g, at)],
        lambda g: [n := memset(p, g, at), memset(p, g, at, n)],
    ),
    "more nodes without edges": lambda p, at: (
        lambda g: [memset(p, g, at)],
        lambda g: [memset(p, g, at), memset(p, g, at)],
    ),
    "another kind": lambda p, at: (
        lambda g: [memset(p, g, at)],
        lambda g: [copy(p, g, at, at + 64)],
    ),
    "an edge less": lambda p, at: (
        lambda g: [n := memset(p, g, at), memset(p, g, at, n)],
        lambda g: [memset(p, g, at), memset(p, g, at)],
    ),
    "an edge more": lambda p, at: (
        lambda g: [memset(p, g, at), memset(p, g, at)],
        lambda g: [n := memset(p, g, at), memset(p, g, at, n)],
    ),
    "an edge turned": lambda p, at: (
        lambda g: [n := memset(p, g, at), copy(p, g, at, at + 64, n)],
        lambda g: [n := copy(p, g, at, at + 64), memset(p, g, at, n)],
    ),
    "branches in another order": lambda p, at: (
        lambda g: [n := empty(p, g), memset(p, g, at, n), copy(p, g, at, at + 64, n)],
        lambda g: [n := empty(p, g), copy(p, g, at, at + 64, n), memset(p, g, at, n)],
    ),
    "roots in another order": lambda p, at: (
        lambda g: [memset(p, g, at), copy(p, g, at + 128, at + 64)],
        lambda g: [copy(p, g, at + 128, at + 64), memset(p, g, at)],
    ),
    "another size of a copy": lambda p, at: (
        lambda g: [copy(p, g, at, at + 64)],
        lambda g: [copy(p, g, at, at + 64, size=32)],
    ),
    "another direction of a copy": lambda p, at: (
        lambda g: [copy(p, g, at, at + 64)],
        lambda g: [copy(p, g, at, p.host(), source_type=1)],
    ),
    **{
        f"a copy of rows, and {name}": lambda p, at, change=change: (
            lambda g: [copy(p, g, at, at + 256, **ROWS)],
            lambda g: [copy(p, g, at + change.get("at", 0), at + 256, **_without(change))],
        )
        for name, change in {
            "the same": {},
            "another place": {"at": 8},
            "fewer rows": {"rows": 2},
            "one row": {"rows": 1},
            "shorter rows": {"size": 4},
            "another pitch": {"pitch": 32},
            "two layers": {"rows": 2, "layers": 2},
        }.items()
    },
    "a copy of rows, and of bytes": lambda p, at: (
        lambda g: [copy(p, g, at, at + 256, **ROWS)],
        lambda g: [copy(p, g, at, at + 256, size=32)],
    ),
    "a copy of bytes, and of rows": lambda p, at: (
        lambda g: [copy(p, g, at, at + 256, size=32)],
        lambda g: [copy(p, g, at, at + 256, **ROWS)],
    ),
    "another kernel": lambda p, at: (
        lambda g: [store(p, g, at, 1)],
        lambda g: [store(p, g, at, 1, func=function(p, "divide"))],
    ),
    "another number for a kernel": lambda p, at: _stores(p, at),
    "another event": lambda p, at: (
        lambda g: [node(p, "cuGraphAddEventRecordNode", g, (), p.event())],
        lambda g: [node(p, "cuGraphAddEventRecordNode", g, (), p.event())],
    ),
    "another child": lambda p, at: (
        lambda g: [node(p, "cuGraphAddChildGraphNode", g, (), _one(p, lambda c: empty(p, c))[0])],
        lambda g: [
            node(p, "cuGraphAddChildGraphNode", g, (), _one(p, lambda c: memset(p, c, at))[0])
        ],
    ),
    "an empty graph": lambda p, at: (lambda g: [memset(p, g, at)], lambda g: []),
    "allocations": lambda p, at: (lambda g: [alloc(p, g, 256)[0]], lambda g: [alloc(p, g, 256)[0]]),
}
for name, made in UPDATES.items():
    section.ask(f"update: {name}", lambda p, made=made: _updating(p, *made(p, p.device())))


@question("update: null info, first function")
def _(p):
    g, at = graph(p), p.device()
    memset(p, g, at)
    e, cells = exec_of(p, g), (p.cell(5), p.cell(99))
    return (
        p("cuGraphExecUpdate_v2", e, g, 0),
        p("cuGraphExecUpdate", e, g, *cells),
        cells[0]._obj.value,
        cells[1]._obj.value,
        p("cuGraphExecUpdate_v2", e, 0, p.cell(0, ctypes.c_uint64 * 4)),
    )


@question("update: what is then launched, and nodes of which graph set")
def _(p):
    g, h, at = graph(p), graph(p), p.device()
    n, m = memset(p, g, at, value=1), memset(p, h, at, value=2)
    e = exec_of(p, g)
    found = update(p, e, h)[0], launched(p, e), words(p, at)
    params = memset_params(p, at, value=3)
    return (
        found,
        p("cuGraphExecMemsetNodeSetParams", e, n, params, p.primary),
        p("cuGraphExecMemsetNodeSetParams", e, m, params, p.primary),
        launched(p, e),
        words(p, at),
    )


@question("update: a disabled node")
def _(p):
    g, h, at = graph(p), graph(p), p.device()
    p.write(at, bytes(16))
    n = memset(p, g, at, value=1)
    memset(p, h, at, value=2)
    e = exec_of(p, g)
    p("cuGraphNodeSetEnabled", e, n, 0)
    return (
        update(p, e, h)[:2],
        p.get("cuGraphNodeGetEnabled", e, n, OUT),
        launched(p, e),
        words(p, at),
    )


@question("update: after a failed one it still runs")
def _(p):
    g, h, at = graph(p), graph(p), p.device()
    memset(p, g, at)
    copy(p, h, at, at + 64)
    e = exec_of(p, g)
    return update(p, e, h)[:2], launched(p, e), words(p, at)


@question("update: while it is held")
def _(p):
    g, h, at, s = graph(p), graph(p), p.device(), p.stream()
    memset(p, g, at, value=1)
    memset(p, h, at, value=2)
    e = exec_of(p, g)
    gate = p.gate(s)
    p("cuGraphLaunch", e, s)
    status = p.blocks("cuGraphExecUpdate_v2", e, h, p.cell(0, ctypes.c_uint64 * 4))
    gate.open()
    return status, p("cuStreamSynchronize", s), words(p, at)


# Memory of graphs


@question("memory: allocated, used, freed in the graph, twice")
def _(p):
    g, at = graph(p), p.device()
    n, where = alloc(p, g, 4096)
    b = memset(p, g, where, n)
    c = copy(p, g, at, where, b)
    node(p, "cuGraphAddMemFreeNode", g, (c,), where)
    e = exec_of(p, g)
    return launched(p, e), words(p, at), launched(p, e), p("cuMemFree_v2", where)


def _holding(p, flags=0):
    g = graph(p)
    n, where = alloc(p, g, 4096)
    memset(p, g, where, n)
    return exec_of(p, g, flags), where


@question("memory: not freed, launched again")
def _(p):
    e, _ = _holding(p)
    return launched(p, e), launched(p, e)


@question("memory: not freed, launched again, freed automatically")
def _(p):
    e, where = _holding(p, AUTO_FREE)
    return launched(p, e), words(p, where), launched(p, e), words(p, where)


@question("memory: freed by the host")
def _(p):
    e, where = _holding(p)
    found = launched(p, e), words(p, where), p("cuMemFree_v2", where)
    return (
        found,
        launched(p, e),
        words(p, where),
        p("cuMemFree_v2", where),
        p("cuMemFree_v2", where),
    )


@question("memory: freed in a stream")
def _(p):
    e, where = _holding(p)
    s = p.stream()
    return (
        p("cuGraphLaunch", e, s),
        p("cuMemFreeAsync", where, s),
        p("cuGraphLaunch", e, s),
        p("cuStreamSynchronize", s),
    )


@question("memory: freed by another graph")
def _(p):
    e, where = _holding(p)
    launched(p, e)
    g = graph(p)
    found = add(p, "cuGraphAddMemFreeNode", g, (), where)
    if isinstance(found, str):
        return found
    return "added", run(p, g), launched(p, e)


@question("memory: freed in a capture")
def _(p):
    e, where = _holding(p)
    launched(p, e)
    g, found = capture(p, lambda s: p("cuMemFreeAsync", where, s))
    return found, run(p, g) if isinstance(g, int) else g, launched(p, e)


@question("memory: two instantiations of a graph that allocates")
def _(p):
    g = graph(p)
    alloc(p, g, 4096)
    exec_of(p, g)
    found = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    return found if isinstance(found, str) else "instantiated"


@question("memory: instantiated again after the first is destroyed")
def _(p):
    g = graph(p)
    alloc(p, g, 4096)
    p("cuGraphExecDestroy", p.need("cuGraphInstantiateWithFlags", OUT, g, 0))
    found = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    return found if isinstance(found, str) else "instantiated"


@question("memory: it outlives the exec and the graph")
def _(p):
    g = p.need("cuGraphCreate", OUT, 0)
    n, where = alloc(p, g, 4096)
    memset(p, g, where, n)
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    found = launched(p, e), p("cuGraphExecDestroy", e), p("cuGraphDestroy", g)
    target = p.host()
    return (
        found,
        p("cuMemcpyDtoH_v2", target, where, 4),
        p.bytes_at(target, 4),
        p("cuMemFree_v2", where),
    )


@question("memory: copies and pointers while it is allocated")
def _(p):
    e, where = _holding(p)
    launched(p, e)
    return (
        p.get("cuPointerGetAttribute", OUT, 2, where),
        p.get("cuMemGetAddressRange_v2", OUT, OUT, where) == (where, 4096),
        p("cuMemsetD8_v2", where, 1, 16),
        p("cuMemFree_v2", where),
        p.get("cuPointerGetAttribute", OUT, 2, where),
    )


@question("memory: captured allocation is used after the launch")
def _(p):
    cell = ctypes.c_uint64()
    g, _ = capture(
        p,
        lambda s: p("cuMemAllocAsync", ctypes.byref(cell), 4096, s),
        lambda s: p("cuMemsetD8Async", cell.value, 7, 16, s),
    )
    return run(p, g), words(p, cell.value), p("cuMemFree_v2", cell.value)


@question("memory: attributes")
def _(p):
    def attributes():
        return [p.get("cuDeviceGetGraphMemAttribute", 0, i, OUT) for i in range(4)]

    p("cuDeviceGraphMemTrim", 0)
    for i in (1, 3):
        p("cuDeviceSetGraphMemAttribute", 0, i, p.cell(0))
    found = [attributes()]
    e, where = _holding(p)
    found.append(attributes())
    launched(p, e)
    found.append(attributes())
    p("cuMemFree_v2", where)
    found.append(attributes())
    p("cuGraphExecDestroy", e)
    p.forget(e)
    return found, p("cuDeviceGraphMemTrim", 0), attributes()


@question("memory: order of an access without an edge")
def _(p):
    g = graph(p)
    _, where = alloc(p, g, 4096)
    found = add(p, "cuGraphAddMemsetNode", g, (), memset_params(p, where), p.primary)
    return found if isinstance(found, str) else "added"


@question("memory: an allocation of a graph instantiated for the device")
def _(p):
    g = graph(p)
    add(p, "cuGraphAddMemAllocNode", g, (), ref(p, alloc_params(256)))
    params = Instantiation(DEVICE_LAUNCH, 0, 5, 99)
    status = p("cuGraphInstantiateWithParams", p.cell(), g, ctypes.byref(params))
    return status, params.result, params.node == nodes_of(p, g)[0]


# User objects


def _object(p, counts, first=1):
    call = p.keep(HOST_FUNCTION(lambda _: counts.append(1)))
    return p.get("cuUserObjectCreate", OUT, 0, call, first, 1)


def _count(counts, wanted):
    """Return how often the destructor has run. Wait a little: a thread of the driver runs it."""
    import time

    end = time.monotonic() + 0.3
    while len(counts) < wanted and time.monotonic() < end:
        time.sleep(0.001)
    return len(counts)


@question("user object: released")
def _(p):
    counts = []
    o = _object(p, counts, 2)
    found = p("cuUserObjectRelease", o, 1), len(counts), p("cuUserObjectRetain", o, 1)
    return found, p("cuUserObjectRelease", o, 2), _count(counts, 1)


@question("user object: bad arguments")
def _(p):
    counts = []
    call = p.keep(HOST_FUNCTION(lambda _: counts.append(1)))
    found = [p.get("cuUserObjectCreate", OUT, 0, call, n, f) for n, f in ((0, 1), (1, 0), (1, 2))]
    o = _object(p, counts)
    return (
        [x if isinstance(x, str) else "made" for x in found],
        p("cuUserObjectRetain", o, 0),
        p("cuUserObjectRelease", o, 0),
        p("cuUserObjectRelease", o, 2),
    )


@question("user object: kept by a graph")
def _(p):
    counts, g = [], p.need("cuGraphCreate", OUT, 0)
    o = _object(p, counts)
    found = p("cuGraphRetainUserObject", g, o, 1, 0), p("cuUserObjectRelease", o, 1), len(counts)
    return found, p("cuGraphDestroy", g), _count(counts, 1)


@question("user object: moved to a graph, kept by its exec and its clone")
def _(p):
    counts, g = [], p.need("cuGraphCreate", OUT, 0)
    empty(p, g)
    o = _object(p, counts)
    found = [p("cuGraphRetainUserObject", g, o, 1, 1)]
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    c = p.need("cuGraphClone", OUT, g)
    found += [p("cuGraphDestroy", g), len(counts), p("cuGraphDestroy", c), len(counts)]
    return found, p("cuGraphExecDestroy", e), _count(counts, 1)


@question("user object: released by the graph")
def _(p):
    counts, g = [], graph(p)
    o = _object(p, counts)
    return (
        p("cuGraphReleaseUserObject", g, o, 1),
        p("cuGraphRetainUserObject", g, o, 2, 0),
        p("cuGraphRetainUserObject", g, o, 1, 2),
        p("cuGraphReleaseUserObject", g, o, 3),
        p("cuGraphReleaseUserObject", g, o, 2),
        p("cuUserObjectRelease", o, 1),
        _count(counts, 1),
    )


@question("user object: its exec is destroyed while it runs")
def _(p):
    counts, g, word, s = [], p.need("cuGraphCreate", OUT, 0), p.host(), p.stream()
    spin(p, g, word)
    p("cuGraphRetainUserObject", g, _object(p, counts), 1, 1)
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    p("cuGraphDestroy", g)
    p("cuGraphLaunch", e, s)
    p("cuGraphExecDestroy", e)
    during = len(counts)
    ctypes.c_uint32.from_address(word).value = 1
    return during, p("cuStreamSynchronize", s), _count(counts, 1)


@question("user object: after an update")
def _(p):
    counts, g, h = [], p.need("cuGraphCreate", OUT, 0), p.need("cuGraphCreate", OUT, 0)
    empty(p, g)
    empty(p, h)
    p("cuGraphRetainUserObject", g, _object(p, counts), 1, 1)
    e = p.need("cuGraphInstantiateWithFlags", OUT, g, 0)
    p("cuGraphDestroy", g)
    found = update(p, e, h)[:2], _count(counts, 1)
    return found, p("cuGraphDestroy", h), p("cuGraphExecDestroy", e), _count(counts, 1)


@question("host functions of a graph call the driver")
def _(p):
    g, found = graph(p), []
    call = HOST_FUNCTION(lambda _: found.append(p("cuCtxSynchronize")))
    host(p, g, call)
    return run(p, g), found


@question("a picture of a graph")
def _(p):
    import tempfile
    from pathlib import Path

    g, at = graph(p), p.device()
    memset(p, g, at, empty(p, g))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.dot"
        status = p("cuGraphDebugDotPrint", g, str(path).encode(), 0)
        text = path.read_text() if path.exists() else ""
    return status, text.startswith("digraph"), text.count("->")
