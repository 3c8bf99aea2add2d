"""What a call costs: bare from C, through cudadrv, and through other bindings found installed.

    python benchmarks/calls.py [--json FILE] [--only NAME ...] [--rows ROW ...]

All are timed in one process, in turns, and the median of the rounds counts: ratios within a row
mean something on a noisy machine, times of two runs do not. The floor is compiled on the spot. Each
call is timed twice: in a plain loop, and from a small function of the caller's, whose own cost is
taken off.

On the software driver other bindings run only where they find the same library: start with
    eval "$(python -m cudadrv libcuda build/soft)"; CUDADRV_DRIVER=build/soft/libcuda.so.1
"""

import argparse
import gc
import statistics
import sys
import time

from floor import Floor
from machine import about, write
from peers import KERNEL, LARGE, NBYTES, PEERS, PTX

import cudadrv as cu

ROUNDS = 15
CALLS = 300
FLOOR = "bare call from C"
ROWS = {
    "h2d": "copy 4 KiB host to device, asynchronous",
    "d2h": "copy 4 KiB device to host, asynchronous",
    "d2d": "copy 4 KiB device to device, asynchronous",
    "fill": "fill 4 KiB, asynchronous",
    "launch": "launch a kernel with 4 arguments",
    "launch prepared": "the same, prepared",
    "record": "record an event",
    "wait": "wait for an event on a stream",
    "synchronize": "synchronize an idle stream",
    "h2d and wait": "copy 4 KiB host to device and wait for it",
    "locked memory": "1 MiB of page-locked memory, and let go of it",
    "device memory": "1 MiB of device memory, and let go of it",
}
SLOW = {"locked memory": 20}  # calls of a round where the driver has no pool
LOOP = """\
def loop(calls, clock, {names}):
    turns = range(calls)
    start = clock()
    for _ in turns:
        {statement}
    taken = clock() - start
    start = clock()
    for _ in turns:
        pass
    return (taken - (clock() - start)) / calls
"""
FUNCTION = """\
def function(calls, clock, {names}):
    def call():
        {statement}
    def nothing():
        pass
    turns = range(calls)
    start = clock()
    for _ in turns:
        call()
    taken = clock() - start
    start = clock()
    for _ in turns:
        nothing()
    return (taken - (clock() - start)) / calls
"""


def timers(peer):
    """For each row two functions that give nanoseconds a call: in a loop, and from a function."""

    def timer(source, row, statement):
        scope = {}
        exec(source.format(names=", ".join(peer.names), statement=statement), scope)
        timed = scope["loop" if source is LOOP else "function"]

        def run():
            peer.settle()
            gc.disable()
            taken = timed(SLOW.get(row, CALLS), time.perf_counter_ns, **peer.names)
            gc.enable()
            peer.settle()
            return taken

        return run

    return {
        row: (timer(LOOP, row, statement), timer(FUNCTION, row, statement))
        for row, statement in peer.rows.items()
    }


def floor():
    """The same for the bare calls, with objects of their own."""
    image = PTX.encode() + b"\0"
    with cu.Device(0):
        bare = Floor(cu.driver_info().path, image, KERNEL)
    stream, event = cu.Stream(), cu.Event()
    host = cu.LockedBuffer.zeros(NBYTES)
    device, other = cu.DeviceBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
    stream.record(event)
    things = bare.things
    things.device, things.other, things.host = device.address, other.address, host.address
    things.nbytes, things.large = NBYTES, LARGE
    things.stream, things.event = stream.handle, event.handle
    rows = [row for row in ROWS if bare.timed(row.removesuffix(" prepared"), 1) is not None]

    def timer(row):
        return lambda: bare.timed(row.removesuffix(" prepared"), SLOW.get(row, CALLS))

    keep = (stream, event, host, device, other)
    return {row: (timer(row), timer(row)) for row in rows}, keep


def columns(only):
    """Those who can be measured here, and what has to stay alive meanwhile."""
    bare, keep = floor()
    found, kept = {FLOOR: bare}, [keep]
    for name, prepare in PEERS.items():
        if only and name not in only:
            continue
        try:
            peer = prepare()
        except ImportError as missing:
            print(f"without {name}: {missing}", file=sys.stderr)
        except Exception as error:
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            found[name] = timers(peer)
            kept.append(peer)
    return found, kept


def measure(found, rows):
    """``{row: {column: [[loop, ...], [function, ...]]}}``, in nanoseconds a call."""
    times = {row: {name: [[], []] for name in found if row in found[name]} for row in rows}
    for turn in range(ROUNDS + 1):
        for row, cells in times.items():
            for name, both in cells.items():
                for way in (0, 1):
                    taken = found[name][row][way]()
                    if turn:  # the first one warms up
                        both[way].append(taken)
    return times


def summary(figures):
    ordered = sorted(figures)
    quarter = len(ordered) // 4
    return {
        "median": statistics.median(ordered),
        "low": ordered[quarter],
        "high": ordered[-1 - quarter],
    }


def table(results, way):
    """Rows of ratios to the floor, as Markdown."""
    names = [name for name in [FLOOR, *PEERS] if any(name in row for row in results.values())]
    lines = ["| " + " | ".join(["nanoseconds a call", *names]) + " |"]
    lines.append("|---|" + "---|" * len(names))
    for row, cells in results.items():
        bare = cells[FLOOR][way]["median"] if FLOOR in cells else None
        line = [ROWS[row]]
        for name in names:
            if name not in cells:
                line.append("-")
                continue
            middle = cells[name][way]["median"]
            ratio = f" ({middle / bare:.2f})" if bare else ""
            line.append(f"{middle:,.0f}{ratio}")
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rows", nargs="+", metavar="ROW", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    found, _kept = columns(options.only)
    times = measure(found, options.rows)
    results = {
        row: {
            name: {"loop": summary(both[0]), "function": summary(both[1])}
            for name, both in cells.items()
        }
        for row, cells in times.items()
    }
    machine = about()
    print(f"{machine['device']}, CUDA {machine['cuda']}, Python {machine['python']},")
    print(f"{machine['cpus']} cores, {machine['date']}; medians of {ROUNDS} rounds\n")
    for way, words in (("loop", "In a plain loop"), ("function", "From a function")):
        print(f"{words}:\n\n{table(results, way)}\n")
    if options.json:
        write(options.json, results, machine)


if __name__ == "__main__":
    main()
