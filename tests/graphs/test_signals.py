"""Signals in graphs: sets and waits that are captured or added, and the numbers of each launch."""

import ctypes
import sys
import threading

import pytest

import cudadrv as cu
from cudadrv import testing

COUNT = 16


@pytest.fixture
def signal(world):
    return cu.Signal(name="ready")


@pytest.fixture
def turn(world):
    """An external signal. Nothing waits for it for ever, even if a test fails."""
    turn = cu.Signal(external=True, name="turn")
    yield turn
    if turn.value < 100:
        while turn.value < 100:
            try:
                turn.set(100)
            except cu.BufferBorrowedError:  # a set of a stream is unfinished
                turn.wait(turn.value)
    cu.Device(0).synchronize()


@pytest.fixture
def ring(world, signal):
    """A graph that copies `frames` to `work`, and sets the signal behind it."""
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.main.set(signal, 1)
    return world.graph.instantiate()


# ---- sets ----


def test_each_launch_sets_the_number(world, signal, ring):
    for number in (1, 2, 5):
        if number > 1:
            ring[1].set(number)
        world.frames[:] = number
        ring.launch(world.main)
        world.side.wait(signal, number)
        world.result.copy_from_async(world.work, world.side)
        world.side.synchronize()
        assert list(world.result) == [number] * COUNT
        assert signal.value == ctypes.c_uint64.from_address(signal.address).value == number
    assert (ring.nodes[1].signal, ring.nodes[1].number) == (signal, 5)
    assert (world.graph.nodes[1].number, ring.nodes[0].signal, ring.nodes[0].number) == (
        1,
        None,
        None,
    )
    assert (ring.nodes[1].reads, ring.nodes[1].writes) == ((), ())


def test_a_wait_is_needed(world, signal, ring):
    ring.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by copy_from_async at"):
        world.result.copy_from_async(world.work, world.side)
    world.side.wait(signal, 1)
    world.result.copy_from_async(world.work, world.side)


def test_a_wait_is_for_the_launch_that_sets_the_number(world, signal, ring, gate):
    ring.launch(world.main)
    gate.hold(world.main)
    ring[1].set(2)
    ring.launch(world.main)
    signal.wait(1)
    assert signal.value == 1
    with pytest.raises(TimeoutError):
        signal.wait(2, timeout=0.01)
    gate.open()
    signal.wait(2)
    world.frames[:] = 3


def test_a_launch_needs_a_larger_number(world, signal, ring, unchanged):
    ring.launch(world.main)
    with unchanged("cuGraphLaunch", "cuEventCreate"):
        for number in (None, 1, 0):
            if number is not None:
                ring[1].set(number)
            shown = 1 if number is None else number
            with pytest.raises(
                cu.SignalError,
                match=rf"set at .* in graph 'step' cannot set Signal 'ready' to {shown}: it only"
                r" grows, and was set to 1 by .*test_signals.py:\d+\. Give .* step\[1\]\.set\(2\)",
            ):
                ring.launch(world.main)
    assert signal.value <= 1
    world.main.set(signal, 4)
    ring[1].set(4)
    with pytest.raises(cu.SignalError, match="and was set to 4"):
        ring.launch(world.main)
    ring[1].set(5)
    ring.launch(world.main).wait()
    assert signal.value == 5


def test_a_launch_that_is_refused_sets_nothing(world, signal, ring):
    world.side.wait(world.main)
    world.work.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError):
        ring.launch(world.main)
    with pytest.raises(cu.SignalError, match="would never end"):
        world.side.wait(signal, 1)
    world.main.wait(world.side)
    ring.launch(world.main)
    signal.wait(1)


def test_sets_of_streams_and_launches_are_ordered(world, signal, ring):
    world.side.set(signal, 1)
    ring[1].set(2)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write Signal 'ready' in set at"):
        ring.launch(world.main)
    with cu.ordering("unchecked"), pytest.raises(cu.BufferBorrowedError, match="Signal 'ready'"):
        ring.launch(world.main)
    with cu.ordering("wait"):
        ring.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match=r"set at .*in graph 'step' on"):
        world.side.set(signal, 3)
    with pytest.raises(cu.BufferBorrowedError):
        signal.set(3)
    world.side.wait(signal, 2)
    world.side.set(signal, 3)
    signal.wait(3)


