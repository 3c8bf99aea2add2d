"""Updates of executable graphs by other graphs."""

import gc
import threading

import numpy as np
import pytest

import cudadrv as cu


def filling(world, value, buffer=None, name="step"):
    """A graph with two nodes: out = value, result = out."""
    buffer = world.out if buffer is None else buffer
    graph = cu.Graph(name=name)
    with graph.capture(world.main):
        buffer.fill_async(value, world.main)
        world.result.copy_from_async(buffer, world.main)
    return graph


def launched(world, step):
    step.launch(world.main).wait()
    return world.result[0]


def branches(world, values, waits="one two", name="branches"):
    """A graph with two branches that fill one half each.

    `waits` is the order in which the branches are joined.
    """
    sides = {"one": world.side, "two": cu.Stream()}
    graph = cu.Graph(name=name)
    with graph.capture(world.main):
        world.work.fill_async(0, world.main)
        for side in sides.values():
            side.wait(world.main)
        for i, side in enumerate(sides.values()):
            world.out[8 * i : 8 * i + 8].fill_async(values[i], side)
        for word in waits.split():
            world.main.wait(sides[word])
        world.result.copy_from_async(world.out, world.main)
    return graph


def test_later_launches_do_what_the_other_graph_does(world):
    first, second = filling(world, 1), filling(world, 2)
    step = first.instantiate()
    assert launched(world, step) == 1
    step.update(second)
    assert launched(world, step) == 2
    assert step.nodes == second.nodes
    step.update(first)
    assert launched(world, step) == 1


def test_the_graph_can_be_closed_afterwards(world):
    step = filling(world, 1).instantiate()
    second = filling(world, 2)
    step.update(second)
    second.close()
    del second
    gc.collect()
    assert launched(world, step) == 2
    step[0].set(value=3)
    assert launched(world, step) == 3


def test_a_running_launch_is_not_affected(world, gate):
    other = cu.LockedBuffer.zeros(16, "f4", name="other")
    step = filling(world, 1).instantiate()
    graph = cu.Graph()
    with graph.capture(world.main):
        world.work.fill_async(2, world.main)
        other.copy_from_async(world.work, world.main)
    gate.hold(world.main)
    step.launch(world.main)
    step.update(graph)
    step.launch(world.main)
    assert world.result.borrowed
    assert other.borrowed
    gate.open()
    world.main.synchronize()
    assert (world.result[0], other[0]) == (1, 2)


def test_old_memory_is_let_go_and_new_memory_is_kept(world):
    first = filling(world, 1, world.out)
    second = filling(world, 2, world.work, "next")
    step = first.instantiate()
    first.close()
    step.update(second)
    second.close()
    world.out.close()
    with pytest.raises(cu.BufferBorrowedError) as caught:
        world.work.close()
    assert "graph 'next' uses it, in fill_async at" in str(caught.value)
    assert launched(world, step) == 2
    step.close()
    world.work.close()


def test_memory_of_a_running_launch_is_let_go_later(world, gate):
    buffer = cu.DeviceBuffer(16, "f4", name="scratch")
    first = filling(world, 1, buffer)
    step = first.instantiate()
    gate.hold(world.main)
    step.launch(world.main)
    step.update(filling(world, 2))
    first.close()
    with pytest.raises(cu.BufferBorrowedError, match="written by launch of graph 'step' on"):
        buffer.close()
    address = buffer.address
    del buffer, first
    gc.collect()
    assert cu.DeviceBuffer(16, "f4").address != address
    gate.open()
    world.main.synchronize()
    cu.reap()
    assert "DeviceBuffer 'scratch'" not in {each.label for each in cu.live_buffers()}


