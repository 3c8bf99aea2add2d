"""``python -m cudadrv bench``: measures what single calls cost."""

import gc
import statistics
import time
from collections.abc import Callable
from contextlib import suppress

import cudadrv as cu

Call = Callable[[], object]

ROUNDS = 15
SMALL = 4096

WORDS = """\
Each figure is nanoseconds a call, called from Python in a loop: the median of {rounds} rounds, then
the fastest and the slowest of them. The loop itself is taken off. The driver's own work is
included; how much of it there is can only be told from a bare caller in C, which this is not.
"""


def run_bench() -> int:
    info = cu.driver_info()
    device = cu.Device(0)
    print(f"{info.name}, CUDA {info.version[0]}.{info.version[1]}, on {device.name}")
    print()
    print(WORDS.format(rounds=ROUNDS))
    stream = cu.Stream()
    host = cu.LockedBuffer.zeros(SMALL, name="host")
    memory = cu.DeviceBuffer(SMALL, name="memory")
    event = cu.Event()

    other = cu.Stream()
    settle = stream.synchronize

    def copy_and_wait() -> None:
        memory.copy_from_async(host, stream)
        stream.synchronize()

    def leave_work() -> None:
        memory.copy_from_async(host, stream)
        stream.record(event)

    def refused() -> None:
        with suppress(cu.BufferBorrowedError):
            host[0] = 1

    def write() -> None:
        host[0] = 1

    rows: list[tuple[str, Call, int, Call]] = [
        ("memory.copy_from_async(host, stream), 4 KiB",
         lambda: memory.copy_from_async(host, stream), 200, settle),
        ("host.copy_from_async(memory, stream), 4 KiB",
         lambda: host.copy_from_async(memory, stream), 200, settle),
        ("memory.fill_async(0, stream), 4 KiB",
         lambda: memory.fill_async(0, stream), 200, settle),
        ("copy_from_async, then stream.synchronize()", copy_and_wait, 100, settle),
        ("stream.record(event)", lambda: stream.record(event), 500, settle),
        ("other.wait(event)", lambda: other.wait(event), 500, leave_work),
        ("stream.synchronize(), nothing queued", settle, 500, settle),
        ("host[0] = 1, allowed", write, 500, settle),
        ("host[0] = 1, refused: makes and drops the exception", refused, 500, leave_work),
        ("cu.DeviceBuffer(1 MiB) and close()",
         lambda: cu.DeviceBuffer(1 << 20).close(), 50, settle),
        ("cu.LockedBuffer(1 MiB) and close()",
         lambda: cu.LockedBuffer(1 << 20).close(), 10, settle),
    ]  # fmt: skip
    for row in rows:
        show(*row)
    settle()
    other.synchronize()
    if info.is_software:
        print(
            "\nThis was the software driver, which is not a GPU. It shows that the calls work; its"
            "\nfigures say nothing about a GPU and are no measure of cudadrv."
        )
    return 0


def nothing() -> None:
    pass


def show(what: str, call: Call, calls: int, prepare: Call) -> None:
    """Measure a call, and print a line with the figures."""
    figures = [timed(call, calls, prepare) for _ in range(ROUNDS + 1)][1:]  # the first warms up
    idle = min(timed(nothing, calls, nothing) for _ in range(ROUNDS))
    low, middle, high = min(figures) - idle, statistics.median(figures) - idle, max(figures) - idle
    print(f"{middle:10,.0f}  {low:10,.0f} ..{high:10,.0f}  {what}", flush=True)


def timed(call: Call, calls: int, prepare: Call) -> float:
    """Return the nanoseconds of one call. `prepare` runs first, and is not timed."""
    prepare()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        return (time.perf_counter_ns() - start) / calls
    finally:
        gc.enable()
