"""Functions of the program as nodes of graphs: by `stream.call` in a capture, or by `add_call`."""

import gc
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from in_threads import interrupted

import cudadrv as cu
from cudadrv import testing

COUNT = 16


@pytest.fixture(autouse=True, params=["threads", "script"])
def way(request, driver):
    """How the software driver runs functions: in its threads, or where a run follows a script."""
    if request.param == "script":
        if driver == "cuda":
            pytest.skip("only the software driver follows scripts")
        testing.configure("schedule=replay")
    return request.param


def nothing(*arrays):
    pass


def double(array):
    array *= 2


def fail(error, *arrays):
    raise error


class Gate:
    """A function that waits until it is let go."""

    def __init__(self):
        self.free, self.entered, self.runs = threading.Event(), threading.Event(), 0

    def __call__(self, *arrays):
        self.entered.set()
        assert self.free.wait(60)
        self.runs += 1


@pytest.fixture
def gate(way):
    if way == "script":
        pytest.skip("a run that follows a script waits for the function")
    found = Gate()
    yield found
    found.free.set()


def graph_of(function, *buffers, name=None):
    """A graph with one node, which calls the function."""
    graph = cu.Graph(name=name)
    graph.add_call(function, *buffers)
    return graph


@pytest.fixture
def captured(world):
    """A graph: frames -> work -> result, which a function doubles, -> out."""
    world.frames[:] = np.arange(COUNT)
    world.work.fill(0)
    with world.graph.capture(world.main):
        world.result.copy_from_async(world.frames, world.main)
        world.main.call(double, world.result)
        world.out.copy_from_async(world.result, world.main)
    return world.graph


# ---- order and ownership ----


def test_each_launch_calls_the_function(world, captured):
    step = captured.instantiate()
    for factor in range(3):
        world.frames[:] = factor * np.arange(COUNT)
        step.launch(world.main)
        world.main.synchronize()
        assert np.array_equal(world.out.to_numpy(), 2 * factor * np.arange(COUNT))


def test_launches_one_after_the_other(world):
    seen = []
    step = graph_of(lambda array: seen.append(int(array[0])) or double(array), world.frames)
    step = step.instantiate()
    world.frames[:] = 1
    for number in range(6):
        step.launch((world.main, world.side)[number % 2])
        (world.side, world.main)[number % 2].wait((world.main, world.side)[number % 2])
    world.main.synchronize()
    assert seen == [1, 2, 4, 8, 16, 32]


def test_the_node(captured, world):
    node = captured.nodes[1]
    assert node.operation == "call"
    assert node.writes == (world.result,)
    assert node.reads == ()
    assert node.stream is world.main
    added = cu.Graph()
    node = added.add_call(nothing, cu.read(world.frames), world.result)
    assert (node.operation, node.stream) == ("add_call", None)
    assert (node.reads, node.writes) == ((world.frames,), (world.result,))
    assert "add_call" in added.to_svg()


def test_conflicts_in_a_graph(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.result.copy_from_async(world.out, world.main)
        with pytest.raises(cu.BufferBorrowedError, match=r"by call on Stream .* in the capture"):
            world.side.call(nothing, cu.read(world.result))
        world.side.call(nothing, cu.read(world.frames))
        world.main.call(nothing, cu.read(world.frames), world.result)
        world.main.wait(world.side)
    built = cu.Graph()
    call = built.add_call(nothing, world.frames)
    with pytest.raises(cu.BufferBorrowedError, match=r"being written by add_call at "):
        built.add_copy(world.work, world.frames)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write .* by add_call in graph"):
        built.add_call(nothing, world.frames)
    with cu.ordering("wait"):
        second = built.add_call(nothing, world.frames)
    assert (call, second) in built.edges


def test_a_launch_borrows(world, gate):
    graph = graph_of(gate, world.frames, cu.read(world.result), name="calls")
    step = graph.instantiate()
    token = step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match=r"written by add_call at .* in graph 'calls'"):
        world.frames[0]
    assert world.result[0] == 0
    with pytest.raises(cu.BufferBorrowedError, match="being read by"):
        world.result[0] = 1
    with pytest.raises(cu.BufferBorrowedError):
        world.side.call(nothing, world.frames)
    gate.free.set()
    token.wait()
    world.frames[0] = 1
    with pytest.raises(cu.BufferBorrowedError, match="graph 'calls' uses it, in add_call at"):
        world.frames.close()
    step.close()
    graph.close()
    world.frames.close()


