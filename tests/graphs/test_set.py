"""Changes of single nodes of executable graphs: their effects, checks, and what they hold."""

import gc
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu

COPY, FILL, LAUNCH, BACK = range(4)
PTX = Path(__file__).parents[1] / "kernels" / "kernels.ptx"


def line(factor, offset):
    return [factor * i + offset for i in range(16)]


def locked(name="other"):
    return cu.LockedBuffer.zeros(16, "f4", name=name)


def test_a_fill(world, step):
    step[FILL].set(value=5)
    assert world.result_of(step) == line(2, 5)
    step[FILL].set(target=world.out[8:])
    world.out.fill(0)
    assert world.result_of(step) == [2 * i + 5 * (i > 7) for i in range(16)]
    step[FILL].set(target=world.out, value=-1.5)
    assert world.result_of(step) == line(2, -1.5)


def test_a_copy(world, step):
    other = locked()
    other[:] = 3
    step[COPY].set(source=other)
    assert world.result_of(step) == [7] * 16
    step[COPY].set(source=world.frames[:4], target=world.work[4:8])
    world.work.fill(0)
    assert world.result_of(step) == [1] * 4 + [1, 3, 5, 7] + [1] * 8
    step[BACK].set(target=other)
    world.result[:] = 0
    assert world.result_of(step) == [0] * 16
    assert list(other) == [1] * 4 + [1, 3, 5, 7] + [1] * 8


def test_a_copy_on_the_device_and_one_on_the_host(world):
    other, second = cu.DeviceBuffer.zeros(16, "f4"), locked()
    second[:] = 4
    with world.graph.capture(world.main):
        world.out.copy_from_async(world.work, world.main)
        world.result.copy_from_async(world.frames, world.main)
    step = world.graph.instantiate()
    other.fill(6)
    step[0].set(source=other)
    step[1].set(source=second)
    assert world.result_of(step) == [4] * 16
    world.frames.copy_from(world.out)
    assert list(world.frames) == [6] * 16
    step[1].set(target=second, source=world.frames)
    step.launch(world.main).wait()
    assert list(second) == [6] * 16


def test_a_launch(world, step):
    step[LAUNCH].set(3.0, cu.read(world.work), world.out, 16)
    assert world.result_of(step) == line(3, 1)
    step[LAUNCH].set(3.0, cu.read(world.work), world.out, 8)
    assert world.result_of(step) == [3 * i * (i < 8) + 1 for i in range(16)]
    step[LAUNCH].set(grid=2, block=2)
    assert world.result_of(step) == [3 * i * (i < 4) + 1 for i in range(16)]
    step[LAUNCH].set(4.0, cu.read(world.work), world.out, 16, grid=(4, 1), block=(4,))
    assert world.result_of(step) == line(4, 1)
    step[LAUNCH].set(shared_bytes=1024)
    assert world.result_of(step) == line(4, 1)


def test_a_launch_with_other_buffers(world, step):
    factor = cu.DeviceBuffer.zeros(16, "f4", name="factor")
    factor.fill(10)
    step[LAUNCH].set(2.0, cu.read(factor), world.out, 16)
    assert set(step.nodes[LAUNCH].reads) == {factor}
    assert world.result_of(step) == [21] * 16
    factor.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match=r"'factor'.* in launch of saxpy at"):
        step.launch(world.main)
    world.work.fill_async(1, world.side)
    world.side.synchronize()
    step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match="read by launch of saxpy at"):
        factor.fill_async(1, world.side)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_fills_of_wide_items(world, dtype):
    wide = cu.LockedBuffer.zeros(4, dtype, name="wide")
    with world.graph.capture(world.main):
        wide.fill_async(1.5, world.main)
    step = world.graph.instantiate()
    step[0].set(value=2.5)
    step.launch(world.main).wait()
    assert list(wide) == [2.5] * 4
    step[0].set(value=0.0)
    step.launch(world.main).wait()
    assert list(wide) == [0] * 4
    other = cu.LockedBuffer.zeros(4, dtype)
    step[0].set(target=other, value=3.25)
    step.launch(world.main).wait()
    assert (list(wide), list(other)) == ([0] * 4, [3.25] * 4)
    with pytest.raises(ValueError, match="keeps its number of items"):
        step[0].set(target=other[:2])
    step[0].enabled = False
    other[:] = 1
    step.launch(world.main).wait()
    assert list(other) == [1] * 4
    step[0].enabled = True
    step.launch(world.main).wait()
    assert list(other) == [3.25] * 4


