"""What the options of the plugin choose, and how the plugin shows that."""

import os
import re
import subprocess
import sys

import pytest

import cudadrv._library

SHOW = """
from cudadrv import testing

def test(cuda_device, cuda_schedule):
    settings = testing.settings()
    assert settings["schedule"] == cuda_schedule
    print("ran", cuda_schedule, settings["seed"])
"""


def ran(result):
    return re.findall(r"\bran (\w+) (\d+)$", result.stdout.str(), re.M)


def test_help_has_a_group(run):
    result = run("", "--help")
    result.stdout.fnmatch_lines(["cudadrv: *", "*--cuda-driver=*", "*--cuda-schedule=*"])
    result.stdout.fnmatch_lines(["*cuda_seed (string):*", "*", "*"])


def test_the_default_is_everything_on_the_software_driver(run):
    result = run(SHOW, "-s")
    result.assert_outcomes(passed=3)
    assert ran(result) == [("eager", "1"), ("lazy", "1"), ("random", "1")]
    result.stdout.fnmatch_lines(
        ["collected 3 items*", "cudadrv: software driver, schedule=eager,lazy,random seed=1"]
    )


def test_options_choose(run):
    result = run(SHOW, "-s", "--cuda-schedule=random,lazy", "--cuda-seed=9")
    assert ran(result) == [("random", "9"), ("lazy", "9")]
    result.stdout.fnmatch_lines(["cudadrv: software driver, schedule=random,lazy seed=9", "root*"])


def test_settings_are_defaults_of_options(run):
    ini = "cuda_schedule = lazy\ncuda_seed = 4\ncuda_driver = software"
    assert ran(run(SHOW, "-s", ini=ini)) == [("lazy", "4")]
    assert ran(run(SHOW, "-s", "--cuda-seed=5", ini=ini)) == [("lazy", "5")]


def test_an_option_outweighs_the_environment_and_that_the_settings(run, monkeypatch):
    show = "import os\ndef test(cuda_device):\n    print('ran', os.environ['CUDADRV_DRIVER'], 0)"
    path = cudadrv._library.software_path()
    ini = f"cuda_libcuda = false\ncuda_driver = {path}"
    assert ran(run(show, "-s", "--cuda-driver=software", ini=ini)) == [("software", "0")] * 3
    monkeypatch.setenv("CUDADRV_DRIVER", "software")
    assert ran(run(show, "-s", ini=ini)) == [("software", "0")] * 3


def test_a_path_is_looked_at(run):
    """If `--cuda-driver` is the path of a software driver, tests run under each schedule."""
    result = run(SHOW, f"--cuda-driver={cudadrv._library.software_path()}", "-s")
    result.assert_outcomes(passed=3)


def test_other_settings_of_the_environment_stay(run, monkeypatch):
    monkeypatch.setenv("CUDADRV_SOFTWARE", "devices=2,memory=64MiB,schedule=lazy")
    text = """
import subprocess, sys
from cudadrv import testing

def test_change(cuda_device):
    testing.configure("memory=1MiB")

def test(cuda_device, cuda_schedule):
    assert cu.Device.count() == 2
    assert testing.settings()["memory"] == str(64 << 20)
    assert testing.settings()["schedule"] == cuda_schedule == "random"
    code = "from cudadrv import testing; print(testing.settings())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.stdout == f"{testing.settings()}\\n", child.stderr
"""
    run(text, "--cuda-schedule=random", "--cuda-seed=3").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--cuda-schedule=slow", "*'slow'; must be all, some of eager,lazy,random, or explore*"),
        ("--cuda-seed=one", "*'one'; must be random, or a number*"),
        ("--cuda-driver=gpu", "*'gpu'; must be software, cuda, auto, or a path*"),
    ],
)
def test_what_cannot_be(run, option, words):
    result = run(SHOW, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([words])


def test_checks_of_kernels_need_the_software_driver(run, pytester):
    words = "*--cuda-checks=race needs the software driver, and {} is a real one: use*"
    result = run(SHOW, "--cuda-driver=cuda", "--cuda-checks=race")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([words.format("cuda")])
    pytester.makeconftest(
        """
        import types
        import cudadrv
        cudadrv.driver_info = lambda: types.SimpleNamespace(is_software=False, path="/a/libcuda")
        """
    )
    result = run(SHOW, "--cuda-driver=auto", "--cuda-checks=race")
    result.stdout.fnmatch_lines([words.format("/a/libcuda")])
    # A project may have the setting for its runs on the software driver.
    result = run(SHOW, "--cuda-driver=cuda", "--collect-only", ini="cuda_checks = race")
    assert result.ret == pytest.ExitCode.OK


def test_a_driver_that_cannot_be(run):
    result = run(SHOW, "--cuda-driver=/nowhere/libcuda.so.1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*UsageError*", "*/nowhere/libcuda.so.1: cannot open*"])


