"""Instantiation of graphs with conditional nodes while other graphs contain copies of them."""

import ctypes

import pytest

from .client import SUCCESS
from .graphs import IF, conditional, instantiated, new_graph

REFUSED = 801, None


def add_child(client, parent, child):
    node = ctypes.c_void_p()
    client.ok("cuGraphAddChildGraphNode", ctypes.byref(node), parent, None, 0, child)


def destroy(client, function, handle):
    client.forget(function, handle)
    client.ok(function, handle)


def test_a_copy_in_a_graph_with_an_executable_prevents_another(client):
    child, parent = new_graph(client), new_graph(client)
    add_child(client, parent, child)
    _, step = instantiated(client, parent)
    conditional(client, child, IF, 1, 1)
    assert instantiated(client, child) == REFUSED
    destroy(client, "cuGraphExecDestroy", step)
    assert instantiated(client, child) == REFUSED
    destroy(client, "cuGraphDestroy", parent)
    assert instantiated(client, child)[0] == SUCCESS


def test_a_copy_in_an_executable_prevents_nothing(client):
    child, parent = new_graph(client), new_graph(client)
    add_child(client, parent, child)
    instantiated(client, parent)
    conditional(client, child, IF, 1, 1)
    destroy(client, "cuGraphDestroy", parent)
    assert instantiated(client, child)[0] == SUCCESS


@pytest.mark.parametrize("where", ["graph", "body", "copied graph"])
def test_only_a_copy_of_the_graph_itself_prevents_an_executable(client, where):
    """A copy of the child in its parent prevents an executable of the child.

    It makes no difference whether the parent is itself copied into a third graph.
    """
    child, parent = new_graph(client), new_graph(client)
    place = conditional(client, parent, IF, 1, 1)[1][0] if where == "body" else parent
    add_child(client, place, child)
    if where == "copied graph":
        add_child(client, new_graph(client), parent)
    conditional(client, child, IF, 1, 1)
    assert instantiated(client, child) == REFUSED
    destroy(client, "cuGraphDestroy", parent)
    assert instantiated(client, child)[0] == SUCCESS


def test_an_executable_of_the_child_does_not_prevent_one_of_the_parent(client):
    child, parent = new_graph(client), new_graph(client)
    add_child(client, parent, child)
    assert instantiated(client, child)[0] == SUCCESS
    conditional(client, parent, IF, 1, 1)
    assert instantiated(client, parent)[0] == SUCCESS
