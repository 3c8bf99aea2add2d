"""Uses of page-locked and managed memory by the host while work in flight uses it, too.

The programs call the driver through ctypes, as programs without cudadrv do.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]
ROOT = Path(__file__).resolve().parents[2]
START = """
import ctypes, faulthandler, mmap, os, sys, threading, time
driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status in (0, 600), (name, status)
    return status

def address(name, *arguments):
    found = ctypes.c_uint64()
    call(name, ctypes.byref(found), *arguments)
    return found

call("cuInit", 0)
context = address("cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", context)
stream, other = (address("cuStreamCreate", 1) for _ in range(2))

def bytes_of(memory, count):
    return (ctypes.c_ubyte * count).from_address(memory.value)

def locked(count):
    memory = address("cuMemHostAlloc", ctypes.c_size_t(count), 0)
    return memory, bytes_of(memory, count)

def fill(memory, value, count, on=stream):
    call("cuMemsetD8Async", memory, value, ctypes.c_size_t(count), on)

def copy(target, source, count, on=stream):
    call("cuMemcpyAsync", target, source, ctypes.c_size_t(count), on)

def wait(on=stream):
    call("cuStreamSynchronize", on)

device = address("cuMemAlloc_v2", ctypes.c_size_t(1 << 20))
fill(device, 7, 1 << 20)
wait()
host, view = locked(4096)
view[0] = 3
"""


def explored(tmp_path, code, *options):
    program = tmp_path / "program.py"
    program.write_text(START + code)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDADRV", "PYTEST"))}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "cudadrv", "explore", *options, "--", sys.executable]
    return subprocess.run(
        [*command, "program.py"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_an_early_read(tmp_path):
    done = explored(tmp_path, "copy(host, device, 4)\nvalue = view[0]\nwait()\nassert value == 7\n")
    assert done.returncode == 1
    line = 1 + (START + "copy(host, device, 4)\n").count("\n")
    assert f"the host reads page-locked memory at program.py:{line} came before" in done.stderr
    assert "cuMemcpyAsync on stream" in done.stderr
    assert "and one of them fails" in done.stderr


def test_a_call_that_waits_for_its_copy(tmp_path):
    """The line of the call is found when the copy has already run."""
    code = "call('cuMemcpyDtoH_v2', host, device, ctypes.c_size_t(4))\nassert view[0] == 3\n"
    done = explored(tmp_path, code)
    assert done.returncode == 1
    assert "cuMemcpyDtoH_v2 on the legacy stream, queued at program.py:" in done.stderr


def test_a_read_after_a_wait(tmp_path):
    done = explored(tmp_path, "copy(host, device, 4)\nwait()\nassert view[0] == 7\n")
    assert done.returncode == 0, done.stderr
    assert "1 schedule: complete" in done.stderr


def test_an_early_write(tmp_path):
    """The source of a copy is changed before the copy has read it."""
    code = (
        "copy(device, host, 4)\nview[0] = 9\nwait()\n"
        "copy(host, device, 4)\nwait()\nassert view[0] == 3\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 1
    assert "the host writes page-locked memory at program.py:" in done.stderr
    assert "and one of them fails" in done.stderr


def test_reads_beside_reads(tmp_path):
    done = explored(tmp_path, "copy(device, host, 4)\nassert view[0] == 3\nwait()\n")
    assert done.returncode == 0, done.stderr
    assert "1 schedule: complete" in done.stderr


def test_a_query_is_not_enough(tmp_path):
    code = (
        "copy(host, device, 4)\ncall('cuStreamQuery', stream)\nvalue = view[0]\nwait()\n"
        "assert value == 7\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 1
    assert "the host reads page-locked memory" in done.stderr


def test_managed_memory(tmp_path):
    code = (
        "memory = address('cuMemAllocManaged', ctypes.c_size_t(4096), 1)\n"
        "fill(memory, 1, 4096)\nwait()\nfill(memory, 2, 4096)\n"
        "value = bytes_of(memory, 4096)[5]\nwait()\nassert value == 2\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 1
    assert "the host reads managed memory at program.py:" in done.stderr


def test_a_host_function_uses_memory(tmp_path):
    """It runs beside a copy in another stream."""
    code = """
seen = []
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(view[0]))
copy(host, device, 4)
call("cuLaunchHostFunc", other, function, None)
wait()
wait(other)
assert seen == [7]
"""
    done = explored(tmp_path, code)
    assert done.returncode == 1
    assert "cuLaunchHostFunc" in done.stderr
    assert "and one of them fails" in done.stderr


def test_a_host_function_writes_memory(tmp_path):
    """It runs beside a copy in another stream."""
    code = """
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: view.__setitem__(0, 9))
copy(device, host, 4)
call("cuLaunchHostFunc", other, function, None)
wait()
wait(other)
copy(host, device, 4)
wait()
assert view[0] == 3
"""
    done = explored(tmp_path, code)
    assert done.returncode == 1
    assert "cuLaunchHostFunc" in done.stderr
    assert "and one of them fails" in done.stderr


def test_memory_of_many_pages(tmp_path):
    """A use of many pages becomes one of all the memory."""
    code = (
        "size = 1 << 20\nhost, view = locked(size)\ncopy(host, device, size)\n"
        "value = bytes(view)\nwait()\nassert bytes(view) == b'\\7' * size\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stderr
    assert "not complete" not in done.stderr


def test_system_calls_after_a_wait(tmp_path):
    code = (
        "copy(host, device, 4)\nwait()\n"
        "with open('/dev/null', 'wb', buffering=0) as file:\n    file.write(view)\n"
        "with open('/dev/zero', 'rb', buffering=0) as file:\n    file.readinto(view)\n"
        "assert view[0] == 0\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_has_a_copy(tmp_path):
    code = """
