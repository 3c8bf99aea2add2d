"""Pictures of graphs: as SVG, and in the language of Graphviz."""

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

INK, FAINT, PAPER, LINE = "#1f2328", "#6b7480", "#ffffff", "#d0d7de"
READ, WRITE = "#2b66b8", "#b3560b"
SANS = "Helvetica, Arial, sans-serif"
MONO = "Menlo, Consolas, DejaVu Sans Mono, monospace"

# Lengths in pixels.
CHARACTER = 7.0  # the width of a character if the font size is 11.5 pixels
ROW = 17  # the height of a line of text
PADDING = 10
MARGIN = 24
BETWEEN_ROWS = 44
BETWEEN_COLUMNS = 36

MOST_CHARACTERS = 46
MOST_BUFFERS = 6  # a box lists at most this many for each kind of borrow


class Used(NamedTuple):
    """A buffer that a step uses: a short name, and its full name in messages."""

    short: str
    full: str


class Step(NamedTuple):
    """An operation of a graph. ``stream`` is None for one that was not captured on a stream."""

    operation: str
    site: str
    stream: str | None
    reads: tuple[Used, ...]
    writes: tuple[Used, ...]


Edges = Sequence[tuple[int, int]]  # pairs of indices: the second step runs after the first


# ---- text ----


