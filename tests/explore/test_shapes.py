"""Mistakes that public bug reports describe, as short programs: exploring finds each of them.

The programs use cudadrv without its own order of work (``cu.ordering("unchecked")``), or the
driver's functions.
"""

import ctypes
import re

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing
from cudadrv._explore import Verdict, explore
from cudadrv._explore_text import missing_order, told_of

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]
ONES = np.ones(64, "f4")


class Streams:
    """Two streams and some buffers, which are closed at the end."""

    def __enter__(self):
        self.one, self.other = cu.Stream(name="one"), cu.Stream(name="other")
        self.buffer = cu.DeviceBuffer.zeros(64, "f4", name="buffer")
        self.source = cu.LockedBuffer.from_array(ONES, name="source")
        self.target = cu.LockedBuffer.zeros(64, "f4", name="target")
        self.policy = cu.ordering("unchecked")
        self.policy.__enter__()
        return self

    def __exit__(self, *error):
        self.policy.__exit__(*error)
        self.one.synchronize()
        self.other.synchronize()
        for thing in (self.one, self.other, self.buffer, self.source, self.target):
            thing.close()


def read_before_it_has_arrived(right):
    with Streams() as s:
        s.buffer.copy_from_async(s.source, s.one)
        if right:
            s.other.wait(s.one.record())
        s.buffer.copy_to_async(s.target, s.other)
        s.other.synchronize()
        return np.array(s.target)[0] == 1


def used_again_too_early(right):
    with Streams() as s:
        s.buffer.copy_from_async(s.source, s.one)
        s.other.wait(s.one.record())
        s.buffer.copy_to_async(s.target, s.other)
        if right:
            s.one.wait(s.other.record())
        s.buffer.fill_async(7, s.one)
        s.other.synchronize()
        return np.array(s.target)[0] == 1


def event_on_the_wrong_stream(right):
    with Streams() as s:
        s.buffer.copy_from_async(s.source, s.one)
        event = (s.one if right else s.other).record()
        s.other.wait(event)
        s.buffer.copy_to_async(s.target, s.other)
        s.other.synchronize()
        return np.array(s.target)[0] == 1


def graph_before_its_input(right):
    with Streams() as s:
        graph = cu.Graph()
        graph.add_copy(s.target, s.buffer)
        step = graph.instantiate()
        s.buffer.copy_from_async(s.source, s.one)
        if right:
            s.other.wait(s.one.record())
        step.launch(s.other)
        s.other.synchronize()
        step.close()
        graph.close()
        return np.array(s.target)[0] == 1


def freed_while_another_stream_reads(right):
    """As PyTorch's allocator does without record_stream: the memory is given out again."""
    with Streams() as s, cu.DeviceBuffer.zeros(64, "f4", name="memory") as memory:
        memory.copy_from_async(s.source, s.one)
        s.other.wait(s.one.record())
        memory.copy_to_async(s.target, s.other)
        if right:
            s.one.wait(s.other.record())
        # The allocator of `one` takes the memory for its next tensor.
        memory.fill_async(9, s.one)
        s.one.synchronize()
        s.other.synchronize()
        return np.array(s.target)[0] == 1


def asked_once(right):
    """Takes it that the work is done at the first question."""
    with Streams() as s:
        token = s.buffer.copy_from_async(s.source, s.one)
        if right:
            token.wait()
        return token.done


def function_before_its_data(right):
    with Streams() as s:
        seen = []
        s.buffer.copy_from_async(s.source, s.one)
        s.buffer.copy_to_async(s.target, s.one)
        if right:
            s.other.wait(s.one.record())
        s.other.call(lambda array: seen.append(array[0]), cu.read(s.target))
        s.other.synchronize()
        return seen == [1]


# With the operations between which an order is missing.
COPY_IN, COPY_BACK = "copy_from_async on Stream 'one'", "copy_to_async on Stream 'other'"
SHAPES = {
    read_before_it_has_arrived: (COPY_IN, COPY_BACK),
    used_again_too_early: (COPY_BACK, "fill_async on Stream 'one'"),
    event_on_the_wrong_stream: (COPY_IN, COPY_BACK),
    graph_before_its_input: (COPY_IN, r"launch of graph \d+ on Stream 'other'"),
    freed_while_another_stream_reads: (COPY_BACK, "fill_async on Stream 'one'"),
    asked_once: ("the host has asked", COPY_IN),
    function_before_its_data: ("copy_to_async on Stream 'one'", "call on Stream 'other'"),
}


