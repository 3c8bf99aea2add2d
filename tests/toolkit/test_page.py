"""The programs of docs/toolkit.md that need a compiler."""

import os
import subprocess
import sys
from pathlib import Path

from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "docs" / "run_blocks.py"
PAGE = ROOT / "docs" / "toolkit.md"


def test_blocks(compiler, driver, tmp_path):
    text = PAGE.read_text(encoding="utf-8").replace("```python compiler\n", "```python\n")
    text = text.replace("toolkit.compile(", f"toolkit.compile(compiler={compiler!r}, source=")
    page = tmp_path / "toolkit.md"
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
