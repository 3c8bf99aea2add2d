"""Buffers with a capacity: they grow and shrink, and keep their address."""

import ctypes
import gc
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

software = pytest.mark.cuda_software
NOTHING = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 buffer) { ret; }
"""
GRANULE = 2 << 20
PIECE = 64 << 20


@pytest.fixture(autouse=True)
def supported(driver):
    if not cu.Device(0).attribute("virtual_memory_management_supported"):
        pytest.skip("needs virtual memory management")


def growing(count, capacity=4 * GRANULE, **options):
    return cu.DeviceBuffer(count, capacity=capacity, **options)


def mapped():
    """Number of bytes that are mapped in all live growing buffers."""
    return sum(buffer.nbytes for buffer in cu.live_buffers() if buffer.kind == "growing")


def test_it_grows_and_keeps_items_and_address():
    with cu.DeviceBuffer(4, "f4", capacity=GRANULE, name="log") as buffer:
        address = buffer.address
        buffer.fill(1)
        for count in (5, GRANULE // 4 + 1, GRANULE):
            buffer.grow(count)
            assert (buffer.count, len(buffer), buffer.nbytes) == (count, count, 4 * count)
            assert buffer.shape == (count,)
            assert (buffer.address, buffer.capacity) == (address, GRANULE)
        buffer[4:].fill(2)
        items = buffer.to_numpy()
        assert (items[:4] == 1).all()
        assert (items[4:] == 2).all()
        assert repr(buffer) == f"<DeviceBuffer 'log' {GRANULE} x float32>"


def test_memory_is_mapped_as_it_is_needed():
    buffer = growing(0)
    assert mapped() == 0
    buffer.grow(1)
    assert mapped() == GRANULE
    buffer.grow(GRANULE)
    assert mapped() == GRANULE
    buffer.grow(GRANULE + 1)
    assert mapped() == 2 * GRANULE
    buffer.shrink(GRANULE)
    assert mapped() == GRANULE
    buffer.shrink(0)
    assert mapped() == 0
    buffer.grow(1)
    buffer.fill(3)
    assert list(buffer.to_numpy()) == [3]
    buffer.close()


def test_only_whole_pieces_go_back():
    with growing(2 * PIECE, 2 * PIECE) as buffer:
        buffer.shrink(PIECE + 1)
        assert mapped() == 2 * PIECE
        buffer.shrink(PIECE)
        assert mapped() == PIECE
        buffer.grow(PIECE + GRANULE)  # now the second piece is a small one
        buffer.shrink(PIECE - 1)
        assert mapped() == PIECE


def test_work_goes_on_while_it_grows(stream, gate):
    with growing(8) as buffer:
        gate.hold(stream)
        token = buffer.fill_async(7, stream)
        buffer.grow(GRANULE)
        assert not token.done
        assert buffer[:8].borrowed
        assert not buffer[8:].borrowed
        buffer[8:].fill(5)  # runs on another stream
        gate.open()
        stream.synchronize()
        assert set(buffer.to_numpy()[:8]) == {7}


def test_items_in_use_do_not_go(stream, gate):
    with growing(16) as buffer:
        gate.hold(stream)
        buffer[8:].fill_async(7, stream)
        with pytest.raises(cu.BufferBorrowedError, match=r"cannot shrink .*\n.*test_growing.py"):
            buffer.shrink(15)
        assert buffer.count == 16
        gate.open()
        stream.synchronize()
        buffer.shrink(15)
        assert buffer.count == 15


def test_items_before_the_end_may_be_in_use(stream):
    with growing(16) as buffer:
        buffer[:8].fill_async(7, stream)
        assert buffer.borrowed
        buffer.shrink(8)
        stream.synchronize()
        assert list(buffer.to_numpy()) == [7] * 8


def test_parts_keep_their_items(stream):
    with growing(16) as buffer:
        buffer.fill(1)
        part = buffer[4:12]
        buffer.grow(32)
        assert (part.count, part.capacity) == (8, 8)
        buffer.shrink(12)
        assert set(part.to_numpy()) == {1}
        assert not part.closed


@pytest.mark.parametrize(
    "use",
    [
        lambda part, stream: part.fill_async(0, stream),
        lambda part, stream: part.fill(0),
        lambda part, stream: part.to_numpy(),
        lambda part, stream: part.copy_to_async(cu.LockedBuffer(8), stream),
        lambda part, stream: part.copy_from_async(np.zeros(8, "u1"), stream),
        lambda part, stream: part[2:],
        lambda part, stream: part.address,
        lambda part, stream: part.lend(stream),
        lambda part, stream: part.to("host"),
        lambda part, stream: part.take(),
    ],
)
def test_parts_of_what_is_gone(stream, use):
    with growing(16, name="log") as buffer:
        part, nothing = buffer[4:12], buffer[16:]
        buffer.shrink(11)
        words = r"DeviceBuffer 'log'\[4:12\] .* was given back by shrink\(\) at .*test_growing.py"
        with pytest.raises(cu.BufferClosedError, match=words):
            use(part, stream)
        assert part.closed
        assert not part.borrowed
        assert not nothing.closed
        nothing.fill_async(0, stream)
        buffer.grow(12)
        assert not part.closed
        part.fill(3)
        assert set(buffer[4:].to_numpy()) == {3}


def test_a_loan_that_has_not_begun(stream):
    with growing(16) as buffer:
        loan = buffer.lend(stream)
        buffer.shrink(8)
        with pytest.raises(cu.BufferClosedError, match="was given back by"), loan:
            pass


def test_a_loan_keeps_its_size(stream):
    with growing(16) as buffer:
        with buffer.lend(stream):
            buffer.grow(32)
            with pytest.raises(
                cu.BufferExportedError, match=r"it is lent to Stream .*test_growing"
            ):
                buffer.shrink(15)
            buffer.shrink(17)
            buffer.grow(32)
            with pytest.raises(cu.BufferExportedError):
                buffer[:16].fill(0)
            buffer[16:].fill(0)
        assert not buffer[16:].borrowed
        stream.synchronize()
        buffer.shrink(1)


def test_an_array_of_another_library_keeps_its_size():
    buffer = growing(16)
    capsule = buffer.__dlpack__(stream=-1)
    buffer.grow(32)
    with pytest.raises(cu.BufferExportedError, match="it is lent to work on no stream"):
        buffer.shrink(15)
    del capsule
    buffer.shrink(15)
    buffer.close()


def test_an_array_of_another_library_has_used_what_it_had(stream):
    with growing(16) as buffer:
        capsule = buffer.__dlpack__(stream=stream.handle)
        buffer.grow(32)
        del capsule
        assert buffer[:16].borrowed
        assert not buffer[16:].borrowed
        stream.synchronize()


def test_graphs_hold_their_items(stream):
    with growing(16) as buffer:
        graph = cu.Graph()
        with graph.capture(stream):
            buffer[:8].fill_async(1, stream)
        step = graph.instantiate()
        buffer.shrink(8)
        with pytest.raises(cu.BufferBorrowedError, match=r"cannot shrink .*\n.*graph"):
            buffer.shrink(7)
        buffer.grow(GRANULE)
        step.launch(stream)
        stream.synchronize()
        assert set(buffer[:8].to_numpy()) == {1}
        del step, graph
        buffer.shrink(7)


@pytest.mark.parametrize("added", [False, True])
def test_nodes_keep_their_size(stream, added):
    buffer, source, graph = growing(16), cu.DeviceBuffer.zeros(16, "u1"), cu.Graph()
    kernel = cu.Module(NOTHING)["nothing"]
    if added:
        fill = graph.add_fill(buffer, 1)
        copy = graph.add_copy(buffer, source, after=[fill])
        graph.add_launch(kernel, 1, 1, cu.read(buffer), borrows=[buffer], after=[copy])
    else:
        with graph.capture(stream):
            buffer.fill_async(1, stream)
            buffer.copy_from_async(source, stream)
            kernel.launch(1, 1, cu.read(buffer), borrows=[buffer], stream=stream)
    buffer.grow(32)
    step = graph.instantiate()
    for node in step.nodes:
        assert [each.count for each in node.writes] == [16]
    step[0].set(value=2)
    step[1].enabled = step[2].enabled = False
    step[2].set(grid=2)
    step[0].enabled = False
    step[0].enabled = True
    buffer[16:].fill(3)
    step.launch(stream).wait()
    assert list(buffer.to_numpy()) == 16 * [2] + 16 * [3]
    buffer.shrink(16)
    del step, graph


def test_changed_nodes_keep_their_size(stream):
    buffer, graph = growing(16), cu.Graph()
    graph.add_fill(cu.DeviceBuffer(8), 1)
    step = graph.instantiate()
    step[0].set(target=buffer)
    buffer.grow(32)
    assert [each.count for each in step.nodes[0].writes] == [16]
    buffer.shrink(16)
    del step, graph


def test_a_graph_knows_the_policy_of_a_buffer_that_has_grown(stream):
    buffer, graph, other = growing(16), cu.Graph(), cu.Stream()
    buffer.ordering = "wait"
    with graph.capture(stream):
        buffer.fill_async(1, stream)
    step = graph.instantiate()
    buffer.grow(32)
    buffer.fill_async(2, other)
    step.launch(stream).wait()  # waits for the fill
    del step, graph


def test_it_grows_during_a_capture(stream):
    with growing(16) as buffer:
        graph = cu.Graph()
        with graph.capture(stream):
            buffer.fill_async(1, stream)
            buffer.grow(2 * GRANULE)
            buffer[16:].fill_async(2, stream)
        graph.instantiate().launch(stream)
        stream.synchronize()
        items = buffer.to_numpy()
        assert set(items[:16]) == {1}
        assert set(items[16:]) == {2}
        del graph


def test_taking_it():
    buffer = growing(16, name="log")
    taken = buffer.take()
    taken.grow(GRANULE)
    assert taken.capacity == 4 * GRANULE
    taken.shrink(4)
    with pytest.raises(cu.BufferClosedError, match="was moved at"):
        buffer.grow(17)
    taken.close()
    with pytest.raises(cu.BufferClosedError, match="was closed at"):
        taken.grow(17)
    with pytest.raises(cu.BufferClosedError):
        _ = taken.capacity


def test_copies_have_a_fixed_size(stream):
    with growing(16) as buffer:
        buffer.fill(9)
        locked = buffer.to("host")
        other = buffer.to(cu.Device(0), copy=True)
        assert buffer.to(cu.Device(0)) is buffer
        buffer.grow(32)
        assert (locked.count, other.count, other.capacity) == (16, 16, 16)
        buffer[16:].copy_from(other)
        assert set(buffer.to_numpy()) == {9}


def test_it_cannot_be_given_away():
    with growing(16) as buffer, pytest.raises(ValueError, match="memory that grows, which it"):
        buffer.into_raw()


def test_it_cannot_be_shared_with_other_processes(stream):
    with growing(16) as buffer, pytest.raises(ValueError, match="memory that grows, for which"):
        buffer.share(stream)


def test_an_array_over_its_address(stream):
    buffer = growing(16)
    other = cu.DeviceBuffer.from_address(buffer.address, 16, owner=buffer)
    other.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="cannot shrink"):
        buffer.shrink(8)
    stream.synchronize()
    buffer.shrink(8)
    with pytest.raises(cu.BufferClosedError, match="was given back by shrink"):
        other.fill_async(1, stream)
    buffer.grow(16)
    other.fill_async(1, stream)
    stream.synchronize()
    del other
    buffer.close()


WRONG = {
    "a capacity below the count": (lambda: growing(5, 4), "capacity is 4, and must be at least"),
    "no capacity": (lambda: growing(0, 0), "capacity is 0, and must be at least 1"),
    "a negative capacity": (lambda: growing(0, -1), "capacity must not be negative"),
    "a huge capacity": (lambda: growing(0, 1 << 63), "no memory has so many 1-byte items"),
    "devices without a capacity": (
        lambda: cu.DeviceBuffer(1, accessible_by=cu.Device(0)),
        "is for memory with a capacity=",
    ),
    "a fixed size": (lambda: cu.DeviceBuffer(1).grow(2), "its size is fixed"),
    "a fixed size, shrunk": (lambda: cu.DeviceBuffer(1).shrink(0), "its size is fixed"),
    "beyond the capacity": (lambda: growing(1, 8).grow(9), "its capacity is 8"),
    "growing to less": (lambda: growing(5).grow(4), r"To give memory back: shrink\(4\)"),
    "shrinking to more": (lambda: growing(5).shrink(6), r"To make it longer: grow\(6\)"),
    "shrinking below 0": (lambda: growing(5).shrink(-1), "must not be negative"),
    "a part": (lambda: growing(5)[:2].grow(3), "it is a part; grow the whole"),
    "a part, shrunk": (lambda: growing(5)[:2].shrink(1), "it is a part; shrink the whole"),
    "a shape": (lambda: growing(4).reshape(2, 2).grow(8), r"it has the shape \(2, 2\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_values(case):
    call, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        call()


def test_on_a_stream(stream):
    with pytest.raises(ValueError, match="leave out stream="):
        growing(1, stream=stream)
    with stream:
        buffer = growing(1)  # the current stream does not matter for growing buffers
    buffer.fill(1)
    buffer.close()


@pytest.mark.parametrize("given", [1, "cuda", [1], [None], 0])
def test_devices_that_are_none(given):
    with pytest.raises(TypeError, match="accessible_by= takes devices"):
        growing(1, accessible_by=given)


@pytest.mark.parametrize("capacity", ["1", 1.5, [3]])
def test_capacities_that_are_no_numbers(capacity):
    with pytest.raises(TypeError, match="capacity"):
        growing(1, capacity)


def test_no_memory_is_left(driver):
    if driver == "cuda":
        pytest.skip("a GPU has too much memory")
    cu.reap()
    rest = cu.DeviceBuffer(900 << 20, pooled=False)  # the device has 1 GiB
    with growing(0, 4 * PIECE) as buffer:
        buffer.grow(PIECE)
        with pytest.raises(cu.CudaOutOfMemoryError, match=f"{2 * PIECE} bytes were requested"):
            buffer.grow(3 * PIECE)
        assert (buffer.count, mapped()) == (PIECE, PIECE)
        buffer.fill(1)
    rest.close()


@software
def test_a_program_makes_room():
    cu.reap()
    pools = cu.Device(0).context.pools
    hoard = [cu.DeviceBuffer(1000 << 20, pooled=False)]

    def make_room(nbytes, context):
        assert nbytes == 2 * PIECE
        with pytest.raises(cu.BufferBorrowedError, match="is just changing its size"):
            buffer.close()
        hoard.pop().close()
        return True

    buffer = growing(0, 2 * PIECE)
    pools.on_out_of_memory = make_room
    try:
        buffer.grow(2 * PIECE)
    finally:
        pools.on_out_of_memory = None
    assert buffer.count == 2 * PIECE
    buffer.close()


@software
def test_it_grows_while_memory_for_its_copy_is_obtained():
    buffer = growing(PIECE, 2 * PIECE)
    buffer.fill(3)
    pools = cu.Device(0).context.pools
    hoard = [cu.DeviceBuffer(950 << 20, pooled=False)]

    def make_room(nbytes, context):
        hoard.pop().close()
        buffer.grow(PIECE + 1)
        return True

    pools.on_out_of_memory = make_room
    try:
        copied = buffer.to(buffer.device, copy=True)
    finally:
        pools.on_out_of_memory = None
    assert (copied.count, buffer.count) == (PIECE, PIECE + 1)
    assert (np.asarray(copied.to("host")) == 3).all()
    copied.close()
    buffer.close()


def test_a_busy_one_dies(stream, gate):
    buffer = growing(GRANULE)
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    del buffer
    gc.collect()
    assert not token.done
    gate.open()
    stream.synchronize()
    del token
    cu.reap()
    assert mapped() == 0


def test_a_busy_one_is_not_closed(stream, gate):
    buffer = growing(GRANULE)
    gate.hold(stream)
    buffer[:1].fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close"):
        buffer.close()
    buffer.grow(2 * GRANULE)
    gate.open()
    stream.synchronize()
    buffer.close()
    buffer.close()


FAILING = {
    "create": ("cuMemCreate", 2),
    "map": ("cuMemMap", 2),
    "release": ("cuMemRelease", 2),
    "access": ("cuMemSetAccess", 1),
}


@software
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", FAILING)
def test_a_failing_call_leaves_it_as_before(step, nth):
    function, calls = FAILING[step]
    with growing(8, 4 * PIECE) as buffer:
        buffer.fill(1)
        testing.configure(f"fault={function}:{nth}:999")
        if nth > calls:
            buffer.grow(2 * PIECE)
        else:
            with pytest.raises(cu.CudaError, match=function):
                buffer.grow(2 * PIECE)
            assert (buffer.count, mapped()) == (8, GRANULE)
            assert set(buffer.to_numpy()) == {1}
        testing.configure("fault=none")
        buffer.grow(2 * PIECE)
        buffer[8:].fill(2)


@software
@pytest.mark.parametrize("function", ["cuMemAddressReserve", "cuMemGetAllocationGranularity"])
def test_no_addresses(function):
    testing.configure(f"fault={function}:1:999")
    with pytest.raises(cu.CudaError, match=function):
        growing(8)


@software
def test_unmapping_fails():
    with growing(2 * PIECE, 2 * PIECE) as buffer:
        buffer.fill(1)
        testing.configure("fault=cuMemUnmap:1:999")
        with pytest.raises(cu.CudaError, match="cuMemUnmap"):
            buffer.shrink(0)
        assert (buffer.count, mapped()) == (2 * PIECE, 2 * PIECE)
        assert set(buffer[-8:].to_numpy()) == {1}
        testing.configure("fault=cuMemUnmap:2:999")
        with pytest.raises(cu.CudaError, match="cuMemUnmap"):
            buffer.shrink(0)
        assert (buffer.count, mapped()) == (0, PIECE)
        buffer.grow(8)
        buffer.fill(3)


@software
@pytest.mark.parametrize("call", ["cuMemUnmap:1", "cuMemUnmap:2", "cuMemAddressFree:1"])
def test_closing_fails(call):
    buffer = growing(2 * PIECE, 2 * PIECE)
    testing.configure(f"fault={call}:999")
    with pytest.raises(cu.CudaError, match=call[:-2]):
        buffer.close()
    assert buffer.closed is (call != "cuMemUnmap:1")
    buffer.close()
    cu.reap()


@software
def test_a_finalizer_shrinks_what_is_just_filled(stream):
    """A finalizer shrinks a buffer between the check of a fill and the fill itself.

    A garbage collection runs the finalizer.
    """
    buffer = growing(2 * GRANULE)

    class Shrinks:
        def __del__(self):
            buffer.shrink(GRANULE)

    for _ in range(3):
        buffer.grow(2 * GRANULE)
        Shrinks().me = None
        with suppress(cu.BufferClosedError):
            buffer.fill_async(1, stream)
        stream.synchronize()
    buffer.close()


def test_threads(stream):
    """Several threads grow, shrink and fill a buffer.

    Each fill is done or refused, and none faults.
    """
    buffer = growing(8, 64 * GRANULE)
    stop, refused, failures = threading.Event(), [], []

    def fill():
        mine = cu.Stream()
        while not stop.is_set():
            try:
                buffer.fill_async(1, mine)
            except cu.OwnershipError:
                refused.append(1)
            except BaseException as error:
                failures.append(error)
                return
            mine.synchronize()
        mine.close()

    def resize(seed):
        random = np.random.default_rng(seed)
        for _ in range(40):
            count = int(random.integers(1, 32 * GRANULE))
            try:
                buffer.grow(count)
            except ValueError:
                with suppress(ValueError, cu.BufferBorrowedError):
                    buffer.shrink(count)
            except BaseException as error:
                failures.append(error)
                return

    filling = threading.Thread(target=fill)
    filling.start()
    resizing = [threading.Thread(target=resize, args=(seed,)) for seed in range(2)]
    for thread in resizing:
        thread.start()
    for thread in resizing:
        thread.join()
    stop.set()
    filling.join()
    assert failures == []
    cu.Device(0).synchronize()
    buffer.grow(33 * GRANULE)
    buffer.fill(1)
    assert mapped() >= 33 * GRANULE
    buffer.close()


def test_threads_close_it_while_it_grows():
    for _ in range(20):
        buffer = growing(8, 64 * GRANULE)
        errors = []

        def grow(buffer=buffer, errors=errors):
            try:
                for count in range(GRANULE, 32 * GRANULE, GRANULE):
                    buffer.grow(count)
            except cu.BufferClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=grow)
        thread.start()
        buffer.close()
        thread.join()
        assert buffer.closed
        assert mapped() == 0


@software
def test_many_one_after_the_other(driver):
    """The software driver keeps freed addresses unusable for a while, but only so many of them."""
    library = ctypes.CDLL(cu.driver_info().path)
    address, nbytes = ctypes.c_ulonglong(), ctypes.c_size_t(GRANULE)
    cu.Device(0).synchronize()
    before = len(Path("/proc/self/maps").read_text().splitlines())
    for _ in range(3000):
        assert (
            library.cuMemAddressReserve(
                ctypes.byref(address), nbytes, ctypes.c_size_t(0), ctypes.c_ulonglong(0), 0
            )
            == 0
        )
        assert library.cuMemAddressFree(address, nbytes) == 0
    assert len(Path("/proc/self/maps").read_text().splitlines()) - before < 1500


def test_the_memory_report_says_what_is_mapped():
    with growing(GRANULE + 1, 64 * PIECE, name="log"):
        [entry] = [each for each in cu.live_buffers() if each.kind == "growing"]
        assert (entry.nbytes, entry.label) == (2 * GRANULE, "DeviceBuffer 'log'")


def test_other_libraries_get_the_shape(stream):
    image = growing(12, dtype="f4").reshape(3, 4)
    with stream:
        found = cu.from_dlpack(image, stream)
    assert found.shape == (3, 4)
    del found
    stream.synchronize()
