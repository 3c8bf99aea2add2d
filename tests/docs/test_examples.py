"""The programs of examples/ run, on every schedule, and give everything back."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(Path(cudadrv.__file__).parents[1])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
KERNELS = sorted(path for path in ROOT.glob("examples/kernels/*.py") if path.name != "build.py")
LONGEST = 60


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
@pytest.mark.parametrize("example", EXAMPLES + KERNELS, ids=lambda path: path.name)
def test_example_runs(example, schedule, tmp_path):
    if "from PIL import" in example.read_text(encoding="utf-8"):
        pytest.importorskip("PIL", reason="an example needs Pillow")
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
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("example", EXAMPLES + KERNELS, ids=lambda path: path.name)
def test_example_is_short(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) < LONGEST


def test_examples_are_numbered_and_listed():
    numbers = [int(re.match(r"(\d\d)_", example.name)[1]) for example in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    names = [str(path.relative_to(ROOT / "examples")) for path in EXAMPLES + KERNELS]
    assert [name for name in names if f"]({name})" not in listed] == []
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```{literalinclude} \.\./examples/(\S+)$", page, re.M)
    assert shown == [example.name for example in EXAMPLES]
