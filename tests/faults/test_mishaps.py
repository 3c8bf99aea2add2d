"""Small programs in which one call, allocation or instruction fails, and the state afterwards.

The program does not crash. The failure is reported, unless it is harmless. No buffer stays
borrowed, no block stays in force, and nothing leaks. A correct program runs afterwards. After a
sticky error, each use raises ContextLostError, and closing is quiet.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from limits import PATIENCE

sys.path.insert(0, str(Path(__file__).parent))
from small_programs import PROGRAMS

FOLDER = Path(__file__).parent
GROUPS = 4  # number of groups of programs, which can run in parallel
NAMES = [tuple(list(PROGRAMS)[group::GROUPS]) for group in range(GROUPS)]

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]


def wrong_cases(kind, which, names):
    """The cases with errors, each as "program case: errors"."""
    # Freed memory is overwritten, so that its use is noticed.
    environment = {**os.environ, "PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{kind}.py"), which, *names],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE if which == "sample" else None,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-4000:]
    assert [line.split(":")[0] for line in lines if line.endswith(" cases")] == list(names)
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [
        f"{each['program']} {each['case']}: {each['wrong']}, after it said {each.get('said')}"
        for each in found
    ]


@pytest.fixture(params=["driver_faults", "memory_faults", "interrupts"])
def kind(request):
    """The name of the script for one kind of mishaps."""
    if request.param == "memory_faults":
        pytest.importorskip("_testcapi")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if request.param == "interrupts" and shutil.which(compiler) is None:
        pytest.skip("there is no C compiler")
    return request.param


@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_a_sample(kind, names):
    assert not wrong_cases(kind, "sample", names)


@pytest.mark.skipif("CUDADRV_ALL_MISHAPS" not in os.environ, reason="CUDADRV_ALL_MISHAPS: hours")
@pytest.mark.parametrize("name", PROGRAMS)
def test_all(kind, name):
    assert not wrong_cases(kind, "all", [name])
