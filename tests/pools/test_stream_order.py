"""Allocation in the order of a stream: with ``stream=``, and in ``with stream:``."""

import contextlib
import ctypes
import gc
import threading

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

CLASSES = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}
KINDS = pytest.mark.parametrize("kind", CLASSES)
ON_HOST = pytest.mark.parametrize("kind", ["locked", "unified"])
WAYS = pytest.mark.parametrize("way", ["block", "argument"])
ALLOCATIONS = ("cuMemAllocAsync", "cuMemHostAlloc", "cuMemAllocManaged", "cuMemAlloc_v2")


@pytest.fixture(params=["block", "argument"])
def allocate(request):
    """Make a buffer in the order of a stream: in a `with` block, or by the argument."""

    def allocate(kind, count, stream, **options):
        if request.param == "argument":
            return CLASSES[kind](count, stream=stream, **options)
        with stream:
            return CLASSES[kind](count, **options)

    return allocate


@pytest.fixture
def left(allocate, stream):
    """Put memory into the pool while unfinished work of `stream` still writes that memory."""

    def left(kind):
        buffer = allocate(kind, 1000, stream)
        buffer.fill_async(1, stream)
        return buffer.address

    return left


def stats_of(pools, kind):
    return getattr(pools, kind).stats


@contextlib.contextmanager
def allocations(count):
    """Check the number of driver allocations in the block. Not checked on a real driver."""
    software = cu.driver_info().is_software
    before = sum(testing.calls(name) for name in ALLOCATIONS) if software else 0
    yield
    if software:
        assert sum(testing.calls(name) for name in ALLOCATIONS) - before == count


# ---- the order of one stream ----


@KINDS
@pytest.mark.cuda_software  # a driver may block in an allocation while the gate is closed
def test_a_loop_that_never_waits_allocates_once(pools, stream, gate, allocate, kind):
    gate.hold(stream)
    before = stats_of(pools, kind)
    with allocations(1):
        for value in range(16):
            buffer = allocate(kind, 1000, stream)
            buffer.fill_async(value, stream)
            del buffer
    after = stats_of(pools, kind)
    assert (after.hits - before.hits, after.misses - before.misses) == (15, 1)
    assert (after.used_bytes, after.cached_bytes) == (before.used_bytes, 1000)
    gate.open()
    stream.synchronize()


@KINDS
def test_so_does_one_that_makes_zeros_and_arrays(pools, stream, kind):
    kept = []
    misses = stats_of(pools, kind).misses
    result = cu.LockedBuffer(3000, pooled=False)
    with stream:
        for value in range(3):
            buffer = CLASSES[kind].zeros(1000)
            buffer[:10].fill_async(value)
            del buffer
            buffer = CLASSES[kind].from_array(np.full(1000, value, "u1"))
            result[1000 * value : 1000 * value + 1000].copy_from_async(buffer)
            kept.append(buffer.address)
            del buffer
    assert len(set(kept)) == 1
    assert stats_of(pools, kind).misses == misses + 1
    stream.synchronize()
    assert (result.to_numpy() == np.repeat([0, 1, 2], 1000)).all()


@KINDS
def test_zeros_and_arrays_take_the_stream(stream, left, kind):
    address = left(kind)
    zeros = CLASSES[kind].zeros(1000, stream=stream)
    assert zeros.address == address
    assert not zeros.to_numpy().any()
    zeros.fill_async(1, stream)
    del zeros
    array = CLASSES[kind].from_array(np.full(1000, 7, "u1"), stream=stream)
    assert array.address == address
    assert (array.to_numpy() == 7).all()


@KINDS
def test_memory_of_a_stream_is_not_for_others(pools, stream, other, allocate, left, kind):
    address = left(kind)
    elsewhere = allocate(kind, 1000, other)
    elsewhere.fill_async(2, other)
    assert elsewhere.address != address
    plain = CLASSES[kind](1000)
    assert plain.address != address
    other.wait(stream)
    again = allocate(kind, 1000, other)
    again.fill_async(2, other)
    assert again.address == address
    other.synchronize()


@KINDS
@pytest.mark.parametrize("hit", [False, True])
def test_the_first_use_is_ordered_after_the_allocation(stream, other, allocate, left, kind, hit):
    if hit:
        left(kind)
    buffer = allocate(kind, 1000, stream, name="scratch")
    with pytest.raises(cu.BufferBorrowedError, match="by its allocation on Stream"):
        buffer.fill_async(1, other)
    other.wait(stream)
    buffer.fill_async(1, other)
    other.synchronize()
    assert not buffer.borrowed


