"""Managed memory by faults, prefetches and copies; pipelines over arrays and files; warm pools.

    python benchmarks/managed.py [--size MIB] [--chunk MIB] [--seconds S] [--json FILE]

Three parts, each beside CuPy and PyTorch where they are installed and there is a GPU:

- moves: a kernel uses all of a managed buffer that is on the host, then the host uses one item of
each page of the buffer. The pages move by faults or by a prefetch; or the memory is not managed,
and is copied. "already there" is the same pass over pages that need not move.
- pipelines: an array and a file go through a kernel to page-locked memory, by `cudadrv.Pipeline`,
  by a loop that waits for each chunk, and by the loops with several page-locked buffers and streams
  that other libraries document. They are compared with the slowest stage alone, and with reading
  the source while both copies run, because these share the memory of the host.
- pools: a block of 1 MiB of page-locked and of managed memory, taken from a warm pool and given
  back.

In each round every way runs once, and the result is the median of the rounds. No round begins after
the given seconds.
"""

import argparse
import ctypes
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress

import calls
import numpy as np
import pipeline
import tables
from machine import about, write
from peers import LARGE, Peer

import cudadrv as cu

MIB = 1 << 20
SIZES = {False: (1024, 8), True: (8, 1)}  # MiB in total and in a chunk; True: software driver
MOST_ROUNDS, LEAST_ROUNDS = 15, 2
BUFFERS = 4
BLOCK = 256
PAGE = 4096
FACTOR = np.float32(pipeline.FACTOR)


def with_others(software, makers):
    """Call the function of each library. Returns the results by name; skips libraries that fail."""
    found = {}
    for name, make in makers.items():
        if software and name != "cudadrv":
            continue
        try:
            found[name] = make()
        except Exception as error:
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def in_turns(ways, seconds, most=MOST_ROUNDS):
    """Return each way's seconds in each round. A way prepares, and returns the timed function."""
    times = {name: [] for name in ways}
    end = time.monotonic() + seconds
    for turn in range(most + 1):
        for name, prepare in ways.items():
            run = prepare()
            gc.disable()
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            gc.enable()
            if turn:  # the first turn warms up
                times[name].append(taken)
        if turn >= LEAST_ROUNDS and time.monotonic() > end:
            break
    return times


def rates(times, nbytes):
    """Return the GB/s of each way: the median, and the interval of the middle half."""
    found = {}
    for name, taken in times.items():
        ordered = sorted(nbytes / seconds / 1e9 for seconds in taken)
        quarter = len(ordered) // 4
        found[name] = {
            "median": statistics.median(ordered),
            "low": ordered[quarter],
            "high": ordered[-1 - quarter],
        }
    return found


