"""`pools.on_out_of_memory`: a function of the program that makes room when an allocation fails."""

import threading

import pytest

import cudadrv as cu

MIB = 1 << 20

pytestmark = pytest.mark.cuda_software


@pytest.fixture
def on_out_of_memory(pools):
    """A function that sets `on_out_of_memory`, which is None again after the test."""

    def set_it(function):
        pools.on_out_of_memory = function

    yield set_it
    pools.on_out_of_memory = None


class Room:
    """Memory that fills the device. Called as `on_out_of_memory`, it releases the memory."""

    def __init__(self, *answers):
        self.calls, self.answers = [], list(answers)
        free = cu.Device(0).memory_info()[0]
        self.held = [cu.DeviceBuffer(free - 4 * MIB, pooled=False)]

    def __call__(self, nbytes, context):
        self.calls.append((nbytes, context))
        answer = self.answers.pop(0) if self.answers else False
        if answer:
            self.held.clear()
        return answer


@pytest.mark.parametrize("stream_ordered", [False, True])
def test_the_allocation_is_tried_again(on_out_of_memory, stream, stream_ordered):
    room = Room(True)
    on_out_of_memory(room)
    options = {"stream": stream} if stream_ordered else {}
    buffer = cu.DeviceBuffer(64 * MIB, **options)
    assert room.calls == [(64 * MIB, cu.Device(0).context)]
    buffer.fill_async(1, stream).wait()


@pytest.mark.parametrize("answer", [False, None])
def test_without_room_the_error_goes_through(on_out_of_memory, answer):
    room = Room(answer)
    on_out_of_memory(room)
    with pytest.raises(cu.CudaOutOfMemoryError, match="requested for DeviceBuffer 'big'"):
        cu.DeviceBuffer(64 * MIB, name="big")
    assert len(room.calls) == 1


def test_it_is_called_until_there_is_room_or_it_gives_up(on_out_of_memory):
    calls = []

    def spill(nbytes, context):
        calls.append(nbytes)
        return len(calls) < 3

    on_out_of_memory(spill)
    with pytest.raises(cu.CudaOutOfMemoryError):
        cu.DeviceBuffer(1 << 50)
    assert calls == [1 << 50] * 3


def test_it_is_not_called_while_cudadrv_can_free_something(on_out_of_memory):
    free = cu.Device(0).memory_info()[0]
    pools = cu.Device(0).context.pools
    former, pools.device.limit_bytes = pools.device.limit_bytes, free
    try:
        cu.DeviceBuffer(free - 4 * MIB).close()  # this memory is now in the pool
        on_out_of_memory(lambda nbytes, context: pytest.fail("called"))
        cu.DeviceBuffer(64 * MIB).close()
    finally:
        pools.device.limit_bytes = former


@pytest.mark.parametrize("kind", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer])
def test_all_kinds_ask(on_out_of_memory, kind):
    calls = []
    on_out_of_memory(lambda nbytes, context: calls.append(nbytes))
    with pytest.raises(cu.CudaOutOfMemoryError):
        kind(1 << 55)
    assert calls == [1 << 55]


def test_what_it_raises_leaves_the_allocation(on_out_of_memory, stream):
    def spill(nbytes, context):
        raise KeyError("spill")

    on_out_of_memory(spill)
    before = len(cu.live_buffers())
    for options in ({}, {"stream": stream}):
        with pytest.raises(KeyError, match="spill"):
            cu.DeviceBuffer(1 << 50, **options)
    assert len(cu.live_buffers()) == before
    cu.DeviceBuffer(16).close()


@pytest.mark.parametrize("answer", [1, 0, "yes", [], 4096])
def test_other_answers_are_errors(on_out_of_memory, answer):
    on_out_of_memory(lambda nbytes, context: answer)
    with pytest.raises(TypeError, match="on_out_of_memory returns True to try"):
        cu.DeviceBuffer(1 << 50)


def test_its_own_allocations_do_not_call_it_again(on_out_of_memory, stream):
    inner = []

    def spill(nbytes, context):
        copy = cu.LockedBuffer(16)  # the host has memory for this
        copy.fill(1)
        with pytest.raises(cu.CudaOutOfMemoryError) as caught:
            cu.DeviceBuffer(1 << 50)
        inner.append(caught.value)
        return False

    on_out_of_memory(spill)
    for _ in range(2):
        with pytest.raises(cu.CudaOutOfMemoryError):
            cu.DeviceBuffer(1 << 50)
    assert len(inner) == 2


def test_a_program_spills_to_the_host(on_out_of_memory, stream):
    """A program moves device buffers to page-locked memory: `on_out_of_memory` is for this."""
    free = cu.Device(0).memory_info()[0]
    held = {"big": cu.DeviceBuffer(free - 4 * MIB, pooled=False)}
    held["big"][:16].fill(7)
    spilled = {}

    def spill(nbytes, context):
        if not held:
            return False
        name, buffer = held.popitem()
        spilled[name] = cu.LockedBuffer(16)
        spilled[name].copy_from(buffer[:16])
        buffer.close()
        return True

    on_out_of_memory(spill)
    work = cu.DeviceBuffer(64 * MIB)
    assert spilled["big"].to_numpy().tolist() == [7] * 16
    del work


def test_threads(on_out_of_memory):
    """Each thread calls the function for its own allocation, even while another thread runs it."""
    inside, done, asked = threading.Event(), threading.Event(), []

    def spill(nbytes, context):
        asked.append(nbytes)
        if len(asked) == 1:
            inside.set()
            done.wait(60)
        return False

    def allocate(nbytes):
        with pytest.raises(cu.CudaOutOfMemoryError):
            cu.DeviceBuffer(nbytes)

    on_out_of_memory(spill)
    thread = threading.Thread(target=allocate, args=(1 << 50,))
    thread.start()
    assert inside.wait(60)
    allocate(1 << 51)
    done.set()
    thread.join()
    assert asked == [1 << 50, 1 << 51]


def test_pools_of_the_driver_ask_too(on_out_of_memory, stream):
    calls = []
    on_out_of_memory(lambda nbytes, context: calls.append(nbytes))
    with cu.DriverPool(max_bytes=32 * MIB), pytest.raises(cu.CudaOutOfMemoryError):
        cu.DeviceBuffer(64 * MIB, stream=stream)
    assert calls == [64 * MIB]


def test_contexts_have_functions_of_their_own(on_out_of_memory):
    on_out_of_memory(lambda nbytes, context: pytest.fail("called"))
    own = cu.Context.create(cu.Device(0))
    assert own.pools.on_out_of_memory is None
    with own, pytest.raises(cu.CudaOutOfMemoryError):
        cu.DeviceBuffer(1 << 50)


def test_bad_values(pools):
    with pytest.raises(TypeError, match="on_out_of_memory is a function or None"):
        pools.on_out_of_memory = 3
    assert pools.on_out_of_memory is None
