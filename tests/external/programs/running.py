"""Runs a program by `python -m cudadrv run`, as a test."""

import subprocess
import sys

import pytest

TIMEOUT = 600  # seconds


def run(program, *arguments, skips=77, env=None):
    """Run a program in its folder. The test passes if the program ends with status 0.

    The program skips itself if it ends with the status `skips` or says [SKIP]. A program that does
    not use the driver is skipped, too.
    """
    done = subprocess.run(
        [sys.executable, "-m", "cudadrv", "run", "--", program, *arguments],
        cwd=program.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
        env=env,
    )
    said_so = done.returncode == 0 and "[SKIP]" in done.stdout
    if done.returncode == skips or said_so or "No process called the software" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout
