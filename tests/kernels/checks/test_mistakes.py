"""The checks on the kernels of benchmarks/mistakes.py, each in its wrong and its right form."""

import functools
import sys
from pathlib import Path

import pytest

import cudadrv as cu
from cudadrv import testing, toolkit

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import compute_sanitizer
import mistakes

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("hazards", "races"),
    pytest.mark.parametrize("cuda_schedule", ["random"], indirect=True),
]
FORMS = [
    (name, form)
    for name, mistake in mistakes.MISTAKES.items()
    for form in ("right", "wrong")[: 2 - mistake.only_right]
]


@functools.cache
def ptx(form):
    """The PTX of all kernels."""
    try:
        return toolkit.compile(
            mistakes.source(mistakes.MISTAKES),
            arch="compute_90",
            options=["-DWRONG"] if form == "wrong" else [],
        ).encode()
    except toolkit.CompilerNotFoundError as error:
        pytest.skip(f"no compiler: {error}")


def found():
    return {hazard.kind for hazard in testing.hazards()} | {"race" for _ in testing.races()}


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_is_found(cuda_device, name, form):
    testing.forget_hazards()
    with testing.configured("checks=all,kernel_faults=record"):
        try:
            mistakes.run(name, form == "wrong", ptx(form), cu.driver_info().path)
            kinds = found()
        except SystemExit:
            kinds = found() | {"access"}
            testing.reset_device()
    if form == "right":
        assert not kinds
    else:
        assert mistakes.MISTAKES[name].kind in kinds


ERRORS = "========= ERROR SUMMARY: {} errors\n"
HAZARDS = "========= RACECHECK SUMMARY: {} displayed (1 error, 0 warnings)\n"


def test_what_compute_sanitizer_says():
    """Reports of each tool are counted, and a run that did not end is no run without reports."""
    for tool, output, expected in (
        ("memcheck", f"ran\n{ERRORS.format(3)}", 3),
        ("memcheck", f"========= Program hit CUDA_ERROR_X\nran\n{ERRORS.format(3)}", 2),
        ("synccheck", f"ran\n{ERRORS.format(0)}", 0),
        ("synccheck", f"ran\n{ERRORS.format(64)}{ERRORS.format(14)[:-1]} were not printed", 64),
        ("racecheck", f"ran\n{HAZARDS.format('1 hazard')}", 1),
        ("racecheck", f"ran\n{HAZARDS.format('0 hazards')}", 0),
        ("initcheck", "========= Error: Device not supported\n", "failed"),
        ("initcheck", f"cuInit returned 3\n{ERRORS.format(0)}", "error"),
    ):
        assert compute_sanitizer.found_by(tool, output, None) == expected
    runs = [
        compute_sanitizer.Run("a", form, tool, found, "")
        for tool in (*compute_sanitizer.TOOLS, compute_sanitizer.OURS)
        for form, found in (("wrong", int(tool != "memcheck")), ("right", int(tool == "racecheck")))
    ]
    lines = compute_sanitizer.table(runs, (*compute_sanitizer.TOOLS, compute_sanitizer.OURS))
    assert lines[2] == "| a | 1 | 1 | 1 |  | 1 | racecheck: 1 |"
    assert lines[3] == "\nwrong forms reported, of 1: compute-sanitizer 1, the software driver 1"
    assert lines[4] == "\nright forms reported, of 1: compute-sanitizer 1, the software driver 0"
