"""The numbers of graphs and of nodes, and the graph of a node. Needs CUDA 13.1 or newer."""

import ctypes

import pytest

from .client import INVALID_VALUE
from .graphs import instantiated, new_graph


def ask(client, name, handle, kind=ctypes.c_uint):
    client.require(name)
    answer = kind()
    client.ok(name, handle, ctypes.byref(answer))
    return answer.value


def empty_node(client, graph):
    node = ctypes.c_void_p()
    client.ok("cuGraphAddEmptyNode", ctypes.byref(node), graph, None, 0)
    return node.value


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
    """A node keeps its number in its graph while other nodes are added and destroyed."""
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
    ],
)
def test_null_is_refused(client, name):
    client.require(name)
    graph = new_graph(client)
    node = empty_node(client, graph)
    assert client.call(name, None, ctypes.byref(ctypes.c_uint64())) == INVALID_VALUE
    handle = {"cuGraphGetId": graph, "cuGraphExecGetId": None}.get(name, node)
    assert client.call(name, handle, None) == INVALID_VALUE
