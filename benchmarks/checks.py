"""What a check costs, by the number of objects that exist.

    python benchmarks/checks.py [--null-driver] [--buffers N]

Nanoseconds of one operation with its check, through the public API and with the engine alone, by
the number of live buffers, of streams, of ranges of one buffer, of operations since the last
synchronization, and of live views. Medians of alternating rounds. `--null-driver` runs them with
a driver that does nothing (needs a C compiler), so that only the library is measured. The live
buffers are made with `from_address`, each with its own records, so that a million fit a device.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import cudadrv as cu
from cudadrv.testing import drain

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ownership"))
from private_engine import Domain, Engine, MemoryState, StreamState

ROUNDS = 5
CALLS = 200
REPEATS = 5

Call = Callable[[], object]
Case = Callable[[int], Iterator[Call]]


def settle() -> None:
    """Wait for the device without the library's knowledge."""
    if cu.driver_info().is_software:
        drain()
    elif "null" not in cu.driver_info().path:
        time.sleep(0.01)


def nanoseconds(call: Call, calls: int = CALLS) -> float:
    taken = []
    for _ in range(REPEATS if calls > 1 else 1):
        settle()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        taken.append((time.perf_counter_ns() - start) / calls)
    return statistics.median(taken)


def engine(streams: int, sizes: list[int]) -> tuple[list[StreamState], list[MemoryState]]:
    domain = Domain(Engine())
    made = [StreamState(domain) for _ in range(streams)]
    return made, [MemoryState(domain.engine, size) for size in sizes]


# ---- live buffers ----


def copy_beside(number: int) -> Iterator[Call]:
    stream, owner = cu.Stream(), cu.DeviceBuffer(64)
    source, target = cu.LockedBuffer.zeros(64), cu.DeviceBuffer(64)
    alive = [cu.DeviceBuffer.from_address(owner.address, 64, owner=owner) for _ in range(number)]
    yield lambda: target.copy_from_async(source, stream)
    stream.synchronize()
    del alive


def copy_beside_engine(number: int) -> Iterator[Call]:
    (stream,), memories = engine(1, [64] * (number + 2))
    read, write = (memories[0], 0, 64, "read"), (memories[-1], 0, 64, "write")
    yield lambda: stream.issue(read, write)


# ---- streams ----


def in_turn(number: int) -> Iterator[Call]:
    """One buffer, which all streams use in turn."""
    streams, buffer = [cu.Stream() for _ in range(number)], cu.DeviceBuffer(64)
    events = [stream.record() for stream in streams]
    turn = 0

    def call() -> None:
        nonlocal turn
        stream = streams[turn]
        stream.wait(events[turn - 1])
        buffer.fill_async(0, stream)
        stream.record(events[turn])
        turn = (turn + 1) % number

    yield call
    for stream in streams:
        stream.synchronize()


def in_turn_engine(number: int) -> Iterator[Call]:
    streams, (memory,) = engine(number, [64])
    events = [stream.snapshot(True) for stream in streams]
    turn = 0

    def call() -> None:
        nonlocal turn
        stream = streams[turn]
        stream.wait(events[turn - 1])
        stream.issue((memory, 0, 64, "write"))
        events[turn] = stream.snapshot(True)
        turn = (turn + 1) % number

    yield call


def side_by_side(number: int) -> Iterator[Call]:
    """Each stream uses its own buffer."""
    pairs = [(cu.Stream(), cu.DeviceBuffer(64)) for _ in range(number)]
    turn = 0

    def call() -> None:
        nonlocal turn
        stream, buffer = pairs[turn]
        buffer.fill_async(0, stream)
        turn = (turn + 1) % number

    yield call
    for stream, _ in pairs:
        stream.synchronize()


def side_by_side_engine(number: int) -> Iterator[Call]:
    streams, memories = engine(number, [64] * number)
    pairs = list(zip(streams, memories, strict=True))
    turn = 0

    def call() -> None:
        nonlocal turn
        stream, memory = pairs[turn]
        stream.issue((memory, 0, 64, "write"))
        turn = (turn + 1) % number

    yield call


# ---- ranges ----


