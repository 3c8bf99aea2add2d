"""The demo: a file streamed through the device, and mistakes that the library catches."""

import os
import shutil
import sys
import tempfile
import textwrap
from io import FileIO
from pathlib import Path

import numpy as np

import cudadrv as cu
from cudadrv._demo_mistakes import show_mistakes
from cudadrv._demo_pipeline import STAGES, Counts, Demo, DemoError, Result


class BadFileError(Exception):
    """The file cannot be used; the message says why."""


STANDARD_INPUT = ("-", "/dev/stdin")


def run_demo(file: FileIO, name: str, buffers: int, chunk: int) -> int:
    """Stream the file, then show the mistakes. Returns the exit status."""
    nbytes = os.fstat(file.fileno()).st_size
    info = cu.driver_info()
    device = cu.Device(0)
    print(f"Driver  {info.name}, CUDA {info.version[0]}.{info.version[1]}, {info.path}")
    print(f"Device  {device.name}, {device.total_memory / 2**30:.1f} GiB")
    chunk = min(chunk, nbytes)
    chunks = -(-nbytes // chunk)
    print(f"File    {'standard input' if name in STANDARD_INPUT else name}")
    demo = Demo(file, nbytes, chunk, buffers)
    parts = f"{count(chunks, 'chunk')} of {chunk:,}" if chunks > 1 else "1 chunk"
    print(f"        {count(nbytes, 'byte')} in {parts}, {buffers} buffers, 3 streams\n", flush=True)
    alone, expected = demo.run_alone()
    result = demo.run_overlapped()
    demo.close()
    check_counts(result.counts, expected)
    print_result(result, alone, nbytes, chunks, info.is_software)
    return show_mistakes()


def default_file() -> Path:
    """Return a file of several megabytes that every machine with cudadrv has."""
    folder = Path(np.__file__).parent
    found = [Path(sys.executable), *folder.glob("*core/_multiarray_umath*.so")]
    return max(found[1:] or found, key=lambda path: path.stat().st_size)


def open_file(name: str) -> FileIO:
    """Open a file so that it can be read several times. Raises BadFileError if that fails."""
    try:
        file = copied_input() if name in STANDARD_INPUT else open_regular(Path(name))
        if os.fstat(file.fileno()).st_size == 0:
            file.close()
            raise BadFileError(f"{name} is empty: there is nothing to stream")
        return file
    except OSError as error:
        raise BadFileError(f"{name}: {error.strerror or error}") from None


def open_regular(path: Path) -> FileIO:
    if path.is_dir():
        raise BadFileError(f"{path} is a directory; name a file")
    if path.exists() and not path.is_file():
        raise BadFileError(f"{path} is no regular file; for a pipe use standard input: -")
    return path.open("rb", buffering=0)


def copied_input() -> FileIO:
    """Copy standard input, which can be read only once, to a temporary file."""
    with FileIO(0, closefd=False) as source:
        if source.isatty():
            raise BadFileError("standard input is a terminal; name a file, or use a pipe")
        copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it is returned)
        shutil.copyfileobj(source, copy)
    return copy


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def check_counts(counts: Counts, expected: Counts) -> None:
    """Compare the counts of the kernels with those of NumPy. Raises DemoError if they differ."""
    if not np.array_equal(counts, expected):
        value = int(np.argmax(counts != expected))
        raise DemoError(
            f"the kernels counted byte {value:#04x} {counts[value]:,} times, and numpy.bincount"
            f" {expected[value]:,} times, unless somebody changed the file"
        )


def frequent(counts: Counts) -> str:
    """Return a text that lists the bytes that occur most often."""
    most = np.argsort(-counts.astype("f8"), kind="stable")[:3]
    shares = [(value, counts[value] / counts.sum()) for value in most if counts[value]]
    return ", ".join(f"{value:#04x} ({share:.1%})" for value, share in shares)


def print_result(
    result: Result, alone: list[float], nbytes: int, chunks: int, is_software: bool
) -> None:
    rate = nbytes / result.wall / 1e6
    speed = f"{rate / 1e3:.2f} GB/s" if rate >= 100 else f"{rate:.3g} MB/s"
    print(
        f"Every byte came back as it is in the file: {count(nbytes, 'byte')} in"
        f" {result.wall * 1e3:.2f} ms, {speed}."
    )
    print_words(
        "On the way, a kernel counted how often each value of a byte occurs: exactly as often as"
        f" numpy.bincount says. Most frequent: {frequent(result.counts)}."
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
            " at once, on average. 1 would be one after the other. With these times, about"
            f" {busy / longest:.2f} is the most to expect: the host does its stages in one thread,"
            " and the device one operation of each kind at a time. The host's stages were timed in"
            " the pipeline, the device's by events in an earlier run of one stage at a time, so"
            " that waiting for a turn does not count as work." + slower
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
