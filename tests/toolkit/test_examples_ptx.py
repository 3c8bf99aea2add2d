"""The PTX in examples/kernels is what its CUDA C compiles to, with the version that it names."""

import importlib.util
import re
from pathlib import Path

import pytest

from cudadrv import toolkit

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kernels"
SOURCES = sorted(FOLDER.glob("*.cu"))


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_examples", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_ptx_for_each_source():
    assert SOURCES
    assert [path.with_suffix(".ptx") for path in SOURCES] == sorted(FOLDER.glob("*.ptx"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_any_driver_reads_it(build, source):
    ptx = source.with_suffix(".ptx").read_text(encoding="utf-8")
    assert re.findall(r"^\.(?:version|target) .*$", ptx, re.MULTILINE) == [
        f".version {build.VERSION}",
        ".target sm_75",
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_it_is_what_the_source_gives(build, source):
    kept = source.with_suffix(".ptx").read_text(encoding="utf-8")
    try:
        built = build.build(source)
    except toolkit.CompilerNotFoundError:
        pytest.skip("there is no nvcc here")
    if build.release(built) != build.release(kept):
        pytest.skip(f"nvcc is of CUDA {build.release(built)}, the PTX of {build.release(kept)}")
    assert build.code(built) == build.code(kept), "run examples/kernels/build.py"


def test_comments_are_no_code(build):
    assert build.code("// one\n\n  add.s32 a, b; // two\n") == ["add.s32 a, b;"]
    assert build.release("// no release") == "unknown"
