"""Runs the tests of other packages, and compares each outcome with the expected one.

Tests that fail or skip are listed in expected/SUITE.txt, each with a reason. Every difference is an
error. A listed test that passes or does not exist is a difference, too. With --checks, what the
checks inside kernels find also has to be listed there.
Each module of tests runs in its own process. So a failing test does not make tests of other modules
fail, for example by a stream capture that it leaves open. After a test that lost the device, the
rest of its module runs in a new process.

Some packages have no tests in their distributions. Their suites need --sources, a folder with
checkouts of their repositories, and run in environments of their own under build/external.
"""

import argparse
import collections
import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import files, version
from pathlib import Path
from typing import NamedTuple

import unittest_module

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCHEDULES = ("eager", "lazy", "random")
MOST = 20_000  # characters of a report that are kept
TIMEOUT = 1800  # seconds for one module; on an idle machine, the longest one takes 100 seconds
# Each module runs in a process that is forked from a server. The server has imported the packages
# whose import takes long, and has not loaded the driver.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["cuda.core", "numba", "pytest"])


class Suite(NamedTuple):
    title: str  # title in the table of results
    distribution: str
    # Folder of the tests: in the distribution, where make has put its source, or after SOURCES in
    # the folder of checkouts.
    folder: str
    package: str = ""  # package of unittest tests; if empty, pytest runs the files of the folder
    plugins: tuple[str, ...] = ()  # plugins for pytest
    schedules: tuple[str, ...] = SCHEDULES  # schedules under which CI runs the suite
    checkout: str = ""  # the repository and the tag or commit that the suite needs
    requires: tuple[str, ...] = ()  # what pip installs in the suite's own environment
    variables: tuple[str, ...] = ()  # environment variables of the tests: NAME=VALUE
    files: str = "test_*.py"
    keyword: str = ""  # for pytest's -k
    isolated: bool = True  # whether each test has a process from the start
    settings: str = ""  # more settings of the software driver
    data: tuple[str, ...] = ()  # folders that the tests expect in the current folder


