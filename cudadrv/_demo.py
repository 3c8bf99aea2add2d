"""The demo: a file streamed through the device, and mistakes that the library catches."""

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cudadrv as cu

Bytes = npt.NDArray[np.uint8]

STAGES = ("host to device", "device to device", "device to host")


class BadFileError(Exception):
    """The file cannot be used; the message says why."""


class DemoError(Exception):
    """The demo could not be completed; the message says why."""


def run_demo(path: Path, nbytes: int, streams: int, chunk: int) -> int:
    """Stream the file, then show the mistakes. Gives the exit status."""
    info = cu.driver_info()
    device = cu.Device(0)
    print(f"Driver  {info.name}, CUDA {info.version[0]}.{info.version[1]}, {info.path}")
    print(f"Device  {device.name}, {device.total_memory / 2**30:.1f} GiB")
    chunk = min(chunk, nbytes)
    chunks = -(-nbytes // chunk)
    print(f"File    {path}")
    parts = f"{count(chunks, 'chunk')} of {chunk:,}" if chunks > 1 else "1 chunk"
    print(f"        {count(nbytes, 'byte')} in {parts}, {streams} streams\n", flush=True)
    with path.open("rb", buffering=0) as file:
        pipeline = Pipeline(file, nbytes, chunk, streams)
        alone = pipeline.run_alone()
        result = pipeline.run_overlapped()
    pipeline.close()
    print_result(result, alone, nbytes, chunks, info.is_software)
    return show_mistakes()


def default_file() -> Path:
    """A file of several megabytes that is on every machine where this runs."""
    folder = Path(np.__file__).parent
    found = [Path(sys.executable), *folder.glob("*core/_multiarray_umath*.so")]
    return max(found[1:] or found, key=lambda path: path.stat().st_size)


def file_size(path: Path) -> int:
    """Bytes of a file that can be streamed; BadFileError for any other."""
    try:
        if path.is_dir():
            raise BadFileError(f"{path} is a directory; name a file")
        if path.exists() and not path.is_file():
            raise BadFileError(f"{path} is no regular file")
        with path.open("rb") as file:
            nbytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise BadFileError(f"{path}: {error.strerror or error}") from None
    if nbytes == 0:
        raise BadFileError(f"{path} is empty: there is nothing to stream")
    return nbytes


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def equal(one: Bytes, other: Bytes) -> bool:
    """Whether two arrays have the same bytes; compared in words, which is faster."""
    words = one.size & ~7
    return np.array_equal(one[:words].view("u8"), other[:words].view("u8")) and np.array_equal(
        one[words:], other[words:]
    )


class Lane:
    """A stream with what one chunk needs: its half of the two host buffers, and device memory."""

    def __init__(self, source: cu.LockedBuffer, result: cu.LockedBuffer) -> None:
        self.stream = cu.Stream()
        self.source = source
        self.result = result
        self.first = cu.DeviceBuffer(source.count, name="first")
        self.second = cu.DeviceBuffer(source.count, name="second")
        self.arrived: cu.Token | None = None

    def copies(self, nbytes: int) -> Iterator[cu.Token]:
        """Queue the three copies of a chunk, one at a time."""
        stream = self.stream
        yield self.first[:nbytes].copy_from_async(self.source[:nbytes], stream)
        yield self.second[:nbytes].copy_from_async(self.first[:nbytes], stream)
        yield self.result[:nbytes].copy_from_async(self.second[:nbytes], stream)


class Pipeline:
    """Chunks of a file that go to the device and come back, several of them at a time."""

    def __init__(self, file: FileIO, nbytes: int, chunk: int, streams: int) -> None:
        self.file = file
        self.nbytes = nbytes
        self.chunk = chunk
        # Each half of these is refilled, or checked, while the other one is in flight.
        self.source = cu.LockedBuffer(chunk * streams, name="source")
        self.result = cu.LockedBuffer(chunk * streams, name="result")
        halves = zip(self.source.chunks(chunk), self.result.chunks(chunk), strict=True)
        self.lanes = [Lane(*pair) for pair in halves]
        self.expected = np.empty(chunk, "u1")
        self.seconds = {"reading": 0.0, "checking": 0.0}

    def sizes(self) -> list[int]:
        """Bytes of each chunk."""
        return [min(self.chunk, self.nbytes - at) for at in range(0, self.nbytes, self.chunk)]

    def fill(self, lane: Lane, index: int, nbytes: int) -> None:
        """Read a chunk of the file into a half of the source buffer."""
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

    def run_alone(self) -> list[float]:
        """One stage after the other, nothing else at the same time: seconds of each stage.

        Two events around a stage would otherwise also measure how long it waits for its turn.
        """
        lane = self.lanes[0]
        seconds = [0.0] * len(STAGES)
        start, end = cu.Event(timing=True), cu.Event(timing=True)
        progress = Progress("one stage at a time", self.nbytes)
        for index, nbytes in enumerate(self.sizes()):
            self.fill(lane, index, nbytes)
            copies = lane.copies(nbytes)
            for stage in range(len(STAGES)):
                lane.stream.record(start)
                next(copies)
                lane.stream.record(end)
                end.synchronize()
                seconds[stage] += end.elapsed_ms(start) / 1e3
            progress.advance(nbytes)
        progress.end()
        return seconds

    def run_overlapped(self) -> "Result":
        """All lanes at once: refill one while the others are in flight."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
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
                *_, lane.arrived = lane.copies(sizes[index])
        wall = time.perf_counter() - start
        progress.end()
        return Result(wall, self.seconds["reading"], self.seconds["checking"])

    def close(self) -> None:
        for lane in self.lanes:
            lane.stream.synchronize()
            lane.stream.close()
            lane.first.close()
            lane.second.close()
        self.source.close()
        self.result.close()


class Result:
    """Seconds of an overlapped run: of the whole, and of the host's two stages in it."""

    def __init__(self, wall: float, reading: float, checking: float) -> None:
        self.wall = wall
        self.reading = reading
        self.checking = checking


class Progress:
    """One line of a terminal, rewritten as work goes on; nothing where there is no terminal."""

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


def print_result(
    result: Result, alone: list[float], nbytes: int, chunks: int, is_software: bool
) -> None:
    rate = nbytes / result.wall / 1e6
    speed = f"{rate / 1e3:.2f} GB/s" if rate >= 100 else f"{rate:.3g} MB/s"
    print(
        f"Every byte came back as it is in the file: {count(nbytes, 'byte')} in"
        f" {result.wall * 1e3:.2f} ms, {speed}."
    )
    print()
    print("Time of each stage by itself, all chunks together:")
    rows = [
        ("read the file into page-locked memory", result.reading, "host"),
        *zip(STAGES, alone, ["device"] * len(STAGES), strict=True),
        ("read the file again and compare", result.checking, "host"),
    ]
    for what, seconds, where in rows:
        print(f"  {seconds * 1e3:9.2f} ms  {where:6}  {what}")
    busy = sum(seconds for _, seconds, _ in rows)
    print(f"  {busy * 1e3:9.2f} ms          sum")
    print()
    overlap = busy / result.wall
    longest = max(result.reading + result.checking, *alone)
    slower = ""
    if overlap < 1:
        slower = " Below 1, waiting and the calls themselves cost more than the overlap gained."
    if chunks == 1:
        print_words(
            "The file is a single chunk, so nothing can overlap. Choose a smaller --chunk"
            " to see it."
        )
    else:
        print_words(
            f"Overlap: {overlap:.2f}. That is the sum above divided by the"
            f" {result.wall * 1e3:.2f} ms that the pipeline took: how many stages were under way"
            " at once, on average. 1 would be one after the other. With these times, no more than"
            f" {busy / longest:.2f} is possible: the host does its stages in one thread, and the"
            " device one copy of each kind at a time. The host's stages were timed in the pipeline,"
            " the device's by events in an earlier run of one stage at a time, so that waiting for"
            " a turn does not count as work." + slower
        )
    if is_software:
        print()
        print_words(
            "This was the software driver, which is not a GPU: it runs the same calls on"
            " this machine's processor. The program is the same on a GPU; these times,"
            " the throughput and the overlap say nothing about one."
        )
    print()


def print_words(text: str) -> None:
    print(textwrap.fill(text, 88))


def show_mistakes() -> int:
    """Make mistakes on purpose, and show what the library says. Exit status 1: it said nothing."""
    stream, other = cu.Stream(), cu.Stream()
    frames = cu.LockedBuffer.zeros(4096, name="frames")
    result = cu.LockedBuffer.zeros(4096, name="result")
    device = cu.DeviceBuffer(4096, name="work")

    def refill() -> None:
        device.copy_from_async(frames, stream)
        frames[:] = 255

    def read_too_early() -> None:
        result.copy_from_async(device, stream)
        print(result[0])

    def forget_the_event() -> None:
        device.copy_from_async(frames, stream)
        result.copy_from_async(device, other)

    def close_too_early() -> None:
        device.copy_from_async(frames, stream)
        device.close()

    print("Four mistakes, each of which would run on many machines and be wrong on some day.")
    print_words(
        "They are refused before the driver hears of them, however fast the copies were:"
        " what counts is the program's order, not the clock."
    )
    missed = 0
    mistakes: list[tuple[str, str, Callable[[], None]]] = [
        (
            "Refilling a buffer whose copy is in flight",
            "device.copy_from_async(frames, stream)\nframes[:] = 255",
            refill,
        ),
        (
            "Reading a result before it has arrived",
            "result.copy_from_async(device, stream)\nprint(result[0])",
            read_too_early,
        ),
        (
            "Using a buffer on a second stream, with nothing that orders the two",
            "device.copy_from_async(frames, stream)\nresult.copy_from_async(device, other)",
            forget_the_event,
        ),
        (
            "Closing a buffer that the GPU still uses",
            "device.copy_from_async(frames, stream)\ndevice.close()",
            close_too_early,
        ),
    ]
    for number, (title, code, mistake) in enumerate(mistakes, 1):
        print(f"\n{number}. {title}\n")
        print(textwrap.indent(code, "    >>> "))
        try:
            mistake()
            missed += 1
            print("    nothing was refused: that is a bug in cudadrv")
        except cu.OwnershipError as error:
            print(textwrap.indent(f"{type(error).__name__}: {error}", "    "))
        stream.synchronize()
        other.synchronize()

    print("\nThe way out that the messages name is what makes each of them right:\n")
    print(
        "    >>> other.wait(device.copy_from_async(frames, stream))\n"
        "    >>> result.copy_from_async(device, other).wait()\n"
        "    >>> frames[:] = 255\n"
        "    >>> result[0]"
    )
    other.wait(device.copy_from_async(frames, stream))
    result.copy_from_async(device, other).wait()
    frames[:] = 255
    print(f"    {result[0]}")
    for buffer in (frames, result, device):
        buffer.close()
    return 1 if missed else 0
