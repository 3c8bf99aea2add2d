"""The native threads of large copies: their number; a process that ends or forks while they run."""

import numpy as np
import pytest
from schedules import one_schedule

import cudadrv as cu
from cudadrv import _processors
from cudadrv._staging import Filling

HEAD = """
    import os, sys, threading, time
    from pathlib import Path
    import numpy as np
    import cudadrv as cu
    from cudadrv._staging import plan
    plan(threshold=5000, chunk=1 << 16, least=1 << 16, piece=1 << 12, ring=3)
    def copy_for_ever():
        buffer, array = cu.DeviceBuffer(8 << 20), np.zeros(8 << 20, "u1")
        while True:
            buffer.copy_from(array)
            buffer.copy_to(array)
"""


@pytest.mark.parametrize("end", ["pass", "sys.exit()", "os._exit(0)"])
def test_the_process_ends_while_threads_copy(script, end):
    script.quiet(
        HEAD
        + f"""
    plan(threads=4)
    for _ in range(3):
        threading.Thread(target=copy_for_ever, daemon=True).start()
    time.sleep(0.2)
    {end}
    """
    )


def test_an_exit_is_not_held_up_by_a_copy_that_waits(script):
    script.quiet(
        HEAD
        + """
    import ctypes
    plan(threads=4)
    stream, flag = cu.Stream(), cu.LockedBuffer.zeros(1, "u4")
    wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
    wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]
    with stream.device:
        assert wait(stream.handle, flag.address, 1, 0) == 0
    buffer, array = cu.DeviceBuffer(8 << 20), np.zeros(8 << 20, "u1")
    work = threading.Thread(
        target=buffer.copy_from, args=(array,), kwargs={"stream": stream}, daemon=True)
    work.start()
    time.sleep(0.1)
    """
    )


def test_a_child_has_no_threads_and_ends(script):
    script.quiet(
        HEAD
        + """
    plan(threads=4)
    threading.Thread(target=copy_for_ever, daemon=True).start()
    time.sleep(0.1)
    for _ in range(4):
        child = os.fork()
        if child == 0:
            assert len(os.listdir("/proc/self/task")) == 1
            try:
                cu.DeviceBuffer(1 << 20)
            except cu.ForkedError:
                sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    buffer, array = cu.DeviceBuffer(1 << 20), np.full(1 << 20, 3, "u1")
    buffer.copy_from(array)
    array[:] = 0
    buffer.copy_to(array)
    assert (array == 3).all()
    """
    )


def test_a_fork_while_threads_fill_a_buffer(script):
    """A forked child does not have the copying threads, and does not wait for them.

    The child drops a `Filling` that the parent's threads still fill.
    """
    script.quiet(
        HEAD
        + """
    from cudadrv._staging import Filling
    buffer, array = cu.LockedBuffer.zeros(64 << 20), np.full(64 << 20, 3, "u1")
    filling = Filling(buffer, array)
    child = os.fork()
    if child == 0:
        try:
            filling.end()
        except RuntimeError:
            del filling
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    nbytes, seconds = filling.end()
    assert nbytes == 64 << 20 and seconds > 0
    assert (buffer.to_numpy() == 3).all()
    """
    )


def test_a_buffer_that_is_being_filled_is_borrowed(driver):
    """A buffer is borrowed until its filling ends, is cancelled or is dropped."""
    array = np.arange(1 << 22, dtype="u1")
    buffer = cu.LockedBuffer(array.size)
    for end in (Filling.end, Filling.cancel, lambda filling: None):
        filling = Filling(buffer, array)
        with pytest.raises(cu.BufferExportedError):
            buffer.close()
        end(filling)
        del filling
        buffer.fill(0)
    with pytest.raises(ValueError, match="another size"):
        Filling(buffer, array[1:])
    buffer.fill(1)
    filling = Filling(buffer, array)
    with pytest.raises(RuntimeError, match="is running"):
        filling.__init__(buffer, array)
    filling.cancel()
    filling.cancel()
    with pytest.raises(RuntimeError, match="has ended"):
        filling.end()


def test_as_many_threads_as_are_asked_for(script):
    program = (
        HEAD
        + """
    buffer, array = cu.DeviceBuffer(8 << 20), np.zeros(8 << 20, "u1")
    print(plan()["threads"])
    buffer.copy_from(array)
    buffer.copy_from(array)
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    print(names.count("cudadrv-copy\\n"))
    """
    )
    for threads in (1, 2, 5):
        found = script.quiet(program, CUDADRV_COPY_THREADS=str(threads))
        assert found.split() == [str(threads), str(threads - 1)]
    usual, made = map(int, script.quiet(program, CUDADRV_COPY_THREADS="").split())
    assert 1 <= usual <= 12
    assert made == usual - 1


@one_schedule
@pytest.mark.parametrize("wrong", ["0", "65", "-1", "many", "2.5"])
def test_a_wrong_number_of_threads(script, wrong):
    program = """
        import cudadrv as cu
        buffer = cu.DeviceBuffer(1 << 23)
        buffer.copy_from(bytes(16)) if False else buffer[:16].copy_from(bytes(16))
        try:
            buffer.copy_from(bytes(1 << 23))
        except ValueError as error:
            print(error)
        print(buffer.borrowed)
    """
    found = script.quiet(program, CUDADRV_COPY_THREADS=wrong)
    assert f"CUDADRV_COPY_THREADS is {wrong!r}; it must be a number of threads" in found
    assert found.endswith("False\n")


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "1000 100000"}, 1),
        ({"cpu.max": "nonsense"}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    ],
    ids=str,
)
def test_processors(monkeypatch, tmp_path, files, most):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(_processors, "CGROUPS", tmp_path)
    for affinity in (1, 3, 64):
        monkeypatch.setattr(_processors.os, "sched_getaffinity", lambda _, n=affinity: range(n))
        monkeypatch.setattr(
            _processors.os, "process_cpu_count", lambda n=affinity: n, raising=False
        )
        assert _processors.usable_processors() == min(most, affinity)
