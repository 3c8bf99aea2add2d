"""The CUDA runtime on the software driver: one message on stderr, and an error of the runtime.

The runtime asks for private tables of the driver, which the software driver does not have. NVRTC
asks, too, but needs no answer.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 120  # seconds; a run takes one second

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


COMPILE = """
from cuda.bindings import driver, nvrtc
assert driver.cuInit(0)[0] == 0
_, program = nvrtc.nvrtcCreateProgram(b"__global__ void empty() {}", b"empty.cu", 0, [], [])
print(nvrtc.nvrtcCompileProgram(program, 0, [])[0].name)
"""


@pytest.fixture
def schedule():
    """Replaces the fixture with the schedules: the program queues nothing."""


def run(program):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=HERE,
        env={**os.environ, "CUDADRV_SOFTWARE": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_runtime():
    done = run(PROGRAM)
    status, name = done.stdout.split()
    assert int(status) != 0, done
    assert name.startswith("cudaError")
    [line] = done.stderr.splitlines()  # one line, although the program calls cudaMalloc twice
    assert line.startswith("cudadrv software driver: a library in this program asks for private")
    assert "it returns CUDA_ERROR_NOT_SUPPORTED" in line


def test_a_compiler_is_no_runtime():
    done = run(COMPILE)
    assert (done.stdout, done.stderr) == ("NVRTC_SUCCESS\n", "")
