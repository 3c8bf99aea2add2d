"""Runs the Python blocks of a Markdown file: ``run_blocks.py FILE``.

The exit status is 1 if the output of a block differs from what the page says. The convention:

- The ```python blocks of a file run one after the other, in one namespace. Blocks in other
  languages (```console, ```cython, ...) do not run. A ```python foreign block does not run either:
  it shows another library, which is not installed.
- A ```python mpi 2, ```python mpi4py or ```python dask block runs in tests/external/test_pages.py.
- A ```text block directly after a ```python block is the expected output. If the ```python block
  raises an exception, the expected output ends with ``Class: message`` and the notes, if any.
- A ```python block without a ```text block must not raise. Its output is not compared.
- In the expected output, ``...`` stands for any text. Two things may differ in a comparison: places
  such as ``pipeline.py:41``, and the numbers of streams. But equal numbers must stay equal, and
  different ones different.
- A page with a ```python start block is a page of programs. Each block after the start block runs
  as a program ``pipeline.py`` in its own process. The program consists of the start block, an empty
  line, and the block. A block that imports cudadrv is a whole program, without the start block. The
  output of a program is compared exactly, apart from ``...``.
"""

import contextlib
import importlib
import io
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(
    r"^```python(?P<start> start)?\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
PLACE = re.compile(r"[\w./<>-]+\.(?:py|md):\d+")
STREAM = re.compile(r"([Ss]tream[ _])(\d+)")


class Block(NamedTuple):
    line: int
    code: str
    expected: str | None
    start: bool = False


def blocks(markdown: str) -> list[Block]:
    return [
        Block(
            markdown.count("\n", 0, found.start()) + 2,
            found["code"],
            found["text"],
            bool(found["start"]),
        )
        for found in BLOCK.finditer(markdown)
    ]


def comparable(text: str) -> str:
    """Replace places and stream numbers, which may differ from run to run."""
    streams: dict[str, str] = {}

    def letter(found: re.Match[str]) -> str:
        return found[1] + streams.setdefault(found[2], chr(ord("A") + len(streams)))

    return STREAM.sub(letter, PLACE.sub("PLACE", text))


def agree(actual: str, expected: str, exact: bool = False) -> bool:
    if not exact:
        actual, expected = comparable(actual), comparable(expected)
    pattern = ".*?".join(map(re.escape, expected.strip().split("...")))
    return re.fullmatch(pattern, actual.strip(), re.DOTALL) is not None


def run(block: Block, name: str, namespace: dict[str, object]) -> str:
    """Run a block. Returns its output, with an announced exception as the last line.

    An exception that no ```text block announces is raised.
    """
    code = compile("\n" * (block.line - 1) + block.code, name, "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, namespace)
        except Exception as error:
            if block.expected is None:
                raise
            print(f"{type(error).__name__}: {error}")
            for note in getattr(error, "__notes__", ()):
                print(note)
    return printed.getvalue()


def program(start: Block, block: Block) -> Block:
    code = block.code if "import cudadrv" in block.code else f"{start.code}\n{block.code}"
    return Block(1, code, block.expected)


def load_early() -> None:
    """Import what all programs import, so that their processes need not. Loads no driver."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not be forked
    importlib.import_module("cudadrv")


def run_apart(block: Block) -> str:
    """Run a program in a process of its own.

    Returns its output, and raises if the program fails.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # Newer Pythons warn of forks in processes with threads, which some programs make on
        # purpose.
        warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
        try:
            with os.fdopen(writer, "w", encoding="utf-8") as output:
                output.write(run(block, "pipeline.py", {"__name__": "__main__"}))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as output:
        printed = output.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError(f"a program did not end well:\n{block.code}")
    return printed


def main(path: Path) -> int:
    failures = 0
    start = None
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.start:
            start = block
            load_early()
            continue
        actual = run_apart(program(start, block)) if start else run(block, path.name, namespace)
        exact = start is not None
        if block.expected is not None and not agree(actual, block.expected, exact):
            failures += 1
            print(f"{path}:{block.line}: expected\n{block.expected}\nbut it was\n{actual}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
