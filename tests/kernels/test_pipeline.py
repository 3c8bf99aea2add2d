"""Pipeline: all kinds of sources, results in order, and the state after each kind of failure."""

import io
import itertools
import mmap
import os
import signal
import tempfile
import time

import numpy as np
import pytest

import cudadrv as cu

CHUNK = 100
COUNT = 1234  # twelve whole chunks and a part of one
NUMBERS = np.arange(COUNT, dtype="f4")
buffers = pytest.mark.parametrize("buffers", [1, 2, 3, 20])


@pytest.fixture
def doubled(module):
    """A compute function that doubles the items: saxpy with y += 1 * x."""
    saxpy = module["saxpy"]

    def compute(stream, given, taken):
        assert given.count == taken.count
        saxpy.launch(1, 128, np.float32(1), cu.read(given), taken, given.count, stream=stream)

    return compute


@pytest.fixture
def pipeline(doubled):
    with cu.Pipeline(CHUNK, "f4", compute=doubled, in_place=True) as pipeline:
        yield pipeline


class Results:
    """Collects the arrays that `consume` gets."""

    def __init__(self):
        self.arrays = []

    def __call__(self, index, array):
        assert index == len(self.arrays)
        self.arrays.append(array.copy())

    def all(self):
        return np.concatenate(self.arrays) if self.arrays else np.empty(0, "f4")


def check(pipeline):
    """Check that the pipeline works, and that its buffers are not in use afterwards."""
    results = Results()
    report = pipeline.run(NUMBERS, consume=results)
    assert (report.chunks, report.items) == (13, COUNT)
    assert np.array_equal(results.all(), 2 * NUMBERS)
    for lane in pipeline._lanes:
        for buffer in (lane.input, lane.output, lane.result, *pipeline._sources):
            assert not buffer.borrowed
            buffer.fill(0)


def check_usable(pipeline):
    """Check that the pipeline runs, and borrows nothing afterwards.

    The results are not checked, so the pipeline can have any compute function.
    """
    assert pipeline.run(NUMBERS).chunks == 13
    assert not any(source.borrowed for source in pipeline._sources)


def iterated():
    return (NUMBERS[at : at + CHUNK] for at in range(0, COUNT, CHUNK))


def mapped():
    memory = mmap.mmap(-1, NUMBERS.nbytes)
    memory.write(NUMBERS.tobytes())
    return memory


def on_disk(buffering):
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the fixture closes it
    file.write(b"before" + NUMBERS.tobytes())
    opened = open(file.fileno(), "rb", buffering=buffering, closefd=False)  # noqa: SIM115
    opened.seek(6)
    KEPT.append(file)
    return opened


KEPT = []


@pytest.fixture(autouse=True)
def closed_files():
    yield
    while KEPT:
        KEPT.pop().close()


