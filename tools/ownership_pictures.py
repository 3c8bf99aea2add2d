"""The pictures of the guide's pages: `python tools/ownership_pictures.py` makes them.

A test compares the files in docs/pictures/ with what this command would write. In all pictures,
time runs to the right: in the order of the program's calls, or as the device works. Each picture
has a background, so that light and dark pages can show it. The pictures of graphs are what
`Graph.to_svg` returns for the graphs of docs/graphs.md, on the software driver. That of the missing
wait is what `--cuda-svg` draws of a test of examples/testing_project.
"""

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH = 780
LEFT = 120  # where the lanes begin, beside their names
RIGHT = WIDTH - 24

INK, FAINT, PAPER = "#1f2328", "#6b7480", "#ffffff"
FILLS = {
    "read": ("#d6e6ff", "#2b66b8"),
    "write": ("#ffe0c2", "#b3560b"),
    "wait": ("#eceff2", "#6b7480"),
    "free": ("#ffffff", "#6b7480"),
    "view": ("#e6dcfa", "#6a3fb5"),
}
GOOD, BAD = "#1a7f37", "#c62828"
SANS = "font-family='Helvetica, Arial, sans-serif'"
MONO = "font-family='Menlo, Consolas, DejaVu Sans Mono, monospace'"


class Picture:
    """Shapes, in the order in which they are drawn."""

    def __init__(self, name: str, title: str, description: str, height: int):
        self.name, self.title, self.description, self.height = name, title, description, height
        self.shapes: list[str] = []

    def text(self, x, y, words, *, anchor="start", size=13, color=INK, code=False, bold=False):
        family = MONO if code else SANS
        weight = " font-weight='bold'" if bold else ""
        self.shapes.append(
            f"<text x='{x}' y='{y}' {family} font-size='{size}' fill='{color}'"
            f" text-anchor='{anchor}'{weight}>{escape(words)}</text>"
        )

    def code(self, x, y, words, **options):
        self.text(x, y, words, size=12, code=True, **options)

    def line(self, x1, y1, x2, y2, *, color=FAINT, width=1.2, dashed=False):
        dashes = " stroke-dasharray='4 4'" if dashed else ""
        self.shapes.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{color}'"
            f" stroke-width='{width}'{dashes}/>"
        )

    def lane(self, y, name, *, code=False):
        """Draw a horizontal line with a name before it."""
        self.text(LEFT - 14, y + 4, name, anchor="end", bold=not code, code=code)
        self.line(LEFT, y, RIGHT, y)

    def bar(self, x1, x2, y, kind, words="", *, height=28, code=False, dashed=False):
        """Draw a box around a lane, with words in its middle."""
        fill, stroke = FILLS[kind]
        dashes = " stroke-dasharray='4 3'" if dashed else ""
        self.shapes.append(
            f"<rect x='{x1}' y='{y - height / 2:g}' width='{x2 - x1}' height='{height}' rx='4'"
            f" fill='{fill}' stroke='{stroke}' stroke-width='1.4'{dashes}/>"
        )
        size = 12 if code else 13
        self.text((x1 + x2) / 2, y + 4, words, anchor="middle", size=size, code=code)

    def dot(self, x, y, *, color=INK):
        self.shapes.append(f"<circle cx='{x}' cy='{y}' r='5' fill='{color}'/>")

    def arrow(self, x1, y1, x2, y2):
        """Draw a line from a point down or up to another one."""
        tip = 8 if y2 > y1 else -8
        self.line(x1, y1, x2, y2 - tip, color=INK, width=1.6)
        self.shapes.append(f"<path d='M{x2 - 5} {y2 - tip} h10 L{x2} {y2} z' fill='{INK}'/>")

    def verdict(self, x, y, good, words, *, anchor="middle"):
        """Draw a sign that a call is accepted or refused, which can be read without colours."""
        color, sign = (GOOD, "✓") if good else (BAD, "✗")
        self.text(x, y, f"{sign} {words}", anchor=anchor, color=color, bold=True)

    def svg(self) -> str:
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {self.height}'"
            f" width='{WIDTH}' height='{self.height}' role='img' aria-labelledby='title desc'>\n"
            f"<title id='title'>{escape(self.title)}</title>\n"
            f"<desc id='desc'>{escape(self.description)}</desc>\n"
            f"<rect width='{WIDTH}' height='{self.height}' rx='8' fill='{PAPER}'/>\n"
        )
        return head + "\n".join(self.shapes) + "\n</svg>\n"


