"""The benchmark of imports measures the installed packages, and reports the missing ones."""

import pytest


def test_cudadrv_is_measured(benchmark_results):
    results, printed = benchmark_results("imports.py", "--only", "cudadrv", "--rounds", "3")
    assert results["rounds"] == 3
    for figures in results["rows"]["cudadrv"].values():
        assert 0 < figures["low"] <= figures["median"] <= figures["high"]
    assert list(results["rows"]["cudadrv"]) == ["wall ms", "processor ms"]
    assert "cudadrv" in printed


def test_what_cannot_be_imported_is_left_out(scripts, capsys):
    imports = scripts("imports")
    imports.IMPORTS["nothing"] = "import a_package_that_nobody_has"
    imports.IMPORTS["sleep"] = "time.sleep(0.05)"
    times = imports.measure(["nothing", "sleep"], rounds=2)
    assert "without nothing: No module named 'a_package_that_nobody_has'" in capsys.readouterr().err
    (wall, processor), _ = times["sleep"]
    assert wall >= 50 > processor
    assert imports.rows(times)["sleep"]["wall ms"]["median"] >= 50


def test_a_package_that_fails_later_is_an_error(scripts, monkeypatch):
    imports = scripts("imports")
    answers = iter([([1.0, 1.0], None), (None, "no more")])
    monkeypatch.setattr(imports, "timed", lambda statement: next(answers))
    with pytest.raises(SystemExit, match="no more"):
        imports.measure(["cudadrv"], rounds=1)
