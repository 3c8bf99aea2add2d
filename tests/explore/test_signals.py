"""Exploring programs with signals: each order, and both answers of a question."""

import ctypes

import numpy as np
import pytest

import cudadrv as cu
from cudadrv._explore import Verdict, explore

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]


def judge(result):
    return Verdict.PASSED


def explored(program):
    """What a program returns in all orders of its work."""
    found = set()

    def run():
        found.add(program())
        return True

    assert explore(run, judge).complete
    return found


def first_byte(buffer, *streams):
    for stream in streams:
        stream.synchronize()
    return int(np.array(buffer)[0])


def written(waits):
    """Two streams fill a buffer; one of them may wait for the signal of the other one."""
    buffer = cu.LockedBuffer.zeros(4, "u1")
    with cu.Stream() as one, cu.Stream() as other, cu.Signal() as signal:
        with cu.ordering("unchecked"):
            buffer.fill_async(1, one)
            one.set(signal, 1)
            if waits:
                other.wait(signal, 1)
            buffer.fill_async(2, other)
        return first_byte(buffer, one, other)


def test_a_wait_for_a_signal_orders(cuda_device):
    assert explored(lambda: written(waits=False)) == {1, 2}
    assert explored(lambda: written(waits=True)) == {2}


def test_a_wait_is_not_for_what_comes_behind_the_set(cuda_device):
    def program():
        buffer = cu.LockedBuffer.zeros(4, "u1")
        with cu.Stream() as one, cu.Stream() as other, cu.Signal() as signal:
            with cu.ordering("unchecked"):
                one.set(signal, 1)
                buffer.fill_async(1, one)
                other.wait(signal, 1)
                buffer.fill_async(2, other)
            return first_byte(buffer, one, other)

    assert explored(program) == {1, 2}


def launched(waits):
    """A graph fills a buffer and sets a signal. Another stream may wait for it, then fills it."""
    buffer = cu.LockedBuffer.zeros(4, "u1")
    with (
        cu.Stream() as one,
        cu.Stream() as other,
        cu.Signal() as signal,
        cu.Graph() as graph,
        cu.ordering("unchecked"),
    ):
        graph.add_set(signal, 1, after=[graph.add_fill(buffer, 1)])
        with graph.instantiate() as step:
            step.launch(one)
            if waits:
                other.wait(signal, 1)
            buffer.fill_async(2, other)
            return first_byte(buffer, one, other)


def test_a_set_in_a_graph_orders(cuda_device):
    assert explored(lambda: launched(waits=False)) == {1, 2}
    assert explored(lambda: launched(waits=True)) == {2}


def test_an_open_wait_in_a_graph(cuda_device):
    """Only the nodes after the wait are behind the set of the host."""

    def program():
        buffer = cu.LockedBuffer.zeros(4, "u1")
        with cu.Stream() as stream, cu.Signal(external=True) as turn, cu.Graph() as graph:
            graph.add_fill(buffer, 1)
            graph.add_fill(buffer, 2, after=[*graph.nodes, graph.add_wait(turn, 1)])
            with graph.instantiate() as step:
                step.launch(stream)
                assert ctypes.c_uint8.from_address(buffer.address).value < 2
                turn.set(1)
                stream.synchronize()
            return int(buffer[0])

    assert explored(program) == {2}


def test_the_value_is_early_or_late(cuda_device):
    def program():
        with cu.Stream() as stream, cu.Signal() as signal:
            stream.set(signal, 1)
            stream.set(signal, 2)
            seen = signal.value
            signal.wait(2)
            assert signal.value == 2
            return seen

    assert explored(program) == {0, 1, 2}
