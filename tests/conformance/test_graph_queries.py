"""What a program can ask about a graph and its nodes: numbers, parameters, memory."""

import ctypes

import pytest

from .client import INVALID_VALUE
from .graphs import IF, conditional, instantiated, new_graph
from .kernels import TEXT
from .structures import DEVICE_LOCATION, Location, PoolProperties

SIZE = 64
KERNEL, FILL, CHILD, EMPTY, EVENT_RECORD, ALLOC, CONDITIONAL = 0, 2, 4, 5, 7, 10, 13


class Fill(ctypes.Structure):
    """A CUDA_MEMSET_NODE_PARAMS, and the context of CUDA_MEMSET_NODE_PARAMS_v2."""

    _fields_ = [
        ("dst", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("context", ctypes.c_void_p),
    ]


class KernelParams(ctypes.Structure):
    """A CUDA_KERNEL_NODE_PARAMS_v3."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class ConditionalParams(ctypes.Structure):
    """A CUDA_CONDITIONAL_NODE_PARAMS."""

    _fields_ = [
        ("handle", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("count", ctypes.c_uint),
        ("graphs", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
    ]


class Params(ctypes.Union):
    _fields_ = [
        ("words", ctypes.c_uint64 * 29),
        ("kernel", KernelParams),
        ("fill", Fill),
        ("graph", ctypes.c_void_p),
        ("event", ctypes.c_void_p),
        ("conditional", ConditionalParams),
    ]


class NodeParams(ctypes.Structure):
    """A CUgraphNodeParams."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("of", Params),
        ("last", ctypes.c_uint64),
    ]


