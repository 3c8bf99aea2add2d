"""Runs of pytest on small test files.

Each run has its own process, because a process opens only one driver.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# With one of these variables, pytest does not shorten its short summary.
PRINTS_MORE = ("CI", "BUILD_NUMBER")


@pytest.fixture
def run_pytest(pytester, monkeypatch):
    """A function that runs pytest with these options, and with no plugin that disturbs it."""
    ours = ("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "CUDADRV_REQUIRE_GPU", "PYTEST_CUDADRV_LIBCUDA")
    for name in (*ours, "PYTEST_ADDOPTS", *PRINTS_MORE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONWARNINGS", "error")

    def run_pytest(*options):
        others = ["-p", "no:benchmark"]  # the benchmark plugin prints a warning if it is installed
        others += ["-p", "no:hypothesispytest"]  # it doubles the time that pytest needs to start
        return pytester.runpytest_subprocess(*others, *options)

    return run_pytest


@pytest.fixture
def run(run_pytest, pytester):
    """A function that runs pytest with the plugin on a test file, with settings in an ini file."""

    def run(text, *options, ini="", plugin=True):
        pytester.makepyfile("import pytest\nimport cudadrv as cu\n" + text)
        pytester.makeini("[pytest]\n" + ini)
        load = ["-p", "pytest_cudadrv"] if plugin else []
        # Ignore this warning, except in tests of the warning itself.
        load += ["-W", "ignore::pytest_cudadrv.UnfinishedWorkWarning"]
        return run_pytest("-p", "no:cacheprovider", *load, *options)

    return run
