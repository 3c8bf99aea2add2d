"""Prints a file of results as Markdown tables, for the terminal and for the documentation.

    python benchmarks/tables.py [RESULTS.json]      print all tables of the file
    python benchmarks/tables.py --write put the tables of the recorded results into the pages

In the documentation, each table is between <!-- begin NAME --> and <!-- end NAME -->.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "benchmarks" / "results" / "h200.json"
SOFTWARE = ROOT / "benchmarks" / "results" / "software.json"
RESULTS = "../benchmarks/results"  # relative to the pages that show pictures
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / name
        for name in (
            *("index.md", "performance.md", "benchmarks.md", "comparison.md"),
            *("interop.md", "managed.md", "pipelines.md", "graphs.md"),
        )
    ),
]

FLOOR = "bare call from C"
PYTHON_FLOOR = "bare call from Python"
LOCKED, DRIVER = "page-locked memory", "driver's own way"
DRIVER_WAITED = "driver's own way, waited for"
BINDINGS = ["cudadrv", "cuda.bindings", "cuda.core", "CuPy", "PyCUDA", "PyTorch", "numba-cuda"]
CALLS = {
    "h2d": "4 KiB host to device, asynchronous",
    "d2h": "4 KiB device to host, asynchronous",
    "d2d": "4 KiB device to device, asynchronous",
    "fill": "4 KiB fill, asynchronous",
    "launch": "launching a kernel with 4 arguments",
    "launch prepared": "the same, arguments packed before",
    "record": "recording an event",
    "wait": "letting a stream wait for an event",
    "synchronize": "synchronizing an idle stream",
    "h2d and wait": "4 KiB host to device, then waiting for it",
    "call": "calling a function of the host from a stream",
    "call and wait": "the same, then waiting for it",
    "locked memory": "cuMemHostAlloc and cuMemFreeHost of 1 MiB, or a pool",
    "device memory": "cuMemAllocAsync and cuMemFreeAsync of 1 MiB, or a pool",
    "device memory on a stream": "the same, on a stream",
}
# Only measured if they are asked for: calls.py --rows.
COPIES = {
    "box": "16 rows of 256 bytes, device to device",
    "1 part": "4 KiB host to device, a part of a buffer",
    "singles 8": "8 parts of 4 KiB, a call for each",
    "singles 64": "64 parts of 4 KiB, a call for each",
    "singles 256": "256 parts of 4 KiB, a call for each",
    "batch 8": "8 parts of 4 KiB as a batch",
    "batch 64": "64 parts of 4 KiB as a batch",
    "batch 256": "256 parts of 4 KiB as a batch",
}
INTEROP = {
    "to PyTorch": "an array to PyTorch",
    "to CuPy": "an array to CuPy",
    "from PyTorch": "an array from PyTorch",
    "from CuPy": "an array from CuPy",
    "loan": "a loan begun and ended",
    "launch": "a launch with two tensors of PyTorch",
}
GRAPHS = {
    "launch 1 1": "launch of 1 node, 1 buffer",
    "launch 5 1": "of 5 nodes, 1 buffer",
    "launch 20 1": "of 20 nodes, 1 buffer",
    "launch 100 1": "of 100 nodes, 1 buffer",
    "launch 32 2": "of 32 nodes, 2 buffers",
    "launch 32 8": "of 32 nodes, 8 buffers",
    "launch 32 32": "of 32 nodes, 32 buffers",
    "update": "update of 20 nodes from another graph",
    "set": "new arguments for one kernel node",
    "step 20 calls": "20 kernels, a call for each",
    "step 20 graph": "20 kernels, as a graph",
    "step 50 calls": "50 kernels, a call for each",
    "step 50 graph": "50 kernels, as a graph",
}
BY_FAULTS, BY_PREFETCH, BY_COPY = "faults", "prefetch, then use", "copy, then use"
THERE = "already there"
MOVES = (BY_FAULTS, BY_PREFETCH, BY_COPY, THERE)
FILL = "source to page-locked memory"
TOGETHER = "source and both copies at once"
# What limits a pipeline. Older results have the second bound instead of the third.
BOUNDS = ("of the slowest stage", "of both copies at once", "of all at once")
POOLS = {
    "locked": "page-locked",
    "locked on a stream": "page-locked, on a stream",
    "managed": "managed",
    "managed on a stream": "managed, on a stream",
}
FEW_CALLS = ("h2d", "h2d and wait", "launch", "record")
FEW_BINDINGS = ("cudadrv", "cuda.bindings", "cuda.core", "CuPy")


def grid(head, lines):
    """Return a Markdown table. None becomes a dash."""
    filled = [["-" if cell is None else cell for cell in line] for line in lines]
    rows = [head, ["---"] * len(head), *filled]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows).replace("| --- ", "|---")


def head(machine):
    """Return where and when the figures were measured, as one line."""
    driver = f", driver {machine['driver']}" if machine.get("driver") else ""
    return (
        f"{machine['device']}{driver} (CUDA {machine['cuda']}), {machine['cpus']} processors,"
        f" Python {machine['python']}, {machine['date']}"
    )


def versions(machine):
    return ", ".join(f"{name} {number}" for name, number in machine["versions"].items())


def times(ratio):
    """Return a ratio with two decimals, or two digits if it is small."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.1g}"


