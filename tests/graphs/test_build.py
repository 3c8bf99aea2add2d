"""Nodes that are added without a capture: what they do, how they are checked, and refused nodes."""

import gc
import threading

import numpy as np
import pytest

import cudadrv as cu

pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy", "random"], indirect=True)


def pairs(graph):
    nodes = graph.nodes
    return {(nodes.index(first), nodes.index(second)) for first, second in graph.edges}


def launched(world, graph):
    with graph.instantiate() as step:
        step.launch(world.main).wait()


def test_a_graph_is_built_and_launched(world, module):
    graph = world.graph
    load = graph.add_copy(world.work, world.frames)
    ones = graph.add_fill(world.out, 1)
    sum_ = graph.add_launch(
        module["saxpy"], 1, 16, 2.0, cu.read(world.work), world.out, 16, after=[load, ones]
    )
    graph.add_copy(world.result, world.out, after=[sum_])
    world.frames[:] = range(16)
    assert not world.work.borrowed
    launched(world, graph)
    assert list(world.result) == [2 * i + 1 for i in range(16)]
    assert pairs(graph) == {(0, 2), (1, 2), (2, 3)}
    assert [node.operation for node in graph.nodes] == [
        "add_copy", "add_fill", "launch of saxpy", "add_copy"
    ]  # fmt: skip
    assert [node.stream for node in graph.nodes] == [None] * 4
    assert [node.bodies for node in graph.nodes] == [()] * 4
    assert sum_.reads == (world.work,)
    assert sum_.writes == (world.out,)
    assert load.site.split(":")[0].endswith("test_build.py")


def test_clusters_where_there_are_any(world, module):
    arguments = 2.0, cu.read(world.work), world.out, 16
    if not cu.Device(0).attribute("cluster_launch"):
        with pytest.raises(ValueError, match=r"clusters of blocks .its attribute cluster_la"):
            world.graph.add_launch(module["saxpy"], 2, 8, *arguments, cluster=2)
        return
    added = world.graph.add_launch(module["saxpy"], 2, 8, *arguments, cluster=2)
    with pytest.raises(ValueError, match="cannot be cut into clusters of"):
        world.graph.add_launch(module["saxpy"], 3, 8, *arguments, cluster=2)
    world.work.fill(3)
    with world.graph.instantiate() as step:
        step.launch(world.main).wait()
        first = world.out.to_numpy()
        with pytest.raises(ValueError, match="cannot be cut into clusters of"):
            step[added].set(grid=3)
        step[added].set(grid=4, block=4)
        step.launch(world.main).wait()
    assert list(first) == [6] * 16
    assert list(world.out.to_numpy()) == [12] * 16


KINDS = (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer)


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_copies_between_all_kinds(world, source, target):
    first, second = source.from_array(np.arange(16, dtype="f4")), target.zeros(16, "f4")
    world.graph.add_copy(second[4:], first[:12])
    launched(world, world.graph)
    found = np.zeros(16, "f4")
    second.copy_to(found)
    assert list(found) == [0] * 4 + list(range(12))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("u1", 200), ("i2", -3), ("u4", 1 << 31), ("f4", 1.5), ("u8", (5 << 32) + 7), ("i8", -1),
     ("f8", 2.5), ("c16", 2 - 1j), ("c16", 0), ("V16", np.void(b"x" * 16)),
     ("u4,u4,u4", np.array((1, 2, 3), "u4,u4,u4")[()]), ("V5", np.void(b"xxxxx"))],
)  # fmt: skip
def test_fills_of_all_sizes(world, dtype, value):
    buffer, result = cu.DeviceBuffer.zeros(9, dtype), cu.LockedBuffer.zeros(9, dtype)
    expected = np.zeros(9, dtype)
    expected[2:] = value
    fill = world.graph.add_fill(buffer[2:], value)
    world.graph.add_copy(result, buffer, after=[fill])
    launched(world, world.graph)
    assert bytes(result) == expected.tobytes()


