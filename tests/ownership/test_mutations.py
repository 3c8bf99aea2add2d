"""Each mutation of the lists changes exactly one place of one function."""

import shutil
import subprocess
import sys
from pathlib import Path

import library_mutations
import mutations
import pytest
import replay
import sources
from pair import Disagreement

import cudadrv._engine

ROOT = Path(__file__).resolve().parents[2]
EVERY = [*mutations.MUTATIONS, *library_mutations.MUTATIONS]


@pytest.mark.parametrize(("name", "function", "old", "new"), EVERY, ids=[each[0] for each in EVERY])
def test_each_changes_one_place(name, function, old, new):
    assert sources.changed(function, old, new)
    assert new != old


@pytest.mark.parametrize(
    ("name", "function", "old", "new"),
    mutations.IN_THREADS,
    ids=[each[0] for each in mutations.IN_THREADS],
)
def test_the_replay_notices_what_happens_between_threads(tmp_path, name, function, old, new):
    include = shutil.copytree(ROOT / "include", tmp_path / "include")
    path, text = sources.changed(function, old, new, tmp_path)
    path.write_text(text, encoding="utf-8")
    program = replay.build(tmp_path, include)

    def run():
        for seed in range(1000):
            replay.run(program, seed, 8, scheduled=True)

    # The oracle, or the program itself, notices.
    with pytest.raises(Disagreement, match=r"the engine (says|blames)|engine_threads: "):
        run()


@pytest.mark.parametrize("needed", [mutations.NEEDED, library_mutations.NEEDED])
def test_a_copy_has_all_that_a_build_reads(tmp_path, needed):
    mutations.copy_of(tmp_path, [each for each in needed if (ROOT / each).is_file()])
    said = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr


def test_the_engine_can_be_imported_without_the_library(tmp_path):
    mutations.begin(tmp_path)
    shutil.copy2(cudadrv._engine.__file__, tmp_path / "cudadrv")
    command = [sys.executable, "-c", "import cudadrv._engine as e; print(e.__file__)"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert said.stdout.startswith(str(tmp_path)), said.stderr


@pytest.mark.parametrize("needed", [mutations.NEEDED, library_mutations.NEEDED])
def test_what_a_copy_needs_is_there(needed):
    assert [each for each in needed if not (ROOT / each).exists()] == []


def test_names_are_names():
    assert len({each[0] for each in EVERY}) == len(EVERY) > 80