def borrow() -> Picture:
    picture = Picture(
        "borrow",
        "A borrow lasts until the program knows that the work is complete",
        "A copy from frames is queued on a stream, waits there, runs and ends. frames is borrowed "
        "from the call that queues the copy until token.wait() has returned. Writing to frames is "
        "refused before the copy has run, and also after it has ended, because the program does "
        "not know that yet. After token.wait() it is accepted.",
        264,
    )
    queued, runs, ends, known = LEFT + 20, 270, 400, 590
    host, stream, buffer, bottom = 56, 132, 200, 244
    for x, y, words in (
        (queued, host, "queued"),
        (runs, stream, "runs"),
        (ends, stream, "has ended"),
        (known, host, "known"),
    ):
        picture.line(x, y, x, bottom - 16, dashed=True)
        picture.text(x, bottom, words, anchor="middle", bold=y == host)
    picture.lane(host, "host")
    picture.lane(stream, "stream")
    picture.lane(buffer, "frames", code=True)
    picture.code(queued - 5, host - 22, "token = work.copy_from_async(frames, stream)")
    picture.code(known, host - 22, "token.wait()", anchor="middle")
    for x, known_by_then in ((335, False), (480, False), (690, True)):
        picture.dot(x, host, color=GOOD if known_by_then else BAD)
        picture.code(x, host + 22, "frames[0] = 1", anchor="middle")
        picture.verdict(x, host + 40, known_by_then, "accepted" if known_by_then else "refused")
    picture.dot(queued, host)
    picture.dot(known, host)
    picture.bar(queued, runs, stream, "wait", "in the queue")
    picture.bar(runs, ends, stream, "read", "copies")
    picture.text(ends + 10, stream - 8, "its end changes nothing", size=12, color=FAINT)
    picture.bar(queued, known, buffer, "read", "borrowed: read by stream")
    picture.bar(known, RIGHT, buffer, "free", "free")
    return picture


def event() -> Picture:
    picture = Picture(
        "event",
        "An event wait takes the event as it is at the call",
        "A stream writes A, records an event, writes B and records the event again. Another "
        "stream waits for the event between the two records: it is then after the write of A and "
        "not after that of B, also when the event has been recorded again. A second wait, made "
        "after the second record, puts it after both.",
        260,
    )
    above, below = 84, 184
    picture.lane(above, "stream")
    picture.lane(below, "other")
    picture.bar(LEFT + 10, 220, above, "write", "writes A")
    picture.dot(250, above)
    picture.code(250, above - 26, "stream.record(event)", anchor="middle")
    picture.arrow(250, above + 6, 280, below - 8)
    picture.dot(280, below)
    picture.code(270, below + 30, "other.wait(event)", anchor="middle")
    picture.bar(390, 480, above, "write", "writes B")
    picture.dot(510, above)
    picture.code(510, above - 26, "stream.record(event)", anchor="middle")
    picture.arrow(510, above + 6, 580, below - 8)
    picture.dot(580, below)
    picture.code(580, below + 30, "other.wait(event)", anchor="middle")
    picture.bar(310, 550, below, "read", "after A, and not after B")
    picture.bar(610, RIGHT, below, "read", "after A and B")
    picture.verdict(310, below - 24, True, "reads A", anchor="start")
    picture.verdict(400, below - 24, False, "reads B", anchor="start")
    picture.verdict(620, below - 24, True, "reads A, B", anchor="start")
    picture.text(
        LEFT, 246, "Recording it again changes nothing for the wait that was made before.", size=12
    )
    return picture


