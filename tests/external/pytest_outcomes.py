"""A pytest plugin that writes the outcome and report of each test to the JSON file $OUTCOMES."""

import json
import os
from pathlib import Path

import pytest

WORDS = {"passed": "passes", "failed": "fails", "skipped": "skips"}
outcomes = {}


def pytest_runtest_logreport(report):
    # The node id of a test outside the root directory does not contain the file.
    module = Path(report.location[0]).stem
    name = f"{module}.{report.nodeid.partition('::')[2].replace('::', '.')}"
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
