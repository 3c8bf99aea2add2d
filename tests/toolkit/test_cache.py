"""The cache: what is compiled again, where PTX is kept, and damaged caches, which are no error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

from cudadrv import toolkit
from cudadrv._compile_cache import Cache, cache_folder


def compile_(source="k", **options):
    return toolkit.compile(source, **{"arch": "compute_75", **options})


def test_the_same_is_compiled_once(nvcc):
    assert compile_() == compile_()
    assert len(nvcc.calls) == 1


def test_switched_off(nvcc, cache, monkeypatch):
    compile_(cache=False)
    compile_(cache=False)
    monkeypatch.setenv("CUDADRV_CACHE_DIR", "off")
    compile_()
    compile_()
    assert len(nvcc.calls) == 4
    assert not cache.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "other"},
        {"arch": "compute_80"},
        {"options": ["-DX"]},
        {"name": "other.cu"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_differs_is_compiled_again(nvcc, changed):
    compile_()
    compile_(**changed)
    assert len(nvcc.calls) == 2


def test_options_are_not_run_together(nvcc):
    compile_(options=["-DA", "B"])
    compile_(options=["-DAB"])
    assert len(nvcc.calls) == 2


def test_another_release_compiles_again(nvcc):
    compile_()
    nvcc.say("13.1", "9.1")
    assert compile_().startswith(".version 9.1")


@pytest.mark.parametrize("variable", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CPATH"])
def test_what_the_environment_adds(nvcc, monkeypatch, variable):
    compile_()
    monkeypatch.setenv(variable, "-DX")
    compile_()
    assert len(nvcc.calls) == 2


class Project:
    """A source that includes other files, with counts of compilations."""

    def __init__(self, folder: Path, nvcc) -> None:
        self.folder, self.nvcc = folder, nvcc
        self.options: list[str] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def compiled(self, source: Path | str | None = None) -> bool:
        """Compile the source. Returns whether the compiler was called."""
        before = len(self.nvcc.calls)
        compile_(source or self.folder / "main.cu", options=self.options)
        return len(self.nvcc.calls) > before


@pytest.fixture
def project(tmp_path, nvcc):
    return Project(tmp_path / "project", nvcc)


@pytest.mark.parametrize(
    "line",
    [
        '#include "a.h"',
        '  #  include"a.h"',
        '#/* why */include /* not */ "a.h"',
        '#inc\\\nlude "a.h"',
        '#import "a.h"',
        "#include <a.h>",
    ],
)
def test_included_file(project, line):
    project.options = [f"-I{project.folder}"]
    project.write("main.cu", line + "\n")
    project.write("a.h", "1")
    assert project.compiled()
    assert not project.compiled()
    project.write("a.h", "2")
    assert project.compiled()


def test_included_by_an_included_file(project):
    project.write("main.cu", '#include "sub/a.h"')
    project.write("sub/a.h", '#include "b.h"')
    # Two files that include each other, as is possible with include guards.
    project.write("sub/b.h", '#include "a.h"')
    assert project.compiled()
    assert not project.compiled()
    project.write("sub/b.h", "changed")
    assert project.compiled()


@pytest.mark.parametrize(
    "options",
    [["-I{}"], ["-I", "{}"], ["--include-path={}"], ["-isystem", "{}"], ["-I/nowhere,{}"]],
    ids=lambda options: options[0],
)
def test_folders_by_option(project, options):
    project.write("include/a.h", "1")
    project.options = [option.format(project.folder / "include") for option in options]
    text = '#include "a.h"'
    assert project.compiled(text)
    assert not project.compiled(text)
    project.write("include/a.h", "2")
    assert project.compiled(text)


def test_a_file_that_appears_before_the_other(project):
    for folder in ("one", "two"):
        project.write(f"{folder}/x", "")
    project.options = [f"-I{project.folder / folder}" for folder in ("one", "two")]
    project.write("two/a.h", "1")
    text = "#include <a.h>"
    assert project.compiled(text)
    project.write("one/a.h", "2")
    assert project.compiled(text)
    assert not project.compiled(text)


def test_a_file_named_by_an_option(project):
    file = project.write("defines.h", '#include "more.h"')
    project.write("more.h", "1")
    project.options = ["-include", str(file)]
    assert project.compiled("k")
    assert not project.compiled("k")
    project.write("more.h", "2")
    assert project.compiled("k")


def test_an_include_that_a_macro_names_is_not_kept(project):
    text = "#define HEADER <a.h>\n#include HEADER\n"
    assert project.compiled(text)
    assert project.compiled(text)


def test_a_source_that_changes_meanwhile_is_not_kept(project, nvcc):
    """If a source changes while it is compiled, the result is not cached.

    Here the compiler script changes the source, after the key was made.
    """
    path = project.write("main.cu", "first")
    nvcc.path.write_text(nvcc.path.read_text().replace("\nwhile", f"\necho x > {path}\nwhile"))
    compile_(path)
    path.write_text("first")
    assert project.compiled()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: path.write_text("x" * 64 + "\n.version 9.0"),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["empty", "truncated", "bytes", "wrong", "folder"],
)
def test_damaged_file(nvcc, cache, damage):
    expected = compile_()
    (kept,) = cache.glob("*.ptx")
    damage(kept)
    assert compile_() == expected
    assert len(nvcc.calls) == 2
    assert [path for path in cache.iterdir() if path.suffix == ".new"] == []


def test_an_entry_of_another_key(nvcc, cache):
    """An entry of the cache that belongs to another source is not used."""
    expected = compile_("one")
    (one,) = cache.glob("*.ptx")
    compile_("two")
    (two,) = set(cache.glob("*.ptx")) - {one}
    one.write_bytes(two.read_bytes())
    assert compile_("one") == expected


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write(nvcc, cache, mode, caplog):
    compile_()
    cache.chmod(mode)
    for _ in range(2):
        compile_()
        compile_("other")
    assert len(nvcc.calls) == 5, "nothing was read from it"
    assert len(list(cache.iterdir())) == 1, "nor was anything put there"
    (record,) = caplog.records
    assert record.getMessage() == (
        f"compiled PTX is not kept: others can write to {cache} (mode {mode:o}; chmod go-w mends"
        " that). Or set CUDADRV_CACHE_DIR to a folder of your own, or to 'off'"
    )
    cache.chmod(0o755)
    compile_()
    assert len(nvcc.calls) == 5


def test_a_folder_of_somebody_else(nvcc, cache, monkeypatch, caplog):
    compile_()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    status = cache.stat()
    other = os.stat_result((*status[:4], user + 2, *status[5:]))
    stat = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda path, **given: other if path == cache else stat(path, **given)
    )
    compile_()
    assert len(nvcc.calls) == 2
    assert f"{cache} belongs to user {user + 2}, and this process to user {user + 1}" in caplog.text


def test_folder_that_cannot_be_made(nvcc, cache):
    cache.write_text("a file where the folder should be")
    compile_()
    compile_()
    assert len(nvcc.calls) == 2


def test_only_the_user_can_read_it(nvcc, cache):
    compile_()
    assert cache.stat().st_mode & 0o777 == 0o700


def test_bounded_and_the_least_used_go_first(tmp_path):
    cache = Cache(tmp_path, most_bytes=10_000)
    ptx = "x" * 935  # 1,000 bytes with the checksum and its newline
    for number in range(10):
        cache.store(f"key{number}", ptx)
        os.utime(tmp_path / f"key{number}.ptx", (number, number))
    assert cache.load("key0")
    cache.store("key10", ptx)
    left = {path.stem for path in tmp_path.iterdir()}
    assert left == {"key0", "key7", "key8", "key9", "key10"}


def test_half_written_files_are_thrown_away_too(tmp_path):
    cache = Cache(tmp_path, most_bytes=1000)
    (tmp_path / "killed.new").write_bytes(b"x" * 900)
    os.utime(tmp_path / "killed.new", (0, 0))
    cache.store("key", "x" * 200)
    assert [path.name for path in tmp_path.iterdir()] == ["key.ptx"]


def test_several_processes(nvcc, cache):
    program = (
        "from cudadrv import toolkit\n"
        "for round in range(10):\n"
        "    for number in range(5):\n"
        "        text = toolkit.compile(f'number {number}', arch='compute_75')\n"
        "        assert f'// number {number}' in text, text\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", program]
    running = [subprocess.Popen(command, env=environ) for _ in range(4)]
    assert [process.wait(PATIENCE) for process in running] == [0] * 4
    assert 5 <= len(nvcc.calls) <= 20
    assert len(list(cache.iterdir())) == 5


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CUDADRV_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"CUDADRV_CACHE_DIR": "", "XDG_CACHE_HOME": "/x"}, "/x/cudadrv"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/cudadrv"),
        ({"XDG_CACHE_HOME": "not/absolute"}, "~/.cache/cudadrv"),
        ({"XDG_CACHE_HOME": ""}, "~/.cache/cudadrv"),
        ({}, "~/.cache/cudadrv"),
        ({"CUDADRV_CACHE_DIR": "off"}, None),
    ],
)
def test_folder(environ, expected):
    assert cache_folder(environ) == (Path(expected).expanduser() if expected else None)


def test_relative_folder_is_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cache_folder({"CUDADRV_CACHE_DIR": "./off"}) == tmp_path / "off"


def test_no_home(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert cache_folder({}) is None
