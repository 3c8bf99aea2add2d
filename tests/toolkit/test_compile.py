"""Compiling, with a compiler that is a script: arguments, messages, architectures, versions."""

import logging
import os
import tempfile
from pathlib import Path

import pytest

import cudadrv as cu
from cudadrv import toolkit

RUNS = ["$(touch ran)", "`touch ran`", 'a"; touch ran; "', "$HOME"]


def test_text(nvcc):
    ptx = toolkit.compile("some text", arch="compute_80")
    assert ptx.startswith(".version 9.0")
    assert "// some text" in ptx
    (call,) = nvcc.calls
    assert "-ptx" in call
    assert "-arch=compute_80" in call


def test_file(nvcc, tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text("in a file")
    assert "// in a file" in toolkit.compile(path, arch="compute_75")
    assert nvcc.calls[0].endswith(str(path))


def test_options_reach_the_compiler_in_order(nvcc):
    toolkit.compile("k", arch="compute_75", options=["-DA=1", "-I", "some where"])
    assert "-DA=1 -I some where" in nvcc.calls[0]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [([], 1), (["-DA"], 1), (["-lineinfo"], 1), (["--generate-line-info"], 0), (["-G"], 0)],
)
def test_the_software_driver_gets_lines(nvcc, options, wanted):
    """Its reports name lines of the source, which a GPU does not need."""
    toolkit.compile("k", options=options)
    software = cu.driver_info().is_software
    (call,) = nvcc.calls
    assert call.split().count("-lineinfo") == (wanted if software else "-lineinfo" in options)
    toolkit.compile("k", options=options, arch="compute_75")
    assert nvcc.calls[-1].split().count("-lineinfo") == ("-lineinfo" in options)


def test_a_comment_in_another_encoding(nvcc, tmp_path, settle):
    path = tmp_path / "kernel.cu"
    path.write_bytes(b"// caf\xe9\n")
    settle(path)
    for _ in range(2):
        assert "// // caf\ufffd" in toolkit.compile(path, arch="compute_75")
    assert len(nvcc.calls) == 1


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "text"])
def test_error_has_log_and_command(nvcc, tmp_path, is_file):
    source = "this is wrong"
    name = "some.cu"
    if is_file:
        source = tmp_path / "file.cu"
        source.write_text("this is wrong")
        name = str(source)
    with pytest.raises(toolkit.CompileError) as caught:
        toolkit.compile(source, arch="compute_75", name=None if is_file else name)
    assert caught.value.log == f"{name}(1): error: this is wrong\n"
    assert str(caught.value) == (
        f"nvcc 13.0 could not compile {name} (exit status 2):\n{name}(1): error: this is wrong"
    )
    assert caught.value.command[0] == str(nvcc.path)
    assert "-arch=compute_75" in caught.value.command


def test_errors_are_not_kept(nvcc):
    for _ in range(2):
        with pytest.raises(toolkit.CompileError):
            toolkit.compile("wrong", arch="compute_75", compiler="nvcc")
    assert len(nvcc.calls) == 2


def test_no_output_is_an_error(nvcc):
    with pytest.raises(toolkit.CompileError, match=r"wrote no PTX for source\.cu; see"):
        toolkit.compile("nothing", arch="compute_75")


