"""Compile the .cu files of this folder, or those that are named: python build.py [NAME ...]

The .ptx files beside them are kept in the repository, so that running a kernel needs no compiler.
The same release of nvcc compiles the same files again (except for comments).
"""

import re
import sys
from pathlib import Path

from cudadrv import toolkit

FOLDER = Path(__file__).resolve().parent
ARCHITECTURE = "compute_75"  # the oldest that nvcc 13 knows; newer devices run it, too
# nvcc writes the newest version of PTX that it knows, 9.0, which a driver of CUDA 12 refuses. The
# code here needs only version 6.4 (CUDA 10.1), so the files are declared as 6.4: every driver for a
# device of this architecture, or of a newer one, accepts them.
VERSION = "6.4"


def build(source: Path) -> str:
    """Return the PTX of a file."""
    ptx = toolkit.compile(source, arch=ARCHITECTURE, compiler="nvcc", cache=False)
    return re.sub(r"^\.version .*$", f".version {VERSION}", ptx, flags=re.MULTILINE)


def code(ptx: str) -> list[str]:
    """Return a PTX text's lines, without comments, empty lines and the hash of the file's path."""
    ptx = re.sub(r"_INTERNAL_[0-9a-f]{8}_", "_INTERNAL_", ptx)  # in names of static functions
    lines = (line.partition("//")[0].strip() for line in ptx.splitlines())
    return [line for line in lines if line]


def release(ptx: str) -> str:
    """Return the release of CUDA that a PTX text comes from: "13.0, V13.0.88"."""
    found = re.search(r"release (\d+\.\d+, V[\d.]+)", ptx)
    return found[1] if found else "unknown"


def main() -> None:
    for source in [FOLDER / f"{name}.cu" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.cu")):
        source.with_suffix(".ptx").write_text(build(source), encoding="utf-8")
        print(source.with_suffix(".ptx").name)


if __name__ == "__main__":
    main()