def test_a_launch_borrows_what_the_new_graph_uses(world):
    step = filling(world, 1, world.out).instantiate()
    step.update(filling(world, 2, world.work, "next"))
    world.out.fill_async(1, world.side)
    token = step.launch(world.main)
    assert set(token.writes) == {world.work, world.result}
    with pytest.raises(cu.BufferBorrowedError) as caught:
        world.work.fill_async(1, world.side)
    assert "it is being written by fill_async at" in str(caught.value)
    assert "in graph 'next' on Stream" in str(caught.value)
    world.main.synchronize()
    world.work.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match=r"'work'.* in fill_async at"):
        step.launch(world.main)


def test_messages_name_what_each_launch_did(world, gate):
    """A message names the graph of its launch: one launch is before an update, and one after."""
    step = filling(world, 1, world.out).instantiate()
    gate.hold(world.main)
    step.launch(world.main)
    step.update(filling(world, 2, world.work, "next"))
    step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match=r"in graph 'step' on Stream"):
        world.out.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match=r"in graph 'next' on Stream"):
        world.work.fill_async(1, world.side)
    gate.open()


def test_names_are_used_again(world):
    """Names of graphs are reused in messages: the engine has 16 bits for a name."""
    step = filling(world, 0).instantiate()
    for number in range(400):
        step.update(filling(world, number, name=f"graph {number}"))
        step.launch(world.main)
        with pytest.raises(cu.BufferBorrowedError, match=f"in graph 'graph {number}' on"):
            world.out.fill_async(1, world.side)
        world.main.synchronize()


def test_launches_that_are_never_waited_for(world):
    """If too many launches are unfinished, messages say "a launch" without the graph's name."""
    step = filling(world, 0, world.out).instantiate()
    both = [filling(world, i, buffer) for i, buffer in enumerate((world.work, world.out))]
    for number in range(1200):
        step.update(both[number % 2])
        step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match="by a launch on Stream"):
        world.out.fill_async(1, world.side)
    world.main.synchronize()
    for number in range(40):
        step.update(both[number % 2])
        step.launch(world.main).wait()
    step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match="in graph 'step' on Stream"):
        world.result[0] = 1


def other_copy(world, graph):
    with graph.capture(world.main):
        world.out.fill_async(1, world.main)
        world.work.copy_from_async(world.out, world.main)


def fewer(world, graph):
    with graph.capture(world.main):
        world.out.fill_async(1, world.main)


def another_kind(world, graph):
    with graph.capture(world.main):
        world.out.copy_from_async(world.frames, world.main)
        world.result.copy_from_async(world.out, world.main)


def another_order(world, graph):
    with graph.capture(world.main):
        world.side.wait(world.main)
        world.out.fill_async(1, world.main)
        world.result.copy_from_async(world.work, world.side)
        world.main.wait(world.side)


REFUSED = {
    other_copy: r"graph 'next' cannot update this executable of graph 'step': target of"
    r" copy_from_async at .*test_update.py:\d+ is LockedBuffer 'result'.*, page-locked memory of"
    r" .*, and cannot become DeviceBuffer 'work'",
    fewer: "it has 1 operations, and the executable 2",
    another_kind: r"CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED\. It is operation 0,"
    r" copy_from_async at .*, in the place of fill_async at",
    another_order: r"its operation 1, copy_from_async at .*, runs after its operations \(\), and"
    r" copy_from_async at .* after \(0,\)",
}


@pytest.mark.parametrize("capture", REFUSED)
def test_what_cannot_be_updated_changes_nothing(world, capture):
    graph = cu.Graph(name="next")
    capture(world, graph)
    first = filling(world, 5)
    step = first.instantiate()
    with pytest.raises(cu.CaptureError, match=REFUSED[capture]):
        step.update(graph)
    assert step.nodes == first.nodes
    assert launched(world, step) == 5
    graph.close()
    world.work.close()