SOURCES = "SOURCES"
NUMBA = "numba_cuda/numba/cuda/tests"
SUITES = {
    "numba-cudadrv": Suite(
        "numba-cuda, tests of its driver layer", "numba-cuda", f"{NUMBA}/cudadrv",
        "numba.cuda.tests.cudadrv", schedules=("random",),
    ),
    "numba-cudapy": Suite(
        "numba-cuda, tests of kernels in Python", "numba-cuda", f"{NUMBA}/cudapy",
        "numba.cuda.tests.cudapy",
    ),
    "pycuda": Suite(
        "PyCUDA, compiled to PTX", "pycuda", "build/external/pycuda/test",
        plugins=("pycuda_to_ptx",),
    ),
    "triton": Suite(
        "Triton, kernels compiled for sm_90", "triton", "tests/external/triton_kernels",
        requires=("triton==3.9.0",),
        variables=(f"TRITON_CACHE_DIR={ROOT}/build/external/triton/cache",),
    ),
    "zluda": Suite(
        "ZLUDA, values of PTX instructions", "", "tests/external/zluda",
        checkout="vosen/ZLUDA 8a7931be",
    ),
    "drjit": Suite(
        "Dr.Jit, tests of its CUDA backend", "drjit", f"{SOURCES}/drjit/tests",
        checkout="mitsuba-renderer/drjit v1.5.0", requires=("drjit==1.5.0", "numpy"),
        keyword="cuda", schedules=("eager",), isolated=False, settings="shared_rounding=128",
    ),
    "ocelot": Suite(
        "gpuocelot, loads of its PTX files", "", "tests/external/ocelot",
        checkout="gtcasl/gpuocelot fa63920e", schedules=("eager",),
    ),
    "samples": Suite(
        "NVIDIA's CUDA samples, those of the driver API", "", "tests/external/programs",
        checkout="NVIDIA/cuda-samples c94ff366",
        variables=(
            "PROGRAMS=build/**/*Drv build/**/*_nvrtc build/**/matrixMulDynlinkJIT"
            " build/**/vectorAddMMAP build/**/threadMigration build/**/ptxjit"
            " build/**/simpleDrvRuntime",
            "SKIPS=2",
        ),
        schedules=("eager",), files="test_programs.py",
    ),
    "halide": Suite(
        "Halide, correctness programs that name a GPU", "halide", "tests/external/programs",
        checkout="halide/Halide v21.0.0", requires=("halide==21.0.0",), schedules=("eager",),
        files="test_halide.py",
    ),
    "cutlass": Suite(
        "CUTLASS, products of matrices for sm_90a", "", "tests/external/programs",
        checkout="NVIDIA/cutlass v4.7.0", schedules=("eager",), files="test_cutlass.py",
    ),
    # Slang looks for libnvrtc.so in $CUDA_PATH/lib, and for headers beside it.
    "slang": Suite(
        "Slang, tests of slangpy's functions on CUDA", "slangpy",
        f"{SOURCES}/slangpy/slangpy/tests/slangpy_tests", checkout="shader-slang/slangpy v0.43.1",
        requires=("slangpy==0.43.1", "deepdiff==9.1.0"),
        variables=(f"CUDA_PATH={ROOT}/build/external", "PYTEST_ADDOPTS=--device-types cuda"),
        schedules=("eager",), isolated=False,
    ),
    "quadrants": Suite(
        "Quadrants, tests of its CUDA backend", "quadrants", f"{SOURCES}/quadrants/tests/python",
        checkout="Genesis-Embodied-AI/quadrants v1.3.0",
        requires=("quadrants==1.3.0", "numpy", "pytest-xdist"),
        variables=("QD_WANTED_ARCHS=cuda", f"PYTHONPATH={SOURCES}/quadrants"),
        schedules=("eager",), isolated=False,
    ),
    "numba-cuda-mlir": Suite(
        "numba-cuda-mlir, tests of kernels in Python", "numba_cuda_mlir",
        f"{SOURCES}/numba-cuda-mlir/tests", checkout="NVIDIA/numba-cuda-mlir v0.5.0",
        requires=(
            "numba_cuda_mlir[cu13]==0.5.0", "cffi", "filecheck", "ml-dtypes", "pytest-benchmark",
        ),
        schedules=("eager",),
    ),
    "openmm": Suite(
        "OpenMM, tests of Python that use its CUDA platform", "openmm",
        f"{SOURCES}/openmm/wrappers/python/tests",
        checkout="openmm/openmm 1a47c2f68", requires=("openmm[cuda13]==8.6.1", "numpy"),
        variables=("OPENMM_DEFAULT_PLATFORM=CUDA",), schedules=("eager",), isolated=False,
        files="Test[BDINRS]*.py", data=("systems",),
    ),
}  # fmt: skip


class Expected(NamedTuple):
    """A line of expected outcomes: `fails TEST: REASON` or `skips TEST: REASON`.

    `finds TEST: REASON` explains a hazard that the checks inside kernels find in a test.
    A name that ends with * stands for all tests that begin so, and have this outcome.
    """

    outcome: str
    test: str
    reason: str

    @property
    def evidence(self):
        """The text in parentheses at the end of the reason, which the report has; or ""."""
        found = re.search(r"\((.*)\)$", self.reason)
        return found[1] if found else ""

    def names(self, test):
        return test.startswith(self.test[:-1]) if self.test.endswith("*") else test == self.test

    def explains(self, test, outcome, report):
        return self.names(test) and self.outcome == outcome and self.evidence in report


def read_expected(suite):
    """Read expected outcomes."""
    path = HERE / "expected" / f"{suite}.txt"
    expected = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        found = re.fullmatch(r"(fails|skips|finds) (\S+): (.+)", line)
        if not found:
            sys.exit(f"{path}:{number}: none of 'fails TEST: REASON', 'skips ...' and 'finds ...'")
        expected.append(Expected(*found.groups()))
    return expected


