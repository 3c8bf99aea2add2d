"""The contents of the sdist and the wheel. The wheel works without the sources."""

import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def sources(*patterns: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for pattern in patterns
        for path in ROOT.glob(pattern)
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


@pytest.fixture(scope="module")
def packed(sdist) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.fixture(scope="module")
def shipped(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_sdist_has_everything(packed):
    expected = sources(
        "pyx/**/*",
        "include/cudadrv/*.h",
        "softdriver/**/*",
        "cudadrv/*.py",
        "cudadrv/*.pxd",
        "cudadrv/*.pyi",
        "tests/**/*",
        "docs/**/*",
        "benchmarks/**/*",
        "examples/**/*",
        "tools/**/*",
    ) | {"setup.py", "cuda_header.py", "pyproject.toml", "Makefile", "LICENSE", "README.md"}
    expected.add("pytest_cudadrv.py")
    assert expected - packed == set()
    assert "cudadrv/py.typed" in packed


def test_sdist_has_nothing_built(packed):
    assert [
        name for name in packed if name.startswith(("build/", "cudadrv/include", "cudadrv/kernels"))
    ] == []
    assert [name for name in packed if name.endswith((".so", ".o", ".pyc"))] == []


def test_wheel_has_the_package_and_nothing_else(shipped):
    binaries = {name for name in shipped if name.endswith(".so")}
    assert sorted(Path(name).name.partition(".")[0] for name in binaries) == [
        "_compiled",
        "_nvjitlink",
        "_nvml",
        "_nvrtc",
        "_softdriver",
    ]
    headers = {f"cudadrv/{name}" for name in sources("include/cudadrv/*.h")}
    kernels = {"cudadrv/kernels/histogram.ptx"}
    published = sources("cudadrv/*.py", "cudadrv/*.pxd", "cudadrv/*.pyi", "pytest_cudadrv.py")
    published.add("cudadrv/py.typed")
    metadata = {name for name in shipped if ".dist-info/" in name}
    assert shipped - binaries - metadata == headers | kernels | published


def test_pytest_finds_the_plugin(installed, tmp_path):
    code = (
        "from importlib.metadata import distribution\n"
        "for entry in distribution('cudadrv').entry_points:\n"
        "    print(entry.group, entry.name, entry.load().__file__)"
    )
    group, name, path = output(installed, "-I", "-c", code).split()
    # The name must be the module's name: then `pytest_plugins` and `-p` do not load the plugin
    # twice.
    assert (group, name) == ("pytest11", "pytest_cudadrv")
    assert Path(path).is_relative_to(installed.parents[1])
    (tmp_path / "test_it.py").write_text("def test(cuda_checked): pass\n")
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['pytest_cudadrv']\n")
    ran = output(installed, "-I", "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path)
    assert "3 passed" in ran


def test_readme_of_an_index_leads_nowhere_wrong(wheel):
    """The README of an index has no relative links: the index has only this file."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    assert "\nDescription-Content-Type: text/markdown\n" in text
    assert "# cudadrv\n" in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []


def test_wheel_carries_its_license(shipped):
    assert any(name.endswith("licenses/LICENSE") for name in shipped)


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "cudadrv"


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_nothing_links_to_the_driver(unpacked):
    for binary in unpacked.glob("*.so"):
        lines = output("readelf", "--dynamic", binary).splitlines()
        needed = [line for line in lines if "(NEEDED)" in line]
        if not binary.name.startswith("_nvjitlink"):  # this library calls nothing
            assert "libc.so" in str(needed), binary.name
        assert "libcuda" not in str(needed), binary.name


def test_software_driver_exports_the_driver_api_alone(unpacked):
    (library,) = unpacked.glob("_softdriver.*.so")
    listed = output("nm", "--dynamic", "--defined-only", library)
    exported = {line.split()[-1] for line in listed.splitlines()}
    assert "cuInit" in exported
    assert {name for name in exported if not name.startswith("cu")} == {"PyInit__softdriver"}


def test_headers_are_where_it_says(python, tmp_path):
    code = (
        "import pathlib, cudadrv\n"
        "headers = pathlib.Path(cudadrv.get_include(), 'cudadrv')\n"
        "print(*sorted(path.name for path in headers.glob('*.h')))"
    )
    expected = sorted(Path(name).name for name in sources("include/cudadrv/*.h"))
    assert python(tmp_path, "-W", "error", "-c", code).split() == expected


def test_the_demo_has_its_kernel(installed):
    code = (
        "from pathlib import Path\n"
        "import cudadrv\n"
        "print(Path(cudadrv.__file__).with_name('kernels').joinpath('histogram.ptx').read_text())"
    )
    source = ROOT / "examples" / "kernels" / "histogram.ptx"
    assert output(installed, "-I", "-c", code) == source.read_text(encoding="utf-8") + "\n"


def test_wheel_is_what_is_imported(installed):
    printed = output(installed, "-I", "-c", "import cudadrv; print(cudadrv.__file__)")
    assert Path(printed.strip()).is_relative_to(installed.parents[1])
