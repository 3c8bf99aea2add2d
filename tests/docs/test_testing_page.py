"""The test files of docs/testing.md pass, run as a user would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from limits import PATIENCE

import cudadrv
import cudadrv.testing
import pytest_cudadrv

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```python file=(?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_its_files_pass(tmp_path):
    files = {found["name"]: found["text"] for found in FILE.finditer(PAGE)}
    assert set(files) == {"test_doubling.py", "test_lazy.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(Path(cudadrv.__file__).parents[1])}
    # Other plugins may warn, which is an error here.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in ("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "CUDADRV_REQUIRE_GPU"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-p", "pytest_cudadrv", "--rootdir", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert " 4 passed in " in done.stdout, done.stdout + done.stderr
    first = PAGE.partition("## Fixtures")[0]
    lines = [line for line in first.splitlines() if line.startswith(("cudadrv: ", "test_doubling"))]
    assert lines
    assert [line for line in lines if line.split("  ")[0] not in done.stdout] == []


def test_it_names_everything():
    testing = cudadrv.testing
    defined = [name for name, value in vars(testing).items() if callable(value)]
    functions = [name for name in defined if vars(testing)[name].__module__ == testing.__name__]
    public = [name for name in functions if not name.startswith("_")]
    fixtures = ["cuda_device", "cuda_checked", "cuda_schedule"]
    names = [*public, *fixtures, *pytest_cudadrv.MARKER_NAMES]
    assert len(names) > 15
    assert [name for name in names if name not in PAGE] == []
