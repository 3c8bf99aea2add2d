"""Large copies of ordinary memory: in chunks, through several stages and by several threads."""

import _thread
import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from in_threads import interrupted

import cudadrv as cu
from cudadrv._staging import plan

KINDS = ("device", "stream_ordered", "locked", "unified")
SMALL = {"threshold": 5000, "chunk": 4096, "least": 4096, "piece": 1024, "ring": 3, "threads": 4}


@pytest.fixture(autouse=True)
def small():
    """Treat copies of some thousand bytes as large ones."""
    usual = plan()
    plan(**SMALL)
    yield
    plan(**usual)


def random_bytes(nbytes, seed=1):
    return np.random.default_rng(seed).integers(0, 256, nbytes, "u1")


def copies(nbytes):
    """Number of stages that a copy of this size fills or empties."""
    return 1 if nbytes <= SMALL["threshold"] else -(-nbytes // SMALL["chunk"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbytes", [4999, 5000, 5001, 8191, 8192, 8193, 12288, 12289, 100_003])
def test_sizes(make, stream, kind, nbytes):
    items, buffer = random_bytes(nbytes), make(kind, nbytes)
    buffer.copy_from(items, stream=stream)
    assert not buffer.borrowed
    found = np.empty(nbytes, "u1")
    buffer.copy_to(found, stream=stream)
    assert (found == items).all()
    assert not buffer.borrowed


@pytest.mark.cuda_software
@pytest.mark.parametrize("nbytes", [5000, 5001, 100_003])
def test_one_driver_call_for_each_chunk(make, stream, nbytes):
    from cudadrv import testing

    items, buffer = random_bytes(nbytes), make("device", nbytes)
    for name, copy in (
        ("cuMemcpyHtoDAsync_v2", buffer.copy_from),
        ("cuMemcpyDtoHAsync_v2", buffer.copy_to),
    ):
        before = testing.calls(name)
        copy(items, stream=stream)
        assert testing.calls(name) - before == copies(nbytes)


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": 1},
        {"threads": 16, "piece": 256},
        {"ring": 2},
        {"ring": 1},
        {"ring": 16, "fresh": 1},
        {"chunk": 6000, "least": 100, "piece": 512},
        {"piece": 1 << 16},
    ],
    ids=str,
)
def test_plans(make, stream, changes):
    plan(**changes)
    items, buffer, found = random_bytes(200_001), make("device", 200_001), np.empty(200_001, "u1")
    for _ in range(3):
        buffer.copy_from(items, stream=stream)
        found[:] = 0
        buffer.copy_to(found, stream=stream)
        assert (found == items).all()
        items = items[::-1].copy()


@pytest.mark.parametrize("start", [1, 3, 1023, 1024, 1025])
def test_arrays_that_begin_anywhere(make, start):
    around, items = np.full(60_000, 7, "u1"), random_bytes(50_001)
    buffer = make("device", 50_001)
    around[start : start + 50_001] = items
    buffer.copy_from(around[start : start + 50_001])
    around[:] = 7
    buffer.copy_to(around[start : start + 50_001])
    assert (around[start : start + 50_001] == items).all()
    assert (around[:start] == 7).all()
    assert (around[start + 50_001 :] == 7).all()


@pytest.mark.parametrize("kind", KINDS)
def test_forms(make, items_of, stream, kind):
    cube = random_bytes(4 * 30_000).view("i4").reshape(30, 20, 50)
    buffer = make(kind, 30_000, "i4")
    for source in (
        cube,
        np.asfortranarray(cube),
        np.repeat(cube, 2, axis=2)[:, :, ::2],
        cube[::-1, :, ::-1],
        np.broadcast_to(cube[0], cube.shape),
        memoryview(cube.tobytes()).cast("i"),
    ):
        source = np.asarray(source).view()
        source.flags.writeable = False
        buffer.copy_from(source, stream=stream)
        assert (items_of(buffer) == source.ravel()).all()
    with pytest.raises(ValueError, match="copy_to needs"):
        buffer.copy_to(np.asfortranarray(cube))
    part = buffer[100:20_100]
    part.copy_from(np.zeros(20_000, "i4"))
    assert (items_of(part) == 0).all()
    assert items_of(buffer)[[99, 20_100]].tolist() == source.ravel()[[99, 20_100]].tolist()


