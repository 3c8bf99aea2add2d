"""The programs of examples/ run, on every schedule, and give everything back."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cudadrv

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(Path(cudadrv.__file__).parents[1])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
LONGEST = 60


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example, schedule, tmp_path):
    environ = {
        **os.environ,
        "CUDADRV_DRIVER": "software",
        "CUDADRV_SOFTWARE": f"schedule={schedule},seed=7",
        "PYTHONPATH": PACKAGE,
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) < LONGEST


def test_examples_are_numbered_and_listed():
    numbers = [int(re.match(r"(\d\d)_", example.name)[1]) for example in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES if f"]({example.name})" not in listed] == []
