"""What is not explored: the result says so, and why."""

import ctypes
import mmap
import threading
import time

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing
from cudadrv._explore import TOO_LONG, Verdict, explore
from tests.explore.calls import Calls, run_all
from tests.explore.test_choices import FUNCTION, Driver
from tests.explore.test_host_uses import explored

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]

LOOP = """.version 7.8
.target sm_90
.address_size 64
.visible .entry loops(.param .u64 at, .param .u32 turns)
{
    .reg .pred %p1; .reg .b32 %r<3>; .reg .b64 %rd1;
    ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [turns]; mov.u32 %r2, 0;
    st.global.u32 [%rd1], %r1;
    again: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra again;
    ret;
}
"""


def limits_of(program):
    return run_all(program, most=20).limits


def test_a_long_kernel(cuda_device):
    """It may wait for other work, so what runs beside it is not all that could.

    What it uses is not known before it ends, so its order matters for everything.
    """
    kernel = cu.Module(LOOP)["loops"]

    def both(turns):
        def program():
            with cu.ordering("unchecked"), cu.DeviceBuffer.zeros(1, "u4", pooled=False) as word:
                one, other = cu.Stream(), cu.Stream()
                kernel.launch(1, 1, word, np.uint32(turns), stream=one)
                word.fill_async(7, other)
                one.synchronize()
                other.synchronize()
                found = np.empty(1, "u4")
                word.copy_to(found)
                one.close()
                other.close()
            return int(found[0])

        return run_all(program, most=20)

    found = both(10)
    assert (found.results, found.limits) == ({7, 10}, ())
    found = both(7_000_000)
    assert found.results == {7, 7_000_000}
    assert found.limits == ("a kernel runs long, or waits for other work",)