def checkout_of(suite, sources):
    """The folder of the checkout that a suite needs: its repository's name in `sources`."""
    return sources / suite.checkout.partition(" ")[0].rpartition("/")[2]


def folder_of(suite, sources):
    return ROOT / suite.folder.replace(SOURCES, str(sources))


def modules(suite, sources):
    if suite.package:
        found = [Path(file) for file in files(suite.distribution)]
        return sorted(file.stem for file in found if file.match(f"{suite.folder}/{suite.files}"))
    return sorted(path.stem for path in folder_of(suite, sources).glob(suite.files))


def python_of(suite):
    """The Python of the suite's environment, which is made if what it requires has changed."""
    if not suite.requires:
        return sys.executable
    folder = ROOT / "build/external" / suite.distribution
    stamp, python = folder / "requires.txt", folder / "bin/python"
    wanted = "\n".join([*suite.requires, f"pytest=={version('pytest')}", "numpy"])
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*pip, *wanted.splitlines()], check=True)
        stamp.write_text(wanted)
    return str(python)


def release_of(suite):
    """The version of the tested distribution, or of the checkout if there is no distribution."""
    if not suite.distribution:
        return suite.checkout.partition(" ")[2]
    pinned = dict(
        re.sub(r"\[.*\]", "", each).split("==") for each in suite.requires if "==" in each
    )
    return pinned.get(suite.distribution) or version(suite.distribution)


def run_module(suite, sources, schedule, checks, module):
    """Run one module. Returns {test: [outcome, report, hazards]}."""
    # Some tests need a second device.
    settings = f"devices=2,driver=13.5,schedule={schedule},seed=3,checks={checks}"
    settings += f",{suite.settings}" if suite.settings else ""
    with tempfile.TemporaryDirectory() as folder:
        if suite.package:
            return run_unittest(suite, settings, module, Path(folder))
        return run_pytest(suite, sources, settings, module, Path(folder))


def read_outcomes(file, ending):
    """Read the outcomes that processes have written. Returns {test: [outcome, report, hazards]}.

    A test that has started and has no outcome has ended its process. It fails with the report
    `ending`.
    """
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    outcomes = {name: outcome for name, *outcome in map(json.loads, lines)}
    for name in [name for name, (outcome, *_) in outcomes.items() if outcome == "started"]:
        outcomes[name] = ["fails", ending, []]
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps([name, *outcomes[name]]) + "\n")
    return outcomes


def run_unittest(suite, settings, module, folder):
    file, printed = folder / "outcomes.jsonl", folder / "printed.txt"
    outcomes = {}
    while True:
        before = len(outcomes)
        arguments = (suite.package, module, set(outcomes), settings, file, printed)
        process = FORKED.Process(target=unittest_module.run, args=arguments)
        process.start()
        process.join(TIMEOUT)
        how = f"ended with {process.exitcode}"
        if process.exitcode is None:
            process.kill()
            process.join()
            how = f"did not end within {TIMEOUT} seconds"
        said = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
        outcomes = read_outcomes(file, f"the process {how}\n{said[-MOST:]}")
        if len(outcomes) == before:  # no test is left to run
            if not outcomes and process.exitcode:
                return {module: ["fails", how, []]}
            return outcomes


