"""Launches of graphs: results, order of nodes, lifetimes of graphs and executables."""

import ctypes
import itertools
import random

import pytest

from .client import HOST_FUNCTION, INVALID_VALUE, NOT_READY, SUCCESS
from .graphs import IF, SWITCH, WHILE, RandomWork, captured, conditional, forked, inside, joined
from .race_program import Program

SIZE = 64


@pytest.fixture
def client(lib, schedule):
    if lib.software:
        lib.configure(f"schedule={schedule},seed=1,fault=none")
    with Program(lib) as client:
        before = lib.counts()
        yield client
        client.close()
        client.ok("cuCtxSynchronize")
        assert lib.counts() == before


def test_each_launch_does_the_captured_work(client):
    stream = client.stream()
    source, target = client.host(SIZE), client.device(SIZE)
    with captured(client, stream) as graph:
        client.upload(target, source, stream, SIZE)
    step = graph.exec()
    for value in (1, 2, 3):
        ctypes.memset(source, value, SIZE)
        client.ok("cuGraphLaunch", step, stream)
        assert client.read(target, SIZE) == bytes([value]) * SIZE


@pytest.mark.parametrize("seed", range(8))
def test_a_launch_computes_what_its_operations_compute(client, seed):
    work = RandomWork(random.Random(seed), 30)
    streams = [client.stream() for _ in range(work.STREAMS)]
    main = client.stream()
    results = []
    for as_graph in (False, True):
        buffers = [client.device(work.BYTES) for _ in range(work.BUFFERS)]
        for i, buffer in enumerate(buffers):
            client.write(buffer, bytes([100 + i]) * work.BYTES)
        for _ in range(2):
            if as_graph:
                with captured(client, main) as graph:
                    forked(client, main, streams)
                    work.issue(client, streams, buffers)
                    joined(client, main, streams)
                client.ok("cuGraphLaunch", graph.exec(), main)
            else:
                forked(client, main, streams)
                work.issue(client, streams, buffers)
                joined(client, main, streams)
        results.append(work.contents(client, buffers))
    assert results[0] == results[1]


