"""Runs numba-cuda's own driver tests and compares each outcome with what is expected.

Tests that fail or skip are listed in numba_expected.txt, with a reason each. Every difference is an
error, also a listed test that passes or does not exist. Each module of tests runs in a process of
its own: what a test that fails leaves behind, an open stream capture say, must not fail others.
"""

import argparse
import collections
import json
import multiprocessing
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import files, version
from pathlib import Path

import numba_module

HERE = Path(__file__).parent
EXPECTED = HERE / "numba_expected.txt"
FOLDER = "numba_cuda/numba/cuda/tests/cudadrv"
SCHEDULES = ("eager", "lazy", "random")
TIMEOUT = 1800  # seconds for one module; on an idle machine the longest takes 10
# The process of each module is forked from a server that has imported the packages whose import
# takes longest. The server has not loaded the driver.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["cuda.core", "numba", "pytest"])


def read_expected():
    """{test: (outcome, evidence)} of lines `fails TEST: REASON` and `skips TEST: REASON`.

    The evidence is what the reason has in parentheses, or nothing.
    """
    expected = {}
    for number, line in enumerate(EXPECTED.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        outcome, _, rest = line.partition(" ")
        test, _, reason = rest.partition(": ")
        if outcome not in ("fails", "skips") or not reason or test in expected:
            sys.exit(f"{EXPECTED}:{number}: neither 'fails TEST: REASON' nor 'skips ...', or twice")
        evidence = re.search(r"\((.*)\)$", reason)
        expected[test] = outcome, evidence[1] if evidence else ""
    return expected


def modules():
    found = [Path(file) for file in files("numba-cuda")]
    return sorted(file.stem for file in found if file.match(f"{FOLDER}/test_*.py"))


def run_module(schedule, module):
    """{test: [outcome, report]} of one module. A process that dies is a test that fails."""
    # Two devices, because some tests need a second one.
    settings = f"devices=2,schedule={schedule},seed=3"
    with tempfile.TemporaryDirectory() as folder:
        file, printed = Path(folder) / "outcomes.json", Path(folder) / "printed.txt"
        process = FORKED.Process(target=numba_module.run, args=(module, settings, file, printed))
        process.start()
        process.join(TIMEOUT)
        if process.exitcode is None:
            process.kill()
            process.join()
            return {module: ["fails", f"did not end within {TIMEOUT} seconds\n"]}
        if process.exitcode or not file.exists():
            text = printed.read_text(encoding="utf-8", errors="replace")
            return {module: ["fails", f"ended with {process.exitcode}\n{text[-4000:]}"]}
        return json.loads(file.read_text(encoding="utf-8"))


def run_all(schedules):
    """{test: {schedule: (outcome, report)}}."""
    results = collections.defaultdict(dict)
    tasks = [(schedule, module) for module in modules() for schedule in schedules]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        all_outcomes = pool.map(lambda task: run_module(*task), tasks)
        for (schedule, _), outcomes in zip(tasks, all_outcomes, strict=True):
            for test, outcome in outcomes.items():
                results[test][schedule] = tuple(outcome)
    return results


def differences(expected, results):
    """A message for each test whose outcome is not the expected one, under any schedule."""
    for test in sorted(expected.keys() - results.keys()):
        yield f"{test} is listed, but there is no such test"
    for test, by_schedule in sorted(results.items()):
        wanted, evidence = expected.get(test, ("passes", ""))
        wrong = {
            schedule: (outcome, report)
            for schedule, (outcome, report) in by_schedule.items()
            if outcome != wanted or evidence not in report
        }
        if not wrong:
            continue
        where = ", ".join(f"{outcome} under {schedule}" for schedule, (outcome, _) in wrong.items())
        because = f" because of {evidence}" if evidence else ""
        report = next(iter(wrong.values()))[1]
        yield f"{test} {where}; expected: {wanted}{because}\n{report}".rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedule", choices=SCHEDULES, action="append", help="default: all")
    parser.add_argument("--show", metavar="WORD", help="print the reports of tests named so")
    options = parser.parse_args()
    schedules = tuple(options.schedule or SCHEDULES)

    expected = read_expected()
    results = run_all(schedules)
    for test, by_schedule in results.items():
        if options.show and options.show in test:
            for schedule, (outcome, report) in by_schedule.items():
                print(f"--- {test} {outcome} under {schedule}\n{report}")
    found = list(differences(expected, results))
    for difference in found:
        print(f"=== {difference}\n")
    for schedule in schedules:
        outcomes = [found[schedule][0] for found in results.values() if schedule in found]
        counts = (f"{outcomes.count(word)} {word}" for word in ("passes", "fails", "skips"))
        print(f"numba-cuda {version('numba-cuda')}, {schedule}: {', '.join(counts)}")
    print(f"{len(found)} tests not as expected" if found else "All as expected")
    return 1 if found or not results else 0


if __name__ == "__main__":
    sys.exit(main())
