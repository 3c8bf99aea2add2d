"""Loans in a capture: calls of another library become nodes and use the lent buffer."""

import ctypes
import gc
import threading

import pytest
from capsules import Consumer

import cudadrv as cu


@pytest.fixture
def library(driver):
    return ctypes.CDLL(cu.driver_info().path)


@pytest.fixture
def fill(library):
    """Queue a fill as another library does: by the address and the handle of the stream."""

    def fill(address, value, items, stream):
        handle = ctypes.c_void_p(stream.handle)
        with cu.Device(0):
            call = library.cuMemsetD32Async
            assert call(ctypes.c_uint64(address), ctypes.c_uint(value), items, handle) == 0

    return fill


ONE = 0x3F800000  # 1.0 as float32


def launched(world):
    step = world.graph.instantiate()
    step.launch(world.main).wait()
    return step


def test_calls_of_the_library_become_nodes(world, fill):
    with world.graph.capture(world.main):
        world.work.copy_from_async(world.frames, world.main)
        with world.work[:8].lend(world.main) as address:
            assert address == world.work.address
            fill(address, ONE, 4, world.main)
            fill(address + 16, 2 * ONE, 4, world.main)
        world.result.copy_from_async(world.work, world.main)
    world.frames[:] = 5
    launched(world)
    assert list(world.result) == [1] * 4 + [world.result[4]] * 4 + [5] * 8
    assert world.result[4] != 5
    nodes = world.graph.nodes
    assert [node.operation for node in nodes] == ["copy_from_async", "lend", "copy_from_async"]
    assert nodes[1].stream is world.main
    assert nodes[1].reads == ()
    assert [(each.address, each.count) for each in nodes[1].writes] == [(address, 8)]
    assert nodes[1].site.split(":")[0].endswith("test_loans.py")
    assert world.graph.edges == ((nodes[0], nodes[1]), (nodes[1], nodes[2]))
    assert "writes work[0:8] (float32)" in world.graph.to_svg()


def test_nothing_runs_and_nothing_is_borrowed(world, fill):
    world.result[:] = 3
    with world.graph.capture(world.main):
        with world.result.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
            assert not world.result.borrowed
            world.result[0] = 4  # allowed for the host, because nothing runs
            assert "lent" not in world.result.explain()
    assert list(world.result) == [4] + [3] * 15
    assert not world.result.borrowed
    launched(world)
    assert list(world.result) == [1] * 16


def test_a_launch_borrows_what_was_lent(world, fill):
    with world.graph.capture(world.main):
        with world.work.lend(world.main, readonly=True), world.out.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
    assert world.graph.nodes[0].reads == (world.work,)
    assert world.graph.nodes[1].writes == (world.out,)
    step = world.graph.instantiate()
    step.launch(world.main)
    (borrow,) = world.out.borrows
    assert borrow.mode == "write"
    assert [each.mode for each in world.work.borrows] == ["read"]
    world.result.copy_from_async(world.work, world.side)
    with pytest.raises(cu.BufferBorrowedError, match=r"written by lend at .*in graph 'step'"):
        world.result.copy_from_async(world.out, world.side)


def test_conflicts_with_other_nodes(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        with pytest.raises(cu.BufferBorrowedError) as caught:
            world.work.lend(world.main).__enter__()
        text = str(caught.value)
        assert "by lend on" in text
        assert "in the capture of graph 'step', begun at" in text
        assert "it is being written by fill_async on" in text
        with world.out.lend(world.main):
            pass
        with pytest.raises(
            cu.BufferBorrowedError, match=r"written by lend on Stream .*captured at"
        ):
            world.out.fill_async(1, world.side)
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        world.main.wait(world.side)
        with world.work.lend(world.main):
            pass
    operations = [node.operation for node in world.graph.nodes]
    assert operations == ["fill_async", "lend", "fill_async", "lend"]


def test_others_are_refused_during_the_loan(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        loan = world.work[:8].lend(world.main)
        with loan:
            message = (
                r"in the capture of graph 'step'.*\n  it is lent to Stream .*test_loans.py:\d+"
            )
            with pytest.raises(cu.BufferExportedError, match=message):
                world.work.fill_async(1, world.side)
            with pytest.raises(cu.BufferExportedError, match=message):
                world.work[4:].lend(world.side).__enter__()
            with cu.ordering("unchecked"), pytest.raises(cu.BufferExportedError):
                world.work.fill_async(1, world.side)
            world.work[8:].fill_async(1, world.side)
            world.work[:8].fill_async(2, world.main)  # ordered with the loan: the same stream
            with world.work[:8].lend(world.main):
                pass
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        world.main.wait(world.side)


def test_what_comes_last_in_the_loan_counts(world):
    """A wait for an event that was recorded inside a loan orders nothing after the loan's end."""
    with world.graph.capture(world.main):
        with world.work.lend(world.main):
            middle = world.main.record()
        world.side.wait(middle)
        with pytest.raises(cu.BufferBorrowedError, match="written by lend"):
            world.work.fill_async(1, world.side)
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        world.main.wait(world.side)


def test_readers_share(world):
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        with world.work.lend(world.main, readonly=True):
            world.result.copy_from_async(world.work, world.side)
            with world.work.lend(world.side, readonly=True):
                pass
            with pytest.raises(cu.BufferExportedError):
                world.work.fill_async(1, world.side)
        world.main.wait(world.side)


def test_the_policy_wait_orders_a_loan(world):
    with cu.ordering("wait"), world.graph.capture(world.main):
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        with world.work.lend(world.main):
            pass
    ((first, second),) = world.graph.edges
    assert (first.stream, second.stream) == (world.side, world.main)


def test_the_graph_holds_what_was_lent(world):
    with world.graph.capture(world.main):
        with world.work.lend(world.main):
            with pytest.raises(cu.OwnershipError):
                world.work.close()
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it"):
        world.work.close()
    world.graph.close()
    world.work.close()


def test_a_blocking_stream(world, fill):
    stream = cu.Stream(blocking=True)
    with world.graph.capture(stream):
        with world.result.lend(stream) as address:
            fill(address, ONE, 16, stream)
    world.graph.instantiate().launch(stream).wait()
    assert list(world.result) == [1] * 16
    with world.result.lend(stream):  # a loan outside of the capture
        pass
    stream.synchronize()


# ---- arrays of other libraries ----


def test_dlpack(world, fill):
    with world.graph.capture(world.main):
        consumer = Consumer(world.out.__dlpack__(stream=world.main.handle, max_version=(1, 0)))
        fill(consumer.tensor.data, ONE, 16, world.main)
        with pytest.raises(cu.CaptureError, match="and this call cannot be captured"):
            world.main.synchronize()
        consumer.end()
        world.result.copy_from_async(world.out, world.main)
    launched(world)
    assert list(world.result) == [1] * 16
    assert [node.operation for node in world.graph.nodes] == ["lend", "copy_from_async"]


def test_an_array_that_ends_with_the_block(world):
    """An array is dropped just before the block ends.

    Dropping the array only sets a flag. The end of the block checks this flag first.
    """
    with world.graph.capture(world.main):
        consumer = Consumer(world.out.__dlpack__(stream=world.main.handle, max_version=(1, 0)))
        consumer.end()
    assert not world.out.borrowed
    wrong = cu.Graph()
    capture = wrong.capture(world.main)
    capture.__enter__()
    world.side.wait(world.main)
    consumer = Consumer(world.out.__dlpack__(stream=world.side.handle, max_version=(1, 0)))
    world.main.wait(world.side)
    consumer.end()  # nobody knows whether work was queued on `side` since the wait
    with pytest.raises(cu.CaptureError, match="is not joined again"):
        capture.__exit__(None, None, None)
    assert not world.out.borrowed


def test_an_array_that_outlives_the_capture_is_a_loan(world, fill):
    """An array that outlives the capture keeps the loan: the library still has the address."""
    with world.graph.capture(world.main):
        capsule = world.out.lend(world.main).__dlpack__(
            stream=world.main.handle, max_version=(1, 0)
        )
        consumer = Consumer(capsule)
        fill(consumer.tensor.data, ONE, 16, world.main)
        world.result.copy_from_async(world.out, world.main)
    with pytest.raises(cu.BufferExportedError, match=r"it is lent to Stream .*test_loans.py"):
        world.out.fill_async(1, world.side)
    assert "lent" in world.out.explain()
    step = world.graph.instantiate()
    step.launch(world.main)  # allowed on the borrower's stream
    with pytest.raises(cu.BufferExportedError):
        step.launch(world.side)
    consumer.end()
    world.main.synchronize()
    step.launch(world.side).wait()
    assert list(world.result) == [1] * 16
    world.out.fill_async(1, world.side)


def test_the_cuda_array_interface(world, fill):
    with world.graph.capture(world.main):
        loan = world.out.lend(world.main)
        interface = loan.__cuda_array_interface__
        assert interface["stream"] == world.main.handle
        fill(interface["data"][0], ONE, 16, world.main)
        del loan
        gc.collect()
        world.side.wait(world.main)
        world.result.copy_from_async(world.out, world.side)
        world.main.wait(world.side)
    launched(world)
    assert list(world.result) == [1] * 16


def test_a_block_that_outlives_the_capture(world):
    loan = world.out.lend(world.main)
    with world.graph.capture(world.main):
        loan.__enter__()
    with pytest.raises(cu.BufferExportedError):
        world.out.fill_async(1, world.side)
    loan.__exit__(None, None, None)
    with pytest.raises(cu.BufferBorrowedError, match="written by lend"):
        world.out.fill_async(1, world.side)
    world.side.wait(world.main)
    world.out.fill_async(1, world.side)


def test_a_loan_that_goes_on_waits_for_other_users(world):
    """A loan that outlives its capture waits for other users of the memory.

    The borrower can use the memory at once, and nothing orders the graph with these users.
    """
    world.out.fill_async(1, world.side)
    world.result.copy_from_async(world.work, world.side)
    loan, empty = world.out.lend(world.main), world.work[:0].lend(world.main)
    with world.graph.capture(world.main):
        loan.__enter__()
        empty.__enter__()
    assert world.out.borrowed
    world.main.synchronize()
    assert not world.out.borrowed
    loan.__exit__(None, None, None)
    empty.__exit__(None, None, None)
    world.main.synchronize()


def test_a_loan_that_goes_on_waits_for_a_dropped_stream(world):
    stream, loan = cu.Stream(), world.out.lend(world.main)
    world.out.fill_async(1, stream)
    with world.graph.capture(world.main):
        loan.__enter__()
        world.work.fill_async(1, world.main)
        del stream
    world.main.synchronize()
    assert not world.out.borrowed
    loan.__exit__(None, None, None)
    world.main.synchronize()


def test_what_was_queued_before_the_capture_ends_counts(world):
    """A loan that outlives its capture becomes a node for the work that the borrower has queued."""
    loan = world.work.lend(world.main)
    with world.graph.capture(world.main):
        loan.__enter__()
        world.out.fill_async(1, world.main)  # the borrower may queue more work after this
    node = world.graph.nodes[1]
    with pytest.raises(cu.BufferBorrowedError, match="written by lend"):
        world.graph.add_fill(world.work, 2, after=[node])
    world.graph.add_fill(world.out, 2, after=[node])
    loan.__exit__(None, None, None)


def test_a_loan_from_before_the_capture(world):
    loan = world.out.lend(world.main)
    with loan:
        with world.graph.capture(world.main):
            with pytest.raises(cu.CaptureError, match="was lent before the capture"):
                getattr(loan, "__cuda_array_interface__")  # noqa: B009
            with world.out.lend(world.main):  # another loan, begun in the capture
                pass
            world.work.fill_async(1, world.main)
    assert len(world.graph.nodes) == 2
    world.main.synchronize()
    world.out.fill_async(1, world.side)


def test_a_loan_that_could_not_end_is_lent_on_or_taken_back(world):
    """A loan that could not end in a capture ends at a later synchronization.

    It does not end if the memory was lent or taken back before that.
    """
    loans = [world.out.lend(world.main), world.work.lend(world.main)]
    for loan in loans:
        loan.__enter__()
    with world.graph.capture(world.main):
        for loan in loans:
            with pytest.raises(cu.CaptureError):
                loan.__exit__(None, None, None)
        world.result.fill_async(1, world.main)
    consumer = Consumer(loans[0].__dlpack__(stream=world.main.handle, max_version=(1, 0)))
    with loans[1].back():
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        cu.Stream().synchronize()
        world.work.fill_async(1, world.side)  # allowed: `main` has no newer work on it
        with pytest.raises(cu.BufferExportedError):
            world.out.fill_async(1, world.side)
    consumer.end()
    world.side.wait(world.main)
    world.out.fill_async(1, world.side)


def test_a_loan_is_not_taken_back(world):
    with world.graph.capture(world.main):
        loan = world.out.lend(world.main)
        with loan:
            with pytest.raises(cu.CaptureError, match="cannot be captured"):
                loan.back().__enter__()
    assert len(world.graph.nodes) == 1


def test_loans_to_other_streams_are_for_real(world, gate):
    free = cu.Stream()
    gate.hold(free)
    with world.graph.capture(world.main):
        with world.out.lend(free):
            with pytest.raises(cu.BufferExportedError):
                world.out.fill_async(1, world.side)
            world.out.fill_async(1, world.main)  # this fill runs only when the graph is launched
        assert world.out.borrowed
    gate.open()
    free.synchronize()
    with world.work.lend(None):
        pass


# ---- blocks that end badly ----


def usable(world):
    for buffer in (world.work, world.out):
        buffer.fill_async(1, world.main)
        buffer.fill_async(1, world.main).wait()
        buffer.close()


def test_an_exception(world):
    def capture():
        with world.graph.capture(world.main), world.work.lend(world.main):
            raise KeyError

    with pytest.raises(KeyError):
        capture()
    usable(world)


def test_a_generator(world):
    def steps():
        with world.graph.capture(world.main), world.work.lend(world.main):
            yield

    running = steps()
    next(running)
    del running
    gc.collect()
    usable(world)


def test_a_capture_that_is_abandoned(world):
    loan = world.work.lend(world.main)
    world.graph.capture(world.main).__enter__()
    gc.collect()
    capture = cu.Graph().capture(world.main)
    capture.__enter__()
    loan.__enter__()
    del capture
    gc.collect()
    with pytest.raises(cu.BufferExportedError):  # the loan's block goes on
        world.work.fill_async(1, world.side)
    loan.__exit__(None, None, None)
    usable(world)


def test_a_loan_that_is_abandoned(world):
    with world.graph.capture(world.main):
        assert world.work.lend(world.main).__cuda_array_interface__
        gc.collect()
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        world.main.wait(world.side)
        with pytest.warns(RuntimeWarning, match="a loan died inside its block"):
            world.out.lend(world.main).__enter__()
        world.out.fill_async(1, world.main)
    world.graph.close()
    usable(world)


def test_buffers_that_cannot_be_lent(world):
    world.work.close()
    closed = cu.DeviceBuffer(4)
    with world.graph.capture(world.main):
        loan = closed.lend(world.main)
        closed.close()
        with pytest.raises(cu.BufferClosedError):
            loan.__enter__()
        with pytest.raises(cu.BufferClosedError):
            world.work.lend(world.main)
        with cu.DeviceBuffer(0).lend(world.main):
            pass
    assert len(world.graph.nodes) == 1
    assert world.graph.instantiate().launch(world.main).wait() is None


def test_a_closed_capture_in_another_thread(world):
    """A loan ends in one thread, while or after another thread ends the capture."""
    for _ in range(30):
        graph = cu.Graph()
        capture = graph.capture(world.main)
        capture.__enter__()
        loan = world.out.lend(world.main)
        loan.__enter__()
        start = threading.Barrier(2)

        def end(capture=capture, start=start):
            start.wait()
            capture.__exit__(None, None, None)

        thread = threading.Thread(target=end)
        thread.start()
        start.wait()
        loan.__exit__(None, None, None)
        thread.join()
        world.main.synchronize()
        world.out.fill_async(1, world.side).wait()
        assert len(graph.nodes) == 1


def test_loans_of_many_threads(world):
    parts = world.work.chunks(4)

    def lend(part):
        for _ in range(50):
            with part.lend(world.main):
                pass

    with world.graph.capture(world.main):
        threads = [threading.Thread(target=lend, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(world.graph.nodes) == 200
    world.work.fill_async(1, world.main).wait()


# ---- beside nodes that were added without a capture ----


def test_nothing_is_ordered_after_a_loan_alone(world, fill):
    graph = world.graph
    with graph.capture(world.main):
        with world.work.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
        world.result.copy_from_async(world.work, world.main)
    lend, copy = graph.nodes
    message = r"lend at .* stands for what another library has captured.*captured after it"
    with pytest.raises(cu.CaptureError, match=message):
        graph.add_fill(world.work, 2, after=[lend])
    with pytest.raises(cu.CaptureError, match=message):
        graph.capture(world.main, after=[copy, lend]).__enter__()
    world.out.fill_async(1, world.main).wait()
    with pytest.raises(cu.BufferBorrowedError, match="lend"):
        graph.add_fill(world.work, 2)
    graph.add_fill(world.work, 2, after=[copy])
    launched(world)
    assert list(world.result) == [1] * 16


def test_a_loan_cannot_be_changed(world, fill):
    graphs = []
    for value in (ONE, 0):
        graph = cu.Graph()
        with graph.capture(world.main):
            world.work.fill_async(3, world.main)
            with world.work[:8].lend(world.main) as address:
                fill(address, value, 8, world.main)
            world.result.copy_from_async(world.work, world.main)
        graphs.append(graph)
    step = graphs[0].instantiate()
    with pytest.raises(cu.CaptureError, match="cannot be changed: only launches"):
        step[1].enabled = False
    with pytest.raises(cu.CaptureError, match="cannot be changed: only launches"):
        step[1].set(value=1)
    step[0].set(value=4)
    step.launch(world.main).wait()
    assert list(world.result) == [1] * 8 + [4] * 8
    step[0].enabled = False
    step[2].enabled = False
    world.result[:] = 7
    step.launch(world.main).wait()
    assert list(world.result) == [7] * 16
    step[0].enabled = step[2].enabled = True
    step.update(graphs[1])
    step.launch(world.main).wait()
    assert list(world.result) == [0] * 8 + [3] * 8


def test_a_loan_in_a_body(world, fill):
    if cu.driver_info().version < (12, 4):
        pytest.skip("the driver has no conditions")
    graph = world.graph
    outside = graph.add_fill(world.out, 1)
    node, body = graph.add_if(graph.condition(1), after=[])
    with body.capture(world.main):
        with pytest.raises(cu.BufferBorrowedError, match="written by add_fill at"):
            world.out.lend(world.main).__enter__()
        with world.work.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
            world.side.wait(world.main)
            with pytest.raises(cu.BufferExportedError, match="is lent to Stream"):
                world.work.fill_async(1, world.side)
            world.main.wait(world.side)
        world.side.wait(world.main)
        world.work[:8].fill_async(2, world.side)
        world.main.wait(world.side)
    with pytest.raises(cu.BufferBorrowedError, match=r"(read|written) by"):
        graph.add_copy(world.result, world.work, after=[outside])
    graph.add_copy(world.result, world.work, after=[node])
    assert [each.operation for each in node.bodies[0]] == ["lend", "fill_async"]
    with pytest.raises(cu.BufferBorrowedError, match="graph 'step' uses it"):
        world.work.close()
    launched(world)
    assert list(world.result) == [2] * 8 + [1] * 8


def test_a_loan_in_a_graph_that_is_a_node(world, fill):
    inner = cu.Graph(name="inner")
    with inner.capture(world.main):
        with world.work.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
    node = world.graph.add_graph(inner)
    inner.close()
    assert node.writes == (world.work,)
    with pytest.raises(cu.BufferBorrowedError, match=r"lend at .* in graph 'inner'"):
        world.graph.add_copy(world.result, world.work)
    world.graph.add_copy(world.result, world.work, after=[node])
    launched(world)
    assert list(world.result) == [1] * 16


class Cycle:
    """A reference cycle: only the garbage collector ends what it keeps."""

    def __init__(self, *kept):
        self.kept, self.me = kept, self


def test_the_collector_ends_a_capture_with_a_loan(world):
    loan = world.work.lend(world.main)
    capture = world.graph.capture(world.main)
    capture.__enter__()
    world.side.wait(world.main)
    token = world.out.fill_async(1, world.side)
    loan.__enter__()
    Cycle(capture, token, world.graph)
    world.graph = None
    del capture, token
    gc.collect()
    with pytest.raises(cu.BufferExportedError):  # the loan's block goes on
        world.work.fill_async(1, world.side)
    loan.__exit__(None, None, None)
    usable(world)


def test_a_node_that_begins_within_a_loan_is_not_ordered_with_all_of_it(world, fill):
    with world.graph.capture(world.main):
        with world.work.lend(world.main) as address:
            fill(address, 0, 16, world.main)
            world.side.wait(world.main)
            world.out.fill_async(1, world.side)
            fill(address, ONE, 16, world.main)
        world.main.wait(world.side)
        world.result.copy_from_async(world.out, world.main)
    step = world.graph.instantiate()
    with pytest.raises(cu.BufferBorrowedError, match="written by lend at"):
        step[1].set(target=world.work)
    step[2].set(source=world.work)  # allowed, because this node is on the stream of the loan
    step.launch(world.main).wait()
    assert list(world.result) == [1] * 16


def test_a_node_that_begins_after_a_loan_is_ordered_with_it(world, fill):
    with world.graph.capture(world.main):
        with world.work.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        world.main.wait(world.side)
        world.result.copy_from_async(world.work, world.main)
    step = world.graph.instantiate()
    step[1].set(target=world.work, value=3)
    step.launch(world.main).wait()
    assert list(world.result) == [3] * 16


def test_what_comes_after_the_end_of_a_loan_is_ordered_with_it(world, fill):
    with world.graph.capture(world.main):
        with world.work.lend(world.main) as address:
            fill(address, ONE, 16, world.main)
            world.side.wait(world.main)  # `side` waits for a point inside the loan
            world.frames.fill_async(3, world.side)
        world.out.fill_async(1, world.main)
        world.side.wait(world.main)
        world.out.fill_async(2, world.side)
        world.main.wait(world.side)
    step = world.graph.instantiate()
    within, after = step.nodes[1], step.nodes[3]
    with pytest.raises(cu.BufferBorrowedError, match="written by lend at"):
        step[within].set(target=world.work)
    step[after].set(target=world.work, value=3)
    step.launch(world.main).wait()
    world.result.copy_from(world.work)
    assert list(world.result) == [3] * 16


def test_late_work_of_a_borrower_on_another_stream_is_not_joined(world, fill):
    loan = world.work.lend(world.side)

    def capture():
        with world.graph.capture(world.main):
            world.side.wait(world.main)
            address = loan.__enter__()
            fill(address, ONE, 16, world.side)
            world.main.wait(world.side)
            fill(address, ONE, 16, world.side)

    with pytest.raises(cu.CaptureError, match=r"by lend at .*test_loans.py:\d+, is not joined"):
        capture()
    loan.__exit__(None, None, None)
    world.main.wait(world.side)
    usable(world)


def test_a_loan_on_another_stream_may_outlive_the_capture(world, fill):
    loan = world.work.lend(world.side)
    with world.graph.capture(world.main):
        world.side.wait(world.main)
        fill(loan.__enter__(), ONE, 16, world.side)
        world.main.wait(world.side)
    loan.__exit__(None, None, None)
    world.main.wait(world.side)
    launched(world)
    world.result.copy_from(world.work)
    assert list(world.result) == [1] * 16
