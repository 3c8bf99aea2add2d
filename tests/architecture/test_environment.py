"""Environment variables: `_environment` reads them all, and the page lists them."""

import re
from pathlib import Path

import pytest

from cudadrv import _environment

ROOT = Path(__file__).resolve().parents[2]
OURS = {variable.name for variable in _environment.VARIABLES}
# Modules that read other variables by their names.
READS_OTHERS = {
    "_compilers": "options and folders of nvcc, and the PATH on which nvcc finds a compiler",
    "_compile_inputs": "the PATH on which nvcc has found a compiler",
}
QUOTED = re.compile(r"""["'](CUDADRV_[A-Z_]+)["']""")
READ = re.compile(r"""\b(?:environ(?:\.get\(|\[|\.pop\()|getenv\()\s*f?["']""")
PYTHON = sorted([*ROOT.glob("pyx/*/*.pyx"), *ROOT.glob("cudadrv/*.py")])


def quoted(pattern):
    paths = [*ROOT.glob(pattern)]
    assert paths
    return {name for path in paths for name in QUOTED.findall(path.read_text("utf-8"))}


def test_the_page_has_exactly_the_variables():
    page = (ROOT / "docs" / "api" / "environment.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `CUDADRV_.*$", page, re.MULTILINE)
    assert rows == [f"| `{v.name}` | {v.sets} | {v.read} |" for v in _environment.VARIABLES]


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.stem)
def test_one_module_reads_variables(path):
    text = path.read_text(encoding="utf-8")
    if path.stem == "_environment":
        assert set(QUOTED.findall(text)) == OURS
        assert "environ.get(" in text
    else:
        assert QUOTED.findall(text) == []
        assert bool(READ.search(text)) == (path.stem in READS_OTHERS)


def test_those_who_cannot_ask_the_module_name_the_same_variables():
    plugin = quoted("pytest_cudadrv.py")
    assert plugin == {
        *("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "CUDADRV_REQUIRE_GPU", "CUDADRV_GUARD")
    }
    assert f'LIBCUDA = "{_environment.LIBCUDA}"' in (ROOT / "pytest_cudadrv.py").read_text("utf-8")
    assert quoted("softdriver/**/*.cpp") == {"CUDADRV_SOFTWARE"}
    assert plugin <= OURS