def test_warnings_are_logged_when_it_runs(nvcc, caplog):
    for _ in range(2):
        toolkit.compile("warn", arch="compute_75", name="mine.cu")
    toolkit.compile("quiet", arch="compute_75")
    expected = "nvcc 13.0, mine.cu:\nmine.cu(1): warning: careful"
    assert caplog.record_tuples == [("cudadrv", logging.WARNING, expected)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": "kernel.cu"}, "looks like a path"),
        ({"source": Path("k.cu"), "name": "k"}, "has its own name"),
        ({"source": "k", "arch": "sm_75"}, "not a virtual architecture"),
        ({"source": "k", "arch": "compute_75 -x"}, "not a virtual architecture"),
        ({"source": "k", "arch": 75}, "arch=75 is not a virtual architecture"),
        ({"source": "k", "compiler": "gcc"}, "must be 'nvcc' or 'nvrtc'"),
        ({"source": "k", "name": "two\nlines"}, "has to be one line"),
        ({"source": "k\0k"}, r"the source has the character U\+0000 at index 1: NVRTC would end"),
        ({"source": "\ud800"}, r"the source has the character U\+D800 at index 0: UTF-8 cannot"),
        ({"source": "k", "options": ["-D\0"]}, r"the option '-D\\x00' has the character U\+0000"),
        ({"source": "k", "options": ["\udfff"]}, r"the option '\\udfff' has the character U\+DFFF"),
        ({"source": "k", "name": "\udbff"}, r"name='\\udbff' has the character U\+DBFF"),
    ],
)
def test_bad_arguments(nvcc, arguments, words):
    with pytest.raises(ValueError, match=words):
        toolkit.compile(**arguments)
    assert nvcc.calls == []


def test_options_that_can_be_read_once(nvcc):
    ptx = toolkit.compile("k", arch="compute_75", options=(each for each in ["-DA", "-DB"]))
    assert "-DA -DB" in nvcc.calls[0]
    assert toolkit.compile("k", arch="compute_75", options=iter(["-DA", "-DB"])) == ptx
    assert len(nvcc.calls) == 1


def test_options_that_are_one_str(nvcc):
    with pytest.raises(TypeError, match=r"give a list of them: \['-O3'\]"):
        toolkit.compile("k", arch="compute_75", options="-O3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": b"k"}, "a bytes is no source; give CUDA C as a str, or a pathlib.Path"),
        ({"source": "k", "name": Path("k.cu")}, "is no str"),
        ({"source": "k", "options": [Path("-I")]}, r"PosixPath\('-I'\) is no str"),
        ({"source": "k", "options": None}, "options=None is no list of str"),
        ({"source": "k", "device": 0}, r"device=0 is no Device; cudadrv.Device\(0\) makes one"),
    ],
)
def test_arguments_of_another_type(nvcc, arguments, words):
    with pytest.raises(TypeError, match=words):
        toolkit.compile(**arguments)
    assert nvcc.calls == []


@pytest.mark.parametrize("name", [*RUNS, ".", "..", "/", "n" * 300, "\\", 'a"b\\n.cu'])
def test_a_name_is_no_path(nvcc, name):
    """The `name` of a source text is not passed to nvcc, which gives file names to a shell."""
    with pytest.raises(toolkit.CompileError) as caught:
        toolkit.compile("wrong", arch="compute_75", name=name, compiler="nvcc")
    assert caught.value.log == f"{name}(1): error: this is wrong\n"
    (call,) = nvcc.calls
    assert call.endswith("/source.cu")
    assert name not in call or name in "./.."


def test_a_name_is_in_the_source(nvcc):
    ptx = toolkit.compile("k", arch="compute_75", name=r'C:\new"$(x).cu')
    assert r'// #line 1 "C:\\new\"$(x).cu"' in ptx


