"""CUDA_VISIBLE_DEVICES chooses and orders the devices that a program sees."""

import os
import subprocess
import sys

import pytest
from limits import PATIENCE

pytestmark = pytest.mark.cuda_software

PROGRAM = """
import ctypes, sys
cuda, count, seen = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), []
status = cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(count))
for ordinal in range(count.value):
    uuid, bus = ctypes.create_string_buffer(16), ctypes.create_string_buffer(20)
    back = ctypes.c_int()
    assert cuda.cuDeviceGetUuid_v2(uuid, ordinal) == 0
    assert cuda.cuDeviceGetPCIBusId(bus, 20, ordinal) == 0
    assert cuda.cuDeviceGetByPCIBusId(ctypes.byref(back), bus) == 0 and back.value == ordinal
    seen.append(uuid.raw[7])
    assert int(bus.value.split(b":")[1], 16) == seen[-1] + 1
print(status, *seen)
"""
SECOND = "GPU-63756461-6472-7601-736f-667477617265"


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, "0 0 1 2"),
        ("0,1,2", "0 0 1 2"),
        ("2,0", "0 2 0"),
        ("1", "0 1"),
        ("0,3,1", "0 0"),
        ("0,-1,1", "0 0"),
        ("1,1", "0 1"),
        ("", "100"),
        ("-1", "100"),
        ("NoDevFiles", "100"),
        ("GPU-", "100"),
        ("gpu-63756461", "100"),
        (SECOND, "0 1"),
        (f"2,{SECOND.lower()}", "0 2 1"),
    ],
)
def test_visible_devices(library_path, visible, seen):
    environment = {**os.environ, "CUDADRV_SOFTWARE": "devices=3"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, library_path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stdout.strip(), done.stderr) == (seen, "")
