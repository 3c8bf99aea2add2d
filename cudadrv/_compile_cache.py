"""The cache of compiled PTX. A file's name is a hash of everything that its PTX depends on."""

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudadrv._compile_inputs import Snapshot, read_regular
from cudadrv._compilers import ENCODING, Compiler, Source
from cudadrv._environment import cache_choice, caches

FORMAT = "3"  # part of every key; increase it when keys or files change
MOST_BYTES = 256 << 20
OFF = "off"
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
        None if nothing is kept: ``CUDADRV_CACHE_DIR=off``, or there is no home directory, or the
        folder is relative and the working directory was deleted.
    """
    chosen = cache_choice(environ)
    if chosen == OFF:
        return None
    if chosen:
        try:
            return Path(chosen).absolute()
        except OSError:  # the folder is relative to a working directory that was deleted
            return None
    base = Path(caches(environ))
    if not base.is_absolute():  # not set, or relative, which the XDG specification says to ignore
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "cudadrv"


def cache_key(
    compiler: Compiler, source: Source, architecture: str, options: Sequence[str]
) -> str | None:
    """Return a hash of what is known before a compilation; None if the folder was deleted."""
    try:
        working = str(Path.cwd())
    except OSError:
        return None
    parts = [FORMAT, compiler.identity(), architecture, source.text, source.name]
    parts += [str(source.path), working, *compiler.all_options(options), *compiler.environment()]
    parts += [f"{len(source.names)} names", *source.names]
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode(**ENCODING)
        digest.update(b"%d:" % len(encoded) + encoded)
    return digest.hexdigest()


class Entry(NamedTuple):
    """PTX, and the state of the files from which it was made."""

    ptx: str
    snapshot: Snapshot


class Cache:
    """A folder of PTX files. A problem with the folder never raises; the source is compiled again.

    Files are replaced atomically, so several processes may use the folder. A folder that other
    users can write is not used, because they could choose what runs on the device.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes

    def load(self, key: str) -> Entry | None:
        """Return what was stored under a key; None if the file is missing or damaged."""
        path = self._path(key)
        try:
            if not self._is_ours() or path.lstat().st_size > self.most_bytes:
                return None
            content, status = read_regular(path, os.O_NOFOLLOW)
            # Other users may have put the file there while they could write to the folder.
            if status.st_uid not in (os.geteuid(), 0) or _others_can_write(status):
                return None
            checksum, _, rest = content.partition(b"\n")
            if checksum != _checksum(key, rest):
                return None
            snapshot, _, ptx = rest.decode().partition("\n")
            entry = Entry(ptx, Snapshot.from_json(snapshot))
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):  # the folder may be read-only
            os.utime(path, follow_symlinks=False)  # so that _trim knows the time of the last use
        return entry

    def store(self, key: str, entry: Entry) -> None:
        with contextlib.suppress(OSError, ValueError):
            rest = f"{entry.snapshot.to_json()}\n{entry.ptx}".encode()
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_ours():
                return
            number, name = tempfile.mkstemp(dir=self.folder, suffix=".new")
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(_checksum(key, rest) + b"\n" + rest)
                Path(name).replace(self._path(key))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._trim()

    def _is_ours(self) -> bool:
        """Return whether only this user and root can write the folder. If not, log why."""
        status = self.folder.stat()
        user, owner = os.geteuid(), status.st_uid
        if owner not in (user, 0):
            _say_once(f"{self.folder} belongs to user {owner}, and this process to user {user}")
        elif _others_can_write(status):
            mode = stat.S_IMODE(status.st_mode)
            _say_once(f"others can write to {self.folder} (mode {mode:o}; chmod go-w mends that)")
        else:
            return True
        return False

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.ptx"

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield last use, size and path of each file, even unfinished ones of killed processes."""
        with os.scandir(self.folder) as found:
            for each in found:
                with contextlib.suppress(OSError):
                    if each.name.endswith((".ptx", ".new")) and each.is_file(follow_symlinks=False):
                        status = each.stat(follow_symlinks=False)
                        yield status.st_mtime, status.st_size, Path(each.path)

    def _trim(self) -> None:
        """If the files exceed the limit, delete the least recently used ones down to half of it."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        if total <= self.most_bytes:
            return
        for _, size, path in entries:
            if total <= self.most_bytes // 2:
                return
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                total -= size


def _others_can_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _say_once(why: str) -> None:
    if why not in _said:
        _said.add(why)
        logging.getLogger("cudadrv").warning(
            "compiled PTX is not kept: %s. Or set CUDADRV_CACHE_DIR to a folder of your own, or to"
            " 'off'",
            why,
        )


def _checksum(key: str, rest: bytes) -> bytes:
    return hashlib.sha256(f"{key}\n".encode() + rest).hexdigest().encode()
