"""Calls before cuInit, after reset and release, in a forked child, and after a sticky error.

Each program runs in its own process, because it leaves the driver of the process unusable.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

PRELUDE = """
import ctypes, os, sys
sys.path.insert(0, {folder!r})
from conformance.client import Library
lib = Library({path!r})
ref = ctypes.byref
handle, number, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
def start():
    lib.ok("cuInit", 0)
    lib.ok("cuDevicePrimaryCtxRetain", ref(handle), 0)
    lib.ok("cuCtxSetCurrent", handle)
def make():
    global stream, event, host, device
    stream, event, host, device = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(),
                                   ctypes.c_uint64())
    lib.ok("cuStreamCreate", ref(stream), 1)
    lib.ok("cuEventCreate", ref(event), 0)
    lib.ok("cuMemHostAlloc", ref(host), 4096, 0)
    lib.ok("cuMemAlloc_v2", ref(device), 4096)
def alloc():
    return lib("cuMemAlloc_v2", ref(pointer), 4096)
"""


@pytest.fixture
def run(library_path):
    def run(body, environment=None, status=0):
        folder = str(Path(__file__).resolve().parent.parent)
        script = PRELUDE.format(folder=folder, path=library_path) + body
        process = subprocess.run(
            # Python warns of a fork in a process with threads. These tests fork on purpose.
            [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", script],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=environment,
            check=False,
        )
        assert process.returncode == status, process.stderr
        assert process.stderr == ""
        return process.stdout

    return run


def test_before_init(run):
    run("""
assert alloc() == 3
assert lib("cuDriverGetVersion", ref(number)) == 0
assert lib("cuGetErrorName", 1, ref(handle)) == 0
assert lib("cuDeviceGetCount", ref(number)) == 3
assert lib("cuCtxGetCurrent", ref(handle)) == 3
assert lib("cuInit", 1) == 1
""")


def test_reset(run):
    run("""
start(); make()
assert lib("cuDevicePrimaryCtxReset_v2", 0) == 0
assert alloc() == 709
assert lib("cuMemFree_v2", device) == 709
assert lib("cuMemFreeHost", host) == 709
assert lib("cuCtxGetDevice", ref(number)) == 0
old = handle.value
lib.ok("cuDevicePrimaryCtxRetain", ref(handle), 0)
assert handle.value == old and alloc() == 0
lib.ok("cuDevicePrimaryCtxRelease_v2", 0)
lib.ok("cuDevicePrimaryCtxRelease_v2", 0)
assert lib("cuDevicePrimaryCtxRelease_v2", 0) == 201
""")


@pytest.mark.parametrize(
    "call, status",
    [
        ('"cuEventDestroy_v2", event', 709),
        # A real driver sometimes crashes here.
        pytest.param('"cuStreamDestroy_v2", stream', 709, marks=pytest.mark.cuda_software),
        pytest.param('"cuStreamQuery", stream', 709, marks=pytest.mark.cuda_software),
    ],
)
def test_handles_of_a_reset_context(run, call, status):
    run(f"""
start(); make()
lib.ok("cuDevicePrimaryCtxReset_v2", 0)
assert lib({call}) == {status}
""")


def test_release(run):
    run("""
start(); make()
assert lib("cuDevicePrimaryCtxRelease_v2", 0) == 0
assert alloc() == 709
assert lib("cuMemFree_v2", device) == 709
assert lib("cuEventQuery", event) == 709
assert lib("cuDevicePrimaryCtxRelease_v2", 0) == 201
""")


@pytest.mark.cuda_software
def test_forked_child(run, software):
    run("""
start(); make()
lib.ok("cuMemsetD8Async", device, 1, 4096, stream)
child = os.fork()
if child == 0:
    calls = [alloc(), lib("cuStreamQuery", stream), lib("cuStreamDestroy_v2", stream),
             lib("cuMemFree_v2", device), lib("cuInit", 0), lib("cuCtxSynchronize")]
    constants = [lib("cuDriverGetVersion", ref(number)), lib("cuGetErrorName", 1, ref(handle))]
    os._exit(0 if calls == [3] * 6 and constants == [0, 0] else 1)
