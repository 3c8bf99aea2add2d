"""Child and grandchild processes; processes that fork, are killed, or are replaced."""

import os
import signal
import subprocess
import sys
import time

import pytest
from limits import PATIENCE
from running import clean_environment, line


def ends(ran):
    return sorted(process["end"] for process in ran.report["processes"])


def test_a_program_in_c_that_is_linked_with_lcuda(run, c_client):
    ran = run("--devices=2", "--driver=12.4", "--", c_client, "init", "devices", "version")
    assert (ran.status, ran.out) == (3, "init 0 0\ndevices 0 2\nversion 0 12040\n")
    [process] = ran.report["processes"]
    assert process["command"] == [str(c_client), "init", "devices", "version"]
    assert (process["calls"], process["end"]) == (3, "exit")


def test_children_and_grandchildren(run, c_client):
    script = f"'{c_client}' init; sh -c \"'{c_client}' init devices; exec '{c_client}' init\""
    ran = run("--", "sh", "-c", script)
    assert ran.status == 3
    assert sorted(process["calls"] for process in ran.report["processes"]) == [1, 1, 2]
    assert "3 processes made 4 calls" in ran.err


def test_a_fork_before_the_driver_is_used(python):
    """After a fork before cuInit, parent and child can use the driver.

    Each writes its own report.
    """
    program = """
import os
unsupported(2)
if os.fork() == 0:
    unsupported()
    initialise()
    allocate(8)
    sys.exit()
os.wait()
"""
    ran = python(program)
    assert ran.status == 0
    counts = [process["unsupported_calls"] for process in ran.report["processes"]]
    assert sorted(count["cuCheckpointProcessLock"] for count in counts) == [1, 2]
    assert sorted(process["calls"] for process in ran.report["processes"]) == [2, 5]
    assert ends(ran) == ["exit", "exit"]


def test_a_fork_after_cuinit(python):
    """A child that is forked after cuInit cannot use the driver. The report names its calls."""
    program = """
import os
initialise()
if os.fork() == 0:
    for i in range(3):
        assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), 8) == 3
    sys.exit()
os.wait()
"""
    ran = python(program)
    child, parent = sorted(ran.report["processes"], key=lambda each: not each["calls_after_fork"])
    assert child["parent"] == parent["pid"]
    assert set(child["calls_after_fork"]) == {"cuMemAlloc_v2"}
    assert "Calls in children forked after cuInit: " in ran.err


def test_a_forked_child_that_calls_nothing(python):
    program = "import os\ninitialise()\nif os.fork() == 0: os._exit(0)\nos.wait()"
    assert len(python(program).report["processes"]) == 1


@pytest.mark.parametrize(("last", "status"), [("_exit", 5), ("kill", 137)])
def test_ends_without_exit_handlers(run, c_client, last, status):
    """A process that ends without exit handlers has a report with all its calls."""
    ran = run("--", c_client, "init", "context", "alloc", "stream", "many", last)
    assert ran.status == status
    [process] = ran.report["processes"]
    assert (process["end"], process["calls"]) == ("unknown", 1_000_005)
    assert process["alive"] == {"device": 1, "bytes": 1000, "streams": 1}
    assert process["unsupported_calls"] == {"cuCheckpointProcessLock": 1_000_000}


def test_processes_of_multiprocessing(python, tmp_path):
    """Processes of multiprocessing end by os._exit.

    Each opens the driver, because the parent has not.
    """
    program = """
import multiprocessing
def work(number):
    initialise()
    for i in range(number):
        allocate(100)
processes = [multiprocessing.get_context("fork").Process(target=work, args=(n,)) for n in (1, 2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
    assert process.exitcode == 0
"""
    ran = python(program)
    assert ran.status == 0
    assert sorted(process["alive"]["device"] for process in ran.report["processes"]) == [1, 2]
    assert ran.report["alive_at_exit"] == {"device": 3, "bytes": 300}


def test_a_process_that_becomes_another_program(python):
    program = "import os\ninitialise()\nallocate(7)\nos.execvp('true', ['true'])"
    ran = python(program)
    assert ran.report["alive_at_exit"] == {"device": 1, "bytes": 7}


def test_a_million_calls(run, c_client):
    ran = run("--", c_client, "many")
    assert ran.report["unsupported_calls"] == {"cuCheckpointProcessLock": 1_000_000}
    assert "  1000000 cuCheckpointProcessLock\n" in ran.err


def test_mistakes_without_end(python):
    """A report has at most 500 mistakes, so that it does not fill the disk."""
    program = """
initialise()
memory, one, two = allocate(1 << 19), stream(), stream()
for i in range(700):
    for handle in (one, two):
        call("cuMemsetD8Async", ctypes.c_uint64(memory.value), 1, ctypes.c_size_t(8), handle)
    cuda.cudadrvSoftForgetRaces()
"""
    ran = python(program)
    assert len(ran.report["data_races"]) == 500