def test_kinds_of_arguments(world):
    shared, unified = cu.LockedBuffer.zeros(4, "i4"), cu.UnifiedBuffer.zeros(3, "c8")
    image = cu.LockedBuffer.from_array(np.arange(12, dtype="u2").reshape(3, 4))
    empty = cu.LockedBuffer(0, "f8")
    seen = []

    def look(*arrays):
        seen.append([(array.shape, array.dtype.str, array.flags.writeable) for array in arrays])
        arrays[1][:, 1:] = 9

    given = (cu.shared(shared), image[:, 2:], cu.read(unified), empty)
    graph_of(look, *given).instantiate().launch(world.main).wait()
    assert seen == [
        [((4,), "<i4", True), ((3, 2), "<u2", True), ((3,), "<c8", False), ((0,), "<f8", True)]
    ]
    assert image.to_numpy().tolist() == [[0, 1, 2, 9], [4, 5, 6, 9], [8, 9, 10, 9]]


def test_bad_arguments(world):
    graph = cu.Graph()
    with pytest.raises(TypeError, match=r"argument 1 of the function is DeviceBuffer 'work'"):
        graph.add_call(nothing, world.frames, world.work)
    with pytest.raises(TypeError, match="function must be callable, and is int"):
        graph.add_call(3)
    with pytest.raises(ValueError, match=r"cudadrv.read, and .* as cudadrv.write, and they"):
        graph.add_call(nothing, cu.read(world.frames[:4]), cu.write(world.frames[2:]))
    closed = cu.LockedBuffer(4)
    closed.close()
    with pytest.raises(cu.BufferClosedError):
        graph.add_call(nothing, closed)
    other = graph_of(nothing)
    with pytest.raises(ValueError, match="is not a node of"):
        graph.add_call(nothing, after=other.nodes)
    assert graph.nodes == ()
    with world.graph.capture(world.main):
        with pytest.raises(TypeError, match="DeviceBuffer 'work'"):
            world.main.call(nothing, world.work)
        world.main.call(nothing)
    assert len(world.graph.nodes) == 1


def test_without_buffers(world):
    seen = []
    graph = graph_of(partial(seen.append, 1))
    graph.add_call(partial(seen.append, 2), after=graph.nodes)
    graph.instantiate().launch(world.main).wait()
    assert seen == [1, 2]


def test_where_no_function_can_run(world):
    """The driver allows no functions in bodies, and launches of others' graphs are unknown."""
    graph = cu.Graph(name="outer")
    _, body = graph.add_if(graph.condition(1))
    child = graph_of(nothing, name="child")
    with pytest.raises(cu.CaptureError, match=r"nothing cannot be called in the body of add_if"):
        body.add_call(nothing)
    with pytest.raises(cu.CaptureError, match=r"the functions of graph 'child' cannot be called"):
        body.add_graph(child)
    with body.capture(world.main):
        with pytest.raises(cu.CaptureError, match="nothing cannot be called in the body"):
            world.main.call(nothing)
        world.out.fill_async(1, world.main)
    step = graph.instantiate()
    step.launch(world.main).wait()
    assert (world.out.to_numpy() == 1).all()


# ---- exceptions ----


def test_exceptions_come_out_at_their_launch(world):
    left = [ValueError("one"), KeyError("two"), TypeError("three")]
    step = graph_of(lambda: fail(left.pop(0)), name="failing").instantiate()
    token = step.launch(world.main)
    with pytest.raises(ValueError, match="one") as found:
        token.wait()
    token.wait()
    assert "graph 'failing' called (added at " in found.value.__notes__[0]
    step.launch(world.main)
    step.launch(world.main)
    with pytest.raises(ExceptionGroup) as both:
        world.main.synchronize()
    assert [type(each) for each in both.value.exceptions] == [KeyError, TypeError]
    world.main.synchronize()


def test_two_executables_fail_apart(world, gate):
    """The wait for a launch raises nothing of the other executable's launch."""
    which = []

    def function():
        which.append(len(which))
        raise ValueError(len(which))

    graph = graph_of(function)
    first, second = graph.instantiate(), graph.instantiate()
    one = first.launch(world.main)
    while not one.done:
        time.sleep(0.001)
    world.side.call(gate)
    two = second.launch(world.side)
    with pytest.raises(ValueError, match="1"):
        one.wait()
    gate.free.set()
    with pytest.raises(ValueError, match="2"):
        two.wait()


def test_a_failure_is_not_raised_before_its_launch_is_complete(world, gate):
    graph = graph_of(partial(fail, ValueError("early")))
    graph.add_call(gate, after=graph.nodes)
    step = graph.instantiate()
    world.side.call(nothing).wait()
    token = step.launch(world.main)
    while not gate.entered.wait(0.001):
        assert not token.done
    world.side.synchronize()  # the function has failed, but the launch goes on
    gate.free.set()
    with pytest.raises(ValueError, match="early"):
        token.wait()


def test_the_nodes_behind_run_all_the_same(world):
    graph = graph_of(partial(fail, ValueError("this")), world.frames)
    graph.add_copy(world.work, world.frames, after=graph.nodes)
    world.frames[:] = 3
    token = graph.instantiate().launch(world.main)
    with pytest.raises(ValueError, match="this"):
        token.wait()
    assert (world.work.to_numpy() == 3).all()


def test_arrays_that_escape(world):
    kept = []
    step = graph_of(lambda array: kept.append(memoryview(array)), world.frames).instantiate()
    with pytest.raises(cu.BufferExportedError, match=r"which graph .* called"):
        step.launch(world.main).wait()
    with pytest.raises(cu.BufferExportedError):
        step.launch(world.main)
    kept.clear()
    gc.collect()
    with pytest.raises(cu.BufferExportedError):
        step.launch(world.main).wait()
    kept.clear()


def test_calls_of_cudadrv(world):
    refused = []

    def function(array):
        for call in (
            lambda: step.launch(world.side),
            lambda: world.work.fill_async(1, world.side),
            lambda: world.side.synchronize(),
            lambda: step[0].set(function=nothing),
            lambda: graph.instantiate(),
            lambda: graph.add_call(nothing),
            lambda: step.close(),
            lambda: graph.close(),
            lambda: world.frames.close(),
        ):
            try:
                call()
            except cu.HostFunctionError as error:
                refused.append(str(error))

    graph = graph_of(function, world.frames, name="calling")
    step = graph.instantiate()
    step.launch(world.main).wait()
    assert len(refused) == 9
    assert ".function, which graph 'calling' called (added at " in refused[0]
    step.launch(world.main).wait()


# ---- changes ----


def test_set(world):
    seen = []
    graph = graph_of(lambda array: seen.append(("first", array[0])), world.frames)
    step = graph.instantiate()
    world.frames[:], world.result[:] = 1, 2
    step[0].set(world.result)
    step.launch(world.main).wait()
    step[0].set(function=lambda array: seen.append(("second", array[0])))
    step.launch(world.main).wait()
    step[0].set(cu.read(world.frames), function=lambda array: seen.append(array.flags.writeable))
    token = step.launch(world.main)
    assert world.frames[0] == 1
    token.wait()
    assert seen == [("first", 2), ("second", 2), False]
    assert step.nodes[0].reads == (world.frames,)
    graph.instantiate().launch(world.main).wait()  # the graph is as it was
    assert seen[3:] == [("first", 1)]