def test_fills_of_eight_bytes_with_two_equal_halves(world):
    wide = cu.LockedBuffer.zeros(4, "i8", name="wide")
    with world.graph.capture(world.main):
        wide.fill_async(0, world.main)
    step = world.graph.instantiate()
    step[0].set(value=-1, target=wide[1:])
    step.launch(world.main).wait()
    assert list(wide) == [0, -1, -1, -1]
    with pytest.raises(ValueError, match="5 has different words of 4 bytes"):
        step[0].set(value=5)
    step.launch(world.main).wait()
    assert list(wide) == [0, -1, -1, -1]


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "u8"])
def test_items_of_all_sizes(world, dtype):
    items = cu.LockedBuffer.zeros(5, dtype)
    with world.graph.capture(world.main):
        items.fill_async(0, world.main)
    step = world.graph.instantiate()
    value = 0x01010101_01010101 if dtype == "u8" else 77
    step[0].set(value=value)
    step.launch(world.main).wait()
    assert list(items) == [value] * 5


def test_the_graph_and_other_executables_stay(world, graph, step):
    before = graph.nodes
    step[FILL].set(value=5)
    assert graph.nodes == before
    assert graph.nodes[FILL] is not step.nodes[FILL]
    assert world.result_of(graph.instantiate()) == line(2, 1)
    assert world.result_of(step) == line(2, 5)


def test_a_running_launch_is_not_affected(world, step, gate):
    other = locked()
    gate.hold(world.main)
    step.launch(world.main)
    step[FILL].set(value=5)
    step[BACK].set(target=other)
    step.launch(world.main)
    for buffer in (world.result, other):
        with pytest.raises(cu.BufferBorrowedError):
            buffer[0] = 1
    gate.open()
    world.main.synchronize()
    assert list(world.result) == line(2, 1)
    assert list(other) == line(2, 5)


def test_what_is_kept(world, graph, step):
    other = locked()
    step[BACK].set(target=other)
    for buffer in (other, world.result):
        with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it, in copy_from_"):
            buffer.close()
    graph.close()
    world.result.close()
    address = other.address
    del other
    gc.collect()
    cu.reap()
    assert "LockedBuffer 'other'" in {each.label for each in cu.live_buffers()}
    assert step.nodes[BACK].writes[0].address == address
    step.launch(world.main).wait()
    assert list(step.nodes[BACK].writes[0]) == line(2, 1)
    step.close()
    gc.collect()
    assert "LockedBuffer 'other'" not in {each.label for each in cu.live_buffers()}


def test_which_nodes_are_meant(world, graph, step):
    other = cu.Graph(name="other")
    with other.capture(world.main):
        world.out.fill_async(3, world.main)
    assert len(step) == 4
    for node in (graph.nodes[FILL], step.nodes[FILL], FILL, FILL - 4, np.int64(FILL)):
        assert step[node].node is step.nodes[FILL]
        step[node].set(value=2)
    step[graph.nodes[FILL]].set(value=5)
    assert world.result_of(step) == line(2, 5)
    assert "fill_async at" in repr(step[FILL])
    with pytest.raises(ValueError, match="is no node of this executable of graph 'step'"):
        step[other.nodes[0]]
    for index in (4, -5, 1 << 70):
        with pytest.raises(IndexError, match="has 4 nodes"):
            step[index]
    for wrong in ("fill", None, 1.0, slice(0, 1)):
        with pytest.raises(TypeError):
            step[wrong]
    assert [node.node for node in step] == list(step.nodes)


