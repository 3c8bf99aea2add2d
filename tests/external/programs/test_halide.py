"""Builds and runs the correctness tests of Halide that name a GPU.

$SUITE_SOURCE is a checkout of Halide. Each test is a program, which is linked to the library and
the headers of the wheel.
"""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from running import run

SOURCE = Path(os.environ["SUITE_SOURCE"])
NAMES_A_GPU = re.compile(r"gpu_|CUDA")
FOLDERS = ("test/common", "test", "tools", "src/runtime")  # of headers
# The compute capability that is not in `host-cuda` and that a program needs.
CAPABILITIES = {"cuda_8_bit_dot_product": "-cuda_capability_61"}


def sources():
    found = SOURCE.glob("test/correctness/*.cpp")
    return sorted(path for path in found if NAMES_A_GPU.search(path.read_text(encoding="utf-8")))


def build(source, folder):
    (wheel,) = map(Path, find_spec("halide").submodule_search_locations)
    program = folder / source.stem
    headers = [f"-I{path}" for path in (wheel / "include", *(SOURCE / each for each in FOLDERS))]
    command = [
        *os.environ.get("CXX", "c++").split(),
        *("-std=c++17", "-O1", "-w", "-pthread", *headers, source, "-o", program),
        *("-rdynamic", f"-L{wheel}/lib64", "-lHalide", f"-Wl,-rpath,{wheel}/lib64", "-ldl"),
    ]
    subprocess.run(command, check=True)
    return program


@pytest.mark.parametrize("source", [pytest.param(path, id=path.stem) for path in sources()])
def test_correctness(source, tmp_path):
    target = "host-cuda" + CAPABILITIES.get(source.stem, "")
    environment = {**os.environ, "HL_JIT_TARGET": target, "HL_TARGET": target}
    run(build(source, tmp_path), env=environment)