def test_a_conflict_is_refused_at_the_second_line(world):
    world.graph.add_fill(world.out, 1)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        world.graph.add_copy(world.result, world.out)
    text = str(caught.value)
    assert "cannot read DeviceBuffer 'out'[0:16] (float32) by add_copy in graph 'step'" in text
    assert "it is being written by add_fill at" in text
    assert "after=[node]" in text
    assert len(world.graph.nodes) == 1
    world.result.close()


def test_bare_arguments_of_launches_are_explained(world, module):
    world.graph.add_copy(world.result, world.work)
    with pytest.raises(cu.BufferBorrowedError, match=r"argument 1 \(x.*(?s:.*)cudadrv.read"):
        world.graph.add_launch(module["saxpy"], 1, 16, 2.0, world.work, world.out, 16)


def test_what_does_not_conflict(world):
    graph = world.graph
    graph.add_copy(world.out[:8], world.work[:8])
    graph.add_copy(world.out[8:], world.work[:8])
    graph.add_copy(world.result, world.frames)
    assert graph.edges == ()


def test_order_follows_from_all_edges_and_from_no_others(world):
    """Nodes are ordered by their edges and by nothing else. Refused nodes add no edges."""
    graph = world.graph
    a = graph.add_fill(world.work, 1)
    b = graph.add_fill(world.out, 2)
    with pytest.raises(cu.BufferBorrowedError):
        graph.add_fill(world.out[:1], 3, after=[a])
    with pytest.raises(cu.BufferBorrowedError):
        graph.add_copy(world.result, world.out, after=[a])
    c = graph.add_copy(world.result, world.work, after=[a])
    with pytest.raises(cu.BufferBorrowedError):
        graph.add_copy(world.frames, world.out, after=[c])
    d = graph.add_copy(world.frames, world.out, after=[c, b])
    with pytest.raises(cu.BufferBorrowedError):
        graph.add_fill(world.frames, 1, after=[c, b, a])
    graph.add_fill(world.work, 1, after=[d])
    assert pairs(graph) == {(0, 2), (1, 3), (2, 3), (3, 4)}


def test_a_refused_node_teaches_its_stream_nothing(world):
    graph = world.graph
    a, b = graph.add_fill(world.work, 1), graph.add_fill(world.out, 2)
    graph.add_fill(world.result, 2)
    # This copy would be ordered after `a` and `b`, but not after the third node.
    with pytest.raises(cu.BufferBorrowedError):
        graph.add_copy(world.out, world.result, after=[a, b])
    # This fill would be ordered after `a`, but not after `b`.
    with pytest.raises(cu.BufferBorrowedError, match="add_fill"):
        graph.add_fill(world.out, 3, after=[a])


def test_policy_wait_adds_the_edges(world):
    with cu.ordering("wait"):
        world.graph.add_fill(world.work, 1)
        world.graph.add_fill(world.out[:8], 1)
        world.graph.add_fill(world.out[8:], 1)
        world.graph.add_copy(world.out, world.work)
    assert pairs(world.graph) == {(0, 3), (1, 3), (2, 3)}


def test_policy_unchecked(world):
    with cu.ordering("unchecked"):
        world.graph.add_fill(world.work, 1)
        world.graph.add_fill(world.work, 2)
    assert world.graph.edges == ()


def test_nothing_to_do_is_a_node_that_orders(world):
    graph = world.graph
    fill = graph.add_fill(world.work, 3)
    middle = graph.add_fill(world.out[:0], 1, after=[fill])
    same = graph.add_copy(world.out, world.out, after=[middle])
    graph.add_copy(world.result, world.work, after=[same])
    launched(world, graph)
    assert list(world.result) == [3] * 16
    world.out.close()


def test_after_is_taken_once_and_in_any_order(world):
    nodes = [world.graph.add_fill(world.work[i : i + 1], i) for i in range(4)]
    world.graph.add_copy(world.result, world.work, after=iter([*reversed(nodes), *nodes]))
    assert pairs(world.graph) == {(i, 4) for i in range(4)}


# ---- what a graph keeps ----


