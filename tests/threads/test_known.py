"""Pairs of calls in two threads that once crashed, hung, or left a wrong state: known_faults.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from known_faults import FAULTS, OTHERS
from limits import PATIENCE
from sizes import USES
from windows import interposed

import cudadrv as cu

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def stopping(tmp_path_factory) -> Path:
    """The path of a driver that stops calls at their driver calls: interposed.c."""
    return interposed(cu.driver_info().path, tmp_path_factory.mktemp("interposed"))


def case(name):
    return pytest.param(name, marks=[pytest.mark.cuda_software] if name in OTHERS else [])


def run_program(name, driver, *arguments):
    environment = {
        "CUDADRV_SOFTWARE": "devices=2",
        **os.environ,
        "CUDADRV_DRIVER": str(driver),
        "PYTHONPATH": str(FOLDER.parents[1]),
    }
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", [case(name) for name in (*FAULTS, *OTHERS)])
def test_beside_each_other(stopping, name):
    run_program("known_faults.py", stopping, name)


@pytest.mark.parametrize("group", USES)
@pytest.mark.parametrize("change", ["grow", "shrink"])
def test_a_size_that_changes(stopping, group, change):
    run_program("sizes.py", stopping, change, *USES[group])
