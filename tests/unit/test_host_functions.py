"""`stream.call`: functions of the program that run in a stream."""

import asyncio
import gc
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from in_threads import interrupted

import cudadrv as cu
from cudadrv import testing

COUNT = 16


@pytest.fixture(autouse=True, params=["words", "blocked"])
def way(request, driver):
    """How a stream waits for a function: for a word in memory, or in a thread of the driver.

    The driver's thread waits where a run follows a script.
    """
    if request.param == "blocked":
        if driver == "cuda":
            pytest.skip("only the software driver has devices without 64-bit words")
        testing.configure("schedule=replay")
    return request.param


@pytest.fixture
def work(driver):
    return cu.DeviceBuffer.from_array(np.arange(COUNT, dtype="f4"), name="work")


@pytest.fixture
def host(driver):
    return cu.LockedBuffer.zeros(COUNT, "f4", name="host")


def nothing(*arrays):
    pass


# ---- order ----


def test_between_two_copies(stream, work, host):
    seen = []

    def double(array):
        seen.append(array.copy())
        array *= 2

    host.copy_from_async(work, stream)
    token = stream.call(double, host)
    work.copy_from_async(host, stream)
    token.wait()
    assert token.done
    assert np.array_equal(seen[0], np.arange(COUNT))
    assert np.array_equal(work.to_numpy(stream=stream), 2 * np.arange(COUNT))


def test_functions_run_in_the_order_of_their_stream(stream):
    seen = []
    for number in range(50):
        stream.call(partial(seen.append, number))
    stream.synchronize()
    assert seen == list(range(50))


def test_more_calls_than_words(stream):
    seen = []
    free = threading.Event()
    stream.call(lambda: free.wait(60))
    for number in range(1300):
        stream.call(partial(seen.append, number))
    free.set()
    stream.synchronize()
    assert seen == list(range(1300))


def test_streams_wait_for_a_function(stream, other, work, host):
    """Another stream waits for the call, by its token, its stream and an event."""
    for wait in (lambda token: token, lambda token: stream, lambda token: stream.record()):
        host.copy_from_async(work, stream)
        token = stream.call(partial(np.negative, out=None), cu.read(host))
        other.wait(wait(token))
        host.fill_async(0, other)
        stream.wait(other)
    stream.synchronize()
    assert not host.to_numpy().any()


def test_conflicts(stream, other, work, host):
    token = stream.call(nothing, host)
    with pytest.raises(cu.BufferBorrowedError, match=r"being written by call on Stream"):
        host[0]
    with pytest.raises(cu.BufferBorrowedError, match=r"being written by call on Stream"):
        work.copy_from_async(host, other)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by call"):
        host.close()
    with pytest.raises(cu.BufferBorrowedError, match=r"write .*'host'.* by call on Stream"):
        other.call(nothing, host)
    token.wait()
    stream.call(nothing, cu.read(host))
    other.call(nothing, cu.read(host))
    assert host[0] == 0
    with pytest.raises(cu.BufferBorrowedError, match="being read by call"):
        host[0] = 1
    stream.synchronize()
    other.synchronize()


def test_views_of_the_host(stream, host):
    with host.read() as array:
        stream.call(nothing, cu.read(host)).wait()
        with pytest.raises(cu.BufferExportedError, match="a host view of it is alive"):
            stream.call(nothing, host)
    assert array.size == 0


def test_kinds_of_arguments(stream, driver):
    read_only, shared = cu.LockedBuffer.zeros(8, "i4"), cu.LockedBuffer.zeros(8, "i4")
    image = cu.LockedBuffer.from_array(np.arange(12, dtype="u2").reshape(3, 4))
    unified = cu.UnifiedBuffer.zeros(3, "c8")
    empty = cu.LockedBuffer(0, "f8")
    records = cu.LockedBuffer.zeros(2, [("one", "i4"), ("two", "f8")])
    seen = []

    def look(*arrays):
        for array in arrays:
            seen.append((array.shape, array.dtype.str, array.flags.writeable))
        arrays[0][0] = 7
        arrays[2][:, 1:3] = 9
        arrays[-1]["one"] = 5

    given = (cu.shared(shared), cu.read(read_only), image, cu.write(unified), empty, records)
    token = stream.call(look, *given)
    token.wait()
    assert seen == [
        ((8,), "<i4", True),
        ((8,), "<i4", False),
        ((3, 4), "<u2", True),
        ((3,), "<c8", True),
        ((0,), "<f8", True),
        ((2,), records.dtype.str, True),
    ]
    assert token.reads == (read_only,)
    assert token.writes[:2] == (image, unified)
    assert shared[0] == 7
    assert (image.to_numpy()[:, 1:3] == 9).all()
    assert (records.to_numpy()["one"] == 5).all()


