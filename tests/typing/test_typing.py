"""The published types: what they accept and refuse. `make lint` compares them with the modules."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFUSED = re.compile(r"# refused: (\S+)$")
ERROR = re.compile(r"^(?:.*[/\\])?(\w+\.py):(\d+): error: .* \[([\w-]+)\]$", re.MULTILINE)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Runs in the root folder, where the package is found first, and without the user's settings.
    command = [sys.executable, *arguments]
    environment = {**os.environ, "CUDADRV_DRIVER": "software", "MYPY_FORCE_COLOR": "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def errors() -> dict[str, set[tuple[int, str]]]:
    """The errors that mypy reports in the two files: line and kind."""
    files = [str(HERE / name) for name in ("correct.py", "wrong.py")]
    found = run("-m", "mypy", "--config-file=", "--strict", "--hide-error-context", *files)
    assert found.returncode == 1, found.stdout + found.stderr
    errors: dict[str, set[tuple[int, str]]] = {}
    for name, line, kind in ERROR.findall(found.stdout):
        errors.setdefault(name, set()).add((int(line), kind))
    assert sum(map(len, errors.values())) <= found.stdout.count(": error: "), found.stdout
    return errors


@pytest.mark.slow
def test_correct_uses_are_accepted(errors):
    assert errors.get("correct.py", set()) == set()


@pytest.mark.slow
def test_wrong_uses_are_refused(errors):
    lines = enumerate((HERE / "wrong.py").read_text(encoding="utf-8").splitlines(), 1)
    expected = {(at, match[1]) for at, line in lines if (match := REFUSED.search(line))}
    assert expected
    assert errors["wrong.py"] == expected


def test_correct_uses_run():
    path = str(HERE / "correct.py")
    found = run("-W", "error", "-c", f"import runpy; runpy.run_path({path!r}, run_name='__main__')")
    assert found.returncode == 0, found.stderr
