"""What exploring costs: orders a second, memory, and runs until a forgotten wait is found.

    python benchmarks/explore.py [--seeds N]

It needs the software driver. The programs call the driver's functions through ctypes.
"""

import argparse
import ctypes
import os
import statistics
import time
from pathlib import Path

import cudadrv as cu
from cudadrv import testing
from cudadrv._explore import Verdict, explore

CHUNKS = 6
BYTES = 64
NON_BLOCKING, NO_TIMING = 1, 2
MOST_TRIES = 1000
PROGRAMS = {
    "right": None,
    "a wait for a frame is missing": "arrival",
    "the waits for a slot are missing": "reuse",
    "an event is recorded too early": "record",
    "the host waits for one stream only": "host",
}


class Pipeline:
    """Frames go through two slots on three streams; `forgets` names the wait that is missing."""

    def __init__(self, forgets: str | None, chunks: int = CHUNKS) -> None:
        self.driver = ctypes.CDLL(cu.driver_info().path)
        self.forgets, self.chunks = forgets, chunks

    def call(self, function: str, *arguments: object) -> None:
        status = getattr(self.driver, function)(*arguments)
        assert status == 0, f"{function}: {status}"

    def make(self, function: str, flags: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.call(function, ctypes.byref(handle), flags)
        return handle

    def allocate(self, count: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), count * BYTES)
        return address

    def mark(self, stream: ctypes.c_void_p) -> ctypes.c_void_p:
        event = self.make("cuEventCreate", NO_TIMING)
        self.call("cuEventRecord", event, stream)
        self.events.append(event)
        return event

    def __call__(self) -> bool:
        """Run once; return whether the result is right."""
        with cu.Device(0):
            streams = [self.make("cuStreamCreate", NON_BLOCKING) for _ in range(2)]
            up, work = streams
            slots, result = [self.allocate(1) for _ in range(2)], self.allocate(self.chunks)
            self.events: list[ctypes.c_void_p] = []
            used: list[ctypes.c_void_p | None] = [None, None]
            for number in range(self.chunks):
                slot = number % 2
                before = used[slot]
                if before is not None and self.forgets != "reuse":
                    self.call("cuStreamWaitEvent", up, before, 0)
                early = number == 1 and self.forgets == "record"
                event = self.mark(up) if early else None
                self.call("cuMemsetD8Async", slots[slot], number + 1, BYTES, up)
                event = event or self.mark(up)
                if number != 1 or self.forgets != "arrival":
                    self.call("cuStreamWaitEvent", work, event, 0)
                target = ctypes.c_uint64(result.value + number * BYTES)
                self.call("cuMemcpyDtoDAsync_v2", target, slots[slot], BYTES, work)
                used[slot] = self.mark(work)
            for stream in streams[:1] if self.forgets == "host" else streams:
                self.call("cuStreamSynchronize", stream)
            found = (ctypes.c_ubyte * (self.chunks * BYTES))()
            self.call("cuMemcpyDtoH_v2", found, result, self.chunks * BYTES)
            for event in self.events:
                self.call("cuEventDestroy_v2", event)
            for address in (*slots, result):
                self.call("cuMemFree_v2", address)
            for stream in streams:
                self.call("cuStreamDestroy_v2", stream)
        return list(found[::BYTES]) == [number + 1 for number in range(self.chunks)]


def two_copies(pipeline: Pipeline) -> bool:
    """Two fills of the same bytes in two streams."""
    with cu.Device(0):
        streams = [pipeline.make("cuStreamCreate", NON_BLOCKING) for _ in range(2)]
        memory = pipeline.allocate(1)
        for value, stream in enumerate(streams):
            pipeline.call("cuMemsetD8Async", memory, value, BYTES, stream)
        for stream in streams:
            pipeline.call("cuStreamSynchronize", stream)
            pipeline.call("cuStreamDestroy_v2", stream)
        pipeline.call("cuMemFree_v2", memory)
    return True


def fills(pipeline: Pipeline, count: int) -> bool:
    """The same with several fills on each stream, and so many orders."""
    with cu.Device(0):
        streams = [pipeline.make("cuStreamCreate", NON_BLOCKING) for _ in range(2)]
        memory = pipeline.allocate(1)
        for value in range(count):
            for number, stream in enumerate(streams):
                pipeline.call("cuMemsetD8Async", memory, 2 * value + number, BYTES, stream)
        for stream in streams:
            pipeline.call("cuStreamSynchronize", stream)
            pipeline.call("cuStreamDestroy_v2", stream)
        pipeline.call("cuMemFree_v2", memory)
    return True


def memory_mb() -> float:
    """Return the memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def judge(right: bool) -> Verdict:
    return Verdict.PASSED if right else Verdict.FAILED


def seeds_until_found(pipeline: Pipeline, seeds: int) -> list[int]:
    """Return how many random seeds it takes, for several first seeds, until the result is wrong."""
    needed = []
    seed = 0
    for _ in range(seeds):
        first = seed
        while seed < first + MOST_TRIES:
            seed += 1
            testing.configure(f"schedule=random,seed={seed}")
            if not pipeline():
                break
        needed.append(seed - first)
    return needed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, metavar="N")
    options = parser.parse_args()
    cu.Device(0).synchronize()
    print("| program | orders | runs until found | random seeds until found (median) |")
    print("|---|---|---|---|")
    for name, forgets in PROGRAMS.items():
        pipeline = Pipeline(forgets)
        results: list[bool] = []

        def run(pipeline: Pipeline = pipeline, results: list[bool] = results) -> bool:
            results.append(pipeline())
            return True

        orders = explore(run, judge).runs
        if all(results):
            print(f"| {name} | {orders} | - | - |")
            continue
        seeds = statistics.median(seeds_until_found(pipeline, options.seeds))
        shown = f"{seeds:g}" if seeds < MOST_TRIES else f"more than {MOST_TRIES}"
        print(f"| {name} | {orders} | {results.index(False) + 1} | {shown} |")
    pipeline = Pipeline(None)
    start, runs = time.process_time(), 0
    while time.process_time() - start < 2:
        explore(lambda: two_copies(pipeline), judge)
        runs += 3  # the first run, and then one run of each order
    rate = runs / (time.process_time() - start)
    print(f"\ntwo fills on two streams: {rate:.0f} orders a CPU second")
    for count in (2, 4, 5, 6, 7):
        start, before = time.process_time(), memory_mb()
        orders = explore(lambda count=count: fills(pipeline, count), judge).runs
        seconds, grown = time.process_time() - start, memory_mb() - before
        print(
            f"{2 * count} fills: {orders} orders in {seconds:.2f} s of processor time,"
            f" {grown:.1f} MB more memory"
        )


if __name__ == "__main__":
    main()