def on_a_part(number: int) -> Iterator[Call]:
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64 * number)
    parts = buffer.chunks(64)
    for part in parts:
        part.fill_async(0, stream)
    yield lambda: parts[number // 2].fill_async(0, stream)
    stream.synchronize()


def on_a_part_engine(number: int) -> Iterator[Call]:
    (stream,), (memory,) = engine(1, [64 * number])
    for start in range(0, 64 * number, 64):
        stream.issue((memory, start, start + 64, "write"))
    part = (memory, number // 2 * 64, number // 2 * 64 + 64, "write")
    yield lambda: stream.issue(part)


def on_the_whole(number: int) -> Iterator[Call]:
    """One operation on the whole buffer, which joins all ranges."""
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64 * number)
    for part in buffer.chunks(64):
        part.fill_async(0, stream)
    yield lambda: buffer.fill_async(0, stream)
    stream.synchronize()


def on_the_whole_engine(number: int) -> Iterator[Call]:
    (stream,), (memory,) = engine(1, [64 * number])
    for start in range(0, 64 * number, 64):
        stream.issue((memory, start, start + 64, "write"))
    whole = (memory, 0, 64 * number, "write")
    yield lambda: stream.issue(whole)


# ---- the host ----


def synchronize_after(number: int) -> Iterator[Call]:
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    for turn in range(number):
        buffer.fill_async(0, stream)
        if turn % 1024 == 1023:
            settle()
    settle()
    yield stream.synchronize


def synchronize_after_engine(number: int) -> Iterator[Call]:
    (stream,), (memory,) = engine(1, [64])
    for _ in range(number):
        stream.issue((memory, 0, 64, "write"))
    yield lambda: stream.snapshot().join_host()


def item_beside_views(number: int) -> Iterator[Call]:
    buffer = cu.LockedBuffer.zeros(64)
    shared = buffer.readonly()
    views = [np.asarray(shared) for _ in range(number)]
    yield lambda: buffer[0]
    del views


def item_beside_views_engine(number: int) -> Iterator[Call]:
    _, (memory,) = engine(1, [64])
    views = [memory.export(0, 64, "read") for _ in range(number)]
    yield lambda: memory.export(0, 64, "read")
    while views:  # the newest first, as most programs drop them
        views.pop()


def tables(buffers: int) -> list[tuple[str, list[int], int, Case, Case]]:
    """Return, for each table, title, numbers, calls of one measurement, and the two cases."""
    streams = [1, 2, 4, 8, 16, 32, 64]
    ranges = [1, 10, 100, 1_000]
    return [
        ("copy, live buffers", [1, 1_000, buffers], CALLS, copy_beside, copy_beside_engine),
        ("wait, fill, record, streams in turn", streams, CALLS, in_turn, in_turn_engine),
        ("fill, streams with own buffers", streams, CALLS, side_by_side, side_by_side_engine),
        ("fill of a part, ranges", ranges, CALLS, on_a_part, on_a_part_engine),
        ("first fill of the whole, ranges", ranges, 1, on_the_whole, on_the_whole_engine),
        (
            *("synchronize(), operations before", [1, 100, 10_000, 1_000_000], 1),
            *(synchronize_after, synchronize_after_engine),
        ),
        (
            *("buffer[0], live views", [0, 1, 100, 10_000], CALLS),
            *(item_beside_views, item_beside_views_engine),
        ),
    ]


def measure(case: Case, number: int, calls: int) -> float:
    made = case(number)
    taken = nanoseconds(next(made), calls)
    next(made, None)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--null-driver", action="store_true")
    parser.add_argument("--buffers", type=int, default=1_000_000)
    options = parser.parse_args()
    os.environ.setdefault("CUDADRV_SOFTWARE", "schedule=lazy,races=off")
    with tempfile.TemporaryDirectory() as folder:
        if options.null_driver:
            source = Path(__file__).with_name("null_driver.c")
            driver = Path(folder, "libnull.so")
            compiler = os.environ.get("CC", "cc")
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", driver], check=True)
            os.environ["CUDADRV_DRIVER"] = str(driver)
        print(f"{cu.driver_info().name}, {cu.Device(0).name}")
    for title, numbers, calls, *cases in tables(options.buffers):
        found: dict[tuple[int, int], list[float]] = {}
        for _ in range(ROUNDS):
            for number in numbers:
                for way, case in enumerate(cases):
                    found.setdefault((way, number), []).append(measure(case, number, calls))
        print(f"\n| ns: {title} | cudadrv | engine alone |\n|---|---|---|")
        for number in numbers:
            api, alone = (statistics.median(found[way, number]) for way in (0, 1))
            print(f"| {number:,} | {api:,.0f} | {alone:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