def test_set_what_does_not_belong(world, captured):
    step = captured.instantiate()
    for change in (
        {"source": world.frames},
        {"grid": 3},
        {"value": 1, "function": nothing},
        {"shared_bytes": 1, "function": nothing},
        {},
    ):
        with pytest.raises(TypeError, match=r"set of call at .* takes buffers and function="):
            step[1].set(**change)
    with pytest.raises(TypeError, match=r"set of copy_from_async at .* takes source= and target="):
        step[0].set(function=nothing)
    with pytest.raises(TypeError, match="DeviceBuffer 'work'"):
        step[1].set(world.work)
    with pytest.raises(TypeError, match="function must be callable"):
        step[1].set(function=3)
    with pytest.raises(cu.CaptureError, match=r"cannot be disabled.*set\(function=\.\.\.\)"):
        step[1].enabled = False
    assert step[1].enabled
    step.launch(world.main).wait()


def test_set_checks_the_order(world):
    graph = cu.Graph()
    graph.add_call(nothing, world.frames)
    graph.add_copy(world.work, world.result)
    step = graph.instantiate()
    with pytest.raises(cu.BufferBorrowedError, match="nothing in the graph orders the two"):
        step[0].set(world.result)
    step[0].set(cu.read(world.result))
    step.launch(world.main).wait()


def test_queued_launches_keep_their_function(world, gate):
    seen = []
    step = graph_of(gate).instantiate()
    before = weakref.ref(gate)
    tokens = [step.launch(world.main), step.launch(world.main)]
    step[0].set(function=partial(seen.append, 1))
    tokens.append(step.launch(world.main))
    step[0].set(function=partial(seen.append, 2))
    step[0].set(function=partial(fail, ValueError("last")))
    tokens.append(step.launch(world.main))
    assert gate.runs == 0
    gate.free.set()
    tokens[2].wait()
    assert (gate.runs, seen) == (2, [1])
    assert before() is gate
    with pytest.raises(ValueError, match="last"):
        tokens[3].wait()


def test_update(world, gate):
    seen = []
    step = graph_of(lambda array: (gate(), seen.append(array[0])), world.frames).instantiate()
    world.frames[:], world.result[:] = 1, 2
    first = step.launch(world.main)
    with graph_of(lambda array: seen.append(10 * array[0]), world.result) as other:
        step.update(other)
    second = step.launch(world.main)
    gate.free.set()
    second.wait()
    assert first.done
    assert seen == [1, 20]
    with graph_of(nothing) as other:
        other.add_fill(world.out, 1, after=other.nodes)
        with pytest.raises(cu.CaptureError, match="2 operations"):
            step.update(other)
    with cu.Graph() as other:
        other.add_fill(world.out, 1)
        with pytest.raises(cu.CaptureError, match="another kind"):
            step.update(other)
    step.launch(world.main).wait()
    assert seen == [1, 20, 20]


# ---- graphs in graphs ----


def test_child_graphs(world):
    """The same child twice, and a child of a child, in two executables at the same time."""
    seen = []
    lock = threading.Lock()

    def note(name):
        with lock:
            seen.append(name)

    child = graph_of(partial(note, "a"))
    child.add_call(partial(note, "b"), after=child.nodes)
    middle = cu.Graph()
    one = middle.add_graph(child)
    two = middle.add_call(partial(note, "c"), after=[one])
    middle.add_graph(child, after=[two])
    outer = cu.Graph()
    last = outer.add_graph(middle)
    outer.add_call(partial(note, "d"), after=[last])
    child.close()
    middle.close()
    steps = [outer.instantiate(), outer.instantiate()]
    for step, stream in zip(steps, (world.main, world.side), strict=True):
        step.launch(stream)
    world.main.synchronize()
    world.side.synchronize()
    assert sorted(seen) == sorted("abcabd" * 2)
    seen.clear()
    steps[0].launch(world.main).wait()
    assert seen == list("abcabd")
    steps[0].update(outer)
    steps[0].launch(world.main).wait()
    assert seen == list("abcabd") * 2


def test_a_child_that_fails(world):
    child = graph_of(partial(fail, ValueError("in the child")), name="child")
    outer = cu.Graph()
    outer.add_graph(child)
    step = outer.instantiate()
    for _ in range(2):
        token = step.launch(world.main)
        with pytest.raises(ValueError, match="in the child") as found:
            token.wait()
    assert "which graph 'child' called" in found.value.__notes__[0]
    child.instantiate().launch(world.main)
    with pytest.raises(ValueError, match="in the child"):
        world.main.synchronize()


