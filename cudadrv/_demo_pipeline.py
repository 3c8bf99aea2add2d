"""The demo's pipeline: copies chunks of a file to the device, counts bytes, copies them back."""

import sys
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu
from cudadrv import Pipeline

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


class Source:
    """The first bytes of a file, for `cudadrv.Pipeline`."""

    def __init__(self, file: FileIO, nbytes: int) -> None:
        self.file = file
        self.nbytes = nbytes
        self.at = 0

    def readinto(self, room: Bytes) -> int:
        got = read_at(self.file, self.at, room[: self.nbytes - self.at])
        self.at += got
        return got


def read_at(file: FileIO, start: int, room: Bytes) -> int:
    """Fill an array from a file, starting at an offset. Returns the number of bytes read."""
    file.seek(start)
    done = 0
    while done < room.size:
        got = file.readinto(room.data[done:])
        if not got:
            raise DemoError("the file became shorter while it was read")
        done += got
    return done


class Demo:
    """Copies several chunks of a file to the device and back at the same time."""

    def __init__(self, file: FileIO, nbytes: int, chunk: int, buffers: int) -> None:
        self.file = file
        self.nbytes = nbytes
        self.chunk = chunk
        self.kernel = histogram_kernel()
        self.pipeline = Pipeline(chunk, compute=self.count, in_place=True, buffers=buffers)
        self.bins = cu.DeviceBuffer.zeros(256, "u8", name="bins")
        self.expected = np.empty(chunk, "u1")

    def count(self, stream: cu.Stream, work: cu.DeviceBuffer, _: cu.DeviceBuffer) -> cu.Token:
        """Queue the kernel of a chunk. It counts the bytes and does not change them."""
        blocks = -(-work.count // BLOCK_BYTES)
        return self.kernel.launch(
            blocks, BLOCK, cu.read(work), work.count, self.bins, stream=stream
        )

    def check(self, index: int, array: Bytes) -> None:
        """Read the same chunk of the file again and compare every byte that came back."""
        expected = self.expected[: array.size]
        read_at(self.file, index * self.chunk, expected)
        if not equal(array, expected):
            at = index * self.chunk + int(np.argmax(array != expected))
            raise DemoError(f"byte {at} came back wrong, unless somebody changed the file")

    def run_alone(self) -> tuple[list[float], Counts]:
        """Run one stage at a time; return the seconds of each stage, and the counts of NumPy.

        With overlap, two events around a stage would also measure how long it waits for its turn.
        NumPy counts the bytes in this run, because counting would delay the overlapped run.
        """
        stream = cu.Stream()
        source, result = cu.LockedBuffer(self.chunk), cu.LockedBuffer(self.chunk)
        work = cu.DeviceBuffer(self.chunk)
        stages: tuple[Callable[[int], cu.Token], ...] = (
            lambda nbytes: work[:nbytes].copy_from_async(source[:nbytes], stream),
            lambda nbytes: self.count(stream, work[:nbytes], work[:nbytes]),
            lambda nbytes: result[:nbytes].copy_from_async(work[:nbytes], stream),
        )
        seconds = [0.0] * len(STAGES)
        counts = np.zeros(256, "u8")
        start, end = cu.Event(timing=True), cu.Event(timing=True)
        progress = Progress("one stage at a time", self.nbytes)
        for at in range(0, self.nbytes, self.chunk):
            nbytes = min(self.chunk, self.nbytes - at)
            with source[:nbytes].write() as array:
                read_at(self.file, at, array)
                counts += count_bytes(array)
            for number, stage in enumerate(stages):
                stream.record(start)
                stage(nbytes)
                stream.record(end)
                end.synchronize()
                seconds[number] += end.elapsed_ms(start) / 1e3
            progress.reach(at + nbytes)
        progress.end()
        return seconds, counts

    def run_overlapped(self) -> "Result":
        """Run all stages at once, each with another chunk."""
        self.bins.fill(0)
        progress = Progress("overlapped", self.nbytes)
        report = self.pipeline.run(
            Source(self.file, self.nbytes), consume=self.check, progress=progress.reach
        )
        progress.end()
        counts = self.bins.to_numpy()
        return Result(report.elapsed_s, report.filling_s, report.consuming_s, counts)

    def close(self) -> None:
        self.pipeline.close()
        self.bins.close()


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
        self.shown = 0.0
        self.terminal = sys.stdout.isatty()

    def reach(self, nbytes: int) -> None:
        now = time.monotonic()
        if self.terminal and now - self.shown > 0.05:
            self.shown = now
            print(f"\r{self.what}: {nbytes / self.total:4.0%}", end="", flush=True)

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