class AllocParams(ctypes.Structure):
    """A CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [
        ("pool", PoolProperties),
        ("access", ctypes.c_void_p),
        ("access_count", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    ]


def require(client, name):
    if not client.lib.has(name):
        pytest.skip(f"the driver has no {name}")


def ask(client, name, handle, kind=ctypes.c_uint):
    require(client, name)
    answer = kind()
    client.ok(name, handle, ctypes.byref(answer))
    return answer.value


def empty_node(client, graph, *after):
    node, array = ctypes.c_void_p(), (ctypes.c_void_p * max(1, len(after)))(*after)
    client.ok("cuGraphAddEmptyNode", ctypes.byref(node), graph, array, len(after))
    return node.value


def params_of(client, node):
    require(client, "cuGraphNodeGetParams")
    params = NodeParams()
    ctypes.memset(ctypes.byref(params), 0xFF, ctypes.sizeof(params))
    client.ok("cuGraphNodeGetParams", node, ctypes.byref(params))
    return params


def test_graphs_have_different_numbers(client):
    first, second = new_graph(client), new_graph(client)
    assert ask(client, "cuGraphGetId", first) != ask(client, "cuGraphGetId", second)
    assert ask(client, "cuGraphGetId", first) == ask(client, "cuGraphGetId", first)


def test_executable_graphs_have_different_numbers(client):
    graph = new_graph(client)
    empty_node(client, graph)
    (_, first), (_, second) = instantiated(client, graph), instantiated(client, graph)
    assert ask(client, "cuGraphExecGetId", first) != ask(client, "cuGraphExecGetId", second)


def test_a_node_keeps_its_number(client):
    """The number identifies a node in its graph, whichever nodes are added and destroyed."""
    graph = new_graph(client)
    nodes = [empty_node(client, graph) for _ in range(3)]
    numbers = [ask(client, "cuGraphNodeGetLocalId", node) for node in nodes]
    assert len(set(numbers)) == 3
    client.ok("cuGraphDestroyNode", nodes.pop(0))
    nodes.append(empty_node(client, graph))
    after = [ask(client, "cuGraphNodeGetLocalId", node) for node in nodes]
    assert after[:2] == numbers[1:]
    assert len(set(after)) == 3


def test_nodes_of_two_graphs_differ_for_tools(client):
    nodes = [empty_node(client, new_graph(client)) for _ in range(2)]
    ids = [ask(client, "cuGraphNodeGetToolsId", node, ctypes.c_ulonglong) for node in nodes]
    assert ids[0] != ids[1]


def test_a_node_knows_its_graph(client):
    graph, child = new_graph(client), new_graph(client)
    node = empty_node(client, child)
    outer, inner = ctypes.c_void_p(), ctypes.c_void_p()
    client.ok("cuGraphAddChildGraphNode", ctypes.byref(outer), graph, None, 0, child)
    client.ok("cuGraphChildGraphNodeGetGraph", outer, ctypes.byref(inner))
    count, nodes = ctypes.c_size_t(1), (ctypes.c_void_p * 1)()
    client.ok("cuGraphGetNodes", inner, nodes, ctypes.byref(count))
    for each, expected in ((node, child), (outer, graph), (nodes[0], inner.value)):
        assert ask(client, "cuGraphNodeGetContainingGraph", each, ctypes.c_void_p) == expected


@pytest.mark.parametrize(
    "name",
    [
        "cuGraphGetId",
        "cuGraphExecGetId",
        "cuGraphNodeGetLocalId",
        "cuGraphNodeGetToolsId",
        "cuGraphNodeGetContainingGraph",
        "cuGraphNodeGetParams",
    ],
)
def test_null_is_refused(client, name):
    require(client, name)
    graph = new_graph(client)
    node = empty_node(client, graph)
    room = NodeParams()
    assert client.call(name, None, ctypes.byref(room)) == INVALID_VALUE
    handle = {"cuGraphGetId": graph, "cuGraphExecGetId": None}.get(name, node)
    assert client.call(name, handle, None) == INVALID_VALUE


def test_parameters_of_a_fill(client):
    graph, memory, node = new_graph(client), client.device(SIZE), ctypes.c_void_p()
    fill = Fill(dst=memory, value=7, element=4, width=SIZE // 4, height=1)
    place = ctypes.byref(node), graph, None, 0
    client.ok("cuGraphAddMemsetNode", *place, ctypes.byref(fill), client.lib.primary)
    params = params_of(client, node)
    found = params.of.fill
    assert params.type == FILL
    assert (found.dst, found.value, found.element) == (memory, 7, 4)
    assert (found.width, found.height) == (SIZE // 4, 1)


def test_parameters_of_a_kernel(client):
    """The parameters lie in memory of the driver."""
    stream, memory = client.stream(), client.device(SIZE)
    fill = client.function(client.module(TEXT), "fill")
    client.ok("cuStreamBeginCapture_v2", stream, 2)
    values = memory, ctypes.c_uint32(5), ctypes.c_uint32(3)
    assert client.launch(fill, stream, *values, grid=2, block=32) == 0
    graph = ctypes.c_void_p()
    client.ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    client._undo.append(("cuGraphDestroy", graph.value))
    count, nodes = ctypes.c_size_t(1), (ctypes.c_void_p * 1)()
    client.ok("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    params = params_of(client, nodes[0])
    kernel = params.of.kernel
    assert params.type == KERNEL
    assert (list(kernel.grid), list(kernel.block)) == ([2, 1, 1], [32, 1, 1])
    pointers = (ctypes.c_void_p * 1).from_address(kernel.parameters)
    assert ctypes.c_uint64.from_address(pointers[0]).value == memory


def test_parameters_of_other_nodes(client):
    graph, child, event = new_graph(client), new_graph(client), client.event()
    empty = params_of(client, empty_node(client, graph))
    assert empty.type == EMPTY
    node, inner = ctypes.c_void_p(), ctypes.c_void_p()
    client.ok("cuGraphAddChildGraphNode", ctypes.byref(node), graph, None, 0, child)
    client.ok("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(inner))
    params = params_of(client, node)
    assert (params.type, params.of.graph) == (CHILD, inner.value)
    request = NodeParams(type=EVENT_RECORD)
    request.of.event = event
    place = ctypes.byref(node), graph, None, None, 0
    client.ok("cuGraphAddNode_v2", *place, ctypes.byref(request))
    params = params_of(client, node)
    assert (params.type, params.of.event) == (EVENT_RECORD, event)


def test_parameters_of_a_condition(client):
    node, bodies, _ = conditional(client, new_graph(client), IF, 1, 1)
    params = params_of(client, node)
    found = params.of.conditional
    assert (params.type, found.kind, found.count) == (CONDITIONAL, IF, 1)
    assert found.graphs[0] == bodies[0]


def test_memory_counts_after_the_graph_has_freed_it(client):
    """The memory of a graph stays mapped for the next launch."""
    graph, stream = new_graph(client), client.stream()
    alloc, free = ctypes.c_void_p(), ctypes.c_void_p()
    properties = PoolProperties(allocType=1, location=Location(DEVICE_LOCATION, 0))
    params = AllocParams(pool=properties, size=SIZE)
    place = ctypes.byref(alloc), graph, None, 0
    client.ok("cuGraphAddMemAllocNode", *place, ctypes.byref(params))
    after = (ctypes.c_void_p * 1)(alloc.value)
    client.ok("cuGraphAddMemFreeNode", ctypes.byref(free), graph, after, 1, params.address)
    status, step = instantiated(client, graph)
    assert status == 0
    client.ok("cuGraphLaunch", step, stream)
    found = []
    for attribute in range(4):
        value = ctypes.c_uint64()
        client.ok("cuDeviceGetGraphMemAttribute", 0, attribute, ctypes.byref(value))
        found.append(value.value)
    used, used_high, reserved, reserved_high = found
    assert SIZE <= used <= used_high
    assert used <= reserved <= reserved_high
    client.ok("cuStreamSynchronize", stream)