def test_what_a_graph_holds(world, module):
    saxpy = module["saxpy"]
    world.graph.add_launch(saxpy, 1, 16, 2.0, cu.read(world.work), world.out, 16)
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it, in launch of saxpy at"):
        world.work.close()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Module"):
        module.close()
    step = world.graph.instantiate()
    world.graph.close()
    with pytest.raises(cu.BufferBorrowedError):
        world.work.close()
    step.close()
    world.work.close()
    module.close()


def test_dropped_names_are_safe(world):
    buffer = cu.DeviceBuffer(16, "f4", name="dropped")
    world.graph.add_copy(world.result, buffer, after=[world.graph.add_fill(buffer, 4)])
    del buffer
    gc.collect()
    launched(world, world.graph)
    assert list(world.result) == [4] * 16


def test_nodes_outlive_their_graph(world):
    node = world.graph.add_fill(world.work, 1)
    world.graph.close()
    assert node.writes == (world.work,)
    del world.graph
    gc.collect()
    assert node.operation == "add_fill"


# ---- together with captures ----


def test_nodes_are_added_after_a_capture(world):
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.out.fill_async(1, world.main)
    first, second = world.graph.nodes
    with pytest.raises(cu.BufferBorrowedError) as caught:
        world.graph.add_copy(world.result, world.out, after=[first])
    assert "fill_async on Stream" in str(caught.value)
    assert "captured at" in str(caught.value)
    world.graph.add_copy(world.result, world.out, after=[second])
    launched(world, world.graph)
    assert list(world.result) == [1] * 16


def test_a_capture_into_a_graph_that_has_nodes(world):
    first = world.graph.add_fill(world.work, 5)
    with pytest.raises(cu.CaptureError, match=r"has nodes: pass after=\[\.\.\.\]"):
        world.graph.capture(world.main).__enter__()
    with world.graph.capture(world.main, after=[]):
        with pytest.raises(cu.BufferBorrowedError) as caught:
            world.result.copy_from_async(world.work, world.main)
        assert "it is being written by add_fill at" in str(caught.value)
        assert "graph.capture(stream, after=[node])" in str(caught.value)
        with cu.ordering("wait"), pytest.raises(cu.BufferBorrowedError):
            world.result.copy_from_async(world.work, world.main)
        with pytest.raises(cu.CaptureError, match="graph 'step' is being captured"):
            world.graph.add_fill(world.out, 1)
        with pytest.raises(cu.CaptureError, match="is being captured"):
            world.graph.instantiate()
    with world.graph.capture(world.main, after=[first]):
        world.side.wait(world.main)
        world.result.copy_from_async(world.work, world.side)
        world.main.wait(world.side)
    launched(world, world.graph)
    assert list(world.result) == [5] * 16
    assert pairs(world.graph) == {(0, 1)}


def test_a_second_capture_needs_to_be_meant(world):
    with world.graph.capture(world.main):
        world.work.fill_async(1, world.main)
    with pytest.raises(cu.CaptureError, match=r"was captured at .*or pass after="):
        world.graph.capture(world.main).__enter__()
    with world.graph.capture(world.main, after=world.graph.nodes):
        world.work.fill_async(2, world.main)
    assert pairs(world.graph) == {(0, 1)}


def test_a_token_of_a_discarded_capture_keeps_no_buffers_of_other_nodes(world):
    source = cu.DeviceBuffer.zeros(32, "f4", pooled=False)
    node = world.graph.add_copy(world.work, source[16:])

    def capture(after):
        with world.graph.capture(world.main, after=after):
            # A copy of a buffer onto itself adds no node.
            tokens.append(world.work.copy_from_async(world.work, world.main))
            raise KeyError

    tokens = []
    with pytest.raises(KeyError):
        capture([node])
    del node
    # `into_raw` works, because nothing keeps a part of the buffer alive.
    cu.DeviceBuffer.from_raw(source.into_raw(), 32, "f4").close()
    assert len(tokens) == 1


def test_an_exception_in_a_capture_discards_all_nodes(world):
    node = world.graph.add_fill(world.work, 1)

    def capture():
        with world.graph.capture(world.main, after=[node]):
            world.out.fill_async(1, world.main)
            raise KeyError

    with pytest.raises(KeyError):
        capture()
    assert world.graph.nodes == ()
    world.work.close()
    world.out.close()
    with pytest.raises(ValueError, match="is not a node of graph 'step'"):
        world.graph.add_fill(world.result, 1, after=[node])
    world.graph.add_fill(world.result, 1)
    launched(world, world.graph)