assert os.waitpid(child, 0)[1] == 0
lib.ok("cuStreamSynchronize", stream)
""")


def test_fork_before_init(run):
    run("""
assert lib("cuDriverGetVersion", ref(number)) == 0
child = os.fork()
start(); make()
assert lib("cuMemsetD8Async", device, 1, 4096, stream) == 0
assert lib("cuStreamSynchronize", stream) == 0
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")


@pytest.mark.cuda_software
def test_sticky_error(run, software):
    run("""
start(); make()
lib.configure("fault=cuCtxSynchronize:1:700")
assert lib("cuCtxSynchronize") == 700
expected = {
    700: [("cuMemAlloc_v2", ref(pointer), 64), ("cuEventQuery", event),
          ("cuEventCreate", ref(handle), 0), ("cuStreamCreate", ref(handle), 0),
          ("cuMemcpyDtoH_v2", host, device, 64), ("cuMemHostAlloc", ref(handle), 64, 0),
          ("cuCtxSynchronize",), ("cuMemGetInfo_v2", ref(pointer), ref(pointer)),
          ("cuMemFree_v2", device), ("cuMemFreeHost", host), ("cuEventDestroy_v2", event),
          ("cuStreamDestroy_v2", stream)],
    0: [("cuInit", 0), ("cuDeviceGetCount", ref(number)),
        ("cuDeviceGetAttribute", ref(number), 1, 0),
        ("cuPointerGetAttribute", ref(number), 2, device.value), ("cuCtxSetCurrent", handle)],
}
lib.ok("cuCtxGetCurrent", ref(handle))
for status, calls in expected.items():
    for name, *arguments in calls:
        assert lib(name, *arguments) == status, name
assert lib("cuDevicePrimaryCtxReset_v2", 0) == 0
assert alloc() == 709
assert lib("cuDevicePrimaryCtxRelease_v2", 0) == 0
assert lib("cuDevicePrimaryCtxRetain", ref(handle), 0) == 700
assert alloc() == 709
""")


@pytest.mark.cuda_software
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_exit_with_work_under_way(run, software, schedule):
    run(f"""
start(); make()
lib.configure("schedule={schedule}")
for _ in range(1000):
    lib.ok("cuMemsetD8Async", device, 1, 4096, stream)
lib.ok("cuStreamWaitValue32_v2", stream, host.value, 12345, 1)
""")


@pytest.mark.cuda_software
def test_device_memory_cannot_be_read(run, software):
    run("start(); make()\nctypes.string_at(device.value, 1)", status=-11)


@pytest.mark.cuda_software
@pytest.mark.parametrize("text", ["schedule=never", "nonsense=1", "memory=lots", "fault=cuNo:1:1"])
def test_bad_environment(run, software, text):
    import os

    out = run(
        """
assert lib("cuInit", 0) == 1
print(lib.error())
""",
        environment={**os.environ, "CUDADRV_SOFTWARE": text},
    )
    assert text.split("=")[0] in out


@pytest.mark.cuda_software
def test_environment(run, software):
    import os

    run(
        """
start()
lib.ok("cuDeviceGetCount", ref(number))
assert number.value == 2
lib.ok("cuDeviceTotalMem_v2", ref(pointer), 1)
assert pointer.value == 64 << 20
lib.ok("cuDeviceGetAttribute", ref(number), 89, 0)
assert number.value == 0
assert alloc() == 0
assert alloc() == 2
assert alloc() == 0
""",
        environment={
            **os.environ,
            "CUDADRV_SOFTWARE": "devices=2,memory=64MiB,concurrent_managed=0,"
            "fault=cuMemAlloc_v2:2:2",
        },
    )
