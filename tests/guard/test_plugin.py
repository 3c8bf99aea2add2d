"""The option --cuda-guard of the pytest plugin, alone and with its other options."""

import pytest

RIGHT = """
import cudadrv as cu
import pytest

def test_right(cuda_checked):
    up, frames, work = cu.Stream(), cu.LockedBuffer(16384, "u4"), cu.DeviceBuffer(16384, "u4")
    down = cu.Stream()
    frames[:] = 3
    work.copy_from_async(frames, up)
    down.wait(up)
    work.fill_async(9, down)
    work.copy_to_async(frames, down).wait()
    assert (frames.to_numpy() == 9).all()
"""
EARLY = """
import ctypes
import cudadrv as cu

def test_early(cuda_checked):
    frames, stream = cu.LockedBuffer(16384, name="frames"), cu.Stream(name="down")
    frames.fill_async(1, stream)
    ctypes.string_at(frames.address, 1)
"""
MESSAGE = "*cudadrv: the host reads LockedBuffer 'frames', made at test_*.py:5, at its byte 0,*"


@pytest.fixture
def run(pytester, monkeypatch):
    """A function that runs tests in a pytest process of their own."""
    monkeypatch.delenv("CUDADRV_SOFTWARE", raising=False)

    def run(text, *options):
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--cuda-guard", *options)

    return run


pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ((), 3),
        (("--cuda-schedule=explore",), 1),
        (("--cuda-checks=all",), 3),
        (("--cuda-isolate",), 3),
        (("--cuda-no-pools",), 3),
        (("--cuda-schedule=replay", "--cuda-script=x"), 1),
    ],
)
def test_right_programs_pass(run, options, passed):
    result = run(RIGHT, *options)
    result.assert_outcomes(passed=passed)
    result.stdout.fnmatch_lines(["cudadrv: software driver, *, guard"])


def test_an_early_access_is_told_although_pytest_captures(run):
    result = run(EARLY, "--cuda-schedule=lazy")
    assert result.ret < 0  # ended by a signal
    result.stderr.fnmatch_lines([MESSAGE, "*queued at test_*.py:6,*", "*docs/guard.md*"])


def test_an_early_access_ends_one_test_of_many(run):
    result = run(EARLY + RIGHT, "--cuda-schedule=lazy", "--cuda-isolate")
    result.assert_outcomes(passed=1, failed=1)
    result.stderr.fnmatch_lines([MESSAGE])
    result.stdout.fnmatch_lines(["*The process of this test was ended by SIGSEGV*"])


def test_an_early_access_while_exploring(run):
    result = run(EARLY, "--cuda-schedule=explore")
    assert result.ret < 0
    result.stderr.fnmatch_lines([MESSAGE])


def test_buffers_without_a_guard_are_listed(run):
    result = run(
        """
import cudadrv as cu
import numpy as np

def test_registered(cuda_checked):
    cu.LockedBuffer.from_memory(np.zeros(16384, "u1"), name="mine").close()
""",
        "--cuda-schedule=lazy",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*cudadrv: buffers without a page guard*",
            "  LockedBuffer 'mine', made at *: it is registered memory, which the software driver*",
        ]
    )


def test_the_setting(run, pytester):
    pytester.makeini("[pytest]\ncuda_guard = true\n")
    pytester.makepyfile(RIGHT)
    result = pytester.runpytest_subprocess("--cuda-schedule=lazy")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["cudadrv: software driver, *, guard"])