def capture_without_a_join(world, graph, after):
    with graph.capture(world.main, after=after):
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)


def disable(node):
    node.enabled = False


@pytest.mark.parametrize("inside", ["graph", "body", "body of a body"])
def test_the_driver_destroys_a_graph_into_which_a_capture_fails(world, inside, recwarn):
    """A failed capture destroys the graph in the driver, and cudadrv must not destroy it again.

    The driver may have given the handle to a new graph.
    """
    for _ in range(5):
        graph, others = cu.Graph(name="failing"), []
        node, at = graph.add_fill(world.work, 1), graph
        for _ in range(("graph", "body", "body of a body").index(inside)):
            at = at.add_if(at.condition(1))[1]
        steps = [graph.instantiate()] if inside == "graph" else []
        with pytest.raises(cu.CaptureError):
            capture_without_a_join(world, at, [node] if inside == "graph" else [])
        assert graph.nodes == ()
        for value in range(4):
            others.append(cu.Graph())
            others[-1].add_fill(world.result, value)
        graph.close()
        del graph, at
        for other in others:
            other.instantiate().launch(world.main).wait()
        assert list(world.result) == [3] * 16
        for step in steps:
            step.launch(world.main).wait()
            with pytest.raises(cu.CaptureError, match="the driver has destroyed it"):
                step[0].set(value=2)
            with pytest.raises(cu.CaptureError, match="the driver has destroyed it"):
                disable(step[0])
            step.update(others[0])
            step.launch(world.main).wait()
    assert not recwarn


def test_a_capture_that_cannot_begin_keeps_the_nodes(world):
    node = world.graph.add_fill(world.work, 1)
    with pytest.raises(cu.CaptureError, match="legacy"):
        world.graph.capture(cu.Stream.legacy(), after=[node]).__enter__()
    other = cu.Graph().add_fill(world.out, 1)
    with pytest.raises(ValueError, match="is not a node"):
        world.graph.capture(world.main, after=[other]).__enter__()
    assert world.graph.nodes == (node,)
    world.graph.add_fill(world.work, 2, after=[node])
    world.main.synchronize()


# ---- graphs as nodes ----


def built(world, value):
    child = cu.Graph(name="child")
    fill = child.add_fill(world.work, value)
    child.add_copy(world.out, world.work, after=[fill])
    return child


def test_a_graph_is_a_node(world):
    child = built(world, 3)
    node = world.graph.add_graph(child)
    # This fill is not in `node`, which has a copy of the child.
    child.add_fill(world.out[:8], 9, after=[child.nodes[1]])
    with pytest.raises(cu.BufferBorrowedError) as caught:
        world.graph.add_copy(world.result, world.out)
    assert "add_copy at" in str(caught.value)
    assert "in graph 'child', added at" in str(caught.value)
    again = world.graph.add_graph(child, after=[node])
    world.graph.add_copy(world.result, world.out, after=[again])
    child.close()
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it, in launch of graph"):
        world.work.close()
    assert node.reads == (world.work,)
    assert node.writes == (world.work, world.out)
    with world.graph.instantiate() as step:
        token = step.launch(world.main)
        if world.work.borrowed:
            with pytest.raises(cu.BufferBorrowedError, match="in graph 'child' in graph 'step'"):
                world.work.fill_async(1, world.side)
        token.wait()
    assert list(world.result) == [9] * 8 + [3] * 8


def test_policies_of_graphs_as_nodes(world):
    child = built(world, 3)
    world.graph.add_graph(child)
    with cu.ordering("wait"):
        world.graph.add_graph(child)
    assert pairs(world.graph) == {(0, 1)}


