"""What the host may do with pages while operations use them. Nothing here ends the process."""

import asyncio
import gc
import os
import signal
import threading

import numpy as np
import pytest
from in_threads import started

import cudadrv as cu

PAGE = os.sysconf("SC_PAGESIZE")

pytestmark = pytest.mark.cuda_allow("unfinished")


@pytest.fixture
def frames(guarded):
    return cu.LockedBuffer(4 * PAGE, name="frames")


@pytest.fixture
def work(driver):
    work = cu.DeviceBuffer(4 * PAGE, name="work")
    work.fill(7)
    return work


def of_pages(rights, buffer):
    return [rights(buffer.address + page * PAGE) for page in range(4)]


# ---- how protection ends ----

ENDS = {
    "token.wait": lambda token, stream: token.wait(),
    "token.done": lambda token, stream: wait_until_done(token),
    "stream.synchronize": lambda token, stream: stream.synchronize(),
    "event.synchronize": lambda token, stream: stream.record().synchronize(),
    "event.done": lambda token, stream: wait_until_done(stream.record()),
    "context.synchronize": lambda token, stream: stream.context.synchronize(),
    "device.synchronize": lambda token, stream: stream.device.synchronize(),
    "await": lambda token, stream: asyncio.run(awaited(token)),
    "a later wait of another stream": lambda token, stream: behind(token).synchronize(),
}


def wait_until_done(thing):
    while not thing.done:
        pass


async def awaited(token):
    await token


def behind(token):
    other = cu.Stream()
    other.wait(token)
    return other


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_pages_that_are_written(rights, frames, work, stream, end):
    token = work.copy_to_async(frames, stream)
    assert rights(frames.address) == "none"
    end(token, stream)
    assert rights(frames.address) == "all"
    assert (frames.to_numpy() == 7).all()


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_pages_that_are_read(rights, frames, work, stream, end):
    frames[:] = 3
    token = work.copy_from_async(frames, stream)
    assert rights(frames.address) == "read"
    end(token, stream)
    assert rights(frames.address) == "all"
    assert (work.to_numpy() == 3).all()


def test_blocking_calls_end_what_they_begin(rights, frames, work):
    frames.copy_from(work)
    work.copy_from(frames)
    frames.fill(1)
    assert of_pages(rights, frames) == ["all"] * 4


def test_a_call_that_fails_protects_nothing(rights, frames, work, stream, other):
    token = work.copy_to_async(frames, stream)
    with pytest.raises(cu.BufferBorrowedError):
        frames.fill_async(1, other)
    token.wait()
    assert rights(frames.address) == "all"


# ---- which pages ----


def test_only_pages_whose_bytes_are_all_in_use(rights, frames, stream, other):
    frames[PAGE : 2 * PAGE].fill_async(1, stream)
    assert of_pages(rights, frames) == ["all", "none", "all", "all"]
    frames[2 * PAGE + 1 : 4 * PAGE].fill_async(1, other)
    assert of_pages(rights, frames) == ["all", "none", "all", "none"]
    frames[2 * PAGE] = 1  # so this does not fault
    stream.synchronize()
    assert of_pages(rights, frames) == ["all", "all", "all", "none"]
    other.synchronize()
    assert of_pages(rights, frames) == ["all"] * 4


def test_operations_that_share_a_page(rights, frames, work, stream, other):
    half = PAGE // 2
    frames[:half].fill_async(1, stream)
    assert rights(frames.address) == "all"
    frames[half:PAGE].fill_async(1, other)
    assert rights(frames.address) == "none"
    stream.synchronize()
    frames[:half] = 2
    work[:half].copy_from_async(frames[:half], stream)
    assert rights(frames.address) == "read"  # one half is read, and the other one written
    other.synchronize()
    assert rights(frames.address) == "all"  # the other half may be used
    stream.synchronize()


@pytest.mark.parametrize("nbytes", [1, 100, PAGE - 1, PAGE, PAGE + 1])
def test_buffers_have_pages_of_their_own(rights, guarded, stream, nbytes):
    buffers = [cu.LockedBuffer(nbytes) for _ in range(3)]
    buffers[1].fill_async(1, stream)
    assert [rights(each.address) for each in buffers] == ["all", "none", "all"]
    assert rights(buffers[1].address + nbytes - 1) == "none"
    stream.synchronize()
    assert [rights(each.address) for each in buffers] == ["all"] * 3