@KINDS
def test_what_the_stream_waited_for_counts(stream, other, allocate, left, kind):
    """The allocation of a reused block is a write of the stream that waited for the old user.

    A third stream that is ordered only after earlier work of this stream is refused.
    """
    early = cu.LockedBuffer.zeros(4).fill_async(1, other)
    address = left(kind)
    other.wait(stream)
    buffer = allocate(kind, 1000, other)
    third = cu.Stream()
    third.wait(early)
    with pytest.raises(cu.BufferBorrowedError, match="by its allocation"):
        buffer.fill_async(2, third)
    third.wait(other)
    buffer.fill_async(2, third)
    assert buffer.address == address
    third.synchronize()


@ON_HOST
def test_the_host_waits_for_what_the_stream_did_first(stream, allocate, left, kind):
    left(kind)
    buffer = allocate(kind, 1000, stream)
    buffer.fill_async(3, stream)
    with pytest.raises(cu.BufferBorrowedError, match="by fill_async on Stream"):
        buffer[0] = 1
    stream.synchronize()
    assert buffer[0] == 3
    buffer[0] = 1


# ---- buffers that the host uses first ----


def read_block(buffer):
    with buffer.read() as array:
        assert len(array) == 1000


def write_block(buffer):
    with buffer.write() as array:
        array[:] = 9


def lent(buffer):
    with buffer.lend(None):
        pass


def shown(buffer):
    array = np.from_dlpack(buffer.lend(None, device="cpu"))
    array[0] = 1
    del array
    assert buffer.address  # this call ends the loan


def into_raw(buffer):
    cls = type(buffer)
    assert cls.from_raw(buffer.into_raw(), 1000).nbytes == 1000


FIRST = {
    "item": lambda buffer: buffer[3],
    "set item": lambda buffer: buffer.__setitem__(3, 1),
    "slice": lambda buffer: buffer.__setitem__(slice(5, 9), [1, 2, 3, 4]),
    "part": lambda buffer: buffer[100:].view("u2").__setitem__(0, 7),
    "to_numpy": lambda buffer: buffer.to_numpy(),
    "copy_from": lambda buffer: buffer.copy_from(bytes(1000)),
    "copy_to": lambda buffer: buffer.copy_to(bytearray(1000)),
    "fill": lambda buffer: buffer.fill(5),
    "fill of dates": lambda buffer: buffer.view("M8[s]").fill(np.datetime64(5, "s")),
    "read": read_block,
    "write": write_block,
    "memoryview": lambda buffer: memoryview(buffer).release(),
    "asarray": np.asarray,
    "readonly": lambda buffer: np.asarray(buffer.readonly()),
    "bytes": bytes,
    "address": lambda buffer: buffer.address,
    "lend": lent,
    "from_dlpack": shown,
    "into_raw": into_raw,
}


@ON_HOST
@pytest.mark.parametrize("way", FIRST)
@pytest.mark.cuda_software  # a driver may block in an allocation while the gate is closed
def test_a_host_that_is_first_gets_memory_that_nothing_uses(
    pools, stream, gate, allocate, left, kind, way
):
    gc.collect()
    gate.hold(stream)
    left(kind)
    buffer = allocate(kind, 1000, stream)
    before = stats_of(pools, kind)
    FIRST[way](buffer)
    gc.collect()
    del buffer
    after = stats_of(pools, kind)
    assert (after.hits - before.hits, after.misses - before.misses) == (-1, 1)
    assert after.used_bytes == before.used_bytes - 1000
    assert after.cached_bytes == (1000 if way == "into_raw" else 2000)
    gate.open()
    stream.synchronize()


@ON_HOST
@pytest.mark.parametrize("policy", ["strict", "wait", "unchecked"])
@pytest.mark.cuda_software  # a driver may block in an allocation while the gate is closed
def test_uploads_that_the_host_writes(pools, stream, gate, kind, policy):
    """Each chunk reaches its target though the host never waits.

    The fixture `driver` fails the test if there is a data race.
    """
    targets = [cu.DeviceBuffer(1000) for _ in range(6)]
    gate.hold(stream)
    with stream, cu.ordering(policy):
        for value, target in enumerate(targets):
            chunk = CLASSES[kind](1000)
            chunk[:] = value
            target.copy_from_async(chunk)
            del chunk
    gate.open()
    stream.synchronize()
    assert [set(target.to_numpy()) for target in targets] == [{value} for value in range(6)]
    assert stats_of(pools, kind).misses >= 6


