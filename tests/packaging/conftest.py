"""One sdist, one wheel from it and one installation of that, shared by the packaging tests.

Nothing here needs a network: the build uses the packages that the tests themselves run with.
"""

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
def tree(tmp_path_factory) -> Path:
    """A copy of the sources, with leftovers of a build that must not get anywhere."""
    copy = tmp_path_factory.mktemp("tree") / "cudadrv"
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
def sdist(tree, tmp_path_factory) -> Path:
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("sdist")
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    run([sys.executable, "-c", build], tree)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="session")
def wheel(sdist, tmp_path_factory) -> Path:
    pytest.importorskip("pip")
    pytest.importorskip("Cython")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    # What is compiled is tested elsewhere: here it may be slow, and is ready in half the time.
    run([*pip, "--wheel-dir", folder, sdist], folder, CFLAGS="-O0 -g0")
    (archive,) = folder.glob("*.whl")
    return archive


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Path:
    """The Python of a new environment with the wheel in it, and this one's packages behind that."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-index",
        "--no-deps",
    ]
    run([*install, wheel], folder)
    (site,) = folder.glob("lib/python*/site-packages")
    # Folders named by a .pth are searched, but their own .pth files, an editable install, are not.
    behind = [entry for entry in sys.path if entry.endswith("-packages")]
    (site / "behind.pth").write_text("\n".join(behind) + "\n")
    return python


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