SOURCES = {
    "array": lambda: NUMBERS,
    "array of two dimensions": lambda: NUMBERS.reshape(2, -1),
    "array of every other item": lambda: np.repeat(NUMBERS, 2)[::2],
    "bytes": NUMBERS.tobytes,
    "memory map": mapped,
    "file": lambda: io.BytesIO(NUMBERS.tobytes()),
    "file on the disk": lambda: on_disk(-1),
    "unbuffered file on the disk": lambda: on_disk(0),
    "generator": iterated,
    "list of arrays": lambda: list(iterated()),
    "page-locked": lambda: cu.LockedBuffer.from_array(NUMBERS),
    "managed": lambda: cu.UnifiedBuffer.from_array(NUMBERS),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_sources(pipeline, source):
    results = Results()
    target = cu.LockedBuffer(COUNT + 5, "f4")
    report = pipeline.run(source(), consume=results, into=target)
    assert (report.chunks, report.items) == (13, COUNT)
    assert np.array_equal(results.all(), 2 * NUMBERS)
    assert np.array_equal(target[:COUNT].to_numpy(), 2 * NUMBERS)
    assert 0 <= report.filling_s <= report.elapsed_s
    assert 0 <= report.consuming_s <= report.elapsed_s


@buffers
def test_numbers_of_buffers(doubled, buffers):
    with cu.Pipeline(CHUNK, "f4", compute=doubled, in_place=True, buffers=buffers) as pipeline:
        assert len(pipeline._lanes) == buffers
        assert len(pipeline.streams) == 3
        results = Results()
        pipeline.run(NUMBERS, consume=results)
        assert np.array_equal(results.all(), 2 * NUMBERS)


@buffers
def test_from_buffer_to_buffer(doubled, buffers):
    """Source and target are buffers, and no function consumes chunks: the host only queues work."""
    source, target = cu.LockedBuffer.from_array(NUMBERS), cu.UnifiedBuffer(COUNT, "f4")
    with cu.Pipeline(CHUNK, "f4", compute=doubled, in_place=True, buffers=buffers) as pipeline:
        report = pipeline.run(source, into=target)
        assert (report.chunks, report.items) == (13, COUNT)
        assert np.array_equal(target.to_numpy(), 2 * NUMBERS)
        assert not source.borrowed


@buffers
@pytest.mark.parametrize("consumed", [False, True])
def test_from_buffer_to_buffer_with_outputs_apart(driver, buffers, consumed):
    """With separate outputs, a chunk's input buffer is reused before its output buffer is free."""

    def compute(stream, given, taken):
        taken.copy_from_async(given.view("i4"), stream)

    source, target = cu.LockedBuffer.from_array(NUMBERS), cu.LockedBuffer(COUNT, "i4")
    results = Results()
    with cu.Pipeline(CHUNK, "f4", compute=compute, output_dtype="i4", buffers=buffers) as pipeline:
        pipeline.run(source, into=target, consume=results if consumed else None)
    assert np.array_equal(target.to_numpy(), NUMBERS.view("i4"))
    assert not consumed or np.array_equal(results.all(), NUMBERS.view("i4"))


def test_kernels_of_all_chunks_may_use_the_same_memory(driver, module):
    """Kernels of all chunks run on one stream, so they can share an accumulator without events."""
    total = cu.DeviceBuffer.zeros(CHUNK, "f4", name="total")

    def compute(stream, given, taken):
        assert taken is None
        module["saxpy"].launch(
            1, 128, np.float32(1), cu.read(given), total, given.count, stream=stream
        )

    with cu.Pipeline(CHUNK, "f4", compute=compute) as pipeline:
        pipeline.run(NUMBERS)
        assert all(lane._result is None for lane in pipeline._lanes)
    padded = np.zeros(13 * CHUNK, "f4")
    padded[:COUNT] = NUMBERS
    assert np.array_equal(total.to_numpy(), padded.reshape(13, CHUNK).sum(axis=0))


# ---- stages overlap ----


@pytest.mark.parametrize("held", ["compute", "copy out"])
def test_stages_before_one_that_is_held_go_on(doubled, gate, held):
    """While chunk 0 is blocked in a stage, chunk 1 goes through the stages before it."""
    stage = 1 if held == "compute" else 2
    gone = []

    def begin(index, array):
        if index == 0:
            gate.hold(pipeline.streams[stage])
        if index == 2:  # now chunks 0 and 1 are queued
            pipeline.streams[stage - 1].synchronize(timeout=60)
            gone.append(pipeline.streams[stage].done)
            gate.open()

    with cu.Pipeline(CHUNK, "f4", compute=doubled, in_place=True) as pipeline:
        results = Results()
        pipeline.run(NUMBERS, prepare=begin, consume=results)
    assert gone == [False]
    assert np.array_equal(results.all(), 2 * NUMBERS)


@pytest.mark.parametrize("held", ["copy in", "compute"])
def test_stages_after_one_that_is_held_go_on(doubled, gate, held):
    """While chunk 1 is blocked in a stage, chunk 0 goes through the stages after it."""
    stage = ["copy in", "compute"].index(held)
    delivered = []

    def compute(stream, given, taken):
        if held == "compute" and len(queued) == 1:
            gate.hold(stream)
        queued.append(given)
        doubled(stream, given, taken)

    def prepare(index, array):
        if held == "copy in" and index == 1:
            gate.hold(pipeline.streams[0])

    def consume(index, array):
        if index == 0:
            delivered.append(pipeline.streams[stage].done)
            gate.open()
        results(index, array)

    queued, results = [], Results()
    with cu.Pipeline(CHUNK, "f4", compute=compute, in_place=True) as pipeline:
        pipeline.run(NUMBERS, prepare=prepare, consume=consume)
    assert delivered == [False]
    assert np.array_equal(results.all(), 2 * NUMBERS)


def test_the_host_queues_several_chunks_for_each_buffer(driver, gate):
    """If the host uses neither source nor result, it queues chunks without waiting for each one."""
    source, target = cu.LockedBuffer.from_array(NUMBERS), cu.LockedBuffer(COUNT, "f4")
    queued = []

    def compute(stream, given, taken):
        if not queued:
            gate.hold(stream)
        queued.append(given.count)
        if len(queued) == 8:
            gate.open()

    with cu.Pipeline(CHUNK, "f4", compute=compute, in_place=True, buffers=2) as pipeline:
        pipeline.run(source, into=target)
    assert len(queued) == 13
    assert np.array_equal(target.to_numpy(), NUMBERS)


def test_the_report_has_the_time_of_each_stage(doubled):
    pause = 0.02

    def slow(index, array):
        time.sleep(pause)

    with cu.Pipeline(CHUNK, "f4", compute=doubled, in_place=True) as pipeline:
        report = pipeline.run(NUMBERS[:500], prepare=slow, consume=slow)
    assert report.filling_s >= 5 * pause
    assert report.consuming_s >= 5 * pause
    device = report.copying_in_s, report.computing_s, report.copying_out_s
    assert all(seconds > 0 for seconds in device)  # these times are estimates from the first chunk
    stages = report.filling_s + report.consuming_s + sum(device)
    assert report.overlap == pytest.approx(stages / report.elapsed_s)


def test_without_kernels(driver):
    results = Results()
    with cu.Pipeline(7, "i2") as pipeline:
        pipeline.run(np.arange(20, dtype="i2"), consume=results)
    assert [array.tolist() for array in results.arrays] == [
        list(range(7)), list(range(7, 14)), list(range(14, 20)),
    ]  # fmt: skip


def test_results_of_another_dtype_and_size(driver):
    """Each chunk has two results of another dtype. Both are the number of items in the chunk."""

    def compute(stream, given, taken):
        assert (taken.count, taken.dtype) == (2, np.dtype("u8"))
        taken.fill_async(given.count, stream)

    results = Results()
    target = cu.LockedBuffer(6, "u8")
    with cu.Pipeline(8, "u1", compute=compute, output_dtype="u8", output_count=2) as pipeline:
        pipeline.run(bytes(20), consume=results, into=target)
    assert results.all().tolist() == target.to_numpy().tolist() == [8, 8, 8, 8, 4, 4]


def test_outputs_apart_from_inputs(driver):
    def compute(stream, given, taken):
        assert given.count == taken.count
        taken.copy_from_async(given.view("i4"), stream)

    results = Results()
    with cu.Pipeline(8, "f4", compute=compute, output_dtype="i4") as pipeline:
        pipeline.run(np.zeros(20, "f4"), consume=results)
    assert [array.size for array in results.arrays] == [8, 8, 4]


@pytest.mark.parametrize("name", ["array", "file", "generator", "page-locked"])
def test_prepare_and_progress(pipeline, name):
    source, results, seen = SOURCES[name](), Results(), []

    def prepare(index, array):
        assert array[0] == index * CHUNK
        array += 1

    pipeline.run(source, prepare=prepare, consume=results, progress=seen.append)
    assert np.array_equal(results.all(), 2 * (NUMBERS + 1))
    assert seen == [*range(CHUNK, COUNT, CHUNK), COUNT]
    assert NUMBERS[0] == 0
    if name == "page-locked":
        assert source[0] == 0


def test_empty_sources(pipeline):
    for source in (np.empty(0, "f4"), b"", io.BytesIO(), [], iter(()), cu.LockedBuffer(0, "f4")):
        assert pipeline.run(source)[:2] == (0, 0)
    check(pipeline)


def test_a_file_is_read_from_its_position_on(driver):
    class Slow(io.BytesIO):
        """A file that returns at most three bytes at a time, as a pipe may."""

        def readinto(self, room):
            return super().readinto(memoryview(room)[:3])

    file, results = Slow(bytes(range(50))), Results()
    file.seek(10)
    with cu.Pipeline(16) as pipeline:
        pipeline.run(file, consume=results)
    assert results.all().tolist() == list(range(10, 50))


@pytest.mark.parametrize("buffering", [-1, 0])
def test_a_file_on_the_disk_is_read_from_its_position_on(driver, tmp_path, buffering):
    """A file is read from its current position.

    The position after the run is the same as after an ordinary read, also after an error.
    """
    path = tmp_path / "file"
    path.write_bytes(bytes(range(250)) * 8)
    results = Results()
    with cu.Pipeline(16) as pipeline, path.open("rb", buffering=buffering) as file:
        assert file.read(10) == bytes(range(10))
        report = pipeline.run(file, consume=results)
        assert report.items == 1990
        assert (file.tell(), file.read()) == (2000, b"")
        assert results.all().tobytes() == path.read_bytes()[10:]
        file.seek(0)
        with pytest.raises(Mine):
            pipeline.run(file, consume=third(Mine))
        read = file.tell()
        assert read in range(48, 160, 16)
        assert pipeline.run(file).items == 2000 - read


def test_a_file_on_the_disk_that_ends_within_an_item(driver, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1003))
    with cu.Pipeline(CHUNK, "f4") as pipeline:
        with path.open("rb") as file, pytest.raises(ValueError, match="3 bytes are left over"):
            pipeline.run(file)
        check_usable(pipeline)


