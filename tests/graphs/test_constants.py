"""Constants of a graph: arrays that are copied when the graph is captured."""

import gc
import threading

import numpy as np
import pytest

import cudadrv as cu


def test_launches_read_what_the_array_had(world):
    array = np.arange(16, dtype="f4")
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.graph.constant(array), world.main)
        world.result.copy_from_async(world.work, world.main)
    array[:] = 7
    step = world.graph.instantiate()
    del array
    gc.collect()
    cu.reap()
    for _ in range(3):
        world.result[:] = 0
        step.launch(world.main).wait()
        assert list(world.result) == list(range(16))
    world.graph.close()
    gc.collect()
    step.launch(world.main).wait()
    assert list(world.result) == list(range(16))


def test_what_is_returned(world):
    array = np.arange(12, dtype=">i2").reshape(3, 4)[:, ::2]
    with world.graph.capture(world.main):
        made = world.graph.constant(array, name="table")
        assert type(made) is cu.LockedBuffer
        assert (made.name, made.shape, made.dtype) == ("table", (3, 2), array.dtype)
        assert (made.to_numpy() == array).all()
        assert not made.borrowed
        assert world.graph.constant([1, 2, 3]).dtype == np.dtype(int)
        assert world.graph.constant(5.0).shape == (1,)
        assert world.graph.constant(b"abc").count == 1
        assert world.graph.constant(np.empty((0, 3), "u1")).nbytes == 0


def test_the_message_names_it(world):
    array = np.zeros(16, "f4")
    with world.graph.capture(world.main):
        with pytest.raises(cu.CaptureError, match=r"graph\.constant\(array\)$"):
            world.work.copy_from_async(array, world.main)
        with pytest.raises(cu.CaptureError, match=r"reads or writes anew$"):
            world.work.copy_from(array, stream=world.main)
        with pytest.raises(cu.CaptureError, match=r"reads or writes anew$"):
            world.work.copy_to(array, stream=world.main)


def test_the_current_stream_may_be_captured(world):
    with world.main, world.graph.capture():
        world.work.copy_from_async(world.graph.constant(np.ones(16, "f4")))
        world.result.copy_from_async(world.work)
    world.graph.instantiate().launch(world.main).wait()
    assert list(world.result) == [1] * 16


def test_only_inside_the_block(world):
    array = np.zeros(16, "f4")
    refused = pytest.raises(cu.CaptureError, match="graph 'step' is not being captured: call const")
    with refused:
        world.graph.constant(array)
    with world.graph.capture(world.main):
        world.graph.constant(array)
    with refused:
        world.graph.constant(array)
    world.graph.close()
    with pytest.raises(ValueError, match="graph 'step' is closed"):
        world.graph.constant(array)
    with pytest.raises(TypeError, match="never initialized"):
        cu.Graph.__new__(cu.Graph).constant(array)


def test_the_graph_owns_it(world):
    with world.graph.capture(world.main):
        used = world.graph.constant(np.ones(16, "f4"), name="used")
        unused = world.graph.constant(np.ones(4, "f4"), name="unused")
        world.work.copy_from_async(used, world.main)
        with pytest.raises(cu.BufferBorrowedError, match=r"'unused'.*\n.* in constant at"):
            unused.close()
    for buffer in (used, unused):
        for end in (buffer.close, buffer.take, buffer.into_raw):
            with pytest.raises(cu.BufferBorrowedError, match="'step' uses it, in constant at"):
                end()
    assert "before graph 'step', which uses it in constant at" in unused.explain()
    used[:] = 3  # the host may write it, because the graph is not running
    world.graph.close()
    used.close()
    unused.close()


def test_it_lives_as_long_as_the_graph(world):
    with world.graph.capture(world.main):
        world.work.copy_from_async(
            world.graph.constant(np.ones(16, "f4"), name="dropped"), world.main
        )
    gc.collect()
    cu.reap()
    assert "LockedBuffer 'dropped'" in {each.label for each in cu.live_buffers()}
    world.graph.close()
    gc.collect()
    cu.reap()
    assert "LockedBuffer 'dropped'" not in {each.label for each in cu.live_buffers()}


def test_a_capture_that_fails_lets_it_go(world):
    def capture():
        with world.graph.capture(world.main):
            kept.append(world.graph.constant(np.ones(16, "f4")))
            raise KeyError

    kept = []
    with pytest.raises(KeyError):
        capture()
    kept.pop().close()


def test_a_capture_without_an_end(world):
    kept = []

    def steps():
        with world.graph.capture(world.main):
            kept.append(world.graph.constant(np.ones(16, "f4")))
            yield

    running = steps()
    next(running)
    del running
    gc.collect()
    kept.pop().close()
    capture = world.graph.capture(world.main)
    capture.__enter__()
    kept.append(world.graph.constant(np.ones(16, "f4")))
    del capture
    gc.collect()
    kept.pop().close()
    world.work.fill_async(1, world.main).wait()


class Ends:
    """An array whose conversion ends the capture."""

    def __init__(self, capture):
        self.capture = capture

    def __array__(self, dtype=None, copy=None):
        self.capture.__exit__(None, None, None)
        return np.zeros(4, "f4")


class Fails:
    def __array__(self, dtype=None, copy=None):
        raise KeyError


class Changes:
    def __init__(self, world):
        self.world = world

    def __array__(self, dtype=None, copy=None):
        self.world.out.fill_async(1, self.world.main)
        return np.zeros(4, "f4")


def test_arrays_that_run_code(world):
    capture = world.graph.capture(world.main)
    capture.__enter__()
    with pytest.raises(KeyError):
        world.graph.constant(Fails())
    made = world.graph.constant(Changes(world))
    with pytest.raises(cu.CaptureError, match="is not being captured"):
        world.graph.constant(Ends(capture))
    assert len(world.graph.nodes) == 1
    assert made.count == 4


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.ma.masked_array([1, 2], [0, 1]), TypeError),
        (np.array([object()]), TypeError),
        (object(), TypeError),
        (None, TypeError),
        (np.empty(1, "V0"), ValueError),
    ],
)
def test_what_is_no_array(world, array, error):
    with world.graph.capture(world.main):
        with pytest.raises(error):
            world.graph.constant(array)
        with pytest.raises(TypeError, match="name"):
            world.graph.constant(np.zeros(4), name=5)
        with pytest.raises(TypeError):
            world.graph.constant()
        world.out.fill_async(1, world.main)
    assert len(world.graph.nodes) == 1


def test_constants_of_many_threads(world):
    made = []

    def constants():
        made.extend(world.graph.constant(np.full(8, n, "u1")) for n in range(20))

    with world.graph.capture(world.main):
        threads = [threading.Thread(target=constants) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(each[0] for each in made) == sorted(list(range(20)) * 4)
    for each in made:
        with pytest.raises(cu.BufferBorrowedError):
            each.close()
    world.graph.close()
    for each in made:
        each.close()


def test_a_kernel_reads_a_constant(world, module):
    with world.graph.capture(world.main):
        world.out.fill_async(1, world.main)
        table = world.graph.constant(np.arange(16, dtype="f4"))
        module["saxpy"].launch(1, 16, 2.0, cu.read(table), world.out, 16, stream=world.main)
        world.result.copy_from_async(world.out, world.main)
    world.graph.instantiate().launch(world.main).wait()
    assert list(world.result) == [2 * number + 1 for number in range(16)]
