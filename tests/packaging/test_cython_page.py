"""The programs of docs/cython.md build against the wheel, with only the cuda.h of PyPI, and run."""

import re
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```\w+ file=(?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_programs_build_and_run(wheel_python, tmp_path):
    pytest.importorskip("Cython")
    try:
        files("nvidia-cuda-runtime")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-runtime is not installed")
    page = (ROOT / "docs" / "cython.md").read_text(encoding="utf-8")
    programs = {found["name"]: found["text"] for found in FILE.finditer(page)}
    assert set(programs) == {"setup.py", "mylib.pyx", "use.py", "batch.pyx", "use_batch.py"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    environ = {
        "CUDADRV_DRIVER": "software",
        "CFLAGS": "-O0 -g0",
        "CUDA_HOME": "/nowhere",
        "CUDA_PATH": "/nowhere",
    }
    wheel_python(tmp_path, "setup.py", "build_ext", "--inplace", **environ)
    (shown,) = TEXT.findall(page)
    assert wheel_python(tmp_path, "-W", "error", "use.py", **environ) == shown
    found = wheel_python(tmp_path, "-W", "error", "use_batch.py", **environ)
    assert "'y'[0:256] (float32) by batch.copy_and_launch on Stream 1:\n" in found
    assert "written by fill_async on Stream 2, queued at use_batch.py:30,\n" in found