def test_a_file_that_cannot_be_read(driver, tmp_path):
    """A read that fails in a thread raises OSError, as does a file that is not open for reading."""
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    with cu.Pipeline(100) as pipeline:
        with path.open("rb", buffering=0) as file:

            def close(index, array):
                if index == 1:
                    os.dup2(blind, file.fileno())

            blind = os.open(path, os.O_WRONLY)
            with pytest.raises(OSError, match="Bad file descriptor"):
                pipeline.run(file, consume=close)
            os.close(blind)
        with pytest.raises(ValueError, match="closed"):
            pipeline.run(file)
        with path.open("ab") as file, pytest.raises(OSError, match="read"):
            pipeline.run(file)
        assert pipeline.run(bytes(1000)).chunks == 10


def test_threads_fill_the_next_chunk_meanwhile(driver):
    """Threads copy large chunks of an array ahead of their use.

    An exception ends the pipeline in the middle of a chunk.
    """
    numbers = np.random.default_rng(1).integers(0, 256, (5 << 20) + 3, dtype="u1")
    with cu.Pipeline(1 << 20, buffers=2) as pipeline:
        results = Results()
        report = pipeline.run(numbers, consume=results)
        assert report.chunks == 6
        assert np.array_equal(results.all(), numbers)
        with pytest.raises(Mine):
            pipeline.run(numbers, consume=third(Mine))
        for source in pipeline._sources:
            source.fill(0)  # no thread fills it any more
            assert not source.to_numpy().any()
        results = Results()
        pipeline.run(numbers[::-1], consume=results)
        assert np.array_equal(results.all(), numbers[::-1])


