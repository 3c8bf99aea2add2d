"""Counts the instructions of calls in a loop, and of the import of cudadrv.

    python benchmarks/instructions.py [BUFFERS ...]
    python benchmarks/instructions.py --record

valgrind's callgrind counts calls from Python in steady state, with the given numbers of live
buffers. The driver does nothing (null_driver.c), because the instructions of the software driver
would hide changes of the library. `--record` writes the counts with one live buffer to
tests/performance/instructions.json; a test compares with them. Needs valgrind with its headers, and
a C compiler.
"""

import argparse
import ctypes
import gc
import importlib
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
RECORD = TESTS / "performance" / "instructions.json"
MOST_GROWTH = 0.10
CALLS = 500
WARM_UP = 50
IMPORT = "import cudadrv, after NumPy"  # counted once
COLUMNS = "fill_async, a column of 16 rows", "fill_async, a column of 16,384 rows"
NBYTES = 4096
LARGE = 1 << 20
# The interpreter's instructions count, too, and builds of one version differ by up to 12 %.
BUILD = f"Python {platform.python_version()}, {platform.python_compiler()}, {platform.machine()}"
PTX = """
.version 6.4
.target sm_75
.address_size 64
.entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n) { ret; }
"""


def operations():
    """Return the counted calls, by name. Objects that can be made once are made here."""
    from other_library import compiled

    import cudadrv as cu

    stream, other, event = cu.Stream(), cu.Stream(), cu.Event()
    done_elsewhere = other.record()
    host = cu.LockedBuffer.zeros(NBYTES)
    device, second = cu.DeviceBuffer(NBYTES), cu.DeviceBuffer(NBYTES)
    kernel, another = cu.Module(PTX)["saxpy"], cu.Module(PTX)["saxpy"]
    ready = kernel.prepare(1, 1, 2.0, cu.read(host), device, NBYTES)
    library, theirs = compiled(), cu.Stream()
    library.set_stream(theirs.handle)
    lent = [cu.DeviceBuffer(NBYTES), cu.DeviceBuffer(NBYTES)]
    exported, foreign = cu.DeviceBuffer(NBYTES), 0x7777000
    x, y = (library.Array(buffer.address, NBYTES // 4) for buffer in lent)

    many = [cu.DeviceBuffer(NBYTES) for _ in range(32)]
    graph = graph_of(kernel, many)
    short, long = graph_of(kernel, many[:2]).instantiate(), graph.instantiate()
    short_column, long_column = (
        cu.DeviceBuffer(2 * rows).reshape(rows, 2)[:, 0] for rows in (16, 16_384)
    )
    image, tile = (cu.DeviceBuffer(1 << 14).reshape(128, 128) for _ in range(2))
    column, another_column = image[:16, :64], tile[:16, 64:]
    packed = cu.DeviceBuffer(1024).reshape(16, 64)
    parts = [list(cu.DeviceBuffer(256 * 16).chunks(16)) for _ in range(2)]
    apart = [[cu.DeviceBuffer(16) for _ in range(64)] for _ in range(2)]
    few, more, most = (list(zip(*(each[:n] for each in parts), strict=True)) for n in (8, 64, 256))
    scattered = list(zip(*apart, strict=True))

    first, changed, another_graph = many[0], long[graph.nodes[5]], graph_of(kernel, many)

    functions = cu.Graph()
    functions.add_call(len, cu.read(host))
    calling = functions.instantiate()

    counter, unfinished, numbers = cu.Signal(), cu.Signal(), itertools.count(1)
    setting, waiting = cu.Stream(), cu.Stream()  # so that no other stream has waited
    setting.set(unfinished, 1)

    signalling = cu.Graph()
    signalling.add_set(cu.Signal(), 1)
    signalling = signalling.instantiate()
    set_of_graph = signalling[0]

    def launch_with_set():
        set_of_graph.set(next(numbers))
        signalling.launch(setting)

    def lend():
        with lent[0].lend(theirs):
            pass

    return {
        "copy_from_async, page-locked": lambda: device.copy_from_async(host, stream),
        "copy_to_async, page-locked": lambda: device.copy_to_async(host, stream),
        "copy_from_async, device": lambda: second.copy_from_async(device, stream),
        "fill_async": lambda: device.fill_async(0, stream),
        COLUMNS[0]: lambda: short_column.fill_async(0, stream),
        COLUMNS[1]: lambda: long_column.fill_async(0, stream),
        "copy_from_async, between boxes": lambda: column.copy_from_async(another_column, stream),
        "copy_from_async, a box to a buffer": lambda: packed.copy_from_async(column, stream),
        "copy_batch, 8 parts": lambda: cu.copy_batch(few, stream),
        "copy_batch, 64 parts": lambda: cu.copy_batch(more, stream),
        "copy_batch, 256 parts": lambda: cu.copy_batch(most, stream),
        "copy_batch, 64 buffers": lambda: cu.copy_batch(scattered, stream),
        "launch, 4 arguments": lambda: kernel.launch(
            1, 1, 2.0, cu.read(host), device, NBYTES, stream=stream
        ),
        "launch, 4 arguments, of them one buffer twice": lambda: kernel.launch(
            1, 1, 2.0, device, device, NBYTES, stream=stream
        ),
        "launch, 4 arguments, of them 2 of another library": lambda: another.launch(
            1, 1, 2.0, x, y, NBYTES, stream=theirs
        ),
        "launch, prepared": lambda: ready.launch(stream),
        "launch of a graph, 2 buffers": lambda: short.launch(stream),
        "launch of a graph, 32 buffers": lambda: long.launch(stream),
        "stream.call, 1 buffer": lambda: stream.call(len, cu.read(host)),
        "stream.set": lambda: setting.set(counter, next(numbers)),
        "stream.wait, a signal": lambda: waiting.wait(unfinished, 1),
        "launch of a graph with a function": lambda: calling.launch(stream),
        "launch of a graph with a set": launch_with_set,
        "new arguments of 1 of 32 nodes": lambda: changed.set(3.0, first, first, NBYTES),
        "update of 32 nodes": lambda: long.update(another_graph),
        "a loan begun and ended": lend,
        "an export by DLPack, begun and ended": lambda: exported.__dlpack__(stream=1),
        "an export to another library's stream": lambda: exported.__dlpack__(stream=foreign),
        "record": lambda: stream.record(event),
        "wait": lambda: stream.wait(done_elsewhere),
        "synchronize": lambda: stream.synchronize(),
        "done": lambda: stream.done,
        "LockedBuffer, pooled": lambda: cu.LockedBuffer(LARGE),
        "DeviceBuffer, pooled": lambda: cu.DeviceBuffer(LARGE),
        "DeviceBuffer, on a stream": lambda: cu.DeviceBuffer(LARGE, stream=stream),
    }


def graph_of(kernel, buffers):
    """Return a graph that launches the kernel on each buffer and the next one."""
    import cudadrv as cu

    graph, last = cu.Graph(), ()
    for x, y in zip(buffers, [*buffers[1:], buffers[0]], strict=True):
        last = [graph.add_launch(kernel, 1, 1, 2.0, cu.read(x), y, NBYTES, after=last)]
    return graph


def calls(number):
    """Make the calls that callgrind counts, in this process."""
    import numpy  # noqa: F401

    counted = ctypes.PyDLL(os.environ["CUDADRV_DRIVER"]).null_counted
    counted.argtypes = [ctypes.py_object, ctypes.c_int, ctypes.c_char_p]
    gc.disable()  # when the collector runs depends on earlier calls
    counted(lambda: importlib.import_module("cudadrv"), 1, IMPORT.encode())
    import cudadrv as cu

    owner = cu.DeviceBuffer(NBYTES)
    alive = [cu.DeviceBuffer.from_address(owner.address, 64, owner=owner) for _ in range(number)]
    for name, call in operations().items():
        for _ in range(WARM_UP):
            call()
        counted(call, CALLS, name.encode())
    os._exit(len(alive) != number)  # without a million destructors, which are slow under valgrind


def missing():
    """Return a message about a missing tool that counting needs, or None."""
    for tool in ("valgrind", compiler()):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    test = [compiler(), "-E", "-include", "valgrind/callgrind.h", "-x", "c", os.devnull]
    if subprocess.run(test, capture_output=True).returncode:
        return "valgrind's headers are not installed"
    return None


def compiler():
    return os.environ.get("CC", "cc")


def count(number=1):
    """Return ``{name: instructions per call}`` of all operations, with `number` live buffers."""
    with tempfile.TemporaryDirectory() as folder:
        driver, counts = Path(folder, "libnull.so"), Path(folder, "counts")
        source = HERE / "null_driver.c"
        subprocess.run([compiler(), "-O2", "-shared", "-fPIC", source, "-o", driver], check=True)
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        command += [f"--callgrind-out-file={counts}", sys.executable, __file__]
        environment = {
            **os.environ,
            "CUDADRV_DRIVER": str(driver),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": f"{TESTS}:{HERE.parent}",
        }
        # Python writes its bytecode at the first import, unless this variable is set.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([sys.executable, "-c", "import cudadrv"], env=environment, check=True)
        done = subprocess.run(
            [*command, "--calls", str(number)], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"the counted process failed:\n{done.stderr}")
        found = {}
        for path in Path(folder).glob("counts.*"):
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if name and total:
                divisor = 1 if name[1] == IMPORT else CALLS
                found[int(path.suffix[1:])] = name[1], round(int(total[1]) / divisor)
    return dict(found[at] for at in sorted(found))


def recorded():
    """Return the recorded counts by BUILD: Python version, compiler and machine."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def grown(counted, former):
    """Return a line for each operation that takes clearly more instructions than recorded."""
    return [
        f"{name}: {former[name]:,} -> {instructions:,} ({instructions / former[name] - 1:+.1%})"
        for name, instructions in counted.items()
        if instructions > former[name] * (1 + MOST_GROWTH)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("buffers", nargs="*", type=int, metavar="BUFFERS", help="live meanwhile")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name} anew")
    parser.add_argument("--calls", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls is not None:
        return calls(options.calls)
    if reason := missing():
        sys.exit(reason)
    former = recorded()
    for number in options.buffers or ([1] if options.record else [1, 1_000, 1_000_000]):
        counted = count(number)
        print(f"{number:,} live buffers, instructions a call; {BUILD}")
        for name, instructions in counted.items():
            before = former.get(BUILD, {}).get(name)
            change = f"  {instructions / before - 1:+7.1%} of {before:,}" if before else ""
            print(f"  {name:30} {instructions:10,}{change}", flush=True)
        if options.record:
            RECORD.write_text(json.dumps({**former, BUILD: counted}, indent=1) + "\n")


if __name__ == "__main__":
    main()