def test_boxes(stream):
    image = cu.LockedBuffer.zeros(64, "u1").reshape(8, 8)
    right = image[2:5, 4:]

    def fill(array):
        assert array.shape == (3, 4)
        array[:] = 3

    stream.call(fill, right)
    image[:, :4] = 1  # the other half is free
    stream.synchronize()
    assert image.to_numpy().sum() == 32 + 3 * 12


def test_memory_of_a_stream(stream):
    """New memory may be that of an earlier buffer, which is used until the function runs."""
    former = cu.LockedBuffer(1 << 16, stream=stream)
    former.fill_async(1, stream)
    del former
    buffer = cu.LockedBuffer(1 << 16, stream=stream)
    seen = []

    def function(array):
        array[:] = 5
        seen.append(array.size)

    stream.call(function, buffer).wait()
    assert seen == [1 << 16]
    assert (buffer.to_numpy() == 5).all()


@pytest.mark.parametrize("make", [cu.Stream.legacy, cu.Stream.per_thread])
def test_default_streams(make, work, host):
    stream = make()
    host.copy_from_async(work, stream)
    seen = []
    stream.call(lambda array: seen.append(array[3]), cu.read(host))
    stream.synchronize()
    assert seen == [3]


def test_streams_of_another_library(stream, host):
    theirs = cu.Stream.from_handle(stream.handle)
    theirs.call(nothing, host).wait()


def test_policies(stream, other, host, work):
    host.copy_from_async(work, stream)
    with cu.ordering("wait"):
        seen = []
        other.call(lambda array: seen.append(array[2]), host)
        assert host[3] == 3  # waits for both
    assert seen == [2]


# ---- what a function may do ----


def test_arrays_are_empty_afterwards(stream, host):
    kept = []
    stream.call(lambda array: kept.append(weakref.ref(array)), host).wait()
    assert kept[0]() is None


@pytest.mark.parametrize("escape", ["memoryview", "view", "array", "raises"])
def test_arrays_that_escape(stream, work, host, escape):
    kept = []

    def function(array):
        made = {"array": np.asarray, "view": lambda array: array[2:]}
        kept.append(made.get(escape, memoryview)(array))
        if escape == "raises":
            raise KeyError("lost")

    token = stream.call(function, host)
    wanted = KeyError if escape == "raises" else cu.BufferExportedError
    with pytest.raises(wanted) as found:
        token.wait()
    text = "\n".join([str(found.value), *getattr(found.value, "__notes__", [])])
    assert "array 0 of test_arrays_that_escape.<locals>.function, which Stream" in text
    assert "stays borrowed until that is gone" in text
    with pytest.raises(cu.BufferExportedError, match="a host view of it is alive, made at"):
        host.copy_from_async(work, stream)
    found = None
    kept.clear()
    gc.collect()
    host.copy_from_async(work, stream).wait()
    assert host[5] == 5


def test_an_exception_keeps_no_array(stream, host, work):
    def function(array):
        part = array[1:]
        raise LookupError(part.size)

    with pytest.raises(LookupError, match="15") as found:
        stream.call(function, host).wait()
    assert f"cudadrv: in {function.__qualname__}, which Stream" in found.value.__notes__[0]
    frame = found.traceback[-1].frame
    assert frame.f_locals["part"].size == frame.f_locals["array"].size == 0
    host.copy_from_async(work, stream).wait()


