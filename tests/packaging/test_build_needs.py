"""The errors of a build that lacks something. They come before anything is built."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

pytest.importorskip("setuptools")

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import runpy, sys, sysconfig
folder, include = sys.argv[1:]
if include:
    sysconfig.get_path = lambda name, *_: include
sys.argv = ["setup.py", "-q", "build_ext", "-b", folder, "-t", folder]
runpy.run_path("setup.py", run_name="__main__")
"""


def build(folder: Path, include: str = "", **environ: str) -> str:
    """Run a build that fails, and return its message. It must leave nothing in the checkout."""
    before = set((ROOT / "build").glob("*"))
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder), include],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert set((ROOT / "build").glob("*")) == before
    text = done.stderr.partition("\ncudadrv cannot be built: ")[2]
    assert "Traceback" not in done.stderr
    assert text
    return text


@pytest.mark.parametrize(("variable", "language"), [("CC", "C"), ("CXX", "C++")])
@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false"])
def test_no_compiler(tmp_path, variable, language, compiler):
    text = build(tmp_path, **{variable: compiler})
    assert text.startswith(f"the {language} compiler {compiler!r} does not work.\n")
    assert "apt-get install build-essential" in text
    assert f"{variable}=... names another one" in text


def test_no_headers_of_python(tmp_path):
    text = build(tmp_path, include=str(tmp_path))
    assert text.startswith(f"Python.h was not found in {tmp_path}.\n")
    assert "apt-get install python3-dev" in text


def test_no_cuda_header(tmp_path):
    text = build(tmp_path, CUDA_HOME=str(tmp_path))
    assert text.startswith("CUDA_HOME is set to ")
