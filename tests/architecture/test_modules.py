"""The tables of modules in docs/architecture.md: their order, imports and state."""

import re
import sys
from pathlib import Path

import pytest

from cudadrv._finder import NAMES

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from setup import SELDOM_USED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
# The modules in the order of the tables. A module imports only modules that stand above it.
ORDER = [
    name
    for row in re.findall(r"^\| (`[^|]*`) \|", PAGE.partition("## Modules")[2], re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
    if "/" not in row
]
# Exceptions from this order. These imports are inside functions.
EXCEPTIONS = {
    ("_finder", "_errors"): "public names say who defines them, by a function of that module",
    ("_records", "_device"): "the type of a field",
    ("_library", "_tracing"): "CUDADRV_TRACE begins a trace with the driver",
    ("_library", "_guarding"): "CUDADRV_GUARD begins a guard with the driver",
    ("_device", "_limits"): "context.limits",
    ("_device", "_pool"): "context.pools",
    ("_device", "_peers"): "device.enable_access(peer), which knows pools and buffers",
    ("_stream", "_host_function"): "stream.call(function, *buffers), which knows buffers",
    ("_stream", "_signal"): "stream.set(signal, n), which knows memory",
    ("_stream", "_bound"): "stream.bind(thing) returns an object that knows streams",
    ("_buffer", "_exchange"): "__dlpack_c_exchange_api__ needs the functions behind it",
    ("_buffer", "_opening"): "a pickled buffer is opened by `open`",
    ("_graph", "_graph_changes"): "step[node] returns an object that changes a node",
    ("_module", "_kernel"): "module['name'] returns a kernel, and kernels come from nowhere else",
}
PACKAGE = (
    *("_leftovers", "_explore", "_explore_pytest", "_info", "_bench", "testing"),
    *("_demo_pipeline", "_demo_mistakes", "_demo"),
)

SOURCE = {path.stem: path for path in ROOT.glob("pyx/*/_*.pyx")}
CYTHON = sorted(SOURCE)
# The folders of pyx/ in their order: a module imports only modules of its folder and those before.
FOLDERS = re.findall(r"^### pyx/(\w+)", PAGE, re.MULTILINE)
PYTHON = sorted(path.stem for path in ROOT.glob("cudadrv/[!_]*.py"))
PYTHON += sorted(path.stem for path in ROOT.glob("cudadrv/_[!_]*.py"))

IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<origin>[\w.]+)[ \t]+c?import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|c?import[ \t]+(?P<modules>\w[\w., \t]*))",
    re.MULTILINE,
)


def imported(text: str) -> set[str]:
    """The modules of the package that a source imports or cimports. "" is the package itself."""
    found = set()
    for match in IMPORT.finditer(re.sub(r'""".*?"""', "", text, flags=re.DOTALL)):
        if match["modules"]:
            names = [name.split()[0] for name in match["modules"].split(",") if name.strip()]
        else:
            origin = re.sub(r"^\.", "cudadrv.", match["origin"]).rstrip(".")
            names = [origin]
            if origin == "cudadrv":
                parts = match["names"].strip("() \t\n").split(",")
                names = [f"cudadrv.{part.split()[0]}" for part in parts if part.strip()]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "cudadrv":
                module = rest.split(".")[0]
                found.add(module if module.startswith("_") else "")
    return found


def sources(module: str) -> list[Path]:
    candidates = [ROOT / f"cudadrv/{module}.pxd", ROOT / f"cudadrv/{module}.py"]
    candidates += [SOURCE[module]] if module in SOURCE else []
    return [path for path in candidates if path.exists()]


@pytest.mark.parametrize("module", CYTHON)
def test_the_head_of_a_module_says_what_it_keeps(module):
    """A docstring has "State that outlives a call:" if and only if the table lists its state."""
    row = re.search(rf"^\|[^|]*`{module}`[^|]*\|[^|]*\|([^|]*)\|$", PAGE, re.MULTILINE)
    head = SOURCE[module].read_text(encoding="utf-8").split('"""')[1]
    assert ("State that outlives a call:" in head) == bool(row[1].strip())


def test_every_module_is_in_the_table():
    assert len(CYTHON) > 20
    assert sorted(ORDER) == sorted(CYTHON + PYTHON)


