"""What processes on the software driver have reported (`report=FOLDER`), as text and as JSON."""

import json
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

MOST_FUNCTIONS, MOST_TEXTS = 6, 3  # at most this many are printed; the JSON has all
LONGEST_COMMAND = 60
PRIVATE = "cuGetExportTable"

# The driver's kinds of objects, in the words of the report.
KINDS = {
    "device": "device allocations",
    "async": "stream-ordered allocations",
    "host": "page-locked allocations",
    "managed": "managed allocations",
    "registered": "registered ranges of host memory",
    "arrays": "arrays",
    "textures": "texture objects",
    "surfaces": "surface objects",
    "reservations": "reserved ranges of addresses",
    "backings": "allocations for mapping",
    "streams": "streams",
    "events": "events",
    "graphs": "graphs",
    "execs": "executable graphs",
    "objects": "user objects",
    "pools": "memory pools",
    "modules": "modules",
    "libraries": "libraries",
    "links": "linkers",
    "contexts": "created contexts",
}

# The kinds of records that consist of one text.
NOTES = ("refused_image", "kernel_fault", "data_race", "hazard", "forked", "warning")


class Process(NamedTuple):
    """One process that called the driver.

    ``end`` is ``"exit"``, ``"running"``, or ``"unknown"``: it was killed, or ended by `_exit` or
    `exec`. The numbers are as of its last call. They are None if the disk was too full for
    the driver to keep them.
    """

    pid: int
    parent: int
    command: list[str]
    end: str
    calls: int | None
    unsupported_calls: dict[str, int]
    refused_calls: dict[str, int]
    refused_images: list[str]
    kernel_faults: list[str]
    data_races: list[str]
    hazards: list[str]
    calls_after_fork: list[str]
    warnings: list[str]
    alive: dict[str, int] | None
    unfinished_operations: int | None

    @property
    def name(self) -> str:
        command = printable(" ".join(self.command))
        if len(command) > LONGEST_COMMAND:
            command = command[: LONGEST_COMMAND - 3] + "..."
        return f"process {self.pid} ({command})"


