"""The checks inside kernels name lines of Python in kernels of numba."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("numba_mistakes.py")


def test_lines_of_python(schedule):
    lines = PROGRAM.read_text().splitlines()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAM],
        env={**os.environ, "CUDADRV_SOFTWARE": f"schedule={schedule},seed=3,checks=all"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    race, value, barrier = done.stdout.splitlines()

    def places(text):
        numbers = re.findall(re.escape(str(PROGRAM)) + r":(\d+) \(PTX", text)
        return [lines[int(number) - 1].strip() for number in numbers]

    assert race.startswith("race in kernel")
    assert places(race)[-2:] == ["tile[i] = i", "out[i] = tile[63 - i]"]
    assert value.startswith("uninitialized value in kernel")
    assert places(value) == ["if given[i] > 3:"] * 2
    assert barrier.startswith("barrier in kernel")
    assert places(barrier) == ["out[i] = cuda.shfl_sync(0xFFFFFFFF, i, 3)", "out[i + 32] = i"]
