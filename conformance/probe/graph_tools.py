"""Helpers for questions about graphs: structures, making nodes, and describing graphs."""

import ctypes

from driver import INT, OUT, Copy3D, PoolProperties
from kernels import address, function, pointers
from section import SetupFailed

KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, WAIT, RECORD = range(8)
ALLOC, FREE, BATCH, CONDITIONAL = 10, 11, 12, 13
NAMES = {
    0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 4: "graph", 5: "empty", 6: "wait",
    7: "record", 8: "signal", 9: "semaphore", 10: "alloc", 11: "free", 12: "batch",
    13: "conditional",
}  # fmt: skip
AUTO_FREE, UPLOAD, DEVICE_LAUNCH, NODE_PRIORITY = 1, 2, 4, 8


class Kernel(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("func", ctypes.c_uint64),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_uint64),
        ("ctx", ctypes.c_uint64),
    ]


class Memset(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS_v2; the first version lacks the context."""

    _fields_ = [
        ("dst", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("ctx", ctypes.c_uint64),
    ]


class Host(ctypes.Structure):
    _fields_ = [("fn", ctypes.c_void_p), ("data", ctypes.c_void_p)]


class Alloc(ctypes.Structure):
    _fields_ = [
        ("props", PoolProperties),
        ("access", ctypes.c_void_p),
        ("accesses", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    ]


class Child(ctypes.Structure):
    _fields_ = [("graph", ctypes.c_uint64), ("ownership", ctypes.c_int)]


class Conditional(ctypes.Structure):
    _fields_ = [
        ("handle", ctypes.c_uint64),
        ("type", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("graphs", ctypes.POINTER(ctypes.c_uint64)),
        ("ctx", ctypes.c_uint64),
    ]


class Copy(ctypes.Structure):
    """CUDA_MEMCPY_NODE_PARAMS."""

    _fields_ = [
        ("flags", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("ctx", ctypes.c_uint64),
        ("copy", Copy3D),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        ("ctx", ctypes.c_uint64),
        ("count", ctypes.c_uint),
        ("items", ctypes.c_void_p),
        ("flags", ctypes.c_uint),
    ]


class _Any(ctypes.Union):
    _fields_ = [
        ("words", ctypes.c_uint64 * 29),
        ("kernel", Kernel),
        ("memcpy", Copy),
        ("memset", Memset),
        ("host", Host),
        ("child", Child),
        ("event", ctypes.c_uint64),
        ("alloc", Alloc),
        ("free", ctypes.c_uint64),
        ("batch", Batch),
        ("conditional", Conditional),
    ]


class Params(ctypes.Structure):
    """CUgraphNodeParams."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("of", _Any),
        ("reserved2", ctypes.c_uint64),
    ]


class Edge(ctypes.Structure):
    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


class Instantiation(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("node", ctypes.c_uint64),
        ("result", ctypes.c_int),
    ]


class Updated(ctypes.Structure):
    _fields_ = [("result", ctypes.c_int), ("node", ctypes.c_uint64), ("source", ctypes.c_uint64)]


def ref(p, thing):
    return ctypes.byref(p.keep(thing))


def graph(p):
    return p.make("cuGraphDestroy", "cuGraphCreate", OUT, 0)


def nodes(p, *handles):
    """Makes an array of handles. Returns 0 if there are none."""
    return p.keep((ctypes.c_uint64 * max(1, len(handles)))(*handles)) if handles else 0


def add(p, name, g, after, *arguments):
    """Adds a node and returns it. Returns the status if it is refused."""
    return p.get(name, OUT, g, nodes(p, *after), len(after), *arguments)


def node(p, name, g, after, *arguments):
    found = add(p, name, g, after, *arguments)
    if isinstance(found, str):
        raise SetupFailed(f"{name} {found}")
    return found


def empty(p, g, *after):
    return node(p, "cuGraphAddEmptyNode", g, after)


def memset_params(p, at, value=7, width=16, element=1, pitch=0, height=1):
    return ref(p, Memset(at, pitch, value, element, width, height, 0))


def memset(p, g, at, *after, value=7, **more):
    params = memset_params(p, at, value, **more)
    return node(p, "cuGraphAddMemsetNode", g, after, params, p.primary)


def copy_params(
    p, target, source, size=16, target_type=2, source_type=2, rows=1, layers=1, pitch=0
):
    box = Copy3D(srcType=source_type, dstType=target_type, Width=size, Height=rows, Depth=layers)
    if pitch:
        box.srcPitch = box.dstPitch = pitch
        box.srcHeight = box.dstHeight = rows
    setattr(box, "srcDevice" if source_type != 1 else "srcHost", source)
    setattr(box, "dstDevice" if target_type != 1 else "dstHost", target)
    return ref(p, box)


def copy(p, g, target, source, *after, **more):
    params = copy_params(p, target, source, **more)
    return node(p, "cuGraphAddMemcpyNode", g, after, params, p.primary)


def host(p, g, call, *after):
    params = ref(p, Host(ctypes.cast(p.keep(call), ctypes.c_void_p).value, 0))
    return node(p, "cuGraphAddHostNode", g, after, params)


