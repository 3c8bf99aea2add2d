"""What a compilation has read, according to its compiler, and whether that is still the same.

A compiler lists the files that it has read, but not the files that it has searched for in vain. If
such a file appears later, it may be included in place of another one, or may be what the source
asks for with ``__has_include``. The names of such files follow from the compiler's list, from the
folders that the compiler searches, and from the text of the source.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CLOCK_REALTIME_COARSE = 5  # of Linux. The kernel takes the times of files from this clock.
# A backslash, or its trigraph, before a newline: the preprocessor removes both first.
SPLICE = re.compile(r"(?:\\|\?\?/)[ \t\f\v]*\r?\n")
# An include with a name in quotes, or with what else follows.
SPACE = r"(?:\s|/\*(?:[^*]|\*(?!/)){0,500}+\*/)*+"  # and short comments; without backtracking
INCLUDE = re.compile(
    rf"(?:#|%:|\?\?=){SPACE}(?:include|include_next|import)\b{SPACE}(?:\"([^\"\n]+)\"|(.))"
)
TIMES = ("__DATE__", "__TIME__", "__TIMESTAMP__")
ASKS = ("__has_include", "__has_include_next", "__has_embed")
# Matches what precedes the name of a macro on a line that defines the macro, or only tests whether
# it is defined.
ONLY_NAMES = re.compile(r"(?:#\s*(?:(?:el)?ifn?def|define|undef)|\bdefined\s*\(?)\s*$")
LONG_LINE = 1000  # longer lines before an `__has_include` are cut off
MOST_MACROS = 50
MOST_SOUGHT = 100_000  # checking more files would take longer than compiling most sources
LITERAL = re.compile(r"\s*\(\s*(?:\"([^\"\n]+)\"|<([^>\n]+)>)")
# The start of a macro that only passes on its one parameter: `#define HAS(X) `.
FORWARDS = re.compile(r"#\s*define\s+(\w+)\(\s*(\w+)\s*\)\s*$")


class Inputs(NamedTuple):
    """What a compilation has read.

    Attributes
    ----------
    files
        Each file.
    folders
        Each folder in which the compiler searches for included files, in this order.
    given
        Those of the folders that do not belong to the compiler, or do not exist yet.
    own
        The folders that belong to the compiler and its host compiler. New files in them are not
        noticed: only another installation of the compiler adds files.
    texts
        The options, and the files that they name.
    program
        The name of the host compiler, and the ``PATH`` that is searched for it before the ``PATH``
        of this process; or two empty str.
    """

    files: Sequence[str]
    folders: Sequence[str]
    given: Sequence[str]
    own: Sequence[str]
    texts: Sequence[str]
    program: tuple[str, str] = ("", "")


class Snapshot(NamedTuple):
    """The state of everything on which PTX depends. It is kept with the PTX.

    Attributes
    ----------
    files, digest
        Each file that was read, and a digest of their contents.
    folders, given
        As in `Inputs`.
    sought
        More files that the compiler has sought, whether they exist or not.
    present
        Of the files that the compiler may have sought but did not read, those that exist.
    program, identity
        As in `Inputs`; and what differs between host compilers.
    """

    files: Sequence[str]
    digest: str
    folders: Sequence[str]
    given: Sequence[str]
    sought: Sequence[str]
    present: Sequence[str]
    program: Sequence[str]
    identity: str

    def holds(self) -> bool:
        """Return whether a compilation would read the same now."""
        try:
            return (
                self.identity == _identity(*self.program)
                and self.present == [path for path in self.not_read() if _is_there(path)]
                and self.digest == _digest(self.files, None)
            )
        except (OSError, ValueError):
            return False

    def not_read(self) -> list[str]:
        """List the files that the compiler may have sought, but did not read.

        If the compiler found a file in a folder, it has sought the file in all earlier folders.
        """
        sought = set(self.sought)
        for path in self.files:
            for at, name in _names(path, self.folders):
                before = (folder for folder in self.folders[:at] if folder in self.given)
                sought.update(os.path.join(folder, name) for folder in before)
        return sorted(sought.difference(self.files))

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> "Snapshot":
        return cls(*json.loads(text))


def now() -> int:
    """Return the time, in nanoseconds, that a file would get if it changed now."""
    return time.clock_gettime_ns(CLOCK_REALTIME_COARSE)


def read_regular(path: str | Path, flags: int = 0) -> tuple[bytes, os.stat_result]:
    """Return content and status of a file. A FIFO or a device is a ValueError, and never blocks."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is no regular file")
        return file.read(), status


def take_snapshot(inputs: Inputs, source: str, start: int) -> Snapshot | None:
    """Return the state of what a compilation has read.

    Parameters
    ----------
    inputs
        What the compilation has read.
    source
        The text of the source.
    start
        `now`, before the compilation.

    Returns
    -------
    Snapshot or None
        None if it is unknown whether a later compilation would be the same: the source uses the
        time, or asks for a file that only the compiler can name; or a file cannot be read, or has
        changed since the start.
    """
    try:
        return _snapshot(inputs, source, start)
    except (OSError, ValueError):
        return None