def test_from_array_and_current_streams(stream, items_of):
    items = random_bytes(30_000)
    assert (items_of(cu.DeviceBuffer.from_array(items)) == items).all()
    with stream:
        buffer = cu.DeviceBuffer.from_array(items[::-1])
    assert (items_of(buffer) == items[::-1]).all()


def test_it_runs_after_earlier_work_of_its_stream(make, stream, gate):
    buffer, found = make("device", 50_000), np.zeros(50_000, "u1")
    gate.hold(stream)
    buffer.fill_async(9, stream)
    timer = threading.Timer(0.05, gate.open)
    timer.start()
    buffer.copy_to(found, stream=stream)
    timer.join()
    assert (found == 9).all()


def test_a_buffer_in_use_is_refused_before_anything_is_done(make, stream, other, gate):
    buffer, found = make("device", 50_000), np.full(50_000, 3, "u1")
    gate.hold(other)
    buffer.fill_async(9, other)
    for copy in (buffer.copy_to, buffer.copy_from):
        with pytest.raises(cu.BufferBorrowedError):
            copy(found, stream=stream)
    gate.open()
    assert (found == 3).all()
    with cu.ordering("wait"):
        buffer.copy_to(found, stream=stream)
    assert (found == 9).all()


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    ("function", "way", "nth"),
    [
        ("cuMemcpyHtoDAsync_v2", "copy_from", 1),
        ("cuMemcpyHtoDAsync_v2", "copy_from", 7),
        ("cuMemcpyDtoHAsync_v2", "copy_to", 1),
        ("cuMemcpyDtoHAsync_v2", "copy_to", 7),
        ("cuEventRecord", "copy_from", 5),
        ("cuEventRecord", "copy_to", 5),
        ("cuEventQuery", "copy_from", 4),
        ("cuEventQuery", "copy_to", 4),
    ],
)
def test_driver_calls_that_fail_in_the_middle(make, items_of, stream, function, way, nth):
    from cudadrv import testing

    old, new = random_bytes(60_000, 1), random_bytes(60_000, 2)
    buffer, array = make("device", 60_000, items=old), new.copy()
    stream.synchronize()
    testing.configure(f"fault={function}:{nth}:1")
    try:
        with pytest.raises(cu.CudaError) as error:
            getattr(buffer, way)(array, stream=stream)
    finally:
        testing.configure("fault=none")
    assert error.value.call == function.removesuffix("_v2")
    array[:] = 5
    stream.synchronize()
    assert not buffer.borrowed
    assert (array == 5).all()
    chunk = SMALL["chunk"]
    found, other_half = items_of(buffer), 0
    for start in range(0, 60_000, chunk):
        part = slice(start, start + chunk)
        if way == "copy_from" and (found[part] == new[part]).all():
            other_half += 1
        else:
            assert (found[part] == old[part]).all()
    assert other_half < copies(60_000)
    buffer.copy_from(new, stream=stream)
    assert (items_of(buffer) == new).all()


