"""What these tests share: the scripts of benchmarks/, which are no package."""

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
    """Imports a script of benchmarks/ as a module; processes that it starts find this cudadrv."""
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
    """Runs a script on the software driver: what it wrote as JSON, and what it printed."""

    def run(script, *options):
        results = tmp_path / "results.json"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDADRV_DRIVER": "software"}
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