copy(host, device, 4)
child = os.fork()
if not child:
    ok = view[0] == 3
    view[0] = 5
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
wait()
assert view[0] == 7
"""
    done = explored(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "1 schedule: complete" in done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_program(tmp_path, when):
    """Guards work beside it, and its own errors still come to it."""
    enable = "faulthandler.enable()\n"
    first, second = (enable, "") if when == "before" else ("", enable)
    code = (
        "memory, _ = locked(4096)\ncopy(memory, device, 4)\nwait()\n"
        + second
        + "copy(host, device, 4)\nvalue = view[0]\nwait()\nprint('read', value, flush=True)\n"
        + "ctypes.string_at(16)\n"
    )
    program = explored(tmp_path, code.replace("memory, _", first + "memory, _", 1))
    assert program.returncode == 3 or "exit status" in program.stderr or program.returncode == 1
    output = program.stdout + program.stderr
    assert "read " in output
    assert "Fatal Python error: Segmentation fault" in output


def test_registered_memory_is_not_seen(tmp_path):
    code = (
        "memory = mmap.mmap(-1, 4096)\nview = (ctypes.c_ubyte * 4096).from_buffer(memory)\n"
        "host = ctypes.c_uint64(ctypes.addressof(view))\n"
        "call('cuMemHostRegister_v2', host, ctypes.c_size_t(4096), 0)\n"
        "copy(host, device, 4)\nwait()\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert (
        "not complete: early uses by the host are not seen of memory that the program has"
        " registered, or that other processes share"
    ) in done.stderr


@pytest.mark.parametrize("use", ["copy(host, device, 4)", "fill(managed, 1, 8)"])
def test_beside_cudadrv(tmp_path, use):
    """cudadrv refuses early uses of its memory. Those of other memory are not seen beside it."""
    code = (
        "import cudadrv as cu\nmine = cu.LockedBuffer.zeros(4)\n"
        "managed = address('cuMemAllocManaged', ctypes.c_size_t(4096), 1)\n"
        "cu.DeviceBuffer.zeros(4).copy_to_async(mine, cu.Stream()).wait()\nUSE\nwait()\n"
    )
    done = explored(tmp_path, code.replace("USE", use))
    assert done.returncode == 0, done.stderr
    assert (
        "not complete: early uses of page-locked and managed memory by the host are not seen"
        " if cudadrv and another library use the driver in one process"
    ) in done.stderr
    done = explored(tmp_path, code.replace("USE", "fill(device, 1, 8)"))
    assert "1 schedule: complete" in done.stderr


def test_polling(tmp_path):
    """What comes behind it is not explored: two fills have only one order."""
    code = (
        "copy(host, device, 4)\nwhile view[0] == 3:\n    pass\nwait()\n"
        "fill(device, 1, 4)\nfill(device, 2, 4, other)\nwait()\nwait(other)\n"
    )
    done = explored(tmp_path, code)
    words = "the program polls memory: it calls nothing until work changes it"
    assert f"1 schedule: not complete: {words}" in done.stderr


def test_a_thread_reads(tmp_path):
    code = (
        "copy(host, device, 4)\nseen = []\n"
        "thread = threading.Thread(target=lambda: seen.append(view[0]))\n"
        "thread.start()\nthread.join()\nwait()\n"
    )
    done = explored(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "several threads" in done.stderr


C_PROGRAM = """
#include <cuda.h>
#include <stdlib.h>
int main(void) {
    CUcontext context; CUdeviceptr memory; volatile char *host; CUstream stream;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuMemAlloc(&memory, 4);
    cuMemHostAlloc((void **)&host, 4, 0);
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    host[0] = 3;
    cuMemsetD8Async(memory, 7, 4, stream);
    cuMemcpyDtoHAsync((void *)host, memory, 4, stream);
    int value = host[0];
    cuStreamSynchronize(stream);
    return value != 7;
}
"""


def test_a_program_in_c(tmp_path):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(C_PROGRAM)
    library = subprocess.run(
        [sys.executable, "-m", "cudadrv", "libcuda", str(tmp_path / "lib")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert library.returncode == 0, library.stderr
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    compiled = subprocess.run(
        ["cc", f"-I{home}/include", str(source), "-rdynamic", "-o", str(program)]
        + [f"-L{tmp_path}/lib", "-lcuda"],
        capture_output=True,
        text=True,
    )
    if compiled.returncode:
        pytest.skip("no C compiler with cuda.h: " + compiled.stderr[-200:])
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDADRV", "PYTEST"))}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "cudadrv", "explore", "--", str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "the host reads page-locked memory at main+0x" in done.stderr, done.stderr