def signal() -> Picture:
    picture = Picture(
        "signal",
        "A wait for a signal is for the first set that reaches its number",
        "A stream writes A, sets a signal to 1, writes B and sets the signal to 2. Another stream "
        "waits for 1: it is then after the write of A and not after that of B. After a wait for 2 "
        "it is after both.",
        260,
    )
    above, below = 84, 184
    picture.lane(above, "stream")
    picture.lane(below, "other")
    picture.bar(LEFT + 10, 220, above, "write", "writes A")
    picture.dot(250, above)
    picture.code(250, above - 26, "stream.set(signal, 1)", anchor="middle")
    picture.arrow(250, above + 6, 280, below - 8)
    picture.dot(280, below)
    picture.code(270, below + 30, "other.wait(signal, 1)", anchor="middle")
    picture.bar(390, 480, above, "write", "writes B")
    picture.dot(510, above)
    picture.code(510, above - 26, "stream.set(signal, 2)", anchor="middle")
    picture.arrow(510, above + 6, 580, below - 8)
    picture.dot(580, below)
    picture.code(580, below + 30, "other.wait(signal, 2)", anchor="middle")
    picture.bar(310, 550, below, "read", "after A, and not after B")
    picture.bar(610, RIGHT, below, "read", "after A and B")
    picture.verdict(310, below - 24, True, "reads A", anchor="start")
    picture.verdict(400, below - 24, False, "reads B", anchor="start")
    picture.verdict(620, below - 24, True, "reads A, B", anchor="start")
    picture.text(
        LEFT, 246, "A set that is not queued yet cannot be waited for: SignalError.", size=12
    )
    return picture


def readers() -> Picture:
    picture = Picture(
        "readers",
        "A writer must be ordered after every reader",
        "Two streams read the same buffer at the same time. A third stream waits for the first of "
        "them and then writes: refused, because nothing orders it after the second reader. After "
        "it has waited for the second reader too, the write is accepted.",
        232,
    )
    first, writer, second = 44, 120, 196
    picture.lane(first, "stream")
    picture.lane(writer, "writer")
    picture.lane(second, "other")
    picture.bar(LEFT + 10, 290, first, "read", "reads work")
    picture.bar(LEFT + 40, 530, second, "read", "reads work")
    picture.arrow(290, first + 14, 320, writer - 8)
    picture.dot(320, writer)
    picture.code(320, writer + 26, "writer.wait(stream)", anchor="middle")
    picture.bar(390, 490, writer, "write", "writes work", dashed=True)
    picture.verdict(440, writer - 22, False, "refused")
    picture.arrow(530, second - 14, 560, writer + 8)
    picture.dot(560, writer)
    picture.code(560, writer - 20, "writer.wait(other)", anchor="middle")
    picture.bar(600, 720, writer, "write", "writes work")
    picture.verdict(660, writer + 32, True, "accepted")
    return picture


def ranges() -> Picture:
    picture = Picture(
        "ranges",
        "Each range of a buffer has borrows of its own",
        "A buffer of 4096 items. Items 0 to 1024 are written by stream; 1024 to 2048 are read by "
        "stream and by other; 2048 to 3072 are in a with block of the host; 3072 to 4096 are free. "
        "A fill of the last part is accepted, the host may read the second part, a fill across the "
        "first border is refused, and so is a fill of the whole.",
        300,
    )
    left, step, row = 40, 175, 76
    picture.code(left, 34, "buffer")
    parts = (
        ("write", "written by stream"),
        ("read", "read by stream, other"),
        ("view", "host: with … .write()"),
        ("free", "free"),
    )
    for i, (kind, words) in enumerate(parts):
        picture.bar(left + i * step, left + (i + 1) * step, row, kind, words, height=44)
    for i in range(5):
        anchor = "start" if i == 0 else "end" if i == 4 else "middle"
        picture.code(left + i * step, row + 40, str(1024 * i), anchor=anchor)
    requests = (
        (3, 4, True, "buffer[3072:].fill_async(0, other)", "write"),
        (1, 2, True, "buffer[1024:2048].to_numpy()", "read"),
        (0.5, 1.5, False, "buffer[512:1536].fill_async(0, other)", "write"),
        (0, 4, False, "buffer.fill_async(0, stream)", "write"),
    )
    for i, (start, stop, good, words, kind) in enumerate(requests):
        y = 144 + i * 38
        x1, x2 = left + start * step, left + stop * step
        picture.bar(x1, x2, y, kind, height=10)
        beside = stop <= 2
        x, anchor = (x2 + 12, "start") if beside else (x1 - 12, "end")
        if stop - start == 4:
            x, y, anchor = left, y + 24, "start"
        else:
            y += 4
        sign = "✓" if good else "✗"
        picture.text(
            x, y, f"{sign} {words}", anchor=anchor, size=12, code=True, color=GOOD if good else BAD
        )
    return picture


