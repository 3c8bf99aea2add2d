"""Runs of pytest on small test files, each in a process of its own: a driver is opened once."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRINTS_MORE = ("CI", "BUILD_NUMBER")  # with one of these, pytest's short summary is not short


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest with the plugin on a test file, and with settings in its ini file."""
    ours = ("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "CUDADRV_REQUIRE_GPU", "PYTEST_CUDADRV_LIBCUDA")
    for name in (*ours, "PYTEST_ADDOPTS", *PRINTS_MORE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONWARNINGS", "error")

    def run(text, *options, ini="", plugin=True):
        pytester.makepyfile("import pytest\nimport cudadrv as cu\n" + text)
        pytester.makeini("[pytest]\n" + ini)
        load = ["-p", "pytest_cudadrv"] if plugin else []
        load += ["-p", "no:benchmark"]  # it warns, where it is installed
        load += ["-W", "ignore::pytest_cudadrv.UnfinishedWorkWarning"]  # but for tests about that
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *load, *options)

    return run