def _snapshot(inputs: Inputs, source: str, start: int) -> Snapshot | None:
    files = sorted(set(inputs.files))
    own, given = _Folders(inputs.own), _Folders(inputs.given)
    users = [path for path in files if path in given or path not in own]
    beside = [os.path.dirname(path) or os.curdir for path in users]
    contents = [_spliced(os.fsdecode(read_regular(path)[0])) for path in users]
    texts = [*map(_spliced, (source, *inputs.texts)), *contents]
    asked = _asked(texts)
    if asked is None or _uses_time(texts):
        return None
    # The compiler searches for files of options in the first of these folders.
    folders = [os.curdir, *inputs.folders]
    asked_for = {os.path.join(folder, name) for folder in (*beside, *folders) for name in asked}
    named = {name for path in files for _, name in _names(path, folders)}
    quoted = {
        os.path.join(folder, name)
        for folder, text in zip(beside, contents, strict=True)
        for name in _quoted(text, named)
    }
    if len(asked_for) + len(quoted) > MOST_SOUGHT:
        return None
    taken = Snapshot(
        files,
        _digest(files, start),
        folders,
        [os.curdir, *inputs.given],
        sorted(asked_for | quoted),
        [],
        list(inputs.program),
        _identity(*inputs.program),
    )
    present = [path for path in taken.not_read() if _is_there(path)]
    # If a file has appeared or vanished meanwhile, its own time or its folder's time shows it.
    for path in (*present, *filter(os.path.isdir, {os.path.dirname(path) for path in asked_for})):
        _check_age(path, Path(path).stat(), start)
    return taken._replace(present=present)


def _spliced(text: str) -> str:
    return SPLICE.sub("", text)


class _Folders:
    """Whether a file is in one of these folders."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self._known: dict[str, bool] = {}

    def __contains__(self, path: str) -> bool:
        folder = os.path.dirname(path)
        if folder not in self._known:
            real = os.path.join(os.path.realpath(folder), "")
            self._known[folder] = real.startswith(self._folders)
        return self._known[folder]


def _names(path: str, folders: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the name under which an include finds a file in a folder, and which folder this is."""
    for at, folder in enumerate(folders):
        if folder == os.curdir:
            if not path.startswith("/"):
                yield at, path.removeprefix("./")
        elif path.startswith(before := os.path.join(folder, "")):
            yield at, path[len(before) :].lstrip("/")


def _quoted(text: str, names: Iterable[str]) -> set[str]:
    """Return the names in quotes that a text includes: any of these names, if a macro has one."""
    found: set[str] = set()
    for literal, other in INCLUDE.findall(text):
        found.update([literal] if literal else names if other != "<" else [])
    return found


def _is_there(path: str) -> bool:
    """Return whether an include would find this file."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - there are thousands
    except OSError:
        return False


def _digest(files: Iterable[str], start: int | None) -> str:
    """Return a digest of files, none of which has changed since the start."""
    digest = hashlib.sha256()
    for path in files:
        content, status = read_regular(path)
        if start is not None:
            _check_age(path, status, start)
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def _check_age(path: str, status: os.stat_result, start: int) -> None:
    if max(status.st_mtime_ns, status.st_ctime_ns) >= start:
        raise ValueError(f"{path} has changed meanwhile")


def _identity(program: str, before: str) -> str:
    """Return a text that differs between programs, and between versions of one program."""
    if not program:
        return ""
    path = os.pathsep.join(filter(None, (before, os.environ.get("PATH", ""))))
    found = shutil.which(program, path=path)
    if found is None:
        raise ValueError(f"there is no {program}")
    status = Path(found).stat()
    return f"{os.path.realpath(found)} {status.st_size} {status.st_mtime_ns}"


def _asked(texts: Sequence[str]) -> set[str] | None:
    """Return the names for which the source asks with ``__has_include``.

    None if one of the names is not in the text. A macro that only passes its parameter on, as CCCL
    has one, is followed.
    """
    names: set[str] = set()
    asks = set(ASKS)
    before: set[str] = set()
    while asks != before:
        if len(asks) > MOST_MACROS:
            return None
        before = set(asks)
        pattern = re.compile(rf"\b(?:{'|'.join(sorted(asks))})\b")
        for text in texts:
            for use in pattern.finditer(text):
                line = text[max(0, use.start() - LONG_LINE) : use.start()].rpartition("\n")[2]
                forward = FORWARDS.search(line)
                if literal := LITERAL.match(text, use.end()):
                    names.add(literal[1] or literal[2])
                elif forward and re.compile(rf"\s*\(\s*{forward[2]}\s*\)").match(text, use.end()):
                    asks.add(forward[1])
                elif not ONLY_NAMES.search(line):
                    return None
    return names


def _uses_time(texts: Iterable[str]) -> bool:
    """Return whether the source has a macro of `TIMES`, or may paste its name together."""
    text = "\n".join(texts)
    words = set(re.findall(r"\w+", text))
    pasted = "##" in text or "%:%:" in text or "??=" in text
    return not words.isdisjoint(TIMES) or (
        pasted
        and any(
            word[:at] in words and word[at:] in words
            for word in (*TIMES, *ASKS)
            for at in range(1, len(word))
        )
    )
