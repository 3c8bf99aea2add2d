"""One sdist, one wheel from it and one installation of that, shared by the packaging tests.

Nothing here needs a network: the build uses the packages that the tests themselves run with.
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
    """The output of a command that sees no checkout through PYTHONPATH unless told so."""
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
    """Fills a folder by a function, once for all workers of pytest-xdist: building takes long."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made_once(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # an attempt that failed
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return made_once


def copy_with_leftovers(folder: Path) -> Path:
    """A copy of the sources, with leftovers of a build that must not get anywhere."""
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
    """An unpacked sdist, with the C files and objects that the checkout's build made.

    They save nearly all the time of a build. test_distributions.py checks that the sdist has every
    source. The build makes a file again if it is older than its source. One module and one file of
    the software driver are always built, which shows that the sdist has all that a build needs.
    """
    run(["tar", "-xf", sdist], folder)  # it keeps the times of the files
    (tree,) = folder.iterdir()
    made_again = shutil.ignore_patterns("_token.*", "range.o")
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
        # Only whether it builds and installs is tested here, so it needs no optimization.
        run(pip, folder, CFLAGS="-O0 -g0")

    (archive,) = made_once("wheel", build).glob("*.whl")
    return archive


@pytest.fixture(scope="session")
def installed(wheel, made_once) -> Path:
    """The Python of a new environment with the wheel in it, and this one's packages behind that."""

    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
        run([*pip, "install", "--no-index", "--no-deps", wheel], folder)
        (site,) = folder.glob("lib/python*/site-packages")
        # Folders named by a .pth are searched, but their own .pth files, an editable install, are
        # not.
        behind = [entry for entry in sys.path if entry.endswith("-packages")]
        (site / "behind.pth").write_text("\n".join(behind) + "\n")

    return made_once("installed", install) / "bin" / "python"


@pytest.fixture
def wheel_python(installed) -> Callable[..., str]:
    """Runs Python where cudadrv is the installed wheel."""
    return lambda cwd, *arguments, **environ: run([installed, *arguments], cwd, **environ)


@pytest.fixture(params=["wheel", "checkout"])
def python(request) -> Callable[..., str]:
    """Runs Python where cudadrv is the installed wheel, or this checkout (an editable install)."""
    if request.param == "wheel":
        return request.getfixturevalue("wheel_python")
    return lambda cwd, *arguments, **environ: run(
        [sys.executable, *arguments], cwd, PYTHONPATH=str(ROOT), **environ
    )
