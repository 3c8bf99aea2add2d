"""Asks a CUDA driver questions and writes its answers: ``section / question = answer`` lines.

Needs nothing but Python: ``python3 conformance/probe --library libcuda.so.1 --output FILE``.
Each section runs in a process of its own. If a question kills this process or hangs, its answer
says so, and a new process answers the remaining questions.
"""

import argparse
import datetime
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import runner
from sections import NAMES


def arguments():
    parser = argparse.ArgumentParser(prog="probe", description=__doc__)
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--output", help="a file; without it, the standard output")
    parser.add_argument("--sections", help="only these, separated by commas")
    parser.add_argument("--question", help="only questions whose name contains this")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--patience", type=float, default=0.06, help="seconds: longer is blocking")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for one question")
    return parser.parse_args()


def main():
    warnings.simplefilter("ignore")
    options = arguments()
    if not options.output:
        return write(options, sys.stdout)
    with Path(options.output).open("w", encoding="utf-8") as out:
        return write(options, out)


def write(options, out):
    for line in runner.header(options):
        print("#", line, file=out)
    for name in options.sections.split(",") if options.sections else NAMES:
        for line in runner.section(options, name):
            print(line, file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
