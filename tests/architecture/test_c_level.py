"""What `cimport cudadrv` offers: docs/cython.md names all of it.

The compiled code of other projects depends on no layout of a class.
"""

import re
from pathlib import Path

import cudadrv as cu

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = (ROOT / "cudadrv" / "__init__.pxd").read_text(encoding="utf-8")
CUSTOM = (ROOT / "cudadrv" / "_custom.pxd").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "cython.md").read_text(encoding="utf-8")
CIMPORT = re.compile(r"^from (\S+) cimport (\([^)]*\)|.*)", re.MULTILINE)
DECLARED = re.compile(
    r"^cdef \w[\w *]*?[ *](\w+)\(|^ctypedef \w+ \(\*(\w+)\)|^    ([A-Z]+) = ", re.MULTILINE
)
CLASSES = re.findall(r"ctypedef class (\S+?)(?:\(\w+\))? \[(.*)\]:", PUBLISHED)


def cimported(text: str) -> dict[str, set[str]]:
    return {origin: set(re.findall(r"\w+", names)) for origin, names in CIMPORT.findall(text)}


def test_no_layout_is_compiled_into_other_projects():
    assert set(cimported(CUSTOM)) == {"cudadrv._driver"}
    assert set(cimported(PUBLISHED)) == {"cudadrv._custom", "cudadrv._driver"}
    assert "inline" not in CUSTOM + PUBLISHED
    for name, layout in CLASSES:
        assert layout == "object PyObject, check_size ignore", name


def test_driver_functions_are_those_that_need_no_table():
    types = cimported(PUBLISHED)["cudadrv._driver"] | cimported(CUSTOM)["cudadrv._driver"]
    assert {name for name in types if not re.match(r"CU", name)} == set()


def test_all_operations_of_custom_are_published():
    declared = {next(filter(None, found)) for found in DECLARED.findall(CUSTOM)}
    assert {"borrow", "issue", "Call", "READ", "cuLaunchKernel", "borrow_prepared"} <= declared
    assert declared == cimported(PUBLISHED)["cudadrv._custom"]


def test_classes_are_those_of_python():
    for name, _ in CLASSES:
        assert name == "cudadrv._custom.Operation" or isinstance(getattr(cu, name[8:]), type)
    assert len(CLASSES) == 14


def test_page_names_everything():
    names = set().union(*cimported(PUBLISHED).values()) | {
        name.split(".")[-1] for name, _ in CLASSES
    }
    assert {name for name in names if not re.search(rf"\b{name}\b", PAGE)} == set()
