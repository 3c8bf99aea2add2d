"""Draws pictures of a file of results, as SVG (matplotlib: the extra `bench`).

    python benchmarks/draw.py [RESULTS.json [FOLDER]]

By default the pictures are written beside the results. They depend only on the results and on the
version of matplotlib. The metadata of each picture names the results that it shows.
"""

import argparse
import math
import textwrap
from pathlib import Path

import matplotlib as mpl
import tables
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

STYLE = {
    "svg.hashsalt": "cudadrv",  # without it, names inside the file are random
    "svg.fonttype": "none",  # keep text as text
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
# Colours that colour-blind people can distinguish (Okabe and Ito), and a shape for each.
LOOKS = {
    tables.LOCKED: ("#000000", "None"),
    tables.DRIVER: ("#000000", "x"),
    tables.DRIVER_WAITED: ("#777777", "x"),
    "cudadrv": ("#d55e00", "o"),
    "cuda.bindings": ("#0072b2", "s"),
    "cuda.core": ("#009e73", "^"),
    "CuPy": ("#cc79a7", "D"),
    "PyCUDA": ("#e69f00", "v"),
    "PyTorch": ("#56b4e9", "P"),
    "numba-cuda": ("#777777", "X"),
}
ALLOCATIONS = ("locked memory", "device memory", "device memory on a stream")
RATIOS = (0.0001, 0.001, 0.01, 0.1, 0.5, 1, 1.2, 1.5, 2, 3, 4, 6, 10, 20, 50, 100)
CLOSE = 0.04  # fraction of an axis; labels that are nearer to each other overlap


def plain(value, _=None):
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def apart(ticks, low, high):
    """Return the ticks whose labels do not overlap. Powers of ten have priority."""
    chosen = []
    for tick in sorted(ticks, key=lambda tick: (math.log10(tick) % 1 != 0, tick)):
        near = [
            other for other in chosen if abs(math.log(tick / other)) < CLOSE * math.log(high / low)
        ]
        if low <= tick <= high and not near:
            chosen.append(tick)
    return sorted(chosen)


def log_axis(axis, ticks):
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))


def entries(rows, software):
    """(row, binding, value). A value is a multiple of the bare call's time, or, on the software
    driver, the ns above that time.
    """
    for row, cells in rows.items():
        for name in tables.BINDINGS:
            if name in cells and tables.FLOOR in cells:
                figures, bare = cells[name]["loop"], cells[tables.FLOOR]["loop"]["median"]
                yield row, name, figures["above"] if software else figures["median"] / bare


