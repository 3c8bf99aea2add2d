"""What a call costs: bare from C, through cudadrv, and through other bindings found installed.

    python benchmarks/calls.py [--json FILE]

All are timed in one process, in turns, and the median of the rounds counts: ratios within a row
mean something on a noisy machine, times of two runs do not. The C floor is compiled on the spot.
"""

import argparse
import ctypes
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cudadrv as cu

NBYTES = 4096
ROUNDS = 15
CALLS = 400
ROWS = {
    "h": "copy 4 KiB host to device, asynchronous",
    "H": "the same, then wait for it on the host",
    "d": "copy 4 KiB device to host, asynchronous",
    "f": "fill 4 KiB, asynchronous",
    "r": "record an event",
    "w": "wait for an event on a stream",
    "s": "synchronize an idle stream",
}


def floor(stream, device, host, event):
    """The same calls from a loop in C."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from cuda_header import find_cuda_header

    target = str(Path(tempfile.mkdtemp(), "floor.so"))
    source = str(Path(__file__).with_name("floor.c"))
    include = str(find_cuda_header().folder)
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", f"-I{include}", source, "-o", target, "-ldl"],
        check=True,
    )
    call = ctypes.CDLL(target).floor_call
    call.restype = ctypes.c_double
    call.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulonglong, ctypes.c_ulonglong]
    call.argtypes += [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    path = cu.driver_info().path.encode()

    def timed(row):
        taken = call(path, row.encode(), device, host, NBYTES, stream, event, CALLS)
        if taken < 0:
            raise RuntimeError(f"the driver refused: {ROWS[row]}")
        return taken

    return {row: lambda row=row: timed(row) for row in ROWS}


def loop(settle, calls):
    """Time each call in a plain loop; the loop itself is taken off."""

    def timed(function):
        settle()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            function()
        taken = time.perf_counter_ns() - start
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            pass
        taken -= time.perf_counter_ns() - start
        settle()
        return taken / CALLS

    return {row: lambda function=function: timed(function) for row, function in calls.items()}


def ours():
    stream, event = cu.Stream(), cu.Event()
    host, device = cu.LockedBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
    stream.record(event)

    def both():
        device.copy_from_async(host, stream)
        stream.synchronize()

    calls = {
        "h": lambda: device.copy_from_async(host, stream),
        "H": both,
        "d": lambda: device.copy_to_async(host, stream),
        "f": lambda: device.fill_async(0, stream),
        "r": lambda: stream.record(event),
        "w": lambda: stream.wait(event),
        "s": stream.synchronize,
    }
    bare_stream, bare_event = cu.Stream(), cu.Event()
    bare_stream.record(bare_event)
    keep = (bare_stream, bare_event, host, device)
    # A stream whose handle others know is asked whether it captures; so the floor has its own.
    bare = floor(bare_stream.handle, device.address, host.address, bare_event.handle)
    return bare, loop(stream.synchronize, calls), keep


def cuda_bindings():
    from cuda.bindings import driver

    with cu.Device(0):
        host, device = cu.LockedBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
        _, stream = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        _, event = driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    target, source = driver.CUdeviceptr(device.address), host.address
    driver.cuEventRecord(event, stream)

    def both():
        driver.cuMemcpyHtoDAsync(target, source, NBYTES, stream)
        driver.cuStreamSynchronize(stream)

    calls = {
        "h": lambda: driver.cuMemcpyHtoDAsync(target, source, NBYTES, stream),
        "H": both,
        "d": lambda: driver.cuMemcpyDtoHAsync(source, target, NBYTES, stream),
        "f": lambda: driver.cuMemsetD8Async(target, 0, NBYTES, stream),
        "r": lambda: driver.cuEventRecord(event, stream),
        "w": lambda: driver.cuStreamWaitEvent(stream, event, 0),
        "s": lambda: driver.cuStreamSynchronize(stream),
    }
    return loop(lambda: driver.cuStreamSynchronize(stream), calls), (host, device)


def cuda_core():
    try:
        from cuda.core import Device, LegacyPinnedMemoryResource
    except ImportError:
        from cuda.core.experimental import Device, LegacyPinnedMemoryResource

    unit = Device(0)
    unit.set_current()
    stream = unit.create_stream()
    device = unit.memory_resource.allocate(NBYTES, stream=stream)
    host = LegacyPinnedMemoryResource().allocate(NBYTES)
    event = stream.record()

    def both():
        device.copy_from(host, stream=stream)
        stream.sync()

    calls = {
        "h": lambda: device.copy_from(host, stream=stream),
        "H": both,
        "d": lambda: device.copy_to(host, stream=stream),
        "r": lambda: stream.record(event),
        "w": lambda: stream.wait(event),
        "s": stream.sync,
    }
    if hasattr(device, "fill"):
        calls["f"] = lambda: device.fill(0, stream=stream)
    return loop(stream.sync, calls), (host, device)


def cupy():
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    event = cupy.cuda.Event(disable_timing=True)
    device = cupy.cuda.alloc(NBYTES)
    host = cupy.cuda.alloc_pinned_memory(NBYTES)
    event.record(stream)

    def both():
        device.copy_from_host_async(host.ptr, NBYTES, stream)
        stream.synchronize()

    calls = {
        "h": lambda: device.copy_from_host_async(host.ptr, NBYTES, stream),
        "H": both,
        "d": lambda: device.copy_to_host_async(host.ptr, NBYTES, stream),
        "f": lambda: device.memset_async(0, NBYTES, stream),
        "r": lambda: event.record(stream),
        "w": lambda: stream.wait_event(event),
        "s": stream.synchronize,
    }
    return loop(stream.synchronize, calls), (host, device)


def measure():
    bare, timed, keep = ours()
    columns, kept = {"bare call from C": bare, "cudadrv": timed}, [keep]
    for name, peer in (("cuda.bindings", cuda_bindings), ("cuda.core", cuda_core), ("CuPy", cupy)):
        if cu.driver_info().is_software:
            break
        try:
            columns[name], keep = peer()
            kept.append(keep)
        except ImportError as missing:
            print(f"without {name}: {missing}", file=sys.stderr)
    times = {name: {row: [] for row in rows} for name, rows in columns.items()}
    for turn in range(ROUNDS + 1):
        for row in ROWS:
            for name, rows in columns.items():
                if row in rows:
                    taken = rows[row]()
                    if turn:  # the first one warms up
                        times[name][row].append(taken)
    return {
        name: {row: statistics.median(rounds) for row, rounds in rows.items()}
        for name, rows in times.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    options = parser.parse_args()
    info, device = cu.driver_info(), cu.Device(0)
    about = {
        "date": datetime.date.today().isoformat(),
        "device": device.name,
        "cuda": ".".join(map(str, info.version)),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    medians = measure()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print("| nanoseconds a call | " + " | ".join(medians) + " |")
    print("|---|" + "---|" * len(medians))
    for row, words in ROWS.items():
        bare = medians["bare call from C"][row]
        cells = [
            f"{rows[row]:,.0f} ({rows[row] / bare:.2f})" if row in rows else "-"
            for rows in medians.values()
        ]
        print(f"| {words} | " + " | ".join(cells) + " |")
    if options.json:
        Path(options.json).write_text(json.dumps({**about, "medians_ns": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
