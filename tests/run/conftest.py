"""Fixtures that run ``python -m cudadrv run`` with clients of the driver API without cudadrv."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

from cudadrv._libcuda import lay_out

sys.path.insert(0, str(Path(__file__).parent))
from running import clean_environment, line

HERE = Path(__file__).parent


class Ran:
    """The result of a run: output, exit status and report."""

    def __init__(self, done, file):
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        text = file.read_text("utf-8") if file.exists() else ""
        self.report = json.loads(text) if text else None


@pytest.fixture
def run(tmp_path):
    """A function that runs `cudadrv run`. It adds `--json` unless `report` is False."""
    file = tmp_path / "report.json"

    def run(*arguments, report=True, cwd=tmp_path, **changes):
        file.unlink(missing_ok=True)
        done = subprocess.run(
            line(*(("--json", file) if report else ()), *arguments),
            env=clean_environment(**changes),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Ran(done, file)

    return run


@pytest.fixture
def python(run):
    """A function that runs a Python program with the functions of client.py.

    The driver is in the variable ``cuda``.
    """

    def python(program, *options, **changes):
        client = f"import sys\nsys.path.insert(0, {str(HERE)!r})\nfrom client import *\n{program}"
        return run(*options, "--", sys.executable, "-c", client, **changes)

    return python


@pytest.fixture(scope="session")
def c_client(tmp_path_factory):
    """A C program that is linked with -lcuda, without an RPATH."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("c client")
    library = lay_out(folder / "lib")
    program = folder / "client"
    command = [compiler, "-o", program, HERE / "client.c", f"-L{library.parent}", "-lcuda"]
    subprocess.run(command, check=True)
    shutil.rmtree(library.parent)
    return program
