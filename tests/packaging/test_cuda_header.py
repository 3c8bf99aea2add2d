"""Where the build searches for cuda.h, and the error if it finds none."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

spec = importlib.util.spec_from_file_location("cuda_header", ROOT / "cuda_header.py")
cuda_header = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cuda_header)
HeaderError = cuda_header.HeaderError


def write_header(folder: Path, version: int = 12090) -> Path:
    folder.mkdir(parents=True)
    (folder / "cuda.h").write_text(
        f"#ifndef H\n#define H\n#define CUDA_VERSION {version}\n#endif\n"
    )
    return folder


def write_nvcc(file: Path, text: str = "exit 1") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def find(tmp_path):
    """find_cuda_header() on a machine with only the files under tmp_path."""

    def find(**environ):
        environ.setdefault("PATH", str(tmp_path / "bin"))
        return cuda_header.find_cuda_header(environ, [str(tmp_path / "site")], tmp_path / "toolkit")

    return find


def test_order(find, tmp_path):
    expected = [
        ("CUDA_HOME", write_header(tmp_path / "home" / "include", 12010)),
        ("CUDA_PATH", write_header(tmp_path / "path" / "include", 12020)),
        ("nvcc on PATH", write_header(tmp_path / "include", 12030)),
        (str(tmp_path / "toolkit"), write_header(tmp_path / "toolkit" / "include", 12040)),
        (
            "the nvidia-cuda-runtime package",
            write_header(tmp_path / "site" / "nvidia" / "cu13" / "include", 13000),
        ),
    ]
    nvcc = write_nvcc(tmp_path / "bin" / "nvcc")
    chosen = {"CUDA_HOME": str(tmp_path / "home"), "CUDA_PATH": str(tmp_path / "path")}
    removals = [
        lambda: chosen.pop("CUDA_HOME"),
        lambda: chosen.pop("CUDA_PATH"),
        nvcc.unlink,
        (tmp_path / "toolkit" / "include" / "cuda.h").unlink,
        (tmp_path / "site" / "nvidia" / "cu13" / "include" / "cuda.h").unlink,
    ]
    for (origin, folder), remove in zip(expected, removals, strict=True):
        found = find(**chosen)
        assert (found.origin, found.folder) == (origin, folder)
        remove()
    with pytest.raises(HeaderError):
        find(**chosen)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_chosen_toolkit_without_header_is_never_ignored(find, tmp_path, variable):
    write_header(tmp_path / "toolkit" / "include")
    with pytest.raises(HeaderError) as error:
        find(**{variable: str(tmp_path / "empty")})
    assert variable in str(error.value)
    assert str(tmp_path / "empty" / "include") in str(error.value)


def test_an_empty_variable_is_not_set(find, tmp_path):
    folder = write_header(tmp_path / "toolkit" / "include")
    assert find(CUDA_HOME="", CUDA_PATH="").folder == folder


def test_nothing_found_names_every_place_and_a_way_out(find, tmp_path):
    with pytest.raises(HeaderError) as error:
        find()
    for part in ("nvcc", str(tmp_path / "toolkit"), "pip install nvidia-cuda-runtime", "CUDA_HOME"):
        assert part in str(error.value)


def test_too_old(find, tmp_path):
    write_header(tmp_path / "toolkit" / "include", 11080)
    write_header(tmp_path / "site" / "nvidia" / "cu13" / "include", 13000)
    with pytest.raises(HeaderError, match=r"CUDA 11\.8; 12\.0 or newer"):
        find()


def test_not_a_cuda_header(find, tmp_path):
    write_header(tmp_path / "toolkit" / "include")
    (tmp_path / "toolkit" / "include" / "cuda.h").write_text("// not this one\n")
    with pytest.raises(HeaderError, match="does not define CUDA_VERSION"):
        find()


@pytest.mark.parametrize("layout", ["cuda_runtime", "cu13", "cu14"])
def test_layouts_of_the_package(find, tmp_path, layout):
    folder = write_header(tmp_path / "site" / "nvidia" / layout / "include")
    assert find().folder == folder


def test_layout_of_a_conda_toolkit(find, tmp_path):
    folder = write_header(tmp_path / "env" / "targets" / "x86_64-linux" / "include")
    assert find(CUDA_HOME=str(tmp_path / "env")).folder == folder


def test_nvcc_behind_a_symlink(find, tmp_path):
    folder = write_header(tmp_path / "real" / "include")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(write_nvcc(tmp_path / "real" / "bin" / "nvcc"))
    assert find().folder == folder


def test_nvcc_behind_a_script(find, tmp_path):
    folder = write_header(tmp_path / "real" / "include")
    (tmp_path / "real" / "bin").mkdir()
    write_nvcc(tmp_path / "bin" / "nvcc", f"echo '#$ TOP={tmp_path}/real/bin/..' >&2")
    assert find().folder == folder


def test_version_and_words(find, tmp_path):
    folder = write_header(tmp_path / "toolkit" / "include", 12080)
    assert find().version == 12080
    assert str(find()) == f"cuda.h 12.8 from {tmp_path / 'toolkit'} ({folder})"
