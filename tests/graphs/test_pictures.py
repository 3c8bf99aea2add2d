"""Pictures of graphs, and other texts that describe graphs."""

import random
import re
import sys
from collections import Counter
from xml.etree import ElementTree

import pytest

import cudadrv as cu

SVG = "{http://www.w3.org/2000/svg}"
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)


def fork_and_join(world):
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.side.wait(world.main)
        world.out[:8].fill_async(1, world.side)
        world.out[8:].copy_from_async(world.work[8:], world.main)
        world.main.wait(world.side)
        world.result.copy_from_async(world.out, world.main)
    return world.graph


def boxes(picture):
    """For each node: its texts, and the left, top, right and bottom edge of its box."""
    found = []
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        if box is not None:
            x, y, width, height = (float(box.get(name)) for name in ("x", "y", "width", "height"))
            texts = [each.text for each in group.findall(f"{SVG}text")]
            found.append((texts, (x, y, x + width, y + height)))
    return found


def edges(picture):
    """The first and the last point of each edge."""
    found = []
    for path in ElementTree.fromstring(picture).iter(f"{SVG}path"):
        if path.get("fill") is None:
            numbers = [float(each) for each in re.findall(r"-?[\d.]+", path.get("d"))]
            found.append((tuple(numbers[:2]), tuple(numbers[-2:])))
    return found


def at(point, places):
    """The number of the box at this point, where an edge begins or ends."""
    x, y = point
    (found,) = [
        number
        for number, (left, top, right, bottom) in enumerate(places)
        if left <= x <= right and (abs(y - bottom) < 1 or 0 < top - y < 10)
    ]
    return found


def drawn_edges(picture):
    places = [place for _, place in boxes(picture)]
    return {(at(first, places), at(last, places)) for first, last in edges(picture)}


def test_a_picture_tells_operations_lines_and_borrows(world):
    graph = fork_and_join(world)
    found = [texts for texts, _ in boxes(graph.to_svg())]
    assert [texts[0] for texts in found] == [node.operation for node in graph.nodes]
    assert [texts[1][-30:] for texts in found] == [node.site[-30:] for node in graph.nodes]
    assert found[0][2:] == ["reads frames[0:16] (float32)", "writes work[0:16] (float32)"]
    assert found[1][2:] == ["writes out[0:8] (float32)"]
    assert "Stream" in graph.to_svg()


def test_a_picture_has_the_edges(world):
    graph = fork_and_join(world)
    assert drawn_edges(graph.to_svg()) == {(0, 1), (0, 2), (1, 3), (2, 3)}
    (first, left, right, last) = [place for _, place in boxes(graph.to_svg())]
    # `left` and `right` are in one row, between `first` and `last`.
    assert first[3] < left[1] == right[1] < left[3] < last[1]
    # `left` is in the column of `first` and `last`, and `right` in the next one.
    assert right[0] == first[0] == last[0] < right[2] < left[0]


def test_dot(world):
    graph = fork_and_join(world)
    text = graph.to_dot()
    assert text.startswith("digraph \"graph 'step'\" {\n")
    assert re.findall(r"n(\d) -> n(\d);", text) == [("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")]
    (label,) = re.findall(r'n1 \[label="(.*)"\];', text)
    operation, stream, writes, end = label.split(r"\l")
    assert operation == f"fill_async at {graph.nodes[1].site}"
    assert stream.startswith("on Stream")
    assert (writes, end) == ("writes DeviceBuffer 'out'[0:8] (float32)", "")


def test_pictures_are_the_same_each_time(world):
    graph = fork_and_join(world)
    assert graph.to_svg() == graph.to_svg() == graph._repr_svg_()
    assert graph.to_dot() == graph.to_dot()


