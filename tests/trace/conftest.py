"""Fixtures: a traced program, and its trace as Perfetto's classes and cudadrv's reader see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv._trace_file import read

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def traced(tmp_path):
    """A function that calls another one in a trace, and returns what the trace has."""

    def run(function):
        path = tmp_path / "run.pftrace"
        with cu.trace(path):
            function()
        return read(path)

    return run


@pytest.fixture
def perfetto():
    """A function that parses a trace with the classes of the package `perfetto`."""
    module = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

    def load(data):
        found = module.Trace()
        found.ParseFromString(data)
        return found

    return load


@pytest.fixture
def run_program(tmp_path):
    """A function that runs a program in a process of its own, with CUDADRV_TRACE set if wanted."""

    def run(text, *arguments, trace=None, status=0, **options):
        script = tmp_path / "program.py"
        script.write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDADRV_DRIVER": "software"}
        environment.pop("CUDADRV_TRACE", None)
        if trace is not None:
            environment["CUDADRV_TRACE"] = str(trace)
        done = subprocess.run(
            [sys.executable, script, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
            **options,
        )
        assert done.returncode == status, done.stderr
        return done

    return run
