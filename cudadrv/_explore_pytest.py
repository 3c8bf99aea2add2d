"""Runs one test of pytest under every schedule, or under the schedule of a script."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import CallInfo, call_and_report

from cudadrv import _explore, testing
from cudadrv._device import any_lost
from cudadrv._environment import SOFTWARE
from cudadrv._explore import Verdict
from cudadrv._explore_picture import picture_of
from cudadrv._explore_text import failure_as_json, told_of

Reports = list[pytest.TestReport]
EXPLORED = "cuda_explored"  # the attribute of a report with what was found, which xdist sends

PROCESSES = "several processes call the driver"  # Limit::Processes of the driver
PROGRESS_AFTER_S = 2.0
MOST_OF_NAME = 150  # characters of a test's name in the name of its picture


def explore_item(
    item: pytest.Item,
    nextitem: pytest.Item | None,
    most_runs: int,
    seconds: float,
    seed: int,
    pictures: Path | None,
) -> Reports:
    """Run a test under every schedule. Returns the reports of the first run, or of one that failed.

    Fixtures of wider scopes are made once, and end after the last run. ``pictures`` is the folder
    for a picture of a run that fails.
    """
    run = _repeated(item)
    progress = _Progress(item)

    def once() -> Reports:
        progress.step()
        return run()

    try:
        with _watched_processes() as others:
            explored = _explore.explore(
                once,
                _judge,
                most_runs=most_runs,
                seconds=seconds,
                saves=False,
                seed=seed,
                lines=True,
            )
            if others():
                explored = replace(explored, limits=(*explored.limits, PROCESSES))
    except _explore.FirstRunInterrupted as error:
        progress.interrupted(str(error))
        _drop_work()
        raise
    except _explore.NotRepeatableError as error:
        reports = [_failure(item, str(error))]
        found = {
            "summary": "not repeatable",
            "complete": False,
            "runs": 0,
            "limits": [str(error)],
            "failure": None,
        }
    else:
        if explored.interrupted:
            progress.interrupted(explored.summary())
            _drop_work()
            raise KeyboardInterrupt
        reports = explored.value if explored.failure is None else explored.failure.value
        found = {
            "summary": explored.summary(),
            "complete": explored.complete,
            "runs": explored.runs,
            "limits": list(explored.limits),
            "failure": explored.failure and failure_as_json(explored.failure),
        }
        if explored.failure is not None:
            _tell(reports, explored)
            if pictures is not None:
                _draw(reports, explored, pictures)
    progress.end()
    reports[-1].__dict__[EXPLORED] = found
    return reports + _end_wider_fixtures(item, nextitem)


@contextmanager
def _watched_processes() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether processes that a test has started call the driver.

    The driver writes a report of each process; what they do is not explored.
    """
    former = os.environ.get(SOFTWARE.name)
    asked = [item for item in (former or "").split(",") if item.startswith("report=")]
    folder = Path(asked[-1].partition("=")[2] if asked else tempfile.mkdtemp(prefix="cudadrv-"))
    before = {f"{os.getpid()}-", *map(_process_of, folder.glob("*.jsonl"))}
    if not asked:
        os.environ[SOFTWARE.name] = ",".join(filter(None, (former, f"report={folder}")))
    try:
        yield lambda: any(_process_of(file) not in before for file in folder.glob("*.jsonl"))
    finally:
        if not asked:
            shutil.rmtree(folder, ignore_errors=True)
            if former is None:
                del os.environ[SOFTWARE.name]
            else:
                os.environ[SOFTWARE.name] = former


def _process_of(report: Path) -> str:
    return report.name.partition("-")[0] + "-"


def replay_item(
    item: pytest.Item, nextitem: pytest.Item | None, script: str, seconds: float
) -> Reports:
    """Run a test once, for what it makes for later runs, and then again with the script."""
    run = _repeated(item)
    driver = _explore._library()
    testing.configure(f"milliseconds={_explore.most_milliseconds(seconds)}")
    driver.cudadrvSoftExploreStart(0)
    misfit = ""
    for text in (b"x", script.encode()):
        driver.cudadrvSoftExploreBegin(text, 0)
        reports = run()
        misfit = json.loads(driver.cudadrvSoftExploreEnd())["misfit"]
    driver.cudadrvSoftExploreStop()
    testing.configure("milliseconds=0")
    if misfit:
        why = (
            f"the script does not fit this test: {misfit}. Has the test changed since? If it uses"
            " the order of sets, set the same PYTHONHASHSEED for both"
        )
        reports = [_failure(item, why)]
    return reports + _end_wider_fixtures(item, nextitem)