def test_nodes_of_the_graph_that_has_updated(world, graph, step, module):
    second, third = cu.Graph(), cu.Graph()
    for other, factor in ((second, 3.0), (third, 4.0)):
        with other.capture(world.main):
            world.work.copy_from_async(world.frames, world.main)
            world.out.fill_async(1, world.main)
            module["saxpy"].launch(
                1, 16, factor, cu.read(world.work), world.out, 16, stream=world.main
            )
            world.result.copy_from_async(world.out, world.main)
    step.update(second)
    step[second.nodes[FILL]].set(value=4)
    step[graph.nodes[FILL]].set(value=5)
    assert world.result_of(step) == line(3, 5)
    step.update(third)
    assert world.result_of(step) == line(4, 1)
    with pytest.raises(ValueError, match="is no node"):
        step[second.nodes[FILL]]


def test_the_line_of_the_change(world, step):
    step[BACK].set(target=locked())
    place = step.nodes[BACK].site
    assert place.split(":")[0].endswith("test_set.py")
    token = step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        step.nodes[BACK].writes[0][0] = 1
    assert f"it is being written by copy_from_async at {place} in graph 'step'" in str(caught.value)
    token.wait()


@pytest.fixture
def forked(world):
    """An executable with two branches that fill one half each.

    One branch also reads the first half after its fill.
    """
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out[:8].fill_async(1, world.main)
        world.out[8:].fill_async(2, world.side)
        world.result[:8].copy_from_async(world.out[:8], world.main)
        world.main.wait(world.side)
        world.result[8:].copy_from_async(world.out[8:], world.main)
    return world.graph.instantiate()


def test_conflicts_with_nodes_that_are_not_ordered(world, forked):
    with pytest.raises(cu.BufferBorrowedError) as caught:
        forked[1].set(target=world.out[7:])
    text = str(caught.value)
    assert "cannot write DeviceBuffer 'out'[7:16] (float32) in fill_async at" in text
    assert "of graph 'step':\n  it is written by fill_async at" in text
    assert "and nothing in the graph orders the two" in text
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot read .*\n.*is written by fill_async"):
        forked[2].set(source=world.out[8:])
    forked[0].set(target=world.work)
    with pytest.raises(cu.BufferBorrowedError, match="it is read by copy_from_async"):
        forked[1].set(target=world.out)
    forked[2].set(source=world.work[:8])
    forked[1].set(target=world.out)
    forked[3].set(source=world.out[:8])
    assert world.result_of(forked) == [1] * 8 + [2] * 8


def test_a_refused_change_changes_nothing(world, forked):
    nodes = forked.nodes
    with pytest.raises(cu.BufferBorrowedError):
        forked[1].set(target=world.out, value=9)
    assert forked.nodes == nodes
    assert world.result_of(forked) == [1] * 8 + [2] * 8


def test_disabled_nodes_conflict_too(world, forked):
    forked[0].enabled = False
    with pytest.raises(cu.BufferBorrowedError):
        forked[1].set(target=world.out)


def test_policy_unchecked(world, forked):
    with cu.ordering("unchecked"):
        forked[1].set(target=world.out[7:])
    with cu.ordering("wait"), pytest.raises(cu.BufferBorrowedError):
        forked[1].set(target=world.out[6:])


