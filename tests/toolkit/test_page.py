"""The programs of pages that need a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "docs" / "run_blocks.py"


@pytest.mark.parametrize("name", ["toolkit.md", "kernel-checks.md"])
def test_blocks(compiler, driver, tmp_path, name):
    if driver == "cuda" and name == "kernel-checks.md":
        pytest.skip("the checks are the software driver's")
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    text = text.replace("```python compiler\n", "```python\n")
    text = text.replace("toolkit.compile(", f"toolkit.compile(compiler={compiler!r}, source=")
    page = tmp_path / name
    page.write_text(text, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER), str(page)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
