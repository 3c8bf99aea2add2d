"""docs/guard.md shows what a guard writes. The other programs of the page run in tests/docs."""

import re
import signal
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guard.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_the_transcript(run_program):
    program = re.search(r"```python file=early.py\n(.*?)```", PAGE, re.DOTALL).group(1)
    shown = re.search(r"```text\n(cudadrv: the host.*?)```", PAGE, re.DOTALL).group(1)
    done = run_program(program, begin="")
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "")

    def without_library(text):
        return re.sub(r"in \S*_multiarray_umath\S*", "in NumPy", text)

    written = done.stderr.replace("program.py", "early.py")
    assert without_library(written) == without_library(shown)
    assert "in NumPy" in without_library(shown)
