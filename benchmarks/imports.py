"""How long importing takes, after NumPy, in a new process: cudadrv and other installed bindings.

    python benchmarks/imports.py [--rounds N] [--only NAME ...] [--json FILE]

The packages alternate, with a new process for each import, and figures are medians of the rounds. A
first round makes Python write its bytecode and the system cache the files. Processor time is that
of all threads, including the kernel's.
"""

import argparse
import os
import statistics
import subprocess
import sys

from machine import about, share_software_driver, write

ROUNDS = 15
IMPORTS = {
    "cudadrv": "import cudadrv",
    "cuda.bindings": "from cuda.bindings import driver",
    "cuda.core": "import cuda.core",
    "CuPy": "import cupy",
    "PyCUDA": "import pycuda.driver",
    "PyTorch": "import torch",
    "numba-cuda": "from numba import cuda",
}
PROGRAM = """\
import time
import numpy
wall, processor = time.perf_counter(), time.process_time()
try:
    {statement}
except ImportError as missing:
    raise SystemExit(str(missing))
print(time.perf_counter() - wall, time.process_time() - processor)
"""


def timed(statement):
    """Return wall and processor time of an import in milliseconds, or the reason why it fails."""
    command = [sys.executable, "-c", PROGRAM.format(statement=statement)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # NumPy's threads spin at the start
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip().rpartition("\n")[2]
    return [float(word) * 1e3 for word in done.stdout.split()], None


def measure(names, rounds):
    """Return ``{name: [[wall, processor], ...]}`` of the packages that are installed."""
    times = {}
    for name in names:
        _, missing = timed(IMPORTS[name])
        if missing is None:
            times[name] = []
        else:
            print(f"without {name}: {missing}", file=sys.stderr)
    for _ in range(rounds):
        for name, taken in times.items():
            figures, failed = timed(IMPORTS[name])
            if failed is not None:
                sys.exit(f"{name} was imported once, but not again: {failed}")
            taken.append(figures)
    return times


def rows(times):
    """Return median and quartiles of both times."""
    found = {}
    for name, taken in times.items():
        found[name] = {}
        for what, figures in zip(
            ("wall ms", "processor ms"), zip(*taken, strict=True), strict=True
        ):
            ordered = sorted(figures)
            quarter = len(ordered) // 4
            found[name][what] = {
                "median": statistics.median(ordered),
                "low": ordered[quarter],
                "high": ordered[-1 - quarter],
            }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=IMPORTS, default=list(IMPORTS))
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("there is at least one round")
    share_software_driver()  # because some packages search for the driver when they are imported
    machine = about()
    found = rows(measure(options.only, options.rounds))
    print(f"Python {machine['python']}, {machine['cpus']} cores, {machine['date']};", end=" ")
    print(f"medians of {options.rounds} rounds and their quartiles, ms after `import numpy`")
    print(f"{'':15}{'wall':>8}{'':18}{'processor':>12}")
    for name, row in found.items():
        cells = [
            f"{cell['median']:8.1f} ({cell['low']:.1f}-{cell['high']:.1f})" for cell in row.values()
        ]
        print(f"{name:15}{cells[0]:26}{cells[1]}")
    if options.json:
        write(options.json, found, machine | {"rounds": options.rounds})


if __name__ == "__main__":
    main()
