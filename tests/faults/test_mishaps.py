"""Small programs in which anything fails: errors, no crash, and afterwards all is as it should be.

That is: the failure is said, or it was harmless; no buffer stays borrowed, no block in force and
nothing leaks; a sound program runs. After an error that the context does not survive, each use is
a ContextLostError, and closing is quiet.
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
GROUPS = 4  # of programs, for processors to share
NAMES = [tuple(list(PROGRAMS)[group::GROUPS]) for group in range(GROUPS)]

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]


def wrong_cases(kind, which, names):
    """The cases that went wrong, each as "program case: what is wrong"."""
    # So that what was freed is overwritten.
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
    return [f"{each['program']} {each['case']}: {each['wrong']}" for each in found]


@pytest.fixture(params=["driver_faults", "memory_faults", "interrupts"])
def kind(request):
    """What happens to the programs."""
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