def test_a_random_seed_is_told(run):
    first, second = (run(SHOW, "-s", "--cuda-seed=random", "--cuda-schedule=lazy") for _ in "ab")
    ((_, seed),) = ran(first)
    first.stdout.fnmatch_lines([f"cudadrv: software driver, schedule=lazy seed={seed}"])
    assert ran(second) != [("lazy", seed)]


def test_workers_of_xdist_share_a_random_seed(run):
    pytest.importorskip("xdist")
    result = run(
        SHOW.replace('print("ran"', 'assert 0, ("ran"'), "-n2", "--cuda-seed=random",
        "--cuda-driver=software",
    )  # fmt: skip
    result.assert_outcomes(failed=3)
    (seed,) = re.findall(r"^cudadrv: .* seed=(\d+)$", result.stdout.str(), re.M)
    assert re.findall(r"--cuda-seed=(\d+)$", result.stdout.str(), re.M) == [seed] * 3


# ---- projects that do not use the plugin ----

LOADED = """
import os, sys

def test():
    assert "pytest_cudadrv" in sys.modules
    loaded = [name for name in sys.modules if name.split(".")[0] in ("cudadrv", "numpy")]
    assert not loaded
    assert "CUDADRV_DRIVER" not in os.environ
"""


def test_unused_it_imports_and_changes_nothing(run_pytest, pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # some plugins import NumPy
    pytester.makepyfile(LOADED)
    result = run_pytest("-p", "pytest_cudadrv")
    result.assert_outcomes(passed=1)
    assert "cudadrv:" not in result.stdout.str()


def test_without_it_nothing_of_it_is_there(run):
    result = run("def test(cuda_device): pass", "-p", "no:pytest_cudadrv", plugin=False)
    result.stdout.fnmatch_lines(["*fixture 'cuda_device' not found"])


def test_it_is_left_as_it_was_afterwards():
    """A run of pytest inside a process leaves the process's environment unchanged."""
    program = (
        "import os, pytest\n"
        "pytest.main(['-p', 'pytest_cudadrv', '--cuda-driver=software', '--co', '/dev/null'])\n"
        "print(os.environ.get('CUDADRV_DRIVER'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    del environment["CUDADRV_DRIVER"]
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "None", done.stdout + done.stderr


def test_in_import_mode_importlib_and_named_in_a_conftest(run, pytester):
    pytester.makeconftest("pytest_plugins = ['pytest_cudadrv']")
    run(SHOW, "--import-mode=importlib", "-s", plugin=False).assert_outcomes(passed=3)
    run(SHOW, "--import-mode=importlib", "-s", plugin=True).assert_outcomes(passed=3)


LIBCUDA = """
import ctypes, subprocess, sys
from cudadrv import testing

OPEN = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cudadrvSoftDrain())"

def test_here(cuda_device):
    before = testing.calls("cuDriverGetVersion")
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(ctypes.c_int()))
    assert testing.calls("cuDriverGetVersion") == before + 1

def test_elsewhere(cuda_device):
    done = subprocess.run([sys.executable, "-c", OPEN], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\\n", "")

def test_both_elsewhere(cuda_device):
    both = "import cudadrv as cu; cu.driver_info(); print(cu.driver_info().path)\\n" + OPEN
    done = subprocess.run([sys.executable, "-c", both], capture_output=True, text=True)
    assert done.stdout.splitlines() == [cu.driver_info().path, "0"], done.stderr
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_software_driver_is_libcuda_for_all(run, workers):
    result = run(LIBCUDA, "--cuda-schedule=eager", "-n", workers)
    result.assert_outcomes(passed=3)


def test_it_need_not_be(run, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    text = """
import os

def test(cuda_device):
    assert os.environ["CUDADRV_DRIVER"] == "software"
    assert "LD_LIBRARY_PATH" not in os.environ
    assert "_softdriver" in cu.driver_info().path
"""
    run(text, ini="cuda_libcuda = false").assert_outcomes(passed=3)
