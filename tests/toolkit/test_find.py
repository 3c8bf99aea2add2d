"""Which compiler is found, and the error if there is none."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from cudadrv import toolkit


@pytest.fixture
def places(tmp_path, make_nvcc):
    """An environment with three toolkits: in CUDA_HOME, on PATH, and in the default place."""
    for number, place in enumerate(["home", "path", "default"]):
        make_nvcc(tmp_path / place, f"12.{number}")
    environ = {"CUDA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    return environ, tmp_path / "default"


def found(environ, default) -> tuple[str, tuple[int, int]]:
    (nvcc,) = toolkit.find_compilers("nvcc", environ, default, [])
    return nvcc.origin, nvcc.version


def test_order(places, tmp_path):
    environ, default = places
    assert found(environ, default) == ("CUDA_HOME", (12, 0))
    del environ["CUDA_HOME"]
    environ["CUDA_PATH"] = str(tmp_path / "home")
    assert found(environ, default) == ("CUDA_PATH", (12, 0))
    del environ["CUDA_PATH"]
    assert found(environ, default) == ("PATH", (12, 1))
    del environ["PATH"]
    assert found(environ, default) == (str(default), (12, 2))


def test_empty_variables_are_none(places):
    _, default = places
    assert found({"CUDA_HOME": "", "PATH": ""}, default) == (str(default), (12, 2))


def test_chosen_toolkit_without_nvcc(places, tmp_path):
    """If CUDA_HOME has no nvcc, the nvcc on PATH is not used: the user has chosen a toolkit."""
    environ, default = places
    environ["CUDA_HOME"] = str(tmp_path)
    with pytest.raises(toolkit.CompilerNotFoundError, match=r"no bin/nvcc in it"):
        found(environ, default)


def test_nvcc_of_the_package(make_nvcc, tmp_path):
    """The nvcc of CUDA 13's package nvidia-cuda-nvcc is found, after the nvccs of toolkits."""
    nvcc = make_nvcc(tmp_path / "site" / "nvidia" / "cu13", "13.1")
    path = [str(tmp_path / "other"), str(tmp_path / "site")]
    (found,) = toolkit.find_compilers("nvcc", {}, tmp_path / "none", path)
    assert (found.path, found.origin) == (nvcc.path, "the package nvidia-cuda-nvcc")
    make_nvcc(tmp_path / "toolkit", "12.0")
    (found,) = toolkit.find_compilers("nvcc", {}, tmp_path / "toolkit", path)
    assert found.version == (12, 0)


@pytest.mark.parametrize("is_link", [False, True], ids=["itself", "link"])
def test_a_toolkit_that_a_shell_would_take_otherwise(make_nvcc, tmp_path, is_link):
    home = make_nvcc(tmp_path / "$(touch ran)").home
    if is_link:
        link = tmp_path / "link"
        link.symlink_to(home)
        home = link
    with pytest.raises(toolkit.CompilerNotFoundError, match=r"nvcc would give to a shell"):
        toolkit.find_compilers("nvcc", {"CUDA_HOME": str(home)})


def test_what_was_found_can_be_printed(nvcc):
    assert repr(toolkit.find_compilers("nvcc")) == "[<nvcc 13.0 from CUDA_HOME>]"


def test_an_unknown_compiler():
    with pytest.raises(ValueError, match="there is no compiler 'gcc'"):
        toolkit.find_compilers("gcc")


def test_none_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(toolkit.CompilerNotFoundError) as caught:
        toolkit.find_compilers(None, {}, tmp_path, [])
    text = str(caught.value)
    for words in ["nvcc: ", "nvrtc: ", str(tmp_path), "cudadrv[nvrtc]", "CUDA_HOME"]:
        assert words in text


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\nexit 1\n", "exit status 1"),
        ("#!/bin/sh\necho hello\n", "which release"),
        ("#!/no/such/shell\n", "cannot be run"),
    ],
)
def test_broken_nvcc(nvcc, script, words):
    nvcc.path.write_text(script)
    with pytest.raises(toolkit.CompilerNotFoundError, match=words):
        toolkit.compile("k", arch="compute_75", compiler="nvcc")


def test_binding_without_its_library(monkeypatch):
    """cuda.bindings without libnvrtc, which fails at the first call, counts as no compiler."""

    def version():
        raise RuntimeError("Failure finding libnvrtc.so\nmore about it")

    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", SimpleNamespace(nvrtcVersion=version))
    with pytest.raises(toolkit.CompilerNotFoundError) as caught:
        toolkit.find_compilers("nvrtc")
    assert "Failure finding libnvrtc.so\n" in str(caught.value)
    assert "more about it" not in str(caught.value)


def test_nvcc_comes_first(nvcc):
    """If there is an nvcc, NVRTC is not imported."""
    before = "cuda.bindings.nvrtc" in sys.modules
    toolkit.compile("k", arch="compute_75")
    assert nvcc.calls
    assert ("cuda.bindings.nvrtc" in sys.modules) == before


def test_importing_cudadrv_imports_no_toolkit(script):
    modules = script.quiet("import sys, cudadrv; print(*sys.modules)").split()
    ours = {name for name in modules if name.startswith("cudadrv.")}
    assert ours.isdisjoint({"cudadrv.toolkit", "cudadrv._compilers", "cudadrv._compile_cache"})


def test_importing_it_looks_for_nothing(script):
    program = "import sys, cudadrv.toolkit; print(*sys.modules)"
    assert "cuda.bindings" not in script.quiet(program, CUDA_HOME="/nowhere").split()


def test_release_of_the_header_package_is_said():
    """NVRTC is identified by the full version of its package.

    NVRTC itself reports only two numbers.
    """
    metadata = importlib.import_module("importlib.metadata")
    try:
        version = metadata.version("nvidia-cuda-nvrtc")
        (nvrtc,) = toolkit.find_compilers("nvrtc")
    except (metadata.PackageNotFoundError, toolkit.CompilerNotFoundError) as error:
        pytest.skip(str(error))
    assert version in nvrtc.identity()
