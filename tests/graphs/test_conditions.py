"""Conditional nodes: which bodies run, how bodies are checked, and refused nodes."""

import ctypes
import gc
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy", "random"], indirect=True)


@pytest.fixture(autouse=True)
def driver_with_conditions(driver):
    if cu.driver_info().version < (12, 8):
        pytest.skip("the driver is older than CUDA 12.8")


class Kernels:
    def __init__(self):
        self.module = cu.Module.from_file(Path(__file__).with_name("conditions.ptx"))
        self.count_down, self.choose = self.module["count_down"], self.module["choose"]
        self.add_one = self.module["add_one"]


@pytest.fixture
def kernels(driver):
    return Kernels()


@pytest.fixture
def numbers(driver):
    return cu.DeviceBuffer.zeros(4, "u4", name="numbers")


def launched(graph, stream, buffer, *values):
    """For each value: write it to the buffer, launch the graph, and read the buffer back."""
    found = []
    with graph.instantiate() as step:
        for value in values:
            buffer.copy_from(cu.LockedBuffer.from_array(value))
            step.launch(stream).wait()
            result = cu.LockedBuffer.zeros(len(buffer), buffer.dtype)
            buffer.copy_to(result)
            found.append([int(each) for each in result])
    return found


def u4(*values):
    return np.array(values, "u4")


@pytest.mark.parametrize("way", ["built", "captured", "both"])
def test_while(world, kernels, numbers, way):
    graph, stream = world.graph, world.main
    again = graph.condition(1)
    node, body = graph.add_while(again)
    if way == "captured":
        with body.capture(stream):
            kernels.add_one.launch(1, 1, numbers[1:2], stream=stream)
            kernels.count_down.launch(1, 1, numbers[:1], again, stream=stream)
    else:
        first = body.add_launch(kernels.add_one, 1, 1, numbers[1:2])
        if way == "built":
            body.add_launch(kernels.count_down, 1, 1, numbers[:1], again, after=[first])
        else:
            with body.capture(stream, after=[first]):
                kernels.count_down.launch(1, 1, numbers[:1], again, stream=stream)
    graph.add_launch(kernels.add_one, 1, 1, numbers[2:3])
    graph.add_launch(kernels.add_one, 1, 1, numbers[3:], after=[node])
    assert launched(graph, stream, numbers, u4(5, 0, 0, 0), u4(2, 7, 0, 0)) == [
        [0, 5, 1, 1],
        [0, 9, 1, 1],
    ]


@pytest.mark.parametrize("bodies", [1, 2])
def test_if(world, kernels, numbers, bodies):
    graph = world.graph
    when = graph.condition()
    chosen = graph.add_launch(kernels.choose, 1, 1, cu.read(numbers[:1]), when)
    node, *made = graph.add_if(when, bodies=bodies, after=[chosen])
    assert len(made) == len(node.bodies) == bodies
    for i, body in enumerate(made):
        body.add_launch(kernels.add_one, 1, 1, numbers[1 + i : 2 + i])
    otherwise = int(bodies == 2)
    found = launched(graph, world.main, numbers, u4(3, 0, 0, 0), u4(0, 0, 0, 0))
    assert found == [[3, 1, 0, 0], [0, 0, otherwise, 0]]


def test_switch(world, kernels, numbers):
    graph = world.graph
    which = graph.condition(7)
    chosen = graph.add_launch(kernels.choose, 1, 1, cu.read(numbers[:1]), which)
    _, *bodies = graph.add_switch(which, 3, after=[chosen])
    for i, body in enumerate(bodies):
        body.add_fill(numbers[1 + i : 2 + i], 8)
    starts = [u4(i, 0, 0, 0) for i in (0, 2, 3)]
    assert launched(graph, world.main, numbers, *starts) == [
        [0, 8, 0, 0], [2, 0, 0, 8], [3, 0, 0, 0]
    ]  # fmt: skip


