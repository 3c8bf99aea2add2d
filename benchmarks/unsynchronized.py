"""Checks that a program that never synchronizes does not need more and more memory.

    python benchmarks/unsynchronized.py [--steps N] [PROGRAM ...]

Each program orders its work only by events, for ever. Printed: microseconds of a step, the growth
of the process in the last four fifths of the steps, and the maximum of live objects of the driver.

On the software driver, the race detector is off, and this thread runs the queued work from time to
time. Otherwise the queue itself would grow. The driver's own threads are not used: each needs
200 KiB when it first runs work, and the time of that depends on the load of the machine.
"""

import argparse
import gc
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import cudadrv as cu
from cudadrv import testing

WARM_UP = 5  # the measurement begins after the first fifth of the steps
ROOM = 64  # steps between two checks


def events_recorded_again() -> Iterator[None]:
    """Two streams pass a buffer back and forth, with one event each."""
    producer, consumer, buffer = cu.Stream(), cu.Stream(), cu.DeviceBuffer(64)
    full, empty = cu.Event(), cu.Event()
    while True:
        buffer.fill_async(1, producer)
        producer.record(full)
        consumer.wait(full)
        buffer.fill_async(2, consumer)
        consumer.record(empty)
        producer.wait(empty)
        yield


def streams_waiting_for_streams() -> Iterator[None]:
    """Two streams pass a buffer back and forth, with a new event each time."""
    producer, consumer, buffer = cu.Stream(), cu.Stream(), cu.DeviceBuffer(64)
    while True:
        buffer.fill_async(1, producer)
        consumer.wait(producer)
        buffer.fill_async(2, consumer)
        producer.wait(consumer)
        yield


def ring_with_changing_cuts() -> Iterator[None]:
    """Eight streams in turn use eight parts, whose bounds always change."""
    streams, buffer = [cu.Stream() for _ in range(8)], cu.DeviceBuffer(4096)
    while True:
        for turn in range(8 * 997):
            stream = streams[turn % 8]
            stream.wait(streams[turn % 8 - 1])
            start = turn % 8 * 512 + turn * 7 % 100
            buffer[start : start + 300 + turn * 13 % 200].fill_async(0, stream)
            yield


def ever_new_parts() -> Iterator[None]:
    """One stream uses another part of a large buffer each time."""
    stream, buffer = cu.Stream(), cu.DeviceBuffer(1 << 20)
    turn = 0
    while True:
        start = turn * 977 % (buffer.count - 5000)
        buffer[start : start + 1 + turn * 31 % 5000].fill_async(0, stream)
        turn += 1
        yield


def streams_opened_and_closed() -> Iterator[None]:
    """Each stream has unfinished work and waits for the one before; half of them are dropped."""
    buffer, last = cu.DeviceBuffer(64), cu.Stream()
    turn = 0
    while True:
        stream = cu.Stream()
        stream.wait(last)
        buffer.fill_async(0, stream)
        if turn % 2:
            last.close()
        last = stream
        turn += 1
        yield


def readers_on_new_streams() -> Iterator[None]:
    """New streams read one buffer, which is never written again."""
    source = cu.DeviceBuffer.zeros(64)
    targets = cu.DeviceBuffer(64 * 512).chunks(64)
    while True:
        for turn in range(len(targets)):
            stream = cu.Stream()
            with cu.ordering("wait"):  # the target was written by an earlier stream
                targets[turn].copy_from_async(source, stream)
            yield


def buffers_dropped_while_busy() -> Iterator[None]:
    """Buffers of every kind are dropped, and the device is hardly ever idle."""
    stream, owner = cu.Stream(), cu.DeviceBuffer(64)
    pools = stream.context.pools
    for pool in (pools.device, pools.locked, pools.unified):
        pool.limit_bytes = 100 * 64  # without a limit, the pool would grow during the measurement
    makers: list[Callable[[], cu.Buffer]] = [
        lambda: cu.DeviceBuffer(64),
        lambda: cu.DeviceBuffer(64, stream=stream),
        lambda: cu.LockedBuffer(64),
        lambda: cu.UnifiedBuffer(64),
        lambda: cu.DeviceBuffer.from_address(owner.address, 64, owner=owner),
    ]
    while True:
        for make in makers:
            make().fill_async(0, stream)
            yield


def snapshots_of_ordinary_memory() -> Iterator[None]:
    """Asynchronous copies of arrays, each through a page-locked stage of the library."""
    stream, buffer, data = cu.Stream(), cu.DeviceBuffer(64), bytes(64)
    while True:
        buffer.copy_from_async(data, stream)
        yield


PROGRAMS = {
    program.__name__: program
    for program in (
        events_recorded_again,
        streams_waiting_for_streams,
        ring_with_changing_cuts,
        ever_new_parts,
        streams_opened_and_closed,
        readers_on_new_streams,
        buffers_dropped_while_busy,
        snapshots_of_ordinary_memory,
    )
}


def resident() -> int:
    """Return the resident memory of the process in bytes, without pages of files.

    Pages of files are code, which appears when it first runs and may vanish at any time. Linux
    counts the pages for `smaps_rollup`, which is read here; `statm` and `status` may be wrong by 32
    pages or more for each processor.
    """
    gc.collect()
    pages = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return sum(int(kib) for kib in re.findall(r"Pss_(?:Anon|Shmem):\s+(\d+) kB", pages)) * 1024


def run(name: str, steps: int) -> tuple[float, int, Counter[str]]:
    """Return the us of a step, the growth of the process in bytes, and the most live objects."""
    program = PROGRAMS[name]()
    software = cu.driver_info().is_software
    most: Counter[str] = Counter()
    start = time.perf_counter()
    before = 0
    for step in range(steps):
        next(program)
        if software and step % ROOM == 0:
            most |= Counter(testing.live_objects())
            testing.drain()
        if step == steps // WARM_UP:
            before = resident()
    seconds = time.perf_counter() - start
    return seconds / steps * 1e6, resident() - before, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    os.environ.setdefault("CUDADRV_SOFTWARE", "schedule=lazy,races=off")
    for name in options.programs or PROGRAMS:
        if name not in PROGRAMS:
            sys.exit(f"there is no program {name!r}; there are {', '.join(PROGRAMS)}")
        taken, grown, most = run(name, options.steps)
        alive = ", ".join(f"{count} {kind}" for kind, count in most.items() if count)
        print(f"{name:30}  {taken:7.1f} us  {grown / 1024:+9,.0f} KiB  {alive}", flush=True)
        cu.Device(0).synchronize()
        cu.reap()


if __name__ == "__main__":
    main()
