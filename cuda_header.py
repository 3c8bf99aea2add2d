"""Find the cuda.h to compile against. Used by setup.py and by the packaging tests."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST = 12000  # in the form of CUDA_VERSION: 1000 * major + 10 * minor
DEFAULT_TOOLKIT = Path("/usr/local/cuda")


class HeaderError(Exception):
    """There is no usable cuda.h. The message says what was tried and what to do."""


class CudaHeader(NamedTuple):
    folder: Path
    version: int
    origin: str

    def __str__(self) -> str:
        return f"cuda.h {dotted(self.version)} from {self.origin} ({self.folder})"


def dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def find_cuda_header(
    environ: Mapping[str, str] = os.environ,
    path: Iterable[str] = sys.path,
    default_toolkit: Path = DEFAULT_TOOLKIT,
) -> CudaHeader:
    """The first cuda.h of: CUDA_HOME, CUDA_PATH, nvcc's toolkit, the default toolkit, the package.

    Only the first one is checked: if it is too old, that is an error.
    """
    tried = []
    for origin, folders in _places(environ, path, default_toolkit):
        for folder in folders:
            if (folder / "cuda.h").is_file():
                return _checked(folder, origin)
        tried.append(f"  {origin}: " + (", ".join(map(str, folders)) or "not found"))
        if origin in ("CUDA_HOME", "CUDA_PATH"):
            # The user chose this toolkit, so no other one is used.
            raise HeaderError(
                f"{origin} is set to {environ[origin]!r}, but there is no cuda.h in it.\n"
                f"Tried:\n{tried[-1]}\n"
                f"Set {origin} to the folder of a CUDA toolkit, or unset it."
            )
    raise HeaderError(
        "cuda.h was not found. Tried:\n"
        + "\n".join(tried)
        + "\nSet CUDA_HOME to the folder of a CUDA toolkit, or install the header alone with"
        + "\n  python -m pip install nvidia-cuda-runtime"
    )


def _places(
    environ: Mapping[str, str], path: Iterable[str], default_toolkit: Path
) -> Iterator[tuple[str, list[Path]]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield variable, _toolkit_folders(Path(environ[variable]))
    yield "nvcc on PATH", _nvcc_folders(environ)
    yield str(default_toolkit), _toolkit_folders(default_toolkit)
    yield "the nvidia-cuda-runtime package", _package_folders(path)


def _toolkit_folders(root: Path) -> list[Path]:
    # conda's toolkits have the header in targets/ only.
    return [root / "include", *sorted(root.glob("targets/*/include"))]


def _nvcc_folders(environ: Mapping[str, str]) -> list[Path]:
    nvcc = shutil.which("nvcc", path=environ.get("PATH", ""))
    if nvcc is None:
        return []
    folders = _toolkit_folders(Path(nvcc).resolve().parent.parent)
    if any((folder / "cuda.h").is_file() for folder in folders):
        return folders
    # nvcc is a wrapper script. The real nvcc knows its own folder, and a dry run prints that.
    try:
        dry_run = subprocess.run(
            [nvcc, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return folders
    top = re.search(r"^#\$ TOP=(.+)$", dry_run.stderr, re.MULTILINE)
    return folders + _toolkit_folders(Path(top[1].strip()).resolve()) if top else folders


def _package_folders(path: Iterable[str]) -> list[Path]:
    folders: list[Path] = []
    for entry in path:
        nvidia = Path(entry or ".", "nvidia")
        folders += sorted(nvidia.glob("cu[0-9]*/include"), reverse=True)  # CUDA 13 and newer
        folders += nvidia.glob("cuda_runtime/include")  # CUDA 12
    return folders


def _checked(folder: Path, origin: str) -> CudaHeader:
    text = (folder / "cuda.h").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^\s*#\s*define\s+CUDA_VERSION\s+(\d+)", text, re.MULTILINE)
    if match is None:
        raise HeaderError(f"{folder / 'cuda.h'} ({origin}) does not define CUDA_VERSION.")
    version = int(match[1])
    if version < OLDEST:
        raise HeaderError(
            f"{folder / 'cuda.h'} ({origin}) is of CUDA {dotted(version)}; "
            f"{dotted(OLDEST)} or newer is needed.\n"
            "Set CUDA_HOME to the folder of a newer toolkit."
        )
    return CudaHeader(folder, version, origin)