def test_graphs_that_cannot_be_nodes(world):
    graph = world.graph
    with pytest.raises(cu.CaptureError, match="not captured, and has no nodes"):
        graph.add_graph(cu.Graph())
    graph.add_fill(world.work, 1)
    with pytest.raises(ValueError, match="cannot be a part of itself"):
        graph.add_graph(graph)
    closed = cu.Graph(name="ended")
    closed.close()
    with pytest.raises(ValueError, match="graph 'ended' is closed"):
        graph.add_graph(closed)
    captured = cu.Graph(name="busy")
    with captured.capture(world.main):
        with pytest.raises(cu.CaptureError, match=r"has no nodes|is being captured"):
            graph.add_graph(captured)
    graph.add_graph(captured)  # this graph can be added, because its empty capture has ended
    for wrong in (None, 3):
        with pytest.raises(TypeError):
            graph.add_graph(wrong)


# ---- what is refused ----


class Strange:
    """An argument whose conversion runs a function."""

    def __init__(self, function):
        self.function = function

    def __iter__(self):
        self.function()
        return iter(())

    def __index__(self):
        self.function()
        return 1


ADDING = {
    "copy": lambda w, after: w.graph.add_copy(w.work, w.frames, after=after),
    "fill": lambda w, after: w.graph.add_fill(w.work, 1, after=after),
    "launch": lambda w, after: w.graph.add_launch(
        w.saxpy, 1, 16, 2.0, cu.read(w.work), w.out, 16, after=after
    ),
    "graph": lambda w, after: w.graph.add_graph(w.child, after=after),
    "capture": lambda w, after: w.graph.capture(w.main, after=after).__enter__(),
}


@pytest.fixture(params=ADDING)
def add(request, world, module):
    world.saxpy, world.child = module["saxpy"], cu.Graph(name="child")
    world.child.add_fill(world.result, 1)
    return lambda after: ADDING[request.param](world, after)


def test_after_takes_nodes_of_this_graph(world, add):
    node = world.graph.add_fill(world.frames[:0], 1)
    with pytest.raises(TypeError, match=r"after=\[node\]"):
        add(node)
    with pytest.raises(TypeError, match="an item of type int"):
        add([node, 1])
    with pytest.raises(TypeError, match="and not int"):
        add(5)
    with pytest.raises(ValueError, match="is not a node of graph 'step'"):
        add([*world.child.nodes])
    assert world.graph.nodes == (node,)
    world.work.close()


def test_a_closed_graph(world, add):
    world.graph.add_fill(world.frames[:0], 1)
    world.graph.close()
    with pytest.raises(ValueError, match="graph 'step' is closed"):
        add([])


def test_the_graph_is_closed_while_after_is_read(world, add):
    with pytest.raises(ValueError, match="graph 'step' is closed"):
        add(Strange(world.graph.close))
    world.work.close()


def test_nodes_are_added_while_after_is_read(world, add):
    found = []
    add(Strange(lambda: found.append(world.graph.add_fill(world.frames[:0], 1))))
    gc.collect()
    assert found


def test_buffers_that_are_closed_while_arguments_are_converted(world, module):
    with pytest.raises(cu.BufferClosedError):
        world.graph.add_copy(world.work, world.frames, after=Strange(world.work.close))
    with pytest.raises(cu.BufferClosedError):
        world.graph.add_fill(world.out, 1, after=Strange(world.out.close))
    assert world.graph.nodes == ()
    saxpy = module["saxpy"]
    with pytest.raises(ValueError, match="closed"):
        world.graph.add_launch(
            saxpy, 1, 16, 2.0, cu.read(world.frames), world.result, 16, after=Strange(module.close)
        )


@pytest.mark.parametrize("given", [np.zeros(16, "f4"), b"x" * 64, None, 7])
def test_arrays_are_no_nodes(world, given):
    for both in ((world.work, given), (given, world.work)):
        with pytest.raises(TypeError, match="Use a LockedBuffer"):
            world.graph.add_copy(*both)
    with pytest.raises(TypeError, match="add_fill takes buffers"):
        world.graph.add_fill(given, 1)


