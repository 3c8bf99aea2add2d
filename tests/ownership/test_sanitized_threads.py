"""The engine and the threads of large copies, in C programs that run under sanitizers."""

import os
import subprocess
from pathlib import Path

import pytest
from compiled import compiled
from limits import PATIENCE

FOLDER = Path(__file__).parent
PROGRAMS = {"engine_threads.c": " refused\n", "copy_threads.c": " ended\n"}
SEEDS = range(1, 1 + int(os.environ.get("CUDADRV_FUZZ_SEEDS", "4")))
ROUNDS = os.environ.get("CUDADRV_ENGINE_ROUNDS", "3000")


@pytest.fixture(params=["thread", "address,undefined"])
def sanitized(request, tmp_path):
    """Return a function that compiles one of the programs with a sanitizer, if that works here."""
    empty, target = tmp_path / "empty.c", tmp_path / "program"
    empty.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    flags = [f"-fsanitize={request.param}", "-fno-sanitize-recover=all"]
    try:
        works = not compiled(empty, target, *flags)
        works = works and subprocess.run([target], capture_output=True).returncode == 0
    except OSError:
        pytest.skip("there is no C compiler")
    if not works:
        pytest.skip(f"the {request.param} sanitizer does not work here")

    def sanitized(name: str) -> Path:
        assert compiled(FOLDER / name, target, *flags) == ""
        return target

    return sanitized


@pytest.mark.parametrize("name", PROGRAMS)
def test_several_threads(sanitized, name):
    """The engine has no data race in several threads, and no record is left at the end."""
    program = sanitized(name)
    for seed in SEEDS:
        done = subprocess.run(
            [program, str(seed), ROUNDS], capture_output=True, text=True, timeout=PATIENCE
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr[-8000:]
        assert done.stdout.endswith(PROGRAMS[name])
