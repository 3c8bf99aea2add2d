"""Captures: which calls become nodes, which are refused, and how the block ends."""

import ctypes
import gc
import threading

import numpy as np
import pytest

import cudadrv as cu

pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)


def usable(world):
    """Check that the streams run work again."""
    for stream in (world.main, world.side):
        world.result.fill_async(7, stream).wait()
        assert world.result[0] == 7
        assert stream.done
    world.main.wait(world.side)
    world.main.synchronize()


def test_nothing_runs_and_nothing_is_borrowed(world):
    world.work.fill(1)
    with world.graph.capture(world.main):
        token = world.work.fill_async(5, world.main)
        world.result.copy_from_async(world.work, world.main)
        world.result[:] = 3
        assert not world.work.borrowed
        assert "captured at" in repr(token)
    assert list(world.result) == [3] * 16
    assert [node.operation for node in world.graph.nodes] == ["fill_async", "copy_from_async"]
    assert [node.writes for node in world.graph.nodes] == [(world.work,), (world.result,)]
    assert world.graph.nodes[1].reads == (world.work,)
    assert world.graph.nodes[0].site.split(":")[0].endswith("test_capture.py")
    assert world.graph.nodes[0].stream is world.main
    array = np.zeros(16, "f4")
    world.work.copy_to(array)
    assert list(array) == [1] * 16
    usable(world)


def fork_and_join(world, how):
    with world.graph.capture(world.main):
        token = world.work.copy_from_async(world.frames, world.main)
        event = world.main.record()
        world.side.wait({"stream": world.main, "token": token, "event": event}[how])
        last = world.out[:8].fill_async(1, world.side)
        world.out[8:].fill_async(2, world.main)
        world.main.wait({"stream": world.side, "token": last, "event": world.side.record()}[how])
        world.result.copy_from_async(world.out, world.main)


@pytest.mark.parametrize("how", ["stream", "token", "event"])
def test_a_stream_joins_and_is_joined(world, how):
    fork_and_join(world, how)
    nodes = world.graph.nodes
    assert [node.stream for node in nodes] == [world.main, world.side, world.main, world.main]
    pairs = {(nodes.index(first), nodes.index(second)) for first, second in world.graph.edges}
    assert pairs == {(0, 1), (0, 2), (1, 3), (2, 3)}
    usable(world)


