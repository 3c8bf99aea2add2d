"""The demo's pipeline: copies chunks of a file to the device, counts bytes, copies them back."""

import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.uint64]

STAGES = ("host to device", "histogram of the bytes, by a kernel", "device to host")
BLOCK = 256
PIECE = 1 << 20
BLOCK_BYTES = 16384  # how many bytes of a chunk each block of threads counts


class DemoError(Exception):
    """The demo could not be completed; the message says why."""


def histogram_kernel() -> cu.Kernel:
    """Load the kernel of examples/kernels/histogram.cu. Its PTX is installed with the package."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    folder = installed if installed.is_dir() else package.parent / "examples" / "kernels"
    return cu.Module.from_file(folder / "histogram.ptx")["histogram"]


class Lane:
    """A stream, with the part of the host buffers and the device memory that one chunk needs."""

    def __init__(self, source: cu.LockedBuffer, result: cu.LockedBuffer, kernel: cu.Kernel) -> None:
        self.stream = cu.Stream()
        self.source = source
        self.result = result
        self.kernel = kernel
        self.work = cu.DeviceBuffer(source.count, name="work")
        # Each lane has its own counts, because kernels on two streams that add to the same memory
        # conflict.
        self.bins = cu.DeviceBuffer(256, "u8", name="bins")
        self.arrived: cu.Token | None = None

    def operations(self, nbytes: int) -> Iterator[cu.Token]:
        """Queue the operations of a chunk, one for each step of the iterator."""
        stream, work = self.stream, self.work[:nbytes]
        yield work.copy_from_async(self.source[:nbytes], stream)
        blocks = -(-nbytes // BLOCK_BYTES)
        yield self.kernel.launch(blocks, BLOCK, cu.read(work), nbytes, self.bins, stream=stream)
        yield self.result[:nbytes].copy_from_async(work, stream)

    def counted(self) -> Counts:
        """Wait for the kernels of this lane, and return what they counted."""
        counts = np.empty(256, "u8")
        self.bins.copy_to(counts, stream=self.stream)
        return counts

    def close(self) -> None:
        self.stream.synchronize()
        self.stream.close()
        self.work.close()
        self.bins.close()


class Pipeline:
    """Chunks of a file that go to the device and come back, several of them at a time."""

    def __init__(self, file: FileIO, nbytes: int, chunk: int, streams: int) -> None:
        self.file = file
        self.nbytes = nbytes
        self.chunk = chunk
        # One part of these buffers is refilled or checked while the other parts are in flight.
        self.source = cu.LockedBuffer(chunk * streams, name="source")
        self.result = cu.LockedBuffer(chunk * streams, name="result")
        parts = zip(self.source.chunks(chunk), self.result.chunks(chunk), strict=True)
        kernel = histogram_kernel()
        self.lanes = [Lane(*pair, kernel) for pair in parts]
        self.expected = np.empty(chunk, "u1")
        self.seconds = {"reading": 0.0, "checking": 0.0}

    def sizes(self) -> list[int]:
        """Return the number of bytes of each chunk."""
        return [min(self.chunk, self.nbytes - at) for at in range(0, self.nbytes, self.chunk)]

    def fill(self, lane: Lane, index: int, nbytes: int) -> None:
        """Read a chunk of the file into a part of the source buffer."""
        start = time.perf_counter()
        with lane.source[:nbytes].write() as array:
            self._read(index, array)
        self.seconds["reading"] += time.perf_counter() - start

    def check(self, lane: Lane, index: int, nbytes: int) -> None:
        """Read the same chunk of the file again and compare every byte that came back."""
        start = time.perf_counter()
        expected = self.expected[:nbytes]
        self._read(index, expected)
        with lane.result[:nbytes].read() as array:
            if not equal(array, expected):
                at = index * self.chunk + int(np.argmax(array != expected))
                raise DemoError(f"byte {at} came back wrong, unless somebody changed the file")
        self.seconds["checking"] += time.perf_counter() - start

    def _read(self, index: int, array: Bytes) -> None:
        self.file.seek(index * self.chunk)
        done = 0
        while done < array.size:
            got = self.file.readinto(array.data[done:])
            if not got:
                raise DemoError("the file became shorter while it was read")
            done += got

    def run_alone(self) -> tuple[list[float], Counts]:
        """Run one stage at a time; return the seconds of each stage, and the counts of NumPy.

        With overlap, two events around a stage would also measure how long it waits for its turn.
        NumPy counts the bytes in this run, because counting would delay the overlapped run.
        """
        lane = self.lanes[0]
        lane.bins.fill(0)
        seconds = [0.0] * len(STAGES)
        counts = np.zeros(256, "u8")
        start, end = cu.Event(timing=True), cu.Event(timing=True)
        progress = Progress("one stage at a time", self.nbytes)
        for index, nbytes in enumerate(self.sizes()):
            self.fill(lane, index, nbytes)
            with lane.source[:nbytes].read() as array:
                counts += count_bytes(array)
            operations = lane.operations(nbytes)
            for stage in range(len(STAGES)):
                lane.stream.record(start)
                next(operations)
                lane.stream.record(end)
                end.synchronize()
                seconds[stage] += end.elapsed_ms(start) / 1e3
            progress.advance(nbytes)
        progress.end()
        return seconds, counts

    def run_overlapped(self) -> "Result":
        """Run all lanes at once: refill one while the others are in flight."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        for lane in self.lanes:
            lane.bins.fill(0, stream=lane.stream)
        progress = Progress("overlapped", self.nbytes)
        sizes = self.sizes()
        start = time.perf_counter()
        for index in range(len(sizes) + len(self.lanes)):
            lane = self.lanes[index % len(self.lanes)]
            before = index - len(self.lanes)
            if before >= 0 and lane.arrived is not None:
                lane.arrived.wait()
                lane.arrived = None
                self.check(lane, before, sizes[before])
                progress.advance(sizes[before])
            if index < len(sizes):
                self.fill(lane, index, sizes[index])
                *_, lane.arrived = lane.operations(sizes[index])
        wall = time.perf_counter() - start
        progress.end()
        counts = np.sum([lane.counted() for lane in self.lanes], axis=0, dtype="u8")
        return Result(wall, self.seconds["reading"], self.seconds["checking"], counts)

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        self.source.close()
        self.result.close()


