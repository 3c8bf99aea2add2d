"""Reading nodes back and changing them, conditions of other graphs, and memory of graphs."""

import ctypes
import threading

import pytest

from .client import INVALID_VALUE, SUCCESS
from .graphs import IF, captured, conditional, inside, instantiated, new_condition, new_graph
from .kernels import TEXT

SIZE = 64
# Kinds of nodes.
KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, WAIT, RECORD = range(8)
ALLOC, FREE, CONDITIONAL = 10, 11, 13
NOT_SUPPORTED = 801


class Params(ctypes.Structure):
    """A CUgraphNodeParams."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("words", ctypes.c_uint64 * 29),
        ("last", ctypes.c_uint64),
    ]


def pair(low, high):
    """Two fields of 32 bits."""
    return low | high << 32


def fill(client, target, value, size=1):
    """The parameters of a node that fills bytes."""
    words = target, 0, pair(value, 1), size, 1, client.lib.primary
    return Params(MEMSET, words=words)


def add(client, graph, params, after=()):
    node, before = ctypes.c_void_p(), (ctypes.c_void_p * max(1, len(after)))(*after)
    client.ok(
        "cuGraphAddNode_v2", ctypes.byref(node), graph, before, None, len(after),
        ctypes.byref(params),
    )  # fmt: skip
    return node.value


def filling(client, target, value):
    """A graph with a node that sets a byte."""
    graph = new_graph(client)
    add(client, graph, fill(client, target, value))
    return graph


def launched(client, step, stream):
    client.ok("cuGraphLaunch", step, stream)
    client.ok("cuStreamSynchronize", stream)


@pytest.fixture
def target(client):
    address = client.device(SIZE)
    client.write(address, bytes(SIZE))
    return address


# Conditions


@pytest.mark.parametrize("value", [0, 1])
def test_a_body_can_have_a_condition_of_the_graph_around_it(client, target, value):
    stream, graph = client.stream(), new_graph(client)
    handle = new_condition(client, graph, value)
    _, (body,), _ = conditional(client, graph, IF, 1, 1)
    _, (inner,), _ = conditional(client, body, IF, 1, handle=handle)
    with inside(client, inner, stream):
        client.ok("cuMemsetD8Async", target, 7, 1, stream)
    status, step = instantiated(client, graph)
    assert status == SUCCESS
    launched(client, step, stream)
    assert client.read(target, 1)[0] == 7 * value


def test_an_update_brings_the_default_of_a_condition(client, target):
    stream, graphs = client.stream(), []
    for value in (0, 1):
        graphs.append(new_graph(client))
        _, (body,), _ = conditional(client, graphs[-1], IF, 1, value)
        with inside(client, body, stream):
            client.ok("cuMemsetD8Async", target, 7, 1, stream)
    _, step = instantiated(client, graphs[0])
    launched(client, step, stream)
    assert client.read(target, 1) == b"\0"
    result = (ctypes.c_uint64 * 4)()
    client.ok("cuGraphExecUpdate_v2", step, graphs[1], result)
    launched(client, step, stream)
    assert client.read(target, 1) == b"\7"


# Child graphs


def test_a_child_graph_node_gets_another_graph(client, target):
    stream, graph = client.stream(), new_graph(client)
    node = add(client, graph, Params(CHILD, words=(filling(client, target, 1), 0)))
    _, before = instantiated(client, graph)
    other = filling(client, target + 1, 2)
    add(client, other, fill(client, target + 2, 3))
    params = Params(CHILD, words=(other, 0))
    client.ok("cuGraphNodeSetParams", node, ctypes.byref(params))
    _, after = instantiated(client, graph)
    inner, count = ctypes.c_void_p(), ctypes.c_size_t()
    client.ok("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(inner))
    client.ok("cuGraphGetNodes", inner, None, ctypes.byref(count))
    assert inner.value != other
    assert count.value == 2
    launched(client, before, stream)
    assert client.read(target, 3) == b"\1\0\0"
    launched(client, after, stream)
    assert client.read(target, 3) == b"\1\2\3"


def test_a_child_graph_node_of_an_executable_graph_gets_another_graph(client, target):
    stream, graph = client.stream(), new_graph(client)
    node = add(client, graph, Params(CHILD, words=(filling(client, target, 1), 0)))
    _, step = instantiated(client, graph)
    params = Params(CHILD, words=(filling(client, target + 1, 2), 0))
    client.ok("cuGraphExecNodeSetParams", step, node, ctypes.byref(params))
    launched(client, step, stream)
    assert client.read(target, 2) == b"\0\2"
    other = filling(client, target, 3)
    add(client, other, fill(client, target, 4))
    params = Params(CHILD, words=(other, 0))
    assert client.call("cuGraphExecNodeSetParams", step, node, ctypes.byref(params)) != SUCCESS
    launched(client, step, stream)
    assert client.read(target, 2) == b"\0\2"


def test_a_launch_keeps_what_an_update_drops(client, target):
    """A launch keeps the executable's reference to a user object until its work is complete."""
    stream, gone = client.stream(), threading.Event()
    graph, other = filling(client, target, 1), filling(client, target, 2)
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gone.set())
    thing = ctypes.c_void_p()
    client.ok("cuUserObjectCreate", ctypes.byref(thing), None, destroy, 1, 1)
    client.ok("cuGraphRetainUserObject", graph, thing, 1, 1)  # the graph has the only reference
    _, step = instantiated(client, graph)
    client.ok("cuGraphDestroy", graph)
    client.forget("cuGraphDestroy", graph)
    gate = client.gate().hold(stream)
    client.ok("cuGraphLaunch", step, stream)
    client.ok("cuGraphExecUpdate_v2", step, other, (ctypes.c_uint64 * 4)())
    assert not gone.wait(0.05)
    gate.open()
    client.ok("cuStreamSynchronize", stream)
    assert client.read(target, 1) == b"\1"
    assert gone.wait(10)


