"""The software driver under sanitizers: random calls, and the conformance tests.

A failed fuzz run prints how to repeat it. The program stays in build/sanitizers/.
"""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

from .sanitized import ADDRESS, ROOT, THREAD, Build, compiler

SCHEDULES = ("eager", "lazy", "random")
# With odd seeds, streams really wait. Runs with even seeds can be replayed.
SEEDS = range(1, 1 + int(os.environ.get("CUDADRV_FUZZ_SEEDS", "2")))
CALLS = os.environ.get("CUDADRV_FUZZ_CALLS", "11000")
TEXTURES = "Array,TexObject,SurfObject,Memcpy2D,Memcpy3D,AtoA,AtoD,AtoH,DtoA,HtoA"
# Calls of these functions are refused, fault or race hundreds of times in a run.
REPORTED = "LaunchKernel,Memset,Memcpy,MemAlloc,ModuleLoadData"
CREATING = ("cuArrayCreate_v2", "cuMipmappedArrayCreate", "cuTexObjectCreate", "cuMemcpyAtoA_v2")


@pytest.fixture(scope="module")
def address() -> Build:
    return Build("address", ADDRESS)


@pytest.fixture(scope="module")
def address_fuzz(address) -> Path:
    return address.program()


@pytest.fixture(scope="module")
def thread_fuzz() -> Path:
    return Build("thread", THREAD).program()


def fuzz(program: Path, *arguments: object) -> str:
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, (done.stdout + done.stderr)[-12000:]
    assert done.stdout.startswith("fuzz: ")
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_calls(address_fuzz, schedule):
    """Random calls with random arguments cause no memory error and no undefined behaviour."""
    for seed in SEEDS:
        fuzz(address_fuzz, seed, CALLS, 1, f"schedule={schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_calls_under_the_checks_inside_kernels(address_fuzz, schedule):
    for seed in SEEDS:
        fuzz(address_fuzz, seed, CALLS, 1, f"schedule={schedule},checks=all")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_calls_of_textures(address_fuzz, schedule, monkeypatch):
    """Only functions for textures are called.

    For this reason, many calls succeed, and kernels use the texture objects.
    """
    monkeypatch.setenv("FUZZ_NAMES", TEXTURES)
    summary = fuzz(address_fuzz, 2, CALLS, 1, f"schedule={schedule}")
    never = re.search("never succeeded: (.*)", summary)[1].split()
    assert not {*CREATING} & {*never}, summary
    used, good = re.search(r"(\d+) kernels used textures, (\d+) without", summary).groups()
    assert int(good) * 3 > int(used) > 50, summary


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_calls_of_several_threads(address_fuzz, schedule):
    for seed in SEEDS:
        fuzz(address_fuzz, seed, int(CALLS) // 8, 4, f"schedule={schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_data_race(thread_fuzz, schedule):
    """Calls in several threads do not race with each other, nor with the driver's own threads."""
    for seed in SEEDS:
        fuzz(thread_fuzz, seed, int(CALLS) // 8, 4, f"schedule={schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address_fuzz", "thread_fuzz"])
def test_reports(request, tmp_path, monkeypatch, sanitizer):
    """Several threads write to the report at once, and each line is complete.

    The program ends by _exit.
    """
    monkeypatch.setenv("CUDADRV_SOFTWARE", f"report={tmp_path}")
    monkeypatch.setenv("FUZZ_NAMES", REPORTED)
    fuzz(request.getfixturevalue(sanitizer), 1, int(CALLS) // 8, 4, "schedule=random")
    [report] = tmp_path.glob("*.jsonl")
    records = [json.loads(line) for line in report.read_bytes().splitlines()]
    assert records[0]["process"]["numbers"][0] == "calls"
    calls, *_ = struct.unpack_from("=Q", (tmp_path / f"{report.name}.numbers").read_bytes())
    assert calls >= int(CALLS) // 8 * 4
    assert len(records) > 20


@pytest.mark.slow
def test_conformance(address):
    """The conformance tests pass on a library that is built with the address sanitizer."""
    library = address.library()
    runtimes = [
        subprocess.run(
            [compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(path).is_file() for path in runtimes):
        pytest.skip("the sanitizers' libraries cannot be loaded beforehand: they are not shared")
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        # Python leaks at exit, and one test needs the signal of an invalid access.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    # test_forked_child is left out: a forked child hangs if a thread held a lock of the sanitizer's
    # allocator at the fork. Each test runs under one schedule only, because it runs nearly the same
    # code under all of them: under "random", which runs some work early and some late. test_answers
    # makes the calls of the other tests, and takes a third of the time.
    but = "not test_forked_child and not test_answers and not eager and (not lazy or test_lazy)"
    chosen = ["tests/conformance", "-m", "not slow", "-k", but]
    chosen += ["-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *chosen,
            f"--timeout={PATIENCE}",
            f"--cuda-driver={library}",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-12000:]