def judge(right):
    return Verdict.PASSED if right else Verdict.FAILED


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_wrong_form_is_found(cuda_device, shape):
    explored = explore(lambda: bool(shape(right=False)), judge)
    failure = explored.failure
    assert failure is not None
    assert failure.passing is not None
    assert missing_order(failure) is not None
    first, second = SHAPES[shape]
    order = (
        f"nothing orders\n  {first}, queued at {{line}}\nbefore\n  {second}, queued at {{line}}\n"
    )
    if shape is asked_once:
        order = f"{first} came before the end of\n  {second}, queued at {{line}}\n"
    assert re.match(order.format(line=r"\S*test_shapes\.py:\d+"), told_of(failure))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_right_form_has_one_order(cuda_device, shape):
    explored = explore(lambda: bool(shape(right=True)), judge)
    assert explored.failure is None
    assert explored.complete
    assert explored.runs == 1


def test_memory_freed_on_another_stream(cuda_device):
    """Memory of a stream is freed on another one, which does not wait for its use."""
    driver = ctypes.CDLL(cu.driver_info().path)

    def program():
        with cu.Device(0):
            one, other = cu.Stream(), cu.Stream()
            address = ctypes.c_uint64()
            handles = [ctypes.c_void_p(stream.handle) for stream in (one, other)]
            assert driver.cuMemAllocAsync(ctypes.byref(address), 64, handles[0]) == 0
            other.wait(one.record())
            assert driver.cuMemsetD8Async(address, 1, 64, handles[0]) == 0
            assert driver.cuMemFreeAsync(address, handles[1]) == 0
            one.synchronize()
            other.synchronize()
            return True

    explored = explore(program, lambda _: Verdict.RACED if testing.races() else Verdict.PASSED)
    assert explored.runs == 2
    assert explored.failure.verdict == Verdict.RACED
    pair = {"cuMemFreeAsync", "cuMemsetD8Async"}
    for text in testing.races():  # one for each run, which has other streams
        assert set(re.findall(r"(cuMem\w+) on ", text)) == pair
        assert "neither is ordered after the other" in text


def test_the_missing_order_in_words(cuda_device):
    explored = explore(lambda: bool(used_again_too_early(right=False)), judge)
    text = told_of(explored.failure)
    first, before, second = text.split("\n")[1:4]
    assert first.startswith("  copy_to_async on Stream 'other', queued at ")
    assert before == "before"
    assert second.startswith("  fill_async on Stream 'one', queued at ")
    assert "Let Stream 'one' wait for the first one" in text
    assert explored.summary().endswith("and one of them fails")


def test_the_wait_that_is_enough(cuda_device):
    """Two operations of one stream should come first: a wait for the second one is told."""

    def program():
        with Streams() as s:
            s.buffer.fill_async(7, s.one)
            s.buffer.copy_from_async(s.source, s.one)
            s.buffer.copy_to_async(s.target, s.other)
            s.other.synchronize()
            return np.array(s.target)[0] == 1

    text = told_of(explore(lambda: bool(program()), judge).failure)
    first, before, second = text.split("\n")[1:4]
    assert first.startswith("  copy_from_async on Stream 'one', queued at ")
    assert before == "before"
    assert second.startswith("  copy_to_async on Stream 'other', queued at ")


def test_functions_of_two_streams(cuda_device):
    """They run in each order, and each order can be repeated."""
    orders = set()

    def program(waits):
        seen = []
        with cu.Stream() as one, cu.Stream() as other:
            one.call(lambda: seen.append("one"))
            if waits:
                other.wait(one)
            other.call(lambda: seen.append("other"))
            one.synchronize()
            other.synchronize()
        orders.add(tuple(seen))
        return True

    assert explore(lambda: program(False), judge).complete
    assert orders == {("one", "other"), ("other", "one")}
    orders.clear()
    assert explore(lambda: program(True), judge).complete
    assert orders == {("one", "other")}


def test_functions_of_two_graphs(cuda_device):
    """They run in each order, as those of two streams."""
    orders = set()

    def program():
        seen = []
        host = cu.LockedBuffer.zeros(4)
        with cu.Stream() as one, cu.Stream() as other, cu.Graph() as first, cu.Graph() as second:
            first.add_call(lambda array: seen.append("one"), cu.read(host))
            second.add_call(lambda: seen.append("other"))
            steps = first.instantiate(), second.instantiate()
            steps[0].launch(one)
            steps[1].launch(other)
            one.synchronize()
            other.synchronize()
            for step in steps:
                step.close()
        orders.add(tuple(seen))
        return True

    assert explore(program, judge).complete
    assert orders == {("one", "other"), ("other", "one")}


def test_a_function_of_a_graph_that_races(cuda_device):
    """Without the order of the policy, a copy may run before or after the function."""
    found = set()

    def program():
        host, work = cu.LockedBuffer.zeros(4), cu.DeviceBuffer.zeros(4)
        with cu.Stream() as one, cu.Stream() as other, cu.Graph() as graph:
            with cu.ordering("unchecked"):
                graph.add_call(lambda array: array.fill(5), host)
                step = graph.instantiate()
                step.launch(one)
                work.copy_from_async(host, other)
            one.synchronize()
            other.synchronize()
            found.add(int(work.to_numpy()[0]))
            step.close()
        return True

    assert explore(program, judge).complete
    assert found == {0, 5}