def test_nodes_inside_nodes(world, kernels, numbers):
    """A switch in a loop: numbers[0] counts down from 4; unless it is 2, numbers[1] += 1."""
    graph = world.graph
    again = graph.condition(1)
    _, outer = graph.add_while(again)
    when = outer.condition()
    two = outer.add_launch(kernels.choose, 1, 1, cu.read(numbers[:1]), when)
    node, *bodies = outer.add_switch(when, 5, after=[two])
    for i in (1, 3, 4):
        with bodies[i].capture(world.main):
            kernels.add_one.launch(1, 1, numbers[1:2], stream=world.main)
    with pytest.raises(cu.BufferBorrowedError, match="being read by launch of choose at"):
        outer.add_fill(numbers[:1], 1)
    with pytest.raises(cu.BufferBorrowedError, match="being written by launch of add_one at"):
        graph.add_fill(numbers[1:2], 1)
    outer.add_launch(kernels.count_down, 1, 1, numbers[:1], again, after=[node])
    assert launched(graph, world.main, numbers, u4(4, 0, 0, 0)) == [[0, 3, 0, 0]]


def test_a_body_is_checked_against_the_body_around_it(world, numbers):
    _, outer = world.graph.add_while(world.graph.condition())
    _, inner = outer.add_while(outer.condition())
    outer.add_fill(numbers[:2], 1)
    world.graph.add_fill(numbers[3:], 1)
    with inner.capture(world.main):
        for wrong in (numbers, numbers[:1], numbers[3:]):
            with pytest.raises(cu.BufferBorrowedError, match="being written by add_fill at"):
                wrong.fill_async(1, world.main)
        numbers[2:3].fill_async(1, world.main)
    with pytest.raises(cu.BufferBorrowedError, match="being written by fill_async at"):
        world.graph.add_fill(numbers[2:3], 1)
    assert len(inner.nodes) == 1


def test_a_body_is_checked_against_what_runs_beside_its_node(world, kernels, numbers):
    graph = world.graph
    node, body = graph.add_while(graph.condition())
    graph.add_fill(numbers[:1], 1)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        body.add_launch(kernels.add_one, 1, 1, numbers[:1])
    text = str(caught.value)
    assert "cannot write argument 0" in text
    assert "by launch of add_one in the body of add_while at" in text
    assert "it is being written by add_fill at" in text
    body.add_launch(kernels.add_one, 1, 1, numbers[1:2])
    with pytest.raises(cu.BufferBorrowedError, match="being written by launch of add_one at"):
        graph.add_fill(numbers[1:3], 1)
    with body.capture(world.main, after=[]), pytest.raises(cu.BufferBorrowedError):
        world.result.view("u4")[:4].copy_from_async(numbers, world.main)
    with cu.ordering("wait"), pytest.raises(cu.BufferBorrowedError):
        body.add_fill(numbers[:1], 1)
    with cu.ordering("wait"):
        last = graph.add_fill(numbers[1:2], 1)
    assert (node, last) in graph.edges
    assert len(body.nodes) == 1


def test_operations_of_a_body_are_checked_against_each_other(world, numbers):
    _, body = world.graph.add_while(world.graph.condition())
    first = body.add_fill(numbers, 1)
    with pytest.raises(cu.BufferBorrowedError, match="in the body of add_while at"):
        body.add_fill(numbers, 2)
    body.add_fill(numbers, 2, after=[first])


def test_bodies_of_one_node_do_not_conflict(world, numbers):
    _, one, two = world.graph.add_if(world.graph.condition(), bodies=2)
    one.add_fill(numbers, 1)
    two.add_fill(numbers, 2)
    one.add_fill(world.work, 1)


