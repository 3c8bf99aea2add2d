"""Runs programs that somebody built from the checkout $SUITE_SOURCE by `python -m cudadrv run`.

$PROGRAMS has patterns of their paths in the checkout. A program that ends with status 0 passes. It
skips itself if it ends with status $SKIPS or says [SKIP].
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ["SUITE_SOURCE"])
SKIPS = int(os.environ.get("SKIPS", "77"))
TIMEOUT = 600  # seconds


def programs():
    found = {path for pattern in os.environ["PROGRAMS"].split() for path in SOURCE.glob(pattern)}
    return sorted(path for path in found if path.is_file() and os.access(path, os.X_OK))


@pytest.mark.parametrize("program", [pytest.param(path, id=path.name) for path in programs()])
def test_program(program):
    done = subprocess.run(
        [sys.executable, "-m", "cudadrv", "run", "--", program],
        cwd=program.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
    )
    if done.returncode == SKIPS or (done.returncode == 0 and "[SKIP]" in done.stdout):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout
