"""The benchmark of pipelines checks the results, and compares times with the times of single
stages.
"""

import pytest

STAGES = ["copy in", "kernel", "copy out", "both copies at once"]


def test_each_pipeline_is_right_and_compared_with_both_bounds(benchmark_results):
    options = ["--size", "4", "--chunk", "1", "--rounds", "3", "--buffers", "1", "3"]
    results, printed = benchmark_results("pipeline.py", *options)
    assert (results["size"], results["chunk"], results["software"]) == (4, 1, True)
    rows = results["rows"]
    by_class = ["Pipeline, 1 buffers", "Pipeline, 3 buffers"]
    assert list(rows) == [*STAGES, *by_class, "by hand, 3 buffers"]
    slowest = max(rows[name]["ms"] for name in STAGES[:3])
    for name in list(rows)[4:]:
        assert rows[name]["of the slowest stage"] == pytest.approx(slowest / rows[name]["ms"])
        assert rows[name]["of both copies at once"] > 0
        assert name in printed
    assert "not expected to overlap" in printed


def test_wrong_numbers_are_found(scripts, driver):
    """A pipeline without its kernel gives wrong results, which are found."""
    pipeline = scripts("pipeline")
    made = pipeline.Pipeline(1 << 16, 1 << 14, [2])
    made.check(made.by_class, 2)
    made.check(made.by_hand, 2)
    made.compute = lambda work, stream: stream
    with pytest.raises(SystemExit, match="by_hand"):
        made.check(made.by_hand, 2)
