"""What calls cost when the driver's code evicts the library's code from the processor's caches.

    python benchmarks/evicted.py [--kib KIB ...] [--rounds N]

calls.py measures with a driver that runs KIB of code in each call and does nothing else
(null_driver.c, for x86-64). The table shows the call from C in nanoseconds, and how many more
nanoseconds the bare call from Python and the call through cudadrv take.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import tables

HERE = Path(__file__).resolve().parent
ROWS = ("h2d", "d2d", "fill", "launch prepared", "record", "wait")
KIB = (0, 16, 32, 40, 48, 56, 64)


def driver(folder, kib):
    """Compile a driver that runs `kib` KiB of code in each call."""
    library = Path(folder, f"libnull{kib}.so")
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC"]
    command += [f"-DCODE_KIB={kib}"] * (kib > 0)
    subprocess.run([*command, HERE / "null_driver.c", "-o", library], check=True)
    return library


def figures(library, rounds):
    """Return the nanoseconds of a call, by row and column."""
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, HERE / "calls.py", "--only", "cudadrv", "--json", file.name]
        command += ["--rounds", str(rounds), "--rows", *ROWS]
        environment = {**os.environ, "CUDADRV_DRIVER": str(library)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(Path(file.name).read_text())["rows"]
    return {
        row: {column: cell["loop"]["median"] for column, cell in cells.items()}
        for row, cells in rows.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kib", nargs="+", type=int, default=KIB)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    heads = [tables.FLOOR, tables.PYTHON_FLOOR, *(f"cudadrv, {row}" for row in ROWS)]
    print("| KiB of code in each call |", *(f"{head} |" for head in heads))
    print("|---|" + "---|" * len(heads))
    with tempfile.TemporaryDirectory() as folder:
        for kib in options.kib:
            found = figures(driver(folder, kib), options.rounds)
            bare = found["h2d"][tables.FLOOR]
            python = found["h2d"][tables.PYTHON_FLOOR] - bare
            above = [found[row]["cudadrv"] - found[row][tables.FLOOR] for row in ROWS]
            cells = [f"{bare:.0f}", f"+{python:.0f}", *(f"+{each:.0f}" for each in above)]
            print(f"| {kib} |", *(f"{cell} |" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
