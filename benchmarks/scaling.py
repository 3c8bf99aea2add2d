"""How the stencil scales from one device to several, and when its kernels and copies run.

    python benchmarks/scaling.py [--rows 8192] [--columns 8192] [--steps 100] [--timeline FILE.svg]

Each device gets a part of the same size, so the time should stay the same (weak scaling). The
timeline is made in a separate run, because recording its events takes time.
"""

import argparse
import json
import os
import statistics
import sys
from argparse import Namespace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "distributed"))
import stencil

import cudadrv as cu

COLOURS = {"outer rows": "#d55e00", "halo": "#0072b2", "inner rows": "#009e73"}
ROWS = tuple(COLOURS)
SHOWN = 3  # steps


class Timed(stencil.Part):
    """A part that records an event before and after each kernel and each copy."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.device = self.before.device
        self.spans = []

    def event(self, stream):
        return stream.record(cu.Event(timing=True, device=self.device))

    def begin(self):
        self.origin = self.event(self.outer)
        self.spans = []

    def timed(self, what, stream, queue):
        start = self.event(stream)
        queue()
        self.spans.append((what, start, self.event(stream)))

    def relax_outer(self):
        self.timed("outer rows", self.outer, super().relax_outer)

    def relax_inner(self):
        self.timed("inner rows", self.inner, super().relax_inner)

    def pull(self, side, neighbour):
        self.outer.wait(neighbour.outer_done)  # the span begins after this wait
        pull = super().pull
        self.timed("halo", self.outer, lambda: pull(side, neighbour))

    def milliseconds(self):
        return [
            (what, start.elapsed_ms(self.origin), stop.elapsed_ms(self.origin))
            for what, start, stop in self.spans
        ]


def timeline(options, size):
    """Return the spans of each part, in ms, in some steps after the first ones."""
    devices = cu.Device.all()
    parts = [
        Timed(index, options.rows, options.columns, devices[index % len(devices)])
        for index in range(size)
    ]
    stencil.run_on_devices(parts, 3)
    for part in parts:
        part.begin()
    stencil.run_on_devices(parts, SHOWN)
    return [part.milliseconds() for part in parts]


def overlap(spans):
    """Return the fraction of the copies' time in which the inner kernel of the same part runs."""
    inside = total = 0.0
    for part in spans:
        inner = [(start, stop) for what, start, stop in part if what == "inner rows"]
        for what, start, stop in part:
            if what == "halo":
                total += stop - start
                inside += sum(max(0, min(stop, end) - max(start, at)) for at, end in inner)
    return inside / total if total else 0.0


def picture(spans, title):
    left, width, height = 150, 850, 16
    end = max(stop for part in spans for _, _, stop in part)
    lines = []
    for index, part in enumerate(spans):
        top = 50 + index * (len(ROWS) * height + 24)
        for row, what in enumerate(ROWS):
            y = top + row * height
            label = f"part {index}, {what}"
            lines.append(f'<text x="4" y="{y + 12}">{label}</text>')
            for name, start, stop in part:
                if name == what:
                    x = left + width * start / end
                    span = max(width * (stop - start) / end, 1)
                    lines.append(
                        f'<rect x="{x:.1f}" y="{y + 1}" width="{span:.1f}" height="{height - 2}"'
                        f' fill="{COLOURS[what]}"/>'
                    )
    bottom = 50 + len(spans) * (len(ROWS) * height + 24)
    lines += [
        f'<text x="4" y="20">{title}</text>',
        f'<text x="{left}" y="{bottom}">0</text>',
        f'<text x="{left + width}" y="{bottom}" text-anchor="end">{end:.3g} ms</text>',
    ]
    size = f'width="{left + width + 10}" height="{bottom + 16}"'
    style = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join([head, f"<title>{title}</title>", *lines, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8192, help="of a part")
    parser.add_argument("--columns", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--devices", type=int, help="the most; else all")
    parser.add_argument("--timeline", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.devices:  # only the software driver reads it
        os.environ.setdefault("CUDADRV_SOFTWARE", f"devices={options.devices}")
    most = options.devices or len(cu.Device.all())
    run = Namespace(rows=options.rows, columns=options.columns, steps=options.steps)
    found = {}
    for size in [2**n for n in range(most.bit_length()) if 2**n <= most]:
        seconds = [stencil.with_devices(run, size)[0] for _ in range(options.repeat)]
        found[size] = statistics.median(seconds) / options.steps
    print(f"{options.rows} x {options.columns} for each of the devices ({cu.Device().name})")
    print("| devices | ms for a step | weak scaling |\n|---|---|---|")
    for size, step in found.items():
        print(f"| {size} | {step * 1e3:.4g} | {found[1] / step:.3f} |")
    spans = timeline(run, most)
    print(f"{overlap(spans):.0%} of the copies' time is within the inner kernels'")
    if options.timeline:
        title = f"{SHOWN} steps on {most} devices, {options.rows} x {options.columns} each"
        options.timeline.write_text(picture(spans, title), encoding="utf-8")
    if options.json:
        result = {"seconds a step": found, "overlap": overlap(spans), "spans in ms": spans}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
