"""mpi4py: page-locked memory that is lent to MPI, which works on no stream."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STENCIL = HERE.parents[1] / "examples" / "distributed" / "stencil.py"
PATIENCE = 120  # seconds; a run takes one second


def run(ranks, schedule, *program):
    command = [Path(sys.executable).with_name("mpiexec"), "-launcher", "fork", "-n", str(ranks)]
    done = subprocess.run(
        [*command, sys.executable, "-W", "error", *program],
        cwd=HERE,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
            "CUDADRV_DRIVER": "software",
            "CUDADRV_SOFTWARE": f"schedule={schedule},seed=3,races=abort",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ring(schedule, ranks):
    """Memory that MPI uses is lent. Memory with unfinished work is not passed to MPI."""
    lines = run(ranks, schedule, "ring.py")
    assert lines[0] == "cannot lend LockedBuffer 'outgoing'[0:1000] (int64) to work on no stream:"
    assert "it is being written by fill_async on Stream 1, queued at ring.py:" in lines[1]
    assert lines[-1] == f"done: {list(range(ranks))}"


@pytest.mark.parametrize("ranks", [2, 4])
def test_stencil(schedule, ranks):
    """A stencil exchanges halos while a kernel computes the inner rows."""
    first, _, last = run(ranks, schedule, "-m", "mpi4py", STENCIL, "--engine", "mpi")
    assert first == f"{ranks} parts of 32 x 128, 10 steps, equal to NumPy"
    assert "weak scaling: " in last


def test_wrong_halos(schedule):
    """Mistakes are refused: a halo that has not arrived, a row that is unfinished or being sent."""
    assert run(2, schedule, "-m", "mpi4py", "halo.py") == ["5 mistakes refused"]
