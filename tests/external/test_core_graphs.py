"""Graphs of cuda.core on the software driver: captured from streams, and built from nodes."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import (
    Device,
    GraphMemoryResource,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core.graph import GraphDefinition
from cuda.core.graph._graph_node import _node_registry

pytestmark = pytest.mark.usefixtures("device")
N = 64  # number of items


@pytest.fixture
def numbers(stream):
    """Page-locked memory with the numbers 0, 1, 2 and so on."""
    buffer = LegacyPinnedMemoryResource().allocate(4 * N, stream=stream)
    array(buffer)[:] = np.arange(N)
    yield buffer
    stream.sync()
    buffer.close()


@pytest.fixture
def kernel(scale):
    return ObjectCode.from_ptx(scale).get_kernel("scale")


def array(buffer):
    content = (ctypes.c_uint32 * N).from_address(int(buffer.handle))
    return np.frombuffer(content, "u4")


CONFIG = LaunchConfig(grid=1, block=N)


def test_built_from_a_stream(device, stream, numbers, kernel):
    builder = device.create_graph_builder().begin_building()
    for by in (2, 5):
        launch(builder, CONFIG, kernel, numbers, np.uint32(N), np.uint32(by))
    graph = builder.end_building().complete()
    for count in (1, 2):
        graph.launch(stream)
        stream.sync()
        assert (array(numbers) == np.arange(N) * 10**count).all()
    graph.close()
    builder.close()


def test_branches_and_callbacks(device, stream, numbers, kernel):
    called = []
    builder = device.create_graph_builder().begin_building()
    left, right = builder.split(2)
    half = int(numbers.handle) + 2 * N
    launch(left, CONFIG, kernel, int(numbers.handle), np.uint32(N // 2), np.uint32(2))
    launch(right, CONFIG, kernel, half, np.uint32(N // 2), np.uint32(3))
    joined = type(builder).join(left, right)
    joined.callback(lambda: called.append(1))
    graph = joined.end_building().complete()
    graph.upload(stream)
    graph.launch(stream)
    stream.sync()
    assert called == [1]
    assert (array(numbers) == np.arange(N) * np.repeat([2, 3], N // 2)).all()
    graph.close()
    joined.close()


def test_update(device, stream, numbers, kernel):
    builders = []
    for by in (2, 3):
        builder = device.create_graph_builder().begin_building()
        launch(builder, CONFIG, kernel, numbers, np.uint32(N), np.uint32(by))
        builders.append(builder.end_building())
    graph = builders[0].complete()
    graph.launch(stream)
    graph.update(builders[1])
    graph.launch(stream)
    stream.sync()
    assert (array(numbers) == np.arange(N) * 6).all()
    graph.close()
    for builder in builders:
        builder.close()


def test_made_of_nodes(stream, numbers, kernel):
    definition = GraphDefinition()
    made = definition.allocate(4 * N)
    filled = made.memset(made.dptr, np.uint32(7), N)
    scaled = filled.launch(CONFIG, kernel, made.dptr, np.uint32(N), np.uint32(2))
    copied = scaled.memcpy(numbers, made.dptr, 4 * N)
    copied.deallocate(made.dptr)
    assert len(definition.nodes()) == 5
    assert len(definition.edges()) == 4
    assert filled.pred == {made}
    assert filled.succ == {scaled}
    graph = definition.instantiate()
    for _ in range(2):
        array(numbers)[:] = 0
        graph.launch(stream)
        stream.sync()
        assert (array(numbers) == 14).all()
    graph.close()


def test_edges_and_destruction(stream, numbers):
    definition = GraphDefinition()
    first, second = definition.empty(), definition.empty()
    third = definition.join(first, second)
    assert third.pred == {first, second}
    third.pred.discard(second)
    second.succ.add(first)
    assert definition.edges() == {(second, first), (first, third)}
    third.destroy()
    assert not third.is_valid
    assert definition.nodes() == {first, second}


def test_embedded(stream, numbers, kernel):
    inner, outer = GraphDefinition(), GraphDefinition()
    inner.launch(CONFIG, kernel, numbers, np.uint32(N), np.uint32(2))
    outer.embed(inner).embed(inner)
    graph = outer.instantiate()
    graph.launch(stream)
    stream.sync()
    assert (array(numbers) == np.arange(N) * 4).all()
    graph.close()


def test_events(device, stream, numbers, kernel):
    event, other = device.create_event(), device.create_stream()
    definition = GraphDefinition()
    definition.launch(CONFIG, kernel, numbers, np.uint32(N), np.uint32(2)).record(event)
    graph = definition.instantiate()
    graph.launch(stream)
    other.wait(event)
    launch(other, CONFIG, kernel, numbers, np.uint32(N), np.uint32(3))
    other.sync()
    assert (array(numbers) == np.arange(N) * 6).all()
    graph.close()
    other.close()


def test_picture(tmp_path, device, kernel, numbers):
    builder = device.create_graph_builder().begin_building()
    launch(builder, CONFIG, kernel, numbers, np.uint32(N), np.uint32(2))
    builder.end_building().debug_dot_print(str(tmp_path / "graph.dot"))
    builder.close()
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert "scale" in text


COUNT_DOWN = """
extern "C" __device__ void cudaGraphSetConditional(unsigned long long, unsigned);
extern "C" __global__ void count_down(unsigned *at, unsigned long long handle)
{
    unsigned left = --*at;
    cudaGraphSetConditional(handle, left);
}
"""


def test_while_loop(device, stream, numbers):
    program = Program(COUNT_DOWN, "c++", ProgramOptions(arch="sm_90"))
    kernel = program.compile("ptx").get_kernel("count_down")
    builder = device.create_graph_builder().begin_building()
    condition = builder.create_condition(default_value=1)
    body = builder.while_loop(condition).begin_building()
    launch(body, LaunchConfig(grid=1, block=1), kernel, int(numbers.handle) + 20, condition)
    body.end_building()
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert array(numbers)[5] == 0
    graph.close()
    builder.close()


@pytest.mark.parametrize("value", [0, 1, 2])
def test_switch(stream, numbers, kernel, value):
    definition = GraphDefinition()
    node = definition.switch(definition.create_condition(default_value=value), 2)
    for by, branch in zip((3, 5), node.branches, strict=True):
        branch.launch(CONFIG, kernel, numbers, np.uint32(N), np.uint32(by))
    graph = definition.instantiate()
    graph.launch(stream)
    stream.sync()
    assert (array(numbers) == np.arange(N) * (3, 5, 1)[value]).all()
    graph.close()


def test_condition_in_the_body_of_another(stream, numbers, kernel):
    definition = GraphDefinition()
    inner = definition.create_condition(default_value=0)
    outer = definition.create_condition(default_value=1)
    node = definition.if_then(outer).then.if_else(inner)
    for by, branch in ((3, node.then), (5, node.else_)):
        branch.launch(CONFIG, kernel, numbers, np.uint32(N), np.uint32(by))
    graph = definition.instantiate()
    graph.launch(stream)
    stream.sync()
    assert (array(numbers) == np.arange(N) * 5).all()
    graph.close()


def test_update_of_a_condition(stream, numbers, kernel):
    definitions = []
    for value in (0, 1):
        definition = GraphDefinition()
        node = definition.switch(definition.create_condition(default_value=value), 2)
        for by, branch in zip((3, 5), node.branches, strict=True):
            branch.launch(CONFIG, kernel, numbers, np.uint32(N), np.uint32(by))
        definitions.append(definition)
    graph = definitions[0].instantiate()
    graph.launch(stream)
    graph.update(definitions[1])
    graph.launch(stream)
    stream.sync()
    assert (array(numbers) == np.arange(N) * 15).all()
    graph.close()


def calling(called, what):
    """A definition with a callback, and a weak reference to this callback."""

    def callback():
        called.append(what)

    definition = GraphDefinition()
    definition.callback(callback)
    return definition, weakref.ref(callback)


def test_child_graphs_are_replaced(stream):
    called = []
    definition = GraphDefinition()
    node = definition.embed(calling(called, "first")[0])
    graph = definition.instantiate()
    child, _ = calling(called, "second")
    node.update(child)
    other = definition.instantiate()
    child, alive = calling(called, "third")
    graph[node].update(child)
    del child
    gc.collect()
    assert alive() is not None  # the executable graph keeps the callback
    for each in (graph, other):
        each.launch(stream)
        stream.sync()
    assert called == ["third", "second"]
    graph.close()
    other.close()


def test_programmatic_launches(device, kernel, numbers):
    builder = device.create_graph_builder().begin_building()
    early = LaunchConfig(grid=1, block=N, programmatic_stream_serialization=True)
    for config in (CONFIG, early):
        launch(builder, config, kernel, numbers, np.uint32(N), np.uint32(2))
    builder.end_building()
    handle = builder.graph_definition.handle
    status, *_, count = driver.cuGraphGetEdges(handle)
    status, _, _, (edge,), _ = driver.cuGraphGetEdges(handle, count)
    assert status == driver.CUresult.CUDA_SUCCESS
    assert edge.type == driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    assert edge.from_port == driver.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    builder.close()


def test_memory_of_graphs(device, stream):
    resource = GraphMemoryResource(device)
    resource.trim()
    before = resource.attributes.reserved_mem_current
    builder = device.create_graph_builder().begin_building()
    buffer = resource.allocate(4 * N, stream=builder)
    graph = builder.end_building().complete()
    graph.launch(stream)
    buffer.close(stream=stream)
    stream.sync()
    graph.close()
    builder.close()
    assert resource.attributes.reserved_mem_current > before
    resource.trim()
    assert resource.attributes.reserved_mem_current == before


def test_peers_of_an_allocation(device):
    definition = GraphDefinition()
    node = definition.allocate(4 * N, peer_access=[Device(1)])
    after = node.join()
    del node
    gc.collect()
    (again,) = after.pred  # read from the driver
    assert again.peer_access == (1,)


def nodes_of_each_kind(device, kernel, definition):
    """Add nodes of each kind; returns them. They run without an error."""
    memory, event = definition.allocate(4 * N), device.create_event()
    filled = memory.memset(memory.dptr, 1, 4 * N)
    copied = filled.memcpy(memory.dptr + 2 * N, memory.dptr, 2 * N)
    launched = copied.launch(CONFIG, kernel, memory.dptr, np.uint32(N), np.uint32(2))
    child = GraphDefinition()
    child.callback(lambda: None)
    condition = definition.create_condition(default_value=1)
    nodes = [memory, filled, copied, launched, launched.deallocate(memory.dptr)]
    nodes += [definition.record(event), definition.wait(event), definition.callback(lambda: None)]
    nodes += [definition.embed(child), definition.if_then(condition), definition.join(*nodes[-2:])]
    nodes[-2].then.launch(LaunchConfig(grid=1, block=1), kernel, 0, np.uint32(0), np.uint32(1))
    return nodes


def test_no_node_outlives_its_graph(device, stream, kernel):
    gc.collect()
    before = set(_node_registry.values())
    definition = GraphDefinition()
    nodes = nodes_of_each_kind(device, kernel, definition)
    assert definition.nodes() == set(nodes) == set(_node_registry.values()) - before
    graph = definition.instantiate()
    graph.launch(stream)
    stream.sync()
    graph.close()
    del nodes, definition
    gc.collect()
    assert set(_node_registry.values()) == before
