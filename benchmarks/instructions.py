"""How many instructions a checked copy or launch takes, with few and with many live buffers.

    python benchmarks/instructions.py [BUFFERS ...]

Counted by valgrind's callgrind over calls in steady state, with a driver that does nothing: what is
left is the library's work and Python's call of it. Copies are calls of `copy_from_async`; launches
have two buffers and two numbers as arguments. Needs valgrind with its headers, and a C compiler.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = 2000


PTX = """
.version 6.4
.target sm_75
.address_size 64
.entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n) { ret; }
"""


def calls(what: str, number: int) -> None:
    """What callgrind looks at."""
    import cudadrv as cu

    stream, owner = cu.Stream(), cu.DeviceBuffer(4096)
    alive = [cu.DeviceBuffer.from_address(owner.address, 64, owner=owner) for _ in range(number)]
    source, target = cu.LockedBuffer.zeros(4096), cu.DeviceBuffer(4096)
    kernel = cu.Module(PTX)["saxpy"]
    ready = kernel.prepare(1, 1, 2.0, cu.read(source), target, 4096)
    call = {
        "copy": lambda: target.copy_from_async(source, stream),
        "launch": lambda: kernel.launch(1, 1, 2.0, cu.read(source), target, 4096, stream=stream),
        "prepared launch": lambda: ready.launch(stream),
    }[what]
    repeat = ctypes.PyDLL(cu.driver_info().path).null_repeat
    repeat.argtypes = [ctypes.py_object, ctypes.c_int]
    for _ in range(100):
        call()
    repeat(call, CALLS)
    os._exit(len(alive) != number)  # not a moment for a million destructors under valgrind


def count(what: str, number: int, driver: Path) -> float:
    """Instructions of a call."""
    counts = driver.with_name("callgrind.out")
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={counts}", sys.executable, __file__]
    command += ["--calls", what, str(number)]
    environment = {**os.environ, "CUDADRV_DRIVER": str(driver), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    found = re.search(r"^totals: (\d+)", counts.read_text(), re.MULTILINE)
    if found is None or found[1] == "0":
        sys.exit("nothing was counted: valgrind's headers are needed, too")
    return int(found[1]) / CALLS


def main() -> None:
    if sys.argv[1:2] == ["--calls"]:
        return calls(sys.argv[2], int(sys.argv[3]))
    with tempfile.TemporaryDirectory() as folder:
        driver = Path(folder, "libnull.so")
        source = Path(__file__).with_name("null_driver.c")
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", driver], check=True)
        for number in [int(word) for word in sys.argv[1:]] or [1, 1_000, 1_000_000]:
            for what in ("copy", "launch", "prepared launch"):
                counted = count(what, number, driver)
                print(
                    f"{number:12,} live buffers, {what:>15}: {counted:10,.1f} instructions",
                    flush=True,
                )


if __name__ == "__main__":
    main()