def test_each_exception_is_raised_once(stream, other, host):
    def fail(error):
        raise error

    stream.call(partial(fail, ValueError("one")))
    stream.call(partial(fail, KeyError("two")))
    token = other.call(partial(fail, TypeError("three")))
    with pytest.raises(ExceptionGroup, match="2 functions that streams called have failed") as both:
        stream.synchronize()
    assert [type(each) for each in both.value.exceptions] == [ValueError, KeyError]
    stream.synchronize()
    with pytest.raises(TypeError, match="three"):
        token.wait()
    token.wait()
    other.synchronize()


def test_waits_that_raise(stream, host):
    """Every wait of the program raises, and no question does."""

    def fail():
        raise ValueError("this")

    async def awaited(thing):
        await thing

    waits = [
        lambda token: token.wait(timeout=60),
        lambda token: stream.synchronize(),
        lambda token: stream.record().synchronize(),
        lambda token: stream.context.synchronize(),
        lambda token: stream.device.synchronize(),
        lambda token: asyncio.run(awaited(token)),
        lambda token: asyncio.run(awaited(stream)),
        lambda token: asyncio.run(awaited(stream.record())),
    ]
    for wait in waits:
        token = stream.call(fail)
        while not token.done:
            time.sleep(0.001)
        with pytest.raises(ValueError, match="this"):
            wait(token)
        wait(token)
    with pytest.raises(ValueError, match="this"), stream.scope():
        stream.call(fail)

    def fail_otherwise():
        with stream.scope():
            stream.call(fail)
            raise RuntimeError("another")

    with pytest.raises(RuntimeError, match="another") as found:
        fail_otherwise()
    assert not hasattr(found.value, "__notes__")
    with pytest.raises(ValueError, match="this"):
        stream.synchronize()
    # Blocking calls finish what they do; the exception stays for the next wait.
    stream.call(fail)
    assert host.view("u1").to_numpy().sum() == 0
    cu.DeviceBuffer(4).copy_from(np.zeros(4, "u1"), stream=stream)
    with pytest.raises(ValueError, match="this"):
        stream.synchronize()


def test_a_group_waits_for_all_its_streams(driver):
    """An exception of one stream's function does not end the wait for the other streams."""
    seen = []

    def fail():
        raise ValueError("this")

    def take_long():
        time.sleep(0.05)
        seen.append(1)

    def leave_the_block(error):
        with group.scope():
            queue()
            raise error

    def queue():
        group[0].call(fail)
        group[1].call(take_long)

    group = cu.StreamGroup(2)
    queue()
    with pytest.raises(ValueError, match="this"):
        group.synchronize()
    assert seen == [1]
    with pytest.raises(KeyError, match="another"):
        leave_the_block(KeyError("another"))
    assert seen == [1, 1]
    with pytest.raises(ValueError, match="this"):  # the block has not raised it
        group.synchronize(timeout=60)
    group.close()


def test_calls_that_wait_inside_raise_nothing(stream, host):
    """Their results are complete; the exception stays for the program's next wait."""

    def fail():
        raise ValueError("this")

    stream.call(fail)
    while not stream.done:
        time.sleep(0.001)
    array = cu.Array(COUNT, "f4")
    array.copy_from(host)
    array.copy_to(host)
    array.close()
    with pytest.raises(ValueError, match="this"):
        stream.synchronize()


def test_pipelines_raise(driver):
    """A function that a stage queues ends the run; closing closes everything before it raises."""

    def compute(stream, given, taken):
        stream.call(fail)

    def fail():
        raise ValueError("this")

    pipeline = cu.Pipeline(4, "f4", compute=compute)
    with pytest.raises(ValueError, match="this"):
        pipeline.run(np.zeros(4, "f4"))
    pipeline.streams[1].call(fail)
    with pytest.raises(ValueError, match="this"):
        pipeline.close()
    assert all(stream.closed for stream in pipeline.streams)


def test_exceptions_that_are_no_errors(stream):
    def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        stream.call(leave).wait()
    stream.call(leave)
    stream.call(leave)
    with pytest.raises(BaseExceptionGroup):
        stream.synchronize()


