"""One sdist, one wheel from it, and one installation of the wheel, which all packaging tests share.

No network is needed: the build uses the packages that are installed for the tests.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_SOURCES = [".git", "build", "dist", ".venv*", "*.so", "*.egg-info", "*_cache", "__pycache__"]


def run(command: list[str | Path], cwd: Path, **environ: str) -> str:
    """Run a command, and return its output.

    By default PYTHONPATH is unset, so it finds no checkout.
    """
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**outside, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function that fills a folder once for all workers of pytest-xdist: building takes long."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made_once(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # the result of an attempt that failed
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return made_once


def copy_with_leftovers(folder: Path) -> Path:
    """Copy the sources, and add leftovers of a build, which must not get into a distribution."""
    copy = folder / "cudadrv"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    leftovers = [
        "build/cython/pyx/_stale.c",
        "cudadrv/_stale.so",
        "cudadrv/include/cudadrv/stale.h",
        "cudadrv/kernels/stale.ptx",
    ]
    for leftover in map(copy.joinpath, leftovers):
        leftover.parent.mkdir(parents=True, exist_ok=True)
        leftover.touch()
    return copy


@pytest.fixture(scope="session")
def sdist(made_once, tmp_path_factory) -> Path:
    pytest.importorskip("setuptools")

    def build(folder: Path) -> None:
        tree = copy_with_leftovers(tmp_path_factory.mktemp("tree"))
        code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
        run([sys.executable, "-c", code], tree)

    (archive,) = made_once("sdist", build).iterdir()
    return archive


def unpacked_beside_objects(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist, and add the C files and objects of the checkout's build.

    With these files a build makes nearly nothing, because it makes a file only if it is older than
    its source. One module and one folder of the software driver are always built, so that missing
    sources show. test_distributions.py checks that the sdist has every source.
    """
    run(["tar", "-xf", sdist], folder)  # keeps the times of the files
    (tree,) = folder.iterdir()
    made_again = shutil.ignore_patterns("_token.*", "work.o")
    built = [ROOT / "build" / "cython"]
    built += (ROOT / "build").glob(f"temp.*-{sys.implementation.cache_tag}")
    for source in filter(Path.exists, built):
        shutil.copytree(source, tree / "build" / source.name, ignore=made_again)
    return tree


@pytest.fixture(scope="session")
def wheel(sdist, made_once, tmp_path_factory) -> Path:
    pytest.importorskip("pip")
    pytest.importorskip("Cython")

    def build(folder: Path) -> None:
        tree = unpacked_beside_objects(sdist, tmp_path_factory.mktemp("unpacked"))
        pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps"]
        pip += ["--no-build-isolation", "--wheel-dir", str(folder), str(tree)]
        # Without optimization, because only building and installing are tested here.
        run(pip, folder, CFLAGS="-O0 -g0")

    (archive,) = made_once("wheel", build).glob("*.whl")
    return archive


@pytest.fixture(scope="session")
def installed(wheel, made_once) -> Path:
    """The Python of a new environment with the wheel.

    This Python also finds the packages of the environment of the tests.
    """

    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        run([*pip, "install", "--no-index", "--no-deps", wheel], folder)
        (site,) = folder.glob("lib/python*/site-packages")
        # Python searches folders that a .pth names, but ignores the .pth files in them. So the
        # editable install of this environment is not found.
        behind = [entry for entry in sys.path if entry.endswith("-packages")]
        (site / "behind.pth").write_text("\n".join(behind) + "\n")

    return made_once("installed", install) / "bin" / "python"


@pytest.fixture
def wheel_python(installed) -> Callable[..., str]:
    """A function that runs Python with the installed wheel."""
    return lambda cwd, *arguments, **environ: run([installed, *arguments], cwd, **environ)


@pytest.fixture(params=["wheel", "checkout"])
def python(request) -> Callable[..., str]:
    """A function that runs Python with the installed wheel, or with this checkout."""
    if request.param == "wheel":
        return request.getfixturevalue("wheel_python")
    return lambda cwd, *arguments, **environ: run(
        [sys.executable, *arguments], cwd, PYTHONPATH=str(ROOT), **environ
    )
