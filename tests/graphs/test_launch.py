"""Launches of graphs: what they compute, what they borrow, and how they are ordered."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cudadrv as cu


def captured(world, name="step"):
    """A graph that copies frames to result in two halves, each in a branch."""
    graph = cu.Graph(name=name)
    with graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.side.wait(world.main)
        world.out[:8].copy_from_async(world.work[:8], world.side)
        world.out[8:].copy_from_async(world.work[8:], world.main)
        world.main.wait(world.side)
        world.result.copy_from_async(world.out, world.main)
    return graph


@pytest.fixture
def step(world):
    return captured(world).instantiate()


def test_each_launch_reads_the_memory_anew(world, step):
    for number in range(5):
        world.frames[:] = number
        token = step.launch(world.main)
        token.wait()
        assert list(world.result) == [number] * 16


def test_a_launch_borrows_what_its_nodes_use(world, step):
    token = step.launch(world.main)
    for name in ("frames", "work", "out", "result"):
        assert getattr(world, name).borrowed
    # The host may read `frames`, because the launch only reads this buffer, too.
    assert world.frames[:4].to_numpy()[0] == 0
    with pytest.raises(cu.BufferBorrowedError) as caught:
        world.frames[0] = 1
    text = str(caught.value)
    assert "it is being read by copy_from_async at" in text
    assert "in graph 'step' on Stream" in text
    assert "launched at" in text
    with pytest.raises(cu.BufferBorrowedError, match=r"written by copy_from_async at .*'step'"):
        world.result.to_numpy()
    with pytest.raises(cu.BufferBorrowedError):
        world.out[3:4].fill_async(1, world.side)
    token.wait()
    assert not world.out.borrowed
    world.out[3:4].fill_async(1, world.side)


def test_bytes_that_no_node_uses_are_free(world):
    graph = cu.Graph()
    with graph.capture(world.main):
        world.out[4:8].fill_async(1, world.main)
        world.out[12:].fill_async(2, world.main)
    step = graph.instantiate()
    step.launch(world.main)
    world.out[:4].fill_async(3, world.side)
    world.out[8:12].fill_async(4, world.side)
    with pytest.raises(cu.BufferBorrowedError):
        world.out[7:9].fill_async(5, world.side)
    world.main.wait(world.side)
    world.result.copy_from_async(world.out, world.main).wait()
    assert list(world.result) == [3] * 4 + [1] * 4 + [4] * 4 + [2] * 4


def test_a_launch_that_is_not_ordered_is_refused(world, step):
    world.out.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        step.launch(world.main)
    text = str(caught.value)
    assert "cannot write DeviceBuffer 'out'[0:8] (float32) in copy_from_async at" in text
    assert "by launch of graph 'step' on Stream" in text
    assert "it is being written by fill_async" in text
    assert not world.work.borrowed
    world.main.wait(world.side)
    step.launch(world.main).wait()


def test_readers_share(world, step):
    world.side.wait(world.main)
    other = cu.DeviceBuffer(16, "f4")
    other.copy_from_async(world.frames, world.side)
    step.launch(world.main)
    other.copy_from_async(world.frames, world.side)


def test_a_launch_is_ordered_after_the_last_one_on_any_stream(world, step):
    world.frames[:] = 1
    step.launch(world.main)
    token = step.launch(world.side)
    world.out.fill_async(2, world.side)
    world.side.synchronize()  # `side` waited for the launch on `main`
    assert list(world.result) == [1] * 16
    assert not world.frames.borrowed
    assert token.done


def test_other_waits_need_none_for_the_last_launch(world, step):
    """Under "wait" a launch inserts no wait for the last launch: the driver orders the two.

    The last launch was on this thread's default stream, for which other threads cannot wait.
    """

    def launch():
        with cu.ordering("wait"):
            return step.launch(world.main)

    step[-1].enabled = False
    step.launch(cu.Stream.per_thread())
    world.result.fill_async(3, world.side)
    step[-1].enabled = True  # now the next launch has to wait for the fill
    with ThreadPoolExecutor(1) as pool:
        pool.submit(launch).result().wait()
    assert set(world.result) == {0}


def test_a_refused_launch_orders_nothing(world, step):
    step.launch(world.main)
    world.out.fill_async(1, world.main)
    third = cu.Stream()
    with pytest.raises(cu.BufferBorrowedError):
        step.launch(third)
    with pytest.raises(cu.BufferBorrowedError):
        world.result.fill_async(1, third)
    third.wait(world.main)
    step.launch(third)


def test_two_executables_of_a_graph_are_ordered_like_other_work(world):
    graph = captured(world)
    first, second = graph.instantiate(), graph.instantiate()
    first.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError):
        second.launch(world.side)
    second.launch(world.main)


def test_tokens_of_launches(world, step):
    token = step.launch(world.main)
    assert set(token.writes) >= {world.work, world.result}
    assert set(token.reads) >= {world.frames, world.out}
    assert token.site.split(":")[0].endswith("test_launch.py")
    assert "launch of graph 'step'" in repr(token)
    world.side.wait(token)
    world.out.fill_async(1, world.side).wait()
    assert token.done


def test_host_views_and_closed_buffers(world, step):
    view = memoryview(world.result)
    with pytest.raises(cu.BufferExportedError, match=r"'result'.* in copy_from_async at"):
        step.launch(world.main)
    view.release()
    step.launch(world.main).wait()


def test_loans(world, step):
    with world.out.lend(world.side):
        with pytest.raises(cu.BufferExportedError, match="lent"):
            step.launch(world.main)
    world.main.wait(world.side)
    step.launch(world.main)


def test_policies(world, step):
    world.out.fill_async(1, world.side)
    with cu.ordering("wait"):
        step.launch(world.main)
    world.main.synchronize()
    world.out.fill_async(1, world.side)
    world.out.ordering = "wait"
    with pytest.raises(cu.BufferBorrowedError):  # the halves have policies of their own
        step.launch(world.main)


def test_policy_of_a_buffer(world):
    world.out.ordering = "wait"
    graph = cu.Graph()
    with graph.capture(world.main):
        world.out.fill_async(1, world.main)
        world.work.fill_async(1, world.main)
    step = graph.instantiate()
    world.out.fill_async(2, world.side)
    step.launch(world.main)
    world.side.wait(world.main)
    world.work.fill_async(2, world.side)
    with pytest.raises(cu.BufferBorrowedError, match="'work'"):
        step.launch(world.main)


def test_each_of_several_buffers_over_the_same_bytes_has_its_policy(world, module):
    view = world.work.view("u4")
    graph = cu.Graph()
    with graph.capture(world.main):
        args = world.out, cu.read(view), cu.read(world.work), 16
        module["add_into"].launch(1, 16, *args, stream=world.main)
    step = graph.instantiate()
    view.ordering = "unchecked"
    world.work.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match="cannot read DeviceBuffer 'work'"):
        step.launch(world.main)
    world.work.ordering = "wait"
    step.launch(world.main)


def test_a_kernel(world, module):
    graph = cu.Graph()
    world.frames[:] = np.arange(16)
    with graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        world.out.fill_async(1, world.main)
        module["saxpy"].launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
        world.result.copy_from_async(world.out, world.main)
    step = graph.instantiate()
    for _ in range(3):
        step.launch(world.main)
    world.main.synchronize()
    assert list(world.result) == [2 * i + 1 for i in range(16)]


def test_dropped_names_live_as_long_as_the_executable(world, module):
    buffer = cu.DeviceBuffer(16, "f4", name="scratch")
    graph = cu.Graph()
    with graph.capture(world.main):
        buffer.copy_from_async(world.frames, world.main)
        module["saxpy"].launch(1, 16, 2.0, cu.read(buffer), world.out, 16, stream=world.main)
        world.result.copy_from_async(buffer, world.main)
    step = graph.instantiate()
    del buffer, module, graph
    gc.collect()
    cu.reap()
    world.frames[:] = 3
    step.launch(world.main).wait()
    assert list(world.result) == [3] * 16
    assert "DeviceBuffer 'scratch'" in {each.label for each in cu.live_buffers()}
    del step
    gc.collect()
    assert "DeviceBuffer 'scratch'" not in {each.label for each in cu.live_buffers()}


def test_memory_of_which_a_graph_keeps_an_empty_part_is_not_given_away(world, module):
    buffer = cu.DeviceBuffer(16, "f4", pooled=False)
    graph = cu.Graph()
    with graph.capture(world.main):
        world.out.fill_async(1, world.main)
        borrows = [cu.read(buffer[:0])]
        module["nothing"].launch(1, 1, borrows=borrows, stream=world.main)
    del borrows
    with pytest.raises(cu.BufferBorrowedError, match=r"parts of it are alive \(1\)"):
        buffer.into_raw()
    graph.close()
    address = buffer.into_raw()
    cu.DeviceBuffer.from_raw(address, 16, "f4").close()


def test_a_graph_and_its_executables_hold_together(world):
    graph = captured(world)
    step = graph.instantiate()
    token = step.launch(world.main)
    token.wait()
    graph.close()
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it"):
        world.result.close()
    step.launch(world.main).wait()
    step.close()
    step.close()
    assert step.closed
    world.result.close()
    with pytest.raises(ValueError, match="graph 'step' is closed"):
        step.launch(world.main)


@pytest.mark.parametrize("way", ["instantiate", "update"])
def test_an_executable_does_not_hold_what_is_added_to_its_graph_later(world, way):
    graph, later = cu.Graph(), cu.DeviceBuffer.zeros(16, "f4", name="later")
    first = graph.add_fill(world.work, 1)
    if way == "instantiate":
        step = graph.instantiate()
    else:
        other = cu.Graph()
        other.add_fill(world.out, 2)
        step = other.instantiate()
        step.update(graph)
        other.close()
        world.out.close()
    graph.add_copy(later, world.work, after=[first])
    with pytest.raises(cu.BufferBorrowedError, match="uses it, in add_copy"):
        later.close()
    graph.close()
    later.close()
    with pytest.raises(cu.BufferBorrowedError, match="uses it, in add_fill"):
        world.work.close()
    assert world.work.explain().count("cannot be closed before") == 1
    step.launch(world.main).wait()
    step.close()
    world.work.close()


def test_explain_names_a_graph_and_its_executables_once(world, step):
    assert world.work.explain().count("cannot be closed before graph 'step'") == 1
    step[0].set(source=world.result)
    assert world.work.explain().count("cannot be closed before graph 'step'") == 1


def test_closed_while_it_runs(world):
    """Closing a running graph and its executable does not wait, and the borrows stay."""
    world.frames[:] = 9
    with captured(world) as graph, graph.instantiate() as step:
        step.launch(world.main)
    assert world.result.borrowed
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' on Stream"):
        world.result[0] = 1
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' on Stream"):
        world.result.close()
    world.main.synchronize()
    assert world.result[0] == 9
    world.result.close()


def test_messages_name_the_right_graph(world):
    """Messages name the right graph.

    Names are reused, because the engine has 16 bits for a name.
    """
    held = captured(world, "held").instantiate()
    for number in range(300):
        name = f"graph {number}"
        step = captured(world, name).instantiate()
        step.launch(world.main)
        with pytest.raises(cu.BufferBorrowedError, match=f"in graph '{name}' on Stream"):
            world.result[0] = 1
        world.main.synchronize()
    held.launch(world.main)
    del step
    gc.collect()
    captured(world).instantiate()
    with pytest.raises(cu.BufferBorrowedError, match="in graph 'held' on Stream"):
        world.result[0] = 1


def test_a_launch_needs_a_stream_of_the_context(world, step):
    with pytest.raises(TypeError, match="launch of a graph needs a stream"):
        step.launch()
    with world.main:
        step.launch().wait()
    context = cu.Context.create(cu.Device(0))
    with context:
        stranger = cu.Stream()
    with pytest.raises(ValueError, match="belongs to"):
        step.launch(stranger)


def test_a_launch_is_no_node(world, step):
    with cu.Graph().capture(world.main):
        with pytest.raises(cu.CaptureError):
            step.launch(world.main)


def test_a_graph_without_a_capture(world):
    with pytest.raises(cu.CaptureError, match="graph 'step' is not captured"):
        world.graph.instantiate()


def test_uses_of_a_graph_inside_its_capture(world):
    """Messages name the line where the capture began, whether or not it has operations yet."""
    step = cu.Graph()
    with step.capture(world.main):
        world.out.fill_async(1, world.main)
    step = step.instantiate()
    outer = cu.Graph()
    uses = [
        world.graph.instantiate,
        lambda: step.update(world.graph),
        lambda: outer.add_graph(world.graph),
        lambda: world.graph.add_fill(world.work, 1),
        world.graph.close,
        world.graph.capture(world.side).__enter__,
        world.graph.capture(world.side, after=[]).__enter__,
    ]
    where = r"is being captured, in the block that began at .*test_launch\.py:\d+"
    with world.graph.capture(world.main):
        for _ in range(2):
            for use in uses:
                with pytest.raises(cu.CaptureError, match=where):
                    use()
            world.work.fill_async(1, world.main)
    world.graph.instantiate().launch(world.main).wait()


def test_an_empty_graph(world):
    with world.graph.capture(world.main):
        pass
    world.graph.instantiate().launch(world.main).wait()


def test_default_streams(world, step):
    legacy, blocking = cu.Stream.legacy(), cu.Stream(blocking=True)
    step.launch(blocking)
    world.out.fill_async(1, legacy)
    step.launch(blocking)
    step.launch(legacy)
    blocking.synchronize()
    legacy.synchronize()


def test_memory_that_is_written_before_it_is_read(world):
    """A graph needs the contents of a byte only if it reads the byte before writing it."""
    unified = cu.UnifiedBuffer(16, "f4")
    first, second = cu.Graph(), cu.Graph()
    with first.capture(world.main):
        unified.fill_async(1, world.main)
        world.result.copy_from_async(unified, world.main)
    with second.capture(world.main):
        world.result.copy_from_async(unified, world.main)
        unified.fill_async(1, world.main)
    unified.discard(world.main)
    with pytest.raises(cu.ContentsDiscardedError, match="were discarded at"):
        second.instantiate().launch(world.main)
    first.instantiate().launch(world.main).wait()
    assert list(world.result) == [1] * 16


def test_an_operation_that_reads_what_it_writes_needs_its_contents(world, module):
    """An operation that reads and writes the same memory needs its contents.

    A `shared` use counts as a write, so a read after it in the graph needs no contents.
    """
    unified = cu.UnifiedBuffer(16, "f4")
    saxpy = module["saxpy"]
    first, second = cu.Graph(), cu.Graph()
    with first.capture(world.main):
        saxpy.launch(1, 16, 2.0, cu.read(unified), unified, 16, stream=world.main)
    with second.capture(world.main):
        saxpy.launch(1, 16, 2.0, cu.shared(unified), world.out, 16, stream=world.main)
        saxpy.launch(1, 16, 2.0, cu.read(unified), world.out, 16, stream=world.main)
    unified.discard(world.main)
    with pytest.raises(cu.ContentsDiscardedError):
        first.instantiate().launch(world.main)
    step = second.instantiate()
    step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError):  # `unified` is borrowed because the graph reads it
        unified.fill_async(1, world.side)
    step.launch(world.main).wait()
    unified.to_numpy()  # the `shared` use counts as a write, so the contents are defined


def test_nothing_of_a_buffer_is_not_held(world, module):
    empty, whole = cu.DeviceBuffer(0, "f4"), cu.DeviceBuffer(16, "f4", name="whole")
    graph = cu.Graph()
    with graph.capture(world.main):
        module["saxpy"].launch(1, 16, 2.0, cu.read(whole[4:4]), empty, 0, stream=world.main)
        world.out.copy_from_async(world.work, world.main)
    part = world.out[8:8].take()
    assert part.nbytes == 0
    empty.close()
    assert empty.closed
    whole.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match="fill_async"):
        whole.close()
    world.side.synchronize()
    whole.close()
    assert whole.closed
    graph.instantiate().launch(world.main).wait()


def test_each_buffer_has_its_own_policy(world):
    """Two adjacent parts of a buffer keep their own policies in a graph."""
    left, right = world.out[:8], world.out[8:]
    left.ordering = "wait"
    graph = cu.Graph()
    with graph.capture(world.main):
        left.fill_async(1, world.main)
        right.fill_async(2, world.main)
        world.result[:8].copy_from_async(left, world.main)
    step = graph.instantiate()
    world.out[:8].fill_async(3, world.side)
    step.launch(world.main)
    world.side.wait(world.main)
    world.out[8:].fill_async(3, world.side)
    with pytest.raises(cu.BufferBorrowedError, match=r"\[8:16\]"):
        step.launch(world.main)
    world.main.wait(world.side)
    step.launch(world.main).wait()
    assert list(world.result[:8]) == [1] * 8


@pytest.mark.parametrize("first", ["strict", "wait"])
def test_two_buffers_of_the_same_bytes_have_their_own_policies(world, module, first):
    one, two = world.work[:], world.work[:]
    one.ordering, two.ordering = first, "wait" if first == "strict" else "strict"
    operands = 2.0, cu.read(one), world.out, 16
    with world.graph.capture(world.main):
        module["saxpy"].launch(1, 1, *operands, borrows=[cu.read(two)], stream=world.main)
    step = world.graph.instantiate()
    world.work.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match="'work'"):
        step.launch(world.main)
    one.ordering = two.ordering = "wait"
    step.launch(world.main)


def test_a_shared_buffer_of_the_same_bytes_has_its_own_policy(world, module):
    writing = world.work[:]
    writing.ordering = "wait"
    operands = 2.0, cu.read(world.frames), world.out, 16
    borrows = [cu.shared(world.work), writing]
    with world.graph.capture(world.main):
        module["saxpy"].launch(1, 1, *operands, borrows=borrows, stream=world.main)
    step = world.graph.instantiate()
    world.work.fill_async(1, world.side)
    step.launch(world.main)


def test_a_policy_of_bytes_that_are_read_and_written(world):
    """A graph reads bytes under "strict" and writes them under "wait".

    Reads do not conflict with another read, so "strict" does not refuse; the write waits.
    """
    reading, writing = world.out[:], world.out[:]
    writing.ordering = "wait"
    graph = cu.Graph()
    with graph.capture(world.main):
        world.work.copy_from_async(reading, world.main)
        writing.fill_async(2, world.main)
    step = graph.instantiate()
    world.side.wait(world.main)
    world.result.copy_from_async(world.out, world.side)
    step.launch(world.main)


VARIABLE = """
.version 6.4
.target sm_75
.address_size 64
.global .align 4 .u32 counter;
.visible .entry count()
{
    .reg .u32 %x;
    ld.global.u32 %x, [counter];
    add.u32 %x, %x, 1;
    st.global.u32 [counter], %x;
    ret;
}
"""


def test_a_policy_of_variables(world):
    count = cu.Module(VARIABLE)["count"]
    graph = cu.Graph()
    with graph.capture(world.main):
        count.launch(1, 1, stream=world.main)
    step = graph.instantiate()
    step.launch(world.main)
    count.launch(1, 1, stream=world.main)
    with pytest.raises(cu.BufferBorrowedError):
        graph.instantiate().launch(world.side)
    with cu.ordering("wait"):
        graph.instantiate().launch(world.side)
    world.side.synchronize()


@pytest.mark.parametrize("names", [("work", "out"), ("out", "work")])
def test_the_buffer_that_is_used_first_is_named(world, names):
    """A refusal names the buffer that the graph uses first, whatever the addresses are."""
    graph = cu.Graph()
    with graph.capture(world.main):
        for name in names:
            getattr(world, name).fill_async(1, world.main)
    for name in names:
        getattr(world, name).fill_async(2, world.side)
    with pytest.raises(cu.BufferBorrowedError, match=f"cannot write DeviceBuffer '{names[0]}'"):
        graph.instantiate().launch(world.main)


def test_a_closed_executable_on_a_closed_stream(world, step):
    """A refusal names the first reason: the closed executable, and then the closed stream."""
    closed = cu.Stream()
    closed.close()
    with pytest.raises(ValueError, match=r"^Stream \d+ is closed"):
        step.launch(closed)
    step.close()
    for stream in (closed, None, 7):
        with pytest.raises(ValueError, match="this executable of graph 'step' is closed"):
            step.launch(stream)


def test_launches_behind_an_upload_compute_the_same(world, step):
    step.upload(world.main)
    for number in range(3):
        world.frames[:] = number
        step.launch(world.main)
        step.upload(world.main).wait()
        assert list(world.result.to_numpy()) == [number] * 16


def test_an_upload_borrows_nothing(world, step, gate):
    gate.hold(world.main)
    token = step.upload(world.main)
    assert not token.done
    for name in ("frames", "work", "out", "result"):
        assert not getattr(world, name).borrowed
    world.frames[:] = 1
    gate.open()
    token.wait()
    assert token.done


def test_the_stream_of_an_upload(world, step):
    with world.main:
        step.upload().wait()
    with pytest.raises(TypeError, match="pass one, or call it inside a"):
        step.upload()


def test_an_upload_cannot_be_captured(world, step):
    other = cu.Graph()
    with other.capture(world.main), pytest.raises(cu.CaptureError, match="cannot be captured"):
        step.upload(world.main)


def test_wrong_arguments_of_an_upload(world, step):
    with pytest.raises(TypeError):
        step.upload(3.5)
    with cu.Context.create(world.main.device), cu.Stream() as stream:
        with pytest.raises(ValueError, match="use a stream of the graph's context"):
            step.upload(stream)
    step.close()
    with pytest.raises(ValueError, match="is closed"):
        step.upload(world.main)
