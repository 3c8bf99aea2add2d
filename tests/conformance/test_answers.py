"""The driver answers the probe as real devices did, except where ``differences.txt`` says why.

A real driver must answer as its device did when the answers were recorded.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))
import comparison
from comparison import TIMING, UNDEFINED, UNRECORDED, Comparison, Difference

SECTIONS = (
    "blocking lifecycle ordering peers contexts pools values fork library capture_calls copies1d "
    "devices attributes limits device_memory host_memory managed places placed_pools pool_uses "
    "pointers copies2d copies3d fills streams events host_functions capture proc_address "
    "kernel_faults kernels modules jit functions libraries launches dependent_launches "
    "kernel_parameters link_logs old_launches cooperation graphs graph_nodes "
    "graph_runs virtual arrays texture_objects textures texture_code texture_faults references "
    "surfaces sharing zeroed"
)  # sections that take long come first
# Sections whose answers can depend on when operations run.
SCHEDULED = (
    "blocking ordering pools placed_pools pool_uses places values capture_calls copies1d streams "
    "events host_functions capture kernels kernel_faults old_launches cooperation"
)
AT_ONCE = 4  # number of sections that are asked at the same time: they mostly wait
PEERS = "devices=2"


def _cases():
    for schedule in ("eager", "lazy", "random"):
        for section in SECTIONS.split():
            again = schedule != "eager" and section not in SCHEDULED.split()
            if again and schedule == "lazy":
                continue
            marks = [pytest.mark.slow] if again else []
            yield pytest.param(schedule, section, marks=marks, id=f"{schedule}-{section}")


def _settings(schedule, section):
    # The questions rely on what real drivers do: a free waits for the kernels that use the memory.
    free = ",free_waits=always" if schedule == "random" else ""
    return f"schedule={schedule}{free}" + (f",{PEERS}" if section == "peers" else "")


@pytest.fixture(scope="session")
def real_answers():
    """Recorded answers by section.

    Files of several devices are used only for sections that no file of one device has.
    """
    files = sorted(comparison.recorded(), key=lambda file: int(file[1]["devices"]))
    found = {}
    for section in SECTIONS.split():
        answers = (comparison.of_section(file[2], section) for file in files)
        found[section] = next(filter(None, answers), {})
    return found


@pytest.fixture(scope="session")
def ask(request, library_path, real_answers):
    """A function that returns the software driver's answers to a section.

    The function also starts a few of the next sections in the background. It does not start all of
    them, because other workers of pytest-xdist run some of these tests.
    """
    if os.environ.get("CUDADRV_DRIVER") == "cuda":
        pytest.skip("about the software driver")
    cases, asked = list(_selected(request.session.items)), {}
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def ask(schedule, section):
            first = cases.index((schedule, section))
            for case in cases[first : first + AT_ONCE]:
                if case not in asked:
                    settings, real = _settings(*case), real_answers[case[1]]
                    asked[case] = pool.submit(
                        comparison.ask_quickly, library_path, case[1], settings, real
                    )
            return asked[schedule, section].result()

        yield ask
        pool.shutdown(cancel_futures=True)


def _selected(items):
    for item in items:
        if getattr(item, "originalname", "") == test_answers_as_a_real_driver.__name__:
            yield item.callspec.params["schedule"], item.callspec.params["section"]


@pytest.mark.parametrize(("schedule", "section"), list(_cases()))
def test_answers_as_a_real_driver(schedule, section, ask, real_answers, library_path):
    _, answers = ask(schedule, section)
    listed = [entry for entry in comparison.differences() if entry.section == section]
    compared = Comparison(real_answers[section], answers, listed)
    for entry in listed:
        print(f"{entry.pattern}: {len(compared.hidden(entry))} ({entry.kind}: {entry.reason})")
    command = (
        f"CUDADRV_SOFTWARE={_settings(schedule, section)} python3 {comparison.PROBE} "
        f"--library {library_path} --sections {section}"
    )
    _fail("not in differences.txt", [compared.explain(q, command) for q in compared.unlisted()])
    if schedule == "eager":
        _fail("entries of differences.txt are wrong", compared.wrong())


def _fail(what, found):
    found = list(found)
    assert not found, f"{len(found)} {what}:\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("section", SECTIONS.split())
def test_a_real_driver_answers_as_recorded(section, library_path, present):
    answers = comparison.of_section(present, section)
    if not answers:
        pytest.skip(f"{section} has not been recorded on this machine")
    listed = comparison.differences()
    # A loaded machine takes seconds to create a context, so slow questions are asked again.
    asked = comparison.ask_quickly(library_path, section, "", answers)[1]
    compared = Comparison(answers, asked, listed)
    command = f"python3 {comparison.PROBE} --library {library_path} --sections {section}"
    for question in asked:
        if question not in answers:
            print(f"not recorded yet: {question} = {asked[question]}")
    found = [compared.explain(q, command) for q in compared.unexpected()]
    _fail("differ from what was recorded", found)


@pytest.fixture(scope="session")
def present(library_path):
    """The recorded answers of a machine and a driver like the present ones."""
    if os.environ.get("CUDADRV_DRIVER") != "cuda":
        pytest.skip("about real drivers")
    same = ("gpu", "driver", "devices")
    header, _ = comparison.ask(library_path, "library", "", "--question", "version null")
    found = {}
    for _, other, answers in comparison.recorded():
        if all(header.get(name) == other[name] for name in same):
            found.update(answers)
    if not found:
        pytest.skip("nothing recorded for " + ", ".join(f"{n} {header.get(n)}" for n in same))
    return found


def test_list_is_well_formed():
    for entry in comparison.differences():
        assert entry.section in SECTIONS.split(), entry.pattern


def test_comparison_finds_what_is_unlisted_stale_and_too_wide():
    real = {
        "s / a 1": "1",
        "s / a 2": "2",
        "s / b": "3",
        "s / t": "4",
        "s / u": "6",
        "s / missing": "5",
    }
    other = {
        "s / a 1": "x",
        "s / a 2": "2",
        "s / b": "y",
        "s / t": "4",
        "s / u": "8",
        "s / new": "6",
        "s / later": "7",
    }
    listed = [
        Difference("capacity", "s / a *", "too wide"),
        Difference("capacity", "s / * = x", "only this answer"),
        Difference("capacity", "s / b = x", "stale"),
        Difference("capacity", "s / none", "stale"),
        Difference(UNDEFINED, "s / u = 7", "only this answer of the software driver"),
        Difference(UNRECORDED, "s / later", "not asked yet"),
        Difference(TIMING, "s / t", "may differ"),
        Difference(TIMING, "s / no such question", "stale"),
    ]
    compared = Comparison(real, other, listed)
    assert compared.unlisted() == ["s / b", "s / u", "s / missing", "s / new"]
    assert compared.unexpected() == ["s / a 1", "s / b", "s / missing", "s / new"]
    assert [line.split(":")[0] for line in compared.wrong()] == [
        "s / a *",
        "s / b = x",
        "s / none",
        "s / u = 7",
        "s / no such question",
    ]


def test_every_section_is_compared(real_answers):
    newer = {e.section for e in comparison.differences() if e.pattern == f"{e.section} / *"}
    assert {section for section in SECTIONS.split() if not real_answers[section]} == newer
    recorded = {key for _, _, answers in comparison.recorded() for key in answers}
    assert recorded == {key for answers in real_answers.values() for key in answers}
