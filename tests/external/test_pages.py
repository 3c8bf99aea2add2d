"""The programs on pages that need MPI or Dask print the text beside them.

A ```python mpi 2 block runs in two ranks, and its text is what both print. A ```python mpi4py or
```python dask block runs in one process, like the blocks that tests/docs/run_blocks.py runs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120
BLOCK = re.compile(
    r"^```python (?P<kind>mpi (?P<ranks>\d)|mpi4py|dask)\n(?P<code>.*?)^```\n"
    r"(?:\n*^```text\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
sys.path.append(str(ROOT / "tests" / "docs"))
import run_blocks  # noqa: E402

RUN = """
import sys, run_blocks
block = run_blocks.Block(1, open(sys.argv[1]).read(), "" if sys.argv[2] == "fails" else None)
print(run_blocks.run(block, "pipeline.py", {"__name__": "__main__"}), end="")
"""


def programs():
    for page in ("errors", "distributed"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        start = next((block.code for block in run_blocks.blocks(text) if block.start), "")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            alone = "import cudadrv as cu" in found["code"]
            code = found["code"] if alone else f"{start}\n{found['code']}"
            yield pytest.param(found, code, id=f"{page}.md:{line}")


@pytest.fixture
def schedule():
    """Only one schedule, because no text on these pages depends on the schedule."""


@pytest.mark.parametrize(("block", "code"), list(programs()))
def test_program(block, code, tmp_path):
    program = tmp_path / "pipeline.py"
    program.write_text(code, encoding="utf-8")
    text = block["text"]
    if block["ranks"]:
        mpiexec = Path(sys.executable).with_name("mpiexec")
        command = [mpiexec, "-launcher", "fork", "-n", block["ranks"]]
        command += [sys.executable, "-m", "mpi4py", program.name]
    else:
        command = [sys.executable, "-c", RUN, program.name, "runs" if text is None else "fails"]
    folders = [ROOT, ROOT / "tests" / "docs"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={
            **os.environ,
            "CUDADRV_DRIVER": "software",
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if block["ranks"] else None,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode == 0) == ("Abort" not in (text or "")), done.stdout
    assert text is None or run_blocks.agree(done.stdout, text), done.stdout