HOSTILE = [
    "<script>&amp;</script>",
    "\"quotes\" and 'quotes'",
    "back\\slash \\l \\n",
    "two\nlines\r\ttab",
    "\x00\x1b[31m\x7f",
    "]]>--><!--",
    "right\u202eto left",
    "日本語" * 3,
    "\ud800",
    "\ufffe",
    "x" * 10_000,
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped(world, name):
    graph = cu.Graph(name=name)
    stream = cu.Stream(name=name)
    buffer = cu.DeviceBuffer(16, "u1", name=name)
    with graph.capture(stream):
        buffer.fill_async(1, stream)
    picture = graph.to_svg()
    picture.encode("utf-8")
    ((texts, (left, _, right, _)),) = boxes(picture)  # parses the picture, so it must be valid XML
    assert len(texts) == 3
    assert all(text.isprintable() for text in texts)
    assert right - left < 800
    if name.isprintable() and len(name) < 20:
        assert texts[2] == f"writes {name}[0:16] (uint8)"
    text = graph.to_dot()
    text.encode("utf-8")
    (node,) = [line for line in text.splitlines() if line.startswith("  n0 ")]
    assert re.fullmatch(r'  n0 \[label="([^"\\]|\\["\\l])*"\];', node)
    assert re.fullmatch(r'digraph "([^"\\]|\\["\\])*" \{', text.splitlines()[0])
    assert not re.search(r"&(?!amp;)", text)


def test_many_buffers_of_a_node_are_shortened(world):
    from cudadrv._graph_picture import Step, Used, svg

    used = tuple(Used(f"b{number}", f"Buffer b{number}") for number in range(20))
    picture = svg("graph", [Step("many", "here", None, used, ())], [])
    ((texts, _),) = boxes(picture)
    assert texts[:3] == ["many", "here", "reads b0"]
    assert texts[-1] == "reads 14 more"
    assert "reads Buffer b19" in picture  # shown in the tooltip


def random_graph(count, streams, seed):
    chance = random.Random(seed)
    graph = cu.Graph()
    buffers = [cu.DeviceBuffer(16) for _ in streams]
    with graph.capture(streams[0]):
        for stream in streams[1:]:
            stream.wait(streams[0])
        for number in range(count):
            one, two = chance.sample(range(len(streams)), 2)
            buffers[one].fill_async(number & 255, streams[one])
            if number % 5 == 0:
                streams[two].wait(streams[one])
        for stream in streams[1:]:
            streams[0].wait(stream)
        buffers[0].fill_async(1, streams[0])
    return graph


@pytest.mark.parametrize("seed", range(8))
def test_no_edge_is_lost_and_no_boxes_overlap(world, seed):
    streams = [cu.Stream() for _ in range(2 + seed % 4)]
    graph = random_graph(30, streams, seed)
    index = {node: number for number, node in enumerate(graph.nodes)}
    picture = graph.to_svg()
    assert drawn_edges(picture) == {(index[one], index[two]) for one, two in graph.edges}
    places = [place for _, place in boxes(picture)]
    for number, (left, top, right, bottom) in enumerate(places):
        for other in places[:number]:
            apart = right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
            assert apart
    for one, two in graph.edges:
        assert places[index[one]][3] < places[index[two]][1]


def crosses(path, places):
    """Whether a vertical part of an edge goes through a box. Curves are only between rows."""
    point = None
    for command, numbers in re.findall(r"([MVC])([^MVC]*)", path):
        values = [float(each) for each in numbers.split()]
        if command == "V":
            x, (first, last) = point[0], sorted((point[1], values[0]))
            for left, top, right, bottom in places:
                if left < x < right and first + 1 < bottom and top + 1 < last:
                    return True
            point = x, values[0]
        else:
            point = tuple(values[-2:])
    return False


@pytest.mark.parametrize("seed", range(8))
def test_edges_go_around_boxes(seed):
    """Edges do not cross boxes, even if they skip nodes of their own column."""
    from cudadrv._graph_picture import Step, svg

    chance = random.Random(seed)
    steps = [Step("step", str(n), chance.choice(["a", "b", None]), (), ()) for n in range(25)]
    pairs = [tuple(sorted(chance.sample(range(25), 2))) for _ in range(40)]
    picture = svg("graph", steps, sorted(set(pairs)))
    places = [place for _, place in boxes(picture)]
    assert drawn_edges(picture) == set(pairs)
    found = ElementTree.fromstring(picture).iter(f"{SVG}path")
    paths = [path.get("d") for path in found if path.get("fill") is None]
    assert [path for path in paths if crosses(path, places)] == []


def calls_of(function):
    """How many calls of Python and C a function makes."""
    events = Counter()
    sys.setprofile(lambda frame, event, argument: events.update([event]))
    try:
        function()
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]


def test_large_graphs_take_proportional_work(world):
    streams = [cu.Stream() for _ in range(8)]
    small, large = (random_graph(count, streams, 1) for count in (250, 1000))
    assert calls_of(large.to_svg) < 6 * calls_of(small.to_svg)
    assert calls_of(large.to_dot) < 6 * calls_of(small.to_dot)