def test_a_body_cannot_change_once_something_runs_after_it(world, numbers):
    graph = world.graph
    node, body = graph.add_if(graph.condition(1))
    _, inner = body.add_if(body.condition(1))
    body.add_fill(numbers[:1], 1)
    graph.add_fill(numbers[2:], 1)
    inner.add_fill(numbers[1:2], 1)
    graph.add_fill(numbers[:2], 2, after=[node])
    for each in (body, inner):
        for add in (
            lambda each=each: each.add_fill(world.work, 1),
            lambda each=each: each.add_graph(graph),
            lambda each=each: each.condition(),
            lambda each=each: each.capture(world.main, after=[]).__enter__(),
        ):
            with pytest.raises(cu.CaptureError, match=r"cannot change any more|has conditions"):
                add()
    world.work.close()


def test_a_body_cannot_change_once_a_captured_operation_runs_after_it(world, numbers):
    graph = world.graph
    node, body = graph.add_if(graph.condition(1))
    with graph.capture(world.main, after=[node]):
        pass  # after this empty capture, no node runs after `node`, so the body can still change
    body.add_fill(numbers[:1], 1)
    with graph.capture(world.main, after=[node]):
        world.side.wait(world.main)
        numbers[:1].fill_async(2, world.side)
        world.main.wait(world.side)
    with pytest.raises(cu.CaptureError, match=r"cannot change any more: fill_async at \S+ was"):
        body.add_fill(numbers[1:], 1)
    with pytest.raises(cu.CaptureError, match="cannot change any more"):
        body.capture(world.main, after=[]).__enter__()
    graph.add_fill(numbers[1:], 1)
    with graph.instantiate() as step:
        step.launch(world.main).wait()
    assert list(numbers.to_numpy()) == [2, 1, 1, 1]


def test_a_launch_uses_what_is_in_bodies(world, numbers, gate):
    graph = world.graph
    node, body = graph.add_if(graph.condition(0), after=[graph.add_fill(world.out, 1)])
    inside = body.add_fill(numbers[:2], 1)
    assert node.writes == (inside.writes[0],)
    assert node.reads == ()
    assert node.bodies == ((inside,),)
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it, in add_fill at"):
        numbers.close()
    gate.hold(world.main)
    with graph.instantiate() as step:
        token = step.launch(world.main)
        assert len(step.nodes) == 2
        numbers[2:].fill_async(1, world.side)
        with pytest.raises(cu.BufferBorrowedError, match=r"add_fill at .* in graph 'step'"):
            numbers.fill_async(1, world.side)
        gate.open()
        token.wait()


def test_a_body_may_not_write_what_is_read_after_it(world):
    """A write in a body does not count as initializing, because the body may not run.

    So a node after it cannot read discarded contents.
    """
    managed = cu.UnifiedBuffer.zeros(1 << 16, "u1", name="managed")
    graph = world.graph
    node, body = graph.add_if(graph.condition(0))
    body.add_fill(managed, 1)
    graph.add_copy(cu.DeviceBuffer(1 << 16), managed, after=[node])
    with graph.instantiate() as step:
        managed.discard(world.main)
        with pytest.raises(cu.ContentsDiscardedError):
            step.launch(world.main)
        managed.fill_async(1, world.main)
        step.launch(world.main).wait()


@pytest.mark.parametrize("way", ["fill", "kernel", "inner"])
def test_what_a_body_writes_is_no_write_of_the_host(world, kernels, way):
    """A body may write a buffer before the host knows that a copy from the buffer is complete.

    The stream orders the launch after the copy.
    """
    items = cu.LockedBuffer.zeros(4, "u4", name="items")
    graph = world.graph
    _, body = graph.add_if(graph.condition(1))
    if way == "inner":
        _, body = body.add_if(body.condition(1))
    if way == "kernel":
        body.add_launch(kernels.add_one, 1, 1, items)
    else:
        body.add_fill(items, 1)
    with graph.instantiate() as step:
        world.work[:4].view("u4").copy_from_async(items, world.main)
        step.launch(world.main)
        world.main.synchronize()
    assert items[0] == 1
    if cu.driver_info().is_software:
        assert testing.races() == []


