"""The picture of a trace, as SVG: threads, streams and buffers as lanes, with time to the right."""

from collections.abc import Sequence
from html import escape

from cudadrv._graph_picture import FAINT, INK, LINE, PAPER, READ, SANS, WRITE, printable, width_of
from cudadrv._trace_file import BORROWS, FLIGHT, RUNS, Slice, TraceFile
from cudadrv._trace_table import WAITS, duration

# Lengths in pixels.
WIDTH, MARGIN, ROW, BAR, TEXT = 960, 20, 22, 16, 11
MOST_SLICES = 2000  # of a picture; of longer traces the first ones are drawn
MOST_LANES = 40
COLORS = {FLIGHT: "#dbe9f9", RUNS: "#8db8e8", BORROWS: "#f6e2b3"}

Lane = tuple[str, list[Slice]]


def lanes_of(trace: TraceFile, slices: Sequence[Slice]) -> list[Lane]:
    """Sort slices into lanes: threads first, then streams, then buffers. No two of a lane overlap.

    On a thread, calls of the driver inside an operation's call are left out.
    """
    found: dict[tuple[int, str, int, str], list[list[Slice]]] = {}
    for each in sorted(slices, key=lambda each: each.begin):
        if each.track.is_thread:
            key = 0, each.track.name, each.track.uuid, ""
        elif trace.group_of(each.track) == "streams":
            key = 1, trace.owner(each.track), each.track.parent, each.track.name
        elif trace.group_of(each.track) == "buffers":
            key = 2, trace.owner(each.track), each.track.parent, ""
        else:
            continue
        rows = found.setdefault(key, [])
        if key[0] == 0 and rows and each.begin < (rows[0][-1].end or each.begin):
            continue
        for row in rows:
            last = row[-1].end
            if last is not None and last <= each.begin:
                row.append(each)
                break
        else:
            rows.append([each])
    lanes: list[Lane] = []
    for (_, name, _, kind), rows in sorted(found.items(), key=lambda item: item[0]):
        title = f"{name}: {'in flight' if kind == FLIGHT else kind}" if kind else name
        lanes += [(title if not number else "", row) for number, row in enumerate(rows)]
    return lanes[:MOST_LANES]


def picture(trace: TraceFile, title: str = "") -> str:
    """Draw a trace. Slices have their notes as tooltips, and refusals are lines with their text."""
    drawn = [each for each in trace.slices if each.end is not None][:MOST_SLICES]
    lanes = lanes_of(trace, drawn)
    shown = [each for _, row in lanes for each in row]
    refusals = [each for each in trace.instants if each.category == "refusal"]
    first = min((each.begin for each in (*shown, *refusals)), default=0)
    last = max([first + 1, *(each.end or 0 for each in shown), *(each.begin for each in refusals)])
    left = MARGIN + min(420.0, max((width_of(name) for name, _ in lanes), default=0)) + 10
    scale = (WIDTH - left - MARGIN) / (last - first)
    top = MARGIN + 34
    height = top + ROW * len(lanes) + (ROW if refusals else 0) + MARGIN
    shapes = [
        _text(MARGIN, MARGIN + 8, title or f"{duration(last - first)} from left to right", True)
    ]
    for number, (name, row) in enumerate(lanes):
        y = top + ROW * number
        shapes.append(_text(MARGIN, y + BAR - 4, _fitting(name, left - MARGIN - 10), False))
        if name:
            shapes.append(
                f'<path d="M{MARGIN} {y - 3:g} H{WIDTH - MARGIN}" stroke="{LINE}" opacity="0.5"/>'
            )
        shapes += [_bar(each, left + scale * (each.begin - first), y, scale) for each in row]
    bottom = top + ROW * len(lanes)
    for each in refusals:
        shapes.append(_refusal(each, left + scale * (each.begin - first), top, bottom))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}"'
        f' width="{WIDTH}" height="{height:g}" role="img">\n'
        f"<title>{escape(printable(title or 'A trace'))}</title>\n"
        f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="{PAPER}"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _fitting(text: str, room: float) -> str:
    """Shorten a text until it fits."""
    text = printable(text)
    whole = len(text)
    while text and width_of(text) > room:
        text = text[: -1 - (len(text) < whole)]
        text += "…" if text else ""
        whole = len(text) + 1
    return text


def _text(x: float, y: float, words: str, bold: bool) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{SANS}" font-size="{TEXT}" fill="{INK}"{weight}>'
        f"{escape(printable(words))}</text>"
    )


def _about(each: Slice) -> str:
    notes = "".join(f"\n{key}: {value}" for key, value in each.notes.items())
    return escape(f"{each.name}, {duration(each.took)}{notes}")


def _color(each: Slice) -> str:
    if each.track.is_thread:
        return "#e4e4e4" if each.name in WAITS else "#cfe3d0"
    if each.track.name == BORROWS:
        return "#f3c9c4" if each.notes.get("use") == "write" else "#cfe0f5"
    return COLORS.get(each.track.name, "#eeeeee")


def _bar(each: Slice, x: float, y: float, scale: float) -> str:
    width = max(1.0, scale * each.took)
    edge = {"write": WRITE, "read": READ}.get(str(each.notes.get("use")), FAINT)
    words = _fitting(each.name, width - 6)
    text = "" if len(words) < 3 else _text(x + 3, y + BAR - 4, words, False)
    return (
        f"<g><title>{_about(each)}</title>"
        f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{BAR}" rx="2"'
        f' fill="{_color(each)}" stroke="{edge}" stroke-width="0.6"/>{text}</g>'
    )


def _refusal(each: Slice, x: float, top: float, bottom: float) -> str:
    return (
        f"<g><title>{escape(str(each.notes.get('text', each.name)))}</title>"
        f'<path d="M{x:.2f} {top - 4:g} V{bottom:g}" stroke="{WRITE}" stroke-width="1.6"/>'
        f'<text x="{x:.2f}" y="{bottom + 12:g}" font-family="{SANS}" font-size="{TEXT}"'
        f' fill="{WRITE}" text-anchor="end">refused: {escape(each.name)}</text></g>'
    )
