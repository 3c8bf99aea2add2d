"""`python -m cudadrv explore` finds a missing wait in programs of numba-cuda and cuda.core."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The command sets the schedule itself.
pytestmark = pytest.mark.parametrize("schedule", ["lazy"], indirect=True)
EXAMPLES = {"numba_frames.py": "__main__::double", "core_frames.py": "twice"}


def explored(name, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDADRV")}
    program = ROOT / "examples" / "interop" / name
    command = [sys.executable, "-m", "cudadrv", "explore", "--seconds", "500", "--"]
    return subprocess.run(
        # numba warns that the grid is small, and that the driver links.
        [*command, sys.executable, "-W", "ignore", str(program), *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )


def line_of(name, code):
    lines = (ROOT / "examples" / "interop" / name).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if code in line)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wait_is_missing(name):
    done = explored(name, "careless")
    assert done.returncode == 1, done.stderr
    assert "2 schedules, and one of them fails" in done.stderr
    kernel = EXAMPLES[name]
    launch = line_of(name, "double[1" if "numba" in name else "launch(compute")
    copy = line_of(name, "copy_to_device(" if "numba" in name else "copy_from(")
    first, before, second, advice = done.stderr.partition("nothing orders\n")[2].splitlines()[:4]
    assert first.startswith(f"  cuLaunchKernelEx of kernel '{kernel}' on stream ")
    assert first.endswith(f", queued at {name}:{launch}")
    assert before == "before"
    assert second.endswith(f", queued at {name}:{copy}")
    assert "cuStreamWaitEvent, for an event recorded on stream " in advice


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_right_form_is_complete(name):
    done = explored(name)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all frames are right\n"
    assert "1 schedule: complete" in done.stderr