def test_one_executable_also_of_those_made_before_the_conditions(world):
    graph = world.graph
    graph.add_fill(world.out, 1)
    step = graph.instantiate()
    _, body = graph.add_if(graph.condition(1))
    body.add_fill(world.work, 1)
    with pytest.raises(cu.CaptureError, match="one executable of it at a time"):
        graph.instantiate()
    step.close()
    graph.instantiate().close()


def test_conditions_are_for_one_node_of_their_graph(world):
    graph, other = world.graph, cu.Graph(name="other")
    mine, theirs = graph.condition(), other.condition()
    with pytest.raises(
        ValueError, match="<Condition of graph 'other'> is not a condition of graph"
    ):
        graph.add_while(theirs)
    for wrong in (0, int(mine), None, "1"):
        with pytest.raises(TypeError, match=r"takes a condition of graph 'step', graph\.condition"):
            graph.add_while(wrong)
    with pytest.raises(TypeError, match=r"use graph\.condition\(default\)"):
        cu.Condition(int(mine))
    assert mine.graph is graph
    gone = cu.Graph().condition()
    assert gone.graph is None
    with pytest.raises(ValueError, match="is not a condition of graph 'step'"):
        graph.add_if(gone)
    with pytest.raises(ValueError, match="is not a condition of"):
        cu.Graph().add_if(mine)
    _, body = graph.add_while(mine)
    with pytest.raises(ValueError, match="another node of graph 'step' has the condition"):
        graph.add_if(mine)
    with pytest.raises(ValueError, match="is not a condition of the body"):
        body.add_if(mine)
    other.add_fill(world.out, 1)
    with pytest.raises(cu.CaptureError, match="no node of graph 'other' has the condition"):
        other.instantiate()
    nested = body.condition()
    with pytest.raises(cu.CaptureError, match="no node of the body of add_while"):
        graph.instantiate()
    _, inner = body.add_if(nested)
    inner.add_fill(world.work, 1)
    graph.instantiate().close()


@pytest.mark.parametrize("value", [-1, 1 << 32, "1", 1.5])
def test_defaults_that_are_none(world, value):
    with pytest.raises((ValueError, TypeError)):
        world.graph.condition(value)
    assert world.graph.nodes == ()


@pytest.mark.parametrize("bodies", [0, 3, -1, "2", 1 << 80])
def test_numbers_of_bodies(world, bodies):
    with pytest.raises((ValueError, TypeError)):
        world.graph.add_if(world.graph.condition(), bodies=bodies)
    if bodies != 3:
        with pytest.raises((ValueError, TypeError)):
            world.graph.add_switch(world.graph.condition(), bodies)


def test_bodies_belong_to_their_graph(world, numbers):
    graph = world.graph
    node, body = graph.add_while(graph.condition())
    inside = body.add_fill(numbers, 1)
    with pytest.raises(cu.CaptureError, match="cannot be launched by itself"):
        body.instantiate()
    with pytest.raises(cu.CaptureError, match="is closed with its graph"):
        body.close()
    with pytest.raises(cu.CaptureError, match="is a body"):
        cu.Graph().add_graph(body)
    with pytest.raises(ValueError, match="is not a node of the body"):
        body.add_fill(numbers, 2, after=[node])
    with pytest.raises(ValueError, match="The nodes of a body"):
        graph.add_fill(numbers, 2, after=[inside])
    with pytest.raises(cu.CaptureError, match="has conditions"):
        cu.Graph().add_graph(graph)
    graph.close()
    assert body.closed
    assert "closed" in repr(body)
    for use in (lambda: body.nodes, lambda: body.add_fill(numbers, 1), body.condition):
        with pytest.raises(ValueError, match="is closed"):
            use()
    assert node.bodies == ((),)
    numbers.close()