@pytest.mark.parametrize("part", RUNS)
def test_a_file_that_a_shell_would_take_otherwise(nvcc, tmp_path, part):
    for path in (tmp_path / part / "kernel.cu", tmp_path / f"{part}.cu"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("k")
        with pytest.raises(ValueError, match=r"the file .* would give that to a shell"):
            toolkit.compile(path, arch="compute_75")
    assert nvcc.calls == []


@pytest.mark.parametrize("option", ["-I/a/$(touch ran)", "-DX=`touch ran`", "-DX=$HOME"])
def test_an_option_that_a_shell_would_take_otherwise(nvcc, option):
    with pytest.raises(ValueError, match=r"the option .* would give that to a shell"):
        toolkit.compile("k", arch="compute_75", options=[option])
    assert nvcc.calls == []


def test_a_temporary_folder_that_a_shell_would_take_otherwise(nvcc, tmp_path, monkeypatch):
    folder = tmp_path / "$(touch ran)"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(ValueError, match=r"the temporary folder \(TMPDIR\) .* to a shell"):
        toolkit.compile("k", arch="compute_75")
    assert nvcc.calls == []


def test_temporary_files_of_nvcc_are_in_a_folder_of_its_own(nvcc, tmp_path, monkeypatch):
    """Temporary files of nvcc are in a folder of their own, which does not depend on TMPDIR.

    nvcc's shell would expand the name in TMPDIR.
    """
    monkeypatch.setenv("TMPDIR", "/$(touch ran)")
    nvcc.path.write_text(nvcc.path.read_text().replace('echo "$*"', 'echo "$TMPDIR"'))
    toolkit.compile("k", arch="compute_75")
    (folder,) = nvcc.calls
    assert Path(folder).parent == Path(tempfile.gettempdir())
    assert not Path(folder).exists()


@pytest.fixture
def broken(nvcc):
    """An nvcc that can report its version, but finds no C++ compiler."""
    calls = 'echo "$*" >> '
    before, _, _ = nvcc.path.read_text().partition(calls)
    nvcc.path.write_text(f"{before}{calls}{nvcc.log}\necho 'gcc: No such file' >&2\nexit 1\n")
    return nvcc


def test_an_nvcc_that_cannot_compile_is_passed_over(
    broken, make_nvcc, tmp_path, monkeypatch, caplog
):
    (other,) = toolkit.find_compilers("nvcc", {}, make_nvcc(tmp_path / "other", "12.9").home)
    (first,) = toolkit.find_compilers("nvcc")
    monkeypatch.setattr(toolkit, "each_compiler", lambda wanted: iter([first, other]))
    assert "// k" in toolkit.compile("k", arch="compute_75")
    (record,) = caplog.records
    assert record.getMessage() == (
        "nvcc 13.0 could not compile source.cu (exit status 1):\ngcc: No such file\n"
        "nvcc 13.0 cannot compile an empty source either; using nvcc 12.9"
    )


def test_an_error_in_the_source_is_not_compiled_elsewhere(nvcc, make_nvcc, tmp_path, monkeypatch):
    other = make_nvcc(tmp_path / "other", "12.9")
    found = [*toolkit.find_compilers("nvcc"), *toolkit.find_compilers("nvcc", {}, other.home)]
    monkeypatch.setattr(toolkit, "each_compiler", lambda wanted: iter(found))
    for _ in range(2):
        with pytest.raises(toolkit.CompileError, match="this is wrong"):
            toolkit.compile("wrong", arch="compute_75")
    assert other.calls == []
    assert len(nvcc.calls) == 3, "that it compiles an empty source is asked once"


def test_no_compiler_that_can_compile(broken, monkeypatch):
    found = toolkit.find_compilers("nvcc")
    monkeypatch.setattr(toolkit, "each_compiler", lambda wanted: iter(found))
    with pytest.raises(toolkit.CompileError) as caught:
        toolkit.compile("k", arch="compute_75")
    assert str(caught.value) == (
        "nvcc 13.0 cannot compile even an empty source, and no other compiler was found. NVRTC"
        " needs no C++ compiler:\n  python -m pip install 'cudadrv[nvrtc]'\n"
        "nvcc 13.0 wrote:\ngcc: No such file"
    )
    assert caught.value.log == "gcc: No such file\n"


def test_a_chosen_compiler_is_not_replaced(broken):
    with pytest.raises(toolkit.CompileError, match="could not compile source"):
        toolkit.compile("k", arch="compute_75", compiler="nvcc")
    assert len(broken.calls) == 1


def test_missing_file(nvcc, tmp_path):
    with pytest.raises(FileNotFoundError):
        toolkit.compile(tmp_path / "none.cu", arch="compute_75")


@pytest.mark.parametrize("text", [b"k\0", "k".encode("utf-16")])
def test_a_file_with_null_characters(nvcc, tmp_path, text):
    """A file with null characters, as in UTF-16, is refused: NVRTC would read its beginning."""
    path = tmp_path / "k.cu"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=rf"the file {path} has the character U\+0000 at index"):
        toolkit.compile(path, arch="compute_75")


