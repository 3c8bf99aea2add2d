"""Fixtures with the programs of examples/, as modules."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "kernels"


@cache
def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load_file():
    """Import a file, and return it as a module."""
    return load


@pytest.fixture
def example():
    """A function that imports a program of examples/kernels by its name."""
    return lambda name: load(FOLDER / f"{name}.py")


@pytest.fixture
def ptx():
    """A function that loads a .ptx file of examples/kernels by its name."""
    import cudadrv as cu

    return lambda name: cu.Module.from_file(FOLDER / f"{name}.ptx")