# Parameters


@pytest.fixture
def read_back(client):
    """Returns a node's parameters, without zeros at the end. Needs CUDA 13.2 or newer."""
    client.require("cuGraphNodeGetParams")

    def read(node):
        params = Params(77, words=(5,) * 29)
        client.ok("cuGraphNodeGetParams", node, ctypes.byref(params))
        words = list(params.words)
        while words and not words[-1]:
            words.pop()
        return params.type, words

    return read


def test_fills_and_copies_are_read_back(client, target, read_back):
    graph, stream = new_graph(client), client.stream()
    params = fill(client, target, 7, 16)
    kind, words = read_back(add(client, graph, params))
    assert (kind, words) == (MEMSET, list(params.words)[: len(words)])
    with captured(client, stream) as captured_graph:
        client.ok("cuMemcpyDtoDAsync_v2", target, target + 32, 16, stream)
    kind, words = read_back(captured_graph.nodes()[0])
    assert kind == MEMCPY
    assert words[1] == client.lib.primary
    assert {target, target + 32} < set(words)


def test_events_and_host_functions_are_read_back(client, read_back):
    graph, event = new_graph(client), client.event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    address = ctypes.cast(function, ctypes.c_void_p).value
    for kind, words in ((WAIT, [event]), (RECORD, [event]), (HOST, [address, 5])):
        found = read_back(add(client, graph, Params(kind, words=tuple(words))))
        assert (found[0], found[1][: len(words)]) == (kind, words)


