"""`benchmarks/evicted.py`: calls of a driver that evicts cudadrv's code from the caches.

The driver is `null_driver.c`.
"""

import os
import platform
import shutil
import subprocess
import sys

import pytest
from limits import PATIENCE

pytestmark = [
    pytest.mark.skipif(not shutil.which(os.environ.get("CC", "cc")), reason="no C compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its code is for x86-64"),
]


def test_the_driver_runs_as_much_code_as_it_is_told(scripts):
    evicted = scripts("evicted")
    command = [sys.executable, evicted.HERE / "evicted.py", "--kib", "0", "256", "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    nothing, much = (
        [float(cell.strip("+ ")) for cell in line.strip("|").split("|")]
        for line in done.stdout.splitlines()[2:]
    )
    assert (nothing[0], much[0]) == (0, 256)
    assert much[1] > nothing[1]
    assert len(nothing) == len(much) == 3 + len(evicted.ROWS)