def test_readers_share_and_shared_memory_is_the_programs_own(world, module):
    saxpy = module["saxpy"]
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        saxpy.launch(1, 8, 2.0, cu.read(world.work), world.out[:8], 8, stream=world.main)
        saxpy.launch(1, 8, 2.0, cu.read(world.frames), world.out[8:], 8, stream=world.side)
        world.main.wait(world.side)
    step = world.graph.instantiate()
    step[1].set(2.0, cu.read(world.work), world.out[8:], 8)
    step[1].set(2.0, cu.shared(world.out), world.out[8:], 8)
    with pytest.raises(cu.BufferBorrowedError, match=r"argument 1 \(x.* in launch of saxpy at"):
        step[1].set(2.0, cu.read(world.out), world.out[8:], 8)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write argument 1 \(x"):
        step[1].set(2.0, world.work, world.out[8:], 8)


def test_empty_buffers_conflict_with_nothing(world, module):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.out.fill_async(1, world.main)
        module["saxpy"].launch(1, 1, 2.0, cu.read(world.work), world.frames, 0, stream=world.side)
        world.main.wait(world.side)
    step = world.graph.instantiate()
    step[1].set(2.0, cu.read(world.out[4:4]), world.out[5:5], 0)
    step.launch(world.main).wait()
    with pytest.raises(cu.BufferBorrowedError):
        step[1].set(2.0, cu.read(world.out[4:5]), world.out[5:5], 0)


def test_empty_parts_of_closed_memory_are_in_nobodys_way(world, module):
    """A graph does not hold a buffer if it uses no bytes of this buffer.

    So a change of a node succeeds even if such a buffer has been closed.
    """
    closed = cu.DeviceBuffer(4, "f4", name="closed")
    with world.graph.capture(world.main):
        world.out.fill_async(1, world.main)
        module["saxpy"].launch(
            1, 1, 2.0, cu.read(closed[:0]), world.work, 0, stream=world.main
        )  # fmt: skip
    step = world.graph.instantiate()
    closed.close()
    step[0].set(target=world.work, value=3)
    step.launch(world.main).wait()
    step[0].set(target=world.result)
    step.launch(world.main).wait()
    assert list(world.result) == [3] * 16


def test_borrows(world, module):
    saxpy = module["saxpy"]
    with world.graph.capture(world.main):
        operands = cu.read(world.work), world.out, 16
        more = [cu.read(world.frames)]
        saxpy.launch(1, 16, 2.0, *operands, stream=world.main, borrows=more)
    step = world.graph.instantiate()
    step[0].set(3.0, cu.read(world.work), world.out, 16)
    assert world.frames in step.nodes[0].reads
    step[0].set(borrows=[cu.write(world.result)])
    assert world.frames not in step.nodes[0].reads
    assert world.result in step.nodes[0].writes
    step.launch(world.main)
    world.frames[0] = 1
    with pytest.raises(cu.BufferBorrowedError):
        world.result.to_numpy()
    step[0].set(borrows=())
    assert world.result not in step.nodes[0].writes
    with pytest.raises(TypeError, match="borrows takes an iterable"):
        step[0].set(borrows=world.result)


# ---- arguments ----


def close_and_return(thing, value):
    class Closing:
        def __index__(self):
            thing.close()
            return value

    return Closing()


WRONG = {
    "nothing": (FILL, (), {}, TypeError, "set of fill_async at .* takes target= and value="),
    "a source": (FILL, (), {"source": "work"}, TypeError, "takes target= and value="),
    "arguments of a fill": (FILL, (1,), {}, TypeError, "takes target= and value="),
    "a grid": (COPY, (), {"grid": 1}, TypeError, "takes source= and target="),
    "a value of a copy": (COPY, (), {"value": 1}, TypeError, "takes source= and target="),
    "a value of a launch": (LAUNCH, (), {"value": 1}, TypeError, "takes arguments, grid="),
    "a launch and a target": (LAUNCH, (), {"grid": 1, "target": "out"}, TypeError, "arguments, "),
    "no argument": (LAUNCH, (), {}, TypeError, "takes arguments, grid="),
    "too few arguments": (LAUNCH, (1.0,), {}, TypeError, "takes 4 arguments, not 1"),
    "a wrong argument": (LAUNCH, (1.0, "x", "y", 1), {}, TypeError, "cannot be 'x'"),
    "grid 0": (LAUNCH, (), {"grid": 0}, ValueError, "grid is 0"),
    "a large block": (LAUNCH, (), {"block": 4096}, ValueError, "block is 4096"),
    "shared memory": (LAUNCH, (), {"shared_bytes": 1 << 30}, ValueError, "shared_bytes is"),
    "no buffer": (COPY, (), {"source": 3}, TypeError, "source of copy_from_async at .* buffer"),
    "an array": (COPY, (), {"source": np.zeros(16, "f4")}, TypeError, "must be a buffer"),
    "another size": (COPY, (), {"source": "half"}, ValueError, "has 16 items, and .* 8"),
    "another dtype": (COPY, (), {"source": "integers"}, TypeError, "different dtypes"),
    "another side": (COPY, (), {"source": "out"}, ValueError, "source of .* cannot become"),
    "the other side": (COPY, (), {"target": "result"}, ValueError, "target of .* cannot become"),
    "empty": (COPY, (), {"source": "empty", "target": "nothing"}, ValueError, "is empty"),
    "an empty fill": (FILL, (), {"target": "nothing"}, ValueError, "is empty.*enabled = False"),
    "a value that does not fit": (FILL, (), {"value": "x"}, TypeError, "Cannot cast"),
    "another dtype of a fill": (FILL, (), {"target": "words"}, TypeError, "different dtypes"),
    "closed": (COPY, (), {"source": "closed"}, cu.BufferClosedError, "is closed|was closed"),
    "of another context": (FILL, (), {"target": "far"}, ValueError, "belongs to"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_change_nothing(world, step, name):
    index, args, given, error, text = WRONG[name]
    context = cu.Context.create(cu.Device(0))
    with context:
        far = cu.DeviceBuffer(16, "f4")
    closed = locked()
    closed.close()
    things = {
        "half": world.frames[:8], "integers": cu.LockedBuffer.zeros(16, "i4"), "out": world.out,
        "work": world.work, "result": world.result, "empty": world.frames[:0],
        "nothing": world.work[:0], "words": cu.DeviceBuffer(16, "i4"), "closed": closed, "far": far,
    }  # fmt: skip
    given = {
        key: things.get(value, value) if isinstance(value, str) else value
        for key, value in given.items()
    }
    nodes = step.nodes
    with pytest.raises(error, match=text):
        step[index].set(*args, **given)
    assert step.nodes == nodes
    assert world.result_of(step) == line(2, 1)


def test_memory_of_another_context(world):
    """A node's memory of another context can only be replaced by memory of that context.

    A fill of such memory can also be disabled.
    """
    context = cu.Context.create(cu.Device(0))
    with context:
        there, second = (cu.LockedBuffer.zeros(16, "f4", name=name) for name in ("there", "second"))
        managed = cu.UnifiedBuffer.zeros(16, "f4", name="managed")
    world.graph.add_fill(world.out, 0)  # the first node assigns the graph to the primary context
    fill = world.graph.add_fill(there, 3)
    world.graph.add_copy(world.work, there, after=[fill])
    world.graph.add_copy(world.result, world.work, after=world.graph.nodes)
    step = world.graph.instantiate()
    for node, given in ((1, {"target": world.result}), (2, {"source": world.frames})):
        with pytest.raises(ValueError, match=r"is LockedBuffer 'there'.*cannot become"):
            step[node].set(**given)
    with pytest.raises(ValueError, match=r"page-locked memory of .* device or managed memory of"):
        step[2].set(source=managed)
    assert world.result_of(step) == [3] * 16
    step[1].set(target=managed)
    step[1].set(target=second, value=4)
    step[2].set(source=second)
    assert world.result_of(step) == [4] * 16
    step[1].enabled = False
    second.fill(5)
    assert world.result_of(step) == [5] * 16
    step[1].enabled = True
    assert world.result_of(step) == [4] * 16
    step.close()
    world.graph.close()
    for buffer in (there, second, managed):
        buffer.close()


def test_launches_of_another_context(world):
    """A launch in another context can be changed if it uses only page-locked memory.

    It can also use variables of its module. A launch with device memory of that context cannot be
    changed, and no launch can be changed to use such memory.
    """
    context = cu.Context.create(cu.Device(0))
    with context:
        stream, module = cu.Stream(), cu.Module.from_file(PTX)
        counter, there = module.global_("counter", "u4"), cu.DeviceBuffer.zeros(16, "f4")
    saxpy = module["saxpy"]
    with world.graph.capture(world.main):
        stream.wait(world.main)
        saxpy.launch(1, 16, 1.0, cu.read(world.frames), world.result, 16, stream=stream)
        module["count"].launch(1, 16, 1, stream=stream)
        saxpy.launch(1, 16, 1.0, there, there, 16, stream=stream)
        world.main.wait(stream)
    step = world.graph.instantiate()
    world.frames[:] = 1
    step[0].set(3.0, cu.read(world.frames), world.result, 16)
    step[1].set(2)
    step[1].set(grid=2)
    for change in (
        lambda: step[0].set(3.0, there, world.result, 16),
        lambda: step[2].set(grid=2),
    ):
        with pytest.raises(ValueError, match=r"belongs to .* graph 'step' to another context"):
            change()
    assert world.result_of(step) == [3] * 16
    assert counter.to_numpy()[0] == 64
    step.close()
    world.graph.close()


def test_a_captured_fill_of_memory_of_another_context(world):
    with cu.Context.create(cu.Device(0)):
        there = cu.LockedBuffer.zeros(16, "f4", name="there")
    with world.graph.capture(world.main):
        there.fill_async(3, world.main)
    step = world.graph.instantiate()
    for change in (
        lambda: step[0].set(value=4),
        lambda: step[0].set(target=world.result),
        lambda: setattr(step[0], "enabled", False),
    ):
        with pytest.raises(ValueError, match=r"was captured with LockedBuffer 'there'.*add_fill"):
            change()
    step.launch(world.main).wait()
    assert list(there.to_numpy()) == [3] * 16
    step.close()
    world.graph.close()
    there.close()


def test_a_copy_that_the_driver_changes_only_once(world):
    with cu.Context.create(cu.Device(0)):
        there = cu.LockedBuffer.zeros(16, "f4", name="there")
    ordered = cu.DeviceBuffer(16, "f4", stream=world.main, name="ordered")
    world.graph.add_copy(ordered, there)
    step = world.graph.instantiate()
    with pytest.raises(ValueError, match="cannot be changed: it copies LockedBuffer 'there'"):
        step[0].set(source=there)
    step[0].enabled = False
    step.close()
    world.graph.close()
    there.close()


def test_arrays_of_launches(world, step):
    for array in (cu.In(np.zeros(16, "f4")), cu.InOut(np.zeros(16, "f4"))):
        with pytest.raises(TypeError, match="a node takes buffers"):
            step[LAUNCH].set(1.0, array, world.out, 16)


def test_the_same_bytes(world):
    with world.graph.capture(world.main):
        world.out.copy_from_async(world.work, world.main)
    step = world.graph.instantiate()
    with pytest.raises(ValueError, match="are the same bytes"):
        step[0].set(source=world.out)
    with pytest.raises(ValueError, match="overlap"):
        step[0].set(source=world.out[:8], target=world.out[4:12])


@pytest.mark.parametrize("what", ["close", "update", "launch", "set", "enabled"])
def test_arguments_whose_conversion_uses_the_executable(world, graph, step, what):
    class Argument:
        def __index__(self):
            use = {
                "close": step.close,
                "update": lambda: step.update(graph),
                "launch": lambda: step.launch(world.main),
                "set": lambda: step[FILL].set(value=3),
                "enabled": lambda: setattr(step[FILL], "enabled", False),
            }[what]
            with pytest.raises(cu.CaptureError, match="is being changed"):
                use()
            return 16

    step[LAUNCH].set(3.0, cu.read(world.work), world.out, Argument())
    assert world.result_of(step) == line(3, 1)


def test_arguments_whose_conversion_closes_a_buffer(world, step):
    buffer = cu.DeviceBuffer(16, "f4", name="closing")
    with pytest.raises(cu.BufferClosedError, match="'closing'"):
        step[LAUNCH].set(3.0, cu.read(buffer), world.out, close_and_return(buffer, 16))
    assert world.result_of(step) == line(2, 1)


def test_a_value_whose_conversion_closes_the_target(world, step):
    buffer = cu.DeviceBuffer(16, "f4", name="closing")

    class Value:
        def __array__(self, dtype=None, copy=None):
            buffer.close()
            return np.zeros((), "f4")

    with pytest.raises(cu.BufferClosedError, match="'closing'"):
        step[FILL].set(target=buffer, value=Value())
    assert world.result_of(step) == line(2, 1)


def test_an_exception_of_a_conversion(world, step):
    class Argument:
        def __index__(self):
            raise KeyError

    with pytest.raises(KeyError):
        step[LAUNCH].set(3.0, cu.read(world.work), world.out, Argument())
    assert world.result_of(step) == line(2, 1)


def test_after_the_end(world, graph, step):
    node = step[FILL]
    graph.close()
    node.set(value=4)  # works: the executable does not need the graph
    assert world.result_of(step) == line(2, 4)
    step.close()
    for use in (
        lambda: node.set(value=1), lambda: node.enabled, lambda: setattr(node, "enabled", True),
        lambda: node.node, lambda: step[0], lambda: len(step),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="this executable of graph 'step' is closed"):
            use()
    assert "closed" in repr(node)


def test_a_node_keeps_its_executable(world, graph, module):
    node = graph.instantiate()[FILL]
    gc.collect()
    node.set(value=3)
    assert node.enabled


# ---- disabled nodes ----


def test_a_disabled_node_does_nothing(world, step):
    world.out.fill(7)
    assert step[FILL].enabled
    step[FILL].enabled = False
    assert not step[FILL].enabled
    assert "disabled" in repr(step[FILL])
    assert world.result_of(step) == line(2, 7)
    step[LAUNCH].enabled = False
    assert world.result_of(step) == line(2, 7)
    step[FILL].enabled = step[LAUNCH].enabled = True
    assert world.result_of(step) == line(2, 1)


def test_what_a_disabled_node_uses_is_not_borrowed(world, step):
    step[BACK].enabled = False
    token = step.launch(world.main)
    world.result[0] = 1
    assert world.result not in token.writes
    step[COPY].enabled = False
    world.main.synchronize()
    step.launch(world.main)
    world.frames[0] = 1
    with pytest.raises(cu.BufferBorrowedError):
        world.out.fill_async(1, world.side)
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it"):
        world.frames.close()


def test_all_nodes_can_be_disabled(world, step):
    for node in step:
        node.enabled = False
    step.launch(world.main)
    for buffer in (world.frames, world.work, world.out, world.result):
        assert not buffer.borrowed
    for node in step:
        node.enabled = 1
    assert world.result_of(step) == line(2, 1)


@pytest.mark.parametrize("middle", ["fill", "copy", "launch"])
@pytest.mark.parametrize("first", ["fill", "copy"])
def test_a_disabled_node_orders_as_before(world, module, first, middle):
    """Nodes around a disabled node stay ordered. The first node takes long, so a lost order shows.

    Driver 580 loses the order between nodes before and after a memset node that
    cuGraphNodeSetEnabled has disabled.
    """
    count = (1 << 16) if cu.driver_info().is_software else (64 << 20) // 4
    big, ones = cu.DeviceBuffer(count, "f4"), cu.DeviceBuffer(count, "f4")
    ones.fill_async(1, world.main)
    end, saxpy = big[-16:], module["saxpy"]
    with world.graph.capture(world.main):
        if first == "fill":
            big.fill_async(1, world.main)
        else:
            big.copy_from_async(ones, world.main)
        if middle == "fill":
            end.fill_async(5, world.main)
        elif middle == "copy":
            end.copy_from_async(world.work, world.main)
        else:
            saxpy.launch(1, 16, 5.0, cu.read(ones[:16]), end, 16, stream=world.main)
        saxpy.launch(1, 16, 2.0, cu.read(ones[:16]), end, 16, stream=world.main)
        world.result.copy_from_async(end, world.main)
    step = world.graph.instantiate()
    step[1].enabled = False
    for _ in range(10):
        big.fill_async(0, world.main)
        assert world.result_of(step) == [3] * 16


def test_a_disabled_fill_at_the_end(world):
    """If the last node is disabled, a launch is complete only when all other nodes are."""
    count = (1 << 16) if cu.driver_info().is_software else (64 << 20) // 4
    big, ones = cu.DeviceBuffer(count, "f4"), cu.DeviceBuffer.zeros(count, "f4")
    with world.graph.capture(world.main):
        big.copy_from_async(ones, world.main)
        big[-16:].copy_from_async(world.frames, world.main)
        big[-16:].fill_async(7, world.main)
    step = world.graph.instantiate()
    step[2].enabled = False
    world.frames[:] = 3
    for _ in range(10):
        big.fill_async(9, world.main)
        step.launch(world.main)
        world.result.copy_from_async(big[-16:], world.main).wait()
        assert list(world.result) == [3] * 16


def test_the_memory_of_a_disabled_fill_is_its_own(world, step):
    def spare():
        return [live for live in cu.live_buffers() if "of a disabled fill" in str(live)]

    assert spare() == []
    step[FILL].enabled = False
    assert [live.nbytes for live in spare()] == [4]
    assert step[FILL].node.writes == (world.out,)
    token = step.launch(world.main)
    assert "of a disabled fill" in [buffer.name for buffer in token.writes]
    step[FILL].enabled = True
    token.wait()
    del token
    assert spare() == []


def test_a_change_of_a_disabled_node(world, step):
    step[FILL].enabled = False
    step[FILL].set(value=5)
    assert not step[FILL].enabled
    world.out.fill(0)
    assert world.result_of(step) == line(2, 0)
    step[FILL].enabled = True
    assert world.result_of(step) == line(2, 5)


def test_another_target_of_a_disabled_fill(world, step):
    step[FILL].enabled = False
    step[FILL].set(target=world.out[3:5], value=7)
    world.out.fill(0)
    assert world.result_of(step) == line(2, 0)
    step[FILL].enabled = True
    world.out.fill(0)
    wanted = line(2, 0)
    wanted[3:5] = [wanted[3] + 7, wanted[4] + 7]
    assert world.result_of(step) == wanted


def test_contents_that_a_disabled_node_would_write(world):
    """A graph needs the contents of memory if the node that would write them first is disabled."""
    unified = cu.UnifiedBuffer(16, "f4")
    with world.graph.capture(world.main):
        unified.fill_async(1, world.main)
        world.result.copy_from_async(unified, world.main)
    step = world.graph.instantiate()
    unified.discard(world.main)
    step[0].enabled = False
    with pytest.raises(cu.ContentsDiscardedError):
        step.launch(world.main)
    step[0].enabled = True
    assert world.result_of(step) == [1] * 16


def test_whether_it_is_enabled_is_asked_once(world, step):
    class Answer:
        def __bool__(self):
            raise KeyError

    with pytest.raises(KeyError):
        step[FILL].enabled = Answer()
    assert step[FILL].enabled


# ---- the same memory again, which is the fast path ----


@pytest.fixture
def adder(world, module):
    """An executable that was changed once, so that only it refers to the objects that it uses."""
    world.graph.add_launch(module["add_into"], 1, 16, world.out, cu.read(world.work), world.out, 16)
    step = world.graph.instantiate()
    change(step, world, world.work)
    return step


def change(step, world, source):
    step[0].set(world.out, cu.read(source), world.out, 16)


def test_a_tuple_of_nodes_keeps_its_nodes(world, adder):
    before = adder.nodes
    change(adder, world, world.work.view("u4"))
    assert [region.dtype for region in before[0].reads] == ["f4"]
    assert [region.dtype for region in adder.nodes[0].reads] == ["u4"]
    assert [region.dtype for region in adder[0].node.reads] == ["u4"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_token_tells_what_its_launch_has_read(world, adder, kept):
    token = adder.launch(world.main)
    if not kept:
        token = None
    change(adder, world, world.work.view("u4"))
    later = adder.launch(world.main)
    assert [region.dtype for region in later.reads] == ["u4"]
    assert token is None or [region.dtype for region in token.reads] == ["f4"]


def test_other_buffers_over_the_same_bytes_have_their_policy_and_name(world, adder):
    view = world.work.view("u4")
    world.work.fill_async(1, world.side)
    world.work.ordering = "wait"
    adder.launch(world.main)
    world.work.fill_async(1, world.side.wait(world.main) or world.side)
    for _ in range(2):
        change(adder, world, view)
    with pytest.raises(cu.BufferBorrowedError, match=r"'work'.* \(uint32\) in launch of add_into"):
        adder.launch(world.main)
    change(adder, world, world.work)
    adder.launch(world.main)


def test_a_refused_change_leaves_the_node(world, adder):
    before = adder[0].node
    with pytest.raises(TypeError):
        change(adder, world, "nothing")
    assert adder[0].node is before


def test_set_is_a_method_of_nodes(step):
    kind = type(step[FILL])
    for given in ((), (3,), (3, 4.0), (step,)):
        with pytest.raises(TypeError, match=r"^(unbound method|descriptor)\b.*\bset\b"):
            kind.set(*given)
    kind.set(step[FILL], value=4)
    with pytest.raises(TypeError, match="'colour'"):
        step[FILL].set(colour=3)
    with pytest.raises(TypeError, match=r"set of fill_async at .* takes target= and value="):
        step[FILL].set()
