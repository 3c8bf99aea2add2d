"""The CUDA runtime: it asks for private tables, is told once what this is, and reports an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 120  # seconds; it takes one

PROGRAM = """
import ctypes, glob, nvidia
[library] = glob.glob(nvidia.__path__[0] + "/cu13/lib/libcudart.so.13")
runtime = ctypes.CDLL(library)
runtime.cudaGetErrorName.restype = ctypes.c_char_p
memory = ctypes.c_void_p()
for _ in range(2):
    status = runtime.cudaMalloc(ctypes.byref(memory), 64)
print(status, runtime.cudaGetErrorName(status).decode())
"""


@pytest.fixture
def schedule():
    """The program has a driver of its own, and queues nothing."""


def test_runtime():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        cwd=HERE,
        env={**os.environ, "CUDADRV_SOFTWARE": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    status, name = done.stdout.split()
    assert int(status) != 0, done
    assert name.startswith("cudaError")
    [line] = done.stderr.splitlines()  # once, however often the program tries
    assert line.startswith("cudadrv software driver: a library in this program asks for private")
    assert "it returns CUDA_ERROR_NOT_SUPPORTED" in line