def test_a_body_keeps_its_graph(world, numbers):
    graph = cu.Graph(name="kept")
    _, body = graph.add_while(graph.condition())
    del graph
    gc.collect()
    body.add_fill(numbers, 1)
    with pytest.raises(cu.BufferBorrowedError, match="graph 'kept' uses it"):
        numbers.close()
    del body
    gc.collect()
    numbers.close()


def test_an_exception_in_a_body_discards_the_graph(world, numbers):
    graph = world.graph
    graph.add_fill(world.out, 1)
    _, body = graph.add_while(graph.condition())

    def capture():
        with body.capture(world.main):
            numbers.fill_async(1, world.main)
            raise KeyError

    with pytest.raises(KeyError):
        capture()
    assert body.closed
    assert graph.nodes == ()
    numbers.close()
    world.out.close()
    graph.add_fill(world.work, 1)
    assert body.closed


def test_one_change_at_a_time(world, numbers):
    graph = world.graph
    _, one, two = graph.add_if(graph.condition(), bodies=2)
    with one.capture(world.main):
        for change in (
            lambda: graph.add_fill(numbers, 1),
            lambda: two.add_fill(numbers, 1),
            lambda: two.capture(world.side).__enter__(),
            graph.instantiate,
            graph.close,
        ):
            with pytest.raises(cu.CaptureError, match="is being captured"):
                change()
        numbers.fill_async(1, world.main)
    two.add_fill(numbers, 1)


def test_one_executable_at_a_time(world):
    graph = world.graph
    _, body = graph.add_if(graph.condition())
    body.add_fill(world.work, 1)
    step = graph.instantiate()
    with pytest.raises(cu.CaptureError, match=r"one executable of it at a time"):
        graph.instantiate()
    step.close()
    step = graph.instantiate()
    del step
    gc.collect()
    graph.instantiate().close()


def test_a_closed_executable_that_cannot_be_destroyed_during_a_capture(world, gate):
    graph = world.graph
    _, body = graph.add_if(graph.condition())
    body.add_fill(world.work, 1)
    step = graph.instantiate()
    gate.hold(world.side)
    step.close()
    with (
        cu.Graph().capture(world.main),
        pytest.raises(cu.CaptureError, match="would end the captures that are in progress"),
    ):
        graph.instantiate()
    gate.open()
    graph.instantiate().close()


@pytest.mark.parametrize("wrong", ["copy_from", "discard", "context", "array"])
def test_a_capture_into_a_body_refuses_as_others_do(world, numbers, wrong):
    _, body = world.graph.add_while(world.graph.condition())
    with body.capture(world.main):
        with pytest.raises(cu.CaptureError, match="in graph 'step'"):
            {
                "copy_from": lambda: world.work.copy_from(world.frames, stream=world.main),
                "discard": lambda: cu.UnifiedBuffer(4).discard(world.main),
                "context": lambda: world.main.context.synchronize(),
                "array": lambda: numbers.copy_from_async(u4(1, 2, 3, 4), world.main),
            }[wrong]()
    assert body.nodes == ()


def counting(world, kernels, numbers):
    """An executable of the graph of `world`, with a loop that counts down."""
    _, body = world.graph.add_while(world.graph.condition(1))
    body.add_launch(kernels.count_down, 1, 1, numbers[:1], 1)
    return world.graph.instantiate()


def keep_busy(world, gate):
    gate.hold(world.side)
    return world.out.fill_async(1, world.side)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_ending_an_executable_waits_for_nothing(world, gate, kernels, numbers, end):
    step = counting(world, kernels, numbers)
    token = keep_busy(world, gate)
    if end == "close":
        step.close()
    del step
    gc.collect()
    assert not token.done
    gate.open()
    token.wait()
    world.graph.instantiate()


def test_the_next_executable_waits_until_the_last_one_is_destroyed(world, gate, kernels, numbers):
    step = counting(world, kernels, numbers)
    keep_busy(world, gate)
    step.close()
    opening = threading.Timer(0.2, gate.open)
    opening.start()
    world.graph.instantiate()
    opening.join()


