"""The call table of the driver's functions: its entries, and the modules that bind it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(ROOT.glob("pyx/_*.pyx"))
DRIVER = re.compile(r"\b(?:in_)?cu[A-Z]\w+\(|\benter_context\(|\bis_current\(|\bcudadrv_table\.")
INLINE = re.compile(r"^cdef inline .*?(\w+)\(.*?(?=^\S(?!\s*\) )|\Z)", re.MULTILINE | re.DOTALL)


def inlined():
    """The inline functions of .pxd files that call the driver, directly or through each other.

    A module that calls one of them needs the table, too.
    """
    bodies = {
        found[1]: found[0]
        for path in ROOT.glob("cudadrv/_*.pxd")
        for found in INLINE.finditer(path.read_text(encoding="utf-8"))
    }
    calling = {name for name, body in bodies.items() if DRIVER.search(body)}
    while True:
        calls = re.compile(rf"\b({'|'.join(calling)})\(")
        more = {name for name, body in bodies.items() if calls.search(body.split("(", 1)[1])}
        if more <= calling:
            return calling
        calling |= more


NAMES = inlined()
CALLS = re.compile(rf"{DRIVER.pattern}|(?<!def )(?<!\.)\b({'|'.join(NAMES)})\(")


def test_inlined_functions_are_found():
    assert {"enter_stream", "is_usable", "check_stream", "check_region", "issue"} <= NAMES


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_table_is_bound(source):
    text = source.read_text(encoding="utf-8")
    if source.stem != "_driver" and CALLS.search(text):
        assert re.search(r"^bind_driver\(&cudadrv_table\)", text, re.MULTILINE)


def test_each_function_is_asked_for_by_a_version_that_exists():
    """Each function is requested with a version that exists.

    For another version the driver returns an older form, which may have other parameters.
    """
    row = re.compile(r"^\w+_FUNCTION\((\w+), (\d+),", re.MULTILINE)
    asked = row.findall((ROOT / "include/cudadrv/driver_functions.h").read_text(encoding="utf-8"))
    there = row.findall((ROOT / "softdriver/base/functions.def").read_text(encoding="utf-8"))
    assert len(asked) > 50
    assert set(asked) <= set(there)
