"""The tables of the driver's functions and of the operations."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_function_is_asked_for_by_a_version_that_exists():
    """Each function is requested with a version that exists.

    For another version the driver returns an older form, which may have other parameters.
    """
    row = re.compile(r"^\w+_FUNCTION\((\w+), (\d+),", re.MULTILINE)
    asked = row.findall((ROOT / "include/cudadrv/driver_functions.h").read_text(encoding="utf-8"))
    there = row.findall((ROOT / "softdriver/base/functions.def").read_text(encoding="utf-8"))
    assert len(asked) > 50
    assert set(asked) <= set(there)


def test_cython_knows_each_operation():
    header = (ROOT / "include/cudadrv/operations.h").read_text(encoding="utf-8")
    declared = (ROOT / "cudadrv/_names.pxd").read_text(encoding="utf-8")
    names = re.findall(r"\bOPERATION\((\w+), \"", header)
    enum = declared.partition('"enum cudadrv_operation":\n')[2].partition("    unsigned")[0]
    assert len(names) > 20
    assert enum.split() == names
