"""The software driver: its folders are layers, and its README lists all files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "softdriver"
TABLE = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Files")[2]
FOLDERS = re.findall(r"^\| `(\w+)/` \|", TABLE, re.MULTILINE)
HEADERS = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.h"))
SOURCES = sorted(path.relative_to(ROOT) for path in ROOT.glob("*/*.cpp"))
# Each exported function is a `Call`, and may use the whole state. So the sources of every folder
# include these two headers, although the table has their folder below.
EVERYWHERE = ("api/call.h", "api/state.h")
# Other folders whose sources include headers of a folder below them. Where a folder has to act
# whenever a folder above it does, it registers a function in that folder instead: see
# `add_context_end`, `add_device_loss`, `add_green_contexts` (device/context.h), and `add_reader`
# (base/notes.h).
EXCEPTIONS = {
    ("graph", "stream"): "a node does what a call on a stream does: the same checks, the same work",
    ("graph", "code"): "a kernel node is a launch",
    ("memory", "stream"): "unmapping memory waits for all streams of the device",
}


def included(path):
    return re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text("utf-8"), re.MULTILINE)


def test_folders_are_those_of_the_table():
    assert sorted(FOLDERS) == sorted(path.name for path in ROOT.iterdir() if path.is_dir())


def test_every_file_is_in_the_table():
    rows = TABLE.partition("\n## ")[0].split("\n")
    folder, listed = "", set()
    for row in rows[5:]:
        cells = row.split("|")
        if len(cells) > 3:
            folder = cells[1].strip(" `/") or folder
            listed |= {f"{folder}/{name}" for name in re.findall(r"`(\w+)`", cells[2])}
    files = set(ROOT.glob("*/*.*"))
    assert listed == {f"{path.parent.name}/{path.stem}" for path in files}


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_headers_include_the_folders_above(header):
    above = FOLDERS[: FOLDERS.index(header.parts[0]) + 1]
    for name in included(header):
        assert name.partition("/")[0] in above, f"{header} includes {name}"


def test_sources_include_the_folders_above():
    found = {
        (source.parts[0], name.partition("/")[0])
        for source in SOURCES
        for name in included(source)
        if name not in EVERYWHERE
    }
    upward = {(a, b) for a, b in found if FOLDERS.index(b) > FOLDERS.index(a)}
    assert len(found) > 25
    assert upward == EXCEPTIONS.keys()


def test_headers_include_each_other_in_no_circle():
    done = set()

    def visit(header, way):
        assert header not in way, " -> ".join((*way, header))
        if header not in done:
            for name in included(header):
                if name.endswith(".h"):
                    visit(name, (*way, header))
            done.add(header)

    for header in HEADERS:
        visit(str(header), ())
    assert len(done) == len(HEADERS)


# The files that may return CUDA_ERROR_NOT_SUPPORTED: from a control function, and not_supported().
ANSWERS = {"api/control.cpp", "base/unsupported.cpp"}


def test_calls_that_are_not_supported_have_reasons():
    """Only not_supported() returns the status, so that reports have the reason of each call."""
    found = {
        str(path)
        for path in (*HEADERS, *SOURCES)
        if re.search(r"(return|[?:])\s*CUDA_ERROR_NOT_SUPPORTED", (ROOT / path).read_text("utf-8"))
    }
    assert found - ANSWERS == set()


def test_names_say_their_folder():
    """Includes name a header's folder, so that no other project's header is included instead."""
    for path in (*ROOT.rglob("*.cpp"), *ROOT.rglob("*.h")):
        for name in included(path.relative_to(ROOT)):
            assert (ROOT / name).exists(), f"{path.name} includes {name}"
