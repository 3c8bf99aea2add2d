"""The memory that nodes can use: in an executable graph, and in bodies of conditional nodes."""

import ctypes

import pytest

from .boxes import UNIFIED, Copy3D
from .client import ILLEGAL_ADDRESS, INVALID_VALUE, SUCCESS
from .graphs import IF, captured, conditional, instantiated, new_graph
from .kernels import TEXT
from .structures import DEVICE_LOCATION, HOST_LOCATION, READWRITE, Access, Location, pool_properties

SIZE = 64
UPDATE_FAILURE, PARAMETERS_CHANGED = 910, 5
PINNED, MANAGED = 1, 2
WRITE_COMBINED = 4
# The kinds of memory. The memory of a copy node can be replaced by memory of another kind if both
# kinds have the same value here.
KINDS = {
    "device": "device",
    "managed": "device",
    "variable": "device",
    "ordered": "pool of a device",
    "pool": "pool of a device",
    "managed pool": "managed pool",
    "host": "host",
    "write-combined": "host",
    "host pool": "pool of the host",
}


class Fill(ctypes.Structure):
    """A CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [
        ("dst", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


def from_pool(client, kind, where):
    properties = pool_properties(allocType=kind, location=Location(where, 0))
    pool = client._make("cuMemPoolDestroy", ctypes.c_void_p, "cuMemPoolCreate", properties)
    if where == HOST_LOCATION:
        access = Access(Location(DEVICE_LOCATION, 0), READWRITE)
        client.ok("cuMemPoolSetAccess", pool, ctypes.byref(access), 1)
    stream = client.stream()
    made = "cuMemFree_v2", ctypes.c_uint64, "cuMemAllocFromPoolAsync", SIZE, pool, stream
    address = client._make(*made)
    client.ok("cuStreamSynchronize", stream)
    return address


def ordered(client):
    stream = client.stream()
    address = client._make("cuMemFree_v2", ctypes.c_uint64, "cuMemAllocAsync", SIZE, stream)
    client.ok("cuStreamSynchronize", stream)
    return address


def page_locked(client, flags=0):
    return client._make("cuMemFreeHost", ctypes.c_void_p, "cuMemHostAlloc", SIZE, flags)


MAKE = {
    "device": lambda client: client.device(SIZE),
    "managed": lambda client: client.managed(SIZE),
    "variable": lambda client: client.variable(client.module(TEXT), "counter")[0],
    "ordered": ordered,
    "pool": lambda client: from_pool(client, PINNED, DEVICE_LOCATION),
    "managed pool": lambda client: from_pool(client, MANAGED, DEVICE_LOCATION),
    "host": page_locked,
    "write-combined": lambda client: page_locked(client, WRITE_COMBINED),
    "host pool": lambda client: from_pool(client, PINNED, HOST_LOCATION),
}


@pytest.fixture
def elsewhere(client):
    """Page-locked memory of another context, and that context."""
    context = ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    memory = page_locked(client)
    client.ok("cuCtxSetCurrent", client.lib.primary)
    yield memory, context.value
    client.close()
    client.ok("cuCtxDestroy_v2", context)


def fill_of(address):
    return ctypes.byref(Fill(dst=address, value=1, element=4, width=1, height=1))


def copy_of(target, source):
    box = {"WidthInBytes": 4, "Height": 1, "Depth": 1}
    ends = {"dstMemoryType": UNIFIED, "srcMemoryType": UNIFIED}
    return ctypes.byref(Copy3D(dstDevice=target, srcDevice=source, **ends, **box))


class Node:
    """A node of a graph, and the call that changes it in an executable graph."""

    def __init__(self, client, graph, params, context=None):
        self.client, self.graph, self.node = client, graph, ctypes.c_void_p()
        self.name = "Memset" if isinstance(params._obj, Fill) else "Memcpy"
        self.context = context or client.lib.primary
        place = ctypes.byref(self.node), graph, None, 0
        client.ok(f"cuGraphAdd{self.name}Node", *place, params, self.context)

    def set(self, step, params, context=None):
        change = f"cuGraphExec{self.name}NodeSetParams"
        return self.client.call(change, step, self.node, params, context or self.context)


def step_of(client, params):
    """Make an executable graph of one node. Returns the node and the executable."""
    node = Node(client, new_graph(client), params)
    status, step = instantiated(client, node.graph)
    assert status == SUCCESS
    return node, step


def update(client, step, params):
    """Update an executable graph by a graph with one node of this kind.

    Returns the status and the reason of a refusal.
    """
    info = (ctypes.c_uint64 * 3)()
    node = Node(client, new_graph(client), params)
    return client.call("cuGraphExecUpdate_v2", step, node.graph, info), info[0] & 0xFFFFFFFF


@pytest.mark.parametrize("before", KINDS)
def test_both_sides_of_a_copy_keep_their_kind_of_memory(client, before):
    device, first = client.device(SIZE), MAKE[before](client)
    for after, kind in KINDS.items():
        second = MAKE[after](client)
        for sides in (slice(None), slice(None, None, -1)):
            old, new = copy_of(*(device, first)[sides]), copy_of(*(device, second)[sides])
            node, step = step_of(client, old)
            same = kind == KINDS[before]
            if {kind, KINDS[before]} == {"device", "host"}:
                continue  # real drivers accept this change in some nodes and refuse it in others
            assert node.set(step, new) == (SUCCESS if same else INVALID_VALUE), after
            expected = (SUCCESS, 0) if same else (UPDATE_FAILURE, PARAMETERS_CHANGED)
            assert update(client, step, new) == expected, after


def test_page_locked_memory_of_a_captured_copy_stays_in_its_context(client, elsewhere):
    device, mine, stream = client.device(SIZE), client.host(SIZE), client.stream()
    with captured(client, stream) as graph:
        client.ok("cuMemcpyAsync", device, mine, 16, stream)
    node, step, params = ctypes.c_void_p(graph.nodes()[0]), graph.exec(), Copy3D()
    client.ok("cuGraphMemcpyNodeGetParams", node, ctypes.byref(params))
    for memory, status in ((elsewhere[0], INVALID_VALUE), (client.host(SIZE), SUCCESS)):
        params.srcHost = params.srcDevice = memory
        change = step, node, ctypes.byref(params), client.lib.primary
        assert client.call("cuGraphExecMemcpyNodeSetParams", *change) == status


@pytest.mark.parametrize("before", KINDS)
def test_a_fill_can_get_memory_of_any_kind(client, before):
    first = MAKE[before](client)
    for after in KINDS:
        second = fill_of(MAKE[after](client))
        node, step = step_of(client, fill_of(first))
        assert node.set(step, second) == SUCCESS, after
        assert update(client, step, second) == (SUCCESS, 0), after


def test_a_fill_gets_page_locked_memory_of_its_context(client, elsewhere):
    """A fill node must use page-locked memory of its own context, whichever context is passed."""
    memory, context = elsewhere
    node, step = step_of(client, fill_of(client.device(SIZE)))
    for passed in (None, context):
        assert node.set(step, fill_of(memory), passed) == INVALID_VALUE
        assert node.set(step, fill_of(client.host(SIZE)), passed) == SUCCESS


@pytest.mark.parametrize("what", ["fill", "target", "source"])
def test_a_fill_in_a_body_uses_page_locked_memory_of_its_context(client, elsewhere, what):
    device = client.device(SIZE)
    for memory, of_a_fill in ((elsewhere[0], INVALID_VALUE), (client.host(SIZE), SUCCESS)):
        graph = new_graph(client)
        _, (body,), _ = conditional(client, graph, IF, 1, 1)
        ends = (memory, device) if what == "target" else (device, memory)
        Node(client, body, fill_of(memory) if what == "fill" else copy_of(*ends))
        expected = of_a_fill if what == "fill" else SUCCESS
        assert instantiated(client, graph)[0] == expected


@pytest.mark.cuda_software  # a real driver loses the context, and with it everything in the process
@pytest.mark.parametrize("place", ["body", "child in a body", "graph"])
@pytest.mark.parametrize("kind", ["host", "managed", "device", "host pool"])
def test_a_copy_in_a_body_from_memory_of_another_context(lost, kind, place):
    """A copy in a body reads memory of another context.

    The context is lost if the memory is managed, or page-locked and not from a pool.
    """
    context = ctypes.c_void_p()
    lost.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    far = MAKE[kind](lost)
    lost.ok("cuCtxSetCurrent", lost.lib.primary)
    near, graph = lost.device(SIZE), new_graph(lost)
    inner = body = graph
    if place != "graph":
        _, (body,), _ = conditional(lost, graph, IF, 1, 1)
        inner = body
    if place == "child in a body":
        inner = new_graph(lost)
    Node(lost, inner, copy_of(near, far))
    if inner is not body:
        node = ctypes.c_void_p()
        lost.ok("cuGraphAddChildGraphNode", ctypes.byref(node), body, None, 0, inner)
    status, step = instantiated(lost, graph)
    assert status == SUCCESS
    lost.ok("cuGraphLaunch", step, lost.stream())
    loses = place != "graph" and kind in ("host", "managed")
    assert lost.call("cuCtxSynchronize") == (ILLEGAL_ADDRESS if loses else SUCCESS)


@pytest.mark.cuda_software
def test_a_copy_to_memory_of_another_context_in_a_body(lost):
    context = ctypes.c_void_p()
    lost.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    far = page_locked(lost)
    lost.ok("cuCtxSetCurrent", lost.lib.primary)
    graph = new_graph(lost)
    _, (body,), _ = conditional(lost, graph, IF, 1, 1)
    Node(lost, body, copy_of(far, lost.device(SIZE)))
    lost.ok("cuGraphLaunch", instantiated(lost, graph)[1], lost.stream())
    lost.ok("cuCtxSynchronize")
