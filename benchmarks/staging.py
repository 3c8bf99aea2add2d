"""Copies between ordinary memory and the device, by size, number of threads and size of chunks.

    python benchmarks/staging.py [--seconds N] [--json FILE]

The floor is a copy of page-locked memory in the same process. Each figure is the median of several
copies, and the plans alternate. `fresh` is a copy to a new array, whose pages the system has to
map first; all other arrays were used before.
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import threading
import time
from pathlib import Path

import numpy as np

import cudadrv as cu
from cudadrv._staging import plan

KIB, MIB = 1 << 10, 1 << 20
ROUNDS = 3
GRID_BYTES = 256 * MIB
THREADS = (1, 2, 4, 6, 8, 12, 16)
CHUNKS = (MIB, 2 * MIB, 4 * MIB, 8 * MIB)
PIECES = (256 * KIB, 512 * KIB, MIB, 2 * MIB)
RINGS = (4, 8)
MOST_RING_BYTES = 64 * MIB
NEVER = 1 << 62


class Copies:
    """Arrays and buffers of one size, and the ways to copy between them."""

    def __init__(self, nbytes, largest):
        self.nbytes = nbytes
        self.array = largest.array[:nbytes] if largest else np.zeros(nbytes, "u1")
        self.device = largest.device[:nbytes] if largest else cu.DeviceBuffer(nbytes)
        self.locked = largest.locked[:nbytes] if largest else cu.LockedBuffer(nbytes)
        self.stream = largest.stream if largest else cu.Stream()
        self.array[:] = 1

    def run(self, way):
        """Return the GB/s of one copy."""
        if way == "fresh":
            return self._fresh()
        start = time.perf_counter()
        if way == "in":
            self.device.copy_from(self.array, stream=self.stream)
        elif way == "out":
            self.device.copy_to(self.array, stream=self.stream)
        elif way == "locked in":
            self.device.copy_from(self.locked, stream=self.stream)
        else:
            self.device.copy_to(self.locked, stream=self.stream)
        return self.nbytes / (time.perf_counter() - start) / 1e9

    def _fresh(self):
        array = np.empty(self.nbytes, "u1")
        start = time.perf_counter()
        self.device.copy_to(array, stream=self.stream)
        return self.nbytes / (time.perf_counter() - start) / 1e9


def measure(copies, ways, plans, rounds, deadline):
    """Measure all ways and plans, alternating, until the deadline. Returns each median GB/s."""
    rates = {(way, at): [] for way in ways for at in range(len(plans))}
    for done in range(rounds):
        if done and time.monotonic() > deadline:
            break
        for at, settings in enumerate(plans):
            plan(**settings)
            for way in ways:
                rates[way, at].append(copies.run(way))
    return {key: statistics.median(found) for key, found in rates.items()}


def the_grid(copies, most, seconds):
    """Measure every reasonable plan for a large copy."""
    usual, plans = plan(), []
    for chunk, piece, ring in itertools.product(CHUNKS, PIECES, RINGS):
        if piece <= chunk and chunk * ring <= MOST_RING_BYTES:
            for threads in sorted({4, 8, most} & set(THREADS)):
                plans.append(
                    {
                        "chunk": chunk,
                        "piece": piece,
                        "ring": ring,
                        "threads": threads,
                        "least": chunk,
                        "fresh": MIB,
                        "threshold": 0,
                    }
                )
    ways = ("in", "out", "fresh")
    rates = measure(copies, ways, plans, ROUNDS, time.monotonic() + seconds)
    plan(**usual)
    rows = []
    for at, settings in enumerate(plans):
        rows.append({**settings, **{way: round(rates[way, at], 2) for way in ways}})
    return rows


def the_sizes(largest, most, seconds):
    """Compare one stage with several, by size and number of threads, and with small chunks."""
    usual, rows = plan(), []
    sizes = [64 * KIB << n for n in range(15) if 64 * KIB << n <= largest.nbytes]
    for nbytes in sizes:
        copies = Copies(nbytes, largest)
        rounds = max(ROUNDS, min(31, 64 * MIB // nbytes))
        plans = [{"threshold": NEVER}] if nbytes <= 64 * MIB else []
        plans += [{"threshold": 0, "threads": n} for n in THREADS if n <= most]
        if 512 * KIB <= nbytes <= 32 * MIB:
            for least, parts, piece in itertools.product(
                (256 * KIB, 512 * KIB, MIB), (2, 4, 8), (64 * KIB, 128 * KIB, 256 * KIB)
            ):
                plans.append(
                    {
                        "threshold": 0,
                        "threads": min(8, most),
                        "least": least,
                        "parts": parts,
                        "piece": piece,
                    }
                )
        ways = ("in", "out", "fresh")
        deadline = time.monotonic() + seconds / len(sizes)
        filled = [{**usual, **settings} for settings in plans]
        rates = measure(copies, ways, filled, rounds, deadline)
        floor = measure(copies, ("locked in", "locked out"), [usual], rounds, deadline + 0.1)
        for at, settings in enumerate(plans):
            row = {"nbytes": nbytes, **settings}
            rows.append({**row, **{way: round(rates[way, at], 2) for way in ways}})
        rows.append({"nbytes": nbytes, **{way: round(rate, 2) for (way, _), rate in floor.items()}})
        plan(**usual)
    return rows


def the_pages(largest, most):
    """Measure how fast the system maps the pages of a new array, by number of threads."""
    rows = []
    for threads in (1, 4, 8, most):
        rates = []
        for _ in range(3):
            array = np.empty(largest.nbytes, "u1")
            parts = np.array_split(array, 16 * threads)

            def touch(at, parts=parts, threads=threads):
                for part in parts[at::threads]:
                    part[::4096] = 1

            found = [threading.Thread(target=touch, args=(at,)) for at in range(threads)]
            start = time.perf_counter()
            for thread in found:
                thread.start()
            for thread in found:
                thread.join()
            rates.append(largest.nbytes / (time.perf_counter() - start) / 1e9)
            del array, parts, touch, found
        rows.append({"threads": threads, "rate": round(statistics.median(rates), 2)})
    return rows


def settings_of(row):
    words = []
    for name in ("chunk", "least", "piece"):
        if name in row:
            words.append(f"{name} {row[name] // KIB:5} KiB")
    for name in ("parts", "ring", "threads"):
        if name in row:
            words.append(f"{name} {row[name]:2}")
    return "  ".join(words)


def show_grid(rows, most):
    print(f"plans for {GRID_BYTES // MIB} MiB, GB/s: the 8 best of each way and number of threads")
    for way, threads in itertools.product(("in", "out", "fresh"), sorted({4, 8, most})):
        found = [row for row in rows if row["threads"] == threads]
        print(f"  {way}, {threads} threads:")
        for row in sorted(found, key=lambda row: -row[way])[:8]:
            print(f"    {row[way]:6.1f}  {settings_of(row)}")


def show_sizes(rows):
    print("by size, GB/s of in / out / fresh, and the 3 best plans of each way with small chunks")
    for nbytes, group in itertools.groupby(rows, key=lambda row: row["nbytes"]):
        found = list(group)
        print(
            f"  {nbytes // KIB} KiB: page-locked {found[-1]['locked in']:6.1f}"
            f" / {found[-1]['locked out']:6.1f}"
        )
        for row in found[:-1]:
            if "least" not in row:
                print(
                    f"    {row['in']:6.2f} / {row['out']:6.2f} / {row['fresh']:6.2f}"
                    f"  {settings_of(row) or 'one stage'}"
                )
        for way in ("in", "out", "fresh"):
            small = [row for row in found if "least" in row]
            for row in sorted(small, key=lambda row: -row[way])[:3]:
                print(f"    {way:5} {row[way]:6.2f}  {settings_of(row)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--seconds", type=float, default=60, help="about how long (default 60)")
    parser.add_argument("--largest", type=int, default=1 << 30, help="bytes of the largest copy")
    options = parser.parse_args()
    largest = Copies(options.largest, None)
    grid = Copies(min(GRID_BYTES, options.largest), largest)
    most = max(n for n in THREADS if n <= max(1, len(os.sched_getaffinity(0))))
    print(
        f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} processors,"
        f" {cu.Device(0).name}, {datetime.date.today()}; plan {plan()}"
    )
    largest.run("in")
    grid_rows = the_grid(grid, most, options.seconds * 0.6)
    show_grid(grid_rows, most)
    page_rows = the_pages(largest, most)
    print("touching new pages, GB/s:", page_rows)
    size_rows = the_sizes(largest, most, options.seconds * 0.4)
    show_sizes(size_rows)
    if options.json:
        options.json.write_text(
            json.dumps({"grid": grid_rows, "pages": page_rows, "sizes": size_rows}, indent=1)
        )


if __name__ == "__main__":
    main()
