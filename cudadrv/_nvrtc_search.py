"""Where a program would find NVIDIA's NVRTC."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cudadrv._environment import library_folders, toolkits

NAMES = ("libnvrtc.so.12", "libnvrtc.so.13")
MARK = b"cudadrvNvrtc"  # a variable that only our libnvrtc has (softdriver/nvrtc.c)
LARGEST_OF_OURS = 1 << 20  # bytes; NVIDIA's library is fifty times as large, and is not read
PATHS_IN_CACHE = re.compile(r"^\s*libnvrtc\.so\.\d+ .*=> (.+)$", re.MULTILINE)


def real_name(name: str) -> str:
    """Return the name of the link to NVIDIA's library, which is beside our library `name`."""
    return name.replace("libnvrtc", "libnvrtc-real")


def find_nvrtc(command: Sequence[str] = ()) -> dict[str, Path]:
    """Return the paths of the libraries that a command would find, by their names.

    Searches the packages of the command's Python first, like cuda.bindings, then LD_LIBRARY_PATH.
    Because the command may be a script that runs Python, the Python on PATH and the one that runs
    this function are searched, too.
    """
    found: dict[str, Path] = {}
    for folder in _folders(command):
        for name in NAMES:
            path = _not_ours(folder / name)
            if name not in found and path.is_file():
                found[name] = path.resolve()
        if len(found) == len(NAMES):
            break
    return found


def _not_ours(path: Path) -> Path:
    """Return the path. If it is our library, return the path of the link beside it.

    The search finds our library if `cudadrv run` has started this process.
    """
    if path.is_file() and path.stat().st_size < LARGEST_OF_OURS and MARK in path.read_bytes():
        return path.with_name(real_name(path.name))
    return path


def _folders(command: Sequence[str]) -> Iterator[Path]:
    yield from _of_environments(command[:1])
    yield from map(Path, library_folders())
    yield from _of_environments(("python3", "python"))
    yield from _in_packages(map(Path, sys.path))
    yield from _known_to_loader()
    for root in (*(path for _, path in reversed(toolkits(os.environ))), "/usr/local/cuda"):
        yield Path(root, "lib64")


def _of_environments(programs: Iterable[str]) -> Iterator[Path]:
    """Yield the folders of the environments (of venv or conda) that have these programs."""
    for program in programs:
        if path := shutil.which(program):
            libraries = Path(path).absolute().parent.parent / "lib"
            yield from _in_packages(sorted(libraries.glob("python3*/*-packages")))
            yield libraries


def _in_packages(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders for libraries of NVIDIA's packages in folders for Python packages."""
    for folder in folders:
        for package in ("cu13", "cuda_nvrtc"):
            yield folder / "nvidia" / package / "lib"


def _known_to_loader() -> Iterator[Path]:
    """Yield the folders that the dynamic loader's cache names for NVRTC."""
    ldconfig = shutil.which("ldconfig", path=os.pathsep.join((os.defpath, "/usr/sbin", "/sbin")))
    if ldconfig:
        listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False)
        for path in PATHS_IN_CACHE.findall(listed.stdout):
            yield Path(path).parent