def test_graphs_inside_are_read_back(client, target, read_back):
    graph = new_graph(client)
    node = add(client, graph, Params(CHILD, words=(filling(client, target, 1), 0)))
    inner = ctypes.c_void_p()
    client.ok("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(inner))
    kind, words = read_back(node)
    assert (kind, words[0]) == (CHILD, inner.value)
    node, bodies, handle = conditional(client, graph, IF, 2, 1)
    kind, words = read_back(node)
    assert (kind, words[:2]) == (CONDITIONAL, [handle, pair(IF, 2)])
    assert list((ctypes.c_void_p * 2).from_address(words[2])) == bodies


def test_kernels_are_read_back(client, read_back):
    stream, function = client.stream(), client.function(client.module(TEXT), "add")
    out = client.device(SIZE)
    with captured(client, stream) as graph:
        assert client.launch(function, stream, out, grid=2, block=3) == SUCCESS
    kind, words = read_back(graph.nodes()[0])
    assert kind == KERNEL
    assert words[1:4] == [pair(2, 1), pair(1, 3), pair(1, 1)]


def test_memory_nodes_are_read_back(client, read_back):
    graph = new_graph(client)
    # The words begin with a CUmemPoolProps: pinned memory of device 0. The size follows it.
    words = [0] * 29
    words[0], words[1], words[13] = 1, 1, SIZE
    node = add(client, graph, Params(ALLOC, words=tuple(words)))
    kind, words = read_back(node)
    assert (kind, words[13]) == (ALLOC, SIZE)
    freeing = add(client, graph, Params(FREE, words=(words[14],)), [node])
    assert read_back(freeing) == (FREE, [words[14]])


def test_reading_parameters_of_nothing(client, read_back):
    node = add(client, new_graph(client), Params(EMPTY))
    assert client.call("cuGraphNodeGetParams", node, None) == INVALID_VALUE
    assert client.call("cuGraphNodeGetParams", None, ctypes.byref(Params())) == INVALID_VALUE


# Edges


class Launch(ctypes.Structure):
    """A CUlaunchConfig."""

    _fields_ = [
        ("shape", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class Attribute(ctypes.Structure):
    """A CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


def overlapping(client, stream, function, allowed):
    """Launch a kernel. If `allowed` is 1, it may begin before the previous kernel ends."""
    attribute = Attribute(6, 0, (allowed,))  # PROGRAMMATIC_STREAM_SERIALIZATION
    config = Launch((1, 1, 1, 1, 1, 1, 0), stream, ctypes.addressof(attribute), 1)
    client.ok("cuLaunchKernelEx", ctypes.byref(config), function, None, None)


@pytest.mark.parametrize("allowed", [0, 1])
def test_programmatic_launches_are_captured_with_their_edge(client, allowed):
    stream, function = client.stream(), client.function(client.module(TEXT), "count")
    with captured(client, stream) as graph:
        assert client.launch(function, stream) == SUCCESS
        overlapping(client, stream, function, allowed)
    from_nodes, to_nodes = (ctypes.c_void_p * 1)(), (ctypes.c_void_p * 1)()
    data, count = (ctypes.c_ubyte * 8)(), ctypes.c_size_t(1)
    client.ok("cuGraphGetEdges_v2", graph.handle, from_nodes, to_nodes, data, ctypes.byref(count))
    # If allowed, the edge starts at the port PROGRAMMATIC and has the type PROGRAMMATIC.
    assert bytes(data) == (b"\1\0\1" if allowed else bytes(3)) + bytes(5)
    launched(client, graph.exec(), stream)


@pytest.mark.parametrize("updatable", [0, 1])
def test_launches_that_say_whether_kernels_can_update_them(software, client, updatable):
    def launch():
        attribute = Attribute(13, 0, (updatable,))  # DEVICE_UPDATABLE_KERNEL_NODE
        config = Launch((1, 1, 1, 1, 1, 1, 0), stream, ctypes.addressof(attribute), 1)
        return client.call("cuLaunchKernelEx", ctypes.byref(config), function, None, None)

    stream, function = client.stream(), client.function(client.module(TEXT), "count")
    assert launch() == NOT_SUPPORTED  # only nodes have this attribute
    with captured(client, stream) as graph:
        status = launch()
        if updatable:
            client.launch(function, stream)
    assert status == (NOT_SUPPORTED if updatable else SUCCESS)
    launched(client, graph.exec(), stream)


# Memory of graphs

USED, USED_HIGH, RESERVED, RESERVED_HIGH = range(4)


def graph_memory(client, attribute=RESERVED):
    value = ctypes.c_uint64()
    client.ok("cuDeviceGetGraphMemAttribute", 0, attribute, ctypes.byref(value))
    return value.value


def test_graphs_hold_memory_until_it_is_trimmed(client):
    stream, address = client.stream(), ctypes.c_uint64()
    client.ok("cuDeviceGraphMemTrim", 0)
    before = graph_memory(client)
    with captured(client, stream) as graph:
        client.ok("cuMemAllocAsync", ctypes.byref(address), SIZE, stream)
    step = graph.exec()
    assert graph_memory(client) == before
    launched(client, step, stream)
    held = graph_memory(client)
    assert held >= before
    assert held >= SIZE
    client.ok("cuMemFree_v2", address)
    assert graph_memory(client) == held
    client.ok("cuGraphExecDestroy", step)
    client.forget("cuGraphExecDestroy", step)
    client.ok("cuDeviceGraphMemTrim", 0)
    assert graph_memory(client) == before
    assert graph_memory(client, RESERVED_HIGH) >= held
    assert graph_memory(client, USED_HIGH) >= held