def printable(text: str) -> str:
    """The text with escape sequences for characters without a glyph or not allowed in XML."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def shortened(text: str) -> str:
    """The text, without its middle if it is long: its ends say the most."""
    text = printable(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    half = (MOST_CHARACTERS - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def width_of(text: str) -> float:
    """Estimate the width of a text. Some scripts have characters of double width."""
    return CHARACTER * sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def full_text(step: Step) -> list[str]:
    lines = [f"{step.operation} at {step.site}"]
    if step.stream is not None:
        lines.append(f"on {step.stream}")
    lines += [f"reads {each.full}" for each in step.reads]
    lines += [f"writes {each.full}" for each in step.writes]
    return [printable(line) for line in lines]


# ---- Graphviz ----


def quoted(text: str) -> str:
    """A string of the DOT language, in which labels may contain the entities of HTML."""
    for character, code in (("\\", r"\\"), ('"', r"\""), ("&", "&amp;")):
        text = text.replace(character, code)
    return text


def dot(label: str, steps: Sequence[Step], edges: Edges) -> str:
    """The graph in the language of Graphviz."""
    lines = [
        f'digraph "{quoted(printable(label))}" {{',
        '  node [shape=box, fontname="monospace", fontsize=10];',
    ]
    for number, step in enumerate(steps):
        text = "".join(rf"{quoted(line)}\l" for line in full_text(step))
        lines.append(f'  n{number} [label="{text}"];')
    lines += [f"  n{first} -> n{second};" for first, second in edges]
    return "\n".join([*lines, "}", ""])


# ---- layout ----
#
# Time runs down: a step stands one row below the lowest step that it waits for. Each stream has a
# column. If several steps of a stream stand in one row, it has more columns beside the first one.


class Box:
    """A step as a box: its texts, its size and its place."""

    def __init__(self, step: Step):
        self.title = shortened(step.operation)
        self.lines = [(shortened(step.site), FAINT)]
        for verb, color, used in (("reads", READ, step.reads), ("writes", WRITE, step.writes)):
            shown = [(shortened(f"{verb} {each.short}"), color) for each in used[:MOST_BUFFERS]]
            more = len(used) - len(shown)
            self.lines += shown + ([(f"{verb} {more} more", color)] if more else [])
        texts = [self.title, *(text for text, _ in self.lines)]
        self.width = max(map(width_of, texts)) + 2 * PADDING
        self.height = ROW * len(texts) + 2 * PADDING - 4
        self.row = self.column = 0
        self.top = 0.0
        self.center = 0.0

    @property
    def bottom(self) -> float:
        return self.top + self.height


Column = tuple[str | None, int]  # a stream, and the number of the column among the stream's columns


class Layout:
    """The places of all boxes of a graph."""

    def __init__(self, steps: Sequence[Step], edges: Edges):
        self.boxes = [Box(step) for step in steps]
        self.before: list[list[int]] = [[] for _ in steps]
        self.after: list[list[int]] = [[] for _ in steps]
        for first, second in edges:
            self.before[second].append(first)
            self.after[first].append(second)
        self.set_rows()
        self.columns = self.set_columns(steps)
        self.centers, self.width = self.set_centers()
        self.tops, self.bottoms = self.set_tops()

    def set_rows(self) -> None:
        waits = [len(each) for each in self.before]
        free = [number for number, count in enumerate(waits) if not count]
        for number in free:  # the loop appends to this list
            row = self.boxes[number].row + 1
            for other in self.after[number]:
                self.boxes[other].row = max(self.boxes[other].row, row)
                waits[other] -= 1
                if not waits[other]:
                    free.append(other)

    def set_columns(self, steps: Sequence[Step]) -> list[Column]:
        """Choose a column for each box, and return the columns from left to right."""
        chosen: dict[int, Column] = {}
        taken: set[tuple[Column, int]] = set()
        streams: dict[str | None, int] = {}
        for number in sorted(range(len(steps)), key=lambda each: self.boxes[each].row):
            row, stream = self.boxes[number].row, steps[number].stream
            near = [chosen[other][1] for other in self.before[number] if chosen[other][0] == stream]
            place = near[0] if near and ((stream, near[0]), row) not in taken else 0
            while ((stream, place), row) in taken:
                place += 1
            chosen[number] = stream, place
            taken.add((chosen[number], row))
        for step in steps:
            streams.setdefault(step.stream, len(streams))
        columns = sorted(set(chosen.values()), key=lambda each: (streams[each[0]], each[1]))
        index = {column: number for number, column in enumerate(columns)}
        self.rows_of: list[list[int]] = [[] for _ in columns]
        for number, box in enumerate(self.boxes):
            box.column = index[chosen[number]]
            self.rows_of[box.column].append(box.row)
        for rows in self.rows_of:
            rows.sort()
        return columns

    def set_centers(self) -> tuple[list[float], float]:
        widths = [
            width_of(shortened(stream or "")) * 1.1 if place == 0 else 0.0
            for stream, place in self.columns
        ]
        for box in self.boxes:
            widths[box.column] = max(widths[box.column], box.width)
        centers = []
        left: float = MARGIN
        for width in widths:
            centers.append(left + width / 2)
            left += width + BETWEEN_COLUMNS
        for box in self.boxes:
            box.center = centers[box.column]
            box.width = widths[box.column]  # boxes of a column are equally wide
        return centers, max(left - BETWEEN_COLUMNS, 2 * MARGIN) + MARGIN

    def set_tops(self) -> tuple[list[float], list[float]]:
        heights = [0.0] * (1 + max((box.row for box in self.boxes), default=-1))
        for box in self.boxes:
            heights[box.row] = max(heights[box.row], box.height)
        tops, bottoms = [], []
        top = 2 * MARGIN + 2.5 * ROW  # below the names of the graph and of the streams
        for height in heights:
            tops.append(top)
            bottoms.append(top + height)
            top += height + BETWEEN_ROWS
        for box in self.boxes:
            box.top = tops[box.row]
        return tops, bottoms

    def is_free(self, column: int, first: int, last: int) -> bool:
        """Whether a column has no box in the rows between `first` and `last`."""
        rows = self.rows_of[column]
        return bisect_right(rows, first) == bisect_right(rows, last - 1)

    def way(self, first: Box, second: Box) -> float | None:
        """Return the x at which an edge passes the rows between two boxes, or None without rows."""
        if second.row == first.row + 1:
            return None
        for box in (second, first):
            if self.is_free(box.column, first.row, second.row):
                return box.center
        return second.center - second.width / 2 - BETWEEN_COLUMNS / 2


# ---- SVG ----


def rounded(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, *, color: str = INK, more: str = "") -> str:
    return f"<text x='{rounded(x)}' y='{rounded(y)}' fill='{color}'{more}>{escape(words)}</text>"


def shapes_of(box: Box, step: Step) -> list[str]:
    left = box.center - box.width / 2
    shapes = [
        "<g>",
        f"<title>{escape(chr(10).join(full_text(step)))}</title>",
        f"<rect x='{rounded(left)}' y='{rounded(box.top)}' width='{rounded(box.width)}'"
        f" height='{rounded(box.height)}' rx='5' fill='#f6f8fa' stroke='{FAINT}'/>",
        text(left + PADDING, box.top + ROW + 2, box.title, more=" font-weight='bold'"),
    ]
    y = box.top + ROW + 2
    for words, color in box.lines:
        y += ROW
        shapes.append(text(left + PADDING, y, words, color=color))
    return [*shapes, "</g>"]


def ends_of(layout: Layout, other_ends: list[list[int]]) -> dict[tuple[int, int], float]:
    """Return the x at which each edge meets its box. The edges of a box are side by side; an edge
    to a box of the same column is in the middle.
    """
    found = {}
    for here, others in enumerate(other_ends):
        box = layout.boxes[here]
        step = min(16.0, 0.45 * box.width / max(len(others), 1))
        ordered = sorted(others, key=lambda each: (layout.boxes[each].center, each))
        columns = [layout.boxes[each].column for each in ordered]
        own = box.column in columns
        middle = columns.index(box.column) if own else (len(others) - 1) / 2
        for place, other in enumerate(ordered):
            found[here, other] = box.center + (place - middle) * step
    return found


def curve(x: float, y: float, bottom: float) -> str:
    """Draw a line down to height `y`, then a curve to `x` at the bottom of a gap."""
    middle = rounded((y + bottom) / 2)
    return f"V{rounded(y)}C{{}} {middle} {rounded(x)} {middle} {rounded(x)} {rounded(bottom)}"


def edge_shapes(layout: Layout, edges: Edges) -> list[str]:
    starts, ends = ends_of(layout, layout.after), ends_of(layout, layout.before)
    shapes = []
    for one, two in edges:
        first, second = layout.boxes[one], layout.boxes[two]
        x, end, down = starts[one, two], ends[two, one], layout.way(first, second)
        path = f"M{rounded(x)} {rounded(first.bottom)}"
        points = [(end, layout.bottoms[second.row - 1], second.top - 7)]
        if down is not None:
            # Move the line sideways, so that lines through one column do not overlap.
            down += end - second.center if down == second.center else 0
            down += x - first.center if down == first.center else 0
            points.insert(0, (down, layout.bottoms[first.row], layout.tops[first.row + 1]))
        for target, top, bottom in points:
            path += curve(target, top, bottom).format(rounded(x))
            x = target
        shapes.append(f"<path d='{path}'/>")
        tip = rounded(second.top)
        shapes.append(f"<path d='M{rounded(end)} {tip}l-4.5 -8h9z' fill='{FAINT}' stroke='none'/>")
    return shapes


def svg(label: str, steps: Sequence[Step], edges: Edges) -> str:
    """The graph as a picture. It has a background, so that light and dark pages can show it."""
    layout = Layout(steps, edges)
    title = shortened(label)
    named = [stream for stream, place in layout.columns if stream is not None and place == 0]
    told = [f"{label}: {len(steps)} operations"] + [f"on {each}" for each in named]
    width = rounded(max(layout.width, width_of(title) * 1.2 + 2 * MARGIN))
    height = rounded((layout.bottoms[-1] if layout.bottoms else 2 * MARGIN) + MARGIN)
    shapes = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}'"
        f" height='{height}' role='img' font-family='{MONO}' font-size='11.5'>",
        f"<title>{escape(printable(label))}</title>",
        f"<desc>{escape(printable(', '.join(told)))}</desc>",
        f"<rect width='{width}' height='{height}' rx='8' fill='{PAPER}'/>",
        text(MARGIN, MARGIN + 8, title, more=f" font-family='{SANS}' font-size='15'"),
    ]
    for center, (stream, place) in zip(layout.centers, layout.columns, strict=True):
        if stream is not None and place == 0:
            more = f" font-family='{SANS}' font-size='13' font-weight='bold' text-anchor='middle'"
            y = MARGIN + 2.5 * ROW
            shapes.append(text(center, y, shortened(stream), more=more))
    shapes += [f"<g fill='none' stroke='{FAINT}' stroke-width='1.4'>"]
    shapes += [*edge_shapes(layout, edges), "</g>"]
    for box, step in zip(layout.boxes, steps, strict=True):
        shapes += shapes_of(box, step)
    return "\n".join([*shapes, "</svg>", ""])
