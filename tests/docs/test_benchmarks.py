"""The benchmarks run, and the pages have the numbers of the kept results."""

import importlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
ROW = {
    "bare call from C": {"loop": {"median": 200.0}},
    "cudadrv": {"loop": {"median": 250.0, "above": 52.0}},
    "CuPy": {"loop": {"median": 1400.0, "above": 1198.0}},
}
ENVIRONMENT = {**os.environ, "CUDADRV_DRIVER": "software", "PYTHONPATH": str(ROOT)}
ENVIRONMENT.pop("CUDADRV_SOFTWARE", None)


@pytest.fixture
def module(monkeypatch):
    """A function that imports scripts of benchmarks/, which import each other by name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    known = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


def test_pages_show_the_kept_results(module):
    tables = module("tables")
    found = tables.blocks(tables.load(tables.RECORDED), tables.load(tables.SOFTWARE))
    for path in tables.PAGES:
        page = path.read_text(encoding="utf-8")
        assert page.count("<!-- begin ") == len(tables.MARKED.findall(page)) > 0
        assert page == tables.filled(page, found), "run benchmarks/tables.py --write"


def test_pictures_show_the_kept_results(module):
    tables = module("tables")
    parts = tables.load(tables.RECORDED)["parts"]
    for name in set(parts) & set(tables.PICTURES):
        picture = tables.RECORDED.with_name(f"{name}.svg").read_text(encoding="utf-8")
        assert tables.fingerprint(parts[name]) in picture, "run benchmarks/draw.py"


SCRIPTS = [path for path in BENCHMARKS.glob("*.py") if "ArgumentParser" in path.read_text("utf-8")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_says_how_to_use_it(script):
    """Each script prints its help, so all modules that it imports at its start exist."""
    if script.stem == "draw":
        pytest.importorskip("matplotlib")
    command = [sys.executable, str(script), "--help"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_calls_are_compared_with_the_floor(module):
    tables = module("tables")
    row = {"h2d": ROW}
    assert tables.one_way(row, "loop", False).splitlines()[2] == (
        "| 4 KiB host to device, asynchronous | 200 | 250 (1.25) | 1,400 (7.00) |"
    )
    assert tables.one_way(row, "loop", True).splitlines()[2] == (
        "| 4 KiB host to device, asynchronous | 200 | 250 (+52) | 1,400 (+1,198) |"
    )


@pytest.mark.parametrize(("low", "high"), [(0.0003, 120), (0.8, 70), (0.9, 2)])
def test_labels_of_an_axis_keep_apart(module, low, high):
    pytest.importorskip("matplotlib")
    draw = module("draw")
    shown = draw.apart(draw.RATIOS, low, high)
    steps = [math.log(b / a, high / low) for a, b in itertools.pairwise(shown)]
    assert 1 in shown
    assert len(steps) > 2
    assert min(steps) >= draw.CLOSE


def test_who_is_quicker_is_said(module):
    tables = module("tables")
    for spread, remark in ((4, ""), (40, ", which is less than the spread of either figure")):
        figures = {"low": 230.0, "high": 230.0 + spread}
        ahead = {
            "cudadrv": {"loop": {**figures, "median": 250.0}},
            "CuPy": {"loop": {**figures, "median": 240.0}},
        }
        assert (
            f"quicker than cudadrv at: recording an event (CuPy, by 10 ns{remark}).\n"
            in tables.quicker({"h2d": ROW, "record": ahead})
        )
    assert tables.quicker({"h2d": ROW}).startswith("In a plain loop, no other")


def test_bandwidth_is_compared_with_page_locked_memory(module):
    tables = module("tables")
    cells = {tables.LOCKED: {"median": 50.0}, "cudadrv": {"median": 40.0}}
    assert tables.bandwidth({"to the host": {"1048576": cells}}).splitlines()[2] == (
        "| 1 MiB | 50 | 40 (0.80) |"
    )


def test_a_part_that_fails_leaves_the_others(module, monkeypatch):
    measure, tables = module("measure"), module("tables")
    options = ["--rounds=1", "--only", "cudadrv"]
    monkeypatch.setattr(
        measure, "PARTS", {"pipeline": (["--nonsense"], []), "imports": (options, [])}
    )
    for name in ("CUDADRV_DRIVER", "PYTHONPATH"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    *_, results = measure.measure(["pipeline", "imports"])
    assert results["failed"] == {"pipeline": "exit status 2"}
    assert results["software"] is True
    assert results["parts"]["imports"]["rows"]["cudadrv"]["wall ms"]["median"] > 0
    assert "failed: exit status 2" in tables.report(results)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The results and the output of measure.py on the software driver."""
    file = tmp_path_factory.mktemp("benchmarks") / "results.json"
    command = [sys.executable, BENCHMARKS / "measure.py", "--quick", "--only", "cudadrv"]
    command += ["--json", file]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text()), done.stdout


def test_one_command_measures_everything(module, measured):
    tables = module("tables")
    results, printed = measured
    needs_a_gpu = {"interop"}
    assert set(results["parts"]) | needs_a_gpu == set(tables.TITLES)
    assert results["failed"] == {}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", results["date"])
    assert results["versions"]["cudadrv"]
    assert printed.strip() == tables.report(results).strip()
    calls = results["parts"]["calls"]["rows"]
    assert set(calls) == set(tables.CALLS)
    for row in calls.values():
        assert row[tables.FLOOR]["loop"]["median"] > 0
        for way in ("loop", "function"):
            assert row["cudadrv"][way]["low"] <= row["cudadrv"][way]["median"]
            assert "above" in row["cudadrv"][way]
    for sizes in results["parts"]["bandwidth"]["rows"].values():
        assert all({tables.DRIVER, "cudadrv"} <= set(names) for names in sizes.values())


def test_results_are_drawn_the_same_each_time(module, measured, tmp_path):
    pytest.importorskip("matplotlib")
    draw, tables = module("draw"), module("tables")
    results, _ = measured
    for folder in ("first", "second"):
        draw.draw(results, tmp_path / folder)
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert names == {f"{name}.svg" for name in tables.PICTURES}
    for name in names:
        first = (tmp_path / "first" / name).read_bytes()
        assert first == (tmp_path / "second" / name).read_bytes()
        assert tables.fingerprint(results["parts"][name[:-4]]).encode() in first
