"""Two calls beside each other that once crashed, hung, or left a wrong state: known_faults.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from known_faults import FAULTS, OTHERS
from limits import PATIENCE
from windows import interposed

import cudadrv as cu

PROGRAM = Path(__file__).with_name("known_faults.py")


@pytest.fixture(scope="session")
def stopping(tmp_path_factory) -> Path:
    """The path of a driver that stops calls at their driver calls: interposed.c."""
    return interposed(cu.driver_info().path, tmp_path_factory.mktemp("interposed"))


def case(name):
    return pytest.param(name, marks=[pytest.mark.cuda_software] if name in OTHERS else [])


@pytest.mark.parametrize("name", [case(name) for name in (*FAULTS, *OTHERS)])
def test_beside_each_other(stopping, name):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), name],
        env={**os.environ, "CUDADRV_DRIVER": str(stopping), "PYTHONPATH": str(PROGRAM.parents[2])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
