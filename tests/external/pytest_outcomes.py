"""A pytest plugin that writes the outcome and report of each test to the file $OUTCOMES.

Each line is the JSON of a test's name, outcome, report and hazards. A test that ends the process
leaves its name with the outcome "started". Tests that the file has already are not run.
"""

import json
import os
from pathlib import Path

import kernel_hazards
import pytest

WORDS = {"passed": "passes", "failed": "fails", "skipped": "skips"}
FILE = Path(os.environ["OUTCOMES"])
outcomes = {}
# The stem of each test's file by the test's node id. The node id of a test outside the root
# directory does not contain the file, and the location of a decorated test may be its decorator's.
files = {}


def name_of(nodeid):
    return f"{files[nodeid]}.{nodeid.partition('::')[2].replace('::', '.')}"


def write(name, outcome, text, hazards=()):
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps([name, outcome, text, hazards]) + "\n")


def pytest_itemcollected(item):
    files[item.nodeid] = item.path.stem


def pytest_collection_modifyitems(items):
    if FILE.exists():
        done = {json.loads(line)[0] for line in FILE.read_text(encoding="utf-8").splitlines()}
        items[:] = [item for item in items if name_of(item.nodeid) not in done]


def pytest_runtest_logstart(nodeid):
    write(name_of(nodeid), "started", "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Note what the checks inside kernels have found, in the process in which the test runs."""
    report = yield
    report.__dict__["hazards"] = kernel_hazards.found()
    return report


def pytest_runtest_logreport(report):
    name = name_of(report.nodeid)
    word = WORDS[report.outcome]
    before, text, hazards = outcomes.get(name, ("passes", "", []))
    if report.when == "call" or word != "passes":
        if before == "passes":
            before = word
        text += report.longreprtext
    outcomes[name] = [before, text, hazards + report.__dict__.get("hazards", [])]


def pytest_runtest_logfinish(nodeid):
    name = name_of(nodeid)
    write(name, *outcomes[name])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    FILE.touch()
