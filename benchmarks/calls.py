"""What a call costs: bare from C, through cudadrv, and through other installed bindings.

    python benchmarks/calls.py [--json FILE] [--only NAME ...] [--rows ROW ...]

All calls are timed in one process in turn, and figures are medians of the rounds. Ratios within a
row are meaningful on a noisy machine; times of two runs are not comparable. The floor is compiled
first. Each call is timed twice: in a plain loop, and from a small Python function, whose own cost
is subtracted. See docs/benchmarks.md.
"""

import argparse
import gc
import os
import random
import statistics
import sys
import time

import tables
from floor import Floor
from machine import about, share_software_driver, write
from peers import KERNEL, LARGE, NBYTES, PEERS, PITCH, PTX, Peer

import cudadrv as cu

ROUNDS = 31
CALLS, FEW = 300, 20  # calls that are timed at once; FEW if slower than SLOW_NS, and to warm up
SLOW_NS = 20_000
FLOOR, PYTHON_FLOOR = tables.FLOOR, tables.PYTHON_FLOOR
ROWS = tables.CALLS | tables.COPIES
WAYS = ("loop", "function")
# The bare calls in Python, with as many arguments as the calls of the bindings have.
STATEMENTS = {
    "h2d": "h2d(host, stream)",
    "d2h": "d2h(host, stream)",
    "d2d": "d2d(device, stream)",
    "fill": "fill(0, stream)",
    "launch": "launch(1, 32, 32, 2.0, device, other, stream)",
    "record": "record(event)",
    "wait": "wait(event)",
    "synchronize": "synchronize()",
    "locked memory": "locked_memory(1048576)",
    "box": "box(device, device, stream)",
    "1 part": "_1_part(host, stream)",
    **{f"singles {count}": f"singles_{count}(host, stream)" for count in (8, 64, 256)},
    **{f"batch {count}": f"batch_{count}(host, stream)" for count in (8, 64, 256)},
    "device memory": "device_memory(1048576)",
    "device memory on a stream": "device_memory(1048576, stream)",
}
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
    """Return each row's statements with two functions that time it: in a loop, in a function."""

    def timer(source, statement):
        scope = {}
        exec(source.format(names=", ".join(peer.names), statement=statement), scope)
        timed = scope["loop" if source is LOOP else "function"]

        def run(calls):
            peer.settle()
            gc.disable()
            taken = timed(calls, time.perf_counter_ns, **peer.names)
            gc.enable()
            peer.settle()
            return taken

        return run

    return {
        row: [
            (statement, (timer(LOOP, statement), timer(FUNCTION, statement))) for statement in ways
        ]
        for row, ways in peer.rows.items()
    }


def floor():
    """Like `timers`, for the bare calls from C and from Python, with newly made objects."""
    image = PTX.encode() + b"\0"
    with cu.Device(0):
        bare = Floor(cu.driver_info().path, image, KERNEL)
    stream, event = cu.Stream(), cu.Event()
    host = cu.LockedBuffer.zeros(NBYTES)
    device, other = cu.DeviceBuffer.zeros(NBYTES), cu.DeviceBuffer.zeros(NBYTES)
    stream.record(event)
    many, of_many = cu.LockedBuffer.zeros(LARGE), cu.DeviceBuffer.zeros(LARGE)
    things = bare.things
    things.many_host, things.many, things.pitch = many.address, of_many.address, PITCH
    things.device, things.other, things.host = device.address, other.address, host.address
    things.nbytes, things.large = NBYTES, LARGE
    things.stream, things.event = stream.handle, event.handle

    def floor_of(row):
        return row.removesuffix(" prepared").removesuffix(" on a stream")

    def timer(row):
        return lambda calls: bare.timed(floor_of(row), calls)

    rows = [row for row in ROWS if timer(row)(1) is not None]
    functions = {row: bare.for_python(floor_of(row)) for row in STATEMENTS}
    there = {row: STATEMENTS[row] for row in rows if functions.get(row)}
    if "h2d" in there and "synchronize" in there:
        there["h2d and wait"] = f"{there['h2d']}; {there['synchronize']}"
    if "launch" in there:
        there["launch prepared"] = "launch(stream)"
    names = {row.replace(" ", "_"): function for row, function in functions.items()}
    python = Peer(stream.synchronize, there, host=host, device=device, other=other,
                  stream=stream, event=event, keep=(many, of_many),
                  **{f"_{row}" if row[0].isdigit() else row: function
                     for row, function in names.items()})  # fmt: skip
    from_c = {row: [(None, (timer(row), timer(row)))] for row in rows}
    return {FLOOR: from_c, PYTHON_FLOOR: timers(python)}, (bare, python)


