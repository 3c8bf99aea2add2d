"""mprotect() that fails, and drivers that are none of ours."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NULL_DRIVER = HERE.parents[1] / "benchmarks" / "null_driver.c"
COMPILER = shutil.which(os.environ.get("CC", "cc").split()[-1])

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function that compiles a C source as a library."""

    def build(source):
        library = tmp_path_factory.mktemp("library") / f"{source.stem}.so"
        include = f"-I{NULL_DRIVER.parent}"
        command = [COMPILER, "-shared", "-fPIC", include, source, "-o", library]
        subprocess.run(command, check=True)
        return str(library)

    return build


@pytest.mark.cuda_software
@pytest.mark.parametrize("fail", [1, 2, 3])
def test_pages_that_cannot_be_protected(run_program, compiled, fail):
    program = """
import os, warnings
for turn in range(4):
    token = written() if turn % 2 else read()
    if turn == int(os.environ["FAIL"]) - 1:
        ctypes.memset(address, 1, 1)    # the buffer is not protected any more
    token.wait()
    ctypes.memset(address, 1, 1)
other = cu.LockedBuffer(16384, name="other")
"""
    # The loader calls mprotect, too, before the program is loaded; these are not counted here.
    preload = compiled(HERE / "no_mprotect.c")
    done = run_program(program, FAIL=str(fail), LD_PRELOAD=preload)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("page guards: mprotect() has failed (Cannot allocate memory)") == 1


# ---- a driver that is not the software driver: it does nothing, and its memory is mapped once ----

BEGIN = """
import ctypes, mmap, os
import numpy as np
import cudadrv as cu

PAGE = mmap.PAGESIZE
stream = cu.Stream(name="down")
work = cu.DeviceBuffer(16 * PAGE)
memory = mmap.mmap(-1, 16 * PAGE)
array = np.frombuffer(memory, "u1")
"""


@pytest.fixture
def on_null_driver(run_program, compiled):
    def run(text, guard="1", source=NULL_DRIVER, **environment):
        driver = compiled(source)
        return run_program(text, begin=BEGIN, guard=guard, CUDADRV_DRIVER=driver, **environment)

    return run


def test_memory_of_the_program(on_null_driver):
    done = on_null_driver("""
buffer = cu.LockedBuffer.from_memory(array, name="mine")
token = work.copy_to_async(buffer, stream)
token.wait()
array[5] = 1    # right
token = work.copy_to_async(buffer, stream)
array[5] = 1
""")
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert done.stderr.startswith(
        "cudadrv: the host writes LockedBuffer 'mine', made at program.py:12, at its byte 5,\n"
    )


def test_only_whole_pages_of_it(on_null_driver):
    done = on_null_driver("""
part = array[100 : 3 * PAGE + 100]
buffer = cu.LockedBuffer.from_memory(part)
token = work[: 3 * PAGE].copy_to_async(buffer, stream)
array[0] = array[99] = array[3 * PAGE + 100] = 1      # bytes of others, on the same pages
array[100] = 1      # not seen: its page has bytes of others
print(cu.guard().unguarded)
array[PAGE] = 1
""")
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "[]\n"
    assert ", at its byte 3996,\n" in done.stderr


def test_memory_without_a_whole_page(on_null_driver):
    done = on_null_driver("""
buffer = cu.LockedBuffer.from_memory(array[100:PAGE])
print(cu.guard().unguarded[0])
""")
    assert done.stdout == "LockedBuffer, made at program.py:12: it has no page of its own\n"


def test_memory_that_is_mapped_read_only(on_null_driver):
    """A guard must not make memory writable that was not."""
    done = on_null_driver("""
with open("file", "wb") as file:
    file.write(bytes(16 * PAGE))
with open("file", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
buffer = cu.LockedBuffer.from_memory(mapped)
print(cu.guard().unguarded[0])
token = work.copy_from_async(buffer, stream)
token.wait()
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "LockedBuffer, made at program.py:16: its memory is mapped read-only\n"


def test_buffers_that_were_made_before(on_null_driver):
    done = on_null_driver(
        """
buffer = cu.LockedBuffer(16 * PAGE, name="early")
token = work.copy_to_async(buffer, stream)
with cu.guard() as guard:
    assert guard.unguarded == []
    ctypes.string_at(buffer.address + 2 * PAGE, 1)
""",
        "0",
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert "LockedBuffer 'early', made at program.py:12, at its byte 8192," in done.stderr


def test_accesses_of_the_driver_itself(on_null_driver):
    """What the driver does with the processor in a call is the operation, at its place in order."""
    done = on_null_driver(
        """
for buffer in (cu.LockedBuffer(16 * PAGE), cu.LockedBuffer.from_memory(array, name="mine")):
    for turn in range(3):
        work.copy_to_async(buffer, stream)
        token = work.copy_from_async(buffer, stream)
        work[: 2 * PAGE].copy_to_async(buffer[: 2 * PAGE], stream)
    token.wait()
    stream.synchronize()
    assert buffer.to_numpy()[0] == 7
token = work.copy_to_async(buffer, stream)
print(array[-1])     # the program is still too early
""",
        source=HERE / "copying_driver.c",
    )
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, ""), done.stderr
    assert done.stderr.startswith(
        "cudadrv: the host reads LockedBuffer 'mine', made at program.py:12, at its byte 65535,\n"
    )
    assert done.stderr.count("cudadrv: the host") == 1


def test_a_page_that_cannot_be_opened_for_the_driver(on_null_driver, compiled):
    """The whole buffer is opened, and is not guarded any more. The driver's access goes on."""
    done = on_null_driver(
        """
buffer = cu.LockedBuffer.from_memory(array)
for turn in range(4):
    token = work.copy_to_async(buffer, stream)
ctypes.string_at(buffer.address, 1)     # too early, and no longer seen
token.wait()
""",
        source=HERE / "copying_driver.c",
        LD_PRELOAD=compiled(HERE / "no_mprotect.c"),
        FAIL="1000000",
        PAGE_FAILS="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("page guards: mprotect() has failed (Cannot allocate memory)") == 1