def touch(array):
    """Read an item of each page."""
    return float(array[:: PAGE // array.itemsize].sum())


# ---- moves ----


class OurMoves:
    def __init__(self, nbytes):
        self.count = nbytes // 4
        self.device, self.stream = cu.Device(0), cu.Stream()
        self.kernel = cu.Module.from_file(pipeline.KERNEL)["saxpy"]
        self.managed = cu.UnifiedBuffer.zeros(self.count, "f4", name="managed")
        self.locked = cu.LockedBuffer.zeros(self.count, "f4", name="locked")
        self.work = cu.DeviceBuffer.zeros(self.count, "f4", name="work")

    def wait(self):
        self.stream.synchronize()

    def compute(self, copied):
        buffer = self.work if copied else self.managed
        grid = -(-self.count // BLOCK)
        self.kernel.launch(
            grid, BLOCK, FACTOR, cu.read(buffer), buffer, self.count, stream=self.stream
        )

    def prefetch(self, to_host):
        self.managed.prefetch("host" if to_host else self.device, self.stream)

    def copy(self, to_host):
        if to_host:
            self.work.copy_to_async(self.locked, self.stream)
        else:
            self.work.copy_from_async(self.locked, self.stream)

    def use(self, copied):
        with (self.locked if copied else self.managed).read() as array:
            touch(array)


class CuPyMoves:
    def __init__(self, nbytes):
        import cupy

        self.runtime, self.nbytes = cupy.cuda.runtime, nbytes
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.memory = cupy.cuda.malloc_managed(nbytes)
        self.managed = cupy.ndarray((nbytes // 4,), "f4", memptr=self.memory)
        address = (ctypes.c_float * (nbytes // 4)).from_address(self.memory.ptr)
        self.on_host = np.ctypeslib.as_array(address)
        self.on_host[:] = 0
        self.pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        self.locked = np.frombuffer(self.pinned, "f4", nbytes // 4)
        self.locked[:] = 0
        self.work = cupy.zeros(nbytes // 4, "f4")
        self.module = cupy.cuda.function.Module()
        self.module.load(pipeline.KERNEL.read_bytes() + b"\0")
        self.kernel = self.module.get_function("saxpy")
        cupy.cuda.Device().synchronize()

    def wait(self):
        self.stream.synchronize()

    def compute(self, copied):
        array = self.work if copied else self.managed
        arguments = (FACTOR, array, array, np.uint32(array.size))
        self.kernel((-(-array.size // BLOCK),), (BLOCK,), arguments, stream=self.stream)

    def prefetch(self, to_host):
        # -1 means the host. CuPy 14 on CUDA 13 refuses it (cudaErrorInvalidDevice).
        place = -1 if to_host else 0
        self.runtime.memPrefetchAsync(self.memory.ptr, self.nbytes, place, self.stream.ptr)

    def copy(self, to_host):
        kind = self.runtime.memcpyDeviceToHost if to_host else self.runtime.memcpyHostToDevice
        ours, theirs = self.locked.ctypes.data, self.work.data.ptr
        target, source = (ours, theirs) if to_host else (theirs, ours)
        self.runtime.memcpyAsync(target, source, self.nbytes, kind, self.stream.ptr)

    def use(self, copied):
        touch(self.locked if copied else self.on_host)


class PyTorchMoves:
    """PyTorch has no managed memory, so only the copy is measured."""

    def __init__(self, nbytes):
        import torch

        torch.set_grad_enabled(False)
        self.torch, self.stream = torch, torch.cuda.Stream()
        self.locked = torch.zeros(nbytes // 4, pin_memory=True)
        self.work = torch.zeros(nbytes // 4, device="cuda")
        torch.cuda.synchronize()

    def wait(self):
        self.stream.synchronize()

    def compute(self, copied):
        with self.torch.cuda.stream(self.stream):
            self.work.add_(self.work, alpha=float(FACTOR))

    def copy(self, to_host):
        target, source = (self.locked, self.work) if to_host else (self.work, self.locked)
        with self.torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)

    def use(self, copied):
        touch(self.locked.numpy())


def ways_to_move(moves, to_host):
    """Return the ways of one library in one direction, for `in_turns`."""

    def use(copied=False):
        if to_host:
            moves.use(copied)
        else:
            moves.compute(copied)
            moves.wait()

    def placed(on_host):
        """Move all pages to one side by using them there. The prefetch only makes this faster."""
        with suppress(Exception):
            moves.prefetch(on_host)
        if on_host:
            moves.use(False)
        else:
            moves.compute(False)
            moves.wait()

    def prefetched():
        moves.prefetch(to_host)
        if to_host:
            moves.wait()
        use()

    def copied():
        moves.copy(to_host)
        if to_host:
            moves.wait()
        use(True)

    def faults():
        placed(not to_host)
        return use

    def prefetch():
        placed(not to_host)
        return prefetched

    def there():
        placed(to_host)
        return use

    if not hasattr(moves, "prefetch"):
        return {tables.BY_COPY: lambda: copied}
    return {
        tables.BY_FAULTS: faults,
        tables.BY_PREFETCH: prefetch,
        tables.BY_COPY: lambda: copied,
        tables.THERE: there,
    }


def works(way):
    """Whether a way works here. If not, prints the reason."""
    try:
        way()()
    except Exception as error:
        print(f"not measured: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    return True


def measure_moves(software, nbytes, seconds):
    makers = {"cudadrv": OurMoves, "CuPy": CuPyMoves, "PyTorch": PyTorchMoves}
    found = with_others(
        software, {name: lambda make=make: make(nbytes) for name, make in makers.items()}
    )
    rows = {}
    for direction, to_host in (("to the device", False), ("to the host", True)):
        ways = {
            (way, name): prepare
            for name, moves in found.items()
            for way, prepare in ways_to_move(moves, to_host).items()
            if works(prepare)
        }
        measured = rates(in_turns(ways, seconds / 2), nbytes)
        rows[direction] = {way: {} for way in tables.MOVES}
        for (way, name), figures in measured.items():
            rows[direction][way][name] = figures
    return rows


# ---- pipelines ----


class OurLoops:
    """`cudadrv.Pipeline`, and a loop that waits for each chunk."""

    def __init__(self, made):
        self.made = made
        self.stage = cu.LockedBuffer(made.count, "f4", name="stage")

    def pipeline(self, source):
        self.made.pipelines[BUFFERS].run(source.begin(), into=self.made.result)

    def plain(self, source):
        source.begin()
        made, work, stream = self.made, self.made.works[0], self.made.streams[0]
        for at, result in enumerate(made.results):
            if source.array is None:
                with self.stage.write() as room:
                    source.fill(at, room)
                work.copy_from(self.stage, stream=stream)
            else:
                work.copy_from(source.parts[at], stream=stream)
            made.compute(work, stream)
            work.copy_to(result, stream=stream)


class PyTorchLoop:
    def __init__(self, made):
        import torch

        torch.set_grad_enabled(False)
        self.torch = torch
        self.streams = [torch.cuda.Stream() for _ in range(BUFFERS)]
        self.locked = [torch.empty(made.count, pin_memory=True) for _ in range(BUFFERS)]
        self.works = [torch.empty(made.count, device="cuda") for _ in range(BUFFERS)]
        self.result = torch.empty(made.source.count, pin_memory=True)
        self.results = self.result.split(made.count)
        self.found = self.result.numpy()
        torch.cuda.synchronize()

    def run(self, source):
        source.begin()
        for at, result in enumerate(self.results):
            turn = at % BUFFERS
            stream, locked, work = self.streams[turn], self.locked[turn], self.works[turn]
            stream.synchronize()
            if source.array is None:
                source.fill(at, locked.numpy())
            else:
                locked.copy_(self.torch.from_numpy(source.parts[at]))
            with self.torch.cuda.stream(stream):
                work.copy_(locked, non_blocking=True)
                work.add_(work, alpha=float(FACTOR))
                result.copy_(work, non_blocking=True)
        for stream in self.streams:
            stream.synchronize()


class CuPyLoop:
    def __init__(self, made):
        import cupy

        self.cupy = cupy
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(BUFFERS)]
        self.locked = [self.pinned(made.count) for _ in range(BUFFERS)]
        self.works = [cupy.empty(made.count, "f4") for _ in range(BUFFERS)]
        self.found = self.pinned(made.source.count)
        self.results = np.split(self.found, made.source.count // made.count)
        self.module = cupy.cuda.function.Module()
        self.module.load(pipeline.KERNEL.read_bytes() + b"\0")
        self.kernel = self.module.get_function("saxpy")
        cupy.cuda.Device().synchronize()

    def pinned(self, count):
        return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(4 * count), "f4", count)

    def run(self, source):
        source.begin()
        runtime = self.cupy.cuda.runtime
        inward, outward = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
        for at, result in enumerate(self.results):
            turn = at % BUFFERS
            stream, locked, work = self.streams[turn], self.locked[turn], self.works[turn]
            stream.synchronize()
            source.fill(at, locked)
            address, size = work.data.ptr, work.nbytes
            runtime.memcpyAsync(address, locked.ctypes.data, size, inward, stream.ptr)
            arguments = (FACTOR, work, work, np.uint32(work.size))
            self.kernel((-(-work.size // BLOCK),), (BLOCK,), arguments, stream=stream)
            runtime.memcpyAsync(result.ctypes.data, address, size, outward, stream.ptr)
        for stream in self.streams:
            stream.synchronize()


class Source:
    """An array, or a file with its bytes."""

    def __init__(self, numbers, count, file=None):
        self.array = None if file else numbers
        self.parts = np.split(numbers, numbers.size // count)
        self.file = file
        if file:
            file.write(numbers.data)

    def begin(self):
        """Return the source for `Pipeline.run`, a file at its beginning."""
        if self.file:
            self.file.seek(0)
            return self.file
        return self.array

    def fill(self, at, room):
        """Bring a chunk into an array."""
        if self.file:
            self.file.readinto(room.data)
        else:
            np.copyto(room, self.parts[at])


def fill(source, made):
    """Bring all chunks of a source into page-locked memory, as `Pipeline` does it."""
    feed = made.pipelines[BUFFERS]._feed(source.begin(), None)
    for index in itertools.count():
        if feed.chunk_of(index) is None:
            return index


def together(source, made):
    """Queue both copies of all chunks, and meanwhile bring all chunks into page-locked memory."""
    made.copies()
    fill(source, made)


def loops(made, software):
    """Return the compared loops by name, each with the array in which it leaves its result."""
    ours = OurLoops(made)
    found = {"Pipeline": (ours.pipeline, None), "waiting for each chunk": (ours.plain, None)}
    makers = {"PyTorch": lambda: PyTorchLoop(made), "CuPy": lambda: CuPyLoop(made)}
    for name, loop in with_others(software, makers).items():
        found[name] = loop.run, loop.found
    return found


def check(name, run, found, made, source, numbers):
    """Run once, and compare every number."""
    if found is None:
        made.result.fill(0)
    else:
        found[:] = 0
    run(source)
    result = made.result.to_numpy() if found is None else found
    if not np.array_equal(result, numbers * np.float32(1 + FACTOR)):
        raise SystemExit(f"{name} gave wrong numbers")


def measure_pipelines(software, nbytes, chunk, seconds):
    made = pipeline.Pipeline(nbytes, chunk, [BUFFERS])
    numbers = made.source.to_numpy()
    ways = loops(made, software)
    alone = {name: lambda name=name: lambda: made.timed(made.stage, name)
             for name in pipeline.STAGES}  # fmt: skip
    alone[pipeline.COPIES] = lambda: lambda: made.timed(made.copies)
    rows = {}
    with tempfile.TemporaryFile(buffering=0) as file:
        sources = {
            "an array": Source(numbers, made.count),
            "a file": Source(numbers, made.count, file),
        }
        for kind, source in sources.items():
            for name, (run, found) in ways.items():
                check(name, run, found, made, source, numbers)
            timed = {
                tables.FILL: lambda source=source: lambda: fill(source, made),
                **alone,
                tables.TOGETHER: lambda source=source: lambda: made.timed(together, source, made),
            }
            for name, (run, _) in ways.items():
                timed[name] = lambda run=run, source=source: lambda: run(source)
            rows[kind] = rates(in_turns(timed, seconds / 2), nbytes)
            add_bounds(rows[kind])
    return rows


def add_bounds(rows):
    """Compare each pipeline with its slowest stage, and with the source and both copies at once."""
    stages = [rows[name]["median"] for name in (tables.FILL, *pipeline.STAGES)]
    at_once = min(rows[name]["median"] for name in ("kernel", tables.TOGETHER))
    for name, row in rows.items():
        if name not in (tables.FILL, *pipeline.STAGES, pipeline.COPIES, tables.TOGETHER):
            row["of the slowest stage"] = row["median"] / min(stages)
            row["of all at once"] = row["median"] / at_once


# ---- pools ----


def our_pools():
    stream = cu.Stream()
    rows = {
        "locked": f"locked({LARGE})",
        "locked on a stream": f"locked({LARGE}, stream=stream)",
        "managed": f"managed({LARGE})",
        "managed on a stream": f"managed({LARGE}, stream=stream)",
    }
    names = {"locked": cu.LockedBuffer, "managed": cu.UnifiedBuffer, "stream": stream}
    return Peer(stream.synchronize, rows, **names)


def cupy_pools():
    import cupy

    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    rows = {"locked": f"locked({LARGE})", "managed": f"managed({LARGE})"}
    names = {"locked": cupy.cuda.alloc_pinned_memory, "managed": pool.malloc}
    return Peer(cupy.cuda.Device().synchronize, rows, **names)


def pytorch_pools():
    import torch

    rows = {"locked": f"empty({LARGE}, dtype=u1, pin_memory=True)"}
    return Peer(torch.cuda.synchronize, rows, empty=torch.empty, u1=torch.uint8)


def measure_pools(software, rounds):
    peers = with_others(
        software, {"cudadrv": our_pools, "CuPy": cupy_pools, "PyTorch": pytorch_pools}
    )
    table = calls.prepared({name: calls.timers(peer) for name, peer in peers.items()}, tables.POOLS)
    processors = os.sched_getaffinity(0)
    if not software:
        calls.stay_on_the_quickest_processor()
    calls.measure(table, rounds)
    os.sched_setaffinity(0, processors)
    return calls.results(table)


def main():
    software = cu.driver_info().is_software
    size, chunk = SIZES[software]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=size, metavar="MIB", help="in all")
    parser.add_argument("--chunk", type=int, default=chunk, metavar="MIB")
    parser.add_argument("--seconds", type=float, default=40, help="for moves and pipelines")
    parser.add_argument("--rounds", type=int, default=calls.ROUNDS, help="of the pools")
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    options = parser.parse_args()
    if min(options.size, options.chunk, options.rounds) < 1 or options.size % options.chunk:
        parser.error("sizes and numbers are positive, and the size is a multiple of the chunk")
    nbytes = options.size * MIB
    rows = {"pools": measure_pools(software, options.rounds)}  # first, before other threads exist
    cu.reap()
    rows["moves"] = measure_moves(software, nbytes, options.seconds / 2)
    rows["pipelines"] = measure_pipelines(
        software, nbytes, options.chunk * MIB, options.seconds / 2
    )
    machine = about()
    print(tables.head(machine), f"{options.size} MiB in chunks of {options.chunk} MiB\n", sep="\n")
    print(tables.managed(rows))
    if options.json:
        write(options.json, rows, machine | {"size": options.size, "chunk": options.chunk})


if __name__ == "__main__":
    main()