def run_pytest(suite, sources, settings, module, folder):
    plugins = ("pytest_cudadrv", "pytest_outcomes", *suite.plugins)
    given = [each.replace(SOURCES, str(sources)).split("=", 1) for each in suite.variables]
    variables = {"PYTHONPATH": "", **dict(given)}
    variables["PYTHONPATH"] = os.pathsep.join([str(HERE), str(ROOT), variables["PYTHONPATH"]])
    tests = folder_of(suite, sources)
    # Suites that are written here use no conftest.py of this repository.
    alone = ["--noconftest"] if HERE in tests.parents else []
    command = [
        *(python_of(suite), "-m", "pytest", "-q", "-c", os.devnull),
        # Without isolation, a test can end the process. What it said must not be lost.
        *(["--cuda-isolate"] if suite.isolated else ["-s"]),
        *(word for plugin in plugins for word in ("-p", plugin)),
        *("-p", "no:cacheprovider", "--rootdir", folder),
        *(*alone, "-k", suite.keyword, tests / f"{module}.py"),
    ]
    environment = {
        **os.environ,
        **variables,
        "SUITE_SOURCE": str(checkout_of(suite, sources)) if sources else "",
        "CUDADRV_SOFTWARE": settings,
        "OUTCOMES": str(folder / "outcomes.jsonl"),
    }
    for name in suite.data:
        (folder / name).symlink_to(tests / name)
    file, outcomes = folder / "outcomes.jsonl", {}
    while True:
        before = len(outcomes)
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
        )
        if not file.exists():
            return {module: ["fails", f"ended with {done.returncode}\n{done.stdout[-4000:]}", []]}
        how = f"ended with {done.returncode}"
        outcomes = read_outcomes(file, f"the process {how}\n{done.stdout[-MOST:]}")
        if done.returncode >= 0 or len(outcomes) == before:  # no test is left to run
            return outcomes


def run_all(suite, schedules, options):
    """Run all modules under all schedules.

    Returns {test: {schedule: (outcome, report, hazards)}}.
    """
    results = collections.defaultdict(dict)
    sources, checks, only = options.sources, options.checks, options.only
    chosen = [module for module in modules(suite, sources) if not only or module in only]
    tasks = [
        (suite, sources, schedule, checks, module) for module in chosen for schedule in schedules
    ]
    python_of(suite)  # made before several processes need it
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        all_outcomes = pool.map(lambda task: run_module(*task), tasks)
        for (_, _, schedule, *_), outcomes in zip(tasks, all_outcomes, strict=True):
            for test, outcome in outcomes.items():
                results[test][schedule] = tuple(outcome)
    return results


def differences(expected, results):
    """A message for each test whose outcome differs from the expected one under any schedule."""
    used = set()
    for test, by_schedule in sorted(results.items()):
        wanted = [each for each in expected if each.names(test)]
        sure = [each for each in wanted if not each.test.endswith("*") and each.outcome != "finds"]
        wrong = {}
        for schedule, (outcome, report, _) in by_schedule.items():
            reasons = [each for each in wanted if each.explains(test, outcome, report)]
            used.update(reasons)
            if not reasons and (outcome != "passes" or sure):
                wrong[schedule] = outcome
        if wrong:
            where = ", ".join(f"{outcome} under {schedule}" for schedule, outcome in wrong.items())
            lines = [f"; expected: {each.outcome}: {each.reason}" for each in sure]
            report = by_schedule[next(iter(wrong))][1]
            yield f"{test} {where}{''.join(lines)}\n{report}".rstrip()
    yield from hazard_differences(expected, results)
    for each in expected:
        if each not in used and not any(each.names(test) for test in results):
            yield f"{each.test} is listed, but there is no such test"


def hazard_differences(expected, results):
    """A message for each hazard that no line explains."""
    known = [each for each in expected if each.outcome == "finds"]
    for test, by_schedule in sorted(results.items()):
        unknown = {
            hazard
            for _, _, hazards in by_schedule.values()
            for hazard in hazards
            if not any(each.explains(test, "finds", hazard) for each in known)
        }
        for hazard in sorted(unknown):
            yield f"{test} finds\n{hazard}"


def counts_of(results, schedule):
    outcomes = [found[schedule][0] for found in results.values() if schedule in found]
    return [outcomes.count(word) for word in ("passes", "fails", "skips")]


def merge_kept(file, options, results, seconds):
    """Write results to a file.

    If only some modules ran, the file keeps the results of the others.
    """
    if options.only and file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        others = {
            test: outcomes
            for test, outcomes in kept["results"].items()
            if test.partition(".")[0] not in options.only
        }
        results, seconds = {**others, **results}, kept["seconds"]
    content = {"seconds": seconds, "results": results}
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return results, seconds


