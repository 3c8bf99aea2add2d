"""cudadrv-software: the software driver and `run` alone, in an environment without cudadrv."""

import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
OURS = {"_libcuda", "_library", "_nvrtc_search", "_run", "_run_report", "_software_commands"}
OURS |= {"__init__", "__main__", "_environment"}
LIBRARIES = ("softdriver", "nvjitlink", "nvml", "nvrtc")
REMADE = ("work.o", "module.o", "nvjitlink.o", "nvml.o", "nvrtc.o")
pytestmark = pytest.mark.slow

CLIENT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
cuda.cuCheckpointProcessLock(0)
"""


def call(*command, status=0, **options):
    line = [str(part) for part in command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, **options)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def tree(made_once):
    """The source tree, with the checkout's objects: compiling the driver would take minutes."""

    def make(folder):
        call(sys.executable, ROOT / "tools" / "software_tree.py", folder)
        for built in (ROOT / "build").glob(f"temp.*-{sys.implementation.cache_tag}"):
            shutil.copytree(
                built,
                folder / "build" / built.name,
                ignore=shutil.ignore_patterns(*REMADE, "cython", "tests"),
            )

    return made_once("software tree", make)


@pytest.fixture(scope="module")
def software_wheel(tree, made_once):
    # Must be imported before pip, which imports the system's distutils.
    pytest.importorskip("setuptools")
    pytest.importorskip("pip")

    def build(folder):
        pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps"]
        call(*pip, "--no-build-isolation", "--wheel-dir", folder, tree, cwd=folder)

    (archive,) = made_once("software wheel", build).glob("*.whl")
    return archive


@pytest.fixture(scope="module")
def environment(software_wheel, made_once):
    """A new environment with the wheel, and without NumPy, Cython and cudadrv."""

    def install(folder):
        venv.create(folder, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        call(*pip, "install", "--no-index", software_wheel)

    return made_once("software installed", install) / "bin"


def test_wheel_has_the_driver_and_the_command(software_wheel):
    with zipfile.ZipFile(software_wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
    modules = {f"cudadrv_software/{name}.py" for name in OURS}
    libraries = {f"cudadrv_software/_{name}.abi3.so" for name in LIBRARIES}
    assert names == modules | libraries
    assert "-cp311-abi3-linux_" in software_wheel.name  # one wheel for all versions of Python
    assert "\nName: cudadrv-software\n" in text
    assert "Requires-Dist" not in text
    with (ROOT / "pyproject.toml").open(encoding="utf-8") as file:
        version = next(line.split('"')[1] for line in file if line.startswith("version = "))
    assert f"\nVersion: {version}\n" in text


def test_sdist_builds_by_itself(tree, tmp_path):
    """The sdist has every source and no built file, and builds by itself."""
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    call(sys.executable, "-c", code, cwd=tree)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        packed = {name.partition("/")[2] for name in file.getnames() if name.count("/")}
    needed = {"setup.py", "cudadrv_setup.py", "cuda_header.py", "pyproject.toml", "LICENSE"}
    needed |= {f"cudadrv_software/{name}.py" for name in OURS}
    sources = {path for path in (ROOT / "softdriver").rglob("*") if path.is_file()}
    needed |= {str(path.relative_to(ROOT)) for path in sources}
    assert needed - packed == set()
    assert [name for name in packed if name.endswith((".o", ".so")) or "build/" in name] == []


def test_nothing_of_cudadrv_is_imported(environment):
    code = "import sys, cudadrv_software.__main__\nprint(*sys.modules)"
    loaded = call(environment / "python", "-I", "-c", code).stdout.split()
    assert {name.partition(".")[0] for name in loaded}.isdisjoint({"cudadrv", "numpy", "Cython"})


def test_run(environment, tmp_path):
    line = ["run", "--devices=2", "--json", "report.json", "--", "python3", "-c", CLIENT]
    done = call(environment / "cudadrv-software", *line, cwd=tmp_path)
    assert done.stdout == "0 0 2\n"
    assert "        1 cuCheckpointProcessLock\n" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["unsupported_calls"] == {"cuCheckpointProcessLock": 1}


def test_what_the_wheels_workflow_tries(environment, tree):
    """The command with which cibuildwheel tests each wheel in the workflow works."""
    with (tree / "pyproject.toml").open("rb") as file:
        command = tomllib.load(file)["tool"]["cibuildwheel"]["test-command"]
    words = [word.format(package=tree) for word in command.split()]
    done = call(environment / words[0], *words[1:-2], environment / words[-2], words[-1])
    assert done.stdout == "it works\n"
    assert "1 process made 8 calls" in done.stderr


def test_the_wheels_workflow_builds_the_tree():
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    assert "python3 tools/software_tree.py build/software" in workflow
    assert "package-dir: build/software" in workflow


def test_libcuda(environment, tmp_path):
    shell = f'eval "$("{environment}/cudadrv-software" libcuda lib)"; exec "$@"'
    done = call("sh", "-c", shell, "sh", "python3", "-c", CLIENT, cwd=tmp_path)
    assert done.stdout == "0 0 1\n"


def test_words_of_the_command_line(environment, tmp_path):
    program = environment / "cudadrv-software"
    assert call(program, "--version").stdout.startswith("cudadrv-software ")
    assert {"run", "libcuda"} <= set(call(program).stdout.split())
    done = call(environment / "python", "-m", "cudadrv_software", "run", status=2)
    assert done.stderr.startswith("usage: python -m cudadrv_software run ")
    wrong = call(program, "run", "--seed=x", "true", status=2)
    assert wrong.stderr == "python -m cudadrv_software run: seed must be a number, not 'x'\n"
    (tmp_path / "file").touch()
    failed = call(program, "libcuda", tmp_path / "file" / "folder", status=1)
    assert failed.stderr.startswith("cudadrv-software: [Errno ")
    assert "Traceback" not in failed.stderr
