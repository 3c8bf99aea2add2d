"""The project of docs/cython.md builds and runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```\w+ file=(?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_project_builds_and_runs(tmp_path):
    pytest.importorskip("Cython")
    page = (ROOT / "docs" / "cython.md").read_text(encoding="utf-8")
    files = {found["name"]: found["text"] for found in FILE.finditer(page)}
    assert set(files) == {"setup.py", "pattern.pyx", "use.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    spec = importlib.util.spec_from_file_location("cuda_header", ROOT / "cuda_header.py")
    header = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(header)
    environ = {
        **os.environ,
        "CUDADRV_DRIVER": "software",
        "CUDA_HOME": str(header.find_cuda_header().folder.parent),
        "CFLAGS": "-O0 -g0",
        "PYTHONPATH": str(Path(cudadrv.__file__).parents[1]),
    }
    for command in (["setup.py", "build_ext", "--inplace"], ["-W", "error", "use.py"]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout
    assert "queued at use.py:6" in done.stdout
