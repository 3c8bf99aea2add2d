"""The picture of a run that fails in one order of its work: lanes, as SVG."""

from collections.abc import Sequence
from html import escape
from typing import Any

from cudadrv._explore import Explored, Step
from cudadrv._explore_text import (
    HOST,
    Pair,
    advice,
    missing_order,
    shown_of,
    title_in,
    words_for,
)
from cudadrv._graph_picture import FAINT, INK, LINE, MONO, PAPER, SANS, WRITE, printable, width_of

MISSING = "#1a7f37"

# Lengths in pixels.
MARGIN, LANE, COLUMN, ROW, RADIUS = 24, 44, 40, 18, 13


def picture_of(explored: Explored[Any]) -> str:
    """Draw the run that fails; if there is none, only say so."""
    if explored.failure is None:
        return picture([], None, explored.summary())
    return picture(explored.failure.steps, missing_order(explored.failure), explored.summary())


def picture(steps: Sequence[Step], pair: Pair | None, title: str) -> str:
    """Draw a run: a lane for the host and for each stream, time to the right.

    An arrow leads from the step of ``pair`` that should come first to the other one.
    """
    shown = shown_of(list(steps), pair)
    actors = sorted({steps[at].actor for at in shown})
    titles = {actor: title_in(list(steps), actor) for actor in actors}
    texts = [f"{number}  {words_for(steps[at])}" for number, at in enumerate(shown, 1)]
    if pair is not None:
        texts.append("- - -  the order that is missing")
    left = MARGIN + max(map(width_of, titles.values()), default=0) + 2 * RADIUS
    tops = {actor: MARGIN + 46 + LANE * row for row, actor in enumerate(actors)}
    places = {
        at: (left + COLUMN * column + RADIUS, tops[steps[at].actor])
        for column, at in enumerate(shown)
    }
    right = left + COLUMN * len(shown)
    list_top = MARGIN + 46 + LANE * len(actors)
    width = max([right, *(MARGIN + width_of(text) for text in (*texts, title))]) + MARGIN
    height = list_top + ROW * len(texts) + MARGIN
    shapes = [_text(MARGIN, MARGIN + 10, title, bold=True)]
    for actor in actors:
        shapes.append(_text(MARGIN, tops[actor] + 4, titles[actor], bold=actor == HOST))
        shapes.append(
            f'<path d="M{left:g} {tops[actor]:g} H{right:g}" stroke="{LINE}" stroke-width="1.4"/>'
        )
    description = "A run: a lane for the host and for each stream, with time to the right."
    if pair is not None:
        description = printable(" ".join(advice(list(steps), pair).split()))
        shapes.append(_missing(places[pair.later], places[pair.earlier]))
    for number, at in enumerate(shown, 1):
        shapes.append(_step(number, places[at], words_for(steps[at]), marked=at in (pair or ())))
    shapes += [
        _text(MARGIN, list_top + ROW * row, text, mono=True) for row, text in enumerate(texts)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}" role="img">\n'
        f"<title>{escape(printable(title))}</title>\n<desc>{escape(description)}</desc>\n"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>\n'
    )
    return head + "\n".join(shapes) + "\n</svg>\n"


def _text(x: float, y: float, words: str, *, bold: bool = False, mono: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{MONO if mono else SANS}" font-size="11.5"'
        f' fill="{INK}"{weight} xml:space="preserve">{escape(printable(words))}</text>'
    )


def _step(number: int, place: tuple[float, float], words: str, *, marked: bool) -> str:
    x, y = place
    color = WRITE if marked else FAINT
    return (
        f"<g><title>{escape(printable(words))}</title>"
        f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="{PAPER}" stroke="{color}"'
        f' stroke-width="{2.4 if marked else 1.4}"/>'
        f'<text x="{x:g}" y="{y + 4:g}" font-family="{SANS}" font-size="11.5" fill="{INK}"'
        f' text-anchor="middle">{number}</text></g>'
    )


def _missing(first: tuple[float, float], second: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = first, second
    down = 1 if y2 > y1 else -1
    tip = y2 - down * (RADIUS + 2)
    return (
        f'<path d="M{x1:g} {y1 + down * RADIUS:g} L{x2:g} {tip - 6 * down:g}" stroke="{MISSING}"'
        f' stroke-width="1.8" stroke-dasharray="5 4" fill="none"/>'
        f'<path d="M{x2 - 5:g} {tip - 8 * down:g} h10 L{x2:g} {tip:g} z" fill="{MISSING}"/>'
    )