def test_the_finder_knows_the_cython_modules():
    assert sorted(NAMES) == CYTHON


@pytest.mark.parametrize("module", ORDER)
def test_imports_go_upward_in_the_table(module):
    above = {*ORDER[: ORDER.index(module) + 1], *(("",) if module in PACKAGE else ())}
    for source in sources(module):
        for other in imported(source.read_text(encoding="utf-8")) - above:
            assert (module, other) in EXCEPTIONS, (
                f"{source.relative_to(ROOT)} imports {other or 'cudadrv'}, which stands below it"
            )


@pytest.mark.parametrize("module", CYTHON)
def test_the_table_shows_the_folder_of_a_module(module):
    """Each folder has a table of its modules, and the folders have one order."""
    sections = re.split(r"^### pyx/(\w+)", PAGE, flags=re.MULTILINE)
    tables = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert sorted(FOLDERS) == sorted({path.parent.name for path in SOURCE.values()})
    assert f"`{module}`" in tables[SOURCE[module].parent.name].partition("\n#")[0]


@pytest.mark.parametrize(("module", "other"), EXCEPTIONS)
def test_exceptions_are_in_use(module, other):
    found = [line for source in sources(module) for line in source.read_text().splitlines()]
    ways = rf'\s+(from cudadrv\.{other} import|(\w+ = )?import_module\("cudadrv\.{other}"\))'
    assert [line for line in found if re.match(ways, line)]


@pytest.mark.parametrize("module", CYTHON)
def test_module_has_declarations_and_types(module):
    assert (ROOT / "cudadrv" / f"{module}.pxd").exists()
    assert (ROOT / "cudadrv" / f"{module}.pyi").exists()


def test_declarations_and_types_have_a_module():
    declared = [*ROOT.glob("cudadrv/_[!_]*.pxd"), *ROOT.glob("cudadrv/_*.pyi")]
    assert {path.stem for path in declared} <= set(CYTHON)


def test_code_that_is_seldom_used_exists():
    folders = {path.name for path in (ROOT / "softdriver").iterdir() if path.is_dir()}
    assert set(CYTHON) | folders > SELDOM_USED


def test_ownership_core_knows_no_cuda_and_no_python():
    """The engine's headers need neither CUDA nor Python, and the page lists each of them.

    A second table lists all other headers, each with a file that includes it.
    """
    todo, reached = ["ownership.h"], set()
    while todo:
        header = todo.pop()
        reached.add(header)
        text = (ROOT / "include" / "cudadrv" / header).read_text(encoding="utf-8")
        assert not re.search(r"#\s*include\s*<(cuda|Python)\w*\.h>", text), header
        todo += set(re.findall(r'#\s*include\s*"([\w.]+)"', text)) - reached
    table = PAGE.partition("### The engine")[2].partition("\n#")[0]
    assert set(re.findall(r"^\| `(\w+\.h)`", table, re.MULTILINE)) == reached - {"ownership.h"}
    table = PAGE.partition("### Other headers")[2].partition("\n#")[0]
    others = {path.name for path in ROOT.glob("include/cudadrv/*.h")} - reached
    for headers, user in re.findall(r"^\| (`[^|]*`) \| `(\S+)` \|", table, re.MULTILINE):
        text = (ROOT / user).read_text(encoding="utf-8")
        for header in re.findall(r"`(\w+\.h)`", headers):
            others.remove(header)
            assert f'{header}"' in text, f"{user} does not include {header}"
    assert others == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from cudadrv._driver cimport CUstream", {"_driver"}),
        ("cimport cudadrv._driver as d, cudadrv._errors", {"_driver", "_errors"}),
        ("from cudadrv cimport (_driver,\n    _errors as e,\n)", {"_driver", "_errors"}),
        ("from . cimport _driver", {"_driver"}),
        ("from ._driver import name", {"_driver"}),
        ("    import cudadrv", {""}),
        ("from cudadrv import Stream", {""}),
        ("import numpy as np\nfrom cpython.ref cimport PyObject", set()),
        ('"""\nimport cudadrv as cu\n"""', set()),
        ('cdef extern from "cudadrv/driver.h":', set()),
    ],
)
def test_imports_are_recognized(text, expected):
    assert imported(text) == expected