def boxes() -> Picture:
    picture = Picture(
        "boxes",
        "A box borrows the bytes of its rows",
        "An image of 480 rows and 640 columns. Its left half is written by stream, its right half "
        "by other. A fill of the columns 340 to 400 on other is accepted, because other has the "
        "right half. A fill of the columns 260 to 380 on other is refused: it touches the left "
        "half, which stream may be writing.",
        252,
    )
    left, top, width, rows, pitch = 40, 44, 440, 8, 22
    half = left + width / 2
    picture.code(left, 30, "image")
    for row in range(rows):
        y = top + row * pitch + 9
        picture.bar(left, int(half), y, "write", "written by stream" if row == 0 else "", height=16)
        picture.bar(
            int(half), left + width, y, "read", "written by other" if row == 0 else "", height=16
        )
    for column, anchor in ((0, "start"), (320, "middle"), (640, "end")):
        x = left + column * width / 640
        picture.code(x, top + rows * pitch + 18, str(column), anchor=anchor)
    for first, last, start, stop, good, words in (
        (340, 400, 2, 4, True, "image[120:240, 340:400].fill_async(0, other)"),
        (260, 380, 5, 7, False, "image[300:420, 260:380].fill_async(0, other)"),
    ):
        x1, x2 = left + first * width / 640, left + last * width / 640
        y1, y2 = top + start * pitch - 2, top + stop * pitch - 2
        color = GOOD if good else BAD
        for line in ((x1, y1, x2, y1), (x1, y2, x2, y2), (x1, y1, x1, y2), (x2, y1, x2, y2)):
            picture.line(*line, color=color, width=2.4)
        picture.text(
            left + width + 14, (y1 + y2) / 2 - 4, "✓" if good else "✗", color=color, bold=True
        )
        name, call = words.split(".", 1)
        picture.code(left + width + 32, (y1 + y2) / 2 - 4, name, color=color)
        picture.code(left + width + 32, (y1 + y2) / 2 + 12, "." + call, color=color)
    return picture


