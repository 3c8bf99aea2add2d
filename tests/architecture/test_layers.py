"""The layers, read from the sources: what a module may import, and what belongs to a module."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Lowest first. A module may import from its own layer and from those above it in this table.
LAYERS = {
    "driver": ["_driver", "_status", "_attributes", "_processors", "_likely"],
    "errors": ["_site", "_errors", "_library"],
    "ownership": ["_ownership", "_operation_names", "_nesting", "_policy"],
    "handles": [
        *("_device", "_context", "_wait", "_event", "_ghost"),
        *("_queue", "_stream", "_bound", "_foreign"),
    ],
    "buffers": [
        *("_missing", "_operation", "_refusal", "_token", "_await"),
        *("_users", "_release", "_cache", "_stream_ordered", "_memory", "_allocation", "_pool"),
        *("_external", "_dtype", "_region", "_report"),
        *("_copy", "_fill", "_loan", "_ordinary", "_stage", "_chunked", "_staging", "_reap"),
        *("_buffer", "_device_buffer"),
        *("_host_buffer", "_host_view", "_locked_buffer", "_unified_buffer"),
    ],
    "launch": [
        *("_access", "_room", "_ptx", "_image", "_signature", "_value", "_arguments", "_shape"),
        *("_loading", "_module", "_function", "_launch"),
        *("_kernel_attributes", "_kernel", "_prepared"),
    ],
    "toolkit": ["_compilers", "_compile_cache"],
    "public": ["_bench", "_demo", "_demo_mistakes", "_demo_pipeline", "_info", "_watch"],
}
LEVEL = {module: level for level, layer in enumerate(LAYERS.values()) for module in layer}
PUBLIC = len(LAYERS) - 1  # also cudadrv itself, and every module without an underscore

# Modules with no .pxd or no .pyi, and why.
WITHOUT: dict[str, str] = {}
# Declarations without a module, and why.
ALONE = {"_likely": "two macros of the compiler"}

CYTHON = sorted(path.stem for path in ROOT.glob("pyx/_*.pyx"))
PYTHON = sorted(path.stem for path in ROOT.glob("cudadrv/_[!_]*.py"))

IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<origin>[\w.]+)[ \t]+c?import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|c?import[ \t]+(?P<modules>\w[\w., \t]*))",
    re.MULTILINE,
)


def imported(text: str) -> set[str]:
    """The modules of the package that a source imports or cimports; "" is the package itself."""
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
    candidates = [f"pyx/{module}.pyx", f"cudadrv/{module}.pxd", f"cudadrv/{module}.py"]
    return [ROOT / name for name in candidates if (ROOT / name).exists()]


def test_modules_are_found():
    assert CYTHON


@pytest.mark.parametrize("module", CYTHON + PYTHON)
def test_module_has_a_layer(module):
    assert module in LEVEL, f"say in LAYERS which layer {module} belongs to"


@pytest.mark.parametrize("module", CYTHON + PYTHON)
def test_imports_go_downward(module):
    for source in sources(module):
        for other in imported(source.read_text(encoding="utf-8")):
            assert LEVEL.get(other, PUBLIC) <= LEVEL[module], (
                f"{source.relative_to(ROOT)} imports {other or 'cudadrv'} of a higher layer"
            )


@pytest.mark.parametrize("module", CYTHON)
def test_module_has_declarations_and_types(module):
    if module not in WITHOUT:
        assert (ROOT / "cudadrv" / f"{module}.pxd").exists()
        assert (ROOT / "cudadrv" / f"{module}.pyi").exists()


def test_declarations_and_types_have_a_module():
    declared = [*ROOT.glob("cudadrv/_*.pxd"), *ROOT.glob("cudadrv/_*.pyi")]
    assert {path.stem for path in declared} <= set(CYTHON) | set(ALONE)


def test_ownership_core_knows_no_cuda_and_no_python():
    """Its headers can be compiled and tested alone."""
    todo, reached = ["ownership.h"], set()
    while todo:
        header = todo.pop()
        reached.add(header)
        text = (ROOT / "include" / "cudadrv" / header).read_text(encoding="utf-8")
        assert not re.search(r"#\s*include\s*<(cuda|Python)\w*\.h>", text), header
        todo += set(re.findall(r'#\s*include\s*"([\w.]+)"', text)) - reached
    assert "engine.h" in reached


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
