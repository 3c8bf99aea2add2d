"""The examples of README.md and docs/ print the text beside them."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(Path(cudadrv.__file__).parents[1])
RUNNER = Path(__file__).with_name("run_blocks.py")
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

spec = importlib.util.spec_from_file_location("run_blocks", RUNNER)
run_blocks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_blocks)


def run_page(page: Path) -> subprocess.CompletedProcess:
    """Run a page's blocks in a folder with the entries of the repository, which stays as it is."""
    environ = {**os.environ, "CUDADRV_DRIVER": "software", "PYTHONPATH": PACKAGE}
    environ.pop("CUDADRV_SOFTWARE", None)
    command = [sys.executable, "-W", "error", str(RUNNER), str(page)]
    with tempfile.TemporaryDirectory() as folder:
        for entry in ROOT.iterdir():
            Path(folder, entry.name).symlink_to(entry)
        return subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks(page):
    done = run_page(page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    missing = [name for name in LINK.findall(text) if not (page.parent / name).exists()]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text)]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_somewhere(page):
    found = ANCHOR.findall(page.read_text(encoding="utf-8"))
    targets = {name: anchors(page.parent / name if name else page) for name, _ in found}
    assert [f"{name}#{anchor}" for name, anchor in found if anchor not in targets[name]] == []


def test_readme_has_blocks():
    blocks = run_blocks.blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert sum(block.expected is not None for block in blocks) >= 2


def test_readme_is_read_in_ten_minutes():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    words = re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()
    assert sum(any(map(str.isalnum, word)) for word in words) <= 900


@pytest.mark.parametrize(
    ("code", "text", "agrees"),
    [
        ("print(1)", "1", True),
        ("print(1)", "2", False),
        ("raise ValueError('of x.py:3')", "ValueError: of y.py:44", True),
        ("raise ValueError('no')", "ValueError: yes", False),
        ("raise ValueError('no')", "TypeError: no", False),
        ("1", "ValueError: no", False),
        ("print('Stream 4, Stream 9')", "Stream 1, Stream 2", True),
        ("print('Stream 4, Stream 4')", "Stream 1, Stream 2", False),
        ("print('a long story')", "a ... story", True),
        ("print(1)\nraise ValueError(2)", "1\nValueError: 2", True),
    ],
)
def test_a_wrong_text_is_noticed(tmp_path, code, text, agrees):
    page = tmp_path / "page.md"
    page.write_text(f"Words.\n\n```python\n{code}\n```\n\n```text\n{text}\n```\n")
    assert (run_page(page).returncode == 0) == agrees


def test_an_unannounced_error_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n1 / 0\n```\n\nWords.\n\n```text\nZeroDivisionError\n```\n")
    assert run_page(page).returncode != 0


START = "```python start\nimport cudadrv as cu\n\nstream = cu.Stream()\n```\n\n"
OF_STREAM = "```python\nprint(stream)\n```\n\n```text\n<Stream 1, device 0>\n```\n"


@pytest.mark.parametrize(
    ("program", "text", "agrees"),
    [
        ("print(stream)", "<Stream 1, device 0>", True),
        ("print(stream)", "<Stream 2, device 0>", False),
        ("import cudadrv as cu\nprint(cu.Stream())", "<Stream 1, device 0>", True),
        ("print('ab')", "a...", True),
        ("raise ValueError('no')", "ValueError: yes", False),
        ("print(cu.DeviceBuffer(8, stream=stream).borrows[0].site)", "pipeline.py:5", True),
        ("print(cu.DeviceBuffer(8, stream=stream).borrows[0].site)", "pipeline.py:6", False),
    ],
)
def test_programs_run_apart(tmp_path, program, text, agrees):
    page = tmp_path / "page.md"
    block = f"```python\n{program}\n```\n\n```text\n{text}\n```\n\n"
    page.write_text(START + block + OF_STREAM)
    assert (run_page(page).returncode == 0) == agrees


def test_an_unannounced_error_of_a_program_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(START + "```python\n1 / 0\n```\n")
    done = run_page(page)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