def batch() -> Picture:
    picture = Picture(
        "batch",
        "A batch is one operation, and nothing orders its copies",
        "A stream runs a fill, then a batch of three copies side by side, then a launch. Copies "
        "of first, second and third go to the items 0 to 64, 64 to 128 and 128 to 192 of work. The "
        "batch begins after the fill, and the launch begins after all three copies. A batch in "
        "which first goes to the items 0 to 64 and second to the items 32 to 96 is refused: both "
        "would write the items 32 to 64.",
        262,
    )
    picture.lane(108, "stream", code=True)
    picture.bar(140, 230, 108, "write", "fill")
    for i, (source, kept) in enumerate((("first", 0), ("second", 40), ("third", 20))):
        words = f"{source} → work[{64 * i}:{64 * i + 64}]"
        picture.bar(270 + kept // 2, 500 - kept, 66 + 42 * i, "read", words, code=True)
    for x in (250, 520):
        picture.line(x, 44, x, 172, dashed=True)
    picture.code(385, 34, "cu.copy_batch(…, stream)", anchor="middle")
    picture.bar(540, 650, 108, "write", "launch")
    picture.text(
        520, 192, "one token: complete when all three are", anchor="middle", size=12, color=FAINT
    )
    refused = "✗ cu.copy_batch([(work[:64], first), (work[32:96], second)], stream)"
    picture.code(40, 226, refused, color=BAD)
    picture.text(56, 246, "items 0 and 1 overlap: both write work[32:64]", size=12, color=BAD)
    return picture


def textures() -> Picture:
    picture = Picture(
        "textures",
        "The levels of an array are borrowed apart",
        "An array with three levels. Level 0 is being written on stream. On other, a launch with a "
        "texture over level 1 and a copy into level 2 are accepted. A launch with a texture over "
        "the whole array is refused, because it would read level 0.",
        196,
    )
    left, top = 40, 44
    picture.code(left, 30, "array, with mipmaps=3")
    picture.bar(left, left + 150, top + 60, "write", "level 0", height=120)
    picture.text(left + 75, top + 84, "written by stream", anchor="middle", size=12)
    picture.bar(left + 162, left + 237, top + 30, "read", "level 1", height=60)
    picture.bar(left + 249, left + 287, top + 15, "free", "2", height=30)
    picture.code(left + 330, 30, "on other:")
    for row, (good, call, why) in enumerate(
        (
            (True, "kernel.launch(..., cu.Texture(array.level(1)))", "reads level 1"),
            (False, "kernel.launch(..., cu.Texture(array))", "would read level 0, too"),
            (True, "array.level(2).copy_from_async(frames)", "writes level 2"),
        )
    ):
        y, color = top + 12 + 44 * row, GOOD if good else BAD
        picture.text(left + 330, y, "✓" if good else "✗", color=color, bold=True)
        picture.code(left + 350, y, call, color=color)
        picture.text(left + 350, y + 17, why, size=12)
    return picture


def view() -> Picture:
    picture = Picture(
        "view",
        "A view of the host lasts as long as anything can reach the memory through it",
        "Above: a with block over frames. GPU work that uses frames is refused inside it; at the "
        "end the array is emptied and frames is free. Below: a memoryview of the array is kept in "
        "a variable. Leaving the block raises BufferExportedError, frames stays borrowed, and GPU "
        "work is refused, until the memoryview is deleted.",
        330,
    )
    enter, leave, gone = LEFT + 20, 430, 620
    for top, escapes in ((66, False), (214, True)):
        host, buffer = top, top + 56
        picture.lane(host, "host")
        picture.lane(buffer, "frames", code=True)
        picture.code(enter, host - 26, "with frames.write() as array:")
        picture.dot(enter, host)
        picture.bar(
            enter + 12,
            leave - 12,
            host,
            "view",
            "first = memoryview(array)" if escapes else "array[:] = …",
            code=True,
        )
        picture.dot(leave, host, color=BAD if escapes else INK)
        end = gone if escapes else leave
        picture.bar(enter, end, buffer, "view", "borrowed by the host")
        picture.bar(end, RIGHT, buffer, "free", "free")
        picture.code(enter + 6, buffer + 32, "✗ work.copy_from_async(frames, stream)", color=BAD)
        picture.code((end + RIGHT) / 2, buffer + 32, "✓ the same", anchor="middle", color=GOOD)
        if escapes:
            picture.text(leave - 40, host - 26, "BufferExportedError", color=BAD, bold=True)
            picture.dot(gone, host)
            picture.code(gone, host - 26, "del first", anchor="middle")
        else:
            picture.text(leave - 40, host - 26, "the array is emptied")
    return picture


def legacy() -> Picture:
    picture = Picture(
        "legacy",
        "The legacy default stream is ordered with blocking streams only",
        "Work of a blocking stream runs before later work of the legacy default stream, which runs "
        "before later work of the blocking stream. A non-blocking stream is ordered with neither: "
        "its work may run at any time.",
        250,
    )
    blocking, default, other = 60, 130, 200
    picture.lane(blocking, "blocking")
    picture.lane(default, "legacy")
    picture.lane(other, "non-blocking")
    picture.bar(LEFT + 20, 280, blocking, "write", "A")
    picture.bar(310, 460, default, "write", "B, after A")
    picture.bar(490, 660, blocking, "write", "C, after B")
    picture.arrow(280, blocking + 14, 310, default - 15)
    picture.arrow(460, default - 14, 490, blocking + 15)
    picture.bar(
        LEFT + 20, 660, other, "wait", "any of its work: not ordered with A, B and C", dashed=True
    )
    picture.text(
        LEFT + 20, 238, "Stream() is non-blocking, unless it is asked for blocking=True.", size=12
    )
    return picture


def loan() -> Picture:
    picture = Picture(
        "loan",
        "A loan lasts from the first array that another library makes to the end of the last one",
        "torch.from_dlpack(work) lends work to a stream of PyTorch. While the tensor is there, a "
        "fill on another stream is refused, and PyTorch queues what it likes. Inside of with "
        "loan.back() the buffer is ours: the other stream waits for PyTorch's work and fills it, "
        "and at the end of the block PyTorch's stream waits for the fill. After del tensor the "
        "loan has ended: once the other stream has waited for PyTorch's stream, its fill is "
        "accepted.",
        326,
    )
    lent, back, again, end, waited = LEFT + 14, 300, 470, 600, 660
    host, theirs, other, buffer = 56, 132, 206, 272
    picture.lane(host, "host")
    picture.lane(theirs, "PyTorch's")
    picture.lane(other, "other")
    picture.lane(buffer, "work", code=True)
    for x in (lent, back, again, end):
        picture.line(x, host, x, buffer + 16, dashed=True)
    picture.dot(lent, host)
    picture.dot(end, host)
    picture.code(lent - 5, host - 22, "tensor = from_dlpack(loan)")
    picture.bar(back, again, host, "free", "with loan.back():", code=True)
    picture.code(end, host - 22, "del tensor", anchor="middle")
    picture.bar(lent + 12, back - 12, theirs, "read", "PyTorch's work")
    picture.arrow(back - 30, theirs + 14, back + 26, other - 15)
    picture.bar(back + 26, again - 40, other, "write", "our fill")
    picture.arrow(again - 40, other - 14, again + 12, theirs + 15)
    picture.bar(again + 12, end - 8, theirs, "read", "more of it")
    picture.arrow(end - 8, theirs + 14, waited, other - 15)
    picture.bar(waited, RIGHT - 6, other, "write", "our fill")
    picture.verdict((waited + RIGHT) / 2, other + 32, True, "accepted")
    picture.bar(lent + 24, back - 60, other, "write", "our fill", dashed=True)
    picture.verdict((lent + back) / 2 - 18, other + 32, False, "refused")
    picture.bar(lent, back, buffer, "view", "lent")
    picture.bar(back, again, buffer, "free", "ours, in order")
    picture.bar(again, end, buffer, "view", "lent")
    picture.bar(end, RIGHT, buffer, "free", "ours, in order")
    picture.text(
        LEFT, 316, "In order: what PyTorch has queued is one use of work, on its stream.", size=12
    )
    return picture


def give_back() -> Picture:
    picture = Picture(
        "give_back",
        "An import lasts until it is given back, or until the last use is known to be complete",
        "PyTorch writes a tensor on its stream. cu.from_dlpack(tensor, stream) lets our stream "
        "wait for that, and keeps the tensor alive. Our kernel runs on our stream. "
        "buffer.give_back(theirs) lets PyTorch's stream wait for the kernel, ends the buffer, and "
        "drops the tensor at once. Without it, the tensor lives until the kernel is known to be "
        "complete.",
        268,
    )
    taken, given = 300, 520
    theirs, ours, memory = 76, 150, 214
    picture.lane(theirs, "PyTorch's")
    picture.lane(ours, "stream")
    picture.lane(memory, "tensor", code=True)
    for x in (taken, given):
        picture.line(x, 44, x, memory + 16, dashed=True)
    picture.code(taken, 32, "buffer = cu.from_dlpack(tensor, stream)", anchor="middle")
    picture.code(given + 60, 32, "buffer.give_back(theirs)", anchor="middle")
    picture.bar(LEFT + 14, taken - 20, theirs, "write", "writes it")
    picture.arrow(taken - 20, theirs + 14, taken + 20, ours - 15)
    picture.bar(taken + 20, given - 20, ours, "write", "our kernel")
    picture.arrow(given - 20, ours - 14, given + 20, theirs + 15)
    picture.bar(given + 20, RIGHT - 6, theirs, "read", "uses it again")
    picture.code(given + 10, ours + 26, "✗ buffer.fill_async(0, stream)", color=BAD)
    picture.bar(LEFT, taken, memory, "free", "PyTorch's")
    picture.bar(taken, given, memory, "view", "in use: kept alive")
    picture.bar(given, RIGHT, memory, "free", "PyTorch's")
    words = "Without give_back it is kept alive until the kernel is known to be complete."
    picture.text(LEFT, 258, words, size=12)
    return picture


def faults() -> Picture:
    picture = Picture(
        "faults",
        "A prefetch moves pages before they are used",
        "Above, a kernel uses managed memory that is on the host: it stops at each fault until the "
        "driver has moved some pages, and then goes on for a moment. Below, a prefetch was queued "
        "on a second stream and moves all pages while another kernel runs. The kernel that uses "
        "them then runs without a stop, and ends earlier.",
        300,
    )
    alone, compute, mover = 76, 186, 252
    before = 300  # where the earlier kernel ends
    picture.text(LEFT, 34, "By faults", bold=True)
    picture.lane(alone, "stream")
    picture.bar(LEFT + 10, before, alone, "read", "the kernel before")
    step, busy = 62, 22
    for number in range(6):
        x = before + 10 + number * step
        picture.bar(x, x + step - busy, alone, "wait", "moves", code=True)
        picture.bar(x + step - busy, x + step, alone, "write")
    picture.text(before + 10, alone + 32, "each fault stops the kernel until its pages are there")
    picture.text(LEFT, 146, "After a prefetch on another stream", bold=True)
    picture.lane(compute, "stream")
    picture.bar(LEFT + 10, before, compute, "read", "the kernel before")
    picture.bar(before + 10, before + 10 + 6 * busy + 20, compute, "write", "the kernel")
    picture.lane(mover, "mover")
    picture.bar(LEFT + 30, before - 10, mover, "wait", "all pages move")
    picture.code(LEFT + 30, mover + 34, "buffer.prefetch(device, mover)")
    picture.arrow(before - 10, mover - 14, before + 6, compute + 15)
    picture.verdict(before + 175, compute - 8, True, "ends earlier", anchor="start")
    return picture


def pipeline() -> Picture:
    picture = Picture(
        "pipeline",
        "The stages of a pipeline work at the same time, each on another chunk",
        "Five lanes: the host fills page-locked memory, the device copies in, computes and copies "
        "out, and the host reads results. Chunk 0 goes through them one after the other. Chunk 1 "
        "follows one step behind, and so on. The host fills and reads in turn. In the fifth step "
        "all three stages of the device and the host are busy.",
        296,
    )
    stages = ("host fills", "copies in", "computes", "copies out", "host reads")
    kinds = ("view", "read", "write", "read", "view")
    width, first, chunks = 68, LEFT + 10, 5
    for at, (stage, kind) in enumerate(zip(stages, kinds, strict=True)):
        y = 44 + 46 * at
        picture.lane(y, stage)
        for chunk in range(chunks):
            x = first + (at + chunk) * width
            half = (width - 6) // 2  # the host does its two stages in turn
            start = x + half if stage == "host reads" else x
            end = x + half if stage == "host fills" else x + width - 6
            picture.bar(start, end, y, kind, str(chunk))
    x = first + 4 * width - 3
    for edge in (x, x + width):
        picture.line(edge, 20, edge, 250, dashed=True)
    picture.text(x + width / 2, 272, "all stages are busy", anchor="middle", bold=True)
    picture.text(RIGHT, 20, "the host fills and reads in turn", anchor="end", size=12)
    return picture


def race() -> Picture:
    picture = Picture(
        "race",
        "A race of two threads in a block, and its report",
        "Two threads of a block, and the time. Thread 0 writes tile[0] in line 4 and reads "
        "tile[63] in line 5. Thread 63 writes tile[63] in line 4 and reads tile[0] in line 5. A "
        "line leads from thread 0's write of tile[0] to thread 63's read: nothing orders these "
        "two. Between the lines 4 and 5, a dashed line says that __syncthreads() is missing "
        "there. Below is the report: the kernel, the memory, both accesses, and what is missing.",
        330,
    )
    first, second, border = 76, 166, 445
    picture.lane(first, "thread 0")
    picture.lane(second, "thread 63")
    picture.line(border, 40, border, 206, color=GOOD, width=1.6, dashed=True)
    picture.code(border, 30, "__syncthreads();", anchor="middle", color=GOOD)
    picture.text(border, 226, "is missing here", anchor="middle", size=12, color=GOOD)
    picture.bar(LEFT + 60, LEFT + 220, first, "write", "4: tile[0] = 0", code=True)
    picture.bar(520, 720, first, "read", "5: out[0] = tile[63]", code=True)
    picture.bar(LEFT + 60, LEFT + 220, second, "write", "4: tile[63] = 63", code=True)
    picture.bar(520, 720, second, "read", "5: out[63] = tile[0]", code=True)
    picture.line(LEFT + 220, first + 14, 520, second - 14, color=BAD, width=1.8)
    picture.dot(LEFT + 220, first + 14, color=BAD)
    picture.dot(520, second - 14, color=BAD)
    picture.verdict(border - 30, 146, False, "nothing orders these two", anchor="end")
    report = (
        "race in kernel 'turn_around' on bytes 0 to 4 of shared memory 'tile':",
        "read by thread (63, 0, 0) at turn.cu:5, and write by thread (0, 0, 0) at turn.cu:4.",
        "Nothing orders them: add __syncthreads() between turn.cu:4 and turn.cu:5",
    )
    for number, words in enumerate(report):
        picture.code(52 if number else 28, 264 + 22 * number, words, color=INK if number else BAD)
    return picture


PICTURES = (
    race,
    borrow,
    event,
    signal,
    readers,
    ranges,
    boxes,
    batch,
    textures,
    view,
    legacy,
    loan,
    give_back,
    faults,
    pipeline,
)


DRAW = """
import contextlib, io, sys
blocks = sys.stdin.read().split("\\0")
for block in blocks:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        exec(compile(block, sys.argv[1], "exec"))  # the page shows what some blocks raise
print(eval(sys.argv[2]).to_svg(), end="")
"""
# The pictures of graphs: the page, the graph, and a line of the block after which it is drawn.
GRAPHS = {
    "graph": ("graphs.md", "graph", "step = graph.instantiate()"),
    "turns": ("graphs.md", "turns", "turns.instantiate()"),
    "body": ("graphs.md", "body", "turns.instantiate()"),
    "signals": ("signals.md", "graph", "step = graph.instantiate()"),
    "functions": ("functions.md", "graph", "step = graph.instantiate()"),
}


def graph(page: str, name: str, last: str) -> str:
    """Return what `Graph.to_svg` returns for a graph of a page."""
    text = (FOLDER.parent / page).read_text(encoding="utf-8")
    blocks = []
    for program in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        blocks.append("\n" * text.count("\n", 0, program.start(1)) + program[1])
        if last in program[1]:
            break
    settings = {"CUDADRV_DRIVER": "software", "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-c", DRAW, page, name],
        input="\0".join(blocks),
        cwd=FOLDER.parents[1],
        env=os.environ | settings,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout


def missing_wait() -> str:
    """Explore the careless test of the project with the example."""
    options = "--runxfail -k careless --cuda-driver=software -p no:cacheprovider -p pytest_cudadrv"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pytest", *options.split(), f"--cuda-svg={folder}"],
            cwd=FOLDER.parents[1] / "examples" / "testing_project",
            env=os.environ | {"PYTHONPATH": str(FOLDER.parents[1])},
            stdout=subprocess.DEVNULL,
        )
        (picture,) = Path(folder).iterdir()
        return picture.read_text(encoding="utf-8")


def files() -> dict[Path, str]:
    """Return the text of each file."""
    pictures = [make() for make in PICTURES]
    made = {FOLDER / f"{picture.name}.svg": picture.svg() for picture in pictures}
    made[FOLDER / "missing_wait.svg"] = missing_wait()
    return made | {FOLDER / f"{name}.svg": graph(*how) for name, how in GRAPHS.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
