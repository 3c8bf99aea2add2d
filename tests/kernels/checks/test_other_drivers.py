"""Checks that are asked of a driver that has none: `benchmarks/null_driver.c`."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from schedules import one_schedule

SOURCE = Path(__file__).resolve().parents[3] / "benchmarks" / "null_driver.c"
CC = os.environ.get("CC", "cc").split()
pytestmark = [
    one_schedule,
    pytest.mark.skipif(not shutil.which(CC[0]), reason="no C compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its code is for x86-64"),
]
ASKED = [
    "testing.configure('checks=race')",
    "testing.configured('checks=all').__enter__()",
    "testing.hazards()",
    "testing.forget_hazards()",
    "testing.kernel_fault()",
]


@pytest.fixture(scope="module")
def null_driver(tmp_path_factory):
    library = tmp_path_factory.mktemp("driver") / "libnull.so"
    subprocess.run([*CC, "-O2", "-shared", "-fPIC", SOURCE, "-o", library], check=True)
    return str(library)


@pytest.mark.parametrize("call", ASKED)
def test_the_error_says_which_driver_it_is(script, null_driver, call):
    done = script.run(
        f"from cudadrv import testing\n{call}",
        CUDADRV_DRIVER=null_driver,
        CUDADRV_SOFTWARE="checks=all",
    )
    assert done.stderr.strip().endswith(
        f"RuntimeError: cudadrv.testing controls the software driver, and {null_driver} is a real"
        " one; set CUDADRV_DRIVER=software before the first use"
    )