def test_a_file_that_can_be_read_once(nvcc, tmp_path):
    path = tmp_path / "k.cu"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is no regular file; read it, and give its text"):
        toolkit.compile(path, arch="compute_75")
    assert nvcc.calls == []


def test_device_or_architecture(driver, nvcc):
    with pytest.raises(ValueError, match="not both"):
        toolkit.compile("k", device=cu.Device(0), arch="compute_75")


def test_architecture_of_the_current_device(driver, nvcc):
    """The default is the newest architecture that nvcc knows and the device can run.

    This nvcc knows 7.5, 8.0 and 12.0.
    """
    major, minor = cu.Device(0).compute_capability
    newest = max(known for known in (75, 80, 120) if known <= 10 * major + minor)
    toolkit.compile("k")
    toolkit.compile("j", device=cu.Device(0))
    assert [f"-arch=compute_{newest} " in call for call in nvcc.calls] == [True, True]


def test_device_that_is_too_old(driver, nvcc):
    nvcc.path.write_text(nvcc.path.read_text().replace("compute_75\\ncompute_80\\n", ""))
    if cu.Device(0).compute_capability >= (12, 0):
        pytest.skip("a device of compute capability below 12.0 is needed")
    with pytest.raises(toolkit.CompileError, match="compiles for compute_120 and newer, and "):
        toolkit.compile("k")


def test_ptx_that_is_too_new(driver, nvcc):
    """PTX that is too new for the driver is refused before it is loaded.

    The message says what to install.
    """
    major, minor = cu.driver_info().version
    nvcc.say(f"{major}.{minor + 1}", "99.0")
    with pytest.raises(toolkit.PTXVersionError) as caught:
        toolkit.compile("k", compiler="nvcc")
    text = str(caught.value)
    assert f"nvcc {major}.{minor + 1} writes PTX 99.0" in text
    assert f"the driver, of CUDA {major}.{minor}," in text
    assert f"=={major}.{minor}.*'" in text
    # PTX from the cache is refused, too. With arch= it is not refused: it may be for another
    # driver.
    with pytest.raises(toolkit.PTXVersionError):
        toolkit.compile("k", compiler="nvcc")
    toolkit.compile("k", arch="compute_75", compiler="nvcc")


def test_one_that_is_not_too_new_is_preferred(driver, nvcc, make_nvcc, tmp_path, monkeypatch):
    major, minor = cu.driver_info().version
    nvcc.say(f"{major}.{minor + 1}", "99.0")
    (old,) = toolkit.find_compilers("nvcc", {}, make_nvcc(tmp_path / "old", "12.0", "8.0").home)
    (new,) = toolkit.find_compilers("nvcc")
    monkeypatch.setattr(toolkit, "each_compiler", lambda wanted: iter([new, old]))
    assert toolkit.compile("k").startswith(".version 8.0")


def test_newer_compiler_whose_ptx_is_understood(driver, nvcc):
    """A compiler that is newer than the driver works if the driver reads its PTX version.

    For example, CUDA 12.5 reads the PTX of CUDA 12.6.
    """
    nvcc.say("99.0", "8.0")
    assert toolkit.compile("k", compiler="nvcc").startswith(".version 8.0")


@pytest.mark.parametrize(
    ("release", "ptx"),
    [
        ((12, 0), (8, 0)),
        ((12, 5), (8, 5)),
        ((12, 6), (8, 5)),
        ((12, 9), (8, 8)),
        ((13, 0), (9, 0)),
        ((13, 5), (9, 5)),
    ],
)
def test_newest_ptx(release, ptx):
    assert toolkit.newest_ptx(release) == ptx