def test_many_exceptions(stream):
    """The oldest ones are reported when there are many."""

    def fail(number):
        raise ValueError(f"number {number}")

    def run():
        for number in range(65):
            stream.call(partial(fail, number))
        while not stream.done:
            time.sleep(0.001)

    with pytest.warns(cu.CudaWarning, match=r"nobody has waited for .*fail.*ValueError: number 0"):
        run()
    with pytest.raises(ExceptionGroup) as found:
        stream.synchronize()
    assert len(found.value.exceptions) == 64


def test_calls_of_cudadrv(stream, other, host, work):
    """Every call that uses the driver is refused, with the function and its line."""
    calls = [
        lambda: work.fill_async(1, other),
        lambda: other.synchronize(),
        lambda: other.record(),
        lambda: cu.DeviceBuffer(8),
        lambda: cu.LockedBuffer(8),
        lambda: host.close(),
        lambda: work.to_numpy(),
        lambda: cu.Stream(),
        lambda: stream.call(nothing),
        lambda: cu.reap(),
        lambda: cu.Device(0).synchronize(),
        lambda: host[0],
    ]
    found = []

    def function(array):
        for call in calls:
            try:
                call()
            except cu.HostFunctionError as error:
                found.append(str(error))

    token = stream.call(function, host)
    token.wait()
    assert len(found) == len(calls)
    assert found[0].startswith("test_calls_of_cudadrv.<locals>.function, which Stream "), found[0]
    assert f"queued at {token.site})" in found[0]
    work.fill_async(1, other).wait()  # other threads may call everything


def test_a_call_that_is_refused_in_a_function(stream, host):
    with pytest.raises(cu.HostFunctionError, match="cannot queue work, wait, or allocate"):
        stream.call(lambda array: host.fill(1), host).wait()


def test_destructors_in_a_function(stream, other):
    """The garbage collector may run in a function."""
    kept = [cu.DeviceBuffer(64), cu.Event(), cu.Stream(), other.record(), cu.LockedBuffer(8)]
    kept[0].fill_async(1, kept[2])
    cu.Device(0).synchronize()
    stream.call(kept.clear).wait()
    assert not kept


def test_references_are_dropped(stream, host):
    class Thing:
        def __call__(self, array):
            pass

    thing = Thing()
    alive = weakref.ref(thing)
    token = stream.call(thing, host)
    del thing
    token.wait()
    assert alive() is None


def test_while_a_function_runs_others_go_on(stream, other, work, way):
    """Another thread queues and waits for work on another stream."""
    running, free = threading.Event(), threading.Event()

    def function():
        running.set()
        free.wait(60)

    token = stream.call(function)
    if way == "words":
        while not running.wait(0.001):
            assert not stream.done
        work.fill_async(1, other).wait()
        assert not token.done
    free.set()
    token.wait()


# ---- bad input ----


def test_arguments(stream, host, work, unchanged):
    async def coroutine(array):
        pass

    def generator(array):
        yield array

    with unchanged("cuLaunchHostFunc"):
        with pytest.raises(TypeError, match=r"argument 1 of the function is DeviceBuffer 'work'"):
            stream.call(nothing, host, work)
        with pytest.raises(TypeError, match=r"argument 0 .* DeviceBuffer 'work'.*LockedBuffer"):
            stream.call(nothing, cu.read(work))
        with pytest.raises(TypeError, match=r"argument 0 of the function is ndarray"):
            stream.call(nothing, np.zeros(3))
        with pytest.raises(TypeError, match="function must be callable, and is LockedBuffer"):
            stream.call(host)
        for function in (coroutine, generator):
            with pytest.raises(TypeError, match="is a coroutine or generator function"):
                stream.call(function, host)
        with pytest.raises(ValueError, match=r"cudadrv.read, and .* as cudadrv.write, and they"):
            stream.call(nothing, cu.read(host[:4]), cu.write(host[2:]))
        closed = cu.LockedBuffer(4)
        closed.close()
        with pytest.raises(cu.BufferClosedError):
            stream.call(nothing, closed)
        with pytest.raises(TypeError):
            stream.call()
        read_only = np.zeros(4)
        read_only.flags.writeable = False
        with pytest.raises(BufferError, match="read-only"):
            stream.call(nothing, cu.LockedBuffer.from_memory(read_only))
        ended = cu.Stream()
        ended.close()
        with pytest.raises(ValueError, match="is closed"):
            ended.call(nothing)
    stream.call(nothing, cu.read(host), host, host).wait()


