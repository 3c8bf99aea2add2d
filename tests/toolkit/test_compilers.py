"""The compilers of this machine. Each of them may be missing."""

import contextlib
import re
import tempfile

import pytest

from cudadrv import toolkit

KERNEL = """
#include "factor.h"
extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }
"""


@pytest.fixture
def file(tmp_path, settle):
    (tmp_path / "factor.h").write_text("#define FACTOR 3.0f\n")
    path = tmp_path / "scale.cu"
    path.write_text(KERNEL)
    settle(path)
    return path


def test_file_and_its_header(compiler, file):
    ptx = toolkit.compile(file, arch="compute_80", compiler=compiler)
    assert ".visible .entry scale(" in ptx
    assert re.search(r"^\.target sm_80$", ptx, re.MULTILINE)
    assert "0f40400000" in ptx  # the number 3.0
    file.with_name("factor.h").write_text("#define FACTOR 5.0f\n")
    assert "0f40A00000" in toolkit.compile(file, arch="compute_80", compiler=compiler)


def test_text_and_options(compiler, tmp_path):
    text = KERNEL.replace('#include "factor.h"', "")
    ptx = toolkit.compile(text, arch="compute_75", compiler=compiler, options=["-DFACTOR=3.0f"])
    assert "0f40400000" in ptx


@pytest.mark.parametrize("option", ["-E", "-M", "-optix-ir", "-dlto"])
def test_an_option_by_which_it_writes_no_ptx(compiler, option):
    with pytest.raises(
        toolkit.CompileError, match=r"could not compile|wrote no PTX for source\.cu"
    ):
        toolkit.compile("", arch="compute_75", compiler=compiler, options=[option])


@pytest.mark.parametrize("name", [None, "{}/named.cu"])
def test_a_text_is_in_no_folder(compiler, tmp_path, monkeypatch, name):
    """No compiler searches the folder of the name, or the current one, for a text's headers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.h").write_text("")
    name = name and name.format(tmp_path)
    with pytest.raises(toolkit.CompileError, match=r"a\.h") as caught:
        toolkit.compile('#include "a.h"', arch="compute_75", compiler=compiler, name=name)
    assert "/dev/null" not in str(caught.value)


def test_it_is_kept(compiler, file, cache):
    ptx = toolkit.compile(file, arch="compute_75", compiler=compiler)
    assert len(list(cache.glob("*.ptx"))) == 1
    assert toolkit.compile(file, arch="compute_75", compiler=compiler) == ptx


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "text"])
def test_error(compiler, file, is_file):
    file.write_text("__global__ void broken() { missing(); }\n")
    source = file if is_file else file.read_text()
    name = str(file) if is_file else "mine.cu"
    with pytest.raises(toolkit.CompileError) as caught:
        toolkit.compile(
            source, arch="compute_75", compiler=compiler, name=None if is_file else name
        )
    assert f'{name}(1): error: identifier "missing" is undefined' in caught.value.log
    assert caught.value.log.rstrip() in str(caught.value)
    assert any("compute_75" in part for part in caught.value.command)


def test_an_architecture_that_it_does_not_know(compiler):
    with pytest.raises(toolkit.CompileError, match=r"could not compile source\.cu(?s:.*)arch"):
        toolkit.compile("", arch="compute_1", compiler=compiler)


def test_warning(compiler, caplog):
    text = 'extern "C" __global__ void k() { int unused; }'
    toolkit.compile(text, arch="compute_75", compiler=compiler, name="mine.cu")
    (record,) = caplog.records
    assert 'mine.cu(1): warning #177-D: variable "unused"' in record.getMessage()


def test_headers_of_the_toolkit(compiler):
    text = '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half *x) { *x = *x + *x; }'
    try:
        ptx = toolkit.compile(text, arch="compute_75", compiler=compiler)
    except toolkit.CompileError as error:
        if compiler == "nvrtc" and "could not open" in error.log.replace("cannot", "could not"):
            pytest.skip("the toolkit's headers are not installed")
        raise
    assert "f16" in ptx


def test_a_comment_in_another_encoding(compiler, tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_bytes(b'// caf\xe9\nextern "C" __global__ void k() {}\n')
    assert ".entry k(" in toolkit.compile(path, arch="compute_75", compiler=compiler)


def test_for_the_device(driver, compiler):
    ptx = toolkit.compile('extern "C" __global__ void k() {}', compiler=compiler)
    assert ".entry k(" in ptx


@pytest.mark.parametrize(
    "name",
    [
        "$(touch ran).cu",
        "`touch ran`",
        '"; touch ran; ".cu',
        ".",
        "..",
        "/",
        "n" * 300,
        "a/b\\c.cu",
    ],
)
def test_a_name_runs_nothing(compiler, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    text = 'extern "C" __global__ void k(const char **x) { *x = __FILE__; }'
    ptx = toolkit.compile(text, arch="compute_75", compiler=compiler, name=name)
    letters = ", ".join(str(letter) for letter in name.encode())
    assert f"{{{letters}}}" in ptx or f"{{{letters}, 0}}" in ptx
    with pytest.raises(toolkit.CompileError) as caught:
        toolkit.compile("int k() { missing(); }", arch="compute_75", compiler=compiler, name=name)
    assert f'{name}(1): error: identifier "missing" is undefined' in caught.value.log
    assert not list(tmp_path.glob("ran*"))


@pytest.mark.parametrize("part", ["$(touch ran)", "`touch ran`", '"; touch ran; "'])
@pytest.mark.parametrize("place", ["file", "option", "temporary folder", "working directory"])
def test_a_folder_runs_nothing(compiler, file, tmp_path, monkeypatch, part, place):
    """Names with shell code run nothing: they are refused, or the right files are compiled."""
    folder = tmp_path / part
    folder.mkdir()
    where = tmp_path
    options = []
    if place == "file":
        for each in (file, file.with_name("factor.h")):
            each.rename(folder / each.name)
        file = folder / file.name
    elif place == "option":
        file.with_name("factor.h").rename(folder / "factor.h")
        options = [f"-I{folder}"]
    elif place == "temporary folder":
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    else:
        where = folder
    monkeypatch.chdir(where)
    try:
        ptx = toolkit.compile(file, arch="compute_75", compiler=compiler, options=options)
    except ValueError as error:
        if compiler != "nvcc" or place == "working directory" or "to a shell" not in str(error):
            raise
    except toolkit.CompileError:
        if (place, part) != ("option", '"; touch ran; "'):  # no compiler accepts this option
            raise
    else:
        assert "0f40400000" in ptx
    assert not list(tmp_path.rglob("ran"))


def test_without_a_cpp_compiler(cache, tmp_path, monkeypatch, caplog):
    """A real nvcc that finds no C++ compiler on PATH is not used.

    NVRTC, which needs none, still works.
    """
    text = 'extern "C" __global__ void k() {}'
    with contextlib.suppress(toolkit.CompilerNotFoundError, toolkit.CompileError):
        # Fills the caches while PATH is valid.
        toolkit.compile(text, arch="compute_75", cache=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        found = toolkit.find_compilers()
    except toolkit.CompilerNotFoundError:
        found = []
    names = [each.name for each in found]
    if "nvcc" not in names:
        pytest.skip("nvcc is found by PATH, or not at all")
    if "nvrtc" in names:
        assert ".entry k(" in toolkit.compile(text, arch="compute_75")
        assert "cannot compile an empty source either; using nvrtc" in caplog.text
    else:
        with pytest.raises(toolkit.CompileError, match="cannot compile even an empty source"):
            toolkit.compile(text, arch="compute_75")