def call_cell(cells, name, way, software):
    """Return ns and the ratio to the floor; on the software driver, the ns above the floor."""
    if name not in cells:
        return None
    figures = cells[name][way]
    text = f"{figures['median']:,.0f}"
    if name == FLOOR or FLOOR not in cells:
        return text
    if software:
        return f"{text} ({figures['above']:+,.0f})"
    return f"{text} ({times(figures['median'] / cells[FLOOR][way]['median'])})"


def one_way(rows, way, software, bindings=BINDINGS):
    """Return the rows of the calls, measured in a loop or from a function."""
    there = [
        name
        for name in [FLOOR, PYTHON_FLOOR, *bindings]
        if any(name in row for row in rows.values())
    ]
    unit = "and above the bare call" if software else "and times the bare call"
    lines = [
        [(CALLS | COPIES)[row], *(call_cell(cells, name, way, software) for name in there)]
        for row, cells in rows.items()
    ]
    return grid([f"nanoseconds a call, {unit}", *there], lines) + "\n"


def calls(rows, software=False):
    return (
        f"In a plain loop:\n\n{one_way(rows, 'loop', software)}\n"
        f"From a function:\n\n{one_way(rows, 'function', software)}"
    )


def spread(figures):
    """Return the width of the interval that contains the middle half of the figures."""
    return figures["high"] - figures["low"]


def quicker(rows):
    """A sentence about calls in a plain loop where another binding was faster than cudadrv."""
    found = []
    for row, cells in rows.items():
        medians = {name: cells[name]["loop"]["median"] for name in BINDINGS if name in cells}
        best = min(medians, key=medians.get, default="cudadrv")
        if best != "cudadrv" and "cudadrv" in medians:
            less = medians["cudadrv"] - medians[best]
            varies = min(spread(cells[name]["loop"]) for name in ("cudadrv", best))
            remark = ", which is less than the spread of either figure" if less < varies else ""
            found.append(f"{(CALLS | COPIES)[row]} ({best}, by {less:,.0f} ns{remark})")
    if not found:
        return "In a plain loop, no other binding was quicker than cudadrv in any row.\n"
    return f"In a plain loop, another binding was quicker than cudadrv at: {'; '.join(found)}.\n"


def size(nbytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} bytes"


def rate(cell, floor):
    if cell is None:
        return None
    rounded = f"{cell['median']:.3g}"
    return f"{rounded} ({cell['median'] / floor['median']:.2f})" if floor else rounded


def bandwidth(rows):
    """Return a table for each direction: GB/s, and the ratio to a copy of page-locked memory."""
    parts = []
    for way, sizes in rows.items():
        known = [LOCKED, DRIVER, DRIVER_WAITED, *BINDINGS]
        there = [name for name in known if any(name in cells for cells in sizes.values())]
        lines = []
        for nbytes, cells in sizes.items():
            floor = cells.get(LOCKED)
            line = [rate(cells.get(name), None if name == LOCKED else floor) for name in there]
            lines.append([size(int(nbytes)), *line])
        parts.append(f"{grid([f'GB/s {way}', *there], lines)}\n")
    return "\n".join(parts)


