"""The programs of examples/kernels, as modules."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kernels"


@cache
def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example():
    """A program of examples/kernels by its name."""
    return load


@pytest.fixture
def ptx():
    """The module of a .ptx file of examples/kernels, by its name."""
    import cudadrv as cu

    return lambda name: cu.Module.from_file(FOLDER / f"{name}.ptx")