# A kernel that appends a number to a list. The first word of the list is its length.
APPEND = b"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry append(.param .u64 list, .param .u32 number)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [list];
    ld.param.u32 %r1, [number];
    atom.global.add.u32 %r2, [%rd1], 1;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3+4], %r1;
    ret;
}
"""


def test_branches_run_in_every_order_and_edges_hold(client, lib, schedule):
    edges = [(0, 1), (2, 3)]
    append = client.function(client.module(APPEND), "append")
    found, main = set(), client.stream()
    streams = [client.stream() for _ in range(4)]
    written = client.device(SIZE)
    with captured(client, main) as graph:
        forked(client, main, streams)
        for i, stream in enumerate(streams):
            for before, after in edges:
                if after == i:
                    client.order(streams[before], stream)
            assert client.launch(append, stream, written, ctypes.c_uint32(i)) == SUCCESS
        joined(client, main, streams)
    step = graph.exec()
    for seed in range(60):
        if lib.software:
            lib.configure(f"schedule={schedule},seed={seed}")
        client.write(written, bytes(SIZE))
        client.ok("cuGraphLaunch", step, main)
        content = client.read(written, SIZE)
        found.add(tuple(content[4:20:4]))
    legal = {
        order
        for order in itertools.permutations(range(4))
        if all(order.index(a) < order.index(b) for a, b in edges)
    }
    assert found <= legal
    if schedule in ("lazy", "random"):
        assert found == legal


def test_host_functions_follow_the_edges(client):
    stream, called = client.stream(), []
    calls = [HOST_FUNCTION(lambda _, i=i: called.append(i)) for i in range(5)]
    with captured(client, stream) as graph:
        for call in calls:
            client.ok("cuLaunchHostFunc", stream, call, None)
    client.ok("cuGraphLaunch", graph.exec(), stream)
    client.ok("cuStreamSynchronize", stream)
    assert called == list(range(5))


def test_second_launch_waits_for_the_first_on_another_stream(client):
    first, second = client.streams()
    a, b = client.device(SIZE), client.device(SIZE)
    with captured(client, first) as graph:
        client.fill(a, first, SIZE)
    step = graph.exec()
    gate = client.gate().hold(first)
    client.ok("cuGraphLaunch", step, first)
    client.ok("cuGraphLaunch", step, second)
    client.fill(b, second, SIZE)
    assert client.call("cuStreamQuery", second) == NOT_READY
    gate.open()
    client.ok("cuStreamSynchronize", second)
    assert client.call("cuStreamQuery", first) in (SUCCESS, NOT_READY)


def test_executable_can_be_destroyed_while_a_launch_is_held(client):
    stream, target = client.stream(), client.device(SIZE)
    client.write(target, bytes(SIZE))
    with captured(client, stream) as graph:
        client.fill(target, stream, SIZE)
    step = graph.exec()
    gate = client.gate().hold(stream)
    client.ok("cuGraphLaunch", step, stream)
    client.forget("cuGraphExecDestroy", step)
    client.ok("cuGraphExecDestroy", step)
    client.forget("cuGraphDestroy", graph.handle)
    client.ok("cuGraphDestroy", graph.handle)
    gate.open()
    assert client.read(target, SIZE) == b"\1" * SIZE


def test_child_graphs_and_clones_run(client):
    stream, target = client.stream(), client.device(SIZE)
    client.write(target, bytes(SIZE))
    with captured(client, stream) as inner:
        client.fill(target, stream, SIZE)
    with captured(client, stream) as outer:
        pass
    node, clone = ctypes.c_void_p(), ctypes.c_void_p()
    client.ok("cuGraphAddChildGraphNode", ctypes.byref(node), outer.handle, None, 0, inner.handle)
    client.ok("cuGraphClone", ctypes.byref(clone), outer.handle)
    client._undo.append(("cuGraphDestroy", clone.value))
    for name, handle in (("outer", outer.handle), ("clone", clone.value)):
        client.write(target, bytes(SIZE))
        outer.handle = handle
        client.ok("cuGraphLaunch", outer.exec(), stream)
        assert client.read(target, SIZE) == b"\1" * SIZE, name


def test_memory_of_a_graph_is_allocated_and_freed_by_each_launch(client):
    stream, target = client.stream(), client.device(SIZE)
    with captured(client, stream) as graph:
        memory = client.allocate_async(stream, SIZE)
        client.fill(memory, stream, SIZE)
        client.move(target, memory, stream, SIZE)
        client.ok("cuMemFreeAsync", memory, stream)
    step = graph.exec()
    for _ in range(3):
        client.write(target, bytes(SIZE))
        client.ok("cuGraphLaunch", step, stream)
        assert client.read(target, SIZE) == b"\1" * SIZE
    assert client.call("cuMemFree_v2", memory) == INVALID_VALUE


def test_memory_that_a_graph_leaves_is_freed_by_the_program(client):
    stream = client.stream()
    with captured(client, stream) as graph:
        memory = client.allocate_async(stream, SIZE)
        client.fill(memory, stream, SIZE)
    step = graph.exec()
    for _ in range(2):
        client.ok("cuGraphLaunch", step, stream)
        assert client.call("cuGraphLaunch", step, stream) == INVALID_VALUE
        assert client.read(memory, SIZE) == b"\1" * SIZE
        client.ok("cuMemFree_v2", memory)
    client.ok("cuStreamSynchronize", stream)


def test_update_changes_the_next_launch_only(client):
    stream, target = client.stream(), client.device(SIZE)
    graphs = []
    for value in (1, 2):
        with captured(client, stream) as graph:
            client.ok("cuMemsetD8Async", target, value, SIZE, stream)
        graphs.append(graph)
    step = graphs[0].exec()
    copy = client.device(SIZE)
    gate = client.gate().hold(stream)
    client.ok("cuGraphLaunch", step, stream)
    client.move(copy, target, stream, SIZE)
    info = (ctypes.c_uint64 * 3)()
    client.ok("cuGraphExecUpdate_v2", step, graphs[1].handle, info)
    client.ok("cuGraphLaunch", step, stream)
    gate.open()
    assert client.read(copy, SIZE) == b"\1" * SIZE
    assert client.read(target, SIZE) == b"\2" * SIZE


def test_disabled_node_does_nothing(client):
    stream, target = client.stream(), client.device(SIZE)
    client.write(target, bytes(SIZE))
    with captured(client, stream) as graph:
        client.fill(target, stream, SIZE // 2)
        client.fill(target + SIZE // 2, stream, SIZE // 2)
    step = graph.exec()
    client.ok("cuGraphNodeSetEnabled", step, graph.nodes()[0], 0)
    client.ok("cuGraphLaunch", step, stream)
    assert client.read(target, SIZE) == bytes(SIZE // 2) + b"\1" * (SIZE // 2)


# A kernel that decrements a number, and sets a condition to the result.
COUNT_DOWN = b"""
.version 7.5
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count_down(.param .u64 at, .param .u64 handle)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [at];
    ld.param.u64 %rd2, [handle];
    ld.global.u32 %r1, [%rd1];
    sub.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    {
        .param .b64 one;
        .param .b32 two;
        st.param.b64 [one], %rd2;
        st.param.b32 [two], %r2;
        call.uni cudaGraphSetConditional, (one, two);
    }
    ret;
}
"""


def test_while_node_runs_its_body_until_a_kernel_says_no(client):
    stream, left, total = client.stream(), client.device(4), client.device(SIZE)
    count_down = client.function(client.module(COUNT_DOWN), "count_down")
    append = client.function(client.module(APPEND), "append")
    with captured(client, stream) as graph:
        client.ok("cuMemsetD32Async", left, 5, 1, stream)
        client.ok("cuMemsetD32Async", total, 0, 1, stream)
    _, (body,), handle = conditional(client, graph.handle, WHILE, 1, 1, graph.nodes()[1:])
    with inside(client, body, stream):
        assert client.launch(append, stream, total, ctypes.c_uint32(9)) == SUCCESS
        assert client.launch(count_down, stream, left, handle) == SUCCESS
    step = graph.exec()
    for _ in range(2):
        client.ok("cuGraphLaunch", step, stream)
        assert client.read(left, 4) == bytes(4)
        assert client.read(total, 4) == b"\5\0\0\0"


def test_changes_in_a_conditional_node_are_for_later_launches(client):
    stream, target = client.stream(), client.device(SIZE)
    client.write(target, bytes(SIZE))
    with captured(client, stream) as graph:
        pass
    _, (body,), _ = conditional(client, graph.handle, IF, 1, 1)
    with inside(client, body, stream):
        client.ok("cuMemsetD8Async", target, 1, 1, stream)
    step, node, count = graph.exec(), ctypes.c_void_p(), ctypes.c_size_t(1)
    client.ok("cuGraphGetNodes", body, ctypes.byref(node), ctypes.byref(count))
    gate = client.gate().hold(stream)
    client.ok("cuGraphLaunch", step, stream)
    client.ok("cuGraphNodeSetEnabled", step, node, 0)
    gate.open()
    assert client.read(target, 1) == b"\1"


@pytest.mark.parametrize(
    ("kind", "count", "value", "runs"),
    [(IF, 1, 1, [0]), (IF, 1, 0, []), (IF, 2, 0, [1]), (IF, 2, 7, [0]), (SWITCH, 3, 2, [2]),
     (SWITCH, 3, 3, []), (WHILE, 1, 0, [])],
)  # fmt: skip
def test_conditional_nodes_run_what_the_value_chooses(client, kind, count, value, runs):
    stream, target = client.stream(), client.device(SIZE)
    with captured(client, stream) as graph:
        client.ok("cuMemsetD8Async", target, 0, SIZE, stream)
    _, bodies, _ = conditional(client, graph.handle, kind, count, value, graph.nodes())
    for i, body in enumerate(bodies):
        with inside(client, body, stream):
            client.ok("cuMemsetD8Async", target + i, 1, 1, stream)
    client.ok("cuGraphLaunch", graph.exec(), stream)
    assert client.read(target, 4) == bytes(i in runs for i in range(4))


@pytest.mark.cuda_software
def test_use_of_freed_memory_loses_the_device(lost):
    stream, target = lost.stream(), lost.device(SIZE)
    with captured(lost, stream) as graph:
        lost.ok("cuMemsetD8Async", target, 1, SIZE, stream)
    step = graph.exec()
    lost.ok("cuMemFree_v2", target)
    lost.ok("cuGraphLaunch", step, stream)
    assert lost.call("cuStreamSynchronize", stream) == 700