def _drop_work() -> None:
    """Drop the work of an interrupted run: its fixtures would wait for it, and it may never end."""
    if testing.pending():
        testing.reset_device()


def _repeated(item: pytest.Item) -> Callable[[], Reports]:
    """Return a function that runs the test with its own fixtures, each time in the same state."""
    # pytest ends the fixtures that the next test does not need. This one is beside the test, so the
    # fixtures of its module, package and session stay.
    beside = copy.copy(item)
    generators = random.getstate(), _numpy_state()
    is_first = True

    def run() -> Reports:
        nonlocal is_first
        random.setstate(generators[0])
        if generators[1] is not None:
            sys.modules["numpy"].random.set_state(generators[1])
        if any_lost():
            testing.reset_device()
        reports = _run_once(item, beside, saves=is_first)
        is_first = False
        return reports

    return run


def _run_once(item: pytest.Item, nextitem: pytest.Item, *, saves: bool) -> Reports:
    """Run a test as pytest does. With `saves`, keep the bytes of the memory of wider fixtures.

    The fixtures exist when the test is called, and what the test writes is not among these bytes.
    """
    # A function item has attributes that Item lacks: its request, and the values of its fixtures.
    function: Any = item
    if hasattr(item, "_request") and not item._request:
        function._initrequest()
    reports = [call_and_report(item, "setup", log=False)]
    if reports[0].passed:
        if saves:
            _explore._library().cudadrvSoftExploreSave()
        reports.append(call_and_report(item, "call", log=False))
    reports.append(call_and_report(item, "teardown", log=False, nextitem=nextitem))
    if hasattr(item, "_request"):
        function._request, function.funcargs = False, None
    return reports


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _judge(reports: Reports) -> Verdict:
    """Whether the test has failed, even if it is expected to fail."""
    failed = [report for report in reports if _has_failed(report)]
    if failed and all(hasattr(report, "cuda_raced") for report in failed):
        return Verdict.RACED
    return Verdict.FAILED if failed else Verdict.PASSED


def _has_failed(report: pytest.TestReport) -> bool:
    if report.failed:
        return not str(report.longrepr).startswith("[XPASS(strict)]")
    return report.skipped and hasattr(report, "wasxfail")


def _failure(item: pytest.Item, text: str) -> pytest.TestReport:
    location = item.location
    return pytest.TestReport(item.nodeid, location, {}, "failed", text, "call")


def _tell(reports: Reports, explored: _explore.Explored[Reports]) -> None:
    failure = explored.failure
    assert failure is not None
    report = next(filter(_has_failed, reports))
    report.sections.append(("cudadrv: " + explored.summary(), told_of(failure)))
    report.__dict__["cuda_script"] = failure.script


def _draw(reports: Reports, explored: _explore.Explored[Reports], folder: Path) -> None:
    report = next(filter(_has_failed, reports))
    name = re.sub(r"[^\w.-]+", "_", report.nodeid).strip("_")
    file = folder / f"{name[-MOST_OF_NAME:]}.svg"
    file.write_text(picture_of(explored), encoding="utf-8")
    report.sections.append(("cudadrv", f"picture: {file}"))


def _end_wider_fixtures(item: pytest.Item, nextitem: pytest.Item | None) -> Reports:
    """End the fixtures that the next test does not need."""
    state = item.session._setupstate
    call = CallInfo.from_call(lambda: state.teardown_exact(nextitem), when="teardown")
    if call.excinfo is None:
        return []
    return [item.ihook.pytest_runtest_makereport(item=item, call=call)]


class _Progress:
    """A line on a terminal with the number of schedules, for tests that take long."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.start = self.told = time.monotonic()
        self.runs = 0
        self.reporter = reporter = item.config.pluginmanager.getplugin("terminalreporter")
        self.writer = reporter._tw if reporter is not None and reporter.isatty else None

    def step(self) -> None:
        self.runs += 1
        now = time.monotonic()
        if self.writer is None or now - self.told < PROGRESS_AFTER_S:
            return
        self.told = now
        rate = self.runs / (now - self.start)
        self.writer.write(f"\r{self.item.name}: {self.runs} schedules, {rate:.0f}/s", flush=True)

    def interrupted(self, summary: str) -> None:
        self.end()
        if self.reporter is not None:
            self.reporter.write_line(f"{self.item.nodeid}: {summary}")

    def end(self) -> None:
        if self.writer is not None and self.told != self.start:
            self.writer.write("\n")