def test_an_executable_is_destroyed_before_its_module(world, gate, numbers):
    kernels = Kernels()
    step = counting(world, kernels, numbers)
    token = keep_busy(world, gate)
    del step, kernels
    world.graph.close()
    world.graph = None
    gc.collect()
    gate.open()
    token.wait()


def add_child(body, memory, work):
    child = cu.Graph()
    child.add_copy(work, memory)
    body.add_graph(child)


USES = {
    "fill": lambda body, memory, work: body.add_fill(memory, 1),
    "copy from it": lambda body, memory, work: body.add_copy(work, memory),
    "copy to it": lambda body, memory, work: body.add_copy(memory, work),
    "child": add_child,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", [cu.LockedBuffer, cu.UnifiedBuffer])
def test_memory_of_another_context_in_a_body(world, use, kind):
    with cu.Context.create(cu.Device(0)):
        far = kind.zeros(16, "f4", name="far")
    first = world.graph.add_fill(world.work, 4)
    _, body = world.graph.add_if(world.graph.condition(1), after=[first])
    USES[use](body, far, world.out)
    with pytest.raises(ValueError, match=r"uses \w+ 'far'.* belongs to .* and the graph to"):
        world.graph.instantiate()
    world.graph.close()
    far.close()


def test_a_stream_lives_until_the_executable_is_destroyed(world, gate, numbers):
    """The streams of a capture live as long as its executable with conditions.

    The executable's nodes refer to the streams on which they were captured.
    """
    stream = cu.Stream()
    with world.graph.capture(stream):
        numbers.fill_async(1, stream)
    _, body = world.graph.add_if(world.graph.condition(1), after=world.graph.nodes)
    body.add_fill(numbers, 1)
    step = world.graph.instantiate()
    step.launch(stream).wait()
    world.graph.close()
    alive = weakref.ref(stream)
    gate.hold(world.main)
    del step, stream
    assert alive() is not None
    gate.open()
    world.main.synchronize()
    assert alive() is None


@pytest.mark.cuda_software
def test_a_kernel_that_sets_a_condition_that_is_none(kernels, numbers):
    stream = cu.Stream()
    kernels.choose.launch(1, 1, numbers[:1], 12345, stream=stream)
    with pytest.raises(cu.ContextLostError, match="there is no condition 12345, thread"):
        stream.synchronize()
    testing.reset_device()


def test_a_node_with_nothing_to_run(world, numbers):
    graph = world.graph
    _, _, two = graph.add_if(graph.condition(1), bodies=2)
    _, again = two.add_while(two.condition())
    with pytest.raises(
        cu.CaptureError, match=r"add_while at .* in body 1 of add_if at .* has noth"
    ):
        graph.instantiate()
    again.add_fill(numbers, 1)
    graph.instantiate().close()  # one of the two bodies has a node
    other = cu.Graph(name="other")
    other.add_switch(other.condition(), 2)
    with pytest.raises(
        cu.CaptureError, match=r"add_switch at .* in graph 'other' has nothing to run"
    ):
        other.instantiate()


def test_a_body_with_work_of_another_library(world, numbers):
    """The body's nodes are the driver's only: cudadrv has not seen the calls."""
    driver = ctypes.CDLL(cu.driver_info().path)
    graph = world.graph
    _, body = graph.add_if(graph.condition(1))
    with cu.Stream() as stream, body.capture(stream):
        handle, address = ctypes.c_void_p(stream.handle), ctypes.c_uint64(numbers.address)
        assert driver.cuMemsetD8Async(address, 1, ctypes.c_size_t(numbers.nbytes), handle) == 0
    with graph.instantiate() as step, cu.Stream() as stream:
        step.launch(stream).wait()
    assert set(numbers.to_numpy().view("u1").tolist()) == {1}
