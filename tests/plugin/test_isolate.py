"""``--cuda-isolate``: a process for each test."""

import pytest

CLIENT = """
import ctypes, os

cuda = ctypes.CDLL("libcuda.so.1")

def use():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0

def write_nowhere():
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"write_nowhere") == 0
    assert cuda.cuLaunchKernel(kernel, *[1] * 6, 0, None, None, None) == 0
    return cuda.cuCtxSynchronize()

PTX = b'''
.version 8.0
.target sm_80
.address_size 64
.visible .entry write_nowhere()
{
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 64;
    st.global.u64 [%rd1], %rd1;
    ret;
}
'''

@pytest.fixture(scope="session")
def device():
    use()
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_lost_device_is_lost_for_one_test(run, workers):
    text = (
        CLIENT
        + """
def test_fault(device):
    assert write_nowhere() == 0

def test_after_it(device):
    assert cuda.cuCtxSynchronize() == 0
"""
    )
    result = run(text, "--cuda-libcuda", "--cuda-isolate", "-n", workers)
    result.assert_outcomes(passed=1, failed=1)
    # The report of the test and the summary show what the driver has found, with the test's name.
    result.stdout.fnmatch_lines(
        [
            "*E       assert 700 == 0",
            "*- cudadrv: what the driver has found -*",
            "kernel 'write_nowhere'*",
            "Kernel faults: 1",
            "  process * (test_a_lost_device_is_lost_for_one_test.py::test_fault): kernel*",
        ]
    )


def test_without_it_the_device_is_lost_for_the_session(run):
    text = (
        CLIENT
        + """
def test_fault(device):
    assert write_nowhere() == 700

def test_after_it(device):
    assert cuda.cuCtxSynchronize() == 0
"""
    )
    run(text, "--cuda-libcuda").assert_outcomes(passed=1, failed=1)
    run(text, "--cuda-libcuda", "--cuda-isolate").assert_outcomes(passed=2)
    run(text, ini="cuda_isolate = true\ncuda_driver = software").assert_outcomes(passed=2)


def test_processes_that_end_early(run):
    text = """
import os, signal, sys

def test_signal():
    print("printed before")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)

def test_exit():
    os._exit(3)

def test_good():
    pass
"""
    result = run(text, "--cuda-isolate", "--junitxml=results.xml")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "The process of this test was ended by SIGKILL.",
            "*Captured stdout call*",
            "printed before",
            "The process of this test ended with exit status 3 before the test did.",
        ]
    )


def test_outcomes_are_those_of_other_runs(run):
    text = """
import unittest, warnings

def test_fails():
    assert 0

@pytest.mark.skip(reason="no")
def test_skips():
    pass

@pytest.mark.xfail(strict=True)
def test_known():
    assert 0

@pytest.fixture
def broken():
    yield
    raise ValueError("late")

def test_teardown(broken):
    pass

def test_warns():
    class Own(UserWarning):
        pass
    warnings.warn(Own("cannot be pickled"))

class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = True

    def test_one(self):
        self.assertTrue(self.made)

    def test_two(self):
        for number in range(2):
            with self.subTest(number=number):
                self.assertEqual(number, 0)
"""
    usual = run(text, "-W", "default").parseoutcomes()
    isolated = run(text, "--cuda-isolate", "-W", "default")
    assert isolated.parseoutcomes() == usual
    assert usual["failed"] >= 2
    assert usual["errors"] == usual["skipped"] == usual["xfailed"] == usual["warnings"] == 1
    isolated.stdout.fnmatch_lines(["*PytestWarning: Own: cannot be pickled"])


def test_fixtures_of_all_scopes_are_made_for_each_test(run):
    text = """
@pytest.fixture(scope="session")
def numbers():
    yield [1]

def test_one(numbers):
    numbers.append(2)

def test_two(numbers):
    assert numbers == [1]
"""
    run(text).assert_outcomes(passed=1, failed=1)
    run(text, "--cuda-isolate").assert_outcomes(passed=2)


def test_fixtures_of_cudadrv(run):
    text = """
def test_leaks(cuda_checked):
    global left
    left = cu.Stream()

def test_writes(cuda_device):
    assert cu.DeviceBuffer.zeros(4, "f4").to_numpy().sum() == 0
"""
    result = run(text, "--cuda-isolate", "--cuda-schedule=lazy")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["leaked: Stream, made at *"])


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_module_that_uses_the_driver_at_its_import(run, workers):
    result = run(
        CLIENT + "use()\ndef test(): pass", "--cuda-libcuda", "--cuda-isolate", "-n", workers
    )
    result.assert_outcomes(errors=1)
    message = "--cuda-isolate: test_*.py used the driver (cuInit) when it was imported.*"
    result.stdout.fnmatch_lines([message])


def test_a_test_that_ends_the_session(run):
    text = "def test_exit(): pytest.exit('enough', 7)\ndef test_never(): assert 0"
    result = run(text, "--cuda-isolate")
    assert result.ret == 7
    result.stdout.fnmatch_lines(["*Exit: enough*"])


def test_no_debugger(run):
    result = run("def test(): pass", "--cuda-isolate", "--pdb")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--cuda-isolate*--pdb cannot work*"])
    run("def test(): pass", "--cuda-isolate", "-x").assert_outcomes(passed=1)


def test_a_process_that_a_test_leaves_behind(run, pytester):
    text = """
import os, time

def test_leaves():
    if not os.fork():
        for _ in range(200):
            if os.path.exists("done"):
                os._exit(0)
            time.sleep(0.1)
        open("waited", "w").close()
        os._exit(0)

def test_whose_child_returns():
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
"""
    run(text, "--cuda-isolate").assert_outcomes(passed=2)
    assert not (pytester.path / "waited").exists()
    (pytester.path / "done").touch()


def test_timeouts(run):
    pytest.importorskip("pytest_timeout")
    text = """
import os, time

def test_slow():
    print(os.getpid())
    time.sleep(60)

def test_next():
    pass
"""
    result = run(text, "--cuda-isolate", "--timeout=1", "-o", "timeout_method=signal")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*Timeout*1.0s*"])