@ON_HOST
@pytest.mark.parametrize("hit", [False, True])
def test_the_host_ends_the_order_of_the_allocation(stream, other, allocate, left, kind, hit):
    if hit:
        left(kind)
    buffer = allocate(kind, 1000, stream)
    buffer[:] = 1
    buffer.fill_async(2, other)
    other.synchronize()
    assert buffer[0] == 2
    stream.synchronize()


@ON_HOST
def test_the_host_prefers_what_is_free(pools, stream, allocate, kind):
    free, busy = CLASSES[kind](1000), allocate(kind, 1000, stream)
    address = free.address
    busy.fill_async(1, stream)
    free.close()
    del busy  # now the newest block in the pool
    with allocations(0):
        buffer = allocate(kind, 1000, stream)
        buffer[0] = 1
    assert buffer.address == address
    assert stats_of(pools, kind)[:2] == (1000, 1000)
    stream.synchronize()


@ON_HOST
def test_parts_share_the_choice(stream, allocate, left, kind):
    address = left(kind)
    buffer = allocate(kind, 1000, stream)
    first, second = buffer.split_at(500)
    second.fill_async(1, stream)
    assert buffer.address == first.address == address
    with pytest.raises(cu.BufferBorrowedError, match="by its allocation"):
        first[0] = 1
    buffer = allocate(kind, 1000, stream)
    first, second = buffer.split_at(500)
    first[0] = 1
    second.fill_async(1, stream)
    assert second.address == buffer.address + 500
    stream.synchronize()


@ON_HOST
@pytest.mark.parametrize("end", ["close", "drop"])
@pytest.mark.parametrize("hit", [False, True])
def test_memory_that_nobody_used_is_as_it_was(pools, stream, allocate, left, kind, end, hit):
    address = left(kind) if hit else None
    buffer = allocate(kind, 1000, stream)
    if end == "close":
        buffer.close()
        buffer.close()
    del buffer
    assert stats_of(pools, kind)[:2] == (0, 1000)
    with allocations(int(hit)):
        plain = CLASSES[kind](1000)
    assert plain.address != address
    if hit:
        again = allocate(kind, 1000, stream)
        again.fill_async(1, stream)
        assert again.address == address
    stream.synchronize()


# ---- buffers that are not stream-ordered ----


@KINDS
def test_memory_without_a_pool_is_of_no_stream(pools, stream, other, kind):
    before = stats_of(pools, kind)
    with stream:
        buffer = CLASSES[kind](1000, pooled=False)
    buffer.fill_async(1, other)
    assert not buffer.stream_ordered
    assert stats_of(pools, kind) == before
    other.synchronize()


def test_device_memory_is_stream_ordered(stream):
    with stream:
        assert cu.DeviceBuffer(8).stream_ordered
        assert cu.DeviceBuffer.zeros(8).stream_ordered
        assert cu.DeviceBuffer.from_array(b"1234").stream_ordered
        assert not cu.LockedBuffer(8).stream_ordered
    assert not cu.DeviceBuffer(8).stream_ordered
    assert cu.DeviceBuffer(8, stream=stream, pooled=False).stream_ordered
    stream.synchronize()


@ON_HOST
@pytest.mark.parametrize("order", ["blocking", "legacy", "per_thread"])
def test_streams_that_the_default_streams_order(stream, left, kind, order):
    address = left(kind)
    if order == "blocking":
        queue = cu.Stream(blocking=True)
    else:
        queue = cu.Stream.legacy() if order == "legacy" else cu.Stream.per_thread()
    queue.wait(stream)
    with queue:
        buffer = CLASSES[kind](1000)
    buffer.fill_async(1, stream)  # allowed: the allocation does not count as a use
    assert buffer.address != address
    stream.synchronize()


@KINDS
def test_an_empty_buffer(pools, stream, other, allocate, kind):
    before = stats_of(pools, kind)
    buffer = allocate(kind, 0, stream)
    buffer.fill_async(1, other)
    assert buffer.address == 0
    assert buffer.to_numpy().shape == (0,)
    assert stats_of(pools, kind) == before


