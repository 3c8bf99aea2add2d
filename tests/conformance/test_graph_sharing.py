"""Graphs with conditional nodes whose copies other graphs have: when they can be instantiated."""

import ctypes

from .client import SUCCESS
from .graphs import IF, conditional, instantiated, new_graph

REFUSED = 801, None


def add_child(client, parent, child):
    node = ctypes.c_void_p()
    client.ok("cuGraphAddChildGraphNode", ctypes.byref(node), parent, None, 0, child)


def destroy(client, function, handle):
    client.forget(function, handle)
    client.ok(function, handle)


def test_a_copy_in_another_graph_prevents_an_executable(client):
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


def test_a_copy_in_a_graph_without_executables_prevents_it(client):
    child, parent = new_graph(client), new_graph(client)
    add_child(client, parent, child)
    conditional(client, child, IF, 1, 1)
    assert instantiated(client, child) == REFUSED
    destroy(client, "cuGraphDestroy", parent)
    assert instantiated(client, child)[0] == SUCCESS


def test_a_copy_in_a_body_prevents_it(client):
    child, parent = new_graph(client), new_graph(client)
    _, (body,), _ = conditional(client, parent, IF, 1, 1)
    add_child(client, body, child)
    conditional(client, child, IF, 1, 1)
    assert instantiated(client, child) == REFUSED
    destroy(client, "cuGraphDestroy", parent)
    assert instantiated(client, child)[0] == SUCCESS


def test_a_copy_of_a_copy_prevents_nothing(client):
    child, parent, top = (new_graph(client) for _ in range(3))
    add_child(client, parent, child)
    add_child(client, top, parent)
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
