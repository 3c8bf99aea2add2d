"""``--cuda-libcuda``, for projects without cudadrv and without its fixtures."""

import pytest

CLIENT = """
import ctypes, os, subprocess, sys

cuda = ctypes.CDLL("libcuda.so.1")  # at the import, as other libraries do
PROGRAM = "from ctypes import *; c = CDLL('libcuda.so.1'); c.cuInit(0); "
PROGRAM += "c.cuCheckpointProcessUnlock(0)"

def test_here():
    name = ctypes.create_string_buffer(100)
    assert (cuda.cuInit(0), cuda.cuDeviceGetName(name, 100, 0)) == (0, 0)
    assert name.value == b"cudadrv software device (not a GPU)"
    assert cuda.cuCheckpointProcessLock(0) == 801

@pytest.mark.parametrize("number", range(3))
def test_in_a_child(number):
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)

def test_settings():
    assert "schedule=random,seed=9,report=/" in os.environ["CUDADRV_SOFTWARE"]
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_all_processes_are_reported(run, workers):
    options = ["--cuda-schedule=random", "--cuda-seed=9", "-n", workers]
    result = run(CLIENT, "--cuda-libcuda", *options, ini="cuda_libcuda = false")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(
        [
            "cudadrv: software driver, schedule=random seed=9",
            "*= cudadrv: software driver (not a GPU) =*",
            "* processes made 9 calls (schedule=random,seed=9)",
            "Calls that are not supported: 4",
            "*3 cuCheckpointProcessUnlock",
            "*1 cuCheckpointProcessLock",
            "Images that cannot run: none",
            "Kernel faults: none",
            "Data races: none",
            "Alive at the end: nothing",
        ]
    )


@pytest.mark.parametrize(("workers", "calls"), [("0", 1), ("2", 3)])
def test_calls_of_a_conftest_are_reported(run, pytester, workers, calls):
    """conftest.py calls the driver when it is imported, in the main process and in each worker."""
    pytester.makeconftest(
        "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\n"
        "assert (cuda.cuInit(0), cuda.cuCheckpointProcessLock(0)) == (0, 801)"
    )
    result = run("def test(): pass", "--cuda-libcuda", "-n", workers)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*{calls} cuCheckpointProcessLock"])


def test_without_it_nothing_is_reported(run):
    result = run("def test(cuda_device): cu.Stream()", "--cuda-schedule=eager")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*not a GPU*")


def test_beside_fixtures_of_cudadrv(run):
    """With the option, fixtures still set the schedule, and processes of tests write reports."""
    text = """
import os

def test(cuda_checked, cuda_schedule):
    assert cu.driver_info().path == os.environ["CUDADRV_DRIVER"]
    last = os.environ["CUDADRV_SOFTWARE"].split(",")
    assert f"schedule={cuda_schedule}" in last[-2:]
    assert [item for item in last if item.startswith("report=/")]
"""
    result = run(text, "--cuda-libcuda")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["1 process made * calls (schedule=eager,seed=1)"])


def test_no_process_called_the_driver(run):
    result = run("def test(): pass", "--cuda-libcuda")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["No process called the software driver."])


def test_settings_of_the_environment_stay(run, monkeypatch):
    monkeypatch.setenv("CUDADRV_SOFTWARE", "devices=3")
    text = """
import ctypes

def test():
    count, cuda = ctypes.c_int(), ctypes.CDLL("libcuda.so.1")
    assert (cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value) == (0, 0, 3)
"""
    run(text, "--cuda-libcuda").assert_outcomes(passed=1)


@pytest.mark.parametrize("driver", ["cuda", "/some/libcuda.so.1"])
def test_it_is_about_the_software_driver(run, driver):
    result = run("def test(): pass", "--cuda-libcuda", f"--cuda-driver={driver}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--cuda-libcuda is about the software driver*{driver}*"])


def test_collection_that_fails_is_reported_as_ever(run):
    result = run("import no_such_module", "--cuda-libcuda")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["No process called the software driver."])