def test_a_closed_stream(host):
    """The function still runs, and keeps its buffers."""
    seen = []
    stream = cu.Stream()
    token = stream.call(lambda array: seen.append(array.size), host)
    stream.close()
    token.wait()
    assert seen == [COUNT]


def test_a_buffer_that_is_closed_behind_the_call(stream):
    """Closing on a stream is ordered after the call, which still has the memory."""
    try:
        pool = cu.DriverPool("locked")
    except ValueError as error:
        pytest.skip(str(error))
    with pool:
        buffer = cu.LockedBuffer(COUNT, "f4", stream=stream)
    seen = []
    buffer.fill_async(3, stream)
    stream.call(lambda array: seen.extend(array), buffer)
    buffer.close(stream)
    stream.synchronize()
    assert seen == [3] * COUNT
    del buffer
    cu.reap()
    pool.close()


def test_parts_that_are_dropped(stream):
    """A call that has not run keeps the memory, and not the part."""
    theirs = np.zeros(64, "u1")
    buffer = cu.LockedBuffer.from_memory(theirs)
    part, free = buffer[8:16], threading.Event()
    stream.call(free.wait)
    stream.call(lambda array: array.fill(3), part)
    alive = weakref.ref(part)
    del part
    assert alive() is None
    free.set()
    stream.synchronize()
    assert theirs.sum() == 24


def test_dropped_objects(host):
    seen = []
    cu.Stream().call(lambda array: seen.append(array.size), cu.LockedBuffer(5))
    gc.collect()
    cu.Device(0).synchronize()
    assert seen == [5]


# ---- waits that end early ----


def test_timeouts_and_interrupts(stream, way, driver):
    if way == "blocked":
        pytest.skip("a run that follows a script waits for the function")
    free = threading.Event()
    token = stream.call(lambda: free.wait(60))
    with pytest.raises(TimeoutError, match=r"is not complete after 0\.01 s"):
        token.wait(timeout=0.01)
    with interrupted():
        stream.synchronize()
    assert not token.done
    free.set()
    token.wait()


def test_threads(driver):
    """Several threads queue functions at the same time."""
    counts = [0] * 4

    def run(index):
        stream = cu.Stream()
        buffer = cu.LockedBuffer.zeros(4, "i8")

        def add(array):
            array += 1
            counts[index] += 1

        for _ in range(25):
            stream.call(add, buffer)
        stream.synchronize()
        assert buffer[0] == 25
        stream.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [25] * 4


# ---- contexts and processes ----


def test_a_context_of_its_own(driver):
    context = cu.Context.create(cu.Device(0))
    with context:
        stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(4)
        stream.call(lambda array: array.fill(3), buffer).wait()
        assert buffer[0] == 3
        context.synchronize()
        del stream, buffer
    del context
    gc.collect()


@pytest.mark.cuda_software
def test_a_lost_context(way, driver):
    """The function is not called, and its references are dropped."""
    if way == "blocked":
        pytest.skip("a run that follows a script runs no function behind a wait that never ends")
    seen = []

    class Function:
        def __call__(self, array):
            seen.append(array.size)

    function, stream, host = Function(), cu.Stream(), cu.LockedBuffer.zeros(COUNT)
    alive = weakref.ref(function)
    testing.configure("schedule=lazy")
    stream.call(function, host)
    del function
    testing.configure("fault=cuStreamQuery:1:719")
    with pytest.raises(cu.ContextLostError):
        stream.synchronize()
    assert alive() is None
    assert not seen
    with pytest.raises(cu.ContextLostError):
        stream.call(nothing, host)
