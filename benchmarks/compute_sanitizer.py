"""What compute-sanitizer and the software driver find in kernels with mistakes.

    python benchmarks/compute_sanitizer.py [--jobs N] [--seconds N] [--log FILE] [--only TEXT]

It needs a GPU, compute-sanitizer, nvcc and cudadrv. Each kernel of mistakes.py, and the programs
of examples/kernels without one of their barriers, run in a wrong and in a right form: under each
tool of compute-sanitizer on the GPU, and under `python -m cudadrv run --checks all`. Each run is a
process, and ends after some seconds. The result is a Markdown table. What did not run is printed
below it. Without a GPU, `--only-software` leaves the tools out.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import mistakes

from cudadrv import toolkit

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("racecheck", "initcheck", "synccheck", "memcheck")
OURS = "software driver"
# The tools use the GPU's driver, whatever the caller has chosen.
ENVIRONMENT = {name: value for name, value in os.environ.items() if "CUDADRV" not in name}
ENVIRONMENT["PYTHONPATH"] = str(ROOT)
MOST_SECONDS = 20  # of a process
BARRIER = re.compile(r"bar(?:rier)?\.sync[^;]*;")
# The last lines of the tools' reports.
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?$|hazards? displayed)", re.M)
# memcheck also reports calls that return an error, such as cudadrv's questions to the driver.
OF_CALLS = re.compile(r"^=+ Program hit CUDA_ERROR", re.M)

_spec = importlib.util.spec_from_file_location(
    "examples", ROOT / "tests" / "kernels" / "checks" / "examples.py"
)
examples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(examples)


class Run(NamedTuple):
    """A program in one form, under one tool. `found`: how many reports, or why there are none."""

    name: str
    form: str
    tool: str
    found: int | str
    output: str


def commands(folder, only, pool):
    """Write the PTX. Return the command of each program, by its name and form."""

    def compiled(key):
        name, form = key
        options = ["-lineinfo", *(["-DWRONG"] if form == "wrong" else [])]
        path = folder / f"{mistakes.kernels(name)[0]}-{form}.ptx"
        text = mistakes.source([name])
        path.write_text(toolkit.compile(text, arch="compute_90", options=options, name="k.cu"))
        return key, [mistakes.__file__, name, form, str(path)]

    made = dict(
        pool.map(
            compiled,
            [
                (name, form)
                for name, mistake in mistakes.MISTAKES.items()
                for form in ("right", "wrong")[: 2 - mistake.only_right]
                if only in name
            ],
        )
    )
    for program in examples.PROGRAMS:
        text = examples.ptx(program)
        for number, place in enumerate(BARRIER.finditer(text)):
            name = f"{program}.ptx without barrier {number + 1}"
            for form in ("right", "wrong") if only in name else ():
                path = folder / f"{program}-{number}-{form}.ptx"
                path.write_text(text if form == "right" else examples.without(text, place))
                made[name, form] = [__file__, "--example", program, str(path)]
    return made


def run(name, form, tool, command, folder, deadline):
    """Run a program under a tool."""
    left = min(MOST_SECONDS, deadline - time.monotonic())
    if left <= 0:
        return Run(name, form, tool, "not run", "no time was left")
    report = folder / f"{abs(hash((name, form)))}.json"
    if tool == OURS:
        options = ["--checks", "all", "--schedule", "random", "--json", str(report)]
        whole = [sys.executable, "-m", "cudadrv", "run", *options, "--", sys.executable, *command]
    else:
        whole = [
            "compute-sanitizer",
            "--tool",
            tool,
            "--print-limit",
            "50",
            sys.executable,
            *command,
        ]
    with subprocess.Popen(
        whole,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=folder,
        env=ENVIRONMENT,
    ) as process:
        try:
            output, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Run(name, form, tool, "hangs", output)
    return Run(name, form, tool, found_by(tool, output, report), output)


def found_by(tool, output, report):
    if tool == OURS:
        if not report.exists():
            return "failed"
        said = json.loads(report.read_text("utf-8"))
        if not said["calls"]:
            return "failed"
        return sum(len(said[kind]) for kind in ("hazards", "data_races", "kernel_faults"))
    summary = SUMMARY.search(output)
    if not summary:
        return "failed"
    count = int(summary[1]) - len(OF_CALLS.findall(output))
    if not count and "\nran" not in f"\n{output}":
        return "error"  # of the program
    return count


def cell(found):
    return "-" if found is None else str(found) if found else ""


def table(runs, tools):
    """Return the lines of the table, and of the numbers below it."""
    by = {(each.name, each.form, each.tool): each.found for each in runs}
    names = dict.fromkeys(each.name for each in runs)
    lines = [
        f"| mistake | {' | '.join(tools)} | reports for the right form |",
        f"|---|{'---|' * (len(tools) + 1)}",
    ]
    for name in names:
        wrong = [cell(by.get((name, "wrong", tool))) for tool in tools]
        alarms = [
            f"{tool}: {by[name, 'right', tool]}" for tool in tools if by.get((name, "right", tool))
        ]
        lines.append(f"| {name} | {' | '.join(wrong)} | {', '.join(alarms)} |")
    of_nvidia = [tool for tool in tools if tool != OURS]
    for form, words in (("wrong", "wrong forms reported"), ("right", "right forms reported")):
        shown = [name for name in names if (name, form, tools[-1]) in by]

        def found(name, some, form=form):
            return any(
                isinstance(by[name, form, each], int) and by[name, form, each] for each in some
            )

        counts = [
            f"{who} {sum(found(name, some) for name in shown)}"
            for who, some in (("compute-sanitizer", of_nvidia), ("the software driver", [OURS]))
            if some
        ]
        lines.append(f"\n{words}, of {len(shown)}: {', '.join(counts)}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=180, help="for all runs; default 180")
    parser.add_argument("--log", type=Path, help="write what each run has printed to this file")
    parser.add_argument("--only", default="", help="only programs whose names contain this")
    parser.add_argument("--only-software", action="store_true")
    parser.add_argument("--example", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.example:
        name, path = args.example
        with tempfile.TemporaryDirectory() as folder:
            examples.run(name, Path(path).read_text("utf-8"), Path(folder))
        return print("ran")
    if not args.only_software and not shutil.which("compute-sanitizer"):
        parser.error("compute-sanitizer is not on the PATH")
    tools = (OURS,) if args.only_software else (*TOOLS, OURS)
    deadline = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        programs = commands(Path(folder), args.only, pool)
        # Wrong forms first: if time runs out, only right forms are missing.
        order = sorted(programs, key=lambda key: key[1] == "right")
        runs = list(
            pool.map(
                lambda each: run(*each, programs[each[:2]], Path(folder), deadline),
                [(name, form, tool) for name, form in order for tool in tools],
            )
        )
    print("\n".join(table(sorted(runs, key=lambda each: list(programs).index(each[:2])), tools)))
    if args.log:
        with args.log.open("w", encoding="utf-8") as log:
            for each in runs:
                log.write(
                    f"\n#### {each.name}, {each.form}, {each.tool}: {each.found}\n{each.output}"
                )
    for each in runs:
        if isinstance(each.found, int) or each.found == "not run":
            continue
        last = (each.output.strip().splitlines() or ["no output"])[-1]
        print(f"{each.found}: {each.name}, {each.form}, {each.tool}: {last}")
    print(f"not run, because no time was left: {sum(each.found == 'not run' for each in runs)}")


if __name__ == "__main__":
    main()
