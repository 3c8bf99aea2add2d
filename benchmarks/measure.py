"""Measures everything that the documentation reports: calls, bandwidth, a pipeline, importing.

    python benchmarks/measure.py [--json FILE] [--draw FOLDER] [--quick]
        [--parts PART ...] [--only NAME ...]

Prints tables, and writes and draws the results if asked. Every part runs in a separate process, so
that memory pools, threads and imported packages of one part do not disturb the next. A part that
fails is reported and does not affect the others; the exit status is then 1. A full run takes a few
minutes; `--quick` takes seconds, to see whether everything works.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import tables

HERE = Path(__file__).resolve().parent
PARTS = {
    "calls": ([], ["--rounds=2"]),
    "bandwidth": ([], ["--seconds=0", "--largest=1048576"]),
    "pipeline": ([], ["--rounds=1", "--size=4", "--chunk=1"]),
    "imports": (["--rounds=9"], ["--rounds=1", "--only", "cudadrv", "cuda.bindings"]),
    "interop": ([], ["--rounds=2"]),
    "managed": ([], ["--rounds=1", "--seconds=0", "--size=2", "--chunk=1"]),
    "graphs": ([], ["--rounds=2"]),
}
COMPARING = ("calls", "bandwidth", "imports", "graphs")
LIMIT = 240  # seconds for a part
MACHINE = (
    "date",
    "device",
    "driver",
    "cuda",
    "software",
    "python",
    "processor",
    "cpus",
    "versions",
)


def run(name, quick, only):
    """Return the results of a part, and the reason why it failed; each may be None."""
    options = PARTS[name][quick]
    if only and name in COMPARING:
        options = [*options, "--only", *only]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        command = [sys.executable, HERE / f"{name}.py", *options, "--json", file]
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return None, f"it took more than {LIMIT} seconds"
        problem = f"exit status {done.returncode}" if done.returncode else None
        return (json.loads(file.read_text()) if file.exists() else None), problem


def measure(names, quick=False, only=None):
    """Yield all results so far, under one head, after each part."""
    results = {"parts": {}, "failed": {}}
    for name in names:
        found, problem = run(name, quick, only)
        if problem:
            print(f"{name} failed: {problem}", file=sys.stderr)
            results["failed"][name] = problem
        if found:
            head = {word: found.pop(word) for word in MACHINE if word in found}
            results = {**head, **results}
            results["parts"][name] = found
        yield results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="and pictures of them here")
    parser.add_argument("--quick", action="store_true", help="few rounds: the figures mean nothing")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="no bindings but these")
    options = parser.parse_args()
    if options.draw:
        try:
            import draw
        except ImportError as missing:
            parser.error(f"--draw needs matplotlib (the extra `bench`): {missing}")
    for results in measure(options.parts, options.quick, options.only):
        if options.json:  # after each part, because the rest may be interrupted
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    if not results["parts"]:
        sys.exit("nothing could be measured")
    print(tables.report(results), flush=True)
    if options.draw:
        draw.draw(results, options.draw)
    sys.exit(1 if results["failed"] else 0)


if __name__ == "__main__":
    main()
