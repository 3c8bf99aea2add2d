"""The programs of examples/ run under every schedule, and release everything."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(Path(cudadrv.__file__).parents[1])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
KERNELS = sorted(path for path in ROOT.glob("examples/kernels/*.py") if path.name != "build.py")
INTEROP = sorted(path for path in ROOT.glob("examples/interop/*.py"))
# Modules that are imported, which may be longer than examples.
LIBRARIES = [ROOT / "examples" / "interop" / "tiny.py"]
ALONE = [ROOT / "examples" / "interop" / "array_library.py"]
DISTRIBUTED = sorted(path for path in ROOT.glob("examples/distributed/*.py"))
# Other distributed examples run in tests/external.
STENCIL = ROOT / "examples" / "distributed" / "stencil.py"
DISCUSSIONS = sorted(path for path in ROOT.glob("examples/discussions/*.py"))
WITH_OTHERS = [path for path in INTEROP if path not in LIBRARIES + ALONE]
LONGEST = 60
LONGEST_LIBRARY = 180


OURS = pytest.mark.parametrize(
    "example", EXAMPLES + KERNELS + ALONE + [STENCIL] + DISCUSSIONS, ids=lambda path: path.name
)


def run(example, folder, **environ):
    if "from PIL import" in example.read_text(encoding="utf-8"):
        pytest.importorskip("PIL", reason="an example needs Pillow")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PACKAGE, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
@OURS
def test_example_runs(example, schedule, tmp_path):
    settings = f"schedule={schedule},seed=7"
    run(example, tmp_path, CUDADRV_DRIVER="software", CUDADRV_SOFTWARE=settings)


@pytest.mark.cuda_gpu
@OURS
def test_example_runs_on_a_gpu(example, tmp_path):
    run(example, tmp_path, CUDADRV_DRIVER="cuda")


@pytest.mark.cuda_gpu
@pytest.mark.parametrize("example", WITH_OTHERS, ids=lambda path: path.name)
def test_example_with_another_library(example, tmp_path):
    """Examples with other libraries need a GPU. The numba one also runs in tests/external."""
    [library] = re.findall(r"^(?:import|from) (cupy|numba|torch)\b", example.read_text(), re.M)
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env={**os.environ, "CUDADRV_DRIVER": "cuda", "PYTHONPATH": PACKAGE},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if library == "numba" and "module 'numpy' has no attribute" in done.stderr:
        pytest.skip("numba-cuda cannot compile here: this NumPy is too new for it")
    assert done.returncode == 0, done.stderr
    # Each of these examples shows a refusal, which names a line of the example.
    assert re.search(rf"at (?:\S*/)?{example.name}:\d+", done.stdout)


@pytest.mark.parametrize(
    "example", EXAMPLES + KERNELS + INTEROP + DISCUSSIONS, ids=lambda path: path.name
)
def test_example_is_short(example):
    longest = LONGEST_LIBRARY if example in LIBRARIES else LONGEST
    assert len(example.read_text(encoding="utf-8").splitlines()) < longest


def test_users_of_a_library_see_their_own_lines(tmp_path):
    """All lines in the messages of array_library.py are its own lines, not lines of tiny.py."""
    done = subprocess.run(
        [sys.executable, str(*ALONE)],
        cwd=tmp_path,
        env={**os.environ, "CUDADRV_DRIVER": "software", "PYTHONPATH": PACKAGE},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert re.findall(r"(\w+\.py):\d+", done.stdout) == ["array_library.py"] * 2


def test_discussions_are_listed():
    listed = (ROOT / "examples" / "discussions" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in DISCUSSIONS if f"]({path.name})" not in listed] == []


def test_examples_are_numbered_and_listed():
    numbers = [int(re.match(r"(\d\d)_", example.name)[1]) for example in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    programs = EXAMPLES + KERNELS + INTEROP + DISTRIBUTED
    names = [str(path.relative_to(ROOT / "examples")) for path in programs]
    assert [name for name in names if f"]({name})" not in listed] == []
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```{literalinclude} \.\./examples/(\S+)$", page, re.M)
    interop = [name for name in shown if name.startswith("interop/")]
    distributed = [name for name in shown if name.startswith("distributed/")]
    assert shown == [example.name for example in EXAMPLES] + interop + distributed
    assert {f"distributed/{example.name}" for example in DISTRIBUTED} == set(distributed)
    assert sorted(interop) == [f"interop/{example.name}" for example in INTEROP]