def test_wrong_pairs_and_values(world, module):
    graph, saxpy = world.graph, module["saxpy"]
    with pytest.raises(TypeError, match="different dtypes"):
        graph.add_copy(world.work, world.frames.view("u4"))
    with pytest.raises(ValueError, match="copy between parts of the same size"):
        graph.add_copy(world.work[1:], world.frames)
    with pytest.raises(ValueError, match="overlap"):
        graph.add_copy(world.work[1:], world.work[:15])
    with pytest.raises((TypeError, ValueError)):
        graph.add_fill(world.work, "x")
    with pytest.raises(TypeError):
        graph.add_launch(saxpy, 1, 16, 2.0, world.work, world.out)
    with pytest.raises(TypeError, match="add_launch takes buffers"):
        graph.add_launch(saxpy, 1, 16, 2.0, cu.In(np.zeros(16, "f4")), world.out, 16)
    with pytest.raises(ValueError, match="block"):
        graph.add_launch(saxpy, 1, 1 << 20, 2.0, world.work, world.out, 16)
    with pytest.raises(TypeError):
        graph.add_launch(None, 1, 1)
    world.out.close()
    with pytest.raises(cu.BufferClosedError):
        graph.add_copy(world.work, world.out)
    assert graph.nodes == ()
    with pytest.raises(cu.CaptureError, match="is not captured, and no node was added"):
        graph.instantiate()


def test_another_context(world, module):
    context = cu.Context.create(cu.Device(0))
    with context:
        there = cu.DeviceBuffer(16, "f4", name="there")
        stream = cu.Stream()
    world.graph.add_fill(world.work, 1)
    with pytest.raises(ValueError, match="use another graph"):
        world.graph.add_fill(there, 1)
    with pytest.raises(ValueError, match="use another graph"):
        world.graph.add_copy(there[:8], there[8:])
    with pytest.raises(ValueError, match="to another context"):
        world.graph.add_launch(module["saxpy"], 1, 16, 2.0, cu.read(there), world.out, 16)
    other = cu.Graph()
    other.add_fill(there, 1)
    with pytest.raises(ValueError, match="use another graph"):
        world.graph.add_graph(other)
    with pytest.raises(ValueError, match="to another context"):
        world.graph.capture(stream, after=[]).__enter__()
    assert len(world.graph.nodes) == 1
    other.close()
    there.close()
    stream.close()


def test_copies_between_two_contexts(world):
    """A copy between contexts is a node of either: of the graph's, else of the destination's."""
    context = cu.Context.create(cu.Device(0))
    with context:
        there = cu.DeviceBuffer.zeros(16, "f4", name="there")
    node = world.graph.add_copy(there, world.work, after=[world.graph.add_fill(world.work, 3)])
    world.graph.add_copy(world.out, there, after=[node])
    world.graph.add_copy(world.result, world.out, after=world.graph.nodes)
    launched(world, world.graph)
    assert list(world.result) == [3] * 16
    inward, outward = cu.Graph(name="inward"), cu.Graph(name="outward")
    inward.add_copy(world.out, there)
    outward.add_copy(there, world.out)
    inward.add_fill(world.work, 1)
    with pytest.raises(ValueError, match="use another graph"):
        outward.add_fill(world.work, 1)
    for graph in (world.graph, inward, outward):
        graph.close()
    there.close()


def test_a_refused_first_node_leaves_a_graph_of_no_context(world):
    other = cu.Graph()
    other.add_fill(world.out, 1)
    context = cu.Context.create(cu.Device(0))
    with context:
        there = cu.DeviceBuffer(16, "f4")
        stream = cu.Stream()
    for _ in range(2):
        with pytest.raises(ValueError, match="is not a node of graph 'step'"):
            world.graph.add_fill(world.work, 1, after=other.nodes)
        world.graph.add_fill(there, 1)
        world.graph.close()
        world.graph = cu.Graph(name="step")
    with pytest.raises(ValueError, match="is not a node of graph 'step'"):
        world.graph.add_fill(world.work, 1, after=other.nodes)
    with world.graph.capture(stream):
        there.fill_async(1, stream)
    world.graph.close()
    there.close()
    stream.close()


