"""The checklists in docs/architecture.md: they name files that exist, and one is tried."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHECKLISTS = PAGE.partition("\n## Checklists\n")[2].partition("\n## ")[0]
LISTS = dict(
    zip(*[iter(re.split(r"^### (.+)$", CHECKLISTS, flags=re.MULTILINE)[1:])] * 2, strict=True)
)
NAMED = re.compile(r"`((?:\w+/)+[\w.]*|\w+\.(?:md|py))`|\]\((\w+\.md)\)")


@pytest.mark.parametrize("checklist", LISTS)
def test_the_files_exist(checklist):
    found = NAMED.findall(LISTS[checklist])
    assert found
    missing = [
        path or page for path, page in found if not (ROOT / (path or f"docs/{page}")).exists()
    ]
    assert missing == []


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of the files that are named in the checklist for a new environment variable."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pxd", "*.pyi")
    shutil.copytree(ROOT / "cudadrv", tmp_path / "cudadrv", ignore=ignored)
    for name in (
        "docs/api/environment.md",
        "tests/architecture/test_environment.py",
        "pytest_cudadrv.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("pyx", "softdriver"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_environment_variable_is_added_by_its_list(tree):
    assert re.findall(r"`([\w/]+\.\w+)`", LISTS["An environment variable"]) == [
        "cudadrv/_environment.py",
        "docs/api/environment.md",
    ]

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(tree), "CUDADRV_NEW": "one value"}
        command = (sys.executable, "-P", *command)
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)

    tests = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/architecture/test_environment.py",
    )
    module, page = tree / "cudadrv" / "_environment.py", tree / "docs" / "api" / "environment.md"
    unknown = "one value (cudadrv reads no variable of this name)"
    assert unknown in run("-m", "cudadrv", "info").stdout
    edit(
        module,
        "VARIABLES = (DRIVER,",
        'NEW = Variable("CUDADRV_NEW", "a test", "never")\nVARIABLES = (NEW, DRIVER,',
    )
    unlisted = run(*tests)
    assert unlisted.returncode == 1
    assert "test_the_page_has_exactly_the_variables" in unlisted.stdout
    first = next(
        line for line in page.read_text("utf-8").splitlines() if line.startswith("| `CUDADRV_")
    )
    edit(page, first, f"| `CUDADRV_NEW` | a test | never |\n{first}")
    listed = run(*tests)
    assert listed.returncode == 0, listed.stdout
    known = run("-m", "cudadrv", "info").stdout
    assert "one value" in known
    assert unknown not in known
