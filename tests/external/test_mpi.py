"""mpi4py: page-locked memory in the hands of MPI, which works on no stream."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STENCIL = HERE.parents[1] / "examples" / "distributed" / "stencil.py"
PATIENCE = 120  # seconds; it takes one


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
    """What MPI has is lent; what may not be complete, MPI does not get."""
    lines = run(ranks, schedule, "ring.py")
    assert lines[0] == "cannot lend LockedBuffer 'outgoing'[0:1000] (int64) to work on no stream:"
    assert "it is being written by fill_async on Stream 1, queued at ring.py:" in lines[1]
    assert lines[-1] == f"done: {list(range(ranks))}"


@pytest.mark.parametrize("ranks", [2, 4])
def test_stencil(schedule, ranks):
    """Halos are exchanged while a kernel computes the inner rows."""
    first, _, last = run(ranks, schedule, "-m", "mpi4py", STENCIL, "--engine", "mpi")
    assert first == f"{ranks} parts of 32 x 128, 10 steps, equal to NumPy"
    assert "weak scaling: " in last


def test_wrong_halos(schedule):
    """A halo that has not arrived, a row that is not finished, a row that is still being sent."""
    assert run(2, schedule, "-m", "mpi4py", "halo.py") == ["5 mistakes refused"]