def test_a_process_that_is_still_running(run, c_client, tmp_path):
    """The run ends although a background process still runs."""
    ended = tmp_path / "ended"
    code = (
        "import ctypes, os, time; ctypes.CDLL('libcuda.so.1').cuInit(0); print(os.getpid())\n"
        "os.close(1); os.close(2)\n"
        f"while not os.path.exists({str(ended)!r}): time.sleep(0.01)"
    )
    script = f'"{sys.executable}" -c "{code}" > pid & while [ ! -s pid ]; do sleep 0.05; done'
    try:
        ran = run("--", "sh", "-c", script)
        assert ran.status == 0
        assert ends(ran) == ["running"]
        assert "Still running: 1 process, of which this is not the end\n  process " in ran.err
    finally:
        ended.touch()


def test_a_program_that_closes_files_that_it_does_not_know(python, tmp_path):
    """A program closes the file of its report, and opens files that get the same number.

    The report is not written to these files.
    """
    program = """
import os
initialise()
os.closerange(3, 100)
others = [open(f"{n}", "w") for n in range(20)]
unsupported()
race()
"""
    ran = python(program)
    assert ran.report["unsupported_calls"] == {"cuCheckpointProcessLock": 1}
    assert [(tmp_path / f"{number}").read_text() for number in range(20)] == [""] * 20


def test_a_run_in_a_run(run, c_client):
    """A run inside a run: the reports of both have the calls of the inner command."""
    ran = run("--seed=4", "--", *line("--json", "inner.json", "--", c_client, "init", "many"))
    assert ran.status == 3
    assert ran.report["unsupported_calls"] == {"cuCheckpointProcessLock": 1_000_000}
    assert ran.err.count("1 process made 1,000,001 calls (seed=4") == 2


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1"])
def test_signals_go_on_to_the_command(tmp_path, name):
    """The run forwards a signal to its command, reports, and exits with the command's status."""
    code = (
        "import ctypes, signal, sys, time\n"
        "ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        f"signal.signal(signal.SIG{name}, lambda n, f: sys.exit(41))\n"
        "print('ready', flush=True)\ntime.sleep(100)"
    )
    number = getattr(signal, f"SIG{name}")
    started = subprocess.Popen(
        # The run does not forward ignored signals, and nohup makes the tests ignore SIGHUP.
        ["env", f"--default-signal={name}", *line("--", sys.executable, "-c", code)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Without a terminal, whose foreground processes get some signals directly.
        start_new_session=True,
    )
    with started:
        assert started.stdout.readline() == "ready\n"
        started.send_signal(number)
        _, told = started.communicate(timeout=PATIENCE)
    assert started.returncode == 41
    assert "1 process made 1 call " in told


@pytest.mark.parametrize("name", ["INT", "TERM", "KILL", "SEGV"])
def test_a_command_that_a_signal_ends(run, name):
    number = getattr(signal, f"SIG{name}")
    ran = run("--", "sh", "-c", f"kill -{name} $$")
    assert ran.status == 128 + number
    assert ran.report["exit_status"] == 128 + number


def in_terminal(*command):
    """Start a command in its own terminal. Returns the process and the other end of the terminal.

    pty.fork is not used, because libraries that are imported by now may warn about forks.
    """
    import pty

    terminal, end = pty.openpty()
    # A session gets the first terminal that it opens.
    code = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execvp(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
        env=clean_environment(),
    )
    os.close(end)
    return process, terminal


def test_ctrl_c_in_a_terminal():
    """A terminal sends Ctrl-C to the run and the command.

    The command gets it once; the run reports.
    """
    code = (
        "import ctypes, signal, time\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        "got = []\nsignal.signal(signal.SIGINT, lambda n, f: got.append(n))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.5)\nprint('got', len(got))\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\nsignal.raise_signal(signal.SIGINT)"
    )
    process, terminal = in_terminal(*line("--", sys.executable, "-c", code))
    told, deadline = b"", time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            told += os.read(terminal, 1000)
        except OSError:  # on Linux, this error means that the other end is closed
            break
        if told.endswith(b"ready\r\n"):
            os.write(terminal, b"\x03")
    os.close(terminal)
    assert process.wait(PATIENCE) == 130
    assert b"got 1\r\n" in told
    assert b"1 process made 1 call " in told


def test_signals_that_nohup_ignores_stay_ignored(run):
    code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    inner = line("--", sys.executable, "-c", code)
    ran = run("--", "sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *inner)
    assert ran.out == "True\n"


def test_the_command_does_not_ignore_what_python_ignores(run):
    ran = run("--", "sh", "-c", "kill -PIPE $$")
    assert ran.status == 128 + signal.SIGPIPE


def test_standard_input_and_output_are_those_of_the_run(tmp_path):
    done = subprocess.run(
        line("cat"), env=clean_environment(), input="words", capture_output=True, text=True
    )
    assert done.stdout == "words"