def columns(only):
    """Return the columns that can be measured here, and the objects that must stay alive."""
    found, keep = floor()
    return found, [keep, add_bindings(found, PEERS, only)]


def add_bindings(found, peers, only):
    """Add a column for each binding that is installed. Returns the objects that must stay alive."""
    kept = []
    for name, prepare in peers.items():
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
    return kept


class Cell:
    """One row of one binding: its fastest statement, and its figures so far."""

    def __init__(self, statements):
        costs, problems = [], []
        for statement, ways in statements:
            try:
                for run in ways:
                    run(FEW)  # fills pools and caches
                costs.append((min(ways[0](FEW) for _ in range(3)), statement, ways))
            except Exception as error:
                problems.append(error)
        if not costs:
            raise problems[0]
        cost, self.statement, self.ways = min(costs, key=lambda found: found[0])
        self.calls = CALLS if cost < SLOW_NS else FEW
        self.figures = ([], [])

    def turn(self, way):
        self.ways[way](FEW)  # warm up: the caches have the code and data of what ran before
        self.figures[way].append(self.ways[way](self.calls))


def prepared(found, rows):
    """Return ``{row: {column: cell}}``, without the cells whose calls fail."""
    table = {row: {} for row in rows}
    for row, cells in table.items():
        for name, statements in found.items():
            try:
                if row in statements:
                    cells[name] = Cell(statements[row])
            except Exception as error:
                print(f"{name} without {row}: {type(error).__name__}: {error}", file=sys.stderr)
    return table


def measure(table, rounds):
    """Measure the cells one after the other, in another order in each round."""
    order = random.Random(0)
    for _ in range(rounds):
        for cells in table.values():
            turns = [(cell, way) for cell in cells.values() for way in (0, 1)]
            order.shuffle(turns)
            for cell, way in turns:
                cell.turn(way)


def stay_on_the_quickest_processor():
    """Bind this thread to the fastest processor, because processors of a virtual machine differ."""

    def taken(processor):
        os.sched_setaffinity(0, {processor})
        figures = []
        for _ in range(5):
            start = time.perf_counter_ns()
            for _ in range(20_000):
                pass
            figures.append(time.perf_counter_ns() - start)
        return min(figures)

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0), key=taken)})


def results(table):
    """Return figures for the file: each way, and its difference from the round's floor."""
    found = {}
    for row, cells in table.items():
        found[row] = {}
        for name, cell in cells.items():
            found[row][name] = figures = {}
            if cell.statement:
                figures["statement"] = cell.statement
            for way, word in enumerate(WAYS):
                figures[word] = summary(cell.figures[way])
                if name != FLOOR and FLOOR in cells:
                    pairs = zip(cell.figures[way], cells[FLOOR].figures[way], strict=True)
                    above = statistics.median(mine - bare for mine, bare in pairs)
                    figures[word]["above"] = round(above, 1)
    return found


def summary(figures):
    ordered = sorted(figures)
    quarter = len(ordered) // 4
    return {
        "median": round(statistics.median(ordered), 1),
        "low": round(ordered[quarter], 1),
        "high": round(ordered[-1 - quarter], 1),
    }


def show(table, machine, options, text_of):
    """Print what `text_of(figures)` returns, and write the figures if the options say so."""
    rows = results(table)
    print(tables.head(machine), f"medians of {options.rounds} rounds\n", sep="\n")
    print(text_of(rows))
    if options.json:
        write(options.json, rows, machine)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(PEERS)}")
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW", choices=ROWS, default=list(tables.CALLS)
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    options = parser.parse_args()
    share_software_driver()
    found, _kept = columns(options.only)
    table, machine = prepared(found, options.rows), about()
    if not machine["software"]:  # threads that the software driver starts would be bound, too
        stay_on_the_quickest_processor()
    measure(table, options.rounds)
    show(table, machine, options, lambda rows: tables.calls(rows, machine["software"]))


if __name__ == "__main__":
    main()
