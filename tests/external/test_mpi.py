"""mpi4py: page-locked memory in the hands of MPI, which works on no stream."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 120  # seconds; it takes one


@pytest.mark.parametrize("ranks", [2, 4])
def test_ring(schedule, ranks):
    """What MPI has is lent; what may not be complete, MPI does not get."""
    command = [Path(sys.executable).with_name("mpiexec"), "-launcher", "fork", "-n", str(ranks)]
    done = subprocess.run(
        [*command, sys.executable, "-W", "error", "ring.py"],
        cwd=HERE,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
            "CUDADRV_DRIVER": "software",
            "CUDADRV_SOFTWARE": f"schedule={schedule},seed=3",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "cannot lend LockedBuffer 'outgoing'[0:1000] (int64) to work on no stream:"
    assert "it is being written by fill_async on Stream 1, queued at ring.py:" in lines[1]
    assert lines[-1] == f"done: {list(range(ranks))}"