def test_boxes(rights, guarded, stream):
    wide = cu.LockedBuffer(8 * PAGE).reshape(4, 2 * PAGE)
    wide[:, :PAGE].fill_async(1, stream)
    assert of_pages(rights, wide) == ["none", "all", "none", "all"]
    stream.synchronize()
    narrow = cu.LockedBuffer(4 * PAGE).reshape(8, PAGE // 2)
    narrow[:, : PAGE // 4].fill_async(1, stream)
    assert of_pages(rights, narrow) == ["all"] * 4  # each page has bytes that nothing uses
    stream.synchronize()


def test_the_memory_of_others_is_told(guarded, driver):
    array = np.zeros(4 * PAGE, "u1")
    buffer = cu.LockedBuffer.from_memory(array, name="mine")
    if driver != "cuda":
        (found,) = guarded.unguarded
        assert found.startswith("LockedBuffer 'mine', made at ")
        assert found.endswith(": it is registered memory, which the software driver itself uses")
    buffer.close()


@pytest.mark.cuda_gpu
def test_memory_of_the_program(rights, guarded, work, stream):
    array = np.zeros(6 * PAGE, "u1")
    start = -array.ctypes.data % PAGE
    part = array[start : start + 4 * PAGE]
    buffer = cu.LockedBuffer.from_memory(part)
    token = work.copy_to_async(buffer, stream)
    assert rights(part.ctypes.data) == "none"
    token.wait()
    assert rights(part.ctypes.data) == "all"
    assert (part == 7).all()


# ---- buffers that end ----


def test_a_dropped_buffer_stays_protected(rights, frames, work, stream):
    address = frames.address
    work.copy_to_async(frames, stream)
    del frames
    gc.collect()
    assert rights(address) == "none"
    stream.synchronize()
    assert rights(address) == "all"


def test_memory_of_a_pool_is_free_for_its_next_owner(rights, guarded, work, stream):
    seen = set()
    for turn in range(20):
        buffer = cu.LockedBuffer(4 * PAGE, name=f"turn {turn}")
        assert rights(buffer.address) == "all"
        buffer[:] = turn
        seen.add(buffer.address)
        work.copy_from_async(buffer, stream)
        assert rights(buffer.address) == "read"
        del buffer
        if turn % 3 == 2:
            stream.synchronize()
    stream.synchronize()
    assert len(seen) < 20  # some memory was used again


def test_memory_that_is_allocated_on_a_stream(rights, guarded, work, stream):
    with stream:
        first = cu.LockedBuffer(4 * PAGE)
        work.copy_to_async(first, stream)
        address = first.address
        del first
        second = cu.LockedBuffer(4 * PAGE)
        work.copy_to_async(second, stream)
        assert second.address == address
        assert rights(address) == "none"
        third = cu.LockedBuffer(4 * PAGE)
        third[:] = 1  # the host is its first user
        assert rights(third.address) == "all"
    stream.synchronize()
    assert rights(address) == "all"
    assert (second.to_numpy() == 7).all()


def test_closed_buffers(rights, frames, work, stream):
    address = frames.address
    token = work.copy_to_async(frames, stream)
    with pytest.raises(cu.BufferBorrowedError):
        frames.close()
    token.wait()
    frames.close()
    assert rights(address) == "all"


@pytest.mark.parametrize("pooled", [True, False])
def test_memory_that_is_freed(guarded, work, stream, unpooled, pooled):
    for _ in range(3):
        buffer = cu.LockedBuffer(4 * PAGE, pooled=pooled)
        work.copy_to_async(buffer, stream)
        del buffer
        cu.reap()
    for _ in range(3):
        buffer = cu.LockedBuffer(4 * PAGE, pooled=pooled)
        work.copy_to_async(buffer, stream).wait()
        buffer.close()


def test_memory_that_is_given_away(rights, frames, work, stream):
    work.copy_to_async(frames, stream).wait()
    address = frames.into_raw()
    assert rights(int(address)) == "all"
    again = cu.LockedBuffer.from_raw(address, 4 * PAGE)
    work.copy_to_async(again, stream)
    assert rights(again.address) == "none"
    stream.synchronize()


# ---- what the host may do all the same ----


def test_views_without_an_order(rights, frames, work, stream):
    work.copy_to_async(frames, stream)
    with cu.ordering("unchecked"), frames.read() as array:
        assert rights(frames.address) == "read"
        assert len(array) == len(frames)
    stream.synchronize()
    assert rights(frames.address) == "all"


def test_functions_that_a_stream_calls(rights, frames, work, stream):
    seen = []

    def function(array):
        seen.append(rights(array.ctypes.data))
        array[0] += 1

    work.copy_to_async(frames, stream)
    token = stream.call(function, frames)
    assert rights(frames.address) == "none"
    token.wait()
    assert seen == ["all"]
    assert rights(frames.address) == "all"
    assert frames[0] == 8


def test_functions_that_only_read(rights, frames, work, stream):
    seen = []
    work.copy_to_async(frames, stream)
    stream.call(lambda array: seen.append(rights(array.ctypes.data)), cu.read(frames)).wait()
    assert seen == ["read"]


def test_functions_with_empty_buffers(rights, frames, work, stream):
    empty = cu.LockedBuffer(0)
    for _ in range(3):
        stream.call(lambda nothing, array: array.fill(5), empty, frames).wait()
    work.copy_to_async(frames, stream)
    assert rights(frames.address) == "none"
    stream.synchronize()


def test_signals_are_not_guarded(guarded, stream):
    signal_ = cu.Signal()
    stream.set(signal_, 3)
    signal_.wait(3)
    assert signal_.value == 3


# ---- guards ----


@pytest.mark.usefixtures("no_other_guard")
def test_nested_guards(rights, work, stream):
    with cu.guard():
        buffer = cu.LockedBuffer(4 * PAGE)
        with cu.guard():
            work.copy_to_async(buffer, stream)
        assert rights(buffer.address) == "none"
    assert rights(buffer.address) == "all"
    stream.synchronize()


@pytest.mark.usefixtures("no_other_guard")
def test_a_guard_that_ends_while_work_is_in_flight(rights, work, stream):
    with cu.guard():
        buffer = cu.LockedBuffer(4 * PAGE)
        work.copy_to_async(buffer, stream)
        assert rights(buffer.address) == "none"
    assert rights(buffer.address) == "all"
    with cu.guard():  # the memory is one that can be guarded, so the work counts again
        assert rights(buffer.address) == "none"
        stream.synchronize()
        assert rights(buffer.address) == "all"


@pytest.mark.usefixtures("no_other_guard")
def test_a_guard_that_is_dropped(rights, work, stream):
    guard = cu.guard()
    guard.__enter__()
    buffer = cu.LockedBuffer(4 * PAGE)
    work.copy_to_async(buffer, stream)
    assert rights(buffer.address) == "none"
    del guard
    gc.collect()
    assert rights(buffer.address) == "all"
    stream.synchronize()


def test_a_block_is_entered_once(driver):
    guard = cu.guard()
    assert repr(guard) == "<guard, not entered>"
    with guard:
        assert repr(guard) == "<guard, entered>"
        with pytest.raises(RuntimeError, match="entered already"):
            guard.__enter__()
    with guard:  # but again later
        pass


@pytest.mark.usefixtures("no_other_guard")
def test_without_a_guard_nothing_is_protected(rights, work, stream):
    buffer = cu.LockedBuffer(4 * PAGE)
    work.copy_to_async(buffer, stream)
    assert rights(buffer.address) == "all"
    stream.synchronize()


# ---- together with others ----


def test_graphs(rights, frames, work, stream):
    graph = cu.Graph()
    with graph.capture(stream):
        work.copy_to_async(frames, stream)
    assert rights(frames.address) == "all"  # nothing is in flight
    executable = graph.instantiate()
    for _ in range(3):
        for _ in range(3):
            token = executable.launch(stream)
            assert rights(frames.address) == "none"
        token.wait()
        assert rights(frames.address) == "all"


def test_traces(rights, frames, work, stream, tmp_path):
    with cu.trace(tmp_path / "one.pftrace"):
        token = work.copy_to_async(frames, stream)
        assert rights(frames.address) == "none"
        token.wait()
        assert rights(frames.address) == "all"
    work.copy_to_async(frames, stream).wait()  # the end of the trace ends no guard
    assert rights(frames.address) == "all"


def test_threads(rights, guarded, driver):
    def turns():
        stream, work = cu.Stream(), cu.DeviceBuffer(2 * PAGE)
        for turn in range(30):
            buffer = cu.LockedBuffer(2 * PAGE)
            buffer[:] = turn
            work.copy_from_async(buffer, stream)
            token = work.copy_to_async(buffer, stream)
            token.wait()
            assert (buffer.to_numpy() == turn).all()
            if turn % 2:
                work.copy_to_async(buffer, stream)  # left to the memory's next owner
        stream.synchronize()
        return "done"

    threads = [started(turns) for _ in range(4)]
    for thread, answers in threads:
        thread.join()
        assert answers == ["done"]


def test_one_thread_waits_for_what_another_one_queues(rights, frames, work, stream):
    tokens, answers = [], []
    queued, waited = threading.Barrier(2), threading.Barrier(2)

    def wait():
        for _ in range(50):
            queued.wait()
            tokens.pop().wait()
            answers.append(rights(frames.address))
            waited.wait()

    thread, _ = started(wait)
    for _ in range(50):
        tokens.append(work.copy_to_async(frames, stream))
        queued.wait()
        waited.wait()
    thread.join()
    assert answers == ["all"] * 50


def test_an_interrupt_of_a_wait_changes_nothing(rights, frames, work, stream, gate):
    gate.hold(stream)
    token = work.copy_to_async(frames, stream)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            token.wait()
    finally:
        signal.signal(signal.SIGALRM, former)
    assert rights(frames.address) == "none"
    gate.open()
    token.wait()
    assert rights(frames.address) == "all"


def test_a_wait_that_runs_out_of_time(rights, frames, work, stream, gate):
    gate.hold(stream)
    token = work.copy_to_async(frames, stream)
    with pytest.raises(TimeoutError):
        token.wait(timeout=0.01)
    assert rights(frames.address) == "none"
    gate.open()
    token.wait()
    assert rights(frames.address) == "all"


@pytest.mark.cuda_software
def test_a_lost_device_leaves_nothing_protected(run_program, driver):
    program = """
from cudadrv import testing
module = cu.Module('''.version 8.0
.target sm_70
.address_size 64
.visible .entry bad() { .reg .u64 %a; mov.u64 %a, 16; st.global.u32 [%a], 1; ret; }''')
token = written()
module["bad"].launch(1, 1, stream=down)
try:
    down.synchronize()
except cu.ContextLostError:
    print(ctypes.string_at(address, 1))
testing.reset_device()
"""
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("b'")


@pytest.mark.cuda_software
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_copy(run_program):
    program = """
import os
frames[:] = 5
token = read()
child = os.fork()
if not child:
    assert ctypes.string_at(address, 1) == b'\\x05'
    ctypes.memset(address, 9, 4)    # the parent does not see this
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
token.wait()
print(frames[0])
"""
    done = run_program(program)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


# ---- the environment ----


def test_a_wrong_value_of_the_variable(run_program):
    done = run_program("", begin="import cudadrv as cu\ncu.driver_info()\n", guard="yes")
    assert "ValueError: CUDADRV_GUARD is 'yes'; it must be 0 or 1" in done.stderr


def test_a_right_program(run_program):
    program = """
for turn in range(10):
    frames[:] = turn
    read().wait()
    written().wait()
    assert ctypes.string_at(address, 1) == bytes([turn])
"""
    done = run_program(program)
    assert (done.returncode, done.stderr) == (0, "")


# ---- managed memory ----


@pytest.mark.cuda_software
def test_managed_memory_where_work_excludes_the_host(run_program):
    program = """
managed = cu.UnifiedBuffer(16384, name="managed")
managed[:] = 3
address = managed.address
token = work.fill_async(1, up)      # any work of the device
ctypes.string_at(address + 5000, 1)
"""
    settings = f"{os.environ.get('CUDADRV_SOFTWARE', '')},concurrent_managed=0"
    done = run_program(program, CUDADRV_SOFTWARE=settings)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    first, place, *rest = done.stderr.splitlines()
    assert first == (
        "cudadrv: the host reads UnifiedBuffer 'managed', made at program.py:17, at its byte 5000,"
    )
    assert place.startswith("  at program.py:21, in ")
    assert rest == [
        "  while fill_async on Stream 'up', queued at program.py:20 may be unfinished, and work of"
        " that device",
        "  excludes the host from all managed memory (concurrent_managed_access is 0).",
        "  Wait first: up.synchronize() or token.wait().",
        "cudadrv: a page guard ends the process here: docs/guard.md",
    ]


@pytest.mark.cuda_software
def test_managed_memory_that_may_be_used(run_program):
    program = """
managed = cu.UnifiedBuffer(16384, name="managed")
for turn in range(5):
    work.copy_from_async(managed, up).wait()
    ctypes.memset(managed.address, 5, 16384)
    del managed
    managed = cu.UnifiedBuffer(16384)
"""
    settings = f"{os.environ.get('CUDADRV_SOFTWARE', '')},concurrent_managed=0"
    done = run_program(program, CUDADRV_SOFTWARE=settings)
    assert (done.returncode, done.stderr) == (0, "")


def test_managed_memory_beside_work(guarded, rights, work, stream):
    """Where devices and the host may use managed memory at once, it is not guarded."""
    if not cu.Device(0).attribute("concurrent_managed_access"):
        pytest.skip("work excludes the host")
    managed = cu.UnifiedBuffer(4 * PAGE)
    work.copy_to_async(managed, stream)
    assert rights(managed.address) == "all"
    stream.synchronize()
