"""The functions that docs/architecture.md follows are in the files that it names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WAYS = PAGE.partition("## Four ways through the code")[2].partition("## Words")[0]
NAMED = sorted(set(re.findall(r"`(\w+)`(?: of `\w+`)? in\s+`([\w/.]+)`", WAYS)))


def defines(text, name):
    return re.search(rf"^\s*(?:cdef|def|static|OWN_\w+)\b[^=\n]*\b{name}\(", text, re.MULTILINE)


def test_the_ways_are_found():
    assert len(NAMED) > 30


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_function_is_there(name, file):
    assert defines((ROOT / file).read_text(encoding="utf-8"), name)


def test_calls_are_no_definitions():
    assert not defines("    status = issue(&operation, stream)\n    return issue(x)\n", "issue")
