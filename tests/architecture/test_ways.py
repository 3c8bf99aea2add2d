"""The functions that docs/architecture.md follows are in the files that it names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WAYS = PAGE.partition("## Five ways through the code")[2].partition("## Words")[0]
NAMED = sorted(set(re.findall(r"`(\w+)`(?: of `\w+`)? in\s+`([\w/.]+)`", WAYS)))


# A function of Cython or of the engine; a function or method in C++.
DEFINED = r"^\s*(?:cdef|def|static|OWN_\w+)\b[^=\n]*\b{name}\("
DEFINED_IN_CPP = (
    r"^(?: {{4}})?(?:template <[^>]*> )?(?!return\b)[\w:<>]+[ *&]+(?:\w+::)?"
    r"{name}\([^;{{\n]*(?:\{{|$)"
)


def defines(text, name, of_cpp=False):
    pattern = DEFINED_IN_CPP if of_cpp else DEFINED
    return re.search(pattern.format(name=name), text, re.MULTILINE)


def test_the_ways_are_found():
    assert len(NAMED) > 30


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_function_is_there(name, file):
    of_cpp = file.startswith("softdriver/")
    assert defines((ROOT / file).read_text(encoding="utf-8"), name, of_cpp)


def test_calls_are_no_definitions():
    calls = "    status = issue(&operation, stream)\n    return issue(x)\n    issue(\n"
    assert not defines(calls, "issue")
    assert not defines(calls + "    bool issue(int x);\n", "issue", of_cpp=True)