def test_the_token_of_a_launch_waits_for_it_alone(world, signal, ring, gate):
    token = ring.launch(world.main)
    gate.hold(world.main)
    token.wait()
    assert signal.value == 1
    gate.open()


def test_two_sets_in_a_graph(world, signal):
    with world.graph.capture(world.main):
        first = world.main.set(signal, 1)
        with pytest.raises(cu.SignalError, match=r"set at .* of graph 'step' sets it to 1\. Set"):
            world.main.set(signal, 1)
        world.side.wait(first)
        world.main.set(signal, 2)
        with pytest.raises(cu.BufferBorrowedError, match="nothing in the graph orders"):
            world.side.set(signal, 3)
        world.main.wait(world.side)
    step = world.graph.instantiate()
    step.launch(world.main)
    signal.wait(2)
    step[0].set(3)
    with pytest.raises(cu.SignalError, match=r"cannot set Signal 'ready' to 2: .* set to 3"):
        step.launch(world.main)
    step[1].set(4)
    step.launch(world.main)
    world.side.wait(signal, 3)
    signal.wait(4)


def test_numbers_that_no_set_can_have(world, signal):
    with world.graph.capture(world.main):
        with pytest.raises(cu.SignalError, match="cannot be set to 0"):
            world.main.set(signal, 0)
        with pytest.raises(ValueError, match="from 0 to"):
            world.main.set(signal, -1)
        node = world.main.set(signal, 1)
    step = world.graph.instantiate()
    for wrong, error in ((2**63, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            step[0].set(wrong)
    for arguments in ((), (1, 2)):
        with pytest.raises(TypeError, match="takes a number"):
            step[0].set(*arguments)
    with pytest.raises(TypeError, match="takes a number"):
        step[0].set(2, grid=1)
    with pytest.raises(TypeError, match="takes a number"):
        step[0].set(value=2)
    assert node.reads == ()
    step.launch(world.main).wait()


# ---- waits ----


def test_a_wait_for_a_set_of_the_same_graph_is_an_edge(world, signal):
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.side.wait(world.main)
        world.out.fill_async(1, world.main)
        world.main.set(signal, 3)
        world.side.wait(signal, 2)
        world.result.copy_from_async(world.out, world.side)
        world.main.wait(world.side)
    assert [node.operation for node in world.graph.nodes] == [
        "copy_from_async",
        "fill_async",
        "set",
        "copy_from_async",
    ]
    assert (world.graph.nodes[2], world.graph.nodes[3]) in world.graph.edges
    step = world.graph.instantiate()
    assert world.result_of(step) == [1] * COUNT
    step[2].set(9)
    assert world.result_of(step) == [1] * COUNT


def test_a_launch_waits_for_the_set_that_is_queued(world, signal, gate):
    with world.graph.capture(world.main):
        world.main.wait(signal, 1)
        world.result.copy_from_async(world.work, world.main)
    step = world.graph.instantiate()
    with pytest.raises(
        cu.SignalError,
        match=r"^wait at .* in graph 'step', a wait for Signal 'ready' at 1 would never end: nothi",
    ):
        step.launch(world.main)
    gate.hold(world.side)
    world.work.fill_async(7, world.side)
    world.side.set(signal, 1)
    world.work.fill_async(8, world.side)
    world.side.set(signal, 2)
    with pytest.raises(cu.BufferBorrowedError):
        step.launch(world.main)  # only the first fill is waited for
    step[0].set(2)
    token = step.launch(world.main)
    assert not token.done
    gate.open()
    token.wait()
    assert list(world.result) == [8] * COUNT
    assert (step.nodes[0].signal, step.nodes[0].number) == (signal, 2)
    step.launch(world.main).wait()  # the number stays reached


def test_two_graphs_in_turns(world, signal):
    """Each waits for the other's set, and sets the number after that."""
    other = cu.Graph(name="other")
    for graph, stream, number in ((world.graph, world.main, 0), (other, world.side, 1)):
        with graph.capture(stream):
            stream.wait(signal, number)
            world.work.fill_async(number, stream)
            stream.set(signal, number + 1)
    steps = world.graph.instantiate(), other.instantiate()
    streams = world.main, world.side
    for number in range(6):
        step, stream = steps[number % 2], streams[number % 2]
        step[0].set(number)
        step[2].set(number + 1)
        step.launch(stream)
    signal.wait(6)
    assert list(world.work.to_numpy()) == [1] * COUNT
    other.close()


def test_added_nodes(world, signal):
    fill = world.graph.add_fill(world.work, 5)
    node = world.graph.add_set(signal, 1, after=[fill])
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write Signal 'ready' by add_set"):
        world.graph.add_set(signal, 2, after=[fill])
    with pytest.raises(cu.SignalError, match=r"add_set at .* of graph 'step' sets it to 1"):
        world.graph.add_set(signal, 1, after=[node])
    with pytest.raises(cu.CaptureError, match=r"add_set at .* is an edge: .*after=\[node\]"):
        world.graph.add_wait(signal, 1, after=[fill])
    wait = world.graph.add_wait(signal, 7)
    world.graph.add_copy(world.result, world.work, after=[node, wait])
    step = world.graph.instantiate()
    world.side.set(signal, 7)
    step[node].set(8)
    world.main.wait(world.side)
    assert world.result_of(step) == [5] * COUNT
    assert signal.value == 8
    assert [each.operation for each in step.nodes[1:3]] == ["add_set", "add_wait"]
    assert "add_set: Signal 'ready', 1" in world.graph.to_dot()
    assert "add_wait: Signal" in world.graph.to_svg()


def test_a_capture_after_an_added_set(world, signal):
    node = world.graph.add_set(signal, 1)
    with (
        world.graph.capture(world.main, after=[]),
        pytest.raises(
            cu.CaptureError, match=r"add_set at .* sets Signal 'ready' to 1, and .* is not ordered"
        ),
    ):
        world.main.wait(signal, 1)
    with world.graph.capture(world.main, after=[node]):
        world.work.fill_async(1, world.main)
        world.main.wait(signal, 1)
    assert len(world.graph.nodes) == 2


def test_what_is_no_signal(world, signal):
    for call in (world.graph.add_set, world.graph.add_wait):
        with pytest.raises(TypeError, match=r"graph.add_\w+\(signal, n\) takes a Signal and a nu"):
            call(world.work, 1)
        with pytest.raises(TypeError, match="number of a signal"):
            call(signal, None)
    closed = cu.Signal(name="gone")
    closed.close()
    for call in (world.graph.add_set, world.graph.add_wait):
        with pytest.raises(cu.BufferClosedError):
            call(closed, 1)
    assert repr(world.graph) == "<Graph 'step', not captured>"


# ---- external signals ----


def test_an_open_wait_of_a_launch(world, turn):
    with world.graph.capture(world.main):
        world.main.wait(turn, 1)
        world.result.copy_from_async(world.work, world.main)
    step = world.graph.instantiate()
    world.work.fill(4)
    token = step.launch(world.main)
    for work in (token, world.main):
        with pytest.raises(cu.SignalError, match="is behind the wait of Stream"):
            world.side.wait(work)
    with pytest.raises(
        cu.SignalError, match=r"the last launch of graph 'step' is behind the wait of Stream"
    ):
        step.launch(world.side)
    token = step.launch(world.main)  # behind the wait on the same stream
    with pytest.raises(cu.BufferBorrowedError):
        turn.close()
    with pytest.raises(cu.BufferBorrowedError):
        world.result.to_numpy()
    turn.set(1)
    token.wait()
    assert list(world.result) == [4] * COUNT
    step[0].set(2)
    token = step.launch(world.side)
    with pytest.raises(TimeoutError):
        token.wait(timeout=0.01)
    turn.set(2)
    token.wait()


def test_a_graph_behind_an_open_wait_of_its_stream(world, turn):
    with world.graph.capture(world.main):
        world.work.fill_async(1, world.main)
    step = world.graph.instantiate()
    world.main.wait(turn, 1)
    step.launch(world.main)
    with pytest.raises(cu.SignalError, match="the last launch of graph 'step' is behind"):
        step.launch(world.side)
    turn.set(1)
    step.launch(world.side)


def test_an_open_wait_needs_a_stream_that_is_not_blocking(world, turn):
    world.graph.add_wait(turn, 1)
    step = world.graph.instantiate()
    blocking = cu.Stream(blocking=True)
    with pytest.raises(cu.SignalError, match="cannot wait for Signal 'turn' at 1: nothing that"):
        step.launch(blocking)
    world.main.set(turn, 1)
    step.launch(blocking).wait()


def test_an_external_wait_for_a_queued_set_is_no_open_wait(world, turn, gate):
    world.graph.add_wait(turn, 1)
    step = world.graph.instantiate()
    gate.hold(world.side)
    world.side.set(turn, 1)
    token = step.launch(world.main)
    third = cu.Stream()
    third.wait(token)
    gate.open()
    third.synchronize()


# ---- owning and changing ----


def test_the_graph_keeps_the_signal(world, signal, ring):
    with pytest.raises(
        cu.BufferBorrowedError,
        match=r"cannot close Signal 'ready':\n  graph 'step' uses it, in set at",
    ):
        signal.close()
    name = cu.Signal(name="dropped")
    graph = cu.Graph()
    graph.add_set(name, 1)
    step = graph.instantiate()
    del name
    graph.close()
    step.launch(world.main).wait()
    assert step.nodes[0].signal.value == 1
    world.graph.close()
    ring.close()


def test_update(world, signal, ring):
    later = cu.Signal(name="later")
    again = cu.Graph()
    with again.capture(world.main):
        world.work.copy_from_async(world.result, world.main)
        world.main.set(later, 3)
    ring.update(again)
    again.close()
    ring.launch(world.main)
    later.wait(3)
    assert signal.value == 0
    ring[1].set(4)
    ring.launch(world.main)
    later.wait(4)
    wrong = cu.Graph()
    with wrong.capture(world.main):
        world.work.copy_from_async(world.result, world.main)
        world.main.wait(later, 1)
    with pytest.raises(cu.CaptureError, match=r"operation 1, wait at .*, is of another kind than"):
        ring.update(wrong)
    ring[1].set(5)
    ring.launch(world.main).wait()
    assert later.value == 5
    ring.close()


def test_a_node_cannot_be_disabled(ring):
    with pytest.raises(cu.CaptureError, match=r"set at .* cannot be disabled: the driver disables"):
        ring[1].enabled = False
    assert ring[1].enabled


def test_where_signals_cannot_be(world, signal):
    parent = cu.Graph(name="parent")
    world.graph.add_wait(signal, 1)
    with pytest.raises(cu.CaptureError, match=r"for Signal 'ready', in add_wait at .*numbers"):
        parent.add_graph(world.graph)
    _, body = parent.add_if(parent.condition(1))
    words = r"Signal 'ready' cannot be set or waited for in the body of add_if"
    for call in (body.add_set, body.add_wait):
        with pytest.raises(cu.CaptureError, match=words):
            call(signal, 1)
    with body.capture(world.main):
        for call in (world.main.set, world.main.wait):
            with pytest.raises(cu.CaptureError, match=words):
                call(signal, 1)
        world.work.fill_async(1, world.main)
    parent.close()


def test_another_librarys_capture(world, signal):
    driver, handle = ctypes.CDLL(cu.driver_info().path), ctypes.c_void_p(world.main.handle)
    theirs = ctypes.c_void_p()
    with cu.Device(0):
        assert driver.cuStreamBeginCapture_v2(handle, 2) == 0
        with cu.joins_capture(world.main) as kept:
            for call in (world.main.set, world.main.wait):
                with pytest.raises(cu.CaptureError, match="another library's graph are unknown"):
                    call(signal, 1)
        assert driver.cuStreamEndCapture(handle, ctypes.byref(theirs)) == 0
        assert driver.cuGraphDestroy(theirs) == 0
    kept.close()


def test_two_threads_launch(world, signal):
    """Of two launches that set the same number, one is refused."""
    steps, together, former = [], threading.Barrier(2), sys.getswitchinterval()
    for _ in range(2):
        graph = cu.Graph()
        graph.add_set(signal, 1)
        steps.append(graph.instantiate())
    refused = []

    def launch(step):
        for number in range(1, 101):
            step[0].set(number)
            together.wait()
            try:
                step.launch(world.main)
            except cu.SignalError:
                refused.append(number)

    threads = [threading.Thread(target=launch, args=(step,)) for step in steps]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(former)
    signal.wait(100)
    assert sorted(refused) == list(range(1, 101))


def test_functions_and_signals(world, signal):
    called = []
    with world.graph.capture(world.main):
        world.main.call(lambda: called.append(signal.value))
        world.main.set(signal, 1)
    step = world.graph.instantiate()
    step.launch(world.main)
    signal.wait(1)
    step[1].set(2)
    step.launch(world.main).wait()
    assert called == [0, 1]


# ---- failures ----


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "function", ["cuEventCreate", "cuGraphLaunch", "cuEventRecord", "cuStreamWaitEvent"]
)
def test_a_launch_that_fails(world, signal, turn, function):
    with world.graph.capture(world.main):
        world.main.wait(turn, 1)
        world.main.wait(signal, 1)
        world.main.set(signal, 2)
    step = world.graph.instantiate()
    world.side.set(signal, 1)
    world.main.wait(world.side)
    testing.configure(f"fault={function}:1:800")
    with pytest.raises(cu.CudaError):
        step.launch(world.main)
    testing.configure("fault=none")
    if function == "cuEventRecord":  # the launch is queued, with its open wait
        with pytest.raises(cu.SignalError):
            world.side.wait(world.main)
        with pytest.raises(cu.SignalError, match="was set to 2"):
            step.launch(world.main)
    else:
        with pytest.raises(cu.SignalError, match="would never end"):
            world.side.wait(signal, 2)
        world.side.wait(world.main)
        step.launch(world.main)
    turn.set(1)
    world.main.synchronize()
    if function != "cuEventRecord":
        assert signal.value == 2


@pytest.mark.cuda_software
@pytest.mark.parametrize("function", ["cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2"])
def test_a_capture_that_fails(world, signal, function):
    with world.graph.capture(world.main):
        testing.configure(f"fault={function}:1:800")
        with pytest.raises(cu.CudaError):
            world.main.set(signal, 1) if "Write" in function else world.main.wait(signal, 1)
        testing.configure("fault=none")
        world.main.set(signal, 1)
    assert len(world.graph.nodes) == 1


@pytest.mark.cuda_software
def test_a_node_and_a_change_that_fail(world, signal):
    testing.configure("fault=cuGraphAddBatchMemOpNode:1:800")
    with pytest.raises(cu.CudaError):
        world.graph.add_set(signal, 1)
    testing.configure("fault=none")
    assert world.graph.nodes == ()
    world.graph.add_set(signal, 1)
    step = world.graph.instantiate()
    testing.configure("fault=cuGraphExecBatchMemOpNodeSetParams:1:1")
    with pytest.raises(cu.CudaError) as caught:
        step[0].set(5)
    testing.configure("fault=none")
    assert "memory of the same kind" not in str(caught.value)
    assert step.nodes[0].number == 1
    step.launch(world.main).wait()
    assert signal.value == 1
