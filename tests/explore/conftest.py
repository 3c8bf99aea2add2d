"""A run of pytest with the plugin, for a test module that begins with two unordered fills."""

from pathlib import Path

import pytest
from limits import PATIENCE

from tests.explore.race import RACE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "PYTEST_CUDADRV_LIBCUDA"):
        monkeypatch.delenv(name, raising=False)

    def run(text, *options):
        pytester.makepyfile(RACE + text)
        return pytester.runpytest_subprocess(
            *("-p", "no:benchmark", "-p", "no:cacheprovider", "-p", "pytest_cudadrv"),
            *options,
            timeout=PATIENCE,
        )

    return run
