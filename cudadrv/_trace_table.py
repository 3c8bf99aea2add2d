"""What a trace adds up to: calls, operations, waits, overlap, the longest lines."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cudadrv._trace_file import BORROWS, FLIGHT, RUNS, Slice, TraceFile

MOST_ROWS = 10
WAITS = frozenset(
    (
        *("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"),
        *("cuStreamQuery", "cuEventQuery"),
    )
)

Interval = tuple[int, int]


@dataclass(frozen=True)
class Total:
    """How often something happened, and how many nanoseconds it took together."""

    what: str
    count: int
    nanoseconds: int


@dataclass(frozen=True)
class Summary:
    """The figures of a trace.

    ``seconds`` is the time from the first event to the last. ``operations`` are by name and line,
    from the call until known complete, ``runs`` the same for the time they ran (on the software
    driver); ``calls`` are driver functions; ``lines`` the time that calls of each line took,
    without waits; ``waits`` the time that lines waited, and for which stream. ``copied``
    is how many bytes copies have written. ``overlap`` is the part of the time with work in flight
    during which at least two streams had some, from 0 to 1.
    """

    seconds: float
    operations: tuple[Total, ...]
    runs: tuple[Total, ...]
    calls: tuple[Total, ...]
    lines: tuple[Total, ...]
    waits: tuple[Total, ...]
    copied: int
    overlap: float
    refusals: tuple[tuple[str, str, str], ...]


def summary(trace: TraceFile) -> Summary:
    flight = trace.under(FLIGHT, "streams")
    on_threads = [each for each in trace.slices if each.track.is_thread]
    waits = [each for each in on_threads if each.name in WAITS]
    of_driver = [each for each in on_threads if each.name.startswith("cu") and each.name[2:3] < "a"]
    own = [each for each in on_threads if not each.name.startswith("cu")]
    times = [each.begin for each in (*trace.slices, *trace.instants)]
    times += [each.end for each in trace.slices if each.end is not None]
    return Summary(
        seconds=(max(times) - min(times)) / 1e9 if times else 0.0,
        operations=_totals((_at_line(each), each) for each in flight),
        runs=_totals((_at_line(each), each) for each in trace.under(RUNS, "streams")),
        calls=_totals((each.name, each) for each in of_driver),
        lines=_totals((str(each.notes.get("line", "?")), each) for each in own),
        waits=_totals((_wait(each), each) for each in waits if "line" in each.notes),
        copied=sum(map(_copied, trace.under(BORROWS, "buffers"))),
        overlap=overlap_of(trace, flight),
        refusals=tuple(
            (each.name, str(each.notes.get("line", "?")), str(each.notes.get("text", "")))
            for each in trace.instants
            if each.category == "refusal"
        ),
    )


def _at_line(each: Slice) -> str:
    return f"{each.name} at {each.notes.get('line', '?')}"


def _wait(each: Slice) -> str:
    stream = each.notes.get("stream")
    return f"{each.notes['line']}" + (f" for {stream}" if stream else f" ({each.name})")


def _copied(borrow: Slice) -> int:
    moved = borrow.notes.get("moved")
    if isinstance(moved, int):  # where that is not what is written from the first to the last byte
        return moved if borrow.name.startswith("copy_") else 0
    if not borrow.name.startswith("copy_") or borrow.notes.get("use") != "write":
        return 0
    start, _, stop = str(borrow.notes.get("bytes", "0:0")).partition(":")
    return int(stop) - int(start)


def _totals(named: Iterable[tuple[str, Slice]]) -> tuple[Total, ...]:
    """Add up slices by name, those that took longest first."""
    count: dict[str, int] = defaultdict(int)
    took: dict[str, int] = defaultdict(int)
    for name, each in named:
        count[name] += 1
        took[name] += each.took
    totals = [Total(name, count[name], took[name]) for name in count]
    return tuple(sorted(totals, key=lambda total: (-total.nanoseconds, total.what)))


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals that touch or overlap."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def overlap_of(trace: TraceFile, flight: Sequence[Slice]) -> float:
    of_streams: dict[int, list[Interval]] = defaultdict(list)
    for each in flight:
        if each.end is not None:
            of_streams[each.track.parent].append((each.begin, each.end))
    steps = sorted(
        step
        for intervals in of_streams.values()
        for begin, end in joined(intervals)
        for step in ((begin, 1), (end, -1))
    )
    one = several = busy = 0
    for (time, step), (until, _) in pairwise(steps):
        busy += step
        one += (until - time) * (busy >= 1)
        several += (until - time) * (busy >= 2)
    return several / one if one else 0.0


# ---- as text ----


def duration(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.1f} {unit}"
    return f"{nanoseconds:.0f} ns"


def size(count: float) -> str:
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << bits:
            return f"{count / (1 << bits):.1f} {unit}"
    return f"{count:.0f} bytes"


def table(found: Summary) -> str:
    """Return the summary as text, at most ten rows in each part."""
    rate = found.copied / found.seconds if found.seconds else 0.0
    count = sum(each.count for each in found.operations)
    lines = [
        f"{duration(found.seconds * 1e9)}, {count} operations,"
        f" {sum(each.count for each in found.calls)} driver calls,"
        f" {size(found.copied)} copied ({size(rate)}/s)",
        f"two or more streams had work in flight for {found.overlap:.0%} of the time in which any"
        " had",
    ]
    parts = (
        ("operations, from the call until known complete", found.operations),
        ("operations, while they ran on the software driver", found.runs),
        ("calls that queue operations, by line", found.lines),
        ("waits of the host, by line", found.waits),
        ("driver functions", found.calls),
    )
    for title, totals in parts:
        lines += _part(title, totals)
    if found.refusals:
        many = "refusal" if len(found.refusals) == 1 else "refusals"
        lines += ["", f"{len(found.refusals)} {many}"]
    for name, line, text in found.refusals[:MOST_ROWS]:
        lines.append(f"  {name} at {line}:")
        lines += [f"    {each}" for each in text.splitlines()]
    return "\n".join(lines)


def _part(title: str, totals: Sequence[Total]) -> list[str]:
    if not totals:
        return []
    lines = ["", f"{'together':>10} {'each':>10} {'times':>9}  {title}"]
    for each in totals[:MOST_ROWS]:
        mean = duration(each.nanoseconds / each.count)
        lines.append(f"{duration(each.nanoseconds):>10} {mean:>10} {each.count:>9}  {each.what}")
    if len(totals) > MOST_ROWS:
        lines.append(f"{'':>32} {len(totals) - MOST_ROWS} more")
    return lines