class Result:
    """An overlapped run: its seconds, the seconds of the host's two stages, and the histogram."""

    def __init__(self, wall: float, reading: float, checking: float, counts: Counts) -> None:
        self.wall = wall
        self.reading = reading
        self.checking = checking
        self.counts = counts


class Progress:
    """A progress line that is rewritten in place. Prints nothing without a terminal."""

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self.shown = 0.0
        self.terminal = sys.stdout.isatty()

    def advance(self, nbytes: int) -> None:
        self.done += nbytes
        now = time.monotonic()
        if self.terminal and now - self.shown > 0.05:
            self.shown = now
            print(f"\r{self.what}: {self.done / self.total:4.0%}", end="", flush=True)

    def end(self) -> None:
        if self.terminal and self.shown:
            print("\r" + " " * (len(self.what) + 6) + "\r", end="", flush=True)


def count_bytes(array: Bytes) -> Counts:
    """Count how often each value occurs. Counts piece by piece, because numpy.bincount makes a copy
    that is 8 times as large.
    """
    counts = np.zeros(256, "u8")
    for at in range(0, array.size, PIECE):
        counts += np.bincount(array[at : at + PIECE], minlength=256).astype("u8")
    return counts


def equal(one: Bytes, other: Bytes) -> bool:
    """Whether two arrays have the same bytes. Compares words of 8 bytes, which is faster."""
    words = one.size & ~7
    return np.array_equal(one[:words].view("u8"), other[:words].view("u8")) and np.array_equal(
        one[words:], other[words:]
    )
