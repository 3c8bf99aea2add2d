"""`cudadrv.trace` where something is wrong: files, nesting, forks, Ctrl-C, ends without an end."""

import signal
import warnings
from pathlib import Path

import pytest

import cudadrv as cu
from cudadrv import _trace
from cudadrv._trace_file import read

BEGIN = """
import os, signal, sys, time
import cudadrv as cu
stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
"""


def test_a_file_that_cannot_be_opened_is_an_error_at_the_begin(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/run\.pftrace"):
        cu.trace(tmp_path / "nowhere" / "run.pftrace").__enter__()
    with pytest.raises(IsADirectoryError):
        cu.trace(tmp_path).__enter__()
    with pytest.raises(TypeError, match="file must be a str or a path, not bytes"):
        cu.trace(b"run.pftrace")
    assert not _trace.is_on()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_warning_and_the_program_goes_on():
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with cu.trace("/dev/full"):
            for _ in range(100):
                buffer.fill_async(1, stream)
            stream.synchronize()
    (warning,) = warned
    assert warning.category is cu.CudaWarning
    assert "/dev/full ends early: No space left" in str(warning.message)


def test_nested_traces_are_refused_and_the_first_goes_on(tmp_path):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    outer = tmp_path / "outer.pftrace"
    with cu.trace(outer) as trace:
        for inner in (cu.trace(tmp_path / "inner.pftrace"), cu.profile(), trace):
            with pytest.raises(RuntimeError, match=r"outer\.pftrace was begun at tests/trace/"):
                inner.__enter__()
        buffer.fill_async(1, stream)
    assert not (tmp_path / "inner.pftrace").exists()
    assert any(each.name == "fill_async" for each in read(outer).slices)
    with cu.trace(outer):  # and it can be followed by another one
        pass
    assert not any(each.name == "fill_async" for each in read(outer).slices)
    stream.synchronize()


def test_an_exception_in_the_block_ends_the_trace(tmp_path):
    with pytest.raises(KeyError), cu.trace(tmp_path / "run.pftrace"):
        raise KeyError
    assert not _trace.is_on()


def test_a_trace_leaves_no_trace(tmp_path):
    """After the block, errors and the fast path are as before."""
    with cu.trace(tmp_path / "run.pftrace"):
        assert "__init__" in cu.OwnershipError.__dict__
    assert "__init__" not in cu.OwnershipError.__dict__


def test_a_forked_child_does_not_write_to_the_file(run_program, tmp_path):
    text = (
        BEGIN
        + """
with cu.trace("run.pftrace"):
    buffer.fill_async(1, stream)
    child = os.fork()
    if not child:
        try:
            buffer.fill_async(2, stream)
        except cu.ForkedError:
            print("forked", flush=True)
        else:
            os._exit(3)
    else:
        assert os.waitpid(child, 0)[1] == 0
        stream.synchronize()
        print(os.path.getsize("run.pftrace"), flush=True)
        time.sleep(0.15)
"""
    )
    done = run_program(text)
    assert "forked" in done.stdout
    trace = read(tmp_path / "run.pftrace")
    assert sum(each.name == "fill_async" and each.track.is_thread for each in trace.slices) == 1
    assert not any(each.category == "refusal" for each in trace.instants)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_ends_at_once_leaves_a_readable_file(run_program, tmp_path, end):
    text = (
        BEGIN
        + f"""
trace = cu.trace("run.pftrace").__enter__()
for _ in range(10):
    buffer.fill_async(1, stream)
stream.synchronize()
time.sleep(0.3)
{end}
"""
    )
    run_program(text, status=0 if "_exit" in end else -signal.SIGKILL)
    trace = read(tmp_path / "run.pftrace")
    assert sum(each.name == "fill_async" and each.track.is_thread for each in trace.slices) == 10


def test_a_file_that_is_cut_off_anywhere_is_readable(tmp_path):
    from cudadrv._trace_file import parse

    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    path = tmp_path / "run.pftrace"
    with cu.trace(path):
        buffer.fill_async(1, stream)
    data = path.read_bytes()
    for size in range(0, len(data), 37):
        parse(data[:size])
    stream.synchronize()


def test_ctrl_c_ends_the_trace_with_the_block(run_program, tmp_path):
    text = (
        BEGIN
        + """
with cu.trace("run.pftrace"):
    buffer.fill_async(1, stream)
    signal.raise_signal(signal.SIGINT)
"""
    )
    done = run_program(text, status=-signal.SIGINT)
    assert "KeyboardInterrupt" in done.stderr
    assert any(each.name == "fill_async" for each in read(tmp_path / "run.pftrace").slices)


def test_the_environment_variable_traces_the_whole_process(run_program, tmp_path):
    path = tmp_path / "run.pftrace"
    program = "import cudadrv as cu\ncu.DeviceBuffer(64).fill(1)\n"
    run_program(program, trace=path)
    assert any(each.name == "fill" for each in read(path).slices)


def test_a_second_process_writes_to_a_file_with_its_number(run_program, tmp_path):
    path = tmp_path / "run.pftrace"
    program = """
import subprocess, sys
import cudadrv as cu
cu.DeviceBuffer(64).fill(1)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""
    run_program(program, trace=path)
    names = sorted(each.name for each in tmp_path.glob("run*.pftrace"))
    assert len(names) == 2
    for name in names:
        assert any(each.name == "fill" for each in read(tmp_path / name).slices)


def test_an_environment_variable_with_a_bad_file_is_a_warning(run_program, tmp_path):
    program = "import cudadrv as cu\ncu.DeviceBuffer(64).fill(1)\nprint('went on')\n"
    done = run_program(program, trace=tmp_path / "nowhere" / "run.pftrace")
    assert done.stdout == "went on\n"
    assert done.stderr.count("CUDADRV_TRACE: no trace is written") == 1
