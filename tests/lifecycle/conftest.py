"""Adds the folder of the helper modules to sys.path; fixtures of several tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).parents[2]  # the folder from which cudadrv is imported if it is not installed

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def eager_threads():
    """Let threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def lines_of():
    """A function that runs a program on the software driver and returns the lines it prints."""

    def lines_of(program):
        kept = {name: os.environ[name] for name in os.environ if name != "CUDA_VISIBLE_DEVICES"}
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**kept, "PYTHONPATH": str(ROOT), "CUDADRV_DRIVER": "software"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return lines_of
