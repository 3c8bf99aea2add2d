"""Copy in, kernel, copy out, in chunks: the pipeline compared with each of its stages alone.

    python benchmarks/pipeline.py [--size MIB] [--chunk MIB] [--buffers N ...] [--json FILE]

In each round every way runs once, and the result is the median of the rounds. A pipeline cannot be
faster than its slowest stage, nor than both copies at the same time, which may slow each other down
even if the device copies in both directions at once. Each pipeline is compared with both bounds.
`cudadrv.Pipeline` is measured with several numbers of buffers, beside a pipeline that is written by
hand: a stream for each stage, with events between the stages.
"""

import argparse
import gc
import statistics
import time
from pathlib import Path

import numpy as np
from machine import about, write

import cudadrv as cu

MIB = 1 << 20
SIZES = {False: (1024, 8), True: (32, 1)}  # MiB in total and in a chunk; True: software driver
ROUNDS = 15
BLOCK = 256
FACTOR = 2.0
KERNEL = Path(__file__).parent.parent / "examples" / "kernels" / "saxpy.ptx"
STAGES = ("copy in", "kernel", "copy out")
COPIES = "both copies at once"


class Pipeline:
    """Page-locked memory in chunks, device buffers for a few of them, and the ways to use them."""

    def __init__(self, nbytes, chunk, buffers):
        self.count = chunk // 4
        self.source = cu.LockedBuffer(nbytes // 4, "f4", name="source")
        self.result = cu.LockedBuffer.zeros(nbytes // 4, "f4", name="result")
        self.sources = self.source.chunks(self.count)
        self.results = self.result.chunks(self.count)
        self.kernel = cu.Module.from_file(KERNEL)["saxpy"]
        most = max(buffers)
        self.streams = [cu.Stream() for _ in STAGES]
        self.works = [
            cu.DeviceBuffer.zeros(self.count, "f4", name="work") for _ in range(max(most, 2))
        ]
        self.free = [cu.Event() for _ in range(most)]
        self.pipelines = {
            number: cu.Pipeline(
                self.count, "f4", compute=self.computed, in_place=True, buffers=number
            )
            for number in buffers
        }
        numbers = np.arange(self.count, dtype="f4") % 4096
        for at, chunk in enumerate(self.sources):
            with chunk.write() as array:
                np.add(numbers, at, out=array)

    def compute(self, work, stream):
        """Add to each number `FACTOR` times itself."""
        grid = -(-self.count // BLOCK)
        return self.kernel.launch(
            grid, BLOCK, FACTOR, cu.read(work), work, self.count, stream=stream
        )

    def computed(self, stream, work, same):
        """Compute a chunk of `cudadrv.Pipeline`, in place."""
        self.compute(work, stream)

    def stage(self, name):
        """Run one stage alone."""
        stream, works = self.streams[0], self.works
        for at, (source, result) in enumerate(zip(self.sources, self.results, strict=True)):
            work = works[at % len(works)]
            if name == "copy in":
                work.copy_from_async(source, stream)
            elif name == "kernel":
                self.compute(work, stream)
            else:
                work.copy_to_async(result, stream)

    def copies(self):
        """Run both copies, on streams that never wait for each other."""
        first, second, _ = self.streams
        given, taken, *_ = self.works
        for source, result in zip(self.sources, self.results, strict=True):
            given.copy_from_async(source, first)
            taken.copy_to_async(result, second)

    def by_class(self, number):
        """Run `cudadrv.Pipeline` with this many buffers. Waits for the end."""
        self.pipelines[number].run(self.source, into=self.result)

    def by_hand(self, number):
        """Queue the same work without `cudadrv.Pipeline`, with this many buffers."""
        inward, middle, outward = self.streams
        for at, (source, result) in enumerate(zip(self.sources, self.results, strict=True)):
            work, free = self.works[at % number], self.free[at % number]
            if at >= number:
                inward.wait(free)
            middle.wait(work.copy_from_async(source, inward))
            outward.wait(self.compute(work, middle))
            work.copy_to_async(result, outward)
            outward.record(free)

    def timed(self, way, *arguments):
        """Return the seconds until everything is queued, and until everything is complete."""
        gc.disable()
        start = time.perf_counter()
        way(*arguments)
        issued = time.perf_counter() - start
        for stream in self.streams:
            stream.synchronize()
        taken = time.perf_counter() - start
        gc.enable()
        return issued, taken

    def check(self, way, *arguments):
        """Check the result; also warms up."""
        with self.result.write() as array:
            array[:] = 0
        self.timed(way, *arguments)
        for source, result in zip(self.sources, self.results, strict=True):
            with source.read() as given, result.read() as found:
                if not np.array_equal(found, given * np.float32(1 + FACTOR)):
                    raise SystemExit(f"{way.__name__}{arguments} gave wrong numbers")


def measure(pipeline, buffers, rounds):
    """Return the seconds to issue and to finish, for each way and round."""
    pipelines = {f"Pipeline, {n} buffers": (pipeline.by_class, n) for n in buffers}
    pipelines[f"by hand, {max(buffers)} buffers"] = pipeline.by_hand, max(buffers)
    for way in pipelines.values():
        pipeline.check(*way)
    ways = {name: (pipeline.stage, name) for name in STAGES}
    ways |= {COPIES: (pipeline.copies,), **pipelines}
    times = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            taken = pipeline.timed(*way)
            if turn:  # the first turn warms up
                times[name].append(taken)
    return times


def rows(times, nbytes):
    """Return for each way ms, GB/s, and the fraction of its time that each bound would take."""
    found = {}
    for name, both in times.items():
        issued, taken = (sorted(figures) for figures in zip(*both, strict=True))
        quarter = len(taken) // 4
        found[name] = {
            "issued ms": statistics.median(issued) * 1e3,
            "ms": statistics.median(taken) * 1e3,
            "low": taken[quarter] * 1e3,
            "high": taken[-1 - quarter] * 1e3,
            "GB/s": nbytes / statistics.median(taken) / 1e9,
        }
    slowest = max(found[name]["ms"] for name in STAGES)
    both = max(found[COPIES]["ms"], found["kernel"]["ms"])
    for name, row in found.items():
        if name not in (*STAGES, COPIES):
            row["of the slowest stage"] = slowest / row["ms"]
            row["of both copies at once"] = both / row["ms"]
    return found


def show(found):
    print(f"{'':38}{'GB/s':>8}{'ms':>9}{'issued':>9}  slowest stage / it  both copies / it")
    for name, row in found.items():
        line = f"{name:38}{row['GB/s']:8.1f}{row['ms']:9.2f}{row['issued ms']:9.2f}"
        if "of the slowest stage" in row:
            line += f"{row['of the slowest stage']:20.3f}{row['of both copies at once']:18.3f}"
        print(line)


def main():
    software = cu.driver_info().is_software
    size, chunk = SIZES[software]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=size, metavar="MIB", help="in all")
    parser.add_argument("--chunk", type=int, default=chunk, metavar="MIB")
    parser.add_argument("--buffers", type=int, nargs="+", default=[2, 3, 4], metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    options = parser.parse_args()
    if min(options.size, options.chunk, *options.buffers, options.rounds) < 1:
        parser.error("sizes and numbers are positive")
    if options.size % options.chunk:
        parser.error(f"{options.size} MiB are not a multiple of {options.chunk} MiB")
    nbytes = options.size * MIB
    pipeline = Pipeline(nbytes, options.chunk * MIB, options.buffers)
    found = rows(measure(pipeline, options.buffers, options.rounds), nbytes)
    machine = about()
    print(
        f"{machine['device']}, CUDA {machine['cuda']}, {machine['cpus']} cores, {machine['date']};"
        f" {options.size} MiB in chunks of {options.chunk} MiB, medians of {options.rounds} rounds"
    )
    if software:
        print(
            "The software driver's stages share these cores, so they are not expected to overlap."
        )
    show(found)
    if options.json:
        settings = {name: getattr(options, name) for name in ("size", "chunk", "rounds")}
        write(options.json, found, machine | settings)


if __name__ == "__main__":
    main()