SPINS = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry spins(.param .u64 flag)
{
    .reg .b64 %rd1; .reg .b32 %r1; .reg .pred %p1;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
"""


def test_a_kernel_that_waits_for_the_host(cuda_device):
    """Queries go on, however often the program asks before it lets the kernel end."""

    def program():
        stream = cu.Stream()
        with cu.Module(SPINS) as module, cu.LockedBuffer.zeros(1, "u4") as flag:
            done = module["spins"].launch(1, 1, cu.shared(flag), stream=stream)
            assert not any(done.done for _ in range(20))
            flag[0] = 1
            done.wait()
        stream.close()

    found = explore(program, lambda _: Verdict.PASSED, most_runs=20)
    assert "a kernel runs long, or waits for other work" in found.limits


def test_registered_memory_of_another_library(cuda_device):
    """Early uses of it by the host are not seen."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    word = (ctypes.c_ubyte * 4).from_buffer(memory)
    address = ctypes.c_uint64(ctypes.addressof(word))

    def work(driver):
        driver._call("cuMemHostRegister_v2", address, ctypes.c_size_t(mmap.PAGESIZE), 0)
        driver._call("cuMemcpyAsync", address, driver.buffers[0], 4, driver.streams[0])
        driver._call("cuStreamSynchronize", driver.streams[0])
        driver._call("cuMemHostUnregister", address)

    (limit,) = limits_of(Driver(work, buffers=1))
    assert limit.endswith("if cudadrv and another library use the driver in one process")


def test_a_host_function_that_waits_for_the_host(cuda_device):
    def work(driver):
        go_on = threading.Event()
        function = FUNCTION(lambda _: go_on.wait(10) and None)
        driver._call("cuLaunchHostFunc", driver.streams[0], function, None)
        driver._do("ask", 0)
        driver._do("ask", 0)
        driver._do("ask", 0)
        go_on.set()
        driver._call("cuStreamSynchronize", driver.streams[0])

    assert "a host function waits for the host" in limits_of(Driver(work, buffers=1))


def test_polling(cuda_device):
    def work(driver):
        driver.fill(0, 0, 1)
        while not driver._do("ask", 0):
            pass

    limits = limits_of(Driver(work, buffers=1))
    assert limits == ("a program that asks again and again gets two early answers at most",)


def test_a_wait_that_another_thread_ends(cuda_device):
    """It may be that the thread does not end it in another run."""

    def work(driver):
        def write():
            with cu.Device(0):
                driver._call("cuStreamQuery", driver.streams[1])
                time.sleep(1.5)
                driver._call("cuStreamWriteValue32_v2", driver.streams[1], driver.buffers[0], 9, 0)
                driver._call("cuStreamQuery", driver.streams[1])

        thread = threading.Thread(target=write)
        thread.start()
        driver._call("cuStreamWaitValue32_v2", driver.streams[0], driver.buffers[0], 9, 1)
        driver._call("cuStreamSynchronize", driver.streams[0])
        thread.join()

    limits = limits_of(Driver(work, buffers=1))
    assert set(limits) >= {"a wait did not end", "several threads call the driver"}


def test_searches_in_two_threads_one_after_the_other(cuda_device):
    """Each run has one thread."""
    program, found = Calls([("fill", 0, 0, 1)]), []

    def search():
        found.append(run_all(program).limits)

    search()
    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert found == [(), ()]


@pytest.mark.parametrize("count", [3000, 100_000])
def test_many_operations(cuda_device, count):
    """The time and the memory for finding conflicts would grow with the square of the steps."""

    def work(driver):
        for _ in range(count):
            driver._call("cuMemsetD8Async", driver.buffers[0], 1, 4, driver.streams[0])

    driver = Driver(work, buffers=1)
    found = explore(driver, lambda _: Verdict.PASSED)
    assert found.runs == 1
    assert found.limits == (() if count < 4000 else ("the test has more than 4000 steps",))


@pytest.mark.parametrize("count", [1000, 20_000])
def test_a_batch_of_many_copies(cuda_device, count):
    """Each copy of a smaller one is an operation of its own stream."""
    source, target = (cu.DeviceBuffer.zeros(count, "u1", pooled=False) for _ in range(2))
    pairs = list(zip(target.chunks(1), source.chunks(1), strict=True))

    def program():
        with cu.Stream() as stream:
            cu.copy_batch(pairs, stream).wait()

    found = explore(program, lambda _: Verdict.PASSED)
    assert found.runs == 1
    many = "a batch has more than 1000 copies, whose order is not explored"
    assert found.limits == ((many,) if count > 1000 else ())


@pytest.mark.parametrize("call", ["free", "copy"])
def test_how_many_runs_have_all_waits(cuda_device, call):
    """One, if a call could wait for unfinished work."""

    def runs_of(pending):
        runs = []

        def work(driver):
            runs.append(pending)
            made = ctypes.c_uint64()
            driver._call("cuMemAlloc_v2", ctypes.byref(made), 4)
            if pending:
                driver.fill(0, 0, 1)
            if call == "copy":
                bytes_ = ctypes.c_size_t(4)
                driver._call("cuMemcpyHtoDAsync_v2", made, b"text", bytes_, driver.streams[1])
                driver._call("cuCtxSynchronize")
            driver._call("cuMemFree_v2", made)

        found = explore(Driver(work, buffers=1), lambda _: Verdict.PASSED)
        assert (found.runs, found.limits) == (1, ())
        return len(runs)

    assert runs_of(pending=True) == runs_of(pending=False) + 1


def test_time(cuda_device):
    calls = Calls([("fill", n % 3, 0, n) for n in range(9)])

    def slow():
        time.sleep(0.05)
        return calls()

    found = explore(slow, lambda _: Verdict.PASSED, seconds=0.2)
    assert found.limits == (TOO_LONG.format(0.2),)
    assert testing.settings()["schedule"] != "replay"


# ---- of programs ----


def test_a_host_function_before_a_use_by_python(tmp_path):
    """The interpreter's lock is held when Python uses memory, and the function needs it."""
    done = explored(
        tmp_path,
        "function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)\n"
        "copy(host, device, 4)\ncall('cuLaunchHostFunc', other, function, None)\n"
        "value = view[0]\nwait()\nwait(other)\n",
    )
    assert "host functions do not run before a use of memory by Python" in done.stderr


def test_several_processes(tmp_path):
    child = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    code = f"import subprocess\nassert subprocess.call([sys.executable, '-c', {child!r}]) == 0\n"
    done = explored(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "not complete: several processes call the driver" in done.stderr


def test_memory_in_too_many_pieces(tmp_path):
    """Each page of which the host may use another part than its neighbours is a mapping."""
    code = """
rows = 33_000
host, view = locked(8192 * rows)
class Copy(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "x", "y", "type", "source", "of", "array", "pitch",
        "to_x", "to_y", "to_type", "target", "to", "to_array", "to_pitch", "width", "height")]
copy_rows = Copy(type=2, of=device.value, pitch=1, to_type=1, target=host.value, to_pitch=8192,
                 width=1, height=rows)
call("cuMemcpy2DAsync_v2", ctypes.byref(copy_rows), stream)
value = view[1]
wait()
"""
    done = explored(tmp_path, code)
    assert (
        "uses of page-locked memory by the host are not seen, because the system does not split"
        " this memory into so many pieces"
    ) in done.stderr
