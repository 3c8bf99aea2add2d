"""Fixtures with the scripts of benchmarks/, which is not a package."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    """A function that imports a script of benchmarks/ as a module.

    Processes that the script starts find this cudadrv.
    """
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


@pytest.fixture
def instructions(scripts):
    return scripts("instructions")


@pytest.fixture
def benchmark_results(tmp_path):
    """A function that runs a script on the software driver. Returns its JSON and its output."""

    def run(script, *options):
        results = tmp_path / "results.json"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDADRV_DRIVER": "software"}
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # it names GPUs
        done = subprocess.run(
            [sys.executable, BENCHMARKS / script, *options, "--json", results],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(results.read_text()), done.stdout

    return run
