"""A pytest plugin that writes the outcome and report of each test to the JSON file $OUTCOMES."""

import json
import os
from pathlib import Path

import pytest

WORDS = {"passed": "passes", "failed": "fails", "skipped": "skips"}
outcomes = {}
# The stem of each test's file by the test's node id. The node id of a test outside the root
# directory does not contain the file, and the location of a decorated test may be its decorator's.
files = {}


def pytest_itemcollected(item):
    files[item.nodeid] = item.path.stem


def pytest_runtest_logreport(report):
    name = f"{files[report.nodeid]}.{report.nodeid.partition('::')[2].replace('::', '.')}"
    word = WORDS[report.outcome]
    before, text = outcomes.get(name, ("passes", ""))
    if report.when == "call" or word != "passes":
        if before == "passes":
            before = word
        text += report.longreprtext
    outcomes[name] = [before, text]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(outcomes), encoding="utf-8")