# ---- the end ----


def test_closed_while_a_function_runs(world, gate):
    """Both launches still call the function. Then nothing keeps it."""

    class Function:
        def __call__(self, array):
            gate()

    function = Function()
    alive = weakref.ref(function)
    buffer = cu.LockedBuffer.zeros(4)
    memory = weakref.ref(buffer)
    graph = graph_of(function, buffer)
    step = graph.instantiate()
    tokens = [step.launch(world.main), step.launch(world.side)]
    del function, buffer
    step.close()
    graph.close()
    del graph, step
    gc.collect()
    assert alive() is not None
    gate.free.set()
    for token in tokens:
        token.wait()
    assert gate.runs == 2
    tokens.clear()
    del token
    gc.collect()
    assert alive() is None
    assert memory() is None


def test_garbage_in_flight(world, gate):
    """A function that refers to its own executable is not collected before it has run."""

    class Owner:
        def __init__(self):
            self.graph = graph_of(self.run)
            self.step = self.graph.instantiate()
            self.text = "here"

        def run(self):
            gate()
            seen.append(self.text)

    seen = []
    owner = Owner()
    alive = weakref.ref(owner)
    owner.step.launch(world.main)
    del owner
    gc.collect()
    assert alive() is not None
    gate.free.set()
    world.main.synchronize()
    assert seen == ["here"]
    gc.collect()
    assert alive() is None


def test_a_closed_stream(world):
    seen = []
    step = graph_of(partial(seen.append, 1)).instantiate()
    stream = cu.Stream()
    token = step.launch(stream)
    stream.close()
    token.wait()
    assert seen == [1]


def test_failing_garbage(world, gate):
    """The exception comes out although the executable is gone."""
    step = graph_of(lambda: (gate(), fail(ValueError("late")))).instantiate()
    step.launch(world.main)
    del step
    gc.collect()
    gate.free.set()
    with pytest.raises(ValueError, match="late"):
        world.main.synchronize()


def test_timeouts_and_interrupts(world, gate):
    token = graph_of(gate).instantiate().launch(world.main)
    with pytest.raises(TimeoutError, match=r"is not complete after 0\.01 s"):
        token.wait(timeout=0.01)
    with interrupted():
        world.main.synchronize()
    assert not token.done
    gate.free.set()
    token.wait()
    assert gate.runs == 1


def test_threads(world):
    """Several threads launch one executable, and every launch calls the function once."""
    counts = [0]

    def add(array):
        array += 1
        counts[0] += 1
        if counts[0] % 10 == 0:
            raise ValueError(counts[0])

    buffer = cu.LockedBuffer.zeros(4, "i8")
    step = graph_of(add, buffer).instantiate()
    caught, others = [], []

    def run():
        try:
            launch()
        except BaseException as error:
            others.append(error)

    def launch():
        stream = cu.Stream()
        for _ in range(25):
            with cu.ordering("wait"):
                step.launch(stream)
            try:
                stream.synchronize()
            except (ValueError, ExceptionGroup) as error:
                caught.extend(getattr(error, "exceptions", [error]))
        stream.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cu.Device(0).synchronize()
    assert not others
    assert counts[0] == buffer[0] == 100
    assert sorted(error.args[0] for error in caught) == list(range(10, 101, 10))


@pytest.mark.cuda_software
def test_a_lost_context(way, driver):
    if way == "script":
        pytest.skip("a run that follows a script runs no function behind a wait that never ends")
    seen = []
    stream, host = cu.Stream(), cu.LockedBuffer.zeros(COUNT)
    step = graph_of(lambda array: seen.append(array.size), host).instantiate()
    alive = weakref.ref(step)
    testing.configure("schedule=lazy")
    step.launch(stream)
    testing.configure("fault=cuStreamQuery:1:719")
    with pytest.raises(cu.ContextLostError):
        stream.synchronize()
    assert not seen
    with pytest.raises(cu.ContextLostError):
        step.launch(stream)
    del step
    gc.collect()
    assert alive() is None
