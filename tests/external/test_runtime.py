"""The CUDA runtime on the software driver: one message on stderr, and an error of the runtime.

The runtime asks for private tables of the driver, which the software driver does not have.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 120  # seconds; a run takes one

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
    """Replaces the fixture with the schedules: the program queues nothing."""


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
    [line] = done.stderr.splitlines()  # one line, although the program calls cudaMalloc twice
    assert line.startswith("cudadrv software driver: a library in this program asks for private")
    assert "it returns CUDA_ERROR_NOT_SUPPORTED" in line
