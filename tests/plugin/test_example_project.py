"""The tests of the example project pass or fail as they say, under every schedule."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "examples" / "testing_project"


def run(*options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "CUDADRV_REQUIRE_GPU"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_cudadrv", "-p", "no:cacheprovider"]
    # This plugin warns under pytest-xdist, and warnings are errors here.
    command += ["-p", "no:benchmark"]
    done = subprocess.run(
        [*command, "-W", "error", *options],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.stdout + done.stderr


def test_its_tests_pass_and_its_bugs_are_found():
    output = run()
    assert " 16 passed, 1 skipped, 14 xfailed in " in output, output


@pytest.mark.parametrize("seed", ["2", "3", "4"])
def test_with_other_seeds_too(seed):
    output = run(f"--cuda-seed={seed}", "--cuda-schedule=random")
    assert " 6 passed, 1 skipped, 6 xfailed in " in output, output


def test_every_order_finds_the_same_bugs():
    output = run("--cuda-schedule=explore")
    assert " 6 passed, 1 skipped, 6 xfailed in " in output, output


def test_its_bugs_look_as_documented():
    output = run(
        "--runxfail",
        "-k",
        "test_race or test_too_early or test_divergent or test_uninitialized",
        "--cuda-schedule=lazy",
    )
    assert " 5 failed, " in output, output
    assert "race in kernel 'reverse' on bytes" in output
    assert "barrier in kernel 'reverse': __syncthreads by thread (0, 0, 0)" in output
    assert "which nobody has written, and copy_to on" in output
    assert "the host wrote there, and copy_from_async on Stream" in output
    assert "assert 3 == 5" in output