def pipeline(rows):
    slowest, both = "of the slowest stage", "of both copies at once"
    lines = []
    for name, row in rows.items():
        bounds = [f"{row[bound]:.3f}" if bound in row else None for bound in (slowest, both)]
        lines.append([name, f"{row['GB/s']:.1f}", f"{row['ms']:.2f}", *bounds])
    return grid(["", "GB/s", "ms", "of the slowest stage", "of both copies at once"], lines) + "\n"


def imports(rows):
    lines = []
    for name in BINDINGS:
        if name in rows:
            wall, processor = rows[name]["wall ms"], rows[name]["processor ms"]
            lines.append([name, f"{wall['median']:.1f}", f"{processor['median']:.1f}"])
    return grid(["import, after NumPy: ms", "wall", "processor"], lines) + "\n"


def interop(rows):
    """Return ns in a plain loop; for launches, also the ratio to one with cudadrv's own buffers."""
    own = "cudadrv, its own buffers"
    there = [own, "cudadrv", "CuPy", "PyTorch", "cuda.core", "numba-cuda"]
    there = [name for name in there if any(name in row for row in rows.values())]
    lines = []
    for row, cells in rows.items():
        line = []
        for name in there:
            cost = cells[name]["loop"]["median"] if name in cells else None
            text = None if cost is None else f"{cost:,.0f}"
            if text and name != own and own in cells:
                text += f" ({times(cost / cells[own]['loop']['median'])})"
            line.append(text)
        lines.append([INTEROP[row], *line])
    return grid(["nanoseconds a call", *there], lines) + "\n"


def graphs(rows):
    """Return the nanoseconds in a plain loop, and the ratio to the bare call from C."""
    columns = [FLOOR, PYTHON_FLOOR, *BINDINGS]
    there = [name for name in columns if any(name in row for row in rows.values())]
    lines = [
        [GRAPHS[row], *(call_cell(cells, name, "loop", False) for name in there)]
        for row, cells in rows.items()
    ]
    return grid(["nanoseconds a call, and times the bare call", *there], lines) + "\n"


def moves(rows):
    """Return a table for each direction: GB/s of a pass over managed memory, by how it moves."""
    parts = []
    for direction, ways in rows.items():
        there = [name for name in BINDINGS if any(name in cells for cells in ways.values())]
        lines = [
            [way, *(rate(cells.get(name), None) for name in there)] for way, cells in ways.items()
        ]
        parts.append(f"{grid([f'GB/s {direction}', *there], lines)}\n")
    return "\n".join(parts)


def streamed(rows):
    """Return a table for each kind of source: GB/s of each stage alone and of each pipeline."""
    parts = []
    for kind, cells in rows.items():
        bounds = [name for name in BOUNDS if any(name in row for row in cells.values())]
        lines = []
        for name, row in cells.items():
            shares = [f"{row[bound]:.3f}" if bound in row else None for bound in bounds]
            lines.append([name, rate(row, None), *shares])
        parts.append(f"{grid([f'GB/s from {kind}', '', *bounds], lines)}\n")
    return "\n".join(parts)


def pools(rows):
    there = [name for name in BINDINGS if any(name in cells for cells in rows.values())]
    lines = []
    for row, cells in rows.items():
        figures = [f"{cells[n]['loop']['median']:,.0f}" if n in cells else None for n in there]
        lines.append([POOLS[row], *figures])
    return grid(["1 MiB, taken and given back: ns", *there], lines) + "\n"


def managed(rows):
    return f"{moves(rows['moves'])}\n{streamed(rows['pipelines'])}\n{pools(rows['pools'])}"


TITLES = {
    "calls": "Calls",
    "bandwidth": "Ordinary memory",
    "pipeline": "A pipeline over chunks",
    "imports": "Importing",
    "interop": "Arrays of other libraries",
    "managed": "Managed memory, streams of data, pools",
    "graphs": "Graphs",
}


