"""The engine and the threads of large copies, in C programs that run under sanitizers."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
PROGRAMS = {"engine_threads.c": " refused\n", "copy_threads.c": " ended\n"}
SEEDS = range(1, 1 + int(os.environ.get("CUDADRV_FUZZ_SEEDS", "4")))
ROUNDS = os.environ.get("CUDADRV_ENGINE_ROUNDS", "3000")


def build(source: Path, target: Path, sanitizer: str) -> subprocess.CompletedProcess[str]:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-pthread"]
    checks = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    command = [compiler, *flags, *checks, f"-I{ROOT / 'include'}", str(source), "-o", str(target)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(params=["thread", "address,undefined"])
def compiled(request, tmp_path):
    """Return a function that compiles one of the programs with a sanitizer, if that works here."""
    empty, target = tmp_path / "empty.c", tmp_path / "program"
    empty.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    try:
        works = build(empty, target, request.param).returncode == 0
        works = works and subprocess.run([target], capture_output=True).returncode == 0
    except OSError:
        pytest.skip("there is no C compiler")
    if not works:
        pytest.skip(f"the {request.param} sanitizer does not work here")

    def compiled(name: str) -> Path:
        done = build(FOLDER / name, target, request.param)
        assert done.returncode == 0, done.stderr[-4000:]
        return target

    return compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_several_threads(compiled, name):
    """The engine has no data race in several threads, and no record is left at the end."""
    program = compiled(name)
    for seed in SEEDS:
        done = subprocess.run(
            [program, str(seed), ROUNDS], capture_output=True, text=True, timeout=PATIENCE
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr[-8000:]
        assert done.stdout.endswith(PROGRAMS[name])
