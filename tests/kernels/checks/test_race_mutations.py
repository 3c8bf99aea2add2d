"""checks=race on the kernels of examples/kernels, and on these without one of their barriers."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from cudadrv import testing

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards", "leaks"),
]

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "kernels"
BARRIER = re.compile(r"bar(?:rier)?\.sync[^;]*;")


def floats(*shape):
    return np.random.default_rng(5).uniform(-1, 1, shape).astype("f4")


PROGRAMS = {
    "bitonic": lambda module: module.bitonic_sort(np.arange(2000, dtype="i4")[::-1].copy()),
    "histogram": lambda module: module.histogram(np.arange(5000, dtype="u2").astype("u1")),
    "matmul": lambda module: module.matmul(floats(40, 50), floats(50, 40)),
    "nbody": lambda module: module.nbody(floats(150, 4), floats(150, 4), 0.01, 1),
    "reduce": lambda module: [module.reduce(floats(999)), module.reduce(np.ones(999, "i4"))],
    "scan": lambda module: module.scan(np.arange(1000, dtype="i4")),
    "transpose": lambda module: module.transpose(floats(70, 50)),
}


def hazards(name, text, folder):
    """Run the program with this PTX, and return the hazards."""
    program = folder / f"{name}.py"
    program.write_text((FOLDER / f"{name}.py").read_text("utf-8"), "utf-8")
    (folder / f"{name}.ptx").write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(f"mutated_{name}", program)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with testing.configured("checks=race"):
        PROGRAMS[name](module)
    return testing.hazards()


def barriers():
    for name in PROGRAMS:
        text = (FOLDER / f"{name}.ptx").read_text("utf-8")
        for number in range(len(BARRIER.findall(text))):
            yield name, number


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found(cuda_device, tmp_path, name):
    assert hazards(name, (FOLDER / f"{name}.ptx").read_text("utf-8"), tmp_path) == []


@pytest.mark.parametrize(("name", "number"), list(barriers()))
def test_a_missing_barrier_is_found(cuda_device, tmp_path, name, number):
    text = (FOLDER / f"{name}.ptx").read_text("utf-8")
    place = list(BARRIER.finditer(text))[number]
    found = hazards(name, text[: place.start()] + text[place.end() :], tmp_path)
    assert found
    assert all(hazard.kind == "race" and "__sync" in hazard.text for hazard in found)
