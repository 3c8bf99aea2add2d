"""The differences between kinds of memory are in one table: no other code asks for the kind."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "pyx" / "memory" / "_memory_kinds.pyx"
DECLARED = (ROOT / "cudadrv" / "_memory_kinds.pxd").read_text(encoding="utf-8")
KINDS = re.findall(r"^cdef MemoryKind ([A-Z_]+)", DECLARED, re.MULTILINE)
ROW = DECLARED.partition("cdef struct KindRow:")[2].partition("\n\n\n")[0]
FIELDS = re.findall(r"^    (?:\w[\w ]*? \*?(\w+)(?: +#.*)?$|\w+ \(\*(\w+)\)\()", ROW, re.MULTILINE)
FIELDS = [one or other for one, other in FIELDS]
TEXTS = re.findall(r"^    PyObject \*(\w+)", ROW, re.MULTILINE)
SOURCES = sorted({*ROOT.glob("pyx/*/*.pyx"), *ROOT.glob("cudadrv/*.pxd")} - {TABLE})

NAME = rf"&?(?:{'|'.join(KINDS)})\b"
ANY = rf"(?:[-\w]+\s*,\s*)*{NAME}"  # a list may precede the kind
TESTS = re.compile(
    rf"""(?:==|!=|\bis|\bis\s+not)\s+{NAME}         # memory.kind == DEVICE
    | \b{NAME}\s*(?:==|!=|\bis\b)                   # DEVICE == memory.kind
    | \bin\s*[(\[{{]\s*{ANY}                        # memory.kind in (DEVICE, LOCKED)
    | \b{NAME}\s*:\s                                # a dict of kinds: {{DEVICE: ...}}
    | \bkind\.(?:{"|".join(TEXTS)})\s*(?:==|!=|\bin\b|\bis\s+(?!not\s+NULL|NULL))
    """,
    re.VERBOSE,
)
CIMPORT = re.compile(r"^from cudadrv\.(\w+) cimport (\([^)]*\)|[^\n]+)", re.MULTILINE)


def code_of(text):
    """A source without docstrings, comments and cimports."""
    text = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    return CIMPORT.sub("", re.sub(r"(?m)(^|\s)#.*$", "", text))


def kinds_of(text):
    """The kinds that a source takes from the table. Other modules use some of the same names."""
    taken = [names for module, names in CIMPORT.findall(text) if module == "_memory_kinds"]
    return set(re.findall(r"\w+", " ".join(taken))) & set(KINDS)


def comparisons_in(text):
    """The tests of the kind of memory in a source."""
    taken = kinds_of(text)
    return [
        found[0].strip()
        for found in TESTS.finditer(code_of(text))
        if taken & set(re.findall(r"\w+", found[0])) or "kind." in found[0]
    ]


def test_the_table_is_found():
    assert {"DEVICE", "LOCKED", "UNIFIED", "FOREIGN", "GROWING", "CODE"} <= set(KINDS)
    assert {"name", "ordered", "make", "free", "on_stream", "not_shared"} <= set(FIELDS)
    assert {"name", "word", "buffer"} <= set(TEXTS)


def test_no_code_asks_which_kind_memory_is():
    """Code asks the row of a kind, such as `memory.kind.ordered`. The row may need a new field."""
    found = {path.name: comparisons_in(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: tests for name, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    "line",
    [
        "if memory.kind == DEVICE:",
        "if memory.kind != DEVICE and other:",
        "return 1 if node.kind is LOCKED else 2",
        "if region.kind is not DEVICE:",
        "if DEVICE == kind:",
        "if kind in (LOCKED, UNIFIED):",
        "if kind not in (-1, UNIFIED):",
        "if kind not in (\n        FREE, UNIFIED):",
        "cdef dict CLASSES = {DEVICE: DeviceBuffer}",
        'if <str>memory.kind.name == "device":',
        'if <str>memory.kind.word in ("device", "locked"):',
    ],
)
def test_tests_are_recognized(line):
    head = "from cudadrv._memory_kinds cimport (\n    DEVICE, LOCKED, UNIFIED, MemoryKind,\n)\n"
    assert len(comparisons_in(head + line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "memory.kind = DEVICE",
        "release_later(LOCKED, address, NULL, context, None)",
        "if memory.kind.ordered and not memory.kind.borrowed:",
        "if kind.not_shared is not NULL:",
        "if mode == SHARED:",  # a mode of _custom, which is not taken from the table
        "# if memory.kind == DEVICE:",
    ],
)
def test_other_lines_are_no_tests(line):
    head = "from cudadrv._memory_kinds cimport DEVICE, LOCKED\n"
    assert comparisons_in(head + line) == []


def test_each_kind_has_a_row():
    text = TABLE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^([A-Z_]+) = &(\w+)$", text, re.MULTILINE))
    assert sorted(rows) == sorted(KINDS)
    for row in rows.values():
        assert re.search(rf"^{row}\.name\b", text, re.MULTILINE), row


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_set_and_asked(field):
    text = TABLE.read_text(encoding="utf-8")
    assert re.search(rf"\b\w+\.{field}\b.* = ", text), "no row sets it"
    assert any(f"kind.{field}" in path.read_text(encoding="utf-8") for path in SOURCES)
