"""The examples with numba and Ray, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "interop" / "numba_kernels.py"


def test_numba_kernels(schedule):
    done = subprocess.run(
        # numba warns that the grid is small, and that the driver links.
        [sys.executable, "-W", "ignore", EXAMPLE],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # numba and cudadrv must use one driver.
            "CUDADRV_DRIVER": f"{os.environ['LD_LIBRARY_PATH'].partition(':')[0]}/libcuda.so.1",
            "CUDADRV_SOFTWARE": f"schedule={schedule},seed=3",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    refusal, place, result = done.stdout.splitlines()
    assert refusal.startswith("cannot read DeviceBuffer 'steps 0'[0:4096] (int32) by copy_from_a")
    assert "it is lent to Stream 1, at" in place
    assert "numba_kernels.py:" in place
    assert result == "13255 takes 275 steps, the most of all up to 16384"


def test_ray_actors():
    """Ray is not in requirements.txt, because it is large and starts slowly."""
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "distributed" / "ray_actors.py"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CUDADRV_DRIVER": "software",
            "RAY_AUTH_MODE": "disabled",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    refusal, place, result = done.stdout.splitlines()
    assert "cannot lend LockedBuffer 'row'[0:65536] (float32) to work on no stream" in refusal
    assert "ray_actors.py:" in place
    assert result == "262144 bytes went from actor to actor"