def dots(axes, found, rows):
    """Draw one line for each row, and on it the marks of the bindings, each a little lower."""
    names = [name for name in LOOKS if any(who == name for _, who, _ in found)]
    for at, name in enumerate(names):
        colour, shape = LOOKS[name]
        lower = 0.6 * ((at + 0.5) / len(names) - 0.5)
        points = [(value, rows.index(row) + lower) for row, who, value in found if who == name]
        if points:
            ours = name == "cudadrv"
            axes.plot(
                *zip(*points, strict=True),
                shape,
                color=colour,
                label=name,
                markersize=7.5 if ours else 6,
                zorder=4 if ours else 3,
                markeredgecolor="white",
                markeredgewidth=0.6,
            )
    axes.set_yticks(range(len(rows)), [tables.CALLS[row] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    for at in range(0, len(rows), 2):
        axes.axhspan(at - 0.5, at + 0.5, color="#f5f5f5", zorder=0)


def spread(axes, found, software):
    """Set a logarithmic axis that contains all marks, with readable ticks."""
    values = [value for _, _, value in found]
    axes.set_xscale("log")
    if software:
        axes.set_xlabel("nanoseconds above the bare call from C")
        axes.set_xlim(min(values) / 1.3, max(values) * 1.3)
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        return
    low, high = min(*values, 1) / 1.15, max(*values, 1) * 1.15
    log_axis(axes.xaxis, apart(RATIOS, low, high))
    axes.set_xlim(low, high)
    axes.axvline(1, color="black", linewidth=1.2, zorder=2)


def draw_calls(part, results):
    software = results["software"]
    found = [entry for entry in entries(part["rows"], software) if entry[2] > 0]
    calls = [row for row in part["rows"] if row not in ALLOCATIONS]
    # Allocations from a pool make no driver call to compare with.
    pooled = [row for row in part["rows"] if row in ALLOCATIONS and not software]
    heights = [len(rows) for rows in (calls, pooled) if rows]
    figure = Figure(figsize=(9, 1.0 + 0.42 * sum(heights) + 0.5 * len(heights)))
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for place, rows in zip(axes, filter(None, (calls, pooled)), strict=True):
        shown = [entry for entry in found if entry[0] in rows]
        dots(place, shown, rows)
        spread(place, shown, software)
    if not software:
        axes[-1].set_xlabel("time of a call / time of the bare driver call from C")
    return figure, axes[0], "What a call costs, in a plain loop"


def draw_bandwidth(part, results):
    directions = list(part["rows"])[:2]
    figure = Figure(figsize=(9, 4.4))
    columns = figure.subplots(1, len(directions), sharey=True, squeeze=False)[0]
    for axes, way in zip(columns, directions, strict=True):
        sizes = part["rows"][way]
        for name, (colour, shape) in LOOKS.items():
            points = [(int(n), row[name]["median"]) for n, row in sizes.items() if name in row]
            if points:
                line = "-" if name in ("cudadrv", tables.LOCKED) else "--"
                axes.plot(
                    *zip(*points, strict=True), line, marker=shape, color=colour, label=name,
                    linewidth=1.4, markersize=5, zorder=4 if name == "cudadrv" else 3,
                )  # fmt: skip
        axes.set_xscale("log", base=2)
        ticks = [int(nbytes) for nbytes in sizes]
        log_axis(axes.xaxis, ticks)
        axes.set_xticks(ticks, [tables.size(nbytes) for nbytes in ticks], rotation=40, ha="right")
        axes.set_title(way, fontsize=9)
        axes.set_xlabel("size of the copy")
        axes.grid(True)
    columns[0].set_ylim(bottom=0)
    columns[0].set_ylabel("GB/s")
    return figure, columns[0], "Copies between NumPy arrays and the device"


def draw_imports(part, results):
    names = [name for name in tables.BINDINGS if name in part["rows"]]
    figure = Figure(figsize=(9, 1.5 + 0.34 * len(names)))
    axes = figure.subplots()
    times = [part["rows"][name]["wall ms"]["median"] for name in names]
    bars = axes.barh(names, times, color=[LOOKS[name][0] for name in names], height=0.62)
    axes.bar_label(bars, [plain(taken) for taken in times], padding=3)
    axes.set_xlim(0, max(times) * 1.08)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    axes.set_xlabel("milliseconds, in a fresh process that has imported NumPy")
    return figure, None, "Importing"


def draw_managed(part, results):
    """Draw bars of GB/s: above, moves in both directions; below, pipelines from both sources."""
    rows = part["rows"]
    figure = Figure(figsize=(9, 6.4))
    above, below = figure.subplots(2, 2, sharex="row", height_ratios=(4, 5))
    for axes, (direction, ways) in zip(above, rows["moves"].items(), strict=True):
        cells = [(way, name) for way in ways for name in LOOKS if name in ways[way]]
        cells = [cell for cell in cells if cell[0] != tables.THERE]  # 10 to 100 times as fast
        bar_chart(
            axes,
            [f"{way}: {name}" for way, name in cells],
            [ways[way][name]["median"] for way, name in cells],
            [LOOKS[name][0] for _, name in cells],
        )
        axes.set_title(f"managed memory {direction}", fontsize=9)
    for axes, (kind, found) in zip(below, rows["pipelines"].items(), strict=True):
        names = [name for name in found if name != "kernel"]
        bar_chart(
            axes,
            names,
            [found[name]["median"] for name in names],
            [STREAMED.get(name, "#bbbbbb") for name in names],
        )
        axes.set_title(f"from {kind}: stages alone (grey), and pipelines", fontsize=9)
    for axes in (above[-1], below[-1]):
        axes.set_xlabel("GB/s")
    return figure, None, "Managed memory, and data that streams through the device"


STREAMED = {
    "Pipeline": LOOKS["cudadrv"][0],
    "waiting for each chunk": "#f0b88f",
    "PyTorch": LOOKS["PyTorch"][0],
    "CuPy": LOOKS["CuPy"][0],
}


def bar_chart(axes, names, values, colours):
    bars = axes.barh(range(len(names)), values, color=colours, height=0.66)
    axes.bar_label(bars, [plain(value) for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    axes.margins(x=0.15)


DRAWINGS = {
    "calls": draw_calls,
    "bandwidth": draw_bandwidth,
    "imports": draw_imports,
    "managed": draw_managed,
}


def finish(figure, legend, title, results):
    """Put title, legend and origin at the top, and set the margins."""
    height = figure.get_figheight()
    origin = textwrap.shorten(tables.head(results), 130)
    figure.suptitle(title, x=0.01, y=1 - 0.08 / height, ha="left", va="top", fontsize=11)
    figure.text(0.01, 1 - 0.36 / height, origin, va="top", fontsize=8, color="#444444")
    room = 0.4
    if legend is not None:
        handles, names = legend.get_legend_handles_labels()
        figure.legend(
            handles, names, loc="upper left", bbox_to_anchor=(0, 1 - 0.55 / height), ncols=8,
            columnspacing=1.2, handletextpad=0.3, fontsize=8,
        )  # fmt: skip
        room = 0.66
    figure.tight_layout(rect=(0, 0, 1, 1 - room / height))


def draw(results, folder):
    """Write the pictures of all parts in the results."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, drawing in DRAWINGS.items():
            if name not in results["parts"]:
                continue
            part = results["parts"][name]
            figure, legend, title = drawing(part, results)
            finish(figure, legend, title, results)
            shown = f"{tables.head(results)}; results {tables.fingerprint(part)}"
            about = {"Title": title, "Description": shown, "Date": None, "Creator": None}
            figure.savefig(folder / f"{name}.svg", metadata=about)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path, default=tables.RECORDED)
    parser.add_argument("folder", nargs="?", type=Path)
    options = parser.parse_args()
    draw(tables.load(options.results), options.folder or options.results.parent)


if __name__ == "__main__":
    main()
