"""Nodes that write values or wait for them: what can be changed once they are instantiated.

The answers are those of an H200 with driver 580.159.04.
"""

import ctypes

from .client import INVALID_VALUE, SUCCESS
from .graphs import instantiated, new_graph
from .test_stream_attributes import GEQ, WAIT_64, WRITE_64, Item

UPDATE_FAILED = 910
PARAMETERS_CHANGED = 5


class Params(ctypes.Structure):
    """A CUDA_BATCH_MEM_OP_NODE_PARAMS."""

    _fields_ = [
        ("context", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("items", ctypes.POINTER(Item)),
        ("flags", ctypes.c_uint),
    ]


def params(client, *items, context=True):
    array = (Item * len(items))(*[Item(*item) for item in items])
    return ctypes.byref(Params(client.lib.primary if context else None, len(items), array, 0))


def graph_of(client, *items):
    graph, node = new_graph(client), ctypes.c_void_p()
    client.ok(
        "cuGraphAddBatchMemOpNode", ctypes.byref(node), graph, None, 0, params(client, *items)
    )
    return graph, node.value


def test_only_addresses_and_numbers_change(client):
    words, stream = client.host(64), client.stream()
    items = (ctypes.c_uint64 * 8).from_address(words)
    graph, node = graph_of(client, (WRITE_64, words, 1, 0))
    status, step = instantiated(client, graph)
    assert status == SUCCESS

    def changed(*items, **options):
        given = params(client, *items, **options)
        return client.call("cuGraphExecBatchMemOpNodeSetParams", step, node, given)

    assert changed((WRITE_64, words + 8, 2, 0)) == SUCCESS
    assert changed((WRITE_64, words, 3, 0), (WRITE_64, words + 8, 3, 0)) == INVALID_VALUE
    assert changed((WAIT_64, words, 0, GEQ)) == INVALID_VALUE
    assert changed((WRITE_64, words, 3, 0), context=False) == INVALID_VALUE
    assert client.call("cuGraphNodeSetEnabled", step, node, 0) == INVALID_VALUE
    client.ok("cuGraphLaunch", step, stream)
    assert client.finish(stream) == SUCCESS
    assert list(items[:2]) == [0, 2]


def test_updates(client):
    words = client.host(64)
    status, step = instantiated(client, graph_of(client, (WRITE_64, words, 1, 0))[0])
    assert status == SUCCESS
    for item, answer, why in (
        ((WRITE_64, words + 8, 2, 0), SUCCESS, 0),
        ((WAIT_64, words, 0, GEQ), UPDATE_FAILED, PARAMETERS_CHANGED),
    ):
        found = (ctypes.c_void_p * 3)()
        other, _ = graph_of(client, item)
        assert client.call("cuGraphExecUpdate_v2", step, other, ctypes.byref(found)) == answer
        assert (found[0] or 0) & 0xFFFFFFFF == why
