"""Runs the Python blocks of a Markdown file: ``run_blocks.py FILE``. Exit status 1: one differs.

The convention, for writers:

- Each ```python block runs, one after the other, in one namespace for the file. Blocks in other
  languages (```console, ```cython, ...) do not run.
- A ```text block directly after one is what it printed, then, if it ends with an exception,
  ``Class: message``. A block with no ```text after it must not raise, and may print.
- Compared as they stand, apart from: ``...``, which stands for anything; places such as
  ``pipeline.py:41``; and the numbers of streams, where only "the same one" and "another" count.
"""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<text>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
PLACE = re.compile(r"[\w./<>-]+\.(?:py|md):\d+")
STREAM = re.compile(r"Stream (\d+)")


class Block(NamedTuple):
    line: int
    code: str
    expected: str | None


def blocks(markdown: str) -> list[Block]:
    return [
        Block(markdown.count("\n", 0, found.start()) + 2, found["code"], found["text"])
        for found in BLOCK.finditer(markdown)
    ]


def comparable(text: str) -> str:
    """A text with what may differ from run to run taken out."""
    streams: dict[str, str] = {}

    def letter(found: re.Match[str]) -> str:
        return "Stream " + streams.setdefault(found[1], chr(ord("A") + len(streams)))

    return STREAM.sub(letter, PLACE.sub("PLACE", text)).strip()


def agree(actual: str, expected: str) -> bool:
    pattern = ".*?".join(map(re.escape, comparable(expected).split("...")))
    return re.fullmatch(pattern, comparable(actual), re.DOTALL) is not None


def run(block: Block, name: str, namespace: dict[str, object]) -> str:
    """What it prints, and its exception as the last line; raises one that nothing announces."""
    code = compile("\n" * (block.line - 1) + block.code, name, "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, namespace)
        except Exception as error:
            if block.expected is None:
                raise
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


def main(path: Path) -> int:
    failures = 0
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        actual = run(block, path.name, namespace)
        if block.expected is not None and not agree(actual, block.expected):
            failures += 1
            print(f"{path}:{block.line}: expected\n{block.expected}\nbut it was\n{actual}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