@pytest.mark.cuda_software
@pytest.mark.parametrize("nth", [1, 2])
def test_no_memory_for_a_stage(make, items_of, stream, nth):
    from cudadrv import testing

    cu.reap()
    buffer = make("device", 60_000)
    items = random_bytes(60_000)
    testing.configure(f"fault=cuMemHostAlloc:{nth}:1")
    try:
        with pytest.raises(cu.CudaError) as error:
            buffer.copy_from(items, stream=stream)
    finally:
        testing.configure("fault=none")
    assert error.value.call == "cuMemHostAlloc"
    assert not buffer.borrowed
    buffer.copy_from(items, stream=stream)
    assert (items_of(buffer) == items).all()


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("own_streams", [True, False])
def test_many_at_once(driver, threads, own_streams):
    """Concurrent copies share the copying threads, and each gets its own bytes."""
    shared, failures = cu.Stream(), []
    start = threading.Barrier(threads)

    def work(seed):
        try:
            random = np.random.default_rng(seed)
            stream = cu.Stream() if own_streams else shared
            buffer = cu.DeviceBuffer(150_000)
            start.wait()
            for _ in range(6):
                data = random.integers(0, 256, int(random.integers(1, 150_000)), "u1")
                found = np.zeros_like(data)
                part = buffer[: data.size]
                part.copy_from(data, stream=stream)
                part.copy_to(found, stream=stream)
                assert (found == data).all()
        except BaseException as error:
            failures.append(error)

    found = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for thread in found:
        thread.start()
    for thread in found:
        thread.join()
    assert failures == []


def test_a_copy_that_waits_does_not_hold_others_up(make, stream, other, gate):
    """A copy that waits for its stream does not block others: these can use all copying threads."""
    held, free = make("device", 100_000), make("device", 100_000)
    gate.hold(stream)
    arrays = [random_bytes(100_000, seed) for seed in range(2)]
    waiting = threading.Thread(target=held.copy_from, args=(arrays[0],), kwargs={"stream": stream})
    waiting.start()
    found = np.empty(100_000, "u1")
    for _ in range(3):
        free.copy_from(arrays[1], stream=other)
        free.copy_to(found, stream=other)
        assert (found == arrays[1]).all()
    assert waiting.is_alive()
    gate.open()
    waiting.join()
    held.copy_to(found)
    assert (found == arrays[0]).all()


