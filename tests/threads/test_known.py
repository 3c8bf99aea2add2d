"""Two calls beside each other that once crashed, hung, or left a wrong state: known_faults.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from known_faults import FAULTS, OTHERS, USES_OF_MODULES, USES_OF_POOLS
from limits import PATIENCE
from windows import interposed

import cudadrv as cu

PROGRAM = Path(__file__).with_name("known_faults.py")
# What is not cured yet. Some of these fail only now and then.
FAILING = {
    *("last_array_and_another_one", "end_of_block_and_an_array", "late_end_and_an_array"),
    *("back_twice", "captures_of_1_into_1", "captures_of_1_into_2", "captures_of_2_into_1"),
    *("one_capture_in_two_threads", "taken_while_it_grows"),
    *("close_and_a_loan_to_the_stream", "close_and_an_array_for_the_stream"),
    *(f"close_of_a_module_and_{use}" for use in USES_OF_MODULES if use != "prepare"),
    *(f"close_of_a_pool_and_{use}" for use in USES_OF_POOLS),
    *(name for name in FAULTS if name.startswith(("imported_", "ended_"))),
}
HANGING = {"shrinking_each_other"}


@pytest.fixture(scope="session")
def stopping(tmp_path_factory) -> Path:
    """The path of a driver that stops calls at their driver calls: interposed.c."""
    return interposed(cu.driver_info().path, tmp_path_factory.mktemp("interposed"))


def case(name):
    marks = []
    if name in FAILING:
        marks.append(pytest.mark.xfail(reason="not cured yet"))
    if name in HANGING:
        marks.append(pytest.mark.xfail(run=False, reason="not cured yet"))
    if name in OTHERS:
        marks.append(pytest.mark.cuda_software)
    return pytest.param(name, marks=marks)


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
