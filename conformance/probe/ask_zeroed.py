"""Structures that are all zero, and arrays of no items: programs pass them to get defaults.

Other sections also ask this about the functions of their own subjects: copies of nothing, access of
no place, batches of no operation.
"""

import ctypes

from driver import OUT
from kernels import TEXT
from section import Section

section = Section("zeroed")
question = section.question

NODES = range(15)  # the kinds of CUgraphNodeType


def _zeros(p, bytes_=512):
    """A structure that is all zero, whatever its kind."""
    return p.keep((ctypes.c_uint64 * (bytes_ // 8))())


def _prepare(p):
    module = p.make("cuModuleUnload", "cuModuleLoadData", OUT, TEXT.encode())
    graph = p.make("cuGraphDestroy", "cuGraphCreate", OUT, 0)
    return {
        "zeros": _zeros(p),
        "one": p.cell(1),
        "s": p.stream(),
        "a": p.device(),
        "m": p.managed(),
        "graph": graph,
        "text": TEXT.encode(),
        "module": module,
        "node": lambda kind: _node(p, kind),
    }


section.calls(
    """
    context, no affinity | cuCtxCreate_v3 out, 0, 0, 0, 0
    context, affinity of no item | cuCtxCreate_v3 out, zeros, 0, 0, 0
    context, affinity of a null | cuCtxCreate_v3 out, 0, 1, 0, 0
    context, affinity all zero | cuCtxCreate_v3 out, zeros, 1, 0, 0
    context, affinity of -1 items | cuCtxCreate_v3 out, zeros, -1, 0, 0
    context, no parameters | cuCtxCreate_v4 out, 0, 0, 0
    context, parameters all zero | cuCtxCreate_v4 out, zeros, 0, 0
    context, parameters all zero, flags 3 | cuCtxCreate_v4 out, zeros, 3, 0
    context, parameters all zero, on 99 | cuCtxCreate_v4 out, zeros, 0, 99
    array | cuArrayCreate_v2 out, zeros
    array of three dimensions | cuArray3DCreate_v2 out, zeros
    mipmapped array | cuMipmappedArrayCreate out, zeros, 1
    mipmapped array of no level | cuMipmappedArrayCreate out, zeros, 0
    texture | cuTexObjectCreate out, zeros, zeros, 0
    surface | cuSurfObjectCreate out, zeros
    pool | cuMemPoolCreate out, zeros
    memory | cuMemCreate out, 1 << 21, zeros, 0
    granularity | cuMemGetAllocationGranularity out, zeros, 0
    access of a pool | cuMemPoolGetAccess out, p.get("cuDeviceGetDefaultMemPool", OUT, 0), zeros
    default pool of a place | cuMemGetDefaultMemPool out, zeros, 1
    pool of a place | cuMemGetMemPool out, zeros, 1
    advice | cuMemAdvise_v2 m, 4096, 1, 0
    advice about nothing | cuMemAdvise_v2 m, 0, 1, 0
    prefetch | cuMemPrefetchAsync_v2 m, 4096, 0, 0, s
    prefetch of no range | cuMemPrefetchBatchAsync zeros, zeros, 0, zeros, zeros, 0, 0, s
    prefetch of no range, null | cuMemPrefetchBatchAsync 0, 0, 0, 0, 0, 0, 0, s
    discard of no range | cuMemDiscardBatchAsync zeros, zeros, 0, 0, s
    discard of no range, null | cuMemDiscardBatchAsync 0, 0, 0, 0, s
    both of no range | cuMemDiscardAndPrefetchBatchAsync zeros, zeros, 0, zeros, zeros, 0, 0, s
    batch of no copy | cuMemcpyBatchAsync_v2 zeros, zeros, zeros, 0, zeros, zeros, 0, s
    batch of no copy, null | cuMemcpyBatchAsync_v2 0, 0, 0, 0, 0, 0, 0, s
    batch of no box | cuMemcpy3DBatchAsync_v2 0, zeros, 0, s
    batch of no box, null | cuMemcpy3DBatchAsync_v2 0, 0, 0, s
    box | cuMemcpy3DBatchAsync_v2 1, zeros, 0, s
    attributes of a copy | cuMemcpyWithAttributesAsync a, a, 0, zeros, s
    attributes of a pointer, none | cuPointerGetAttributes 0, zeros, zeros, a
    attributes of a range, none | cuMemRangeGetAttributes zeros, zeros, zeros, 0, m, 4096
    batch of operations | cuStreamBatchMemOp_v2 s, 1, zeros, 0
    attribute 1 of a stream | cuStreamSetAttribute s, 1, zeros
    attribute 3 of a stream | cuStreamSetAttribute s, 3, zeros
    module, no option | cuModuleLoadDataEx out, text, 0, 0, 0
    module, options of no item | cuModuleLoadDataEx out, text, 0, zeros, zeros
    library, no option | cuLibraryLoadData out, text, 0, 0, 0, 0, 0, 0
    library, options of no item | cuLibraryLoadData out, text, zeros, zeros, 0, zeros, zeros, 0
    functions, none | cuModuleEnumerateFunctions zeros, 0, module
    functions, none, null | cuModuleEnumerateFunctions 0, 0, module
    node of no dependency | cuGraphAddEmptyNode out, graph, zeros, 0
    kernel node | cuGraphAddKernelNode_v2 out, graph, 0, 0, zeros
    copy node | cuGraphAddMemcpyNode out, graph, 0, 0, zeros, p.primary
    fill node | cuGraphAddMemsetNode out, graph, 0, 0, zeros, p.primary
    host node | cuGraphAddHostNode out, graph, 0, 0, zeros
    batch node | cuGraphAddBatchMemOpNode out, graph, 0, 0, zeros
    allocation node | cuGraphAddMemAllocNode out, graph, 0, 0, zeros
    dependencies, none | cuGraphAddDependencies_v2 graph, zeros, zeros, zeros, 0
    dependencies, none, null | cuGraphAddDependencies_v2 graph, 0, 0, 0, 0
    dependencies removed, none | cuGraphRemoveDependencies_v2 graph, zeros, zeros, zeros, 0
    executable graph | cuGraphInstantiateWithParams out, graph, zeros
    user object of no reference | cuUserObjectCreate out, zeros, 0, 0, 1
    split of multiprocessors | cuDevSmResourceSplitByCount out, one, zeros, zeros, 0, 0
    description of resources | cuDevResourceGenerateDesc out, zeros, 1
    description of no resource | cuDevResourceGenerateDesc out, zeros, 0
    green context of none | cuGreenCtxCreate out, 0, 0, 1
    capture to a graph, no dependency | cuStreamBeginCaptureToGraph s, graph, zeros, zeros, 0, 0
""",
    _prepare,
)
for kind in NODES:
    section.calls(
        f"general node {kind} | cuGraphAddNode_v2 out, graph, 0, 0, 0, node({kind})",
        _prepare,
    )


def _node(p, kind):
    node = _zeros(p)
    node[0] = kind
    return node


def _launched(p, count=0, attribute=None):
    """Launches an empty kernel with `count` attributes, in which only the kind can be nonzero."""
    module = p.make("cuModuleUnload", "cuModuleLoadData", OUT, TEXT.encode())
    function = p.need("cuModuleGetFunction", OUT, module, b"empty")
    attributes = _zeros(p)
    if attribute is not None:
        attributes[0] = attribute
    sizes = p.keep((ctypes.c_uint32 * 16)(1, 1, 1, 1, 1, 1, 0))
    config = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_uint64))
    config[4] = p.stream()
    config[5] = 0 if attribute is None else ctypes.addressof(attributes)
    sizes[12] = count
    return p("cuLaunchKernelEx", sizes, function, 0, 0), p("cuCtxSynchronize")


section.ask("launch, no attribute", _launched)
section.ask("launch, attributes of no item", lambda p: _launched(p, 0, 0))
for kind in range(17):
    section.ask(f"launch, attribute {kind}", lambda p, kind=kind: _launched(p, 1, kind))


@question("context, parameters all zero: is a regular one")
def _(p):
    handle = p.make("cuCtxDestroy_v2", "cuCtxCreate_v4", OUT, _zeros(p), 0, 0)
    address = p.device()
    p.must("cuMemsetD32_v2", address, 7, 4)
    return p.read(address, 16), p.get("cuCtxGetCurrent", OUT) == handle