def printable(text: str) -> str:
    """Escape control characters, because names and arguments may have any characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def read(folder: Path) -> list[Process]:
    """Read the reports in a folder and in its subfolders. The subfolders belong to nested runs."""
    found = [read_process(file) for file in folder.rglob("*.jsonl")]
    return sorted(process for process in found if process is not None)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_bytes().splitlines():
        try:
            record = json.loads(line.decode(errors="replace"))
        except ValueError:  # the process was killed while it wrote this, or the disk was full
            continue
        if isinstance(record, dict):
            yield record


def read_process(file: Path) -> Process | None:
    """Read one report; None if the process was killed before its first line was complete."""
    records = list(_lines(file))
    if not records or "process" not in records[0]:
        return None
    started = records[0]["process"]
    numbers = _numbers(file.with_name(f"{file.name}.numbers"))
    first = dict(zip(started["numbers"], numbers, strict=False))
    noted = {name: [record[name] for record in records if name in record] for name in NOTES}

    def counted(name: str) -> dict[str, int]:
        # If the driver kept no numbers, each function that was called counts once.
        return {
            record[name]: numbers[record["place"]] if record["place"] < len(numbers) else 1
            for record in records
            if name in record
        }

    alive = {kind: first[kind] for kind in (*KINDS, "bytes") if first.get(kind)}
    return Process(
        started["pid"],
        started["parent"],
        started["command"],
        _end(started["pid"], any("exit" in record for record in records)),
        first.get("calls"),
        counted("unsupported"),
        counted("refused_call"),
        noted["refused_image"],
        noted["kernel_fault"],
        noted["data_race"],
        noted["hazard"],
        noted["forked"],
        noted["warning"],
        alive if numbers else None,
        first.get("pending"),
    )


def _numbers(file: Path) -> tuple[int, ...]:
    content = file.read_bytes() if file.exists() else b""
    return struct.unpack(f"={len(content) // 8}Q", content[: len(content) // 8 * 8])


def _end(pid: int, exited: bool) -> str:
    if exited:
        return "exit"
    return "running" if Path(f"/proc/{pid}").exists() else "unknown"


def problems(processes: list[Process]) -> int:
    """Return how many mistakes of the program were found.

    They are kernel faults, data races, hazards in kernels, and calls after a fork.
    """
    return sum(
        len(texts)
        for process in processes
        for texts in (
            *(process.kernel_faults, process.data_races),
            *(process.hazards, process.calls_after_fork),
        )
    )


def as_json(processes: list[Process], **about: Any) -> dict[str, Any]:
    """Return the report as an object for JSON. ``about`` has more facts about the run."""

    def texts(name: str) -> list[dict[str, Any]]:
        return [
            {"pid": process.pid, "text": text}
            for process in processes
            for text in getattr(process, name)
        ]

    return {
        "format": 1,
        **about,
        "calls": sum(process.calls or 0 for process in processes),
        "unsupported_calls": dict(_sum(process.unsupported_calls for process in processes)),
        "refused_calls": dict(_sum(process.refused_calls for process in processes)),
        "refused_images": texts("refused_images"),
        "kernel_faults": texts("kernel_faults"),
        "data_races": texts("data_races"),
        "hazards": texts("hazards"),
        "calls_after_fork": texts("calls_after_fork"),
        "warnings": texts("warnings"),
        "alive_at_exit": dict(_sum(process.alive or {} for process in processes)),
        "processes": [process._asdict() for process in processes],
    }


def as_text(processes: list[Process], settings: str) -> Iterator[str]:
    """Yield the lines of the report: at most a screen."""
    if not processes:
        yield "No process called the software driver."
        yield "Programs find it by LD_LIBRARY_PATH. A program does not if it is setuid, opens"
        yield "another libcuda.so.1 by its path, has an RPATH to one, or runs in a container."
        return
    calls = sum(process.calls or 0 for process in processes)
    yield f"{_count(len(processes), 'processes')} made {_count(calls, 'calls')} ({settings})"
    yield from _unsupported(
        _sum(calls for each in processes for calls in (each.unsupported_calls, each.refused_calls))
    )
    yield from _texts("Images that cannot run", processes, "refused_images")
    yield from _texts("Kernel faults", processes, "kernel_faults")
    yield from _texts("Data races", processes, "data_races", off="races=off" in settings)
    checked = re.search(r"checks=(?!off\b)", settings)
    if checked or any(process.hazards for process in processes):
        yield from _texts("Hazards in kernels", processes, "hazards")
    if any(process.calls_after_fork for process in processes):
        yield from _texts("Calls in children forked after cuInit", processes, "calls_after_fork")
    if any(process.warnings for process in processes):
        yield from _texts("Mistakes that a GPU accepts", processes, "warnings")
    yield from _alive(processes)
    others = (process for process in processes if process.pid != os.getpid())
    running = [f"  {process.name}" for process in others if process.end == "running"]
    if running:
        yield f"Still running: {_count(len(running), 'processes')}, of which this is not the end"
        yield from _shortened(running, MOST_TEXTS)


def _unsupported(calls: Counter[str]) -> Iterator[str]:
    yield f"Calls that are not supported: {calls.total() or 'none'}"
    lines = []
    for function, count in calls.most_common():
        note = " (private tables of NVIDIA's driver)" if function == PRIVATE else ""
        lines.append(f"  {count:7} {printable(function)}{note}")
    yield from _shortened(lines, MOST_FUNCTIONS)


def _texts(title: str, processes: list[Process], name: str, *, off: bool = False) -> Iterator[str]:
    lines = [
        f"  {process.name}: {printable(text)}"
        for process in processes
        for text in getattr(process, name)
    ]
    yield f"{title}: {len(lines) or ('not looked for (races=off)' if off else 'none')}"
    yield from _shortened(lines, MOST_TEXTS)


def _alive(processes: list[Process]) -> Iterator[str]:
    lines = []
    for process in processes:
        alive = process.alive or {}
        words = [_count(alive[kind], KINDS[kind]) for kind in KINDS if alive.get(kind)]
        if alive.get("bytes"):
            words.append(f"{alive['bytes']:,} bytes")
        if process.unfinished_operations:
            words.append(f"{_count(process.unfinished_operations, 'operations')} not run")
        if words:
            lines.append(f"  {process.name}: {', '.join(words)}")
    yield f"Alive at the end: {'in ' + _count(len(lines), 'processes') if lines else 'nothing'}"
    yield from _shortened(lines, MOST_TEXTS)


def _shortened(lines: list[str], most: int) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"  and {len(lines) - most:,} more"


def _count(number: int, words: str) -> str:
    if number == 1:
        first, _, rest = words.partition(" of ")
        for plural, singular in (("sses", "ss"), ("ies", "y"), ("s", "")):
            if first.endswith(plural):
                first = first.removesuffix(plural) + singular
                break
        words = f"{first} of {rest}" if rest else first
    return f"{number:,} {words}"


def _sum(counts: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