def test_a_conflict_inside_the_graph_is_refused(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        with pytest.raises(cu.BufferBorrowedError) as caught:
            world.result.copy_from_async(world.out, world.main)
        text = str(caught.value)
        assert "cannot read DeviceBuffer 'out'[0:16] (float32) by copy_from_async" in text
        assert "in the capture of graph 'step', begun at" in text
        assert "it is being written by fill_async" in text
        assert "captured at" in text
        world.main.wait(world.side)
        world.result.copy_from_async(world.out, world.main)
    assert len(world.graph.nodes) == 2


def test_disjoint_halves_and_two_readers_do_not_conflict(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out[:8].copy_from_async(world.work[:8], world.main)
        world.out[8:].copy_from_async(world.work[:8], world.side)
        world.main.wait(world.side)
    assert len(world.graph.nodes) == 2


def test_an_early_wait_does_not_order_later_work(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        token = world.work.fill_async(1, world.side)
        world.out.fill_async(1, world.side)
        world.main.wait(token)
        world.result.copy_from_async(world.work, world.main)
        with pytest.raises(cu.BufferBorrowedError):
            world.result.copy_from_async(world.out, world.main)
        world.main.wait(world.side)


def test_policy_wait_inserts_the_wait_into_the_graph(world):
    with cu.ordering("wait"), world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        world.result.copy_from_async(world.out, world.main)
    ((first, second),) = world.graph.edges
    assert (first.stream, second.stream) == (world.side, world.main)


def test_policy_unchecked(world):
    with cu.ordering("unchecked"), world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        world.out.fill_async(2, world.main)
        world.main.wait(world.side)
    assert len(world.graph.nodes) == 2


def test_what_the_streams_did_before_does_not_matter(world, gate):
    gate.hold(world.side)
    world.out.fill_async(1, world.side)
    with world.graph.capture(world.main):
        world.result.copy_from_async(world.out, world.main)
    with pytest.raises(cu.BufferBorrowedError):
        world.result.copy_from_async(world.out, world.main)


def test_a_launch_of_a_kernel(world, module):
    saxpy = module["saxpy"]
    with world.graph.capture(world.main):
        saxpy.launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
        world.side.wait(world.main)
        saxpy.prepare(1, 16, 2.0, cu.read(world.work), world.result, 16).launch(world.side)
        with pytest.raises(cu.BufferBorrowedError, match=r"argument 1 \(x.*launch of saxpy"):
            saxpy.launch(1, 16, 2.0, world.work, world.out, 16, stream=world.main)
        world.main.wait(world.side)
    assert [node.operation for node in world.graph.nodes] == ["launch of saxpy"] * 2
    assert world.graph.nodes[0].reads == (world.work,)
    assert world.graph.nodes[0].writes == (world.out,)


OUTSIDE = {
    "stream": lambda w: cu.Stream(),
    "event": lambda w: cu.Stream().record(),
    "token": lambda w: w.held,
}
REFUSED = {
    "synchronize": lambda w: w.main.synchronize(),
    "done": lambda w: w.main.done,
    "context": lambda w: w.main.context.synchronize(),
    "close": lambda w: w.main.close(),
    "copy_from": lambda w: w.work.copy_from(w.frames, stream=w.main),
    "copy_to": lambda w: w.work.copy_to(w.result, stream=w.main),
    "fill": lambda w: w.work.fill(1, stream=w.main),
    "array": lambda w: w.work.copy_from_async(np.zeros(16, "f4"), w.main),
    "array of a launch": lambda w: w.saxpy.launch(
        1, 16, 2.0, cu.In(np.zeros(16, "f4")), w.out, 16, stream=w.main
    ),
    "blocking array": lambda w: w.work.copy_from(np.zeros(16, "f4"), stream=w.main),
    "read of an array": lambda w: w.work.copy_to(np.zeros(16, "f4"), stream=w.main),
    "wait of the host for a token": lambda w: w.token.wait(),
    "done of a token": lambda w: w.token.done,
    "wait of the host for an event": lambda w: w.event.synchronize(),
    "done of an event": lambda w: w.event.done,
    "elapsed": lambda w: w.event.elapsed_ms(w.event),
    "pool": lambda w: w.pool.__enter__() and cu.DeviceBuffer(16, stream=w.main),
    "close of stream-ordered memory": lambda w: w.ordered.close(w.main),
    "another graph": lambda w: cu.Graph().capture(w.main).__enter__(),
    "the same graph": lambda w: w.graph.capture(w.side).__enter__(),
    "close of the graph": lambda w: w.graph.close(),
    "legacy": lambda w: cu.Stream.legacy().wait(w.main),
    **{f"wait for a {name}": lambda w, f=f: w.main.wait(f(w)) for name, f in OUTSIDE.items()},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused_before_the_driver(world, module, gate, name):
    world.saxpy = module["saxpy"]
    world.ordered = cu.DeviceBuffer(16, stream=world.side)
    world.side.synchronize()
    other = cu.Stream()
    gate.hold(other)
    world.held = cu.DeviceBuffer(4).fill_async(1, other)
    world.pool = cu.DriverPool() if name == "pool" else None
    with world.graph.capture(world.main):
        world.token = world.out.fill_async(1, world.main)
        world.event = world.main.record(cu.Event(timing=True))
        with pytest.raises(cu.CaptureError, match=r"graph|legacy"):
            REFUSED[name](world)
        if world.pool:
            world.pool.__exit__(None, None, None)
        world.work.fill_async(2, world.main)  # after the refused call the capture goes on
    assert len(world.graph.nodes) == 2
    assert not world.work.borrowed
    gate.open()
    usable(world)


def test_errors_name_the_line_of_the_block(world):
    with world.graph.capture(world.main):
        with pytest.raises(cu.CaptureError, match=r"graph 'step', begun at .*test_capture.py:\d+"):
            world.main.synchronize()


def test_a_branch_that_is_not_joined(world):
    def capture():
        with world.graph.capture(world.main):
            world.side.wait(world.main)
            world.out.fill_async(1, world.side)

    with pytest.raises(cu.CaptureError, match=r"not captured: .* fill_async at .* is not joined"):
        capture()
    assert "not captured" in repr(world.graph)
    world.out.close()
    usable(world)
    with world.graph.capture(world.main):
        world.work.fill_async(1, world.main)
    assert len(world.graph.nodes) == 1


def test_a_branch_without_work_needs_no_join(world):
    with world.graph.capture(world.main):
        world.work.fill_async(1, world.main)
        world.side.wait(world.main)
    usable(world)


def test_an_exception_ends_the_capture(world):
    def capture():
        with world.graph.capture(world.main):
            world.side.wait(world.main)
            world.out.fill_async(1, world.side)
            raise KeyError

    with pytest.raises(KeyError):
        capture()
    world.out.close()
    usable(world)


def test_a_generator_that_is_dropped_ends_the_capture(world):
    def steps():
        with world.graph.capture(world.main):
            world.out.fill_async(1, world.main)
            yield

    running = steps()
    next(running)
    del running
    gc.collect()
    usable(world)
    assert "not captured" in repr(world.graph)


def test_a_block_that_python_never_leaves(world):
    """If a block is entered and never left, its graph is not captured.

    This happens if a signal arrives between `__enter__` and the first line of the block.
    """
    world.graph.capture(world.main).__enter__()
    gc.collect()
    usable(world)
    assert "not captured" in repr(world.graph)


def test_a_block_with_nodes_that_python_never_leaves(world):
    capture = world.graph.capture(world.main)
    capture.__enter__()
    world.side.wait(world.main)
    world.work.fill_async(1, world.side)
    world.work[:0].fill_async(1, world.main)
    del capture
    world.graph = None
    gc.collect()
    usable(world)
    world.work.close()


def test_a_capture_that_ends_in_another_thread(world):
    capture = world.graph.capture(world.main)
    capture.__enter__()
    world.work.fill_async(1, world.main)
    thread = threading.Thread(target=capture.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert len(world.graph.nodes) == 1
    usable(world)


def test_another_thread_adds_a_node(world):
    with world.graph.capture(world.main):
        thread = threading.Thread(target=world.work.fill_async, args=(1, world.main))
        thread.start()
        thread.join()
    assert len(world.graph.nodes) == 1


def test_other_threads_and_streams_go_on(world):
    free = cu.Stream()
    with world.graph.capture(world.main):
        world.work.fill_async(1, world.main)
        world.result.fill_async(4, free).wait()
        assert world.result[0] == 4
        buffer = cu.DeviceBuffer(1 << 20, pooled=False)
        buffer.fill(1)
        buffer.close()
    assert len(world.graph.nodes) == 1


def test_memory_is_made_and_dropped_in_the_block(world):
    with world.graph.capture(world.main):
        scratch = cu.DeviceBuffer(16, "f4", stream=world.main, name="scratch")
        scratch.copy_from_async(world.frames, world.main)
        world.result.copy_from_async(scratch, world.main)
        address = scratch.address
        del scratch
        gc.collect()
        second = cu.DeviceBuffer(16, "f4", name="second")
        assert second.address != address
        second.fill_async(1, world.main)
    assert len(world.graph.nodes) == 3


def test_an_empty_operation_lets_a_stream_join(world):
    with world.graph.capture(world.main):
        token = world.out[:0].fill_async(1, world.main)
        world.side.wait(token)
        world.out.fill_async(1, world.side)
        world.main.wait(world.side)
    assert len(world.graph.nodes) == 1
    assert not world.out.borrowed


def test_events_and_tokens_stand_for_nothing_outside(world):
    event = cu.Event(name="mine")
    with world.graph.capture(world.main):
        token = world.work.fill_async(1, world.main)
        world.main.record(event)
    for use in (event.synchronize, lambda: event.done, lambda: world.side.wait(event)):
        with pytest.raises(cu.CaptureError, match=r"Event 'mine' .* graph 'step'"):
            use()
    for use in (token.wait, lambda: token.done, lambda: world.side.wait(token)):
        with pytest.raises(cu.CaptureError, match="graph 'step'"):
            use()
    world.side.record(event)
    world.main.wait(event)
    event.synchronize()
    assert event.done


def test_an_event_that_was_recorded_before(world):
    event = world.side.record()
    with world.graph.capture(world.main):
        world.main.record(event)
        world.side.wait(event)
        world.out.fill_async(1, world.side)
        world.main.wait(world.side)
    assert len(world.graph.nodes) == 1


def test_two_captures_cannot_merge(world):
    second = cu.Graph()
    with world.graph.capture(world.main), second.capture(world.side):
        with pytest.raises(cu.CaptureError, match="cannot join"):
            world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        world.work.fill_async(1, world.main)
    assert len(world.graph.nodes) == len(second.nodes) == 1


def test_a_graph_is_captured_once(world):
    with world.graph.capture(world.main):
        pass
    with pytest.raises(cu.CaptureError, match="was captured at"):
        world.graph.capture(world.main).__enter__()
    assert world.graph.nodes == ()


def test_streams_that_cannot_be_captured(world):
    with pytest.raises(cu.CaptureError, match="legacy"):
        world.graph.capture(cu.Stream.legacy()).__enter__()
    with pytest.raises(TypeError, match="capture needs a stream"):
        world.graph.capture()
    closed = cu.Stream()
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        world.graph.capture(closed)


def test_a_capture_without_with(world):
    """`graph.capture(stream)` alone captures nothing, and says so."""
    with pytest.warns(cu.CudaWarning, match=r"was not captured: write `with graph\.capture\("):
        world.graph.capture(world.main)
    world.graph.capture(world.main).__enter__()  # this one has begun: no warning at its end


def test_the_current_stream_is_captured(world):
    with world.main, world.graph.capture():
        world.work.fill_async(1)
    assert world.graph.nodes[0].stream is world.main


def test_a_capture_of_a_default_stream_of_a_thread(world):
    stream = cu.Stream.per_thread()
    with world.graph.capture(stream):
        world.work.fill_async(1, stream)
    assert len(world.graph.nodes) == 1


@pytest.mark.cuda_software
def test_a_capture_that_somebody_else_invalidates(world):
    library = ctypes.CDLL(cu.driver_info().path)

    def capture():
        with world.graph.capture(world.main):
            world.work.fill_async(1, world.main)
            with cu.Device(0):
                assert library.cuStreamSynchronize(ctypes.c_void_p(world.main.handle)) == 900

    with pytest.raises(cu.CudaError, match="CAPTURE_INVALIDATED"):
        capture()
    world.work.close()
    usable(world)


def test_what_a_graph_holds(world, module):
    saxpy = module["saxpy"]
    stranger = cu.DeviceBuffer(4)
    with world.graph.capture(world.main):
        saxpy.launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
    for call in (world.work.close, world.work.take, world.work.into_raw):
        with pytest.raises(cu.BufferBorrowedError) as caught:
            call()
        assert "graph 'step' uses it, in launch of saxpy at" in str(caught.value)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Module"):
        module.close()
    stranger.close()
    world.graph.close()
    assert world.graph.closed
    world.graph.close()
    world.work.take().close()
    module.close()


def test_stream_ordered_memory_is_held(world):
    ordered = cu.DeviceBuffer(16, "f4", stream=world.main, name="ordered")
    with world.graph.capture(world.main):
        ordered.fill_async(1, world.main)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer 'ordered'"):
        ordered.close()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer 'ordered'"):
        ordered.close(world.main)
    world.graph.close()
    ordered.close()


def test_dropped_names_are_safe(world):
    """Memory that a graph uses is not released when its buffer is dropped."""
    buffer = cu.DeviceBuffer(16, "f4", name="dropped")
    alone = cu.LockedBuffer(16, "f4", pooled=False, name="alone")
    with world.graph.capture(world.main):
        buffer.fill_async(1, world.main)
        alone.copy_from_async(buffer, world.main)
    address, other = buffer.address, alone.address
    del buffer, alone
    gc.collect()
    cu.reap()
    new = [cu.DeviceBuffer(16, "f4") for _ in range(4)]
    assert address not in [each.address for each in new]
    labels = {buffer.label for buffer in cu.live_buffers()}
    assert other != 0
    assert {"DeviceBuffer 'dropped'", "LockedBuffer 'alone'"} <= labels
    world.graph.close()
    gc.collect()
    labels = {buffer.label for buffer in cu.live_buffers()}
    assert not {"DeviceBuffer 'dropped'", "LockedBuffer 'alone'"} & labels


def test_a_refused_operation_holds_nothing(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        with pytest.raises(cu.BufferBorrowedError):
            world.work.copy_from_async(world.out, world.main)
        world.work.close()
        world.main.wait(world.side)
    assert len(world.graph.nodes) == 1


def test_a_buffer_that_is_closed_is_refused(world):
    world.work.close()
    with world.graph.capture(world.main):
        with pytest.raises(cu.BufferClosedError):
            world.work.fill_async(1, world.main)


def test_representations(world):
    assert repr(world.graph) == "<Graph 'step', not captured>"
    capture = world.graph.capture(world.main)
    assert repr(capture) == "<Capture of graph 'step', not begun>"
    with capture:
        world.work.fill_async(1, world.main)
        assert repr(world.graph) == "<Graph 'step', being captured>"
        assert repr(capture) == "<Capture of graph 'step', open>"
    assert repr(capture) == "<Capture of graph 'step', ended>"
    assert repr(world.graph) == "<Graph 'step', 1 node>"
    assert repr(world.graph.nodes[0]).startswith("<GraphNode 0 of graph 'step': fill_async at ")
    world.graph.close()
    assert repr(world.graph) == "<Graph 'step', closed>"
    for use in (lambda: world.graph.nodes, world.graph.instantiate, world.graph.capture):
        with pytest.raises(ValueError, match="graph 'step' is closed"):
            use()
    assert repr(cu.Graph()).startswith("<Graph, ")