@pytest.mark.cuda_software
def test_a_device_whose_work_excludes_the_host(script):
    script.quiet(
        """
        import cudadrv as cu
        stream = cu.Stream()
        with stream:
            first = cu.UnifiedBuffer(8)
            first[0] = 1                # an allocation that counts as work would exclude the host
            assert cu.LockedBuffer(8)[0] in range(256)
            first[0] = 2
        """,
        CUDADRV_DRIVER="software",
        CUDADRV_SOFTWARE="concurrent_managed=0",
    )


# ---- which stream, which device ----


@KINDS
def test_a_stream_of_another_context_does_not_count(kind):
    with cu.Context.create(cu.Device(0)) as context:
        foreign = cu.Stream()
    with foreign:
        buffer = CLASSES[kind](1000)
    assert buffer.context is cu.Device(0).context
    assert not buffer.borrowed
    with foreign, context:
        buffer = CLASSES[kind](1000)
    assert buffer.context is context
    assert buffer.borrowed
    foreign.synchronize()


@KINDS
def test_arguments(stream, kind):
    with cu.Context.create(cu.Device(0)):
        foreign = cu.Stream()
    assert CLASSES[kind](8, stream=foreign).context is foreign.context
    with stream:
        assert CLASSES[kind](8, stream=foreign).context is foreign.context
    with pytest.raises(TypeError, match="stream"):
        CLASSES[kind](8, stream=3)
    closed = cu.Stream()
    with closed:
        closed.close()
        with pytest.raises(ValueError, match="is closed"):
            CLASSES[kind](8)
    with pytest.raises(ValueError, match="is closed"):
        CLASSES[kind](8, stream=closed)
    foreign.synchronize()


@KINDS
def test_an_allocation_on_a_closed_stream_calls_no_driver(stream, kind, unchanged):
    """An allocation on a closed stream is refused without driver calls.

    Unlike other allocations, it does not release the memory of dropped buffers.
    """
    closed, pool = cu.Stream(), cu.DriverPool()
    dead = cu.DeviceBuffer(1000, stream=stream, pooled=False)
    dead.fill_async(1, stream)
    functions = (*ALLOCATIONS, "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamWaitEvent")
    with closed:
        closed.close()
        del dead
        with unchanged(*functions):
            with pytest.raises(ValueError, match="is closed"):
                CLASSES[kind](8)
            with pool, pytest.raises(ValueError, match="is closed"):
                CLASSES[kind](8)


@ON_HOST
def test_a_closed_stream_that_gives_no_order_is_not_in_the_way(kind):
    with cu.Stream(blocking=True) as closed:
        closed.close()
        buffer = CLASSES[kind](8)
        buffer[:] = 1


@KINDS
@pytest.mark.cuda_software
def test_a_stream_of_another_device(script, kind):
    script.quiet(
        f"""
        import cudadrv as cu
        zero, one = cu.Device(0), cu.Device(1)
        stream = cu.Stream(device=one)
        cls = cu.{CLASSES[kind].__name__}
        with stream:
            near, far = cls(8), cls(8, device=one)
        assert near.device == zero and not near.borrowed
        assert far.device == one and far.borrowed
        with one, stream:
            assert cls(8).device == one
        assert cls(8, stream=stream).device == one
        try:
            cls(8, stream=stream, device=zero)
        except ValueError as error:
            assert "is not a stream of <Device 0" in str(error)
        else:
            raise AssertionError
        """,
        CUDADRV_DRIVER="software",
        CUDADRV_SOFTWARE="devices=2",
    )


@KINDS
@pytest.mark.cuda_software
def test_a_capturing_stream_allocates_nothing(pools, stream, kind):
    library = ctypes.CDLL(cu.driver_info().path)
    with stream:
        CLASSES[kind](1000).close()
    before = stats_of(pools, kind)
    graph = ctypes.c_void_p()
    with cu.Device(0), stream:
        assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 2) == 0
        for nbytes in (1000, 5000):
            with pytest.raises(cu.OwnershipError, match="captur"):
                CLASSES[kind](nbytes)
        assert library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
        library.cuGraphDestroy(graph)
    assert stats_of(pools, kind).used_bytes == before.used_bytes
    with stream:
        CLASSES[kind](1000).fill_async(1)
    stream.synchronize()


# ---- exports, copies for others ----


@KINDS
def test_a_copy_for_a_consumer_on_another_stream(stream, other, kind):
    """An export with `copy=True` copies on the consumer's stream, whatever stream is current."""
    source = CLASSES[kind].zeros(16)
    with stream:
        capsule = source.__dlpack__(stream=other.handle, copy=True, max_version=(1, 0))
    del capsule
    gc.collect()
    other.synchronize()


