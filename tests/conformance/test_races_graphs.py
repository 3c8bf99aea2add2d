"""Races between nodes of a graph that no edge orders, and between launches and other work."""

import random

import pytest

from .graphs import IF, RandomWork, captured, conditional, forked, inside, joined
from .race_program import FILL, SIZE, check_report, check_silence, store

pytestmark = pytest.mark.cuda_software
LAUNCH = "cuGraphLaunch"


def branches(p, ordered):
    """A graph with two branches that write the same memory."""
    main, side = p.streams()
    x = p.device(SIZE)
    with captured(p, main) as graph:
        forked(p, main, [side])
        p.fill(x, main)
        if ordered:
            p.order(main, side)
        p.fill(x, side)
        joined(p, main, [side])
    return graph.exec(), main


def two_branches_write(p):
    p.ok(LAUNCH, *branches(p, False))
    return LAUNCH, LAUNCH


def filling(p, x, stream):
    with captured(p, stream) as graph:
        p.fill(x, stream)
    return graph.exec()


def launch_and_another_stream(p):
    a, b = p.streams()
    x = p.device(SIZE)
    p.ok(LAUNCH, filling(p, x, a), a)
    p.fill(x, b)
    return FILL, LAUNCH


def launches_of_two_executables(p):
    a, b = p.streams()
    x = p.device(SIZE)
    first, second = filling(p, x, a), filling(p, x, a)
    p.ok(LAUNCH, first, a)
    p.ok(LAUNCH, second, b)
    return LAUNCH, LAUNCH


def host_refills_between_launches(p):
    a = p.stream()
    x, y = p.device(SIZE), p.host(SIZE)
    with captured(p, a) as graph:
        p.upload(x, y, a)
    step = graph.exec()
    p.ok(LAUNCH, step, a)
    store(y)
    p.ok(LAUNCH, step, a)
    return "the host wrote", LAUNCH


def free_while_a_launch_may_run(p):
    a = p.stream()
    x = p.device(SIZE)
    step = filling(p, x, a)
    p.ok(LAUNCH, step, a)
    p.free(x)
    return "cuMemFree_v2", LAUNCH


def graph_memory_is_used_after_its_free(p):
    main, side = p.streams()
    with captured(p, main) as graph:
        x = p.allocate_async(main)
        p.order(main, side)
        p.fill(x, side)
        p.ok("cuMemFreeAsync", x, main)
        joined(p, main, [side])
    p.ok(LAUNCH, graph.exec(), main)
    return LAUNCH, LAUNCH


def body_and_another_stream(p):
    a, b = p.streams()
    x = p.device(SIZE)
    with captured(p, a) as graph:
        pass
    _, (body,), _ = conditional(p, graph.handle, IF, 1, 1)
    with inside(p, body, a):
        p.fill(x, a)
    p.ok(LAUNCH, graph.exec(), a)
    p.fill(x, b)
    return FILL, LAUNCH


RACY = [
    body_and_another_stream,
    two_branches_write,
    launch_and_another_stream,
    launches_of_two_executables,
    host_refills_between_launches,
    free_while_a_launch_may_run,
    graph_memory_is_used_after_its_free,
]


@pytest.mark.parametrize("plant", RACY, ids=lambda plant: plant.__name__)
def test_reports(program, plant):
    check_report(program, plant)


def ordered_branches(p):
    p.ok(LAUNCH, *branches(p, True))


def launches_of_one_executable(p):
    a, b = p.streams()
    x = p.device(SIZE)
    step = filling(p, x, a)
    p.ok(LAUNCH, step, a)
    p.ok(LAUNCH, step, b)
    p.fill(x, b)


def work_around_a_launch(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.fill(x, a)
    p.ok(LAUNCH, filling(p, x, b), a)
    p.order(a, b)
    p.download(y, x, b)
    p.sync(b)
    store(y)


def events_of_nodes(p):
    a, b = p.streams()
    x, event = p.device(SIZE), p.event()
    with captured(p, a) as graph:
        p.fill(x, a)
        p.ok("cuEventRecordWithFlags", event, a, 1)
    p.ok(LAUNCH, graph.exec(), a)
    p.wait(b, event)
    p.fill(x, b)


def graph_memory_is_used_in_between(p):
    a = p.stream()
    with captured(p, a) as graph:
        x = p.allocate_async(a)
        p.fill(x, a)
    step = graph.exec()
    for _ in range(2):
        p.ok(LAUNCH, step, a)
        p.fill(x, a)
        p.ok("cuMemFreeAsync", x, a)


CORRECT = [
    ordered_branches,
    launches_of_one_executable,
    work_around_a_launch,
    events_of_nodes,
    graph_memory_is_used_in_between,
]


@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.__name__)
def test_says_nothing_about(program, correct):
    check_silence(program, correct)


def random_graph(program, seed, forgotten=None):
    work = RandomWork(random.Random(seed), 12)
    streams, main = [program.stream() for _ in range(work.STREAMS)], program.stream()
    buffers = [program.device(work.BYTES) for _ in range(work.BUFFERS)]
    for buffer in buffers:
        program.ok("cuMemsetD8Async", buffer, 0, work.BYTES, main)
    with captured(program, main) as graph:
        forked(program, main, streams)
        work.issue(program, streams, buffers, forgotten)
        joined(program, main, streams)
    program.ok(LAUNCH, graph.exec(), main)
    program.ok("cuCtxSynchronize")
    return program.lib.races()


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs(program, seed):
    """No race is reported in a correct graph.

    Without the order between one step and earlier steps, there may be a race. For at least one
    such step, a race is reported.
    """
    assert random_graph(program, seed) == []
    reported = 0
    for forgotten in range(12):
        reported += bool(random_graph(program, seed, forgotten))
        program.lib.forget_races()
    assert reported
