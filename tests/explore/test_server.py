"""Runs of a program that begin at its first call of the driver, in children of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

from tests.explore.driver_calls import DRIVER_CALLS

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]
ROOT = Path(__file__).resolve().parents[2]
START = """
import ctypes, os, random, signal, socket, subprocess, sys, tempfile, threading, time

with open("starts", "a") as file:
    file.write(f"{os.getpid()}\\n")
print("begins", flush=True)
"""
# Two streams, with two fills each: there are six orders.
WORK = f"""
{DRIVER_CALLS}streams = [made("cuStreamCreate", 1) for _ in range(2)]
memory = made("cuMemAlloc_v2", ctypes.c_size_t(4))
for value in range(4):
    call("cuMemsetD8Async", memory, value, ctypes.c_size_t(4), streams[value % 2])
for stream in streams:
    call("cuStreamSynchronize", stream)
found = (ctypes.c_ubyte * 4)()
call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(4))
"""
ORDERS = 6


class Explored:
    """What exploring a program has printed, and how often the program was started."""

    def __init__(self, folder, code, *options):
        (folder / "program.py").write_text(code)
        names = ("CUDADRV", "PYTEST")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        command = [sys.executable, "-m", "cudadrv", "explore", "--json", "found.json", *options]
        done = subprocess.run(
            [*command, "--", sys.executable, "program.py"],
            env={**environment, "PYTHONPATH": str(ROOT)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr
        starts = folder / "starts"
        self.starts = starts.read_text().split() if starts.exists() else []
        assert not [pid for pid in self.starts if Path(f"/proc/{pid}").exists()]
        found = folder / "found.json"
        self.found = json.loads(found.read_text() or "{}") if found.exists() else {}


def test_all_runs_have_one_start(tmp_path):
    """One more process at the end confirms what the children of the first one did."""
    done = Explored(tmp_path, START + WORK + "print('ends', found[0])\n")
    assert done.found["schedules"] == ORDERS, done.errors
    assert len(done.starts) == 2
    assert done.output == "begins\nends 3\n"


def test_the_exit_status_and_output_of_a_failing_run(tmp_path):
    code = START + "print('is buffered')\n" + WORK + "print(found[0])\nsys.exit(7 * found[0])\n"
    done = Explored(tmp_path, code.replace("range(4)", "range(2)"))
    assert done.found["failure"]["exit_status"] == 7, done.errors
    assert done.output == "begins\nis buffered\n1\n"
    assert len(done.starts) == 2


@pytest.mark.parametrize(
    "code",
    [
        "threading.Thread(target=time.sleep, args=(0.3,)).start()",
        "file = open('written', 'w')",
        "pair = socket.socketpair()",
        "pair = os.pipe()",
        "child = subprocess.Popen(['sleep', '0.2'], stdout=subprocess.DEVNULL,"
        " stderr=subprocess.DEVNULL)",
        "import mmap; shared = mmap.mmap(-1, 4096)",
        "signal.setitimer(signal.ITIMER_VIRTUAL, 1000)",
        "signal.signal(signal.SIGCHLD, lambda *_: None)",
    ],
    ids=["thread", "file", "socket", "pipe", "child", "memory", "timer", "handler"],
)
def test_what_children_would_share_or_lack(tmp_path, code):
    """Each run is a new process then."""
    done = Explored(tmp_path, START + code + "\n" + WORK)
    assert done.found["schedules"] == ORDERS, done.errors
    assert len(done.starts) == ORDERS


def test_a_child_of_the_command_calls(tmp_path):
    """It ends before the command does, so it cannot stand for the command."""
    (tmp_path / "inner.py").write_text("import ctypes\n" + WORK)
    outer = START + "sys.exit(subprocess.call([sys.executable, 'inner.py']))\n"
    done = Explored(tmp_path, outer)
    assert done.found["schedules"] == ORDERS, done.errors
    assert len(done.starts) == ORDERS


def test_files_are_read_from_where_they_were(tmp_path):
    (tmp_path / "data").write_bytes(b"0123456789")
    code = (
        "file = open('data', 'rb', buffering=0)\nassert file.read(2) == b'01'\n"
        + WORK
        + "assert file.read(3) == b'234'\n"
    )
    done = Explored(tmp_path, START + code)
    assert done.status == 1  # the data race
    assert done.found["failure"]["exit_status"] == 0, done.errors
    assert len(done.starts) == 2


def test_a_folder_that_each_run_removes(tmp_path):
    """The first child removes it for all others, which fail. New processes do not."""
    code = (
        "folder = tempfile.TemporaryDirectory(dir='.')\n"
        + WORK
        + "open(os.path.join(folder.name, 'file'), 'w').close()\nfolder.cleanup()\n"
    )
    done = Explored(tmp_path, START + code)
    assert done.found["schedules"] == ORDERS, done.errors
    assert done.found["failure"]["exit_status"] == 0


def test_a_random_number_before_the_first_call(tmp_path):
    """All children have the same one, and a new process another one."""
    before = (
        "for _ in range(int.from_bytes(seed) % 1000):\n"
        "    call('cuMemsetD8Async', memory, 0, ctypes.c_size_t(4), streams[0])\n"
        "call('cuStreamSynchronize', streams[0])\n"  # or there would be many more orders
    )
    code = "seed = os.urandom(2)\n" + WORK.replace("for value", before + "for value")
    done = Explored(tmp_path, START + code)
    assert done.status == 1
    assert "the test cannot be repeated" in done.errors


def test_a_program_that_does_not_end(tmp_path):
    code = START + WORK + "if found[0] == 2:\n    time.sleep(1000)\n"
    done = Explored(tmp_path, code, "--seconds=2")
    assert done.status == 1
    assert "did not end within 2 s" in done.errors


def test_a_program_that_is_killed(tmp_path):
    code = START + WORK + "if found[0] == 2:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    done = Explored(tmp_path, code)
    assert done.status == 3
    assert "exit status -9" in done.errors


def test_memory_is_that_of_a_new_process(tmp_path):
    """What a run changes in the program's own memory, later runs do not see."""
    code = "state = [0]\n" + WORK + "state[0] += 1\nassert state == [1]\n"
    done = Explored(tmp_path, START + code)
    assert done.found["failure"]["exit_status"] == 0, done.errors
    assert len(done.starts) == 2