@KINDS
def test_a_loan_is_the_first_use(stream, other, allocate, left, kind):
    address = left(kind)
    buffer = allocate(kind, 1000, stream)
    with pytest.raises(cu.BufferBorrowedError, match="its allocation"), buffer.lend(other):
        pass
    with buffer.lend(stream) as lent:
        assert lent == address
    stream.synchronize()


# ---- everything else ----


@ON_HOST
def test_the_limit_holds_for_blocks_without_an_address(pools, stream, allocate, left, kind):
    left(kind)
    buffer = allocate(kind, 1000, stream)
    pool = getattr(pools, kind)
    former, pool.limit_bytes = pool.limit_bytes, 0
    try:
        buffer.close()
        assert pool.stats[:2] == (0, 0)
    finally:
        pool.limit_bytes = former
    cu.reap()


@ON_HOST
def test_addresses_that_are_not_chosen_have_an_owner(stream, allocate, left, kind):
    address = left(kind)
    buffer = allocate(kind, 1000, stream)
    with pytest.raises(ValueError, match="lies in a live"):
        CLASSES[kind].from_raw(address, 1000)
    buffer.fill_async(1, stream)
    assert buffer.address == address
    stream.synchronize()


@ON_HOST
@pytest.mark.cuda_software
def test_the_host_needs_memory_and_the_driver_fails(pools, stream, allocate, left, kind):
    left(kind)
    buffer = allocate(kind, 1000, stream)
    function = {"locked": "cuMemHostAlloc", "unified": "cuMemAllocManaged"}[kind]
    testing.fail(function, 1)
    with pytest.raises(cu.CudaError, match=function):
        buffer[0] = 1
    testing.fail(function, 2)  # out of memory at the first call: the pools then make room
    buffer[0] = 1
    assert stats_of(pools, kind).used_bytes == 1000
    stream.synchronize()


@ON_HOST
def test_threads_that_are_first_at_once(kind):
    """The host and a stream use new memory at the same time. Either use may be refused."""
    stream = cu.Stream()
    start = threading.Barrier(2)
    wrong = []
    made = []

    def host():
        for buffer in made:
            start.wait()
            try:
                buffer[:] = 1
            except cu.BufferBorrowedError:
                continue
            except BaseException as error:
                wrong.append(error)

    for _ in range(40):
        with stream:
            CLASSES[kind](1000).fill_async(1)
            made.append(CLASSES[kind](1000))
    thread = threading.Thread(target=host)
    thread.start()
    for buffer in made:
        start.wait()
        try:
            buffer.fill_async(2, stream)
        except (cu.BufferBorrowedError, cu.BufferExportedError):
            continue
        except BaseException as error:
            wrong.append(error)
    thread.join()
    assert wrong == []
    stream.synchronize()
    assert {value for buffer in made for value in buffer.to_numpy()} <= {1, 2}


def test_in_a_forked_child(script):
    script.quiet("""
        import os
        import cudadrv as cu
        stream = cu.Stream()
        with stream:
            cu.LockedBuffer(1000).fill_async(1)
            locked, unified, device = cu.LockedBuffer(1000), cu.UnifiedBuffer(1000), \\
                cu.DeviceBuffer(1000)
        child = os.fork()
        if child == 0:
            for use in (lambda: locked[0], lambda: cu.LockedBuffer(8, stream=stream)):
                try:
                    use()
                except cu.ForkedError:
                    continue
                os._exit(1)
            del locked, unified, device
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        locked[0] = 1
        stream.synchronize()
        """)


@pytest.mark.cuda_software
def test_in_a_lost_context(script):
    script.quiet(
        """
        import cudadrv as cu
        from cudadrv import testing
        stream = cu.Stream()
        with stream:
            cu.LockedBuffer(1000).fill_async(1)
            locked, chosen = cu.LockedBuffer(1000), cu.LockedBuffer(1000)
            chosen[0] = 1
        testing.fail("cuStreamQuery", 700)
        try:
            stream.synchronize()
        except cu.ContextLostError:
            pass
        assert chosen[0] == 1
        try:
            locked[0]
        except cu.ContextLostError:
            pass
        locked.close()
        del chosen
        """,
        CUDADRV_DRIVER="software",
    )
