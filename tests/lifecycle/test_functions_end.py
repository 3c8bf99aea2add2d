"""Processes that end, fork or are interrupted while streams call functions."""

import pytest
from schedules import one_schedule

HEAD = """
    import os, sys, threading, time
    import numpy as np
    import cudadrv as cu
    stream, host = cu.Stream(), cu.LockedBuffer.zeros(8)
    def let_it_begin(running):
        limit = time.monotonic() + 5
        while not running.wait(0.001) and time.monotonic() < limit:
            try:
                stream.synchronize(timeout=0)
            except TimeoutError:
                pass
"""
SCHEDULES = ("eager", "lazy", "random", "replay")


@pytest.fixture(params=SCHEDULES)
def run(script, request, cuda_driver_name):
    """Run a program whose functions run under each schedule, also in a thread of the driver."""
    return lambda text: script.quiet(HEAD + text, CUDADRV_SOFTWARE=f"schedule={request.param}")


@pytest.fixture
def cuda_driver_name(cuda_schedule):
    if cuda_schedule == "cuda":
        pytest.skip("the schedules are those of the software driver")


pytestmark = one_schedule


def test_functions_that_never_return(run):
    """The process ends, and later functions do not run."""
    out = run("""
    running = threading.Event()
    def function(array):
        running.set()
        threading.Event().wait()
    stream.call(function, host)
    for _ in range(5):
        stream.call(lambda array: print("ran"), host)
    let_it_begin(running)
    """)
    assert out == ""


def test_ending_at_once(run):
    """The process may end before a function runs, or while it begins."""
    run("""
    for _ in range(3):
        stream.call(lambda array: array.sum(), host)
    assert not stream.done or True
    """)


def test_objects_that_go_in_any_order(run):
    run("""
    sys.modules["keep"] = [stream.call(np.sort, host), stream, host]
    del stream, host
    """)


def test_functions_of_graphs_that_never_return(run):
    out = run("""
    running = threading.Event()
    def function(array):
        running.set()
        threading.Event().wait()
    graph, other = cu.Graph(), cu.Stream()
    graph.add_call(lambda array: print("ran"), host, after=[graph.add_call(function, host)])
    steps = graph.instantiate(), graph.instantiate()
    with cu.ordering("wait"):
        steps[0].launch(stream)
        steps[0].launch(other)
        steps[1].launch(stream)
    let_it_begin(running)
    """)
    assert out == ""


def test_graphs_that_go_while_a_function_waits(run):
    run("""
    graph = cu.Graph()
    graph.add_call(np.sort, host)
    step = graph.instantiate()
    step.launch(stream)
    sys.modules["keep"] = [graph, host, step, stream]
    del graph, host, step, stream
    """)


def test_forks_in_a_function_of_a_graph(run):
    run("""
    def function(array):
        child = os.fork()
        if child == 0:
            try:
                step.launch(stream)
            except cu.OwnershipError:
                os._exit(3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        array[0] += 1
    graph = cu.Graph()
    graph.add_call(function, host)
    step = graph.instantiate()
    step.launch(stream).wait()
    step.launch(stream).wait()
    assert host[0] == 2
    child = os.fork()
    if child == 0:
        del step, graph, function
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_nobody_has_waited_for(script, schedule):
    done = script.run(
        HEAD
        + """
    import warnings
    warnings.simplefilter("default")
    def fails(array):
        raise ValueError("nobody sees this")
    token = stream.call(fails, host)
    while not token.done:
        pass
    """,
        CUDADRV_SOFTWARE=f"schedule={schedule}",
    )
    assert done.returncode == 0
    assert done.stderr.count("ValueError: nobody sees this") == 1
    assert "CudaWarning" in done.stderr
    assert "nobody has waited for fails, which Stream 1 called" in done.stderr


def test_forks_in_a_function(run):
    """The child may go on in the function, and cannot use cudadrv there, or later."""
    run("""
    def function(array):
        child = os.fork()
        if child == 0:
            try:
                host[0]
            except cu.OwnershipError:
                os._exit(3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        array[0] = 1
    stream.call(function, host).wait()
    assert host[0] == 1
    """)


def test_a_child_that_returns_from_the_function(run):
    run("""
    parent, reader, writer = os.getpid(), *os.pipe()
    def function(array):
        child = os.fork()
        if child:
            os.close(writer)
            os.read(reader, 1)      # returns when the child has ended
            os.waitpid(child, 0)
    stream.call(function, host).wait()
    stream.call(lambda array: array.fill(2), host).wait()
    assert host[0] == 2
    assert os.getpid() == parent
    """)


def test_forks_meanwhile(run):
    """A child that is forked while functions are queued ends as usual."""
    run("""
    for _ in range(20):
        stream.call(lambda array: None, host)
        child = os.fork()
        if child == 0:
            try:
                stream.call(print, host)
            except cu.ForkedError:
                sys.exit(0)
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stream.synchronize()
    """)


def test_processes_that_a_function_starts(run):
    out = run("""
    import subprocess
    def function(array):
        array[0] = int(subprocess.run(["echo", "7"], capture_output=True).stdout)
    stream.call(function, host).wait()
    print(host[0])
    """)
    assert out == "7\n"


def test_an_interrupted_program(script):
    """Ctrl-C ends the wait and the program, not the function."""
    done = script.run(
        HEAD
        + """
    import signal
    def function(array):
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()
    stream.call(function, host)
    stream.synchronize()
    """,
        CUDADRV_SOFTWARE="schedule=lazy",
    )
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