def test_graphs_without_a_picture(world):
    assert world.graph._repr_svg_() is None
    assert boxes(world.graph.to_svg()) == []
    with world.graph.capture(world.main):
        assert world.graph._repr_svg_() is None
    assert boxes(world.graph._repr_svg_()) == []
    world.graph.close()
    assert world.graph._repr_svg_() is None
    for draw in (world.graph.to_svg, world.graph.to_dot):
        with pytest.raises(ValueError, match="graph 'step' is closed"):
            draw()


def test_a_kernel_in_a_picture(world, module):
    with world.graph.capture(world.main):
        module["saxpy"].launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
    ((texts, _),) = boxes(world.graph.to_svg())
    assert texts[0] == "launch of saxpy"
    assert texts[2:] == ["reads work[0:16] (float32)", "writes out[0:16] (float32)"]


# ---- other texts ----


def test_explain_names_the_graphs(world):
    fork_and_join(world)
    second = cu.Graph(name="second")
    with second.capture(world.main):
        world.out[8:].fill_async(1, world.main)
    lines = world.out.explain().splitlines()
    assert lines[0].endswith("is free: no GPU work that uses it may be unfinished.")
    assert lines[1].startswith("It cannot be closed before graph 'step', which uses it in fill_a")
    assert lines[2].startswith("It cannot be closed before graph 'second', which uses it in fill_")
    assert len(lines) == 3
    assert "second" not in world.out[:8].explain()
    token = world.out.fill_async(1, world.main)
    assert world.out.explain().splitlines()[0].endswith("is in use:")
    assert "graph 'step'" in world.out.explain()
    token.wait()
    second.close()
    world.graph.close()
    assert "graph" not in world.out.explain()


def test_an_executable_keeps_the_buffer_too(world):
    step = fork_and_join(world).instantiate()
    world.graph.close()
    assert "before graph 'step'" in world.work.explain()
    step.close()
    assert "graph" not in world.work.explain()


def test_the_handle_of_a_captured_stream_is_that_stream(world):
    handle = world.main.handle
    with world.graph.capture(world.main):
        assert cu.Stream.from_handle(handle) is world.main
        world.work.fill_async(1, world.main)
        world.side.wait(cu.Stream.from_handle(handle))
        assert cu.Stream.from_handle(world.side.handle) is world.side
        world.main.wait(world.side)
    assert cu.Stream.from_handle(handle) is world.main


def test_one_node(world):
    with world.graph.capture(world.main):
        world.work.fill_async(1, world.main)
    assert repr(world.graph) == "<Graph 'step', 1 node>"
    assert repr(world.graph.instantiate()) == "<ExecutableGraph of graph 'step', 1 node>"
    assert repr(random_graph(3, [world.main, world.side], 1)).endswith(", 4 nodes>")


# ---- nodes that were added without a capture ----


def test_nodes_without_a_stream_are_drawn(world):
    graph = fork_and_join(world)
    first = graph.add_copy(world.frames, world.result, after=[graph.nodes[3]])
    graph.add_fill(world.work, 1, after=[first])
    picture = graph.to_svg()
    edges_before = {(0, 1), (0, 2), (1, 3), (2, 3)}
    assert drawn_edges(picture) == edges_before | {(3, 4), (4, 5)}
    found = [texts for texts, _ in boxes(picture)]
    assert found[4][2:] == ["reads result[0:16] (float32)", "writes frames[0:16] (float32)"]
    (label,) = re.findall(r'n5 \[label="(.*)"\];', graph.to_dot())
    node = graph.nodes[5]
    assert (
        label == rf"{node.operation} at {node.site}\lwrites DeviceBuffer 'work'[0:16] (float32)\l"
    )


def test_conditional_nodes_are_drawn_without_their_bodies(world):
    if cu.driver_info().version < (12, 4):
        pytest.skip("the driver has no conditions")
    graph = world.graph
    node, body = graph.add_if(graph.condition(1))
    body.add_fill(world.work, 1)
    graph.add_fill(world.out, 1, after=[node])
    assert [texts[0] for texts, _ in boxes(graph.to_svg())] == [
        node.operation,
        graph.nodes[1].operation,
    ]
    assert drawn_edges(graph.to_svg()) == {(0, 1)}
    assert len(boxes(body._repr_svg_())) == 1
    graph.close()
    assert body._repr_svg_() is None
