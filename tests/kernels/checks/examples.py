"""Runs the programs of examples/kernels with other PTX, under checks."""

import importlib.util
from pathlib import Path

import numpy as np

import cudadrv as cu
from cudadrv import testing

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "kernels"


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


def ptx(name):
    return (FOLDER / f"{name}.ptx").read_text("utf-8")


def run(name, text, folder):
    """Run the program with this PTX, from a copy in the folder."""
    program = folder / f"{name}.py"
    program.write_text((FOLDER / f"{name}.py").read_text("utf-8"), "utf-8")
    (folder / f"{name}.ptx").write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(f"mutated_{name}", program)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    PROGRAMS[name](module)


def hazards(name, text, folder, checks):
    """Run the program with this PTX, which may hang. Return the hazards."""
    try:
        with testing.configured(f"checks={checks}"):
            run(name, text, folder)
    except cu.ContextLostError:
        assert "hangs" in testing.kernel_fault()
    return testing.hazards()


def without(text, place):
    """The text without what a regular expression has matched."""
    return text[: place.start()] + text[place.end() :]