PICTURES = {
    "calls": "What each call costs through each binding, as a multiple of the bare driver call",
    "bandwidth": "Bandwidth of copies between NumPy arrays and the device, by size and binding",
    "imports": "How long importing each binding takes after NumPy",
    "managed": "How fast a pass over managed memory is by faults, after a prefetch and by a copy,"
    " and how fast data streams through the device",
}


def fingerprint(part):
    """Return a hash of a part of the results, which its picture contains."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()


def part(results, name):
    """Return one part of the results, as Markdown."""
    rows = results["parts"][name]["rows"]
    if name == "calls":
        return f"{calls(rows, results['software'])}\n{quicker(rows)}"
    text = {
        "bandwidth": bandwidth,
        "pipeline": pipeline,
        "imports": imports,
        "interop": interop,
        "managed": managed,
        "graphs": graphs,
    }
    return text[name](rows)


def report(results):
    """Return all parts. Failed parts are listed, too, unlike parts that did not run."""
    text = f"{head(results)}\n{versions(results)}\n"
    for name, title in TITLES.items():
        if name in results["parts"]:
            text += f"\n## {title}\n\n{part(results, name)}"
        if name in results["failed"]:
            text += f"\n## {title}\n\nfailed: {results['failed'][name]}\n"
    return text


def few_calls(results):
    """Return a table of the rows FEW_CALLS, with two columns: the bare call and cudadrv."""
    rows = results["parts"]["calls"]["rows"]
    lines = []
    for row in FEW_CALLS:
        figures = [f"{rows[row][name]['loop']['median']:,.0f}" for name in (FLOOR, "cudadrv")]
        lines.append([CALLS[row], *figures])
    return grid(["nanoseconds a call", FLOOR, "cudadrv, from Python"], lines) + "\n"


def of_managed(results, name, table):
    """Return one of the tables of the part "managed" of the results."""
    if "managed" not in results["parts"]:
        return "Not measured in this run.\n"
    return table(results["parts"]["managed"]["rows"][name])


def with_picture(results, name):
    """Return the text and the picture of one part, for a page."""
    if name not in results["parts"]:
        return "Not measured in this run.\n"
    picture = f"![{PICTURES[name]}]({RESULTS}/{name}.svg)\n\n" if name in PICTURES else ""
    return picture + part(results, name)


def fewer_calls(results):
    rows = results["parts"]["calls"]["rows"]
    return one_way(rows, "loop", results["software"], FEW_BINDINGS)


def versions_of(results):
    processor = f" Processor: {results['processor']}." if "processor" in results else ""
    return f"{head(results)}.{processor} Versions: {versions(results)}.\n"


def blocks(recorded, software):
    """Return the text between each pair of marks, by name."""
    return {
        "machine": f"{head(recorded)}.\n",
        "calls": fewer_calls(recorded),
        "quicker": quicker(recorded["parts"]["calls"]["rows"]),
        "few calls": few_calls(recorded),
        "versions": versions_of(recorded),
        **{f"part {name}": with_picture(recorded, name) for name in TITLES},
        "moves": of_managed(recorded, "moves", moves),
        "streamed": of_managed(recorded, "pipelines", streamed),
        "software versions": versions_of(software),
        "software calls": part(software, "calls"),
    }


MARKED = re.compile(r"(<!-- begin ([\w ]+) -->)\n.*?(<!-- end \2 -->)", re.DOTALL)


def filled(page, found):
    """Return the page with these texts between its marks."""
    return MARKED.sub(lambda mark: f"{mark[1]}\n\n{found[mark[2]]}\n{mark[3]}", page)


def load(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", default=RECORDED, metavar="RESULTS.json")
    parser.add_argument("--write", action="store_true", help="into the documentation")
    options = parser.parse_args()
    results = load(options.results)
    if not options.write:
        print(report(results))
        return
    found = blocks(results, load(SOFTWARE))
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        path.write_text(filled(page, found), encoding="utf-8")


if __name__ == "__main__":
    main()