def test_each_buffer_of_another_graph_has_its_own_policy(world):
    """Each buffer of a child graph keeps its own policy.

    This also holds if the buffers overlap and the graph uses all their bytes as one range.
    """
    left, right = world.out[:8], world.out[4:]
    left.ordering = "wait"
    inner = cu.Graph()
    inner.add_fill(right, 2, after=[inner.add_fill(left, 1)])
    world.graph.add_graph(inner)
    step = world.graph.instantiate()
    world.out[:4].fill_async(3, world.side)
    step.launch(world.main)
    world.main.synchronize()
    world.out[4:8].fill_async(3, world.side)
    with pytest.raises(cu.BufferBorrowedError):
        step.launch(world.main)
    right.ordering = "wait"
    step.launch(world.main)


def test_portable_memory_of_another_context(world):
    with cu.Context.create(cu.Device(0)):
        there = cu.LockedBuffer.zeros(16, "f4")
    node = world.graph.add_fill(world.work, 4)
    node = world.graph.add_copy(there, world.work, after=[node])
    world.graph.add_copy(world.result, there, after=[node])
    world.graph.add_fill(there, 1, after=[*world.graph.nodes])
    launched(world, world.graph)
    assert list(world.result) == [4] * 16
    world.graph.close()
    there.close()


def test_a_refused_first_node_leaves_a_graph_that_can_be_captured(world, module):
    module.close()
    with pytest.raises(ValueError, match="closed"):
        world.graph.add_launch(module["count"], 1, 1, 1)
    with pytest.raises(ValueError, match="not a node"):
        world.graph.add_fill(world.work, 1, after=[cu.Graph().add_fill(world.out, 1)])
    for use in (world.graph.instantiate, lambda: cu.Graph().add_graph(world.graph)):
        with pytest.raises(cu.CaptureError, match="is not captured"):
            use()
    with world.graph.capture(world.main):
        world.result.fill_async(2, world.main)
    launched(world, world.graph)


def test_names_of_graphs_as_nodes_are_used_again(world):
    """A node of a child graph that is gone has a general name, never the name of another graph."""
    child = built(world, 3)
    node = world.graph.add_graph(child)
    assert node.operation == "launch of graph 'child'"
    world.graph.close()
    child.close()
    assert node.operation == "a launch"
    assert "a launch" in repr(node)


def test_threads_add_to_one_graph(world):
    """Threads add nodes to one graph.

    Each node is added once, or the call is refused because another one is changing the graph.
    """
    buffers = [cu.LockedBuffer(4) for _ in range(8)]
    added, refused = [], []

    def add(buffer):
        for _ in range(20):
            try:
                before = [added[-1]] if added else []
                with cu.ordering("wait"):
                    added.append(world.graph.add_fill(buffer, 1, after=before))
            except cu.CaptureError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=add, args=(buffer,)) for buffer in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.graph.nodes) == len(added) > 8
    assert all("is being changed by another call" in text for text in refused)
    launched(world, world.graph)


def test_long_chains_and_wide_graphs(world):
    node = world.graph.add_fill(world.work, 0)
    for number in range(200):
        node = world.graph.add_fill(world.work, number, after=[node])
    many = [world.graph.add_fill(world.out[i % 16 : i % 16 + 1], 1, after=[node] if i < 16 else
            [world.graph.nodes[-16]]) for i in range(64)]  # fmt: skip
    world.graph.add_copy(world.result, world.work, after=many)
    launched(world, world.graph)
    assert list(world.result) == [199] * 16


def test_a_discarded_graph_begins_anew(world):
    """After a failed capture the graph has no nodes, and can get new ones.

    An executable that was made before does not accept the new nodes. Messages contain the name of
    the graph even after the executable is closed.
    """
    graph = world.graph
    graph.add_fill(world.out, 1)
    step = graph.instantiate()
    with pytest.raises(KeyError), graph.capture(world.main, after=[]):
        raise KeyError
    assert graph.nodes == ()
    node = graph.add_fill(world.work, 2)
    with pytest.raises(ValueError, match="is no node of this executable"):
        step[node]
    step.close()
    gc.collect()
    world.out.close()
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it, in add_fill at"):
        world.work.close()