def kernel_params(p, func, at=0, value=0, grid=(1, 1, 1), block=(1, 1, 1), shared=0, bare=False):
    values = pointers(p, address(at), ctypes.c_uint32(value))
    found = Kernel(func, grid, block, shared, None if bare else ctypes.addressof(values), None)
    return ref(p, found)


def parameter_block(p, at, value):
    """The argument `extra` of a launch, with the parameters of `store` as one block of memory."""
    block, size = p.keep((ctypes.c_uint64 * 2)(at, value)), p.keep(ctypes.c_size_t(12))
    items = (1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
    return ctypes.addressof(p.keep((ctypes.c_void_p * 5)(*items)))


def block_params(p, func, at, value):
    """Like `kernel_params`, but with the parameters as one block."""
    return ref(p, Kernel(func, (1, 1, 1), (1, 1, 1), 0, None, parameter_block(p, at, value)))


def values_of(params):
    """The address of the parameter block in a result of `block_params`."""
    return (ctypes.c_uint64 * 2).from_address(params._obj.extra)[1]


def store(p, g, at, value, *after, func=None):
    """Adds a kernel node that writes a number."""
    params = kernel_params(p, func or function(p, "store"), at, value)
    return node(p, "cuGraphAddKernelNode_v2", g, after, params)


def spin(p, g, at, *after):
    """Adds a kernel node that runs until the word is not zero."""
    params = kernel_params(p, function(p, "spin"), at)
    return node(p, "cuGraphAddKernelNode_v2", g, after, params)


def alloc_params(size, device=0, kind=1, location=1):
    return Alloc(PoolProperties(kind, 0, location, device), None, 0, size, 0)


def alloc(p, g, size, *after):
    """Adds a node that allocates memory. Returns the node and the address."""
    params = p.keep(alloc_params(size))
    return node(p, "cuGraphAddMemAllocNode", g, after, ctypes.byref(params)), params.address


def exec_of(p, g, flags=0):
    return p.make("cuGraphExecDestroy", "cuGraphInstantiateWithFlags", OUT, g, flags)


def kinds(p, handles):
    return [NAMES.get(p.get("cuGraphNodeGetType", n, INT), "?") for n in handles]


def listed(p, name, *arguments, cells=1):
    """Calls a function for the number of items, and again for the arrays. Returns the arrays."""
    count = ctypes.c_size_t(0)
    status = p(name, *arguments, *[0] * cells, ctypes.byref(count))
    if status != "SUCCESS":
        return status
    arrays = [(ctypes.c_uint64 * max(1, count.value))() for _ in range(cells)]
    status = p(name, *arguments, *arrays, ctypes.byref(count))
    if status != "SUCCESS":
        return status
    found = [list(array)[: count.value] for array in arrays]
    return found[0] if cells == 1 else list(zip(*found, strict=True))


def nodes_of(p, g):
    return listed(p, "cuGraphGetNodes", g)


def edges_of(p, g):
    """The edges of a graph, as pairs of indices in its list of nodes."""
    order = nodes_of(p, g)
    pairs = listed(p, "cuGraphGetEdges", g, cells=2)
    if isinstance(pairs, str):  # the status of a call that failed
        return pairs
    return sorted((order.index(a), order.index(b)) for a, b in pairs)


def shape(p, g):
    """Describes a graph: the kinds of its nodes, and its edges."""
    found, edges = nodes_of(p, g), edges_of(p, g)
    names = found if isinstance(found, str) else " ".join(kinds(p, found))
    return names, edges if isinstance(edges, str) else [f"{a}-{b}" for a, b in edges]


def capture(p, *steps, stream=None, mode=2):
    """Captures the steps on a stream. Returns the graph, and the answers of the steps."""
    stream = stream or p.stream()
    p.must("cuStreamBeginCapture_v2", stream, mode)
    found = [step(stream) for step in steps]
    cell = ctypes.c_uint64()
    status = p("cuStreamEndCapture", stream, ctypes.byref(cell))
    if status != "SUCCESS":
        return status, found
    p._made("cuGraphDestroy", cell.value)
    return cell.value, found


def captured(p, *steps, **more):
    g, found = capture(p, *steps, **more)
    return (*found, *(shape(p, g) if isinstance(g, int) else [g]))


def run(p, g, stream=None):
    """Instantiates a graph, launches it and waits. Returns the first status that is an error."""
    e = p.get("cuGraphInstantiateWithFlags", OUT, g, 0)
    if isinstance(e, str):
        return f"instantiate {e}"
    p._made("cuGraphExecDestroy", e)
    stream = stream or p.stream()
    status = p("cuGraphLaunch", e, stream)
    return status if status != "SUCCESS" else p("cuStreamSynchronize", stream)


def words(p, at, count=1):
    """Reads 32-bit words from device memory."""
    content = p.read(at, 4 * count)
    return [int.from_bytes(content[i : i + 4], "little") for i in range(0, 4 * count, 4)]


def update(p, e, g, names=None):
    """Calls cuGraphExecUpdate_v2. Returns the status and its results, with names for nodes."""
    info = Updated(99, 1, 1)
    status = p("cuGraphExecUpdate_v2", e, g, ctypes.byref(info))
    named = {0: "none", 1: "untouched", **{h: n for n, h in (names or {}).items()}}
    return status, info.result, named.get(info.node, "a node"), named.get(info.source, "a node")