def run_suite(name, options):
    """Run a suite and print its differences.

    Returns a row of the table, and the number of differences.
    """
    suite, began = SUITES[name], time.monotonic()
    schedules = tuple(options.schedule or suite.schedules)
    results = run_all(suite, schedules, options)
    seconds = time.monotonic() - began
    if options.keep:
        results, seconds = merge_kept(options.keep / f"{name}.json", options, results, seconds)
    for test, by_schedule in results.items():
        if options.show and options.show in test:
            for schedule, (outcome, report, _) in by_schedule.items():
                print(f"--- {test} {outcome} under {schedule}\n{report}")
    found = list(differences(read_expected(name), results))
    for difference in found:
        print(f"=== {difference}\n")
    release = release_of(suite)
    for schedule in schedules:
        passes, fails, skips = counts_of(results, schedule)
        counts = f"{passes} passes, {fails} fails, {skips} skips"
        print(f"{name} {release}, {schedule}: {counts} ({seconds:.0f} s)")
    print(f"{len(found)} tests not as expected" if found else "All as expected")
    row = [suite.title, release, *counts_of(results, schedules[0]), f"{seconds:.0f}"]
    return row, len(found) + (not results)


TABLE_HEAD = """\
# Other people's tests

Made by `make suites`, which runs the tests of other packages on the software driver, as their own
distributions or the checkouts of their repositories have them. A test that fails is listed below
with its reason. The own tests of cuda.bindings and cuda.core are missing, because their wheels do
not contain them: `tests/external` has other programs, which use these packages.
"""


def table_text(rows):
    lines = [TABLE_HEAD, "\n| suite | version | pass | fail | skip | seconds |\n"]
    lines.append("|---|---|---|---|---|---|\n")
    lines += ["| " + " | ".join(map(str, row)) + " |\n" for row in rows.values()]
    processors = len(os.sched_getaffinity(0))
    lines.append(
        f"\nMeasured with Python {platform.python_version()}, the schedule `eager` and the settings"
        f"\n`devices=2,driver=13.5`, on a shared machine with {processors} processors, on"
        f" {time.strftime('%Y-%m-%d')}.\n"
    )
    for name in rows:
        failing = [
            f"| `{each.test}` | {each.reason} |\n"
            for each in read_expected(name)
            if each.outcome == "fails"
        ]
        if failing:
            lines += [f"\n## {SUITES[name].title}: what fails\n\n| test | reason |\n|---|---|\n"]
            lines += failing
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "suites", nargs="+", choices=SUITES, metavar="SUITE", help=", ".join(SUITES)
    )
    parser.add_argument("--schedule", choices=SCHEDULES, action="append", help="default: all")
    parser.add_argument(
        "--checks", default="off", metavar="NAMES", help="checks inside kernels: all, race+sync..."
    )
    parser.add_argument("--show", metavar="WORD", help="print the reports of tests named so")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write all outcomes there")
    parser.add_argument(
        "--only",
        metavar="MODULE",
        action="append",
        help="run this module alone; with --keep, the others' outcomes are those of the last time",
    )
    parser.add_argument(
        "--sources", metavar="FOLDER", type=Path, help="has checkouts of repositories, by name"
    )
    parser.add_argument("--table", metavar="FILE", type=Path, help="write the page of the docs")
    options = parser.parse_args()
    if options.sources:
        options.sources = options.sources.resolve()
    for suite in map(SUITES.get, options.suites):
        if suite.checkout and not (
            options.sources and checkout_of(suite, options.sources).exists()
        ):
            parser.error(f"{suite.title} needs --sources with a checkout of {suite.checkout}")
    rows, wrong = {}, 0
    for name in options.suites:
        rows[name], different = run_suite(name, options)
        wrong += different
    if options.table and not wrong:
        options.table.write_text(table_text(rows), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