def native_threads():
    """Number of copying threads."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count("cudadrv-copy\n")


def test_threads_are_few_and_kept(make, stream):
    buffer, items = make("device", 300_000), random_bytes(300_000)
    buffer.copy_from(items, stream=stream)
    before = native_threads()
    assert before >= SMALL["threads"] - 1
    for _ in range(20):
        buffer.copy_from(items, stream=stream)
        buffer.copy_to(items, stream=stream)
    assert native_threads() == before


def test_idle_threads_take_no_time(make, stream):
    buffer, items = make("device", 300_000), random_bytes(300_000)
    buffer.copy_from(items, stream=stream)
    stream.synchronize()
    gc.collect()
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


@pytest.mark.cuda_software
def test_stages_are_used_again(make, stream):
    from cudadrv import testing

    buffer, items = make("device", 300_000), random_bytes(300_000)
    for _ in range(SMALL["ring"]):
        buffer.copy_from(items, stream=stream)
    before = testing.calls("cuMemHostAlloc"), testing.calls("cuEventCreate")
    for _ in range(10):
        buffer.copy_from(items, stream=stream)
        buffer.copy_to(items, stream=stream)
    assert (testing.calls("cuMemHostAlloc"), testing.calls("cuEventCreate")) == before


@pytest.mark.cuda_software
def test_small_copies_make_few_stages(make, stream):
    """A small copy allocates few stages: allocating one takes far longer than filling it."""
    from cudadrv import testing

    cu.reap()
    plan(ring=8, fresh=50_000)
    for nbytes, stages in ((10_000, 2), (99_999, 2), (200_000, 4), (1_000_000, 8)):
        buffer, items = make("device", nbytes), random_bytes(nbytes)
        before = testing.calls("cuMemHostAlloc")
        buffer.copy_from(items, stream=stream)
        assert testing.calls("cuMemHostAlloc") - before == stages
        buffer.close()
        cu.reap()


@pytest.mark.cuda_software
def test_copies_of_one_size_come_to_a_whole_ring(make, stream):
    """Repeated copies of one size allocate a whole ring of stages.

    Each copy allocates only one more stage, so that none takes much longer.
    """
    from cudadrv import testing

    cu.reap()
    plan(ring=5, fresh=1 << 40)
    buffer, items = make("device", 50_000), random_bytes(50_000)
    made = []
    for _ in range(6):
        before = testing.calls("cuMemHostAlloc")
        buffer.copy_from(items, stream=stream)
        made.append(testing.calls("cuMemHostAlloc") - before)
    assert made == [2, 1, 1, 1, 0, 0]


@pytest.mark.cuda_software
def test_without_memory_for_more_stages_one_does(make, stream):
    from cudadrv import testing

    buffer, items, found = make("device", 50_000), random_bytes(50_000), np.empty(50_000, "u1")
    cu.reap()
    cu.DeviceBuffer(1000).close()
    testing.fail("cuMemHostAlloc", 2, nth=2)
    before = testing.calls("cuMemHostAlloc")
    buffer.copy_from(items, stream=stream)
    assert testing.calls("cuMemHostAlloc") - before == 2
    assert stream.context.pools.device.stats.cached_bytes > 0, "nobody else has to pay for it"
    buffer.copy_to(found, stream=stream)
    assert (found == items).all()


@pytest.mark.cuda_software
def test_threads_that_copy_soon_have_what_they_need(make):
    """Threads that copy again soon keep their page-locked memory.

    Allocating it takes longer than the copies.
    """
    from cudadrv import testing

    cu.reap()
    plan(threshold=1 << 20, chunk=4 << 20, least=4 << 20, piece=1 << 20, ring=8, fresh=32 << 20)
    nbytes, rounds, made = 32 << 20, 24, []
    turn = threading.Barrier(3, lambda: made.append(testing.calls("cuMemHostAlloc")))

    def work():
        buffer, array, stream = cu.DeviceBuffer(nbytes), np.ones(nbytes, "u1"), cu.Stream()
        for _ in range(rounds):
            turn.wait()
            buffer.copy_from(array, stream=stream)
        buffer.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made[-1] - made[0] <= 20
    assert made[-1] == made[rounds // 2]
    cu.reap()


@pytest.mark.parametrize("way", ["copy_from", "copy_to"])
def test_ctrl_c_while_threads_copy(make, stream, gate, way):
    """After Ctrl-C no thread uses the array any more, and the buffer stays borrowed."""
    nbytes = 200_000
    plan(fresh=1)
    buffer, array = make("device", nbytes, items=np.full(nbytes, 1, "u1")), np.full(nbytes, 9, "u1")
    gate.hold(stream)
    with interrupted(lambda: buffer.borrowed):
        getattr(buffer, way)(array, stream=stream)
    array[:] = 5
    assert buffer.borrowed
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close()
    gate.open()
    stream.synchronize()
    assert not buffer.borrowed
    assert (array == 5).all()
    found = np.empty(nbytes, "u1")
    buffer.copy_to(found)
    filled = SMALL["ring"] * SMALL["chunk"] if way == "copy_from" else 0
    assert (found[:filled] == 9).all()
    assert (found[filled:] == 1).all()


def test_ctrl_c_at_any_time(make, items_of, stream):
    """Ctrl-C comes at twelve different moments of a running copy, which no gate blocks."""
    nbytes, interrupted = 2_000_000, 0
    buffer = make("device", nbytes, items=np.zeros(nbytes, "u1"))
    for delay in range(12):
        array = np.full(nbytes, delay + 1, "u1")
        timer = threading.Timer(delay / 4000, _thread.interrupt_main)
        try:
            timer.start()
            while True:
                buffer.copy_from(array, stream=stream)
                buffer.copy_to(array, stream=stream)
        except KeyboardInterrupt:
            interrupted += 1
        array[:] = 0
        timer.join()
        stream.synchronize()
        assert (array == 0).all()
        assert set(np.unique(items_of(buffer)).tolist()) <= {delay, delay + 1}
        buffer.copy_from(np.full(nbytes, delay + 1, "u1"))
    assert interrupted == 12