def test_branches_that_are_joined_in_another_order(world):
    """An update refuses a graph that joins its branches in another order.

    The driver pairs nodes by the order of their edges.
    """
    step = branches(world, (1, 2)).instantiate()
    step.update(branches(world, (3, 4)))
    step.launch(world.main).wait()
    assert list(world.result) == [3] * 8 + [4] * 8
    with pytest.raises(cu.CaptureError, match="the same waits in the same order"):
        step.update(branches(world, (5, 6), "two one"))
    step[1].set(value=7)
    step.launch(world.main).wait()
    assert list(world.result) == [7] * 8 + [4] * 8


def test_fills_that_are_two_operations(world):
    wide = cu.LockedBuffer.zeros(4, "f8")
    graphs = []
    for value in (1.5, 2.5, 0.0):
        graph = cu.Graph()
        with graph.capture(world.main):
            wide.fill_async(value, world.main)
        graphs.append(graph)
    step = graphs[0].instantiate()
    step.update(graphs[1])
    step.launch(world.main).wait()
    assert list(wide) == [2.5] * 4
    with pytest.raises(cu.CaptureError, match="items with different words"):
        step.update(graphs[2])


def test_kernels(world, module):
    world.frames[:] = np.arange(16)
    graphs = []
    for factor in (2.0, 3.0):
        graph = cu.Graph()
        with graph.capture(world.main):
            world.work.copy_from_async(world.frames, world.main)
            world.out.fill_async(1, world.main)
            module["saxpy"].launch(
                1, 16, factor, cu.read(world.work), world.out, 16, stream=world.main
            )
            world.result.copy_from_async(world.out, world.main)
        graphs.append(graph)
    step = graphs[0].instantiate()
    step.update(graphs[1])
    for graph in graphs:
        graph.close()
    del graph, graphs
    gc.collect()
    step.launch(world.main).wait()
    assert list(world.result) == [3 * i + 1 for i in range(16)]
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Module"):
        module.close()


def test_arguments(world):
    step = filling(world, 1).instantiate()
    for wrong in (None, step, 3, step.nodes[0]):
        with pytest.raises(TypeError, match="update takes a Graph"):
            step.update(wrong)
    with pytest.raises(cu.CaptureError, match="is not captured"):
        step.update(cu.Graph())
    closed = filling(world, 2)
    closed.close()
    with pytest.raises(ValueError, match="is closed"):
        step.update(closed)
    with pytest.raises(TypeError, match="never initialized"):
        step.update(cu.Graph.__new__(cu.Graph))
    open_graph = cu.Graph()
    with open_graph.capture(world.main):
        with pytest.raises(cu.CaptureError, match="is being captured, in the block that began at"):
            step.update(open_graph)
    step.close()
    with pytest.raises(ValueError, match="is closed"):
        step.update(filling(world, 2))


def test_a_graph_of_another_context(world):
    step = filling(world, 1).instantiate()
    context = cu.Context.create(cu.Device(0))
    with context:
        stranger, buffer = cu.Stream(), cu.DeviceBuffer(16, "f4")
        graph = cu.Graph(name="far")
        with graph.capture(stranger):
            buffer.fill_async(1, stranger)
            world.result.copy_from_async(buffer, stranger)
        with pytest.raises(ValueError, match="graph 'far' belongs to"):
            step.update(graph)
    assert launched(world, step) == 1


def test_a_fill_of_memory_of_another_context(world):
    context = cu.Context.create(cu.Device(0))
    with context:
        there = cu.LockedBuffer.zeros(16, "f4", name="there")
    step, graph = filling(world, 1).instantiate(), cu.Graph(name="far")
    with graph.capture(world.main):
        there.fill_async(2, world.main)
        world.result.copy_from_async(world.out, world.main)
    with pytest.raises(cu.CaptureError, match="and cannot become LockedBuffer 'there'"):
        step.update(graph)
    assert launched(world, step) == 1
    step.close()
    graph.close()
    there.close()


def test_an_update_by_its_own_graph_takes_changes_back(world):
    graph = filling(world, 1)
    step = graph.instantiate()
    step[0].set(value=5)
    step.update(graph)
    assert launched(world, step) == 1


