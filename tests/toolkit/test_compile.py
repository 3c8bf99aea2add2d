"""Compiling, with a compiler that is a script: arguments, messages, architectures, versions."""

import logging
from pathlib import Path

import pytest

import cudadrv as cu
from cudadrv import toolkit


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


def test_a_comment_in_another_encoding(nvcc, tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_bytes(b"// caf\xe9\n")
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
            toolkit.compile("wrong", arch="compute_75")
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
        ({"source": "k", "compiler": "gcc"}, "must be 'nvcc' or 'nvrtc'"),
    ],
)
def test_bad_arguments(nvcc, arguments, words):
    with pytest.raises(ValueError, match=words):
        toolkit.compile(**arguments)
    assert nvcc.calls == []


def test_options_that_are_one_str(nvcc):
    with pytest.raises(TypeError, match=r"give a list of them: \['-O3'\]"):
        toolkit.compile("k", arch="compute_75", options="-O3")


def test_missing_file(nvcc, tmp_path):
    with pytest.raises(FileNotFoundError):
        toolkit.compile(tmp_path / "none.cu", arch="compute_75")


def test_device_or_architecture(driver, nvcc):
    with pytest.raises(ValueError, match="not both"):
        toolkit.compile("k", device=cu.Device(0), arch="compute_75")


def test_architecture_of_the_current_device(driver, nvcc):
    """This compiler knows 7.5, 8.0 and 12.0: the newest that is not above the device's."""
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
    """Refused before the driver hears of it, with what to install."""
    major, minor = cu.driver_info().version
    nvcc.say(f"{major}.{minor + 1}", "99.0")
    with pytest.raises(toolkit.PTXVersionError) as caught:
        toolkit.compile("k", compiler="nvcc")
    text = str(caught.value)
    assert f"nvcc {major}.{minor + 1} writes PTX 99.0" in text
    assert f"the driver, of CUDA {major}.{minor}," in text
    assert f"=={major}.{minor}.*'" in text
    # Also when it comes from the cache; and not asked where no driver is meant.
    with pytest.raises(toolkit.PTXVersionError):
        toolkit.compile("k", compiler="nvcc")
    toolkit.compile("k", arch="compute_75", compiler="nvcc")


def test_one_that_is_not_too_new_is_preferred(driver, nvcc, make_nvcc, tmp_path, monkeypatch):
    major, minor = cu.driver_info().version
    nvcc.say(f"{major}.{minor + 1}", "99.0")
    old = next(toolkit.find_compilers("nvcc", {}, make_nvcc(tmp_path / "old", "12.0", "8.0").home))
    new = next(toolkit.find_compilers("nvcc"))
    monkeypatch.setattr(toolkit, "find_compilers", lambda wanted: iter([new, old]))
    assert toolkit.compile("k").startswith(".version 8.0")


def test_newer_compiler_whose_ptx_is_understood(driver, nvcc):
    """CUDA 12.6 writes what 12.5 reads: the version of the PTX decides."""
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
