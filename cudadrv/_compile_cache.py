"""The cache of compiled PTX. A file's name is a hash of everything that its PTX depends on."""

import contextlib
import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cudadrv._compilers import ENCODING, Compiler, Source

FORMAT = "2"  # part of every key; increase it when keys or files change
MOST_BYTES = 256 << 20
OFF = "off"
# This also matches an include in a comment. The key then depends on a file that the compiler does
# not read, which does no harm.
INCLUDE = re.compile(
    r"#(?:\s|/\*.*?\*/)*(?:include_next|include|import|embed)\b(?:\s|/\*.*?\*/)*"
    r"(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>|(?P<other>[^\n]*))"
)
FOLDER_OPTION = re.compile(r"(?:-I|-isystem|--include-path|--system-include)=?(.*)", re.DOTALL)
# Environment variables from which nvcc's host compiler takes include folders.
FOLDER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_said: set[str] = set()


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder where compiled PTX is kept. It may not exist yet.

    Parameters
    ----------
    environ
        The environment variables. The folder is ``CUDADRV_CACHE_DIR``, else ``cudadrv`` in
        ``XDG_CACHE_HOME``, else ``cudadrv`` in ``~/.cache``.

    Returns
    -------
    Path or None
        None if nothing is kept: ``CUDADRV_CACHE_DIR=off``, or there is no home directory.
    """
    chosen = environ.get("CUDADRV_CACHE_DIR")
    if chosen:
        return None if chosen == OFF else Path(chosen).absolute()
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # not set, or relative, which the XDG specification says to ignore
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "cudadrv"


def cache_key(
    compiler: Compiler, source: Source, architecture: str, options: Sequence[str]
) -> str | None:
    """Return the cache key of a compilation; None if it is unknown which files are included."""
    options = compiler.all_options(options)
    folders = _folders(options)
    included = _included(source, folders)
    for option in options:  # such as -include FILE or --options-file=FILE
        for name in {option, option.partition("=")[2]} - {""}:
            with contextlib.suppress(OSError, ValueError):
                if (path := Path(name)).is_file():
                    text = path.read_text(**ENCODING)
                    included |= {name: text} | _included(Source(text, name, path), folders)
    if None in included.values():
        return None
    parts = [FORMAT, compiler.identity(), architecture, source.text, source.name]
    parts += [str(source.path), str(Path.cwd()), *options]
    parts += [os.environ.get(name, "") for name in FOLDER_VARIABLES]
    for name in sorted(included):
        parts += [name, included[name] or ""]
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode(**ENCODING)
        digest.update(b"%d:" % len(encoded) + encoded)
    return digest.hexdigest()


def _folders(options: Sequence[str]) -> list[Path]:
    """Return the folders that are searched for included files."""
    found: list[str] = []
    for at, option in enumerate(options):
        if match := FOLDER_OPTION.fullmatch(option):
            value = match[1] or (options[at + 1] if at + 1 < len(options) else "")
            found += value.split(",")
    for variable in FOLDER_VARIABLES:
        found += os.environ.get(variable, "").split(os.pathsep)
    return [Path(folder) for folder in found if folder]


def _included(source: Source, folders: Sequence[Path]) -> dict[str, str | None]:
    """Return the text of each file that the source may include, by path.

    The text is None where a macro names the file. Files that are in none of the folders are left
    out: they belong to the compiler or to its host compiler.
    """
    found: dict[str, str | None] = {}
    todo = [(source.text, source.path)]
    while todo:
        text, path = todo.pop()
        for match in INCLUDE.finditer(text.replace("\\\n", "")):
            name = match["quoted"] or match["angled"]
            if name is None:
                found[f"{path}: {match['other']}"] = None
                continue
            own = [path.parent] if path is not None and match["quoted"] else []
            for candidate in (folder / name for folder in (*own, *folders)):
                with contextlib.suppress(OSError):
                    content = candidate.read_text(**ENCODING)
                    if str(candidate) not in found:
                        found[str(candidate)] = content
                        todo.append((content, candidate))
                    break
    return found


class Cache:
    """A folder of PTX files. A problem with the folder never raises; the source is compiled again.

    Files are replaced atomically, so several processes may use the folder. A folder that other
    users can write is not used, because they could choose what runs on the device.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes

    def load(self, key: str) -> str | None:
        """Return the PTX of a key; None if the file is missing or damaged."""
        path = self._path(key)
        try:
            if not self._is_ours():
                return None
            digest, _, ptx = path.read_text(encoding="utf-8").partition("\n")
            if digest != _checksum(key, ptx):
                return None
            os.utime(path)  # so that _trim knows the time of the last use
            return ptx
        except (OSError, ValueError):
            return None

    def store(self, key: str, ptx: str) -> None:
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_ours():
                return
            number, name = tempfile.mkstemp(dir=self.folder, suffix=".new")
            try:
                os.close(number)
                Path(name).write_text(f"{_checksum(key, ptx)}\n{ptx}", encoding="utf-8")
                Path(name).replace(self._path(key))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._trim()

    def _is_ours(self) -> bool:
        """Return whether only this user and root can write the folder. If not, log why."""
        status = self.folder.stat()
        user, owner, mode = os.geteuid(), status.st_uid, stat.S_IMODE(status.st_mode)
        if owner not in (user, 0):
            _say_once(f"{self.folder} belongs to user {owner}, and this process to user {user}")
        elif mode & (stat.S_IWGRP | stat.S_IWOTH):
            _say_once(f"others can write to {self.folder} (mode {mode:o}; chmod go-w mends that)")
        else:
            return True
        return False

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.ptx"

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield last use, size and path of each file, even unfinished ones of killed processes."""
        for path in (*self.folder.glob("*.ptx"), *self.folder.glob("*.new")):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                yield status.st_mtime, status.st_size, path

    def _trim(self) -> None:
        """If the files exceed the limit, delete the least recently used ones down to half of it."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        if total <= self.most_bytes:
            return
        for _, size, path in entries:
            if total <= self.most_bytes // 2:
                return
            path.unlink(missing_ok=True)
            total -= size


def _say_once(why: str) -> None:
    if why not in _said:
        _said.add(why)
        logging.getLogger("cudadrv").warning(
            "compiled PTX is not kept: %s. Or set CUDADRV_CACHE_DIR to a folder of your own, or to"
            " 'off'",
            why,
        )


def _checksum(key: str, ptx: str) -> str:
    return hashlib.sha256(f"{key}\n{ptx}".encode()).hexdigest()