def test_disabled_nodes_stay_disabled(world):
    step = filling(world, 1).instantiate()
    step[0].enabled = False
    step.update(filling(world, 2))
    assert not step[0].enabled
    world.out.fill(9)
    world.out.fill_async(9, world.side)  # a conflict, because the launch still reads `out`
    with pytest.raises(cu.BufferBorrowedError, match="cannot read DeviceBuffer 'out'"):
        step.launch(world.main)
    world.side.synchronize()
    assert launched(world, step) == 9
    step[0].enabled = True
    assert launched(world, step) == 2


def test_threads(world):
    """Several threads update, launch and change one executable.

    Each call is made as a whole, or refused as a whole.
    """
    graphs = [filling(world, value) for value in range(4)]
    step = graphs[0].instantiate()
    wrong = []

    def work(number):
        for turn in range(100):
            try:
                if number == 0:
                    step.launch(world.main)
                elif number == 1:
                    step.update(graphs[turn % 4])
                elif number == 2:
                    step[0].set(value=turn)
                else:
                    step[1].enabled = turn % 2 == 0
            except cu.CaptureError:
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    step[1].enabled = True
    step.update(graphs[3])
    assert launched(world, step) == 3


# ---- boxes: the driver changes nothing of copies of rows; of fills of rows, place and value ----


@pytest.fixture
def table():
    return cu.DeviceBuffer.zeros(64).reshape(8, 8)


def copying(table, target, source):
    graph = cu.Graph(name="copying")
    graph.add_copy(table[target], table[source])
    return graph


LEFT, RIGHT = np.s_[:, :2], np.s_[:, 4:6]
FIRST, SECOND = np.s_[0, :], np.s_[1, :]


def test_the_same_copy_of_a_box(world, table):
    table[LEFT].fill(5)
    step = copying(table, RIGHT, LEFT).instantiate()
    step.update(copying(table, RIGHT, LEFT))
    step.launch(world.main).wait()
    assert table.to_numpy()[RIGHT].tolist() == [[5, 5]] * 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((RIGHT, LEFT), (np.s_[:, 6:8], LEFT)),
        ((RIGHT, LEFT), (RIGHT, np.s_[:, 1:3])),
        ((RIGHT, LEFT), (np.s_[:4, 4:6], np.s_[:4, :2])),
        ((RIGHT, LEFT), (np.s_[:, 4:5], np.s_[:, :1])),
        ((RIGHT, LEFT), (FIRST, SECOND)),
        ((FIRST, SECOND), (RIGHT, LEFT)),
    ],
)
def test_another_copy_of_a_box(world, table, old, new):
    table[old[1]].fill(5)
    step = copying(table, *old).instantiate()
    with pytest.raises(cu.CaptureError, match="UPDATE_ERROR_PARAMETERS_CHANGED"):
        step.update(copying(table, *new))
    step.launch(world.main).wait()
    assert set(table.to_numpy()[old[0]].flat) == {5}


@pytest.mark.parametrize(
    ("box", "accepted"), [(RIGHT, True), (np.s_[:4, :2], False), (np.s_[:, :1], False)]
)
def test_another_fill_of_a_box(world, table, box, accepted):
    graphs = [cu.Graph(name="filling"), cu.Graph(name="filling")]
    graphs[0].add_fill(table[LEFT], 3)
    graphs[1].add_fill(table[box], 4)
    step = graphs[0].instantiate()
    if accepted:
        step.update(graphs[1])
    else:
        with pytest.raises(cu.CaptureError, match="UPDATE_ERROR_PARAMETERS_CHANGED"):
            step.update(graphs[1])
    step.launch(world.main).wait()
    expected = np.zeros((8, 8), "u1")
    expected[box if accepted else LEFT] = 4 if accepted else 3
    assert np.array_equal(table.to_numpy(), expected)