def test_chunks_of_an_iterator_may_be_short(driver):
    results = Results()
    with cu.Pipeline(4, "i8") as pipeline:
        pipeline.run(iter([[1], np.array([2, 3, 4, 5]), np.ones((2, 1), "i8")]), consume=results)
    assert [array.tolist() for array in results.arrays] == [[1], [2, 3, 4, 5], [1, 1]]


# ---- errors ----


class Mine(Exception):
    pass


def third(what):
    """A function that raises in its third call."""
    calls = itertools.count()

    def function(*arguments):
        if next(calls) == 2:
            raise what

    return function


@pytest.mark.parametrize("what", [Mine, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("stage", ["prepare", "consume", "progress"])
def test_a_function_that_raises(pipeline, stage, what):
    with pytest.raises(what) as caught:
        pipeline.run(NUMBERS, **{stage: third(what)})
    assert not hasattr(caught.value, "__notes__")
    assert caught.value.__context__ is None
    check(pipeline)


@pytest.mark.parametrize("what", [Mine, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("queued", [False, True])
def test_kernels_that_cannot_be_queued(driver, queued, what):
    calls = itertools.count()

    def compute(stream, given, taken):
        if queued:
            taken.fill_async(1, stream)
        if next(calls) == 2:
            raise what

    with cu.Pipeline(CHUNK, "f4", compute=compute, in_place=True) as pipeline:
        with pytest.raises(what):
            pipeline.run(NUMBERS)
        for lane in pipeline._lanes:
            assert not lane.input.borrowed
        assert not any(source.borrowed for source in pipeline._sources)
        assert pipeline.run(NUMBERS).chunks == 13


@pytest.mark.parametrize("what", [Mine, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("kind", ["generator", "file"])
def test_a_source_that_raises_or_is_interrupted(pipeline, kind, what):
    def generator():
        yield from (NUMBERS[:CHUNK], NUMBERS[:CHUNK])
        raise what

    class File(io.BytesIO):
        def readinto(self, room):
            if self.tell() >= 800:
                raise what
            return super().readinto(room)

    with pytest.raises(what) as caught:
        pipeline.run(generator() if kind == "generator" else File(bytes(4000)))
    assert not hasattr(caught.value, "__notes__")
    check(pipeline)


@pytest.mark.cuda_software
@pytest.mark.parametrize("where", ["prepare", "consume"])
def test_the_first_error_is_the_one_that_is_seen(pipeline, where):
    """The first error is raised. An error of a later wait is added to it as a note."""
    from cudadrv import testing

    def fail(index, array):
        if index == 1:
            testing.fail("cuStreamQuery", cu.CUresult.CUDA_ERROR_UNKNOWN)
            raise Mine("mine")

    with pytest.raises(Mine, match="mine") as caught:
        pipeline.run(NUMBERS, **{where: fail})
    [note] = caught.value.__notes__
    assert note.startswith("cudadrv: waiting for the pipeline failed, too: cuStreamQuery: ")
    check(pipeline)


def test_a_refusal_inside(driver, stream, other):
    """Borrows are checked inside a pipeline: two chunks write one memory on different streams."""
    common = cu.DeviceBuffer(CHUNK, "f4", name="common")

    def compute(given_stream, given, taken):
        side = next(sides)
        side.wait(given_stream)
        common[: given.count].copy_from_async(given, side)
        if joined:
            given_stream.wait(side)

    sides, joined = itertools.cycle([stream, other]), False
    with cu.Pipeline(CHUNK, "f4", compute=compute, in_place=True) as pipeline:
        with pytest.raises(cu.BufferBorrowedError, match="DeviceBuffer 'common'"):
            pipeline.run(NUMBERS)
        stream.synchronize()
        joined = True
        assert pipeline.run(NUMBERS).chunks == 13
    assert not common.borrowed


def broken():
    yield NUMBERS[:CHUNK]
    yield NUMBERS[:CHUNK]
    raise Mine


class Counting(io.BytesIO):
    """A file whose `readinto` returns too large a number, or a negative one."""

    def __init__(self, more):
        super().__init__(bytes(4000))
        self.more = more

    def readinto(self, room):
        return super().readinto(room) + self.more


class Broken(io.BytesIO):
    def readinto(self, room):
        if self.tell() >= 800:
            raise OSError("broken")
        return super().readinto(room)


BAD = {
    "an iterator that raises": (broken, Mine, None),
    "a file that raises": (lambda: Broken(bytes(4000)), OSError, "broken"),
    "a chunk that is too large": (
        lambda: [NUMBERS[:CHUNK], NUMBERS[: CHUNK + 1]],
        ValueError,
        "chunk 1 of the source has 101 items, and must have from 1 to 100",
    ),
    "an empty chunk": (lambda: [NUMBERS[:1], NUMBERS[:0]], ValueError, "chunk 1 .* has 0 items"),
    "a chunk of another dtype": (lambda: [NUMBERS[:3], np.zeros(3)], TypeError, "float64"),
    "None as a chunk": (lambda: [NUMBERS[:3], None], TypeError, "object"),
    "an array of another dtype": (lambda: np.zeros(3), TypeError, "nothing is converted"),
    "a masked array": (lambda: np.ma.masked_array(NUMBERS, NUMBERS > 3), TypeError, "mask"),
    "masked chunks": (lambda: [np.ma.masked_array(NUMBERS[:3], [0, 0, 1])], TypeError, "mask"),
    "a file that ends within an item": (
        lambda: io.BytesIO(bytes(1003)),
        ValueError,
        "ends within an item: 3 bytes are left over",
    ),
    "bytes that end within an item": (lambda: bytes(1003), ValueError, "multiple"),
    "a file that reads too much": (
        lambda: Counting(4),
        ValueError,
        "the file says that it has read 404 bytes, and there was room for 400",
    ),
    "a file that reads less than nothing": (
        lambda: Counting(-500),
        ValueError,
        "the file says that it has read -100 bytes",
    ),
    "a device buffer": (lambda: cu.DeviceBuffer(8, "f4"), TypeError, "a source is on the host"),
    "a buffer of another dtype": (lambda: cu.LockedBuffer(8), TypeError, "dtype uint8"),
    "a number": (lambda: 3, TypeError, "not iterable"),
}


@pytest.mark.parametrize(("source", "error", "words"), BAD.values(), ids=BAD)
def test_bad_sources(pipeline, source, error, words):
    with pytest.raises(error, match=words):
        pipeline.run(source())
    check(pipeline)


def test_messages_name_the_line_of_the_program(driver):
    sites = []

    def compute(stream, given, taken):
        sites.extend(borrow.site for borrow in given.borrows)

    with cu.Pipeline(CHUNK, "f4", compute=compute, in_place=True) as pipeline:
        pipeline.run(NUMBERS)
    assert {site.rpartition(":")[0].rpartition("/")[2] for site in sites} == {"test_pipeline.py"}


def test_a_target_that_is_too_small(pipeline):
    target = cu.LockedBuffer(250, "f4")
    for source in (NUMBERS, cu.LockedBuffer.from_array(NUMBERS)):
        with pytest.raises(ValueError, match="into= has 250 items, and the results have more"):
            pipeline.run(source, into=target)
        assert not target.borrowed
    assert np.array_equal(target[:200].to_numpy(), 2 * NUMBERS[:200])
    check(pipeline)


def test_bad_targets(pipeline):
    for target, words in (
        (np.zeros(COUNT, "f4"), "not a ndarray"),
        (cu.DeviceBuffer(COUNT, "f4"), "not a DeviceBuffer"),
        (cu.LockedBuffer(COUNT, "i4"), "the results have dtype float32, and into= has int32"),
    ):
        with pytest.raises(TypeError, match=words):
            pipeline.run(NUMBERS, into=target)


def test_an_array_that_leaves_consume(pipeline):
    kept = []
    with pytest.raises(cu.BufferExportedError, match="cannot be emptied with it"):
        pipeline.run(NUMBERS, consume=lambda index, array: kept.append(memoryview(array)))
    kept.clear()
    check(pipeline)


def test_arrays_are_empty_after_their_call(pipeline):
    kept = []
    pipeline.run(NUMBERS, consume=lambda index, array: kept.append(array))
    assert [array.size for array in kept] == [0] * 13


def test_a_run_inside_a_run(pipeline):
    def again(index, array):
        with pytest.raises(RuntimeError, match="is running already"):
            pipeline.run(NUMBERS)
        with pytest.raises(RuntimeError, match="can be closed afterwards"):
            pipeline.close()

    assert pipeline.run(NUMBERS, consume=again).chunks == 13


def test_close(driver):
    pipeline = cu.Pipeline(CHUNK, buffers=2)
    assert repr(pipeline) == "<Pipeline of 2 buffers of 100 x uint8>"
    pipeline.run(bytes(1000))
    streams = pipeline.streams
    pipeline.close()
    pipeline.close()
    assert pipeline.closed
    assert all(stream.closed for stream in streams)
    assert repr(pipeline) == "<Pipeline closed>"
    for call in (lambda: pipeline.run(b""), pipeline.__enter__):
        with pytest.raises(ValueError, match="this Pipeline is closed"):
            call()


LOSE = """
    import numpy as np
    import cudadrv as cu
    from cudadrv import testing

    def lose(call):
        testing.configure(f"fault={call}:1:719")

    def compute(stream, given, taken):
        taken.copy_from_async(given, stream)

    pipeline = cu.Pipeline(10, compute=compute, output_dtype="u1", buffers=2)
    pipeline.run(bytes(40))
"""


@pytest.mark.cuda_software
def test_close_after_the_context_was_lost(script):
    """Closing is quiet after a loss, and nothing stays listed."""
    script.quiet(
        LOSE
        + """
    lose("cuEventQuery")
    try:
        pipeline.run(bytes(40))
        raise AssertionError("not lost")
    except cu.ContextLostError:
        pass
    pipeline.close()
    pipeline.close()
    assert pipeline.closed and all(stream.closed for stream in pipeline.streams)
    assert cu.live_buffers() == [], cu.live_buffers()
    """
    )


@pytest.mark.cuda_software
def test_close_that_finds_the_loss(script):
    """A close that is the first to meet the loss closes everything, and then raises."""
    script.quiet(
        LOSE
        + """
    cu.DeviceBuffer(8).fill_async(1, pipeline.streams[2])
    lose("cuStreamQuery")
    try:
        pipeline.close()
        raise AssertionError("not lost")
    except cu.ContextLostError as error:
        assert error.suspects, error
    pipeline.close()
    assert cu.live_buffers() == [], cu.live_buffers()
    """
    )


def test_a_dropped_pipeline_leaves_nothing(driver):
    pipeline = cu.Pipeline(CHUNK)
    pipeline.run(bytes(1000))
    del pipeline


def test_bad_arguments(driver):
    for name in ("chunk", "buffers", "output_count"):
        options = {"chunk": 4, "output_dtype": "u1"}
        with pytest.raises(ValueError, match=f"{name} must be at least 1, and is 0"):
            cu.Pipeline(**{**options, name: 0})
        with pytest.raises(TypeError, match=f"{name} must be an integer"):
            cu.Pipeline(**{**options, name: 1.5})
    with pytest.raises(TypeError, match="output_count needs output_dtype"):
        cu.Pipeline(4, output_count=3)
    with pytest.raises(TypeError, match="in_place=True needs no output_dtype"):
        cu.Pipeline(4, in_place=True, output_dtype="u1")
    with cu.Pipeline(4, compute=lambda *_: None) as pipeline:
        for option in ({"consume": lambda *_: None}, {"into": cu.LockedBuffer(4)}):
            with pytest.raises(
                TypeError, match=f"^{next(iter(option))}= needs results, .*in_place"
            ):
                pipeline.run(bytes(4), **option)
        assert pipeline.run(bytes(7)).items == 7
    with pytest.raises(TypeError, match="holds Python objects"):
        cu.Pipeline(4, object)


@pytest.mark.cuda_software
@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"])
def test_a_driver_call_that_fails(pipeline, function):
    from cudadrv import testing

    testing.fail(function, cu.CUresult.CUDA_ERROR_UNKNOWN, nth=5)
    with pytest.raises(cu.CudaError):
        pipeline.run(NUMBERS)
    check(pipeline)


@pytest.mark.parametrize("stage", ["copy in", "compute", "copy out"])
def test_a_signal_while_it_waits(driver, gate, stage):
    """Ctrl-C in a wait for any stage ends the run.

    A second Ctrl-C ends the wait for other stages.
    """
    presses = iter([0.3, 0])

    def press(number, frame):
        signal.setitimer(signal.ITIMER_REAL, next(presses))
        raise KeyboardInterrupt

    def begin(index, array):
        if index == 0:
            gate.hold(pipeline.streams[["copy in", "compute", "copy out"].index(stage)])
            signal.setitimer(signal.ITIMER_REAL, 0.3)

    with cu.Pipeline(CHUNK, "f4") as pipeline:
        former = signal.signal(signal.SIGALRM, press)
        try:
            with pytest.raises(KeyboardInterrupt):
                pipeline.run(NUMBERS, prepare=begin)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
            borrowed = pipeline._lanes[0].input.borrowed
            gate.open()
        assert borrowed
        results = Results()
        pipeline.run(NUMBERS, consume=results)
        assert np.array_equal(results.all(), NUMBERS)
